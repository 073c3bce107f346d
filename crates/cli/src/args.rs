//! The words of the command line. Each subcommand's own words stand in its own file.

use crate::{capture, chip, full, policy, run, scenario, trace};
use clap::{Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  waykeeper run                          the flagship: A4's mix under default, isolate, a4-a to a4-d
  waykeeper run a4-fig5                  one figure of a paper; `scenario list` names them all
  waykeeper run my.toml --policy a4      your own scenario under one policy
  waykeeper policy describe a4           what a policy looks at, turns and can be told
  waykeeper doctor                       what can be watched and steered on this machine

Exit codes: 0 done, 1 failed, 2 bad usage or bad input, 3 the platform lacks it, 4 not permitted,
5 conflict or exhausted, 6 effect not confirmed, 130 interrupted.";

/// Shows what I/O does to a last-level cache, and what a policy that turns the knobs is worth.
///
/// Runs scenarios on a virtual server: a model of a Xeon with its NICs, SSDs and programs.
#[derive(Parser, Debug)]
#[command(name = "waykeeper", version, after_help = EXAMPLES, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run a scenario under one or more policies and compare them
    Run(run::RunArgs),
    /// List, show and check scenarios
    #[command(subcommand, after_help = scenario::EXAMPLES)]
    Scenario(scenario::ScenarioCommand),
    /// List policies, describe them, put the daemon under another one
    #[command(subcommand, after_help = policy::EXAMPLES)]
    Policy(policy::PolicyCommand),
    /// List chips and show them
    #[command(subcommand, after_help = chip::EXAMPLES)]
    Chip(chip::ChipCommand),
    /// Record memory traces of real programs, look into them, convert them
    #[command(subcommand, after_help = trace::EXAMPLES)]
    Trace(trace::TraceCommand),
    /// Look into packet captures
    #[command(subcommand, after_help = capture::EXAMPLES)]
    Capture(capture::CaptureCommand),
    /// Commands for a real host
    #[command(flatten)]
    Full(full::FullCommand),
}
