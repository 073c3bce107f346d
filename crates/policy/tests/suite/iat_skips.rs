//! The three cases in which IAT does not run its state machine (IAT s4.B, algorithms.md 2.3), and its actions there.

use crate::common;

use common::iat::{Drive, Prof, actions, aggregation, containers, edge};

#[test]
fn skip_1_only_ipc_changed() {
    // 1 -> 0.5 IPC with equal LLC and DDIO counts: neither cache nor I/O is the cause. Logged once, not every second.
    let mut drive = Drive::new("iat", "", containers());
    let plan = drive.bench.last.plan.clone();
    drive.prof(4).ipc = 0.5;
    let events = drive.step();
    assert_eq!(actions(&events), ["skip-ipc-only"]);
    assert_eq!(events[0].causes[0].what, "relative change of IPC of c4");
    assert_eq!(events[0].causes[0].value, -0.5);
    drive.prof(4).ipc = 0.8;
    assert_eq!(drive.step(), []);
    assert_eq!(drive.bench.last.plan, plan);
}

#[test]
fn skip_1_hides_nothing_that_came_with_a_change_of_ddio() {
    let mut drive = Drive::new("iat", "", containers());
    drive.prof(4).ipc = 0.5;
    assert_eq!(edge(&drive.ddio(110.0, 2.0)), Some(1));
}

#[test]
fn skip_2_a_tenant_without_io_and_without_overlap_is_fed_way_by_way() {
    // Figs. 10 and 11 at 5 s: container 4 grows from 2 to 3 to 4 ways, and container 3, BE with the fewest references,
    // takes over DDIO's ways from it. 8 -> 5 M misses: the way helped.
    let mut drive = Drive::new("iat", "", containers());
    drive.prof(3).refs = 5.0;
    drive.step();
    *drive.prof(4) = Prof { ipc: 0.4, refs: 20.0, misses: 8.0 };
    let events = drive.step();
    assert_eq!(actions(&events), ["tenant-grow", "move"]);
    assert_eq!(events[0].group.as_deref(), Some("c4"));
    assert_eq!(events[0].causes[0].value, 7.0);
    assert_eq!([drive.mask(4), drive.mask(3), drive.mask(2)], [0x0e0, 0x300, 0x018]);
    *drive.prof(4) = Prof { ipc: 0.6, refs: 20.0, misses: 5.0 };
    drive.step();
    assert_eq!([drive.mask(4), drive.mask(3), drive.mask(2)], [0x1e0, 0x600, 0x018]);
    assert_eq!(drive.state(), "LowKeep", "the states were not asked");
    // All eleven ways have an owner now, and no slot may fall below its grant.
    *drive.prof(4) = Prof { ipc: 0.8, refs: 20.0, misses: 3.0 };
    assert_eq!(drive.step(), []);
    assert_eq!(drive.ways(4), 4);
}

#[test]
fn skip_2_ends_when_a_way_did_not_help_or_the_misses_are_back() {
    // aggregation(): one way is idle beside DDIO's. 2 -> 1.99 M misses is less than 3 %.
    let mut drive = Drive::new("iat", "", aggregation());
    *drive.prof(1) = Prof { ipc: 0.5, refs: 10.0, misses: 2.0 };
    drive.step();
    assert_eq!(drive.ways(1), 3);
    *drive.prof(1) = Prof { ipc: 0.6, refs: 11.0, misses: 1.99 };
    assert_eq!(drive.step(), []);
    // Back at 1 M, the value before the rise: it has enough, although 2 -> 1 M is a fall.
    let mut drive = Drive::new("iat", "", aggregation());
    *drive.prof(1) = Prof { ipc: 0.5, refs: 10.0, misses: 2.0 };
    drive.step();
    *drive.prof(1) = Prof { ipc: 0.9, refs: 10.0, misses: 1.0 };
    assert_eq!(drive.step(), []);
    assert_eq!(drive.ways(1), 3);
}

#[test]
fn skip_2_prefers_the_largest_rise_of_the_miss_ratio() {
    // c2 from 10 % to 30 %, c4 from 10 % to 50 %.
    let mut drive = Drive::new("iat", "", containers());
    *drive.prof(2) = Prof { ipc: 0.8, refs: 10.0, misses: 3.0 };
    *drive.prof(4) = Prof { ipc: 0.8, refs: 10.0, misses: 5.0 };
    drive.step();
    assert_eq!([drive.ways(2), drive.ways(4)], [2, 3]);
}

#[test]
fn skip_2_needs_ipc_and_llc_of_the_same_tenant_and_steady_ddio() {
    // Only references changed: the state machine runs, and LowKeep moves nothing.
    let mut drive = Drive::new("iat", "", containers());
    drive.prof(4).misses = 8.0;
    assert_eq!(drive.step(), []);
    // DDIO changed too: the state machine decides.
    let mut drive = Drive::new("iat", "", containers());
    *drive.prof(4) = Prof { ipc: 0.4, refs: 20.0, misses: 8.0 };
    assert_eq!(edge(&drive.ddio(110.0, 2.0)), Some(1));
    assert_eq!(drive.ways(4), 2);
    // The core-side allocator ignores I/O tenants.
    let mut drive = Drive::new("iat", "", containers());
    *drive.prof(0) = Prof { ipc: 0.4, refs: 20.0, misses: 8.0 };
    assert_eq!(drive.step(), []);
    assert_eq!(drive.ways(0), 3);
}

