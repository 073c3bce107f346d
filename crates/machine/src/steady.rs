//! Steady intervals: simulates a part of each and extrapolates the rest of the counts.
//!
//! Between two changes of knobs or programs, most intervals of a control loop repeat the one before. The server
//! simulates such an interval chunk by chunk until the chunks agree with each other, or with the known steady state.
//! Then it moves its clock to the interval's end: counters grow as in the steady state, and nothing else happens. An
//! event that no chunk showed cannot happen in the skipped part: a queue that would overflow once in a second overflows
//! later on the server's clock. Knows counters and ring lengths; must not know a policy, and must not extrapolate in
//! the measured interval. Marks: docs/reference/README.md#marks.

use crate::bare::{BUSY_NS, BareMachine, CORE_COUNTS, INSTRUCTIONS, LLC_HITS, LLC_MISSES};
use crate::scenario::ScenarioError;

/// Simulated time of a chunk, ns. Assumption: several times as long as a full ring of 1024 packets takes (0.5 ms).
const CHUNK_NS: f64 = 2.5e6;
/// First chunks of an interval that the search for a steady state skips. Masks take 5 to 10 ms to show most of their
/// effect (flagship under a4).
const SETTLING: usize = 2;
/// Chunks per half of the window whose halves have to agree before the state counts as steady.
const HALF: usize = 4;
/// Chunks of an interval that are compared with a known steady state.
const QUICK: usize = 3;
/// Maximum weight of a steady state's means, in chunks: an interval of the usual 50 ms.
const MEMORY: f64 = 20.0;

/// Tolerances: how far two means without noise may differ, in each quantity's unit (calibrated: the state test of
/// docs/speed.md).
const IPC_PERCENT: f64 = 1.0;
const RATIO_POINTS: f64 = 1.0;
const DCA_POINTS: f64 = 0.5;
const RING_PERCENT: f64 = 3.0;
/// Two means may differ by this many standard errors, but by no more than this many tolerances: `MOST_AT_FIRST` in the
/// search for a steady state, `MOST_AGAIN` for a known one.
const ERRORS: f64 = 3.0;
const MOST_AT_FIRST: f64 = 4.0;
const MOST_AGAIN: f64 = 6.0;
/// With fewer LLC accesses in a chunk its hit ratio is only noise.
const FEWEST_ACCESSES: f64 = 1500.0;

/// A quantity of a chunk, with its tolerance.
#[derive(Clone, Copy, Debug)]
struct Quantity {
    value: f64,
    tolerance: f64,
}

/// The end of a chunk: all counts so far, and the quantities of the chunk.
type Chunk = (Vec<f64>, Vec<Quantity>);

/// A steady state.
#[derive(Clone, Debug)]
struct State {
    /// Mean and variance of each quantity over chunks.
    quantities: Vec<(f64, f64)>,
    /// Growth of each count per chunk.
    growth: Vec<f64>,
    /// Weight of these means, in chunks.
    chunks: f64,
}

/// The known steady state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Steadiness {
    state: Option<State>,
    /// True after the first interval, which is simulated completely because caches fill.
    warm: bool,
}

impl Steadiness {
    /// Discards the steady state, because a knob was changed.
    pub(crate) fn forget(&mut self) {
        self.state = None;
    }

    /// Runs the machine until the server's clock reads `deadline_ns`; simulates only as much of it as needed.
    ///
    /// # Errors
    /// As [`BareMachine::run_until`].
    pub(crate) fn run_until(
        &mut self,
        bare: &mut BareMachine,
        deadline_ns: u64,
    ) -> Result<(), ScenarioError> {
        let chunk_ns = (CHUNK_NS * bare.time_factor()) as u64;
        let is_long = deadline_ns > bare.now_ns() + chunk_ns * (SETTLING + 2 * HALF) as u64;
        if !std::mem::replace(&mut self.warm, true) || !is_long || !bare.is_quiet_until(deadline_ns) {
            self.state = None;
            return bare.run_until(deadline_ns);
        }
        let all = (deadline_ns - bare.now_ns()) as f64 / chunk_ns as f64;
        let before = bare.counts();
        let mut chunks: Vec<Chunk> = Vec::new();
        while bare.now_ns() + chunk_ns <= deadline_ns {
            bare.run_until(bare.now_ns() + chunk_ns)?;
            let counts = bare.counts();
            let from = chunks.last().map_or(&before, |(counts, _)| counts);
            let quantities = quantities(bare, from, &counts);
            chunks.push((counts, quantities));
            if let Some(growth) = self.judge(&before, &chunks, all) {
                bare.extrapolate(deadline_ns, &growth, chunk_ns);
                return Ok(());
            }
        }
        self.state = None;
        bare.run_until(deadline_ns)
    }

