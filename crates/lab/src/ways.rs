//! Whose is a way? One class per way of a way map, as the timeline's letters and the report's colours show it.
//!
//! A class names what an operator looks for: ways devices fill, ways where low-priority workloads may too
//! (latent contention), ways kept for the others. Must not know how a class is drawn.

use crate::results::{PolicyResult, WayMapSlice};
use waykeeper_host::Priority;

/// Who may allocate in a way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum WayClass {
    /// Devices, and no workload at all.
    Dca,
    /// Devices and high-priority workloads.
    DcaHigh,
    /// Devices and low-priority workloads: latent contention may strike here.
    DcaShared,
    /// High-priority workloads only.
    High,
    /// Every low-priority workload (and high-priority ones where their masks say so).
    Low,
    /// Some low-priority workloads and not all: a zone of their own, such as A4's trash ways.
    SomeLow,
    /// Nobody.
    Nobody,
}

impl WayClass {
    /// Every class, in the order a legend lists them.
    pub(crate) const ALL: [WayClass; 7] = [
        WayClass::Dca,
        WayClass::DcaHigh,
        WayClass::DcaShared,
        WayClass::High,
        WayClass::Low,
        WayClass::SomeLow,
        WayClass::Nobody,
    ];

    /// Its letter in a text way map.
    pub(crate) fn letter(self) -> char {
        match self {
            WayClass::Dca => 'D',
            WayClass::DcaHigh => 'H',
            WayClass::DcaShared => 'X',
            WayClass::High => '.',
            WayClass::Low => 'L',
            WayClass::SomeLow => 'l',
            WayClass::Nobody => '_',
        }
    }

    /// What it means, in a legend.
    pub(crate) fn meaning(self) -> &'static str {
        match self {
            WayClass::Dca => "devices only (DCA)",
            WayClass::DcaHigh => "devices and HPWs",
            WayClass::DcaShared => "devices and LPWs (HPWs may too)",
            WayClass::High => "HPWs only",
            WayClass::Low => "all LPWs (HPWs may too)",
            WayClass::SomeLow => "some LPWs (HPWs may too)",
            WayClass::Nobody => "unused",
        }
    }
}

/// The class of one way.
pub(crate) fn class_of(slice: &WayMapSlice, way: u32, policy: &PolicyResult) -> WayClass {
    let (mut high, mut low, mut low_total) = (false, 0, 0);
    for (name, mask) in &slice.masks {
        // A group nobody described in the results (it left early) counts as low: it is not to be protected.
        let priority = policy.workloads.get(name).map_or(Priority::Low, |workload| workload.priority);
        match priority {
            Priority::High => high |= mask.contains(way),
            Priority::Low => {
                low_total += 1;
                low += u32::from(mask.contains(way));
            }
        }
    }
    let dca = slice.dca_ways.is_some_and(|mask| mask.contains(way));
    match (dca, low) {
        (true, 0) if high => WayClass::DcaHigh,
        (true, 0) => WayClass::Dca,
        (true, _) => WayClass::DcaShared,
        (false, 0) if high => WayClass::High,
        (false, 0) => WayClass::Nobody,
        (false, low) if low == low_total => WayClass::Low,
        (false, _) => WayClass::SomeLow,
    }
}

/// The ways as one letter each, the highest way leftmost, as masks are written.
pub(crate) fn letters(slice: &WayMapSlice, ways: u32, policy: &PolicyResult) -> String {
    let letters: String = (0..ways.min(32)).rev().map(|way| class_of(slice, way, policy).letter()).collect();
    format!("[{letters}]")
}

/// The workloads that may allocate in a way, in the scenario's order.
pub(crate) fn members(slice: &WayMapSlice, way: u32) -> Vec<&str> {
    slice.masks.iter().filter(|(_, mask)| mask.contains(way)).map(|(name, _)| name.as_str()).collect()
}
