//! Properties that hold after every single access of any mix: conservation, legality and no lost data.
//!
//! Random accesses by four cores and three devices, with mask changes and DCA switches in between, on
//! both kinds of LLC and under every variant of microarchitecture.md 11. After each step the whole state is
//! compared with the one before: what moved, where it may be, what was counted, and where the newest
//! data of every line are. The oracle needs the public state and counters only.

use crate::common;

use common::view::View;
use common::{mask, spec};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_silicon::{
    AddressMap, Chip, ChipCounters, ChipSpec, DcaMode, Fill, InclusiveVictim, Level, Line, LlcKind,
    MlcHeldWrite, Owner, Rules, Sampling,
};
use waykeeper_units::WayMask;

const CORES: usize = 4;
const DEVICES: usize = 3;
/// Lines in play: two MLC sets of two ways in four MLCs, and a few LLC sets, all of them crowded.
const LINES: usize = 72;

#[derive(Clone, Copy, Debug)]
enum Step {
    Read(usize, usize, Fill),
    Write(usize, usize),
    DmaWrite(usize, usize),
    DmaRead(usize, usize),
    CoreMask(usize, u32, u32),
    DcaWays(u32, u32),
    Dca(usize, DcaMode),
}

fn step() -> impl Strategy<Value = Step> {
    let (core, device, line) = (0..CORES, 0..DEVICES, 0..LINES);
    let fill = prop_oneof![4 => Just(Fill::Ordinary), 1 => Just(Fill::Stream)];
    let mode = prop_oneof![3 => Just(DcaMode::On), 1 => Just(DcaMode::Off), 1 => Just(DcaMode::Remote)];
    prop_oneof![
        30 => (core.clone(), line.clone(), fill).prop_map(|(core, line, fill)| Step::Read(core, line, fill)),
        14 => (core.clone(), line.clone()).prop_map(|(core, line)| Step::Write(core, line)),
        20 => (device.clone(), line.clone()).prop_map(|(device, line)| Step::DmaWrite(device, line)),
        10 => (device.clone(), line).prop_map(|(device, line)| Step::DmaRead(device, line)),
        2 => (core, 0u32..6, 1u32..6).prop_map(|(core, low, count)| Step::CoreMask(core, low, count)),
        1 => (0u32..6, 1u32..6).prop_map(|(low, count)| Step::DcaWays(low, count)),
        2 => (device, mode).prop_map(|(device, mode)| Step::Dca(device, mode)),
    ]
}

/// A chip under test with what the checks need.
struct Trial {
    chip: Chip,
    map: AddressMap,
    spec: ChipSpec,
    rules: Rules,
    lines: Vec<Line>,
    dca_ways: WayMask,
    /// Lines in the LLC that a device wrote and no core has read since, as the test itself counts them.
    unread: BTreeMap<Line, usize>,
}

impl Trial {
    fn new(spec: ChipSpec, rules: Rules, seed: u64) -> Trial {
        // One set in eight leaves two MLC sets.
        let sampling = Sampling::one_in(8).expect("a power of two");
        let spec = spec.with_rules(rules);
        let mut map = AddressMap::new(&spec, sampling, seed, seed);
        let lines = map.huge(2 << 20).expect("memory is empty").lines()[..LINES].to_vec();
        let mut chip = Chip::new(&spec, sampling, seed);
        chip.set_group(2, 1);
        chip.set_group(3, 1);
        let dca_ways = spec.llc.dca_ways.unwrap_or_default();
        Trial { chip, map, spec, rules, lines, dca_ways, unread: BTreeMap::new() }
    }

    fn run(&mut self, steps: &[Step]) {
        let mut before = View::of(&self.chip, CORES, DEVICES);
        for (number, step) in steps.iter().enumerate() {
            let context = format!("step {number}, {step:?}");
            let outcome = self.act(*step);
            let after = View::of(&self.chip, CORES, DEVICES);
            match outcome {
                None => assert_eq!(after, before, "a knob moves no line: {context}"),
                Some(outcome) => {
                    self.outcome_is_what_was_there(&before, *step, outcome, &context);
                    self.fills_are_inside_their_masks(&before, &after, *step, &context);
                    self.no_data_is_lost(&before, &after, *step, &context);
                    self.evictions_have_their_evictor_and_owner(&before, &after, *step, &context);
                }
            }
            self.state_is_legal(&after, &context);
            self.books_balance(&after, &context);
            before = after;
        }
        self.accesses_are_counted(&before, steps);
    }

