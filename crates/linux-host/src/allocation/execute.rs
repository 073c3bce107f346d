//! Carries out plans: journals a group before it makes it, takes the steps in order, and records what each achieved.
//!
//! A failed step ends the plan. In the same pass it is not tried again, so that the other tenants' steps follow; in the
//! next pass the groups still differ, and the plan has it again. Must not know which groups are wanted, nor why.

use super::desired::{CpuDecision, Occupant, Wishes, desired};
use super::placement::Slot;
use super::plan::plan;
use super::retries::permits;
use super::state::{AllocationStep, Known, Maker};
use super::tasks::Moved;
use super::{Allocation, GroupsError, Held, ResctrlLock};
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_kernel::journal::{Journal, Original};
use waykeeper_kernel::resctrl::{
    Action, DomainSetting, Group, ResctrlError, ResctrlErrorKind, Resource, ResourceSettings,
};
use waykeeper_kernel::restore::remove_group;
use waykeeper_units::{CoreList, WayMask, WorkloadId};

/// The changes of one step of the host, under resctrl's lock.
#[derive(Debug)]
pub struct Pass<'a> {
    pub(super) journal: &'a mut Journal,
    /// Held to the end: another tool that takes a tenant's CPU after our check would lose it to us.
    _lock: ResctrlLock,
    /// resctrl was read in this pass.
    pub(super) is_observed: bool,
    /// Masks to write.
    pub(super) masks: BTreeMap<Group, WayMask>,
    /// Groups that stay although they have no tenant: others are about to enter.
    pub(super) kept: BTreeSet<Group>,
    /// Groups in which external changes are corrected.
    pub(super) corrected: BTreeSet<Group>,
    /// Groups that must not be made in this pass.
    pub(super) barred: BTreeSet<Group>,
    /// Steps that failed in this pass, or in an earlier one and are not due again.
    pub(super) failed: Vec<AllocationStep>,
}

/// A step that failed, and why. No step: what precedes the plan failed.
pub(super) type Failure = (Option<AllocationStep>, GroupsError);

