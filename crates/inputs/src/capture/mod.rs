//! Packet captures as input of a NIC: arrival time, length and flow of each packet.
//!
//! Must not know NICs or queues: it computes the RSS hash, [`crate::IndirectionTable`] the queue. Payloads are not
//! kept; a packet takes 32 bytes of memory where it is kept, a flow is stored once.

mod collector;
mod foreign;
mod headers;
mod pcap;
mod pcapng;

use crate::error::InputError;
use crate::rss::toeplitz;
use crate::source::Source;
use collector::Collector;
pub use headers::{ETHERNET_BYTES, LinkType, SHORTEST_FRAME};
use serde::Serialize;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::path::Path;

/// Packets that one capture may hold: 2^23, 256 MiB of records. A guess at what a run can use: a run simulates seconds,
/// and 10 Gb/s of 1000-byte packets are 2^23 packets in 6.7 s. Without the bound a compressed file of zeros could fill
/// memory.
pub const MAX_PACKETS: usize = 1 << 23;
/// Most zeros behind the last packet, of which a small archive has any number: as many bytes as so many headers of packets.
const MAX_PADDING_BYTES: u64 = 16 * MAX_PACKETS as u64;
/// Flows that one capture may hold: 2^20, 60 MiB with their table. As many as a synthetic NIC may have.
pub const MAX_FLOWS: usize = 1 << 20;
/// The longest accepted packet. Linux's BIG TCP builds 512 KiB on loopback; 16 MiB leaves room.
const MAX_PACKET_BYTES: u32 = 16 << 20;
/// A gap dominates if it is more than half of the capture and this many times as long as the median gap. Assumption: traffic
/// that pauses by itself, in bursts of some packets, stays below.
const DOMINANT_GAP: u64 = 1000;
/// What the reader accepts, for messages.
const WANTED: &str =
    "a pcap or pcapng capture (plain, gzip, xz or zstd), as tcpdump -w or Wireshark write it";

/// One packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Nanoseconds since the capture's earliest packet.
    pub at_ns: i64,
    /// The length of the Ethernet frame that a NIC receives, VLAN tags included and the frame check sequence not, whatever
    /// link header the capture has. It is the length before the snap length, or the captured length where the file says that
    /// more was captured than there was.
    pub bytes: u32,
    /// RSS hash under [`MICROSOFT_KEY`]; 0 for a packet that is not IP, as NICs report it.
    pub hash: u32,
    /// Index into [`Capture::flows`]; none if it is not IP, or the snap length cut its addresses off.
    pub flow: Option<u32>,
    /// Its number in the file, from 1, as Wireshark shows it.
    pub number: u32,
    /// Differentiated services code point (RFC 2474), 0..=63; none if it is not IP.
    pub dscp: Option<u8>,
    /// VLAN tags of 4 bytes, which are part of its length.
    pub tags: u8,
}

/// The fields by which an RSS NIC distinguishes flows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
pub struct FlowKey {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// IP protocol number: 6 TCP, 17 UDP.
    pub protocol: u8,
    /// Source and destination port of TCP and UDP; none for other protocols, for fragments (as NICs do:
    /// only the first fragment carries ports) and where the snap length cut them off.
    pub ports: Option<(u16, u16)>,
}

impl FlowKey {
    /// The flow's RSS hash under a key: over addresses and ports, or over addresses if there are no ports.
    pub fn rss_hash(&self, key: &[u8; 40]) -> u32 {
        let mut data = [0; 36];
        let mut length = 0;
        let mut push = |bytes: &[u8]| {
            data[length..length + bytes.len()].copy_from_slice(bytes);
            length += bytes.len();
        };
        for address in [self.source, self.destination] {
            match address {
                IpAddr::V4(address) => push(&address.octets()),
                IpAddr::V6(address) => push(&address.octets()),
            }
        }
        if let Some((source, destination)) = self.ports {
            push(&source.to_be_bytes());
            push(&destination.to_be_bytes());
        }
        toeplitz(key, &data[..length])
    }
}

