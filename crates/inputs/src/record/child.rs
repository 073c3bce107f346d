//! Starts a program under valgrind's lackey, reads its output and stops it.
//!
//! Must not know the meaning of the text. The text comes through a pipe on an extra descriptor, so that the program
//! keeps its stdin, stdout and stderr. The child leads its own process group, so that its children are stopped with it.

use super::RecordError;
use super::family::{Family, Unrecorded};
use command_fds::{CommandFdExt, FdMapping};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::ffi::OsString;
use std::io::{self, IsTerminal, PipeReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The descriptor that the child writes its trace to. Any small one but 0 to 2 will do: valgrind moves it out of the
/// program's range at once.
const TRACE_FD: i32 = 3;
/// Longest wait for the pipe in one call. Short enough for a progress bar, long enough to cost no CPU time.
const POLL: Duration = Duration::from_millis(100);
/// The first wait after text: a program that has become silent may have started another one, which may be short.
const SHORT_POLL: Duration = Duration::from_millis(1);
/// Requested size of the pipe: the maximum of an unprivileged process. It reduces context switches with valgrind, which
/// is the bottleneck.
const PIPE_BYTES: usize = 1 << 20;
/// How long a program may take to end after SIGTERM before SIGKILL. Under lackey it runs over a
/// thousand times slower than otherwise (some 0.7 million instructions/s measured on a 2-core VM).
const GRACE: Duration = Duration::from_secs(5);

/// Result of one wait for the pipe.
pub(super) enum PipeEvent {
    /// This many bytes were read.
    Bytes(usize),
    /// No output within the wait.
    Nothing,
    /// The program has ended, and its output was read completely.
    End,
}

pub(super) struct Traced {
    child: Child,
    pipe: PipeReader,
    /// The program was seen to have ended. [`Traced::wait`] or drop collects it, and not earlier: until then its
    /// process id cannot be reused, and its group can be signalled safely.
    ended: bool,
    family: Family,
    /// The next wait for the pipe.
    patience: Duration,
}

impl Traced {
    /// Starts `command` under lackey.
    pub(super) fn start(valgrind: &Path, command: &[OsString]) -> Result<Traced, RecordError> {
        let cannot = |source| RecordError::Start { valgrind: valgrind.to_owned(), source };
        let (pipe, writer) = io::pipe().map_err(cannot)?;
        // A larger pipe is only faster; failure does not matter.
        let _ = rustix::pipe::fcntl_setpipe_size(&pipe, PIPE_BYTES);
        let mut valgrind_command = Command::new(valgrind);
        valgrind_command
            .args(["--tool=lackey", "--trace-mem=yes", "--child-silent-after-fork=yes"])
            .arg(format!("--log-fd={TRACE_FD}"))
            .arg("--")
            .args(command)
            .process_group(0);
        if io::stdin().is_terminal() {
            // A background process group that reads its terminal is stopped by the kernel, for good.
            valgrind_command.stdin(Stdio::null());
        }
        let mapping = FdMapping { parent_fd: OwnedFd::from(writer), child_fd: TRACE_FD };
        valgrind_command.fd_mappings(vec![mapping]).map_err(|error| cannot(io::Error::other(error)))?;
        let child = valgrind_command.spawn().map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => RecordError::NoValgrind { valgrind: valgrind.to_owned() },
            _ => cannot(source),
        })?;
        // The command holds our copy of the writing end, which would keep the pipe open.
        drop(valgrind_command);
        let family = Family::new(child.id());
        Ok(Traced { child, pipe, ended: false, family, patience: POLL })
    }

    /// Waits for text, at most [`POLL`].
    pub(super) fn listen(&mut self, into: &mut [u8]) -> io::Result<PipeEvent> {
        self.family.look();
        let mut polled = [PollFd::new(&self.pipe, PollFlags::IN)];
        let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(self.patience.subsec_nanos()) };
        let ready = match poll(&mut polled, Some(&wait)) {
            Ok(ready) => ready,
            Err(rustix::io::Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        if ready > 0 {
            return Ok(match self.pipe.read(into)? {
                0 => PipeEvent::End,
                bytes => {
                    self.patience = SHORT_POLL;
                    PipeEvent::Bytes(bytes)
                }
            });
        }
        self.patience = (2 * self.patience).min(POLL);
        // A daemon that the program started may hold the pipe open for ever. The recording ends when the program itself
        // has ended and the pipe was empty after that.
        if self.ended {
            return Ok(PipeEvent::End);
        }
        self.ended = self.has_ended()?;
        Ok(PipeEvent::Nothing)
    }

    /// Sends SIGTERM, after [`GRACE`] SIGKILL.
    pub(super) fn stop(&mut self) -> io::Result<()> {
        self.signal(Signal::TERM);
        let deadline = Instant::now() + GRACE;
        let mut rest = vec![0; 64 * 1024];
        while !self.has_ended()? {
            if Instant::now() >= deadline {
                self.signal(Signal::KILL);
                break;
            }
            // A program blocked on a full pipe would not handle the signal.
            if let PipeEvent::End = self.listen(&mut rest)? {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    }

    /// Waits for a program whose pipe has ended, or that is being stopped. Returns its status, and what it did besides;
    /// if it exits and `may_be_replaced`, another program took its place.
    pub(super) fn wait(&mut self, may_be_replaced: bool) -> io::Result<(ExitStatus, Unrecorded)> {
        // What took its place may start others.
        while !self.has_ended()? {
            self.family.look();
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut unrecorded = self.family.ended(may_be_replaced);
        let status = self.child.wait()?;
        if status.code().is_none() {
            unrecorded.replaced_by = None;
        }
        Ok((status, unrecorded))
    }

    fn id(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    fn has_ended(&self) -> io::Result<bool> {
        let Some(id) = self.id() else { return Ok(true) };
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(id), look)?.is_some())
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.id() {
            // It fails if the group no longer exists, which is the goal.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        // After `wait` the child is collected and this is `Ok(Some(_))`: the id may belong to another process.
        if let Ok(None) = self.child.try_wait() {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// A command as the user typed it.
pub(super) fn shown(command: &[OsString]) -> String {
    command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// A command without the folder of its program, for the trace's header.
pub(super) fn source_text(command: &[OsString]) -> String {
    let mut words = command.to_vec();
    if let Some(program) = words.first_mut() {
        let name = Path::new(program).file_name().map(OsString::from);
        *program = name.unwrap_or_default();
    }
    shown(&words)
}
