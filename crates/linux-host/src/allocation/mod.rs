//! Allocation: the tenants' classes of service, CPUs and tasks in resctrl, as a reconciler.
//!
//! `observe` reads the groups there are, [`desired`] says which there should be, [`plan`] is their difference, and
//! `execute` carries it out under resctrl's lock. A step that fails needs no memory: the groups still differ, so the
//! next plan has it again. An external change is a difference that no step of ours made.
//!
//! Each group is journaled before it is made. Removing it returns its CPUs and tasks to the default group, so the
//! journal only needs to record that it did not exist. On an observed host no step is taken, and other programs' groups
//! are read instead. Must not know policies, nor any knob but masks.

mod change_tenants;
mod desired;
mod execute;
mod external;
mod lock;
mod lost_tasks;
mod observe;
mod observed_host;
mod others;
mod placement;
mod plan;
mod presence;
mod reading;
mod remount;
mod retries;
mod rewrite;
mod set_masks;
mod state;
mod take_over;
mod tasks;
mod traffic;
mod wording;

pub use change_tenants::{Refused, TenantChanges, common_part};
pub use execute::Pass;
pub use external::ExternalChange;
use lock::ResctrlLock;
pub use reading::AllocationReadings;

use super::backoff::Backoff;
use super::limits::HostAccess;
use external::ExternalChanges;
use lock::LockState;
use placement::{ClassPlacement, Slot};
use presence::CpuPresence;
use remount::Mount;
use retries::{FailedSteps, Unwatched};
use serde::{Deserialize, Serialize};
use state::AllocationState;
use std::collections::{BTreeMap, BTreeSet};
use take_over::HandedOver;
use tasks::TenantProcess;
use traffic::Traffic;
use waykeeper_kernel::journal::JournalError;
use waykeeper_kernel::resctrl::{
    Group, HeldCount, HeldCpus, HeldSchemata, Info, MonDomain, MonitorEvent, PARTIAL_COUNTS, Resctrl,
    ResctrlError, Resource, ResourceSettings,
};
use waykeeper_kernel::root::{FileError, Root};
use waykeeper_kernel::topology::L3;
use waykeeper_tenants::Tenant;
use waykeeper_units::{CoreList, WayMask, WorkloadId, few};

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
    /// A mask was written, and this is in force.
    #[error("{0}")]
    ReadsBack(String),
    /// Another program removed the group, and the next sample decides about it.
    #[error("resctrl group {0} is gone: another program removed it")]
    Gone(Group),
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
}

/// A tenant that has no class of service of its own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Grouping {
    /// The tenant.
    pub tenant: String,
    /// Other tenants of the same class. If empty, the tenant is in the default group, with no other tenant.
    pub with: Vec<String>,
    /// It is in the default group.
    pub in_default: bool,
    /// Why it has no class of its own.
    pub why: String,
}

/// The managed L3, as resctrl describes it.
#[derive(Debug, Default)]
struct Chip {
    /// Id of the L3.
    domain: u32,
    /// The L3, or its code and data halves with CDP.
    resources: Vec<Resource>,
    ways: WayMask,
    /// Fewest ways of a mask.
    least_ways: u32,
    /// Mask registers of all classes: with CDP each class has one for code and one for data.
    registers: u32,
    /// Classes besides the default group's.
    closids: usize,
    /// RMIDs, of which each group has one; `None` without monitoring.
    rmids: Option<u32>,
    /// Without a mount, which only observation does without, there are no groups.
    is_mounted: bool,
    counts_occupancy: bool,
    counts_traffic: bool,
}

/// A tenant as it is in force, and what cannot be derived from it.
#[derive(Debug)]
struct Member {
    tenant: Tenant,
    processes: Vec<TenantProcess>,
    /// Pids for which no process was found.
    missing: BTreeSet<u32>,
    /// Why it has no monitoring group although it needs one.
    unwatched: Option<Unwatched>,
    /// Its group, which another program removed. It is not made again; the tenant is in the default group.
    left: Option<Group>,
}

/// A class of service that has tenants.
#[derive(Debug)]
struct Class {
    group: Group,
    /// The tenant that has the class's own RMID. The others have monitoring groups.
    leader: Option<WorkloadId>,
}

/// A group's files that are read at every interval.
#[derive(Debug, Default)]
struct Held {
    schemata: Option<HeldSchemata>,
    cpus: Option<HeldCpus>,
    traffic: Option<HeldCount>,
    occupancy: Option<HeldCount>,
    /// Our class's shares of what no policy sets, as they were when it was made or taken over.
    shares: Vec<ResourceSettings>,
}

