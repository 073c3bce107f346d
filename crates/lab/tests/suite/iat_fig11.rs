//! IAT's Figs. 10 and 11 with the shipped scenario: container 4 needs more ways at 5 s, the DDIO ways are doubled by
//! hand at 15 s, and IAT reacts to both within one interval.

use waykeeper_lab::registry;
use waykeeper_lab::results::{PolicyResult, WayMapSlice};
use waykeeper_lab::runner::{Experiment, ExperimentOutcome, RunPlan};

fn iat(seed: u64) -> PolicyResult {
    let source = registry::open("iat-fig11").unwrap();
    let plan = RunPlan { policies: vec!["iat".to_owned()], seed, ..RunPlan::default() };
    let ExperimentOutcome::Run(summary) = Experiment::prepare(&source, plan).unwrap().run(&|_| ()).unwrap()
    else {
        panic!("it sweeps nothing");
    };
    summary.policies["iat"].clone()
}

/// The way map at a time.
fn at(result: &PolicyResult, at_s: f64) -> &WayMapSlice {
    result
        .way_map
        .iter()
        .find(|slice| slice.from_s <= at_s && at_s < slice.to_s)
        .expect("the map has no hole")
}

#[test]
fn container_4_and_the_shuffles_react_within_one_interval() {
    for seed in [1, 2] {
        let result = iat(seed);
        let ways = |at_s: f64| at(&result, at_s).masks["container4"].count();
        // The step at 6 s is the first that sees the change at 5 s.
        assert_eq!(ways(5.5), 2, "seed {seed}");
        assert!(ways(6.5) > 2, "seed {seed}: out of the idle pool, as the paper's container 4");
        let grown =
            result.decisions.iter().find(|decision| decision.text.contains("container4 grows")).unwrap();
        assert!((grown.at_s - 6.0).abs() < 0.01 && !grown.causes.is_empty(), "seed {seed}: {grown:?}");

        // The step at 16 s is the first that sees four DDIO ways throughout: a BE tenant shares them, container 4 not.
        let map = at(&result, 16.5);
        let ddio = map.dca_ways.unwrap();
        assert_eq!(ddio.bits(), 0x780, "seed {seed}");
        assert!(!map.masks["container4"].overlaps(ddio), "seed {seed}: {map:?}");
        assert!(
            ["container2", "container3"].iter().any(|be| map.masks[*be].overlaps(ddio)),
            "seed {seed}: {map:?}"
        );
        let before = at(&result, 14.5).masks["container4"];
        assert!(before.overlaps(ddio), "seed {seed}: it stood in their way, so it had to move");
    }
}
