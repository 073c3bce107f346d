//! The state machine: measure, try a layout, keep or drop it, settle; and the conditions that start a new search.
//!
//! ```text
//! Look --settled--> Try --nothing left--> Stable --recheck--> Try
//!   ^                                       |
//!   +------- workloads or phase change -----+
//! ```
//!
//! It must not know masks, or the papers' thresholds, which are in [`super::config`].

use super::config::Config;
use super::evidence::Signature;
use super::layout::{Layout, Shape};
use super::moves::{Move, Scene, Way};
use super::progress::Progress;
use crate::{Cause, Decision, Event};
use std::collections::{BTreeSet, VecDeque};
use waykeeper_host::{Group, Interval, Inventory};
use waykeeper_units::PortId;

/// Phases whose layouts are remembered. Assumption: no host alternates between more; the oldest is forgotten.
const PHASES_REMEMBERED: usize = 16;
/// Weight of the newest interval in the running noise. Assumption: the mean of about the last five intervals.
const NOISE_WEIGHT: f64 = 0.2;
/// A signature change above this multiple of its running mean counts as unusual. Assumption: chance alone seldom
/// reaches it.
const JITTER_MARGIN: f64 = 4.0;
/// Intervals in a row that must show another phase. Each phase change soon after the last one doubles the number, up to
/// the maximum, so that restless traffic does not cause a search without end. One interval suffices if the change is
/// twice the limit and the last phase change is at least twice this number ago. Assumption: two rule out a single jump;
/// 64 are about a minute.
const PATIENCE_LEAST: u32 = 2;
const PATIENCE_MOST: u32 = 64;
/// A phase change within this multiple of the patience counts as soon. Assumption: a phase that lasts longer repays a
/// search.
const SOON: u32 = 4;
/// Steps in a row in which a knob must read back as another value before the policy gives it up. Assumption: a single
/// reading may happen while the knob is written.
const ODD_READINGS: u32 = 2;

#[derive(Clone, PartialEq, Debug)]
enum State {
    /// Measures the layout in force.
    Look,
    /// Measures another layout.
    Try(Move),
    /// No layout is left to try.
    Stable,
}

/// The layout found for an earlier phase.
#[derive(Clone, Debug)]
struct Remembered {
    signature: Signature,
    layout: Layout,
}

/// The whole state of the policy on one server.
pub(super) struct Machine {
    pub config: Config,
    inventory: Inventory,
    shape: Shape,
    groups: Vec<Group>,
    state: State,
    /// The best layout so far and the progress under it.
    best: Layout,
    best_progress: Progress,
    /// The interval measured under it, from which the next steps are derived.
    best_seen: Option<Interval>,
    /// Whether the steps from `best` have been put into the queue.
    expanded: bool,
    /// Progress at the start of the phase: the reference for an HPW's loss.
    first_progress: Progress,
    /// The layout in force.
    in_force: Layout,
    /// Layouts tried in this phase.
    tried: BTreeSet<Layout>,
    queue: VecDeque<Move>,
    /// Directions in which a step from `best` changed nothing.
    fruitless: BTreeSet<Way>,
    /// The progress of the last interval under the layout in force, and the number of intervals under it.
    last: Option<Progress>,
    waited: u32,
    noise: f64,
    signature: Signature,
    last_signature: Option<Signature>,
    /// Running mean of the signature's change from one interval to the next.
    jitter: f64,
    strange: u32,
    patience: u32,
    /// Intervals since the last phase change.
    since_phase: u32,
    /// Zones were kept against the open LLC in this phase, so the open LLC is not tried again.
    zones_paid: bool,
    /// Layouts tried in this search.
    trials: u32,
    /// Steps in a row in which a counter asked for a layout that was not tried.
    asked: u32,
    odd: u32,
    memory: VecDeque<Remembered>,
    stable_for: u32,
    recheck: u32,
}

impl Machine {
    pub fn new(config: Config, inventory: &Inventory, groups: &[Group]) -> Machine {
        let shape = Shape::new(inventory);
        let first = shape.first(groups);
        Machine {
            config,
            inventory: inventory.clone(),
            groups: groups.to_vec(),
            state: State::Look,
            best: first.clone(),
            best_progress: Progress::default(),
            best_seen: None,
            expanded: false,
            first_progress: Progress::default(),
            in_force: first,
            shape,
            tried: BTreeSet::new(),
            queue: VecDeque::new(),
            fruitless: BTreeSet::new(),
            last: None,
            waited: 0,
            noise: config.settle_tolerance / 2.0,
            signature: Signature::default(),
            last_signature: None,
            jitter: 0.0,
            strange: 0,
            patience: PATIENCE_LEAST,
            since_phase: u32::MAX,
            zones_paid: false,
            trials: 0,
            asked: 0,
            odd: 0,
            memory: VecDeque::new(),
            stable_for: 0,
            recheck: config.recheck,
        }
    }

