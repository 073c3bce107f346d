//! The plan of nodes as a table, and the verdict on a policy. Must not know recordings.

use super::NodePlan;
use crate::listing;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use waykeeper_service::printable;
use waykeeper_service::protocol::WorthRatio;

/// A change counts if it is larger than so many standard errors: 95 % of the values of a normal distribution are within
/// them.
const ERRORS: f64 = 2.0;
/// It must also be larger than this. Assumption: a smaller one is not worth a roll-out.
const LEAST: f64 = 0.01;

/// What a policy would bring on a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlanVerdict {
    /// HPWs gain more than the error of the prediction, and LPWs lose no more than it.
    Gain,
    /// HPWs gain and LPWs lose.
    GainForLoss,
    /// LPWs gain more than the error, and HPWs lose no more than it.
    LpwGain,
    /// No change is larger than its error.
    NoClearChange,
    /// HPWs lose, or LPWs lose and HPWs do not gain.
    Loss,
    /// It could not be predicted.
    Unknown,
}

impl PlanVerdict {
    /// The verdict on a policy.
    pub fn of(hpw: Option<WorthRatio>, lpw: Option<WorthRatio>) -> PlanVerdict {
        let gains =
            |ratio: Option<WorthRatio>| ratio.is_some_and(|r| r.ratio - 1.0 > LEAST.max(ERRORS * r.error));
        let loses =
            |ratio: Option<WorthRatio>| ratio.is_some_and(|r| 1.0 - r.ratio > LEAST.max(ERRORS * r.error));
        match (gains(hpw), loses(hpw), loses(lpw)) {
            (true, _, false) => PlanVerdict::Gain,
            (true, _, true) => PlanVerdict::GainForLoss,
            (false, false, false) if gains(lpw) => PlanVerdict::LpwGain,
            (false, false, false) => PlanVerdict::NoClearChange,
            (false, _, _) => PlanVerdict::Loss,
        }
    }

    fn text(self) -> &'static str {
        match self {
            PlanVerdict::Gain => "HPWs gain",
            PlanVerdict::GainForLoss => "HPWs gain, LPWs lose",
            PlanVerdict::LpwGain => "LPWs gain",
            PlanVerdict::NoClearChange => "no clear change",
            PlanVerdict::Loss => "loss",
            PlanVerdict::Unknown => "not planned",
        }
    }
}

/// A policy on a node: progress of HPWs, and the verdict.
type OnNode = (Option<WorthRatio>, PlanVerdict);

