//! `memload virtual:SCENARIO`: the load in simulated time, on the virtual server of a scenario.
//!
//! Turns the words of the command into keys of the scenario's `memload` workload; what these mean is `machine`'s.

use super::{Told, counters};
use crate::ddio::listen;
use crate::exit::{self, Failure};
use crate::progress::Live;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use toml::{Table, Value};
use waykeeper_host::{DmaCounters, HostError};
use waykeeper_lab::registry;
use waykeeper_load::{Pattern, Summary, Totals, Toward};
use waykeeper_machine::{LoadServer, RunOptions, ScenarioError};
use waykeeper_memload::{Consent, Pages, Plan, Touch, check};
use waykeeper_silicon::Sampling;

/// What a target begins with that is no path.
pub const PREFIX: &str = "virtual:";
/// Bytes of a page, of which the virtual drives' blocks are made.
const PAGE: u64 = 4096;
/// Least blocks of a virtual server's buffer.
const LEAST_BLOCKS: u64 = 2;
/// Simulated time where nobody says when it ends: some seconds of ours.
const USUAL: Duration = Duration::from_secs(1);
/// Simulated time between two looks at whether it is over: commands take 20 us and more.
const STEP: Duration = Duration::from_micros(200);
/// How often people are told how far it is, of our time.
const TOLD: Duration = Duration::from_secs(1);

/// A word that only a real machine knows: what it is called, whether it is said, and why it means nothing here.
type Absent = (&'static str, fn(&Plan, &Consent) -> bool, &'static str);

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

/// A word of the command, the key of the workload that says the same, and what it then says; where that is nothing, the
/// scenario's own holds.
type Word = (&'static str, &'static str, fn(&Plan) -> Option<Value>);

const WORDS: [Word; 19] = [
    ("--pattern", "pattern", |plan| text(plan.pattern.name())),
    ("--op", "operation", |plan| text(if plan.op == Toward::Read { "read" } else { "write" })),
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
    ("--huge-pages", "huge_pages", |plan| (plan.pages == Pages::Huge2M).then_some(Value::Boolean(true))),
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
fn block(plan: &Plan) -> u64 {
    plan.block_bytes.map_or(PAGE, u64::from).max(1)
}

/// The time after which it ends. Commands without data, or none at all, never come to an end of blocks.
fn end(plan: &Plan) -> Option<Duration> {
    let endless = plan.commands.is_none() && (plan.blocks.is_none() || !plan.pattern.moves());
    plan.time.or((endless || plan.pattern == Pattern::Noop).then_some(USUAL))
}

/// Runs it until its end or Ctrl-C.
pub fn run(scenario: &str, plan: &Plan, consent: &Consent, live: &Live) -> Result<Told, Failure> {
    let settings = settings(plan, consent)?;
    let source = registry::open(scenario)?;
    // What is wrong with it by itself is told in its own words.
    source.read()?;
    let asked = listen()?;
    let options = RunOptions { seed: plan.seed, sample_seed: plan.seed, sampling: Sampling::EXACT };
    let mut load = LoadServer::start(&source, &settings, options).map_err(|why| in_words(why, &settings))?;
    let failed = |why: HostError| Failure::new(exit::FAILED, why);
    let before = DmaCounters::read(load.host()).map_err(failed)?;
    let block_bytes = block(plan);
    if plan.time.is_none() && end(plan).is_some() {
        exit::say(&format!(
            "no --time, --blocks or --commands is given: the load ends after {} s of simulated time",
            USUAL.as_secs()
        ));
    }
    let mut told = Instant::now();
    while !load.is_over() && !asked.load(Ordering::Relaxed) {
        load.advance(STEP).map_err(failed)?;
        if told.elapsed() >= TOLD {
            told = Instant::now();
            let Totals { commands, blocks, runtime, .. } = load.totals();
            live.show_simulated(runtime, commands, blocks * block_bytes);
        }
    }
    live.clear();
    let seen = DmaCounters::read(load.host()).map_err(failed)?.since(&before);
    let mut summary = Summary::new("virtual", plan.pattern, plan.op, block_bytes, &load.totals());
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

/// What can be said of a plan without its scenario.
pub fn fits(plan: &Plan, consent: &Consent) -> Result<(), Failure> {
    settings(plan, consent).map(drop)
}

/// A job's plan here. Simulated time carries commands in its own way, whatever a job wants of a kernel, and its buffers have
/// [`LEAST_BLOCKS`], where a job that keeps one command in flight asks for one.
pub fn of_job(plan: &Plan) -> Plan {
    let least = LEAST_BLOCKS * block(plan);
    Plan { engine: None, buffer_bytes: plan.buffer_bytes.map(|bytes| bytes.max(least)), ..plan.clone() }
}

/// The plan as keys of the workload. What holds of plans on real targets holds here, and what is a matter of real devices is
/// refused, not left out.
fn settings(plan: &Plan, consent: &Consent) -> Result<Table, Failure> {
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
    if plan.pages == Pages::Huge1G {
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
    // As a real buffer: its pages are there, and as much of it is cached as fits.
    keys.insert("filled".to_owned(), Value::Boolean(true));
    Ok(keys)
}

/// What the scenario's reader says of a key that a word has set, in the word's name: nobody has written that key.
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

    /// Every word is in one of the tables, and none in both: a new one has to say what it means here.
    #[test]
    fn every_word_has_a_meaning_or_is_refused() {
        use clap::{Args, Command};
        let words = super::super::words::LoadArgs::augment_args(Command::new("x"));
        let words = super::super::words::PlaceArgs::augment_args(words);
        let mut known: Vec<String> = WORDS
            .iter()
            .map(|word| word.0)
            .chain(ABSENT.iter().map(|word| word.0))
            .map(str::to_owned)
            .collect();
        // A server's own, and no key of a workload.
        known.push("--seed".to_owned());
        known.sort();
        let mut all: Vec<String> =
            words.get_arguments().filter_map(|arg| Some(format!("--{}", arg.get_long()?))).collect();
        all.sort();
        assert_eq!(known, all);
    }
}
