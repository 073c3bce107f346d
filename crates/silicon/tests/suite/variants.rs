//! Every variant of microarchitecture.md 11 differs from the base model, on a case small enough to see how. The
//! lab shows that each of them contradicts a published figure.

use crate::common;

use common::{World, certain, keeping, skylake};
use waykeeper_silicon::{
    AddressMap, ChipSpec, DcaMode, DmaUpdate, Fill, InclusiveVictim, Level, Line, Migration, MlcHeldWrite,
    Replacement, Rules, Sampling, SliceHash,
};

/// What `case` shows under the base rules and under the variant.
fn differs<T: PartialEq + std::fmt::Debug>(
    (base, expected): (Rules, T),
    (variant, other): (Rules, T),
    case: impl Fn(&mut World) -> T,
) {
    assert_eq!(case(&mut World::new(&skylake(), base)), expected, "base");
    assert_eq!(case(&mut World::new(&skylake(), variant)), other, "variant");
    assert_ne!(expected, other);
}

fn migrated(w: &mut World) -> (Line, Option<bool>, bool) {
    let line = w.line();
    w.chip.dma_write(0, line);
    w.read(0, line);
    (line, w.llc(line).map(|copy| copy.dirty), w.mlc(0, line).unwrap().dirty)
}

#[test]
fn no_migrated_copy() {
    let variant = Rules { migration: Migration::NoCopy, ..certain() };
    differs((certain(), (Some(false), true)), (variant, (None, true)), |w| {
        let (_, copy, held) = migrated(w);
        (copy, held)
    });
}

#[test]
fn dirt_stays_when_migrating() {
    let variant = Rules { migration: Migration::DirtyCopy, ..certain() };
    differs((certain(), (Some(false), true)), (variant, (Some(true), false)), |w| {
        let (_, copy, held) = migrated(w);
        (copy, held)
    });
}

#[test]
fn migration_always_evicts() {
    let variant = Rules { p_force: 1.0, ..certain() };
    differs((certain(), None), (variant, Some(false)), |w| {
        w.dirty_in_llc(1, 0x003);
        w.dirty_in_llc(1, 0x003);
        migrated(w).1
    });
}

#[test]
fn mlc_victim_stays_inclusive() {
    let variant = Rules { inclusive_victim: InclusiveVictim::Stays, ..certain() };
    differs((certain(), (5, true, 1, false)), (variant, (1, true, 0, true)), |w| {
        w.confine(0, 0x030);
        let (line, ..) = migrated(w);
        w.evict(0);
        let found = w.llc(line).unwrap();
        assert!(!found.copied);
        (found.way, found.dirty, w.chip.counters().bloated, found.io)
    });
}

#[test]
fn replacement_rules() {
    // Three ways with ages 1, 3, 3 and then a newcomer, many times: which ways are ever chosen?
    let victims = |rules: Rules| {
        let mut seen = [false; 11];
        for seed in 0..40 {
            let mut w = World::new(&skylake(), rules);
            for _ in 0..seed {
                let idle = w.line();
                w.chip.dma_write(1, idle); // moves the random stream
            }
            let old: Vec<Line> = [w.dirty_in_llc(0, 0x080)].into();
            w.chip.set_dca_ways(common::mask(0x060)).unwrap();
            let io: Vec<Line> = (0..2).map(|_| w.line()).collect();
            for line in &io {
                w.chip.dma_write(0, *line);
            }
            w.chip.set_dca_ways(common::mask(0x0e0)).unwrap();
            let newcomer = w.line();
            w.chip.dma_write(0, newcomer);
            assert_eq!(old.iter().chain(&io).filter(|line| w.llc(**line).is_none()).count(), 1);
            seen[w.llc(newcomer).unwrap().way as usize] = true;
        }
        [seen[7], seen[6], seen[5]]
    };
    let by = |replacement| victims(Rules { replacement, ..certain() });
    assert_eq!(by(Replacement::Qlru), [false, true, false], "leftmost of age 3");
    assert_eq!(by(Replacement::QlruRandom), [false, true, true], "any of age 3");
    assert_eq!(by(Replacement::Lru), [true, false, false], "the oldest");
    assert_eq!(by(Replacement::Random), [true, true, true], "any");
    let device_victim_random = victims(Rules { device_victim_random: true, ..certain() });
    assert_eq!(device_victim_random, [false, true, true], "of devices any of age 3");
}