/// The file format of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CaptureFormat {
    /// The classic libpcap format, either byte order, micro- or nanoseconds.
    Pcap,
    /// pcapng (draft-ietf-opsawg-pcapng).
    Pcapng,
}

/// A capture in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capture {
    /// The packets in the order of their times; those of one time in the order of the file. The first has time 0.
    pub packets: Vec<Packet>,
    /// Packets of the file, with those that are left out.
    pub recorded: u64,
    /// The flows in order of first appearance.
    pub flows: Vec<FlowKey>,
    /// The file format.
    pub format: CaptureFormat,
    /// Link types of the interfaces that packets came from, each once.
    pub links: Vec<LinkType>,
    /// What the file says that no wire delivers.
    pub oddities: CaptureOddities,
}

/// What a capture file says that no wire delivers, and that its readers put right.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct CaptureOddities {
    /// Packets whose time is before that of their predecessor in the file, as where several interfaces or queues were
    /// captured: all packets are sorted by time.
    pub reordered: u64,
    /// Packets of which more bytes were captured than their original length says, as some capture cards write: the
    /// captured length counts.
    pub longer_than_said: u64,
    /// Packets whose frame is shorter than a wire has, as where a sender is captured or the link has no Ethernet header:
    /// each counts as [`SHORTEST_FRAME`] bytes.
    pub shorter_than_a_frame: u64,
    /// Packets that end in a frame check sequence of which the file says nothing: it is no part of their length.
    pub undeclared_fcs: u64,
    /// Packets without bytes: they are left out.
    pub empty: u64,
    /// Packets that the capturing host sent, as Linux cooked headers and flags of pcapng say: they are left out.
    pub outgoing: u64,
    /// Packets with the bytes of one just before them, as where two interfaces or both ends of a link were captured: they
    /// are played like all others.
    pub copies: u64,
    /// Packets without a time, which pcapng's simple packet blocks hold: each has the time of the packet before it.
    pub without_time: u64,
    /// Whether a file of microseconds has fractions of a second in nanoseconds: they are read as such.
    pub are_nanoseconds: bool,
    /// Whether there are zeros behind the last packet, as where the file's space was reserved: they are left out.
    pub is_padded: bool,
    /// Whether the file ends within a packet or its compression, as where the capture was killed or copied in part: the
    /// whole packets before that count.
    pub is_cut_off: bool,
}

/// The longest time without a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct CaptureGap {
    /// How long it is, nanoseconds.
    pub ns: u64,
    /// Number in the file of the packet before it.
    pub after_packet: u32,
    /// Number in the file of the packet behind it.
    pub before_packet: u32,
}

/// A summary of a capture.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CaptureInfo {
    /// The file format.
    pub format: CaptureFormat,
    /// Link types, each once.
    pub links: Vec<LinkType>,
    /// Packets.
    pub packets: u64,
    /// Sum of the lengths of their Ethernet frames, bytes.
    pub bytes: u64,
    /// Distinct flows.
    pub flows: u64,
    /// Packets that belong to no flow.
    pub without_flow: u64,
    /// What the file says that no wire delivers.
    #[serde(flatten)]
    pub oddities: CaptureOddities,
    /// From first to last packet, nanoseconds.
    pub duration_ns: u64,
    /// The longest gap, if it dominates: a packet with a wrong time, or a pause.
    pub dominant_gap: Option<CaptureGap>,
    /// Shortest packet, bytes.
    pub min_bytes: u32,
    /// Longest packet, bytes. Above 1514 (or the MTU plus 14) the capture was taken before segmentation.
    pub max_bytes: u32,
    /// Mean packet, bytes.
    pub mean_bytes: f64,
    /// Mean packets per second: gaps over duration; none if all packets have one time stamp.
    pub packets_per_s: Option<f64>,
    /// Mean bytes per second; none if all packets have one time stamp.
    pub bytes_per_s: Option<f64>,
}

