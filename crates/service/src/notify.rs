//! Notifies systemd: ready, status, reloading, stopping, and watchdog pings.
//!
//! A separate thread polls the published state and pings only while steps arrive in time, so systemd detects a hanging
//! loop. The control thread never waits for systemd. Without `NOTIFY_SOCKET` nothing is sent. Must not know the loop.

use crate::{DaemonMode, LifecycleEvent, Published, PublishedState};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use sd_notify::NotifyState;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{env, io};

/// Interval of the status line if systemd has no watchdog. Assumption: short enough for a reader of `systemctl status`.
const STATUS_EVERY: Duration = Duration::from_secs(10);

/// The notifying thread. It sends "stopping" and ends when the engine ends; dropping it waits for that.
#[derive(Debug)]
pub struct Notifier(Option<JoinHandle<()>>);

impl Notifier {
    /// Forwards the engine's events; from the first one ([`LifecycleEvent::Started`], systemd's "ready") it also sends
    /// status and pings.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(
        published_state: Arc<PublishedState>,
        lifecycle_events: Receiver<LifecycleEvent>,
    ) -> io::Result<Notifier> {
        if env::var_os("NOTIFY_SOCKET").is_none() {
            return Ok(Notifier(None));
        }
        let thread = thread::Builder::new().name("notify".to_owned());
        Ok(Notifier(Some(thread.spawn(move || pass_on(&published_state, &lifecycle_events))?)))
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            let _ = thread.join();
        }
    }
}

/// Tells systemd that a service without a control loop is ready. Without `NOTIFY_SOCKET` nothing is sent.
pub fn notify_ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Runs until the engine ends.
fn pass_on(published_state: &PublishedState, lifecycle_events: &Receiver<LifecycleEvent>) {
    let watchdog = sd_notify::watchdog_enabled();
    // Four polls per watchdog timeout, so that a late one does no harm.
    let every = watchdog.map_or(STATUS_EVERY, |timeout| (timeout / 4).max(Duration::from_millis(10)));
    let mut progress: Option<Progress> = None;
    let mut look = Instant::now() + every;
    loop {
        match lifecycle_events.recv_deadline(look) {
            Ok(LifecycleEvent::Started | LifecycleEvent::Loaded) => {
                let now = published_state.read();
                let timeout = watchdog.unwrap_or(Duration::MAX);
                progress.get_or_insert_with(|| Progress::new(timeout, now.step, Instant::now()));
                notify(&[NotifyState::Ready, NotifyState::Status(&status(&now))]);
            }
            Ok(LifecycleEvent::Loading) => match NotifyState::monotonic_usec_now() {
                Ok(since) => notify(&[NotifyState::Reloading, since]),
                // systemd requires the time with "reloading".
                Err(why) => tracing::warn!("cannot notify systemd of the reload: {why}"),
            },
            Err(RecvTimeoutError::Disconnected) => return notify(&[NotifyState::Stopping]),
            Err(RecvTimeoutError::Timeout) => {
                look = Instant::now() + every;
                // Before the first step systemd's start timeout applies, not the watchdog.
                let Some(progress) = &mut progress else { continue };
                let now = published_state.read();
                let text = status(&now);
                let moves = progress.moves(now.step, Duration::from_nanos(now.period_ns), Instant::now());
                let ping = (moves && watchdog.is_some()).then_some(NotifyState::Watchdog);
                let words: Vec<_> = std::iter::once(NotifyState::Status(&text)).chain(ping).collect();
                notify(&words);
            }
        }
    }
}

fn notify(words: &[NotifyState<'_>]) {
    // If systemd does not receive it, the next message tries again until systemd's timeout.
    if let Err(why) = sd_notify::notify(words) {
        tracing::debug!("cannot notify systemd: {why}");
    }
}

/// Whether the loop makes progress: at most a period and half the watchdog timeout between two steps.
#[derive(Debug)]
struct Progress {
    timeout: Duration,
    step: u64,
    since: Instant,
}

impl Progress {
    fn new(timeout: Duration, step: u64, since: Instant) -> Progress {
        Progress { timeout, step, since }
    }

    fn moves(&mut self, step: u64, period: Duration, now: Instant) -> bool {
        if step != self.step {
            (self.step, self.since) = (step, now);
        }
        now.duration_since(self.since) <= period.saturating_add(self.timeout / 2)
    }
}

/// The line that `systemctl status` shows.
fn status(now: &Published) -> String {
    let doing = match (now.mode, now.paused) {
        (_, Some(_)) => "paused".to_owned(),
        (DaemonMode::Manage, _) => format!("policy {}, state {}", now.policy, now.record.state),
        (DaemonMode::DryRun, _) => format!("dry run of policy {}, state {}", now.policy, now.record.state),
        (DaemonMode::Observe, _) => "observing".to_owned(),
    };
    let wrong = match now.active_problems.as_slice() {
        [] => String::new(),
        [one] => format!("; {}", one.text),
        [one, more @ ..] => format!("; {} (and {} more)", one.text, more.len()),
    };
    // A line break would end the field, and a name may contain one.
    format!("step {}: {doing}, {} tenants{wrong}", now.step, now.groups.len()).replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ActiveProblem;
    use crate::published_state::tests::published;

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
        now.mode = DaemonMode::Observe;
        let problem = |text: &str| ActiveProblem { kind: "tenant".to_owned(), text: text.to_owned() };
        now.active_problems = vec![problem("a\nREADY=1"), problem("b")];
        assert_eq!(status(&now), "step 0: observing, 0 tenants; a READY=1 (and 1 more)");
    }
}
