//! Inspection of a path: an NVMe namespace by either of its devices, another block device, a file, or a file to be
//! created.
//!
//! Must inspect without changes; must not know the purpose, nor permission.

use crate::nvme::{Controller, IDENTIFY_BYTES, IOCTL_ADMIN_CMD, IOCTL_ID, Namespace, Passthru};
use crate::system::{self, KernelMounts, Number};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Maximum blocks of a command if the target has no limit: the SSD of the thesis took 32 (algorithms.md 7.2).
const FILE_BLOCKS: u64 = 32;
/// Bytes of such a block.
const FILE_BLOCK_BYTES: u64 = 4096;
/// Default maximum memory segments of a command: Linux's limit for NVMe (NVME_MAX_SEGS).
const SEGMENTS: u32 = 127;
/// Bytes of a sector in sysfs, independent of the device's blocks.
const SECTOR_BYTES: u64 = 512;

/// Kind of a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TargetKind {
    /// The generic device of an NVMe namespace, `/dev/ngXnY`.
    NvmeGeneric,
    /// The namespace's block device, `/dev/nvmeXnY`.
    NvmeBlock,
    /// A file that answers NVMe's ioctls: a device behind FUSE.
    NvmeFile,
    /// Any other block device, including partitions of NVMe.
    Block,
    /// An ordinary file.
    File,
    /// A file that does not exist yet.
    Absent,
}

/// Data that passthrough needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nvme {
    /// The namespace's number.
    pub nsid: u32,
    /// Bytes of metadata per block; `None` if the device did not answer Identify.
    pub metadata_bytes: Option<u16>,
    /// The generic device; the path itself if it is one.
    pub generic: Option<PathBuf>,
}

/// An inspected path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// The path as given.
    pub path: PathBuf,
    /// The path without symbolic links.
    pub real: PathBuf,
    /// Its kind.
    pub kind: TargetKind,
    /// Its size in bytes.
    pub bytes: u64,
    /// Alignment of transfers on the device's side: an LBA, or the alignment for O_DIRECT.
    pub lba_bytes: u32,
    /// Maximum bytes of a command.
    pub max_bytes: u64,
    /// Maximum memory segments of a command.
    pub max_segments: u32,
    /// NVMe data, for a namespace.
    pub nvme: Option<Nvme>,
    /// Serial number of the device, or its kernel name if it has none; `None` for files.
    pub serial: Option<String>,
    /// The model, if known.
    pub model: Option<String>,
    /// sysfs folder of its block device.
    pub(crate) block: Option<PathBuf>,
    /// Path and number of the namespace's other device, if there is one: the generic device of a block device, or the
    /// block device of a generic one.
    pub(crate) twin: Option<(PathBuf, Number)>,
    /// Identity when it was inspected: device, inode, device number.
    pub(crate) identity: Option<(u64, u64, Number)>,
}

/// Reason why a path cannot be a target.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// It could not be inspected.
    #[error("{}: {why}", .path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// It is of an unsupported kind.
    #[error("{}: it is {is}; give an NVMe namespace (/dev/ng0n1, /dev/nvme0n1), a block device or a file", .path.display())]
    Kind {
        /// The path.
        path: PathBuf,
        /// Its kind.
        is: String,
    },
    /// It does not report required data.
    #[error("{}: {what}", .path.display())]
    MissingData {
        /// The path.
        path: PathBuf,
        /// The missing data.
        what: &'static str,
    },
}

