//! The machine profile: what `waykeeper probe` measured on a machine, read by the daemon and doctor.
//!
//! A TOML file that contains the machine's identity; a profile of other hardware is refused with the difference. Data
//! and files only; must not know how anything was measured.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use waykeeper_host::{Inventory, Support};
use waykeeper_kernel::cpuinfo::Cpuinfo;
use waykeeper_kernel::root::Root;
use waykeeper_kernel::text_file::{self, TextFileError};
use waykeeper_output_file::Existing;
use waykeeper_units::{Likeness, WayMask, most_alike, shown};

/// Version of the file format.
pub const VERSION: u32 = 1;

const DIRECTORY: &str = "/var/lib/waykeeper";

/// Whether writing a knob has an effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KnobState {
    /// It had an effect.
    Acts,
    /// It takes values and reads them back, but has no effect.
    #[serde(rename = "dead")]
    NoEffect,
    /// It cannot be set on this machine.
    Absent,
    /// The probe could not determine it.
    CannotTell,
}

/// Destination of the writes of the devices behind a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Writes {
    /// Into the LLC that was probed.
    ThisLlc,
    /// Not into it: the devices are on another socket.
    Past,
    /// The probe could not determine it.
    CannotTell,
}

/// Identity of the machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(rename = "Identity")]
pub struct MachineIdentity {
    /// The CPU's own name.
    pub cpu: String,
    /// Its microcode, if the kernel reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub microcode: Option<String>,
    /// Number of ways of its LLC.
    pub llc_ways: u32,
    /// PCI addresses of the root ports with devices.
    pub ports: Vec<String>,
}

/// Ways that the probe found.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ways {
    /// Ways in which device writes allocate; absent if not determined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dca: Option<WayMask>,
    /// Ways to which lines move when a core reads them; empty if there are none, absent if not determined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inclusive: Option<WayMask>,
}

/// The register of the DCA ways.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(rename = "Register")]
pub struct DcaWaysRegister {
    /// Whether writing it has an effect.
    pub state: KnobState,
    /// Ways that every accepted value contains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<WayMask>,
    /// Fewest ways of an accepted value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fewest: Option<u32>,
    /// Most ways of an accepted value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
    /// The numerically smallest accepted value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least: Option<WayMask>,
}

/// A root port.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(rename = "Port")]
pub struct ProfiledPort {
    /// Its PCI address.
    pub address: String,
    /// Whether its DCA switch has an effect.
    pub switch: KnobState,
    /// Destination of its devices' writes.
    pub writes: Writes,
}

/// A machine profile.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(rename = "Profile")]
pub struct MachineProfile {
    /// Format version, [`VERSION`].
    pub version: u32,
    /// When it was made, seconds since 1970 (UTC).
    pub made_unix_s: u64,
    /// The version of Waykeeper that made it.
    pub made_by: String,
    /// The results and the numbers behind them, one sentence each.
    #[serde(default)]
    pub evidence: Vec<String>,
    /// The machine.
    pub host: MachineIdentity,
    /// Ways.
    #[serde(default)]
    pub ways: Ways,
    /// The register of the DCA ways; absent if it was not probed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub register: Option<DcaWaysRegister>,
    /// Root ports that were probed.
    #[serde(default)]
    pub port: Vec<ProfiledPort>,
}

/// The profile belongs to another machine.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}: the profile is from another machine: {why}; make one here with `waykeeper probe run all`", file.display())]
pub struct OtherMachine {
    /// The file.
    pub file: PathBuf,
    /// What differs.
    pub why: String,
}

/// The default path of the profile of the host under `root`: `/var/lib/waykeeper/profile.toml` for `/`; for another
/// root the name contains its path, as with journals.
pub fn usual_path(root: &Root) -> PathBuf {
    let tree = root.prefix().display().to_string();
    let name: String =
        tree.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
    match name.trim_matches('-') {
        "" => Path::new(DIRECTORY).join("profile.toml"),
        name => Path::new(DIRECTORY).join(format!("profile-{name}.toml")),
    }
}

impl MachineIdentity {
    /// The identity in an inventory.
    pub fn of(inventory: &Inventory, microcode: Option<String>) -> MachineIdentity {
        let ports = inventory.ports.iter().map(|port| port.address.clone());
        MachineIdentity {
            cpu: inventory.platform.chip.clone(),
            microcode,
            llc_ways: inventory.known_llc().ways,
            ports: ports.collect(),
        }
    }

