//! `waykeeper memload interfere`: the slowdown of a command by DMA load beside it.
//!
//! It runs a command and a load for a number of cycles; `probe::interfere` evaluates the numbers, `memload` makes the
//! load. Must not know either.

use super::cpus::{self, Cpus};
use super::measured_command::{self, CommandInterrupts, Ran};
use super::options::{LoadArgs, PlaceArgs, RESULT, consent, plan, refuse_contradictory_consent, whole};
use super::{real, simulated};
use crate::exit::{self, Failure};
use crate::{listing, out};
use clap::Args;
use regex_lite::Regex;
use serde::Serialize;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use waykeeper_load::{CompletedWork, MemoryDirection, Pattern, bandwidth};
use waykeeper_memload::{Consent, End, KernelMounts, LoadPlan, PrepareError, Ready, Running, Target, Touch};
use waykeeper_probe::interfere::{Arm, CONFIDENCE, Cycle, LEAST_CYCLES, Sense, Slowdown, order, slowdowns};
use waykeeper_units::CoreList;

pub const EXAMPLES: &str = "\
Examples:
  The run time of a command beside load on a new file
    waykeeper memload interfere load.img --create 1GiB -- redis-benchmark -q -t set -n 200000
  Beside load on an NVMe device
    waykeeper memload interfere /dev/ng0n1 --buffer 1GiB --touch always -- ./canneal.sh
  A number that the command prints, where higher is better
    waykeeper memload interfere load.img --metric 'GET: ([0-9.]+)' --rate -- redis-benchmark -t get

A cycle runs the command three times: alone (plain), beside `random` load and beside `single` load,
in a random order (--seed). The load uses the last CPU (or --cpus), the command the CPUs of other
cores. Each run beside a load is compared with the plain run of the same cycle; the 95 % interval is
Student's t of the logarithms of these ratios.";

/// Options without meaning beside a command: they are hidden and refused with a reason.
const NOT_BESIDE: [&str; 7] = ["pattern", "stride", "time", "blocks", "commands", "verify", "log"];

/// Command-line arguments of `interfere`.
#[derive(Args, Debug)]
#[command(mut_args(|word| {
    let hidden = NOT_BESIDE.contains(&word.get_id().as_str());
    word.hide(hidden)
}))]
pub struct InterfereArgs {
    /// NVMe namespace, block device or file for the load
    #[arg(value_name = "DEVICE|FILE")]
    target: PathBuf,
    /// Command to measure and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    place: PlaceArgs,
    /// Number of cycles; each is one plain, one random and one single run
    #[arg(long, value_name = "N", default_value_t = 10, help_heading = "Measurement", value_parser = whole::<u32>, allow_negative_numbers = true)]
    cycles: u32,
    /// Plain runs before the first cycle, which are not counted
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Measurement", value_parser = whole::<u32>, allow_negative_numbers = true)]
    warmup: u32,
    /// Measure a number that the command prints instead of its run time: the last match of this expression, or of
    /// its first group
    #[arg(long, value_name = "REGEX", help_heading = "Measurement")]
    metric: Option<String>,
    /// The number of --metric is a rate: higher is better
    #[arg(long, requires = "metric", help_heading = "Measurement")]
    rate: bool,
    /// Print the result as JSON
    #[arg(long, help_heading = RESULT)]
    json: bool,
}

/// The work of the load over all runs of a pattern.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Loaded {
    commands: u64,
    iops: f64,
    bandwidth_bytes_per_s: f64,
    #[serde(skip)]
    blocks: u64,
    #[serde(skip)]
    seconds: f64,
}

#[derive(Debug, Serialize)]
struct Beside {
    #[serde(flatten)]
    slowdown: Slowdown,
    load: Loaded,
}

#[derive(Debug, Serialize)]
struct Run {
    order: [Arm; 3],
    plain: f64,
    random: f64,
    single: f64,
}

/// The result.
#[derive(Debug, Serialize)]
struct Report {
    command: Vec<String>,
    target: String,
    engine: &'static str,
    op: MemoryDirection,
    workers: u32,
    depth: u32,
    cpus: Cpus,
    seed: u64,
    /// `seconds`, or the expression.
    measured: String,
    sense: Sense,
    confidence: f64,
    plain_median: f64,
    patterns: Vec<Beside>,
    cycles: Vec<Run>,
}

