//! Waykeeper's own policy on simple simulated servers: a function gives the counters for the plan in force, and the
//! test checks the policy's reaction. Numbers are worked by hand.

use crate::common;

use common::{Bench, NIC, SSD, gold_6140, micro, pair};
use waykeeper_host::{Knob, KnobValues, Plan, Priority, Support};
use waykeeper_units::{PortId, WayMask, WorkloadId};

/// Ways of a workload under a plan.
fn ways(plan: &Plan, id: u32) -> u32 {
    plan.mask(WorkloadId(id)).unwrap().count()
}

/// True if every workload has all ways.
fn open(plan: &Plan) -> bool {
    plan.masks().map(|(_, mask)| mask).all(|mask| mask.bits() == 0x7ff)
}

/// The masks of a plan.
fn masks(plan: &Plan) -> Vec<(WorkloadId, WayMask)> {
    plan.masks().collect()
}

/// Runs so many seconds; `world` sets the counters for the plan in force. Knobs read back as they were set.
fn live(bench: &mut Bench, seconds: u64, world: impl Fn(&Plan, &mut Bench)) {
    for _ in 0..seconds {
        let plan = bench.last.plan.clone();
        world(&plan, bench);
        let mut seen = bench.interval();
        seen.knobs = KnobValues::from([(Knob::DcaWays, WayMask::from_bits(0x600))]);
        seen.knobs.extend(plan);
        bench.now_ns = seen.to_ns;
        bench.feed(&seen);
    }
}

fn count(bench: &Bench, action: &str) -> usize {
    bench.log.iter().filter(|(_, event)| event.action == action).count()
}

/// The micro runs with storage that leaks and an antagonist: FIO (1) brings 3 of 4 GB/s, x-mem2 (3) streams.
fn leaking() -> Bench {
    let mut bench = Bench::new("waykeeper-search", "", micro());
    bench.inbound.insert(SSD, Some(3e9));
    bench.inbound.insert(common::SSD2, Some(0.0));
    bench.dca_miss = Some(0.6);
    bench.load(1).llc_hit = 0.1;
    (bench.load(3).llc_hit, bench.load(3).mlc_miss) = (0.02, 0.99);
    bench
}

#[test]
fn it_uses_at_once_the_layout_that_the_counters_suggest() {
    let mut bench = leaking();
    // The first layout has zones, so that no ring fills in an open LLC. No counter was read yet.
    assert_eq!([0, 1, 2, 3, 4].map(|id| bench.mask(id)), [0x7ff, 0x03c, 0x1ff, 0x03c, 0x03c]);
    assert_eq!((bench.last.state.as_str(), bench.dca(SSD)), ("Look", Some(true)));
    live(&mut bench, 2, |_, _| {});
    // Two intervals agree. Zones of A4 (s5.3): I/O HPW all ways, other HPWs out of the DCA ways, LPWs four of the seven
    // standard ways from way[8] on, the antagonist and FIO the trash way, DCA off for FIO's array.
    assert_eq!(bench.last.state, "Try");
    assert_eq!([0, 1, 2, 3, 4].map(|id| bench.mask(id)), [0x7ff, 0x004, 0x1ff, 0x004, 0x03c]);
    assert_eq!([NIC, SSD, common::SSD2].map(|port| bench.dca(port)), [Some(true), Some(false), Some(true)]);
    assert_eq!(bench.last.plan.dca_ways(), None, "not named as long as it is as found");
    let causes: Vec<(f64, f64)> = bench
        .event("try")
        .causes
        .iter()
        .map(|cause| ((cause.value * 1000.0).round() / 1000.0, cause.limit.as_ref().unwrap().1))
        .collect();
    assert_eq!(causes, [(0.6, 0.4), (0.75, 0.35), (0.9, 0.4), (0.99, 0.9), (0.98, 0.9)]);
}

#[test]
fn what_gains_stays_and_the_numbers_are_reported() {
    let mut bench = leaking();
    live(&mut bench, 40, |plan, bench| bench.load(2).ipc = if ways(plan, 3) > 1 { 1.0 } else { 1.2 });
    assert_eq!(bench.last.state, "Stable");
    assert_eq!([0, 1, 3].map(|id| bench.mask(id)), [0x7ff, 0x004, 0x004]);
    let keep = bench.event("keep");
    // Five cores of HPWs, one of them a fifth better: exp(ln 1.2 / 5) = 1.0371 for HPWs.
    assert!((keep.causes[1].value - 1.0371).abs() < 1e-3, "{:?}", keep.causes);
    assert!((keep.causes[0].value - 1.2_f64.ln() / 5.0).abs() < 1e-6);
}

