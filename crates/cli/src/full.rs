//! The commands that only the full program has: for real hosts, for the daemon, and for the virtual host as files.
//!
//! `absent.rs` takes the place of this file in a build without the feature `full`.

use crate::exit::Failure;
use crate::{daemon, ddio, doctor, memload, orders, probe, replay, restore, status, vhost};
use clap::Subcommand;

/// Commands of the full program.
#[derive(Subcommand, Debug)]
pub enum FullCommand {
    /// Say what this host is, what can be watched and steered on it, and what would bring the rest
    Doctor(doctor::DoctorArgs),
    /// Show and set the LLC ways that devices may fill, and DCA on or off per device
    #[command(subcommand, after_help = ddio::EXAMPLES)]
    Ddio(ddio::DdioCommand),
    /// Show what the flight recorder kept, and what another policy would have decided on it
    Replay(replay::ReplayArgs),
    /// Find out what this machine does: which ways are DCA ways, which knob acts, who feels it
    #[command(subcommand, after_help = probe::EXAMPLES)]
    Probe(probe::ProbeCommand),
    /// Load memory with DMA: NVMe commands, or reads and writes past the page cache, shaped exactly
    Memload(memload::MemloadArgs),
    /// Bring back what a crashed or kept change has left
    Restore(restore::RestoreArgs),
    /// Manage this host: watch it and let a policy turn its knobs, until a signal ends it
    Daemon(daemon::DaemonArgs),
    /// Say what the daemon sees and does
    Status(status::StatusArgs),
    /// List the daemon's tenants
    Tenants(status::TenantsArgs),
    /// Hold the daemon's policy back
    #[command(after_help = orders::PAUSE_EXAMPLES)]
    Pause(orders::PauseArgs),
    /// Let the daemon's policy go on
    #[command(after_help = orders::RESUME_EXAMPLES)]
    Resume(orders::OrderArgs),
    /// Make the daemon read its configuration again
    #[command(after_help = orders::RELOAD_EXAMPLES)]
    Reload(orders::OrderArgs),
    /// Mount a scenario's server as files in wall-clock time, for tools that know nothing of it
    #[command(after_help = vhost::EXAMPLES)]
    Vhost(vhost::VhostArgs),
}

/// Orders of `waykeeper policy` to the daemon.
#[derive(Subcommand, Debug)]
pub enum PolicyOrder {
    /// Put the daemon under another policy
    #[command(after_help = orders::SET_EXAMPLES)]
    Set(orders::SetArgs),
}

/// Runs a command.
pub fn full(command: FullCommand) -> Result<(), Failure> {
    match command {
        FullCommand::Doctor(args) => doctor::doctor(args),
        FullCommand::Ddio(command) => ddio::ddio(command),
        FullCommand::Replay(args) => replay::replay(args),
        FullCommand::Probe(command) => probe::probe(command),
        FullCommand::Memload(args) => memload::memload(args),
        FullCommand::Restore(args) => restore::restore(args),
        FullCommand::Daemon(args) => daemon::daemon(args),
        FullCommand::Status(args) => status::status(&args),
        FullCommand::Tenants(args) => status::tenants(&args),
        FullCommand::Pause(args) => orders::pause(&args),
        FullCommand::Resume(args) => orders::resume(&args),
        FullCommand::Reload(args) => orders::reload(&args),
        FullCommand::Vhost(args) => vhost::vhost(args),
    }
}

/// Sends an order to the daemon.
pub fn order(order: PolicyOrder) -> Result<(), Failure> {
    let PolicyOrder::Set(args) = order;
    orders::set_policy(args)
}
