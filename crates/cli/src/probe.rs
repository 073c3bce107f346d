//! `waykeeper probe`: measures what a machine's registers and ways do, and writes a report and a machine profile for
//! the daemon and doctor. Must not know the procedures (`probe`).

mod files;
mod load_command;
mod source;

use crate::ddio::listen;
use crate::exit::{self, Failure};
use crate::number::within;
use crate::progress::PartBar;
use crate::restore::root_at;
use crate::run::assignment;
use crate::{listing, out, outputs};
use clap::{Args, Subcommand};
use load_command::LoadCommand;
use serde_json::json;
use std::cell::RefCell;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use waykeeper_lab::files::PROBE_FILES;
use waykeeper_probe::experiment::{MeasurementTimes, ProbeError};
use waykeeper_probe::findings::{Findings, Row};
use waykeeper_probe::procedures::{self, ProbeOptions, Procedure};
use waykeeper_probe::roles::{self, Named, RoleError};
use waykeeper_probe::sweep::{AdjustableLoad, LoadSweep};
use waykeeper_silicon::Sampling;
use waykeeper_tenants::DeviceName;
use waykeeper_units::CoreList;

/// Examples of the whole subcommand.
pub const EXAMPLES: &str = "\
Examples:
  waykeeper probe list                   the procedures and what each measures
  waykeeper probe run all --quick        on a virtual server; writes probe-out/report.html
  waykeeper probe run dca-ways ports --root / --tenants tenants.toml    on this machine";

const RUN_EXAMPLES: &str = "\
Examples:
  On the virtual server of the scenario `probe`
    waykeeper probe run all
  The same programs on an Ice Lake
    waykeeper probe run all --set chip=gold-5320
  On this machine; save the machine profile for the daemon
    waykeeper probe run all --root / --tenants tenants.toml --save
  One procedure, with a command as the co-runner
    waykeeper probe run dca-ways --root / --tenants io.toml --cores 8 -- stress-ng --stream 1
  One procedure, with memload as the device traffic
    waykeeper probe run ports --root / --memload /dev/ng0n1 --cores 8

The probe restores all knobs at its end and at Ctrl-C; after a crash run `waykeeper restore`. Each
answer is derived from counters alone, and the value that a register reports is printed beside it.
Without device traffic and a co-runner most answers are `cannot tell`, with what would help. Exit
code 3 if no procedure found an answer.";

/// What to do.
#[derive(Subcommand, Debug)]
pub enum ProbeCommand {
    /// List the procedures and what each measures
    List(ListArgs),
    /// Run procedures by name, or all of them
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<RunArgs>),
}