#[test]
fn what_costs_is_dropped_and_the_last_layout_stays() {
    let mut bench = leaking();
    let first = masks(&bench.last.plan);
    live(&mut bench, 60, |plan, bench| bench.load(2).ipc = if masks(plan) == first { 1.0 } else { 0.9 });
    assert_eq!(
        (&masks(&bench.last.plan), bench.last.state.as_str()),
        (&first, "Stable"),
        "{:#?}",
        bench.texts()
    );
    assert_eq!(bench.dca(SSD), Some(true));
    assert!(count(&bench, "keep") == 0 && count(&bench, "drop") >= 1);
}

#[test]
fn a_gain_that_could_be_noise_is_none() {
    let mut bench = leaking();
    let first = masks(&bench.last.plan);
    // One HPW core of five 2 % better: 0.4 % in the mean, less than min_gain, 1 %.
    live(&mut bench, 60, |plan, bench| bench.load(2).ipc = if masks(plan) == first { 1.0 } else { 1.02 });
    assert_eq!((&masks(&bench.last.plan), count(&bench, "keep")), (&first, 0), "{:#?}", bench.texts());
}

#[test]
fn the_open_llc_is_found_where_zones_cost_and_no_rings_can_fill() {
    let mut bench = Bench::new("waykeeper-search", "", pair());
    live(&mut bench, 60, |plan, bench| bench.load(1).ipc = if open(plan) { 1.2 } else { 1.0 });
    assert!(open(&bench.last.plan), "{:#?}", bench.texts());
    // With an HPW on a NIC it is not even tried: its rings would fill and stay full.
    let mut bench = leaking();
    let opened = std::cell::Cell::new(false);
    live(&mut bench, 200, |plan, _| opened.set(opened.get() || open(plan)));
    assert!(!opened.get());
}

#[test]
fn no_hpw_pays_for_the_others() {
    let mut groups = pair();
    groups[1].priority = Priority::High;
    groups.push(common::group(2, "low", Priority::Low, groups[0].kind, 1, &[]));
    let mut bench = Bench::new("waykeeper-search", "", groups);
    let first = masks(&bench.last.plan);
    // One HPW gains half, the other loses 15 %: a gain in the mean, but not allowed.
    live(&mut bench, 40, |plan, bench| {
        let other = masks(plan) != first;
        bench.load(0).ipc = if other { 1.5 } else { 1.0 };
        bench.load(1).ipc = if other { 0.85 } else { 1.0 };
    });
    assert_eq!(masks(&bench.last.plan), first, "{:#?}", bench.texts());
    let drop = bench.event("drop");
    assert!(drop.causes[0].value > 0.0 && (drop.causes[3].value - 0.85).abs() < 1e-9, "{drop:?}");
}

#[test]
fn devices_get_ways_while_writes_miss_and_only_as_many_as_pay() {
    let mut bench = Bench::new("waykeeper-search", "", vec![micro().remove(0)]);
    // Two ways more cure it: misses 50, 30, 5, 4 % of 2, 3, 4, 5 ways; memory traffic follows.
    live(&mut bench, 60, |plan, bench| {
        let ways = plan.dca_ways().map_or(2, WayMask::count);
        let miss = [0.5, 0.3, 0.05, 0.04, 0.04][ways as usize - 2];
        (bench.dca_miss, bench.memory) = (Some(miss), Some(4e10 * miss + 1e9));
    });
    assert_eq!(bench.last.plan.dca_ways(), Some(WayMask::from_bits(0x780)));
    assert_eq!(bench.last.state, "Stable");
    // Another program's value, reset by the control loop before the next reading, is no dead knob.
    let mut seen = bench.interval();
    seen.knobs.insert(Knob::DcaWays, WayMask::from_bits(0x600));
    bench.feed(&seen);
    assert!(!bench.happened("dead-knob") && bench.last.plan.dca_ways() == Some(WayMask::from_bits(0x780)));
    // If more ways do not help, the policy takes them back.
    let mut bench = Bench::new("waykeeper-search", "", vec![micro().remove(0)]);
    live(&mut bench, 60, |_, bench| bench.dca_miss = Some(0.5));
    assert_eq!(bench.last.plan.dca_ways(), Some(WayMask::from_bits(0x600)));
    assert!(bench.happened("drop"));
}

