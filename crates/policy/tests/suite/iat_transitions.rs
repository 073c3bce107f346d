//! The twelve numbered transitions of IAT's Fig. 6 and its five self loops (IAT s4.C, algorithms.md 2.4).
//! Counter values are worked by hand: THRESHOLD_STABLE is 3 %, THRESHOLD_MISS_LOW 1 M/s, DDIO ways 2 to 6.

use crate::common;

use common::iat::{Drive, actions, aggregation, edge, slicing};

fn low_keep() -> Drive {
    Drive::new("iat", "", aggregation())
}

/// IODemand, entered at 4 M misses, 110 M hits, DDIO at three ways.
fn io_demand() -> Drive {
    let mut drive = low_keep();
    assert_eq!(edge(&drive.ddio(110.0, 4.0)), Some(1));
    drive
}

/// CoreDemand, entered at 4 M misses and 90 M hits, the switch at three ways.
fn core_demand() -> Drive {
    let mut drive = low_keep();
    drive.prof(0).refs = 12.0;
    assert_eq!(edge(&drive.ddio(90.0, 4.0)), Some(3));
    drive
}

/// HighKeep, entered at 8 M misses, DDIO at six ways.
fn high_keep() -> Drive {
    let mut drive = io_demand();
    for misses in [5.0, 6.0, 7.0] {
        assert_eq!(edge(&drive.ddio(110.0, misses)), None);
    }
    assert_eq!(drive.ddio_ways(), 6);
    assert_eq!(edge(&drive.ddio(110.0, 8.0)), Some(10));
    drive
}

/// Reclaim, entered at 0.9 M misses, 110 M hits, DDIO back at two ways.
fn reclaim() -> Drive {
    let mut drive = io_demand();
    assert_eq!(edge(&drive.ddio(110.0, 0.9)), Some(6));
    drive
}

#[test]
fn starts_in_low_keep_and_stays_there_below_threshold_miss_low() {
    // s4.C: hits may be many. 1 M/s is not more than 1 M/s.
    let mut drive = low_keep();
    assert_eq!(drive.state(), "LowKeep");
    let before = drive.bench.last.plan.clone();
    assert_eq!(edge(&drive.ddio(200.0, 1.0)), None);
    assert_eq!((drive.state(), &drive.bench.last.plan), ("LowKeep", &before));
}

#[test]
fn transition_1_low_keep_to_io_demand_on_many_misses() {
    // 0.5 -> 1.1 M misses with more hits: more intensive I/O. DDIO gains its way in the same interval.
    let mut drive = low_keep();
    let events = drive.ddio(110.0, 1.1);
    assert_eq!((edge(&events), drive.state()), (Some(1), "IODemand"));
    assert_eq!(actions(&events), ["transition", "ddio-grow"]);
    assert_eq!(drive.ddio, 0x700);
    let causes = &events[0].causes;
    assert_eq!(causes[0].value, 1.1e6);
    assert_eq!(causes[0].limit, Some(("threshold_miss_low".to_owned(), 1e6)));
    assert!(causes.iter().any(|cause| cause.what == "relative change of DDIO hits" && cause.value > 0.099));
}

#[test]
fn transition_1_also_when_hits_fall_without_more_references() {
    let mut drive = low_keep();
    assert_eq!(edge(&drive.ddio(90.0, 1.1)), Some(1));
}

#[test]
fn transition_2_reclaim_to_low_keep_at_the_fewest_ways() {
    // DDIO is back at two ways and no tenant is above its grant; 0.9 -> 0.8 M is a change without need for an action.
    let mut drive = reclaim();
    assert_eq!(drive.ddio_ways(), 2);
    assert_eq!(edge(&drive.ddio(110.0, 0.8)), Some(2));
    assert_eq!((drive.state(), drive.ddio_ways()), ("LowKeep", 2));
}

#[test]
fn transition_2_waits_for_tenants_above_their_grant() {
    // The switch got a third way at 12 M references; at 12 M it keeps it, at 6 M it gives it back, and only
    // then is there nothing left to reclaim.
    let mut drive = core_demand();
    assert_eq!(edge(&drive.ddio(90.0, 0.9)), Some(8));
    assert_eq!(edge(&drive.ddio(90.0, 0.8)), None);
    assert_eq!((drive.state(), drive.ways(0)), ("Reclaim", 3));
    drive.prof(0).refs = 6.0;
    assert_eq!(actions(&drive.ddio(90.0, 0.8)), ["tenant-shrink"]);
    assert_eq!(edge(&drive.ddio(90.0, 0.7)), Some(2));
}

