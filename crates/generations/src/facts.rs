//! What resctrl is expected to say on a generation, and what is wrong with the generation. Never used in the place of
//! what resctrl itself says: masks and widths are read, not looked up (hardware.md 0.1).

use serde::{Deserialize, Serialize};
use waykeeper_units::WayMask;

/// What is known about CAT and its company; `None` where nobody wrote it down.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResctrlFacts {
    /// LLC ways that parts of this generation were seen with, those of most parts first.
    pub ways: Vec<u32>,
    /// Ways that CPUID says hardware shares, on the parts with the first number of ways.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shareable: Option<WayMask>,
    /// Fewest bits of a mask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_bits: Option<u32>,
    /// Whether masks may have holes; `None`: CPUID.10H.1:ECX bit 3 tells.
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
    /// Whether the LLC holds what the MLCs hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inclusive: Option<bool>,
    /// Where this is written.
    pub source: String,
}

/// What a quirk is, for programs.
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

/// Something that is not as the manual says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Erratum {
    /// What it is.
    pub kind: ErratumKind,
    /// Code names it holds for.
    pub codes: Vec<String>,
    /// What it means, for people.
    pub text: String,
    /// Where this is written.
    pub source: String,
}