    /// Does the step. For an access: the level that served a core, or whether a device hit.
    fn act(&mut self, step: Step) -> Option<Result<Level, bool>> {
        let (chip, lines, ways) = (&mut self.chip, &self.lines, self.spec.llc.ways);
        let span = |low: u32, count: u32| {
            let low = low % ways;
            WayMask::span(low, count.min(ways - low))
        };
        match step {
            Step::Read(core, line, fill) => {
                let foreseen = chip.level_of(core, lines[line]);
                let level = chip.read(core, lines[line], fill);
                assert_eq!(level, foreseen);
                Some(Ok(level))
            }
            Step::Write(core, line) => Some(Ok(chip.write(core, lines[line], Fill::Ordinary))),
            Step::DmaWrite(device, line) => Some(Err(chip.dma_write(device, lines[line]))),
            Step::DmaRead(device, line) => Some(Err(chip.dma_read(device, lines[line]))),
            Step::CoreMask(core, low, count) => {
                chip.set_core_mask(core, span(low, count)).expect("contiguous and inside");
                None
            }
            Step::DcaWays(low, count) => {
                self.dca_ways = span(low, count);
                chip.set_dca_ways(self.dca_ways).expect("contiguous and inside");
                None
            }
            Step::Dca(device, mode) => {
                chip.set_dca(device, mode);
                None
            }
        }
    }

    fn line_of(&self, step: Step) -> Line {
        let (Step::Read(_, line, _)
        | Step::Write(_, line)
        | Step::DmaWrite(_, line)
        | Step::DmaRead(_, line)) = step
        else {
            unreachable!("knobs have no line")
        };
        self.lines[line]
    }

    fn inclusive_llc(&self) -> bool {
        self.spec.llc.kind == LlcKind::Inclusive
    }

    fn cached_dma(&self, device: usize) -> bool {
        self.chip.dca(device) == DcaMode::On && self.spec.llc.dca_ways.is_some()
    }

    /// The level returned is the one that had the line.
    fn outcome_is_what_was_there(
        &self,
        before: &View,
        step: Step,
        outcome: Result<Level, bool>,
        context: &str,
    ) {
        let line = self.line_of(step);
        match (step, outcome) {
            (Step::Read(core, ..) | Step::Write(core, _), Ok(level)) => {
                let held = before.mlc.get(&line);
                let modified = held.is_some_and(|held| held.values().any(|dirty| *dirty));
                let expected = match (before.llc.contains_key(&line), held.is_some()) {
                    _ if held.is_some_and(|held| held.contains_key(&core)) => Level::Mlc,
                    (true, _) if self.inclusive_llc() && modified => Level::Peer,
                    (true, _) => Level::Llc,
                    (false, true) => Level::Peer,
                    (false, false) => Level::Memory,
                };
                assert_eq!(level, expected, "{context}");
            }
            (_, Err(hit)) => assert_eq!(hit, before.cached(line), "{context}"),
            (_, Ok(_)) => unreachable!("devices have no level"),
        }
    }

    /// A line that is newly in a way was allowed there by the mask of the core or device that put it there.
    fn fills_are_inside_their_masks(&self, before: &View, after: &View, step: Step, context: &str) {
        let line = self.line_of(step);
        let inclusive = self.spec.llc.inclusive_ways.unwrap_or_default();
        for resident in after.llc.values() {
            if before.llc.get(&resident.line).is_some_and(|old| old.way == resident.way) {
                continue;
            }
            let allowed = if resident.line != line {
                // An MLC victim is inserted into the ways of a core that held it.
                assert!(!self.inclusive_llc(), "no victim is inserted into an inclusive LLC: {context}");
                let gone = before.holders(resident.line);
                gone.iter().fold(WayMask::EMPTY, |ways, core| ways.or(self.chip.core_mask(*core)))
            } else {
                match step {
                    Step::Read(core, ..) | Step::Write(core, _) if self.inclusive_llc() => {
                        self.chip.core_mask(core)
                    }
                    Step::DmaWrite(..) => {
                        let held = before.mlc.contains_key(&line);
                        let to_inclusive = self.rules.mlc_held_write == MlcHeldWrite::InclusiveWays;
                        if held && to_inclusive && !self.inclusive_llc() { inclusive } else { self.dca_ways }
                    }
                    _ => inclusive,
                }
            };
            assert!(allowed.contains(resident.way), "{resident:?} outside {allowed}: {context}");
        }
    }