#[test]
fn device_victim_random_leaves_cores_the_leftmost() {
    for seed in 2..20 {
        let mut w = World::new(&skylake(), Rules { device_victim_random: true, ..certain() });
        for _ in 0..seed {
            let idle = w.line();
            w.chip.dma_write(1, idle); // moves the random stream
        }
        let inserted = w.dirty_in_llc(0, 0x600);
        assert_eq!(w.llc(inserted).unwrap().way, 10, "after {seed} device writes");
    }
}

#[test]
fn dma_update_renews() {
    let variant = Rules { dma_update: DmaUpdate::Renews, io_age: 2, ..certain() };
    differs((certain(), [3, 3, 3]), (variant, [2, 1, 1]), |w| {
        let line = w.line();
        [0; 3].map(|device| {
            w.chip.dma_write(device, line);
            w.llc(line).unwrap().age
        })
    });
}

#[test]
fn reuse_history() {
    // Dropped by the LLC, then read again: memory serves it, and the set remembers it. What was flushed is forgotten.
    let variant = Rules { reuse_history: 1, ..certain() };
    differs((certain(), [false, false]), (variant, [true, false]), |w| {
        [false, true].map(|is_flushed| {
            let line = w.line();
            w.read(0, line);
            w.evict(0);
            if is_flushed {
                w.chip.flush_all(&[line]);
            }
            assert_eq!(w.read(0, line), Level::Memory);
            w.mlc(0, line).unwrap().reused
        })
    });
}

#[test]
fn reuse_history_has_what_the_llc_evicted_and_no_unread_device_data() {
    let mut w = World::new(&skylake(), Rules { reuse_history: 4, ..certain() });
    let (own, packet) = (w.dirty_in_llc(0, 0x400), w.line());
    w.chip.set_dca_ways(common::mask(0x400)).unwrap();
    w.chip.dma_write(0, packet);
    assert_eq!(w.llc(own), None);
    let other = w.dirty_in_llc(0, 0x400);
    assert_eq!((w.llc(packet), w.llc(other).map(|found| found.way)), (None, Some(10)));
    let reused = [own, packet].map(|line| {
        assert_eq!(w.read(1, line), Level::Memory);
        w.mlc(1, line).unwrap().reused
    });
    assert_eq!(reused, [true, false]);
}

#[test]
fn io_read_is_reuse() {
    let variant = Rules { io_read_is_reuse: true, ..certain() };
    differs((certain(), (false, 1)), (variant, (true, 0)), |w| {
        let (line, ..) = migrated(w);
        let proven = w.mlc(0, line).unwrap().reused;
        w.evict(0);
        (proven, w.llc(line).unwrap().age)
    });
}

#[test]
fn reuse_outside_dca_ways() {
    let base = Rules { io_read_is_reuse: true, ..certain() };
    let variant = Rules { p_outside_dca: 1.0, ..base };
    // Empty ways are filled from the left. A core that may allocate in DCA ways alone does so under both.
    differs((base, [10, 10]), (variant, [8, 10]), |w| {
        [0x7ff, 0x600].map(|ways| {
            w.confine(0, ways);
            let (line, ..) = migrated(w);
            w.evict(0);
            let way = w.llc(line).unwrap().way;
            w.chip.flush_all(&[line]);
            way
        })
    });
}

