//! The options for load, for its place and for consent, and the plan made from them.
//!
//! Must not know how load is made.

use crate::duration;
use crate::exit::Failure;
use clap::{Args, ValueEnum};
use std::num::{IntErrorKind, ParseIntError};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use waykeeper_load::{MemoryDirection, Pattern};
use waykeeper_memload::{Consent, EngineKind, LoadPlan, PageSize, Touch};
use waykeeper_units::{CoreList, parse_size};

/// Help heading of the options about the result.
pub const RESULT: &str = "Result";
/// Help heading of the options that allow data loss.
const CONSENT: &str = "Consent";

/// What load to make.
#[derive(Args, Debug)]
#[command(next_help_heading = "Load")]
pub struct LoadArgs {
    /// Order in which commands use the buffer
    #[arg(long, value_enum, default_value_t = PatternWord::Random)]
    pattern: PatternWord,
    /// What the device does to memory: write it (its data are read), or read it (its data are overwritten)
    #[arg(long, value_enum, default_value_t = OpWord::Write)]
    op: OpWord,
    /// Threads that send commands
    #[arg(short = 'j', long, value_name = "N", default_value_t = 1, value_parser = whole::<u32>, allow_negative_numbers = true)]
    workers: u32,
    /// Commands that each thread keeps outstanding
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u32>, allow_negative_numbers = true)]
    depth: u32,
    /// Size of a block in bytes [default: 4096 or the device's own]
    #[arg(long, value_name = "SIZE", value_parser = size, allow_negative_numbers = true)]
    block_size: Option<u64>,
    /// Size of the buffer in bytes [default: 1000 blocks]
    #[arg(long, value_name = "SIZE", value_parser = size, allow_negative_numbers = true)]
    buffer: Option<u64>,
    /// Most blocks per command; `random` and `full` move one less [default: the device's limit, 128 KiB on a file]
    #[arg(long, value_name = "N", value_parser = whole::<u32>, allow_negative_numbers = true)]
    max_blocks: Option<u32>,
    /// With `packets`: distance between two slots of the ring, in blocks
    #[arg(long, value_name = "BLOCKS", default_value_t = 1, value_parser = whole::<u32>, allow_negative_numbers = true)]
    stride: u32,
    /// Most bytes per second of all threads together [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = size, allow_negative_numbers = true)]
    limit_bytes: Option<u64>,
    /// Most commands per second of all threads together [default: no limit]
    #[arg(long, value_name = "N", value_parser = rate, allow_negative_numbers = true)]
    limit_commands: Option<f64>,
    /// Slots per second into which the limits are divided; the commands of a slot may be sent in one burst
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u32>, allow_negative_numbers = true)]
    slots: u32,
    /// Send later what a slot did not use, at most one second's worth; without this option it is lost, as on a busy
    /// machine that misses slots
    #[arg(long)]
    catch_up: bool,
    /// How blocks are counted: exactly, or as the thesis's program did (it moves one block more than it counts)
    #[arg(long, value_enum, default_value_t = ProfileWord::Exact)]
    profile: ProfileWord,
    /// End after this time: 10 (seconds), 10s, 500ms, 2m
    #[arg(long, value_name = "TIME", value_parser = duration::above_zero, allow_negative_numbers = true)]
    time: Option<Duration>,
    /// End after this many blocks
    #[arg(long, value_name = "N", value_parser = whole::<u64>, allow_negative_numbers = true)]
    blocks: Option<u64>,
    /// End after this many commands
    #[arg(long, value_name = "N", value_parser = whole::<u64>, allow_negative_numbers = true)]
    commands: Option<u64>,
    /// When the CPU reads the buffer, which brings its lines into the caches
    #[arg(long, value_enum, default_value_t = TouchWord::Never)]
    touch: TouchWord,
    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>, allow_negative_numbers = true)]
    seed: u64,
}

