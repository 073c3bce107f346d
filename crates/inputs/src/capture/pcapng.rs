//! The pcapng file: sections of blocks, interfaces described in blocks of their own
//! (draft-ietf-opsawg-pcapng).
//!
//! `pcap-parser` decodes interfaces; this file checks the lengths of blocks before it reads them, decodes the three kinds of
//! blocks with packets, one of which the library (0.17) does not know, and scales time stamps: the library has no
//! power-of-two resolution and reads if_tsoffset as little-endian in big-endian files. Blocks without packets are skipped.

use super::collector::{Collector, Lengths, Recorded};
use super::headers::{self, Headers, LinkType};
use super::{MAX_PACKET_BYTES, MAX_PADDING_BYTES, another_file, foreign, link_type, too_much_padding};
use crate::error::InputError;
use crate::source::Source;
use pcap_parser::pcapng::{parse_interfacedescriptionblock_be, parse_interfacedescriptionblock_le};
use pcap_parser::{OptionCode, PcapNGOption};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// The shortest block: type, length, length.
const MIN_BLOCK_BYTES: u32 = 12;
/// The longest accepted block: the longest packet and room for its options.
const MAX_BLOCK_BYTES: u32 = MAX_PACKET_BYTES + (1 << 20);
/// Interfaces of one section. Real files have a handful; the bound limits the memory for a hostile one.
const MAX_INTERFACES: usize = 4096;

/// Option if_fcslen of an interface.
const INTERFACE_FCS: OptionCode = OptionCode(13);
/// Option epb_flags of a packet, which the obsolete block has too: bits 0 and 1 are the direction, bits 5 to 8 the bytes of
/// the frame check sequence.
const PACKET_FLAGS: u16 = 2;
const OUTBOUND: u32 = 2;

/// One interface of the current section.
struct Interface {
    /// Its link type, which is refused only if a packet needs it, and where the file says it.
    link: u16,
    link_at: u64,
    /// Bytes that are captured of each packet; 0 for all.
    snap_bytes: u32,
    /// Bytes of the frame check sequence, where a packet says nothing else.
    fcs_bytes: u32,
    /// Time stamp units per second.
    units_per_s: u128,
    /// Seconds to add to each time stamp.
    offset_s: i64,
}

/// Reads all packets of a file that starts with a section header.
pub(super) fn read(source: &mut Source, into: &mut Collector<'_>) -> Result<(), InputError> {
    let mut big_endian = false;
    let mut interfaces: Vec<Interface> = Vec::new();
    let length_wanted = format!(
        "a multiple of 4 from {MIN_BLOCK_BYTES} to {MAX_BLOCK_BYTES}; the file is damaged, capture again"
    );
    while !source.peek(1)?.is_empty() {
        // No block has the type 0, nor the length 0.
        if source.peek(8)?.starts_with(&[0; 8]) {
            let at = source.offset();
            match source.is_only_zeros(MAX_PADDING_BYTES)? {
                Some(true) => {}
                Some(false) => return Err(source.value(at + 4, "block length", 0, length_wanted)),
                None => return Err(too_much_padding(source, at)),
            }
            into.are_padding();
            break;
        }
        let head = source.need(MIN_BLOCK_BYTES as usize, "block header")?;
        let (kind, length) = ([head[0], head[1], head[2], head[3]], [head[4], head[5], head[6], head[7]]);
        let order = [head[8], head[9], head[10], head[11]];
        if u32::from_le_bytes(kind) != SECTION && foreign::is_start(head) {
            return Err(another_file(source));
        }
        if u32::from_le_bytes(kind) == SECTION {
            big_endian = match order {
                [0x1a, 0x2b, 0x3c, 0x4d] => true,
                [0x4d, 0x3c, 0x2b, 0x1a] => false,
                _ => {
                    let (found, wanted) =
                        (format!("{:#010x}", u32::from_be_bytes(order)), "0x1a2b3c4d or 0x4d3c2b1a");
                    return Err(source.value(
                        source.offset() + 8,
                        "the section's byte-order magic",
                        found,
                        wanted,
                    ));
                }
            };
            interfaces.clear();
        }
        let word = if big_endian { u32::from_be_bytes } else { u32::from_le_bytes };
        let (kind, length) = (word(kind), word(length));
        if !(MIN_BLOCK_BYTES..=MAX_BLOCK_BYTES).contains(&length) || length % 4 != 0 {
            return Err(source.value(source.offset() + 4, "block length", length, length_wanted));
        }
        let whole = length as usize;
        source.need(whole, "block")?;
        match kind {
            INTERFACE => {
                let interface = interface(source, whole, big_endian)?;
                if interfaces.len() == MAX_INTERFACES {
                    let wanted = format!("at most {MAX_INTERFACES}; the file is damaged, capture again");
                    return Err(source.value(source.offset(), "number of interfaces", "larger", wanted));
                }
                interfaces.push(interface);
            }
            ENHANCED_PACKET | SIMPLE_PACKET | OBSOLETE_PACKET => {
                let found = packet(source, kind, whole, big_endian, &interfaces)?;
                if into.packet(source, found)?.is_break() {
                    break;
                }
            }
            _ => {}
        }
        source.consume(whole);
    }
    Ok(())
}

