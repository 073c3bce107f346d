//! A command of the user on its own CPUs: started there with all its children, waited for without polling, ended as a
//! whole.
//!
//! Must not know its purpose or what is measured meanwhile.

use crate::exit::Failure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use waykeeper_units::{CoreId, CoreList};

/// How long a command has to end after SIGTERM; then it is killed. A guess: long enough to write a result file.
pub const GRACE: Duration = Duration::from_secs(10);
/// Most of its output that is searched, bytes, from the end, where a result or an error is.
const MOST_OUTPUT: u64 = 1 << 20;
/// Most characters of a line in a message.
const MOST_LINE: usize = 200;

/// What happens to its output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// Standard output and standard error are kept.
    Kept,
    /// Standard error is kept, standard output is discarded.
    ErrorsKept,
    /// Standard error is printed between our lines, standard output is discarded.
    ErrorsShown,
}

/// The command.
#[derive(Debug)]
pub struct Pinned {
    child: Child,
    group: Pid,
    watch: OwnedFd,
    kept: Option<File>,
    begun: Instant,
    over: bool,
}

impl Pinned {
    /// Starts it on these CPUs; its children inherit them. `place` is the option that named them, for messages.
    pub fn start<W: AsRef<OsStr> + Sync>(
        command: &[W],
        cpus: &CoreList,
        place: &str,
        output: Output,
    ) -> Result<Pinned, Failure> {
        let [program, words @ ..] = command else {
            return Err(Failure::bad_input("there is no command to run"));
        };
        let program = program.as_ref();
        let failed = |why: io::Error| Failure::io(format!("cannot run {}", program.display()), &why);
        // Output is kept in memory: no pipe can fill up, and processes that it leaves behind block nothing.
        let kept = match output {
            Output::ErrorsShown => None,
            Output::Kept | Output::ErrorsKept => {
                let memory = memfd_create("waykeeper-command", MemfdFlags::CLOEXEC);
                Some(memory.map(File::from).map_err(|why| failed(why.into()))?)
            }
        };
        let mut start = Command::new(program);
        // A process group of its own, so that all its processes can be ended.
        start.args(words).stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        if let Some(kept) = &kept {
            start.stderr(kept.try_clone().map_err(failed)?);
            if output == Output::Kept {
                start.stdout(kept.try_clone().map_err(failed)?);
            }
        }
        // Processes inherit the CPUs of the thread that starts them, so a separate thread is pinned and starts the
        // command.
        let begin = || {
            settle(cpus, place)?;
            let begun = Instant::now();
            match start.spawn() {
                Ok(child) => Ok((begun, child)),
                // These are temporary shortages of the system; every other error is the command's.
                Err(why)
                    if matches!(
                        Errno::from_io_error(&why),
                        Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE)
                    ) =>
                {
                    Err(failed(why))
                }
                Err(why) => {
                    Err(Failure::bad_input(format!("cannot run {} on CPUs {cpus}: {why}", program.display())))
                }
            }
        };
        let started = std::thread::scope(|scope| scope.spawn(begin).join());
        // The hook has already printed the panic.
        let (begun, mut child) = started.map_err(|_| Failure::reported())??;
        let group = Pid::from_child(&child);
        match pidfd_open(group, PidfdFlags::empty()) {
            Ok(watch) => Ok(Pinned { child, group, watch, kept, begun, over: false }),
            Err(why) => {
                let _ = kill_process_group(group, Signal::KILL);
                let _ = child.wait();
                Err(failed(why.into()))
            }
        }
    }

    /// When it was started.
    pub const fn begun(&self) -> Instant {
        self.begun
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has ended; false if `other` becomes readable or `patience` elapses first.
    pub fn wait(&self, other: Option<BorrowedFd<'_>>, patience: Option<Duration>) -> io::Result<bool> {
        let until = patience.map(|patience| Instant::now() + patience);
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let left = left
                .map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
            let mut fds = vec![PollFd::new(&self.watch, PollFlags::IN)];
            fds.extend(other.map(|other| PollFd::from_borrowed_fd(other, PollFlags::IN)));
            match poll(&mut fds, left.as_ref()) {
                Ok(0) => return Ok(false),
                Ok(_) => return Ok(!fds[0].revents().is_empty()),
                Err(Errno::INTR) => {}
                Err(why) => return Err(why.into()),
            }
        }
    }

    /// Ends it with its children: SIGTERM, and SIGKILL after [`GRACE`] or when `again` becomes readable. If it has
    /// ended by itself, the processes left in its group are ended; a daemon has its own session and continues. `None`
    /// if its status is unknown: a process that hangs in the kernel is not waited for.
    pub fn end(&mut self, again: Option<BorrowedFd<'_>>) -> Option<ExitStatus> {
        // Once it was waited for, the process id may belong to another process.
        if self.over {
            return self.child.try_wait().ok().flatten();
        }
        self.over = true;
        self.signal(Signal::TERM);
        let ended = self.wait(again, Some(GRACE)).unwrap_or(false);
        // Children may outlive the first process, which keeps the group's id until it is waited for.
        self.signal(Signal::KILL);
        let ended = ended || self.wait(None, Some(GRACE)).unwrap_or(false);
        if ended { self.child.wait().ok() } else { None }
    }

    fn signal(&self, signal: Signal) {
        // It may have left its group; if all of it has ended, that is no error.
        if kill_process_group(self.group, signal).is_err() {
            let _ = pidfd_send_signal(&self.watch, signal);
        }
    }

    /// The end of the kept output.
    pub fn kept_output(&mut self) -> io::Result<String> {
        let Some(kept) = &mut self.kept else { return Ok(String::new()) };
        let from = kept.metadata()?.len().saturating_sub(MOST_OUTPUT);
        kept.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        // Processes that it left behind may still print.
        kept.take(MOST_OUTPUT).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = self.end(None);
    }
}

