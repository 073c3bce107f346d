//! An experiment that was interrupted and continues has the outcome of one that was not, and what determines a simulation
//! is what its hash covers.

use super::*;
use crate::results::SweepPoint;
use crate::{files, msl};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use waykeeper_silicon::Sampling;

const TEXT: &str = r#"
name = "small"
duration_s = 4
warmup_s = 2
measure_s = 2
time_factor = 1000
policies = ["default", "a4"]
[[nic]]
name = "nic0"
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
"#;

const SWEEP: &str = "[[sweep]]\nkey = \"workload.scan.working_set\"\nvalues = [\"1M\", \"4M\", \"8M\"]\n";

fn plan() -> RunPlan {
    RunPlan { seeds: 3, threads: 1, sampling: Sampling::one_in(256).unwrap(), ..RunPlan::default() }
}

fn experiment(text: &str, plan: RunPlan, kept: Option<(&Path, bool)>) -> Experiment {
    let source = ScenarioSource::parse("small.toml", text, None).unwrap();
    let kept = kept.map(|(folder, reads)| Arc::new(KeptRuns::new(folder.to_owned(), reads)));
    Experiment::prepare_kept(&source, plan, Vec::new(), kept).unwrap()
}

/// Sets the stop flag when so many simulations have ended; collects points and warnings.
struct Stopper {
    stop: Arc<AtomicBool>,
    after: usize,
    ended: AtomicUsize,
    simulated_ns: std::sync::atomic::AtomicU64,
    points: Mutex<Vec<SweepPoint>>,
    warnings: Mutex<Vec<String>>,
}

impl Stopper {
    fn of(experiment: &Experiment, after: usize) -> Stopper {
        Stopper {
            stop: experiment.stop_flag(),
            after,
            ended: AtomicUsize::new(0),
            simulated_ns: std::sync::atomic::AtomicU64::new(0),
            points: Mutex::default(),
            warnings: Mutex::default(),
        }
    }
}