fn interface(source: &mut Source, whole: usize, big_endian: bool) -> Result<Interface, InputError> {
    let at = source.offset();
    let bytes = source.need(whole, "block")?;
    let parsed = if big_endian {
        parse_interfacedescriptionblock_be(bytes)
    } else {
        parse_interfacedescriptionblock_le(bytes)
    };
    let read = parsed.map(|(_, block)| {
        let resolution = option(&block.options, OptionCode::IfTsresol, 1).map_or(6, |bytes| bytes[0]);
        let offset = option(&block.options, OptionCode::IfTsoffset, 8).map_or([0; 8], |bytes| {
            let mut value = [0; 8];
            value.copy_from_slice(bytes);
            value
        });
        let fcs = option(&block.options, INTERFACE_FCS, 1).map_or(0, |bytes| u32::from(bytes[0]));
        // pcap-parser widens the file's 16-bit field.
        ((block.linktype.0 & 0xffff) as u16, block.snaplen, resolution, offset, fcs)
    });
    let Ok((link, snap_bytes, resolution, offset, fcs)) = read else {
        let wanted = "lengths that agree; the file is damaged, capture again";
        return Err(source.value(at, "interface description block", "unreadable", wanted));
    };
    let power = u32::from(resolution & 0x7f);
    let units_per_s =
        if resolution & 0x80 == 0 { 10u128.checked_pow(power) } else { 1u128.checked_shl(power) };
    // Finer than 2^63 or 10^19 a 64-bit stamp could not hold one second.
    let Some(units_per_s) = units_per_s.filter(|units| *units <= 10u128.pow(19)) else {
        let wanted = "at most 10^-19 s or 2^-63 s; capture again";
        return Err(source.value(
            at,
            "time stamp resolution (if_tsresol)",
            format!("{resolution:#04x}"),
            wanted,
        ));
    };
    let offset_s = if big_endian { i64::from_be_bytes(offset) } else { i64::from_le_bytes(offset) };
    // The draft says bits, Wireshark reads bytes; no check sequence has 16 bytes or more.
    let fcs_bytes = if fcs < 16 { fcs } else { fcs / 8 };
    Ok(Interface { link, link_at: at + 8, snap_bytes, fcs_bytes, units_per_s, offset_s })
}

/// The first option with this code, if it has at least this length.
fn option<'a>(options: &'a [PcapNGOption<'a>], code: OptionCode, bytes: usize) -> Option<&'a [u8]> {
    let option = options.iter().find(|option| option.code == code)?;
    option.as_bytes().ok().filter(|value| value.len() >= bytes).map(|value| &value[..bytes])
}

/// The fields of a block with a packet.
struct PacketBlock<'a> {
    interface: u32,
    /// Upper and lower half of the time stamp; none in a simple packet block.
    stamp: Option<(u32, u32)>,
    lengths: Lengths,
    data: &'a [u8],
    flags: u32,
}

