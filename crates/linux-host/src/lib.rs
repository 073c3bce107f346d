//! The real host behind the seam: [`LinuxHost`], over the files of a kernel under any root prefix.
//!
//! The original value of a knob is journaled before the first write and restored when the host is closed or dropped.
//! After a crash the next start restores it. A knob that another program or person changed afterwards keeps that value.
//! What cannot be read is missing from the snapshot and reported once; it is never guessed. Must not know policies, nor
//! whether a kernel or the virtual host serves the files.

mod allocation;
mod backoff;
mod cores;
mod count;
mod devices;
mod error;
mod facts;
mod hand_over;
mod inventory;
mod io_knobs;
mod limits;
mod masks_behind;
mod platform;
pub mod profile;
mod recover;
mod tenant_counters;
mod tenant_set;
mod watch;

pub use allocation::{ExternalChange, Grouping, GroupsError};
pub use devices::{DeviceWatch, Near};
pub use error::OpenError;
pub use limits::{AllowedChanges, DcaLimit, HostAccess};
pub use recover::{adopt_orphans, restore_journal};
pub use tenant_set::{Changes, TenantRefusal};
pub use watch::ObservedPackage;

use allocation::{Allocation, AllocationReadings};
use cores::Cores;
use facts::Facts;
use hand_over::{HandedMemory, TakenOver};
use io_knobs::IoKnobs;
use limits::Restrictions;
use platform::Platform;
use profile::{MachineIdentity, MachineProfile, microcode};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;
use tenant_set::TenantSet;
use waykeeper_generations::Generation;
use waykeeper_host::{
    Applied, Host, HostError, Inventory, Knob, KnobOutcome, KnobSetting, Lines, Plan, PortCounters, Reading,
    Snapshot, SocketCounter, SocketCounters, Workload, WorkloadCounter, WorkloadCounters,
};
use waykeeper_kernel::counting::{CoreEventPlan, Counting, Counts};
use waykeeper_kernel::host_clock::HostClock;
use waykeeper_kernel::journal::{Journal, JournalError};
use waykeeper_kernel::registers::RegisterFiles;
use waykeeper_kernel::resctrl::{CacheInfo, Resctrl};
use waykeeper_kernel::restore::{Report, Restorer};
use waykeeper_kernel::root::Root;
use waykeeper_tenants::Tenant;
use waykeeper_units::{CoreId, WayMask};

/// Selects the managed L3. One waykeeper process manages one L3.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Managed {
    /// The L3 of the first online CPU of this socket.
    Socket(u16),
    /// The L3 of this id, as in resctrl's schemata.
    Domain(u32),
    /// The L3 of this CPU. If the CPU is offline, the default applies, as if no L3 were named.
    Cpu(CoreId),
}

/// Which entries of a journal are restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RestoreScope {
    /// Everything.
    All,
    /// Not those that a user set to stay (`ddio --keep`).
    Passing,
    /// The same after the end of a daemon: if it handed its knobs over, the first such restore leaves them to the next
    /// daemon.
    AfterDaemon,
}

/// Options of [`LinuxHost::open`].
#[derive(Clone, Debug)]
pub struct LinuxHostOptions {
    /// The root prefix.
    pub root: Root,
    /// The tenants at the start. [`LinuxHost::set_tenants`] adds and removes others.
    pub tenants: Vec<Tenant>,
    /// The journal's file.
    pub journal: PathBuf,
    /// The managed L3. `None` selects the L3 of the first tenant's first core, or of the lowest CPU if there are no
    /// tenants.
    pub managed: Option<Managed>,
    /// Whether the host is managed or only observed.
    pub access: HostAccess,
    /// Whether a host without L3 CAT is refused. One that is only observed has counters without it.
    pub needs_cat: bool,
    /// Knobs and CPUs that may be changed.
    pub limits: AllowedChanges,
    /// Whether changes by other programs to our resctrl groups are corrected, a few times each. Otherwise they are only
    /// reported. The control loop handles changed masks.
    pub correct: bool,
    /// A machine profile and its file. A profile of other hardware is reported and not used.
    pub profile: Option<(PathBuf, MachineProfile)>,
    /// Whether knobs are taken over that a daemon has left to the next one. Otherwise they are restored.
    pub takes_over: bool,
}

