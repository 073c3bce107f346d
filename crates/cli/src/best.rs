//! `waykeeper best`: starts the search of the best static layout, which is in the Python package. Must not know how it
//! searches.

use crate::exit::{self, Failure};
use crate::number::within;
use crate::own_policies;
use clap::Args;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use waykeeper_lab::runner::MOST_SEEDS;
use waykeeper_output_file::is_stdout;

const EXAMPLES: &str = "\
Examples:
  waykeeper best a4-hpw-heavy                         search; writes a4-hpw-heavy.best.json
  waykeeper best my.toml --trials 500 --jobs 4        a longer search, in four processes
  waykeeper best my.toml --trials 1000 --resume       continue it; several processes may do so at a time
  waykeeper run my.toml --policy default --policy a4 --policy best    how far a4 stays below the result

The search needs the Python package with Optuna: pip install 'waykeeper[best]'. The environment variable
WAYKEEPER_PYTHON names the interpreter that has it [default: python3].";

/// Command-line arguments of `best`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct BestArgs {
    /// Scenario: a built-in name or the path of a file
    scenario: OsString,
    /// Lowest LPW mean that a layout may have, relative to `default`
    #[arg(long, value_name = "R", default_value_t = 0.97)]
    lpw_floor: f64,
    /// Number of layouts to try in all, those of an earlier search that is resumed included
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = within(1u32, 1_000_000))]
    trials: u32,
    /// Number of seeds that each layout is run with
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within(1, MOST_SEEDS))]
    seeds: u32,
    /// Number of other seeds with which the best few layouts are measured at the end
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = within(0, MOST_SEEDS))]
    confirm_seeds: u32,
    /// Share of the LLC's sets to simulate: exact (all), 1/2, 1/4, ... 1/256
    #[arg(long, value_name = "1/N|exact", default_value_t = waykeeper_silicon::Sampling::DEFAULT)]
    sets: waykeeper_silicon::Sampling,
    /// Number of processes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within(1u32, 4096))]
    jobs: u32,
    /// Continue the search whose journal is beside the result
    #[arg(long)]
    resume: bool,
    /// Overwrite an existing result, and begin an earlier search again
    #[arg(long, conflicts_with = "resume")]
    force: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Write the result into this file [default: where `run --policy best` looks: NAME.best.json, beside a scenario's file]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Ends with 0 if the interpreter has both packages.
const HAS_PACKAGES: &str = "import importlib.util as u, sys; \
                            sys.exit(not all(map(u.find_spec, ('waykeeper', 'optuna'))))";

/// Runs the subcommand.
pub fn best(args: BestArgs) -> Result<(), Failure> {
    if let Some(out) = args.out.as_ref().filter(|out| is_stdout(out)) {
        let why =
            "the search keeps its journal beside the result; name a file, and print the result with --json";
        return Err(Failure::bad_input(format!("--out {}: {why}", out.display())));
    }
    let python = own_policies::python();
    let name = python.display();
    let lacks = |why: String| {
        Failure::new(
            exit::UNSUPPORTED,
            format!(
                "{why}; run `pip install 'waykeeper[best]'`, and name its interpreter in WAYKEEPER_PYTHON"
            ),
        )
    };
    match Command::new(&python).args(["-c", HAS_PACKAGES]).status() {
        Ok(status) if status.success() => {}
        Ok(_) => {
            return Err(lacks(format!(
                "{name} has no package waykeeper with Optuna, which makes the search"
            )));
        }
        Err(why) => return Err(lacks(format!("cannot start {name}, which makes the search: {why}"))),
    }
    let mut command = Command::new(&python);
    command.args(["-m", "waykeeper.best"]);
    for (name, value) in [
        ("--lpw-floor", args.lpw_floor.to_string()),
        ("--trials", args.trials.to_string()),
        ("--seeds", args.seeds.to_string()),
        ("--confirm-seeds", args.confirm_seeds.to_string()),
        ("--sets", args.sets.to_string()),
        ("--jobs", args.jobs.to_string()),
    ] {
        command.arg(format!("{name}={value}"));
    }
    command
        .args(args.resume.then_some("--resume"))
        .args(args.force.then_some("--force"))
        .args(args.json.then_some("--json"));
    command.args(args.out.map(|out| {
        let mut word = OsString::from("--out=");
        word.push(out);
        word
    }));
    // The search takes the place of this program, so that every signal reaches it: it says what it keeps. The scenario is
    // last, so that one named like an option is refused as a name.
    let why = command.arg("--").arg(&args.scenario).exec();
    Err(Failure::io(format!("cannot start {name}"), &why))
}
