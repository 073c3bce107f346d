//! Captures: the content read from each kind of file, and the errors for bad files.

use crate::common;

use common::{file, frame, packets, pcap, pcapng};
use waykeeper_inputs::{Capture, CaptureFormat, FlowKey, LinkType, MICROSOFT_KEY};

fn refused(bytes: &[u8]) -> String {
    let file = file(bytes);
    let error = Capture::read(file.path()).unwrap_err();
    assert_eq!(error.path(), file.path());
    let text = error.to_string();
    assert!(text.contains(&file.path().display().to_string()), "{text} must name the file");
    text
}

#[test]
fn every_kind_of_file_gives_the_same_capture() {
    let packets = packets();
    let nanos = |ns| ns;
    // 2^-30 s: 1.5 us is 1610.6 units, so to the unit below: 1499.9 ns at worst.
    let binary = |ns: u64| (u128::from(ns) * (1 << 30) / 1_000_000_000) as u64;
    let files = [
        (pcap(false, true, 1, &packets), CaptureFormat::Pcap, 1),
        (pcap(true, true, 1, &packets), CaptureFormat::Pcap, 1),
        (pcap(false, false, 1, &packets), CaptureFormat::Pcap, 1000),
        (pcap(true, false, 1, &packets), CaptureFormat::Pcap, 1000),
        (pcapng(false, 9, nanos, &packets), CaptureFormat::Pcapng, 1),
        (pcapng(true, 9, nanos, &packets), CaptureFormat::Pcapng, 1),
        (pcapng(true, 6, |ns| ns / 1000, &packets), CaptureFormat::Pcapng, 1000),
        (pcapng(false, 0x80 | 30, binary, &packets), CaptureFormat::Pcapng, 3),
    ];
    for (bytes, format, error_ns) in files {
        let capture = Capture::read(file(&bytes).path()).unwrap();
        assert_eq!((capture.format, capture.links.as_slice()), (format, [LinkType::Ethernet].as_slice()));
        assert_eq!(capture.packets.iter().map(|p| p.bytes).collect::<Vec<_>>(), [60, 1514, 60]);
        assert_eq!(capture.packets.iter().map(|p| p.flow).collect::<Vec<_>>(), [Some(0), Some(1), Some(0)]);
        assert_eq!(capture.packets.iter().map(|p| p.dscp).collect::<Vec<_>>(), [Some(46), Some(0), Some(46)]);
        for (packet, wanted) in capture.packets.iter().zip([0, 1500, 1_001_500u64]) {
            assert!(packet.at_ns.unsigned_abs().abs_diff(wanted) < error_ns, "{} for {wanted}", packet.at_ns);
        }
        let key = FlowKey {
            source: "10.0.0.2".parse().unwrap(),
            destination: "10.0.1.1".parse().unwrap(),
            protocol: 17,
            ports: Some((1000, 53)),
        };
        assert_eq!(capture.flows[1], key);
        assert_eq!(capture.packets[1].hash, key.rss_hash(&MICROSOFT_KEY));
        let info = capture.info();
        assert_eq!((info.packets, info.bytes, info.flows, info.without_flow), (3, 1634, 2, 0));
    }
}

#[test]
fn a_packed_capture_reads_as_the_plain_one() {
    let plain = pcap(false, true, 1, &packets());
    let packed = zstd::encode_all(plain.as_slice(), 3).unwrap();
    assert_eq!(Capture::read(file(&plain).path()).unwrap(), Capture::read(file(&packed).path()).unwrap());
}

#[test]
fn packets_are_sorted_by_their_times_and_the_earliest_has_time_0() {
    let stamped = [5_000, 9_000, 4_000, 7_000, 10_000].map(|ns| (ns, 60, frame(1, 0)));
    for bytes in [pcap(false, true, 1, &stamped), pcapng(false, 9, |ns| ns, &stamped)] {
        let capture = Capture::read(file(&bytes).path()).unwrap();
        assert_eq!(capture.packets.iter().map(|p| p.at_ns).collect::<Vec<_>>(), [0, 1000, 3000, 5000, 6000]);
        // 4000 comes after 9000; 7000 and 10000 come after an earlier one.
        assert_eq!(capture.oddities.reordered, 1);
        assert_eq!(capture.info().duration_ns, 6000);
    }
}

#[test]
fn a_packet_of_which_more_was_captured_than_it_had_counts_with_what_was_captured() {
    // 72 bytes captured of 71, of 0, and of 90.
    let long = || [frame(1, 0), vec![0; 30]].concat();
    let packets = [(0, 71, long()), (1000, 0, long()), (2000, 90, long())];
    for bytes in [pcap(false, true, 1, &packets), pcapng(false, 9, |ns| ns, &packets)] {
        let capture = Capture::read(file(&bytes).path()).unwrap();
        assert_eq!(capture.packets.iter().map(|packet| packet.bytes).collect::<Vec<_>>(), [72, 72, 90]);
        assert_eq!(capture.oddities.longer_than_said, 2);
    }
}

