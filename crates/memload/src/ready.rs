//! A run that has been looked through: the plan fits the target, who must agree has agreed, memory and engine are there.
//!
//! Everything that can be refused is refused here, before the first command; must not know how commands are counted.

use crate::buffer::{Buffer, BufferError};
use crate::check::{alone, check, limits};
use crate::engine::{Deed, Direct, Ground, Io, Passthrough};
use crate::newborn::Newborn;
use crate::plan::{EngineKind, Pages, Plan};
use crate::safety::{Consent, Hold, Refusal, begins_with_a_hole, lies_in_memory, permit};
use crate::system::System;
use crate::target::{Kind, Nvme, Target};
use rustix::fs::OFlags;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use waykeeper_load::{Command, Limits, MOST_COMMAND_BYTES, Pattern, Shape, ShapeError, Toward};

/// Bytes of a block where nobody says: the format of the thesis (s3.1).
const BLOCK_BYTES: u32 = 4096;
/// Blocks of the buffer where nobody says (algorithms.md 7.2).
const BUFFER_BLOCKS: u64 = 1000;

/// Why a run cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// A value of the plan that cannot be.
    #[error("{option} is {value}; {wanted}")]
    Value {
        /// The word.
        option: &'static str,
        /// What it says.
        value: String,
        /// What it could say.
        wanted: String,
    },
    /// A word that says nothing about this pattern.
    #[error("{option} has no meaning for the pattern {pattern}; leave it out, or take another pattern")]
    Stray {
        /// The word.
        option: &'static str,
        /// The pattern.
        pattern: &'static str,
    },
    /// The pattern does not fit.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The target may not be loaded.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// No memory.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// The target could not be opened.
    #[error("{}: cannot be opened for {purpose}: {why}", .path.display())]
    Open {
        /// The path.
        path: PathBuf,
        /// What for.
        purpose: &'static str,
        /// Why.
        why: io::Error,
    },
    /// No engine gets commands to it.
    #[error("{}: {why}", .path.display())]
    Engine {
        /// The path.
        path: PathBuf,
        /// What each lacks.
        why: String,
    },
    /// A worker could not begin.
    #[error("a worker cannot start: {0}")]
    Worker(io::Error),
}

/// A run that can begin.
#[derive(Debug)]
pub struct Ready {
    plan: Plan,
    target: Target,
    shape: Shape,
    block_bytes: u32,
    max_blocks: u32,
    engine: EngineKind,
    notes: Vec<String>,
    file: OwnedFd,
    buffer: Buffer,
    node: Option<u32>,
    _hold: Hold,
}

