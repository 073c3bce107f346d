//! What load to make: everything a run is told, apart from where.
//!
//! Knows words, not devices: what a target can do with a plan is found when the run is prepared.

use std::time::Duration;
use waykeeper_load::{Limits, Pattern, Toward};

/// What carries commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineKind {
    /// NVMe commands through io_uring, on a namespace's generic device.
    NvmeUring,
    /// NVMe commands through the ioctl, one at a time per thread.
    NvmeIoctl,
    /// Reads and writes past the page cache, through io_uring.
    Uring,
}

impl EngineKind {
    /// All, best first.
    pub const ALL: [EngineKind; 3] = [EngineKind::NvmeUring, EngineKind::NvmeIoctl, EngineKind::Uring];

    /// The name people select it by.
    pub const fn name(self) -> &'static str {
        match self {
            EngineKind::NvmeUring => "nvme-uring",
            EngineKind::NvmeIoctl => "nvme-ioctl",
            EngineKind::Uring => "uring",
        }
    }
}

/// When the CPU reads what is transferred, so that it lies in its caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Touch {
    /// Not at all.
    #[default]
    Never,
    /// The whole buffer before the start.
    Once,
    /// What a command is about to move, before each command.
    Always,
}

/// What pages the buffer lies on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pages {
    /// The kernel's usual ones.
    #[default]
    Base,
    /// 2 MiB, out of the pool of the administrator.
    Huge2M,
    /// 1 GiB.
    Huge1G,
}

impl Pages {
    /// Bytes of a page.
    pub const fn bytes(self) -> usize {
        match self {
            Pages::Base => 4096,
            Pages::Huge2M => 2 << 20,
            Pages::Huge1G => 1 << 30,
        }
    }
}

/// A run.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// How commands go over the buffer.
    pub pattern: Pattern,
    /// Which way data goes, as memory sees it.
    pub op: Toward,
    /// Part of the commands for which the device reads memory, 0 to 1, where they go both ways; `op` says nothing then.
    pub mixed: Option<f64>,
    /// Threads.
    pub workers: u32,
    /// Commands that each keeps outstanding, at least 1.
    pub depth: u32,
    /// Bytes of a block; `None` is 4096, or the target's own if that is more.
    pub block_bytes: Option<u32>,
    /// Bytes of the buffer; `None` is 1000 blocks, as in the thesis.
    pub buffer_bytes: Option<u64>,
    /// Most blocks of a command; `None` is what the device takes, and 32 on a file.
    pub max_blocks: Option<u32>,
    /// Blocks from one packet's slot to the next.
    pub stride: u32,
    /// Bytes per second.
    pub limit_bytes: Option<f64>,
    /// Commands per second.
    pub limit_commands: Option<f64>,
    /// Slots per second in which the limits are dealt out.
    pub slots: u32,
    /// What slots did not use may still go later, at most a second's worth.
    pub catch_up: bool,
    /// As the published program: it moves a block more than it counts, and its limiter lets one more command go.
    pub thesis: bool,
    /// The run ends after so long.
    pub time: Option<Duration>,
    /// After so many blocks.
    pub blocks: Option<u64>,
    /// After so many commands.
    pub commands: Option<u64>,
    /// What the CPU reads.
    pub touch: Touch,
    /// CPUs to pin workers to, in turn; empty is none.
    pub cpus: Vec<u32>,
    /// The NUMA node of the buffer.
    pub numa: Option<u32>,
    /// The buffer's pages.
    pub pages: Pages,
    /// Of everything random.
    pub seed: u64,
    /// What carries commands; `None` is the best that the target can do.
    pub engine: Option<EngineKind>,
    /// Look afterwards whether what was moved has arrived.
    pub verify: bool,
    /// Keep of each command when it went and how long it took: 48 bytes of memory each.
    pub log: bool,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            pattern: Pattern::Random,
            op: Toward::Write,
            mixed: None,
            workers: 1,
            depth: 1,
            block_bytes: None,
            buffer_bytes: None,
            max_blocks: None,
            stride: 1,
            limit_bytes: None,
            limit_commands: None,
            slots: Limits::NONE.slots,
            catch_up: false,
            thesis: false,
            time: None,
            blocks: None,
            commands: None,
            touch: Touch::Never,
            cpus: Vec::new(),
            numa: None,
            pages: Pages::Base,
            seed: 1,
            engine: None,
            verify: false,
            log: false,
        }
    }
}

impl Plan {
    /// True if commands change what is stored.
    pub const fn writes(&self) -> bool {
        self.pattern.moves() && (matches!(self.op, Toward::Read) || self.mixed.is_some())
    }

    /// True if commands read what is stored.
    pub const fn reads(&self) -> bool {
        self.pattern.moves() && (matches!(self.op, Toward::Write) || self.mixed.is_some())
    }
}
