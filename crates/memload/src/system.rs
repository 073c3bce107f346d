//! Block devices in sysfs and procfs: names, sizes, partitions, users.
//!
//! Knows files under two roots, so that tests can have their own; must not know the purpose of a check.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Mount points of the kernel's trees.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelMounts {
    /// `/sys`.
    pub sys: PathBuf,
    /// `/proc`.
    pub proc: PathBuf,
}

impl Default for KernelMounts {
    fn default() -> KernelMounts {
        KernelMounts { sys: "/sys".into(), proc: "/proc".into() }
    }
}

/// Major and minor number of a device.
pub type Number = (u32, u32);

impl KernelMounts {
    /// The folder of a device in sysfs, which has the kernel's name of the device.
    pub fn folder(&self, block: bool, number: Number) -> Option<PathBuf> {
        let kind = if block { "block" } else { "char" };
        fs::canonicalize(self.sys.join(format!("dev/{kind}/{}:{}", number.0, number.1))).ok()
    }

    /// The folder of the other device of an NVMe namespace: of `nvme0n1` for `ng0n1`, and vice versa. Both have the
    /// same parent and the same last number; the first may differ, because one is of controllers and the other of
    /// subsystems.
    pub fn twin(&self, folder: &Path) -> Option<PathBuf> {
        let numbered = |name: &str, kind: &str| {
            let (first, last) = name.strip_prefix(kind)?.split_once('n')?;
            let is_number =
                |text: &str| !text.is_empty() && text.bytes().all(|letter| letter.is_ascii_digit());
            (is_number(first) && is_number(last)).then(|| last.to_owned())
        };
        let own = name(folder);
        let (wanted, last) = match numbered(&own, "ng") {
            Some(last) => ("nvme", last),
            None => ("ng", numbered(&own, "nvme")?),
        };
        let folders = fs::read_dir(folder.parent()?).ok()?.flatten().map(|entry| entry.path());
        let mut twins = folders.filter(|other| numbered(&name(other), wanted).as_ref() == Some(&last));
        // Two candidates would be ambiguous.
        twins.next().filter(|_| twins.next().is_none())
    }

    /// The whole disk of a block device or partition, and all its parts, itself included.
    pub fn disk(&self, folder: &Path) -> Disk {
        let whole = match folder.join("partition").exists() {
            true => folder.parent().unwrap_or(folder),
            false => folder,
        };
        let mut parts = vec![whole.to_owned()];
        for entry in fs::read_dir(whole).into_iter().flatten().flatten() {
            if entry.path().join("partition").exists() {
                parts.push(entry.path());
            }
        }
        parts.sort();
        Disk { whole: whole.to_owned(), parts }
    }

    /// The first of these devices that is mounted, and its mount point.
    ///
    /// # Errors
    /// The path in procfs that cannot be read.
    pub fn mounted(&self, devices: &[PathBuf]) -> Result<Option<(String, PathBuf)>, (PathBuf, io::Error)> {
        let path = self.mountinfo();
        let text = fs::read_to_string(&path).map_err(|why| (path, why))?;
        let numbers: Vec<(String, String)> =
            devices.iter().filter_map(|device| Some((name(device), read(&device.join("dev"))?))).collect();
        for line in text.lines() {
            // proc(5): id, parent, major:minor, root, mount point, options ... - type source options.
            let mut fields = line.split(' ');
            let (Some(number), Some(point)) = (fields.nth(2), fields.nth(1)) else { continue };
            let source = line.split(" - ").nth(1).and_then(|rest| rest.split(' ').nth(1)).unwrap_or("");
            // btrfs has device numbers of its own, so the source is compared too.
            let source = source.strip_prefix("/dev/").unwrap_or("");
            if let Some((name, _)) = numbers.iter().find(|(name, of)| of == number || name == source) {
                return Ok(Some((name.clone(), unescaped(point).into())));
            }
        }
        Ok(None)
    }

