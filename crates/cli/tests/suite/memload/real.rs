//! Load on files of this machine: totals, faults, signals. Needs root for a file system of its own that is full or
//! read-only.

use crate::common::{refused, waykeeper};
use crate::memload::{ended, under_way};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder in the build folder, where files take O_DIRECT, with a file of 4 MiB.
fn file() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, vec![0x5A; 4 << 20]).unwrap();
    (folder, path)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Exit code, the summary, and standard error.
fn run(arguments: &[&str]) -> (i32, Value, String) {
    let done = waykeeper().arg("memload").args(arguments).arg("--json").output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    let summary = serde_json::from_slice(&done.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    (done.status.code().unwrap(), summary, said)
}

fn errors(said: &str) -> Vec<&str> {
    said.lines().filter(|line| line.starts_with("error: ")).collect()
}

#[test]
fn a_run_says_what_it_did_to_the_last_command() {
    let (folder, path) = file();
    let log = folder.path().join("log.csv");
    let words = ["--commands", "100", "--depth", "8", "--workers", "2", "--verify", "--log", text(&log)];
    let (code, summary, said) = run(&[&[text(&path)], &words[..]].concat());
    assert_eq!(code, 0, "{said}");
    assert_eq!((&summary["engine"], &summary["errors"]), (&"uring".into(), &0.into()));
    assert_eq!((&summary["commands"], &summary["blocks"]), (&100.into(), &3100.into()));
    // 3100 blocks of 4096 B are 64 lines each; 64 B of command and 16 B of completion for each command.
    assert_eq!(summary["counters"]["ItoM"]["expected"], 198_400);
    let (bandwidth, runtime) = (&summary["bandwidth_bytes_per_s"], &summary["runtime_s"]);
    let bytes = bandwidth.as_f64().unwrap() * runtime.as_f64().unwrap();
    assert!((bytes - (3100.0 * 4096.0 + 100.0 * 80.0)).abs() < 1.0, "{bytes}");
    for quantile in ["min", "mean", "p50", "p99", "p99.9", "max"] {
        assert!(summary["latency_us"][quantile].as_f64().unwrap() > 0.0, "{quantile}");
    }
    assert!(summary["cpu_us_per_io"].as_f64().unwrap() >= 0.0);
    assert!(
        said.contains("engine: uring") && said.contains("verified: 1000 blocks have the right content"),
        "{said}"
    );
    let log = std::fs::read_to_string(log).unwrap();
    assert_eq!(log.lines().count(), 101);
    assert!(log.starts_with("sent_ns,took_ns,op,buffer_byte,device_byte,bytes\n"), "{log}");
}

/// As `--log >(gzip >log.gz)`.
#[test]
fn a_log_is_written_into_a_pipe() {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    let (folder, path) = file();
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut reader = std::fs::File::options().read(true).custom_flags(nonblocking).open(&pipe).unwrap();
    let (code, _, said) = run(&[text(&path), "--commands", "10", "--log", text(&pipe)]);
    assert_eq!(code, 0, "{said}");
    let mut log = String::new();
    reader.read_to_string(&mut log).unwrap();
    assert!(log.starts_with("sent_ns,took_ns,") && log.lines().count() == 11, "{log}");
}

#[test]
fn people_get_a_table() {
    let (_folder, path) = file();
    let words = ["memload", text(&path), "--pattern", "single", "--blocks", "20", "--profile", "thesis"];
    let done = waykeeper().args(words).assert().success();
    let table = String::from_utf8(done.get_output().stdout.clone()).unwrap();
    assert!(table.contains("single write (the drive is read), 4096 B blocks, by uring"), "{table}");
    assert!(table.contains("20 counted, 40 moved"), "{table}");
    let itom = table.lines().find(|line| line.starts_with("ItoM")).unwrap();
    assert!(itom.contains("2 560"), "{table}");
}

#[test]
fn what_cannot_be_is_one_line_and_changes_nothing() {
    let (folder, path) = file();
    let on = |words: &[&str], parts: &[&str]| {
        refused(&[&["memload", text(&path)], words].concat(), 2, parts);
    };
    on(&["--depth", "0"], &["--depth is 0", "1 to 65535"]);
    on(&["--workers", "0"], &["--workers is 0"]);
    on(&["--block-size", "1000"], &["--block-size is 1000", "it must be a multiple of 512 B"]);
    on(&["--buffer", "10000"], &["--buffer is 10000", "whole blocks of 4096 B"]);
    on(&["--pattern", "flush", "--blocks", "9"], &["--blocks has no meaning for the pattern flush"]);
    on(&["--slots", "10"], &["--slots is 10", "--limit-commands"]);
    on(&["--time", "0"], &["`0` is not a time above 0"]);
    on(&["--op", "read"], &["holds 4194304 B", "--overwrite"]);
    on(&["--create", "1MiB"], &["it already exists"]);
    on(&["--op", "read", "--destroy-data-on", "S1"], &["--destroy-data-on is for devices"]);
    on(&["--destroy-data-on", "S1"], &["--destroy-data-on: this load only reads the target"]);
    on(
        &["--overwrite"],
        &["--overwrite: this load only reads the target", "write the target: --op read, or rw=write in"],
    );
    on(&["--shared"], &["--shared is for devices"]);
    on(
        &["--shared", "--op", "read"],
        &["--shared: this load writes the target", "read the target: --op write, or rw=read in"],
    );
    on(
        &["--max-blocks", "4", "--pattern", "single"],
        &["--max-blocks has no meaning for the pattern single"],
    );
    on(&["--cpus", "1023"], &["--cpus 1023: CPU 1023 is not available; ", " are"]);
    on(&["--numa", "1023"], &["NUMA node 1023", "lists the nodes"]);
    on(&["--depth", "-1"], &["`-1` is not a whole number"]);
    on(&["--limit-commands", "-0.5"], &["`-0.5` is not a number above 0; leave the option out"]);
    on(&["--log", text(&path)], &["this file is the target"]);
    let kept = folder.path().join("kept");
    std::fs::write(&kept, "of a run that took hours").unwrap();
    on(&["--log", text(&kept), "--commands", "1"], &["kept: the file exists already; name another file"]);
    assert_eq!(std::fs::read(&kept).unwrap(), b"of a run that took hours");
    std::fs::remove_file(&kept).unwrap();
    let missing = folder.path().join("missing");
    let make = |target: &Path, log: &Path, parts: &[&str]| {
        refused(&["memload", text(target), "--create", "1MiB", "--log", text(log)], 2, parts);
    };
    make(&missing, &missing, &["this file is the target"]);
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    on(&["--log", text(&link)], &["this file is the target"]);
    std::fs::remove_file(&link).unwrap();
    on(&["--log", "/dev/stdout"], &["standard output has the result; name a file or a pipe"]);
    refused(&["memload", text(&missing)], 2, &["there is no such file", "--create SIZE"]);
    for words in [&["memload", "/dev/nvme99n9"][..], &["memload", "/dev/nvme99n9", "--create", "1M"]] {
        refused(words, 2, &["/dev/nvme99n9: there is no such device", "ls /dev/ng*"]);
    }
    assert!(!Path::new("/dev/nvme99n9").exists(), "a file there would lie in memory");
    refused(&["memload", "/dev/null"], 2, &["a character device of another kind"]);
    refused(
        &["memload", text(&path), "--engine", "nvme-ioctl"],
        3,
        &["nvme-ioctl cannot load a file", "uring can"],
    );
    assert_eq!(std::fs::read(&path).unwrap(), vec![0x5A; 4 << 20]);
    assert_eq!(folder.path().read_dir().unwrap().count(), 1);
}

/// A separate file system, unmounted after the test.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new(options: &str) -> Mounted {
        let folder = tempfile::tempdir().unwrap();
        mount(&["-t", "tmpfs", "-o", options, "waykeeper-test", text(folder.path())]);
        Mounted(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("file")
    }
}

