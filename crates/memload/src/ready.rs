//! A prepared run: the plan fits the target, the user has consented, memory and engine are available.
//!
//! Everything that can be refused is refused here, before the first command. Must not know how commands are counted.

use crate::buffer::{Buffer, BufferError};
use crate::check::{PlanError, alone, check, limits};
use crate::choice::{choose, engine_params};
use crate::engine::{EngineParams, IoCommand, IoOperation};
use crate::error::PrepareError;
use crate::fit::{Fit, reach};
use crate::pending_file::CreatedFile;
use crate::plan::{EngineKind, LoadPlan, PageSize};
use crate::safety::{Consent, ExclusiveAccess, TargetRefusal, begins_with_a_hole, lies_in_memory, permit};
use crate::system::KernelMounts;
use crate::target::{Target, TargetKind};
use std::os::fd::OwnedFd;
use waykeeper_load::{Command, LoadLimits, MemoryDirection, Pattern, Shape};

/// A run that can begin.
#[derive(Debug)]
pub struct Ready {
    plan: LoadPlan,
    target: Target,
    shape: Shape,
    block_bytes: u32,
    max_blocks: u32,
    engine: EngineKind,
    notes: Vec<String>,
    file: OwnedFd,
    buffer: Buffer,
    node: Option<u32>,
    created_file: Option<CreatedFile>,
    _access: ExclusiveAccess,
}

/// Checks as much of a run as possible before its turn, without allocating the buffer or creating a file; the target is
/// released again.
///
/// # Errors
/// If the run could not begin at present.
pub fn look(
    target: Target,
    plan: &LoadPlan,
    consent: &Consent,
    system: &KernelMounts,
) -> Result<(), PrepareError> {
    Seen::new(target, plan, consent, system).map(drop)
}

/// The checked parts of a run, before the buffer is allocated and a new file is completed.
struct Seen {
    target: Target,
    access: ExclusiveAccess,
    fit: Fit,
    engine: EngineKind,
    file: OwnedFd,
    notes: Vec<String>,
}

impl Seen {
    fn new(
        mut target: Target,
        plan: &LoadPlan,
        consent: &Consent,
        system: &KernelMounts,
    ) -> Result<Seen, PrepareError> {
        check(plan)?;
        if let (TargetKind::Absent, Some(bytes)) = (target.kind, consent.create) {
            if bytes == 0 {
                let wanted = "a file of 0 B takes no commands; give a size such as 1GiB".to_owned();
                return Err(PlanError::Value { option: "--create", value: "0".to_owned(), wanted }.into());
            }
        } else {
            Fit::of(plan, &target)?;
        }
        let access = permit(&mut target, plan.writes(), consent, system)?;
        let fit = Fit::of(plan, &target)?;
        let needed = fit.buffer_bytes as u64;
        // Huge pages come from a pool of their own, and mmap reports if that has too few.
        let available = system.available_bytes().filter(|_| plan.pages == PageSize::Base);
        if let Some(available) = available.filter(|available| *available < needed) {
            return Err(BufferError::Room { bytes: needed, available }.into());
        }
        let mut notes = Vec::new();
        let (engine, file) = choose(plan, &target, access.pending_file.as_ref(), &mut notes)?;
        alone(plan, engine)?;
        Ok(Seen { target, access, fit, engine, file, notes })
    }
}