impl Ready {
    /// Looks everything through, makes the file that was asked for, takes the memory, and finds the engine.
    ///
    /// # Errors
    /// Something does not fit, is not allowed, or not there.
    pub fn new(
        mut target: Target,
        plan: Plan,
        consent: &Consent,
        system: &System,
    ) -> Result<Ready, PrepareError> {
        check(&plan)?;
        if let (Kind::Absent, Some(bytes)) = (target.kind, consent.create) {
            if bytes == 0 {
                let wanted = "a file without bytes takes no command; give its size, such as 1GiB".to_owned();
                return Err(PrepareError::Value { option: "--create", value: "0".to_owned(), wanted });
            }
        } else {
            Fit::of(&plan, &target)?;
        }
        let mut hold = permit(&mut target, plan.writes(), consent, system)?;
        let newborn = hold.newborn.take();
        let Fit { shape, block_bytes, max_blocks, buffer_bytes } = Fit::of(&plan, &target)?;
        let needed = buffer_bytes as u64;
        // Huge pages have a pool of their own, and one that has too few says so.
        let available = system.available_bytes().filter(|_| plan.pages == Pages::Base);
        if let Some(available) = available.filter(|available| *available < needed) {
            return Err(BufferError::Room { bytes: needed, available }.into());
        }
        let mut ways = Vec::new();
        let (engine, file) = choose(&plan, &target, newborn.as_ref(), &mut ways)?;
        alone(&plan, engine)?;
        let buffer = Buffer::new(buffer_bytes, plan.pages, plan.numa, crate::verify::content_seed(&plan))?;
        let mut notes = Vec::new();
        // Everything else is there, so that no file stays which nothing can be done with.
        if let Some(newborn) = newborn {
            let path = target.path.clone();
            newborn.finish(target.bytes).map_err(|why| Refusal::Io { path, why })?;
            target = target.made(&file, system).map_err(Refusal::Target)?;
            notes.push(format!("{}: made, and stays when the run is over", target.path.display()));
        }
        notes.insert(0, format!("{}: {target}", target.path.display()));
        notes.append(&mut ways);
        if hold.unseen {
            notes.push(format!(
                "{}: only root may look whether a process of others has it open for writing",
                target.path.display()
            ));
        }
        if plan.reads() && begins_with_a_hole(&target) {
            notes.push(format!(
                "{}: begins with a hole, so reads of it come from no device; fill it first, or have --create make one",
                target.path.display()
            ));
        }
        if plan.pattern.moves() && lies_in_memory(&target) {
            notes.push(format!(
                "{}: lies in memory (tmpfs), so the CPU copies it and no device moves a thing; give a file on a disk",
                target.path.display()
            ));
        }
        if engine == EngineKind::NvmeIoctl && plan.depth > 1 {
            notes.push(format!(
                "{}: a thread waits for each command, so {} workers of depth {} are {} threads",
                engine.name(),
                plan.workers,
                plan.depth,
                plan.workers.saturating_mul(plan.depth)
            ));
        }
        let node = target.node(system);
        Ok(Ready {
            plan,
            target,
            shape,
            block_bytes,
            max_blocks,
            engine,
            notes,
            file,
            buffer,
            node,
            _hold: hold,
        })
    }

    /// What was planned.
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Where commands go.
    pub const fn target(&self) -> &Target {
        &self.target
    }

    /// Bytes of a block.
    pub const fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Most blocks that a command may move.
    pub const fn max_blocks(&self) -> u32 {
        self.max_blocks
    }

    /// What carries commands.
    pub const fn engine(&self) -> EngineKind {
        self.engine
    }

    /// What a person should know before it begins, a sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The NUMA node that the target's device is attached to, as far as sysfs says.
    pub const fn node(&self) -> Option<u32> {
        self.node
    }

    /// The memory.
    pub const fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    pub(crate) const fn shape(&self) -> Shape {
        self.shape
    }

    /// Threads that it takes.
    pub(crate) const fn threads(&self) -> u32 {
        match self.engine {
            EngineKind::NvmeIoctl => self.plan.workers.saturating_mul(self.plan.depth),
            _ => self.plan.workers,
        }
    }

    /// Commands that a thread keeps outstanding.
    pub(crate) const fn engine_depth(&self) -> u32 {
        if matches!(self.engine, EngineKind::NvmeIoctl) { 1 } else { self.plan.depth }
    }

    /// True if two commands may be on their way at the same time.
    pub(crate) const fn at_once(&self) -> bool {
        self.plan.workers.saturating_mul(self.plan.depth) > 1
    }

    pub(crate) fn limits(&self) -> Limits {
        limits(&self.plan, self.block_bytes)
    }

    /// What an engine of one thread stands on.
    pub(crate) fn ground(&self) -> Ground<'_> {
        let bytes = |blocks: u32| blocks as usize * self.block_bytes as usize;
        let (longest, step) = reach(&self.shape, self.max_blocks, &self.plan);
        Ground {
            longest_bytes: bytes(longest),
            step_bytes: bytes(step),
            ..ground(
                &self.buffer,
                &self.file,
                &self.target,
                self.engine_depth(),
                self.max_blocks * self.block_bytes,
            )
        }
    }

    /// A command of the pattern as a command of an engine, which way its data go and at what place of the device.
    pub(crate) fn io(&self, command: &Command, toward: Toward, place: u64) -> Io {
        let deed = match (self.plan.pattern, toward) {
            (Pattern::Flush | Pattern::Noop, _) => Deed::Flush,
            (_, Toward::Write) => Deed::ToMemory,
            (_, Toward::Read) => Deed::FromMemory,
        };
        let offset = command.target as usize * self.block_bytes as usize;
        Io { deed, offset, bytes: command.moved * self.block_bytes, place }
    }
}

