//! Which tenants the pods are: a pure function of the pods and of facts about the machine.
//!
//! A pod is one tenant. A container whose class of service asks for another priority than its pod's is a tenant of its own.
//! A container that another agent's class holds is left to it. A pod with a mistake runs unmanaged, and no other pod is
//! affected. Must not know where pods come from, nor how tenants get groups.

use crate::annotations::{self, PodWish};
use crate::cgroup;
use crate::pod_host::{PodHost, PodTenants};
use crate::pods::{Pod, PodContainer, Pods};
use std::collections::BTreeMap;
use waykeeper_host::Priority;
use waykeeper_tenants::{CgroupSelector, DeviceName, TenantSpec, plain_name};
use waykeeper_units::{CoreList, one_line, shown};

/// Classes that mean a QoS class of Kubernetes or Koordinator, and their priorities. Names of classes in the documentation
/// of goresctrl, of the NRI plugins (`usagePodQoSAsDefaultClass`) and of Koordinator (resctrl groups LSR, LS and BE).
const QOS_CLASSES: [(&str, Priority); 6] = [
    ("guaranteed", Priority::High),
    ("burstable", Priority::Low),
    ("besteffort", Priority::Low),
    ("lsr", Priority::High),
    ("ls", Priority::High),
    ("be", Priority::Low),
];

/// goresctrl's name of resctrl's default group (pkg/rdt/rdt.go, RootClassName).
const DEFAULT_CLASS: &str = "system/default";

/// Begin of the names of Koordinator's groups for pods; behind it is the pod's unique id (pkg/koordlet/util/resctrl).
const KOORDINATOR_GROUP: &str = "koordlet-";

/// One pod with all its sandboxes.
struct PodSandboxes<'p> {
    name: &'p str,
    uid: &'p str,
    pods: Vec<&'p Pod>,
}

/// The tenants of these pods.
pub fn plan(pods: &Pods, host: &dyn PodHost) -> PodTenants {
    let mut planned = PodTenants::default();
    if pods.left_out() > 0 {
        let why = format!(
            "{} pods or containers are beyond what a node can have, and run unmanaged",
            pods.left_out()
        );
        planned.problems.push(why);
    }
    // The pod that has a PCI function.
    let mut owners: BTreeMap<String, String> = BTreeMap::new();
    for pod in together(pods, &mut planned.problems) {
        let before = owners.clone();
        match one(&pod, &mut owners, host, &mut planned.problems) {
            Ok(specs) => planned.specs.extend(specs),
            Err(why) => {
                owners = before;
                planned.problems.push(format!("pod {}: {why}; it runs unmanaged", one_line(pod.name)));
            }
        }
    }
    planned
}

/// The pods with containers, in the order in which they came. A second pod of the same name is a problem.
fn together<'p>(pods: &'p Pods, problems: &mut Vec<String>) -> Vec<PodSandboxes<'p>> {
    let mut running: Vec<&Pod> = pods.all().values().filter(|pod| !pod.containers.is_empty()).collect();
    running.sort_unstable_by_key(|pod| pod.order);
    let mut all: Vec<PodSandboxes> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in running {
        match places.get(pod.name.as_str()).and_then(|place| all.get_mut(*place)) {
            // A pod whose sandbox is made again has the same unique id.
            Some(first) if first.uid == pod.uid => first.pods.push(pod),
            Some(first) => problems.push(format!(
                "pod {}: the pod with the unique id {} has this name already; the one with {} runs unmanaged",
                one_line(&pod.name),
                shown(first.uid),
                shown(&pod.uid)
            )),
            None => {
                places.insert(&pod.name, all.len());
                all.push(PodSandboxes { name: &pod.name, uid: &pod.uid, pods: vec![pod] });
            }
        }
    }
    all
}

