//! Hosts on which one thing is other than on a whole server: what doctor says of it, and that the daemon and `ddio` find the
//! same (`doctor_the_start_of_a_daemon_and_ddio_agree`).

use crate::doctor::{examine, opened, state};

use std::fs;
use waykeeper_host::Host;
use waykeeper_kernel::root::Root;
use waykeeper_linux_host::{HostAccess, LinuxHost, LinuxHostOptions};
use waykeeper_operator::doctor::{CheckState, HostUse};
use waykeeper_testbed::plain_tree::{CPUS, PlainTree};

const ALLOW_WRITES: &str = "sys/module/msr/parameters/allow_writes";
const L3: &str = "sys/fs/resctrl/info/L3";

/// Every host of this module.
pub fn all() -> Vec<PlainTree> {
    vec![
        read_only(),
        no_msr_writes(),
        guest(),
        guest_without_l3(),
        with_cdp(),
        without_rmids(),
        without("id"),
        without_resctrl(without("id")),
        without_resctrl(without("ways_of_associativity")),
        without_cpu_0(),
        hybrid(),
        without_an_msr_device(),
        without_proc(),
        with_pseudo_locked_regions(),
    ]
}

/// The server of a container that is given resctrl to look at.
fn read_only() -> PlainTree {
    let tree = PlainTree::skylake();
    let mount = "30 20 0:28 / /sys/fs/resctrl ro,relatime shared:5 - resctrl resctrl rw";
    tree.write("proc/self/mountinfo", &format!("{mount}\n"));
    tree
}

fn no_msr_writes() -> PlainTree {
    let tree = PlainTree::skylake();
    tree.write(ALLOW_WRITES, "off\n");
    tree
}

/// A virtual machine on such a server: no RDT, no units beside the cores'.
fn guest() -> PlainTree {
    let tree = without_resctrl(PlainTree::skylake());
    let cpuinfo = fs::read_to_string(tree.path("proc/cpuinfo")).unwrap();
    let flags = |line: &str| match line.starts_with("flags") {
        true => "flags\t\t: fpu msr hypervisor\n".to_owned(),
        false => format!("{line}\n"),
    };
    tree.write("proc/cpuinfo", &cpuinfo.lines().map(flags).collect::<String>());
    for path in ["dev/cpu", "sys/module/msr", "sys/bus/pci", "sys/kernel/security"] {
        tree.remove(path);
    }
    for unit in ["cha_0", "cha_1", "iio_0", "imc_0"] {
        tree.remove(&format!("sys/bus/event_source/devices/uncore_{unit}"));
    }
    tree.write("proc/filesystems", "nodev\tsysfs\n\text4\n");
    tree
}

fn guest_without_l3() -> PlainTree {
    let tree = guest();
    (0..CPUS).for_each(|cpu| tree.remove(&format!("sys/devices/system/cpu/cpu{cpu}/cache/index3")));
    tree
}

fn without_resctrl(tree: PlainTree) -> PlainTree {
    tree.remove("sys/fs/resctrl");
    tree
}

/// Without one of the files of each L3.
fn without(file: &str) -> PlainTree {
    let tree = PlainTree::skylake();
    (0..CPUS).for_each(|cpu| tree.remove(&format!("sys/devices/system/cpu/cpu{cpu}/cache/index3/{file}")));
    tree
}

/// With code and data prioritisation, and a group that has two ways of each half for itself.
fn with_cdp() -> PlainTree {
    let tree = PlainTree::skylake();
    for (file, text) in [("cbm_mask", "7ff"), ("min_cbm_bits", "1"), ("num_closids", "8")] {
        for half in ["CODE", "DATA"] {
            tree.write(&format!("{L3}{half}/{file}"), &format!("{text}\n"));
        }
    }
    tree.remove(L3);
    let (group, all) = ("sys/fs/resctrl/excl", "    MB:0=100;1=100\n");
    tree.write("sys/fs/resctrl/schemata", &format!("{all}L3DATA:0=7ff;1=7ff\nL3CODE:0=7ff;1=7ff\n"));
    tree.write(&format!("{group}/schemata"), &format!("{all}L3DATA:0=003;1=003\nL3CODE:0=00c;1=00c\n"));
    tree.write(&format!("{group}/mode"), "exclusive\n");
    tree
}

