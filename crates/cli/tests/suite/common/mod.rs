//! Shared by the end-to-end tests: the binary, a small scenario, and the form of an error.
#![allow(dead_code, reason = "each test file uses some of it")]

pub mod daemon;
pub mod sources;

use assert_cmd::Command;
use assert_cmd::cargo::cargo_bin;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

/// A small mix: simulating it takes 20 ms per policy.
pub const TINY: &str = r#"name = "tiny"
about = "a small mix"
duration_s = 2
warmup_s = 0.5
measure_s = 1
time_factor = 100
interval_s = 0.5
policies = ["default", "a4"]

[[nic]]
name = "nic0"

[[storage]]
name = "raid0"

[[workload]]
name = "dpdk"
program = "dpdk-t"
cores = "0-1"
priority = "high"

[[workload]]
name = "fio"
program = "fio"
cores = "2-3"
block = "128k"

[[workload]]
name = "xmem"
program = "x-mem"
cores = "4"
priority = "high"
working_set = "4 MiB"
"#;

/// The program.
pub fn waykeeper() -> Command {
    let mut command = std::process::Command::new(cargo_bin("waykeeper"));
    // As found in the PATH: texts do not depend on where it was built.
    command.arg0("waykeeper");
    let mut command = Command::from_std(command);
    command.env_remove("RUST_BACKTRACE").env("NO_COLOR", "1");
    // Finished runs are kept there, not in the cache of the user who runs the tests.
    command.env("XDG_CACHE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/cache"));
    command
}

/// A folder with `tiny.toml` in it, `from` replaced by `to`.
pub fn folder_with(from: &str, to: &str) -> (tempfile::TempDir, PathBuf) {
    assert!(TINY.contains(from), "{from}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.toml");
    std::fs::write(&path, TINY.replacen(from, to, 1)).unwrap();
    (folder, path)
}

/// `tiny.toml` as it is.
pub fn tiny() -> (tempfile::TempDir, PathBuf) {
    folder_with("tiny", "tiny")
}

/// Standard output of a call that must succeed.
pub fn output(arguments: &[&str]) -> String {
    let done = waykeeper().args(arguments).assert().success();
    String::from_utf8(done.get_output().stdout.clone()).unwrap()
}

/// The one line of an error: exit code `code`, nothing on standard output, one line that starts with `error: ` and
/// contains all of `parts`.
pub fn refused(arguments: &[&str], code: i32, parts: &[&str]) {
    let done = waykeeper().args(arguments).assert().code(code);
    let stderr = String::from_utf8(done.get_output().stderr.clone()).unwrap();
    assert!(done.get_output().stdout.is_empty(), "{arguments:?}");
    // clap adds a blank line and a pointer to --help; the error is the first line.
    let lines: Vec<&str> =
        stderr.lines().filter(|line| !line.is_empty() && !line.starts_with("For more")).collect();
    assert_eq!(lines.len(), 1, "{arguments:?}: {stderr}");
    assert!(lines[0].starts_with("error: "), "{stderr}");
    for part in parts {
        assert!(lines[0].contains(part), "{arguments:?}: `{part}` is not in: {stderr}");
    }
}

/// Waits until a program catches a signal; before that the signal would end it.
pub fn wait_until_caught(child: &std::process::Child, signal: rustix::process::Signal) {
    let status = format!("/proc/{}/status", child.id());
    waykeeper_testbed::wait_for("a caught signal", || {
        let text = std::fs::read_to_string(&status).unwrap();
        let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() >> (signal.as_raw() - 1) & 1 == 1
    });
}

/// The repository.
pub fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A path of the repository as text.
pub fn shipped(path: &str) -> String {
    repository().join(path).display().to_string()
}
