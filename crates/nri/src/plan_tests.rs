//! Tests of the plan, on a machine that is a few tables.

use super::*;
use crate::messages::{ContainerLinux, ContainerMessage, DeviceFile, OptionalText, PodLinux, PodMessage};
use std::time::Duration;
use waykeeper_host::WorkloadKind;

/// A machine with 11 ways, the class `gold` of another agent, `nvme0` and one NIC, and control groups below `kubepods`.
struct Machine;

impl PodHost for Machine {
    fn check_mask(&self, text: &str) -> Result<(), String> {
        let mask = waykeeper_units::WayMask::parse(text, 11).map_err(|why| why.to_string())?;
        mask.check(11, 1).map(drop).map_err(|why| why.to_string())
    }

    fn ways(&self) -> Option<u32> {
        Some(11)
    }

    fn has_class(&self, class: &str) -> bool {
        ["gold", "koordlet-uid-k"].contains(&class)
    }

    fn has_cgroup(&self, path: &str) -> bool {
        path.starts_with("kubepods")
    }

    fn devices_of_file(&self, path: &str) -> Vec<DeviceName> {
        path.strip_prefix("/dev/").and_then(|name| name.parse().ok()).into_iter().collect()
    }

    fn functions(&self, name: &DeviceName) -> Result<Vec<String>, String> {
        match name.to_string().as_str() {
            "nvme0" | "nvme0n1" | "0000:5e:00.0" => Ok(vec!["0000:5e:00.0".to_owned()]),
            "eth0" | "0000:3b:02.1" => Ok(vec!["0000:3b:02.1".to_owned()]),
            other => Err(format!("there is no device `{other}`")),
        }
    }

    fn declare(&mut self, _: PodTenants, _: Duration) -> bool {
        true
    }
}

const BURSTABLE: &str = "/kubepods/burstable/pod1";
const GUARANTEED: &str = "/kubepods/pod1";

fn pod(name: &str, parent: &str, annotations: &[(&str, &str)]) -> PodMessage {
    let pairs = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    PodMessage {
        id: format!("s-{name}"),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        namespace: "web".to_owned(),
        annotations: pairs.collect(),
        linux: Some(PodLinux { cgroup_parent: parent.to_owned() }),
    }
}

fn container(pod: &PodMessage, name: &str, pid: u32) -> ContainerMessage {
    let parent = pod.linux.as_ref().map(|linux| linux.cgroup_parent.clone()).unwrap_or_default();
    ContainerMessage {
        id: format!("{}-{name}", pod.id),
        sandbox: pod.id.clone(),
        name: name.to_owned(),
        state: 3,
        pid,
        linux: Some(ContainerLinux { cgroups_path: format!("{parent}/{name}"), ..Default::default() }),
        ..Default::default()
    }
}

/// The tenants of pods, each with one container `c` unless there are others.
fn planned(pods: &[PodMessage], containers: &[ContainerMessage]) -> PodTenants {
    let mut all = Pods::default();
    for (pod, pid) in pods.iter().zip(100..) {
        all.add(pod.clone());
        if !containers.iter().any(|container| container.sandbox == pod.id) {
            all.start(container(pod, "c", pid));
        }
    }
    containers.iter().for_each(|container| all.start(container.clone()));
    plan(&all, &Machine)
}

/// Names and priorities.
fn priorities(planned: &PodTenants) -> Vec<(&str, Priority)> {
    planned.specs.iter().map(|spec| (spec.name.as_str(), spec.priority)).collect()
}

#[test]
fn the_priority_follows_from_our_annotation_else_the_class_else_the_qos_class() {
    let silent = ("a", &[][..]);
    let ours =
        ("b", &[("waykeeper.io/priority", "high"), ("rdt.resources.beta.kubernetes.io/pod", "BE")][..]);
    let class = ("c", &[("rdtclass.resource-policy.nri.io/pod", "Guaranteed")][..]);
    let pods = [silent, ours, class].map(|(name, annotations)| pod(name, BURSTABLE, annotations));
    let all = planned(&pods, &[]);
    assert_eq!(all.problems, [""; 0]);
    let expected = [("web.a", Priority::Low), ("web.b", Priority::High), ("web.c", Priority::High)];
    assert_eq!(priorities(&all), expected);
    let guaranteed = planned(&[pod("g", GUARANTEED, &[]), pod("x", "/other", &[])], &[]);
    assert_eq!(priorities(&guaranteed), [("web.g", Priority::High), ("web.x", Priority::Low)]);
}

