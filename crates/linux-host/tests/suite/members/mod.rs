//! Tenants that are added, removed, fork and change under LinuxHost on the virtual host: other tenants are not
//! affected, and the end state equals the start. The clock is held. Needs root and /dev/fuse.

mod again;
mod hand_over;
mod hotplug;
mod processes;

use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_host::{
    Host, Interval, Knob, KnobOutcome, Plan, Priority, Snapshot, WorkloadCounter, WorkloadKind,
};
use waykeeper_linux_host::{LinuxHost, LinuxHostOptions, Managed};
use waykeeper_tenants::Tenant;
use waykeeper_testbed::{HostState, MS, MountedHost, SCENARIO, assert_same_state, manual_clock, scenario};
use waykeeper_units::{WayMask, WorkloadId};
use waykeeper_vhost::faults::{Calls, FaultRule, FileFault, Operation};

const FULL: u32 = 0x7ff;

fn tenant(name: &str, cores: &str) -> Tenant {
    Tenant {
        name: name.to_owned(),
        priority: Priority::Low,
        kind: WorkloadKind::NonIo,
        cores: if cores.is_empty() { Default::default() } else { cores.parse().expect("cores") },
        pids: Vec::new(),
        devices: Vec::new(),
        stack: false,
        mask: None,
    }
}

/// A host without tenants.
fn empty(machine: &MountedHost) -> LinuxHost {
    let options = LinuxHostOptions::new(machine.root(), Vec::new(), machine.journal());
    LinuxHost::open(options).unwrap_or_else(|error| panic!("{error}"))
}

fn sample(host: &mut LinuxHost) -> Snapshot {
    host.sample().unwrap_or_else(|error| panic!("{error}"))
}

fn id(host: &LinuxHost, name: &str) -> WorkloadId {
    host.workloads().into_iter().find(|group| group.name == name).unwrap_or_else(|| panic!("no {name}")).id
}

fn ends(machine: &MountedHost, mut host: LinuxHost, found: &HostState) {
    let report = host.close().expect("closed");
    assert!(report.is_complete(), "{report:?}");
    drop(host);
    assert_same_state(&machine.state(), found, "at the end");
    assert!(!machine.journal().exists());
}

#[test]
fn a_host_begins_without_tenants_and_a_name_that_returns_gets_another_number() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let mut host = empty(&machine);
    assert_eq!(host.workloads(), []);
    sample(&mut host);
    let (a, b) = (tenant("a", "0-1"), tenant("b", "2"));
    let changes = host.set_tenants(vec![a.clone(), b.clone()]);
    assert_eq!((changes.arrived.len(), changes.refused.len()), (2, 0), "{changes:?}");
    let first = id(&host, "a");
    // Without a change nothing is written, and resctrl is not read.
    machine.faults.forget();
    assert!(host.set_tenants(vec![b.clone(), a.clone()]).is_empty());
    assert_eq!(machine.faults.seen(), BTreeMap::new());
    let changes = host.set_tenants(vec![b.clone()]);
    assert_eq!(changes.left, [(first, "a".to_owned())]);
    assert!(!machine.root().exists("/sys/fs/resctrl/waykeeper-a"));
    assert_eq!(machine.root().read_text("/sys/fs/resctrl/waykeeper-b/cpus_list").unwrap(), "2\n");
    host.set_tenants(vec![a, b]);
    assert_ne!(id(&host, "a"), first);
    let snapshot = sample(&mut host);
    assert!(!snapshot.groups.contains_key(&first) && snapshot.groups.len() == 2);
    ends(&machine, host, &found);
}

#[test]
fn a_tenant_is_in_its_group_before_its_cores_are_counted() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let mut host = empty(&machine);
    machine.faults.forget();
    assert_eq!(host.place_tenants(vec![tenant("a", "0-1")]).arrived.len(), 1);
    assert_eq!(machine.root().read_text("/sys/fs/resctrl/waykeeper-a/cpus_list").unwrap(), "0-1\n");
    let registers = || machine.faults.seen().into_keys().filter(|(path, _)| path.ends_with("/msr")).count();
    assert_eq!(registers(), 0);
    host.count_tenants();
    assert!(registers() > 0);
    let a = id(&host, "a");
    sample(&mut host);
    machine.run(5 * MS);
    assert!(sample(&mut host).groups[&a][WorkloadCounter::Instructions].value().is_some_and(|all| all > 0));
    ends(&machine, host, &found);
}

