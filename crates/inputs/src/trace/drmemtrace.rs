//! The text of DynamoRIO's view tool: `drrun -t drmemtrace -tool view -indir DIR`
//! (DynamoRIO, clients/drcachesim/tools/view.cpp).
//!
//! ```text
//! Output format:
//! <--record#-> <--instr#->: <Wrkld.Tid> <record details>
//! ------------------------------------------------------------
//!          16           1:    W0.T3264 ifetch       3 byte(s) @ 0x00007f6fdd3ec360 48 89 e7             mov    %rsp -> %rdi
//!          17           1:    W0.T3264 write        8 byte(s) @ 0x00007ffe1ce3bff8 by PC 0x00007f6fdd3ec360
//! ```
//!
//! The thread is `W0.T3264` since the tool knows workloads, `3264` before, and `T3264` with one number before the colon in
//! still older versions. All threads are read as they are listed.
//! A repeat of a string instruction (`non-fetched`) is no further instruction; prefetches and flushes touch nothing. Must
//! not know other formats.

use super::TouchKind;
use super::text::{TextState, hex, size};

/// The first line of the tool's own.
const HEAD: &str = "Output format:";

/// True if one of the first lines is the tool's.
pub(super) fn is_it(first: &str) -> bool {
    // The traced program may have printed lines of its own before. The last line may be cut.
    has_head(first) || first.lines().next().is_some_and(|line| details(line).is_some_and(is_record))
}

/// True if the first lines have the head, before which lines are another program's.
pub(super) fn has_head(first: &str) -> bool {
    first.lines().any(|line| line.trim() == HEAD)
}

/// Processes one line; false if the tool does not print such lines.
pub(super) fn decode(line: &[u8], into: &mut TextState) -> bool {
    let Ok(line) = std::str::from_utf8(line) else { return into.is_before_head };
    let line = line.trim();
    if into.is_before_head {
        into.is_before_head = line != HEAD;
        return true;
    }
    let is_frame = line.is_empty()
        || line.starts_with("<--")
        || line.starts_with("<record#>")
        || line.bytes().all(|byte| byte == b'-')
        || line == HEAD
        || line == "View tool results:"
        || is_total(line);
    if is_frame {
        return true;
    }
    let Some(details) = details(line) else { return false };
    if !is_record(details) {
        return false;
    }
    let name = details.split_ascii_whitespace().next().unwrap_or_default();
    let kind = match name {
        "ifetch" => None,
        "read" => Some(TouchKind::Load),
        "write" => Some(TouchKind::Store),
        _ => return true,
    };
    let Some((address, bytes)) = place(details) else { return false };
    match kind {
        None => into.fetch(),
        Some(kind) => into.access(address, bytes, kind),
    }
    true
}

