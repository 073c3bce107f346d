//! Finds the PCI functions that device names mean now, and their root ports: the one resolver for the census, `ddio`,
//! the probe and `memload`.
//!
//! A few sysfs links per device, which is cheap enough for every look: functions appear and disappear (SR-IOV,
//! hotplug). The entries of a class are links to the function that they belong to (linux drivers/base/core.c), on any
//! host. Must not know tenants, nor why a device is looked up.

use super::device::DeviceName;
use super::reader::Reader;
use rustix::io::Errno;
use std::path::Path;
use waykeeper_host::WorkloadKind;
use waykeeper_kernel::content;
use waykeeper_kernel::pci::{PciAddress, functions_on};
use waykeeper_kernel::root::{FileError, Root};
use waykeeper_units::{Likeness, nearest, one_line};

const DEVICES: &str = "/sys/bus/pci/devices";

/// Classes whose devices have a PCI function: network interfaces, RDMA devices, NVMe controllers, the generic devices
/// of their namespaces, disks and partitions.
const CLASSES: [&str; 5] = ["net", "infiniband", "nvme", "nvme-generic", "block"];

/// Where NVMe subsystems link to their controllers.
const SUBSYSTEMS: &str = "/sys/class/nvme-subsystem";

/// Most virtual functions read per device. Their number has 16 bits (SR-IOV capability, NumVFs); network cards have up
/// to 256 of them on one physical function.
const MOST_NUMBERS: u16 = 256;

/// Most devices read behind a bridge: as many as virtual functions, which are behind it too.
const MOST_BEHIND: usize = MOST_NUMBERS as usize;

/// Class 0x0604: a bridge to another PCI bus (PCI Code and ID Assignment).
const BRIDGE: u64 = 0x0604;

/// A present device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundDevice {
    /// Its function.
    pub address: PciAddress,
    /// The `{name}` of a tenant that is made for this device.
    pub own_name: String,
    /// The topmost function above it, or the function itself if it is a root port; `None` if sysfs does not show it.
    pub port: Option<PciAddress>,
}

/// Why a name means no device now.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoDevice {
    /// There is none of this name or address.
    #[error("there is no device `{name}`{}", hint(near.as_deref()))]
    Missing {
        /// The name.
        name: String,
        /// The name of a present device that is most like it.
        near: Option<String>,
    },
    /// It is there, but it is not part of a PCI device: a loopback, a bond, a virtual disk.
    #[error("device `{name}` is not part of a PCI device ({place} links to {target})")]
    NotPci {
        /// The name.
        name: String,
        /// The entry of its class.
        place: String,
        /// Where that links to.
        target: String,
    },
    /// A namespace with several controllers.
    #[error("device `{name}` is reached through {}; name one of them", all.join(" and "))]
    Several {
        /// The name.
        name: String,
        /// The controllers and their addresses.
        all: Vec<String>,
    },
    /// The device has no virtual function of this number.
    #[error("device `{physical}` has no virtual function `{wanted}`; it has {}", counted(*count))]
    NoFunction {
        /// The physical function, as it was named.
        physical: String,
        /// The numbers that were wanted.
        wanted: String,
        /// How many it has.
        count: u16,
    },
    /// A link cannot be read.
    #[error("device `{name}` was not found: {why}")]
    Unreadable {
        /// The name.
        name: String,
        /// The error.
        why: FileError,
    },
}

fn hint(near: Option<&str>) -> String {
    match near {
        Some(near) => format!("; did you mean `{near}`?"),
        None => "; `waykeeper ddio show` lists the devices behind root ports".to_owned(),
    }
}

fn counted(count: u16) -> String {
    match count {
        0 => "none".to_owned(),
        1 => "0 alone".to_owned(),
        count => format!("0 to {}", count - 1),
    }
}

/// The functions that a name means now, at least one. A root port or another bridge means all devices behind it, and
/// itself if there are none.
///
/// # Errors
/// Why it means none, with the most similar name that a device has.
pub fn find_devices(root: &Root, name: &DeviceName) -> Result<Vec<FoundDevice>, NoDevice> {
    let mut reader = Reader::new(root);
    find(&mut reader, name).map_err(|why| why.with_hint(&mut reader))
}

