//! The tenants' places in resctrl: groups of ours, their CPUs and tasks, their masks, their occupancy.
//!
//! [`super::placement`] says who sits where; here it is done, each group journaled before it is made. Removing a group
//! gives its CPUs and tasks back to the default one, so a group that was not there is all that has to be remembered. Must
//! not know policies, nor any knob but masks.

use super::placement::{Placement, Seat};
use super::wording;
use crate::journal::{Journal, JournalError, Original};
use crate::resctrl::{
    Event, Group, HeldCount, HeldSchemata, Kind, Line, MonDomain, Resctrl, ResctrlError, Resource, Schemata,
    Setting,
};
use crate::root::Root;
use crate::tenants::Tenant;
use std::collections::BTreeMap;
use std::time::Duration;
use waykeeper_host::{KnobOutcome, Reading};
use waykeeper_units::{CoreId, CoreList, WayMask};

/// How long to wait for another tool's lock. Tools hold it for single changes, and a policy's step is a second.
const LOCK_WAIT: Duration = Duration::from_millis(500);

/// Why the tenants' places could not be made.
#[derive(Debug, thiserror::Error)]
pub enum GroupsError {
    /// A file of resctrl.
    #[error(transparent)]
    Resctrl(#[from] ResctrlError),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A tenant's CPUs or tasks are in somebody else's group.
    #[error(
        "{what} of tenant {tenant} are in the resctrl group {group}, which is not ours; another manager is at work \
         here. End it or take the tenant off its hands"
    )]
    Foreign {
        /// The tenant.
        tenant: String,
        /// `CPUs 0-3` or `tasks 17`.
        what: String,
        /// The group.
        group: String,
    },
}

/// One class of service of ours.
#[derive(Debug)]
struct Class {
    group: Group,
    held: HeldSchemata,
    traffic: Option<HeldCount>,
}

/// One tenant, as resctrl has to know it.
#[derive(Debug)]
struct Member {
    name: String,
    cpus: CoreList,
    pids: Vec<u32>,
    /// Its monitoring group, if it shares a class.
    monitor: Option<Group>,
    occupancy: Option<HeldCount>,
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
    /// Classes that nobody else holds, besides the default group's.
    free: usize,
    placement: Placement,
    members: Vec<Member>,
    classes: Vec<Option<Class>>,
    default: Class,
    /// Occupancy, and bytes between L3 and memory, are counted here.
    monitored: [bool; 2],
    notes: Vec<String>,
}

impl Groups {
    /// Finds the tenants in the default group and gives each a place: a class of its own, or with too few classes a
    /// monitoring group in the default group until its mask is another than that group's.
    ///
    /// # Errors
    /// If another manager has a tenant, or resctrl or the journal refuses.
    pub fn open(
        resctrl: Resctrl,
        root: &Root,
        domain: u32,
        tenants: &[Tenant],
        journal: &mut Journal,
    ) -> Result<Groups, GroupsError> {
        let info = resctrl.info()?;
        let ways = info.l3().map_or(WayMask::EMPTY, |l3| l3.cbm_mask);
        let foreign = resctrl.control_groups()?;
        let free = (info.limits().closids as usize).saturating_sub(1 + foreign.len());
        let counted = |event: &Event| info.monitoring.as_ref().is_some_and(|all| all.events.contains(event));
        let monitored = [counted(&Event::LlcOccupancy), counted(&Event::MbmTotal)];
        let member = |tenant: &Tenant| Member {
            name: tenant.name.clone(),
            cpus: tenant.cores.clone(),
            pids: tenant.pids.clone(),
            monitor: None,
            occupancy: None,
        };
        let default =
            Class { held: resctrl.hold_schemata(&Group::DEFAULT)?, group: Group::DEFAULT, traffic: None };
        let mut groups = Groups {
            domain,
            resources: info.l3_resources(),
            ways,
            free,
            placement: Placement::new(tenants.len(), free),
            members: tenants.iter().map(member).collect(),
            classes: Vec::new(),
            default,
            monitored,
            notes: Vec::new(),
            root: root.clone(),
            resctrl,
        };
        groups.default.traffic = groups.hold(&Group::DEFAULT, 1)?;
        groups.nobody_elses(&foreign)?;
        groups.keep_others_monitors(journal)?;
        let _lock = groups.resctrl.lock_exclusive(LOCK_WAIT)?;
        if groups.placement.is_own() {
            match groups.settle_own(journal) {
                // Fewer classes than the numbers said (io_alloc and pseudo-locked regions take some): share them.
                Err(GroupsError::Resctrl(error)) if error.kind == Kind::Exhausted => {
                    let made = groups.give_up_own(journal)?;
                    groups.free = made;
                    groups.placement = Placement::new(tenants.len(), made);
                }
                other => other?,
            }
        }
        if !groups.placement.is_own() {
            let free = groups.free;
            groups.classes.resize_with(free, || None);
            groups.notes.push(format!(
                "{} tenants and {free} free classes of service: tenants with equal masks share one",
                tenants.len()
            ));
            for tenant in 0..groups.members.len() {
                groups.monitor(tenant, &Group::DEFAULT, journal)?;
            }
        }
        Ok(groups)
    }

