//! What systemd is told: ready, what goes on, that the configuration is read again, that it stops, and that the loop
//! still moves.
//!
//! The watchdog's pings come from the control thread's progress: a thread of its own looks at the board and pings only
//! as long as steps arrive when they should. So a stuck loop is seen, whatever else still runs, and the control thread
//! itself never waits for systemd. Without `NOTIFY_SOCKET` nothing is sent. Must not know the loop.

use crate::{Board, Mode, Moment, Published};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use sd_notify::NotifyState;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{env, io};

/// How often the status line is brought up to date where systemd has no watchdog. Assumption: a reader of `systemctl
/// status` is content with it.
const STATUS_EVERY: Duration = Duration::from_secs(10);

/// The daemon's word to systemd. It ends with the engine, when it says that the daemon is stopping; dropped, it waits for
/// that.
#[derive(Debug)]
pub struct Notifier(Option<JoinHandle<()>>);

impl Notifier {
    /// Passes on the engine's moments, and from the first of them ([`Moment::Stands`], which is systemd's "ready") what
    /// goes on and that it moves.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub fn start(board: Arc<Board>, moments: Receiver<Moment>) -> io::Result<Notifier> {
        if env::var_os("NOTIFY_SOCKET").is_none() {
            return Ok(Notifier(None));
        }
        let thread = thread::Builder::new().name("notify".to_owned());
        Ok(Notifier(Some(thread.spawn(move || pass_on(&board, &moments))?)))
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            let _ = thread.join();
        }
    }
}

/// Until the engine is gone.
fn pass_on(board: &Board, moments: &Receiver<Moment>) {
    let watchdog = sd_notify::watchdog_enabled();
    // Four looks in the time systemd allows: one that comes late does no harm.
    let every = watchdog.map_or(STATUS_EVERY, |patience| (patience / 4).max(Duration::from_millis(10)));
    let mut progress: Option<Progress> = None;
    let mut look = Instant::now() + every;
    loop {
        match moments.recv_deadline(look) {
            Ok(Moment::Stands | Moment::Loaded) => {
                let now = board.read();
                let patience = watchdog.unwrap_or(Duration::MAX);
                progress.get_or_insert_with(|| Progress::new(patience, now.step, Instant::now()));
                say(&[NotifyState::Ready, NotifyState::Status(&status(&now))]);
            }
            Ok(Moment::Loading) => match NotifyState::monotonic_usec_now() {
                Ok(since) => say(&[NotifyState::Reloading, since]),
                // systemd takes no "reloading" without the time.
                Err(why) => tracing::warn!("cannot notify systemd of the reload: {why}"),
            },
            Err(RecvTimeoutError::Disconnected) => return say(&[NotifyState::Stopping]),
            Err(RecvTimeoutError::Timeout) => {
                look = Instant::now() + every;
                // Before the first step the time for a start runs, not the watchdog's.
                let Some(progress) = &mut progress else { continue };
                let now = board.read();
                let text = status(&now);
                let moves = progress.moves(now.step, Duration::from_nanos(now.period_ns), Instant::now());
                let ping = (moves && watchdog.is_some()).then_some(NotifyState::Watchdog);
                let words: Vec<_> = std::iter::once(NotifyState::Status(&text)).chain(ping).collect();
                say(&words);
            }
        }
    }
}

fn say(words: &[NotifyState<'_>]) {
    // Nobody there to hear it: the next word tries again, and systemd's patience decides.
    if let Err(why) = sd_notify::notify(words) {
        tracing::debug!("cannot notify systemd: {why}");
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
        (Mode::Manage, _) => format!("policy {}, state {}", now.policy, now.record.state),
        (Mode::DryRun, _) => format!("dry run of policy {}, state {}", now.policy, now.record.state),
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
        assert_eq!(status(&now), "step 0: policy default, state Detecting, 0 tenants");
        now.mode = Mode::Observe;
        let standing = |text: &str| Standing { kind: "tenant".to_owned(), text: text.to_owned() };
        now.standing = vec![standing("a\nREADY=1"), standing("b")];
        assert_eq!(status(&now), "step 0: observing, 0 tenants; a READY=1 (and 1 more)");
    }
}