/// A row per node and policy, then a line per policy for all nodes.
pub fn page(plans: &[NodePlan]) -> String {
    let heading = ["node", "intervals", "tenants", "policy", "HPW, %", "LPW, %", "verdict"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let mut policies: Vec<(&str, Vec<OnNode>)> = Vec::new();
    for plan in plans {
        let (intervals, tenants) = plan.seen.as_ref().map_or_else(
            || ("-".to_owned(), "-".to_owned()),
            |seen| (format!("{} of {}", seen.intervals, seen.recorded_intervals), seen.tenants.to_string()),
        );
        let head = [printable(&plan.node), intervals, tenants];
        if let Some(why) = &plan.why {
            let verdict = format!("not planned: {}", printable(why));
            let none = ["-", "-", "-"].map(str::to_owned);
            rows.push(head.into_iter().chain(none).chain([verdict]).collect());
            continue;
        }
        for (number, policy) in plan.policies.iter().enumerate() {
            let first = if number == 0 { head.clone() } else { Default::default() };
            let verdict = match &policy.why {
                Some(why) => format!("not planned: {}", printable(why)),
                None => policy.verdict.text().to_owned(),
            };
            let cells = [policy.policy.clone(), percent(policy.hpw), percent(policy.lpw), verdict];
            rows.push(first.into_iter().chain(cells).collect());
            match policies.iter_mut().find(|(name, _)| *name == policy.policy) {
                Some((_, all)) => all.push((policy.hpw, policy.verdict)),
                None => policies.push((&policy.policy, vec![(policy.hpw, policy.verdict)])),
            }
        }
    }
    let mut out = listing::columns(&rows);
    out.push_str(
        "\nchange of progress against the layout in force, with two standard errors of the prediction\n",
    );
    let unknown = plans.iter().filter(|plan| plan.why.is_some()).count();
    for (name, all) in policies.iter_mut().filter(|_| plans.len() > 1) {
        all.extend(std::iter::repeat_n((None, PlanVerdict::Unknown), unknown));
        let _ = writeln!(out, "{name}: {}", together(all));
    }
    out
}

/// The mean of a policy over nodes, and how many nodes have each verdict.
fn together(all: &[OnNode]) -> String {
    let known: Vec<f64> = all.iter().filter_map(|(hpw, _)| *hpw).map(|hpw| hpw.ratio.ln()).collect();
    let mut counts: BTreeMap<PlanVerdict, usize> = BTreeMap::new();
    for (_, verdict) in all {
        *counts.entry(*verdict).or_default() += 1;
    }
    let counts: Vec<String> =
        counts.into_iter().map(|(verdict, count)| format!("{} on {count}", verdict.text())).collect();
    let counts = counts.join(", ");
    if known.is_empty() {
        return counts;
    }
    let mean = (known.iter().sum::<f64>() / known.len() as f64).exp();
    let nodes = if known.len() == 1 {
        "on 1 node".to_owned()
    } else {
        format!("in the mean of {} nodes", known.len())
    };
    format!("HPWs {:+.1} % {nodes}; {counts}", 100.0 * (mean - 1.0))
}

/// A change in per cent with two standard errors.
fn percent(ratio: Option<WorthRatio>) -> String {
    ratio.map_or_else(
        || "-".to_owned(),
        |r| format!("{:+.1} ± {:.1}", 100.0 * (r.ratio - 1.0), 100.0 * ERRORS * r.error),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(hpw: Option<(f64, f64)>, lpw: Option<(f64, f64)>) -> PlanVerdict {
        let ratio = |(ratio, error)| WorthRatio { ratio, error };
        PlanVerdict::of(hpw.map(ratio), lpw.map(ratio))
    }

    #[test]
    fn a_change_counts_if_it_is_larger_than_two_errors_and_a_hundredth() {
        let same = Some((1.0, 0.0));
        assert_eq!(verdict(Some((1.08, 0.03)), same), PlanVerdict::Gain);
        assert_eq!(verdict(Some((1.08, 0.05)), same), PlanVerdict::NoClearChange);
        assert_eq!(verdict(Some((1.009, 0.001)), same), PlanVerdict::NoClearChange);
        assert_eq!(verdict(Some((1.08, 0.03)), Some((0.97, 0.01))), PlanVerdict::GainForLoss);
        assert_eq!(verdict(same, Some((0.97, 0.01))), PlanVerdict::Loss);
        assert_eq!(verdict(Some((0.9, 0.03)), Some((1.1, 0.01))), PlanVerdict::Loss);
        assert_eq!(verdict(None, Some((1.1, 0.01))), PlanVerdict::LpwGain);
        assert_eq!(verdict(Some((1.01, 0.01)), Some((1.1, 0.01))), PlanVerdict::LpwGain);
        assert_eq!(verdict(None, None), PlanVerdict::NoClearChange);
    }

    #[test]
    fn all_nodes_together_have_the_geometric_mean_and_the_verdicts() {
        let ratio = |ratio| Some(WorthRatio { ratio, error: 0.01 });
        // The root of 1.21 and 1 is 1.1.
        let all = [
            (ratio(1.21), PlanVerdict::Gain),
            (ratio(1.0), PlanVerdict::NoClearChange),
            (None, PlanVerdict::Unknown),
        ];
        assert_eq!(
            together(&all),
            "HPWs +10.0 % in the mean of 2 nodes; HPWs gain on 1, no clear change on 1, not planned on 1"
        );
        assert_eq!(together(&all[..1]), "HPWs +21.0 % on 1 node; HPWs gain on 1");
    }
}
