//! What the kernel found on the machine: everything by which one host's resctrl differs from another's.
//!
//! Plain data. It must not know the source of the values (a generation's table, CPUID) or their use.

/// A kernel release: resctrl's behaviour depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kernel(pub u32, pub u32);

/// Recorded are 6.1, which has none of these, and 6.12, which has all; the releases between are from the kernel's
/// change logs.
impl Kernel {
    /// First with SMBA and with `mbm_*_bytes_config`.
    pub const SLOW_MEMORY: Kernel = Kernel(6, 3);
    /// First with monitoring groups that can be renamed.
    pub const RENAMES: Kernel = Kernel(6, 5);
    /// First with a comma list in `tasks`.
    pub const TASK_LISTS: Kernel = Kernel(6, 7);
    /// First with `sparse_masks` (hardware.md 7.1).
    pub const SPARSE_MASKS: Kernel = Kernel(6, 7);
    /// First that allocates the CLOSID before the RMID at mkdir (`mkdir_rdt_prepare_rmid_alloc`).
    pub const CLOSID_FIRST: Kernel = Kernel(6, 9);
}

/// Code and Data Prioritization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cdp {
    /// The chip has none.
    Absent,
    /// The chip has it; resctrl is mounted without `-o cdp`.
    Off,
    /// Mounted with `-o cdp`: `L3CODE` and `L3DATA`, half as many classes.
    On,
}

/// Ways for devices through a separate class (AMD SDCIAE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoAllocSupport {
    /// The kernel is too old for the files.
    Absent,
    /// The kernel has the files, the chip lacks the feature: `not supported`.
    Unsupported,
    /// Kernel and chip have it.
    Supported,
}

/// The L3 as an allocation resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct L3Resource {
    /// Bits of a mask = ways. At most 32.
    pub cbm_bits: u32,
    /// `shareable_bits`: ways that devices also write to.
    pub shareable: u64,
    /// `min_cbm_bits`; 0 on AMD, where a mask may be empty.
    pub min_bits: u32,
    /// Whether masks may have holes.
    pub sparse: bool,
    /// Classes without CDP.
    pub closids: u32,
    /// Size of one domain's cache in bytes.
    pub size_bytes: u64,
    /// Whether code and data have separate masks.
    pub cdp: Cdp,
    /// Ways for devices.
    pub io_alloc: IoAllocSupport,
}

impl L3Resource {
    /// All ways (`cbm_mask`).
    pub fn full(&self) -> u64 {
        (1u64 << self.cbm_bits) - 1
    }
}

/// Bandwidth as an allocation resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    /// `num_closids`.
    pub closids: u32,
    /// `min_bandwidth`.
    pub min: u32,
    /// The highest value, which is also that of a new group.
    pub max: u32,
    /// `bandwidth_gran`: written values are rounded up to a multiple.
    pub gran: u32,
    /// `delay_linear`.
    pub linear: bool,
    /// Width of values in schemata (linux core.c: `data_width`).
    pub width: usize,
    /// `thread_throttle_mode`, if the file exists.
    pub throttle: Option<ThrottleMode>,
}

/// How threads of one core with different values are throttled (hardware.md 7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottleMode {
    /// The core gets the larger delay.
    Max,
    /// Each thread gets its own.
    PerThread,
}

impl Bandwidth {
    /// Intel's MBA: 10 to 100 percent in steps of 10 (recorded).
    pub fn intel(closids: u32) -> Self {
        let throttle = Some(ThrottleMode::Max);
        Bandwidth { closids, min: 10, max: 100, gran: 10, linear: true, width: 3, throttle }
    }

    /// AMD's: 0 to 2048 eighths of GB/s (recorded; linux core.c: `MAX_MBA_BW_AMD`).
    pub fn amd(closids: u32) -> Self {
        Bandwidth { closids, min: 0, max: 2048, gran: 1, linear: false, width: 4, throttle: None }
    }
}

/// What can be monitored per RMID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonitoringResource {
    /// `num_rmids`.
    pub rmids: u32,
    /// Bytes per count of the occupancy register (CPUID 0xF.1 EBX).
    pub unit_bytes: u32,
    /// Highest `max_threshold_occupancy`: the size of the boot CPU's cache as the kernel knows it (on AMD that of the
    /// L2).
    pub largest_threshold: u32,
    /// Whether `llc_occupancy` exists.
    pub llc_occupancy: bool,
    /// Whether `mbm_total_bytes` exists.
    pub mbm_total: bool,
    /// Whether `mbm_local_bytes` exists.
    pub mbm_local: bool,
    /// Whether MBM events can be configured (AMD BMEC): `mbm_*_bytes_config`.
    pub configurable: bool,
}

/// An L3 cache and its CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Id of the cache; ids may have gaps.
    pub id: u32,
    /// Its online CPUs.
    pub cpus: Vec<u32>,
}

/// A host as its resctrl shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResctrlDescription {
    /// The kernel release.
    pub kernel: Kernel,
    /// Number of possible CPUs, which are numbered from 0. At least 1.
    pub possible_cpus: u32,
    /// Domains in rising order of ids. CPUs in none are offline.
    pub domains: Vec<Domain>,
    /// L3 allocation, if any.
    pub l3: Option<L3Resource>,
    /// `MB`, if any.
    pub mb: Option<Bandwidth>,
    /// `SMBA` (AMD), if any; shown from [`Kernel::SLOW_MEMORY`] on.
    pub smba: Option<Bandwidth>,
    /// Monitoring, if any.
    pub monitoring: Option<MonitoringResource>,
}
