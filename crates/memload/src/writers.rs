//! Finds processes that have a file or device open for writing, from the descriptors in procfs.
//!
//! Knows files under a root, so that tests can have their own; must not know the purpose of the check.

use crate::system::{KernelMounts, Number, device_number};
use rustix::fs::{FileType, OFlags};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What to search for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SearchTarget {
    /// A file, by its device and inode.
    File(u64, u64),
    /// Devices by their numbers: block devices and character devices.
    Devices(Vec<Number>, Vec<Number>),
}

/// A process with write access.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriterProcess {
    /// Its pid.
    pub pid: u32,
    /// Its command name.
    pub comm: String,
}

/// Result of the search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen {
    /// This process has it open.
    Open(WriterProcess),
    /// No process has it open, and all processes of this container were checked.
    NoWriter,
    /// No checked process has it open, but some could not be checked.
    NotAll,
}

impl KernelMounts {
    /// All device numbers through which a disk can be written, where `concerned` are the disk and its partitions: their
    /// own, the generic device of an NVMe namespace, and SCSI generic devices.
    pub fn names(&self, whole: &Path, concerned: &[PathBuf]) -> SearchTarget {
        let blocks = concerned.iter().filter_map(|device| device_number(device));
        let generic = self.twin(whole).into_iter();
        let scsi = fs::read_dir(whole.join("device/scsi_generic")).into_iter().flatten().flatten();
        let generic = generic.chain(scsi.map(|entry| entry.path()));
        SearchTarget::Devices(blocks.collect(), generic.filter_map(|device| device_number(&device)).collect())
    }

    /// The first other process that has it open for writing.
    ///
    /// # Errors
    /// The path that cannot be read, for example without procfs.
    pub fn find_writer(&self, search_target: &SearchTarget) -> Result<Seen, (PathBuf, io::Error)> {
        let entries = fs::read_dir(&self.proc).map_err(|why| (self.proc.clone(), why))?;
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let mut pids: Vec<u32> = pids.filter(|pid| *pid != std::process::id()).collect();
        pids.sort_unstable();
        // If pid 1 is not visible, only the user's own processes are (hidepid).
        let mut all = pids.first() == Some(&1) || std::process::id() == 1;
        for pid in pids {
            let folder = self.proc.join(pid.to_string());
            match fs::read_dir(folder.join("fd")) {
                Ok(open) => {
                    for descriptor in open.flatten() {
                        if is_search_target(&folder, &descriptor.path(), search_target) {
                            let comm = crate::system::read(&folder.join("comm")).unwrap_or_default();
                            return Ok(Seen::Open(WriterProcess { pid, comm }));
                        }
                    }
                }
                // The process has ended since.
                Err(why) if why.kind() == io::ErrorKind::NotFound => {}
                Err(why) if why.raw_os_error() == Some(libc::ESRCH) => {}
                Err(_) => all = false,
            }
        }
        Ok(if all { Seen::NoWriter } else { Seen::NotAll })
    }
}

/// True if a descriptor is one of the searched files or devices and allows writing.
fn is_search_target(process: &Path, descriptor: &Path, search_target: &SearchTarget) -> bool {
    // stat(2) follows the link to the open file, whatever its name; a closed descriptor is not found.
    let Ok(stat) = rustix::fs::stat(descriptor) else { return false };
    let number = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    let is_it = match (search_target, FileType::from_raw_mode(stat.st_mode)) {
        (SearchTarget::File(device, inode), FileType::RegularFile) => {
            (*device, *inode) == (stat.st_dev, stat.st_ino)
        }
        (SearchTarget::Devices(blocks, _), FileType::BlockDevice) => blocks.contains(&number),
        (SearchTarget::Devices(_, characters), FileType::CharacterDevice) => characters.contains(&number),
        _ => false,
    };
    is_it && descriptor.file_name().is_some_and(|name| may_write(&process.join("fdinfo").join(name)))
}

