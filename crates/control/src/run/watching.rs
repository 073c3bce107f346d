//! What runs in the place of a policy on a host whose LLC is not known: it sets no knob and says why.

use waykeeper_host::{Interval, Inventory, Workload};
use waykeeper_policy::{Decision, Event, Policy};

pub(super) struct Watching {
    name: String,
}

impl Watching {
    pub(super) fn instead_of(name: &str) -> Watching {
        Watching { name: name.to_owned() }
    }

    fn decision() -> Decision {
        Decision { state: "Watching".to_owned(), ..Decision::default() }
    }
}

impl Policy for Watching {
    fn name(&self) -> &str {
        &self.name
    }

    fn start(&mut self, _: &Inventory, _: &[Workload]) -> Decision {
        let event = Event {
            action: "only-watch".to_owned(),
            group: None,
            text: format!(
                "the ways of the LLC are not known, so {} cannot plan and nothing is set",
                self.name
            ),
            causes: Vec::new(),
        };
        Decision { events: vec![event], ..Watching::decision() }
    }

    fn step(&mut self, _: &[Workload], _: &Interval) -> Decision {
        Watching::decision()
    }
}
