//! `/proc/cpuinfo`: the CPU's identity where there is no cpuid device, and the features that the kernel enabled.
//!
//! The flags are the kernel's view: a feature that CPUID offers and that is missing here was turned off. Must not
//! know how a feature is used.

use crate::content::{self, ContentError};
use crate::cpuid;
use crate::root::{FileError, Root};
use std::collections::BTreeSet;
use std::path::Path;
use waykeeper_generations::{Generation, Signature, Vendor};

/// The first CPU's block; on known machines the others are alike.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cpuinfo {
    /// Vendor, family, model and stepping, where the vendor is known and all are printed.
    pub signature: Option<Signature>,
    /// `model name`.
    pub brand: Option<String>,
    /// `flags`.
    pub flags: BTreeSet<String>,
    /// CPUs listed: those online.
    pub cpus: usize,
}

impl Cpuinfo {
    /// Reads `/proc/cpuinfo`.
    ///
    /// # Errors
    /// The kernel's refusal, or content that makes no sense.
    pub fn read(root: &Root) -> Result<Cpuinfo, FileError> {
        root.parsed("/proc/cpuinfo", Cpuinfo::parse)
    }

    /// Parses the text.
    ///
    /// # Errors
    /// A line without a colon, or a family, model or stepping that is not a number.
    pub fn parse(path: &Path, text: &str) -> Result<Cpuinfo, ContentError> {
        let values = content::key_values(path, text)?;
        let filled = |key: &str| values.get(key).filter(|value| !value.is_empty());
        let line_of = |key: &str| text.lines().position(|line| line.starts_with(key)).map_or(0, |at| at + 1);
        let number = |key: &str, most: u64| -> Result<Option<u64>, ContentError> {
            let Some(value) = filled(key) else { return Ok(None) };
            // The kernel prints `unknown` for a stepping that CPUID does not give.
            if value == "unknown" {
                return Ok(None);
            }
            let number = content::decimal_at(path, line_of(key), value)?;
            let accepted = format!("a number up to {most}");
            let small = (number <= most).then_some(number);
            small.map(Some).ok_or_else(|| ContentError::new(path, line_of(key), value, &accepted))
        };
        let vendor = filled("vendor_id").and_then(|id| Vendor::from_id(id));
        let (family, model) = (number("cpu family", 0x10e)?, number("model", 0xff)?);
        let stepping = number("stepping", 0xf)?;
        let signature = match (vendor, family, model, stepping) {
            (Some(vendor), Some(family), Some(model), Some(stepping)) => {
                let (family, model, stepping) = (family as u16, model as u16, stepping as u8);
                Some(Signature { vendor, family, model, stepping })
            }
            _ => None,
        };
        Ok(Cpuinfo {
            signature,
            brand: filled("model name").cloned(),
            flags: values
                .get("flags")
                .iter()
                .flat_map(|flags| flags.split_whitespace())
                .map(str::to_owned)
                .collect(),
            cpus: text
                .lines()
                .filter(|line| line.split(':').next().is_some_and(|key| key.trim() == "processor"))
                .count(),
        })
    }

    /// Whether `flags` contains a feature.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.contains(flag)
    }
}

/// Both sources of the CPU's identity, read independently.
#[derive(Debug)]
pub struct CpuIdentity {
    /// The CPU's own view.
    pub cpuid: Result<cpuid::Facts, FileError>,
    /// The kernel's view.
    pub cpuinfo: Result<Cpuinfo, FileError>,
}

impl CpuIdentity {
    /// Reads both, CPUID of one CPU.
    pub fn read(root: &Root, cpu: u16) -> CpuIdentity {
        CpuIdentity { cpuid: cpuid::Facts::read(root, cpu), cpuinfo: Cpuinfo::read(root) }
    }

    /// The signature, from CPUID if possible, else the kernel's copy.
    pub fn signature(&self) -> Option<Signature> {
        let own = self.cpuid.as_ref().ok().and_then(|cpuid| cpuid.signature);
        own.or_else(|| self.cpuinfo.as_ref().ok()?.signature)
    }

    /// The generation, if a table describes it.
    pub fn generation(&self) -> Option<&'static Generation> {
        Generation::find(&self.signature()?)
    }

    /// Whether this is a virtual machine, from CPUID if possible, else the kernel's flags; `None` if neither can be read.
    pub fn is_virtual(&self) -> Option<bool> {
        let flags = self.cpuinfo.as_ref().ok().filter(|cpuinfo| !cpuinfo.flags.is_empty());
        let shown = flags.map(|cpuinfo| cpuinfo.has("hypervisor"));
        self.cpuid.as_ref().ok().map(|cpuid| cpuid.hypervisor).or(shown)
    }

    /// The brand in the kernel's copy, if it has one, else in CPUID.
    pub fn brand(&self) -> Option<&str> {
        let kernels = self.cpuinfo.as_ref().ok().and_then(|cpu| cpu.brand.as_deref());
        kernels.or_else(|| self.cpuid.as_ref().ok()?.brand.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: Intel(R) Xeon(R) \
        Gold 6140 CPU @ 2.30GHz\nstepping\t: 4\nflags\t\t: fpu cat_l3 rdt_a\npower management:\n\nprocessor\t: 1\nmodel\t\t: 85\n";

    fn parse(text: &str) -> Result<Cpuinfo, ContentError> {
        Cpuinfo::parse(Path::new("/proc/cpuinfo"), text)
    }

    #[test]
    fn the_first_cpus_block_is_read() {
        let info = parse(TEXT).unwrap();
        let signature = Signature { vendor: Vendor::Intel, family: 6, model: 85, stepping: 4 };
        assert_eq!((info.signature, info.cpus), (Some(signature), 2));
        assert!(info.has("cat_l3") && !info.has("cat_l2"));
        assert_eq!(info.brand.as_deref(), Some("Intel(R) Xeon(R) Gold 6140 CPU @ 2.30GHz"));
    }

    #[test]
    fn what_is_missing_is_unknown_and_nonsense_is_an_error() {
        assert_eq!(parse("").unwrap(), Cpuinfo::default());
        let arm = parse("processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\n").unwrap();
        assert_eq!((arm.signature, arm.cpus), (None, 1));
        let error = parse(&TEXT.replace(": 85\nmodel name", ": 8x\nmodel name")).unwrap_err();
        assert_eq!(error.to_string(), "/proc/cpuinfo, line 4: found \"8x\"; expected a decimal number");
        let error = parse(&TEXT.replace("family\t: 6", "family\t: 70000")).unwrap_err();
        assert_eq!((error.line, error.accepted.as_str()), (3, "a number up to 270"));
        assert_eq!(parse(&TEXT.replace("stepping\t: 4", "stepping\t: unknown")).unwrap().signature, None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn no_text_makes_it_panic(text in "\\PC*|((processor|model|cpu family|stepping|flags)\t: [0-9a-z]{0,22}\n){0,8}") {
            let _ = parse(&text);
        }
    }
}