    /// What people should know.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The mount.
    pub fn resctrl(&self) -> &Resctrl {
        &self.resctrl
    }

    /// Classes that masks can have, the default group's and those that nobody needs included.
    pub fn classes(&self) -> u32 {
        self.free as u32 + 1
    }

    /// No tenant's CPU or task may be in a group that is not ours.
    fn nobody_elses(&self, foreign: &[Group]) -> Result<(), GroupsError> {
        for group in foreign {
            let theirs = self.resctrl.cpus(group)?;
            let tasks = if self.members.iter().all(|member| member.pids.is_empty()) {
                Vec::new()
            } else {
                self.resctrl.tasks(group)?
            };
            for member in &self.members {
                let cpus = both(&member.cpus, &theirs);
                let pids: Vec<&u32> = member.pids.iter().filter(|pid| tasks.contains(pid)).collect();
                let what = match (cpus.is_empty(), pids.first()) {
                    (false, _) => format!("CPUs {cpus}"),
                    (true, Some(pid)) => format!("tasks {pid}"),
                    (true, None) => continue,
                };
                return Err(GroupsError::Foreign {
                    tenant: member.name.clone(),
                    what,
                    group: group.to_string(),
                });
            }
        }
        Ok(())
    }

    /// Monitoring groups that others made in the default group lose the CPUs that move out of it: remembered, so that
    /// they get them back last of all.
    fn keep_others_monitors(&mut self, journal: &mut Journal) -> Result<(), GroupsError> {
        for group in self.resctrl.monitor_groups(&Group::DEFAULT)? {
            let cpus = self.resctrl.cpus(&group)?;
            if self.members.iter().any(|member| !both(&member.cpus, &cpus).is_empty()) {
                journal.record(&[Original::Cpus { group: group.clone(), cpus }])?;
                self.notes.push(format!(
                    "the monitoring group {group} of another tool is without its CPUs meanwhile"
                ));
            }
        }
        Ok(())
    }

    fn settle_own(&mut self, journal: &mut Journal) -> Result<(), GroupsError> {
        for tenant in 0..self.members.len() {
            let group = self.resctrl.own(&self.members[tenant].name)?;
            let class = self.make(group, journal)?;
            self.classes.push(Some(class));
            self.enter(tenant, tenant)?;
            self.members[tenant].occupancy = self.hold_of(tenant)?;
        }
        Ok(())
    }

    /// Takes back what a placement of own classes got to before classes ran out, and says how many there were.
    fn give_up_own(&mut self, journal: &mut Journal) -> Result<usize, GroupsError> {
        let mut made = 0;
        for class in std::mem::take(&mut self.classes).into_iter().flatten() {
            self.resctrl.remove(&class.group)?;
            journal.forget(&Original::NoGroup { group: class.group })?;
            made += 1;
        }
        Ok(made)
    }

    /// Makes a control group whose shares are those of the default group: so far nothing changes for who moves in.
    fn make(&self, group: Group, journal: &mut Journal) -> Result<Class, GroupsError> {
        let ours = Original::NoGroup { group: group.clone() };
        // A group that seemed gone and is not: it stays ours.
        let is_known = journal.originals().iter().any(|original| original.is_same_knob(&ours));
        journal.record(std::slice::from_ref(&ours))?;
        if let Err(error) = self.resctrl.create(&group) {
            if !is_known {
                journal.forget(&ours)?;
            }
            return Err(error.into());
        }
        let default = self.resctrl.schemata(&Group::DEFAULT)?;
        let fresh = self.resctrl.schemata(&group)?;
        let other = |line: &&Line| !fresh.differing(line).is_empty();
        let lines: Vec<Line> = default.lines.iter().filter(other).cloned().collect();
        if !lines.is_empty() {
            self.resctrl.set_schemata(&group, &lines)?;
        }
        Ok(Class { held: self.resctrl.hold_schemata(&group)?, traffic: self.hold(&group, 1)?, group })
    }