    /// The version oracle. By induction every line's newest data are in memory or dirty in a cache, and every cached
    /// copy is of the newest version: a write leaves one copy, every other step only copies.
    fn no_data_is_lost(&self, before: &View, after: &View, step: Step, context: &str) {
        let line = self.line_of(step);
        let memory_reads = after.chip.memory_reads - before.chip.memory_reads;
        let fetched = !before.cached(line) && !matches!(step, Step::DmaWrite(..));
        assert_eq!(memory_reads, u64::from(fetched), "memory is read when no cache has the line: {context}");
        if !self.rules.dma_write_invalidates_mlc {
            return; // This variant leaves stale MLC copies, which is what is wrong with it.
        }
        let (old, new) = (before.dirty(), after.dirty());
        let writes = match step {
            Step::Write(..) => true,
            Step::DmaWrite(device, _) => self.cached_dma(device),
            _ => false,
        };
        let overwritten = matches!(step, Step::DmaWrite(..)) && !writes;
        assert!(
            new.difference(&old).all(|dirtied| writes && *dirtied == line),
            "dirt from nowhere: {context}"
        );
        assert!(!writes || new.contains(&line), "the written data is nowhere: {context}");
        let written_back =
            old.difference(&new).filter(|gone| !(overwritten && **gone == line)).count() as u64;
        let evictions = after.chip.dirty_evictions - before.chip.dirty_evictions;
        let evictions = evictions + after.chip.write_backs - before.chip.write_backs;
        assert_eq!(evictions, written_back, "each line that ceased to be dirty went to memory: {context}");

        let holders = after.holders(line);
        let llc = after.llc.get(&line);
        match step {
            Step::Write(core, _) => {
                assert_eq!(holders, BTreeSet::from([core]), "other copies are stale: {context}");
                assert!(self.inclusive_llc() || llc.is_none(), "the LLC copy is stale: {context}");
            }
            Step::DmaWrite(..) => {
                assert!(holders.is_empty(), "MLC copies are stale: {context}");
                let updated = self.rules.dca_off_updates && before.llc.contains_key(&line);
                assert!(llc.is_none() || writes || updated, "the LLC copy is stale: {context}");
            }
            _ => {}
        }
    }

    /// Only the agent of the step evicts, every eviction has a pair, and the unread lines that left the LLC are
    /// exactly those of the devices that wrote them.
    fn evictions_have_their_evictor_and_owner(
        &mut self,
        before: &View,
        after: &View,
        step: Step,
        context: &str,
    ) {
        let agent = match step {
            Step::Read(core, ..) | Step::Write(core, _) => Owner::Group(u8::from(core >= 2)),
            Step::DmaWrite(device, _) | Step::DmaRead(device, _) => Owner::Device(device),
            _ => unreachable!("knobs evict nothing"),
        };
        let (mut from_llc, mut from_mlcs) = (0, 0);
        let mut unread: BTreeMap<usize, u64> = BTreeMap::new();
        for ((by, of, reason), (lines, not_read)) in &after.evictions {
            let (old_lines, old_not_read) =
                before.evictions.get(&(*by, *of, *reason)).copied().unwrap_or_default();
            let (lines, not_read) = (lines - old_lines, not_read - old_not_read);
            assert!(lines == 0 || *by == agent, "{by:?} evicted {of:?}'s line: {context}");
            assert!(not_read <= lines, "{context}");
            *(if reason.from_llc() { &mut from_llc } else { &mut from_mlcs }) += lines;
            if not_read > 0 {
                let Owner::Device(device) = of else { panic!("unread lines of {of:?}: {context}") };
                *unread.entry(*device).or_default() += not_read;
            }
        }
        assert_eq!(from_llc, after.chip.llc_evictions - before.chip.llc_evictions, "{context}");
        let mlc = |count: fn(&ChipCounters) -> u64| count(&after.chip) - count(&before.chip);
        if self.inclusive_llc() {
            assert!(from_mlcs <= mlc(|chip| chip.mlc_invalidations), "{context}");
        } else {
            // The fill's own victim is the one line that leaves an MLC for no other reason.
            let pushed = mlc(|chip| chip.directory_evictions);
            assert!(from_mlcs >= pushed && (pushed > 0 || from_mlcs == 0), "{context}");
            assert!((0..=1).contains(&(mlc(|chip| chip.mlc_evictions) - from_mlcs)), "{context}");
        }
        if !self.rules.dma_write_invalidates_mlc {
            return; // With stale MLC copies, unread lines leave the LLC in other ways as well.
        }
        let line = self.line_of(step);
        // A write with DCA off that updates the line in the LLC leaves it to the first device.
        let stays = match step {
            Step::DmaRead(..) => true,
            Step::DmaWrite(device, _) => {
                self.rules.dca_off_updates && !self.inclusive_llc() && !self.cached_dma(device)
            }
            _ => false,
        };
        if !stays {
            self.unread.remove(&line);
        }
        let mut gone: BTreeMap<usize, u64> = BTreeMap::new();
        self.unread.retain(|line, device| {
            let stays = after.llc.contains_key(line);
            if !stays {
                *gone.entry(*device).or_default() += 1;
            }
            stays
        });
        assert_eq!(unread, gone, "unread lines evicted, by device: {context}");
        if let Step::DmaWrite(device, _) = step
            && self.cached_dma(device)
        {
            self.unread.insert(line, device);
        }
    }

