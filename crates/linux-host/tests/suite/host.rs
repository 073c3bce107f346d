//! LinuxHost on the virtual host: its readings match the machine, its knobs act, and closing it restores the state it
//! found.
//!
//! The clock is held, so every run sees the same numbers. Needs root and /dev/fuse.

use std::collections::BTreeMap;
use waykeeper_host::{
    Host, Interval, Knob, KnobKind, KnobOutcome, Plan, PortCounter, Reading, Snapshot, SocketCounter,
    Support, WorkloadCounter,
};
use waykeeper_kernel::pci::PciAddress;
use waykeeper_linux_host::{LinuxHost, LinuxHostOptions};
use waykeeper_testbed::{MS, MountedHost, SCENARIO, assert_same_state, manual_clock, scenario};
use waykeeper_units::{PortId, WayMask, WorkloadId};
use waykeeper_vhost::faults::{Calls, FaultRule, FileFault, Operation};
use waykeeper_vhost::machine_clock::ClockSpeed;

const L2FWD: WorkloadId = WorkloadId(0);
const FIO: WorkloadId = WorkloadId(1);
const SCAN: WorkloadId = WorkloadId(2);
const NIC: PortId = PortId(0);

fn mask(bits: u32) -> WayMask {
    WayMask::from_bits(bits)
}

pub fn value(reading: Reading<u64>) -> u64 {
    reading.value().unwrap_or_else(|| panic!("{reading:?} is no value"))
}

/// Equal within `slack`, the rounding of the counters and their scale.
pub fn near(found: u64, expected: u64, slack: u64) {
    assert!(found.abs_diff(expected) <= slack, "{found} is not {expected} within {slack}");
}

fn masks(of: &[(WorkloadId, u32)]) -> Plan {
    Plan::of_masks(of.iter().map(|(group, bits)| (*group, mask(*bits))))
}