#[test]
fn the_managed_l3_is_the_named_one() {
    let machine = MountedHost::new("gold-6140");
    let open = |managed| {
        let options = LinuxHostOptions::new(machine.root(), Vec::new(), machine.journal());
        LinuxHost::open(LinuxHostOptions { managed: Some(managed), ..options })
            .map(|host| host.inventory().cores[0])
    };
    assert_eq!(open(Managed::Socket(0)).unwrap().0, 0);
    assert_eq!(open(Managed::Domain(0)).unwrap().0, 0);
    assert_eq!(open(Managed::Cpu(waykeeper_units::CoreId(3))).unwrap().0, 0, "they share it");
    assert_eq!(
        open(Managed::Cpu(waykeeper_units::CoreId(999))).unwrap().0,
        0,
        "there is no such CPU: the lowest one's"
    );
    let error = open(Managed::Domain(7)).unwrap_err().to_string();
    assert!(error.starts_with("there is no L3 with the id 7; there are 0"), "{error}");
    assert_eq!(open(Managed::Socket(9)).unwrap_err().to_string(), "no CPU of socket 9 is online");
}

#[test]
fn cores_that_come_and_go_leave_every_rate_right_or_missing_once() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let mut host = empty(&machine);
    let (wide, scan) = (tenant("l2fwd", "0-1"), tenant("scan", "3"));
    host.set_tenants(vec![wide.clone(), scan.clone()]);
    let cycles = |core: u16| {
        machine.with_model(|server| server.bare().cores(usize::from(core)..usize::from(core) + 1).cycles)
    };
    machine.run_to(10 * MS);
    let (forward, other) = (id(&host, "l2fwd"), id(&host, "scan"));
    let mut last = sample(&mut host);
    let mut at = [0, 1, 2, 3].map(cycles);
    // The cores of the two tenants in each interval: core 1 moves between them, core 2 is added and removed.
    let steps = [("0-1", "3"), ("0", "1,3"), ("0", "1-3"), ("0-1", "3"), ("0-1", "3")];
    for (time, (ours, theirs)) in (2..).zip(steps) {
        host.set_tenants(vec![tenant("l2fwd", ours), tenant("scan", theirs)]);
        machine.run_to(time * 10 * MS);
        let (now, next) = ([0, 1, 2, 3].map(cycles), sample(&mut host));
        let seen = Interval::between(
            &Snapshot { at_ns: 0, counters_read: None, ..last },
            &Snapshot { at_ns: 1_000_000_000, counters_read: None, ..next.clone() },
        );
        let seen = seen.expect("an interval");
        for (group, cores) in [(forward, ours), (other, theirs)] {
            let cores: waykeeper_units::CoreList = cores.parse().unwrap();
            let moved: u64 = cores.cores().iter().map(|core| now[core.index()] - at[core.index()]).sum();
            let rate = seen.groups[&group][WorkloadCounter::Cycles]
                .value()
                .unwrap_or_else(|| panic!("{group} at {time}"));
            // Each core's counts are whole numbers.
            assert!((rate - moved as f64).abs() < 8.0, "{group} at {time}: {rate} is not {moved}");
        }
        (last, at) = (next, now);
    }
    assert_eq!(host.complaints(), [""; 0]);
    // The registers of a core that no tenant has any more are restored.
    assert_eq!(machine.msr(2, 0x186), 0);
    ends(&machine, host, &found);
}

/// A small generator with the same numbers on every machine (Knuth's constants, MMIX).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// The mask in force on a CPU.
fn mask_of(machine: &MountedHost, cpu: usize) -> u32 {
    machine.with_model(|server| {
        let class = server.class(cpu).0 as usize;
        server.mask(0, class).expect("a mask") as u32
    })
}

