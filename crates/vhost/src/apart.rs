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
    pid: Pid,
    /// The server reads the other end, and ends when this one is closed.
    orders: Option<PipeWriter>,
}

impl Apart {
    /// Runs `serve` in a child of this process, which must have one thread. `serve` gets the pipe whose end tells it to
    /// end, and the one into which it may write; the other end of that is returned.
    ///
    /// # Errors
    /// Without descriptors or memory for a process.
    pub fn start(serve: impl FnOnce(PipeReader, PipeWriter)) -> io::Result<(Apart, PipeReader)> {
        let (asked, orders) = io::pipe()?;
        let (reports, written) = io::pipe()?;
        let parent = rustix::process::getpid();
        // SAFETY: the process has one thread, so no lock is held and no structure half changed in the child.
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
        Ok((Apart { pid, orders: Some(orders) }, reports))
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        self.orders = None;
        // It is our child, so the only error is one that a signal handler causes.
        while waitpid(Some(self.pid), WaitOptions::empty()).is_err_and(|why| why == Errno::INTR) {}
    }
}
