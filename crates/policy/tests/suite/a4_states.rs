//! Every edge of A4's state diagram (algorithms.md 3.10), each in a test of its name.

use crate::common;

use common::{Bench, NIC, SSD, SSD2, group, micro, pair};
use waykeeper_host::{Priority::High, Priority::Low, WorkloadKind::NonIo};

fn states(bench: &mut Bench, seconds: u64) -> Vec<String> {
    let mut seen = vec![bench.last.state.clone()];
    for _ in 0..seconds {
        let state = bench.step().state.clone();
        if seen.last() != Some(&state) {
            seen.push(state);
        }
    }
    seen
}

#[test]
fn no_workload_runs_idle() {
    let mut bench = Bench::new("a4", "", vec![]);
    assert_eq!(states(&mut bench, 20), ["Idle"]);
    assert!(bench.last.plan.masks().next().is_none() && bench.last.events.is_empty());
}

#[test]
fn idle_to_init_measure_on_the_first_launch() {
    let mut bench = Bench::new("a4", "", vec![]);
    bench.step();
    bench.groups = pair();
    assert_eq!(states(&mut bench, 1), ["Idle", "InitMeasure"]);
    assert_eq!(bench.text("launch"), "lbm launched (LPW, non-I/O)");
}

#[test]
fn init_measure_to_expand_to_stable_without_antagonists() {
    let mut bench = Bench::new("a4", "", micro());
    assert_eq!(states(&mut bench, 15), ["InitMeasure", "Expand", "Stable"]);
}

#[test]
fn init_measure_to_stable_when_no_workload_can_use_the_lp_zone() {
    let mut bench = Bench::new("a4", "", vec![group(0, "mcf", High, NonIo, 1, &[])]);
    assert_eq!(states(&mut bench, 5), ["InitMeasure", "Stable"]);
    assert_eq!(bench.mask(0), 0x7ff);
}

#[test]
fn without_an_hpw_the_lp_zone_takes_all_it_may() {
    let mut bench = Bench::new("a4", "", vec![group(0, "lbm", Low, NonIo, 1, &[])]);
    assert_eq!(
        states(&mut bench, 60),
        ["InitMeasure", "Expand", "Stable"],
        "and there is nothing to revert for"
    );
    assert_eq!(bench.mask(0), 0x0ff);
}

#[test]
fn expand_to_trash_to_stable_with_an_lpw_antagonist() {
    let mut bench = Bench::new("a4", "", micro());
    *bench.load(4) = common::Load { llc_hit: 0.05, mlc_miss: 0.95, ..Default::default() };
    assert_eq!(states(&mut bench, 30), ["InitMeasure", "Expand", "Trash", "Stable"]);
}

#[test]
fn expand_to_init_measure_when_settling_finds_an_hpw_antagonist() {
    // It misses everything only once the LP zone has grown, so the test at its launch does not see it.
    let mut bench = Bench::new("a4", "", pair());
    bench.load(0).llc_hit = 0.2;
    bench.until("Expand");
    *bench.load(0) = common::Load { llc_hit: 0.05, mlc_miss: 0.95, ..Default::default() };
    bench.run(2);
    assert!(bench.happened("lp-zone-back"));
    assert_eq!(bench.last.state, "InitMeasure");
    assert_eq!(bench.mask(0), 0x003, "now an LPW");
}

#[test]
fn expand_to_stable_when_the_antagonist_cannot_be_squeezed_further() {
    // The zone steps back to its first size, which is the minimum of the trash ways in the artifact profile.
    let mut bench = Bench::new("a4", "trash_min_ways = 2", micro());
    *bench.load(4) = common::Load { llc_hit: 0.05, mlc_miss: 0.95, ..Default::default() };
    bench.until("Expand");
    bench.load(2).llc_hit = 0.2;
    assert_eq!(states(&mut bench, 3), ["Expand", "Stable"]);
    assert!(bench.happened("non-io-antagonist"));
}

#[test]
fn stable_to_revert_to_stable() {
    let mut bench = Bench::new("a4", "", pair());
    bench.until("Stable");
    assert_eq!(states(&mut bench, 11), ["Stable", "Revert", "Stable"]);
}

#[test]
fn revert_to_init_measure() {
    let mut bench = Bench::new("a4", "", pair());
    bench.until("Revert");
    bench.load(0).llc_hit = 0.9;
    assert_eq!(states(&mut bench, 1), ["Revert", "InitMeasure"]);
}

