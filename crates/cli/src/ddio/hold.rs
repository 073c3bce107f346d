//! Makes a change, checks its effect, holds it until a signal, a time or the end of a command, and restores the old
//! value.
//!
//! Must not know the knob.

use crate::exit::{self, Failure};
use crate::number::seconds;
use crate::pinned::GRACE;
use crate::{out, restore};
use clap::Args;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use waykeeper_kernel::journal::{Journal, JournalError, Original, usual_path};
use waykeeper_kernel::registers::RegisterFiles;
use waykeeper_kernel::restore::RestoreOutcome;
use waykeeper_kernel::root::Root;
use waykeeper_linux_host::{RestoreScope, restore_journal};
use waykeeper_operator::ddio::{self, DdioExperiment, EffectVerdict, RegisterChange, Survey};

/// Interval of checks for signals and for the command's end.
const TICK: Duration = Duration::from_millis(50);

/// How a change is made and how long it lasts.
#[derive(Args, Debug)]
pub struct HoldArgs {
    /// Directory where the host's file tree begins
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Show what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Restore the old values after this time, instead of at Ctrl-C
    #[arg(long = "for", value_name = "SECONDS", conflicts_with = "keep", value_parser = seconds(0.0, LONGEST_S))]
    for_s: Option<f64>,
    /// Keep the change after this command exits; `waykeeper restore` restores the old values
    #[arg(long, conflicts_with = "command")]
    keep: bool,
    /// Time to watch the counters before and after the change; 0 skips the check for an effect
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds(0.0, LONGEST_S))]
    verify: f64,
    /// Journal of original knob values [default: the host's own in /run/waykeeper]
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// Print JSON at the end instead of lines during the run
    #[arg(long)]
    json: bool,
    /// Command to run while the change is in force; the old values are restored when it ends
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Longest time that a change is held or verified, seconds: a day (ours).
const LONGEST_S: f64 = 86_400.0;

/// Prints lines during the run; with --json nothing until the end.
struct Printer {
    json: bool,
}

impl Printer {
    fn say(&self, line: &str) -> Result<(), Failure> {
        if self.json { Ok(()) } else { out::text(&format!("{line}\n")) }
    }
}

/// Makes the change, holds it, restores the old values.
pub fn hold(root: &Root, survey: &Survey, steps: &[RegisterChange], args: &HoldArgs) -> Result<(), Failure> {
    let printer = Printer { json: args.json };
    let path = restore::journal_at(root, args.journal.as_ref());
    // The lock of the journal finds another manager of this host before anything is printed.
    let journal = if args.dry_run { None } else { Some(open_journal(&path, root)?) };
    for port in ddio::ports_of(survey, steps) {
        printer.say(&format!("behind root port {}:", port.address))?;
        for device in &port.devices {
            printer.say(&format!("  {device}"))?;
        }
    }
    for step in steps {
        let already = if step.is_needed() { "" } else { " (already in force)" };
        printer.say(&format!("{step}{already}"))?;
    }
    let devices = devices(survey, steps);
    let Some(mut journal) = journal else {
        printer.say("dry run: nothing was written")?;
        return print_json(args, &json!({ "steps": steps, "devices": devices, "dry_run": true }));
    };
    let asked = listen()?;
    let mut changed = ChangedKnobs { root, journal: &mut journal, owed: false };
    let done = run_changed(&mut changed, survey, steps, args, &asked, &printer);
    // Changed knobs are restored in any case, unless the change succeeded and --keep was given.
    let kept = done.as_ref().ok().and_then(|done| done.kept.clone());
    let back = if kept.is_some() { Ok(Value::Null) } else { changed.restore(&printer) };
    let (done, back) = (done?, back?);
    if let Some(line) = &kept {
        printer.say(line)?;
    }
    let effect = done.verdict.as_ref().map(ToString::to_string);
    let seen = done.verdict.as_ref().map(|verdict| match verdict {
        EffectVerdict::Seen(_) => "seen",
        EffectVerdict::NotSeen(_) => "not-seen",
        EffectVerdict::NotJudged(_) => "not-judged",
    });
    print_json(
        args,
        &json!({ "steps": steps, "devices": devices, "dry_run": false, "effect": seen, "about_effect": effect, "kept": kept.is_some(), "restored": back }),
    )?;
    match (done.verdict, done.status) {
        (Some(EffectVerdict::NotSeen(what)), _) => Err(Failure::new(
            exit::NO_EFFECT,
            format!("the knob reads back as written but shows no effect: {what}"),
        )),
        (_, Some(status)) if !status.success() => Err(ended_badly(status)),
        _ => Ok(()),
    }
}

