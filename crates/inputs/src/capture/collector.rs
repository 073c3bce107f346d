//! Collects the packets that the readers of both formats find: flows, times, and what is left out or said. Must not know how
//! a file holds a packet.

use super::headers::{ETHERNET_BYTES, FCS_BYTES, Headers, LinkType, SHORTEST_FRAME};
use super::{
    Capture, CaptureFormat, CaptureOddities, FlowKey, MAX_FLOWS, MAX_PACKET_BYTES, MAX_PACKETS, Packet,
};
use crate::error::InputError;
use crate::rss::MICROSOFT_KEY;
use crate::source::Source;
use hashbrown::HashTable;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::ops::ControlFlow;

/// Longest accepted time between first and last packet: 2^62 ns, 146 years. Beyond it sums overflow.
const MAX_SPAN_NS: i128 = 1 << 62;
/// Different packets among which a copy is looked for, as many as `editcap -d` compares.
const COPY_WINDOW: usize = 5;
/// More equal packets than this come from a sender that repeats itself, as packet generators do, and are no copies: few
/// captures have more than four interfaces that see a packet.
const COPIES_MOST: u32 = 4;
const NS_PER_S: i128 = 1_000_000_000;

/// A packet as a file holds it.
pub(super) struct Recorded {
    pub(super) link: LinkType,
    /// Nanoseconds since 1970; none if the file says no time.
    pub(super) stamp_ns: Option<i128>,
    pub(super) lengths: Lengths,
    /// Bytes of a frame check sequence at its end.
    pub(super) fcs_bytes: u32,
    pub(super) headers: Headers,
}

/// Collects what the two readers find.
pub(super) struct Collector<'a> {
    capture: Capture,
    on: &'a mut dyn FnMut(&Packet) -> ControlFlow<()>,
    /// Indices of flows by the flow's hash in this table.
    known: HashTable<u32>,
    hasher: RandomState,
    /// RSS hash of each flow, so that a flow is hashed once.
    hashes: Vec<u32>,
    recent: Recent,
    /// Stamp of the packet from which times count: the first that is not left out.
    first_ns: Option<i128>,
    last_ns: Option<i128>,
}

