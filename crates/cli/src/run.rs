//! `waykeeper run`: runs a scenario under policies and compares them. Must not know how a run is made (`lab`).

mod keep;

use crate::exit::{self, Failure};
use crate::number::{seconds, within};
use crate::own_policies::OwnPolicies;
use crate::progress::RunBar;
use crate::{interrupt, out, outputs};
use clap::Args;
use keep::Keeping;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use waykeeper_lab::msl::{self, Criterion, LoadSearch};
use waykeeper_lab::results::{RunSummary, SweepSummary};
use waykeeper_lab::runner::{
    Experiment, ExperimentOutcome, MOST_SEEDS, MOST_THREADS, RunError, RunName, RunPlan, Shard,
};
use waykeeper_lab::table::{self, Extent, Medium};
use waykeeper_lab::{files, registry};
use waykeeper_machine::{LATEST_S, SHORTEST_RUN_S, ScenarioSource};
use waykeeper_silicon::Sampling;

const EXAMPLES: &str = "\
Examples:
  waykeeper run                                       the flagship scenario under its own policies
  waykeeper run --policy default --policy a4          only these two
  waykeeper run --policy default --policy ./mine.py   your own policy in Python (`waykeeper policy new`)
  waykeeper run --details                             all tables, and what each policy did
  waykeeper run --seeds 5 --out results               means of 5 seeds; files and a page
  waykeeper run --seeds 5 --out results --resume      continue after Ctrl-C
  waykeeper run a4-fig5 --json                        a sweep, for programs
  waykeeper run a4-fig5 --out results --shard 3/8     an eighth of its runs, for a job of an array; at
                                                      the end the same with --resume for --shard 3/8
  waykeeper run my.toml --set workload.fio.block=64k  your own scenario with a key changed
  waykeeper run --sets exact --duration 40            every LLC set, a shorter run
  waykeeper run idio-msl --find-msl                   the load at the knee of p99, per placement

The same scenario, seed and version give the same numbers on any machine and any number of threads.
Ctrl-C shows and writes what is finished, marked as partial; a second Ctrl-C ends at once. Finished
runs are kept in DIR/.runs until the result is complete, without --out for a month in
$XDG_CACHE_HOME/waykeeper/runs [~/.cache], where only --resume reads them (at most 256 MB).";

/// Command-line arguments of `run`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RunArgs {
    /// Scenario: a built-in name (see `waykeeper scenario list`) or the path of a file
    #[arg(default_value = registry::FLAGSHIP)]
    scenario: OsString,
    /// Policy to run, may be given several times [default: the scenario's list]; `best` is the best static layout that
    /// `waykeeper best` found; FILE.py, or a name with a `/`, is your own policy in Python, FILE.py:CLASS one of several
    #[arg(long, value_name = "NAME")]
    policy: Vec<String>,
    /// Seed of the random numbers; with --seeds the first of them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within(0, u64::MAX))]
    seed: u64,
    /// Number of seeds to run, counting up from the first; the result is their mean and spread
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = within(1, MOST_SEEDS))]
    seeds: u32,
    /// Share of the LLC's sets to simulate: exact (all), 1/2, 1/4, ... 1/256
    #[arg(long, value_name = "1/N|exact", default_value_t = Sampling::DEFAULT)]
    sets: Sampling,
    /// Simulate an interval before the measured stretch only in part if it repeats the one before, which takes half the
    /// time; a rare event, such as a queue that fills, may then happen later
    #[arg(long)]
    extrapolate: bool,
    /// Length of each run in seconds of the server's clock [default: the scenario's]
    #[arg(long, value_name = "S", value_parser = seconds(SHORTEST_RUN_S, LATEST_S))]
    duration: Option<f64>,
    /// Measure from this second of the server's clock to the end [default: as the scenario says]
    #[arg(long, value_name = "S", value_parser = seconds(0.0, LATEST_S))]
    warmup: Option<f64>,
    /// Let the control loop put the layout as found back for 4 intervals, at most every S seconds of the server's clock, to
    /// measure what each policy is worth; the policy does not see these intervals nor the one after, so its results lose by
    /// them [default S: 20]
    #[arg(long, value_name = "S", num_args = 0..=1, require_equals = true, value_parser = seconds(SHORTEST_RUN_S, LATEST_S), conflicts_with_all = ["find_msl", "find_zero_loss"])]
    looks: Option<Option<f64>>,
    /// Number of threads, each of which runs one simulation at a time [default: one per core]
    #[arg(long, value_name = "N", value_parser = within(1, MOST_THREADS))]
    threads: Option<usize>,
    /// Write summary.json, CSV, decisions and a page with charts into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Overwrite the result that --out has
    #[arg(long, requires = "out")]
    force: bool,
    /// Continue a run that was interrupted: use the finished runs that it kept
    #[arg(long)]
    resume: bool,
    /// Run only share I of N (from 1) of the simulations and keep them in DIR/.runs, where the shards of other machines
    /// keep theirs; what is kept there is not run again. When all have ended, the same command with --resume instead
    /// writes the result. Simulations that share a server stay together, so a scenario without a sweep has a shard per seed
    #[arg(long, value_name = "I/N", requires = "out", conflicts_with_all = ["force", "json", "details", "find_msl", "find_zero_loss"])]
    shard: Option<Shard>,
    /// Print the result as JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Print all tables, and what each policy did and why; of a sweep all tables are always printed
    #[arg(long)]
    details: bool,
    /// Find the maximum sustainable load instead: the highest load of the NIC (of this name, if there are
    /// several) before p99 latency rises sharply or packets are lost, by repeated runs
    #[arg(long, value_name = "NIC", num_args = 0..=1, require_equals = true, conflicts_with_all = ["out", "details"])]
    find_msl: Option<Option<String>>,
    /// Find the highest load without loss instead (RFC 2544), regardless of latency
    #[arg(long, value_name = "NIC", num_args = 0..=1, require_equals = true, conflicts_with_all = ["out", "details", "find_msl"])]
    find_zero_loss: Option<Option<String>>,
    /// Change a key of the scenario, may be given several times, such as workload.fio.block=64k or
    /// workload[fio].block=64k
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    set: Vec<(String, toml::Value)>,
}

