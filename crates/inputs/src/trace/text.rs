//! Traces of text, a line each: reads lines within a bound and passes them to the decoder of their format.
//!
//! An instruction is counted where a format has lines of instructions, or names the instruction of an access. Must not
//! know what the lines of a format look like.

use super::{RecordBuilder, TouchKind, TraceFormat, TraceRecord, drmemtrace, lackey, pin, plain};
use crate::error::InputError;
use crate::source::Source;

/// Longest line. Those of the formats are under 300 bytes; lackey's first lines quote the command.
const MAX_LINE_BYTES: usize = 64 * 1024;
/// Longest accepted access. A guess: the longest that x86 has, xsave's, is under 3 KiB.
pub(super) const MAX_ACCESS_BYTES: u64 = 4096;
/// Bytes of a file by which a format is recognised.
pub(super) const LOOK_BYTES: usize = 4096;

/// A format of text.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextFormat {
    pub(super) format: TraceFormat,
    /// Its name, and its lines, in messages.
    pub(super) name: &'static str,
    wanted: &'static str,
    is_it: fn(&str) -> bool,
    /// Processes one line, without its newline; false if the format has no such lines.
    decode: fn(&[u8], &mut TextState) -> bool,
    /// Programs end their last line; a person may not.
    is_by_hand: bool,
}

const FORMATS: &[TextFormat] = &[
    TextFormat {
        format: TraceFormat::Lackey,
        name: "lackey",
        wanted: "`I  addr,size`, ` L addr,size`, ` S addr,size` or ` M addr,size` as `valgrind --tool=lackey \
            --trace-mem=yes` writes them",
        is_it: lackey::is_it,
        decode: |line, into| lackey::decode(line, &mut into.builder),
        is_by_hand: false,
    },
    TextFormat {
        format: TraceFormat::DrMemTrace,
        name: "drmemtrace",
        wanted: "`RECORD INSTRUCTION: TID read N byte(s) @ 0xADDRESS`, `write`, `ifetch` or a marker, as `drrun -t \
            drmemtrace -tool view` prints them",
        is_it: drmemtrace::is_it,
        decode: drmemtrace::decode,
        is_by_hand: false,
    },
    TextFormat {
        format: TraceFormat::Pin,
        name: "pinatrace",
        wanted: "`IP: R ADDRESS` or `IP: W ADDRESS`, with a size behind it or without, as Pin's pinatrace writes them",
        is_it: pin::is_it,
        decode: pin::decode,
        is_by_hand: false,
    },
    TextFormat {
        format: TraceFormat::Plain,
        name: "plain trace",
        wanted: "`read ADDRESS SIZE`, `write ADDRESS SIZE` or `fetch ADDRESS`, in hex and in bytes, or Dinero's labels \
            `0` to `4` and `i`, `m`, `c`, `v` before an address; a `#` begins a comment",
        is_it: plain::is_it,
        decode: plain::decode,
        is_by_hand: true,
    },
];

impl TextFormat {
    /// The format of a file that begins so. The rest of the lines is checked when they are read, so that an error
    /// contains their numbers.
    pub(super) fn of(first: &str) -> Option<TextFormat> {
        FORMATS.iter().find(|format| (format.is_it)(first)).copied()
    }
}

/// What is carried from line to line.
#[derive(Default)]
pub(super) struct TextState {
    pub(super) builder: RecordBuilder,
    /// A line of an instruction was read.
    pub(super) has_fetches: bool,
    /// The instruction of the last access, where lines name it.
    pub(super) at: Option<u64>,
    /// Lines before the head of the output are another program's.
    pub(super) is_before_head: bool,
}

impl TextState {
    /// An instruction begins.
    pub(super) fn fetch(&mut self) {
        self.has_fetches = true;
        self.builder.instruction();
    }

    /// Bytes are touched. In a trace without lines of instructions each access counts as one.
    pub(super) fn access(&mut self, address: u64, bytes: u64, kind: TouchKind) {
        if !self.has_fetches {
            self.builder.instruction();
        }
        self.builder.access(address, bytes, kind);
    }
}

pub(super) struct TextReader {
    input: Source,
    text: TextFormat,
    state: TextState,
    line: u64,
    ended: bool,
}

impl TextReader {
    pub(super) fn new(input: Source, text: TextFormat, first: &str) -> TextReader {
        let is_before_head = text.format == TraceFormat::DrMemTrace && drmemtrace::has_head(first);
        let state = TextState { is_before_head, ..TextState::default() };
        TextReader { input, text, state, line: 0, ended: false }
    }

