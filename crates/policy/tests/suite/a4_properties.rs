//! Properties of A4 for arbitrary counters, including missing and nonsensical ones.
//!
//! * The chip accepts every mask of every plan.
//! * From A4-b on no LPW ever has a DCA way; nor an inclusive way while an I/O HPW is active or with
//!   `lpw_never_inclusive` (algorithms.md 3.3: without I/O HPWs the paper's LP zone starts at way\[9:10\]).
//! * Plans contain DCA for storage ports only, and only A4-c and A4-d turn it off.
//! * Equal counters give equal plans.

use crate::common;

use common::{Bench, SECOND, gold_6140, group};
use proptest::prelude::*;
use waykeeper_host::{
    DeviceKind, Interval, Inventory, PortCounter, Priority, Priority::High, Priority::Low, Reading,
    SocketCounter, Workload, WorkloadCounter, WorkloadKind, WorkloadKind::*,
};
use waykeeper_units::WayMask;

/// A chip: ways, inclusive ways at the right, DCA ways at the left, fewest ways of a mask.
fn chips() -> impl Strategy<Value = Inventory> {
    (6u32..=20, 0u32..=2, 0u32..=2, 1u32..=2).prop_map(|(ways, inclusive, dca, min_ways)| {
        let mut chip = gold_6140();
        chip.llc.as_mut().unwrap().ways = ways;
        chip.llc.as_mut().unwrap().min_ways = min_ways;
        chip.llc.as_mut().unwrap().inclusive_ways = (inclusive > 0).then(|| WayMask::full(inclusive));
        chip.dca_ways_default = (dca > 0).then(|| WayMask::span(ways - dca, dca));
        chip
    })
}

fn workload() -> impl Strategy<Value = (Priority, WorkloadKind, u8)> {
    let kind =
        prop_oneof![Just((NonIo, 0u8)), Just((NetworkIo, 0)), Just((StorageIo, 1)), Just((StorageIo, 2))];
    (prop_oneof![Just(High), Just(Low)], kind).prop_map(|(priority, (kind, device))| (priority, kind, device))
}

/// A rate: mostly plausible, so widely spread that ratios near 0 and 1 are common; sometimes missing or nonsensical.
fn rate() -> impl Strategy<Value = Reading<f64>> {
    prop_oneof![
        24 => prop_oneof![Just(1e5), Just(1e7), Just(1e8), 0.0..1e8f64].prop_map(Reading::Value),
        1 => Just(Reading::Value(0.0)),
        1 => prop_oneof![Just(Reading::Unavailable), Just(Reading::Unsupported), Just(Reading::Absent)],
        1 => prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-1.0), Just(1e300)].prop_map(Reading::Value),
    ]
}

/// A row of equal steps: their length in ms, their number, the workloads alive (bit mask), and raw counter values. Long
/// rows bring the policy into every state.
fn stretch() -> impl Strategy<Value = (u64, usize, u8, Vec<Reading<f64>>)> {
    let alive = prop_oneof![6 => Just(0xffu8), 1 => any::<u8>()];
    let length_ms = prop_oneof![8 => Just(1000u64), 1 => 1u64..20_000];
    (length_ms, prop_oneof![1usize..4, 4usize..30], alive, proptest::collection::vec(rate(), 12))
}

/// The counters of a step, distributed over the workloads.
fn interval(bench: &Bench, length_ms: u64, raw: &[Reading<f64>]) -> Interval {
    let mut seen = bench.interval();
    seen.to_ns = seen.from_ns + length_ms * SECOND / 1000;
    for (at, rates) in seen.groups.values_mut().enumerate() {
        rates[WorkloadCounter::LlcHits] = raw[at % 5];
        rates[WorkloadCounter::LlcMisses] = raw[(at + 1) % 5];
        rates[WorkloadCounter::MlcHits] = raw[(at + 2) % 6];
        rates[WorkloadCounter::MlcMisses] = raw[(at + 3) % 6];
    }
    seen.socket[SocketCounter::DcaWriteHits] = raw[6];
    seen.socket[SocketCounter::DcaWriteMisses] = raw[7];
    seen.socket[SocketCounter::MemoryReadBytes] = raw[8];
    for (at, rates) in seen.ports.values_mut().enumerate() {
        rates[PortCounter::InboundBytes] = raw[9 + at % 3];
    }
    seen
}