    /// MemAvailable, bytes; `None` if the kernel does not report it.
    pub fn available_bytes(&self) -> Option<u64> {
        let text = fs::read_to_string(self.proc.join("meminfo")).ok()?;
        // proc_meminfo(5): the name, a colon, and kB, which are KiB.
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    }

    /// True if one of these devices, or this file, is swap space.
    ///
    /// # Errors
    /// The path in procfs that cannot be read.
    pub fn swapped_to(&self, devices: &[PathBuf], file: Option<&Path>) -> Result<bool, (PathBuf, io::Error)> {
        let path = self.proc.join("swaps");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            // A kernel without swap has no such file; without procfs both files are missing.
            Err(why) if why.kind() == io::ErrorKind::NotFound && self.mountinfo().exists() => {
                return Ok(false);
            }
            Err(why) => return Err((path, why)),
        };
        Ok(text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).any(|place| {
            let place = PathBuf::from(unescaped(place));
            file.is_some_and(|file| is_same(&place, file))
                || devices.iter().any(|device| place == Path::new("/dev").join(name(device)))
        }))
    }

    /// The NUMA node of a device: its own entry, or that of the nearest ancestor with one.
    pub fn node(&self, folder: &Path) -> Option<u32> {
        let above = folder.ancestors().take_while(|above| above.starts_with(&self.sys));
        // A device without a node has -1.
        above.filter_map(|above| read(&above.join("numa_node"))).find_map(|node| node.parse().ok())
    }

    fn mountinfo(&self) -> PathBuf {
        self.proc.join("self/mountinfo")
    }

    /// The first of these devices that is set read-only.
    pub fn read_only(&self, devices: &[PathBuf]) -> Option<String> {
        devices
            .iter()
            .find(|device| number(&device.join("ro")).is_some_and(|ro| ro != 0))
            .map(|device| name(device))
    }

    /// The first of these devices that another one uses (device mapper, md and the like), and that other one.
    pub fn holder(&self, devices: &[PathBuf]) -> Option<(String, String)> {
        devices.iter().find_map(|device| {
            let mut holders: Vec<_> = fs::read_dir(device.join("holders")).ok()?.flatten().collect();
            holders.sort_by_key(fs::DirEntry::file_name);
            Some((name(device), holders.first()?.file_name().to_string_lossy().into_owned()))
        })
    }

    /// The loop device on a file, if any.
    ///
    /// # Errors
    /// The path in sysfs that cannot be read.
    pub fn loop_on(&self, file: &Path) -> Result<Option<String>, (PathBuf, io::Error)> {
        let folder = self.sys.join("block");
        for entry in fs::read_dir(&folder).map_err(|why| (folder.clone(), why))? {
            let device = entry.map_err(|why| (folder.clone(), why))?.path();
            let path = device.join("loop/backing_file");
            let behind = match fs::read(&path) {
                Ok(behind) => behind,
                // Not a loop device, one without a file, or one that was just detached.
                Err(why) if why.kind() == io::ErrorKind::NotFound => continue,
                Err(why) if why.raw_os_error() == Some(libc::ENODEV) => continue,
                Err(why) => return Err((path, why)),
            };
            let behind = behind.strip_suffix(b"\n").unwrap_or(&behind);
            if is_same(Path::new(OsStr::from_bytes(behind)), file) {
                return Ok(Some(name(&device)));
            }
        }
        Ok(None)
    }
}

/// True if both paths lead to the same file: hard links and other mounts give it several names.
fn is_same(one: &Path, other: &Path) -> bool {
    let inode = |path: &Path| rustix::fs::stat(path).ok().map(|stat| (stat.st_dev, stat.st_ino));
    one == other || inode(one).is_some_and(|one| Some(one) == inode(other))
}

/// A disk and its partitions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Disk {
    /// The folder of the whole disk.
    pub whole: PathBuf,
    /// Folders of the disk and its partitions.
    pub parts: Vec<PathBuf>,
}

