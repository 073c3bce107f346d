//! What LinuxHost may change, and external changes: observation, limits and corrections, on the virtual host with a
//! held clock. Needs root and /dev/fuse.

use std::collections::BTreeMap;
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

const L2FWD: WorkloadId = WorkloadId(0);
const SCAN: WorkloadId = WorkloadId(2);
const FIO: WorkloadId = WorkloadId(1);

fn open(machine: &MountedHost, change: impl FnOnce(&mut LinuxHostOptions)) -> LinuxHost {
    let mut options = machine.options();
    change(&mut options);
    LinuxHost::open(options).unwrap_or_else(|error| panic!("{error}"))
}

fn sample(host: &mut LinuxHost) -> Snapshot {
    host.sample().unwrap_or_else(|error| panic!("{error}"))
}

/// A plan with every knob.
fn plan() -> Plan {
    Plan::of_masks([(L2FWD, WayMask::from_bits(0x600)), (SCAN, WayMask::from_bits(0x3))])
        .with(Knob::DcaWays, WayMask::from_bits(0x700))
        .with(Knob::Dca(PortId(0)), false)
        .with(Knob::Dca(PortId(1)), false)
}

fn refused(outcome: &KnobOutcome, words: &str) {
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
    assert_eq!(inventory.llc.clos_count, 1);
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
    assert_eq!((host.inventory().llc.clos_count, host.groupings().len()), (3, 1));
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
    assert_eq!(inventory.llc.clos_count, 1);
    assert!(forbidden(&inventory.dca_ways_switch) && forbidden(&inventory.ports[1].dca_switch));
    assert_eq!(inventory.ports[0].dca_switch, Support::Yes);
    refused(&host.apply(&plan()).unwrap()[Knob::DcaWays], "only observes this host");
    // The limit holds also after tenants are set.
    let mut host = look(AllowedChanges { max_classes: Some(2), ..AllowedChanges::default() });
    host.set_tenants(machine.options().tenants);
    assert_eq!(host.inventory().llc.clos_count, 3);
    let all = look(AllowedChanges::default()).inventory().llc.clos_count;
    assert!(all > 3);
    assert_eq!(
        look(AllowedChanges { max_classes: Some(99), ..AllowedChanges::default() })
            .inventory()
            .llc
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
    assert_eq!(inventory.llc.inclusive_ways, Some(WayMask::from_bits(0x004)));
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

/// Another program removes scan's group, takes l2fwd's CPU 1, and adds CPU 9 to fio's group.
fn disturb(machine: &MountedHost) {
    let root = machine.root();
    root.remove_dir("/sys/fs/resctrl/waykeeper-scan").unwrap();
    if !root.exists("/sys/fs/resctrl/COS1") {
        root.make_dir("/sys/fs/resctrl/COS1").unwrap();
    }
    root.write_once("/sys/fs/resctrl/COS1/cpus_list", "1\n").unwrap();
    root.write_once("/sys/fs/resctrl/waykeeper-fio/cpus_list", "2,9\n").unwrap();
}

#[test]
fn what_others_do_to_our_groups_is_reported_once_and_left() {
    let machine = MountedHost::new("gold-6140");
    let mut host = open(&machine, |_| {});
    assert_eq!(sample(&mut host).groups.len(), 3);
    assert_eq!(host.external_changes(), []);
    disturb(&machine);
    for _ in 0..3 {
        sample(&mut host);
    }
    let expected = [
        ExternalChange::CpusAdded { group: "waykeeper-fio".into(), cpus: "9".parse().unwrap() },
        ExternalChange::GroupGone { group: "waykeeper-scan".into(), tenants: vec!["scan".into()] },
        ExternalChange::CpusLost {
            group: "waykeeper-l2fwd".into(),
            tenants: vec!["l2fwd".into()],
            cpus: "1".parse().unwrap(),
            by: Some("COS1".into()),
        },
    ];
    assert_eq!(host.external_changes(), expected);
    let mut reported = host.complaints();
    reported.sort();
    assert_eq!(
        reported,
        [
            "CPUs 1 of l2fwd are no longer in resctrl group waykeeper-l2fwd; they are in COS1",
            "another program put CPUs 9 into resctrl group waykeeper-fio",
            "resctrl group waykeeper-scan is gone: another program removed it",
        ]
    );
    // It is left as it is, also when tenants are set and when a policy requests a mask there.
    host.set_tenants(machine.options().tenants);
    let root = machine.root();
    let applied = host.apply(&plan()).unwrap();
    refused(
        &applied[Knob::Mask(SCAN)],
        "another program removed resctrl group waykeeper-scan; Waykeeper leaves it removed",
    );
    assert_eq!(applied[Knob::Mask(L2FWD)], KnobOutcome::Applied);
    assert_eq!(sample(&mut host).knobs.mask(SCAN).unwrap().bits(), 0x7ff, "what the default group has");
    assert_eq!(host.complaints(), [""; 0]);
    assert_eq!(root.read_text("/sys/fs/resctrl/COS1/cpus_list").unwrap(), "1\n");
    assert!(!root.exists("/sys/fs/resctrl/waykeeper-scan"));
    // An external change ends when it is undone.
    root.remove_dir("/sys/fs/resctrl/COS1").unwrap();
    root.write_once("/sys/fs/resctrl/waykeeper-l2fwd/cpus_list", "0-1\n").unwrap();
    root.write_once("/sys/fs/resctrl/waykeeper-fio/cpus_list", "2\n").unwrap();
    sample(&mut host);
    assert_eq!(host.external_changes().len(), 1);
    // A group with the removed group's name is its maker's, also when we close.
    root.make_dir("/sys/fs/resctrl/waykeeper-scan").unwrap();
    root.write_once("/sys/fs/resctrl/waykeeper-scan/cpus_list", "7\n").unwrap();
    assert!(host.close().expect("closed").is_complete());
    assert_eq!(root.read_text("/sys/fs/resctrl/waykeeper-scan/cpus_list").unwrap(), "7\n");
}

#[test]
fn what_others_do_is_put_right_three_times_if_that_is_configured() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let mut host = open(&machine, |options| options.correct = true);
    let root = machine.root();
    for round in 1..=4 {
        disturb(&machine);
        sample(&mut host);
        host.set_tenants(machine.options().tenants);
        sample(&mut host);
        let cpus =
            |group: &str| root.read_text(format!("/sys/fs/resctrl/{group}/cpus_list")).unwrap_or_default();
        let groups = ["waykeeper-l2fwd", "waykeeper-fio", "waykeeper-scan"].map(cpus);
        if round < 4 {
            assert_eq!(groups, ["0-1\n", "2\n", "3\n"], "{round}");
            assert_eq!(host.external_changes(), [], "{round}");
        } else {
            assert_eq!(groups, ["0\n", "2,9\n", ""], "who does it a fourth time means it");
            assert_eq!(host.external_changes().len(), 3);
        }
    }
    let reported = host.complaints();
    assert!(
        reported.contains(&"resctrl group waykeeper-scan was corrected, 3 of 3 times".to_owned()),
        "{reported:?}"
    );
    assert!(host.close().expect("closed").is_complete());
    drop(host);
    root.remove_dir("/sys/fs/resctrl/COS1").unwrap();
    assert_eq!(machine.state(), found);
}

/// Another tool's leftover groups have every class, and then give some up.
#[test]
fn classes_that_other_programs_release_are_used() {
    let machine = MountedHost::new("gold-6140");
    let root = machine.root();
    let names: Vec<String> = (1..)
        .map(|number| format!("/sys/fs/resctrl/COS{number}"))
        .take_while(|path| root.make_dir(path).is_ok())
        .collect();
    assert!(names.len() > 2, "{names:?}");
    let mut host = open(&machine, |_| {});
    let held = format!("groups of other programs hold {0} of {0}: COS1, COS2", names.len());
    let groupings = host.groupings();
    assert_eq!(groupings.len(), 3);
    for own in groupings {
        assert!(own.in_default && own.why.contains(&held), "{}", own.why);
    }
    assert_eq!(host.inventory().llc.clos_count, 1);
    names[..2].iter().for_each(|path| root.remove_dir(path).unwrap());
    host.set_tenants(machine.options().tenants);
    assert_eq!(host.inventory().llc.clos_count, 3);
    let waiting: Vec<String> = host.groupings().into_iter().map(|own| own.tenant).collect();
    assert_eq!(waiting.len(), 1, "{waiting:?}");
    root.remove_dir(&names[2]).unwrap();
    host.set_tenants(machine.options().tenants);
    assert_eq!(host.groupings(), []);
    assert_eq!(root.read_text("/sys/fs/resctrl/waykeeper-l2fwd/cpus_list").unwrap(), "0-1\n");
    // Nothing is left to be had: the groups are not listed at each look.
    machine.faults.forget();
    names[3..].iter().for_each(|path| root.remove_dir(path).unwrap());
    host.set_tenants(machine.options().tenants);
    assert!(host.close().expect("closed").is_complete());
}

#[test]
fn ways_that_another_group_has_for_itself_are_named_in_the_refusal() {
    let machine = MountedHost::new("gold-6140");
    let root = machine.root();
    let write = |path: &str, text: &str| root.write_once(format!("/sys/fs/resctrl/{path}"), text).unwrap();
    root.make_dir("/sys/fs/resctrl/excl").unwrap();
    write("excl/schemata", "L3:0=003\n");
    write("schemata", "L3:0=7fc\n");
    write("excl/mode", "exclusive\n");
    let mut host = open(&machine, |_| {});
    let applied = host.apply(&Plan::of_masks(BTreeMap::from([(FIO, WayMask::from_bits(0x00f))]))).unwrap();
    refused(&applied[Knob::Mask(FIO)], "but the ways 0x003 belong to group excl alone (exclusive)");
    // Freed ways are had at the next request.
    write("excl/mode", "shareable\n");
    let applied = host.apply(&Plan::of_masks(BTreeMap::from([(FIO, WayMask::from_bits(0x00f))]))).unwrap();
    assert_eq!(applied[Knob::Mask(FIO)], KnobOutcome::Applied);
    assert!(host.close().expect("closed").is_complete());
}

/// The mode of a group is looked at in every 16th sample.
const MODE_EVERY: usize = 16;

#[test]
fn a_mode_that_another_program_sets_is_reported_and_corrected_if_that_is_configured() {
    for correct in [false, true] {
        let machine = MountedHost::new("gold-6140");
        let root = machine.root();
        let mut host = open(&machine, |options| options.correct = correct);
        let masks = BTreeMap::from([(FIO, 0x00f), (L2FWD, 0x7f0), (SCAN, 0x7f0)]);
        let masks: BTreeMap<_, _> =
            masks.into_iter().map(|(id, bits)| (id, WayMask::from_bits(bits))).collect();
        assert!(host.apply(&Plan::of_masks(masks)).unwrap().is_complete());
        root.write_once("/sys/fs/resctrl/schemata", "L3:0=7f0\n").unwrap();
        root.write_once("/sys/fs/resctrl/waykeeper-fio/mode", "exclusive\n").unwrap();
        (0..MODE_EVERY).for_each(|_| drop(sample(&mut host)));
        let group = "waykeeper-fio".to_owned();
        assert_eq!(host.external_changes(), [ExternalChange::ModeChanged { group, mode: "exclusive" }]);
        host.set_tenants(machine.options().tenants);
        let mode = root.read_text("/sys/fs/resctrl/waykeeper-fio/mode").unwrap();
        assert_eq!(mode, if correct { "shareable\n" } else { "exclusive\n" });
        (0..MODE_EVERY).for_each(|_| drop(sample(&mut host)));
        assert_eq!(host.external_changes().is_empty(), correct);
    }
}

#[test]
fn a_resctrl_that_is_unmounted_is_no_group_that_is_gone() {
    let machine = MountedHost::new("gold-6140");
    let root = machine.root();
    let mut host = open(&machine, |_| {});
    sample(&mut host);
    root.write_once("/waykeeper/resctrl", "umount\n").unwrap();
    // Without a mask and without a count the sample may be an error; what is known is reported.
    let _ = host.sample();
    assert_eq!(host.external_changes(), [ExternalChange::Unmounted]);
    let postponed = host.set_tenants(machine.options().tenants[..1].to_vec()).postponed.unwrap();
    assert!(postponed.contains("another program unmounted resctrl; run: mount -t resctrl"), "{postponed}");
    let journal = std::fs::read_to_string(machine.journal()).unwrap();
    assert!(journal.contains("waykeeper-fio"), "the journal keeps what may still be there: {journal}");
    root.write_once("/waykeeper/resctrl", "mount\n").unwrap();
    let _ = host.sample();
    assert!(host.external_changes().iter().all(|own| matches!(own, ExternalChange::GroupGone { .. })));
    assert!(host.close().expect("closed").is_complete());
}

/// Another program sets the DCA ways and switches DCA of a port.
fn take_dca(machine: &MountedHost, port: &str, bit: RegisterBit) {
    machine.set_msr(0, 0xc8b, 0x7c0);
    let config = machine.config(port);
    let mut byte = [0];
    config.read_exact_at(&mut byte, bit.offset.into()).unwrap();
    config.write_at(&[byte[0] ^ 1 << bit.bit], bit.offset.into()).unwrap();
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
