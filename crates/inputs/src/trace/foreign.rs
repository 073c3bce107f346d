//! Traces of other tools that are not read: what they are, and the way from them to one that is.
//!
//! Knows how files begin; must not read them.

use super::text::{first_line, hex};
use waykeeper_units::is_utf_16;

/// What a file is, and what to do.
pub(super) type Foreign = (&'static str, &'static str);

const BY_HAND: &str = "write `read ADDRESS SIZE` and `write ADDRESS SIZE` lines of it, in the order of the program \
    (docs/programs.md), or record the program with `waykeeper trace record`";
const BEHIND_CACHES: &str = "it lists what reaches the memory behind other caches; record the program itself with \
    `waykeeper trace record`";

/// First bytes of files that are no text.
const MAGICS: &[(&[u8], Foreign)] = &[
    (
        b"gem5",
        (
            "a packet trace of gem5 (protobuf)",
            "decode it with gem5's util/decode_packet_trace.py, then `awk -F, '{printf \"%s %x %d\\n\", $1, $2, $3}'` makes \
             lines that are read",
        ),
    ),
    (
        b"PK\x03\x04",
        (
            "a zip archive, as DynamoRIO's drmemtrace writes them",
            "`drrun -t drmemtrace -tool view -indir DIR 2> FILE` prints it as text, which is read",
        ),
    ),
    (b"SIFT", ("a SIFT trace of Sniper", BY_HAND)),
    (
        b"PERFILE2",
        (
            "data of perf record",
            "perf takes samples of accesses; `waykeeper trace record` records all of a program",
        ),
    ),
];

const UTF_16: Foreign = (
    "text in UTF-16, as PowerShell's `>` writes it",
    "`iconv -f UTF-16 -t UTF-8 FILE` makes text that is read",
);

/// The tool that wrote a file, if it is known.
pub(super) fn of(first: &[u8], text: Option<&str>) -> Option<Foreign> {
    if is_utf_16(first) {
        return Some(UTF_16);
    }
    let by_magic = MAGICS.iter().find(|(magic, _)| first.starts_with(magic)).map(|(_, foreign)| *foreign);
    by_magic.or_else(|| of_text(first_line(text?)?))
}

fn of_text(line: &str) -> Option<Foreign> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let is_decimal = |word: &&str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let is_hex = |word: &str| word.starts_with("0x") && hex(word).is_some();
    let commas: Vec<&str> = line.split(',').collect();
    match (words.as_slice(), commas.as_slice()) {
        (_, ["r" | "w" | "u", address, bytes, _, ..]) if is_decimal(address) && is_decimal(bytes) => Some((
            "a decoded packet trace of gem5, with addresses in decimal",
            "`awk -F, '{printf \"%s %x %d\\n\", $1, $2, $3}'` makes lines that are read",
        )),
        ([tick, ..], _) if tick.ends_with(':') && line.contains(": system.") => {
            Some(("text of gem5 (--debug-flags)", BY_HAND))
        }
        ([address, "R" | "W"], _) if is_hex(address) => Some(("a memory trace of Ramulator", BEHIND_CACHES)),
        (["LD" | "ST" | "R" | "W", address], _) if is_hex(address) || address.contains(',') => {
            Some(("a memory trace of Ramulator", BEHIND_CACHES))
        }
        ([count, read] | [count, read, _], _) if is_decimal(count) && is_decimal(read) => {
            Some(("a CPU trace of Ramulator", BEHIND_CACHES))
        }
        ([tick, "read" | "write", address, ..], _) if tick.ends_with(':') && is_hex(address) => {
            Some(("a trace of DRAMSys", BEHIND_CACHES))
        }
        (["desc:" | "version:" | "events:" | "creator:", ..], _) => Some((
            "a profile of cachegrind or callgrind",
            "it has counts and no accesses; `waykeeper trace record` records them",
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_of_other_tools_are_called_by_their_names() {
        for (text, name) in [
            ("r,4096,64,0,1000\n", "a decoded packet trace of gem5"),
            ("  500: system.cpu: A0 T0 : 0x400078 @_start : mov\n", "text of gem5"),
            ("0x12345680 R\n", "a memory trace of Ramulator"),
            ("LD 0x12345680\n", "a memory trace of Ramulator"),
            ("R 0,1,2,3\n", "a memory trace of Ramulator"),
            ("35 20734016\n", "a CPU trace of Ramulator"),
            ("31:\tread\t0x400140\n", "a trace of DRAMSys"),
            ("# a comment\ndesc: I1 cache\n", "a profile of cachegrind"),
        ] {
            let found = of(text.as_bytes(), Some(text)).unwrap_or_else(|| panic!("{text}"));
            assert!(found.0.starts_with(name), "{text}: {}", found.0);
        }
        let wide: Vec<u8> = "read 1000".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(of(&wide, None).is_some_and(|(name, _)| name.starts_with("text in UTF-16")));
        assert!(of(b"gem5\x08\x01", None).is_some_and(|(name, _)| name.contains("protobuf")));
        assert_eq!(of(b"hello, world", Some("hello, world")), None);
    }
}
