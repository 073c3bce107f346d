//! Published steps of this process as events of a source: the header when it changes, then each step. Must not know who
//! publishes them.

use crate::source::SourceEvent;
use waykeeper_service::Published;
use waykeeper_service::recorder::{Header, RecordedStep};

/// Remembers the last header.
#[derive(Debug, Default)]
pub(crate) struct LiveSteps(Option<Header>);

impl LiveSteps {
    /// The events of a step.
    pub fn events(&mut self, step: &Published) -> Vec<SourceEvent> {
        let mut events = Vec::with_capacity(2);
        if self.0.as_ref().is_none_or(|header| !header.covers(step)) {
            let header = Header::of(step);
            self.0 = Some(header.clone());
            events.push(SourceEvent::Begin(Box::new(header)));
        }
        events.push(SourceEvent::Step(Box::new(RecordedStep::whole(step))));
        events
    }
}
