//! What a CPU reports about its caches, counters and RDT: a decoder for tests, which compare it with the kernel's files
//! and with the virtual host's topology.
//!
//! Waykeeper itself reads these facts from the kernel. Sources: Intel SDM vol. 2 CPUID and vol. 3 ch. 18 (RDT), AMD APM
//! vol. 3 appendix E; hardware.md 8.2 for the I/O bits. Must not know the machine.

use proptest::prelude::*;
use waykeeper_generations::{Signature, Vendor};
use waykeeper_kernel::cpuid::{self, CpuidDevice, Leaf, Leaves};
use waykeeper_kernel::root::{FileError, Root};

/// Leaves that are decoded here, and the number of their subleaves.
const LOOKED_AT: [(u32, u32); 8] =
    [(4, 6), (7, 1), (0xa, 1), (0xb, 2), (0xf, 2), (0x10, 4), (0x8000_001d, 6), (0x8000_0020, 2)];

/// A cache, as leaf 4 (AMD: 0x8000001D) describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cache {
    /// 1 to 3, sometimes 4.
    pub level: u8,
    /// Whether it holds data (not instructions only).
    pub data: bool,
    /// Ways.
    pub ways: u32,
    /// Capacity in bytes.
    pub bytes: u64,
}

/// Way masks of one cache level (leaf 0x10, subleaves 1 and 2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// Bits of a mask.
    pub mask_bits: u32,
    /// Ways that other agents may also fill.
    pub shareable: u32,
    /// Classes of service.
    pub classes: u32,
    /// Whether code and data can have masks of their own.
    pub cdp: bool,
    /// Whether masks may have holes (ECX bit 3).
    pub sparse: bool,
    /// Whether I/O can have classes (ECX bit 1).
    pub io: bool,
}

/// Throttling of memory bandwidth (leaf 0x10 subleaf 3; AMD: 0x80000020 subleaf 1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Throttling {
    /// Intel: most throttling in percent. AMD: bits of the bandwidth value.
    pub most: u32,
    /// Whether delay values are linear (Intel).
    pub linear: bool,
    /// Classes of service.
    pub classes: u32,
}

/// Counters of the L3 by RMID (leaf 0xF).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Monitoring {
    /// RMIDs.
    pub rmids: u32,
    /// Bytes per count.
    pub unit_bytes: u32,
    /// LLC occupancy.
    pub occupancy: bool,
    /// Total memory bandwidth.
    pub total: bool,
    /// Memory bandwidth to the local node.
    pub local: bool,
}

/// The core's counters (leaf 0xA).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Perfmon {
    /// Version of architectural performance monitoring; 0 is none.
    pub version: u8,
    /// General counters of a thread.
    pub general: u8,
    /// Their width in bits.
    pub width: u8,
    /// Fixed counters.
    pub fixed: u8,
}

/// The facts of one CPU. `None`: it has no such leaf or reports no such feature.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    pub vendor_id: String,
    pub signature: Option<Signature>,
    pub brand: Option<String>,
    pub hypervisor: bool,
    /// Caches.
    pub caches: Vec<Cache>,
    /// Threads of a core (leaf 0xB).
    pub threads_per_core: Option<u32>,
    /// Core counters.
    pub perfmon: Option<Perfmon>,
    /// CAT of the L3.
    pub l3_cat: Option<Allocation>,
    /// CAT of the L2.
    pub l2_cat: Option<Allocation>,
    /// MBA.
    pub mba: Option<Throttling>,
    /// CMT and MBM.
    pub monitoring: Option<Monitoring>,
    /// AMD: L3 ways of injected I/O can be enforced (SDCIAE, 0x80000020 EBX bit 6).
    pub io_alloc: bool,
}

impl Facts {
    /// Reads and decodes the leaves of one CPU.
    pub fn read(root: &Root, cpu: u16) -> Result<Facts, FileError> {
        let reader = CpuidDevice::open(root, cpu)?;
        let mut leaves = reader.leaves()?;
        for (leaf, subleaves) in LOOKED_AT {
            let there = if cpuid::has(&leaves, leaf) { subleaves } else { 0 };
            for subleaf in 0..there {
                leaves.insert((leaf, subleaf), reader.leaf(leaf, subleaf)?);
            }
        }
        Ok(Facts::decode(&leaves))
    }

