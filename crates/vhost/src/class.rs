//! Devices of a class in sysfs: interfaces, controllers and disks below the device that they belong to, and the links
//! by which tools find them.
//!
//! Every one has a link `sys/class/CLASS/NAME`; one with a device number has a link in `sys/dev`, a disk also one in
//! `sys/block`. Source: linux drivers/base/core.c (get_device_parent, device_add_class_symlinks) and block/genhd.c. It
//! must not know what a file says.

use crate::node::Tree;

/// A device number: major and minor.
pub type DeviceNumber = (u32, u32);

/// A device of a class.
#[derive(Clone, Debug, Default)]
pub struct ClassDevice {
    /// Its class: `net`, `nvme`, `block`.
    pub class: &'static str,
    /// Its name: `eth0`, `nvme0`, `nvme0n1`.
    pub name: String,
    /// Its files, by path below its directory, with their content without the last newline.
    pub files: Vec<(String, String)>,
    /// Its number, if programs open it.
    pub number: Option<DeviceNumber>,
    /// Devices below it.
    pub below: Vec<ClassDevice>,
}

/// What a device of a class belongs to; paths are below `sys/devices`.
#[derive(Clone, Copy, Debug)]
enum Parent<'p> {
    /// Nothing: it has no hardware.
    Nothing,
    /// A device of a bus, such as a PCI function.
    OfBus(&'p str),
    /// A device of a class.
    OfClass(&'p str),
}

impl ClassDevice {
    /// A device without files, number and devices below it.
    pub fn new(class: &'static str, name: impl Into<String>) -> ClassDevice {
        ClassDevice { class, name: name.into(), ..ClassDevice::default() }
    }

    /// Adds files.
    #[must_use]
    pub fn with<'f>(mut self, files: impl IntoIterator<Item = (&'f str, String)>) -> ClassDevice {
        self.files.extend(files.into_iter().map(|(name, text)| (name.to_owned(), text)));
        self
    }

    /// Adds it below a device of a bus, whose path below `sys/devices` is given.
    pub fn add_to(self, tree: &mut Tree, device: &str) {
        self.add(tree, Parent::OfBus(device));
    }

    /// Adds it as a device without hardware. Returns its path below `sys/devices`.
    pub fn add_virtual(self, tree: &mut Tree) -> String {
        self.add(tree, Parent::Nothing)
    }

    fn add(self, tree: &mut Tree, parent: Parent<'_>) -> String {
        let ClassDevice { class, name, files, number, below } = self;
        // A directory with the class' name separates devices of classes from the other files of a bus' device.
        let folder = match parent {
            Parent::Nothing => format!("virtual/{class}/{name}"),
            Parent::OfBus(parent) => format!("{parent}/{class}/{name}"),
            Parent::OfClass(parent) => format!("{parent}/{name}"),
        };
        let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let device = match parent {
            Parent::Nothing => None,
            Parent::OfBus(parent) => Some(format!("../../../{}", last(parent))),
            Parent::OfClass(parent) => Some(format!("../../{}", last(parent))),
        };
        let here = format!("sys/devices/{folder}");
        for (file, text) in files {
            tree.text(&format!("{here}/{file}"), format!("{text}\n"));
        }
        if let Some(device) = device {
            tree.link(&format!("{here}/device"), device);
        }
        let up = "../".repeat(folder.split('/').count() + 1);
        tree.link(&format!("{here}/subsystem"), format!("{up}class/{class}"));
        tree.link(&format!("sys/class/{class}/{name}"), format!("../../devices/{folder}"));
        if let Some((major, minor)) = number {
            let kind = if class == "block" { "block" } else { "char" };
            tree.text(&format!("{here}/dev"), format!("{major}:{minor}\n"));
            tree.link(&format!("sys/dev/{kind}/{major}:{minor}"), format!("../../devices/{folder}"));
        }
        if class == "block" {
            tree.link(&format!("sys/block/{name}"), format!("../devices/{folder}"));
        }
        for inner in below {
            inner.add(tree, Parent::OfClass(&folder));
        }
        folder
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Node;

    /// The links of a disk of a server with Linux 6.12, without the part above the controller's function.
    #[test]
    fn links_are_those_of_a_kernel() {
        let mut tree = Tree::new();
        let disk = ClassDevice {
            number: Some((259, 0)),
            ..ClassDevice::new("block", "nvme0n1").with([("size", "8".to_owned())])
        };
        let controller = ClassDevice { below: vec![disk], ..ClassDevice::new("nvme", "nvme0") };
        controller.add_to(&mut tree, "pci0000:5d/0000:5d:00.0/0000:5e:00.0");
        ClassDevice::new("net", "lo").add_virtual(&mut tree);
        let function = "sys/devices/pci0000:5d/0000:5d:00.0/0000:5e:00.0";
        for (path, target) in [
            (format!("{function}/nvme/nvme0/device"), "../../../0000:5e:00.0"),
            (format!("{function}/nvme/nvme0/subsystem"), "../../../../../../class/nvme"),
            (format!("{function}/nvme/nvme0/nvme0n1/device"), "../../nvme0"),
            (format!("{function}/nvme/nvme0/nvme0n1/subsystem"), "../../../../../../../class/block"),
            (
                "sys/class/nvme/nvme0".to_owned(),
                "../../devices/pci0000:5d/0000:5d:00.0/0000:5e:00.0/nvme/nvme0",
            ),
            (
                "sys/class/block/nvme0n1".to_owned(),
                "../../devices/pci0000:5d/0000:5d:00.0/0000:5e:00.0/nvme/nvme0/nvme0n1",
            ),
            (
                "sys/block/nvme0n1".to_owned(),
                "../devices/pci0000:5d/0000:5d:00.0/0000:5e:00.0/nvme/nvme0/nvme0n1",
            ),
            (
                "sys/dev/block/259:0".to_owned(),
                "../../devices/pci0000:5d/0000:5d:00.0/0000:5e:00.0/nvme/nvme0/nvme0n1",
            ),
            ("sys/class/net/lo".to_owned(), "../../devices/virtual/net/lo"),
            ("sys/devices/virtual/net/lo/subsystem".to_owned(), "../../../../class/net"),
        ] {
            match tree.get(&path) {
                Some(Node::Link(found)) => assert_eq!(found, target, "{path}"),
                _ => panic!("{path} is no link"),
            }
        }
        assert!(tree.get("sys/devices/virtual/net/lo/device").is_none());
        assert!(tree.get("sys/block/nvme0").is_none() && tree.get("sys/dev/char").is_none());
    }
}
