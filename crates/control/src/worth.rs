//! What the policy is worth: progress of tenants under its layouts, relative to the layout as found.
//!
//! The layout as found has the values that knobs had before the loop turned them. Progress under it is measured where
//! that layout is in force: before the first change, or in a look back at it. Otherwise a model's answer may tell it. Either
//! holds for one phase: when the load, the tenants or other knobs change, it says nothing about what follows.
//!
//! All is computed with logarithms of progress, interval by interval. With n intervals under the policy and b under the
//! layout as found, the ratio is `exp(mean(n) - mean(b))` and its standard error is
//! `ratio * s * sqrt((1/n + 1/b) * (1 + r) / (1 - r))`. `s` is the standard deviation of both within, and `r` the
//! correlation of an interval with the next one. A foreseen ratio adds the model's own error in squares.
//! HPWs together are the mean over HPWs, weighted by cores, of each interval; so noise that they share counts once.
//!
//! It must not know host, policy or knobs.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use waykeeper_calibration::{Candidate, Estimate, FetchCosts, TrafficSignature, progress};
use waykeeper_host::{Interval, Inventory, Priority, Workload};
use waykeeper_units::WorkloadId;

/// Intervals over which progress is averaged. Assumption: half a minute at one interval a second, as the calibrator has.
const WINDOW: usize = 30;
/// Intervals under the policy, and of both together, without which a difference has no error.
const FEWEST_NOW: usize = 2;
const FEWEST: usize = 4;
/// Intervals from which the correlation of neighbours is estimated, and the most that counts. Assumptions.
const CORRELATED: usize = 8;
const CORRELATION_MOST: f64 = 0.9;
/// The load is another one if it is off by more than this part, ... (`phase_change` of the policy `waykeeper`)
const CHANGED: f64 = 0.25;
/// ... by more than so many times its usual change between two intervals, or deviations of a tenant's progress, ...
const UNUSUAL: f64 = 4.0;
const DEVIATIONS: f64 = 6.0;
/// ... in so many intervals in turn. Assumptions, as the policy and the calibrator have them.
const IN_TURN: u32 = 2;
/// Intervals under one layout that say what a tenant's usual progress is. Assumption.
const USUAL: usize = 4;

/// What the policy is worth, or why that is not known.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Worth {
    /// It is not known.
    Unknown(WorthUnknown),
    /// It is known.
    Known(WorthEstimate),
}

impl Default for Worth {
    fn default() -> Worth {
        Worth::Unknown(WorthUnknown::TooEarly)
    }
}

impl Worth {
    /// The estimate, if it is known.
    pub fn known(&self) -> Option<&WorthEstimate> {
        match self {
            Worth::Known(estimate) => Some(estimate),
            Worth::Unknown(_) => None,
        }
    }

    /// True before anything is known.
    pub(crate) fn is_default(&self) -> bool {
        *self == Worth::default()
    }
}

/// Why it is not known what the policy is worth.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum WorthUnknown {
    /// Too few intervals were measured yet.
    #[error("too few intervals were measured")]
    TooEarly,
    /// The policy changed knobs before the layout as found was measured.
    #[error("the policy changed knobs before the layout as found was measured")]
    NotSeen,
    /// The load changed since the layout as found was measured.
    #[error("the load changed since the layout as found was measured")]
    LoadChanged,
    /// Workloads started or ended since.
    #[error("workloads started or ended since the layout as found was measured")]
    WorkloadsChanged,
    /// Another program changed knobs since, and its values stay.
    #[error("another program changed knobs since the layout as found was measured")]
    KnobsChanged,
    /// The loop turns no knob (dry run).
    #[error("no knob is turned in this mode")]
    NoKnobs,
}

/// How progress under the layout as found is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorthSource {
    /// The layout as found is in force: no other layout can be worth anything.
    Unchanged,
    /// It was measured while it was in force, before the policy changed it or after it gave it back.
    AsFound,
    /// It was measured in a look back at it.
    Look,
    /// It was foreseen by a model.
    Foreseen,
}

/// Progress since the state as found: 1.1 is 10 % better.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WorthEstimate {
    /// How progress under the layout as found is known.
    pub from: WorthSource,
    /// Seconds since it was measured or foreseen.
    pub age_s: f64,
    /// HPWs together (geometric mean, weighted by cores). `None` if there are none, or none was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hpw: Option<Estimate>,
    /// LPWs together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lpw: Option<Estimate>,
    /// Each tenant that was measured.
    pub tenants: BTreeMap<WorkloadId, Estimate>,
}

/// Which layout was in force in an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Under {
    /// One of the policy's.
    Policy,
    /// The layout as found: because the policy wants no other, or in a look.
    AsFound(WorthSource),
    /// Parts of both.
    Both,
}

