//! Tenants that are processes, and other programs' changes to processes and groups meanwhile.

use super::{empty, ends, id, refuse, sample, tenant};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Command, Stdio};
use waykeeper_host::{Host, Plan, Reading, SocketCounter, WorkloadCounter};
use waykeeper_kernel::journal::{Journal, Original};
use waykeeper_kernel::resctrl::Group;
use waykeeper_linux_host::{AllowedChanges, ExternalChange, HostAccess, LinuxHost, LinuxHostOptions};
use waykeeper_tenants::Tenant;
use waykeeper_testbed::{MS, MountedHost, assert_same_state};
use waykeeper_units::WayMask;
use waykeeper_vhost::faults::Operation;

/// A process with a child, both ended when dropped.
struct Family(Child);

impl Family {
    fn new() -> Family {
        let mut command = Command::new("sh");
        // The child is started when a line is written.
        command.args(["-c", "read line; sleep 600 & read line"]).stdin(Stdio::piped());
        Family(command.spawn().expect("sh"))
    }

    fn say(&mut self) {
        use std::io::Write;
        writeln!(self.0.stdin.as_mut().expect("a pipe"), "go").expect("written");
    }

    fn child(&self) -> u32 {
        let path = format!("/proc/{0}/task/{0}/children", self.0.id());
        loop {
            let children = std::fs::read_to_string(&path).expect("a kernel with CONFIG_PROC_CHILDREN");
            if let Some(child) = children.split_whitespace().next() {
                return child.parse().expect("a pid");
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.0.id()));
        for child in children.unwrap_or_default().split_whitespace() {
            let _ = Command::new("kill").arg(child).status();
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_tenant_without_cores_is_its_processes_and_their_children() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let mut family = Family::new();
    let mut host = empty(&machine);
    let of = |pids: Vec<u32>| Tenant { pids, ..tenant("loose", "") };
    let parent = family.0.id();
    host.set_tenants(vec![of(vec![parent]), tenant("scan", "3")]);
    assert_eq!(
        host.complaints().iter().filter(|reported| reported.contains("has no cores of its own")).count(),
        1
    );
    family.say();
    let child = family.child();
    let tasks = |group: &str| {
        let text = machine.root().read_text(format!("/sys/fs/resctrl/{group}/tasks")).unwrap();
        text.lines().filter_map(|line| line.parse().ok()).collect::<BTreeSet<u32>>()
    };
    let (own, pair) = ("waykeeper-loose", [parent, child]);
    assert!(pair.iter().all(|pid| tasks(own).contains(pid)), "the child was born there: {:?}", tasks(own));
    // The selector lists the child too: no task needs to move.
    host.set_tenants(vec![of(pair.to_vec()), tenant("scan", "3")]);
    assert!(pair.iter().all(|pid| tasks(own).contains(pid)));
    let loose = id(&host, "loose");
    let masks = BTreeMap::from([(loose, WayMask::from_bits(0xf))]);
    assert!(host.apply(&Plan::of_masks(masks)).expect("a report").is_complete());
    let snapshot = sample(&mut host);
    assert_eq!(snapshot.knobs.mask(loose).unwrap().bits(), 0xf);
    assert_eq!(snapshot.groups[&loose][WorkloadCounter::Cycles], Reading::Unsupported);
    assert!(snapshot.groups[&loose][WorkloadCounter::OccupancyBytes].value().is_some());
    // A process that is no longer listed returns to the default group.
    host.set_tenants(vec![of(vec![parent]), tenant("scan", "3")]);
    assert!(tasks(own).contains(&parent) && !tasks(own).contains(&child));
    ends(&machine, host, &found);
}

/// Another tool moves a task, as `pqos -I -a pid:1=PID` does.
fn move_task(machine: &MountedHost, pid: u32, group: &str) {
    machine.root().write_once(format!("/sys/fs/resctrl/{group}/tasks"), &format!("{pid}\n")).unwrap();
}

#[test]
fn tasks_that_another_tool_moves_are_reported_and_shown_with_the_mask_that_holds_for_them() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let mut family = Family::new();
    family.say();
    let pids = [family.0.id(), family.child()];
    let mut host = empty(&machine);
    let loose = Tenant { pids: pids.to_vec(), ..tenant("loose", "") };
    host.set_tenants(vec![loose.clone()]);
    let own = id(&host, "loose");
    let masks = BTreeMap::from([(own, WayMask::from_bits(0x7f0))]);
    assert!(host.apply(&Plan::of_masks(masks)).unwrap().is_complete());
    sample(&mut host);
    assert_eq!(host.external_changes(), []);
    host.complaints();
    let root = machine.root();
    root.make_dir("/sys/fs/resctrl/COS1").unwrap();
    root.write_once("/sys/fs/resctrl/COS1/schemata", "L3:0=003\n").unwrap();
    // One of two processes: the mask holds for the other, and the count is of a part.
    move_task(&machine, pids[1], "COS1");
    let snapshot = sample(&mut host);
    let lost = |tasks: &[u32], by: &str| ExternalChange::TasksLost {
        group: "waykeeper-loose".to_owned(),
        tenant: "loose".to_owned(),
        tasks: tasks.to_vec(),
        by: by.to_owned(),
    };
    assert_eq!(host.external_changes(), [lost(&pids[1..], "COS1")]);
    assert_eq!(snapshot.knobs.mask(own).unwrap().bits(), 0x7f0);
    assert_eq!(snapshot.groups[&own][WorkloadCounter::OccupancyBytes], Reading::Unavailable);
    let line = format!(
        "tasks {} of loose are no longer in resctrl group waykeeper-loose; they are in COS1",
        pids[1]
    );
    assert_eq!(host.complaints(), [line]);
    // Both: nothing of the tenant has our mask.
    move_task(&machine, pids[0], "COS1");
    let snapshot = sample(&mut host);
    assert_eq!(host.external_changes(), [lost(&pids, "COS1")]);
    assert_eq!(snapshot.knobs.mask(own).unwrap().bits(), 0x003);
    assert_eq!(host.complaints().len(), 1);
    sample(&mut host);
    host.set_tenants(vec![loose]);
    sample(&mut host);
    assert_eq!((host.external_changes(), host.complaints()), (vec![lost(&pids, "COS1")], vec![]));
    // The other tool's group ends: its tasks are in the default group.
    root.remove_dir("/sys/fs/resctrl/COS1").unwrap();
    let snapshot = sample(&mut host);
    assert_eq!(host.external_changes(), [lost(&pids, "(default)")]);
    assert_eq!(snapshot.knobs.mask(own).unwrap().bits(), 0x7ff);
    // It ends when the tasks are back.
    pids.iter().for_each(|pid| move_task(&machine, *pid, "waykeeper-loose"));
    let snapshot = sample(&mut host);
    assert_eq!(host.external_changes(), []);
    assert_eq!(snapshot.knobs.mask(own).unwrap().bits(), 0x7f0);
    assert!(snapshot.groups[&own][WorkloadCounter::OccupancyBytes].value().is_some());
    ends(&machine, host, &found);
}

#[test]
fn moved_tasks_are_moved_back_three_times_if_that_is_configured() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let family = Family::new();
    let pid = family.0.id();
    let loose = Tenant { pids: vec![pid], ..tenant("loose", "") };
    let options = LinuxHostOptions::new(machine.root(), Vec::new(), machine.journal());
    let mut host = LinuxHost::open(LinuxHostOptions { correct: true, ..options }).unwrap();
    host.set_tenants(vec![loose.clone()]);
    let root = machine.root();
    root.make_dir("/sys/fs/resctrl/COS1").unwrap();
    for round in 1..=4 {
        move_task(&machine, pid, "COS1");
        sample(&mut host);
        host.set_tenants(vec![loose.clone()]);
        let ours = root.read_text("/sys/fs/resctrl/waykeeper-loose/tasks").unwrap();
        assert_eq!(ours.lines().any(|line| line == pid.to_string()), round < 4, "{round}");
        sample(&mut host);
        assert_eq!(host.external_changes().is_empty(), round < 4, "{round}");
    }
    let corrected = "resctrl group waykeeper-loose was corrected, 3 of 3 times".to_owned();
    assert!(host.complaints().contains(&corrected));
    root.remove_dir("/sys/fs/resctrl/COS1").unwrap();
    ends(&machine, host, &found);
}

