//! Tenants that are added, removed and changed while a host is managed: the difference to the present ones, and its
//! outcome.
//!
//! A refusal does not affect other tenants. It is reported, and retried with backoff while the same tenant is
//! requested. Must not know how a tenant is found, nor how its groups are built.

use super::error::OpenError;
use super::facts::Facts;
use super::groups::{Grouping, Passage, Turnover};
use super::tally::{Six, Tally};
use super::{LinuxHost, inventory, shown, tally};
use crate::resctrl::CacheInfo;
use crate::tenants::Tenant;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_host::Priority;
use waykeeper_units::{CoreId, CoreList, GroupId};

/// A tenant that was refused, or whose change was refused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Refusal {
    /// The tenant.
    pub tenant: String,
    /// The reason, and what would help.
    pub why: String,
}

/// The outcome of [`LinuxHost::set_tenants`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Changes {
    /// Added tenants.
    pub arrived: Vec<GroupId>,
    /// Removed tenants, with their names.
    pub left: Vec<(GroupId, String)>,
    /// Tenants whose cores, processes, devices or other properties changed.
    pub changed: Vec<GroupId>,
    /// Refused tenants, each once per reason.
    pub refused: Vec<Refusal>,
    /// Why nothing was done; the next call retries.
    pub postponed: Option<String>,
}

impl Changes {
    /// True if there is nothing to report.
    pub fn is_empty(&self) -> bool {
        *self == Changes::default()
    }
}

/// Longest backoff of a refused tenant, in calls: about a minute at intervals of 1 s.
const MOST_CALLS: u64 = 64;

/// A tenant that was refused.
#[derive(Debug)]
struct Refused {
    asked: Tenant,
    why: String,
    /// Calls between the last try and the next.
    gap: u64,
    /// The call that retries it.
    again: u64,
}

/// A present tenant.
#[derive(Debug)]
struct Alive {
    /// Its description as it is in force.
    has: Tenant,
    tally: Tally,
}

/// The present and the refused tenants.
#[derive(Debug, Default)]
pub(super) struct Members {
    alive: BTreeMap<GroupId, Alive>,
    refused: BTreeMap<String, Refused>,
    calls: u64,
    next: u32,
    /// A tenant without cores was already reported.
    told_coreless: bool,
}

impl Members {
    /// What a tenant's cores have counted.
    pub fn read(&mut self, id: GroupId, now: impl Fn(CoreId) -> Six) -> Six {
        let alive = self.alive.get_mut(&id);
        alive.map_or([waykeeper_host::Reading::Absent; 6], |alive| alive.tally.read(now))
    }

    fn id(&self, name: &str) -> Option<GroupId> {
        self.alive.iter().find(|(_, alive)| alive.has.name == name).map(|(id, _)| *id)
    }

    fn refuse(&mut self, asked: &Tenant, why: String, changes: &mut Changes) {
        let before = self.refused.get(&asked.name).filter(|before| before.asked == *asked);
        let gap = before.map_or(1, |before| (before.gap * 2).min(MOST_CALLS));
        if before.is_none_or(|before| before.why != why) {
            changes.refused.push(Refusal { tenant: asked.name.clone(), why: why.clone() });
        }
        let again = self.calls + gap;
        self.refused.insert(asked.name.clone(), Refused { asked: asked.clone(), why, gap, again });
    }

    /// Whether the same request was refused and its backoff has not passed.
    fn has_to_wait(&self, asked: &Tenant) -> bool {
        let refused = self.refused.get(&asked.name);
        refused.is_some_and(|refused| refused.asked == *asked && self.calls < refused.again)
    }
}

/// Checks tenants against this host, before anything is changed.
///
/// # Errors
/// The first tenant that is not possible.
pub(super) fn check(facts: &Facts, l3: &CacheInfo, tenants: &[Tenant]) -> Result<(), OpenError> {
    tenants.iter().try_for_each(|tenant| inventory::group(facts, l3, GroupId(0), tenant).map(|_| ()))
}

/// The cores of `a` that are not in `b`.
fn without(a: &CoreList, b: &CoreList) -> Vec<CoreId> {
    a.cores().iter().filter(|core| !b.cores().contains(core)).copied().collect()
}