/// One interval.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Sample {
    /// On the host's clock; before 0 if an earlier loop measured it.
    at_ns: i64,
    /// Number of the layout in force.
    layout: u64,
    /// Logarithm of each tenant's progress.
    logs: BTreeMap<WorkloadId, f64>,
}

/// What a model said about the layout as found.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Foreseen {
    at_ns: i64,
    /// The intervals that its ratios are relative to.
    asked_from: VecDeque<Sample>,
    tenants: BTreeMap<WorkloadId, Estimate>,
}

/// What was measured and foreseen of the layout as found, for the meter of the next loop.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct WorthMemory {
    /// When it was taken, on the clock of the host that all its times are of.
    at_ns: i64,
    found: VecDeque<Sample>,
    found_from: WorthSource,
    foreseen: Option<Foreseen>,
    start: Option<TrafficSignature>,
    jitter: f64,
}

/// Measures it, interval by interval.
#[derive(Debug)]
pub(crate) struct WorthMeter {
    groups: Vec<Workload>,
    /// Nothing was measured yet: the first interval is left out, in which programs may still be cold.
    is_first: bool,
    why: WorthUnknown,
    /// The number of the layout in force, and whether knobs were turned after the last interval.
    layout: u64,
    turned: bool,
    under: Under,
    at_ns: i64,
    now: VecDeque<Sample>,
    found: VecDeque<Sample>,
    found_from: WorthSource,
    foreseen: Option<Foreseen>,
    /// The intervals before the open question, by its number.
    asked: Option<(u64, VecDeque<Sample>)>,
    /// The traffic at the start of the phase and in the last interval, its usual change, and unusual intervals in turn.
    start: Option<TrafficSignature>,
    last: TrafficSignature,
    jitter: f64,
    strange: u32,
}

impl WorthMeter {
    /// Nothing is measured.
    pub fn new() -> WorthMeter {
        WorthMeter {
            groups: Vec::new(),
            is_first: true,
            why: WorthUnknown::NotSeen,
            layout: 0,
            turned: false,
            under: Under::Both,
            at_ns: 0,
            now: VecDeque::new(),
            found: VecDeque::new(),
            found_from: WorthSource::AsFound,
            foreseen: None,
            asked: None,
            start: None,
            last: TrafficSignature::default(),
            jitter: 0.0,
            strange: 0,
        }
    }

    /// Knobs were turned after the last interval.
    pub fn turned(&mut self) {
        (self.turned, self.layout) = (true, self.layout + 1);
    }

    /// Another policy is in charge: what was measured under the one before is not its worth.
    pub fn replaced(&mut self) {
        self.now.clear();
    }

    /// All that was measured belongs to the past.
    pub fn forget(&mut self, why: WorthUnknown) {
        self.now.clear();
        self.found.clear();
        (self.foreseen, self.asked, self.start) = (None, None, None);
        (self.strange, self.why) = (0, why);
    }

    /// What the meter of the next loop needs.
    pub fn memory(&self) -> WorthMemory {
        WorthMemory {
            at_ns: self.at_ns,
            found: self.found.clone(),
            found_from: self.found_from,
            foreseen: self.foreseen.clone(),
            start: self.start.clone(),
            jitter: self.jitter,
        }
    }

    /// Begins with what another meter knew of the same workloads, until `ago` before `now_ns`. It is the same phase, unless
    /// the traffic is another one.
    pub fn recall(&mut self, memory: WorthMemory, now_ns: u64, ago: Duration) {
        let WorthMemory { at_ns, found, found_from, foreseen, start, jitter } = memory;
        let ago_ns = i64::try_from(ago.as_nanos()).unwrap_or(i64::MAX);
        let moved = |then_ns: i64| {
            signed(now_ns).saturating_sub(ago_ns).saturating_sub(at_ns.saturating_sub(then_ns))
        };
        // The layout as found is not the one in force.
        self.layout = 1;
        let moved_sample = |sample: Sample| Sample { at_ns: moved(sample.at_ns), layout: 0, ..sample };
        self.found = found.into_iter().map(moved_sample).collect();
        self.foreseen = foreseen.map(|foreseen| Foreseen { at_ns: moved(foreseen.at_ns), ..foreseen });
        (self.found_from, self.start, self.jitter) = (found_from, start, jitter);
    }

    /// When the layout as found was measured last in this phase.
    pub fn found_ns(&self) -> Option<i64> {
        self.found.back().map(|sample| sample.at_ns)
    }

