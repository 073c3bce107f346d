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
fn a_fast_nic_has_a_fast_link() {
    // 1000 B and 24 of overhead: at 400 Gb/s 48.8 Mpps. A packet is 16 lines and a completion, so 14 GB/s carry 12.87
    // Mpps and 56 GB/s 51.5; twelve polling cores, which read headers only, take both.
    let nic = |more: &str| format!("gbps = 400\npacket_bytes = 1000\nring = 512\n{more}");
    let rate = |more: &str| mpps(&run(&forwarder("", &nic(more), "cores = \"0-11\"")));
    let (narrow, usual) = (rate("link_gb_per_s = 14"), rate(""));
    assert!((narrow - 12.87).abs() < 0.15, "{narrow}");
    assert!(usual > 45.0, "{usual}");
}

#[test]
fn colours_keep_a_ring_in_the_dca_ways() {
    // 1024 x 24 lines are 1.5 MiB, a third of what two ways hold: 0.67 lines in a set on average. Frames at random places
    // give some sets three and more; of buffers in the order of their addresses, 37 lines apart, no set gets more than one.
    let hits = |pages: &str| {
        let rules = "[model]\nslice_hash = \"rounds\"";
        let nic =
            format!("packet_bytes = 1500\nring = 1024\noffered_gbps = 20\npages = \"{pages}\"\n{rules}");
        run(&forwarder("", &nic, "cores = 0")).system.dca_write_hit_ratio.expect("it writes")
    };
    let [small, huge, coloured] = ["small", "huge", "coloured"].map(hits);
    assert!(small < 0.97 && huge > small + 0.02 && coloured > 0.99, "{small} {huge} {coloured}");
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

/// A pcap of packets of this length, of which 60 bytes were captured, 100 us apart.
fn capture_of(bytes: u32, count: u32) -> Vec<u8> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    let mut file = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1]);
    for packet in 0..count {
        file.extend(words(&[0, packet * 100, 60, bytes]));
        file.extend([0; 12]);
        file.extend([0x08, 0x00, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 1, 1]);
        file.extend([0; 26]);
    }
    file
}

#[test]
fn jumbo_frames_arrive_whole() {
    // 9038 B on the wire: 10 Gb/s are 0.1383 Mpps of 9014 bytes; each takes five of the ring's descriptors.
    let jumbo = "mtu = 9000\npacket_bytes = 9014\noffered_gbps = 10";
    for program in ["dpdk-t", "l2fwd", "dpi", "iperf"] {
        let measured = run(&forwarder("", jumbo, "cores = 0")
            .replace("program = \"l2fwd\"", &format!("program = \"{program}\"")));
        let own = &measured.workloads[0];
        assert!((mpps(&measured) - 0.1383).abs() < 0.002, "{program}: {}", mpps(&measured));
        let bytes = own.bytes_per_s / own.operations_per_s;
        assert!((bytes / 9014.0 - 1.0).abs() < 0.001, "{program}: {bytes}");
        assert_eq!(own.dropped_per_s, 0.0, "{program}");
    }
    // 32 descriptors hold six of them. A worker that needs 14.5 us a packet, twice the 7.2 between two, loses half.
    let few = run(&forwarder("", &format!("ring = 32\n{jumbo}"), "cores = 0\ndelay_ns = 14462"));
    assert!((mpps(&few) - 0.0691).abs() < 0.002 && few.workloads[0].dropped_per_s > 6e4, "{}", mpps(&few));
    // A mix of both sizes.
    let mix =
        run(&forwarder("", "mtu = 9000\npacket_mix = [[976, 1], [8976, 1]]\noffered_gbps = 8", "cores = 0"));
    assert!((mpps(&mix) - 0.2).abs() < 0.01, "{}", mpps(&mix));
}

#[test]
fn an_mtu_without_jumbo_frames_changes_nothing() {
    let with = |mtu: &str| {
        run(&forwarder("", &format!("{mtu}packet_bytes = 1024\noffered_gbps = 40"), "cores = \"0-1\""))
    };
    assert_eq!(format!("{:?}", with("")), format!("{:?}", with("mtu = 9000\n")));
}

#[test]
fn a_packet_beyond_the_mtu_is_refused_or_split() {
    let refused = |nic: &str, program: &str| {
        let text = forwarder("", nic, "cores = 0")
            .replace("program = \"l2fwd\"", &format!("program = \"{program}\""));
        server(&text).err().map_or_else(|| panic!("{nic} should be refused"), |error| error.to_string())
    };
    let said = refused("packet_bytes = 9014", "l2fwd");
    assert!(
        said.contains(
            "`nic[nic0].packet_bytes` is 9014; it must be from 60 to 2048, or `mtu` of the NIC at least 9000"
        ),
        "{said}"
    );
    assert!(refused("mtu = 9000\npacket_bytes = 9015", "l2fwd").contains("from 60 to 9014"));
    assert!(refused("mtu = 1500\npacket_bytes = 2000", "l2fwd").contains("from 60 to 1514"));
    assert!(refused("packet_mix = [[9014, 1]]", "l2fwd").contains("a size from 60 to 2048"));
    assert!(refused("mtu = 9217", "l2fwd").contains("a whole number from 576 to 9216"));
    let switch = refused("mtu = 9000\npacket_bytes = 9014", "vswitch");
    assert!(switch.contains("packets have at most 2048 bytes, and `nic0` has 9014"), "{switch}");

    let folder = tempfile::tempdir().unwrap();
    let packets = |bytes: u32, keys: &str| {
        std::fs::write(folder.path().join("c.pcap"), capture_of(bytes, 3)).unwrap();
        let text = format!(
            "name = \"t\"\n[[nic]]\nname = \"nic0\"\ncapture = \"c.pcap\"\n{keys}\n\
             [[workload]]\nname = \"w\"\nprogram = \"l2fwd\"\ncores = 0\n"
        );
        let source = ScenarioSource::parse("test.toml", &text, Some(folder.path().to_owned())).unwrap();
        let scenario = source.read().unwrap();
        let waykeeper_machine::TrafficSpec::Capture { capture, .. } = &scenario.nics[0].traffic else {
            panic!()
        };
        let bytes: Vec<u32> = capture.packets.iter().map(|packet| packet.bytes).collect();
        (bytes, capture.merged)
    };
    assert_eq!(packets(9014, "mtu = 9000"), (vec![9014; 3], 0));
    let (parts, merged) = packets(9014, "");
    assert_eq!((parts.len(), parts[0], parts[5], merged), (18, 1514, 1444, 3));
    // A super-packet of 40000 bytes at an MTU of 9000: four of 9014 and the rest.
    let (parts, merged) = packets(40_000, "mtu = 9000");
    assert_eq!((parts.len(), &parts[..5], merged), (15, &[9014, 9014, 9014, 9014, 3944][..], 3));
}
