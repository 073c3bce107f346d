//! Warnings about what is silent while it is measured: workloads, jobs, devices that nothing uses, phases that never begin.
//!
//! Each has its reason and the key to change. Must not know how a report shows a warning.

use crate::results::{RunSummary, Warning, WarningKey, WorkloadResult};
use crate::show;
use waykeeper_machine::{JobSpan, NicSpec, Scenario, TrafficSpec, WorkloadSpec};
use waykeeper_units::few;

/// A reason, and the key to change.
type Reason = (String, String);

/// The measured stretch of a scenario, s on the server's clock.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    from_s: f64,
    to_s: f64,
    /// Seconds of that clock per second of traffic.
    factor: f64,
}

impl Stretch {
    /// `20.0 ms`, its length in traffic.
    fn traffic(self) -> String {
        format!("{} ms", show::digits((self.to_s - self.from_s) / self.factor * 1e3))
    }

    /// A time of traffic after a time of the server's clock, on that clock, s.
    fn after(self, start_s: f64, traffic_ns: f64) -> f64 {
        start_s + traffic_ns * 1e-9 * self.factor
    }
}

/// What does nothing while it is measured, under each policy alike or under some.
pub(super) fn of(scenario: &Scenario, runs: &[RunSummary]) -> Vec<Warning> {
    let from_s = runs.first().map_or(0.0, |run| run.measured_from_s);
    let stretch = Stretch { from_s, to_s: scenario.duration_s, factor: scenario.time_factor };
    let mut found: Vec<Warning> = unused_devices(scenario);
    found.extend(late_phases(scenario));
    for workload in &scenario.workloads {
        match silent_under(&workload.name, runs, did_nothing) {
            Some(under) => {
                let (why, advice) = reason(scenario, workload, runs, stretch);
                let name = show::name(&workload.name);
                found
                    .push(warning(format!("{name} did nothing while it was measured{under}: {why}"), advice));
            }
            None => {
                let known = silent_jobs(workload, stretch);
                let measured = idle_jobs(workload, &known, runs, stretch);
                let silent = known.into_iter().flatten().chain(measured);
                found.extend(silent.map(|(why, advice)| warning(why, advice)));
            }
        }
    }
    found
}

fn warning(text: String, advice: String) -> Warning {
    Warning { key: WarningKey::Silent, text, advice }
}

/// Packets that are dropped are work that was not done.
fn did_nothing(result: &WorkloadResult) -> bool {
    result.metrics.throughput == Some(0.0)
}

/// The policies under which a workload's result is silent: ` under NAME`, nothing for all of them; none if it never is.
fn silent_under(
    workload: &str,
    runs: &[RunSummary],
    is_silent: impl Fn(&WorkloadResult) -> bool,
) -> Option<String> {
    let mut policies: Vec<&str> = Vec::new();
    for (policy, result) in runs.iter().flat_map(|run| &run.policies) {
        let own = result.workloads.get(workload);
        if own.is_some_and(&is_silent) && !policies.contains(&policy.as_str()) {
            policies.push(policy);
        }
    }
    let count = runs.first().map_or(0, |run| run.policies.len());
    match policies.len() {
        0 => None,
        some if some == count => Some(String::new()),
        _ => Some(format!(" under {}", policies.join(", "))),
    }
}

/// NICs and arrays that no workload names.
fn unused_devices(scenario: &Scenario) -> Vec<Warning> {
    let nics = scenario.nics.iter().enumerate().map(|(index, nic)| {
        (&nic.name, "nic", scenario.workloads.iter().any(|workload| workload.nic == Some(index)))
    });
    let arrays = scenario.storage.iter().enumerate().map(|(index, array)| {
        (&array.name, "storage", scenario.workloads.iter().any(|workload| workload.storage == Some(index)))
    });
    let unused = nics.chain(arrays).filter(|(_, _, is_used)| !is_used);
    let warned = unused.map(|(name, key, _)| {
        let text = format!("{} moves nothing: no workload uses it", show::name(name));
        let name = show::plain(name);
        warning(text, format!("`{key} = \"{name}\"` in a `[[workload]]` uses it; or remove its `[[{key}]]`"))
    });
    warned.collect()
}