/// The state when the kernel refused a new class although the limit allowed one.
#[derive(Debug)]
struct RanOut {
    /// Classes that we had.
    had: usize,
    /// Classes that other programs had.
    beside: usize,
    /// Number of counts of the classes until we retry.
    rounds: u32,
    /// The kernel's refusal.
    why: String,
    /// The groups of other programs, if they and ours have all RMIDs: then no class is made before one is free.
    rmid_holders: Option<Vec<String>>,
}

/// The tenants, their places, and what is known of resctrl.
#[derive(Debug)]
pub struct Allocation {
    resctrl: Resctrl,
    root: Root,
    access: HostAccess,
    chip: Chip,
    mount: Mount,
    /// Most classes that the operator allows.
    most: usize,
    /// Groups of other programs, each of which has a class.
    holders: Vec<String>,
    /// A class became free since waiting tenants were last served.
    has_freed_class: bool,
    /// When waiting tenants are served again, where a class could be made but not set up.
    promotion: Option<Backoff>,
    /// The kernel refused a class before the limit was reached.
    ran_out: Option<RanOut>,
    members: BTreeMap<WorkloadId, Member>,
    placement: ClassPlacement,
    classes: BTreeMap<usize, Class>,
    state: AllocationState,
    /// The number of the present round.
    round: u64,
    failed_steps: FailedSteps,
    presence: CpuPresence,
    /// CPUs of tenants that were offline and are online again, since they were last asked for.
    returned: CoreList,
    held: BTreeMap<Group, Held>,
    external: ExternalChanges,
    traffic: Traffic,
    lock_state: LockState,
    handed_over: HandedOver,
    /// Tenants of an observed host whose unknown occupancy was reported.
    reported: BTreeSet<String>,
    /// What notes were about, and the round in which the cause was last seen.
    noted: BTreeMap<String, u64>,
    notes: Vec<String>,
}

impl Allocation {
    /// Opens resctrl, without tenants. With `corrects`, external changes are corrected, a few times for each group.
    ///
    /// # Errors
    /// If resctrl refuses to be read.
    pub fn open(
        resctrl: Resctrl,
        info: &Info,
        root: &Root,
        access: HostAccess,
        l3: Option<&L3>,
        max_classes: Option<u32>,
        corrects: bool,
    ) -> Result<Allocation, GroupsError> {
        let domain = l3.and_then(|l3| l3.id);
        let counts_whole = l3.is_some_and(|l3| !resctrl.counts_only_a_part(l3));
        let counted =
            |event: &MonitorEvent| info.monitoring.as_ref().is_some_and(|all| all.events.contains(event));
        let chip = Chip {
            domain: domain.unwrap_or_default(),
            // Without an id of the L3 it is not known which values in a group's files are of this L3.
            is_mounted: domain.is_some() && resctrl.check_mounted().is_ok(),
            counts_occupancy: counts_whole && counted(&MonitorEvent::LlcOccupancy),
            counts_traffic: counts_whole && counted(&MonitorEvent::MbmTotal),
            ..Chip::default()
        };
        let mut allocation = Allocation {
            root: root.clone(),
            access,
            chip,
            mount: Mount::default(),
            most: max_classes.map_or(usize::MAX, |most| most as usize),
            holders: Vec::new(),
            has_freed_class: false,
            promotion: None,
            ran_out: None,
            members: BTreeMap::new(),
            placement: ClassPlacement::new(0),
            classes: BTreeMap::new(),
            state: AllocationState::default(),
            round: 0,
            failed_steps: FailedSteps::default(),
            presence: CpuPresence::default(),
            returned: CoreList::default(),
            held: BTreeMap::new(),
            external: ExternalChanges::new(corrects),
            traffic: Traffic::default(),
            lock_state: LockState::default(),
            handed_over: HandedOver::default(),
            reported: BTreeSet::new(),
            noted: BTreeMap::new(),
            notes: Vec::new(),
            resctrl,
        };
        allocation.begin_mount(info);
        if !counts_whole {
            let note =
                format!("LLC occupancy and memory traffic are not known for any tenant: {PARTIAL_COUNTS}");
            allocation.notes.push(note);
        }
        if access == HostAccess::Observe {
            allocation.begin_limit()?;
            return Ok(allocation);
        }
        if let (false, true, Some(monitoring)) =
            (allocation.chip.counts_occupancy, counts_whole, &info.monitoring)
        {
            let events: Vec<&str> = monitoring.events.iter().map(MonitorEvent::name).collect();
            allocation.notes.push(format!(
                "LLC occupancy is not known for any tenant: {} lists {}, but not {}",
                allocation.resctrl.mount_point().join("info/L3_MON/mon_features").display(),
                events.join(", "),
                MonitorEvent::LlcOccupancy.name()
            ));
        }
        allocation.hold_default()?;
        let strange = allocation.resctrl.schemata(&Group::DEFAULT).map(|schemata| schemata.strange);
        let schemata = allocation.resctrl.mount_point().join("schemata");
        let notes = strange.unwrap_or_default();
        let notes = notes.into_iter().map(|line| format!("{}: {}", schemata.display(), line.why));
        allocation.notes.extend(notes);
        allocation.begin_limit()?;
        Ok(allocation)
    }