/// Four RMIDs, of which another program's groups have those that the default group has not.
fn without_rmids() -> PlainTree {
    let tree = PlainTree::skylake();
    tree.write("sys/fs/resctrl/info/L3_MON/num_rmids", "4\n");
    for group in ["mon_groups/m1", "COS1", "COS1/mon_groups/m2"] {
        tree.write(&format!("sys/fs/resctrl/{group}/tasks"), "");
    }
    tree
}

fn without_cpu_0() -> PlainTree {
    let tree = PlainTree::skylake();
    tree.write("sys/devices/system/cpu/online", "1-7\n");
    tree.write("sys/devices/system/node/node0/cpulist", "1,4-5\n");
    for path in ["sys/devices/system/cpu/cpu0/cache", "sys/devices/system/cpu/cpu0/topology", "dev/cpu/0"] {
        tree.remove(path);
    }
    for cpu in [1, 4, 5] {
        let folder = format!("sys/devices/system/cpu/cpu{cpu}");
        tree.write(&format!("{folder}/cache/index3/shared_cpu_list"), "1,4-5\n");
        tree.write(
            &format!("{folder}/topology/thread_siblings_list"),
            if cpu == 4 { "4\n" } else { "1,5\n" },
        );
    }
    tree
}

/// A desktop's CPU with two kinds of cores, of which no table knows the events.
fn hybrid() -> PlainTree {
    let tree = without_resctrl(PlainTree::of(151, 2, "12th Gen Intel(R) Core(TM) i9-12900K", 10));
    tree.write("proc/filesystems", "nodev\tsysfs\n\text4\n");
    let units = "sys/bus/event_source/devices";
    tree.remove(units);
    for unit in ["cpu_core", "cpu_atom"] {
        tree.write(&format!("{units}/{unit}/type"), "4\n");
    }
    tree
}

/// A container that was given the msr devices of one socket.
fn without_an_msr_device() -> PlainTree {
    let tree = PlainTree::skylake();
    [2, 3, 6, 7].iter().for_each(|cpu| tree.remove(&format!("dev/cpu/{cpu}")));
    tree
}

/// A chroot in which nothing is mounted at /proc.
fn without_proc() -> PlainTree {
    let tree = PlainTree::skylake();
    tree.remove("proc");
    tree
}

/// Three classes, and two groups that are pseudo-locked regions.
fn with_pseudo_locked_regions() -> PlainTree {
    let tree = PlainTree::skylake();
    tree.write("sys/fs/resctrl/info/MB/num_closids", "3\n");
    for (group, mask) in [("p1", "001"), ("p2", "002")] {
        tree.write(&format!("sys/fs/resctrl/{group}/mode"), "pseudo-locked\n");
        tree.write(&format!("sys/fs/resctrl/{group}/schemata"), &format!("L3:0={mask}\n"));
    }
    tree
}

#[test]
fn resctrl_that_takes_no_writes_is_watched_and_not_managed() {
    let tree = read_only();
    let report = examine(tree.root());
    state(&report, "resctrl", CheckState::Degraded, &["read-only", "-> mount -o remount,rw /sys/fs/resctrl"]);
    for knob in ["cat", "classes", "mba"] {
        state(&report, knob, CheckState::Degraded, &["cannot be set while resctrl is mounted read-only"]);
    }
    state(&report, "monitoring", CheckState::Ok, &[]);
    state(&report, "daemon", CheckState::Missing, &["mounted read-only; run: mount -o remount,rw"]);
    assert_eq!(report.best_use(), HostUse::Knobs, "DDIO's registers are no part of resctrl");
    assert_eq!(opened(tree.root(), false), Ok(()));
}

