//! Kinds of pages: how evenly memory of each kind fills the sets of the LLC.
//!
//! The chip has the LLC of Sepia's machine (Song et al., OSDI 2026: 26 slices of 2048 sets, 12 ways, 39 MiB). Its authors
//! count, as here, the lines in sets that get more lines than they have ways. They find that coloured pages raise the
//! capacity that can be used without such sets by 77.8 to 94.4 % over Linux's.

use std::collections::HashMap;
use waykeeper_silicon::{AddressMap, ChipSpec, Pages, Rules, Sampling, SliceHash};

const MIB: u64 = 1 << 20;

fn chip() -> ChipSpec {
    let chip = ChipSpec::built_in("gold-5320").unwrap();
    let rules = Rules { slice_hash: SliceHash::Rounds, ..chip.rules };
    chip.with_rules(rules)
}

/// Share of the lines of so much memory that are in sets with more lines than ways. One MLC set of 64 is looked at: the
/// lines of a frame are in 64 neighbouring sets, which fill alike.
fn overfull(pages: Pages, mib: u64, seed: u64) -> f64 {
    let chip = chip();
    let mut map = AddressMap::new(&chip, Sampling::one_in(64).unwrap(), seed, seed);
    map.set_pages(Some(pages));
    let region = map.ordinary(mib * MIB).unwrap();
    let mut lines = HashMap::<_, u32>::new();
    for line in region.lines() {
        // 2048 sets of the LLC over 1024 of the MLC.
        *lines.entry((line.set(), line.tag() & 1, map.slice(*line))).or_default() += 1;
    }
    let over: u32 = lines.values().filter(|lines| **lines > chip.llc.ways).sum();
    f64::from(over) / region.lines().len() as f64
}

fn mean(pages: Pages, mib: u64) -> f64 {
    (1..=8).map(|seed| overfull(pages, mib, seed)).sum::<f64>() / 8.0
}

/// Probability that of so many draws, each with probability `p`, at least `least` succeed.
fn binomial_tail(draws: u32, p: f64, least: u32) -> f64 {
    let (mut term, mut below) = ((1.0 - p).powi(draws as i32), 0.0);
    for number in 0..least {
        below += term;
        term *= p / (1.0 - p) * f64::from(draws - number) / f64::from(number + 1);
    }
    1.0 - below
}

#[test]
fn frames_at_random_places_fill_the_sets_as_independent_draws_do() {
    // Frames are taken at random from 64 pages of 2 MiB. A page has at most one line in a set, in 16 of 26 sets.
    for mib in [24, 30, 36] {
        // The share of lines that are one of at least 13 in their set: beside 12 or more of the 63 other pages.
        let expected = binomial_tail(63, mib as f64 / 128.0 * 16.0 / 26.0, 12);
        let found = mean(Pages::Small, mib);
        assert!((found - expected).abs() < 0.2 * expected, "{mib} MiB: {found}, closed form {expected}");
    }
}

#[test]
fn coloured_frames_use_the_whole_llc_before_any_set_overflows() {
    assert_eq!(mean(Pages::Coloured, 39), 0.0);
    assert!(mean(Pages::Coloured, 41) > 0.5);
}

#[test]
fn colours_raise_the_effective_capacity_at_least_as_much_as_sepia_measured() {
    // As much as Linux's pages hold with at most 2 % of the lines in overfull sets; the paper's threshold is not known.
    let capacity = |pages| (16..=44).take_while(|mib| mean(pages, *mib) <= 0.02).last().unwrap() as f64;
    let [small, huge, coloured] = [Pages::Small, Pages::Huge, Pages::Coloured].map(capacity);
    assert!((17.0..=20.0).contains(&small), "{small}");
    assert!(huge / small > 1.3 && coloured / small > 1.778, "{small} {huge} {coloured} MiB");
}

#[test]
fn reservations_are_runs_and_what_was_lent_is_lent_again() {
    let mut map = AddressMap::new(&chip(), Sampling::EXACT, 1, 1);
    map.set_pages(Some(Pages::Coloured));
    let first = map.ordinary(3 * MIB).unwrap();
    let neighbours =
        |lines: &[waykeeper_silicon::Line]| lines.windows(2).all(|pair| pair[1].tag() - pair[0].tag() <= 1);
    assert!(neighbours(first.lines()));
    map.lend();
    let lent = map.ordinary(70 * MIB).unwrap();
    let free = map.free_bytes();
    let memory = map.lent();
    map.take_back(memory);
    assert!(map.free_bytes() > free);
    assert_eq!(map.ordinary(70 * MIB).unwrap().lines(), lent.lines());
    // All that is left, frame by frame: nothing is given out twice.
    map.set_pages(None);
    let rest = map.ordinary(map.free_bytes()).unwrap();
    let mut all: Vec<_> = [&first, &lent, &rest].iter().flat_map(|region| region.lines()).copied().collect();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count);
    assert!(map.ordinary(1).is_err());
}
