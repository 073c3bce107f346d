//! The class of each way in a way map: which devices and workloads may allocate in it. Shown as letters and colours.
//!
//! The classes show ways that devices fill, ways where low-priority workloads may allocate too (latent contention), and
//! ways for the other workloads only. Must not know how a class is drawn.

use crate::results::{PolicyResult, WayMapSlice};
use waykeeper_host::Priority;

/// Which devices and workloads may allocate in a way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum WayClass {
    /// Devices only.
    Dca,
    /// Devices and high-priority workloads.
    DcaHigh,
    /// Devices and low-priority workloads: latent contention is possible.
    DcaShared,
    /// High-priority workloads only.
    High,
    /// Every low-priority workload (and high-priority ones whose masks contain the way).
    Low,
    /// Some low-priority workloads and not all: a zone of their own, such as A4's trash ways.
    SomeLow,
    /// No device and no workload.
    Unused,
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
        WayClass::Unused,
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
            WayClass::Unused => '_',
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
            WayClass::Unused => "unused",
        }
    }
}

/// The class of one way.
pub(crate) fn class_of(slice: &WayMapSlice, way: u32, policy: &PolicyResult) -> WayClass {
    let (mut high, mut low, mut low_total) = (false, 0, 0);
    for (name, mask) in &slice.masks {
        // A group without a result (it ended early) counts as low priority.
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
        (false, 0) => WayClass::Unused,
        (false, low) if low == low_total => WayClass::Low,
        (false, _) => WayClass::SomeLow,
    }
}

/// The ways as one letter each, the highest way leftmost, as in masks.
pub(crate) fn letters(slice: &WayMapSlice, ways: u32, policy: &PolicyResult) -> String {
    let letters: String = (0..ways.min(32)).rev().map(|way| class_of(slice, way, policy).letter()).collect();
    format!("[{letters}]")
}

/// The workloads that may allocate in a way, in the scenario's order.
pub(crate) fn members(slice: &WayMapSlice, way: u32) -> Vec<&str> {
    slice.masks.iter().filter(|(_, mask)| mask.contains(way)).map(|(name, _)| name.as_str()).collect()
}
