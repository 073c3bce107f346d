//! Hand-worked cases of what a policy is worth: two programs without I/O, an HPW of two cores and an LPW of one.

use super::*;
use waykeeper_host::{
    KnobValues, LlcGeometry, Plan, Platform, Reading, SocketRates, Support, WorkloadCounter, WorkloadKind,
    WorkloadRates,
};
use waykeeper_units::{CoreId, CoreList};

fn inventory() -> Inventory {
    let llc = LlcGeometry::plain(11, 11_000_000, 16);
    Inventory {
        platform: Platform { chip: "fake".to_owned(), host: "test".to_owned() },
        cores: (0..3).map(CoreId).collect(),
        llc: Some(llc),
        dca_ways_default: None,
        dca_ways_switch: Support::No("none".to_owned()),
        devices: Vec::new(),
        ports: Vec::new(),
    }
}

fn workloads(count: u32) -> Vec<Workload> {
    let cores = [vec![CoreId(0), CoreId(1)], vec![CoreId(2)], vec![CoreId(3)]];
    let group = |(id, cores): (u32, Vec<CoreId>)| Workload {
        id: WorkloadId(id),
        name: format!("w{id}"),
        priority: if id == 1 { Priority::Low } else { Priority::High },
        kind: WorkloadKind::NonIo,
        cores: CoreList::from(cores),
        devices: Vec::new(),
        stack: false,
        mask: None,
    };
    (0..count).zip(cores).map(group).collect()
}

/// A meter with the time of its last interval.
struct Bench {
    meter: WorthMeter,
    second: u64,
}

const LOOK: Under = Under::AsFound(WorthSource::Look);
const AS_FOUND: Under = Under::AsFound(WorthSource::AsFound);

impl Bench {
    /// After the first interval, which does not count.
    fn new() -> Bench {
        let mut bench = Bench { meter: WorthMeter::new(), second: 0 };
        bench.see(&[1.0, 1.0], AS_FOUND);
        bench
    }

    /// An interval of one second with these instructions per cycle, and 20 accesses in 1000 instructions.
    fn see(&mut self, ipc: &[f64], under: Under) {
        self.see_load(ipc, under, 0.02);
    }

    fn see_load(&mut self, ipc: &[f64], under: Under, accesses: f64) {
        self.second += 1;
        let rates = |ipc: &f64| {
            let of = |value: f64| Reading::Value(value);
            WorkloadRates::of([
                (WorkloadCounter::Instructions, of(ipc * 1e9)),
                (WorkloadCounter::Cycles, of(1e9)),
                (WorkloadCounter::MlcHits, of(ipc * 1e9 * accesses / 2.0)),
                (WorkloadCounter::MlcMisses, of(ipc * 1e9 * accesses / 2.0)),
            ])
        };
        let seen = Interval {
            from_ns: (self.second - 1) * 1_000_000_000,
            to_ns: self.second * 1_000_000_000,
            groups: (0..).map(WorkloadId).zip(ipc.iter().map(rates)).collect(),
            socket: SocketRates::all(Reading::Unavailable),
            ports: BTreeMap::new(),
            knobs: KnobValues::default(),
        };
        self.meter.observe(&workloads(ipc.len() as u32), &seen, &inventory(), under);
    }

    fn known(&self) -> WorthEstimate {
        self.meter.worth().known().cloned().unwrap_or_else(|| panic!("{:?}", self.meter.worth()))
    }
}

fn near(estimate: Option<Estimate>, value: f64, error: f64) {
    let found = estimate.unwrap();
    assert!((found.value - value).abs() < 1e-9 && (found.error - error).abs() < 1e-9, "{found:?}");
}

#[test]
fn without_a_change_the_policy_is_worth_nothing_and_without_error() {
    let mut bench = Bench::new();
    bench.see(&[1.0, 1.0], AS_FOUND);
    let known = bench.known();
    assert_eq!((known.from, known.age_s), (WorthSource::Unchanged, 0.0));
    near(known.hpw, 1.0, 0.0);
    near(known.lpw, 1.0, 0.0);
}

#[test]
fn intervals_before_the_first_change_are_compared_with_those_after_it() {
    let mut bench = Bench::new();
    bench.see(&[1.0, 2.0], AS_FOUND);
    bench.see(&[1.0, 2.0], AS_FOUND);
    bench.meter.turned();
    bench.see(&[1.2, 1.9], Under::Policy);
    assert_eq!(bench.meter.worth(), Worth::Unknown(WorthUnknown::TooEarly));
    bench.see(&[1.2, 1.9], Under::Policy);
    let known = bench.known();
    assert_eq!((known.from, known.age_s), (WorthSource::AsFound, 2.0));
    // 1.2 / 1 and 1.9 / 2, without noise.
    near(known.hpw, 1.2, 0.0);
    near(known.lpw, 0.95, 0.0);
    near(known.tenants.get(&WorkloadId(1)).copied(), 0.95, 0.0);
}

