//! The declarations in docs/tenants.md are valid, and each finds its tenants on a virtual server.

use crate::census::machine::{census, show};
use std::path::Path;
use waykeeper_tenants::{Roster, parse};
use waykeeper_testbed::{MountedHost, manual_clock, scenario};

/// The examples, in the order of the page.
fn examples() -> Vec<&'static str> {
    let page = include_str!("../../../../../docs/tenants.md");
    page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

#[test]
fn every_example_is_read() {
    let names: Vec<Vec<String>> = examples()
        .into_iter()
        .map(|block| {
            let specs =
                parse(Path::new("docs/tenants.md"), block).unwrap_or_else(|error| panic!("{error}\n{block}"));
            specs.into_iter().map(|spec| spec.name).collect()
        })
        .collect();
    let expected: [&[&str]; 4] = [
        &["fastclick", "redis", "pod-{name}"],
        &["db", "container-{name}"],
        &["storage", "{name}"],
        &["guest7", "vm-{name}"],
    ];
    assert_eq!(names, expected);
}

/// A server with everything that the examples name. The port of eth0 is on bus 39: bus 3a has the socket's own devices,
/// so that its card is 0000:3b:00.0; that of ens1f0 is 0000:5e:00.0, with a virtual function per workload.
const SERVER: &str = r#"
name = "examples"
duration_s = 1
warmup_s = 0.1
measure_s = 0.1

[[nic]]
name = "eth0"
port = "0000:39:00.0"

[[nic]]
name = "ens1f0"
port = "0000:5d:00.0"

[[storage]]
name = "raid0"
port = "0000:85:00.0"
drives = 2

[[workload]]
name = "fastclick"
program = "l2fwd"
nic = "eth0"
cores = "0-3"

[[workload]]
name = "redis"
program = "x-mem"
working_set = "1M"
cores = "4"
cgroup = "system.slice/redis-server.service"

[[workload]]
name = "pod a"
program = "x-mem"
working_set = "1M"
cores = "5"
cgroup = "kubepods.slice/kubepods-pod2f5c3a1e_71b2.slice/cri-containerd-0a.scope"

[[workload]]
name = "pod b"
program = "x-mem"
working_set = "1M"
cores = "6"
cgroup = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod77.slice/cri-containerd-0b.scope"

[[workload]]
name = "backup"
program = "fio"
cores = "7"
cgroup = "storage.slice/backup.service"

[[workload]]
name = "postgres"
program = "x-mem"
working_set = "1M"
cores = "8"
cgroup = "system.slice/system-postgresql.slice/postgresql@15-main.service"
"#;

/// Workload `number` on ens1f0, on core 9 and up; the last one is the virtual machine of the example.
fn guest(number: usize) -> String {
    let cgroup = if number == 7 { r"cgroup = 'machine.slice/machine-qemu\x2d7\x2dguest.scope'" } else { "" };
    format!(
        "\n[[workload]]\nname = \"guest{number}\"\nprogram = \"l2fwd\"\nnic = \"ens1f0\"\nshare = 1\ncores = {}\n{cgroup}\n",
        9 + number
    )
}

fn absent(roster: &Roster) -> Vec<String> {
    roster.absent.iter().map(|absent| format!("{}: {}", absent.name, absent.why)).collect()
}

#[test]
fn every_example_finds_its_tenants_on_a_virtual_server() {
    let guests: String = (0..8).map(guest).collect();
    let machine = MountedHost::with(scenario("gold-6140", &format!("{SERVER}{guests}")), manual_clock(64));
    let found: Vec<Vec<String>> = examples()
        .into_iter()
        .map(|block| {
            let roster = census(block).take(&machine.root());
            assert_eq!(absent(&roster), [""; 0], "{block}");
            roster.tenants.iter().map(show).collect()
        })
        .collect();
    // A thread takes a number too, so that the pids are those of the cores' order; fastclick's four are 5000000 to
    // 5000003. Names that could be those of two cgroups end in the CRC-32 of the path.
    let expected: [&[&str]; 4] = [
        &[
            "fastclick [0-3] [] 0000:3b:00.0",
            "redis [4] [5000004]",
            "pod-cri-containerd-0b-CRC [6] [5000006]",
            "pod-cri-containerd-0a-CRC [5] [5000005]",
        ],
        &["db [5] [5000005]", "container-cri-containerd-0b-CRC [6] [5000006]"],
        // The two drives are behind a switch: buses 86 to 88, then 89 and 8a.
        &["storage [7] [5000007] 0000:88:00.0 0000:89:00.0", "postgresql_15-main-CRC [8] [5000008]"],
        &[
            "guest7 [16] [5000016] 0000:5e:01.0",
            "vm-ens1f0-vf0 [] [] 0000:5e:00.1",
            "vm-ens1f0-vf1 [] [] 0000:5e:00.2",
            "vm-ens1f0-vf2 [] [] 0000:5e:00.3",
            "vm-ens1f0-vf3 [] [] 0000:5e:00.4",
            "vm-ens1f0-vf4 [] [] 0000:5e:00.5",
            "vm-ens1f0-vf5 [] [] 0000:5e:00.6",
            "vm-ens1f0-vf6 [] [] 0000:5e:00.7",
        ],
    ];
    let plain = |line: &String| {
        let (name, rest) = line.split_once(' ').unwrap();
        match name.rsplit_once('-') {
            Some((stem, mark)) if mark.len() == 8 && mark.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                format!("{stem}-CRC {rest}")
            }
            _ => line.clone(),
        }
    };
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.iter().map(plain).collect::<Vec<_>>(), expected);
    }
    assert_eq!(found.len(), expected.len());
}
