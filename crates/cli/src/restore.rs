//! `waykeeper restore`: restores the values of a journal, the last changed first. Must not know how a knob is written
//! (`kernel`).

use crate::daemon::environment;
use crate::exit::{self, Failure};
use crate::out;
use clap::Args;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use waykeeper_kernel::journal::{Journal, usual_path};
use waykeeper_kernel::registers::RegisterFiles;
use waykeeper_kernel::resctrl::GROUP_PREFIX;
use waykeeper_kernel::restore::{Report, RestoreOutcome, Restorer, mounted};
use waykeeper_kernel::root::{DEAD_MOUNT, Root};
use waykeeper_service::config::{Config, ConfigError, Flag, Inputs};

const EXAMPLES: &str = "\
Examples:
  waykeeper restore                      after a crash: restore every knob that waykeeper changed
  waykeeper restore --config my.toml     also the knobs in the journal of this configuration
  waykeeper restore --root /mnt/vhost    the same for a virtual host

restore reads the host's usual journal and the one that the daemon's configuration names (--config,
WAYKEEPER_CONFIG or /etc/waykeeper/waykeeper.toml, with conf.d and WAYKEEPER_* as for `waykeeper
daemon`). If the configuration has a mistake, restore reads only the usual journal and exits with 2.

With nothing to restore the exit code is 0. A journal of an earlier boot is removed, because the
knobs have their power-on values since. A knob that cannot be restored stays in the journal (exit
code 1).";

/// Arguments of `waykeeper restore`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RestoreArgs {
    /// Configuration file of the daemon [default: /etc/waykeeper/waykeeper.toml]
    #[arg(long, value_name = "FILE", env = "WAYKEEPER_CONFIG")]
    config: Option<PathBuf>,
    /// Directory where the host's file tree begins [default: the configuration's]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Read only this journal, and not the configuration
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// Do not restore what `ddio --keep` changed; for service units, which must not undo an operator's change
    #[arg(long)]
    passing: bool,
    /// Print JSON instead of lines
    #[arg(long)]
    json: bool,
}

/// The host under a prefix, which must be a directory. The canonical path gives each host one journal.
pub fn root_at(prefix: &Path) -> Result<Root, Failure> {
    let real = prefix
        .canonicalize()
        .map_err(|why| Failure::bad_input(format!("--root {}: {why}", prefix.display())))?;
    // Attributes of a dead mount may still be cached; its entries are not.
    let listed = real.read_dir().and_then(|mut entries| entries.next().transpose());
    let dead = listed.err().filter(|why| why.kind() == std::io::ErrorKind::NotConnected);
    let why = match dead.map_or_else(|| real.metadata(), Err) {
        Ok(found) if found.is_dir() => return Ok(Root::at(real)),
        Ok(_) => "not a directory".to_owned(),
        Err(why) if why.kind() == std::io::ErrorKind::NotConnected => format!("{why}; {DEAD_MOUNT}"),
        Err(why) => why.to_string(),
    };
    Err(Failure::bad_input(format!("--root {}: {why}", prefix.display())))
}

/// The journal to use.
pub fn journal_at(root: &Root, named: Option<&PathBuf>) -> PathBuf {
    named.cloned().unwrap_or_else(|| usual_path(root))
}

/// Which entries of a journal are restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// Everything.
    All,
    /// Not those that a user set to stay (`ddio --keep`).
    Passing,
}

/// Restores the values of a journal.
pub fn restore_journal(root: &Root, journal: &mut Journal, what: What) -> Result<Report, Failure> {
    let resctrl = mounted(root, GROUP_PREFIX);
    let registers = RegisterFiles::of(root);
    let mut restorer = Restorer { root, resctrl: resctrl.as_ref(), registers: &registers };
    Ok(match what {
        What::All => restorer.restore(journal)?,
        What::Passing => restorer.restore_passing(journal)?,
    })
}

/// The host, the journals that may have entries, and why the configuration could not be read.
struct Scope {
    root: Root,
    journals: Vec<PathBuf>,
    unread: Option<ConfigError>,
}

impl RestoreArgs {
    fn scope(&self) -> Result<Scope, Failure> {
        let asked = self.root.as_deref().map(root_at).transpose()?;
        if let Some(journal) = &self.journal {
            let root = asked.unwrap_or_else(|| Root::at("/"));
            return Ok(Scope { root, journals: vec![journal.clone()], unread: None });
        }
        match self.configured(asked.as_ref()) {
            Ok(config) => {
                let root = config.host_root();
                let mut journals = vec![usual_path(&root), config.journal_path()];
                journals.dedup();
                // A journal may hold a value that the program of the other journal had set, so the journal written last
                // is restored first.
                let turned = |path: &PathBuf| path.metadata().and_then(|file| file.modified()).ok();
                journals
                    .sort_by_key(|path| std::cmp::Reverse(turned(path).unwrap_or(SystemTime::UNIX_EPOCH)));
                Ok(Scope { root, journals, unread: None })
            }
            // A configuration that became invalid must not prevent the restore after a killed daemon.
            Err(why) => {
                let root = asked.unwrap_or_else(|| Root::at("/"));
                Ok(Scope { journals: vec![usual_path(&root)], root, unread: Some(why) })
            }
        }
    }

