//! Properties of resctrl after any sequence of operations: exclusive ways are not shared, nothing is lost, and the
//! hardware has the values in the files.

use crate::transcript;

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use transcript::{amd, intel};
use waykeeper_vhost::node::Caller;
use waykeeper_vhost::resctrl::VirtualResctrl;
use waykeeper_vhost::resctrl::description::{Cdp, IoAllocSupport, Kernel, ResctrlDescription};
use waykeeper_vhost::resctrl::groups::DirOwner;
use waykeeper_vhost::resctrl::hardware::{Hardware, LimitedTraffic, MaskedLines, Monitored, RmidEvent};
use waykeeper_vhost::resctrl::places::Place;
use waykeeper_vhost::resctrl::tasks::{Task, Tasks};

const CALLER: Caller = Caller { pid: 11, uid: 0 };

/// Registers that keep their values, and the tasks 10 to 13.
#[derive(Clone, Default)]
struct Machine(Arc<Mutex<Registers>>);

#[derive(Default)]
struct Registers {
    masks: BTreeMap<(u32, u32, MaskedLines), u64>,
    cpus: BTreeMap<u32, (u32, u32)>,
    tasks: BTreeMap<u32, (u32, u32)>,
}

impl Hardware for Machine {
    fn set_mask(&mut self, domain: u32, closid: u32, lines: MaskedLines, mask: u64) {
        self.0.lock().unwrap().masks.insert((domain, closid, lines), mask);
    }

    fn set_bandwidth(&mut self, _: u32, _: u32, _: LimitedTraffic, _: u32) {}

    fn set_cpu(&mut self, cpu: u32, closid: u32, rmid: u32) {
        self.0.lock().unwrap().cpus.insert(cpu, (closid, rmid));
    }

    fn set_task(&mut self, task: u32, closid: u32, rmid: u32) {
        self.0.lock().unwrap().tasks.insert(task, (closid, rmid));
    }

    fn set_io_alloc(&mut self, _: Option<u32>) {}

    fn set_event_kinds(&mut self, _: u32, _: RmidEvent, _: u32) {}

    fn monitor(&mut self, _: u32, rmid: u32, _: RmidEvent) -> Monitored {
        Monitored::Value(u64::from(rmid))
    }
}

impl Tasks for Machine {
    fn list(&mut self) -> Vec<Task> {
        (10..14).map(|id| Task { id, process: id, parent: 1, started: u64::from(id) }).collect()
    }

    fn owner(&mut self, task: u32) -> Option<u32> {
        (10..14).contains(&task).then_some(0)
    }
}

fn find(resctrl: &VirtualResctrl, path: &str) -> Option<Place> {
    path.split('/')
        .filter(|part| !part.is_empty())
        .try_fold(Place::ROOT, |folder, name| resctrl.lookup(folder, name))
}

fn content(resctrl: &mut VirtualResctrl, place: Place) -> String {
    String::from_utf8(resctrl.read(place).unwrap()).unwrap()
}

fn file(resctrl: &mut VirtualResctrl, group: Place, name: &str) -> String {
    let place = resctrl.lookup(group, name).unwrap();
    content(resctrl, place)
}

/// All control groups, the default one first.
fn control_groups(resctrl: &VirtualResctrl) -> Vec<Place> {
    let inner = resctrl.list(Place::ROOT).into_iter().map(|(_, place)| place);
    let groups = inner.filter(|place| matches!(place, Place::Group(_)));
    [Place::ROOT].into_iter().chain(groups).collect()
}

#[derive(Clone, Debug)]
enum Act {
    Make(String),
    Remove(String),
    Rename(String, String),
    Write(String, String),
    /// One mask for all L3 resources and domains.
    Mask(String, u64),
}

/// Ways that a few groups can share or have exclusively.
fn ways() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0x1),
        Just(0x3),
        Just(0xc),
        Just(0x1c),
        Just(0x70),
        Just(0x180),
        Just(0x600),
        Just(0x7f0)
    ]
}

fn control_group() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "g[1-3]/"]
}

fn group() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "g[1-4]/", "(g[12]/)?mon_groups/m[12]/"]
}