    fn state_is_legal(&self, view: &View, context: &str) {
        let stale_mlc = !self.rules.dma_write_invalidates_mlc;
        if self.inclusive_llc() {
            for (line, held) in &view.mlc {
                assert!(view.llc.contains_key(line), "inclusion is broken for {line:?}: {context}");
                let modified = held.values().any(|dirty| *dirty);
                assert!(!modified || held.len() == 1, "{line:?} modified and shared: {context}");
            }
            assert!(view.llc.values().all(|resident| !resident.copied), "{context}");
            return;
        }
        let inclusive = self.spec.llc.inclusive_ways.unwrap_or_default();
        for resident in view.llc.values() {
            let held = view.mlc.contains_key(&resident.line);
            assert_eq!(resident.copied, held, "C is set when an MLC holds {resident:?}: {context}");
            let legal = inclusive.contains(resident.way) || self.rules.ordinary_hit_stays;
            assert!(!held || legal, "a copy outside the inclusive ways, {resident:?}: {context}");
        }
        for line in view.dirty() {
            assert!(view.dirty_places(line) == 1 || stale_mlc, "{line:?} is dirty twice: {context}");
        }
        let held = view.mlc.iter().map(|(line, held)| {
            let single = held.keys().next().copied().filter(|_| held.len() == 1);
            (*line, single)
        });
        assert_eq!(view.tracked, held.collect(), "the directory tracks what MLCs hold: {context}");
    }

    fn books_balance(&self, view: &View, context: &str) {
        let chip = &view.chip;
        let llc = chip.llc_evictions + chip.llc_removals + view.llc.len() as u64;
        assert_eq!(chip.llc_fills, llc, "LLC: in = out + resident: {context}");
        let held: usize = view.mlc.values().map(BTreeMap::len).sum();
        let mlc = chip.mlc_evictions + chip.mlc_invalidations + held as u64;
        assert_eq!(chip.mlc_fills, mlc, "MLCs: in = out + resident: {context}");
        let written = chip.dirty_evictions + chip.write_backs + chip.uncached_writes;
        assert_eq!(chip.memory_writes, written, "{context}");
        assert_eq!(view.occupancy as usize, view.llc.len(), "occupancy: {context}");
        assert!(chip.dirty_evictions <= chip.llc_evictions, "{context}");
        let sum = |of: fn((u64, u64)) -> u64| -> u64 {
            let from_llc = view.evictions.iter().filter(|((.., reason), _)| reason.from_llc());
            from_llc.map(|(_, counts)| of(*counts)).sum()
        };
        assert_eq!(sum(|(lines, _)| lines), chip.llc_evictions, "pairs: {context}");
        let leaked: u64 = view.device.iter().map(|device| device.leaked).sum();
        assert_eq!(sum(|(_, unread)| unread), leaked, "unread lines: {context}");
    }

