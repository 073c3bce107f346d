//! Valgrind lackey's text: `valgrind --tool=lackey --trace-mem=yes` (lackey/lk_main.c, "--trace-mem").
//!
//! One line per instruction (`I  addr,size`) and per data access (` L`, ` S`, ` M` for a read-modify-write, which is
//! one store here); addresses in hex, sizes in decimal. Lines of valgrind's own (`==`, `--`, `**`) and superblock lines
//! (`SB`) are skipped; any other line is refused. Instruction fetches are counted and not recorded: the virtual server
//! models data.
//!
//! Lackey does not name threads: their accesses are interleaved as valgrind runs them. Must not know caches.

use super::text::MAX_ACCESS_BYTES;
use super::{RecordBuilder, TouchKind};

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

/// True if a file begins as lackey's do.
pub(super) fn is_it(first: &str) -> bool {
    ["I  ", " L ", " S ", " M ", "==", "SB "].iter().any(|prefix| first.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::TraceRecord;

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
