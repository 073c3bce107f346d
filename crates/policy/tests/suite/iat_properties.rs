//! Properties of IAT and its baselines for arbitrary counters, including missing and nonsensical ones.
//!
//! * The chip accepts every mask and every set of DDIO ways in every plan: contiguous, wide enough.
//! * Every workload alive has a mask; no two slots overlap; no tenant of IAT has fewer ways than its grant.
//! * DDIO ways stay within their limits and change by one way per interval.
//! * Equal counters give equal plans, and guarded IAT settles on a steady server.

use crate::common;

use common::iat::at;
use common::{Bench, SECOND, gold_6140, group};
use proptest::prelude::*;
use std::collections::BTreeMap;
use waykeeper_host::{
    Interval, Inventory, Knob, Priority::High, Priority::Low, Reading, SocketCounter, Workload,
    WorkloadCounter, WorkloadKind::*,
};
use waykeeper_units::{WayMask, WorkloadId};

fn chips() -> impl Strategy<Value = Inventory> {
    (6u32..=20, 0u32..=3, 1u32..=2, 4u32..=16).prop_map(|(ways, ddio, min_ways, clos)| {
        let mut chip = gold_6140();
        (
            chip.llc.as_mut().unwrap().ways,
            chip.llc.as_mut().unwrap().min_ways,
            chip.llc.as_mut().unwrap().clos_count,
        ) = (ways, min_ways, clos);
        chip.dca_ways_default = (ddio > 0).then(|| WayMask::span(ways - ddio, ddio));
        chip
    })
}

/// Priority, kind, stack and a declared mask (which may be one that no chip accepts).
fn tenant() -> impl Strategy<Value = (bool, u8, bool, Option<u32>)> {
    let mask = prop_oneof![
        3 => (0u32..18, 1u32..4).prop_map(|(low, count)| Some(WayMask::span(low, count).bits())),
        2 => Just(None),
        1 => (1u32..0xfffff).prop_map(Some),
    ];
    (any::<bool>(), 0u8..3, prop_oneof![5 => Just(false), 1 => Just(true)], mask)
}

fn rate() -> impl Strategy<Value = Reading<f64>> {
    prop_oneof![
        20 => prop_oneof![Just(1e5), Just(1e6), Just(1e8), 0.0..1e7f64].prop_map(Reading::Value),
        1 => Just(Reading::Value(0.0)),
        1 => prop_oneof![Just(Reading::Unavailable), Just(Reading::Unsupported), Just(Reading::Absent)],
        1 => prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-1.0), Just(1e300)].prop_map(Reading::Value),
    ]
}

fn groups_of(tenants: &[(bool, u8, bool, Option<u32>)]) -> Vec<Workload> {
    let one = |(index, (high, kind, stack, mask)): (usize, &(bool, u8, bool, Option<u32>))| {
        let kind = [NonIo, NetworkIo, StorageIo][usize::from(*kind)];
        let priority = if *high { High } else { Low };
        let mut group = group(index as u32, &format!("t{index}"), priority, kind, 1, &[]);
        group.stack = *stack && kind != NonIo;
        match mask {
            Some(bits) => at(group, *bits),
            None => group,
        }
    };
    tenants.iter().enumerate().map(one).collect()
}

fn interval(bench: &Bench, raw: &[Reading<f64>], ddio: Option<WayMask>) -> Interval {
    let mut seen = bench.interval();
    seen.to_ns = seen.from_ns + SECOND;
    for (index, rates) in seen.groups.values_mut().enumerate() {
        rates[WorkloadCounter::LlcHits] = raw[index % 7];
        rates[WorkloadCounter::LlcMisses] = raw[(index + 1) % 7];
        rates[WorkloadCounter::Instructions] = raw[(index + 2) % 7];
    }
    seen.socket[SocketCounter::DcaWriteHits] = raw[7];
    seen.socket[SocketCounter::DcaWriteMisses] = raw[8];
    seen.knobs.extend(ddio.map(|mask| (Knob::DcaWays, mask)));
    seen
}

/// Ways per tenant when it was first placed.
type Grants = BTreeMap<WorkloadId, u32>;