impl LinuxHostOptions {
    /// Options to manage a host, without limits.
    pub fn new(root: Root, tenants: Vec<Tenant>, journal: PathBuf) -> LinuxHostOptions {
        LinuxHostOptions {
            root,
            tenants,
            journal,
            managed: None,
            access: HostAccess::Manage,
            needs_cat: true,
            limits: AllowedChanges::default(),
            correct: false,
            profile: None,
            takes_over: false,
        }
    }
}

/// A host that Waykeeper manages or observes.
#[derive(Debug)]
pub struct LinuxHost {
    root: Root,
    facts: Facts,
    l3: Option<CacheInfo>,
    inventory: Inventory,
    groups: Vec<Workload>,
    tenant_set: TenantSet,
    /// What the daemon before has learnt, until it is asked for.
    memory: Option<HandedMemory>,
    allocation: Allocation,
    /// The originals of what is changed; `None` if the host is only observed.
    journal: Option<Journal>,
    restrictions: Restrictions,
    knobs: IoKnobs,
    counting: Box<dyn Counting>,
    cores: Cores,
    events: Option<CoreEventPlan>,
    /// When it was opened, on the system's clock.
    started: Duration,
    /// The clock of the counters, where it may be another than the system's.
    clock: Option<HostClock>,
    notes: Vec<String>,
    /// What cannot be proved since a journal was damaged or lost.
    unproved: Vec<String>,
    /// The problems of the last sample. A problem is reported again only after a sample without it.
    reported_problems: BTreeSet<String>,
    complaints: Vec<String>,
    /// Root port bytes come from counters so short that a wrap between two samples may go unnoticed.
    ports_wrap: bool,
    sampled_ns: Option<u64>,
    closed: bool,
}

/// Longest time between two readings of a 36-bit counter of 4-byte units, in ns: 2^38 bytes take 16 s at 17 GB/s, which
/// is more than 16 lanes of the fastest port of such a chip transfer (hardware.md 4.2; PCI Express 3.0).
const WRAP_NS: u64 = 16_000_000_000;