#[test]
fn stable_to_init_measure_on_a_storage_antagonist() {
    let mut bench = Bench::new("a4", "", micro());
    bench.until("Stable");
    bench.dca_miss = Some(0.9);
    bench.load(1).llc_hit = 0.1;
    bench.inbound = [(NIC, Some(1e9)), (SSD, Some(3e9)), (SSD2, Some(0.0))].into();
    assert_eq!(states(&mut bench, 3), ["Stable", "InitMeasure"]);
}

#[test]
fn stable_to_init_measure_on_a_non_io_antagonist() {
    let mut bench = Bench::new("a4", "", micro());
    bench.until("Stable");
    *bench.load(3) = common::Load { llc_hit: 0.05, mlc_miss: 0.95, ..Default::default() };
    assert_eq!(states(&mut bench, 3), ["Stable", "InitMeasure"]);
}

#[test]
fn stable_to_init_measure_on_a_phase_change() {
    let mut bench = Bench::new("a4", "", pair());
    bench.until("Stable");
    bench.run(2);
    bench.load(0).llc_hit = 0.9;
    assert_eq!(states(&mut bench, 2), ["Stable", "InitMeasure"]);
}

#[test]
fn stable_to_init_measure_on_a_restored_hpw() {
    let mut bench = Bench::new("a4", "", pair());
    *bench.load(0) = common::Load { llc_hit: 0.05, mlc_miss: 0.95, ..Default::default() };
    bench.until("Stable");
    bench.load(0).llc_hit = 0.5;
    assert_eq!(states(&mut bench, 3), ["Stable", "InitMeasure"]);
    assert_eq!(bench.mask(0), 0x7ff);
}

/// A bench with an antagonist, brought to `state`.
fn brought_to(state: &str) -> Bench {
    let mut bench = Bench::new("a4", "", micro());
    *bench.load(4) = common::Load { llc_hit: 0.05, mlc_miss: 0.95, ..Default::default() };
    bench.until(state);
    bench
}

#[test]
fn any_state_to_init_measure_on_a_launch() {
    for state in ["InitMeasure", "Expand", "Trash", "Stable", "Revert"] {
        let mut bench = brought_to(state);
        bench.groups.push(group(9, "new", Low, NonIo, 1, &[]));
        bench.step();
        assert_eq!((bench.last.state.as_str(), bench.mask(9)), ("InitMeasure", 0x00c), "from {state}");
        assert!(bench.happened("launch"));
    }
}

#[test]
fn any_state_to_init_measure_on_an_exit() {
    for state in ["InitMeasure", "Expand", "Trash", "Stable", "Revert"] {
        let mut bench = brought_to(state);
        bench.groups.remove(3);
        bench.step();
        assert_eq!(bench.last.state, "InitMeasure", "from {state}");
        assert_eq!(bench.last.plan.masks().count(), 4);
    }
}

#[test]
fn any_state_to_idle_when_the_last_one_leaves() {
    for state in ["InitMeasure", "Expand", "Trash", "Stable", "Revert"] {
        let mut bench = brought_to(state);
        bench.groups.clear();
        bench.step();
        assert_eq!(bench.last.state, "Idle", "from {state}");
        assert!(bench.last.plan.masks().next().is_none());
        assert_eq!(bench.dca(SSD), Some(true));
    }
}

#[test]
fn a_workload_declared_anew_counts_as_an_exit_and_a_launch() {
    let mut bench = brought_to("Stable");
    bench.groups[4].priority = High;
    bench.step();
    assert_eq!((bench.last.state.as_str(), bench.mask(4)), ("InitMeasure", 0x1ff));
}

#[test]
fn the_dca_zone_ends_when_the_last_io_hpw_leaves() {
    let mut bench = brought_to("Stable");
    assert_eq!(bench.mask(2), 0x1ff);
    bench.groups.remove(0);
    bench.step();
    assert_eq!((bench.mask(2), bench.mask(3)), (0x7ff, 0x003));
}

#[test]
fn the_description_names_every_state_and_threshold_in_force() {
    let policy = waykeeper_policy::build("a4", &"dmalk_dca_ms_thr = 0.5".parse().unwrap()).unwrap();
    let page = policy.describe();
    let states: Vec<&str> = page.states.iter().map(|state| state.name.as_str()).collect();
    assert_eq!(states, ["Idle", "InitMeasure", "Expand", "Trash", "Stable", "Revert"]);
    let row = page.settings.iter().find(|row| row.name == "dmalk_dca_ms_thr").unwrap();
    assert_eq!((row.value.as_str(), row.default.as_str()), ("0.5", "0.4"));
    assert!(row.source.contains("s5.4"));
}
