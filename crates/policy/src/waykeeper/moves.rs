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

/// The mean of some values; `None` of no value.
fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
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
        // Workloads in the trash way are left out, because no zone concerns them, and so are those with too few references.
        let starving = |priority: Priority| {
            let all = self.groups.iter().filter(|g| g.priority == priority && !best.trash.contains(&g.id));
            mean(all.filter_map(|g| llc_miss(g.id, self.seen)))
        };
        let means = [("HPWs", starving(Priority::High)), ("LPWs", starving(Priority::Low))];
        let causes = || {
            let known = means.iter().filter_map(|(kind, mean)| Some((kind, (*mean)?)));
            known
                .map(|(kind, mean)| number(&format!("mean LLC miss ratio of {kind} in zones"), mean))
                .collect()
        };
        let unknown = |why: &str| {
            let without = means.iter().filter(|(_, mean)| mean.is_none()).map(|(kind, _)| *kind);
            match without.collect::<Vec<_>>().join(" and ") {
                none if none.is_empty() => why.to_owned(),
                some => format!("{why}; mean LLC miss ratio of {some} in zones: not available"),
            }
        };
        let low_misses = means[1].1.is_some_and(|low| low > 0.0);
        if has_io_hpw(self.groups) && self.has(Priority::High, false) {
            let why = "HPWs without I/O may gain more from devices' ways than devices lose";
            steps.add(Direction::Other, why, Vec::new(), |l| l.hp_clear = !l.hp_clear);
        }
        // HPWs first: steps that take ways from LPWs come before steps that give them any.
        for by in [2, 1].into_iter().filter(|by| best.lp_ways >= self.limits.lp_least() + by) {
            steps
                .add(Direction::LpSmaller, &unknown("HPWs may need the room"), causes(), |l| l.lp_ways -= by);
        }
        let most = self.limits.lp_most(best.dca_ways);
        for by in [2, 1].into_iter().filter(|by| low_misses && best.lp_ways + by <= most) {
            steps.add(Direction::LpLarger, &unknown("LPWs may need the room"), causes(), |l| l.lp_ways += by);
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

#[cfg(test)]
mod tests {
    use super::super::fixture::{interval, server};
    use super::*;
    use waykeeper_host::Reading::Value;
    use waykeeper_host::WorkloadCounter;
    use waykeeper_units::WorkloadId;

    /// A step's direction, its reason and the reason's numbers.
    type Reasoned = (Direction, String, Vec<(String, f64)>);

    /// The steps to another size of the LP zone.
    fn zone_steps(trash: &[u32], llc: &[(f64, f64)]) -> Vec<Reasoned> {
        let server = server(3);
        let mut seen = interval(&[1.0; 3], 1e9);
        for (rates, (hits, misses)) in seen.groups.values_mut().zip(llc) {
            rates[WorkloadCounter::LlcHits] = Value(*hits);
            rates[WorkloadCounter::LlcMisses] = Value(*misses);
        }
        let trash = trash.iter().map(|id| WorkloadId(*id)).collect();
        let best = Layout { open: false, lp_ways: 3, trash, ..server.limits.open() };
        let steps = server.view(&seen).steps(&best).into_iter();
        let zones = steps.filter(|step| matches!(step.direction, Direction::LpSmaller | Direction::LpLarger));
        let causes = |step: &Move| step.causes.iter().map(|own| (own.what.clone(), own.value)).collect();
        let mut all: Vec<_> = zones.map(|step| (step.direction, step.why.clone(), causes(&step))).collect();
        all.dedup();
        all
    }

    #[test]
    fn the_mean_of_no_workload_is_not_available_and_no_number() {
        let number = |kind: &str, value| (format!("mean LLC miss ratio of {kind} in zones"), value);
        // HPW 0 misses 1 of 4 references; LPWs 1 and 2 miss 1 of 2 and all: their mean is 0.75.
        let llc = [(3e6, 1e6), (1e6, 1e6), (0.0, 2e6)];
        let both = vec![number("HPWs", 0.25), number("LPWs", 0.75)];
        let steps = zone_steps(&[], &llc);
        assert_eq!(
            steps,
            [
                (Direction::LpSmaller, "HPWs may need the room".to_owned(), both.clone()),
                (Direction::LpLarger, "LPWs may need the room".to_owned(), both),
            ]
        );
        // Both LPWs in the trash way, or with fewer references than count: no LPW is left for a mean.
        let few = [llc[0], (1.0, 1.0), (0.0, 2.0)];
        for steps in [zone_steps(&[1, 2], &llc), zone_steps(&[], &few)] {
            let why =
                "HPWs may need the room; mean LLC miss ratio of LPWs in zones: not available".to_owned();
            assert_eq!(steps, [(Direction::LpSmaller, why, vec![number("HPWs", 0.25)])]);
        }
    }
}
