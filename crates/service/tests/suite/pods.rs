//! The daemon as a plugin of a container runtime, on a mounted virtual server whose programs play the containers.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::os::unix::fs::DirEntryExt;
use std::time::{Duration, Instant};
use waykeeper_nri::PluginConfig;
use waykeeper_nri::fake_runtime::{FakeConnection, FakeRuntime, container, pod};
use waykeeper_nri::messages::{ContainerMessage, PodMessage};
use waykeeper_service::Client;
use waykeeper_service::config::{Config, Inputs};
use waykeeper_service::daemon::RunningDaemon;
use waykeeper_service::engine::SignalRequest;
use waykeeper_service::protocol::{ControlCommand, OrderResult};
use waykeeper_testbed::{MountedHost, PATIENCE, assert_same_state, groups, manual_clock, scenario};

/// Programs of the server, each on a core of its own: as many as the chip has classes for tenants.
const PROGRAMS: usize = 7;

/// A server, its daemon with the plugin, and the runtime.
struct Node {
    machine: MountedHost,
    runtime: FakeRuntime,
    daemon: RunningDaemon,
}

/// A server whose daemon has not started, and the daemon's configuration.
fn server(more: &str) -> (MountedHost, Config, Inputs) {
    let mut text =
        "name = \"node\"\nduration_s = 1\nwarmup_s = 0.1\nmeasure_s = 0.1\n[[nic]]\nname = \"nic0\"\n\
         offered_gbps = 10\n[[storage]]\nname = \"raid0\"\n"
            .to_owned();
    for program in 0..PROGRAMS {
        write!(text, "[[workload]]\nname = \"w{program}\"\nprogram = \"x-mem\"\ncores = \"{program}\"\nworking_set = \"1M\"\n")
            .unwrap();
    }
    let machine = MountedHost::with(scenario("gold-6140", &text), manual_clock(64));
    let (file, socket) = (machine.folder().join("waykeeper.toml"), machine.folder().join("nri.sock"));
    let text = format!(
        "[daemon]\nperiod_s = 0.25\nroot = {:?}\njournal = {:?}\n[policy]\nname = \"none\"\n[twin]\nenabled = false\n\
         [socket]\npath = {:?}\n[nri]\nenabled = true\nsocket = {:?}\n{more}",
        machine.root().prefix().display().to_string(),
        machine.journal().display().to_string(),
        machine.folder().join("socket").display().to_string(),
        socket.display().to_string(),
    );
    std::fs::write(&file, text).unwrap();
    let inputs = Inputs { file: Some(file), ..Inputs::default() };
    let config = Config::load(&inputs).unwrap_or_else(|error| panic!("{error}"));
    (machine, config, inputs)
}

/// The server with a daemon that runs.
fn node(more: &str) -> Node {
    Node::start(server(more))
}

impl Node {
    /// Starts the daemon of a server.
    fn start((machine, config, inputs): (MountedHost, Config, Inputs)) -> Node {
        let runtime = FakeRuntime::listen(&config.nri.plugin.socket.clone());
        let daemon = RunningDaemon::start(config, inputs, Box::new(|| 0), || {});
        Node { machine, runtime, daemon: daemon.unwrap_or_else(|error| panic!("{error}")) }
    }

    /// The control group and the first process of a program.
    fn program(&self, number: usize) -> (String, u32) {
        let path = format!("tenants.slice/w{number}.service");
        let procs = self.machine.root().path(format!("/sys/fs/cgroup/{path}/cgroup.procs"));
        let procs = std::fs::read_to_string(procs).unwrap();
        (format!("/{path}"), procs.trim().parse().unwrap())
    }

    /// A pod of one container that is a program. The control group of every other one is not seen, so its first process
    /// counts.
    fn pod(&self, name: &str, number: usize) -> (PodMessage, ContainerMessage) {
        let pod = pod(name, "/kubepods/burstable/x");
        let (path, pid) = self.program(number);
        let path = if number.is_multiple_of(2) { path } else { "/unseen".to_owned() };
        let container = container(&pod, "c", pid, &path);
        (pod, container)
    }