    /// The first difference to `here`, if any. Ports may have been added. Changed microcode is a difference, because
    /// the results may not hold under it.
    fn differs(&self, here: &MachineIdentity) -> Option<String> {
        if self.cpu != here.cpu {
            return Some(format!("its CPU is {}, this CPU is {}", self.cpu, here.cpu));
        }
        if self.llc_ways != here.llc_ways {
            return Some(format!("its LLC has {} ways, this LLC has {}", self.llc_ways, here.llc_ways));
        }
        if let (Some(then), Some(now)) = (&self.microcode, &here.microcode)
            && then != now
        {
            return Some(format!("its microcode is {then}, here the microcode is {now}"));
        }
        let gone: Vec<&str> =
            self.ports.iter().filter(|port| !here.ports.contains(port)).map(String::as_str).collect();
        (!gone.is_empty()).then(|| format!("its root port {} does not exist here", gone.join(", ")))
    }
}

/// The microcode of the first CPU, as the kernel reports it.
pub fn microcode(root: &Root) -> Option<String> {
    let text = root.read_optional("/proc/cpuinfo").ok().flatten()?;
    let line = text.lines().find(|line| line.starts_with("microcode"))?;
    let value = line.split_once(':')?.1.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

impl MachineProfile {
    /// Reads a profile; `None` if there is none.
    ///
    /// # Errors
    /// A file that cannot be read, or the first thing wrong in it.
    pub fn read(file: &Path) -> Result<Option<MachineProfile>, TextFileError> {
        match text_file::read(file, "a profile") {
            Err(TextFileError::Io { why, .. }) if why.kind() == std::io::ErrorKind::NotFound => Ok(None),
            text => MachineProfile::parse(file, &text?).map(Some),
        }
    }

    /// A profile from its text; `file` is for messages.
    ///
    /// # Errors
    /// The first thing wrong in it, with its line.
    pub fn parse(file: &Path, text: &str) -> Result<MachineProfile, TextFileError> {
        let wrong = |at: usize, why: String| TextFileError::wrong(file, text, at, why);
        let profile: MachineProfile = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |at| at.start);
            wrong(at, number_at(text, at, error.message()).unwrap_or_else(|| explain(error.message())))
        })?;
        let at = |key: &str| text.find(key).unwrap_or(0);
        if profile.version != VERSION {
            let why = format!("version {}; this Waykeeper reads version {VERSION}", profile.version);
            return Err(wrong(at("version"), why));
        }
        let all = match profile.host.llc_ways {
            ways @ 1..=32 => WayMask::full(ways),
            ways => return Err(wrong(at("llc_ways"), format!("llc_ways is {ways}; expected 1 to 32"))),
        };
        let masks = [
            ("dca =", profile.ways.dca),
            ("inclusive =", profile.ways.inclusive),
            ("kept =", profile.register.as_ref().and_then(|register| register.kept)),
            ("least =", profile.register.as_ref().and_then(|register| register.least)),
        ];
        for (key, mask) in masks {
            if let Some(mask) = mask.filter(|mask| !mask.minus(all).is_empty()) {
                let why = format!("{mask} has ways beyond the {} of the LLC", profile.host.llc_ways);
                return Err(wrong(at(key), why));
            }
        }
        let (register, ways) = (profile.register.as_ref(), profile.host.llc_ways);
        let fewest = register.and_then(|register| register.fewest);
        let counts = [("fewest", fewest, 1), ("most", register.and_then(|it| it.most), fewest.unwrap_or(1))];
        for (key, count, least) in counts {
            if let Some(count) = count.filter(|count| !(least..=ways).contains(count)) {
                return Err(wrong(
                    at(&format!("{key} =")),
                    format!("{key} is {count}; expected {least} to {ways}"),
                ));
            }
        }
        Ok(profile)
    }

    /// Refuses a profile of another machine; `file` is for the message.
    ///
    /// # Errors
    /// The first difference.
    pub fn check(&self, file: &Path, here: &MachineIdentity) -> Result<(), OtherMachine> {
        match self.host.differs(here) {
            None => Ok(()),
            Some(why) => Err(OtherMachine { file: file.to_owned(), why }),
        }
    }

    /// Writes the file, complete or not at all; an existing one is replaced.
    ///
    /// # Errors
    /// The system's error.
    pub fn write(&self, file: &Path) -> Result<(), TextFileError> {
        let io = |why| TextFileError::io(file, why);
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder).map_err(io)?;
        }
        waykeeper_output_file::write(file, self.to_string().as_bytes(), Existing::Replace).map_err(io)
    }

    /// Puts the results into an inventory: a knob without effect becomes read-only, and the inclusive ways are the
    /// ones found.
    pub fn apply_to(&self, inventory: &mut Inventory) {
        if let (Some(ways), Some(llc)) = (self.ways.inclusive, &mut inventory.llc) {
            llc.inclusive_ways = Some(ways).filter(|ways| !ways.is_empty());
        }
        if self.register.as_ref().is_some_and(|register| register.state == KnobState::NoEffect)
            && inventory.dca_ways_switch == Support::Yes
        {
            inventory.dca_ways_switch = Support::ReadOnly;
        }
        for port in &mut inventory.ports {
            let found = self.port.iter().find(|found| found.address == port.address);
            if found.is_some_and(|found| found.switch == KnobState::NoEffect)
                && port.dca_switch == Support::Yes
            {
                port.dca_switch = Support::ReadOnly;
            }
        }
    }
}