/// The planned changes.
#[derive(Default)]
struct Agenda {
    going: Vec<GroupId>,
    changing: Vec<(GroupId, Tenant)>,
    coming: Vec<(GroupId, Tenant)>,
}

impl LinuxHost {
    /// Sets the present tenants. Call it between steps, as often as wanted: without a difference it only looks at each
    /// tenant's processes.
    ///
    /// A new tenant gets a new id, even if it had the same name before. A refused tenant (another tenant's core,
    /// another tool's group, an unknown device) is listed in the answer; the others are not affected.
    pub fn set_tenants(&mut self, tenants: Vec<Tenant>) -> Changes {
        self.members.calls += 1;
        let mut changes = Changes::default();
        let agenda = self.agenda(&tenants, &mut changes);
        self.members.refused.retain(|name, _| tenants.iter().any(|tenant| tenant.name == *name));
        let corrects = self.correct && self.places.is_wrong();
        let idle = agenda.going.is_empty() && agenda.changing.is_empty() && agenda.coming.is_empty();
        if idle && !corrects && !self.places.has_leftovers() {
            return changes;
        }
        let done = match self.places.pass(false) {
            Err(why) => Err(why.to_string()),
            Ok(passage) => {
                if corrects {
                    self.places.correct(passage.as_ref());
                }
                self.carry_out(agenda, passage.as_ref(), &mut changes)
            }
        };
        if let Err(why) = done {
            changes.postponed = Some(why);
        }
        self.complaints.extend(self.places.take_notes());
        changes
    }

    /// The refused tenants, and why.
    pub fn refused(&self) -> Vec<Refusal> {
        let refusal =
            |(name, refused): (&String, &Refused)| Refusal { tenant: name.clone(), why: refused.why.clone() };
        self.members.refused.iter().map(refusal).collect()
    }

    /// The classes that have tenants: the name of each resctrl group, and its tenants. Empty on an observed host.
    pub fn classes(&self) -> Vec<(String, Vec<GroupId>)> {
        match &self.places {
            super::Places::Ours(groups, _) => groups.sitting(),
            super::Places::Theirs(_) => Vec::new(),
        }
    }

    /// Tenants without a class of service of their own: which tenants share it, and why.
    pub fn groupings(&self) -> Vec<Grouping> {
        self.places.groupings()
    }

    /// Adds the tenants of the start. If one is refused, opening the host fails.
    pub(super) fn settle_in(&mut self, tenants: Vec<Tenant>) -> Result<(), OpenError> {
        self.members.calls += 1;
        let mut changes = Changes::default();
        let agenda = self.agenda(&tenants, &mut changes);
        if agenda.coming.is_empty() && changes.refused.is_empty() {
            return Ok(());
        }
        let count = tenants.len();
        let passage = self.places.pass(true)?;
        let refused = self.turn_over(&agenda, passage.as_ref(), &mut changes)?;
        drop(passage);
        if let Some((_, why)) = refused.into_iter().next() {
            return Err(OpenError::Groups(why));
        }
        if let Some(Refusal { tenant, why }) = changes.refused.into_iter().next() {
            return Err(OpenError::Tenant { tenant, why });
        }
        let free = self.places.classes() - 1;
        if count > free as usize {
            self.notes.push(format!(
                "{count} tenants, but only {free} free classes of service: tenants with equal masks share a \
                 class"
            ));
        }
        if let Some(why) = self.follow_cores() {
            return Err(OpenError::Counting(why));
        }
        self.notes.append(&mut self.complaints);
        self.notes.extend(self.places.take_notes());
        Ok(())
    }

