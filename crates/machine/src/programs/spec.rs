//! `spec`: stand-ins for SPEC CPU2017 programs (rate copies), as mixtures of a hot set, a warm set and a
//! stream per instruction.
//!
//! A profile says how many accesses leave the L1 per thousand instructions and where they go. The
//! profiles are data (`spec_profiles.toml`), each number with its source or what it was calibrated on.

use super::{Blueprint, Core, Kind, Program, Score, Site, Unit};
use crate::bus::{Access, Bus, Costs};
use crate::random::Stream;
use crate::scenario::{Keys, ScenarioError};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use waykeeper_host::WorkloadKind;
use waykeeper_silicon::{Fill, Line, OutOfMemory, Region};

pub(super) const SPEC: Kind = Kind {
    name: "spec",
    about: "a SPEC CPU2017 rate copy: hot set, warm set and stream per instruction",
    kind: WorkloadKind::NonIo,
    score: Score::Ipc,
    unit: Unit::Instructions,
    read,
};

/// One program's memory behaviour beyond its L1.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    /// Cycles per instruction when everything hits the L1.
    cpi: f64,
    /// Accesses that leave the L1, per thousand instructions.
    apki: f64,
    /// Share of them to a hot set (random), and its size in KiB.
    hot: f64,
    hot_kib: u64,
    /// Share to a warm set (random), and its size in KiB.
    warm: f64,
    warm_kib: u64,
    /// Size in KiB of what is scanned; takes the remaining share.
    stream_kib: u64,
    /// Share of accesses that store.
    writes: f64,
    /// Random accesses in flight together: divides their latency.
    mlp: f64,
}

const PROFILES: &str = include_str!("spec_profiles.toml");

fn profiles() -> BTreeMap<String, Profile> {
    toml::from_str(PROFILES).expect("the built-in profiles are valid; a test reads them")
}

fn read(keys: &mut Keys<'_>) -> Result<Arc<dyn Blueprint>, ScenarioError> {
    let profiles = profiles();
    let names: Vec<&str> = profiles.keys().map(String::as_str).collect();
    let name = keys.required_choice("benchmark", &names)?;
    Ok(Arc::new(profiles[&name]))
}

impl Blueprint for Profile {
    fn build(&self, site: &mut Site<'_>) -> Result<Box<dyn Program>, OutOfMemory> {
        let mut region = |kib: u64| site.memory.ordinary(kib << 10);
        let (hot, warm, streamed) = (region(self.hot_kib)?, region(self.warm_kib)?, region(self.stream_kib)?);
        // Sampled accesses come from each set as often as the sample really covers it: a set that is covered
        // badly must not see its lines touched more often than they are.
        let shares = [self.hot, self.warm, 1.0 - self.hot - self.warm];
        let scales = [&hot, &warm, &streamed].map(Region::scale);
        let sampled: f64 = (0..3).map(|set| shares[set] / scales[set]).sum();
        let accesses = 1.0 / sampled;
        let instructions = accesses * 1000.0 / self.apki;
        Ok(Box::new(Mixture {
            hot: shares[0] / scales[0] * accesses,
            warm: (shares[0] / scales[0] + shares[1] / scales[1]) * accesses,
            writes: self.writes,
            sets: [hot, warm, streamed],
            scales,
            stream_at: 0,
            random: site.bus.dependent.scaled(1.0 / self.mlp),
            streaming: site.bus.streaming,
            instructions,
            compute_ns: instructions * self.cpi / site.bus.ghz,
            stream: site.stream(),
            workload: site.workload,
            next: None,
        }))
    }
}

#[derive(Debug)]
struct Mixture {
    /// Below this a uniform number means the hot set, below `warm` the warm one, above it the stream.
    hot: f64,
    warm: f64,
    writes: f64,
    sets: [Region; 3],
    /// Real lines per sampled one of each set.
    scales: [f64; 3],
    stream_at: usize,
    random: Costs,
    streaming: Costs,
    /// Instructions per sampled access.
    instructions: f64,
    /// Time of these without leaving the L1, ns.
    compute_ns: f64,
    stream: Stream,
    workload: usize,
    /// The access after this one, chosen early so that the model's own memory can be fetched ahead.
    next: Option<Choice>,
}

/// One access of the mixture. A set smaller than the sample's grain has no sampled line: it costs its
/// compute time alone.
#[derive(Clone, Copy, Debug)]
struct Choice {
    line: Option<Line>,
    access: Access,
    set: usize,
}

/// Index of the streamed set among a mixture's sets.
const STREAMED: usize = 2;

impl Mixture {
    #[inline(always)]
    fn choose(&mut self) -> Choice {
        let place = self.stream.unit();
        let write = self.stream.chance(self.writes);
        let access = if write { Access::Write } else { Access::Read };
        let set = usize::from(place >= self.hot) + usize::from(place >= self.warm);
        let lines = self.sets[set].lines();
        let at = if set == STREAMED {
            self.stream_at = if self.stream_at + 1 < lines.len() { self.stream_at + 1 } else { 0 };
            self.stream_at
        } else {
            self.stream.below(lines.len() as u32) as usize
        };
        Choice { line: lines.get(at).copied(), access, set }
    }
}

impl Program for Mixture {
    fn run(&mut self, bus: &mut Bus, core: &mut Core, until_ns: f64) {
        let before = core.instructions;
        while core.clock_ns < until_ns {
            let following = self.choose();
            if let Some(line) = following.line {
                bus.memory.chip.prefetch(core.id, line);
            }
            let Some(Choice { line, access, set }) = self.next.replace(following) else {
                continue;
            };
            let costs = if set == STREAMED { &self.streaming } else { &self.random };
            let ns = line.map_or(0.0, |l| bus.memory.touch(core.id, l, access, Fill::Ordinary, costs));
            core.work(self.compute_ns + ns * self.scales[set], self.instructions);
        }
        let meter = &mut bus.meters[self.workload];
        meter.operations += core.instructions - before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_mixtures() {
        let profiles = profiles();
        assert_eq!(profiles.len(), 10);
        for (name, p) in profiles {
            assert!(p.hot >= 0.0 && p.warm >= 0.0 && p.hot + p.warm <= 1.0, "{name}");
            assert!(p.cpi > 0.0 && p.apki > 0.0 && p.mlp >= 1.0, "{name}");
            assert!((0.0..=1.0).contains(&p.writes), "{name}");
        }
    }
}
