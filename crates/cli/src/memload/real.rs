//! Load on this machine: notes before it, a line per second, the summary, and the exit code.
//!
//! Must not know how load is made, which is in `waykeeper_memload`.

use super::RunOutcome;
use super::counters::CounterWatch;
use super::cpus;
use super::interrupts::Interrupts;
use super::log::LogFile;
use crate::devices;
use crate::exit::{self, Failure};
use crate::progress::LoadLine;
use std::io;
use std::path::Path;
use std::sync::Arc;
use waykeeper_kernel::root::Root;
use waykeeper_load::LoadSummary;
use waykeeper_memload::{
    BufferError, CommandError, Consent, End, KernelMounts, LoadOutcome, LoadPlan, LoadProgress, PlanError,
    PrepareError, Ready, Running, Target, TargetError, TargetKind, TargetRefusal, Unverified, Verified,
};

/// A size that takes seconds to write, so that a note is printed first.
const MUCH: u64 = 1 << 30;

/// Runs the load. A file that it creates is then part of the consent.
pub fn run(
    target: &Path,
    plan: LoadPlan,
    consent: &mut Consent,
    log: Option<&Path>,
    interrupts: &Interrupts,
    load_line: &LoadLine,
) -> Result<RunOutcome, Failure> {
    fits(&plan)?;
    let log = log.map(|log| LogFile::new(log, target)).transpose()?;
    let system = KernelMounts::default();
    let target = Target::inspect(target, &system)?;
    announce_wait(&target, &plan, consent);
    let ready = Arc::new(Ready::new(target, plan, consent, &system, &|| interrupts.came())?);
    consent.made.extend(ready.created_file().cloned());
    for note in ready.notes() {
        exit::eprint_line(note);
    }
    if endless(ready.plan()) {
        exit::eprint_line("no --time, --blocks or --commands is given: the load runs until Ctrl-C");
    }
    if interrupts.came() {
        return Err(PrepareError::Stopped.into());
    }
    let watch = CounterWatch::start(ready.node(), ready.plan());
    let running = Running::start(&ready)?;
    interrupts.enter_loading(running.stopper());
    let block_bytes = ready.block_bytes();
    let show = |progress: LoadProgress| {
        load_line.show(progress.elapsed, progress.commands, progress.blocks * u64::from(block_bytes));
    };
    // The reads of --verify are not counted as load.
    let mut counted = None;
    let outcome = running.finish_and(show, || counted = Some(watch.stop()));
    load_line.clear();
    interrupts.enter_reporting();
    let block_bytes = u64::from(block_bytes);
    let plan = ready.plan();
    let mut summary =
        LoadSummary::new(ready.engine().name(), plan.pattern, plan.op, block_bytes, &outcome.totals);
    if plan.mixed.is_some() {
        summary = summary.both_ways(&outcome.totals);
    }
    if let Some(counted) = counted {
        counted.put(&mut summary.counters);
    }
    if let Some(missed) = missed(plan, &summary) {
        exit::eprint_line(&missed);
    }
    let logged = log.map_or(Ok(()), |log| log.write(&outcome.log));
    let end = match (ended(&ready, &outcome), logged) {
        (Ok(()), logged) => logged,
        (end, Ok(())) => end,
        // The exit code is that of the run.
        (end, Err(unwritten)) => {
            exit::eprint_line(&format!("the log was not written: {}", unwritten.line()));
            end
        }
    };
    Ok((summary, end))
}

/// Prints a note if a step before the first command will take seconds.
pub fn announce_wait(target: &Target, plan: &LoadPlan, consent: &Consent) {
    let made = consent.create.filter(|_| target.kind == TargetKind::Absent);
    for (what, bytes) in [("creating the file", made), ("filling the buffer", plan.buffer_bytes)] {
        if let Some(bytes) = bytes.filter(|bytes| *bytes >= MUCH) {
            exit::eprint_line(&format!("{what} first, {:.1} GiB", bytes as f64 / f64::from(1 << 30)));
        }
    }
}

/// Checks a plan on a target before its turn.
pub fn check_target(target: &Path, plan: &LoadPlan, consent: &Consent) -> Result<(), Failure> {
    fits(plan)?;
    let system = KernelMounts::default();
    let target = Target::inspect(target, &system)?;
    Ok(waykeeper_memload::look(target, plan, consent, &system)?)
}

/// Checks a plan without its target.
fn fits(plan: &LoadPlan) -> Result<(), Failure> {
    waykeeper_memload::check(plan)?;
    cpus::there(&plan.cpus)
}

