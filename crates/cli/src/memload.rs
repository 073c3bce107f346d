//! `waykeeper memload`: DMA load on an NVMe device, a block device, a file or the virtual server.
//!
//! Parses the command line and calls the parts that run it; must not know how load is made.

mod counters;
mod cpus;
mod fio_words;
mod interfere;
mod interrupts;
mod jobs;
mod log;
mod measured_command;
mod options;
mod real;
mod simulated;
mod summary_table;

use crate::exit::{self, Failure};
use crate::out;
use crate::progress::LoadLine;
use clap::{Args, Subcommand};
use fio_words::FioWords;
use interrupts::Interrupts;
use options::{LoadArgs, PlaceArgs, consent, plan, refuse_contradictory_consent};
use serde::Serialize;
use std::path::{Path, PathBuf};
use waykeeper_load::LoadSummary;
use waykeeper_memload::{Consent, LoadPlan};

const EXAMPLES: &str = "\
Examples:
  NVMe reads for 10 s: the device writes memory and keeps its data
    waykeeper memload /dev/ng0n1 --time 10
  NVMe writes: the device reads memory, and its stored data are overwritten
    waykeeper memload /dev/ng0n1 --op read --destroy-data-on S5GXNX0W1 --depth 32 --time 10
  A file, one block per command; then 1000 commands per second in bursts of ten
    waykeeper memload load.img --create 1GiB --pattern single --commands 100000
    waykeeper memload load.img --limit-commands 1000 --slots 100 --time 10 --json
  Fill a ring of buffers as a NIC does
    waykeeper memload /dev/nvme0n1 --pattern packets --stride 4 --buffer 1GiB --huge-pages 2M
  A virtual server, in simulated time
    waykeeper memload virtual:thesis-load-haswell --pattern single --commands 10000
  The jobs of a fio job file
    waykeeper memload load.img --jobs job.fio
  The slowdown of a command that runs at the same time
    waykeeper memload interfere load.img -- redis-benchmark -q -t set

`--op` names what the device does to memory. With `--op write` the device is read and writes memory.
With `--op read` the device reads memory and its stored data are overwritten; this needs
--destroy-data-on SERIAL for a device, --overwrite for a file. Ctrl-C ends a run and prints its
result. docs/memload.md explains patterns, limits and numbers.

A SIZE is 4096, 4k, 1M or 1.5GiB, with k = 1024; a TIME is 10, 10s, 500ms, 2m or 1h. The options of
fio have other names here: bs is --block-size, iodepth --depth, numjobs --workers, runtime --time;
rw=read is --op write, because the device writes memory.";

/// Command-line arguments of `memload`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct MemloadArgs {
    #[command(subcommand)]
    command: Option<MemloadCommand>,
    /// NVMe namespace (/dev/ng0n1, /dev/nvme0n1), block device, file, or the scenario of a virtual server
    #[arg(value_name = "DEVICE|FILE|virtual:SCENARIO", required_unless_present = "jobs")]
    target: Option<PathBuf>,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    _fio: FioWords,
    /// Run the jobs of a fio job file one after the other, instead of the options under `Load`; without a target
    /// each job uses its `filename`
    #[arg(long, value_name = "FILE", conflicts_with_all = jobs::NOT_BESIDE_JOBS, help_heading = "Job file")]
    jobs: Option<PathBuf>,
    /// Run only the job of this name
    #[arg(long, value_name = "NAME", requires = "jobs", help_heading = "Job file")]
    job: Option<String>,
    /// Print the summary as JSON; with --jobs a list with one summary per job
    #[arg(long, help_heading = options::RESULT)]
    json: bool,
}

/// Subcommands of `memload`.
#[derive(Subcommand, Debug)]
pub enum MemloadCommand {
    /// Measure how much DMA load slows a command down: alone, beside `random` and beside `single` load
    #[command(after_help = interfere::EXAMPLES)]
    Interfere(Box<interfere::InterfereArgs>),
}

/// The summary of a run, and whether it succeeded.
type RunOutcome = (LoadSummary, Result<(), Failure>);

