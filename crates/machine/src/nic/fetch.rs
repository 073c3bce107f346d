//! A NIC's reads, with a limit on the bytes in flight.
//!
//! By Little's law a NIC reads one window per round trip. The window is sized for the latency of the caches; memory has
//! a higher one, so that packets that left the caches are sent more slowly. Knows how long reads take, not what they
//! are for.

use waykeeper_silicon::Chip;

/// A read over PCIe that the caches answer, ns (Neugebauer et al., SIGCOMM 2018: 547 median for 64 B on a Xeon E5; one
/// that memory answers takes about 70 more there, which is what our chips' own numbers give).
const CACHED_READ_NS: f64 = 550.0;
/// Sampled reads over which the mean is taken. Assumption: of the order of `bus::MEAN_WEIGHT`.
const MEMORY_OF_READS: f64 = 16.0;

/// The reads of one NIC.
#[derive(Clone, Debug)]
pub(crate) struct Fetch {
    /// Bytes in flight.
    window: f64,
    /// Idle latency of memory beyond that of the caches, ns.
    memory_ns: f64,
    /// Mean time of a read, ns.
    read_ns: f64,
    /// Time until which reads already sent occupy the window, ns; treated as a fluid, like the wire.
    owed_until_ns: f64,
    /// Reads that the caches and memory served until this turn.
    hits: u64,
    misses: u64,
}

impl Fetch {
    /// A window of so many bytes; `memory_ns` is the latency of memory beyond that of the caches.
    pub(crate) fn new(window: f64, memory_ns: f64) -> Fetch {
        Fetch { window, memory_ns, read_ns: CACHED_READ_NS, owed_until_ns: 0.0, hits: 0, misses: 0 }
    }

    /// A turn of sending begins.
    pub(crate) fn begin(&mut self, chip: &Chip, device: usize, from_ns: f64) {
        self.owed_until_ns = self.owed_until_ns.max(from_ns);
        let counters = chip.device_counters(device);
        (self.hits, self.misses) = (counters.read_hits, counters.read_misses);
    }

    /// When the next read can be sent, ns.
    #[inline(always)]
    pub(crate) fn free_ns(&self) -> f64 {
        self.owed_until_ns
    }

    /// A packet and its descriptor are read.
    #[inline(always)]
    pub(crate) fn read(&mut self, bytes: f64) {
        self.owed_until_ns += bytes * self.read_ns / self.window;
    }

    /// Ends a turn: the mean cost of the turn's reads is the estimate for the next ones.
    pub(crate) fn end(&mut self, chip: &Chip, device: usize) {
        let counters = chip.device_counters(device);
        let (hits, misses) =
            ((counters.read_hits - self.hits) as f64, (counters.read_misses - self.misses) as f64);
        let count = hits + misses;
        if count > 0.0 {
            let dram = chip.dram();
            let channels = dram.channels();
            let load = (0..channels as usize).map(|c| dram.factor(c)).sum::<f64>() / f64::from(channels);
            let ns = CACHED_READ_NS + self.memory_ns * load * misses / count;
            self.read_ns += (ns - self.read_ns) * count / (count + MEMORY_OF_READS);
        }
    }
}
