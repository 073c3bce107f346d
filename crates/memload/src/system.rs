//! What sysfs and procfs say about block devices: names, sizes, partitions, who sits on them.
//!
//! Knows files under two roots, so that tests can have their own; must not know what is wanted of a device.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the kernel's trees are mounted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct System {
    /// `/sys`.
    pub sys: PathBuf,
    /// `/proc`.
    pub proc: PathBuf,
}

impl Default for System {
    fn default() -> System {
        System { sys: "/sys".into(), proc: "/proc".into() }
    }
}

/// Major and minor number of a device.
pub type Number = (u32, u32);

impl System {
    /// The folder of a device in sysfs, which is named as the kernel names the device.
    pub fn folder(&self, block: bool, number: Number) -> Option<PathBuf> {
        let kind = if block { "block" } else { "char" };
        fs::canonicalize(self.sys.join(format!("dev/{kind}/{}:{}", number.0, number.1))).ok()
    }

    /// The folder of a block device by its name.
    pub fn block(&self, name: &str) -> Option<PathBuf> {
        fs::canonicalize(self.sys.join("class/block").join(name)).ok()
    }

    /// The whole disk that a block device is, or is a partition of; and all its parts, itself among them.
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

    /// Where a file system of one of these devices is mounted, if anywhere.
    pub fn mounted(&self, devices: &[PathBuf]) -> Option<(String, PathBuf)> {
        let text = fs::read_to_string(self.proc.join("self/mountinfo")).ok()?;
        let numbers: Vec<(String, String)> =
            devices.iter().filter_map(|device| Some((name(device), read(&device.join("dev"))?))).collect();
        for line in text.lines() {
            // proc(5): id, parent, major:minor, root, mount point, options ... - type source options.
            let mut fields = line.split(' ');
            let (Some(number), Some(point)) = (fields.nth(2), fields.nth(1)) else { continue };
            let source = line.split(" - ").nth(1).and_then(|rest| rest.split(' ').nth(1)).unwrap_or("");
            // btrfs has a number of its own, so the source counts too.
            let source = source.strip_prefix("/dev/").unwrap_or("");
            if let Some((name, _)) = numbers.iter().find(|(name, of)| of == number || name == source) {
                return Some((name.clone(), unescaped(point).into()));
            }
        }
        None
    }

    /// True if something is swapped to one of these devices, or to this file.
    pub fn swapped_to(&self, devices: &[PathBuf], file: Option<&Path>) -> bool {
        let text = fs::read_to_string(self.proc.join("swaps")).unwrap_or_default();
        text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).any(|place| {
            let place = PathBuf::from(unescaped(place));
            file == Some(&place) || devices.iter().any(|device| place == Path::new("/dev").join(name(device)))
        })
    }

    /// What the kernel has stacked on one of these devices: device mapper, md, and the like.
    pub fn holder(&self, devices: &[PathBuf]) -> Option<(String, String)> {
        devices.iter().find_map(|device| {
            let mut holders: Vec<_> = fs::read_dir(device.join("holders")).ok()?.flatten().collect();
            holders.sort_by_key(fs::DirEntry::file_name);
            Some((name(device), holders.first()?.file_name().to_string_lossy().into_owned()))
        })
    }

    /// The loop device behind which a file stands, if any.
    pub fn loop_on(&self, file: &Path) -> Option<String> {
        let folders = fs::read_dir(self.sys.join("block")).ok()?.flatten();
        folders.map(|entry| entry.path()).find_map(|folder| {
            let behind = read(&folder.join("loop/backing_file"))?;
            (Path::new(&behind) == file).then(|| name(&folder))
        })
    }
}

/// A disk and its parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Disk {
    /// The folder of the whole.
    pub whole: PathBuf,
    /// Folders of the whole and of its partitions.
    pub parts: Vec<PathBuf>,
}

/// The name of a folder, which is the device's.
pub fn name(folder: &Path) -> String {
    folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The one line of a file; `None` if it is not there or empty.
pub fn read(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The number in a file.
pub fn number(path: &Path) -> Option<u64> {
    read(path)?.parse().ok()
}

/// proc(5): space, tab, newline and backslash stand there in octal.
fn unescaped(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}
