//! A Skylake server as plain files: enough for code that reads and writes single files, without a server behind it.
//!
//! Plain files take any write, also one that a kernel would refuse, so tests may only look at what was read and
//! written. The msr files are sparse: registers whose numbers differ by eight or more do not overlap.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

/// Two sockets of two cores with two threads each; LLC of 11 ways.
pub const CPUS: u16 = 8;
/// The register of the DDIO ways.
pub const DDIO_WAYS: u64 = 0xc8b;
/// A root port with a NIC of two ports behind it.
pub const NIC_PORT: &str = "0000:3a:00.0";
/// The other root port, with a disk behind it.
pub const SSD_PORT: &str = "0000:85:00.0";

/// The tree, removed when dropped.
pub struct PlainTree {
    folder: tempfile::TempDir,
}

impl PlainTree {
    /// A Gold 6140 with all features.
    pub fn skylake() -> PlainTree {
        PlainTree::of(85, 4, "Intel(R) Xeon(R) Gold 6140 CPU @ 2.30GHz", 11)
    }

    /// The same files for another CPU model.
    pub fn of(model: u8, stepping: u8, brand: &str, ways: u32) -> PlainTree {
        let tree = PlainTree { folder: tempfile::tempdir().unwrap() };
        tree.write("proc/sys/kernel/osrelease", "6.12.117\n");
        tree.write("proc/sys/kernel/perf_event_paranoid", "2\n");
        tree.write("proc/sys/kernel/nmi_watchdog", "1\n");
        tree.write("proc/filesystems", "nodev\tsysfs\nnodev\tresctrl\n\text4\n");
        tree.write("sys/kernel/security/lockdown", "[none] integrity confidentiality\n");
        tree.write("sys/module/msr/parameters/allow_writes", "default\n");
        for list in ["online", "present", "possible"] {
            tree.write(&format!("sys/devices/system/cpu/{list}"), "0-7\n");
        }
        for node in 0..2 {
            let cpus = if node == 0 { "0-1,4-5\n" } else { "2-3,6-7\n" };
            tree.write(&format!("sys/devices/system/node/node{node}/cpulist"), cpus);
        }
        let mut cpuinfo = String::new();
        for cpu in 0..CPUS {
            cpuinfo += &format!(
                "processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: {model}\nmodel name\t: {brand}\n\
                 stepping\t: {stepping}\nflags\t\t: msr cat_l3 cdp_l3 mba rdt_a cqm cqm_llc cqm_occup_llc cqm_mbm_total cqm_mbm_local\n\n"
            );
            tree.cpu(cpu, ways);
        }
        tree.write("proc/cpuinfo", &cpuinfo);
        for pmu in ["cpu", "uncore_cha_0", "uncore_cha_1", "uncore_iio_0", "uncore_imc_0"] {
            tree.write(&format!("sys/bus/event_source/devices/{pmu}/type"), "4\n");
        }
        tree.resctrl((1 << ways) - 1, 3 << (ways - 2));
        tree.port(
            NIC_PORT,
            0,
            &[("0000:3b:00.0", "0x020000", "net/ens1f0"), ("0000:3b:00.1", "0x020000", "net/ens1f1")],
        );
        tree.port(SSD_PORT, 1, &[("0000:86:00.0", "0x010802", "nvme/nvme0")]);
        tree
    }

    fn cpu(&self, cpu: u16, ways: u32) {
        let socket = cpu / 2 % 2;
        let folder = format!("sys/devices/system/cpu/cpu{cpu}");
        let write = |file: &str, text: String| self.write(&format!("{folder}/{file}"), &format!("{text}\n"));
        write("topology/physical_package_id", socket.to_string());
        write("topology/core_id", (cpu % 2).to_string());
        write("topology/thread_siblings_list", format!("{},{}", cpu % 4, cpu % 4 + 4));
        write("cache/index3/level", "3".to_owned());
        write("cache/index3/type", "Unified".to_owned());
        write("cache/index3/id", socket.to_string());
        write("cache/index3/size", "25344K".to_owned());
        write("cache/index3/ways_of_associativity", ways.to_string());
        write("cache/index3/shared_cpu_list", if socket == 0 { "0-1,4-5" } else { "2-3,6-7" }.to_owned());
        let msr = self.create(&format!("dev/cpu/{cpu}/msr"));
        msr.set_len(0x4000).unwrap();
        let power_on: u64 = 3 << (ways - 2);
        msr.write_all_at(&power_on.to_le_bytes(), DDIO_WAYS).unwrap();
    }

    fn resctrl(&self, all: u32, shareable: u32) {
        let write =
            |file: &str, text: String| self.write(&format!("sys/fs/resctrl/{file}"), &format!("{text}\n"));
        write("info/L3/cbm_mask", format!("{all:x}"));
        write("info/L3/min_cbm_bits", "1".to_owned());
        write("info/L3/num_closids", "16".to_owned());
        write("info/L3/shareable_bits", format!("{shareable:x}"));
        write("info/L3_MON/mon_features", "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes".to_owned());
        write("info/L3_MON/num_rmids", "144".to_owned());
        write("info/MB/num_closids", "8".to_owned());
        write("info/MB/min_bandwidth", "10".to_owned());
        write("info/MB/bandwidth_gran", "10".to_owned());
        write("info/last_cmd_status", "ok".to_owned());
        write("schemata", format!("    MB:0=100;1=100\n    L3:0={all:x};1={all:x}"));
        write("tasks", String::new());
    }