#[test]
fn skip_2_gives_nothing_when_tenant_sizing_is_off() {
    // s6.C switches it off for the application runs.
    let mut drive = Drive::new("iat", "tenant_sizing = false", containers());
    *drive.prof(4) = Prof { ipc: 0.4, refs: 20.0, misses: 8.0 };
    assert_eq!(drive.step(), []);
    drive.prof(0).refs = 20.0;
    assert_eq!(edge(&drive.ddio(90.0, 4.0)), Some(3));
    assert_eq!(drive.ways(0), 3);
}

/// Containers after container 4 grew to four ways: container 3 overlaps both DDIO ways.
fn overlapping() -> Drive {
    let mut drive = Drive::new("iat", "", containers());
    drive.prof(3).refs = 5.0;
    drive.step();
    for misses in [8.0, 5.0] {
        *drive.prof(4) = Prof { ipc: 0.1 * misses, refs: 20.0, misses };
        drive.step();
    }
    assert_eq!(drive.mask(3), 0x600);
    drive
}

#[test]
fn skip_3_an_overlapping_tenant_is_shuffled_first_and_the_states_come_next() {
    // Fig. 7b at t2: container 3 needs more LLC while DDIO misses grow. Container 2 with 10 M references overlaps DDIO
    // instead; IAT reacts to the DDIO misses in the next interval.
    let mut drive = overlapping();
    *drive.prof(3) = Prof { ipc: 0.5, refs: 30.0, misses: 9.0 };
    let events = drive.ddio(110.0, 2.0);
    assert_eq!(actions(&events), ["shuffle", "move", "move", "move", "skip-shuffle-first"]);
    assert_eq!((drive.mask(2), drive.state()), (0x600, "LowKeep"));
    assert_eq!(drive.mask(3) & 0x600, 0);
    let skipped = events.last().unwrap();
    assert_eq!(skipped.group.as_deref(), Some("c3"));
    assert_eq!(skipped.causes[0].value, 5.0, "5 -> 30 M references");
    assert_eq!(skipped.causes[2].value, 3.0, "0.5 -> 2 M DDIO misses");
    // The change persists.
    assert_eq!(edge(&drive.ddio(120.0, 2.2)), Some(1));
}

#[test]
fn skip_3_does_not_hold_the_states_up_twice() {
    // The newcomer changes as well in the next interval; now the state machine runs.
    let mut drive = overlapping();
    *drive.prof(3) = Prof { ipc: 0.5, refs: 30.0, misses: 9.0 };
    drive.ddio(110.0, 2.0);
    *drive.prof(2) = Prof { ipc: 0.5, refs: 60.0, misses: 9.0 };
    assert_eq!(edge(&drive.ddio(120.0, 2.2)), Some(1));
}

#[test]
fn skip_3_without_anything_to_shuffle_continues_with_the_states() {
    // Container 3 changes but still has the fewest references of the BE tenants.
    let mut drive = overlapping();
    *drive.prof(3) = Prof { ipc: 0.8, refs: 6.0, misses: 1.0 };
    assert_eq!(edge(&drive.ddio(110.0, 2.0)), Some(1));
}

#[test]
fn a_stack_whose_tables_grow_gets_ways_while_devices_evict_no_tenant() {
    // Fig. 9: OVS looks up more flows, hence fewer packets and fewer DDIO hits; 0.5 M DDIO misses are few.
    let mut drive = Drive::new("iat", "", aggregation());
    *drive.prof(0) = Prof { ipc: 0.8, refs: 12.0, misses: 4.0 };
    let events = drive.ddio(70.0, 0.5);
    assert_eq!(actions(&events)[0], "tenant-grow");
    assert_eq!((events[0].group.as_deref(), drive.ways(0), drive.state()), (Some("ovs"), 3, "LowKeep"));
    // With enough DDIO misses the state machine decides.
    let mut drive = Drive::new("iat", "", aggregation());
    *drive.prof(0) = Prof { ipc: 0.8, refs: 12.0, misses: 4.0 };
    assert_eq!(edge(&drive.ddio(70.0, 2.0)), Some(3));
    // Without tenant sizing no tenant gains ways.
    let mut drive = Drive::new("iat", "tenant_sizing = false", aggregation());
    *drive.prof(0) = Prof { ipc: 0.8, refs: 12.0, misses: 4.0 };
    drive.ddio(70.0, 0.5);
    assert_eq!(drive.ways(0), 2);
}

#[test]
fn ddio_ways_set_by_hand_leave_core_demand_to_be_served() {
    // Figs. 10 and 11: DDIO counts move along with container 4's, but its ways are not IAT's to size.
    let grown = |settings: &str| {
        let mut drive = Drive::new("iat", settings, containers());
        *drive.prof(4) = Prof { ipc: 0.4, refs: 20.0, misses: 8.0 };
        drive.ddio(110.0, 2.0);
        drive.ways(4)
    };
    assert_eq!([grown(""), grown("ddio_sizing = false")], [2, 3]);
}