#[test]
fn a_counter_that_newly_asks_for_something_is_answered_without_a_new_search() {
    let mut bench = Bench::new("waykeeper-search", "", vec![micro().remove(0)]);
    live(&mut bench, 10, |_, _| {});
    assert_eq!((bench.last.state.as_str(), bench.last.plan.dca_ways()), ("Stable", None));
    live(&mut bench, 3, |_, bench| bench.dca_miss = Some(0.2));
    assert_eq!(bench.last.state, "Try", "two intervals ask, at the second it is tried");
    assert_eq!(bench.last.plan.dca_ways(), Some(WayMask::from_bits(0x700)));
    assert!(!bench.happened("phase"));
}

#[test]
fn a_phase_met_before_begins_with_what_was_best_then() {
    let mut bench = leaking();
    let world = |heavy: bool| {
        move |plan: &Plan, bench: &mut Bench| {
            bench.inbound.insert(NIC, Some(if heavy { 4e9 } else { 1e9 }));
            // In the heavy phase a small LP zone is best, in the light one a large one.
            let lp = f64::from(ways(plan, 4));
            bench.load(2).ipc = if heavy { 1.3 - 0.05 * lp } else { 1.0 + 0.05 * lp };
        }
    };
    live(&mut bench, 40, world(true));
    let best = bench.last.plan.clone();
    assert!(ways(&best, 4) < 4, "{:#?}", bench.texts());
    live(&mut bench, 40, world(false));
    assert!(ways(&bench.last.plan, 4) > 4, "{:#?}", bench.texts());
    let before = bench.now_ns;
    live(&mut bench, 4, world(true));
    assert!(bench.happened_since("phase", before));
    assert!(bench.text("try").contains("this layout was best in this phase before"), "{:#?}", bench.texts());
    assert_eq!(masks(&bench.last.plan), masks(&best));
}

#[test]
fn what_was_taken_is_given_back_for_a_look_at_doubling_distances() {
    let mut bench = leaking();
    live(&mut bench, 400, |plan, bench| bench.load(2).ipc = if ways(plan, 3) > 1 { 1.0 } else { 1.2 });
    let settled: Vec<u64> = bench
        .log
        .iter()
        .filter(|(_, event)| event.action == "settle")
        .map(|(at, _)| at / common::SECOND)
        .collect();
    let pauses: Vec<u64> = settled.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // Rechecks after 30, 60 and 120 intervals, plus a few for the measurement itself.
    let pauses: Vec<u64> = pauses.into_iter().filter(|pause| *pause >= 30).collect();
    assert!(pauses.len() >= 3, "{settled:?}");
    for (pause, rest) in pauses.iter().zip([30, 60, 120]) {
        assert!((rest..=rest + 6).contains(pause), "{settled:?}");
    }
}

#[test]
fn traffic_that_never_rests_is_no_reason_to_search_for_ever() {
    let mut bench = Bench::new("waykeeper-search", "", micro());
    let flip = std::cell::Cell::new(0_u32);
    live(&mut bench, 600, |_, bench| {
        flip.set(flip.get() + 1);
        let up = (flip.get() / 3).is_multiple_of(2);
        bench.inbound.insert(NIC, Some(if up { 1.35e9 } else { 1e9 }));
    });
    let searches = count(&bench, "phase");
    assert!(searches <= 8, "{searches} searches in ten minutes");
    // Traffic that doubles and halves every six intervals is another phase each time; the policy reacts at growing
    // intervals.
    let mut bench = Bench::new("waykeeper-search", "", micro());
    flip.set(0);
    live(&mut bench, 600, |_, bench| {
        flip.set(flip.get() + 1);
        let up = (flip.get() / 6).is_multiple_of(2);
        bench.inbound.insert(NIC, Some(if up { 2e9 } else { 1e9 }));
    });
    let searches = count(&bench, "phase");
    assert!((1..=20).contains(&searches), "{searches} searches for a hundred changes");
}

