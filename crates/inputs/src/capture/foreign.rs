//! Captures of other formats, which are not read: what they are, and the command that converts them.
//!
//! Knows how files begin and which link types have no Ethernet frames; must not read packets.

/// What a file is, and what to do.
pub(super) type Foreign = (&'static str, &'static str);

/// Bytes from a file's start that tell its format: an ERF record, and the head of the next behind a packet of 2 KiB.
pub(super) const LOOK_BYTES: usize = 2048 + 2 * ERF_HEAD_BYTES;

const ERF_HEAD_BYTES: usize = 16;

const EDITCAP: &str = "`editcap -F pcapng IN OUT` of Wireshark converts it";

/// First bytes of files (Wireshark's wiretap/, and each packer's own description).
const MAGICS: &[(&[u8], Foreign)] = &[
    (b"snoop\0\0\0", ("a capture of Solaris' snoop", EDITCAP)),
    (b"GMBU", ("a capture of Microsoft Network Monitor 2", EDITCAP)),
    (b"RTSS", ("a capture of Microsoft Network Monitor 1", EDITCAP)),
    (b"TRSNIFF data    \x1a", ("a capture of a DOS Sniffer", EDITCAP)),
    (b"XCP\0", ("a capture of a Windows Sniffer (NetXray)", EDITCAP)),
    (b"iptrace 1.0", ("a capture of AIX's iptrace", EDITCAP)),
    (b"iptrace 2.0", ("a capture of AIX's iptrace", EDITCAP)),
    (b"\xa1\xb2\xcd\x34", ("a modified pcap capture (Kuznetzov's libpcap)", EDITCAP)),
    (b"\x34\xcd\xb2\xa1", ("a modified pcap capture (Kuznetzov's libpcap)", EDITCAP)),
    (b"btsnoop\0", ("a capture of Bluetooth", "it has no Ethernet frames; capture on a network interface")),
    (b"\x04\x22\x4d\x18", ("compressed with lz4", "unpack it with `lz4 -d IN OUT`")),
    (b"\x02\x21\x4c\x18", ("compressed with lz4", "unpack it with `lz4 -d IN OUT`")),
    (b"BZh", ("compressed with bzip2", "unpack it with `bzip2 -dk IN`")),
    (b"LZIP", ("compressed with lzip", "unpack it with `lzip -dk IN`")),
    (b"\x1f\x9d", ("compressed with compress", "unpack it with `gzip -dc IN > OUT`")),
    (b"7z\xbc\xaf\x27\x1c", ("a 7z archive", "unpack it with `7z x IN`")),
    (b"PK\x03\x04", ("a zip archive", "unpack it with `unzip IN`")),
    (b"0000 ", ("a hex dump", "`text2pcap IN OUT` of Wireshark converts it")),
];

/// The format of a file that begins so, if it is known.
pub(super) fn of(first: &[u8]) -> Option<Foreign> {
    let by_magic = MAGICS.iter().find(|(magic, _)| first.starts_with(magic)).map(|(_, foreign)| *foreign);
    by_magic.or_else(|| is_erf(first).then_some(("an ERF capture (Endace)", EDITCAP)))
}

/// Whether a file begins with an ERF record. The format has no magic: a record is a time (8 bytes, little-endian, the
/// seconds last), a type, flags, the record's length, a loss counter and the length on the wire (big-endian).
fn is_erf(first: &[u8]) -> bool {
    let record = |at: usize| {
        let head = first.get(at..at + ERF_HEAD_BYTES)?;
        let seconds = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        let length = usize::from(u16::from_be_bytes([head[10], head[11]]));
        let wire = u16::from_be_bytes([head[14], head[15]]);
        // Types 1 to 29 are packets of some link; bit 7 says that there are extension headers.
        let is_record = (1..30).contains(&(head[8] & 0x7f)) && length > ERF_HEAD_BYTES && wire > 0;
        is_record.then_some((seconds, length))
    };
    let Some((seconds, length)) = record(0) else { return false };
    match first.len() - length.min(first.len()) {
        0 => first.len() == length,
        // Within an hour of the first.
        _ => record(length).is_some_and(|(next, _)| next.abs_diff(seconds) < 3600),
    }
}

/// What to do about a link type without Ethernet frames.
pub(super) fn of_link(number: u16) -> &'static str {
    match number {
        // 802.11 alone, and behind Prism, radiotap, AVS and PPI headers.
        105 | 119 | 127 | 163 | 192 => {
            "frames of Wi-Fi are not what a server's NIC receives; `airdecap-ng IN` writes them as Ethernet frames, or \
             capture without monitor mode"
        }
        _ => "capture on an Ethernet or loopback interface",
    }
}

/// Whether bytes where a record should begin are the start of a capture file: magic and version of pcap, or a section header
/// of pcapng.
pub(super) fn is_start(bytes: &[u8]) -> bool {
    let version = match bytes.get(..8) {
        Some([0xd4 | 0x4d, 0xc3 | 0x3c, 0xb2, 0xa1, version @ ..]) => [2, 0, 4, 0] == *version,
        Some([0xa1, 0xb2, 0xc3 | 0x3c, 0xd4 | 0x4d, version @ ..]) => [0, 2, 0, 4] == *version,
        _ => false,
    };
    let order = bytes.get(8..12);
    let section = bytes.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a])
        && (order == Some(&[0x1a, 0x2b, 0x3c, 0x4d]) || order == Some(&[0x4d, 0x3c, 0x2b, 0x1a]));
    version || section
}
