//! One simulation: a scenario under one policy with one seed, through the real control loop. Must not know other jobs.

use super::RunError;
use super::plan::{self, OwnPolicy};
use super::run_log::RunLog;
use crate::results::{
    self, Evictions, PolicyResult, Score, SystemMetrics, SystemResult, ThroughputUnit, WorkloadMetrics,
    WorkloadResult,
};
use indexmap::IndexMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use toml::Table;
use waykeeper_control::{ControlConfig, ControlError, LookBack};
use waykeeper_host::{Inventory, WorkloadKind};
use waykeeper_machine::{
    Agent, Commands, EvictionRate, Gap, Measured, Opcodes, RunOptions, SamplingErrors, Scenario,
    ScenarioError, SystemMeasured, VirtualServer, WorkUnit, WorkloadMeasured, WorkloadSpec, WriteBacks,
};
use waykeeper_policy::Policy;
use waykeeper_silicon::Sampling;

/// Parameters of a simulation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job<'a> {
    pub scenario: &'a Arc<Scenario>,
    /// Origin of the scenario, for messages.
    pub file: &'a str,
    pub policy: &'a str,
    /// Policies of the caller's own.
    pub own: &'a [OwnPolicy],
    /// Set by another thread to end the simulation.
    pub stop: &'a Arc<AtomicBool>,
    /// Simulated time of intervals that are being simulated, ns, of all jobs together.
    pub inside_ns: &'a Arc<AtomicI64>,
    pub seed: u64,
    pub sample_seed: u64,
    pub sampling: Sampling,
    /// Simulate only a part of each steady interval.
    pub extrapolate: bool,
    /// Looks back at the layout as found.
    pub look_back: Option<LookBack>,
    /// Keep the values of each interval.
    pub with_samples: bool,
}

/// Result of a simulation.
#[derive(Clone, Debug)]
pub(super) struct Done {
    pub result: PolicyResult,
    /// Memory regions that the sampled sets cover badly.
    pub gaps: Vec<Gap>,
}

impl Job<'_> {
    /// Simulated time it takes, ns.
    pub fn simulated_ns(&self) -> u64 {
        (self.duration_ns() as f64 / self.scenario.time_factor) as u64
    }

    /// The server, switched on.
    pub fn server(&self) -> Result<VirtualServer, RunError> {
        let options = RunOptions { seed: self.seed, sample_seed: self.sample_seed, sampling: self.sampling };
        let server = VirtualServer::new(self.scenario.clone(), options);
        let mut server = server.map_err(|error| match error {
            ScenarioError::Memory { workload, why, .. } => {
                ScenarioError::Memory { file: self.file.to_owned(), workload, why }
            }
            other => other,
        })?;
        let (stop, inside_ns) = (self.stop.clone(), self.inside_ns.clone());
        server.observe(Arc::new(move |ns| {
            // Relaxed: the time is only shown, and some time more does not matter.
            inside_ns.fetch_add(ns as i64, Ordering::Relaxed);
            if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }));
        if self.extrapolate {
            server.extrapolate_steady_intervals();
        }
        Ok(server)
    }

    /// Its policy, built for this simulation alone.
    pub fn policy(&self) -> Result<Box<dyn Policy>, RunError> {
        let settings = self.scenario.policy_settings.get(self.policy).and_then(toml::Value::as_table);
        plan::build(self.policy, self.own, settings.unwrap_or(&Table::new())).map_err(|why| {
            // The start of a policy in a process of its own ends with the user's interrupt.
            let is_stopped = self.stop.load(Ordering::Relaxed);
            if is_stopped { RunError::Interrupted } else { RunError::policy(self.file, why) }
        })
    }

    /// Checks that the policy fits the server, and that the period is not 0.
    pub fn check(&self, policy: &dyn Policy, inventory: &Inventory) -> Result<(), RunError> {
        let names: Vec<&str> =
            self.scenario.workloads.iter().map(|workload| workload.name.as_str()).collect();
        policy.check(inventory, &names).map_err(|why| RunError::policy(self.file, Box::new(why)))?;
        if self.config().period_ns == 0 { Err(self.stopped(ControlError::NoPeriod)) } else { Ok(()) }
    }

    /// When the control loop steps and when it ends.
    pub fn config(&self) -> ControlConfig {
        let config = ControlConfig::every(nanoseconds(self.scenario.interval_s)).lasting(self.duration_ns());
        ControlConfig { look_back: self.look_back, ..config }
    }

    /// An empty log of a run.
    pub fn run_log(&self, inventory: &Inventory) -> RunLog<'_> {
        RunLog::new(self.scenario, inventory.ports.clone(), self.with_samples, self.stop)
    }

    /// Start of the measured interval, ns of the server's clock.
    pub fn measure_from_ns(&self) -> u64 {
        self.duration_ns().saturating_sub(nanoseconds(self.scenario.measure_s))
    }

    fn duration_ns(&self) -> u64 {
        nanoseconds(self.scenario.duration_s)
    }

    /// The error of a loop that cannot continue: the user's interrupt, if there was one.
    pub fn stopped(&self, why: ControlError) -> RunError {
        if self.stop.load(Ordering::Relaxed) {
            return RunError::Interrupted;
        }
        RunError::Stopped { policy: self.policy.to_owned(), seed: self.seed, why }
    }

    /// The result: the loop's records, and the server's measurements until its end.
    pub fn result(&self, run_log: RunLog<'_>, server: &VirtualServer) -> Done {
        let scenario = self.scenario;
        let mut result = run_log.finish(scenario.duration_s, scenario.interval_s);
        let measured = server.measured();
        result.simulated_s = server.simulated_s();
        result.workloads = workloads(scenario, &measured);
        for (index, workload) in result.workloads.values_mut().enumerate() {
            count_commands(&mut workload.metrics, server.commands(index));
        }
        result.system = SystemResult {
            metrics: system_metrics(&measured.system, server.write_backs()),
            sampling_error: IndexMap::new(),
            spread: IndexMap::new(),
        };
        count_opcodes(&mut result.system.metrics, server.opcodes());
        estimate_errors(&mut result, &server.sampling_errors());
        result.evictions = evictions(scenario, &server.evictions());
        Done { result, gaps: server.gaps() }
    }
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

