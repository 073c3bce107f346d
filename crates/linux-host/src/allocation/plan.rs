//! The steps from one state of resctrl to the desired one: the difference of two values, in an order in which each step
//! is legal.
//!
//! First everything is given up that has no tenant any more: groups, CPUs, processes. Then groups are made and filled.
//! A class gets its mask after the tenants that leave it have left, and a tenant enters a class after that has its
//! mask, so that no tenant has another tenant's mask. Where tenants swap classes both are impossible; then a mask is
//! written first. A process enters a monitoring group through its control group, because the kernel refuses other ways.
//! Must not know tenants, files or errors.

use super::desired::Desired;
use super::state::{AllocationState, AllocationStep, Known};
use super::tasks::TenantProcess;
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_kernel::resctrl::Group;
use waykeeper_units::CoreList;

#[cfg(test)]
mod tests;

/// The steps, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AllocationPlan {
    /// Steps that give up groups, CPUs and processes.
    pub releases: Vec<AllocationStep>,
    /// Steps that make groups and fill them.
    pub fills: Vec<AllocationStep>,
}

impl AllocationPlan {
    pub fn steps(&self) -> impl Iterator<Item = &AllocationStep> {
        self.releases.iter().chain(&self.fills)
    }
}

/// The steps from `state` to `desired`.
pub fn plan(state: &AllocationState, desired: &Desired) -> AllocationPlan {
    let mut planner = Planner { state: state.clone(), desired, steps: Vec::new() };
    planner.remove_groups();
    planner.release_processes();
    planner.release_cpus();
    let releases = std::mem::take(&mut planner.steps);
    planner.fill_default();
    planner.fill_classes();
    planner.fill_monitors();
    AllocationPlan { releases, fills: planner.steps }
}

struct Planner<'a> {
    /// The state after the steps so far.
    state: AllocationState,
    desired: &'a Desired,
    steps: Vec<AllocationStep>,
}