impl fmt::Display for MachineProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "# What `waykeeper probe` found out about this machine; the daemon and doctor use it.\n",
        )?;
        f.write_str(&toml::to_string(self).map_err(|_| fmt::Error)?)
    }
}

/// The numbers of a profile, and what each may be.
const NUMBERS: [(&str, &str); 5] = [
    ("version", "1"),
    ("made_unix_s", "whole seconds since 1970"),
    ("llc_ways", "1 to 32"),
    ("fewest", "1 to the ways of the LLC"),
    ("most", "1 to the ways of the LLC"),
];

/// The message about a number that its type cannot hold, if the error at this byte is one.
fn number_at(text: &str, at: usize, message: &str) -> Option<String> {
    let begin = text.get(..at)?.rfind('\n').map_or(0, |newline| newline + 1);
    let (key, value) = text[begin..].lines().next()?.split_once('=')?;
    let (key, expected) = NUMBERS.iter().find(|(number, _)| *number == key.trim())?;
    let value = value.split('#').next().unwrap_or_default().trim();
    // Another error may be in the line of a good number: a key that is given twice, or one that the file lacks.
    let is_about_it = message.starts_with("invalid value") || message.starts_with("invalid type");
    if !is_about_it && value.parse::<i64>().is_ok() {
        return None;
    }
    Some(format!("{key} is {}; expected {expected}", shown(value)))
}

/// The TOML parser's message; for an unknown key, the nearest known key and all known keys.
fn explain(message: &str) -> String {
    let unknown = message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'));
    let Some((key, rest)) = unknown else { return message.trim_end().replace('\n', "; ") };
    let known: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
    match most_alike(key, known.iter().copied(), Likeness::Jaro) {
        Some((near, _)) => {
            format!("unknown key `{key}`; nearest is `{near}`, known are {}", known.join(", "))
        }
        None => format!("unknown key `{key}`"),
    }
}

