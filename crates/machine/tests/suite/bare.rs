//! The bare machine: the same server as behind the seam, with its counters and registers.

use std::sync::Arc;
use waykeeper_host::{Host, Knob, Plan, PortCounter, Reading, SocketCounter, WorkloadCounter};
use waykeeper_machine::{BareMachine, ClassError, RunOptions, Scenario, VirtualServer};
use waykeeper_testbed::{SCENARIO, run_options};
use waykeeper_units::{PortId, WayMask, WorkloadId};

const OPTIONS: fn() -> RunOptions = || run_options(16);

fn scenario(chip: &str) -> Arc<Scenario> {
    waykeeper_testbed::scenario(chip, SCENARIO)
}

fn bare(chip: &str) -> BareMachine {
    BareMachine::new(scenario(chip), OPTIONS()).unwrap()
}

fn mask(bits: u32) -> WayMask {
    WayMask::from_bits(bits)
}

#[test]
fn registers_and_the_seam_count_the_same_for_the_same_knobs() {
    let mut host = VirtualServer::new(scenario("gold-6140"), OPTIONS()).unwrap();
    let mut bare = bare("gold-6140");
    let masks = [(0, 0x600), (1, 0x003), (2, 0x07c)];
    for (workload, bits) in masks {
        bare.set_class_mask(workload + 1, mask(bits)).unwrap();
    }
    for (core, workload) in [(0, 0), (1, 0), (2, 1), (3, 2)] {
        assert!(bare.assign(core, workload + 1, workload + 1));
    }
    let plan = Plan::of_masks(masks.into_iter().map(|(group, bits)| (WorkloadId(group), mask(bits))));
    assert!(host.apply(&plan).unwrap().is_complete());
    for step in 1..=4_u64 {
        if step == 3 {
            let plan = Plan::of_dca([(PortId(1), false)]).with(Knob::DcaWays, mask(0x700));
            assert!(host.apply(&plan).unwrap().is_complete());
            bare.write_dca_register(0x700).unwrap();
            bare.write_port_register(1, 0);
        }
        host.wait_until(step * 20_000_000).unwrap();
        bare.run_until(step * 20_000_000).unwrap();
        let seen = host.sample().unwrap();
        assert_eq!(seen.at_ns, bare.now_ns());
        for (workload, cores) in [(0, 0..2), (1, 2..3), (2, 3..4)] {
            let (group, counts) = (&seen.groups[&WorkloadId(workload)], bare.cores(cores));
            assert_eq!(group[WorkloadCounter::Instructions], Reading::Value(counts.instructions));
            assert_eq!(group[WorkloadCounter::Cycles], Reading::Value(counts.cycles));
            assert_eq!(group[WorkloadCounter::MlcHits], Reading::Value(counts.mlc_hits));
            assert_eq!(group[WorkloadCounter::LlcHits], Reading::Value(counts.llc_hits));
            assert_eq!(group[WorkloadCounter::LlcMisses], Reading::Value(counts.llc_misses));
            let occupancy = bare.occupancy(workload + 1);
            assert_eq!(group[WorkloadCounter::OccupancyBytes], Reading::Value(occupancy));
            assert!(counts.llc_misses > 0 && (workload < 2 || occupancy > 0), "{workload}: {counts:?}");
        }
        let (dca, memory) = (bare.dca(), bare.memory());
        assert_eq!(seen.socket[SocketCounter::DcaWriteHits], Reading::Value(dca.write_hits));
        assert_eq!(seen.socket[SocketCounter::DcaReadMisses], Reading::Value(dca.read_misses));
        assert_eq!(seen.socket[SocketCounter::MemoryWriteBytes], Reading::Value(memory.written));
        assert!(dca.write_misses > 0 && memory.read > 0);
        for port in [0, 1] {
            let bytes = bare.port(port);
            assert_eq!(
                seen.ports[&PortId(port as u8)][PortCounter::InboundBytes],
                Reading::Value(bytes.inbound)
            );
            assert!(bytes.inbound > 0);
        }
    }
    // 100 Gb/s is 12.5 GB/s: in 80 ms of the server's clock, 80 Gb/s are at most 0.8 GB of packets.
    assert!(bare.port(0).inbound > 400_000_000 && bare.port(0).inbound < 850_000_000);
}