/// The tenants of one pod.
fn one(
    pod: &PodSandboxes,
    owners: &mut BTreeMap<String, String>,
    host: &dyn PodHost,
    problems: &mut Vec<String>,
) -> Result<Vec<TenantSpec>, String> {
    let Some(first) = pod.pods.first() else { return Ok(Vec::new()) };
    let wish = annotations::wish(&first.annotations)?;
    if wish.is_left_alone {
        return Ok(Vec::new());
    }
    let mask = mask(pod, first, &wish, host)?;
    let asked = asked_devices(pod.name, &wish, owners, host)?;
    let usual = usual_priority(first);
    let none = BTreeMap::new();
    let of_pod = annotations::class(&first.annotations, &none, "").and_then(|(_, class)| qos(class));
    let pod_priority = wish.priority.or(of_pod).unwrap_or(usual);
    let name = plain_name(&pod.name.replacen('/', ".", 1));
    let mut specs: BTreeMap<String, TenantSpec> = BTreeMap::new();
    let mut seen_devices: Vec<DeviceName> = asked;
    let containers =
        pod.pods.iter().flat_map(|own| own.containers.values().map(move |container| (*own, container)));
    for (own, container) in containers {
        let priority = match class_of(own, container, host) {
            Ok(of_class) => wish.priority.or(of_class).unwrap_or(usual),
            Err(why) => {
                problems.push(format!(
                    "container {} of pod {}: {why}",
                    shown(&container.name),
                    one_line(pod.name)
                ));
                continue;
            }
        };
        let own_name = match priority == pod_priority {
            true => name.clone(),
            false => plain_name(&format!("{name}.{}", container.name)),
        };
        if wish.devices.is_empty() {
            seen_devices.extend(devices_in_spec(pod.name, container, owners, host, problems));
        }
        let spec = specs.entry(own_name.clone()).or_insert_with(|| TenantSpec {
            name: own_name,
            each: false,
            priority,
            kind: wish.kind,
            cores: CoreList::default(),
            pids: Vec::new(),
            selectors: Vec::new(),
            programs: Vec::new(),
            devices: Vec::new(),
            stack: false,
            mask: mask.clone(),
        });
        members(container, spec, host);
    }
    specs.retain(|_, spec| !spec.selectors.is_empty() || !spec.pids.is_empty());
    // The devices are the pod's; where all containers are tenants of their own, those of the first.
    let owner = if specs.contains_key(&name) { Some(name) } else { specs.keys().next().cloned() };
    if let Some(spec) = owner.and_then(|owner| specs.get_mut(&owner)) {
        spec.devices = seen_devices;
    }
    Ok(specs.into_values().collect())
}

/// Adds a container's processes to a tenant: its control group, or where that cannot be seen its first process, whose
/// descendants follow it.
fn members(container: &PodContainer, spec: &mut TenantSpec, host: &dyn PodHost) {
    let path = cgroup::path(&container.cgroups_path);
    let selector =
        path.filter(|path| host.has_cgroup(path)).and_then(|path| CgroupSelector::path(&path).ok());
    // The name of a control group may have characters of a glob; it would then match others.
    match selector.filter(|selector| !selector.glob().is_wild()) {
        Some(selector) => spec.selectors.push(selector),
        // Process 1 is the machine's.
        None if container.pid > 1 => spec.pids.push(container.pid),
        None => {}
    }
}

/// The first mask: ours, or what Koordinator's annotation means.
fn mask(
    pod: &PodSandboxes,
    first: &Pod,
    wish: &PodWish,
    host: &dyn PodHost,
) -> Result<Option<String>, String> {
    let range = annotations::koordinator_range(&first.annotations)?;
    let group = format!("{KOORDINATOR_GROUP}{}", pod.uid);
    if range.is_some() && host.has_class(&group) {
        return Err(format!("another agent has its group `{}`", shown(&group)));
    }
    if let Some(text) = &wish.mask {
        let refused = |why| format!("annotation waykeeper.io/mask = `{}`: {why}", shown(text));
        host.check_mask(text).map_err(refused)?;
        return Ok(Some(text.clone()));
    }
    let Some((low, high)) = range else { return Ok(None) };
    let unknown = || "node.koordinator.sh/resctrl: the ways of the LLC are not known".to_owned();
    let ways = host.ways().ok_or_else(unknown)?;
    // Both ends are rounded up (koordlet's CalculateCatL3MaskValue): of 11 ways, 10 % to 50 % are ways 2 to 5.
    let [low, high] = [low, high].map(|percent| (ways * percent).div_ceil(100));
    if low >= high {
        return Err("node.koordinator.sh/resctrl: the range has no way of this LLC".to_owned());
    }
    Ok(Some(format!("{low}-{}", high - 1)))
}