/// Runs the subcommand.
pub fn run(args: RunArgs) -> Result<(), Failure> {
    let stop = interrupt::listen()?;
    let mut source = registry::open(&args.scenario)?;
    for (key, value) in &args.set {
        change(&mut source, key, value)?;
    }
    let looks = args.looks.map(|every_s| RunPlan::looks(every_s.unwrap_or(RunPlan::LOOKS_EVERY_S)));
    let mut policies = args.policy.clone();
    let own = OwnPolicies::take(&mut policies, &stop)?;
    own.failure.stops(stop.clone());
    let plan = RunPlan {
        policies,
        seed: args.seed,
        seeds: args.seeds,
        sampling: args.sets,
        extrapolate: args.extrapolate,
        duration_s: args.duration,
        warmup_s: args.warmup,
        look_back: looks.transpose()?,
        threads: args.threads.unwrap_or(0),
        ..RunPlan::default()
    };
    let failure = own.failure.clone();
    let bar = RunBar::new(&args.scenario.to_string_lossy(), stop.clone(), move || failure.first().is_some());
    let searches = [(&args.find_msl, Criterion::Knee), (&args.find_zero_loss, Criterion::ZeroLoss)];
    if let Some((nic, criterion)) = searches.into_iter().find_map(|(nic, what)| Some((nic.as_ref()?, what))) {
        let keeping = Keeping::in_cache(args.resume);
        let search = LoadSearch::prepare(
            &source,
            &plan,
            own.policies.clone(),
            nic.as_deref(),
            criterion,
            keeping.runs(),
        )?;
        return find_msl(&args, search.stopped_by(stop), &own, &keeping, bar);
    }
    if let Some(out) = &args.out {
        // A sweep removes the time series of an earlier run, which is a file of ours too.
        let files = &files::RUN_FILES;
        match args.shard {
            Some(_) => outputs::directory("--out", out, files, false)?,
            None => keep::check_out(out, files, args.resume, args.force)?,
        }
    }
    let keeping = match (&args.out, args.shard) {
        (Some(out), Some(_)) => Keeping::shared(out),
        (Some(out), None) => Keeping::beside(out, args.resume),
        (None, _) => Keeping::in_cache(args.resume),
    };
    let experiment = Experiment::prepare_kept(&source, plan, own.policies.clone(), keeping.runs())?;
    if let Some(shard) = args.shard {
        return run_shard(&args, experiment.stopped_by(stop), shard, &own, &keeping, bar);
    }
    run_experiment(&args, experiment.stopped_by(stop), &own, &keeping, bar)
}

