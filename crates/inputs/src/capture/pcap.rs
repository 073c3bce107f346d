//! The classic pcap file: a 24-byte header, then 16 bytes and data per packet (pcap-savefile(5)).
//!
//! `pcap-parser` decodes the fields; this file checks their values before it uses a length. Must not know flows.

use super::collector::{Collector, Lengths, Recorded};
use super::{another_file, foreign, headers, link_type};
use crate::error::InputError;
use crate::source::Source;
use pcap_parser::pcap::{parse_pcap_frame, parse_pcap_frame_be, parse_pcap_header};

const HEADER_BYTES: usize = 24;
const FRAME_BYTES: usize = 16;

/// True for the four magics: micro- and nanoseconds, either byte order.
pub(super) fn is_magic(magic: &[u8]) -> bool {
    matches!(
        magic,
        [0xd4, 0xc3, 0xb2, 0xa1]
            | [0xa1, 0xb2, 0xc3, 0xd4]
            | [0x4d, 0x3c, 0xb2, 0xa1]
            | [0xa1, 0xb2, 0x3c, 0x4d]
    )
}

/// Reads all packets of a file that starts with one of the magics.
pub(super) fn read(source: &mut Source, into: &mut Collector<'_>) -> Result<(), InputError> {
    let parsed = parse_pcap_header(source.need(HEADER_BYTES, "file header")?).ok();
    let Some((_, header)) = parsed else {
        return Err(source.value(0, "file header", "unreadable", "a pcap header; capture again"));
    };
    if header.version_major != 2 {
        let wanted = "2; rewrite the file with a current tcpdump (-r old -w new)";
        return Err(source.value(4, "pcap version", header.version_major, wanted));
    }
    // The low 16 bits are the link type. Bit 26 says that the highest four are the length of a frame check sequence, in
    // units of 2 bytes.
    let network = header.network.0 as u32;
    let link = link_type(source, 20, (network & 0xffff) as u16)?;
    let fcs_bytes = if network & 1 << 26 == 0 { 0 } else { (network >> 28) * 2 };
    let big_endian = header.is_bigendian();
    let mut are_nanoseconds = header.is_nanosecond_precision();
    source.consume(HEADER_BYTES);

    // Records of zeros at the present end: packets without bytes, or padding where nothing comes behind them.
    let mut zeros = 0;
    loop {
        let left = source.peek(FRAME_BYTES)?;
        let is_end =
            left.is_empty() || zeros > 0 && left.len() < FRAME_BYTES && left.iter().all(|byte| *byte == 0);
        if is_end {
            if zeros > 0 {
                into.are_padding(zeros);
            }
            break;
        }
        let head = source.need(FRAME_BYTES, "packet header")?;
        if foreign::is_start(head) {
            return Err(another_file(source));
        }
        zeros = if head.iter().all(|byte| *byte == 0) { zeros + 1 } else { 0 };
        let length = [head[8], head[9], head[10], head[11]];
        let original = [head[12], head[13], head[14], head[15]];
        let word = if big_endian { u32::from_be_bytes } else { u32::from_le_bytes };
        let lengths = Lengths { captured: word(length), original: word(original) }.check(source)?;

        let whole = FRAME_BYTES + word(length) as usize;
        let bytes = source.need(whole, "packet")?;
        let parsed = if big_endian { parse_pcap_frame_be(bytes) } else { parse_pcap_frame(bytes) };
        let frame =
            parsed.ok().map(|(_, frame)| (frame.ts_sec, frame.ts_usec, headers::parse(link, frame.data)));
        let Some((seconds, fraction, headers)) = frame else {
            return Err(source.value(
                source.offset(),
                "packet",
                "unreadable",
                "a pcap packet; capture again",
            ));
        };
        if fraction >= 1_000_000_000 {
            let wanted = "below 1000000000; the file is damaged, capture again";
            return Err(source.value(
                source.offset() + 4,
                "fraction of the packet's second",
                fraction,
                wanted,
            ));
        }
        // No microsecond is that large: a program wrote nanoseconds under the magic of microseconds.
        if fraction >= 1_000_000 && !are_nanoseconds {
            are_nanoseconds = true;
            into.read_as_nanoseconds();
        }
        let nanos = i128::from(fraction) * if are_nanoseconds { 1 } else { 1000 };
        let stamp_ns = Some(i128::from(seconds) * 1_000_000_000 + nanos);
        let recorded = Recorded { link, stamp_ns, lengths, fcs_bytes, headers };
        if into.packet(source, recorded)?.is_break() {
            break;
        }
        source.consume(whole);
    }
    Ok(())
}
