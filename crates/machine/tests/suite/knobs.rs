//! The virtual server's knobs: values are accepted, refused or ignored as by real registers, read back, and have an
//! effect.

use std::sync::Arc;
use waykeeper_host::{Host, Knob, KnobOutcome, Plan, Support};
use waykeeper_machine::{RunOptions, ScenarioSource, VirtualServer};
use waykeeper_silicon::Sampling;
use waykeeper_units::{PortId, WayMask};

const NIC: PortId = PortId(0);
const SSD: PortId = PortId(1);

/// A forwarder with 4096 descriptors at full rate (ddio-bench Fig. 5), and a storage array.
fn scenario(chip: &str, more: &str) -> String {
    format!(
        r#"
name = "knobs"
chip = "{chip}"
duration_s = 0.06
warmup_s = 0.02
measure_s = 0.01
time_factor = 1

[[nic]]
name = "nic0"
ring = 4096
offered_gbps = 98.5
flows = 4096
flow_order = "random"
{more}

[[storage]]
name = "raid0"

[[workload]]
name = "l2fwd"
program = "l2fwd"
cores = "0"

[[workload]]
name = "fio"
program = "fio"
cores = "1"
block = "4K"
"#
    )
}

fn server(chip: &str, more: &str) -> VirtualServer {
    let size = if more.contains("packet_bytes") { "" } else { "packet_bytes = 1024\n" };
    let text = scenario(chip, &format!("{size}{more}"));
    let source = ScenarioSource::parse("knobs", &text, None).unwrap_or_else(|error| panic!("{error}"));
    let read = source.read().unwrap_or_else(|error| panic!("{error}"));
    let options = RunOptions { seed: 1, sample_seed: 1, sampling: Sampling::one_in(8).unwrap() };
    VirtualServer::new(Arc::new(read), options).unwrap()
}

fn ways(bits: u32) -> Plan {
    Plan::from([(Knob::DcaWays, WayMask::from_bits(bits))])
}

fn ring(port: PortId, descriptors: u32) -> Plan {
    Plan::from([(Knob::RxRing(port), descriptors)])
}

/// Outcome of a write to IIO_LLC_WAYS, and the value that is read back.
fn write(server: &mut VirtualServer, bits: u32) -> (KnobOutcome, Option<u32>) {
    let outcome = server.apply(&ways(bits)).unwrap()[Knob::DcaWays].clone();
    (outcome, server.sample().unwrap().knobs.dca_ways().map(WayMask::bits))
}

/// DCA write hit ratio of the NIC and array, and packets per second, over 10 ms after 20 ms under a plan.
///
/// The ratio is absent if nothing was written into the LLC.
fn under(plan: &Plan) -> (Option<f64>, f64) {
    let server = server("gold-6140", "");
    measure(server, plan)
}

fn measure(mut server: VirtualServer, plan: &Plan) -> (Option<f64>, f64) {
    assert!(server.apply(plan).unwrap().is_complete());
    server.wait_until(20_000_000).unwrap();
    server.begin_stretch();
    server.wait_until(30_000_000).unwrap();
    let measured = server.measured();
    (measured.system.dca_write_hit_ratio, measured.workloads[0].operations_per_s)
}

#[test]
fn skylakes_register_takes_grows_ignores_and_refuses() {
    let mut server = server("gold-6140", "");
    assert_eq!(write(&mut server, 0x7c0), (KnobOutcome::Applied, Some(0x7c0)));
    assert_eq!(write(&mut server, 0x003), (KnobOutcome::ReadsBack("0x7c0".to_owned()), Some(0x7c0)));
    let (outcome, after) = write(&mut server, 0x680);
    assert!(matches!(outcome, KnobOutcome::Refused(why) if why.contains("holes")));
    assert_eq!(after, Some(0x7c0));
    assert_eq!(write(&mut server, 0x600), (KnobOutcome::Applied, Some(0x600)));
}

#[test]
fn haswell_is_free_and_a_chip_without_dca_has_no_register_at_all() {
    let mut haswell = server("e5-2667v3", "");
    assert_eq!(write(&mut haswell, 0x60001), (KnobOutcome::Applied, Some(0x60001)));
    assert!(matches!(write(&mut haswell, 0x00003), (KnobOutcome::Refused(_), Some(0x60001))));
    haswell.wait_until(1_000_000).unwrap();
    let mut sandy = server("e3-1230", "");
    assert!(matches!(sandy.inventory().dca_ways_switch, Support::No(_)));
    let (outcome, after) = write(&mut sandy, 0x600);
    assert!(matches!(outcome, KnobOutcome::Refused(why) if why.contains("no DCA")));
    assert_eq!(after, None);
}