#[test]
fn transition_3_low_keep_to_core_demand_on_fewer_hits_and_more_references() {
    // 100 -> 90 M hits, 40 -> 42 M references in all (5 %).
    let mut drive = low_keep();
    drive.prof(0).refs = 12.0;
    let events = drive.ddio(90.0, 1.1);
    assert_eq!((edge(&events), drive.state()), (Some(3), "CoreDemand"));
    assert_eq!((drive.ways(0), drive.ddio_ways()), (3, 2), "the switch grows, not DDIO");
}

#[test]
fn transition_4_core_demand_to_io_demand_on_more_misses_and_no_fewer_hits() {
    let mut drive = core_demand();
    assert_eq!(edge(&drive.ddio(90.0, 4.2)), Some(4));
    assert_eq!((drive.state(), drive.ddio_ways()), ("IODemand", 3));
}

#[test]
fn transition_5_reclaim_to_io_demand_on_many_misses_again() {
    let mut drive = reclaim();
    assert_eq!(edge(&drive.ddio(110.0, 1.1)), Some(5));
    assert_eq!((drive.state(), drive.ddio_ways()), ("IODemand", 3));
    // Misses that stay high are no new demand: 4 M of 8 M led to Reclaim, 3.95 M keep it there.
    let mut drive = high_keep();
    assert_eq!(edge(&drive.ddio(115.0, 4.0)), Some(11));
    assert_eq!((edge(&drive.ddio(120.0, 3.95)), drive.state()), (None, "Reclaim"));
}

#[test]
fn transition_6_io_demand_to_reclaim_on_a_severe_fall_of_misses() {
    // Entered at 4 M: 2.1 M is not yet half of it, 2 M is. DDIO gives a way back in the same interval.
    let mut drive = io_demand();
    assert_eq!(edge(&drive.ddio(110.0, 2.1)), None);
    assert_eq!(drive.ddio_ways(), 4);
    let events = drive.ddio(110.0, 2.0);
    assert_eq!((edge(&events), drive.state()), (Some(6), "Reclaim"));
    assert_eq!((actions(&events), drive.ddio_ways()), (vec!["transition", "ddio-shrink"], 3));
    // From 1.5 M: 1 M is more than half, but no longer many.
    let mut drive = low_keep();
    drive.ddio(110.0, 1.5);
    assert_eq!(edge(&drive.ddio(110.0, 1.0)), Some(6));
}

#[test]
fn transition_7_io_demand_to_core_demand_on_fewer_hits_and_no_fewer_misses() {
    let mut drive = io_demand();
    assert_eq!(edge(&drive.ddio(100.0, 4.0)), Some(7));
    assert_eq!((drive.state(), drive.ways(0)), ("CoreDemand", 3));
    // With fewer misses as well (4 -> 3.8 M) devices just do less.
    let mut drive = io_demand();
    assert_eq!(edge(&drive.ddio(100.0, 3.8)), None);
}

#[test]
fn transition_8_core_demand_to_reclaim_on_fewer_misses() {
    let mut drive = core_demand();
    assert_eq!(edge(&drive.ddio(90.0, 3.8)), Some(8));
    assert_eq!(drive.state(), "Reclaim");
}

#[test]
fn transition_9_reclaim_to_core_demand_when_hits_fall_too() {
    let mut drive = reclaim();
    assert_eq!(edge(&drive.ddio(100.0, 1.1)), Some(9));
    assert_eq!((drive.state(), drive.ddio_ways(), drive.ways(0)), ("CoreDemand", 2, 3));
    // Rising misses that are still few, 0.95 M, are no demand, however the hits change.
    let mut drive = reclaim();
    assert_eq!(edge(&drive.ddio(100.0, 0.95)), Some(2));
}

#[test]
fn transition_10_io_demand_to_high_keep_after_the_last_way() {
    let mut drive = high_keep();
    assert_eq!((drive.state(), drive.ddio_ways(), drive.ddio), ("HighKeep", 6, 0x7e0));
    // ... and it stays there however hits and misses change (s4.C).
    assert_eq!(edge(&drive.ddio(120.0, 20.0)), None);
    assert_eq!((drive.state(), drive.ddio_ways()), ("HighKeep", 6));
}

