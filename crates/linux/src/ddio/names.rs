//! From what people call a device to its PCI address and back: interface names, NVMe controllers, disks.
//!
//! Follows links in sysfs. Must not know what is done to the device.

use super::DdioError;
use crate::root::Root;
use std::path::Path;

/// The PCI address of a device: itself, or found by the name of a network interface, NVMe controller or disk.
///
/// Addresses may leave out the domain (`3b:00.0`), as lspci does.
///
/// # Errors
/// [`DdioError::NoSuchDevice`] with the places that were looked at.
pub fn address_of(root: &Root, name: &str) -> Result<String, DdioError> {
    let full = if name.matches(':').count() == 1 { format!("0000:{name}") } else { name.to_owned() };
    if is_address(&full) {
        if root.exists(format!("sys/bus/pci/devices/{full}")) {
            return Ok(full);
        }
        return Err(DdioError::NoSuchDevice {
            name: name.to_owned(),
            why: format!("there is no sys/bus/pci/devices/{full}"),
        });
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
pub fn names_of(root: &Root, address: &str) -> Vec<String> {
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

/// `DDDD:BB:DD.F`, all digits lower-case hexadecimal (linux:drivers/pci/probe.c, pci_setup_device).
pub fn is_address(text: &str) -> bool {
    let hex = |text: &str, digits: std::ops::RangeInclusive<usize>| {
        digits.contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    let parts: Vec<&str> = text.split([':', '.']).collect();
    let [domain, bus, device, function] = parts[..] else { return false };
    // Domains of VMD controllers have five digits and more.
    text.matches(':').count() == 2
        && hex(domain, 4..=8)
        && hex(bus, 2..=2)
        && hex(device, 2..=2)
        && matches!(function.as_bytes(), [b'0'..=b'7'])
}

/// The PCI device a path of sysfs lies below.
fn last_address(real: &Path) -> Option<String> {
    let parts = real.iter().filter_map(|part| part.to_str());
    parts.filter(|part| is_address(part)).last().map(str::to_owned)
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
            assert_eq!(address_of(&root, name).unwrap(), "0000:3b:00.0", "{name}");
        }
        for name in ["nvme0", "nvme0n1", "nvme0c0n1p2"] {
            assert_eq!(address_of(&root, name).unwrap(), "0000:5e:00.0", "{name}");
        }
        assert_eq!(names_of(&root, "0000:3b:00.0"), ["ens1"]);
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

    #[test]
    fn addresses_are_the_kernels_form() {
        for good in ["0000:00:1f.7", "10000:01:00.0"] {
            assert!(is_address(good), "{good}");
        }
        for bad in ["0000:00:1f.8", "000:00:1f.0", "0000:00:1F.0", "0000.00.1f:0", "pci0000:00", "", ":::."] {
            assert!(!is_address(bad), "{bad}");
        }
    }
}
