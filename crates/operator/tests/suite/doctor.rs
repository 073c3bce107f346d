//! `doctor` on trees of plain files: a complete server, the same without single files, recorded files of this machine,
//! and an empty tree.

#[allow(dead_code, reason = "the recordings are read by other tests too")]
use crate::hardware::machine;
use crate::odd_hosts;
use crate::reported;

use machine::Machine;
use reported::reported;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use waykeeper_kernel::dca_ways::Wanted;
use waykeeper_kernel::root::Root;
use waykeeper_linux_host::{HostAccess, LinuxHost, LinuxHostOptions};
use waykeeper_operator::ddio;
use waykeeper_operator::doctor::{self, CheckState, DoctorReport, HostUse};
use waykeeper_testbed::is_long;
use waykeeper_testbed::plain_tree::{NIC_PORT, PlainTree};

pub fn examine(root: &Path) -> DoctorReport {
    doctor::examine(&Root::at(root))
}

/// The names of the checks that changed.
fn changed(before: &DoctorReport, after: &DoctorReport) -> Vec<&'static str> {
    assert_eq!(before.checks.len(), after.checks.len());
    let both = before.checks.iter().zip(&after.checks);
    both.filter(|(before, after)| before != after).map(|(before, _)| before.name).collect()
}

#[track_caller]
pub fn state(report: &DoctorReport, name: &str, state: CheckState, parts: &[&str]) {
    let check = report.check(name).unwrap();
    let text = format!("{} -> {}", check.value, check.remedy.as_deref().unwrap_or_default());
    assert_eq!(check.state, state, "{name}: {text}");
    for part in parts {
        assert!(text.contains(part), "{name}: `{part}` is not in: {text}");
    }
}

/// The recorded report about this process's rights was made as root.
fn as_root() {
    assert!(
        rustix::process::geteuid().is_root(),
        "not run: needs root: doctor tells whether it has CAP_PERFMON"
    );
}

#[test]
fn a_skylake_server_that_has_all_there_is() {
    as_root();
    let tree = PlainTree::skylake();
    insta::assert_snapshot!("plain-skylake", reported(tree.root(), &examine(tree.root())));
}

#[test]
fn this_kind_of_machine_as_it_was_recorded() {
    as_root();
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/firecracker-genoa"));
    insta::assert_snapshot!("firecracker-genoa", reported(root, &examine(root)));
}

#[test]
fn nothing_at_all() {
    let folder = tempfile::tempdir().unwrap();
    insta::assert_snapshot!("empty", reported(folder.path(), &examine(folder.path())));
}

#[test]
fn what_is_missing_has_its_remedy() {
    let without = |path: &str| {
        let tree = PlainTree::skylake();
        tree.remove(path);
        examine(tree.root())
    };
    let report = without("sys/fs/resctrl/info");
    state(&report, "resctrl", CheckState::Missing, &["mount -t resctrl resctrl /sys/fs/resctrl"]);
    // This boot will have no CAT on this CPU; doctor says so before the user mounts resctrl in vain (hardware.md 7.2).
    state(&report, "cat", CheckState::Missing, &["rdt=cmt,mbmtotal,mbmlocal,l3cat"]);
    state(
        &without("sys/fs/resctrl/info/L3"),
        "cat",
        CheckState::Missing,
        &["rdt=cmt,mbmtotal,mbmlocal,l3cat"],
    );
    state(
        &without("sys/fs/resctrl/info/L3_MON"),
        "monitoring",
        CheckState::Missing,
        &["rdt=cmt,mbmtotal,mbmlocal"],
    );
    let report = without("dev/cpu");
    state(&report, "msr", CheckState::Missing, &["modprobe msr"]);
    state(&report, "ddio-ways", CheckState::Missing, &["modprobe msr"]);
    state(&without("sys/bus/event_source"), "dca-counters", CheckState::Ok, &["by MSR"]);
    state(
        &without("proc/sys/kernel/perf_event_paranoid"),
        "perf-access",
        CheckState::Missing,
        &["CONFIG_PERF_EVENTS"],
    );
}

