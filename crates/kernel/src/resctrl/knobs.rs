//! A group's `schemata`, `cpus`, `mode` and `size`: read, written with one command, read back.
//!
//! hardware.md 7.3 and 7.4. It must not know which value is useful.

use super::error::{ResctrlError, ResctrlErrorKind, shown};
use super::files::{self, HeldFile};
use super::schemata::{DomainSetting, Resource, ResourceSettings, Schemata, decimal};
use super::{Group, Resctrl};
use crate::content;
use std::collections::BTreeMap;
use std::fmt;
use waykeeper_units::{CoreList, WayMask};

/// A group's mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupMode {
    /// Other groups' masks may have its ways too.
    Shareable,
    /// No other group's mask may have its ways.
    Exclusive,
    /// It is being made a pseudo-locked region.
    PseudoLockSetup,
    /// It is a pseudo-locked region: no tasks, no schemata.
    PseudoLocked,
}

impl GroupMode {
    const ALL: [GroupMode; 4] =
        [GroupMode::Shareable, GroupMode::Exclusive, GroupMode::PseudoLockSetup, GroupMode::PseudoLocked];

    /// The kernel's name.
    pub fn name(self) -> &'static str {
        match self {
            GroupMode::Shareable => "shareable",
            GroupMode::Exclusive => "exclusive",
            GroupMode::PseudoLockSetup => "pseudo-locksetup",
            GroupMode::PseudoLocked => "pseudo-locked",
        }
    }

    fn parse(text: &str) -> Result<GroupMode, String> {
        let found = GroupMode::ALL.into_iter().find(|mode| mode.name() == text.trim_end_matches('\n'));
        let names = GroupMode::ALL.map(GroupMode::name).join(", ");
        found.ok_or_else(|| format!("expected one of {names}, not `{}`", shown(text)))
    }
}

impl fmt::Display for GroupMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Ways that one group alone may have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExclusiveWays {
    /// The group.
    pub group: Group,
    /// Its mode, exclusive or pseudo-locked.
    pub mode: GroupMode,
    /// The ways.
    pub mask: WayMask,
}

impl fmt::Display for ExclusiveWays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ExclusiveWays { group, mode, mask } = self;
        write!(f, "the ways {mask} belong to group {group} alone ({mode})")
    }
}

/// A group's `schemata`, held open to be read at every interval.
#[derive(Debug)]
pub struct HeldSchemata {
    file: HeldFile,
}

impl HeldSchemata {
    /// Reads it. `None`: the group is gone.
    ///
    /// # Errors
    /// If it cannot be read or is malformed.
    pub fn read(&self) -> Result<Option<Schemata>, ResctrlError> {
        let text = match self.file.read_all() {
            Err(error) if error.is_gone() => return Ok(None),
            other => other?,
        };
        let parsed = if text.is_empty() || text.ends_with('\n') {
            Schemata::parse(&text)
        } else {
            Err(format!(
                "it ends in the middle of a line, `{}`",
                shown(text.lines().last().unwrap_or_default())
            ))
        };
        parsed.map(Some).map_err(|why| ResctrlError::malformed(self.file.path(), why))
    }
}

/// A group's `cpus_list`, held open to be read at every interval.
#[derive(Debug)]
pub struct HeldCpus {
    file: HeldFile,
}

impl HeldCpus {
    /// Reads it. `None`: the group is gone.
    ///
    /// # Errors
    /// If it cannot be read or is malformed.
    pub fn read(&self) -> Result<Option<CoreList>, ResctrlError> {
        match self.file.read_all() {
            Err(error) if error.is_gone() => Ok(None),
            Err(error) => Err(error),
            // Even an empty list ends with a newline.
            Ok(text) if !text.ends_with('\n') => {
                let why = format!("it ends in the middle of a line, `{}`", shown(&text));
                Err(ResctrlError::malformed(self.file.path(), why))
            }
            Ok(text) => Ok(Some(content::cpu_list(self.file.path(), &text)?)),
        }
    }
}

