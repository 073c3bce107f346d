//! DMAdynamic: fewer packets per poll when DCA write misses rise (ddio-bench s3.1, which found no gain).
//!
//! Reads only DCA write misses; must not know what a worker does with a packet.

use crate::default::dca_on_everywhere;
use crate::describe::{SettingDescription, StateDescription, lines};
use crate::knobs::no_switch;
use crate::settings::{number, refuse_unknown, whole};
use crate::{Cause, Decision, Description, Event, Policy, PolicyError};
use toml::Table;
use waykeeper_host::{Interval, Inventory, Knob, KnobValues, Plan, SocketCounter, Workload};
use waykeeper_units::{PortId, WayMask};

/// One line for the list of policies.
pub(crate) const IDEA: &str = "fewer packets per poll for one interval when DCA write misses rise";

const NAME: &str = "dmadynamic";
/// Packets per poll that the programs take by default (algorithms.md 6.4).
const BURST: u32 = 32;
/// Relative rise of DCA write misses that counts. Assumption: the paper names no number.
const MISS_RISE: f64 = 0.10;
/// Fewest DCA write misses per second that count. Assumption: as the floor of algorithms.md 3.6 for references.
const MISS_FLOOR_PER_S: f64 = 1e5;

/// Builds it. Settings `burst`, `miss_rise` and `miss_floor_per_s`.
pub(crate) fn build(settings: &Table) -> Result<Box<dyn Policy>, PolicyError> {
    refuse_unknown(NAME, settings, &["burst", "miss_rise", "miss_floor_per_s"])?;
    Ok(Box::new(DmaDynamic {
        burst: whole(NAME, settings, "burst", BURST, (1, 512, "packets"))?,
        miss_rise: number(NAME, settings, "miss_rise", MISS_RISE, (0.0, 100.0, "ratio"))?,
        miss_floor_per_s: number(NAME, settings, "miss_floor_per_s", MISS_FLOOR_PER_S, (0.0, 1e12, "1/s"))?,
        plan: Plan::default(),
        all_ways: WayMask::EMPTY,
        ports: Vec::new(),
        misses_before: None,
        now: BURST,
    }))
}

struct DmaDynamic {
    burst: u32,
    miss_rise: f64,
    miss_floor_per_s: f64,
    plan: Plan,
    all_ways: WayMask,
    /// Ports whose burst can be set.
    ports: Vec<PortId>,
    misses_before: Option<f64>,
    /// The burst in force.
    now: u32,
}

impl DmaDynamic {
    /// The burst for the next interval: divided by the factor by which misses rose, for one interval only.
    fn next_burst(&self, before: f64, misses: f64) -> u32 {
        if misses <= self.miss_floor_per_s || misses <= before * (1.0 + self.miss_rise) {
            return self.burst;
        }
        // A burst of 0 would stop reception for a whole interval, so the least is one packet.
        ((f64::from(self.burst) * before / misses) as u32).max(1)
    }

    /// Stops setting ports whose burst reads back as another value than was set.
    fn drop_mismatches(&mut self, knobs: &KnobValues) -> Vec<Event> {
        let mut events = Vec::new();
        let now = self.now;
        self.ports.retain(|port| {
            let Some(found) = knobs.rx_burst(*port).filter(|found| *found != now) else { return true };
            let cause = |which: &str, burst: u32| Cause {
                what: format!("RX burst packets, {which}"),
                value: f64::from(burst),
                limit: None,
            };
            let text =
                format!("RX burst of {now} on {port} did not take effect: {found} reads back and is left");
            let causes = vec![cause("wanted", now), cause("in force", found)];
            events.push(Event { action: "knob-overruled".to_owned(), group: None, text, causes });
            false
        });
        events
    }

    fn decide(&self, groups: &[Workload], events: Vec<Event>) -> Decision {
        let masks = groups.iter().map(|group| (group.id, self.all_ways));
        let state = match self.ports.is_empty() {
            true => "Unavailable",
            false if self.now < self.burst => "Reduced",
            false => "Full",
        };
        let mut plan = self.plan.clone().with_masks(masks);
        plan.extend(self.ports.iter().map(|port| (Knob::RxBurst(*port), self.now)));
        Decision { plan, state: state.to_owned(), events }
    }
}

