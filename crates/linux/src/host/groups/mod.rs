//! The tenants' places in resctrl: groups of ours, their CPUs and tasks, their masks, their occupancy.
//!
//! [`super::placement`] says who sits where; here it is done, each group journaled before it is made. Removing a group
//! gives its CPUs and tasks back to the default one, so a group that was not there is all that has to be remembered. Must
//! not know policies, nor any knob but masks.

mod coming;
mod disturbed;
mod gate;
mod others;
mod reading;
mod tasks;
mod turning;

pub use coming::{Grouping, Turnover};
pub use disturbed::Disturbance;
pub use gate::Passage;
pub use reading::mask_in;

use super::placement::{Placement, Seat};
use crate::journal::{Journal, JournalError, Original};
use crate::resctrl::{
    Event, Group, HeldCount, HeldCpus, HeldSchemata, Kind, Line, MonDomain, Resctrl, ResctrlError, Resource,
};
use crate::root::{FileError, Root};
use disturbed::Watchfulness;
use gate::Gate;
use reading::Traffic;
use std::collections::{BTreeMap, BTreeSet};
use tasks::Process;
use waykeeper_units::{CoreId, CoreList, GroupId, WayMask};

/// Why the tenants' places could not be made.
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
    /// A tenant's CPUs or tasks are in somebody else's group.
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
    /// What kept another tenant from its place keeps this one, too.
    #[error("{0}")]
    Beside(String),
}

/// One class of service of ours.
#[derive(Debug)]
struct Class {
    group: Group,
    held: HeldSchemata,
    cpus: HeldCpus,
    traffic: Option<HeldCount>,
}

/// One tenant, as resctrl has to know it.
#[derive(Debug)]
struct Member {
    name: String,
    cpus: CoreList,
    processes: Vec<Process>,
    /// Pids of which there was no process.
    missing: BTreeSet<u32>,
    /// Its monitoring group, if its class (or the default group) has or had others in it.
    monitor: Option<Group>,
    /// Why it has none although it should.
    unwatched: Option<String>,
    occupancy: Option<HeldCount>,
    /// Not all of its CPUs and tasks could be put where they belong: to be tried again.
    unsettled: bool,
    /// Not all of its tasks are known to be in its group.
    unplaced: bool,
    /// CPUs of it that somebody took out of its group, and that are left there.
    lost: CoreList,
    /// Its group, which somebody removed. It is left so, and the tenant in the default group as it is.
    left: Option<Group>,
}

/// What was the case when no class was left although the numbers said so.
#[derive(Debug)]
struct RanOut {
    /// How many we had.
    had: usize,
    /// How many others had.
    beside: usize,
    /// How often tenants may still change until it is tried again.
    rounds: u32,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Groups {
    resctrl: Resctrl,
    root: Root,
    /// Id of the managed L3.
    domain: u32,
    /// The L3, or its two halves with CDP.
    resources: Vec<Resource>,
    ways: WayMask,
    /// Classes of the chip that are not the default group's.
    closids: usize,
    /// Most that the operator lets us have of them.
    most: usize,
    /// Classes ran out before their number did.
    ran_out: Option<RanOut>,
    placement: Placement,
    members: BTreeMap<GroupId, Member>,
    /// Classes by number. Those that nobody sits in are there because they could not be removed.
    classes: BTreeMap<usize, Class>,
    /// Groups that were made here, with what tells each from a later one of its name.
    made: BTreeMap<Group, Option<u64>>,
    /// What others change is put right, a few times.
    corrects: bool,
    /// Groups of tenants that have left which could not be removed: to be tried again.
    leftovers: Vec<Group>,
    told_leftovers: BTreeSet<String>,
    default: Class,
    /// Occupancy, and bytes between L3 and memory, are counted here.
    monitored: [bool; 2],
    traffic: Traffic,
    watchfulness: Watchfulness,
    gate: Gate,
    notes: Vec<String>,
}

impl Groups {
    /// Looks at resctrl; nobody has a place yet.
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
            told_leftovers: BTreeSet::new(),
            default,
            monitored,
            traffic: Traffic::default(),
            watchfulness: Watchfulness::default(),
            gate: Gate::default(),
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

    /// What people should know since this was last asked.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// The mount.
    pub fn resctrl(&self) -> &Resctrl {
        &self.resctrl
    }

