//! An NVMe namespace behind a FUSE file: it answers the kernel's NVMe ioctls, moves data to and from the memory of the
//! caller, and records commands. It checks what the kernel's driver checks.
//!
//! Must not know the tests.

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo,
    IoctlFlags, ReplyAttr, ReplyEntry, ReplyIoctl, Request,
};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};
use waykeeper_memload::nvme;

pub const LBA: usize = 512;
pub const SERIAL: &str = "served-0001";
const FILE: INodeNo = INodeNo(2);
const TTL: Duration = Duration::from_secs(1);

/// One command as the device received it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    pub opcode: u8,
    pub lba: u64,
    pub blocks: u64,
    pub addr: u64,
}

/// State of the device.
#[derive(Default)]
pub struct Device {
    pub data: Vec<u8>,
    pub seen: Vec<Seen>,
    /// After this many commands, it answers with this status.
    pub fails: Option<(usize, i32)>,
}

/// A mounted device.
pub struct Served {
    pub path: PathBuf,
    pub device: Arc<Mutex<Device>>,
    session: Option<BackgroundSession>,
    _folder: tempfile::TempDir,
}

impl Served {
    /// A device with `lbas` LBAs, each filled with its number.
    pub fn new(lbas: usize) -> Served {
        let data = (0..lbas).flat_map(|lba| [lba as u8 ^ 0xA5; LBA]).collect();
        let device = Arc::new(Mutex::new(Device { data, ..Device::default() }));
        let folder = tempfile::tempdir().unwrap();
        let mount = folder.path().join("mount");
        std::fs::create_dir(&mount).unwrap();
        assert!(rustix::process::geteuid().is_root(), "not run: needs root and /dev/fuse");
        let session = fuser::spawn_mount(Files(device.clone()), &mount, &Config::default());
        let session = session.expect("not run: needs root and /dev/fuse");
        Served { path: mount.join("ng0n1"), device, session: Some(session), _folder: folder }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        // The kernel may release the file of a ring later; then a lazy unmount is needed.
        if session.umount_and_join().is_err() {
            let mount = self.path.parent().unwrap();
            rustix::mount::unmount(mount, rustix::mount::UnmountFlags::DETACH).unwrap();
        }
    }
}

struct Files(Arc<Mutex<Device>>);

fn attributes(number: INodeNo) -> FileAttr {
    let folder = number == INodeNo::ROOT;
    FileAttr {
        ino: number,
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if folder { FileType::Directory } else { FileType::RegularFile },
        perm: if folder { 0o755 } else { 0o600 },
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 512,
        flags: 0,
    }
}

impl Filesystem for Files {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name == "ng0n1" {
            true => reply.entry(&TTL, &attributes(FILE), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &attributes(number));
    }

    fn ioctl(
        &self,
        request: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        number: u32,
        passthrough: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        let word = |at: usize| u32::from_ne_bytes(passthrough[at..at + 4].try_into().unwrap());
        let addr = || u64::from_ne_bytes(passthrough[24..32].try_into().unwrap());
        let mut device = self.0.lock().unwrap();
        match number {
            nvme::IOCTL_ID => reply.ioctl(1, &[]),
            nvme::IOCTL_ADMIN_CMD => {
                let mut answer = [0u8; nvme::IDENTIFY_BYTES];
                if word(40) == 0 {
                    answer[..8].copy_from_slice(&((device.data.len() / LBA) as u64).to_le_bytes());
                    answer[130] = 9;
                } else {
                    answer[4..24].fill(b' ');
                    answer[4..4 + SERIAL.len()].copy_from_slice(SERIAL.as_bytes());
                    answer[24..64].fill(b' ');
                    answer[24..29].copy_from_slice(b"model");
                    // 2^5 pages of 4 KiB: 128 KiB, as the SSD of the thesis.
                    answer[77] = 5;
                }
                let status = if passthrough[0] == 6 { 0 } else { 1 };
                copy(request.pid(), addr(), &mut answer, true);
                reply.ioctl(status, passthrough);
            }
            nvme::IOCTL_IO_CMD => {
                let lba = u64::from(word(40)) | u64::from(word(44)) << 32;
                let blocks = u64::from(word(48) & 0xFFFF) + 1;
                let seen = Seen { opcode: passthrough[0], lba, blocks, addr: addr() };
                if let Some((after, status)) = device.fails
                    && device.seen.len() >= after
                {
                    return match status {
                        errno if errno < 0 => reply.error(Errno::from_i32(-errno)),
                        status => reply.ioctl(status, passthrough),
                    };
                }
                let (from, bytes) = (lba as usize * LBA, blocks as usize * LBA);
                let status = match passthrough[0] {
                    nvme::FLUSH => 0,
                    // LBA out of range.
                    _ if from + bytes > device.data.len() => 0x4080,
                    // A length that does not match the block count, which the driver refuses.
                    _ if word(36) as usize != bytes => 0x4002,
                    opcode => {
                        let part = &mut device.data[from..from + bytes];
                        copy(request.pid(), seen.addr, part, opcode == nvme::READ);
                        0
                    }
                };
                device.seen.push(seen);
                reply.ioctl(status, passthrough);
            }
            _ => reply.error(Errno::ENOTTY),
        }
    }
}

/// Moves data like DMA: to or from the memory of the calling process.
fn copy(pid: u32, addr: u64, here: &mut [u8], to: bool) {
    let local = libc::iovec { iov_base: here.as_mut_ptr().cast(), iov_len: here.len() };
    let remote = libc::iovec { iov_base: addr as *mut _, iov_len: here.len() };
    let pid = i32::try_from(pid).unwrap();
    // SAFETY: the local side is borrowed; the remote one is checked by the kernel.
    let moved = unsafe {
        match to {
            true => libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0),
            false => libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0),
        }
    };
    assert_eq!(moved, here.len() as isize, "{}", std::io::Error::last_os_error());
}