    /// A root port and the devices behind it: address, class, and the interface with its kind.
    fn port(&self, port: &str, node: u8, devices: &[(&str, &str, &str)]) {
        let above = format!("sys/devices/pci{}/{port}", &port[..7]);
        self.function(&above, "0x2030", "0x060400", node);
        // The configuration space of 8086:2030: a bridge (header type 1) with a PCI Express capability at 0x40 of type
        // root port (4), a last extended capability at 0x100, and perfctrlsts_0 at 0x180 with bit 7 set.
        let config = self.create(&format!("{above}/config"));
        config.set_len(4096).unwrap();
        let bytes: [(u64, u8); 13] = [
            (0x00, 0x86),
            (0x01, 0x80),
            (0x02, 0x30),
            (0x03, 0x20),
            (0x06, 0x10),
            (0x0e, 0x01),
            (0x34, 0x40),
            (0x40, 0x10),
            (0x42, 0x42),
            (0x100, 0x01),
            (0x102, 0x01),
            (0x180, 0x84),
            (0x19, 1),
        ];
        for (offset, byte) in bytes {
            config.write_all_at(&[byte], offset).unwrap();
        }
        symlink(format!("../../../devices/pci{}/{port}", &port[..7]), self.bus().join(port)).unwrap();
        for (address, class, interface) in devices {
            let folder = format!("{above}/{address}");
            self.function(&folder, "0x1583", class, node);
            fs::create_dir_all(self.path(&format!("{folder}/{interface}"))).unwrap();
            let config = self.create(&format!("{folder}/config"));
            config.set_len(4096).unwrap();
            symlink(format!("../../../devices/pci{}/{port}/{address}", &port[..7]), self.bus().join(address))
                .unwrap();
            let (kind, name) = interface.split_once('/').unwrap();
            let class = self.path(&format!("sys/class/{kind}"));
            fs::create_dir_all(&class).unwrap();
            symlink(format!("../../../{folder}/{interface}"), class.join(name)).unwrap();
        }
    }

    fn function(&self, folder: &str, device: &str, class: &str, node: u8) {
        for (file, text) in
            [("vendor", "0x8086"), ("device", device), ("class", class), ("numa_node", &node.to_string())]
        {
            self.write(&format!("{folder}/{file}"), &format!("{text}\n"));
        }
    }

    fn bus(&self) -> PathBuf {
        let bus = self.path("sys/bus/pci/devices");
        fs::create_dir_all(&bus).unwrap();
        bus
    }

    /// The directory of the tree.
    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    /// The path of a file of the tree.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    /// Writes a file, with its directories.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn create(&self, path: &str) -> File {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        File::options().write(true).create(true).truncate(true).open(path).unwrap()
    }

    /// Removes a file or a directory with its content.
    pub fn remove(&self, path: &str) {
        let path = self.path(path);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
    }

    /// The value of a CPU's register.
    pub fn msr(&self, cpu: u16, register: u64) -> u64 {
        let mut bytes = [0; 8];
        File::open(self.path(&format!("dev/cpu/{cpu}/msr")))
            .unwrap()
            .read_exact_at(&mut bytes, register)
            .unwrap();
        u64::from_le_bytes(bytes)
    }

    /// Sets a CPU's register.
    pub fn set_msr(&self, cpu: u16, register: u64, value: u64) {
        let msr = File::options().write(true).open(self.path(&format!("dev/cpu/{cpu}/msr"))).unwrap();
        msr.write_all_at(&value.to_le_bytes(), register).unwrap();
    }

    /// A byte of a device's config space.
    pub fn config(&self, device: &str, offset: u64) -> u8 {
        let mut byte = [0];
        let path = self.path(&format!("sys/bus/pci/devices/{device}/config"));
        File::open(path).unwrap().read_exact_at(&mut byte, offset).unwrap();
        byte[0]
    }

    /// Sets a byte of a device's config space.
    pub fn set_config(&self, device: &str, offset: u64, byte: u8) {
        let path = self.path(&format!("sys/bus/pci/devices/{device}/config"));
        File::options().write(true).open(path).unwrap().write_all_at(&[byte], offset).unwrap();
    }

    /// Every file of the tree: its path and content.
    pub fn files(&self) -> Vec<(String, Vec<u8>)> {
        let mut found = Vec::new();
        let mut folders = vec![self.root().to_path_buf()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap() {
                let entry = entry.unwrap();
                let kind = entry.file_type().unwrap();
                if kind.is_dir() {
                    folders.push(entry.path());
                } else if kind.is_file() {
                    let path = entry.path();
                    let name = path.strip_prefix(self.root()).unwrap().display().to_string();
                    found.push((name, fs::read(&path).unwrap()));
                }
            }
        }
        found.sort();
        found
    }
}
