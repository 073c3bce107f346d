//! The counted quantities, their sums over registers, and the conversion to the seam's counters.
//!
//! Two modules fill it: [`crate::perf`] uses the kernel's perf events, [`crate::msr_pmu`] programs registers. Must
//! not know which of the two.

use std::collections::BTreeMap;
use waykeeper_generations::{self as generations, CoreCounterTable, Quantities};
use waykeeper_host::{
    DmaCounters, HostCounter, Lines, PortCounter, PortCounters, Reading, SocketCounter, SocketCounters,
    WorkloadCounter, WorkloadCounters,
};
use waykeeper_units::CoreId;

/// An event that LLC slices count for devices (hardware.md 3.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DcaQuantity {
    /// Full-line device writes.
    Writes,
    /// Those that hit.
    WriteHits,
    /// Those that missed.
    WriteMisses,
    /// Device writes of parts of lines.
    PartialWrites,
    /// Those that hit.
    PartialWriteHits,
    /// Those that missed.
    PartialWriteMisses,
    /// Device reads.
    Reads,
    /// Those that hit.
    ReadHits,
    /// Those that missed.
    ReadMisses,
}

/// Direction of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TransferDirection {
    /// Memory reads; devices' reads of the host (outbound).
    Read,
    /// Memory writes; devices' writes to the host (inbound).
    Write,
}

/// One number of a sample.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SampledQuantity {
    /// An event of a logical CPU, by its index in a [`CoreEventPlan`].
    Core(CoreId, u8),
    /// A device event, summed over the LLC slices of the managed package.
    Dca(DcaQuantity),
    /// Bytes of the managed package's memory controllers.
    Memory(TransferDirection),
    /// Bytes of one root port, by its index in the inventory.
    Port(u8, TransferDirection),
}

/// The core events that the seam's quantities need, and how each quantity is computed from them.
#[derive(Clone, PartialEq, Debug)]
pub struct CoreEventPlan {
    names: Vec<String>,
    quantities: Quantities,
}

impl CoreEventPlan {
    /// The events of a generation's quantities: instructions and cycles first, each event once.
    pub fn of(counters: &CoreCounterTable) -> CoreEventPlan {
        let mut names: Vec<String> = Vec::new();
        for (_, quantity) in counters.quantities.named() {
            for name in quantity.plus.iter().chain(&quantity.minus) {
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
        }
        CoreEventPlan { names, quantities: counters.quantities.clone() }
    }

    /// The events' names, in the order of the index in [`SampledQuantity::Core`].
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// One quantity of one core.
    fn value(&self, counts: &Counts, core: CoreId, quantity: Option<&generations::Quantity>) -> Reading<u64> {
        let Some(quantity) = quantity else {
            return Reading::Unsupported;
        };
        let sum = |names: &[String]| {
            names.iter().fold(Reading::Value(0), |sum, name| {
                let index = self.names.iter().position(|known| known == name);
                let count = index.map_or(Reading::Unsupported, |index| {
                    counts.get(SampledQuantity::Core(core, index as u8))
                });
                sum.zip_with(count, u64::saturating_add)
            })
        };
        // Both sides are read at slightly different times: a difference a little below zero counts as zero.
        sum(&quantity.plus).zip_with(sum(&quantity.minus), u64::saturating_sub)
    }
}

/// A counting method: the running events, and a reading of all of them.
pub trait Counting: std::fmt::Debug {
    /// The method's name: `perf` or `MSR`.
    fn way(&self) -> &'static str;

    /// What cannot be counted here or only with reservations; texts for the user.
    fn notes(&self) -> &[String];

    /// Reads everything. A counter that fails is `Unavailable` and adds a line to the counts' problems.
    fn count(&mut self) -> Counts;

    /// Ends counting. The journal restores the registers that were programmed.
    fn close(&mut self);
}

/// Messages about boxes that cannot be counted, from pairs of box name (`uncore_cha 5`) and reason. Boxes of one kind
/// whose reasons differ only in numbers share one message.
pub fn once_a_kind(failures: &[(String, String)]) -> Vec<String> {
    let kind = |name: &str| name.trim_end_matches(|letter: char| letter.is_ascii_digit()).to_owned();
    let reason = |why: &str| why.replace(|letter: char| letter.is_ascii_hexdigit(), "");
    let key = |(name, why): &(String, String)| (kind(name), reason(why));
    let mut kinds: Vec<(&(String, String), usize)> = Vec::new();
    for failure in failures {
        match kinds.iter_mut().find(|(first, _)| key(first) == key(failure)) {
            Some((_, more)) => *more += 1,
            None => kinds.push((failure, 0)),
        }
    }
    let reported = kinds.into_iter().map(|((name, why), more)| match more {
        0 => format!("{name}: {why}"),
        more => format!("{name} and {more} more of its kind: {why}"),
    });
    reported.collect()
}

/// All quantities read at one moment, cumulative since counting began.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    sums: BTreeMap<SampledQuantity, Reading<f64>>,
    problems: Vec<String>,
}

