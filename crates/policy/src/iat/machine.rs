//! IAT on one server: the loop of Fig. 5 (algorithms.md 2.3). It classifies each interval and acts on it.
//!
//! ```text
//! Get Tenant Info -> LLC Alloc -> Poll Prof Data -> [changed?] -> State Transition -> LLC Re-alloc -> Sleep
//! ```
//!
//! The control loop sleeps; one call is one interval. The actions of the states are in `realloc`. It must not know how
//! counters are read.

use super::config::{Config, Mode};
use super::core_side::CoreSide;
use super::fsm::{Signals, State, next};
use super::guard::{Guard, Owner};
use super::poll::{Sample, Trend, Trends, relative};
use super::sizing::Limits;
use super::tenants::{Class, Tenants, event};
use crate::{Cause, Decision, Event};
use waykeeper_host::{Interval, Inventory, Knob, LlcGeometry, Plan, Support, Workload};
use waykeeper_units::WayMask;

/// The case of an interval, determined before the state machine (IAT s4.B).
#[derive(Clone, PartialEq, Eq, Debug)]
enum Case {
    /// Nothing changed by more than THRESHOLD_STABLE.
    Stable,
    /// Skip case 1: only IPC changed.
    IpcOnly,
    /// Skip case 2: these tenants without I/O and without DDIO overlap need LLC, and DDIO did not change.
    CoreOnly(Vec<usize>),
    /// Skip case 3: this tenant without I/O that overlaps DDIO changed along with DDIO.
    Overlap(usize),
    /// Anything else: state transition.
    Transition,
}

/// IAT on one server.
pub(super) struct Machine {
    pub(super) config: Config,
    pub(super) llc: LlcGeometry,
    pub(super) limits: Limits,
    /// Ways devices may allocate in now; empty if the chip has none.
    pub(super) ddio: WayMask,
    can_size_ddio: bool,
    /// Whether IAT has set the DDIO ways; until then its plan does not contain them.
    pub(super) ddio_is_ours: bool,
    groups: Vec<Workload>,
    pub(super) tenants: Tenants,
    pub(super) state: State,
    /// DDIO misses when the state was entered.
    entered_misses: f64,
    before: Option<Sample>,
    pub(super) core_side: CoreSide,
    pub(super) guard: Guard,
    /// The last interval only shuffled (skip case 3): this one runs the state machine in any case.
    deferred: bool,
    /// The last event about an interval without a decision; it is logged once.
    said: Option<&'static str>,
}

impl Machine {
    /// A machine for one server, without tenants.
    pub fn new(inventory: &Inventory, config: Config) -> Machine {
        let ddio = inventory.dca_ways_default.unwrap_or(WayMask::EMPTY);
        Machine {
            limits: Limits::of(&config, &inventory.known_llc()),
            llc: inventory.known_llc(),
            can_size_ddio: inventory.dca_ways_switch == Support::Yes && !ddio.is_empty(),
            ddio,
            ddio_is_ours: false,
            groups: Vec::new(),
            tenants: Tenants::default(),
            state: State::LowKeep,
            entered_misses: 0.0,
            before: None,
            core_side: CoreSide::default(),
            guard: Guard::default(),
            deferred: false,
            said: None,
            config,
        }
    }

    /// Get Tenant Info and LLC Alloc for the tenants at the start.
    pub fn start(&mut self, groups: &[Workload]) -> Decision {
        let mut log = Vec::new();
        self.form(groups, &mut log);
        self.decision(log)
    }

    /// One interval.
    pub fn step(&mut self, groups: &[Workload], seen: &Interval) -> Decision {
        let mut log = Vec::new();
        self.follow_ddio(seen.knobs.dca_ways(), &mut log);
        self.guard.tick();
        if self.groups != groups {
            // The counters before and after belong to different tenants and cannot be compared.
            self.form(groups, &mut log);
            return self.decision(log);
        }
        let now = Sample::of(seen, &self.tenants.slots);
        match self.before.replace(now.clone()) {
            // The first reading: LLC references are known now, which LLC Alloc did not have.
            None => {
                self.shuffle(&now, &mut log);
            }
            Some(before) => self.react(&before, &now, &mut log),
        }
        self.decision(log)
    }

    /// Forms the tenants again. The state and the DDIO ways stay: the traffic did not change.
    fn form(&mut self, groups: &[Workload], log: &mut Vec<Event>) {
        self.groups = groups.to_vec();
        self.tenants = Tenants::of(groups, &self.llc, self.ddio, log);
        self.before = None;
        self.core_side.reset();
        self.guard.forget_slots();
        self.deferred = false;
    }

    /// Adopts a contiguous DDIO mask that another program set, or that the machine holds instead of ours.
    fn follow_ddio(&mut self, read_back: Option<WayMask>, log: &mut Vec<Event>) {
        let Some(found) = read_back.filter(|found| *found != self.ddio && found.is_contiguous()) else {
            return;
        };
        let text = format!("DDIO ways read back as {found}, not {}; IAT continues from there", self.ddio);
        let mut event = event("ddio-found", None, text);
        let what = "DDIO ways read back".to_owned();
        event.causes = vec![Cause { what, value: f64::from(found.count()), limit: None }];
        log.push(event);
        self.ddio = found;
    }

