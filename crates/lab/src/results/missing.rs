//! The simulations that a result lacks because its run was interrupted. Must not know how a run is interrupted.

use super::SweepValue;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// Simulations that the line of a partial result names; the others are in the JSON.
const NAMED: usize = 3;

/// A simulation that the numbers of a partial result lack.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MissingRun {
    /// The policy.
    pub policy: String,
    /// The seed.
    pub seed: u64,
    /// Swept keys and their values; absent without a sweep.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub at: IndexMap<String, SweepValue>,
}

/// True for `false`, which is not written to a file.
pub(crate) fn is_false(flag: &bool) -> bool {
    !flag
}

/// The line that marks a partial result; none for a complete one.
pub fn partial_line(missing: &[MissingRun]) -> Option<String> {
    let name = |run: &MissingRun| {
        let at: Vec<String> = run.at.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let at = if at.is_empty() { String::new() } else { format!(", {}", at.join(", ")) };
        format!("{} seed {}{at}", run.policy, run.seed)
    };
    let named: Vec<String> = missing.iter().take(NAMED).map(name).collect();
    let more = match missing.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let runs = if missing.len() == 1 { "1 run".to_owned() } else { format!("{} runs", missing.len()) };
    (!missing.is_empty())
        .then(|| format!("PARTIAL: interrupted; the numbers lack {runs}: {}{more}", named.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_missing_runs_are_named_and_the_others_counted() {
        let run = |seed| MissingRun { policy: "a4".to_owned(), seed, at: IndexMap::new() };
        assert_eq!(partial_line(&[]), None);
        let line =
            |seeds: &[u64]| partial_line(&seeds.iter().map(|seed| run(*seed)).collect::<Vec<_>>()).unwrap();
        assert_eq!(line(&[7]), "PARTIAL: interrupted; the numbers lack 1 run: a4 seed 7");
        assert_eq!(
            line(&[1, 2, 3, 4, 5]),
            "PARTIAL: interrupted; the numbers lack 5 runs: a4 seed 1; a4 seed 2; a4 seed 3; and 2 more"
        );
        let mut at_point = run(1);
        at_point.at.insert("nic.nic0.ring".to_owned(), SweepValue::Integer(64));
        assert!(partial_line(&[at_point]).unwrap().ends_with("a4 seed 1, nic.nic0.ring=64"));
    }
}
