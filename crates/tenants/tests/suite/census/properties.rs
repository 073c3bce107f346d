//! For any file contents and declarations: no panic, and no two tenants have anything in common.

use crate::census::machine::{Machine, Process, check};
use proptest::collection::vec;
use proptest::prelude::*;
use waykeeper_kernel::root::Root;

const DECLARED: &str = r#"
[[tenant]]
name = "pod"
each = true
cgroup = "k/**/c*"
[[tenant]]
name = "w-{name}"
process = "n[ax]"
[[tenant]]
name = "slice"
slice = "a-b.slice"
unit = "u*.service"
[[tenant]]
name = "pids"
pids = [10, 11, 30]
devices = ["ens1f0", "3b:00.0/vf*"]
[[tenant]]
name = "cores"
cores = "0,4"
process = "*"
[[tenant]]
name = "rest"
cgroup = "**"
devices = "3b:00.0"
"#;

/// Files that a look reads.
const FILES: [&str; 11] = [
    "proc/10/stat",
    "proc/11/stat",
    "proc/10/task/10/status",
    "sys/fs/cgroup/k/p/c1/cgroup.procs",
    "sys/fs/cgroup/k/p/c1/cpuset.cpus.effective",
    "sys/fs/cgroup/a.slice/a-b.slice/cgroup.procs",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/cpu1/topology/physical_package_id",
    "sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/class",
    "sys/devices/system/node/node0/cpulist",
    "sys/devices/system/cpu/cpu0/topology/core_id",
];

#[derive(Clone, Debug)]
enum Step {
    Process { pid: u32, name: usize, parent: u32, started: u64, cpus: usize },
    End(u32),
    Cgroup { path: usize, pids: Vec<u32>, cpus: usize },
    Remove(usize),
    Garbage { file: usize, bytes: Vec<u8> },
}

const NAMES: [&str; 5] = ["na", "nx", "other", "a) b (c", ""];
const CPUS: [&str; 6] = ["0-7", "0", "4-5", "2-3,6", "1-2", ""];
const CGROUPS: [&str; 7] = [
    "k/p/c1",
    "k/p/c1/c2",
    "k/q/c1",
    "k/c-of-\u{e9}-and-a-name-that-is-longer-than-what-a-group-can-be-called-here",
    "a.slice/a-b.slice",
    "system.slice/u1.service",
    "x",
];

fn step() -> impl Strategy<Value = Step> {
    let pid = || 8u32..16;
    prop_oneof![
        4 => (pid(), 0..NAMES.len(), 0u32..16, 0u64..4, 0..CPUS.len())
            .prop_map(|(pid, name, parent, started, cpus)| Step::Process { pid, name, parent, started, cpus }),
        1 => pid().prop_map(Step::End),
        4 => (0..CGROUPS.len(), vec(0u32..16, 0..5), 0..CPUS.len())
            .prop_map(|(path, pids, cpus)| Step::Cgroup { path, pids, cpus }),
        1 => (0..CGROUPS.len()).prop_map(Step::Remove),
        1 => (0..FILES.len(), vec(any::<u8>(), 0..40)).prop_map(|(file, bytes)| Step::Garbage { file, bytes }),
        1 => (0..FILES.len(), "[0-9a-z() ,\\n-]{0,30}")
            .prop_map(|(file, text)| Step::Garbage { file, bytes: text.into_bytes() }),
    ]
}

fn apply(machine: &Machine, step: &Step) {
    match step {
        Step::Process { pid, name, parent, started, cpus } => machine.process(&Process {
            pid: *pid,
            name: NAMES[*name],
            parent: *parent,
            started: *started,
            exe: None,
            cpus: CPUS[*cpus],
        }),
        Step::End(pid) => drop(std::fs::remove_dir_all(machine.tree.path(&format!("proc/{pid}")))),
        Step::Cgroup { path, pids, cpus } => machine.cgroup(CGROUPS[*path], pids, Some(CPUS[*cpus])),
        Step::Remove(path) => {
            drop(std::fs::remove_dir_all(machine.tree.path(&format!("sys/fs/cgroup/{}", CGROUPS[*path]))));
        }
        Step::Garbage { file, bytes } => {
            let path = machine.tree.path(FILES[*file]);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn no_two_tenants_ever_have_anything_in_common(steps in vec(vec(step(), 0..12), 1..4)) {
        let mut machine = Machine::new(DECLARED);
        for steps in steps {
            steps.iter().for_each(|step| apply(&machine, step));
            // `take` checks what is true of every roster.
            let roster = machine.take();
            prop_assert!(roster.notes.iter().all(|note| !note.to_string().contains('\n')), "{:?}", roster.notes);
        }
        // Without changes, two looks agree; CPUs of processes may still be read.
        let names = |roster: waykeeper_tenants::Roster| -> Vec<(String, Vec<u32>)> {
            roster.tenants.into_iter().map(|tenant| (tenant.name, tenant.pids)).collect()
        };
        (0..3).for_each(|_| drop(machine.take()));
        let (one, two) = (machine.take(), machine.take());
        prop_assert!(two.notes.is_empty(), "{:?}", two.notes);
        prop_assert_eq!(names(one), names(two));
    }

    #[test]
    fn a_machine_that_is_taken_apart_meanwhile_is_no_reason_to_panic(
        steps in vec(step(), 4..20),
        gone in vec(0..12usize, 1..6),
    ) {
        let mut machine = Machine::new(DECLARED);
        steps.iter().for_each(|step| apply(&machine, step));
        machine.take();
        let places = [
            "proc/10", "proc/10/task", "proc/11/stat", "proc", "sys/fs/cgroup/k", "sys/fs/cgroup/a.slice",
            "sys/fs/cgroup", "sys/devices/system/cpu/online", "sys/devices/system/cpu", "sys/bus", "sys/class/net", "sys",
        ];
        for place in gone {
            let path = machine.tree.path(places[place]);
            let _ = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
            check(&machine.census.take(&Root::at(machine.tree.root())));
        }
    }
}