    /// The group of ours that has a task, by its name.
    fn group_of(&self, pid: u32) -> Option<String> {
        let resctrl = self.machine.root().path("/sys/fs/resctrl");
        let own = std::fs::read_dir(resctrl).unwrap().map(|entry| entry.unwrap());
        let mut own = own.filter(|entry| entry.file_name().to_string_lossy().starts_with("waykeeper-"));
        let task = pid.to_string();
        let has = |path: std::path::PathBuf| {
            std::fs::read_to_string(path.join("tasks"))
                .is_ok_and(|tasks| tasks.lines().any(|line| line == task))
        };
        own.find(|entry| has(entry.path())).map(|entry| entry.file_name().to_string_lossy().into_owned())
    }

    /// The directories of our groups, by their inodes: a group that is made again has another one.
    fn groups(&self) -> BTreeMap<String, u64> {
        let resctrl = self.machine.root().path("/sys/fs/resctrl");
        let own = std::fs::read_dir(resctrl).unwrap().map(|entry| entry.unwrap());
        let named = own.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.ino()));
        named.filter(|(name, _)| name.starts_with("waykeeper-")).collect()
    }

    fn until(&self, what: &str, wanted: impl Fn(&Node) -> bool) {
        let begun = Instant::now();
        while !wanted(self) {
            assert!(begun.elapsed() < PATIENCE, "{what}: {:#?}", self.daemon.status().active_problems);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn has_problem(&self, start: &str) -> bool {
        self.daemon.status().active_problems.iter().any(|problem| problem.text.starts_with(start))
    }

    fn tenants(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.daemon.published().groups.iter().map(|group| group.name.clone()).collect();
        names.sort_unstable();
        names
    }
}

fn start(runtime: &mut FakeConnection, pod: &PodMessage, container: &ContainerMessage) {
    runtime.event("RunPodSandbox", Some(pod), None);
    runtime.event("StartContainer", Some(pod), Some(container));
}

fn stop(runtime: &mut FakeConnection, pod: &PodMessage, container: &ContainerMessage) {
    runtime.event("StopContainer", Some(pod), Some(container));
    runtime.event("StopPodSandbox", Some(pod), None);
    runtime.event("RemovePodSandbox", Some(pod), None);
}

/// Numbers that follow from a seed (xorshift64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % most as u64) as usize
    }
}

#[test]
fn pods_come_and_go_and_the_connection_is_lost_and_nothing_is_left() {
    // Most of the time is that of the mounted files; `make test-fleet` has 200 pods.
    const PODS: usize = 8;
    let mut server = server("");
    // The machine's load does not decide whether a group is there in time.
    server.1.nri.plugin.wait = PATIENCE;
    let (found, found_groups) = (server.0.state(), groups(&server.0.root()));
    let node = Node::start(server);
    let mut chance = Chance(25);
    let mut free: Vec<usize> = (0..PROGRAMS).collect();
    let mut live: BTreeMap<usize, (PodMessage, ContainerMessage)> = BTreeMap::new();
    // Two pods are there before the daemon.
    for name in ["before-a", "before-b"] {
        let number = free.swap_remove(chance.below(free.len()));
        live.insert(number, node.pod(name, number));
    }
    let list = |live: &BTreeMap<usize, (PodMessage, ContainerMessage)>| -> (Vec<_>, Vec<_>) {
        live.values().cloned().unzip()
    };
    let (pods, containers) = list(&live);
    let mut runtime = node.runtime.take(&pods, &containers);
    node.until("pods that were there before", |node| {
        node.tenants() == ["default.before-a", "default.before-b"]
    });
    let (mut started, mut is_lost) = (0, false);
    while started < PODS {
        if !is_lost && started >= PODS / 2 && !free.is_empty() && live.len() > 2 {
            // The connection is lost; meanwhile one pod ends.
            is_lost = true;
            drop(runtime);
            let gone = *live.keys().next().unwrap();
            live.remove(&gone);
            free.push(gone);
            let (pods, containers) = list(&live);
            runtime = node.runtime.take(&pods, &containers);
            node.until("the pods of the list", |node| node.tenants().len() == live.len());
        }
        let starts = live.is_empty() || !free.is_empty() && chance.below(100) < 55;
        if starts {
            let number = free.swap_remove(chance.below(free.len()));
            let (pod, container) = node.pod(&format!("p{started}"), number);
            start(&mut runtime, &pod, &container);
            // The answer says that the container may run: its group is there and has it.
            let group = node.group_of(container.pid);
            let is_in = group.as_ref().is_some_and(|name| name.contains(&pod.name));
            assert!(is_in, "{}: {group:?}, {:#?}", pod.name, node.daemon.status().active_problems);
            live.insert(number, (pod, container));
            started += 1;
        } else {
            let number = *live.keys().nth(chance.below(live.len())).unwrap();
            let (pod, container) = live.remove(&number).unwrap();
            stop(&mut runtime, &pod, &container);
            free.push(number);
        }
    }
    assert!(is_lost, "the connection was not lost");
    for (pod, container) in live.values() {
        stop(&mut runtime, pod, container);
    }
    node.until("no tenant is left", |node| node.tenants().is_empty());
    assert_same_state(&groups(&node.machine.root()), &found_groups, "groups and masks");
    let Node { machine, daemon, .. } = node;
    drop(daemon);
    assert_same_state(&machine.state(), &found, "everything");
}