#[test]
fn what_prevents_management_is_named() {
    let with = |path: &str, text: &str| {
        let tree = PlainTree::skylake();
        tree.write(path, text);
        examine(tree.root())
    };
    let report = with("sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
    state(&report, "lockdown", CheckState::Degraded, &["integrity", "Secure Boot"]);
    state(&report, "ddio-ways", CheckState::Degraded, &["0x600", "lockdown"]);
    state(&report, "dca-ports", CheckState::Degraded, &["lockdown"]);
    state(&report, "msr-writes", CheckState::Degraded, &["refused", "lockdown"]);
    assert_eq!(report.best_use(), HostUse::Manage, "CAT goes through resctrl all the same");
    let report = with("sys/module/msr/parameters/allow_writes", "off\n");
    state(&report, "msr-writes", CheckState::Degraded, &["msr.allow_writes=on"]);
    state(&with("sys/fs/resctrl/COS1/tasks", ""), "groups", CheckState::Degraded, &["COS1", "pqos -R"]);
    state(
        &with("sys/fs/resctrl/waykeeper-a/tasks", ""),
        "groups",
        CheckState::Degraded,
        &["left by a run of Waykeeper whose journal is not at", "waykeeper-a", "waykeeper restore"],
    );
    let report = with("sys/devices/system/node/node1/cpulist", "2-3,6\n");
    state(&report, "snc", CheckState::Info, &["off"]);
    let tree = PlainTree::skylake();
    for group in 1..8 {
        tree.write(&format!("sys/fs/resctrl/COS{group}/tasks"), "");
    }
    // MBA's 8 classes limit L3's 16 (hardware.md 7.4), and the default group has one of them.
    let held = ["8 classes of service, 0 free", "COS1, COS2, ", " and 1 more hold 7", "rmdir"];
    state(&examine(tree.root()), "classes", CheckState::Degraded, &held);
    tree.write("sys/devices/system/node/node2/cpulist", "1,5\n");
    tree.write("sys/devices/system/node/node0/cpulist", "0,4\n");
    state(&examine(tree.root()), "snc", CheckState::Degraded, &["2 NUMA nodes", "BIOS"]);
    // Counter 2 of CPU 0 is running.
    tree.set_msr(0, 0x188, 0x0041_003c);
    state(&examine(tree.root()), "counters-in-use", CheckState::Info, &["counters 2 of 4"]);
}

/// With sub-NUMA clustering, kernels before 6.11 count one node of each L3.
#[test]
fn counts_of_a_part_of_the_l3_are_no_counts_of_it() {
    let tree = PlainTree::skylake();
    let counter = "sys/fs/resctrl/mon_data/mon_L3_00";
    tree.write(&format!("{counter}/llc_occupancy"), "0\n");
    state(&examine(tree.root()), "monitoring", CheckState::Ok, &["llc_occupancy"]);
    tree.write("sys/devices/system/node/node2/cpulist", "1,5\n");
    tree.write("sys/devices/system/node/node0/cpulist", "0,4\n");
    let report = examine(tree.root());
    state(&report, "monitoring", CheckState::Degraded, &["only a part of each L3", "6.11", "BIOS"]);
    tree.write(&format!("{counter}/mon_sub_L3_00/llc_occupancy"), "0\n");
    state(&examine(tree.root()), "monitoring", CheckState::Ok, &["llc_occupancy"]);
}

#[test]
fn a_kernel_that_offers_less_than_the_cpu_has_is_named_with_what_made_it_so() {
    let tree = PlainTree::skylake();
    tree.remove("sys/fs/resctrl/info/L3");
    let report = examine(tree.root());
    state(&report, "classes", CheckState::Missing, &["8 classes of service, but none divides the L3"]);
    state(&report, "cat", CheckState::Missing, &["boot with rdt=cmt,mbmtotal,mbmlocal,l3cat"]);
    // The boot option may be there and say the opposite.
    tree.write("proc/cmdline", "quiet rdt=cmt,!l3cat,!mba\n");
    let report = examine(tree.root());
    state(&report, "cat", CheckState::Missing, &["rdt=!l3cat on its command line", "boot without !l3cat"]);
    tree.remove("sys/fs/resctrl/info/MB");
    state(&examine(tree.root()), "mba", CheckState::Missing, &["rdt=!mba", "boot without !mba"]);
    tree.write("proc/cmdline", "quiet rdt=!cmt\n");
    tree.remove("sys/fs/resctrl/info/L3_MON");
    state(&examine(tree.root()), "monitoring", CheckState::Missing, &["rdt=!cmt", "boot without !cmt"]);
}

#[test]
fn resctrl_at_another_place_is_found_and_a_second_mount_is_not_advised() {
    let tree = PlainTree::skylake();
    tree.remove("sys/fs/resctrl/info");
    tree.write("proc/mounts", "proc /proc proc rw 0 0\nresctrl /mnt/rdt\\040here resctrl rw,relatime 0 0\n");
    let report = examine(tree.root());
    let next = report.next_command(&Root::at(tree.root()));
    assert_eq!(next, "mount --bind '/mnt/rdt here' /sys/fs/resctrl", "one command");
    let remedy = "mount --bind '/mnt/rdt here' /sys/fs/resctrl, or unmount it";
    state(&report, "resctrl", CheckState::Missing, &["mounted at /mnt/rdt here, but", remedy]);
    let cat = report.check("cat").unwrap();
    assert_eq!((cat.value.as_str(), cat.remedy.as_deref()), ("needs resctrl", None));
}

#[test]
fn names_of_other_programs_are_escaped_and_one_that_is_no_text_is_a_group_as_any_other() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let tree = PlainTree::skylake();
    let before = examine(tree.root());
    let groups = tree.path("sys/fs/resctrl");
    for name in [&b"\x1b[31mred"[..], b"bad\xff\xfename", b"-rf", b"$(id)"] {
        std::fs::create_dir(groups.join(OsStr::from_bytes(name))).unwrap();
    }
    let report = examine(tree.root());
    let shown = [r"\u{1b}[31mred", r"bad\xff\xfename", "-rf", "$(id)"];
    state(&report, "groups", CheckState::Degraded, &shown);
    state(&report, "classes", CheckState::Ok, &["8 classes of service, 3 free"]);
    assert_eq!(changed(&before, &report), ["monitoring", "classes", "groups"]);
}

