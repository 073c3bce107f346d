//! The CPU's identity, from the cpuid device.
//!
//! The CPUID instruction is not used: only the device works under another root. Reading ([`CpuidDevice`]) and decoding
//! ([`Facts::decode`]) are separate, so that any bytes can be decoded without a device. Must not know how the facts
//! are used. Sources: Intel SDM vol. 2 CPUID, AMD APM vol. 3 appendix E.

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
pub struct CpuidDevice {
    handle: Handle,
}

impl CpuidDevice {
    /// Opens `/dev/cpu/N/cpuid`.
    ///
    /// # Errors
    /// The kernel's refusal; `ENOENT` when the module `cpuid` is not loaded.
    pub fn open(root: &Root, cpu: u16) -> Result<CpuidDevice, FileError> {
        Ok(CpuidDevice { handle: root.open_read(format!("/dev/cpu/{cpu}/cpuid"))? })
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

    /// The leaves that [`Facts::decode`] reads, as far as this CPU has them.
    ///
    /// # Errors
    /// As [`CpuidDevice::leaf`].
    pub fn leaves(&self) -> Result<Leaves, FileError> {
        let mut leaves = Leaves::from([((0, 0), self.leaf(0, 0)?), ((EXTENDED, 0), self.leaf(EXTENDED, 0)?)]);
        for leaf in [1, NAME, NAME + 1, NAME + 2] {
            if has(&leaves, leaf) {
                leaves.insert((leaf, 0), self.leaf(leaf, 0)?);
            }
        }
        Ok(leaves)
    }
}

/// The first leaf of the extended range.
const EXTENDED: u32 = 0x8000_0000;

/// The first of three leaves that hold the marketing name.
const NAME: u32 = EXTENDED + 2;

/// Leaves by number and subleaf.
pub type Leaves = BTreeMap<(u32, u32), Leaf>;

/// Whether a CPU has a leaf, by the first leaf of each range. Beyond its last leaf an Intel CPU repeats that leaf, so
/// those are not read.
pub fn has(leaves: &Leaves, leaf: u32) -> bool {
    let range = leaf & EXTENDED;
    leaves.get(&(range, 0)).is_some_and(|first| leaf <= first.eax)
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
}

impl Facts {
    /// Reads and decodes the leaves of one CPU.
    ///
    /// # Errors
    /// As [`CpuidDevice::open`] and [`CpuidDevice::leaf`].
    pub fn read(root: &Root, cpu: u16) -> Result<Facts, FileError> {
        Ok(Facts::decode(&CpuidDevice::open(root, cpu)?.leaves()?))
    }

    /// Decodes leaves. No input makes it panic.
    pub fn decode(leaves: &Leaves) -> Facts {
        let mut facts = Facts::default();
        if let Some(leaf) = leaves.get(&(0, 0)) {
            facts.vendor_id = printable(&[leaf.ebx, leaf.edx, leaf.ecx]);
        }
        if let Some(leaf) = leaves.get(&(1, 0)) {
            facts.signature = Vendor::from_id(&facts.vendor_id).map(|vendor| signature(vendor, leaf.eax));
            facts.hypervisor = bit(leaf.ecx, 31);
        }
        let names: Vec<&Leaf> = (NAME..NAME + 3).filter_map(|leaf| leaves.get(&(leaf, 0))).collect();
        if names.len() == 3 {
            let words: Vec<u32> = names.iter().flat_map(|l| [l.eax, l.ebx, l.ecx, l.edx]).collect();
            facts.brand = Some(printable(&words).trim().to_owned()).filter(|brand| !brand.is_empty());
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
        let reader = CpuidDevice::open(&Root::at(folder.path()), 3).unwrap();
        let leaf = reader.leaf(0x10, 1).unwrap();
        assert_eq!(leaf, Leaf { eax: 7, ebx: 0x600, ecx: 4, edx: 15 });
        assert!(matches!(reader.leaf(0x10, 2), Err(FileError::Short { .. })), "beyond the end of the file");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn no_bits_make_it_panic(words in any::<[[u32; 4]; 6]>()) {
            let places = [0, 1, EXTENDED, NAME, NAME + 1, NAME + 2].map(|leaf| (leaf, 0));
            let words = words.map(|[eax, ebx, ecx, edx]| Leaf { eax, ebx, ecx, edx });
            let mut leaves: Leaves = places.into_iter().zip(words).collect();
            let _ = Facts::decode(&leaves);
            // Once more as a known CPU.
            let id = |text: &str| u32::from_le_bytes(text.as_bytes().try_into().unwrap());
            leaves.insert((0, 0), Leaf { eax: 0x20, ebx: id("Auth"), ecx: id("cAMD"), edx: id("enti") });
            prop_assert_eq!(Facts::decode(&leaves).vendor_id, "AuthenticAMD");
        }
    }
}
