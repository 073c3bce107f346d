//! How long a benchmark takes: CPU time, contenders in turn, medians. Knows nothing of what they do.
//!
//! A machine that others use gets slower and faster by the second. CPU time leaves out the time when others ran, and
//! contenders that take turns meet the same machine, so that their ratio is steadier than either rate.

use rustix::time::{ClockId, clock_gettime};

/// Rounds of each comparison; the medians are kept.
pub const ROUNDS: usize = 7;

/// One run of a contender.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// CPU time.
    pub cpu_s: f64,
    /// Accesses that a cache answered, of a contender that counts them.
    pub hits: u64,
}

/// A contender: each call is one run of it.
pub type Contender<'a> = Box<dyn FnMut() -> Pass + 'a>;

/// CPU time of what this thread does in `run`, which returns the hits.
pub fn timed(run: impl FnOnce() -> u64) -> Pass {
    let start = cpu_s();
    let hits = run();
    Pass { cpu_s: cpu_s() - start, hits }
}

/// The runs of each contender: all of them in turn, `ROUNDS` times, after a round that warms up.
pub fn in_turn(contenders: &mut [Contender<'_>]) -> Vec<Vec<Pass>> {
    let mut passes = vec![Vec::new(); contenders.len()];
    for round in 0..=ROUNDS {
        for (contender, passes) in contenders.iter_mut().zip(&mut passes) {
            let pass = contender();
            if round > 0 {
                passes.push(pass);
            }
        }
    }
    passes
}

/// Median of the runs' CPU times.
pub fn median_s(passes: &[Pass]) -> f64 {
    median(passes.iter().map(|pass| pass.cpu_s))
}

/// How many times as fast `ours` is as `theirs`: the median over the rounds.
pub fn median_ratio(ours: &[Pass], theirs: &[Pass]) -> f64 {
    median(ours.iter().zip(theirs).map(|(ours, theirs)| theirs.cpu_s / ours.cpu_s))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn cpu_s() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}