impl Counts {
    /// Adds one register's part of a quantity, times what one count represents (4 bytes, or 2 events where only every
    /// second slice counts them). If a part is missing, the whole is unavailable: half a sum would be a wrong number.
    pub fn add(&mut self, quantity: SampledQuantity, part: Reading<u64>, stands_for: f64) {
        let part = part.map(|count| count as f64 * stands_for);
        let sum = self.sums.entry(quantity).or_insert(Reading::Value(0.0));
        *sum = sum.zip_with(part, |sum, part| sum + part);
    }

    /// Adds the quantities of `other`, read at the same time.
    pub fn merge(&mut self, other: Counts) {
        self.sums.extend(other.sums);
        self.problems.extend(other.problems);
    }

    /// Adds a message about a register that could not be read.
    pub fn complain(&mut self, problem: String) {
        self.problems.push(problem);
    }

    /// Messages about registers that could not be read.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// A quantity; `Unsupported` if nothing here counts it.
    pub fn get(&self, quantity: SampledQuantity) -> Reading<u64> {
        self.sums.get(&quantity).map_or(Reading::Unsupported, |sum| sum.map(|sum| sum as u64))
    }

    /// Hits: as counted, else all requests less misses. A difference a little below zero, from the times of reading,
    /// counts as zero (pcm-pcie.h does the same).
    fn hits(&self, hits: DcaQuantity, all: DcaQuantity, misses: DcaQuantity) -> Reading<u64> {
        match self.get(SampledQuantity::Dca(hits)) {
            Reading::Unsupported => self
                .get(SampledQuantity::Dca(all))
                .zip_with(self.get(SampledQuantity::Dca(misses)), u64::saturating_sub),
            counted => counted,
        }
    }

    /// The counters of a group: the sum over its cores. Occupancy is passed in; it comes from resctrl.
    pub fn group(
        &self,
        events: &CoreEventPlan,
        cores: &[CoreId],
        occupancy_bytes: Reading<u64>,
    ) -> WorkloadCounters {
        let sum = |quantity: Option<&generations::Quantity>| {
            let parts = cores.iter().map(|core| events.value(self, *core, quantity));
            parts.reduce(|sum, part| sum.zip_with(part, u64::saturating_add)).unwrap_or(Reading::Absent)
        };
        WorkloadCounters::from_fn(|counter| match counter {
            WorkloadCounter::OccupancyBytes => occupancy_bytes,
            counted => sum(events.quantities.get(counted.name())),
        })
    }

    /// The counters of the managed socket.
    pub fn socket(&self) -> SocketCounters {
        use DcaQuantity as Q;
        SocketCounters::of([
            (SocketCounter::DcaWriteHits, self.hits(Q::WriteHits, Q::Writes, Q::WriteMisses)),
            (SocketCounter::DcaWriteMisses, self.get(SampledQuantity::Dca(Q::WriteMisses))),
            (SocketCounter::DcaReadHits, self.hits(Q::ReadHits, Q::Reads, Q::ReadMisses)),
            (SocketCounter::DcaReadMisses, self.get(SampledQuantity::Dca(Q::ReadMisses))),
            (SocketCounter::MemoryReadBytes, self.get(SampledQuantity::Memory(TransferDirection::Read))),
            (SocketCounter::MemoryWriteBytes, self.get(SampledQuantity::Memory(TransferDirection::Write))),
        ])
    }

    /// The counters of device accesses, partial writes included.
    pub fn devices(&self) -> DmaCounters {
        use DcaQuantity as Q;
        let lines = |hits, all, misses| Lines {
            hits: self.hits(hits, all, misses),
            misses: self.get(SampledQuantity::Dca(misses)),
        };
        DmaCounters {
            reads: lines(Q::ReadHits, Q::Reads, Q::ReadMisses),
            writes: lines(Q::WriteHits, Q::Writes, Q::WriteMisses),
            partial_writes: lines(Q::PartialWriteHits, Q::PartialWrites, Q::PartialWriteMisses),
        }
    }

