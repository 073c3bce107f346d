//! Permission to load a target: the user's consent to lose data, and no other user of the device.
//!
//! Knows what a plan does to a target; must not know engines. The only change it makes is to begin a requested file.

use crate::pending_file::{CreatedFile, PendingFile};
use crate::system::KernelMounts;
use crate::target::{Target, TargetError, TargetKind, direct_alignment};
use crate::writers::{SearchTarget, Seen, WriterProcess};
use rustix::fs::{OFlags, SeekFrom};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// The user's consent.
#[derive(Clone, Debug, Default)]
pub struct Consent {
    /// The data on the device with this serial number may be lost.
    pub destroy_data_on: Option<String>,
    /// A file of this size may be created.
    pub create: Option<u64>,
    /// An existing file may be overwritten.
    pub overwrite: bool,
    /// Files that `create` made for earlier runs; they may also be overwritten.
    pub made: Vec<CreatedFile>,
    /// A device may be read while it is in use.
    pub shared: bool,
}

/// Reason why a target may not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum TargetRefusal {
    /// All data would be lost, without consent.
    #[error(
        "{}: this load writes to the device, which is a {what}: its data would be lost; if the data are not \
         needed, add --destroy-data-on {serial}", .path.display()
    )]
    NoConsent {
        /// The path.
        path: PathBuf,
        /// Description of the target.
        what: String,
        /// The serial number to give.
        serial: String,
    },
    /// The consent is for another device.
    #[error("{}: --destroy-data-on names `{named}`, but the serial number here is `{serial}`; nothing was \
        written", .path.display())]
    OtherSerial {
        /// The path.
        path: PathBuf,
        /// The given serial number.
        named: String,
        /// The target's serial number.
        serial: String,
    },
    /// An option that does not apply to this target.
    #[error("{}: {flag} is for {meant}, but this is a {what}", .path.display())]
    Flag {
        /// The path.
        path: PathBuf,
        /// The option.
        flag: &'static str,
        /// The kind of target that it applies to.
        meant: &'static str,
        /// The kind of this target.
        what: String,
    },
    /// A file system of it is mounted.
    #[error("{}: {device} is mounted on {}; unmount it first, or read it while it is mounted with --shared", .path.display(), .point.display())]
    Mounted {
        /// The path.
        path: PathBuf,
        /// The device or the partition.
        device: String,
        /// The mount point.
        point: PathBuf,
    },
    /// Another block device uses it.
    #[error("{}: {device} is held by {holder}; remove that holder first", .path.display())]
    Held {
        /// The path.
        path: PathBuf,
        /// The device or the partition.
        device: String,
        /// That device.
        holder: String,
    },
    /// Another process has it open for writing, and could find data that it did not write.
    #[error("{}: process {} ({}) has it open for writing; end that process first", .path.display(), .opener.pid, .opener.comm)]
    Opened {
        /// The path.
        path: PathBuf,
        /// That process.
        opener: WriterProcess,
    },
    /// It is swap space.
    #[error("{}: it is in use as swap space; run `swapoff` on it first", .path.display())]
    Swap {
        /// The path.
        path: PathBuf,
    },
    /// It is set read-only, which passthrough commands would ignore.
    #[error("{}: {device} is set read-only; `blockdev --setrw` allows writing", .path.display())]
    ReadOnly {
        /// The path.
        path: PathBuf,
        /// The device or the partition.
        device: String,
    },
    /// Without a serial number the user cannot name it for consent.
    #[error(
        "{}: the device reports no serial number, so --destroy-data-on cannot name it; nothing was written", .path.display()
    )]
    NoSerial {
        /// The path.
        path: PathBuf,
    },
    /// It cannot be checked whether it is in use.
    #[error(
        "{}: this load would write to it, and it cannot be checked whether another program uses it: {why}", .path.display()
    )]
    Unseen {
        /// The path.
        path: PathBuf,
        /// The missing information.
        why: String,
    },
    /// Another program uses it.
    #[error("{}: another program uses it (an exclusive open failed)", .path.display())]
    Busy {
        /// The path.
        path: PathBuf,
    },
    /// The file does not exist.
    #[error("{}: there is no such file; --create SIZE makes one, such as --create 1GiB", .path.display())]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// The device does not exist, and a file in /dev would be in memory.
    #[error(
        "{}: there is no such device; `ls /dev/ng* /dev/nvme*` lists NVMe devices; a file must not be under \
         /dev", .path.display()
    )]
    NoDevice {
        /// The path.
        path: PathBuf,
    },
    /// The file exists already.
    #[error("{}: it already exists; leave --create out, or give another name", .path.display())]
    Exists {
        /// The path.
        path: PathBuf,
    },
    /// The content of the file would be lost.
    #[error(
        "{}: this load writes into this file, which holds {bytes} B; if they are not needed, add --overwrite", .path.display()
    )]
    NoOverwrite {
        /// The path.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// It cannot be created or opened.
    #[error("{}: {why}", .path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// The new file cannot be inspected.
    #[error(transparent)]
    Target(#[from] TargetError),
}

/// Keeps exclusive access to a device until it is dropped.
#[derive(Debug, Default)]
pub struct ExclusiveAccess {
    _device: Option<OwnedFd>,
    /// The file that is being created.
    pub pending_file: Option<PendingFile>,
    /// Some processes could not be checked for write access to the file.
    pub unseen: bool,
}

/// Checks that a run may use the target, for reading or also for writing; begins the requested file.
///
/// # Errors
/// If the run may not use it.
pub fn permit(
    target: &mut Target,
    writes: bool,
    consent: &Consent,
    system: &KernelMounts,
) -> Result<ExclusiveAccess, TargetRefusal> {
    let path = target.path.clone();
    if target.is_device() {
        if let Some(flag) = stray_file_flag(consent) {
            return Err(TargetRefusal::Flag { path, flag, meant: "files", what: target.to_string() });
        }
        device_consent(target, writes, consent)?;
        if consent.shared && !writes {
            return Ok(ExclusiveAccess::default());
        }
        return unused(target, writes, system);
    }
    if consent.destroy_data_on.is_some() {
        let flag = "--destroy-data-on";
        return Err(TargetRefusal::Flag { path, flag, meant: "devices", what: target.to_string() });
    }
    if consent.shared {
        return Err(TargetRefusal::Flag {
            path,
            flag: "--shared",
            meant: "devices",
            what: target.to_string(),
        });
    }
    // A file that has replaced ours does not count as made by us.
    let is_ours = target
        .identity
        .is_some_and(|(device, inode, _)| consent.made.iter().any(|made| made.is(device, inode)));
    let among_devices = target.real.starts_with("/dev") && !target.real.starts_with("/dev/shm");
    match (target.kind == TargetKind::Absent, consent.create) {
        (true, _) if among_devices => return Err(TargetRefusal::NoDevice { path }),
        (true, None) => return Err(TargetRefusal::Missing { path }),
        (false, Some(_)) if !is_ours => return Err(TargetRefusal::Exists { path }),
        (true, Some(bytes)) => {
            let pending_file =
                PendingFile::begin(&target.real).map_err(|why| TargetRefusal::Io { path, why })?;
            target.bytes = bytes;
            target.lba_bytes = direct_alignment(&pending_file.place());
            return Ok(ExclusiveAccess { pending_file: Some(pending_file), ..ExclusiveAccess::default() });
        }
        (false, _) => {}
    }
    if writes {
        if !consent.overwrite && !is_ours {
            return Err(TargetRefusal::NoOverwrite { path, bytes: target.bytes });
        }
        let unseen = |(at, why): (PathBuf, io::Error)| TargetRefusal::Unseen {
            path: path.clone(),
            why: format!("{}: {why}", at.display()),
        };
        if let Some(holder) = system.loop_on(&target.real).map_err(unseen)? {
            return Err(TargetRefusal::Held { path, device: "it".to_owned(), holder });
        }
        if system.swapped_to(&[], Some(&target.real)).map_err(unseen)? {
            return Err(TargetRefusal::Swap { path });
        }
        let search_target = target.identity.map(|(device, inode, _)| SearchTarget::File(device, inode));
        match search_target
            .map(|search_target| system.find_writer(&search_target).map_err(unseen))
            .transpose()?
        {
            Some(Seen::Open(opener)) => return Err(TargetRefusal::Opened { path, opener }),
            // A file usually belongs to one user, whose processes can be checked.
            Some(Seen::NotAll) => return Ok(ExclusiveAccess { unseen: true, ..ExclusiveAccess::default() }),
            Some(Seen::NoWriter) | None => {}
        }
    }
    Ok(ExclusiveAccess::default())
}

fn stray_file_flag(consent: &Consent) -> Option<&'static str> {
    match consent {
        Consent { create: Some(_), .. } => Some("--create"),
        Consent { overwrite: true, .. } => Some("--overwrite"),
        _ => None,
    }
}