    /// A monitoring group for a tenant that shares a control group. Without a free RMID its occupancy is unknown.
    fn monitor(&mut self, tenant: usize, parent: &Group, journal: &mut Journal) -> Result<(), GroupsError> {
        self.members[tenant].occupancy = None;
        if !self.monitored[0] {
            return Ok(());
        }
        let name = format!("{}{}", self.resctrl.prefix(), self.members[tenant].name);
        let Ok(group) = parent.monitor(&name) else { return Ok(()) };
        let ours = Original::NoGroup { group: group.clone() };
        journal.record(std::slice::from_ref(&ours))?;
        if let Err(error) = self.resctrl.create(&group) {
            journal.forget(&ours)?;
            if matches!(error.kind, Kind::Exhausted | Kind::Busy) {
                let member = &self.members[tenant];
                self.notes.push(format!("the occupancy of {} is not known: {error}", member.name));
                return Ok(());
            }
            return Err(error.into());
        }
        self.resctrl.set_cpus(&group, &self.members[tenant].cpus)?;
        self.assign(tenant, &group)?;
        self.members[tenant].monitor = Some(group);
        self.members[tenant].occupancy = self.hold_of(tenant)?;
        Ok(())
    }

    /// Puts a tenant's CPUs and tasks into a class, beside those of the others there.
    fn enter(&mut self, tenant: usize, class: usize) -> Result<(), GroupsError> {
        let Some(Some(Class { group, .. })) = self.classes.get(class) else { return Ok(()) };
        let group = group.clone();
        let inside = |other: &usize| *other == tenant || self.placement.seat(*other) == Seat::Class(class);
        let all = (0..self.members.len())
            .filter(inside)
            .flat_map(|other| self.members[other].cpus.cores().to_vec());
        self.resctrl.set_cpus(&group, &CoreList::from(all.collect::<Vec<CoreId>>()))?;
        self.assign(tenant, &group)
    }

    /// Moves a tenant's tasks, every thread of every process of it. Those that ended are none of ours any more.
    fn assign(&mut self, tenant: usize, group: &Group) -> Result<(), GroupsError> {
        let mut tasks = Vec::new();
        for pid in &self.members[tenant].pids {
            let threads = self.root.list(format!("/proc/{pid}/task")).unwrap_or_default();
            tasks.extend(threads.iter().filter_map(|thread| thread.parse::<u32>().ok()));
        }
        if !tasks.is_empty() {
            self.resctrl.assign(group, &tasks)?;
        }
        Ok(())
    }

    /// Opens a counter of a group, 0 occupancy, 1 traffic.
    fn hold(&self, group: &Group, which: usize) -> Result<Option<HeldCount>, ResctrlError> {
        if !self.monitored[which] {
            return Ok(None);
        }
        let event = [Event::LlcOccupancy, Event::MbmTotal];
        self.resctrl.hold_count(group, MonDomain { l3: self.domain, node: None }, &event[which])
    }

    fn hold_of(&self, tenant: usize) -> Result<Option<HeldCount>, ResctrlError> {
        match (&self.members[tenant].monitor, self.placement.seat(tenant)) {
            (Some(monitor), _) => self.hold(monitor, 0),
            (None, Seat::Class(class)) => match self.classes.get(class) {
                Some(Some(class)) => self.hold(&class.group, 0),
                _ => Ok(None),
            },
            (None, Seat::Root) => Ok(None),
        }
    }

    fn class(&self, seat: Seat) -> Option<&Class> {
        match seat {
            Seat::Root => Some(&self.default),
            Seat::Class(class) => self.classes.get(class)?.as_ref(),
        }
    }