    /// The counters of one root port.
    pub fn port(&self, port: u8) -> PortCounters {
        PortCounters::of([
            (PortCounter::InboundBytes, self.get(SampledQuantity::Port(port, TransferDirection::Write))),
            (PortCounter::OutboundBytes, self.get(SampledQuantity::Port(port, TransferDirection::Read))),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_the_sum_of_its_cores_and_hits_are_what_did_not_miss() {
        let quantities = r#"
            instructions = { plus = ["i"] }
            cycles = { plus = ["c"] }
            llc_hits = { plus = ["references"], minus = ["misses"] }
            llc_misses = { plus = ["misses"] }
        "#;
        let events = CoreEventPlan {
            names: ["i", "c", "references", "misses"].map(str::to_owned).to_vec(),
            quantities: toml::from_str(quantities).unwrap(),
        };
        let mut counts = Counts::default();
        let cores = [CoreId(2), CoreId(5)];
        for (core, references, misses) in [(cores[0], 100, 30), (cores[1], 50, 60)] {
            counts.add(SampledQuantity::Core(core, 2), Reading::Value(references), 1.0);
            counts.add(SampledQuantity::Core(core, 3), Reading::Value(misses), 1.0);
            counts.add(SampledQuantity::Core(core, 1), Reading::Value(7), 1.0);
        }
        let group = counts.group(&events, &cores, Reading::Absent);
        // 70 on the first core; 50 - 60 on the second is none.
        assert_eq!(
            (group[WorkloadCounter::LlcHits], group[WorkloadCounter::LlcMisses]),
            (Reading::Value(70), Reading::Value(90))
        );
        assert_eq!(
            (group[WorkloadCounter::Cycles], group[WorkloadCounter::Instructions]),
            (Reading::Value(14), Reading::Unsupported)
        );
        assert_eq!(group[WorkloadCounter::MlcHits], Reading::Unsupported);
        assert_eq!(counts.group(&events, &[], Reading::Absent)[WorkloadCounter::Cycles], Reading::Absent);
    }

    #[test]
    fn every_quantity_of_a_generation_is_a_counter_of_a_group() {
        let counters = WorkloadCounter::ALL.map(HostCounter::name);
        for generation in generations::Generation::all() {
            for (name, _) in generation.core.quantities.named() {
                assert!(counters.contains(&name), "{}: no counter is called {name}", generation.id);
            }
        }
    }

    #[test]
    fn every_second_slice_counts_twice_and_a_missing_part_counts_nothing() {
        let mut counts = Counts::default();
        let hits = SampledQuantity::Dca(DcaQuantity::WriteHits);
        counts.add(hits, Reading::Value(10), 2.0);
        counts.add(hits, Reading::Value(7), 2.0);
        assert_eq!(counts.socket()[SocketCounter::DcaWriteHits], Reading::Value(34));
        counts.add(hits, Reading::Unavailable, 2.0);
        assert_eq!(counts.socket()[SocketCounter::DcaWriteHits], Reading::Unavailable);
        assert_eq!(counts.socket()[SocketCounter::DcaReadHits], Reading::Unsupported);
    }

    #[test]
    fn one_reason_of_many_boxes_is_one_line() {
        let failure = |name: &str, why: &str| (name.to_owned(), why.to_owned());
        let reported = once_a_kind(&[
            failure("uncore_cha 0", "no MSR 0xe00"),
            failure("core 3", "no MSR 0x186"),
            failure("uncore_cha 17", "no MSR 0xf10"),
            failure("uncore_cha 3", "another program counts there"),
        ]);
        assert_eq!(
            reported,
            [
                "uncore_cha 0 and 1 more of its kind: no MSR 0xe00",
                "core 3: no MSR 0x186",
                "uncore_cha 3: another program counts there"
            ]
        );
    }

    #[test]
    fn bytes_of_a_port_are_named_by_their_direction() {
        let mut counts = Counts::default();
        counts.add(SampledQuantity::Port(1, TransferDirection::Write), Reading::Value(1000), 4.0);
        assert_eq!(counts.port(1), PortCounters::of([(PortCounter::InboundBytes, Reading::Value(4000))]));
        assert_eq!(counts.port(0)[PortCounter::InboundBytes], Reading::Unsupported);
    }
}
