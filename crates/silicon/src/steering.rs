//! IDIO's controller in the data path: the tag of a device write, its target, and the counters.
//!
//! Simulated hardware that is not sold (IDIO, Computer Architecture Letters 2020; algorithms.md 4). Every rule is one
//! function. Knows registers and counters; must not know time: `machine` reads the counters once per epoch and sets the
//! status registers. The LLC moves the lines.
//!
//! All counters are of *payload* lines, on both sides of every difference. The paper counts hits on payload and does
//! not say that pushed or received headers are left out; but headers always take the same way, and counted on one
//! side only they would count as untouched for ever (our choice).

use crate::table::Table;

/// Target of payload for a core: the 2-bit status register (s3.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PayloadTarget {
    /// Into the DCA ways, as DDIO does. Every register starts here (s3.5).
    #[default]
    Llc,
    /// Into the DCA ways, and from there to the core's MLC.
    Mlc,
    /// To memory, past the caches.
    Dram,
}

/// What decides the target of a device's packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// One target for every line (s4, the static configurations).
    Fixed(PayloadTarget),
    /// Headers to the MLC, payload to the LLC (a mode of the author's gem5 code, algorithms.md 4.4).
    Headers,
    /// The status register of the destination core (s3.5).
    Dynamic,
}

/// The tag that the NIC's packet classifier gives a line, in reserved bits of the PCIe packet's header (s3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    /// `destCore`: the core that will read the packet.
    pub core: usize,
    /// `isHeader`: the packet's first line.
    pub header: bool,
    /// `isLatencyCritical`: the packet's class.
    pub latency_critical: bool,
}

/// Target of a line (algorithms.md 4.3).
#[inline]
pub(crate) fn target(placement: Placement, tag: Tag, status: PayloadTarget) -> PayloadTarget {
    match placement {
        Placement::Fixed(status) => status,
        Placement::Headers if tag.header => PayloadTarget::Mlc,
        Placement::Headers => PayloadTarget::Llc,
        Placement::Dynamic => by_status(tag, status),
    }
}

/// IDIO's own rule (s3.5): a header is sent to the MLC at any status; a critical packet is never sent to memory.
/// algorithms.md 4.3 reads the text, which tests MLC first, so that criticality overrides DRAM and not MLC.
fn by_status(tag: Tag, status: PayloadTarget) -> PayloadTarget {
    match status {
        _ if tag.header => PayloadTarget::Mlc,
        PayloadTarget::Dram if tag.latency_critical => PayloadTarget::Llc,
        status => status,
    }
}

/// Per core, payload lines since the counters were last cleared (s3.2, s3.3). Sampled, like all counts of a chip.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SteeringCounters {
    /// `dataRXCounter`: received for the core.
    pub received: u64,
    /// `prefetchedMLCCounter`: pushed to its MLC.
    pub pushed: u64,
    /// `DRAMWritebacks`: sent straight to memory.
    pub to_memory: u64,
    /// `IOAccessCounter`: read back by a device, with an LLC hit.
    pub device_reads: u64,
    /// `coreAccessCounter`: demanded by the core, not in its MLC, found in the LLC.
    pub core_misses: u64,
    /// `hitMLCCounter`: pushed lines that the core touched, each once.
    pub pushed_hits: u64,
}

impl SteeringCounters {
    /// Lines pushed to the MLC and not touched since (s3.5). Lines pushed in an earlier epoch may be hit in this one.
    pub fn untouched(self) -> u64 {
        self.pushed.saturating_sub(self.pushed_hits)
    }

    /// Lines sent to the caches: the denominator of `dataUsage`.
    pub fn cached(self) -> u64 {
        self.received - self.to_memory
    }

    /// Of these, lines that the core or a device used (s3.5). A line may be used twice, hence the cap.
    pub fn touched(self) -> u64 {
        (self.core_misses + self.pushed_hits + self.device_reads).min(self.cached())
    }
}

/// Registers of one core.
#[derive(Clone, Copy, Debug, Default)]
struct Registers {
    status: PayloadTarget,
    counters: SteeringCounters,
    /// Dirty lines that were evicted from the MLC since power-on; not cleared with the other counters.
    mlc_writebacks: u64,
}

/// Registers of all cores.
#[derive(Clone, Debug)]
pub(crate) struct Steering {
    cores: Table<Registers>,
    mlc_lines: u64,
}

impl Steering {
    /// Every status is LLC; `mlc_lines` is the number of sampled lines of one MLC.
    pub(crate) fn new(cores: usize, mlc_lines: u64) -> Steering {
        Steering { cores: Table::filled(cores, Registers::default()), mlc_lines }
    }

    pub(crate) fn status(&self, core: usize) -> PayloadTarget {
        self.cores[core].status
    }

    pub(crate) fn set_status(&mut self, core: usize, status: PayloadTarget) {
        self.cores[core].status = status;
    }

    pub(crate) fn counters(&self, core: usize) -> SteeringCounters {
        self.cores[core].counters
    }

    pub(crate) fn clear_counters(&mut self, core: usize) {
        self.cores[core].counters = SteeringCounters::default();
    }

    pub(crate) fn mlc_writebacks(&self, core: usize) -> u64 {
        self.cores[core].mlc_writebacks
    }

