//! The one binary: parses arguments, connects the crates, exits. One file per subcommand; the crates below do the work.
//!
//! Must not contain logic that users of the libraries need: `lab` makes runs, `machine` reads scenarios. The feature
//! `full`, a default, adds the commands that touch a host or the virtual host's files; `make run` builds without it.

// A build without `full` does not call every function of the shared files.
#![cfg_attr(not(feature = "full"), allow(dead_code))]

mod args;
mod best;
mod capture;
mod chip;
mod chip_compare;
mod exit;
mod interrupt;
mod listing;
mod number;
mod out;
mod outputs;
mod own_policies;
mod policy;
mod policy_new;
mod progress;
mod run;
mod scenario;
mod trace;

#[cfg(all(test, feature = "full"))]
#[allow(dead_code)]
mod absent;

// Modules of the feature `full`. Without it, `absent.rs` refuses their commands.
#[cfg(feature = "full")]
mod completions;
#[cfg(feature = "full")]
mod daemon;
#[cfg(feature = "full")]
mod daemon_client;
#[cfg(feature = "full")]
mod ddio;
#[cfg(feature = "full")]
mod demo;
#[cfg(feature = "full")]
mod devices;
#[cfg(feature = "full")]
mod doctor;
#[cfg(feature = "full")]
mod duration;
#[cfg(feature = "full")]
mod fleet;
#[cfg_attr(not(feature = "full"), path = "absent.rs")]
mod full;
#[cfg(feature = "full")]
mod init;
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
mod serve;
#[cfg(feature = "full")]
mod status;
#[cfg(feature = "full")]
mod terminal;
#[cfg(feature = "full")]
mod top;
#[cfg(feature = "full")]
mod vhost;

use std::panic;
use std::process::ExitCode;

fn main() -> ExitCode {
    panic::set_hook(Box::new(exit::print_panic));
    let cli = args::Cli::read();
    // The hook has already printed the panic.
    let done =
        panic::catch_unwind(|| dispatch(cli.command)).unwrap_or_else(|_| Err(exit::Failure::reported()));
    let code = match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.leave(),
    };
    exit::flush_stderr();
    code
}

fn dispatch(command: args::CliCommand) -> Result<(), exit::Failure> {
    match command {
        args::CliCommand::Run(run) => run::run(run),
        args::CliCommand::Best(best) => best::best(best),
        args::CliCommand::Scenario(command) => scenario::scenario(command),
        args::CliCommand::Policy(command) => policy::policy(command),
        args::CliCommand::Chip(command) => chip::chip(command),
        args::CliCommand::Trace(command) => trace::trace(command),
        args::CliCommand::Capture(command) => capture::capture(command),
        args::CliCommand::Full(command) => full::full(command),
    }
}