fn device_consent(target: &Target, writes: bool, consent: &Consent) -> Result<(), TargetRefusal> {
    let path = target.path.clone();
    let serial = target.serial.clone().unwrap_or_default();
    if writes && serial.is_empty() {
        return Err(TargetRefusal::NoSerial { path });
    }
    match &consent.destroy_data_on {
        Some(named) if *named != serial => {
            Err(TargetRefusal::OtherSerial { path, named: named.clone(), serial })
        }
        None if writes => Err(TargetRefusal::NoConsent { path, what: target.to_string(), serial }),
        _ => Ok(()),
    }
}

fn unreadable((path, why): (PathBuf, io::Error)) -> TargetRefusal {
    TargetRefusal::Io { path, why }
}

/// Checks that a device is unused, and keeps it so while the result lives. Devices whose users cannot be checked may be
/// read, but not written.
fn unused(target: &Target, writes: bool, system: &KernelMounts) -> Result<ExclusiveAccess, TargetRefusal> {
    let path = target.path.clone();
    let Some(folder) = &target.block else {
        // A namespace behind a FUSE file is no device of this kernel, so this kernel cannot use it.
        if writes && target.kind != TargetKind::NvmeFile {
            let why = "sysfs shows no block device of this namespace".to_owned();
            return Err(TargetRefusal::Unseen { path, why });
        }
        return Ok(ExclusiveAccess::default());
    };
    let disk = system.disk(folder);
    let whole = disk.whole.clone();
    // A user of a partition blocks the disk, and a user of the disk blocks its partitions.
    let concerned = match disk.whole == *folder {
        true => disk.parts,
        false => vec![disk.whole, folder.clone()],
    };
    if let Some(device) = system.read_only(&concerned).filter(|_| writes) {
        return Err(TargetRefusal::ReadOnly { path, device });
    }
    if let Some((device, point)) = system.mounted(&concerned).map_err(unreadable)? {
        return Err(TargetRefusal::Mounted { path, device, point });
    }
    if let Some((device, holder)) = system.holder(&concerned) {
        return Err(TargetRefusal::Held { path, device, holder });
    }
    if system.swapped_to(&concerned, None).map_err(unreadable)? {
        return Err(TargetRefusal::Swap { path });
    }
    if writes {
        // Some programs open a device without O_EXCL, for example a virtual machine that uses it as a disk.
        match system.find_writer(&system.names(&whole, &concerned)).map_err(unreadable)? {
            Seen::Open(opener) => return Err(TargetRefusal::Opened { path, opener }),
            Seen::NotAll => {
                let why = "only root can see what processes of other users have open".to_owned();
                return Err(TargetRefusal::Unseen { path, why });
            }
            Seen::NoWriter => {}
        }
    }
    // The generic device has no exclusive open; its block device has one, and other programs would mount that.
    let block = match (target.kind, &target.twin) {
        (TargetKind::NvmeGeneric, Some((block, _))) => block.clone(),
        (TargetKind::NvmeGeneric, None) if writes => {
            let why = "sysfs shows no number of its block device".to_owned();
            return Err(TargetRefusal::Unseen { path, why });
        }
        (TargetKind::NvmeGeneric, None) => return Ok(ExclusiveAccess::default()),
        _ => target.real.clone(),
    };
    match target.open(&block, OFlags::RDONLY | OFlags::EXCL | OFlags::NONBLOCK) {
        Ok(device) => Ok(ExclusiveAccess { _device: Some(device), ..ExclusiveAccess::default() }),
        Err(why) if why.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
            Err(TargetRefusal::Busy { path })
        }
        Err(why) if why.kind() == io::ErrorKind::NotFound && block != target.real => match writes {
            true => {
                let why = format!("its block device {} does not exist", block.display());
                Err(TargetRefusal::Unseen { path, why })
            }
            false => Ok(ExclusiveAccess::default()),
        },
        Err(why) => Err(TargetRefusal::Io { path: block, why }),
    }
}

