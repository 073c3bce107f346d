//! Masks of A4's zones on a chip (algorithms.md 3.3). It must not know workloads or counters.
//!
//! On the paper's 11 ways: DCA zone way[0:1] = 0x600, inclusive ways way[9:10] = 0x003, and between them the seven
//! standard ways way[2:8] = 0x1fc, the largest LP zone.

use super::Variant;
use crate::ways::widest_run;
use waykeeper_host::LlcGeometry;
use waykeeper_units::WayMask;

/// The zones in force for one set of workloads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Zones {
    /// All ways: mask of I/O HPWs ("not explicitly assigned", A4 s5.3).
    pub all: WayMask,
    /// Mask of HPWs without I/O.
    pub hp: WayMask,
    /// Ways for devices and I/O HPWs only; empty without a DCA zone.
    pub dca: WayMask,
    /// Rightmost way of the LP zone and of the trash ways.
    right: u32,
    /// Ways of the LP zone at the start of a search.
    pub lp_start: u32,
    /// Most ways of the LP zone.
    pub lp_max: u32,
}

impl Zones {
    /// Zones for `variant`; `io_hpw` says whether an I/O HPW is active. `None` if the chip has too few ways.
    ///
    /// `keep_inclusive` keeps LPWs off the inclusive ways even without an I/O HPW.
    pub fn new(
        llc: &LlcGeometry,
        dca_ways: Option<WayMask>,
        variant: Variant,
        io_hpw: bool,
        keep_inclusive: bool,
    ) -> Option<Zones> {
        let all = WayMask::full(llc.ways);
        let dca = dca_ways.unwrap_or(WayMask::EMPTY).and(all);
        let inclusive = llc.inclusive_ways.unwrap_or(WayMask::EMPTY);
        let outside_dca = widest_run(all.minus(dca));
        let standard = widest_run(outside_dca.minus(inclusive));
        let io_zones = variant.has_io_zones() && io_hpw;
        let (lp_run, lp_max) = if !variant.has_io_zones() {
            // A4-a ignores I/O. The paper gives no maximum; ours is all ways less the number of DCA ways and one more.
            (all, llc.ways.saturating_sub(dca.count() + 1))
        } else if io_zones || keep_inclusive {
            // All standard ways; where nothing else is reserved, HPWs still keep one way of their own.
            (standard, standard.count().min(outside_dca.count().saturating_sub(1)))
        } else {
            (outside_dca, outside_dca.count().saturating_sub(1))
        };
        let min_ways = llc.min_ways.max(1);
        let hp = if io_zones { outside_dca } else { all };
        // The start is two ways (way[7:8] or way[9:10]), fewer only if two exceed the maximum.
        let lp_start = 2.max(min_ways).min(lp_max);
        let right = lp_run.lowest()?;
        (lp_max >= min_ways && hp.count() >= min_ways).then_some(Zones {
            all,
            hp,
            dca: if io_zones { dca } else { WayMask::EMPTY },
            right,
            lp_start,
            lp_max,
        })
    }

    /// The LP zone (or the trash ways) when it has `ways` ways: it grows leftwards from its right end.
    pub fn lp(&self, ways: u32) -> WayMask {
        WayMask::span(self.right, ways)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn llc(ways: u32, inclusive: Option<u32>) -> LlcGeometry {
        let inclusive_ways = inclusive.map(WayMask::from_bits);
        LlcGeometry { ways, min_ways: 1, bytes: 0, clos_count: 16, sparse_masks: false, inclusive_ways }
    }

    fn zones(variant: Variant, io_hpw: bool) -> Zones {
        Zones::new(&llc(11, Some(3)), Some(WayMask::from_bits(0x600)), variant, io_hpw, false).unwrap()
    }

    #[test]
    fn the_papers_table_without_io() {
        // algorithms.md 3.3, first row: LP starts at way[9:10] = 0x003 and ends at way[3:10] = 0x0ff.
        for variant in [Variant::A, Variant::B, Variant::D] {
            let zones = zones(variant, false);
            assert_eq!(zones.hp.bits(), 0x7ff);
            assert_eq!(zones.lp(zones.lp_start).bits(), 0x003);
            assert_eq!(zones.lp(zones.lp_max).bits(), 0x0ff);
        }
    }

    #[test]
    fn the_papers_table_with_io() {
        // Second row: HP way[2:10] = 0x1ff, LP way[7:8] = 0x00c to way[2:8] = 0x1fc, DCA way[0:1] = 0x600.
        for variant in [Variant::B, Variant::C, Variant::D] {
            let zones = zones(variant, true);
            assert_eq!((zones.hp.bits(), zones.dca.bits()), (0x1ff, 0x600));
            assert_eq!(zones.lp(zones.lp_start).bits(), 0x00c);
            assert_eq!(zones.lp(zones.lp_max).bits(), 0x1fc);
            assert_eq!(zones.lp(1).bits(), 0x004); // way[8], the smallest trash
        }
        // A4-a ignores it.
        assert_eq!(zones(Variant::A, true), zones(Variant::A, false));
    }

    #[test]
    fn the_artifact_starts_at_the_standard_ways_always() {
        let zones =
            Zones::new(&llc(11, Some(3)), Some(WayMask::from_bits(0x600)), Variant::D, false, true).unwrap();
        assert_eq!(zones.lp(zones.lp_start).bits(), 0x00c);
        assert_eq!(zones.lp(zones.lp_max).bits(), 0x1fc);
    }

    #[test]
    fn other_chips() {
        // Haswell: 20 ways, all alike, DCA 0xc0000. HPWs keep one way of their own: 17 of 18.
        let zones =
            Zones::new(&llc(20, None), Some(WayMask::from_bits(0xc0000)), Variant::D, true, false).unwrap();
        assert_eq!((zones.hp.bits(), zones.lp(zones.lp_max).bits()), (0x3ffff, 0x1ffff));
        // No DCA and no inclusive ways: only one way is reserved.
        let zones = Zones::new(&llc(12, None), None, Variant::D, true, false).unwrap();
        assert_eq!((zones.hp.bits(), zones.dca.bits(), zones.lp(zones.lp_max).bits()), (0xfff, 0, 0x7ff));
        // Four ways, all of them reserved: no room.
        let none = Zones::new(&llc(4, Some(3)), Some(WayMask::from_bits(0xc)), Variant::D, true, false);
        assert_eq!(none, None);
        // DCA ways at the right end: the zones lie left of them.
        let zones =
            Zones::new(&llc(11, None), Some(WayMask::from_bits(0x003)), Variant::D, true, false).unwrap();
        assert_eq!((zones.hp.bits(), zones.lp(zones.lp_start).bits()), (0x7fc, 0x00c));
    }
}
