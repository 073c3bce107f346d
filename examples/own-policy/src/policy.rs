//! A complete policy of your own: an LPW whose LLC miss ratio exceeds a limit is moved to two ways that all such LPWs share,
//! beside the inclusive ways. It stays there until it exits.
//!
//! Like every policy it sees one interval of counters after another. It must not use anything else: no clock, no file, no
//! random number. So the same code runs on the virtual server and, inside `waykeeper daemon`, on a real one.

use waykeeper_host::{Interval, Inventory, Plan, Priority, Workload};
use waykeeper_policy::{Cause, Decision, Description, Event, Policy};
use waykeeper_units::{WayMask, WorkloadId};

/// The policy and its state between intervals.
#[derive(Debug)]
pub struct Corner {
    /// LLC miss ratio above which an LPW is moved to the corner.
    limit: f64,
    all: WayMask,
    corner: WayMask,
    inside: Vec<WorkloadId>,
}

impl Corner {
    /// The policy with its limit on the miss ratio, 0..1.
    pub fn new(limit: f64) -> Corner {
        Corner { limit, all: WayMask::EMPTY, corner: WayMask::EMPTY, inside: Vec::new() }
    }

    fn plan(&self, groups: &[Workload]) -> Plan {
        let mask = |group: &Workload| if self.inside.contains(&group.id) { self.corner } else { self.all };
        Plan::of_masks(groups.iter().map(|group| (group.id, mask(group))))
    }
}

impl Policy for Corner {
    fn name(&self) -> &'static str {
        "corner"
    }

    fn describe(&self) -> Description {
        Description {
            name: self.name().to_owned(),
            idea: "LPWs with more LLC misses than hits share two ways".to_owned(),
            source: "an example".to_owned(),
            inputs: vec!["LLC hits and misses per workload".to_owned()],
            knobs: vec!["way mask per workload".to_owned()],
            ..Description::default()
        }
    }

    fn start(&mut self, inventory: &Inventory, groups: &[Workload]) -> Decision {
        let llc = inventory.known_llc();
        self.all = WayMask::full(llc.ways);
        // To the left of the inclusive ways, which receive the I/O lines that cores read.
        let right = llc.inclusive_ways.and_then(WayMask::highest).map_or(0, |way| way + 1);
        self.corner = WayMask::span(right, llc.min_ways.max(2));
        Decision { plan: self.plan(groups), state: "Watch".to_owned(), events: Vec::new() }
    }

    fn step(&mut self, groups: &[Workload], seen: &Interval) -> Decision {
        let mut events = Vec::new();
        for group in groups.iter().filter(|group| group.priority == Priority::Low) {
            // Without a miss ratio (unsupported, unavailable, no accesses) the workload stays where it is.
            let Some(miss) = seen.groups.get(&group.id).and_then(|rates| rates.llc_miss_ratio()) else {
                continue;
            };
            let (was, is) = (self.inside.contains(&group.id), miss > self.limit);
            if was == is || was {
                continue;
            }
            self.inside.push(group.id);
            // The timeline shows the text and the number that caused the step.
            events.push(Event {
                action: "corner".to_owned(),
                group: Some(group.name.clone()),
                text: format!("{} is moved to the corner", group.name),
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
