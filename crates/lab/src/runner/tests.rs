//! Simulations that share a server have the same results as simulations that do not, and no interval is simulated
//! twice.

use super::*;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::atomic::{AtomicU64, Ordering};
use waykeeper_host::{Interval, Inventory, Plan, Workload};
use waykeeper_policy::{Decision, Policy, PolicyError};
use waykeeper_silicon::Sampling;
use waykeeper_testbed::is_long;
use waykeeper_units::{WayMask, WorkloadId};

const STEPS: usize = 12;
/// Simulated time of an interval, ns.
const STEP_NS: u64 = 1_000_000;
/// Large enough for every cohort here to be whole.
const ALL: usize = 100;

/// A packet program, storage, and a scan that the packets disturb; an interval of 1 s is a simulated millisecond.
const SERVER: &str = r#"
name = "small"
duration_s = 12
warmup_s = 4
measure_s = 8
time_factor = 1000
[[nic]]
name = "nic0"
[[storage]]
name = "raid0"
[[workload]]
name = "dpdk"
program = "dpdk-t"
cores = "0-1"
priority = "high"
[[workload]]
name = "scan"
program = "x-mem"
cores = "2"
working_set = "4M"
priority = "high"
[[workload]]
name = "fio"
program = "fio"
cores = "3"
priority = "low"
[[workload]]
name = "load"
program = "memload"
cores = "4-5"
priority = "low"
blocks_per_s = 200000
slots_per_s = 1000
"#;

/// Faults, for every second seed.
const FAULTS: &str = r#"
[[fault]]
kind = "outsider"
workload = "scan"
mask = "0x00c"
at_s = 3.5
[[fault]]
kind = "busy"
at_s = 5
for_s = 2
[[fault]]
kind = "sample-fails"
at_s = 8
for_s = 1
[[fault]]
kind = "clock-jumps"
by_s = 1.5
at_s = 9.2
[[fault]]
kind = "dies"
workload = "fio"
at_s = 10
"#;

fn plan(seeds: u32, threads: usize) -> RunPlan {
    RunPlan { seeds, threads, sampling: Sampling::one_in(256).unwrap(), ..RunPlan::default() }
}

/// The outcome without the time it took, and the simulated time that was shared, ns.
fn outcome(experiment: &Experiment, most: usize) -> (ExperimentOutcome, u64) {
    let (shared_ns, done_ns) = (AtomicU64::new(0), AtomicU64::new(0));
    let tell = OnlyProgress(&|progress: SimulationProgress| {
        shared_ns.fetch_max(progress.shared_ns, Ordering::Relaxed);
        done_ns.fetch_max(progress.done_ns, Ordering::Relaxed);
    });
    let mut outcome = experiment.run_together(&tell, most).unwrap();
    match &mut outcome {
        ExperimentOutcome::Run(run) => run.wall_s = None,
        ExperimentOutcome::Sweep(sweep) => sweep.wall_s = None,
    }
    assert!(done_ns.into_inner() <= experiment.simulated_ns(), "more is done than there is to do");
    (outcome, shared_ns.into_inner())
}

/// Ways of the first group, one value per interval.
type Script = Vec<u32>;

#[derive(Debug)]
struct Scripted {
    name: String,
    script: Script,
    at: usize,
}

impl Scripted {
    fn decide(&mut self) -> Decision {
        let bits = self.script[self.at.min(self.script.len() - 1)];
        self.at += 1;
        let plan = Plan::of_masks([(WorkloadId(0), WayMask::from_bits(bits))]);
        Decision { plan, ..Decision::default() }
    }
}

impl Policy for Scripted {
    fn name(&self) -> &str {
        &self.name
    }

    fn start(&mut self, _: &Inventory, _: &[Workload]) -> Decision {
        self.decide()
    }

    fn step(&mut self, _: &[Workload], _: &Interval) -> Decision {
        self.decide()
    }
}

fn own(name: &str, script: Script) -> OwnPolicy {
    let (name, of) = (name.to_owned(), name.to_owned());
    let build = move |_: &toml::Table| -> Result<Box<dyn Policy>, Box<PolicyError>> {
        Ok(Box::new(Scripted { name: of.clone(), script: script.clone(), at: 0 }))
    };
    OwnPolicy { name, build: Arc::new(build), identity: None }
}

#[test]
fn an_own_policy_does_not_take_the_place_of_a_built_in_one() {
    let source = ScenarioSource::parse("small.toml", SERVER, None).unwrap();
    for name in ["default", "a4", "best"] {
        let plan = RunPlan { policies: vec![name.to_owned()], ..RunPlan::default() };
        let refused = Experiment::prepare_with(&source, plan, vec![own(name, Vec::new())]).unwrap_err();
        assert!(refused.is_bad_input() && refused.to_string().contains("a built-in policy"), "{refused}");
    }
}

fn experiment(text: &str, scripts: Vec<Script>, plan: RunPlan) -> Experiment {
    let source = ScenarioSource::parse("small.toml", text, None).unwrap();
    let own: Vec<OwnPolicy> =
        scripts.into_iter().enumerate().map(|(index, script)| own(&format!("own{index}"), script)).collect();
    let policies = own.iter().map(|policy| policy.name.clone()).collect();
    Experiment::prepare_with(&source, RunPlan { policies, ..plan }, own).unwrap()
}

