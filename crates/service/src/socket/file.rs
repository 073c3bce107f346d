//! A listening socket in the file system: created with the right owner and mode, removed at the end.
//!
//! A socket that a crash left is replaced; a live one, or a file of another type, is not. Must not know the protocol.

use rustix::fs::{Gid, Mode};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use waykeeper_kernel::system::{Metadata, RealSystem};
use waykeeper_kernel::trust::{self, TrustError};

/// Connections that may wait for `accept`. Assumption: the usual listen(2) backlog of servers.
const BACKLOG: i32 = 128;

/// Why the socket could not be created.
#[derive(Debug, thiserror::Error)]
pub enum SocketFileError {
    /// Another program listens there.
    #[error("{path}: another program listens on this socket; end it, or set another path", path = .0.display())]
    InUse(PathBuf),
    /// It is another type of file.
    #[error("{path}: this is {what}, not a socket; it is not replaced, set another path", path = .path.display())]
    Other {
        /// The path.
        path: PathBuf,
        /// Type of the file there.
        what: &'static str,
    },
    /// Other users could replace it.
    #[error("{path}: not a safe place for a socket: {why}", path = .path.display())]
    Untrusted {
        /// The path.
        path: PathBuf,
        /// What other users could change.
        why: TrustError,
    },
    /// It cannot be given to the readers' group.
    #[error(
        "{path}: the socket cannot be given to group {gid}: {why}; a daemon without CAP_CHOWN must be a member of that group \
         (SupplementaryGroups= of its unit)", path = .path.display()
    )]
    Group {
        /// The path.
        path: PathBuf,
        /// The group's id.
        gid: u32,
        /// The system's message.
        why: io::Error,
    },
    /// The path is not valid for a socket.
    #[error("{path}: a socket's path must be absolute and at most 90 bytes long", path = .0.display())]
    Path(PathBuf),
    /// The system refused.
    #[error("{path}: {what}: {why}", path = .path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        why: io::Error,
    },
}

/// A socket's file. Dropping this removes it, unless another file has replaced it.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode of our socket.
    ours: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|there| there == self.ours) {
            // If it cannot be removed, no program listens on it any more: the next start replaces it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Listens at `path`; members of `group` may connect besides the owner. The listener does not block.
///
/// The socket is created under a temporary name beside it, with a mode that only its owner can use, and renamed when it
/// has its owner, mode and listener.
///
/// # Errors
/// If another program listens there, if it is another type of file, or if the system refuses.
pub fn listen(path: &Path, group: Option<u32>) -> Result<(UnixListener, SocketFile), SocketFileError> {
    let failed =
        |what: &'static str| move |why: io::Error| SocketFileError::Io { path: path.to_owned(), what, why };
    let (folder, name) = folder_and_name(path)?;
    match std::fs::DirBuilder::new().mode(0o755).create(folder) {
        Err(why) if why.kind() != io::ErrorKind::AlreadyExists => {
            return Err(failed(NO_FOLDER)(why));
        }
        _ => {}
    }
    trust::folder(&RealSystem, folder).map_err(|why| untrusted(path, why))?;
    refuse_what_is_alive(path)?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}", std::process::id()));
    let hidden = folder.join(hidden);
    // Only an earlier process with our id can have left it.
    match std::fs::remove_file(&hidden) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => {
            return Err(failed("cannot remove the file that an earlier start left beside it")(why));
        }
        _ => {}
    }
    let none = failed("cannot create the socket");
    let listener = make(&hidden).map_err(&none).and_then(|socket| {
        if let Some(gid) = group {
            rustix::fs::chown(&hidden, None, Some(Gid::from_raw(gid)))
                .map_err(|why| SocketFileError::Group { path: path.to_owned(), gid, why: why.into() })?;
            let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP;
            rustix::fs::chmod(&hidden, mode).map_err(|why| none(why.into()))?;
        }
        let ours = identity(&hidden).map_err(&none)?;
        std::fs::rename(&hidden, path).map_err(&none)?;
        Ok((UnixListener::from(socket), SocketFile { path: path.to_owned(), ours }))
    });
    listener.inspect_err(|_| {
        let _ = std::fs::remove_file(&hidden);
    })
}