/// Where, on this machine.
#[derive(Args, Debug)]
#[command(next_help_heading = "Place")]
pub struct PlaceArgs {
    /// Interface that sends the commands [default: the fastest that the target supports]
    #[arg(long, value_enum)]
    engine: Option<EngineWord>,
    /// CPUs to which the threads are pinned in turn, such as 3 or 0-3,8
    #[arg(long, value_name = "LIST")]
    cpus: Option<CoreList>,
    /// NUMA node on which the buffer is allocated
    #[arg(long, value_name = "NODE", value_parser = whole::<u32>, allow_negative_numbers = true)]
    numa: Option<u32>,
    /// Allocate the buffer in huge pages of this size
    #[arg(long, value_enum, value_name = "SIZE")]
    huge_pages: Option<PagesWord>,
    /// Check after the run that each transferred block has the right content
    #[arg(long, help_heading = RESULT)]
    verify: bool,
    /// Write the send time and the latency of each command to this CSV file
    #[arg(long, value_name = "FILE", help_heading = RESULT)]
    pub log: Option<PathBuf>,
    /// Allow writes to the device with this serial number; its data are lost
    #[arg(long, value_name = "SERIAL", help_heading = CONSENT)]
    destroy_data_on: Option<String>,
    /// Create the target as a file of this size
    #[arg(long, value_name = "SIZE", value_parser = size, allow_negative_numbers = true, help_heading = CONSENT)]
    create: Option<u64>,
    /// Allow writes to an existing file; its content is lost
    #[arg(long, help_heading = CONSENT)]
    overwrite: bool,
    /// Read a device that is mounted or otherwise in use; it is never written
    #[arg(long, conflicts_with_all = ["destroy_data_on", "overwrite", "create"], help_heading = CONSENT)]
    shared: bool,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum PatternWord {
    /// Commands of almost the largest size, at random places in the buffer
    Random,
    /// Commands of one block, in order
    Single,
    /// The whole buffer in order, in large commands
    Full,
    /// One block into each slot of a ring, as a NIC does
    Packets,
    /// Commands without data
    Flush,
    /// No commands: the base load of the counters
    Noop,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum OpWord {
    /// The device reads memory
    Read,
    /// The device writes memory
    Write,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum ProfileWord {
    /// Count exactly the blocks that are moved
    Exact,
    /// Count as the published program does
    Thesis,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum TouchWord {
    /// The CPU never reads the buffer
    Never,
    /// The CPU reads the whole buffer before the start
    Once,
    /// Before each command the CPU reads the part that the command moves
    Always,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum EngineWord {
    /// NVMe commands through io_uring
    NvmeUring,
    /// NVMe commands through the passthrough ioctl
    NvmeIoctl,
    /// Direct reads and writes (no page cache) through io_uring
    Uring,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum PagesWord {
    /// 2 MiB
    #[value(name = "2M")]
    M2,
    /// 1 GiB
    #[value(name = "1G")]
    G1,
}

/// A whole number; its range is checked when all options are known.
pub fn whole<N: FromStr<Err = ParseIntError>>(text: &str) -> Result<N, String> {
    text.parse::<N>().map_err(|why| match why.kind() {
        IntErrorKind::PosOverflow => format!("`{text}` is too large a number"),
        _ => format!("`{text}` is not a whole number"),
    })
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| format!("`{text}` is not a number above 0; leave the option out for no limit"))
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|why| why.to_string())
}

/// The plan of a run on this machine.
pub fn plan(load: &LoadArgs, place: &PlaceArgs) -> Result<LoadPlan, String> {
    let block_bytes = match load.block_size.map(u32::try_from) {
        None => None,
        Some(Ok(bytes)) => Some(bytes),
        Some(Err(_)) => {
            let bytes = load.block_size.unwrap_or_default();
            return Err(format!(
                "--block-size is {bytes}; it must be below 4 GiB, usually 512 B to a few KiB"
            ));
        }
    };
    Ok(LoadPlan {
        pattern: match load.pattern {
            PatternWord::Random => Pattern::Random,
            PatternWord::Single => Pattern::Single,
            PatternWord::Full => Pattern::Full,
            PatternWord::Packets => Pattern::Packets,
            PatternWord::Flush => Pattern::Flush,
            PatternWord::Noop => Pattern::Noop,
        },
        op: match load.op {
            OpWord::Read => MemoryDirection::Read,
            OpWord::Write => MemoryDirection::Write,
        },
        mixed: None,
        workers: load.workers,
        depth: load.depth,
        block_bytes,
        buffer_bytes: load.buffer,
        max_blocks: load.max_blocks,
        stride: load.stride,
        limit_bytes: load.limit_bytes.map(|bytes| bytes as f64),
        limit_commands: load.limit_commands,
        slots: load.slots,
        catch_up: load.catch_up,
        thesis: load.profile == ProfileWord::Thesis,
        time: load.time,
        blocks: load.blocks,
        commands: load.commands,
        touch: match load.touch {
            TouchWord::Never => Touch::Never,
            TouchWord::Once => Touch::Once,
            TouchWord::Always => Touch::Always,
        },
        cpus: place.cpus.iter().flat_map(|list| list.cores()).map(|core| core.0.into()).collect(),
        numa: place.numa,
        pages: match place.huge_pages {
            None => PageSize::Base,
            Some(PagesWord::M2) => PageSize::Huge2M,
            Some(PagesWord::G1) => PageSize::Huge1G,
        },
        seed: load.seed,
        engine: place.engine.map(|engine| match engine {
            EngineWord::NvmeUring => EngineKind::NvmeUring,
            EngineWord::NvmeIoctl => EngineKind::NvmeIoctl,
            EngineWord::Uring => EngineKind::Uring,
        }),
        verify: place.verify,
        log: place.log.is_some(),
    })
}

/// Refuses consent to a loss for a load that only reads, and --shared for a load that writes.
pub fn refuse_contradictory_consent(consent: &Consent, writes: bool) -> Result<(), Failure> {
    if consent.shared && writes {
        let why = "this load writes the target, but a shared device may only be read; leave --shared out, or \
                   read the target: --op write, or rw=read in a job file";
        return Err(Failure::bad_input(format!("--shared: {why}")));
    }
    let said = [("--overwrite", consent.overwrite), ("--destroy-data-on", consent.destroy_data_on.is_some())];
    match said.iter().find(|(_, is_said)| *is_said && !writes) {
        None => Ok(()),
        Some((word, _)) => {
            let why = "this load only reads the target; leave the option out, or write the target: --op \
                       read, or rw=write in a job file";
            Err(Failure::bad_input(format!("{word}: {why}")))
        }
    }
}

/// The consent that the options give.
pub fn consent(place: &PlaceArgs) -> Consent {
    Consent {
        destroy_data_on: place.destroy_data_on.clone(),
        create: place.create,
        overwrite: place.overwrite,
        made: Vec::new(),
        shared: place.shared,
    }
}
