//! A4's state machine (algorithms.md 3.10): the state, the time of the last change, and the masks that follow from
//! them.
//!
//! ```text
//! Idle -> InitMeasure -> Expand* -> [antagonists?] -> Trash* -> Stable
//! Stable -> Revert -> Stable | InitMeasure
//! Stable -> InitMeasure   on antagonists, phase changes, restored HPWs and storage
//! any    -> InitMeasure   on launch or exit of a workload (Idle if none is left)
//! ```
//!
//! The actions of the states are in `search` (InitMeasure, Expand, Trash) and `watch` (Stable, Revert). Time comes from
//! the intervals only: a step may last any number of seconds.

use super::Variant;
use super::config::Config;
use super::measure::{Window, seconds_of};
use super::search::TrashBase;
use super::workloads::{Wiring, Workloads, event};
use super::zones::Zones;
use crate::{Decision, Event};
use waykeeper_host::{Interval, Inventory, LlcGeometry, Plan, Workload, WorkloadKind};
use waykeeper_units::{WayMask, WorkloadId};

/// A sample is kept if at most this share of it lies in the settling time after a change (ours).
const DIRTY_SHARE_MAX: f64 = 0.25;

/// Timers fire this share of the monitor interval early, so that a jitter of microseconds does not cost a
/// whole sample (ours).
const TIMER_SLACK: f64 = 0.05;

/// A state of algorithms.md 3.10.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum State {
    /// No workload to manage, or a chip with too few ways.
    Idle,
    /// Initial partitions are in force and being measured.
    InitMeasure,
    /// The LP zone has grown and the effect is being measured.
    Expand,
    /// The trash ways shrink; the base is `None` until the first measurement.
    Trash(Option<TrashBase>),
    /// Settled.
    Stable,
    /// Initial partitions are in force for `revert_interval_s`, to measure what HPWs could have.
    Revert,
}

impl State {
    fn name(&self) -> &'static str {
        match self {
            State::Idle => "Idle",
            State::InitMeasure => "InitMeasure",
            State::Expand => "Expand",
            State::Trash(_) => "Trash",
            State::Stable => "Stable",
            State::Revert => "Revert",
        }
    }
}

/// A4 on one server.
pub(super) struct Machine {
    pub(super) config: Config,
    pub(super) variant: Variant,
    pub(super) wiring: Wiring,
    llc: LlcGeometry,
    dca_ways: Option<WayMask>,
    pub(super) workloads: Workloads,
    pub(super) state: State,
    /// `None` when the chip has too few ways for the zones that these workloads need.
    pub(super) zones: Option<Zones>,
    /// Ways of the LP zone (in Revert the initial ones are in force).
    pub(super) lp_ways: u32,
    /// Ways of the trash; equal to `lp_ways` until Trash shrinks them.
    pub(super) trash_ways: u32,
    /// When the state was entered or its zone last changed; `None` until the first interval.
    pub(super) since_ns: Option<u64>,
    /// When any mask or switch last changed: samples within `settle_s` of it are discarded.
    pub(super) changed_ns: Option<u64>,
    /// Counters of the samples since then that were not discarded.
    pub(super) window: Window,
    /// DCA write miss ratio under the initial partitions, for the deprecated stop of the artifact.
    pub(super) dca_initial: Option<f64>,
    /// Whether the event for a missing counter was already logged in this measurement.
    pub(super) waiting_said: bool,
}

impl Machine {
    /// A machine for one server, without workloads.
    pub fn new(inventory: &Inventory, variant: Variant, config: Config) -> Machine {
        Machine {
            config,
            variant,
            wiring: Wiring::of(inventory),
            llc: inventory.known_llc(),
            dca_ways: inventory.dca_ways_default,
            workloads: Workloads::default(),
            state: State::Idle,
            zones: None,
            lp_ways: 0,
            trash_ways: 0,
            since_ns: None,
            changed_ns: None,
            window: Window::default(),
            dca_initial: None,
            waiting_said: false,
        }
    }

    /// The initial knobs for the workloads alive at the start.
    pub fn start(&mut self, groups: &[Workload]) -> Decision {
        let mut log = Vec::new();
        if self.workloads.update(&self.wiring, groups, &mut log) {
            self.reset(None, &mut log);
        }
        self.decision(log)
    }

    /// One monitoring interval.
    pub fn step(&mut self, groups: &[Workload], seen: &Interval) -> Decision {
        let mut log = Vec::new();
        self.since_ns.get_or_insert(seen.from_ns);
        self.changed_ns.get_or_insert(seen.from_ns);
        if self.workloads.update(&self.wiring, groups, &mut log) {
            self.reset(Some(seen.to_ns), &mut log);
        } else {
            match self.state {
                State::Idle => {}
                State::InitMeasure => self.init_measure(seen, &mut log),
                State::Expand => self.expand(seen, &mut log),
                State::Trash(_) => self.trash(seen, &mut log),
                State::Stable => self.stable(seen, &mut log),
                State::Revert => self.revert(seen, &mut log),
            }
        }
        self.decision(log)
    }