#[test]
fn the_error_is_that_of_two_means_and_grows_with_noise() {
    let with = |noise: f64| {
        let mut bench = Bench::new();
        let up = noise.exp();
        for ipc in [up, 1.0 / up] {
            bench.see(&[ipc, 1.0], AS_FOUND);
        }
        bench.meter.turned();
        for ipc in [1.1 * up, 1.1 / up] {
            bench.see(&[ipc, 1.0], Under::Policy);
        }
        bench.known().hpw
    };
    // Logarithms are +-n around both means: squares 2 n^2 + 2 n^2 over 4 - 2, so s = n * sqrt(2); with 1/2 + 1/2 of the
    // counts the error is 1.1 * n * sqrt(2).
    near(with(0.01), 1.1, 1.1 * 0.01 * 2.0_f64.sqrt());
    near(with(0.05), 1.1, 1.1 * 0.05 * 2.0_f64.sqrt());
}

#[test]
fn a_policy_whose_layout_does_nothing_is_worth_nothing_within_its_error() {
    let mut bench = Bench::new();
    // A fixed sequence without drift.
    let noise = |k: u64| 1.0 + 0.02 * ((k * 7919 % 13) as f64 / 6.0 - 1.0);
    for k in 0..20 {
        bench.see(&[noise(k), 1.0], AS_FOUND);
    }
    bench.meter.turned();
    for k in 20..50 {
        bench.see(&[noise(k), 1.0], Under::Policy);
    }
    let hpw = bench.known().hpw.unwrap();
    assert!(hpw.error > 0.001 && hpw.error < 0.01 && hpw.is_within(1.0, 2.0), "{hpw:?}");
}

#[test]
fn neighbours_that_are_alike_say_less_than_independent_ones() {
    // Five values up, five down: of nine pairs of neighbours eight have equal signs and one has not, and there are
    // ten squares: r = (8 - 1) / 10 = 0.7.
    let now = [0.1, 0.1, 0.1, 0.1, 0.1, -0.1, -0.1, -0.1, -0.1, -0.1];
    let (mean, error) = difference(&now, &[0.0, 0.0]).unwrap();
    // s^2 = 10 * 0.01 / 10; counts 1/10 + 1/2; (1 + 0.7) / (1 - 0.7).
    assert!(mean.abs() < 1e-12 && (error - (0.01_f64 * 0.6 * 1.7 / 0.3).sqrt()).abs() < 1e-12, "{error}");
}

#[test]
fn hpws_together_are_weighted_by_cores() {
    let mut bench = Bench { meter: WorthMeter::new(), second: 0 };
    for _ in 0..3 {
        bench.see(&[1.0, 1.0, 1.0], AS_FOUND);
    }
    bench.meter.turned();
    bench.see(&[1.2, 1.0, 0.9], Under::Policy);
    bench.see(&[1.2, 1.0, 0.9], Under::Policy);
    // Two cores with 1.2 and one with 0.9: the cube root of 1.2^2 * 0.9.
    near(bench.known().hpw, (1.2_f64 * 1.2 * 0.9).cbrt(), 0.0);
}

#[test]
fn a_look_tells_it_where_the_policy_changed_knobs_first() {
    let mut bench = Bench { meter: WorthMeter::new(), second: 0 };
    bench.meter.turned();
    for _ in 0..4 {
        bench.see(&[1.3, 1.0], Under::Policy);
    }
    assert_eq!(bench.meter.worth(), Worth::Unknown(WorthUnknown::NotSeen));
    bench.meter.turned();
    // The first interval of the look still has lines of the other layout.
    bench.see(&[1.2, 1.0], LOOK);
    bench.see(&[1.0, 1.0], LOOK);
    bench.see(&[1.0, 1.0], LOOK);
    bench.meter.turned();
    bench.see(&[1.1, 1.0], Under::Both);
    bench.see(&[1.3, 1.0], Under::Policy);
    let known = bench.known();
    assert_eq!((known.from, known.age_s), (WorthSource::Look, 2.0));
    near(known.hpw, 1.3, 0.0);
}

#[test]
fn after_a_change_of_the_load_it_is_unknown_until_the_next_look() {
    let mut bench = Bench::new();
    bench.see(&[1.0, 1.0], AS_FOUND);
    bench.meter.turned();
    for _ in 0..6 {
        bench.see(&[1.1, 1.0], Under::Policy);
    }
    near(bench.known().hpw, 1.1, 0.0);
    // One interval with half again as many accesses may be chance, two in turn are another phase.
    bench.see_load(&[0.8, 1.0], Under::Policy, 0.03);
    near(bench.known().hpw, 1.1, 0.0);
    bench.see_load(&[0.8, 1.0], Under::Policy, 0.03);
    assert_eq!(bench.meter.worth(), Worth::Unknown(WorthUnknown::LoadChanged));
    for _ in 0..3 {
        bench.see_load(&[0.8, 1.0], Under::Policy, 0.03);
    }
    bench.meter.turned();
    for _ in 0..3 {
        bench.see_load(&[0.64, 1.0], LOOK, 0.03);
    }
    // 0.8 / 0.64.
    near(bench.known().hpw, 1.25, 0.0);
}