impl Capture {
    /// Reads a capture.
    ///
    /// # Errors
    /// One [`InputError`] if the file cannot be read, is of another kind, has no whole packet, or holds an
    /// impossible length, time or link type.
    pub fn read(path: &Path) -> Result<Capture, InputError> {
        Capture::read_while(path, &mut |_| ControlFlow::Continue(()))
    }

    /// Reads a capture until `on`, which is called for each packet in the order of the file, breaks. Only the packet's
    /// length and flow are final then.
    ///
    /// # Errors
    /// As [`Capture::read`].
    pub fn read_while(
        path: &Path,
        on: &mut dyn FnMut(&Packet) -> ControlFlow<()>,
    ) -> Result<Capture, InputError> {
        let mut source = Source::open(path)?;
        let format = match source.peek(4)?.get(..4) {
            Some([0x0a, 0x0d, 0x0d, 0x0a]) => CaptureFormat::Pcapng,
            Some(magic) if pcap::is_magic(magic) => CaptureFormat::Pcap,
            _ => {
                if let Some((found, remedy)) = foreign::of(source.peek(foreign::LOOK_BYTES)?) {
                    return Err(InputError::Foreign { path: path.to_owned(), found, remedy });
                }
                return Err(source.wrong_format(WANTED));
            }
        };
        let mut collector = Collector::new(format, on);
        let read = match format {
            CaptureFormat::Pcap => pcap::read(&mut source, &mut collector),
            CaptureFormat::Pcapng => pcapng::read(&mut source, &mut collector),
        };
        let is_cut_off = match &read {
            Err(InputError::Cut { .. }) => true,
            Err(InputError::Read { source, .. }) => source.kind() == ErrorKind::UnexpectedEof,
            _ => false,
        };
        let mut capture = collector.finish();
        match is_cut_off && !capture.packets.is_empty() {
            true => capture.oddities.is_cut_off = true,
            false => read?,
        }
        if capture.packets.is_empty() {
            let (what, remedy) = match capture.recorded {
                0 => ("packets", "capture some traffic into it"),
                _ => (
                    "packets that a NIC receives",
                    "all of them were sent by the capturing host or have no bytes; capture on the host that receives",
                ),
            };
            return Err(InputError::NoRecords { path: path.to_owned(), what, remedy });
        }
        Ok(capture)
    }

    /// The longest gap, if most of the capture is in it and it is far longer than the others.
    pub fn dominant_gap(&self) -> Option<CaptureGap> {
        let pairs = || self.packets.windows(2);
        let between = |pair: &[Packet]| (pair[1].at_ns - pair[0].at_ns).unsigned_abs();
        let longest = pairs().max_by_key(|pair| between(pair))?;
        let mut gaps: Vec<u64> = pairs().map(between).collect();
        if gaps.len() < 2 {
            return None;
        }
        let middle = (gaps.len() - 1) / 2;
        let (_, median, _) = gaps.select_nth_unstable(middle);
        let ns = between(longest);
        let span_ns = self.packets.last()?.at_ns.unsigned_abs();
        let dominates = ns > span_ns / 2 && ns / DOMINANT_GAP > *median;
        dominates.then_some(CaptureGap {
            ns,
            after_packet: longest[0].number,
            before_packet: longest[1].number,
        })
    }