#[test]
fn processes_are_found_by_control_group_and_where_there_is_none_by_the_first_process() {
    let seen = pod("a", BURSTABLE, &[]);
    let unseen = pod("b", "/elsewhere", &[]);
    let init = ContainerMessage { linux: None, ..container(&pod("c", "", &[]), "c", 1) };
    let all = planned(&[seen, unseen, pod("c", "", &[])], &[init]);
    let [first, second] = all.specs.as_slice() else { panic!("{all:?}") };
    let path = CgroupSelector::path("kubepods/burstable/pod1/c").unwrap();
    assert_eq!((first.selectors.as_slice(), first.pids.as_slice()), ([path].as_slice(), [].as_slice()));
    assert_eq!((second.selectors.len(), second.pids.as_slice()), (0, [101].as_slice()));
}

#[test]
fn containers_of_another_class_are_tenants_of_their_own_and_foreign_ones_are_left_alone() {
    let annotations = [
        ("rdt.resources.beta.kubernetes.io/container.db", "guaranteed"),
        ("rdt.resources.beta.kubernetes.io/container.log", "gold"),
        ("rdt.resources.beta.kubernetes.io/container.odd", "bronze"),
        ("rdt.resources.beta.kubernetes.io/container.std", "system/default"),
    ];
    let pod = pod("p", BURSTABLE, &annotations);
    let containers = ["app", "db", "log", "odd", "std"].map(|name| container(&pod, name, 7));
    let all = planned(std::slice::from_ref(&pod), &containers);
    assert_eq!(priorities(&all), [("web.p", Priority::Low), ("web.p.db", Priority::High)]);
    assert_eq!(all.specs[0].selectors.len(), 2, "app and std");
    assert_eq!(
        all.problems,
        [
            "container log of pod web/p: it is in class `gold` (rdt.resources.beta.kubernetes.io/container.log), which \
             another agent owns; it is left to that agent",
            "container odd of pod web/p: unknown class `bronze` (rdt.resources.beta.kubernetes.io/container.odd): no group \
             of resctrl has this name, and it is none of guaranteed, burstable, besteffort, lsr, ls, be; it runs unmanaged",
        ]
    );
    // What the runtime starts it in counts before annotations.
    let resources =
        crate::messages::ContainerResources { rdt_class: Some(OptionalText { value: "gold".to_owned() }) };
    let linux = ContainerLinux { resources: Some(resources), ..Default::default() };
    let started = ContainerMessage { linux: Some(linux), ..container(&pod, "db", 8) };
    assert!(planned(&[pod], &[started]).problems[0].contains("class `gold` (its specification)"));
}

#[test]
fn a_mistake_leaves_its_pod_unmanaged_and_no_other() {
    for (annotation, value, why) in [
        ("waykeeper.io/mask", "0x5", "annotation waykeeper.io/mask = `0x5`: "),
        ("waykeeper.io/mask", "0x1000", "annotation waykeeper.io/mask = `0x1000`: "),
        (
            "waykeeper.io/priority",
            "urgent",
            "annotation waykeeper.io/priority = `urgent`: write `high` or `low`",
        ),
        ("waykeeper.io/devices", "eth7", "annotation waykeeper.io/devices: there is no device `eth7`"),
        ("node.koordinator.sh/resctrl", "{", "annotation node.koordinator.sh/resctrl = `{`: write JSON"),
    ] {
        let all = planned(&[pod("bad", BURSTABLE, &[(annotation, value)]), pod("good", BURSTABLE, &[])], &[]);
        assert_eq!(priorities(&all), [("web.good", Priority::Low)], "{annotation} = {value}");
        let [problem] = all.problems.as_slice() else { panic!("{all:?}") };
        assert!(problem.starts_with(&format!("pod web/bad: {why}")), "{problem}");
        assert!(problem.ends_with("; it runs unmanaged"), "{problem}");
    }
    let alone = planned(&[pod("alone", BURSTABLE, &[("waykeeper.io/manage", "false")])], &[]);
    assert_eq!(alone, PodTenants::default());
}