    pub(super) fn format(&self) -> TraceFormat {
        self.text.format
    }

    /// True if only instructions that touch memory were counted.
    pub(super) fn counts_accesses_only(&self) -> bool {
        self.text.format != TraceFormat::Lackey && !self.state.has_fetches
    }

    /// The next record; none after the last.
    pub(super) fn next(&mut self) -> Result<Option<TraceRecord>, InputError> {
        loop {
            if let Some(record) = self.state.builder.pop() {
                return Ok(Some(record));
            }
            if self.ended {
                return Ok(None);
            }
            self.read_line()?;
        }
    }

    /// Instructions after the last record, once the records have run out.
    pub(super) fn tail_instructions(&self) -> u64 {
        self.state.builder.tail_instructions()
    }

    fn read_line(&mut self) -> Result<(), InputError> {
        // The look-ahead buffer mostly contains the whole line; otherwise the longest possible line is requested.
        let mut bytes = self.input.peek(1)?;
        let mut end = bytes.iter().position(|byte| *byte == b'\n');
        if end.is_none() {
            bytes = self.input.peek(MAX_LINE_BYTES)?;
            end = bytes.iter().position(|byte| *byte == b'\n');
        }
        let Some(end) = end else {
            return self.end_without_newline();
        };
        self.line += 1;
        // Windows ends lines with a carriage return too.
        let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
        if !(self.text.decode)(line, &mut self.state) {
            let text = printable(line);
            return Err(self.refused(self.line, text));
        }
        self.input.consume(end + 1);
        Ok(())
    }

    fn end_without_newline(&mut self) -> Result<(), InputError> {
        let rest = self.input.peek(MAX_LINE_BYTES)?;
        let (present, text) = (rest.len(), printable(rest));
        if present >= MAX_LINE_BYTES {
            return Err(self.refused(self.line + 1, text));
        }
        if present > 0 && !self.text.is_by_hand {
            // A program ends every line; otherwise a size cut from `16` to `1` would not be noticed.
            let (path, offset) = (self.input.path().to_owned(), self.input.offset());
            let (present, needed) = (present as u64, present as u64 + 1);
            return Err(InputError::Cut { path, offset, what: "last line", needed, present });
        }
        if present > 0 && !(self.text.decode)(rest, &mut self.state) {
            return Err(self.refused(self.line + 1, text));
        }
        self.input.consume(present);
        self.ended = true;
        self.state.builder.finish();
        Ok(())
    }

    fn refused(&self, line: u64, text: String) -> InputError {
        let TextFormat { name, wanted, .. } = self.text;
        InputError::Line { path: self.input.path().to_owned(), line, text, name, wanted }
    }
}

/// The start of a line, escaped for a message.
pub(crate) fn printable(line: &[u8]) -> String {
    line[..line.len().min(32)].escape_ascii().to_string()
}

/// A number of 1 to 16 hex digits, with `0x` before them or not.
pub(super) fn hex(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    let is_number = (1..=16).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_number.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

/// Bytes of an access at this address, if there can be such an access.
pub(super) fn size(text: &str, address: u64) -> Option<u64> {
    let is_number = (1..=4).contains(&text.len()) && text.bytes().all(|digit| digit.is_ascii_digit());
    let bytes: u64 = is_number.then(|| text.parse().ok()).flatten()?;
    ((1..=MAX_ACCESS_BYTES).contains(&bytes) && address.checked_add(bytes).is_some()).then_some(bytes)
}

/// The lines that are neither empty nor comments.
pub(super) fn lines(first: &str) -> impl Iterator<Item = &str> {
    first.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The first of them.
pub(super) fn first_line(first: &str) -> Option<&str> {
    lines(first).next()
}

#[cfg(test)]
pub(super) fn record(line: u64, instructions: u64, kind: TouchKind) -> TraceRecord {
    TraceRecord { line, instructions, touches: 1, kind }
}

#[cfg(test)]
pub(super) fn records_of(text: &str, format: TraceFormat) -> Result<(Vec<TraceRecord>, u64), String> {
    let text_format = TextFormat::of(text).ok_or("not recognised")?;
    assert_eq!(text_format.format, format, "{text}");
    let is_before_head = format == TraceFormat::DrMemTrace && drmemtrace::has_head(text);
    let mut state = TextState { is_before_head, ..TextState::default() };
    for line in text.lines() {
        if !(text_format.decode)(line.as_bytes(), &mut state) {
            return Err(line.to_owned());
        }
    }
    state.builder.finish();
    let instructions = state.builder.instructions();
    Ok((std::iter::from_fn(|| state.builder.pop()).collect(), instructions))
}