    /// Growth per chunk of each count for the rest of an interval of `all` chunks; `None` unless the simulated chunks
    /// confirm the known steady state or show a new one.
    fn judge(&mut self, before: &[f64], chunks: &[Chunk], all: f64) -> Option<Vec<f64>> {
        if let Some(state) = &mut self.state {
            if chunks.len() < QUICK {
                return None;
            }
            let new = State::of(before, chunks);
            if state.lasts_in(&new, &chunks[0].1) {
                let growth = state.growth_with(&new, all);
                state.add(new);
                return Some(growth);
            }
            self.state = None;
        }
        let from = chunks.len().checked_sub(2 * HALF).filter(|from| *from >= SETTLING)?;
        let stretch = &chunks[from..];
        let (first, second) = stretch.split_at(HALF);
        let pairs = means(first).into_iter().zip(means(second)).zip(&stretch[0].1);
        let mut agree = pairs.map(|(((a, spread), (b, other)), quantity)| {
            near(a, b, (spread + other) / HALF as f64, quantity.tolerance, MOST_AT_FIRST)
        });
        if !agree.all(|agrees| agrees) {
            return None;
        }
        let state = self.state.insert(State::of(&chunks[from - 1].0, stretch));
        Some(state.growth.clone())
    }
}

impl State {
    /// The state that these chunks show; `before` are the counts at the start of the first.
    fn of(before: &[f64], chunks: &[Chunk]) -> State {
        let count = chunks.len() as f64;
        let last = &chunks[chunks.len() - 1].0;
        let growth = before.iter().zip(last).map(|(from, to)| (to - from) / count);
        State { quantities: means(chunks), growth: growth.collect(), chunks: count }
    }

    /// Whether an interval, whose quantities have these tolerances, is in this state.
    fn lasts_in(&self, interval: &State, tolerances: &[Quantity]) -> bool {
        let pairs = self.quantities.iter().zip(&interval.quantities).zip(tolerances);
        let mut near = pairs.map(|(((mean, variance), (now, _)), quantity)| {
            let error = variance * (1.0 / interval.chunks + 1.0 / self.chunks);
            near(*now, *mean, error, quantity.tolerance, MOST_AGAIN)
        });
        self.quantities.len() == tolerances.len() && near.all(|near| near)
    }

    /// Growth per chunk for the rest of an interval of `all` chunks, of which the `new` ones were simulated. The new
    /// chunks are weighted so that intervals differ from each other as much as if each were simulated completely,
    /// because policies read these differences.
    ///
    /// With weight f for n new chunks of variance v, an interval's own part has the variance f^2 v / n; simulated
    /// completely it would have v / N. So f is the root of n / N.
    fn growth_with(&self, new: &State, all: f64) -> Vec<f64> {
        let weight = ((new.chunks * all).sqrt() - new.chunks) / (all - new.chunks);
        let pairs = self.growth.iter().zip(&new.growth);
        pairs.map(|(known, new)| known + weight * (new - known)).collect()
    }

    /// Merges an interval's chunks into the means.
    fn add(&mut self, new: State) {
        let total = self.chunks + new.chunks;
        let (old, part) = (self.chunks / total, new.chunks / total);
        for ((mean, variance), (value, spread)) in self.quantities.iter_mut().zip(new.quantities) {
            *variance = old * *variance + part * spread + old * part * (value - *mean).powi(2);
            *mean = old * *mean + part * value;
        }
        for (growth, by) in self.growth.iter_mut().zip(new.growth) {
            *growth = old * *growth + part * by;
        }
        self.chunks = total.min(MEMORY);
    }
}

/// Mean and variance of each quantity over chunks.
fn means(chunks: &[Chunk]) -> Vec<(f64, f64)> {
    let count = chunks.len() as f64;
    let of = |index: usize| {
        let values = || chunks.iter().map(|(_, quantities)| quantities[index].value);
        let mean = values().sum::<f64>() / count;
        let squares: f64 = values().map(|value| (value - mean).powi(2)).sum();
        (mean, squares / (count - 1.0).max(1.0))
    };
    (0..chunks[0].1.len()).map(of).collect()
}

/// Whether two means are close: within the tolerance, or within the noise but at most `most` tolerances.
/// `squared_error` is the square of the standard error of their difference.
fn near(a: f64, b: f64, squared_error: f64, tolerance: f64, most: f64) -> bool {
    (a - b).abs() <= (ERRORS * squared_error.sqrt()).clamp(tolerance, most * tolerance)
}

