//! A plain tree with processes, cgroups and virtual functions, and the census over it.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::Path;
use waykeeper_kernel::root::Root;
use waykeeper_tenants::{Census, MOST_READS, Roster, Tenant};
use waykeeper_testbed::plain_tree::PlainTree;

/// Two sockets (CPUs 0-1,4-5 and 2-3,6-7), a NIC with two ports behind one root port, a disk behind the other.
pub struct Machine {
    pub tree: PlainTree,
    pub census: Census,
}

/// A process as the kernel shows it, with the fields that the census may read.
pub struct Process<'p> {
    pub pid: u32,
    pub name: &'p str,
    pub parent: u32,
    pub started: u64,
    pub exe: Option<&'p str>,
    pub cpus: &'p str,
}

impl<'p> Process<'p> {
    pub fn new(pid: u32, name: &'p str) -> Process<'p> {
        Process { pid, name, parent: 1, started: u64::from(pid) * 10, exe: None, cpus: "0-7" }
    }
}

impl Machine {
    /// `tenants` is the text of a file of tenants.
    pub fn new(tenants: &str) -> Machine {
        let tree = PlainTree::skylake();
        std::fs::create_dir_all(tree.path("proc/1")).unwrap();
        let machine = Machine { tree, census: census(tenants) };
        machine.process(&Process::new(1, "init"));
        machine
    }

    pub fn process(&self, process: &Process) {
        let Process { pid, name, parent, started, exe, cpus } = process;
        // Fields 5 to 8, flags, 10 to 19, threads, 21, the start and some more.
        let stat =
            format!("{pid} ({name}) S {parent} 1 1 0 -1 4194304 {}1 0 {started} 0 0\n", "0 ".repeat(10));
        self.tree.write(&format!("proc/{pid}/stat"), &stat);
        self.thread(*pid, *pid, cpus);
        if let Some(exe) = exe {
            let link = self.tree.path(&format!("proc/{pid}/exe"));
            let _ = std::fs::remove_file(&link);
            symlink(exe, link).unwrap();
        }
    }

    pub fn thread(&self, pid: u32, thread: u32, cpus: &str) {
        let status = format!("Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t{cpus}\nMems_allowed:\t1\n");
        self.tree.write(&format!("proc/{pid}/task/{thread}/status"), &status);
    }

    pub fn end(&self, pid: u32) {
        self.tree.remove(&format!("proc/{pid}"));
    }

    /// A cgroup of version 2 with these processes in it.
    pub fn cgroup(&self, path: &str, pids: &[u32], cpus: Option<&str>) {
        self.tree.write("sys/fs/cgroup/cgroup.controllers", "cpuset cpu\n");
        self.cgroup_in("sys/fs/cgroup", path, pids, cpus.map(|cpus| ("cpuset.cpus.effective", cpus)));
    }

    pub fn cgroup_in(&self, folder: &str, path: &str, pids: &[u32], cpus: Option<(&str, &str)>) {
        let procs: String = pids.iter().map(|pid| format!("{pid}\n")).collect();
        self.tree.write(&format!("{folder}/{path}/cgroup.procs"), &procs);
        if let Some((file, cpus)) = cpus {
            self.tree.write(&format!("{folder}/{path}/{file}"), &format!("{cpus}\n"));
        }
    }

    pub fn take(&mut self) -> Roster {
        let roster = self.census.take(&Root::at(self.tree.root()));
        check(&roster);
        roster
    }

    /// One look: the tenants as lines, and the notes.
    pub fn look(&mut self) -> (Vec<String>, Vec<String>) {
        let roster = self.take();
        let shown = roster.tenants.iter().map(show).collect();
        (shown, roster.notes.iter().map(ToString::to_string).collect())
    }
}

/// `name cores pids devices`.
pub fn show(tenant: &Tenant) -> String {
    let devices: Vec<String> = tenant.devices.iter().map(ToString::to_string).collect();
    format!("{} [{}] {:?} {}", tenant.name, tenant.cores, tenant.pids, devices.join(" "))
        .trim_end()
        .to_owned()
}

pub fn census(text: &str) -> Census {
    Census::new(waykeeper_tenants::parse(Path::new("tenants.toml"), text).unwrap())
}

/// Checks what is true of every roster.
pub fn check(roster: &Roster) {
    let mut owners: BTreeMap<String, &str> = BTreeMap::new();
    for tenant in &roster.tenants {
        let name = tenant.name.as_str();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        assert!((1..=64).contains(&name.len()) && name.chars().all(plain), "{name:?}");
        let mut own = vec![format!("name {name}")];
        own.extend(tenant.cores.cores().iter().map(|core| format!("core {core}")));
        own.extend(tenant.pids.iter().map(|pid| format!("pid {pid}")));
        own.extend(tenant.devices.iter().map(|device| format!("device {device}")));
        for thing in own {
            let other = owners.insert(thing.clone(), name);
            assert_eq!(other, None, "{thing} has two owners, {name} is one");
        }
        for pid in &tenant.pids {
            assert!(roster.started.contains_key(pid), "the start of {pid} is not told");
        }
    }
    assert!(roster.reads <= MOST_READS, "{} reads", roster.reads);
}