#[test]
fn ways_that_a_group_has_for_itself_are_named_with_it() {
    let tree = PlainTree::skylake();
    tree.write("sys/fs/resctrl/excl/mode", "exclusive\n");
    tree.write("sys/fs/resctrl/excl/schemata", "L3:0=003;1=003\n");
    let shown = ["11 ways", "the ways 0x003 belong to group excl alone (exclusive)", "shareable"];
    state(&examine(tree.root()), "cat", CheckState::Degraded, &shown);
    tree.write("sys/fs/resctrl/excl/mode", "shareable\n");
    state(&examine(tree.root()), "cat", CheckState::Ok, &["11 ways"]);
}

/// A newer kernel's words in one file cost what the file says, and nothing else.
#[test]
fn a_file_of_resctrl_that_is_not_understood_is_named() {
    let tree = PlainTree::skylake();
    tree.write("sys/fs/resctrl/info/MB/thread_throttle_mode", "per-cluster\n");
    let report = examine(tree.root());
    state(
        &report,
        "resctrl",
        CheckState::Degraded,
        &["not understood", "thread_throttle_mode", "per-cluster"],
    );
    state(&report, "mba", CheckState::Degraded, &["from 10 %", "per-cluster"]);
    tree.write("sys/fs/resctrl/info/MB/num_closids", "many\n");
    let report = examine(tree.root());
    state(&report, "mba", CheckState::Unknown, &["num_closids", "many"]);
    state(&report, "cat", CheckState::Ok, &["11 ways"]);
}

/// A host that is opened without a change of it, as `daemon --dry-run` opens it; with `needs_cat` false as `--observe` does.
pub fn opened(root: &Path, needs_cat: bool) -> Result<(), String> {
    opened_to(root, HostAccess::Observe, needs_cat)
}

fn opened_to(root: &Path, access: HostAccess, needs_cat: bool) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let options = LinuxHostOptions::new(Root::at(root), Vec::new(), folder.path().join("journal"));
    let options = LinuxHostOptions { access, needs_cat, ..options };
    LinuxHost::open(options).map(drop).map_err(|why| why.to_string())
}

