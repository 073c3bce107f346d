//! Evictions on the whole machine: each contention of microarchitecture.md 4 has its evictor and its victim.
//!
//! On the scenario of A4 Fig. 3b, shortened: four DPDK-T cores with full rings beside X-Mem. Counts of single evictions
//! are tested with the chip.

use crate::common;

use Agent::{Device, Workload};
use common::scenario;
use std::sync::Arc;
use waykeeper_host::Host;
use waykeeper_machine::{Agent, EvictionRate, Measured, RunOptions, VirtualServer};
use waykeeper_silicon::{EvictionReason, Sampling};

const DPDK: Agent = Workload(0);
const XMEM: Agent = Workload(1);
const NIC: Agent = Device(0);

/// 50 ms, of which the last 20 are measured, with X-Mem in these ways and DPDK-T in 0x030.
fn run(xmem: &str, more: &str) -> (Vec<EvictionRate>, Measured) {
    let short = "duration_s=0.05;warmup_s=0.03;measure_s=0.02;interval_s=0.01;sweep=[]";
    let scenario = scenario("a4-fig3b", &format!("{short};workload.x-mem.mask=\"{xmem}\";{more}"));
    let options = RunOptions { seed: 1, sample_seed: 1, sampling: Sampling::DEFAULT };
    let mut server = VirtualServer::new(Arc::new(scenario), options).expect("it fits");
    server.wait_until(30_000_000).expect("it runs");
    server.begin_stretch();
    server.wait_until(50_000_000).expect("it runs");
    (server.evictions(), server.measured())
}

/// Lines of `of` that `by` evicts per second, for these reasons.
fn lines(seen: &[EvictionRate], by: Agent, of: Agent, reasons: &[EvictionReason]) -> f64 {
    let pair = seen.iter().filter(|rate| (rate.by, rate.of) == (by, of) && reasons.contains(&rate.reason));
    pair.map(|rate| rate.lines_per_s).sum()
}

/// Lines of X-Mem that others evict, per second.
fn lost_by_xmem(seen: &[EvictionRate]) -> f64 {
    let others = seen.iter().filter(|rate| rate.of == XMEM && rate.by != XMEM);
    others.map(|rate| rate.lines_per_s).sum()
}

#[test]
fn lines_in_the_dca_ways_are_evicted_by_the_nic_and_lines_in_other_ways_are_not() {
    let (seen, _) = run("0x600", "");
    let by_nic = lines(&seen, NIC, XMEM, &[EvictionReason::DeviceWrite]);
    assert!(by_nic > 1e6, "{by_nic} lines/s: {seen:?}");
    assert!(by_nic > 0.99 * lost_by_xmem(&seen), "DPDK-T has no way in common with X-Mem: {seen:?}");
    // X-Mem's MLC victims also evict packets there, many of them unread.
    let of_nic = seen.iter().filter(|rate| (rate.by, rate.of) == (XMEM, NIC));
    assert!(of_nic.map(|rate| rate.unread_lines_per_s).sum::<f64>() > 1e6, "{seen:?}");

    // Disjoint from the DCA ways 0x600, from DPDK-T's 0x030 and from the inclusive ways 0x003.
    let (seen, _) = run("0x0c0", "");
    assert_eq!(lost_by_xmem(&seen), 0.0, "{seen:?}");
    assert!(lines(&seen, XMEM, XMEM, &[EvictionReason::MlcVictim]) > 1e6, "{seen:?}");
}

#[test]
fn dma_bloat_is_evicted_by_the_cores_that_read_the_packets() {
    let (seen, _) = run("0x030", "");
    let bloat = lines(&seen, DPDK, XMEM, &[EvictionReason::MlcVictim, EvictionReason::DirectoryVictim]);
    assert!(bloat > 1e6 && bloat > 0.99 * lost_by_xmem(&seen), "{bloat} lines/s: {seen:?}");
}

#[test]
fn copies_of_packets_evict_lines_in_the_inclusive_ways() {
    let (seen, _) = run("0x003", "");
    assert!(lines(&seen, DPDK, XMEM, &[EvictionReason::MigratedCopy]) > 1e5, "{seen:?}");
    assert_eq!(lines(&seen, NIC, XMEM, &[EvictionReason::DeviceWrite]), 0.0);
}

#[test]
fn unread_lines_are_the_dma_leak() {
    // Full rings of 4 x 2048 packets in the two DCA ways leak; rings of 64 fit.
    for (ring, leaks) in [("2048", true), ("64", false)] {
        let (seen, measured) = run("0x0c0", &format!("nic.nic0.ring={ring}"));
        let unread: f64 = seen.iter().map(|rate| rate.unread_lines_per_s).sum();
        let leak = measured.system.dma_leak_lines_per_s;
        assert!((unread - leak).abs() <= 1e-9 * leak, "{unread} and {leak}");
        assert_eq!(leak > 1e6, leaks, "ring {ring}: {leak} lines/s");
        assert!(seen.iter().all(|rate| rate.unread_lines_per_s == 0.0 || rate.of == NIC), "{seen:?}");
    }
}
