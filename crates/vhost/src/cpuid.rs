//! `dev/cpu/N/cpuid`: the answers of the chip's CPUID instruction, with the behaviour of the kernel's cpuid device.
//!
//! Source: Intel SDM vol. 2 (CPUID), AMD APM vol. 3 appendix E, linux arch/x86/kernel/cpuid.c (offset = leaf and
//! subleaf, a length that is no multiple of 16 is EINVAL, each further 16 bytes are the next leaf). Caches are those of
//! the chip file, so a tool that multiplies their values gets the model's sizes. It must not know the running machine.

use crate::layout::Layout;
use crate::node::{Caller, File};
use crate::package::MONITORING_UNIT;
use crate::rdt::Features;
use rustix::io::Errno;
use std::sync::Arc;
use waykeeper_silicon::{ChipSpec, LlcKind};

/// EAX, EBX, ECX, EDX.
type Leaf = [u32; 4];

/// A cache as leaf 4 (Intel) and leaf 0x8000001D (AMD) describe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLevel {
    /// Level.
    pub level: u32,
    /// 1 data, 2 instructions, 3 both.
    pub kind: u32,
    /// Ways.
    pub ways: u32,
    /// Sets, slices included.
    pub sets: u32,
    /// Whether all cores of the package share it.
    pub shared: bool,
    /// Whether it includes the lines of lower levels.
    pub inclusive: bool,
}

impl CacheLevel {
    /// Bytes.
    pub fn bytes(&self) -> u64 {
        u64::from(self.ways) * u64::from(self.sets) * 64
    }
}

/// The caches of a chip: two of 32 KiB and 8 ways at level 1, which the model does not have; then those of the chip
/// file.
pub fn caches(spec: &ChipSpec) -> [CacheLevel; 4] {
    let inner =
        |level, kind, ways, sets| CacheLevel { level, kind, ways, sets, shared: false, inclusive: false };
    [
        inner(1, 1, 8, 64),
        inner(1, 2, 8, 64),
        inner(2, 3, spec.mlc.ways, spec.mlc.sets),
        CacheLevel {
            level: 3,
            kind: 3,
            ways: spec.llc.ways,
            sets: spec.llc.sets * spec.llc.slices,
            shared: true,
            inclusive: spec.llc.kind == LlcKind::Inclusive,
        },
    ]
}

/// Bits of an APIC id that number the cores of a package.
pub fn core_bits(cores: usize) -> u32 {
    cores.next_power_of_two().trailing_zeros()
}

/// Highest leaf of the range from 0: SDM and APM by generation.
pub fn highest(layout: &Layout) -> u32 {
    match layout.generation.map(|generation| generation.id.as_str()) {
        _ if layout.is_amd() => 0x10,
        None => 0xd,
        Some("hsx") => 0xf,
        Some("bdx") => 0x14,
        Some(_) => 0x16,
    }
}

/// The CPUID answers of all CPUs of a server.
#[derive(Clone, Debug)]
pub struct Cpuid {
    layout: Layout,
    spec: ChipSpec,
    features: Features,
    rmids: u32,
}

impl Cpuid {
    /// The answers of a server.
    pub fn new(layout: &Layout, spec: &ChipSpec, features: Features, rmids: u32) -> Cpuid {
        Cpuid { layout: layout.clone(), spec: spec.clone(), features, rmids }
    }

    fn apic_id(&self, cpu: usize) -> u32 {
        let package = self.layout.package_of(cpu);
        (package << core_bits(self.layout.cores)) as u32 | (cpu % self.layout.cores) as u32
    }

