//! A command line for this crate: records a program, prints the contents of a trace or a capture.
//!
//! It has the same commands as `waykeeper`, so that `scripts/make-inputs.sh` can use either:
//!
//! ```text
//! trace trace record -o FILE [--skip N] [--limit N] -- COMMAND...
//! trace trace info FILE
//! trace capture info FILE
//! ```
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to its user")]

use std::error::Error;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use waykeeper_inputs::{Capture, RecordOptions, TraceInfo, record};

const USAGE: &str =
    "usage: trace record -o FILE [--skip N] [--limit N] -- COMMAND... | trace info FILE | capture info FILE";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.as_slice() {
        ["trace", "info", file] => println!("{:#?}", TraceInfo::read(Path::new(file))?),
        ["capture", "info", file] => println!("{:#?}", Capture::read(Path::new(file))?.info()),
        ["trace", "record", rest @ ..] => {
            let split = rest.iter().position(|word| *word == "--").ok_or(USAGE)?;
            run(&rest[..split], &arguments[arguments.len() - (rest.len() - split - 1)..])?;
        }
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

fn run(options: &[&str], command: &[OsString]) -> Result<(), Box<dyn Error>> {
    let mut output = None;
    let mut with = RecordOptions::default();
    for pair in options.chunks(2) {
        match pair {
            ["-o", file] => output = Some(PathBuf::from(file)),
            ["--skip", number] => with.window.skip_instructions = number.parse()?,
            ["--limit", number] => with.window.max_instructions = Some(number.parse()?),
            _ => return Err(USAGE.into()),
        }
    }
    let output = output.ok_or(USAGE)?;
    let mut reported = 0;
    let recording = record(command, &output, &with, &mut |progress| {
        if progress.instructions >= reported + 10_000_000 {
            reported = progress.instructions;
            eprintln!("{} million instructions, {} records", reported / 1_000_000, progress.records);
        }
        ControlFlow::Continue(())
    })?;
    println!("{recording:#?}");
    Ok(())
}