/// Eviction rates with the names of workloads and devices.
fn evictions(scenario: &Scenario, rates: &[EvictionRate]) -> Vec<Evictions> {
    let nics = scenario.nics.iter().map(|nic| &nic.name);
    let devices: Vec<&String> = nics.chain(scenario.storage.iter().map(|array| &array.name)).collect();
    let name = |agent| match agent {
        Agent::Workload(workload) => scenario.workloads[workload].name.clone(),
        Agent::Device(device) => devices[device].clone(),
    };
    let named = rates.iter().map(|rate| Evictions {
        by: name(rate.by),
        of: name(rate.of),
        reason: rate.reason,
        lines_per_s: rate.lines_per_s,
        unread_lines_per_s: rate.unread_lines_per_s,
    });
    let mut named: Vec<Evictions> = named.collect();
    results::order_evictions(&mut named);
    named
}

pub(super) fn workloads(scenario: &Scenario, measured: &Measured) -> IndexMap<String, WorkloadResult> {
    let results = scenario.workloads.iter().zip(&measured.workloads).zip(&measured.job_commands);
    results
        .map(|((spec, one), jobs)| (spec.name.clone(), workload(scenario, spec, one, jobs, measured)))
        .collect()
}

fn workload(
    scenario: &Scenario,
    spec: &WorkloadSpec,
    measured: &WorkloadMeasured,
    job_commands: &[u64],
    all: &Measured,
) -> WorkloadResult {
    let jobs = spec.blueprint.job_spans().into_iter().zip(job_commands);
    let nic = spec.nic.map(|nic| scenario.nics[nic].name.clone());
    let storage = spec.storage.map(|array| scenario.storage[array].name.clone());
    let unit = match spec.program.unit {
        WorkUnit::Packets => ThroughputUnit::Packets,
        WorkUnit::Bytes => ThroughputUnit::Bytes,
        WorkUnit::Operations => ThroughputUnit::Operations,
        WorkUnit::Instructions => ThroughputUnit::Instructions,
    };
    WorkloadResult {
        program: spec.program.name.to_owned(),
        cores: spec.cores.clone(),
        priority: spec.priority,
        kind: spec.program.kind,
        devices: nic.into_iter().chain(storage).collect(),
        idle_jobs: jobs.filter(|(_, commands)| **commands == 0).map(|(span, _)| span.name).collect(),
        score: match spec.program.score {
            waykeeper_machine::ScoreKind::InverseLatency => Score::InverseLatency,
            waykeeper_machine::ScoreKind::Ipc => Score::Ipc,
        },
        throughput_unit: Some(unit),
        metrics: workload_metrics(spec, measured, all),
        cause: None,
        sampling_error: IndexMap::new(),
        spread: IndexMap::new(),
    }
}

