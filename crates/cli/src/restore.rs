//! `waykeeper restore`: restores the values of a journal, the last changed first. Must not know how a knob is written
//! (`kernel`).

use crate::daemon::environment;
use crate::exit::{self, Failure};
use crate::out;
use clap::Args;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use waykeeper_kernel::journal::{Journal, Original, is_there, usual_path};
use waykeeper_kernel::resctrl::GROUP_PREFIX;
use waykeeper_kernel::restore::{Report, RestoreOutcome, mounted, orphans};
use waykeeper_kernel::root::{DEAD_MOUNT, Root};
use waykeeper_linux_host::{RestoreScope, adopt_orphans, restore_journal};
use waykeeper_service::config::{Config, ConfigError, Flag, Inputs};

const EXAMPLES: &str = "\
Examples:
  waykeeper restore                      after a crash: restore every knob that waykeeper changed
  waykeeper restore --config my.toml     also the knobs in the journal of this configuration
  waykeeper restore --root /mnt/vhost    the same for a virtual host

restore reads the host's usual journal and the one that the daemon's configuration names (--config,
WAYKEEPER_CONFIG or /etc/waykeeper/waykeeper.toml, with conf.d and WAYKEEPER_* as for `waykeeper
daemon`). If the configuration has a mistake, restore reads only the usual journal and exits with 2.

Resctrl groups waykeeper-* that no journal has are removed: the journal of their run is lost. A
damaged journal is restored as far as it is intact, and kept beside as journal.damaged.

The exit code is 0 only if every knob is as waykeeper found it. Otherwise it is not 0, and a line
names each knob that could not be restored (it stays in the journal) or whose original value is not
known (journal.unproved keeps these lines until you remove it, or until the next boot). A journal of
an earlier boot is removed, because the knobs have their power-on values since.";

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
    /// For service units, after the daemon: keep what `ddio --keep` changed, and once what `hand-over` left in force
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

/// [`root_at`] of a host that is to be read.
pub fn host_at(prefix: &Path) -> Result<Root, Failure> {
    let root = root_at(prefix)?;
    check_host_tree(&root)?;
    Ok(root)
}

/// Whether a directory can be the root of a host.
pub fn check_host_tree(root: &Root) -> Result<(), Failure> {
    if root.exists("proc") || root.exists("sys") {
        return Ok(());
    }
    let why = "it is not the file tree of a host: it has neither proc nor sys";
    Err(Failure::bad_input(format!("--root {}: {why}", root.prefix().display())))
}