fn endless(plan: &LoadPlan) -> bool {
    plan.time.is_none() && plan.blocks.is_none() && plan.commands.is_none()
}

/// Part of a limit by which a load may stay below it without a note: limits hold within 1 %.
const LACK: f64 = 0.01;

/// A note on a limit that was not reached; the table alone does not show that.
fn missed(plan: &LoadPlan, summary: &LoadSummary) -> Option<String> {
    // In a run below one second the slots are too few to judge.
    if summary.runtime_s < 1.0 {
        return None;
    }
    let sent_s = plan.time.map_or(summary.runtime_s, |time| time.as_secs_f64().min(summary.runtime_s));
    // Each finished slot had its part, in whole commands or blocks; the last slot may have just begun.
    let slots = (sent_s * f64::from(plan.slots)).floor() / f64::from(plan.slots);
    let limits = [
        ("--limit-commands", plan.limit_commands, 1, summary.commands),
        ("--limit-bytes", plan.limit_bytes, summary.block_bytes, summary.blocks),
    ];
    let mut said = None;
    for (word, limit, unit, sent) in limits {
        let Some(limit) = limit else { continue };
        let due = (limit / unit as f64 * slots).floor();
        // If one of two limits was reached, it limited the load.
        if sent as f64 >= due * (1.0 - LACK) {
            return None;
        }
        said.get_or_insert((word, limit, (sent * unit) as f64 / summary.runtime_s));
    }
    let (word, limit, rate) = said?;
    // A limit of 300 digits is not readable.
    let limit = if limit < 1e16 { format!("{limit}") } else { format!("{limit:e}") };
    let why = if plan.catch_up {
        "the target is not faster, or the load ended before it caught up"
    } else {
        "slots were missed and their part was lost (--catch-up sends it later), or the target is not faster"
    };
    Some(format!("{word} {limit} was not reached, the rate was {rate:.1}: {why}"))
}

/// The exit code and message of a run's end.
fn ended(ready: &Ready, outcome: &LoadOutcome) -> Result<(), Failure> {
    let path = ready.target().path.display();
    match outcome.end {
        End::Complete => {}
        End::Stopped => {
            let look = if ready.plan().verify { ", and --verify checked nothing" } else { "" };
            let why = format!("interrupted; the totals are those up to the interrupt{look}");
            return Err(Failure::new(exit::INTERRUPTED, why));
        }
        End::Lost { commands, after } => {
            let failed = after.map(|failure| format!("{failure}, and ")).unwrap_or_default();
            let why = format!(
                "{path}: {failed}{commands} commands did not complete within 10 s; the totals count those that did"
            );
            let code = after.map_or(exit::FAILED, |failure| fault_code(failure.fault()));
            return Err(Failure::new(code, why));
        }
        End::Failed(failure) => {
            let why = format!("{path}: {failure}; the totals are those up to the failure");
            return Err(Failure::new(fault_code(failure.fault()), why));
        }
    }
    match outcome.verified {
        None => Ok(()),
        Some(Ok(Verified { blocks, wrong, broken_off: true })) => {
            let seen = format!("{blocks} blocks were checked, {wrong} of them have wrong content");
            let why = format!("interrupted; the load is complete but --verify is not: {seen}");
            Err(Failure::new(exit::INTERRUPTED, why))
        }
        Some(Err(Unverified::Forgotten)) => {
            let why =
                "--verify cannot remember so many different transfers; end the run sooner with --commands";
            Err(Failure::new(exit::FAILED, why))
        }
        Some(Ok(verified)) if verified.wrong == 0 => {
            exit::eprint_line(&format!("verified: {} blocks have the right content", verified.blocks));
            Ok(())
        }
        Some(Ok(verified)) => {
            let why = format!("{path}: {} of {} blocks have wrong content", verified.wrong, verified.blocks);
            Err(Failure::new(exit::NO_EFFECT, why))
        }
        Some(Err(Unverified::Fault(fault))) => {
            Err(Failure::new(fault_code(fault), format!("{path}: cannot read it for --verify: {fault}")))
        }
    }
}

fn fault_code(fault: CommandError) -> u8 {
    match fault {
        CommandError::Errno(errno) => exit::io_code(&io::Error::from_raw_os_error(errno)),
        CommandError::Nvme(_) | CommandError::Short(_) => exit::FAILED,
    }
}

impl From<TargetError> for Failure {
    fn from(error: TargetError) -> Failure {
        let code = match &error {
            TargetError::Io { why, .. } => target_code(why),
            TargetError::Kind { .. } => exit::BAD_INPUT,
            TargetError::MissingData { .. } => exit::UNSUPPORTED,
        };
        Failure::new(code, error)
    }
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Failure {
        Failure::bad_input(error)
    }
}