impl RunWatcher for Stopper {
    fn progressed(&self, progress: SimulationProgress) {
        self.simulated_ns.fetch_max(progress.done_ns - progress.shared_ns, Ordering::Relaxed);
        let ended = self.ended.fetch_add(usize::from(progress.ended), Ordering::Relaxed);
        if ended + usize::from(progress.ended) >= self.after {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn point_done(&self, point: &SweepPoint) {
        self.points.lock().unwrap().push(point.clone());
    }

    fn warn(&self, line: &str) {
        self.warnings.lock().unwrap().push(line.to_owned());
    }
}

impl msl::SearchWatcher for Stopper {
    fn found(&self, _: &msl::Knee) {}
}

/// All files of an outcome, without the time that it took.
fn bytes(outcome: ExperimentOutcome) -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let written = match outcome {
        ExperimentOutcome::Run(run) => {
            files::write_run(folder.path(), &RunSummary { wall_s: None, ..*run }).unwrap()
        }
        ExperimentOutcome::Sweep(sweep) => {
            files::write_sweep(folder.path(), &SweepSummary { wall_s: None, ..sweep }).unwrap()
        }
    };
    written.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

#[test]
fn an_interrupted_run_that_continues_has_the_bytes_of_one_that_was_not_interrupted() {
    for (text, jobs) in [(TEXT.to_owned(), 6), (format!("{TEXT}{SWEEP}"), 18)] {
        let whole = bytes(experiment(&text, plan(), None).run(&|_| ()).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let first = experiment(&text, plan(), Some((folder.path(), false)));
        let stopper = Stopper::of(&first, 3);
        let partial = first.run_watched(&stopper).unwrap();
        assert!(partial.is_partial());
        let kept = std::fs::read_dir(folder.path()).unwrap().count();
        assert!((3..jobs).contains(&kept), "{kept} of {jobs} are kept");

        let second = experiment(&text, RunPlan { threads: 2, ..plan() }, Some((folder.path(), true)));
        let watcher = Stopper::of(&second, usize::MAX);
        let resumed = second.run_watched(&watcher).unwrap();
        assert_eq!(watcher.ended.load(Ordering::Relaxed), jobs - kept, "kept ones are not run again");
        assert!(!resumed.is_partial() && bytes(resumed) == whole);
        assert_eq!(watcher.points.lock().unwrap().len(), if jobs == 18 { 3 } else { 0 });
        // All are kept now: nothing is simulated, and the bytes are the same.
        let third = experiment(&text, plan(), Some((folder.path(), true)));
        let watcher = Stopper::of(&third, usize::MAX);
        assert!(bytes(third.run_watched(&watcher).unwrap()) == whole);
        assert_eq!(watcher.ended.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn a_partial_result_names_what_it_lacks_and_its_numbers_are_those_of_the_seeds_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let first = experiment(TEXT, plan(), Some((folder.path(), false)));
    // One seed after the other, each under both policies.
    let ExperimentOutcome::Run(partial) = first.run_watched(&Stopper::of(&first, 2)).unwrap() else {
        panic!("no sweep")
    };
    let missing: Vec<(&str, u64)> = partial.missing.iter().map(|run| (&*run.policy, run.seed)).collect();
    assert_eq!(missing, [("default", 2), ("default", 3), ("a4", 2), ("a4", 3)]);
    let one = experiment(TEXT, RunPlan { seeds: 1, ..plan() }, None).run(&|_| ()).unwrap();
    let ExperimentOutcome::Run(one) = one else { panic!("no sweep") };
    let unmarked = RunSummary { partial: false, missing: Vec::new(), wall_s: None, ..*partial.clone() };
    assert_eq!(unmarked, RunSummary { wall_s: None, ..*one });
    let json = partial.to_json().unwrap();
    assert!(json.contains("\"partial\": true") && json.contains("\"missing\": ["), "{json}");
    let text = crate::table::run(&partial, crate::table::Medium::Stream, crate::table::Extent::Screen);
    assert!(text.contains("PARTIAL: interrupted; the numbers lack 4 runs: default seed 2"), "{text}");
}

#[test]
fn a_sweep_that_was_interrupted_has_its_complete_points_and_names_the_others() {
    let first = experiment(&format!("{TEXT}{SWEEP}"), RunPlan { seeds: 1, ..plan() }, None);
    let stopper = Stopper::of(&first, 2);
    let ExperimentOutcome::Sweep(sweep) = first.run_watched(&stopper).unwrap() else { panic!("a sweep") };
    assert!(sweep.partial && sweep.points.len() == 1 && sweep.missing.len() == 4, "{:?}", sweep.missing);
    assert_eq!(sweep.missing[0].at.values().next().unwrap().to_string(), "4M");
    assert_eq!(*stopper.points.lock().unwrap(), sweep.points);
    let text = crate::table::curve(&sweep, crate::table::Medium::Stream);
    assert!(text.contains("PARTIAL: interrupted; the numbers lack 4 runs"), "{text}");
    let line = crate::table::point(&sweep.points[0]);
    assert!(line.starts_with("workload.scan.working_set=1M: default HPW 1.00 LPW 1.00; a4 HPW"), "{line}");
}

#[test]
fn nothing_is_shown_if_nothing_has_ended() {
    let first = experiment(TEXT, plan(), None);
    first.stop_flag().store(true, Ordering::Relaxed);
    let watcher = Stopper::of(&first, usize::MAX);
    assert!(matches!(first.run_watched(&watcher), Err(RunError::Interrupted)));
}

#[test]
fn a_damaged_kept_run_is_reported_and_runs_again() {
    let folder = tempfile::tempdir().unwrap();
    let whole = bytes(experiment(TEXT, plan(), Some((folder.path(), false))).run(&|_| ()).unwrap());
    let damaged = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&damaged, "{").unwrap();
    let again = experiment(TEXT, plan(), Some((folder.path(), true)));
    let watcher = Stopper::of(&again, usize::MAX);
    assert!(bytes(again.run_watched(&watcher).unwrap()) == whole);
    assert_eq!(watcher.ended.load(Ordering::Relaxed), 1);
    let warnings = watcher.warnings.lock().unwrap();
    assert!(warnings.len() == 1 && warnings[0].contains(&damaged.display().to_string()), "{warnings:?}");
}

#[test]
fn the_hash_of_a_simulation_covers_what_determines_it_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("job.fio"), "[global]\nbs=64k\n[one]\nrw=randread\n").unwrap();
    let fio = "[[storage]]\nname = \"raid0\"\n[[workload]]\nname = \"fio\"\nprogram = \"fio\"\ncores = \"3\"\nfio = \"job.fio\"\n";
    let text = format!("{TEXT}{fio}");
    let hashes = |text: &str, plan: RunPlan| {
        let source = ScenarioSource::parse("small.toml", text, Some(folder.path().to_owned())).unwrap();
        let kept = Arc::new(KeptRuns::new(folder.path().join("runs"), true));
        let experiment = Experiment::prepare_kept(&source, plan, Vec::new(), Some(kept)).unwrap();
        let jobs = experiment.job_list();
        let point = experiment.points[0].identity.clone().unwrap();
        jobs.iter().map(|job| identity::of_job(&point, job).unwrap()).collect::<Vec<_>>()
    };
    let one = || RunPlan { seeds: 1, ..plan() };
    let usual = hashes(&text, one());
    assert_ne!(usual[0], usual[1], "two policies");
    // Texts, the list of policies and the number of threads and seeds.
    let other = text.replace("\"small\"", "\"other\"").replace("\"default\", ", "");
    assert_eq!(hashes(&other, RunPlan { threads: 3, ..one() }), usual[1..]);
    assert_eq!(hashes(&text, plan())[0], usual[0], "the first of three seeds");
    let all_differ = |hashes: Vec<String>, what: &str| {
        assert!(hashes.iter().all(|hash| !usual.contains(hash)), "{what}");
    };
    all_differ(hashes(&text, RunPlan { seed: 2, ..one() }), "the seed");
    all_differ(hashes(&text, RunPlan { sample_seed: Some(9), ..one() }), "the seed of the sets");
    all_differ(hashes(&text, RunPlan { extrapolate: true, ..one() }), "extrapolation");
    let looks = RunPlan { look_back: Some(RunPlan::looks(20.0).unwrap()), ..one() };
    all_differ(hashes(&text, looks), "looks back");
    all_differ(hashes(&text, RunPlan { sampling: Sampling::EXACT, ..one() }), "the sets");
    all_differ(hashes(&text, RunPlan { duration_s: Some(5.0), ..one() }), "the length");
    all_differ(hashes(&text.replace("\"4M\"", "\"2M\""), one()), "a key");
    all_differ(hashes(&format!("chip = \"gold-6134\"\n{text}"), one()), "the chip");
    // The settings of a policy count for that policy.
    let set = hashes(&format!("{text}[policy.a4]\nstable_interval_s = 5\n"), one());
    assert!(set[0] == usual[0] && set[1] != usual[1]);
    std::fs::write(folder.path().join("job.fio"), "[global]\nbs=128k\n[one]\nrw=randread\n").unwrap();
    all_differ(hashes(&text, one()), "the content of a file");
}

#[test]
fn a_policy_of_the_callers_own_is_not_kept_unless_it_says_what_it_is() {
    let own = |identity: Option<&str>| OwnPolicy {
        name: "own".to_owned(),
        build: Arc::new(|settings| waykeeper_policy::build("default", settings).map_err(Box::new)),
        identity: identity.map(str::to_owned),
    };
    let source = ScenarioSource::parse("small.toml", TEXT, None).unwrap();
    let kept_after = |identity: Option<&str>| {
        let folder = tempfile::tempdir().unwrap();
        let kept = Arc::new(KeptRuns::new(folder.path().join("runs"), false));
        let plan = RunPlan { policies: vec!["own".to_owned()], ..plan() };
        let experiment = Experiment::prepare_kept(&source, plan, vec![own(identity)], Some(kept.clone()));
        experiment.unwrap().run(&|_| ()).unwrap();
        kept.written()
    };
    assert_eq!((kept_after(None), kept_after(Some("default again"))), (0, 3));
}

#[test]
fn a_search_for_a_load_continues_as_well() {
    let source = ScenarioSource::parse("small.toml", TEXT, None).unwrap();
    let plan = RunPlan { seeds: 1, ..plan() };
    let search = |kept: Option<(&Path, bool)>| {
        let kept = kept.map(|(folder, reads)| Arc::new(KeptRuns::new(folder.to_owned(), reads)));
        msl::LoadSearch::prepare(&source, &plan, Vec::new(), None, msl::Criterion::Knee, kept).unwrap()
    };
    let idle = experiment(TEXT, plan.clone(), None);
    let json = |found: &msl::MslSummary| serde_json::to_string(found).unwrap();
    let whole = search(None).run(&Stopper::of(&idle, usize::MAX)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let stopper = Stopper::of(&idle, 1);
    let stopped = search(Some((folder.path(), false))).stopped_by(stopper.stop.clone());
    let partial = stopped.run(&stopper).unwrap();
    assert!(partial.partial && partial.knees.len() == 1 && partial.missing.len() == 1);
    assert!(msl::table(&partial).contains("PARTIAL: interrupted"));
    let kept = std::fs::read_dir(folder.path()).unwrap().count() as u64;
    let resumed = Stopper::of(&idle, usize::MAX);
    let again = search(Some((folder.path(), true))).run(&resumed).unwrap();
    assert_eq!(json(&again), json(&whole));
    // A run is 4 s of the server's clock, 4 ms simulated.
    let all: u64 = whole.knees.iter().map(|knee| knee.probes.len() as u64).sum();
    assert_eq!(resumed.simulated_ns.into_inner(), (all - kept) * 4_000_000);
}

#[test]
fn time_inside_a_control_interval_is_counted_until_the_interval_ends() {
    /// The most that was inside intervals, and what it sees at their ends.
    #[derive(Default)]
    struct Inside {
        ns: Mutex<Option<Arc<std::sync::atomic::AtomicI64>>>,
        before_the_first_end: std::sync::atomic::AtomicI64,
    }
    impl RunWatcher for Inside {
        fn begins(&self, start: RunStart) {
            *self.ns.lock().unwrap() = Some(start.inside_ns);
        }
        fn progressed(&self, _: SimulationProgress) {
            let ns = self.ns.lock().unwrap().as_ref().map_or(0, |ns| ns.load(Ordering::Relaxed));
            self.before_the_first_end.fetch_max(ns, Ordering::Relaxed);
        }
    }
    let experiment = experiment(TEXT, RunPlan { seeds: 2, threads: 2, ..plan() }, None);
    let inside = Inside::default();
    experiment.run_watched(&inside).unwrap();
    let left_ns = inside.ns.lock().unwrap().as_ref().unwrap().load(Ordering::Relaxed);
    // Every interval was given back, up to a portion of 0.1 ms per copy of a server; an interval is 1 ms.
    assert!(left_ns.abs() < 1_000_000, "{left_ns} ns");
    // While one thread ends an interval, the other is inside one of at most 1 ms.
    assert!(inside.before_the_first_end.into_inner() <= 2_000_000);

    // An interval of an hour ends soon after the flag is set.
    let endless =
        TEXT.replace("duration_s = 4", "duration_s = 3600\ninterval_s = 3600").replace("= 1000", "= 1");
    let endless = self::experiment(&endless, RunPlan { seeds: 1, ..plan() }, None);
    let stop = endless.stop_flag();
    let inside_ns = endless.inside_ns.clone();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| endless.run(&|_| ()));
        while inside_ns.load(Ordering::Relaxed) < 1_000_000 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
        assert!(matches!(running.join().unwrap(), Err(RunError::Interrupted)));
    });
}