impl LinuxHost {
    /// Opens the host: restores what an earlier run left changed, makes the tenants' groups, starts counting. It
    /// changes no mask and no DCA knob except by that restore.
    ///
    /// # Errors
    /// If something required is missing or in use. What was made until then is undone.
    pub fn open(options: LinuxHostOptions) -> Result<LinuxHost, OpenError> {
        let Platform { mut facts, resctrl, info, l3 } = Platform::read(&options)?;
        let LinuxHostOptions { root, tenants, journal, access, limits, correct, profile, takes_over, .. } =
            options;
        tenant_set::check(&facts, l3.as_ref(), &tenants)?;
        let mounted = resctrl.check_mounted().is_ok().then_some(&resctrl);
        let observes = access != HostAccess::Manage;
        let most = if limits.masks { limits.max_classes } else { Some(0) };
        // Without a generation's table, and on an observed host, no register can be written.
        let may_program = access != HostAccess::Observe;
        let files = || RegisterFiles::new(&root, facts.generation.filter(|_| may_program));
        let ports = inventory::ports(&facts);
        let knobs = IoKnobs::open(
            files(),
            facts.generation,
            l3.as_ref().map_or(WayMask::EMPTY, |l3| l3.cbm_mask),
            (facts.socket, facts.reader),
            &ports,
            &root,
            !observes,
        );
        let mut restrictions = Restrictions::new(&limits, access, &facts);
        let (mut left, mut unproved) = (Vec::new(), Vec::new());
        let mut taken = None;
        let mut journal = match access {
            HostAccess::Observe => None,
            HostAccess::Manage | HostAccess::Count => {
                let mut journal = Journal::open(&journal, &root)?;
                let may_set = |knob| restrictions.refusal(knob).is_none();
                taken = takes_over
                    .then(|| TakenOver::of(&journal, facts.l3.as_ref().and_then(|l3| l3.id), &knobs, may_set))
                    .flatten()
                    .filter(|_| !observes);
                let mut leftovers = match &taken {
                    Some(taken) => taken.restore_rest(&root, &resctrl, &files(), &mut journal)?,
                    None => restore(&root, mounted, &files(), &mut journal)?,
                };
                if leftovers.is_complete() {
                    let known = journal.originals().to_vec();
                    recover::adopt(&root, mounted, &files(), &mut journal, &known, &mut leftovers)?;
                }
                if !leftovers.is_complete() {
                    let why = leftovers.failures().map(|(knob, why)| format!("{knob}: {why}"));
                    return Err(OpenError::Leftovers { why: why.collect::<Vec<_>>().join("; ") });
                }
                left.extend(leftovers.left().chain(leftovers.away()).chain(leftovers.adopted_groups()));
                unproved = leftovers.unproved;
                Some(journal)
            }
        };
        // Counters need no group.
        let groups = if observes { HostAccess::Observe } else { access };
        let opened =
            Allocation::open(resctrl.clone(), &info, &root, groups, facts.l3.as_ref(), most, correct);
        let opened = opened.and_then(|mut allocation| {
            taken.iter().try_for_each(|taken| allocation.take_over(&taken.groups, &taken.tenants))?;
            Ok(allocation)
        });
        let started = opened.map_err(OpenError::Groups).and_then(|allocation| {
            let started = count::start(&root, &facts, Some(facts.reader), journal.as_mut());
            Ok((allocation, started.map_err(OpenError::Counting)?))
        });
        let (allocation, (counting, counting_notes)) = match started {
            Ok(started) => started,
            Err(error) => {
                // What cannot be restored stays in the journal, for `waykeeper restore`.
                let _ = journal.map(|mut journal| restore(&root, mounted, &files(), &mut journal));
                return Err(error);
            }
        };
        let mut inventory = inventory::inventory(&facts, l3.as_ref(), allocation.class_count(), &knobs);
        restrictions.show(&mut inventory);
        let tenant_set =
            taken.as_ref().map_or_else(TenantSet::default, |taken| TenantSet::after(&taken.tenants));
        let memory = taken.as_mut().and_then(|taken| taken.memory.take());
        let mut notes: Vec<String> = left;
        notes.extend(info.strange.iter().map(ToString::to_string));
        notes.extend(l3.is_none().then(|| {
            let cpu = facts.reader.0;
            let what = format!("sys/devices/system/cpu/cpu{cpu}/cache");
            format!(
                "the kernel gives no ways of the L3 cache of CPU {cpu} ({what}), so no policy can plan here"
            )
        }));
        notes.extend(taken.map(|taken| taken.note()));
        if let Some((file, profile)) = profile {
            let checked = match inventory.llc {
                None => Err("the ways of the LLC are not known".to_owned()),
                Some(_) => profile
                    .check(&file, &MachineIdentity::of(&inventory, microcode(&root)))
                    .map_err(|why| why.to_string()),
            };
            match checked {
                Ok(()) => {
                    restrictions.use_profile(&profile, &mut inventory);
                    notes.push(format!("using machine profile {}", file.display()));
                }
                Err(why) => notes.push(format!("the machine profile is not used: {why}")),
            }
        }
        notes.append(&mut facts.notes);
        notes.extend(facts.without_root_port.iter().map(|(_, why)| why.clone()));
        notes.extend(counting_notes);
        notes.extend(counting.notes().iter().cloned());
        let clock = count::clock(&root, &facts, counting.as_ref());
        let cores = Cores::new(&root, facts.generation, counting.way() == "perf");
        let mut host = LinuxHost {
            inventory,
            groups: Vec::new(),
            tenant_set,
            memory,
            allocation,
            journal,
            restrictions,
            knobs,
            events: cores.events(),
            cores,
            counting,
            started: root.system().now(),
            clock,
            notes,
            unproved,
            reported_problems: BTreeSet::new(),
            complaints: Vec::new(),
            ports_wrap: facts.generation.is_some_and(has_short_counters),
            sampled_ns: None,
            closed: false,
            root,
            facts,
            l3,
        };
        // If this fails, `host` is dropped, which restores everything.
        host.add_first_tenants(tenants)?;
        Ok(host)
    }

    /// How long a thread may wait for something else before it must wait for `deadline_ns` of this host's clock.
    pub fn time_left(&self, deadline_ns: u64) -> Duration {
        self.root.system().time_left(self.at(deadline_ns))
    }

    /// A time of this host's clock on the system's clock.
    fn at(&self, clock_ns: u64) -> Duration {
        self.started.saturating_add(Duration::from_nanos(clock_ns))
    }

    /// Notes for the user: what is not counted, and why.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What cannot be proved about this host, because the journal of an earlier run was damaged or lost: a line each.
    pub fn unproved(&self) -> &[String] {
        &self.unproved
    }

