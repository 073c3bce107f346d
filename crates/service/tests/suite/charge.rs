//! How a configuration limits the daemon on a mounted virtual server: limits, machine profile, classes of service.
//! Needs root and /dev/fuse.

use std::fmt::Write;
use std::path::Path;
use waykeeper_host::{Host, Knob, KnobOutcome, Plan, Support, WorkloadCounter};
use waykeeper_linux_host::profile::{
    DcaWaysRegister, KnobState, MachineIdentity, MachineProfile, VERSION, Ways, microcode,
};
use waykeeper_service::config::{Config, Inputs};
use waykeeper_service::dry_run::DryRun;
use waykeeper_service::engine::ManagedHost;
use waykeeper_service::linux::ManagedLinuxHost;
use waykeeper_testbed::faults::{Calls, FaultRule, FileFault, Operation};
use waykeeper_testbed::{MountedHost, assert_same_state};
use waykeeper_units::{WayMask, WorkloadId};

/// The configuration of a machine's tenants; `daemon` is added to its first section.
fn config(machine: &MountedHost, daemon: &str, more: &str) -> Config {
    let file = machine.folder().join("waykeeper.toml");
    let (root, journal) = (machine.root().prefix().to_owned(), machine.journal());
    let mut text = format!("[daemon]\nroot = {root:?}\njournal = {journal:?}\n{daemon}\n{more}\n");
    for tenant in machine.options().tenants {
        write!(text, "[[tenant]]\nname = \"{}\"\ncores = \"{}\"\n", tenant.name, tenant.cores).unwrap();
    }
    std::fs::write(&file, text).unwrap();
    Config::load(&Inputs { file: Some(file), ..Inputs::default() }).unwrap_or_else(|error| panic!("{error}"))
}

fn open(config: &Config) -> ManagedLinuxHost {
    let mut managed_host = ManagedLinuxHost::open(config).unwrap_or_else(|error| panic!("{error}"));
    managed_host.refresh();
    managed_host
}

/// A mask, and the ways of devices.
fn plan() -> Plan {
    Plan::of_masks([(WorkloadId(0), WayMask::from_bits(0x600))])
        .with(Knob::DcaWays, WayMask::from_bits(0x700))
}

/// Writes a profile that says that this machine's register of the DCA ways has no effect.
fn write_profile(machine: &MountedHost, file: &Path) {
    let host = machine.open();
    MachineProfile {
        version: VERSION,
        made_unix_s: 0,
        made_by: "0.1.0".to_owned(),
        evidence: Vec::new(),
        host: MachineIdentity::of(host.inventory(), microcode(&machine.root())),
        ways: Ways::default(),
        register: Some(DcaWaysRegister {
            state: KnobState::NoEffect,
            kept: None,
            fewest: None,
            most: None,
            least: None,
        }),
        port: Vec::new(),
    }
    .write(file)
    .unwrap();
}

#[test]
fn a_policy_does_not_turn_what_the_profile_says_is_dead() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let file = machine.folder().join("profile.toml");
    write_profile(&machine, &file);
    let check = |host: &ManagedLinuxHost| {
        let settings = "dca_ways = \"0x700\"".parse().unwrap();
        let policy = waykeeper_policy::build("fixed", &settings).unwrap();
        policy.check(host.inventory(), &[]).map_err(|why| why.to_string())
    };
    let with = |value: &str| config(&machine, &format!("profile = {value:?}"), "");
    let mut managed_host = open(&with(file.to_str().unwrap()));
    assert_eq!(managed_host.inventory().dca_ways_switch, Support::ReadOnly);
    assert!(check(&managed_host).unwrap_err().contains("it can be read"));
    assert!(
        managed_host
            .take_events()
            .iter()
            .any(|reported| reported.starts_with("using machine profile ")
                && reported.ends_with("profile.toml"))
    );
    let outcome = managed_host.apply(&plan()).unwrap()[Knob::DcaWays].clone();
    assert!(matches!(outcome, KnobOutcome::Refused(why) if why.contains("machine profile")));
    drop(managed_host);
    // Without a profile, and with the usual one, which this machine does not have, the register counts as working.
    for value in ["off", "usual"] {
        let managed_host = open(&with(value));
        assert_eq!(
            (managed_host.inventory().dca_ways_switch.clone(), check(&managed_host)),
            (Support::Yes, Ok(()))
        );
    }
    // A file that is named must exist and be a profile.
    let refused = |file: &Path| {
        ManagedLinuxHost::open(&with(file.to_str().unwrap())).map(|_| ()).unwrap_err().to_string()
    };
    assert!(refused(&machine.folder().join("none.toml")).ends_with("none.toml: entity not found"));
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("llc_ways", "llc_weys")).unwrap();
    assert!(refused(&file).contains("nearest is `llc_ways`"));
    assert_same_state(&machine.state(), &found, "after all that");
}

