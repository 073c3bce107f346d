//! Steps that failed: reported, tried again with backoff, and made good when the obstacle is gone.

use super::{empty, ends, id, refuse, sample, tenant};
use rustix::io::Errno;
use std::collections::BTreeMap;
use waykeeper_host::{Host, Knob, KnobOutcome, Plan, Reading, WorkloadCounter};
use waykeeper_linux_host::{AllowedChanges, LinuxHost, LinuxHostOptions};
use waykeeper_testbed::{MountedHost, assert_same_state};
use waykeeper_units::WayMask;
use waykeeper_vhost::faults::Operation;

/// A host on which all tenants share one class.
fn one_class(machine: &MountedHost) -> LinuxHost {
    let limits = AllowedChanges { max_classes: Some(1), ..AllowedChanges::default() };
    let options =
        LinuxHostOptions { limits, ..LinuxHostOptions::new(machine.root(), Vec::new(), machine.journal()) };
    LinuxHost::open(options).unwrap_or_else(|error| panic!("{error}"))
}

/// Gives tenants equal masks, so that they share the class.
fn share(host: &mut LinuxHost, names: &[&str]) {
    let masks: BTreeMap<_, _> = names.iter().map(|name| (id(host, name), WayMask::from_bits(0xf))).collect();
    assert!(host.apply(&Plan::of_masks(masks)).expect("a report").is_complete());
}

#[test]
fn a_group_that_cannot_be_removed_is_tried_after_ever_longer_pauses() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let mut host = empty(&machine);
    host.set_tenants(vec![tenant("a", "0")]);
    refuse(&machine, "sys/fs/resctrl/waykeeper-a", Operation::RemoveDirectory, Errno::BUSY);
    host.set_tenants(vec![]);
    // The first pause is one round, and each is twice as long as the one before: 1, 1 + 2, 3 + 4, 7 + 8. In the rounds
    // between nothing is read or written.
    let tried: Vec<u64> = (1..=30)
        .filter(|_| {
            machine.faults.forget();
            host.set_tenants(vec![]);
            !machine.faults.seen().is_empty()
        })
        .collect();
    assert_eq!(tried, [1, 3, 7, 15]);
    let reported = host.complaints();
    let removal: Vec<&String> =
        reported.iter().filter(|reported| reported.contains("could not be removed")).collect();
    assert_eq!(removal.len(), 1, "{reported:?}");
    machine.faults.lift();
    host.set_tenants(vec![]);
    assert!(!machine.root().exists("/sys/fs/resctrl/waykeeper-a"), "its next round is the 31st");
    ends(&machine, host, &found);
}

#[test]
fn a_step_that_fails_beside_removals_is_reported() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let root = machine.root();
    let mut host = one_class(&machine);
    let all = || vec![tenant("a", "0"), tenant("b", "1")];
    host.set_tenants(all());
    share(&mut host, &["a", "b"]);
    let monitor = "/sys/fs/resctrl/waykeeper-a/mon_groups/waykeeper-b/cpus_list";
    let read = |path: &str| root.read_text(path).unwrap();
    assert_eq!(read(monitor), "1\n");
    // Another program writes the same CPUs to the class: the kernel empties the monitoring groups in it.
    root.write_once("/sys/fs/resctrl/waykeeper-a/cpus_list", "0-1\n").unwrap();
    assert_eq!(read(monitor), "\n");
    refuse(&machine, &monitor[1..], Operation::Write, Errno::IO);
    host.complaints();
    // A tenant that arrives makes the host read the groups.
    let with_c = || [all(), vec![tenant("c", "2")]].concat();
    host.set_tenants(with_c());
    let reported = host.complaints();
    let failed =
        |reported: &&String| reported.contains("failed and is tried again") && reported.contains(monitor);
    assert_eq!(reported.iter().filter(failed).count(), 1, "{reported:?}");
    (0..8).for_each(|_| drop(host.set_tenants(with_c())));
    assert_eq!(host.complaints(), [""; 0], "it is reported once");
    machine.faults.lift();
    (0..8).for_each(|_| drop(host.set_tenants(with_c())));
    assert_eq!(read(monitor), "1\n");
    ends(&machine, host, &found);
}

