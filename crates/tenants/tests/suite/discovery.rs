//! The search for what could be tenants, on plain trees: what is found, what is left out, and the reason of each guess.

use crate::census::machine::{Machine, Process};
use std::os::unix::fs::symlink;
use waykeeper_host::{Priority, WorkloadKind};
use waykeeper_kernel::root::Root;
use waykeeper_tenants::Census;
use waykeeper_tenants::discovery::{Discovery, FoundTenant, discover};

/// A machine that is up for 1000 s.
fn machine() -> Machine {
    let machine = Machine::new("[[tenant]]\nname = \"none\"\ncores = \"0\"\n");
    machine.tree.write("proc/uptime", "1000.00 2000.00\n");
    machine
}

/// A process that started with the machine and has used so many seconds of CPU (100 clock ticks each).
fn process(machine: &Machine, pid: u32, name: &str, cpu_s: u64, nice: i32, cpus: &str) {
    machine.process(&Process { cpus, ..Process::new(pid, name) });
    // Fields 5 to 8, flags, 10 to 13, user and system time, 16 to 18, nice, threads, 21, the start.
    let stat =
        format!("{pid} ({name}) S 1 1 1 0 -1 4194304 0 0 0 0 {} 0 0 0 20 {nice} 1 0 0 0 0\n", 100 * cpu_s);
    machine.tree.write(&format!("proc/{pid}/stat"), &stat);
    let status = format!("Name:\t{name}\nCpus_allowed_list:\t{cpus}\n");
    machine.tree.write(&format!("proc/{pid}/status"), &status);
}

fn found(machine: &Machine) -> Discovery {
    discover(&Root::at(machine.tree.root()))
}

fn named<'d>(discovery: &'d Discovery, name: &str) -> &'d FoundTenant {
    let names: Vec<&str> = discovery.tenants.iter().map(|own| own.name.as_str()).collect();
    discovery.tenants.iter().find(|own| own.name == name).unwrap_or_else(|| panic!("{name}: {names:?}"))
}

#[test]
fn units_pods_containers_and_pinned_programs_are_found_and_quiet_services_are_left_out() {
    let machine = machine();
    // 500 s of CPU in 1000 s are half a CPU, 10 s are a hundredth.
    process(&machine, 20, "postgres", 500, 0, "0-7");
    process(&machine, 21, "sshd", 10, 0, "0-7");
    process(&machine, 22, "nginx", 10, 0, "0-7");
    process(&machine, 23, "unknown", 10, 0, "0-7");
    process(&machine, 24, "java", 10, 0, "0-7");
    process(&machine, 25, "redis-server", 10, 0, "0-7");
    process(&machine, 26, "qemu-system-x86", 10, -5, "0-7");
    process(&machine, 27, "testpmd", 900, 0, "2");
    process(&machine, 28, "loose", 900, 0, "0-7");
    let id = "0123456789abcdef".repeat(4);
    let docker = format!("system.slice/docker-{id}.scope");
    let guest = r"machine.slice/machine-qemu\x2d7\x2dguest.scope";
    for (path, pid, cpus) in [
        ("system.slice/postgresql.service", 20, "0-7"),
        ("system.slice/ssh.service", 21, "0-7"),
        ("web.slice/nginx.service", 22, "0,4"),
        ("kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice/cri-1.scope", 23, "0-7"),
        ("kubepods.slice/kubepods-pod2.slice/cri-2.scope", 24, "3"),
        (docker.as_str(), 25, "0-7"),
        (guest, 26, "1,5"),
        ("init.scope", 1, "0-7"),
    ] {
        machine.cgroup(path, &[pid], Some(cpus));
    }
    machine.cgroup("system.slice/empty.service", &[], None);
    machine.tree.write("sys/fs/cgroup/system.slice/postgresql.service/cpu.weight", "100\n");
    let discovery = found(&machine);
    let shown: Vec<String> = discovery
        .tenants
        .iter()
        .map(|own| {
            let priority = if own.priority.value == Priority::High { "high" } else { "low" };
            format!("{} {}={} {priority} [{}]", own.name, own.key, own.selected, own.cores)
        })
        .collect();
    assert_eq!(
        shown,
        [
            "guaranteed-{name} cgroup=kubepods.slice/kubepods-pod*.slice high [3]".to_owned(),
            "nginx unit=nginx.service high [0,4]".to_owned(),
            "postgresql unit=postgresql.service high []".to_owned(),
            r"qemu-7-guest unit=machine-qemu\x2d7\x2dguest.scope high [1,5]".to_owned(),
            format!("redis-server-0123456789ab unit=docker-{id}.scope high []"),
            "testpmd process=testpmd high [2]".to_owned(),
            "{name} cgroup=kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod*.slice low []"
                .to_owned(),
        ]
    );
    let left: Vec<&str> = discovery.left_out.iter().map(|left| left.name.as_str()).collect();
    assert_eq!(left, ["ssh.service"]);
    let own = named(&discovery, "postgresql");
    assert_eq!(own.about, "1 process, no CPUs of its own, 0.5 CPUs busy on average: postgres");
    assert_eq!(own.priority.why, "`postgres`: it answers requests, and clients wait");
    assert_eq!(named(&discovery, "qemu-7-guest").priority.why, "its processes have nice -5");
    assert_eq!(discovery.notes, [""; 0]);

    // The census finds the same tenants with these declarations.
    let specs = discovery.specs();
    assert_eq!(specs.len(), discovery.tenants.len());
    let roster = Census::new(specs).take(&Root::at(machine.tree.root()));
    assert!(roster.absent.is_empty(), "{:?}", roster.absent);
    let pids: Vec<&[u32]> = roster.tenants.iter().map(|tenant| tenant.pids.as_slice()).collect();
    assert_eq!(pids, [&[24][..], &[22], &[20], &[26], &[25], &[27], &[23]]);
}

