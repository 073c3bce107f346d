//! Chips as data: geometry, latencies and memory of one socket.
//!
//! The chips of the papers come with the program (`chips/*.toml`); a user copies one and changes it.
//! Every constant names its source in those files.

use crate::dca::DcaRegisters;
use crate::line::LineTag;
use crate::ranges;
use crate::rules::Rules;
use crate::simd::LANES;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use waykeeper_units::{LINE_BYTES, WayMask, one_line, shown};

/// Which kind of last-level cache a chip has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LlcKind {
    /// Skylake-SP and later: exclusive for ordinary lines, with inclusive ways and a directory.
    NonInclusive,
    /// Haswell, Broadwell and older: every MLC line is in the LLC too.
    Inclusive,
}

/// The last-level cache.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LlcSpec {
    /// Kind of LLC.
    pub kind: LlcKind,
    /// Slices (1 to 256).
    pub slices: u32,
    /// Sets per slice (a power of two).
    pub sets: u32,
    /// Ways (at most 32).
    pub ways: u32,
    /// Ways devices may allocate in at power-on; absent on a chip without DCA.
    pub dca_ways: Option<WayMask>,
    /// Ways tied to the shared directory ways (non-inclusive only); absent where a line is never in LLC and MLC at
    /// once.
    pub inclusive_ways: Option<WayMask>,
    /// Classes of service for CAT.
    pub clos: u32,
    /// Fewest ways a CAT mask may have.
    pub min_ways: u32,
    /// Whether a CAT mask may have holes (AMD; Intel's classic parts require one run of ways).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sparse_masks: bool,
}

/// The identity that the chip reports to software (CPUID leaf 1 and the brand string).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Vendor string of leaf 0, for example `GenuineIntel`.
    pub vendor: String,
    /// Family with the extended family added, as /proc/cpuinfo shows it.
    pub family: u32,
    /// Model with the extended model in its upper half, as /proc/cpuinfo shows it.
    pub model: u32,
    /// Stepping.
    pub stepping: u32,
    /// Brand string, at most 47 characters.
    pub brand: String,
    /// Name of its table in the generations' list; absent for a CPU without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<String>,
}

/// A mid-level cache.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MlcSpec {
    /// Sets (a power of two, at most 2048).
    pub sets: u32,
    /// Ways (at most 16).
    pub ways: u32,
}

/// Cost of an access by the level that served it, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// Served by the own MLC.
    pub mlc_ns: f64,
    /// Served by the LLC.
    pub llc_ns: f64,
    /// Served by memory, unloaded.
    pub memory_ns: f64,
}

/// Memory of a chip with wide tags whose file says nothing, GiB: a small server's.
const WIDE_GIB: u32 = 64;

/// The memory of the socket.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DramSpec {
    /// Channels.
    pub channels: u32,
    /// GiB that programs and devices can be given; absent: 65,535 tags of 16 bits, which are 4 GiB with 1024 MLC sets,
    /// and 64 GiB on a chip with wider tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_gib: Option<u32>,
    /// Usable bandwidth of one channel, GB/s (10^9 bytes).
    pub channel_gb_per_s: f64,
    /// Slope of latency over u / (1 - u).
    pub load_slope: f64,
    /// Highest utilisation the latency formula is used for.
    pub max_utilisation: f64,
}

/// How the uncore counts device accesses by opcode (PCIeRdCur, ItoM, RFO).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpcodeSpec {
    /// A miss is counted again as a hit once the line has arrived: hits are all accesses.
    pub miss_adds_hit: bool,
}

/// One socket.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChipSpec {
    /// Short name, for example `gold-6140`.
    pub name: String,
    /// One line for people.
    pub about: String,
    /// Cores (at most [`crate::MAX_CORES`]).
    pub cores: u32,
    /// Core clock in GHz (turbo off).
    pub ghz: f64,
    /// CPUID identity; absent for a chip that is not sold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// The registers that control DCA; absent on a chip without it.
    pub dca: Option<DcaRegisters>,
    /// Its opcode events; absent on a chip without them.
    pub opcodes: Option<OpcodeSpec>,
    /// Mid-level cache of a core.
    pub mlc: MlcSpec,
    /// Last-level cache.
    pub llc: LlcSpec,
    /// Cost of dependent loads (pointer chases).
    pub dependent: Latency,
    /// Cost per line of streaming loads (copies, scans).
    pub streaming: Latency,
    /// A hit in another core's MLC costs this many LLC hits.
    pub core_to_core_factor: f64,
    /// Memory.
    pub dram: DramSpec,
    /// The built-in chip whose rules this one has, where `rules` does not say otherwise; absent: those of Skylake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules_as: Option<String>,
    /// What differs from these on this chip. A scenario's `[model]` overrides it.
    #[serde(default, skip_serializing_if = "Rules::are_default")]
    pub rules: Rules,
}