    /// Notes for the user since the last call.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    pub fn resctrl(&self) -> &Resctrl {
        &self.resctrl
    }

    /// True if the host is only observed.
    pub fn only_observes(&self) -> bool {
        self.access == HostAccess::Observe
    }

    /// Number of classes for masks, including the default group's and unused ones.
    pub fn class_count(&self) -> u32 {
        u32::try_from(self.placement.limit() + 1).unwrap_or(u32::MAX)
    }

    /// True if the kernel refused a class although it had announced one.
    pub fn has_run_out(&self) -> bool {
        self.ran_out.is_some()
    }

    /// The present tenants, as they are in force.
    pub fn tenants(&self) -> impl Iterator<Item = (WorkloadId, &Tenant)> {
        self.members.iter().map(|(id, member)| (*id, &member.tenant))
    }

    /// A present tenant.
    pub fn tenant(&self, id: WorkloadId) -> Option<&Tenant> {
        self.members.get(&id).map(|member| &member.tenant)
    }

    /// The groups that have tenants, by name, with their tenants. The default group is named as resctrl's tools name
    /// it.
    pub fn classes_with_tenants(&self) -> Vec<(String, Vec<WorkloadId>)> {
        let own = self.classes.iter().map(|(number, class)| (Slot::Class(*number), &class.group));
        let all = std::iter::once((Slot::Default, &Group::DEFAULT)).chain(own);
        let occupants = all.map(|(slot, group)| {
            let name = if group.is_default() { "default" } else { group.name() };
            (name.to_owned(), self.placement.tenants_in(slot).collect::<Vec<_>>())
        });
        occupants.filter(|(_, tenants)| !tenants.is_empty()).collect()
    }

    /// The tenants without a class of their own: which tenants share it, and why.
    pub fn groupings(&self) -> Vec<Grouping> {
        let full = self.why_no_class();
        let shares = |tenant: WorkloadId| {
            let slot = self.placement.slot(tenant);
            let others = self.placement.tenants_in(slot).filter(|other| *other != tenant);
            let with: Vec<String> = others.map(|other| self.name(other).to_owned()).collect();
            let in_default = slot == Slot::Default;
            let why = match (in_default, with.is_empty()) {
                (false, true) => return None,
                (false, false) => format!("they have the same mask, and {full}"),
                (true, _) if self.removed_group(tenant).is_some() => {
                    "another program removed its class, and limits.outsiders says to leave it removed"
                        .to_owned()
                }
                (true, _) => full.clone(),
            };
            Some(Grouping { tenant: self.name(tenant).to_owned(), with, in_default, why })
        };
        self.placement.slots().filter_map(|(tenant, _)| shares(tenant)).collect()
    }

    /// Why a tenant has no class of its own: how many tenants have one, and which other groups hold the rest.
    fn why_no_class(&self) -> String {
        let limit = self.placement.limit();
        let no_rmid = self.ran_out.as_ref().and_then(|own| own.rmid_holders.as_ref());
        if let Some((holders, all)) = no_rmid.zip(self.chip.rmids) {
            let count = holders.len();
            return format!(
                "all {all} RMIDs are in use, and each class needs one; groups of other programs hold {count}: {}",
                few(holders)
            );
        }
        let mut why = format!("all {limit} classes of service for tenants are in use");
        if !self.holders.is_empty() {
            let (count, all) = (self.holders.len(), self.chip.closids);
            why.push_str(&format!(
                "; groups of other programs hold {count} of {all}: {}",
                few(&self.holders)
            ));
        }
        if let Some(ran_out) = &self.ran_out {
            why.push_str(&format!("; the last request was refused: {}", ran_out.why));
        }
        why
    }

    /// CPUs of tenants that were offline and are online again, since the last call. What counted on them may have stopped.
    pub fn take_returned(&mut self) -> CoreList {
        std::mem::take(&mut self.returned)
    }

    /// Looks at the tenants' CPUs: which are offline, and which are back. Returns those that are back.
    fn look_at_cpus(&mut self) -> CoreList {
        let all: Vec<WorkloadId> = self.members.keys().copied().collect();
        let returned = self.presence.look(&self.root, &self.cpus_of(&all));
        self.returned = self.returned.with(&returned);
        returned
    }

    fn name(&self, tenant: WorkloadId) -> &str {
        self.members.get(&tenant).map_or("", |member| &member.tenant.name)
    }

    /// The control group of a slot.
    fn group_of(&self, slot: Slot) -> Option<&Group> {
        match slot {
            Slot::Default => Some(&Group::DEFAULT),
            Slot::Class(class) => self.classes.get(&class).map(|class| &class.group),
        }
    }

    /// The monitoring group that a tenant has or would have in its control group; `None` if it has the class's RMID.
    fn monitor_of(&self, tenant: WorkloadId) -> Option<Group> {
        let name = format!("{}{}", self.resctrl.prefix(), self.name(tenant));
        let class = self.group_of(self.placement.slot(tenant)).filter(|_| !self.leads(tenant))?;
        class.monitor(&name).ok()
    }

    /// True if the tenant has the class's own RMID.
    fn leads(&self, tenant: WorkloadId) -> bool {
        self.classes.values().any(|class| class.leader == Some(tenant))
    }

    /// All CPUs of these tenants.
    fn cpus_of(&self, tenants: &[WorkloadId]) -> CoreList {
        let own = tenants.iter().filter_map(|tenant| self.tenant(*tenant));
        own.fold(CoreList::default(), |all, own| all.with(&own.cores))
    }

    /// Counts the classes that other programs have now, if they had some at the last count. True if a tenant waits for a
    /// class and one has become free, or if its last try is to be repeated.
    pub fn count_classes(&mut self) -> bool {
        if self.only_observes() {
            return false;
        }
        let is_full = !self.holders.is_empty() || self.ran_out.is_some();
        let list = || self.resctrl.check_mounted().and_then(|()| self.resctrl.control_groups());
        if let Some(Ok(control)) = is_full.then(list) {
            let own = |group: &Group| self.classes.values().any(|class| class.group == *group);
            let before = self.placement.limit();
            self.limit_classes(control.into_iter().filter(|group| !own(group)).collect());
            self.has_freed_class |= self.placement.limit() > before;
        }
        let is_due = self.promotion.is_some_and(|pause| !pause.waits(self.round));
        (self.has_freed_class || is_due) && !self.waiting().is_empty()
    }

    /// Sets the limit, given the groups of other programs: the chip's remaining classes besides the default group's.
    fn limit_classes(&mut self, mut others: Vec<Group>) {
        others.retain(|group| self.resctrl.has_class(group));
        let foreign = others.iter().filter(|group| !self.resctrl.is_ours(group));
        self.holders = foreign.map(Group::to_string).collect();
        let others = others.len();
        let mut limit = self.chip.closids.saturating_sub(others);
        let has_rmid = self.ran_out.as_ref().is_some_and(|own| own.rmid_holders.is_some())
            && self.rmid_holders().is_none();
        // Another program may have taken a class since, so there may be fewer than counted.
        if let Some(ran_out) = &mut self.ran_out {
            ran_out.rounds -= 1;
            match others >= ran_out.beside && ran_out.rounds > 0 && !has_rmid {
                true => limit = limit.min(ran_out.had),
                false => self.ran_out = None,
            }
        }
        self.placement.set_limit(limit.min(self.most));
    }

    /// The groups of other programs, each of which has an RMID, if no RMID is free. `None` also if that is not known.
    fn rmid_holders(&self) -> Option<Vec<String>> {
        let groups = self.resctrl.rmid_holders().ok()?;
        // The default group has one too.
        let is_full = groups.len() + 1 >= self.chip.rmids? as usize;
        let others = groups.iter().filter(|group| !self.resctrl.is_ours(group));
        is_full.then(|| others.map(Group::to_string).collect())
    }

    fn hold_occupancy(&self, group: &Group) -> Result<Option<HeldCount>, ResctrlError> {
        self.hold(group, &MonitorEvent::LlcOccupancy, self.chip.counts_occupancy)
    }

    fn hold_traffic(&self, group: &Group) -> Result<Option<HeldCount>, ResctrlError> {
        self.hold(group, &MonitorEvent::MbmTotal, self.chip.counts_traffic)
    }

    fn hold(
        &self,
        group: &Group,
        event: &MonitorEvent,
        is_counted: bool,
    ) -> Result<Option<HeldCount>, ResctrlError> {
        if !is_counted {
            return Ok(None);
        }
        self.resctrl.hold_count(group, MonDomain { l3: self.chip.domain, node: None }, event)
    }
}
