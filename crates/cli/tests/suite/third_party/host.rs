//! The virtual host that the tools run on: `waykeeper vhost`, mounted once for all tests that run at a time.
//!
//! The tests take turns, because one would see the knobs that another sets.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use waykeeper_testbed::{PATIENCE, wait_for};

/// Held by the running test.
static TURN: Mutex<()> = Mutex::new(());

/// A mounted host, a Gold 6140 with a NIC and four disks unless a chip is named; unmounted when dropped.
pub struct Host {
    server: Child,
    // Dropped after the server has unmounted.
    folder: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

fn program() -> PathBuf {
    assert_cmd::cargo::cargo_bin("waykeeper")
}

impl Host {
    /// Mounts a host and waits until it answers.
    pub fn start(more: &[&str]) -> Host {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(rustix::process::geteuid().is_root(), "not run: needs root and /dev/fuse");
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(program());
        // Few sets and a slow clock: the tools are tested here, not the model.
        command.arg("vhost").arg(folder.path()).args(["--sets", "1/128", "--speed", "0.2"]).args(more);
        let server = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let mut host = Host { server, folder, _turn: turn };
        wait_for("the virtual host", || {
            if let Some(status) = host.server.try_wait().unwrap() {
                panic!("not run: needs root and /dev/fuse: waykeeper vhost ended with {status}");
            }
            host.path("sys/fs/resctrl/schemata").exists()
        });
        host
    }

    /// A path of the tree.
    pub fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// The mount point.
    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    /// A file's text, without white space around it.
    pub fn read(&self, path: &str) -> String {
        let text = fs::read_to_string(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        text.trim().to_owned()
    }

    /// Runs a tool that sees the tree's files at their usual paths.
    pub fn run(&self, tool: &[&str]) -> Output {
        let mut command = Command::new("timeout");
        command.arg(PATIENCE.as_secs().to_string()).arg(program());
        command.args(["vhost", "enter"]).arg(self.root()).arg("--").args(tool).stdin(Stdio::null());
        command.output().unwrap()
    }

    /// Standard output and standard error of a tool that must succeed.
    pub fn good(&self, tool: &[&str]) -> String {
        let done = self.run(tool);
        let reported = reported(&done);
        assert!(done.status.success(), "{tool:?}: {}\n{reported}", done.status);
        reported
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.server);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let begun = Instant::now();
        while self.server.try_wait().is_ok_and(|status| status.is_none()) {
            if begun.elapsed() > PATIENCE {
                let _ = self.server.kill();
                let _ = self.server.wait();
                let _ = Command::new("umount").arg("-l").arg(self.root()).status();
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// All output of a program.
pub fn reported(done: &Output) -> String {
    String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr)
}

/// The path of a program, also searched in the folders of administrators' tools; a missing one fails with the name of
/// its package.
#[track_caller]
pub fn needed(program: &str, package: &str) -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders =
        std::env::split_paths(&path).chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from));
    let found = folders.map(|folder| folder.join(program)).find(|place| place.is_file());
    let place = found
        .unwrap_or_else(|| panic!("not run: needs {program}: install it with apt-get install {package}"));
    place.display().to_string()
}

/// Asserts that a text has all the parts.
#[track_caller]
pub fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
}
