//! What other programs do to our groups, to the classes and ways beside them, and to resctrl itself. Needs root and
//! /dev/fuse.

use crate::access::{FIO, L2FWD, SCAN, open, plan, refused, sample};
use rustix::io::Errno;
use std::collections::BTreeMap;
use waykeeper_host::{Host, Knob, KnobOutcome, Plan, WorkloadCounter};
use waykeeper_linux_host::{ExternalChange, HostAccess, LinuxHost};
use waykeeper_testbed::{MS, MountedHost};
use waykeeper_units::WayMask;
use waykeeper_vhost::faults::{Calls, FaultRule, FileFault, Operation};

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
    assert_eq!(host.inventory().known_llc().clos_count, 1);
    names[..2].iter().for_each(|path| root.remove_dir(path).unwrap());
    host.set_tenants(machine.options().tenants);
    assert_eq!(host.inventory().known_llc().clos_count, 3);
    let waiting: Vec<String> = host.groupings().into_iter().map(|own| own.tenant).collect();
    assert_eq!(waiting.len(), 1, "{waiting:?}");
    root.remove_dir(&names[2]).unwrap();
    host.set_tenants(machine.options().tenants);
    assert_eq!(host.groupings(), []);
    assert_eq!(root.read_text("/sys/fs/resctrl/waykeeper-l2fwd/cpus_list").unwrap(), "0-1\n");
    assert!(host.close().expect("closed").is_complete());
}

#[test]
fn rmids_that_other_programs_hold_are_named_and_used_when_they_are_free() {
    let machine = MountedHost::new("gold-6140");
    let root = machine.root();
    let names: Vec<String> = (1..)
        .map(|number| format!("/sys/fs/resctrl/mon_groups/m{number}"))
        .take_while(|path| root.make_dir(path).is_ok())
        .collect();
    let mut host = open(&machine, |_| {});
    // The default group has one.
    let all = names.len() + 1;
    let held = format!("groups of other programs hold {}: mon_groups/m1, mon_groups/m10, ", names.len());
    let why = format!("all {all} RMIDs are in use, and each class needs one; {held}");
    let groupings = host.groupings();
    assert_eq!(groupings.len(), 3);
    groupings.iter().for_each(|own| assert!(own.in_default && own.why.starts_with(&why), "{}", own.why));
    names.iter().for_each(|path| root.remove_dir(path).unwrap());
    machine.run(20 * MS);
    // Lines of a removed group may keep its RMID busy until they are evicted.
    machine.faults.inject(FaultRule {
        path: "sys/fs/resctrl/waykeeper-scan".to_owned(),
        operation: Some(Operation::MakeDirectory),
        calls: Calls::All,
        fault: FileFault::Refuse(Errno::BUSY),
    });
    (0..2).for_each(|_| drop(host.set_tenants(machine.options().tenants)));
    let waiting: Vec<String> = host.groupings().into_iter().map(|own| own.tenant).collect();
    assert_eq!(waiting, ["scan"]);
    machine.faults.lift();
    host.set_tenants(machine.options().tenants);
    assert_eq!(host.groupings(), []);
    assert!(host.close().expect("closed").is_complete());
}

/// The kernel makes the group and refuses its shares: another group's mode may keep them for hours.
#[test]
fn a_class_that_cannot_be_set_up_is_tried_again_with_pauses() {
    let machine = MountedHost::new("gold-6140");
    let root = machine.root();
    let names: Vec<String> = (1..)
        .map(|number| format!("/sys/fs/resctrl/COS{number}"))
        .take_while(|path| root.make_dir(path).is_ok())
        .collect();
    let mut host = open(&machine, |_| {});
    root.write_once("/sys/fs/resctrl/schemata", "MB:0=80\n").unwrap();
    machine.faults.inject(FaultRule {
        path: "sys/fs/resctrl/waykeeper-*/schemata".to_owned(),
        operation: Some(Operation::Write),
        calls: Calls::All,
        fault: FileFault::Refuse(Errno::BUSY),
    });
    root.remove_dir(&names[0]).unwrap();
    machine.faults.forget();
    (0..16).for_each(|_| drop(host.set_tenants(machine.options().tenants)));
    let made = |name: &str| {
        let made = (format!("sys/fs/resctrl/waykeeper-{name}"), Operation::MakeDirectory);
        machine.faults.seen().get(&made).copied().unwrap_or_default()
    };
    // In rounds 1, 2, 4, 8 and 16 after the first.
    assert_eq!(made("l2fwd"), 5);
    machine.faults.lift();
    (0..64).for_each(|_| drop(host.set_tenants(machine.options().tenants)));
    assert_eq!(made("l2fwd"), 6);
}

