//! IAT's ways: growth and reclaim with their limits, which slot overlaps DDIO, and which values are kept when others
//! change knobs (IAT s4.D, s6.B, algorithms.md 2.4 to 2.6).

use crate::common;

use common::iat::{Drive, Prof, actions, aggregation, at, containers, edge, slicing};
use common::{gold_6140, group};
use waykeeper_host::{Priority::High, Priority::Low, WorkloadKind::*};

#[test]
fn ddio_grows_one_way_an_interval_up_to_ddio_ways_max() {
    let mut drive = Drive::new("iat", "ddio_ways_max = 4", slicing());
    let mut ways = Vec::new();
    for misses in [2.0, 3.0, 4.0, 5.0, 6.0] {
        drive.ddio(110.0, misses);
        ways.push(drive.ddio_ways());
    }
    assert_eq!(ways, [3, 4, 4, 4, 4]);
    assert_eq!(drive.state(), "HighKeep");
}

#[test]
fn ddio_shrinks_to_the_floor_of_the_machine_or_to_ddio_ways_min() {
    // Table II says one way, ddio-bench s4.4 that the two default bits stay: two unless the floor is lowered.
    for (settings, least) in [("", 2), ("ddio_ways_floor = 1", 1), ("ddio_ways_min = 3", 3)] {
        let mut drive = Drive::new("iat", settings, slicing());
        drive.ddio(110.0, 2.0);
        drive.ddio(110.0, 3.0);
        for misses in [0.9, 0.8, 0.7, 0.6, 0.5] {
            drive.ddio(110.0, misses);
        }
        assert_eq!((drive.ddio_ways(), drive.state()), (least, "LowKeep"), "{settings}");
    }
}

#[test]
fn ddio_ways_are_left_alone_when_their_sizing_is_off_or_impossible() {
    let mut drive = Drive::new("iat", "ddio_sizing = false", slicing());
    drive.ddio(110.0, 2.0);
    assert_eq!((drive.state(), drive.bench.last.plan.dca_ways()), ("IODemand", None));
    let mut chip = gold_6140();
    chip.dca_ways_switch = waykeeper_host::Support::ReadOnly;
    let mut drive = Drive::new("iat", "", slicing());
    drive.bench = common::Bench::on(chip, "iat", "", slicing());
    drive.step();
    drive.ddio(110.0, 2.0);
    assert_eq!((drive.state(), drive.bench.last.plan.dca_ways()), ("IODemand", None));
}

#[test]
fn the_knob_is_not_named_before_iat_turns_it() {
    // What an operator set before the start stays, and IAT continues from there.
    let mut drive = Drive::new("iat", "", slicing());
    assert_eq!(drive.bench.last.plan.dca_ways(), None);
    drive.ddio = 0x700;
    assert_eq!(actions(&drive.step()), ["ddio-found"]);
    drive.ddio(110.0, 2.0);
    assert_eq!(drive.ddio, 0x780);
}

#[test]
fn core_demand_ends_with_the_idle_pool_and_no_tenant_falls_below_the_grant() {
    // Eight of eleven ways are granted; the switch takes the three others and then no more.
    let mut drive = Drive::new("iat", "", aggregation());
    drive.prof(0).refs = 12.0;
    let mut ways = Vec::new();
    for hits in [90.0, 80.0, 70.0, 60.0, 50.0] {
        drive.ddio(hits, 4.0);
        ways.push(drive.ways(0));
    }
    assert_eq!(drive.state(), "CoreDemand");
    assert_eq!(ways, [3, 4, 5, 5, 5]);
    assert_eq!([drive.ways(1), drive.ways(2), drive.ways(3)], [2, 2, 2]);
}

#[test]
fn a_best_effort_tenant_above_its_grant_lends_when_the_pool_is_empty() {
    // nf1 (BE) grows beyond its grant to six ways, then nf0 needs one: five ways are the pool of slicing().
    let mut drive = Drive::new("iat", "", slicing());
    drive.prof(1).refs = 12.0;
    for misses in [2.0, 3.0, 4.0, 5.0, 6.0] {
        drive.prof(1).misses = misses;
        drive.ddio(drive.hits * 0.9, 4.0);
    }
    assert_eq!([drive.ways(0), drive.ways(1), drive.ways(2)], [2, 7, 2]);
    drive.prof(0).misses = 3.0;
    let events = drive.ddio(drive.hits * 0.9, 4.0);
    assert_eq!([drive.ways(0), drive.ways(1), drive.ways(2)], [3, 6, 2]);
    let grown = events.iter().find(|event| event.action == "tenant-grow").unwrap();
    assert!(grown.text.ends_with("out of nf1"), "{}", grown.text);
}