    /// Takes in an interval. False if the workloads changed.
    pub fn observe(
        &mut self,
        groups: &[Workload],
        seen: &Interval,
        inventory: &Inventory,
        under: Under,
    ) -> bool {
        let is_settled = !std::mem::take(&mut self.turned);
        self.under = under;
        let at_ns = signed(seen.to_ns);
        self.at_ns = at_ns;
        if std::mem::take(&mut self.is_first) {
            self.groups = groups.to_vec();
            return true;
        }
        if self.groups != groups {
            self.forget(WorthUnknown::WorkloadsChanged);
            self.groups = groups.to_vec();
            return false;
        }
        let of = |group: &Workload| {
            Some((group.id, progress(group, seen, inventory, FetchCosts::default())?.ln()))
        };
        let sample = Sample { at_ns, layout: self.layout, logs: groups.iter().filter_map(of).collect() };
        if under == Under::Both || sample.logs.is_empty() {
            return true;
        }
        // In a look the traffic may change because of the layout; it is compared again afterwards.
        if under != Under::AsFound(WorthSource::Look)
            && !self.is_same_load(TrafficSignature::of(groups, seen, inventory), &sample)
        {
            return true;
        }
        match under {
            Under::Policy => push(&mut self.now, sample),
            // Lines of the layout before are still in the LLC.
            Under::AsFound(_) if !is_settled => {}
            Under::AsFound(from) => {
                if self.found.back().is_some_and(|last| last.layout != self.layout) {
                    self.found.clear();
                }
                self.found_from = from;
                push(&mut self.found, sample);
            }
            Under::Both => {}
        }
        true
    }

    /// Whether an interval has the load of the phase. Begins a new phase after several that have another.
    fn is_same_load(&mut self, signature: TrafficSignature, sample: &Sample) -> bool {
        let start = self.start.get_or_insert_with(|| signature.clone());
        let limit = CHANGED.max(UNUSUAL * self.jitter);
        let (off, _) = signature.distance(start, &self.groups);
        let (jump, _) = signature.distance(&self.last, &self.groups);
        if self.last != TrafficSignature::default() {
            self.jitter += 0.2 * (jump.min(1.0) - self.jitter);
        }
        self.last = signature;
        if off <= limit && !self.jumped(sample) {
            self.strange = 0;
            return true;
        }
        self.strange += 1;
        if self.strange >= IN_TURN {
            self.forget(WorthUnknown::LoadChanged);
            self.start = Some(self.last.clone());
            return true;
        }
        false
    }

    /// The intervals that were measured under the layout in force.
    fn steady(&self) -> VecDeque<Sample> {
        let all = self.now.iter().chain(&self.found);
        all.filter(|sample| sample.layout == self.layout).cloned().collect()
    }

    /// Whether a tenant's progress is far from what it was under the same layout.
    fn jumped(&self, sample: &Sample) -> bool {
        let steady = self.steady();
        sample.logs.iter().any(|(id, now)| {
            let usual: Vec<f64> = steady.iter().filter_map(|sample| sample.logs.get(id).copied()).collect();
            let (mean, squares) = mean_and_squares(&usual);
            let off = (now - mean).abs();
            let deviation = (squares / (usual.len().max(2) - 1) as f64).sqrt();
            usual.len() >= USUAL && off > (1.0 + CHANGED).ln() && off > DEVIATIONS * deviation
        })
    }

    /// A question is asked: an answer is relative to what was measured until now under the layout in force.
    pub fn asked(&mut self, number: u64) {
        let mut steady = self.steady();
        if steady.len() > 1 {
            // Lines of the layout before are still in the LLC.
            steady.pop_front();
        }
        self.asked = (!steady.is_empty()).then_some((number, steady));
    }

    /// The answer to a question, and what it says of the layout as found.
    pub fn answered(&mut self, number: u64, as_found: Option<&Candidate>) {
        let Some((asked, asked_from)) = self.asked.take() else { return };
        let usable = |estimate: &Estimate| {
            estimate.value > 0.0 && estimate.value.is_finite() && estimate.error.is_finite()
        };
        if let Some(as_found) = as_found.filter(|_| asked == number) {
            let tenants = as_found.tenants.iter().filter(|(_, ratio)| usable(ratio));
            let tenants = tenants.map(|(id, ratio)| (*id, *ratio)).collect();
            self.foreseen = Some(Foreseen { at_ns: self.at_ns, asked_from, tenants });
        }
    }

