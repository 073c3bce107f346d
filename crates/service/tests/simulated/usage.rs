//! What the daemon and its machine use, once in five simulated minutes: descriptors, the disk, memory.
//!
//! Must not know what a history does.

use crate::world::State;

/// Simulated time between two notes, ns.
const NOTE_NS: u64 = 300_000_000_000;

/// What is in use at the end of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Which note it is, from 1 on.
    pub note: u64,
    /// Open files of the daemon.
    pub descriptors: usize,
    /// Bytes of all files on the disk: journal, recordings, configuration.
    pub disk_bytes: usize,
    /// Memory of this test's process, simulated machine included, bytes; 0 where the kernel does not say.
    pub resident_bytes: usize,
}

impl State {
    /// Notes what is in use, if the time between two notes has passed since the last time.
    pub fn note_usage(&mut self) {
        let note = self.now_ns / NOTE_NS;
        if self.usage.last().is_none_or(|last| last.note < note) {
            let descriptors = self.open_descriptors();
            let disk_bytes = self.disk.bytes();
            self.usage.push(Usage { note, descriptors, disk_bytes, resident_bytes: resident_bytes() });
        }
    }
}

/// proc(5), statm: the second number is in pages.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * rustix::param::page_size()
}
