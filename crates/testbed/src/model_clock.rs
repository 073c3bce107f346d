//! A managed host on the server's clock: waiting advances the model, so a busy machine only makes a test slower.
//!
//! Must not know which code waits, or for what.

use crate::MountedHost;
use waykeeper_host::{Applied, Host, HostError, Inventory, Lines, Plan, Snapshot, Workload};
use waykeeper_linux_host::LinuxHost;
use waykeeper_units::WayMask;

/// A [`LinuxHost`] on the clock of the server that it manages, which must be held.
#[derive(Debug)]
pub struct ModelClockHost<'m> {
    /// The host.
    pub host: LinuxHost,
    machine: &'m MountedHost,
    measured_from_ns: Option<u64>,
}

impl<'m> ModelClockHost<'m> {
    /// `host` manages `machine`.
    pub fn new(host: LinuxHost, machine: &'m MountedHost) -> ModelClockHost<'m> {
        ModelClockHost { host, machine, measured_from_ns: None }
    }

    /// Starts the model's measured interval when its clock reaches this time.
    pub fn measured_from(self, clock_ns: u64) -> ModelClockHost<'m> {
        ModelClockHost { measured_from_ns: Some(clock_ns), ..self }
    }
}

impl Host for ModelClockHost<'_> {
    fn inventory(&self) -> &Inventory {
        self.host.inventory()
    }

    fn workloads(&self) -> Vec<Workload> {
        self.host.workloads()
    }

    fn sample(&mut self) -> Result<Snapshot, HostError> {
        Ok(Snapshot { at_ns: self.machine.now_ns(), counters_read: None, ..self.host.sample()? })
    }

    fn partial_writes(&mut self) -> Lines {
        self.host.partial_writes()
    }

    fn root_mask(&mut self) -> WayMask {
        self.host.root_mask()
    }

    fn apply(&mut self, plan: &Plan) -> Result<Applied, HostError> {
        self.host.apply(plan)
    }

    fn now_ns(&self) -> u64 {
        self.machine.now_ns()
    }

    fn wait_until(&mut self, deadline_ns: u64) -> Result<(), HostError> {
        if let Some(from) = self.measured_from_ns.filter(|from| *from <= deadline_ns) {
            self.measured_from_ns = None;
            self.machine.run_to(from);
            self.machine.with_model(|server| server.begin_stretch());
        }
        self.machine.run_to(deadline_ns);
        Ok(())
    }
}
