//! The one binary: parses, wires, exits. One file a subcommand; what they do is done by the rooms below.
//!
//! Must not hold logic that a library's user would miss: what a run means is `lab`'s, what a scenario
//! means is `machine`'s.

mod args;
mod capture;
mod chip;
mod daemon;
mod daemon_client;
mod ddio;
mod doctor;
mod exit;
mod listing;
mod memload;
mod orders;
mod out;
mod pinned;
mod policy;
mod probe;
mod progress;
mod replay;
mod restore;
mod run;
mod scenario;
mod status;
mod trace;
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
        args::Command::Doctor(args) => doctor::doctor(args),
        args::Command::Ddio(command) => ddio::ddio(command),
        args::Command::Replay(args) => replay::replay(args),
        args::Command::Probe(command) => probe::probe(command),
        args::Command::Memload(args) => memload::memload(args),
        args::Command::Restore(args) => restore::restore(args),
        args::Command::Daemon(args) => daemon::daemon(args),
        args::Command::Status(args) => status::status(&args),
        args::Command::Tenants(args) => status::tenants(&args),
        args::Command::Pause(args) => orders::pause(&args),
        args::Command::Resume(args) => orders::resume(&args),
        args::Command::Reload(args) => orders::reload(&args),
        args::Command::Vhost(args) => vhost::vhost(args),
    }
}