/// As [`find_devices`], without the similar name, which takes more reads.
pub(super) fn find(reader: &mut Reader, name: &DeviceName) -> Result<Vec<FoundDevice>, NoDevice> {
    let DeviceName::Functions { physical, numbers } = name else {
        let address = address(reader, name)?;
        let found = there(reader, address, name, own_name(&name.to_string()))?;
        let mut behind = Vec::new();
        // Only a PCI address can be that of a bridge.
        if matches!(name, DeviceName::Address(_)) && is_bridge(reader, address) {
            devices_behind(reader, &format!("{DEVICES}/{address}"), &found, &mut behind);
        }
        return Ok(if behind.is_empty() { vec![found] } else { behind });
    };
    let above = address(reader, physical)?;
    there(reader, above, physical, String::new())?;
    let mut found = Vec::new();
    let mut count = 0;
    // Virtual functions are numbered without gaps, so the first missing number ends the search.
    for number in 0..MOST_NUMBERS {
        let Ok(Some(target)) = reader.link(&format!("{DEVICES}/{above}/virtfn{number}")) else { break };
        let function = target.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
        let Some(address) = function else { break };
        count += 1;
        let is_meant = match numbers.is_wild() {
            true => numbers.matches(&number.to_string()),
            false => numbers.text().parse() == Ok(number),
        };
        if is_meant {
            // A function that disappears meanwhile is not there.
            let own_name = own_name(&format!("{physical}-vf{number}"));
            found.extend(there(reader, address, physical, own_name));
        }
    }
    if found.is_empty() {
        return Err(NoDevice::NoFunction {
            physical: physical.to_string(),
            wanted: numbers.text().to_owned(),
            count,
        });
    }
    Ok(found)
}

/// Whether a name can be part of a message, which is one line.
pub(super) fn is_printable(name: &str) -> bool {
    !name.chars().any(char::is_control)
}

/// A name without colons, which the name of a tenant cannot have.
fn own_name(text: &str) -> String {
    text.replace(':', "-")
}

/// Adds the functions behind a bridge, those behind further bridges included and bridges excluded: each is a directory
/// in that of the bridge above it.
fn devices_behind(reader: &mut Reader, folder: &str, bridge: &FoundDevice, found: &mut Vec<FoundDevice>) {
    let inner = reader.folders(folder, MOST_BEHIND).ok().flatten().unwrap_or_default().0;
    for name in inner {
        let Ok(address) = name.parse::<PciAddress>() else { continue };
        if found.len() == MOST_BEHIND {
            return;
        }
        let port = bridge.port;
        if is_bridge(reader, address) {
            devices_behind(reader, &format!("{folder}/{name}"), bridge, found);
        } else {
            found.push(FoundDevice { address, own_name: own_name(&name), port });
        }
    }
}

fn is_bridge(reader: &mut Reader, address: PciAddress) -> bool {
    class(reader, address).is_some_and(|class| class >> 8 == BRIDGE)
}

impl NoDevice {
    /// With the most similar name that a device has.
    pub(super) fn with_hint(self, reader: &mut Reader) -> NoDevice {
        let NoDevice::Missing { name, .. } = self else { return self };
        let mut known = reader.names(DEVICES);
        if !name.contains(':') {
            known = CLASSES.iter().flat_map(|class| reader.names(&format!("/sys/class/{class}"))).collect();
        }
        // A file of a class, which is no device, may have this name.
        let others = known.iter().map(String::as_str).filter(|own| *own != name && is_printable(own));
        let near = nearest(&name, others, Likeness::Edits).map(str::to_owned);
        NoDevice::Missing { name, near }
    }
}

