//! The scenario's programs as processes and control groups of the mounted tree.
//!
//! It needs root and /dev/fuse; without them it fails.

use crate::common;

use common::{manual_clock, scenario};
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use tempfile::TempDir;
use waykeeper_machine::ScenarioSource;
use waykeeper_vhost::virtual_host::{VirtualHost, VirtualHostOptions};

const MS: u64 = 1_000_000;

/// A forwarder from the start, a scan from 20 to 60 ms, another scan from 30 ms on.
const COMING_AND_GOING: &str = r#"
name = "programs"
duration_s = 1
warmup_s = 0.1
measure_s = 0.1
time_factor = 5

[[nic]]
name = "nic0"
ring = 2048
offered_gbps = 40

[[workload]]
name = "fw"
program = "l2fwd"
cores = "0-1,4"

[[workload]]
name = "scan a"
program = "x-mem"
cores = "2"
working_set = "4M"
start_s = 0.02
stop_s = 0.06

[[workload]]
name = "other"
program = "x-mem"
cores = "3"
working_set = "4M"
start_s = 0.03
cgroup = "system.slice/db/scan.scope"
"#;

struct Server {
    folder: TempDir,
    host: VirtualHost,
}

impl Server {
    fn new(text: &str) -> Server {
        Server::with(text, manual_clock(16))
    }

    fn with(text: &str, options: VirtualHostOptions) -> Server {
        let folder = tempfile::tempdir().unwrap();
        assert!(rustix::process::geteuid().is_root(), "not run: needs root and /dev/fuse");
        let host = VirtualHost::mount(folder.path(), scenario("gold-6140", text), options)
            .unwrap_or_else(|error| panic!("not run: needs root and /dev/fuse: {error}"));
        Server { folder, host }
    }

    fn run_to(&self, clock_ns: u64) {
        self.host.clock().run_until(clock_ns).expect("the model runs");
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.at(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut names: Vec<_> = entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The pids in `proc`.
    fn pids(&self) -> Vec<u32> {
        self.names("proc").iter().filter_map(|name| name.parse().ok()).collect()
    }
}

/// The value behind a name of `status`.
fn value<'a>(status: &'a str, name: &str) -> &'a str {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
    line.unwrap_or_else(|| panic!("no {name} in\n{status}"))
}

/// A field of `stat` by its number in proc(5).
fn field(stat: &str, number: usize) -> &str {
    let (front, rest) = stat.rsplit_once(") ").unwrap();
    match number {
        1 => front.split(" (").next().unwrap(),
        2 => front.split(" (").nth(1).unwrap(),
        _ => rest.split_whitespace().nth(number - 3).unwrap(),
    }
}

