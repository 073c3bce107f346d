//! A described server as a host: counters as they were seen, counters as a layout changes them, knobs that it refuses.

use crate::server::{interval, server, watch};
use waykeeper_calibration::{Calibrator, ServerDescription};
use waykeeper_host::{Host, Interval, Inventory, Knob, KnobOutcome, Plan, SocketCounter, WorkloadCounter};
use waykeeper_twin::{Budget, DescribedServer};
use waykeeper_units::{PortId, WayMask, WorkloadId};

const SECOND: u64 = 1_000_000_000;
const CHASER: WorkloadId = WorkloadId(0);
const STREAM: WorkloadId = WorkloadId(2);

fn described() -> (ServerDescription, Inventory, Interval) {
    let mut server = server();
    let mut calibrator = Calibrator::new(server.inventory());
    watch(&mut server, &mut calibrator, 8);
    let description = calibrator.describe().expect("it was seen");
    let seen = interval(&mut server);
    (description, server.inventory().clone(), seen)
}

fn next(host: &mut DescribedServer<'_>) -> Interval {
    let before = host.sample().expect("it can");
    host.wait_until(host.now_ns() + SECOND).expect("it can");
    Interval::between(&before, &host.sample().expect("it can")).expect("a second has passed")
}

#[test]
fn under_the_layout_that_was_seen_every_counter_is_as_it_was_seen() {
    let (description, inventory, seen) = described();
    let mut host = DescribedServer::new(&description, &inventory, &seen, Budget::default());
    assert_eq!((host.workloads().len(), host.inventory()), (3, &inventory));
    for _ in 0..3 {
        let now = next(&mut host);
        assert_eq!(now.knobs, seen.knobs);
        for (id, rates) in &seen.groups {
            for (counter, rate) in rates.iter() {
                let (rate, found) = (rate.value().expect("a model counts it"), now.groups[id][counter]);
                let off = (found.value().expect("as before") - rate).abs();
                assert!(off <= 1.0 + 1e-9 * rate, "{id} {counter:?}: {rate} and {found:?}");
            }
        }
    }
    assert_eq!(host.foreseen().hpw.value, 1.0);
}

#[test]
fn beside_a_stream_in_two_ways_a_program_hits_more_and_all_counters_agree() {
    let (description, inventory, seen) = described();
    let mut host = DescribedServer::new(&description, &inventory, &seen, Budget::default());
    let plan = Plan::of_masks([(STREAM, WayMask::span(0, 2)), (CHASER, WayMask::span(2, 8))]);
    assert!(host.apply(&plan).expect("it can").values().all(|outcome| *outcome == KnobOutcome::Applied));
    let foreseen = next(&mut host);
    assert_eq!(foreseen.knobs.mask(STREAM), Some(WayMask::span(0, 2)));

    let of = |seen: &Interval, id| {
        let rates = &seen.groups[&id];
        let references = rates.llc_references().expect("it refers");
        let instructions = rates[WorkloadCounter::Instructions].value().expect("it runs");
        (rates.llc_hit_ratio().expect("it refers"), rates.ipc().expect("it runs"), references / instructions)
    };
    let (was_hits, was_ipc, was_references) = of(&seen, CHASER);
    let (hits, ipc, references) = of(&foreseen, CHASER);
    assert!(hits > was_hits + 0.2 && ipc > was_ipc, "{was_hits} then {hits}, {was_ipc} then {ipc}");
    assert!((references / was_references - 1.0).abs() < 1e-6, "{was_references} then {references}");
    // Progress is that of the candidate, and each miss is a line from memory.
    let progress = host.foreseen().tenants[&CHASER].value;
    assert!((ipc / was_ipc - progress).abs() < 1e-6, "{} {progress}", ipc / was_ipc);
    let read = |seen: &Interval| seen.socket[SocketCounter::MemoryReadBytes].value().expect("it is counted");
    let misses = |seen: &Interval| {
        let all = seen.groups.values().map(|rates| rates[WorkloadCounter::LlcMisses].value());
        all.map(|misses| misses.expect("it is counted")).sum::<f64>()
    };
    let (less_read, fewer) = (read(&seen) - read(&foreseen), misses(&seen) - misses(&foreseen));
    assert!((less_read - 64.0 * fewer).abs() < 1e3, "{less_read} bytes, {fewer} lines");
    let cycles = |seen: &Interval| seen.groups[&CHASER][WorkloadCounter::Cycles].value().expect("it runs");
    assert!((cycles(&foreseen) / cycles(&seen) - 1.0).abs() < 1e-6, "cycles are those of its cores");

    // The server that was described changes the same way.
    let mut real = server();
    (0..3).for_each(|_| drop(interval(&mut real)));
    real.apply(&plan).expect("it can");
    (0..4).for_each(|_| drop(interval(&mut real)));
    let (real_hits, real_ipc, _) = of(&interval(&mut real), CHASER);
    assert!(real_hits > was_hits + 0.2 && real_ipc > was_ipc, "{real_hits} {real_ipc}");
}

#[test]
fn a_knob_that_the_server_does_not_have_is_refused_and_stays() {
    let (description, inventory, seen) = described();
    let mut host = DescribedServer::new(&description, &inventory, &seen, Budget::default());
    let before = host.sample().expect("it can").knobs;
    let wrong = Plan::of_masks([(CHASER, WayMask::from_bits(0x5)), (WorkloadId(9), WayMask::span(0, 2))])
        .with(Knob::Dca(PortId(7)), false)
        .with(Knob::RxRing(PortId(0)), 512_u32);
    let applied = host.apply(&wrong).expect("it answers");
    assert_eq!(applied.len(), 4);
    for (knob, outcome) in applied.iter() {
        assert!(matches!(outcome, KnobOutcome::Refused(_)), "{knob:?} {outcome:?}");
    }
    assert_eq!(host.sample().expect("it can").knobs, before);
}