    /// The answer of a leaf on a CPU; zeros for an absent leaf.
    pub fn leaf(&self, cpu: usize, leaf: u32, subleaf: u32) -> Leaf {
        let cores = self.layout.cores as u32;
        let features = self.features;
        match leaf {
            0 => self.vendor(highest(&self.layout)),
            1 => self.signature(cpu),
            4 if !self.layout.is_amd() => self.cache(subleaf),
            // ARAT; IA32_MPERF and IA32_APERF exist.
            6 => [1 << 2, 0, 1, 0],
            7 if subleaf == 0 && self.layout.generation.is_some() => {
                // FSGSBASE, BMI1, AVX2, SMEP, BMI2, ERMS; PQM 12, PQE 15.
                let monitors = u32::from(features.occupancy) << 12;
                [0, 0x3a9 | monitors | u32::from(features.announces_cat) << 15, 0, 0]
            }
            0xa => self.counters(),
            0xb => match subleaf {
                0 => [0, 1, 0x100, self.apic_id(cpu)],
                1 => [core_bits(self.layout.cores), cores, 0x201, self.apic_id(cpu)],
                _ => [0, 0, subleaf & 0xff, self.apic_id(cpu)],
            },
            // Saved by XSAVE: x87, SSE and AVX, 832 bytes; the AVX part has 256 bytes at 576 (SDM vol. 1, 13.2).
            0xd => match subleaf {
                0 => [0x7, 832, 832, 0],
                1 => [0x1, 832, 0, 0],
                2 => [256, 576, 0, 0],
                _ => [0; 4],
            },
            0xf if features.occupancy => match subleaf {
                0 => [0, self.rmids - 1, 0, 1 << 1],
                1 => [0, MONITORING_UNIT, self.rmids - 1, if features.traffic { 0b111 } else { 0b001 }],
                _ => [0; 4],
            },
            0x10 if features.announces_cat => self.allocation(subleaf),
            // Base and highest clock in MHz, bus clock.
            0x16 if !self.layout.is_amd() => {
                let mhz = (self.spec.ghz * 1000.0).round() as u32;
                [mhz, mhz, 100, 0]
            }
            0x8000_0000.. => self.extended(cpu, leaf, subleaf),
            _ => [0; 4],
        }
    }

    fn vendor(&self, highest: u32) -> Leaf {
        // EBX, EDX, ECX in this order; the chip file was checked for 12 letters.
        let word = |at: usize| {
            let bytes = self.layout.identity.vendor.as_bytes();
            u32::from_le_bytes(std::array::from_fn(|byte| bytes.get(at + byte).copied().unwrap_or(0)))
        };
        [highest, word(0), word(8), word(4)]
    }

    fn signature(&self, cpu: usize) -> Leaf {
        let identity = &self.layout.identity;
        let (family, model) = (identity.family, identity.model);
        let signature = family.saturating_sub(15) << 20
            | (model >> 4) << 16
            | family.min(15) << 8
            | (model & 15) << 4
            | identity.stepping;
        let threads = self.layout.cores as u32;
        let misc = self.apic_id(cpu) << 24 | threads << 16 | 8 << 8;
        // Feature bits of any server since Haswell; no hypervisor (ECX bit 31).
        let (ecx, edx) =
            if self.layout.is_amd() { (0x7ef8_320b, 0x178b_fbff) } else { (0x7ffe_fbff, 0xbfeb_fbff) };
        // Sandy Bridge has no FMA, MOVBE, F16C and RDRAND.
        let missing: u32 = if self.layout.generation.is_none() { 1 << 12 | 1 << 22 | 0b11 << 29 } else { 0 };
        [signature, misc, ecx & !missing, edx]
    }

    fn cache(&self, subleaf: u32) -> Leaf {
        let Some(cache) = caches(&self.spec).get(subleaf as usize).copied() else { return [0; 4] };
        let cores = self.layout.cores;
        let sharing = if cache.shared { (1 << core_bits(cores)) - 1 } else { 0 };
        let others = (1u32 << core_bits(cores)) - 1;
        let amd = self.layout.is_amd();
        let eax = cache.kind
            | cache.level << 5
            | 1 << 8
            | sharing << 14
            | if amd { 0 } else { others.min(63) << 26 };
        let ebx = 63 | (cache.ways - 1) << 22;
        let edx = u32::from(cache.inclusive) << 1 | if amd { 0 } else { u32::from(cache.shared) << 2 };
        [eax, ebx, cache.sets - 1, edx]
    }

    /// Architectural performance monitoring, version 4 (3 before Skylake).
    fn counters(&self) -> Leaf {
        let Some(generation) = self.layout.generation.filter(|_| !self.layout.is_amd()) else {
            return [0; 4];
        };
        let core = &generation.core;
        let version = if matches!(generation.id.as_str(), "hsx" | "bdx") { 3 } else { 4 };
        // Hyper-threading is off, so a core's thread has all its counters.
        let eax = version | u32::from(core.counters_alone) << 8 | u32::from(core.width) << 16 | 7 << 24;
        let edx = core.fixed.map_or(0, |fixed| u32::from(fixed.counters) | u32::from(fixed.width) << 5);
        [eax, 0, 0, edx]
    }

