//! The words that say what load to make, and those that say where; and the plan that comes of them.
//!
//! Must not know how load is made.

use crate::exit::Failure;
use clap::{Args, ValueEnum};
use std::num::{IntErrorKind, ParseIntError};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use waykeeper_load::{Pattern, Toward};
use waykeeper_memload::{Consent, EngineKind, Pages, Plan, Touch};
use waykeeper_units::{CoreList, parse_size};

/// Where the words stand on the help page that say what is told of a run.
pub const RESULT: &str = "Result";
/// And those that say what may be lost.
const CONSENT: &str = "Consent";

/// What load to make.
#[derive(Args, Debug)]
#[command(next_help_heading = "Load")]
pub struct LoadArgs {
    /// How commands go over the buffer
    #[arg(long, value_enum, default_value_t = PatternWord::Random)]
    pattern: PatternWord,
    /// What the device does to memory: write it (and is read), or read it (and is written)
    #[arg(long, value_enum, default_value_t = OpWord::Write)]
    op: OpWord,
    /// Threads
    #[arg(short = 'j', long, value_name = "N", default_value_t = 1, value_parser = whole::<u32>, allow_negative_numbers = true)]
    workers: u32,
    /// Commands that each thread keeps outstanding
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u32>, allow_negative_numbers = true)]
    depth: u32,
    /// Bytes of a block; 4096 or the device's own by default
    #[arg(long, value_name = "SIZE", value_parser = size, allow_negative_numbers = true)]
    block_size: Option<u64>,
    /// Bytes of the buffer; 1000 blocks by default
    #[arg(long, value_name = "SIZE", value_parser = size, allow_negative_numbers = true)]
    buffer: Option<u64>,
    /// Most blocks of a command (random and full move one less); by default what the device takes, 128 KiB on a file
    #[arg(long, value_name = "N", value_parser = whole::<u32>, allow_negative_numbers = true)]
    max_blocks: Option<u32>,
    /// packets: blocks from one slot of the ring to the next
    #[arg(long, value_name = "BLOCKS", default_value_t = 1, value_parser = whole::<u32>, allow_negative_numbers = true)]
    stride: u32,
    /// Most bytes per second, of all threads together
    #[arg(long, value_name = "SIZE", value_parser = size, allow_negative_numbers = true)]
    limit_bytes: Option<u64>,
    /// Most commands per second, of all threads together
    #[arg(long, value_name = "N", value_parser = rate, allow_negative_numbers = true)]
    limit_commands: Option<f64>,
    /// Slots per second in which the limits are dealt out: what falls to one may go at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u32>, allow_negative_numbers = true)]
    slots: u32,
    /// What slots did not use may still go, at most a second's worth: a busy machine misses slots, and their part is
    /// lost otherwise
    #[arg(long)]
    catch_up: bool,
    /// How to count: exactly, or as the program of the thesis did (moves a block more than it counts)
    #[arg(long, value_enum, default_value_t = ProfileWord::Exact)]
    profile: ProfileWord,
    /// End after so long: 10, 10s, 500ms, 2m
    #[arg(long, value_name = "TIME", value_parser = time, allow_negative_numbers = true)]
    time: Option<Duration>,
    /// End after so many blocks
    #[arg(long, value_name = "N", value_parser = whole::<u64>, allow_negative_numbers = true)]
    blocks: Option<u64>,
    /// End after so many commands
    #[arg(long, value_name = "N", value_parser = whole::<u64>, allow_negative_numbers = true)]
    commands: Option<u64>,
    /// What the CPU reads: nothing, the buffer before the start, or each command's part of it before the command
    #[arg(long, value_enum, default_value_t = TouchWord::Never)]
    touch: TouchWord,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>, allow_negative_numbers = true)]
    seed: u64,
}

