//! Outputs whose name stands for something else than a regular file: a link, a pipe, a device, standard output. Nothing
//! takes their place.

use crate::common;

use common::{output, refused, tiny, waykeeper};
use rustix::fs::{CWD, FileType, Mode, makedev, mkfifoat, mknodat};
use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A trace of three records as text, in a folder of its own.
fn lackey() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lackey.txt");
    fs::write(&path, "I  04001000,3\n L 1ffeff0,8\nI  04001003,5\n S 1ffeff8,8\n").unwrap();
    let path = path.display().to_string();
    (folder, path)
}

fn names(folder: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn pipe(folder: &TempDir, name: &str) -> PathBuf {
    let path = folder.path().join(name);
    mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
    path
}

/// Opens a pipe as its reader, whose writer then comes.
fn reader(pipe: &Path) -> fs::File {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    fs::File::options().read(true).custom_flags(nonblocking).open(pipe).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_device_gets_the_output_or_refuses_it_and_stays() {
    assert!(rustix::process::geteuid().is_root(), "not run: needs root: it makes devices");
    let (_input, trace) = lackey();
    let folder = tempfile::tempdir().unwrap();
    let node = |name: &str, kind, numbers: (u32, u32)| {
        let path = folder.path().join(name);
        mknodat(CWD, &path, kind, Mode::RUSR | Mode::WUSR, makedev(numbers.0, numbers.1)).unwrap();
        path.display().to_string()
    };
    let null = node("null", FileType::CharacterDevice, (1, 3));
    let full = node("full", FileType::CharacterDevice, (1, 7));
    let disk = node("disk", FileType::BlockDevice, (7, 250));
    for force in [&[][..], &["--force"]] {
        let ends = |out: &str, code: i32, why: &str| {
            let words = [&["trace", "convert", &trace, out][..], force].concat();
            let done = waykeeper().args(words).assert().code(code);
            let said = String::from_utf8_lossy(&done.get_output().stderr).into_owned();
            assert!(said.contains(why), "{said}");
        };
        ends(&null, 0, "");
        ends(&full, 5, "full: No space left on device");
        ends(&disk, 2, "disk: it is a block device; name a file");
        let here = text(folder.path());
        let init = [&["init", "--root", here, "--out", &null, "--observe-for", "0"][..], force].concat();
        refused(&init, 2, &["null: it is no regular file, which a daemon reads; --out - prints"]);
    }
    // A name of our own choice that leads to a device.
    symlink("full", folder.path().join("mine.py")).unwrap();
    refused(&["policy", "new", "mine", "--dir", text(folder.path())], 5, &["mine.py: No space left"]);
    assert_eq!(names(&folder), ["disk", "full", "mine.py", "null"]);
    for name in ["full", "null"] {
        assert!(fs::symlink_metadata(folder.path().join(name)).unwrap().file_type().is_char_device());
    }
}

#[test]
fn a_pipe_and_standard_output_get_what_a_file_would_have() {
    let (_input, trace) = lackey();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let report = output(&["trace", "convert", &trace, text(&file)]);
    let content = fs::read(&file).unwrap();
    let fifo = pipe(&folder, "fifo");
    let convert = ["trace", "convert", &trace, text(&fifo)];
    refused(&convert, 2, &["fifo: it is a pipe that no process reads"]);
    let mut reads = reader(&fifo);
    assert_eq!(output(&convert), report);
    let mut got = Vec::new();
    reads.read_to_end(&mut got).unwrap();
    assert!(got == content, "{} and {} bytes", got.len(), content.len());
    assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());
    let link = folder.path().join("link");
    symlink("/dev/stdout", &link).unwrap();
    for path in ["-", "/dev/stdout", "/dev/fd/1", text(&link)] {
        let done =
            waykeeper().current_dir(&folder).args(["trace", "convert", &trace, path]).assert().success();
        let done = done.get_output();
        assert!(done.stdout == content, "{path}: {} bytes", done.stdout.len());
        // The report does not get into the trace.
        assert_eq!(String::from_utf8_lossy(&done.stderr), report, "{path}");
    }
    for path in ["-", "/dev/stdout"] {
        refused(&["trace", "record", "-o", path, "--", "true"], 2, &["belongs to the recorded program"]);
        let log = ["memload", text(&file), "--time", "1s", "--log", path];
        refused(&log, 2, &["standard output has the result; name a file or a pipe"]);
        for words in [&["run", "--out", path][..], &["man", "--out", path]] {
            refused(words, 2, &[&format!("--out {path}: several files are written")]);
        }
    }
    assert_eq!(names(&folder), ["fifo", "file", "link"]);
    assert!(!Path::new("-").exists());
}

/// A redirected standard output is appended to where it is.
#[test]
fn a_file_that_is_standard_output_is_written_where_it_is() {
    let (_input, trace) = lackey();
    let folder = tempfile::tempdir().unwrap();
    let (file, both) = (folder.path().join("file"), folder.path().join("both"));
    output(&["trace", "convert", &trace, text(&file)]);
    fs::write(&both, "before\n").unwrap();
    let append = fs::File::options().append(true).open(&both).unwrap();
    let done = Command::new(env!("CARGO_BIN_EXE_waykeeper"))
        .args(["trace", "convert", &trace, "/dev/stdout"])
        .stdout(append)
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    assert!(fs::read(&both).unwrap() == [&b"before\n"[..], &fs::read(&file).unwrap()].concat());
}

#[test]
fn a_link_is_followed_and_one_to_a_directory_is_refused() {
    let (_input, trace) = lackey();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("below")).unwrap();
    fs::write(at("below/file"), "theirs").unwrap();
    symlink("below/file", at("link")).unwrap();
    symlink("below/new", at("dangling")).unwrap();
    symlink("below", at("folder")).unwrap();
    let convert = |name: &str| ["trace", "convert", &trace, at(name).to_str().unwrap()].map(str::to_owned);
    let refuse = |name: &str, why: &str| {
        let words = convert(name);
        refused(&words.each_ref().map(String::as_str), 2, &[why]);
    };
    refuse("link", "link: it exists already");
    refuse("folder", "folder: it is a directory; name a file");
    symlink("none/new", at("astray")).unwrap();
    symlink("loop", at("loop")).unwrap();
    refuse("loop", "loop cannot be written: Too many levels of symbolic links");
    refuse(&"x".repeat(300), "xxx cannot be written: File name too long");
    refuse("/proc/file", "/proc/file: no file can be made there");
    refuse("astray", "astray: it is a link into a directory that does not exist");
    waykeeper().args(convert("link")).arg("--force").assert().success();
    waykeeper().args(convert("dangling")).assert().success();
    assert!(fs::read(at("below/new")).unwrap() == fs::read(at("below/file")).unwrap());
    for name in ["link", "dangling", "folder"] {
        assert!(fs::symlink_metadata(at(name)).unwrap().is_symlink(), "{name}");
    }
    assert_eq!(fs::read_dir(at("below")).unwrap().count(), 2);
}