#[test]
fn dirty_victims_dropped() {
    let variant = Rules { p_insert_dirty: 0.0, ..certain() };
    differs((certain(), (true, 0, 0)), (variant, (false, 1, 1)), |w| {
        let line = w.line();
        w.write(0, line);
        w.evict(0);
        let counters = w.chip.counters();
        (w.llc(line).is_some(), counters.write_backs, counters.memory_writes)
    });
}

#[test]
fn rounds_hash() {
    // Of 60 slices a page of 2 MiB covers 8 of each index: of two pages, all, half or none of the sets are the same.
    let spec = ChipSpec::built_in("platinum-8570").unwrap();
    let mut map = AddressMap::new(&spec, Sampling::one_in(64).unwrap(), 1, 1);
    let pages: Vec<std::collections::BTreeSet<_>> = (0..40)
        .map(|_| {
            let page = map.huge(2 << 20).unwrap();
            let sets: std::collections::BTreeSet<_> =
                page.lines().iter().map(|line| (line.set(), line.tag() & 1, map.slice(*line))).collect();
            assert_eq!(sets.len(), page.lines().len(), "a page has one line in each of its sets");
            sets
        })
        .collect();
    let mut shares = [0; 5];
    for (number, one) in pages.iter().enumerate() {
        for other in &pages[..number] {
            let common = one.intersection(other).count();
            assert_eq!(common * 4 % one.len(), 0);
            shares[common * 4 / one.len()] += 1;
        }
    }
    assert!(shares[0] > 500 && shares[2] > 50 && shares[4] > 20, "{shares:?}");
    assert_eq!((shares[1], shares[3]), (0, 0));
}

#[test]
fn a_flushed_line_is_in_memory_alone() {
    for spec in [skylake(), common::haswell()] {
        let mut w = World::new(&spec, keeping());
        let (held, shared, packet) = (w.line(), w.line(), w.line());
        w.confine(0, 0x00f);
        w.confine(1, 0x00f);
        w.write(0, held);
        w.read(0, shared);
        w.read(1, shared);
        w.chip.dma_write(0, packet);
        w.chip.flush_all(&[held, shared, packet]);
        let counters = w.chip.counters();
        assert_eq!((counters.write_backs, counters.memory_writes), (2, 2), "what was dirty");
        assert_eq!((w.chip.residents(), w.chip.mlc_residents(), w.chip.tracked()), (vec![], vec![], vec![]));
        for line in [held, shared, packet] {
            assert_eq!((w.chip.level_of(0, line), w.read(0, line)), (Level::Memory, Level::Memory));
        }
    }
}

#[test]
fn no_evict_first() {
    let variant = Rules { io_age: 1, victim_age: 1, reused_age: 1, ..certain() };
    differs((certain(), 3), (variant, 1), |w| {
        let line = w.line();
        w.chip.dma_write(0, line);
        w.llc(line).unwrap().age
    });
}

#[test]
fn no_reuse_flag() {
    let variant = Rules { reuse_flag: false, ..keeping() };
    differs((keeping(), (true, 0)), (variant, (false, 1)), |w| {
        let line = w.line();
        w.read(0, line);
        w.evict(0);
        assert_eq!(w.read(0, line), Level::Llc);
        let proven = w.mlc(0, line).unwrap().reused;
        w.evict(0);
        (proven, w.llc(line).unwrap().age)
    });
}

#[test]
fn all_clean_victims_inserted() {
    let variant = Rules { p_insert: 1.0, ..certain() };
    differs((certain(), 0), (variant, 4), |w| {
        for _ in 0..3 {
            w.evict(0);
        }
        w.chip.residents().len()
    });
}

#[test]
fn stream_displaces() {
    let variant = Rules { stream_needs_room: false, ..keeping() };
    differs((keeping(), true), (variant, false), |w| {
        w.confine(0, 0x080);
        let value = w.line();
        w.write(0, value);
        for _ in 0..4 {
            let line = w.line();
            w.chip.read(0, line, Fill::Stream);
        }
        w.llc(value).is_some()
    });
}