#[test]
fn a_cpu_that_is_offline_for_a_time_is_reported_and_followed() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let mut managed_host = open(&config(&machine, "", ""));
    let cores = |managed_host: &ManagedLinuxHost, name: &str| {
        let groups = managed_host.workloads();
        groups.iter().find(|group| group.name == name).map(|group| group.cores.to_string())
    };
    let reported = |managed_host: &ManagedLinuxHost| {
        managed_host.active_problems().into_iter().map(|own| own.text).collect::<Vec<_>>().join("; ")
    };
    let before: Vec<_> = ["l2fwd", "fio"].map(|name| cores(&managed_host, name)).into();
    assert_eq!(before, [Some("0-1".to_owned()), Some("2".to_owned())]);
    managed_host.sample().unwrap();
    // Takes offline CPU 1, one of l2fwd's two, and CPU 2, fio's only one.
    let online = FileFault::Garbage(b"0,3-35\n".to_vec());
    let path = "sys/devices/system/cpu/online".to_owned();
    machine.faults.inject(FaultRule {
        path,
        operation: Some(Operation::Read),
        calls: Calls::All,
        fault: online,
    });
    managed_host.refresh();
    assert_eq!(cores(&managed_host, "l2fwd").as_deref(), Some("0"));
    assert!(
        reported(&managed_host).contains("not all of its cores 0-1 are online; it has 0"),
        "{}",
        reported(&managed_host)
    );
    // fio has no CPU left, which is reported once, with the reason.
    assert!(
        managed_host.active_problems().iter().any(|own| own.kind == "absent" && own.text.contains("fio"))
    );
    assert!(!managed_host.take_events().iter().any(|line| line.contains("fio went")));
    let snapshot = managed_host.sample().unwrap();
    assert!(snapshot.groups.values().any(|group| group[WorkloadCounter::Cycles].value().is_some()));
    machine.faults.lift();
    managed_host.refresh();
    let after: Vec<_> = ["l2fwd", "fio"].map(|name| cores(&managed_host, name)).into();
    assert_eq!(after, before);
    assert!(!reported(&managed_host).contains("online"), "{}", reported(&managed_host));
    assert!(managed_host.take_events().iter().any(|line| line == "tenant fio appeared"));
    managed_host.sample().unwrap();
    managed_host.restore().unwrap_or_else(|why| panic!("{why:?}"));
    assert_same_state(&machine.state(), &found, "after CPUs that came and went");
}

#[test]
fn a_dry_run_keeps_to_the_limits_and_an_observer_sees_every_tenant() {
    let machine = MountedHost::new("gold-6140");
    let dry = |limits: &str| {
        let config = config(&machine, "mode = \"dry-run\"", limits);
        DryRun::over(open(&config)).apply(&plan()).unwrap()
    };
    let applied = dry("");
    assert_eq!(
        (&applied[Knob::Mask(WorkloadId(0))], &applied[Knob::DcaWays]),
        (&KnobOutcome::Applied, &KnobOutcome::Applied)
    );
    let applied = dry("[limits]\nmasks = false\ndca_ways = false");
    assert!(
        matches!(&applied[Knob::Mask(WorkloadId(0))], KnobOutcome::Refused(why) if why.contains("no class"))
    );
    assert!(
        matches!(&applied[Knob::DcaWays], KnobOutcome::Refused(why) if why.starts_with("the configuration forbids "))
    );
    // fio and scan are on CPUs 2 and 3.
    let seen = |mode: &str| {
        let managed_host = open(&config(&machine, &format!("mode = {mode:?}"), "[limits]\ncpus = \"0-1\""));
        managed_host.workloads().len()
    };
    assert_eq!((seen("dry-run"), seen("observe")), (1, 3));
}

#[test]
fn an_observer_without_declared_tenants_finds_them_and_may_program_counters_but_no_knob() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let load = |daemon: &str| {
        let file = machine.folder().join("waykeeper.toml");
        let (root, journal) = (machine.root().prefix().to_owned(), machine.journal());
        let text =
            format!("[daemon]\nroot = {root:?}\njournal = {journal:?}\nmode = \"observe\"\n{daemon}\n");
        std::fs::write(&file, text).unwrap();
        Config::load(&Inputs { file: Some(file), ..Inputs::default() }).unwrap()
    };
    let cycles = |daemon: &str| {
        let config = load(daemon);
        let mut host = open(&config);
        let mut names: Vec<String> = host.workloads().into_iter().map(|group| group.name).collect();
        names.sort();
        assert_eq!(names, ["fio", "l2fwd", "scan"]);
        let events = host.take_events().join("\n");
        assert!(
            events.contains("no tenant is declared; observing those found: l2fwd, fio, scan"),
            "{events}"
        );
        host.sample().unwrap();
        machine.run(50 * waykeeper_testbed::MS);
        let sample = host.sample().unwrap();
        let id = host.workloads().iter().find(|group| group.name == "scan").unwrap().id;
        assert_eq!(sample.knobs.mask(id).map(WayMask::bits), Some(0x7ff), "the default group's");
        let refused = |knob, setting: Plan| {
            let applied = host.apply(&setting).unwrap();
            matches!(&applied[knob], KnobOutcome::Refused(why) if why.contains("only observes"))
        };
        let mut refused = refused;
        assert!(refused(Knob::DcaWays, plan()));
        assert!(host.active_problems().iter().all(|problem| problem.kind != "grouping"));
        let counted = sample.groups[&id][WorkloadCounter::Cycles].value();
        host.restore().unwrap_or_else(|why| panic!("{why:?}"));
        assert_same_state(&machine.state(), &found, "after observing");
        counted
    };
    // Perf does not count a virtual host, so its counters must be programmed.
    assert_eq!(cycles(""), None);
    assert!(cycles("program_counters = true").is_some_and(|cycles| cycles > 0));
    // A reload that declares tenants ends the search, and one without begins it again.
    let config = load("");
    let mut host = open(&config);
    let one =
        waykeeper_tenants::parse(Path::new("t.toml"), "[[tenant]]\nname = \"own\"\ncores = \"3\"\n").unwrap();
    host.declare(one);
    host.refresh();
    let names =
        |host: &ManagedLinuxHost| host.workloads().into_iter().map(|group| group.name).collect::<Vec<_>>();
    assert_eq!(names(&host), ["own"]);
    host.declare(Vec::new());
    host.refresh();
    assert_eq!(names(&host).len(), 3);
}
