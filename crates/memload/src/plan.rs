//! The plan of a run: all of its options except the target.
//!
//! Must not know devices: whether a target supports a plan is checked when the run is prepared.

use std::time::Duration;
use waykeeper_load::{LoadLimits, MemoryDirection, Pattern};

/// Interface that sends commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineKind {
    /// NVMe commands through io_uring, on a namespace's generic device.
    NvmeUring,
    /// NVMe commands through the ioctl, one at a time per thread.
    NvmeIoctl,
    /// Reads and writes with O_DIRECT, through io_uring.
    Uring,
}

impl EngineKind {
    /// All engines, the best first.
    pub const ALL: [EngineKind; 3] = [EngineKind::NvmeUring, EngineKind::NvmeIoctl, EngineKind::Uring];

    /// Name in options.
    pub const fn name(self) -> &'static str {
        match self {
            EngineKind::NvmeUring => "nvme-uring",
            EngineKind::NvmeIoctl => "nvme-ioctl",
            EngineKind::Uring => "uring",
        }
    }
}

/// When the CPU reads the transferred data into its caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Touch {
    /// Never.
    #[default]
    Never,
    /// The whole buffer before the start.
    Once,
    /// The range of each command, before the command.
    Always,
}

/// Page size of the buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PageSize {
    /// The kernel's base pages.
    #[default]
    Base,
    /// 2 MiB, from the pool of huge pages.
    Huge2M,
    /// 1 GiB, from the pool of huge pages.
    Huge1G,
}

impl PageSize {
    /// Bytes of a page.
    pub const fn bytes(self) -> usize {
        match self {
            PageSize::Base => 4096,
            PageSize::Huge2M => 2 << 20,
            PageSize::Huge1G => 1 << 30,
        }
    }
}

/// A run.
#[derive(Clone, PartialEq, Debug)]
pub struct LoadPlan {
    /// Order in which commands access the buffer.
    pub pattern: Pattern,
    /// Direction of the data, as memory sees it.
    pub op: MemoryDirection,
    /// Mixed load: share of the commands for which the device reads memory, 0 to 1. `op` is ignored then.
    pub mixed: Option<f64>,
    /// Threads.
    pub workers: u32,
    /// Outstanding commands of each worker, at least 1.
    pub depth: u32,
    /// Bytes of a block; `None` is 4096, or the target's block size if that is larger.
    pub block_bytes: Option<u32>,
    /// Bytes of the buffer; `None` is 1000 blocks, as in the thesis.
    pub buffer_bytes: Option<u64>,
    /// Maximum blocks of a command; `None` is the device's limit, or 32 on a file.
    pub max_blocks: Option<u32>,
    /// Blocks from one packet slot to the next.
    pub stride: u32,
    /// Limit of bytes per second.
    pub limit_bytes: Option<f64>,
    /// Limit of commands per second.
    pub limit_commands: Option<f64>,
    /// Slots per second; the limits are divided among them.
    pub slots: u32,
    /// Later slots may use what earlier ones left, up to one second's worth.
    pub catch_up: bool,
    /// As nvme-memload: each command moves one block more than it counts, and each slot admits one more command.
    pub thesis: bool,
    /// The run ends after this time.
    pub time: Option<Duration>,
    /// The run ends after this many blocks.
    pub blocks: Option<u64>,
    /// The run ends after this many commands.
    pub commands: Option<u64>,
    /// When the CPU reads the data.
    pub touch: Touch,
    /// CPUs to which workers are pinned, in turn; empty for no pinning.
    pub cpus: Vec<u32>,
    /// The NUMA node of the buffer.
    pub numa: Option<u32>,
    /// The buffer's pages.
    pub pages: PageSize,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Interface that sends commands; `None` is the best for the target.
    pub engine: Option<EngineKind>,
    /// Verify after the run that the data was transferred.
    pub verify: bool,
    /// Log the time and latency of each command: 48 bytes of memory each.
    pub log: bool,
}

impl Default for LoadPlan {
    fn default() -> LoadPlan {
        LoadPlan {
            pattern: Pattern::Random,
            op: MemoryDirection::Write,
            mixed: None,
            workers: 1,
            depth: 1,
            block_bytes: None,
            buffer_bytes: None,
            max_blocks: None,
            stride: 1,
            limit_bytes: None,
            limit_commands: None,
            slots: LoadLimits::NONE.slots,
            catch_up: false,
            thesis: false,
            time: None,
            blocks: None,
            commands: None,
            touch: Touch::Never,
            cpus: Vec::new(),
            numa: None,
            pages: PageSize::Base,
            seed: 1,
            engine: None,
            verify: false,
            log: false,
        }
    }
}

impl LoadPlan {
    /// True if commands change what is stored.
    pub const fn writes(&self) -> bool {
        self.pattern.moves() && (matches!(self.op, MemoryDirection::Read) || self.mixed.is_some())
    }

    /// True if commands read what is stored.
    pub const fn reads(&self) -> bool {
        self.pattern.moves() && (matches!(self.op, MemoryDirection::Write) || self.mixed.is_some())
    }
}