fn mount(words: &[&str]) {
    let done = Command::new("mount").args(words).status();
    assert!(done.is_ok_and(|status| status.success()), "not run: needs root: mount {words:?}");
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_is_reported_before_the_run_or_ends_it() {
    let full = Mounted::new("size=2m");
    let path = full.file();
    refused(&["memload", text(&path), "--create", "4MiB"], 5, &["no room for 4194304 B on this disk"]);
    assert_eq!(full.0.path().read_dir().unwrap().count(), 0, "nothing is left of it");
    // A file with holes is larger than the free space.
    std::fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
    let (code, summary, said) = run(&[text(&path), "--op", "read", "--overwrite", "--seed", "3"]);
    let reported = errors(&said);
    assert_eq!((code, reported.len()), (5, 1), "{said}");
    assert!(reported[0].contains("a write of ") && reported[0].contains("No space left on device"), "{said}");
    let commands = summary["commands"].as_u64().unwrap();
    // 2 MiB are 16 commands of 124 KiB.
    assert!((1..=17).contains(&commands) && summary["blocks"] == 31 * commands, "{summary}");
    assert_eq!(summary["errors"], 1);
}

#[test]
fn a_file_that_may_not_be_written_is_left_alone() {
    // A read-only bind mount, because a process that another test just forked may briefly hold a file of the folder
    // open.
    let (folder, path) = file();
    let only = Mounted(tempfile::tempdir().unwrap());
    mount(&["--bind", text(folder.path()), text(only.0.path())]);
    mount(&["-o", "remount,bind,ro", text(only.0.path())]);
    let only_read = only.file();
    let words = ["memload", text(&only_read), "--op", "read", "--overwrite"];
    refused(&words, 4, &["cannot be opened for writing", "Read-only file system"]);
    let log = only.0.path().join("log");
    refused(
        &["memload", text(&path), "--log", text(&log)],
        4,
        &["--log ", "cannot be written: Read-only file system"],
    );
    let (code, summary, _) = run(&[text(&only_read), "--commands", "10"]);
    assert_eq!((code, &summary["commands"]), (0, &10.into()), "it may be read");
    // And a file of another user.
    use std::os::unix::fs::PermissionsExt;
    for (path, mode) in [(folder.path(), 0o755), (&path, 0o600)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut unprivileged = Command::new("setpriv");
    unprivileged.args([
        "--reuid",
        "65534",
        "--clear-groups",
        env!("CARGO_BIN_EXE_waykeeper"),
        "memload",
        text(&path),
    ]);
    let done = unprivileged.output().expect("not run: needs setpriv");
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(said.contains("Permission denied") && errors(&said).len() == 1, "{said}");
    assert_eq!(done.status.code(), Some(4), "{said}");
}

#[test]
fn a_signal_ends_a_run_with_the_totals_until_then() {
    let (_folder, path) = file();
    let limited = ["--limit-commands", "20", "--slots", "20"];
    for (signal, words) in
        [("INT", &limited[..]), ("TERM", &["--depth", "32"]), ("INT", &["--pattern", "noop"])]
    {
        // The first line of the progress per second: the load has sent commands.
        let run = under_way(&[&[text(&path), "--json"], words].concat(), "1 s: ");
        let (code, summary, rest) = ended(run, Some(signal));
        assert_eq!(code, Some(130), "{words:?}: {rest}");
        assert_eq!(errors(&rest), ["error: interrupted; the totals are those up to the interrupt"]);
        let summary: Value = serde_json::from_slice(&summary).unwrap();
        let commands = summary["commands"].as_u64().unwrap();
        assert_eq!((&summary["blocks"], &summary["errors"]), (&(31 * commands).into(), &0.into()));
        assert_eq!(commands == 0, words.contains(&"noop"));
        assert!(summary["runtime_s"].as_f64().unwrap() >= 1.0);
    }
}

/// As on a full disk: neither a command nor the log can be written, and the run's result is still reported.
#[test]
fn a_failed_run_is_reported_also_where_its_log_cannot_be_written() {
    let (folder, path) = file();
    let log = folder.path().join("log");
    let run = under_way(&[text(&path), "--json", "--log", text(&log)], "1 s: ");
    std::fs::write(&log, "theirs").unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    let (code, summary, said) = ended(run, None);
    let reported = errors(&said);
    assert_eq!((code, reported.len()), (Some(1), 1), "{said}");
    assert!(
        reported[0].contains("a read of 126976 B at byte ") && reported[0].contains(" failed: "),
        "{said}"
    );
    assert!(said.contains("\nthe log was not written: --log ") || said.starts_with("the log was"), "{said}");
    let summary: Value = serde_json::from_slice(&summary).unwrap();
    assert_eq!(summary["errors"], 1);
}
