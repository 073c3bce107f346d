//! NIC features: mixed packets, uneven queues, a read window, warm buffers. Expected rates are computed by hand.

use std::sync::Arc;
use waykeeper_host::Host;
use waykeeper_machine::{Measured, RunOptions, ScenarioError, ScenarioSource, VirtualServer};
use waykeeper_silicon::Sampling;

fn server(text: &str) -> Result<VirtualServer, Box<ScenarioError>> {
    let text =
        format!("name = \"t\"\ntime_factor = 1\nduration_s = 0.03\nwarmup_s = 0\nmeasure_s = 0.015\n{text}");
    let scenario = Arc::new(ScenarioSource::parse("test.toml", &text, None)?.read()?);
    let options = RunOptions { seed: 1, sample_seed: 1, sampling: Sampling::DEFAULT };
    VirtualServer::new(scenario, options).map_err(Box::new)
}

/// A run of 30 ms, of which the last 15 are measured.
fn run(text: &str) -> Measured {
    let mut server = server(text).unwrap_or_else(|error| panic!("{error}"));
    server.wait_until(15_000_000).expect("it runs");
    server.begin_stretch();
    server.wait_until(30_000_000).expect("it runs");
    server.measured()
}

fn forwarder(knobs: &str, nic: &str, workload: &str) -> String {
    format!(
        "[knobs]\n{knobs}\n[[nic]]\nname = \"nic0\"\nflows = 4096\nflow_order = \"random\"\n{nic}\n\
         [[workload]]\nname = \"l2fwd\"\nprogram = \"l2fwd\"\n{workload}\n"
    )
}

fn mpps(measured: &Measured) -> f64 {
    measured.workloads[0].operations_per_s / 1e6
}

#[test]
fn packets_of_a_mix_fill_the_offered_rate() {
    // (84 + 3 x 1024) / 4 = 789 B on the wire: 10 Gb/s are 1.584 Mpps.
    let mix = "packet_mix = [[60, 1], [1000, 3]]\noffered_gbps = 10";
    let rate = mpps(&run(&forwarder("", mix, "cores = 0")));
    assert!((rate - 1.584).abs() < 0.02, "{rate}");
}

#[test]
fn the_busiest_queue_loses_what_the_others_could_take() {
    // 4 Mpps of 60-B packets on four cores that need 1 us each: at most 1 Mpps per core.
    let nic = |more: &str| format!("packet_bytes = 60\noffered_gbps = 2.688\n{more}");
    let cores = "cores = \"0-3\"\ndelay_ns = 850";
    let even = run(&forwarder("", &nic("imbalance = 1"), cores));
    assert!(mpps(&even) > 3.6, "{}", mpps(&even));
    // Three quarters of them on one core, a quarter on the others: 1 + 1 Mpps.
    let uneven = run(&forwarder("", &nic("imbalance = 3"), cores));
    assert!((1.7..2.15).contains(&mpps(&uneven)), "{}", mpps(&uneven));
}

/// DPDK-NT on cores without interruptions by the operating system.
fn receiver(nic: &str, workload: &str) -> String {
    format!(
        "[[nic]]\nname = \"nic0\"\npacket_bytes = 60\n{nic}\n[[workload]]\nname = \"dpdk-nt\"\n\
         program = \"dpdk-nt\"\nstall_us = 0\nclock_cycles = 0\n{workload}\n"
    )
}

#[test]
fn a_burst_outlasts_a_step_of_the_simulation() {
    // A full ring: 64 packets a burst, 20 us a burst and 500 ns a packet are at least 812 ns a packet, and a step of
    // 400 ns ends within each packet.
    let rate = |quantum: u32| {
        let text = receiver("offered_gbps = 10", "cores = 0\nburst_ns = 20000\ndelay_ns = 500");
        mpps(&run(&format!("{text}[model]\nquantum_ns = {quantum}\n")))
    };
    let (fine, usual) = (rate(400), rate(4000));
    assert!((1.15..1.0 / 0.812).contains(&usual), "{usual}");
    assert!((fine / usual - 1.0).abs() < 0.01, "{fine} {usual}");
}

