//! Accesses that key-value stores share: lines at random or in turn, runs of lines, the mixes of YCSB.
//!
//! Lines are accessed at once, which is right for programs whose operations take microseconds; packet programs
//! gather theirs. Knows lines, not their content.

use crate::bus::{Access, ClassMean, Costs, Memory};
use crate::random::Stream;
use crate::scenario::{Keys, ScenarioError};
use waykeeper_silicon::{Fill, Level, Line, Region};

/// The YCSB core mixes, as share of updates: A 50 %, B 5 %, C none.
pub(super) fn mix(keys: &mut Keys<'_>) -> Result<f64, ScenarioError> {
    Ok(match keys.choice("mix", &["a", "b", "c"], "a")?.as_str() {
        "a" => 0.5,
        "b" => 0.05,
        _ => 0.0,
    })
}

/// Lines touched at random or in turn, a real number of them at a time.
#[derive(Clone, Debug)]
pub(super) struct WorkingSet {
    region: Region,
    costs: Costs,
    mean: ClassMean,
    at: usize,
}

impl WorkingSet {
    pub(super) fn new(region: Region, costs: Costs) -> WorkingSet {
        WorkingSet { region, costs, mean: ClassMean::new(costs.idle(Level::Llc)), at: 0 }
    }

    /// Accesses `count` lines, of which `next` chooses the sampled ones; their number is dithered, so that it is right
    /// on average without a rhythm. Returns the cost of all `count`.
    pub(super) fn touch(
        &mut self,
        memory: &mut Memory,
        core: usize,
        count: f64,
        access: Access,
        stream: &mut Stream,
        next: fn(&mut usize, usize, &mut Stream) -> usize,
    ) -> f64 {
        let lines = self.region.lines();
        let sampled = if lines.is_empty() { 0.0 } else { count / self.region.scale() };
        for _ in 0..(sampled + stream.unit()) as u32 {
            let line = lines[next(&mut self.at, lines.len(), stream)];
            self.mean.note(memory.touch(core, line, access, Fill::Ordinary, &self.costs));
        }
        count * self.mean.ns()
    }
}

pub(super) fn anywhere(_: &mut usize, len: usize, stream: &mut Stream) -> usize {
    stream.below(len as u32) as usize
}

pub(super) fn in_turn(at: &mut usize, len: usize, _: &mut Stream) -> usize {
    *at = if *at + 1 < len { *at + 1 } else { 0 };
    *at
}

/// A class of lines that client and server share: sampled ones are accessed, the others cost the mean.
pub(super) fn message(
    memory: &mut Memory,
    core: usize,
    lines: &[Line],
    total: u32,
    access: Access,
    class: &mut (Costs, ClassMean),
) -> f64 {
    let mut ns = f64::from(total - lines.len() as u32) * class.1.ns();
    for line in lines {
        let cost = memory.touch(core, *line, access, Fill::Ordinary, &class.0);
        class.1.note(cost);
        ns += cost;
    }
    ns
}

/// The same for `count` lines of a region from number `from` on.
pub(super) fn run_of(
    memory: &mut Memory,
    core: usize,
    (region, from, count): (&Region, u32, u32),
    access: Access,
    class: &mut (Costs, ClassMean),
) -> f64 {
    let sampled = region.range(from, from + count);
    message(memory, core, &region.lines()[sampled], count, access, class)
}
