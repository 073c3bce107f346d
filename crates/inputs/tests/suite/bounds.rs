//! Bounds of the readers: files that unpack to more than a run can use, and files without an end.

use crate::common;

use common::{file, frame, pcap, records, wkt};
use std::io::Write;
use waykeeper_inputs::{
    Capture, MAX_FLOWS, MAX_PACKETS, MAX_RECORDS, TouchKind, Trace, TraceInfo, TraceRecord, TraceWriter,
    Window,
};

/// Zstd's packing of `head` and then `part` so many times.
fn packed(head: &[u8], part: &[u8], times: usize) -> Vec<u8> {
    let mut packer = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
    packer.write_all(head).unwrap();
    for _ in 0..times {
        packer.write_all(part).unwrap();
    }
    packer.finish().unwrap()
}

fn refused(bytes: &[u8]) -> String {
    Capture::read(file(bytes).path()).unwrap_err().to_string()
}

#[test]
fn a_capture_has_a_bound_on_packets() {
    // A packet of 60 bytes of which none was captured takes 16; 2^16 of them are 1 MiB.
    let head = pcap(false, false, 1, &[]);
    let part = [[0; 12].as_slice(), &60_u32.to_le_bytes()].concat().repeat(1 << 16);
    let whole = packed(&head, &part, MAX_PACKETS >> 16);
    assert_eq!(Capture::read(file(&whole).path()).unwrap().packets.len(), MAX_PACKETS);
    let error = refused(&packed(&head, &part, (MAX_PACKETS >> 16) + 1));
    // The packet that is one too many begins behind the head of 24 bytes and 2^23 packets of 16.
    assert!(
        error.contains("byte 134217752: number of packets is larger, must be at most 8388608"),
        "{error}"
    );
}

#[test]
fn a_capture_has_a_bound_on_flows() {
    let of_flow = |flow: u32| {
        let mut bytes = frame(1, 0);
        // The source address.
        bytes[26..30].copy_from_slice(&flow.to_be_bytes());
        (0, 60, bytes)
    };
    let packets: Vec<_> = (0..=MAX_FLOWS as u32).map(of_flow).collect();
    let capture = Capture::read(file(&pcap(false, true, 1, &packets[..MAX_FLOWS])).path()).unwrap();
    assert_eq!(capture.flows.len(), MAX_FLOWS);
    let error = refused(&pcap(false, true, 1, &packets));
    assert!(error.contains("number of flows is larger, must be at most 1048576"), "{error}");
}

#[test]
fn a_device_is_no_capture_and_no_trace() {
    let path = std::path::Path::new("/dev/zero");
    let errors = [Capture::read(path).unwrap_err(), TraceInfo::read(path).unwrap_err()];
    for error in errors.map(|error| error.to_string()) {
        assert!(error.starts_with("cannot open /dev/zero: it is a device and may have no end"), "{error}");
    }
}

/// A trace of loads, one for each line.
fn loads(lines: impl Iterator<Item = u64>) -> tempfile::NamedTempFile {
    let mut writer = TraceWriter::new(Vec::new(), "loads", false).unwrap();
    for line in lines {
        writer.push(TraceRecord { line, instructions: 1, touches: 1, kind: TouchKind::Load }).unwrap();
    }
    file(&writer.finish(0).unwrap().1)
}

#[test]
fn a_trace_in_memory_has_a_bound_on_records_that_leave_the_l1() {
    let count = MAX_RECORDS as u64 + 1;
    // Two lines in turn: only the first touch of each leaves the L1.
    let hits = loads((0..count).map(|at| at % 2));
    let filtered = Trace::read_filtered(hits.path(), &Window::default(), MAX_RECORDS).unwrap();
    assert_eq!((filtered.records.len(), filtered.instructions()), (2, count));
    let error = Trace::read(hits.path(), &Window::default()).unwrap_err().to_string();
    assert!(error.contains("number of records is over 8388608, must be less; name a window"), "{error}");
    let few = Trace::read_filtered(hits.path(), &Window::default(), 1).unwrap_err().to_string();
    assert!(few.contains("number of records is over 1,"), "{few}");
}

#[test]
fn reading_through_the_l1_is_reading_and_then_filtering() {
    let input = file(&wkt(&records(5000), 9));
    for max_instructions in [None, Some(700)] {
        let window = Window { max_instructions, ..Window::default() };
        let later = Trace::read(input.path(), &window).unwrap().through_l1();
        assert_eq!(Trace::read_filtered(input.path(), &window, MAX_RECORDS).unwrap(), later);
    }
}

#[test]
fn a_summary_has_a_bound_on_pages() {
    // One line of each of 2^21 pages, of 64 lines each, and then a second line of the first page.
    let pages = 1u64 << 21;
    let lines = (0..pages).map(|page| page * 64).chain([1]);
    assert_eq!(TraceInfo::read(loads(lines).path()).unwrap().lines, pages + 1);
    let error = TraceInfo::read(loads((0..=pages).map(|page| page * 64)).path()).unwrap_err().to_string();
    assert!(error.contains("number of 4 KiB pages touched is larger, must be at most 2097152"), "{error}");
}
