//! `memload virtual:SCENARIO`: the load in simulated time, on the virtual server of a scenario.
//!
//! It converts the options to keys of the scenario's `memload` workload. Must not know what the keys do, which is in
//! `machine`.

use super::{RunOutcome, counters};
use crate::ddio::listen;
use crate::exit::{self, Failure};
use crate::progress::LoadLine;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use toml::{Table, Value};
use waykeeper_host::{DmaCounters, HostError};
use waykeeper_lab::registry;
use waykeeper_load::{LoadSummary, LoadTotals, MemoryDirection, Pattern};
use waykeeper_machine::{LoadServer, RunOptions, ScenarioError};
use waykeeper_memload::{Consent, LoadPlan, PageSize, Touch, check};
use waykeeper_silicon::Sampling;

/// Prefix of a target that is a scenario.
const PREFIX: &[u8] = b"virtual:";
/// Bytes of a page: the block size of virtual drives.
const PAGE: u64 = 4096;
/// Least blocks of a virtual server's buffer.
const LEAST_BLOCKS: u64 = 2;
/// Simulated time of a load without an end; it takes some seconds of wall-clock time.
const USUAL: Duration = Duration::from_secs(1);
/// Simulated time between two checks for the end: commands take 20 us and more.
const STEP: Duration = Duration::from_micros(200);
/// Interval of progress lines, in wall-clock time.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// The scenario of a target; none for a device or a file.
pub fn scenario(target: &Path) -> Option<&OsStr> {
    target.as_os_str().as_bytes().strip_prefix(PREFIX).map(OsStr::from_bytes)
}

/// An option for real machines only: its name, whether it was given, and why it has no meaning here.
type Absent = (&'static str, fn(&LoadPlan, &Consent) -> bool, &'static str);

const ABSENT: [Absent; 8] = [
    ("--engine", |plan, _| plan.engine.is_some(), "the model moves the data itself"),
    ("--verify", |plan, _| plan.verify, "the model's lines have no content to check"),
    ("--log", |plan, _| plan.log, "the summary has the latencies, and no log is kept"),
    ("--numa", |plan, _| plan.numa.is_some(), "it has one NUMA node"),
    ("--create", |_, consent| consent.create.is_some(), "its drives store no data"),
    ("--overwrite", |_, consent| consent.overwrite, "its drives store no data"),
    ("--destroy-data-on", |_, consent| consent.destroy_data_on.is_some(), "its drives store no data"),
    ("--shared", |_, consent| consent.shared, "its drives have no other users"),
];

/// An option, the workload's key for it, and the key's value; without a value the scenario's own is kept.
type Word = (&'static str, &'static str, fn(&LoadPlan) -> Option<Value>);

const WORDS: [Word; 19] = [
    ("--pattern", "pattern", |plan| text(plan.pattern.name())),
    ("--op", "operation", |plan| text(if plan.op == MemoryDirection::Read { "read" } else { "write" })),
    ("--profile", "profile", |plan| text(if plan.thesis { "thesis" } else { "true" })),
    ("--touch", "touch", |plan| {
        text(match plan.touch {
            Touch::Never => "none",
            Touch::Once => "once",
            Touch::Always => "always",
        })
    }),
    ("--workers", "workers", |plan| count(plan.workers.into())),
    ("--depth", "depth", |plan| count(plan.depth.into())),
    ("--block-size", "block", |plan| count(block(plan))),
    ("--buffer", "buffer_blocks", |plan| count(plan.buffer_bytes? / block(plan))),
    ("--huge-pages", "huge_pages", |plan| (plan.pages == PageSize::Huge2M).then_some(Value::Boolean(true))),
    ("--max-blocks", "max_blocks", |plan| count(plan.max_blocks?.into())),
    ("--stride", "slot_blocks", |plan| count(plan.stride.into())),
    ("--limit-bytes", "blocks_per_s", |plan| Some(Value::Float(plan.limit_bytes? / block(plan) as f64))),
    ("--limit-commands", "commands_per_s", |plan| plan.limit_commands.map(Value::Float)),
    ("--slots", "slots_per_s", |plan| count(plan.slots.into())),
    ("--catch-up", "catch_up", |plan| plan.catch_up.then_some(Value::Boolean(true))),
    ("--commands", "commands", |plan| count(plan.commands?)),
    ("--blocks", "blocks", |plan| count(plan.blocks?)),
    ("--time", "time_s", |plan| end(plan).map(|time| Value::Float(time.as_secs_f64()))),
    ("--cpus", "cores", |plan| {
        let cores: Vec<String> = plan.cpus.iter().map(u32::to_string).collect();
        (!cores.is_empty()).then(|| Value::String(cores.join(",")))
    }),
];

fn text(text: &str) -> Option<Value> {
    Some(Value::String(text.to_owned()))
}

fn count(count: u64) -> Option<Value> {
    Some(Value::Integer(i64::try_from(count).unwrap_or(i64::MAX)))
}

/// Bytes of a block, at least 1.
fn block(plan: &LoadPlan) -> u64 {
    plan.block_bytes.map_or(PAGE, u64::from).max(1)
}

/// The time limit. A load without data or without commands never reaches a limit of blocks.
fn end(plan: &LoadPlan) -> Option<Duration> {
    let endless = plan.commands.is_none() && (plan.blocks.is_none() || !plan.pattern.moves());
    plan.time.or((endless || plan.pattern == Pattern::Noop).then_some(USUAL))
}

