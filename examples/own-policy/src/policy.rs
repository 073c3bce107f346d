//! A policy of one's own, whole: LPWs that miss the LLC more than they hit it share the two rightmost ways outside those
//! of devices, for as long as they do.
//!
//! It sees what every policy sees, one interval of counters after another, and must not ask for anything else: no clock,
//! no file, no random number. The same file runs on the virtual server and, through `waykeeper daemon`, on a real one.

use waykeeper_host::{Group, Interval, Inventory, Plan, Priority};
use waykeeper_policy::{Cause, Decision, Description, Event, Policy};
use waykeeper_units::{GroupId, WayMask};

/// The policy, with everything it remembers.
#[derive(Debug)]
pub struct Corner {
    /// LLC miss ratio above which an LPW goes to the corner.
    limit: f64,
    all: WayMask,
    corner: WayMask,
    inside: Vec<GroupId>,
}

impl Corner {
    /// A policy with its threshold, 0..1.
    pub fn new(limit: f64) -> Corner {
        Corner { limit, all: WayMask::EMPTY, corner: WayMask::EMPTY, inside: Vec::new() }
    }

    fn plan(&self, groups: &[Group]) -> Plan {
        let mask = |group: &Group| if self.inside.contains(&group.id) { self.corner } else { self.all };
        Plan { masks: groups.iter().map(|group| (group.id, mask(group))).collect(), ..Plan::default() }
    }
}

impl Policy for Corner {
    fn name(&self) -> &'static str {
        "corner"
    }

    fn describe(&self) -> Description {
        Description {
            name: self.name().to_owned(),
            idea: "LPWs that miss more than they hit share two ways".to_owned(),
            source: "an example".to_owned(),
            inputs: vec!["LLC hits and misses per workload".to_owned()],
            knobs: vec!["way mask per workload".to_owned()],
            ..Description::default()
        }
    }

    fn start(&mut self, inventory: &Inventory, groups: &[Group]) -> Decision {
        let llc = &inventory.llc;
        self.all = WayMask::full(llc.ways);
        // Beside the inclusive ways, which belong to everybody's shared lines.
        let right = llc.inclusive_ways.and_then(WayMask::highest).map_or(0, |way| way + 1);
        self.corner = WayMask::span(right, llc.min_ways.max(2));
        Decision { plan: self.plan(groups), state: "Watch".to_owned(), events: Vec::new() }
    }

    fn step(&mut self, groups: &[Group], seen: &Interval) -> Decision {
        let mut events = Vec::new();
        for group in groups.iter().filter(|group| group.priority == Priority::Low) {
            // A ratio that cannot be read, or that nothing is known of, is no reason to do anything.
            let Some(miss) = seen.groups.get(&group.id).and_then(|rates| rates.llc_miss_ratio()) else {
                continue;
            };
            let (was, is) = (self.inside.contains(&group.id), miss > self.limit);
            if was == is || was {
                continue;
            }
            self.inside.push(group.id);
            // What was done and the number that caused it: both appear in the timeline.
            events.push(Event {
                action: "corner".to_owned(),
                group: Some(group.name.clone()),
                text: format!("{} goes to the corner", group.name),
                causes: vec![Cause {
                    what: format!("LLC miss ratio of {}", group.name),
                    value: miss,
                    limit: Some(("limit".to_owned(), self.limit)),
                }],
            });
        }
        self.inside.retain(|id| groups.iter().any(|group| group.id == *id));
        Decision { plan: self.plan(groups), state: "Watch".to_owned(), events }
    }
}
