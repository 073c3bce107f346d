//! Tenants that are added, removed and changed: each gets or gives up its place; no other tenant moves.
//!
//! A change of a tenant is a change of the record, and the plan that follows from it. If a step of the plan fails, the
//! record is as before, and the next plan undoes what was done. Must not know how tenants are found.

use super::execute::Failure;
use super::placement::Slot;
use super::state::AllocationStep;
use super::tasks::TenantProcess;
use super::{Allocation, Class, GroupsError, Member, Pass, RanOut};
use crate::backoff::Backoff;
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_host::Priority;
use waykeeper_kernel::resctrl::{Action, Group, ResctrlError, ResctrlErrorKind};
use waykeeper_tenants::Tenant;
use waykeeper_units::{WayMask, WorkloadId};

/// After this many counts of the classes we try again whether more are free. Assumption: this is rare enough to
/// cost nothing, and other tools release classes now and then.
const ROUNDS: u32 = 16;

/// The changes of tenants in one step.
#[derive(Debug, Default)]
pub struct TenantChanges {
    /// Tenants to remove.
    pub removed: Vec<WorkloadId>,
    /// Present tenants with a new description.
    pub changed: Vec<(WorkloadId, Tenant)>,
    /// Tenants to add, in the order in which they get free classes.
    pub added: Vec<(WorkloadId, Tenant)>,
}

impl TenantChanges {
    pub fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.changed.is_empty() && self.added.is_empty()
    }
}

/// The refused tenants. A refused new tenant is not added; a refused change has given up what it no longer lists and
/// got nothing new.
pub type Refused = BTreeMap<WorkloadId, GroupsError>;

impl Allocation {
    /// Makes the changes without any step: the host is only observed.
    pub fn record_changes(&mut self, changes: &TenantChanges) {
        for id in &changes.removed {
            if let Some(member) = self.members.remove(id) {
                self.reported.remove(&member.tenant.name);
            }
        }
        for (id, tenant) in changes.changed.iter().chain(&changes.added) {
            let member = self.member(tenant);
            self.members.insert(*id, member);
        }
    }

    /// Removes, changes and adds tenants, in this order. Tenants that wait for a class get one before new tenants do. At the
    /// first call tenants of the daemon before are placed where they are.
    /// Corrects external changes, and tries again what failed before.
    ///
    /// # Errors
    /// If resctrl cannot be read. Then tenants are as they are recorded, and none was added.
    pub fn change_tenants(
        &mut self,
        changes: &TenantChanges,
        refused: &mut Refused,
        pass: &mut Pass,
    ) -> Result<(), GroupsError> {
        self.observe(pass)?;
        self.place_handed_over(changes, pass);
        self.correct(pass);
        self.tidy(pass);
        for id in &changes.removed {
            self.leave(*id, pass);
        }
        for (id, tenant) in &changes.changed {
            if let Err(why) = self.shrink(*id, tenant, pass) {
                refused.insert(*id, why);
            }
        }
        // Another program may have taken a class or a CPU meanwhile.
        self.observe(pass)?;
        let control = self.state.groups.keys().filter(|group| !group.is_default() && !group.is_monitor());
        let own = |group: &&Group| self.classes.values().any(|class| class.group == **group);
        self.limit_classes(control.filter(|group| !own(group)).cloned().collect());
        for (id, tenant) in &changes.changed {
            if !refused.contains_key(id)
                && let Err(why) = self.grow(*id, tenant, pass)
            {
                refused.insert(*id, why);
            }
        }
        self.promote(pass);
        for (id, tenant) in &changes.added {
            if !self.members.contains_key(id)
                && let Err(why) = self.arrive(*id, tenant, pass)
            {
                refused.insert(*id, why);
            }
        }
        // From now on a CPU of theirs that is away for a moment is noticed.
        self.look_at_cpus();
        Ok(())
    }

    pub(super) fn member(&mut self, tenant: &Tenant) -> Member {
        let mut processes = Vec::new();
        for pid in &tenant.pids {
            match TenantProcess::find(&self.root, *pid) {
                Ok(process) => processes.push(process),
                // Where tenants are managed it is added once it can be looked at.
                Err(why) => self.note_once(
                    format!("process {pid}"),
                    format!("process {pid} of tenant {} is left out: {why}", tenant.name),
                ),
            }
        }
        Member { processes, tenant: tenant.clone(), missing: BTreeSet::new(), unwatched: None, left: None }
    }

