//! `spec`: SPEC CPU2017 rate programs, by their accesses beyond the L1.
//!
//! A profile is a reuse profile: accesses that the MLC always serves, and working sets of several sizes, each with its
//! accesses per thousand instructions and the share of them that hardware prefetchers foresee. The built-in profiles
//! are fitted to measurements of each program alone, over the size of the LLC, with prefetchers on and off
//! (docs/programs.md; `spec/profiles.toml`). Knows lines and their costs; must not know what the program computes.
//! Marks: docs/reference/README.md#marks.

use super::program::{Blueprint, Core, Program, ProgramKind, ScoreKind, Site, WorkUnit};
use crate::bus::{Access, Bus, Costs};
use crate::random::Stream;
use crate::scenario::{Keys, ScenarioError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use waykeeper_host::WorkloadKind;
use waykeeper_silicon::{Fill, Level, Line, OutOfMemory, Region};
use waykeeper_units::LINE_BYTES;

pub(super) const SPEC: ProgramKind = ProgramKind {
    name: "spec",
    about: "a SPEC CPU2017 rate copy: working sets of several sizes, with hardware prefetchers",
    kind: WorkloadKind::NonIo,
    score: ScoreKind::Ipc,
    unit: WorkUnit::Instructions,
    read,
};

/// A part of a program's memory whose lines it touches equally often.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkingSet {
    /// Size, KiB.
    pub kib: u64,
    /// Accesses that leave the L1, per thousand instructions.
    pub apki: f64,
    /// Share of these that prefetchers foresee in time, 0 to 1.
    pub foreseen: f64,
    /// Whether it is scanned from end to end, over and over; otherwise its lines are accessed in random order.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scan: bool,
}

/// One program's memory behaviour beyond its L1.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Cycles per instruction when everything hits the L1.
    pub cpi: f64,
    /// Accesses in flight together that prefetchers did not foresee: divides the latency of dependent loads.
    pub mlp: f64,
    /// The same for those that they foresaw: divides the time of a line in a stream.
    pub stream_mlp: f64,
    /// Accesses that leave the L1 for a line that the MLC holds at all times, per thousand instructions.
    pub mlc_hits: f64,
    /// Share of accesses that store, 0 to 1.
    pub stores: f64,
    /// Useless lines that prefetchers fetch, per access that missed the MLC unforeseen.
    pub useless: f64,
    /// Its working sets.
    pub sets: Vec<WorkingSet>,
}

impl Profile {
    /// A profile's text, checked.
    fn parse(text: &str) -> Result<Profile, String> {
        let profile: Profile = toml::from_str(text)
            .map_err(|error| format!("a profile as in docs/programs.md: {}", error.message()))?;
        profile.check()?;
        Ok(profile)
    }

    /// The error says what is accepted.
    fn check(&self) -> Result<(), String> {
        let wanted = |key: &str, range: &str| Err(format!("a profile with {key} {range}"));
        if !(0.05..=20.0).contains(&self.cpi) {
            return wanted("cpi", "from 0.05 to 20");
        }
        if !(0.25..=64.0).contains(&self.mlp) || !(0.25..=64.0).contains(&self.stream_mlp) {
            return wanted("mlp and stream_mlp", "from 0.25 to 64");
        }
        if !(0.0..=1000.0).contains(&self.mlc_hits) {
            return wanted("mlc_hits", "from 0 to 1000");
        }
        if !(0.0..=1.0).contains(&self.stores) || !(0.0..=1.0).contains(&self.useless) {
            return wanted("stores and useless", "from 0 to 1");
        }
        if self.sets.len() > 16 {
            return wanted("at most 16", "sets");
        }
        for set in &self.sets {
            if set.kib == 0 || set.kib > 1 << 20 {
                return wanted("sets of", "1 to 1048576 KiB");
            }
            if !(set.apki > 0.0 && set.apki <= 1000.0 && (0.0..=1.0).contains(&set.foreseen)) {
                return wanted("sets with apki above 0, up to 1000, and foreseen", "from 0 to 1");
            }
        }
        Ok(())
    }
}

const PROFILES: &str = include_str!("spec/profiles.toml");

