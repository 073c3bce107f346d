//! Tenants that are added, removed and changed while a host is managed: the difference to the present ones, and its
//! outcome.
//!
//! A refusal does not affect other tenants. It is reported, and retried with backoff while the same tenant is
//! requested. Must not know how a tenant is found, nor how its groups are built.

use super::allocation::{Grouping, GroupsError, Refused, TenantChanges, common_part};
use super::backoff::Backoff;
use super::error::OpenError;
use super::facts::Facts;
use super::tenant_counters::TenantCounters;
use super::{LinuxHost, inventory, shown, tenant_counters};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_host::{Reading, WorkloadCounters};
use waykeeper_kernel::journal::HandedTenant;
use waykeeper_kernel::resctrl::CacheInfo;
use waykeeper_tenants::Tenant;
use waykeeper_units::{CoreId, CoreList, WorkloadId};

/// A tenant that was refused, or whose change was refused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct TenantRefusal {
    /// The tenant.
    pub tenant: String,
    /// The reason, and what would help.
    pub why: String,
}

/// The outcome of [`LinuxHost::set_tenants`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Changes {
    /// Added tenants.
    pub arrived: Vec<WorkloadId>,
    /// Removed tenants, with their names.
    pub left: Vec<(WorkloadId, String)>,
    /// Tenants whose cores, processes, devices or other properties changed.
    pub changed: Vec<WorkloadId>,
    /// Refused tenants, each once per reason.
    pub refused: Vec<TenantRefusal>,
    /// Why nothing was done; the next call retries.
    pub postponed: Option<String>,
}

impl Changes {
    /// True if there is nothing to report.
    pub fn is_empty(&self) -> bool {
        *self == Changes::default()
    }
}

/// A tenant that was refused.
#[derive(Debug)]
struct RefusedTenant {
    asked: Tenant,
    why: String,
    backoff: Backoff,
}

/// What the host keeps about its tenants besides their places.
#[derive(Debug, Default)]
pub(super) struct TenantSet {
    counters: BTreeMap<WorkloadId, TenantCounters>,
    refused: BTreeMap<String, RefusedTenant>,
    /// Number of calls of [`LinuxHost::set_tenants`].
    round: u64,
    next: u32,
    /// The numbers that tenants had in the daemon before, until the first tenants are set: what that one has learnt names
    /// them by these.
    numbers: BTreeMap<String, WorkloadId>,
    /// Tenants were placed, and their cores are not counted yet.
    has_other_cores: bool,
    /// A tenant without cores was already reported.
    reported_coreless: bool,
}

impl TenantSet {
    /// The set of a daemon to which another has left these tenants. They get new numbers if two have the same.
    pub fn after(tenants: &[HandedTenant]) -> TenantSet {
        let numbers: BTreeMap<String, WorkloadId> =
            tenants.iter().filter_map(|tenant| Some((tenant.name.clone(), tenant.id?))).collect();
        let different: BTreeSet<&WorkloadId> = numbers.values().collect();
        let next = different.last().map_or(Some(0), |last| last.0.checked_add(1));
        match next.filter(|_| different.len() == tenants.len()) {
            Some(next) => TenantSet { next, numbers, ..TenantSet::default() },
            None => TenantSet::default(),
        }
    }

    /// The number of a new tenant; `None` if all have been used.
    fn number(&mut self, name: &str) -> Option<WorkloadId> {
        if let Some(number) = self.numbers.get(name) {
            return Some(*number);
        }
        let number = WorkloadId(self.next);
        self.next = self.next.checked_add(1)?;
        Some(number)
    }

    /// What a tenant's cores have counted.
    pub fn read(&mut self, id: WorkloadId, now: impl Fn(CoreId) -> WorkloadCounters) -> WorkloadCounters {
        let counters = self.counters.get_mut(&id);
        counters.map_or(WorkloadCounters::all(Reading::Absent), |counters| counters.read(now))
    }

    fn refuse(&mut self, asked: &Tenant, why: String, changes: &mut Changes) {
        let before = self.refused.get(&asked.name).filter(|before| before.asked == *asked);
        let backoff = Backoff::after(before.map(|before| before.backoff), self.round);
        if before.is_none_or(|before| before.why != why) {
            changes.refused.push(TenantRefusal { tenant: asked.name.clone(), why: why.clone() });
        }
        self.refused.insert(asked.name.clone(), RefusedTenant { asked: asked.clone(), why, backoff });
    }

    /// Whether the same request was refused and its backoff has not passed.
    fn has_to_wait(&self, asked: &Tenant) -> bool {
        let refused = self.refused.get(&asked.name);
        refused.is_some_and(|refused| refused.asked == *asked && refused.backoff.waits(self.round))
    }
}