/// The address of a single device: the declared one, or the last on the path that the entry of its class links to.
fn address(reader: &mut Reader, name: &DeviceName) -> Result<PciAddress, NoDevice> {
    let name = match name {
        DeviceName::Address(address) => return Ok(*address),
        DeviceName::Interface(name) => name,
        // The parser makes no virtual functions of virtual functions.
        DeviceName::Functions { .. } => return Err(NoDevice::Missing { name: name.to_string(), near: None }),
    };
    let mut unreadable = None;
    for class in CLASSES {
        let place = format!("/sys/class/{class}/{name}");
        let target = match reader.link(&place) {
            Ok(Some(target)) => target,
            Ok(None) => continue,
            // Not a link: classes have files of their own, such as `bonding_masters`.
            Err(error) if error.errno() == Some(Errno::INVAL) => continue,
            Err(error) => {
                unreadable.get_or_insert(error);
                continue;
            }
        };
        return match functions_on(&target).last() {
            Some(address) => Ok(*address),
            None => through_controllers(reader, name, &target, place),
        };
    }
    Err(match unreadable {
        Some(why) => NoDevice::Unreadable { name: name.clone(), why },
        None => NoDevice::Missing { name: name.clone(), near: None },
    })
}

/// The function of the controller through which a namespace is reached. With the kernel's multipath a namespace lies
/// below its subsystem, beside links to all its controllers (linux drivers/nvme/host/multipath.c, nvme_mpath_alloc_disk):
/// `nvme0n1` may then be reached through `nvme1`.
fn through_controllers(
    reader: &mut Reader,
    name: &str,
    target: &Path,
    place: String,
) -> Result<PciAddress, NoDevice> {
    let mut parts = target.iter().filter_map(|part| part.to_str());
    let subsystem = parts.find(|part| part.starts_with("nvme-subsys") && *part != "nvme-subsystem");
    let names = subsystem.map(|own| reader.names(&format!("{SUBSYSTEMS}/{own}"))).unwrap_or_default();
    let mut reached: Vec<(PciAddress, String)> = Vec::new();
    for controller in names.iter().filter(|name| is_controller(name)) {
        let target = reader.link(&format!("/sys/class/nvme/{controller}")).ok().flatten();
        reached.extend(target.and_then(|target| Some((functions_on(&target).pop()?, controller.clone()))));
    }
    reached.sort();
    reached.dedup_by_key(|(address, _)| *address);
    match reached.as_slice() {
        [] => {
            let target = one_line(&target.display().to_string());
            Err(NoDevice::NotPci { name: name.to_owned(), place, target })
        }
        [(address, _)] => Ok(*address),
        _ => {
            let all = reached.iter().map(|(address, controller)| format!("{controller} ({address})"));
            Err(NoDevice::Several { name: name.to_owned(), all: all.collect() })
        }
    }
}