#[test]
fn a_monitoring_group_that_found_no_rmid_is_made_when_one_is_free() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let mut host = one_class(&machine);
    let all = || vec![tenant("a", "0"), tenant("b", "1")];
    refuse(&machine, "sys/fs/resctrl/mon_groups/waykeeper-b", Operation::MakeDirectory, Errno::NOSPC);
    machine.root().make_dir("/sys/fs/resctrl/mon_groups/tool").unwrap();
    host.set_tenants(all());
    let b = id(&host, "b");
    let occupancy = |host: &mut LinuxHost| sample(host).groups[&b][WorkloadCounter::OccupancyBytes].value();
    assert_eq!(occupancy(&mut host), None);
    let reported = host.complaints().concat();
    assert!(reported.contains("occupancy of b is not known"), "{reported}");
    assert!(reported.contains("groups of other programs, each with an RMID: mon_groups/tool"), "{reported}");
    machine.root().remove_dir("/sys/fs/resctrl/mon_groups/tool").unwrap();
    (0..6).for_each(|_| drop(host.set_tenants(all())));
    assert_eq!(occupancy(&mut host), None);
    machine.faults.lift();
    (0..8).for_each(|_| drop(host.set_tenants(all())));
    assert!(occupancy(&mut host).is_some());
    assert_eq!(sample(&mut host).groups[&b][WorkloadCounter::OccupancyBytes], Reading::Value(0));
    ends(&machine, host, &found);
}

#[test]
fn a_mask_is_not_written_to_a_group_that_another_program_made_in_the_place_of_ours() {
    let machine = MountedHost::new("gold-6140");
    let mut host = empty(&machine);
    host.set_tenants(vec![tenant("a", "0")]);
    sample(&mut host);
    let theirs = machine.root().path("/sys/fs/resctrl/waykeeper-a");
    std::fs::remove_dir(&theirs).unwrap();
    std::fs::create_dir(&theirs).unwrap();
    std::fs::write(theirs.join("schemata"), "L3:0=3f\n").unwrap();
    let found = machine.state();
    let a = id(&host, "a");
    let masks = BTreeMap::from([(a, WayMask::from_bits(0xf))]);
    let applied = host.apply(&Plan::of_masks(masks)).expect("a report");
    assert!(
        matches!(&applied[Knob::Mask(a)], KnobOutcome::Busy(why) if why.contains("another program removed it")),
        "{applied:?}"
    );
    assert_same_state(&machine.state(), &found, "after the mask");
    sample(&mut host);
    assert!(host.close().expect("closed").is_complete());
    drop(host);
    assert!(theirs.join("schemata").exists(), "it is the other program's");
}

#[test]
fn another_programs_monitoring_group_in_our_class_keeps_its_cpus() {
    let machine = MountedHost::new("gold-6140");
    let root = machine.root();
    let mut host = empty(&machine);
    host.set_tenants(vec![tenant("a", "0-1")]);
    let inside = |file: &str| format!("/sys/fs/resctrl/waykeeper-a/mon_groups/watch{file}");
    root.make_dir(inside("")).unwrap();
    root.write_once(inside("/cpus_list"), "0-1\n").unwrap();
    let read = |path: &str| root.read_text(path).unwrap();
    // The class gets a CPU, then it gives one up, which the group has back at the latest in the end.
    host.set_tenants(vec![tenant("a", "0-2")]);
    assert_eq!(read(&inside("/cpus_list")), "0-1\n");
    host.complaints();
    host.set_tenants(vec![tenant("a", "1-2")]);
    assert_eq!(read(&inside("/cpus_list")), "1\n");
    let reported = host.complaints();
    assert!(reported.iter().any(|reported| reported.contains("loses its CPUs")), "{reported:?}");
    host.set_tenants(vec![tenant("a", "0-2")]);
    assert_eq!(read(&inside("/cpus_list")), "0-1\n");
    host.set_tenants(vec![tenant("a", "1-2")]);
    let report = host.close().expect("closed");
    assert!(report.is_complete(), "{report:?}");
    drop(host);
    assert_eq!(read("/sys/fs/resctrl/mon_groups/watch/cpus_list"), "0-1\n");
    assert!(!machine.journal().exists());
}

#[test]
fn a_cpu_that_another_programs_monitoring_group_loses_to_ours_returns_to_it() {
    let machine = MountedHost::new("gold-6140");
    let root = machine.root();
    let mut host = one_class(&machine);
    host.set_tenants(vec![tenant("a", "0"), tenant("b", "1")]);
    share(&mut host, &["a", "b"]);
    let inside = "/sys/fs/resctrl/waykeeper-a/mon_groups/watch";
    root.make_dir(inside).unwrap();
    root.write_once(format!("{inside}/cpus_list"), "0-1\n").unwrap();
    let read = |path: &str| root.read_text(path).unwrap();
    let ours = "/sys/fs/resctrl/waykeeper-a/mon_groups/waykeeper-b/cpus_list";
    assert_eq!(read(ours), "\n", "the other group took CPU 1 from ours");
    // The next change writes ours again.
    host.set_tenants(vec![tenant("a", "0"), tenant("b", "1-2")]);
    assert_eq!((read(ours).as_str(), read(&format!("{inside}/cpus_list")).as_str()), ("1-2\n", "0\n"));
    assert!(host.close().expect("closed").is_complete());
    drop(host);
    assert_eq!(read("/sys/fs/resctrl/mon_groups/watch/cpus_list"), "0-1\n");
}
