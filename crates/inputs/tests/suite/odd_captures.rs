//! Captures that Wireshark reads and that are no plain list of received Ethernet frames: other link headers, packets that no
//! NIC receives, times that cannot be, files that end early, and formats that are called by their names.

use crate::common::{Bytes, TestPacket, file, frame, packets, pcap, pcapng};
use std::io::Write;
use waykeeper_inputs::{Capture, CaptureGap};

fn read(bytes: &[u8]) -> Capture {
    Capture::read(file(bytes).path()).unwrap()
}

fn refused(bytes: &[u8]) -> String {
    Capture::read(file(bytes).path()).unwrap_err().to_string()
}

fn lengths(capture: &Capture) -> Vec<u32> {
    capture.packets.iter().map(|packet| packet.bytes).collect()
}

fn numbers(capture: &Capture) -> Vec<u32> {
    capture.packets.iter().map(|packet| packet.number).collect()
}

/// The IP packet of [`frame`].
fn ip(host: u8) -> Vec<u8> {
    frame(host, 0).split_off(14)
}

/// A Linux cooked header, version 1: packet type, then address and protocol.
fn sll(kind: u8) -> Vec<u8> {
    [[0, kind].as_slice(), &[0; 12], &[8, 0]].concat()
}

/// The same, version 2.
fn sll2(kind: u8) -> Vec<u8> {
    [[8, 0].as_slice(), &[0; 8], &[kind], &[0; 9]].concat()
}

/// Packets of a microsecond each with these contents and 1500 bytes of IP behind `head` bytes of link header.
fn full(head: u32, contents: &[Vec<u8>]) -> Vec<TestPacket> {
    let one = |(at, data): (usize, &Vec<u8>)| (1000 * at as u64, head + 1500, data.clone());
    contents.iter().enumerate().map(one).collect()
}