#[test]
fn dozens_of_tenants_on_eight_classes_have_what_they_were_given() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let mut host = empty(&machine);
    let mut dice = Dice(1);
    let mut wished: BTreeMap<WorkloadId, u32> = BTreeMap::new();
    let mut ids = BTreeSet::new();
    let (mut grouped, mut last) = (0, sample(&mut host));
    for round in 0..40u64 {
        // Of 16 tenants with a core each, about half are present.
        let alive: Vec<Tenant> = (0..16)
            .filter(|_| dice.below(2) == 0)
            .map(|core| Tenant {
                priority: if core % 5 == 0 { Priority::High } else { Priority::Low },
                ..tenant(&format!("t{core}"), &core.to_string())
            })
            .collect();
        let changes = host.set_tenants(alive.clone());
        assert_eq!((changes.refused, changes.postponed), (Vec::new(), None), "round {round}");
        assert!(changes.arrived.iter().all(|id| ids.insert(*id)), "a number comes twice");
        let groups = host.workloads();
        assert_eq!(groups.len(), alive.len());
        wished.retain(|id, _| groups.iter().any(|group| group.id == *id));
        grouped += host.groupings().len();
        for group in &groups {
            let mask = wished.get(&group.id).copied().unwrap_or(FULL);
            assert_eq!(
                mask_of(&machine, group.cores.cores()[0].index()),
                mask,
                "{} comes in round {round}",
                group.name
            );
        }
        let plan: BTreeMap<WorkloadId, u32> = groups
            .iter()
            .filter_map(|group| match dice.below(3) {
                0 => Some((group.id, [FULL, 0x3, 0xc, 0x30, 0x600][dice.below(5) as usize])),
                _ => None,
            })
            .collect();
        let masks = plan.iter().map(|(id, bits)| (*id, WayMask::from_bits(*bits)));
        let applied = host.apply(&Plan::of_masks(masks)).expect("a report");
        assert!(applied.is_complete(), "round {round}: {applied:?}");
        wished.extend(plan);
        machine.run_to((round + 1) * MS);
        let next = sample(&mut host);
        for group in &groups {
            let mask = wished.get(&group.id).copied().unwrap_or(FULL);
            assert_eq!(next.knobs.mask(group.id).unwrap().bits(), mask, "{} in round {round}", group.name);
            assert_eq!(
                mask_of(&machine, group.cores.cores()[0].index()),
                mask,
                "{} in round {round}",
                group.name
            );
            assert!(
                next.groups[&group.id][WorkloadCounter::Cycles].value().is_some(),
                "{} in round {round}",
                group.name
            );
        }
        // A tenant's sums never fall.
        for (id, now) in &next.groups {
            if let Some(before) = last.groups.get(id) {
                let pair = before[WorkloadCounter::Instructions]
                    .value()
                    .zip(now[WorkloadCounter::Instructions].value());
                assert!(pair.is_none_or(|(before, now)| before <= now), "{id} in round {round}");
            }
        }
        last = next;
    }
    assert!(grouped > 30, "eight classes were too few: {grouped}");
    assert!(ids.len() > 100, "{} arrivals", ids.len());
    let complaints = host.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
    // No group of a removed tenant is left.
    let groups = machine.root().list("/sys/fs/resctrl").unwrap();
    assert!(groups.iter().filter(|name| name.starts_with("waykeeper-")).count() <= 7, "{groups:?}");
    ends(&machine, host, &found);
}

#[test]
fn who_waits_for_a_class_gets_the_next_that_is_free() {
    let machine = MountedHost::new("gold-6140");
    let mut host = empty(&machine);
    let all: Vec<Tenant> = (0..9).map(|core| tenant(&format!("t{core}"), &core.to_string())).collect();
    let changes = host.set_tenants(all.clone());
    assert_eq!(changes.arrived.len(), 9);
    let waiting = |host: &LinuxHost| {
        host.groupings().into_iter().map(|own| (own.tenant, own.with, own.in_default)).collect::<Vec<_>>()
    };
    // Eight classes, one of them the default group's.
    assert_eq!(
        waiting(&host),
        [("t7".to_owned(), vec!["t8".to_owned()], true), ("t8".to_owned(), vec!["t7".to_owned()], true)]
    );
    assert!(
        host.groupings()[0].why.contains("all 7 classes of service for tenants are in use"),
        "{:?}",
        host.groupings()
    );
    assert!(
        sample(&mut host)
            .groups
            .values()
            .all(|group| group[WorkloadCounter::OccupancyBytes].value().is_some())
    );
    // The high-priority tenant gets the class first, although it came later.
    let mut rest = all[1..].to_vec();
    rest[7].priority = Priority::High;
    host.set_tenants(rest);
    assert_eq!(waiting(&host), [("t7".to_owned(), vec![], true)]);
    assert!(machine.root().exists("/sys/fs/resctrl/waykeeper-t8"));
    assert!(!machine.root().exists("/sys/fs/resctrl/mon_groups/waykeeper-t8"));
    assert!(
        sample(&mut host)
            .groups
            .values()
            .all(|group| group[WorkloadCounter::OccupancyBytes].value().is_some())
    );
}

