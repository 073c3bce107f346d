//! The search for good layouts: known shapes first, then changes of the best ones, more events for fewer of them. It must
//! not know how progress is predicted.

use crate::foresight::Foresight;
use crate::layout::Layout;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeSet;
use waykeeper_calibration::{Candidate, GoalScore, LayoutQuestion, TenantProgress};
use waykeeper_host::{DeviceKind, Priority, Workload};
use waykeeper_units::WayMask;

/// Layouts that were tried, the best first.
pub(crate) struct Search<'a> {
    question: &'a LayoutQuestion,
    foresight: &'a Foresight<'a>,
    rng: Xoshiro256PlusPlus,
    seen: BTreeSet<Layout>,
    tried: Vec<Tried>,
    simulated: u64,
}

#[derive(Clone)]
struct Tried {
    layout: Layout,
    score: f64,
    /// Line events of its longest run.
    events: u64,
}

/// Layouts that are changed in each round, and changes of each.
const KEPT: usize = 8;
const CHANGES: usize = 4;
/// Rounds after which the best ones are run again, longer.
const AGAIN: usize = 3;
/// What falling below a floor costs, per unit: more than any gain.
const BELOW: f64 = 20.0;
/// Standard errors by which a prediction of HPWs is lowered. Assumption.
const DOUBT: f64 = 0.5;
/// The same of LPWs: what is measured below their floor is dropped, so that nothing was won. Assumption; 0 and 1 were tried
/// on ten mixes.
const LPW_DOUBT: f64 = 1.0;
/// What a restriction costs that brings nothing: among equals the most open layout is taken.
const OPEN: f64 = 1e-4;

/// How well a candidate serves a question's goal: the logarithm of progress, less what falls below the floors.
pub(crate) fn score(candidate: &Candidate, question: &LayoutQuestion) -> f64 {
    let tenants = question.server.tenants.iter().filter_map(|tenant| {
        let Workload { id, priority, kind, .. } = tenant.workload;
        let progress = candidate.tenants.get(&id)?;
        // Of many predictions the best is likely to be too good, and the more so the larger their errors are.
        let doubt = if priority == Priority::High { DOUBT } else { LPW_DOUBT };
        let ratio =
            (progress.value - doubt * progress.error) * question.since_found.get(&id).copied().unwrap_or(1.0);
        Some(TenantProgress { priority, kind, cores: tenant.workload.cores.len(), ratio })
    });
    let GoalScore { value, shortfall } = question.goal.score(tenants);
    value - BELOW * shortfall
}