fn text() -> impl Strategy<Value = (&'static str, String)> {
    prop_oneof![
        4 => "(L3|MB|L3CODE|L3DATA):[0-2]=[1-9a-f]{1,3}(;[0-2]=[0-9a-f]{1,3})?\n".prop_map(|text| ("schemata", text)),
        2 => "(ex|sh)".prop_map(|mode| ("mode", if mode == "ex" { "exclusive\n" } else { "shareable\n" }.to_owned())),
        2 => "[0-9a-f]\n".prop_map(|text| ("cpus", text)),
        2 => "(0|1[0-4])(,1[0-3])?\n".prop_map(|text| ("tasks", text)),
        1 => ("(schemata|cpus|cpus_list|tasks|mode)", "[L3MB:=;,0-9a-fx \n+-]{0,16}").prop_map(|(name, text)| {
            let names = ["schemata", "cpus_list", "cpus", "tasks", "mode"];
            (*names.iter().find(|known| **known == name).unwrap(), text)
        }),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => group().prop_map(Act::Make),
        1 => group().prop_map(Act::Remove),
        1 => (group(), group()).prop_map(|(from, to)| Act::Rename(from, to)),
        6 => (control_group(), ways()).prop_map(|(group, mask)| Act::Mask(group, mask)),
        3 => control_group().prop_map(|group| Act::Write(format!("{group}mode"), "exclusive\n".to_owned())),
        6 => (group(), text()).prop_map(|(group, (name, text))| Act::Write(format!("{group}{name}"), text)),
        1 => "[01]\n".prop_map(|text| Act::Write("info/L3/io_alloc".into(), text)),
        1 => "[0-3]=[0-9a-f]{1,4}\n".prop_map(|text| Act::Write("info/L3/io_alloc_cbm".into(), text)),
        1 => "[0-9]{1,7}\n".prop_map(|text| Act::Write("info/L3_MON/max_threshold_occupancy".into(), text)),
    ]
}

fn split<'a>(resctrl: &VirtualResctrl, path: &'a str) -> Option<(Place, &'a str)> {
    let path = path.trim_end_matches('/');
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    Some((find(resctrl, folder)?, name))
}

fn perform(resctrl: &mut VirtualResctrl, act: &Act) {
    const MAKER: DirOwner = DirOwner { mode: 0o755, uid: 0, gid: 0 };
    match act {
        Act::Make(path) => {
            if let Some((folder, name)) = split(resctrl, path) {
                let _ = resctrl.mkdir(folder, name, MAKER);
            }
        }
        Act::Remove(path) => {
            if let Some((folder, name)) = split(resctrl, path) {
                let _ = resctrl.rmdir(folder, name);
            }
        }
        Act::Rename(from, to) => {
            if let (Some((from, name)), Some((to, new))) = (split(resctrl, from), split(resctrl, to)) {
                let _ = resctrl.rename(from, name, to, new);
            }
        }
        Act::Mask(group, mask) => {
            let Some(place) = find(resctrl, &format!("{group}schemata")) else { return };
            let held = masks(&content(resctrl, place));
            let lines: String =
                held.keys().map(|(name, domain)| format!("{name}:{domain}={mask:x}\n")).collect();
            let _ = resctrl.write(place, lines.as_bytes(), CALLER);
        }
        Act::Write(path, text) => {
            let Some(place) = find(resctrl, path) else { return };
            let before = resctrl.read(place);
            let refused = resctrl.write(place, text.as_bytes(), CALLER).is_err();
            // A list of tasks stops at the failing one, and the earlier ones stay moved.
            if refused && !path.ends_with("tasks") {
                assert_eq!(resctrl.read(place), before, "{path} {text:?}");
            }
        }
    }
}

/// Masks of a group by resource and domain.
fn masks(schemata: &str) -> BTreeMap<(String, u32), u64> {
    let mut masks = BTreeMap::new();
    for line in schemata.lines().filter(|line| line.trim_start().starts_with("L3")) {
        let (name, values) = line.trim().split_once(':').unwrap();
        for value in values.split(';') {
            let (domain, mask) = value.split_once('=').unwrap();
            masks.insert((name.to_owned(), domain.parse().unwrap()), u64::from_str_radix(mask, 16).unwrap());
        }
    }
    masks
}

