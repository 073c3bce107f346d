//! A small chip in place of the described one: all its ways, a part of its sets. It must not know tenants or devices.

use waykeeper_calibration::ServerDescription;
use waykeeper_silicon::{
    AddressMap, Chip, ChipSpec, DramSpec, Latency, LlcKind, LlcSpec, MAX_CORES, MlcSpec, Rules, Sampling,
    SliceHash,
};
use waykeeper_units::LINE_BYTES;

/// The chip with what one of its lines represents.
#[derive(Clone, Debug)]
pub(crate) struct SmallChip {
    spec: ChipSpec,
    /// Real lines per line of the small chip.
    pub scale: f64,
    /// Lines of a core's MLC on the small chip.
    pub mlc_lines: f64,
    /// Lines of the LLC on the small chip.
    pub llc_lines: f64,
}

/// Real LLC sets per set of the small chip, at most. Assumption: some 150 sets of 11 ways are enough; the error that this
/// choice adds is part of the evaluation.
const SETS_PER_SET: f64 = 512.0;
/// Sets of the small MLC.
const MLC_SETS: u32 = 4;
/// LLC sets of a slice of the small chip.
const SLICE_SETS: u32 = 16;
/// Lines of a core's MLC where the chip is not a known one: 1 MiB (microarchitecture.md 2).
const USUAL_MLC_LINES: f64 = 16_384.0;

impl SmallChip {
    /// The chip of a description, with so many cores.
    pub fn new(server: &ServerDescription, cores: u32) -> SmallChip {
        let known = ChipSpec::built_in(&server.chip).ok();
        let ways = server.llc.ways.max(1);
        let kind = match &known {
            Some(spec) if spec.llc.ways == ways => spec.llc.kind,
            // Of the chips whose kind is not known, Intel's inclusive ones have 20 ways.
            _ if server.llc.inclusive_ways.is_some() || ways <= 16 => LlcKind::NonInclusive,
            _ => LlcKind::Inclusive,
        };
        let real_sets = (server.llc.bytes as f64 / LINE_BYTES as f64 / f64::from(ways)).max(1.0);
        let slices = (real_sets / SETS_PER_SET / f64::from(SLICE_SETS)).round().clamp(4.0, 32.0);
        let scale = real_sets / (slices * f64::from(SLICE_SETS));
        // Where pages lie relative to so few sets says nothing of the described chip.
        let rules = known.as_ref().map(|spec| Rules { slice_hash: SliceHash::Uniform, ..spec.rules });
        let mlc = known.map_or(USUAL_MLC_LINES, |spec| f64::from(spec.mlc.sets * spec.mlc.ways));
        let mlc_ways = (mlc / scale / f64::from(MLC_SETS)).round().clamp(2.0, 16.0) as u32;
        let unused = Latency { mlc_ns: 1.0, llc_ns: 1.0, memory_ns: 1.0 };
        let spec = ChipSpec {
            name: "twin".to_owned(),
            about: "a part of the sets of the described chip".to_owned(),
            cores: cores.clamp(1, MAX_CORES as u32),
            ghz: 1.0,
            identity: None,
            dca: None,
            opcodes: None,
            mlc: MlcSpec { sets: MLC_SETS, ways: mlc_ways },
            llc: LlcSpec {
                kind,
                slices: slices as u32,
                sets: SLICE_SETS,
                ways,
                dca_ways: server.dca_ways,
                inclusive_ways: server.llc.inclusive_ways.filter(|_| kind == LlcKind::NonInclusive),
                clos: server.llc.clos_count.clamp(1, 255),
                min_ways: 1,
                sparse_masks: true,
            },
            dependent: unused,
            streaming: unused,
            core_to_core_factor: 1.0,
            dram: DramSpec {
                channels: 1,
                capacity_gib: None,
                channel_gb_per_s: 1.0,
                load_slope: 0.0,
                max_utilisation: 0.9,
            },
            rules_as: None,
            rules: rules.unwrap_or_default(),
        };
        SmallChip {
            scale,
            mlc_lines: f64::from(MLC_SETS * mlc_ways),
            llc_lines: slices * f64::from(SLICE_SETS * ways),
            spec,
        }
    }

    /// Its memory, empty.
    pub fn memory(&self, seed: u64) -> AddressMap {
        AddressMap::new(&self.spec, Sampling::EXACT, seed, seed)
    }

    /// The chip at power-on.
    pub fn power_on(&self, seed: u64) -> Chip {
        Chip::new(&self.spec, Sampling::EXACT, seed)
    }
}
