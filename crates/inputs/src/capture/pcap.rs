//! The classic pcap file: a 24-byte header, then 16 bytes and data per packet (pcap-savefile(5)).
//!
//! `pcap-parser` decodes the fields; this file checks their values before it uses a length. Must not know flows.

use super::collector::{Collector, Lengths, Recorded};
use super::{MAX_PADDING_BYTES, another_file, foreign, headers, link_type, too_much_padding};
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

/// One in so many fractions at least is no number of microseconds if all are nanoseconds. Assumption: of evenly spread ones
/// it is 999 in 1000, and captures of less than a millisecond are rare.
const NANOSECONDS_LEAST: u64 = 10;

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
    // Packets, and those whose fraction of a second is no number of microseconds, with the error of the first.
    let (mut packets, mut beyond, mut first_beyond) = (0_u64, 0_u64, None);
    source.consume(HEADER_BYTES);

    // Records of zeros at the present end: packets without bytes, or padding where nothing comes behind them.
    let mut zeros = 0;
    loop {
        let left = source.peek(FRAME_BYTES)?;
        let left = &left[..left.len().min(FRAME_BYTES)];
        // A few zeros alone may as well be the beginning of a packet.
        let are_zeros = left.iter().all(|byte| *byte == 0) && (zeros > 0 || left.len() == FRAME_BYTES);
        if left.is_empty() || are_zeros && left.len() < FRAME_BYTES {
            if zeros > 0 {
                into.are_padding();
            }
            break;
        }
        if are_zeros {
            zeros += 1;
            source.consume(FRAME_BYTES);
            if zeros * FRAME_BYTES as u64 > MAX_PADDING_BYTES {
                return Err(too_much_padding(source, source.offset() - zeros * FRAME_BYTES as u64));
            }
            continue;
        }
        into.are_without_bytes(std::mem::take(&mut zeros));
        let head = source.need(FRAME_BYTES, "packet header")?;
        if foreign::is_start(head) {
            return Err(another_file(source));
        }
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
        let no_fraction = |most: u32| {
            let wanted = format!("below {most}; the file is damaged, capture again");
            source.value(source.offset() + 4, "fraction of the packet's second", fraction, wanted)
        };
        if fraction >= 1_000_000_000 {
            return Err(no_fraction(1_000_000_000));
        }
        packets += 1;
        if fraction >= 1_000_000 && !header.is_nanosecond_precision() {
            beyond += 1;
            first_beyond.get_or_insert_with(|| no_fraction(1_000_000));
            if !are_nanoseconds {
                are_nanoseconds = true;
                into.read_as_nanoseconds();
            }
        }
        let nanos = i128::from(fraction) * if are_nanoseconds { 1 } else { 1000 };
        let stamp_ns = Some(i128::from(seconds) * 1_000_000_000 + nanos);
        let recorded = Recorded { link, stamp_ns, lengths, fcs_bytes, headers };
        if into.packet(source, recorded)?.is_break() {
            break;
        }
        source.consume(whole);
    }
    // A program that writes nanoseconds under the magic of microseconds writes nearly all fractions so; a few are damaged
    // packets.
    match first_beyond {
        Some(error) if beyond * NANOSECONDS_LEAST < packets => Err(error),
        _ => Ok(()),
    }
}
