//! The options of a run: policies, seeds, sampling, length, threads. Must not know how they are carried out.

use super::RunError;
use std::fmt;
use std::sync::Arc;
use toml::{Table, Value};
use waykeeper_control::LookBack;
use waykeeper_machine::{Scenario, ScenarioSource};
use waykeeper_policy::{Policy, PolicyError};
use waykeeper_silicon::Sampling;

/// Most seeds of one run: a larger number is probably a typing error (ours).
pub const MOST_SEEDS: u32 = 10_000;

/// Most simulations of one run: 10,000 seeds under ten policies (ours). Each result takes kilobytes.
const MOST_SIMULATIONS: usize = 100_000;

/// Intervals of a look back in a run: the first of them is not used, and three others say how much they vary (ours).
const LOOK_INTERVALS: u32 = 4;

/// Most threads: a larger number is probably a typing error (ours).
pub const MOST_THREADS: usize = 4096;

/// A function that builds a policy from its settings.
type Build = dyn Fn(&Table) -> Result<Box<dyn Policy>, Box<PolicyError>> + Send + Sync;

/// A policy of the caller that is not in the registry. It is selected by name like the others; each simulation has its
/// own instance, on the simulation's thread.
#[derive(Clone)]
pub struct OwnPolicy {
    /// The name by which it is selected.
    pub name: String,
    /// Builds it from the settings that the scenario has for this name.
    pub build: Arc<Build>,
    /// What it does, as a text that changes with it. Without one its runs are not kept, because nothing tells whether a
    /// kept one is of the same policy.
    pub identity: Option<String>,
}

impl fmt::Debug for OwnPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnPolicy").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How to run a scenario. The default is the scenario's own values with one seed.
#[derive(Clone, PartialEq, Debug)]
pub struct RunPlan {
    /// Policies to compare, in order; empty means the scenario's.
    pub policies: Vec<String>,
    /// The first seed.
    pub seed: u64,
    /// Number of seeds, counting up from the first.
    pub seeds: u32,
    /// Seed of the choice of sampled sets; `None` is the run's own seed.
    pub sample_seed: Option<u64>,
    /// The part of the sets that is simulated.
    pub sampling: Sampling,
    /// Whether intervals that are steady are simulated in part only, before the measured interval. Has no effect if
    /// every set is simulated, or with a time factor of 1.
    pub extrapolate: bool,
    /// Length of a run on the server's clock, s, instead of the scenario's.
    pub duration_s: Option<f64>,
    /// Start of the measured interval, s, instead of the scenario's; it lasts to the end.
    pub warmup_s: Option<f64>,
    /// Seconds of the server's clock per second of simulated traffic, instead of the scenario's.
    pub time_factor: Option<f64>,
    /// Looks back at the layout as found, by which the control loop measures what a policy is worth. They take intervals
    /// from the policy, also in the measured stretch. `None`: the loop knows only what it sees anyway.
    pub look_back: Option<LookBack>,
    /// Threads; 0 is one for each core.
    pub threads: usize,
}

impl Default for RunPlan {
    fn default() -> RunPlan {
        RunPlan {
            policies: Vec::new(),
            seed: 1,
            seeds: 1,
            sample_seed: None,
            sampling: Sampling::DEFAULT,
            extrapolate: false,
            duration_s: None,
            warmup_s: None,
            time_factor: None,
            look_back: None,
            threads: 0,
        }
    }
}

/// Keys of a scenario that a plan changes, with notes for the reader.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub values: Vec<(&'static str, f64)>,
    pub notes: Vec<String>,
}

impl RunPlan {
    /// Default time between two looks back, s: several in a run of a minute (ours).
    pub const LOOKS_EVERY_S: f64 = 20.0;

    /// Looks back at most every `every_s` seconds of the server's clock.
    ///
    /// # Errors
    /// A time that is not above 0, or that is longer than any run.
    pub fn looks(every_s: f64) -> Result<LookBack, RunError> {
        let every_ns = every_s * 1e9;
        if !(every_ns >= 1.0 && every_ns < u64::MAX as f64) {
            let (what, value) = ("the time between two looks", format!("{every_s} s"));
            return Err(RunError::Plan { what, value, wanted: "above 0 s, as 20".to_owned() });
        }
        Ok(LookBack { every_ns: every_ns as u64, intervals: LOOK_INTERVALS })
    }

