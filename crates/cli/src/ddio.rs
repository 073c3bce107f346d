//! `waykeeper ddio`: the LLC ways that devices may fill, and DCA on or off for a device's root port. Must not know
//! registers (`operator`).

mod hold;
mod show;

pub use hold::listen;

use crate::devices::addresses;
use crate::exit::{self, Failure};
use crate::restore::host_at;
use clap::{Args, Subcommand};
use hold::HoldArgs;
use std::path::PathBuf;
use waykeeper_kernel::dca_ways::{Wanted, WaysError};
use waykeeper_operator::ddio::{self, DdioError};
use waykeeper_tenants::DeviceName;

/// Examples of the whole subcommand.
pub const EXAMPLES: &str = "\
Examples:
  waykeeper ddio show                    current DDIO ways and DCA switches
  waykeeper ddio set 4 --dry-run         show what would be written
  waykeeper ddio set 4 -- ./benchmark    four ways while ./benchmark runs, then restore
  waykeeper ddio off eth2                switch DCA off until Ctrl-C";

const SHOW_EXAMPLES: &str = "\
Examples:
  waykeeper ddio show                                                   tables
  waykeeper ddio show --json | jq '.ports[] | select(.dca == false)'    ports with DCA off";

const SET_EXAMPLES: &str = "\
Examples:
  waykeeper ddio set 4                   the topmost four ways on every socket, until Ctrl-C
  waykeeper ddio set 0x780 --socket 1    these ways on one socket
  waykeeper ddio set 6 --for 60          six ways for a minute
  waykeeper ddio set 6 --keep            six ways until `waykeeper restore`

The register is written only on CPUs where it is known to have an effect (Haswell, Skylake and
Cascade Lake servers), and only with masks that it accepts. On Ice Lake and later `ddio show` reads
it, and `ddio set` is refused.";

const SWITCH_EXAMPLES: &str = "\
Examples:
  waykeeper ddio off 0000:5e:00.0        a device by its PCI address, until Ctrl-C
  waykeeper ddio off nvme0 nvme1         two devices by name
  waykeeper ddio on eth2 --keep          until `waykeeper restore`

DCA is switched at the root port, for all devices behind it. The command lists these devices before
it writes.";

/// What to do.
#[derive(Subcommand, Debug)]
pub enum DdioCommand {
    /// Show the DDIO ways of each socket, and the DCA switch of each root port with its devices
    #[command(after_help = SHOW_EXAMPLES)]
    Show(ShowArgs),
    /// Set the LLC ways that devices fill
    #[command(after_help = SET_EXAMPLES)]
    Set(SetArgs),
    /// Switch DCA on for all devices behind a device's root port
    #[command(after_help = SWITCH_EXAMPLES)]
    On(SwitchArgs),
    /// Switch DCA off for all devices behind a device's root port
    #[command(after_help = SWITCH_EXAMPLES)]
    Off(SwitchArgs),
}

/// Arguments of `waykeeper ddio show`.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// Directory where the host's file tree begins
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

/// Arguments of `waykeeper ddio set`.
#[derive(Args, Debug)]
pub struct SetArgs {
    /// Number of ways, counted from the topmost (4), or a mask of ways (0x780)
    #[arg(value_name = "WAYS|MASK")]
    ways: Wanted,
    /// Socket to change [default: all]
    #[arg(long, value_name = "N")]
    socket: Option<u16>,
    #[command(flatten)]
    hold: HoldArgs,
}

/// Arguments of `waykeeper ddio on` and `off`.
#[derive(Args, Debug)]
pub struct SwitchArgs {
    /// Device: PCI address, interface, NVMe controller, disk, or virtual functions such as ens1f0/vf*
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<DeviceName>,
    #[command(flatten)]
    hold: HoldArgs,
}

/// Runs the subcommand.
pub fn ddio(command: DdioCommand) -> Result<(), Failure> {
    match command {
        DdioCommand::Show(args) => show::show(&ddio::survey(&host_at(&args.root)?), args.json),
        DdioCommand::Set(args) => {
            let root = host_at(&args.hold.root)?;
            let survey = ddio::survey(&root);
            let steps = ddio::plan_ways(&survey, args.ways, args.socket)?;
            hold::hold(&root, &survey, &steps, &args.hold)
        }
        DdioCommand::On(args) => switch(&args, true),
        DdioCommand::Off(args) => switch(&args, false),
    }
}

fn switch(args: &SwitchArgs, on: bool) -> Result<(), Failure> {
    let root = host_at(&args.hold.root)?;
    let survey = ddio::survey(&root);
    let addresses = addresses(&root, &args.devices)?;
    let steps = ddio::plan_ports(&survey, &addresses, on)?;
    hold::hold(&root, &survey, &steps, &args.hold)
}

impl From<DdioError> for Failure {
    fn from(error: DdioError) -> Failure {
        let code = match &error {
            DdioError::NoRootPort { .. }
            | DdioError::NoSuchSocket { .. }
            | DdioError::Ways(WaysError::BadMask { .. }) => exit::BAD_INPUT,
            DdioError::Unsupported { .. } | DdioError::Ways(WaysError::Unsupported(_)) => exit::UNSUPPORTED,
            DdioError::Denied { .. } => exit::NOT_PERMITTED,
            DdioError::ReadsBack { .. } => exit::NO_EFFECT,
            DdioError::Failed { .. } | DdioError::Journal(_) => exit::FAILED,
        };
        Failure::new(code, error)
    }
}