/// The devices that annotations ask for. No other pod may have one of them.
fn asked_devices(
    pod: &str,
    wish: &PodWish,
    owners: &mut BTreeMap<String, String>,
    host: &dyn PodHost,
) -> Result<Vec<DeviceName>, String> {
    for name in &wish.devices {
        let refuse = |why: &str| format!("annotation waykeeper.io/devices: {why}");
        for function in host.functions(name).map_err(|why| refuse(&why))? {
            match owners.get(&function) {
                Some(owner) if owner != pod => {
                    return Err(refuse(&format!("pod {} has device {name}", one_line(owner))));
                }
                _ => owners.insert(function, pod.to_owned()),
            };
        }
    }
    Ok(wish.devices.clone())
}

/// The devices that a container's specification has. Several pods may have one device file; the first of them is its owner.
fn devices_in_spec(
    pod: &str,
    container: &PodContainer,
    owners: &mut BTreeMap<String, String>,
    host: &dyn PodHost,
    problems: &mut Vec<String>,
) -> Vec<DeviceName> {
    let of_files = container.devices.iter().flat_map(|path| host.devices_of_file(path));
    let of_environment = container.addresses.iter().filter_map(|address| address.parse().ok());
    let names: Vec<DeviceName> = of_files.chain(of_environment).collect();
    let mut own = Vec::new();
    for name in names {
        // A device that is none of this machine's is the container's affair.
        let Ok(functions) = host.functions(&name) else { continue };
        let other = functions.iter().find_map(|function| owners.get(function).filter(|owner| *owner != pod));
        match other {
            Some(owner) => problems.push(format!(
                "pod {}: pod {} has device {name}; it is managed without the device",
                one_line(pod),
                one_line(owner)
            )),
            None => {
                owners.extend(functions.into_iter().map(|function| (function, pod.to_owned())));
                if !own.contains(&name) {
                    own.push(name);
                }
            }
        }
    }
    own
}

/// The priority that a container's class of service means, if it has one.
///
/// # Errors
/// If another agent owns the class, or it means nothing.
fn class_of(pod: &Pod, container: &PodContainer, host: &dyn PodHost) -> Result<Option<Priority>, String> {
    let annotated = annotations::class(&pod.annotations, &container.annotations, &container.name);
    let started = container.class.as_ref().map(|class| ("its specification".to_owned(), class.as_str()));
    let Some((source, class)) = started.or(annotated) else { return Ok(None) };
    if class == DEFAULT_CLASS {
        return Ok(None);
    }
    let (class_shown, source) = (shown(class), shown(&source));
    if host.has_class(class) {
        return Err(format!(
            "it is in class `{class_shown}` ({source}), which another agent owns; it is left to that agent"
        ));
    }
    qos(class).map(Some).ok_or_else(|| {
        let known = QOS_CLASSES.map(|(name, _)| name).join(", ");
        format!(
            "unknown class `{class_shown}` ({source}): no group of resctrl has this name, and it is none of {known}; it \
             runs unmanaged"
        )
    })
}

/// The priority of a class that means a QoS class.
fn qos(class: &str) -> Option<Priority> {
    let known = QOS_CLASSES.iter().find(|(name, _)| class.eq_ignore_ascii_case(name));
    known.map(|(_, priority)| *priority)
}

/// The priority of a pod without annotations. The kubelet puts the QoS class of a pod into the path of its control group,
/// and leaves it out for guaranteed pods (kubernetes:pkg/kubelet/cm/qos_container_manager_linux.go).
fn usual_priority(pod: &Pod) -> Priority {
    let parent = &pod.cgroup_parent;
    let is_guaranteed =
        parent.contains("kubepods") && !parent.contains("besteffort") && !parent.contains("burstable");
    if is_guaranteed { Priority::High } else { Priority::Low }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
