//! Facts that all checks need: CPU, topology, and what the kernel offers. Read once.
//!
//! Facts are independent: one that cannot be read does not affect the others. Must not know how they are judged.

use super::access::{self, Lockdown};
use super::allocation::{self, Mount};
use super::file;
use rustix::thread::CapabilitySet;
use waykeeper_generations::{Erratum, ErratumKind, Generation, Signature, Vendor};
use waykeeper_kernel::cpuinfo::CpuIdentity;
use waykeeper_kernel::event_source;
use waykeeper_kernel::msr::{Allowed, MsrDevice, MsrError};
use waykeeper_kernel::resctrl::Resctrl;
use waykeeper_kernel::root::{FileError, Root};
use waykeeper_kernel::topology::Topology;
use waykeeper_units::CoreId;

/// IA32_TIME_STAMP_COUNTER (SDM vol. 4): every x86 CPU has it, and reading it has no effect.
const TSC: u32 = 0x10;

/// The facts.
pub(super) struct Facts<'a> {
    /// The root of the host's files.
    pub root: &'a Root,
    /// Both sources of the CPU's identity.
    pub cpu: CpuIdentity,
    /// Sockets, cores, caches.
    pub topology: Result<Topology, FileError>,
    /// The generation, if a table describes it.
    pub generation: Option<&'static Generation>,
    /// Whether the host is a virtual machine; `None` if neither CPUID nor cpuinfo reports it.
    pub is_virtual: Option<bool>,
    /// Whether MSRs can be read.
    pub msr: Result<(), MsrError>,
    /// What the msr driver says of writes; `None` if it has no such parameter.
    pub allow_writes: Result<Option<String>, String>,
    /// The mount of resctrl.
    pub mount: Mount,
    /// Whether that mount refuses every write.
    pub is_read_only: bool,
    /// The state of kernel lockdown.
    pub lockdown: Lockdown,
    /// Names of perf's event sources.
    pub event_sources: Result<Vec<String>, FileError>,
    /// Whether this process may count whole CPUs regardless of perf_event_paranoid.
    pub may_perf: bool,
}

impl<'a> Facts<'a> {
    /// Reads all facts.
    pub fn read(root: &'a Root) -> Facts<'a> {
        let topology = Topology::read(root);
        let first =
            topology.as_ref().ok().and_then(|topology| topology.online().next()).map_or(0, |(id, _)| id.0);
        let cpu = CpuIdentity::read(root, first);
        Facts {
            root,
            generation: cpu.generation(),
            is_virtual: cpu.is_virtual(),
            msr: MsrDevice::open(root, first, Allowed::nothing()).and_then(|msr| msr.read(TSC)).map(drop),
            allow_writes: file::line(root, "sys/module/msr/parameters/allow_writes"),
            mount: allocation::mount(root),
            is_read_only: Resctrl::is_read_only(root),
            lockdown: access::lockdown_of(
                file::line(root, "sys/kernel/security/lockdown"),
                !root.list_existing("sys/kernel/security").is_ok_and(|names| names.is_empty()),
            ),
            event_sources: event_source::names(root),
            may_perf: rustix::thread::capabilities(None).is_ok_and(|sets| {
                sets.effective.intersects(CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN)
            }),
            cpu,
            topology,
        }
    }

    /// Vendor, family, model, stepping.
    pub fn signature(&self) -> Option<Signature> {
        self.cpu.signature()
    }

    /// The CPU's vendor.
    pub fn vendor(&self) -> Option<Vendor> {
        self.signature().map(|signature| signature.vendor)
    }

    /// Whether `/proc/cpuinfo` lists a feature.
    pub fn has_flag(&self, flag: &str) -> bool {
        self.cpu.cpuinfo.as_ref().is_ok_and(|cpu| cpu.has(flag))
    }

    /// A known deviation of this CPU from the manual.
    pub fn erratum(&self, kind: ErratumKind) -> Option<&'static Erratum> {
        self.generation?.erratum(kind, &self.signature()?)
    }

    /// True for a virtual machine without the msr driver: loading it would show none of the cache's registers.
    pub fn has_no_registers(&self) -> bool {
        self.is_virtual == Some(true) && matches!(self.msr, Err(MsrError::NoModule { .. }))
    }

    /// Whether the tree has sysfs. Without it what is not there is not known.
    pub fn has_sysfs(&self) -> bool {
        self.root.exists("sys/bus")
    }

    /// Whether the tree has device files. Without them what is not there is not known.
    pub fn has_devices(&self) -> bool {
        self.root.exists("dev")
    }

    /// Whether the tree has procfs. Without it what is not there is not known.
    pub fn has_procfs(&self) -> bool {
        self.root.exists("proc/sys/kernel")
    }

    /// Words to add where a hypervisor may hide something.
    pub fn behind_a_hypervisor(&self) -> &'static str {
        if self.is_virtual == Some(true) { " (hidden by the hypervisor, or not there)" } else { "" }
    }

    /// The first online CPU.
    pub fn first_cpu(&self) -> Option<CoreId> {
        self.topology.as_ref().ok()?.online().next().map(|(id, _)| id)
    }

    /// Perf's source of core counters. A CPU without a table may have it by any of the kernel's names: `cpu`, `cpu_core`,
    /// `armv8_pmuv3_0`.
    pub fn core_pmu(&self) -> Option<&str> {
        let is_own = |source: &&String| match self.generation {
            Some(generation) => **source == generation.core.perf,
            None => *source == "cpu" || source.starts_with("cpu_") || source.starts_with("armv"),
        };
        self.event_sources.as_ref().ok()?.iter().find(is_own).map(String::as_str)
    }

    /// Reads an MSR of a CPU; the error is a text.
    pub fn read_msr(&self, cpu: CoreId, address: u32) -> Result<u64, String> {
        let msr = MsrDevice::open(self.root, cpu.0, Allowed::nothing());
        msr.and_then(|msr| msr.read(address)).map_err(|error| error.to_string())
    }
}
