//! The kernel's interfaces as files under a root prefix: one module per interface.
//!
//! This crate knows the files that a Linux kernel offers and what they mean, perf, and the journal of original values.
//! It must not know tenants or policies, nor whether a kernel or the virtual host serves the files.

pub mod cha;
pub mod content;
pub mod counters;
pub mod counting;
pub mod cpuid;
pub mod cpuinfo;
pub mod dca_ways;
pub mod event_source;
pub mod host_clock;
pub mod iio;
pub mod journal;
pub mod kernel_text;
pub mod msr;
pub mod msr_pmu;
pub mod pci;
pub mod perf;
pub mod registers;
pub mod resctrl;
pub mod restore;
pub mod root;
pub mod system;
pub mod text_file;
pub mod topology;
pub mod trust;
pub mod uncore;