/// A plan's sizes on a target.
struct Fit {
    shape: Shape,
    block_bytes: u32,
    max_blocks: u32,
    buffer_bytes: usize,
}

impl Fit {
    fn of(plan: &Plan, target: &Target) -> Result<Fit, PrepareError> {
        let refuse = |option, value: u64, wanted: String| PrepareError::Value {
            option,
            value: value.to_string(),
            wanted,
        };
        let lba = target.lba_bytes.max(1);
        let path = target.path.display();
        let usual = if BLOCK_BYTES.is_multiple_of(lba) { BLOCK_BYTES } else { lba };
        let block_bytes = plan.block_bytes.unwrap_or(usual);
        if block_bytes == 0 || !block_bytes.is_multiple_of(lba) {
            let wanted = format!("{path} moves whole multiples of {lba} B");
            return Err(refuse("--block-size", block_bytes.into(), wanted));
        }
        let block = u64::from(block_bytes);
        let (mut most, moves) = (target.max_bytes / block, plan.pattern.moves());
        // What a file takes is a custom, not a limit: a block larger than that goes alone.
        let most_bytes =
            if target.is_device() { target.max_bytes } else { target.max_bytes.max(MOST_COMMAND_BYTES) };
        if most == 0 && most_bytes >= block {
            most = 1;
        }
        if most == 0 && moves {
            let wanted = format!("{path} moves at most {most_bytes} B with a command");
            return Err(refuse("--block-size", block, wanted));
        }
        let max = match plan.max_blocks {
            None => most,
            Some(max) if u64::from(max) > most_bytes / block || max == 0 => {
                let most = most_bytes / block;
                let wanted = format!("{path} moves 1 to {most} blocks of {block} B with a command");
                return Err(refuse("--max-blocks", max.into(), wanted));
            }
            Some(max) => max.into(),
        };
        let max_blocks = u32::try_from(max).unwrap_or(u32::MAX);
        let buffer_bytes = plan.buffer_bytes.unwrap_or(BUFFER_BLOCKS * block);
        if !buffer_bytes.is_multiple_of(block) || buffer_bytes == 0 {
            return Err(refuse("--buffer", buffer_bytes, format!("it must be whole blocks of {block} B")));
        }
        let wanted = || "a buffer has at most 4294967295 blocks".to_owned();
        let blocks =
            u32::try_from(buffer_bytes / block).map_err(|_| refuse("--buffer", buffer_bytes, wanted()))?;
        let bytes = usize::try_from(buffer_bytes).map_err(|_| refuse("--buffer", buffer_bytes, wanted()))?;
        let shape = Shape::new(plan.pattern, blocks, max_blocks, plan.stride, plan.thesis)?;
        let longest = u64::from(reach(&shape, max_blocks, plan).0) * block;
        // Nobody has said yet how large what is not there is to be; that it is missing is told later.
        let is_known = target.kind != Kind::Absent || target.bytes > 0;
        if moves && is_known && target.bytes < longest {
            let wanted =
                format!("{path} must have the {longest} B that a command moves at most; give a larger one");
            let option = if target.kind == Kind::Absent { "--create" } else { "the size of the target" };
            return Err(refuse(option, target.bytes, wanted));
        }
        if target.kind == Kind::Absent && target.bytes > 0 && !target.bytes.is_multiple_of(block) {
            return Err(refuse("--create", target.bytes, format!("it must be whole blocks of {block} B")));
        }
        Ok(Fit { shape, block_bytes, max_blocks, buffer_bytes: bytes })
    }
}

/// Blocks that the longest command of a pattern moves, and of what number of them all begin at a multiple.
pub fn reach(shape: &Shape, max: u32, plan: &Plan) -> (u32, u32) {
    let over = u32::from(plan.thesis);
    match shape.pattern() {
        Pattern::Single => (1 + over, 1),
        Pattern::Packets => (1 + over, plan.stride),
        Pattern::Random => (max - 1 + over, 1),
        Pattern::Full => ((max - 1 + over).min(shape.blocks()), max - 1),
        Pattern::Flush | Pattern::Noop => (0, 1),
    }
}