impl Resctrl {
    /// Opens a group's `cpus_list` to read it at every interval.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn hold_cpus(&self, group: &Group) -> Result<HeldCpus, ResctrlError> {
        Ok(HeldCpus { file: HeldFile::open(&self.system, self.directory(group).join("cpus_list"))? })
    }

    /// A group's shares of all resources.
    ///
    /// # Errors
    /// If the group is gone or the file is malformed.
    pub fn schemata(&self, group: &Group) -> Result<Schemata, ResctrlError> {
        let path = self.directory(group).join("schemata");
        let text = files::read(self.system(), &path, files::MOST_BYTES)?;
        Schemata::parse(&text).map_err(|why| ResctrlError::malformed(&path, why))
    }

    /// Opens a group's schemata to read it at every interval.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn hold_schemata(&self, group: &Group) -> Result<HeldSchemata, ResctrlError> {
        Ok(HeldSchemata { file: HeldFile::open(&self.system, self.directory(group).join("schemata"))? })
    }

    /// Sets these resources and domains, all in one command, and returns the values read back: compare with
    /// [`Schemata::differing`]. The kernel checks every line before it applies any (hardware.md 7.3).
    ///
    /// # Errors
    /// The kernel's refusal with its reason; nothing has changed then. [`ResctrlErrorKind::Busy`]: a group's mode is in the
    /// way, and another program may change it back.
    pub fn set_schemata(&self, group: &Group, lines: &[ResourceSettings]) -> Result<Schemata, ResctrlError> {
        let path = self.directory(group).join("schemata");
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let written = self.write(&path, &text, Resctrl::CLEARS_STATUS, || self.accepted(group, lines));
        written.map_err(|error| match is_about_a_mode(&error) {
            true => ResctrlError { kind: ResctrlErrorKind::Busy, ..error },
            false => error,
        })?;
        self.schemata(group)
    }

    /// The accepted values of these lines, for an error message.
    fn accepted(&self, group: &Group, lines: &[ResourceSettings]) -> String {
        let (Ok(info), Ok(now)) = (self.info(), self.schemata(group)) else {
            return "a line like L3:0=7ff;1=7ff".to_owned();
        };
        let line = |line: &ResourceSettings| {
            let domains = now.line(&line.resource).map(|line| &line.domains[..]).unwrap_or_default();
            let ids: Vec<String> = domains.iter().map(|(id, _)| id.to_string()).collect();
            let place = if ids.is_empty() { String::new() } else { format!(" in domains {}", ids.join(",")) };
            let named = line.domains.iter().map(|(id, _)| *id);
            let held = named.flat_map(|id| self.exclusive_ways(&line.resource, id).unwrap_or_default());
            let held: Vec<String> =
                held.filter(|own| own.group != *group).map(|own| format!("; but {own}")).collect();
            info.accepted(&line.resource) + &place + &held.concat()
        };
        lines.iter().map(line).collect::<Vec<_>>().join("; ")
    }

    /// The ways of a cache that no other group may have, because of a group's mode (resctrl.rst, "mode"), in one domain.
    ///
    /// # Errors
    /// If the groups cannot be listed. A group that cannot be read is left out.
    pub fn exclusive_ways(&self, cache: &Resource, domain: u32) -> Result<Vec<ExclusiveWays>, ResctrlError> {
        let mut all = Vec::new();
        for group in self.control_groups()? {
            let Ok(mode @ (GroupMode::Exclusive | GroupMode::PseudoLocked)) = self.mode(&group) else {
                continue;
            };
            let schemata = self.schemata(&group).ok();
            let mask = schemata.and_then(|all| all.get(cache, domain).and_then(DomainSetting::mask));
            all.extend(mask.map(|mask| ExclusiveWays { group, mode, mask }));
        }
        Ok(all)
    }

    /// Whether a control group has a class of service: the kernel frees it when the group becomes a pseudo-locked region
    /// (linux pseudo_lock.c, rdtgroup_pseudo_lock_create). A group whose mode is not known counts as one that has.
    pub fn has_class(&self, group: &Group) -> bool {
        !matches!(self.mode(group), Ok(GroupMode::PseudoLocked))
    }

    /// Whether a control group has an RMID: the kernel frees it when the group is to become such a region (linux
    /// pseudo_lock.c, rdtgroup_locksetup_enter). A group whose mode is not known counts as one that has.
    pub fn has_rmid(&self, group: &Group) -> bool {
        !matches!(self.mode(group), Ok(GroupMode::PseudoLockSetup | GroupMode::PseudoLocked))
    }

    /// The groups that have an RMID beside the default group's, each control group before its monitoring groups.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub fn rmid_holders(&self) -> Result<Vec<Group>, ResctrlError> {
        let mut holders = Vec::new();
        for group in std::iter::once(Group::DEFAULT).chain(self.control_groups()?) {
            let inside = match self.monitor_groups(&group) {
                // Its owner has just removed it.
                Err(why) if why.is_gone() => continue,
                inside => inside?,
            };
            if !group.is_default() && self.has_rmid(&group) {
                holders.push(group);
            }
            holders.extend(inside);
        }
        Ok(holders)
    }

    /// The CPUs whose unassigned tasks belong to the group.
    ///
    /// # Errors
    /// If the group is gone or the file is malformed.
    pub fn cpus(&self, group: &Group) -> Result<CoreList, ResctrlError> {
        let path = self.directory(group).join("cpus_list");
        let text = files::read(self.system(), &path, files::MOST_BYTES)?;
        Ok(content::cpu_list(&path, &text)?)
    }

    /// The same from the hexadecimal file, which every kernel with resctrl has.
    ///
    /// # Errors
    /// If the group is gone or the file is malformed.
    pub fn cpus_by_mask(&self, group: &Group) -> Result<CoreList, ResctrlError> {
        let path = self.directory(group).join("cpus");
        let text = files::read(self.system(), &path, files::MOST_BYTES)?;
        Ok(content::cpu_mask(&path, &text)?)
    }

    /// Sets the group's CPUs. CPUs that it loses return to its parent; CPUs that it gains leave their previous group.
    ///
    /// # Errors
    /// The kernel's refusal: CPUs that are offline, or taken from the default group.
    pub fn set_cpus(&self, group: &Group, cpus: &CoreList) -> Result<(), ResctrlError> {
        let path = self.directory(group).join("cpus_list");
        let accepted = || match self.cpus(&group.parent()) {
            Ok(parent) if group.is_monitor() => format!("CPUs of its control group, {parent}"),
            _ => "CPUs that are online; the default group must keep all that it has".to_owned(),
        };
        self.write(&path, &format!("{cpus}\n"), Resctrl::KEEPS_STATUS, accepted)
    }

    /// The group's mode.
    ///
    /// # Errors
    /// If the group is gone or the file is malformed.
    pub fn mode(&self, group: &Group) -> Result<GroupMode, ResctrlError> {
        let path = self.directory(group).join("mode");
        let text = files::read(self.system(), &path, files::MOST_BYTES)?;
        GroupMode::parse(&text).map_err(|why| ResctrlError::malformed(&path, why))
    }

    /// Sets the group's mode.
    ///
    /// # Errors
    /// The kernel's refusal, for example of exclusive ways that other groups or devices use.
    pub fn set_mode(&self, group: &Group, mode: GroupMode) -> Result<(), ResctrlError> {
        let path = self.directory(group).join("mode");
        self.write(&path, &format!("{mode}\n"), Resctrl::CLEARS_STATUS, || {
            "shareable, or exclusive with masks that touch no other group's and no shareable bits".to_owned()
        })
    }

    /// The group's shares by resource and domain: bytes of cache, or the bandwidth setting.
    ///
    /// # Errors
    /// If the group is gone or the file is malformed.
    pub fn size(&self, group: &Group) -> Result<BTreeMap<Resource, BTreeMap<u32, u64>>, ResctrlError> {
        let path = self.directory(group).join("size");
        let text = files::read(self.system(), &path, files::MOST_BYTES)?;
        parse_size(&text).map_err(|why| ResctrlError::malformed(&path, why))
    }
}