/// What doctor says of the DCA ways and of the ports is what `ddio set` and `ddio off` answer, which plan here and write
/// nothing. Where a knob is only degraded, as under lockdown, the plan may be possible and its first write is refused.
fn agrees_with_ddio(root: &Path, report: &DoctorReport) {
    let survey = ddio::survey(&Root::at(root));
    let devices = survey.ports.iter().flat_map(|port| &port.devices).map(|device| device.address);
    let ways = ddio::plan_ways(&survey, Wanted::Count(2), None);
    let ports = devices.map(|device| ddio::plan_ports(&survey, &[device], false));
    let ports: Vec<bool> = ports.map(|planned| planned.is_ok_and(|steps| !steps.is_empty())).collect();
    let state = |name| report.check(name).unwrap().state;
    let shown = root.display();
    match state("ddio-ways") {
        CheckState::Ok => assert!(ways.is_ok(), "{shown}: {ways:?}"),
        CheckState::Missing | CheckState::Unknown => assert!(ways.is_err(), "{shown}: {ways:?}"),
        CheckState::Degraded | CheckState::Info => {}
    }
    match state("dca-ports") {
        CheckState::Ok => assert!(!ports.is_empty() && ports.iter().all(|can| *can), "{shown}: {ports:?}"),
        CheckState::Missing | CheckState::Unknown => assert!(!ports.contains(&true), "{shown}: {ports:?}"),
        CheckState::Degraded | CheckState::Info => {}
    }
    // No answer at all would be taken for success.
    assert!(ways.map_or(true, |steps| !steps.is_empty()), "{shown}: nothing is planned, and nothing is said");
}

/// What doctor says of the daemon is what its start does, with the same sentence; so is what it says of the DCA knobs, and
/// the command that doctor names works.
fn agree(root: &Path) -> HostUse {
    let report = examine(root);
    let daemon = report.check("daemon").unwrap();
    let shown = root.display();
    match daemon.state {
        CheckState::Ok => assert_eq!(opened(root, true), Ok(()), "{shown}"),
        // What is refused is refused before anything is changed.
        _ => assert_eq!(opened_to(root, HostAccess::Manage, true), Err(daemon.value.clone()), "{shown}"),
    }
    agrees_with_ddio(root, &report);
    let observe = report.check("observe").unwrap();
    // Degraded or unknown: it starts, and may have nothing to read.
    let starts = observe.state != CheckState::Missing;
    let said = if starts { Ok(()) } else { Err(observe.value.clone()) };
    assert_eq!(opened(root, false), said, "{shown}");
    report.best_use()
}

/// On every recorded machine, on a server that lacks one file, and on odd hosts.
#[test]
fn doctor_the_start_of_a_daemon_and_ddio_agree() {
    let mut uses = Vec::new();
    for name in Machine::names() {
        let machine = Machine::recorded(&name);
        uses.push(agree(machine.root.prefix()));
    }
    let tree = PlainTree::skylake();
    assert_eq!(agree(tree.root()), HostUse::Manage);
    let every = if is_long() { 1 } else { 4 };
    for (path, content) in tree.files().into_iter().step_by(every) {
        tree.remove(&path);
        uses.push(agree(tree.root()));
        std::fs::write(tree.path(&path), content).unwrap();
    }
    for folder in
        ["sys/fs/resctrl/info", "sys/fs/resctrl/info/L3", "sys/fs/resctrl", "dev/cpu", "sys/bus/pci"]
    {
        let tree = PlainTree::skylake();
        tree.remove(folder);
        uses.push(agree(tree.root()));
    }
    uses.extend(odd_hosts::all().iter().map(|tree| agree(tree.root())));
    let seen = |wanted| uses.contains(&wanted);
    assert!(seen(HostUse::Manage) && seen(HostUse::Knobs), "{uses:?}");
}

/// Only monitoring, of resctrl and of perf: `--observe` needs no CAT.
#[test]
fn a_host_without_cat_and_ddio_can_be_observed() {
    let tree = PlainTree::skylake();
    for path in ["sys/fs/resctrl/info/L3", "dev/cpu", "sys/bus/pci"] {
        tree.remove(path);
    }
    assert_eq!(examine(tree.root()).best_use(), HostUse::Observe);
    assert!(opened(tree.root(), true).unwrap_err().contains("resctrl offers no L3 allocation here"));
    assert_eq!(opened(tree.root(), false), Ok(()));
    tree.remove("sys/fs/resctrl/info");
    assert!(opened(tree.root(), true).unwrap_err().contains("resctrl is not mounted"));
    assert_eq!(opened(tree.root(), false), Ok(()));
}

#[test]
fn icelake_shows_its_register_which_may_not_be_managed() {
    let tree = PlainTree::of(106, 6, "Intel(R) Xeon(R) Gold 5320 CPU @ 2.20GHz", 12);
    // hardware.md 2.1: an Ice Lake root port has the header of a capability at 0x180.
    let report = examine(tree.root());
    state(
        &report,
        "ddio-ways",
        CheckState::Degraded,
        &["0xc00", "takes values without effect", "never written"],
    );
    state(&report, "dca-ports", CheckState::Missing, &["no switch"]);
    state(&report, "cat", CheckState::Ok, &["12 ways"]);
    tree.remove("sys/fs/resctrl");
    assert_eq!(examine(tree.root()).best_use(), HostUse::Observe);
}