/// A run of an hour must not find at its end that its result has no place.
#[test]
fn a_folder_behind_a_link_exists_before_the_work_starts() {
    let (_scenario, scenario) = tiny();
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link");
    symlink("there", &link).unwrap();
    for out in [link.clone(), link.join(""), link.join("below")] {
        let wanted = format!("--out {}: ", out.display());
        let why = "is a link to a directory that does not exist";
        refused(&["run", text(&scenario), "--policy", "none", "--out", text(&out)], 2, &[&wanted, why]);
        refused(&["man", "--out", text(&out)], 2, &[&wanted, why]);
    }
    assert_eq!(names(&folder), ["link"]);
    fs::create_dir(folder.path().join("there")).unwrap();
    output(&["run", text(&scenario), "--policy", "none", "--out", text(&link)]);
    assert!(folder.path().join("there/summary.json").exists());
}

/// A pipe among the files of a result would wait for its reader until the end of the run.
#[test]
fn a_result_is_not_written_into_what_is_no_file() {
    let (_scenario, scenario) = tiny();
    let out = tempfile::tempdir().unwrap();
    let csv = pipe(&out, "timeseries.csv");
    let run = ["run", text(&scenario), "--policy", "none", "--out", text(out.path())];
    for force in [&[][..], &["--force"]] {
        refused(
            &[&run[..], force].concat(),
            2,
            &["timeseries.csv is no regular file; name another directory"],
        );
    }
    // No page is written before the last is found to have no place.
    let pages = tempfile::tempdir().unwrap();
    pipe(&pages, "waykeeper.1");
    refused(&["man", "--out", text(pages.path())], 2, &["waykeeper.1 is no regular file"]);
    assert_eq!(names(&pages), ["waykeeper.1"]);
    fs::remove_file(&csv).unwrap();
    // Into a file elsewhere, by a link.
    let elsewhere = tempfile::tempdir().unwrap();
    symlink(elsewhere.path().join("series"), &csv).unwrap();
    output(&[&run[..], &["--force"]].concat());
    assert!(fs::symlink_metadata(&csv).unwrap().is_symlink());
    let series = fs::read_to_string(elsewhere.path().join("series")).unwrap();
    assert!(series.starts_with("policy,at_s,state,scope,name,"), "{series}");
}

/// As on a full disk: no file may have a byte.
#[test]
fn a_new_policy_that_has_no_room_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, here) = (text(folder.path()), common::shipped(""));
    for more in [&[][..], &["--rust", "--checkout", &here]] {
        let done = Command::new("bash")
            .args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "bash", env!("CARGO_BIN_EXE_waykeeper")])
            .args(["policy", "new", "mine", "--dir", dir])
            .args(more)
            .output()
            .unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(1), "{said}");
        assert!(said.starts_with("error: ") && said.contains("File too large"), "{said}");
        assert_eq!(names(&folder), [""; 0], "{said}");
    }
}