/// The built-in profiles by the program's name.
pub fn profiles() -> &'static BTreeMap<String, Profile> {
    static READ: LazyLock<BTreeMap<String, Profile>> = LazyLock::new(|| {
        toml::from_str(PROFILES).expect("the built-in profiles are valid; a test reads them")
    });
    &READ
}

fn read(keys: &mut Keys<'_>) -> Result<Arc<dyn Blueprint>, ScenarioError> {
    if keys.optional_text("profile")?.is_some() {
        let path = keys.required_path("profile")?;
        let text = waykeeper_bounded_read::text(&path, "a profile")
            .map_err(|why| ScenarioError::unreadable(&path, why))?;
        let profile = Profile::parse(&text).map_err(|why| keys.refuse("profile", &path.display(), &why))?;
        return Ok(Arc::new(profile));
    }
    let profiles = profiles();
    let names: Vec<&str> = profiles.keys().map(String::as_str).collect();
    let name = keys.required_choice("benchmark", &names)?;
    Ok(Arc::new(profiles[&name].clone()))
}

/// Instructions of a step, at most: a program with few accesses has steps without any. Assumption: some microseconds,
/// as a quantum.
const LONGEST_STEP: f64 = 20_000.0;

/// Copies of one workload share a set of this size: simulated memory is 2 GiB, and no LLC holds such a set, so that a
/// copy hits none of the lines that another fetched.
const SHARED_KIB: u64 = 64 << 10;

/// The workload's shared set: the first copy takes it. A second set of that size is each copy's own.
fn shared(site: &mut Site<'_>, bytes: u64) -> Result<Arc<Region>, OutOfMemory> {
    match site.shared {
        Some(region) if u64::from(region.total_lines()) == bytes / LINE_BYTES => Ok(region.clone()),
        Some(_) => Ok(Arc::new(site.memory.ordinary(bytes)?)),
        None => {
            let region = Arc::new(site.memory.ordinary(bytes)?);
            *site.shared = Some(region.clone());
            Ok(region)
        }
    }
}

impl Blueprint for Profile {
    fn build(&self, site: &mut Site<'_>) -> Result<Box<dyn Program>, OutOfMemory> {
        let mut sets = Vec::new();
        for set in &self.sets {
            let region = if set.kib >= SHARED_KIB {
                shared(site, set.kib << 10)?
            } else {
                Arc::new(site.memory.ordinary(set.kib << 10)?)
            };
            let scan_at = set.scan.then_some(0);
            sets.push(Sampled { scale: region.scale(), region, until: 0.0, foreseen: set.foreseen, scan_at });
        }
        // The share of each set in the sampled accesses follows how well the sample covers it: otherwise the lines of a
        // badly covered set would be accessed too often.
        let sampled: f64 = self.sets.iter().zip(&sets).map(|(set, of)| set.apki / of.scale).sum();
        let steps = sampled.max(1000.0 / LONGEST_STEP);
        let mut until = 0.0;
        for (set, of) in self.sets.iter().zip(&mut sets) {
            until += set.apki / of.scale / steps;
            of.until = until;
        }
        let instructions = 1000.0 / steps;
        let unforeseen = site.bus.dependent.scaled(1.0 / self.mlp);
        let mlc_hits = instructions * self.mlc_hits / 1000.0;
        Ok(Box::new(Mixture {
            sets,
            stores: self.stores,
            useless: self.useless,
            unforeseen,
            foreseen: site.bus.streaming.scaled(1.0 / self.stream_mlp),
            instructions,
            compute_ns: instructions * self.cpi / site.bus.ghz + mlc_hits * unforeseen.idle(Level::Mlc),
            mlc_hits: mlc_hits / f64::from(site.memory.sampling().factor()),
            uncounted_hits: 0.0,
            stream: site.stream(),
            workload: site.workload,
            next: None,
        }))
    }
}

/// The sampled lines of a working set.
#[derive(Clone, Debug)]
struct Sampled {
    region: Arc<Region>,
    /// Real lines per sampled one.
    scale: f64,
    /// The set of all random numbers below this that are not below the value of the set before.
    until: f64,
    /// Share of its accesses that prefetchers foresee.
    foreseen: f64,
    /// Number of the sampled line that a scan touches next.
    scan_at: Option<usize>,
}

