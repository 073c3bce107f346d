//! `waykeeper memload`: DMA load on an NVMe device, a block device, a file or the virtual server.
//!
//! Holds the words of the command line and who does what with them; must not know how load is made.

mod log;
mod real;
mod told;
mod words;

use crate::exit::Failure;
use clap::Args;
use words::{LoadArgs, PlaceArgs};

const EXAMPLES: &str = "\
Examples:
  waykeeper memload /dev/ng0n1 --time 10        NVMe reads: the device writes memory, and loses nothing
  waykeeper memload /dev/ng0n1 --op read --destroy-data-on S5GXNX0W1 --depth 32 --workers 4 --time 10
  waykeeper memload load.img --create 1GiB --pattern single --commands 100000
  waykeeper memload load.img --op read --overwrite --limit-commands 1000 --slots 100 --time 10 --json
  waykeeper memload /dev/nvme0n1 --pattern packets --stride 4 --buffer 1GiB --huge-pages 2M --cpus 3

read and write are as memory sees them: `--op write` makes the device write memory, so it is read. Only `--op read`
changes what is stored, and needs --destroy-data-on SERIAL for a device, --overwrite for a file. Ctrl-C ends a run and
shows what it came to. docs/memload.md explains patterns, limits and numbers.";

/// The words of `memload`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct MemloadArgs {
    /// NVMe namespace (/dev/ng0n1, /dev/nvme0n1), block device or file
    #[arg(value_name = "DEVICE|FILE")]
    target: String,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    place: PlaceArgs,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

/// Does it.
pub fn memload(args: MemloadArgs) -> Result<(), Failure> {
    real::run(&args.target, &args.load, &args.place, args.json)
}
