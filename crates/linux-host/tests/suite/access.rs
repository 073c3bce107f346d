//! What LinuxHost may change, and external changes: observation, limits and corrections, on the virtual host with a
//! held clock. Needs root and /dev/fuse.

use waykeeper_generations::{Generation, RegisterBit};
use waykeeper_host::{Host, Knob, KnobOutcome, Plan, Reading, Snapshot, Support, WorkloadCounter};
use waykeeper_linux_host::profile::{
    DcaWaysRegister, KnobState, MachineIdentity, MachineProfile, ProfiledPort, VERSION, Ways, Writes,
    microcode,
};
use waykeeper_linux_host::{
    AllowedChanges, DcaLimit, ExternalChange, HostAccess, LinuxHost, LinuxHostOptions,
};
use waykeeper_testbed::{MS, MountedHost};
use waykeeper_units::{PortId, WayMask, WorkloadId};
use waykeeper_vhost::faults::{Calls, FaultRule, FileFault, Operation};

pub const L2FWD: WorkloadId = WorkloadId(0);
pub const SCAN: WorkloadId = WorkloadId(2);
pub const FIO: WorkloadId = WorkloadId(1);

pub fn open(machine: &MountedHost, change: impl FnOnce(&mut LinuxHostOptions)) -> LinuxHost {
    let mut options = machine.options();
    change(&mut options);
    LinuxHost::open(options).unwrap_or_else(|error| panic!("{error}"))
}

pub fn sample(host: &mut LinuxHost) -> Snapshot {
    host.sample().unwrap_or_else(|error| panic!("{error}"))
}

/// A plan with every knob.
pub fn plan() -> Plan {
    Plan::of_masks([(L2FWD, WayMask::from_bits(0x600)), (SCAN, WayMask::from_bits(0x3))])
        .with(Knob::DcaWays, WayMask::from_bits(0x700))
        .with(Knob::Dca(PortId(0)), false)
        .with(Knob::Dca(PortId(1)), false)
}

pub fn refused(outcome: &KnobOutcome, words: &str) {
    assert!(
        matches!(outcome, KnobOutcome::Refused(why) if why.contains(words)),
        "{outcome:?} without {words}"
    );
}

#[test]
fn who_only_looks_writes_nothing() {
    let machine = MountedHost::new("gold-6140");
    let root = machine.root();
    // Another program has put scan's CPU into a group with a mask.
    root.make_dir("/sys/fs/resctrl/COS1").unwrap();
    root.write_once("/sys/fs/resctrl/COS1/schemata", "L3:0=00f\n").unwrap();
    root.write_once("/sys/fs/resctrl/COS1/cpus_list", "3\n").unwrap();
    root.make_dir("/sys/fs/resctrl/mon_groups/both").unwrap();
    root.write_once("/sys/fs/resctrl/mon_groups/both/cpus_list", "0-1\n").unwrap();
    let found = machine.state();
    machine.faults.forget();
    let mut host = open(&machine, |options| options.access = HostAccess::Observe);
    machine.run_to(20 * MS);
    let snapshot = sample(&mut host);
    assert_eq!(snapshot.knobs.mask(SCAN).unwrap().bits(), 0x00f);
    assert_eq!(snapshot.knobs.mask(L2FWD).unwrap().bits(), 0x7ff);
    assert_eq!(snapshot.knobs.dca_ways(), Some(WayMask::from_bits(0x600)));
    assert_eq!(snapshot.knobs.dca_by_port().count(), 2);
    // Two tenants have groups with exactly their CPUs, the third has none.
    assert!(
        snapshot.groups[&SCAN][WorkloadCounter::OccupancyBytes].value().is_some_and(|bytes| bytes > 1 << 20)
    );
    assert!(snapshot.groups[&L2FWD][WorkloadCounter::OccupancyBytes].value().is_some());
    assert_eq!(snapshot.groups[&WorkloadId(1)][WorkloadCounter::OccupancyBytes], Reading::Unsupported);
    let reported = host.complaints();
    assert!(
        reported.iter().any(|reported| reported.starts_with("the LLC occupancy of fio is not known")),
        "{reported:?}"
    );
    // A root other than this machine's has no perf.
    assert_eq!(snapshot.groups[&L2FWD][WorkloadCounter::Cycles], Reading::Unsupported);
    assert!(host.notes().iter().any(|note| note.contains("only observes this host")), "{:?}", host.notes());
    let applied = host.apply(&plan()).unwrap();
    assert_eq!(applied.values().map(|outcome| refused(outcome, "only observes this host")).count(), 5);
    let mut tenants = machine.options().tenants;
    tenants.remove(1);
    assert_eq!(host.set_tenants(tenants).left.len(), 1);
    assert_eq!(sample(&mut host).groups.len(), 2);
    assert_eq!(host.complaints(), [""; 0]);
    assert!(host.close().expect("nothing to do").knobs.is_empty());
    drop(host);
    let reads = |operation: &Operation| {
        matches!(operation, Operation::Read | Operation::Open | Operation::List | Operation::ReadLink)
    };
    let seen = machine.faults.seen();
    let written: Vec<_> = seen.keys().filter(|(_, operation)| !reads(operation)).collect();
    assert!(written.is_empty() && seen.len() > 50, "{written:?}");
    assert!(!machine.journal().exists() && !machine.journal().with_extension("lock").exists());
    assert_eq!(machine.state(), found);
}