    /// Compares with the last interval and acts on the change.
    fn react(&mut self, before: &Sample, now: &Sample, log: &mut Vec<Event>) {
        let trends = Trends::between(before, now, &self.config);
        let deferred = std::mem::take(&mut self.deferred);
        let said = self.said.take();
        match self.case(&trends) {
            Case::Stable => {}
            Case::IpcOnly => {
                let causes = self.ipc_causes(before, now, &trends);
                self.say(
                    said,
                    "skip-ipc-only",
                    "only IPC changed; cache and I/O did not cause it",
                    causes,
                    log,
                );
            }
            Case::CoreOnly(eligible) => {
                if self.config.tenant_sizing != 0.0 {
                    self.grow_core_side(&eligible, before, now, &trends, log);
                }
                self.shuffle(now, log);
            }
            Case::Overlap(slot) if !deferred => {
                if self.shuffle(now, log) {
                    self.deferred = true;
                    let name = &self.tenants.slots[slot].name;
                    let text = format!(
                        "{name} overlaps DDIO and both changed: shuffle first, the state machine waits"
                    );
                    let mut skip = event("skip-shuffle-first", Some(name), text);
                    skip.causes = self.overlap_causes(slot, before, now);
                    log.push(skip);
                } else {
                    self.transition(before, now, &trends, said, log);
                }
            }
            Case::Overlap(_) | Case::Transition => match self.stack_needs_ways(now, &trends) {
                Some(stack) => {
                    self.grow_core_side(&[stack], before, now, &trends, log);
                    self.shuffle(now, log);
                }
                None => self.transition(before, now, &trends, said, log),
            },
        }
    }

    /// The stack's slot if it needs LLC while DDIO misses are few: its own tables grow, as with the flows of s6.B (Fig.
    /// 9), where fewer packets cause fewer DDIO hits and hardly a miss. The state machine waits for DDIO misses and
    /// would never give it a way.
    fn stack_needs_ways(&self, now: &Sample, trends: &Trends) -> Option<usize> {
        let quiet = now.ddio_misses.is_some_and(|misses| misses <= self.config.threshold_miss_low);
        if self.state != State::LowKeep || !quiet || self.config.tenant_sizing == 0.0 {
            return None;
        }
        let asks = |index: &usize| trends.slots[*index].ipc.changed() && trends.slots[*index].llc_changed();
        let stack = self.tenants.slots.iter().position(|slot| slot.class == Class::Stack);
        stack.filter(asks)
    }

    /// Skip cases in the order of algorithms.md 2.3.
    fn case(&self, trends: &Trends) -> Case {
        let (llc, ddio) = (trends.llc_changed(), trends.ddio_changed());
        if !llc && !ddio {
            return if trends.ipc_changed() { Case::IpcOnly } else { Case::Stable };
        }
        let wants = |overlaps: bool| {
            let slots = self.tenants.slots.iter().zip(&trends.slots).enumerate();
            slots.filter_map(move |(index, (slot, trend))| {
                let asks = !slot.is_io && trend.ipc.changed() && trend.llc_changed();
                (asks && slot.mask.overlaps(self.ddio) == overlaps).then_some(index)
            })
        };
        let eligible: Vec<usize> = wants(false).collect();
        // With DDIO ways set by hand the state machine has no action for devices, and a change of DDIO must not keep a
        // tenant from gaining a way.
        let devices_act = ddio && self.config.ddio_sizing != 0.0;
        if !devices_act && !eligible.is_empty() {
            return Case::CoreOnly(eligible);
        }
        match wants(true).next() {
            Some(slot) if ddio => Case::Overlap(slot),
            _ => Case::Transition,
        }
    }

    /// State transition, then LLC re-alloc: number of ways first, then the shuffle.
    fn transition(
        &mut self,
        before: &Sample,
        now: &Sample,
        trends: &Trends,
        said: Option<&'static str>,
        log: &mut Vec<Event>,
    ) {
        let Some(misses) = now.ddio_misses else {
            self.say(said, "waiting", "cannot read DDIO misses: the state stays", Vec::new(), log);
            self.shuffle(now, log);
            return;
        };
        let seen = self.signals(misses, trends);
        if let Some(edge) = next(self.state, &seen) {
            let text = format!("({}) {} -> {}: {}", edge.number, self.state.name(), edge.to.name(), edge.why);
            let mut moved = event("transition", None, text);
            moved.causes = self.transition_causes(misses, before, now);
            log.push(moved);
            // Not only edges 5 and 9: a reclaim that ended in LowKeep and then caused the demand again was wrong too.
            if matches!(edge.to, State::IoDemand | State::CoreDemand) {
                self.guard_undone(log);
            }
            self.state = edge.to;
            self.entered_misses = misses;
        }
        match self.state {
            State::LowKeep | State::HighKeep => {}
            State::IoDemand => self.widen_ddio(misses, log),
            State::CoreDemand => self.grow_stack_or_io(before, now, log),
            State::Reclaim => self.reclaim(now, log),
        }
        self.shuffle(now, log);
    }

