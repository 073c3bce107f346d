//! A server larger than any chip of the model, as files: 128 cores, 64 tenants, fifteen classes.
//!
//! There is no simulation: its resctrl is the virtual host's with idle caches, and its registers are a table in which
//! a core's counters grow with a clock that the test advances. For the cost of sampling; the values do not matter.
//! Must not know what reads it.

use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tempfile::TempDir;
use waykeeper_host::{Priority, WorkloadKind};
use waykeeper_kernel::root::Root;
use waykeeper_linux_host::LinuxHostOptions;
use waykeeper_tenants::Tenant;
use waykeeper_units::CoreId;
use waykeeper_vhost::faults::Faults;
use waykeeper_vhost::host_tasks::HostTasks;
use waykeeper_vhost::mounted::Mounted;
use waykeeper_vhost::node::{Caller, File, Node, Tree};
use waykeeper_vhost::resctrl::VirtualResctrl;
use waykeeper_vhost::resctrl::description::{
    Cdp, Domain, IoAllocSupport, Kernel, L3Resource, MonitoringResource, ResctrlDescription,
};
use waykeeper_vhost::resctrl::hardware::Idle;

/// PerfSpect lists Granite Rapids with 128 cores.
const CORES: u16 = 128;
/// Each tenant has two cores.
const TENANTS: u16 = 64;
/// Size of the L3 in KiB, hardware.md 9.
const L3_KIB: u64 = 516_096;
/// hardware.md 3.4: bits 8:0 are the number of CHAs.
const CHA_COUNT: u64 = 0x3fed;
/// The time stamp counter, the programmable and the fixed counters of a core (Intel SDM 4, table 2-2).
const GROWING: [(u64, u64); 3] = [(0x10, 0x10), (0xc1, 0xc8), (0x309, 0x30b)];
/// Bits of a core's counter.
const COUNTER: u64 = (1 << 48) - 1;

/// The registers of all CPUs: the values written, and the clock.
#[derive(Default)]
struct Registers {
    written: BTreeMap<(u16, u64), u64>,
    now: u64,
}

/// The register file of one CPU; a register that was never written and does not count reads 0.
struct Cpu(Arc<Mutex<Registers>>, u16);

impl File for Cpu {
    fn read(&self, offset: u64, _: usize, _: Caller) -> Result<Vec<u8>, Errno> {
        let registers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let written = registers.written.get(&(self.1, offset)).copied().unwrap_or(0);
        let grows = GROWING.iter().any(|(first, last)| (*first..=*last).contains(&offset));
        // Every CPU and register grows at its own rate, so that tenants differ.
        let pace = 1 + (u64::from(self.1) * 31 + offset * 7) % 97;
        let value = if grows { (written + registers.now * pace / 97) & COUNTER } else { written };
        Ok(value.to_le_bytes().to_vec())
    }

    fn write(&self, offset: u64, data: &[u8], _: Caller) -> Result<usize, Errno> {
        let value = u64::from_le_bytes(data.try_into().map_err(|_| Errno::INVAL)?);
        let mut registers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        registers.written.insert((self.1, offset), value);
        Ok(data.len())
    }

    fn mode(&self) -> u32 {
        0o600
    }
}

/// The mounted server. It is unmounted when it is dropped.
pub struct LargeServer {
    registers: Arc<Mutex<Registers>>,
    mounted: Mounted,
    folder: TempDir,
    /// Counts the operations on its files and injects errors.
    pub faults: Faults,
}

impl LargeServer {
    /// Mounts it.
    ///
    /// # Panics
    /// Without root or /dev/fuse.
    #[expect(clippy::new_without_default, reason = "mounting is nothing to do by default")]
    pub fn new() -> LargeServer {
        let registers = Arc::new(Mutex::new(Registers::default()));
        let tree = tree(&registers);
        let folder = tempfile::tempdir().expect("a temporary directory");
        let mount = folder.path().join("host");
        std::fs::create_dir(&mount).expect("made");
        let faults = Faults::new();
        assert!(rustix::process::geteuid().is_root(), "not run: needs root and /dev/fuse");
        let mounted = Mounted::new(tree, &mount, faults.clone()).expect("not run: needs root and /dev/fuse");
        LargeServer { registers, mounted, folder, faults }
    }

