//! Recorded machines, read by every module that reads hardware: each result is a snapshot, and two sources of one fact
//! must agree. The recordings are in `tests/fixtures`.

pub mod cpuid;
pub mod machine;
mod wrong;

use cpuid::Facts;
use machine::Machine;
use std::fmt::Write;
use waykeeper_generations::{Generation, Pmu, Terms};
use waykeeper_kernel::cpuinfo::Cpuinfo;
use waykeeper_kernel::event_source::{self, CounterUnit};
use waykeeper_kernel::pci::{PciConfigSpace, PciTree, Writable};
use waykeeper_kernel::topology::Topology;

fn generation(machine: &Machine) -> Option<&'static Generation> {
    Generation::find(&Cpuinfo::read(&machine.root).unwrap().signature?)
}

fn reported(machine: &Machine) -> String {
    let mut out = String::new();
    let root = &machine.root;
    writeln!(out, "{}", machine.fixture.about).unwrap();
    let info = Cpuinfo::read(root).unwrap();
    let generation = generation(machine);
    let signature = info.signature.map_or("unknown CPU".to_owned(), |signature| signature.to_string());
    writeln!(out, "{signature}, {} CPUs online, {:?}", info.cpus, info.brand).unwrap();
    let code = generation.and_then(|found| Some((found.id.as_str(), found.code(&info.signature?)?)));
    writeln!(out, "generation {code:?}").unwrap();
    let features = ["cat_l3", "cdp_l3", "cat_l2", "mba", "cqm_llc", "cqm_mbm_total", "rdt_a", "hypervisor"];
    let shown: Vec<&str> = features.into_iter().filter(|flag| info.has(flag)).collect();
    writeln!(out, "flags {}", shown.join(" ")).unwrap();
    writeln!(out, "cpuid {:#?}", Facts::decode(&machine.leaves())).unwrap();
    let topology = Topology::read(root).unwrap();
    writeln!(out, "topology").unwrap();
    for socket in topology.sockets() {
        let cpus = topology.cpus_of(socket);
        let reader = topology.reader_of(socket);
        writeln!(
            out,
            "  socket {socket}: {} cores, CPUs {cpus}, read through {reader:?}",
            topology.cores_of(socket)
        )
        .unwrap();
    }
    let offline: Vec<u16> = topology.offline().map(|cpu| cpu.0).collect();
    let siblings = topology.online().any(|(_, place)| place.siblings.len() > 1);
    writeln!(out, "  offline {offline:?}, siblings {siblings}").unwrap();
    for l3 in &topology.l3 {
        let (id, ways, cpus) = (l3.id, l3.ways, &l3.cpus);
        writeln!(out, "  L3 {id:?}: {} bytes, {ways:?} ways, CPUs {cpus}, {} nodes", l3.bytes, l3.clusters())
            .unwrap();
    }
    pci(&mut out, machine, generation);
    for name in event_source::names(root).unwrap() {
        let unit = CounterUnit::read(root, &name).unwrap().unwrap();
        let mask = unit.cpumask.as_ref().map(ToString::to_string);
        writeln!(
            out,
            "unit {name}: type {}, CPUs {mask:?}, buses {:?}",
            unit.kind,
            unit.die_buses(root).unwrap()
        )
        .unwrap();
        let events = root.list(format!("/sys/bus/event_source/devices/{name}/events")).unwrap_or_default();
        for event in events.into_iter().filter(|event| !event.contains('.')) {
            let named = unit.event(root, &event).unwrap().unwrap();
            let words = unit.encode(&named.terms).unwrap();
            writeln!(
                out,
                "  {event}: {} = {:#x}, scale {:?} {:?}",
                named.terms, words.config[0], named.scale, named.unit
            )
            .unwrap();
        }
    }
    out
}

fn pci(out: &mut String, machine: &Machine, generation: Option<&Generation>) {
    let root = &machine.root;
    let tree = PciTree::read(root).unwrap();
    for device in tree.devices() {
        let port = match tree.root_port(root, device.address) {
            Ok(port) => format!("behind {port}"),
            Err(error) => error.to_string(),
        };
        let (vendor, id, class) = (device.vendor, device.device, device.class);
        writeln!(
            out,
            "pci {} {vendor:04x}:{id:04x} class {class:06x} node {:?} driver {:?} {:?}: {port}",
            device.address, device.node, device.driver, device.names
        )
        .unwrap();
        if device.is_bridge() {
            let behind: Vec<String> = match tree.behind(root, device.address) {
                Ok(behind) => behind.iter().map(|device| device.address.to_string()).collect(),
                Err(error) => vec![error.to_string()],
            };
            let config = PciConfigSpace::open(root, device.address).unwrap();
            let register = match config.check_register(0x180) {
                Ok(()) => format!("0x180 is a register: {:#x}", config.dword(0x180).unwrap()),
                Err(error) => error.to_string(),
            };
            let switch = generation.and_then(Writable::dca_switch).is_some();
            writeln!(out, "  over {}; {register}; may be switched: {switch}", behind.join(" ")).unwrap();
        }
    }
}

