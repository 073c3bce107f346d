//! `water`: Splash-3's water_nsquared, ddio-bench's cache-sensitive neighbour (s4.1, Figs. 3 and 4): every molecule
//! is paired with the half of the others that follow it, over and over.
//!
//! Positions are read and forces rewritten, both a small part of a molecule, so that the accessed data are
//! small and mostly stay in the caches. Knows the lines of a pair, must not know physics.
//! Marks: docs/reference/README.md#marks.

use super::program::{Blueprint, Core, Program, ProgramKind, ScoreKind, Site, WorkUnit};
use crate::bus::{Access, Bus, Costs};
use crate::random::Stream;
use crate::scenario::{Keys, ScenarioError};
use std::sync::Arc;
use waykeeper_host::WorkloadKind;
use waykeeper_silicon::{Fill, Line, OutOfMemory};
use waykeeper_units::LINE_BYTES;

pub(super) const WATER: ProgramKind = ProgramKind {
    name: "water",
    about: "pairs molecules: a small hot working set walked through over and over (ddio-bench s4.1)",
    kind: WorkloadKind::NonIo,
    score: ScoreKind::Ipc,
    unit: WorkUnit::Operations,
    read,
};

/// Bytes of a molecule: its centre and nine orders of nine doubles (Splash-3's `molecule_type`).
const MOLECULE_BYTES: u32 = 672;
/// Where the centre and the positions are, and the forces. Arithmetic: orders 0 and 7 of 72 bytes each, behind 24 of
/// the centre.
const POSITIONS: (u32, u32) = (0, 96);
const FORCES: (u32, u32) = (528, 600);
/// Share of pairs within the cut-off of half a box, whose forces are calculated: a sphere in its cube.
const WITHIN: f64 = std::f64::consts::FRAC_PI_6;
/// Mean time of a pair and its instructions (X: nine distances, roots and exponentials for the pairs within).
const PAIR_NS: f64 = 90.0;
const PAIR_INSTRUCTIONS: f64 = 300.0;
/// Lines of a pair that are fetched together, which divides their latency (X).
const TOGETHER: f64 = 4.0;

#[derive(Clone, Copy, Debug)]
struct Water {
    molecules: u32,
}

fn read(keys: &mut Keys<'_>) -> Result<Arc<dyn Blueprint>, ScenarioError> {
    // C: its LLC misses under the DCA ways are three times those elsewhere (ddio-bench Fig. 4).
    Ok(Arc::new(Water { molecules: keys.count("molecules", 8..=1_000_000, 8_000)? }))
}

/// Lines that a pair needs of a molecule: `(line, whether it is rewritten)`.
fn needed(molecule: u32) -> impl Iterator<Item = (u32, bool)> {
    let part = move |(from, to): (u32, u32), written| {
        let at = |byte: u32| (molecule * MOLECULE_BYTES + byte) / LINE_BYTES as u32;
        (at(from)..=at(to - 1)).map(move |line| (line, written))
    };
    part(POSITIONS, false).chain(part(FORCES, true))
}

impl Blueprint for Water {
    fn build(&self, site: &mut Site<'_>) -> Result<Box<dyn Program>, OutOfMemory> {
        if site.shared.is_none() {
            let bytes = u64::from(self.molecules) * u64::from(MOLECULE_BYTES);
            *site.shared = Some(Arc::new(site.memory.ordinary(bytes)?));
        }
        let region = site.shared.clone().expect("just made");
        let (mut steps, mut total) = (Vec::new(), 0u32);
        for (line, written) in (0..self.molecules).flat_map(needed) {
            total += 1;
            let access = if written { Access::Write } else { Access::Read };
            steps.extend(region.lines()[region.range(line, line + 1)].iter().map(|line| (*line, access)));
        }
        let count = steps.len();
        Ok(Box::new(Pairs {
            // Threads begin at different molecules.
            first: (count * site.thread / site.threads) as f64,
            per_molecule: count as f64 / f64::from(self.molecules),
            scale: f64::from(total) / count.max(1) as f64,
            pairs_per_line: f64::from(self.molecules) / f64::from(total),
            steps,
            done: 0,
            costs: site.bus.dependent.scaled(1.0 / TOGETHER),
            stream: site.stream(),
            workload: site.workload,
        }))
    }
}

/// A walk through the half of the molecules behind a first one, then behind the next.
#[derive(Clone, Debug)]
struct Pairs {
    steps: Vec<(Line, Access)>,
    /// Step of the molecule that is paired with the others, and steps of a molecule.
    first: f64,
    per_molecule: f64,
    /// Steps done behind it.
    done: usize,
    /// Real lines per sampled one.
    scale: f64,
    pairs_per_line: f64,
    costs: Costs,
    stream: Stream,
    workload: usize,
}

impl Program for Pairs {
    fn run(&mut self, bus: &mut Bus, core: &mut Core, until_ns: f64) {
        let count = self.steps.len();
        if count == 0 {
            // So few molecules that none is in the sample: they fit into the L1.
            core.work((until_ns - core.clock_ns).max(0.0), 0.0);
            return;
        }
        let (pair_ns, instructions) =
            (PAIR_NS * self.pairs_per_line, PAIR_INSTRUCTIONS * self.pairs_per_line);
        let mut lines = 0.0;
        while core.clock_ns < until_ns {
            let (line, access) = self.steps[(self.first as usize + self.done) % count];
            let needed = access == Access::Read || self.stream.chance(WITHIN);
            let ns = if needed {
                bus.memory.touch(core.id, line, access, Fill::Ordinary, &self.costs)
            } else {
                0.0
            };
            core.work((pair_ns + ns) * self.scale, instructions * self.scale);
            lines += self.scale;
            self.done += 1;
            if self.done * 2 >= count {
                self.done = 0;
                self.first = (self.first + self.per_molecule) % count as f64;
            }
        }
        bus.meters[self.workload].operations += lines * self.pairs_per_line;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_molecule_needs_its_positions_and_its_forces() {
        // Molecule 0: bytes 0 to 95 in lines 0 and 1, 528 to 599 in lines 8 (512 to 575) and 9.
        assert_eq!(needed(0).collect::<Vec<_>>(), [(0, false), (1, false), (8, true), (9, true)]);
        // Molecule 1: bytes 672 to 767 in lines 10 (640 to 703) and 11, 1200 to 1271 in lines 18 and 19.
        assert_eq!(needed(1).collect::<Vec<_>>(), [(10, false), (11, false), (18, true), (19, true)]);
    }
}
