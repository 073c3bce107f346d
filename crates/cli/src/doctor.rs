//! `waykeeper doctor`: the host's platform, its counters and knobs, and how to get those that are missing. Must not
//! know how they are checked.

use crate::exit::{self, Failure};
use crate::out;
use crate::restore::host_at;
use clap::Args;
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use waykeeper_kernel::root::Root;
use waykeeper_operator::doctor::{self, CheckState, DoctorReport, Family, HostUse};

/// Examples of the subcommand.
pub const EXAMPLES: &str = "\
Examples:
  waykeeper doctor                                                       check this machine
  waykeeper doctor --json | jq '.checks[] | select(.state != \"ok\")'    only what is not ok
  waykeeper doctor --root /mnt/vhost     a virtual host, or the recorded files of a machine

doctor opens no file for writing and changes nothing. Its last lines say what can be done on this
host. Its exit code is 3 if this host has no knob that can be turned. States: ok, missing, degraded
(present but limited), unknown (could not be determined), info.";

/// Arguments of `waykeeper doctor`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    /// Directory where the host's file tree begins
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub fn doctor(args: DoctorArgs) -> Result<(), Failure> {
    let root = host_at(&args.root)?;
    let report = doctor::examine(&root);
    let host_use = report.best_use();
    if args.json {
        out::json(&Shown { report: &report, host_use, command: report.next_command(&root) })?;
    } else {
        out::text(&format!("{}{}\n", table(&report), verdict(&report, &root)))?;
    }
    match host_use {
        HostUse::Manage | HostUse::Knobs => Ok(()),
        HostUse::Observe | HostUse::Simulate => Err(Failure::silent(exit::UNSUPPORTED)),
    }
}

/// The report as JSON.
#[derive(Serialize)]
struct Shown<'r> {
    #[serde(flatten)]
    report: &'r DoctorReport,
    #[serde(rename = "use")]
    host_use: HostUse,
    command: String,
}

/// What can be done here, and the command to continue with.
pub fn verdict(report: &DoctorReport, root: &Root) -> String {
    format!("{}\nnext: {}", can(report), as_called(&report.next_command(root)))
}

/// A command of this program as the caller's shell finds it: with the path by which the program was called, if it was called
/// by one, since it need not be in the PATH.
pub fn as_called(command: &str) -> String {
    let called = std::env::args_os().next().unwrap_or_default();
    match (command.strip_prefix("waykeeper "), called.to_str()) {
        (Some(rest), Some(path)) if Path::new(path).components().count() > 1 => {
            format!("{} {rest}", shlex::try_quote(path).unwrap_or_else(|_| "waykeeper".into()))
        }
        _ => command.to_owned(),
    }
}

/// What can be done here.
pub fn can(report: &DoctorReport) -> String {
    let (host_use, why) = (report.best_use(), report.why_unmanaged());
    match host_use {
        HostUse::Manage => "this host can be managed".to_owned(),
        HostUse::Knobs => {
            format!("the DDIO of this host can be changed by hand; the daemon cannot manage it: {why}")
        }
        HostUse::Observe => format!("this host can be observed; the daemon cannot manage it: {why}"),
        HostUse::Simulate if report.mount_command().is_some() => why.to_owned(),
        HostUse::Simulate => {
            let is_known = report.check("observe").is_none_or(|check| check.state != CheckState::Unknown);
            let seen = match is_known {
                true => "nothing of this host's cache can be seen or set",
                false => "nothing of this host's cache can be set, and whether it can be seen is not known",
            };
            format!("{seen}: {why}\na simulated server can be watched on any machine")
        }
    }
}

/// The report as text: a heading per family, a line per subject, and what to do below it.
fn table(report: &DoctorReport) -> String {
    let mut out = String::new();
    let mut last: Option<Family> = None;
    let names = report.checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    for check in &report.checks {
        if last != Some(check.family) {
            let gap = if last.is_some() { "\n" } else { "" };
            let _ = writeln!(out, "{gap}{}", check.family.heading());
            last = Some(check.family);
        }
        let state = format!("{:?}", check.state).to_lowercase();
        let _ = writeln!(out, "  {:<names$}  {state:<8}  {}", check.name, check.value);
        if let Some(remedy) = &check.remedy {
            let _ = writeln!(out, "  {:<names$}  {:<8}  -> {remedy}", "", "");
        }
    }
    let states =
        [CheckState::Ok, CheckState::Degraded, CheckState::Missing, CheckState::Unknown, CheckState::Info];
    let counts =
        states.map(|state| format!("{} {}", report.count(state), format!("{state:?}").to_lowercase()));
    let _ = writeln!(out, "\n{}", counts.join(", "));
    out
}
