//! `waykeeper restore`: brings back what a journal holds, last turned first.

use crate::exit::{self, Failure};
use crate::out;
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use waykeeper_linux::GROUP_PREFIX;
use waykeeper_linux::journal::{Journal, usual_path};
use waykeeper_linux::registers::RegisterFiles;
use waykeeper_linux::restore::{Outcome, Report, Restorer, mounted};
use waykeeper_linux::root::Root;

const EXAMPLES: &str = "\
Examples:
  waykeeper restore                      after a crash: every knob as it was before waykeeper turned it
  waykeeper restore --root /mnt/vhost    the same for a virtual host

Nothing to restore is no error. A journal of an earlier boot is removed: the knobs are at their
power-on values then. A knob that cannot be brought back stays in the journal (exit code 1).";

/// Arguments of `waykeeper restore`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RestoreArgs {
    /// Where the host's file tree begins
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// The journal, if not the usual one of that host in /run/waykeeper
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// Leave what `ddio --keep` turned to stay; for the end of a service, which must not undo an operator
    #[arg(long)]
    passing: bool,
    /// Print JSON instead of lines
    #[arg(long)]
    json: bool,
}

/// The host under a prefix, which must be a directory. The same prefix has the same journal however it is written.
pub fn root_at(prefix: &Path) -> Result<Root, Failure> {
    let real = prefix
        .canonicalize()
        .map_err(|why| Failure::bad_input(format!("--root {}: {why}", prefix.display())))?;
    if real.is_dir() {
        return Ok(Root::at(real));
    }
    Err(Failure::bad_input(format!("--root {}: not a directory", prefix.display())))
}

/// The journal to use.
pub fn journal_at(root: &Root, named: Option<&PathBuf>) -> PathBuf {
    named.cloned().unwrap_or_else(|| usual_path(root))
}

/// Which of what a journal holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// Everything.
    All,
    /// Not what somebody turned to stay.
    Passing,
}

/// Brings back what a journal holds.
pub fn bring_back(root: &Root, journal: &mut Journal, what: What) -> Result<Report, Failure> {
    let resctrl = mounted(root, GROUP_PREFIX);
    let registers = RegisterFiles::of(root);
    let mut restorer = Restorer { root, resctrl: resctrl.as_ref(), registers: &registers };
    Ok(match what {
        What::All => restorer.restore(journal)?,
        What::Passing => restorer.restore_passing(journal)?,
    })
}

/// Does it.
pub fn restore(args: RestoreArgs) -> Result<(), Failure> {
    let root = root_at(&args.root)?;
    let path = journal_at(&root, args.journal.as_ref());
    if !path.exists() {
        return match args.json {
            true => out::json(&json!({ "journal": path, "stale": false, "knobs": [] })),
            false => out::text(&format!("nothing to restore: there is no journal at {}\n", path.display())),
        };
    }
    let mut journal = Journal::open(&path, &root)?;
    let what = if args.passing { What::Passing } else { What::All };
    let report = bring_back(&root, &mut journal, what)?;
    if args.json {
        let knobs: Vec<_> = report
            .knobs
            .iter()
            .map(|(knob, outcome)| json!({ "knob": knob, "outcome": word(outcome), "why": why(outcome) }))
            .collect();
        out::json(&json!({ "journal": path, "stale": report.stale, "knobs": knobs }))?;
    } else {
        out::text(&lines(&path, &report))?;
    }
    match report.failures().count() {
        0 => Ok(()),
        count => Err(Failure::new(
            exit::FAILED,
            format!(
                "{count} of {} knobs could not be brought back and stay in {}",
                report.knobs.len(),
                path.display()
            ),
        )),
    }
}

/// A line a knob, for people.
pub fn lines(path: &Path, report: &Report) -> String {
    if report.stale {
        return format!(
            "{}: of an earlier boot; the knobs are at their power-on values, the journal is removed\n",
            path.display()
        );
    }
    if report.knobs.is_empty() {
        return format!("nothing to restore: {} holds nothing\n", path.display());
    }
    report.knobs.iter().map(|(knob, outcome)| format!("{knob}: {outcome}\n")).collect()
}

fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Restored => "restored",
        Outcome::AsItWas => "as-it-was",
        Outcome::Gone => "gone",
        Outcome::Left(_) => "left",
        Outcome::Failed(_) => "failed",
    }
}

fn why(outcome: &Outcome) -> Option<&str> {
    match outcome {
        Outcome::Failed(why) | Outcome::Left(why) => Some(why),
        _ => None,
    }
}
