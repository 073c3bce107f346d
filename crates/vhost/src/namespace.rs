//! Mount namespaces of one process: for the command of `enter`, and for a process that mounts where others cannot see it
//! ([`PrivateRoot`]).
//!
//! A user without permission for a mount namespace gets one as root of a user namespace. Must not know what is mounted.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::thread::UnshareFlags;
use std::ffi::CStr;
use std::io;
use std::path::{Path, PathBuf};

/// Why a process has no root of its own.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The system refuses a namespace.
    #[error(
        "cannot make a mount namespace: {0}; run as root, or allow user namespaces for all users (sysctl \
         kernel.unprivileged_userns_clone=1, user.max_user_namespaces above 0, \
         kernel.apparmor_restrict_unprivileged_userns=0, where these settings exist)"
    )]
    Refused(#[source] io::Error),
    /// A part of it cannot be set up.
    #[error("cannot {0}: {1}")]
    NotMounted(String, #[source] io::Error),
}

/// What a new user namespace needs to know about its user; made before a fork, after which nothing is allocated.
#[derive(Debug)]
pub(crate) struct IdMaps([(&'static CStr, String); 3]);

impl IdMaps {
    /// The present user becomes root.
    pub fn new() -> IdMaps {
        let user = rustix::process::geteuid().as_raw();
        let group = rustix::process::getegid().as_raw();
        IdMaps([
            (c"/proc/self/setgroups", "deny".to_owned()),
            (c"/proc/self/uid_map", format!("0 {user} 1")),
            (c"/proc/self/gid_map", format!("0 {group} 1")),
        ])
    }

    /// Gives the calling process, which must have one thread, a mount namespace; true if it also needed a user namespace.
    pub fn enter(&self) -> Result<bool, Errno> {
        if unshare(UnshareFlags::NEWNS).is_ok() {
            return Ok(false);
        }
        unshare(UnshareFlags::NEWNS | UnshareFlags::NEWUSER)?;
        for (path, text) in &self.0 {
            let file = rustix::fs::open(*path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
            rustix::io::write(&file, text.as_bytes())?;
        }
        Ok(true)
    }
}

/// No mount of this namespace is seen outside of it.
pub(crate) fn keep_mounts_private() -> Result<(), Errno> {
    rustix::mount::mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
}

fn unshare(flags: UnshareFlags) -> Result<(), Errno> {
    // SAFETY: no file table is unshared; namespaces of mounts and users make no memory invalid.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

/// Folders that exist on every Linux (hier(7)), of which one is hidden by the private root.
const PLACES: [&str; 3] = ["/run", "/tmp", "/mnt"];

/// A root directory in memory that only this process has: empty except for `/proc` and `/dev/fuse`. All of it ends with
/// the process, also after a kill, and it leaves nothing on a disk.
#[derive(Debug)]
pub struct PrivateRoot(());

impl PrivateRoot {
    /// Makes it and moves the calling process there. Open files stay open; paths from before lead nowhere.
    ///
    /// The process must have one thread: the kernel gives a user namespace only to such a process.
    ///
    /// # Errors
    /// Why the system refuses.
    pub fn enter() -> Result<PrivateRoot, NamespaceError> {
        IdMaps::new().enter().map_err(|errno| NamespaceError::Refused(errno.into()))?;
        let failed = |what: String| move |errno: Errno| NamespaceError::NotMounted(what, errno.into());
        keep_mounts_private().map_err(failed("make mounts private".to_owned()))?;
        let place = PLACES.iter().map(Path::new).find(|place| place.is_dir());
        let place = place.map_or_else(|| PathBuf::from("/"), Path::to_owned);
        rustix::mount::mount(c"tmpfs", &place, c"tmpfs", MountFlags::empty(), Some(c"mode=0755"))
            .map_err(failed(format!("mount a tmpfs on {}", place.display())))?;
        let mode = Mode::from_raw_mode(0o755);
        for folder in ["proc", "dev"] {
            rustix::fs::mkdir(place.join(folder), mode)
                .map_err(failed(format!("make a directory for /{folder}")))?;
        }
        rustix::mount::mount_bind_recursive("/proc", place.join("proc"))
            .map_err(failed("bind /proc".to_owned()))?;
        let fuse = place.join("dev/fuse");
        rustix::fs::open(&fuse, OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC, mode)
            .and_then(|_| rustix::mount::mount_bind("/dev/fuse", &fuse))
            .map_err(failed("bind /dev/fuse".to_owned()))?;
        rustix::process::chroot(&place).map_err(failed(format!("change the root to {}", place.display())))?;
        rustix::process::chdir("/").map_err(failed("change to the new root".to_owned()))?;
        Ok(PrivateRoot(()))
    }

    /// Makes a directory in it.
    ///
    /// # Errors
    /// If it exists, or memory is used up.
    pub fn directory(&self, path: &str) -> Result<PathBuf, NamespaceError> {
        let path = PathBuf::from(path);
        std::fs::create_dir(&path)
            .map_err(|why| NamespaceError::NotMounted(format!("make {}", path.display()), why))?;
        Ok(path)
    }
}