#[test]
fn memory_traffic_stays_with_the_rmid_that_caused_it() {
    let mut bare = bare("gold-6140");
    assert!(bare.assign(3, 0, 7));
    bare.run_until(40_000_000).unwrap();
    let scan = bare.memory_of(7);
    assert_eq!(scan, bare.cores(3..4).llc_misses * 64);
    assert!(scan > 0);
    assert!(bare.assign(3, 0, 8));
    bare.run_until(80_000_000).unwrap();
    assert_eq!(bare.memory_of(7), scan, "no workload has RMID 7 any more");
    assert_eq!(bare.memory_of(7) + bare.memory_of(8), bare.cores(3..4).llc_misses * 64);
    assert!(!bare.assign(3, 0, 128) && !bare.assign(3, 16, 0), "16 classes, 128 RMIDs");
    assert_eq!((bare.memory_of(500), bare.occupancy(500)), (0, 0));
}

#[test]
fn a_mask_confines_the_cores_of_its_class_and_those_that_join_it() {
    let mut bare = bare("gold-6140");
    bare.set_class_mask(4, mask(0x001)).unwrap();
    assert!(bare.assign(3, 4, 4));
    bare.run_until(100_000_000).unwrap();
    // One of 11 ways of 24.75 MiB is 2.25 MiB.
    let one_way = (2 << 20) + (1 << 18);
    assert!(bare.occupancy(4) <= one_way, "{}", bare.occupancy(4));
    bare.set_class_mask(4, mask(0x0ff)).unwrap();
    bare.run_until(200_000_000).unwrap();
    assert!(bare.occupancy(4) > one_way, "{}", bare.occupancy(4));
    assert!(bare.set_class_mask(4, mask(0x005)).is_err(), "Intel's masks have no holes");
    assert!(bare.set_class_mask(4, mask(0x800)).is_err());
    let unknown = bare.set_class_mask(16, mask(1));
    assert_eq!(unknown, Err(ClassError::NoSuchClass { class: 16, classes: 16 }));
    // A class without cores refuses the same masks, and a core that joins it has its last good mask.
    bare.set_class_mask(5, mask(0x003)).unwrap();
    assert!(bare.set_class_mask(5, mask(0x005)).is_err() && bare.set_class_mask(5, mask(0)).is_err());
    assert!(bare.assign(3, 5, 4));
    bare.run_until(300_000_000).unwrap();
    assert!(bare.set_class_mask(5, mask(0x800)).is_err(), "now it has a core");
}

#[test]
fn each_generation_has_the_registers_it_has() {
    let mut haswell = bare("e5-2667v3");
    assert_eq!(haswell.dca_register(), Some(0x60000), "what it reads until its first write");
    haswell.write_dca_register(0xc0000).unwrap();
    assert_eq!(haswell.dca_register(), Some(0xc0000));
    assert!(haswell.write_dca_register(1 << 40).is_err());

    let mut ice_lake = bare("gold-5320");
    ice_lake.write_dca_register(0xff0).unwrap();
    assert_eq!(ice_lake.dca_register(), Some(0xff0));
    assert!(!ice_lake.has_port_registers());

    let mut epyc = bare("epyc-9554");
    assert_eq!(epyc.dca_register(), None);
    assert!(epyc.write_dca_register(0x600).is_err());
    epyc.set_class_mask(1, mask(0x8421)).unwrap();
    epyc.set_class_mask(1, mask(0)).unwrap();
    assert!(epyc.assign(3, 1, 1));
    epyc.run_until(20_000_000).unwrap();
    assert!(epyc.cores(3..4).llc_misses > 0);
}

#[test]
fn a_ports_register_sends_its_device_past_the_llc() {
    let mut bare = bare("gold-6140");
    assert_eq!((bare.port_register(0), bare.port_register(1)), (0x80, 0x80));
    bare.run_until(20_000_000).unwrap();
    assert!(bare.dca().write_hits + bare.dca().write_misses > 0);
    bare.write_port_register(0, 0x08);
    bare.write_port_register(1, 0x00);
    assert_eq!((bare.port_register(0), bare.port_is_on(0)), (0x08, false));
    let before = bare.dca();
    let bytes = bare.port(0).inbound;
    bare.run_until(40_000_000).unwrap();
    let after = bare.dca();
    let writes = (after.write_hits, after.write_misses);
    assert_eq!(writes, (before.write_hits, before.write_misses));
    assert!(bare.port(0).inbound > bytes);
}
