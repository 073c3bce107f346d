//! The tenants' places in resctrl: our groups, their CPUs and tasks, their masks, their occupancy.
//!
//! [`super::placement`] decides which class a tenant is in; this module makes the changes, and journals each group
//! before it makes it. Removing a group returns its CPUs and tasks to the default group, so the journal only needs to
//! record that the group did not exist. Must not know policies, nor any knob but masks.

mod external;
mod lock;
mod others;
mod reading;
mod set_masks;
mod tasks;
mod tenant_changes;

pub use external::ExternalChange;
pub use lock::ResctrlLock;
pub use reading::mask_in;
pub use tenant_changes::{Grouping, TenantChanges};

use super::placement::{Placement, Slot};
use crate::journal::{Journal, JournalError, Original};
use crate::resctrl::{
    Event, Group, HeldCount, HeldCpus, HeldSchemata, Kind, Line, MonDomain, Resctrl, ResctrlError, Resource,
};
use crate::root::{FileError, Root};
use external::ExternalChanges;
use lock::LockState;
use reading::Traffic;
use std::collections::{BTreeMap, BTreeSet};
use tasks::Process;
use waykeeper_units::{CoreId, CoreList, GroupId, WayMask};

/// Why the tenants' groups could not be made or changed.
#[derive(Debug, thiserror::Error)]
pub enum GroupsError {
    /// A file of resctrl.
    #[error(transparent)]
    Resctrl(#[from] ResctrlError),
    /// A file of a tenant's processes.
    #[error(transparent)]
    File(#[from] FileError),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A tenant's CPUs or tasks are in another program's group.
    #[error(
        "{what} of tenant {tenant} are in resctrl group {group}, which another program made; end that \
         program or stop it from managing the tenant"
    )]
    Foreign {
        /// The tenant.
        tenant: String,
        /// `CPUs 0-3` or `tasks 17`.
        what: String,
        /// The group.
        group: String,
    },
    /// An error with another tenant, which also affects this one.
    #[error("{0}")]
    Beside(String),
}

#[derive(Debug)]
struct Class {
    group: Group,
    held: HeldSchemata,
    cpus: HeldCpus,
    traffic: Option<HeldCount>,
}

/// A tenant's state in resctrl.
#[derive(Debug)]
struct Member {
    name: String,
    cpus: CoreList,
    processes: Vec<Process>,
    /// Pids for which no process was found.
    missing: BTreeSet<u32>,
    /// Its monitoring group, if it shares its class (or the default group) or has shared it.
    monitor: Option<Group>,
    /// Why it has no monitoring group although it needs one.
    unwatched: Option<String>,
    occupancy: Option<HeldCount>,
    /// Some of its CPUs or tasks could not be moved to its group; retried at the next call.
    retry: bool,
    /// Some of its tasks may be outside its group.
    unplaced: bool,
    /// CPUs of it that another program took out of its group and that stay there.
    lost: CoreList,
    /// Its group, which another program removed. It is not made again; the tenant is in the default group.
    left: Option<Group>,
}

/// The state when the kernel refused a new class although the limit allowed one.
#[derive(Debug)]
struct RanOut {
    /// Classes that we had.
    had: usize,
    /// Classes that other programs had.
    beside: usize,
    /// Number of tenant changes until we retry.
    rounds: u32,
}

#[derive(Debug)]
pub(super) struct Groups {
    resctrl: Resctrl,
    root: Root,
    /// Id of the managed L3.
    domain: u32,
    /// The L3, or its code and data halves with CDP.
    resources: Vec<Resource>,
    ways: WayMask,
    /// The chip's classes besides the default group's.
    closids: usize,
    /// Most of them that the operator allows.
    most: usize,
    /// The kernel refused a class before the limit was reached.
    ran_out: Option<RanOut>,
    placement: Placement,
    members: BTreeMap<GroupId, Member>,
    /// Classes by number. A class without tenants is one that could not be removed.
    classes: BTreeMap<usize, Class>,
    /// Groups that we made, each with the identity that distinguishes it from a later group of its name.
    made: BTreeMap<Group, Option<u64>>,
    /// Whether changes by other programs are corrected, a few times each.
    corrects: bool,
    /// Groups that are no longer needed but could not be removed; retried.
    leftovers: Vec<Group>,
    reported_leftovers: BTreeSet<String>,
    default: Class,
    /// Whether resctrl counts occupancy, and bytes between L3 and memory.
    monitored: [bool; 2],
    traffic: Traffic,
    external: ExternalChanges,
    lock_state: LockState,
    notes: Vec<String>,
}

