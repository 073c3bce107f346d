//! The pods of this node and their containers that run, as the runtime's events say.
//!
//! A container is here from its start to its end; a pod from its first event to its stop. What a real node cannot have is
//! not kept, so a peer that sends nonsense needs bounded memory. Must not know tenants.

use crate::annotations;
use crate::messages::{ContainerMessage, PodMessage};
use std::collections::BTreeMap;

/// Most pods: Kubernetes recommends at most 110 for a node, and large nodes have 250 to 500 (assumption: four times the
/// usual).
pub const PODS_MOST: usize = 1000;
/// Most containers of all pods together. Assumption: four of each pod.
pub const CONTAINERS_MOST: usize = 4 * PODS_MOST;
/// Longest id, name or path that is kept, bytes: PATH_MAX is 4096, and names of Kubernetes have at most 253.
const TEXT_MOST: usize = 4096;
/// Most device files and PCI addresses of a container. Assumption: more than any device plugin gives.
const DEVICES_MOST: usize = 64;

/// A container that runs, or whose first process waits to run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodContainer {
    /// Its name in the pod.
    pub name: String,
    /// Its first process; 0 if the runtime did not say.
    pub pid: u32,
    /// Its control group, as the runtime writes it.
    pub cgroups_path: String,
    /// The class of service that the runtime starts it in.
    pub class: Option<String>,
    /// Its annotations of other agents' classes.
    pub annotations: BTreeMap<String, String>,
    /// Its device files.
    pub devices: Vec<String>,
    /// PCI addresses that a device plugin put into its environment.
    pub addresses: Vec<String>,
}

/// A pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pod {
    /// Pods are in the order of their first events.
    pub order: u64,
    /// Its unique id.
    pub uid: String,
    /// Its namespace and its name, `default/web-0`.
    pub name: String,
    /// Its annotations, as far as they concern caches.
    pub annotations: BTreeMap<String, String>,
    /// The control group above those of its containers.
    pub cgroup_parent: String,
    /// Its containers by their ids.
    pub containers: BTreeMap<String, PodContainer>,
}

/// All pods.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pods {
    pods: BTreeMap<String, Pod>,
    next: u64,
    /// Pods and containers that were left out because there are too many.
    left_out: usize,
}

/// `CONTAINER_PAUSED` and `CONTAINER_RUNNING` (api.proto, ContainerState).
const RUNS: [i32; 2] = [2, 3];

impl Pods {
    /// The pods by their sandboxes.
    pub fn all(&self) -> &BTreeMap<String, Pod> {
        &self.pods
    }

    /// How many pods and containers were left out because there are too many.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Adds a pod, or takes over what is new about it.
    pub fn add(&mut self, message: PodMessage) {
        if is_too_long([&message.id, &message.uid, &message.name, &message.namespace])
            || message.id.is_empty()
        {
            self.left_out += 1;
            return;
        }
        if !self.pods.contains_key(&message.id) && self.pods.len() >= PODS_MOST {
            self.left_out += 1;
            return;
        }
        let order = self.next;
        self.next += 1;
        let before = self.pods.remove(&message.id);
        let (order, containers) =
            before.map_or((order, BTreeMap::new()), |before| (before.order, before.containers));
        let cgroup_parent = message.linux.map(|linux| linux.cgroup_parent).unwrap_or_default();
        let pod = Pod {
            order,
            uid: message.uid,
            name: format!("{}/{}", message.namespace, message.name),
            annotations: annotations::relevant(message.annotations),
            cgroup_parent,
            containers,
        };
        self.pods.insert(message.id, pod);
    }

    /// A pod is gone, with its containers.
    pub fn remove(&mut self, sandbox: &str) {
        self.pods.remove(sandbox);
    }

    /// A container starts: its first process is there and waits.
    pub fn start(&mut self, message: ContainerMessage) {
        let count: usize = self.pods.values().map(|pod| pod.containers.len()).sum();
        let Some(pod) = self.pods.get_mut(&message.sandbox) else {
            self.left_out += 1;
            return;
        };
        let linux = message.linux.unwrap_or_default();
        let texts = [&message.id, &message.name, &linux.cgroups_path];
        let is_new = !pod.containers.contains_key(&message.id);
        if is_too_long(texts) || message.id.is_empty() || is_new && count >= CONTAINERS_MOST {
            self.left_out += 1;
            return;
        }
        let class = linux.rdt.and_then(|rdt| rdt.class);
        let class = class.or(linux.resources.and_then(|resources| resources.rdt_class));
        let class = class.map(|class| class.value).filter(|class| !class.is_empty());
        let devices = linux.devices.into_iter().map(|device| device.path).filter(|path| !is_too_long([path]));
        let container = PodContainer {
            name: message.name,
            pid: message.pid,
            cgroups_path: linux.cgroups_path,
            class,
            annotations: annotations::relevant(message.annotations),
            devices: devices.take(DEVICES_MOST).collect(),
            addresses: annotations::addresses(&message.environment).take(DEVICES_MOST).collect(),
        };
        pod.containers.insert(message.id, container);
    }