/// Runs the subcommand.
pub fn memload(args: MemloadArgs) -> Result<(), Failure> {
    if let Some(MemloadCommand::Interfere(args)) = args.command {
        return interfere::interfere(&args);
    }
    let base = plan(&args.load, &args.place).map_err(Failure::bad_input)?;
    let mut consent = consent(&args.place);
    let interrupts = Interrupts::install()?;
    interrupts.enter_before_load();
    if let Some(path) = &args.jobs {
        let jobs = jobs::read(path, args.job.as_deref(), &base)?;
        return in_turn(jobs, args.target.as_deref(), consent, &interrupts, args.json);
    }
    let target = args.target.unwrap_or_default();
    if simulated::scenario(&target).is_none() {
        refuse_contradictory_consent(&consent, base.writes())?;
    }
    let load_line = LoadLine::new(String::new());
    let (summary, end) =
        run(&target, base, &mut consent, args.place.log.as_deref(), &interrupts, &load_line)?;
    if args.json {
        out::json(&summary)?
    } else {
        out::text(&summary_table::table(&summary))?
    }
    end
}

/// Runs the load on a real or a virtual target.
fn run(
    target: &Path,
    plan: LoadPlan,
    consent: &mut Consent,
    log: Option<&Path>,
    interrupts: &Interrupts,
    load_line: &LoadLine,
) -> Result<RunOutcome, Failure> {
    match simulated::scenario(target) {
        Some(scenario) => {
            // `simulated::run` handles the signal itself.
            interrupts.enter_reporting();
            simulated::run(scenario, &plan, consent, load_line)
        }
        None => real::run(target, plan, consent, log, interrupts, load_line),
    }
}

/// A job's summary as JSON.
#[derive(Serialize)]
struct JobSummary {
    job: String,
    #[serde(flatten)]
    summary: LoadSummary,
}

/// Runs the jobs one after the other, up to the first that fails.
fn in_turn(
    mut jobs: Vec<jobs::PlannedJob>,
    target: Option<&Path>,
    mut consent: Consent,
    interrupts: &Interrupts,
    json: bool,
) -> Result<(), Failure> {
    let target_of =
        |own: &Option<String>| target.map(Path::to_owned).or_else(|| own.as_ref().map(PathBuf::from));
    if let Some(without) = jobs.iter().find(|job| target_of(&job.target).is_none()) {
        let wanted = "name a target on the command line, or write `filename` into the job";
        return Err(Failure::bad_input(format!("job `{}` has no target; {wanted}", without.name)));
    }
    // A virtual server stores nothing, and `simulated` refuses consent itself.
    if jobs.iter().filter_map(|job| target_of(&job.target)).any(|at| simulated::scenario(&at).is_none()) {
        refuse_contradictory_consent(&consent, jobs.iter().any(|job| job.plan.writes()))?;
    }
    // Faults of a late job are reported before an early one has run for hours.
    for jobs::PlannedJob { name, target: own, plan } in &mut jobs {
        let in_job = |refused: Failure| refused.about(format!("job `{name}`"));
        let target = target_of(own).unwrap_or_default();
        if simulated::scenario(&target).is_some() {
            *plan = simulated::of_job(plan);
            simulated::fits(plan, &consent).map_err(in_job)?;
        } else {
            real::check_target(&target, plan, &consent).map_err(in_job)?;
        }
    }
    let mut all = Vec::new();
    let mut end = Ok(());
    let count = jobs.len();
    for (index, jobs::PlannedJob { name, target: own, plan }) in jobs.into_iter().enumerate() {
        if interrupts.came() {
            end = Err(Failure::new(exit::INTERRUPTED, format!("interrupted before the job `{name}`")));
            break;
        }
        let target = target_of(&own).unwrap_or_default();
        let which = format!("job {} of {count}, `{name}`", index + 1);
        exit::eprint_line(&format!("{which}: {}", target.display()));
        let load_line = LoadLine::new(format!("{which}: "));
        let outcome = run(&target, plan, &mut consent, None, interrupts, &load_line);
        let (summary, ended) = match outcome.map_err(|refused| refused.about(format!("job `{name}`"))) {
            Ok(outcome) => outcome,
            // The results of the earlier jobs are printed all the same.
            Err(refused) if !all.is_empty() => {
                end = Err(refused);
                break;
            }
            Err(refused) => return Err(refused),
        };
        if !json {
            out::text(&format!("{name}\n{}", summary_table::table(&summary)))?;
        }
        all.push(JobSummary { job: name, summary });
        end = ended
            .map_err(|failure| failure.about(format!("job `{}`", all.last().map_or("", |last| &last.job))));
        if end.is_err() {
            break;
        }
    }
    if json {
        out::json(&all)?;
    }
    end
}
