//! Results for a seed are the same on every machine, and do not change when a change only improves speed.
//!
//! Each case is a short run with a hash over all numbers of its result, to the last bit. A change of the model may
//! change them: the failure prints the new values.

use std::sync::Arc;
use waykeeper_host::Host;
use waykeeper_machine::{Measured, RunOptions, ScenarioSource, VirtualServer};
use waykeeper_silicon::Sampling;

/// A small version of A4's mix: forwarding, storage reads and writes, redis, mixtures, a scan, a confined core.
const MIX: &str = r#"
name = "mix"
duration_s = 0.012
warmup_s = 0.004
measure_s = 0.006
time_factor = 1

[[nic]]
name = "nic0"

[[storage]]
name = "raid0"

[[workload]]
name = "fastclick"
program = "fastclick"
cores = "0-3"

[[workload]]
name = "redis-server"
program = "redis-server"
cores = "4"

[[workload]]
name = "redis-client"
program = "redis-client"
cores = "5"
peer = "redis-server"

[[workload]]
name = "omnetpp"
program = "spec"
cores = "6"
benchmark = "omnetpp"
mask = "0x018"

[[workload]]
name = "ffsb"
program = "ffsb-light"
cores = "7-8"

[[workload]]
name = "scan"
program = "x-mem"
cores = "9"
working_set = "6M"
operation = "write"
"#;

/// Two kinds of packet programs on one NIC with small rings and random flows; storage that bypasses the caches.
const PACKETS: &str = r#"
name = "packets"
duration_s = 0.012
warmup_s = 0.004
measure_s = 0.006
time_factor = 1

[knobs]
dca_ways = "0x700"
dca_off = ["raid0"]

[[nic]]
name = "nic0"
packet_bytes = 1500
ring = 256
flows = 512
flow_order = "random"

[[storage]]
name = "raid0"

[[workload]]
name = "l2fwd"
program = "l2fwd"
cores = "0-1"

[[workload]]
name = "dpdk-t"
program = "dpdk-t"
cores = "2-3"
start_delay_ms = 2
mask = "0x003"

[[workload]]
name = "fio"
program = "fio"
cores = "4"
block = "64K"

[[workload]]
name = "chase"
program = "x-mem"
cores = "5"
working_set = "4M"
pattern = "random"
"#;

/// An inclusive LLC, and packets that cores do not read.
const INCLUSIVE: &str = r#"
name = "inclusive"
chip = "e5-2630v3"
duration_s = 0.012
warmup_s = 0.004
measure_s = 0.006
time_factor = 1

[[nic]]
name = "nic0"
packet_bytes = 64
offered_gbps = 10

[[workload]]
name = "dpdk-nt"
program = "dpdk-nt"
cores = "0-1"

[[workload]]
name = "lbm"
program = "spec"
cores = "2"
benchmark = "lbm"

[[workload]]
name = "scan"
program = "x-mem"
cores = "3"
working_set = "8M"
"#;

/// Two receive paths of the kernel: one whose sender waits for its window, beside a scan, and one that sleeps.
const SOCKETS: &str = r#"
name = "sockets"
duration_s = 0.012
warmup_s = 0.004
measure_s = 0.006
time_factor = 1

[[nic]]
name = "nic0"
packet_bytes = 1500
ring = 256

[[nic]]
name = "nic1"
packet_mix = [[60, 1], [1000, 2]]
offered_gbps = 3
flow_order = "random"

[[workload]]
name = "flooded"
program = "iperf"
cores = "0-1"
nic = "nic0"
window = "1 MiB"

[[workload]]
name = "idle"
program = "iperf"
cores = "2"
nic = "nic1"

[[workload]]
name = "scan"
program = "x-mem"
cores = "3"
working_set = "24M"
"#;

/// Rules other than the defaults use other code of the chip.
const VARIANT: &str = "[model]\nreplacement = \"lru\"\nmlc_held_write = \"inclusive-ways\"\n";

fn run(text: &str, sampling: &str) -> Measured {
    let source = ScenarioSource::parse("golden.toml", text, None).unwrap_or_else(|error| panic!("{error}"));
    let scenario = Arc::new(source.read().unwrap_or_else(|error| panic!("{error}")));
    let sampling: Sampling = sampling.parse().expect("a sampling");
    let mut server = VirtualServer::new(scenario.clone(), RunOptions { seed: 7, sample_seed: 3, sampling })
        .expect("it fits");
    server.wait_until(((scenario.duration_s - scenario.measure_s) * 1e9) as u64).expect("it runs");
    server.begin_stretch();
    server.wait_until((scenario.duration_s * 1e9) as u64).expect("it runs");
    server.measured()
}

/// FNV-1a over the numbers as text; Rust prints a float so that parsing it gives the same bits.
fn hash(measured: &Measured) -> u64 {
    // Of a program without a job file there are no counts of jobs.
    let Measured { seconds, workloads, job_commands: _, drive_busy_ratios, system } = measured;
    let text = format!(
        "Measured {{ seconds: {seconds:?}, workloads: {workloads:?}, drive_busy_ratios: {drive_busy_ratios:?}, \
         system: {system:?} }}"
    );
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, byte| (h ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[test]
fn results_are_the_same_to_the_last_bit() {
    let varied = format!("{PACKETS}{VARIANT}");
    let cases = [
        ("mix", MIX, "exact", 0xc5db_84dd_3b64_ba13),
        ("mix", MIX, "1/32", 0x687a_3599_5089_1e5c),
        ("packets", PACKETS, "exact", 0x6a34_42e8_e157_ee81),
        ("packets", PACKETS, "1/32", 0x22da_c797_a6c9_55f5),
        ("inclusive", INCLUSIVE, "exact", 0x848a_10a9_87c6_934e),
        ("inclusive", INCLUSIVE, "1/32", 0xf83f_55e3_19c2_ff16),
        ("sockets", SOCKETS, "exact", 0x25db_12ba_8fd1_2ebc),
        ("sockets", SOCKETS, "1/32", 0x3a79_1d48_747b_385c),
        ("packets, other rules", &varied, "1/32", 0x7166_59a3_3c3b_53a3),
    ];
    let mut wrong = Vec::new();
    for (name, text, sampling, expected) in cases {
        let got = hash(&run(text, sampling));
        if got != expected {
            wrong.push(format!("{name} at {sampling}: {got:#018x}"));
        }
    }
    assert!(wrong.is_empty(), "results have changed:\n{}", wrong.join("\n"));
}
