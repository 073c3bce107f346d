//! The one binary: parses, wires, exits. One file a subcommand; what they do is done by the rooms below.
//!
//! Must not hold logic that a library's user would miss: what a run means is `lab`'s, what a scenario
//! means is `machine`'s. The feature `full`, a default, is everything except simulation; `make run` builds
//! without it.

// A build without `full` does not call every function of the shared files.
#![cfg_attr(not(feature = "full"), allow(dead_code))]

mod args;
mod capture;
mod chip;
mod exit;
mod listing;
mod out;
mod policy;
mod progress;
mod run;
mod scenario;
mod trace;

#[cfg(all(test, feature = "full"))]
#[allow(dead_code)]
mod absent;

// What a build without the feature `full` leaves out. `absent.rs` answers the commands in its place.
#[cfg(feature = "full")]
mod completions;
#[cfg(feature = "full")]
mod daemon;
#[cfg(feature = "full")]
mod daemon_client;
#[cfg(feature = "full")]
mod ddio;
#[cfg(feature = "full")]
mod doctor;
#[cfg_attr(not(feature = "full"), path = "absent.rs")]
mod full;
#[cfg(feature = "full")]
mod man;
#[cfg(feature = "full")]
mod memload;
#[cfg(feature = "full")]
mod orders;
#[cfg(feature = "full")]
mod pinned;
#[cfg(feature = "full")]
mod probe;
#[cfg(feature = "full")]
mod replay;
#[cfg(feature = "full")]
mod restore;
#[cfg(feature = "full")]
mod status;
#[cfg(feature = "full")]
mod vhost;

use clap::Parser;
use std::panic;
use std::process::ExitCode;

fn main() -> ExitCode {
    panic::set_hook(Box::new(exit::say_panic));
    let cli = args::Cli::parse();
    // A panic has been told by the hook when it arrives here.
    let done = panic::catch_unwind(|| dispatch(cli.command)).unwrap_or_else(|_| Err(exit::Failure::told()));
    let code = match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.leave(),
    };
    exit::last_words();
    code
}

fn dispatch(command: args::Command) -> Result<(), exit::Failure> {
    match command {
        args::Command::Run(run) => run::run(run),
        args::Command::Scenario(command) => scenario::scenario(command),
        args::Command::Policy(command) => policy::policy(command),
        args::Command::Chip(command) => chip::chip(command),
        args::Command::Trace(command) => trace::trace(command),
        args::Command::Capture(command) => capture::capture(command),
        args::Command::Full(command) => full::full(command),
    }
}
