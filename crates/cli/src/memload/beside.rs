//! A command that is measured while load runs beside it, and ended when the user breaks off or the load does.
//!
//! Must not know what it is held against.

use crate::exit::Failure;
use crate::pinned::{Output, Pinned, hurry, last_line};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::Cell;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitStatus;
use std::time::Duration;
use waykeeper_units::CoreList;

/// How often it is looked whether the load still goes. A guess: nobody waits longer for a command that runs for nothing, and
/// it is felt no more than the clock's own ticks.
const LOOK: Duration = Duration::from_secs(1);

/// Ctrl-C and its kin, as something that can be waited for.
#[derive(Debug)]
pub struct Breaks {
    told: UnixStream,
    heard: Cell<bool>,
}

impl Breaks {
    /// Listens from now on.
    pub fn listen() -> Result<Breaks, Failure> {
        let told = hurry().map_err(|why| Failure::io("cannot wait for signals", &why))?;
        Ok(Breaks { told, heard: Cell::new(false) })
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
    /// Badly: how, and `: ` with the last line of what it printed, if it did.
    Badly(ExitStatus, String),
    /// The user broke off, and it has been ended.
    Broken,
    /// The load went no more, and it has been ended.
    Alone,
}

/// Runs it once on these CPUs, its children too, as long as the load beside it goes.
pub fn run(
    command: &[String],
    cpus: &CoreList,
    breaks: &Breaks,
    goes: &dyn Fn() -> bool,
) -> Result<Ran, Failure> {
    let mut command = Pinned::start(command, cpus, "the CPUs of the command,", Output::Kept)?;
    let failed = |why: io::Error| Failure::io("cannot wait for the command", &why);
    while !command.wait(Some(breaks.told.as_fd()), Some(LOOK)).map_err(failed)? {
        let came = breaks.came();
        if !came && goes() {
            continue;
        }
        if came {
            breaks.hear();
        }
        // Whoever breaks off again, or now, does not want to wait.
        command.end(Some(breaks.told.as_fd()));
        return Ok(if came { Ran::Broken } else { Ran::Alone });
    }
    let took = command.begun().elapsed();
    // What it has left in the background would run beside the next.
    let status =
        command.end(None).ok_or_else(|| failed(io::Error::other("its processes cannot be ended")))?;
    let text = command.said().map_err(failed)?;
    Ok(if status.success() { Ran::Well(took, text) } else { Ran::Badly(status, last_line(&text)) })
}