#[test]
fn transition_11_high_keep_to_reclaim_on_a_severe_fall_of_misses() {
    // Entered at 8 M: 4.1 M is not half of it, 4 M is.
    let mut drive = high_keep();
    assert_eq!(edge(&drive.ddio(110.0, 4.1)), None);
    assert_eq!(edge(&drive.ddio(115.0, 4.0)), Some(11));
    assert_eq!((drive.state(), drive.ddio_ways()), ("Reclaim", 5));
}

#[test]
fn transition_12_high_keep_to_core_demand_on_fewer_hits_and_no_fewer_misses() {
    let mut drive = high_keep();
    assert_eq!(edge(&drive.ddio(100.0, 8.0)), Some(12));
    assert_eq!(drive.state(), "CoreDemand");
    // With fewer misses too, 6 M of 8 M, there is less traffic and no contention.
    let mut drive = high_keep();
    assert_eq!((edge(&drive.ddio(100.0, 6.0)), drive.state()), (None, "HighKeep"));
}

#[test]
fn self_loops_repeat_the_action_of_their_state() {
    // IODemand: a way an interval while misses are many and moving.
    let mut drive = io_demand();
    drive.ddio(110.0, 5.0);
    assert_eq!((drive.state(), drive.ddio_ways()), ("IODemand", 4));
    // CoreDemand: fewer hits, misses steady; the switch gains another way.
    let mut drive = core_demand();
    drive.ddio(80.0, 4.0);
    assert_eq!((drive.state(), drive.ways(0)), ("CoreDemand", 4));
    // CoreDemand: more misses with fewer hits is still caused by the cores.
    assert_eq!(edge(&drive.ddio(70.0, 5.0)), None);
    // Reclaim from four ways: one back an interval.
    let mut drive = io_demand();
    drive.ddio(110.0, 5.0);
    drive.ddio(110.0, 0.9);
    assert_eq!((drive.state(), drive.ddio_ways()), ("Reclaim", 3));
    // Up again, and still not many: no meaningful rise.
    drive.ddio(110.0, 1.0);
    assert_eq!((drive.state(), drive.ddio_ways()), ("Reclaim", 2));
}

#[test]
fn without_a_change_no_state_moves_anything() {
    // s4.C: otherwise IAT keeps the former state. 2 % is no change.
    for mut drive in [io_demand(), core_demand(), high_keep()] {
        let (state, plan) = (drive.state().to_owned(), drive.bench.last.plan.clone());
        for _ in 0..5 {
            drive.hits *= 1.02;
            assert_eq!(drive.step(), []);
            assert_eq!((drive.state(), &drive.bench.last.plan), (state.as_str(), &plan));
        }
    }
}

#[test]
fn slicing_feeds_the_io_tenant_whose_misses_rose_most() {
    // s4.D: nf0 1 -> 1.2 M (20 %), nf1 1 -> 1.5 M (50 %); the tenant without I/O is no candidate.
    let mut drive = Drive::new("iat", "", slicing());
    (drive.prof(0).misses, drive.prof(1).misses) = (1.2, 1.5);
    drive.prof(1).refs = 13.0;
    let events = drive.ddio(90.0, 4.0);
    assert_eq!(edge(&events), Some(3));
    assert_eq!([drive.ways(0), drive.ways(1), drive.ways(2)], [2, 3, 2]);
    let grown = events.iter().find(|event| event.action == "tenant-grow").unwrap();
    assert_eq!(grown.group.as_deref(), Some("nf1"));
    assert_eq!(grown.causes[0].what, "relative rise of LLC misses of nf1");
    assert!((grown.causes[0].value - 0.5).abs() < 1e-9);
}

#[test]
fn equal_rises_go_to_the_performance_critical_tenant() {
    let mut drive = Drive::new("iat", "", slicing());
    (drive.prof(0).refs, drive.prof(1).refs) = (12.0, 12.0);
    drive.ddio(90.0, 4.0);
    assert_eq!([drive.ways(0), drive.ways(1)], [3, 2]);
}

#[test]
fn without_ddio_misses_to_read_the_state_stays() {
    let mut drive = io_demand();
    let mut seen = drive.interval();
    seen.socket[waykeeper_host::SocketCounter::DcaWriteMisses] = waykeeper_host::Reading::Unavailable;
    seen.socket[waykeeper_host::SocketCounter::DcaWriteHits] = waykeeper_host::Reading::Value(5e7);
    drive.bench.feed(&seen);
    assert_eq!(drive.state(), "IODemand");
    assert_eq!(actions(&drive.bench.last.events), ["waiting"]);
}
