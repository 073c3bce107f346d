//! Captures and traces that a scenario names. Each file is read once and shared by all points of a sweep; together they
//! have a bound. Must not know which program or NIC uses a file.

use super::error::ScenarioError;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use waykeeper_inputs::{
    Capture, CaptureGap, CaptureOddities, MAX_RECORDS, Packet, SHORTEST_FRAME, Trace, Window,
};

/// Packets and records of all captures and traces of a scenario together: what one trace may have, 192 MiB.
pub(crate) const ENTRIES_MOST: usize = MAX_RECORDS;

/// One packet of a capture.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CapturedPacket {
    /// Time since the capture's first packet, ns.
    pub at_ns: f64,
    /// Bytes in the host's memory.
    pub bytes: u32,
    /// Toeplitz hash of its flow.
    pub hash: u32,
    /// Differentiated services code point; 0, the default class, if it is not IP.
    pub dscp: u8,
}

/// The packets of a capture as a NIC receives them.
#[derive(Clone, PartialEq, Debug)]
pub struct CapturedTraffic {
    /// In the order of their times.
    pub packets: Vec<CapturedPacket>,
    /// Packets of the file, with those that are left out.
    pub recorded: u64,
    /// Packets of the file that are longer than one on the wire, since segmentation offload merged them: each is several
    /// here.
    pub merged: u64,
    /// The longest gap, if it dominates.
    pub gap: Option<CaptureGap>,
    /// What the file says that no wire delivers.
    pub oddities: CaptureOddities,
}

impl CapturedTraffic {
    /// From first to last packet, ns.
    pub fn span_ns(&self) -> f64 {
        self.packets.last().map_or(0.0, |last| last.at_ns)
    }
}

/// The files that are in use, by their paths. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct InputFiles(Arc<Mutex<InUse>>);

#[derive(Debug, Default)]
struct InUse {
    /// By path and the longest packet on the wire without VLAN tags.
    captures: BTreeMap<(PathBuf, u32), Weak<CapturedTraffic>>,
    /// By path and the most instructions.
    traces: BTreeMap<(PathBuf, Option<u64>), Weak<Trace>>,
}

impl InputFiles {
    /// The packets of a capture as they are on a wire with packets of at most `longest` bytes without VLAN tags.
    pub fn capture(&self, path: &Path, longest: u32) -> Result<Arc<CapturedTraffic>, ScenarioError> {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (path.to_owned(), longest);
        if let Some(traffic) = files.captures.get(&key).and_then(Weak::upgrade) {
            return Ok(traffic);
        }
        let left = files.left();
        let (mut parts, mut merged) = (0, 0);
        let capture = Capture::read_while(path, &mut |packet| {
            let of_this = parts_of(packet, longest);
            parts += of_this as usize;
            merged += u64::from(of_this > 1);
            if parts > left { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .map_err(ScenarioError::input)?;
        if parts > left {
            return Err(ScenarioError::Input(format!(
                "{}: with it the scenario's captures and traces have more than {ENTRIES_MOST} packets and records, \
                 which are the most; cut the capture with editcap -c",
                path.display()
            )));
        }
        let traffic = Arc::new(CapturedTraffic {
            packets: capture.packets.iter().flat_map(|packet| split(packet, longest)).collect(),
            recorded: capture.recorded,
            merged,
            gap: capture.dominant_gap(),
            oddities: capture.oddities,
        });
        files.captures.insert(key, Arc::downgrade(&traffic));
        Ok(traffic)
    }

    /// The records of a trace that leave the L1, from the first `most_instructions` instructions.
    pub fn trace(&self, path: &Path, most_instructions: Option<u64>) -> Result<Arc<Trace>, ScenarioError> {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (path.to_owned(), most_instructions);
        if let Some(trace) = files.traces.get(&key).and_then(Weak::upgrade) {
            return Ok(trace);
        }
        let window = Window { max_instructions: most_instructions, ..Window::default() };
        let trace = Trace::read_filtered(path, &window, files.left()).map_err(ScenarioError::input)?;
        let trace = Arc::new(trace);
        files.traces.insert(key, Arc::downgrade(&trace));
        Ok(trace)
    }
}

impl InUse {
    /// Packets and records that may still be read.
    fn left(&mut self) -> usize {
        self.captures.retain(|_, traffic| traffic.strong_count() > 0);
        self.traces.retain(|_, trace| trace.strong_count() > 0);
        let packets = self.captures.values().filter_map(Weak::upgrade).map(|traffic| traffic.packets.len());
        let records = self.traces.values().filter_map(Weak::upgrade).map(|trace| trace.records.len());
        ENTRIES_MOST.saturating_sub(packets.chain(records).sum())
    }
}

/// The longest packet on the wire with the VLAN tags of this one, each of 4 bytes (IEEE 802.1Q): they are no part of the
/// MTU.
fn with_tags(packet: &Packet, longest: u32) -> u32 {
    longest + 4 * u32::from(packet.tags)
}

/// How many packets on the wire a captured one was.
fn parts_of(packet: &Packet, longest: u32) -> u32 {
    packet.bytes.div_ceil(with_tags(packet, longest)).max(1)
}

/// A captured packet as packets on the wire: packets that segmentation offload merged are split. The parts have one time;
/// the NIC's line spaces them.
fn split(packet: &Packet, longest: u32) -> impl Iterator<Item = CapturedPacket> + use<> {
    let (packet, most) = (*packet, with_tags(packet, longest));
    (0..parts_of(&packet, longest)).map(move |part| CapturedPacket {
        at_ns: packet.at_ns as f64,
        bytes: (packet.bytes - part * most).clamp(SHORTEST_FRAME, most),
        hash: packet.hash,
        dscp: packet.dscp.unwrap_or(0),
    })
}
