//! Adding, removing and changing tenants. Each gets or gives up its place; no other tenant moves.
//!
//! What fails now is recorded and retried when tenants are set the next time: a group that cannot be removed, CPUs that
//! cannot be moved. Must not know how tenants are found.

use super::super::placement::Slot;
use super::{Groups, GroupsError, Member, RanOut, ResctrlLock, both};
use crate::journal::{Journal, Original};
use crate::resctrl::{Action, Group, Kind, ResctrlError};
use crate::restore::remove_group;
use crate::tenants::Tenant;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_units::{CoreList, GroupId, WayMask};

/// A tenant that has no class of service of its own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Grouping {
    /// The tenant.
    pub tenant: String,
    /// Other tenants of the same class. If empty, the tenant is in the default group, with no other tenant.
    pub with: Vec<String>,
    /// It is in the default group.
    pub in_default: bool,
    /// Why it has no class of its own.
    pub why: String,
}

/// After this many changes of tenants we check again whether more classes are free. Assumption: this is rare enough to
/// cost nothing, and other tools release classes now and then.
const ROUNDS: u32 = 16;

/// The changes of tenants in one step.
#[derive(Clone, Debug, Default)]
pub struct TenantChanges<'a> {
    /// Tenants to remove.
    pub removed: Vec<GroupId>,
    /// Present tenants with a new description.
    pub changed: Vec<(GroupId, &'a Tenant)>,
    /// Tenants to add, in the order in which they get free classes.
    pub added: Vec<(GroupId, &'a Tenant)>,
}

impl Groups {
    /// Removes, changes and adds tenants, in this order. Returns the refused ones: a refused new tenant is not added; a
    /// refused change has given up what it no longer lists and got nothing new.
    ///
    /// # Errors
    /// If resctrl cannot be listed: no tenant was added.
    pub fn apply_changes(
        &mut self,
        changes: &TenantChanges,
        journal: &mut Journal,
        // The lock is held to the end: another tool that takes a tenant's CPU after our check would lose it to us.
        _: &ResctrlLock,
    ) -> Result<BTreeMap<GroupId, GroupsError>, GroupsError> {
        for tenant in &changes.removed {
            self.leave(*tenant, journal);
        }
        self.retry_removals(journal);
        self.count_classes()?;
        let mut refused = BTreeMap::new();
        for (id, tenant) in &changes.changed {
            if let Err(why) = self.shrink(*id, tenant) {
                refused.insert(*id, why);
            }
        }
        for (id, tenant) in &changes.changed {
            if !refused.contains_key(id)
                && let Err(why) = self.grow(*id, tenant, journal)
            {
                refused.insert(*id, why);
            }
        }
        for (id, tenant) in &changes.added {
            self.members.insert(*id, self.member(tenant));
        }
        // One check of all new tenants is enough if none is refused.
        let comes = |id: GroupId| changes.added.iter().any(|(own, _)| *own == id);
        let in_the_way = !changes.added.is_empty() && self.check_not_foreign(comes).is_err();
        for (id, _) in &changes.added {
            let admitted = if in_the_way { self.check_not_foreign(|own| own == *id) } else { Ok(()) };
            if let Err(why) = admitted {
                self.members.remove(id);
                refused.insert(*id, why);
            }
        }
        if let Err(why) = self.keep_others_monitors(journal) {
            // No CPUs move if the journal cannot record the monitoring groups that lose them.
            let text = why.to_string();
            let mut why = Some(why);
            for (id, _) in &changes.added {
                if self.members.remove(id).is_none() {
                    continue;
                }
                refused.insert(*id, why.take().unwrap_or_else(|| GroupsError::Beside(text.clone())));
            }
            self.notes.extend(why.map(|why| why.to_string()));
            return Ok(refused);
        }
        for (id, _) in &changes.added {
            if refused.contains_key(id) {
                continue;
            }
            if let Err(why) = self.arrive(*id, journal) {
                self.leave(*id, journal);
                refused.insert(*id, why);
            }
        }
        Ok(refused)
    }

    fn member(&self, tenant: &Tenant) -> Member {
        let find = |pid: &u32| super::Process::find(&self.root, *pid);
        Member {
            name: tenant.name.clone(),
            cpus: tenant.cores.clone(),
            processes: tenant.pids.iter().map(find).collect(),
            missing: BTreeSet::new(),
            monitor: None,
            unwatched: None,
            occupancy: None,
            retry: false,
            unplaced: false,
            lost: CoreList::default(),
            left: None,
        }
    }

    /// Gives a place to a tenant whose CPUs and tasks no other program has.
    fn arrive(&mut self, tenant: GroupId, journal: &mut Journal) -> Result<(), GroupsError> {
        if let Some(class) = self.placement.free() {
            match self.found(tenant, class, journal) {
                Err(GroupsError::Resctrl(error)) if is_out_of_classes(&error) => {
                    self.out_of_classes(&error);
                }
                Err(other) => {
                    // When the tenant is removed, what was made for it is removed too.
                    self.placement.arrive(tenant, Slot::Class(class));
                    return Err(other);
                }
                Ok(()) => {
                    self.placement.arrive(tenant, Slot::Class(class));
                    return Ok(());
                }
            }
        }
        self.placement.arrive(tenant, Slot::Default);
        self.out_of_leftovers(tenant)?;
        self.monitor(tenant, &Group::DEFAULT, journal)
    }

    fn out_of_classes(&mut self, error: &ResctrlError) {
        let had = self.placement.in_use().len();
        let beside = self.closids.saturating_sub(self.placement.limit());
        self.notes.push(error.to_string());
        self.ran_out = Some(RanOut { had, beside, rounds: ROUNDS });
        self.placement.set_limit(had);
    }

    /// Moves a tenant of the default group out of groups that could not be removed.
    fn out_of_leftovers(&mut self, tenant: GroupId) -> Result<(), GroupsError> {
        if self.leftovers.is_empty() {
            return Ok(());
        }
        let cpus = self.members.get(&tenant).map(|member| member.cpus.clone()).unwrap_or_default();
        let there = self.resctrl.cpus(&Group::DEFAULT)?;
        if both(&cpus, &there) != cpus {
            let all = CoreList::from([there.cores(), cpus.cores()].concat());
            self.resctrl.set_cpus(&Group::DEFAULT, &all)?;
        }
        self.assign(tenant, &Group::DEFAULT)
    }

    /// Removes a tenant: its groups are removed, which returns its CPUs and tasks to the default group.
    fn leave(&mut self, tenant: GroupId, journal: &mut Journal) {
        let slot = self.placement.slot(tenant);
        let had_slot = self.placement.slots().any(|(own, _)| own == tenant);
        self.placement.leave(tenant);
        let Some(member) = self.members.remove(&tenant) else { return };
        if let Some(monitor) = member.monitor {
            self.remove_group(monitor, journal);
        }
        let Slot::Class(class) = slot else { return };
        if !had_slot {
            return;
        }
        let stay: Vec<GroupId> = self.placement.tenants_in(slot).collect();
        if stay.is_empty() {
            if let Some(class) = self.classes.remove(&class) {
                self.remove_group(class.group, journal);
            }
            return;
        }
        let Some(group) = self.classes.get(&class).map(|class| class.group.clone()) else { return };
        let given = self.give_cpus(&group, &stay).map_err(GroupsError::from);
        let given = given.and_then(|()| self.move_processes(&member.processes, &Group::DEFAULT).map(|_| ()));
        if let Err(why) = given {
            self.notes
                .push(format!("the CPUs and tasks of tenant {} could not be moved back: {why}", member.name));
            // The class must not keep its CPUs, so the other tenants' CPUs are written again.
            self.mark_retry(slot);
        }
    }

    fn mark_retry(&mut self, slot: Slot) {
        let occupants: Vec<GroupId> = self.placement.tenants_in(slot).collect();
        for own in occupants {
            if let Some(member) = self.members.get_mut(&own) {
                member.retry = true;
            }
        }
    }

    /// Removes one of our groups, or keeps it on the list of groups to remove.
    fn remove_group(&mut self, group: Group, journal: &mut Journal) {
        if self.was_replaced(&group) {
            self.notes.push(format!(
                "another program removed resctrl group {group} and made a new one of that \
                    name: Waykeeper leaves it alone"
            ));
            self.traffic.ends(&group, None);
            return self.forget_group(group, journal);
        }
        let shows = self.shown(&group);
        // Other programs' monitoring groups in it move to the default group, with all bytes counted so far.
        if self.resctrl.others_monitors(&group).is_ok_and(|others| !others.is_empty()) {
            self.traffic.starts_anew();
        }
        let removed = remove_group(&self.resctrl, &group, journal);
        match group.is_monitor() {
            true if removed.is_ok() => self.traffic.shrinks(&group.parent(), shows),
            true => {}
            // Its traffic is no longer counted, whether or not it could be removed.
            false => self.traffic.ends(&group, shows),
        }
        match removed {
            // The error alone does not prove that the group is gone; the journal must keep a group that exists.
            Err(error) if self.resctrl.has(&group) || !error.is_gone() => {
                let note = format!("a group that is no longer needed could not be removed: {error}");
                if self.reported_leftovers.insert(note.clone()) {
                    self.notes.push(note);
                }
                self.leftovers.push(group);
            }
            _ => self.forget_group(group, journal),
        }
    }

    /// Drops one of our groups from our list and the journal.
    pub(super) fn forget_group(&mut self, group: Group, journal: &mut Journal) {
        self.made.remove(&group);
        if let Err(why) = journal.forget(&Original::NoGroup { group }) {
            // The entry stays; it says that the group did not exist, which is true.
            self.notes.push(why.to_string());
        }
    }

    /// Removes one of our groups that a failed step left half made.
    pub(super) fn remove_partial_group(&mut self, group: Group, journal: &mut Journal) {
        if self.is_ours(&group) {
            self.remove_group(group, journal);
        }
    }

    /// Retries the removal of leftover groups, and removes classes without tenants.
    fn retry_removals(&mut self, journal: &mut Journal) {
        let used = self.placement.in_use();
        let empty: Vec<usize> = self.classes.keys().filter(|class| !used.contains(class)).copied().collect();
        for class in empty {
            let group = self.classes.remove(&class).map(|class| class.group);
            self.leftovers.extend(group);
        }
        for group in std::mem::take(&mut self.leftovers) {
            self.remove_group(group, journal);
        }
        if self.leftovers.is_empty() {
            self.reported_leftovers.clear();
        }
    }

    pub(super) fn unwatch(&mut self, tenant: GroupId, journal: &mut Journal) -> Result<(), GroupsError> {
        let Some(member) = self.members.get_mut(&tenant) else { return Ok(()) };
        member.occupancy = None;
        let Some(monitor) = member.monitor.take() else { return Ok(()) };
        if self.was_replaced(&monitor) {
            self.forget_group(monitor, journal);
            return Ok(());
        }
        let shows = self.shown(&monitor);
        let removed = self.resctrl.remove(&monitor);
        match &removed {
            Ok(()) => self.traffic.shrinks(&monitor.parent(), shows),
            Err(_) => self.traffic.starts_anew(),
        }
        match removed {
            Err(error) if !error.is_gone() || self.resctrl.has(&monitor) => {
                if let Some(member) = self.members.get_mut(&tenant) {
                    member.monitor = Some(monitor);
                }
                Err(error.into())
            }
            _ => {
                self.made.remove(&monitor);
                Ok(journal.forget(&Original::NoGroup { group: monitor })?)
            }
        }
    }

    /// Whether a tenant needs work although its description is unchanged: its processes changed, or an earlier step
    /// failed. Writes nothing.
    pub fn needs_retry(&self, id: GroupId, pids: &[u32]) -> bool {
        let (come, gone) = self.look_at(id, pids);
        let retry = self.members.get(&id).is_some_and(|member| member.retry);
        retry || !come.is_empty() || !gone.is_empty()
    }

    /// Whether something is left to be removed.
    pub fn has_leftovers(&self) -> bool {
        !self.leftovers.is_empty()
    }

    /// Takes from a tenant the CPUs and processes that it no longer has.
    fn shrink(&mut self, id: GroupId, tenant: &Tenant) -> Result<(), GroupsError> {
        let (_, gone) = self.look_at(id, &tenant.pids);
        let Some(member) = self.members.get_mut(&id) else { return Ok(()) };
        let stay = both(&member.cpus, &tenant.cores);
        let retry = std::mem::take(&mut member.retry);
        let less = stay != member.cpus || retry;
        member.cpus = stay;
        member.processes.retain(|process| !gone.contains(process));
        if member.left.is_some() {
            return Ok(());
        }
        let result = if less { self.write_cpus(id) } else { Ok(()) };
        let result = result.and_then(|()| match gone.is_empty() {
            true => Ok(()),
            // Processes that ended need no move; the others are no longer the tenant's.
            false => self.move_processes(&gone, &Group::DEFAULT).map(|_| ()),
        });
        self.settled(id, result)
    }

    /// Gives a tenant its new CPUs and processes.
    fn grow(&mut self, id: GroupId, tenant: &Tenant, journal: &mut Journal) -> Result<(), GroupsError> {
        let (come, _) = self.look_at(id, &tenant.pids);
        let Some(member) = self.members.get_mut(&id) else { return Ok(()) };
        let before = std::mem::replace(&mut member.cpus, tenant.cores.clone());
        let grew = before != tenant.cores;
        let unplaced = member.unplaced;
        if !grew && come.is_empty() && !unplaced {
            return Ok(());
        }
        for process in &come {
            member.missing.remove(&process.pid);
        }
        member.processes.extend(&come);
        if member.left.is_some() {
            return Ok(());
        }
        if let Err(why) = self.check_not_foreign(|own| own == id) {
            if let Some(member) = self.members.get_mut(&id) {
                member.cpus = before;
                member.processes.retain(|process| !come.contains(process));
            }
            return Err(why);
        }
        let result = match grew {
            true => self.keep_others_monitors(journal).and_then(|()| self.write_cpus(id)),
            false => Ok(()),
        };
        let group = self.group_of(id);
        let result = result.and_then(|()| match unplaced {
            true => self.assign(id, &group),
            // The other processes are in the group already, and so are the ones that they start.
            false => self.assign_some(id, &come, &group),
        });
        if let Some(member) = self.members.get_mut(&id) {
            member.unplaced = result.is_err();
        }
        self.settled(id, result)
    }

    /// Marks a tenant for a retry if a step failed.
    fn settled(&mut self, id: GroupId, result: Result<(), GroupsError>) -> Result<(), GroupsError> {
        if let (Err(_), Some(member)) = (&result, self.members.get_mut(&id)) {
            member.retry = true;
        }
        result
    }

    fn group_of(&self, tenant: GroupId) -> Group {
        let monitor = self.members.get(&tenant).and_then(|member| member.monitor.clone());
        let class = self.class(self.placement.slot(tenant)).map(|class| class.group.clone());
        monitor.or(class).unwrap_or(Group::DEFAULT)
    }

    /// Writes a tenant's CPUs into its class and its monitoring group.
    fn write_cpus(&mut self, id: GroupId) -> Result<(), GroupsError> {
        let slot = self.placement.slot(id);
        if let (Slot::Class(_), Some(class)) = (slot, self.class(slot)) {
            let group = class.group.clone();
            let occupants: Vec<GroupId> = self.placement.tenants_in(slot).collect();
            self.give_cpus(&group, &occupants)?;
        }
        let monitor = self.members.get(&id).and_then(|member| member.monitor.clone());
        if let Some(monitor) = monitor {
            self.give_cpus(&monitor, &[id])?;
        }
        Ok(())
    }

    /// Gives free classes to waiting tenants, in this order; each keeps its present mask. If a step fails, the tenant
    /// stays where it is.
    pub fn promote(&mut self, order: &[GroupId], journal: &mut Journal, _: &ResctrlLock) {
        let masks = self.masks(&mut Vec::new());
        let waiting = self.waiting();
        for tenant in order.iter().filter(|tenant| waiting.contains(tenant)) {
            let Some(class) = self.placement.free() else { return };
            // A tenant whose mask cannot be read keeps waiting; the next ones are still served.
            let Some(mask) = masks.get(tenant) else { continue };
            if let Err(why) = self.promote_one(*tenant, class, *mask, journal) {
                if let GroupsError::Resctrl(error) = &why
                    && is_out_of_classes(error)
                {
                    self.out_of_classes(error);
                    return;
                }
                self.notes.push(why.to_string());
            }
        }
    }

    /// The tenants that wait for a class, if one is free; not those whose removed group is left removed.
    pub fn waiting(&self) -> Vec<GroupId> {
        match self.placement.free() {
            Some(_) => {
                let waiting = self.placement.waiting().into_iter();
                waiting.filter(|tenant| self.removed_group(*tenant).is_none()).collect()
            }
            None => Vec::new(),
        }
    }

    /// The tenants without a class of their own: which tenants share it, and why.
    pub fn groupings(&self) -> Vec<Grouping> {
        let name = |tenant: GroupId| self.members.get(&tenant).map(|member| member.name.clone());
        let limit = self.placement.limit();
        let shares = |tenant: GroupId| {
            let slot = self.placement.slot(tenant);
            let with: Vec<String> =
                self.placement.tenants_in(slot).filter(|other| *other != tenant).filter_map(name).collect();
            let in_default = slot == Slot::Default;
            let why = match (in_default, with.is_empty()) {
                (false, true) => return None,
                (false, false) => {
                    format!(
                        "they have the same mask, and all tenants together have only {limit} classes of service"
                    )
                }
                (true, _) if self.removed_group(tenant).is_some() => {
                    "another program removed its class, and limits.outsiders says to leave it removed"
                        .to_owned()
                }
                (true, _) => format!("all {limit} classes of service for tenants are in use"),
            };
            Some(Grouping { tenant: name(tenant)?, with, in_default, why })
        };
        self.placement.slots().filter_map(|(tenant, _)| shares(tenant)).collect()
    }

    fn promote_one(
        &mut self,
        tenant: GroupId,
        class: usize,
        mask: WayMask,
        journal: &mut Journal,
    ) -> Result<(), GroupsError> {
        self.check_not_foreign(|own| own == tenant)?;
        let group = self.name_class(tenant, class, journal)?;
        let old = self.placement.slot(tenant);
        let result = self.give_mask(class, mask).and_then(|()| self.unwatch(tenant, journal));
        let result = result.and_then(|()| self.enter(tenant, class));
        if let Err(why) = result {
            // The tenant stays where it was; the half-made class is removed.
            self.classes.remove(&class);
            self.remove_group(group, journal);
            self.mark_retry(old);
            return Err(why);
        }
        self.placement.done_move(tenant, Slot::Class(class));
        let held = self.hold(&group, 0)?;
        if let Some(member) = self.members.get_mut(&tenant) {
            (member.occupancy, member.unwatched) = (held, None);
        }
        Ok(())
    }
}

/// True if the kernel has no class left for a new group (io_alloc and pseudo-locked regions take some). ENOSPC of a
/// write is a different error.
fn is_out_of_classes(error: &ResctrlError) -> bool {
    error.kind == Kind::Exhausted && error.action == Action::Make
}
