//! Tenants that are added, removed and changed while a host is managed: the difference to the present ones, and its
//! outcome.
//!
//! A refusal does not affect other tenants. It is reported, and retried with backoff while the same tenant is
//! requested. Must not know how a tenant is found, nor how its groups are built.

use super::error::OpenError;
use super::facts::Facts;
use super::groups::{Grouping, ResctrlLock, TenantChanges};
use super::tenant_counters::TenantCounters;
use super::{LinuxHost, inventory, shown, tenant_counters};
use crate::resctrl::CacheInfo;
use crate::tenants::Tenant;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_host::{GroupCounters, Priority, Reading};
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
struct Present {
    /// Its description as it is in force.
    has: Tenant,
    counters: TenantCounters,
}

/// The present and the refused tenants.
#[derive(Debug, Default)]
pub(super) struct TenantSet {
    present: BTreeMap<GroupId, Present>,
    refused: BTreeMap<String, Refused>,
    calls: u64,
    next: u32,
    /// A tenant without cores was already reported.
    told_coreless: bool,
}

impl TenantSet {
    /// What a tenant's cores have counted.
    pub fn read(&mut self, id: GroupId, now: impl Fn(CoreId) -> GroupCounters) -> GroupCounters {
        let present = self.present.get_mut(&id);
        present.map_or(GroupCounters::all(Reading::Absent), |present| present.counters.read(now))
    }