    /// Decodes leaves. No input makes it panic.
    pub fn decode(leaves: &Leaves) -> Facts {
        let cpuid::Facts { vendor_id, signature, brand, hypervisor } = cpuid::Facts::decode(leaves);
        let mut facts = Facts { vendor_id, signature, brand, hypervisor, ..Facts::default() };
        let amd = facts.signature.is_some_and(|signature| signature.vendor == Vendor::Amd);
        let cache_leaf = if amd { 0x8000_001d } else { 4 };
        facts.caches = (0..6).map_while(|sub| get(leaves, cache_leaf, sub)).map_while(cache).collect();
        facts.threads_per_core = get(leaves, 0xb, 0).map(|l| l.ebx & 0xffff).filter(|&count| count > 0);
        facts.perfmon = get(leaves, 0xa, 0).map(perfmon).filter(|perfmon| perfmon.version > 0);
        let features = get(leaves, 7, 0).unwrap_or_default().ebx;
        if bit(features, 12) {
            facts.monitoring = monitoring(leaves);
        }
        if bit(features, 15) {
            let offered = get(leaves, 0x10, 0).unwrap_or_default().ebx;
            let cat = |sub: u32| get(leaves, 0x10, sub).filter(|_| bit(offered, sub)).map(allocation);
            facts.l3_cat = cat(1);
            facts.l2_cat = cat(2);
            facts.mba = get(leaves, 0x10, 3).filter(|_| bit(offered, 3)).map(|leaf| Throttling {
                most: (leaf.eax & 0xfff) + 1,
                linear: bit(leaf.ecx, 2),
                classes: (leaf.edx & 0xffff) + 1,
            });
        }
        let more = get(leaves, 0x8000_0020, 0).filter(|_| amd).unwrap_or_default().ebx;
        facts.io_alloc = bit(more, 6);
        if bit(more, 1) {
            facts.mba = get(leaves, 0x8000_0020, 1).map(|leaf| Throttling {
                most: leaf.eax,
                linear: true,
                classes: (leaf.edx & 0xffff) + 1,
            });
        }
        facts
    }
}

fn get(leaves: &Leaves, leaf: u32, subleaf: u32) -> Option<Leaf> {
    leaves.get(&(leaf, subleaf)).copied()
}

fn bit(word: u32, bit: u32) -> bool {
    word >> bit & 1 == 1
}

fn cache(leaf: Leaf) -> Option<Cache> {
    let kind = leaf.eax & 0x1f;
    if kind == 0 {
        return None;
    }
    let ways = (leaf.ebx >> 22) + 1;
    let partitions = (leaf.ebx >> 12 & 0x3ff) + 1;
    let line = (leaf.ebx & 0xfff) + 1;
    let bytes = u64::from(ways) * u64::from(partitions) * u64::from(line);
    // At most 2^10 * 2^10 * 2^12 * 2^32, which may not fit 64 bits; it is then reported as `u64::MAX`.
    let bytes = bytes.saturating_mul(u64::from(leaf.ecx) + 1);
    Some(Cache { level: (leaf.eax >> 5 & 7) as u8, data: kind != 2, ways, bytes })
}

fn perfmon(leaf: Leaf) -> Perfmon {
    let [version, general, width, _] = leaf.eax.to_le_bytes();
    Perfmon { version, general, width, fixed: (leaf.edx & 0x1f) as u8 }
}

fn allocation(leaf: Leaf) -> Allocation {
    Allocation {
        mask_bits: (leaf.eax & 0x1f) + 1,
        shareable: leaf.ebx,
        classes: (leaf.edx & 0xffff) + 1,
        cdp: bit(leaf.ecx, 2),
        sparse: bit(leaf.ecx, 3),
        io: bit(leaf.ecx, 1),
    }
}

fn monitoring(leaves: &Leaves) -> Option<Monitoring> {
    bit(get(leaves, 0xf, 0)?.edx, 1).then_some(())?;
    let leaf = get(leaves, 0xf, 1)?;
    Some(Monitoring {
        rmids: leaf.ecx.saturating_add(1),
        unit_bytes: leaf.ebx,
        occupancy: bit(leaf.edx, 0),
        total: bit(leaf.edx, 1),
        local: bit(leaf.edx, 2),
    })
}

#[test]
fn a_leaf_that_is_not_offered_says_nothing() {
    let mut leaves = Leaves::default();
    leaves.insert((0x10, 1), Leaf { eax: 10, ebx: 0x600, ecx: 4, edx: 15 });
    assert_eq!(Facts::decode(&leaves).l3_cat, None, "leaf 7 does not offer allocation");
    leaves.insert((7, 0), Leaf { ebx: 1 << 15, ..Leaf::default() });
    leaves.insert((0x10, 0), Leaf { ebx: 1 << 2, ..Leaf::default() });
    assert_eq!(Facts::decode(&leaves).l3_cat, None, "leaf 0x10 offers the L2 only");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn no_bits_make_it_panic(words in proptest::collection::vec(any::<[u32; 4]>(), 34)) {
        let own = [0, 1, 0x8000_0000, 0x8000_0002, 0x8000_0003, 0x8000_0004].map(|leaf| (leaf, 1));
        let all = own.into_iter().chain(LOOKED_AT);
        let places = all.flat_map(|(leaf, subleaves)| (0..subleaves).map(move |subleaf| (leaf, subleaf)));
        let words = words.iter().map(|&[eax, ebx, ecx, edx]| Leaf { eax, ebx, ecx, edx });
        let mut leaves: Leaves = places.zip(words).collect();
        let _ = Facts::decode(&leaves);
        // Once more as a known CPU that offers everything.
        let id = |text: &str| u32::from_le_bytes(text.as_bytes().try_into().unwrap());
        leaves.insert((0, 0), Leaf { eax: 0x20, ebx: id("Auth"), ecx: id("cAMD"), edx: id("enti") });
        leaves.insert((7, 0), Leaf { ebx: u32::MAX, ..Leaf::default() });
        prop_assert_eq!(Facts::decode(&leaves).vendor_id, "AuthenticAMD");
    }
}
