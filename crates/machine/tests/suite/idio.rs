//! IDIO on the whole machine: NIC, classifier, controller and cores together.
//!
//! On the scenario of IDIO Fig. 3, shortened. Single rules have unit tests.

use crate::common;

use common::scenario;
use std::sync::Arc;
use waykeeper_host::Host;
use waykeeper_machine::{Measured, RunOptions, Scenario, ScenarioSource, VirtualServer, WriteBacks};
use waykeeper_silicon::Sampling;

/// The last 12 of 20 ms: twelve epochs, longer than the hold time of DRAM.
fn run(sets: &str) -> (Measured, WriteBacks) {
    run_scenario(scenario("idio-fig3", &format!("duration_s=0.02;warmup_s=0.008;measure_s=0.012;{sets}")))
}

fn run_scenario(scenario: Scenario) -> (Measured, WriteBacks) {
    let options = RunOptions { seed: 1, sample_seed: 1, sampling: Sampling::one_in(8).unwrap() };
    let mut server = VirtualServer::new(Arc::new(scenario), options).expect("it fits");
    server.wait_until(8_000_000).expect("it runs");
    server.begin_stretch();
    server.wait_until(20_000_000).expect("it runs");
    (server.measured(), server.write_backs())
}

/// A network function with packet size, Gb/s and placement.
fn nf(program: &str, bytes: u32, gbps: f64, placement: &str) -> (Measured, WriteBacks) {
    run(&format!(
        "workload.nf.program=\"{program}\";nic.nic0.packet_bytes={bytes};nic.nic0.offered_gbps={gbps:?};\
         nic.nic0.placement=\"{placement}\""
    ))
}

fn p99_us(measured: &Measured) -> f64 {
    measured.workloads[0].latency_p99_ns.unwrap() / 1e3
}

#[test]
fn static_llc_is_ddio_to_the_last_bit() {
    // algorithms.md 4.5: static LLC = DDIO.
    for program in ["ipf", "dpizrx"] {
        assert_eq!(nf(program, 256, 20.0, "ddio"), nf(program, 256, 20.0, "llc"));
    }
}

#[test]
fn mlc_and_idio_lower_tail_latency_near_the_knee() {
    // IDIO s4: MLC and IDIO reduce tail latency; DDIO hardly does.
    let p99 = |placement| p99_us(&nf("dpizrx", 256, 32.0, placement).0);
    let [llc, mlc, idio] = ["llc", "mlc", "idio"].map(p99);
    assert!(mlc < 0.7 * llc && idio < 0.7 * llc, "llc {llc}, mlc {mlc}, idio {idio}");
    assert!((idio / mlc - 1.0).abs() < 0.1, "idio {idio}, mlc {mlc}");
}

#[test]
fn a_function_that_uses_all_payload_ends_in_mlc_and_finds_it_there() {
    let hits = |placement| nf("dpizrx", 256, 20.0, placement).0.workloads[0].mlc_hit_ratio.unwrap();
    let [llc, mlc, idio] = ["llc", "mlc", "idio"].map(hits);
    assert!(idio > llc + 0.2 && (idio - mlc).abs() < 0.02, "llc {llc}, mlc {mlc}, idio {idio}");
}

#[test]
fn a_function_that_uses_headers_alone_ends_in_dram_and_the_llc_writes_less_back() {
    // algorithms.md 4.4: such a function ends in DRAM or LLC. With 1 KiB packets, a ring of 1024 is four times the DCA
    // ways.
    let (_, llc) = nf("ipfzrx", 1024, 20.0, "llc");
    let (idio, less) = nf("ipfzrx", 1024, 20.0, "idio");
    assert!(less.llc_lines_per_s < 0.2 * llc.llc_lines_per_s, "{less:?} {llc:?}");
    // 20 Gb/s of 1024 + 24 bytes: 2.385 Mpps, with 15 lines of 64 bytes each to memory: 2.29 GB/s; less in the one
    // epoch of eleven that tries the LLC.
    let written = idio.system.memory_write_bytes_per_s / 1e9;
    assert!((1.9..2.5).contains(&written), "{written}");
}

#[test]
fn critical_packets_stay_in_the_caches_where_batch_packets_go_to_memory() {
    // Rings of 256 x 256 B are smaller than the DCA ways: lines that are not sent to memory are overwritten before they
    // are evicted.
    let written = |sets: &str| {
        let base = "workload.nf.program=\"ipfzrx\";nic.nic0.offered_gbps=20.0;\
                    nic.nic0.ring=256;nic.nic0.placement=\"idio\"";
        run(&format!("{base};{sets}")).0.system.memory_write_bytes_per_s / 1e9
    };
    let [batch, critical, other] =
        ["nic.nic0.dscp=0", "nic.nic0.dscp=46", "nic.nic0.dscp=46;nic.nic0.critical_dscp=[10]"].map(written);
    // 20 Gb/s of 256 + 24 bytes: 8.93 Mpps with 3 payload lines: 1.71 GB/s.
    assert!((1.4..1.8).contains(&batch) && critical < 0.25 * batch, "{batch} {critical}");
    assert!((other / batch - 1.0).abs() < 0.05, "{other} {batch}");
}