fn run_experiment(
    args: &RunArgs,
    experiment: Experiment,
    own: &OwnPolicies,
    keeping: &Keeping,
    bar: RunBar,
) -> Result<(), Failure> {
    for note in experiment.notes() {
        exit::eprint_line(&format!("note: {note}"));
    }
    let (names, points) = (experiment.runs(), experiment.points());
    bar.plan(what(args, &names, points, experiment.threads()), "runs", &names, points);
    let outcome = experiment.run_watched(&bar);
    bar.clear();
    own.check()?;
    let outcome = outcome.map_err(|why| ended_without_result(why, keeping))?;
    let partial = outcome.is_partial();
    let extent = match (args.details, &args.out) {
        (true, _) => Extent::Details,
        (false, Some(_)) => Extent::ScreenBesidePage,
        (false, None) => Extent::Screen,
    };
    match outcome {
        ExperimentOutcome::Run(summary) => {
            show_run(&summary, args.out.as_deref(), (!args.json).then_some(extent))?;
        }
        ExperimentOutcome::Sweep(sweep) => show_sweep(&sweep, args.out.as_deref(), args.json)?,
    }
    end(partial, keeping)
}

/// Runs the simulations of a shard, which the result of the whole experiment uses later.
fn run_shard(
    args: &RunArgs,
    experiment: Experiment,
    shard: Shard,
    own: &OwnPolicies,
    keeping: &Keeping,
    bar: RunBar,
) -> Result<(), Failure> {
    let most = experiment.most_shards();
    if shard.count() > most {
        exit::eprint_line(&format!("note: --shard {shard}: only {most} shards have simulations"));
    }
    let names = experiment.runs();
    let whole = what(args, &names, experiment.points(), experiment.threads());
    bar.plan(format!("shard {shard} of {whole}"), "runs", &names, experiment.points());
    let outcome = experiment.run_shard(shard, &bar);
    bar.clear();
    own.check()?;
    let outcome = outcome.map_err(|why| ended_without_result(why, keeping))?;
    let folder = keeping.folder().display();
    let ended = format!("{} of {} runs have ended", outcome.ended, outcome.runs);
    if outcome.lost > 0 {
        return Err(Failure::new(
            exit::FAILED,
            format!("shard {shard}: {} runs could not be kept in {folder}", outcome.lost),
        ));
    }
    if outcome.ended < outcome.runs {
        let why = format!("interrupted; {ended} and are kept in {folder}; the same command continues");
        return Err(Failure::new(exit::INTERRUPTED, why));
    }
    out::text(&format!(
        "shard {shard}: {ended} and are kept in {folder}\nwhen all shards have ended: the same command with --resume instead of --shard {shard}\n"
    ))
}

fn find_msl(
    args: &RunArgs,
    search: LoadSearch,
    own: &OwnPolicies,
    keeping: &Keeping,
    bar: RunBar,
) -> Result<(), Failure> {
    let names = search.names();
    bar.plan(what(args, &names, 1, search.threads()), "searches", &names, 1);
    let found = search.run(&bar);
    bar.clear();
    own.check()?;
    let found = found.map_err(|why| ended_without_result(why, keeping))?;
    if args.json {
        out::json(&found)?
    } else {
        out::text(&msl::table(&found))?
    }
    end(found.partial, keeping)
}

/// What is run, in a line.
fn what(args: &RunArgs, names: &[RunName], points: usize, threads: usize) -> String {
    let mut policies: Vec<&str> = Vec::new();
    names.iter().map(|name| name.policy.as_str()).for_each(|policy| {
        if !policies.contains(&policy) {
            policies.push(policy);
        }
    });
    let some = |count: usize, one: &str, more: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {more}"),
    };
    let mut parts = vec![some(policies.len(), "policy", "policies") + " (" + &policies.join(", ") + ")"];
    parts.push(some(args.seeds as usize, "seed", "seeds"));
    if points > 1 {
        parts.push(format!("{points} points"));
    }
    let searches = args.find_msl.is_some() || args.find_zero_loss.is_some();
    let all = match searches {
        true => some(names.len(), "search of up to 10 loads", "searches of up to 10 loads"),
        false => some(names.len(), "run", "runs"),
    };
    let threads = some(threads.min(names.len()), "thread", "threads");
    format!("{}: {}: {all} on {threads}", args.scenario.display(), parts.join(" x "))
}

