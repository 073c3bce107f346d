//! `waykeeper scenario`: lists, shows and checks scenarios. Must not know how one is run.

use crate::exit::{self, Failure};
use crate::progress::PartBar;
use crate::{listing, out};
use clap::Subcommand;
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use waykeeper_lab::registry::{self, BUILT_IN};
use waykeeper_lab::results::Warning;
use waykeeper_lab::runner::{CheckedScenario, Experiment, RunPlan};
use waykeeper_units::one_line;

const LIST_EXAMPLES: &str = "\
Examples:
  waykeeper scenario list            a table
  waykeeper scenario list --json     the same for programs";

const SHOW_EXAMPLES: &str = "\
Examples:
  waykeeper scenario show a4-fig5                    print one
  waykeeper scenario show a4-hpw-heavy > my.toml     copy one, to change the copy";

const CHECK_EXAMPLES: &str = "\
Examples:
  waykeeper scenario check my.toml                    one file
  waykeeper scenario check scenarios/*.toml --json    several, for programs";

/// Examples of the whole subcommand.
pub const EXAMPLES: &str = "\
Examples:
  waykeeper scenario list                            the built-in scenarios
  waykeeper scenario show a4-hpw-heavy > my.toml     copy one, to change the copy
  waykeeper scenario check my.toml                   find mistakes without running it";

/// What to do with scenarios.
#[derive(Subcommand, Debug)]
pub enum ScenarioCommand {
    /// List the built-in scenarios
    #[command(after_help = LIST_EXAMPLES)]
    List {
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Print a scenario's file with absolute paths; docs/scenarios.md explains every key
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// Built-in scenario or path of a scenario file
        name: OsString,
    },
    /// Check scenario files for mistakes, with every sweep point and policy, without running them; 40 ms of each point are
    /// simulated to warn of packets that would be dropped and of workloads that no policy can change
    #[command(after_help = CHECK_EXAMPLES)]
    Check {
        /// Paths of scenario files, or names of built-in scenarios
        #[arg(required = true, value_name = "FILE")]
        files: Vec<OsString>,
        /// Print JSON instead of a line for each file
        #[arg(long)]
        json: bool,
    },
}

/// Runs the subcommand.
pub fn scenario(command: ScenarioCommand) -> Result<(), Failure> {
    match command {
        ScenarioCommand::List { json } => list(json),
        ScenarioCommand::Show { name } => out::text(&registry::text(&name)?),
        ScenarioCommand::Check { files, json } => check(&files, json),
    }
}

/// An entry of the list of scenarios, as JSON.
#[derive(Serialize)]
struct Listed {
    name: String,
    about: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    paper: String,
    policies: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sweeps: Vec<String>,
}

fn list(json: bool) -> Result<(), Failure> {
    let listed: Vec<Listed> = BUILT_IN.iter().map(|scenario| listed(scenario.text)).collect();
    if json {
        return out::json(&listed);
    }
    let mut rows = vec![["name", "shows", "about"].map(str::to_owned).to_vec()];
    rows.extend(listed.into_iter().map(|s| vec![s.name, listing::or_dash(&s.paper), s.about]));
    out::text(&listing::columns(&rows))
}

/// The list entry of a scenario's text. Only its head is read: listing must work without the scenario's captures and
/// traces.
fn listed(text: &str) -> Listed {
    let table: toml::Table = text.parse().unwrap_or_default();
    let word = |key: &str| table.get(key).and_then(toml::Value::as_str).unwrap_or_default().to_owned();
    let words = |values: Option<&toml::Value>| -> Vec<String> {
        let values = values.and_then(toml::Value::as_array).into_iter().flatten();
        values.filter_map(|value| value.as_str().map(str::to_owned)).collect()
    };
    let policies = words(table.get("policies"));
    let sweeps = table.get("sweep").and_then(toml::Value::as_array).into_iter().flatten();
    Listed {
        name: word("name"),
        about: word("about"),
        paper: word("paper"),
        policies: if policies.is_empty() { vec!["default".to_owned()] } else { policies },
        sweeps: sweeps.filter_map(|sweep| sweep.get("key")?.as_str().map(str::to_owned)).collect(),
    }
}

/// The result of checking one file.
#[derive(Serialize)]
struct Checked {
    file: String,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    simulations: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<Warning>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

fn check(files: &[OsString], json: bool) -> Result<(), Failure> {
    let checked: Vec<Checked> = files.iter().map(|file| check_one(file)).collect();
    if json {
        out::json(&checked)?;
    } else {
        let good = checked
            .iter()
            .filter_map(|c| Some(format!("{}: ok, {} simulations\n", one_line(&c.file), c.simulations?)));
        out::text(&good.collect::<String>())?;
        for one in &checked {
            let file = &one.file;
            one.warnings.iter().for_each(|warning| exit::eprint_line(&format!("warning: {file}: {warning}")));
        }
        for error in checked.iter().filter_map(|checked| checked.error.as_ref()) {
            exit::eprint_line(&format!("error: {error}"));
        }
    }
    if checked.iter().all(|checked| checked.ok) { Ok(()) } else { Err(Failure::reported_bad_input()) }
}

fn check_one(name: &OsStr) -> Checked {
    let file = name.to_string_lossy().into_owned();
    let bar = PartBar::new();
    let read = || -> Result<CheckedScenario, Failure> {
        let source = registry::open(name)?;
        let check = |done, count| bar.show(done, count, "sweep points checked");
        Ok(Experiment::check(&source, RunPlan::default(), &check)?)
    };
    let checked = read();
    bar.clear();
    match checked {
        Ok(CheckedScenario { simulations, warnings }) => {
            Checked { file, ok: true, simulations: Some(simulations), warnings, error: None }
        }
        Err(failure) => {
            let error = Some(failure.line().to_owned());
            Checked { file, ok: false, simulations: None, warnings: Vec::new(), error }
        }
    }
}