#[test]
fn an_observed_host_whose_tenants_stay_reads_nothing_of_resctrl() {
    let machine = MountedHost::new("gold-6140");
    let mut host = open(&machine, |options| options.access = HostAccess::Observe);
    sample(&mut host);
    host.complaints();
    machine.faults.forget();
    assert!(host.set_tenants(machine.options().tenants).is_empty());
    assert!(machine.faults.seen().is_empty(), "{:?}", machine.faults.seen());
    assert_eq!(host.complaints(), [""; 0]);
}

#[test]
fn limits_show_in_the_inventory_and_hold() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let nic = machine.options().tenants[0].devices[0];
    let mut host = open(&machine, |options| {
        options.limits = AllowedChanges {
            masks: false,
            dca_ways: false,
            dca: DcaLimit::Only(vec![nic]),
            ..AllowedChanges::default()
        };
    });
    let inventory = host.inventory();
    let forbidden = |support: &Support| matches!(support, Support::No(why) if why.starts_with("the configuration forbids"));
    assert_eq!(inventory.known_llc().clos_count, 1);
    assert!(forbidden(&inventory.dca_ways_switch));
    assert_eq!(
        (inventory.ports[0].dca_switch.clone(), forbidden(&inventory.ports[1].dca_switch)),
        (Support::Yes, true)
    );
    // No tenant has a class; each has a monitoring group all the same.
    assert!(
        !machine.root().list("/sys/fs/resctrl").unwrap().iter().any(|name| name.starts_with("waykeeper-"))
    );
    assert!(
        sample(&mut host)
            .groups
            .values()
            .all(|group| group[WorkloadCounter::OccupancyBytes].value().is_some())
    );
    let applied = host.apply(&plan()).unwrap();
    refused(&applied[Knob::Mask(SCAN)], "forbids setting masks");
    refused(&applied[Knob::DcaWays], "forbids setting the ways of devices");
    assert_eq!(applied[Knob::Dca(PortId(0))], KnobOutcome::Applied);
    refused(&applied[Knob::Dca(PortId(1))], "forbids switching DCA of this port");
    drop(host);
    assert_eq!(machine.state(), found);
    // Two classes for three tenants; then one tenant moves to a CPU that the limits exclude.
    let mut host = open(&machine, |options| {
        options.limits = AllowedChanges {
            max_classes: Some(2),
            cpus: Some("0-3".parse().unwrap()),
            ..AllowedChanges::default()
        };
    });
    assert_eq!((host.inventory().known_llc().clos_count, host.groupings().len()), (3, 1));
    let mut tenants = machine.options().tenants;
    tenants[1].cores = "4-5".parse().unwrap();
    let changes = host.set_tenants(tenants);
    assert_eq!(
        changes.refused[0].why,
        "the configuration forbids moving CPUs 4-5, it allows only 0-3 (limits)"
    );
    drop(host);
    let error = LinuxHost::open(LinuxHostOptions {
        limits: AllowedChanges { cpus: Some("0-2".parse().unwrap()), ..AllowedChanges::default() },
        ..machine.options()
    });
    let error = error.map(|_| ()).unwrap_err().to_string();
    assert_eq!(error, "tenant scan: the configuration forbids moving CPUs 3, it allows only 0-2 (limits)");
    assert_eq!(machine.state(), found);
}