#[test]
fn progress_that_jumps_under_one_layout_is_another_load_too() {
    let mut bench = Bench::new();
    bench.see(&[1.0, 1.0], AS_FOUND);
    bench.meter.turned();
    for _ in 0..6 {
        bench.see(&[1.1, 1.0], Under::Policy);
    }
    bench.see(&[2.2, 1.0], Under::Policy);
    bench.see(&[2.2, 1.0], Under::Policy);
    assert_eq!(bench.meter.worth(), Worth::Unknown(WorthUnknown::LoadChanged));
}

#[test]
fn a_tenant_that_starts_later_makes_it_unknown_until_a_look_and_then_it_counts() {
    let mut bench = Bench::new();
    bench.see(&[1.0, 1.0], AS_FOUND);
    bench.meter.turned();
    for _ in 0..5 {
        bench.see(&[1.1, 1.0], Under::Policy);
    }
    bench.see(&[1.0, 1.0, 1.0], Under::Policy);
    assert_eq!(bench.meter.worth(), Worth::Unknown(WorthUnknown::WorkloadsChanged));
    for _ in 0..5 {
        bench.see(&[1.0, 1.0, 1.1], Under::Policy);
    }
    bench.meter.turned();
    for _ in 0..3 {
        bench.see(&[1.0, 1.0, 1.0], LOOK);
    }
    near(bench.known().tenants.get(&WorkloadId(2)).copied(), 1.1, 0.0);
}

#[test]
fn an_answer_about_the_layout_as_found_tells_the_inverse_of_its_ratio() {
    let mut bench = Bench { meter: WorthMeter::new(), second: 0 };
    bench.meter.turned();
    for _ in 0..5 {
        bench.see(&[1.2, 1.0], Under::Policy);
    }
    bench.meter.asked(7);
    let ratio = |value, error| Estimate { value, error };
    let candidate = Candidate {
        plan: Plan::default(),
        tenants: [(WorkloadId(0), ratio(0.8, 0.04)), (WorkloadId(1), ratio(1.0, 0.0))].into(),
        hpw: ratio(0.8, 0.04),
        lpw: ratio(1.0, 0.0),
    };
    bench.meter.answered(6, Some(&candidate));
    assert_eq!(bench.meter.worth(), Worth::Unknown(WorthUnknown::NotSeen), "not the answer to the question");
    bench.meter.asked(8);
    bench.meter.answered(8, Some(&candidate));
    let known = bench.known();
    assert_eq!(known.from, WorthSource::Foreseen);
    // 1 / 0.8 with a relative error of 0.04 / 0.8.
    near(known.hpw, 1.25, 1.25 * 0.05);
    // A better layout since: the mean of the logarithms is that of five times 1.2 and five times 1.32.
    bench.meter.turned();
    for _ in 0..5 {
        bench.see(&[1.32, 1.0], Under::Policy);
    }
    let found = bench.known().hpw.unwrap().value;
    let expected = 1.25 * (1.2_f64.ln().midpoint(1.32_f64.ln()) - 1.2_f64.ln()).exp();
    assert!((found - expected).abs() < 0.02, "{found} {expected}");
}

#[test]
fn the_next_daemons_meter_has_the_layout_as_found() {
    let mut bench = Bench::new();
    bench.see(&[1.0, 2.0], AS_FOUND);
    bench.see(&[1.0, 2.0], AS_FOUND);
    bench.meter.turned();
    bench.see(&[1.2, 1.9], Under::Policy);
    bench.see(&[1.2, 1.9], Under::Policy);
    // It ended in second 5, and the next one begins its clock 10 s later.
    let written = serde_json::to_string(&bench.meter.memory()).unwrap();
    let mut next = Bench { meter: WorthMeter::new(), second: 0 };
    next.meter.recall(serde_json::from_str(&written).unwrap(), 0, Duration::from_secs(10));
    next.see(&[1.2, 1.9], Under::Policy);
    next.see(&[1.2, 1.9], Under::Policy);
    assert_eq!(next.meter.worth(), Worth::Unknown(WorthUnknown::TooEarly));
    next.see(&[1.2, 1.9], Under::Policy);
    let known = next.known();
    // It was measured in second 3: 2 s before the end, 10 s before the begin, and 3 s have passed since.
    assert_eq!((known.from, known.age_s), (WorthSource::AsFound, 15.0));
    near(known.hpw, 1.2, 0.0);
    near(known.lpw, 0.95, 0.0);
    // The same workloads with twice the accesses are another load, as for one meter.
    for _ in 0..3 {
        next.see_load(&[1.2, 1.9], Under::Policy, 0.04);
    }
    assert_eq!(next.meter.worth(), Worth::Unknown(WorthUnknown::LoadChanged));
}
