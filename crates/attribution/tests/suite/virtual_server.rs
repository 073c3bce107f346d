//! The attribution against the truth of the virtual server, on three built-in scenarios. docs/attribution.md has all of
//! them.

use crate::recorded::run;
use crate::truth::{Truth, claimed};
use std::path::Path;
use std::sync::Arc;
use waykeeper_attribution::{Attributor, TRUE_SHARE};
use waykeeper_machine::ScenarioSource;

/// Precision and recall of a scenario under a policy, with its number of true pairs.
fn precision_and_recall(name: &str, policy: &str, sets: &[(&str, &str)]) -> (f64, f64, usize) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../scenarios/{name}.toml"));
    let mut source = ScenarioSource::open(&file).expect("a scenario").without_sweep();
    for (key, value) in sets {
        let value: toml::Table = format!("v = {value}").parse().expect("a TOML value");
        source.set(key, &value["v"]).expect("a key");
    }
    let scenario = Arc::new(source.read().expect("a legal scenario"));
    let mut attributor = None;
    let (mut is_true, mut is_claimed, mut both) = (0, 0, 0);
    run(&scenario, policy, 2, |inventory, workloads, seen, evictions| {
        let attributor = attributor.get_or_insert_with(|| Attributor::new(inventory));
        let said = attributor.observe(workloads, seen);
        let truth = Truth::of(inventory, workloads, seen, evictions).pairs(TRUE_SHARE);
        let claimed = claimed(&said, TRUE_SHARE, inventory, workloads);
        both += truth.intersection(&claimed).count();
        is_true += truth.len();
        is_claimed += claimed.len();
    })
    .expect("the policy fits");
    (
        f64::from(both as u32) / f64::from(is_claimed as u32),
        f64::from(both as u32) / f64::from(is_true as u32),
        is_true,
    )
}

#[test]
fn the_claimed_pairs_are_the_true_ones() {
    let short = [("duration_s", "12"), ("warmup_s", "4"), ("measure_s", "4")];
    for (name, policy, sets) in [
        ("a4-fig3b", "none", &[("workload.x-mem.mask", "\"0x600\"")][..]),
        ("probe", "default", &short),
        ("real-perl", "default", &short),
    ] {
        let (precision, recall, pairs) = precision_and_recall(name, policy, sets);
        assert!(pairs >= 7, "{name}: {pairs} true pairs");
        assert!(precision >= 0.7 && recall >= 0.8, "{name}: precision {precision:.2}, recall {recall:.2}");
    }
}
