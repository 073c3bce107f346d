//! The records of a simulation's control loop, kept as decisions, way map, worth and samples. Must not know how the loop is
//! run.

use crate::results::{
    CauseRecord, DecisionRecord, KnobHistory, Names, PolicyResult, PolicyWorth, SystemMetrics, TimeSample,
    WayMapBuilder, WorkloadMetrics,
};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use waykeeper_control::{Observer, StepRecord};
use waykeeper_host::{
    Interval, KnobValues, Plan, PortCounter, Reading, RootPort, SocketCounter, Workload, WorkloadCounter,
    WorkloadRates,
};
use waykeeper_machine::Scenario;
use waykeeper_policy::Decision;
use waykeeper_units::WorkloadId;

/// Records the observations of the loop.
pub(super) struct RunLog<'a> {
    /// Every workload of the scenario, running or not: an id always means the same one.
    groups: Vec<Workload>,
    ports: Vec<RootPort>,
    with_samples: bool,
    stop: &'a AtomicBool,
    decisions: Vec<DecisionRecord>,
    ways: WayMapBuilder,
    knob_history: KnobHistory<KnobValues>,
    worth: PolicyWorth,
    samples: Vec<TimeSample>,
    /// Per workload, the server's latency totals at the end of the interval before.
    latency_totals: Vec<(f64, f64)>,
    /// The last sample is of the interval that was observed last.
    sampled: bool,
}

impl<'a> RunLog<'a> {
    pub fn new(
        scenario: &Scenario,
        ports: Vec<RootPort>,
        with_samples: bool,
        stop: &'a AtomicBool,
    ) -> RunLog<'a> {
        let groups = scenario.workloads.iter().enumerate().map(|(index, workload)| Workload {
            id: WorkloadId(index as u32),
            name: workload.name.clone(),
            priority: workload.priority,
            kind: workload.program.kind,
            cores: workload.cores.clone(),
            devices: Vec::new(),
            stack: workload.stack,
            mask: workload.mask,
        });
        RunLog {
            groups: groups.collect(),
            ports,
            with_samples,
            stop,
            decisions: Vec::new(),
            ways: WayMapBuilder::default(),
            knob_history: KnobHistory::default(),
            worth: PolicyWorth::default(),
            samples: Vec::new(),
            latency_totals: Vec::new(),
            sampled: false,
        }
    }

    /// Adds the latencies of the interval to its sample, from the server's totals: no counter shows them.
    pub fn add_latencies(&mut self, totals: impl Iterator<Item = (f64, f64)>) {
        if !self.with_samples {
            return;
        }
        let totals: Vec<(f64, f64)> = totals.collect();
        if let Some(sample) = self.samples.last_mut().filter(|_| self.sampled) {
            for (index, (group, (sum_ns, count))) in self.groups.iter().zip(&totals).enumerate() {
                let before = self.latency_totals.get(index).copied().unwrap_or_default();
                // The totals begin again with the measured interval.
                let (sum_ns, count) =
                    if *count < before.1 { (*sum_ns, *count) } else { (sum_ns - before.0, count - before.1) };
                if let Some(metrics) = sample.workloads.get_mut(&group.name) {
                    metrics.latency_mean_us = (count > 0.0).then(|| sum_ns / count / 1e3);
                }
            }
        }
        self.latency_totals = totals;
    }

    /// The result so far: decisions, way map, worth and samples.
    pub fn finish(self, duration_s: f64, interval_s: f64) -> PolicyResult {
        PolicyResult {
            settled_s: self.knob_history.settled_s(duration_s, interval_s),
            worth: Some(self.worth),
            decisions: self.decisions,
            way_map: self.ways.finish(duration_s),
            samples: self.samples,
            ..PolicyResult::default()
        }
    }

    fn sample(&self, record: &StepRecord, seen: &Interval) -> TimeSample {
        let workloads = seen.groups.iter().filter_map(|(id, rates)| {
            let group = self.groups.get(id.index())?;
            Some((group.name.clone(), workload_metrics(rates)))
        });
        TimeSample {
            at_s: seconds(record.at_ns),
            state: (!record.state.is_empty()).then(|| record.state.clone()),
            workloads: workloads.collect(),
            system: system_metrics(seen),
        }
    }
}

impl Observer for RunLog<'_> {
    fn observe(&mut self, record: &StepRecord, seen: Option<&Interval>) -> ControlFlow<()> {
        let at_s = seconds(record.at_ns);
        let names = Names { groups: &self.groups, ports: &self.ports };
        let decision =
            Decision { plan: turned(record), state: record.state.clone(), events: record.events.clone() };
        self.decisions.extend(DecisionRecord::of(at_s, &decision, &record.applied, names));
        self.decisions.extend(record.problems.iter().map(|problem| DecisionRecord {
            at_s,
            state: record.state.clone(),
            action: "problem".to_owned(),
            group: None,
            text: problem.to_string(),
            causes: CauseRecord::all(&problem.causes()),
            knobs: Vec::new(),
        }));
        self.ways.push(at_s, &record.knobs, names);
        self.knob_history.push(at_s, &record.knobs, !decision.plan.is_empty());
        self.worth.note(at_s, &record.worth, &self.groups, record.look_back);
        self.sampled = self.with_samples && seen.is_some();
        if let Some(seen) = seen.filter(|_| self.with_samples) {
            let sample = self.sample(record, seen);
            self.samples.push(sample);
        }
        // Relaxed: no other data depends on it, and one interval more does not matter.
        if self.stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Seconds of a time in ns; divided, not multiplied, so that 29 s is 29 and not 29.000000000000004.
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// The part of the policy's plan that was turned: knobs that read back as wanted already are left out.
fn turned(record: &StepRecord) -> Plan {
    let mut plan = record.wanted.clone();
    plan.retain(|knob, _| record.applied.names(knob));
    plan
}

fn workload_metrics(rates: &WorkloadRates) -> WorkloadMetrics {
    WorkloadMetrics {
        ipc: rates.ipc(),
        llc_hit_ratio: rates.llc_hit_ratio(),
        mlc_hit_ratio: rates.mlc_miss_ratio().map(|ratio| 1.0 - ratio),
        llc_misses_per_s: rates[WorkloadCounter::LlcMisses].value(),
        llc_occupancy_bytes: rates[WorkloadCounter::OccupancyBytes].value(),
        ..WorkloadMetrics::default()
    }
}

fn system_metrics(seen: &Interval) -> SystemMetrics {
    let socket = &seen.socket;
    let sum =
        |values: &mut dyn Iterator<Item = Reading<f64>>| values.map(Reading::value).sum::<Option<f64>>();
    SystemMetrics {
        memory_read_bytes_per_s: socket[SocketCounter::MemoryReadBytes].value(),
        memory_write_bytes_per_s: socket[SocketCounter::MemoryWriteBytes].value(),
        dca_write_hit_ratio: socket.dca_write_miss_ratio().map(|ratio| 1.0 - ratio),
        dca_read_hit_ratio: socket.dca_read_miss_ratio().map(|ratio| 1.0 - ratio),
        inbound_bytes_per_s: sum(&mut seen.ports.values().map(|port| port[PortCounter::InboundBytes])),
        outbound_bytes_per_s: sum(&mut seen.ports.values().map(|port| port[PortCounter::OutboundBytes])),
        ..SystemMetrics::default()
    }
}
