//! The CPU's features and identity, from the cpuid device.
//!
//! The CPUID instruction is not used: only the device works under another root. Reading ([`Reader`]) and decoding
//! ([`Facts::decode`]) are separate, so that any bytes can be decoded without a device. Must not know how the facts
//! are used. Sources: Intel SDM vol. 2 CPUID and vol. 3 ch. 18 (RDT), AMD APM vol. 3 appendix E; hardware.md 8.2 for
//! the I/O bits.

use crate::root::{FileError, Handle, Root};
use std::collections::BTreeMap;
use waykeeper_generations::{Signature, Vendor};

/// The four registers of one leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Leaf {
    /// EAX.
    pub eax: u32,
    /// EBX.
    pub ebx: u32,
    /// ECX.
    pub ecx: u32,
    /// EDX.
    pub edx: u32,
}

/// The cpuid device of one CPU.
#[derive(Debug)]
pub struct Reader {
    handle: Handle,
}

impl Reader {
    /// Opens `/dev/cpu/N/cpuid`.
    ///
    /// # Errors
    /// The kernel's refusal; `ENOENT` when the module `cpuid` is not loaded.
    pub fn open(root: &Root, cpu: u16) -> Result<Reader, FileError> {
        Ok(Reader { handle: root.open_read(format!("/dev/cpu/{cpu}/cpuid"))? })
    }

    /// Reads one leaf: 16 bytes at offset `leaf`, `subleaf` in its upper half (linux:arch/x86/kernel/cpuid.c).
    ///
    /// # Errors
    /// The kernel's refusal, or fewer than 16 bytes.
    pub fn leaf(&self, leaf: u32, subleaf: u32) -> Result<Leaf, FileError> {
        let mut bytes = [0; 16];
        self.handle.read_exact_at(&mut bytes, u64::from(leaf) | u64::from(subleaf) << 32)?;
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Ok(Leaf { eax: word(0), ebx: word(4), ecx: word(8), edx: word(12) })
    }

    /// All leaves that [`Facts::decode`] reads and that this CPU has.
    ///
    /// # Errors
    /// As [`Reader::leaf`].
    pub fn leaves(&self) -> Result<Leaves, FileError> {
        let mut leaves = Leaves::default();
        let basic = self.leaf(0, 0)?.eax;
        let extended = self.leaf(EXTENDED, 0)?.eax;
        // Beyond its last leaf an Intel CPU repeats that leaf, so those are not read.
        let there = |leaf: u32| if leaf >= EXTENDED { leaf <= extended } else { leaf <= basic };
        for (leaf, subleaves) in LOOKED_AT {
            for subleaf in (0..subleaves).filter(|_| there(leaf)) {
                leaves.0.insert((leaf, subleaf), self.leaf(leaf, subleaf)?);
            }
        }
        Ok(leaves)
    }
}

const EXTENDED: u32 = 0x8000_0000;

/// Leaves that are read, and the number of their subleaves.
const LOOKED_AT: [(u32, u32); 14] = [
    (0, 1),
    (1, 1),
    (4, 6),
    (7, 1),
    (0xa, 1),
    (0xb, 2),
    (0xf, 2),
    (0x10, 4),
    (EXTENDED, 1),
    (0x8000_0002, 1),
    (0x8000_0003, 1),
    (0x8000_0004, 1),
    (0x8000_001d, 6),
    (0x8000_0020, 2),
];

/// Leaves by number and subleaf.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Leaves(pub BTreeMap<(u32, u32), Leaf>);

impl Leaves {
    fn get(&self, leaf: u32, subleaf: u32) -> Option<Leaf> {
        self.0.get(&(leaf, subleaf)).copied()
    }
}

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
    /// The twelve letters of leaf 0; unprintable ones as `?`.
    pub vendor_id: String,
    /// Vendor, family, model, stepping; `None` for a vendor that is not known.
    pub signature: Option<Signature>,
    /// Marketing name.
    pub brand: Option<String>,
    /// Whether a hypervisor reports itself.
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
    ///
    /// # Errors
    /// As [`Reader::open`] and [`Reader::leaf`].
    pub fn read(root: &Root, cpu: u16) -> Result<Facts, FileError> {
        Ok(Facts::decode(&Reader::open(root, cpu)?.leaves()?))
    }

    /// Decodes leaves. No input makes it panic.
    pub fn decode(leaves: &Leaves) -> Facts {
        let mut facts = Facts::default();
        if let Some(leaf) = leaves.get(0, 0) {
            facts.vendor_id = printable(&[leaf.ebx, leaf.edx, leaf.ecx]);
        }
        if let Some(leaf) = leaves.get(1, 0) {
            facts.signature = Vendor::from_id(&facts.vendor_id).map(|vendor| signature(vendor, leaf.eax));
            facts.hypervisor = bit(leaf.ecx, 31);
        }
        let names: Vec<Leaf> = (2..5).filter_map(|n| leaves.get(EXTENDED + n, 0)).collect();
        if names.len() == 3 {
            let words: Vec<u32> = names.iter().flat_map(|l| [l.eax, l.ebx, l.ecx, l.edx]).collect();
            facts.brand = Some(printable(&words).trim().to_owned()).filter(|brand| !brand.is_empty());
        }
        let amd = facts.signature.is_some_and(|signature| signature.vendor == Vendor::Amd);
        let cache_leaf = if amd { 0x8000_001d } else { 4 };
        facts.caches = (0..6).map_while(|sub| leaves.get(cache_leaf, sub)).map_while(cache).collect();
        facts.threads_per_core = leaves.get(0xb, 0).map(|l| l.ebx & 0xffff).filter(|&count| count > 0);
        facts.perfmon = leaves.get(0xa, 0).map(perfmon).filter(|perfmon| perfmon.version > 0);
        let features = leaves.get(7, 0).unwrap_or_default().ebx;
        if bit(features, 12) {
            facts.monitoring = monitoring(leaves);
        }
        if bit(features, 15) {
            let offered = leaves.get(0x10, 0).unwrap_or_default().ebx;
            let cat = |sub: u32| leaves.get(0x10, sub).filter(|_| bit(offered, sub)).map(allocation);
            facts.l3_cat = cat(1);
            facts.l2_cat = cat(2);
            facts.mba = leaves.get(0x10, 3).filter(|_| bit(offered, 3)).map(|leaf| Throttling {
                most: (leaf.eax & 0xfff) + 1,
                linear: bit(leaf.ecx, 2),
                classes: (leaf.edx & 0xffff) + 1,
            });
        }
        let more = leaves.get(0x8000_0020, 0).filter(|_| amd).unwrap_or_default().ebx;
        facts.io_alloc = bit(more, 6);
        if bit(more, 1) {
            facts.mba = leaves.get(0x8000_0020, 1).map(|leaf| Throttling {
                most: leaf.eax,
                linear: true,
                classes: (leaf.edx & 0xffff) + 1,
            });
        }
        facts
    }
}