/// Phases and faults after the end of the run.
fn late_phases(scenario: &Scenario) -> Vec<Warning> {
    let end_s = scenario.duration_s;
    let of = |name: &str| ("phase", format!(" of {}", show::name(name)));
    let nics = scenario.nics.iter().map(|nic| {
        let times: Vec<f64> = nic.phases.iter().map(|phase| phase.at_s).collect();
        (of(&nic.name), times)
    });
    let workloads = scenario.workloads.iter().map(|workload| {
        let times: Vec<f64> = workload.phases.iter().map(|phase| phase.at_s).collect();
        (of(&workload.name), times)
    });
    let knobs = (
        ("phase", " of the knobs".to_owned()),
        scenario.knob_phases.iter().map(|phase| phase.at_s).collect(),
    );
    let faults = (("fault", String::new()), scenario.faults.iter().map(|fault| fault.at_s).collect());
    let late = nics.chain(workloads).chain([knobs, faults]).filter_map(|((what, of), mut times)| {
        times.retain(|at_s| *at_s >= end_s);
        times.sort_by(f64::total_cmp);
        let last = times.last()?;
        let (plural, verb) = if times.len() == 1 { ("", "does") } else { ("s", "do") };
        let listed: Vec<String> = times.iter().map(|at_s| format!("{at_s} s")).collect();
        let text =
            format!("the {what}{plural}{of} at {} {verb} not begin: the run ends at {end_s} s", few(&listed));
        Some(warning(text, format!("`--duration N` with N above {last} plays to the last one")))
    });
    late.collect()
}

/// Why a workload did nothing, and the key to change.
fn reason(scenario: &Scenario, workload: &WorkloadSpec, runs: &[RunSummary], stretch: Stretch) -> Reason {
    if let Some(reason) = not_running(workload, stretch) {
        return reason;
    }
    if let Some(name) = &workload.switch
        && let Some(switch) = scenario.workloads.iter().find(|other| other.name == *name)
        && silent_under(&switch.name, runs, did_nothing).is_some()
    {
        let (why, advice) = reason(scenario, switch, runs, stretch);
        return (format!("its switch {} did nothing either: {why}", show::name(name)), advice);
    }
    let peer = scenario.workloads.iter().find(|other| {
        other.peer.as_ref() == Some(&workload.name) || workload.peer.as_ref() == Some(&other.name)
    });
    if let Some((peer, (why, advice))) = peer.and_then(|peer| Some((peer, not_running(peer, stretch)?))) {
        return (format!("{} was not there: {why}", show::name(&peer.name)), advice);
    }
    if let Some(nic) = workload.nic.map(|index| &scenario.nics[index]) {
        return of_nic(scenario, workload, nic, runs, stretch);
    }
    let traffic = stretch.traffic();
    let jobs = silent_jobs(workload, stretch);
    let spans = workload.blueprint.job_spans();
    if !jobs.is_empty() && jobs.iter().all(Option::is_some) {
        let (mut why, mut advice): (Vec<String>, Vec<String>) = jobs.into_iter().flatten().unzip();
        why.dedup();
        advice.dedup();
        return (why.join("; "), advice.join("; "));
    }
    if spans.iter().any(|span| span.is_counted) {
        let why = format!(
            "no command of its job file ended within the measured {traffic} of traffic, and a number of commands ends its jobs"
        );
        return (why, time_based());
    }
    (format!("none of its work ended within the measured {traffic} of traffic"), more_traffic())
}

fn more_traffic() -> String {
    "`--set time_factor=N` with a smaller N measures more traffic".to_owned()
}