#[test]
fn self_invalidating_buffers_write_next_to_nothing_back() {
    // algorithms.md 4.6; 1 KiB packets cycle through more buffers than the MLCs hold.
    let base = "workload.nf.program=\"dpizrx\";nic.nic0.packet_bytes=1024;nic.nic0.offered_gbps=20.0;\
                nic.nic0.placement=\"idio\"";
    let (kept, with) = run(base);
    let (dropped, without) = run(&format!("{base};nic.nic0.self_invalidate=true"));
    assert!(with.mlc_lines_per_s > 1e7, "{with:?}");
    assert!(without.mlc_lines_per_s < 0.05 * with.mlc_lines_per_s, "{without:?} {with:?}");
    let written = |measured: &Measured| measured.system.memory_write_bytes_per_s;
    assert!(written(&dropped) < 0.05 * written(&kept), "{} {}", written(&dropped), written(&kept));
}

#[test]
fn static_dram_keeps_packets_out_of_the_caches() {
    let (measured, _) = nf("dpizrx", 256, 10.0, "dram");
    // 10 Gb/s of 280 bytes: 4.464 Mpps x 4 lines of 64 bytes = 1.143 GB/s written, and read again by the core.
    let (written, read) =
        (measured.system.memory_write_bytes_per_s / 1e9, measured.system.memory_read_bytes_per_s / 1e9);
    assert!((written / 1.143 - 1.0).abs() < 0.05 && (read / 1.143 - 1.0).abs() < 0.05, "{written} {read}");
}

/// A pcap of one IPv4 packet of 256 bytes with this DSCP.
fn pcap(dscp: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1, 0, 0, 256, 256] {
        bytes.extend(word.to_le_bytes());
    }
    let mut packet = [0u8; 256];
    packet[12..14].copy_from_slice(&[0x08, 0x00]); // Ethernet: IPv4 follows
    packet[14..24].copy_from_slice(&[0x45, dscp << 2, 0, 242, 0, 0, 0, 0, 64, 17]); // UDP
    packet[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend(packet);
    bytes
}

#[test]
fn a_captured_packets_ip_header_says_whether_it_is_critical() {
    let text = r#"
        name = "captured"
        chip = "idio"
        duration_s = 0.02
        warmup_s = 0.008
        measure_s = 0.012
        time_factor = 1
        [[nic]]
        name = "nic0"
        ring = 256
        capture = "one.pcap"
        offered_gbps = 10
        placement = "idio"
        [[workload]]
        name = "nf"
        program = "ipfzrx"
        cores = 0
    "#;
    let written = |dscp: u8| {
        let folder = std::env::temp_dir().join(format!("waykeeper-dscp-{}-{dscp}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("one.pcap"), pcap(dscp)).unwrap();
        let source = ScenarioSource::parse("captured.toml", text, Some(folder.clone())).unwrap();
        let scenario = source.read().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        run_scenario(scenario).0.system.memory_write_bytes_per_s / 1e9
    };
    // 10 Gb/s of 256 + 24 bytes: 4.46 Mpps with 3 payload lines: 0.857 GB/s.
    let [batch, critical] = [0, 46].map(written);
    assert!((0.7..0.9).contains(&batch) && critical < 0.25 * batch, "{batch} {critical}");
}

#[test]
fn a_full_ring_keeps_idio_out_of_the_mlc_and_a_gentle_start_does_not() {
    // DPIz sustains 35 Gb/s from the LLC and 45 from the MLC. With 42 from the start, the ring fills in the first epoch
    // in the LLC. Then pushed packets wait behind 1024 packets of 3 payload lines each, untouched lines exceed 10 % of
    // the MLC before the core reaches them, and the status becomes LLC again (s3.5), in every epoch.
    let drops = |first: f64| {
        let phases =
            format!("nic.nic0.phase=[{{at_s=0,offered_part={first:?}}},{{at_s=0.003,offered_part=1}}]");
        let base = "workload.nf.program=\"dpiz\";nic.nic0.offered_gbps=42.0;nic.nic0.placement=\"idio\"";
        run(&format!("{base};{phases}")).0.system.drops_per_s
    };
    assert!(drops(1.0) > 1e6 && drops(0.5) == 0.0, "{} {}", drops(1.0), drops(0.5));
}