/// True if the file begins with a hole: the file system then serves reads itself, and no device moves data.
pub(crate) fn begins_with_a_hole(target: &Target) -> bool {
    if target.kind != TargetKind::File {
        return false;
    }
    let Ok(file) = target.open(&target.real, OFlags::RDONLY) else { return false };
    match rustix::fs::seek(&file, SeekFrom::Data(0)) {
        Ok(first) => first > 0,
        Err(errno) => errno == Errno::NXIO,
    }
}

/// True if the file is in memory: since Linux 6.6 tmpfs accepts O_DIRECT but still uses the page cache.
pub(crate) fn lies_in_memory(target: &Target) -> bool {
    let kind = || rustix::fs::statfs(&target.real).ok().map(|stat| stat.f_type);
    target.kind == TargetKind::File && kind() == Some(libc::TMPFS_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::tests::{NULL, generic};
    use std::path::Path;

    /// A tree with one disk, nothing mounted and no swap.
    fn tree() -> (tempfile::TempDir, KernelMounts, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let system = KernelMounts { sys: folder.path().join("sys"), proc: folder.path().join("proc") };
        let disk = system.sys.join("nvme7n1");
        std::fs::create_dir_all(&disk).unwrap();
        std::fs::create_dir_all(system.proc.join("self")).unwrap();
        std::fs::create_dir_all(system.proc.join("1/fd")).unwrap();
        std::fs::write(system.proc.join("self/mountinfo"), "").unwrap();
        (folder, system, disk)
    }

    fn reported(mut target: Target, writes: bool, system: &KernelMounts) -> Result<(), String> {
        let named = writes.then(|| "WK-1".to_owned());
        let consent = Consent { destroy_data_on: named, ..Consent::default() };
        permit(&mut target, writes, &consent, system).map(|_| ()).map_err(|error| error.to_string())
    }

    #[test]
    fn nothing_is_written_whose_users_cannot_be_seen() {
        let (_folder, system, disk) = tree();
        let gone = Path::new("/dev/nvme7777n1").to_owned();
        let cases = [
            (generic(None, None), "sysfs shows no block device of this namespace"),
            (generic(Some(disk.clone()), None), "sysfs shows no number of its block device"),
            (
                generic(Some(disk.clone()), Some((gone, (259, 7)))),
                "its block device /dev/nvme7777n1 does not exist",
            ),
        ];
        for (target, why) in cases {
            let refused = reported(target.clone(), true, &system).unwrap_err();
            assert!(
                refused.starts_with("/dev/ng7n1: this load would write to it") && refused.ends_with(why),
                "{refused}"
            );
            reported(target, false, &system).unwrap();
        }
        std::fs::remove_file(system.proc.join("self/mountinfo")).unwrap();
        let refused = reported(generic(Some(disk), None), true, &system).unwrap_err();
        assert!(refused.contains("proc/self/mountinfo: No such file"), "{refused}");
    }

    #[test]
    fn a_file_is_overwritten_only_if_it_is_seen_to_be_empty() {
        let (folder, system, _) = tree();
        let (path, link) = (folder.path().join("file "), folder.path().join("link"));
        std::fs::write(&path, [0; 512]).unwrap();
        std::fs::hard_link(&path, &link).unwrap();
        let reported = |writes: bool| {
            let mut target = Target::inspect(&path, &system).unwrap();
            let consent = Consent { overwrite: true, ..Consent::default() };
            permit(&mut target, writes, &consent, &system).map(|_| ()).map_err(|error| error.to_string())
        };
        let refused = reported(true).unwrap_err();
        assert!(
            refused.contains("this load would write to it, and it cannot be checked whether")
                && refused.contains("/sys/block: No such file"),
            "{refused}"
        );
        reported(false).unwrap();
        let device = system.sys.join("block/loop7/loop");
        std::fs::create_dir_all(&device).unwrap();
        reported(true).unwrap();
        // The kernel ends the name with a newline. Another name of the file (a hard link) is the same file.
        for name in [&path, &link] {
            let mut text = name.as_os_str().as_encoded_bytes().to_vec();
            text.push(b'\n');
            std::fs::write(device.join("backing_file"), &text).unwrap();
            let refused = reported(true).unwrap_err();
            assert!(refused.ends_with("it is held by loop7; remove that holder first"), "{refused}");
        }
        std::fs::remove_file(device.join("backing_file")).unwrap();
        std::fs::create_dir(device.join("backing_file")).unwrap();
        assert!(reported(true).unwrap_err().contains("loop/backing_file: Is a directory"));
        std::fs::remove_dir(device.join("backing_file")).unwrap();
        let swap = format!("Filename Type Size Used Priority\n{} file 1 0 -2\n", link.display());
        std::fs::write(system.proc.join("swaps"), swap).unwrap();
        assert!(reported(true).unwrap_err().contains("swap space"));
    }

    #[test]
    fn what_is_in_the_way_is_named() {
        let (_folder, system, disk) = tree();
        let twin = (PathBuf::from(NULL.0), (1, 5));
        let refused = reported(generic(Some(disk), Some(twin)), true, &system).unwrap_err();
        assert_eq!(refused, "/dev/null: it is not the same namespace as /dev/ng7n1");
    }

    #[test]
    fn who_has_no_name_cannot_be_agreed_upon() {
        let (_folder, system, _) = tree();
        for serial in [None, Some(String::new())] {
            let mut target = Target { serial, ..generic(None, None) };
            for named in [None, Some(String::new()), Some("WK-1".to_owned())] {
                let consent = Consent { destroy_data_on: named, ..Consent::default() };
                let refused =
                    permit(&mut target, true, &consent, &system).map(|_| ()).unwrap_err().to_string();
                assert!(refused.contains("reports no serial number"), "{refused}");
            }
            permit(&mut target, false, &Consent::default(), &system).unwrap();
        }
    }
}