/// Arguments of `waykeeper probe list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Arguments of `waykeeper probe run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Names of procedures (see `waykeeper probe list`), or `all`
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Scenario whose virtual server is probed: a built-in name or the path of a file
    #[arg(long, value_name = "NAME", default_value = "probe", conflicts_with = "root")]
    scenario: OsString,
    /// Change a key of the scenario, such as nic.nic0.ring=4096; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment, conflicts_with = "root")]
    set: Vec<(String, toml::Value)>,
    /// Seed of the virtual server's random numbers
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "root", value_parser = within(0, u64::MAX))]
    seed: u64,
    /// Share of the virtual LLC's sets to simulate: exact (all), 1/2, 1/4, ... 1/256
    #[arg(long, value_name = "1/N|exact", default_value_t = Sampling::DEFAULT, conflicts_with = "root")]
    sets: Sampling,
    /// Probe the host whose file tree begins in this directory instead; / is this machine
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// TOML file that lists the I/O tenants and co-runners on that host
    #[arg(long, value_name = "FILE", requires = "root")]
    tenants: Option<PathBuf>,
    /// Journal of original knob values [default: the host's own in /run/waykeeper]
    #[arg(long, value_name = "FILE", requires = "root")]
    journal: Option<PathBuf>,
    /// I/O tenant to measure [default: all tenants with devices]
    #[arg(long, value_name = "TENANT")]
    io: Option<String>,
    /// Co-runner whose mask slides over the LLC [default: chosen among tenants without devices]
    #[arg(long, value_name = "TENANT")]
    victim: Option<String>,
    /// Measure half as long and at fewer points
    #[arg(long)]
    quick: bool,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Write report.html, profile.toml and findings.json into this directory [default for `all`: probe-out]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Overwrite the result that this directory has
    #[arg(long)]
    force: bool,
    /// Save the machine profile where the daemon and doctor read it
    #[arg(long, requires = "root")]
    save: bool,
    /// CPUs to which the command or memload is pinned, such as 8-9
    #[arg(long, value_name = "LIST", requires = "root")]
    cores: Option<CoreList>,
    /// Use the command as the I/O tenant instead of the co-runner
    #[arg(long, requires = "command")]
    as_io: bool,
    /// Device that the command uses, such as 0000:3a:00.0, eth0 or nvme0n1; may be given several times
    #[arg(long, value_name = "DEVICE", requires = "as_io")]
    device: Vec<DeviceName>,
    /// NVMe namespace, block device or file that `waykeeper memload` reads during the probe, as the tenant `memload`
    #[arg(long, value_name = "TARGET", requires = "root", conflicts_with = "command")]
    memload: Option<PathBuf>,
    /// Command that makes load until the probe ends, as the tenant `command`
    #[arg(last = true, value_name = "COMMAND", requires = "root")]
    command: Vec<OsString>,
}

/// Runs the subcommand.
pub fn probe(command: ProbeCommand) -> Result<(), Failure> {
    match command {
        ProbeCommand::List(args) => list(&args),
        ProbeCommand::Run(args) => run(&args),
    }
}

fn list(args: &ListArgs) -> Result<(), Failure> {
    if args.json {
        let one = |procedure: Procedure| json!({ "name": procedure.name(), "about": procedure.about() });
        return out::json(&Procedure::ALL.map(one));
    }
    let mut rows = vec![vec!["name".to_owned(), "what it measures".to_owned()]];
    rows.extend(Procedure::ALL.map(|one| vec![one.name().to_owned(), one.about().to_owned()]));
    out::text(&listing::columns(&rows))
}

fn procedures(names: &[String]) -> Result<Vec<Procedure>, Failure> {
    if names.iter().any(|name| name == "all") {
        return Ok(Procedure::ALL.to_vec());
    }
    let find = |name: &String| Procedure::find(name).map_err(Failure::bad_input);
    names.iter().map(find).collect()
}