#[test]
fn registers_that_refuse_writes_are_no_knobs() {
    let tree = no_msr_writes();
    let report = examine(tree.root());
    let refused =
        ["0x600", "cannot be set while the msr driver has allow_writes off -> see msr-writes above"];
    state(&report, "ddio-ways", CheckState::Degraded, &refused);
    state(&report, "dca-ports", CheckState::Ok, &[]);
    // Without perf the counters would have to be programmed.
    tree.remove("sys/bus/event_source");
    let report = examine(tree.root());
    for counters in ["core-counters", "dca-counters", "io-counters"] {
        state(
            &report,
            counters,
            CheckState::Degraded,
            &["by MSR", "cannot be programmed while the msr driver"],
        );
    }
    tree.write(ALLOW_WRITES, "on\n");
    state(&examine(tree.root()), "core-counters", CheckState::Ok, &["by MSR"]);
}

#[test]
fn doctor_advises_a_virtual_machine_no_msr_driver() {
    let tree = guest();
    let report = examine(tree.root());
    state(&report, "msr", CheckState::Info, &["nothing here needs it"]);
    for check in &report.checks {
        let advice = check.remedy.as_deref().unwrap_or_default();
        assert!(!advice.contains("modprobe msr"), "{}: {} -> {advice}", check.name, check.value);
        assert!(!check.value.contains("modprobe msr"), "{}: {}", check.name, check.value);
    }
    state(&report, "ddio-ways", CheckState::Missing, &["a virtual machine is given no register"]);
    let root = tree.root().display();
    let next = report.next_command(&Root::at(tree.root()));
    assert_eq!(next, format!("waykeeper daemon --observe --root {root}"));
    let options = LinuxHostOptions::new(Root::at(tree.root()), Vec::new(), tree.path("journal"));
    let options = LinuxHostOptions { access: HostAccess::Observe, needs_cat: false, ..options };
    let said = LinuxHost::open(options).unwrap().notes().join("; ");
    assert!(said.contains("no counters beside perf's") && !said.contains("modprobe"), "{said}");
}

#[test]
fn a_boot_option_that_is_there_is_not_advised() {
    let tree = PlainTree::skylake();
    tree.write("proc/cmdline", "quiet rdt=cmt,mbmtotal,mbmlocal,l3cat,l3cdp,mba\n");
    for info in ["L3", "L3_MON"] {
        tree.remove(&format!("sys/fs/resctrl/info/{info}"));
    }
    let report = examine(tree.root());
    for name in ["cat", "monitoring"] {
        state(
            &report,
            name,
            CheckState::Missing,
            &["although rdt= on its command line asks for it -> look for"],
        );
    }
    // An option for something else asks for nothing of this.
    tree.write("proc/cmdline", "quiet rdt=cmt\n");
    state(&examine(tree.root()), "cat", CheckState::Missing, &["does not offer it -> boot with rdt=cmt,mbm"]);
    tree.remove("sys/fs/resctrl/info");
    let cat = |parts| state(&examine(tree.root()), "cat", CheckState::Missing, parts);
    cat(&[
        "after mounting, the kernel offers it on this CPU only with a boot option -> boot with rdt=cmt,mbm",
    ]);
    tree.write("proc/cmdline", "quiet rdt=!l3cat\n");
    cat(&["rdt=!l3cat on the kernel's command line switches it off -> boot without !l3cat"]);
    // A kernel without resctrl has no such option.
    tree.write("proc/filesystems", "nodev\tsysfs\n\text4\n");
    assert_eq!(examine(tree.root()).check("cat").unwrap().remedy, None);
}

#[test]
fn doctor_shows_code_and_data_of_cdp() {
    let report = examine(with_cdp().root());
    let cat = [
        "11 ways (0x7ff)",
        "code and data have a mask each",
        "the ways 0x00c belong to group excl alone (exclusive) for code",
        "the ways 0x003 belong to group excl alone (exclusive) for data",
    ];
    state(&report, "cat", CheckState::Degraded, &cat);
    // Eight of sixteen, of which the default group and excl have one each.
    state(
        &report,
        "classes",
        CheckState::Ok,
        &["8 classes of service (half as many as without CDP), 6 free"],
    );
}

