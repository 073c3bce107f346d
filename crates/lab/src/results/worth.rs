//! What a policy is worth as its control loop knows it: progress relative to that under the layout as found.
//!
//! The comparison with a baseline runs a second server; this is what the loop can say with the one that it has, as the
//! daemon does on a host. Must not know how the loop measures.

use super::combine::mean_and_deviation;
use super::metrics;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use waykeeper_control::{Estimate, Worth, WorthSource};
use waykeeper_host::Workload;

/// What a policy is worth as its control loop knows it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PolicyWorth {
    /// How progress under the layout as found is known. Absent if it is not, and if seeds differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<WorthSource>,
    /// Why it was never known; of several seeds, in the first of those in which it was not. Absent if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// End of the last interval in which it was known, in controller seconds since the start. Of the first seed.
    #[serde(default, skip_serializing_if = "metrics::not_available")]
    pub at_s: Option<f64>,
    /// Seconds before that at which the layout as found was measured or foreseen. Of the first seed.
    #[serde(default, skip_serializing_if = "metrics::not_available")]
    pub age_s: Option<f64>,
    /// HPWs together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hpw: Option<ProgressRatio>,
    /// LPWs together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lpw: Option<ProgressRatio>,
    /// Each workload that was measured.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub workloads: IndexMap<String, ProgressRatio>,
    /// Intervals that the policy did not see because of looks back at the layout as found. Of the first seed.
    pub look_intervals: u64,
}

/// Progress relative to that under the layout as found: 1.1 is 10 % better.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct ProgressRatio {
    /// The ratio; mean over the seeds.
    pub ratio: f64,
    /// Its standard error, from the spread of the intervals of each seed.
    pub error: f64,
    /// Sample standard deviation of the ratio over the seeds; absent for a single seed.
    #[serde(default, skip_serializing_if = "metrics::not_available")]
    pub deviation: Option<f64>,
}

impl ProgressRatio {
    fn of(estimate: Estimate) -> ProgressRatio {
        ProgressRatio { ratio: estimate.value, error: estimate.error, deviation: None }
    }

    /// The mean over the seeds; `None` if a seed lacks it.
    fn mean(seeds: impl Iterator<Item = Option<ProgressRatio>>) -> Option<ProgressRatio> {
        let seeds: Vec<ProgressRatio> = seeds.collect::<Option<_>>()?;
        let ratios: Vec<f64> = seeds.iter().map(|seed| seed.ratio).collect();
        let (ratio, deviation) = mean_and_deviation(&ratios)?;
        let squares: f64 = seeds.iter().map(|seed| seed.error.powi(2)).sum();
        Some(ProgressRatio { ratio, error: squares.sqrt() / seeds.len() as f64, deviation })
    }
}

impl PolicyWorth {
    /// Takes in what the loop says at the end of an interval; `unseen`: the policy did not see it, because of a look back.
    pub(crate) fn note(&mut self, at_s: f64, worth: &Worth, groups: &[Workload], unseen: bool) {
        self.look_intervals += u64::from(unseen);
        let known = match worth {
            Worth::Known(known) => known,
            Worth::Unknown(why) => {
                self.unknown = self.from.is_none().then(|| why.to_string());
                return;
            }
        };
        let name = |group: &Workload| Some((group.name.clone(), *known.tenants.get(&group.id)?));
        let workloads = groups.iter().filter_map(name);
        *self = PolicyWorth {
            from: Some(known.from),
            unknown: None,
            at_s: Some(at_s),
            age_s: Some(known.age_s),
            hpw: known.hpw.map(ProgressRatio::of),
            lpw: known.lpw.map(ProgressRatio::of),
            workloads: workloads.map(|(name, it)| (name, ProgressRatio::of(it))).collect(),
            look_intervals: self.look_intervals,
        };
    }
}

/// That of several seeds; `None` if a seed has none.
pub(super) fn combine(seeds: &[Option<&PolicyWorth>]) -> Option<PolicyWorth> {
    let seeds: Vec<&PolicyWorth> = seeds.iter().copied().collect::<Option<_>>()?;
    let (first, rest) = seeds.split_first()?;
    if rest.is_empty() {
        return Some((*first).clone());
    }
    let mean = |of: &dyn Fn(&PolicyWorth) -> Option<ProgressRatio>| {
        ProgressRatio::mean(seeds.iter().map(|seed| of(seed)))
    };
    let workloads = first.workloads.keys().filter_map(|name| {
        Some((name.clone(), mean(&|seed: &PolicyWorth| seed.workloads.get(name).copied())?))
    });
    Some(PolicyWorth {
        from: first.from.filter(|from| rest.iter().all(|seed| seed.from == Some(*from))),
        unknown: seeds.iter().find_map(|seed| seed.unknown.clone()),
        at_s: first.at_s,
        age_s: first.age_s,
        hpw: mean(&|seed: &PolicyWorth| seed.hpw),
        lpw: mean(&|seed: &PolicyWorth| seed.lpw),
        workloads: workloads.collect(),
        look_intervals: first.look_intervals,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use waykeeper_control::WorthUnknown;

    #[test]
    fn the_last_known_worth_is_kept_and_what_was_never_known_has_its_reason() {
        let known = |value: f64| {
            Worth::Known(waykeeper_control::WorthEstimate {
                from: WorthSource::Look,
                age_s: 4.0,
                hpw: Some(Estimate { value, error: 0.02 }),
                lpw: None,
                tenants: Default::default(),
            })
        };
        let early = Worth::Unknown(WorthUnknown::NotSeen);
        let mut worth = PolicyWorth::default();
        worth.note(1.0, &early, &[], false);
        assert_eq!(worth.unknown.as_deref(), Some(WorthUnknown::NotSeen.to_string().as_str()));
        worth.note(2.0, &known(1.1), &[], true);
        worth.note(3.0, &Worth::Unknown(WorthUnknown::LoadChanged), &[], true);
        assert_eq!((worth.at_s, worth.unknown.clone(), worth.look_intervals), (Some(2.0), None, 2));
        worth.note(4.0, &known(1.2), &[], false);
        assert_eq!((worth.at_s, worth.hpw.map(|it| it.ratio)), (Some(4.0), Some(1.2)));
    }

    #[test]
    fn the_mean_of_seeds_by_hand() {
        let seed = |ratio, error, from| PolicyWorth {
            from: Some(from),
            hpw: Some(ProgressRatio { ratio, error, deviation: None }),
            ..PolicyWorth::default()
        };
        let (a, mut b) = (seed(1.1, 0.03, WorthSource::Look), seed(1.3, 0.04, WorthSource::AsFound));
        let both = combine(&[Some(&a), Some(&b)]).unwrap();
        let hpw = both.hpw.unwrap();
        // Mean 1.2; deviation sqrt((0.01 + 0.01) / 1); error sqrt(0.0009 + 0.0016) / 2 = 0.05 / 2.
        assert!((hpw.ratio - 1.2).abs() < 1e-12 && (hpw.deviation.unwrap() - 0.02f64.sqrt()).abs() < 1e-12);
        assert!((hpw.error - 0.025).abs() < 1e-12, "{hpw:?}");
        assert_eq!(both.from, None, "the seeds differ");
        b.hpw = None;
        b.unknown = Some("why".to_owned());
        let both = combine(&[Some(&a), Some(&b)]).unwrap();
        assert_eq!((both.hpw, both.unknown.as_deref()), (None, Some("why")));
        assert_eq!(combine(&[Some(&a), None]), None);
    }
}
