//! Formulas for the cache events that commands must cause (algorithms.md 7.4; thesis s5.2, s5.4).
//!
//! Knows counts; must not know how events are measured.

use crate::{MemoryDirection, Pattern};
use serde::{Deserialize, Serialize};

/// Bytes of an NVMe submission entry, which the device fetches from memory.
pub const COMMAND_BYTES: u64 = 64;
/// Bytes of a completion entry, which the device writes.
pub const COMPLETION_BYTES: u64 = 16;
const LINE_BYTES: u64 = 64;

/// Work that was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CompletedWork {
    /// Commands.
    pub commands: u64,
    /// Blocks that were actually transferred.
    pub blocks: u64,
}

/// Events at the cache, hits and misses together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DmaEvents {
    /// Lines that the device read (PCIeRdCur): data and commands.
    pub pcie_rdcur: u64,
    /// Whole lines that the device wrote (ItoM): data.
    pub itom: u64,
    /// Parts of lines that the device wrote (RFO): completions.
    pub rfo: u64,
}

/// The thesis's bandwidth (s5.2), bytes per second: data and the entries of both queues. 0 if `seconds` is 0.
pub fn bandwidth(moved: CompletedWork, block_bytes: u64, seconds: f64) -> f64 {
    let bytes = moved.blocks as f64 * block_bytes as f64
        + moved.commands as f64 * (COMMAND_BYTES + COMPLETION_BYTES) as f64;
    if seconds > 0.0 { bytes / seconds } else { 0.0 }
}

/// Events that `moved` must have caused. The buffer is aligned to a cache line.
pub fn expected(
    pattern: Pattern,
    direction: MemoryDirection,
    moved: CompletedWork,
    block_bytes: u64,
) -> DmaEvents {
    let data = if pattern.moves() { moved.blocks * block_bytes / LINE_BYTES } else { 0 };
    let (read, written) = match direction {
        MemoryDirection::Read => (data, 0),
        MemoryDirection::Write => (0, data),
    };
    DmaEvents {
        pcie_rdcur: read + moved.commands * COMMAND_BYTES / LINE_BYTES,
        itom: written,
        rfo: moved.commands,
    }
}

/// The same for commands in both directions: the device read `outward` of the moved blocks from memory.
pub fn expected_both_ways(
    pattern: Pattern,
    moved: CompletedWork,
    outward: u64,
    block_bytes: u64,
) -> DmaEvents {
    let inward = CompletedWork { commands: 0, blocks: moved.blocks.saturating_sub(outward) };
    let out =
        expected(pattern, MemoryDirection::Read, CompletedWork { blocks: outward, ..moved }, block_bytes);
    let into = expected(pattern, MemoryDirection::Write, inward, block_bytes);
    DmaEvents { itom: into.itom, ..out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_thesis() {
        // 10 commands of 31 blocks of 4096 B: 310 x 64 = 19840 lines.
        let moved = CompletedWork { commands: 10, blocks: 310 };
        let of = |pattern, direction| expected(pattern, direction, moved, 4096);
        assert_eq!(
            of(Pattern::Random, MemoryDirection::Read),
            DmaEvents { pcie_rdcur: 19_850, itom: 0, rfo: 10 }
        );
        assert_eq!(
            of(Pattern::Random, MemoryDirection::Write),
            DmaEvents { pcie_rdcur: 10, itom: 19_840, rfo: 10 }
        );
        let flushed =
            expected(Pattern::Flush, MemoryDirection::Write, CompletedWork { commands: 10, blocks: 0 }, 4096);
        assert_eq!(flushed, DmaEvents { pcie_rdcur: 10, itom: 0, rfo: 10 });
    }

    #[test]
    fn both_ways_are_each_their_own_and_the_commands_of_both() {
        // 10 commands of one 4096 B block each, 3 of them read from memory: 3 x 64 + 10, 7 x 64, 10.
        let moved = CompletedWork { commands: 10, blocks: 10 };
        let of = |outward| expected_both_ways(Pattern::Single, moved, outward, 4096);
        assert_eq!(of(3), DmaEvents { pcie_rdcur: 202, itom: 448, rfo: 10 });
        assert_eq!(of(0), expected(Pattern::Single, MemoryDirection::Write, moved, 4096));
        assert_eq!(of(10), expected(Pattern::Single, MemoryDirection::Read, moved, 4096));
    }

    #[test]
    fn bandwidth_counts_both_queues() {
        // 310 x 4096 + 10 x 80 = 1270560 bytes in 2 s.
        let moved = CompletedWork { commands: 10, blocks: 310 };
        assert_eq!(bandwidth(moved, 4096, 2.0), 635_280.0);
        assert_eq!(bandwidth(moved, 4096, 0.0), 0.0);
    }
}