/// A task that its owner moves to the default group has the class of its CPU, which is the tenant's.
#[test]
fn a_task_in_the_default_group_on_a_cpu_of_its_tenant_has_the_tenants_mask() {
    let machine = MountedHost::new("gold-6140");
    let family = Family::new();
    let mut host = empty(&machine);
    host.set_tenants(vec![Tenant { pids: vec![family.0.id()], ..tenant("both", "2-3") }]);
    let own = id(&host, "both");
    let masks = BTreeMap::from([(own, WayMask::from_bits(0x00f))]);
    assert!(host.apply(&Plan::of_masks(masks)).unwrap().is_complete());
    machine.root().write_once("/sys/fs/resctrl/tasks", &format!("{}\n", family.0.id())).unwrap();
    let snapshot = sample(&mut host);
    assert_eq!(host.external_changes().len(), 1);
    assert_eq!(snapshot.knobs.mask(own).unwrap().bits(), 0x00f);
    assert!(snapshot.groups[&own][WorkloadCounter::OccupancyBytes].value().is_some());
}

/// As the kernel does it: the group of a task decides, and that of its CPU only for a task of the default group.
#[test]
fn an_observed_tenant_has_the_mask_of_the_group_of_its_tasks() {
    let machine = MountedHost::new("gold-6140");
    let root = machine.root();
    let (family, other) = (Family::new(), Family::new());
    let tasks = vec![family.0.id(), other.0.id()];
    let mut options = LinuxHostOptions::new(root.clone(), Vec::new(), machine.journal());
    options.access = HostAccess::Observe;
    let mut host = LinuxHost::open(options).unwrap();
    let both = Tenant { pids: tasks.clone(), ..tenant("both", "2-3") };
    // Without a mask of any tenant a sample would be an error.
    let third = tenant("third", "4");
    host.set_tenants(vec![both, Tenant { pids: tasks.clone(), ..tenant("loose", "") }, third]);
    let (both, loose) = (id(&host, "both"), id(&host, "loose"));
    let seen = |host: &mut LinuxHost| {
        let snapshot = sample(host);
        let mask = |id| snapshot.knobs.mask(id).map(WayMask::bits);
        let counted = snapshot.groups[&both][WorkloadCounter::OccupancyBytes].value().is_some();
        (mask(both), mask(loose), counted)
    };
    assert_eq!(seen(&mut host), (Some(0x7ff), Some(0x7ff), false));
    root.make_dir("/sys/fs/resctrl/COS1").unwrap();
    root.write_once("/sys/fs/resctrl/COS1/schemata", "L3:0=003\n").unwrap();
    host.complaints();
    move_task(&machine, tasks[0], "COS1");
    assert_eq!(seen(&mut host), (None, None, false));
    let spread = "tasks of tenant both are spread over several resctrl groups: COS1, (default)";
    assert_eq!(host.complaints()[0], spread);
    move_task(&machine, tasks[1], "COS1");
    assert_eq!(seen(&mut host), (Some(0x003), Some(0x003), true));
    // A task of another program, or another CPU: the group counts more than the tenant.
    let stranger = Family::new();
    move_task(&machine, stranger.0.id(), "COS1");
    assert_eq!(seen(&mut host), (Some(0x003), Some(0x003), false));
    move_task(&machine, stranger.0.id(), "");
    assert!(seen(&mut host).2);
    root.write_once("/sys/fs/resctrl/COS1/cpus_list", "5\n").unwrap();
    assert!(!seen(&mut host).2);
    // In the default group the CPU decides; without known CPUs it may be either.
    tasks.iter().for_each(|task| move_task(&machine, *task, ""));
    assert_eq!(seen(&mut host), (Some(0x7ff), None, false));
    root.write_once("/sys/fs/resctrl/COS1/cpus_list", "2-3\n").unwrap();
    assert_eq!(seen(&mut host), (Some(0x003), None, true));
}