/// The journal to use.
pub fn journal_at(root: &Root, named: Option<&PathBuf>) -> PathBuf {
    named.cloned().unwrap_or_else(|| usual_path(root))
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
    let scope = if args.passing { RestoreScope::AfterDaemon } else { RestoreScope::All };
    let Scope { root, journals, unread } = args.scope()?;
    let mut wrong: Vec<Failure> = unread.map(unread_configuration).into_iter().collect();
    let mut reports: Vec<(&Path, Report)> = Vec::new();
    let mut known: Vec<Original> = Vec::new();
    for path in journals.iter().filter(|path| is_there(path, &root)) {
        let restored = Journal::open(path, &root).and_then(|mut journal| {
            let report = restore_journal(&root, &mut journal, scope)?;
            known.extend(journal.kept().iter().chain(journal.originals()).cloned());
            Ok(report)
        });
        match restored {
            Ok(report) => reports.push((path, report)),
            Err(why) => wrong.push(why.into()),
        }
    }
    // A journal that could not be read may have the groups.
    if reports.len() == journals.iter().filter(|path| is_there(path, &root)).count()
        && let Err(why) = adopt(&root, &journals, &known, &mut reports)
    {
        wrong.push(why);
    }
    wrong.extend(reports.iter().flat_map(|(path, report)| left_in(path, report)));
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

/// Removes groups that no journal has, and what else a lost run left, and adds that to the last report. Without such
/// groups, damage and an unfinished search no file is opened.
fn adopt<'p>(
    root: &Root,
    journals: &'p [PathBuf],
    known: &[Original],
    reports: &mut Vec<(&'p Path, Report)>,
) -> Result<(), Failure> {
    let damaged = reports.iter().position(|(_, report)| report.is_search_due());
    let has_orphans = mounted(root, GROUP_PREFIX)
        .is_some_and(|resctrl| orphans(&resctrl, known).is_ok_and(|all| !all.is_empty()));
    let Some(path) = journals.first().filter(|_| has_orphans || damaged.is_some()) else { return Ok(()) };
    let (path, mut report) = match damaged.or(reports.len().checked_sub(1)) {
        Some(index) => reports.remove(index),
        None => (path.as_path(), Report::default()),
    };
    let adopted = Journal::open(path, root)
        .and_then(|mut journal| adopt_orphans(root, &mut journal, known, &mut report));
    reports.push((path, report));
    Ok(adopted?)
}

/// What keeps the host from being as it was found: a line for each kind. The lines before have the knobs.
fn left_in(path: &Path, report: &Report) -> Vec<Failure> {
    let failed = report.failures().count();
    let away = report.knobs.iter().filter(|(_, outcome)| matches!(outcome, RestoreOutcome::Away(_))).count();
    let all = report.knobs.len();
    let mut found = Vec::new();
    if away > 0 {
        found
            .push(format!("{away} of {all} knobs can be restored only later and stay in {}", path.display()));
    }
    if !report.unproved.is_empty() {
        let file = unproved_file(path);
        found.push(format!(
            "the host may not be as it was found: {} lines above say what is not known; they stay in {} until you have \
             compared the host and removed it",
            report.unproved.len(),
            file.display()
        ));
    }
    if failed > 0 {
        found.push(format!("{failed} of {all} knobs could not be restored and stay in {}", path.display()));
    }
    found.into_iter().map(|line| Failure::new(exit::FAILED, line)).collect()
}

/// The file beside a journal that keeps what is not known.
fn unproved_file(journal: &Path) -> PathBuf {
    let name = journal.file_name().unwrap_or_default().to_string_lossy();
    journal.with_file_name(format!("{name}.unproved"))
}

fn as_json(path: &Path, report: &Report) -> Value {
    let knob = |(knob, outcome): &(_, RestoreOutcome)| json!({ "knob": knob, "outcome": word(outcome), "why": why(outcome) });
    let knobs: Vec<Value> = report.knobs.iter().map(knob).collect();
    json!({
        "journal": path,
        "stale": report.stale,
        "knobs": knobs,
        "damage": report.damage,
        "adopted": report.adopted,
        "unproved": report.unproved,
        "as_found": report.is_as_found(),
        "handed_over_for_s": report.handed_over.map(|left| left.as_secs_f64()),
    })
}

/// A line per knob, then a line for everything that is not known.
pub fn lines(path: &Path, report: &Report) -> String {
    if report.stale {
        return format!(
            "{}: removed, because it is of an earlier boot and the knobs have their power-on values since\n",
            path.display()
        );
    }
    if let Some(left) = report.handed_over {
        return format!(
            "{}: the daemon that ended left its knobs to the next one, which has {} s to start; another `waykeeper restore` \
             restores them\n",
            path.display(),
            left.as_secs()
        );
    }
    if report.knobs.is_empty() && report.unproved.is_empty() {
        return format!("nothing to restore: {} is empty\n", path.display());
    }
    let knobs = report.knobs.iter().map(|(knob, outcome)| match report.adopted.contains(knob) {
        true => format!("{knob} (of a run whose journal is lost): {outcome}\n"),
        false => format!("{knob}: {outcome}\n"),
    });
    let unproved = report.unproved.iter().map(|line| format!("not known: {line}\n"));
    knobs.chain(unproved).collect()
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