impl Allocation {
    /// Begins a pass under a lock. A class whose group is gone is made again only by a correction.
    pub fn begin<'a>(&self, lock: ResctrlLock, journal: &'a mut Journal) -> Pass<'a> {
        let gone = self.classes.values().filter(|class| !self.state.has_ours(&class.group));
        Pass {
            journal,
            _lock: lock,
            is_observed: false,
            masks: BTreeMap::new(),
            kept: BTreeSet::new(),
            corrected: BTreeSet::new(),
            barred: gone.map(|class| class.group.clone()).collect(),
            failed: self.failed_steps.waiting(self.round),
        }
    }

    /// What the tenants' places ask for.
    fn wishes(&self, corrected: &BTreeSet<Group>) -> Wishes {
        let mut wishes = Wishes::default();
        for (id, member) in self.members.iter().filter(|(_, member)| member.left.is_none()) {
            let Some(class) = self.group_of(self.placement.slot(*id)) else { continue };
            let unwatched = member.unwatched.as_ref();
            let is_watched = self.chip.counts_occupancy && unwatched.is_none_or(|own| own.is_due(self.round));
            wishes.occupants.push(Occupant {
                id: *id,
                // The kernel refuses a list with an offline CPU.
                cpus: member.tenant.cores.without(self.presence.offline()),
                processes: member.processes.clone(),
                class: class.clone(),
                monitor: self.monitor_of(*id).filter(|_| is_watched),
            });
        }
        let classes = self.classes.values().map(|class| &class.group);
        for group in classes.chain(std::iter::once(&Group::DEFAULT)) {
            let (lost, added) = self.left_alone(group);
            let decision = CpuDecision { corrects: corrected.contains(group), lost, added };
            wishes.decisions.insert(group.clone(), decision);
        }
        wishes
    }

    /// True if resctrl is as it should be, as far as is known, or if nothing may be changed now: the host is observed, or
    /// the steps that are left failed and are not due again. Reads nothing.
    pub fn is_settled(&mut self) -> bool {
        if self.only_observes() {
            return true;
        }
        if self.has_to_rewrite() {
            return false;
        }
        let corrected = self.wrong().into_keys().collect();
        let plan = plan(&self.state, &desired(&self.wishes(&corrected), &self.state));
        self.failed_steps.keep_planned(&plan);
        let waiting = self.failed_steps.waiting(self.round);
        !plan.steps().any(|step| permits(&waiting, step))
    }

    /// Plans and carries out what differs from the desired groups, up to the first step that fails.
    pub(super) fn settle(&mut self, pass: &mut Pass) -> Result<(), Failure> {
        loop {
            let mut wishes = self.wishes(&pass.corrected);
            (wishes.masks, wishes.kept) = (pass.masks.clone(), pass.kept.clone());
            let mut plan = plan(&self.state, &desired(&wishes, &self.state));
            plan.releases.retain(|step| self.permits(pass, step));
            plan.fills.retain(|step| self.permits(pass, step));
            let only_masks = plan.steps().all(|step| matches!(step, AllocationStep::Mask(..)));
            if !only_masks && !pass.is_observed {
                self.observe(pass).map_err(|why| (None, why))?;
                continue;
            }
            self.take_steps(&plan.releases, pass)?;
            if pass.is_observed {
                self.keep_others_monitors(pass.journal).map_err(|why| (None, why))?;
            }
            match self.take_steps(&plan.fills, pass) {
                Err((Some(step), GroupsError::Resctrl(why)))
                    if self.gives_up_watching(&step, &why, &plan) => {}
                Ok(()) => {
                    self.watches_again();
                    return Ok(());
                }
                failed => return failed,
            }
        }
    }

    /// The same for what an earlier failure left. A failed step does not keep others from being tried.
    pub(super) fn tidy(&mut self, pass: &mut Pass) {
        while let Err((step, why)) = self.settle(pass) {
            match step {
                Some(step) => self.note_failure(&step, &why),
                None => return self.notes.push(why.to_string()),
            }
        }
        if pass.failed.is_empty() {
            self.noted.clear();
        }
    }

    fn take_steps(&mut self, steps: &[AllocationStep], pass: &mut Pass) -> Result<(), Failure> {
        for step in steps {
            match self.take_step(step, pass.journal) {
                Ok(Moved { ended, elsewhere }) => {
                    self.state.advance(step);
                    self.state.processes.retain(|process, _| !ended.contains(process));
                    if let (AllocationStep::Move(group, Some(tenant), _), false) =
                        (step, elsewhere.is_empty())
                    {
                        // They are not placed: they are moved once their threads are in no other program's group.
                        self.state.processes.extend(elsewhere.iter().map(|process| (*process, None)));
                        let rest = AllocationStep::Move(group.clone(), Some(*tenant), elsewhere);
                        self.failed_steps.note(&rest, self.round);
                        pass.failed.push(rest);
                    }
                }
                Err(why) => {
                    self.doubt(step);
                    pass.failed.push(step.clone());
                    return Err((Some(step.clone()), why));
                }
            }
        }
        Ok(())
    }

    /// After a failed step what it writes is unknown.
    fn doubt(&mut self, step: &AllocationStep) {
        let known = self.state.groups.get_mut(step.group());
        match (step, known) {
            (AllocationStep::Cpus(group, _), Some(known)) if !group.is_default() => known.cpus = None,
            (AllocationStep::Mask(..), Some(known)) => known.mask = None,
            (AllocationStep::Remove(_) | AllocationStep::Make(_), Some(known)) => known.is_whole = false,
            (AllocationStep::Move(_, _, processes), _) => {
                self.state.processes.extend(processes.iter().map(|process| (*process, None)));
            }
            _ => {}
        }
    }

    /// Returns the processes that turned out to have ended or to be elsewhere.
    fn take_step(&mut self, step: &AllocationStep, journal: &mut Journal) -> Result<Moved, GroupsError> {
        // The steps name groups by their paths, and another program may have made a group at this path since.
        if !matches!(step, AllocationStep::Make(_)) && self.was_replaced(step.group()) {
            return Err(GroupsError::Gone(step.group().clone()));
        }
        match step {
            AllocationStep::Remove(group) => self.remove(group, journal)?,
            AllocationStep::Make(group) => self.make(group, journal)?,
            AllocationStep::Mask(group, mask) => self.write_mask(group, *mask)?,
            AllocationStep::Cpus(group, cpus) => self.write_cpus(group, cpus, journal)?,
            AllocationStep::Move(group, tenant, processes) => return self.assign(*tenant, processes, group),
        }
        Ok(Moved::default())
    }

    fn remove(&mut self, group: &Group, journal: &mut Journal) -> Result<(), GroupsError> {
        let shows = self.shown(group);
        // Other programs' monitoring groups in it move to the default group, with all bytes counted so far.
        if self.resctrl.others_monitors(group).is_ok_and(|others| !others.is_empty()) {
            self.traffic.starts_anew();
        }
        let removed = remove_group(&self.resctrl, group, journal);
        match group.is_monitor() {
            true if removed.is_ok() => self.traffic.shrinks(&group.parent(), shows),
            true => self.traffic.starts_anew(),
            // Its traffic is no longer counted, whether or not it could be removed.
            false => self.traffic.ends(group, shows),
        }
        self.held.remove(group);
        match removed {
            // The error alone does not prove that the group is gone; the journal must keep a group that exists.
            Err(error) if self.resctrl.has(group) || !error.is_gone() => return Err(error.into()),
            _ => self.forget(group, journal),
        }
        Ok(())
    }

    /// Drops one of our groups from the journal.
    pub(super) fn forget(&mut self, group: &Group, journal: &mut Journal) {
        self.forget_rewritten(group);
        if let Err(why) = journal.forget(&Original::NoGroup { group: group.clone() }) {
            // The entry stays; it says that the group did not exist, which is true.
            self.notes.push(why.to_string());
        }
    }

    /// Makes a group and opens its files. A control group gets the default group's schemata, so that a tenant that moves
    /// in has the same shares as before.
    fn make(&mut self, group: &Group, journal: &mut Journal) -> Result<(), GroupsError> {
        if !self.state.has_ours(group) {
            self.create(group, journal)?;
        }
        if !group.is_monitor() {
            let default = self.resctrl.schemata(&Group::DEFAULT)?;
            let fresh = self.resctrl.schemata(group)?;
            let other = |line: &&ResourceSettings| !fresh.differing(line).is_empty();
            let lines: Vec<ResourceSettings> = default.lines.iter().filter(other).cloned().collect();
            if !lines.is_empty() {
                self.resctrl.set_schemata(group, &lines)?;
            }
            self.traffic.begins(group, self.shown(group));
        }
        let held = self.hold_group(group)?;
        self.held.insert(group.clone(), held);
        Ok(())
    }

    /// Opens a group's files that are read at every interval.
    pub(super) fn hold_group(&self, group: &Group) -> Result<Held, GroupsError> {
        let mut held = Held { occupancy: self.hold_occupancy(group)?, ..Held::default() };
        if !group.is_monitor() {
            held.schemata = Some(self.resctrl.hold_schemata(group)?);
            held.cpus = Some(self.resctrl.hold_cpus(group)?);
            held.traffic = self.hold_traffic(group)?;
            held.shares = self.shares_in(self.resctrl.schemata(group)?);
        }
        Ok(held)
    }

    /// Makes the directory. Until it exists the journal has it as planned only: if another program makes a group of that
    /// name first, it is that program's.
    fn create(&mut self, group: &Group, journal: &mut Journal) -> Result<(), GroupsError> {
        let planned = Original::Planned { group: group.clone() };
        journal.record(std::slice::from_ref(&planned))?;
        if let Err(error) = self.resctrl.create(group) {
            // The group may exist despite the error; then the journal must keep the entry.
            if error.kind == ResctrlErrorKind::Exists || !self.resctrl.has(group) {
                journal.forget(&planned)?;
            }
            return Err(error.into());
        }
        let identity = self.resctrl.identity(group);
        if let Err(why) = journal.replace(&Original::NoGroup { group: group.clone() }) {
            // It is empty. If the removal fails, a later restore removes it.
            let _ = self.resctrl.remove(group);
            return Err(why.into());
        }
        let made = Known::read(Maker::Waykeeper(identity), CoreList::default());
        self.state.groups.insert(group.clone(), Known { is_whole: false, ..made });
        Ok(())
    }

    /// Writes a mask, in both halves with CDP, and reads it back.
    pub(super) fn write_mask(&mut self, group: &Group, mask: WayMask) -> Result<(), GroupsError> {
        let setting = |resource: &Resource| {
            ResourceSettings::new(resource.clone(), vec![(self.chip.domain, DomainSetting::Mask(mask))])
        };
        let lines: Vec<ResourceSettings> = self.chip.resources.iter().map(setting).collect();
        let found = self.resctrl.set_schemata(group, &lines).map_err(|error| match error.action {
            // The write succeeded, but the value now in force could not be read.
            Action::Read if !error.is_gone() => GroupsError::ReadsBack(error.to_string()),
            _ => error.into(),
        })?;
        match self.mask_in(&found, Some(mask)) {
            Ok(now) if now == mask => {
                self.mask_is_written(group, mask);
                Ok(())
            }
            Ok(now) => Err(GroupsError::ReadsBack(now.to_string())),
            Err(why) => Err(GroupsError::ReadsBack(why)),
        }
    }

    /// Before closing: groups that another program removed and made again under our names are that program's, so the
    /// journal drops them.
    pub fn forget_replaced(&mut self, journal: &mut Journal) {
        let others = self.state.groups.keys().filter(|group| self.was_replaced(group));
        let others: Vec<Group> = others.cloned().collect();
        others.iter().for_each(|group| self.forget(group, journal));
    }

    /// Whether another program removed our group and made one with the same name. If the identity of ours could not be
    /// read when it was made, the name decides.
    pub(super) fn was_replaced(&self, group: &Group) -> bool {
        match self.state.groups.get(group).map(|known| known.maker) {
            Some(Maker::Waykeeper(Some(made))) => self.resctrl.identity(group).is_some_and(|now| now != made),
            _ => false,
        }
    }

    /// The name of a new class for a tenant: the tenant's name, with a number if an earlier group of that name still
    /// has other tenants.
    pub(super) fn name_for(&self, tenant: WorkloadId) -> Result<Group, ResctrlError> {
        self.free_name(self.name(tenant))
    }

    /// A name that no class of ours has: this one, or with a number.
    pub(super) fn free_name(&self, name: &str) -> Result<Group, ResctrlError> {
        let taken = |group: &Group| self.classes.values().any(|class| class.group == *group);
        let mut group = self.resctrl.own(name)?;
        for number in 2.. {
            if !taken(&group) {
                break;
            }
            group = self.resctrl.own(&format!("{name}.{number}"))?;
        }
        Ok(group)
    }

    /// Records a tenant in another slot. There it may be monitored again.
    pub(super) fn place(&mut self, tenant: WorkloadId, slot: Slot) {
        if let Some(class) = self.classes.values_mut().find(|class| class.leader == Some(tenant)) {
            class.leader = None;
        }
        self.placement.arrive(tenant, slot);
        if let Some(member) = self.members.get_mut(&tenant) {
            member.unwatched = None;
        }
    }

    /// The same back to a class whose RMID the tenant may have had.
    pub(super) fn place_back(&mut self, tenant: WorkloadId, slot: Slot, leads: bool) {
        self.place(tenant, slot);
        if let (Slot::Class(class), true) = (slot, leads)
            && let Some(class) = self.classes.get_mut(&class)
        {
            class.leader = Some(tenant);
        }
    }

    /// Forgets the names of classes without tenants.
    pub(super) fn drop_empty_classes(&mut self) {
        let used = self.placement.in_use();
        self.classes.retain(|class, _| used.contains(class));
    }
}