/// proc(5): a line `flags:` with the flags of open(2), in octal. Without it, write access is assumed.
fn may_write(info: &Path) -> bool {
    let Ok(text) = fs::read_to_string(info) else { return true };
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_none_or(|flags| flags & OFlags::ACCMODE.bits() != OFlags::RDONLY.bits())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    /// A process with descriptor 4 open on `on`.
    fn process(system: &KernelMounts, pid: u32, comm: &str, on: &Path, flags: &str) {
        let folder = system.proc.join(pid.to_string());
        for sub in ["fd", "fdinfo"] {
            fs::create_dir_all(folder.join(sub)).unwrap();
        }
        fs::write(folder.join("comm"), format!("{comm}\n")).unwrap();
        symlink(on, folder.join("fd/4")).unwrap();
        fs::write(folder.join("fdinfo/4"), format!("pos:\t0\nflags:\t{flags}\nmnt_id:\t29\n")).unwrap();
    }

    #[test]
    fn who_has_it_open_for_writing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let system = KernelMounts { sys: folder.path().join("sys"), proc: folder.path().join("proc") };
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "x").unwrap();
        fs::hard_link(&file, &link).unwrap();
        let stat = fs::metadata(&file).unwrap();
        let search_target = SearchTarget::File(stat.dev(), stat.ino());
        assert_eq!(system.find_writer(&search_target).unwrap_err().0, system.proc);
        process(&system, 1, "init", Path::new("/dev/null"), "0100002");
        process(&system, 20, "reader", &file, "0100000");
        process(&system, 30, "writer of another", folder.path(), "02");
        assert_eq!(system.find_writer(&search_target).unwrap(), Seen::NoWriter);
        process(&system, 100, "qemu-system-x86", &link, "02140002");
        let found = WriterProcess { pid: 100, comm: "qemu-system-x86".to_owned() };
        assert_eq!(system.find_writer(&search_target).unwrap(), Seen::Open(found));
        fs::remove_dir_all(system.proc.join("100")).unwrap();
        // A file instead of the folder, because reading a folder without permission also fails.
        fs::create_dir(system.proc.join("100")).unwrap();
        fs::write(system.proc.join("100/fd"), "").unwrap();
        assert_eq!(system.find_writer(&search_target).unwrap(), Seen::NotAll);
        fs::remove_dir_all(system.proc.join("100")).unwrap();
        fs::remove_dir_all(system.proc.join("1")).unwrap();
        assert_eq!(
            system.find_writer(&search_target).unwrap(),
            Seen::NotAll,
            "who is not shown the first process"
        );
    }

    #[test]
    fn a_disk_has_more_names_than_one() {
        let folder = tempfile::tempdir().unwrap();
        let system = KernelMounts { sys: folder.path().join("sys"), proc: folder.path().join("proc") };
        let at = |name: &str| folder.path().join("nvme0").join(name);
        // Linux uses these numbers for /dev/null only (Documentation/admin-guide/devices.txt).
        for (name, number) in [("nvme0n1", "259:0"), ("nvme0n1/nvme0n1p1", "259:1"), ("ng0n1", "1:3")] {
            fs::create_dir_all(at(name)).unwrap();
            fs::write(at(name).join("dev"), number).unwrap();
        }
        let scsi = at("nvme0n1/device/scsi_generic/sg0");
        fs::create_dir_all(&scsi).unwrap();
        fs::write(scsi.join("dev"), "21:0").unwrap();
        let names = system.names(&at("nvme0n1"), &[at("nvme0n1"), at("nvme0n1/nvme0n1p1")]);
        assert_eq!(names, SearchTarget::Devices(vec![(259, 0), (259, 1)], vec![(1, 3), (21, 0)]));
        process(&system, 1, "init", Path::new("/dev/zero"), "02");
        assert_eq!(system.find_writer(&names).unwrap(), Seen::NoWriter);
        process(&system, 7, "fio", Path::new("/dev/null"), "02");
        assert_eq!(
            system.find_writer(&names).unwrap(),
            Seen::Open(WriterProcess { pid: 7, comm: "fio".to_owned() })
        );
    }
}
