//! Answers a policy's questions by the twin, in the thread of the simulation. Must not know the simulated server: all that
//! the twin learns is in the question.

use waykeeper_calibration::{LayoutAnswer, LayoutQuestion};
use waykeeper_control::Predictor;
use waykeeper_twin::{Budget, answer};

/// Intervals until an answer is there: its budget takes 0.37 s of one core (`Budget::default`), which are two intervals of
/// a second at the share of a fifth.
const INTERVALS: u32 = 2;

/// The open question, and the intervals for which it has been open.
#[derive(Debug, Default)]
pub struct InlineTwin(Option<(LayoutQuestion, u32)>);

impl Predictor for InlineTwin {
    fn ask(&mut self, question: LayoutQuestion) {
        self.0 = Some((question, 0));
    }

    fn answer(&mut self) -> Option<LayoutAnswer> {
        let (_, intervals) = self.0.as_mut()?;
        *intervals += 1;
        if *intervals < INTERVALS {
            return None;
        }
        self.0.take().map(|(question, _)| answer(&question, Budget::default()))
    }
}