/// What [`listen`] would be refused for, as far as that shows without a change. A program that listens there is none: it may
/// be the daemon that is to be replaced.
///
/// # Errors
/// As [`listen`].
pub fn check(path: &Path) -> Result<(), SocketFileError> {
    let (folder, _) = folder_and_name(path)?;
    if !folder.exists() && !folder.parent().is_some_and(Path::is_dir) {
        let why = io::Error::from_raw_os_error(rustix::io::Errno::NOENT.raw_os_error());
        return Err(SocketFileError::Io { path: path.to_owned(), what: NO_FOLDER, why });
    }
    match trust::folder(&RealSystem, folder) {
        Err(why) if !why.is_absent() => return Err(untrusted(path, why)),
        _ => {}
    }
    match refuse_what_is_alive(path) {
        Err(SocketFileError::InUse(_)) => Ok(()),
        // A daemon's socket is its owner's, who may be another user than the one who checks.
        Err(SocketFileError::Io { what: UNKNOWN_LISTENER, why, .. })
            if why.kind() == io::ErrorKind::PermissionDenied =>
        {
            Ok(())
        }
        other => other,
    }
}

const NO_FOLDER: &str = "cannot create its directory";
const UNKNOWN_LISTENER: &str = "cannot find out whether a program listens on it";

fn folder_and_name(path: &Path) -> Result<(&Path, &OsStr), SocketFileError> {
    // sun_path takes 107 bytes; the temporary name adds a dot and a process id.
    let is_good = path.is_absolute() && path.as_os_str().len() <= 90;
    let parts = path.parent().zip(path.file_name()).filter(|_| is_good);
    parts.ok_or_else(|| SocketFileError::Path(path.to_owned()))
}

fn untrusted(path: &Path, why: TrustError) -> SocketFileError {
    match why {
        TrustError::Io { why, .. } => {
            SocketFileError::Io { path: path.to_owned(), what: "cannot read its directories", why }
        }
        why => SocketFileError::Untrusted { path: path.to_owned(), why },
    }
}