fn workload_metrics(spec: &WorkloadSpec, measured: &WorkloadMeasured, all: &Measured) -> WorkloadMetrics {
    let us = |ns: Option<f64>| ns.map(|ns| ns / 1e3);
    let throughput = match spec.program.unit {
        WorkUnit::Bytes => measured.bytes_per_s,
        WorkUnit::Packets | WorkUnit::Operations | WorkUnit::Instructions => measured.operations_per_s,
    };
    let network = spec.program.kind == WorkloadKind::NetworkIo;
    let offered = measured.operations_per_s + measured.dropped_per_s;
    let busy_cores = measured.busy_ratio * spec.cores.len() as f64;
    // Misses of the MLC may overlap, so this is the most that they take.
    let llc_s =
        (measured.demand_mlc_misses_per_s + measured.prefetches_per_s) * all.system.memory_latency_ns * 1e-9;
    WorkloadMetrics {
        performance_ratio: None,
        throughput: Some(throughput),
        latency_mean_us: us(measured.latency_mean_ns),
        latency_p50_us: us(measured.latency_p50_ns),
        latency_p99_us: us(measured.latency_p99_ns),
        queueing_mean_us: us(measured.queueing_mean_ns),
        pointer_mean_us: us(measured.pointer_mean_ns),
        processing_mean_us: us(measured.processing_mean_ns),
        ipc: measured.ipc,
        llc_hit_ratio: measured.llc_hit_ratio,
        mlc_hit_ratio: measured.mlc_hit_ratio,
        llc_misses_per_s: Some(measured.llc_misses_per_s),
        llc_occupancy_bytes: Some(measured.llc_occupancy_bytes),
        // The model does not keep memory traffic per workload.
        memory_read_bytes_per_s: None,
        memory_write_bytes_per_s: None,
        drops_per_s: network.then_some(measured.dropped_per_s),
        dropped_ratio: (network && offered > 0.0).then(|| measured.dropped_per_s / offered),
        llc_time_ratio: (busy_cores > 0.0).then(|| llc_s / busy_cores),
        drive_busy_ratio: spec.storage.and_then(|array| all.drive_busy_ratios.get(array).copied()),
        ..WorkloadMetrics::default()
    }
}

/// The standard errors of hit ratios, in percentage points.
fn estimate_errors(result: &mut PolicyResult, errors: &SamplingErrors) {
    let points = |errors: [(&str, Option<f64>); 2]| -> IndexMap<String, f64> {
        let known = errors.into_iter().filter_map(|(key, error)| Some((key.to_owned(), 100.0 * error?)));
        known.collect()
    };
    for (workload, of) in result.workloads.values_mut().zip(&errors.workloads) {
        workload.sampling_error = points([("llc_hit_ratio", of.llc), ("mlc_hit_ratio", of.mlc)]);
    }
    let devices = [("dca_write_hit_ratio", errors.dca_write), ("dca_read_hit_ratio", errors.dca_read)];
    result.system.sampling_error = points(devices);
}

/// Counters of block commands, for programs that have them.
fn count_commands(metrics: &mut WorkloadMetrics, commands: Option<Commands>) {
    metrics.commands_per_s = commands.map(|commands| commands.commands_per_s);
    metrics.blocks_per_s = commands.map(|commands| commands.blocks_per_s);
    metrics.transfer_bytes_per_s = commands.map(|commands| commands.bytes_per_s);
}

/// The opcode events, on chips that have them.
fn count_opcodes(metrics: &mut SystemMetrics, opcodes: Option<Opcodes>) {
    let Opcodes { pcie_rdcur, itom, rfo } = opcodes.unwrap_or_default();
    metrics.pcie_rdcur_hits_per_s = pcie_rdcur.map(|events| events.hits_per_s);
    metrics.pcie_rdcur_misses_per_s = pcie_rdcur.map(|events| events.misses_per_s);
    metrics.itom_hits_per_s = itom.map(|events| events.hits_per_s);
    metrics.itom_misses_per_s = itom.map(|events| events.misses_per_s);
    metrics.rfo_hits_per_s = rfo.map(|events| events.hits_per_s);
    metrics.rfo_misses_per_s = rfo.map(|events| events.misses_per_s);
}

fn system_metrics(measured: &SystemMeasured, write_backs: WriteBacks) -> SystemMetrics {
    SystemMetrics {
        memory_read_bytes_per_s: Some(measured.memory_read_bytes_per_s),
        memory_write_bytes_per_s: Some(measured.memory_write_bytes_per_s),
        memory_latency_ns: Some(measured.memory_latency_ns),
        dca_write_hit_ratio: measured.dca_write_hit_ratio,
        dca_read_hit_ratio: measured.dca_read_hit_ratio,
        dma_leak_lines_per_s: Some(measured.dma_leak_lines_per_s),
        dma_bloat_lines_per_s: Some(measured.dma_bloat_lines_per_s),
        mlc_writebacks_per_s: Some(write_backs.mlc_lines_per_s),
        llc_writebacks_per_s: Some(write_backs.llc_lines_per_s),
        drops_per_s: Some(measured.drops_per_s),
        inbound_bytes_per_s: Some(measured.inbound_bytes_per_s),
        outbound_bytes_per_s: Some(measured.outbound_bytes_per_s),
        ..SystemMetrics::default()
    }
}
