//! The plain text form, for traces of any tool: `read|write|fetch ADDRESS [SIZE]`, a line each.
//!
//! The address is in hex, with `0x` or without; the size is in bytes and decimal, 1 where it is missing. `r`, `w` and `f`
//! are the same words. Words may be separated by commas, and a `#` begins a comment. A `fetch` is an instruction, to which
//! the accesses below it belong.
//!
//! Dinero's formats are the same with other labels (Dinero IV's manual, "--informat"): `0`, `1` and `2` in din, where the
//! rest of a line is a comment; `r`, `w` and `i` in its extended form, where a comment may follow the size. Dinero counts
//! `3` and `m`, other accesses, as data that is read. `4`, `c` and `v` write caches back or empty them and touch nothing.
//! Must not know other formats.

use super::TouchKind;
use super::text::{TextState, hex, lines, size};

#[derive(Clone, Copy)]
enum Access {
    Touch(u64, u64, TouchKind),
    Fetch,
    Nothing,
}

/// True if the first line is one of the form.
pub(super) fn is_it(first: &str) -> bool {
    // Lines with `3` and `4` could be those of other formats.
    let first = lines(first).find(|line| !line.starts_with("3 ") && !line.starts_with("4 "));
    first.is_some_and(|line| access(line).is_some())
}

/// Processes one line; false if it is not of the form.
pub(super) fn decode(line: &[u8], into: &mut TextState) -> bool {
    let Ok(line) = std::str::from_utf8(line) else { return false };
    let line = line.split('#').next().unwrap_or_default().trim();
    if line.is_empty() {
        return true;
    }
    match access(line) {
        Some(Access::Fetch) => into.fetch(),
        Some(Access::Touch(address, bytes, kind)) => into.access(address, bytes, kind),
        Some(Access::Nothing) => {}
        None => return false,
    }
    true
}

fn access(line: &str) -> Option<Access> {
    let line = line.split('#').next()?;
    let mut words = line.split([' ', '\t', ',']).filter(|word| !word.is_empty());
    let (label, address) = (words.next()?.to_ascii_lowercase(), hex(words.next()?)?);
    let touch = |bytes, kind| Access::Touch(address, bytes, kind);
    let of = |bytes| match label.as_str() {
        "read" | "r" | "0" | "3" | "m" => Some(touch(bytes, TouchKind::Load)),
        "write" | "w" | "1" => Some(touch(bytes, TouchKind::Store)),
        "fetch" | "f" | "2" | "i" => Some(Access::Fetch),
        "4" | "c" | "v" => Some(Access::Nothing),
        _ => None,
    };
    let one = || of(size("1", address)?);
    let rest: Vec<&str> = words.collect();
    let is_din = matches!(label.as_bytes(), [b'0'..=b'4']) && !line.contains(',');
    match rest.as_slice() {
        [] => one(),
        [bytes] => match size(bytes, address) {
            Some(bytes) => of(bytes),
            // An operation on the whole cache has no size.
            None if is_din || matches!(of(1), Some(Access::Nothing)) => one(),
            None => None,
        },
        [..] if is_din => one(),
        [bytes, ..] if label.len() == 1 && !line.contains(',') => of(size(bytes, address)?),
        [..] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::TraceFormat;
    use crate::trace::text::{record, records_of};

    #[test]
    fn words_letters_and_dineros_labels_are_read() {
        // Three instructions; the first one touches nothing, the store crosses a border: lines 0x40 and 0x41.
        let text =
            "# by hand\nfetch 400000 4\n\nfetch 0x400004\nread 0x1000 8  # a comment\nF,400008\nW,103c,8\n";
        let wanted = vec![
            record(0x40, 2, TouchKind::Load),
            record(0x40, 1, TouchKind::Store),
            record(0x41, 0, TouchKind::Store),
        ];
        assert_eq!(records_of(text, TraceFormat::Plain), Ok((wanted, 3)));
        // Without lines of instructions each access is one.
        let wanted = vec![record(0x40, 1, TouchKind::Load), record(0x41, 1, TouchKind::Store)];
        assert_eq!(records_of("0 1000\r\n1 1040\r\n", TraceFormat::Plain), Ok((wanted.clone(), 2)));
        let din = "2 408ed4\n0 1000\n2 408ed8\n1 1040\n2 408edc\n";
        assert_eq!(records_of(din, TraceFormat::Plain), Ok((wanted.clone(), 3)));
        // With comments, another access, and a flush.
        let din =
            "3 1000 of an unknown kind\n2 408ed4 main()\n4 0 flush\n2 408ed8\n1 1040 4 bytes\n2 408edc\n";
        let other = vec![record(0x40, 1, TouchKind::Load), record(0x41, 2, TouchKind::Store)];
        assert_eq!(records_of(din, TraceFormat::Plain), Ok((other, 4)));
        let extended = "i 408ed4 4\ti1\nm 1000 4\td1\ni 408ed8 4\nw 1040 8 d2\nc 0 0\nv 0 0\ni 408edc 4\n";
        assert_eq!(records_of(extended, TraceFormat::Plain), Ok((wanted, 3)));
    }

    #[test]
    fn other_lines_are_refused() {
        for line in [
            "read",
            "read zz",
            "read 1000 0",
            "read 1000 4097",
            "read 1000 8 9",
            "r 1000 of",
            "r,1000,8,9",
            "5 1000",
            "0 zz",
            "modify 1000",
            "read ffffffffffffffff 8",
            "read 10000000000000000",
            "read -1",
            "read 1000 +8",
            "\u{1}",
        ] {
            let text = format!("read 1000\n{line}\n");
            assert_eq!(records_of(&text, TraceFormat::Plain), Err(line.to_owned()));
        }
    }
}
