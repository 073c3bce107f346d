//! Keys from the terminal. Must not know what they do.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use std::io::{IsTerminal, stdin};
use std::time::Duration;

/// Single keys from the terminal at standard input: no Enter, no echo. Signals of keys such as Ctrl-C stay. The terminal
/// is as before when this is dropped.
pub struct KeyPresses(Termios);

impl KeyPresses {
    /// Takes the keys; `None` if standard input is no terminal, or this process is not in its foreground.
    pub fn take() -> Option<KeyPresses> {
        let before = stdin().is_terminal().then(|| tcgetattr(stdin()).ok())??;
        if tcgetpgrp(stdin()).ok()? != rustix::process::getpgrp() {
            return None;
        }
        let mut modes = before.clone();
        modes.local_modes &= !(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(stdin(), OptionalActions::Now, &modes).ok()?;
        Some(KeyPresses(before))
    }

    /// The next key within a time, if one is pressed. A signal ends the wait.
    ///
    /// # Errors
    /// If the terminal is closed.
    pub fn within(&self, time: Duration) -> Result<Option<u8>, Errno> {
        let mut key = [0];
        match read_within(time, &mut key)? {
            None => Ok(None),
            Some(0) => Err(Errno::IO),
            Some(_) => Ok(Some(key[0])),
        }
    }
}

/// Reads what standard input has within a time, and returns how many bytes: 0 if it is closed, `None` if none came. A
/// signal ends the wait.
///
/// # Errors
/// As of poll(2) and read(2).
pub fn read_within(time: Duration, into: &mut [u8]) -> Result<Option<usize>, Errno> {
    let input = stdin();
    let mut wanted = [PollFd::new(&input, PollFlags::IN)];
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    match poll(&mut wanted, Some(&time)) {
        Ok(0) | Err(Errno::INTR) => return Ok(None),
        Ok(_) => {}
        Err(why) => return Err(why),
    }
    match rustix::io::read(&input, into) {
        Ok(count) => Ok(Some(count)),
        Err(Errno::INTR) => Ok(None),
        Err(why) => Err(why),
    }
}

impl Drop for KeyPresses {
    fn drop(&mut self) {
        // A closed terminal has no modes.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.0);
    }
}
