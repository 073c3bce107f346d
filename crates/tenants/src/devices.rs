//! Finds the PCI functions that declared device names mean now, and their root ports.
//!
//! A few sysfs links per device, which is cheap enough for every look: functions appear and disappear (SR-IOV,
//! hotplug). Must not know tenants.

use super::device::DeviceName;
use super::reader::Reader;
use waykeeper_host::WorkloadKind;
use waykeeper_kernel::content;
use waykeeper_kernel::pci::{PciAddress, functions_on};

const DEVICES: &str = "/sys/bus/pci/devices";

/// Most virtual functions read per device. Their number has 16 bits (SR-IOV capability, NumVFs); network cards have up
/// to 256 of them on one physical function.
const MOST_NUMBERS: u16 = 256;

/// A present device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub address: PciAddress,
    /// The `{name}` of a tenant that is made for this device.
    pub own_name: String,
    /// The topmost function above it; `None` if sysfs does not show it.
    pub port: Option<PciAddress>,
}

/// The functions that a name means now.
pub(super) fn find(reader: &mut Reader, name: &DeviceName) -> Vec<Found> {
    match name {
        DeviceName::Functions { physical, numbers } => {
            let Some(above) = address(reader, physical) else { return Vec::new() };
            let mut found = Vec::new();
            // Virtual functions are numbered without gaps, so the first missing number ends the search.
            for number in 0..MOST_NUMBERS {
                let text = number.to_string();
                if !numbers.is_wild() && numbers.text().parse() != Ok(number) {
                    continue;
                }
                let Ok(Some(target)) = reader.link(&format!("{DEVICES}/{above}/virtfn{number}")) else {
                    break;
                };
                let function =
                    target.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
                if let Some(address) = function.filter(|_| numbers.matches(&text)) {
                    let own_name = format!("{physical}-vf{number}").replace(':', "-");
                    found.extend(there(reader, address, own_name));
                }
            }
            found
        }
        single => {
            let own_name = single.to_string().replace(':', "-");
            address(reader, single).and_then(|address| there(reader, address, own_name)).into_iter().collect()
        }
    }
}

/// The address of a single device: the declared one, or the last on the sysfs path of its interface.
fn address(reader: &mut Reader, name: &DeviceName) -> Option<PciAddress> {
    match name {
        DeviceName::Address(address) => Some(*address),
        DeviceName::Interface(name) => ["net", "nvme", "block"].iter().find_map(|class| {
            let target = reader.link(&format!("/sys/class/{class}/{name}")).ok().flatten()?;
            functions_on(&target).last().copied()
        }),
        DeviceName::Functions { .. } => None,
    }
}

fn there(reader: &mut Reader, address: PciAddress, own_name: String) -> Option<Found> {
    match reader.link(&format!("{DEVICES}/{address}")) {
        Ok(Some(target)) => {
            let above = functions_on(&target);
            Some(Found { address, own_name, port: (above.len() > 1).then(|| above[0]) })
        }
        Ok(None) => None,
        // In a tree of plain files this is a directory, not a link.
        Err(_) => Some(Found { address, own_name, port: None }),
    }
}

/// The kind of workload that uses a device: class 0x01 is storage, 0x02 network (PCI Code and ID Assignment).
pub(super) fn kind(reader: &mut Reader, address: PciAddress) -> Option<WorkloadKind> {
    let path = format!("{DEVICES}/{address}/class");
    let text = reader.text(&path, 64).ok().flatten()?;
    match content::hex(&reader.root().path(&path), &text).ok()? >> 16 {
        0x01 => Some(WorkloadKind::StorageIo),
        0x02 => Some(WorkloadKind::NetworkIo),
        _ => None,
    }
}
