//! Runs a command that sees a mounted tree at the usual paths: `/sys`, `/dev/cpu` and the files of `/proc` that it has.
//!
//! The command gets its own mount namespace; its mounts are not visible outside and end with the command. A user
//! without permission for that gets it as root of a user namespace. Below `/sys` and `/dev/cpu` only the tree's files
//! are visible. This file must not know what else is in the tree.

use crate::mount_calls::{self, TreeFiles};
use crate::namespace::{IdMaps, keep_mounts_private};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MoveMountFlags, OpenTreeFlags};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::ffi::{CString, OsStr};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// Why a command cannot be run on a tree.
#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    /// No tree is mounted there.
    #[error("{0} is missing: {1} is not the tree of a running virtual server")]
    NoTree(PathBuf, PathBuf),
    /// The tree has no resctrl, or it is that of an older virtual host.
    #[error("cannot open {0}: {1}; the virtual host must have resctrl and belong to this user")]
    NoCalls(PathBuf, #[source] io::Error),
    /// The system refuses a namespace.
    #[error(
        "cannot make a mount namespace for the command: {0}; run as root, or allow user namespaces for all \
         users (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces above 0, \
         kernel.apparmor_restrict_unprivileged_userns=0, where these settings exist)"
    )]
    NoNamespace(#[source] io::Error),
    /// A part of the tree cannot be mounted at its path.
    #[error("cannot {0}: {1}")]
    NotMounted(String, #[source] io::Error),
    /// The command cannot be started.
    #[error("cannot run {0}: {1}")]
    NotRun(String, #[source] io::Error),
    /// The command was started and then lost.
    #[error("cannot wait for {0}: {1}")]
    Lost(String, #[source] io::Error),
}

/// An action in the new namespace. All memory is allocated before the fork.
#[derive(Debug)]
enum Step {
    Bind {
        from: CString,
        to: CString,
    },
    /// Mounts on a symbolic link itself, which mount(2) would follow.
    BindOnLink {
        from: CString,
        to: CString,
    },
    Tmpfs {
        at: CString,
    },
    Directory {
        path: CString,
    },
    File {
        path: CString,
    },
    Link {
        target: CString,
        path: CString,
    },
    Move {
        from: CString,
        to: CString,
    },
    /// From here on the virtual host answers calls about mounts: its `waykeeper/calls` and `waykeeper/resctrl`.
    AnswerCalls {
        calls: OwnedFd,
        switch: OwnedFd,
        files: TreeFiles,
    },
}

impl Step {
    fn take(&self) -> Result<(), Errno> {
        match self {
            Step::Bind { from, to } => rustix::mount::mount_bind_recursive(from.as_c_str(), to.as_c_str()),
            Step::BindOnLink { from, to } => {
                let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
                let tree = rustix::mount::open_tree(CWD, from.as_c_str(), flags)?;
                let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
                rustix::mount::move_mount(tree.as_fd(), c"", CWD, to.as_c_str(), flags)
            }
            Step::Tmpfs { at } => rustix::mount::mount(
                c"tmpfs",
                at.as_c_str(),
                c"tmpfs",
                MountFlags::empty(),
                Some(c"mode=0755"),
            ),
            Step::Directory { path } => rustix::fs::mkdir(path.as_c_str(), Mode::from_raw_mode(0o755)),
            Step::File { path } => {
                let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
                rustix::fs::open(path.as_c_str(), flags, Mode::from_raw_mode(0o644)).map(drop)
            }
            Step::Link { target, path } => rustix::fs::symlink(target.as_c_str(), path.as_c_str()),
            Step::Move { from, to } => rustix::mount::mount_move(from.as_c_str(), to.as_c_str()),
            Step::AnswerCalls { calls, switch, files } => {
                let listener = mount_calls::install()?;
                let (text, length) =
                    mount_calls::announcement(listener.as_raw_fd(), switch.as_raw_fd(), files);
                rustix::io::write(calls, &text[..length]).map(drop)
            }
        }
    }

    fn describe(&self) -> String {
        let text = |path: &CString| path.to_string_lossy().into_owned();
        match self {
            Step::Bind { from, to } | Step::BindOnLink { from, to } => {
                format!("bind {} on {}", text(from), text(to))
            }
            Step::Tmpfs { at } => format!("mount a tmpfs on {}", text(at)),
            Step::Directory { path } | Step::File { path } | Step::Link { path, .. } => {
                format!("make {}", text(path))
            }
            Step::Move { from, to } => format!("move {} to {}", text(from), text(to)),
            Step::AnswerCalls { .. } => "give calls about mounts to the virtual host".to_owned(),
        }
    }
}

/// Where control groups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// What the child writes when it fails before the command: the index of the step, or one of these.
const NAMESPACE: u8 = 255;
const PROPAGATION: u8 = 254;

fn c_path(path: impl AsRef<Path>) -> CString {
    // Paths of the system contain no NUL; one that does becomes an empty path, which does not exist.
    CString::new(path.as_ref().as_os_str().as_bytes()).unwrap_or_default()
}

/// What a command sees beside the tree's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct EnterOptions {
    /// The virtual host answers the command's calls about mounts (`mount_calls`), also those of processes that outlive
    /// the command.
    pub mount_calls: bool,
    /// The control groups of this machine stay at their path.
    pub own_cgroups: bool,
}

/// Runs `command` with `arguments` on the tree mounted at `tree` and waits for it.
///
/// SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are forwarded to the command; SIGINT and SIGQUIT reach it from the terminal
/// directly and do not end the waiting.
pub fn run(
    tree: &Path,
    options: EnterOptions,
    command: &OsStr,
    arguments: &[impl AsRef<OsStr>],
) -> Result<ExitStatus, EnterError> {
    run_beside(tree, Path::new("/dev"), options, command, arguments)
}

/// The same with the path of the devices, for tests.
fn run_beside(
    tree: &Path,
    dev: &Path,
    options: EnterOptions,
    command: &OsStr,
    arguments: &[impl AsRef<OsStr>],
) -> Result<ExitStatus, EnterError> {
    let name = command.to_string_lossy().into_owned();
    let mut temporary = Vec::new();
    let steps = steps(tree, dev, options, &mut temporary)?;
    let (failed_step, tell) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|errno| EnterError::NotRun(name.clone(), errno.into()))?;
    // Before the child exists, so that no signal ends this process without it.
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2])
        .map_err(|error| EnterError::NotRun(name.clone(), error))?;
    let step_texts: Vec<String> = steps.iter().map(Step::describe).collect();
    let mut child = start(command, arguments, steps, tell)
        .map_err(|error| failure(&name, &step_texts, failed_step, error))?;
    let handle = signals.handle();
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for signal in signals.forever().filter(|signal| ![SIGINT, SIGQUIT].contains(signal)) {
                if let (Some(pid), Some(signal)) = (pid, rustix::process::Signal::from_named_raw(signal)) {
                    let _ = rustix::process::kill_process(pid, signal);
                }
            }
        });
        let status = child.wait();
        handle.close();
        status.map_err(|error| EnterError::Lost(name, error))
    })
}