    /// The knobs of the layout in force.
    pub fn decide(&self, events: Vec<Event>) -> Decision {
        let state = match self.state {
            State::Look => "Look",
            State::Try(_) => "Try",
            State::Stable => "Stable",
        };
        Decision { plan: self.shape.plan(&self.in_force, &self.groups), state: state.to_owned(), events }
    }

    /// Processes one interval.
    pub fn step(&mut self, groups: &[Group], seen: &Interval) -> Vec<Event> {
        let mut events = Vec::new();
        self.give_up_dead_knobs(seen, &mut events);
        if self.groups != groups {
            self.groups_changed(groups, &mut events);
            return events;
        }
        let progress = Progress::of(groups, seen, &self.inventory, &self.config);
        if progress.is_empty() {
            return events;
        }
        if self.is_another_phase(&progress, seen, &mut events) {
            return events;
        }
        let Some(settled) = self.settled(&progress) else { return events };
        match self.state.clone() {
            State::Look => {
                self.first_progress = settled.clone();
                self.found(self.in_force.clone(), settled, seen);
                self.signature = self.last_signature.clone().unwrap_or_default();
                self.begin_search(seen, &mut events);
            }
            State::Try(tried) => self.judge(&tried, settled, seen, &mut events),
            State::Stable => self.watch(&settled, seen, &mut events),
        }
        events
    }

    /// The progress under the layout in force, once two intervals agree or after `settle_max` intervals.
    fn settled(&mut self, progress: &Progress) -> Option<Progress> {
        self.waited += 1;
        let before = self.last.replace(progress.clone())?;
        let moved = progress.gain(&before, &self.groups, &self.config).all.abs();
        let agree = moved <= self.config.settle_tolerance.max(2.0 * self.noise);
        if agree {
            self.noise += NOISE_WEIGHT * (moved - self.noise);
        }
        (agree || self.waited >= self.config.settle_max).then(|| progress.mixed(&before))
    }

    fn put_in_force(&mut self, layout: Layout) {
        self.shape.dca_turned |= layout.dca_ways != self.shape.dca_least();
        if layout != self.in_force {
            (self.last, self.waited) = (None, 0);
        }
        self.in_force = layout;
    }

    /// Starts a search for a new phase: earlier trials do not count. For a known phase its best layout is tried first.
    fn begin_search(&mut self, seen: &Interval, events: &mut Vec<Event>) {
        self.tried = BTreeSet::from([self.best.clone()]);
        (self.trials, self.zones_paid) = (0, false);
        let guess = self.scene(seen).guess(&self.best);
        let known = self.memory.iter().find(|known| {
            known.signature.distance(&self.signature, &self.groups).0 <= self.config.phase_change
        });
        if let Some(known) = known {
            let why = "this layout was best in this phase before".to_owned();
            self.queue.push_back(Move {
                to: self.shape.fitted(known.layout.clone()),
                way: Way::Other,
                why,
                causes: Vec::new(),
            });
        }
        self.queue.push_back(guess);
        self.next(events);
    }

    /// Makes a layout the best so far and clears the queue: its next steps are different ones.
    fn found(&mut self, layout: Layout, progress: Progress, seen: &Interval) {
        (self.best, self.best_progress, self.best_seen) = (layout, progress, Some(seen.clone()));
        self.expanded = false;
        self.queue.clear();
        self.fruitless.clear();
    }

    fn scene<'a>(&'a self, seen: &'a Interval) -> Scene<'a> {
        Scene {
            groups: &self.groups,
            seen,
            inventory: &self.inventory,
            shape: &self.shape,
            config: &self.config,
        }
    }

