//! Traces: the records of each format, agreement of writing and reading, and the errors for bad files.

use crate::common;

use common::{champsim, file, lackey, records, wkt};
use proptest::prelude::*;
use std::io::Write;
use waykeeper_inputs::{
    ConvertOptions, LINE_BYTES, TouchKind, Trace, TraceFormat, TraceInfo, TraceReader, TraceRecord, Window,
    convert,
};

fn refused(bytes: &[u8]) -> String {
    let file = file(bytes);
    let error = match TraceReader::open(file.path()) {
        Err(error) => error,
        Ok(mut reader) => reader.find_map(Result::err).expect("the file should be refused"),
    };
    assert_eq!(error.path(), file.path());
    let text = error.to_string();
    assert!(text.contains(&file.path().display().to_string()), "{text} must name the file");
    text
}

fn read(bytes: &[u8]) -> Trace {
    Trace::read(file(bytes).path(), &Window::default()).unwrap()
}

#[test]
fn wkt_comes_back_across_blocks() {
    // Blocks hold 2^18 records: this is one full block and a part.
    let records = records(300_000);
    let trace = read(&wkt(&records, 17));
    assert!(trace.records == records, "300000 records are too many to print");
    assert_eq!((trace.tail_instructions, trace.source.as_str(), trace.l1_filtered), (17, "a test", false));
}

/// Checked byte for byte: a change here changes the format and needs a new version.
#[test]
fn the_smallest_wkt_file_is_as_documented() {
    let record = TraceRecord { line: 3, instructions: 5, touches: 2, kind: TouchKind::Store };
    let bytes = wkt(&[record], 1);
    assert_eq!(bytes[..8], *b"\x89WKT\r\n\x1a\n");
    // Version 1, no flags, 64-byte lines, 6 bytes of source.
    assert_eq!(bytes[8..22], [&[1, 0, 0, 0, 64, 0, 6, 0], b"a test".as_slice()].concat());
    let block = &bytes[26..];
    // One record; heads: 5 << 2 | merged | store = 0x17, then 2 touches; lines: zigzag(3) = 6.
    assert_eq!(block[..13], [b'B', 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]);
    let packed = u32::from_le_bytes(block[13..17].try_into().unwrap()) as usize;
    assert_eq!(zstd::decode_all(&block[21..21 + packed]).unwrap(), [0x17, 2, 6]);
    // One record, 5 + 1 instructions, no loads, 2 stores.
    let end = &block[21 + packed..];
    assert_eq!((end.len(), end[0]), (37, b'E'));
    assert_eq!([1, 9, 17, 25].map(|at| end[at]), [1, 6, 0, 2]);
}

#[test]
fn lackey_and_champsim_are_recognised_and_counted() {
    let info = TraceInfo::read(file(&lackey()).path()).unwrap();
    assert_eq!((info.format, info.summary.instructions), (TraceFormat::Lackey, 300));
    // Of 300: 75 loads of 8 bytes every 96 (24 * 4) from a line's start, of which none crosses a line
    // (offsets 0 and 32); 75 stores of 16 bytes at 8 + 32k, of which none crosses (offsets 8, 40); 75 modifies.
    assert_eq!((info.summary.loads, info.summary.stores), (75, 150));
    assert_eq!(info.store_ratio, 150.0 / 225.0);

    let info = TraceInfo::read(file(&champsim()).path()).unwrap();
    // 200 instructions load, every third (67) stores as well; loads walk 200 * 32 bytes = 100 lines from a
    // line's start, stores 8 bytes a step up to 198 * 8 + 8: 25 lines.
    assert_eq!((info.format, info.summary.instructions), (TraceFormat::ChampSim, 200));
    assert_eq!((info.summary.loads, info.summary.stores), (200, 67));
    assert_eq!((info.lines, info.lines_written, info.footprint_bytes), (125, 25, 125 * LINE_BYTES));
}

