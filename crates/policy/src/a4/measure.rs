//! Counters summed over one or several samples, for A4's tests. It must not know thresholds.
//!
//! A missing reading adds nothing and no time, so a ratio is formed only from samples in which both of its parts were
//! read. "Never read" and "read as zero" are different values.

use std::collections::{BTreeMap, BTreeSet};
use waykeeper_host::{Interval, PortCounter, Reading, SocketCounter, WorkloadCounter};
use waykeeper_units::{PortId, WorkloadId};

/// Two counts whose ratio matters, such as hits and misses.
#[derive(Clone, Copy, Default, Debug)]
struct Pair {
    hits: f64,
    misses: f64,
    seconds: f64,
}

impl Pair {
    fn add(&mut self, hits: Reading<f64>, misses: Reading<f64>, seconds: f64) {
        if let (Some(hits), Some(misses)) = (sane(hits), sane(misses)) {
            self.hits += hits * seconds;
            self.misses += misses * seconds;
            self.seconds += seconds;
        }
    }

    /// Events per second; `None` if never read.
    fn per_second(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| (self.hits + self.misses) / self.seconds)
    }

    fn miss_ratio(&self) -> Option<f64> {
        let all = self.hits + self.misses;
        (all > 0.0).then(|| self.misses / all)
    }
}

/// An amount and the time in which it was counted.
#[derive(Clone, Copy, Default, Debug)]
struct Sum {
    amount: f64,
    seconds: f64,
}

impl Sum {
    fn add(&mut self, rate: Option<f64>, seconds: f64) {
        if let Some(rate) = rate {
            self.amount += rate * seconds;
            self.seconds += seconds;
        }
    }

    fn per_second(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.amount / self.seconds)
    }
}

/// A count that is finite and not negative. A host may return any number, and NaN must not pass a threshold.
fn sane(reading: Reading<f64>) -> Option<f64> {
    reading.value().filter(|value| value.is_finite() && *value >= 0.0)
}

/// Counters of one or more samples.
#[derive(Clone, Default, Debug)]
pub(super) struct Window {
    seconds: f64,
    llc: BTreeMap<WorkloadId, Pair>,
    mlc: BTreeMap<WorkloadId, Pair>,
    dca_writes: Pair,
    memory: Sum,
    inbound: BTreeMap<PortId, Sum>,
}

impl Window {
    /// One sample.
    pub fn of(seen: &Interval) -> Window {
        let mut window = Window::default();
        window.add(seen);
        window
    }

    /// Adds a sample.
    pub fn add(&mut self, seen: &Interval) {
        let seconds = seconds_of(seen);
        self.seconds += seconds;
        for (id, rates) in &seen.groups {
            let llc = self.llc.entry(*id).or_default();
            llc.add(rates[WorkloadCounter::LlcHits], rates[WorkloadCounter::LlcMisses], seconds);
            let mlc = self.mlc.entry(*id).or_default();
            mlc.add(rates[WorkloadCounter::MlcHits], rates[WorkloadCounter::MlcMisses], seconds);
        }
        let socket = &seen.socket;
        self.dca_writes.add(
            socket[SocketCounter::DcaWriteHits],
            socket[SocketCounter::DcaWriteMisses],
            seconds,
        );
        let read = sane(socket[SocketCounter::MemoryReadBytes]);
        self.memory.add(
            read.zip(sane(socket[SocketCounter::MemoryWriteBytes])).map(|(read, write)| read + write),
            seconds,
        );
        for (port, rates) in &seen.ports {
            // A port that no longer exists counts as 0 bytes; a port that cannot be read adds nothing.
            let bytes = match rates[PortCounter::InboundBytes] {
                Reading::Absent => Some(0.0),
                reading => sane(reading),
            };
            self.inbound.entry(*port).or_default().add(bytes, seconds);
        }
    }

    /// True if nothing was added.
    pub fn is_empty(&self) -> bool {
        self.seconds == 0.0
    }

    /// True if the LLC counters of the workload were ever read.
    pub fn has_llc(&self, id: WorkloadId) -> bool {
        self.llc.get(&id).is_some_and(|pair| pair.seconds > 0.0)
    }

    /// LLC references per second of one workload.
    pub fn llc_references(&self, id: WorkloadId) -> Option<f64> {
        self.llc.get(&id)?.per_second()
    }

    /// LLC miss ratio of one workload.
    pub fn llc_miss(&self, id: WorkloadId) -> Option<f64> {
        self.llc.get(&id)?.miss_ratio()
    }

    /// MLC miss ratio of one workload.
    pub fn mlc_miss(&self, id: WorkloadId) -> Option<f64> {
        self.mlc.get(&id)?.miss_ratio()
    }

    /// LLC miss ratio over several workloads together; needs a reading of each.
    pub fn llc_miss_of_all(&self, ids: &[WorkloadId]) -> Option<f64> {
        let mut all = Pair::default();
        for id in ids {
            let pair = self.llc.get(id).filter(|pair| pair.seconds > 0.0)?;
            all.hits += pair.hits / pair.seconds;
            all.misses += pair.misses / pair.seconds;
        }
        all.miss_ratio()
    }

    /// Chip-wide DCA write miss ratio.
    pub fn dca_write_miss(&self) -> Option<f64> {
        self.dca_writes.miss_ratio()
    }

    /// Memory traffic, bytes per second.
    pub fn memory_bytes(&self) -> Option<f64> {
        self.memory.per_second()
    }

    /// Inbound bytes per second over `ports`; needs a reading of each.
    pub fn inbound(&self, ports: &BTreeSet<PortId>) -> Option<f64> {
        ports.iter().map(|port| self.inbound.get(port)?.per_second()).sum()
    }

    /// Inbound bytes per second over all ports seen and all of `known`; needs a reading of each.
    pub fn inbound_of_all(&self, known: &BTreeSet<PortId>) -> Option<f64> {
        self.inbound(&known.iter().chain(self.inbound.keys()).copied().collect())
    }
}

/// Length of a sample in seconds.
pub(super) fn seconds_of(seen: &Interval) -> f64 {
    seen.to_ns.saturating_sub(seen.from_ns) as f64 * 1e-9
}
