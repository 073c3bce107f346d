//! A described server as a host: counters as they were seen, counters as a layout changes them, knobs that it refuses.

use crate::server::{interval, server, watch};
use std::sync::Arc;
use waykeeper_calibration::{Calibrator, ServerDescription};
use waykeeper_host::{
    Device, Host, HostCounter, Interval, Inventory, Knob, KnobOutcome, Plan, PortCounter, Reading, Readings,
    SocketCounter, WorkloadCounter,
};
use waykeeper_machine::{RunOptions, ScenarioSource, VirtualServer};
use waykeeper_silicon::Sampling;
use waykeeper_twin::{Budget, DescribedServer};
use waykeeper_units::{DeviceId, PortId, WayMask, WorkloadId};

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

/// A forwarder on a NIC, a reader of an array, and a program.
const DEVICES: &str = r#"
name = "devices"
duration_s = 60
time_factor = 20

[[nic]]
name = "nic0"
offered_gbps = 60

[[storage]]
name = "raid0"

[[workload]]
name = "l2fwd"
program = "l2fwd"
cores = "0-1"
priority = "high"

[[workload]]
name = "fio"
program = "fio"
cores = "2-3"

[[workload]]
name = "program"
program = "x-mem"
cores = "4"
working_set = "12 MiB"
pattern = "random"
priority = "high"
"#;

fn described_with_devices() -> (ServerDescription, Inventory, Interval) {
    let source = ScenarioSource::parse("devices.toml", DEVICES, None).expect("it is TOML");
    let options = RunOptions { seed: 5, sample_seed: 6, sampling: Sampling::DEFAULT };
    let mut server =
        VirtualServer::new(Arc::new(source.read().expect("it is legal")), options).expect("it fits");
    let mut calibrator = Calibrator::new(server.inventory());
    watch(&mut server, &mut calibrator, 6);
    let description = calibrator.describe().expect("it was seen");
    let seen = interval(&mut server);
    (description, server.inventory().clone(), seen)
}

fn value<K: HostCounter<N>, const N: usize>(rates: &Readings<K, f64, N>, counter: K) -> f64 {
    rates[counter].value().expect("a model counts it")
}

/// Lines per second that devices with DCA write, hits and misses.
fn device_writes(seen: &Interval) -> f64 {
    value(&seen.socket, SocketCounter::DcaWriteHits) + value(&seen.socket, SocketCounter::DcaWriteMisses)
}

/// Lines per second that the devices behind a port write.
fn inbound(seen: &Interval, port: PortId) -> f64 {
    value(&seen.ports[&port], PortCounter::InboundBytes) / 64.0
}

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 2.0 + 1e-6 * b.abs()
}

#[test]
fn device_counters_follow_the_switches_and_return_with_them() {
    const FIO: WorkloadId = WorkloadId(1);
    const NIC: PortId = PortId(0);
    const ARRAY: PortId = PortId(1);
    let (description, inventory, seen) = described_with_devices();
    let mut host = DescribedServer::new(&description, &inventory, &seen, Budget::default());
    let as_seen = |now: &Interval| {
        for (counter, rate) in seen.socket.iter() {
            let rate = rate.value().expect("a model counts it");
            assert!(is_near(value(&now.socket, counter), rate), "{counter:?}: {rate} {:?}", now.socket);
        }
        assert!(seen.ports.len() == 2 && inbound(&seen, NIC) > 1e6 && inbound(&seen, ARRAY) > 1e6);
        for port in [NIC, ARRAY] {
            assert!(is_near(inbound(now, port), inbound(&seen, port)), "{port:?}");
        }
    };
    as_seen(&next(&mut host));

    // Without DCA the NIC's lines are no device writes of the LLC but writes to memory. The array's are as many as before,
    // at the pace of its program.
    host.apply(&Plan::default().with(Knob::Dca(NIC), false)).expect("it can");
    let off = next(&mut host);
    let pace = host.foreseen().tenants[&FIO].value;
    assert!(is_near(inbound(&off, ARRAY), inbound(&seen, ARRAY) * pace), "{pace}");
    let share = inbound(&off, ARRAY) / (inbound(&seen, NIC) + inbound(&seen, ARRAY));
    assert!(is_near(device_writes(&off), device_writes(&seen) * share), "{share}");
    let written = |seen: &Interval| value(&seen.socket, SocketCounter::MemoryWriteBytes) / 64.0;
    let fewer_misses = value(&seen.socket, SocketCounter::DcaWriteMisses)
        - value(&off.socket, SocketCounter::DcaWriteMisses);
    assert!(is_near(written(&off) - written(&seen) + fewer_misses, inbound(&off, NIC)));

    host.apply(&Plan::default().with(Knob::Dca(ARRAY), false)).expect("it can");
    assert_eq!(device_writes(&next(&mut host)), 0.0);
    let on = Plan::of_dca([(NIC, true), (ARRAY, true)]);
    host.apply(&on).expect("it can");
    as_seen(&next(&mut host));
}

#[test]
fn a_server_that_was_seen_without_dca_has_device_writes_when_it_is_switched_on() {
    let (mut description, inventory, mut seen) = described_with_devices();
    for knobs in [&mut description.knobs, &mut description.observed[0].knobs, &mut seen.knobs] {
        for port in [PortId(0), PortId(1)] {
            knobs.insert(Knob::Dca(port), false);
        }
    }
    for counter in [SocketCounter::DcaWriteHits, SocketCounter::DcaWriteMisses] {
        seen.socket[counter] = Reading::Value(0.0);
    }
    let mut host = DescribedServer::new(&description, &inventory, &seen, Budget::default());
    assert_eq!(device_writes(&next(&mut host)), 0.0);
    host.apply(&Plan::of_dca([(PortId(0), true), (PortId(1), true)])).expect("it can");
    let on = next(&mut host);
    let lines = inbound(&on, PortId(0)) + inbound(&on, PortId(1));
    assert!(is_near(device_writes(&on), lines), "{} {lines}", device_writes(&on));
}

#[test]
fn a_port_of_several_devices_has_the_pace_of_their_program_once() {
    const FIO: WorkloadId = WorkloadId(1);
    let (mut description, mut inventory, seen) = described_with_devices();
    let array = inventory.devices[1].clone();
    inventory.devices.push(Device { id: DeviceId(2), name: "raid1".to_owned(), ..array.clone() });
    let fio = &mut description.tenants[1].workload;
    assert_eq!((fio.id, &fio.devices[..]), (FIO, &[array.id][..]));
    fio.devices.push(DeviceId(2));
    let mut host = DescribedServer::new(&description, &inventory, &seen, Budget::default());
    host.apply(&Plan::of_masks([(FIO, WayMask::span(0, 1))]).with(Knob::Dca(array.ports[0]), false))
        .expect("it can");
    let now = next(&mut host);
    let pace = host.foreseen().tenants[&FIO].value;
    assert_ne!(pace, 1.0);
    let port = array.ports[0];
    assert!(is_near(inbound(&now, port), inbound(&seen, port) * pace), "{pace}");
}