/// Why a chip was refused.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// Not TOML, or not the keys a chip has.
    #[error("{file}: {}", one_line(.why))]
    Syntax {
        /// File or built-in name.
        file: String,
        /// The line and the parser's message.
        why: String,
    },
    /// A value outside its range.
    #[error("{file}: `{key}` is {}; it must be {wanted}", one_line(.value))]
    Value {
        /// File or built-in name.
        file: String,
        /// Dotted key.
        key: String,
        /// The value found.
        value: String,
        /// What is accepted.
        wanted: String,
    },
    /// No such built-in chip.
    #[error("there is no chip `{}`; built in are {known}; or give the path of a chip file (*.toml)", shown(.name))]
    Unknown {
        /// The name given.
        name: String,
        /// The names that exist.
        known: String,
    },
}

const BUILT_IN: [(&str, &str); 15] = [
    ("gold-6140", include_str!("../../../chips/gold-6140.toml")),
    ("gold-5120", include_str!("../../../chips/gold-5120.toml")),
    ("gold-6134", include_str!("../../../chips/gold-6134.toml")),
    ("e5-2667v3", include_str!("../../../chips/e5-2667v3.toml")),
    ("e5-2630v3", include_str!("../../../chips/e5-2630v3.toml")),
    ("e3-1230", include_str!("../../../chips/e3-1230.toml")),
    ("gold-5320", include_str!("../../../chips/gold-5320.toml")),
    ("gold-6430", include_str!("../../../chips/gold-6430.toml")),
    ("platinum-8570", include_str!("../../../chips/platinum-8570.toml")),
    ("xeon-6980p", include_str!("../../../chips/xeon-6980p.toml")),
    ("xeon-6780e", include_str!("../../../chips/xeon-6780e.toml")),
    ("epyc-7763", include_str!("../../../chips/epyc-7763.toml")),
    ("epyc-9554", include_str!("../../../chips/epyc-9554.toml")),
    ("epyc-9755", include_str!("../../../chips/epyc-9755.toml")),
    ("idio", include_str!("../../../chips/idio.toml")),
];