#[test]
fn limits_show_to_who_only_looks_too() {
    let machine = MountedHost::new("gold-6140");
    let nic = machine.options().tenants[0].devices[0];
    let look = |limits: AllowedChanges| {
        open(&machine, |options| (options.access, options.limits) = (HostAccess::Observe, limits))
    };
    let mut host = look(AllowedChanges {
        masks: false,
        dca_ways: false,
        dca: DcaLimit::Only(vec![nic]),
        ..AllowedChanges::default()
    });
    let inventory = host.inventory();
    let forbidden = |support: &Support| matches!(support, Support::No(why) if why.starts_with("the configuration forbids"));
    assert_eq!(inventory.known_llc().clos_count, 1);
    assert!(forbidden(&inventory.dca_ways_switch) && forbidden(&inventory.ports[1].dca_switch));
    assert_eq!(inventory.ports[0].dca_switch, Support::Yes);
    refused(&host.apply(&plan()).unwrap()[Knob::DcaWays], "only observes this host");
    // The limit holds also after tenants are set.
    let mut host = look(AllowedChanges { max_classes: Some(2), ..AllowedChanges::default() });
    host.set_tenants(machine.options().tenants);
    assert_eq!(host.inventory().known_llc().clos_count, 3);
    let all = look(AllowedChanges::default()).inventory().known_llc().clos_count;
    assert!(all > 3);
    assert_eq!(
        look(AllowedChanges { max_classes: Some(99), ..AllowedChanges::default() })
            .inventory()
            .known_llc()
            .clos_count,
        all
    );
    let mut host = look(AllowedChanges { cpus: Some("0-3".parse().unwrap()), ..AllowedChanges::default() });
    let mut tenants = machine.options().tenants;
    tenants[1].cores = "4-5".parse().unwrap();
    assert!(
        host.set_tenants(tenants).refused[0].why.starts_with("the configuration forbids moving CPUs 4-5")
    );
}

/// A profile that found the register and the first port's switch without effect.
fn dead(identity: MachineIdentity) -> MachineProfile {
    let address = identity.ports[0].clone();
    MachineProfile {
        version: VERSION,
        made_unix_s: 0,
        made_by: "0.1.0".to_owned(),
        evidence: Vec::new(),
        host: identity,
        ways: Ways { dca: None, inclusive: Some(WayMask::from_bits(0x004)) },
        register: Some(DcaWaysRegister {
            state: KnobState::NoEffect,
            kept: None,
            fewest: None,
            most: None,
            least: None,
        }),
        port: vec![ProfiledPort { address, switch: KnobState::NoEffect, writes: Writes::ThisLlc }],
    }
}

