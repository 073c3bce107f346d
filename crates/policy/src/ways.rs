//! Runs of neighbouring ways, for all policies. It must not know zones or workloads.

use waykeeper_units::WayMask;

/// The widest run of neighbouring ways in `mask`, of equals the rightmost; empty if there is none.
pub(crate) fn widest_run(mask: WayMask) -> WayMask {
    let mut best = WayMask::EMPTY;
    let mut way = 0;
    while way < 32 {
        let count = (way..32).take_while(|bit| mask.contains(*bit)).count() as u32;
        if count > best.count() {
            best = WayMask::span(way, count);
        }
        way += count + 1;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_run_is_found() {
        assert_eq!(widest_run(WayMask::from_bits(0x60f)).bits(), 0x00f);
        assert_eq!(widest_run(WayMask::from_bits(0x603)).bits(), 0x003);
        assert_eq!(widest_run(WayMask::EMPTY), WayMask::EMPTY);
        assert_eq!(widest_run(WayMask::full(32)), WayMask::full(32));
    }
}
