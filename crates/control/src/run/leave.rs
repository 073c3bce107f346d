//! The end of a run that leaves every knob in force, for a loop that takes them over.
//!
//! Must not know host and policy except by their traits, nor what the next loop does.

use super::Loop;
use crate::record::StepRecord;
use waykeeper_host::{Host, Plan};

impl<H: Host + ?Sized> Loop<'_, H> {
    /// Ends the run and leaves every knob as it is. [`Loop::take_over`] begins with them. If the layout as found was put
    /// back for a look, the policy's layout is set first. [`Loop::restore`] still restores the knobs, if they cannot be
    /// left after all.
    pub fn leave(&mut self) {
        let at_ns = self.host.now_ns();
        let state = std::mem::take(&mut self.record.state);
        let knobs = std::mem::take(&mut self.record.knobs);
        self.record = StepRecord { at_ns, state, knobs, ..StepRecord::default() };
        if self.knobs.looks_back() && self.sample() {
            let wanted = self.knobs.want(&Plan::default());
            let groups = self.host.workloads();
            self.turn(wanted, &groups);
        }
        self.looks_back.stop();
        self.seen = None;
        self.leaves = true;
    }
}
