//! The lines of a `schemata` file: a group's share of each resource in each domain.
//!
//! Only converts text to values and back (hardware.md 7.3; virtual-host.md 3.2). It must not know where the text comes
//! from, nor which masks a chip accepts.

use super::error::shown;
use serde::{Deserialize, Serialize};
use std::fmt;
use waykeeper_units::WayMask;

/// A resource that resctrl divides, with the kernel's name for it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Resource {
    /// Last-level cache.
    L3,
    /// Its half for code, with CDP.
    L3Code,
    /// Its half for data, with CDP.
    L3Data,
    /// Second-level cache.
    L2,
    /// Its half for code, with CDP.
    L2Code,
    /// Its half for data, with CDP.
    L2Data,
    /// Memory bandwidth: percent (Intel), 1/8 GB/s (AMD) or MB/s (mount option mba_MBps).
    Mb,
    /// Slow (CXL) memory bandwidth, AMD.
    Smba,
    /// A resource of a later kernel: kept and written unchanged.
    Other(String),
}

impl Resource {
    /// The kernel's name.
    pub fn name(&self) -> &str {
        match self {
            Resource::L3 => "L3",
            Resource::L3Code => "L3CODE",
            Resource::L3Data => "L3DATA",
            Resource::L2 => "L2",
            Resource::L2Code => "L2CODE",
            Resource::L2Data => "L2DATA",
            Resource::Mb => "MB",
            Resource::Smba => "SMBA",
            Resource::Other(name) => name,
        }
    }

    /// True if its settings are way masks.
    pub fn is_cache(&self) -> bool {
        matches!(
            self,
            Resource::L3
                | Resource::L3Code
                | Resource::L3Data
                | Resource::L2
                | Resource::L2Code
                | Resource::L2Data
        )
    }
}

impl From<&str> for Resource {
    fn from(name: &str) -> Resource {
        match name {
            "L3" => Resource::L3,
            "L3CODE" => Resource::L3Code,
            "L3DATA" => Resource::L3Data,
            "L2" => Resource::L2,
            "L2CODE" => Resource::L2Code,
            "L2DATA" => Resource::L2Data,
            "MB" => Resource::Mb,
            "SMBA" => Resource::Smba,
            other => Resource::Other(other.to_owned()),
        }
    }
}

impl From<String> for Resource {
    fn from(name: String) -> Resource {
        Resource::from(name.as_str())
    }
}

impl From<Resource> for String {
    fn from(resource: Resource) -> String {
        resource.name().to_owned()
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The setting of one domain of a resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DomainSetting {
    /// Ways.
    Mask(WayMask),
    /// Bandwidth, in the resource's own unit.
    Amount(u64),
    /// The text of an unknown resource's setting, unchanged.
    Raw(String),
}

impl DomainSetting {
    /// The mask, if it is one.
    pub fn mask(&self) -> Option<WayMask> {
        match self {
            DomainSetting::Mask(mask) => Some(*mask),
            _ => None,
        }
    }

    /// The amount, if it is one.
    pub fn amount(&self) -> Option<u64> {
        match self {
            DomainSetting::Amount(amount) => Some(*amount),
            _ => None,
        }
    }
}

impl fmt::Display for DomainSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DomainSetting::Mask(mask) => write!(f, "{:x}", mask.bits()),
            DomainSetting::Amount(amount) => write!(f, "{amount}"),
            DomainSetting::Raw(text) => f.write_str(text),
        }
    }
}

/// One resource of one group: a setting per domain. Domain ids may have gaps (hardware.md 8.1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResourceSettings {
    /// Which resource.
    pub resource: Resource,
    /// Setting per domain id, in the order of the file; none for a group in pseudo-locksetup mode.
    pub domains: Vec<(u32, DomainSetting)>,
}

impl ResourceSettings {
    /// A line that sets `resource` in these domains.
    pub fn new(resource: Resource, domains: Vec<(u32, DomainSetting)>) -> ResourceSettings {
        ResourceSettings { resource, domains }
    }

    /// The setting of one domain.
    pub fn domain(&self, id: u32) -> Option<&DomainSetting> {
        self.domains.iter().find(|(domain, _)| *domain == id).map(|(_, setting)| setting)
    }
}

impl fmt::Display for ResourceSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.resource)?;
        if self.domains.is_empty() {
            return f.write_str("uninitialized");
        }
        for (index, (domain, setting)) in self.domains.iter().enumerate() {
            write!(f, "{}{domain}={setting}", if index == 0 { "" } else { ";" })?;
        }
        Ok(())
    }
}

