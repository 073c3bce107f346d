//! Errors of resctrl in one type: the file, the action, the kernel's reason, the accepted values.
//!
//! The kernel answers most refusals with EINVAL and keeps the reason in `info/last_cmd_status` (resctrl.rst, "error
//! reporting"); an error here carries both. It must not know what the caller wanted the knob for.

use crate::content::ContentError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The kind of failure, for the caller's reaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResctrlErrorKind {
    /// Retry later: RMIDs in limbo or a second mount (EBUSY), or ways that another group's mode keeps (EINVAL).
    Busy,
    /// ENOSPC: no CLOSID, RMID or cache left.
    Exhausted,
    /// The kernel does not accept this value (EINVAL, ERANGE, E2BIG, ENODEV of `io_alloc`), mostly with a reason.
    Refused,
    /// The group, domain or file no longer exists (ENODEV, ENOENT, or ESRCH of a write).
    Gone,
    /// EACCES, EPERM, EROFS.
    Denied,
    /// Another tool holds the lock on the mount.
    Locked,
    /// The group is not one of ours.
    Foreign,
    /// The caller could not record CPUs that would have to be returned.
    Unremembered,
    /// No resctrl here: not in the kernel, not in the CPU, or not mounted.
    NotMounted,
    /// A file's content is not what resctrl writes.
    Malformed,
    /// EEXIST: a group of that name exists.
    Exists,
    /// Any other error, for example EIO.
    Io,
}

/// The attempted action.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Opening or reading a file.
    Read,
    /// Writing this text with one write(2).
    Write(String),
    /// Listing a directory.
    List,
    /// Making a group.
    Make,
    /// Removing a group.
    Remove,
    /// Taking the lock on the mount.
    Lock,
}

/// A failure of one operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResctrlError {
    /// The kind of failure.
    pub kind: ResctrlErrorKind,
    /// The file or directory.
    pub path: PathBuf,
    /// The attempted action.
    pub action: Action,
    /// The system's error number, if a system call failed.
    pub errno: Option<i32>,
    /// The message in `info/last_cmd_status`.
    pub status: Option<String>,
    /// What is wrong in our words, or what would be accepted; may be empty.
    pub detail: String,
}

impl ResctrlError {
    /// A system call failed.
    pub(super) fn system(path: &Path, action: Action, error: &io::Error) -> ResctrlError {
        let errno = error.raw_os_error();
        let detail = if errno.is_none() { error.to_string() } else { String::new() };
        ResctrlError {
            kind: kind_of(errno, &action),
            path: path.to_path_buf(),
            action,
            errno,
            status: None,
            detail,
        }
    }

    /// A file's content is malformed.
    pub(super) fn malformed(path: &Path, detail: impl Into<String>) -> ResctrlError {
        ResctrlError {
            kind: ResctrlErrorKind::Malformed,
            path: path.to_path_buf(),
            action: Action::Read,
            errno: None,
            status: None,
            detail: detail.into(),
        }
    }

    /// A refusal of our own, before the kernel is asked.
    pub(super) fn ours(
        kind: ResctrlErrorKind,
        path: &Path,
        action: Action,
        detail: impl Into<String>,
    ) -> ResctrlError {
        ResctrlError {
            kind,
            path: path.to_path_buf(),
            action,
            errno: None,
            status: None,
            detail: detail.into(),
        }
    }

    /// The same failure with the accepted values.
    pub(super) fn expecting(mut self, accepted: impl Into<String>) -> ResctrlError {
        if self.detail.is_empty() && self.kind == ResctrlErrorKind::Refused {
            self.detail = format!("accepted: {}", accepted.into());
        }
        self
    }

    /// True if the file or group no longer exists. Other groups are not affected, and its count is not zero.
    pub fn is_gone(&self) -> bool {
        self.kind == ResctrlErrorKind::Gone
    }
}