/// A pcapng file of blocks, each with its type and body, behind a section header.
fn blocks(blocks: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Bytes { big: false, out: Vec::new() };
    let section = [[0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0].as_slice(), &[0xff; 8]].concat();
    for (kind, body) in [(0x0a0d_0d0a, section)].iter().chain(blocks) {
        let body = [body.as_slice(), &vec![0; body.len().next_multiple_of(4) - body.len()]].concat();
        let length = body.len() as u32 + 12;
        bytes.u32(*kind);
        bytes.u32(length);
        bytes.out.extend(body);
        bytes.u32(length);
    }
    bytes.out
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// An interface of microseconds with this link type, and with options.
fn interface(link: u32, options: &[u8]) -> (u32, Vec<u8>) {
    (1, [words(&[link, 0]).as_slice(), options].concat())
}

/// An enhanced packet block with 42 bytes of a frame, and with options.
fn enhanced(interface: u32, us: u32, original: u32, options: &[u8]) -> (u32, Vec<u8>) {
    let head = words(&[interface, 0, us, 42, original]);
    (6, [head.as_slice(), &frame(us as u8, 0), &[0, 0], options].concat())
}

#[test]
fn a_packet_is_as_long_as_the_ethernet_frame_that_a_nic_receives() {
    let tagged = {
        let mut tagged = frame(1, 0);
        tagged.splice(12..12, [0x81, 0, 0, 7]);
        tagged
    };
    for (link, packets) in [
        (1, full(14, &[frame(1, 0)])),
        (113, full(16, &[[sll(0), ip(1)].concat()])),
        (276, full(20, &[[sll2(0), ip(1)].concat()])),
        (101, full(0, &[ip(1)])),
        (228, full(0, &[ip(1)])),
        (0, full(4, &[[vec![2, 0, 0, 0], ip(1)].concat()])),
    ] {
        let capture = read(&pcap(false, true, link, &packets));
        assert_eq!((lengths(&capture), capture.packets[0].tags), (vec![1514], 0), "link type {link}");
        assert_eq!(capture.flows.len(), 1, "link type {link}");
    }
    let capture = read(&pcap(false, true, 1, &full(18, &[tagged])));
    assert_eq!((lengths(&capture), capture.packets[0].tags), (vec![1518], 1));
}

#[test]
fn a_frame_check_sequence_is_no_part_of_the_frame() {
    // Bit 26 says that the highest four bits count 2-byte units: 4 bytes.
    let with_fcs = 1 | 1 << 26 | 2 << 28;
    assert_eq!(lengths(&read(&pcap(false, true, with_fcs, &full(18, &[frame(1, 0)])))), [1514]);
    assert_eq!(lengths(&read(&pcap(true, true, with_fcs, &full(18, &[frame(1, 0)])))), [1514]);
    // Without bit 26 they say nothing.
    assert_eq!(lengths(&read(&pcap(false, true, 1 | 2 << 28, &full(18, &[frame(1, 0)])))), [1518]);
    // if_fcslen (13) of 4 as Wireshark reads it, and of 32 bits as the draft says.
    for length in [4, 32] {
        let file =
            blocks(&[interface(1, &[13, 0, 1, 0, length, 0, 0, 0, 0, 0, 0, 0]), enhanced(0, 1, 1518, &[])]);
        assert_eq!(lengths(&read(&file)), [1514], "{length}");
    }
    // Bits 5 to 8 of a packet's flags: 4 bytes.
    let flags = [words(&[2 | 4 << 16, 4 << 5]), vec![0; 4]].concat();
    assert_eq!(lengths(&read(&blocks(&[interface(1, &[]), enhanced(0, 1, 1518, &flags)]))), [1514]);
}

#[test]
fn packets_that_the_capturing_host_sent_are_left_out_and_counted() {
    for (link, head) in [(113, sll as fn(u8) -> Vec<u8>), (276, sll2)] {
        let contents = [(0, 1), (4, 2), (3, 3)].map(|(kind, host)| [head(kind), ip(host)].concat());
        let capture = read(&pcap(false, true, link, &full(16, &contents)));
        assert_eq!((numbers(&capture), capture.recorded), (vec![1, 3], 3));
        assert_eq!((capture.oddities.outgoing, capture.flows.len()), (1, 2));
    }
    let flags = |direction: u32| words(&[2 | 4 << 16, direction, 0]);
    let file = blocks(&[
        interface(1, &[]),
        enhanced(0, 1, 60, &flags(1)),
        enhanced(0, 2, 60, &flags(2)),
        enhanced(0, 3, 60, &flags(0)),
    ]);
    let capture = read(&file);
    assert_eq!((numbers(&capture), capture.oddities.outgoing), (vec![1, 3], 1));
    let only = blocks(&[interface(1, &[]), enhanced(0, 2, 60, &flags(2))]);
    assert!(refused(&only).contains("holds no packets that a NIC receives"), "{}", refused(&only));
}

#[test]
fn packets_without_bytes_are_left_out_and_counted() {
    let packets = [(1000, 0, vec![]), (2000, 60, frame(1, 0)), (2500, 0, vec![]), (3000, 60, frame(2, 0))];
    for bytes in [pcap(false, true, 1, &packets), pcapng(false, 9, |ns| ns, &packets)] {
        let capture = read(&bytes);
        assert_eq!((numbers(&capture), capture.oddities.empty, capture.recorded), (vec![2, 4], 2, 4));
        assert_eq!((capture.info().min_bytes, capture.info().duration_ns), (60, 1000));
    }
}

#[test]
fn zeros_behind_the_last_packet_are_no_packets() {
    for whole in [pcap(false, true, 1, &packets()), pcapng(false, 9, |ns| ns, &packets())] {
        for zeros in [16, 17, 40, 100_000] {
            let capture = read(&[whole.as_slice(), &vec![0; zeros]].concat());
            assert_eq!(capture.packets, read(&whole).packets, "{zeros}");
            assert!(capture.oddities.is_padded && !capture.oddities.is_cut_off, "{zeros}");
            assert_eq!((capture.recorded, capture.oddities.empty), (3, 0), "{zeros}");
        }
    }
    assert!(!read(&pcap(false, true, 1, &packets())).oddities.is_padded);
    // A small archive may have any number of them.
    for whole in [pcap(false, true, 1, &packets()), pcapng(false, 9, |ns| ns, &packets())] {
        let plain = [whole.as_slice(), &vec![0; 130 << 20]].concat();
        let error = refused(&zstd::encode_all(plain.as_slice(), 1).unwrap());
        assert!(
            error.contains("zeros behind the last packet is more, must be at most 134217728 bytes"),
            "{error}"
        );
        assert!(error.contains(&format!("`head -c {}`", whole.len())), "{error}");
    }
    let whole = pcap(false, true, 1, &packets());
    // Before another packet they are packets without bytes.
    let between = read(&[&whole[..24], &[0; 32], &whole[24..]].concat());
    assert_eq!((between.recorded, between.oddities.empty, between.oddities.is_padded), (5, 2, false));
    assert_eq!(between.packets.len(), 3);
    // Zeros in the middle of a file are a block that cannot be.
    let whole = pcapng(false, 9, |ns| ns, &packets());
    let holed = refused(&[whole.as_slice(), &[0; 40], &[1]].concat());
    assert!(holed.contains("block length is 0, must be a multiple of 4"), "{holed}");
}

#[test]
fn the_longest_gap_is_named_if_it_dominates() {
    let second = 1_000_000_000;
    let at = |times: &[u64]| {
        let stamped: Vec<TestPacket> = times.iter().map(|ns| (*ns, 60, frame(1, 0))).collect();
        read(&pcap(false, true, 1, &stamped)).info().dominant_gap
    };
    let usual = 1_700_000_000 * second;
    assert_eq!(at(&[usual, usual + 1000, usual + 2000]), None);
    assert_eq!(at(&[0, second]), None);
    assert_eq!(at(&[5; 4]), None);
    // The third packet lost its time, and comes first.
    let gap = CaptureGap { ns: usual, after_packet: 3, before_packet: 1 };
    assert_eq!(at(&[usual, usual + 1000, 0, usual + 3000]), Some(gap));
    // An hour's pause before the fourth of five.
    let gap = CaptureGap { ns: 3600 * second, after_packet: 3, before_packet: 4 };
    assert_eq!(at(&[0, 1000, 2000, 2000 + 3600 * second, 3000 + 3600 * second]), Some(gap));
    // The third packet lost its time, the fourth has another one: the gap before the two that are right is the longer one.
    let gap = CaptureGap { ns: usual - second, after_packet: 4, before_packet: 1 };
    assert_eq!(at(&[usual, usual + 1000, 0, second, usual + 2000, usual + 3000]), Some(gap));
    // 9 of 10 us are not a thousand times the other gap.
    assert_eq!(at(&[0, 1000, 10_000]), None);
    // Bursts of equal times have pauses.
    assert_eq!(at(&[0, 0, 0, second, second, second, 2 * second, 2 * second]), None);
}

#[test]
fn packets_that_come_twice_are_counted() {
    let copies = |contents: &[Vec<u8>]| read(&pcap(false, true, 1, &full(14, contents))).oddities.copies;
    let frames = |hosts: &[u8]| hosts.iter().map(|host| frame(*host, 0)).collect::<Vec<_>>();
    assert_eq!(copies(&frames(&[1, 2, 3, 1])), 1);
    assert_eq!(copies(&frames(&[1, 1, 2, 2, 3, 3])), 3);
    assert_eq!(copies(&frames(&[1, 2, 3, 4, 5, 6, 1])), 0, "five others between");
    // A generator's equal packets are none, one flow or two in turn.
    assert_eq!(copies(&frames(&[1; 20])), 0);
    assert_eq!(copies(&frames(&[1, 2].repeat(10))), 0);
    // Behind a router the time to live (byte 8 of the IP header) and the checksum are other ones, and the rest is not.
    let routed = {
        let mut routed = frame(1, 0);
        routed[14 + 8] -= 1;
        routed[14 + 10] += 1;
        routed
    };
    assert_eq!(copies(&[frame(1, 0), routed]), 1);
    // Frames that are no IP repeat.
    let arp = [vec![0; 12], vec![8, 6, 0, 1]].concat();
    assert_eq!(copies(&[arp.clone(), arp]), 0);
}

#[test]
fn nanoseconds_under_the_magic_of_microseconds_are_read_as_nanoseconds() {
    // The first fractions could be microseconds.
    let times = [3_000_000_500, 3_000_900_000, 3_001_000_000, 3_999_999_999, 4_000_000_001];
    let stamped = times.map(|ns| (ns, 60, frame(1, 0)));
    let mut bytes = pcap(false, true, 1, &stamped);
    bytes[..4].copy_from_slice(&0xa1b2_c3d4_u32.to_le_bytes());
    let capture = read(&bytes);
    assert_eq!(
        capture.packets.iter().map(|packet| packet.at_ns).collect::<Vec<_>>(),
        [0, 899_500, 999_500, 999_999_499, 999_999_501]
    );
    assert!(capture.oddities.are_nanoseconds && capture.oddities.reordered == 0);
    assert!(!read(&pcap(false, false, 1, &stamped)).oddities.are_nanoseconds);
    // One packet of many is damaged, and not the clock of all.
    let mut many: Vec<TestPacket> = (0..50).map(|at| (at * 1_000_000, 60, frame(1, 0))).collect();
    many[20].0 += 5_000_000;
    let mut bytes = pcap(false, false, 1, &many);
    let place = 24 + 20 * (bytes.len() - 24) / 50 + 4;
    bytes[place..place + 4].copy_from_slice(&1_000_007_u32.to_le_bytes());
    let error = refused(&bytes);
    assert!(error.contains("fraction of the packet's second is 1000007, must be below 1000000"), "{error}");
}

#[test]
fn the_whole_packets_of_a_cut_archive_are_read() {
    let many: Vec<TestPacket> =
        (0..50_000).map(|at| (at * 1000, 60, frame((at * at % 251) as u8, 0))).collect();
    let plain = pcap(false, true, 1, &many);
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(&plain).unwrap();
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 0);
    xz.write_all(&plain).unwrap();
    let zst = zstd::encode_all(plain.as_slice(), 1).unwrap();
    for (name, packed) in [("gz", gz.finish().unwrap()), ("xz", xz.finish().unwrap()), ("zst", zst)] {
        let capture = read(&packed[..packed.len() * 3 / 4]);
        assert!(capture.oddities.is_cut_off, "{name}");
        let count = capture.packets.len();
        assert!((10_000..50_000).contains(&count), "{name}: {count}");
        assert_eq!(capture.packets, read(&plain).packets[..count], "{name}");
        // Nothing can be unpacked.
        assert!(refused(&packed[..20]).contains("the file may be damaged or cut short"), "{name}");
    }
    // Fewer bytes than the reader looks at to name a format: the archive lacks its checksum and length, 8 bytes (RFC 1952).
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(&pcap(false, true, 1, &packets())).unwrap();
    let packed = gz.finish().unwrap();
    let capture = read(&packed[..packed.len() - 8]);
    assert!(capture.packets.len() == 3 && capture.oddities.is_cut_off);
}

