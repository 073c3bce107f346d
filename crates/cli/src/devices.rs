//! Names of devices on the command line, for `ddio`, `probe` and `memload`. Must not know how a name is resolved
//! (`tenants`).

use crate::exit::{self, Failure};
use rustix::io::Errno;
use std::path::Path;
use waykeeper_kernel::pci::PciAddress;
use waykeeper_kernel::root::Root;
use waykeeper_tenants::{DeviceName, NoDevice, find_devices};

/// Where the kernel's device files are.
const DEV: &str = "/dev";

/// PCI addresses of these devices on a host; virtual functions may be several.
///
/// # Errors
/// The first name that means no device there.
pub fn addresses(root: &Root, names: &[DeviceName]) -> Result<Vec<PciAddress>, Failure> {
    let mut all = Vec::new();
    for name in names {
        all.extend(find_devices(root, name)?.into_iter().map(|device| device.address));
    }
    Ok(all)
}

/// The name of a device file; `None` for any other path.
pub fn of_device_file(path: &Path) -> Option<DeviceName> {
    path.strip_prefix(DEV).ok()?.to_str()?.parse().ok()
}

/// The end of a message that a path does not exist: the device file that was probably meant.
pub fn hint(root: &Root, path: &Path) -> Option<String> {
    let file = |name: &str| Some(Path::new(DEV).join(name)).filter(|file| root.exists(file));
    let name = path.file_name()?.to_str()?;
    match find_devices(root, &name.parse().ok()?) {
        Ok(_) => Some(format!("; the device `{name}` is {}", file(name)?.display())),
        Err(NoDevice::Missing { near: Some(near), .. }) if path.starts_with(DEV) => {
            Some(format!("; did you mean {}?", file(&near)?.display()))
        }
        Err(_) => None,
    }
}

impl From<NoDevice> for Failure {
    fn from(error: NoDevice) -> Failure {
        let code = match &error {
            NoDevice::Unreadable { why, .. } if why.errno() == Some(Errno::ACCESS) => exit::NOT_PERMITTED,
            NoDevice::Unreadable { .. } => exit::FAILED,
            _ => exit::BAD_INPUT,
        };
        Failure::new(code, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_message_about_a_missing_path_names_the_device_file_that_was_meant() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let function = "pci0000:5d/0000:5d:00.0/0000:5e:00.0";
        for place in ["sys/class/block", "sys/class/net", "sys/bus/pci/devices", "dev"] {
            std::fs::create_dir_all(root.path(place)).unwrap();
        }
        for (target, at) in [
            (format!("../../../devices/{function}"), "sys/bus/pci/devices/0000:5e:00.0"),
            (format!("../../devices/{function}/nvme/nvme0/nvme0n1"), "sys/class/block/nvme0n1"),
            (format!("../../devices/{function}/net/eth0"), "sys/class/net/eth0"),
        ] {
            symlink(target, root.path(at)).unwrap();
        }
        std::fs::write(root.path("dev/nvme0n1"), "").unwrap();
        let hint = |path: &str| hint(&root, Path::new(path)).unwrap_or_default();
        assert_eq!(hint("nvme0n1"), "; the device `nvme0n1` is /dev/nvme0n1");
        assert_eq!(hint("/dev/nvme0n2"), "; did you mean /dev/nvme0n1?");
        // A file may have any name, and an interface has no device file.
        assert_eq!([hint("load.img"), hint("nvme0n2"), hint("/dev/eth1"), hint("eth0")], [""; 4]);
    }
}