/// Checks tenants against this host, before anything is changed.
///
/// # Errors
/// The first tenant that is not possible.
pub(super) fn check(facts: &Facts, l3: Option<&CacheInfo>, tenants: &[Tenant]) -> Result<(), OpenError> {
    tenants.iter().try_for_each(|tenant| inventory::group(facts, l3, WorkloadId(0), tenant).map(|_| ()))
}

impl LinuxHost {
    /// Sets the present tenants. Call it between steps, as often as wanted: without a difference it only looks at each
    /// tenant's processes.
    ///
    /// A new tenant gets a new id, even if it had the same name before. A refused tenant (another tenant's core,
    /// another tool's group, an unknown device) is listed in the answer; the others are not affected.
    pub fn set_tenants(&mut self, tenants: Vec<Tenant>) -> Changes {
        let changes = self.place_tenants(tenants);
        self.count_tenants();
        changes
    }

    /// The first half of [`LinuxHost::set_tenants`]: when it returns, the tenants' processes are in their groups.
    pub fn place_tenants(&mut self, tenants: Vec<Tenant>) -> Changes {
        self.begin_round();
        let mut changes = Changes::default();
        self.count_returned_cores();
        let planned = self.planned(&tenants, &mut changes);
        self.tenant_set.refused.retain(|name, _| tenants.iter().any(|tenant| tenant.name == *name));
        let takes_over = self.allocation.awaits_tenants();
        let may_promote = self.allocation.count_classes();
        self.note_classes();
        if planned.is_empty() && !takes_over && !may_promote && self.allocation.is_settled() {
            // What failed before is in force now.
            let is_present = |asked: &Tenant| self.allocation.tenants().any(|(_, tenant)| tenant == asked);
            self.tenant_set.refused.retain(|_, refused| !is_present(&refused.asked));
            return changes;
        }
        let mut refused = Refused::new();
        let done = self.change_tenants(&planned, takes_over, &mut refused, &mut changes);
        changes.postponed = done.err().map(|why| why.to_string());
        for (id, why) in refused {
            let mut all = planned.changed.iter().chain(&planned.added);
            if let Some((_, asked)) = all.find(|(own, _)| *own == id) {
                self.tenant_set.refuse(asked, why.to_string(), &mut changes);
            }
        }
        self.tenant_set.has_other_cores = true;
        self.note_classes();
        self.complaints.extend(self.allocation.take_notes());
        changes
    }

    /// Publishes how many classes there are for masks.
    fn note_classes(&mut self) {
        let classes = self.allocation.class_count();
        if let Some(llc) = &mut self.inventory.llc {
            llc.clos_count = classes;
        }
    }

    /// The second half: counts on the tenants' present cores. It writes to each new core's registers and to the journal,
    /// for which a container that starts need not wait.
    pub fn count_tenants(&mut self) {
        if std::mem::take(&mut self.tenant_set.has_other_cores) {
            let refused = self.follow_cores();
            self.complaints.extend(refused);
        }
    }

    /// The refused tenants, and why.
    pub fn refused(&self) -> Vec<TenantRefusal> {
        let refusal = |(name, refused): (&String, &RefusedTenant)| TenantRefusal {
            tenant: name.clone(),
            why: refused.why.clone(),
        };
        self.tenant_set.refused.iter().map(refusal).collect()
    }

    /// The classes that have tenants: the name of each resctrl group, and its tenants. Empty on an observed host.
    pub fn classes(&self) -> Vec<(String, Vec<WorkloadId>)> {
        self.allocation.classes_with_tenants()
    }

    /// Tenants without a class of service of their own: which tenants share it, and why.
    pub fn groupings(&self) -> Vec<Grouping> {
        self.allocation.groupings()
    }

    /// Adds the tenants of the start. If one is refused, opening the host fails.
    pub(super) fn add_first_tenants(&mut self, tenants: Vec<Tenant>) -> Result<(), OpenError> {
        self.begin_round();
        let mut changes = Changes::default();
        let planned = self.planned(&tenants, &mut changes);
        if planned.added.is_empty() && changes.refused.is_empty() {
            return Ok(());
        }
        let count = tenants.len();
        let mut refused = Refused::new();
        self.change_tenants(&planned, true, &mut refused, &mut changes)?;
        if let Some((_, why)) = refused.pop_first() {
            return Err(OpenError::Groups(why));
        }
        if let Some(TenantRefusal { tenant, why }) = changes.refused.into_iter().next() {
            return Err(OpenError::Tenant { tenant, why });
        }
        let free = self.allocation.class_count() - 1;
        // If the kernel refused a class, that is reported already.
        if count > free as usize && !self.allocation.has_run_out() {
            self.notes.push(format!(
                "{count} tenants, but only {free} free classes of service: tenants with equal masks share a \
                 class"
            ));
        }
        if let Some(why) = self.follow_cores() {
            return Err(OpenError::Counting(why));
        }
        self.notes.append(&mut self.complaints);
        self.notes.extend(self.allocation.take_notes());
        Ok(())
    }