impl Target {
    /// Inspects a path.
    ///
    /// # Errors
    /// If it is no device and no file, or cannot be inspected.
    pub fn inspect(path: &Path, system: &KernelMounts) -> Result<Target, TargetError> {
        let io = |why: io::Error| TargetError::Io { path: path.to_owned(), why };
        let real = match std::fs::canonicalize(path) {
            Ok(real) => real,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return absent(path).map_err(io),
            Err(why) => return Err(io(why)),
        };
        let stat = rustix::fs::stat(&real).map_err(|errno| io(errno.into()))?;
        let device = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
        let mut target = Target {
            path: path.to_owned(),
            real,
            kind: TargetKind::File,
            bytes: u64::try_from(stat.st_size).unwrap_or(0),
            lba_bytes: 0,
            max_bytes: FILE_BLOCKS * FILE_BLOCK_BYTES,
            max_segments: SEGMENTS,
            nvme: None,
            serial: None,
            model: None,
            block: None,
            twin: None,
            identity: Some((stat.st_dev, stat.st_ino, device)),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => target.file()?,
            FileType::BlockDevice => target.block_device(device, system)?,
            FileType::CharacterDevice => target.character_device(device, system)?,
            other => return Err(TargetError::Kind { path: path.to_owned(), is: in_words(other).to_owned() }),
        }
        Ok(target)
    }

    /// True for a device, whose data is lost by writes.
    pub const fn is_device(&self) -> bool {
        !matches!(self.kind, TargetKind::File | TargetKind::Absent)
    }

    /// Inspects the file that was just created under this target's path.
    ///
    /// # Errors
    /// If another file has the path.
    pub(crate) fn made(&self, file: &OwnedFd, system: &KernelMounts) -> Result<Target, TargetError> {
        let target = Target::inspect(&self.path, system)?;
        let io = |why: io::Error| TargetError::Io { path: self.path.clone(), why };
        let stat = rustix::fs::fstat(file).map_err(|errno| io(errno.into()))?;
        match target.identity {
            Some((device, inode, _)) if (device, inode) == (stat.st_dev, stat.st_ino) => Ok(target),
            _ => Err(io(io::Error::other("another file has taken its place"))),
        }
    }

    /// The NUMA node of the device, or of the device with the file; `None` if sysfs has none.
    pub(crate) fn node(&self, system: &KernelMounts) -> Option<u32> {
        let below = || {
            let (device, ..) = self.identity?;
            system.folder(true, (rustix::fs::major(device), rustix::fs::minor(device)))
        };
        let folder = if self.is_device() { self.block.clone() } else { below() };
        // The tree may be behind a symbolic link.
        let sys = KernelMounts { sys: std::fs::canonicalize(&system.sys).ok()?, proc: system.proc.clone() };
        sys.node(&std::fs::canonicalize(folder?).ok()?)
    }