#[test]
fn ways_that_another_group_has_for_itself_are_named_and_had_once_they_are_free() {
    let machine = MountedHost::new("gold-6140");
    let root = machine.root();
    let write = |path: &str, text: &str| root.write_once(format!("/sys/fs/resctrl/{path}"), text).unwrap();
    root.make_dir("/sys/fs/resctrl/excl").unwrap();
    write("excl/schemata", "L3:0=003\n");
    write("schemata", "L3:0=7fc\n");
    write("excl/mode", "exclusive\n");
    let mut host = open(&machine, |_| {});
    let masks = Plan::of_masks(BTreeMap::from([(FIO, WayMask::from_bits(0x00f))]));
    let applied = host.apply(&masks).unwrap();
    // The control loop asks again for what is busy.
    let named = "but the ways 0x003 belong to group excl alone (exclusive)";
    let busy = matches!(&applied[Knob::Mask(FIO)], KnobOutcome::Busy(why) if why.contains(named));
    assert!(busy, "{applied:?}");
    root.remove_dir("/sys/fs/resctrl/excl").unwrap();
    let applied = host.apply(&masks).unwrap();
    assert_eq!(applied[Knob::Mask(FIO)], KnobOutcome::Applied);
    assert!(host.close().expect("closed").is_complete());
}

/// Modes, shares and registers are looked at in every 16th sample.
const EVERY: usize = 16;

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
        (0..EVERY).for_each(|_| drop(sample(&mut host)));
        let group = "waykeeper-fio".to_owned();
        assert_eq!(host.external_changes(), [ExternalChange::ModeChanged { group, mode: "exclusive" }]);
        host.set_tenants(machine.options().tenants);
        let mode = root.read_text("/sys/fs/resctrl/waykeeper-fio/mode").unwrap();
        assert_eq!(mode, if correct { "shareable\n" } else { "exclusive\n" });
        (0..EVERY).for_each(|_| drop(sample(&mut host)));
        assert_eq!(host.external_changes().is_empty(), correct);
    }
}

/// IA32_L3_QOS_MASK_0 (hardware.md 7.5).
const FIRST_MASK: u32 = 0xc90;

#[test]
fn masks_that_are_written_past_resctrl_are_reported_and_corrected_if_that_is_configured() {
    for correct in [false, true] {
        let machine = MountedHost::new("gold-6140");
        let mut host = open(&machine, |options| options.correct = correct);
        let masks = BTreeMap::from([(FIO, WayMask::from_bits(0x600))]);
        assert!(host.apply(&Plan::of_masks(masks)).unwrap().is_complete());
        sample(&mut host);
        assert_eq!(host.external_changes(), []);
        // pqos in MSR mode: class 2 is fio's, the second tenant's.
        let register = FIRST_MASK + machine.with_model(|server| server.class(2).0);
        machine.set_msr(0, register, 0x003);
        (0..EVERY).for_each(|_| drop(sample(&mut host)));
        let (group, mask) = ("waykeeper-fio".to_owned(), WayMask::from_bits(0x600));
        assert_eq!(host.external_changes(), [ExternalChange::MaskBehind { group, mask }]);
        host.set_tenants(machine.options().tenants);
        assert_eq!(machine.msr(0, register), if correct { 0x600 } else { 0x003 });
        (0..EVERY).for_each(|_| drop(sample(&mut host)));
        assert_eq!(host.external_changes().is_empty(), correct);
        machine.set_msr(0, register, 0x600);
        (0..EVERY).for_each(|_| drop(sample(&mut host)));
        assert_eq!(host.external_changes(), []);
    }
}

