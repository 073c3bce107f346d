//! The inventory of a server: what is known about it before anything is measured. It must not hold counter values.

use serde::{Deserialize, Serialize};
use waykeeper_units::{CoreId, DeviceId, MaskError, PortId, WayMask};

/// Whether a knob or counter can be used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Support {
    /// Yes.
    Yes,
    /// It can be read, and writing is known to do nothing or not known to do anything.
    ReadOnly,
    /// No, and why.
    No(String),
}

/// The last-level cache of one socket, as CAT sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LlcGeometry {
    /// Number of ways (bits in a CBM).
    pub ways: u32,
    /// Fewest ways a mask may have.
    pub min_ways: u32,
    /// Capacity in bytes.
    pub bytes: u64,
    /// Classes of service, root class included.
    pub clos_count: u32,
    /// Whether the ways of a mask need not be next to each other.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sparse_masks: bool,
    /// Ways tied to the shared directory ways, the only ones whose lines may also be in an MLC
    /// (A4 s2.1); `None` when the LLC is not of that kind or it is not known.
    pub inclusive_ways: Option<WayMask>,
}

impl LlcGeometry {
    /// An LLC whose masks have at least one way and no holes, and that has no inclusive ways.
    pub const fn plain(ways: u32, bytes: u64, clos_count: u32) -> LlcGeometry {
        LlcGeometry { ways, min_ways: 1, bytes, clos_count, sparse_masks: false, inclusive_ways: None }
    }

    /// Checks that CAT accepts this mask here.
    ///
    /// # Errors
    /// The first rule it breaks.
    pub fn check(&self, mask: WayMask) -> Result<WayMask, MaskError> {
        mask.check_on(self.ways, self.min_ways, self.sparse_masks)
    }
}

/// What kind of traffic a device brings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// A NIC.
    Network,
    /// An SSD or an array of them.
    Storage,
}

/// One I/O device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Device {
    /// Its id and index.
    pub id: DeviceId,
    /// Name for people, for example `nic0`.
    pub name: String,
    /// Kind of traffic.
    pub kind: DeviceKind,
    /// Root ports it sits behind (an array may have several).
    pub ports: Vec<PortId>,
}

/// A knob that takes a number.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Dial {
    /// Whether it can be set.
    pub switch: Support,
    /// Smallest value it takes; 0 without such a knob.
    pub low: u32,
    /// Largest value it takes.
    pub high: u32,
}

impl Dial {
    /// A dial that is not there, and why.
    pub fn absent(why: &str) -> Dial {
        Dial { switch: Support::No(why.to_owned()), low: 0, high: 0 }
    }

    /// Checks a value against the knob's range.
    ///
    /// # Errors
    /// Why the host does not take the value.
    pub fn check(&self, value: u32) -> Result<(), String> {
        match self {
            Dial { switch: Support::No(why), .. } => Err(why.clone()),
            Dial { low, high, .. } if !(*low..=*high).contains(&value) => {
                Err(format!("{value} is out of range; it takes {low} to {high}"))
            }
            _ => Ok(()),
        }
    }
}

/// One PCIe root port: the unit at which DCA is switched and bytes are counted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RootPort {
    /// Its id and index.
    pub id: PortId,
    /// PCI address, for example `0000:3a:00.0`.
    pub address: String,
    /// Socket it belongs to.
    pub socket: u8,
    /// Whether DCA can be switched here.
    pub dca_switch: Support,
    /// Descriptors per RX ring of the NIC behind it. A kernel driver has this knob (`ethtool -G`); a DPDK
    /// program fixes its rings when it starts.
    pub rx_ring: Dial,
    /// Most packets a worker takes at one poll. It lies inside the program that polls: no server has it
    /// unless that program offers it.
    pub rx_burst: Dial,
}

/// How to name the machine in a report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Platform {
    /// Chip name, for example `gold-6140`.
    pub chip: String,
    /// Where it is, for example `virtual server` or `Linux 6.12`.
    pub host: String,
}

/// Everything a policy may know before it sees a counter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Inventory {
    /// How to name the machine.
    pub platform: Platform,
    /// Cores of the managed socket.
    pub cores: Vec<CoreId>,
    /// Its LLC; `None` where the kernel does not give its ways. Such a host can only be watched: no mask is possible, and
    /// the control loop starts no policy.
    pub llc: Option<LlcGeometry>,
    /// Ways devices may allocate in at power-on; `None` when the chip has no DCA.
    pub dca_ways_default: Option<WayMask>,
    /// Whether the DCA ways can be changed.
    pub dca_ways_switch: Support,
    /// Devices, by id.
    pub devices: Vec<Device>,
    /// Root ports, by id.
    pub ports: Vec<RootPort>,
}

impl Inventory {
    /// The LLC, for what runs only where it is known.
    ///
    /// # Panics
    /// If it is not known.
    pub fn known_llc(&self) -> LlcGeometry {
        self.llc.expect("policies and experiments are refused on a host whose LLC is not known")
    }
}
