//! The suite of `kernel::resctrl` on the virtual host, with the features of several machines, and a fault in each of a
//! manager's operations.
//!
//! Each test lists what its host lacks: a case that is skipped for another reason fails. The same suite runs on real
//! kernels under `make test-oracle`.

use crate::suite;

use rustix::io::Errno;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use suite::manners::NoRegisters;
use suite::{PREFIX, Trouble};
use waykeeper_kernel::journal::{Journal, Original, SchemataLine};
use waykeeper_kernel::resctrl::{
    DomainSetting, Group, MonitorEvent, Resctrl, Resource, ResourceSettings, Schemata,
};
use waykeeper_kernel::restore::Restorer;
use waykeeper_kernel::root::Root;
use waykeeper_units::{CoreList, WayMask};
use waykeeper_vhost::faults::{Calls, FaultRule, Faults, FileFault, Operation};
use waykeeper_vhost::host_tasks::HostTasks;
use waykeeper_vhost::mounted::Mounted;
use waykeeper_vhost::node::{Node, Tree};
use waykeeper_vhost::resctrl::VirtualResctrl;
use waykeeper_vhost::resctrl::description::{
    Bandwidth, Cdp, Domain, IoAllocSupport, Kernel, L3Resource, MonitoringResource, ResctrlDescription,
};
use waykeeper_vhost::resctrl::hardware::Idle;

/// A mounted host; dropping it unmounts first.
struct Host {
    _mounted: Mounted,
    faults: Faults,
    root: Root,
    folder: tempfile::TempDir,
}

impl Host {
    fn new(description: ResctrlDescription) -> Host {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let mount = folder.path().join("host");
        std::fs::create_dir(&mount).expect("made");
        let mut tree = Tree::new();
        tree.text("proc/sys/kernel/random/boot_id", "01234567-89ab-cdef-0123-456789abcdef\n");
        let tasks = HostTasks::new("/proc");
        tree.add(
            "sys/fs/resctrl",
            Node::Resctrl(VirtualResctrl::new(description, Box::new(Idle), Box::new(tasks)).shared()),
        );
        let faults = Faults::new();
        assert!(rustix::process::geteuid().is_root(), "not run: needs root and /dev/fuse");
        let mounted = Mounted::new(tree, &mount, faults.clone());
        let mounted = mounted.expect("not run: needs root and /dev/fuse");
        Host { root: Root::at(mounted.path()), _mounted: mounted, faults, folder }
    }

    fn journal(&self) -> Result<Journal, String> {
        let path = self.folder.path().join("state/journal");
        Journal::open(&path, &self.root).map_err(|error| error.to_string())
    }
}

fn intel(kernel: Kernel) -> ResctrlDescription {
    let cache = L3Resource {
        cbm_bits: 11,
        shareable: 0x600,
        min_bits: 1,
        sparse: false,
        closids: 16,
        size_bytes: 16 << 20,
        cdp: Cdp::Off,
        io_alloc: IoAllocSupport::Absent,
    };
    ResctrlDescription {
        kernel,
        possible_cpus: 4,
        domains: vec![Domain { id: 0, cpus: vec![0, 1] }, Domain { id: 1, cpus: vec![2, 3] }],
        l3: Some(cache),
        mb: Some(Bandwidth::intel(8)),
        smba: None,
        monitoring: Some(MonitoringResource {
            rmids: 144,
            unit_bytes: 90112,
            largest_threshold: 16 << 20,
            llc_occupancy: true,
            mbm_total: true,
            mbm_local: true,
            configurable: false,
        }),
    }
}

/// Domain ids with a gap, as on a machine in hardware.md 8.1.
fn amd(kernel: Kernel) -> ResctrlDescription {
    let mut host = intel(kernel);
    host.possible_cpus = 64;
    host.domains = [0, 1, 16, 17].map(|id| Domain { id, cpus: vec![id, id + 32] }).into();
    let cache = host.l3.as_mut().expect("there");
    (cache.cbm_bits, cache.shareable, cache.min_bits, cache.sparse) = (16, 0, 0, true);
    host.mb = Some(Bandwidth::amd(16));
    host.smba = Some(Bandwidth::amd(16));
    host
}

