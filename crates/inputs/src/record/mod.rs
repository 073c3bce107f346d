//! Makes a memory trace of a real program: runs it under valgrind's lackey and converts as it runs.
//!
//! Only the result is stored: each line of text from the pipe becomes a touch, touches become records, and records pass
//! the L1 filter and the window into a `.wkt` file. Must not know what programs do; a server that does not end is
//! stopped when the window is full.
//!
//! *What is followed.* The one process that valgrind starts, with all its threads as valgrind interleaves them (it runs
//! one at a time and lackey does not say which). Children that it forks are not traced; programs that it executes run
//! without valgrind: [`Unrecorded`] says which there were. The kernel's own accesses are not seen, system calls take no
//! instructions. A repeated string instruction (`rep movs`, `rep stos`) counts one instruction and one access a repeat, as
//! valgrind runs it.

mod child;
mod family;

use crate::error::InputError;
use crate::trace::{L1Filter, Pipeline, RecordBuilder, TraceInfo, Window, decode_lackey, printable};
use child::{PipeEvent, Traced};
pub use family::Unrecorded;
use std::ffi::OsString;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

/// Text read at once. Lackey writes some 14 bytes an access.
const CHUNK_BYTES: usize = 256 * 1024;
/// In the last line that lackey writes of a program (lackey/lk_main.c, lk_fini).
const EXIT_LINE: &[u8] = b"Exit code:";

/// Options of [`record()`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordOptions {
    /// The part to keep: skips a program's start-up, ends a server.
    pub window: Window,
    /// Keep only what misses L1 ([`L1Filter`]). The skipped part warms it up.
    pub l1_filter: bool,
    /// Description of the program; by default the command without its folder.
    pub source: Option<String>,
    /// The valgrind to run.
    pub valgrind: PathBuf,
}

impl Default for RecordOptions {
    fn default() -> RecordOptions {
        let (window, valgrind) = (Window::default(), PathBuf::from("valgrind"));
        RecordOptions { window, l1_filter: false, source: None, valgrind }
    }
}

/// Progress of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordingProgress {
    /// Instructions executed, those of the skipped part included.
    pub instructions: u64,
    /// Records written.
    pub records: u64,
}

/// Why a recording ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The window was full; the program was stopped.
    Full,
    /// The progress callback stopped it; the program was stopped.
    Asked,
    /// The program ended by itself, with this status.
    Exited(ExitStatus),
}

/// A finished recording.
#[derive(Clone, PartialEq, Debug)]
pub struct Recording {
    /// What was recorded.
    pub info: TraceInfo,
    /// Why it ended.
    pub ended: Ended,
    /// What the program did besides.
    pub unrecorded: Unrecorded,
}

/// Why a recording failed.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// No command was given.
    #[error("no command to record; name the program behind --")]
    NoCommand,
    /// Valgrind is not installed.
    #[error("cannot run {valgrind}: not found; install Debian package valgrind")]
    NoValgrind {
        /// The program that was tried.
        valgrind: PathBuf,
    },
    /// Valgrind exists and could not be started.
    #[error("cannot run {valgrind}: {source}; check that it may be executed")]
    Start {
        /// The program that was tried.
        valgrind: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// Valgrind ran but the program did not start: it executed no instruction.
    #[error("`{command}` did not start under {valgrind} ({status}); run it without waykeeper to see why")]
    NotStarted {
        /// The command.
        command: String,
        /// The valgrind used.
        valgrind: PathBuf,
        /// Valgrind's exit status.
        status: ExitStatus,
    },
    /// The pipe or the process failed.
    #[error("lost `{command}` while recording: {source}; record again")]
    Lost {
        /// The command.
        command: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// Valgrind wrote a line that is not lackey's.
    #[error(
        "line {line} of lackey's output for `{command}` is `{text}`; use a current valgrind, 3.19 is known \
         to work"
    )]
    Text {
        /// The command.
        command: String,
        /// The line, from 1.
        line: u64,
        /// Its first characters, made printable.
        text: String,
    },
    /// The program ended before anything was recorded.
    #[error(
        "`{command}` ended after {instructions} instructions ({status}), before the recorded window began; \
         skip less"
    )]
    Nothing {
        /// The command.
        command: String,
        /// Instructions that it executed.
        instructions: u64,
        /// Its exit status.
        status: ExitStatus,
    },
    /// The trace cannot be written.
    #[error(transparent)]
    Output(#[from] InputError),
}