    /// The mask of a group as it reads now; a mask that cannot be is a complaint.
    fn mask(&self, class: &Class) -> Result<WayMask, String> {
        let place = || format!("resctrl group {}", class.group);
        let schemata = match class.held.read() {
            Err(error) => return Err(error.to_string()),
            Ok(None) => return Err(format!("{} is gone: somebody removed it", place())),
            Ok(Some(schemata)) => schemata,
        };
        self.mask_in(&schemata).map_err(|why| format!("{}: {why}", place()))
    }

    /// The managed domain's mask. With CDP it is the data half's: what devices and their readers share is data.
    fn mask_in(&self, schemata: &Schemata) -> Result<WayMask, String> {
        let resource = self.resources.last().ok_or("no L3 is shared out here")?;
        let setting = schemata.get(resource, self.domain);
        let mask = setting.and_then(Setting::mask);
        let mask =
            mask.ok_or_else(|| format!("its schemata has no mask for {resource} in domain {}", self.domain))?;
        if mask.minus(self.ways).is_empty() {
            return Ok(mask);
        }
        Err(format!("the mask {mask} has ways that the cache has not ({})", self.ways))
    }

    /// Every tenant's mask; those that cannot be read have a line in `problems` instead.
    pub fn masks(&self, problems: &mut Vec<String>) -> BTreeMap<usize, WayMask> {
        let mut known: BTreeMap<Seat, Option<WayMask>> = BTreeMap::new();
        let mut masks = BTreeMap::new();
        for (tenant, seat) in self.placement.seats().iter().enumerate() {
            let mask = *known.entry(*seat).or_insert_with(|| {
                let mask = self.class(*seat).map(|class| self.mask(class))?;
                mask.map_err(|why| problems.push(why)).ok()
            });
            if let Some(mask) = mask {
                masks.insert(tenant, mask);
            }
        }
        masks
    }

    /// A tenant's occupancy, bytes.
    pub fn occupancy(&self, tenant: usize, problems: &mut Vec<String>) -> Reading<u64> {
        match self.members.get(tenant).map(|member| &member.occupancy) {
            Some(Some(held)) => read(held, problems),
            _ if self.monitored[0] => Reading::Unavailable,
            _ => Reading::Unsupported,
        }
    }

    /// Bytes between L3 and memory of all classes, if that is counted (MBM). Devices' own traffic is not in it.
    pub fn traffic(&self, problems: &mut Vec<String>) -> Reading<u64> {
        let all = std::iter::once(&self.default).chain(self.classes.iter().flatten());
        let counts = all.filter_map(|class| class.traffic.as_ref()).map(|held| read(held, problems));
        counts.reduce(|sum, count| sum.zip_with(count, u64::wrapping_add)).unwrap_or(Reading::Unsupported)
    }

    /// Gives tenants masks, and says for each what came of it.
    pub fn apply(
        &mut self,
        wanted: &BTreeMap<usize, WayMask>,
        journal: &mut Journal,
    ) -> BTreeMap<usize, KnobOutcome> {
        let all = |outcome: KnobOutcome| wanted.keys().map(|tenant| (*tenant, outcome.clone())).collect();
        let lock = match self.resctrl.lock_exclusive(LOCK_WAIT) {
            Err(error) => return all(wording::refusal(&error)),
            Ok(lock) => lock,
        };
        let standing = self.masks(&mut Vec::new());
        let default = self.mask(&self.default).ok();
        let change = match self.placement.change(wanted, &standing, default) {
            Err(why) => return all(KnobOutcome::Refused(why.to_string())),
            Ok(change) => change,
        };
        let mut failed: BTreeMap<Seat, KnobOutcome> = BTreeMap::new();
        for (class, mask) in change.masks {
            match self.set(class, mask, journal) {
                Ok(()) => self.placement.done_mask(class, mask),
                Err(why) => {
                    failed.insert(Seat::Class(class), why);
                }
            }
        }
        let mut stuck = BTreeMap::new();
        for (tenant, seat) in change.moves {
            if failed.contains_key(&seat) {
                stuck.insert(tenant, failed[&seat].clone());
                continue;
            }
            match self.relocate(tenant, seat, journal) {
                Ok(()) => self.placement.done_move(tenant, seat),
                Err(why) => {
                    stuck.insert(tenant, wording::groups_refusal(&why));
                }
            }
        }
        drop(lock);
        let outcome = |tenant: &usize| {
            let own = stuck.get(tenant).or_else(|| failed.get(&self.placement.seat(*tenant)));
            (*tenant, own.cloned().unwrap_or(KnobOutcome::Applied))
        };
        wanted.keys().map(outcome).collect()
    }

