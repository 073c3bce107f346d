//! Fio's engines: which of them load a drive by commands, and with how many in flight.
//!
//! Knows names only; must not know keys or lines.

use super::JobEngine;

/// Commands that an engine keeps in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InFlight {
    /// As many as `iodepth` says.
    Depth,
    /// One: it waits for each.
    One,
}

const ALIKE: &str = "the drive is loaded alike: io_uring sends the commands";
const WAITS: &str = "one command at a time, as fio's synchronous engines send them: io_uring sends them";
const NULL: &str = "fio's engine moves nothing; here the drives of the scenario are loaded";

/// The interface for an engine, how many commands it has in flight, and what is to be said of it.
pub(super) fn find(
    name: &str,
    is_on_model: bool,
) -> Result<(JobEngine, InFlight, Option<&'static str>), String> {
    let by_uring = |flight, note| Ok((JobEngine::IoUring, flight, Some(note)));
    match name {
        "io_uring" => Ok((JobEngine::IoUring, InFlight::Depth, None)),
        "io_uring_cmd" => Ok((JobEngine::IoUringCmd, InFlight::Depth, None)),
        "libaio" | "posixaio" | "solarisaio" | "windowsaio" => by_uring(InFlight::Depth, ALIKE),
        "sync" | "psync" | "vsync" | "pvsync" | "pvsync2" => by_uring(InFlight::One, WAITS),
        // On a real drive these need a device or a right of their own.
        "sg" | "xnvme" | "libblkio" if is_on_model => by_uring(InFlight::Depth, ALIKE),
        "libzbc" | "fusion-aw-sync" | "mtd" if is_on_model => by_uring(InFlight::One, WAITS),
        "mmap" if is_on_model => by_uring(
            InFlight::One,
            "one command of `bs` at a time, where fio reads and writes single pages through the page cache",
        ),
        _ if may_use_gpu(name) && is_on_model => by_uring(InFlight::One, WAITS),
        "null" | "cpp_null" if is_on_model => by_uring(InFlight::Depth, NULL),
        _ => Err(format!(
            "io_uring, io_uring_cmd, libaio, posixaio, or one of sync, psync, vsync, pvsync and pvsync2: {}",
            why_not(name)
        )),
    }
}

/// Engines that read a drive to the memory of a GPU unless a key asks for plain reads.
pub(super) fn may_use_gpu(name: &str) -> bool {
    matches!(name, "libcufile" | "libhipfile")
}

/// Why an engine cannot be played.
fn why_not(name: &str) -> &'static str {
    const NETWORK: [&str; 14] = [
        "dfs",
        "gfapi",
        "gfapi_async",
        "http",
        "libhdfs",
        "libiscsi",
        "nbd",
        "net",
        "netsplice",
        "nfs",
        "rados",
        "rbd",
        "rdma",
        "sheepdog",
    ];
    const MEMORY: [&str; 4] = ["dev-dax", "libpmem", "page_fault", "pmemblk"];
    const NO_DATA: [&str; 14] = [
        "cpuio",
        "dircreate",
        "dirdelete",
        "dirstat",
        "e4defrag",
        "exec",
        "falloc",
        "filecreate",
        "filedelete",
        "fileoperation",
        "filestat",
        "filexattr",
        "ftruncate",
        "sgunmap",
    ];
    if NETWORK.contains(&name) || name.starts_with("ime_") || name.starts_with("librpma") {
        "this one loads a network and a server's drives"
    } else if MEMORY.contains(&name) {
        "this one is loads and stores of the cores to memory"
    } else if NO_DATA.contains(&name) {
        "this one moves no data of a drive"
    } else {
        "other engines load no drive, or not by commands alone"
    }
}