#[test]
fn an_observed_tenant_whose_group_cannot_be_read_has_no_known_mask() {
    let machine = MountedHost::new("gold-6140");
    let root = machine.root();
    let family = Family::new();
    let pid = family.0.id();
    let mut options = LinuxHostOptions::new(root.clone(), Vec::new(), machine.journal());
    options.access = HostAccess::Observe;
    let mut host = LinuxHost::open(options).unwrap();
    host.set_tenants(vec![Tenant { pids: vec![pid], ..tenant("own", "2-3") }, tenant("third", "4")]);
    let (own, third) = (id(&host, "own"), id(&host, "third"));
    root.make_dir("/sys/fs/resctrl/COS1").unwrap();
    root.write_once("/sys/fs/resctrl/COS1/schemata", "L3:0=003\n").unwrap();
    move_task(&machine, pid, "COS1");
    let mut seen = || {
        let snapshot = sample(&mut host);
        assert_eq!(snapshot.knobs.mask(third).map(WayMask::bits), Some(0x7ff));
        let occupancy = snapshot.groups[&own][WorkloadCounter::OccupancyBytes];
        (snapshot.knobs.mask(own).map(WayMask::bits), occupancy.value().is_some(), occupancy)
    };
    let known = seen();
    assert_eq!((known.0, known.1), (Some(0x003), true));
    refuse(&machine, "sys/fs/resctrl/COS1/tasks", Operation::Read, Errno::IO);
    assert_eq!(seen(), (None, false, Reading::Unavailable));
}

