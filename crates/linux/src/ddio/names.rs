//! From what people call a device to its PCI address and back: interface names, NVMe controllers, disks.
//!
//! Follows links in sysfs. Must not know what is done to the device.

use super::DdioError;
use crate::pci::{PciAddress, PciTree};
use crate::root::Root;
use std::path::Path;

/// The PCI address of a device: itself, or found by the name of a network interface, NVMe controller or disk.
///
/// Addresses may leave out the domain (`3b:00.0`), as lspci does.
///
/// # Errors
/// [`DdioError::NoSuchDevice`] with the places that were looked at.
pub fn address_of(root: &Root, name: &str) -> Result<PciAddress, DdioError> {
    if let Ok(address) = name.parse::<PciAddress>() {
        if root.exists(format!("sys/bus/pci/devices/{address}")) {
            return Ok(address);
        }
        let why = format!("there is no sys/bus/pci/devices/{address}");
        return Err(DdioError::NoSuchDevice { name: name.to_owned(), why });
    }
    let plain =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte));
    if !plain || name.starts_with('.') {
        return Err(DdioError::NoSuchDevice {
            name: name.to_owned(),
            why: "it is neither a PCI address nor a name".to_owned(),
        });
    }
    // With multipath a namespace lies below a virtual subsystem, and only its controller below the PCI device.
    let controller = name.strip_prefix("nvme").map(|rest| {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        format!("nvme{}", &rest[..digits])
    });
    // The names that devices themselves have come first, then the kernel's classes: disks stand only there.
    let tree = PciTree::read(root).unwrap_or_default();
    let own = tree.named(name).or_else(|| tree.named(controller.as_deref()?));
    if let Some(device) = own {
        return Ok(device.address);
    }
    let mut places = vec![format!("sys/class/net/{name}"), format!("sys/block/{name}")];
    if let Some(controller) = controller {
        places.insert(0, format!("sys/class/nvme/{controller}"));
    }
    for place in &places {
        let Ok(real) = root.path(place).canonicalize() else { continue };
        if let Some(address) = last_address(&real) {
            return Ok(address);
        }
        return Err(DdioError::NoSuchDevice {
            name: name.to_owned(),
            why: format!("{place} is not behind a PCI device"),
        });
    }
    Err(DdioError::NoSuchDevice {
        name: name.to_owned(),
        why: format!("looked for it in {}; `waykeeper ddio show` names all devices", places.join(", ")),
    })
}

/// What the kernel calls a PCI device besides its address: interfaces, NVMe controllers, disks.
pub fn names_of(root: &Root, address: PciAddress) -> Vec<String> {
    let mut names = Vec::new();
    for kind in ["net", "nvme", "block"] {
        names.extend(root.list(format!("sys/bus/pci/devices/{address}/{kind}")).unwrap_or_default());
    }
    // virtio has a level of its own between the PCI device and what it offers.
    for child in root.list(format!("sys/bus/pci/devices/{address}")).unwrap_or_default() {
        if child.starts_with("virtio") {
            for kind in ["net", "block"] {
                names.extend(
                    root.list(format!("sys/bus/pci/devices/{address}/{child}/{kind}")).unwrap_or_default(),
                );
            }
        }
    }
    names
}

/// The PCI device a path of sysfs lies below.
fn last_address(real: &Path) -> Option<PciAddress> {
    // Names of other things have not two colons: `0000:3a:00.0`, but `pci0000:3a`.
    let parts = real.iter().filter_map(|part| part.to_str()).filter(|part| part.matches(':').count() == 2);
    parts.rev().find_map(|part| part.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn tree() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path();
        let nic = "sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0";
        let ssd = "sys/devices/pci0000:5d/0000:5d:00.0/0000:5e:00.0";
        for path in
            [format!("{nic}/net/ens1"), format!("{ssd}/nvme/nvme0"), "sys/devices/virtual/net/lo".to_owned()]
        {
            std::fs::create_dir_all(top.join(path)).unwrap();
        }
        for path in ["sys/bus/pci/devices", "sys/class/net", "sys/class/nvme"] {
            std::fs::create_dir_all(top.join(path)).unwrap();
        }
        symlink(format!("../../../../{nic}"), top.join("sys/bus/pci/devices/0000:3b:00.0")).unwrap();
        symlink(format!("../../../{nic}/net/ens1"), top.join("sys/class/net/ens1")).unwrap();
        symlink("../../devices/virtual/net/lo", top.join("sys/class/net/lo")).unwrap();
        symlink(format!("../../../{ssd}/nvme/nvme0"), top.join("sys/class/nvme/nvme0")).unwrap();
        let root = Root::at(top);
        (folder, root)
    }

    #[test]
    fn devices_are_found_by_address_and_by_name() {
        let (_keep, root) = tree();
        for name in ["0000:3b:00.0", "3b:00.0", "ens1"] {
            assert_eq!(address_of(&root, name).unwrap().to_string(), "0000:3b:00.0", "{name}");
        }
        for name in ["nvme0", "nvme0n1", "nvme0c0n1p2"] {
            assert_eq!(address_of(&root, name).unwrap().to_string(), "0000:5e:00.0", "{name}");
        }
        assert_eq!(names_of(&root, "0000:3b:00.0".parse().unwrap()), ["ens1"]);
    }

    #[test]
    fn what_is_no_device_is_told_apart() {
        let (_keep, root) = tree();
        let why = |name: &str| address_of(&root, name).unwrap_err().to_string();
        assert!(why("0000:3c:00.0").contains("no sys/bus/pci/devices/0000:3c:00.0"));
        assert!(why("lo").contains("sys/class/net/lo is not behind a PCI device"));
        assert!(why("eth7").contains("sys/class/net/eth7, sys/block/eth7"));
        for name in ["", "../x", "a/b", ".."] {
            assert!(why(name).contains("neither a PCI address nor a name"), "{name}");
        }
    }
}