fn run(args: &RunArgs) -> Result<(), Failure> {
    let options = ProbeOptions {
        procedures: procedures(&args.names)?,
        named: Named { io: args.io.clone(), victim: args.victim.clone() },
        pace: if args.quick { MeasurementTimes::QUICK } else { MeasurementTimes::USUAL },
        quick: args.quick,
    };
    // The places of the results are checked before a knob is set.
    let all = args.names.iter().any(|name| name == "all");
    let folder = args.out.clone().or_else(|| all.then(|| PathBuf::from("probe-out")));
    if let Some(folder) = &folder {
        outputs::directory("--out", folder, &PROBE_FILES, args.force)?;
    }
    if let Some(root) = args.root.as_ref().filter(|_| args.save) {
        let profile = waykeeper_linux_host::profile::usual_path(&root_at(root)?);
        let name = profile.file_name().unwrap_or_default().to_string_lossy();
        outputs::directory("--save", profile.parent().unwrap_or(&profile), &[&*name], true)?;
    }
    let stop = listen()?;
    let mut source = source::ProbedHost::open(args)?;
    roles::check(&source.host().workloads(), &options.named)
        .map_err(|error: RoleError| Failure::bad_input(error))?;
    let bar = PartBar::new();
    let mut load = source.take_load();
    let load_command = RefCell::new(source.take_load_command());
    let ended = RefCell::new(None);
    let done = {
        let load = load.as_mut().map(|load| load as &mut dyn AdjustableLoad);
        procedures::run(source.host_mut(), load, &options, &stop, &|progress| {
            // Measurements without the requested load are worthless.
            if let Some(how) = load_command.borrow_mut().as_mut().and_then(LoadCommand::ended) {
                stop.store(true, Ordering::Relaxed);
                *ended.borrow_mut() = Some(how);
            }
            bar.show(progress.done_ns, progress.total_ns, progress.procedure.name());
        })
    };
    bar.clear();
    // All knobs are restored before the result is printed.
    let microcode = source.microcode();
    let identity = waykeeper_linux_host::profile::MachineIdentity::of(source.host().inventory(), microcode);
    let place = source.profile_path();
    source.close()?;
    load_command.into_inner().into_iter().for_each(LoadCommand::end);
    let ended = ended.into_inner();
    let findings = done.map_err(|error| match (error, ended) {
        (ProbeError::Interrupted, Some(how)) => Failure::new(
            exit::FAILED,
            format!("{how}; all knobs are restored; give a command that runs until the probe ends"),
        ),
        (ProbeError::Interrupted, None) => {
            Failure::new(exit::INTERRUPTED, "interrupted; all knobs are restored")
        }
        (error, _) => Failure::new(exit::FAILED, error),
    })?;
    let saved = place.filter(|_| args.save);
    let written = files::write(&findings, identity, folder.as_deref(), saved.as_deref())?;
    if args.json {
        out::json(&json!({ "rows": findings.rows(), "findings": findings }))?;
    } else {
        out::text(&tables(&findings))?;
    }
    if !written.is_empty() {
        exit::eprint_line(&format!("wrote {}", written.join(", ")));
    }
    if findings.found_anything() {
        return Ok(());
    }
    Err(Failure::new(
        exit::UNSUPPORTED,
        "no procedure found an answer; the lines above say why and what would help",
    ))
}

/// The answers, the evidence for each, and the sweeps.
fn tables(findings: &Findings) -> String {
    let mut text = format!("{} ({})\n\n", findings.platform.chip, findings.platform.host);
    let rows = findings.rows();
    if !rows.is_empty() {
        let mut table =
            vec![["question", "answer", "confidence", "register or table"].map(str::to_owned).to_vec()];
        let cells = |row: &Row| {
            vec![
                row.question.clone(),
                row.answer.clone(),
                listing::or_dash(&row.confidence),
                listing::or_dash(&row.register),
            ]
        };
        table.extend(rows.iter().map(cells));
        text.push_str(&listing::columns(&table));
        for row in &rows {
            let _ = writeln!(text, "\n{}: {}", row.question, row.answer);
            for line in &row.evidence {
                let _ = writeln!(text, "  {line}");
            }
        }
    }
    for sweep in &findings.sweeps {
        text.push_str(&sweep_table(sweep));
    }
    for failure in &findings.failures {
        let _ = writeln!(text, "\n{failure}");
    }
    text
}

fn sweep_table(sweep: &LoadSweep) -> String {
    let mut text = format!("\nsweep: {}\n", sweep.dial.title());
    let share =
        |share: Option<f64>| share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", 100.0 * share));
    if !sweep.points.is_empty() {
        let mut table = vec![["value", "write hits", "read hits", "inbound"].map(str::to_owned).to_vec()];
        table.extend(sweep.points.iter().map(|point| {
            let bytes = point.inbound_bytes_per_s;
            let bytes = bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{:.2} GB/s", bytes / 1e9));
            vec![point.value.to_string(), share(point.write_hit), share(point.read_hit), bytes]
        }));
        text.push_str(&listing::columns(&table));
    }
    for note in &sweep.notes {
        let _ = writeln!(text, "  {note}");
    }
    text
}
