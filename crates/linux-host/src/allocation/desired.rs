//! Which groups there should be: each tenant in its class or in the default group, with a monitoring group where it
//! shares one. A pure function of the tenants, their places, and the decisions about external changes.
//!
//! CPUs that another program took from a group, or added to it, stay where they are unless the group is corrected.
//! Must not know how the groups came to be, nor which steps make them.

use super::state::AllocationState;
use super::tasks::TenantProcess;
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_kernel::resctrl::Group;
use waykeeper_units::{CoreList, WayMask, WorkloadId};

/// A tenant, as far as its groups depend on it.
#[derive(Clone, Debug)]
pub struct Occupant {
    pub id: WorkloadId,
    pub cpus: CoreList,
    pub processes: Vec<TenantProcess>,
    /// Its control group: a class or the default group.
    pub class: Group,
    /// Its monitoring group; `None` if it has the class's own RMID, or cannot be monitored.
    pub monitor: Option<Group>,
}

/// The decisions about external changes to one group's CPUs.
#[derive(Clone, Debug, Default)]
pub struct CpuDecision {
    /// All CPUs of its tenants are taken back, and added ones are returned.
    pub corrects: bool,
    /// CPUs that another program took out of it and that stay there.
    pub lost: CoreList,
    /// CPUs that another program added to it and that stay in it.
    pub added: CoreList,
}

/// What is wanted.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    pub occupants: Vec<Occupant>,
    /// Masks to write. A class with a mask exists even before a tenant is in it.
    pub masks: BTreeMap<Group, WayMask>,
    /// Classes that stay, if they exist, although no tenant is in them.
    pub kept: BTreeSet<Group>,
    pub decisions: BTreeMap<Group, CpuDecision>,
}

/// The groups that there should be.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Desired {
    /// Our control groups and monitoring groups, with exactly these CPUs.
    pub groups: BTreeMap<Group, CoreList>,
    /// CPUs that the default group must have. It also has those that are in no other group.
    pub default: CoreList,
    pub masks: BTreeMap<Group, WayMask>,
    /// The tenants' processes by group. All others are in the default group.
    pub processes: BTreeMap<(Group, WorkloadId), Vec<TenantProcess>>,
}

/// The groups for these wishes, given the present groups.
pub fn desired(wishes: &Wishes, state: &AllocationState) -> Desired {
    let mut desired = Desired { masks: wishes.masks.clone(), ..Desired::default() };
    let others = state.others_cpus();
    let kept = wishes.kept.iter().filter(|group| state.has_ours(group));
    let used = wishes.occupants.iter().map(|own| &own.class);
    let classes: BTreeSet<&Group> = used.chain(wishes.masks.keys()).chain(kept).collect();
    for class in classes {
        let inside = wishes.occupants.iter().filter(|own| own.class == *class);
        let own = inside.fold(CoreList::default(), |all, own| all.with(&own.cpus));
        let decision = wishes.decisions.get(class).cloned().unwrap_or_default();
        let cpus = match decision.corrects {
            true => own,
            false => {
                let there = state.cpus(class);
                let gone = decision.lost.with(&others).without(&there);
                own.without(&gone).with(&decision.added)
            }
        };
        match class.is_default() {
            true => desired.default = cpus,
            false => drop(desired.groups.insert(class.clone(), cpus)),
        }
    }
    for own in &wishes.occupants {
        let parent = match own.class.is_default() {
            true => Some(&desired.default),
            false => desired.groups.get(&own.class),
        };
        let cpus = parent.map(|parent| own.cpus.common(parent)).unwrap_or_default();
        let place = own.monitor.as_ref().unwrap_or(&own.class);
        if own.monitor.is_some() {
            desired.groups.insert(place.clone(), cpus);
        }
        if !own.processes.is_empty() && !place.is_default() {
            desired.processes.insert((place.clone(), own.id), own.processes.clone());
        }
    }
    desired
}