/// The identity of the host under a root without an inventory: CPU and microcode from `/proc/cpuinfo`, and the given
/// root ports.
pub fn identity(root: &Root, llc_ways: u32, ports: Vec<String>) -> Option<MachineIdentity> {
    let cpu = Cpuinfo::read(root).ok()?.brand?;
    Some(MachineIdentity { cpu, microcode: microcode(root), llc_ways, ports })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> MachineProfile {
        let mask = |bits| Some(WayMask::from_bits(bits));
        MachineProfile {
            version: VERSION,
            made_unix_s: 1_760_000_000,
            made_by: "0.1.0".to_owned(),
            evidence: vec!["DCA ways: 0x600 (high)".to_owned()],
            host: MachineIdentity {
                cpu: "Xeon".to_owned(),
                microcode: Some("0x1".to_owned()),
                llc_ways: 11,
                ports: vec!["0000:16:00.0".to_owned()],
            },
            ways: Ways { dca: mask(0x600), inclusive: mask(0x003) },
            register: Some(DcaWaysRegister {
                state: KnobState::NoEffect,
                kept: mask(0x600),
                fewest: Some(2),
                most: Some(11),
                least: None,
            }),
            port: vec![ProfiledPort {
                address: "0000:16:00.0".to_owned(),
                switch: KnobState::Acts,
                writes: Writes::ThisLlc,
            }],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deep/profile.toml");
        assert!(MachineProfile::read(&file).unwrap().is_none());
        profile().write(&file).unwrap();
        assert_eq!(MachineProfile::read(&file).unwrap(), Some(profile()));
        let names: Vec<_> =
            std::fs::read_dir(file.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["profile.toml"], "nothing is left beside it");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let good = profile().to_string();
        let error = |from: &str, to: &str| {
            assert!(good.contains(from), "{from} is not in\n{good}");
            MachineProfile::parse(Path::new("p.toml"), &good.replace(from, to)).unwrap_err().to_string()
        };
        let line = |key: &str| good.lines().position(|line| line.starts_with(key)).unwrap() + 1;
        let twice = error("version = 1", "version = 1\nversion = 1");
        assert!(twice.contains("duplicate key"), "{twice}");
        let lacking = error("made_unix_s = 1760000000\n", "");
        assert!(lacking.contains("missing field `made_unix_s`"), "{lacking}");
        let text = error("llc_ways = 11", "llc_weys = 11");
        assert!(
            text.starts_with(&format!("p.toml:{}: ", line("llc_ways")))
                && text.contains("nearest is `llc_ways`"),
            "{text}"
        );
        assert!(
            error("version = 1", "version = 2")
                .contains("p.toml:2: version 2; this Waykeeper reads version 1")
        );
        let text = error("inclusive = \"0x003\"", "inclusive = \"0x803\"");
        assert!(
            text.contains(&format!("p.toml:{}: 0x803 has ways beyond the 11", line("inclusive"))),
            "{text}"
        );
        assert!(error("state = \"dead\"", "state = \"dad\"").contains("acts"));
        assert!(error("llc_ways = 11", "llc_ways = 0").contains("expected 1 to 32"));
        let text = error("fewest = 2", "fewest = 12");
        assert!(
            text.contains(&format!("p.toml:{}: fewest is 12; expected 1 to 11", line("fewest"))),
            "{text}"
        );
        assert!(error("fewest = 2", "fewest = 0").contains("fewest is 0; expected 1 to 11"));
        assert!(error("most = 11", "most = 1").contains("most is 1; expected 2 to 11"));
        // What the type of the number cannot hold.
        for (from, to, said) in [
            ("llc_ways = 11", "llc_ways = -1", "llc_ways is -1; expected 1 to 32"),
            (
                "fewest = 2",
                "fewest = 99999999999",
                "fewest is 99999999999; expected 1 to the ways of the LLC",
            ),
            ("most = 11", "most = nan # all", "most is nan; expected 1 to the ways of the LLC"),
            ("version = 1", "version = \"1\"", "version is \"1\"; expected 1"),
        ] {
            let key = from.split(' ').next().unwrap();
            let text = error(from, to);
            assert_eq!(text, format!("p.toml:{}: {said}", line(key)));
        }
    }

    #[test]
    fn a_profile_of_another_machine_is_refused_in_words() {
        let file = Path::new("p.toml");
        let own = profile();
        let refused = |change: &dyn Fn(&mut MachineIdentity)| {
            let mut here = own.host.clone();
            change(&mut here);
            own.check(file, &here).map_err(|error| error.to_string())
        };
        assert!(refused(&|_| ()).is_ok());
        assert!(refused(&|here| here.ports.push("0000:3a:00.0".to_owned())).is_ok(), "a card was added");
        assert!(refused(&|here| here.microcode = None).is_ok(), "nothing tells it");
        let text = refused(&|here| here.cpu = "EPYC".to_owned()).unwrap_err();
        assert!(
            text.starts_with(
                "p.toml: the profile is from another machine: its CPU is Xeon, this CPU is EPYC; "
            ),
            "{text}"
        );
        assert!(refused(&|here| here.microcode = Some("0x2".to_owned())).is_err());
        assert!(refused(&|here| here.llc_ways = 12).is_err());
        assert!(
            refused(&|here| here.ports.clear())
                .unwrap_err()
                .contains("root port 0000:16:00.0 does not exist here")
        );
    }

    #[test]
    fn every_tree_has_a_profile_of_its_own() {
        let path = |root: &str| usual_path(&Root::at(root)).display().to_string();
        assert_eq!(path("/"), "/var/lib/waykeeper/profile.toml");
        assert_eq!(path("/mnt/vhost"), "/var/lib/waykeeper/profile-mnt-vhost.toml");
    }
}