    /// Plans the changes, and refuses what can be refused without reading the machine.
    fn agenda(&mut self, tenants: &[Tenant], changes: &mut Changes) -> Agenda {
        let mut agenda = Agenda::default();
        let named = |name: &str| tenants.iter().any(|tenant| tenant.name == name);
        let alive = self.members.alive.iter();
        agenda.going = alive.filter(|(_, own)| !named(&own.has.name)).map(|(id, _)| *id).collect();
        // A tenant keeps a core as long as its description lists it.
        let mut owners: BTreeMap<CoreId, String> = BTreeMap::new();
        for tenant in tenants {
            let Some(own) = self.members.id(&tenant.name).and_then(|id| self.members.alive.get(&id)) else {
                continue;
            };
            let kept = tenant.cores.cores().iter().filter(|core| own.has.cores.cores().contains(core));
            for core in kept {
                owners.entry(*core).or_insert_with(|| tenant.name.clone());
            }
        }
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        // Present tenants first: if a present and a new tenant both claim a free core, the present one gets it.
        let (old, new): (Vec<&Tenant>, Vec<&Tenant>) =
            tenants.iter().partition(|tenant| self.members.id(&tenant.name).is_some());
        for tenant in old.into_iter().chain(new) {
            if !seen.insert(&tenant.name) {
                let why = "two tenants have this name; the second one is ignored".to_owned();
                changes.refused.push(Refusal { tenant: tenant.name.clone(), why });
                continue;
            }
            let id = self.members.id(&tenant.name);
            let is_quiet = id.is_some_and(|id| {
                let has = self.members.alive.get(&id).is_some_and(|alive| alive.has == *tenant);
                has && !self.places.is_restless(id, &tenant.pids)
            });
            if is_quiet || self.members.has_to_wait(tenant) {
                continue;
            }
            let claimed = tenant.cores.cores().iter().find_map(|core| {
                let owner = owners.get(core).filter(|owner| **owner != tenant.name)?;
                Some(format!("{core} belongs to tenant {owner}; a core has one tenant"))
            });
            let checked = match claimed.or_else(|| self.bars.tenant(tenant)) {
                Some(why) => Err(why),
                None => {
                    inventory::group(&self.facts, &self.l3, GroupId(0), tenant).map_err(|why| why.to_string())
                }
            };
            match (checked, id) {
                (Ok(_), Some(id)) => agenda.changing.push((id, tenant.clone())),
                (Ok(_), None) => {
                    let Some(next) = self.members.next.checked_add(1) else {
                        let why = "all tenant numbers have been used; restart waykeeper".to_owned();
                        self.members.refuse(tenant, why, changes);
                        continue;
                    };
                    agenda.coming.push((GroupId(self.members.next), tenant.clone()));
                    self.members.next = next;
                }
                (Err(why), id) => {
                    self.members.refuse(tenant, why, changes);
                    agenda.changing.extend(id.and_then(|id| self.less(id, tenant)));
                    continue;
                }
            }
            for core in tenant.cores.cores() {
                owners.entry(*core).or_insert_with(|| tenant.name.clone());
            }
        }
        agenda
    }

    /// The part of a tenant's present cores and processes that the new description still has, for when that is refused.
    fn less(&self, id: GroupId, asked: &Tenant) -> Option<(GroupId, Tenant)> {
        let has = &self.members.alive.get(&id)?.has;
        let mut less = has.clone();
        less.cores = has
            .cores
            .cores()
            .iter()
            .filter(|core| asked.cores.cores().contains(core))
            .copied()
            .collect::<Vec<_>>()
            .into();
        less.pids.retain(|pid| asked.pids.contains(pid));
        (less != *has).then_some((id, less))
    }

    /// Makes the changes as far as possible. In any case the counters follow the tenants' cores afterwards.
    fn carry_out(
        &mut self,
        agenda: Agenda,
        passage: Option<&Passage>,
        changes: &mut Changes,
    ) -> Result<(), String> {
        let done = self.change_places(agenda, passage, changes);
        if let Some(why) = self.follow_cores() {
            self.complaints.push(why);
        }
        self.inventory.llc.clos_count = self.places.classes();
        done
    }

    fn change_places(
        &mut self,
        agenda: Agenda,
        passage: Option<&Passage>,
        changes: &mut Changes,
    ) -> Result<(), String> {
        let Agenda { going, changing, coming } = agenda;
        let names: Vec<(GroupId, String)> =
            going.iter().filter_map(|id| Some((*id, self.members.alive.get(id)?.has.name.clone()))).collect();
        // Tenants that wait for a class get one before new tenants do.
        let first = Agenda { going, changing, coming: Vec::new() };
        let refused = self.turn_over(&first, passage, changes).map_err(|why| why.to_string())?;
        changes.left.extend(names);
        for (id, why) in refused {
            if let Some((_, asked)) = first.changing.iter().find(|(own, _)| *own == id) {
                self.members.refuse(asked, why.to_string(), changes);
            }
        }
        self.promote(passage);
        let second = Agenda { coming, ..Agenda::default() };
        if !second.coming.is_empty() {
            let refused = self.turn_over(&second, passage, changes).map_err(|why| why.to_string())?;
            for (id, why) in refused {
                if let Some((_, asked)) = second.coming.iter().find(|(own, _)| *own == id) {
                    self.members.refuse(asked, why.to_string(), changes);
                }
            }
        }
        Ok(())
    }