impl<'a> Collector<'a> {
    pub(super) fn new(
        format: CaptureFormat,
        on: &'a mut dyn FnMut(&Packet) -> ControlFlow<()>,
    ) -> Collector<'a> {
        Collector {
            capture: Capture {
                packets: Vec::new(),
                recorded: 0,
                flows: Vec::new(),
                format,
                links: Vec::new(),
                oddities: CaptureOddities::default(),
            },
            on,
            known: HashTable::new(),
            hasher: RandomState::new(),
            hashes: Vec::new(),
            recent: Recent::default(),
            first_ns: None,
            last_ns: None,
        }
    }

    /// The packets in the order of their times; those of one time keep their order. The earliest has time 0.
    pub(super) fn finish(mut self) -> Capture {
        let packets = &mut self.capture.packets;
        let backwards = packets.windows(2).filter(|pair| pair[1].at_ns < pair[0].at_ns).count();
        self.capture.oddities.reordered = backwards as u64;
        packets.sort_by_key(|packet| packet.at_ns);
        let first = packets.first().map_or(0, |packet| packet.at_ns);
        packets.iter_mut().for_each(|packet| packet.at_ns -= first);
        self.capture
    }

    /// Zeros that are no packets fill the file.
    pub(super) fn are_padding(&mut self) {
        self.capture.oddities.is_padded = true;
    }

    /// So many packets come that have no bytes.
    pub(super) fn are_without_bytes(&mut self, packets: u64) {
        self.capture.recorded += packets;
        self.capture.oddities.empty += packets;
    }

    /// The fractions of a second that were read as microseconds are nanoseconds.
    pub(super) fn read_as_nanoseconds(&mut self) {
        self.capture.oddities.are_nanoseconds = true;
        let in_ns = |stamp_ns: i128| stamp_ns - stamp_ns.rem_euclid(NS_PER_S) * 999 / 1000;
        let Some(first_ns) = self.first_ns else { return };
        let first = in_ns(first_ns);
        for packet in &mut self.capture.packets {
            packet.at_ns = (in_ns(first_ns + i128::from(packet.at_ns)) - first) as i64;
        }
        self.first_ns = Some(first);
        self.last_ns = self.last_ns.map(in_ns);
    }

    /// Index and RSS hash of a flow; none if it is one too many.
    fn flow(&mut self, key: FlowKey) -> Option<(u32, u32)> {
        let flows = &mut self.capture.flows;
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

    /// Takes a packet; `source` is positioned at its start and builds the error if it is refused.
    pub(super) fn packet(
        &mut self,
        source: &Source,
        recorded: Recorded,
    ) -> Result<ControlFlow<()>, InputError> {
        let Recorded { link, stamp_ns, lengths, fcs_bytes, headers } = recorded;
        let offset = source.offset();
        if self.capture.recorded >= MAX_PACKETS as u64 {
            let wanted = format!("at most {MAX_PACKETS}; cut the capture with editcap -c");
            return Err(source.value(offset, "number of packets", "larger", wanted));
        }
        self.capture.recorded += 1;
        let odd = &mut self.capture.oddities;
        let bytes = lengths.captured.max(lengths.original);
        if bytes == 0 || headers.is_outgoing {
            odd.empty += u64::from(bytes == 0);
            odd.outgoing += u64::from(bytes > 0);
            return Ok(ControlFlow::Continue(()));
        }
        odd.longer_than_said += u64::from(lengths.captured > lengths.original);
        odd.without_time += u64::from(stamp_ns.is_none());
        if let Some(digest) = headers.digest {
            odd.copies = odd.copies.saturating_add_signed(self.recent.copies(digest));
        }
        // Those before the first that says its time come with it.
        self.last_ns = stamp_ns.or(self.last_ns);
        let since = self.last_ns.map_or(0, |stamp_ns| stamp_ns - *self.first_ns.get_or_insert(stamp_ns));
        if since.abs() > MAX_SPAN_NS {
            let found = format!("{since} ns after the first packet");
            let wanted = "within 146 years of the first packet; the file is damaged or its if_tsresol wrong";
            return Err(source.value(offset, "time stamp", found, wanted));
        }
        if !self.capture.links.contains(&link) {
            self.capture.links.push(link);
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
        // Of a packet that was cut, the last bytes in the file are not its end.
        let has_undeclared = fcs_bytes == 0 && headers.ends_in_fcs && lengths.captured >= lengths.original;
        self.capture.oddities.undeclared_fcs += u64::from(has_undeclared);
        let fcs_bytes = if has_undeclared { FCS_BYTES } else { fcs_bytes };
        let payload = bytes.saturating_sub(fcs_bytes).saturating_sub(link.header_bytes());
        let frame = payload + ETHERNET_BYTES;
        self.capture.oddities.shorter_than_a_frame += u64::from(frame < SHORTEST_FRAME);
        let packet = Packet {
            // Bounded by MAX_SPAN_NS above.
            at_ns: since as i64,
            bytes: frame.max(SHORTEST_FRAME),
            hash,
            flow,
            // Bounded by MAX_PACKETS above.
            number: self.capture.recorded as u32,
            dscp: headers.dscp,
            tags: headers.tags,
        };
        self.capture.packets.push(packet);
        Ok((self.on)(&packet))
    }
}

/// Digests of the last different packets, the last one in front, with how often each came.
#[derive(Default)]
struct Recent(VecDeque<(u64, u32)>);

impl Recent {
    /// By how much a packet changes the number of copies.
    fn copies(&mut self, digest: u64) -> i64 {
        let at = self.0.iter().position(|(known, _)| *known == digest);
        let times = at.and_then(|at| self.0.remove(at)).map_or(1, |(_, times)| times.saturating_add(1));
        self.0.truncate(COPY_WINDOW - 1);
        self.0.push_front((digest, times));
        match times {
            1 => 0,
            2..=COPIES_MOST => 1,
            // All that were taken for copies are none.
            more if more == COPIES_MOST + 1 => 1 - i64::from(COPIES_MOST),
            _ => 0,
        }
    }
}

/// A packet's two lengths in bytes, which both formats contain.
#[derive(Clone, Copy)]
pub(super) struct Lengths {
    pub(super) captured: u32,
    pub(super) original: u32,
}

impl Lengths {
    pub(super) fn check(self, source: &Source) -> Result<Lengths, InputError> {
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