#[test]
fn what_is_not_ip_has_hash_zero() {
    let arp = [vec![0; 12], vec![8, 6, 0, 1]].concat();
    let capture = Capture::read(file(&pcap(false, true, 1, &[(0, 60, arp)])).path()).unwrap();
    assert_eq!((capture.packets[0].hash, capture.packets[0].flow), (0, None));
    assert_eq!(capture.info().without_flow, 1);
}

#[test]
fn other_files_are_called_by_their_names() {
    assert!(refused(b"").contains("is empty; wanted a pcap or pcapng capture"));
    assert!(refused(b"\x89PNG\r\n\x1a\n0123456789").contains("starts with the magic of a PNG image"));
    assert!(refused(&common::wkt(&common::records(3), 0)).contains("a .wkt memory trace"));
    assert!(refused(b"\x01\x02\x03").contains("starts with 01 02 03"));
    assert!(refused(&[0u8; 4096]).contains("starts with 00 00 00 00 00 00 00 00"));
}

#[test]
fn the_whole_packets_of_a_cut_file_are_read() {
    let (classic, next) = (pcap(false, true, 1, &packets()), pcapng(false, 9, |ns| ns, &packets()));
    // Header 24, packet 16 + 42: the second packet starts at 82. Section 28, interface 32, unknown 16: packets from 76, each
    // 32 + 44.
    for (whole, first_ends) in [(classic, 82), (next, 152)] {
        for length in [first_ends + 1, first_ends + 8, first_ends + 18] {
            let capture = Capture::read(file(&whole[..length]).path()).unwrap();
            assert!(capture.packets.len() == 1 && capture.oddities.is_cut_off, "{length}");
        }
        for length in [first_ends, whole.len()] {
            let capture = Capture::read(file(&whole[..length]).path()).unwrap();
            assert!(!capture.oddities.is_cut_off, "{length}");
        }
    }
}

#[test]
fn a_file_that_is_cut_before_its_first_packet_ends_is_refused_with_the_offset_and_the_gap() {
    let whole = pcap(false, true, 1, &packets());
    assert!(
        refused(&whole[..50]).contains("cut short: the packet at byte 24 needs 58 bytes and 26 are left")
    );
    assert!(refused(&whole[..32]).contains("the packet header at byte 24 needs 16 bytes and 8 are left"));
    assert!(refused(&whole[..20]).contains("the file header at byte 0 needs 24 bytes and 20 are left"));
    assert!(refused(&whole[..24]).contains("holds no packets"));
    let whole = pcapng(false, 9, |ns| ns, &packets());
    assert!(refused(&whole[..100]).contains("the block at byte 76 needs 76 bytes and 24 are left"));
    assert!(refused(&whole[..76]).contains("holds no packets"));
}

#[test]
fn impossible_values_are_named() {
    let packet = || (0u64, 60u32, frame(1, 0));
    assert!(
        refused(&pcap(false, true, 147, &[packet()]))
            .contains("byte 20: link type is 147, must be 1 (Ethernet)")
    );
    let mut huge = pcap(false, true, 1, &[packet()]);
    huge[32..40].copy_from_slice(&[0xff; 8]);
    assert!(refused(&huge).contains("the packet's original length is 4294967295, must be at most 16777216"));
    let mut late = pcap(false, false, 1, &[packet()]);
    late[28..32].copy_from_slice(&1_000_000_000u32.to_le_bytes());
    assert!(
        refused(&late)
            .contains("byte 28: fraction of the packet's second is 1000000000, must be below 1000000000")
    );
    let mut old = pcap(false, false, 1, &[packet()]);
    old[4] = 1;
    assert!(refused(&old).contains("byte 4: pcap version is 1, must be 2"));

    let good = pcapng(false, 9, |ns| ns, &[packet()]);
    let with = |at: usize, value: u32| {
        let mut bytes = good.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        refused(&bytes)
    };
    assert!(with(8, 5).contains("byte 8: the section's byte-order magic is 0x05000000"));
    assert!(with(32, 33).contains("byte 32: block length is 33, must be a multiple of 4"));
    assert!(with(32, u32::MAX - 3).contains("block length is 4294967292"));
    assert!(with(84, 9).contains("byte 84: the packet's interface is 9, must be one of the 1 described"));
    assert!(with(96, 4000).contains("enhanced packet block is unreadable"));
    assert!(refused(&pcapng(false, 25, |ns| ns, &[packet()])).contains("if_tsresol) is 0x19"));
    let far = pcapng(false, 0, |ns| ns, &[(0, 60, frame(1, 0)), (u64::MAX, 60, frame(1, 0))]);
    assert!(refused(&far).contains("within 146 years of the first packet"));
}