/// Runs the subcommand.
pub fn interfere(args: &InterfereArgs) -> Result<(), Failure> {
    let plan = usable(args)?;
    let metric = args.metric.as_deref().map(expression).transpose()?;
    let cpus = cpus::share(&plan.cpus)?;
    let plan = LoadPlan { cpus: cpus.load.clone(), ..plan };
    refuse_contradictory_consent(&consent(&args.place), plan.writes())?;
    let command_cpus = cpus.command_list();
    let interrupts = CommandInterrupts::install()?;
    let nothing =
        || Failure::new(exit::INTERRUPTED, "interrupted before the first cycle; nothing was measured");
    let mut stand = Stand::new(args, plan, &interrupts)?.ok_or_else(nothing)?;
    let run = |stand: &mut Stand, arm: Arm, when: &dyn Fn() -> String| {
        stand.beside(arm, &interrupts, |keep_going| {
            measure(args, metric.as_ref(), &command_cpus, &interrupts, keep_going, when)
        })
    };
    for _ in 0..args.warmup {
        if run(&mut stand, Arm::Plain, &|| "before the first cycle".to_owned())?.is_none() {
            return Err(nothing());
        }
    }
    let mut done: Vec<([Arm; 3], Cycle)> = Vec::new();
    let mut broken = None;
    'cycles: for (index, arms) in order(args.cycles, stand.plan.seed).into_iter().enumerate() {
        let mut cycle = [0.0; 3];
        for arm in arms {
            let when = || format!("in cycle {} ({})", index + 1, arm.name());
            match run(&mut stand, arm, &when)? {
                Some(value) => cycle[arm as usize] = value,
                None => {
                    broken = Some(when());
                    break 'cycles;
                }
            }
        }
        let [plain, random, single] = cycle.map(|value| stand_in_words(args, value));
        exit::eprint_line(&format!(
            "cycle {}/{}: plain {plain}, random {random}, single {single}",
            index + 1,
            args.cycles
        ));
        done.push((arms, cycle));
    }
    let whole = done.len();
    let reported = stand.report(args, cpus, &done);
    for doubt in reported.iter().flat_map(|report| doubts(report, args.metric.is_none())) {
        exit::eprint_line(&doubt);
    }
    if let Some(report) = &reported {
        if args.json { out::json(report)? } else { out::text(&table(args, report))? }
    }
    match (broken, reported) {
        (Some(when), Some(_)) => Err(Failure::new(
            exit::INTERRUPTED,
            format!("interrupted {when}; whole cycles in the result: {whole}"),
        )),
        (Some(when), None) => {
            let why = format!("interrupted {when}; whole cycles until then: {whole}, too few for a result");
            Err(Failure::new(exit::INTERRUPTED, why))
        }
        (None, Some(_)) => Ok(()),
        (None, None) => {
            let why = "a measured value is not above 0, so no ratio can be computed";
            Err(Failure::new(exit::FAILED, why))
        }
    }
}

/// The plan of the load; options without meaning beside a command are refused.
fn usable(args: &InterfereArgs) -> Result<LoadPlan, Failure> {
    if simulated::scenario(&args.target).is_some() {
        let why = format!(
            "{}: a virtual server runs in simulated time, and a command cannot run beside it",
            args.target.display()
        );
        return Err(Failure::bad_input(format!("{why}; name a device or a file")));
    }
    if args.cycles < LEAST_CYCLES {
        let wanted = format!("it must be at least {LEAST_CYCLES}, because an interval needs a spread");
        return Err(Failure::bad_input(format!("--cycles is {}; {wanted}", args.cycles)));
    }
    let plan = plan(&args.load, &args.place).map_err(Failure::bad_input)?;
    if plan.pattern != Pattern::Random {
        let why = "interfere runs plain, random and single in turn; leave --pattern out";
        return Err(Failure::bad_input(format!("--pattern {}: {why}", plan.pattern.name())));
    }
    let (lasts, one) = ("the load lasts as long as the command", "it applies to a single run of a load");
    let said = [
        ("--time", plan.time.is_some(), lasts),
        ("--blocks", plan.blocks.is_some(), lasts),
        ("--commands", plan.commands.is_some(), lasts),
        ("--verify", plan.verify, one),
        ("--log", plan.log, one),
    ];
    if let Some((word, _, why)) = said.iter().find(|(_, is_said, _)| *is_said) {
        return Err(Failure::bad_input(format!("{word} beside a command: {why}; leave it out")));
    }
    Ok(plan)
}