impl Ready {
    /// Checks everything, creates the requested file, allocates the memory and chooses the engine. Calls `stop`
    /// repeatedly to see whether a stop was requested.
    ///
    /// # Errors
    /// If something does not fit, is forbidden or missing; or if a stop was requested.
    pub fn new(
        target: Target,
        plan: LoadPlan,
        consent: &Consent,
        system: &KernelMounts,
        stop: &dyn Fn() -> bool,
    ) -> Result<Ready, PrepareError> {
        let Seen { mut target, mut access, fit, engine, file, notes: mut ways } =
            Seen::new(target, &plan, consent, system)?;
        let Fit { shape, block_bytes, max_blocks, buffer_bytes } = fit;
        let seed = crate::verify::content_seed(&plan);
        let buffer = Buffer::unless(stop, buffer_bytes, plan.pages, plan.numa, seed)?;
        let buffer = buffer.ok_or(PrepareError::Stopped)?;
        let (mut notes, mut created_file) = (Vec::new(), None);
        // The file is completed last, so that no file remains after another error.
        if let Some(pending_file) = access.pending_file.take() {
            let io = |why| TargetRefusal::Io { path: target.path.clone(), why };
            created_file = Some(CreatedFile::new(&file).map_err(io)?);
            if !pending_file.finish(target.bytes, stop).map_err(io)? {
                return Err(PrepareError::Stopped);
            }
            target = target.made(&file, system).map_err(TargetRefusal::Target)?;
            notes.push(format!("{}: created for this run; it stays after the run", target.path.display()));
        }
        notes.insert(0, format!("{}: {target}", target.path.display()));
        notes.append(&mut ways);
        if access.unseen {
            notes.push(format!(
                "{}: only root can check whether a process of another user has it open for writing",
                target.path.display()
            ));
        }
        if plan.reads() && begins_with_a_hole(&target) {
            notes.push(format!(
                "{}: the file begins with a hole, so no device serves reads of it; fill it first, or let \
                 --create make a file",
                target.path.display()
            ));
        }
        if plan.pattern.moves() && lies_in_memory(&target) {
            notes.push(format!(
                "{}: the file is in memory (tmpfs), so the CPU copies the data and no device moves any; give \
                 a file on a disk",
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
            created_file,
            _access: access,
        })
    }

    /// The plan.
    pub const fn plan(&self) -> &LoadPlan {
        &self.plan
    }

    /// The file that was created for the run, if any.
    pub const fn created_file(&self) -> Option<&CreatedFile> {
        self.created_file.as_ref()
    }

    /// The target of the commands.
    pub const fn target(&self) -> &Target {
        &self.target
    }

    /// Bytes of a block.
    pub const fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Maximum blocks of a command.
    pub const fn max_blocks(&self) -> u32 {
        self.max_blocks
    }

    /// Interface that sends commands.
    pub const fn engine(&self) -> EngineKind {
        self.engine
    }

    /// Notes for the user before the run, a sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The NUMA node of the target's device; `None` if sysfs has none.
    pub const fn node(&self) -> Option<u32> {
        self.node
    }

    /// The buffer.
    pub const fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    pub(crate) const fn shape(&self) -> Shape {
        self.shape
    }

    pub(crate) const fn threads(&self) -> u32 {
        match self.engine {
            EngineKind::NvmeIoctl => self.plan.workers.saturating_mul(self.plan.depth),
            _ => self.plan.workers,
        }
    }

    /// Outstanding commands of each thread.
    pub(crate) const fn engine_depth(&self) -> u32 {
        if matches!(self.engine, EngineKind::NvmeIoctl) { 1 } else { self.plan.depth }
    }

    /// True if two commands may be outstanding at the same time.
    pub(crate) const fn at_once(&self) -> bool {
        self.plan.workers.saturating_mul(self.plan.depth) > 1
    }

    pub(crate) fn limits(&self) -> LoadLimits {
        limits(&self.plan, self.block_bytes)
    }

    /// Parameters of one thread's engine.
    pub(crate) fn engine_params(&self) -> EngineParams<'_> {
        let bytes = |blocks: u32| blocks as usize * self.block_bytes as usize;
        let (longest, step) = reach(&self.shape, self.max_blocks, &self.plan);
        EngineParams {
            longest_bytes: bytes(longest),
            step_bytes: bytes(step),
            ..engine_params(
                &self.buffer,
                &self.file,
                &self.target,
                self.engine_depth(),
                self.max_blocks * self.block_bytes,
            )
        }
    }

    /// Converts a command of the pattern to a command of an engine, with its direction and its position on the device.
    pub(crate) fn io(&self, command: &Command, direction: MemoryDirection, place: u64) -> IoCommand {
        let operation = match (self.plan.pattern, direction) {
            (Pattern::Flush | Pattern::Noop, _) => IoOperation::Flush,
            (_, MemoryDirection::Write) => IoOperation::ToMemory,
            (_, MemoryDirection::Read) => IoOperation::FromMemory,
        };
        let offset = command.target as usize * self.block_bytes as usize;
        IoCommand { operation, offset, bytes: command.moved * self.block_bytes, place }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::target::tests::generic;

    /// A run on /dev/null, for tests with an engine of their own.
    pub fn on_nothing(plan: LoadPlan) -> Ready {
        let target = Target { kind: TargetKind::File, ..generic(None, None) };
        let Fit { shape, block_bytes, max_blocks, buffer_bytes } = Fit::of(&plan, &target).unwrap();
        let file = std::fs::File::open("/dev/null").unwrap().into();
        let buffer = Buffer::new(buffer_bytes, plan.pages, plan.numa, plan.seed).unwrap();
        let (engine, notes, _access) = (EngineKind::Uring, Vec::new(), ExclusiveAccess::default());
        let (node, created_file) = (None, None);
        Ready {
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
            created_file,
            _access,
        }
    }
}