#[test]
fn llc_keeps_lines_on_hit() {
    let variant = Rules { ordinary_hit_stays: true, ..certain() };
    differs((certain(), (false, true)), (variant, (true, false)), |w| {
        let line = w.dirty_in_llc(0, 0x0f0);
        assert_eq!(w.read(1, line), Level::Llc);
        let held = w.mlc(1, line).unwrap();
        assert!(held.reused);
        (w.llc(line).is_some_and(|found| found.dirty && found.copied), held.dirty)
    });
}

/// Age of an MLC victim in the CAT ways (1) after a device writes it in place.
fn age_after_update(w: &mut World) -> u8 {
    let line = w.dirty_in_llc(0, 0x0f0);
    w.chip.dma_write(0, line);
    w.llc(line).unwrap().age
}

#[test]
fn dma_update_evicts_first() {
    let variant = Rules { dma_update: DmaUpdate::EvictFirst, ..certain() };
    differs((certain(), 1), (variant, 3), age_after_update);
}

#[test]
fn dma_update_promotes() {
    let variant = Rules { dma_update: DmaUpdate::Promotes, ..certain() };
    differs((certain(), 1), (variant, 0), age_after_update);
}

#[test]
fn dma_read_promotes() {
    let variant = Rules { dma_read_promotes: true, ..certain() };
    differs((certain(), 3), (variant, 1), |w| {
        let line = w.line();
        w.chip.dma_write(0, line);
        w.chip.dma_read(0, line);
        w.llc(line).unwrap().age
    });
}

#[test]
fn mlc_held_write_inclusive() {
    let variant = Rules { mlc_held_write: MlcHeldWrite::InclusiveWays, ..certain() };
    differs((certain(), (10, 9)), (variant, (1, 10)), |w| {
        let (held, nowhere) = (w.line(), w.line());
        w.read(0, held);
        w.chip.dma_write(0, held);
        w.chip.dma_write(0, nowhere);
        (w.llc(held).unwrap().way, w.llc(nowhere).unwrap().way)
    });
}

#[test]
fn dma_write_leaves_mlc() {
    let variant = Rules { dma_write_invalidates_mlc: false, ..certain() };
    differs((certain(), (0, 0, 2)), (variant, (1, 1, 1)), |w| {
        let (copied, held) = (w.line(), w.line());
        w.chip.dma_write(0, copied);
        w.read(0, copied);
        w.read(1, held);
        assert!(w.chip.dma_write(0, copied) && w.chip.dma_write(0, held));
        (w.holders(copied).len(), w.holders(held).len(), w.chip.residents().len())
    });
}

#[test]
fn no_read_allocate() {
    let variant = Rules { read_allocate: false, ..certain() };
    differs((certain(), (true, false)), (variant, (false, true)), |w| {
        let line = w.line();
        w.write(0, line);
        assert!(w.chip.dma_read(0, line));
        (w.llc(line).is_some(), w.mlc(0, line).unwrap().dirty)
    });
}

#[test]
fn copies_displace_io() {
    // Both inclusive ways hold data that no core has read. Then a device reads what an MLC holds, and a core reads
    // device data in another way: both leave a copy.
    let variant = Rules { copies_spare_io: false, ..certain() };
    let unread = |w: &mut World| {
        w.chip.set_dca_ways(common::mask(0x003)).unwrap();
        let lines = [w.line(), w.line()];
        lines.iter().for_each(|line| assert!(!w.chip.dma_write(0, *line)));
        w.chip.set_dca_ways(common::mask(0x600)).unwrap();
        lines
    };
    differs((certain(), (2, false)), (variant, (1, true)), |w| {
        let lines = unread(w);
        let sent = w.line();
        w.write(0, sent);
        assert!(w.chip.dma_read(0, sent));
        let copied = w.llc(sent).is_some();
        assert_eq!(w.mlc(0, sent).unwrap().dirty, !copied, "the copy takes over the dirtiness");
        (lines.iter().filter(|line| w.llc(**line).is_some()).count(), copied)
    });
    differs((certain(), (2, false)), (variant, (1, true)), |w| {
        let lines = unread(w);
        let (_, copy, _) = migrated(w);
        (lines.iter().filter(|line| w.llc(**line).is_some()).count(), copy.is_some())
    });
    // Once a core has read them they are copies themselves, and of no more value than other copies.
    let mut w = World::new(&skylake(), certain());
    let lines = unread(&mut w);
    w.read(0, lines[0]);
    assert!(w.llc(lines[0]).unwrap().copied);
    w.chip.dma_write(0, lines[0]);
    assert_eq!(migrated(&mut w).1, None, "written anew, they are unread again");
}