#[test]
fn mistakes_leave_their_pods_unmanaged_with_a_line_each() {
    let node = node("[[tenant]]\nname = \"default.mine\"\ncores = \"9\"\n");
    let foreign = node.machine.make_foreign_group("gold");
    let mut runtime = node.runtime.take(&[], &[]);
    let annotated = |name: &str, number: usize, annotations: &[(&str, &str)]| {
        let (mut pod, container) = node.pod(name, number);
        pod.annotations = annotations.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        (pod, container)
    };
    let address =
        node.machine.classes().iter().find(|(_, class)| class.starts_with("02")).unwrap().0.as_str();
    let pods = [
        annotated("good", 0, &[("waykeeper.io/priority", "high"), ("waykeeper.io/devices", address)]),
        annotated("mask", 1, &[("waykeeper.io/mask", "0x5")]),
        annotated("class", 2, &[("rdt.resources.beta.kubernetes.io/pod", "bronze")]),
        annotated("foreign", 3, &[("rdt.resources.beta.kubernetes.io/pod", "gold")]),
        annotated("device", 4, &[("waykeeper.io/devices", "nic0")]),
        annotated("mine", 5, &[]),
    ];
    for (pod, container) in &pods {
        start(&mut runtime, pod, container);
    }
    let (mut twin, container) = node.pod("good", 6);
    (twin.id, twin.uid) = ("another".to_owned(), "another".to_owned());
    start(
        &mut runtime,
        &twin,
        &ContainerMessage { sandbox: twin.id.clone(), id: "x".to_owned(), ..container },
    );
    node.until("the tenants", |node| node.tenants() == ["default.good", "default.mine"]);
    for problem in [
        "pod default/mask: annotation waykeeper.io/mask = `0x5`: ",
        "container c of pod default/class: unknown class `bronze`",
        "container c of pod default/foreign: it is in class `gold`",
        "pod default/device: annotation waykeeper.io/devices: pod default/good has device nic0",
        "pod tenant default.mine: the configuration declares a tenant of this name",
        "pod default/good: the pod with the unique id uid-good has this name already",
    ] {
        node.until(problem, |node| node.has_problem(problem));
    }
    for (pod, container) in &pods[1..] {
        assert_eq!(node.group_of(container.pid), None, "{}", pod.name);
    }
    assert_eq!(std::fs::read_to_string(foreign.join("tasks")).unwrap(), "");
    let groups = &node.daemon.published().groups;
    let good = groups.iter().find(|group| group.name == "default.good").unwrap();
    assert_eq!(good.priority, waykeeper_host::Priority::High);
    assert_eq!(good.devices.len(), 1);
    // With the pod its problem ends.
    stop(&mut runtime, &pods[1].0, &pods[1].1);
    node.until("the problem ends", |node| !node.has_problem("pod default/mask"));
}