/// Checks one plan.
fn check(bench: &Bench, policy: &str, never_inclusive: bool) -> Result<(), TestCaseError> {
    let llc = bench.inventory.known_llc();
    let storage_ports = bench.inventory.devices.iter().filter(|device| device.kind == DeviceKind::Storage);
    let storage_ports: Vec<_> = storage_ports.flat_map(|device| device.ports.clone()).collect();
    let plan = &bench.last.plan;
    prop_assert_eq!(plan.dca_ways(), None);
    prop_assert_eq!(plan.masks().count(), bench.groups.len());
    for (id, mask) in plan.masks() {
        prop_assert!(mask.check(llc.ways, llc.min_ways).is_ok(), "{} of {}", mask, id);
        let group = bench.groups.iter().find(|group| group.id == id).expect("only the living are planned");
        if group.priority == Low && policy != "a4-a" {
            prop_assert!(
                !mask.overlaps(bench.inventory.dca_ways_default.unwrap_or_default()),
                "{} of {}",
                mask,
                id
            );
            // An I/O HPW that is not an antagonist has all ways, which shows in the plan.
            let io_high = bench.groups.iter().any(|other| {
                other.priority == High
                    && other.kind != NonIo
                    && plan.mask(other.id).unwrap() == WayMask::full(llc.ways)
            });
            if io_high || never_inclusive {
                prop_assert!(!mask.overlaps(llc.inclusive_ways.unwrap_or_default()), "{} of {}", mask, id);
            }
        }
    }
    for (port, on) in plan.dca_by_port() {
        prop_assert!(storage_ports.contains(&port));
        prop_assert!(on || ["a4-c", "a4-d"].contains(&policy));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_plan_is_legal_and_keeps_out_of_the_way_of_devices(
        chip in chips(),
        workloads in proptest::collection::vec(workload(), 1..7),
        policy in prop_oneof![Just("a4-a"), Just("a4-b"), Just("a4-c"), Just("a4-d")],
        settings in prop_oneof![Just(""), Just("profile = \"artifact\""), Just("min_llc_refs = 0")],
        stretches in proptest::collection::vec(stretch(), 1..12),
    ) {
        let all: Vec<Workload> = workloads
            .iter()
            .enumerate()
            .map(|(id, (priority, kind, device))| group(id as u32, &format!("w{id}"), *priority, *kind, 1, &[*device]))
            .collect();
        let never_inclusive = settings.contains("artifact");
        let mut bench = Bench::on(chip.clone(), policy, settings, all.clone());
        let mut twin = Bench::on(chip, policy, settings, all.clone());
        check(&bench, policy, never_inclusive)?;
        for (length_ms, steps, alive, raw) in stretches {
            bench.groups = all.iter().filter(|group| alive >> group.id.0 & 1 == 1).cloned().collect();
            twin.groups = bench.groups.clone();
            for _ in 0..steps {
                let seen = interval(&bench, length_ms, &raw);
                bench.now_ns = seen.to_ns;
                bench.feed(&seen);
                twin.feed(&seen);
                check(&bench, policy, never_inclusive)?;
                prop_assert_eq!(&bench.last, &twin.last);
            }
        }
    }

    #[test]
    fn without_any_number_nothing_is_ever_decided(
        workloads in proptest::collection::vec(workload(), 1..7),
        missing in prop_oneof![Just(Reading::Unavailable), Just(Reading::Unsupported)],
    ) {
        prop_assume!(workloads.iter().any(|(priority, ..)| *priority == High));
        let all: Vec<Workload> = workloads
            .iter()
            .enumerate()
            .map(|(id, (priority, kind, device))| group(id as u32, &format!("w{id}"), *priority, *kind, 1, &[*device]))
            .collect();
        let mut bench = Bench::new("a4", "", all);
        let first = bench.last.plan.clone();
        for _ in 0..60 {
            let seen = interval(&bench, 1000, &[missing; 12]);
            bench.now_ns = seen.to_ns;
            bench.feed(&seen);
            prop_assert_eq!(&bench.last.plan, &first);
        }
    }
}
