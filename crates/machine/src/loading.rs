//! A run of `memload` without policy or warm-up: a scenario's server under that load, until its last command has
//! completed. `lab` uses it for experiments. The load's own counts and the chip's are exact, so that they can be
//! compared. Must not know how a run is presented.

use crate::host::VirtualServer;
use crate::meter::BlockCommands;
use crate::scenario::{ScenarioError, ScenarioSource};
use crate::server::RunOptions;
use std::sync::Arc;
use std::time::Duration;
use toml::{Table, Value};
use waykeeper_host::{Host, HostError};
use waykeeper_load::LoadTotals;

/// The program that this file runs.
const PROGRAM: &str = "memload";

/// A server and the load on it.
#[derive(Debug)]
pub struct LoadServer {
    server: VirtualServer,
    workload: usize,
    cores: Vec<usize>,
}

impl LoadServer {
    /// Switches on the server of a scenario that has one workload of the program `memload`, with these of its keys
    /// changed. The server's clock runs at the speed of simulated time, and nothing is swept.
    ///
    /// # Errors
    /// What is wrong with the scenario or a key, or that it has no such workload, or several.
    pub fn start(
        source: &ScenarioSource,
        settings: &Table,
        options: RunOptions,
    ) -> Result<LoadServer, ScenarioError> {
        let mut source = source.clone();
        source.set("sweep", &Value::Array(Vec::new()))?;
        source.set("time_factor", &Value::Integer(1))?;
        let scenario = source.read()?;
        let mut loads = scenario.workloads.iter().enumerate().filter(|(_, w)| w.program.name == PROGRAM);
        let (workload, name) = match (loads.next(), loads.next()) {
            (Some((index, load)), None) => (index, load.name.clone()),
            (first, _) => {
                let many = if first.is_some() { "only one workload" } else { "a workload" };
                return Err(ScenarioError::Missing {
                    file: source.file().to_owned(),
                    at: String::new(),
                    key: "workload".to_owned(),
                    misspelt: String::new(),
                    wanted: format!("{many} with program = \"{PROGRAM}\", as in thesis-load-haswell"),
                });
            }
        };
        for (key, value) in settings {
            source.set(&format!("workload.{name}.{key}"), value)?;
        }
        let scenario = Arc::new(source.read()?);
        let cores = scenario.workloads[workload].cores.cores().iter().map(|core| core.index()).collect();
        Ok(LoadServer { server: VirtualServer::new(scenario, options)?, workload, cores })
    }

    /// The server as a `Host`.
    pub fn host(&mut self) -> &mut dyn Host {
        &mut self.server
    }

    /// Advances simulated time.
    ///
    /// # Errors
    /// If a program that starts on the way does not fit simulated memory.
    pub fn advance(&mut self, by: Duration) -> Result<(), HostError> {
        let by_ns = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.server.wait_until(self.server.now_ns().saturating_add(by_ns))
    }

    /// Simulated time since the first command was allowed.
    pub fn elapsed(&self) -> Duration {
        let load = self.load();
        let end_ns = if self.is_over() { load.last_ns } else { self.server.bare.machine.now_ns() };
        let ns = load.begun_ns.map_or(0.0, |begun_ns| (end_ns - begun_ns).max(0.0));
        Duration::from_nanos(ns as u64)
    }

    /// True if the last command has completed and no more will be sent.
    pub fn is_over(&self) -> bool {
        let load = self.load();
        load.ended && load.outstanding == 0
    }

    /// Commands in flight.
    pub fn outstanding(&self) -> u64 {
        self.load().outstanding
    }

    /// Lines that drives read and that hold PRP lists: a command whose data lie on more than two pages has one (NVMe
    /// 1.1 s4.3). No formula of the thesis counts them.
    pub fn list_lines(&self) -> u64 {
        self.server.bare.machine.bus.arrays.iter().map(|array| array.control.lists).sum()
    }

    /// Counts since the start.
    pub fn totals(&self) -> LoadTotals {
        let machine = &self.server.bare.machine;
        let meter = &machine.bus.meters[self.workload];
        let load = self.load();
        let busy_ns: f64 = self.cores.iter().map(|core| machine.core(*core).busy_ns).sum();
        LoadTotals {
            commands: meter.operations as u64,
            blocks: load.blocks,
            moved: load.moved,
            outward: 0,
            errors: 0,
            runtime: self.elapsed(),
            cpu: Some(Duration::from_nanos((busy_ns - load.prepared_ns).max(0.0) as u64)),
            latency_ns: meter.latencies_ns(),
        }
    }

    fn load(&self) -> BlockCommands {
        self.server.bare.machine.bus.meters[self.workload].load.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