/// Opens the journal. One that holds the values of a process that ended is refused: at its end this command restores the
/// whole journal, and knobs of that process are no part of what it was asked for.
fn open_journal(path: &Path, root: &Root) -> Result<Journal, Failure> {
    let journal = Journal::open(path, root)?;
    if let Some(damage) = journal.damage().first() {
        return Err(JournalError::Damaged { path: path.to_owned(), damage: damage.clone() }.into());
    }
    match journal.originals().len() {
        0 => Ok(journal),
        // A journal of an earlier boot has its own error, when the first value is recorded.
        _ if journal.is_stale() => Ok(journal),
        count => Err(Failure::new(
            exit::CONFLICT,
            format!(
                "{}: a waykeeper process ended without restoring {count} values that it had changed; run `{}` first, \
                 then this command again; nothing was changed",
                path.display(),
                restoring(path, root),
            ),
        )),
    }
}

/// The command that restores a journal of a host.
fn restoring(path: &Path, root: &Root) -> String {
    let mut command = "waykeeper restore".to_owned();
    if root.prefix() != Path::new("/") {
        command += &format!(" --root {}", root.prefix().display());
    }
    if path != usual_path(root) {
        command += &format!(" --journal {}", path.display());
    }
    command
}

fn devices(survey: &Survey, steps: &[RegisterChange]) -> Vec<Value> {
    ddio::ports_of(survey, steps)
        .iter()
        .map(|port| json!({ "port": port.address, "devices": port.devices }))
        .collect()
}

fn print_json(args: &HoldArgs, value: &Value) -> Result<(), Failure> {
    if args.json { out::json(value) } else { Ok(()) }
}

/// Result of the time in which a change was in force.
struct Done {
    verdict: Option<EffectVerdict>,
    status: Option<ExitStatus>,
    /// The line that says that the change stays; `None` if it is to be restored.
    kept: Option<String>,
}

/// Changed knobs that must be restored, also after an error.
struct ChangedKnobs<'h> {
    root: &'h Root,
    journal: &'h mut Journal,
    owed: bool,
}

impl ChangedKnobs<'_> {
    fn restore(&mut self, printer: &Printer) -> Result<Value, Failure> {
        if !self.owed {
            return Ok(json!([]));
        }
        let path = self.journal.path().to_owned();
        let mut report = restore_journal(self.root, self.journal, RestoreScope::Passing)?;
        self.owed = false;
        // Counters that were programmed for the check and are unchanged are left out of the report.
        report.knobs.retain(|(_, outcome)| *outcome != RestoreOutcome::AsItWas);
        printer.say(restore::lines(&path, &report).trim_end())?;
        let left = report.remaining();
        if !left.is_empty() {
            let (left, path) = (left.join("; "), path.display());
            let line = format!("{left}; the original values stay in {path}: try `waykeeper restore`");
            return Err(Failure::new(exit::FAILED, line));
        }
        let knob =
            |(knob, outcome): &(_, RestoreOutcome)| json!({ "knob": knob, "outcome": outcome.to_string() });
        Ok(report.knobs.iter().map(knob).collect())
    }
}

fn run_changed(
    changed: &mut ChangedKnobs<'_>,
    survey: &Survey,
    steps: &[RegisterChange],
    args: &HoldArgs,
    asked: &AtomicBool,
    printer: &Printer,
) -> Result<Done, Failure> {
    let needed = steps.iter().any(RegisterChange::is_needed);
    changed.owed = needed;
    let mut experiment = None;
    if needed && args.verify > 0.0 {
        printer.say(&format!("watching the counters for {} s, before and after", args.verify))?;
        let span = Duration::from_secs_f64(args.verify);
        experiment = Some(DdioExperiment::begin(changed.root, survey, steps, span, changed.journal, asked));
        if asked.load(Ordering::Relaxed) {
            printer.say("interrupted before any knob was changed")?;
            return Ok(Done { verdict: None, status: None, kept: None });
        }
    }
    let registers = RegisterFiles::of(changed.root);
    ddio::turn(steps, changed.journal, &registers).map_err(|error| match registers.was_denied() {
        true => Failure::new(exit::NOT_PERMITTED, error),
        false => error.into(),
    })?;
    let ended = experiment.map(|experiment| experiment.end(changed.root, changed.journal, asked));
    let (verdict, left) = ended.unzip();
    for line in left.unwrap_or_default() {
        printer.say(&line)?;
    }
    if let Some(verdict) = &verdict {
        printer.say(&verdict.to_string())?;
        if matches!(verdict, EffectVerdict::NotSeen(_)) {
            return Ok(Done { verdict: Some(verdict.clone()), status: None, kept: None });
        }
    }
    let mut status = None;
    if !args.command.is_empty() {
        status = Some(run(&args.command, asked)?);
    } else if let Some(for_s) = args.for_s {
        wait(asked, Some(Duration::from_secs_f64(for_s)));
    } else if !args.keep {
        printer.say("the change is in force; press Ctrl-C to restore the old values")?;
        wait(asked, None);
    }
    let kept = if args.keep { Some(keep(changed.journal, steps)?) } else { None };
    Ok(Done { verdict, status, kept })
}