#[test]
fn a_dead_knob_is_given_up_and_the_search_continues_without_it() {
    let mut bench = leaking();
    for _ in 0..40 {
        let plan = bench.last.plan.clone();
        let mut seen = bench.interval();
        seen.knobs = plan.with(Knob::DcaWays, WayMask::from_bits(0x600)).with(Knob::Dca(PortId(SSD)), true);
        bench.now_ns = seen.to_ns;
        bench.feed(&seen);
    }
    assert!(bench.texts().iter().any(|text| text.contains("the DCA switch of port 1 has no effect")));
    assert!(
        bench
            .texts()
            .iter()
            .any(|text| text.contains("DCA ways 0x780 did not take effect, 0x600 reads back")),
        "{:#?}",
        bench.texts()
    );
    assert_eq!((bench.last.plan.dca_ways(), bench.dca(SSD)), (None, None), "neither is named any more");
    assert!(count(&bench, "dead-knob") == 2);
}

#[test]
fn ddio_ways_set_by_hand_are_what_it_continues_from() {
    let mut bench = Bench::new("waykeeper-search", "", pair());
    live(&mut bench, 10, |_, _| {});
    let mut seen = bench.interval();
    seen.knobs.insert(Knob::DcaWays, WayMask::from_bits(0x780));
    bench.feed(&seen);
    assert_eq!(bench.text("dca-ways"), "DCA ways were set to 0x780 by hand");
    assert_eq!((bench.last.state.as_str(), bench.last.plan.dca_ways()), ("Look", None));
}

#[test]
fn workloads_that_come_go_or_change_class_begin_a_new_look_and_keep_what_is_known() {
    let mut bench = leaking();
    let world =
        |plan: &Plan, bench: &mut Bench| bench.load(2).ipc = if ways(plan, 3) > 1 { 1.0 } else { 1.2 };
    live(&mut bench, 30, world);
    assert_eq!((bench.last.state.as_str(), bench.mask(3)), ("Stable", 0x004));
    bench.groups.push(common::group(5, "new", Priority::Low, bench.groups[3].kind, 1, &[]));
    live(&mut bench, 1, world);
    assert_eq!((bench.text("workloads"), bench.last.state.as_str()), ("new launched", "Look"));
    assert_eq!(bench.mask(3), 0x004, "what is known of the others stays");
    assert_eq!(bench.mask(5), bench.mask(4), "a new LPW goes into the LP zone");
    bench.groups[4].priority = Priority::High;
    live(&mut bench, 1, world);
    assert_eq!((bench.mask(4), bench.mask(5).count_ones() < 8), (0x1ff, true));
    bench.groups.retain(|group| group.id != WorkloadId(3));
    live(&mut bench, 1, world);
    assert_eq!(bench.text("workloads"), "x-mem2 exited");
    assert!(!bench.last.plan.names(Knob::Mask(WorkloadId(3))));
}

#[test]
fn without_counters_nothing_is_decided() {
    let mut bench = leaking();
    let seen = bench.interval();
    for _ in 0..10 {
        let mut blind = seen.clone();
        blind.groups.clear();
        bench.feed(&blind);
    }
    assert_eq!((bench.last.state.as_str(), bench.mask(1)), ("Look", 0x03c));
    assert_eq!(bench.log.len(), 1);
}

#[test]
fn chips_without_knobs_or_with_other_ways_get_what_they_can() {
    // No DCA at all, wide masks only: four ways of twelve at least two.
    let mut chip = gold_6140();
    (
        chip.llc.as_mut().unwrap().ways,
        chip.llc.as_mut().unwrap().min_ways,
        chip.llc.as_mut().unwrap().inclusive_ways,
    ) = (12, 2, None);
    (chip.dca_ways_default, chip.dca_ways_switch) = (None, Support::No("no DCA".to_owned()));
    for port in &mut chip.ports {
        port.dca_switch = Support::No("no DCA".to_owned());
    }
    let mut bench = Bench::on(chip, "waykeeper-search", "", micro());
    bench.dca_miss = None;
    (bench.load(3).llc_hit, bench.load(3).mlc_miss) = (0.02, 0.99);
    for _ in 0..40 {
        bench.load(2).ipc = if ways(&bench.last.plan, 3) > 2 { 1.0 } else { 1.3 };
        bench.step();
    }
    assert!(bench.last.plan.dca_by_port().next().is_none() && bench.last.plan.dca_ways().is_none());
    assert_eq!(ways(&bench.last.plan, 3), 2, "the trash way is as narrow as the chip takes it");
    assert!(bench.last.plan.masks().map(|(_, mask)| mask).all(|mask| mask.check(12, 2).is_ok()));
}