/// All checks use one tree per machine: most of the time is spent on making thousands of small files.
#[test]
fn recorded_machines() {
    let names = Machine::names();
    assert!(names.len() >= 8, "the recordings were not found");
    let mut compared = 0;
    for name in names {
        let machine = Machine::recorded(&name);
        assert!(machine.fixture.made_from.contains("hardware.md "), "{name}: says not what it is made from");
        let found = generation(&machine).map(|generation| generation.id.clone());
        assert_eq!(found, machine.fixture.generation, "{name}");
        cpuid_and_the_kernel_agree(&name, &machine);
        compared += format_files_and_tables_make_the_same_words(&name, &machine);
        insta::assert_snapshot!(name.clone(), reported(&machine));
    }
    assert!(compared > 100, "only {compared} events were compared");
}

fn cpuid_and_the_kernel_agree(name: &str, machine: &Machine) {
    if machine.fixture.cpuid.is_empty() {
        return;
    }
    let facts = Facts::decode(&machine.leaves());
    let info = Cpuinfo::read(&machine.root).unwrap();
    assert_eq!(facts.signature, info.signature, "{name}");
    let topology = Topology::read(&machine.root).unwrap();
    let (l3, seen) = (facts.caches.iter().find(|cache| cache.level == 3), topology.l3.first());
    let (l3, seen) = l3.zip(seen).unwrap_or_else(|| panic!("{name}: an L3 on one side only"));
    assert_eq!((l3.bytes, Some(l3.ways)), (seen.bytes, seen.ways), "{name}");
    if let Some(cat) = facts.l3_cat {
        assert_eq!(cat.mask_bits, l3.ways, "{name}: a bit of a mask is a way");
        let expected = &generation(machine).unwrap().resctrl;
        assert!(expected.ways.contains(&cat.mask_bits), "{name}: {:?}", expected.ways);
        // The table's shareable ways are those of the parts with the first listed number of ways.
        let shareable = expected.shareable.filter(|_| expected.ways[0] == cat.mask_bits);
        assert!(shareable.is_none_or(|ways| ways.bits() == cat.shareable), "{name}");
    }
}

/// The kernel's format files and the table's fields must encode an event as the same words.
fn format_files_and_tables_make_the_same_words(name: &str, machine: &Machine) -> usize {
    let Some(generation) = generation(machine) else { return 0 };
    let mut events: Vec<(&Pmu, Terms)> = Vec::new();
    if let Some(cache) = &generation.cache {
        let terms = |request: &waykeeper_generations::IoRequestEvent| {
            [request.all.clone(), request.hit.clone(), Some(request.miss.clone())]
        };
        events.extend(cache.requests.iter().flat_map(terms).flatten().map(|event| (&cache.pmu, event)));
    }
    if let Some(shared) = &generation.shared_cache {
        events.extend([&shared.hits, &shared.misses].map(|event| (&shared.pmu, event.clone())));
    }
    if let Some(iio) = &generation.iio {
        let parts = (0..iio.parts).map(|part| (&iio.pmu, iio.of_part(&iio.inbound, part)));
        events.extend(parts.chain([(&iio.pmu, iio.of_part(&iio.outbound, 1))]));
    }
    if let Some(memory) = &generation.memory {
        let lines = memory.reads.iter().chain(&memory.writes);
        events.extend(lines.map(|event| (&memory.pmu, event.terms.clone())));
    }
    let mut compared = 0;
    for unit_kind in
        events.iter().map(|(pmu, _)| pmu.perf.as_str()).collect::<std::collections::BTreeSet<_>>()
    {
        let units = event_source::units(&machine.root, unit_kind).unwrap();
        for (pmu, event) in events.iter().filter(|(pmu, _)| pmu.perf == unit_kind) {
            let programmed = pmu.program(event).unwrap();
            let enable = pmu.registers.as_ref().and_then(|registers| registers.enable_bit);
            let control = programmed.control & !enable.map_or(0, |bit| 1 << bit);
            let filters = programmed.filter0.unwrap_or(0) | programmed.filter1.unwrap_or(0) << 32;
            for unit in &units {
                let words = unit.encode(event).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!(
                    (words.config[0], words.config[1]),
                    (control, filters),
                    "{name} {} {event}",
                    unit.name
                );
                compared += 1;
            }
        }
    }
    compared
}

#[test]
fn a_stack_is_the_bus_that_its_devices_are_on() {
    let machine = Machine::recorded("skx");
    let tree = PciTree::read(&machine.root).unwrap();
    let nic = tree.devices().find(|device| device.names == ["ens1f0"]).unwrap();
    let port = tree.root_port(&machine.root, nic.address).unwrap();
    assert_eq!(port.to_string(), "0000:3a:00.0");
    let stacks = event_source::units(&machine.root, "uncore_iio").unwrap();
    let on_its_bus =
        |unit: &&CounterUnit| unit.die_buses(&machine.root).unwrap().get(&0) == Some(&(0, port.bus));
    // 3a is the third root bus of the first socket: stack 2.
    assert_eq!(stacks.iter().find(on_its_bus).unwrap().name, "uncore_iio_2");
    let iio = generation(&machine).unwrap().iio.as_ref().unwrap();
    assert_eq!(iio.part_map.part(port.device), Some(0));
    // Both ports of the NIC and its virtual function are behind one switch.
    let behind: Vec<String> =
        tree.behind(&machine.root, port).unwrap().iter().map(|device| device.address.to_string()).collect();
    assert_eq!(behind, ["0000:3b:00.0", "0000:3b:00.1", "0000:3b:02.0"]);
    let physical: Vec<_> = tree.devices().filter_map(|device| device.physical).collect();
    assert_eq!(physical, [nic.address], "one virtual function");
}