    /// More than a tenth of the MLC is pushed data that the core has not touched (s3.5).
    pub(crate) fn mlc_is_flooded(&self, core: usize) -> bool {
        self.cores[core].counters.untouched() * 10 > self.mlc_lines
    }

    /// Counts a line sent to `target`. A flooded MLC gets no more from the next line on: the test compares two
    /// counters and is made for every hint, not only once per epoch (algorithms.md 4.4).
    pub(crate) fn sent(&mut self, tag: Tag, target: PayloadTarget) {
        if tag.header {
            return;
        }
        let counters = &mut self.cores[tag.core].counters;
        counters.received += 1;
        match target {
            PayloadTarget::Llc => {}
            PayloadTarget::Dram => counters.to_memory += 1,
            PayloadTarget::Mlc => {
                counters.pushed += 1;
                if self.mlc_is_flooded(tag.core) && self.status(tag.core) == PayloadTarget::Mlc {
                    self.set_status(tag.core, PayloadTarget::Llc);
                }
            }
        }
    }

    /// `hitMLCCounter` (s3.3).
    #[cold]
    pub(crate) fn pushed_payload_hit(&mut self, core: usize) {
        self.cores[core].counters.pushed_hits += 1;
    }

    /// `coreAccessCounter` (s3.3).
    #[cold]
    pub(crate) fn payload_missed(&mut self, core: usize) {
        self.cores[core].counters.core_misses += 1;
    }

    /// `IOAccessCounter` (s3.2).
    pub(crate) fn payload_read_by_device(&mut self, core: usize) {
        self.cores[core].counters.device_reads += 1;
    }

    /// An MLC evicts a line; a dirty one is a write-back.
    #[inline(always)]
    pub(crate) fn mlc_gave_up(&mut self, core: usize, dirty: bool) {
        self.cores[core].mlc_writebacks += u64::from(dirty);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORE: usize = 1;

    fn payload(latency_critical: bool) -> Tag {
        Tag { core: CORE, header: false, latency_critical }
    }

    #[test]
    fn a_header_is_written_to_the_mlc_whatever_the_status() {
        let header = Tag { header: true, ..payload(false) };
        for status in [PayloadTarget::Llc, PayloadTarget::Mlc, PayloadTarget::Dram] {
            assert_eq!(target(Placement::Dynamic, header, status), PayloadTarget::Mlc);
        }
    }

    #[test]
    fn batch_payload_follows_the_status() {
        for status in [PayloadTarget::Llc, PayloadTarget::Mlc, PayloadTarget::Dram] {
            assert_eq!(target(Placement::Dynamic, payload(false), status), status);
        }
    }

    #[test]
    fn critical_payload_is_never_written_to_memory_and_else_follows_the_status() {
        let to = |status| target(Placement::Dynamic, payload(true), status);
        assert_eq!(
            [PayloadTarget::Llc, PayloadTarget::Mlc, PayloadTarget::Dram].map(to),
            [PayloadTarget::Llc, PayloadTarget::Mlc, PayloadTarget::Llc]
        );
    }

    #[test]
    fn static_placements_ask_neither_tag_nor_status() {
        for fixed in [PayloadTarget::Llc, PayloadTarget::Mlc, PayloadTarget::Dram] {
            for header in [false, true] {
                let tag = Tag { header, ..payload(true) };
                assert_eq!(target(Placement::Fixed(fixed), tag, PayloadTarget::Dram), fixed);
            }
        }
        let header = Tag { header: true, ..payload(false) };
        assert_eq!(target(Placement::Headers, header, PayloadTarget::Dram), PayloadTarget::Mlc);
        assert_eq!(target(Placement::Headers, payload(false), PayloadTarget::Mlc), PayloadTarget::Llc);
    }

    #[test]
    fn usage_is_capped_at_what_the_caches_were_sent() {
        // 100 received, 30 of them to memory: 70 cached. 40 + 20 + 30 = 90 uses of them count as 70.
        let counters = SteeringCounters {
            received: 100,
            pushed: 50,
            to_memory: 30,
            device_reads: 30,
            core_misses: 40,
            pushed_hits: 20,
        };
        assert_eq!((counters.cached(), counters.touched(), counters.untouched()), (70, 70, 30));
    }

    #[test]
    fn the_flood_test_takes_more_than_a_tenth_of_the_mlc() {
        // s3.5: 10 % of the MLC's capacity; 1 MB is 16384 lines, so 1638 may be untouched and 1639 may not.
        let mut steering = Steering::new(2, 16_384);
        steering.set_status(CORE, PayloadTarget::Mlc);
        for _ in 0..1638 {
            steering.sent(payload(false), PayloadTarget::Mlc);
        }
        assert_eq!(steering.status(CORE), PayloadTarget::Mlc);
        // A touched line does not count.
        steering.pushed_payload_hit(CORE);
        steering.sent(payload(false), PayloadTarget::Mlc);
        assert_eq!(steering.status(CORE), PayloadTarget::Mlc);
        steering.sent(payload(false), PayloadTarget::Mlc);
        assert_eq!(steering.status(CORE), PayloadTarget::Llc);
        assert_eq!(steering.status(0), PayloadTarget::Llc);
    }

    #[test]
    fn headers_are_counted_nowhere() {
        let mut steering = Steering::new(2, 16_384);
        steering.sent(Tag { header: true, ..payload(false) }, PayloadTarget::Mlc);
        assert_eq!(steering.counters(CORE), SteeringCounters::default());
    }
}