    /// Adds a tenant, in a class of its own if one is free.
    fn arrive(&mut self, id: WorkloadId, tenant: &Tenant, pass: &mut Pass) -> Result<(), GroupsError> {
        let member = self.member(tenant);
        self.members.insert(id, member);
        let mut placed = self.check_not_foreign(&[id]);
        if placed.is_ok() {
            placed = match self.placement.free().map(|class| self.found(id, class, pass)) {
                Some(Err(GroupsError::Resctrl(error))) if is_out_of_classes(&error) => {
                    self.placement.leave(id);
                    self.out_of_classes(&error);
                    self.enter_default(id, pass)
                }
                Some(placed) => placed,
                None => self.enter_default(id, pass),
            };
        }
        if placed.is_err() {
            self.remove_member(id);
            self.tidy(pass);
        }
        placed
    }

    fn enter_default(&mut self, id: WorkloadId, pass: &mut Pass) -> Result<(), GroupsError> {
        self.place(id, Slot::Default);
        self.settle(pass).map_err(|(_, why)| why)
    }

    /// Makes a class for a tenant and moves it in. Being alone, the tenant has the class's own RMID.
    fn found(&mut self, id: WorkloadId, class: usize, pass: &mut Pass) -> Result<(), GroupsError> {
        let group = self.name_for(id)?;
        self.place(id, Slot::Class(class));
        self.classes.insert(class, Class { group, leader: Some(id) });
        self.settle(pass).map_err(|(_, why)| why)
    }

    fn out_of_classes(&mut self, error: &ResctrlError) {
        self.drop_empty_classes();
        let had = self.placement.in_use().len();
        let beside = self.chip.closids.saturating_sub(self.placement.limit());
        self.note_once("classes".to_owned(), error.to_string());
        let rmid_holders = self.rmid_holders();
        self.ran_out = Some(RanOut { had, beside, rounds: ROUNDS, why: error.to_string(), rmid_holders });
        self.placement.set_limit(had);
    }

    fn remove_member(&mut self, id: WorkloadId) -> Option<Member> {
        self.place(id, Slot::Default);
        self.placement.leave(id);
        self.drop_empty_classes();
        self.members.remove(&id)
    }

    /// Removes a tenant: its groups are removed, which returns its CPUs and tasks to the default group.
    fn leave(&mut self, id: WorkloadId, pass: &mut Pass) {
        let Some(member) = self.remove_member(id) else { return };
        while let Err((step, why)) = self.settle(pass) {
            if !matches!(step, Some(AllocationStep::Remove(_))) {
                let name = &member.tenant.name;
                let note = format!("the CPUs and tasks of tenant {name} could not be moved back: {why}");
                self.note_once(format!("end of {name}"), note);
            }
            match step {
                Some(step) => self.note_failure(&step, &why),
                None => return,
            }
        }
    }

    /// Takes from a tenant the CPUs and processes that it no longer has.
    fn shrink(&mut self, id: WorkloadId, tenant: &Tenant, pass: &mut Pass) -> Result<(), GroupsError> {
        let (_, gone) = self.look_at(id, &tenant.pids);
        let Some(member) = self.members.get_mut(&id) else { return Ok(()) };
        member.tenant = common_part(&member.tenant, tenant);
        member.processes.retain(|process| !gone.contains(process));
        let result = self.settle(pass).map_err(|(_, why)| why);
        if result.is_err() {
            self.tidy(pass);
        }
        result
    }

    /// Gives a tenant its new CPUs and processes.
    fn grow(&mut self, id: WorkloadId, tenant: &Tenant, pass: &mut Pass) -> Result<(), GroupsError> {
        let (come, _) = self.look_at(id, &tenant.pids);
        let Some(member) = self.members.get_mut(&id) else { return Ok(()) };
        let before = std::mem::replace(&mut member.tenant, tenant.clone());
        let grows = !tenant.cores.without(&before.cores).is_empty() || !come.is_empty();
        let missing = member.missing.clone();
        member.missing.retain(|pid| !come.iter().any(|process| process.pid == *pid));
        member.processes.extend(&come);
        if member.left.is_some() || !grows {
            return Ok(());
        }
        let grown = self.check_not_gone(self.placement.slot(id), pass);
        let grown = grown.and_then(|()| self.check_not_foreign(&[id]));
        let grown = grown.and_then(|()| self.settle(pass).map_err(|(_, why)| why));
        if let (Err(_), Some(member)) = (&grown, self.members.get_mut(&id)) {
            member.processes.retain(|process| !come.contains(process));
            (member.tenant, member.missing) = (before, missing);
            self.tidy(pass);
        }
        grown
    }

