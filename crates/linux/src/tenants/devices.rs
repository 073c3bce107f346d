//! Which PCI functions the names of devices mean at the moment, and which root port they are behind.
//!
//! A few links of sysfs a device: cheap enough to be read at every look, since functions come and go (SR-IOV, hotplug).
//! Must not know tenants.

use super::device::DeviceName;
use super::reader::Reader;
use crate::content;
use crate::pci::PciAddress;
use std::path::Path;
use waykeeper_host::WorkloadKind;

const DEVICES: &str = "/sys/bus/pci/devices";

/// Virtual functions of one device that are looked at. Their number has 16 bits (SR-IOV capability, NumVFs); network cards
/// have up to 256 of them on one physical function.
const MOST_NUMBERS: u16 = 256;

/// A device that is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub address: PciAddress,
    /// What a tenant of its own is called after it.
    pub own_name: String,
    /// The topmost function above it; `None` where sysfs does not tell.
    pub port: Option<PciAddress>,
}

/// The functions that a name means now.
pub(super) fn find(reader: &mut Reader, name: &DeviceName) -> Vec<Found> {
    match name {
        DeviceName::Functions { physical, numbers } => {
            let Some(above) = address(reader, physical) else { return Vec::new() };
            let mut found = Vec::new();
            // Numbers are without gaps: the first that is not there ends them.
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

/// The address of a single device: as it stands, or the last on the way to its interface.
fn address(reader: &mut Reader, name: &DeviceName) -> Option<PciAddress> {
    match name {
        DeviceName::Address(address) => Some(*address),
        DeviceName::Interface(name) => ["net", "nvme", "block"].iter().find_map(|class| {
            let target = reader.link(&format!("/sys/class/{class}/{name}")).ok().flatten()?;
            functions(&target).last().copied()
        }),
        DeviceName::Functions { .. } => None,
    }
}

fn there(reader: &mut Reader, address: PciAddress, own_name: String) -> Option<Found> {
    match reader.link(&format!("{DEVICES}/{address}")) {
        Ok(Some(target)) => {
            let above = functions(&target);
            Some(Found { address, own_name, port: (above.len() > 1).then(|| above[0]) })
        }
        Ok(None) => None,
        // A tree of plain files has directories there.
        Err(_) => Some(Found { address, own_name, port: None }),
    }
}

/// The functions on a path of sysfs from the last root bus on.
fn functions(path: &Path) -> Vec<PciAddress> {
    let mut functions = Vec::new();
    for part in path.components().filter_map(|part| part.as_os_str().to_str()) {
        // Behind VMD a root bus lies below an endpoint of another domain.
        match part.strip_prefix("pci") {
            Some(bus) if bus.contains(':') => functions.clear(),
            _ => functions.extend(part.parse::<PciAddress>()),
        }
    }
    functions
}

/// What a device's owner does for a living: class 0x01 is storage, 0x02 network (PCI Code and ID Assignment).
pub(super) fn kind(reader: &mut Reader, address: PciAddress) -> Option<WorkloadKind> {
    let path = format!("{DEVICES}/{address}/class");
    let text = reader.text(&path, 64).ok().flatten()?;
    match content::hex(&reader.root().path(&path), &text).ok()? >> 16 {
        0x01 => Some(WorkloadKind::StorageIo),
        0x02 => Some(WorkloadKind::NetworkIo),
        _ => None,
    }
}