fn expression(text: &str) -> Result<Regex, Failure> {
    Regex::new(text).map_err(|why| Failure::bad_input(format!("--metric `{text}`: {why}")))
}

/// One run of the command; `None` if the user interrupted.
fn measure(
    args: &InterfereArgs,
    metric: Option<&Regex>,
    cpus: &CoreList,
    interrupts: &CommandInterrupts,
    keep_going: &dyn Fn() -> bool,
    when: &dyn Fn() -> String,
) -> Result<Option<f64>, Failure> {
    let name = args.command[0].display();
    let (took, text) = match measured_command::run(&args.command, cpus, interrupts, keep_going)? {
        Ran::Broken => return Ok(None),
        Ran::Alone => return Err(Failure::new(exit::FAILED, format!("the load ended {}", when()))),
        Ran::Well(took, text) => (took, text),
        Ran::Badly(status, last) => {
            let why = format!("{name} failed {} ({status}){last}; no result", when());
            return Err(Failure::new(exit::FAILED, why));
        }
    };
    let Some(metric) = metric else { return Ok(Some(took.as_secs_f64())) };
    let found = metric.captures_iter(&text).last().and_then(|found| found.get(1).or_else(|| found.get(0)));
    let number = found.and_then(|found| found.as_str().trim().parse::<f64>().ok());
    let why = match number {
        Some(number) if number.is_finite() && number > 0.0 => return Ok(Some(number)),
        Some(number) => {
            format!("--metric `{metric}` is {number} {}; a ratio needs numbers above 0", when())
        }
        None => format!("{name} printed no number that matches --metric `{metric}` {}", when()),
    };
    Err(Failure::new(exit::FAILED, why))
}

/// The load, which can be started repeatedly.
struct Stand {
    plan: LoadPlan,
    consent: Consent,
    target: PathBuf,
    system: KernelMounts,
    engine: &'static str,
    block_bytes: u64,
    loaded: [Loaded; 3],
}

impl Stand {
    /// Checks the target with both patterns before the first measurement; `None` if the user interrupted.
    fn new(
        args: &InterfereArgs,
        plan: LoadPlan,
        interrupts: &CommandInterrupts,
    ) -> Result<Option<Stand>, Failure> {
        let consent = consent(&args.place);
        let mut stand = Stand {
            plan,
            consent,
            target: args.target.clone(),
            system: KernelMounts::default(),
            engine: "",
            block_bytes: 0,
            loaded: [Loaded::default(); 3],
        };
        let target = Target::inspect(&stand.target, &stand.system)?;
        real::announce_wait(&target, &stand.plan, &stand.consent);
        let Some(ready) = stand.ready(Pattern::Random, interrupts)? else { return Ok(None) };
        for note in ready.notes() {
            exit::eprint_line(note);
        }
        (stand.engine, stand.block_bytes) = (ready.engine().name(), ready.block_bytes().into());
        stand.consent.made.extend(ready.created_file().cloned());
        drop(ready);
        // The file is created once: if it is missing later, another program removed it on purpose.
        stand.consent.create = None;
        Ok(stand.ready(Pattern::Single, interrupts)?.map(|_| stand))
    }