fn check(bench: &Bench, policy: &str, grants: &Grants) -> Result<(), TestCaseError> {
    let llc = bench.inventory.known_llc();
    let masks: BTreeMap<WorkloadId, WayMask> = bench.last.plan.masks().collect();
    prop_assert_eq!(masks.len(), bench.groups.len());
    let mut distinct: Vec<WayMask> = Vec::new();
    for (id, mask) in &masks {
        prop_assert!(mask.check(llc.ways, llc.min_ways).is_ok(), "{} of {}", mask, id);
        if policy == "iat" {
            prop_assert!(mask.count() >= grants[id], "{} of {} granted {}", mask, id, grants[id]);
        }
        if !distinct.contains(mask) {
            distinct.push(*mask);
        }
    }
    // Tenants without room have all ways; all others either share a slot or lie apart.
    distinct.retain(|mask| *mask != WayMask::full(llc.ways));
    for (index, mask) in distinct.iter().enumerate() {
        prop_assert!(distinct[index + 1..].iter().all(|other| !other.overlaps(*mask)), "{:?}", masks);
    }
    if let Some(ways) = bench.last.plan.dca_ways() {
        prop_assert!(policy == "iat");
        prop_assert!(ways.check(llc.ways, 1).is_ok(), "{}", ways);
        prop_assert!((1..=6.max(bench.inventory.dca_ways_default.unwrap().count())).contains(&ways.count()));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_plan_is_legal_and_no_tenant_loses_the_grant(
        chip in chips(),
        tenants in proptest::collection::vec(tenant(), 1..8),
        policy in prop_oneof![3 => Just("iat"), 1 => Just("core-only"), 1 => Just("io-iso"), 1 => Just("baseline")],
        guarded in any::<bool>(),
        steps in proptest::collection::vec((proptest::collection::vec(rate(), 9), 1usize..4, any::<u8>()), 1..40),
    ) {
        let all = groups_of(&tenants);
        let settings = if policy == "iat" && guarded { "mode = \"guarded\"" } else { "" };
        let mut bench = Bench::on(chip.clone(), policy, settings, all.clone());
        let mut twin = Bench::on(chip.clone(), policy, settings, all.clone());
        let grants = |bench: &Bench| -> Grants {
            bench.last.plan.masks().map(|(id, mask)| (id, mask.count())).collect()
        };
        let mut granted = grants(&bench);
        check(&bench, policy, &granted)?;
        let mut ddio = chip.dca_ways_default;
        for (raw, repeats, alive) in steps {
            // One step in eight changes the workloads alive.
            let groups: Vec<Workload> = match alive & 7 {
                0 => all.iter().filter(|group| alive >> (group.id.0 % 5 + 3) & 1 == 1).cloned().collect(),
                _ => bench.groups.clone(),
            };
            let changed = groups != bench.groups;
            (bench.groups, twin.groups) = (groups.clone(), groups);
            for repeat in 0..repeats {
                let seen = interval(&bench, &raw, ddio);
                bench.now_ns = seen.to_ns;
                bench.feed(&seen);
                twin.feed(&seen);
                if changed && repeat == 0 {
                    granted = grants(&bench);
                }
                check(&bench, policy, &granted)?;
                prop_assert_eq!(&bench.last, &twin.last);
                let wanted = bench.last.plan.dca_ways().or(ddio);
                let step = wanted.map_or(0, WayMask::count).abs_diff(ddio.map_or(0, WayMask::count));
                prop_assert!(step <= 1);
                ddio = wanted;
            }
        }
    }

    /// A server whose counters depend only on the knobs: guarded IAT stops changing them.
    #[test]
    fn a_guarded_policy_comes_to_rest_on_a_steady_server(
        needed in 2u32..8,
        base in 0.2e6..4e6f64,
        per_way in 0.3e6..4e6f64,
        tenants in proptest::collection::vec(tenant(), 1..6),
        pulse in 0.0..0.3f64,
    ) {
        let mut bench = Bench::new("iat", "mode = \"guarded\"", groups_of(&tenants));
        let mut ddio = bench.inventory.dca_ways_default.unwrap();
        let mut late = 0;
        for second in 0..400u32 {
            let mut seen = bench.interval();
            let short = f64::from(needed.saturating_sub(ddio.count()));
            // The hits pulse, so that intervals never look stable; the ways determine the misses.
            let hits = 1e8 * (1.0 + if second % 2 == 0 { pulse } else { 0.0 });
            seen.socket[SocketCounter::DcaWriteHits] = Reading::Value(hits);
            seen.socket[SocketCounter::DcaWriteMisses] = Reading::Value(base + per_way * short);
            seen.knobs.insert(Knob::DcaWays, ddio);
            bench.now_ns = seen.to_ns;
            let before: Vec<_> = bench.last.plan.masks().collect();
            bench.feed(&seen);
            let wanted = bench.last.plan.dca_ways().unwrap_or(ddio);
            if second >= 200 {
                late += u32::from(wanted != ddio || !bench.last.plan.masks().eq(before));
            }
            ddio = wanted;
        }
        // After 200 s a hold lasts 160 s or more: a wrong reclaim and its repair, each with its shuffle.
        prop_assert!(late <= 8, "{} changes after 200 s: {:#?}", late, bench.texts());
    }
}