/// For commands of the most bytes, one after the other.
fn ground<'a>(
    buffer: &'a Buffer,
    file: &'a OwnedFd,
    target: &Target,
    depth: u32,
    most_bytes: u32,
) -> Ground<'a> {
    let nsid = target.nvme.as_ref().map_or(0, |nvme| nvme.nsid);
    let Target { lba_bytes, max_segments: most_segments, .. } = *target;
    let (longest_bytes, step_bytes) = (most_bytes as usize, most_bytes as usize);
    Ground { buffer, file, depth, most_bytes, longest_bytes, step_bytes, most_segments, nsid, lba_bytes }
}

/// The best engine that the target can do with, or the one that was asked for; what was tried in vain is noted.
fn choose(
    plan: &Plan,
    target: &Target,
    newborn: Option<&Newborn>,
    notes: &mut Vec<String>,
) -> Result<(EngineKind, OwnedFd), PrepareError> {
    let can: &[EngineKind] = match target.kind {
        Kind::NvmeGeneric | Kind::NvmeFile => &[EngineKind::NvmeUring, EngineKind::NvmeIoctl],
        Kind::NvmeBlock => &[EngineKind::NvmeUring, EngineKind::Uring, EngineKind::NvmeIoctl],
        Kind::Block | Kind::File | Kind::Absent => &[EngineKind::Uring],
    };
    let path = &target.path;
    let tried: Vec<EngineKind> = match plan.engine {
        None => can.to_vec(),
        Some(engine) if can.contains(&engine) => vec![engine],
        Some(engine) => {
            let a = if newborn.is_some() { "a file".to_owned() } else { format!("a {target}") };
            let names: Vec<&str> = can.iter().map(|engine| engine.name()).collect();
            let why = format!("the engine {} gets nothing to {a}; {} can", engine.name(), names.join(", "));
            return Err(PrepareError::Engine { path: path.clone(), why });
        }
    };
    let mut lacks = Vec::new();
    for engine in tried {
        match attempt(engine, plan, target, newborn) {
            Ok((file, helpers_stay)) => {
                notes.extend(lacks);
                notes.push(format!("engine: {}", engine.name()));
                if !plan.cpus.is_empty() && !helpers_stay {
                    notes.push(
                        "what would block is done by threads of the kernel, which this one does not keep on --cpus (Linux 5.14 does)"
                            .to_owned(),
                    );
                }
                return Ok((engine, file));
            }
            Err(Attempt::Lacks(why)) => lacks.push(format!("{} cannot be: {why}", engine.name())),
            Err(Attempt::Ends(error)) => return Err(error),
        }
    }
    Err(PrepareError::Engine { path: path.clone(), why: lacks.join("; ") })
}

enum Attempt {
    /// Another engine may do.
    Lacks(String),
    /// No engine will.
    Ends(PrepareError),
}

/// The open target, and whether everything that carries commands stays on the CPUs that it is given.
fn attempt(
    engine: EngineKind,
    plan: &Plan,
    target: &Target,
    newborn: Option<&Newborn>,
) -> Result<(OwnedFd, bool), Attempt> {
    let metadata = target.nvme.as_ref().map_or(Some(0), |nvme| nvme.metadata_bytes);
    match metadata {
        _ if engine == EngineKind::Uring => {}
        Some(0) => {}
        // With metadata behind each block a device would move more than the memory that a command names.
        None => {
            let why = "the namespace does not say by Identify whether its blocks have metadata";
            return Err(Attempt::Lacks(why.to_owned()));
        }
        Some(metadata) => {
            return Err(Attempt::Lacks(format!(
                "the namespace is formatted with {metadata} B of metadata per block, which commands of this kind do not carry"
            )));
        }
    }
    let generic = |nvme: &Nvme| nvme.generic.clone();
    let place: PathBuf = match (engine, target.kind) {
        (EngineKind::NvmeUring, Kind::NvmeBlock) => target
            .nvme
            .as_ref()
            .and_then(generic)
            .ok_or_else(|| Attempt::Lacks("the namespace has no generic device here".to_owned()))?,
        _ => target.real.clone(),
    };
    let file = open(engine, plan, target, newborn, &place)?;
    // The engine itself is tried on a page of its own: whether its ring can be made is the same for all workers.
    let page = Buffer::new(BLOCK_BYTES as usize, Pages::Base, None, plan.seed)
        .map_err(|why| Attempt::Ends(why.into()))?;
    let ground = ground(&page, &file, target, 1, BLOCK_BYTES);
    let made = match engine {
        EngineKind::NvmeUring => Passthrough::new(&ground).map(|engine| engine.helpers_stay()),
        EngineKind::Uring => Direct::new(&ground).map(|engine| engine.helpers_stay()),
        EngineKind::NvmeIoctl => Ok(true),
    };
    match made {
        Ok(helpers_stay) => Ok((file, helpers_stay)),
        Err(why) => Err(Attempt::Lacks(ring_in_words(&why))),
    }
}

