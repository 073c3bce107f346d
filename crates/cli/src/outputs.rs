//! Checks of the files and directories that a command will write, before its work starts: a command that runs for an hour
//! must not find at its end that its result has no place. Must not know what is written.

use crate::exit::{self, Failure};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::time::SystemTime;

/// Bytes that are written as a test and removed again, so that a full disk is noticed where the system tells (ours).
const TRIED: usize = 64 << 10;

/// Checks that `files` can be written into the directory `path` of the option `option`: it exists or can be made, can be
/// written and is not full. Existing files are refused unless they are to be replaced.
pub fn directory(option: &str, path: &Path, files: &[&str], replace: bool) -> Result<(), Failure> {
    let name = format!("{option} {}", path.display());
    let folder = existing(path).map_err(|why| failed(&name, &why))?;
    if !folder.is_dir() {
        let what = if folder == path { "it".to_owned() } else { folder.display().to_string() };
        return Err(Failure::bad_input(format!("{name}: {what} is no directory; name another place")));
    }
    let exists = |file: &&&str| fs::symlink_metadata(path.join(file)).is_ok();
    if let Some(file) = files.iter().find(exists).filter(|_| !replace) {
        return Err(Failure::bad_input(format!(
            "{name}: {} exists already; name another directory, or add --force",
            path.join(file).display()
        )));
    }
    try_to_write(folder).map_err(|why| failed(&name, &why))
}

/// Checks that the file `path` of the option `option` can be written: its directory exists, can be written and is not full.
/// An existing file is refused unless it is to be replaced.
pub fn file(option: &str, path: &Path, replace: bool) -> Result<(), Failure> {
    let name = format!("{option} {}", path.display());
    if path.is_dir() {
        return Err(Failure::bad_input(format!("{name}: it is a directory; name a file")));
    }
    if fs::symlink_metadata(path).is_ok() && !replace {
        return Err(Failure::bad_input(format!(
            "{name}: it exists already; name another file, or add --force"
        )));
    }
    let folder = folder_of(path);
    if !folder.is_dir() {
        return Err(Failure::bad_input(format!("{name}: there is no directory {}", folder.display())));
    }
    try_to_write(folder).map_err(|why| failed(&name, &why))
}

/// The path, or the nearest of the directories above it that exists.
fn existing(path: &Path) -> io::Result<&Path> {
    let mut at = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    loop {
        match fs::metadata(at) {
            Ok(_) => return Ok(at),
            Err(why) if matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                at = folder_of(at);
            }
            Err(why) => return Err(why),
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        // Of a name alone, and of the root.
        _ if path.has_root() => Path::new("/"),
        _ => Path::new("."),
    }
}

fn try_to_write(folder: &Path) -> io::Result<()> {
    // Commands on several machines may try one folder at a time, with the same process number.
    let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let path = folder.join(format!(".waykeeper-{}-{at}", std::process::id()));
    let mut file = File::create_new(&path)?;
    let written = file.write_all(&[0; TRIED]).and_then(|()| file.sync_all());
    fs::remove_file(&path)?;
    written
}

fn failed(name: &str, why: &io::Error) -> Failure {
    let code = match why.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => exit::NOT_PERMITTED,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => exit::CONFLICT,
        _ => exit::FAILED,
    };
    Failure::new(code, format!("{name} cannot be written: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_cannot_have_the_result_is_refused_and_nothing_is_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("taken"), "theirs").unwrap();
        let code = |checked: Result<(), Failure>| checked.map_or_else(|why| why.code(), |()| 0);
        for (files, replace, wanted) in
            [(&["new"][..], false, 0), (&["new", "taken"], false, 2), (&["taken"], true, 0)]
        {
            assert_eq!(code(directory("--out", folder.path(), files, replace)), wanted, "{files:?}");
        }
        assert_eq!(code(directory("--out", &at("a/b/c"), &["new"], false)), 0, "it can be made");
        for path in ["taken", "taken/below/it"] {
            let refused = directory("--out", &at(path), &["new"], true).unwrap_err();
            assert!(refused.line().contains("is no directory"), "{}", refused.line());
        }
        assert_eq!(code(file("-o", &at("new"), false)), 0);
        assert_eq!(code(file("-o", &at("taken"), true)), 0);
        for path in ["taken", "", "nowhere/new"] {
            assert_eq!(code(file("-o", &at(path), false)), 2, "{path}");
        }
        // Not even root creates files there.
        assert!([1, 4].contains(&code(directory("--out", Path::new("/sys/kernel"), &[], true))));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "only `taken`");
        assert_eq!(fs::read_to_string(at("taken")).unwrap(), "theirs");
    }
}
