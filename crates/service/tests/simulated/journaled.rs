//! What a durable journal allows: every knob that the daemon writes, and every group that it makes, must be in it.
//!
//! Reads the journal's lines itself, from what is durable on the disk. Must not know who writes.

use std::collections::BTreeSet;
use std::path::Path;
use waykeeper_kernel::journal::Original;
use waykeeper_kernel::resctrl::GROUP_PREFIX;
use waykeeper_kernel::resctrl::Group;

/// The originals in a journal.
#[derive(Debug, Default)]
pub struct Journaled {
    text: Vec<u8>,
    originals: Vec<Original>,
}

/// The directory of a group below the mount.
fn place(group: &Group) -> String {
    group.directory(Path::new("")).display().to_string()
}

/// Whether a directory below the mount is one of Waykeeper's groups, or in one.
pub fn is_ours(place: &str) -> bool {
    place.split('/').any(|name| name.starts_with(GROUP_PREFIX))
}

impl Journaled {
    /// Takes the durable content of the journal.
    pub fn update(&mut self, text: &[u8]) {
        if self.text == text {
            return;
        }
        self.text = text.to_vec();
        self.originals.clear();
        for line in text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            // Checksum, number, JSON.
            let json = line.splitn(3, |byte| *byte == b' ').nth(2).unwrap_or_default();
            let Ok(serde_json::Value::Object(entry)) = serde_json::from_slice(json) else { continue };
            for (kind, value) in entry {
                let Ok(original) = serde_json::from_value::<Original>(value) else { continue };
                if kind == "forget" {
                    self.originals.retain(|own| !own.is_same_knob(&original));
                } else {
                    // A kept knob stays in the journal.
                    self.originals.push(original);
                }
            }
        }
    }

    /// Whether it has the group as one that Waykeeper made or is about to make.
    pub fn has_group(&self, directory: &str) -> bool {
        self.originals.iter().any(|own| match own {
            Original::NoGroup { group } | Original::Planned { group } => place(group) == directory,
            _ => false,
        })
    }

    /// The CPUs of which it has registers: at a stop they were off.
    pub fn away(&self) -> BTreeSet<u16> {
        let cpu = |own: &Original| match own {
            Original::Msr { cpu, package: None, .. } => Some(*cpu),
            _ => None,
        };
        self.originals.iter().filter_map(cpu).collect()
    }

    /// Whether it has the masks of a group.
    pub fn has_schemata(&self, directory: &str) -> bool {
        let is =
            |own: &Original| matches!(own, Original::Schemata { group, .. } if place(group) == directory);
        self.originals.iter().any(is)
    }

    /// The CPUs of a group in it.
    pub fn cpus(&self, directory: &str) -> BTreeSet<u16> {
        let of = |own: &Original| match own {
            Original::Cpus { group, cpus } if place(group) == directory => cpus.cores().to_vec(),
            _ => Vec::new(),
        };
        self.originals.iter().flat_map(of).map(|core| core.0).collect()
    }

    /// Whether it has a task as one of a group.
    pub fn has_task(&self, directory: &str, pid: u32) -> bool {
        self.originals.iter().any(|own| match own {
            Original::Task { group, pid: own, .. } => *own == pid && place(group) == directory,
            _ => false,
        })
    }

    /// The bits of a register of a CPU, or of its package, that may be written.
    pub fn msr_bits(&self, cpu: u16, package: u16, register: u32) -> u64 {
        let bits = |own: &Original| match own {
            Original::Msr { cpu: at, package: of, register: own, mask, .. }
                if *own == register && (*at == cpu || *of == Some(package)) =>
            {
                *mask
            }
            _ => 0,
        };
        self.originals.iter().fold(0, |all, own| all | bits(own))
    }

    /// The bits of a byte of a device's config space that may be written.
    pub fn pci_bits(&self, device: &str, at: u64) -> u8 {
        let bits = |own: &Original| match own {
            Original::Pci { address, offset, width, mask, .. } if address == device => {
                let byte = at.checked_sub(u64::from(*offset)).filter(|byte| *byte < u64::from(*width));
                byte.map_or(0, |byte| (mask >> (8 * byte)) as u8)
            }
            _ => 0,
        };
        self.originals.iter().fold(0, |all, own| all | bits(own))
    }
}