fn open(
    engine: EngineKind,
    plan: &Plan,
    target: &Target,
    newborn: Option<&Newborn>,
    place: &Path,
) -> Result<OwnedFd, Attempt> {
    // Passing a command through asks for a file that may be written; a plain read does not.
    let writes = plan.writes() || plan.pattern == Pattern::Flush;
    let access = if writes && (plan.writes() || target.is_device()) { OFlags::RDWR } else { OFlags::RDONLY };
    let direct = if engine == EngineKind::Uring { OFlags::DIRECT } else { OFlags::empty() };
    let flags = access | direct;
    let opened = newborn.map_or_else(|| target.open(place, flags), |newborn| newborn.open(flags));
    opened.map_err(|why| {
        if engine == EngineKind::Uring && why.raw_os_error() == Some(libc::EINVAL) {
            let none = "this file system has no O_DIRECT: everything would go through the page cache, and no device would move it";
            return Attempt::Lacks(none.to_owned());
        }
        let purpose = if access == OFlags::RDWR { "writing" } else { "reading" };
        let denied = place != target.real && why.kind() == io::ErrorKind::PermissionDenied;
        if denied {
            return Attempt::Lacks(format!("{}: {why}", place.display()));
        }
        Attempt::Ends(PrepareError::Open { path: place.to_owned(), purpose, why })
    })
}

fn ring_in_words(why: &io::Error) -> String {
    match why.raw_os_error() {
        Some(libc::EOPNOTSUPP) => "it takes no commands through io_uring".to_owned(),
        Some(libc::ENOSYS) => "this kernel has no io_uring".to_owned(),
        Some(libc::EPERM) => "io_uring is forbidden here (kernel.io_uring_disabled, or a sandbox)".to_owned(),
        Some(libc::EINVAL) => "this kernel's io_uring is too old for it (Linux 5.19 has it)".to_owned(),
        _ => format!("its io_uring: {why}"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::target::tests::generic;

    /// A run whose commands go nowhere, for those who bring an engine of their own.
    pub fn on_nothing(plan: Plan) -> Ready {
        let target = Target { kind: Kind::File, ..generic(None, None) };
        let Fit { shape, block_bytes, max_blocks, buffer_bytes } = Fit::of(&plan, &target).unwrap();
        let file = std::fs::File::open("/dev/null").unwrap().into();
        let buffer = Buffer::new(buffer_bytes, plan.pages, plan.numa, plan.seed).unwrap();
        let (engine, notes, _hold) = (EngineKind::Uring, Vec::new(), Hold::default());
        Ready { plan, target, shape, block_bytes, max_blocks, engine, notes, file, buffer, node: None, _hold }
    }

    #[test]
    fn commands_are_passed_through_only_where_it_is_known_that_blocks_have_no_metadata() {
        for (metadata, says) in [(None, "does not say by Identify"), (Some(8), "8 B of metadata per block")] {
            let mut target = generic(None, None);
            target.nvme = target.nvme.map(|nvme| Nvme { metadata_bytes: metadata, ..nvme });
            let error =
                choose(&Plan::default(), &target, None, &mut Vec::new()).map(|_| ()).unwrap_err().to_string();
            for engine in ["nvme-uring", "nvme-ioctl"] {
                assert!(error.contains(&format!("{engine} cannot be: the namespace")), "{error}");
            }
            assert!(error.contains(says), "{error}");
        }
    }
}