fn sample(host: &mut LinuxHost) -> Snapshot {
    host.sample().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_inventory_of_skylake_is_what_its_files_say() {
    let machine = MountedHost::new("gold-6140");
    let host = machine.open();
    insta::assert_json_snapshot!("skylake", host.inventory());
    let groups = host.workloads();
    let named: Vec<(&str, String, usize)> = groups
        .iter()
        .map(|group| (group.name.as_str(), group.cores.to_string(), group.devices.len()))
        .collect();
    // An array of four drives is four devices behind one port.
    assert_eq!(
        named,
        [("l2fwd", "0-1".to_owned(), 1), ("fio", "2".to_owned(), 4), ("scan", "3".to_owned(), 0)]
    );
    assert_eq!(host.counted_by(), "MSR");
    assert_eq!(host.notes().len(), 1, "{:?}", host.notes());
    assert!(host.notes()[0].contains("every second slice counts device writes"));
}

#[test]
fn other_chips_say_what_they_lack() {
    let support = |chip: &str| {
        let machine = MountedHost::new(chip);
        let host = machine.open();
        let inventory = host.inventory();
        (inventory.dca_ways_switch.clone(), inventory.ports[0].dca_switch.clone(), inventory.dca_ways_default)
    };
    // hardware.md 0.1 and 1.2: Ice Lake's register can be read but has no effect, its ports have none; Zen has neither.
    let (ways, port, default) = support("gold-5320");
    assert_eq!((ways, default), (Support::ReadOnly, Some(mask(0xc00))));
    assert!(matches!(port, Support::No(_)));
    let (ways, port, default) = support("epyc-9554");
    assert!(matches!((ways, port), (Support::No(_), Support::No(_))));
    assert_eq!(default, None);
}

#[test]
fn what_is_sampled_is_what_the_machine_counted() {
    let machine = MountedHost::new("gold-6140");
    let mut host = machine.open();
    machine.run_to(10 * MS);
    let truth = || {
        machine.with_model(|server| {
            let bare = server.bare();
            (bare.cores(0..2), bare.dca(), bare.port(0), bare.memory())
        })
    };
    let (before, first) = (truth(), sample(&mut host));
    machine.run_to(60 * MS);
    let (after, second) = (truth(), sample(&mut host));
    let [a, b] = [&first, &second].map(|sample| sample.groups[&L2FWD]);
    let of_group = |counter| value(b[counter]) - value(a[counter]);
    // Each core's counts are whole numbers; the machine's sum is rounded once.
    near(of_group(WorkloadCounter::Instructions), after.0.instructions - before.0.instructions, 4);
    near(of_group(WorkloadCounter::Cycles), after.0.cycles - before.0.cycles, 4);
    near(of_group(WorkloadCounter::LlcHits), after.0.llc_hits - before.0.llc_hits, 4);
    near(of_group(WorkloadCounter::LlcMisses), after.0.llc_misses - before.0.llc_misses, 4);
    near(of_group(WorkloadCounter::MlcMisses), after.0.mlc_misses - before.0.mlc_misses, 4);
    let of_socket = |counter: SocketCounter| value(second.socket[counter]) - value(first.socket[counter]);
    // Nine slices of 18 count writes; each part is rounded to a line and doubled.
    near(of_socket(SocketCounter::DcaWriteHits), after.1.write_hits - before.1.write_hits, 2 * 18);
    near(of_socket(SocketCounter::DcaWriteMisses), after.1.write_misses - before.1.write_misses, 2 * 18);
    near(of_socket(SocketCounter::DcaReadHits), after.1.read_hits - before.1.read_hits, 2 * 18);
    assert!(after.1.write_hits - before.1.write_hits > 100_000, "the NIC is at work");
    let [a, b] = [&first, &second].map(|sample| sample.ports[&NIC]);
    let of_port = |counter| value(b[counter]) - value(a[counter]);
    near(of_port(PortCounter::InboundBytes), after.2.inbound - before.2.inbound, 4);
    near(of_port(PortCounter::OutboundBytes), after.2.outbound - before.2.outbound, 4);
    near(of_socket(SocketCounter::MemoryReadBytes), after.3.read - before.3.read, 6 * 64);
    near(of_socket(SocketCounter::MemoryWriteBytes), after.3.written - before.3.written, 6 * 64);
    let (_, rmid) = machine.with_model(|server| server.class(3));
    let occupied = machine.with_model(|server| server.bare().occupancy(rmid));
    // resctrl counts in units of 64 KiB here.
    near(value(second.groups[&SCAN][WorkloadCounter::OccupancyBytes]), occupied, 65536);
    assert!(occupied > 1 << 20, "a scan of 24 MiB fills its share");
    assert_eq!(
        second.knobs.masks().collect::<BTreeMap<_, _>>(),
        BTreeMap::from([(L2FWD, mask(0x7ff)), (FIO, mask(0x7ff)), (SCAN, mask(0x7ff))])
    );
    assert_eq!(second.knobs.dca_ways(), Some(mask(0x600)));
    assert!(second.knobs.dca_by_port().eq([(NIC, true), (PortId(1), true)]));
    assert!(host.complaints().is_empty());
    assert!(Interval::between(&first, &second).is_some());
}

#[test]
fn what_is_turned_acts_on_the_machine() {
    let machine = MountedHost::new("gold-6140");
    let mut host = machine.open();
    let mut plan = masks(&[(L2FWD, 0x600), (SCAN, 0x003)]);
    plan.insert(Knob::DcaWays, mask(0x700));
    plan.insert(Knob::Dca(PortId(1)), false);
    let applied = host.apply(&plan).unwrap();
    assert!(applied.is_complete(), "{applied:?}");
    let knobs = sample(&mut host).knobs;
    let masks: BTreeMap<_, _> = knobs.masks().collect();
    assert_eq!(masks, BTreeMap::from([(L2FWD, mask(0x600)), (FIO, mask(0x7ff)), (SCAN, mask(0x003))]));
    assert_eq!(
        (knobs.dca_ways(), knobs.dca(PortId(1)).unwrap(), knobs.dca(NIC).unwrap()),
        (Some(mask(0x700)), false, true)
    );
    machine.with_model(|server| {
        let class = server.class(3).0 as usize;
        assert_eq!(server.mask(0, class), Some(0x003));
        assert_eq!(server.bare().dca_register(), Some(0x700));
        assert!(!server.bare().port_is_on(1) && server.bare().port_is_on(0));
    });
    // Two ways of 11 of 24.75 MiB are 4.5 MiB.
    machine.run_to(300 * MS);
    let occupied = value(sample(&mut host).groups[&SCAN][WorkloadCounter::OccupancyBytes]);
    assert!(occupied <= 9 << 19, "{occupied}");
}

#[test]
fn what_cannot_be_is_refused_with_a_reason_and_changes_nothing() {
    let machine = MountedHost::new("gold-6140");
    let mut host = machine.open();
    let before = sample(&mut host).knobs;
    let mut plan = masks(&[(L2FWD, 0x5), (FIO, 0x0), (SCAN, 0x1000), (WorkloadId(9), 0x3)]);
    plan.insert(Knob::DcaWays, mask(0x0f0));
    plan.insert(Knob::Dca(PortId(7)), false);
    plan.insert(Knob::RxRing(NIC), 512);
    let applied = host.apply(&plan).unwrap();
    let refused = |outcome: &KnobOutcome, words: &str| match outcome {
        KnobOutcome::Refused(why) => assert!(why.contains(words), "{why}"),
        other => panic!("{other:?}"),
    };
    refused(&applied[Knob::Mask(L2FWD)], "The mask 5 has non-consecutive 1-bits");
    refused(&applied[Knob::Mask(FIO)], "Mask out of range");
    refused(&applied[Knob::Mask(SCAN)], "Mask out of range");
    refused(&applied[Knob::Mask(WorkloadId(9))], "group 9 does not exist");
    refused(&applied[Knob::DcaWays], "0x0f0");
    refused(&applied[Knob::Dca(PortId(7))], "there is no such port");
    refused(&applied[Knob::RxRing(NIC)], "no such knob");
    assert_eq!(sample(&mut host).knobs, before);
}

#[test]
fn what_others_change_is_seen_at_the_next_sample() {
    let machine = MountedHost::new("gold-6140");
    let options = LinuxHostOptions { correct: true, ..machine.options() };
    let mut host = LinuxHost::open(options).unwrap_or_else(|error| panic!("{error}"));
    let root = machine.root();
    root.write_once("/sys/fs/resctrl/waykeeper-fio/schemata", "L3:0=00f\n").unwrap();
    machine.set_msr(5, 0xc8b, 0x7f0);
    let port: PciAddress = host.inventory().ports[1].address.parse().unwrap();
    let config = root.open_write(format!("/sys/bus/pci/devices/{port}/config")).unwrap();
    config.write_at(&[0x00], 0x180).unwrap();
    let knobs = sample(&mut host).knobs;
    assert_eq!((knobs.mask(FIO).unwrap(), knobs.dca_ways()), (mask(0x00f), Some(mask(0x7f0))));
    assert_eq!((knobs.dca(NIC).unwrap(), knobs.dca(PortId(1)).unwrap()), (true, false));
    // A group that another program removes has no mask. This is reported once, and the group is made again for the next
    // mask.
    root.remove_dir("/sys/fs/resctrl/waykeeper-scan").unwrap();
    for _ in 0..2 {
        assert!(!sample(&mut host).knobs.names(Knob::Mask(SCAN)));
    }
    let complaints = host.complaints();
    assert_eq!(complaints, ["resctrl group waykeeper-scan is gone: another program removed it"]);
    assert!(host.apply(&masks(&[(SCAN, 0x00c)])).unwrap().is_complete());
    let snapshot = sample(&mut host);
    assert_eq!(snapshot.knobs.mask(SCAN).unwrap(), mask(0x00c));
    assert!(snapshot.groups[&SCAN][WorkloadCounter::OccupancyBytes].value().is_some());
    assert_eq!(root.read_text("/sys/fs/resctrl/waykeeper-scan/cpus_list").unwrap(), "3\n");
}

#[test]
fn a_knob_set_again_after_another_program_returns_to_that_programs_value() {
    let machine = MountedHost::new("gold-6140");
    let mut host = machine.open();
    let ways = |bits: u32| Plan::from([(Knob::DcaWays, mask(bits))]);
    assert!(host.apply(&ways(0x700)).unwrap().is_complete());
    // The other program's value is noticed by a sample; then the policy wants another value after all.
    machine.set_msr(0, 0xc8b, 0x780);
    assert_eq!(sample(&mut host).knobs.dca_ways(), Some(mask(0x780)));
    assert!(host.apply(&ways(0x7c0)).unwrap().is_complete());
    assert_eq!(machine.msr(0, 0xc8b), 0x7c0);
    assert!(host.close().unwrap().is_complete());
    assert_eq!(machine.msr(0, 0xc8b), 0x780);
}

#[test]
fn what_was_found_is_what_is_left_to_the_byte() {
    for chip in ["gold-6140", "e5-2630v3", "gold-5320", "gold-6430", "epyc-9554"] {
        let machine = MountedHost::new(chip);
        // Unlike on a fresh machine, another program has set the default group's mask and a register that we do not
        // use.
        machine.root().write_once("/sys/fs/resctrl/schemata", "L3:0=3f\n").unwrap();
        let found = machine.state();
        let mut host = machine.open();
        machine.run_to(5 * MS);
        let before = sample(&mut host);
        assert_eq!(host.root_mask(), mask(0x3f), "{chip}");
        assert!(
            before.groups[&L2FWD][WorkloadCounter::Cycles].value().is_some(),
            "{chip}: {:?}",
            host.notes()
        );
        assert_eq!(before.knobs.mask(SCAN).unwrap(), mask(0x3f), "{chip}: taking charge changes no mask");
        let mut plan = masks(&[(L2FWD, 0xf), (FIO, 0x30), (SCAN, 0x30)]);
        plan.insert(Knob::DcaWays, mask(0x7c0));
        plan.insert(Knob::Dca(NIC), false);
        let applied = host.apply(&plan).unwrap();
        assert!(
            applied.of_kind(KnobKind::Mask).all(|(_, outcome)| *outcome == KnobOutcome::Applied),
            "{chip}: {applied:?}"
        );
        assert_ne!(machine.state(), found, "{chip}");
        drop(host);
        assert_same_state(&machine.state(), &found, chip);
        assert!(!machine.journal().exists(), "{chip}: the journal is empty and gone");
    }
}

#[test]
fn processes_move_with_their_tenant_and_come_back() {
    let machine = MountedHost::new("gold-6140");
    let mut sleeper = std::process::Command::new("sleep").arg("600").spawn().expect("a process");
    let pid = sleeper.id();
    let mut options = machine.options();
    options.tenants[2].pids = vec![pid];
    // More than the largest pid of any kernel (PID_MAX_LIMIT).
    options.tenants[1].pids = vec![4_194_305];
    let mut host = LinuxHost::open(options).unwrap_or_else(|error| panic!("{error}"));
    let has = |group: &str| {
        let tasks = machine.root().read_text(format!("/sys/fs/resctrl/{group}tasks")).unwrap();
        tasks.lines().any(|task| task == pid.to_string())
    };
    assert!(has("waykeeper-scan/") && !has(""));
    assert!(
        host.notes()
            .iter()
            .any(|note| note
                .starts_with("tenant fio does not have, or no longer has, the processes [4194305]"))
    );
    assert!(host.close().unwrap().is_complete());
    assert!(has(""), "back in the default group");
    sleeper.kill().and_then(|()| sleeper.wait()).expect("it ends");
}

#[test]
fn with_code_and_data_apart_a_mask_is_that_of_both() {
    let options = waykeeper_vhost::virtual_host::VirtualHostOptions { cdp: true, ..manual_clock(16) };
    let machine = MountedHost::with(scenario("gold-6140", SCENARIO), options);
    let found = machine.state();
    let mut host = machine.open();
    assert!(host.apply(&masks(&[(SCAN, 0x00f)])).unwrap().is_complete());
    assert_eq!(sample(&mut host).knobs.mask(SCAN).unwrap(), mask(0x00f));
    let schemata = machine.root().read_text("/sys/fs/resctrl/waykeeper-scan/schemata").unwrap();
    assert!(schemata.contains("L3DATA:0=00f") && schemata.contains("L3CODE:0=00f"), "{schemata}");
    drop(host);
    assert_same_state(&machine.state(), &found, "code and data apart");
}

#[test]
fn time_is_the_kernels_and_the_server_follows_it() {
    let options = waykeeper_vhost::virtual_host::VirtualHostOptions {
        speed: ClockSpeed::Wall(0.5),
        ..manual_clock(64)
    };
    let machine = MountedHost::with(scenario("gold-6140", SCENARIO), options);
    let mut host = machine.open();
    let mut last = sample(&mut host);
    for deadline in [50 * MS, 100 * MS, 150 * MS] {
        host.wait_until(deadline).unwrap();
        assert!(host.now_ns() >= deadline);
        let next = sample(&mut host);
        let seen = Interval::between(&last, &next).expect("time passed");
        // On a busy machine the model may lag behind, or reading takes longer at one end than at the other: counts are then
        // not available, and never negative.
        let cycles = seen.groups[&L2FWD][WorkloadCounter::Cycles].value();
        assert!(cycles.is_none_or(|cycles| cycles >= 0.0), "{cycles:?}");
        last = next;
    }
    host.wait_until(0).unwrap();
    let cycles = value(last.groups[&L2FWD][WorkloadCounter::Cycles]);
    assert!(cycles > 0, "the server's clock is at {} ns", machine.now_ns());
}

#[test]
fn a_sample_opens_nothing_and_reads_each_register_once() {
    let machine = MountedHost::new("gold-6140");
    let mut host = machine.open();
    sample(&mut host);
    machine.faults.forget();
    sample(&mut host);
    let mut seen = machine.faults.seen();
    // A command of another test that looks for virtual hosts on this machine reads the name of each.
    seen.retain(|(path, _), _| path != "waykeeper/name");
    assert!(seen.keys().all(|(_, operation)| *operation == Operation::Read), "{seen:?}");
    let reads = |part: &str| {
        seen.iter().filter(|((path, _), _)| path.contains(part)).map(|(_, count)| count).sum::<u64>()
    };
    // Six events and the time on each of four cores; on CPU 0 also two counters of 18 slices, two ports in and out, the
    // time again, the time before and after all counters, and the DCA ways.
    assert_eq!(reads("dev/cpu"), 4 * 7 + 18 * 2 + 4 + 1 + 2 + 1);
    // Reads and writes of six channels; the switch of two ports.
    assert_eq!(reads("config"), 6 * 2 + 2);
    assert_eq!((reads("schemata"), reads("mon_data"), reads("cpus_list")), (3, 3, 3));
    assert_eq!(seen.values().sum::<u64>(), 72 + 14 + 9);
}

#[test]
fn with_few_classes_tenants_with_equal_masks_share_one() {
    // Haswell has four classes including the default one; here are five tenants.
    let text = format!(
        "{SCENARIO}\n[[workload]]\nname = \"more\"\nprogram = \"x-mem\"\ncores = \"4\"\nworking_set = \"4M\"\n\
         [[workload]]\nname = \"most\"\nprogram = \"x-mem\"\ncores = \"5\"\nworking_set = \"4M\"\n"
    );
    let machine = MountedHost::with(scenario("e5-2630v3", &text), manual_clock(16));
    let found = machine.state();
    let mut host = machine.open();
    assert!(
        host.notes().iter().any(|note| note.contains("5 tenants, but only 3 free classes")),
        "{:?}",
        host.notes()
    );
    assert_eq!(host.inventory().known_llc().clos_count, 4);
    let (more, most) = (WorkloadId(3), WorkloadId(4));
    let plan = masks(&[(L2FWD, 0xff000), (FIO, 0x00003), (more, 0x00003), (most, 0xff000)]);
    assert!(host.apply(&plan).unwrap().is_complete());
    let snapshot = sample(&mut host);
    let wanted = [(L2FWD, 0xff000), (FIO, 0x00003), (SCAN, 0xfffff), (more, 0x00003), (most, 0xff000)];
    assert!(snapshot.knobs.masks().eq(masks(&wanted).masks()));
    assert!(
        snapshot.groups.values().all(|group| group[WorkloadCounter::OccupancyBytes] != Reading::Unsupported)
    );
    machine.with_model(|server| {
        assert_eq!(server.class(2).0, server.class(4).0, "fio and more share a class");
        assert_ne!(server.class(2).1, server.class(4).1, "and are told apart by RMID");
        assert_ne!(server.class(3).0, 0, "scan came before classes ran out and keeps its own");
    });
    // Four masks besides the default group's are one too many, and nothing moves.
    let plan = masks(&[(L2FWD, 0xf0000), (FIO, 0x00003), (more, 0x0000c), (most, 0x00ff0)]);
    let applied = host.apply(&plan).unwrap();
    assert!(
        applied.of_kind(KnobKind::Mask).all(|(_, outcome)| matches!(outcome, KnobOutcome::Refused(_))),
        "{applied:?}"
    );
    assert!(sample(&mut host).knobs.masks().eq(masks(&wanted).masks()));
    drop(host);
    assert_same_state(&machine.state(), &found, "few classes");
}

#[test]
fn counters_of_others_are_left_to_them() {
    let machine = MountedHost::new("gold-6140");
    // perf counts on general counter 0 of CPU 2; pqos holds CHA 4.
    machine.set_msr(2, 0x186, 0x43_003c);
    machine.set_msr(0, 0xe41, 0x40_1435);
    let found = machine.state();
    let mut host = machine.open();
    let said = host.notes().join("\n");
    assert!(said.contains("core 2: no counter is free for L2_RQSTS.MISS"), "{said}");
    assert!(
        said.contains("uncore_cha 4: another program counts there (MSR 0xe41 of CPU 0 is 0x401435)"),
        "{said}"
    );
    machine.run_to(5 * MS);
    let snapshot = sample(&mut host);
    assert_eq!(snapshot.groups[&FIO][WorkloadCounter::MlcMisses], Reading::Unsupported);
    assert!(snapshot.groups[&FIO][WorkloadCounter::LlcMisses].value().is_some());
    assert_eq!((machine.msr(2, 0x186), machine.msr(0, 0xe41)), (0x43_003c, 0x40_1435));
    drop(host);
    assert_same_state(&machine.state(), &found, "others' counters");
}

#[test]
fn a_tenant_in_another_programs_group_is_not_taken() {
    let machine = MountedHost::new("gold-6140");
    let root = machine.root();
    root.make_dir("/sys/fs/resctrl/COS1").unwrap();
    root.write_once("/sys/fs/resctrl/COS1/cpus_list", "2,9\n").unwrap();
    let found = machine.state();
    let error = machine.try_open().unwrap_err().to_string();
    assert!(
        error.starts_with("CPUs 2 of tenant fio are in resctrl group COS1, which another program made"),
        "{error}"
    );
    assert_same_state(&machine.state(), &found, "a refused start");
}

#[test]
fn a_crash_is_made_good_at_the_next_start() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let mut host = machine.open();
    let mut plan = masks(&[(SCAN, 0x003)]);
    plan.insert(Knob::DcaWays, mask(0x700));
    assert!(host.apply(&plan).unwrap().is_complete());
    // The state after a crash: every knob changed, and the journal.
    let seal = machine.journal().with_extension("seal");
    let [journal, sealed] = [machine.journal(), seal.clone()].map(|path| std::fs::read(path).unwrap());
    drop(host);
    let root = machine.root();
    root.make_dir("/sys/fs/resctrl/waykeeper-scan").unwrap();
    root.write_once("/sys/fs/resctrl/waykeeper-scan/schemata", "L3:0=003\n").unwrap();
    machine.set_msr(0, 0xc8b, 0x700);
    machine.set_msr(3, 0x186, 0x43_4f2e);
    std::fs::write(machine.journal(), journal).unwrap();
    std::fs::write(seal, sealed).unwrap();
    let mut host = machine.open();
    let knobs = sample(&mut host).knobs;
    assert_eq!((knobs.dca_ways(), knobs.mask(SCAN).unwrap()), (Some(mask(0x600)), mask(0x7ff)));
    assert_eq!(host.notes().len(), 1, "no other tool's counters were in use: {:?}", host.notes());
    drop(host);
    assert_same_state(&machine.state(), &found, "after a crash");
}

