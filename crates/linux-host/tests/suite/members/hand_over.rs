//! Knobs that one host hands over to the next: groups, masks, tasks and DCA stay as they are, what the next one may not have
//! is restored, and the end is as before both.

use super::{empty, ends, id, sample, tenant};
use std::time::Duration;
use waykeeper_host::{Host, Knob, Plan};
use waykeeper_linux_host::{AllowedChanges, DcaLimit, LinuxHost, LinuxHostOptions};
use waykeeper_tenants::Tenant;
use waykeeper_testbed::{HostState, MountedHost, groups};
use waykeeper_units::{PortId, WayMask};
use waykeeper_vhost::faults::Operation;

const PORT: Knob = Knob::Dca(PortId(0));

/// Options of the next host.
fn options(machine: &MountedHost, limits: AllowedChanges) -> LinuxHostOptions {
    let options = LinuxHostOptions::new(machine.root(), Vec::new(), machine.journal());
    LinuxHostOptions { takes_over: true, limits, ..options }
}

fn open(options: LinuxHostOptions) -> LinuxHost {
    LinuxHost::open(options).unwrap_or_else(|error| panic!("{error}"))
}

/// Limits with one class of service.
fn one_class() -> AllowedChanges {
    AllowedChanges { max_classes: Some(1), ..AllowedChanges::default() }
}

/// Masks and CPUs of all groups, tasks of ours, the DCA ways, and DCA of the first port.
fn knobs(machine: &MountedHost, host: &LinuxHost) -> HostState {
    let mut state = groups(&machine.root());
    // The default group has the tasks of this machine, which come and go.
    let ours = state.keys().filter(|path| path.contains("waykeeper-"));
    let ours: Vec<String> =
        ours.filter_map(|path| path.strip_suffix("/schemata")).map(ToOwned::to_owned).collect();
    for group in ours {
        let text = machine.root().read_text(format!("{group}/tasks")).expect("tasks");
        state.insert(format!("{group}/tasks"), text);
    }
    state.insert("DCA ways".to_owned(), format!("{:#x}", machine.msr(0, 0xc8b)));
    let port = host.inventory().ports[0].address.clone();
    let mut byte = [0];
    machine.config(&port).read_at(&mut byte, 0x180).expect("read");
    state.insert("DCA".to_owned(), format!("{:#x}", byte[0]));
    state
}

/// Tenants a and b with other masks, DCA off and other DCA ways; `limits` decide about their classes.
fn first(machine: &MountedHost, limits: AllowedChanges) -> (LinuxHost, Vec<Tenant>) {
    let mut host = open(LinuxHostOptions { takes_over: false, ..options(machine, limits) });
    let tenants = vec![tenant("a", "0-1"), tenant("b", "2")];
    host.set_tenants(tenants.clone());
    let masks = ["a", "b"].map(|name| (id(&host, name), WayMask::from_bits(0x00f)));
    let plan = Plan::of_masks(masks).with(PORT, false).with(Knob::DcaWays, WayMask::from_bits(0x700));
    assert!(host.apply(&plan).expect("a report").is_complete());
    (host, tenants)
}

fn hand_over(host: &mut LinuxHost, machine: &MountedHost) {
    let now = machine.root().system().now();
    host.hand_over(now + Duration::from_secs(60), None).expect("a mark");
    assert!(host.close().expect("closed already").knobs.is_empty());
}

#[test]
fn everything_stays_in_force_and_nothing_is_written_to_it() {
    // Each tenant in a class of its own, and both in one, b with a monitoring group in it.
    for limits in [AllowedChanges::default(), one_class()] {
        let machine = MountedHost::new("gold-6140");
        let found = machine.state();
        let (mut host, tenants) = first(&machine, limits.clone());
        let in_force = knobs(&machine, &host);
        hand_over(&mut host, &machine);
        assert_eq!(knobs(&machine, &host), in_force);
        drop(host);
        machine.faults.forget();
        let mut host = open(options(&machine, limits.clone()));
        let changes = host.set_tenants(tenants.clone());
        assert_eq!((changes.arrived.len(), changes.refused.len()), (2, 0), "{changes:?}");
        let seen = machine.faults.seen();
        let changes = [Operation::Write, Operation::MakeDirectory, Operation::RemoveDirectory];
        let of_resctrl = |(path, operation): &&(String, Operation)| {
            path.contains("resctrl") && changes.contains(operation)
        };
        let written: Vec<_> = seen.keys().filter(of_resctrl).collect();
        assert!(written.is_empty(), "{written:?}");
        assert_eq!(knobs(&machine, &host), in_force);
        assert!(
            host.notes().iter().any(|note| note.contains("left its knobs to this one")),
            "{:?}",
            host.notes()
        );
        // The mark has served its purpose: a later start would restore.
        assert!(!String::from_utf8_lossy(&std::fs::read(machine.journal()).unwrap()).contains("hand_over"));
        // Nothing is an external change, and the originals are those before both.
        let snapshot = sample(&mut host);
        assert_eq!((host.complaints(), host.external_changes()), (Vec::new(), Vec::new()));
        assert_eq!(snapshot.knobs.mask(id(&host, "b")), Some(WayMask::from_bits(0x00f)));
        let masks = ["a", "b"].map(|name| (id(&host, name), WayMask::from_bits(0x7ff)));
        let originals = Plan::of_masks(masks).with(PORT, true).with(Knob::DcaWays, WayMask::from_bits(0x600));
        assert_eq!(host.originals_taken_over(), originals);
        // It manages them: one tenant ends, one gets another mask, and DCA is on again.
        host.set_tenants(tenants[..1].to_vec());
        let plan = Plan::from([(Knob::Mask(id(&host, "a")), WayMask::from_bits(0x0f0))]).with(PORT, true);
        assert!(host.apply(&plan).expect("a report").is_complete());
        assert_eq!(machine.mask_of(0), "f0");
        assert_eq!(machine.mask_of(2), "7ff");
        ends(&machine, host, &found);
    }
}