#[test]
fn a_new_process_moves_no_other_process() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let (old, new) = (Family::new(), Family::new());
    let pids = [&old, &new].map(|family| family.0.id());
    let mut host = empty(&machine);
    let of = |pids: &[u32]| Tenant { pids: pids.to_vec(), ..tenant("loose", "") };
    host.set_tenants(vec![of(&pids[..1])]);
    machine.faults.forget();
    host.set_tenants(vec![of(&pids)]);
    let tasks = "sys/fs/resctrl/waykeeper-loose/tasks";
    let writes = machine.faults.seen().get(&(tasks.to_owned(), Operation::Write)).copied();
    assert_eq!(writes, Some(1), "one thread came");
    let text = machine.root().read_text(format!("/{tasks}")).unwrap();
    assert!(pids.iter().all(|pid| text.lines().any(|line| line == pid.to_string())), "{text}");
    // A failed move is retried at the next call.
    let third = Family::new();
    let all = [pids[0], pids[1], third.0.id()];
    refuse(&machine, tasks, Operation::Write, Errno::IO);
    assert_eq!(host.set_tenants(vec![of(&all)]).refused.len(), 1);
    machine.faults.lift();
    (0..3).for_each(|_| drop(host.set_tenants(vec![of(&all)])));
    assert_eq!(host.refused(), [], "what is in force is not refused any more");
    let text = machine.root().read_text(format!("/{tasks}")).unwrap();
    assert!(all.iter().all(|pid| text.lines().any(|line| line == pid.to_string())), "{text}");
    ends(&machine, host, &found);
}

