//! `waykeeper run`: runs a scenario under policies and compares them. Must not know how a run is made (`lab`).

use crate::exit::{self, Failure};
use crate::out;
use crate::progress::Bar;
use clap::Args;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use waykeeper_lab::msl::{self, Criterion};
use waykeeper_lab::results::{RunSummary, SweepSummary};
use waykeeper_lab::runner::{Experiment, ExperimentOutcome, RunPlan};
use waykeeper_lab::table::{self, Extent, Ink};
use waykeeper_lab::{files, registry};
use waykeeper_machine::ScenarioSource;
use waykeeper_silicon::Sampling;

const EXAMPLES: &str = "\
Examples:
  waykeeper run                                       the flagship scenario under its own policies
  waykeeper run --policy default --policy a4          only these two
  waykeeper run --details                             all tables, and what each policy did
  waykeeper run --seeds 5 --out results               means of 5 seeds; files and a page
  waykeeper run a4-fig5 --json                        a sweep, for programs
  waykeeper run my.toml --set workload.fio.block=64k  your own scenario with a key changed
  waykeeper run --sets exact --duration 40            every LLC set, a shorter run
  waykeeper run idio-msl --find-msl                   the load at the knee of p99, per placement

The same scenario, seed and version give the same numbers on any machine and any number of threads.";

/// Command-line arguments of `run`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RunArgs {
    /// Scenario: a built-in name (see `waykeeper scenario list`) or the path of a file
    #[arg(default_value = registry::FLAGSHIP)]
    scenario: String,
    /// Policy to run, may be given several times [default: the scenario's list]; `best` is the best static layout that
    /// `waykeeper best` found
    #[arg(long, value_name = "NAME")]
    policy: Vec<String>,
    /// Seed of the random numbers; with --seeds the first of them
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Number of seeds to run, counting up from the first; the result is their mean and spread
    #[arg(long, value_name = "K", default_value_t = 1)]
    seeds: u32,
    /// Share of the LLC's sets to simulate: exact (all), 1/2, 1/4, ... 1/256
    #[arg(long, value_name = "1/N|exact", default_value_t = Sampling::DEFAULT)]
    sets: Sampling,
    /// Simulate an interval before the measured stretch only in part if it repeats the one before, which takes half the
    /// time; a rare event, such as a queue that fills, may then happen later
    #[arg(long)]
    extrapolate: bool,
    /// Length of each run in seconds of the server's clock [default: the scenario's]
    #[arg(long, value_name = "S")]
    duration: Option<f64>,
    /// Measure from this second of the server's clock to the end [default: as the scenario says]
    #[arg(long, value_name = "S")]
    warmup: Option<f64>,
    /// Let the control loop put the layout as found back for 4 intervals, at most every S seconds of the server's clock, to
    /// measure what each policy is worth; the policy does not see these intervals nor the one after, so its results lose by
    /// them [default S: 20]
    #[arg(long, value_name = "S", num_args = 0..=1, require_equals = true, conflicts_with_all = ["find_msl", "find_zero_loss"])]
    looks: Option<Option<f64>>,
    /// Number of threads, each of which runs one simulation at a time [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Write summary.json, CSV, decisions and a page with charts into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
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
    leave_on_interrupt()?;
    let mut source = registry::open(&args.scenario)?;
    for (key, value) in &args.set {
        change(&mut source, key, value)?;
    }
    if args.threads == Some(0) {
        return Err(Failure::bad_input("`--threads` is 0; it must be at least 1, or left out"));
    }
    let looks = args.looks.map(|every_s| RunPlan::looks(every_s.unwrap_or(RunPlan::LOOKS_EVERY_S)));
    let plan = RunPlan {
        policies: args.policy,
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
    let searches = [(&args.find_msl, Criterion::Knee), (&args.find_zero_loss, Criterion::ZeroLoss)];
    if let Some((nic, criterion)) = searches.into_iter().find_map(|(nic, what)| Some((nic.as_ref()?, what))) {
        return find_msl(&source, &plan, nic.as_deref(), criterion, args.json);
    }
    let experiment = Experiment::prepare(&source, plan)?;
    for note in experiment.notes() {
        exit::eprint_line(&format!("note: {note}"));
    }
    let bar = Bar::new();
    let outcome = experiment.run(&|progress| bar.show(progress));
    bar.clear();
    match outcome? {
        ExperimentOutcome::Run(summary) if args.json => show_run(&summary, args.out.as_deref(), None),
        ExperimentOutcome::Run(summary) => {
            let extent = if args.details { Extent::Details } else { Extent::Screen };
            show_run(&summary, args.out.as_deref(), Some(extent))
        }
        ExperimentOutcome::Sweep(sweep) => show_sweep(&sweep, args.out.as_deref(), args.json),
    }
}

fn find_msl(
    source: &ScenarioSource,
    plan: &RunPlan,
    nic: Option<&str>,
    criterion: Criterion,
    json: bool,
) -> Result<(), Failure> {
    let bar = Bar::new();
    let found = msl::find(source, plan, nic, criterion, &|progress| bar.show(progress));
    bar.clear();
    let found = found?;
    if json { out::json(&found) } else { out::text(&msl::table(&found)) }
}

/// Writes the requested files and prints `extent` of the run, or its JSON.
fn show_run(summary: &RunSummary, directory: Option<&Path>, extent: Option<Extent>) -> Result<(), Failure> {
    // Files first: they must be complete even if the reader of the table closes the pipe.
    let written = directory.map(|directory| files::write_run(directory, summary)).transpose()?;
    match extent {
        None => out::json(summary)?,
        Some(extent) => out::text(&table::run(summary, Ink::for_stdout(), extent))?,
    }
    print_written(written);
    Ok(())
}

fn show_sweep(sweep: &SweepSummary, directory: Option<&Path>, json: bool) -> Result<(), Failure> {
    let written = directory.map(|directory| files::write_sweep(directory, sweep)).transpose()?;
    if json {
        out::json(sweep)?;
    } else {
        out::text(&table::curve(sweep, Ink::for_stdout()))?;
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

/// Ctrl-C ends the program at once: files are written atomically, so no cleanup is needed.
fn leave_on_interrupt() -> Result<(), Failure> {
    let always = Arc::new(AtomicBool::new(true));
    let code = i32::from(exit::INTERRUPTED);
    signal_hook::flag::register_conditional_shutdown(signal_hook::consts::SIGINT, code, always)
        .map(drop)
        .map_err(|why| Failure::io("cannot listen for Ctrl-C", &why))
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
