//! The picture: everything that a view shows of one step, as a value that can be written as JSON.
//!
//! An absent key means "not available", 0 means 0. Ratios are 0..1, units are part of the names. Must not know how a picture
//! is made or drawn.

use crate::source::SourceInfo;
use serde::{Deserialize, Serialize};
use waykeeper_control::WorthSource;
use waykeeper_host::{DeviceKind, Priority, WorkloadKind};
use waykeeper_service::protocol::LoggedEvent;
use waykeeper_service::{ActiveProblem, DaemonMode, Pause, PolluterKind, Worst};
use waykeeper_units::{CoreList, WayMask};

/// Everything that views show.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Picture {
    /// Where the steps come from.
    pub source: SourceInfo,
    /// Why the source cannot be reached at present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// No step follows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
    /// Number of the step.
    pub step: u64,
    /// Its time (RFC 3339, UTC).
    pub at: String,
    /// The same in seconds since 1970, as on the time axis of a history.
    pub at_s: f64,
    /// Seconds since the daemon or the server started.
    pub time_s: f64,
    /// Time between two steps, s.
    pub period_s: f64,
    /// What the daemon may do.
    pub mode: DaemonMode,
    /// The policy in force.
    pub policy: String,
    /// Its state, with the paper's name.
    pub state: String,
    /// Whether and how it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// Name of the chip.
    pub chip: String,
    /// What runs on it, for example the kernel.
    pub host: String,
    /// Its LLC; `None` where its ways are not known.
    pub llc: Option<LlcPicture>,
    /// The tenants alive now.
    pub tenants: Vec<TenantPicture>,
    /// Root ports with devices.
    pub devices: Vec<DevicePicture>,
    /// The socket.
    pub socket: SocketPicture,
    /// What the policy is worth.
    pub worth: WorthPicture,
    /// The tenant that lost most, and what fills most of its ways.
    pub worst: Worst,
    /// Which polluters explain the losses of which victims.
    pub hurts: Vec<HurtPicture>,
    /// The last decisions and problems, oldest first.
    pub decisions: Vec<LoggedEvent>,
    /// Knobs that were turned since the view began.
    pub knobs_turned: u64,
    /// Problems that last.
    pub problems: Vec<ActiveProblem>,
}

impl Picture {
    /// Ways of the LLC that there is a column for; 0 where they are not known.
    pub fn way_columns(&self) -> u32 {
        self.llc.as_ref().map_or(0, |llc| llc.ways)
    }

    /// Ways that devices may allocate in, where they are known.
    pub fn dca_ways(&self) -> Option<WayMask> {
        self.llc.as_ref().and_then(|llc| llc.dca_ways)
    }
}

/// The LLC.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LlcPicture {
    /// Ways.
    pub ways: u32,
    /// Fewest ways of a mask.
    pub min_ways: u32,
    /// Capacity.
    pub bytes: u64,
    /// Classes of service.
    pub clos: u32,
    /// Ways whose lines may also be in an MLC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inclusive_ways: Option<WayMask>,
    /// Ways that devices may allocate in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dca_ways: Option<WayMask>,
    /// The same at power-on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dca_ways_default: Option<WayMask>,
    /// The DCA ways can be changed.
    pub dca_ways_switch: bool,
}

/// A tenant.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TenantPicture {
    /// Its id, never reused while the source lives.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Declared priority.
    pub priority: Priority,
    /// Declared kind.
    pub kind: WorkloadKind,
    /// Cores.
    #[serde(default, skip_serializing_if = "CoreList::is_empty")]
    pub cores: CoreList,
    /// Devices that it uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// Ways that it may allocate in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<WayMask>,
    /// Number of these ways.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ways: Option<u32>,
    /// Index into a palette, below [`Picture::COLOURS`]; a name keeps its colour as long as it is shown.
    pub colour: u8,
    /// Letter beside the colour: no two names of a picture have both in common.
    pub letter: char,
    /// LLC hits / references.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc_hit_ratio: Option<f64>,
    /// Instructions per cycle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipc: Option<f64>,
    /// MLC misses / accesses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mlc_miss_ratio: Option<f64>,
    /// LLC bytes that its lines occupy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occupancy_bytes: Option<f64>,
    /// LLC references per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc_references_per_s: Option<f64>,
    /// LLC misses per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc_misses_per_s: Option<f64>,
    /// Bytes that these misses read from memory: a line each. Prefetches and write-backs are not counted per tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes_per_s: Option<f64>,
    /// Progress since the state as found; 1.1 is 10 % better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressPicture>,
    /// Tenants in the same class of service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grouped_with: Vec<String>,
}

/// Progress since the state as found.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct ProgressPicture {
    /// The ratio.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
}

/// A root port and what is behind it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DevicePicture {
    /// Number of the port.
    pub port: u8,
    /// Its PCI address.
    pub address: String,
    /// Names of the devices behind it; the address if there is none.
    pub name: String,
    /// Their names, one by one.
    pub devices: Vec<String>,
    /// Kind of the first one's traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<DeviceKind>,
    /// Index into a palette, below [`Picture::COLOURS`].
    pub colour: u8,
    /// Letter beside the colour, as a tenant's.
    pub letter: char,
    /// Whether devices' writes allocate in the LLC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dca: Option<bool>,
    /// DCA can be switched here.
    pub dca_switch: bool,
    /// Bytes that devices write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inbound_bytes_per_s: Option<f64>,
    /// Bytes that devices read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outbound_bytes_per_s: Option<f64>,
    /// Descriptors of each RX ring, where that is a knob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_ring: Option<u32>,
    /// Tenants that use the devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<String>,
}

/// The socket.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SocketPicture {
    /// Share of device writes that found the line in a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dca_write_hit_ratio: Option<f64>,
    /// Device writes that did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dca_write_misses_per_s: Option<f64>,
    /// Share of device reads that were served from the caches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dca_read_hit_ratio: Option<f64>,
    /// Bytes read from memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_read_bytes_per_s: Option<f64>,
    /// Bytes written to memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_write_bytes_per_s: Option<f64>,
}

/// What the policy is worth.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct WorthPicture {
    /// HPWs together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hpw: Option<ProgressPicture>,
    /// LPWs together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lpw: Option<ProgressPicture>,
    /// How progress under the layout as found is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<WorthSource>,
    /// Why nothing is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_unknown: Option<String>,
}

/// A polluter and a victim.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HurtPicture {
    /// A tenant or devices.
    pub kind: PolluterKind,
    /// The polluter's name.
    pub polluter: String,
    /// The victim: a tenant.
    pub victim: String,
    /// Share of the victim's loss that the polluter explains, 0..1; absent: counters cannot tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// How sure that is, 0..1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// What it rests on, or why counters cannot tell.
    pub why: String,
}

impl Picture {
    /// Colours of the palette.
    pub const COLOURS: u8 = waykeeper_drawing::COLOURS;

    /// Decisions in a picture.
    pub const DECISIONS: usize = 50;
}