#[test]
fn what_a_profile_says_is_dead_is_there_to_be_read_only() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let host = open(&machine, |_| {});
    let identity = MachineIdentity::of(host.inventory(), microcode(&machine.root()));
    assert_eq!(host.inventory().dca_ways_switch, Support::Yes);
    drop(host);
    let with = |identity: MachineIdentity| {
        let profile = Some(("p.toml".into(), dead(identity)));
        open(&machine, |options| options.profile = profile)
    };
    let mut host = with(identity.clone());
    let inventory = host.inventory();
    assert_eq!(
        (&inventory.dca_ways_switch, &inventory.ports[0].dca_switch),
        (&Support::ReadOnly, &Support::ReadOnly)
    );
    assert_eq!(inventory.ports[1].dca_switch, Support::Yes);
    assert_eq!(inventory.known_llc().inclusive_ways, Some(WayMask::from_bits(0x004)));
    let applied = host.apply(&plan()).unwrap();
    refused(&applied[Knob::DcaWays], "machine profile");
    refused(&applied[Knob::Dca(PortId(0))], "machine profile");
    assert_eq!(applied[Knob::Dca(PortId(1))], KnobOutcome::Applied);
    assert_eq!(sample(&mut host).knobs.dca_ways(), Some(WayMask::from_bits(0x600)));
    drop(host);
    // A profile of other hardware is reported and not used.
    let host = with(MachineIdentity { llc_ways: 12, ..identity });
    assert_eq!(host.inventory().dca_ways_switch, Support::Yes);
    let reported =
        host.notes().iter().find(|note| note.contains("p.toml: the profile is from another machine"));
    assert!(
        reported.is_some_and(|note| note.contains("its LLC has 12 ways, this LLC has 11")),
        "{:?}",
        host.notes()
    );
    drop(host);
    assert_eq!(machine.state(), found);
}

/// Another program sets the DCA ways and switches DCA of a port.
fn take_dca(machine: &MountedHost, port: &str, bit: RegisterBit) {
    machine.set_msr(0, 0xc8b, 0x7c0);
    let config = machine.config(port);
    let mut byte = [0];
    config.read_exact_at(&mut byte, bit.offset.into()).unwrap();
    config.write_at(&[byte[0] ^ 1 << bit.bit], bit.offset.into()).unwrap();
}

/// AMD's kernels report sparse_masks 1.
#[test]
fn a_mask_with_holes_is_accepted_where_the_cpu_takes_it() {
    for (chip, is_accepted) in [("epyc-9554", true), ("gold-6140", false)] {
        let machine = MountedHost::new(chip);
        let mut options = machine.options();
        options.tenants[0].mask = Some("0x5".to_owned());
        match LinuxHost::open(options) {
            Err(why) => assert!(!is_accepted && why.to_string().contains("mask 0x005 has holes"), "{why}"),
            Ok(mut host) => {
                assert!(is_accepted && host.inventory().known_llc().sparse_masks);
                let mask = host.workloads()[0].mask.unwrap();
                let masks = std::collections::BTreeMap::from([(L2FWD, mask)]);
                assert!(host.apply(&Plan::of_masks(masks)).unwrap().is_complete());
                assert_eq!(sample(&mut host).knobs.mask(L2FWD).unwrap().bits(), 0x5);
                assert!(host.close().expect("closed").is_complete());
            }
        }
    }
}

/// NoSnoopOpWrEn (bit 3) is in the same register as the switch.
#[test]
fn the_switch_of_dca_leaves_the_other_bits_of_its_register() {
    let machine = MountedHost::new("gold-6140");
    let switch = Generation::by_id("skx").and_then(|chip| chip.dca.port.allocating).expect("a switch");
    let mut host = open(&machine, |_| {});
    let config = machine.config(&host.inventory().ports[0].address.clone());
    let byte = || {
        let mut byte = [0];
        config.read_exact_at(&mut byte, switch.offset.into()).unwrap();
        byte[0]
    };
    config.write_at(&[byte() | 1 << 3], switch.offset.into()).unwrap();
    let found = byte();
    for on in [false, true, false] {
        assert!(host.apply(&Plan::of_dca([(PortId(0), on)])).unwrap().is_complete());
        assert_eq!(byte() & !(1 << switch.bit), found & !(1 << switch.bit), "{on}");
    }
    assert!(host.close().expect("closed").is_complete());
    assert_eq!(byte(), found);
}

