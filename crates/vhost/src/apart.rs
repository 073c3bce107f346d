//! A server in a process of its own, beside the process that reads what it serves.
//!
//! A process that reads a FUSE mount and serves it too may survive a SIGKILL: its reading thread waits for the answer to a
//! request that the server has taken (linux fs/fuse/dev.c: `request_wait_answer`), its other threads are gone, and since the
//! waiting thread keeps the process's descriptors open, the kernel does not see that no answer will come. This file must not
//! know what the server serves.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, waitpid};
use std::io::{self, PipeReader, PipeWriter};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The process of a server. Dropping it ends the server and waits for that. The server also ends with the thread that
/// started it, whatever ends that.
#[derive(Debug)]
pub struct Apart {
    /// `None` once it has ended.
    pid: Option<Pid>,
    /// The server reads the other end, and ends when this one is closed.
    orders: Option<PipeWriter>,
}

impl Apart {
    /// Runs `serve` in a child of this process. `serve` gets the pipe whose end tells it to end, and the one into which it
    /// may write; the other end of that is returned. The calling thread must not read what the server serves: its end is
    /// what ends the server after a kill.
    ///
    /// # Errors
    /// If this process has several threads or /proc is not there, and without descriptors or memory for a process.
    pub fn start(serve: impl FnOnce(PipeReader, PipeWriter)) -> io::Result<(Apart, PipeReader)> {
        if std::fs::read_dir("/proc/self/task")?.count() != 1 {
            return Err(io::Error::other("a server of its own is started before the first thread"));
        }
        let (asked, orders) = io::pipe()?;
        let (reports, written) = io::pipe()?;
        let parent = rustix::process::getpid();
        // SAFETY: the process has one thread, as checked above, so no lock is held and no structure half changed in the
        // child.
        let forked = unsafe { libc::fork() };
        if forked < 0 {
            return Err(io::Error::last_os_error());
        }
        let Some(pid) = Pid::from_raw(forked) else {
            drop((orders, reports));
            let ends = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
            // The parent may have ended before that call.
            let is_there = rustix::process::getppid() == Some(parent);
            let served =
                ends.is_ok() && is_there && catch_unwind(AssertUnwindSafe(|| serve(asked, written))).is_ok();
            std::process::exit(i32::from(!served));
        };
        Ok((Apart { pid: Some(pid), orders: Some(orders) }, reports))
    }
}

impl Apart {
    /// Ends the server and waits for that. Returns whether it ended as it should, as far as is known.
    pub fn end(mut self) -> bool {
        self.wait()
    }

    fn wait(&mut self) -> bool {
        self.orders = None;
        let Some(pid) = self.pid.take() else { return true };
        loop {
            match waitpid(Some(pid), WaitOptions::empty()) {
                Err(Errno::INTR) => {}
                Ok(status) => return status.is_some_and(|(_, status)| status.exit_status() == Some(0)),
                // It has ended, and the kernel keeps no status where SIGCHLD is ignored.
                Err(_) => return true,
            }
        }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        self.wait();
    }
}