/// Makes fio's register differ from the mask that resctrl shows, and looks for it. Returns the register.
fn change_register(machine: &MountedHost, host: &mut LinuxHost, bits: u64) -> u32 {
    let register = FIRST_MASK + machine.with_model(|server| server.class(2).0);
    machine.set_msr(0, register, bits);
    (0..EVERY).for_each(|_| drop(sample(host)));
    register
}

#[test]
fn the_mask_that_a_policy_sets_meanwhile_is_not_corrected_to_the_one_before() {
    let machine = MountedHost::new("gold-6140");
    let mut host = open(&machine, |options| options.correct = true);
    let of = |bits: u32| Plan::of_masks(BTreeMap::from([(FIO, WayMask::from_bits(bits))]));
    assert!(host.apply(&of(0x600)).unwrap().is_complete());
    let register = change_register(&machine, &mut host, 0x003);
    assert_eq!(host.external_changes().len(), 1);
    assert!(host.apply(&of(0x00f)).unwrap().is_complete());
    assert_eq!(host.external_changes(), [], "the kernel wrote the register");
    host.set_tenants(machine.options().tenants);
    assert_eq!(machine.msr(0, register), 0x00f);
    assert_eq!(sample(&mut host).knobs.mask(FIO), Some(WayMask::from_bits(0x00f)));
}

#[test]
fn a_register_that_keeps_its_value_counts_as_no_correction() {
    let machine = MountedHost::new("gold-6140");
    let root = machine.root();
    let write = |path: &str, text: &str| root.write_once(format!("/sys/fs/resctrl/{path}"), text).unwrap();
    let mut host = open(&machine, |options| options.correct = true);
    let masks =
        [(FIO, 0x001), (L2FWD, 0x7f0), (SCAN, 0x7f0)].map(|(id, bits)| (id, WayMask::from_bits(bits)));
    assert!(host.apply(&Plan::of_masks(BTreeMap::from(masks))).unwrap().is_complete());
    // Beside 0x001 only 0x003 could be written first, and another group keeps that way for itself.
    root.make_dir("/sys/fs/resctrl/excl").unwrap();
    write("excl/schemata", "L3:0=002\n");
    write("schemata", "L3:0=7fc\n");
    write("excl/mode", "exclusive\n");
    let register = change_register(&machine, &mut host, 0x00f);
    host.complaints();
    host.set_tenants(machine.options().tenants);
    assert_eq!(machine.msr(0, register), 0x00f);
    let said = host.complaints();
    assert!(said[0].starts_with("resctrl group waykeeper-fio could not be corrected: "), "{said:?}");
    assert!(said[0].contains("belong to group excl alone"), "{said:?}");
}

#[test]
fn what_was_found_in_a_group_is_not_written_into_another_programs_group_of_its_name() {
    let machine = MountedHost::new("gold-6140");
    let root = machine.root();
    let fio = "/sys/fs/resctrl/waykeeper-fio";
    let mut host = open(&machine, |options| options.correct = true);
    let masks = [(L2FWD, 0x7f0), (SCAN, 0x7f0)].map(|(id, bits)| (id, WayMask::from_bits(bits)));
    assert!(host.apply(&Plan::of_masks(BTreeMap::from(masks))).unwrap().is_complete());
    root.write_once("/sys/fs/resctrl/schemata", "L3:0=7f0\n").unwrap();
    let set_apart = || {
        root.write_once(format!("{fio}/schemata"), "L3:0=00f\n").unwrap();
        root.write_once(format!("{fio}/mode"), "exclusive\n").unwrap();
    };
    set_apart();
    (0..EVERY).for_each(|_| drop(sample(&mut host)));
    assert_eq!(host.external_changes().len(), 1);
    root.remove_dir(fio).unwrap();
    root.make_dir(fio).unwrap();
    set_apart();
    host.complaints();
    host.set_tenants(machine.options().tenants);
    assert_eq!(root.read_text(format!("{fio}/mode")).unwrap(), "exclusive\n");
    let said = host.complaints();
    assert!(!said.iter().any(|said| said.contains("was corrected")), "{said:?}");
}

