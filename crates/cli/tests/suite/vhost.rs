//! `waykeeper vhost`: it mounts, runs commands inside, unmounts without leftovers, and reports faults.

use assert_cmd::cargo::cargo_bin;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

/// A running `waykeeper vhost`, ended by SIGTERM when dropped.
struct Server {
    child: Child,
    folder: tempfile::TempDir,
    lines: BufReader<ChildStdout>,
}

impl Server {
    fn start(words: &[&str]) -> Server {
        assert!(rustix::process::geteuid().is_root(), "not run: needs root and /dev/fuse");
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(cargo_bin("waykeeper"));
        command.arg("vhost").arg(folder.path()).args(["--sets", "1/64"]).args(words);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        lines.read_line(&mut first).unwrap();
        assert!(first.contains(" is mounted on "), "not run: needs root and /dev/fuse: {first:?}");
        Server { child, folder, lines }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn terminate(&mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        assert!(sent.success());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.terminate();
        }
    }
}

fn waykeeper(words: &[&str]) -> Output {
    Command::new(cargo_bin("waykeeper")).args(words).output().unwrap()
}

fn mounted(path: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.contains(&format!(" {} fuse", path.display()))
}

#[test]
fn a_command_inside_finds_the_server_and_a_signal_ends_it_cleanly() {
    let mut server = Server::start(&["--scenario", "a4-fig5", "--set", "chip=gold-5320", "--kernel", "6.1"]);
    let path = server.path().display().to_string();
    let mut reported = String::new();
    server.lines.read_line(&mut reported).unwrap();
    assert!(reported.contains(&format!("waykeeper vhost enter {path} -- COMMAND")), "{reported}");

    let inside = |line: &str| waykeeper(&["vhost", "enter", &path, "--", "sh", "-c", line]);
    let seen = inside("grep -c processor /proc/cpuinfo; cat /sys/fs/resctrl/info/L3/cbm_mask; exit 7");
    let text = String::from_utf8_lossy(&seen.stdout).into_owned();
    assert_eq!((text.as_str(), seen.status.code()), ("26\nfff\n", Some(7)), "{seen:?}");
    assert!(!server.path().join("sys/fs/resctrl/info/L3/sparse_masks").exists(), "that came with Linux 6.7");

    assert!(mounted(server.path()));
    assert_eq!(server.terminate(), Some(0));
    assert!(!mounted(server.path()), "it unmounts");
}

#[test]
fn the_machine_moves_and_a_tree_that_is_not_there_is_reported() {
    let server = Server::start(&[]);
    let clock = || {
        let text = std::fs::read_to_string(server.path().join("waykeeper/clock")).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix("clock_ns "));
        value.unwrap().parse::<u64>().unwrap()
    };
    let first = clock();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while clock() == first {
        assert!(std::time::Instant::now() < deadline, "the clock stands at {first}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let empty = tempfile::tempdir().unwrap();
    let out = waykeeper(&["vhost", "enter", empty.path().to_str().unwrap(), "--", "true"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("is not the tree of a running virtual server"));
}

#[test]
fn a_mount_whose_program_was_killed_is_named_as_such() {
    let mut server = Server::start(&[]);
    let path = server.path().display().to_string();
    // The files of a mount may be elsewhere, as inside `vhost enter`.
    let tree = tempfile::tempdir().unwrap();
    let resctrl = tree.path().join("sys/fs/resctrl");
    std::fs::create_dir_all(&resctrl).unwrap();
    let bind =
        Command::new("mount").arg("--bind").arg(server.path().join("sys/fs/resctrl")).arg(&resctrl).status();
    assert!(bind.unwrap().success());
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let report = waykeeper(&["doctor", "--root", &tree.path().display().to_string()]);
    assert!(Command::new("umount").arg("-l").arg(&resctrl).status().unwrap().success());
    let report = String::from_utf8_lossy(&report.stdout).into_owned();
    let remedy = report
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("resctrl "))
        .nth(1)
        .unwrap_or_default();
    assert!(remedy.contains("umount -l") && !remedy.contains("root"), "{report}");
    for words in [&["doctor"][..], &["ddio", "show"], &["restore"], &["daemon"]] {
        let out = waykeeper(&[words, &["--root", &path]].concat());
        let error = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{words:?}: {error}");
        let wanted = "the program that served this mount has ended; remove the mount with `umount -l`";
        assert!(error.contains(wanted) && error.lines().count() == 1, "{words:?}: {error}");
    }
    assert!(Command::new("umount").args(["-l", &path]).status().unwrap().success());
}

#[test]
fn what_is_wrong_is_one_line_and_the_right_exit_code() {
    let empty = tempfile::tempdir().unwrap();
    let here = empty.path().to_str().unwrap();
    let full = tempfile::tempdir().unwrap();
    std::fs::write(full.path().join("file"), "").unwrap();
    let full = full.path().to_str().unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&[here, "--speed", "0"], "`--speed` is 0; it must be above 0"),
        (&[here, "--scenario", "a4-fig55"], "did you mean `a4-fig5`?"),
        (&[here, "--scenario", "idio-fig3"], "the chip `idio` has no table [identity]"),
        (&[here, "--kernel", "six"], "`six` is not a Linux release"),
        (&["/nonexistent/waykeeper"], "cannot use /nonexistent/waykeeper as a mount point"),
        (&[full], "is not an empty directory"),
    ];
    for (words, wanted) in cases {
        let out = waykeeper(&[&["vhost"], *words].concat());
        let error = String::from_utf8_lossy(&out.stderr);
        assert!(error.contains(wanted), "{words:?}: {error}");
        assert_eq!(out.status.code(), Some(2), "{words:?}: {error}");
    }
    assert!(!mounted(empty.path()));
}