impl Policy for DmaDynamic {
    fn name(&self) -> &str {
        NAME
    }

    fn describe(&self) -> Description {
        Description {
            name: NAME.to_owned(),
            idea: "When device writes evict more lines than in the last interval, workers fetch fewer \
                   packets per poll for one interval."
                .to_owned(),
            source: "ddio-bench s3.1 and its DMAdynamic branch of FastClick".to_owned(),
            inputs: lines(&["DCA write misses, chip-wide"]),
            knobs: lines(&[
                "RX burst per NIC port: it belongs to the program that polls, so it can be set only if that \
                 program offers it; the inventory says whether it does",
                "way mask per workload (all ways)",
                "DCA per root port (on)",
            ]),
            settings: vec![
                SettingDescription::new(
                    "burst",
                    self.burst,
                    BURST,
                    ("packets", "burst while misses do not rise", "DMAdynamic branch: BURST = 32"),
                ),
                SettingDescription::new(
                    "miss_rise",
                    self.miss_rise,
                    MISS_RISE,
                    (
                        "ratio of the last interval",
                        "relative rise of DCA write misses per second above which the burst is reduced",
                        "ours; ddio-bench s3.1 says only: when they grow",
                    ),
                ),
                SettingDescription::new(
                    "miss_floor_per_s",
                    self.miss_floor_per_s,
                    MISS_FLOOR_PER_S,
                    ("1/s", "DCA write misses below which a rise counts as noise", "ours"),
                ),
            ],
            states: vec![
                StateDescription::new("Full", "workers take up to the full burst"),
                StateDescription::new(
                    "Reduced",
                    "misses rose: a reduced burst for one interval, then Full again",
                ),
                StateDescription::new(
                    "Unavailable",
                    "no port offers its burst; this policy makes no decisions",
                ),
            ],
            deviations: lines(&[
                "the branch reacts to partly accepted sends, per poll: f = accepted / offered for the next poll alone. \
                 A policy sees intervals and PCIe events, which the paper names too: f = misses before / \
                 misses now, \
                 for the next interval alone",
                "f = 0 gives an empty poll in that branch; here the smallest burst is one packet",
            ]),
        }
    }

    fn start(&mut self, inventory: &Inventory, groups: &[Workload]) -> Decision {
        self.all_ways = WayMask::full(inventory.known_llc().ways);
        self.plan = Plan::of_dca(dca_on_everywhere(inventory));
        self.now = self.burst;
        let within = |port: &&waykeeper_host::RootPort| {
            let dial = &port.rx_burst;
            no_switch(&dial.switch).is_none() && (dial.low..=dial.high).contains(&self.burst)
        };
        self.ports = inventory.ports.iter().filter(within).map(|port| port.id).collect();
        let mut events = Vec::new();
        if self.ports.is_empty() {
            let why = inventory.ports.iter().find_map(|port| no_switch(&port.rx_burst.switch));
            let why = why.unwrap_or_else(|| "no port accepts this burst".to_owned());
            let text = format!("no RX burst can be set on this server: {why}");
            let action = "burst-unavailable".to_owned();
            events.push(Event { action, group: None, text, causes: Vec::new() });
        }
        self.decide(groups, events)
    }

    fn step(&mut self, groups: &[Workload], seen: &Interval) -> Decision {
        let mut events = self.drop_mismatches(&seen.knobs);
        // A missing reading causes no decision, and the next reading has no reference.
        let misses = seen.socket[SocketCounter::DcaWriteMisses].value();
        let next = match (self.misses_before, misses) {
            (Some(before), Some(misses)) => self.next_burst(before, misses),
            _ => self.burst,
        };
        if next < self.burst && !self.ports.is_empty() {
            let before = self.misses_before.unwrap_or_default();
            let limit = Some(("miss_rise".to_owned(), before * (1.0 + self.miss_rise)));
            let value = misses.unwrap_or_default();
            let causes = vec![Cause { what: "DCA write misses per second".to_owned(), value, limit }];
            let text = format!("{next} packets per poll instead of {}, for one interval", self.burst);
            events.push(Event { action: "burst-reduce".to_owned(), group: None, text, causes });
        }
        self.misses_before = misses;
        self.now = next;
        self.decide(groups, events)
    }
}
