//! `io_alloc` and `io_alloc_cbm`: the L3 ways that devices may fill, where a CPU lets software choose them (AMD SDCIAE).
//!
//! hardware.md 8.1; kernel 6.19 and later. It must not know which devices write into the L3.

use super::Resctrl;
use super::error::{ResctrlError, ResctrlErrorKind, shown};
use super::files;
use super::schemata::{DomainSetting, Resource, ResourceSettings, decimal, hex_mask};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The state in `io_alloc`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IoAllocState {
    /// Devices have a class of their own, with the masks of `io_alloc_cbm`.
    Enabled,
    /// Supported, but not enabled.
    Disabled,
    /// The CPU does not support it.
    NotSupported,
}

impl IoAllocState {
    pub(super) fn parse(text: &str) -> Result<IoAllocState, String> {
        match text.trim_end() {
            "enabled" => Ok(IoAllocState::Enabled),
            "disabled" => Ok(IoAllocState::Disabled),
            "not supported" => Ok(IoAllocState::NotSupported),
            _ => Err(format!("expected enabled, disabled or not supported, not `{}`", shown(text))),
        }
    }
}

impl Resctrl {
    /// Whether devices have a class of their own. `None`: this kernel has no such file.
    ///
    /// # Errors
    /// If the file cannot be read or is malformed.
    pub fn io_alloc(&self, resource: &Resource) -> Result<Option<IoAllocState>, ResctrlError> {
        let path = self.io_path(resource, "io_alloc");
        let Some(text) = files::read_if_there(self.system(), &path)? else { return Ok(None) };
        IoAllocState::parse(&text).map(Some).map_err(|why| ResctrlError::malformed(&path, why))
    }

    /// Gives devices a class of their own, or takes it away. The kernel uses the highest CLOSID: a group that has it
    /// must be removed first ([`ResctrlErrorKind::Exhausted`]).
    ///
    /// # Errors
    /// The kernel's refusal, and [`ResctrlErrorKind::Refused`] if the state reads back unchanged.
    pub fn set_io_alloc(&self, resource: &Resource, on: bool) -> Result<(), ResctrlError> {
        let path = self.io_path(resource, "io_alloc");
        let text = if on { "1\n" } else { "0\n" };
        self.write(&path, text, Resctrl::CLEARS_STATUS, || "0 or 1".to_owned()).map_err(unsupported)?;
        let wanted = if on { IoAllocState::Enabled } else { IoAllocState::Disabled };
        match self.io_alloc(resource)? {
            Some(state) if state == wanted => Ok(()),
            state => {
                let why = format!("the kernel took the value, but it reads back as {state:?}");
                let action = super::error::Action::Write(text.to_owned());
                Err(ResctrlError::ours(ResctrlErrorKind::Refused, &path, action, why))
            }
        }
    }

    /// The devices' masks by domain. `None`: this kernel has no such file.
    ///
    /// # Errors
    /// If the file cannot be read (as while devices have no class of their own) or is malformed.
    pub fn io_alloc_cbm(&self, resource: &Resource) -> Result<Option<ResourceSettings>, ResctrlError> {
        let path = self.io_path(resource, "io_alloc_cbm");
        let Some(text) = files::read_if_there(self.system(), &path).map_err(unsupported)? else {
            return Ok(None);
        };
        let domains = parse_masks(&text).map_err(|why| ResctrlError::malformed(&path, why))?;
        Ok(Some(ResourceSettings::new(resource.clone(), domains)))
    }

    /// Sets the devices' masks in these domains, and returns the masks read back.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn set_io_alloc_cbm(
        &self,
        line: &ResourceSettings,
    ) -> Result<Option<ResourceSettings>, ResctrlError> {
        let path = self.io_path(&line.resource, "io_alloc_cbm");
        let text = line.to_string();
        // A schemata line without the resource's name.
        let text = format!("{}\n", text.split_once(':').map_or("", |(_, masks)| masks));
        let accepted = || match self.info() {
            Ok(info) => info.accepted(&line.resource),
            Err(_) => "masks in hex by domain, like 0=c00;1=c00".to_owned(),
        };
        self.write(&path, &text, Resctrl::CLEARS_STATUS, accepted).map_err(unsupported)?;
        self.io_alloc_cbm(&line.resource)
    }

    fn io_path(&self, resource: &Resource, file: &str) -> PathBuf {
        self.info_path(resource.name()).join(file)
    }
}

/// Here ENODEV means that the CPU does not support it, not that a file or group is gone (hardware.md 8.1).
fn unsupported(mut error: ResctrlError) -> ResctrlError {
    if error.errno == Some(libc::ENODEV) {
        error.kind = ResctrlErrorKind::Refused;
        "this CPU cannot give devices L3 ways of their own (io_alloc says `not supported`)"
            .clone_into(&mut error.detail);
    }
    error
}

/// Parses `0=ffff;1=00ff`.
fn parse_masks(text: &str) -> Result<Vec<(u32, DomainSetting)>, String> {
    let bad = || format!("expected masks by domain like 0=ffff;1=00ff, not `{}`", shown(text));
    let mut domains: Vec<(u32, DomainSetting)> = Vec::new();
    for part in text.strip_suffix('\n').unwrap_or(text).split(';') {
        let (id, mask) = part.split_once('=').ok_or_else(bad)?;
        let id = decimal(id).and_then(|id| u32::try_from(id).ok()).ok_or_else(bad)?;
        if domains.iter().any(|(domain, _)| *domain == id) {
            return Err(bad());
        }
        domains.push((id, DomainSetting::Mask(hex_mask(mask)?)));
    }
    Ok(domains)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use waykeeper_units::WayMask;

    #[test]
    fn states_and_masks() {
        assert_eq!(IoAllocState::parse("not supported\n"), Ok(IoAllocState::NotSupported));
        assert!(IoAllocState::parse("on\n").unwrap_err().contains("expected enabled"));
        let masks = parse_masks("0=ffff;16=00ff\n").unwrap();
        assert_eq!(masks[1], (16, DomainSetting::Mask(WayMask::full(8))));
        for text in ["", "\n", "0=\n", "0=f;0=f\n", "L3:0=f\n", "0=f;\n"] {
            assert!(parse_masks(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_text_makes_it_panic(text in "[0-9a-f=; \n\u{0}-\u{ff}]{0,40}") {
            let _ = (parse_masks(&text), IoAllocState::parse(&text));
        }
    }
}
