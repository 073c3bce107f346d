//! The plain text form, for traces of any tool: `read|write|fetch ADDRESS [SIZE]`, a line each.
//!
//! The address is in hex, with `0x` or without; the size is in bytes and decimal, 1 where it is missing. `r`, `w` and `f`
//! are the same words; so are `0`, `1` and `2`, the labels of Dinero's din format. Words may be separated by commas, and
//! a `#` begins a comment. A `fetch` is an instruction, to which the accesses below it belong. Must not know other formats.

use super::TouchKind;
use super::text::{TextState, first_line, hex, size};

enum Access {
    Touch(u64, u64, TouchKind),
    Fetch,
}

/// True if the first line is one of the form.
pub(super) fn is_it(first: &str) -> bool {
    first_line(first).is_some_and(|line| access(line).is_some())
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
        None => return false,
    }
    true
}

fn access(line: &str) -> Option<Access> {
    let line = line.split('#').next()?;
    let mut words = line.split([' ', '\t', ',']).filter(|word| !word.is_empty());
    let (word, address) = (words.next()?, hex(words.next()?)?);
    let bytes = words.next().map_or_else(|| size("1", address), |text| size(text, address))?;
    if words.next().is_some() {
        return None;
    }
    match word.to_ascii_lowercase().as_str() {
        "read" | "r" | "0" => Some(Access::Touch(address, bytes, TouchKind::Load)),
        "write" | "w" | "1" => Some(Access::Touch(address, bytes, TouchKind::Store)),
        "fetch" | "f" | "2" => Some(Access::Fetch),
        _ => None,
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
        assert_eq!(records_of(din, TraceFormat::Plain), Ok((wanted, 3)));
    }

    #[test]
    fn other_lines_are_refused() {
        for line in [
            "read",
            "read zz",
            "read 1000 0",
            "read 1000 4097",
            "read 1000 8 9",
            "3 1000",
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