/// The kind of an error number, from the tables of hardware.md 7.3, 7.4 and 8.1.
fn kind_of(errno: Option<i32>, action: &Action) -> ResctrlErrorKind {
    let writes = matches!(action, Action::Write(_));
    match errno {
        Some(libc::EBUSY) => ResctrlErrorKind::Busy,
        Some(libc::ENOSPC) => ResctrlErrorKind::Exhausted,
        Some(libc::EINVAL | libc::ERANGE | libc::E2BIG | libc::EOPNOTSUPP) => ResctrlErrorKind::Refused,
        Some(libc::ENODEV | libc::ENOENT) => ResctrlErrorKind::Gone,
        Some(libc::ESRCH) if writes => ResctrlErrorKind::Gone,
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => ResctrlErrorKind::Denied,
        Some(libc::EEXIST) => ResctrlErrorKind::Exists,
        _ => ResctrlErrorKind::Io,
    }
}

impl fmt::Display for ResctrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What was tried says nothing of a mount that is not there.
        if self.kind == ResctrlErrorKind::NotMounted && self.errno.is_none() {
            return write!(f, "{}: {}", self.path.display(), self.detail);
        }
        write!(f, "{}: ", self.path.display())?;
        match &self.action {
            Action::Read => f.write_str("reading")?,
            Action::Write(text) => write!(f, "writing `{}`", shown(text))?,
            Action::List => f.write_str("listing")?,
            Action::Make => f.write_str("making the group")?,
            Action::Remove => f.write_str("removing the group")?,
            Action::Lock => f.write_str("locking")?,
        }
        if let Some(errno) = self.errno {
            write!(f, ": {}", io::Error::from_raw_os_error(errno))?;
        }
        if let Some(status) = &self.status {
            write!(f, "; the kernel says: {status}")?;
        }
        if !self.detail.is_empty() {
            let mark = if self.errno.is_some() || self.status.is_some() { ";" } else { ":" };
            write!(f, "{mark} {}", self.detail)?;
        }
        Ok(())
    }
}

impl std::error::Error for ResctrlError {}

impl From<ContentError> for ResctrlError {
    fn from(error: ContentError) -> ResctrlError {
        let line = if error.line == 0 { String::new() } else { format!("line {}: ", error.line) };
        let why = format!("{line}expected {}, not `{}`", error.accepted, shown(&error.found));
        ResctrlError::malformed(&error.path, why)
    }
}

/// A text of the kernel, for an error.
pub(super) fn shown(text: &str) -> String {
    waykeeper_units::shown(text.trim_end_matches('\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_says_where_what_why_and_what_else() {
        let error = io::Error::from_raw_os_error(libc::EINVAL);
        let path = Path::new("/sys/fs/resctrl/g1/schemata");
        let mut error = ResctrlError::system(path, Action::Write("L3:0=5\n".into()), &error);
        error.status = Some("The mask 5 has non-consecutive 1-bits".into());
        let error = error.expecting("contiguous hex masks up to 7ff");
        assert_eq!(error.kind, ResctrlErrorKind::Refused);
        assert_eq!(
            error.to_string(),
            "/sys/fs/resctrl/g1/schemata: writing `L3:0=5`: Invalid argument (os error 22); the kernel says: The mask \
             5 has non-consecutive 1-bits; accepted: contiguous hex masks up to 7ff"
        );
    }

    #[test]
    fn long_and_strange_contents_stay_one_short_line() {
        let text = shown(&format!("a\nb\u{7}'{}", "x".repeat(200)));
        assert!(text.starts_with("a\\nb\\u{7}'xx") && text.ends_with('…') && text.len() < 80, "{text}");
    }

    #[test]
    fn error_numbers_have_their_kinds() {
        let kind = |errno| {
            ResctrlError::system(Path::new("x"), Action::Make, &io::Error::from_raw_os_error(errno)).kind
        };
        assert_eq!(kind(libc::EBUSY), ResctrlErrorKind::Busy);
        assert_eq!(kind(libc::ENOSPC), ResctrlErrorKind::Exhausted);
        assert_eq!(kind(libc::ENODEV), ResctrlErrorKind::Gone);
        assert_eq!(kind(libc::EPERM), ResctrlErrorKind::Denied);
        assert_eq!(kind(libc::EIO), ResctrlErrorKind::Io);
    }
}