    /// Puts the next layout of the queue in force, or settles.
    fn next(&mut self, events: &mut Vec<Event>) {
        while self.trials < self.config.trials_max {
            let Some(next) = self.queue.pop_front() else {
                let Some(seen) = self.best_seen.as_ref().filter(|_| !self.expanded) else { break };
                let mut steps = self.scene(seen).steps(&self.best);
                // An LLC that was open for one trial fills rings that take long to drain.
                steps.retain(|step| !(step.to.open && self.zones_paid));
                (self.queue, self.expanded) = (steps.into(), true);
                continue;
            };
            if !self.fruitless.contains(&next.way) && self.tried.insert(next.to.clone()) {
                let what = next.to.changes(&self.best, &self.groups, &self.inventory);
                events.push(event("try", format!("try {what}: {}", next.why), next.causes.clone()));
                self.put_in_force(next.to.clone());
                self.state = State::Try(next);
                self.trials += 1;
                return;
            }
        }
        if self.state != State::Stable {
            let text = format!("settled; layouts tried in this phase: {}", self.tried.len());
            events.push(event("settle", text, Vec::new()));
        }
        (self.state, self.stable_for, self.strange, self.asked) = (State::Stable, 0, 0, 0);
        self.put_in_force(self.best.clone());
        self.memory.retain(|known| {
            known.signature.distance(&self.signature, &self.groups).0 > self.config.phase_change
        });
        self.memory.push_front(Remembered { signature: self.signature.clone(), layout: self.best.clone() });
        self.memory.truncate(PHASES_REMEMBERED);
    }

    /// Keeps or drops a layout, then tries the next.
    fn judge(&mut self, tried: &Move, measured: Progress, seen: &Interval, events: &mut Vec<Event>) {
        let gain = measured.gain(&self.best_progress, &self.groups, &self.config);
        let loss = measured.gain(&self.first_progress, &self.groups, &self.config);
        let needed = self.config.min_gain.max(2.0 * self.noise);
        let limit = 1.0 - self.config.hpw_loss_max;
        let kept = gain.all > needed && loss.worst_hpw >= limit;
        let number = |what: &str, value: f64, limit: Option<(&str, f64)>| Cause {
            what: what.to_owned(),
            value,
            limit: limit.map(|(name, value)| (name.to_owned(), value)),
        };
        let causes = vec![
            number("total gain", gain.all, Some(("min_gain or twice the noise", needed))),
            number("HPWs' progress against the best so far", gain.hpw, None),
            number("LPWs' progress against the best so far", gain.lpw, None),
            number(
                "worst HPW against the start of the phase",
                loss.worst_hpw,
                Some(("1 - hpw_loss_max", limit)),
            ),
        ];
        let what = tried.to.changes(&self.best, &self.groups, &self.inventory);
        if kept {
            events.push(event("keep", format!("keep {what}"), causes));
            self.zones_paid |= self.best.open && !tried.to.open;
            self.found(tried.to.clone(), measured, seen);
        } else {
            events.push(event("drop", format!("drop {what}"), causes));
            // No effect: a shorter step in the same direction would have none either.
            if gain.all.abs() <= needed && tried.way != Way::Other {
                self.fruitless.insert(tried.way);
            }
        }
        self.next(events);
    }

    /// True if the traffic of programs or devices differs from that at the start of the phase, or an HPW lost progress.
    /// The policy then measures again.
    fn is_another_phase(&mut self, progress: &Progress, seen: &Interval, events: &mut Vec<Event>) -> bool {
        let now = Signature::of(&self.groups, seen, &self.inventory);
        // A change as large as the usual one between intervals is no new phase.
        let limit = self.config.phase_change.max(JITTER_MARGIN * self.jitter);
        let jump = self.last_signature.as_ref().map_or(0.0, |before| now.distance(before, &self.groups).0);
        self.jitter += NOISE_WEIGHT * (jump.min(1.0) - self.jitter);
        let (mut by, mut whose) = now.distance(&self.signature, &self.groups);
        self.last_signature = Some(now);
        if self.state == State::Look {
            return false;
        }
        let mut name = "phase_change";
        let mut sudden = 2.0 * limit;
        // If the traffic is the same, another workload causes the HPW's loss.
        if self.state == State::Stable && by <= self.config.phase_change {
            let loss = 1.0 - progress.gain(&self.best_progress, &self.groups, &self.config).worst_hpw;
            if loss > self.config.hpw_loss_max {
                (by, whose, name, sudden) =
                    (loss, "progress of an HPW".to_owned(), "hpw_loss_max", f64::INFINITY);
            }
        }
        let limit = if name == "phase_change" { limit } else { self.config.hpw_loss_max };
        self.strange = if by > limit { self.strange + 1 } else { 0 };
        self.since_phase = self.since_phase.saturating_add(1);
        let at_once = by > sudden && self.since_phase >= 2 * self.patience;
        if self.strange < self.patience && !at_once {
            return false;
        }
        let soon = self.since_phase < SOON * self.patience;
        self.patience = if soon { (2 * self.patience).min(PATIENCE_MOST) } else { PATIENCE_LEAST };
        self.since_phase = 0;
        let limit = Some((name.to_owned(), limit));
        let causes = vec![Cause { what: format!("relative change of {whose}"), value: by, limit }];
        events.push(event("phase", format!("new phase: {whose} changed"), causes));
        self.put_in_force(self.best.clone());
        self.look();
        true
    }

