//! `waykeeper trace`: records, shows and converts memory traces of real programs. Must not know the formats (`inputs`).

use crate::exit::{self, Failure};
use crate::progress::Spinner;
use crate::{listing, out, outputs};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use waykeeper_inputs::{
    ConvertOptions, Ended, RecordOptions, TraceInfo, Unrecorded, Window, convert, record,
};
use waykeeper_output_file::is_stdout;

const RECORD_EXAMPLES: &str = "\
Examples:
  The first 20 million instructions of ls, only accesses that miss a 32 KiB L1
    waykeeper trace record -o ls.wkt --limit 20M --l1 -- ls -lR /usr/share
  25 million instructions after start-up
    waykeeper trace record -o redis.wkt --skip 50M --limit 25M -- redis-server --port 7777
  A whole program
    waykeeper trace record -o sort.wkt --l1 -- sort big.txt

Recording needs valgrind, which slows a program down some hundred times. Without --limit the whole
program is recorded. One process is recorded: what a script or wrapper starts is not, and a line at the
end says so; give the program itself. Standard output is the program's own. At the end a summary is printed to
standard error, or with --json to standard output after the program's output.

A scenario runs a trace with: program = \"replay\", trace = \"ls.wkt\".";

const INFO_EXAMPLES: &str = "\
Examples:
  waykeeper trace info inputs/redis-server.wkt                   a summary
  waykeeper trace info 605.mcf_s-472B.champsimtrace.xz --json    the same of a ChampSim trace, as JSON";

const CONVERT_EXAMPLES: &str = "\
Examples:
  The first 50 million instructions of a ChampSim trace
    waykeeper trace convert 605.mcf_s-472B.champsimtrace.xz mcf.wkt --limit 50M
  A lackey text, only accesses that miss a 32 KiB L1
    waykeeper trace convert lackey.txt.zst program.wkt --l1
  A trace of DynamoRIO
    drrun -t drmemtrace -tool view -indir DIR 2> view.txt
    waykeeper trace convert view.txt program.wkt --l1

Input formats: valgrind lackey text (--trace-mem=yes), ChampSim binary traces, .wkt, text of
DynamoRIO's view tool, of Pin's pinatrace and of Dinero (din), and lines `read|write|fetch ADDRESS
[SIZE]` of any tool: the address in hex, the size in bytes. All plain or compressed with gzip, xz
or zstd.";

/// Examples of the whole subcommand.
pub const EXAMPLES: &str = "\
Examples:
  Record a program
    waykeeper trace record -o ls.wkt --limit 20M --l1 -- ls -lR /usr/share
  Summarise a trace
    waykeeper trace info inputs/redis-server.wkt
  Convert a ChampSim trace
    waykeeper trace convert 605.mcf_s-472B.champsimtrace.xz mcf.wkt --limit 50M";

/// What to do with traces.
#[derive(Subcommand, Debug)]
pub enum TraceCommand {
    /// Run a program under valgrind and record its memory accesses
    #[command(after_help = RECORD_EXAMPLES)]
    Record(RecordArgs),
    /// Show the instructions, accesses and footprint of a trace
    #[command(after_help = INFO_EXAMPLES)]
    Info {
        /// The trace
        file: PathBuf,
        /// Print JSON instead of a list
        #[arg(long)]
        json: bool,
    },
    /// Convert a memory trace of another tool into a .wkt file
    #[command(after_help = CONVERT_EXAMPLES)]
    Convert(ConvertArgs),
}

/// Which part of a program's run to keep.
#[derive(Args, Debug)]
struct WindowArgs {
    /// Skip this many instructions at the start, such as 5000, 50k, 50M or 2G
    #[arg(long, value_name = "N", default_value = "0", value_parser = count)]
    skip: u64,
    /// Keep at most this many instructions after the skipped ones [default: all]
    #[arg(long, value_name = "N", value_parser = count)]
    limit: Option<u64>,
    /// Keep only accesses that miss a 32 KiB L1 data cache; the file is much smaller and the model uses no others
    #[arg(long)]
    l1: bool,
    /// Overwrite an existing file
    #[arg(long)]
    force: bool,
    /// Print JSON instead of a list
    #[arg(long)]
    json: bool,
}

