//! Parses the fields of a packet's headers that a NIC uses (addresses, ports, DSCP, VLAN tags), and what tells packets
//! apart: their direction and a digest.
//!
//! It makes one pass over the captured bytes; fields beyond the snap length are absent. Must not know files or time.
//! Tunnels (GRE, VXLAN), MPLS and PPPoE are not opened: such packets are hashed by their outer addresses or not at all,
//! as on a NIC without tunnel offload.

use super::FlowKey;
use serde::Serialize;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
/// 802.1Q, 802.1ad, and the tag type that switches used for stacked tags before 802.1ad.
const ETHERTYPE_TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// Tags and IPv6 extension headers that are followed at most; NIC parsers stop far earlier.
const MAX_NESTING: usize = 8;
/// Bytes from the IP header on that the digest of a packet covers: enough for sequence numbers and the start of the payload.
const DIGEST_BYTES: usize = 128;
/// "Sent by us" of the packet type in a Linux cooked header.
const SLL_OUTGOING: u16 = 4;
/// An Ethernet header without tags (IEEE 802.3).
pub const ETHERNET_BYTES: u32 = 14;
/// The shortest Ethernet frame without its check sequence (IEEE 802.3: 64 bytes with it). A sender pads what is shorter.
pub const SHORTEST_FRAME: u32 = 60;

/// A frame check sequence.
pub(super) const FCS_BYTES: u32 = 4;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// The header before the IP header (<https://www.tcpdump.org/linktypes.html>).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkType {
    /// Ethernet, with or without VLAN tags.
    Ethernet,
    /// BSD loopback: four bytes of address family.
    Loopback,
    /// No header before the IP header.
    RawIp,
    /// Linux cooked, version 1 (`tcpdump -i any` of old).
    LinuxSll,
    /// Linux cooked, version 2 (`tcpdump -i any` now).
    LinuxSll2,
}

impl LinkType {
    /// The link type with this LINKTYPE_ number, if it is supported.
    pub(super) fn from_number(number: u16) -> Option<LinkType> {
        Some(match number {
            1 => LinkType::Ethernet,
            0 | 108 => LinkType::Loopback,
            12 | 14 | 101 | 228 | 229 => LinkType::RawIp,
            113 => LinkType::LinuxSll,
            276 => LinkType::LinuxSll2,
            _ => return None,
        })
    }

    /// Bytes of the header in the place of an Ethernet header, without VLAN tags.
    pub(super) fn header_bytes(self) -> u32 {
        match self {
            LinkType::Ethernet => ETHERNET_BYTES,
            LinkType::Loopback => 4,
            LinkType::RawIp => 0,
            LinkType::LinuxSll => 16,
            LinkType::LinuxSll2 => 20,
        }
    }
}

/// The fields read from a packet's headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Headers {
    pub(super) flow: Option<FlowKey>,
    pub(super) dscp: Option<u8>,
    /// VLAN tags in front of the IP header.
    pub(super) tags: u8,
    /// Whether the capturing host sent it.
    pub(super) is_outgoing: bool,
    /// Whether its last four bytes are the check sequence of an Ethernet frame.
    pub(super) ends_in_fcs: bool,
    /// Of the first bytes of an IP packet, without what a router changes; none if it is not IP.
    pub(super) digest: Option<u64>,
}

/// Reads a packet's headers.
pub(super) fn parse(link: LinkType, data: &[u8]) -> Headers {
    match link {
        LinkType::Ethernet => {
            let headers = ether_payload(word(data, 12), data.get(14..));
            Headers { ends_in_fcs: ends_in_fcs(data, &headers), ..headers }
        }
        LinkType::LinuxSll => Headers {
            is_outgoing: word(data, 0) == Some(SLL_OUTGOING),
            ..ether_payload(word(data, 14), data.get(16..))
        },
        LinkType::LinuxSll2 => Headers {
            is_outgoing: data.get(10).copied().map(u16::from) == Some(SLL_OUTGOING),
            ..ether_payload(word(data, 0), data.get(20..))
        },
        // The family is in the capturing host's byte order and its IPv6 number differs among systems (10, 24, 28, 30);
        // the version in the IP header is unambiguous.
        LinkType::Loopback => ip(data.get(4..)),
        LinkType::RawIp => ip(Some(data)),
    }
}