#[test]
fn what_another_manager_took_is_not_taken_back_when_a_tenant_leaves() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let root = machine.root();
    let family = Family::new();
    let pid = family.0.id();
    // One class for both: b joins a's class.
    let limits = AllowedChanges { max_classes: Some(1), ..AllowedChanges::default() };
    let options =
        LinuxHostOptions { limits, ..LinuxHostOptions::new(root.clone(), Vec::new(), machine.journal()) };
    let mut host = LinuxHost::open(options).unwrap_or_else(|error| panic!("{error}"));
    let (a, b) = (Tenant { pids: vec![pid], ..tenant("a", "0") }, tenant("b", "1-2"));
    host.set_tenants(vec![a, b.clone()]);
    let mask = WayMask::from_bits(0xf);
    let masks = BTreeMap::from([(id(&host, "a"), mask), (id(&host, "b"), mask)]);
    assert!(host.apply(&Plan::of_masks(masks)).expect("a report").is_complete());
    let read = |file: &str| root.read_text(format!("/sys/fs/resctrl/{file}")).unwrap();
    assert_eq!(read("waykeeper-a/cpus_list"), "0-2\n");
    // Another manager takes b's CPU 2 and a's process; then a is removed.
    let theirs = machine.make_foreign_group("theirs");
    std::fs::write(theirs.join("cpus_list"), "2\n").unwrap();
    std::fs::write(theirs.join("tasks"), format!("{pid}\n")).unwrap();
    host.complaints();
    assert_eq!(host.set_tenants(vec![b]).left.len(), 1);
    assert_eq!((read("waykeeper-a/cpus_list"), read("theirs/cpus_list")), ("1\n".into(), "2\n".into()));
    assert!(read("theirs/tasks").lines().any(|line| line == pid.to_string()));
    let reported = format!("tasks [{pid}] are now in groups of another tool and stay there");
    let complaints = host.complaints();
    assert!(complaints.contains(&reported), "{complaints:?}");
    assert!(host.close().expect("closed").is_complete());
    drop(host);
    assert!(read("theirs/tasks").lines().any(|line| line == pid.to_string()));
    std::fs::remove_dir(theirs).unwrap();
    assert_same_state(&machine.state(), &found, "at the end");
}

#[test]
fn a_process_of_a_tenant_that_shares_a_class_enters_through_the_class() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let (old, new) = (Family::new(), Family::new());
    let pids = [&old, &new].map(|family| family.0.id());
    // One class for both: b is in a's class, with a monitoring group.
    let limits = AllowedChanges { max_classes: Some(1), ..AllowedChanges::default() };
    let options =
        LinuxHostOptions { limits, ..LinuxHostOptions::new(machine.root(), Vec::new(), machine.journal()) };
    let mut host = LinuxHost::open(options).unwrap_or_else(|error| panic!("{error}"));
    let of = |pids: &[u32]| vec![tenant("a", "0"), Tenant { pids: pids.to_vec(), ..tenant("b", "1") }];
    host.set_tenants(of(&pids[..1]));
    let mask = WayMask::from_bits(0xf);
    let masks = BTreeMap::from([(id(&host, "a"), mask), (id(&host, "b"), mask)]);
    assert!(host.apply(&Plan::of_masks(masks)).expect("a report").is_complete());
    // The kernel refuses a task of another control group to a monitoring group.
    let changes = host.set_tenants(of(&pids));
    assert_eq!((changes.refused, host.refused()), (vec![], vec![]));
    let tasks = machine.root().read_text("/sys/fs/resctrl/waykeeper-a/mon_groups/waykeeper-b/tasks").unwrap();
    assert!(pids.iter().all(|pid| tasks.lines().any(|line| line == pid.to_string())), "{tasks}");
    ends(&machine, host, &found);
}