/// An interrupt before any run had ended, or a failure; what had ended until then is kept.
fn ended_without_result(why: RunError, keeping: &Keeping) -> Failure {
    match why {
        RunError::Interrupted => Failure::new(
            exit::INTERRUPTED,
            format!("interrupted before the first run had ended; {}", keeping.interrupted()),
        ),
        why => {
            if keeping.has_some() {
                exit::eprint_line(&format!("note: {}", keeping.interrupted()));
            }
            why.into()
        }
    }
}

/// The end of a command that has shown its result.
fn end(partial: bool, keeping: &Keeping) -> Result<(), Failure> {
    if partial {
        let why = format!("interrupted; {}", keeping.interrupted());
        return Err(Failure::new(exit::INTERRUPTED, why));
    }
    keeping.complete();
    Ok(())
}

/// Writes the requested files and prints `extent` of the run, or its JSON.
fn show_run(summary: &RunSummary, directory: Option<&Path>, extent: Option<Extent>) -> Result<(), Failure> {
    // Files first: they must be complete even if the reader of the table closes the pipe.
    let written = directory.map(|directory| files::write_run(directory, summary)).transpose()?;
    match extent {
        None => out::json(summary)?,
        Some(extent) => out::text(&table::run(summary, Medium::of_stdout(), extent))?,
    }
    print_written(written);
    Ok(())
}

fn show_sweep(sweep: &SweepSummary, directory: Option<&Path>, json: bool) -> Result<(), Failure> {
    let written = directory.map(|directory| files::write_sweep(directory, sweep)).transpose()?;
    if json {
        out::json(sweep)?;
    } else {
        out::text(&table::curve(sweep, Medium::of_stdout()))?;
    }
    print_written(written);
    Ok(())
}

fn print_written(written: Option<Vec<PathBuf>>) {
    let Some(files) = written else { return };
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    exit::eprint_line(&format!("wrote {}", names.join(", ")));
}

pub fn change(source: &mut ScenarioSource, key: &str, value: &toml::Value) -> Result<(), Failure> {
    source.set(key, value).map_err(|why| {
        Failure::bad_input(format!(
            "--set {why}; write the dotted key of something in the scenario, like workload.NAME.KEY, nic.NAME.KEY \
             or knobs.KEY"
        ))
    })
}

/// `KEY=VALUE`; the value is TOML, or text without quotes.
pub fn assignment(text: &str) -> Result<(String, toml::Value), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE, like workload.fio.block=64k")?;
    let (key, value) = (key.trim(), value.trim());
    if key.is_empty() {
        return Err("the key is missing; write KEY=VALUE, like workload.fio.block=64k".to_owned());
    }
    let parsed = format!("value = {value}").parse::<toml::Table>().ok().and_then(|mut table| {
        let value = table.remove("value");
        value.filter(|_| table.is_empty())
    });
    Ok((key.to_owned(), parsed.unwrap_or_else(|| toml::Value::String(value.to_owned()))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use toml::Value;

    #[test]
    fn a_value_is_toml_or_a_text_without_quotes() {
        let value = |text: &str| assignment(text).unwrap().1;
        assert_eq!(value("nic.nic0.ring=4096"), Value::Integer(4096));
        assert_eq!(value("workload.x.gb_per_s = 1.5"), Value::Float(1.5));
        assert_eq!(value("workload.fio.block=64k"), Value::String("64k".into()));
        assert_eq!(value("workload.fio.cores=0-3"), Value::String("0-3".into()));
        assert_eq!(value("workload.fio.mask=\"0x3\""), Value::String("0x3".into()));
        assert_eq!(value("knobs.dca_off=[\"raid0\"]"), Value::Array(vec![Value::String("raid0".into())]));
        // A value that would add a second key is text.
        assert_eq!(value("a=1\nb=2"), Value::String("1\nb=2".into()));
        assert!(assignment("no equals sign").is_err() && assignment("=1").is_err());
    }
}
