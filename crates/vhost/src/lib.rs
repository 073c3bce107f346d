//! The virtual server as a file tree: the files of a Linux kernel, with the kernel's behaviour.
//!
//! This crate knows the kernel's side of the file interfaces and the machine behind them. It must not know the reader:
//! every tool, our own crate `kernel` included, is served alike.

pub mod apart;
pub mod class;
pub mod cpu_switches;
pub mod cpuid;
pub mod dynamic_tree;
pub mod enter;
pub mod faults;
pub mod file_tree;
pub mod fork_records;
pub mod host_tasks;
mod inodes;
pub mod layout;
pub mod machine_clock;
mod mount;
pub mod mount_calls;
pub mod mounted;
pub mod msr;
pub mod namespace;
pub mod node;
pub mod package;
pub mod pci;
pub mod pmu;
pub mod proc_mounts;
pub mod programs;
pub mod rdt;
pub mod resctrl;
pub mod scheduler;
pub mod topology;
pub mod trees;
pub mod virtual_host;