/// Keeps the change after this command. After a lost journal the values before it may be those of the lost run, and this
/// change what a person did about them: then no restore brings them back.
fn keep(journal: &mut Journal, steps: &[RegisterChange]) -> Result<String, Failure> {
    let needed: Vec<Original> =
        steps.iter().filter(|step| step.is_needed()).map(RegisterChange::original).collect();
    if journal.unproved()?.is_empty() {
        journal.keep_all(&needed)?;
        let path = journal.path().display();
        return Ok(format!("the change is kept; `waykeeper restore` restores the old values from {path}"));
    }
    journal.forget_all(&needed)?;
    let path = journal.unproved_path();
    Ok(format!(
        "the change is kept, and no restore brings the old values back: an earlier run may have left them ({})",
        path.display()
    ))
}

/// SIGINT, SIGTERM and SIGHUP end the holding, not the program: the knobs must be restored first.
pub fn listen() -> Result<Arc<AtomicBool>, Failure> {
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, asked.clone())
            .map_err(|why| Failure::io("cannot listen for signals", &why))?;
    }
    Ok(asked)
}

fn wait(asked: &AtomicBool, time: Option<Duration>) {
    let begun = Instant::now();
    while !asked.load(Ordering::Relaxed) && time.is_none_or(|time| begun.elapsed() < time) {
        let left = time.map_or(TICK, |time| time.saturating_sub(begun.elapsed()));
        std::thread::sleep(TICK.min(left));
    }
}

/// Runs a command; a signal to this process ends it too. If it still runs after [`GRACE`], or at a second signal, it is
/// killed, because the knob must be restored.
fn run(command: &[OsString], asked: &AtomicBool) -> Result<ExitStatus, Failure> {
    let name = command[0].display();
    let start = Command::new(&command[0]).args(&command[1..]).spawn();
    let mut child = start.map_err(|why| Failure::bad_input(format!("cannot run {name}: {why}")))?;
    let failed = |why: std::io::Error| Failure::io(format!("cannot wait for {name}"), &why);
    let mut terminated: Option<Instant> = None;
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(status);
        }
        let again = asked.swap(false, Ordering::Relaxed);
        match terminated {
            None if again => {
                terminated = Some(Instant::now());
                terminate(&child);
            }
            Some(at) if again || at.elapsed() > GRACE => {
                child.kill().map_err(failed)?;
                return child.wait().map_err(failed);
            }
            _ => {}
        }
        std::thread::sleep(TICK);
    }
}

/// Sends SIGTERM to the command. It may have ended already; that is no error.
fn terminate(child: &Child) {
    if let Ok(Some(pid)) = i32::try_from(child.id()).map(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

/// The exit code of the command, as a shell reports it; 128 + signal if a signal ended it.
fn ended_badly(status: ExitStatus) -> Failure {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .and_then(|code| u8::try_from(code).ok());
    Failure::new(code.unwrap_or(exit::FAILED), format!("the command ended with {status}"))
}

impl From<waykeeper_kernel::journal::JournalError> for Failure {
    fn from(error: waykeeper_kernel::journal::JournalError) -> Failure {
        use waykeeper_kernel::journal::JournalError as E;
        let code = match &error {
            E::Held { .. } | E::Unidentified { .. } => exit::CONFLICT,
            E::Read { source, .. } | E::Write { source, .. } => exit::io_code(source),
            E::OtherRoot { .. } | E::Untrusted { .. } | E::Name { .. } | E::NotAJournal { .. } => {
                exit::BAD_INPUT
            }
            E::Damaged { .. } | E::Format { .. } | E::Stale { .. } | E::BootId { .. } => exit::FAILED,
        };
        Failure::new(code, error)
    }
}