#[test]
fn reclaim_takes_first_from_a_tenant_above_its_grant_whose_references_fell() {
    // CoreDemand gave the switch a way at 12 M references; IODemand gave DDIO one. At 6 M references the switch gives
    // its way back first, DDIO next (s4.D: the stack before others).
    let mut drive = Drive::new("iat", "", aggregation());
    drive.prof(0).refs = 12.0;
    drive.ddio(90.0, 4.0);
    assert_eq!(edge(&drive.ddio(90.0, 5.0)), Some(4));
    assert_eq!((drive.ways(0), drive.ddio_ways()), (3, 3));
    drive.prof(0).refs = 6.0;
    let events = drive.ddio(90.0, 0.9);
    assert_eq!((edge(&events), drive.ways(0), drive.ddio_ways()), (Some(6), 2, 3));
    let shrunk = events.iter().find(|event| event.action == "tenant-shrink").unwrap();
    assert_eq!(shrunk.causes[0].value, -0.5);
    assert_eq!(shrunk.causes[0].limit, Some(("threshold_stable".to_owned(), 0.03)));
    drive.ddio(90.0, 0.8);
    assert_eq!((drive.ways(0), drive.ddio_ways()), (2, 2));
}

#[test]
fn a_pc_tenant_on_ddios_ways_is_moved_at_the_first_reading() {
    // Idle ways suffice: all of them end up on DDIO's side.
    let groups =
        vec![at(group(0, "pc", High, NonIo, 1, &[]), 0x600), at(group(1, "be", Low, NonIo, 1, &[]), 0x003)];
    let drive = Drive::new("iat", "", groups);
    assert_eq!([drive.mask(0), drive.mask(1)], [0x00c, 0x003]);
    assert_eq!(drive.bench.event("shuffle").causes[0].value, 2.0);
}

#[test]
fn a_be_tenant_leaves_ddios_ways_when_idle_ways_suffice() {
    let drive = Drive::new("iat", "", vec![at(group(0, "be", Low, NonIo, 1, &[]), 0x700)]);
    assert_eq!(drive.mask(0), 0x007);
}

#[test]
fn a_shuffle_needs_a_difference_of_more_than_the_threshold() {
    // All eleven ways taken; be1 overlaps with 10 M references. be2 at 9.8 M stays where it is, at 9.6 M it moves
    // there: 10 x 0.97 = 9.7.
    let groups = vec![
        at(group(0, "pc", High, NonIo, 1, &[]), 0x00f),
        at(group(1, "be1", Low, NonIo, 1, &[]), 0x700),
        at(group(2, "be2", Low, NonIo, 1, &[]), 0x0f0),
    ];
    let mut drive = Drive::new("iat", "", groups);
    assert_eq!(drive.mask(1), 0x700);
    drive.ddio(110.0, 0.5);
    drive.prof(2).refs = 9.8;
    drive.ddio(100.0, 0.5);
    assert_eq!(drive.mask(1), 0x700);
    drive.prof(2).refs = 9.6;
    drive.ddio(110.0, 0.5);
    assert_eq!([drive.mask(0), drive.mask(1), drive.mask(2)], [0x00f, 0x070, 0x780]);
}

#[test]
fn two_more_ddio_ways_by_hand_move_container_4_within_the_interval() {
    // Fig. 11 at 15 s: after the growth at 5 s container 3 lies on DDIO's two ways and container 4 beside them. Four
    // ways then cover two of container 4's, and its misses rise: container 2 moves there.
    let mut drive = Drive::new("iat", "", containers());
    drive.prof(3).refs = 5.0;
    drive.step();
    for misses in [8.0, 5.0] {
        *drive.prof(4) = Prof { ipc: 0.1 * misses, refs: 20.0, misses };
        drive.step();
    }
    assert_eq!([drive.mask(4), drive.mask(3), drive.mask(2)], [0x1e0, 0x600, 0x018]);
    drive.ddio = 0x780;
    *drive.prof(4) = Prof { ipc: 0.4, refs: 20.0, misses: 6.0 };
    let events = drive.ddio(105.0, 0.4);
    assert_eq!([drive.mask(4), drive.mask(3), drive.mask(2), drive.mask(0)], [0x078, 0x600, 0x180, 0x007]);
    assert_eq!(actions(&events)[..2], ["ddio-found", "shuffle"]);
    assert_eq!(drive.state(), "LowKeep", "LowKeep leaves the DDIO ways as they are");
}

#[test]
fn a_new_tenant_brings_the_grants_back_and_keeps_the_state() {
    let mut drive = Drive::new("iat", "", aggregation());
    drive.prof(0).refs = 12.0;
    drive.ddio(90.0, 4.0);
    assert_eq!((drive.state(), drive.ways(0)), ("CoreDemand", 3));
    drive.profs.insert(4, Prof { ipc: 1.0, refs: 10.0, misses: 1.0 });
    drive.bench.groups.push(at(group(4, "new", Low, NonIo, 1, &[]), 0x100));
    let events = drive.step();
    assert!(events.iter().all(|event| event.action == "llc-alloc"));
    assert_eq!((drive.state(), drive.ways(0), drive.mask(4)), ("CoreDemand", 2, 0x100));
}

