//! The twin without its thread: it answers in the control thread, once the simulated clock has reached a delay.
//!
//! Must not know the policy or the history.

use crate::world::World;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use waykeeper_calibration::{LayoutAnswer, LayoutQuestion};
use waykeeper_control::Predictor;
use waykeeper_service::twin::{Twin, TwinState, TwinStatus};
use waykeeper_twin::{Budget, answer};

/// Line events of an answer: a fiftieth of the daemon's, since only the decisions matter.
const BUDGET: Budget = Budget { events: 240_000 };

struct InlineTwin {
    world: World,
    delay_ns: u64,
    /// The open question, and when it is answered.
    open: Option<(LayoutQuestion, u64)>,
    status: Arc<Mutex<TwinStatus>>,
}

impl InlineTwin {
    fn note(&self, change: impl FnOnce(&mut TwinStatus)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Predictor for InlineTwin {
    fn ask(&mut self, question: LayoutQuestion) {
        let mut state = self.world.lock();
        state.mark("twin-asked");
        let now_ns = state.now_ns;
        drop(state);
        self.open = Some((question, now_ns + self.delay_ns));
        self.note(|status| {
            (status.state, status.asked) = (TwinState::Computing, Some(Duration::from_nanos(now_ns)));
        });
    }

    fn answer(&mut self) -> Option<LayoutAnswer> {
        let now_ns = self.world.lock().now_ns;
        let (question, _) = self.open.take_if(|(_, due_ns)| *due_ns <= now_ns)?;
        let answer = answer(&question, BUDGET);
        self.world.lock().mark("twin-answered");
        self.note(|status| {
            (status.state, status.answers) = (TwinState::Idle, status.answers + 1);
        });
        Some(answer)
    }
}

/// A twin that answers so long after a question.
pub fn twin(world: &World, delay_ms: u64) -> Twin {
    let status = Arc::new(Mutex::new(TwinStatus::default()));
    let shown = status.clone();
    Twin {
        predictor: Box::new(InlineTwin {
            world: world.clone(),
            delay_ns: delay_ms * 1_000_000,
            open: None,
            status,
        }),
        show: Arc::new(move || shown.lock().unwrap_or_else(PoisonError::into_inner).clone()),
    }
}
