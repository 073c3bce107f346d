//! Our caches and other simulators on the same traces: one level, and the whole chip beside their three levels.
//!
//! Traces: a random over 4 MiB, b a stream over 64 MiB, c half random over 1.5 MiB and half stream. Knows nothing of
//! programs, devices or simulated time.

use crate::pace::{self, Contender, Pass, median_ratio, median_s};
use crate::peers::Peer;
use std::fmt::Write as _;
use std::path::Path;
use waykeeper_silicon::{AddressMap, Chip, ChipSpec, Fill, Level, Line, OneLevel, Sampling};

/// The traces of performance.md 1.
pub const TRACES: [char; 3] = ['a', 'b', 'c'];
/// Accesses of a trace.
const ACCESSES: usize = 4_000_000;
/// Accesses ahead that the chip is asked for early (performance.md 1: 8 to 32).
const AHEAD: usize = 16;
/// Lines of the stream.
const STREAM: usize = 1 << 20;
/// The LLC of the chip as one level.
const SETS: u32 = 36_864;
const WAYS: u32 = 11;
/// What a peer's levels are beside our whole chip, which has no L1 but a directory: those of a Xeon Gold 6140.
const THREE_LEVELS: [&str; 3] = ["64x8", "1024x16", "36864x11"];

/// One of ours beside the peers that ran in turn with it.
pub struct Comparison {
    /// What of ours ran.
    pub ours: String,
    /// Which trace.
    pub kind: char,
    /// How many lines of a whole trace one simulated line counts for: the peers have no sampling.
    factor: f64,
    passes: Vec<Pass>,
    peers: Vec<(String, Vec<Pass>)>,
}

impl Comparison {
    /// Line events that ours simulates, M per second of CPU time.
    pub fn rate(&self) -> f64 {
        rate(&self.passes)
    }

    /// How many times as fast ours is as each peer, by name.
    pub fn ratios(&self) -> impl Iterator<Item = (&str, f64)> {
        self.peers
            .iter()
            .map(|(name, passes)| (name.as_str(), self.factor * median_ratio(&self.passes, passes)))
    }
}

/// Runs ours and the peers on a trace. Writes the trace into `folder` for them.
pub fn run(kind: char, folder: &Path) -> Vec<Comparison> {
    let numbers = line_numbers(kind);
    let file = folder.join(format!("trace-{kind}.u32"));
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    std::fs::write(&file, bytes).expect("target can be written");
    let mut cache = OneLevel::new(SETS, WAYS);
    let one_level: Contender<'_> = Box::new(move || pace::timed(|| cache.access_all(&numbers)));
    let llc = format!("{SETS}x{WAYS}");
    let mut comparisons =
        beside_peers(kind, vec![("bare path".to_owned(), 1, one_level)], Peer::start_all(&file, &[&llc]));
    let chips = [Sampling::EXACT, Sampling::DEFAULT]
        .map(|sampling| (format!("whole chip, {sampling}"), sampling.factor(), whole_chip(kind, sampling)));
    comparisons.extend(beside_peers(kind, chips.into(), Peer::start_all(&file, &THREE_LEVELS)));
    comparisons
}

