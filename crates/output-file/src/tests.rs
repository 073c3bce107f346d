//! What a name may stand for, and what stands there afterwards.

use super::*;
use rustix::fs::{FileType, makedev, mkfifoat, mknodat};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, symlink};
use std::os::unix::net::UnixListener;
use tempfile::TempDir;

fn names(folder: &TempDir) -> Vec<String> {
    let entries = folder.path().read_dir().unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

fn refused(path: &Path) -> String {
    let why = write(path, b"ours", Existing::Replace).unwrap_err().to_string();
    assert_eq!(check(path, Existing::Replace).unwrap_err().to_string(), why, "checked before the work");
    why
}

fn pipe(folder: &TempDir) -> PathBuf {
    let path = folder.path().join("pipe");
    mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
    path
}

/// As on the command line of other programs.
#[test]
fn a_dash_is_standard_output_and_a_path_to_one_is_not() {
    assert!(is_stdout(Path::new("-")));
    for path in ["./-", "-/", "--", "a/-"] {
        assert!(!is_stdout(Path::new(path)), "{path}");
    }
}

#[test]
fn a_file_has_its_name_when_it_is_complete_and_else_nothing_remains() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    check(&path, Existing::Keep).unwrap();
    assert_eq!(names(&folder), [""; 0]);
    let unnamed = || OutputFile::draft(path.clone(), Existing::Replace).unwrap();
    let named = || OutputFile::named_draft(path.clone(), Existing::Replace).unwrap();
    for (begin, word) in [(&unnamed as &dyn Fn() -> OutputFile, "one"), (&named, "two")] {
        let before = fs::read(&path).ok();
        begin().write_all(b"half").unwrap();
        assert_eq!(fs::read(&path).ok(), before);
        let mut file = begin();
        file.write_all(word.as_bytes()).unwrap();
        assert_eq!(fs::read(&path).ok(), before);
        file.keep().unwrap();
        assert_eq!((text(&path).as_str(), names(&folder)), (word, vec!["file".to_owned()]));
    }
}

/// The system gives a file that was opened so no name.
#[test]
fn a_draft_that_gets_no_name_is_copied() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::open(folder.path(), flags, Mode::from_raw_mode(0o640)).unwrap();
    let draft = Draft { path: path.clone(), name: None, existing: Existing::Keep };
    let mut output = OutputFile { file: file.into(), draft: Some(draft) };
    output.write_all(b"one ").unwrap();
    let place = output.draft_path().unwrap().unwrap().to_owned();
    output.write_all(b"two").unwrap();
    assert_eq!(text(&place), "one two");
    output.keep().unwrap();
    assert_eq!((text(&path).as_str(), names(&folder)), ("one two", vec!["file".to_owned()]));
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
}

#[test]
fn a_replaced_file_keeps_its_mode_and_one_that_is_to_stay_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let late = OutputFile::begin(&path, Existing::Keep).unwrap();
    fs::write(&path, "theirs").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    for why in [check(&path, Existing::Keep), write(&path, b"ours", Existing::Keep)] {
        assert_eq!(why.unwrap_err().kind(), ErrorKind::AlreadyExists);
    }
    // It came after the beginning: it stays, and so does what is complete.
    let why = late.keep().unwrap_err();
    assert_eq!(why.kind(), ErrorKind::AlreadyExists);
    let kept = why.to_string().split_once("still named ").map(|(_, name)| PathBuf::from(name)).unwrap();
    assert_eq!((text(&path).as_str(), kept.exists(), names(&folder).len()), ("theirs", true, 2));
    write(&path, b"ours", Existing::Replace).unwrap();
    assert_eq!(text(&path), "ours");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
}

