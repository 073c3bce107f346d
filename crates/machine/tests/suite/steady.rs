//! Steady intervals are extrapolated: counters continue at their rates; scheduled changes and knob changes are
//! simulated.

use crate::common::scenario;
use std::sync::Arc;
use waykeeper_host::{Host, Knob, Plan, PortCounter, Reading, SocketCounter, WorkloadCounter};
use waykeeper_machine::{RunOptions, Scenario, VirtualServer};
use waykeeper_silicon::Sampling;
use waykeeper_units::{WayMask, WorkloadId};

const SECOND: u64 = 1_000_000_000;

/// Two forwarding cores beside a random walk; one second of the clock is 50 ms of traffic.
fn mix() -> Scenario {
    let mut mix = scenario("a4-fig3a", "time_factor=20;duration_s=30;warmup_s=20;measure_s=10;interval_s=1");
    mix.interval_s = 1.0;
    mix
}

fn server(scenario: Scenario, extrapolates: bool) -> VirtualServer {
    let options = RunOptions { seed: 5, sample_seed: 5, sampling: Sampling::DEFAULT };
    let mut server = VirtualServer::new(Arc::new(scenario), options).expect("it fits");
    if extrapolates {
        server.extrapolate_steady_intervals();
    }
    server
}

/// Waits one second at a time; returns the simulated time, s.
fn wait(server: &mut VirtualServer, until_s: u64) -> f64 {
    let before = server.simulated_s();
    while server.now_ns() < until_s * SECOND {
        server.wait_until(server.now_ns() + SECOND).expect("it runs");
    }
    server.simulated_s() - before
}

/// Cumulative counters: per group instructions, cycles, LLC hits and misses; bytes of ports and memory.
fn counters(server: &mut VirtualServer) -> Vec<f64> {
    let snapshot = server.sample().expect("counters can be read");
    let mut read = Vec::new();
    for group in snapshot.groups.values() {
        read.extend([
            group[WorkloadCounter::Instructions],
            group[WorkloadCounter::Cycles],
            group[WorkloadCounter::LlcHits],
            group[WorkloadCounter::LlcMisses],
        ]);
    }
    for port in snapshot.ports.values() {
        read.extend([port[PortCounter::InboundBytes], port[PortCounter::OutboundBytes]]);
    }
    let socket = snapshot.socket;
    read.extend([socket[SocketCounter::DcaWriteHits], socket[SocketCounter::DcaWriteMisses]]);
    read.extend([socket[SocketCounter::MemoryReadBytes], socket[SocketCounter::MemoryWriteBytes]]);
    let value = |reading| match reading {
        Reading::Value(value) => value as f64,
        other => panic!("the virtual server has every counter, not {other:?}"),
    };
    read.into_iter().map(value).collect()
}

fn rates(server: &mut VirtualServer, from_s: u64, until_s: u64) -> Vec<f64> {
    wait(server, from_s);
    let from = counters(server);
    wait(server, until_s);
    let to = counters(server);
    to.iter().zip(&from).map(|(to, from)| (to - from) / (until_s - from_s) as f64).collect()
}

#[test]
fn rates_are_those_of_a_run_that_simulates_every_interval() {
    let (mut whole, mut part) = (server(mix(), false), server(mix(), true));
    let (expected, found) = (rates(&mut whole, 4, 19), rates(&mut part, 4, 19));
    // Counts of less than a thousandth of a program's instructions are noise.
    let least = expected[0] / 1000.0;
    for (index, (expected, found)) in expected.iter().zip(&found).enumerate() {
        if *expected > least {
            assert!((found / expected - 1.0).abs() < 0.02, "{index}: {found} for {expected}");
        }
    }
    let simulated = part.simulated_s();
    assert!((whole.simulated_s() - 0.95).abs() < 1e-9);
    assert!(simulated < 0.35, "{simulated} s of 0.95 s were simulated");
}

#[test]
fn the_first_interval_and_the_measured_stretch_are_simulated_whole() {
    let mut server = server(mix(), true);
    server.begin_stretch_at(20 * SECOND);
    assert!((wait(&mut server, 1) - 0.05).abs() < 1e-9);
    assert!(wait(&mut server, 20) < 0.35);
    assert!((wait(&mut server, 30) - 0.5).abs() < 1e-9);
}

#[test]
fn a_knob_that_is_turned_is_simulated_until_its_effect_is_steady() {
    let mut server = server(mix(), true);
    wait(&mut server, 8);
    let known = wait(&mut server, 9);
    assert!((known - 0.0075).abs() < 1e-9, "three chunks, not {known} s");
    let mut plan = Plan::default();
    plan.insert(Knob::Mask(WorkloadId(0)), WayMask::from_bits(0b11));
    server.apply(&plan).expect("a mask");
    assert!(wait(&mut server, 10) > 0.024, "ten chunks at least");
    wait(&mut server, 14);
    // Applying the same mask again changes nothing.
    server.apply(&plan).expect("a mask");
    assert!((wait(&mut server, 15) - 0.0075).abs() < 1e-9);
}

#[test]
fn a_clock_without_a_shortcut_is_never_extrapolated() {
    let mut server = server(scenario("a4-fig3a", ""), true);
    for step in 1..=6 {
        server.wait_until(step * SECOND / 100).expect("it runs");
    }
    assert!((server.simulated_s() - 0.06).abs() < 1e-9);
}

#[test]
fn a_change_of_the_scenario_happens_at_its_time() {
    let mut server =
        server(scenario("a4-fig3a", "time_factor=20;duration_s=30;workload.x-mem.stop_s=10.5"), true);
    wait(&mut server, 10);
    assert_eq!(server.workloads().len(), 2);
    assert!((wait(&mut server, 11) - 0.05).abs() < 1e-9, "an interval with a change is simulated whole");
    assert_eq!(server.workloads().len(), 1);
    assert!(server.simulated_s() < 0.4);
}

#[test]
fn a_program_with_a_schedule_of_its_own_is_never_extrapolated() {
    let mut server = server(scenario("thesis-load-haswell", "time_factor=20;duration_s=30"), true);
    assert!((wait(&mut server, 4) - 0.2).abs() < 1e-9);
}