/// `nvme1`, not `nvme1n1` or `nvme1c0n1`.
fn is_controller(name: &str) -> bool {
    let digits = name.strip_prefix("nvme").unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn there(
    reader: &mut Reader,
    address: PciAddress,
    name: &DeviceName,
    own_name: String,
) -> Result<FoundDevice, NoDevice> {
    let port = match reader.link(&format!("{DEVICES}/{address}")) {
        Ok(Some(target)) => match functions_on(&target).as_slice() {
            [port, _, ..] => Some(*port),
            // On the root bus: a root port, or a device of the root complex.
            _ => is_bridge(reader, address).then_some(address),
        },
        Ok(None) => return Err(NoDevice::Missing { name: name.to_string(), near: None }),
        // In a tree of plain files this is a directory, not a link.
        Err(error) if error.errno() == Some(Errno::INVAL) => None,
        Err(why) => return Err(NoDevice::Unreadable { name: name.to_string(), why }),
    };
    Ok(FoundDevice { address, own_name, port })
}

/// Class, subclass and interface of a function.
fn class(reader: &mut Reader, address: PciAddress) -> Option<u64> {
    let path = format!("{DEVICES}/{address}/class");
    let text = reader.text(&path, 64).ok().flatten()?;
    content::hex(&reader.root().path(&path), &text).ok()
}

/// The kind of workload that uses a device: class 0x01 is storage, 0x02 network (PCI Code and ID Assignment).
pub(super) fn kind(reader: &mut Reader, address: PciAddress) -> Option<WorkloadKind> {
    match class(reader, address)? >> 16 {
        0x01 => Some(WorkloadKind::StorageIo),
        0x02 => Some(WorkloadKind::NetworkIo),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A NIC with two virtual functions, an NVMe drive, a disk of a virtio controller, `lo`.
    fn tree() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let port = "sys/devices/pci0000:3a/0000:3a:00.0";
        let nic = format!("{port}/0000:3b:00.0");
        let ssd = "sys/devices/pci0000:5d/0000:5d:00.0/0000:5e:00.0";
        let virtio = "sys/devices/pci0000:00/0000:00:05.0";
        for (at, class) in [
            (port, "0x060400"),
            (&nic, "0x020000"),
            (&format!("{port}/0000:3b:00.1"), "0x020000"),
            (&format!("{port}/0000:3b:00.2"), "0x020000"),
            // A port with an empty slot.
            ("sys/devices/pci0000:80/0000:80:00.0", "0x060400"),
            (ssd, "0x010802"),
            (virtio, "0x010000"),
        ] {
            std::fs::create_dir_all(root.path(at)).unwrap();
            std::fs::write(root.path(format!("{at}/class")), format!("{class}\n")).unwrap();
            let address = at.rsplit('/').next().unwrap();
            link(&root, &format!("../../../../{at}"), &format!("sys/bus/pci/devices/{address}"));
        }
        for number in 0..2 {
            let target = format!("../0000:3b:00.{}", number + 1);
            link(&root, &target, &format!("{nic}/virtfn{number}"));
        }
        for (class, name, at) in [
            ("net", "ens1f0", nic.as_str()),
            ("infiniband", "mlx5_0", &nic),
            ("nvme", "nvme0", ssd),
            ("block", "vda", &format!("{virtio}/virtio2")),
        ] {
            link(&root, &format!("../../../{at}/{class}/{name}"), &format!("sys/class/{class}/{name}"));
        }
        for (class, name) in [("nvme-generic", "ng0n1"), ("block", "nvme0n1"), ("block", "nvme0n1p2")] {
            let target = format!("../../../{ssd}/nvme/nvme0/{name}");
            link(&root, &target, &format!("sys/class/{class}/{name}"));
        }
        link(&root, "../../devices/virtual/net/lo", "sys/class/net/lo");
        std::fs::write(root.path("sys/class/net/bonding_masters"), "\n").unwrap();
        (folder, root)
    }

    fn link(root: &Root, target: &str, at: &str) {
        let at = root.path(at);
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        symlink(target, at).unwrap();
    }

    /// The addresses, or the message.
    fn found(root: &Root, name: &str) -> String {
        match find_devices(root, &name.parse().unwrap()) {
            Ok(found) => found.iter().map(|own| own.address.to_string()).collect::<Vec<_>>().join(" "),
            Err(why) => why.to_string(),
        }
    }

    #[test]
    fn every_kind_of_name_leads_to_its_function() {
        let (_keep, root) = tree();
        for (name, function) in [
            ("0000:3b:00.0", "0000:3b:00.0"),
            ("3B:00.0", "0000:3b:00.0"),
            ("ens1f0", "0000:3b:00.0"),
            ("mlx5_0", "0000:3b:00.0"),
            ("nvme0", "0000:5e:00.0"),
            ("nvme0n1", "0000:5e:00.0"),
            ("nvme0n1p2", "0000:5e:00.0"),
            ("ng0n1", "0000:5e:00.0"),
            ("vda", "0000:00:05.0"),
            ("0000:3a:00.0", "0000:3b:00.0 0000:3b:00.1 0000:3b:00.2"),
            ("80:00.0", "0000:80:00.0"),
            ("3b:00.0/vf1", "0000:3b:00.2"),
            ("ens1f0/vf*", "0000:3b:00.1 0000:3b:00.2"),
            ("mlx5_0/vf[1-9]", "0000:3b:00.2"),
        ] {
            assert_eq!(found(&root, name), function, "{name}");
        }
    }

    #[test]
    fn the_root_port_of_a_root_port_is_itself() {
        let (_keep, root) = tree();
        let port = |name: &str| {
            let found = find_devices(&root, &name.parse().unwrap()).unwrap();
            found[0].port.map(|port| port.to_string())
        };
        assert_eq!(port("ens1f0/vf0").as_deref(), Some("0000:3a:00.0"));
        assert_eq!(port("3a:00.0").as_deref(), Some("0000:3a:00.0"));
        assert_eq!(port("vda"), None, "a device on the root bus has no root port");
    }

    #[test]
    fn what_is_no_device_is_said_with_the_name_that_is_nearest() {
        let (_keep, root) = tree();
        for (name, said) in [
            ("nvm0", "there is no device `nvm0`; did you mean `nvme0`?"),
            ("ens1fO", "there is no device `ens1fO`; did you mean `ens1f0`?"),
            ("3b:00.7", "there is no device `0000:3b:00.7`; did you mean `0000:3b:00.2`?"),
            ("3b:00.7/vf0", "there is no device `0000:3b:00.7`; did you mean `0000:3b:00.2`?"),
            ("q", "there is no device `q`; `waykeeper ddio show` lists the devices behind root ports"),
            // A file of the class, not a device.
            (
                "bonding_masters",
                "there is no device `bonding_masters`; `waykeeper ddio show` lists the devices behind root ports",
            ),
            (
                "lo",
                "device `lo` is not part of a PCI device (/sys/class/net/lo links to ../../devices/virtual/net/lo)",
            ),
            ("ens1f0/vf2", "device `ens1f0` has no virtual function `2`; it has 0 to 1"),
            ("nvme0/vf*", "device `nvme0` has no virtual function `*`; it has none"),
        ] {
            assert_eq!(found(&root, name), said);
        }
    }

    #[test]
    fn a_message_is_one_line_whatever_sysfs_contains() {
        let (_keep, root) = tree();
        link(&root, "../../devices/virtual/net/a\nb", "sys/class/net/bond0");
        link(&root, "../../devices/virtual/net/bond1", "sys/class/net/bond\n");
        assert!(found(&root, "bond0").ends_with(r"links to ../../devices/virtual/net/a\nb)"));
        assert_eq!(found(&root, "bond"), "there is no device `bond`; did you mean `bond0`?");
    }

    /// With the kernel's multipath the first number of a disk is its subsystem's. Here subsystem 0 is reached first
    /// through controller 1, then through 0 and 1.
    #[test]
    fn a_disk_of_a_subsystem_is_its_controllers() {
        let (_keep, root) = tree();
        let subsystem = "sys/devices/virtual/nvme-subsystem/nvme-subsys0";
        std::fs::create_dir_all(root.path(subsystem)).unwrap();
        std::fs::create_dir_all(root.path("sys/class/nvme-subsystem")).unwrap();
        symlink(format!("../../../{subsystem}"), root.path("sys/class/nvme-subsystem/nvme-subsys0")).unwrap();
        let other = "pci0000:80/0000:80:01.0/0000:81:00.0/nvme/nvme1";
        std::fs::create_dir_all(root.path("sys/bus/pci/devices")).unwrap();
        link(
            &root,
            "../../../devices/pci0000:80/0000:80:01.0/0000:81:00.0",
            "sys/bus/pci/devices/0000:81:00.0",
        );
        link(&root, &format!("../../devices/{other}"), "sys/class/nvme/nvme1");
        link(&root, &format!("../../../{other}"), &format!("{subsystem}/nvme1"));
        for name in ["nvme0n1", "nvme0n1p2"] {
            std::fs::remove_file(root.path(format!("sys/class/block/{name}"))).unwrap();
        }
        link(&root, "../../devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1", "sys/class/block/nvme0n1");
        link(
            &root,
            "../../devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1/nvme0n1p3",
            "sys/class/block/nvme0n1p3",
        );
        link(&root, &format!("../../devices/{other}/nvme0c1n1"), "sys/class/block/nvme0c1n1");
        for name in ["nvme0n1", "nvme0n1p3", "nvme0c1n1", "nvme1"] {
            assert_eq!(found(&root, name), "0000:81:00.0", "{name}");
        }
        assert_eq!(found(&root, "nvme0"), "0000:5e:00.0");
        link(&root, "../nvme0", &format!("{subsystem}/nvme0"));
        assert_eq!(
            found(&root, "nvme0n1"),
            "device `nvme0n1` is reached through nvme0 (0000:5e:00.0) and nvme1 (0000:81:00.0); name one of them"
        );
    }
}