/// Why a workload does not run within the stretch, if it does not.
fn not_running(workload: &WorkloadSpec, stretch: Stretch) -> Option<Reason> {
    let Stretch { from_s, to_s, .. } = stretch;
    let name = show::plain(&workload.name);
    let start_s = workload.start_s;
    if start_s >= to_s {
        let why = format!("it starts at {start_s} s, the measurement ends at {to_s} s");
        return Some((why, format!("`--set workload.{name}.start_s=N` starts it earlier")));
    }
    if let (Some(stop_s), None) = (workload.stop_s, workload.every_s)
        && stop_s <= from_s
    {
        let why = format!("it stops at {stop_s} s, the measurement begins at {from_s} s");
        return Some((why, format!("`--set workload.{name}.stop_s=N` keeps it running")));
    }
    // The last start before the end of the stretch.
    let last_s = workload.every_s.map_or(start_s, |every_s| {
        start_s + ((to_s - start_s) / every_s).ceil().max(1.0).mul_add(every_s, -every_s)
    });
    if let (Some(stop_s), Some(every_s)) = (workload.stop_s, workload.every_s)
        && last_s + (stop_s - start_s) <= from_s
    {
        let why = format!(
            "it runs for {} s each {every_s} s, and not between {from_s} and {to_s} s, which are measured",
            stop_s - start_s
        );
        return Some((why, format!("`--set workload.{name}.every_s=N` starts it again at another time")));
    }
    // Only programs of packets wait.
    let begin_s = stretch.after(last_s, workload.start_delay_ms * 1e6);
    let waits = workload.nic.is_some() || workload.switch.is_some();
    // Of several starts an earlier one may have done something.
    (waits && workload.every_s.is_none() && begin_s >= to_s).then(|| {
        let why = format!(
            "its threads begin {} ms of traffic after its start at {last_s} s, the measurement ends at {to_s} s",
            workload.start_delay_ms
        );
        (why, format!("`--set workload.{name}.start_delay_ms=N` with a smaller N starts them earlier"))
    })
}

/// For each job of a workload whether it sends nothing within the stretch, as far as the job file says. Nothing is known of
/// a workload that starts again.
fn silent_jobs(workload: &WorkloadSpec, stretch: Stretch) -> Vec<Option<Reason>> {
    let restarts =
        workload.every_s.is_some() || workload.phases.iter().any(|phase| phase.blueprint.is_some());
    if restarts || not_running(workload, stretch).is_some() {
        return Vec::new();
    }
    let name = show::plain(&workload.name);
    let ms = |traffic_s: f64| format!("{} ms of traffic", show::digits(traffic_s / stretch.factor * 1e3));
    let silent = workload.blueprint.job_spans().into_iter().map(|span| {
        let JobSpan { name: job, from_ns, to_ns, .. } = span;
        let of = format!("the job {} of {}", show::name(&job), show::name(&workload.name));
        let job = show::plain(&job);
        if from_ns.is_infinite() {
            let why = format!("{of} never begins: a job before its `stonewall` has no end");
            return Some((
                why,
                format!("`--set workload.{name}.fio_job={job}` plays it alone; or give that job a `runtime`"),
            ));
        }
        let (from_s, to_s) =
            (stretch.after(workload.start_s, from_ns), stretch.after(workload.start_s, to_ns));
        if from_s >= stretch.to_s {
            let why = format!(
                "{of} begins after {} at the earliest, the measurement ends after {}",
                ms(from_s),
                ms(stretch.to_s)
            );
            let advice =
                "a shorter `runtime` of the jobs before it, or a shorter `startdelay`, lets it begin";
            return Some((why, advice.to_owned()));
        }
        (to_s <= stretch.from_s).then(|| {
            let why = format!(
                "{of} ends after {} at the latest, the measurement begins after {}",
                ms(to_s),
                ms(stretch.from_s)
            );
            (why, "a longer `runtime` in the job file keeps it running".to_owned())
        })
    });
    silent.collect()
}