/// The same five instructions as each tool writes them: 2 loads, 1 store over a border, 2 without accesses.
#[test]
fn texts_of_other_tools_are_read() {
    let din = common::DIN.as_bytes();
    let lackey =
        b"I  400000,4\nI  400004,4\n L 1000,8\nI  400008,4\n S 103c,8\nI  40000c,4\n L 2000,8\nI  400010,4\n";
    let of_lackey = read(lackey);
    for (text, format) in [(din, TraceFormat::Plain), (common::VIEW.as_bytes(), TraceFormat::DrMemTrace)] {
        let info = TraceInfo::read(file(text).path()).unwrap();
        assert_eq!((info.format, info.counts_accesses_only), (format, false));
        let trace = read(text);
        assert_eq!(
            (&trace.records, trace.tail_instructions),
            (&of_lackey.records, of_lackey.tail_instructions)
        );
    }
    // Pinatrace lists accesses only: three instructions are known.
    let info = TraceInfo::read(file(common::PIN.as_bytes()).path()).unwrap();
    assert_eq!(
        (info.format, info.counts_accesses_only, info.summary.instructions),
        (TraceFormat::Pin, true, 3)
    );
    assert_eq!((info.summary.loads, info.summary.stores), (2, 2));
    let lines =
        |trace: Trace| trace.records.iter().map(|record| (record.line, record.kind)).collect::<Vec<_>>();
    assert_eq!(lines(read(common::PIN.as_bytes())), lines(of_lackey));
    // A person may leave out the last end of line.
    assert_eq!(read(b"read 1000 8").records.len(), 1);
}

/// Windows puts a mark before text, ends lines with a carriage return, or writes UTF-16.
#[test]
fn texts_from_windows_are_read_or_called_by_their_name() {
    let marked = |text: &str| [b"\xef\xbb\xbf", text.replace('\n', "\r\n").as_bytes()].concat();
    let lackey = String::from_utf8(lackey()).unwrap();
    for text in [common::DIN, common::VIEW, common::PIN, &lackey] {
        assert_eq!(read(&marked(text)), read(text.as_bytes()), "{text}");
    }
    // A record of ChampSim may begin with the same bytes.
    let mut records = champsim();
    let wanted = read(&records);
    records[..3].copy_from_slice(b"\xef\xbb\xbf");
    assert_eq!(read(&records), wanted);
    records[..2].copy_from_slice(b"\xff\xfe");
    assert_eq!(read(&records), wanted);
    let wide: Vec<u8> =
        [0xfeff_u16].into_iter().chain(lackey.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    let text = refused(&wide);
    assert!(text.contains("is text in UTF-16") && text.contains("`iconv -f UTF-16 -t UTF-8 FILE`"), "{text}");
    assert!(refused(&marked("r,4096,64,0,1000\n")).contains("a decoded packet trace of gem5"));
}

#[test]
fn packed_traces_read_as_plain_ones() {
    let plain = champsim();
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 6);
    xz.write_all(&plain).unwrap();
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gz.write_all(&plain).unwrap();
    let wanted = read(&plain);
    for packed in [xz.finish().unwrap(), gz.finish().unwrap(), zstd::encode_all(plain.as_slice(), 3).unwrap()]
    {
        assert_eq!(read(&packed), wanted);
        assert!(refused(&packed[..packed.len() - 9]).contains("beyond byte"));
    }
}

#[test]
fn conversion_keeps_records_and_puts_only_whole_files_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.wkt");
    for bytes in [lackey(), champsim(), wkt(&records(1000), 3)] {
        let input = file(&bytes);
        let info = convert(input.path(), &output, &ConvertOptions::default()).unwrap();
        let (before, after) = (read(&bytes), Trace::read(&output, &Window::default()).unwrap());
        assert_eq!((&after.records, after.tail_instructions), (&before.records, before.tail_instructions));
        assert_eq!(info, TraceInfo::read(&output).unwrap());
        assert_eq!(info.summary.instructions, before.instructions());
    }
    let was = std::fs::read(&output).unwrap();
    let bad = file(&lackey()[..2000]);
    convert(bad.path(), &output, &ConvertOptions::default()).unwrap_err();
    let window = Window { skip_instructions: 1 << 40, ..Window::default() };
    let error = convert(file(&lackey()).path(), &output, &ConvertOptions { window, ..Default::default() });
    assert!(error.unwrap_err().to_string().contains("holds no memory accesses in the window"));
    assert_eq!(std::fs::read(&output).unwrap(), was, "a failed conversion must leave the old file");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "and no part of a new one");
}