/// The name of a folder, which is the device's.
pub fn name(folder: &Path) -> String {
    folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The text of a file, trimmed; `None` if it is missing or empty.
pub fn read(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The serial number of a SCSI or SATA disk in its VPD page 0x80 (SPC-4, 7.8.15): a header of four bytes, whose last
/// two are the length, then ASCII padded with spaces; some disks pad with zeros.
pub fn page_80(path: &Path) -> Option<String> {
    let page = fs::read(path).ok()?;
    let (header, rest) = page.split_first_chunk::<4>()?;
    let bytes = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let serial = String::from_utf8_lossy(rest.get(..bytes).unwrap_or(rest));
    let serial = serial.trim_matches(|letter: char| letter.is_whitespace() || letter.is_control());
    (!serial.is_empty()).then(|| serial.to_owned())
}

/// The number of a device, from its folder.
pub fn device_number(folder: &Path) -> Option<Number> {
    let text = read(&folder.join("dev"))?;
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The number in a file.
pub fn number(path: &Path) -> Option<u64> {
    read(path)?.parse().ok()
}

/// proc(5): space, tab, newline and backslash are in octal.
fn unescaped(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_device_of_a_namespace_is_a_sibling_whatever_its_first_number() {
        let folder = tempfile::tempdir().unwrap();
        let system = KernelMounts { sys: folder.path().into(), proc: folder.path().into() };
        let at = |name: &str| folder.path().join("nvme1").join(name);
        // A hidden path of a multipath namespace (c1), a partition, another namespace.
        for name in ["ng1n2", "nvme0n2", "nvme0c1n2", "nvme0n3", "nvme0n2p2", "hwmon2", "ng"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        assert_eq!(system.twin(&at("ng1n2")), Some(at("nvme0n2")));
        assert_eq!(system.twin(&at("nvme0n2")), Some(at("ng1n2")));
        for name in ["nvme0n3", "nvme0c1n2", "nvme0n2p2", "hwmon2", "ng"] {
            assert_eq!(system.twin(&at(name)), None, "{name}");
        }
        std::fs::create_dir(at("nvme7n2")).unwrap();
        assert_eq!(system.twin(&at("ng1n2")), None, "two could be meant");
    }

    #[test]
    fn a_device_is_attached_where_it_or_what_it_hangs_on_says() {
        let folder = tempfile::tempdir().unwrap();
        let system = KernelMounts { sys: folder.path().join("sys"), proc: folder.path().into() };
        let disk = system.sys.join("devices/pci0000:80/0000:80:01.0/nvme/nvme0/nvme0n1");
        std::fs::create_dir_all(disk.join("nvme0n1p1")).unwrap();
        assert_eq!(system.node(&disk), None);
        // An entry above the tree is ignored, and a device without a node has -1.
        std::fs::write(folder.path().join("numa_node"), "5\n").unwrap();
        std::fs::write(disk.join("../../numa_node"), "-1\n").unwrap();
        assert_eq!(system.node(&disk), None);
        std::fs::write(disk.join("../../../numa_node"), "1\n").unwrap();
        assert_eq!(system.node(&disk.join("nvme0n1p1")), Some(1));
        std::fs::write(disk.join("../numa_node"), "0\n").unwrap();
        assert_eq!(system.node(&disk), Some(0));
    }

    #[test]
    fn who_cannot_be_asked_has_not_said_no() {
        let folder = tempfile::tempdir().unwrap();
        let system = KernelMounts { sys: folder.path().into(), proc: folder.path().into() };
        assert_eq!(system.mounted(&[]).unwrap_err().0, folder.path().join("self/mountinfo"));
        assert_eq!(system.swapped_to(&[], None).unwrap_err().0, folder.path().join("swaps"));
        std::fs::create_dir(folder.path().join("self")).unwrap();
        std::fs::write(folder.path().join("self/mountinfo"), "").unwrap();
        assert_eq!(system.mounted(&[]).unwrap(), None);
        assert!(!system.swapped_to(&[], None).unwrap(), "a kernel without swap");
    }
}
