//! Small cases whose answer is known without the model: LRU scans, random hits, set conflicts, QLRU.
//!
//! Where a result is random, the bound is a few standard deviations of the closed form; seeds are fixed.

use crate::common;

use common::certain;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro128PlusPlus;
use waykeeper_silicon::{
    AddressMap, Chip, ChipSpec, Fill, Level, Line, OneLevel, Region, Replacement, Rules, Sampling,
};

fn gold() -> ChipSpec {
    ChipSpec::built_in("gold-6140").unwrap()
}

fn gold_with(rules: Rules) -> ChipSpec {
    gold().with_rules(rules)
}

/// Huge memory of a chip: every MLC set gets 32 lines of each 2-MiB page, every slice a binomial share.
fn pages(sampling: Sampling, count: u64) -> Region {
    AddressMap::new(&gold(), sampling, 5, 6).huge(count * (2 << 20)).unwrap()
}

fn one_in(n: u32) -> Sampling {
    Sampling::one_in(n).unwrap()
}

#[test]
fn a_cyclic_scan_of_what_fits_an_lru_set_always_hits_and_of_one_line_more_never() {
    for (lines, expected) in [(16, 16), (17, 0)] {
        let region = pages(Sampling::EXACT, 1);
        let of_set = region.lines().iter().filter(|line| line.set() == 77).take(lines);
        let scan: Vec<Line> = of_set.copied().collect();
        let mut chip = Chip::new(&gold_with(certain()), Sampling::EXACT, 1);
        for pass in 0..5 {
            let hits = scan.iter().filter(|line| chip.read(0, **line, Fill::Ordinary) == Level::Mlc).count();
            assert_eq!(hits, if pass == 0 { 0 } else { expected }, "{lines} lines, pass {pass}");
        }
    }
}

#[test]
fn random_reads_hit_an_mlc_set_as_often_as_it_holds_the_working_set() {
    // Uniform independent reads of n lines a set, k ways: with any contents, k of n hit (16 of 32).
    let region = pages(one_in(16), 1);
    let mut chip = Chip::new(&gold_with(certain()), one_in(16), 1);
    let mut rng = Xoshiro128PlusPlus::seed_from_u64(1);
    let mut read = |chip: &mut Chip| {
        let at = rng.next_u32() as usize % region.lines().len();
        chip.read(0, region.lines()[at], Fill::Ordinary) == Level::Mlc
    };
    for _ in 0..20_000 {
        read(&mut chip);
    }
    let (reads, hits) = (200_000, (0..200_000).filter(|_| read(&mut chip)).count());
    let ratio = hits as f64 / f64::from(reads);
    assert!((ratio - 0.5).abs() < 4.0 * (0.25 / f64::from(reads)).sqrt(), "{ratio}");
}

#[test]
fn random_reads_hit_one_level_as_often_as_it_holds_the_working_set() {
    // 256 sets of 11 ways, 16 lines a set: 11 / 16, under QLRU as under any rule that fills on a miss.
    let mut cache = OneLevel::new(256, 11);
    let mut rng = Xoshiro128PlusPlus::seed_from_u64(2);
    let mut read = |cache: &mut OneLevel| cache.access(cache.place(rng.next_u32() % (16 * 256)));
    for _ in 0..50_000 {
        read(&mut cache);
    }
    let hits = (0..400_000).filter(|_| read(&mut cache)).count();
    let ratio = hits as f64 / 400_000.0;
    let expected: f64 = 11.0 / 16.0;
    assert!((ratio - expected).abs() < 4.0 * (expected * (1.0 - expected) / 400_000.0).sqrt(), "{ratio}");
}

#[test]
fn an_exclusive_llc_adds_its_ways_to_the_mlc() {
    // 2 MiB: 1 MiB of MLC and four ways of the LLC (9 MiB) hold all of it, so once everything has been seen
    // memory is read for set conflicts only; an inclusive LLC would need its ways for all of it as well.
    let region = pages(one_in(16), 1);
    let rules = Rules { p_insert: 1.0, ..certain() };
    let mut chip = Chip::new(&gold_with(rules), one_in(16), 1);
    chip.set_core_mask(0, common::mask(0x0f0)).unwrap();
    let mut rng = Xoshiro128PlusPlus::seed_from_u64(3);
    let mut read = |chip: &mut Chip| {
        let at = rng.next_u32() as usize % region.lines().len();
        chip.read(0, region.lines()[at], Fill::Ordinary)
    };
    for _ in 0..50_000 {
        read(&mut chip);
    }
    let levels: Vec<Level> = (0..100_000).map(|_| read(&mut chip)).collect();
    let share = |wanted: Level| levels.iter().filter(|level| **level == wanted).count() as f64 / 100_000.0;
    assert!((share(Level::Mlc) - 0.5).abs() < 0.01);
    assert!(share(Level::Memory) < 0.001, "{}", share(Level::Memory));
    let held = chip.mlc_residents().len() + chip.residents().len();
    assert!(held as f64 > 0.999 * region.lines().len() as f64, "nearly every line is cached, each once");
}

/// Expected lines that a set of `ways` keeps of `n` that fall into it with probability 1 / `slices` each.
fn binomial_kept(n: u32, slices: f64, ways: u32) -> (f64, f64) {
    let p = 1.0 / slices;
    let mut probability = (1.0 - p).powi(n as i32);
    let (mut mean, mut square) = (0.0, 0.0);
    for k in 0..=n {
        let kept = f64::from(k.min(ways));
        mean += probability * kept;
        square += probability * kept * kept;
        probability *= f64::from(n - k) / f64::from(k + 1) * p / (1.0 - p);
    }
    (mean, square - mean * mean)
}