#[test]
fn the_shards_of_an_experiment_together_have_its_bytes() {
    for (text, groups) in [(TEXT.to_owned(), 3), (format!("{TEXT}{SWEEP}"), 9)] {
        let whole = bytes(experiment(&text, plan(), None).run(&|_| ()).unwrap());
        for count in [2, 4] {
            let folder = tempfile::tempdir().unwrap();
            let of_shard = || experiment(&text, plan(), Some((folder.path(), true)));
            assert_eq!(of_shard().most_shards(), groups);
            let mut times = vec![0; of_shard().jobs()];
            for index in 1..=count {
                let shard: Shard = format!("{index}/{count}").parse().unwrap();
                let members = of_shard().shard_members(shard);
                times
                    .iter_mut()
                    .zip(&members)
                    .for_each(|(times, is_member)| *times += usize::from(*is_member));
                let runs = members.iter().filter(|is_member| **is_member).count();
                let (first, again) = (of_shard(), of_shard());
                let watcher = Stopper::of(&first, usize::MAX);
                let outcome = ShardOutcome { runs, ended: runs, lost: 0 };
                assert_eq!(first.run_shard(shard, &watcher).unwrap(), outcome);
                assert_eq!(watcher.ended.into_inner(), runs);
                let watcher = Stopper::of(&again, usize::MAX);
                assert_eq!(again.run_shard(shard, &watcher).unwrap(), outcome);
                assert_eq!(watcher.ended.into_inner(), 0, "what is kept is not run again");
            }
            assert!(times.iter().all(|times| *times == 1), "each run is in one shard: {times:?}");
            let all = of_shard();
            let watcher = Stopper::of(&all, usize::MAX);
            assert!(bytes(all.run_watched(&watcher).unwrap()) == whole);
            assert_eq!(watcher.ended.into_inner(), 0, "the shards have run everything");
        }
    }
}