#[test]
fn rmids_are_counted_and_their_holders_named() {
    // 144, of which the default group has one.
    state(&examine(PlainTree::skylake().root()), "monitoring", CheckState::Ok, &["144 RMIDs, 143 free"]);
    let tree = without_rmids();
    let report = examine(tree.root());
    let held = ["4 RMIDs, 0 free: mon_groups/m1, COS1, COS1/mon_groups/m2 hold 3", "(rmdir)"];
    state(&report, "monitoring", CheckState::Degraded, &held);
    state(
        &report,
        "classes",
        CheckState::Degraded,
        &["6 free, but no RMID for a further group -> see monitoring"],
    );
    tree.remove("sys/fs/resctrl/mon_groups/m1");
    let report = examine(tree.root());
    state(&report, "monitoring", CheckState::Ok, &["4 RMIDs, 1 free"]);
    state(&report, "classes", CheckState::Ok, &["6 free"]);
}

#[test]
fn what_the_kernel_does_not_say_of_the_l3_is_named() {
    let tree = without("id");
    let reason = "the kernel gives no id for the L3 cache of CPU 0";
    assert!(opened(tree.root(), true).unwrap_err().starts_with(reason));
    assert_eq!(opened(tree.root(), false), Ok(()), "counters need no id");
    state(&examine(tree.root()), "cat", CheckState::Degraded, &["which masks are of which L3 is not known"]);
    let tree = without_resctrl(tree);
    assert!(opened(tree.root(), true).unwrap_err().contains("this kernel offers no resctrl"));
    assert_eq!(opened(tree.root(), false), Ok(()));
    let tree = without("ways_of_associativity");
    assert_eq!(opened(tree.root(), true), Ok(()), "resctrl has the number");
    let tree = without_resctrl(tree);
    let unknown = ["0x600", "cannot be set: the width of the LLC's masks is not known"];
    state(&examine(tree.root()), "ddio-ways", CheckState::Degraded, &unknown);
    assert_eq!(opened(tree.root(), false), Ok(()), "counters need no ways");
    let guest = guest_without_l3();
    assert_eq!(opened(guest.root(), false), Ok(()), "nor an L3");
    let refused = opened(guest.root(), true).unwrap_err();
    assert!(refused.starts_with("the kernel shows no L3 cache of CPU 0"), "{refused}");
    let options = LinuxHostOptions::new(Root::at(guest.root()), Vec::new(), guest.path("journal"));
    let options = LinuxHostOptions { access: HostAccess::Observe, needs_cat: false, ..options };
    let mut host = LinuxHost::open(options).unwrap();
    assert_eq!((host.inventory().llc, host.inventory().dca_ways_default), (None, None));
    assert_eq!(host.inventory().cores.len(), usize::from(CPUS) / 2, "those of the socket");
    assert_eq!(host.notes().iter().filter(|note| note.contains("gives no ways of the L3")).count(), 1);
    host.sample().unwrap();
}

#[test]
fn a_cpu_without_a_table_has_no_counters_that_are_read() {
    let report = examine(hybrid().root());
    state(&report, "core-counters", CheckState::Unknown, &["no built-in table for this CPU"]);
    assert_eq!(report.best_use(), HostUse::Simulate, "observation would show nothing");
}