#[test]
fn pods_keep_their_groups_when_one_daemon_follows_another() {
    let (machine, config, inputs) = server("[[tenant]]\nname = \"declared\"\ncores = \"9\"\n");
    let found = machine.state();
    let mut node = Node::start((machine, config.clone(), inputs.clone()));
    let (first, second) = (node.pod("a", 0), node.pod("b", 1));
    let (pods, containers): (Vec<_>, Vec<_>) = [first, second].into_iter().unzip();
    let all = ["declared", "default.a", "default.b"];
    let runtime = node.runtime.take(&pods, &containers);
    node.until("the pods", |node| node.tenants() == all);
    let before = node.groups();
    assert_eq!(before.len(), 3, "{before:?}");
    let mut client = Client::connect(&config.socket_path().unwrap(), Client::ORDER_TIMEOUT)
        .unwrap_or_else(|why| panic!("{why}"));
    let order = ControlCommand::HandOver { within_s: 60.0 };
    client.ask::<OrderResult>(order).unwrap_or_else(|why| panic!("{why}"));
    drop(client);
    // Pod b ends before the next daemon has the list.
    node.daemon.request(SignalRequest::Stop);
    let Node { machine, runtime: listener, daemon } = node;
    daemon.wait().unwrap_or_else(|why| panic!("{why}"));
    drop(runtime);
    let daemon = RunningDaemon::start(config, inputs, Box::new(|| 0), || {});
    node = Node { machine, runtime: listener, daemon: daemon.unwrap_or_else(|why| panic!("{why}")) };
    assert_eq!(node.groups(), before);
    let _runtime = node.runtime.take(&pods[..1], &containers[..1]);
    node.until("the pod that is left", |node| node.tenants() == all[..2]);
    let left: BTreeMap<String, u64> =
        before.into_iter().filter(|(name, _)| !name.contains("default.b")).collect();
    node.until("the group of the pod that ended is removed", |node| node.groups() == left);
    let Node { machine, daemon, .. } = node;
    drop(daemon);
    assert_same_state(&machine.state(), &found, "after both");
}

#[test]
fn a_lock_of_another_tool_delays_a_pod_by_the_bound_and_not_until_it_is_released() {
    let node = node("");
    let mut runtime = node.runtime.take(&[], &[]);
    let (pod, container) = node.pod("late", 1);
    let resctrl = std::fs::File::open(node.machine.root().path("/sys/fs/resctrl")).unwrap();
    rustix::fs::flock(&resctrl, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let begun = Instant::now();
    start(&mut runtime, &pod, &container);
    // The lock is still held here. How much later than the bound the pod starts depends on how busy the machine is.
    let waited = begun.elapsed();
    assert!(waited >= PluginConfig::WAIT, "{waited:?}");
    assert_eq!(node.group_of(container.pid), None);
    drop(resctrl);
    node.until("the daemon catches up", |node| node.group_of(container.pid).is_some());
}

#[test]
fn a_runtime_that_stalls_or_lies_changes_no_tenant() {
    let mut server = server("");
    server.1.nri.plugin.stall = Duration::from_secs(2);
    let node = Node::start(server);
    let (pod, container) = node.pod("here", 1);
    let (pods, containers) = (std::slice::from_ref(&pod), std::slice::from_ref(&container));
    // The header of a frame that never comes; a frame of 4 GiB; a message of 4 GiB.
    let lies = [
        &[0, 0, 0, 1, 0, 0, 0, 9][..],
        &[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff],
        &[0, 0, 0, 1, 0, 0, 0, 10, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 1, 0],
    ];
    // A tenant that was away for a moment has another id.
    let state = || {
        let groups = node.daemon.published().groups.clone();
        let ids: Vec<_> = groups.into_iter().map(|group| (group.id, group.name)).collect();
        (node.group_of(container.pid), ids)
    };
    let mut before = None;
    for (bytes, why) in lies.into_iter().zip(["did not complete", "a frame of", "a message of"]) {
        let mut runtime = node.runtime.take(pods, containers);
        node.until("its group", |node| {
            node.group_of(container.pid).is_some() && node.tenants() == ["default.here"]
        });
        assert_eq!(&state(), before.get_or_insert_with(state));
        runtime.send_bytes(bytes);
        runtime.closed();
        let wanted = format!("no connection to NRI at {}: ", node.runtime.path().display());
        node.until(why, |node| {
            let problems = node.daemon.status().active_problems;
            problems.iter().any(|own| own.text.starts_with(&wanted) && own.text.contains(why))
        });
        assert_eq!(Some(state()), before);
    }
}