#[test]
fn a_device_is_given_to_the_tenant_that_has_it_open_or_to_the_only_one_that_can_be_meant() {
    let machine = machine();
    process(&machine, 20, "spdk_tgt", 0, 0, "0");
    process(&machine, 21, "vpp_main", 0, 0, "1");
    process(&machine, 22, "mystery", 0, 0, "5");
    for (name, pid, cpu) in [("spdk", 20, "0"), ("vpp", 21, "1"), ("mystery", 22, "5")] {
        machine.cgroup(&format!("work.slice/{name}.service"), &[pid], Some(cpu));
    }
    let discovery = found(&machine);
    let seen: Vec<String> =
        discovery.devices.iter().map(|device| format!("{} {}", device.name, device.address)).collect();
    assert_eq!(seen, ["ens1f0 0000:3b:00.0", "ens1f1 0000:3b:00.1", "nvme0 0000:86:00.0"]);
    let devices = |discovery: &Discovery, name: &str| named(discovery, name).devices.clone();
    // Both ports of the card are behind one root port, and so is the drive.
    assert_eq!(devices(&discovery, "vpp").unwrap().value, ["ens1f0", "ens1f1"]);
    assert_eq!(named(&discovery, "vpp").kind.as_ref().unwrap().value, WorkloadKind::NetworkIo);
    assert_eq!(devices(&discovery, "spdk").unwrap().value, ["nvme0"]);
    assert_eq!(devices(&discovery, "mystery"), None);
    // An open device file says more than the name of a program.
    machine.tree.write("sys/kernel/iommu_groups/7/devices/0000:3b:00.0/x", "");
    let folder = machine.tree.path("proc/22/fd");
    std::fs::create_dir_all(&folder).unwrap();
    symlink("/dev/vfio/7", folder.join("3")).unwrap();
    symlink("/dev/null", folder.join("0")).unwrap();
    let discovery = found(&machine);
    assert_eq!(devices(&discovery, "mystery").unwrap().value, ["0000:3b:00.0"]);
    let own = named(&discovery, "mystery");
    assert_eq!(own.priority.why, "it has CPUs of its own and drives a device itself");
    assert_eq!(own.priority.value, Priority::High);
    assert_eq!(devices(&discovery, "vpp"), None, "the card is in use");
    machine.tree.remove("proc/22/fd");
    // With a second network program it cannot be told whose the card is.
    process(&machine, 23, "nginx", 0, 0, "4");
    machine.cgroup("work.slice/web.service", &[23], Some("4"));
    let discovery = found(&machine);
    assert_eq!((devices(&discovery, "vpp"), devices(&discovery, "web")), (None, None));
}

#[test]
fn an_empty_machine_and_odd_names_give_no_error() {
    let machine = machine();
    assert_eq!(found(&machine).tenants, []);
    process(&machine, 20, "a", 0, 0, "0");
    process(&machine, 21, "b", 0, 0, "1");
    process(&machine, 22, "c", 0, 0, "4");
    machine.cgroup("work.slice/a b.service", &[20], Some("0"));
    machine.cgroup("work.slice/a_b.service", &[21], Some("1"));
    // No glob has so many braces.
    machine.cgroup(&format!("work.slice/{}.service", "{".repeat(20)), &[22], Some("4"));
    let discovery = found(&machine);
    let names: Vec<&str> = discovery.tenants.iter().map(|own| own.name.as_str()).collect();
    assert_eq!(names, ["a_b", "a_b-2"]);
    assert_eq!(discovery.specs().len(), 2);
    let none = tempfile::tempdir().unwrap();
    assert_eq!(discover(&Root::at(none.path())).tenants, []);
}
