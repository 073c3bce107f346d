//! Checks that other users cannot change a path: what root writes there and reads back was not written, and cannot be
//! replaced, by another user.
//!
//! A folder is trusted if every folder on the path to it belongs to root or to our user and cannot be written by
//! others. A folder before the last may be writable if it has the sticky bit, like /tmp: there a user cannot rename
//! or remove another user's files. Must not know what the files contain.

use crate::system::{FileKind, Metadata, OpenFile, System};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::path::{Component, Path, PathBuf};

/// Why a path is not trusted: one line, without the path that was requested.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The owner is neither root nor our user.
    #[error("{} belongs to user {uid}, not to root; give it to root (chown root), or use another path", path.display())]
    Owner {
        /// The file or folder.
        path: PathBuf,
        /// The owner's user id.
        uid: u32,
    },
    /// Other users may write to it.
    #[error("{} can be written by other users (mode {mode:04o}); remove that permission (chmod go-w), or \
        use another path", path.display())]
    Writable {
        /// The file or folder.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It is not a regular file.
    #[error("{} is {kind}, not a file; it is left unchanged, use another path", path.display())]
    Kind {
        /// The path.
        path: PathBuf,
        /// Its kind, in words.
        kind: &'static str,
    },
    /// It cannot be read.
    #[error("{}: {why}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's error.
        why: io::Error,
    },
}

impl TrustError {
    /// The system's error, if it is one.
    pub fn io(&self) -> Option<&io::Error> {
        match self {
            TrustError::Io { why, .. } => Some(why),
            _ => None,
        }
    }
}

/// Most symbolic links followed on one path, as in the kernel (path_resolution(7)).
const LINKS_MOST: u32 = 40;

/// Checks an existing folder and the path to it.
///
/// # Errors
/// The first part of the path that other users could change.
pub fn folder(system: &dyn System, path: &Path) -> Result<(), TrustError> {
    let path = std::path::absolute(path).map_err(|why| TrustError::Io { path: path.to_owned(), why })?;
    let mut links = 0;
    let end = way(system, &path, &mut links)?;
    let found = look(system, &end)?;
    belongs(system, &end, &found)?;
    writable_by_others(&end, &found)
}

/// Follows a path and its links, checks each part, and returns the path without links.
fn way(system: &dyn System, path: &Path, links: &mut u32) -> Result<PathBuf, TrustError> {
    let mut at = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::RootDir | Component::Prefix(_) | Component::CurDir => continue,
            Component::ParentDir => {
                at.pop();
                continue;
            }
            Component::Normal(name) => {
                let here = look(system, &at)?;
                belongs(system, &at, &here)?;
                if here.mode & 0o1000 == 0 {
                    writable_by_others(&at, &here)?;
                }
                at.push(name);
            }
        }
        let there = look(system, &at)?;
        if there.kind == FileKind::Link {
            *links += 1;
            let failed = |why| TrustError::Io { path: at.clone(), why };
            if *links > LINKS_MOST {
                return Err(failed(io::Error::from(rustix::io::Errno::LOOP)));
            }
            belongs(system, &at, &there)?;
            let leads = system.read_link(&at).map_err(failed)?;
            let beside = at.parent().unwrap_or(Path::new("/")).to_owned();
            at = way(system, &beside.join(leads), links)?;
        }
    }
    Ok(at)
}

/// Opens a file, or creates it with mode 0600 if `flags` say so. A link is not followed, and opening a pipe does
/// not block. The caller checks its folder with [`folder`] first.
///
/// # Errors
/// A path that is not a regular file, belongs to another user or can be written by others; the system's error.
pub fn open(system: &dyn System, path: &Path, flags: OFlags) -> Result<Box<dyn OpenFile>, TrustError> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = system.open(path, flags, Mode::from_raw_mode(0o600)).map_err(|why| {
        match why.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) {
            true => TrustError::Kind { path: path.to_owned(), kind: "a symbolic link" },
            false => TrustError::Io { path: path.to_owned(), why },
        }
    })?;
    let found = file.metadata().map_err(|why| TrustError::Io { path: path.to_owned(), why })?;
    if !found.is_file() {
        let kind = if found.is_dir() { "a folder" } else { "a pipe or a device" };
        return Err(TrustError::Kind { path: path.to_owned(), kind });
    }
    belongs(system, path, &found)?;
    writable_by_others(path, &found)?;
    Ok(file)
}

