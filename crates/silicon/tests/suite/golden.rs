//! The same seed gives the same bits: final state and counters of fixed runs, as one number each.
//!
//! These numbers guard the hot path: a faster layout or a branch-free step must not change a result. When
//! a rule itself changes on purpose, the numbers below change with it and the commit says why.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro128PlusPlus;
use waykeeper_silicon::{AddressMap, Chip, ChipSpec, DcaMode, Fill, Line, OneLevel, Rules, Sampling};
use waykeeper_units::WayMask;

/// FNV-1a over the debug text: slow, plain and the same everywhere.
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// A server's mix on a chip: hot sets, streams, shared lines, packets, blocks; masks and DCA move meanwhile.
fn run(chip: &str, rules: Rules) -> u64 {
    let spec = ChipSpec::built_in(chip).unwrap();
    let sampling = Sampling::one_in(64).unwrap();
    let mut map = AddressMap::new(&spec, rules.slice_hash, sampling, 21, 22);
    let cores = spec.cores as usize;
    let mut own = |mib: u64| map.ordinary(mib << 20).unwrap();
    let hot: Vec<_> = (0..cores).map(|_| own(3)).collect();
    let cold: Vec<_> = (0..cores).map(|_| own(16)).collect();
    let shared = own(2);
    let ring = map.huge(8 << 20).unwrap();
    let mut chip = Chip::new(&spec, rules, sampling, 23);
    let mut rng = Xoshiro128PlusPlus::seed_from_u64(24);
    for step in 0..120_000usize {
        let (draw, pick) = (rng.next_u32(), rng.next_u32() as usize);
        let core = step % cores;
        let of = |region: &waykeeper_silicon::Region| region.lines()[pick % region.lines().len()];
        let next = cold[core].lines()[step / cores % cold[core].lines().len()];
        let packet = |at: usize| ring.lines()[at % ring.lines().len()];
        match draw % 16 {
            0..4 => drop(chip.read(core, of(&hot[core]), Fill::Ordinary)),
            4..6 => drop(chip.write(core, of(&hot[core]), Fill::Ordinary)),
            6..8 => drop(chip.read(core, next, Fill::Stream)),
            8 => drop(chip.read(core, of(&shared), Fill::Ordinary)),
            9 if draw & 0x100 == 0 => drop(chip.write(core, of(&shared), Fill::Ordinary)),
            9..12 => drop(chip.dma_write(draw as usize >> 8 & 3, packet(step))),
            12..14 => drop(chip.read(core, packet(step + ring.lines().len() - 400), Fill::Ordinary)),
            _ => drop(chip.dma_read(draw as usize >> 8 & 3, packet(step + ring.lines().len() - 500))),
        }
        if step % 10_000 == 0 {
            let low = draw >> 8 & 3;
            chip.set_core_mask(core, WayMask::span(low, 4)).unwrap();
            chip.set_dca_ways(WayMask::span(spec.llc.ways - 2 - low, 2)).unwrap();
            chip.set_dca(3, [DcaMode::Off, DcaMode::On, DcaMode::Remote][step / 10_000 % 3]);
        }
    }
    let cores: Vec<_> = (0..cores).map(|core| chip.core_counters(core)).collect();
    let devices: Vec<_> = (0..4).map(|device| chip.device_counters(device)).collect();
    // Spelled out and sorted: a new layout or a new audit field is no new result.
    let place = |line: Line| (line.set(), line.slice(), line.tag());
    let llc = chip.residents().into_iter().map(|l| (place(l.line), l.way, l.dirty, l.io, l.copied, l.age));
    let mlc = chip.mlc_residents().into_iter().map(|l| (place(l.line), l.core, l.dirty, l.reused));
    let mut tracked: Vec<_> = chip.tracked().into_iter().map(|(line, core)| (place(line), core)).collect();
    let (mut llc, mut mlc) = (llc.collect::<Vec<_>>(), mlc.collect::<Vec<_>>());
    llc.sort_unstable();
    mlc.sort_unstable();
    tracked.sort_unstable();
    digest(&format!("{llc:?}{mlc:?}{tracked:?}{:?}{cores:?}{devices:?}", chip.counters()))
}

#[test]
fn every_variant_ends_where_it_ended() {
    let small = Rules { directory_ways: 3, ..Rules::default() };
    let rules = Rules::variants().into_iter().chain([("small-directory", small)]);
    let seen: Vec<String> = rules
        .map(|(name, rules)| {
            format!("{name} {:016x} {:016x}", run("gold-6140", rules), run("e5-2630v3", rules))
        })
        .collect();
    assert_eq!(seen, GOLDEN, "a result changed; if on purpose, these are the new lines:\n{seen:#?}");
}

#[test]
fn the_bare_level_ends_where_it_ended() {
    let mut cache = OneLevel::new(4096, 11);
    let mut rng = Xoshiro128PlusPlus::seed_from_u64(3);
    let hits: Vec<bool> = (0..200_000u32)
        .map(|step| {
            let line = if rng.next_u32() & 1 == 0 { rng.next_u32() % 30_000 } else { 30_000 + step };
            cache.access(cache.place(line))
        })
        .collect();
    assert_eq!(format!("{:016x}", digest(&format!("{hits:?}"))), ONE_LEVEL);
}

const ONE_LEVEL: &str = "9961e6dd64754c15";

/// Variant, digest on the Gold 6140, digest on the E5-2630 v3 (where many variants have nothing to change).
const GOLDEN: [&str; 25] = [
    "base 67c9cd8055909849 d622ebb7abbf1821",
    "no-migrated-copy a735070a9755059d d622ebb7abbf1821",
    "migration-always-evicts 0d0107ab9cee40ec d622ebb7abbf1821",
    "copies-displace-io cbcb8821dbf1d8ba d622ebb7abbf1821",
    "dirt-stays-when-migrating d41c73532b0604f6 d622ebb7abbf1821",
    "mlc-victim-stays-inclusive 4e63186a018db301 d622ebb7abbf1821",
    "random-replacement e0d77ed6c1c10069 e485a36c74107ddf",
    "lru 32355359655fae52 fb521447864c1440",
    "no-evict-first 939ce966a7e526e0 cc0a5904c883aef1",
    "evict-first-random f5b99a0c8bc49edb ce731cfd3a69abe8",
    "no-reuse-flag 795cea6241965703 d622ebb7abbf1821",
    "pure-victim-cache 034cf8b4438f67e4 d622ebb7abbf1821",
    "all-clean-victims-inserted fcd75d3cf33d0c73 d622ebb7abbf1821",
    "stream-displaces 60062b708ac776ab d622ebb7abbf1821",
    "llc-keeps-lines-on-hit b2a842e436e5f0df d622ebb7abbf1821",
    "dma-update-evicts-first e3a56d745fe2140f f7d598fa39a7f63b",
    "dma-update-promotes 446b554e8e9153a9 d31ed0f139827d42",
    "dma-read-promotes 023dd7ac80bd852e 10eb46761cc3d9dd",
    "mlc-held-write-inclusive 4c5d6bfc5c457aec d622ebb7abbf1821",
    "dma-write-leaves-mlc 3668376a69df0301 d622ebb7abbf1821",
    "no-read-allocate 31c4ba531d23e810 d622ebb7abbf1821",
    "dca-off-updates 322fb2191ac23110 d622ebb7abbf1821",
    "dram-without-backlog 67c9cd8055909849 d622ebb7abbf1821",
    "permutation-hash 2214264e47715851 f575c3a5a56620fd",
    "small-directory e8cfbf726b6e4056 d622ebb7abbf1821",
];
