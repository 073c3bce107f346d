//! What every step writes into the log: one line a decision with its reasons, and one a problem.
//!
//! Must not know where the lines go.

use crate::Published;

/// Writes the lines of a step.
pub(crate) fn step(step: &Published) {
    for event in &step.record.events {
        tracing::info!(
            step = step.step,
            policy = step.policy,
            action = event.action,
            group = event.group,
            "{}",
            event.text
        );
    }
    for problem in &step.record.problems {
        tracing::warn!(step = step.step, policy = step.policy, "{problem}");
    }
}
