//! The smallest resctrl, for tests of this crate: three CPUs, one resource, no tasks.

use super::description::{Bandwidth, Domain, Kernel, ResctrlDescription};
use super::hardware::Idle;
use super::tasks::{Task, Tasks};
use super::{SharedResctrl, VirtualResctrl};

struct NoTasks;

impl Tasks for NoTasks {
    fn list(&mut self) -> Vec<Task> {
        Vec::new()
    }

    fn owner(&mut self, _: u32) -> Option<u32> {
        None
    }
}

/// One domain of three CPUs with eight classes of memory bandwidth, mounted.
pub(crate) fn resctrl() -> SharedResctrl {
    let host = ResctrlDescription {
        kernel: Kernel(6, 12),
        possible_cpus: 3,
        domains: vec![Domain { id: 0, cpus: vec![0, 1, 2] }],
        l3: None,
        mb: Some(Bandwidth::intel(8)),
        smba: None,
        monitoring: None,
    };
    VirtualResctrl::new(host, Box::new(Idle), Box::new(NoTasks)).shared()
}
