//! CPUs of the mounted tree that are switched off and on. It needs root and /dev/fuse; without them it fails.

use crate::common::{SCENARIO, manual_clock, scenario};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;
use waykeeper_vhost::virtual_host::{VirtualHost, VirtualHostOptions};

struct Server {
    folder: TempDir,
    _host: VirtualHost,
}

impl Server {
    fn new(chip: &str, text: &str) -> Server {
        let folder = TempDir::new().unwrap();
        let options = VirtualHostOptions { host_proc: None, ..manual_clock(16) };
        let host = VirtualHost::mount(folder.path(), scenario(chip, text), options);
        Server { _host: host.unwrap_or_else(|error| panic!("not run: {error}")), folder }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn cpu(&self, path: &str) -> String {
        self.text(&format!("sys/devices/system/cpu/{path}"))
    }

    fn switch(&self, cpu: u16, text: &str) -> std::io::Result<()> {
        fs::write(self.at(&format!("sys/devices/system/cpu/cpu{cpu}/online")), text)
    }
}

#[test]
fn an_offline_cpu_is_in_no_list_and_has_no_files_until_it_returns() {
    let server = Server::new("gold-6140", SCENARIO);
    let inode = |path: &str| fs::metadata(server.at(path)).map(|found| found.ino());
    let lists = || {
        [
            server.cpu("online"),
            server.cpu("offline"),
            server.cpu("present"),
            server.cpu("cpu0/topology/core_siblings_list"),
            server.cpu("cpu0/cache/index3/shared_cpu_list"),
            server.text("sys/devices/system/node/node0/cpulist"),
            server.text("sys/fs/resctrl/cpus_list"),
            server.text("sys/fs/cgroup/cpuset.cpus.effective"),
            server.text("sys/fs/cgroup/tenants.slice/l2fwd.service/cpuset.cpus"),
            server.text("sys/fs/cgroup/tenants.slice/l2fwd.service/cpuset.cpus.effective"),
        ]
    };
    let processors =
        || server.text("proc/cpuinfo").lines().filter(|line| line.starts_with("processor")).count();
    let all = lists();
    assert_eq!(all[0..3], ["0-17\n", "\n", "0-17\n"]);
    let topology = "sys/devices/system/cpu/cpu1/topology";
    let first = inode(topology).unwrap();
    let msr = File::options().read(true).write(true).open(server.at("dev/cpu/1/msr")).unwrap();
    msr.write_all_at(&0x43_00c0_u64.to_le_bytes(), 0x186).unwrap();
    let shared = File::open(server.at(&format!("{topology}/core_id"))).unwrap();
    let register = || {
        let mut bytes = [0; 8];
        msr.read_exact_at(&mut bytes, 0x186)
            .map(|()| u64::from_le_bytes(bytes))
            .map_err(|why| why.raw_os_error())
    };
    assert_eq!(register(), Ok(0x43_00c0));

    server.switch(1, "0\n").unwrap();
    assert_eq!(server.cpu("cpu1/online"), "0\n");
    assert_eq!(
        lists(),
        [
            "0,2-17\n", "1\n", "0-17\n", "0,2-17\n", "0,2-17\n", "0,2-17\n", "0,2-17\n", "0,2-17\n", "0-1\n",
            "0\n",
        ]
    );
    assert_eq!(processors(), 17);
    assert!(server.text("proc/cpuinfo").contains("siblings\t: 17\n"));
    for path in [topology, "sys/devices/system/cpu/cpu1/cache", "dev/cpu/1", "dev/cpu/1/msr"] {
        assert_eq!(inode(path).unwrap_err().kind(), ErrorKind::NotFound, "{path}");
    }
    let names = |path: &str| -> Vec<String> {
        let entries = fs::read_dir(server.at(path)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    assert!(!names("dev/cpu").contains(&"1".to_owned()));
    assert!(names("sys/devices/system/cpu/cpu1").contains(&"online".to_owned()));
    assert_eq!(register(), Err(Some(libc::ENXIO)));
    assert_eq!(shared.read_at(&mut [0; 8], 0).unwrap_err().raw_os_error(), Some(libc::ENODEV));

    server.switch(1, "1\n").unwrap();
    assert_eq!(lists(), all);
    assert_eq!(processors(), 18);
    assert_eq!(register(), Ok(0x43_00c0), "the open file works again, and the register has its value");
    assert_ne!(inode(topology).unwrap(), first, "the directory was made anew");
    assert_eq!(
        shared.read_at(&mut [0; 8], 0).unwrap_err().raw_os_error(),
        Some(libc::ENODEV),
        "it is another file"
    );
}

#[test]
fn the_switch_takes_what_the_kernel_takes() {
    let server = Server::new("gold-6140", SCENARIO);
    assert!(!server.at("sys/devices/system/cpu/cpu0/online").exists(), "CPU 0 cannot be switched off");
    for (text, online) in
        [("n", "0\n"), ("0", "0\n"), ("on\n", "1\n"), ("Y\n", "1\n"), ("off", "0\n"), ("1", "1\n")]
    {
        server.switch(3, text).unwrap();
        assert_eq!(server.cpu("cpu3/online"), online, "{text:?}");
    }
    for bad in ["2\n", "\n", "x"] {
        assert_eq!(server.switch(3, bad).unwrap_err().raw_os_error(), Some(libc::EINVAL), "{bad:?}");
    }
    assert_eq!(server.cpu("online"), "0-17\n");
    let path = server.at("sys/devices/system/cpu/cpu3/online");
    let script = format!("echo 0 > {}", path.display());
    let mut other = Command::new("setpriv");
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", &script]);
    assert!(!other.output().expect("not run: needs setpriv").status.success());
    assert_eq!(server.cpu("cpu3/online"), "1\n");
}

#[test]
fn groups_lose_an_offline_cpu_and_the_default_group_gets_it_back() {
    let server = Server::new("gold-6140", SCENARIO);
    let group = server.at("sys/fs/resctrl/g");
    fs::create_dir(&group).unwrap();
    fs::write(group.join("cpus_list"), "2-3\n").unwrap();
    server.switch(2, "0").unwrap();
    assert_eq!(server.text("sys/fs/resctrl/g/cpus_list"), "3\n");
    assert_eq!(server.text("sys/fs/resctrl/g/cpus"), "00008\n");
    assert_eq!(fs::write(group.join("cpus_list"), "2-3\n").unwrap_err().raw_os_error(), Some(libc::EINVAL));
    assert_eq!(server.text("sys/fs/resctrl/info/last_cmd_status"), "Can only assign online CPUs\n");
    server.switch(2, "1").unwrap();
    assert_eq!(server.text("sys/fs/resctrl/g/cpus_list"), "3\n");
    assert_eq!(server.text("sys/fs/resctrl/cpus_list"), "0-2,4-17\n");
}

#[test]
fn a_socket_without_an_online_cpu_has_none_in_its_node() {
    // A remote device brings a second package.
    let server = Server::new("gold-6140", &SCENARIO.replace("ring = 2048", "ring = 2048\nremote = true"));
    assert_eq!(server.text("sys/devices/system/node/has_cpu"), "0-1\n");
    (18..36).for_each(|cpu| server.switch(cpu, "0").unwrap());
    assert_eq!(server.text("sys/devices/system/node/has_cpu"), "0\n");
    assert_eq!(server.text("sys/devices/system/node/node1/cpulist"), "\n");
    assert_eq!(server.cpu("offline"), "18-35\n");
    server.switch(20, "1").unwrap();
    assert_eq!(server.cpu("cpu20/topology/package_cpus_list"), "20\n");
}
