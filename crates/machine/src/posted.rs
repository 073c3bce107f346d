//! Limit of a device's write rate to memory: a root port has a fixed number of entries for posted writes, and a line
//! occupies one until memory has accepted it.
//!
//! Must not know what a device transfers. Writes that allocate in the LLC (DCA on) are not limited.
//! Marks: docs/reference/README.md#marks.

use waykeeper_silicon::{Chip, DcaMode};

/// Entries for posted writes, in lines per root port: 92 (Vuppalapati et al., SIGCOMM 2024, on Cascade Lake; X: figure
/// recalled, not read again).
const PLACES: f64 = 92.0;
/// Time for which a line occupies an entry while memory is idle, ns (the same source; X).
const IDLE_NS: f64 = 300.0;

/// Minimum time per written line of a device now, ns: 0 unless its writes bypass the LLC and memory has a backlog.
#[inline]
pub(crate) fn line_ns(chip: &Chip, device: usize) -> f64 {
    let wait_ns = chip.dram().wait_ns();
    if wait_ns > 0.0 && chip.dca(device) != DcaMode::On { (IDLE_NS + wait_ns) / PLACES } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waykeeper_silicon::{AddressMap, ChipSpec, Sampling};

    #[test]
    fn only_a_device_that_writes_memory_waits_and_only_for_a_backlog() {
        let mut spec = ChipSpec::built_in("gold-6140").unwrap();
        spec.dram.channels = 1;
        let mut memory = AddressMap::new(&spec, Sampling::EXACT, 1, 1);
        let mut chip = Chip::new(&spec, Sampling::EXACT, 1);
        let region = memory.ordinary(1 << 20).unwrap();
        chip.set_dca(0, DcaMode::Off);
        assert_eq!(line_ns(&chip, 0), 0.0);
        // 1 MiB in 1 us through one channel.
        for line in region.lines() {
            chip.dma_write(0, *line);
        }
        chip.dram_mut().tick(1000.0, 1.0);
        let wait_ns = chip.dram().wait_ns();
        assert!(wait_ns > 1000.0, "{wait_ns}");
        assert_eq!(line_ns(&chip, 0), (300.0 + wait_ns) / 92.0);
        assert_eq!(line_ns(&chip, 1), 0.0, "DCA on");
    }
}
