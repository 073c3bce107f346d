//! The pcapng file: sections of blocks, interfaces described in blocks of their own
//! (draft-ietf-opsawg-pcapng).
//!
//! `pcap-parser` decodes blocks; this file checks their lengths before it reads them, and scales time stamps: the
//! library (0.17) has no power-of-two resolution and reads if_tsoffset as little-endian in big-endian files. Blocks
//! without packets are skipped.

use super::{Collector, Lengths, MAX_PACKET_BYTES, headers, link_type};
use crate::capture::LinkType;
use crate::error::InputError;
use crate::source::Source;
use pcap_parser::pcapng::{
    parse_enhancedpacketblock_be, parse_enhancedpacketblock_le, parse_interfacedescriptionblock_be,
    parse_interfacedescriptionblock_le,
};
use pcap_parser::traits::PcapNGPacketBlock as _;
use pcap_parser::{OptionCode, PcapNGOption};
use std::ops::ControlFlow;

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

/// One interface of the current section.
struct Interface {
    link: LinkType,
    /// Time stamp units per second.
    units_per_s: u128,
    /// Seconds to add to each time stamp.
    offset_s: i64,
}

/// Reads all packets of a file that starts with a section header.
pub(super) fn read(source: &mut Source, into: &mut Collector<'_>) -> Result<(), InputError> {
    let mut big_endian = false;
    let mut interfaces: Vec<Interface> = Vec::new();
    while !source.peek(1)?.is_empty() {
        let head = source.need(MIN_BLOCK_BYTES as usize, "block header")?;
        let (kind, length) = ([head[0], head[1], head[2], head[3]], [head[4], head[5], head[6], head[7]]);
        let order = [head[8], head[9], head[10], head[11]];
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
            let wanted = format!(
                "a multiple of 4 from {MIN_BLOCK_BYTES} to {MAX_BLOCK_BYTES}; the file is damaged, capture again"
            );
            return Err(source.value(source.offset() + 4, "block length", length, wanted));
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
            ENHANCED_PACKET if packet(source, whole, big_endian, &interfaces, into)?.is_break() => break,
            SIMPLE_PACKET | OBSOLETE_PACKET => {
                let (found, wanted) = match kind {
                    SIMPLE_PACKET => {
                        ("a simple packet block, which has no time stamp", "an enhanced packet block")
                    }
                    _ => ("an obsolete packet block", "an enhanced packet block"),
                };
                let wanted = format!("{wanted}; capture again with a current tcpdump, dumpcap or Wireshark");
                return Err(source.value(source.offset(), "block", found, wanted));
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
        (block.linktype.0, resolution, offset)
    });
    let Ok((number, resolution, offset)) = read else {
        let wanted = "lengths that agree; the file is damaged, capture again";
        return Err(source.value(at, "interface description block", "unreadable", wanted));
    };
    // pcap-parser widens the file's 16-bit field.
    let link = link_type(source, at + 8, (number & 0xffff) as u16)?;
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
    Ok(Interface { link, units_per_s, offset_s })
}

/// The first option with this code, if it has at least this length.
fn option<'a>(options: &'a [PcapNGOption<'a>], code: OptionCode, bytes: usize) -> Option<&'a [u8]> {
    let option = options.iter().find(|option| option.code == code)?;
    option.as_bytes().ok().filter(|value| value.len() >= bytes).map(|value| &value[..bytes])
}

fn packet(
    source: &mut Source,
    whole: usize,
    big_endian: bool,
    interfaces: &[Interface],
    into: &mut Collector<'_>,
) -> Result<ControlFlow<()>, InputError> {
    let at = source.offset();
    let bytes = source.need(whole, "block")?;
    let parsed =
        if big_endian { parse_enhancedpacketblock_be(bytes) } else { parse_enhancedpacketblock_le(bytes) };
    let read = parsed.map(|(_, block)| {
        let interface = interfaces.get(block.if_id as usize);
        let headers = interface.map(|interface| headers::parse(interface.link, block.packet_data()));
        let stamp = u64::from(block.ts_high) << 32 | u64::from(block.ts_low);
        (block.caplen, block.origlen, block.if_id, stamp, interface.zip(headers))
    });
    let Ok((captured, original, id, stamp, found)) = read else {
        let wanted = "lengths that agree; the file is damaged, capture again";
        return Err(source.value(at, "enhanced packet block", "unreadable", wanted));
    };
    let Some((interface, headers)) = found else {
        let wanted = format!(
            "one of the {} described before it; the file is damaged, capture again",
            interfaces.len()
        );
        return Err(source.value(at + 8, "the packet's interface", id, wanted));
    };
    let lengths = Lengths { captured, original }.check(source)?;
    // A u64 times 10^9 fits u128 and, divided, i128.
    let nanos = (u128::from(stamp) * 1_000_000_000 / interface.units_per_s) as i128;
    let stamp_ns = nanos + i128::from(interface.offset_s) * 1_000_000_000;
    into.packet(source, interface.link, stamp_ns, lengths, headers)
}
