//! A command that is measured while load runs beside it; it is ended when the user interrupts or the load ends.
//!
//! Must not know what it is compared with.

use crate::exit::Failure;
use crate::pinned::{Output, Pinned, hurry, last_line};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::Cell;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitStatus;
use std::time::Duration;
use waykeeper_units::CoreList;

/// Interval of checks whether the load still runs. A guess: short enough for a user who waits, and as cheap as the
/// clock's own ticks.
const LOOK: Duration = Duration::from_secs(1);

/// SIGINT, SIGTERM and SIGHUP as a descriptor that can be polled.
#[derive(Debug)]
pub struct CommandInterrupts {
    signal_pipe: UnixStream,
    came: Cell<bool>,
}

impl CommandInterrupts {
    /// Handles these signals from now on.
    pub fn install() -> Result<CommandInterrupts, Failure> {
        let signal_pipe = hurry().map_err(|why| Failure::io("cannot wait for signals", &why))?;
        Ok(CommandInterrupts { signal_pipe, came: Cell::new(false) })
    }

    /// True once the user has interrupted. It stays true.
    pub fn came(&self) -> bool {
        let mut fds = [PollFd::new(&self.signal_pipe, PollFlags::IN)];
        self.came.get() || poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Records the signal and empties the pipe, so that the next one can be polled.
    fn drain(&self) {
        self.came.set(true);
        // One byte per signal; a terminal and a supervisor may each have sent one.
        let _ = (&self.signal_pipe).read(&mut [0; 64]);
    }
}

/// How a run of the command ended.
#[derive(Debug)]
pub enum Ran {
    /// Success: its duration and its output.
    Well(Duration, String),
    /// Failure: its status, and `: ` with the last line of its output, if any.
    Badly(ExitStatus, String),
    /// The user interrupted, and the command was ended.
    Broken,
    /// The load ended, and the command was ended.
    Alone,
}

/// Runs the command once on these CPUs, with its children, as long as the load beside it runs.
pub fn run(
    command: &[OsString],
    cpus: &CoreList,
    interrupts: &CommandInterrupts,
    keep_going: &dyn Fn() -> bool,
) -> Result<Ran, Failure> {
    let mut command = Pinned::start(command, cpus, "the CPUs of the command,", Output::Kept)?;
    let failed = |why: io::Error| Failure::io("cannot wait for the command", &why);
    while !command.wait(Some(interrupts.signal_pipe.as_fd()), Some(LOOK)).map_err(failed)? {
        let came = interrupts.came();
        if !came && keep_going() {
            continue;
        }
        if came {
            interrupts.drain();
        }
        // A second interrupt now ends the command without [`crate::pinned::GRACE`].
        command.end(Some(interrupts.signal_pipe.as_fd()));
        return Ok(if came { Ran::Broken } else { Ran::Alone });
    }
    let took = command.begun().elapsed();
    // Processes left in the background would disturb the next run.
    let status =
        command.end(None).ok_or_else(|| failed(io::Error::other("its processes cannot be ended")))?;
    let text = command.kept_output().map_err(failed)?;
    Ok(if status.success() { Ran::Well(took, text) } else { Ran::Badly(status, last_line(&text)) })
}