#[test]
fn a_process_is_there_from_the_start_of_its_program_to_its_exit() {
    let server = Server::new(COMING_AND_GOING);
    assert_eq!(server.pids(), [5_000_000], "threads have no directory at the top");
    server.run_to(30 * MS);
    assert_eq!(server.pids(), [5_000_000, 5_000_003, 5_000_004], "a thread takes a number, too");
    let mut open = File::open(server.at("proc/5000003/stat")).unwrap();
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    // 20 ms are two ticks of 10 ms.
    assert_eq!((field(&text, 1), field(&text, 2), field(&text, 22)), ("5000003", "x-mem", "2"));
    assert_eq!(text.split_whitespace().count(), 52);
    server.run_to(60 * MS);
    assert_eq!(server.pids(), [5_000_000, 5_000_004]);
    open.rewind().unwrap();
    assert_eq!(open.read(&mut [0; 64]).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    let gone = fs::read(server.at("proc/5000003/stat")).unwrap_err();
    assert_eq!(gone.raw_os_error(), Some(libc::ENOENT));
    assert!(server.at("proc/cpuinfo").exists() && !server.at("proc/0").exists());
}

#[test]
fn a_process_says_what_it_is_where_it_runs_and_for_how_long() {
    let server = Server::new(COMING_AND_GOING);
    server.run_to(100 * MS);
    let status = server.text("proc/5000000/status");
    assert_eq!((value(&status, "Name"), value(&status, "Tgid")), ("l2fwd", "5000000"));
    assert_eq!((value(&status, "PPid"), value(&status, "Threads")), ("0", "3"));
    assert_eq!(value(&status, "Cpus_allowed_list"), "0-1,4");
    // Cores 0, 1 and 4 of 18.
    assert_eq!(value(&status, "Cpus_allowed"), "00013");
    assert_eq!(server.text("proc/5000000/comm"), "l2fwd\n");
    assert_eq!(server.text("proc/5000000/cmdline"), "l2fwd\0--name\0fw\0--cores\x000-1,4\0");
    assert_eq!(server.text("proc/5000000/cgroup"), "0::/tenants.slice/fw.service\n");
    assert_eq!(server.names("proc/5000000/task"), ["5000000", "5000001", "5000002"]);
    assert_eq!(server.text("proc/5000000/task/5000002/children"), "");
    assert!(!server.at("proc/5000000/children").exists());
    let thread = server.text("proc/5000000/task/5000002/stat");
    assert_eq!((field(&thread, 1), field(&thread, 20), field(&thread, 39)), ("5000002", "3", "4"));
    assert_eq!(value(&server.text("proc/5000000/task/5000002/status"), "Pid"), "5000002");
    // A poller never sleeps: 100 ms are ten ticks per thread, thirty for the process.
    assert_eq!(field(&thread, 14), "10");
    assert_eq!(field(&server.text("proc/5000000/stat"), 14), "30");
    // x-mem took 4 MiB when it started, at 30 ms.
    let scan = server.text("proc/5000004/stat");
    assert_eq!((field(&scan, 23), field(&scan, 24)), ("4194304", "1024"));
    assert_eq!(value(&server.text("proc/5000004/status"), "VmRSS"), "    4096 kB");
}

#[test]
fn control_groups_come_and_go_with_their_processes() {
    let server = Server::new(COMING_AND_GOING);
    let root = "sys/fs/cgroup";
    let at = |path: &str| format!("{root}/{path}");
    let folders = |path: &str| -> Vec<String> {
        let names = server.names(&at(path)).into_iter();
        names.filter(|name| server.at(&at(path)).join(name).is_dir()).collect()
    };
    assert_eq!(
        (folders(""), folders("tenants.slice")),
        (vec!["tenants.slice".into()], vec!["fw.service".into()])
    );
    assert_eq!(server.text(&at("tenants.slice/fw.service/cgroup.procs")), "5000000\n");
    assert_eq!(server.text(&at("tenants.slice/fw.service/cgroup.threads")), "5000000\n5000001\n5000002\n");
    assert_eq!(server.text(&at("tenants.slice/fw.service/cpuset.cpus")), "0-1,4\n");
    assert_eq!(server.text(&at("cgroup.procs")), "");
    assert_eq!(server.text(&at("cpuset.cpus.effective")), "0-17\n");
    assert!(!server.at(&at("cpuset.cpus")).exists(), "the root has none (cgroup-v2.rst)");
    server.run_to(30 * MS);
    assert_eq!(folders(""), ["system.slice", "tenants.slice"]);
    // systemd-escape: a space is \x20.
    assert_eq!(folders("tenants.slice"), ["fw.service", "scan\\x20a.service"]);
    assert_eq!(server.text(&at("system.slice/db/scan.scope/cgroup.procs")), "5000004\n");
    assert_eq!(server.text(&at("system.slice/db/cpuset.cpus.effective")), "0-17\n");
    assert_eq!(server.text(&at("system.slice/cgroup.controllers")), "cpuset cpu io memory pids\n");
    let open = File::open(server.at(&at("tenants.slice/scan\\x20a.service/cgroup.procs"))).unwrap();
    server.run_to(60 * MS);
    assert_eq!(folders("tenants.slice"), ["fw.service"]);
    assert_eq!((&open).read(&mut [0; 64]).unwrap_err().raw_os_error(), Some(libc::ENODEV));
    assert!(server.text("proc/mounts").contains(" /sys/fs/cgroup cgroup2 "));
}

#[test]
fn a_slice_that_systemd_would_put_elsewhere_is_refused() {
    let text = COMING_AND_GOING.replace("system.slice/db/scan.scope", "data-redis.slice/scan.scope");
    let source = ScenarioSource::parse("s", &format!("chip = \"gold-6140\"\n{text}"), None).unwrap();
    let why = source.read().unwrap_err().to_string();
    let wanted = "cgroup` is `data-redis.slice/scan.scope`; it must be the path that systemd makes: data-redis.slice is in \
                  data.slice";
    assert!(why.ends_with(wanted), "{why}");
}

#[test]
fn nothing_of_it_can_be_written_and_numbers_of_entries_are_their_own() {
    let server = Server::new(COMING_AND_GOING);
    for path in ["sys/fs/cgroup/cgroup.procs", "proc/5000000/comm", "sys/fs/cgroup/tenants.slice/cpuset.cpus"]
    {
        let error = fs::write(server.at(path), "1").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EACCES), "{path}");
    }
    let refused = fs::create_dir(server.at("sys/fs/cgroup/mine")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
    let directory =
        fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(server.at("proc/5000000"));
    assert_eq!(directory.unwrap().metadata().unwrap().nlink(), 3, "itself, its name, and task");
    let mut numbers = Vec::new();
    for path in
        ["proc", "proc/5000000", "proc/5000000/task/5000001", "sys/fs/cgroup", "sys/fs/cgroup/tenants.slice"]
    {
        numbers.push(server.at(path).metadata().unwrap().ino());
        for name in server.names(path) {
            numbers.push(server.at(path).join(name).metadata().unwrap().ino());
        }
    }
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    // Two directories are listed twice: by themselves and in the one above.
    assert_eq!(numbers.len(), count - 2);
}