fn check(resctrl: &mut VirtualResctrl, machine: &Machine, shareable: u64) {
    let groups = control_groups(resctrl);
    let mut cpus = Vec::new();
    let mut tasks = Vec::new();
    let mut held = Vec::new();
    for &group in &groups {
        let mask = u32::from_str_radix(file(resctrl, group, "cpus").trim(), 16).unwrap();
        cpus.extend((0..4).filter(|cpu| mask & (1 << cpu) != 0));
        tasks.extend(file(resctrl, group, "tasks").lines().map(|line| line.parse::<u32>().unwrap()));
        let exclusive = file(resctrl, group, "mode") == "exclusive\n";
        held.push((exclusive, masks(&file(resctrl, group, "schemata"))));
        let monitoring = resctrl.lookup(group, "mon_groups").unwrap();
        let mut seen = 0;
        for (_, child) in resctrl.list(monitoring) {
            let child = u32::from_str_radix(file(resctrl, child, "cpus").trim(), 16).unwrap();
            assert_eq!(
                (child & !mask, child & seen),
                (0, 0),
                "CPUs of a monitoring group are one group's and its parent's"
            );
            seen |= child;
        }
    }
    cpus.sort_unstable();
    tasks.sort_unstable();
    assert_eq!(cpus, [0, 1, 2, 3], "each CPU in one control group");
    assert_eq!(tasks, [10, 11, 12, 13], "each task in one control group");
    for (place, (exclusive, own)) in held.iter().enumerate().filter(|(_, (exclusive, _))| *exclusive) {
        for ((name, domain), mask) in own {
            assert_eq!(mask & shareable, 0, "{exclusive} {name}");
            for (_, others) in held.iter().enumerate().filter(|(other, _)| *other != place).map(|(_, it)| it)
            {
                let meets = others.iter().any(|((_, other), bits)| other == domain && bits & mask != 0);
                assert!(!meets, "an exclusive group shares {mask:x} of domain {domain}");
            }
        }
    }
    // Each group's masks equal those of one class in the registers.
    let registers = machine.0.lock().unwrap();
    let classes: BTreeSet<u32> = registers.masks.keys().map(|(_, closid, _)| *closid).collect();
    for (_, own) in &held {
        let same = |closid: u32| {
            own.iter().all(|((name, domain), mask)| {
                let lines = match name.as_str() {
                    "L3CODE" => MaskedLines::Code,
                    "L3DATA" => MaskedLines::Data,
                    _ => MaskedLines::All,
                };
                registers.masks[&(*domain, closid, lines)] == *mask
            })
        };
        assert!(classes.iter().any(|closid| same(*closid)), "no class has {own:?}");
    }
    assert!(registers.cpus.len() == 4 && registers.tasks.len() <= 4);
}

fn hosts() -> Vec<(ResctrlDescription, u64)> {
    let few = |mut host: ResctrlDescription| {
        host.monitoring.as_mut().unwrap().rmids = 5;
        host.mb.as_mut().unwrap().closids = 4;
        host
    };
    let mut split = few(intel(Kernel(6, 12)));
    split.l3.as_mut().unwrap().cdp = Cdp::On;
    let mut devices = few(amd(Kernel(6, 19)));
    devices.l3.as_mut().unwrap().io_alloc = IoAllocSupport::Supported;
    devices.l3.as_mut().unwrap().closids = 4;
    vec![(few(intel(Kernel(6, 1))), 0x600), (few(intel(Kernel(6, 12))), 0x600), (split, 0x600), (devices, 0)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_done_the_rules_hold(acts in proptest::collection::vec(act(), 1..60)) {
        for (host, shareable) in hosts() {
            let machine = Machine::default();
            let mut resctrl = VirtualResctrl::new(host, Box::new(machine.clone()), Box::new(machine.clone()));
            for act in &acts {
                perform(&mut resctrl, act);
            }
            check(&mut resctrl, &machine, shareable);
        }
    }
}