    /// In Stable: tries layouts that a counter newly asks for; at growing intervals undoes one restriction to see
    /// whether it still helps.
    fn watch(&mut self, measured: &Progress, seen: &Interval, events: &mut Vec<Event>) {
        self.best_progress = self.best_progress.mixed(measured);
        let mut asked_for = self.scene(seen).asked_for(&self.best);
        asked_for.retain(|step| !self.tried.contains(&step.to));
        self.asked = if asked_for.is_empty() { 0 } else { self.asked + 1 };
        if self.asked >= PATIENCE_LEAST {
            (self.queue, self.expanded, self.trials) = (asked_for.into(), true, 0);
            self.fruitless.clear();
            self.next(events);
            return;
        }
        self.stable_for += 1;
        if self.stable_for < self.recheck {
            return;
        }
        // The next recheck comes later, unless this one finds something.
        self.recheck = self.recheck.saturating_mul(2);
        self.stable_for = 0;
        let releases = self.scene(seen).releases(&self.best);
        let turn = self.recheck as usize % releases.len().max(1);
        if let Some(release) = releases.into_iter().nth(turn) {
            self.tried.remove(&release.to);
            (self.queue, self.expanded, self.trials) = ([release].into(), true, 0);
            self.fruitless.clear();
            self.next(events);
        }
    }

    /// Measures the layout in force again.
    fn look(&mut self) {
        (self.state, self.last, self.waited, self.strange) = (State::Look, None, 0, 0);
        self.best = self.in_force.clone();
        self.recheck = self.config.recheck;
    }

    /// Workloads started, ended or changed class: the best layout is kept, without trash entries of ended ones.
    /// Remembered phases are forgotten.
    fn groups_changed(&mut self, groups: &[Group], events: &mut Vec<Event>) {
        let names = |all: &[Group], not_in: &[Group]| {
            let new = all.iter().filter(|group| !not_in.contains(group));
            new.map(|group| group.name.as_str()).collect::<Vec<_>>().join(", ")
        };
        let (new, gone) = (names(groups, &self.groups), names(&self.groups, groups));
        let text = match (new.is_empty(), gone.is_empty()) {
            (false, true) => format!("{new} launched"),
            (true, _) => format!("{gone} exited"),
            (false, false) => format!("{new} launched or changed class, {gone} exited or changed class"),
        };
        events.push(event("workloads", text, Vec::new()));
        self.groups = groups.to_vec();
        let mut layout = self.best.clone();
        layout.trash.retain(|id| groups.iter().any(|group| group.id == *id));
        self.put_in_force(self.shape.fitted(layout));
        self.memory.clear();
        self.look();
    }

    /// Stops setting a knob that keeps reading back as another value. Adopts DCA ways that another program set before
    /// the policy first set them.
    fn give_up_dead_knobs(&mut self, seen: &Interval, events: &mut Vec<Event>) {
        if let Some(found) = seen.knobs.dca_ways()
            && self.shape.adopt_dca(found)
        {
            events.push(event("dca-ways", format!("DCA ways were set to {found} by hand"), Vec::new()));
            self.start_over();
            return;
        }
        let wanted = self.shape.plan(&self.in_force, &self.groups);
        let ways = wanted.dca_ways().zip(seen.knobs.dca_ways()).filter(|(wanted, found)| wanted != found);
        let differs = |(port, on): &(PortId, bool)| seen.knobs.dca(*port).is_some_and(|found| found != *on);
        let ports: Vec<PortId> = wanted.dca_by_port().filter(differs).map(|(port, _)| port).collect();
        self.odd = if ways.is_some() || !ports.is_empty() { self.odd + 1 } else { 0 };
        if self.odd < ODD_READINGS {
            return;
        }
        self.odd = 0;
        let mut dead = Vec::new();
        if let Some((wanted, found)) = ways {
            self.shape.dca_dial = false;
            dead.push(format!("DCA ways {wanted} did not take effect, {found} reads back"));
        }
        for port in ports {
            self.shape.switches.remove(&port);
            dead.push(format!("the DCA switch of {port} has no effect"));
        }
        events.extend(dead.into_iter().map(|text| event("dead-knob", text, Vec::new())));
        self.start_over();
    }

    /// The limits of the chip changed: fits the best layout to them and measures again.
    fn start_over(&mut self) {
        self.best = self.shape.fitted(self.best.clone());
        self.put_in_force(self.best.clone());
        self.queue.clear();
        self.memory.clear();
        self.look();
    }
}

fn event(action: &str, text: String, causes: Vec<Cause>) -> Event {
    Event { action: action.to_owned(), group: None, text, causes }
}
