//! Tests of the plugin's thread with a runtime that plays the other end of its socket.

use super::*;
use crate::PodTenants;
use crate::fake_runtime::{FakeRuntime, container, pod};
use crate::mux;
use std::sync::mpsc::{Receiver, Sender, channel};
use waykeeper_tenants::DeviceName;

/// How long a test waits, as `waykeeper_testbed::PATIENCE`. The testbed has a virtual server, for which this crate has no
/// use.
const PATIENCE: Duration = Duration::from_secs(300);

/// A machine that passes on the names of the tenants.
struct Passing(Sender<Vec<String>>);

impl PodHost for Passing {
    fn check_mask(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn ways(&self) -> Option<u32> {
        Some(11)
    }

    fn has_class(&self, _: &str) -> bool {
        false
    }

    fn has_cgroup(&self, _: &str) -> bool {
        false
    }

    fn devices_of_file(&self, _: &str) -> Vec<DeviceName> {
        Vec::new()
    }

    fn functions(&self, name: &DeviceName) -> Result<Vec<String>, String> {
        Ok(vec![name.to_string()])
    }

    fn declare(&mut self, pods: PodTenants, _: Duration) -> bool {
        self.0.send(pods.specs.into_iter().map(|spec| spec.name).collect()).is_ok()
    }
}

struct Stage {
    runtime: FakeRuntime,
    declared: Receiver<Vec<String>>,
    link: PluginLink,
    plugin: Plugin,
    _folder: tempfile::TempDir,
}

fn stage(stall: Duration) -> Stage {
    let folder = tempfile::tempdir().unwrap();
    let runtime = FakeRuntime::listen(&folder.path().join("nri.sock"));
    let config = PluginConfig {
        socket: runtime.path().to_owned(),
        name: "waykeeper".to_owned(),
        index: 90,
        wait: PluginConfig::WAIT,
        stall,
    };
    let (sender, declared) = channel();
    let link = PluginLink::default();
    let plugin = Plugin::start(config, link.clone(), Box::new(Passing(sender))).unwrap();
    Stage { runtime, declared, link, plugin, _folder: folder }
}

impl Stage {
    fn declared(&self) -> Vec<String> {
        self.declared.recv_timeout(PATIENCE).unwrap()
    }

    /// Waits until the state of the connection is as wanted.
    fn until(&self, wanted: impl Fn(Option<&str>) -> bool) {
        let begun = Instant::now();
        while !wanted(self.link.trouble().as_deref()) {
            assert!(begun.elapsed() < PATIENCE, "{:?}", self.link.trouble());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[test]
fn a_lost_connection_is_made_again_and_the_list_is_reconciled() {
    let stage = stage(PATIENCE);
    let [a, b] = ["a", "b"].map(|name| pod(name, ""));
    let [of_a, of_b] = [(&a, 50), (&b, 51)].map(|(pod, pid)| container(pod, "c", pid, ""));
    let mut first = stage.runtime.accept();
    let registration = first.register();
    assert_eq!((registration.name.as_str(), registration.index.as_str()), ("waykeeper", "90"));
    first.configure(2000);
    first.synchronize(std::slice::from_ref(&a), std::slice::from_ref(&of_a), 1);
    assert_eq!(stage.declared(), ["default.a"]);
    first.event("StartContainer", Some(&b), Some(&of_b));
    assert_eq!(stage.declared(), ["default.a", "default.b"]);
    drop(first);
    stage.until(|trouble| trouble.is_some_and(|why| why.contains("closed the connection; trying again")));
    // While there was no connection, a ended.
    let mut second = stage.runtime.take(&[a.clone(), b], &[of_b]);
    assert_eq!(stage.declared(), ["default.b"]);
    stage.until(|trouble| trouble.is_none());
    second.event("StopPodSandbox", Some(&a), None);
    drop(stage.plugin);
    second.closed();
}

#[test]
fn a_runtime_that_stalls_is_left_and_tried_again() {
    // Long enough for a runtime that does not stall, on a busy machine too.
    let stage = stage(Duration::from_secs(2));
    let mut silent = stage.runtime.accept();
    // It accepts the connection and never answers the registration.
    silent.send_bytes(&[0, 0]);
    stage.until(|trouble| trouble.is_some_and(|why| why.contains("did not complete what it began to send")));
    silent.closed();
    let own = pod("a", "");
    let mut half = stage.runtime.take(std::slice::from_ref(&own), &[container(&own, "c", 50, "")]);
    assert_eq!(stage.declared(), ["default.a"]);
    stage.until(|trouble| trouble.is_none());
    half.send_bytes(&[0, 0, 0, 1, 0, 0]);
    stage.until(|trouble| trouble.is_some_and(|why| why.contains("did not complete")));
    half.closed();
    assert!(stage.declared.try_recv().is_err(), "nothing else was declared");
}

#[test]
fn a_runtime_that_refuses_or_lies_about_a_length_is_left_and_tried_again() {
    let stage = stage(PATIENCE);
    let mut refusing = stage.runtime.accept();
    refusing.refuse("no plugins today");
    stage.until(|trouble| trouble.is_some_and(|why| why.contains("refuses the plugin: no plugins today")));
    refusing.closed();
    let own = pod("a", "");
    let mut lying = stage.runtime.take(std::slice::from_ref(&own), &[container(&own, "c", 50, "")]);
    assert_eq!(stage.declared(), ["default.a"]);
    lying.send(mux::PLUGIN, &[0xff; 10]);
    stage.until(|trouble| trouble.is_some_and(|why| why.contains("4294967295 bytes")));
    lying.closed();
    // What was declared before stays; the same list again declares it anew.
    let _again = stage.runtime.take(std::slice::from_ref(&own), &[container(&own, "c", 50, "")]);
    assert_eq!(stage.declared(), ["default.a"]);
    stage.until(|trouble| trouble.is_none());
    assert!(stage.declared.try_recv().is_err(), "nothing else was declared");
}

#[test]
fn it_ends_with_and_without_a_connection() {
    let stage = stage(PATIENCE);
    let connection = stage.runtime.take(&[], &[]);
    drop(stage.plugin);
    connection.closed();
    let folder = tempfile::tempdir().unwrap();
    let config = PluginConfig {
        socket: folder.path().join("none"),
        name: "waykeeper".to_owned(),
        index: 90,
        wait: PluginConfig::WAIT,
        stall: PluginConfig::STALL,
    };
    let link = PluginLink::default();
    let plugin = Plugin::start(config, link.clone(), Box::new(Passing(channel().0))).unwrap();
    while link.trouble().is_none() {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(link.trouble().unwrap().contains("/none: No such file"), "{:?}", link.trouble());
    drop(plugin);
}
