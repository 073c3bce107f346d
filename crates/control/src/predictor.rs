//! The side of the loop to which a policy's questions go. Must not know how an answer is found, nor which policy asks.

use waykeeper_calibration::{LayoutAnswer, LayoutQuestion};

/// Answers questions about other layouts. Neither call may wait: the loop keeps its deadlines.
pub trait Predictor: Send {
    /// Takes a question, in place of an earlier one that is not answered.
    fn ask(&mut self, question: LayoutQuestion);

    /// The answer to the last question, once it is there.
    fn answer(&mut self) -> Option<LayoutAnswer>;
}
