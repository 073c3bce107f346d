//! What a client and a server on two cores share: messages in flight and the lines they travel in.
//!
//! Knows slots and times, not the content of a message.

use std::collections::VecDeque;
use waykeeper_silicon::{AddressMap, Line, OutOfMemory};

/// Lines of a slot: two for the request, the rest for the response (socket buffers of the loopback path). A record of
/// Redis has 18 lines.
const SLOT_LINES: u32 = 20;
/// Lines a request takes. Assumption: a command of under 128 bytes.
pub(crate) const REQUEST_LINES: u32 = 2;

/// A message in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub slot: u32,
    /// When the request was sent, ns.
    pub sent_ns: f64,
    /// When the receiver can see it, ns.
    pub ready_ns: f64,
    pub write: bool,
}

/// The two directions between a client and a server.
#[derive(Clone, Debug)]
pub struct Mailbox {
    pub(crate) requests: VecDeque<Message>,
    pub(crate) responses: VecDeque<Message>,
    lines: Vec<Line>,
    /// First sampled line of each slot, of its response part, and one more at the end.
    starts: Vec<(u32, u32)>,
}

impl Mailbox {
    pub(crate) fn new(memory: &mut AddressMap, slots: u32) -> Result<Mailbox, OutOfMemory> {
        let region = memory.ordinary(u64::from(slots * SLOT_LINES) * 64)?;
        let starts = (0..=slots)
            .map(|slot| {
                let first = slot * SLOT_LINES;
                (region.range(0, first).end as u32, region.range(0, first + REQUEST_LINES).end as u32)
            })
            .collect();
        Ok(Mailbox {
            requests: VecDeque::new(),
            responses: VecDeque::new(),
            lines: region.lines().to_vec(),
            starts,
        })
    }

    pub(crate) fn slots(&self) -> u32 {
        self.starts.len() as u32 - 1
    }

    /// Sampled lines of a slot's request.
    pub(crate) fn request(&self, slot: u32) -> &[Line] {
        let (from, to) = self.starts[slot as usize];
        &self.lines[from as usize..to as usize]
    }

    /// Sampled lines of a slot's response.
    pub(crate) fn response(&self, slot: u32) -> &[Line] {
        let from = self.starts[slot as usize].1;
        let to = self.starts[slot as usize + 1].0;
        &self.lines[from as usize..to as usize]
    }
}