    /// The daemon's configuration. The default file applies only to its own host.
    fn configured(&self, asked: Option<&Root>) -> Result<Config, ConfigError> {
        let plain = Inputs { file: self.config.clone(), environment: environment(), flags: Vec::new() };
        let Some(asked) = asked else { return Config::load(&plain) };
        let value = asked.prefix().display().to_string();
        let flag = Flag { flag: "--root".to_owned(), key: "daemon.root".to_owned(), value };
        let mut config = Config::load(&Inputs { flags: vec![flag], ..plain.clone() })?;
        if self.config.is_none() {
            let own = Config::load(&plain)?.root;
            if own.canonicalize().ok().as_deref() != Some(asked.prefix()) {
                config.journal = None;
            }
        }
        Ok(config)
    }
}

/// Runs the subcommand. A failure with one journal does not prevent the restore of the other.
pub fn restore(args: RestoreArgs) -> Result<(), Failure> {
    let what = if args.passing { What::Passing } else { What::All };
    let Scope { root, journals, unread } = args.scope()?;
    let mut wrong: Vec<Failure> = unread.map(unread_configuration).into_iter().collect();
    let mut reports: Vec<(&Path, Report)> = Vec::new();
    for path in journals.iter().filter(|path| path.exists()) {
        match Journal::open(path, &root).map_err(Failure::from) {
            Ok(mut journal) => match restore_journal(&root, &mut journal, what) {
                Ok(report) => {
                    wrong.extend(left_in(path, &report));
                    reports.push((path, report));
                }
                Err(why) => wrong.push(why),
            },
            Err(why) => wrong.push(why),
        }
    }
    if args.json {
        let reports: Vec<Value> = reports.iter().map(|(path, report)| as_json(path, report)).collect();
        out::json(&json!({ "journals": reports }))?;
    } else if reports.is_empty() && wrong.is_empty() {
        let places: Vec<String> = journals.iter().map(|path| path.display().to_string()).collect();
        out::text(&format!("nothing to restore: there is no journal at {}\n", places.join(" nor at ")))?;
    } else {
        reports.iter().try_for_each(|(path, report)| out::text(&lines(path, report)))?;
    }
    // The last failure sets the exit code: knobs that are still changed matter more than an unreadable file.
    let last = wrong.pop();
    wrong.iter().for_each(|before| exit::eprint_line(&format!("error: {}", before.line())));
    last.map_or(Ok(()), Err)
}

/// The failure about a configuration that could not be read: it may name a journal that was not looked at.
fn unread_configuration(why: ConfigError) -> Failure {
    let text = format!(
        "{why}; only the usual journal is restored: if daemon.journal names another, run `waykeeper restore --journal FILE`"
    );
    Failure::new(Failure::from(why).code(), text)
}

fn left_in(path: &Path, report: &Report) -> Option<Failure> {
    let count = report.failures().count();
    let why = || {
        let all = report.knobs.len();
        format!("{count} of {all} knobs could not be restored and stay in {}", path.display())
    };
    (count > 0).then(|| Failure::new(exit::FAILED, why()))
}

fn as_json(path: &Path, report: &Report) -> Value {
    let knob = |(knob, outcome): &(_, RestoreOutcome)| json!({ "knob": knob, "outcome": word(outcome), "why": why(outcome) });
    let knobs: Vec<Value> = report.knobs.iter().map(knob).collect();
    json!({ "journal": path, "stale": report.stale, "knobs": knobs })
}

/// A line per knob.
pub fn lines(path: &Path, report: &Report) -> String {
    if report.stale {
        return format!(
            "{}: removed, because it is of an earlier boot and the knobs have their power-on values since\n",
            path.display()
        );
    }
    if report.knobs.is_empty() {
        return format!("nothing to restore: {} is empty\n", path.display());
    }
    report.knobs.iter().map(|(knob, outcome)| format!("{knob}: {outcome}\n")).collect()
}

fn word(outcome: &RestoreOutcome) -> &'static str {
    match outcome {
        RestoreOutcome::Restored => "restored",
        RestoreOutcome::AsItWas => "as-it-was",
        RestoreOutcome::Gone => "gone",
        RestoreOutcome::Away(_) => "later",
        RestoreOutcome::Left(_) => "left",
        RestoreOutcome::Failed(_) => "failed",
    }
}

fn why(outcome: &RestoreOutcome) -> Option<&str> {
    match outcome {
        RestoreOutcome::Failed(why) | RestoreOutcome::Left(why) | RestoreOutcome::Away(why) => Some(why),
        _ => None,
    }
}