/// The jobs of a workload that sent nothing although their file lets them. `known`: what the file says of each.
fn idle_jobs(
    workload: &WorkloadSpec,
    known: &[Option<Reason>],
    runs: &[RunSummary],
    stretch: Stretch,
) -> Vec<Reason> {
    let spans = workload.blueprint.job_spans();
    let open = spans.iter().zip(known).filter(|(_, why)| why.is_none());
    let idle = open.filter_map(|(span, _)| {
        let under = silent_under(&workload.name, runs, |result| result.idle_jobs.contains(&span.name))?;
        let of = format!("the job {} of {}", show::name(&span.name), show::name(&workload.name));
        let what =
            format!("no command of {of} ended within the measured {} of traffic{under}", stretch.traffic());
        Some(match span.is_counted {
            true => (format!("{what}, and a number of commands ends it"), time_based()),
            false => (what, more_traffic()),
        })
    });
    idle.collect()
}

/// What keeps jobs running that a number of commands ends.
fn time_based() -> String {
    "`time_based=1` in the job file keeps it running".to_owned()
}

/// Why a workload that runs got or processed no packet of its NIC.
fn of_nic(
    scenario: &Scenario,
    workload: &WorkloadSpec,
    nic: &NicSpec,
    runs: &[RunSummary],
    stretch: Stretch,
) -> Reason {
    let nothing = |traffic: &TrafficSpec| match traffic {
        TrafficSpec::Flows { gbps, .. } => *gbps <= 0.0,
        TrafficSpec::Capture { gbps, .. } => gbps.is_some_and(|gbps| gbps <= 0.0),
    };
    let Stretch { from_s, to_s, .. } = stretch;
    let (name, plain, traffic) = (show::name(&nic.name), show::plain(&nic.name), stretch.traffic());
    // The traffic at the beginning of the measurement, and all that was offered within it.
    let before = nic.phases.iter().rfind(|phase| phase.at_s <= from_s);
    let mut within = nic.phases.iter().filter(|phase| phase.at_s > from_s && phase.at_s < to_s);
    let first = before.map_or(&nic.traffic, |phase| &phase.traffic);
    if nothing(first) && within.all(|phase| nothing(&phase.traffic)) {
        let why = format!("{name} is offered nothing then");
        // A phase may have a rate of its own, which the key of the NIC does not change.
        let advice = match before {
            Some(phase) => {
                format!("an `offered_gbps` above 0 in its `[[nic.phase]]` at {} s offers some", phase.at_s)
            }
            None => format!("`--set nic.{plain}.offered_gbps=N` offers some"),
        };
        return (why, advice);
    }
    let results = |name: &str| {
        let all = runs.iter().flat_map(|run| run.policies.values());
        all.filter_map(|policy| policy.workloads.get(name)).collect::<Vec<_>>()
    };
    let is_lost = |result: &&WorkloadResult| result.metrics.drops_per_s.is_some_and(|drops| drops > 0.0);
    if results(&workload.name).iter().any(is_lost) {
        let why = format!(
            "none of its packets was processed within the measured {traffic} of traffic, and some were dropped"
        );
        return (why, more_traffic());
    }
    let has_others = scenario.workloads.iter().any(|other| {
        other.name != workload.name
            && other.nic == workload.nic
            && silent_under(&other.name, runs, did_nothing).is_none()
    });
    if has_others {
        let why = format!("all packets of {name} came to other workloads");
        let own = show::plain(&workload.name);
        return (
            why,
            format!("`--set workload.{own}.share=N` gives it a part; so do more `flows` of the NIC"),
        );
    }
    let why = format!("no packet came to {name} within the measured {traffic} of traffic");
    let advice = match first {
        TrafficSpec::Capture { .. } => {
            format!("`--set nic.{plain}.offered_gbps=N` plays its capture at a rate")
        }
        TrafficSpec::Flows { .. } => more_traffic(),
    };
    (why, advice)
}