#[test]
fn the_default_groups_register_stays_where_its_cpus_are_corrected() {
    let machine = MountedHost::new("gold-6140");
    let root = machine.root();
    let made = (1..).take_while(|number| root.make_dir(format!("/sys/fs/resctrl/COS{number}")).is_ok());
    assert!(made.count() > 2);
    let mut host = open(&machine, |options| options.correct = true);
    sample(&mut host);
    machine.set_msr(0, FIRST_MASK, 0x00f);
    root.write_once("/sys/fs/resctrl/COS1/cpus_list", "1\n").unwrap();
    (0..EVERY).for_each(|_| drop(sample(&mut host)));
    assert_eq!(host.external_changes().len(), 2);
    host.set_tenants(machine.options().tenants);
    assert_eq!(root.read_text("/sys/fs/resctrl/COS1/cpus_list").unwrap(), "\n");
    assert_eq!(machine.msr(0, FIRST_MASK), 0x00f);
}

#[test]
fn the_default_groups_register_is_not_ours_to_correct() {
    let machine = MountedHost::new("gold-6140");
    let mut host = open(&machine, |options| options.correct = true);
    machine.set_msr(0, FIRST_MASK, 0x00f);
    (0..EVERY).for_each(|_| drop(sample(&mut host)));
    host.complaints();
    host.set_tenants(machine.options().tenants);
    (0..EVERY).for_each(|_| drop(sample(&mut host)));
    assert_eq!(machine.msr(0, FIRST_MASK), 0x00f);
    let (group, mask) = ("(default)".to_owned(), WayMask::from_bits(0x7ff));
    assert_eq!(host.external_changes(), [ExternalChange::MaskBehind { group, mask }]);
    assert_eq!(host.complaints(), [""; 0]);
}

#[test]
fn shares_that_another_program_sets_are_reported_and_corrected_if_that_is_configured() {
    for correct in [false, true] {
        let machine = MountedHost::new("gold-6140");
        let root = machine.root();
        let schemata = || root.read_text("/sys/fs/resctrl/waykeeper-fio/schemata").unwrap();
        root.write_once("/sys/fs/resctrl/schemata", "MB:0=80\n").unwrap();
        let mut host = open(&machine, |options| options.correct = correct);
        let had = schemata();
        root.write_once("/sys/fs/resctrl/waykeeper-fio/schemata", "MB:0=20\n").unwrap();
        (0..EVERY).for_each(|_| drop(sample(&mut host)));
        let (group, found) = ("waykeeper-fio".to_owned(), "MB:0=20".to_owned());
        let change = ExternalChange::SharesChanged { group, found, had: "MB:0=80".to_owned() };
        assert_eq!(host.external_changes(), [change]);
        let said = "another program set MB:0=20 in resctrl group waykeeper-fio, which had MB:0=80";
        assert_eq!(host.complaints(), [said]);
        host.set_tenants(machine.options().tenants);
        assert_eq!(schemata() == had, correct, "{}", schemata());
        (0..EVERY).for_each(|_| drop(sample(&mut host)));
        assert_eq!(host.external_changes().is_empty(), correct);
    }
}

