//! What the devices of one package do at its LLC, watched without taking charge: no tenant, no group, no resctrl.
//!
//! For who sends known load and holds the counters against it. All counters of the slices are its own, so partial writes
//! are counted too, which policies do without. Must not know what is sent.

use super::count;
use super::error::OpenError;
use super::facts::Facts;
use crate::counting::Counting;
use crate::journal::Journal;
use crate::root::Root;
use crate::topology::Topology;
use waykeeper_host::DmaCounters;
use waykeeper_units::CoreId;

/// A package whose devices are counted.
#[derive(Debug)]
pub struct DeviceWatch {
    counting: Box<dyn Counting>,
    notes: Vec<String>,
}

impl DeviceWatch {
    /// Starts counting on the package of a CPU; without one on that of the lowest. Without a journal nothing is written:
    /// the kernel counts (perf), or nobody does.
    ///
    /// # Errors
    /// Whatever is missing for it; nothing is programmed then.
    pub fn open(
        root: &Root,
        cpu: Option<CoreId>,
        journal: Option<&mut Journal>,
    ) -> Result<DeviceWatch, OpenError> {
        let topology = Topology::read(root)?;
        let lowest = || topology.online().map(|(cpu, _)| cpu).next();
        let cpu = cpu.or_else(lowest).ok_or(OpenError::NoSocket { socket: 0 })?;
        let facts = Facts::read(root, cpu)?;
        let (counting, mut notes) =
            count::start_devices(root, &facts, journal).map_err(OpenError::Counting)?;
        notes.extend(counting.notes().iter().cloned());
        Ok(DeviceWatch { counting, notes })
    }

    /// What was counted since the start, and what could not be read.
    pub fn read(&mut self) -> (DmaCounters, Vec<String>) {
        let counts = self.counting.count();
        (counts.devices(), counts.problems().to_vec())
    }

    /// What cannot be counted here or is counted with reservations, once for people.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl Drop for DeviceWatch {
    fn drop(&mut self) {
        self.counting.close();
    }
}
