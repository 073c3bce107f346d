//! Tenants that come, go and change: each gets or gives up its place, and no other one moves for it.
//!
//! What cannot be done now is noted and tried again when tenants are set the next time: a group that cannot be removed, CPUs
//! that cannot be moved. Must not know why a tenant is one.

use super::super::placement::Seat;
use super::{Groups, GroupsError, Member, Passage, RanOut, both};
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
    /// Those in the same class; with none it is alone in the default group, beside all that is no tenant's.
    pub with: Vec<String>,
    /// It is in the default group.
    pub in_default: bool,
    /// Why it has no class of its own.
    pub why: String,
}

/// After so many changes of tenants it is tried again whether there are more classes than there were. Assumption: seldom
/// enough to cost nothing; other tools give classes back now and then.
const ROUNDS: u32 = 16;

/// What is to become of the tenants.
#[derive(Clone, Debug, Default)]
pub struct Turnover<'a> {
    /// Those who go.
    pub going: Vec<GroupId>,
    /// Those who stay and are described anew.
    pub changing: Vec<(GroupId, &'a Tenant)>,
    /// Those who come, in the order in which they get what is free.
    pub coming: Vec<(GroupId, &'a Tenant)>,
}

impl Groups {
    /// Lets tenants go, change and come, in this order. Who is in the answer was refused: one that was to come is not
    /// there, one that was to change has given up what it was to give up and got nothing new.
    ///
    /// # Errors
    /// If resctrl cannot be listed: nobody came.
    pub fn turn_over(
        &mut self,
        turnover: &Turnover,
        journal: &mut Journal,
        // Held to the end: who takes a tenant's CPU after it was looked at would lose it again to us.
        _: &Passage,
    ) -> Result<BTreeMap<GroupId, GroupsError>, GroupsError> {
        for tenant in &turnover.going {
            self.leave(*tenant, journal);
        }
        self.sweep(journal);
        self.count_classes()?;
        let mut refused = BTreeMap::new();
        for (id, tenant) in &turnover.changing {
            if let Err(why) = self.shrink(*id, tenant) {
                refused.insert(*id, why);
            }
        }
        for (id, tenant) in &turnover.changing {
            if !refused.contains_key(id)
                && let Err(why) = self.grow(*id, tenant, journal)
            {
                refused.insert(*id, why);
            }
        }
        for (id, tenant) in &turnover.coming {
            self.members.insert(*id, self.member(tenant));
        }
        // One look at all of them is enough if nothing is in the way of any.
        let comes = |id: GroupId| turnover.coming.iter().any(|(own, _)| *own == id);
        let in_the_way = !turnover.coming.is_empty() && self.nobody_elses(comes).is_err();
        for (id, _) in &turnover.coming {
            let admitted = if in_the_way { self.nobody_elses(|own| own == *id) } else { Ok(()) };
            if let Err(why) = admitted {
                self.members.remove(id);
                refused.insert(*id, why);
            }
        }
        if let Err(why) = self.keep_others_monitors(journal) {
            // Nobody moves whose leaving could not be journaled.
            let text = why.to_string();
            let mut why = Some(why);
            for (id, _) in &turnover.coming {
                if self.members.remove(id).is_none() {
                    continue;
                }
                refused.insert(*id, why.take().unwrap_or_else(|| GroupsError::Beside(text.clone())));
            }
            self.notes.extend(why.map(|why| why.to_string()));
            return Ok(refused);
        }
        for (id, _) in &turnover.coming {
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
            unsettled: false,
            unplaced: false,
            lost: CoreList::default(),
            left: None,
        }
    }

    /// Gives a tenant that is in nobody's hands a place.
    fn arrive(&mut self, tenant: GroupId, journal: &mut Journal) -> Result<(), GroupsError> {
        if let Some(class) = self.placement.free() {
            match self.found(tenant, class, journal) {
                Err(GroupsError::Resctrl(error)) if is_out_of_classes(&error) => {
                    self.out_of_classes(&error);
                }
                Err(other) => {
                    // What was made of it goes with the tenant.
                    self.placement.arrive(tenant, Seat::Class(class));
                    return Err(other);
                }
                Ok(()) => {
                    self.placement.arrive(tenant, Seat::Class(class));
                    return Ok(());
                }
            }
        }
        self.placement.arrive(tenant, Seat::Root);
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

    /// A tenant of the default group may not stay in a group that could not be removed.
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

    /// Takes a tenant out: its groups go, and with them its CPUs and tasks to the default group.
    fn leave(&mut self, tenant: GroupId, journal: &mut Journal) {
        let seat = self.placement.seat(tenant);
        let had_seat = self.placement.seats().any(|(own, _)| own == tenant);
        self.placement.leave(tenant);
        let Some(member) = self.members.remove(&tenant) else { return };
        if let Some(monitor) = member.monitor {
            self.retire(monitor, journal);
        }
        let Seat::Class(class) = seat else { return };
        if !had_seat {
            return;
        }
        let stay: Vec<GroupId> = self.placement.sitting(seat).collect();
        if stay.is_empty() {
            if let Some(class) = self.classes.remove(&class) {
                self.retire(class.group, journal);
            }
            return;
        }
        let Some(group) = self.classes.get(&class).map(|class| class.group.clone()) else { return };
        let given = self.give_cpus(&group, &stay).map_err(GroupsError::from);
        let given = given.and_then(|()| self.move_processes(&member.processes, &Group::DEFAULT).map(|_| ()));
        if let Err(why) = given {
            self.notes
                .push(format!("the CPUs and tasks of tenant {} could not be moved back: {why}", member.name));
            // Whoever else sits there is not to keep its CPUs for good.
            self.unsettle(seat);
        }
    }

    fn unsettle(&mut self, seat: Seat) {
        let sitting: Vec<GroupId> = self.placement.sitting(seat).collect();
        for own in sitting {
            if let Some(member) = self.members.get_mut(&own) {
                member.unsettled = true;
            }
        }
    }

    /// Removes a group of ours for good, or remembers that it has to go.
    fn retire(&mut self, group: Group, journal: &mut Journal) {
        if self.is_anothers(&group) {
            self.notes.push(format!(
                "another program removed resctrl group {group} and made a new one of that \
                    name: Waykeeper leaves it alone"
            ));
            self.traffic.ends(&group, None);
            return self.forget_group(group, journal);
        }
        let shows = self.shown(&group);
        // What others watch in it goes on counting in the default group, with all that it has counted.
        if self.resctrl.others_monitors(&group).is_ok_and(|others| !others.is_empty()) {
            self.traffic.starts_anew();
        }
        let removed = remove_group(&self.resctrl, &group, journal);
        match group.is_monitor() {
            true if removed.is_ok() => self.traffic.shrinks(&group.parent(), shows),
            true => {}
            // It is counted no more, whether it went or has to wait.
            false => self.traffic.ends(&group, shows),
        }
        match removed {
            // An error alone does not prove that it is gone; the journal must not forget what is there.
            Err(error) if self.resctrl.has(&group) || !error.is_gone() => {
                let note = format!("a group that is no longer needed could not be removed: {error}");
                if self.told_leftovers.insert(note.clone()) {
                    self.notes.push(note);
                }
                self.leftovers.push(group);
            }
            _ => self.forget_group(group, journal),
        }
    }

    /// A group of ours is no more.
    pub(super) fn forget_group(&mut self, group: Group, journal: &mut Journal) {
        self.made.remove(&group);
        if let Err(why) = journal.forget(&Original::NoGroup { group }) {
            // It says of a group that it was not there, which is true.
            self.notes.push(why.to_string());
        }
    }

    /// Removes a group of ours that a step left behind which failed half way.
    pub(super) fn retire_half(&mut self, group: Group, journal: &mut Journal) {
        if self.is_ours(&group) {
            self.retire(group, journal);
        }
    }

    /// Tries once more to remove what is left over, and classes that nobody sits in.
    fn sweep(&mut self, journal: &mut Journal) {
        let used = self.placement.in_use();
        let empty: Vec<usize> = self.classes.keys().filter(|class| !used.contains(class)).copied().collect();
        for class in empty {
            let group = self.classes.remove(&class).map(|class| class.group);
            self.leftovers.extend(group);
        }
        for group in std::mem::take(&mut self.leftovers) {
            self.retire(group, journal);
        }
        if self.leftovers.is_empty() {
            self.told_leftovers.clear();
        }
    }

    /// Takes away a tenant's monitoring group.
    pub(super) fn unwatch(&mut self, tenant: GroupId, journal: &mut Journal) -> Result<(), GroupsError> {
        let Some(member) = self.members.get_mut(&tenant) else { return Ok(()) };
        member.occupancy = None;
        let Some(monitor) = member.monitor.take() else { return Ok(()) };
        if self.is_anothers(&monitor) {
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

    /// Whether a tenant has to be looked after although nothing was said of it: its processes changed, or something could
    /// not be done. Nothing is written.
    pub fn is_restless(&self, id: GroupId, pids: &[u32]) -> bool {
        let (come, gone) = self.look_at(id, pids);
        let unsettled = self.members.get(&id).is_some_and(|member| member.unsettled);
        unsettled || !come.is_empty() || !gone.is_empty()
    }

    /// Whether something is left to be removed.
    pub fn has_leftovers(&self) -> bool {
        !self.leftovers.is_empty()
    }

    /// Takes from a tenant what it has no more.
    fn shrink(&mut self, id: GroupId, tenant: &Tenant) -> Result<(), GroupsError> {
        let (_, gone) = self.look_at(id, &tenant.pids);
        let Some(member) = self.members.get_mut(&id) else { return Ok(()) };
        let stay = both(&member.cpus, &tenant.cores);
        let unsettled = std::mem::take(&mut member.unsettled);
        let less = stay != member.cpus || unsettled;
        member.cpus = stay;
        member.processes.retain(|process| !gone.contains(process));
        if member.left.is_some() {
            return Ok(());
        }
        let result = if less { self.settle_cpus(id) } else { Ok(()) };
        let result = result.and_then(|()| match gone.is_empty() {
            true => Ok(()),
            // Those that ended are nowhere; the others are none of its any more.
            false => self.move_processes(&gone, &Group::DEFAULT).map(|_| ()),
        });
        self.settled(id, result)
    }

    /// Gives a tenant what it has now and had not before.
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
        if let Err(why) = self.nobody_elses(|own| own == id) {
            if let Some(member) = self.members.get_mut(&id) {
                member.cpus = before;
                member.processes.retain(|process| !come.contains(process));
            }
            return Err(why);
        }
        let result = match grew {
            true => self.keep_others_monitors(journal).and_then(|()| self.settle_cpus(id)),
            false => Ok(()),
        };
        let group = self.group_of(id);
        let result = result.and_then(|()| match unplaced {
            true => self.assign(id, &group),
            // The others are there, and what they start is with them.
            false => self.assign_some(id, &come, &group),
        });
        if let Some(member) = self.members.get_mut(&id) {
            member.unplaced = result.is_err();
        }
        self.settled(id, result)
    }

    /// What could not be done is done the next time.
    fn settled(&mut self, id: GroupId, result: Result<(), GroupsError>) -> Result<(), GroupsError> {
        if let (Err(_), Some(member)) = (&result, self.members.get_mut(&id)) {
            member.unsettled = true;
        }
        result
    }

    /// The group that a tenant's tasks are in.
    fn group_of(&self, tenant: GroupId) -> Group {
        let monitor = self.members.get(&tenant).and_then(|member| member.monitor.clone());
        let class = self.class(self.placement.seat(tenant)).map(|class| class.group.clone());
        monitor.or(class).unwrap_or(Group::DEFAULT)
    }

    /// Writes a tenant's CPUs where they belong: into its class, and into its monitoring group.
    fn settle_cpus(&mut self, id: GroupId) -> Result<(), GroupsError> {
        let seat = self.placement.seat(id);
        if let (Seat::Class(_), Some(class)) = (seat, self.class(seat)) {
            let group = class.group.clone();
            let sitting: Vec<GroupId> = self.placement.sitting(seat).collect();
            self.give_cpus(&group, &sitting)?;
        }
        let monitor = self.members.get(&id).and_then(|member| member.monitor.clone());
        if let Some(monitor) = monitor {
            self.give_cpus(&monitor, &[id])?;
        }
        Ok(())
    }

    /// Gives classes that nobody sits in to those who wait for one, in the order of `waiting`: each with the mask that it
    /// has. What fails leaves the tenant where it is.
    pub fn promote(&mut self, order: &[GroupId], journal: &mut Journal, _: &Passage) {
        let masks = self.masks(&mut Vec::new());
        let waiting = self.waiting();
        for tenant in order.iter().filter(|tenant| waiting.contains(tenant)) {
            let Some(class) = self.placement.free() else { return };
            // Whose mask cannot be read waits for a better moment, and keeps nobody from his.
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

    /// The order of those who wait for a class, as far as placement knows it.
    pub fn waiting(&self) -> Vec<GroupId> {
        match self.placement.free() {
            Some(_) => {
                let waiting = self.placement.waiting().into_iter();
                waiting.filter(|tenant| self.removed_group(*tenant).is_none()).collect()
            }
            None => Vec::new(),
        }
    }

    /// Who has no class of its own, with whom it is, and why.
    pub fn groupings(&self) -> Vec<Grouping> {
        let name = |tenant: GroupId| self.members.get(&tenant).map(|member| member.name.clone());
        let limit = self.placement.limit();
        let shares = |tenant: GroupId| {
            let seat = self.placement.seat(tenant);
            let with: Vec<String> =
                self.placement.sitting(seat).filter(|other| *other != tenant).filter_map(name).collect();
            let in_default = seat == Seat::Root;
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
        self.placement.seats().filter_map(|(tenant, _)| shares(tenant)).collect()
    }

    fn promote_one(
        &mut self,
        tenant: GroupId,
        class: usize,
        mask: WayMask,
        journal: &mut Journal,
    ) -> Result<(), GroupsError> {
        self.nobody_elses(|own| own == tenant)?;
        let group = self.name_class(tenant, class, journal)?;
        let old = self.placement.seat(tenant);
        let result = self.give_mask(class, mask).and_then(|()| self.unwatch(tenant, journal));
        let result = result.and_then(|()| self.enter(tenant, class));
        if let Err(why) = result {
            // Where it was it stays; what was begun goes.
            self.classes.remove(&class);
            self.retire(group, journal);
            self.unsettle(old);
            return Err(why);
        }
        self.placement.done_move(tenant, Seat::Class(class));
        let held = self.hold(&group, 0)?;
        if let Some(member) = self.members.get_mut(&tenant) {
            (member.occupancy, member.unwatched) = (held, None);
        }
        Ok(())
    }
}

/// Fewer classes than the numbers said (io_alloc and pseudo-locked regions take some). A file that cannot be written for
/// lack of space is another matter.
fn is_out_of_classes(error: &ResctrlError) -> bool {
    error.kind == Kind::Exhausted && error.action == Action::Make
}
