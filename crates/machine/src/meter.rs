//! Results of a workload: operations, bytes, latencies. For reports; policies must not see them.

use hdrhistogram::Histogram;

/// Longest latency that is recorded, ns (10 s); longer ones are recorded as this value. Assumption: longer than any
/// measured run.
const LONGEST_NS: u64 = 10_000_000_000;

/// Latencies below this, ns, are first counted in steps of equal width and moved to the histogram when it is read. A
/// packet latency is recorded twelve million times a second, and finding a histogram bucket costs ten times as much as
/// finding a step. Assumption: longer than the latency of most packets.
const FRONT_NS: usize = 1 << 18;
/// Width of a step, ns. From `SHORTEST_NS` on, half a step is below 0.5 % of the latency. Assumption: a finer step
/// would be below the spread of seeds.
const STEP_NS: usize = 64;
const SHORTEST_NS: usize = 1 << 13;

/// Latencies from `FRONT_NS` up to this, ns, are counted in the histogram's own steps first: there are 128 of them
/// between a power of two and the next, for two digits. Assumption: beyond what packets of a full ring take.
const FAR_NS: usize = 1 << 24;
const FAR_STEPS_PER_OCTAVE: usize = 128;
const FAR_STEPS: usize = FAR_STEPS_PER_OCTAVE * (FAR_NS / FRONT_NS).ilog2() as usize;
/// Bits of a float below its exponent and the first seven of its fraction, which are the number of such a step.
const BELOW_FAR_STEP: u32 = f64::MANTISSA_DIGITS - 1 - FAR_STEPS_PER_OCTAVE.ilog2();
const FIRST_FAR_STEP: u64 = (FRONT_NS as f64).to_bits() >> BELOW_FAR_STEP;

/// The three parts of a packet's time in the host, as in A4 Fig. 14a; sums over packets.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Stations {
    /// Packets taken from a ring.
    pub packets: f64,
    /// Time in the RX ring, from the packet's arrival until a worker begins with it, ns.
    pub queueing_ns: f64,
    /// Access to the completion, the descriptor and packet metadata, ns.
    pub pointer_ns: f64,
    /// Processing: instructions and the packet's lines, ns.
    pub processing_ns: f64,
}

/// Block commands of one workload.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct BlockCommands {
    /// Blocks as the program counts them.
    pub blocks: u64,
    /// Blocks that were transferred.
    pub moved: u64,
    /// Time that a core worked before the first command, ns.
    pub prepared_ns: f64,
    /// When the first command could be sent, ns; `None` before that. `Meter::clear` keeps this field and the fields
    /// below.
    pub begun_ns: Option<f64>,
    /// When the last completion was seen, or when the time limit expired if that was later, ns.
    pub last_ns: f64,
    /// Commands in flight.
    pub outstanding: u64,
    /// No more commands will be sent: a total is reached, or the time limit has expired.
    pub ended: bool,
}

/// The meter of one workload, since it was last cleared.
#[derive(Clone, Debug)]
pub struct Meter {
    /// Operations completed: packets, I/Os, requests.
    pub operations: f64,
    /// Payload bytes of these.
    pub bytes: f64,
    /// Counts of a program that sends block commands; `None` for all others.
    pub load: Option<BlockCommands>,
    /// Commands completed of each job of a job file; empty without one.
    pub job_commands: Vec<u64>,
    /// Dropped packets.
    pub dropped: f64,
    /// Parts of the packets' time in the host.
    pub stations: Stations,
    latency_ns: Histogram<u64>,
    /// Counts per step that are not in the histogram yet.
    front: Box<[u32; FRONT_NS / STEP_NS]>,
    far: Box<[u32; FAR_STEPS]>,
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
            job_commands: Vec::new(),
            dropped: 0.0,
            stations: Stations::default(),
            latency_ns,
            front: Box::new([0; FRONT_NS / STEP_NS]),
            far: Box::new([0; FAR_STEPS]),
            latency_sum_ns: 0.0,
            latency_count: 0.0,
        }
    }
}

impl Meter {
    /// Records the latency of a completed operation.
    #[inline(always)]
    pub fn latency(&mut self, ns: f64) {
        self.latency_sum_ns += ns;
        self.latency_count += 1.0;
        // The cast from float to a signed integer is cheaper; a value out of range is not a valid step.
        let step = (ns * (1.0 / STEP_NS as f64)) as i32 as usize;
        if let Some(count) = self.front.get_mut(step).filter(|_| step >= SHORTEST_NS / STEP_NS) {
            *count += 1;
        } else if let Some(count) = self.far.get_mut(far_step(ns)) {
            *count += 1;
        } else {
            self.latency_ns.saturating_record(ns as u64);
        }
    }

    /// Mean latency, ns; `None` if nothing completed.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.latency_count > 0.0).then(|| self.latency_sum_ns / self.latency_count)
    }

    /// Sum of all latencies, ns, and their number.
    pub fn latency_total(&self) -> (f64, f64) {
        (self.latency_sum_ns, self.latency_count)
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
        for (step, count) in self.far.iter().enumerate().filter(|(_, count)| **count > 0) {
            let lowest = f64::from_bits((FIRST_FAR_STEP + step as u64) << BELOW_FAR_STEP);
            all.saturating_record_n(lowest as u64, u64::from(*count));
        }
        all
    }

    /// Resets the meter.
    pub fn clear(&mut self) {
        self.operations = 0.0;
        self.bytes = 0.0;
        if let Some(load) = &mut self.load {
            (load.blocks, load.moved) = (0, 0);
        }
        self.job_commands.fill(0);
        self.dropped = 0.0;
        self.stations = Stations::default();
        self.latency_ns.reset();
        self.front.fill(0);
        self.far.fill(0);
        self.latency_sum_ns = 0.0;
        self.latency_count = 0.0;
    }
}

/// The number of a latency's step from `FRONT_NS` on; of any other latency a number that no step has.
#[inline(always)]
fn far_step(ns: f64) -> usize {
    (ns.to_bits() >> BELOW_FAR_STEP).wrapping_sub(FIRST_FAR_STEP) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_beyond_the_front_are_those_of_the_histogram() {
        let mut meter = Meter::default();
        let mut plain = meter.latency_ns.clone();
        // Both ends of every step, what comes just before and after them all, and what is no latency.
        let width = |step: u64| FRONT_NS as u64 / FAR_STEPS_PER_OCTAVE as u64 * step;
        let ends = (0..FAR_STEPS as u64 * 40).map(|step| FRONT_NS as f64 + width(step) as f64);
        for ns in ends.flat_map(|ns| [ns, ns + 0.5, ns - 0.5]).filter(|ns| *ns >= FRONT_NS as f64) {
            meter.latency(ns);
            plain.saturating_record(ns as u64);
        }
        for ns in [1e12, 3.0, 0.0, -7.0] {
            meter.latency(ns);
            plain.saturating_record(ns as u64);
        }
        assert!(meter.far.iter().all(|count| *count > 0));
        assert_eq!(meter.latencies_ns(), plain);
        assert_eq!(meter.latencies_ns().max(), plain.max());
        meter.clear();
        assert!(meter.latencies_ns().is_empty());
    }
}
