//! Counters that need no programming: they run from power-on, and no program can occupy them (hardware.md 4.2).

use crate::Block;
use serde::{Deserialize, Serialize};

/// The free-running counters of a kind of box.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FreeRunning {
    /// Name in perf without `_N`: `uncore_iio_free_running`.
    pub perf: String,
    /// Bits of a counter.
    pub width: u8,
    /// Bytes per count.
    pub unit_bytes: u32,
    /// Device to memory, one counter per part.
    pub inbound: FreeRunningSet,
    /// CPU to device, where the kernel or the chip has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outbound: Option<FreeRunningSet>,
    /// Source of the values.
    pub source: String,
}

/// Counters of one direction.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FreeRunningSet {
    /// MSR of part 0, by box; empty where the registers are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<Block>,
    /// Step from one part to the next.
    #[serde(default = "one")]
    pub part_step: u32,
    /// Number of parts.
    pub parts: u8,
    /// Name of the event under the PMU's `events/`, without the part's number: `bw_in_port`; `None` where the
    /// kernel names no such event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
}

fn one() -> u32 {
    1
}

impl FreeRunningSet {
    /// MSR of one part's counter of box `number`.
    pub fn address(&self, number: u16, part: u8) -> Option<u32> {
        let base = self.blocks.iter().find_map(|block| block.address(number))?;
        (part < self.parts).then(|| base + u32::from(part) * self.part_step)
    }
}