    /// Opens the inspected path or the other device of its namespace; fails if another file has replaced it.
    pub(crate) fn open(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOCTTY;
        let file = rustix::fs::open(path, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        let device = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
        if path == self.real {
            if Some((stat.st_dev, stat.st_ino, device)) != self.identity {
                return Err(io::Error::other("another file has taken its place"));
            }
        } else {
            let serial = identify(&file, 1, 0).map(|answer| Controller::parse(&answer).serial);
            if !self.is_twin(path, device, namespace_id(&file), serial) {
                return Err(io::Error::other(format!(
                    "it is not the same namespace as {}",
                    self.path.display()
                )));
            }
        }
        Ok(file)
    }

    /// True if `path` is the other device of this namespace, by its number in sysfs and by its own answers.
    fn is_twin(&self, path: &Path, number: Number, nsid: Option<u32>, serial: Option<String>) -> bool {
        let Some(nvme) = &self.nvme else { return false };
        let is_there = self.twin.as_ref().is_some_and(|(twin, of)| twin == path && *of == number);
        // Without permission to ask for the serial number, the other two suffice.
        let was_asked =
            nvme.metadata_bytes.is_some() && serial.as_ref().is_some_and(|serial| !serial.is_empty());
        is_there && nsid == Some(nvme.nsid) && (!was_asked || serial == self.serial)
    }

    /// Path and number of a sibling device: in the same folder of /dev, under the kernel's name.
    fn node_of(&self, folder: &Path) -> Option<(PathBuf, Number)> {
        Some((self.real.with_file_name(system::name(folder)), system::device_number(folder)?))
    }

    fn file(&mut self) -> Result<(), TargetError> {
        self.lba_bytes = direct_alignment(&self.real);
        // Only a file behind FUSE answers this ioctl; on any other file it has no effect.
        let Ok(file) = self.open(&self.real, OFlags::RDONLY | OFlags::NONBLOCK) else { return Ok(()) };
        let Some(nsid) = namespace_id(&file) else { return Ok(()) };
        self.kind = TargetKind::NvmeFile;
        self.serial = Some(system::name(&self.real));
        let no = "it answers NVMe's ioctls, but not Identify";
        if !self.identify(&file, nsid) {
            return Err(TargetError::MissingData { path: self.path.clone(), what: no });
        }
        Ok(())
    }

    fn block_device(&mut self, device: Number, system: &KernelMounts) -> Result<(), TargetError> {
        let missing = |what| TargetError::MissingData { path: self.path.clone(), what };
        let folder =
            system.folder(true, device).ok_or_else(|| missing("sysfs has no entry for this device"))?;
        self.kind = TargetKind::Block;
        self.size_from(&folder, system);
        let name = system::name(&folder);
        let is_whole = system.disk(&folder).whole == folder;
        // Passthrough ignores partitions: a command would access the whole namespace.
        if is_whole
            && name.starts_with("nvme")
            && let Ok(file) = self.open(&self.real, OFlags::RDONLY | OFlags::NONBLOCK)
            && let Some(nsid) = namespace_id(&file)
        {
            self.kind = TargetKind::NvmeBlock;
            self.identify(&file, nsid);
            self.twin = system.twin(&folder).and_then(|generic| self.node_of(&generic));
            let generic = self.twin.as_ref().map(|(path, _)| path.clone()).filter(|path| path.exists());
            if let Some(nvme) = &mut self.nvme {
                nvme.generic = generic;
            }
        }
        Ok(())
    }

    fn character_device(&mut self, device: Number, system: &KernelMounts) -> Result<(), TargetError> {
        let folder = system.folder(false, device);
        let name = folder.as_deref().map(system::name).unwrap_or_default();
        let kind = |is: String| TargetError::Kind { path: self.path.clone(), is };
        if !name.starts_with("ng") {
            return Err(kind(match name.starts_with("nvme") {
                true => "an NVMe controller".to_owned(),
                false => in_words(FileType::CharacterDevice).to_owned(),
            }));
        }
        self.kind = TargetKind::NvmeGeneric;
        if let Some(block) = folder.and_then(|folder| system.twin(&folder)) {
            self.size_from(&block, system);
            self.twin = self.node_of(&block);
        }
        let file = self.open(&self.real, OFlags::RDONLY | OFlags::NONBLOCK);
        let file = file.map_err(|why| TargetError::Io { path: self.path.clone(), why })?;
        let path = self.path.clone();
        let missing = |what| TargetError::MissingData { path, what };
        let Some(nsid) = namespace_id(&file) else {
            return Err(missing("it does not report the number of its namespace"));
        };
        if !self.identify(&file, nsid) && self.bytes == 0 {
            return Err(missing("neither Identify nor sysfs reports its size"));
        }
        if let Some(nvme) = &mut self.nvme {
            nvme.generic = Some(self.real.clone());
        }
        Ok(())
    }

    fn size_from(&mut self, folder: &Path, system: &KernelMounts) {
        let whole = system.disk(folder).whole;
        let queue = whole.join("queue");
        let limit = |file: &str| system::number(&queue.join(file));
        self.bytes = system::number(&folder.join("size")).unwrap_or(0) * SECTOR_BYTES;
        self.lba_bytes = limit("logical_block_size").and_then(|bytes| bytes.try_into().ok()).unwrap_or(512);
        // The kernel splits larger commands. Pages of a command need not be contiguous.
        let sectors = limit("max_sectors_kb").map(|kib| kib << 10);
        let segments = limit("max_segments");
        self.max_segments = segments.and_then(|most| most.try_into().ok()).unwrap_or(SEGMENTS);
        let segments = segments.map(|pages| pages << 12);
        let least = sectors.into_iter().chain(segments).min();
        self.max_bytes = least.unwrap_or(self.max_bytes).max(u64::from(self.lba_bytes));
        let named = |file: &str| system::read(&whole.join(file));
        let serial = named("device/serial").or_else(|| named("serial")).or_else(|| named("wwid"));
        // For SCSI and SATA.
        let serial = serial.or_else(|| system::page_80(&whole.join("device/vpd_pg80")));
        let serial = serial.or_else(|| named("device/wwid"));
        self.serial = Some(serial.unwrap_or_else(|| system::name(&whole)));
        self.model = named("device/model");
        self.block = Some(folder.to_owned());
    }

    /// Asks the device itself; false if it does not answer. Lower limits from sysfs are kept.
    fn identify(&mut self, file: &OwnedFd, nsid: u32) -> bool {
        let sysfs = self.bytes > 0 && self.block.is_some();
        self.nvme = Some(Nvme { nsid, metadata_bytes: None, generic: None });
        let (Some(space), Some(controller)) = (identify(file, 0, nsid), identify(file, 1, 0)) else {
            return false;
        };
        let Some(space) = Namespace::parse(&space) else { return false };
        let controller = Controller::parse(&controller);
        self.nvme = Some(Nvme { nsid, metadata_bytes: Some(space.metadata_bytes), generic: None });
        self.bytes = space.blocks * u64::from(space.lba_bytes);
        self.lba_bytes = space.lba_bytes;
        let most = controller.most_bytes(space.lba_bytes);
        self.max_bytes = if sysfs { self.max_bytes.min(most) } else { most.min(1 << 20) };
        if !controller.serial.is_empty() {
            self.serial = Some(controller.serial);
        }
        if !controller.model.is_empty() {
            self.model = Some(controller.model);
        }
        true
    }
}

impl fmt::Display for Target {
    /// A description for the user before the load.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nsid = self.nvme.as_ref().map_or(0, |nvme| nvme.nsid);
        match self.kind {
            TargetKind::NvmeGeneric => write!(f, "NVMe namespace {nsid} (generic device)")?,
            TargetKind::NvmeBlock => write!(f, "NVMe namespace {nsid} (block device)")?,
            TargetKind::NvmeFile => write!(f, "NVMe namespace {nsid} (behind a file)")?,
            TargetKind::Block => write!(f, "block device")?,
            TargetKind::File => write!(f, "file")?,
            TargetKind::Absent => return write!(f, "file that does not exist yet"),
        }
        if let Some(model) = &self.model {
            write!(f, ", {model}")?;
        }
        if let Some(serial) = &self.serial {
            write!(f, ", serial {serial}")?;
        }
        write!(f, ", {} B in blocks of {} B", self.bytes, self.lba_bytes)?;
        if self.real != self.path && self.path.is_symlink() {
            write!(f, ", at {}", self.real.display())?;
        }
        Ok(())
    }
}

