//! SIGINT, SIGTERM and SIGHUP during load on this machine: the effect of the first depends on the stage of the run, the
//! second always ends the program.
//!
//! Must not know how load is made or how its result is shown.

use crate::exit::{self, Failure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::{Arc, Mutex, PoisonError};
use waykeeper_memload::Stopper;

/// The stage of a run.
#[derive(Debug)]
enum RunStage {
    /// An end now loses nothing.
    BeforeLoad,
    /// Commands are being sent.
    Loading(Stopper),
    /// There is a result to print, or another part of the program handles the signal.
    Reporting,
}

/// The effect of a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SignalEffect {
    /// The program prints this line and ends now.
    Leave(&'static str),
    /// No more commands are sent, and no further job is started.
    Wait,
}

#[derive(Debug)]
struct State {
    stage: RunStage,
    came: bool,
}

impl State {
    fn came(&self) -> bool {
        self.came && !matches!(self.stage, RunStage::BeforeLoad)
    }

    fn on_signal(&mut self) -> SignalEffect {
        if std::mem::replace(&mut self.came, true) {
            return SignalEffect::Leave("interrupted again; some commands may still be in flight");
        }
        match &self.stage {
            RunStage::BeforeLoad => return SignalEffect::Leave("interrupted before the load began"),
            RunStage::Loading(stopper) => stopper.stop(),
            RunStage::Reporting => {}
        }
        SignalEffect::Wait
    }
}

/// The signal handler's state, shared with its thread.
#[derive(Debug)]
pub struct Interrupts(Arc<Mutex<State>>);

impl Interrupts {
    /// Handles the signals from now until the program ends: removing the handlers again would leave signals without
    /// effect.
    pub fn install() -> Result<Interrupts, Failure> {
        let failed = |why: std::io::Error| Failure::io("cannot wait for signals", &why);
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
        let state = Arc::new(Mutex::new(State { stage: RunStage::Reporting, came: false }));
        let shared = state.clone();
        let handle = move || {
            for _ in signals.forever() {
                let act = shared.lock().unwrap_or_else(PoisonError::into_inner).on_signal();
                if let SignalEffect::Leave(line) = act {
                    waykeeper_memload::abandon();
                    exit::eprint_line(&format!("error: {line}"));
                    std::process::exit(i32::from(exit::INTERRUPTED));
                }
            }
        };
        std::thread::Builder::new().name("memload-signals".to_owned()).spawn(handle).map_err(failed)?;
        Ok(Interrupts(state))
    }

    /// True if a signal came that does not end the program at once.
    pub fn came(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).came()
    }

    /// Enters the stage in which an end loses nothing.
    pub fn enter_before_load(&self) {
        self.set(RunStage::BeforeLoad);
    }

    /// Enters the stage in which commands are sent; they stop at once if a signal has come already.
    pub fn enter_loading(&self, stopper: Stopper) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.came {
            stopper.stop();
        }
        state.stage = RunStage::Loading(stopper);
    }

    /// Enters the stage in which there is a result to print.
    pub fn enter_reporting(&self) {
        self.set(RunStage::Reporting);
    }

    fn set(&self, stage: RunStage) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).stage = stage;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_signal_ends_the_load_and_the_second_the_program() {
        let mut state = State { stage: RunStage::BeforeLoad, came: false };
        assert_eq!(state.on_signal(), SignalEffect::Leave("interrupted before the load began"));
        assert!(!state.came(), "it is said once");
        let mut state = State { stage: RunStage::Reporting, came: false };
        assert_eq!((state.on_signal(), state.came()), (SignalEffect::Wait, true));
        assert!(
            matches!(state.on_signal(), SignalEffect::Leave(line) if line.starts_with("interrupted again"))
        );
    }
}