/// The same for lines that fall independently, with mean `lambda` (microarchitecture.md 6).
fn poisson_kept(lambda: f64, ways: u32) -> f64 {
    let mut probability = (-lambda).exp();
    let mut mean = 0.0;
    for k in 0..200u32 {
        mean += probability * f64::from(k.min(ways));
        probability *= lambda / f64::from(k + 1);
    }
    mean
}

#[test]
fn set_conflicts_of_a_uniform_hash_are_what_chance_says() {
    // Devices write every line of some pages once; 16 lines a page have the same 11 index bits and share
    // 18 slices. What does not fit in eleven ways has been evicted.
    for count in [4, 8, 12, 16] {
        let region = pages(one_in(4), count);
        let mut chip = Chip::new(&gold_with(certain()), one_in(4), 1);
        chip.set_dca_ways(common::mask(0x7ff)).unwrap();
        for line in region.lines() {
            chip.dma_write(0, *line);
        }
        let sets = f64::from(18 * 2048 / 4);
        let kept = chip.residents().len() as f64;
        let (mean, variance) = binomial_kept(16 * count as u32, 18.0, 11);
        let slack = 4.0 * (variance * sets).sqrt();
        assert!((kept - mean * sets).abs() < slack, "{count} pages: {kept}, not {}", mean * sets);
        let poisson = poisson_kept(16.0 * count as f64 / 18.0, 11) * sets;
        assert!((kept / poisson - 1.0).abs() < 0.015, "{count} pages: {kept}, Poisson says {poisson}");
        assert_eq!(chip.device_counters(0).leaked, region.lines().len() as u64 - kept as u64);
    }
}

/// Ratio of device write hits when a forwarder cycles through `buffers` of 24 lines and a completion
/// ring: a core rewrites the header of each, the device then reads the packet (microarchitecture.md 8, l2fwd).
fn forwarder(replacement: Replacement, buffers: u32) -> f64 {
    let sampling = one_in(4);
    let rules = Rules { replacement, ..Rules::default() };
    let mut map = AddressMap::new(&gold_with(rules), sampling, 7, 8);
    let pool = map.huge(u64::from(buffers) * 37 * 64).unwrap(); // mbuf stride, microarchitecture.md 6
    let ring = map.huge(u64::from(buffers / 2) * 64).unwrap();
    let mut chip = Chip::new(&gold_with(rules), sampling, 1);
    let mut counted = 0;
    for pass in 0..8u32 {
        for buffer in 0..buffers {
            let lines = &pool.lines()[pool.range(buffer * 37, buffer * 37 + 24)];
            let header = &pool.lines()[pool.range(buffer * 37, buffer * 37 + 1)];
            let completion = &ring.lines()[ring.range(buffer % (buffers / 2), buffer % (buffers / 2) + 1)];
            for line in lines.iter().chain(completion) {
                chip.dma_write(0, *line);
            }
            for line in completion.iter().chain(header) {
                chip.read(0, *line, Fill::Ordinary);
            }
            for line in header {
                chip.write(0, *line, Fill::Ordinary);
            }
            for line in lines {
                chip.dma_read(0, *line);
            }
        }
        if pass == 2 {
            counted = chip.device_counters(0).write_hits; // warm
        }
    }
    let written = 5 * u64::from(buffers) * 25 / 4;
    (chip.device_counters(0).write_hits - counted) as f64 / written as f64
}

#[test]
fn evict_first_does_not_fall_off_the_lru_cliff() {
    // microarchitecture.md 5 (b): two DCA ways (4.5 MiB), 2.8 times the data: 26 % hits, LRU 11 %,
    // published 29 %. 8192 buffers of 24 lines are 2.7 times two ways.
    let (qlru, lru) = (forwarder(Replacement::Qlru, 8192), forwarder(Replacement::Lru, 8192));
    assert!((qlru - 0.26).abs() < 0.03, "QLRU {qlru}");
    assert!((lru - 0.11).abs() < 0.03, "LRU {lru}");
}

#[test]
fn cyclic_writes_keep_all_ways_but_one() {
    // Evict-first and leftmost: a full set keeps one line in every way except the one that is always replaced. With
    // lambda lines a set and two ways that is (1 - e^-l (1 + l)) hits from sets with two lines or more, one
    // each, plus all hits of the sets whose lines all fit.
    let lambda: f64 = 16.0 * 6.0 / 18.0;
    let p = |k: i32| (-lambda).exp() * lambda.powi(k) / [1.0, 1.0, 2.0][k as usize];
    let expected = (p(1) + 2.0 * p(2) + (1.0 - p(0) - p(1) - p(2))) / lambda;
    let region = pages(one_in(4), 6);
    let mut chip = Chip::new(&gold_with(certain()), one_in(4), 1);
    let pass = |chip: &mut Chip| region.lines().iter().filter(|line| chip.dma_write(0, **line)).count();
    pass(&mut chip);
    pass(&mut chip);
    let ratio = pass(&mut chip) as f64 / region.lines().len() as f64;
    assert!((ratio - expected).abs() < 0.006, "{ratio}, not {expected}");
}
