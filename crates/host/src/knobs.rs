//! The knobs that can be set, and the outcome of setting them. It must not know how a host sets them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use waykeeper_units::{GroupId, PortId, WayMask};

/// Knobs to set. Knobs that a plan does not name stay as they are.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Plan {
    /// Allocation mask per group (CAT).
    pub masks: BTreeMap<GroupId, WayMask>,
    /// Ways devices may allocate in (IIO_LLC_WAYS).
    pub dca_ways: Option<WayMask>,
    /// DCA on or off per root port.
    pub dca: BTreeMap<PortId, bool>,
    /// Descriptors of each RX ring of the NIC behind a root port.
    pub rx_ring: BTreeMap<PortId, u32>,
    /// The most packets a worker may take from such a ring at one poll.
    pub rx_burst: BTreeMap<PortId, u32>,
}

impl Plan {
    /// True if no knob is named.
    pub fn is_empty(&self) -> bool {
        self.masks.is_empty()
            && self.dca_ways.is_none()
            && self.dca.is_empty()
            && self.rx_ring.is_empty()
            && self.rx_burst.is_empty()
    }
}

/// The values all knobs read back.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct KnobValues {
    /// Allocation mask per group.
    pub masks: BTreeMap<GroupId, WayMask>,
    /// Ways devices may allocate in; `None` when it cannot be read.
    pub dca_ways: Option<WayMask>,
    /// DCA per root port.
    pub dca: BTreeMap<PortId, bool>,
    /// Descriptors of each RX ring, for ports whose rings can be read.
    pub rx_ring: BTreeMap<PortId, u32>,
    /// Most packets at one poll, for ports where that can be read.
    pub rx_burst: BTreeMap<PortId, u32>,
}

/// The outcome of one knob.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KnobOutcome {
    /// It reads back the wanted value.
    Applied,
    /// The host refused the value; with the host's message.
    Refused(String),
    /// The host could not take any value now; with the host's message (EBUSY, a lock held by another tool).
    Busy(String),
    /// The write succeeded but another value reads back.
    ReadsBack(String),
}

/// The report on a plan: one outcome per knob named in it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Applied {
    /// Outcome per mask.
    pub masks: BTreeMap<GroupId, KnobOutcome>,
    /// Outcome of the DCA ways.
    pub dca_ways: Option<KnobOutcome>,
    /// Outcome per port switch.
    pub dca: BTreeMap<PortId, KnobOutcome>,
    /// Outcome per RX ring.
    pub rx_ring: BTreeMap<PortId, KnobOutcome>,
    /// Outcome per RX burst.
    pub rx_burst: BTreeMap<PortId, KnobOutcome>,
}

impl Applied {
    /// True if every knob reads back the wanted value.
    pub fn is_complete(&self) -> bool {
        let good = |outcome: &KnobOutcome| *outcome == KnobOutcome::Applied;
        let ports = [&self.dca, &self.rx_ring, &self.rx_burst];
        self.masks.values().all(good)
            && self.dca_ways.iter().all(good)
            && ports.iter().all(|outcomes| outcomes.values().all(good))
    }
}