    /// Prepares the load with a pattern; `None` if the user interrupted.
    fn ready(&self, pattern: Pattern, interrupts: &CommandInterrupts) -> Result<Option<Arc<Ready>>, Failure> {
        let target = Target::inspect(&self.target, &self.system)?;
        let plan = match pattern {
            // Limits and touches have no meaning without commands.
            Pattern::Noop => LoadPlan {
                pattern,
                touch: Touch::Never,
                limit_bytes: None,
                limit_commands: None,
                slots: 1,
                catch_up: false,
                max_blocks: None,
                ..self.plan.clone()
            },
            // `single` has commands of one block, however large those of the other pattern are.
            Pattern::Single => LoadPlan { pattern, max_blocks: None, ..self.plan.clone() },
            _ => LoadPlan { pattern, ..self.plan.clone() },
        };
        let stop = || interrupts.came();
        match Ready::new(target, plan, &self.consent, &self.system, &stop) {
            // The signal may have come after the last check.
            Ok(ready) => Ok((!stop()).then(|| Arc::new(ready))),
            Err(PrepareError::Stopped) => Ok(None),
            Err(why) => Err(why.into()),
        }
    }

    /// Runs `operation` beside the load of an arm; `operation` can check whether the load still runs. `None` if the user
    /// interrupted.
    fn beside<T>(
        &mut self,
        arm: Arm,
        interrupts: &CommandInterrupts,
        operation: impl FnOnce(&dyn Fn() -> bool) -> Result<Option<T>, Failure>,
    ) -> Result<Option<T>, Failure> {
        let pattern = match arm {
            // Allocating and filling a buffer evicts pages and lines too, so a plain run also gets a buffer just
            // before.
            Arm::Plain => Pattern::Noop,
            Arm::Random => Pattern::Random,
            Arm::Single => Pattern::Single,
        };
        let Some(ready) = self.ready(pattern, interrupts)? else { return Ok(None) };
        let running = Running::start(&ready)?;
        // A load without limits ends only by a failure.
        let done = operation(&|| !running.wait(Duration::ZERO));
        running.stopper().stop();
        let outcome = running.finish(|_| {});
        let trouble = match outcome.end {
            End::Failed(failure) => Some(failure.to_string()),
            End::Lost { commands, .. } => Some(format!("{commands} commands of the load did not come back")),
            End::Complete | End::Stopped => None,
        };
        if let Some(why) = trouble {
            let why = format!("{}: {why}; no result", self.target.display());
            return Err(Failure::new(exit::FAILED, why));
        }
        let loaded = &mut self.loaded[arm as usize];
        loaded.commands += outcome.totals.commands;
        loaded.blocks += outcome.totals.blocks;
        loaded.seconds += outcome.totals.runtime.as_secs_f64();
        done
    }

    fn report(&self, args: &InterfereArgs, cpus: Cpus, done: &[([Arm; 3], Cycle)]) -> Option<Report> {
        let cycles: Vec<Cycle> = done.iter().map(|(_, cycle)| *cycle).collect();
        let sense = if args.rate { Sense::Rate } else { Sense::Time };
        let patterns = slowdowns(&cycles, sense)?;
        let plain: Vec<f64> = cycles.iter().map(|cycle| cycle[0]).collect();
        let beside = |slowdown: Slowdown| {
            let Loaded { commands, blocks, seconds, .. } = self.loaded[slowdown.pattern as usize];
            let load = Loaded {
                iops: if seconds > 0.0 { commands as f64 / seconds } else { 0.0 },
                bandwidth_bytes_per_s: bandwidth(
                    CompletedWork { commands, blocks },
                    self.block_bytes,
                    seconds,
                ),
                commands,
                blocks,
                seconds,
            };
            Beside { slowdown, load }
        };
        Some(Report {
            command: args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            target: self.target.display().to_string(),
            engine: self.engine,
            op: self.plan.op,
            workers: self.plan.workers,
            depth: self.plan.depth,
            cpus,
            seed: self.plan.seed,
            measured: args.metric.clone().unwrap_or_else(|| "seconds".to_owned()),
            sense,
            confidence: CONFIDENCE,
            plain_median: waykeeper_probe::stats::median(&plain)?,
            patterns: patterns.map(beside).into(),
            cycles: done
                .iter()
                .map(|(order, [plain, random, single])| Run {
                    order: *order,
                    plain: *plain,
                    random: *random,
                    single: *single,
                })
                .collect(),
        })
    }
}

