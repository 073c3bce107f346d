//! Files of other tools in the place of a recording, by their content: what they are and what to do instead.
//!
//! A file that may be a damaged recording is not named here: its reader says where it is damaged. Must not know what a
//! recording contains.

use super::FORMAT;
use waykeeper_units::is_utf_16;

/// Bytes of a file that are looked at.
pub(super) const LOOK_BYTES: usize = 4096;

/// First bytes of a segment, a frame of zstd (RFC 8878, 3.1.1).
const SEGMENT: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// First bytes of files that are no text.
const MAGICS: &[(&[u8], &str)] = &[
    (b"PERFILE2", "data of perf record"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\xfd7zXZ\0", "an xz archive"),
    (b"PK\x03\x04", "a zip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xd4\xc3\xb2\xa1", "a pcap capture"),
    (b"\xa1\xb2\xc3\xd4", "a pcap capture"),
    (b"\x4d\x3c\xb2\xa1", "a pcap capture"),
    (b"\xa1\xb2\x3c\x4d", "a pcap capture"),
    (b"\x0a\x0d\x0d\x0a", "a pcapng capture"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\x7fELF", "a program"),
    (b"\x89WKT", "a memory trace (.wkt)"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF", "a PDF document"),
    (b"PAR1", "a Parquet table"),
];

/// A word of a text's first lines, and the tool that writes it. The first that is found counts.
const WORDS: &[(&str, &str)] = &[
    // intel-cmt-cat, pqos/monitor_csv.c: the header of `-u csv`, and of `-u text` (pqos/monitor_text.c).
    ("LLC[KB]", "pqos"),
    ("MBL[MB/s]", "pqos"),
    // pcm.cpp, pcm-memory.cpp and pcm-iio.cpp, the second of two header lines of `-csv`.
    ("AFREQ", "pcm"),
    ("L3MISS", "pcm"),
    ("Mem Read (MB/s)", "pcm-memory"),
    ("SKT0", "pcm-memory"),
    ("IB write", "pcm-iio"),
    ("PCIRdCur", "pcm-pcie"),
    // perf-stat(1).
    ("Performance counter stats for", "perf stat"),
    ("<not counted>", "perf stat"),
    ("<not supported>", "perf stat"),
    ("# HELP ", "Prometheus"),
    ("# TYPE ", "Prometheus"),
];

/// Events in the lines of `perf stat -x,`, which have no header.
const PERF_EVENTS: &[&str] = &[
    "cycles",
    "instructions",
    "task-clock",
    "cpu-clock",
    "cache-misses",
    "cache-references",
    "LLC-loads",
    "LLC-load-misses",
    "LLC-stores",
    "branches",
    "branch-misses",
    "context-switches",
    "page-faults",
    "power/",
    "uncore_",
    "msr/",
];

/// What a file is, by its first bytes, if it is surely no recording.
pub(super) fn name_of(first: &[u8]) -> Option<String> {
    if first.starts_with(SEGMENT) || SEGMENT.starts_with(first) {
        return None;
    }
    if let Some((_, name)) = MAGICS.iter().find(|(magic, _)| first.starts_with(magic)) {
        return Some((*name).to_owned());
    }
    if is_utf_16(first) {
        return Some("text in UTF-16".to_owned());
    }
    let text = text(first)?;
    let is_table = separator(text).is_some();
    let word = WORDS.iter().find(|(word, _)| text.contains(word)).map(|(_, tool)| *tool);
    Some(match word.or_else(|| is_of_perf(text).then_some("perf stat")) {
        Some(tool) if is_table => format!("a CSV of {tool}"),
        Some(tool) => format!("output of {tool}"),
        None if text.starts_with('{') && text.contains(FORMAT) => {
            "an unpacked recording (pack it again with zstd)".to_owned()
        }
        None if text.starts_with(['{', '[']) => "JSON".to_owned(),
        None if text.starts_with('<') => "XML".to_owned(),
        None if is_table => "a CSV".to_owned(),
        None => "text".to_owned(),
    })
}

/// The bytes as text; none if they are none. The last character may be cut.
fn text(first: &[u8]) -> Option<&str> {
    let text = match std::str::from_utf8(first) {
        Ok(text) => text,
        Err(why) if why.error_len().is_none() && first.len() == LOOK_BYTES => {
            std::str::from_utf8(&first[..why.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    let is_plain = text.chars().all(|letter| !letter.is_control() || letter.is_ascii_whitespace());
    (is_plain && !text.trim().is_empty()).then_some(text.trim_start_matches('\u{feff}'))
}

/// What separates the columns of the first two lines, if they are a table.
fn separator(text: &str) -> Option<char> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let (first, second) = (lines.next()?, lines.next().unwrap_or_default());
    [',', ';', '\t'].into_iter().find(|mark| {
        let count = |line: &str| line.matches(*mark).count();
        count(first) >= 2 && (second.is_empty() || count(second) >= 2)
    })
}

/// Lines like `1234,,cycles,...`, with a time before them or not.
fn is_of_perf(text: &str) -> bool {
    let Some(mark) = separator(text) else { return false };
    let line = text.lines().find(|line| !line.starts_with('#') && !line.is_empty()).unwrap_or_default();
    line.split(mark).any(|field| PERF_EVENTS.iter().any(|event| field.trim().starts_with(event)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_other_tools_is_called_by_its_name() {
        let pcm = "System,,,,Core0 (Socket 0),,\nDate,Time,EXEC,IPC,FREQ,AFREQ,L3MISS\n2026-11-22,08:00:00,0.1,1.2,1,1,3\n";
        for (text, name) in [
            (
                "Time,Core,IPC,LLC Misses,LLC[KB],MBL[MB/s],MBR[MB/s]\n2026-11-22 08:00:00,0,1.2,3k,4,5,6\n",
                "a CSV of pqos",
            ),
            ("TIME 2026-11-22 08:00:00\n    CORE   IPC   MISSES     LLC[KB]   MBL[MB/s]\n", "output of pqos"),
            (pcm, "a CSV of pcm"),
            (",,SKT0,SKT0\nDate,Time,Mem Read (MB/s),Mem Write (MB/s)\n", "a CSV of pcm-memory"),
            ("1234567,,cycles,1000,100.00,,\n", "a CSV of perf stat"),
            ("# started on Sun Nov 22\n\n     1.0001;99;;LLC-loads;100;100.00;;\n", "a CSV of perf stat"),
            ("\n Performance counter stats for 'ls':\n\n 1 msec task-clock\n", "output of perf stat"),
            ("# HELP waykeeper_up x\nwaykeeper_up 1\n", "output of Prometheus"),
            (
                "{\"format\":\"waykeeper-recording\",\"version\":2}\n",
                "an unpacked recording (pack it again with zstd)",
            ),
            ("{\"steps\": 3}\n", "JSON"),
            ("<records>\n", "XML"),
            ("a,b,c\n1,2,3\n", "a CSV"),
            ("\u{feff}a\tb\tc\n1\t2\t3\n", "a CSV"),
            ("name = \"x\"\nduration_s = 1\n", "text"),
            ("grüße\n", "text"),
        ] {
            assert_eq!(name_of(text.as_bytes()).as_deref(), Some(name), "{text}");
        }
        assert_eq!(name_of(b"PERFILE2\0\0\0").as_deref(), Some("data of perf record"));
        let wide: Vec<u8> = "a,b,c\n1,2,3".encode_utf16().flat_map(u16::to_be_bytes).collect();
        assert_eq!(name_of(&wide).as_deref(), Some("text in UTF-16"));
        // What may be a damaged recording, or nothing at all.
        for bytes in
            [b"".as_slice(), b"(", b"\x28\xb5\x2f\xfd", b"\x29\xb5\x2f\xfd\0\0\0", b" \n", &[0x5a, 0, 0x5a]]
        {
            assert_eq!(name_of(bytes), None, "{bytes:?}");
        }
        // A text that is cut inside a letter is a text.
        let long = format!("{}\u{e4}", "x".repeat(LOOK_BYTES - 1));
        assert_eq!(name_of(&long.as_bytes()[..LOOK_BYTES]).as_deref(), Some("text"));
    }
}