#[test]
fn tenants_without_a_declared_mask_divide_what_lies_beside_ddios_ways() {
    // Nine ways, cores 1:2: three and six.
    let groups = vec![group(0, "a", High, NonIo, 1, &[]), group(1, "b", Low, NonIo, 2, &[])];
    let drive = Drive::new("iat", "", groups);
    assert_eq!([drive.mask(0), drive.mask(1)], [0x1c0, 0x03f]);
}

#[test]
fn masks_that_cannot_be_used_are_reported_and_tenants_without_room_roam() {
    let groups = vec![
        at(group(0, "all", High, NonIo, 1, &[]), 0x7ff),
        at(group(1, "holes", Low, NonIo, 1, &[]), 0x005),
    ];
    let drive = Drive::new("iat", "", groups);
    assert!(drive.bench.text("mask-illegal").starts_with("declared mask of holes is not used: mask 0x005"));
    assert_eq!(drive.bench.text("no-room"), "no ways are left for holes; it may allocate everywhere");
    assert_eq!(drive.mask(1), 0x7ff);
}

#[test]
fn the_guard_does_not_repeat_a_reclaim_that_had_to_be_undone() {
    // Three ways are needed: at two, misses are 2 M, at three 0.9 M. Faithful IAT alternates for ever; guarded IAT
    // keeps three ways for 10 intervals after the first wrong reclaim, 20 after the second.
    let changes = |settings: &str| {
        let mut drive = Drive::new("iat", settings, slicing());
        let mut changes = 0;
        for second in 0..100 {
            let before = drive.ddio;
            // References keep changing, so that no interval looks stable.
            drive.prof(0).refs = if second % 2 == 0 { 11.0 } else { 10.0 };
            drive.ddio(110.0, if drive.ddio_ways() < 3 { 2.0 } else { 0.9 });
            changes += u32::from(drive.ddio != before);
        }
        (changes, drive)
    };
    let (faithful, _) = changes("");
    let (guarded, drive) = changes("mode = \"guarded\"");
    assert!(faithful > 40, "{faithful}");
    assert!(guarded < 14, "{guarded}: {:#?}", drive.bench.texts());
    assert!(drive.bench.happened("guard"));
}

/// The baselines of s6.B on its containers.
#[test]
fn core_only_gives_container_4_the_ways_of_ddio() {
    let mut drive = Drive::new("core-only", "", containers());
    for misses in [8.0, 5.0, 3.0] {
        *drive.prof(4) = Prof { ipc: 0.1 * misses, refs: 20.0, misses };
        drive.step();
    }
    assert_eq!([drive.mask(4), drive.mask(3), drive.mask(2), drive.mask(0)], [0x780, 0x060, 0x018, 0x007]);
    assert_eq!((drive.bench.last.plan.dca_ways(), drive.state()), (None, "CoreOnly"));
}

#[test]
fn io_iso_takes_ways_from_best_effort_and_keeps_out_of_ddios() {
    let mut drive = Drive::new("io-iso", "", containers());
    for misses in [8.0, 5.0, 3.0] {
        *drive.prof(4) = Prof { ipc: 0.1 * misses, refs: 20.0, misses };
        drive.step();
    }
    // Nine ways: container 4 has four, its neighbours one each, the containers with I/O their three.
    assert_eq!([drive.mask(4), drive.mask(3), drive.mask(2), drive.mask(0)], [0x1e0, 0x010, 0x008, 0x007]);
    // s6.B: with four DDIO ways seven are left; 7 - 2 = 5 for the performance critical.
    drive.ddio = 0x780;
    drive.step();
    assert_eq!([drive.mask(4), drive.mask(3), drive.mask(2), drive.mask(0)], [0x060, 0x010, 0x008, 0x007]);
    assert_eq!(drive.bench.event("keep-out").causes[0].value, 7.0);
}

#[test]
fn baseline_never_moves() {
    let mut drive = Drive::new("baseline", "", containers());
    *drive.prof(4) = Prof { ipc: 0.4, refs: 20.0, misses: 8.0 };
    drive.ddio(50.0, 9.0);
    let masks: Vec<u32> = (0..5).map(|id| drive.mask(id)).collect();
    assert_eq!(masks, [0x007, 0x007, 0x018, 0x060, 0x180]);
    assert_eq!((drive.bench.last.plan.dca_ways(), drive.bench.last.events.len()), (None, 0));
}
