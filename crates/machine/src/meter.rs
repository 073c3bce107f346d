//! What a workload achieved: operations, bytes, latencies. The truth for reports; policies never see it.

use hdrhistogram::Histogram;

/// Longest latency told apart, ns (10 s); longer ones count as this. Assumption: longer than any run that is
/// measured.
const LONGEST_NS: u64 = 10_000_000_000;

/// Latencies below this, ns, are counted in equal steps first and go into the histogram when it is asked: a packet's
/// latency is noted twelve million times a second, and finding its place in the histogram costs ten times as much
/// as finding its step. Assumption: beyond what most packets take.
const FRONT_NS: usize = 1 << 18;
/// Such a step, ns; above the shortest of these latencies half a step is under half a per cent. Assumption: a finer
/// step is below the spread of seeds.
const STEP_NS: usize = 64;
const SHORTEST_NS: usize = 1 << 13;

/// A packet's three stations in the host, as A4 Fig. 14a takes them apart; sums over packets.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Stations {
    /// Packets taken from a ring.
    pub packets: f64,
    /// Time in the RX ring, from the packet's arrival until a worker turned to it, ns.
    pub queueing_ns: f64,
    /// Getting at it: completion, descriptor and packet metadata, ns.
    pub pointer_ns: f64,
    /// Working on it: instructions and the packet's lines, ns.
    pub processing_ns: f64,
}

/// Block commands of one workload.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Load {
    /// Blocks as the program counts them.
    pub blocks: u64,
    /// Blocks that were moved.
    pub moved: u64,
    /// Time that a core worked before it, ns.
    pub prepared_ns: f64,
    /// When the first command could go, ns; `None` if none could yet. A meter that is cleared keeps it, and what follows.
    pub begun_ns: Option<f64>,
    /// When the last completion was seen, or the time was over if that came later, ns.
    pub last_ns: f64,
    /// Commands that are on their way.
    pub outstanding: u64,
    /// No more commands will go: a total is reached, or the time is over.
    pub ended: bool,
}

/// The meter of one workload, over the time since it was last cleared.
#[derive(Clone, Debug)]
pub struct Meter {
    /// Operations completed: packets, I/Os, requests.
    pub operations: f64,
    /// Payload bytes of these.
    pub bytes: f64,
    /// What a program of block commands did; `None` for all others.
    pub load: Option<Load>,
    /// Operations lost (dropped packets).
    pub dropped: f64,
    /// Where packets' time in the host went.
    pub stations: Stations,
    latency_ns: Histogram<u64>,
    /// Counts per step that the histogram does not have yet.
    front: Box<[u32; FRONT_NS / STEP_NS]>,
    latency_sum_ns: f64,
    latency_count: f64,
}

impl Default for Meter {
    fn default() -> Meter {
        let latency_ns = Histogram::new_with_bounds(1, LONGEST_NS, 2).expect("the bounds are legal");
        Meter {
            operations: 0.0,
            bytes: 0.0,
            load: None,
            dropped: 0.0,
            stations: Stations::default(),
            latency_ns,
            front: Box::new([0; FRONT_NS / STEP_NS]),
            latency_sum_ns: 0.0,
            latency_count: 0.0,
        }
    }
}

impl Meter {
    /// Notes a completed operation's latency.
    #[inline(always)]
    pub fn latency(&mut self, ns: f64) {
        self.latency_sum_ns += ns;
        self.latency_count += 1.0;
        // Through a signed number, which is the cheaper way from a float; anything out of its range is no step.
        let step = (ns * (1.0 / STEP_NS as f64)) as i32 as usize;
        match self.front.get_mut(step).filter(|_| step >= SHORTEST_NS / STEP_NS) {
            Some(count) => *count += 1,
            None => self.latency_ns.saturating_record(ns as u64),
        }
    }

    /// Mean latency, ns; `None` if nothing completed.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.latency_count > 0.0).then(|| self.latency_sum_ns / self.latency_count)
    }

    /// Latency at a quantile 0..1, ns, within 1 %.
    pub fn quantile_ns(&self, quantile: f64) -> Option<f64> {
        (self.latency_count > 0.0).then(|| self.latencies_ns().value_at_quantile(quantile) as f64)
    }

    /// All latencies, ns, within 1 %.
    pub fn latencies_ns(&self) -> Histogram<u64> {
        let mut all = self.latency_ns.clone();
        for (step, count) in self.front.iter().enumerate().filter(|(_, count)| **count > 0) {
            all.saturating_record_n((step * STEP_NS + STEP_NS / 2) as u64, u64::from(*count));
        }
        all
    }

    /// Starts over.
    pub fn clear(&mut self) {
        self.operations = 0.0;
        self.bytes = 0.0;
        if let Some(load) = &mut self.load {
            (load.blocks, load.moved) = (0, 0);
        }
        self.dropped = 0.0;
        self.stations = Stations::default();
        self.latency_ns.reset();
        self.front.fill(0);
        self.latency_sum_ns = 0.0;
        self.latency_count = 0.0;
    }
}