impl<'a> PacketBlock<'a> {
    /// Reads the fields of a block, if its lengths agree. `snap_bytes` limits a simple packet block, which does not say how
    /// many bytes were captured.
    fn of(block: &'a [u8], kind: u32, big_endian: bool, snap_bytes: u32) -> Option<PacketBlock<'a>> {
        let word = |at: usize| {
            let bytes = block.get(at..at + 4)?.try_into().ok()?;
            Some(if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
        };
        let half = |at: usize| {
            let bytes = block.get(at..at + 2)?.try_into().ok()?;
            Some(if big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
        };
        // The length is repeated at the end of the block.
        let end = block.len() - 4;
        if word(end)? as usize != block.len() {
            return None;
        }
        if kind == SIMPLE_PACKET {
            let original = word(8)?;
            let data = block.get(12..end)?;
            let most = if snap_bytes == 0 { original } else { snap_bytes };
            let captured = original.min(most).min(data.len() as u32);
            let lengths = Lengths { captured, original };
            return Some(PacketBlock {
                interface: 0,
                stamp: None,
                lengths,
                data: &data[..captured as usize],
                flags: 0,
            });
        }
        let interface = if kind == OBSOLETE_PACKET { u32::from(half(8)?) } else { word(8)? };
        let lengths = Lengths { captured: word(20)?, original: word(24)? };
        let data_end = 28_usize.checked_add(lengths.captured as usize)?;
        let data = block.get(28..data_end).filter(|_| data_end <= end)?;
        let mut flags = 0;
        let mut at = data_end.next_multiple_of(4);
        while at + 8 <= end {
            let (code, length) = (half(at)?, usize::from(half(at + 2)?));
            if code == 0 {
                break;
            }
            if code == PACKET_FLAGS && length == 4 {
                flags = word(at + 4)?;
            }
            at += 4 + length.next_multiple_of(4);
        }
        Some(PacketBlock { interface, stamp: Some((word(12)?, word(16)?)), lengths, data, flags })
    }
}

fn packet(
    source: &mut Source,
    kind: u32,
    whole: usize,
    big_endian: bool,
    interfaces: &[Interface],
) -> Result<Recorded, InputError> {
    let at = source.offset();
    let snap_bytes = interfaces.first().map_or(0, |first| first.snap_bytes);
    let block = PacketBlock::of(source.need(whole, "block")?, kind, big_endian, snap_bytes).map(|block| {
        let interface = interfaces.get(block.interface as usize);
        let headers = interface
            .and_then(|interface| LinkType::from_number(interface.link))
            .map(|link| headers::parse(link, block.data));
        (block.interface, block.stamp, block.lengths, block.flags, interface, headers)
    });
    let Some((id, stamp, lengths, flags, interface, headers)) = block else {
        let what = match kind {
            ENHANCED_PACKET => "enhanced packet block",
            SIMPLE_PACKET => "simple packet block",
            _ => "obsolete packet block",
        };
        let wanted = "lengths that agree; the file is damaged, capture again";
        return Err(source.value(at, what, "unreadable", wanted));
    };
    let Some(interface) = interface else {
        let wanted = format!(
            "one of the {} described before it; the file is damaged, capture again",
            interfaces.len()
        );
        return Err(source.value(at + 8, "the packet's interface", id, wanted));
    };
    let link = link_type(source, interface.link_at, interface.link)?;
    let headers = headers.unwrap_or_default();
    let fcs_of_packet = flags >> 5 & 0xf;
    Ok(Recorded {
        link,
        stamp_ns: stamp.map(|(high, low)| interface.stamp_ns(high, low)),
        lengths: lengths.check(source)?,
        fcs_bytes: if fcs_of_packet > 0 { fcs_of_packet } else { interface.fcs_bytes },
        headers: Headers { is_outgoing: headers.is_outgoing || flags & 3 == OUTBOUND, ..headers },
    })
}

impl Interface {
    /// Nanoseconds since 1970 of the two halves of a time stamp.
    fn stamp_ns(&self, high: u32, low: u32) -> i128 {
        let stamp = u64::from(high) << 32 | u64::from(low);
        // A u64 times 10^9 fits u128 and, divided, i128.
        let nanos = (u128::from(stamp) * 1_000_000_000 / self.units_per_s) as i128;
        nanos + i128::from(self.offset_s) * 1_000_000_000
    }
}