    /// Gives free classes to waiting tenants, of high priority first; each keeps its present mask. If a step fails, the
    /// tenant stays where it is.
    fn promote(&mut self, pass: &mut Pass) {
        self.has_freed_class = false;
        let before = self.promotion.take();
        let mut waiting = self.waiting();
        if waiting.is_empty() {
            return;
        }
        let is_low = |id: &WorkloadId| self.tenant(*id).is_none_or(|own| own.priority != Priority::High);
        waiting.sort_by_key(|id| (is_low(id), *id));
        let masks = self.masks(&mut Vec::new());
        for tenant in waiting {
            let Some(class) = self.placement.free() else { return };
            // A tenant whose mask cannot be read keeps waiting; the next ones are still served.
            let Some(mask) = masks.get(&tenant) else { continue };
            match self.promote_one(tenant, class, *mask, pass) {
                Err(GroupsError::Resctrl(error)) if is_out_of_classes(&error) => {
                    return self.out_of_classes(&error);
                }
                // Lines of a removed group may keep its RMID for a while.
                Err(GroupsError::Resctrl(error)) if error.kind == ResctrlErrorKind::Busy => {
                    self.note_once("classes".to_owned(), error.to_string());
                    match error.action {
                        Action::Make => self.has_freed_class = true,
                        // Another group's mode refuses the mask, perhaps for hours.
                        _ => self.promotion = Some(Backoff::after(before, self.round)),
                    }
                }
                Err(why) => self.notes.push(why.to_string()),
                Ok(()) => {}
            }
        }
    }

    /// The tenants that wait for a class, if one is free; not those whose removed group is left removed.
    pub(super) fn waiting(&self) -> Vec<WorkloadId> {
        if self.placement.free().is_none() {
            return Vec::new();
        }
        let waiting = self.placement.waiting().into_iter();
        waiting.filter(|tenant| self.removed_group(*tenant).is_none()).collect()
    }

    fn promote_one(
        &mut self,
        tenant: WorkloadId,
        class: usize,
        mask: WayMask,
        pass: &mut Pass,
    ) -> Result<(), GroupsError> {
        self.check_not_foreign(&[tenant])?;
        let group = self.name_for(tenant)?;
        let (old, leads) = (self.placement.slot(tenant), self.leads(tenant));
        pass.masks.insert(group.clone(), mask);
        let result = self.found(tenant, class, pass);
        pass.masks.remove(&group);
        if result.is_err() {
            self.place_back(tenant, old, leads);
            self.drop_empty_classes();
            self.tidy(pass);
        }
        result
    }

    /// Makes the group of a class again after another program removed it.
    pub(super) fn remake(&mut self, group: &Group, pass: &mut Pass) -> Result<(), GroupsError> {
        let Some((number, class)) = self.classes.iter_mut().find(|(_, class)| class.group == *group) else {
            return Ok(());
        };
        let occupants: Vec<WorkloadId> = self.placement.tenants_in(Slot::Class(*number)).collect();
        pass.barred.remove(group);
        // The class's own RMID is for the tenant that had it, else for the first.
        class.leader = class.leader.or(occupants.first().copied());
        let made = self.check_not_foreign(&occupants);
        let made = made.and_then(|()| self.settle(pass).map_err(|(_, why): Failure| why));
        if made.is_err() {
            pass.barred.insert(group.clone());
        }
        made
    }

    /// Checks that the group of a slot was not removed.
    pub(super) fn check_not_gone(&self, slot: Slot, pass: &Pass) -> Result<(), GroupsError> {
        match self.group_of(slot).filter(|group| pass.barred.contains(group)) {
            Some(group) => Err(GroupsError::Gone(group.clone())),
            None => Ok(()),
        }
    }

    /// Whether a tenant's processes are others than at the last call. Writes nothing.
    pub fn has_other_processes(&self, id: WorkloadId, pids: &[u32]) -> bool {
        let (come, gone) = self.look_at(id, pids);
        !self.only_observes() && (!come.is_empty() || !gone.is_empty())
    }
}

/// The first description with only the cores and processes that the second one has too.
pub fn common_part(has: &Tenant, asked: &Tenant) -> Tenant {
    let mut less = has.clone();
    less.cores = has.cores.common(&asked.cores);
    less.pids.retain(|pid| asked.pids.contains(pid));
    less
}

/// True if the kernel has no class left for a new group (io_alloc and groups of other programs take some). ENOSPC of a
/// write is a different error.
fn is_out_of_classes(error: &ResctrlError) -> bool {
    error.kind == ResctrlErrorKind::Exhausted && error.action == Action::Make
}