    /// What the policy is worth.
    pub fn worth(&self) -> Worth {
        let age_s = |then_ns: i64| self.at_ns.saturating_sub(then_ns) as f64 / 1e9;
        if matches!(self.under, Under::AsFound(WorthSource::AsFound)) {
            let one = |priority| {
                self.groups.iter().any(|group| group.priority == priority).then_some(Estimate::exact(1.0))
            };
            return Worth::Known(WorthEstimate {
                from: WorthSource::Unchanged,
                age_s: 0.0,
                hpw: one(Priority::High),
                lpw: one(Priority::Low),
                tenants: self.groups.iter().map(|group| (group.id, Estimate::exact(1.0))).collect(),
            });
        }
        let none = BTreeMap::new();
        let (before, from, at_ns, foreseen) = match (self.found.back(), &self.foreseen) {
            (Some(last), _) => (&self.found, self.found_from, last.at_ns, &none),
            (None, Some(foreseen)) => {
                (&foreseen.asked_from, WorthSource::Foreseen, foreseen.at_ns, &foreseen.tenants)
            }
            (None, None) => return Worth::Unknown(self.why),
        };
        let compared = Compared {
            now: &self.now,
            before,
            foreseen: (from == WorthSource::Foreseen).then_some(foreseen),
        };
        let tenants = self.groups.iter().filter_map(|group| Some((group.id, compared.estimate(&[group])?)));
        let tenants: BTreeMap<WorkloadId, Estimate> = tenants.collect();
        if tenants.is_empty() {
            return Worth::Unknown(WorthUnknown::TooEarly);
        }
        let together = |priority| {
            let members = self.groups.iter().filter(|group| group.priority == priority);
            compared.estimate(&members.filter(|group| tenants.contains_key(&group.id)).collect::<Vec<_>>())
        };
        let (hpw, lpw) = (together(Priority::High), together(Priority::Low));
        Worth::Known(WorthEstimate { from, age_s: age_s(at_ns), hpw, lpw, tenants })
    }
}

/// Intervals under the policy against others.
struct Compared<'a> {
    now: &'a VecDeque<Sample>,
    before: &'a VecDeque<Sample>,
    /// If `before` is not the layout as found: its progress relative to `before`.
    foreseen: Option<&'a BTreeMap<WorkloadId, Estimate>>,
}

impl Compared<'_> {
    /// The ratio of some tenants together; `None` without tenants or with too few intervals.
    fn estimate(&self, members: &[&Workload]) -> Option<Estimate> {
        let weight = |group: &Workload| group.cores.len().max(1) as f64;
        let weights: f64 = members.iter().map(|group| weight(group)).sum();
        let mean = |sample: &Sample| {
            let logs = members.iter().map(|group| Some(weight(group) * sample.logs.get(&group.id)?));
            logs.sum::<Option<f64>>().map(|sum| sum / weights)
        };
        let series = |samples: &VecDeque<Sample>| samples.iter().filter_map(mean).collect::<Vec<f64>>();
        if members.is_empty() {
            return None;
        }
        let (mut log, mut error) = difference(&series(self.now), &series(self.before))?;
        if let Some(foreseen) = self.foreseen {
            let ratios =
                members.iter().map(|group| Some((weight(group) / weights, foreseen.get(&group.id)?)));
            let ratios: Vec<(f64, &Estimate)> = ratios.collect::<Option<_>>()?;
            log -= ratios.iter().map(|(share, ratio)| share * ratio.value.ln()).sum::<f64>();
            let squares = ratios.iter().map(|(share, ratio)| (share * ratio.error / ratio.value).powi(2));
            error = error.hypot(squares.sum::<f64>().sqrt());
        }
        let value = log.exp();
        Some(Estimate { value, error: value * error })
            .filter(|it| it.value.is_finite() && it.error.is_finite())
    }
}

/// The difference of two means, with its standard error. `None` with too few values.
fn difference(now: &[f64], before: &[f64]) -> Option<(f64, f64)> {
    let count = now.len() + before.len();
    if now.len() < FEWEST_NOW || before.is_empty() || count < FEWEST {
        return None;
    }
    let ((a, a_squares), (b, b_squares)) = (mean_and_squares(now), mean_and_squares(before));
    let variance = (a_squares + b_squares) / (count - 2) as f64;
    let neighbours = now.windows(2).map(|pair| (pair[0] - a) * (pair[1] - a)).sum::<f64>();
    let correlation = match now.len() >= CORRELATED && a_squares > 0.0 {
        true => (neighbours / a_squares).clamp(0.0, CORRELATION_MOST),
        false => 0.0,
    };
    let counts = (now.len() as f64).recip() + (before.len() as f64).recip();
    Some((a - b, (variance * counts * (1.0 + correlation) / (1.0 - correlation)).sqrt()))
}

/// The mean, and the sum of squared deviations from it; 0 for no values.
fn mean_and_squares(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    (mean, values.iter().map(|value| (value - mean).powi(2)).sum())
}

/// Nanoseconds of the host's clock, from which earlier times can be subtracted.
pub(crate) fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

fn push(window: &mut VecDeque<Sample>, sample: Sample) {
    if window.len() == WINDOW {
        window.pop_front();
    }
    window.push_back(sample);
}

#[cfg(test)]
#[path = "worth_tests.rs"]
mod tests;