    /// How events are counted: `perf` or `MSR`.
    pub fn counted_by(&self) -> &'static str {
        self.counting.way()
    }

    /// Whether the clock of the host's counters ran slower than the system's clock before the last sample.
    pub fn has_slow_clock(&self) -> bool {
        self.clock.as_ref().is_some_and(HostClock::is_slow)
    }

    /// What could not be read since the last call: file, value, reason. A problem that lasts is listed once.
    pub fn complaints(&mut self) -> Vec<String> {
        std::mem::take(&mut self.complaints)
    }

    /// Changes by other programs to our groups and to tenants' CPUs, as of the last sample.
    pub fn external_changes(&self) -> Vec<ExternalChange> {
        self.allocation.external_changes().cloned().collect()
    }

    /// Closes the host: restores every knob that Waykeeper changed, except those that another program changed since. A
    /// second call does nothing.
    ///
    /// # Errors
    /// If the journal cannot be removed. Knobs that could not be restored are in the report and stay in the journal.
    pub fn close(&mut self) -> Result<Report, JournalError> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(Report::default());
        }
        self.cores.close();
        self.counting.close();
        let Some(journal) = &mut self.journal else { return Ok(Report::default()) };
        self.allocation.forget_replaced(journal);
        // Knobs that another program changed since the last sample also keep its value. If the journal cannot record
        // this, the original is restored.
        self.knobs.detect_external_changes(journal, &mut Vec::new());
        restore(&self.root, Some(self.allocation.resctrl()), self.knobs.registers(), journal)
    }

    /// Stores the problems of a sample. Only those that the previous sample did not have are reported.
    fn complain(&mut self, problems: Vec<String>) {
        let now: BTreeSet<String> = problems.into_iter().collect();
        self.complaints.extend(now.difference(&self.reported_problems).cloned());
        self.reported_problems = now;
    }
}

fn restore(
    root: &Root,
    resctrl: Option<&Resctrl>,
    registers: &RegisterFiles,
    journal: &mut Journal,
) -> Result<Report, JournalError> {
    Restorer { root, resctrl, registers }.restore_passing(journal)
}

/// A core's counts. Cores have no occupancy.
fn shown(events: Option<&CoreEventPlan>, counts: &Counts, core: CoreId) -> WorkloadCounters {
    let all = events.map(|events| counts.group(events, &[core], Reading::Unsupported));
    all.unwrap_or(WorkloadCounters::all(Reading::Unsupported))
}

/// Whether the free-running counters of the PCIe stacks have fewer than 48 bits.
fn has_short_counters(generation: &Generation) -> bool {
    let free = generation.iio.as_ref().and_then(|iio| iio.free_running.as_ref());
    free.is_some_and(|free| free.width < 48)
}

/// MBM counts reads and writes as one number. It is reported as reads, so that the sum, which policies use, is right.
fn with_mbm(mut socket: SocketCounters, traffic: Reading<u64>) -> SocketCounters {
    let (read, written) = match (socket[SocketCounter::MemoryReadBytes], traffic) {
        (Reading::Unsupported, Reading::Value(bytes)) => (Reading::Value(bytes), Reading::Value(0)),
        (Reading::Unsupported, missing) => (missing, missing),
        _ => return socket,
    };
    socket[SocketCounter::MemoryReadBytes] = read;
    socket[SocketCounter::MemoryWriteBytes] = written;
    socket
}

impl Host for LinuxHost {
    fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    fn workloads(&self) -> Vec<Workload> {
        self.groups.clone()
    }

