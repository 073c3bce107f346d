//! When the steps of a run are due. Deadlines are absolute, so that work in one interval makes no other longer. A clock that
//! is set back moves them. Must not know what a step does.

use super::{ControlError, Loop};
use crate::record::Problem;
use waykeeper_host::Host;

impl<H: Host + ?Sized> Loop<'_, H> {
    /// When the next step is due, on the host's clock; missed deadlines are skipped. A caller with other work to do in
    /// between calls this first: a step that is taken at this time or soon after is not late.
    pub fn due_ns(&mut self) -> u64 {
        if self.due.is_none() {
            let went_back = self.follow_clock();
            self.due = Some((went_back, self.skip_missed_deadlines()));
        }
        self.deadline(self.next)
    }

    /// Changes the period: the next step is due one new period after the last deadline.
    ///
    /// # Errors
    /// A period of 0.
    pub fn set_period(&mut self, period_ns: u64) -> Result<(), ControlError> {
        if period_ns == 0 {
            return Err(ControlError::NoPeriod);
        }
        let last_ns = self.deadline(self.next - 1);
        let done_ns = last_ns.saturating_sub(self.started_ns);
        self.config.duration_ns = self.config.duration_ns.map(|ns| ns.saturating_sub(done_ns));
        (self.started_ns, self.next, self.config.period_ns) = (last_ns, 1, period_ns);
        Ok(())
    }

    /// If the clock went backwards, moves the deadlines with it: the next one is one period from now, and the run keeps
    /// its number of periods.
    pub(super) fn follow_clock(&mut self) -> Option<Problem> {
        let last_ns = self.deadline(self.next - 1);
        let by_ns = last_ns.checked_sub(self.host.now_ns()).filter(|by_ns| *by_ns > 0)?;
        match self.started_ns.checked_sub(by_ns) {
            Some(started_ns) => self.started_ns = started_ns,
            // The clock restarted near 0: the run restarts too, with its remaining length.
            None => {
                let done_ns = (self.next - 1).saturating_mul(self.config.period_ns);
                self.config.duration_ns = self.config.duration_ns.map(|ns| ns.saturating_sub(done_ns));
                (self.started_ns, self.next) = (self.host.now_ns(), 1);
            }
        }
        Some(Problem::ClockBack { by_ns })
    }

    /// Skips deadlines that have passed: the next deadline is the first one in the future. Returns the number skipped.
    pub(super) fn skip_missed_deadlines(&mut self) -> u64 {
        let passed = self.host.now_ns().saturating_sub(self.started_ns) / self.config.period_ns;
        let missed = (passed + 1).saturating_sub(self.next);
        self.next += missed;
        missed
    }

    pub(super) fn deadline(&self, number: u64) -> u64 {
        self.started_ns.saturating_add(number.saturating_mul(self.config.period_ns))
    }
}
