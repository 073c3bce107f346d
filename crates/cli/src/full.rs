//! The commands that only the full program has: for real hosts, the daemon and the virtual host as files.
//!
//! `absent.rs` takes the place of this file in a build without the feature `full`.

use crate::exit::Failure;
use crate::{
    completions, daemon, ddio, demo, doctor, fleet, init, man, memload, orders, probe, replay, restore,
    serve, status, top, vhost,
};
use clap::Subcommand;

/// Commands of the full program.
#[derive(Subcommand, Debug)]
pub enum FullCommand {
    /// Check which counters and knobs this host has, and how to get those that are missing
    Doctor(doctor::DoctorArgs),
    /// Write a first configuration from what this host runs, and say what managing it would be worth
    Init(init::InitArgs),
    /// Show and set the LLC ways that devices fill (DDIO), and DCA on or off per device
    #[command(subcommand, after_help = ddio::EXAMPLES)]
    Ddio(ddio::DdioCommand),
    /// Show the daemon's recorded decisions, or those of another policy on the same counters
    Replay(replay::ReplayArgs),
    /// Predict what policies would be worth on many nodes
    #[command(subcommand, after_help = fleet::EXAMPLES)]
    Fleet(fleet::FleetCommand),
    /// Measure which LLC ways are DCA ways, which knobs have an effect, and which tenants DCA affects
    #[command(subcommand, after_help = probe::EXAMPLES)]
    Probe(probe::ProbeCommand),
    /// Generate DMA load with NVMe commands or direct I/O, at an exact rate and pattern
    Memload(memload::MemloadArgs),
    /// Restore knobs that a crash or `ddio --keep` left changed
    Restore(restore::RestoreArgs),
    /// Manage this host: sample its counters and let a policy turn its knobs, until a signal
    Daemon(daemon::DaemonArgs),
    /// Show the daemon's tenants, counters, knobs and last decisions
    Status(status::StatusArgs),
    /// Watch a host, a virtual server or a recording live, and turn its knobs
    Top(top::TopArgs),
    /// Show a daemon, a virtual server or a recording as a web page, and turn its knobs there
    Serve(serve::ServeArgs),
    /// List the daemon's tenants with their masks and hit ratios
    Tenants(status::TenantsArgs),
    /// Pause the daemon's policy
    #[command(after_help = orders::PAUSE_EXAMPLES)]
    Pause(orders::PauseArgs),
    /// Resume the daemon's policy
    #[command(after_help = orders::RESUME_EXAMPLES)]
    Resume(orders::OrderArgs),
    /// Make the daemon reload its configuration
    #[command(after_help = orders::RELOAD_EXAMPLES)]
    Reload(orders::OrderArgs),
    /// Let the daemon leave its knobs in force for the next one when it is stopped
    #[command(after_help = orders::HAND_OVER_EXAMPLES)]
    HandOver(orders::HandOverArgs),
    /// Show the daemon at work on a virtual host, in one command
    Demo(demo::DemoArgs),
    /// Mount a virtual server as the files of a Linux host, for unmodified tools
    #[command(after_help = vhost::EXAMPLES)]
    Vhost(vhost::VhostArgs),
    /// Print a completion script for a shell
    #[command(after_help = completions::EXAMPLES)]
    Completions(completions::CompletionsArgs),
    /// Write the manual pages
    #[command(after_help = man::EXAMPLES)]
    Man(man::ManArgs),
}

/// Orders of `waykeeper policy` to the daemon.
#[derive(Subcommand, Debug)]
pub enum PolicyOrder {
    /// Switch the running daemon to another policy
    #[command(after_help = orders::SET_EXAMPLES)]
    Set(orders::SetArgs),
}

/// Runs a command.
pub fn full(command: FullCommand) -> Result<(), Failure> {
    match command {
        FullCommand::Doctor(args) => doctor::doctor(args),
        FullCommand::Init(args) => init::init(&args),
        FullCommand::Ddio(command) => ddio::ddio(command),
        FullCommand::Replay(args) => replay::replay(args),
        FullCommand::Fleet(command) => fleet::fleet(command),
        FullCommand::Probe(command) => probe::probe(command),
        FullCommand::Memload(args) => memload::memload(args),
        FullCommand::Restore(args) => restore::restore(args),
        FullCommand::Daemon(args) => daemon::daemon(args),
        FullCommand::Status(args) => status::status(&args),
        FullCommand::Top(args) => top::top(&args),
        FullCommand::Serve(args) => serve::serve(&args),
        FullCommand::Tenants(args) => status::tenants(&args),
        FullCommand::Pause(args) => orders::pause(&args),
        FullCommand::Resume(args) => orders::resume(&args),
        FullCommand::Reload(args) => orders::reload(&args),
        FullCommand::HandOver(args) => orders::hand_over(&args),
        FullCommand::Demo(args) => demo::demo(&args),
        FullCommand::Vhost(args) => vhost::vhost(args),
        FullCommand::Completions(args) => completions::completions(&args),
        FullCommand::Man(args) => man::man(&args),
    }
}

/// Sends an order to the daemon.
pub fn order(order: PolicyOrder) -> Result<(), Failure> {
    let PolicyOrder::Set(args) = order;
    orders::set_policy(args)
}