#[test]
fn garbage_is_reported_and_never_taken_for_a_value() {
    let machine = MountedHost::new("gold-6140");
    let mut host = machine.open();
    sample(&mut host);
    let garble = |path: &str, content: &[u8]| {
        machine.faults.inject(FaultRule {
            path: path.to_owned(),
            operation: Some(Operation::Read),
            calls: Calls::All,
            fault: FileFault::Garbage(content.to_vec()),
        });
    };
    garble("sys/fs/resctrl/waykeeper-fio/schemata", b"    L3:0=fffff\n");
    garble("sys/fs/resctrl/waykeeper-scan/mon_data/*", b"-3\n");
    // Long enough for the offsets at which registers are read.
    garble("dev/cpu/0/msr", &[0xff; 0x1000]);
    let address = host.inventory().ports[0].address.clone();
    garble(&format!("*{address}/config"), &[0xff; 0x1000]);
    let snapshot = sample(&mut host);
    assert!(!snapshot.knobs.names(Knob::Mask(FIO)), "{:?}", snapshot.knobs);
    assert_eq!((snapshot.knobs.dca_ways(), snapshot.knobs.dca(NIC)), (None, None));
    assert_eq!(snapshot.groups[&SCAN][WorkloadCounter::OccupancyBytes], Reading::Unavailable);
    assert_eq!(snapshot.groups[&L2FWD][WorkloadCounter::Cycles], Reading::Unavailable);
    let said = host.complaints().join("\n");
    for words in
        ["waykeeper-fio", "llc_occupancy", "MSR 0xc8b", "does not answer", "does not fit a 48-bit counter"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    machine.faults.lift();
    let snapshot = sample(&mut host);
    assert_eq!((snapshot.knobs.dca_ways(), snapshot.knobs.masks().count()), (Some(mask(0x600)), 3));
    assert!(snapshot.groups[&L2FWD][WorkloadCounter::Cycles].value().is_some());
}

#[test]
fn on_two_sockets_a_device_that_tells_no_node_is_not_taken_for_ours() {
    let text = SCENARIO.replace("name = \"raid0\"", "name = \"raid0\"\nremote = true");
    let machine = MountedHost::with(scenario("gold-6140", &text), manual_clock(16));
    let host = machine.open();
    let sockets =
        |host: &LinuxHost| host.inventory().ports.iter().map(|port| port.socket).collect::<Vec<_>>();
    assert_eq!(sockets(&host), [0, 1]);
    assert!(!host.notes().iter().any(|note| note.contains("numa_node")), "{:?}", host.notes());
    drop(host);
    machine.faults.inject(FaultRule {
        path: "*/numa_node".to_owned(),
        operation: Some(Operation::Read),
        calls: Calls::All,
        fault: FileFault::Garbage(b"-1\n".to_vec()),
    });
    let mut host = machine.open();
    assert!(!sockets(&host).contains(&0), "{:?}", sockets(&host));
    assert!(host.inventory().ports.iter().all(|port| matches!(port.dca_switch, Support::No(_))));
    let said = host.notes().join("\n");
    assert!(said.contains("the socket of "), "{said}");
    // The channels of both sockets are not summed up as ours either.
    assert!(said.contains("the PCI devices of the memory channels were not found"), "{said}");
    machine.run_to(5 * MS);
    assert_eq!(sample(&mut host).ports[&NIC][PortCounter::InboundBytes], Reading::Unsupported);
    assert!(!host.apply(&Plan::of_dca([(NIC, false)])).unwrap().is_complete());
}

#[test]
fn a_process_in_another_programs_monitoring_group_is_not_taken() {
    let machine = MountedHost::new("gold-6140");
    let mut sleeper = std::process::Command::new("sleep").arg("600").spawn().expect("a process");
    let root = machine.root();
    root.make_dir("/sys/fs/resctrl/mon_groups/watched").unwrap();
    root.write_once("/sys/fs/resctrl/mon_groups/watched/tasks", &format!("{}\n", sleeper.id())).unwrap();
    let found = machine.state();
    let mut options = machine.options();
    options.tenants[2].pids = vec![sleeper.id()];
    let error = LinuxHost::open(options).map(|_| ()).unwrap_err().to_string();
    sleeper.kill().and_then(|()| sleeper.wait()).expect("it ends");
    let start = format!("tasks {} of tenant scan are in resctrl group mon_groups/watched", sleeper.id());
    assert!(error.starts_with(&start), "{error}");
    assert_same_state(&machine.state(), &found, "a refused start");
}

#[test]
fn a_cpu_that_another_tool_took_meanwhile_is_left_to_it() {
    let machine = MountedHost::new("gold-6140");
    let mut host = LinuxHost::open(LinuxHostOptions { correct: true, ..machine.options() })
        .unwrap_or_else(|error| panic!("{error}"));
    let root = machine.root();
    root.remove_dir("/sys/fs/resctrl/waykeeper-scan").unwrap();
    root.make_dir("/sys/fs/resctrl/COS1").unwrap();
    root.write_once("/sys/fs/resctrl/COS1/cpus_list", "3\n").unwrap();
    let applied = host.apply(&masks(&[(FIO, 0x00f), (SCAN, 0x003)])).unwrap();
    assert_eq!(applied[Knob::Mask(FIO)], KnobOutcome::Applied);
    let why = format!("{:?}", applied[Knob::Mask(SCAN)]);
    assert!(why.contains("CPUs 3 of tenant scan are in resctrl group COS1"), "{why}");
    assert_eq!(root.read_text("/sys/fs/resctrl/COS1/cpus_list").unwrap(), "3\n");
    assert!(host.close().unwrap().is_complete());
    assert_eq!(root.read_text("/sys/fs/resctrl/COS1/cpus_list").unwrap(), "3\n");
}

#[test]
fn slices_of_offline_cores_are_reported_where_slices_are_counted_by_cores() {
    let machine = MountedHost::new("e5-2630v3");
    let reported = |host: &LinuxHost| host.notes().iter().any(|note| note.starts_with("CPUs 7 are offline"));
    let host = machine.open();
    assert!(!reported(&host), "{:?}", host.notes());
    drop(host);
    machine.faults.inject(FaultRule {
        path: "sys/devices/system/cpu/online".to_owned(),
        operation: Some(Operation::Read),
        calls: Calls::All,
        fault: FileFault::Garbage(b"0-6\n".to_vec()),
    });
    let host = machine.open();
    assert!(reported(&host), "{:?}", host.notes());
}

#[test]
fn another_tools_monitoring_group_gets_back_what_was_taken_and_no_more() {
    let machine = MountedHost::new("gold-6140");
    let root = machine.root();
    let cpus = "/sys/fs/resctrl/mon_groups/watched/cpus_list";
    root.make_dir("/sys/fs/resctrl/mon_groups/watched").unwrap();
    root.write_once(cpus, "2,9\n").unwrap();
    let mut host = machine.open();
    assert!(host.notes().iter().any(|note| note.contains("mon_groups/watched")), "{:?}", host.notes());
    assert_eq!(root.read_text(cpus).unwrap(), "9\n");
    // Meanwhile its owner adds it another CPU.
    root.write_once(cpus, "10\n").unwrap();
    let report = host.close().unwrap();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(root.read_text(cpus).unwrap(), "2,10\n");
}