#[test]
fn dca_is_switched_per_port_and_never_on_for_a_device_on_another_socket() {
    let off = |port| Plan::of_dca([(port, false)]);
    let mut server = server("gold-6140", "");
    assert!(server.apply(&off(SSD)).unwrap().is_complete());
    let knobs = server.sample().unwrap().knobs;
    assert_eq!([knobs.dca(NIC).unwrap(), knobs.dca(SSD).unwrap()], [true, false]);
    let mut far = remote();
    let outcome = far.apply(&Plan::of_dca([(NIC, true)])).unwrap()[Knob::Dca(NIC)].clone();
    assert!(matches!(outcome, KnobOutcome::Refused(why) if why.contains("another socket")));
    assert!(!far.sample().unwrap().knobs.dca(NIC).unwrap());
    // With DCA off no line of either device stays in the LLC: packets and blocks are written to memory.
    let both = Plan::of_dca([(NIC, false), (SSD, false)]);
    assert!(under(&Plan::default()).0.is_some());
    assert_eq!(under(&both).0, None);
}

fn remote() -> VirtualServer {
    server("gold-6140", "remote = true")
}

#[test]
fn more_dca_ways_and_smaller_rings_both_make_writes_hit() {
    let hits = |plan: &Plan| under(plan).0.unwrap();
    let (two, six) = (hits(&Plan::default()), hits(&ways(0x7e0)));
    assert!(six > two + 0.1, "ddio-bench Fig. 5: {two} with two ways, {six} with six");
    let (small, rate) = under(&ring(NIC, 256));
    let small = small.unwrap();
    assert!(small > two + 0.1, "{two} with 4096 descriptors, {small} with 256");
    assert!(rate > 1e6, "{rate} packets per second");
}

#[test]
fn rings_and_bursts_read_back_and_take_only_what_the_inventory_says() {
    let mut server = server("gold-6140", "");
    let dial = server.inventory().ports[0].rx_ring.clone();
    assert_eq!((dial.switch, dial.low, dial.high), (Support::Yes, 32, 4096));
    assert!(matches!(server.inventory().ports[1].rx_ring.switch, Support::No(_)));
    let mut outcome = |plan: &Plan, port| {
        let applied = server.apply(plan).unwrap();
        let outcome = applied.get(Knob::RxRing(port)).or(applied.get(Knob::RxBurst(port))).unwrap().clone();
        let knobs = server.sample().unwrap().knobs;
        (outcome, knobs.rx_ring(NIC).unwrap(), knobs.rx_burst(NIC).unwrap())
    };
    assert_eq!(outcome(&ring(NIC, 512), NIC), (KnobOutcome::Applied, 512, 512));
    for bad in [16, 768, 8192] {
        let (said, after, _) = outcome(&ring(NIC, bad), NIC);
        assert!(matches!(said, KnobOutcome::Refused(_)), "{bad}");
        assert_eq!(after, 512);
    }
    assert!(matches!(outcome(&ring(SSD, 512), SSD).0, KnobOutcome::Refused(why) if why.contains("no NIC")));
    let burst = |packets| Plan::from([(Knob::RxBurst(NIC), packets)]);
    assert_eq!(outcome(&burst(8), NIC), (KnobOutcome::Applied, 512, 8));
    assert!(matches!(outcome(&burst(0), NIC).0, KnobOutcome::Refused(_)));
}

#[test]
fn a_burst_of_one_costs_a_poll_per_packet() {
    // With one-line packets the worker is the limit, not the link. l2fwd needs 40 ns per poll, for up to 32 packets.
    let small = || server("gold-6140", "packet_bytes = 64");
    let (_, full) = measure(small(), &Plan::default());
    let (_, one) = measure(small(), &Plan::from([(Knob::RxBurst(NIC), 1)]));
    let per_packet_ns = 1e9 / one - 1e9 / full;
    assert!((per_packet_ns - 40.0 * 31.0 / 32.0).abs() < 4.0, "{per_packet_ns} ns more a packet");
}