/// Whether a mask was refused because of a group's mode, and not because of the mask alone. The kernel says "Overlaps with
/// exclusive group", "Overlaps with other group", "CBM overlaps with pseudo-locked region" or "Resource group is
/// pseudo-locked" (linux ctrlmondata.c, parse_cbm and rdtgroup_schemata_write).
fn is_about_a_mode(error: &ResctrlError) -> bool {
    let says = |words: &str| error.status.as_ref().is_some_and(|status| status.contains(words));
    error.kind == ResctrlErrorKind::Refused && (says("verlaps with") || says("is pseudo-locked"))
}

/// Parses a `size` file: like schemata, with decimal values.
fn parse_size(text: &str) -> Result<BTreeMap<Resource, BTreeMap<u32, u64>>, String> {
    let mut sizes = BTreeMap::new();
    for line in text.lines() {
        let bad = || format!("expected a line like L3:0=16777216;1=16777216, not `{}`", shown(line));
        let (name, rest) = line.split_once(':').ok_or_else(bad)?;
        let mut domains = BTreeMap::new();
        for part in rest.split(';') {
            let (id, value) = part.split_once('=').ok_or_else(bad)?;
            let id = decimal(id).and_then(|id| u32::try_from(id).ok()).ok_or_else(bad)?;
            domains.insert(id, decimal(value).ok_or_else(bad)?);
        }
        sizes.insert(Resource::from(name.trim()), domains);
    }
    if sizes.is_empty() {
        return Err("it is empty; expected a line like L3:0=16777216;1=16777216".to_owned());
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_and_modes() {
        // intel-linux-6.12.txt, `r g1/size`: 4 of 11 ways of 16 MiB are 4 x (16777216 / 11) = 4 x 1525201.
        let sizes = parse_size("    MB:0=20;1=50\n    L3:0=6100804;1=16777211\n").unwrap();
        assert_eq!(sizes[&Resource::L3][&0], 4 * (16_777_216 / 11));
        assert!(parse_size("").unwrap_err().contains("it is empty"));
        assert!(parse_size("L3\n").is_err() && parse_size("L3:0=f\n").is_err());
        assert_eq!(GroupMode::parse("pseudo-locked\n"), Ok(GroupMode::PseudoLocked));
        assert!(GroupMode::parse("share\n").unwrap_err().contains("not `share`"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_text_makes_them_panic(text in "[L3MB:=;0-9 \n\u{0}-\u{ff}]{0,40}") {
            let _ = (parse_size(&text), GroupMode::parse(&text));
        }
    }
}