#[test]
fn a_later_change_of_dca_by_another_program_is_kept() {
    let machine = MountedHost::new("gold-6140");
    let bit = Generation::by_id("skx").and_then(|chip| chip.dca.port.allocating).expect("a switch");
    let dca = |on: bool| Plan::of_dca([(PortId(0), on), (PortId(1), false)]);
    let turn = |host: &mut LinuxHost, bits: u32, on: bool| {
        let applied = host.apply(&dca(on).with(Knob::DcaWays, WayMask::from_bits(bits))).unwrap();
        assert!(applied.is_complete(), "{applied:?}");
        sample(host)
    };
    let state = |host: &mut LinuxHost| {
        let knobs = sample(host).knobs;
        (knobs.dca_ways().unwrap().bits(), knobs.dca(PortId(0)).unwrap(), knobs.dca(PortId(1)).unwrap())
    };
    let opened = || {
        let mut host = open(&machine, |_| {});
        let port = host.inventory().ports[0].address.clone();
        assert_eq!(state(&mut host), (0x600, true, true));
        // Off and on again, so that the other program's values differ from the originals.
        turn(&mut host, 0x700, false);
        turn(&mut host, 0x780, true);
        (host, port)
    };
    let look = |bits: u32, on: bool| {
        let mut host = open(&machine, |options| options.access = HostAccess::Observe);
        assert_eq!(state(&mut host), (bits, on, true));
    };
    // Whether or not a sample detects them before the end, both external values stay. The other port's switch is
    // restored.
    for samples in [1, 0] {
        let (mut host, port) = opened();
        take_dca(&machine, &port, bit);
        (0..samples).for_each(|_| drop(sample(&mut host)));
        assert!(host.close().expect("closed").is_complete());
        drop(host);
        look(0x7c0, false);
        take_dca(&machine, &port, bit);
        machine.set_msr(0, 0xc8b, 0x600);
    }
    // After our next write the knob is ours again. Its original is what the other program had set, not the value from
    // before that program: the journal dropped that one when the program took the knob.
    let (mut host, port) = opened();
    take_dca(&machine, &port, bit);
    assert_eq!(state(&mut host), (0x7c0, false, false));
    turn(&mut host, 0x700, true);
    assert!(host.close().expect("closed").is_complete());
    drop(host);
    look(0x7c0, false);
    take_dca(&machine, &port, bit);
    machine.set_msr(0, 0xc8b, 0x600);
    // After a crash the value of the register shows which program set it.
    let (host, _) = opened();
    let seal = machine.journal().with_extension("seal");
    let [crashed, sealed] = [machine.journal(), seal.clone()].map(|path| std::fs::read(path).unwrap());
    drop(host);
    for (held, left) in [(0x7c0, 0x7c0), (0x780, 0x600), (0x700, 0x600)] {
        std::fs::write(machine.journal(), &crashed).unwrap();
        std::fs::write(&seal, &sealed).unwrap();
        machine.set_msr(0, 0xc8b, held);
        assert_eq!(machine.restore_failures(), "");
        assert_eq!(machine.msr(0, 0xc8b), left);
    }
}

