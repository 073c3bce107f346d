//! A dry run over the virtual server in process: every kind of knob is answered, and none of the server's is set.

use std::path::Path;
use std::sync::Arc;
use waykeeper_host::{Host, Knob, KnobOutcome, Plan};
use waykeeper_machine::{RunOptions, ScenarioSource, VirtualServer};
use waykeeper_service::dry_run::DryRun;
use waykeeper_silicon::Sampling;
use waykeeper_units::{PortId, WayMask, WorkloadId};

const NIC: PortId = PortId(0);

fn server() -> VirtualServer {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/a4-hpw-heavy.toml");
    let scenario = ScenarioSource::open(&file).and_then(|source| source.read());
    let scenario = Arc::new(scenario.unwrap_or_else(|error| panic!("{error}")));
    let options = RunOptions { seed: 1, sample_seed: 1, sampling: Sampling::DEFAULT };
    VirtualServer::new(scenario, options).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn each_kind_of_knob_reads_back_as_requested_and_the_server_keeps_its_own_values() {
    let mut server = server();
    let before = server.sample().unwrap().knobs;
    let (ring, burst) = (before.rx_ring(NIC).unwrap(), before.rx_burst(NIC).unwrap());
    assert!(ring >= 64 && burst >= 2, "the scenario's ring and burst can be halved");
    let plan = Plan::of_masks([(WorkloadId(0), WayMask::from_bits(0x00c))])
        .with(Knob::DcaWays, WayMask::from_bits(0x700))
        .with(Knob::Dca(NIC), false)
        .with(Knob::RxRing(NIC), ring / 2)
        .with(Knob::RxBurst(NIC), burst / 2);
    let mut dry_run = DryRun::over(server.clone());
    let applied = dry_run.apply(&plan).unwrap();
    assert_eq!(applied.iter().count(), 5);
    for (knob, outcome) in applied.iter() {
        assert_eq!(*outcome, KnobOutcome::Applied, "{knob:?}");
    }
    let shown = dry_run.sample().unwrap().knobs;
    for (knob, setting) in plan.iter() {
        assert_eq!(shown.get(knob), Some(setting), "{knob:?}");
        assert_ne!(before.get(knob), Some(setting), "{knob:?}");
    }
    assert_eq!(server.sample().unwrap().knobs, before);
}

#[test]
fn a_ring_or_burst_that_the_server_would_refuse_is_refused_in_the_same_words() {
    let server = server();
    let array = PortId(server.inventory().ports.len() as u8 - 1);
    let plan = Plan::default()
        .with(Knob::RxRing(NIC), 1_u32)
        .with(Knob::RxBurst(NIC), 1_000_000_u32)
        .with(Knob::RxRing(array), 64_u32);
    let expected = server.clone().apply(&plan).unwrap();
    assert!(expected.iter().all(|(_, outcome)| matches!(outcome, KnobOutcome::Refused(_))), "{expected:?}");
    assert_eq!(DryRun::over(server.clone()).apply(&plan).unwrap(), expected);
    let missing = Plan::default().with(Knob::RxRing(PortId(99)), 64_u32);
    let answer = DryRun::over(server).apply(&missing).unwrap();
    assert_eq!(
        answer[Knob::RxRing(PortId(99))],
        KnobOutcome::Refused("this host has no such port".to_owned())
    );
}