/// The exit code that a shell would report: the command's own, or 128 plus its signal.
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code & 0xff).unwrap_or(1)
}

/// A temporary directory, removed on drop.
struct TempMountPoint(PathBuf);

impl TempMountPoint {
    fn new() -> io::Result<Self> {
        let folder = std::env::temp_dir();
        for attempt in 0u32.. {
            let path = folder.join(format!("waykeeper-enter-{}-{attempt}", std::process::id()));
            match std::fs::create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                outcome => return outcome.map(|()| TempMountPoint(path)),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

impl Drop for TempMountPoint {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// The mounts: `/sys`, and the files of `/dev/cpu` and `/proc` that the tree has (a server without resctrl has no
/// `proc/mounts`). The temporary mount points must outlive the command.
fn steps(
    tree: &Path,
    dev: &Path,
    options: EnterOptions,
    temporary: &mut Vec<TempMountPoint>,
) -> Result<Vec<Step>, EnterError> {
    let source = |path: &str| Some(tree.join(path)).filter(|source| source.exists()).map(c_path);
    let sys = source("sys").ok_or_else(|| EnterError::NoTree(tree.join("sys"), tree.to_owned()))?;
    let mut new = || {
        let made = TempMountPoint::new()
            .map_err(|error| EnterError::NotMounted("make a temporary directory".into(), error))?;
        let path = made.0.clone();
        temporary.push(made);
        Ok::<PathBuf, EnterError>(path)
    };
    let mut steps = Vec::new();
    let cgroups = if options.own_cgroups { Some(c_path(new()?)) } else { None };
    if let Some(kept) = &cgroups {
        steps.push(Step::Bind { from: c_path(CGROUPS), to: kept.clone() });
    }
    steps.push(Step::Bind { from: sys, to: c_path("/sys") });
    if let Some(kept) = cgroups {
        steps.push(Step::Move { from: kept, to: c_path(CGROUPS) });
    }
    match source("dev/cpu") {
        Some(from) if dev.join("cpu").is_dir() => {
            steps.push(Step::Bind { from, to: c_path(dev.join("cpu")) })
        }
        Some(from) => steps.extend(new_dev(dev, &new()?, from)?),
        None => {}
    }
    bind_files(tree, Path::new("proc"), &mut steps)
        .map_err(|error| EnterError::NotMounted(format!("read {}", tree.join("proc").display()), error))?;
    // The last one: from here on every file that is opened waits for an answer.
    if options.mount_calls {
        let open = |path: &str| {
            let path = tree.join(path);
            let file = std::fs::OpenOptions::new().write(true).open(&path);
            file.map(OwnedFd::from).map_err(|error| EnterError::NoCalls(path, error))
        };
        let (calls, switch) = (open("waykeeper/calls")?, open("waykeeper/resctrl")?);
        let files =
            TreeFiles::of(tree).map_err(|error| EnterError::NoCalls(tree.join("sys/fs/resctrl"), error))?;
        steps.push(Step::AnswerCalls { calls, switch, files });
    }
    Ok(steps)
}

/// Mounts every file below `folder` over the host's. A file that the host does not have cannot be mounted on and is
/// left out.
fn bind_files(tree: &Path, folder: &Path, steps: &mut Vec<Step>) -> io::Result<()> {
    if !tree.join(folder).is_dir() {
        return Ok(());
    }
    for entry in tree.join(folder).read_dir()? {
        let path = folder.join(entry?.file_name());
        let (from, to) = (tree.join(&path), Path::new("/").join(&path));
        if from.is_dir() {
            // The tree's processes do not exist on the host, and may end before they are listed.
            if to.is_dir() {
                bind_files(tree, &path, steps)?;
            }
            continue;
        }
        let Ok(there) = to.symlink_metadata() else { continue };
        let (from, to) = (c_path(from), c_path(to));
        steps.push(if there.is_symlink() { Step::BindOnLink { from, to } } else { Step::Bind { from, to } });
    }
    Ok(())
}

/// Without the drivers there is no /dev/cpu to mount on: builds a new /dev with the old entries and `cpu`.
fn new_dev(dev: &Path, temp: &Path, cpus: CString) -> Result<Vec<Step>, EnterError> {
    let unreadable = |error| EnterError::NotMounted(format!("read {}", dev.display()), error);
    let mut steps = vec![Step::Tmpfs { at: c_path(temp) }];
    for entry in dev.read_dir().map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let (kind, path) = (entry.file_type().map_err(unreadable)?, temp.join(entry.file_name()));
        if kind.is_symlink() {
            let target = std::fs::read_link(entry.path()).map_err(unreadable)?;
            steps.push(Step::Link { target: c_path(target), path: c_path(path) });
            continue;
        }
        let to = c_path(path);
        steps.push(if kind.is_dir() {
            Step::Directory { path: to.clone() }
        } else {
            Step::File { path: to.clone() }
        });
        steps.push(Step::Bind { from: c_path(entry.path()), to });
    }
    let to = c_path(temp.join("cpu"));
    steps.push(Step::Directory { path: to.clone() });
    steps.push(Step::Bind { from: cpus, to });
    steps.push(Step::Move { from: c_path(temp), to: c_path(dev) });
    Ok(steps)
}

/// Forks, enters a namespace, mounts, runs the command.
fn start(
    command: &OsStr,
    arguments: &[impl AsRef<OsStr>],
    steps: Vec<Step>,
    tell: OwnedFd,
) -> io::Result<std::process::Child> {
    let maps = IdMaps::new();
    // pqos locks a file there, which only root may do.
    let locks = Path::new("/run/lock").is_dir().then(|| Step::Tmpfs { at: c_path("/run/lock") });
    let mut child = Command::new(command);
    child.args(arguments);
    let enter = move || {
        let failed = |step: u8, errno: Errno| {
            let _ = rustix::io::write(&tell, &[step]);
            io::Error::from(errno)
        };
        if maps.enter().map_err(|errno| failed(NAMESPACE, errno))?
            && let Some(locks) = &locks
        {
            // If this fails, only pqos fails, with a message.
            let _ = locks.take();
        }
        keep_mounts_private().map_err(|errno| failed(PROPAGATION, errno))?;
        for (place, step) in steps.iter().enumerate() {
            step.take().map_err(|errno| failed(place.min(usize::from(PROPAGATION - 1)) as u8, errno))?;
        }
        Ok(())
    };
    // SAFETY: the closure runs between fork and exec in a process that may have had other threads. It makes system
    // calls on memory that was there before and takes none: paths are C strings, errors are numbers.
    unsafe { child.pre_exec(enter) };
    child.spawn()
}

/// Why the child could not run the command.
fn failure(name: &str, steps: &[String], failed_step: OwnedFd, error: io::Error) -> EnterError {
    let mut place = [0];
    match std::fs::File::from(failed_step).read(&mut place) {
        Ok(1) if place[0] == NAMESPACE => EnterError::NoNamespace(error),
        Ok(1) if place[0] == PROPAGATION => EnterError::NotMounted("make mounts private".into(), error),
        Ok(1) => {
            let step = steps.get(usize::from(place[0])).cloned();
            EnterError::NotMounted(step.unwrap_or_else(|| "set up the tree".into()), error)
        }
        _ => EnterError::NotRun(name.to_owned(), error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn without_a_place_for_the_cpus_there_is_a_dev_of_ones_own() {
        assert!(rustix::process::geteuid().is_root(), "not run: needs root: a mount namespace");
        let folder = tempfile::tempdir().unwrap();
        let (tree, dev) = (folder.path().join("tree"), folder.path().join("dev"));
        for path in ["tree/sys/fs", "tree/dev/cpu/0", "tree/proc", "dev/pts/inner"] {
            fs::create_dir_all(folder.path().join(path)).unwrap();
        }
        for path in ["tree/proc/cpuinfo", "tree/proc/filesystems", "tree/proc/mounts", "dev/null"] {
            fs::write(folder.path().join(path), path).unwrap();
        }
        std::os::unix::fs::symlink("/proc/self/fd", dev.join("fd")).unwrap();
        let out = folder.path().join("out");
        let dev_text = dev.display();
        let script = format!(
            "exec > {}; ls {dev_text} {dev_text}/pts {dev_text}/cpu; cat {dev_text}/null",
            out.display()
        );
        let status =
            run_beside(&tree, &dev, EnterOptions::default(), OsStr::new("sh"), &["-c", &script]).unwrap();
        assert_eq!(exit_code(status), 0);
        let expected = format!(
            "{dev_text}:\ncpu\nfd\nnull\npts\n\n{dev_text}/cpu:\n0\n\n{dev_text}/pts:\ninner\ndev/null"
        );
        assert_eq!(fs::read_to_string(out).unwrap(), expected);
        assert!(!dev.join("cpu").exists(), "the real one stays as it is");
    }
}