#[test]
fn dca_off_updates() {
    let variant = Rules { dca_off_updates: true, ..certain() };
    differs((certain(), None), (variant, Some(false)), |w| {
        let line = w.line();
        w.chip.dma_write(0, line);
        w.read(0, line);
        w.dca(DcaMode::Off);
        assert_eq!(w.memory(|w| assert!(w.chip.dma_write(0, line))), (0, 1));
        assert!(w.holders(line).is_empty());
        w.llc(line).map(|found| found.dirty)
    });
}

#[test]
fn dram_without_backlog() {
    // 20 lines, each for 10 000, in 1 us are a hundred times what six channels move: the next access waits, or does
    // not.
    let variant = Rules { dram_backlog: false, ..certain() };
    differs((certain(), true), (variant, false), |w| {
        for _ in 0..20 {
            let line = w.line();
            w.read(0, line);
        }
        w.chip.dram_mut().tick(1000.0, 10_000.0);
        w.chip.dram().wait_ns() > 0.0
    });
}

#[test]
fn permutation_hash() {
    // 16 lines of one index in 1 MiB (1024 sets): distinct slices under the permutation, not under the uniform hash.
    let spec = ChipSpec::built_in("gold-6140").unwrap();
    let crowded = |hash: SliceHash| {
        let spec = spec.clone().with_rules(Rules { slice_hash: hash, ..Rules::default() });
        let mut map = AddressMap::new(&spec, Sampling::EXACT, 1, 1);
        let region = map.huge(1 << 20).unwrap();
        let mut seen = vec![0u32; 1024 * 18];
        for line in region.lines() {
            seen[line.set() * 18 + map.slice(*line)] += 1;
        }
        seen.iter().filter(|count| **count > 1).count()
    };
    assert_eq!(crowded(SliceHash::Permutation), 0);
    assert!(crowded(SliceHash::Uniform) > 1000);
}

#[test]
fn every_published_variant_has_a_test_here() {
    // Names of microarchitecture.md 11 against the tests above; a new row has to be added to both.
    let covered = [
        "base",
        "no-migrated-copy",
        "migration-always-evicts",
        "copies-displace-io",
        "dirt-stays-when-migrating",
        "mlc-victim-stays-inclusive",
        "random-replacement",
        "lru",
        "no-evict-first",
        "evict-first-random",
        "no-reuse-flag",
        "pure-victim-cache",
        "all-clean-victims-inserted",
        "stream-displaces",
        "llc-keeps-lines-on-hit",
        "dma-update-evicts-first",
        "dma-update-promotes",
        "dma-read-promotes",
        "mlc-held-write-inclusive",
        "dma-write-leaves-mlc",
        "no-read-allocate",
        "dca-off-updates",
        "dram-without-backlog",
        "permutation-hash",
        "reuse-history",
        "io-read-is-reuse",
        "reuse-outside-dca-ways",
        "dirty-victims-dropped",
        "device-victim-random",
        "dma-update-renews",
        "rounds-hash",
    ];
    let names: Vec<_> = Rules::variants().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, covered);
}