#[test]
fn tenants_keep_their_numbers_and_what_was_learnt_comes_once() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let (mut host, tenants) = first(&machine, AllowedChanges::default());
    // Tenant a comes again, so that the numbers are not those of the order.
    host.set_tenants(tenants[1..].to_vec());
    host.set_tenants(tenants.clone());
    let numbers = ["a", "b"].map(|name| id(&host, name));
    assert_eq!(numbers.map(|number| number.0), [2, 1]);
    let learnt = serde_json::json!({ "best": [1.5] });
    let now = machine.root().system().now();
    host.hand_over(now + Duration::from_secs(60), Some(learnt.clone())).expect("a mark");
    drop(host);
    let mut host = open(options(&machine, AllowedChanges::default()));
    host.set_tenants(tenants.iter().cloned().chain([tenant("c", "3")]).collect());
    assert_eq!(["a", "b", "c"].map(|name| id(&host, name).0), [2, 1, 3]);
    let (content, ago) = host.memory_taken_over().expect("what was learnt");
    assert!(content == learnt && ago < Duration::from_secs(60), "{content} {ago:?}");
    assert!(host.memory_taken_over().is_none());
    // The same name later is another tenant.
    host.set_tenants(tenants[1..].to_vec());
    host.set_tenants(tenants.clone());
    assert_eq!(id(&host, "a").0, 4);
    ends(&machine, host, &found);
}

#[test]
fn what_the_next_one_may_not_set_is_restored() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let (mut host, tenants) = first(&machine, AllowedChanges::default());
    hand_over(&mut host, &machine);
    let before = knobs(&machine, &host);
    drop(host);
    let limits = AllowedChanges { dca_ways: false, dca: DcaLimit::None, ..AllowedChanges::default() };
    let mut host = open(options(&machine, limits));
    host.set_tenants(tenants.clone());
    let after = knobs(&machine, &host);
    assert_eq!((after["DCA ways"].as_str(), before["DCA ways"].as_str()), ("0x600", "0x700"));
    assert_ne!(after["DCA"], before["DCA"]);
    assert_eq!(machine.mask_of(0), "f");
    // A chain: the next one gets what this one has, before its first tenants too; it has one class of service, not two.
    hand_over(&mut host, &machine);
    drop(host);
    let mut host = open(options(&machine, one_class()));
    hand_over(&mut host, &machine);
    drop(host);
    let mut host = open(options(&machine, one_class()));
    host.set_tenants(tenants);
    assert_eq!((machine.mask_of(0).as_str(), machine.mask_of(2).as_str()), ("f", "7ff"));
    ends(&machine, host, &found);
}

#[test]
fn a_host_that_does_not_ask_to_take_over_restores() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let (mut host, _) = first(&machine, AllowedChanges::default());
    hand_over(&mut host, &machine);
    drop(host);
    let host = empty(&machine);
    assert!(!machine.root().exists("/sys/fs/resctrl/waykeeper-a"));
    ends(&machine, host, &found);
}

#[test]
fn a_tenant_whose_cpu_another_program_took_meanwhile_is_refused_and_the_other_stays() {
    let machine = MountedHost::new("gold-6140");
    let (mut host, tenants) = first(&machine, AllowedChanges::default());
    hand_over(&mut host, &machine);
    drop(host);
    let theirs = machine.make_foreign_group("pqos-a");
    std::fs::write(theirs.join("cpus_list"), "2\n").unwrap();
    let mut host = open(options(&machine, AllowedChanges::default()));
    let changes = host.set_tenants(tenants);
    assert_eq!(changes.refused.len(), 1, "{changes:?}");
    assert!(changes.refused[0].why.contains("pqos-a"), "{changes:?}");
    assert!(!machine.root().exists("/sys/fs/resctrl/waykeeper-b"));
    assert_eq!(machine.mask_of(0), "f");
    assert_eq!(std::fs::read_to_string(theirs.join("cpus_list")).unwrap(), "2\n");
    assert!(host.close().expect("closed").is_complete());
    drop(host);
    let ours = groups(&machine.root()).into_keys().find(|path| path.contains("waykeeper-"));
    assert_eq!((ours, machine.msr(0, 0xc8b)), (None, 0x600));
}