impl From<PrepareError> for Failure {
    fn from(error: PrepareError) -> Failure {
        let code = match &error {
            PrepareError::Plan(_)
            | PrepareError::Shape(_)
            | PrepareError::Buffer(BufferError::Node { .. }) => exit::BAD_INPUT,
            PrepareError::Engine { .. } => exit::UNSUPPORTED,
            PrepareError::Stopped => exit::INTERRUPTED,
            PrepareError::Buffer(_) => exit::CONFLICT,
            PrepareError::Open { why, .. } | PrepareError::Worker(why) => exit::io_code(why),
            PrepareError::Refused(refusal) => match refusal {
                TargetRefusal::Mounted { .. }
                | TargetRefusal::Held { .. }
                | TargetRefusal::Opened { .. }
                | TargetRefusal::Swap { .. }
                | TargetRefusal::Busy { .. } => exit::CONFLICT,
                TargetRefusal::Io { why, .. } => target_code(why),
                _ => exit::BAD_INPUT,
            },
        };
        match error {
            PrepareError::Refused(TargetRefusal::Target(error)) => error.into(),
            PrepareError::Refused(
                TargetRefusal::NoDevice { ref path } | TargetRefusal::Missing { ref path },
            ) => {
                let hint = devices::hint(&Root::at("/"), path).unwrap_or_default();
                Failure::new(code, format!("{error}{hint}"))
            }
            other => Failure::new(code, other),
        }
    }
}

/// A path that does not exist is wrong input; one without permission is not.
fn target_code(why: &io::Error) -> u8 {
    if why.kind() == io::ErrorKind::NotFound { exit::BAD_INPUT } else { exit::io_code(why) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use waykeeper_load::{LoadTotals, MemoryDirection, Pattern};

    #[test]
    fn a_limit_that_was_not_reached_is_said() {
        let reported = |plan: LoadPlan, commands: u64, ms: u64| {
            let runtime = Duration::from_millis(ms);
            let totals =
                LoadTotals { commands, blocks: commands, moved: commands, runtime, ..LoadTotals::default() };
            let summary = LoadSummary::new("uring", Pattern::Single, MemoryDirection::Write, 4096, &totals);
            missed(&plan, &summary)
        };
        let of = |commands, bytes| LoadPlan {
            limit_commands: commands,
            limit_bytes: bytes,
            ..LoadPlan::default()
        };
        let said = reported(of(Some(1000.0), None), 2256, 3000).unwrap();
        assert!(
            said.starts_with("--limit-commands 1000 was not reached, the rate was 752.0: slots were missed"),
            "{said}"
        );
        assert!(said.contains("--catch-up"), "{said}");
        let said = reported(LoadPlan { catch_up: true, ..of(Some(1000.0), None) }, 2256, 3000).unwrap();
        assert!(said.ends_with("the load ended before it caught up"), "{said}");
        // Within one per cent, too short to judge, no limit, or limited by the other one.
        assert_eq!(reported(of(Some(1000.0), None), 2971, 3000), None);
        assert_eq!(reported(of(Some(1000.0), None), 1, 999), None);
        assert_eq!(reported(of(None, None), 1, 3000), None);
        assert_eq!(reported(of(Some(1e6), Some(4096.0 * 100.0)), 300, 3000), None);
        assert!(reported(of(Some(1e6), Some(4096.0 * 200.0)), 300, 3000).is_some());
        // A slot has whole commands: of 10.5 commands 105 slots have 10. Slots after the end of the run, or that have
        // just begun, have none.
        let in_slots = |commands, slots, time| LoadPlan { slots, time, ..of(Some(commands), None) };
        let ms = |ms| Some(Duration::from_millis(ms));
        assert_eq!(reported(in_slots(10.0, 100, ms(1050)), 10, 1050), None);
        assert!(reported(in_slots(10.0, 100, ms(1050)), 9, 1050).is_some());
        assert_eq!(reported(in_slots(10.5, 1, ms(1000)), 10, 1000), None);
        assert_eq!(reported(in_slots(1000.0, 1, ms(2000)), 2000, 3100), None);
        assert_eq!(reported(in_slots(1000.0, 1, None), 1500, 1001), None);
        assert_eq!(reported(of(None, Some(4096.0 * 1.9)), 1, 1900), None);
        let said = reported(of(Some(1e300), None), 5, 1000).unwrap();
        assert!(said.starts_with("--limit-commands 1e300 was not reached, the rate was 5.0"), "{said}");
    }
}