fn make(hidden: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Linux gives the file the mode of the unbound socket, less the umask (unix_bind_bsd); the umask itself belongs to
    // the whole process and is left alone.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(hidden)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// A socket of ours or of root on which no program listens may be replaced; other files may not.
fn refuse_what_is_alive(path: &Path) -> Result<(), SocketFileError> {
    let failed = |what, why: io::Error| SocketFileError::Io { path: path.to_owned(), what, why };
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(why) => return Err(failed("cannot read what is at this path", why)),
    };
    let kind = found.file_type();
    if !kind.is_socket() {
        let what = match kind {
            kind if kind.is_dir() => "a directory",
            kind if kind.is_symlink() => "a symbolic link",
            kind if kind.is_fifo() => "a pipe",
            kind if kind.is_file() => "a file",
            _ => "a device",
        };
        return Err(SocketFileError::Other { path: path.to_owned(), what });
    }
    trust::belongs(&RealSystem, path, &Metadata::from(&found)).map_err(|why| untrusted(path, why))?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let tried = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .and_then(|socket| rustix::net::connect(&socket, &SocketAddrUnix::new(path)?));
    match tried {
        Err(rustix::io::Errno::CONNREFUSED | rustix::io::Errno::NOENT) => Ok(()),
        // The queue of a program that does not accept is full: it is alive.
        Ok(()) | Err(rustix::io::Errno::AGAIN) => Err(SocketFileError::InUse(path.to_owned())),
        Err(why) => Err(failed(UNKNOWN_LISTENER, why.into())),
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    fn names(folder: &Path) -> Vec<String> {
        std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn a_check_says_what_would_be_refused_and_makes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/waykeeper.sock");
        check(&path).unwrap();
        assert!(names(folder.path()).is_empty(), "the directory can be made");
        let (listener, place) = listen(&path, None).unwrap();
        check(&path).unwrap();
        drop((listener, place));
        std::fs::write(&path, "").unwrap();
        assert!(check(&path).unwrap_err().to_string().contains("this is a file, not a socket"));
        let deep = folder.path().join("none/run/waykeeper.sock");
        let refused = check(&deep).unwrap_err().to_string();
        assert_eq!(refused, listen(&deep, None).unwrap_err().to_string());
        assert!(matches!(check(Path::new("run/waykeeper.sock")), Err(SocketFileError::Path(_))));
    }

    #[test]
    fn the_socket_has_its_mode_and_is_removed_with_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/waykeeper.sock");
        let gid = rustix::process::getegid().as_raw();
        let (listener, place) = listen(&path, Some(gid)).unwrap();
        let meta = std::fs::symlink_metadata(&path).unwrap();
        assert_eq!((meta.permissions().mode() & 0o7777, meta.gid()), (0o660, gid));
        assert_eq!(names(path.parent().unwrap()), ["waykeeper.sock"]);
        UnixStream::connect(&path).unwrap();
        drop((listener, place));
        assert!(names(path.parent().unwrap()).is_empty());
        let (_listener, _place) = listen(&path, None).unwrap();
        assert_eq!(std::fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    }

    #[test]
    fn what_a_crash_left_is_replaced_and_what_is_alive_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        drop(UnixListener::bind(&path).unwrap());
        let (first, first_place) = listen(&path, None).unwrap();
        let error = listen(&path, None).unwrap_err();
        assert!(matches!(error, SocketFileError::InUse(_)), "{error}");
        assert!(
            error
                .to_string()
                .ends_with("another program listens on this socket; end it, or set another path")
        );
        // A program that accepts no more connections is alive too.
        let waiting: Vec<UnixStream> = std::iter::from_fn(|| {
            let socket = rustix::net::socket_with(
                AddressFamily::UNIX,
                SocketType::STREAM,
                SocketFlags::NONBLOCK,
                None,
            );
            let socket = socket.unwrap();
            let there = rustix::net::connect(&socket, &SocketAddrUnix::new(&path).unwrap());
            there.is_ok().then(|| UnixStream::from(socket))
        })
        .collect();
        assert!(waiting.len() >= BACKLOG as usize);
        assert!(matches!(listen(&path, None), Err(SocketFileError::InUse(_))));
        // The first listener's drop does not remove the second's file.
        drop(first);
        let (_second, _place) = listen(&path, None).unwrap();
        drop(first_place);
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn what_is_no_socket_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let said = |path: &Path| listen(path, None).unwrap_err().to_string();
        std::fs::write(&path, "precious").unwrap();
        assert!(said(&path).ends_with("this is a file, not a socket; it is not replaced, set another path"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        let link = folder.path().join("l");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(said(&link).contains("this is a symbolic link"));
        let inner = folder.path().join("d");
        std::fs::create_dir(&inner).unwrap();
        assert!(said(&inner).contains("this is a directory"));
        assert!(said(Path::new("s")).contains("absolute"));
        assert!(said(&folder.path().join("x".repeat(100))).contains("at most 90 bytes"));
        assert!(said(&path.join("below")).contains("cannot read what is at this path"));
        assert_eq!(names(folder.path()).len(), 3);
    }

    /// Needs root, since it changes the owner.
    #[test]
    fn what_others_could_have_a_hand_in_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        drop(UnixListener::bind(&path).unwrap());
        std::os::unix::fs::chown(&path, Some(1234), None).expect("not run: needs root");
        let why = listen(&path, None).unwrap_err().to_string();
        assert!(
            why.contains("/s belongs to user 1234, not to root (mode 0755); give it to root (chown root)"),
            "{why}"
        );
        assert!(path.exists());
        std::fs::remove_file(&path).unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
        let why = listen(&path, None).unwrap_err().to_string();
        assert!(why.contains("s: not a safe place for a socket: ") && why.contains("(mode 1777)"), "{why}");
        assert_eq!(check(&path).unwrap_err().to_string(), why);
        assert_eq!(names(folder.path()), Vec::<String>::new());
    }
}
