//! Checks that other users cannot change a path: what a daemon of root reads there, or writes and reads back, was not
//! written, and cannot be replaced, by another user.
//!
//! A folder or file is trusted if it and every folder on the path to it belong to root or to our user and cannot be
//! written by others. A folder before the last may be writable if it has the sticky bit, like /tmp: there a user
//! cannot rename or remove another user's files. Links are followed, and belong to root or to our user too. sudo and
//! sshd check alike (sudoers(5), `StrictModes` of sshd_config(5)). Must not know what the files contain.

use crate::system::{FileKind, Metadata, OpenFile, System};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::path::{Component, Path, PathBuf};

/// Why a path is not trusted: one line, without the path that was requested.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The owner is neither root nor our user.
    #[error("{} belongs to user {uid}, not to root{} (mode {mode:04o}); give it to root (chown root), or use another \
        path", path.display(), or_user(*user))]
    Owner {
        /// The file or folder.
        path: PathBuf,
        /// The owner's user id.
        uid: u32,
        /// Its mode.
        mode: u32,
        /// Our user id.
        user: u32,
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

/// The second accepted owner, in words.
fn or_user(user: u32) -> String {
    if user == 0 { String::new() } else { format!(" or user {user}") }
}

impl TrustError {
    /// True if the path, or a folder on the way to it, does not exist. What exists of the way is trusted then.
    pub fn is_absent(&self) -> bool {
        self.io().is_some_and(|why| why.kind() == io::ErrorKind::NotFound)
    }

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
    let end = resolved(system, path)?;
    let found = look(system, &end)?;
    belongs(system, &end, &found)?;
    writable_by_others(&end, &found)
}

/// Opens an existing file for reading, through links, after a check of the file and of the path to it.
///
/// # Errors
/// The first part of the path that other users could change; a path that is not a regular file; the system's error.
pub fn read(system: &dyn System, path: &Path) -> Result<Box<dyn OpenFile>, TrustError> {
    open(system, &resolved(system, path)?, OFlags::RDONLY)
}

/// The path without links, each part of the way to it checked.
fn resolved(system: &dyn System, path: &Path) -> Result<PathBuf, TrustError> {
    let path = std::path::absolute(path).map_err(|why| TrustError::Io { path: path.to_owned(), why })?;
    way(system, &path, &mut 0)
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
            // What it says of an open pipe, like `pipe:[57]`, is no path (proc_pid_fd(5)).
            if leads.is_relative() && beside.starts_with("/proc") && beside.ends_with("fd") {
                return Err(TrustError::Kind { path: path.to_owned(), kind: "a pipe or a device" });
            }
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
    Err(TrustError::Owner { path: path.to_owned(), uid, mode: found.mode, user: system.user() })
}

fn writable_by_others(path: &Path, found: &Metadata) -> Result<(), TrustError> {
    // Write permission of root's group is allowed: its members count as root. The same holds for a user's private
    // group, which has the number of its user (USERGROUPS_ENAB of login.defs(5)) and no other member.
    let others = if found.gid == 0 || found.gid == found.uid { 0o002 } else { 0o022 };
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
    use std::os::fd::AsRawFd;
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
        // One that a shell passes on, as for `<(...)`: its link in /proc is no path.
        let (pipe, _writer) = io::pipe().unwrap();
        let passed = PathBuf::from(format!("/proc/self/fd/{}", pipe.as_raw_fd()));
        assert!(said(super::read(&*system::real(), &passed)).contains(" is a pipe or a device, not a file"));
    }

    #[test]
    fn a_file_is_read_through_links_that_only_its_owner_can_change() {
        let top = tempfile::tempdir().unwrap();
        let (own, shared) = (top.path().join("own"), top.path().join("shared"));
        for folder in [&own, &shared] {
            std::fs::create_dir(folder).unwrap();
        }
        std::fs::write(own.join("f"), "text").unwrap();
        symlink("../own/f", shared.join("link")).unwrap();
        let mode = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        let opened = |path: &Path| {
            let mut text = [0; 8];
            read(&*system::real(), path).map(|file| file.read(&mut text).unwrap())
        };
        assert_eq!(opened(&shared.join("link")).unwrap(), 4);
        // In a folder with the sticky bit, a link of ours stays ours; without it, another user could replace the link.
        mode(&shared, 0o1777);
        assert_eq!(opened(&shared.join("link")).unwrap(), 4);
        mode(&shared, 0o777);
        assert!(
            said(opened(&shared.join("link"))).contains("/shared can be written by other users (mode 0777)")
        );
        mode(&shared, 0o755);
        mode(&own.join("f"), 0o602);
        assert!(
            said(opened(&shared.join("link"))).contains("/own/f can be written by other users (mode 0602)")
        );
        assert!(
            said(opened(&own))
                .ends_with("/own is a folder, not a file; it is left unchanged, use another path")
        );
        assert!(opened(&own.join("none/f")).unwrap_err().is_absent());
        mode(&own, 0o777);
        assert!(
            !opened(&own.join("none/f")).unwrap_err().is_absent(),
            "the way that exists is checked first"
        );
    }

    /// Needs root: chown does.
    #[test]
    fn the_private_group_of_the_owner_may_write_and_another_group_may_not() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("f");
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o664)).unwrap();
        open(&*system::real(), &path, OFlags::RDONLY).unwrap();
        chown(&path, None, Some(1234)).expect("not run: needs root");
        assert!(said(open(&*system::real(), &path, OFlags::RDONLY)).contains("(mode 0664)"));
        let private = Metadata::from(&path.metadata().unwrap());
        writable_by_others(&path, &Metadata { uid: 1234, ..private }).unwrap();
    }

    /// Needs root: chown does.
    #[test]
    fn what_belongs_to_another_user_is_not_trusted() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("f");
        std::fs::write(&path, "").unwrap();
        chown(&path, Some(1234), None).expect("not run: needs root");
        let why = said(open(&*system::real(), &path, OFlags::RDONLY));
        let wanted = "/f belongs to user 1234, not to root (mode 0644); give it to root (chown root), or use another path";
        assert!(why.ends_with(wanted), "{why}");
        let user = TrustError::Owner { path: "/f".into(), uid: 7, mode: 0o600, user: 1000 };
        assert!(user.to_string().starts_with("/f belongs to user 7, not to root or user 1000 (mode 0600)"));
        chown(top.path(), Some(1234), None).expect("not run: needs root");
        assert!(said(folder(&*system::real(), top.path())).contains("belongs to user 1234"));
    }
}