    fn allocation(&self, subleaf: u32) -> Leaf {
        let features = self.features;
        let bandwidth = features.bandwidth_classes > 0;
        match subleaf {
            0 => [0, 1 << 1 | u32::from(bandwidth && !self.layout.is_amd()) << 3, 0, 0],
            1 => {
                let ecx = u32::from(features.cdp) << 2 | u32::from(features.sparse) << 3;
                [self.spec.llc.ways - 1, features.shareable, ecx, features.classes - 1]
            }
            // The highest delay is 90 percent, and delays are linear.
            3 if bandwidth && !self.layout.is_amd() => [90 - 1, 0, 1 << 2, features.bandwidth_classes - 1],
            _ => [0; 4],
        }
    }

    fn extended(&self, cpu: usize, leaf: u32, subleaf: u32) -> Leaf {
        let amd = self.layout.is_amd();
        let mlc_kib = self.spec.mlc.sets * self.spec.mlc.ways * 64 / 1024;
        let bits = core_bits(self.layout.cores);
        match leaf {
            0x8000_0000 if amd => self.vendor(0x8000_0022),
            0x8000_0000 => [0x8000_0008, 0, 0, 0],
            // AMD: topology extensions and core, northbridge and L3 counters; both: 64 bits, no-execute, 1 GiB pages.
            0x8000_0001 if amd => {
                [self.signature(cpu)[0], 0, 1 << 22 | 1 << 23 | 1 << 24 | 1 << 28 | 0x1, 0x2c10_0800]
            }
            0x8000_0001 => [0, 0, 0x121, 0x2c10_0800],
            0x8000_0002..=0x8000_0004 => self.brand(leaf - 0x8000_0002),
            // L2: KiB, 8 ways or more by code, line size.
            0x8000_0006 => [0, 0, mlc_kib << 16 | 6 << 12 | 64, 0],
            // Invariant TSC.
            0x8000_0007 => [0, 0, 0, 1 << 8],
            0x8000_0008 if amd => [0x3030, 0, bits << 12 | (self.layout.cores as u32 - 1), 0],
            0x8000_0008 => [0x302e, 0, 0, 0],
            0x8000_001d if amd => self.cache(subleaf),
            0x8000_001e if amd => {
                [self.apic_id(cpu), (cpu % self.layout.cores) as u32, self.layout.package_of(cpu) as u32, 0]
            }
            // Bandwidth enforcement: limits of 11 bits in eighths of GB/s (APM vol. 3, E.4.21).
            0x8000_0020 if amd && self.features.bandwidth_classes > 0 => match subleaf {
                0 => [0, 1 << 1, 0, 0],
                1 => [11, 0, 0, self.features.bandwidth_classes - 1],
                _ => [0; 4],
            },
            // Performance monitoring version 2: six counters a core.
            0x8000_0022 if amd => [1, 6, 0, 0],
            _ => [0; 4],
        }
    }

    fn brand(&self, third: u32) -> Leaf {
        let text = self.layout.identity.brand.as_bytes();
        let at = |index: usize| text.get(index).copied().unwrap_or(0);
        std::array::from_fn(|word| {
            let first = third as usize * 16 + word * 4;
            u32::from_le_bytes(std::array::from_fn(|byte| at(first + byte)))
        })
    }
}

/// The device of one CPU.
pub struct CpuidFile {
    cpuid: Arc<Cpuid>,
    cpu: usize,
}

impl CpuidFile {
    /// The device of a CPU.
    pub fn new(cpuid: Arc<Cpuid>, cpu: usize) -> CpuidFile {
        CpuidFile { cpuid, cpu }
    }
}

impl File for CpuidFile {
    fn read(&self, offset: u64, len: usize, _: Caller) -> Result<Vec<u8>, Errno> {
        if !len.is_multiple_of(16) {
            return Err(Errno::INVAL);
        }
        let (leaf, subleaf) = (offset as u32, (offset >> 32) as u32);
        let words =
            (0..len as u32 / 16).flat_map(|next| self.cpuid.leaf(self.cpu, leaf.wrapping_add(next), subleaf));
        Ok(words.flat_map(u32::to_le_bytes).collect())
    }
}
