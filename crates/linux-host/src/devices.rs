//! Counts device requests at the LLC of one package without managing the host: no tenant, no group, no resctrl.
//!
//! For a caller that sends a known load and compares the counters with it. It uses all counters of the slices, so it
//! also counts partial writes, which policies do not need. Must not know what load is sent.

use super::count;
use super::error::OpenError;
use super::facts::Facts;
use waykeeper_host::DmaCounters;
use waykeeper_kernel::counting::Counting;
use waykeeper_kernel::journal::Journal;
use waykeeper_kernel::root::Root;
use waykeeper_kernel::topology::Topology;
use waykeeper_units::CoreId;

/// A place that selects a package.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Near {
    /// A NUMA node.
    Node(u32),
    /// A CPU.
    Cpu(CoreId),
}

/// A package whose devices are counted.
#[derive(Debug)]
pub struct DeviceWatch {
    counting: Box<dyn Counting>,
    notes: Vec<String>,
    package: u16,
    near: Option<usize>,
}

impl DeviceWatch {
    /// Starts counting on the package of the first entry of `near` that is, or has, an online CPU; without one, on that
    /// of the lowest online CPU. Without a journal no register is written, so only perf can count.
    ///
    /// # Errors
    /// If something required is missing. No register stays programmed then.
    pub fn open(root: &Root, near: &[Near], journal: Option<&mut Journal>) -> Result<DeviceWatch, OpenError> {
        let topology = Topology::read(root)?;
        let (cpu, near) = pick(&topology, near).ok_or(OpenError::NoSocket { socket: 0 })?;
        let facts = Facts::read(root, cpu)?;
        let (counting, mut notes) =
            count::start_devices(root, &facts, journal).map_err(OpenError::Counting)?;
        notes.extend(counting.notes().iter().cloned());
        Ok(DeviceWatch { counting, notes, package: facts.socket, near })
    }

    /// The package, and the index of the entry of `near` that selected it; `None` if the lowest CPU did.
    pub fn package(&self) -> (u16, Option<usize>) {
        (self.package, self.near)
    }

    /// The counts since the start, and what could not be read.
    pub fn read(&mut self) -> (DmaCounters, Vec<String>) {
        let counts = self.counting.count();
        (counts.devices(), counts.problems().to_vec())
    }

    /// Notes for the user: what is not counted, or counted only approximately.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl Drop for DeviceWatch {
    fn drop(&mut self) {
        self.counting.close();
    }
}

/// A CPU of the selected package, and the index of the entry that selected it.
fn pick(topology: &Topology, near: &[Near]) -> Option<(CoreId, Option<usize>)> {
    let online = |wanted: CoreId| topology.online().any(|(cpu, _)| cpu == wanted).then_some(wanted);
    let on = |near: &Near| match near {
        Near::Cpu(cpu) => online(*cpu),
        Near::Node(node) => {
            let cpus = topology.nodes.get(&u16::try_from(*node).ok()?)?;
            cpus.cores().iter().copied().find_map(online)
        }
    };
    let named = near.iter().enumerate().find_map(|(index, near)| Some((on(near)?, Some(index))));
    named.or_else(|| Some((topology.online().map(|(cpu, _)| cpu).next()?, None)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use waykeeper_kernel::topology::{Cpu, CpuLocation};
    use waykeeper_units::CoreList;

    #[test]
    fn the_first_place_that_has_a_cpu_says_which_package_it_is() {
        // CPUs 0 and 1 on node 0, 2 and 3 on node 1, of which 2 is offline; node 2 is memory alone.
        let cpu = |id: u16| Cpu {
            id: CoreId(id),
            location: (id != 2).then(|| CpuLocation {
                socket: id / 2,
                core: 0,
                siblings: CoreList::default(),
                node: None,
                l3: None,
            }),
        };
        let nodes =
            [(0, "0-1"), (1, "2-3"), (2, "")].map(|(node, list)| (node, list.parse().unwrap_or_default()));
        let topology =
            Topology { cpus: (0..4).map(cpu).collect(), nodes: nodes.into(), ..Topology::default() };
        let of = |near: &[Near]| pick(&topology, near).map(|(cpu, near)| (cpu.0, near)).unwrap();
        assert_eq!(of(&[]), (0, None));
        assert_eq!(of(&[Near::Node(1), Near::Cpu(CoreId(0))]), (3, Some(0)));
        assert_eq!(of(&[Near::Node(2), Near::Node(7), Near::Cpu(CoreId(3))]), (3, Some(2)));
        assert_eq!(of(&[Near::Cpu(CoreId(2)), Near::Node(0)]), (0, Some(1)), "an offline CPU is nowhere");
        assert_eq!(pick(&Topology::default(), &[Near::Node(0)]), None);
    }
}