/// A command shorter than this mostly consists of its start, on a processor that was just idle. A guess: ten times what
/// a scheduler and a clock governor take to settle.
const SHORT_S: f64 = 0.1;

/// Reasons to doubt the numbers; for times also that they are short.
fn doubts(report: &Report, are_times: bool) -> Vec<String> {
    let mut doubts = Vec::new();
    if are_times && report.plain_median < SHORT_S {
        doubts.push(format!(
            "the command takes only {:.4} s, much of it for its start; give it more work",
            report.plain_median
        ));
    }
    for Beside { slowdown, .. } in report.patterns.iter().filter(|beside| beside.slowdown.high < 0.0) {
        doubts.push(format!(
            "the command is faster beside {}, which DMA cannot cause; something else differs between the \
             runs (idle processors that sleep or clock down, other programs)",
            slowdown.pattern.name()
        ));
    }
    doubts
}

fn stand_in_words(args: &InterfereArgs, value: f64) -> String {
    match args.metric {
        Some(_) => format!("{value}"),
        None if value < SHORT_S => format!("{value:.5} s"),
        None => format!("{value:.3} s"),
    }
}

fn table(args: &InterfereArgs, report: &Report) -> String {
    let list = |cpus: &[u32]| cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let op = if report.op == MemoryDirection::Read { "read" } else { "write" };
    let facts = listing::facts(&[
        ("command", format!("{}, on CPUs {}", report.command.join(" "), list(&report.cpus.command))),
        (
            "load",
            format!(
                "{op}, {} x {} commands outstanding, by {} on {}, on CPUs {}",
                report.workers,
                report.depth,
                report.engine,
                report.target,
                list(&report.cpus.load)
            ),
        ),
        ("cycles", format!("{}, in the order of seed {}", report.cycles.len(), report.seed)),
    ]);
    let mut rows =
        vec![["pattern", "median", "slowdown", "95 % interval", "load"].map(str::to_owned).to_vec()];
    let dash = || "-".to_owned();
    rows.push(vec!["plain".to_owned(), stand_in_words(args, report.plain_median), dash(), dash(), dash()]);
    let percent = |part: f64| format!("{:+.1} %", 100.0 * part);
    for Beside { slowdown, load } in &report.patterns {
        let clear = if slowdown.is_clear() { "" } else { " (contains 0: no effect shown)" };
        rows.push(vec![
            slowdown.pattern.name().to_owned(),
            stand_in_words(args, slowdown.median),
            percent(slowdown.slowdown),
            format!("{} to {}{clear}", percent(slowdown.low), percent(slowdown.high)),
            format!(
                "{:.0} commands/s, {:.1} MiB/s",
                load.iops,
                load.bandwidth_bytes_per_s / f64::from(1 << 20)
            ),
        ]);
    }
    facts + "\n" + &listing::columns(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_cannot_show_is_said() {
        let doubts_of = |plain: f64, [low, high]: [f64; 2], are_times: bool| {
            let slowdown = Slowdown { pattern: Arm::Single, median: plain, slowdown: low, low, high };
            let cpus = Cpus { load: vec![1], command: vec![0] };
            let report = Report {
                command: vec!["true".to_owned()],
                target: "file".to_owned(),
                engine: "uring",
                op: MemoryDirection::Write,
                workers: 1,
                depth: 1,
                cpus,
                seed: 1,
                measured: String::new(),
                sense: Sense::Time,
                confidence: CONFIDENCE,
                plain_median: plain,
                patterns: vec![Beside { slowdown, load: Loaded::default() }],
                cycles: Vec::new(),
            };
            doubts(&report, are_times)
        };
        assert_eq!(doubts_of(1.0, [-0.1, 0.2], true), [""; 0]);
        assert_eq!(doubts_of(0.01, [0.1, 0.2], false), [""; 0], "a number, not a time");
        let both = doubts_of(0.0421, [-0.2, -0.1], true);
        assert!(both[0].starts_with("the command takes only 0.0421 s, "), "{both:?}");
        assert!(both[1].starts_with("the command is faster beside single, "), "{both:?}");
    }
}
