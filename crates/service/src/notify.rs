//! What systemd is told: ready, what goes on, that it stops, and that the loop still moves.
//!
//! The watchdog's pings come from the control thread's progress: a thread of its own looks at the board and pings only
//! as long as steps arrive when they should. So a stuck loop is seen, whatever else still runs, and the control thread
//! itself never waits for systemd. Without `NOTIFY_SOCKET` nothing is sent. Must not know the loop.

use crate::{Board, Mode, Published};
use sd_notify::NotifyState;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{env, io};

/// How often the status line is brought up to date where systemd has no watchdog.
const STATUS_EVERY: Duration = Duration::from_secs(10);

/// The daemon's word to systemd. Dropped, it says that the daemon is stopping.
#[derive(Debug)]
pub struct Notifier {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Notifier {
    /// Says that the daemon is ready, and from now on what goes on and that it moves. To be called when the first step is
    /// on the board.
    ///
    /// # Errors
    /// If there is no thread to be had, or systemd's socket does not take the word.
    pub fn ready(board: Arc<Board>) -> io::Result<Notifier> {
        if env::var_os("NOTIFY_SOCKET").is_none() {
            return Ok(Notifier { stop: None, thread: None });
        }
        sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(&status(&board.read()))])?;
        let (stop, stopped) = mpsc::channel();
        let watchdog = sd_notify::watchdog_enabled();
        let work = move || {
            // Four looks in the time systemd allows: one that comes late does no harm.
            let every =
                watchdog.map_or(STATUS_EVERY, |patience| (patience / 4).max(Duration::from_millis(10)));
            let mut progress =
                Progress::new(watchdog.unwrap_or(Duration::MAX), board.read().step, Instant::now());
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let now = board.read();
                let text = status(&now);
                let moves = progress.moves(now.step, Duration::from_nanos(now.period_ns), Instant::now());
                let ping = (moves && watchdog.is_some()).then_some(NotifyState::Watchdog);
                let said: Vec<_> = std::iter::once(NotifyState::Status(&text)).chain(ping).collect();
                // Nobody there to hear it: the next look tries again, and systemd's patience decides.
                let _ = sd_notify::notify(&said);
            }
        };
        let thread = thread::Builder::new().name("notify".to_owned()).spawn(work)?;
        Ok(Notifier { stop: Some(stop), thread: Some(thread) })
    }

    fn say(&self, words: &[NotifyState<'_>]) {
        if self.stop.is_some() {
            // systemd that does not listen is no reason to fail.
            let _ = sd_notify::notify(words);
        }
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.say(&[NotifyState::Stopping]);
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Whether the loop moves: steps come no later than a period and half of systemd's patience after one another.
#[derive(Debug)]
struct Progress {
    patience: Duration,
    step: u64,
    since: Instant,
}

impl Progress {
    fn new(patience: Duration, step: u64, since: Instant) -> Progress {
        Progress { patience, step, since }
    }

    fn moves(&mut self, step: u64, period: Duration, now: Instant) -> bool {
        if step != self.step {
            (self.step, self.since) = (step, now);
        }
        now.duration_since(self.since) <= period.saturating_add(self.patience / 2)
    }
}

/// The line that `systemctl status` shows.
fn status(now: &Published) -> String {
    let doing = match (now.mode, now.paused) {
        (_, Some(_)) => "paused".to_owned(),
        (Mode::Manage, _) => format!("{} in charge, {}", now.policy, now.record.state),
        (Mode::DryRun, _) => format!("dry run of {}, {}", now.policy, now.record.state),
        (Mode::Observe, _) => "observing".to_owned(),
    };
    let wrong = match now.standing.as_slice() {
        [] => String::new(),
        [one] => format!("; {}", one.text),
        [one, more @ ..] => format!("; {} (and {} more)", one.text, more.len()),
    };
    // A line break would end the word; whatever stands in a name, it stays one line.
    format!("step {}: {doing}, {} tenants{wrong}", now.step, now.groups.len()).replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Standing;
    use crate::board::tests::published;

    #[test]
    fn a_loop_that_is_stuck_is_seen_and_one_with_long_periods_is_not_taken_for_it() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut progress = Progress::new(Duration::from_secs(30), 7, start);
        let second = Duration::from_secs(1);
        // Up to 1 + 15 s after the last step.
        assert!(progress.moves(7, second, at(16)));
        assert!(!progress.moves(7, second, at(17)));
        assert!(progress.moves(8, second, at(18)));
        // A period of two minutes: 120 + 15 s.
        let minutes = Duration::from_secs(120);
        assert!(progress.moves(8, minutes, at(18 + 135)));
        assert!(!progress.moves(8, minutes, at(18 + 136)));
    }

    #[test]
    fn the_status_is_one_line() {
        let mut now = published();
        now.record.state = "Detecting".to_owned();
        assert_eq!(status(&now), "step 0: default in charge, Detecting, 0 tenants");
        now.mode = Mode::Observe;
        let standing = |text: &str| Standing { kind: "tenant".to_owned(), text: text.to_owned() };
        now.standing = vec![standing("a\nREADY=1"), standing("b")];
        assert_eq!(status(&now), "step 0: observing, 0 tenants; a READY=1 (and 1 more)");
    }
}
