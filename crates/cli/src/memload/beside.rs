//! A command that is measured while load runs beside it: on CPUs of its own, waited for without looking again and again, and
//! ended with all its children when the user breaks off.
//!
//! Must not know what it is held against.

use crate::exit::{self, Failure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use rustix::thread::{CpuSet, sched_setaffinity};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// It has so long to end when it is asked to; then it is killed.
const GRACE: Duration = Duration::from_secs(5);
/// Most of its output that is looked through, bytes, from the end: a result stands there, and whoever is asked for the last match finds it.
const MOST_OUTPUT: u64 = 1 << 20;

/// Ctrl-C and its kin, as something that can be waited for.
#[derive(Debug)]
pub struct Breaks {
    told: UnixStream,
    heard: Cell<bool>,
}

impl Breaks {
    /// Listens from now on.
    pub fn listen() -> Result<Breaks, Failure> {
        let failed = |why: io::Error| Failure::io("signals cannot be waited for", &why);
        let (heard, told) = UnixStream::pair().map_err(failed)?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            pipe::register(signal, told.try_clone().map_err(failed)?).map_err(failed)?;
        }
        heard.set_nonblocking(true).map_err(failed)?;
        Ok(Breaks { told: heard, heard: Cell::new(false) })
    }

    /// True if somebody has broken off. It stays true.
    pub fn came(&self) -> bool {
        let mut fds = [PollFd::new(&self.told, PollFlags::IN)];
        self.heard.get() || poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Takes note of it, so that the next can be waited for.
    fn hear(&self) {
        self.heard.set(true);
        // A byte for each signal; a terminal and a supervisor may have sent one each.
        let _ = (&self.told).read(&mut [0; 64]);
    }
}

/// How a run of it ended.
#[derive(Debug)]
pub enum Ran {
    /// Well: how long it took, and what it printed.
    Well(Duration, String),
    /// Badly: how, and the last line of what it printed.
    Badly(ExitStatus, String),
    /// The user broke off, and it has been ended.
    Broken,
}

/// Runs it once on these CPUs, its children too.
pub fn run(command: &[String], cpus: &[u32], breaks: &Breaks) -> Result<Ran, Failure> {
    let failed = |why: io::Error| Failure::io(format!("cannot run {}", command[0]), &why);
    // Output goes into memory: nobody has to empty a pipe, and a daemon that it leaves behind holds up nothing.
    let memory = memfd_create("waykeeper-command", MemfdFlags::CLOEXEC).map_err(|why| failed(why.into()))?;
    let mut output = File::from(memory);
    let (begun, mut child) = start(command, cpus, &output)?;
    let group = Pid::from_child(&child);
    let watch = pidfd_open(group, PidfdFlags::empty()).map_err(|why| {
        let _ = kill_process_group(group, Signal::KILL);
        let _ = child.wait();
        failed(why.into())
    })?;
    let whole = wait(&watch, Some(breaks), None).map_err(failed)?;
    let took = begun.elapsed();
    if !whole {
        let _ = kill_process_group(group, Signal::TERM);
        // Whoever breaks off again does not want to wait.
        breaks.hear();
        let ended = wait(&watch, Some(breaks), Some(GRACE)).map_err(failed)?;
        // Children may outlive the first of them, which keeps the group's number until it is waited for.
        let _ = kill_process_group(group, Signal::KILL);
        // What hangs in the kernel comes when it comes; it is nobody to wait for.
        if ended || wait(&watch, None, Some(GRACE)).map_err(failed)? {
            let _ = child.wait();
        }
        return Ok(Ran::Broken);
    }
    let status = child.wait().map_err(failed)?;
    let text = ending(&mut output).map_err(failed)?;
    if status.success() {
        return Ok(Ran::Well(took, text));
    }
    let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    Ok(Ran::Badly(status, last.chars().take(200).collect()))
}

/// The end of what it printed.
fn ending(output: &mut File) -> io::Result<String> {
    let from = output.metadata()?.len().saturating_sub(MOST_OUTPUT);
    output.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    // What it has left behind may print on.
    output.take(MOST_OUTPUT).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Starts it. A thread's CPUs are those of the processes that it starts, so it is a thread of its own that does.
fn start(command: &[String], cpus: &[u32], output: &File) -> Result<(Instant, Child), Failure> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu as usize);
    }
    let begin = || -> io::Result<(Instant, Child)> {
        let mut start = Command::new(&command[0]);
        start.args(&command[1..]).stdin(Stdio::null());
        start.stdout(output.try_clone()?).stderr(output.try_clone()?);
        // A group of its own, so that all of it can be ended.
        start.process_group(0);
        sched_setaffinity(None, &set)?;
        let begun = Instant::now();
        start.spawn().map(|child| (begun, child))
    };
    let started = std::thread::scope(|scope| scope.spawn(begin).join());
    let started = started.map_err(|_| Failure::told())?;
    started.map_err(|why| match why.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
            Failure::bad_input(format!("cannot run {}: {why}", command[0]))
        }
        _ => Failure::new(exit::FAILED, format!("cannot run {}: {why}", command[0])),
    })
}

/// Waits until the process has ended; false if somebody broke off or the patience is over before.
fn wait(watch: &OwnedFd, breaks: Option<&Breaks>, patience: Option<Duration>) -> io::Result<bool> {
    let until = patience.map(|patience| Instant::now() + patience);
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left =
            left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        let mut fds = vec![PollFd::new(watch, PollFlags::IN)];
        fds.extend(breaks.map(|breaks| PollFd::new(&breaks.told, PollFlags::IN)));
        match poll(&mut fds, left.as_ref()) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(!fds[0].revents().is_empty()),
            Err(rustix::io::Errno::INTR) => {}
            Err(why) => return Err(why.into()),
        }
    }
}