/// A path to a file that does not exist; its folder must exist.
fn absent(path: &Path) -> io::Result<Target> {
    if path.is_symlink() {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "it is a symbolic link to a file that does not exist",
        ));
    }
    let no_name = || io::Error::new(io::ErrorKind::NotFound, "the path names no file");
    let name = path.file_name().ok_or_else(no_name)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = std::fs::canonicalize(folder)?;
    Ok(Target {
        path: path.to_owned(),
        real: folder.join(name),
        kind: TargetKind::Absent,
        bytes: 0,
        lba_bytes: FILE_BLOCK_BYTES as u32,
        max_bytes: FILE_BLOCKS * FILE_BLOCK_BYTES,
        max_segments: SEGMENTS,
        nvme: None,
        serial: None,
        model: None,
        block: None,
        twin: None,
        identity: None,
    })
}

/// Alignment of O_DIRECT transfers to this file (statx(2), Linux 6.1); 512 if the kernel does not report it. Most file
/// systems accept that, and the others refuse the first command.
pub(crate) fn direct_alignment(path: &Path) -> u32 {
    let stat = rustix::fs::statx(rustix::fs::CWD, path, AtFlags::empty(), StatxFlags::DIOALIGN);
    let said = stat.ok().filter(|stat| stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    said.map(|stat| stat.stx_dio_offset_align).filter(|bytes| *bytes > 0).unwrap_or(512)
}

/// The number of the namespace behind a file; `None` if it is not NVMe.
fn namespace_id(file: impl AsFd) -> Option<u32> {
    // SAFETY: this ioctl has no argument; a file that does not support it is not affected.
    let nsid = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), IOCTL_ID as libc::Ioctl, 0) };
    u32::try_from(nsid).ok().filter(|nsid| *nsid > 0)
}