#[test]
fn a_refused_tenant_is_reported_once_and_the_others_continue() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let root = machine.root();
    root.make_dir("/sys/fs/resctrl/COS1").unwrap();
    root.write_once("/sys/fs/resctrl/COS1/cpus_list", "9\n").unwrap();
    let mut host = empty(&machine);
    host.set_tenants(vec![tenant("a", "0-1")]);
    let all = || {
        vec![tenant("a", "0-1"), tenant("b", "1-2"), tenant("c", "9"), tenant("d", "4"), tenant("e", "400")]
    };
    let changes = host.set_tenants(all());
    assert_eq!(changes.arrived, [id(&host, "d")]);
    let reported: BTreeMap<String, String> =
        changes.refused.into_iter().map(|own| (own.tenant, own.why)).collect();
    assert_eq!(reported["b"], "core 1 belongs to tenant a; a core has one tenant");
    assert!(reported["c"].starts_with("CPUs 9 of tenant c are in resctrl group COS1"), "{reported:?}");
    assert!(reported["e"].starts_with("cores 400 of tenant e are not on the managed L3"), "{reported:?}");
    for _ in 0..20 {
        assert!(host.set_tenants(all()).is_empty());
    }
    assert_eq!(host.refused().len(), 3);
    // The obstacle is removed. b is added at once, since its description changed; c when its backoff has passed.
    root.remove_dir("/sys/fs/resctrl/COS1").unwrap();
    let without = || vec![tenant("a", "0"), tenant("b", "1-2,5"), tenant("c", "9"), tenant("d", "4")];
    let mut arrived = Vec::new();
    for _ in 0..64 {
        arrived.extend(host.set_tenants(without()).arrived);
    }
    assert_eq!(arrived, [id(&host, "b"), id(&host, "c")]);
    assert_eq!(host.refused(), []);
    // A present tenant is refused another tenant's core too; the core that it no longer lists is taken away.
    let changes =
        host.set_tenants(vec![tenant("a", "0"), tenant("b", "2,4"), tenant("c", "9"), tenant("d", "4")]);
    assert_eq!(changes.refused.len(), 1, "{changes:?}");
    assert_eq!(root.read_text("/sys/fs/resctrl/waykeeper-b/cpus_list").unwrap(), "2\n");
    ends(&machine, host, &found);
}

fn refuse(machine: &MountedHost, path: &str, operation: Operation, errno: Errno) {
    let (path, operation) = (path.to_owned(), Some(operation));
    machine.faults.inject(FaultRule { path, operation, calls: Calls::All, fault: FileFault::Refuse(errno) });
}

