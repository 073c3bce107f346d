//! This host as a source, where no daemon runs: its counters are read in this process, and nothing is written.
//!
//! Tenants are those of the configuration, else those found, as with `waykeeper daemon --observe`. Must not know the host's
//! files: the daemon's own parts read them.

use crate::live::LiveSteps;
use crate::source::{Abilities, Source, SourceEvent, SourceInfo, SourceKind, Turn, TurnError};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use waykeeper_service::DaemonMode;
use waykeeper_service::config::{Config, Inputs};
use waykeeper_service::daemon::{DaemonError, RunningDaemon};

/// How often a new step is looked for. Assumption: a tenth of a period of 1 s is soon enough for an eye.
const LOOK: Duration = Duration::from_millis(100);

/// This host, observed.
pub struct ObservedSource {
    daemon: Option<RunningDaemon>,
    name: String,
    steps: LiveSteps,
    /// The number and time of the last step.
    last: Option<(u64, u64)>,
    waiting: VecDeque<SourceEvent>,
}

impl ObservedSource {
    /// Starts to observe the host of a configuration.
    ///
    /// # Errors
    /// Why the host cannot be observed.
    ///
    /// # Panics
    /// If the configuration lets the daemon write: it must have mode `observe`, and neither socket, metrics nor recorder.
    pub fn start(config: Config, inputs: Inputs) -> Result<ObservedSource, DaemonError> {
        assert_eq!(config.mode, DaemonMode::Observe, "a host is observed in mode `observe` only");
        let name = config.root.display().to_string();
        let daemon = RunningDaemon::start(config, inputs, Box::new(|| 0), || {})?;
        let (steps, waiting) = (LiveSteps::default(), VecDeque::new());
        Ok(ObservedSource { daemon: Some(daemon), name, steps, last: None, waiting })
    }

    fn look(&mut self) {
        let Some(daemon) = &self.daemon else { return };
        let now = daemon.published();
        let number = (now.step, now.record.at_ns);
        // Before the first sample there is nothing to see.
        let is_first = now.step == 0 && now.record.state.is_empty();
        if !is_first && self.last != Some(number) {
            self.last = Some(number);
            self.waiting.extend(self.steps.events(&now));
        } else if daemon.has_ended() {
            let ended = self.daemon.take().map(RunningDaemon::wait);
            if let Some(Err(why)) = ended {
                self.waiting.push_back(SourceEvent::Lost { why: why.to_string() });
            }
            self.waiting.push_back(SourceEvent::End);
        }
    }
}

impl Source for ObservedSource {
    fn next(&mut self, wait: Duration) -> Option<SourceEvent> {
        let deadline = Instant::now() + wait;
        loop {
            if self.waiting.is_empty() {
                self.look();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.waiting.pop_front() {
                None if !left.is_zero() => std::thread::sleep(left.min(LOOK)),
                event => return event,
            }
        }
    }

    fn turn(&mut self, _turn: Turn) -> Result<String, TurnError> {
        let text = "this host is only observed; start `waykeeper daemon` to turn its knobs";
        Err(TurnError::Unsupported(text.to_owned()))
    }

    fn info(&self) -> SourceInfo {
        SourceInfo {
            kind: SourceKind::Host,
            name: self.name.clone(),
            live: true,
            abilities: Abilities::default(),
            speed: None,
            stopped: false,
            length_s: None,
            place_s: None,
            loads: Vec::new(),
        }
    }
}