#[test]
fn a_pseudo_locked_region_has_neither_a_class_nor_an_rmid() {
    let tree = with_pseudo_locked_regions();
    let report = examine(tree.root());
    state(&report, "classes", CheckState::Ok, &["3 classes of service, 2 free"]);
    state(&report, "monitoring", CheckState::Ok, &["144 RMIDs, 143 free"]);
    state(
        &report,
        "cat",
        CheckState::Degraded,
        &["the ways 0x001 belong to group p1 alone (pseudo-locked)", "(rmdir)"],
    );
    let advice = report.check("cat").unwrap().remedy.clone().unwrap();
    assert!(!advice.contains("shareable"), "no mode can be written to it: {advice}");
    // The daemon counts as doctor does: the default group's class and the two that are free.
    tree.write("sys/fs/resctrl/cpus_list", "0-7\n");
    tree.write("sys/fs/resctrl/mon_data/mon_L3_00/mbm_total_bytes", "0\n");
    let journal = tree.path("journal");
    let options = LinuxHostOptions::new(Root::at(tree.root()), Vec::new(), journal);
    assert_eq!(LinuxHost::open(options).unwrap().inventory().known_llc().clos_count, 3);
    // While it is being made it has a class, and no RMID any more.
    tree.write("sys/fs/resctrl/p1/mode", "pseudo-locksetup\n");
    let report = examine(tree.root());
    state(&report, "classes", CheckState::Ok, &["3 classes of service, 1 free"]);
    state(&report, "monitoring", CheckState::Ok, &["144 RMIDs, 143 free"]);
}

#[test]
fn an_event_that_the_kernel_leaves_out_is_named() {
    let tree = PlainTree::skylake();
    let events = |names: &str| tree.write("sys/fs/resctrl/info/L3_MON/mon_features", names);
    events("mbm_total_bytes\nmbm_local_bytes\n");
    let left_out =
        "mbm_local_bytes; 144 RMIDs, 143 free; the kernel does not offer llc_occupancy, which the CPU has";
    let monitoring = |parts: &[&str]| {
        state(&examine(tree.root()), "monitoring", CheckState::Degraded, &[&[left_out], parts].concat());
    };
    monitoring(&["-> boot with rdt=cmt,mbmtotal,mbmlocal"]);
    tree.write("proc/cmdline", "quiet rdt=!cmt\n");
    monitoring(&["has: rdt=!cmt on its command line switches it off -> boot without !cmt in rdt="]);
    tree.write("proc/cmdline", "quiet rdt=cmt\n");
    monitoring(&["although rdt= on its command line asks for it"]);
    // A CPU that counts no traffic lacks nothing that a kernel could offer.
    events("llc_occupancy\n");
    let cpuinfo = fs::read_to_string(tree.path("proc/cpuinfo")).unwrap();
    tree.write("proc/cpuinfo", &cpuinfo.replace(" cqm_mbm_total cqm_mbm_local", ""));
    state(&examine(tree.root()), "monitoring", CheckState::Ok, &["llc_occupancy; 144 RMIDs"]);
}

#[test]
fn limits_in_mb_per_s_are_no_percentages() {
    let tree = PlainTree::skylake();
    state(&examine(tree.root()), "mba", CheckState::Ok, &["from 10 % in steps of 10 %"]);
    tree.write("proc/mounts", "resctrl /sys/fs/resctrl resctrl rw,relatime,mba_MBps 0 0\n");
    state(&examine(tree.root()), "mba", CheckState::Ok, &["in MB/s (mounted with mba_MBps)"]);
}

#[test]
fn an_online_cpu_without_its_msr_device_is_not_called_offline() {
    let report = examine(without_an_msr_device().root());
    state(&report, "ddio-ways", CheckState::Missing, &["CPU 2 has no msr device, although others have one"]);
}

#[test]
fn doctor_advises_a_chroot_to_mount_proc() {
    let tree = without_proc();
    let report = examine(tree.root());
    state(&report, "cpu", CheckState::Unknown, &["no proc/cpuinfo -> mount -t proc proc ", "/proc"]);
    assert_eq!(report.check("cpuid").unwrap().value, "no cpuid device");
    // The kernel makes the directory for a mount that is not there.
    tree.remove("sys/fs/resctrl/info");
    state(
        &examine(tree.root()),
        "resctrl",
        CheckState::Missing,
        &["not mounted -> mount -t resctrl resctrl"],
    );
}
