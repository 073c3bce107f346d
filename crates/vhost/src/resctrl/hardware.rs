//! The interface between resctrl and the machine: registers for masks and bandwidth, the class of each CPU and task,
//! counters by RMID.
//!
//! Only the state machine of resctrl calls it. It must not know groups, files or texts.

/// Which lines a mask applies to (Intel's Code and Data Prioritization splits a class in two).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MaskedLines {
    /// CDP is off: one mask for all lines, register 0xC90 + class.
    All,
    /// CDP is on: data, register 0xC90 + 2 × class (Intel SDM vol. 3, hardware.md 7.5).
    Data,
    /// CDP is on: code, register 0xC90 + 2 × class + 1.
    Code,
}

/// Which traffic a bandwidth value limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LimitedTraffic {
    /// `MB`: to memory; percent on Intel, eighths of GB/s on AMD.
    Memory,
    /// `SMBA` (AMD): to slow memory behind CXL, eighths of GB/s.
    SlowMemory,
}

/// What a monitoring register counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RmidEvent {
    /// `llc_occupancy`: bytes in the L3 now.
    LlcOccupancy,
    /// `mbm_total_bytes`: bytes from and to all memory since the machine started.
    MbmTotalBytes,
    /// `mbm_local_bytes`: the same for the memory of the own package.
    MbmLocalBytes,
}

/// The value of a monitoring register (IA32_QM_CTR, 0xC8E).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Monitored {
    /// Bytes.
    Value(u64),
    /// Bit 62: nothing counted for this RMID yet; resctrl shows `Unavailable`.
    Unavailable,
    /// Bit 63: RMID or event refused; resctrl shows `Error`.
    Error,
}

/// The machine under resctrl. Domains have resctrl's ids (the ids of the L3 caches), CPUs the kernel's numbers.
///
/// At the start resctrl sets every class to the full mask and the most bandwidth and every CPU to class 0 and RMID 0.
/// Later it calls only for changes: a mask that it believes is set is not written again (hardware.md 7.3), so a mask
/// that another program wrote to the registers stays.
pub trait Hardware: Send {
    /// A class's mask in one domain. `closid` counts halves of the registers with CDP.
    fn set_mask(&mut self, domain: u32, closid: u32, lines: MaskedLines, mask: u64);

    /// A class's bandwidth in one domain, in the unit of the schemata file.
    fn set_bandwidth(&mut self, domain: u32, closid: u32, traffic: LimitedTraffic, value: u32);

    /// Class and RMID of tasks without a class of their own on this CPU (IA32_PQR_ASSOC, 0xC8F).
    fn set_cpu(&mut self, cpu: u32, closid: u32, rmid: u32);

    /// Class and RMID of a task; class 0 means the CPU's class, RMID 0 the CPU's RMID.
    fn set_task(&mut self, task: u32, closid: u32, rmid: u32);

    /// Devices write into the ways of this class from now on (AMD SDCIAE, hardware.md 8.1); `None`: of no class.
    fn set_io_alloc(&mut self, closid: Option<u32>);

    /// Which kinds of traffic an MBM event counts in one domain (AMD BMEC; MSR 0xC0000400 + event).
    fn set_event_kinds(&mut self, domain: u32, event: RmidEvent, kinds: u32);

    /// The register's value for one RMID in one domain. resctrl never resets it: it subtracts the count from before a
    /// group got its RMID.
    fn monitor(&mut self, domain: u32, rmid: u32, event: RmidEvent) -> Monitored;
}

/// A machine on which nothing runs: all counters are 0 and settings have no effect, as in the recordings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Idle;

impl Hardware for Idle {
    fn set_mask(&mut self, _: u32, _: u32, _: MaskedLines, _: u64) {}

    fn set_bandwidth(&mut self, _: u32, _: u32, _: LimitedTraffic, _: u32) {}

    fn set_cpu(&mut self, _: u32, _: u32, _: u32) {}

    fn set_task(&mut self, _: u32, _: u32, _: u32) {}

    fn set_io_alloc(&mut self, _: Option<u32>) {}

    fn set_event_kinds(&mut self, _: u32, _: RmidEvent, _: u32) {}

    fn monitor(&mut self, _: u32, _: u32, _: RmidEvent) -> Monitored {
        Monitored::Value(0)
    }
}
