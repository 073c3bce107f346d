//! The virtual server as a file tree: the files a Linux kernel would offer, with the kernel's manners.
//!
//! This room knows the kernel's side of the file interfaces and the machine behind them. It must not know who reads:
//! no tool, and not our own `linux` room, is treated in its own way.

pub mod cpuid;
pub mod engine;
pub mod enter;
pub mod faults;
pub mod host_tasks;
mod inodes;
pub mod live;
mod mount;
pub mod mounted;
pub mod msr;
pub mod node;
pub mod package;
pub mod pci;
pub mod places;
pub mod pmu;
pub mod proc_mounts;
pub mod programs;
pub mod rdt;
pub mod resctrl;
pub mod scheduler;
pub mod topology;
pub mod virtual_host;
