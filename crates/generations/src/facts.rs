//! Values that resctrl should report on a generation, and its errata. They never replace what resctrl reports: masks
//! and widths are read, not looked up (hardware.md 0.1).

use serde::{Deserialize, Serialize};
use waykeeper_units::WayMask;

/// Known facts about CAT, MBA and the LLC; `None` where no source gives a value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResctrlFacts {
    /// LLC ways of parts of this generation; the number of most parts first.
    pub ways: Vec<u32>,
    /// Ways that CPUID reports as shared with hardware, on parts with the first number of ways.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shareable: Option<WayMask>,
    /// Fewest bits of a mask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_bits: Option<u32>,
    /// Whether masks may have holes; `None`: CPUID.10H.1:ECX bit 3 says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sparse_masks: Option<bool>,
    /// Classes of L3 CAT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l3_classes: Option<u32>,
    /// Classes of MBA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mba_classes: Option<u32>,
    /// Ways whose lines may also be in an MLC because they share directory ways (A4 s2.1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inclusive_ways: Option<WayMask>,
    /// Bytes of a slice of the LLC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice_bytes: Option<u64>,
    /// Whether the LLC contains every line of the MLCs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inclusive: Option<bool>,
    /// Source of the values.
    pub source: String,
}

/// The kind of an erratum.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErratumKind {
    /// The kernel turns L3 CAT off unless the boot option asks for it.
    CatNeedsBootOption,
    /// The kernel turns CMT and MBM off too.
    MonitoringNeedsBootOption,
    /// MBM counts need a correction, which the kernel makes.
    MbmCorrected,
    /// Hardware sets both bits of the shareable pair if a mask holds one.
    MaskWidened,
    /// The ways of DCA are not the ways that CPUID calls shareable.
    ShareableIsNotDca,
    /// CPUID does not announce CAT; the kernel tries it on a few parts only.
    CatNotAnnounced,
    /// A device's write miss is later recorded as a hit too.
    MissAlsoHits,
    /// Kernels differ in the scale they publish for the free-running I/O counters.
    ScaleDiffers,
    /// The number of a PMU's boxes reads 0 on some parts.
    BoxCountZero,
}

/// A deviation from the manual.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Erratum {
    /// The kind.
    pub kind: ErratumKind,
    /// Code names of the affected product lines.
    pub codes: Vec<String>,
    /// Its effect, as text.
    pub text: String,
    /// Source of the erratum.
    pub source: String,
}