impl<'a> Search<'a> {
    /// A search that has tried nothing.
    pub fn new(question: &'a LayoutQuestion, foresight: &'a Foresight<'a>) -> Search<'a> {
        let rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
        Search { question, foresight, rng, seen: BTreeSet::new(), tried: Vec::new(), simulated: 0 }
    }

    /// Layouts that were simulated.
    pub fn simulated(&self) -> u64 {
        self.simulated
    }

    /// Tries layouts until so many line events are spent, the first ones with `events` each.
    pub fn go(&mut self, budget: u64, events: u64) {
        let mut left = budget;
        let mut next = self.first();
        let mut round = 0;
        let mut length = events;
        while left > length {
            for layout in std::mem::take(&mut next) {
                if left < length {
                    break;
                }
                left = left.saturating_sub(self.attempt(layout, length));
            }
            round += 1;
            self.tried.sort_by(|a, b| b.score.total_cmp(&a.score));
            if round % AGAIN == 0 {
                length = (length * 3 / 2).min(4 * events);
                left = left.saturating_sub(self.again(length));
            }
            let before = self.seen.len();
            next = self.changed();
            if next.is_empty() && self.seen.len() == before {
                break;
            }
        }
        left = left.saturating_sub(self.again(2 * length));
        let _ = left;
    }

    /// The best layouts that were tried.
    pub fn best(&self, most: usize) -> Vec<Layout> {
        self.tried.iter().take(most).map(|tried| tried.layout.clone()).collect()
    }

    fn attempt(&mut self, layout: Layout, events: u64) -> u64 {
        let (score, spent) = self.judge(&layout, events);
        self.tried.push(Tried { layout, score, events });
        spent
    }

    fn judge(&mut self, layout: &Layout, events: u64) -> (f64, u64) {
        self.simulated += 1;
        let (candidate, spent) = self.foresight.of(layout, &self.question.limits, events);
        let closed: u32 = layout.masks.iter().map(|mask| layout.ways - mask.count()).sum();
        let off = layout.dca.values().filter(|on| !**on).count() as f64;
        let server = &self.question.server;
        let other_ways = layout.dca_ways != Layout::of(&server.knobs, server).dca_ways;
        let turned = off + f64::from(u8::from(other_ways));
        let open = OPEN * (f64::from(closed) / f64::from(layout.ways) + turned);
        (score(&candidate, self.question) - open, spent)
    }

    /// Runs the best layouts again, longer, and sorts them anew.
    fn again(&mut self, events: u64) -> u64 {
        let mut spent = 0;
        for index in 0..self.tried.len().min(KEPT) {
            if self.tried[index].events < events {
                let layout = self.tried[index].layout.clone();
                let (score, cost) = self.judge(&layout, events);
                self.tried[index] = Tried { layout, score, events };
                spent += cost;
            }
        }
        self.tried.sort_by(|a, b| b.score.total_cmp(&a.score));
        spent
    }

    /// Known shapes: the layout in force, those asked for, the open LLC, and zones as A4 has them.
    fn first(&mut self) -> Vec<Layout> {
        let server = &self.question.server;
        let now = Layout::of(&server.knobs, server);
        let full = WayMask::full(now.ways);
        let open = Layout { masks: vec![full; now.masks.len()], ..now.clone() };
        let mut shapes = vec![now.clone(), open.clone()];
        shapes.extend(
            self.question.asked.iter().map(|plan| Layout::after(plan, server, &self.question.limits)),
        );
        let switches = &self.question.limits.switches;
        let storage: Vec<_> = server
            .devices
            .iter()
            .filter(|device| device.kind == DeviceKind::Storage)
            .flat_map(|device| device.ports.iter().map(|port| port.id))
            .filter(|port| switches.contains(port))
            .collect();
        let priority = |index: usize| server.tenants[index].workload.priority;
        let does_io = |index: usize| !server.tenants[index].workload.devices.is_empty();
        let dca = now.dca_ways.map_or(0, WayMask::count);
        for low_ways in [1, 2, 3, 4, 6] {
            for (outside, off) in [(false, false), (true, false), (false, true), (true, true)] {
                if low_ways + dca >= now.ways {
                    continue;
                }
                // LPWs on the right of the DCA ways, HPWs outside of the LPWs' ways, with or without the DCA ways; HPWs with
                // devices always have these.
                let low = WayMask::span(0, low_ways);
                let high = WayMask::span(low_ways, now.ways - low_ways - if outside { dca } else { 0 });
                let masks = (0..now.masks.len()).map(|index| match priority(index) {
                    Priority::Low => low,
                    Priority::High if does_io(index) => full.minus(low),
                    Priority::High => high,
                });
                let mut shape = Layout { masks: masks.collect(), ..now.clone() };
                if off {
                    shape.dca.extend(storage.iter().map(|port| (*port, false)));
                }
                shapes.push(shape);
            }
        }
        if !storage.is_empty() {
            let mut shape = open;
            shape.dca.extend(storage.iter().map(|port| (*port, false)));
            shapes.push(shape);
        }
        let shapes = shapes.into_iter().map(|shape| self.with_kept(shape)).collect::<Vec<_>>();
        shapes.into_iter().filter(|shape| self.is_new(shape)).collect()
    }

    fn is_new(&mut self, layout: &Layout) -> bool {
        layout.is_possible(&self.question.limits) && self.seen.insert(layout.clone())
    }

    /// The layout with the masks in force of the tenants whose mask must stay.
    fn with_kept(&self, mut layout: Layout) -> Layout {
        let server = &self.question.server;
        let now = Layout::of(&server.knobs, server);
        for (index, tenant) in server.tenants.iter().enumerate() {
            if self.question.kept.contains(&tenant.workload.id) {
                layout.masks[index] = now.masks[index];
            }
        }
        layout
    }

    /// Changes of the best layouts that were not tried yet.
    fn changed(&mut self) -> Vec<Layout> {
        let kept: Vec<Layout> = self.best(KEPT);
        let mut found = Vec::new();
        for layout in &kept {
            for _ in 0..CHANGES {
                let mut tried = layout.clone();
                for _ in 0..=self.below(2) {
                    self.change(&mut tried);
                }
                let tried = self.with_kept(tried);
                if self.is_new(&tried) {
                    found.push(tried);
                }
            }
        }
        found
    }

    /// One random change.
    fn change(&mut self, layout: &mut Layout) {
        let limits = &self.question.limits;
        let (switches, dca_ways) = (limits.switches.clone(), limits.dca_ways.clone());
        let choice = self.below(12);
        if choice == 0 && !switches.is_empty() {
            let port = switches[self.below(switches.len())];
            let on = layout.dca.get(&port).copied().unwrap_or(true);
            layout.dca.insert(port, !on);
            return;
        }
        if choice == 1 && !dca_ways.is_empty() {
            // Few more ways than at power-on: the wider ones leave little to programs.
            layout.dca_ways = Some(dca_ways[self.below(dca_ways.len().min(5))]);
            return;
        }
        let Some(members) = self.members(layout, choice) else { return };
        let first = layout.masks[members[0]];
        let mask = self.moved(first, layout.ways);
        for index in members {
            layout.masks[index] = mask;
        }
    }

    /// The tenants whose mask changes: one of them, those with the same mask, or those of a priority.
    fn members(&mut self, layout: &Layout, choice: usize) -> Option<Vec<usize>> {
        let count = layout.masks.len();
        if count == 0 {
            return None;
        }
        let one = self.below(count);
        let tenants = &self.question.server.tenants;
        let same = |index: &usize| match choice % 3 {
            0 => *index == one,
            1 => layout.masks[*index] == layout.masks[one],
            _ => {
                layout.masks[*index] == layout.masks[one]
                    && tenants[*index].workload.priority == tenants[one].workload.priority
            }
        };
        let members: Vec<usize> = (0..count).filter(same).collect();
        (!members.is_empty()).then_some(members)
    }

    /// A mask with one end moved by a few ways, or any run of ways.
    fn moved(&mut self, mask: WayMask, ways: u32) -> WayMask {
        let least = self.question.limits.min_ways;
        let (low, high) = (mask.lowest().unwrap_or(0) as usize, mask.highest().unwrap_or(ways - 1) as usize);
        let most = ways as usize - 1;
        let by = 1 + self.below(2);
        let (low, high) = match self.below(6) {
            0 => (low.saturating_sub(by), high),
            1 => ((low + by).min(high), high),
            2 => (low, (high + by).min(most)),
            3 => (low, high.saturating_sub(by).max(low)),
            _ => {
                let (a, b) = (self.below(ways as usize), self.below(ways as usize));
                (a.min(b), a.max(b))
            }
        };
        let count = (high - low + 1).max(least as usize).min(ways as usize);
        let low = low.min(ways as usize - count);
        WayMask::span(low as u32, count as u32)
    }

    fn below(&mut self, n: usize) -> usize {
        (((self.rng.next_u64() >> 32) as usize) * n) >> 32
    }
}

/// Seed of the search's random changes.
const SEED: u64 = 0x5ea2_c401;