/// Records a program's memory accesses into a `.wkt` file.
///
/// Runs `command` under `valgrind --tool=lackey` until the window is full, `progress` returns break, or the program
/// ends. `progress` is called at least ten times a second. The program keeps its stdin (unless that is a terminal),
/// stdout and stderr; it is stopped with SIGTERM to its process group, and with SIGKILL if it still runs after five
/// seconds. The output gets its name only when it is complete.
///
/// # Errors
/// [`RecordError`]; in particular [`RecordError::NoValgrind`] where valgrind is missing.
pub fn record(
    command: &[OsString],
    output: &Path,
    options: &RecordOptions,
    progress: &mut dyn FnMut(&RecordingProgress) -> ControlFlow<()>,
) -> Result<Recording, RecordError> {
    if command.is_empty() {
        return Err(RecordError::NoCommand);
    }
    let lost = |source| RecordError::Lost { command: child::shown(command), source };
    let filter = options.l1_filter.then(L1Filter::new);
    let source = options.source.clone().unwrap_or_else(|| child::source_text(command));
    let pipeline = Pipeline::new(output, source, options.l1_filter, filter, options.window)?;
    let mut traced = Traced::start(&options.valgrind, command)?;
    let mut converter = TextConverter {
        builder: RecordBuilder::default(),
        pipeline,
        text: vec![0; CHUNK_BYTES],
        held: 0,
        line: 0,
        has_exit_line: false,
    };
    let stopped = loop {
        match traced.listen(&mut converter.text[converter.held..]).map_err(lost)? {
            PipeEvent::Bytes(bytes) => converter.take(bytes, command)?,
            PipeEvent::Nothing => {}
            PipeEvent::End => break None,
        }
        if converter.is_full() {
            break Some(Ended::Full);
        }
        let so_far = RecordingProgress {
            instructions: converter.builder.instructions(),
            records: converter.pipeline.records(),
        };
        if progress(&so_far).is_break() {
            break Some(Ended::Asked);
        }
    };
    if stopped.is_some() {
        traced.stop().map_err(lost)?;
    }
    // Lackey's last line is missing where another program took the place of the one that it ran.
    let may_be_replaced = stopped.is_none() && !converter.has_exit_line;
    let (status, unrecorded) = traced.wait(may_be_replaced).map_err(lost)?;
    let instructions = converter.builder.instructions();
    if instructions == 0 && stopped.is_none() {
        let (command, valgrind) = (child::shown(command), options.valgrind.clone());
        return Err(RecordError::NotStarted { command, valgrind, status });
    }
    let Some(info) = converter.finish()? else {
        return Err(RecordError::Nothing { command: child::shown(command), instructions, status });
    };
    Ok(Recording { info, ended: stopped.unwrap_or(Ended::Exited(status)), unrecorded })
}

/// `==31== Exit code:       0`.
fn is_exit_line(line: &[u8]) -> bool {
    line.windows(EXIT_LINE.len()).any(|part| part == EXIT_LINE)
}

/// Converts text to records.
struct TextConverter {
    builder: RecordBuilder,
    pipeline: Pipeline,
    text: Vec<u8>,
    /// Bytes of an incomplete line at the start of `text`.
    held: usize,
    line: u64,
    /// Lackey has written the exit code of the program.
    has_exit_line: bool,
}

impl TextConverter {
    /// Processes the bytes that were read after the held ones.
    fn take(&mut self, bytes: usize, command: &[OsString]) -> Result<(), RecordError> {
        let end = self.held + bytes;
        let mut start = 0;
        while let Some(length) = self.text[start..end].iter().position(|byte| *byte == b'\n') {
            let line = &self.text[start..start + length];
            self.line += 1;
            if !decode_lackey(line, &mut self.builder) {
                return Err(self.refused(start..start + length, command));
            }
            self.has_exit_line |= line.starts_with(b"==") && is_exit_line(line);
            start += length + 1;
        }
        if start == 0 && end == self.text.len() {
            return Err(self.refused(0..end, command));
        }
        self.text.copy_within(start..end, 0);
        self.held = end - start;
        self.drain()
    }

    fn drain(&mut self) -> Result<(), RecordError> {
        while let Some(record) = self.builder.pop() {
            self.pipeline.push(record)?;
        }
        Ok(())
    }

    /// True if no further record will be kept, even while a program runs without touching memory.
    fn is_full(&self) -> bool {
        self.pipeline.is_full() || self.pipeline.is_past(self.builder.instructions())
    }

    /// Ends the file; none if nothing was recorded.
    fn finish(mut self) -> Result<Option<TraceInfo>, RecordError> {
        self.builder.finish();
        self.drain()?;
        if self.pipeline.records() == 0 {
            return Ok(None);
        }
        Ok(Some(self.pipeline.finish(self.builder.instructions())?))
    }

    fn refused(&self, place: std::ops::Range<usize>, command: &[OsString]) -> RecordError {
        RecordError::Text {
            command: child::shown(command),
            line: self.line,
            text: printable(&self.text[place]),
        }
    }
}