impl Server {
    /// Writes to a file of resctrl, as one write.
    fn write(&self, path: &str, text: &str) -> Result<(), i32> {
        let path = self.at("sys/fs/resctrl").join(path);
        fs::write(path, text).map_err(|error| error.raw_os_error().unwrap_or(0))
    }

    /// The virtual pids of a group.
    fn tasks(&self, group: &str) -> Vec<u32> {
        let text = self.text(&format!("sys/fs/resctrl/{group}/tasks"));
        text.lines().map(|line| line.parse().unwrap()).filter(|pid| *pid >= 5_000_000).collect()
    }

    fn make(&self, group: &str) {
        fs::create_dir(self.at("sys/fs/resctrl").join(group)).unwrap();
    }

    fn remove(&self, group: &str) {
        fs::remove_dir(self.at("sys/fs/resctrl").join(group)).unwrap();
    }

    /// Class and RMID that a CPU has now (IA32_PQR_ASSOC).
    fn class(&self, cpu: usize) -> (u32, u32) {
        self.host.clock().with(|server| server.class(cpu)).unwrap()
    }
}

#[test]
fn a_task_takes_its_group_with_it_and_any_other_has_its_cpus() {
    let server = Server::new(COMING_AND_GOING);
    server.run_to(30 * MS);
    server.make("a");
    server.make("b");
    assert_eq!(server.tasks(""), [5_000_000, 5_000_001, 5_000_002, 5_000_003, 5_000_004]);
    server.write("a/tasks", "5000001").unwrap();
    server.write("a/tasks", "5000003\n").unwrap();
    assert_eq!(server.tasks("a"), [5_000_001, 5_000_003]);
    assert_eq!(server.tasks(""), [5_000_000, 5_000_002, 5_000_004]);
    assert_eq!([0, 1, 2, 3, 4].map(|cpu| server.class(cpu).0), [0, 1, 1, 0, 0]);
    // CPUs 0 to 2 are b's now: tasks with their own group keep its class.
    server.write("b/cpus_list", "0-2").unwrap();
    assert_eq!([0, 1, 2, 3, 4].map(|cpu| server.class(cpu).0), [2, 1, 1, 0, 0]);
    // The scan on CPU 2 exits: it leaves the list, the CPU has b's class, and the id is free.
    server.run_to(60 * MS);
    assert_eq!(server.tasks("a"), [5_000_001]);
    assert_eq!(server.class(2).0, 2);
    assert_eq!(server.write("a/tasks", "5000003"), Err(libc::ESRCH));
    assert_eq!(server.text("sys/fs/resctrl/info/last_cmd_status").lines().next(), Some("No task 5000003"));
    assert_eq!(server.write("a/tasks", "5000099"), Err(libc::ESRCH));
    // Without the group the thread has no class of its own, on a CPU of b.
    server.remove("a");
    assert_eq!(server.tasks(""), [5_000_000, 5_000_001, 5_000_002, 5_000_004]);
    assert_eq!(server.class(1).0, 2);
    server.remove("b");
    assert_eq!(server.class(1).0, 0);
}