    fn signals(&self, misses: f64, trends: &Trends) -> Signals {
        Signals {
            misses,
            misses_trend: trends.ddio_misses,
            hits_trend: trends.ddio_hits,
            refs_trend: trends.refs,
            miss_low: self.config.threshold_miss_low,
            severe_fall: self.config.severe_fall * self.entered_misses,
            ways: self.ddio.count(),
            ways_min: self.limits.min,
            ways_max: self.limits.max,
            tenant_above_grant: self.tenants.slots.iter().any(|slot| slot.ways() > slot.grant),
        }
    }

    /// Guarded mode: the last reclaim had to be undone; starts or extends its hold.
    fn guard_undone(&mut self, log: &mut Vec<Event>) {
        if self.config.mode != Mode::Guarded {
            return;
        }
        let undone = self.guard.undone(self.config.guard_intervals as u32, self.config.guard_backoff);
        if let Some((owner, count, intervals)) = undone {
            let who = match owner {
                Owner::Ddio => "DDIO".to_owned(),
                Owner::Slot(index) => self.tenants.slots[index].name.clone(),
            };
            let text =
                format!("{who} keeps {count} ways for {intervals} intervals: taking one had to be undone");
            let mut held = event("guard", None, text);
            let what = "intervals without such a reclaim".to_owned();
            held.causes = vec![self.config.cause(what, f64::from(intervals), "guard_intervals")];
            log.push(held);
        }
    }

    /// True if IAT may change the number of DDIO ways.
    pub(super) fn sizes_ddio(&self) -> bool {
        self.can_size_ddio && self.config.ddio_sizing != 0.0
    }

    /// Logs why nothing is decided, once for a row of equal reasons.
    fn say(
        &mut self,
        said: Option<&'static str>,
        action: &'static str,
        text: &str,
        causes: Vec<Cause>,
        log: &mut Vec<Event>,
    ) {
        self.said = Some(action);
        if said != Some(action) {
            log.push(Event { causes, ..event(action, None, text.to_owned()) });
        }
    }

    fn ipc_causes(&self, before: &Sample, now: &Sample, trends: &Trends) -> Vec<Cause> {
        let changed = (0..trends.slots.len()).filter(|index| trends.slots[*index].ipc != Trend::Steady);
        let cause = |index: usize| {
            let change = relative(before.slots[index].ipc, now.slots[index].ipc, self.config.ipc_floor);
            let what = format!("relative change of IPC of {}", self.tenants.slots[index].name);
            self.config.cause(what, change.unwrap_or(0.0), "threshold_stable")
        };
        changed.map(cause).collect()
    }

    fn overlap_causes(&self, slot: usize, before: &Sample, now: &Sample) -> Vec<Cause> {
        let (a, b) = (&before.slots[slot], &now.slots[slot]);
        let change = relative(a.refs, b.refs, self.config.llc_floor).unwrap_or(0.0);
        let mut causes =
            vec![self.config.cause("relative change of its LLC references", change, "threshold_stable")];
        causes.extend(self.ddio_causes(before, now));
        causes
    }

    fn transition_causes(&self, misses: f64, before: &Sample, now: &Sample) -> Vec<Cause> {
        let mut causes = vec![self.config.cause("DDIO misses per second", misses, "threshold_miss_low")];
        causes.extend(self.ddio_causes(before, now));
        let refs = |sample: &Sample| sample.refs().into_iter().flatten().sum::<f64>();
        let change = relative(Some(refs(before)), Some(refs(now)), self.config.llc_floor);
        let what = "relative change of all LLC references";
        causes.push(self.config.cause(what, change.unwrap_or(0.0), "threshold_stable"));
        causes.push(self.config.cause("DDIO ways", f64::from(self.ddio.count()), "ddio_ways_max"));
        causes
    }

    fn ddio_causes(&self, before: &Sample, now: &Sample) -> Vec<Cause> {
        let floor = self.config.ddio_floor();
        let events = [
            ("relative change of DDIO hits", before.ddio_hits, now.ddio_hits),
            ("relative change of DDIO misses", before.ddio_misses, now.ddio_misses),
        ];
        let cause = |(what, a, b): (&str, _, _)| {
            relative(a, b, floor).map(|change| self.config.cause(what, change, "threshold_stable"))
        };
        events.into_iter().filter_map(cause).collect()
    }

    /// The wanted values of all knobs that IAT sets.
    fn decision(&self, events: Vec<Event>) -> Decision {
        let mut plan = Plan::of_masks(self.tenants.masks(self.llc.ways));
        plan.extend(self.ddio_is_ours.then_some((Knob::DcaWays, self.ddio)));
        Decision { plan, state: self.state.name().to_owned(), events }
    }
}