#[test]
fn a_monitoring_group_that_another_program_made_in_ours_outlives_it() {
    let machine = MountedHost::new("gold-6140");
    let root = machine.root();
    let mut host = open(&machine, |_| {});
    let inside = "/sys/fs/resctrl/waykeeper-l2fwd/mon_groups/theirs";
    root.make_dir(inside).unwrap();
    root.write_once(format!("{inside}/cpus_list"), "1\n").unwrap();
    for _ in 0..16 {
        sample(&mut host);
    }
    let seen = ExternalChange::MonitorInside { group: "waykeeper-l2fwd".into(), monitor: "theirs".into() };
    assert_eq!(host.external_changes(), [seen]);
    // The tenant is removed, and its group with it; the other program's group moves to the default group, with its CPU.
    let mut tenants = machine.options().tenants;
    let first = tenants.remove(0);
    host.set_tenants(tenants.clone());
    assert!(!root.exists("/sys/fs/resctrl/waykeeper-l2fwd"));
    assert_eq!(root.read_text("/sys/fs/resctrl/mon_groups/theirs/cpus_list").unwrap(), "1\n");
    // The same when the host is closed.
    root.remove_dir("/sys/fs/resctrl/mon_groups/theirs").unwrap();
    tenants.push(first);
    host.set_tenants(tenants);
    root.make_dir(inside).unwrap();
    root.write_once(format!("{inside}/cpus_list"), "0\n").unwrap();
    assert!(host.close().expect("closed").is_complete());
    assert_eq!(root.read_text("/sys/fs/resctrl/mon_groups/theirs/cpus_list").unwrap(), "0\n");
    drop(host);
    // If the group cannot move (its name is taken), ours stays, empty, and this is reported.
    let mut host = open(&machine, |_| {});
    root.make_dir(inside).unwrap();
    let report = host.close().expect("the journal stays");
    let reported: Vec<String> = report.failures().map(|(_, why)| why.to_owned()).collect();
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(
        reported[0]
            .contains("the monitoring group theirs in it was made by another program and cannot be moved"),
        "{reported:?}"
    );
    assert_eq!(root.read_text("/sys/fs/resctrl/waykeeper-l2fwd/cpus_list").unwrap(), "\n");
    drop(host);
    root.remove_dir(inside).unwrap();
    let mut host = open(&machine, |_| {});
    assert!(host.close().expect("closed").is_complete());
    assert!(!machine.journal().exists());
}

#[test]
fn what_another_programs_monitoring_group_counts_survives_a_crash_during_its_move() {
    let machine = MountedHost::new("gold-6140");
    let root = machine.root();
    let inside = "sys/fs/resctrl/waykeeper-l2fwd/mon_groups/theirs";
    let refuse = |path: &str, operation: Operation, calls: Calls| {
        let (operation, fault) = (Some(operation), FileFault::Refuse(rustix::io::Errno::IO));
        machine.faults.inject(FaultRule { path: path.to_owned(), operation, calls, fault });
    };
    let mut host = open(&machine, |_| {});
    root.make_dir(inside).unwrap();
    root.write_once(format!("{inside}/cpus_list"), "1\n").unwrap();
    // Its monitoring groups cannot be listed: our group stays as it is.
    refuse("sys/fs/resctrl/waykeeper-l2fwd/mon_groups", Operation::List, Calls::All);
    let report = host.close().expect("the journal stays");
    assert_eq!(report.failures().count(), 1, "{report:?}");
    drop(host);
    machine.faults.lift();
    assert_eq!(root.read_text(format!("{inside}/cpus_list")).unwrap(), "1\n");
    // Its CPUs are taken; then moving it and returning the CPUs both fail.
    refuse(inside, Operation::Rename, Calls::All);
    refuse(&format!("{inside}/cpus_list"), Operation::Write, Calls::Nth(2));
    assert!(machine.restore_failures().contains("waykeeper-l2fwd"));
    machine.faults.lift();
    assert_eq!(root.read_text(format!("{inside}/cpus_list")).unwrap(), "\n");
    assert_eq!(machine.restore_failures(), "");
    assert_eq!(root.read_text("/sys/fs/resctrl/mon_groups/theirs/cpus_list").unwrap(), "1\n");
    assert!(!root.exists("/sys/fs/resctrl/waykeeper-l2fwd") && !machine.journal().exists());
}
