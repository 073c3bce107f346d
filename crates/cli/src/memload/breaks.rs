//! Ctrl-C and its kin, from the first to the last moment of loads on this machine: what the first of them means depends
//! on how far it is, the second always ends the program.
//!
//! Must not know how load is made, nor what is told of it.

use crate::exit::{self, Failure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::{Arc, Mutex, PoisonError};
use waykeeper_memload::Stopper;

/// How far it is.
#[derive(Debug)]
enum Stage {
    /// Nothing is lost if it ends here.
    Before,
    /// Commands go.
    Runs(Stopper),
    /// There is something to tell, or somebody else ends it.
    Tells,
}

/// What a signal comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    /// The program ends now, with this line.
    Leave(&'static str),
    /// Nothing more is sent, and nothing more begun.
    Wait,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    came: bool,
}

impl State {
    fn came(&self) -> bool {
        self.came && !matches!(self.stage, Stage::Before)
    }

    fn hear(&mut self) -> Act {
        if std::mem::replace(&mut self.came, true) {
            return Act::Leave("interrupted again; some commands may still be in flight");
        }
        match &self.stage {
            Stage::Before => return Act::Leave("interrupted before the load began"),
            Stage::Runs(stopper) => stopper.stop(),
            Stage::Tells => {}
        }
        Act::Wait
    }
}

/// Who listens.
#[derive(Debug)]
pub struct Breaks(Arc<Mutex<State>>);

impl Breaks {
    /// Listens from now until the program ends: who has once listened and stops would leave signals without any effect.
    pub fn listen() -> Result<Breaks, Failure> {
        let failed = |why: std::io::Error| Failure::io("cannot wait for signals", &why);
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
        let state = Arc::new(Mutex::new(State { stage: Stage::Tells, came: false }));
        let heard = state.clone();
        let hear = move || {
            for _ in signals.forever() {
                let act = heard.lock().unwrap_or_else(PoisonError::into_inner).hear();
                if let Act::Leave(line) = act {
                    waykeeper_memload::abandon();
                    exit::say(&format!("error: {line}"));
                    std::process::exit(i32::from(exit::INTERRUPTED));
                }
            }
        };
        std::thread::Builder::new().name("memload-signals".to_owned()).spawn(hear).map_err(failed)?;
        Ok(Breaks(state))
    }

    /// True if somebody has broken off and it is not the program that ends of it.
    pub fn came(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).came()
    }

    /// From now on nothing is lost if it ends.
    pub fn before(&self) {
        self.set(Stage::Before);
    }

    /// From now on commands go. If somebody has broken off already they stop at once.
    pub fn runs(&self, stopper: Stopper) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.came {
            stopper.stop();
        }
        state.stage = Stage::Runs(stopper);
    }

    /// From now on there is something to tell.
    pub fn tells(&self) {
        self.set(Stage::Tells);
    }

    fn set(&self, stage: Stage) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).stage = stage;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_ends_what_goes_and_the_second_everything() {
        let mut state = State { stage: Stage::Before, came: false };
        assert_eq!(state.hear(), Act::Leave("interrupted before the load began"));
        assert!(!state.came(), "it is said once");
        let mut state = State { stage: Stage::Tells, came: false };
        assert_eq!((state.hear(), state.came()), (Act::Wait, true));
        assert!(matches!(state.hear(), Act::Leave(line) if line.starts_with("interrupted again")));
    }
}
