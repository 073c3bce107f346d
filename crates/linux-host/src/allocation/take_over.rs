//! Groups that the daemon before made and left to this one: they count as ours, with the tenants that were in them.
//!
//! The first tenants that are set are compared with them by name. A tenant that was there is placed where it is, so that the
//! plan has no step for it; groups without a tenant are removed as any other. Must not know how the mark of a hand-over is
//! kept.

use super::execute::Pass;
use super::placement::Slot;
use super::state::{Known, Maker};
use super::{Allocation, Class, GroupsError, Member, TenantChanges};
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_kernel::journal::HandedTenant;
use waykeeper_kernel::resctrl::Group;
use waykeeper_tenants::Tenant;
use waykeeper_units::{WayMask, WorkloadId};

/// What the daemon before left.
#[derive(Debug, Default)]
pub(super) struct HandedOver {
    /// Its tenants, until the first tenants of this daemon are set.
    awaited: Option<Vec<HandedTenant>>,
    /// The tenants of this daemon that were its tenants too.
    taken: BTreeSet<WorkloadId>,
}

impl Allocation {
    /// Takes these groups for our own, as far as they exist. Writes nothing.
    ///
    /// # Errors
    /// A group cannot be read.
    pub fn take_over(&mut self, groups: &[Group], tenants: &[HandedTenant]) -> Result<(), GroupsError> {
        for group in groups.iter().filter(|group| self.resctrl.has(group)) {
            let maker = Maker::Waykeeper(self.resctrl.identity(group));
            let known = Known::read(maker, self.resctrl.cpus(group)?);
            let held = self.hold_group(group)?;
            self.held.insert(group.clone(), held);
            self.state.groups.insert(group.clone(), known);
        }
        let is_ours = |own: &&HandedTenant| own.group.is_default() || self.state.has_ours(&own.group);
        self.handed_over.awaited = Some(tenants.iter().filter(is_ours).cloned().collect());
        let control = self.resctrl.control_groups()?;
        let others = control.into_iter().filter(|group| !self.state.has_ours(group));
        self.limit_classes(others.collect());
        Ok(())
    }

    /// Whether the groups of the daemon before still wait for the first tenants.
    pub fn awaits_tenants(&self) -> bool {
        self.handed_over.awaited.is_some()
    }

    /// The tenants with their groups, for the next daemon.
    pub fn tenants_to_hand_over(&self) -> Vec<HandedTenant> {
        let place = |(id, member): (&WorkloadId, &Member)| {
            let group = self.group_of(self.placement.slot(*id))?.clone();
            Some(HandedTenant {
                name: member.tenant.name.clone(),
                id: Some(*id),
                group,
                leads: self.leads(*id),
            })
        };
        let present = || self.members.iter().filter(|(_, member)| member.left.is_none());
        self.handed_over.awaited.clone().unwrap_or_else(|| present().filter_map(place).collect())
    }

    /// The masks that tenants of the daemon before would have without both daemons, as far as they are not in the default
    /// group.
    pub fn masks_before(&self) -> BTreeMap<WorkloadId, WayMask> {
        let Some(mask) = self.root_mask() else { return BTreeMap::new() };
        let in_class = |id: &&WorkloadId| self.placement.slot(**id) != Slot::Default;
        self.handed_over.taken.iter().filter(in_class).map(|id| (*id, mask)).collect()
    }

    /// Places the tenants that the daemon before had where they are. Call it after an observation, before any step.
    pub(super) fn place_handed_over(&mut self, changes: &TenantChanges, pass: &Pass) {
        debug_assert!(pass.is_observed, "the CPUs of the groups are known");
        let Some(before) = self.handed_over.awaited.take() else { return };
        let name = |own: &HandedTenant| own.name.clone();
        let before: BTreeMap<String, HandedTenant> =
            before.into_iter().map(|own| (name(&own), own)).collect();
        for (id, tenant) in &changes.added {
            if let Some(place) = before.get(&tenant.name) {
                self.place_where_it_is(*id, tenant, place);
            }
        }
    }

    fn place_where_it_is(&mut self, id: WorkloadId, tenant: &Tenant, place: &HandedTenant) {
        let Some(slot) = self.slot_of(&place.group) else { return };
        let member = self.member(tenant);
        self.members.insert(id, member);
        // Another program has some of its CPUs or tasks: it is refused as a new tenant.
        if self.check_not_foreign(&[id]).is_err() {
            self.members.remove(&id);
            return;
        }
        if let Slot::Class(class) = slot {
            let own = || Class { group: place.group.clone(), leader: None };
            let class = self.classes.entry(class).or_insert_with(own);
            class.leader = class.leader.or(place.leads.then_some(id));
        }
        self.placement.arrive(id, slot);
        self.handed_over.taken.insert(id);
        self.find_processes(id);
    }

    /// The slot of a group; `None` if the group is gone, or no class may be used for it.
    fn slot_of(&self, group: &Group) -> Option<Slot> {
        if group.is_default() {
            return Some(Slot::Default);
        }
        let known = self.classes.iter().find(|(_, class)| class.group == *group);
        let class = known.map(|(number, _)| *number).or_else(|| self.placement.free());
        class.filter(|_| self.state.has_ours(group)).map(Slot::Class)
    }

    /// Records the tenant's processes that are in its group with all threads.
    fn find_processes(&mut self, id: WorkloadId) {
        let Some(class) = self.group_of(self.placement.slot(id)) else { return };
        let monitor = self.monitor_of(id).filter(|monitor| self.state.has_ours(monitor));
        let place = monitor.unwrap_or_else(|| class.clone());
        let Some(member) = self.members.get(&id).filter(|_| !place.is_default()) else { return };
        // Without an answer they are moved to where they may be already.
        let Ok(tasks) = self.resctrl.tasks(&place) else { return };
        let tasks: BTreeSet<u32> = tasks.into_iter().collect();
        let is_inside = |threads: Vec<u32>| threads.iter().all(|thread| tasks.contains(thread));
        for process in &member.processes {
            if process.threads(&self.root).is_ok_and(is_inside) {
                self.state.processes.insert(*process, Some(place.clone()));
            }
        }
    }
}