/// The comparisons as lines of text: a table, and what they say about the aims. Empty without a peer.
pub fn table(comparisons: &[Comparison]) -> String {
    let mut text = String::new();
    if comparisons.iter().all(|comparison| comparison.peers.is_empty()) {
        return text;
    }
    for comparison in comparisons {
        let ours = format!("{}, trace {}", comparison.ours, comparison.kind);
        let _ = write!(
            text,
            "{ours:27} {:7.1} {}",
            comparison.factor * comparison.rate(),
            hits(&comparison.passes)
        );
        for ((name, passes), (_, ratio)) in comparison.peers.iter().zip(comparison.ratios()) {
            let _ = write!(text, "   {name} {:6.1} {} x{ratio:<5.1}", rate(passes), hits(passes));
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    for (ours, aim) in [("bare path", 5.0), ("whole chip, exact", 10.0), ("whole chip, 1/32", 10.0)] {
        let ratios = comparisons.iter().filter(|comparison| comparison.ours == ours);
        let least =
            ratios.flat_map(|comparison| comparison.ratios().map(|(_, ratio)| ratio)).reduce(f64::min);
        if let Some(least) = least {
            let verdict = if least >= aim { "reached" } else { "missed" };
            let _ = writeln!(text, "{ours}: at least {least:.1} times the fastest (aim: {aim}, {verdict})");
        }
    }
    text
}

fn beside_peers(kind: char, ours: Vec<(String, u32, Contender<'_>)>, peers: Vec<Peer>) -> Vec<Comparison> {
    let names: Vec<String> = peers.iter().map(|peer| peer.name.clone()).collect();
    let (labels, mut contenders): (Vec<_>, Vec<_>) =
        ours.into_iter().map(|(name, factor, contender)| ((name, factor), contender)).unzip();
    contenders.extend(peers.into_iter().map(|mut peer| -> Contender<'_> {
        Box::new(move || peer.pass().unwrap_or_else(|| panic!("{} has ended", peer.name)))
    }));
    let mut passes = pace::in_turn(&mut contenders);
    let theirs: Vec<_> = names.into_iter().zip(passes.split_off(labels.len())).collect();
    let one = |((ours, factor), passes)| Comparison {
        ours,
        kind,
        factor: f64::from(factor),
        passes,
        peers: theirs.clone(),
    };
    labels.into_iter().zip(passes).map(one).collect()
}

fn whole_chip(kind: char, sampling: Sampling) -> Contender<'static> {
    let spec = ChipSpec::built_in("gold-6140").expect("built in");
    let mut memory = AddressMap::new(&spec, sampling, 1, 1);
    let mut chip = Chip::new(&spec, sampling, 1);
    let random = memory.ordinary((random_lines(kind) * 64) as u64).expect("it fits");
    let stream = memory.ordinary((STREAM * 64) as u64).expect("it fits");
    let lines: Vec<Line> = trace(kind, random.lines().len(), stream.lines().len())
        .into_iter()
        .map(|(streams, at)| if streams { stream.lines()[at] } else { random.lines()[at] })
        .collect();
    Box::new(move || {
        pace::timed(|| {
            let mut hits = 0;
            for (index, line) in lines.iter().enumerate() {
                chip.prefetch(0, lines[(index + AHEAD).min(ACCESSES - 1)]);
                hits += u64::from(chip.read(0, *line, Fill::Ordinary) != Level::Memory);
            }
            hits
        })
    })
}

/// A small generator of its own, so that a trace never changes.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0 >> 32) * n as u128) >> 32) as usize
    }
}

/// A trace over `random` and `stream` items: whether an access belongs to the stream, and its item.
fn trace(kind: char, random: usize, stream: usize) -> Vec<(bool, usize)> {
    let mut draw = Draw(1);
    let mut at = 0;
    let step = |at: &mut usize| {
        *at = (*at + 1) % stream;
        (true, *at)
    };
    (0..ACCESSES)
        .map(|_| match kind {
            'a' => (false, draw.below(random)),
            'b' => step(&mut at),
            _ if draw.below(2) == 0 => (false, draw.below(random)),
            _ => step(&mut at),
        })
        .collect()
}

/// The trace of the whole memory as line numbers. The stream lies behind the random lines, as different memory would.
fn line_numbers(kind: char) -> Vec<u32> {
    trace(kind, random_lines(kind), STREAM)
        .into_iter()
        .map(|(streams, at)| (at + if streams { 1 << 17 } else { 0 }) as u32)
        .collect()
}

fn random_lines(kind: char) -> usize {
    if kind == 'c' { 24_576 } else { 65_536 }
}

fn rate(passes: &[Pass]) -> f64 {
    ACCESSES as f64 / median_s(passes) / 1e6
}

/// The share of hits of the last run, which shows that ours and theirs simulate the same.
fn hits(passes: &[Pass]) -> String {
    let hits = passes.last().map_or(0, |pass| pass.hits);
    format!("({:3.0} %)", 100.0 * hits as f64 / ACCESSES as f64)
}