    fn id(&self, name: &str) -> Option<GroupId> {
        self.present.iter().find(|(_, present)| present.has.name == name).map(|(id, _)| *id)
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
struct PlannedChanges {
    removed: Vec<GroupId>,
    changed: Vec<(GroupId, Tenant)>,
    added: Vec<(GroupId, Tenant)>,
}

impl LinuxHost {
    /// Sets the present tenants. Call it between steps, as often as wanted: without a difference it only looks at each
    /// tenant's processes.
    ///
    /// A new tenant gets a new id, even if it had the same name before. A refused tenant (another tenant's core,
    /// another tool's group, an unknown device) is listed in the answer; the others are not affected.
    pub fn set_tenants(&mut self, tenants: Vec<Tenant>) -> Changes {
        self.tenant_set.calls += 1;
        let mut changes = Changes::default();
        let planned = self.planned(&tenants, &mut changes);
        self.tenant_set.refused.retain(|name, _| tenants.iter().any(|tenant| tenant.name == *name));
        let corrects = self.correct && self.group_backend.is_wrong();
        let idle = planned.removed.is_empty() && planned.changed.is_empty() && planned.added.is_empty();
        if idle && !corrects && !self.group_backend.has_leftovers() {
            return changes;
        }
        let done = match self.group_backend.take_lock(false) {
            Err(why) => Err(why.to_string()),
            Ok(lock) => {
                if corrects {
                    self.group_backend.correct(lock.as_ref());
                }
                self.carry_out(planned, lock.as_ref(), &mut changes)
            }
        };
        if let Err(why) = done {
            changes.postponed = Some(why);
        }
        self.complaints.extend(self.group_backend.take_notes());
        changes
    }

    /// The refused tenants, and why.
    pub fn refused(&self) -> Vec<Refusal> {
        let refusal =
            |(name, refused): (&String, &Refused)| Refusal { tenant: name.clone(), why: refused.why.clone() };
        self.tenant_set.refused.iter().map(refusal).collect()
    }

    /// The classes that have tenants: the name of each resctrl group, and its tenants. Empty on an observed host.
    pub fn classes(&self) -> Vec<(String, Vec<GroupId>)> {
        match &self.group_backend {
            super::GroupBackend::Managed(groups, _) => groups.classes_with_tenants(),
            super::GroupBackend::Observed(_) => Vec::new(),
        }
    }

    /// Tenants without a class of service of their own: which tenants share it, and why.
    pub fn groupings(&self) -> Vec<Grouping> {
        self.group_backend.groupings()
    }

    /// Adds the tenants of the start. If one is refused, opening the host fails.
    pub(super) fn add_first_tenants(&mut self, tenants: Vec<Tenant>) -> Result<(), OpenError> {
        self.tenant_set.calls += 1;
        let mut changes = Changes::default();
        let planned = self.planned(&tenants, &mut changes);
        if planned.added.is_empty() && changes.refused.is_empty() {
            return Ok(());
        }
        let count = tenants.len();
        let lock = self.group_backend.take_lock(true)?;
        let refused = self.apply_changes(&planned, lock.as_ref(), &mut changes)?;
        drop(lock);
        if let Some((_, why)) = refused.into_iter().next() {
            return Err(OpenError::Groups(why));
        }
        if let Some(Refusal { tenant, why }) = changes.refused.into_iter().next() {
            return Err(OpenError::Tenant { tenant, why });
        }
        let free = self.group_backend.classes() - 1;
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
        self.notes.extend(self.group_backend.take_notes());
        Ok(())
    }

    /// Plans the changes, and refuses what can be refused without reading the machine.
    fn planned(&mut self, tenants: &[Tenant], changes: &mut Changes) -> PlannedChanges {
        let mut planned = PlannedChanges::default();
        let named = |name: &str| tenants.iter().any(|tenant| tenant.name == name);
        let present = self.tenant_set.present.iter();
        planned.removed = present.filter(|(_, own)| !named(&own.has.name)).map(|(id, _)| *id).collect();
        // A tenant keeps a core as long as its description lists it.
        let mut owners: BTreeMap<CoreId, String> = BTreeMap::new();
        for tenant in tenants {
            let Some(own) = self.tenant_set.id(&tenant.name).and_then(|id| self.tenant_set.present.get(&id))
            else {
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
            tenants.iter().partition(|tenant| self.tenant_set.id(&tenant.name).is_some());
        for tenant in old.into_iter().chain(new) {
            if !seen.insert(&tenant.name) {
                let why = "two tenants have this name; the second one is ignored".to_owned();
                changes.refused.push(Refusal { tenant: tenant.name.clone(), why });
                continue;
            }
            let id = self.tenant_set.id(&tenant.name);
            let is_quiet = id.is_some_and(|id| {
                let has = self.tenant_set.present.get(&id).is_some_and(|present| present.has == *tenant);
                has && !self.group_backend.needs_retry(id, &tenant.pids)
            });
            if is_quiet || self.tenant_set.has_to_wait(tenant) {
                continue;
            }
            let claimed = tenant.cores.cores().iter().find_map(|core| {
                let owner = owners.get(core).filter(|owner| **owner != tenant.name)?;
                Some(format!("{core} belongs to tenant {owner}; a core has one tenant"))
            });
            let checked = match claimed.or_else(|| self.restrictions.tenant(tenant)) {
                Some(why) => Err(why),
                None => {
                    inventory::group(&self.facts, &self.l3, GroupId(0), tenant).map_err(|why| why.to_string())
                }
            };
            match (checked, id) {
                (Ok(_), Some(id)) => planned.changed.push((id, tenant.clone())),
                (Ok(_), None) => {
                    let Some(next) = self.tenant_set.next.checked_add(1) else {
                        let why = "all tenant numbers have been used; restart waykeeper".to_owned();
                        self.tenant_set.refuse(tenant, why, changes);
                        continue;
                    };
                    planned.added.push((GroupId(self.tenant_set.next), tenant.clone()));
                    self.tenant_set.next = next;
                }
                (Err(why), id) => {
                    self.tenant_set.refuse(tenant, why, changes);
                    planned.changed.extend(id.and_then(|id| self.less(id, tenant)));
                    continue;
                }
            }
            for core in tenant.cores.cores() {
                owners.entry(*core).or_insert_with(|| tenant.name.clone());
            }
        }
        planned
    }

    /// The part of a tenant's present cores and processes that the new description still has, for when that is refused.
    fn less(&self, id: GroupId, asked: &Tenant) -> Option<(GroupId, Tenant)> {
        let has = &self.tenant_set.present.get(&id)?.has;
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
        planned: PlannedChanges,
        lock: Option<&ResctrlLock>,
        changes: &mut Changes,
    ) -> Result<(), String> {
        let done = self.change_places(planned, lock, changes);
        if let Some(why) = self.follow_cores() {
            self.complaints.push(why);
        }
        self.inventory.llc.clos_count = self.group_backend.classes();
        done
    }

    fn change_places(
        &mut self,
        planned: PlannedChanges,
        lock: Option<&ResctrlLock>,
        changes: &mut Changes,
    ) -> Result<(), String> {
        let PlannedChanges { removed, changed, added } = planned;
        let names: Vec<(GroupId, String)> = removed
            .iter()
            .filter_map(|id| Some((*id, self.tenant_set.present.get(id)?.has.name.clone())))
            .collect();
        // Tenants that wait for a class get one before new tenants do.
        let first = PlannedChanges { removed, changed, added: Vec::new() };
        let refused = self.apply_changes(&first, lock, changes).map_err(|why| why.to_string())?;
        changes.left.extend(names);
        for (id, why) in refused {
            if let Some((_, asked)) = first.changed.iter().find(|(own, _)| *own == id) {
                self.tenant_set.refuse(asked, why.to_string(), changes);
            }
        }
        self.promote(lock);
        let second = PlannedChanges { added, ..PlannedChanges::default() };
        if !second.added.is_empty() {
            let refused = self.apply_changes(&second, lock, changes).map_err(|why| why.to_string())?;
            for (id, why) in refused {
                if let Some((_, asked)) = second.added.iter().find(|(own, _)| *own == id) {
                    self.tenant_set.refuse(asked, why.to_string(), changes);
                }
            }
        }
        Ok(())
    }

    fn promote(&mut self, lock: Option<&ResctrlLock>) {
        let mut waiting = self.group_backend.waiting();
        if waiting.is_empty() {
            return;
        }
        let priority = |id: &GroupId| {
            self.tenant_set.present.get(id).is_none_or(|present| present.has.priority != Priority::High)
        };
        waiting.sort_by_key(|id| (priority(id), *id));
        self.group_backend.promote(&waiting, lock);
    }

    /// Makes the changes and updates the list of tenants.
    fn apply_changes(
        &mut self,
        planned: &PlannedChanges,
        lock: Option<&ResctrlLock>,
        changes: &mut Changes,
    ) -> Result<BTreeMap<GroupId, super::GroupsError>, super::GroupsError> {
        let turnover = TenantChanges {
            removed: planned.removed.clone(),
            changed: planned.changed.iter().map(|(id, tenant)| (*id, tenant)).collect(),
            added: planned.added.iter().map(|(id, tenant)| (*id, tenant)).collect(),
        };
        let refused = self.group_backend.apply_changes(&turnover, lock)?;
        for id in &planned.removed {
            self.tenant_set.present.remove(id);
            self.groups.retain(|group| group.id != *id);
        }
        for (id, tenant) in &planned.changed {
            let less = self.less(*id, tenant);
            let has = match (refused.contains_key(id), less) {
                (false, _) => tenant.clone(),
                (true, Some((_, less))) => less,
                (true, None) => continue,
            };
            if let Some(present) = self.tenant_set.present.get_mut(id) {
                present.has = has;
                changes.changed.push(*id);
            }
            self.show(*id);
        }
        for (id, tenant) in planned.added.iter().filter(|(id, _)| !refused.contains_key(id)) {
            let present = Present { has: tenant.clone(), counters: TenantCounters::default() };
            self.tenant_set.present.insert(*id, present);
            self.tenant_set.refused.remove(&tenant.name);
            changes.arrived.push(*id);
            self.show(*id);
        }
        Ok(refused)
    }

    /// Publishes the tenant's group in the host's list.
    fn show(&mut self, id: GroupId) {
        let Some(present) = self.tenant_set.present.get(&id) else { return };
        // It was checked when it was requested.
        let Ok(group) = inventory::group(&self.facts, &self.l3, id, &present.has) else { return };
        match self.groups.iter_mut().find(|own| own.id == id) {
            Some(own) => *own = group,
            None => self.groups.push(group),
        }
        if present.has.cores.is_empty() && !std::mem::replace(&mut self.tenant_set.told_coreless, true) {
            self.complaints.push(format!(
                "tenant {} has no cores of its own, so core counters are not read for it: other processes \
                 run on the same cores",
                present.has.name
            ));
        }
    }

    /// Counts the tenants' present cores. Returns why the journal refused, if it did.
    fn follow_cores(&mut self) -> Option<String> {
        let mut wanted = BTreeSet::new();
        let (mut gone, mut come) = (BTreeSet::new(), BTreeSet::new());
        for present in self.tenant_set.present.values() {
            wanted.extend(present.has.cores.cores().iter().copied());
            let before = present.counters.cores();
            gone.extend(without(&before, &present.has.cores));
            come.extend(without(&present.has.cores, &before));
        }
        let last = self.cores.count_some(&gone);
        // A core that changes its tenant is counted already; a new core starts from 0.
        let handed: BTreeSet<CoreId> = come.iter().copied().filter(|core| self.cores.has(*core)).collect();
        let (notes, refused) = self.cores.follow(&wanted, self.group_backend.journal());
        self.complaints.extend(notes);
        let now = self.cores.count_some(&handed);
        self.complaints.extend(last.problems().iter().chain(now.problems()).cloned());
        let events = self.events.as_ref();
        let base = |core: CoreId| match handed.contains(&core) {
            true => shown(events, &now, core),
            false => tenant_counters::NOTHING,
        };
        for present in self.tenant_set.present.values_mut() {
            present.counters.follow(&present.has.cores, |core| shown(events, &last, core), base);
        }
        refused
    }
}