    /// Gives a class a mask, in both halves with CDP. A class that somebody removed, or that was never needed before, is
    /// made.
    fn set(&mut self, class: usize, mask: WayMask, journal: &mut Journal) -> Result<(), KnobOutcome> {
        let lines: Vec<Line> = self
            .resources
            .iter()
            .map(|resource| Line::new(resource.clone(), vec![(self.domain, Setting::Mask(mask))]))
            .collect();
        if self.classes.get(class).is_none_or(Option::is_none) {
            self.make_class(class, journal).map_err(|why| wording::groups_refusal(&why))?;
        }
        let mut found = self.write(class, &lines);
        if found.as_ref().is_err_and(ResctrlError::is_gone) {
            self.make_class(class, journal).map_err(|why| wording::groups_refusal(&why))?;
            found = self.write(class, &lines);
        }
        let found = found.map_err(|error| wording::refusal(&error))?;
        match self.mask_in(&found) {
            Ok(now) if now == mask => Ok(()),
            Ok(now) => Err(KnobOutcome::ReadsBack(now.to_string())),
            Err(why) => Err(KnobOutcome::ReadsBack(why)),
        }
    }

    fn write(&self, class: usize, lines: &[Line]) -> Result<Schemata, ResctrlError> {
        match self.classes.get(class) {
            Some(Some(class)) => self.resctrl.set_schemata(&class.group, lines),
            _ => Ok(Schemata::default()),
        }
    }

    /// Makes the group of a class, anew if it was removed, with those in it who sit there.
    fn make_class(&mut self, class: usize, journal: &mut Journal) -> Result<(), GroupsError> {
        let own = self.placement.is_own().then(|| self.members.get(class)).flatten();
        let name = own.map_or_else(|| format!("class{class}"), |member| member.name.clone());
        let group = self.resctrl.own(&name)?;
        let made = self.make(group.clone(), journal)?;
        if let Some(slot) = self.classes.get_mut(class) {
            *slot = Some(made);
        }
        for tenant in 0..self.members.len() {
            if self.placement.seat(tenant) == Seat::Class(class) {
                self.enter(tenant, class)?;
                if self.placement.is_own() {
                    self.members[tenant].occupancy = self.hold_of(tenant)?;
                } else {
                    self.monitor(tenant, &group, journal)?;
                }
            }
        }
        Ok(())
    }

    /// Moves a tenant to another seat. Its lines keep their old RMID, so its occupancy starts anew there.
    fn relocate(&mut self, tenant: usize, seat: Seat, journal: &mut Journal) -> Result<(), GroupsError> {
        let old = self.placement.seat(tenant);
        self.members[tenant].occupancy = None;
        if let Some(monitor) = self.members[tenant].monitor.take() {
            match self.resctrl.remove(&monitor) {
                Err(error) if !error.is_gone() => {
                    self.members[tenant].monitor = Some(monitor);
                    return Err(error.into());
                }
                _ => journal.forget(&Original::NoGroup { group: monitor })?,
            }
        }
        let group = match seat {
            Seat::Class(class) => {
                self.enter(tenant, class)?;
                self.class(seat).map_or(Group::DEFAULT, |class| class.group.clone())
            }
            Seat::Root => {
                if let Some(class) = self.class(old).filter(|class| !class.group.is_default()) {
                    let group = class.group.clone();
                    let left = (0..self.members.len())
                        .filter(|other| *other != tenant && self.placement.seat(*other) == old)
                        .flat_map(|other| self.members[other].cpus.cores().to_vec());
                    self.resctrl.set_cpus(&group, &CoreList::from(left.collect::<Vec<CoreId>>()))?;
                }
                self.assign(tenant, &Group::DEFAULT)?;
                Group::DEFAULT
            }
        };
        self.monitor(tenant, &group, journal)
    }
}

fn both(a: &CoreList, b: &CoreList) -> CoreList {
    a.cores().iter().filter(|core| b.cores().contains(core)).copied().collect::<Vec<CoreId>>().into()
}

fn read(held: &HeldCount, problems: &mut Vec<String>) -> Reading<u64> {
    match held.read() {
        Ok(count) => count.reading(),
        Err(error) => {
            problems.push(error.to_string());
            Reading::Unavailable
        }
    }
}