#[test]
fn conversion_filters_once_and_cuts() {
    let folder = tempfile::tempdir().unwrap();
    let (once, twice) = (folder.path().join("once.wkt"), folder.path().join("twice.wkt"));
    let input = file(&wkt(&records(5000), 3));
    let options = ConvertOptions { l1_filter: true, source: Some("redis".to_owned()), ..Default::default() };
    let info = convert(input.path(), &once, &options).unwrap();
    assert!(info.l1_filtered && info.source == "redis");
    convert(&once, &twice, &options).unwrap();
    let raw = Trace::read(input.path(), &Window::default()).unwrap();
    let filtered = Trace::read(&once, &Window::default()).unwrap();
    assert_eq!(filtered, Trace::read(&twice, &Window::default()).unwrap());
    assert_eq!(filtered.instructions(), raw.instructions());
    assert_eq!(filtered.records, raw.through_l1().records);

    let window = Window { skip_instructions: 1000, max_instructions: Some(2000), max_records: None };
    let info = convert(input.path(), &twice, &ConvertOptions { window, ..Default::default() }).unwrap();
    assert_eq!(info.summary.instructions, 2000);
    assert_eq!(
        Trace::read(&twice, &Window::default()).unwrap().records,
        Trace::read(input.path(), &window).unwrap().records
    );
}

#[test]
fn other_files_are_called_by_their_names() {
    assert!(refused(b"").contains("is empty; wanted a memory trace"));
    assert!(refused(b"\x89PNG\r\n\x1a\n0123456789").contains("starts with the magic of a PNG image"));
    assert!(
        refused(&common::pcap(false, true, 1, &common::packets())).contains("the magic of a pcap capture")
    );
    assert!(refused(b"hello, world").contains("starts with the text `hello, world`"));
    assert!(refused(&[0x5a; 640]).contains("starts with the text `ZZZZ"));
    let gem5 = refused(b"gem5\x0a\x08\x01\x02");
    assert!(
        gem5.contains("is a packet trace of gem5 (protobuf), which is not read; decode it with"),
        "{gem5}"
    );
    assert!(
        refused(b"0x12345680 R\n0x123456c0 W\n")
            .contains("is a memory trace of Ramulator, which is not read")
    );
    assert!(refused(b"PK\x03\x04zip").contains("`drrun -t drmemtrace -tool view"));
    let error = TraceReader::open(std::path::Path::new("/nowhere/t.wkt")).err().unwrap().to_string();
    assert!(error.contains("cannot open /nowhere/t.wkt"), "{error}");
}

#[test]
fn bad_lines_and_records_are_named_with_their_place() {
    assert!(
        refused(b"read 1000 8\nraed 1040 8\n")
            .contains("line 2: `raed 1040 8` is no plain trace line; wanted `read")
    );
    assert!(refused(b"0x400000: R 0x1000\n0x400004: R 0x10").contains("cut short: the last line at byte 19"));
    assert!(
        refused(b"0x400000: R 0x1000\n0x400004: Q 0x1000\n")
            .contains("line 2: `0x400004: Q 0x1000` is no pinatrace")
    );
    let view = refused(b"Output format:\n 1 0: 7 <marker: version 6>\n 2 1: 7 ifetch ? byte(s) @ 0x1\n");
    assert!(view.contains("line 3: ` 2 1: 7 ifetch ?") && view.contains("is no drmemtrace line"), "{view}");
    assert!(refused(b"I  400000,4\n L zz,8\n").contains("line 2: ` L zz,8` is no lackey line"));
    assert!(refused(b"I  400000,4\n L 123,8").contains("cut short: the last line at byte 12"));
    assert!(refused(b"==1== Lackey\n").contains("holds no memory accesses"));
    assert!(refused(&[b"I  400000,4\n".as_slice(), &[b'x'; 100_000]].concat()).contains("line 2: `xxxx"));

    let good = champsim();
    assert!(
        refused(&good[..good.len() - 1])
            .contains("64-byte ChampSim record at byte 12736 needs 64 bytes and 63")
    );
    let mut bad = good.clone();
    bad[64 * 10 + 8] = 9;
    assert!(refused(&bad).contains("byte 648: is_branch is 0x9"));
}