#[test]
fn a_cpu_without_a_table_is_shown() {
    let tree = PlainTree::of(222, 1, "Some Xeon", 11);
    let report = examine(tree.root());
    state(&report, "generation", CheckState::Unknown, &["skx", "writes no register"]);
    state(&report, "ddio-ways", CheckState::Unknown, &["does not write"]);
    state(&report, "cat", CheckState::Ok, &[]);
}

/// Garbage in any one file is reported by the checks that read it, and changes no other check.
#[test]
fn garbage_in_a_file_spoils_its_own_subject_only() {
    let tree = PlainTree::skylake();
    let clean = examine(tree.root());
    let mut spoilt: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (path, content) in tree.files() {
        // Plain sparse files represent devices: for them zeros are garbage, and other bytes are values.
        let garbage: &[u8] =
            if path.ends_with("msr") || path.ends_with("config") { b"" } else { b"\xff\x00 garbage {}\n" };
        std::fs::write(tree.path(&path), garbage).unwrap();
        let report = examine(tree.root());
        let names = changed(&clean, &report);
        for check in report.checks.iter().filter(|check| names.contains(&check.name)) {
            assert_ne!(check.state, CheckState::Ok, "{path}: {}: {}", check.name, check.value);
        }
        spoilt.insert(path.clone(), names);
        std::fs::write(tree.path(&path), content).unwrap();
    }
    assert_eq!(examine(tree.root()), clean, "the files are as they were");
    assert_eq!(spoilt["proc/sys/kernel/osrelease"], ["kernel"]);
    assert_eq!(spoilt["proc/sys/kernel/nmi_watchdog"], ["nmi-watchdog"]);
    assert_eq!(spoilt["proc/sys/kernel/perf_event_paranoid"], ["perf-access"]);
    assert_eq!(spoilt["sys/kernel/security/lockdown"], ["lockdown"]);
    assert_eq!(spoilt["sys/module/msr/parameters/allow_writes"], ["msr-writes"]);
    assert_eq!(
        spoilt["sys/devices/system/node/node0/cpulist"],
        ["topology", "llc", "snc", "ddio-ways", "daemon", "observe", "counters-in-use"]
    );
    assert_eq!(spoilt["dev/cpu/2/msr"], ["ddio-ways"]);
    assert_eq!(spoilt[&format!("sys/devices/pci0000:3a/{NIC_PORT}/config")], ["dca-ports"]);
    let mut lines = String::new();
    for (path, names) in spoilt.iter().filter(|(_, names)| !names.is_empty()) {
        let _ = writeln!(lines, "{path}: {}", names.join(", "));
    }
    insta::assert_snapshot!("garbage", lines);
}

/// Where perf is used (under `/`, see `perf::is_asked`), units that perf lacks are not counted. Elsewhere registers
/// count, whatever the tree says about perf.
#[test]
fn uncore_units_that_the_kernel_does_not_drive_are_counted_through_registers_if_perf_is_not_asked() {
    let tree = PlainTree::skylake();
    for unit in ["cha_0", "cha_1", "iio_0", "imc_0"] {
        tree.remove(&format!("sys/bus/event_source/devices/uncore_{unit}"));
    }
    assert!(!waykeeper_kernel::perf::is_asked(&Root::at(tree.root())));
    assert!(waykeeper_kernel::perf::is_asked(&Root::at("/")));
    let report = examine(tree.root());
    for name in ["dca-counters", "io-counters"] {
        state(&report, name, CheckState::Ok, &["by MSR; perf offers no uncore_"]);
    }
    for cpu in 0..4 {
        tree.remove(&format!("dev/cpu/{cpu}/msr"));
    }
    let report = examine(tree.root());
    for name in ["dca-counters", "io-counters"] {
        state(&report, name, CheckState::Missing, &["modprobe intel_uncore, or modprobe msr"]);
    }
}

/// Nothing is opened for writing, so a read-only tree gives the same report.
#[test]
fn nothing_is_changed() {
    let tree = PlainTree::skylake();
    let before = tree.files();
    examine(tree.root());
    assert_eq!(tree.files(), before);
}
