//! Runs a list of operations on a resctrl and prints the result of each: `resctrl_ops MOUNT [OPS_FILE]`.
//!
//! List and transcript have the format of the recordings (virtual-host.md 0): `r FILE`, `w FILE TEXT`, `mk`, `rm`,
//! `un`, `cr`, `mv A B`, `ch FILE MODE`, `ow`, `st`, `ls`, `own GROUP`, `has GROUP`. Uses system calls only and
//! nothing of this library, so a transcript tests the host and not our code. Must not know which host it runs on.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Longest content shown; the lists never read the default group's `tasks` whole.
const MOST_BYTES: u64 = 1 << 20;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(mount) = arguments.next() else {
        eprintln!(
            "usage: resctrl_ops MOUNT [OPS_FILE]; without a file the operations come from standard input"
        );
        return ExitCode::from(2);
    };
    let list = match arguments.next() {
        Some(path) => fs::read_to_string(&path).map_err(|error| format!("{path}: {error}")),
        None => io::read_to_string(io::stdin()).map_err(|error| format!("standard input: {error}")),
    };
    let list = match list {
        Ok(list) => list,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let mut out = io::stdout().lock();
    for line in list.lines() {
        let text = if line.is_empty() || line.starts_with('#') {
            format!("{line}\n")
        } else {
            format!("> {line}\n{}", answer(Path::new(&mount), line))
        };
        if out.write_all(text.as_bytes()).is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// The result of one operation, as whole lines.
fn answer(mount: &Path, line: &str) -> String {
    let (operation, rest) = line.split_once(' ').unwrap_or((line, ""));
    let (first, second) = rest.split_once(' ').unwrap_or((rest, ""));
    let path = mount.join(first);
    let done = |result: io::Result<()>| match result {
        Ok(()) => "ok\n".to_owned(),
        Err(error) => format!("{}\n", name(&error)),
    };
    match operation {
        "r" => read(&path),
        "w" => write(mount, &path, &second.replace("\\n", "\n")),
        "mk" => done(fs::create_dir(mount.join(rest))),
        "rm" => done(fs::remove_dir(mount.join(rest))),
        "un" => done(fs::remove_file(&path)),
        "cr" => done(OpenOptions::new().write(true).create(true).truncate(false).open(&path).map(drop)),
        "ow" => done(OpenOptions::new().write(true).open(&path).map(drop)),
        "mv" => done(fs::rename(&path, mount.join(second))),
        "ch" => match u32::from_str_radix(second, 8) {
            Ok(mode) => done(fs::set_permissions(&path, fs::Permissions::from_mode(mode))),
            Err(_) => format!("? mode {second}\n"),
        },
        "st" => match fs::symlink_metadata(&path) {
            Ok(meta) => format!("{:o} size={} nlink={}\n", meta.mode(), meta.size(), meta.nlink()),
            Err(error) => format!("{}\n", name(&error)),
        },
        "ls" => list(&path).unwrap_or_else(|error| format!("{}\n", name(&error))),
        "own" => match command(&path.join("tasks"), format!("{}\n", std::process::id()).as_bytes()) {
            Ok(_) => "moved self\n".to_owned(),
            Err((_, error)) => format!("{}\n", name(&error)),
        },
        "has" => has_self(&path.join("tasks")).unwrap_or_else(|error| format!("{}\n", name(&error))),
        _ => format!("? {operation}\n"),
    }
}

fn content(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MOST_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

fn read(path: &Path) -> String {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return format!("open {}\n", name(&error)),
    };
    let mut text = String::new();
    match file.take(MOST_BYTES).read_to_string(&mut text) {
        Ok(_) if text.is_empty() || text.ends_with('\n') => text,
        Ok(_) => text + "\n",
        Err(error) => format!("read {}\n", name(&error)),
    }
}

/// One open, one write: the number of bytes written, or which call failed.
fn command(path: &PathBuf, text: &[u8]) -> Result<usize, (&'static str, io::Error)> {
    let file = OpenOptions::new().write(true).truncate(true).open(path);
    file.map_err(|error| ("open", error))?.write(text).map_err(|error| ("write", error))
}

fn write(mount: &Path, path: &PathBuf, text: &str) -> String {
    let answer = match command(path, text.as_bytes()) {
        Ok(taken) => format!("wrote {taken}"),
        Err(("open", error)) => return format!("open {}\n", name(&error)),
        Err((place, error)) => format!("{place} {}", name(&error)),
    };
    let status = content(&mount.join("info/last_cmd_status")).unwrap_or_else(|error| name(&error));
    format!("{answer}\n  status: {}\n", status.trim_end_matches('\n'))
}

fn list(path: &Path) -> io::Result<String> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let mode = entry.metadata()?.mode();
        lines.push((entry.file_name(), format!("  {mode:o} {}\n", entry.file_name().display())));
    }
    lines.sort();
    Ok(lines.into_iter().map(|(_, line)| line).collect())
}

fn has_self(path: &Path) -> io::Result<String> {
    let own = std::process::id().to_string();
    let there = content(path)?.lines().any(|pid| pid == own);
    Ok(format!("self {}\n", if there { "present" } else { "absent" }))
}

/// The name of an error number (errno(3)).
fn name(error: &io::Error) -> String {
    let names = [
        (libc::EPERM, "EPERM"),
        (libc::ENOENT, "ENOENT"),
        (libc::ESRCH, "ESRCH"),
        (libc::EIO, "EIO"),
        (libc::E2BIG, "E2BIG"),
        (libc::EACCES, "EACCES"),
        (libc::EBUSY, "EBUSY"),
        (libc::EEXIST, "EEXIST"),
        (libc::ENODEV, "ENODEV"),
        (libc::ENOTDIR, "ENOTDIR"),
        (libc::EISDIR, "EISDIR"),
        (libc::EINVAL, "EINVAL"),
        (libc::ENOSPC, "ENOSPC"),
        (libc::EROFS, "EROFS"),
        (libc::ERANGE, "ERANGE"),
        (libc::ENOTEMPTY, "ENOTEMPTY"),
        (libc::EOPNOTSUPP, "EOPNOTSUPP"),
    ];
    let known = names.iter().find(|(errno, _)| Some(*errno) == error.raw_os_error());
    known.map_or_else(|| error.to_string(), |(_, name)| (*name).to_owned())
}