/// Whether a frame ends in its check sequence: the CRC-32 of the bytes before it, the lowest byte first (IEEE 802.3, 3.2.9).
/// Of other bytes one in 2^32 does. An IP packet that fills the frame leaves no room for one.
fn ends_in_fcs(frame: &[u8], headers: &Headers) -> bool {
    let Some((bytes, fcs)) = frame.split_last_chunk::<{ FCS_BYTES as usize }>() else { return false };
    let at = ETHERNET_BYTES as usize + 4 * usize::from(headers.tags);
    let said = headers.flow.and_then(|flow| match flow.source {
        IpAddr::V4(_) => word(frame, at + 2).map(usize::from),
        IpAddr::V6(_) => word(frame, at + 4).map(|payload| 40 + usize::from(payload)),
    });
    let has_room = said.is_none_or(|packet| at + packet <= bytes.len());
    has_room && bytes.len() >= SHORTEST_FRAME as usize && crc32fast::hash(bytes) == u32::from_le_bytes(*fcs)
}

fn word(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
}

fn ether_payload(mut ethertype: Option<u16>, mut data: Option<&[u8]>) -> Headers {
    let mut tags = 0;
    while let (Some(kind), Some(rest)) = (ethertype, data) {
        if ETHERTYPE_TAGS.contains(&kind) && usize::from(tags) < MAX_NESTING {
            tags += 1;
            ethertype = word(rest, 2);
            data = rest.get(4..);
            continue;
        }
        let is_ip = matches!(kind, ETHERTYPE_IPV4 | ETHERTYPE_IPV6);
        return Headers { tags, ..ip(data.filter(|_| is_ip)) };
    }
    Headers { tags, ..Headers::default() }
}

fn ip(data: Option<&[u8]>) -> Headers {
    let found = data.and_then(|data| match data.first()? >> 4 {
        4 => ipv4(data),
        6 => ipv6(data),
        _ => None,
    });
    found.unwrap_or_default()
}

/// A digest of an IP packet; `changed` are the places of bytes that a router changes.
fn digest(packet: &[u8], changed: &[usize]) -> Option<u64> {
    let mut bytes = [0; DIGEST_BYTES];
    let length = packet.len().min(DIGEST_BYTES);
    bytes[..length].copy_from_slice(&packet[..length]);
    for at in changed {
        bytes[*at] = 0;
    }
    let mut hasher = DefaultHasher::new();
    bytes[..length].hash(&mut hasher);
    Some(hasher.finish())
}

fn ipv4(data: &[u8]) -> Option<Headers> {
    let header = data.get(..20)?;
    let header_bytes = usize::from(header[0] & 0xf) * 4;
    if header_bytes < 20 {
        return None;
    }
    let address =
        |at: usize| IpAddr::V4(Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]));
    let protocol = header[9];
    // More-fragments flag or an offset: a fragment.
    let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
    let ports = if fragment { None } else { ports(protocol, data.get(header_bytes..)) };
    let flow = FlowKey { source: address(12), destination: address(16), protocol, ports };
    // Time to live, checksum.
    let digest = digest(data, &[8, 10, 11]);
    Some(Headers { flow: Some(flow), dscp: Some(header[1] >> 2), digest, ..Headers::default() })
}

fn ipv6(data: &[u8]) -> Option<Headers> {
    let header = data.get(..40)?;
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&header[at..at + 16]);
        IpAddr::V6(Ipv6Addr::from(octets))
    };
    let traffic_class = (header[0] & 0xf) << 4 | header[1] >> 4;
    let mut protocol = header[6];
    let mut rest = data.get(40..);
    let mut fragment = false;
    for _ in 0..MAX_NESTING {
        let Some(next) = rest.filter(|rest| rest.len() >= 8) else { break };
        let bytes = match protocol {
            // Hop-by-hop, routing, destination options: length in units of 8 beyond the first 8.
            0 | 43 | 60 => (usize::from(next[1]) + 1) * 8,
            44 => {
                fragment = true;
                8
            }
            // Authentication header: length in units of 4, less 2.
            51 => (usize::from(next[1]) + 2) * 4,
            _ => break,
        };
        protocol = next[0];
        rest = next.get(bytes..);
        // Only the first fragment has another header after the fragment header, and NICs do not read it.
        if fragment {
            break;
        }
    }
    let ports = if fragment { None } else { ports(protocol, rest) };
    let flow = FlowKey { source: address(8), destination: address(24), protocol, ports };
    // Hop limit.
    let digest = digest(data, &[7]);
    Some(Headers { flow: Some(flow), dscp: Some(traffic_class >> 2), digest, ..Headers::default() })
}

