//! A live virtual server and what a source gives within a time limit. Must not know what is tested.

use std::time::Instant;
use waykeeper_testbed::{PATIENCE, SCENARIO};
use waykeeper_view::{LiveScenario, LiveSetup, Picture, Source, SourceEvent, ViewModel};

/// The testbed's scenario with a step every 50 ms, as fast as it runs.
pub fn live(policy: &str, seed: u64) -> LiveScenario {
    let text = format!("interval_s = 0.05\n{SCENARIO}");
    let scenario = waykeeper_testbed::scenario("gold-6140", &text);
    let setup = LiveSetup { seed, speed: 1000.0, ..LiveSetup::new(scenario, policy) };
    LiveScenario::start(setup).unwrap()
}

/// The next event.
pub fn event(source: &mut dyn Source) -> SourceEvent {
    source.next(PATIENCE).expect("an event comes")
}

/// A model that follows a source.
pub struct Viewer<'s> {
    pub source: &'s mut dyn Source,
    pub model: ViewModel,
}

impl<'s> Viewer<'s> {
    pub fn new(source: &'s mut dyn Source) -> Viewer<'s> {
        Viewer { source, model: ViewModel::new() }
    }

    /// The first picture for which a condition holds.
    pub fn until(&mut self, what: &str, so: impl Fn(&Picture) -> bool) -> Picture {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < PATIENCE, "waited for {what} in vain");
            let event = event(self.source);
            self.model.take(event);
            if let Some(picture) = self.model.picture(self.source.info()).filter(|picture| so(picture)) {
                return picture;
            }
        }
    }
}