#[test]
fn an_unknown_link_type_that_no_packet_has_does_not_matter() {
    let bluetooth = interface(201, &[]);
    let capture = read(&blocks(&[bluetooth.clone(), interface(1, &[]), enhanced(1, 1, 60, &[])]));
    assert_eq!(lengths(&capture), [60]);
    // Section header 28, block header 8.
    let error = refused(&blocks(&[bluetooth, enhanced(0, 1, 60, &[])]));
    assert!(error.contains("byte 36: link type is 201, must be 1 (Ethernet)"), "{error}");
}

/// 42 bytes of ARP or UDP before its sender pads them, and of raw IP 28 bytes without an Ethernet header.
#[test]
fn what_is_shorter_than_a_frame_counts_as_the_shortest_one() {
    for (link, short) in [(1, frame(1, 0)), (101, ip(1))] {
        let long = [short.as_slice(), &[0; 20]].concat();
        let packets = [(0, short.len() as u32, short), (1000, long.len() as u32, long)];
        let capture = read(&pcap(false, true, link, &packets));
        assert_eq!(lengths(&capture), [60, 62], "{link}");
        assert_eq!(capture.oddities.shorter_than_a_frame, 1);
    }
}

/// A frame with the check sequence of its bytes, as some cards and taps record it.
fn with_fcs(mut frame: Vec<u8>) -> Vec<u8> {
    let fcs = crc32fast::hash(&frame);
    frame.extend(fcs.to_le_bytes());
    frame
}

