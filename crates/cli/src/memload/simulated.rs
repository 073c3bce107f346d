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
use waykeeper_machine::{LoadServer, RunOptions};
use waykeeper_memload::{Consent, Pages, Plan, Touch};
use waykeeper_silicon::Sampling;

/// What a target begins with that is no path.
pub const PREFIX: &str = "virtual:";
/// Bytes of a page, of which the virtual drives' blocks are made.
const PAGE: u64 = 4096;
/// Simulated time where nobody says when it ends: some seconds of ours.
const USUAL: Duration = Duration::from_secs(1);
/// Simulated time between two looks at whether it is over: commands take 20 us and more.
const STEP: Duration = Duration::from_micros(200);
/// How often people are told how far it is, of our time.
const TOLD: Duration = Duration::from_secs(1);

/// Runs it until its end or Ctrl-C.
pub fn run(scenario: &str, plan: &Plan, consent: &Consent) -> Result<Told, Failure> {
    if *consent != Consent::default() {
        let words = "--create, --overwrite, --shared and --destroy-data-on";
        return Err(Failure::bad_input(format!(
            "{words} on a virtual server: nothing is stored there; leave them out"
        )));
    }
    let settings = settings(plan)?;
    let source = registry::open(scenario)?;
    let asked = listen()?;
    // Every set is there: the counters are to be held against formulas, line by line.
    let options = RunOptions { seed: plan.seed, sample_seed: plan.seed, sampling: Sampling::EXACT };
    let mut load = LoadServer::start(&source, &settings, options)?;
    let failed = |why: HostError| Failure::new(exit::FAILED, why);
    let before = DmaCounters::read(load.host()).map_err(failed)?;
    let block_bytes = plan.block_bytes.map_or(PAGE, u64::from);
    let live = Live::new();
    let mut told = Instant::now();
    while !load.is_over() && !asked.load(Ordering::Relaxed) {
        load.advance(STEP).map_err(failed)?;
        if told.elapsed() >= TOLD {
            told = Instant::now();
            let Totals { commands, blocks, runtime, .. } = load.totals();
            live.show(runtime, commands, blocks * block_bytes);
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
                "interrupted; the totals are those until then, and counters have {outstanding} commands more that were on \
                 their way"
            );
            Err(Failure::new(exit::INTERRUPTED, why))
        }
    };
    Ok((summary, end))
}

/// The plan as keys of the workload. What is a matter of real devices is refused, not left out.
fn settings(plan: &Plan) -> Result<Table, Failure> {
    let refuse =
        |option: &str, why: &str| Err(Failure::bad_input(format!("{option} on a virtual server: {why}")));
    if plan.engine.is_some() {
        return refuse("--engine", "simulated time carries its commands; leave it out");
    }
    if plan.verify {
        return refuse("--verify", "its lines have places and no content; leave it out");
    }
    if plan.log {
        return refuse("--log", "latencies are in the summary; leave it out");
    }
    if plan.numa.is_some() || plan.pages != Pages::Base {
        return refuse("--numa and --huge-pages", "it has one node and pages of 4 KiB; leave them out");
    }
    let block = plan.block_bytes.map_or(PAGE, u64::from);
    if block == 0 || !block.is_multiple_of(PAGE) {
        return refuse("--block-size", &format!("its drives move whole pages of {PAGE} bytes, not {block}"));
    }
    let mut keys = Table::new();
    let mut set = |key: &str, value: Value| drop(keys.insert(key.to_owned(), value));
    let text = |text: &str| Value::String(text.to_owned());
    let count = |count: u64| Value::Integer(i64::try_from(count).unwrap_or(i64::MAX));
    set("pattern", text(plan.pattern.name()));
    set("operation", text(if plan.op == Toward::Read { "read" } else { "write" }));
    set("profile", text(if plan.thesis { "thesis" } else { "true" }));
    let touch = match plan.touch {
        Touch::Never => "none",
        Touch::Once => "once",
        Touch::Always => "always",
    };
    set("touch", text(touch));
    // As a real buffer: its pages are there, and as much of it is cached as fits.
    set("filled", Value::Boolean(true));
    set("workers", count(plan.workers.into()));
    set("depth", count(plan.depth.into()));
    set("block", count(block));
    set("slot_blocks", count(plan.stride.into()));
    set("slots_per_s", count(plan.slots.into()));
    if let Some(bytes) = plan.buffer_bytes {
        if bytes == 0 || !bytes.is_multiple_of(block) {
            return refuse("--buffer", &format!("it is {bytes} bytes, and must be whole blocks of {block}"));
        }
        set("buffer_blocks", count(bytes / block));
    }
    if let Some(max) = plan.max_blocks {
        set("max_blocks", count(max.into()));
    }
    if let Some(limit) = plan.limit_bytes {
        set("blocks_per_s", Value::Float(limit / block as f64));
    }
    if let Some(limit) = plan.limit_commands {
        set("commands_per_s", Value::Float(limit));
    }
    if let Some(most) = plan.commands {
        set("commands", count(most));
    }
    if let Some(most) = plan.blocks {
        set("blocks", count(most));
    }
    // Commands without data, or none at all, never come to an end of blocks.
    let endless = plan.commands.is_none() && (plan.blocks.is_none() || !plan.pattern.moves());
    if let Some(time) = plan.time.or((endless || plan.pattern == Pattern::Noop).then_some(USUAL)) {
        set("time_s", Value::Float(time.as_secs_f64()));
    }
    if !plan.cpus.is_empty() {
        let cores: Vec<String> = plan.cpus.iter().map(u32::to_string).collect();
        set("cores", text(&cores.join(",")));
    }
    Ok(keys)
}