/// Runs all cases; `lacking` names the cases that this host must skip.
fn suite_passes(description: ResctrlDescription, lacking: &[&str]) {
    let host = Host::new(description);
    let mut skipped = BTreeSet::new();
    let mut failed = Vec::new();
    for case in suite::cases() {
        match suite::run(case, &host.root) {
            Ok(()) => {}
            Err(Trouble::Lacking(what)) => drop(skipped.insert((case.name, what))),
            Err(Trouble::Failed(why)) => failed.push(format!("{}: {why}", case.name)),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let names: BTreeSet<&str> = skipped.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, lacking.iter().copied().collect(), "{skipped:?}");
}

const CDP: &str = "code and data have ways of their own";
const MBA: [&str; 2] = ["bandwidth is rounded up to its step", "bandwidth out of range is refused"];

#[test]
fn on_two_intel_kernels() {
    suite_passes(intel(Kernel(6, 1)), &[CDP]);
    suite_passes(intel(Kernel(6, 12)), &[CDP]);
}

#[test]
fn on_amd_with_gaps_between_domains() {
    suite_passes(amd(Kernel(6, 1)), &[CDP]);
    suite_passes(amd(Kernel(6, 12)), &[CDP]);
}

#[test]
fn on_amd_with_ways_for_devices() {
    for io_alloc in [IoAllocSupport::Unsupported, IoAllocSupport::Supported] {
        let mut host = amd(Kernel(6, 19));
        host.l3.as_mut().expect("there").io_alloc = io_alloc;
        suite_passes(host, &[CDP]);
    }
}

#[test]
fn with_code_and_data_apart() {
    let mut host = intel(Kernel(6, 12));
    host.l3.as_mut().expect("there").cdp = Cdp::On;
    suite_passes(host, &[]);
}

/// Haswell as the kernel finds it: 4 classes, 20 ways, at least two per mask, no MBA (hardware.md 7.2).
#[test]
fn with_few_classes_and_two_ways_at_least() {
    let mut host = intel(Kernel(6, 1));
    let cache = host.l3.as_mut().expect("there");
    (cache.cbm_bits, cache.shareable, cache.min_bits, cache.closids) = (20, 0xc0000, 2, 4);
    host.mb = None;
    suite_passes(host, &[&[CDP][..], &MBA[..]].concat());
}

#[test]
fn without_monitoring() {
    let mut host = intel(Kernel(6, 12));
    host.monitoring = None;
    let lacking = [
        "every event reads in every domain",
        "a counter of a removed group is gone",
        "an event that is not counted is no error",
        "monitoring groups come and go",
        "a monitoring group takes tasks of its parent only",
        "a monitoring group takes CPUs of its parent only",
        "the occupancy threshold is rounded down",
    ];
    suite_passes(host, &[&[CDP][..], &lacking[..]].concat());
}

/// Everything that a manager can change, read without faults.
type State = (Schemata, CoreList, Vec<Group>);

fn state(host: &Host) -> State {
    let resctrl = Resctrl::open(&host.root, PREFIX).expect("it is there");
    let groups = resctrl.control_groups().expect("listed");
    (resctrl.schemata(&Group::DEFAULT).expect("read"), resctrl.cpus(&Group::DEFAULT).expect("read"), groups)
}

/// A manager's run: reads, journals, sets knobs, samples. Returns an error in one line.
fn manage(host: &Host) -> Result<(), String> {
    let reported = |error: &dyn std::fmt::Display| error.to_string();
    let resctrl = Resctrl::open(&host.root, PREFIX).map_err(|error| reported(&error))?;
    let _lock = resctrl.lock_exclusive(Duration::from_secs(10)).map_err(|error| reported(&error))?;
    let info = resctrl.info().map_err(|error| reported(&error))?;
    if let Some(strange) = info.strange.first() {
        return Err(reported(strange));
    }
    let ways = info.l3().ok_or("no L3")?.cbm_mask;
    let default = resctrl.schemata(&Group::DEFAULT).map_err(|error| reported(&error))?;
    let cpus = resctrl.cpus(&Group::DEFAULT).map_err(|error| reported(&error))?;
    let group = resctrl.own("managed").map_err(|error| reported(&error))?;
    let whole = default.line(&Resource::L3).cloned().ok_or("no line")?;
    let mut journal = host.journal()?;
    let originals = [
        Original::NoGroup { group: group.clone() },
        Original::Cpus { group: Group::DEFAULT, cpus: cpus.clone() },
        Original::Schemata { group: Group::DEFAULT, line: SchemataLine(whole) },
    ];
    journal.record(&originals).map_err(|error| reported(&error))?;
    resctrl.create(&group).map_err(|error| reported(&error))?;
    let line = |domain, mask: WayMask| {
        ResourceSettings::new(Resource::L3, vec![(domain, DomainSetting::Mask(mask))])
    };
    for (group, mask) in [(&group, WayMask::full(2)), (&Group::DEFAULT, ways.minus(WayMask::full(2)))] {
        let wanted = line(0, mask);
        let now =
            resctrl.set_schemata(group, std::slice::from_ref(&wanted)).map_err(|error| reported(&error))?;
        if let Some((domain, wanted, found)) = now.differing(&wanted).pop() {
            return Err(format!("{group}: {domain} reads back as {found:?}, not {wanted:?}"));
        }
    }
    let one = CoreList::from(cpus.cores()[..1].to_vec());
    resctrl.set_cpus(&group, &one).map_err(|error| reported(&error))?;
    let now = resctrl.cpus(&group).map_err(|error| reported(&error))?;
    if now != one {
        return Err(format!("{group}: CPUs read back as {now}, not {one}"));
    }
    resctrl.assign(&group, &[std::process::id()]).map_err(|error| reported(&error))?;
    let held = resctrl.hold_schemata(&group).map_err(|error| reported(&error))?;
    for domain in resctrl.monitor_domains(&group).map_err(|error| reported(&error))? {
        let count = resctrl
            .hold_count(&group, domain, &MonitorEvent::LlcOccupancy)
            .map_err(|error| reported(&error))?;
        count.ok_or("no counter")?.read().map_err(|error| reported(&error))?;
    }
    held.read().map_err(|error| reported(&error))?;
    Ok(())
}

/// The next start: restores everything.
fn bring_back(host: &Host) -> Result<(), String> {
    let mut journal = host.journal()?;
    let resctrl = Resctrl::open(&host.root, PREFIX).map_err(|error| error.to_string())?;
    let mut restorer = Restorer { root: &host.root, resctrl: Some(&resctrl), registers: &NoRegisters };
    let report = restorer.restore(&mut journal).map_err(|error| error.to_string())?;
    let failures: Vec<String> = report.failures().map(|(knob, why)| format!("{knob}: {why}")).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Each operation on each file of a manager's run, with each of five to seven faults, one at a time.
#[test]
fn a_fault_anywhere_is_one_report_and_loses_no_original() {
    let host = Host::new(intel(Kernel(6, 12)));
    let before = state(&host);
    host.faults.forget();
    manage(&host).unwrap();
    bring_back(&host).unwrap();
    assert_eq!(state(&host), before);
    let seen = host.faults.seen();
    assert!(seen.len() > 40, "a manager does more than {} kinds of operation", seen.len());
    let refusals = [Errno::IO, Errno::BUSY, Errno::NOSPC, Errno::NODEV, Errno::ACCESS].map(FileFault::Refuse);
    let mut reports = 0;
    for (path, operation) in seen.keys() {
        let others = match operation {
            Operation::Read => {
                vec![FileFault::ShortRead(1), FileFault::Garbage(b"\xff\x00 no file of a kernel".to_vec())]
            }
            Operation::Write => vec![FileFault::ShortWrite(1), FileFault::ShortWrite(4096)],
            _ => Vec::new(),
        };
        for fault in refusals.iter().cloned().chain(others) {
            let what = format!("{operation:?} of {path}: {fault:?}");
            let strike = |calls| {
                let rule = FaultRule {
                    path: path.clone(),
                    operation: Some(*operation),
                    calls,
                    fault: fault.clone(),
                };
                host.faults.inject(rule);
            };
            strike(Calls::All);
            let managed = manage(&host);
            let restored = bring_back(&host);
            host.faults.lift();
            for report in [&managed, &restored].into_iter().filter_map(|result| result.as_ref().err()) {
                reports += 1;
                // One short line per knob, and each names its place.
                assert!(report.lines().all(|line| line.len() < 500), "{what}: {report}");
                assert!(report.contains('/') || report.contains(" back as "), "{what}: {report}");
            }
            let silent = matches!(fault, FileFault::ShortRead(_)) || path.ends_with("last_cmd_status");
            assert!(managed.is_ok() || !silent, "{what}: {managed:?}");
            // In any case nothing is lost: the next start restores everything.
            let again = bring_back(&host);
            assert!(again.is_ok(), "{what}: {managed:?}, {restored:?}, then {again:?}");
            assert_eq!(state(&host), before, "{what}: {managed:?}, {restored:?}");
        }
    }
    assert!(reports > 100, "only {reports} reports");
}

/// No content of a file causes a panic, and the error names the file.
#[test]
fn garbage_in_every_file_names_the_file() {
    let host = Host::new(intel(Kernel(6, 12)));
    let resctrl = Resctrl::open(&host.root, PREFIX).expect("it is there");
    let garbage: [&[u8]; 4] = [b"", b"\n", b"garbage\n", b"-1\n\n"];
    for file in
        ["info/L3/num_closids", "info/L3/cbm_mask", "info/MB/min_bandwidth", "info/L3_MON/mon_features"]
    {
        for bytes in garbage {
            host.faults.inject(FaultRule {
                path: format!("sys/fs/resctrl/{file}"),
                operation: Some(Operation::Read),
                calls: Calls::All,
                fault: FileFault::Garbage(bytes.to_vec()),
            });
            // `garbage` could be the name of a feature of a later kernel.
            let is_name = file.ends_with("mon_features") && bytes == b"garbage\n";
            let info = resctrl.info().expect("listed");
            let directory = file.split('/').nth(1).expect("a directory of info");
            match info.trouble_with(directory) {
                None => assert!(is_name, "{file}: {bytes:?} was taken"),
                Some(error) => {
                    assert_eq!(info.strange.len(), 1, "the others are read: {:?}", info.strange);
                    let path = host.root.path(Path::new("/sys/fs/resctrl").join(file));
                    assert!(
                        error.to_string().starts_with(&format!("{}: reading: ", path.display())),
                        "{error}"
                    );
                    assert!(error.to_string().contains("expected"), "{error}");
                }
            }
            host.faults.lift();
        }
    }
}
