//! The list of generations, and the search by signature. A new generation is a file in `/generations` and a line here.
//! Must not know how counters are read.

use crate::{
    AddressSpace, CoreCounterTable, Dca, Erratum, ErratumKind, Iio, LlcCounterTable, MemoryCounterTable,
    ResctrlFacts, SharedCache, Signature, SignatureRule, Vendor,
};
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

/// All known data of one CPU generation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generation {
    /// Short name and file name, for example `skx`.
    pub id: String,
    /// Full name.
    pub name: String,
    /// The manufacturer.
    pub vendor: Vendor,
    /// The signatures of its product lines.
    pub signatures: Vec<SignatureRule>,
    /// Counters of its cores.
    pub core: CoreCounterTable,
    /// Counters of its LLC slices for device requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<LlcCounterTable>,
    /// Counters of its LLC for all requests, where they are a PMU of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_cache: Option<SharedCache>,
    /// Counters of its PCIe stacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iio: Option<Iio>,
    /// Counters of its memory controllers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryCounterTable>,
    /// Knobs of direct cache access.
    pub dca: Dca,
    /// Values that resctrl should report.
    pub resctrl: ResctrlFacts,
    /// Deviations from the manual.
    #[serde(default)]
    pub errata: Vec<Erratum>,
}

const FILES: [&str; 9] = [
    include_str!("../../../generations/hsx.toml"),
    include_str!("../../../generations/bdx.toml"),
    include_str!("../../../generations/skx.toml"),
    include_str!("../../../generations/icx.toml"),
    include_str!("../../../generations/spr.toml"),
    include_str!("../../../generations/emr.toml"),
    include_str!("../../../generations/gnr.toml"),
    include_str!("../../../generations/zen4.toml"),
    include_str!("../../../generations/zen5.toml"),
];

static ALL: LazyLock<Vec<Generation>> = LazyLock::new(|| {
    // The files are embedded in the program, and a test reads each of them.
    FILES.iter().map(|text| toml::from_str(text).expect("an embedded generation table")).collect()
});

impl Generation {
    /// All known generations, oldest first.
    pub fn all() -> &'static [Generation] {
        &ALL
    }

    /// The generation of a CPU; `None` for unknown hardware, whose knobs must not be written.
    pub fn find(signature: &Signature) -> Option<&'static Generation> {
        ALL.iter().find(|generation| generation.code(signature).is_some())
    }

    /// The generation with this short name.
    pub fn by_id(id: &str) -> Option<&'static Generation> {
        ALL.iter().find(|generation| generation.id == id)
    }

    /// The code name of the product line with this signature; `None` if the signature belongs to another generation.
    pub fn code(&self, signature: &Signature) -> Option<&str> {
        if self.vendor != signature.vendor {
            return None;
        }
        self.signatures.iter().find(|rule| rule.takes(signature)).map(|rule| rule.code.as_str())
    }

    /// The erratum of a kind that applies to a signature.
    pub fn erratum(&self, kind: ErratumKind, signature: &Signature) -> Option<&Erratum> {
        let code = self.code(signature)?;
        self.errata.iter().find(|erratum| erratum.kind == kind && erratum.codes.iter().any(|own| own == code))
    }

    /// Every MSR that must be written to count events through MSRs: those of the core and of the uncore boxes.
    /// Ascending, each once.
    pub fn counter_msrs(&self) -> Vec<u32> {
        let mut addresses = self.core.written();
        let pmus = [
            self.cache.as_ref().map(|cache| &cache.pmu),
            self.iio.as_ref().map(|iio| &iio.pmu),
            self.memory.as_ref().map(|memory| &memory.pmu),
        ];
        for pmu in pmus.into_iter().flatten() {
            let Some(registers) = pmu.registers.as_ref().filter(|map| map.space == AddressSpace::Msr) else {
                continue;
            };
            for block in &registers.blocks {
                for number in block.first..block.first + block.count {
                    addresses.extend(registers.written(number, pmu.counters));
                }
            }
        }
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }
}