#[test]
fn a_device_has_one_pod() {
    let asks = |name: &str, device: &str| pod(name, BURSTABLE, &[("waykeeper.io/devices", device)]);
    let all = planned(&[asks("a", "nvme0"), asks("b", "0000:5e:00.0"), asks("c", "eth0")], &[]);
    let devices: Vec<_> = all.specs.iter().map(|spec| (spec.name.as_str(), spec.devices.len())).collect();
    assert_eq!(devices, [("web.a", 1), ("web.c", 1)]);
    assert_eq!(
        all.problems,
        ["pod web/b: annotation waykeeper.io/devices: pod web/a has device 0000:5e:00.0; it runs unmanaged"]
    );
    // Device files and addresses of the specification: the second pod is managed without them.
    let with = |name: &str| {
        let pod = pod(name, BURSTABLE, &[]);
        let mut container = container(&pod, "c", 9);
        let file = |path: &str| DeviceFile { path: path.to_owned() };
        container.environment = vec!["PCIDEVICE_X=0000:3b:02.1,0000:ff:00.0".to_owned()];
        if let Some(linux) = &mut container.linux {
            linux.devices = ["/dev/nvme0n1", "/dev/null"].map(file).to_vec();
        }
        (pod, container)
    };
    let [(first, its), (second, also)] = [with("a"), with("b")];
    let all = planned(&[first, second], &[its, also]);
    let devices: Vec<_> = all.specs.iter().map(|spec| spec.devices.len()).collect();
    assert_eq!(devices, [2, 0]);
    assert!(
        all.problems[0].ends_with("pod web/a has device nvme0n1; it is managed without the device"),
        "{all:?}"
    );
}

#[test]
fn of_two_pods_with_one_name_the_first_is_managed() {
    let first = pod("a", BURSTABLE, &[]);
    let again = PodMessage { id: "s-a2".to_owned(), ..first.clone() };
    let other = PodMessage { id: "s-a3".to_owned(), uid: "other".to_owned(), ..first.clone() };
    let all = planned(&[first, again, other], &[]);
    assert_eq!(priorities(&all), [("web.a", Priority::Low)]);
    assert_eq!(all.specs[0].selectors.len(), 2, "both sandboxes of the first pod");
    assert_eq!(
        all.problems,
        [
            "pod web/a: the pod with the unique id uid-a has this name already; the one with other runs unmanaged"
        ]
    );
}

#[test]
fn kinds_and_masks_are_passed_on_and_koordinators_range_is_one() {
    let ours = [("waykeeper.io/kind", "network-io"), ("waykeeper.io/mask", "9-10")];
    let range = [("node.koordinator.sh/resctrl", r#"{"llc":{"schemata":{"range":[10,50]}}}"#)];
    let all =
        planned(&[pod("a", BURSTABLE, &ours), pod("b", BURSTABLE, &range), pod("k", BURSTABLE, &range)], &[]);
    assert_eq!(
        (all.specs[0].kind, all.specs[0].mask.as_deref()),
        (Some(WorkloadKind::NetworkIo), Some("9-10"))
    );
    // Of 11 ways: 1.1 and 5.5, rounded up, are 2 and 6; koordlet's own test has 0x3c, which are ways 2 to 5.
    assert_eq!(all.specs[1].mask.as_deref(), Some("2-5"));
    assert_eq!(all.problems, ["pod web/k: another agent has its group `koordlet-uid-k`; it runs unmanaged"]);
}

#[test]
fn names_that_no_tenant_can_have_are_made_valid() {
    let long = "n".repeat(80);
    let all = planned(&[pod(&long, BURSTABLE, &[]), pod("ü", BURSTABLE, &[])], &[]);
    let names: Vec<_> = all.specs.iter().map(|spec| spec.name.as_str()).collect();
    assert_eq!(names[0].len(), 64);
    assert!(names[1].starts_with("web._-"), "{names:?}");
}