#[test]
fn a_link_is_followed_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("below")).unwrap();
    fs::write(at("below/file"), "old").unwrap();
    // A relative link in another folder, and one to it; a link to nothing.
    symlink("file", at("below/link")).unwrap();
    symlink("below/link", at("link")).unwrap();
    symlink("below/new", at("dangling")).unwrap();
    write(&at("link"), b"ours", Existing::Replace).unwrap();
    write(&at("dangling"), b"new", Existing::Keep).unwrap();
    assert_eq!((text(&at("below/file")).as_str(), text(&at("below/new")).as_str()), ("ours", "new"));
    for link in ["below/link", "link", "dangling"] {
        assert!(fs::symlink_metadata(at(link)).unwrap().is_symlink(), "{link}");
    }
    assert_eq!(fs::read_dir(at("below")).unwrap().count(), 3);
    symlink("below", at("folder")).unwrap();
    symlink("round", at("round")).unwrap();
    assert_eq!(refused(&at("folder")), "it is a directory; name a file");
    assert!(refused(&at("round")).contains("symbolic links"));
    let kept = write(&at("link"), b"x", Existing::Keep).unwrap_err();
    assert_eq!(kept.kind(), ErrorKind::AlreadyExists);
}

#[test]
fn what_can_have_no_content_of_ours_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    assert_eq!(refused(&socket), "it is a socket; name a file");
    assert_eq!(refused(folder.path()), "it is a directory; name a file");
    assert_eq!(refused(&folder.path().join("new/")), "it is a directory; name a file");
    assert_eq!(refused(Path::new("")), "it is empty; name a file");
    assert!(refused(&folder.path().join("none/new")).starts_with("No such file or directory"));
    assert!(refused(&socket.join("new")).starts_with("Not a directory"));
    assert_eq!(names(&folder), ["socket"]);
}

#[test]
fn a_pipe_is_written_through_for_its_reader() {
    let folder = tempfile::tempdir().unwrap();
    let path = pipe(&folder);
    let why = write(&path, b"ours", Existing::Replace).unwrap_err();
    assert_eq!(why.to_string(), "it is a pipe that no process reads");
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let mut reader = File::options().read(true).custom_flags(nonblocking).open(&path).unwrap();
    // The check does not end what the reader reads.
    check(&path, Existing::Keep).unwrap();
    let mut file = OutputFile::begin(&path, Existing::Keep).unwrap();
    file.write_all(b"ours").unwrap();
    file.keep().unwrap();
    let mut content = String::new();
    reader.read_to_string(&mut content).unwrap();
    assert_eq!(content, "ours");
    assert!(fs::symlink_metadata(&path).unwrap().file_type().is_fifo());
    assert_eq!(names(&folder), ["pipe"]);
}

/// Nodes as `/dev/null` and `/dev/full` are.
#[test]
fn a_device_is_written_through_and_stays() {
    assert!(rustix::process::geteuid().is_root(), "not run: needs root: it makes devices");
    let folder = tempfile::tempdir().unwrap();
    let node = |name: &str, kind, numbers: (u32, u32)| {
        let path = folder.path().join(name);
        mknodat(CWD, &path, kind, Mode::RUSR | Mode::WUSR, makedev(numbers.0, numbers.1)).unwrap();
        path
    };
    let null = node("null", FileType::CharacterDevice, (1, 3));
    let full = node("full", FileType::CharacterDevice, (1, 7));
    let disk = node("disk", FileType::BlockDevice, (7, 250));
    symlink("full", folder.path().join("link")).unwrap();
    for existing in [Existing::Keep, Existing::Replace] {
        check(&null, existing).unwrap();
        write(&null, b"ours", existing).unwrap();
        for path in [&full, &folder.path().join("link")] {
            assert_eq!(write(path, b"ours", existing).unwrap_err().kind(), ErrorKind::StorageFull);
        }
    }
    assert_eq!(refused(&disk), "it is a block device; name a file");
    for path in [&null, &full] {
        assert!(fs::symlink_metadata(path).unwrap().file_type().is_char_device(), "{}", path.display());
    }
    assert_eq!(names(&folder), ["disk", "full", "link", "null"]);
}