#[test]
fn words_of_a_newer_kernel_affect_only_themselves() {
    let machine = MountedHost::new("gold-6140");
    let shows = |file: &str, text: &str| {
        machine.faults.inject(FaultRule {
            path: format!("sys/fs/resctrl/{file}"),
            operation: Some(Operation::Read),
            calls: Calls::All,
            fault: FileFault::Garbage(text.as_bytes().to_vec()),
        });
    };
    shows("schemata", "L3_ALLOC_MODE:soft\nL3:0=7ff\n");
    shows("info/L3_MON/mon_features", "llc_occupancy\nIO-MBM\n");
    let mut host = open(&machine, |_| {});
    let snapshot = sample(&mut host);
    assert_eq!(snapshot.knobs.masks().count(), 3);
    assert!(snapshot.groups[&FIO][WorkloadCounter::OccupancyBytes].value().is_some());
    let noted = |words: &str| host.notes().iter().any(|note| note.contains(words));
    assert!(noted("schemata: line 1, `L3_ALLOC_MODE:soft`: expected DOMAIN=VALUE"), "{:?}", host.notes());
    assert!(noted("mon_features: reading: expected one feature a line, like llc_occupancy, not `IO-MBM`"));
    assert!(host.close().expect("closed").is_complete());
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
    sample(&mut host);
    let (remounts, others): (Vec<_>, Vec<_>) =
        host.external_changes().into_iter().partition(|own| matches!(own, ExternalChange::Remounted { .. }));
    assert_eq!(remounts.len(), 1);
    assert!(others.iter().all(|own| matches!(own, ExternalChange::GroupGone { .. })));
    assert!(host.close().expect("closed").is_complete());
}

#[test]
fn a_resctrl_that_is_mounted_anew_with_other_options_is_named_and_followed() {
    for correct in [false, true] {
        let machine = MountedHost::new("gold-6140");
        let root = machine.root();
        let mut host = open(&machine, |options| options.correct = correct);
        sample(&mut host);
        host.complaints();
        root.write_once("/waykeeper/resctrl", "umount\n").unwrap();
        root.write_once("/waykeeper/resctrl", "mount cdp\n").unwrap();
        sample(&mut host);
        let complaints = host.complaints();
        let named = "another program mounted resctrl anew, which removed all groups; its options are \
                     cdp, and were none";
        assert!(complaints.contains(&named.to_owned()), "{complaints:?}");
        host.set_tenants(machine.options().tenants);
        let masks = Plan::of_masks(BTreeMap::from([(FIO, WayMask::from_bits(0x00f))]));
        let applied = host.apply(&masks).unwrap();
        assert_eq!(applied[Knob::Mask(FIO)] == KnobOutcome::Applied, correct, "{applied:?}");
        let schemata = root.read_text("/sys/fs/resctrl/waykeeper-fio/schemata").unwrap_or_default();
        let halves = ["L3CODE:0=00f", "L3DATA:0=00f"].iter().all(|half| schemata.contains(half));
        assert_eq!(halves, correct, "{schemata}");
        let mask = sample(&mut host).knobs.mask(FIO).unwrap();
        assert_eq!(mask.bits(), if correct { 0x00f } else { 0x7ff });
        let is_remount = |own: &ExternalChange| matches!(own, ExternalChange::Remounted { .. });
        assert!(host.external_changes().iter().any(is_remount), "the options are still other ones");
        assert!(host.close().expect("closed").is_complete());
    }
}

#[test]
fn an_observed_resctrl_that_is_mounted_anew_is_followed() {
    let machine = MountedHost::new("gold-6140");
    let root = machine.root();
    let mut host = open(&machine, |options| options.access = HostAccess::Observe);
    sample(&mut host);
    host.complaints();
    root.write_once("/waykeeper/resctrl", "umount\n").unwrap();
    root.write_once("/waykeeper/resctrl", "mount cdp\n").unwrap();
    assert_eq!(sample(&mut host).knobs.mask(FIO).unwrap().bits(), 0x7ff);
    let complaints = host.complaints();
    assert!(complaints[0].starts_with("another program mounted resctrl anew"), "{complaints:?}");
}