impl ChipSpec {
    /// Names of the chips that come with the program.
    pub fn built_in_names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// The text of a built-in chip file, to copy and change.
    pub fn built_in_text(name: &str) -> Option<&'static str> {
        BUILT_IN.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
    }

    /// A chip that comes with the program.
    ///
    /// # Errors
    /// [`SpecError::Unknown`] with the list of names.
    pub fn built_in(name: &str) -> Result<ChipSpec, SpecError> {
        let text = ChipSpec::built_in_text(name).ok_or_else(|| SpecError::Unknown {
            name: name.to_owned(),
            known: ChipSpec::built_in_names().collect::<Vec<_>>().join(", "),
        })?;
        ChipSpec::parse(name, text)
    }

    /// A chip from the text of a chip file; `file` is for error messages.
    ///
    /// # Errors
    /// Syntax, unknown keys and values out of range, each with file and key.
    pub fn parse(file: &str, text: &str) -> Result<ChipSpec, SpecError> {
        let syntax = |error: toml::de::Error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            let at =
                before.map_or_else(String::new, |text| format!("line {}: ", text.matches('\n').count() + 1));
            let why = format!("{at}{}", error.message().trim().replace('\n', "; "));
            SpecError::Syntax { file: file.to_owned(), why }
        };
        let refused = |(key, value, wanted): (Cow<'static, str>, String, String)| SpecError::Value {
            file: file.to_owned(),
            key: key.into_owned(),
            value,
            wanted,
        };
        // Numbers first: one that its type cannot hold has a range as others have.
        let table: toml::Table = toml::from_str(text).map_err(syntax)?;
        ranges::check(&table).map_err(|(key, value, wanted)| refused((key.into(), value, wanted)))?;
        let mut spec: ChipSpec = toml::from_str(text).map_err(syntax)?;
        if let Some(name) = &spec.rules_as {
            let other = ChipSpec::built_in(name).map_err(|_| {
                let known = ChipSpec::built_in_names().collect::<Vec<_>>().join(", ");
                refused(("rules_as".into(), name.clone(), format!("one of {known}")))
            })?;
            spec.rules = match table.get("rules").and_then(toml::Value::as_table) {
                Some(own) => other.rules.with(own).map_err(syntax)?,
                None => other.rules,
            };
        }
        spec.check().map_err(refused)?;
        Ok(spec)
    }

    /// The same chip under other rules.
    pub fn with_rules(self, rules: Rules) -> ChipSpec {
        ChipSpec { rules, ..self }
    }

    /// LLC capacity in bytes.
    pub fn llc_bytes(&self) -> u64 {
        let llc = &self.llc;
        u64::from(llc.slices) * u64::from(llc.sets) * u64::from(llc.ways) * LINE_BYTES
    }

    /// Lines of memory.
    pub(crate) fn memory_lines(&self) -> u64 {
        let lines = |gib: u32| u64::from(gib) << (30 - LINE_BYTES.ilog2());
        match self.dram.capacity_gib {
            Some(gib) => lines(gib),
            None if self.is_larger_than_narrow() => lines(WIDE_GIB).min(self.most_lines::<u32>()),
            None => self.most_lines::<u16>(),
        }
    }

    /// Lines that tags of this size tell apart.
    fn most_lines<T: LineTag>(&self) -> u64 {
        u64::from(T::ADDRESSES) * u64::from(self.mlc.sets)
    }

    /// Whether the tags of its lines have 32 bits instead of 16 (line.rs).
    pub(crate) fn has_wide_tags(&self) -> bool {
        self.is_larger_than_narrow()
            || self.memory_lines() > self.most_lines::<u16>()
            || self.rules.are_later()
    }

    /// Whether ways, sets or slices need handles with wide tags. An inclusive LLC has 32 ways in both.
    fn is_larger_than_narrow(&self) -> bool {
        let (llc, mlc) = (&self.llc, &self.mlc);
        let ways = llc.kind == LlcKind::NonInclusive && llc.ways > LANES as u32;
        ways || mlc.sets > 1 << u16::SET_BITS || llc.slices > <u16 as LineTag>::SLICES
    }

    fn check(&self) -> Result<(), (Cow<'static, str>, String, String)> {
        let bad = |key: &'static str, value: &dyn ToString, wanted: &str| {
            Err((Cow::Borrowed(key), value.to_string(), wanted.to_owned()))
        };
        if self.name.trim().is_empty() {
            return bad("name", &format!("{:?}", self.name), "a short name");
        }
        let (mlc, llc) = (&self.mlc, &self.llc);
        if !mlc.sets.is_power_of_two() {
            return bad("mlc.sets", &mlc.sets, "a power of two from 16 to 2048");
        }
        if !llc.sets.is_power_of_two() || llc.sets < mlc.sets || llc.sets > mlc.sets << 8 {
            let wanted = format!("a power of two, at least mlc.sets ({})", mlc.sets);
            return bad("llc.sets", &llc.sets, &wanted);
        }
        for (key, mask) in [("llc.dca_ways", llc.dca_ways), ("llc.inclusive_ways", llc.inclusive_ways)] {
            if let Some(Err(error)) = mask.map(|mask| mask.check(llc.ways, 1)) {
                return bad(key, &mask.unwrap_or_default(), &format!("a legal mask ({error})"));
            }
        }
        if let (LlcKind::Inclusive, Some(mask)) = (llc.kind, llc.inclusive_ways) {
            return bad("llc.inclusive_ways", &mask, "absent: in an inclusive LLC all ways are inclusive");
        }
        match (&self.dca, llc.dca_ways) {
            (Some(registers), Some(at_power_on)) => {
                if let Err((key, value, wanted)) = registers.check(at_power_on, llc.ways) {
                    return bad(key, &value, &wanted);
                }
            }
            (None, None) => {}
            (Some(_), None) => return bad("dca", &"there", "absent on a chip without `llc.dca_ways`"),
            (None, Some(_)) => return bad("dca", &"absent", "the table of a chip with `llc.dca_ways`"),
        }
        if self.memory_lines() > self.most_lines::<u32>() {
            let most = (self.most_lines::<u32>() * LINE_BYTES) >> 30;
            let wanted = format!("at most {most} with so few MLC sets ({})", mlc.sets);
            return bad("dram.capacity_gib", &self.dram.capacity_gib.unwrap_or_default(), &wanted);
        }
        if llc.min_ways > llc.ways {
            return bad("llc.min_ways", &llc.min_ways, "at least 1 and at most llc.ways");
        }
        self.rules
            .check()
            .map_err(|(key, value, wanted)| (format!("rules.{key}").into(), value, wanted.to_owned()))?;
        if let Some(identity) = &self.identity {
            identity.check().map_err(|(key, value, wanted)| (key.into(), value, wanted))?;
        }
        for (kind, latency) in [("dependent", self.dependent), ("streaming", self.streaming)] {
            let Latency { mlc_ns, llc_ns, memory_ns } = latency;
            let (level, value, next, most) = match () {
                () if mlc_ns > llc_ns => ("mlc_ns", mlc_ns, "llc_ns", llc_ns),
                () if llc_ns > memory_ns => ("llc_ns", llc_ns, "memory_ns", memory_ns),
                () => continue,
            };
            let wanted = format!("at most {kind}.{next} ({most})");
            return Err((format!("{kind}.{level}").into(), value.to_string(), wanted));
        }
        Ok(())
    }
}

