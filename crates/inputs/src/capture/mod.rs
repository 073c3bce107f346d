//! Packet captures as input of a NIC: arrival time, length and flow of each packet.
//!
//! Must not know NICs or queues: it computes the RSS hash, [`crate::IndirectionTable`] the queue. Payloads are not
//! kept; a packet takes 32 bytes of memory where it is kept, a flow is stored once.

mod headers;
mod pcap;
mod pcapng;

use crate::error::InputError;
use crate::rss::{MICROSOFT_KEY, toeplitz};
use crate::source::Source;
use hashbrown::HashTable;
use headers::Headers;
pub use headers::LinkType;
use serde::Serialize;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::path::Path;

/// Packets that one capture may hold: 2^23, 256 MiB of records. A guess at what a run can use: a run simulates seconds,
/// and 10 Gb/s of 1000-byte packets are 2^23 packets in 6.7 s. Without the bound a compressed file of zeros could fill
/// memory.
pub const MAX_PACKETS: usize = 1 << 23;
/// Flows that one capture may hold: 2^20, 60 MiB with their table. As many as a synthetic NIC may have.
pub const MAX_FLOWS: usize = 1 << 20;
/// The longest accepted packet. Linux's BIG TCP builds 512 KiB on loopback; 16 MiB leaves room.
const MAX_PACKET_BYTES: u32 = 16 << 20;
/// Longest accepted time between first and last packet: 2^62 ns, 146 years. Beyond it sums overflow.
const MAX_SPAN_NS: i128 = 1 << 62;
/// What the reader accepts, for messages.
const WANTED: &str =
    "a pcap or pcapng capture (plain, gzip, xz or zstd), as tcpdump -w or Wireshark write it";

/// One packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Nanoseconds since the packet that is first in the file; negative for one that was stamped before it.
    pub at_ns: i64,
    /// The length before the snap length, or the captured length where the file says that more was captured than there was.
    /// It includes the link header, and the frame check sequence only where the capture has it.
    pub bytes: u32,
    /// RSS hash under [`MICROSOFT_KEY`]; 0 for a packet that is not IP, as NICs report it.
    pub hash: u32,
    /// Index into [`Capture::flows`]; none if it is not IP, or the snap length cut its addresses off.
    pub flow: Option<u32>,
    /// Differentiated services code point (RFC 2474), 0..=63; none if it is not IP.
    pub dscp: Option<u8>,
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
    /// Whether the file ends within a packet, as where the capture was killed or copied in part: the whole packets before
    /// it count.
    pub is_cut_off: bool,
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
    /// Sum of original lengths, bytes.
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
        let mut packets = Vec::new();
        let rest = each_packet(path, &mut |packet| {
            packets.push(packet);
            ControlFlow::Continue(())
        })?;
        in_order(&mut packets);
        Ok(Capture {
            packets,
            flows: rest.flows,
            format: rest.format,
            links: rest.links,
            oddities: rest.oddities,
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
            min_bytes: self.packets.iter().map(|packet| packet.bytes).min().unwrap_or(0),
            max_bytes: self.packets.iter().map(|packet| packet.bytes).max().unwrap_or(0),
            mean_bytes: if packets == 0 { 0.0 } else { bytes as f64 / packets as f64 },
            packets_per_s: rate(packets.saturating_sub(1)),
            bytes_per_s: rate(bytes - last_bytes),
        }
    }
}

/// Sorts packets by their times and lets the first have time 0. Packets of one time keep their order.
pub fn in_order(packets: &mut [Packet]) {
    packets.sort_by_key(|packet| packet.at_ns);
    let first = packets.first().map_or(0, |packet| packet.at_ns);
    packets.iter_mut().for_each(|packet| packet.at_ns -= first);
}

/// A capture without its packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CaptureRest {
    /// The flows in order of first appearance.
    pub flows: Vec<FlowKey>,
    /// The file format.
    pub format: CaptureFormat,
    /// Link types of the interfaces that packets came from, each once.
    pub links: Vec<LinkType>,
    /// What the file says that no wire delivers.
    pub oddities: CaptureOddities,
}

/// Reads a capture and passes each packet on, in the order of the file, without keeping it. A caller that breaks ends the
/// reading early.
///
/// # Errors
/// As [`Capture::read`].
pub fn each_packet(
    path: &Path,
    on: &mut dyn FnMut(Packet) -> ControlFlow<()>,
) -> Result<CaptureRest, InputError> {
    let mut source = Source::open(path)?;
    let first = source.peek(4)?;
    let format = match first.get(..4) {
        Some([0x0a, 0x0d, 0x0d, 0x0a]) => CaptureFormat::Pcapng,
        Some(magic) if pcap::is_magic(magic) => CaptureFormat::Pcap,
        _ => return Err(source.wrong_format(WANTED)),
    };
    let mut collector = Collector::new(format, on);
    let read = match format {
        CaptureFormat::Pcap => pcap::read(&mut source, &mut collector),
        CaptureFormat::Pcapng => pcapng::read(&mut source, &mut collector),
    };
    match read {
        Err(InputError::Cut { .. }) if collector.packets > 0 => collector.rest.oddities.is_cut_off = true,
        other => other?,
    }
    if collector.packets == 0 {
        let (path, what) = (path.to_owned(), "packets");
        return Err(InputError::NoRecords { path, what, remedy: "capture some traffic into it" });
    }
    Ok(collector.rest)
}