/// What `trace record` needs.
#[derive(Args, Debug)]
pub struct RecordArgs {
    /// Trace to write, a .wkt file
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    window: WindowArgs,
    /// Path of valgrind
    #[arg(long, value_name = "PATH", default_value = "valgrind")]
    valgrind: PathBuf,
    /// Program to record and its arguments, after --
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

/// What `trace convert` needs.
#[derive(Args, Debug)]
pub struct ConvertArgs {
    /// The trace to read
    input: PathBuf,
    /// The .wkt file to write; `-` is standard output
    output: PathBuf,
    #[command(flatten)]
    window: WindowArgs,
}

impl WindowArgs {
    fn window(&self) -> Window {
        Window { skip_instructions: self.skip, max_instructions: self.limit, max_records: None }
    }
}

/// Runs the subcommand.
pub fn trace(command: TraceCommand) -> Result<(), Failure> {
    match command {
        TraceCommand::Record(args) => record_program(&args),
        TraceCommand::Info { file, json } => out::text(&text(&TraceInfo::read(&file)?, None, json)?),
        TraceCommand::Convert(args) => {
            outputs::file("the trace", &args.output, args.window.force)?;
            let options =
                ConvertOptions { window: args.window.window(), l1_filter: args.window.l1, source: None };
            let info = convert(&args.input, &args.output, &options)?;
            outputs::report(&args.output, &text(&info, None, args.window.json)?)
        }
    }
}

fn record_program(args: &RecordArgs) -> Result<(), Failure> {
    if is_stdout(&args.output) {
        return Err(Failure::bad_input(format!(
            "--output {}: standard output belongs to the recorded program; name a file or a pipe",
            args.output.display()
        )));
    }
    // A trace may have taken hours to record: it is overwritten only with --force.
    outputs::file("--output", &args.output, args.window.force)?;
    // Ctrl-C ends the recording, not the program: the recorded part is kept.
    let asked = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, asked.clone())
        .map_err(|why| Failure::io("cannot listen for Ctrl-C", &why))?;
    let options = RecordOptions {
        window: args.window.window(),
        l1_filter: args.window.l1,
        source: None,
        valgrind: args.valgrind.clone(),
    };
    let spinner = Spinner::new(args.window.limit.map(|limit| limit.saturating_add(args.window.skip)));
    let recording = record(&args.command, &args.output, &options, &mut |progress| {
        spinner.show(*progress);
        if asked.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    spinner.clear();
    let recording = recording?;
    let ended = match recording.ended {
        Ended::Full => "the limit was reached; the program was stopped".to_owned(),
        Ended::Asked => "interrupted; the trace recorded until then is kept".to_owned(),
        Ended::Exited(status) => format!("the program ended by itself ({status})"),
    };
    let run =
        Run { ended: &ended, unrecorded: &recording.unrecorded, warnings: recording.unrecorded.sentences() };
    if args.window.json {
        out::text(&text(&recording.info, Some(&run), true)?)?;
    }
    // Standard output belongs to the recorded program.
    exit::eprint_line(&format!("\nrecorded {}", args.output.display()));
    if !args.window.json {
        exit::eprint_line(page(&recording.info, Some(&run)).trim_end());
    }
    for warning in &run.warnings {
        exit::eprint_line(&format!("warning: {} {warning}", recording.info.source));
    }
    match recording.ended {
        Ended::Asked => Err(Failure::new(exit::INTERRUPTED, "interrupted")),
        Ended::Full | Ended::Exited(_) => Ok(()),
    }
}

/// How a recording went.
#[derive(Serialize)]
struct Run<'a> {
    ended: &'a str,
    /// What the program did that is not in the trace.
    unrecorded: &'a Unrecorded,
    warnings: Vec<String>,
}

/// A trace, and how its recording went, as JSON.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    info: &'a TraceInfo,
    #[serde(flatten)]
    run: Option<&'a Run<'a>>,
}

fn text(info: &TraceInfo, run: Option<&Run<'_>>, json: bool) -> Result<String, Failure> {
    if json { out::json_text(&Shown { info, run }) } else { Ok(page(info, run)) }
}

fn page(info: &TraceInfo, run: Option<&Run<'_>>) -> String {
    let count = listing::grouped;
    let summary = info.summary;
    let mut facts = vec![
        ("format", format!("{:?}", info.format).to_lowercase()),
        ("source", listing::or_dash(&info.source)),
        (
            "instructions",
            match info.counts_accesses_only {
                true => format!("{} (only those that touch memory are listed)", count(summary.instructions)),
                false => count(summary.instructions),
            },
        ),
        (
            "records",
            format!(
                "{} ({:.1} per 1000 instructions)",
                count(summary.records),
                info.records_per_kilo_instruction
            ),
        ),
        ("loads", count(summary.loads)),
        ("stores", format!("{} ({:.1} %)", count(summary.stores), 100.0 * info.store_ratio)),
        ("footprint", format!("{} ({} lines)", listing::bytes(info.footprint_bytes), count(info.lines))),
        ("lines written", count(info.lines_written)),
        ("L1 filtered", if info.l1_filtered { "yes" } else { "no" }.to_owned()),
    ];
    facts.extend(run.map(|run| ("ended", run.ended.to_owned())));
    listing::facts(&facts)
}

/// A count with an optional k, M or G (powers of ten).
fn count(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a count; write a whole number like 5000, 50k, 50M or 2G");
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1_000),
        Some((at, 'm' | 'M')) => (&text[..at], 1_000_000),
        Some((at, 'g' | 'G')) => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(unit).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_take_a_decimal_unit() {
        assert_eq!(
            ["7", "5k", "50M", "2G"].map(|text| count(text).unwrap()),
            [7, 5_000, 50_000_000, 2_000_000_000]
        );
        assert!(["", "k", "-1", "1.5M", "99999999999999G", "ü"].iter().all(|text| count(text).is_err()));
    }
}
