//! Sensitivity of each application to DCA: its throughput with DCA on and off alternately (ddio-bench s7, Table 2).
//!
//! Latency is not judged, because hosts have no counter for it. Must not know how switches are judged.

use crate::experiment::{ProbeError, ProbeExperiment};
use crate::stats;
use crate::verdict::{Confidence, ProbeVerdict};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use waykeeper_host::{Interval, Knob, KnobOutcome, PortCounter, Workload, WorkloadCounter};
use waykeeper_operator::ddio::LOAD_PER_S;
use waykeeper_units::{PortId, WorkloadId};

/// The largest change that is `Low` (ddio-bench s7: at most 5 %).
pub const LOW: f64 = 0.05;

/// Sensitivity to DCA.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sensitivity {
    /// The largest change is at most 5 %.
    Low,
    /// The largest change is above 5 %.
    High,
}

/// The results for an application.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AppVerdict {
    /// The application.
    pub group: WorkloadId,
    /// Its name.
    pub name: String,
    /// Its sensitivity.
    pub sensitivity: ProbeVerdict<Sensitivity>,
    /// Change of each measured quantity when DCA is switched off, relative to its value with DCA.
    pub changes: Vec<Change>,
}

/// The change of a quantity when DCA is switched off.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Change {
    /// The quantity.
    pub what: String,
    /// The change: -0.1 is a tenth less without DCA.
    pub by: f64,
    /// Half the width of its 99 % confidence interval.
    pub margin: f64,
    /// False for quantities that are shown but not judged: a polling program executes instructions without doing work.
    pub judged: bool,
}

/// Number of waits, for the progress bar.
pub fn waits(rounds: u32) -> u64 {
    4 * u64::from(rounds) + 4
}

/// Measures every application.
///
/// # Errors
/// Host errors; an interrupt.
pub fn measure(experiment: &mut ProbeExperiment<'_>) -> Result<Vec<AppVerdict>, ProbeError> {
    let groups = experiment.workloads();
    let all: Vec<PortId> = experiment.inventory().ports.iter().map(|port| port.id).collect();
    let on = experiment.switch(all.iter().copied(), true)?;
    let taken = |port: &PortId| on.get(Knob::Dca(*port)) == Some(&KnobOutcome::Applied);
    let ports: Vec<PortId> = all.into_iter().filter(taken).collect();
    if ports.is_empty() {
        let why = on.values().find_map(|outcome| match outcome {
            KnobOutcome::Refused(why) | KnobOutcome::Busy(why) | KnobOutcome::ReadsBack(why) => {
                Some(why.clone())
            }
            KnobOutcome::Applied => None,
        });
        let why = why.map_or_else(
            || "this host has no root port".to_owned(),
            |why| format!("DCA cannot be switched here: {why}"),
        );
        let verdict = || {
            ProbeVerdict::cannot_tell(
                why.clone(),
                "a CPU with a DCA switch per port, or the BIOS's switch for all ports",
            )
        };
        return Ok(groups.iter().map(|group| verdict_of(group, verdict(), Vec::new())).collect());
    }
    let (mut with, mut without) = (Vec::new(), Vec::new());
    // A first pass is discarded, because it shows the cache state from before the probe.
    for on in [true, false] {
        experiment.switch(ports.iter().copied(), on)?;
        experiment.settle_and_sample()?;
    }
    for _ in 0..experiment.pace().rounds {
        for on in [true, false] {
            experiment.switch(ports.iter().copied(), on)?;
            let seen = experiment.settle_and_sample()?;
            if on { with.push(seen) } else { without.push(seen) }
        }
    }
    let inventory = experiment.inventory();
    let apps = groups.iter().map(|group| {
        let devices = inventory.devices.iter().filter(|device| group.devices.contains(&device.id));
        let own: BTreeSet<PortId> = devices.flat_map(|device| device.ports.iter().copied()).collect();
        let shared = groups.iter().filter(|other| other.id != group.id).any(|other| shares(other, group));
        judge(group, &own, shared, &with, &without)
    });
    Ok(apps.collect())
}

fn shares(a: &Workload, b: &Workload) -> bool {
    a.devices.iter().any(|device| b.devices.contains(device))
}

fn verdict_of(group: &Workload, sensitivity: ProbeVerdict<Sensitivity>, changes: Vec<Change>) -> AppVerdict {
    AppVerdict { group: group.id, name: group.name.clone(), sensitivity, changes }
}

fn judge(
    group: &Workload,
    ports: &BTreeSet<PortId>,
    shared: bool,
    with: &[Interval],
    without: &[Interval],
) -> AppVerdict {
    let bytes = |seen: &Interval| -> Option<f64> {
        let of = |port: &PortId| {
            let rates = seen.ports.get(port)?;
            rates.sum(PortCounter::InboundBytes, PortCounter::OutboundBytes).value()
        };
        ports.iter().map(of).sum()
    };
    let rates = |seen: &Interval| seen.groups.get(&group.id).copied();
    let own_ports = !ports.is_empty() && !shared;
    let throughput = own_ports.then(|| change("bytes over its ports", with, without, true, bytes)).flatten();
    let is_judged = ports.is_empty();
    let work = change("instructions", with, without, is_judged, |seen| {
        rates(seen)?[WorkloadCounter::Instructions].value()
    });
    let misses =
        change("LLC misses", with, without, false, |seen| rates(seen)?[WorkloadCounter::LlcMisses].value());
    let changes: Vec<Change> = throughput.into_iter().chain(work).chain(misses).collect();
    let judged = changes.iter().filter(|change| change.judged);
    let Some(largest) = judged.max_by(|a, b| a.by.abs().total_cmp(&b.by.abs())) else {
        let (why, help) = match shared {
            true => ("its ports also carry other tenants' traffic", "run the tenant alone on its device"),
            false => (
                "neither the bytes of its ports nor its instructions can be counted",
                "see the remedies of `waykeeper doctor`",
            ),
        };
        return verdict_of(group, ProbeVerdict::cannot_tell(why, help), changes);
    };
    let by = largest.by.abs();
    let evidence = changes.iter().map(|change| {
        format!(
            "{} change by {:+.1} % (±{:.1}) without DCA",
            change.what,
            100.0 * change.by,
            100.0 * change.margin
        )
    });
    let evidence: Vec<String> = evidence.collect();
    let clear = (by - LOW).abs() > largest.margin;
    let confidence = if clear { Confidence::High } else { Confidence::Moderate };
    let level = if by <= LOW { Sensitivity::Low } else { Sensitivity::High };
    verdict_of(group, ProbeVerdict::found(level, confidence, evidence), changes)
}

/// The mean relative change between alternate samples; `None` if the quantity cannot be counted, or is below
/// `LOAD_PER_S` with DCA.
fn change(
    what: &str,
    with: &[Interval],
    without: &[Interval],
    judged: bool,
    of: impl Fn(&Interval) -> Option<f64>,
) -> Option<Change> {
    let pair = |(on, off): (&Interval, &Interval)| {
        let (on, off) = (of(on)?, of(off)?);
        (on >= LOAD_PER_S).then(|| off / on - 1.0)
    };
    let changes: Option<Vec<f64>> = with.iter().zip(without).map(pair).collect();
    let mean = stats::mean(&changes?)?;
    Some(Change { what: what.to_owned(), by: mean.value, margin: stats::margin(&mean)?, judged })
}