/// Checks that a file belongs to root or to our user.
///
/// # Errors
/// [`TrustError::Owner`].
pub fn belongs(system: &dyn System, path: &Path, found: &Metadata) -> Result<(), TrustError> {
    let uid = found.uid;
    if uid == 0 || uid == system.user() {
        return Ok(());
    }
    Err(TrustError::Owner { path: path.to_owned(), uid })
}

fn writable_by_others(path: &Path, found: &Metadata) -> Result<(), TrustError> {
    // Write permission of root's group is allowed: its members count as root.
    let others = if found.gid == 0 { 0o002 } else { 0o022 };
    if found.mode & others == 0 {
        return Ok(());
    }
    Err(TrustError::Writable { path: path.to_owned(), mode: found.mode })
}

fn look(system: &dyn System, path: &Path) -> Result<Metadata, TrustError> {
    system.link_metadata(path).map_err(|why| TrustError::Io { path: path.to_owned(), why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system;
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

    fn said<T>(result: Result<T, TrustError>) -> String {
        result.err().map(|why| why.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_folder_is_trusted_with_all_that_leads_to_it() {
        // In /tmp, which is writable for all users and has the sticky bit.
        let top = tempfile::tempdir().unwrap();
        let deep = top.path().join("a/b");
        std::fs::create_dir_all(&deep).unwrap();
        folder(&*system::real(), &deep).unwrap();
        let mode = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        // The last folder must not be writable even with the sticky bit.
        mode(&deep, 0o1777);
        let why = said(folder(&*system::real(), &deep));
        assert!(
            why.contains("/a/b can be written by other users (mode 1777); remove that permission"),
            "{why}"
        );
        mode(&deep, 0o755);
        mode(&top.path().join("a"), 0o777);
        assert!(
            said(folder(&*system::real(), &deep)).contains("/a can be written by other users (mode 0777)")
        );
        mode(&top.path().join("a"), 0o1777);
        folder(&*system::real(), &deep).unwrap();
        // A path through a link is checked too, with every folder behind the link.
        mode(&top.path().join("a"), 0o777);
        symlink(top.path().join("a/b"), top.path().join("l")).unwrap();
        assert!(
            said(folder(&*system::real(), &top.path().join("l")))
                .contains("/a can be written by other users")
        );
        mode(&top.path().join("a"), 0o755);
        folder(&*system::real(), &top.path().join("l")).unwrap();
        symlink("l2", top.path().join("l2")).unwrap();
        assert!(said(folder(&*system::real(), &top.path().join("l2"))).contains("/l2: Too many levels"));
        assert!(said(folder(&*system::real(), &top.path().join("none"))).contains("/none: No such file"));
    }

    #[test]
    fn a_file_is_ours_or_roots_and_no_link() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("f");
        let read = || open(&*system::real(), &path, OFlags::RDONLY);
        open(&*system::real(), &path, OFlags::WRONLY | OFlags::CREATE).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600);
        read().unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        assert!(said(read()).contains("/f can be written by other users (mode 0666)"));
        std::fs::remove_file(&path).unwrap();
        symlink("/etc/passwd", &path).unwrap();
        assert!(
            said(read())
                .ends_with("/f is a symbolic link, not a file; it is left unchanged, use another path")
        );
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(said(read()).contains("/f is a pipe or a device"));
        assert!(read().is_err_and(|why| why.io().is_none()));
    }

    /// Needs root: chown does.
    #[test]
    fn what_belongs_to_another_user_is_not_trusted() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("f");
        std::fs::write(&path, "").unwrap();
        chown(&path, Some(1234), None).expect("not run: needs root");
        let why = said(open(&*system::real(), &path, OFlags::RDONLY));
        assert!(why.contains("/f belongs to user 1234, not to root; give it to root"), "{why}");
        chown(top.path(), Some(1234), None).expect("not run: needs root");
        assert!(said(folder(&*system::real(), top.path())).contains("belongs to user 1234"));
    }
}