#[test]
fn a_check_sequence_of_which_the_file_says_nothing_does_not_count() {
    // The check value of CRC-32 for the digits 1 to 9, which hardware and file formats share.
    assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
    let padded = |length: usize| {
        let mut frame = frame(1, 0);
        frame.resize(length, 0);
        frame
    };
    let arp = [&[0xff; 12], [8, 6].as_slice(), &[1; 46]].concat();
    let whole = |data: Vec<u8>| (0, data.len() as u32, data);
    let lengths = |packets: &[TestPacket], link| {
        let capture = read(&pcap(false, true, link, packets));
        (lengths(&capture), capture.oddities.undeclared_fcs)
    };
    assert_eq!(
        lengths(&[whole(with_fcs(padded(60))), whole(with_fcs(padded(1514)))], 1),
        (vec![60, 1514], 2)
    );
    assert_eq!(lengths(&[whole(with_fcs(arp))], 1), (vec![60], 1));
    // One bit of a byte differs: these are bytes like others.
    let mut other = with_fcs(padded(60));
    other[20] ^= 1;
    assert_eq!(lengths(&[whole(other)], 1), (vec![64], 0));
    // What the file declares is no surprise, and is left out once.
    assert_eq!(lengths(&[whole(with_fcs(padded(60)))], 1 | 1 << 26 | 2 << 28), (vec![60], 0));
    // A packet that was cut where its bytes happen to check.
    assert_eq!(lengths(&[(0, 1514, with_fcs(padded(60)))], 1), (vec![1514], 0));
}