impl Identity {
    /// Refuses what the registers of CPUID cannot hold.
    fn check(&self) -> Result<(), (&'static str, String, String)> {
        let bad = |key, value: &dyn ToString, wanted: &str| Err((key, value.to_string(), wanted.to_owned()));
        if self.vendor.len() != 12 || !self.vendor.is_ascii() {
            return bad("identity.vendor", &self.vendor, "12 ASCII characters, for example GenuineIntel");
        }
        if self.brand.len() > 47 || !self.brand.is_ascii() {
            return bad("identity.brand", &self.brand, "at most 47 ASCII characters");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_chips_are_legal_and_have_their_published_sizes() {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let size = |name: &str| mib(ChipSpec::built_in(name).unwrap().llc_bytes());
        assert_eq!(size("gold-6140"), 24.75); // 18 x 2048 x 11 x 64 B
        assert_eq!(size("gold-6134"), 24.75); // 24.75 MiB on 8 cores
        assert_eq!(size("e5-2667v3"), 20.0);
        assert_eq!(size("e5-2630v3"), 20.0);
        assert_eq!(size("e3-1230"), 8.0);
        assert_eq!(size("gold-5320"), 39.0); // 26 x 2048 x 12 x 64 B
        assert_eq!(size("gold-6430"), 60.0); // 32 x 2048 x 15 x 64 B
        assert_eq!(size("platinum-8570"), 300.0); // 60 x 4096 x 20 x 64 B
        assert_eq!(size("xeon-6980p"), 504.0); // 126 x 4096 x 16 x 64 B
        assert_eq!(size("xeon-6780e"), 108.0); // 36 x 4096 x 12 x 64 B
        for one_core_complex in ["epyc-7763", "epyc-9554", "epyc-9755"] {
            assert_eq!(size(one_core_complex), 32.0);
        }
        assert_eq!(size("idio"), 4.0); // 3.6 MB in the paper, and no power of two of sets comes closer with 16 ways
        assert_eq!(ChipSpec::built_in("e3-1230").unwrap().llc.dca_ways, None);
    }

    #[test]
    fn every_chip_that_is_sold_says_who_it_is() {
        for name in ChipSpec::built_in_names().filter(|name| *name != "idio") {
            let identity = ChipSpec::built_in(name).unwrap().identity;
            assert!(identity.is_some_and(|identity| identity.brand.len() > 10), "{name}");
        }
        assert_eq!(ChipSpec::built_in("idio").unwrap().identity, None);
    }

    #[test]
    fn a_chip_takes_the_rules_of_another_where_it_has_none_of_its_own() {
        let (base, other) =
            (ChipSpec::built_in("platinum-8570").unwrap(), ChipSpec::built_in("xeon-6980p").unwrap());
        assert!(other.rules == base.rules && !other.rules.are_default());
        let text = ChipSpec::built_in_text("xeon-6980p").unwrap();
        let own = ChipSpec::parse("my.toml", &format!("{text}\n[rules]\nio_age = 3\n")).unwrap();
        assert_eq!(own.rules, Rules { io_age: 3, ..base.rules });
        let bad =
            ChipSpec::parse("my.toml", &text.replace("platinum-8570", "platinum")).unwrap_err().to_string();
        assert!(bad.contains("`rules_as` is platinum; it must be one of gold-6140"), "{bad}");
    }

    #[test]
    fn a_bad_chip_is_named_by_file_key_and_value() {
        let good = ChipSpec::built_in_text("gold-6140").unwrap();
        let error = |from: &str, to: &str| {
            assert!(good.contains(from), "{from}");
            ChipSpec::parse("my.toml", &good.replace(from, to)).unwrap_err().to_string()
        };
        let text = error("cores = 18", "cores = 0");
        assert!(
            text.contains("my.toml") && text.contains("`cores` is 0") && text.contains("1 to 250"),
            "{text}"
        );
        let nameless = error("name = \"gold-6140\"", "name = \" \"");
        assert!(nameless.contains("`name` is \" \"") && nameless.contains("a short name"), "{nameless}");
        assert!(error("GenuineIntel", "Intel").contains("`identity.vendor` is Intel"));
        assert!(error("model = 85", "model = 256").contains("`identity.model` is 256"));
        assert!(error("0x600", "0x605").contains("holes"));
        assert!(error("0x600", "0xf00").contains("wider than the chip"));
        assert!(error("cores = 18", "coers = 18").contains("coers"));
        assert!(ChipSpec::built_in("gold-9999").unwrap_err().to_string().contains("gold-6140"));
    }
}