    /// Back to the initial partitions and a new search, or to Idle without workloads.
    pub(super) fn reset(&mut self, now_ns: Option<u64>, log: &mut Vec<Event>) {
        self.workloads.forget_measurements();
        let io_hpw = self.workloads.has_io_high();
        let keep_inclusive = self.config.lpw_never_inclusive != 0.0;
        self.zones = Zones::new(&self.llc, self.dca_ways, self.variant, io_hpw, keep_inclusive);
        self.dca_initial = None;
        match self.zones {
            _ if self.workloads.members.is_empty() => self.enter(State::Idle, now_ns),
            None => {
                let text =
                    format!("{} ways are too few for A4's zones; the masks stay unchanged", self.llc.ways);
                log.push(event("zones-impossible", None, text));
                self.enter(State::Idle, now_ns);
            }
            Some(zones) => {
                self.lp_ways = zones.lp_start;
                self.trash_ways = zones.lp_start;
                let lp = zones.lp(zones.lp_start);
                let dca =
                    if zones.dca.is_empty() { String::new() } else { format!(", DCA zone {}", zones.dca) };
                let text = format!("initial partitions: HP zone {}, LP zone {lp}{dca}", zones.hp);
                log.push(event("initial-partitions", None, text));
                self.enter(State::InitMeasure, now_ns);
            }
        }
    }

    /// Enters a state whose masks may differ: restarts the timers and empties the window.
    pub(super) fn enter(&mut self, state: State, now_ns: Option<u64>) {
        self.state = state;
        self.since_ns = now_ns;
        self.changed_ns = now_ns;
        self.window = Window::default();
        self.waiting_said = false;
    }

    /// Fewest ways any mask may have on this chip.
    pub(super) fn min_ways(&self) -> u32 {
        self.llc.min_ways.max(1)
    }

    /// Adds the sample to the window unless it lies too near the last change; true if it was added.
    pub(super) fn gather(&mut self, seen: &Interval) -> bool {
        let settled = self.is_settled(seen);
        if settled {
            self.window.add(seen);
        }
        settled
    }

    /// True if little enough of the sample lies in the settling time after the last change.
    fn is_settled(&self, seen: &Interval) -> bool {
        let from_change = seen.from_ns as f64 - self.changed_ns.unwrap_or(seen.from_ns) as f64;
        let dirty = self.config.settle_s - from_change * 1e-9;
        dirty <= DIRTY_SHARE_MAX * seconds_of(seen)
    }

    /// True if `seconds` have passed since the state was entered or its zone changed.
    pub(super) fn is_due(&self, seen: &Interval, seconds: f64) -> bool {
        let passed = seen.to_ns.saturating_sub(self.since_ns.unwrap_or(seen.to_ns)) as f64 * 1e-9;
        passed + TIMER_SLACK * self.config.monitor_interval_s >= seconds
    }

    /// True if a measurement of the present zone is complete: `expand_interval_s` long, with at least one sample.
    pub(super) fn is_measured(&self, seen: &Interval) -> bool {
        self.is_due(seen, self.config.expand_interval_s) && !self.window.is_empty()
    }

    /// Logs once per measurement that a counter is missing; the state stays.
    pub(super) fn wait_for(&mut self, who: &[WorkloadId], log: &mut Vec<Event>) {
        if !self.waiting_said {
            self.waiting_said = true;
            let names = self.workloads.names(who);
            log.push(event("waiting", None, format!("{} waits: no counters of {names}", self.state.name())));
        }
    }

    /// The LP zone in force now.
    fn lp_mask(&self, zones: &Zones) -> WayMask {
        let reverting = self.state == State::Revert;
        zones.lp(if reverting { zones.lp_start } else { self.lp_ways })
    }

    /// The mask of one workload.
    fn mask(&self, zones: &Zones, id: WorkloadId, kind: WorkloadKind) -> WayMask {
        if self.workloads.is_antagonist(id) {
            return zones.lp(self.trash_ways);
        }
        if !self.workloads.is_high(id) {
            return self.lp_mask(zones);
        }
        if kind == WorkloadKind::NonIo { zones.hp } else { zones.all }
    }

    /// The wanted values of all knobs that A4 sets.
    fn decision(&self, events: Vec<Event>) -> Decision {
        let off = self.workloads.ports_off(&self.wiring);
        let mut plan = Plan::of_dca(self.wiring.switchable.iter().map(|port| (*port, !off.contains(port))));
        if let Some(zones) = &self.zones {
            let members = self.workloads.members.iter();
            let masks = members.map(|(id, member)| (*id, self.mask(zones, *id, member.group.kind)));
            plan = plan.with_masks(masks);
        }
        Decision { plan, state: self.state.name().to_owned(), events }
    }
}
