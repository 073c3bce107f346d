//! Tells an observer outside the machine that simulated time passes, and stops a simulation that is not wanted any more.
//!
//! One control interval may take a minute of wall-clock time, in which nothing else is heard of the simulation. Must not
//! change what is simulated.

use crate::scenario::ScenarioError;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Simulated time between two calls, ns: some milliseconds of wall-clock time (ours).
const EVERY_NS: f64 = 1e5;

/// Called with the simulated time that has passed since the last call, ns; `Break` ends the simulation.
pub type OnPulse = dyn Fn(f64) -> ControlFlow<()> + Send + Sync;

/// The observer of a machine, if there is one. Copies of a machine have the same.
#[derive(Clone, Default)]
pub(crate) struct Pulse {
    observer: Option<Arc<OnPulse>>,
    /// Time since the last call.
    waiting_ns: f64,
}

impl Pulse {
    pub(crate) fn of(observer: Arc<OnPulse>) -> Pulse {
        Pulse { observer: Some(observer), waiting_ns: 0.0 }
    }

    /// After a step of the simulation.
    pub(crate) fn beat(&mut self, span_ns: f64) -> Result<(), ScenarioError> {
        self.waiting_ns += span_ns;
        if self.waiting_ns < EVERY_NS {
            return Ok(());
        }
        let passed_ns = std::mem::take(&mut self.waiting_ns);
        match &self.observer {
            Some(observer) if observer(passed_ns).is_break() => Err(ScenarioError::Stopped),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Pulse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pulse").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn an_observer_hears_of_all_time_in_portions_and_can_stop_the_simulation() {
        let (say, heard) = channel();
        let observer = move |ns: f64| {
            say.send(ns).unwrap();
            ControlFlow::Continue(())
        };
        // 4 us a step: 25 steps are 100 us.
        let mut pulse = Pulse::of(Arc::new(observer));
        assert!((1..=80).all(|_| pulse.beat(4000.0).is_ok()));
        assert_eq!(heard.try_iter().collect::<Vec<f64>>(), [1e5; 3]);
        let mut stopped = Pulse::of(Arc::new(|_| ControlFlow::Break(())));
        assert_eq!((1..=100).find(|_| stopped.beat(4000.0).is_err()), Some(25));
        assert!((1..=100).all(|_| Pulse::default().beat(1e9).is_ok()));
    }
}
