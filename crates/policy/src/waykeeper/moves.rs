//! The layouts to try next, the likeliest to help first, each with its reason.
//!
//! A4's and IAT's measures as single steps from the layout in force: zones, selective DCA, trash ways, DDIO ways by
//! demand. It must not know earlier trials or their results.

use super::evidence::{Leak, antagonists, dca_miss, leaking_ports, llc_miss};
use super::layout::{ChipLimits, Layout, has_io_hpw};
use super::server::ServerView;
use crate::Cause;
use waykeeper_host::{Priority, Workload, WorkloadKind};

/// Direction of a step: two steps in one direction differ in length only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Direction {
    /// More workloads in the trash way, and no other change.
    Trash,
    LpSmaller,
    LpLarger,
    MoreDca,
    Other,
}

/// A layout to try.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Move {
    pub to: Layout,
    pub direction: Direction,
    pub why: String,
    pub causes: Vec<Cause>,
}

/// Collects the steps from a layout.
struct Steps<'a> {
    limits: &'a ChipLimits,
    best: &'a Layout,
    moves: Vec<Move>,
}

impl Steps<'_> {
    fn add(&mut self, direction: Direction, why: &str, causes: Vec<Cause>, change: impl FnOnce(&mut Layout)) {
        let mut to = self.best.clone();
        change(&mut to);
        self.moves.push(Move { to: self.limits.fitted(to), direction, why: why.to_owned(), causes });
    }
}

fn number(what: &str, value: f64) -> Cause {
    Cause { what: what.to_owned(), value, limit: None }
}