#[test]
fn a_damaged_wkt_is_reported_with_the_offset() {
    let good = wkt(&records(1000), 0);
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        assert_ne!(bytes[at], byte);
        bytes[at] = byte;
        refused(&bytes)
    };
    assert!(with(8, 2).contains("byte 8: format version is 2, must be 1; use a newer waykeeper"));
    assert!(with(17, b'X').contains("byte 0: the header has checksum"));
    assert!(with(26, b'C').contains("byte 26: block tag is 0x43"));
    assert!(with(30, 0xff).contains("byte 26: records in the block is 4278191080, must be 1 to 262144"));
    assert!(with(60, good[60] ^ 1).contains("byte 26: the block has checksum"));
    let end = good.len() - 37;
    assert!(with(end + 3, 9).contains(&format!("byte {end}: the end block has checksum")));
    assert!(
        refused(&good[..good.len() - 1])
            .contains(&format!("the end block at byte {end} needs 37 bytes and 36"))
    );
    assert!(refused(&good[..end]).contains(&format!("the end block at byte {end} needs 1 bytes and 0")));
    assert!(
        refused(&[good.as_slice(), b"x"].concat())
            .contains("data behind the end block is there, must be absent")
    );
    assert!(refused(&wkt(&[], 5)).contains("holds no memory accesses"));
}

fn record() -> impl Strategy<Value = TraceRecord> {
    let number = |bits: u32| {
        (any::<u64>(), 0..bits).prop_map(move |(value, less)| (value & ((1 << bits) - 1)) >> less)
    };
    (number(58), number(50), number(32), any::<bool>()).prop_map(|(line, instructions, touches, store)| {
        TraceRecord {
            line,
            instructions,
            touches: (touches as u32).max(1),
            kind: if store { TouchKind::Store } else { TouchKind::Load },
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn any_records_come_back(records in prop::collection::vec(record(), 1..200), tail in 0..1000u64) {
        let trace = read(&wkt(&records, tail));
        prop_assert_eq!(trace.records, records);
        prop_assert_eq!(trace.tail_instructions, tail);
    }

    /// Two adjacent windows hold the same records as one window over both.
    #[test]
    fn windows_split_a_trace(records in prop::collection::vec(record(), 1..50), at in 0..10_000u64) {
        let small: Vec<_> = records.iter().map(|r| TraceRecord { instructions: r.instructions % 1000, ..*r }).collect();
        let file = file(&wkt(&small, 0));
        let read = |skip_instructions, max_instructions| {
            Trace::read(file.path(), &Window { skip_instructions, max_instructions, max_records: None })
        };
        let total: u64 = small.iter().map(|r| r.instructions).sum();
        let (first, second) = (read(0, Some(at)), read(at, None));
        let records = |trace: &Result<Trace, _>| trace.as_ref().map_or(0, |trace: &Trace| trace.records.len());
        prop_assert_eq!(records(&first) + records(&second), small.len());
        if let (Ok(first), Ok(second)) = (first, second) {
            prop_assert_eq!(first.instructions(), at.min(total));
            prop_assert_eq!(second.instructions(), total - at);
        }
    }
}