/// A line that could not be read, as of a newer kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StrangeLine {
    /// The resource, if the line begins with a name.
    pub resource: Option<Resource>,
    /// The line, the reason and what is expected.
    pub why: String,
}

/// A whole `schemata` file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Schemata {
    /// Its lines, in the order of the file.
    pub lines: Vec<ResourceSettings>,
    /// Lines that could not be read. Their resources are not in `lines`; all others are.
    pub strange: Vec<StrangeLine>,
}

impl Schemata {
    /// The line of one resource.
    pub fn line(&self, resource: &Resource) -> Option<&ResourceSettings> {
        self.lines.iter().find(|line| line.resource == *resource)
    }

    /// The setting of one domain of one resource.
    pub fn get(&self, resource: &Resource, domain: u32) -> Option<&DomainSetting> {
        self.line(resource)?.domain(domain)
    }

    /// The settings of `wanted` that read differently here: domain, wanted, found.
    pub fn differing(&self, wanted: &ResourceSettings) -> Vec<(u32, DomainSetting, Option<DomainSetting>)> {
        let found = self.line(&wanted.resource);
        let pairs =
            wanted.domains.iter().map(|(id, want)| (*id, want, found.and_then(|line| line.domain(*id))));
        pairs
            .filter(|(_, want, found)| *found != Some(*want))
            .map(|(id, want, found)| (id, want.clone(), found.cloned()))
            .collect()
    }

    /// Why a resource has no line: its line could not be read, or no name could be read in one.
    pub fn trouble_with(&self, resource: &Resource) -> Option<&str> {
        let is_about = |line: &&StrangeLine| line.resource.as_ref().is_none_or(|own| own == resource);
        self.strange.iter().find(is_about).filter(|_| self.line(resource).is_none()).map(|line| &*line.why)
    }

    /// Reads a whole file. A line that cannot be read affects only its resource.
    ///
    /// # Errors
    /// If no line can be read: the first line, the reason, and what is expected.
    pub fn parse(text: &str) -> Result<Schemata, String> {
        let mut schemata = Schemata::default();
        for (index, text) in text.lines().enumerate() {
            let place = format!("line {}, `{}`", index + 1, shown(text));
            let resource = resource_of(text).ok();
            let known = |other: &ResourceSettings| Some(&other.resource) == resource.as_ref();
            let is_again = schemata.lines.iter().any(known)
                || resource.is_some() && schemata.strange.iter().any(|other| other.resource == resource);
            let strange = match parse_line(text) {
                Ok(_) if is_again => "this resource is given twice".to_owned(),
                Ok(line) => {
                    schemata.lines.push(line);
                    continue;
                }
                Err(why) => why,
            };
            // Either line may be the right one.
            schemata.lines.retain(|other| !known(other));
            schemata.strange.push(StrangeLine { resource, why: format!("{place}: {strange}") });
        }
        match (schemata.lines.is_empty(), schemata.strange.first()) {
            (false, _) => Ok(schemata),
            (true, Some(strange)) => Err(strange.why.clone()),
            (true, None) => Err("it is empty; expected a line like L3:0=7ff;1=7ff".to_owned()),
        }
    }
}

impl fmt::Display for Schemata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// The resource that a line begins with.
fn resource_of(text: &str) -> Result<Resource, String> {
    let (name, _) = text.split_once(':').ok_or("there is no `:`; expected a line like L3:0=7ff;1=7ff")?;
    let name = name.trim();
    match name.is_empty() || name.contains(|c: char| c.is_whitespace() || c.is_control()) {
        true => Err("expected a resource's name before the `:`, like L3".to_owned()),
        false => Ok(Resource::from(name)),
    }
}

fn parse_line(text: &str) -> Result<ResourceSettings, String> {
    let resource = resource_of(text)?;
    let rest = text.split_once(':').map_or("", |(_, rest)| rest);
    // A group in pseudo-locksetup mode shows this instead of settings (rdtgroup_schemata_show).
    if rest.trim() == "uninitialized" {
        return Ok(ResourceSettings::new(resource, Vec::new()));
    }
    let mut domains: Vec<(u32, DomainSetting)> = Vec::new();
    for part in rest.split(';') {
        let (id, value) =
            part.split_once('=').ok_or_else(|| format!("expected DOMAIN=VALUE, not `{}`", shown(part)))?;
        let id: u32 = decimal(id)
            .and_then(|id| u32::try_from(id).ok())
            .ok_or_else(|| format!("expected a decimal domain id before the `=`, not `{}`", shown(id)))?;
        if domains.iter().any(|(domain, _)| *domain == id) {
            return Err(format!("domain {id} is given twice"));
        }
        domains.push((id, parse_setting(&resource, value.trim())?));
    }
    Ok(ResourceSettings::new(resource, domains))
}