#[derive(Clone, Debug)]
struct Mixture {
    sets: Vec<Sampled>,
    stores: f64,
    useless: f64,
    /// Costs of accesses that prefetchers did not foresee, and of those that they did.
    unforeseen: Costs,
    foreseen: Costs,
    /// Instructions per sampled access.
    instructions: f64,
    /// Time of these without leaving L1 and MLC, ns.
    compute_ns: f64,
    /// Accesses of these to lines that the MLC holds at all times, in sampled ones. They are counted without a line: no
    /// other access can evict such a line, and they are most of all accesses.
    mlc_hits: f64,
    /// The fraction of them that is not counted yet.
    uncounted_hits: f64,
    stream: Stream,
    workload: usize,
    /// The access after this one, chosen early so that the model's own memory can be fetched ahead.
    next: Option<Choice>,
}

/// One step of the mixture: an access, or none. A very small set may have no sampled line.
#[derive(Clone, Copy, Debug)]
struct Choice {
    /// Index of the line among the set's sampled ones; [`NO_LINE`] for none. The line itself is read at its turn: a
    /// random entry of a long list is in no near cache of the machine that runs the model.
    at: usize,
    access: Access,
    set: usize,
    foreseen: bool,
}

/// No list of sampled lines is that long.
const NO_LINE: usize = usize::MAX;

impl Mixture {
    #[inline(always)]
    fn choose(&mut self) -> Choice {
        let place = self.stream.unit();
        let write = self.stream.chance(self.stores);
        let access = if write { Access::Write } else { Access::Read };
        let Some(set) = self.sets.iter().position(|set| place < set.until) else {
            return Choice { at: NO_LINE, access, set: 0, foreseen: false };
        };
        let foreseen = self.sets[set].foreseen;
        let foreseen = foreseen > 0.0 && self.stream.chance(foreseen);
        Choice { at: self.next_of(set), access, set, foreseen }
    }

    #[inline(always)]
    fn next_of(&mut self, set: usize) -> usize {
        let Sampled { region, scan_at, .. } = &mut self.sets[set];
        let Some(next) = scan_at else { return self.anywhere_in(set) };
        let at = *next;
        *next = if at + 1 < region.lines().len() { at + 1 } else { 0 };
        at
    }

    #[inline(always)]
    fn anywhere_in(&mut self, set: usize) -> usize {
        self.stream.below(self.sets[set].region.lines().len() as u32) as usize
    }

    #[inline(always)]
    fn line(&self, set: usize, at: usize) -> Option<Line> {
        self.sets.get(set)?.region.lines().get(at).copied()
    }

    /// Prefetches what the next access needs: its line's handle, or on a large chip its line's sets.
    #[inline(always)]
    fn prefetch(&self, bus: &mut Bus, core: usize, Choice { at, set, .. }: Choice) {
        if bus.memory.chip.is_large() {
            if let Some(line) = self.line(set, at) {
                bus.memory.chip.prefetch(core, line);
            }
        } else if let Some(set) = self.sets.get(set) {
            set.region.prefetch(at);
        }
    }

    /// Touches a line with the prefetchers on; returns its cost, ns.
    #[inline(always)]
    fn touch_with_prefetchers(&mut self, bus: &mut Bus, core: usize, line: Line, choice: Choice) -> f64 {
        let Choice { access, set, foreseen, .. } = choice;
        if foreseen {
            return bus.memory.touch_prefetched(core, line, access, &self.foreseen);
        }
        let ns = bus.memory.touch(core, line, access, Fill::Ordinary, &self.unforeseen);
        // An access that misses the MLC unforeseen starts prefetches of its neighbours that are useless.
        if ns > self.unforeseen.idle(Level::Mlc) && self.stream.chance(self.useless) {
            let at = self.anywhere_in(set);
            if let Some(neighbour) = self.line(set, at) {
                bus.memory.chip.fetch_ahead(core, neighbour, false);
            }
        }
        ns
    }
}

