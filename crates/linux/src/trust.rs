//! Whether a place in the file system is out of other users' hands: what root writes there, and believes when it reads it
//! again, nobody else can have put there, and nobody can put something else in its place.
//!
//! A folder is trusted with all that leads to it: each belongs to root or to us, and others may not write in it. On the way
//! there (not at its end) a folder with the sticky bit will do, as /tmp: nobody can take away or rename what is not theirs.
//! Must not know what lies there.

use rustix::fs::OFlags;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

/// Why a place is not trusted: one line, without the path that was asked for.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// It belongs to somebody who is neither root nor us.
    #[error("{what} belongs to user {uid}, not to root; give it to root (chown root), or use another path", what = named(path))]
    Owner {
        /// The file or folder.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// Others may write to it.
    #[error("{what} can be written by other users (mode {mode:04o}); remove that permission (chmod go-w), or \
        use another path", what = named(path))]
    Writable {
        /// The file or folder.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It is no regular file.
    #[error("{what} is {kind}, not a file; it is left unchanged, use another path", what = named(path))]
    Kind {
        /// What was looked at.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// It cannot be looked at.
    #[error("{what}: {why}", what = named(path))]
    Io {
        /// What.
        path: PathBuf,
        /// The system's words.
        why: io::Error,
    },
}

impl TrustError {
    /// The system's own error, if it is one.
    pub fn io(&self) -> Option<&io::Error> {
        match self {
            TrustError::Io { why, .. } => Some(why),
            _ => None,
        }
    }
}

fn named(path: &Path) -> String {
    path.display().to_string()
}

/// Most symbolic links on one way, as the kernel has it (path_resolution(7)).
const LINKS_MOST: u32 = 40;

/// Checks an existing folder and the way to it.
///
/// # Errors
/// The first part of the way that others could change.
pub fn folder(path: &Path) -> Result<(), TrustError> {
    let path = std::path::absolute(path).map_err(|why| TrustError::Io { path: path.to_owned(), why })?;
    let mut links = 0;
    let end = way(&path, &mut links)?;
    let found = look(&end)?;
    belongs(&end, &found)?;
    writable_by_others(&end, &found)
}

/// Walks to a path, links followed; where it leads in the end.
fn way(path: &Path, links: &mut u32) -> Result<PathBuf, TrustError> {
    let mut at = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::RootDir | Component::Prefix(_) | Component::CurDir => continue,
            Component::ParentDir => {
                at.pop();
                continue;
            }
            Component::Normal(name) => {
                let here = look(&at)?;
                belongs(&at, &here)?;
                if here.mode() & 0o1000 == 0 {
                    writable_by_others(&at, &here)?;
                }
                at.push(name);
            }
        }
        let there = look(&at)?;
        if there.file_type().is_symlink() {
            *links += 1;
            let failed = |why| TrustError::Io { path: at.clone(), why };
            if *links > LINKS_MOST {
                return Err(failed(io::Error::from(rustix::io::Errno::LOOP)));
            }
            belongs(&at, &there)?;
            let leads = std::fs::read_link(&at).map_err(failed)?;
            let beside = at.parent().unwrap_or(Path::new("/")).to_owned();
            at = way(&beside.join(leads), links)?;
        }
    }
    Ok(at)
}

/// Opens a file that is there, or makes one with mode 0600 if `options` say so; a link in its place is not followed, and a
/// pipe is not waited for. Its folder must be looked at with [`folder`] first.
///
/// # Errors
/// What is no regular file, belongs to somebody else or can be written by others; the system's own.
pub fn open(path: &Path, options: &mut OpenOptions) -> Result<File, TrustError> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = options.mode(0o600).custom_flags(flags).open(path).map_err(|why| {
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
    belongs(path, &found)?;
    writable_by_others(path, &found)?;
    Ok(file)
}

/// Whether something that was looked at is root's or ours.
///
/// # Errors
/// [`TrustError::Owner`].
pub fn belongs(path: &Path, found: &Metadata) -> Result<(), TrustError> {
    let uid = found.uid();
    if uid == 0 || uid == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    Err(TrustError::Owner { path: path.to_owned(), uid })
}

fn writable_by_others(path: &Path, found: &Metadata) -> Result<(), TrustError> {
    // Root's group is root.
    let others = if found.gid() == 0 { 0o002 } else { 0o022 };
    if found.mode() & others == 0 {
        return Ok(());
    }
    Err(TrustError::Writable { path: path.to_owned(), mode: found.mode() & 0o7777 })
}

fn look(path: &Path) -> Result<Metadata, TrustError> {
    std::fs::symlink_metadata(path).map_err(|why| TrustError::Io { path: path.to_owned(), why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn said<T>(result: Result<T, TrustError>) -> String {
        result.err().map(|why| why.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_folder_is_trusted_with_all_that_leads_to_it() {
        // In /tmp, which everybody may write in and which has the sticky bit.
        let top = tempfile::tempdir().unwrap();
        let deep = top.path().join("a/b");
        std::fs::create_dir_all(&deep).unwrap();
        folder(&deep).unwrap();
        let mode = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        // At its end not even the sticky bit will do.
        mode(&deep, 0o1777);
        let why = said(folder(&deep));
        assert!(
            why.contains("/a/b can be written by other users (mode 1777); remove that permission"),
            "{why}"
        );
        mode(&deep, 0o755);
        mode(&top.path().join("a"), 0o777);
        assert!(said(folder(&deep)).contains("/a can be written by other users (mode 0777)"));
        mode(&top.path().join("a"), 0o1777);
        folder(&deep).unwrap();
        // By way of a link, too, and of what it leads through.
        mode(&top.path().join("a"), 0o777);
        symlink(top.path().join("a/b"), top.path().join("l")).unwrap();
        assert!(said(folder(&top.path().join("l"))).contains("/a can be written by other users"));
        mode(&top.path().join("a"), 0o755);
        folder(&top.path().join("l")).unwrap();
        symlink("l2", top.path().join("l2")).unwrap();
        assert!(said(folder(&top.path().join("l2"))).contains("/l2: Too many levels"));
        assert!(said(folder(&top.path().join("none"))).contains("/none: No such file"));
    }

    #[test]
    fn a_file_is_ours_or_roots_and_no_link() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("f");
        let read = || open(&path, File::options().read(true));
        open(&path, File::options().write(true).create(true)).unwrap();
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

    /// Needs root, as what it is about.
    #[test]
    fn what_belongs_to_another_user_is_not_trusted() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("f");
        std::fs::write(&path, "").unwrap();
        chown(&path, Some(1234), None).expect("not run: needs root");
        let why = said(open(&path, File::options().read(true)));
        assert!(why.contains("/f belongs to user 1234, not to root; give it to root"), "{why}");
        chown(top.path(), Some(1234), None).expect("not run: needs root");
        assert!(said(folder(top.path())).contains("belongs to user 1234"));
    }
}