fn ports(protocol: u8, data: Option<&[u8]>) -> Option<(u16, u16)> {
    match protocol {
        TCP | UDP => Some((word(data?, 0)?, word(data?, 2)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// IPv4, DSCP 46 (expedited forwarding, TOS 0xb8), 10.0.0.1:0x1234 -> 10.0.0.2:0x0050, TCP.
    const V4: [u8; 24] =
        [0x45, 0xb8, 0, 24, 0, 0, 0x40, 0, 64, TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x12, 0x34, 0x00, 0x50];

    fn v4_flow() -> FlowKey {
        FlowKey {
            source: "10.0.0.1".parse().unwrap(),
            destination: "10.0.0.2".parse().unwrap(),
            protocol: TCP,
            ports: Some((0x1234, 0x50)),
        }
    }

    fn v6(next: u8, rest: &[u8]) -> Vec<u8> {
        // Traffic class 0x28: DSCP 10 (AF11). ::1 -> ::2.
        let mut data = vec![0x62, 0x80, 0, 0, 0, 0, next, 64];
        data.extend(Ipv6Addr::from(1).octets());
        data.extend(Ipv6Addr::from(2).octets());
        data.extend(rest);
        data
    }

    #[test]
    fn every_link_type_leads_to_the_same_flow() {
        let wanted = parse(LinkType::RawIp, &V4);
        let with = |head: &[u8]| [head, &V4].concat();
        let mut ethernet = vec![0; 12];
        assert_eq!((wanted.flow, wanted.dscp, wanted.tags), (Some(v4_flow()), Some(46), 0));
        assert_eq!(parse(LinkType::Loopback, &with(&[2, 0, 0, 0])), wanted);
        assert_eq!(parse(LinkType::LinuxSll, &with(&[[0; 14].as_slice(), &[8, 0]].concat())), wanted);
        assert_eq!(parse(LinkType::LinuxSll2, &with(&[[8, 0].as_slice(), &[0; 18]].concat())), wanted);
        ethernet.extend([0x08, 0x00]);
        assert_eq!(parse(LinkType::Ethernet, &with(&ethernet)), wanted);
        // Two stacked tags: 802.1ad VLAN 5, 802.1Q VLAN 7.
        ethernet.truncate(12);
        ethernet.extend([0x88, 0xa8, 0, 5, 0x81, 0x00, 0, 7, 0x08, 0x00]);
        assert_eq!(parse(LinkType::Ethernet, &with(&ethernet)), Headers { tags: 2, ..wanted });
    }

    #[test]
    fn ipv6_extension_headers_are_stepped_over() {
        let udp = [0x00, 0x35, 0x10, 0x00];
        let plain = parse(LinkType::RawIp, &v6(UDP, &udp));
        assert_eq!(plain.dscp, Some(10));
        assert_eq!(plain.flow.unwrap().ports, Some((53, 4096)));
        let hop_by_hop = [[UDP, 0, 0, 0, 0, 0, 0, 0].as_slice(), &udp].concat();
        assert_eq!(parse(LinkType::RawIp, &v6(0, &hop_by_hop)).flow, plain.flow);
        // A fragment: protocol known, ports not.
        let fragment = [[UDP, 0, 0, 1, 0, 0, 0, 9].as_slice(), &udp].concat();
        let flow = parse(LinkType::RawIp, &v6(44, &fragment)).flow.unwrap();
        assert_eq!((flow.protocol, flow.ports), (UDP, None));
    }

    #[test]
    fn fragments_and_cut_headers_have_no_ports() {
        let mut fragment = V4;
        fragment[6] = 0x20;
        assert_eq!(parse(LinkType::RawIp, &fragment).flow.unwrap().ports, None);
        assert_eq!(parse(LinkType::RawIp, &V4[..22]).flow.unwrap().ports, None);
        assert_eq!(parse(LinkType::RawIp, &V4[..19]), Headers::default());
    }

    #[test]
    fn what_is_not_ip_has_no_flow() {
        let mut arp = vec![0; 12];
        arp.extend([0x08, 0x06, 0, 1, 8, 0]);
        assert_eq!(parse(LinkType::Ethernet, &arp), Headers::default());
        assert_eq!(parse(LinkType::RawIp, &[0x15; 40]), Headers::default());
        assert_eq!(
            parse(LinkType::RawIp, &[0x44; 40]),
            Headers::default(),
            "a header length of 16 cannot be"
        );
        // Tags without end.
        let endless = parse(LinkType::Ethernet, &[0x81, 0x00].repeat(50));
        assert_eq!(endless, Headers { tags: 8, ..Headers::default() });
    }
}