#[test]
fn obsolete_and_simple_packet_blocks_are_read() {
    // Interface and lost packets in one word, time, lengths, data, and flags that say "outbound".
    let obsolete = |us: u32, flags: &[u8]| {
        (2, [words(&[0, 0, us, 42, 60]).as_slice(), &frame(us as u8, 0), &[0, 0], flags].concat())
    };
    let outbound = words(&[2 | 4 << 16, 2, 0]);
    let capture =
        read(&blocks(&[interface(1, &[]), obsolete(5, &[]), obsolete(6, &outbound), obsolete(8, &[])]));
    assert_eq!(capture.packets.iter().map(|p| (p.at_ns, p.bytes)).collect::<Vec<_>>(), [(0, 60), (3000, 60)]);
    assert_eq!((capture.oddities.outgoing, capture.flows.len()), (1, 2));

    let simple = |host: u8| (3, [words(&[1514]).as_slice(), &frame(host, 0)].concat());
    let capture = read(&blocks(&[interface(1, &[]), enhanced(0, 7, 60, &[]), simple(1), simple(2)]));
    assert_eq!(capture.packets.iter().map(|p| p.at_ns).collect::<Vec<_>>(), [0; 3]);
    assert_eq!((lengths(&capture), capture.oddities.without_time), (vec![60, 1514, 1514], 2));
    assert_eq!(capture.flows.len(), 3);
    // Before the first that says its time they come with it.
    let first =
        read(&blocks(&[interface(1, &[]), simple(1), enhanced(0, 7, 60, &[]), enhanced(0, 9, 60, &[])]));
    assert_eq!(first.packets.iter().map(|p| p.at_ns).collect::<Vec<_>>(), [0, 0, 2000]);
    let alone = refused(&blocks(&[simple(1)]));
    assert!(alone.contains("the packet's interface is 0, must be one of the 0 described"), "{alone}");
}

#[test]
fn other_formats_are_named_with_the_command_that_converts_them() {
    const EDITCAP: &str = "`editcap -F pcapng IN OUT`";
    // Time, type Ethernet, record of 16 + 44 bytes, 42 on the wire (Endace's ERF).
    let erf = [&words(&[0, 1_700_000_000])[..], &[2, 4, 0, 60, 0, 0, 0, 42], &[0; 44]].concat();
    for (bytes, name, remedy) in [
        (b"snoop\0\0\0\0\0\0\x02\0\0\0\x04".to_vec(), "Solaris' snoop", EDITCAP),
        (b"GMBU\0\x02\x01\0".to_vec(), "Microsoft Network Monitor 2", EDITCAP),
        (b"RTSS\0\x01\x01\0".to_vec(), "Microsoft Network Monitor 1", EDITCAP),
        (erf.repeat(2), "an ERF capture", EDITCAP),
        (erf, "an ERF capture", EDITCAP),
        (b"\x04\x22\x4d\x18abcdefgh".to_vec(), "compressed with lz4", "`lz4 -d IN OUT`"),
        (b"0000  45 00 00 2e".to_vec(), "a hex dump", "`text2pcap IN OUT`"),
    ] {
        let error = refused(&bytes);
        assert!(error.contains(name) && error.contains(remedy) && !error.contains("again"), "{error}");
    }
    for link in [105, 127] {
        let error = refused(&pcap(false, true, link, &packets()));
        assert!(
            error.contains(&format!("link type is {link}")) && error.contains("`airdecap-ng IN`"),
            "{error}"
        );
    }
}

#[test]
fn a_capture_file_behind_another_one_is_named() {
    let (classic, next) = (pcap(false, true, 1, &packets()), pcapng(false, 9, |ns| ns, &packets()));
    let micro = pcap(true, false, 1, &packets());
    for (first, second) in [(&classic, &classic), (&classic, &micro), (&micro, &next), (&next, &classic)] {
        let error = refused(&[first.as_slice(), second].concat());
        let at = first.len();
        assert!(
            error.contains(&format!("byte {at}: the next record is the start of another capture file")),
            "{error}"
        );
        assert!(error.contains("`mergecap -w OUT FIRST SECOND`"), "{error}");
        assert!(error.contains(&format!("`head -c {at}` and `tail -c +{}`", at + 1)), "{error}");
    }
    // Sections of pcapng may follow one another.
    assert_eq!(read(&[next.as_slice(), &next].concat()).packets.len(), 6);
}