    fn promote(&mut self, passage: Option<&Passage>) {
        let mut waiting = self.places.waiting();
        if waiting.is_empty() {
            return;
        }
        let priority = |id: &GroupId| {
            self.members.alive.get(id).is_none_or(|alive| alive.has.priority != Priority::High)
        };
        waiting.sort_by_key(|id| (priority(id), *id));
        self.places.promote(&waiting, passage);
    }

    /// Makes the changes and updates the list of tenants.
    fn turn_over(
        &mut self,
        agenda: &Agenda,
        passage: Option<&Passage>,
        changes: &mut Changes,
    ) -> Result<BTreeMap<GroupId, super::GroupsError>, super::GroupsError> {
        let turnover = Turnover {
            going: agenda.going.clone(),
            changing: agenda.changing.iter().map(|(id, tenant)| (*id, tenant)).collect(),
            coming: agenda.coming.iter().map(|(id, tenant)| (*id, tenant)).collect(),
        };
        let refused = self.places.turn_over(&turnover, passage)?;
        for id in &agenda.going {
            self.members.alive.remove(id);
            self.groups.retain(|group| group.id != *id);
        }
        for (id, tenant) in &agenda.changing {
            let less = self.less(*id, tenant);
            let has = match (refused.contains_key(id), less) {
                (false, _) => tenant.clone(),
                (true, Some((_, less))) => less,
                (true, None) => continue,
            };
            if let Some(alive) = self.members.alive.get_mut(id) {
                alive.has = has;
                changes.changed.push(*id);
            }
            self.show(*id);
        }
        for (id, tenant) in agenda.coming.iter().filter(|(id, _)| !refused.contains_key(id)) {
            let alive = Alive { has: tenant.clone(), tally: Tally::default() };
            self.members.alive.insert(*id, alive);
            self.members.refused.remove(&tenant.name);
            changes.arrived.push(*id);
            self.show(*id);
        }
        Ok(refused)
    }

    /// Publishes the tenant's group in the host's list.
    fn show(&mut self, id: GroupId) {
        let Some(alive) = self.members.alive.get(&id) else { return };
        // It was checked when it was requested.
        let Ok(group) = inventory::group(&self.facts, &self.l3, id, &alive.has) else { return };
        match self.groups.iter_mut().find(|own| own.id == id) {
            Some(own) => *own = group,
            None => self.groups.push(group),
        }
        if alive.has.cores.is_empty() && !std::mem::replace(&mut self.members.told_coreless, true) {
            self.complaints.push(format!(
                "tenant {} has no cores of its own, so core counters are not read for it: other processes \
                 run on the same cores",
                alive.has.name
            ));
        }
    }

    /// Counts the tenants' present cores. Returns why the journal refused, if it did.
    fn follow_cores(&mut self) -> Option<String> {
        let mut wanted = BTreeSet::new();
        let (mut gone, mut come) = (BTreeSet::new(), BTreeSet::new());
        for alive in self.members.alive.values() {
            wanted.extend(alive.has.cores.cores().iter().copied());
            let before = alive.tally.cores();
            gone.extend(without(&before, &alive.has.cores));
            come.extend(without(&alive.has.cores, &before));
        }
        let last = self.cores.count_some(&gone);
        // A core that changes its tenant is counted already; a new core starts from 0.
        let handed: BTreeSet<CoreId> = come.iter().copied().filter(|core| self.cores.has(*core)).collect();
        let (notes, refused) = self.cores.follow(&wanted, self.places.journal());
        self.complaints.extend(notes);
        let now = self.cores.count_some(&handed);
        self.complaints.extend(last.problems().iter().chain(now.problems()).cloned());
        let events = self.events.as_ref();
        let base = |core: CoreId| match handed.contains(&core) {
            true => shown(events, &now, core),
            false => tally::NOTHING,
        };
        for alive in self.members.alive.values_mut() {
            alive.tally.follow(&alive.has.cores, |core| shown(events, &last, core), base);
        }
        refused
    }
}