impl Groups {
    /// Opens resctrl, without tenants.
    ///
    /// # Errors
    /// If resctrl refuses to be read.
    pub fn open(
        resctrl: Resctrl,
        root: &Root,
        domain: u32,
        max_classes: Option<u32>,
        corrects: bool,
    ) -> Result<Groups, GroupsError> {
        let info = resctrl.info()?;
        let ways = info.l3().map_or(WayMask::EMPTY, |l3| l3.cbm_mask);
        let counted = |event: &Event| info.monitoring.as_ref().is_some_and(|all| all.events.contains(event));
        let monitored = [counted(&Event::LlcOccupancy), counted(&Event::MbmTotal)];
        let default = Class {
            held: resctrl.hold_schemata(&Group::DEFAULT)?,
            cpus: resctrl.hold_cpus(&Group::DEFAULT)?,
            group: Group::DEFAULT,
            traffic: None,
        };
        let mut groups = Groups {
            domain,
            resources: info.l3_resources(),
            ways,
            closids: (info.limits().closids as usize).saturating_sub(1),
            most: max_classes.map_or(usize::MAX, |most| most as usize),
            ran_out: None,
            placement: Placement::new(0),
            members: BTreeMap::new(),
            classes: BTreeMap::new(),
            made: BTreeMap::new(),
            corrects,
            leftovers: Vec::new(),
            reported_leftovers: BTreeSet::new(),
            default,
            monitored,
            traffic: Traffic::default(),
            external: ExternalChanges::default(),
            lock_state: LockState::default(),
            notes: Vec::new(),
            root: root.clone(),
            resctrl,
        };
        if let (false, Some(monitoring)) = (monitored[0], &info.monitoring) {
            let events: Vec<&str> = monitoring.events.iter().map(Event::name).collect();
            groups.notes.push(format!(
                "LLC occupancy is not known for any tenant: {} lists {}, but not {}",
                groups.resctrl.mount_point().join("info/L3_MON/mon_features").display(),
                events.join(", "),
                Event::LlcOccupancy.name()
            ));
        }
        groups.default.traffic = groups.hold(&Group::DEFAULT, 1)?;
        groups.count_classes()?;
        Ok(groups)
    }

