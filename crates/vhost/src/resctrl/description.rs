//! What the kernel found on the machine: everything by which one host's resctrl differs from another's.
//!
//! Plain data. It must not know where the values come from (a generation's table, CPUID) nor what is done with them.

/// A kernel release: resctrl's manners differ by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kernel(pub u32, pub u32);

/// Recorded are 6.1, which has none of these, and 6.12, which has all; the releases between are those of the kernel's
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
    /// First that takes the CLOSID before the RMID at mkdir (`mkdir_rdt_prepare_rmid_alloc`).
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

/// Ways for devices by a class of their own (AMD SDCIAE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoAlloc {
    /// The kernel is too old for the files.
    Absent,
    /// The kernel has the files, the chip lacks the feature: `not supported`.
    Unsupported,
    /// Both.
    Supported,
}

/// The L3 as an allocation resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
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
    /// Code and data apart.
    pub cdp: Cdp,
    /// Ways for devices.
    pub io_alloc: IoAlloc,
}

impl Cache {
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
    /// Highest value and the value of a new group.
    pub max: u32,
    /// `bandwidth_gran`: what is written is rounded up to it.
    pub gran: u32,
    /// `delay_linear`.
    pub linear: bool,
    /// Digits that the kernel keeps free in schemata (linux core.c: `data_width`).
    pub width: usize,
    /// `thread_throttle_mode`, where there is such a file.
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
pub struct Monitoring {
    /// `num_rmids`.
    pub rmids: u32,
    /// Bytes per count of the occupancy register (CPUID 0xF.1 EBX).
    pub unit_bytes: u32,
    /// Highest `max_threshold_occupancy`: the cache size that the kernel knows of its boot CPU (on AMD its L2's).
    pub largest_threshold: u32,
    /// Whether there is `llc_occupancy`.
    pub llc_occupancy: bool,
    /// Whether there is `mbm_total_bytes`.
    pub mbm_total: bool,
    /// Whether there is `mbm_local_bytes`.
    pub mbm_local: bool,
    /// Whether MBM events can be configured (AMD BMEC): `mbm_*_bytes_config`.
    pub configurable: bool,
}

/// An L3 cache and the CPUs on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Id of the cache; ids may have gaps.
    pub id: u32,
    /// Its online CPUs.
    pub cpus: Vec<u32>,
}

/// A host, as its resctrl shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Whose manners.
    pub kernel: Kernel,
    /// Possible CPUs: 0 to this, without it. At least 1.
    pub possible_cpus: u32,
    /// Domains by rising id. CPUs in none are offline.
    pub domains: Vec<Domain>,
    /// L3 allocation, if any.
    pub l3: Option<Cache>,
    /// `MB`, if any.
    pub mb: Option<Bandwidth>,
    /// `SMBA` (AMD), if any; shown from [`Kernel::SLOW_MEMORY`] on.
    pub smba: Option<Bandwidth>,
    /// Monitoring, if any.
    pub monitoring: Option<Monitoring>,
}