/// Scripts with equal starts: each is equal to an earlier one up to a random interval.
fn scripts(dice: &mut Xoshiro256PlusPlus) -> Vec<Script> {
    let mut below = |limit: usize| (dice.next_u64() % limit as u64) as usize;
    let mut scripts: Vec<Script> = Vec::new();
    for index in 0..5 {
        let until = if index == 0 { 0 } else { below(STEPS + 4) };
        let mut script: Script = scripts
            .get(below(index.max(1)))
            .map_or_else(Vec::new, |s| s.iter().copied().take(until).collect());
        while script.len() < STEPS + 1 {
            let last = script.last().copied().unwrap_or(0x7ff);
            script.push(if below(3) == 0 { [0x7ff, 0x003, 0x01c][below(3)] } else { last });
        }
        scripts.push(script);
    }
    scripts
}

/// Number of intervals with different histories of knobs: these must be simulated.
fn intervals(scripts: &[Script]) -> u64 {
    let histories = |length: usize| {
        let mut histories: Vec<&[u32]> = scripts.iter().map(|script| &script[..length]).collect();
        histories.sort_unstable();
        histories.dedup();
        histories.len() as u64
    };
    (1..=STEPS).map(histories).sum()
}

#[test]
fn random_policies_have_the_results_they_have_alone_and_no_history_is_simulated_twice() {
    let mut shared = 0;
    for seed in 0..12 {
        let scripts = scripts(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
        let expected_ns = (5 * STEPS as u64 - intervals(&scripts)) * STEP_NS;
        let text = if seed % 2 == 0 { SERVER.to_owned() } else { format!("{SERVER}{FAULTS}") };
        let run = |threads| experiment(&text, scripts.clone(), plan(1, threads));
        let (alone, none_ns) = outcome(&run(1), 1);
        assert_eq!(none_ns, 0);
        for (threads, most) in [(1, ALL), (3, ALL), (2, 2)] {
            let (together, shared_ns) = outcome(&run(threads), most);
            assert!(together == alone, "seed {seed}, {threads} threads, {most} together: {scripts:x?}");
            if most == ALL && seed % 2 == 0 {
                assert_eq!(shared_ns, expected_ns, "seed {seed}: {scripts:x?}");
                shared += shared_ns;
            }
        }
    }
    assert!(shared > 0, "no two policies were alike");
}

#[test]
fn policies_of_the_registry_have_the_results_they_have_alone() {
    let whole = [SERVER.to_owned(), format!("{SERVER}{FAULTS}")];
    // With faults, decisions and servers differ more.
    for text in &whole[usize::from(!is_long())..] {
        let source = ScenarioSource::parse("small.toml", text, None).unwrap();
        let names = ["default", "none", "a4-a", "a4-b", "a4-c", "a4-d", "waykeeper", "iat"];
        let policies = names.map(str::to_owned).to_vec();
        let experiment = Experiment::prepare(&source, RunPlan { policies, ..plan(2, 2) }).unwrap();
        let ((alone, _), (together, shared_ns)) = (outcome(&experiment, 1), outcome(&experiment, ALL));
        assert!(together == alone);
        // `default` and `none` set no knob, so one of them is shared with either seed.
        assert!(shared_ns >= 2 * STEPS as u64 * STEP_NS, "{shared_ns} ns");
    }
}

#[test]
fn points_of_a_sweep_that_differ_in_settings_of_policies_share_a_server_and_others_do_not() {
    let policies = "policies = [\"default\", \"fixed\"]\n";
    let sweep = |key: &str, values: &str| {
        let text = format!("{policies}{SERVER}[[sweep]]\nkey = \"{key}\"\nvalues = {values}\n");
        let source = ScenarioSource::parse("small.toml", &text, None).unwrap();
        let experiment = Experiment::prepare(&source, plan(1, 2)).unwrap();
        let ((alone, _), (together, shared_ns)) = (outcome(&experiment, 1), outcome(&experiment, ALL));
        assert!(together == alone, "{key}");
        shared_ns / STEP_NS
    };
    // `default` is the same at three points, and so is `fixed` where it sets the values already in force.
    assert_eq!(sweep("policy.fixed.dca_ways", "[\"0x600\", \"0x7ff\", \"0x003\"]"), 3 * STEPS as u64);
    // Here `fixed` has no settings and equals `default`, at each point separately.
    assert_eq!(sweep("workload.scan.working_set", "[\"4M\", \"2M\"]"), 2 * STEPS as u64);
}

#[test]
fn no_more_simulations_share_a_server_than_memory_allows() {
    let experiment = experiment(SERVER, vec![vec![0x7ff]; 37], plan(3, 1));
    for (sampling, limit) in
        [(Sampling::DEFAULT, 16), (Sampling::one_in(8).unwrap(), 16), (Sampling::EXACT, 4)]
    {
        let most = cohort::most(sampling);
        assert_eq!(most, limit, "{sampling}");
        let cohorts = experiment.cohorts(most, |_| true);
        assert!(cohorts.iter().all(|cohort| cohort.len() <= most));
        let mut all = cohorts.concat();
        all.sort_unstable();
        assert_eq!(all, (0..experiment.jobs()).collect::<Vec<_>>(), "each job is in one cohort");
    }
}

#[test]
fn an_interrupt_ends_all_simulations_of_a_cohort() {
    let scripts = vec![vec![0x7ff], vec![0x7ff; 6], [vec![0x7ff; 4], vec![0x003]].concat()];
    let experiment = experiment(SERVER, scripts, plan(2, 2));
    let stop = experiment.stop_flag();
    let done_ns = AtomicU64::new(0);
    let tell = |progress: SimulationProgress| {
        stop.store(true, Ordering::Relaxed);
        done_ns.fetch_max(progress.done_ns, Ordering::Relaxed);
    };
    assert!(matches!(experiment.run(&tell), Err(RunError::Interrupted)));
    assert!(done_ns.into_inner() <= 6 * STEP_NS, "simulations continued");
}
