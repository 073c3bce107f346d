//! What a path is: an NVMe namespace by either of its names, another block device, a file, or a file to be.
//!
//! Knows how to look without changing anything; must not know what is wanted of it, nor who may.

use crate::nvme::{Controller, IDENTIFY_BYTES, IOCTL_ADMIN_CMD, IOCTL_ID, Namespace, Passthru};
use crate::system::{self, Number, System};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Blocks of a command on what does not say how many it takes: the SSD of the thesis took 32 (algorithms.md 7.2).
const FILE_BLOCKS: u64 = 32;
/// Bytes of such a block.
const FILE_BLOCK_BYTES: u64 = 4096;
/// Pieces of memory of a command where nobody says: what Linux allows NVMe at most (NVME_MAX_SEGS).
const SEGMENTS: u32 = 127;
/// What a sector is to the kernel, whatever the device's blocks are.
const SECTOR_BYTES: u64 = 512;

/// What kind of thing a path leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The generic device of an NVMe namespace, `/dev/ngXnY`.
    NvmeGeneric,
    /// Its block device, `/dev/nvmeXnY`.
    NvmeBlock,
    /// A file that answers NVMe's ioctls all the same: a device behind FUSE.
    NvmeFile,
    /// Any other block device, partitions of NVMe among them.
    Block,
    /// An ordinary file.
    File,
    /// Nothing yet.
    Absent,
}

/// What passthrough needs to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nvme {
    /// The namespace's number.
    pub nsid: u32,
    /// Bytes of metadata with each block; `None` if the device did not answer Identify.
    pub metadata_bytes: Option<u16>,
    /// The generic device; the path itself if it is one.
    pub generic: Option<PathBuf>,
}

/// A path that was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// As it was given.
    pub path: PathBuf,
    /// Where it leads to.
    pub real: PathBuf,
    /// What is there.
    pub kind: Kind,
    /// Bytes that it holds.
    pub bytes: u64,
    /// Transfers begin and end on multiples of this on the device's side: an LBA, or what O_DIRECT asks for.
    pub lba_bytes: u32,
    /// Most bytes of a command.
    pub max_bytes: u64,
    /// Most pieces of memory of a command.
    pub max_segments: u32,
    /// Of NVMe.
    pub nvme: Option<Nvme>,
    /// Serial number of the device, or its kernel name if it has none; `None` for files.
    pub serial: Option<String>,
    /// The model, if it says.
    pub model: Option<String>,
    /// sysfs folder of its block device.
    pub(crate) block: Option<PathBuf>,
    /// The node of the namespace's other device and the number it must have, if there is another: the generic one of a block
    /// device, the block device of a generic one.
    pub(crate) twin: Option<(PathBuf, Number)>,
    /// What was there when it was looked at: device, inode, device number.
    pub(crate) identity: Option<(u64, u64, Number)>,
}

/// Why a path cannot be a target.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// It could not be looked at.
    #[error("{}: {why}", .path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// It is something else.
    #[error("{}: it is {is}; give an NVMe namespace (/dev/ng0n1, /dev/nvme0n1), a block device or a file", .path.display())]
    Kind {
        /// The path.
        path: PathBuf,
        /// What it is.
        is: String,
    },
    /// It does not say what it is.
    #[error("{}: {what}", .path.display())]
    Dumb {
        /// The path.
        path: PathBuf,
        /// What it does not say.
        what: &'static str,
    },
}

