//! A mounted tree: mounts it and unmounts it.
//!
//! This file must not know the tree's content or how requests are answered.

use crate::faults::Faults;
use crate::mount::Served;
use crate::node::Tree;
use fuser::{BackgroundSession, Config, MountOption, SessionACL};
use rustix::mount::UnmountFlags;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often a waiting server checks whether the tree was unmounted.
const LOOK: Duration = Duration::from_millis(100);

/// Why a tree cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// FUSE is missing.
    #[error("/dev/fuse is missing: load the module (modprobe fuse) or give the container the device")]
    NoFuse,
    /// A killed server left its mount behind.
    #[error("{0} is still mounted by a virtual server that has ended: run `umount -l {0}` first")]
    Dead(PathBuf),
    /// The mount point is not empty.
    #[error("{0} is not an empty directory; give an empty one")]
    NotEmpty(PathBuf),
    /// The directory cannot be read.
    #[error("cannot use {0} as a mount point: {1}")]
    Unusable(PathBuf, #[source] io::Error),
    /// The system refused the mount.
    #[error("cannot mount on {0}: {1}; mounting needs root, or fusermount3 (package fuse3) for other users")]
    Refused(PathBuf, #[source] io::Error),
    /// Signals cannot be caught.
    #[error("cannot wait for signals: {0}")]
    Signals(#[source] io::Error),
}

/// A mounted tree; dropping this unmounts it.
pub struct Mounted {
    path: PathBuf,
    session: Option<BackgroundSession>,
}

impl Mounted {
    /// Mounts a tree on an empty directory and serves it from a separate thread.
    pub fn new(tree: Tree, path: impl AsRef<Path>, faults: Faults) -> Result<Self, MountError> {
        let path = path.as_ref().to_owned();
        let mut entries = path.read_dir().map_err(|error| match error.raw_os_error() {
            Some(libc::ENOTCONN) => MountError::Dead(path.clone()),
            _ => MountError::Unusable(path.clone(), error),
        })?;
        if entries.next().is_some() {
            return Err(MountError::NotEmpty(path));
        }
        if !Path::new("/dev/fuse").exists() {
            return Err(MountError::NoFuse);
        }
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("waykeeper".to_owned()),
            MountOption::Subtype("vhost".to_owned()),
            MountOption::DefaultPermissions,
            MountOption::NoSuid,
            MountOption::NoDev,
        ];
        // Only root may give other users access.
        config.acl = if rustix::process::geteuid().is_root() { SessionACL::All } else { SessionACL::Owner };
        let served = Served::new(tree, faults);
        let notifier = served.notifier();
        let session = fuser::spawn_mount(served, &path, &config)
            .map_err(|error| MountError::Refused(path.clone(), error))?;
        let _ = notifier.set(session.notifier());
        Ok(Mounted { path, session: Some(session) })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Serves until SIGINT, SIGTERM or SIGHUP or until the tree is unmounted; then it is unmounted.
    pub fn serve(self) -> Result<(), MountError> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(MountError::Signals)?;
        let served = || self.session.as_ref().is_some_and(|session| !session.guard.is_finished());
        while served() && signals.pending().next().is_none() {
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        // A user of the mount (a shell, an open file) must not block the unmount: it completes when they leave.
        if session.umount_and_join().is_err() {
            let _ = rustix::mount::unmount(&self.path, UnmountFlags::DETACH);
        }
    }
}