impl Planner<'_> {
    fn step(&mut self, step: AllocationStep) {
        self.state.advance(&step);
        self.steps.push(step);
    }

    /// Monitoring groups first: they end with their control group.
    fn remove_groups(&mut self) {
        let is_extra =
            |(group, known): &(&Group, &Known)| known.is_ours() && !self.desired.groups.contains_key(group);
        let extra: Vec<Group> =
            self.state.groups.iter().filter(is_extra).map(|(group, _)| group.clone()).collect();
        let (monitors, classes): (Vec<Group>, Vec<Group>) = extra.into_iter().partition(Group::is_monitor);
        monitors.into_iter().chain(classes).for_each(|group| self.step(AllocationStep::Remove(group)));
    }

    /// Processes that no tenant has in a group of ours return to the default group.
    fn release_processes(&mut self) {
        let wanted: BTreeSet<&TenantProcess> = self.desired.processes.values().flatten().collect();
        let free: Vec<TenantProcess> =
            self.state.processes.keys().filter(|process| !wanted.contains(process)).copied().collect();
        if !free.is_empty() {
            self.step(AllocationStep::Move(Group::DEFAULT, None, free));
        }
    }

    /// CPUs that none of our control groups should have return to the default group.
    fn release_cpus(&mut self) {
        let wanted = self.wanted_cpus();
        for group in self.classes() {
            let there = self.state.cpus(&group);
            let stay = there.common(&wanted);
            if self.state.has_ours(&group) && stay != there {
                self.step(AllocationStep::Cpus(group, stay));
            }
        }
    }

    /// The CPUs that any of our control groups should have.
    fn wanted_cpus(&self) -> CoreList {
        let classes = self.desired.groups.iter().filter(|(group, _)| !group.is_monitor());
        classes.fold(CoreList::default(), |all, (_, cpus)| all.with(cpus))
    }

    fn fill_default(&mut self) {
        let there = self.state.cpus(&Group::DEFAULT);
        let all = there.with(&self.desired.default);
        if all != there {
            self.step(AllocationStep::Cpus(Group::DEFAULT, all));
        }
        self.move_into(&Group::DEFAULT);
    }

    fn fill_classes(&mut self) {
        for class in self.classes() {
            self.make(&class);
        }
        let mut masks: Vec<Group> = Vec::new();
        for (group, mask) in &self.desired.masks {
            if self.state.groups.get(group).and_then(|known| known.mask) != Some(*mask) {
                masks.push(group.clone());
            }
        }
        let mut entered = self.classes();
        while !(masks.is_empty() && entered.is_empty()) {
            let free = masks.iter().position(|group| self.has_left(group));
            let ready = entered.iter().position(|group| !masks.contains(group));
            match (free, ready) {
                (Some(index), _) => self.mask(&masks.remove(index)),
                (None, Some(index)) => self.enter(&entered.remove(index)),
                (None, None) => self.mask(&masks.remove(0)),
            }
        }
    }

    /// Our control groups that there should be.
    fn classes(&self) -> Vec<Group> {
        self.desired.groups.keys().filter(|group| !group.is_monitor()).cloned().collect()
    }

    fn make(&mut self, group: &Group) {
        if !self.state.groups.get(group).is_some_and(|known| known.is_ours() && known.is_whole) {
            self.step(AllocationStep::Make(group.clone()));
        }
    }

    fn mask(&mut self, group: &Group) {
        if let Some(mask) = self.desired.masks.get(group) {
            self.step(AllocationStep::Mask(group.clone(), *mask));
        }
    }

    /// True if the class has no CPU and no process of a tenant that should be in another group.
    fn has_left(&self, class: &Group) -> bool {
        let wanted = self.desired.groups.get(class).cloned().unwrap_or_default();
        let leaves = |process: &TenantProcess| {
            let place = self.state.place(process);
            let home = self.home(process);
            place.is_some_and(|place| place.parent() == *class)
                && home.is_some_and(|home| home.parent() != *class)
        };
        self.state.cpus(class).without(&wanted).is_empty() && !self.state.processes.keys().any(leaves)
    }

    /// The group that a process should be in, if it is one of ours.
    fn home(&self, process: &TenantProcess) -> Option<&Group> {
        let mut all = self.desired.processes.iter();
        all.find(|(_, processes)| processes.contains(process)).map(|((group, _), _)| group)
    }

    /// Moves the class's CPUs and processes into it. A CPU of another class stays until that one takes it, so that it
    /// never has the default group's mask.
    fn enter(&mut self, class: &Group) {
        let Some(cpus) = self.desired.groups.get(class) else { return };
        let leaving = self.state.cpus(class).common(&self.wanted_cpus());
        self.set_cpus(class, cpus.with(&leaving));
        self.move_into(class);
    }

    /// Moves processes into a control group, also those that one of its monitoring groups is to have.
    fn move_into(&mut self, class: &Group) {
        let desired = self.desired;
        for ((group, tenant), processes) in &desired.processes {
            if group.parent() != *class {
                continue;
            }
            let is_out = |process: &&TenantProcess| match self.state.place(process) {
                Some(place) if group.is_monitor() => place.parent() != *class,
                place => place.as_ref() != Some(class),
            };
            let come: Vec<TenantProcess> = processes.iter().filter(is_out).copied().collect();
            if !come.is_empty() {
                self.step(AllocationStep::Move(class.clone(), Some(*tenant), come));
            }
        }
    }

    fn set_cpus(&mut self, group: &Group, cpus: CoreList) {
        let there = self.state.groups.get(group).and_then(|known| known.cpus.as_ref());
        if there != Some(&cpus) {
            self.step(AllocationStep::Cpus(group.clone(), cpus));
        }
    }

    fn fill_monitors(&mut self) {
        let desired = self.desired;
        let mut inside: BTreeMap<&Group, Vec<_>> = BTreeMap::new();
        for ((group, tenant), processes) in &self.desired.processes {
            inside.entry(group).or_default().push((*tenant, processes));
        }
        for (group, cpus) in desired.groups.iter().filter(|(group, _)| group.is_monitor()) {
            self.make(group);
            self.set_cpus(group, cpus.clone());
            for (tenant, processes) in inside.remove(group).unwrap_or_default() {
                let is_out = |process: &&TenantProcess| self.state.place(process).as_ref() != Some(group);
                let come: Vec<TenantProcess> = processes.iter().filter(is_out).copied().collect();
                if !come.is_empty() {
                    self.step(AllocationStep::Move(group.clone(), Some(tenant), come));
                }
            }
        }
    }
}
