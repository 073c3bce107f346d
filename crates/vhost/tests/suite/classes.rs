//! The devices of the mounted tree in `sys/class`, `sys/block` and `sys/dev`: every link leads to what it names.
//!
//! It needs root and /dev/fuse; without them it fails.

use crate::common;

use common::{SCENARIO, manual_clock, scenario};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use waykeeper_vhost::virtual_host::VirtualHost;

/// A mounted host, unmounted before its folder is removed.
struct Server {
    _host: VirtualHost,
    folder: TempDir,
}

impl Server {
    fn new(text: &str) -> Server {
        let folder = tempfile::tempdir().unwrap();
        assert!(rustix::process::geteuid().is_root(), "not run: needs root and /dev/fuse");
        let host = VirtualHost::mount(folder.path(), scenario("gold-6140", text), manual_clock(64))
            .unwrap_or_else(|error| panic!("not run: needs root and /dev/fuse: {error}"));
        Server { _host: host, folder }
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

    /// The PCI function of a device, by its path.
    fn function(&self, path: &str) -> String {
        let real = fs::canonicalize(self.at(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut functions =
            real.iter().filter_map(|part| part.to_str()).filter(|part| part.matches(':').count() == 2);
        functions.next_back().unwrap_or_default().to_owned()
    }
}

/// Every link below a directory.
fn links(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_symlink() {
            found.push(entry.path());
        } else if kind.is_dir() {
            links(&entry.path(), found);
        }
    }
}

#[test]
fn every_link_of_sysfs_leads_to_an_entry() {
    let server = Server::new(SCENARIO);
    let mut found = Vec::new();
    links(&server.at("sys"), &mut found);
    for link in &found {
        assert!(link.exists(), "{} -> {}", link.display(), fs::read_link(link).unwrap().display());
    }
    // Four drives: controller, generic device and disk each, and three ways to a disk.
    assert!(found.len() > 100, "{}", found.len());
}

#[test]
fn interfaces_drives_and_disks_are_in_their_classes() {
    let server = Server::new(SCENARIO);
    let drives =
        |prefix: &str, suffix: &str| (0..4).map(|n| format!("{prefix}{n}{suffix}")).collect::<Vec<_>>();
    assert_eq!(server.names("sys/class/net"), ["lo", "nic0"]);
    assert_eq!(server.names("sys/class/infiniband"), ["mlx5_0"]);
    assert_eq!(server.names("sys/class/nvme"), drives("nvme", ""));
    assert_eq!(server.names("sys/class/nvme-generic"), drives("ng", "n1"));
    assert_eq!(server.names("sys/class/nvme-subsystem"), drives("nvme-subsys", ""));
    for disks in ["sys/block", "sys/class/block"] {
        assert_eq!(server.names(disks), drives("nvme", "n1"));
    }
    for (path, function) in [
        ("sys/class/net/nic0", "0000:17:00.0"),
        ("sys/class/net/nic0/device", "0000:17:00.0"),
        ("sys/class/infiniband/mlx5_0", "0000:17:00.0"),
        ("sys/class/nvme/nvme2", "0000:62:00.0"),
        ("sys/class/nvme-generic/ng2n1", "0000:62:00.0"),
        ("sys/block/nvme2n1/device", "0000:62:00.0"),
        ("sys/class/nvme-subsystem/nvme-subsys2/nvme2", "0000:62:00.0"),
        ("sys/dev/block/1259:2", "0000:62:00.0"),
        ("sys/dev/char/1240:2", "0000:62:00.0"),
        ("sys/class/net/lo", ""),
    ] {
        assert_eq!(server.function(path), function, "{path}");
    }
    assert_eq!(server.text("sys/block/nvme2n1/dev"), "1259:2\n");
    assert_eq!(server.text("sys/class/nvme/nvme2/address"), "0000:62:00.0\n");
    assert_eq!(server.text("sys/class/net/nic0/device/sriov_numvfs"), "0\n");
    // A device number of the tree is none of this machine's: its majors are below 512.
    assert!(fs::metadata("/dev/null").unwrap().rdev() >> 8 < 512);
}

#[test]
fn a_nic_with_shares_has_a_virtual_function_for_each_workload() {
    let text = SCENARIO.replacen("cores = \"0-1\"", "cores = \"0-1\"\nshare = 2", 1)
        + "\n[[workload]]\nname = \"other\"\nprogram = \"l2fwd\"\ncores = \"4\"\n";
    let server = Server::new(&text);
    assert_eq!(server.names("sys/class/net"), ["lo", "nic0", "nic0v0", "nic0v1"]);
    let nic = "sys/bus/pci/devices/0000:17:00.0";
    assert_eq!(server.text(&format!("{nic}/sriov_numvfs")), "2\n");
    for (number, function) in [(0, "0000:17:00.1"), (1, "0000:17:00.2")] {
        assert_eq!(server.function(&format!("{nic}/virtfn{number}")), function);
        assert_eq!(server.function(&format!("sys/class/net/nic0v{number}")), function);
        assert_eq!(server.function(&format!("sys/bus/pci/devices/{function}/physfn")), "0000:17:00.0");
    }
    assert!(!server.at(&format!("{nic}/virtfn2")).exists());
}