    fn accesses_are_counted(&self, view: &View, steps: &[Step]) {
        let count = |wanted: &dyn Fn(&Step) -> bool| steps.iter().filter(|step| wanted(step)).count() as u64;
        for (core, seen) in view.core.iter().enumerate() {
            let done = count(&|step| matches!(step, Step::Read(c, ..) | Step::Write(c, _) if *c == core));
            assert_eq!(seen.mlc_hits + seen.mlc_misses, done);
            assert_eq!(seen.llc_hits + seen.llc_misses, seen.mlc_misses);
        }
        for (device, seen) in view.device.iter().enumerate() {
            let writes = count(&|step| matches!(step, Step::DmaWrite(d, _) if *d == device));
            let reads = count(&|step| matches!(step, Step::DmaRead(d, _) if *d == device));
            assert_eq!(seen.write_hits + seen.write_misses + seen.writes_uncached, writes);
            assert_eq!(seen.read_hits + seen.read_misses, reads);
        }
        let memory: u64 = view.core.iter().map(|core| core.llc_misses).sum();
        let devices: u64 = view.device.iter().map(|device| device.read_misses).sum();
        assert_eq!(view.chip.memory_reads, memory + devices);
        let uncached: u64 = view.device.iter().map(|device| device.writes_uncached).sum();
        assert_eq!(view.chip.uncached_writes, uncached);
    }
}

fn skylake() -> ChipSpec {
    let (slices, sets) = (2, 2 * common::MLC_SETS);
    spec(&format!(
        "kind = \"non-inclusive\"\nslices = {slices}\nsets = {sets}\nways = 5\ndca_ways = \"0x18\"\n\
         inclusive_ways = \"0x03\""
    ))
}

fn haswell() -> ChipSpec {
    spec("kind = \"inclusive\"\nslices = 2\nsets = 32\nways = 5\ndca_ways = \"0x18\"")
}

/// Rule sets to run: the published variants, and small directories that are often full.
fn rule_sets() -> Vec<(&'static str, Rules)> {
    let mut sets = Rules::variants();
    let small = Rules { directory_ways: 2, ..Rules::default() };
    let stays = InclusiveVictim::Stays;
    sets.push(("small directory", small));
    sets.push(("one directory way", Rules { directory_ways: 1, p_insert: 1.0, ..small }));
    sets.push(("small directory, victims stay", Rules { inclusive_victim: stays, ..small }));
    sets.push(("small directory, lines stay", Rules { ordinary_hit_stays: true, ..small }));
    sets.push(("small directory, stale MLCs", Rules { dma_write_invalidates_mlc: false, ..small }));
    sets
}

fn check(spec: &ChipSpec, seed: u64, steps: &[Step]) {
    check_under(spec, seed, steps, |rules| rules);
}

fn check_under(spec: &ChipSpec, seed: u64, steps: &[Step], changed: impl Fn(Rules) -> Rules) {
    for (name, rules) in rule_sets() {
        let rules = changed(rules);
        let run = || Trial::new(spec.clone(), rules, seed).run(steps);
        let outcome = std::panic::catch_unwind(run);
        assert!(outcome.is_ok(), "under `{name}` on {:?}", spec.llc.kind);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn non_inclusive(seed in 0u64..1000, steps in prop::collection::vec(step(), 100..400)) {
        check(&skylake(), seed, &steps);
    }

    #[test]
    fn with_wide_tags(seed in 0u64..1000, steps in prop::collection::vec(step(), 100..200)) {
        // A rule of later chips, which acts in no case.
        let wide = |rules: Rules| Rules { p_outside_dca: rules.p_outside_dca.max(f64::MIN_POSITIVE), ..rules };
        for spec in [skylake(), haswell()] {
            check_under(&spec, seed, &steps, wide);
        }
    }

    #[test]
    fn inclusive(seed in 0u64..1000, steps in prop::collection::vec(step(), 100..400)) {
        check(&haswell(), seed, &steps);
    }

    #[test]
    fn without_dca(seed in 0u64..1000, steps in prop::collection::vec(step(), 100..200)) {
        for mut spec in [skylake(), haswell()] {
            spec.llc.dca_ways = None;
            check(&spec, seed, &steps);
        }
    }
}

#[test]
fn the_lines_in_play_crowd_the_sets() {
    let trial = Trial::new(skylake(), Rules::default(), 1);
    let sets: BTreeSet<usize> = trial.lines.iter().map(|line| line.set()).collect();
    assert_eq!(sets.len(), 2);
    let slices: BTreeSet<usize> = trial.lines.iter().map(|line| trial.map.slice(*line)).collect();
    assert_eq!(slices.len(), 2);
    assert_eq!(mask(0x18), trial.dca_ways);
}
