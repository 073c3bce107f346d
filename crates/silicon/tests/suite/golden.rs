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
    let spec = ChipSpec::built_in(chip).unwrap().with_rules(rules);
    let sampling = Sampling::one_in(64).unwrap();
    let mut map = AddressMap::new(&spec, sampling, 21, 22);
    let cores = spec.cores as usize;
    let mut own = |mib: u64| map.ordinary(mib << 20).unwrap();
    let hot: Vec<_> = (0..cores).map(|_| own(3)).collect();
    let cold: Vec<_> = (0..cores).map(|_| own(16)).collect();
    let shared = own(2);
    let ring = map.huge(8 << 20).unwrap();
    let mut chip = Chip::new(&spec, sampling, 23);
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
    // Spelled out and sorted: a new layout or a new audit field does not change the result.
    let place = |line: Line| (line.set(), map.slice(line), line.tag());
    let llc = chip.residents().into_iter().map(|l| (place(l.line), l.way, l.dirty, l.io, l.copied, l.age));
    let mlc = chip.mlc_residents().into_iter().map(|l| (place(l.line), l.core, l.dirty, l.reused));
    let mut tracked: Vec<_> = chip.tracked().into_iter().map(|(line, core)| (place(line), core)).collect();
    let (mut llc, mut mlc) = (llc.collect::<Vec<_>>(), mlc.collect::<Vec<_>>());
    llc.sort_unstable();
    mlc.sort_unstable();
    tracked.sort_unstable();
    // A counter that is younger than most of the numbers, and 0 under their rules.
    let counters = format!("{:?}", chip.counters()).replace(" write_backs: 0,", "");
    digest(&format!("{llc:?}{mlc:?}{tracked:?}{counters}{cores:?}{devices:?}"))
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
const GOLDEN: [&str; 32] = [
    "base 85fa0b5f86166baf 9a91c64510ab525d",
    "no-migrated-copy 4eb93509ad3aeac8 9a91c64510ab525d",
    "migration-always-evicts 00b5643167351d9a 9a91c64510ab525d",
    "copies-displace-io 8abd09d8d6045af7 9a91c64510ab525d",
    "dirt-stays-when-migrating 04db0ed2b5f38b0c 9a91c64510ab525d",
    "mlc-victim-stays-inclusive 399a4d40c84813b2 9a91c64510ab525d",
    "random-replacement 981a154151c56ef1 76ed4b5587a6569a",
    "lru b5952e770aa90949 d77165006bf13653",
    "no-evict-first 1be3c33be1fb1897 f82187ee0d56e787",
    "evict-first-random a0c3c3568895c634 4607e5f831361c82",
    "no-reuse-flag fcf7dd6bc5f733ea 9a91c64510ab525d",
    "pure-victim-cache ba2383d1f7e1f229 9a91c64510ab525d",
    "all-clean-victims-inserted 997cc11c66c63f58 9a91c64510ab525d",
    "stream-displaces 5e6b7a7b58fdcfb1 9a91c64510ab525d",
    "llc-keeps-lines-on-hit 5561bea87a819515 9a91c64510ab525d",
    "dma-update-evicts-first 263352714350dcaf 5584b73453aac621",
    "dma-update-promotes 1b65d5eba68534fe 9ba31e73e169d7a8",
    "dma-read-promotes 9b25377c9e55e442 2e38f99d9204940a",
    "mlc-held-write-inclusive 0618a1fc23497fde 9a91c64510ab525d",
    "dma-write-leaves-mlc 2ab88c090fdde17e 9a91c64510ab525d",
    "no-read-allocate aa89ae48f9526a41 9a91c64510ab525d",
    "dca-off-updates b42aaea918b8fcb6 9a91c64510ab525d",
    "dram-without-backlog 85fa0b5f86166baf 9a91c64510ab525d",
    "permutation-hash 00107dac75e257fa 663a28971f71ca1a",
    "reuse-history faeb21c397c77fcf 4435be62809b7bca",
    "io-read-is-reuse dbbd294f54065b2f 4435be62809b7bca",
    "reuse-outside-dca-ways f7f41ff29b3a46c0 4435be62809b7bca",
    "dirty-victims-dropped 9cf1d23a572eb752 4435be62809b7bca",
    "device-victim-random 23a97b2dece4e01c 4435be62809b7bca",
    "dma-update-renews 5c5ad847cf1cd6bb 881f0f432244d4fd",
    "rounds-hash 278ec17524504018 4c6fed1d955eeade",
    "small-directory d5459edc8ed32035 9a91c64510ab525d",
];
