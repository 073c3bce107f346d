//! Valgrind lackey's text: `valgrind --tool=lackey --trace-mem=yes` (lackey/lk_main.c, "--trace-mem").
//!
//! One line per instruction (`I  addr,size`) and per data access (` L`, ` S`, ` M` for a read-modify-write, which is
//! one store here); addresses in hex, sizes in decimal. Lines of valgrind's own (`==`, `--`, `**`) and superblock lines
//! (`SB`) are skipped; any other line is refused. Instruction fetches are counted and not recorded: the virtual server
//! models data.
//!
//! Lackey does not name threads: their accesses are interleaved as valgrind runs them. Must not know caches.

use super::{RecordBuilder, TouchKind, TraceRecord};
use crate::error::InputError;
use crate::source::Source;

/// Longest line. Lackey's own are under 30 bytes; the first lines quote the command.
const MAX_LINE_BYTES: usize = 64 * 1024;
/// Longest accepted access. A guess: the longest that x86 has, xsave's, is under 3 KiB.
const MAX_ACCESS_BYTES: u64 = 4096;

/// Processes one line, without its newline; false if lackey does not write such lines.
pub(crate) fn decode(line: &[u8], into: &mut RecordBuilder) -> bool {
    let (kind, place) = match line {
        [b'I', b' ', b' ', ..] => (None, &line[3..]),
        [b' ', b'L', b' ', ..] => (Some(TouchKind::Load), &line[3..]),
        [b' ', b'S' | b'M', b' ', ..] => (Some(TouchKind::Store), &line[3..]),
        [b'=', b'=', ..] | [b'-', b'-', ..] | [b'*', b'*', ..] | [b'S', b'B', b' ', ..] => return true,
        _ => return false,
    };
    let Some((address, bytes)) = place_of(place) else { return false };
    match kind {
        None => into.instruction(),
        Some(kind) => into.access(address, bytes, kind),
    }
    true
}

/// `addr,size` as numbers, if the text is of that form and within the address space.
fn place_of(text: &[u8]) -> Option<(u64, u64)> {
    let comma = text.iter().position(|byte| *byte == b',')?;
    let (address, size) = (&text[..comma], &text[comma + 1..]);
    if !(1..=16).contains(&address.len()) || !(1..=4).contains(&size.len()) {
        return None;
    }
    let digits = |text: &[u8], base: u64| {
        text.iter().try_fold(0, |value, byte| {
            let digit = char::from(*byte).to_digit(base as u32)?;
            Some(value * base + u64::from(digit))
        })
    };
    let (address, bytes) = (digits(address, 16)?, digits(size, 10)?);
    ((1..=MAX_ACCESS_BYTES).contains(&bytes) && address.checked_add(bytes).is_some())
        .then_some((address, bytes))
}

pub(super) struct LackeyReader {
    input: Source,
    line: u64,
    builder: RecordBuilder,
    ended: bool,
}

impl LackeyReader {
    pub(super) fn new(input: Source) -> LackeyReader {
        LackeyReader { input, line: 0, builder: RecordBuilder::default(), ended: false }
    }

    /// True if a file starts as lackey's do. The rest of the line is checked when it is read, so that an error contains
    /// its number.
    pub(super) fn is_it(first: &[u8]) -> bool {
        [b"I  ".as_slice(), b" L ", b" S ", b" M ", b"==", b"SB "]
            .iter()
            .any(|prefix| first.starts_with(prefix))
    }

    /// The next record; none after the last.
    pub(super) fn next(&mut self) -> Result<Option<TraceRecord>, InputError> {
        loop {
            if let Some(record) = self.builder.pop() {
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
        self.builder.tail_instructions()
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
        if !decode(&bytes[..end], &mut self.builder) {
            let text = printable(&bytes[..end]);
            return Err(InputError::Line { path: self.input.path().to_owned(), line: self.line, text });
        }
        self.input.consume(end + 1);
        Ok(())
    }

    fn end_without_newline(&mut self) -> Result<(), InputError> {
        let rest = self.input.peek(MAX_LINE_BYTES)?;
        let (present, text) = (rest.len() as u64, printable(rest));
        let (path, offset) = (self.input.path().to_owned(), self.input.offset());
        if present == 0 {
            self.ended = true;
            self.builder.finish();
            Ok(())
        } else if present < MAX_LINE_BYTES as u64 {
            // Lackey ends every line; otherwise a size cut from `16` to `1` would not be noticed.
            Err(InputError::Cut { path, offset, what: "last line", needed: present + 1, present })
        } else {
            Err(InputError::Line { path, line: self.line + 1, text })
        }
    }
}

/// The start of a line, escaped for a message.
pub(crate) fn printable(line: &[u8]) -> String {
    line[..line.len().min(32)].escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_kind_of_line() {
        let mut builder = RecordBuilder::default();
        let text = "==12== Lackey, an example Valgrind tool\nI  0401ab70,3\n S 1fff000668,8\nSB 0401ab70\n L 1fff00067c,8\n\
                    I  0401ab73,5\n M 1fff000680,4\n==12== bye";
        for line in text.lines() {
            assert!(decode(line.as_bytes(), &mut builder), "{line}");
        }
        builder.finish();
        let records: Vec<_> = std::iter::from_fn(|| builder.pop()).collect();
        // 0x1fff000668 / 64 = 0x7ffc0019. The load of 8 bytes at ..67c ends at ..683: lines 19 and 1a.
        let record = |line, instructions, kind| TraceRecord { line, instructions, touches: 1, kind };
        assert_eq!(
            records,
            [
                record(0x7ffc_0019, 1, TouchKind::Store),
                record(0x7ffc_0019, 0, TouchKind::Load),
                record(0x7ffc_001a, 0, TouchKind::Load),
                record(0x7ffc_001a, 1, TouchKind::Store),
            ]
        );
    }

    #[test]
    fn refuses_what_lackey_does_not_write() {
        for line in [
            "",
            "I",
            "I  ",
            "I  12",
            "I  12,",
            "I  ,3",
            "I  xyz,3",
            "I  12,0",
            "I  12,99999",
            "I  12,4097",
            "I  ffffffffffffffff,8",
            "I  10000000000000000,8",
            " X 12,3",
            "L 12,3",
            " L 12,3 ",
            "I  12,3\r",
        ] {
            assert!(!decode(line.as_bytes(), &mut RecordBuilder::default()), "{line:?} should be refused");
        }
    }
}