/// The answer to Identify; `None` without permission or if the device does not answer.
fn identify(file: impl AsFd, cns: u32, nsid: u32) -> Option<Box<[u8; IDENTIFY_BYTES]>> {
    let mut answer = Box::new([0u8; IDENTIFY_BYTES]);
    let mut command = Passthru::identify(cns, nsid, answer.as_mut_ptr() as u64);
    // SAFETY: the command is the kernel's structure, and `answer` has the stated length; both outlive the call.
    let done =
        unsafe { libc::ioctl(file.as_fd().as_raw_fd(), IOCTL_ADMIN_CMD as libc::Ioctl, &raw mut command) };
    (done == 0).then_some(answer)
}

fn in_words(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "a folder",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice => "a character device of another kind",
        _ => "something else",
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Linux uses this number for /dev/null only (Documentation/admin-guide/devices.txt).
    pub const NULL: (&str, Number) = ("/dev/null", (1, 3));

    /// An inspected generic device, with the sysfs folder and the path of its block device.
    pub fn generic(block: Option<PathBuf>, twin: Option<(PathBuf, Number)>) -> Target {
        Target {
            path: "/dev/ng7n1".into(),
            real: "/dev/ng7n1".into(),
            kind: TargetKind::NvmeGeneric,
            bytes: 1 << 20,
            lba_bytes: 512,
            max_bytes: 1 << 17,
            max_segments: SEGMENTS,
            nvme: Some(Nvme { nsid: 1, metadata_bytes: Some(0), generic: None }),
            serial: Some("WK-1".to_owned()),
            model: None,
            block,
            twin,
            identity: None,
        }
    }

    #[test]
    fn a_node_is_the_same_namespace_only_by_number_and_by_its_own_word() {
        let (path, other) = (Path::new("/dev/nvme7n1"), Path::new("/dev/nvme8n1"));
        let mut target = generic(None, Some((path.to_owned(), (259, 7))));
        let serial = |serial: &str| Some(serial.to_owned());
        assert!(target.is_twin(path, (259, 7), Some(1), serial("WK-1")));
        assert!(target.is_twin(path, (259, 7), Some(1), None));
        assert!(!target.is_twin(other, (259, 7), Some(1), None));
        assert!(!target.is_twin(path, (259, 8), Some(1), None));
        assert!(!target.is_twin(path, (259, 7), Some(2), None));
        assert!(!target.is_twin(path, (259, 7), None, None));
        assert!(!target.is_twin(path, (259, 7), Some(1), serial("WK-2")));
        target.twin = None;
        assert!(!target.is_twin(path, (259, 7), Some(1), None));
        // A device with the right number that is not NVMe.
        let (path, number) = NULL;
        let target = generic(None, Some((path.into(), number)));
        let reported = target.open(Path::new(path), OFlags::RDONLY).unwrap_err().to_string();
        assert_eq!(reported, "it is not the same namespace as /dev/ng7n1");
    }
}
