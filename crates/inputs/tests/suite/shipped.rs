//! The shipped inputs have the contents that `inputs/README.md` states.

use std::path::PathBuf;
use waykeeper_inputs::{Capture, IndirectionTable, LinkType, TouchKind, Trace, TraceInfo, Window};

fn shipped(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../inputs").join(name)
}

#[test]
fn the_capture_is_redis_traffic_to_the_server() {
    let capture = Capture::read(&shipped("redis-benchmark.pcap")).unwrap();
    let info = capture.info();
    assert_eq!((info.packets, info.flows, info.without_flow, info.bytes), (12_000, 52, 0, 3_884_516));
    assert_eq!((info.links.as_slice(), info.max_bytes), ([LinkType::Ethernet].as_slice(), 1111));
    assert!(capture.flows.iter().all(|flow| flow.ports.is_some_and(|(_, destination)| destination == 6379)));
    let table = IndirectionTable::equal(4);
    let mut queues = [0; 4];
    capture.packets.iter().for_each(|packet| queues[usize::from(table.queue(packet.hash))] += 1);
    assert_eq!(queues, [2716, 3286, 3091, 2907]);
}

#[test]
fn the_trace_is_25_million_instructions_of_redis() {
    let path = shipped("redis-server.wkt");
    let info = TraceInfo::read(&path).unwrap();
    assert!(info.source.starts_with("redis-server "));
    assert_eq!((info.summary.instructions, info.summary.records), (25_000_000, 8_308_393));
    assert_eq!((info.summary.loads, info.summary.stores, info.lines), (6_871_919, 4_275_311, 46_826));
    let filtered = Trace::read(&path, &Window::default()).unwrap().through_l1();
    let stores = filtered.records.iter().filter(|record| record.kind == TouchKind::Store).count();
    assert_eq!((filtered.records.len(), stores, filtered.instructions()), (761_658, 401_887, 25_000_000));
}