/// The compared quantities of a chunk between two readings of [`BareMachine::counts`]: the IPC and the LLC hit ratio of
/// each running program, the hit ratio of device writes, and how full each RX ring is at the chunk's end.
fn quantities(bare: &BareMachine, from: &[f64], to: &[f64]) -> Vec<Quantity> {
    let percent = |a: f64, b: f64| if b > 0.0 { a / b * 100.0 } else { 0.0 };
    let mut all = Vec::new();
    for cores in bare.cores_of_programs() {
        let sum = |field: usize| -> f64 {
            let places = cores.iter().map(|core| core * CORE_COUNTS + field);
            places.map(|at| to[at] - from[at]).sum()
        };
        // With logarithms, a difference is a relative one.
        let ipc = percent(sum(INSTRUCTIONS), sum(BUSY_NS)).max(0.1).ln() * 100.0;
        all.push(Quantity { value: ipc, tolerance: IPC_PERCENT });
        let accesses = sum(LLC_HITS) + sum(LLC_MISSES);
        let ratio = if accesses < FEWEST_ACCESSES { 0.0 } else { percent(sum(LLC_HITS), accesses) };
        all.push(Quantity { value: ratio, tolerance: RATIO_POINTS });
    }
    let at = bare.dca_counts_at();
    let (hits, misses) = (to[at] - from[at], to[at + 1] - from[at + 1]);
    all.push(Quantity { value: percent(hits, hits + misses), tolerance: DCA_POINTS });
    all.extend(bare.rings_in_use().map(|used| Quantity { value: used * 100.0, tolerance: RING_PERCENT }));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chunks with one quantity and one count, which grows by the quantity's value.
    fn chunks(from: f64, values: &[f64]) -> Vec<Chunk> {
        let mut sum = from;
        let chunk = |value: &f64| {
            sum += value;
            (vec![sum], vec![Quantity { value: *value, tolerance: 1.0 }])
        };
        values.iter().map(chunk).collect()
    }

    fn judge(steadiness: &mut Steadiness, values: &[f64]) -> Option<f64> {
        steadiness.judge(&[100.0], &chunks(100.0, values), 20.0).map(|growth| growth[0])
    }

    #[test]
    fn the_mean_the_variance_and_the_growth_of_chunks_by_hand() {
        let mut state = State::of(&[100.0], &chunks(100.0, &[9.0, 11.0, 10.0, 10.0]));
        assert_eq!((state.quantities[0], state.growth[0]), ((10.0, 2.0 / 3.0), 10.0));
        state.add(State::of(&[0.0], &chunks(0.0, &[12.0, 12.0, 12.0, 12.0])));
        // Equal weights: half of 2/3 and of 0 within the parts, and 1/4 of the square of 2 between them.
        assert_eq!((state.growth[0], state.chunks), (11.0, 8.0));
        assert!((state.quantities[0].1 - (1.0 / 3.0 + 1.0)).abs() < 1e-12);
    }

    #[test]
    fn two_halves_have_to_agree_after_what_is_left_out() {
        let mut steadiness = Steadiness::default();
        let level = [50.0, 30.0, 10.0, 10.2, 9.9, 10.0, 10.1, 9.8, 10.0, 10.0];
        assert_eq!(judge(&mut steadiness, &level[..9]), None, "two of settling and eight are ten");
        assert_eq!(judge(&mut steadiness, &level), Some(10.0));
        // With a slope of 0.8 a chunk the halves differ by 3.2; noise explains at most 2.9 of it.
        let slope: Vec<f64> = (0..10).map(|at| 10.0 + 0.8 * f64::from(at)).collect();
        assert_eq!(judge(&mut Steadiness::default(), &slope), None);
    }

    #[test]
    fn a_known_state_takes_three_chunks_and_a_new_one_is_looked_for_from_the_start() {
        let mut steadiness = Steadiness::default();
        assert!(judge(&mut steadiness, &[10.0; 10]).is_some());
        assert_eq!(judge(&mut steadiness, &[10.5; 2]), None);
        // 3 of an interval's 20 chunks are new. The interval's mean, from 3 simulated and 17 extrapolated chunks, is
        // checked.
        let growth = judge(&mut steadiness, &[10.5; 3]).expect("half a tolerance apart");
        let own = (3.0 * 10.5 + 17.0 * growth) / 20.0;
        assert!((own - (10.0 + 0.5 * (3.0f64 / 20.0).sqrt())).abs() < 1e-12);
        assert_eq!(judge(&mut steadiness, &[14.0; 3]), None);
        assert_eq!(judge(&mut steadiness, &[14.0; 9]), None, "the old state is forgotten");
        assert_eq!(judge(&mut steadiness, &[14.0; 10]), Some(14.0));
        steadiness.forget();
        assert_eq!(judge(&mut steadiness, &[14.0; 3]), None);
    }

    #[test]
    fn noise_widens_a_tolerance_up_to_a_limit() {
        assert!(near(10.0, 11.0, 0.0, 1.0, 4.0));
        assert!(!near(10.0, 11.1, 0.0, 1.0, 4.0));
        assert!(near(10.0, 12.9, 1.0, 1.0, 4.0), "three standard errors of 1");
        assert!(!near(10.0, 14.1, 4.0, 1.0, 4.0), "four tolerances at most");
    }
}