/// Collects what the two readers find.
struct Collector<'a> {
    rest: CaptureRest,
    on: &'a mut dyn FnMut(Packet) -> ControlFlow<()>,
    /// Indices of flows by the flow's hash in this table.
    known: HashTable<u32>,
    hasher: RandomState,
    /// RSS hash of each flow, so that a flow is hashed once.
    hashes: Vec<u32>,
    packets: usize,
    last_ns: i64,
    first_ns: Option<i128>,
}

impl<'a> Collector<'a> {
    fn new(format: CaptureFormat, on: &'a mut dyn FnMut(Packet) -> ControlFlow<()>) -> Collector<'a> {
        Collector {
            rest: CaptureRest {
                flows: Vec::new(),
                format,
                links: Vec::new(),
                oddities: CaptureOddities::default(),
            },
            on,
            known: HashTable::new(),
            hasher: RandomState::new(),
            hashes: Vec::new(),
            packets: 0,
            last_ns: 0,
            first_ns: None,
        }
    }

    /// Index and RSS hash of a flow; none if it is one too many.
    fn flow(&mut self, key: FlowKey) -> Option<(u32, u32)> {
        let flows = &mut self.rest.flows;
        let hash = self.hasher.hash_one(key);
        if let Some(index) = self.known.find(hash, |index| flows[*index as usize] == key) {
            return Some((*index, self.hashes[*index as usize]));
        }
        if flows.len() == MAX_FLOWS {
            return None;
        }
        let index = flows.len() as u32;
        flows.push(key);
        self.hashes.push(key.rss_hash(&MICROSOFT_KEY));
        self.known.insert_unique(hash, index, |index| self.hasher.hash_one(flows[*index as usize]));
        Some((index, self.hashes[index as usize]))
    }

    /// Passes a packet on; `source` is positioned at its start and builds the error if it is refused.
    fn packet(
        &mut self,
        source: &Source,
        link: LinkType,
        stamp_ns: i128,
        lengths: Lengths,
        headers: Headers,
    ) -> Result<ControlFlow<()>, InputError> {
        let offset = source.offset();
        if self.packets == MAX_PACKETS {
            let wanted = format!("at most {MAX_PACKETS}; cut the capture with editcap -c");
            return Err(source.value(offset, "number of packets", "larger", wanted));
        }
        let first = *self.first_ns.get_or_insert(stamp_ns);
        let since = stamp_ns - first;
        if since.abs() > MAX_SPAN_NS {
            let wanted = "within 146 years of the first packet; the file is damaged or its if_tsresol wrong";
            return Err(source.value(
                offset,
                "time stamp",
                format!("{since} ns after the first packet"),
                wanted,
            ));
        }
        // Bounded by MAX_SPAN_NS above.
        let at_ns = since as i64;
        self.rest.oddities.reordered += u64::from(at_ns < self.last_ns);
        if !self.rest.links.contains(&link) {
            self.rest.links.push(link);
        }
        let (flow, hash) = match headers.flow {
            None => (None, 0),
            Some(key) => {
                let Some((index, hash)) = self.flow(key) else {
                    let wanted = format!("at most {MAX_FLOWS}; cut the capture with editcap -c");
                    return Err(source.value(offset, "number of flows", "larger", wanted));
                };
                (Some(index), hash)
            }
        };
        self.packets += 1;
        self.last_ns = at_ns;
        self.rest.oddities.longer_than_said += u64::from(lengths.captured > lengths.original);
        let bytes = lengths.captured.max(lengths.original);
        Ok((self.on)(Packet { at_ns, bytes, hash, flow, dscp: headers.dscp }))
    }
}

/// A packet's two lengths in bytes, which both formats contain.
#[derive(Clone, Copy)]
struct Lengths {
    captured: u32,
    original: u32,
}

impl Lengths {
    fn check(self, source: &Source) -> Result<Lengths, InputError> {
        for (what, length) in
            [("the packet's original length", self.original), ("the packet's captured length", self.captured)]
        {
            if length > MAX_PACKET_BYTES {
                let wanted = format!("at most {MAX_PACKET_BYTES} bytes; the file is damaged, capture again");
                return Err(source.value(source.offset(), what, length, wanted));
            }
        }
        Ok(self)
    }
}

fn link_type(source: &Source, offset: u64, number: u16) -> Result<LinkType, InputError> {
    LinkType::from_number(number).ok_or_else(|| {
        let wanted = "1 (Ethernet), 0 or 108 (loopback), 101, 12, 14, 228 or 229 (raw IP), 113 or 276 (Linux \
                      cooked); capture on an Ethernet or loopback interface";
        source.value(offset, "link type", number, wanted)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let packet = |at_ns, bytes, flow| Packet { at_ns, bytes, hash: 0, flow, dscp: None };
        let capture = Capture {
            packets: vec![packet(0, 100, None), packet(1000, 200, Some(0)), packet(2000, 300, Some(0))],
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
