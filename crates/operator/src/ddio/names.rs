//! Maps device names to PCI addresses and back: interface names, NVMe controllers, disks.
//!
//! Follows links in sysfs. Must not know why a device is looked up.

use super::DdioError;
use std::collections::BTreeMap;
use waykeeper_kernel::pci::{PciAddress, PciTree, functions_on};
use waykeeper_kernel::root::Root;

/// The PCI address of a device, from an address or the name of a network interface, NVMe controller or disk.
///
/// Addresses may leave out the domain (`3b:00.0`), as lspci does.
///
/// # Errors
/// [`DdioError::NoSuchDevice`] with the places that were searched.
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
    // The devices' own names come first, then the kernel's classes, the only place where disks are listed.
    let tree = PciTree::read(root).unwrap_or_default();
    if let Some(device) = tree.named(name) {
        return Ok(device.address);
    }
    let controllers = controllers(root, name);
    let of = |controller: &String| {
        let own = tree.named(controller).map(|device| device.address);
        let class = || root.path(format!("sys/class/nvme/{controller}")).canonicalize().ok();
        Some((own.or_else(|| functions_on(&class()?).pop())?, controller.clone()))
    };
    let reached: BTreeMap<PciAddress, String> = controllers.iter().filter_map(of).collect();
    match (reached.keys().next(), reached.len()) {
        (None, _) => {}
        (Some(address), 1) => return Ok(*address),
        _ => {
            let all = reached.iter().map(|(address, controller)| format!("{controller} ({address})"));
            let why = format!(
                "it is reached through {}; name one of them instead",
                all.collect::<Vec<_>>().join(" and ")
            );
            return Err(DdioError::NoSuchDevice { name: name.to_owned(), why });
        }
    }
    let mut places = vec![format!("sys/class/net/{name}"), format!("sys/block/{name}")];
    places.splice(0..0, controllers.iter().map(|controller| format!("sys/class/nvme/{controller}")));
    for place in &places {
        let Ok(real) = root.path(place).canonicalize() else { continue };
        if let Some(address) = functions_on(&real).pop() {
            return Ok(address);
        }
        return Err(DdioError::NoSuchDevice {
            name: name.to_owned(),
            why: format!("{place} is not behind a PCI device"),
        });
    }
    Err(DdioError::NoSuchDevice {
        name: name.to_owned(),
        why: format!("it is not in {}; `waykeeper ddio show` lists all devices", places.join(", ")),
    })
}

/// The NVMe controllers that a name refers to; none for other names.
///
/// `nvme1` is a controller and `nvme0c1n2` a path through controller 1. In `nvme0n2` the first number is the
/// subsystem's if the kernel uses multipath (the disk is below `nvme-subsystem/nvme-subsys0`, beside links to all its
/// controllers), else the controller's (linux:drivers/nvme/host/core.c and multipath.c, nvme_mpath_alloc_disk).
fn controllers(root: &Root, name: &str) -> Vec<String> {
    let Some((first, rest)) = name.strip_prefix("nvme").and_then(number) else { return Vec::new() };
    if let Some((path, _)) = rest.strip_prefix('c').and_then(number) {
        return vec![format!("nvme{path}")];
    }
    let is_controller =
        |name: &String| name.strip_prefix("nvme").and_then(number).is_some_and(|(_, rest)| rest.is_empty());
    if let Some((namespace, _)) = rest.strip_prefix('n').and_then(number) {
        let disk = format!("nvme{first}n{namespace}");
        let subsystem = format!("nvme-subsys{first}");
        let real = root.path(format!("sys/block/{disk}")).canonicalize();
        if real.is_ok_and(|real| real.parent().is_some_and(|parent| parent.ends_with(&subsystem))) {
            let beside = root.list(format!("sys/class/nvme-subsystem/{subsystem}")).unwrap_or_default();
            return beside.into_iter().filter(is_controller).collect();
        }
    }
    vec![format!("nvme{first}")]
}

/// Splits text after its leading number.
fn number(text: &str) -> Option<(&str, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    (digits > 0).then(|| text.split_at(digits))
}

/// The kernel's names for a PCI device: interfaces, NVMe controllers, disks.
pub fn names_of(root: &Root, address: PciAddress) -> Vec<String> {
    let mut names = Vec::new();
    for kind in ["net", "nvme", "block"] {
        names.extend(root.list(format!("sys/bus/pci/devices/{address}/{kind}")).unwrap_or_default());
    }
    // virtio adds a level between the PCI device and its interfaces or disks.
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

    /// With the kernel's multipath the first number of a disk is its subsystem's. Here subsystem 0 is reached first
    /// through controller 1, then through 0 and 1.
    #[test]
    fn a_disk_of_a_subsystem_is_its_controllers() {
        let (_keep, root) = tree();
        let other = "sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0/nvme/nvme1";
        let subsystem = "sys/devices/virtual/nvme-subsystem/nvme-subsys0";
        for path in [other, &format!("{subsystem}/nvme0n1"), "sys/class/nvme-subsystem", "sys/block"] {
            std::fs::create_dir_all(root.path(path)).unwrap();
        }
        let link = |target: &str, at: &str| symlink(target, root.path(at)).unwrap();
        link(&format!("../../../{other}"), "sys/class/nvme/nvme1");
        link(&format!("../../../{subsystem}"), "sys/class/nvme-subsystem/nvme-subsys0");
        link("../../../../../class/nvme/nvme1", &format!("{subsystem}/nvme1"));
        let found = |name: &str| address_of(&root, name).map(|address| address.to_string());
        // No disk of that name below the subsystem: the number is the controller's.
        assert_eq!(found("nvme0n1").unwrap(), "0000:5e:00.0");
        link(&format!("../../{subsystem}/nvme0n1"), "sys/block/nvme0n1");
        for name in ["nvme0n1", "nvme0n1p3", "nvme0c1n1", "nvme1"] {
            assert_eq!(found(name).unwrap(), "0000:81:00.0", "{name}");
        }
        assert_eq!(found("nvme0").unwrap(), "0000:5e:00.0");
        link("../../../../../class/nvme/nvme0", &format!("{subsystem}/nvme0"));
        let why = found("nvme0n1").unwrap_err().to_string();
        assert!(
            why.contains(
                "it is reached through nvme0 (0000:5e:00.0) and nvme1 (0000:81:00.0); name one of them"
            ),
            "{why}"
        );
        assert_eq!(found("nvme0c0n1").unwrap(), "0000:5e:00.0");
    }

    #[test]
    fn what_is_no_device_is_distinguished() {
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
