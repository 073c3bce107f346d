//! The real Linux host: one module per kernel interface, all under a root prefix.
//!
//! This crate knows the files a Linux kernel offers and what they mean. It must not know whether a kernel or the
//! virtual host serves them: the root prefix is the only difference.

pub mod cha;
pub mod content;
pub mod counters;
pub mod counting;
pub mod cpuid;
pub mod cpuinfo;
pub mod dca_ways;
pub mod ddio;
pub mod doctor;
pub mod event_source;
pub mod host;
pub mod iio;
pub mod journal;
mod kernel_text;
pub mod msr;
pub mod msr_pmu;
pub mod pci;
pub mod perf;
pub mod profile;

pub mod registers;
pub mod resctrl;
pub mod restore;
pub mod root;
pub mod system;
pub mod tenants;
pub mod text_file;
pub mod topology;
pub mod trust;
pub mod uncore;

/// Prefix of the names of Waykeeper's resctrl groups. Groups with other names are never changed.
pub const GROUP_PREFIX: &str = "waykeeper-";