#[test]
fn one_packet_of_a_core_and_time_counts_queues_alike() {
    // 1.9 of 2 Mpps go to a core that needs 1 us per packet: a full ring of 256 packets, 0.24 to 0.28 ms. 0.1 Mpps go
    // to another: an empty ring, 1 us. 12 us are outside.
    let mean = |every_ms: &str| {
        let nic = "offered_gbps = 1.344\nring = 256\nimbalance = 1.9";
        let workload = format!("cores = \"0-1\"\ndelay_ns = 960\nlatency_every_ms = {every_ms}");
        run(&receiver(nic, &workload)).workloads[0].latency_mean_ns.expect("it receives") / 1e3
    };
    // One in eleven of the received packets is from the idle core; of the measured packets, one in two.
    let (every, one) = (mean("0"), mean("0.1"));
    assert!((225.0..285.0).contains(&every), "{every}");
    assert!((0.5..0.7).contains(&(one / every)), "{one} {every}");
}

#[test]
fn a_window_of_reads_makes_memory_slow_what_is_sent() {
    let nic = |window: &str| format!("packet_bytes = 1500\nring = 1024\n{window}");
    let off = "dca_off = [\"nic0\"]";
    let cores = "cores = \"0-3\"";
    // 100 Gb/s of 1524 B are 8.20 Mpps.
    let free = mpps(&run(&forwarder(off, &nic(""), cores)));
    assert!((free - 8.2).abs() < 0.05, "{free}");
    // 25 lines are read per packet, including its descriptor; 23 of them come from memory, which takes 67 ns longer and
    // 3 % more under this load: 550 + 0.92 x 69 = 613 ns for 7400 B: 12.07 B/ns, or 7.54 Mpps of 1600 B.
    let windowed = mpps(&run(&forwarder(off, &nic("read_window = 7400"), cores)));
    assert!((windowed - 7.54).abs() < 0.1, "{windowed}");
    // With reads from the caches the window is no limit: 7400 / 550 = 13.45 B/ns, above the wire's 1600 x 8.2 / 1000 =
    // 13.1.
    let cached = mpps(&run(&forwarder("dca_ways = \"0x7ff\"", &nic("read_window = 7400"), cores)));
    assert!(cached > 8.1, "{cached}");
}

#[test]
fn devices_find_warm_buffers_beyond_their_ways() {
    // 4096 x 24 lines are 6 MiB; DDIO's two ways are 4.5 MiB.
    let nic = |more: &str| format!("packet_bytes = 1500\nring = 4096\noffered_gbps = 20\n{more}");
    let hits = |more: &str| {
        run(&forwarder("", &nic(more), "cores = 0")).system.dca_write_hit_ratio.expect("it writes")
    };
    let (cold, warm) = (hits(""), hits("warm_buffers = true"));
    assert!(cold < 0.7 && warm > 0.95, "{cold} {warm}");
}

#[test]
fn the_cache_of_a_mempool_keeps_the_buffers_in_use_few() {
    // 256 in the RX ring and a few bursts are 0.4 MiB; 65535 are 96 MiB. DDIO's two ways are 4.5 MiB.
    let hits = |mempool: &str| {
        let nic = format!("packet_bytes = 1500\nring = 256\noffered_gbps = 20\n{mempool}");
        run(&forwarder("", &nic, "cores = 0")).system.dca_write_hit_ratio.expect("it writes")
    };
    let (none, cache, ring) = (hits(""), hits("mempool_cache = 256"), hits("mempool_cache = 0"));
    assert!(none > 0.97 && (cache - none).abs() < 0.02, "{none} {cache}");
    assert!(ring < 0.05, "{ring}");
    // 1792, the minimum for this queue, are 2.6 MiB.
    let least = hits("mempool_cache = 0\nmempool_buffers = 1");
    assert!(least > 0.7, "{least}");
}

#[test]
fn bad_keys_are_refused_by_name() {
    let refused = |nic: &str, workload: &str, words: &[&str]| {
        let error = server(&forwarder("", nic, workload)).expect_err("it is refused").to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    };
    let core = "cores = 0";
    refused("packet_mix = [[60]]", core, &["nic[nic0].packet_mix", "pairs of a size"]);
    refused("packet_mix = [[60, 0]]", core, &["packet_mix", "weight"]);
    refused("packet_mix = []", core, &["packet_mix"]);
    refused("packet_mix = [[60, 1]]\npacket_bytes = 60", core, &["packet_bytes", "mix"]);
    refused("imbalance = 2", core, &["nic[nic0].imbalance", "1 to 1"]);
    refused("imbalance = 1", "cores = 0\nshare = 2", &["imbalance", "shares"]);
    refused("mempool_buffers = 100", core, &["mempool_buffers", "mempool_cache"]);
    refused("mempool_cache = 513", core, &["mempool_cache", "0 to 512"]);
    refused("read_window = 100", core, &["read_window", "1 KiB"]);
}