fn bit(word: u32, bit: u32) -> bool {
    word >> bit & 1 == 1
}

fn printable(words: &[u32]) -> String {
    let letters = words.iter().flat_map(|word| word.to_le_bytes()).take_while(|&byte| byte != 0);
    letters.map(|byte| if byte == b' ' || byte.is_ascii_graphic() { byte as char } else { '?' }).collect()
}

/// Leaf 1 EAX: the extended family counts only with family 15, the extended model with 6 and 15 (SDM vol. 2).
fn signature(vendor: Vendor, eax: u32) -> Signature {
    let base = eax >> 8 & 0xf;
    let family = if base == 0xf { base + (eax >> 20 & 0xff) } else { base };
    let extended = if base == 0x6 || base == 0xf { (eax >> 16 & 0xf) << 4 } else { 0 };
    let model = extended | eax >> 4 & 0xf;
    Signature { vendor, family: family as u16, model: model as u16, stepping: (eax & 0xf) as u8 }
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
    bit(leaves.get(0xf, 0)?.edx, 1).then_some(())?;
    let leaf = leaves.get(0xf, 1)?;
    Some(Monitoring {
        rmids: leaf.ecx.saturating_add(1),
        unit_bytes: leaf.ebx,
        occupancy: bit(leaf.edx, 0),
        total: bit(leaf.edx, 1),
        local: bit(leaf.edx, 2),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn families_and_models_are_put_together_as_the_manual_says() {
        // SDM vol. 2: Skylake-SP reports 0x50654, EPYC 9004 0xA10F11.
        let skylake = signature(Vendor::Intel, 0x50654);
        assert_eq!((skylake.family, skylake.model, skylake.stepping), (6, 85, 4));
        let genoa = signature(Vendor::Amd, 0x00a1_0f11);
        assert_eq!((genoa.family, genoa.model, genoa.stepping), (25, 17, 1));
    }

    #[test]
    fn a_device_is_read_at_leaf_and_subleaf() {
        use std::os::unix::fs::FileExt;
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("dev/cpu/3")).unwrap();
        let file = std::fs::File::create(folder.path().join("dev/cpu/3/cpuid")).unwrap();
        let bytes: Vec<u8> = [7u32, 0x600, 4, 15].iter().flat_map(|word| word.to_le_bytes()).collect();
        file.write_at(&bytes, 1 << 32 | 0x10).unwrap();
        let reader = Reader::open(&Root::at(folder.path()), 3).unwrap();
        let leaf = reader.leaf(0x10, 1).unwrap();
        assert_eq!(leaf, Leaf { eax: 7, ebx: 0x600, ecx: 4, edx: 15 });
        assert!(matches!(reader.leaf(0x10, 2), Err(FileError::Short { .. })), "beyond the end of the file");
    }

    #[test]
    fn a_leaf_that_is_not_offered_says_nothing() {
        let mut leaves = Leaves::default();
        leaves.0.insert((0x10, 1), Leaf { eax: 10, ebx: 0x600, ecx: 4, edx: 15 });
        assert_eq!(Facts::decode(&leaves).l3_cat, None, "leaf 7 does not offer allocation");
        leaves.0.insert((7, 0), Leaf { ebx: 1 << 15, ..Leaf::default() });
        leaves.0.insert((0x10, 0), Leaf { ebx: 1 << 2, ..Leaf::default() });
        assert_eq!(Facts::decode(&leaves).l3_cat, None, "leaf 0x10 offers the L2 only");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn no_bits_make_it_panic(words in proptest::collection::vec(any::<[u32; 4]>(), 34)) {
            let places = LOOKED_AT.iter().flat_map(|&(leaf, subs)| (0..subs).map(move |sub| (leaf, sub)));
            let words = words.iter().map(|&[eax, ebx, ecx, edx]| Leaf { eax, ebx, ecx, edx });
            let mut leaves = Leaves(places.zip(words).collect());
            let _ = Facts::decode(&leaves);
            // Once more as a known CPU that offers everything.
            let id = |text: &str| u32::from_le_bytes(text.as_bytes().try_into().unwrap());
            leaves.0.insert((0, 0), Leaf { eax: 0x20, ebx: id("Auth"), ecx: id("cAMD"), edx: id("enti") });
            leaves.0.insert((7, 0), Leaf { ebx: u32::MAX, ..Leaf::default() });
            prop_assert_eq!(Facts::decode(&leaves).vendor_id, "AuthenticAMD");
        }
    }
}