impl Program for Mixture {
    fn run(&mut self, bus: &mut Bus, core: &mut Core, until_ns: f64) {
        let before = core.instructions;
        let prefetch = bus.memory.chip.prefetchers_on(core.id);
        while core.clock_ns < until_ns {
            let following = self.choose();
            self.prefetch(bus, core.id, following);
            let Some(choice) = self.next.replace(following) else {
                continue;
            };
            let mut ns = self.compute_ns;
            if let Some(line) = self.line(choice.set, choice.at) {
                let cost = if prefetch {
                    self.touch_with_prefetchers(bus, core.id, line, choice)
                } else {
                    bus.memory.touch(core.id, line, choice.access, Fill::Ordinary, &self.unforeseen)
                };
                ns += cost * self.sets[choice.set].scale;
            }
            core.work(ns, self.instructions);
            self.uncounted_hits += self.mlc_hits;
        }
        bus.memory.chip.count_mlc_hits(core.id, self.uncounted_hits as u64);
        self.uncounted_hits = self.uncounted_hits.fract();
        let meter = &mut bus.meters[self.workload];
        meter.operations += core.instructions - before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replaces the numbers of a table one after the other; `each` gets the table with one replaced, and its key.
    fn each_number(table: &toml::Table, value: f64, each: &mut dyn FnMut(&toml::Table, &str)) {
        for (key, found) in table {
            let mut other = table.clone();
            match found {
                toml::Value::Integer(_) | toml::Value::Float(_) => {
                    other.insert(key.clone(), toml::Value::Float(value));
                    each(&other, key);
                }
                toml::Value::Array(list) => {
                    for (index, item) in list.iter().enumerate() {
                        let Some(inner) = item.as_table() else { continue };
                        each_number(inner, value, &mut |inner, key| {
                            let mut list = list.clone();
                            list[index] = toml::Value::Table(inner.clone());
                            let mut other = table.clone();
                            other.insert("sets".to_owned(), toml::Value::Array(list));
                            each(&other, key);
                        });
                    }
                }
                _ => {}
            }
        }
    }

    #[test]
    fn every_number_of_a_profile_has_a_range() {
        let all: toml::Table = PROFILES.parse().unwrap();
        let (name, profile) = all.iter().next().expect("a profile");
        let profile = profile.as_table().unwrap();
        assert!(Profile::parse(&profile.to_string()).is_ok(), "{name}");
        let mut tried = 0;
        for value in [1e300, -1e300, f64::NAN] {
            each_number(profile, value, &mut |text, key| {
                tried += 1;
                assert!(Profile::parse(&text.to_string()).is_err(), "{key} = {value}");
            });
        }
        assert!(tried >= 3 * 8, "{tried}");
    }

    #[test]
    fn the_built_in_profiles_are_legal() {
        let profiles = profiles();
        assert_eq!(profiles.len(), 23);
        for (name, profile) in profiles {
            assert_eq!(profile.check(), Ok(()), "{name}");
        }
    }

    #[test]
    fn a_profile_outside_of_its_ranges_is_refused_with_what_would_be_accepted() {
        let good = "cpi = 0.5\nmlp = 2\nstream_mlp = 2\nmlc_hits = 9\nstores = 0.3\nuseless = 0.1\nsets = [{ kib = 64, apki = 1, foreseen = 0 }]";
        assert!(Profile::parse(good).is_ok());
        for (from, to, wanted) in [
            ("cpi = 0.5", "cpi = 0", "cpi from 0.05 to 20"),
            ("\nmlp = 2", "\nmlp = 0.1", "mlp and stream_mlp from 0.25 to 64"),
            ("mlc_hits = 9", "mlc_hits = -1", "mlc_hits from 0 to 1000"),
            ("stores = 0.3", "stores = 1.5", "stores and useless from 0 to 1"),
            ("kib = 64", "kib = 0", "sets of 1 to 1048576 KiB"),
            ("apki = 1", "apki = nan", "sets with apki above 0, up to 1000, and foreseen from 0 to 1"),
            ("stores = 0.3\n", "", "missing field `stores`"),
        ] {
            assert!(good.contains(from), "{from}");
            let refused = Profile::parse(&good.replace(from, to)).expect_err(to);
            assert!(refused.contains(wanted), "{to}: {refused}");
        }
    }
}