    /// The summary.
    pub fn info(&self) -> CaptureInfo {
        let packets = self.packets.len() as u64;
        let bytes: u64 = self.packets.iter().map(|packet| u64::from(packet.bytes)).sum();
        let duration_ns = self.packets.last().map_or(0, |packet| packet.at_ns.unsigned_abs());
        let seconds = duration_ns as f64 / 1e9;
        // N packets span N-1 gaps; the last packet's bytes are not part of them either.
        let last_bytes = self.packets.last().map_or(0, |packet| u64::from(packet.bytes));
        let rate = |count: u64| (duration_ns > 0).then(|| count as f64 / seconds);
        CaptureInfo {
            format: self.format,
            links: self.links.clone(),
            packets,
            bytes,
            flows: self.flows.len() as u64,
            without_flow: self.packets.iter().filter(|packet| packet.flow.is_none()).count() as u64,
            oddities: self.oddities,
            duration_ns,
            dominant_gap: self.dominant_gap(),
            min_bytes: self.packets.iter().map(|packet| packet.bytes).min().unwrap_or(0),
            max_bytes: self.packets.iter().map(|packet| packet.bytes).max().unwrap_or(0),
            mean_bytes: if packets == 0 { 0.0 } else { bytes as f64 / packets as f64 },
            packets_per_s: rate(packets.saturating_sub(1)),
            bytes_per_s: rate(bytes - last_bytes),
        }
    }
}

/// The link type of this number, which the file says at this offset.
fn link_type(source: &Source, offset: u64, number: u16) -> Result<LinkType, InputError> {
    LinkType::from_number(number).ok_or_else(|| {
        let wanted = format!(
            "1 (Ethernet), 0 or 108 (loopback), 101, 12, 14, 228 or 229 (raw IP), 113 or 276 (Linux cooked); {}",
            foreign::of_link(number)
        );
        source.value(offset, "link type", number, wanted)
    })
}

/// The error for more zeros behind the last packet, which ends at this offset, than are read.
fn too_much_padding(source: &Source, end: u64) -> InputError {
    let wanted =
        format!("at most {MAX_PADDING_BYTES} bytes; cut them off the unpacked file with `head -c {end}`");
    source.value(end, "zeros behind the last packet", "more", wanted)
}

/// The error for a capture file behind another one.
fn another_file(source: &Source) -> InputError {
    let offset = source.offset();
    let wanted = format!(
        "a packet; two files were put one behind the other: join them with `mergecap -w OUT FIRST SECOND`, or take them \
         apart with `head -c {offset}` and `tail -c +{}`",
        offset + 1
    );
    source.value(offset, "the next record", "the start of another capture file", wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rss::MICROSOFT_KEY;

    #[test]
    fn a_flow_hashes_as_microsofts_vectors_do() {
        let key = FlowKey {
            source: "66.9.149.187".parse().unwrap(),
            destination: "161.142.100.80".parse().unwrap(),
            protocol: 6,
            ports: Some((2794, 1766)),
        };
        assert_eq!(key.rss_hash(&MICROSOFT_KEY), 0x51cc_c178);
        assert_eq!(FlowKey { ports: None, ..key }.rss_hash(&MICROSOFT_KEY), 0x323e_8fc2);
    }

    /// 3 packets of 100, 200, 300 bytes at 0, 1 and 2 us: 600 bytes, mean 200, 2 gaps in 2 us = 1 Mpps,
    /// 300 bytes in 2 us = 150 MB/s.
    #[test]
    fn the_summary_is_arithmetic() {
        let packet =
            |at_ns, bytes, flow| Packet { at_ns, bytes, hash: 0, flow, number: 0, dscp: None, tags: 0 };
        let capture = Capture {
            packets: vec![packet(0, 100, None), packet(1000, 200, Some(0)), packet(2000, 300, Some(0))],
            recorded: 3,
            flows: Vec::new(),
            format: CaptureFormat::Pcap,
            links: vec![LinkType::Ethernet],
            oddities: CaptureOddities::default(),
        };
        let info = capture.info();
        assert_eq!((info.packets, info.bytes, info.duration_ns, info.without_flow), (3, 600, 2000, 1));
        assert_eq!((info.min_bytes, info.max_bytes, info.mean_bytes), (100, 300, 200.0));
        assert_eq!((info.packets_per_s, info.bytes_per_s), (Some(1e6), Some(150e6)));
    }
}