    /// Notes for the user since the last call.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    pub fn resctrl(&self) -> &Resctrl {
        &self.resctrl
    }

    /// Number of classes for masks, including the default group's and unused ones.
    pub fn classes(&self) -> u32 {
        self.placement.limit() as u32 + 1
    }

    /// Updates the limit: the chip's classes that no other program has, besides the default group's.
    fn count_classes(&mut self) -> Result<(), ResctrlError> {
        let control = self.resctrl.control_groups()?;
        let own = |group: &&Group| {
            self.classes.values().any(|class| class.group == **group) && !self.leftovers.contains(group)
        };
        let others = control.len() - control.iter().filter(own).count();
        let mut limit = self.closids.saturating_sub(others);
        // io_alloc and pseudo-locked regions take some classes, so there may be fewer than reported.
        if let Some(ran_out) = &mut self.ran_out {
            ran_out.rounds -= 1;
            match others >= ran_out.beside && ran_out.rounds > 0 {
                true => limit = limit.min(ran_out.had),
                false => self.ran_out = None,
            }
        }
        self.placement.set_limit(limit.min(self.most));
        Ok(())
    }

    /// Makes a control group with the default group's schemata, so that a tenant that moves in has the same shares as
    /// before.
    fn make(&mut self, group: Group, journal: &mut Journal) -> Result<Class, GroupsError> {
        self.create(&group, journal)?;
        let default = self.resctrl.schemata(&Group::DEFAULT)?;
        let fresh = self.resctrl.schemata(&group)?;
        let other = |line: &&Line| !fresh.differing(line).is_empty();
        let lines: Vec<Line> = default.lines.iter().filter(other).cloned().collect();
        if !lines.is_empty() {
            self.resctrl.set_schemata(&group, &lines)?;
        }
        self.traffic.begins(&group, self.shown(&group));
        Ok(Class {
            held: self.resctrl.hold_schemata(&group)?,
            cpus: self.resctrl.hold_cpus(&group)?,
            traffic: self.hold(&group, 1)?,
            group,
        })
    }

    /// Makes a group, or reuses our group of that name if a failed step left one. Until it exists the journal has it as
    /// planned only: if another program makes a group of that name first, it is that program's.
    fn create(&mut self, group: &Group, journal: &mut Journal) -> Result<(), GroupsError> {
        if self.is_ours(group) {
            return Ok(());
        }
        let planned = Original::Planned { group: group.clone() };
        journal.record(std::slice::from_ref(&planned))?;
        if let Err(error) = self.resctrl.create(group) {
            // The group may exist despite the error; then the journal must keep the entry.
            if error.kind == Kind::Exists || !self.resctrl.has(group) {
                self.made.remove(group);
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
        self.made.insert(group.clone(), identity);
        Ok(())
    }

    /// Whether the group with this name is the one that we made.
    fn is_ours(&self, group: &Group) -> bool {
        match (self.made.get(group), self.resctrl.identity(group)) {
            // If its identity could not be read when it was made, the name decides.
            (Some(made), Some(now)) => made.is_none_or(|made| made == now),
            _ => false,
        }
    }

    /// Before closing: groups that another program removed and made again under our names are that program's, so the
    /// journal drops them.
    pub fn forget_replaced(&mut self, journal: &mut Journal) {
        let others: Vec<Group> = self.made.keys().filter(|group| self.was_replaced(group)).cloned().collect();
        others.into_iter().for_each(|group| self.forget_group(group, journal));
    }

    /// Whether another program removed our group and made one with the same name.
    fn was_replaced(&self, group: &Group) -> bool {
        self.made.contains_key(group) && self.resctrl.has(group) && !self.is_ours(group)
    }

    /// The name of a new class for a tenant: the tenant's name, with a number if an earlier group of that name still
    /// has other tenants.
    fn name_for(&self, tenant: GroupId) -> Result<Group, ResctrlError> {
        let name = self.members.get(&tenant).map_or("", |member| member.name.as_str());
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

    /// Makes the group of a class, named after a tenant and still empty. A half-made group is removed.
    fn name_class(
        &mut self,
        tenant: GroupId,
        class: usize,
        journal: &mut Journal,
    ) -> Result<Group, GroupsError> {
        let group = self.name_for(tenant)?;
        match self.make(group.clone(), journal) {
            Ok(made) => {
                self.leftovers.retain(|other| *other != group);
                self.classes.insert(class, made);
                Ok(group)
            }
            Err(why) => {
                self.remove_partial_group(group, journal);
                Err(why)
            }
        }
    }

    /// Makes a class for a tenant and moves it in. Being alone, the tenant has the class's own RMID.
    fn found(&mut self, tenant: GroupId, class: usize, journal: &mut Journal) -> Result<(), GroupsError> {
        let group = self.name_class(tenant, class, journal)?;
        self.enter(tenant, class)?;
        let held = self.hold(&group, 0)?;
        if let Some(member) = self.members.get_mut(&tenant) {
            (member.occupancy, member.unwatched) = (held, None);
        }
        Ok(())
    }

    /// Makes a monitoring group for a tenant that shares a control group. If that fails the tenant's occupancy is
    /// unknown, which the next sample reports; masks can still be set.
    fn monitor(&mut self, tenant: GroupId, parent: &Group, journal: &mut Journal) -> Result<(), GroupsError> {
        let monitored = self.monitored[0];
        let Some(member) = self.members.get_mut(&tenant) else { return Ok(()) };
        member.occupancy = None;
        member.unwatched = None;
        if !monitored {
            return Ok(());
        }
        match self.watch(tenant, parent, journal) {
            Err(GroupsError::Resctrl(why)) => {
                if let Some(member) = self.members.get_mut(&tenant) {
                    member.unwatched =
                        Some(format!("the LLC occupancy of {} is not known: {why}", member.name));
                }
                Ok(())
            }
            other => other,
        }
    }

    fn watch(&mut self, tenant: GroupId, parent: &Group, journal: &mut Journal) -> Result<(), GroupsError> {
        let Some(member) = self.members.get(&tenant) else { return Ok(()) };
        let name = format!("{}{}", self.resctrl.prefix(), member.name);
        let cpus = member.cpus.clone();
        let Ok(group) = parent.monitor(&name) else { return Ok(()) };
        self.create(&group, journal)?;
        self.leftovers.retain(|other| *other != group);
        if !cpus.is_empty() {
            self.resctrl.set_cpus(&group, &cpus)?;
        }
        self.assign(tenant, &group)?;
        let held = self.hold(&group, 0)?;
        if let Some(member) = self.members.get_mut(&tenant) {
            (member.monitor, member.occupancy) = (Some(group), held);
        }
        Ok(())
    }

    /// Moves a tenant's CPUs and tasks into a class, beside those of its other tenants. The caller has checked that no
    /// other program has them.
    fn enter(&mut self, tenant: GroupId, class: usize) -> Result<(), GroupsError> {
        let Some(Class { group, .. }) = self.classes.get(&class) else { return Ok(()) };
        let group = group.clone();
        let mut inside: Vec<GroupId> = self.placement.tenants_in(Slot::Class(class)).collect();
        inside.push(tenant);
        self.give_cpus(&group, &inside)?;
        self.assign(tenant, &group)
    }

    /// Writes these tenants' CPUs into a group. CPUs that another program took from it stay where they are; CPUs that
    /// another program added stay in it.
    fn give_cpus(&self, group: &Group, tenants: &[GroupId]) -> Result<(), ResctrlError> {
        let there = self.resctrl.cpus(group)?;
        let has = |cpu: &CoreId| there.cores().contains(cpu);
        let members = tenants.iter().filter_map(|tenant| self.members.get(tenant));
        let own = members.flat_map(|member| {
            let kept = |cpu: &&CoreId| has(cpu) || !member.lost.cores().contains(cpu);
            member.cpus.cores().iter().filter(kept).copied().collect::<Vec<CoreId>>()
        });
        let mut cpus: Vec<CoreId> = own.collect();
        if cpus.iter().any(|cpu| !has(cpu)) {
            let others = self.others_cpus()?;
            cpus.retain(|cpu| has(cpu) || !others.cores().contains(cpu));
        }
        cpus.extend(self.added(group).cores());
        let cpus = CoreList::from(cpus);
        if cpus == there { Ok(()) } else { self.resctrl.set_cpus(group, &cpus) }
    }

    /// Opens a counter of a group: 0 is occupancy, 1 is traffic.
    fn hold(&self, group: &Group, which: usize) -> Result<Option<HeldCount>, ResctrlError> {
        if !self.monitored[which] {
            return Ok(None);
        }
        let event = [Event::LlcOccupancy, Event::MbmTotal];
        self.resctrl.hold_count(group, MonDomain { l3: self.domain, node: None }, &event[which])
    }
}

fn both(a: &CoreList, b: &CoreList) -> CoreList {
    a.cores().iter().filter(|core| b.cores().contains(core)).copied().collect::<Vec<CoreId>>().into()
}
