//! `waykeeper memload` as a program: output, files, exit codes.

use crate::common;
mod interfere;
mod real;
mod simulated;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, Stdio};

/// A run of `memload` that has printed a line that contains `until`.
fn under_way(words: &[&str], until: &str) -> (Child, BufReader<ChildStderr>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_waykeeper"));
    command.arg("memload").args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains(until) {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it ended by itself");
    }
    (child, said)
}

/// Sends a signal, if any; returns the exit code, standard output and the rest of standard error.
fn ended(run: (Child, BufReader<ChildStderr>), signal: Option<&str>) -> (Option<i32>, Vec<u8>, String) {
    let (child, mut said) = run;
    if let Some(signal) = signal {
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    }
    let done = child.wait_with_output().unwrap();
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    (done.status.code(), done.stdout, rest)
}

/// A folder on a disk, because a tmpfs has no O_DIRECT.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}