#[test]
fn a_process_that_another_tool_held_is_moved_when_it_is_free() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let root = machine.root();
    let family = Family::new();
    let pid = family.0.id();
    // One class for both: b is in a's class, with a monitoring group.
    let limits = AllowedChanges { max_classes: Some(1), ..AllowedChanges::default() };
    let options =
        LinuxHostOptions { limits, ..LinuxHostOptions::new(root.clone(), Vec::new(), machine.journal()) };
    let mut host = LinuxHost::open(options).unwrap_or_else(|error| panic!("{error}"));
    let all = || vec![tenant("a", "0"), Tenant { pids: vec![pid], ..tenant("b", "1") }];
    host.set_tenants(all());
    let mask = WayMask::from_bits(0xf);
    let masks = BTreeMap::from([(id(&host, "a"), mask), (id(&host, "b"), mask)]);
    assert!(host.apply(&Plan::of_masks(masks)).expect("a report").is_complete());
    let monitor = root.path("/sys/fs/resctrl/waykeeper-a/mon_groups/waykeeper-b");
    let has = |group: &std::path::Path| {
        let tasks = std::fs::read_to_string(group.join("tasks")).unwrap();
        tasks.lines().any(|line| line == pid.to_string())
    };
    assert!(has(&monitor));
    // Another manager removes the monitoring group, and takes the process.
    std::fs::remove_dir(&monitor).unwrap();
    let theirs = machine.make_foreign_group("theirs");
    std::fs::write(theirs.join("tasks"), format!("{pid}\n")).unwrap();
    host.complaints();
    // A tenant that arrives makes the host read the groups.
    let with_c = || [all(), vec![tenant("c", "2")]].concat();
    (0..10).for_each(|_| drop(host.set_tenants(with_c())));
    assert!(has(&theirs) && !has(&monitor));
    let reported = format!("tasks [{pid}] are now in groups of another tool and stay there");
    let complaints = host.complaints();
    assert_eq!(complaints.iter().filter(|complaint| **complaint == reported).count(), 1, "{complaints:?}");
    // The other manager ends: the process is in the default group, and its tenant gets it back within the backoff.
    std::fs::remove_dir(theirs).unwrap();
    (0..20).for_each(|_| drop(host.set_tenants(with_c())));
    assert!(has(&monitor));
    ends(&machine, host, &found);
}

/// Where only resctrl counts memory traffic (MBM), each group has a count of its own.
#[test]
fn memory_traffic_is_whole_while_tenants_move_between_groups() {
    let machine = MountedHost::new("epyc-9554");
    // Two classes for three tenants: c is in the default group, with a monitoring group.
    let limits = AllowedChanges { max_classes: Some(2), ..AllowedChanges::default() };
    let options =
        LinuxHostOptions { limits, ..LinuxHostOptions::new(machine.root(), Vec::new(), machine.journal()) };
    let mut host = LinuxHost::open(options).unwrap_or_else(|error| panic!("{error}"));
    let (a, b, c) = (tenant("a", "0-1"), tenant("b", "2"), tenant("c", "3"));
    host.set_tenants(vec![a.clone(), b.clone(), c.clone()]);
    let truth =
        || machine.with_model(|server| (0..server.rmids()).map(|rmid| server.traffic(0, rmid)).sum::<u64>());
    let mut before =
        (truth(), sample(&mut host).socket[SocketCounter::MemoryReadBytes].value().expect("MBM"));
    let groups = || machine.root().list("/sys/fs/resctrl/waykeeper-a/mon_groups").unwrap_or_default();
    let mut step = |what: &str, host: &mut LinuxHost, change: &dyn Fn(&mut LinuxHost)| {
        machine.run(10 * MS);
        change(host);
        machine.run(10 * MS);
        let read = sample(host).socket[SocketCounter::MemoryReadBytes]
            .value()
            .unwrap_or_else(|| panic!("{what}: unknown"));
        let now = (truth(), read);
        let (moved, reported) = (now.0 - before.0, now.1 - before.1);
        // Each of at most eight counts has units of 64 KiB.
        assert!(moved > 8 << 20 && reported.abs_diff(moved) < 8 << 16, "{what}: {reported} of {moved} bytes");
        before = now;
    };
    let give = |host: &mut LinuxHost, wanted: &[(&str, u32)]| {
        let masks = wanted.iter().map(|(name, bits)| (id(host, name), WayMask::from_bits(*bits)));
        assert!(host.apply(&Plan::of_masks(masks)).expect("a report").is_complete());
    };
    step("c joins a", &mut host, &|host| give(host, &[("a", 0xff), ("b", 0xff), ("c", 0xff)]));
    assert_eq!(groups(), ["waykeeper-c"]);
    step("b joins a, and c has its class", &mut host, &|host| give(host, &[("c", 0x0f)]));
    assert_eq!(groups(), ["waykeeper-b"]);
    step("b goes", &mut host, &|host| drop(host.set_tenants(vec![a.clone(), c.clone()])));
    step("a goes, and its group", &mut host, &|host| drop(host.set_tenants(vec![c.clone()])));
    step("both come", &mut host, &|host| drop(host.set_tenants(vec![c.clone(), b.clone(), a.clone()])));
}