    /// Classes that masks can have, the default group's and those that nobody needs included.
    pub fn classes(&self) -> u32 {
        self.placement.limit() as u32 + 1
    }

    /// Counts the classes that nobody else holds, besides the default group's.
    fn count_classes(&mut self) -> Result<(), ResctrlError> {
        let control = self.resctrl.control_groups()?;
        let own = |group: &&Group| {
            self.classes.values().any(|class| class.group == **group) && !self.leftovers.contains(group)
        };
        let others = control.len() - control.iter().filter(own).count();
        let mut limit = self.closids.saturating_sub(others);
        // Fewer than the numbers say: io_alloc and pseudo-locked regions take some.
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

    /// Makes a control group whose shares are those of the default group: so far nothing changes for who moves in.
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

    /// Makes a group, or takes the one of ours that a step left behind which failed half way. Until it is made the journal
    /// only says that it is to be: somebody else may make one of this name, and that is his.
    fn create(&mut self, group: &Group, journal: &mut Journal) -> Result<(), GroupsError> {
        if self.is_ours(group) {
            return Ok(());
        }
        let planned = Original::Planned { group: group.clone() };
        journal.record(std::slice::from_ref(&planned))?;
        if let Err(error) = self.resctrl.create(group) {
            // What failed may have been done all the same: then the journal has to go on saying so.
            if error.kind == Kind::Exists || !self.resctrl.has(group) {
                self.made.remove(group);
                journal.forget(&planned)?;
            }
            return Err(error.into());
        }
        let identity = self.resctrl.identity(group);
        if let Err(why) = journal.replace(&Original::NoGroup { group: group.clone() }) {
            // Nobody is in it yet. If it stays, a restore finds it empty.
            let _ = self.resctrl.remove(group);
            return Err(why.into());
        }
        self.made.insert(group.clone(), identity);
        Ok(())
    }

    /// Whether the group that has this name now is one that was made here.
    fn is_ours(&self, group: &Group) -> bool {
        match (self.made.get(group), self.resctrl.identity(group)) {
            // Where it could not be told at first its name has to do.
            (Some(made), Some(now)) => made.is_none_or(|made| made == now),
            _ => false,
        }
    }

    /// Before the end: what others removed and made again under our names is theirs, and the journal must not say otherwise.
    pub fn forget_anothers(&mut self, journal: &mut Journal) {
        let others: Vec<Group> = self.made.keys().filter(|group| self.is_anothers(group)).cloned().collect();
        others.into_iter().for_each(|group| self.forget_group(group, journal));
    }

    /// Whether somebody removed a group that was made here and made another one of its name, which is his.
    fn is_anothers(&self, group: &Group) -> bool {
        self.made.contains_key(group) && self.resctrl.has(group) && !self.is_ours(group)
    }

    /// The name of a class that is made for a tenant: the tenant's, unless a group that it was made for before is still in
    /// use by others.
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

    /// Makes the group of a class under a tenant's name. Nobody is in it yet, and half of one does not stay.
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
                self.retire_half(group, journal);
                Err(why)
            }
        }
    }

    /// Makes a class for a tenant, and lets it in: it alone has the class's own RMID.
    fn found(&mut self, tenant: GroupId, class: usize, journal: &mut Journal) -> Result<(), GroupsError> {
        let group = self.name_class(tenant, class, journal)?;
        self.enter(tenant, class)?;
        let held = self.hold(&group, 0)?;
        if let Some(member) = self.members.get_mut(&tenant) {
            (member.occupancy, member.unwatched) = (held, None);
        }
        Ok(())
    }

    /// A monitoring group for a tenant that shares a control group. Without it the tenant's occupancy is unknown, which is
    /// no reason against a mask: it is told at the next sample.
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

    /// Puts a tenant's CPUs and tasks into a class, beside those of the others there. Nobody else's may be among them.
    fn enter(&mut self, tenant: GroupId, class: usize) -> Result<(), GroupsError> {
        let Some(Class { group, .. }) = self.classes.get(&class) else { return Ok(()) };
        let group = group.clone();
        let mut inside: Vec<GroupId> = self.placement.sitting(Seat::Class(class)).collect();
        inside.push(tenant);
        self.give_cpus(&group, &inside)?;
        self.assign(tenant, &group)
    }

    /// Gives a class the CPUs of these tenants. Those that others took from it stay where they are, and those that others
    /// put into it stay in it.
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

    /// Opens a counter of a group, 0 occupancy, 1 traffic.
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