/// Runs the load until its end or Ctrl-C.
pub fn run(
    scenario: &OsStr,
    plan: &LoadPlan,
    consent: &Consent,
    load_line: &LoadLine,
) -> Result<RunOutcome, Failure> {
    let settings = settings(plan, consent)?;
    let source = registry::open(scenario)?;
    // Faults of the scenario itself are reported with its own messages.
    source.read()?;
    let asked = listen()?;
    let options = RunOptions { seed: plan.seed, sample_seed: plan.seed, sampling: Sampling::EXACT };
    let mut load = LoadServer::start(&source, &settings, options).map_err(|why| in_words(why, &settings))?;
    let failed = |why: HostError| Failure::new(exit::FAILED, why);
    let before = DmaCounters::read(load.host()).map_err(failed)?;
    let block_bytes = block(plan);
    if plan.time.is_none() && end(plan).is_some() {
        exit::eprint_line(&format!(
            "no --time, --blocks or --commands is given: the load ends after {} s of simulated time",
            USUAL.as_secs()
        ));
    }
    let mut reported_at = Instant::now();
    while !load.is_over() && !asked.load(Ordering::Relaxed) {
        load.advance(STEP).map_err(failed)?;
        if reported_at.elapsed() >= REPORT_EVERY {
            reported_at = Instant::now();
            let LoadTotals { commands, blocks, runtime, .. } = load.totals();
            load_line.show_simulated(runtime, commands, blocks * block_bytes);
        }
    }
    load_line.clear();
    let seen = DmaCounters::read(load.host()).map_err(failed)?.since(&before);
    let mut summary = LoadSummary::new("virtual", plan.pattern, plan.op, block_bytes, &load.totals());
    counters::put(&mut summary.counters, &seen, "");
    summary.counters.pcie_rdcur.page_lists = Some(load.list_lines());
    let end = match (load.is_over(), load.outstanding()) {
        (true, _) => Ok(()),
        (false, outstanding) => {
            let why = format!(
                "interrupted; the totals are those up to the interrupt, and the counters include \
                 {outstanding} more commands that were in flight"
            );
            Err(Failure::new(exit::INTERRUPTED, why))
        }
    };
    Ok((summary, end))
}

/// Checks a plan without its scenario.
pub fn fits(plan: &LoadPlan, consent: &Consent) -> Result<(), Failure> {
    settings(plan, consent).map(drop)
}

/// A job's plan on a virtual server. It ignores the job's engine, and its buffers have at least [`LEAST_BLOCKS`], where
/// a job with one command in flight needs only one.
pub fn of_job(plan: &LoadPlan) -> LoadPlan {
    let least = LEAST_BLOCKS * block(plan);
    LoadPlan { engine: None, buffer_bytes: plan.buffer_bytes.map(|bytes| bytes.max(least)), ..plan.clone() }
}

/// The plan as keys of the workload. It is checked like plans for real targets; options for real devices are refused,
/// not ignored.
fn settings(plan: &LoadPlan, consent: &Consent) -> Result<Table, Failure> {
    let refuse =
        |option: &str, why: &str| Err(Failure::bad_input(format!("{option} on a virtual server: {why}")));
    if let Some((option, _, why)) = ABSENT.iter().find(|(_, is_said, _)| is_said(plan, consent)) {
        return refuse(option, &format!("{why}; leave it out"));
    }
    if plan.mixed.is_some() {
        return refuse(
            "a mixed `rw`",
            "this load only reads or only writes; in a scenario a `fio` program can do both",
        );
    }
    check(plan)?;
    if plan.pages == PageSize::Huge1G {
        return refuse("--huge-pages", "its huge pages are of 2 MiB; write 2M, or leave the option out");
    }
    let block_bytes = plan.block_bytes.map_or(PAGE, u64::from);
    if block_bytes == 0 || !block_bytes.is_multiple_of(PAGE) {
        return refuse(
            "--block-size",
            &format!("its drives move whole pages of {PAGE} bytes; {block_bytes} is not a multiple"),
        );
    }
    if let Some(bytes) = plan.buffer_bytes.filter(|bytes| *bytes == 0 || !bytes.is_multiple_of(block_bytes)) {
        return refuse(
            "--buffer",
            &format!("{bytes} bytes are not a multiple of the block size, {block_bytes}"),
        );
    }
    let mut keys = Table::new();
    for (_, key, value) in &WORDS {
        keys.extend(value(plan).map(|value| ((*key).to_owned(), value)));
    }
    // Like a real buffer: its pages are allocated, and as much of it is cached as fits.
    keys.insert("filled".to_owned(), Value::Boolean(true));
    Ok(keys)
}

/// The reader's error about a key, with the option's name instead, because the user gave the option.
fn in_words(error: ScenarioError, settings: &Table) -> Failure {
    if let ScenarioError::Value { key, value, wanted, .. } = &error {
        let key = key.rsplit('.').next().unwrap_or_default();
        if let Some((option, ..)) =
            WORDS.iter().find(|(_, name, _)| *name == key && settings.contains_key(key))
        {
            let why = format!("{option} on a virtual server: `{key}` is {value}; it must be {wanted}");
            return Failure::bad_input(why);
        }
    }
    error.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every option is in exactly one of the tables, so a new one needs a meaning here.
    #[test]
    fn every_word_has_a_meaning_or_is_refused() {
        use clap::{Args, Command};
        let words = super::super::options::LoadArgs::augment_args(Command::new("x"));
        let words = super::super::options::PlaceArgs::augment_args(words);
        let mut known: Vec<String> = WORDS
            .iter()
            .map(|word| word.0)
            .chain(ABSENT.iter().map(|word| word.0))
            .map(str::to_owned)
            .collect();
        // It is an option of the server, not a key of a workload.
        known.push("--seed".to_owned());
        known.sort();
        let mut all: Vec<String> =
            words.get_arguments().filter_map(|arg| Some(format!("--{}", arg.get_long()?))).collect();
        all.sort();
        assert_eq!(known, all);
    }
}
