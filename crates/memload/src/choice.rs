//! Choice of the engine for a target: the first that works, or the requested one.
//!
//! Opens the target and tries each engine on it; must not know sizes, nor consent.

use crate::buffer::Buffer;
use crate::engine::{Direct, EngineParams, Passthrough};
use crate::error::PrepareError;
use crate::fit::BLOCK_BYTES;
use crate::pending_file::PendingFile;
use crate::plan::{EngineKind, LoadPlan, PageSize};
use crate::target::{Nvme, Target, TargetKind};
use rustix::fs::OFlags;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use waykeeper_load::Pattern;

/// Engine parameters for commands of `most_bytes` bytes, side by side in the buffer.
pub fn engine_params<'a>(
    buffer: &'a Buffer,
    file: &'a OwnedFd,
    target: &Target,
    depth: u32,
    most_bytes: u32,
) -> EngineParams<'a> {
    let nsid = target.nvme.as_ref().map_or(0, |nvme| nvme.nsid);
    let Target { lba_bytes, max_segments: most_segments, .. } = *target;
    let (longest_bytes, step_bytes) = (most_bytes as usize, most_bytes as usize);
    EngineParams {
        buffer,
        file,
        depth,
        most_bytes,
        longest_bytes,
        step_bytes,
        most_segments,
        nsid,
        lba_bytes,
    }
}

/// The first engine that works on the target, or the requested one; notes the engines that failed.
pub fn choose(
    plan: &LoadPlan,
    target: &Target,
    pending_file: Option<&PendingFile>,
    notes: &mut Vec<String>,
) -> Result<(EngineKind, OwnedFd), PrepareError> {
    let can: &[EngineKind] = match target.kind {
        TargetKind::NvmeGeneric | TargetKind::NvmeFile => &[EngineKind::NvmeUring, EngineKind::NvmeIoctl],
        TargetKind::NvmeBlock => &[EngineKind::NvmeUring, EngineKind::Uring, EngineKind::NvmeIoctl],
        TargetKind::Block | TargetKind::File | TargetKind::Absent => &[EngineKind::Uring],
    };
    let path = &target.path;
    let tried: Vec<EngineKind> = match plan.engine {
        None => can.to_vec(),
        Some(engine) if can.contains(&engine) => vec![engine],
        Some(engine) => {
            let a = if pending_file.is_some() { "a file".to_owned() } else { format!("a {target}") };
            let names: Vec<&str> = can.iter().map(|engine| engine.name()).collect();
            let why = format!("the engine {} cannot load {a}; {} can", engine.name(), names.join(", "));
            return Err(PrepareError::Engine { path: path.clone(), why });
        }
    };
    let mut lacks = Vec::new();
    for engine in tried {
        match attempt(engine, plan, target, pending_file) {
            Ok((file, helpers_stay)) => {
                notes.extend(lacks);
                notes.push(format!("engine: {}", engine.name()));
                if !plan.cpus.is_empty() && !helpers_stay {
                    notes.push(
                        "kernel threads do the work that would block, and this kernel does not keep them on \
                         --cpus (Linux 5.14 does)"
                            .to_owned(),
                    );
                }
                return Ok((engine, file));
            }
            Err(Attempt::Lacks(why)) => lacks.push(format!("{} cannot be used: {why}", engine.name())),
            Err(Attempt::Ends(error)) => return Err(error),
        }
    }
    Err(PrepareError::Engine { path: path.clone(), why: lacks.join("; ") })
}

enum Attempt {
    /// This engine does not work; another may.
    Lacks(String),
    /// No engine can work.
    Ends(PrepareError),
}

/// Opens the target and tries the engine; true if the kernel's helper threads stay on the given CPUs.
fn attempt(
    engine: EngineKind,
    plan: &LoadPlan,
    target: &Target,
    pending_file: Option<&PendingFile>,
) -> Result<(OwnedFd, bool), Attempt> {
    let metadata = target.nvme.as_ref().map_or(Some(0), |nvme| nvme.metadata_bytes);
    match metadata {
        _ if engine == EngineKind::Uring => {}
        Some(0) => {}
        // With metadata for each block, a device would transfer more than the memory of a command.
        None => {
            let why = "the namespace does not report through Identify whether its blocks have metadata";
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
        (EngineKind::NvmeUring, TargetKind::NvmeBlock) => target
            .nvme
            .as_ref()
            .and_then(generic)
            .ok_or_else(|| Attempt::Lacks("the namespace has no generic device here".to_owned()))?,
        _ => target.real.clone(),
    };
    let file = open(engine, plan, target, pending_file, &place)?;
    // The engine is tried with a page of its own; whether its ring can be created is the same for all workers.
    let page = Buffer::new(BLOCK_BYTES as usize, PageSize::Base, None, plan.seed)
        .map_err(|why| Attempt::Ends(why.into()))?;
    let params = engine_params(&page, &file, target, 1, BLOCK_BYTES);
    let made = match engine {
        EngineKind::NvmeUring => Passthrough::new(&params).map(|engine| engine.helpers_stay()),
        EngineKind::Uring => Direct::new(&params).map(|engine| engine.helpers_stay()),
        EngineKind::NvmeIoctl => Ok(true),
    };
    match made {
        Ok(helpers_stay) => Ok((file, helpers_stay)),
        Err(why) => Err(Attempt::Lacks(ring_in_words(&why))),
    }
}

fn open(
    engine: EngineKind,
    plan: &LoadPlan,
    target: &Target,
    pending_file: Option<&PendingFile>,
    place: &Path,
) -> Result<OwnedFd, Attempt> {
    // Passthrough needs a file that is open for writing; a plain read does not.
    let writes = plan.writes() || plan.pattern == Pattern::Flush;
    let access = if writes && (plan.writes() || target.is_device()) { OFlags::RDWR } else { OFlags::RDONLY };
    let direct = if engine == EngineKind::Uring { OFlags::DIRECT } else { OFlags::empty() };
    let flags = access | direct;
    let opened =
        pending_file.map_or_else(|| target.open(place, flags), |pending_file| pending_file.open(flags));
    opened.map_err(|why| {
        if engine == EngineKind::Uring && why.raw_os_error() == Some(libc::EINVAL) {
            let none = "this file system has no O_DIRECT: all data would pass through the page cache, and \
                the device would move none of it per command";
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
        Some(libc::EOPNOTSUPP) => "the device takes no commands through io_uring".to_owned(),
        Some(libc::ENOSYS) => "this kernel has no io_uring".to_owned(),
        Some(libc::EPERM) => "io_uring is forbidden here (kernel.io_uring_disabled, or a sandbox)".to_owned(),
        Some(libc::EINVAL) => "this kernel's io_uring is too old (Linux 5.19 is new enough)".to_owned(),
        _ => format!("io_uring failed: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::tests::generic;

    #[test]
    fn commands_are_passed_through_only_where_it_is_known_that_blocks_have_no_metadata() {
        for (metadata, says) in
            [(None, "does not report through Identify"), (Some(8), "8 B of metadata per block")]
        {
            let mut target = generic(None, None);
            target.nvme = target.nvme.map(|nvme| Nvme { metadata_bytes: metadata, ..nvme });
            let error = choose(&LoadPlan::default(), &target, None, &mut Vec::new())
                .map(|_| ())
                .unwrap_err()
                .to_string();
            for engine in ["nvme-uring", "nvme-ioctl"] {
                assert!(error.contains(&format!("{engine} cannot be used: the namespace")), "{error}");
            }
            assert!(error.contains(says), "{error}");
        }
    }
}