/// Where, on this machine.
#[derive(Args, Debug)]
#[command(next_help_heading = "Place")]
pub struct PlaceArgs {
    /// What carries commands; the best that the target can do by default
    #[arg(long, value_enum)]
    engine: Option<EngineWord>,
    /// CPUs to pin threads to, in turn: 3 or 0-3,8
    #[arg(long, value_name = "LIST")]
    cpus: Option<CoreList>,
    /// NUMA node of the buffer
    #[arg(long, value_name = "NODE", value_parser = whole::<u32>, allow_negative_numbers = true)]
    numa: Option<u32>,
    /// Huge pages for the buffer
    #[arg(long, value_enum, value_name = "SIZE")]
    huge_pages: Option<PagesWord>,
    /// Look afterwards whether what was moved has arrived
    #[arg(long, help_heading = RESULT)]
    verify: bool,
    /// Write down when each command went and how long it took (CSV)
    #[arg(long, value_name = "FILE", help_heading = RESULT)]
    pub log: Option<PathBuf>,
    /// The data on the device with this serial number may be lost
    #[arg(long, value_name = "SERIAL", help_heading = CONSENT)]
    destroy_data_on: Option<String>,
    /// Make a file of this size
    #[arg(long, value_name = "SIZE", value_parser = size, allow_negative_numbers = true, help_heading = CONSENT)]
    create: Option<u64>,
    /// What stands in the file may be overwritten
    #[arg(long, help_heading = CONSENT)]
    overwrite: bool,
    /// Read a device that somebody else uses (never writes it)
    #[arg(long, conflicts_with_all = ["destroy_data_on", "overwrite", "create"], help_heading = CONSENT)]
    shared: bool,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum PatternWord {
    /// Almost as many blocks as a command can have, anywhere in the buffer
    Random,
    /// One block after the other
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
    /// What is counted is what is moved
    Exact,
    /// As published
    Thesis,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum TouchWord {
    /// Nothing
    Never,
    /// The whole buffer before the start
    Once,
    /// Before each command what it moves
    Always,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum EngineWord {
    /// NVMe commands through io_uring
    NvmeUring,
    /// NVMe commands through the ioctl
    NvmeIoctl,
    /// Reads and writes past the page cache through io_uring
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

/// A whole number; what of these can be is looked at when all words are known.
pub fn whole<N: FromStr<Err = ParseIntError>>(text: &str) -> Result<N, String> {
    text.parse::<N>().map_err(|why| match why.kind() {
        IntErrorKind::PosOverflow => format!("`{text}` is more than anybody can mean"),
        _ => format!("`{text}` is no whole number"),
    })
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| format!("`{text}` is no number above 0; leave it out for no limit"))
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|why| why.to_string())
}

/// Seconds without a unit, as nvme-memload and fio take them.
fn time(text: &str) -> Result<Duration, String> {
    let wanted = || format!("`{text}` is no time above 0; write seconds (10) or a unit (500ms, 2m)");
    let plain = text.parse::<f64>().ok().map(|s| Duration::try_from_secs_f64(s).map_err(|_| wanted()));
    let time = plain.unwrap_or_else(|| humantime::parse_duration(text).map_err(|_| wanted()))?;
    if time.is_zero() { Err(wanted()) } else { Ok(time) }
}

/// The plan of a run here.
pub fn plan(load: &LoadArgs, place: &PlaceArgs) -> Result<Plan, String> {
    let block_bytes = match load.block_size.map(u32::try_from) {
        None => None,
        Some(Ok(bytes)) => Some(bytes),
        Some(Err(_)) => {
            let bytes = load.block_size.unwrap_or_default();
            return Err(format!(
                "--block-size is {bytes}; it must be below 4 GiB, and 512 B to some KiB are usual"
            ));
        }
    };
    Ok(Plan {
        pattern: match load.pattern {
            PatternWord::Random => Pattern::Random,
            PatternWord::Single => Pattern::Single,
            PatternWord::Full => Pattern::Full,
            PatternWord::Packets => Pattern::Packets,
            PatternWord::Flush => Pattern::Flush,
            PatternWord::Noop => Pattern::Noop,
        },
        op: match load.op {
            OpWord::Read => Toward::Read,
            OpWord::Write => Toward::Write,
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
            None => Pages::Base,
            Some(PagesWord::M2) => Pages::Huge2M,
            Some(PagesWord::G1) => Pages::Huge1G,
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

/// Whoever agrees to a loss has a load in mind that writes; one that only reads is not meant.
pub fn meant(consent: &Consent, writes: bool) -> Result<(), Failure> {
    if consent.shared && writes {
        let why = "this load writes the target, and a device that others use is only read; leave it out, or have the \
                   target read: --op write, or rw=read in a job file";
        return Err(Failure::bad_input(format!("--shared: {why}")));
    }
    let said = [("--overwrite", consent.overwrite), ("--destroy-data-on", consent.destroy_data_on.is_some())];
    match said.iter().find(|(_, is_said)| *is_said && !writes) {
        None => Ok(()),
        Some((word, _)) => {
            let why = "this load only reads the target; leave it out, or have the target written: --op read, or rw=write \
                       in a job file";
            Err(Failure::bad_input(format!("{word}: {why}")))
        }
    }
}

/// What the user agrees to.
pub fn consent(place: &PlaceArgs) -> Consent {
    Consent {
        destroy_data_on: place.destroy_data_on.clone(),
        create: place.create,
        overwrite: place.overwrite,
        made: Vec::new(),
        shared: place.shared,
    }
}