#[test]
fn faults_of_arrivals_and_departures_are_reported_and_made_good() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let mut host = empty(&machine);
    let (a, b) = (tenant("a", "0"), tenant("b", "1"));
    // The kernel has no class left although it reported one: the tenant is in the default group.
    refuse(&machine, "sys/fs/resctrl/waykeeper-?", Operation::MakeDirectory, Errno::NOSPC);
    assert_eq!(host.set_tenants(vec![a.clone()]).arrived.len(), 1);
    assert!(host.groupings()[0].in_default, "{:?}", host.groupings());
    assert!(host.complaints().iter().any(|reported| reported.contains("making the group: No space left")));
    assert_eq!(host.inventory().known_llc().clos_count, 1);
    machine.faults.lift();
    // It is retried after some changes.
    for core in 0..20 {
        host.set_tenants(vec![tenant("x", &(core % 10).to_string())]);
    }
    assert_eq!(host.inventory().known_llc().clos_count, 8);
    // EIO: the tenant is refused, nothing of it is left, and the next try adds it.
    host.set_tenants(vec![]);
    for (path, operation) in [
        ("sys/fs/resctrl/waykeeper-b", Operation::MakeDirectory),
        ("sys/fs/resctrl/waykeeper-b/cpus_list", Operation::Write),
        ("sys/fs/resctrl/waykeeper-b/schemata", Operation::Open),
    ] {
        refuse(&machine, path, operation, Errno::IO);
        let changes = host.set_tenants(vec![b.clone()]);
        assert_eq!((changes.arrived.len(), changes.refused.len()), (0, 1), "{path}: {changes:?}");
        assert!(changes.refused[0].why.contains("waykeeper-b"), "{changes:?}");
        assert_eq!(host.workloads(), []);
        machine.faults.lift();
        assert!(!machine.root().exists("/sys/fs/resctrl/waykeeper-b"), "{path}");
        let arrived: usize = (0..4).map(|_| host.set_tenants(vec![b.clone()]).arrived.len()).sum();
        assert_eq!(arrived, 1, "{path}");
        host.set_tenants(vec![]);
    }
    // A group that cannot be removed is reported and retried, and does not block the next tenant on that core.
    host.set_tenants(vec![a.clone()]);
    host.complaints();
    refuse(&machine, "sys/fs/resctrl/waykeeper-a", Operation::RemoveDirectory, Errno::IO);
    assert_eq!(host.set_tenants(vec![tenant("c", "0")]).arrived.len(), 1);
    assert!(
        host.complaints()
            .iter()
            .any(|reported| reported.contains("could not be removed") && reported.contains("waykeeper-a"))
    );
    assert_eq!(machine.root().read_text("/sys/fs/resctrl/waykeeper-c/cpus_list").unwrap(), "0\n");
    machine.faults.lift();
    host.set_tenants(vec![tenant("c", "0")]);
    assert!(!machine.root().exists("/sys/fs/resctrl/waykeeper-a"));
    ends(&machine, host, &found);
}

#[test]
fn another_tools_monitoring_group_has_its_cpus_back_when_the_tenant_leaves() {
    let machine = MountedHost::new("gold-6140");
    let root = machine.root();
    let cpus = "/sys/fs/resctrl/mon_groups/watched/cpus_list";
    root.make_dir("/sys/fs/resctrl/mon_groups/watched").unwrap();
    root.write_once(cpus, "0,2,9\n").unwrap();
    let found = machine.state();
    let mut host = empty(&machine);
    let read = || root.read_text(cpus).unwrap();
    host.set_tenants(vec![tenant("a", "0"), tenant("b", "2")]);
    assert_eq!(read(), "9\n");
    host.set_tenants(vec![tenant("b", "2")]);
    assert_eq!(read(), "0,9\n");
    let journal = std::fs::read_to_string(machine.journal()).unwrap();
    assert!(journal.contains("watched"));
    ends(&machine, host, &found);
    assert_eq!(read(), "0,2,9\n");
}

#[test]
fn another_tools_lock_postpones_and_a_plan_for_one_who_left_is_refused() {
    use rustix::fs::{FlockOperation, flock};
    let machine = MountedHost::with(scenario("gold-6140", SCENARIO), manual_clock(16));
    let mut host = empty(&machine);
    host.set_tenants(vec![tenant("a", "0")]);
    let gone = id(&host, "a");
    let lock = std::fs::File::open(machine.root().path("/sys/fs/resctrl")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let changes = host.set_tenants(vec![tenant("b", "1")]);
    assert!(changes.postponed.is_some_and(|why| why.contains("holds the lock")));
    assert_eq!(host.workloads().len(), 1);
    flock(&lock, FlockOperation::Unlock).unwrap();
    assert_eq!(host.set_tenants(vec![tenant("b", "1")]).left, [(gone, "a".to_owned())]);
    let masks = BTreeMap::from([(gone, WayMask::from_bits(0xf))]);
    let applied = host.apply(&Plan::of_masks(masks)).expect("a report");
    assert!(
        matches!(&applied[Knob::Mask(gone)], KnobOutcome::Refused(why) if why.contains("does not exist"))
    );
}