#[test]
fn a_list_moves_all_threads_and_the_mask_confines_them() {
    let server = Server::new(COMING_AND_GOING);
    server.run_to(30 * MS);
    server.make("a");
    server.write("a/schemata", "L3:0=1\n").unwrap();
    server.write("a/tasks", "5000004").unwrap();
    server.run_to(200 * MS);
    let occupied = |group: &str| -> u64 {
        server
            .text(&format!("sys/fs/resctrl/{group}mon_data/mon_L3_00/llc_occupancy"))
            .trim()
            .parse()
            .unwrap()
    };
    // One of 11 ways of 24.75 MiB is 2.25 MiB; the scan has 4 MiB, of which 1 MiB stays in its MLC.
    let narrow = occupied("a/");
    assert!((1 << 20..=9 << 18).contains(&narrow), "{narrow}");
    server.write("a/schemata", "L3:0=7ff\n").unwrap();
    server.run_to(400 * MS);
    assert!(occupied("a/") > narrow + (1 << 19), "{narrow} to {}", occupied("a/"));
    server.write("a/tasks", "5000000,5000001,5000002\n").unwrap();
    assert_eq!(server.tasks("a"), [5_000_000, 5_000_001, 5_000_002, 5_000_004]);
    assert_eq!([0, 1, 3, 4].map(|cpu| server.class(cpu).0), [1; 4]);
}

#[test]
fn a_monitoring_group_has_the_rmid_and_the_class_of_its_parent() {
    let server = Server::new(COMING_AND_GOING);
    server.run_to(30 * MS);
    server.make("a");
    server.make("a/mon_groups/m");
    server.make("mon_groups/n");
    assert_eq!(server.write("a/mon_groups/m/tasks", "5000004"), Err(libc::EINVAL), "it is not in a");
    server.write("a/tasks", "5000004").unwrap();
    let (class, rmid) = server.class(3);
    server.write("a/mon_groups/m/tasks", "5000004").unwrap();
    assert_eq!((class, server.class(3).0), (1, 1));
    assert_ne!(server.class(3).1, rmid);
    assert_eq!((server.tasks("a"), server.tasks("a/mon_groups/m")), (vec![5_000_004], vec![5_000_004]));
    server.remove("a/mon_groups/m");
    assert_eq!((server.class(3), server.tasks("a")), ((class, rmid), vec![5_000_004]));
    // In a monitoring group below the default group the class stays that of the CPU.
    server.write("mon_groups/n/tasks", "5000000").unwrap();
    server.write("a/cpus_list", "0").unwrap();
    assert_eq!(server.class(0).0, 1);
    assert!(![0, rmid].contains(&server.class(0).1));
    let counted = server.text("sys/fs/resctrl/mon_groups/n/mon_data/mon_L3_00/mbm_total_bytes");
    server.run_to(60 * MS);
    let later = server.text("sys/fs/resctrl/mon_groups/n/mon_data/mon_L3_00/mbm_total_bytes");
    let number = |text: &str| text.trim().parse::<u64>().unwrap();
    assert!(number(&later) >= number(&counted));
    server.remove("mon_groups/n");
    assert_eq!(server.class(0), (1, rmid), "all of it is the CPU's again");
}
