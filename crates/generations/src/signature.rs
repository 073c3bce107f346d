//! How a CPU is recognised: vendor, family, model, stepping. Must not know the tables.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The manufacturer of a CPU, as in CPUID leaf 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vendor {
    /// `GenuineIntel`.
    Intel,
    /// `AuthenticAMD`.
    Amd,
}

impl Vendor {
    /// The vendor with these twelve letters in CPUID leaf 0 or `/proc/cpuinfo`.
    pub fn from_id(id: &str) -> Option<Vendor> {
        match id {
            "GenuineIntel" => Some(Vendor::Intel),
            "AuthenticAMD" => Some(Vendor::Amd),
            _ => None,
        }
    }
}

/// A CPU's identity from CPUID leaf 1, with the extended fields added (Intel SDM vol. 2, CPUID).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Signature {
    /// The manufacturer.
    pub vendor: Vendor,
    /// Display family, decimal as `/proc/cpuinfo` prints it.
    pub family: u16,
    /// Display model.
    pub model: u16,
    /// Stepping.
    pub stepping: u8,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let vendor = match self.vendor {
            Vendor::Intel => "Intel",
            Vendor::Amd => "AMD",
        };
        write!(f, "{vendor} family {} model {} stepping {}", self.family, self.model, self.stepping)
    }
}

/// The signatures of one product line of a generation (hardware.md 0.2).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignatureRule {
    /// Short code name of the product line, for example `CLX`.
    pub code: String,
    /// Family.
    pub family: u16,
    /// First and last model, both included.
    pub models: [u16; 2],
    /// First and last stepping, both included; every stepping when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steppings: Option<[u8; 2]>,
    /// Source of the values.
    pub source: String,
}

impl SignatureRule {
    /// Whether a signature belongs to this line; the caller has checked the vendor.
    pub fn takes(&self, signature: &Signature) -> bool {
        let within = |[low, high]: [u16; 2], value: u16| (low..=high).contains(&value);
        self.family == signature.family
            && within(self.models, signature.model)
            && self.steppings.is_none_or(|[low, high]| (low..=high).contains(&signature.stepping))
    }
}