/// What a line of a record says, behind the numbers of record, instruction and thread.
fn details(line: &str) -> Option<&str> {
    let (numbers, rest) = line.split_once(':')?;
    let mut words = numbers.split_ascii_whitespace();
    let has_numbers = (1..=2).contains(&words.clone().count()) && words.all(is_number);
    let (thread, details) = rest.trim_start().split_once(' ')?;
    (has_numbers && is_thread(thread)).then_some(details.trim())
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// `W0.T3264`, `3264` or `T3264`. A core without a thread has a negative one.
fn is_thread(word: &str) -> bool {
    let is_id = |word: &str| is_number(word.strip_prefix('-').unwrap_or(word));
    match word.strip_prefix('W').and_then(|rest| rest.split_once(".T")) {
        Some((workload, thread)) => is_id(workload) && is_id(thread),
        None => is_number(word.strip_prefix('T').unwrap_or(word)),
    }
}

/// True for details that the tool prints: a marker, an access, or the end of a long instruction's bytes.
fn is_record(details: &str) -> bool {
    let is_byte = |word: &str| word.len() == 2 && word.bytes().all(|digit| digit.is_ascii_hexdigit());
    (details.starts_with('<') && details.ends_with('>'))
        || place(details).is_some()
        || (!details.is_empty() && details.split_ascii_whitespace().all(is_byte))
}

/// `NAME N byte(s) @ 0xADDRESS ...`: the address and the bytes.
fn place(details: &str) -> Option<(u64, u64)> {
    let (before, behind) = details.split_once(" byte(s) @ ")?;
    let mut words = before.split_ascii_whitespace();
    words.next()?;
    // The name of a record may have two words.
    let text = words.last()?;
    let address =
        behind.split_ascii_whitespace().next().filter(|text| text.starts_with("0x")).and_then(hex)?;
    Some((address, size(text, address)?))
}

/// `12345 : total instructions`, at the end.
fn is_total(line: &str) -> bool {
    let Some((number, what)) = line.split_once(" : ") else { return false };
    number.trim().bytes().all(|byte| byte.is_ascii_digit()) && what.trim_start().starts_with("total ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::TraceFormat;
    use crate::trace::text::{record, records_of};

    #[test]
    fn all_forms_of_the_tool_are_read() {
        let new = "\
Hello from the program: 1
Output format:
<--record#-> <--instr#->: <---tid---> <record details>
------------------------------------------------------------
           1           0:     3264 <marker: version 6>
           2           1:     3264 ifetch       3 byte(s) @ 0x0000000000401000 48 89 e7             mov    %rsp -> %rdi
           3           1:     3264 write        8 byte(s) @ 0x000000000000203c by PC 0x0000000000401000
------------------------------------------------------------
           4           2:     3265 ifetch      10 byte(s) @ 0x0000000000401003 48 b8 00 00 00 00 00 mov    $1 -> %rax
           4           2:     3265                                             00 00 00
           5           2:     3265 pref-r-L1    1 byte(s) @ 0x0000000000009000 by PC 0x0000000000401003
           6           2:     3265 read         4 byte(s) @ 0x0000000000001000 by PC 0x0000000000401003
           7           2:     3265 non-fetched  2 byte(s) @ 0x0000000000401003
View tool results:
              2 : total instructions
";
        let wanted = vec![
            record(0x80, 1, TouchKind::Store),
            record(0x81, 0, TouchKind::Store),
            record(0x40, 1, TouchKind::Load),
        ];
        assert_eq!(records_of(new, TraceFormat::DrMemTrace), Ok((wanted.clone(), 2)));
        // The same with workloads, as the tool prints it now.
        let with_workloads = new
            .replace("<---tid--->", "<Wrkld.Tid>")
            .replace("     3264 ", "    W0.T3264 ")
            .replace("     3265 ", "    W1.T3265 ")
            .replace("version 6>", "W0.T3264 on core 2>");
        assert!(with_workloads.contains("W1.T3265 read"));
        assert_eq!(records_of(&with_workloads, TraceFormat::DrMemTrace), Ok((wanted, 2)));
        let old = "        1: T17 <marker: version 4>\n        2: T17 ifetch       4 byte(s) @ 0x0000000000401000 90\n        \
                   3: T17 read         8 byte(s) @ 0x0000000000001000 by PC 0x0000000000401000\n";
        let wanted = vec![record(0x40, 1, TouchKind::Load)];
        assert_eq!(records_of(old, TraceFormat::DrMemTrace), Ok((wanted, 1)));
    }

    #[test]
    fn other_lines_are_refused() {
        for line in [
            "2 1: 3264 read 8 byte(s) @ 1000",
            "2 1: 3264 read byte(s) @ 0x1000",
            "2 1: 3264 read 0 byte(s) @ 0x1000",
            "2 1: x read 8 byte(s) @ 0x1000",
            "2 1: W0.T read 8 byte(s) @ 0x1000",
            "2 1: W0 read 8 byte(s) @ 0x1000",
            "2 1 1: 3264 read 8 byte(s) @ 0x1000",
            "2 1: 3264 <marker",
            "what",
        ] {
            let text = format!("Output format:\n{line}\n");
            assert_eq!(records_of(&text, TraceFormat::DrMemTrace), Err(line.to_owned()));
        }
    }
}
