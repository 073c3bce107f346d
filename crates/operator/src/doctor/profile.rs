//! The saved result of a probe of this machine.
//!
//! A machine without a profile has no check here. Must not know how a profile is made.

use super::facts::Facts;
use super::report::{Check, CheckState, check};
use std::path::Path;
use waykeeper_kernel::pci::PciTree;
use waykeeper_linux_host::profile::{self, KnobState, MachineIdentity, MachineProfile, Writes};

const NAME: &str = "profile";
const ANEW: &str = "make a profile here: waykeeper probe run all --root / --tenants FILE --save";

/// The check, if there is a profile.
pub(super) fn checks(facts: &Facts<'_>) -> Vec<Check> {
    checks_at(facts, &profile::usual_path(facts.root))
}

fn checks_at(facts: &Facts<'_>, path: &Path) -> Vec<Check> {
    let found = |state, value: String| vec![check(NAME, state, value)];
    let refused = |value: String| vec![check(NAME, CheckState::Degraded, value).remedy(ANEW)];
    let profile = match MachineProfile::read(path) {
        Ok(None) => return Vec::new(),
        Ok(Some(profile)) => profile,
        Err(error) => return refused(error.to_string()),
    };
    let Some(here) = identity(facts) else {
        return found(
            CheckState::Unknown,
            format!(
                "{}: this machine cannot be identified, so its profile cannot be checked",
                path.display()
            ),
        );
    };
    match profile.check(path, &here) {
        Err(error) => refused(error.to_string()),
        Ok(()) => found(CheckState::Ok, words(&profile)),
    }
}

/// The identity of this machine, from files.
fn identity(facts: &Facts<'_>) -> Option<MachineIdentity> {
    let ways = facts.topology.as_ref().ok()?.l3.iter().find_map(|l3| l3.ways)?;
    // Only the ports in the profile have to exist, so all PCI devices are passed.
    let devices = PciTree::read(facts.root)
        .map(|tree| tree.devices().map(|device| device.address.to_string()).collect());
    profile::identity(facts.root, ways, devices.unwrap_or_default())
}

fn knob(state: KnobState) -> &'static str {
    match state {
        KnobState::Acts => "acts",
        KnobState::NoEffect => "has no effect",
        KnobState::Absent => "cannot be set",
        KnobState::CannotTell => "was not judged",
    }
}

fn words(profile: &MachineProfile) -> String {
    let mut said = Vec::new();
    said.extend(profile.ways.dca.map(|ways| format!("devices fill {ways}")));
    said.extend(profile.ways.inclusive.map(|ways| match ways.is_empty() {
        true => "no way is inclusive".to_owned(),
        false => format!("inclusive ways are {ways}"),
    }));
    said.extend(
        profile
            .register
            .as_ref()
            .map(|register| format!("the register of the DDIO ways {}", knob(register.state))),
    );
    for port in &profile.port {
        let past = if port.writes == Writes::Past { ", its devices write past this LLC" } else { "" };
        said.push(format!("the switch of {} {}{past}", port.address, knob(port.switch)));
    }
    if said.is_empty() { "the profile holds no answer".to_owned() } else { said.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waykeeper_kernel::root::Root;

    #[test]
    fn a_profile_is_shown_if_there_is_one_and_refused_if_it_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let facts = Facts::read(&root);
        let path = folder.path().join("profile.toml");
        assert!(checks_at(&facts, &path).is_empty());
        std::fs::write(&path, "version = 1\nmade = 2\n").unwrap();
        let found = checks_at(&facts, &path);
        assert_eq!((found.len(), found[0].state), (1, CheckState::Degraded));
        assert!(
            found[0].value.contains("profile.toml:2: unknown key `made`; nearest is `made_"),
            "{}",
            found[0].value
        );
        assert_eq!(found[0].remedy.as_deref(), Some(ANEW));
    }
}