/// Parses one value in its resource's format.
fn parse_setting(resource: &Resource, text: &str) -> Result<DomainSetting, String> {
    match resource {
        Resource::Mb | Resource::Smba => decimal(text)
            .map(DomainSetting::Amount)
            .ok_or_else(|| format!("expected a decimal bandwidth, not `{}`", shown(text))),
        Resource::Other(_) if !text.is_empty() && !text.contains(char::is_control) => {
            Ok(DomainSetting::Raw(text.to_owned()))
        }
        Resource::Other(_) => Err(format!("expected a value, not `{}`", shown(text))),
        _ => hex_mask(text).map(DomainSetting::Mask),
    }
}

/// A number of decimal digits only.
pub(super) fn decimal(text: &str) -> Option<u64> {
    let text = text.trim();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// A mask in hex digits as the kernel prints it: no `0x`, at most 32 bits (resctrl.h: CBM lengths fit a u32).
pub(super) fn hex_mask(text: &str) -> Result<WayMask, String> {
    let text = text.trim();
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let bits = if digits { u32::from_str_radix(text, 16).ok() } else { None };
    bits.map(WayMask::from_bits)
        .ok_or_else(|| format!("expected a mask in hex of at most 32 bits, not `{}`", shown(text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_the_kernels_own_layouts() {
        // intel-linux-6.12.txt and amd-linux-6.12.txt, `r g1/schemata`.
        let intel = Schemata::parse("    MB:0= 50;1=100\n    L3:0=007;1=7ff\n").unwrap();
        assert_eq!(intel.get(&Resource::Mb, 0), Some(&DomainSetting::Amount(50)));
        assert_eq!(intel.get(&Resource::L3, 1).unwrap().mask(), Some(WayMask::full(11)));
        let amd =
            Schemata::parse("  SMBA:0=2048;16=2048\n    MB:0=   5;16=2048\n    L3:0=0000;16=ffff\n").unwrap();
        assert_eq!(amd.get(&Resource::L3, 0).unwrap().mask(), Some(WayMask::EMPTY));
        assert_eq!(amd.get(&Resource::Mb, 16).unwrap().amount(), Some(2048));
        assert_eq!(amd.get(&Resource::L3, 1), None);
        let cdp = Schemata::parse("L3DATA:0=7ff\nL3CODE:0=00f\n").unwrap();
        assert_eq!(cdp.get(&Resource::L3Code, 0).unwrap().mask(), Some(WayMask::full(4)));
    }

    #[test]
    fn keeps_what_it_does_not_know() {
        let text = "FUTURE:0=a:b;7=on\nL3:0=f\n";
        let parsed = Schemata::parse(text).unwrap();
        assert_eq!(parsed.to_string(), text);
        let locked = Schemata::parse("    L2:uninitialized\n").unwrap();
        assert_eq!(locked.lines[0].domains, []);
        assert_eq!(Schemata::parse(&locked.to_string()), Ok(locked), "a journal keeps such a line");
    }

    #[test]
    fn says_which_line_is_wrong() {
        let wrong = [
            ("", "it is empty"),
            ("\n", "line 1, ``: there is no `:`"),
            ("L3:\n", "expected DOMAIN=VALUE"),
            ("L3:0=f;0=f\n", "domain 0 is given twice"),
            ("L3:0=f\nL3:0=f\n", "line 2, `L3:0=f`: this resource is given twice"),
            ("L3:x=f\n", "decimal domain id"),
            ("L3:0=0xf\n", "a mask in hex"),
            ("L3:0=1ffffffff\n", "a mask in hex"),
            ("MB:0=ten\n", "a decimal bandwidth, not `ten`"),
            ("MB:0=99999999999999999999\n", "a decimal bandwidth"),
            ("L3:0=f;\n", "expected DOMAIN=VALUE"),
            (":0=f\n", "resource's name"),
            ("\u{0}\u{1}\u{2}", "there is no `:`"),
        ];
        for (text, why) in wrong {
            let error = Schemata::parse(text).unwrap_err();
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }

    #[test]
    fn of_several_lines_of_a_resource_none_counts() {
        let three = "L3:0=7ff\nL3:0=00f\nL3:0=00f\nMB:0=10\n";
        for text in [three, "L3:0=7ff\nL3:x\nMB:0=10\n", "L3:x\nL3:0=7ff\nMB:0=10\n"] {
            let schemata = Schemata::parse(text).unwrap();
            assert_eq!(schemata.line(&Resource::L3), None, "{text:?}");
            assert!(schemata.trouble_with(&Resource::L3).is_some(), "{text:?}");
            assert_eq!(schemata.lines.len(), 1, "{text:?}");
        }
    }

    #[test]
    fn a_line_that_cannot_be_read_affects_only_its_resource() {
        let text = "L3_ALLOC_MODE:soft\nL3:0=7ff\nMB:0=ten\n";
        let parsed = Schemata::parse(text).unwrap();
        assert_eq!(parsed.get(&Resource::L3, 0).unwrap().mask(), Some(WayMask::full(11)));
        assert_eq!(parsed.lines.len(), 1);
        let whys: Vec<&str> = parsed.strange.iter().map(|line| &*line.why).collect();
        let first = "line 1, `L3_ALLOC_MODE:soft`: expected DOMAIN=VALUE, not `soft`";
        let second = "line 3, `MB:0=ten`: expected a decimal bandwidth, not `ten`";
        assert_eq!(whys, [first, second]);
        assert_eq!(parsed.trouble_with(&Resource::Mb), Some(second));
        assert_eq!((parsed.trouble_with(&Resource::L3), parsed.trouble_with(&Resource::L2)), (None, None));
        // A line without a name may have been any resource's.
        let nameless = Schemata::parse("L3:0=7ff\n???\n").unwrap();
        assert!(nameless.trouble_with(&Resource::Mb).unwrap().starts_with("line 2, `???`: there is no `:`"));
        // Which of two lines is right is not known.
        let twice = Schemata::parse("L3:0=7ff\nMB:0=10\nMB:0=20\n").unwrap();
        assert_eq!((twice.get(&Resource::Mb, 0), twice.lines.len()), (None, 1));
    }

    #[test]
    fn tells_what_reads_differently() {
        let found = Schemata::parse("MB:0= 60;1=50\n").unwrap();
        let wanted = ResourceSettings::new(
            Resource::Mb,
            vec![(0, DomainSetting::Amount(51)), (1, DomainSetting::Amount(50))],
        );
        assert_eq!(
            found.differing(&wanted),
            [(0, DomainSetting::Amount(51), Some(DomainSetting::Amount(60)))]
        );
        let absent = ResourceSettings::new(Resource::L2, vec![(0, DomainSetting::Mask(WayMask::full(3)))]);
        assert_eq!(found.differing(&absent), [(0, DomainSetting::Mask(WayMask::full(3)), None)]);
    }

    fn line() -> impl Strategy<Value = ResourceSettings> {
        let ids = proptest::collection::btree_map(0u32..300, any::<u32>(), 1..6);
        let names = prop_oneof![Just("L3"), Just("MB"), Just("L2CODE"), Just("SMBA"), Just("NEXT")];
        (names, ids).prop_map(|(name, ids)| {
            let resource = Resource::from(name);
            let value = |number: u32| match resource {
                Resource::Mb | Resource::Smba => DomainSetting::Amount(number.into()),
                Resource::Other(_) => DomainSetting::Raw(format!("v{number}")),
                _ => DomainSetting::Mask(WayMask::from_bits(number)),
            };
            let domains = ids.iter().map(|(id, number)| (*id, value(*number))).collect();
            ResourceSettings::new(resource, domains)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn what_is_written_reads_back(line in line()) {
            let text = format!("{:>6}\n", line.to_string());
            prop_assert_eq!(Schemata::parse(&text).unwrap().lines, vec![line]);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[L3MB:=;0-9a-f \n\u{0}-\u{ff}]{0,60}") {
            if let Ok(parsed) = Schemata::parse(&text) {
                let written = parsed.to_string().replace(":\n", ":uninitialized\n");
                prop_assert_eq!(Schemata::parse(&written).unwrap().lines, parsed.lines);
            }
        }
    }
}