    fn sample(&mut self) -> Result<Snapshot, HostError> {
        let at_ns = self.now_ns();
        let from_ns = self.clock.as_mut().and_then(|clock| clock.sampled(at_ns));
        let mut counts = self.counting.count();
        self.cores.count(&mut counts);
        let counters_read = count::read_since(from_ns, self.clock.as_ref());
        let mut problems = counts.problems().to_vec();
        let mut groups = BTreeMap::new();
        self.look_behind_masks();
        let changes_groups = !self.allocation.only_observes();
        let AllocationReadings { masks, occupancies } =
            self.allocation.read(self.journal.as_mut().filter(|_| changes_groups), &mut problems);
        for group in &self.groups {
            let occupancy = occupancies.get(&group.id).copied().unwrap_or(Reading::Unsupported);
            let mut counters =
                self.tenant_set.read(group.id, |core| shown(self.events.as_ref(), &counts, core));
            counters[WorkloadCounter::OccupancyBytes] = occupancy;
            groups.insert(group.id, counters);
        }
        let socket = counts.socket();
        let socket = match socket[SocketCounter::MemoryReadBytes] {
            Reading::Unsupported => with_mbm(socket, self.allocation.traffic(&mut problems)),
            _ => socket,
        };
        let ports = self.inventory.ports.iter().map(|port| (port.id, counts.port(port.id.0)));
        let mut ports: BTreeMap<_, _> = ports.collect();
        let gap_ns = self.sampled_ns.replace(at_ns).map_or(0, |before| at_ns - before);
        if self.ports_wrap && gap_ns > WRAP_NS {
            let seconds = gap_ns / 1_000_000_000;
            problems.push(format!(
                "bytes of root ports are not known: within {seconds} s their counters may have wrapped more \
                 than once"
            ));
            ports.values_mut().for_each(|port| *port = PortCounters::all(Reading::Unavailable));
        }
        let knobs = self.knobs.read(&mut problems).with_masks(masks);
        if let Some(journal) = &mut self.journal {
            self.knobs.detect_external_changes(journal, &mut problems);
        }
        self.complaints.extend(self.allocation.take_notes());
        let blind = !groups.is_empty()
            && knobs.masks().next().is_none()
            && [WorkloadCounter::Cycles, WorkloadCounter::OccupancyBytes]
                .iter()
                .all(|counter| groups.values().all(|group| group[*counter].value().is_none()));
        let first = problems.first().cloned();
        self.complain(problems);
        if let (true, Some(why)) = (blind, first) {
            return Err(HostError::Failed { what: "reading this host".to_owned(), why });
        }
        Ok(Snapshot { at_ns, counters_read, groups, socket, ports, knobs })
    }

    fn partial_writes(&mut self) -> Lines {
        // Counting them would take counters from what policies read; `DeviceWatch` counts them.
        Lines::UNSUPPORTED
    }

    fn root_mask(&mut self) -> WayMask {
        self.allocation.root_mask().unwrap_or_else(|| WayMask::full(self.inventory.known_llc().ways))
    }

    fn apply(&mut self, plan: &Plan) -> Result<Applied, HostError> {
        let mut applied = Applied::default();
        let mut masks = BTreeMap::new();
        for (id, mask) in plan.masks() {
            let refusal = match self.groups.iter().any(|group| group.id == id) {
                true => self.restrictions.refusal(Knob::Mask(id)).map(str::to_owned),
                false => Some(format!("{id} does not exist")),
            };
            match refusal {
                Some(why) => applied.insert(Knob::Mask(id), KnobOutcome::Refused(why)),
                None => _ = masks.insert(id, mask),
            }
        }
        if let (false, Some(journal)) = (masks.is_empty(), &mut self.journal) {
            let outcomes = self.allocation.apply(&masks, journal).into_iter();
            applied.extend(outcomes.map(|(id, outcome)| (Knob::Mask(id), outcome)));
            self.complaints.extend(self.allocation.take_notes());
        }
        for KnobSetting { knob, setting } in plan.settings().filter(|wanted| wanted.knob.workload().is_none())
        {
            let refused = |why: &str| KnobOutcome::Refused(why.to_owned());
            let outcome = match (self.restrictions.refusal(knob), &mut self.journal, knob, setting) {
                (Some(why), ..) => refused(why),
                (_, None, ..) => refused("there is no journal"),
                (_, Some(journal), Knob::DcaWays | Knob::Dca(_), setting) => {
                    self.knobs.set(knob, setting, journal)
                }
                _ => refused("this host has no such knob"),
            };
            applied.insert(knob, outcome);
        }
        Ok(applied)
    }

    fn now_ns(&self) -> u64 {
        let passed = self.root.system().now().saturating_sub(self.started);
        u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX)
    }

    fn wait_until(&mut self, deadline_ns: u64) -> Result<(), HostError> {
        self.root.system().wait_until(self.at(deadline_ns)).map_err(|why| {
            let what = "waiting for the next interval".to_owned();
            HostError::Failed { what, why: why.to_string() }
        })
    }
}

impl Drop for LinuxHost {
    fn drop(&mut self) {
        // What cannot be restored stays in the journal, for the next start or `waykeeper restore`.
        let _ = self.close();
    }
}