impl ServerView<'_> {
    fn has(&self, priority: Priority, io: bool) -> bool {
        self.groups.iter().any(|g| g.priority == priority && (g.kind != WorkloadKind::NonIo) == io)
    }

    /// The layout that the counters suggest, in one step: what A4 finds at the end of its search.
    pub fn guess(&self, from: &Layout) -> Move {
        let (mut to, mut causes) = (from.clone(), Vec::new());
        for reason in leaking_ports(self.groups, self.seen, self.inventory, Leak::sure(self.config)) {
            if self.limits.switches.contains(&reason.of) && to.dca_off.insert(reason.of) {
                causes.extend(reason.causes);
            }
        }
        for reason in antagonists(self.groups, self.seen, self.config) {
            if to.trash.insert(reason.of) {
                causes.extend(reason.causes);
            }
        }
        to.trash.extend(self.storage_behind(&to));
        let high = self.has(Priority::High, true) || self.has(Priority::High, false);
        let low = self.has(Priority::Low, true) || self.has(Priority::Low, false);
        if (high && low) || !to.trash.is_empty() {
            if from.open {
                to.lp_ways = self.limits.lp_most(to.dca_ways).div_ceil(2);
                to.hp_clear = has_io_hpw(self.groups);
            }
            to.open = false;
        }
        let why = "the counters suggest it".to_owned();
        let to = self.limits.fitted(to);
        let trash_alone = Layout { trash: from.trash.clone(), ..to.clone() } == *from;
        Move { to, direction: if trash_alone { Direction::Trash } else { Direction::Other }, why, causes }
    }

    /// LPWs whose ports all have DCA off: their blocks come from memory and return there.
    fn storage_behind(&self, layout: &Layout) -> Vec<waykeeper_units::WorkloadId> {
        let off = |group: &Workload| {
            let devices = group.devices.iter().filter_map(|id| self.inventory.devices.get(id.index()));
            group.kind == WorkloadKind::StorageIo
                && devices.flat_map(|device| &device.ports).all(|port| layout.dca_off.contains(port))
        };
        let low = self.groups.iter().filter(|group| group.priority == Priority::Low && off(group));
        low.map(|group| group.id).collect()
    }

    /// Steps that a counter above its limit asks for.
    pub fn asked_for(&self, best: &Layout) -> Vec<Move> {
        let mut steps = self.steps(best);
        steps.retain(|step| step.causes.iter().any(|cause| cause.limit.is_some()));
        steps
    }

    /// Single steps from `best`, the likeliest to help first.
    pub fn steps(&self, best: &Layout) -> Vec<Move> {
        let mut steps = Steps { limits: self.limits, best, moves: Vec::new() };
        self.against_leaks_and_antagonists(&mut steps);
        let miss = dca_miss(self.seen);
        self.more_dca_ways(miss, &mut steps);
        if !best.open {
            self.other_zones(&mut steps);
        }
        // Assumption: with one way less, misses stay below the limit.
        if let Some(miss) = miss
            && miss < self.config.ddio_miss / 5.0
            && best.dca_ways > self.limits.dca_least()
        {
            let why = "devices have more ways than they need";
            steps.add(Direction::Other, why, vec![number("DCA write miss ratio", miss)], |l| l.dca_ways -= 1);
        }
        if self.may_open(best) {
            steps.add(Direction::Other, "zones may cost more than they gain", Vec::new(), |l| l.open = true);
        }
        steps.moves
    }

    /// The open LLC is tried only where no HPW uses a device: rings that fill in it stay full when the zones are back.
    fn may_open(&self, best: &Layout) -> bool {
        !best.open && !has_io_hpw(self.groups)
    }

    fn against_leaks_and_antagonists(&self, steps: &mut Steps<'_>) {
        // The result is measured, so the lower limits suffice.
        for reason in leaking_ports(self.groups, self.seen, self.inventory, Leak::suspected(self.config)) {
            let port = reason.of;
            if self.limits.switches.contains(&port) && !steps.best.dca_off.contains(&port) {
                let mut off = steps.best.clone();
                off.dca_off.insert(port);
                let behind = self.storage_behind(&off);
                steps.add(Direction::Other, "its blocks leak to memory", reason.causes, |l| {
                    l.dca_off.insert(port);
                    l.trash.extend(behind);
                });
            }
        }
        for reason in antagonists(self.groups, self.seen, self.config) {
            if !steps.best.open && !steps.best.trash.contains(&reason.of) {
                let why = "it gains nothing from the LLC";
                steps.add(Direction::Trash, why, reason.causes, |l| _ = l.trash.insert(reason.of));
            }
        }
    }

    fn more_dca_ways(&self, miss: Option<f64>, steps: &mut Steps<'_>) {
        let limit = self.config.ddio_miss;
        let Some(miss) = miss.filter(|miss| *miss > limit) else { return };
        let room = self.limits.dca_most() - steps.best.dca_ways;
        // With many misses a step of two ways comes first. Assumption: three times the limit are many.
        let longest = if miss > 3.0 * limit { 2 } else { 1 };
        for by in (1..=longest.min(room)).rev() {
            let limit = Some(("ddio_miss".to_owned(), limit));
            let cause = Cause { what: "DCA write miss ratio".to_owned(), value: miss, limit };
            steps.add(Direction::MoreDca, "devices outgrow their ways", vec![cause], |l| l.dca_ways += by);
        }
    }

    fn other_zones(&self, steps: &mut Steps<'_>) {
        let best = steps.best;
        let starving = |priority: Priority| {
            let all = self.groups.iter().filter(|g| g.priority == priority && !best.trash.contains(&g.id));
            let misses: Vec<f64> = all.filter_map(|g| llc_miss(g.id, self.seen)).collect();
            misses.iter().sum::<f64>() / misses.len().max(1) as f64
        };
        let (high, low) = (starving(Priority::High), starving(Priority::Low));
        let causes =
            || vec![number("mean LLC miss ratio of HPWs", high), number("mean LLC miss ratio of LPWs", low)];
        if has_io_hpw(self.groups) && self.has(Priority::High, false) {
            let why = "HPWs without I/O may gain more from devices' ways than devices lose";
            steps.add(Direction::Other, why, Vec::new(), |l| l.hp_clear = !l.hp_clear);
        }
        // HPWs first: steps that take ways from LPWs come before steps that give them any.
        for by in [2, 1].into_iter().filter(|by| best.lp_ways >= self.limits.lp_least() + by) {
            steps.add(Direction::LpSmaller, "HPWs may need the room", causes(), |l| l.lp_ways -= by);
        }
        let most = self.limits.lp_most(best.dca_ways);
        for by in [2, 1].into_iter().filter(|by| low > 0.0 && best.lp_ways + by <= most) {
            steps.add(Direction::LpLarger, "LPWs may need the room", causes(), |l| l.lp_ways += by);
        }
    }

    /// Single steps that undo one restriction each: its present value does not show in the counters.
    pub fn releases(&self, best: &Layout) -> Vec<Move> {
        let mut steps = Steps { limits: self.limits, best, moves: Vec::new() };
        for group in &best.trash {
            steps.add(Direction::Other, "its behaviour may have changed", Vec::new(), |l| {
                _ = l.trash.remove(group)
            });
        }
        for port in &best.dca_off {
            steps.add(Direction::Other, "its traffic may have changed", Vec::new(), |l| {
                _ = l.dca_off.remove(port)
            });
        }
        if best.dca_ways > self.limits.dca_least() {
            steps.add(Direction::Other, "devices may need fewer ways", Vec::new(), |l| l.dca_ways -= 1);
        }
        if self.may_open(best) {
            steps.add(Direction::Other, "zones may not be needed any more", Vec::new(), |l| l.open = true);
        }
        steps.moves
    }
}