#[test]
fn a_group_of_our_name_that_another_program_made_is_left_while_we_run_and_removed_by_the_next_restore() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let root = machine.root();
    let theirs = "/sys/fs/resctrl/waykeeper-a";
    // Killed after the journal entry and before the group; then another program makes and uses a group of that name.
    let planned = Original::Planned { group: Group::control("waykeeper-a").expect("a name") };
    let kill = || {
        let mut journal = Journal::open(&machine.journal(), &root).expect("a journal");
        journal.record(std::slice::from_ref(&planned)).expect("recorded");
    };
    kill();
    root.make_dir(theirs).unwrap();
    root.write_once(format!("{theirs}/cpus_list"), "5\n").unwrap();
    // The name is ours, and the journal says why the group may be there: nothing is unknown.
    assert_eq!(machine.restore_failures(), "");
    assert!(!root.exists(theirs) && !machine.journal().exists());
    assert_same_state(&machine.state(), &found, "after the restore");
    // If no journal has it, it is like a group of a run whose journal is lost: the next start removes it too and says
    // so, and gives the name to its own tenant.
    root.make_dir(theirs).unwrap();
    root.write_once(format!("{theirs}/cpus_list"), "5\n").unwrap();
    let mut host = empty(&machine);
    let removed = "group waykeeper-a: left by an earlier run whose journal is lost; removed";
    assert!(host.notes().iter().any(|note| note == removed), "{:?}", host.notes());
    assert!(host.unproved()[0].starts_with("no journal that was read has the resctrl groups waykeeper-a"));
    let changes = host.set_tenants(vec![tenant("a", "0")]);
    assert_eq!((changes.arrived.len(), changes.refused), (1, vec![]));
    drop(host);
    assert!(!root.exists(theirs));
    // A person has looked at the host.
    std::fs::remove_file(machine.journal().with_extension("unproved")).expect("it is there");
    // Killed after the group was made and before the journal recorded that: the group is empty.
    kill();
    root.make_dir(theirs).unwrap();
    assert_eq!(machine.restore_failures(), "");
    assert_same_state(&machine.state(), &found, "after a kill");
    // While we are running, another program removes our group and makes one of that name.
    let mut host = empty(&machine);
    host.set_tenants(vec![tenant("a", "0")]);
    root.remove_dir(theirs).unwrap();
    root.make_dir(theirs).unwrap();
    root.write_once(format!("{theirs}/cpus_list"), "5\n").unwrap();
    host.set_tenants(Vec::new());
    assert!(host.close().expect("closed").is_complete());
    assert_eq!(root.read_text(format!("{theirs}/cpus_list")).unwrap(), "5\n");
    root.remove_dir(theirs).unwrap();
    drop(host);
    // The same just before we close.
    let mut host = empty(&machine);
    host.set_tenants(vec![tenant("a", "0")]);
    root.remove_dir(theirs).unwrap();
    root.make_dir(theirs).unwrap();
    root.write_once(format!("{theirs}/cpus_list"), "5\n").unwrap();
    assert!(host.close().expect("closed").is_complete());
    drop(host);
    assert_eq!(root.read_text(format!("{theirs}/cpus_list")).unwrap(), "5\n");
    root.remove_dir(theirs).unwrap();
    assert_same_state(&machine.state(), &found, "at the end");
}
