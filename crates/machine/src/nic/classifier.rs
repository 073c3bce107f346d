//! IDIO's packet classifier, inside a NIC: destination core and class of packets, and the placement of a port's lines.
//!
//! Classes come from the packet's DSCP, cores from the queue (IDIO s3.1). Knows tags, not what a chip does with them.

use waykeeper_silicon::{Chip, Placement, Tag};

/// Where a NIC's packets are placed, as the scenario specifies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steering {
    /// What decides the placement.
    pub placement: Placement,
    /// DSCPs of the latency critical class; all others are batch.
    pub critical_dscp: Vec<u8>,
}

/// The classifier of one NIC.
#[derive(Clone, Debug)]
pub(crate) struct Classifier {
    placement: Placement,
    /// Bit per DSCP, of which there are 64: set if it is latency critical.
    critical: u64,
    core_of_queue: Vec<usize>,
    /// Packets classified in this turn, in the order of the lines.
    runs: Vec<Run>,
}

/// Lines of one packet.
#[derive(Clone, Copy, Debug)]
struct Run {
    lines: usize,
    header: bool,
    tag: Tag,
}

impl Classifier {
    pub(crate) fn new(steering: &Steering, core_of_queue: Vec<usize>) -> Classifier {
        let critical = steering.critical_dscp.iter().fold(0, |bits, dscp| bits | 1 << (dscp & 63));
        Classifier { placement: steering.placement, critical, core_of_queue, runs: Vec::new() }
    }

    /// The tag of a packet with this DSCP on this queue; `header` is set per line.
    fn tag(&self, queue: usize, dscp: u8) -> Tag {
        let latency_critical = self.critical >> (dscp & 63) & 1 == 1;
        Tag { core: self.core_of_queue[queue], header: false, latency_critical }
    }

    /// Classifies a packet of which the next `lines` lines are in the sample, the first of them its header if
    /// `header` says so (s3.5: a header fits one line).
    pub(crate) fn classify(&mut self, queue: usize, dscp: u8, lines: usize, header: bool) {
        let tag = self.tag(queue, dscp);
        self.runs.push(Run { lines, header, tag });
    }

    /// Writes the classified packets of this turn. Returns how many lines these were. The completions behind them are
    /// no network data; DCA places them.
    pub(crate) fn write(
        &mut self,
        chip: &mut Chip,
        device: usize,
        lines: &[waykeeper_silicon::Line],
    ) -> usize {
        let mut at = 0;
        for Run { lines: count, header, tag } in self.runs.drain(..) {
            chip.steered_write_all(device, &lines[at..at + count], header, self.placement, tag);
            at += count;
        }
        at
    }

    /// The core that reads a queue's packets.
    pub(crate) fn core(&self, queue: usize) -> usize {
        self.core_of_queue[queue]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dscp_makes_the_class_and_the_queue_the_core() {
        let steering = Steering { placement: Placement::Dynamic, critical_dscp: vec![46, 63] };
        let classifier = Classifier::new(&steering, vec![3, 1]);
        for (dscp, latency_critical) in [(46, true), (63, true), (0, false), (45, false), (47, false)] {
            assert_eq!(classifier.tag(0, dscp), Tag { core: 3, header: false, latency_critical });
        }
        assert_eq!(classifier.tag(1, 0).core, 1);
    }
}