    /// The number of threads: one for each core unless it is given.
    pub(crate) fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        if self.threads == 0 { cores() } else { self.threads }
    }

    pub(super) fn check(&self) -> Result<(), RunError> {
        let refuse = |what, value: &dyn ToString, wanted: String| {
            Err(RunError::Plan { what, value: value.to_string(), wanted })
        };
        if !(1..=MOST_SEEDS).contains(&self.seeds) {
            return refuse("the number of seeds", &self.seeds, format!("from 1 to {MOST_SEEDS}"));
        }
        if self.threads > MOST_THREADS {
            return refuse("the number of threads", &self.threads, format!("at most {MOST_THREADS}"));
        }
        Ok(())
    }

    /// Checks the number of simulations.
    pub(super) fn check_size(&self, points: usize, policies: usize) -> Result<(), RunError> {
        let seeds = self.seeds as usize;
        let simulations = points.saturating_mul(policies).saturating_mul(seeds);
        if simulations > MOST_SIMULATIONS {
            return Err(RunError::Plan {
                what: "the number of simulations",
                value: format!(
                    "{simulations} ({points} sweep points, {policies} policies and {seeds} seeds multiplied)"
                ),
                wanted: format!("at most {MOST_SIMULATIONS}"),
            });
        }
        Ok(())
    }

    /// The changes of the plan to `scenario`. The scenario's reader checks the values' ranges.
    pub(super) fn changes(&self, scenario: &Scenario) -> Result<Changes, RunError> {
        let mut changes = Changes::default();
        let duration_s = self.duration_s.unwrap_or(scenario.duration_s);
        changes.values.extend(self.duration_s.map(|value| ("duration_s", value)));
        changes.values.extend(self.time_factor.map(|value| ("time_factor", value)));
        let counted_s = scenario.warmup_s + scenario.measure_s;
        if let Some(warmup_s) = self.warmup_s {
            // Also refuses NaN.
            if !(0.0..duration_s).contains(&warmup_s) {
                let wanted = format!("at least 0 and less than the duration of {duration_s} s");
                return Err(RunError::Plan { what: "the warm-up", value: format!("{warmup_s} s"), wanted });
            }
            changes.values.extend([("warmup_s", warmup_s), ("measure_s", duration_s - warmup_s)]);
        } else if duration_s > 0.0 && counted_s > duration_s {
            let warmup_s = scenario.warmup_s * duration_s / counted_s;
            let measure_s = duration_s - warmup_s;
            changes.values.extend([("warmup_s", warmup_s), ("measure_s", measure_s)]);
            changes.notes.push(format!(
                "a run of {duration_s} s is too short for the scenario's warm-up of {} s and measurement of \
                 {} s: they are shortened to {warmup_s:.3} s and {measure_s:.3} s",
                scenario.warmup_s, scenario.measure_s
            ));
        }
        Ok(changes)
    }
}

/// The policies to run, each once, all built once as a check; a note for each that was named again.
pub(super) fn policies(
    plan: &RunPlan,
    own: &[OwnPolicy],
    scenario: &Scenario,
    source: &ScenarioSource,
) -> Result<(Vec<String>, Vec<String>), RunError> {
    let (asked, origin) = match plan.policies.as_slice() {
        [] => (&scenario.policies, source.place("policies")),
        _ => (&plan.policies, "the policies asked for".to_owned()),
    };
    // Settings of a policy that is not run are checked as well: otherwise a mistyped name would not be noticed.
    let place = |name: &str| source.place(&format!("policy.{name}"));
    for name in scenario.policy_settings.keys() {
        check(name, own, settings(scenario, name, &place(name))?, &place(name))?;
    }
    let (mut policies, mut notes) = (Vec::new(), Vec::new());
    for name in asked {
        check(name, own, settings(scenario, name, &place(name))?, &origin)?;
        if !policies.contains(name) {
            policies.push(name.clone());
        } else {
            notes.push(format!("policy {name} is given more than once and run once"));
        }
    }
    Ok((policies, notes))
}

/// The settings that a scenario has for a policy.
fn settings<'a>(scenario: &'a Scenario, policy: &str, file: &str) -> Result<Option<&'a Table>, RunError> {
    match scenario.policy_settings.get(policy) {
        None => Ok(None),
        Some(Value::Table(table)) => Ok(Some(table)),
        Some(other) => {
            let (policy, key) = ("policy".to_owned(), policy.to_owned());
            let (wanted, found) = (format!("a table headed [policy.{key}]"), other.to_string());
            let why = PolicyError::WrongType { policy, key, wanted, found };
            Err(RunError::policy(file, Box::new(why)))
        }
    }
}

fn check(name: &str, own: &[OwnPolicy], settings: Option<&Table>, origin: &str) -> Result<(), RunError> {
    let built = build(name, own, settings.unwrap_or(&Table::new()));
    built.map(drop).map_err(|why| RunError::policy(origin, why))
}

/// Builds the policy `name`; a policy of the caller has precedence over one of the registry.
pub(super) fn build(
    name: &str,
    own: &[OwnPolicy],
    settings: &Table,
) -> Result<Box<dyn Policy>, Box<PolicyError>> {
    match own.iter().find(|policy| policy.name == name) {
        Some(policy) => (policy.build)(settings),
        None => waykeeper_policy::build(name, settings).map_err(Box::new),
    }
}
