//! The tenants' places in resctrl: groups of ours, their CPUs and tasks, their masks, their occupancy.
//!
//! [`super::placement`] says who sits where; here it is done, each group journaled before it is made. Removing a group
//! gives its CPUs and tasks back to the default one, so a group that was not there is all that has to be remembered. Must
//! not know policies, nor any knob but masks.

mod reading;
mod tasks;
mod turning;

use super::placement::{Placement, Seat};
use crate::journal::{Journal, JournalError, Original};
use crate::resctrl::{
    Action, Event, Group, HeldCount, HeldSchemata, Kind, Line, MonDomain, Resctrl, ResctrlError, Resource,
};
use crate::root::{FileError, Root};
use crate::tenants::Tenant;
use std::time::Duration;
use tasks::Process;
use waykeeper_units::{CoreId, CoreList, WayMask};

/// How long to wait for another tool's lock. Tools hold it for single changes, and a policy's step is a second.
const LOCK_WAIT: Duration = Duration::from_millis(500);

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
    processes: Vec<Process>,
    /// Its monitoring group, if it shares a class.
    monitor: Option<Group>,
    /// Why it has none although it should.
    unwatched: Option<String>,
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
        // Held to the end: who takes a tenant's CPU after it was looked at would lose it again to us.
        let _lock = resctrl.lock_exclusive(LOCK_WAIT)?;
        let info = resctrl.info()?;
        let ways = info.l3().map_or(WayMask::EMPTY, |l3| l3.cbm_mask);
        let taken = resctrl.control_groups()?.len();
        let free = (info.limits().closids as usize).saturating_sub(1 + taken);
        let counted = |event: &Event| info.monitoring.as_ref().is_some_and(|all| all.events.contains(event));
        let monitored = [counted(&Event::LlcOccupancy), counted(&Event::MbmTotal)];
        let member = |tenant: &Tenant| Member {
            name: tenant.name.clone(),
            cpus: tenant.cores.clone(),
            processes: tenant.pids.iter().map(|pid| Process::find(root, *pid)).collect(),
            monitor: None,
            unwatched: None,
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
        groups.nobody_elses(|_| true)?;
        groups.keep_others_monitors(journal)?;
        if groups.placement.is_own() {
            match groups.settle_own(journal) {
                // Fewer classes than the numbers said (io_alloc and pseudo-locked regions take some): share them.
                // A file that cannot be written for lack of space is another matter.
                Err(GroupsError::Resctrl(error))
                    if error.kind == Kind::Exhausted && error.action == Action::Make =>
                {
                    groups.notes.push(error.to_string());
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
        self.free as u32 + 1
    }

    /// No CPU and no thread of these tenants may be in a control group that is not ours, and no thread in somebody's
    /// monitoring group of the default one either: that is the group it would leave. To be asked under the lock before
    /// each move.
    fn nobody_elses(&self, tenants: impl Fn(usize) -> bool) -> Result<(), GroupsError> {
        let foreign = |group: &Group| !self.resctrl.is_ours(group);
        let control = self.resctrl.control_groups()?;
        let monitors = self.resctrl.monitor_groups(&Group::DEFAULT)?;
        let mut asked = Vec::new();
        for (tenant, member) in self.members.iter().enumerate().filter(|(tenant, _)| tenants(*tenant)) {
            asked.push((member, self.threads(tenant)?));
        }
        let any_thread = asked.iter().any(|(_, threads)| !threads.is_empty());
        for group in control.iter().chain(&monitors).filter(|group| foreign(group)) {
            let theirs = if group.is_monitor() { CoreList::default() } else { self.resctrl.cpus(group)? };
            let tasks = if any_thread { self.resctrl.tasks(group)? } else { Vec::new() };
            for (member, threads) in &asked {
                let cpus = both(&member.cpus, &theirs);
                let what = match (cpus.is_empty(), threads.iter().find(|thread| tasks.contains(thread))) {
                    (false, _) => format!("CPUs {cpus}"),
                    (true, Some(thread)) => format!("tasks {thread}"),
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
        // All of them are others': ours are made later.
        for group in self.resctrl.monitor_groups(&Group::DEFAULT)? {
            let cpus = self.resctrl.cpus(&group)?;
            let ours = self.members.iter().flat_map(|member| both(&member.cpus, &cpus).cores().to_vec());
            let cpus = CoreList::from(ours.collect::<Vec<CoreId>>());
            if !cpus.is_empty() {
                // Only those: what its owner does with the others meanwhile is his business.
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
        self.create(&group, journal)?;
        let default = self.resctrl.schemata(&Group::DEFAULT)?;
        let fresh = self.resctrl.schemata(&group)?;
        let other = |line: &&Line| !fresh.differing(line).is_empty();
        let lines: Vec<Line> = default.lines.iter().filter(other).cloned().collect();
        if !lines.is_empty() {
            self.resctrl.set_schemata(&group, &lines)?;
        }
        Ok(Class { held: self.resctrl.hold_schemata(&group)?, traffic: self.hold(&group, 1)?, group })
    }

    /// Makes a group, or takes the one of ours that a step left behind which failed half way.
    fn create(&self, group: &Group, journal: &mut Journal) -> Result<(), GroupsError> {
        let ours = Original::NoGroup { group: group.clone() };
        let known = journal.originals().contains(&ours);
        journal.record(std::slice::from_ref(&ours))?;
        match self.resctrl.create(group) {
            Err(error) if error.kind == Kind::Exists && known => Ok(()),
            Err(error) => {
                if !known {
                    journal.forget(&ours)?;
                }
                Err(error.into())
            }
            Ok(()) => Ok(()),
        }
    }

    /// A monitoring group for a tenant that shares a control group. Without it the tenant's occupancy is unknown, which is
    /// no reason against a mask: it is told at the next sample.
    fn monitor(&mut self, tenant: usize, parent: &Group, journal: &mut Journal) -> Result<(), GroupsError> {
        self.members[tenant].occupancy = None;
        self.members[tenant].unwatched = None;
        if !self.monitored[0] {
            return Ok(());
        }
        match self.watch(tenant, parent, journal) {
            Err(GroupsError::Resctrl(why)) => {
                let why = format!("the occupancy of {} is not known: {why}", self.members[tenant].name);
                self.members[tenant].unwatched = Some(why);
                Ok(())
            }
            other => other,
        }
    }

    fn watch(&mut self, tenant: usize, parent: &Group, journal: &mut Journal) -> Result<(), GroupsError> {
        let name = format!("{}{}", self.resctrl.prefix(), self.members[tenant].name);
        let Ok(group) = parent.monitor(&name) else { return Ok(()) };
        self.create(&group, journal)?;
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
}

fn both(a: &CoreList, b: &CoreList) -> CoreList {
    a.cores().iter().filter(|core| b.cores().contains(core)).copied().collect::<Vec<CoreId>>().into()
}