    /// The tree's root, for `--root`.
    pub fn root(&self) -> PathBuf {
        self.mounted.path().to_owned()
    }

    /// A temporary folder for configuration and other files, removed with the server.
    pub fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// Options for a [`waykeeper_linux_host::LinuxHost`]: every tenant has two cores of its own and no devices.
    pub fn options(&self) -> LinuxHostOptions {
        let tenant = |index: u16| Tenant {
            name: format!("t{index}"),
            priority: if index.is_multiple_of(3) { Priority::High } else { Priority::Low },
            kind: WorkloadKind::NonIo,
            cores: vec![CoreId(2 * index), CoreId(2 * index + 1)].into(),
            pids: Vec::new(),
            devices: Vec::new(),
            stack: false,
            mask: None,
        };
        let root = Root::at(self.mounted.path());
        LinuxHostOptions::new(root, (0..TENANTS).map(tenant).collect(), self.folder.path().join("journal"))
    }

    /// Advances every core by at most this many cycles; most advance by fewer.
    pub fn pass(&self, cycles: u64) {
        self.registers.lock().unwrap_or_else(PoisonError::into_inner).now += cycles;
    }
}

fn tree(registers: &Arc<Mutex<Registers>>) -> Tree {
    let mut tree = Tree::new();
    let all = format!("0-{}\n", CORES - 1);
    let cpus = "sys/devices/system/cpu";
    for name in ["possible", "present", "online"] {
        tree.text(&format!("{cpus}/{name}"), all.clone());
    }
    let slices = ((0, CHA_COUNT), u64::from(CORES));
    registers.lock().unwrap_or_else(PoisonError::into_inner).written.extend([slices]);
    for cpu in 0..CORES {
        let folder = format!("{cpus}/cpu{cpu}");
        for (name, text) in [
            ("topology/physical_package_id", "0\n".to_owned()),
            ("topology/core_id", format!("{cpu}\n")),
            ("topology/thread_siblings_list", format!("{cpu}\n")),
            ("cache/index3/level", "3\n".to_owned()),
            ("cache/index3/size", format!("{L3_KIB}K\n")),
            ("cache/index3/id", "0\n".to_owned()),
            ("cache/index3/ways_of_associativity", "16\n".to_owned()),
            ("cache/index3/shared_cpu_list", all.clone()),
        ] {
            tree.text(&format!("{folder}/{name}"), text);
        }
        tree.file(&format!("dev/cpu/{cpu}/msr"), Cpu(registers.clone(), cpu));
    }
    // Granite Rapids: 16 ways (hardware.md 9), and as many classes.
    tree.text("proc/cpuinfo", "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 173\nstepping\t: 1\n");
    let monitoring = MonitoringResource {
        rmids: 512,
        unit_bytes: 65536,
        largest_threshold: u32::try_from(L3_KIB << 10).expect("half a GiB"),
        llc_occupancy: true,
        mbm_total: true,
        mbm_local: true,
        configurable: false,
    };
    let cache = L3Resource {
        cbm_bits: 16,
        shareable: 0,
        min_bits: 1,
        sparse: true,
        closids: 16,
        size_bytes: L3_KIB << 10,
        cdp: Cdp::Absent,
        io_alloc: IoAllocSupport::Absent,
    };
    let description = ResctrlDescription {
        kernel: Kernel(6, 12),
        possible_cpus: CORES.into(),
        domains: vec![Domain { id: 0, cpus: (0..CORES.into()).collect() }],
        l3: Some(cache),
        mb: None,
        smba: None,
        monitoring: Some(monitoring),
    };
    let resctrl = VirtualResctrl::new(description, Box::new(Idle), Box::new(HostTasks::new("/proc")));
    tree.add("sys/fs/resctrl", Node::Resctrl(resctrl.shared()));
    tree
}
