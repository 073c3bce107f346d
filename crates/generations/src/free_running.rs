//! Counters that nobody has to program: they run from power-on and cannot be taken away (hardware.md 4.2).

use serde::{Deserialize, Serialize};

/// The free-running counters of a kind of box.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FreeRunning {
    /// Name in perf without `_N`: `uncore_iio_free_running`.
    pub perf: String,
    /// Bits of a counter.
    pub width: u8,
    /// Bytes that one count stands for.
    pub unit_bytes: u32,
    /// Device to memory, one counter a part.
    pub inbound: FreeRunningSet,
    /// CPU to device, where the kernel or the chip has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outbound: Option<FreeRunningSet>,
    /// Where this is written.
    pub source: String,
}

/// Counters of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FreeRunningSet {
    /// MSR of part 0 of box 0, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub msr: Option<u32>,
    /// From one part to the next.
    #[serde(default)]
    pub part_step: u32,
    /// From one box to the next.
    #[serde(default)]
    pub box_step: u32,
    /// How many parts.
    pub parts: u8,
}

impl FreeRunningSet {
    /// MSR of one part's counter.
    pub fn address(&self, number: u16, part: u8) -> Option<u32> {
        let base = self.msr?;
        (part < self.parts)
            .then(|| base + u32::from(number) * self.box_step + u32::from(part) * self.part_step)
    }
}