    /// A round begins: what failed in an earlier one is tried again when its pause is over.
    fn begin_round(&mut self) {
        self.tenant_set.round += 1;
        self.allocation.begin_round(self.tenant_set.round);
    }

    /// Plans the changes, and refuses what can be refused without reading the machine.
    fn planned(&mut self, tenants: &[Tenant], changes: &mut Changes) -> TenantChanges {
        let mut planned = TenantChanges::default();
        let is_new = |tenant: &&Tenant| {
            !tenant.cores.without(&self.facts.cpus).is_empty() && !self.tenant_set.has_to_wait(tenant)
        };
        if tenants.iter().any(|tenant| is_new(&tenant)) {
            self.facts.add_online_cpus(&self.root);
            self.inventory.cores = self.facts.cpus.cores().to_vec();
        }
        let named = |name: &str| tenants.iter().any(|tenant| tenant.name == name);
        let present: BTreeMap<String, (WorkloadId, Tenant)> = self
            .allocation
            .tenants()
            .map(|(id, tenant)| (tenant.name.clone(), (id, tenant.clone())))
            .collect();
        planned.removed = present.values().filter(|(_, own)| !named(&own.name)).map(|(id, _)| *id).collect();
        planned.removed.sort_unstable();
        // A tenant keeps a core as long as its description lists it.
        let mut owners: BTreeMap<CoreId, String> = BTreeMap::new();
        for tenant in tenants {
            let Some((_, has)) = present.get(&tenant.name) else { continue };
            for core in tenant.cores.common(&has.cores).cores() {
                owners.entry(*core).or_insert_with(|| tenant.name.clone());
            }
        }
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        // Present tenants first: if a present and a new tenant both claim a free core, the present one gets it.
        let (old, new): (Vec<&Tenant>, Vec<&Tenant>) =
            tenants.iter().partition(|tenant| present.contains_key(&tenant.name));
        for tenant in old.into_iter().chain(new) {
            if !seen.insert(&tenant.name) {
                let why = "two tenants have this name; the second one is ignored".to_owned();
                changes.refused.push(TenantRefusal { tenant: tenant.name.clone(), why });
                continue;
            }
            let own = present.get(&tenant.name);
            let is_quiet = own.is_some_and(|(id, has)| {
                has == tenant && !self.allocation.has_other_processes(*id, &tenant.pids)
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
                None => inventory::group(&self.facts, self.l3.as_ref(), WorkloadId(0), tenant)
                    .map_err(|why| why.to_string()),
            };
            match (checked, own) {
                (Ok(_), Some((id, _))) => planned.changed.push((*id, tenant.clone())),
                (Ok(_), None) => {
                    let Some(id) = self.tenant_set.number(&tenant.name) else {
                        let why = "all tenant numbers have been used; restart waykeeper".to_owned();
                        self.tenant_set.refuse(tenant, why, changes);
                        continue;
                    };
                    planned.added.push((id, tenant.clone()));
                }
                (Err(why), own) => {
                    self.tenant_set.refuse(tenant, why, changes);
                    // It gives up what the refused description no longer has.
                    let less = own.map(|(id, has)| (*id, common_part(has, tenant)));
                    planned.changed.extend(less.filter(|(_, less)| own.is_some_and(|(_, has)| has != less)));
                    continue;
                }
            }
            for core in tenant.cores.cores() {
                owners.entry(*core).or_insert_with(|| tenant.name.clone());
            }
        }
        planned
    }

    /// Makes the changes as far as possible, and publishes the tenants that are then there.
    fn change_tenants(
        &mut self,
        planned: &TenantChanges,
        at_start: bool,
        refused: &mut Refused,
        changes: &mut Changes,
    ) -> Result<(), GroupsError> {
        let has = |host: &LinuxHost, id: &WorkloadId| host.allocation.tenant(*id).cloned();
        let before: Vec<Option<Tenant>> = planned.changed.iter().map(|(id, _)| has(self, id)).collect();
        let done = self.change_places(planned, at_start, refused);
        self.end_hand_over();
        if !self.allocation.awaits_tenants() {
            self.tenant_set.numbers.clear();
        }
        for id in planned.removed.iter().filter(|id| self.allocation.tenant(**id).is_none()) {
            let group = self.groups.iter().find(|group| group.id == *id);
            changes.left.extend(group.map(|group| (*id, group.name.clone())));
            self.groups.retain(|group| group.id != *id);
            self.tenant_set.counters.remove(id);
        }
        for ((id, asked), before) in planned.changed.iter().zip(before) {
            let is_done = done.is_ok() && !refused.contains_key(id);
            if is_done {
                self.tenant_set.refused.remove(&asked.name);
            }
            if is_done || has(self, id) != before {
                changes.changed.push(*id);
                self.show(*id);
            }
        }
        for (id, tenant) in &planned.added {
            if self.allocation.tenant(*id).is_none() {
                continue;
            }
            self.tenant_set.counters.insert(*id, TenantCounters::default());
            self.tenant_set.refused.remove(&tenant.name);
            changes.arrived.push(*id);
            self.show(*id);
        }
        done
    }

    /// The same in resctrl, if the host is managed.
    fn change_places(
        &mut self,
        planned: &TenantChanges,
        at_start: bool,
        refused: &mut Refused,
    ) -> Result<(), GroupsError> {
        let Some(journal) = self.journal.as_mut().filter(|_| !self.allocation.only_observes()) else {
            self.allocation.record_changes(planned);
            return Ok(());
        };
        let lock = match at_start {
            true => self.allocation.take_lock_at_start()?,
            false => self.allocation.take_lock()?,
        };
        let mut pass = self.allocation.begin(lock, journal);
        self.allocation.change_tenants(planned, refused, &mut pass)
    }

    /// Publishes the tenant's group in the host's list.
    fn show(&mut self, id: WorkloadId) {
        let Some(tenant) = self.allocation.tenant(id) else { return };
        // It was checked when it was requested.
        let Ok(group) = inventory::group(&self.facts, self.l3.as_ref(), id, tenant) else { return };
        match self.groups.iter_mut().find(|own| own.id == id) {
            Some(own) => *own = group,
            None => self.groups.push(group),
        }
        if tenant.cores.is_empty() && !std::mem::replace(&mut self.tenant_set.reported_coreless, true) {
            self.complaints.push(format!(
                "tenant {} has no cores of its own, so core counters are not read for it: other processes \
                 run on the same cores",
                tenant.name
            ));
        }
    }

    /// What counts on a core stops when the core is switched off (perf's events end), so it is started again on a core that
    /// is back.
    fn count_returned_cores(&mut self) {
        let returned = self.allocation.take_returned();
        if !returned.is_empty() {
            let refused = self.follow_cores_except(&returned).or_else(|| self.follow_cores());
            self.complaints.extend(refused);
        }
    }

    /// Counts the tenants' present cores. Returns why the journal refused, if it did.
    fn follow_cores(&mut self) -> Option<String> {
        self.follow_cores_except(&CoreList::default())
    }

    /// The same without some cores.
    fn follow_cores_except(&mut self, except: &CoreList) -> Option<String> {
        let mut wanted = BTreeSet::new();
        let (mut gone, mut come) = (BTreeSet::new(), BTreeSet::new());
        for (id, tenant) in self.allocation.tenants() {
            let before = self.tenant_set.counters.get(&id).map(TenantCounters::cores).unwrap_or_default();
            let cores = tenant.cores.without(except);
            wanted.extend(cores.cores().iter().copied());
            gone.extend(before.without(&cores).cores().iter().copied());
            come.extend(cores.without(&before).cores().iter().copied());
        }
        let last = self.cores.count_some(&gone);
        // A core that changes its tenant is counted already; a new core starts from 0.
        let handed: BTreeSet<CoreId> = come.iter().copied().filter(|core| self.cores.has(*core)).collect();
        let (notes, refused) = self.cores.follow(&wanted, self.journal.as_mut());
        self.complaints.extend(notes);
        let now = self.cores.count_some(&handed);
        self.complaints.extend(last.problems().iter().chain(now.problems()).cloned());
        let events = self.events.as_ref();
        let base = |core: CoreId| match handed.contains(&core) {
            true => shown(events, &now, core),
            false => tenant_counters::NOTHING,
        };
        for (id, tenant) in self.allocation.tenants() {
            if let Some(counters) = self.tenant_set.counters.get_mut(&id) {
                counters.follow(&tenant.cores.without(except), |core| shown(events, &last, core), base);
            }
        }
        refused
    }
}