    /// A container of the runtime's list: it is there if it runs.
    pub fn add_container(&mut self, message: ContainerMessage) {
        if RUNS.contains(&message.state) {
            self.start(message);
        }
    }

    /// A container ended.
    pub fn end(&mut self, container: &str) {
        for pod in self.pods.values_mut() {
            pod.containers.remove(container);
        }
    }

    /// Takes over the runtime's list: what is not in it is gone. Pods that stay keep their order.
    pub fn replace(&mut self, list: Pods) {
        let before = std::mem::replace(self, list);
        let shift = before.next;
        for (sandbox, pod) in &mut self.pods {
            let known = before.pods.get(sandbox).map(|known| known.order);
            pod.order = known.unwrap_or(pod.order + shift);
        }
        self.next += shift;
    }
}

fn is_too_long<const N: usize>(texts: [&String; N]) -> bool {
    texts.iter().any(|text| text.len() > TEXT_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{ContainerLinux, ContainerRdt, ContainerResources, OptionalText};

    fn pod(id: &str) -> PodMessage {
        PodMessage { id: id.to_owned(), name: id.to_owned(), namespace: "n".to_owned(), ..Default::default() }
    }

    fn container(sandbox: &str, id: &str) -> ContainerMessage {
        ContainerMessage { id: id.to_owned(), sandbox: sandbox.to_owned(), state: 3, ..Default::default() }
    }

    fn ids(pods: &Pods) -> Vec<(u64, &str, usize)> {
        let mut all: Vec<_> =
            pods.all().iter().map(|(id, pod)| (pod.order, id.as_str(), pod.containers.len())).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn a_second_list_replaces_the_first_and_adds_nothing_up() {
        let mut pods = Pods::default();
        for id in ["b", "a"] {
            pods.add(pod(id));
            pods.start(container(id, &format!("{id}1")));
        }
        assert_eq!(ids(&pods), [(0, "b", 1), (1, "a", 1)]);
        let mut list = Pods::default();
        for id in ["c", "a"] {
            list.add(pod(id));
            list.add_container(container(id, &format!("{id}1")));
        }
        list.add_container(ContainerMessage { state: 4, ..container("a", "ended") });
        pods.replace(list.clone());
        assert_eq!(ids(&pods), [(1, "a", 1), (2, "c", 1)]);
        pods.replace(list);
        assert_eq!(ids(&pods), [(1, "a", 1), (2, "c", 1)]);
        pods.end("a1");
        pods.remove("c");
        assert_eq!(ids(&pods), [(1, "a", 0)]);
    }

    #[test]
    fn the_class_of_a_container_is_the_one_that_it_starts_in() {
        let text = |value: &str| Some(OptionalText { value: value.to_owned() });
        let mut pods = Pods::default();
        pods.add(pod("a"));
        let linux = ContainerLinux {
            rdt: Some(ContainerRdt { class: text("") }),
            resources: Some(ContainerResources { rdt_class: text("gold") }),
            ..Default::default()
        };
        pods.start(ContainerMessage { linux: Some(linux.clone()), ..container("a", "1") });
        pods.start(ContainerMessage {
            linux: Some(ContainerLinux { rdt: None, ..linux }),
            ..container("a", "2")
        });
        let classes: Vec<_> = pods.all()["a"].containers.values().map(|own| own.class.as_deref()).collect();
        assert_eq!(classes, [None, Some("gold")]);
    }

    #[test]
    fn no_peer_makes_it_keep_more_than_a_node_can_have() {
        let mut pods = Pods::default();
        for id in 0..PODS_MOST + 2 {
            pods.add(pod(&id.to_string()));
        }
        assert_eq!((pods.all().len(), pods.left_out()), (1000, 2));
        for id in 0..CONTAINERS_MOST + 3 {
            pods.start(container("7", &id.to_string()));
        }
        assert_eq!((pods.all()["7"].containers.len(), pods.left_out()), (4000, 5));
        pods.add(PodMessage { name: "x".repeat(5000), ..pod("7") });
        pods.start(container("of no pod", "1"));
        assert_eq!(pods.left_out(), 7);
    }
}
