//! Checks of the files and directories that a command will write, before its work starts: a command that runs for an hour
//! must not find at its end that its result has no place. Must not know what is written.

use crate::exit::{self, Failure};
use crate::out;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use waykeeper_output_file::{Existing, OutputFile, check, check_folder, folder_of, is_stdout};

/// Checks that `files` can be written into the directory `path` of the option `option`: it exists or can be made, can be
/// written and is not full. Existing files are refused unless they are to be replaced, and what is no file always.
pub fn directory(option: &str, path: &Path, files: &[&str], replace: bool) -> Result<(), Failure> {
    let name = format!("{option} {}", path.display());
    if is_stdout(path) {
        return Err(Failure::bad_input(format!(
            "{name}: several files are written, which standard output cannot hold; name a directory"
        )));
    }
    let folder = existing(path).map_err(|why| refused(&name, path, &why))?;
    let is_directory = match fs::metadata(folder) {
        Ok(found) => Some(found.is_dir()),
        // A link to a directory that does not exist is there, and no directory can be made in its place.
        Err(why) if matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => None,
        Err(why) => return Err(refused(&name, path, &why)),
    };
    if is_directory != Some(true) {
        let what = if folder == path { "it".to_owned() } else { folder.display().to_string() };
        let why = match is_directory {
            Some(_) => "is no directory; name another place",
            None => "is a link to a directory that does not exist",
        };
        return Err(Failure::bad_input(format!("{name}: {what} {why}")));
    }
    for file in files.iter().map(|file| path.join(file)).filter(|file| fs::symlink_metadata(file).is_ok()) {
        let file_name = file.display();
        // A pipe would wait for its reader until the end of the work.
        if fs::metadata(&file).is_ok_and(|found| !found.is_file()) {
            return Err(Failure::bad_input(format!(
                "{name}: {file_name} is no regular file; name another directory"
            )));
        }
        if !replace {
            return Err(Failure::bad_input(format!(
                "{name}: {file_name} exists already; name another directory, or add --force"
            )));
        }
        begin(option, &file, true)?;
    }
    check_folder(folder).map_err(|why| refused(&name, path, &why))
}

/// Checks that the file `path` of the option `option` can be written: its directory exists, can be written and is not full.
/// An existing file is refused unless it is to be replaced.
pub fn file(option: &str, path: &Path, replace: bool) -> Result<(), Failure> {
    check(path, existing_is(replace))
        .map_err(|why| refused(&format!("{option} {}", path.display()), path, &why))
}

/// Begins the file `path` of the option `option`. An existing file is refused unless it is to be replaced.
pub fn begin(option: &str, path: &Path, replace: bool) -> Result<OutputFile, Failure> {
    OutputFile::begin(path, existing_is(replace))
        .map_err(|why| refused(&format!("{option} {}", path.display()), path, &why))
}

/// Prints what a command reports about its output `path`: on standard error if that is standard output.
pub fn report(path: &Path, text: &str) -> Result<(), Failure> {
    if !is_stdout(path) {
        return out::text(text);
    }
    exit::eprint_line(text.trim_end());
    Ok(())
}

fn existing_is(replace: bool) -> Existing {
    if replace { Existing::Replace } else { Existing::Keep }
}

/// The path, or the nearest of the directories above it that exists.
fn existing(path: &Path) -> io::Result<&Path> {
    // Without a `/` at its end, which the system takes for what a link leads to.
    let path = path.components().as_path();
    let mut at = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    loop {
        match fs::symlink_metadata(at) {
            Ok(_) => return Ok(at),
            Err(why) if matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                at = folder_of(at);
            }
            Err(why) => return Err(why),
        }
    }
}

fn refused(name: &str, path: &Path, why: &io::Error) -> Failure {
    match why.kind() {
        ErrorKind::AlreadyExists => {
            let what = "it exists already; name another file, or add --force";
            Failure::bad_input(format!("{name}: {what}"))
        }
        ErrorKind::NotFound | ErrorKind::NotADirectory if !folder_of(path).is_dir() => {
            Failure::bad_input(format!("{name}: there is no directory {}", folder_of(path).display()))
        }
        ErrorKind::NotFound => {
            let is_link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
            let what = if is_link {
                "it is a link into a directory that does not exist"
            } else {
                "no file can be made there"
            };
            Failure::bad_input(format!("{name}: {what}"))
        }
        ErrorKind::IsADirectory | ErrorKind::InvalidInput => Failure::bad_input(format!("{name}: {why}")),
        _ => Failure::io(format!("{name} cannot be written"), why),
    }
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
