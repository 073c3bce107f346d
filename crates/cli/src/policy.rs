//! `waykeeper policy`: lists and describes policies, writes a new one, and switches the daemon's policy. Must not know any
//! policy.

use crate::exit::Failure;
use crate::{full, listing, out, policy_new};
use clap::Subcommand;
use serde::Serialize;
use std::fmt::Write;
use waykeeper_policy::{Description, PolicyEntry, build, registry};

const LIST_EXAMPLES: &str = "\
Examples:
  waykeeper policy list            a table
  waykeeper policy list --json     the same for programs";

const DESCRIBE_EXAMPLES: &str = "\
Examples:
  waykeeper policy describe a4             what it reads and turns, its states, every setting
  waykeeper policy describe a4-d --json    the same for programs

Write a setting into a scenario's table [policy.NAME], or give it on the command line:
  waykeeper run --set policy.a4.stable_interval_s=5";

/// Examples of the whole subcommand.
pub const EXAMPLES: &str = "\
Examples:
  waykeeper policy list                         all policies, a line each
  waykeeper policy describe a4                  one policy in full
  waykeeper policy new mine                     write your own policy, mine.py, to begin with
  waykeeper policy set a4                       switch the running daemon to a4
  waykeeper run --policy default --policy a4    compare two policies on the virtual server";

/// What to do with policies.
#[derive(Subcommand, Debug)]
pub enum PolicyCommand {
    /// List the policies
    #[command(after_help = LIST_EXAMPLES)]
    List {
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Describe a policy: idea, counters it reads, knobs, settings, states, deviations from its paper
    #[command(after_help = DESCRIBE_EXAMPLES)]
    Describe {
        /// Name of the policy
        name: String,
        /// Print JSON instead of a page
        #[arg(long)]
        json: bool,
    },
    /// Write a policy of your own to begin with, in Python or Rust
    #[command(after_help = policy_new::EXAMPLES)]
    New(policy_new::NewArgs),
    /// An order to the daemon
    #[command(flatten)]
    Order(full::PolicyOrder),
}

/// An entry of the list of policies, as JSON.
#[derive(Serialize)]
struct Listed {
    name: &'static str,
    idea: &'static str,
}

/// Runs the subcommand.
pub fn policy(command: PolicyCommand) -> Result<(), Failure> {
    match command {
        PolicyCommand::List { json: true } => {
            let listed = registry().iter().map(|entry| Listed { name: entry.name, idea: entry.idea });
            out::json(&listed.collect::<Vec<_>>())
        }
        PolicyCommand::List { json: false } => {
            let mut rows = vec![["name", "idea"].map(str::to_owned).to_vec()];
            rows.extend(registry().iter().map(|entry| vec![entry.name.to_owned(), idea(entry)]));
            out::text(&listing::columns(&rows))
        }
        PolicyCommand::New(args) => policy_new::new(&args),
        PolicyCommand::Order(order) => full::order(order),
        PolicyCommand::Describe { name, json } => {
            let description = build(&name, &toml::Table::new())?.describe();
            if json { out::json(&description) } else { out::text(&page(&description)) }
        }
    }
}

/// A policy's idea; for an alias the name of its policy.
fn idea(entry: &PolicyEntry) -> String {
    let same = |other: &&PolicyEntry| other.idea == entry.idea;
    let first = registry().iter().take_while(|other| other.name != entry.name).find(same);
    first.map_or_else(|| entry.idea.to_owned(), |first| format!("= {}", first.name))
}

fn page(about: &Description) -> String {
    let mut out = format!("{}: {}\nfrom {}\n", about.name, about.idea, about.source);
    let mut list = |title: &str, lines: &[String]| {
        if !lines.is_empty() {
            let _ = writeln!(out, "\n{title}");
            lines.iter().for_each(|line| {
                let _ = writeln!(out, "  {line}");
            });
        }
    };
    list("reads", &about.inputs);
    list("turns", &about.knobs);
    let states = about.states.iter().map(|state| vec![state.name.clone(), state.meaning.clone()]);
    list("states", &table(states.collect()));
    if !about.settings.is_empty() {
        let mut rows =
            vec![["setting", "value", "unit", "meaning (source of the default)"].map(str::to_owned).to_vec()];
        rows.extend(about.settings.iter().map(|setting| {
            let meaning = format!("{} ({})", setting.meaning, setting.source);
            vec![setting.name.clone(), setting.value.clone(), listing::or_dash(&setting.unit), meaning]
        }));
        list("settings", &table(rows));
    }
    list("deviations from its source", &about.deviations);
    out
}

fn table(rows: Vec<Vec<String>>) -> Vec<String> {
    listing::columns(&rows).lines().map(str::to_owned).collect()
}