/// SIGINT, SIGTERM and SIGHUP from now on, as a descriptor that can be polled.
pub fn hurry() -> io::Result<UnixStream> {
    let (heard, told) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        pipe::register(signal, told.try_clone()?)?;
    }
    heard.set_nonblocking(true)?;
    Ok(heard)
}

/// `: ` and the last non-empty line of a text; empty if there is none.
pub fn last_line(text: &str) -> String {
    let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    let last =
        last.map(|line| line.trim_start_matches("error: ").chars().take(MOST_LINE).collect::<String>());
    last.map(|line| format!(": {line}")).unwrap_or_default()
}

/// Checks that all these CPUs are available; `place` is the option that named them, for messages.
pub fn can_be_had(cpus: &CoreList, place: &str) -> Result<(), Failure> {
    // On a separate thread, because the check pins it.
    std::thread::scope(|scope| scope.spawn(|| settle(cpus, place)).join()).map_err(|_| Failure::reported())?
}

/// Pins this thread to these CPUs, and refuses if one is missing: the kernel accepts a list of which one CPU is
/// available.
fn settle(cpus: &CoreList, place: &str) -> Result<(), Failure> {
    let failed = |why: Errno| {
        Failure::io(format!("{place} {cpus}: the system refuses to pin a process to CPUs"), &why.into())
    };
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    // Setting all CPUs and reading back gives those that are allowed.
    sched_setaffinity(None, &all).map_err(failed)?;
    let had = sched_getaffinity(None).map_err(failed)?;
    let mut wanted = CpuSet::new();
    for cpu in cpus.cores() {
        if cpu.index() >= CpuSet::MAX_CPU || !had.is_set(cpu.index()) {
            let had = (0..CpuSet::MAX_CPU).filter(|cpu| had.is_set(*cpu));
            let had: CoreList = had.map(|cpu| CoreId(cpu as u16)).collect::<Vec<_>>().into();
            return Err(Failure::bad_input(format!(
                "{place} {cpus}: CPU {} is not available; {had} are",
                cpu.0
            )));
        }
        wanted.set(cpu.index());
    }
    sched_setaffinity(None, &wanted).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn first() -> CoreList {
        let mine = sched_getaffinity(None).unwrap();
        vec![CoreId((0..CpuSet::MAX_CPU).find(|cpu| mine.is_set(*cpu)).unwrap() as u16)].into()
    }

    fn shell(script: &str, output: Output) -> Pinned {
        Pinned::start(&["sh", "-c", script], &first(), "--cores", output).unwrap()
    }

    #[test]
    fn its_children_are_where_it_is_and_what_they_say_is_kept() {
        let before = sched_getaffinity(None).unwrap();
        let mut command = shell("(grep Cpus_allowed_list /proc/self/status); echo wrong >&2", Output::Kept);
        assert!(command.wait(None, None).unwrap() && command.end(None).unwrap().success());
        let said = command.kept_output().unwrap();
        assert_eq!(said, format!("Cpus_allowed_list:\t{}\nwrong\n", first()));
        assert_eq!(last_line(&said), ": wrong");
        assert!(sched_getaffinity(None).unwrap() == before, "we are where we were");
        let mut command = shell("echo result; echo 'error: wrong' >&2; echo >&2; exit 3", Output::ErrorsKept);
        assert!(command.wait(None, None).unwrap());
        assert_eq!(command.end(None).unwrap().code(), Some(3));
        assert_eq!(last_line(&command.kept_output().unwrap()), ": wrong");
        assert_eq!(last_line(" \n"), "");
    }

    /// A MiB from the end is enough for any last line.
    #[test]
    fn much_output_is_read_from_its_end() {
        let mut command = shell("head -c 3000000 /dev/zero; echo; echo the last", Output::Kept);
        assert!(command.wait(None, None).unwrap());
        let said = command.kept_output().unwrap();
        assert_eq!((said.len() as u64, last_line(&said).as_str()), (MOST_OUTPUT, ": the last"));
    }

    #[test]
    fn a_command_that_cannot_be_started_or_found_is_refused_with_the_reason() {
        let told = |command: &[&str], cpus: CoreList| {
            let failure = Pinned::start(command, &cpus, "--cores", Output::Kept).unwrap_err();
            failure.line().to_owned()
        };
        let had = told(&["true"], vec![CoreId(5000)].into());
        assert!(
            had.starts_with("--cores 5000: CPU 5000 is not available; ") && had.ends_with(" are"),
            "{had}"
        );
        let some = [first().cores(), &[CoreId(1023)]].concat().into();
        let had = told(&["true"], some);
        assert!(had.contains("CPU 1023 is not available"), "no CPU is left out silently: {had}");
        let none = told(&["/nonexistent/x"], first());
        assert_eq!(
            none,
            format!("cannot run /nonexistent/x on CPUs {}: No such file or directory (os error 2)", first())
        );
        assert_eq!(told(&[], first()), "there is no command to run");
    }

    /// The first process has ended and a child ignores SIGTERM; or the first one ignores it, and a second signal comes.
    #[test]
    fn all_of_it_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("mark");
        let stubborn = format!("trap '' TERM; echo > {}; sleep 600; sleep 600", mark.display());
        let _listens = hurry().unwrap();
        for leader in [false, true] {
            std::fs::remove_file(&mark).unwrap_or_default();
            let script = if leader { stubborn.clone() } else { format!("sh -c \"{stubborn}\" & exit 5") };
            let mut command = shell(&script, Output::ErrorsKept);
            while !mark.exists() {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(leader || command.wait(None, None).unwrap(), "the first of them has ended");
            let hurry = hurry().unwrap();
            rustix::process::kill_process(rustix::process::getpid(), Signal::HUP).unwrap();
            let begun = Instant::now();
            let ended = command.end(Some(hurry.as_fd())).unwrap();
            assert!(leader || ended.code() == Some(5), "{ended}");
            assert!(begun.elapsed() < GRACE, "the parent has not waited for it");
            assert!(alone(command.group), "no child of it is left");
            assert_eq!(command.end(None), Some(ended), "it has ended once and for all");
        }
    }

    /// True once no process of the group is left; another process reaps killed ones a moment later.
    fn alone(group: Pid) -> bool {
        let until = Instant::now() + GRACE;
        while Instant::now() < until {
            let processes = std::fs::read_dir("/proc").unwrap().flatten();
            let mut stats =
                processes.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
            // `pid (name) state parent group ...`; a zombie does not run.
            let runs = |stat: String| {
                let mut words = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
                words.next() != Some("Z") && words.nth(1) == Some(&group.to_string())
            };
            if !stats.any(runs) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }
}