impl Target {
    /// Looks at a path.
    ///
    /// # Errors
    /// What is there is no device and no file, or does not let itself be looked at.
    pub fn inspect(path: &Path, system: &System) -> Result<Target, TargetError> {
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
            kind: Kind::File,
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

    /// True if it is a device, whose data is lost when it is written.
    pub const fn is_device(&self) -> bool {
        !matches!(self.kind, Kind::File | Kind::Absent)
    }

    /// The file that has just been made under the path of this target, which was nothing yet.
    ///
    /// # Errors
    /// Something else is there.
    pub(crate) fn made(&self, file: &OwnedFd, system: &System) -> Result<Target, TargetError> {
        let target = Target::inspect(&self.path, system)?;
        let io = |why: io::Error| TargetError::Io { path: self.path.clone(), why };
        let stat = rustix::fs::fstat(file).map_err(|errno| io(errno.into()))?;
        match target.identity {
            Some((device, inode, _)) if (device, inode) == (stat.st_dev, stat.st_ino) => Ok(target),
            _ => Err(io(io::Error::other("another file has taken its place"))),
        }
    }

    /// The NUMA node that the device is attached to, or the one that the file lies on; `None` where sysfs does not say.
    pub(crate) fn node(&self, system: &System) -> Option<u32> {
        let below = || {
            let (device, ..) = self.identity?;
            system.folder(true, (rustix::fs::major(device), rustix::fs::minor(device)))
        };
        let folder = if self.is_device() { self.block.clone() } else { below() };
        // The tree may be reached by a link.
        let sys = System { sys: std::fs::canonicalize(&system.sys).ok()?, proc: system.proc.clone() };
        sys.node(&std::fs::canonicalize(folder?).ok()?)
    }

    /// Opens what was looked at, and nothing that has taken its place since; or the other device of the same namespace, and
    /// nothing that merely has its name.
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

    /// True if a node is the other device of this namespace: by what sysfs says of its number, and by what it says itself.
    fn is_twin(&self, path: &Path, number: Number, nsid: Option<u32>, serial: Option<String>) -> bool {
        let Some(nvme) = &self.nvme else { return false };
        let is_there = self.twin.as_ref().is_some_and(|(twin, of)| twin == path && *of == number);
        // Who may not ask for the serial number has the other two.
        let was_asked =
            nvme.metadata_bytes.is_some() && serial.as_ref().is_some_and(|serial| !serial.is_empty());
        is_there && nsid == Some(nvme.nsid) && (!was_asked || serial == self.serial)
    }

    /// The node of a sibling in sysfs, with its number: beside our own, as the kernel names it.
    fn node_of(&self, folder: &Path) -> Option<(PathBuf, Number)> {
        Some((self.real.with_file_name(system::name(folder)), system::device_number(folder)?))
    }

    fn file(&mut self) -> Result<(), TargetError> {
        self.lba_bytes = direct_alignment(&self.real);
        // Only a file that somebody serves answers this; on any other nothing happens.
        let Ok(file) = self.open(&self.real, OFlags::RDONLY | OFlags::NONBLOCK) else { return Ok(()) };
        let Some(nsid) = namespace_id(&file) else { return Ok(()) };
        self.kind = Kind::NvmeFile;
        self.serial = Some(system::name(&self.real));
        let no = "it answers NVMe's ioctls, but not Identify";
        if !self.identify(&file, nsid) {
            return Err(TargetError::Dumb { path: self.path.clone(), what: no });
        }
        Ok(())
    }

    fn block_device(&mut self, device: Number, system: &System) -> Result<(), TargetError> {
        let dumb = |what| TargetError::Dumb { path: self.path.clone(), what };
        let folder = system.folder(true, device).ok_or_else(|| dumb("sysfs has no entry for this device"))?;
        self.kind = Kind::Block;
        self.size_from(&folder, system);
        let name = system::name(&folder);
        let is_whole = system.disk(&folder).whole == folder;
        // A command passed through knows no partition: it would reach into the whole namespace.
        if is_whole
            && name.starts_with("nvme")
            && let Ok(file) = self.open(&self.real, OFlags::RDONLY | OFlags::NONBLOCK)
            && let Some(nsid) = namespace_id(&file)
        {
            self.kind = Kind::NvmeBlock;
            self.identify(&file, nsid);
            self.twin = system.twin(&folder).and_then(|generic| self.node_of(&generic));
            let generic = self.twin.as_ref().map(|(path, _)| path.clone()).filter(|path| path.exists());
            if let Some(nvme) = &mut self.nvme {
                nvme.generic = generic;
            }
        }
        Ok(())
    }

    fn character_device(&mut self, device: Number, system: &System) -> Result<(), TargetError> {
        let folder = system.folder(false, device);
        let name = folder.as_deref().map(system::name).unwrap_or_default();
        let kind = |is: String| TargetError::Kind { path: self.path.clone(), is };
        if !name.starts_with("ng") {
            return Err(kind(match name.starts_with("nvme") {
                true => "an NVMe controller".to_owned(),
                false => in_words(FileType::CharacterDevice).to_owned(),
            }));
        }
        self.kind = Kind::NvmeGeneric;
        if let Some(block) = folder.and_then(|folder| system.twin(&folder)) {
            self.size_from(&block, system);
            self.twin = self.node_of(&block);
        }
        let file = self.open(&self.real, OFlags::RDONLY | OFlags::NONBLOCK);
        let file = file.map_err(|why| TargetError::Io { path: self.path.clone(), why })?;
        let path = self.path.clone();
        let dumb = |what| TargetError::Dumb { path, what };
        let Some(nsid) = namespace_id(&file) else {
            return Err(dumb("it does not report the number of its namespace"));
        };
        if !self.identify(&file, nsid) && self.bytes == 0 {
            return Err(dumb("neither Identify nor sysfs reports its size"));
        }
        if let Some(nvme) = &mut self.nvme {
            nvme.generic = Some(self.real.clone());
        }
        Ok(())
    }

    /// Size, limits and names out of sysfs.
    fn size_from(&mut self, folder: &Path, system: &System) {
        let whole = system.disk(folder).whole;
        let queue = whole.join("queue");
        let limit = |file: &str| system::number(&queue.join(file));
        self.bytes = system::number(&folder.join("size")).unwrap_or(0) * SECTOR_BYTES;
        self.lba_bytes = limit("logical_block_size").and_then(|bytes| bytes.try_into().ok()).unwrap_or(512);
        // So much goes to the device as one command; more would be split. Pages need not lie side by side.
        let sectors = limit("max_sectors_kb").map(|kib| kib << 10);
        let segments = limit("max_segments");
        self.max_segments = segments.and_then(|most| most.try_into().ok()).unwrap_or(SEGMENTS);
        let segments = segments.map(|pages| pages << 12);
        let least = sectors.into_iter().chain(segments).min();
        self.max_bytes = least.unwrap_or(self.max_bytes).max(u64::from(self.lba_bytes));
        let named = |file: &str| system::read(&whole.join(file));
        let serial = named("device/serial").or_else(|| named("serial")).or_else(|| named("wwid"));
        // SCSI and SATA.
        let serial = serial.or_else(|| system::page_80(&whole.join("device/vpd_pg80")));
        let serial = serial.or_else(|| named("device/wwid"));
        self.serial = Some(serial.unwrap_or_else(|| system::name(&whole)));
        self.model = named("device/model");
        self.block = Some(folder.to_owned());
    }

    /// Asks the device itself; false if it does not say. What sysfs says of limits is kept where it is less.
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
    /// What it is, for a person who is about to load it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nsid = self.nvme.as_ref().map_or(0, |nvme| nvme.nsid);
        match self.kind {
            Kind::NvmeGeneric => write!(f, "NVMe namespace {nsid} (generic device)")?,
            Kind::NvmeBlock => write!(f, "NVMe namespace {nsid} (block device)")?,
            Kind::NvmeFile => write!(f, "NVMe namespace {nsid} (behind a file)")?,
            Kind::Block => write!(f, "block device")?,
            Kind::File => write!(f, "file")?,
            Kind::Absent => return write!(f, "file that does not exist yet"),
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

/// A path with nothing at its end; the folder must be there.
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
        kind: Kind::Absent,
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

/// What O_DIRECT wants transfers aligned to in this file (statx(2), Linux 6.1); 512 if the kernel does not say, which most
/// file systems take and the others refuse at the first command.
pub(crate) fn direct_alignment(path: &Path) -> u32 {
    let stat = rustix::fs::statx(rustix::fs::CWD, path, AtFlags::empty(), StatxFlags::DIOALIGN);
    let said = stat.ok().filter(|stat| stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    said.map(|stat| stat.stx_dio_offset_align).filter(|bytes| *bytes > 0).unwrap_or(512)
}

/// The namespace behind a file, if it is NVMe at all.
fn namespace_id(file: impl AsFd) -> Option<u32> {
    // SAFETY: this ioctl has no argument; on a file that does not know it nothing happens.
    let nsid = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), libc::Ioctl::from(IOCTL_ID), 0) };
    u32::try_from(nsid).ok().filter(|nsid| *nsid > 0)
}

/// The answer to Identify, if the user may ask and the device answers.
fn identify(file: impl AsFd, cns: u32, nsid: u32) -> Option<Box<[u8; IDENTIFY_BYTES]>> {
    let mut answer = Box::new([0u8; IDENTIFY_BYTES]);
    let mut command = Passthru::identify(cns, nsid, answer.as_mut_ptr() as u64);
    // SAFETY: the command is the kernel's structure, and `answer` has the room that it names; both outlive the call.
    let done = unsafe {
        libc::ioctl(file.as_fd().as_raw_fd(), libc::Ioctl::from(IOCTL_ADMIN_CMD), &raw mut command)
    };
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

    /// Linux gives these numbers to nobody else (Documentation/admin-guide/devices.txt).
    pub const NULL: (&str, Number) = ("/dev/null", (1, 3));

    /// A generic device that was looked at, with a sysfs folder of its block device and with its node.
    pub fn generic(block: Option<PathBuf>, twin: Option<(PathBuf, Number)>) -> Target {
        Target {
            path: "/dev/ng7n1".into(),
            real: "/dev/ng7n1".into(),
            kind: Kind::NvmeGeneric,
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
        // One that is of the right number, but no NVMe at all.
        let (path, number) = NULL;
        let target = generic(None, Some((path.into(), number)));
        let told = target.open(Path::new(path), OFlags::RDONLY).unwrap_err().to_string();
        assert_eq!(told, "it is not the same namespace as /dev/ng7n1");
    }
}
