//! `waykeeper vhost`: it mounts, runs commands inside, unmounts without leftovers, and reports faults.

use assert_cmd::cargo::cargo_bin;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use waykeeper_testbed::{PATIENCE, wait_for};

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
    wait_for("a later time", || clock() != first);
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
fn a_host_is_waited_for_and_of_two_hosts_enter_takes_the_named_one() {
    // Other tests mount hosts at the same time.
    let [left_name, right_name] = ["left", "right"].map(|side| format!("{side}-{}", std::process::id()));
    let mut first = Server::start(&["--scenario", "a4-fig5", "--name", &left_name]);
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display().to_string();
    // The waiting begins before the host is there.
    let wait = Command::new(cargo_bin("waykeeper")).args(["vhost", &place, "--wait=120s"]).spawn().unwrap();
    let ready = folder.path().with_extension("ready");
    let script = format!(
        "exec \"$0\" vhost {place} --scenario a4-fig5 --sets 1/64 --name {right_name} --ready-fd 3 3>{}",
        ready.display()
    );
    let mut second = Command::new("sh")
        .args(["-c", &script])
        .arg(cargo_bin("waykeeper"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut wait = wait;
    assert!(wait.wait().unwrap().success());
    assert!(mounted(folder.path()));
    let is_ready = || std::fs::read_to_string(&ready).is_ok_and(|text| text == "ready\n");
    wait_for("the word on descriptor 3", is_ready);

    let inside = |host: &[&str]| {
        let out = waykeeper(
            &[&["vhost", "enter"], host, &["--", "cat", "/sys/fs/resctrl/info/L3/cbm_mask"]].concat(),
        );
        (out.status.code(), String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned())
    };
    let (code, said) = inside(&[]);
    assert_eq!(code, Some(2));
    let left = first.path().display().to_string();
    for wanted in [
        "several virtual hosts are mounted",
        &format!("{left_name} ({left})"),
        &format!("{right_name} ({place})"),
    ] {
        assert!(said.contains(wanted), "{said}");
    }
    for host in [&left_name, &right_name, &left, &place] {
        assert_eq!(inside(&[host]), (Some(0), "7ff\n".to_owned()), "{host}");
    }
    let (code, said) = inside(&["no-such-host"]);
    assert!(
        code == Some(2) && said.contains("no virtual host is named `no-such-host`; mounted are "),
        "{said}"
    );
    let pid = rustix::process::Pid::from_child(&second);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(second.wait().unwrap().success());
    // A tree whose program was killed is none that can be entered by name.
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    assert_eq!(inside(&[&left_name]).0, Some(2));
    let third = Server::start(&["--scenario", "a4-fig5"]);
    assert_eq!(std::fs::read_to_string(third.path().join("waykeeper/name")).unwrap(), "a4-fig5\n");
    assert!(Command::new("umount").args(["-l", &left]).status().unwrap().success());
    std::fs::remove_file(ready).unwrap();
}

/// In a mount namespace of its own: other tests look for hosts by name, and would wait for the stopped one.
#[test]
fn another_host_that_does_not_answer_does_not_matter() {
    let [silent, other] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let script = "\
        \"$0\" vhost \"$1\" --scenario a4-fig5 --sets 1/64 >/dev/null & silent=$!\n\
        \"$0\" vhost \"$2\" --scenario a4-fig5 --sets 1/64 >/dev/null & other=$!\n\
        \"$0\" vhost \"$1\" --wait=300s && \"$0\" vhost \"$2\" --wait=300s || exit 9\n\
        kill -STOP $silent\n\
        timeout $3 \"$0\" vhost \"$2\" --wait=300s &&\n\
            timeout $3 \"$0\" vhost enter \"$2\" -- cat /sys/fs/resctrl/info/L3/cbm_mask\n\
        code=$?\n\
        kill -CONT $silent; kill $silent $other; wait\n\
        exit $code";
    let done = Command::new("unshare")
        .args(["-m", "sh", "-c", script])
        .arg(cargo_bin("waykeeper"))
        .args([silent.path(), other.path()])
        .arg(PATIENCE.as_secs().to_string())
        .output()
        .unwrap();
    let said = [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert_eq!((done.status.code(), said[0].as_str()), (Some(0), "7ff\n"), "{}", said[1]);
}

#[test]
fn what_is_wrong_is_one_line_and_the_right_exit_code() {
    let empty = tempfile::tempdir().unwrap();
    let here = empty.path().to_str().unwrap();
    let full = tempfile::tempdir().unwrap();
    std::fs::write(full.path().join("file"), "").unwrap();
    let full = full.path().to_str().unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&[here, "--speed", "0"], "`--speed` is 0; it must be from 0.001 to 1000"),
        (&[here, "--scenario", "a4-fig55"], "did you mean `a4-fig5`?"),
        (&[here, "--scenario", "idio-fig3"], "the chip `idio` has no table [identity]"),
        (&[here, "--kernel", "six"], "`six` is not a Linux release"),
        (&["/nonexistent/waykeeper"], "cannot use /nonexistent/waykeeper as a mount point"),
        (&[full], "is not an empty directory"),
        (&[here, "--name", "a b"], "`a b` is not a name"),
        (&[here, "--ready-fd", "77"], "--ready-fd 77 cannot be written"),
        (&[here, "--wait=0"], "`0` is not a time above 0"),
        (&[here, "--wait", "--name", "a"], "cannot be used with"),
    ];
    for (words, wanted) in cases {
        let out = waykeeper(&[&["vhost"], *words].concat());
        let error = String::from_utf8_lossy(&out.stderr);
        assert!(error.contains(wanted), "{words:?}: {error}");
        assert_eq!(out.status.code(), Some(2), "{words:?}: {error}");
    }
    let out = waykeeper(&["vhost", here, "--wait=100ms"]);
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(1) && error.contains("no virtual host was mounted on "), "{error}");
    assert!(!mounted(empty.path()));
}