#[test]
fn an_interrupted_shard_says_what_has_ended_and_continues() {
    let folder = tempfile::tempdir().unwrap();
    let of_shard = || experiment(&format!("{TEXT}{SWEEP}"), plan(), Some((folder.path(), true)));
    let shard: Shard = "1/2".parse().unwrap();
    let first = of_shard();
    let outcome = first.run_shard(shard, &Stopper::of(&first, 3)).unwrap();
    assert!(outcome.runs == 10 && (3..10).contains(&outcome.ended), "{outcome:?}");
    let second = of_shard();
    let watcher = Stopper::of(&second, usize::MAX);
    assert_eq!(second.run_shard(shard, &watcher).unwrap().ended, 10);
    assert_eq!(watcher.ended.into_inner(), 10 - outcome.ended);
}

#[test]
fn a_shard_whose_runs_cannot_be_kept_fails_or_says_how_many_are_lost() {
    let shard: Shard = "1/1".parse().unwrap();
    let nowhere = experiment(TEXT, plan(), None);
    let why = nowhere.run_shard(shard, &Stopper::of(&nowhere, usize::MAX)).unwrap_err().to_string();
    assert!(why.contains("the policy of a shard is default"), "{why}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let full = experiment(TEXT, plan(), Some((&file.join("runs"), true)));
    let outcome = full.run_shard(shard, &Stopper::of(&full, usize::MAX)).unwrap();
    assert_eq!(outcome, ShardOutcome { runs: 6, ended: 6, lost: 6 });
}
