//! The real host behind the seam: [`LinuxHost`], over the files of a kernel under any root prefix.
//!
//! Everything turned is journaled first and comes back when the host is closed or dropped; what a crash left turned
//! comes back at the next start; what somebody turned by hand to stay is how the host was found. What cannot be read is
//! told once and missing from the snapshot, never guessed. Must not know policies, nor who serves the files.

mod cores;
mod count;
mod devices;
mod error;
mod facts;
mod groups;
mod inventory;
mod io_knobs;
mod limits;
mod look;
mod members;
mod placement;
mod places;
mod tally;
mod watch;
mod wording;

pub use devices::{DeviceWatch, Near};
pub use error::OpenError;
pub use groups::{Disturbance, Grouping, GroupsError};
pub use limits::{Charge, DcaLimit, Limits};
pub use members::{Changes, Refusal};
pub use watch::Watch;

use crate::GROUP_PREFIX;
use crate::counting::{CoreEvents, Counting, Counts};
use crate::journal::{Journal, JournalError};
use crate::profile::{Identity, Profile, microcode};
use crate::registers::RegisterFiles;
use crate::resctrl::{CacheInfo, Resctrl};
use crate::restore::{Report, Restorer};
use crate::root::Root;
use crate::tenants::Tenant;
use cores::Cores;
use facts::Facts;
use groups::Groups;
use io_knobs::IoKnobs;
use limits::Bars;
use look::Looker;
use members::Members;
use places::Places;
use rustix::io::Errno;
use rustix::thread::ClockId;
use rustix::time::{Timespec, clock_gettime};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use waykeeper_generations::Generation;
use waykeeper_host::{
    Applied, Group, Host, HostError, Inventory, KnobOutcome, KnobValues, Plan, PortCounters, Reading,
    Snapshot, SocketCounters,
};
use waykeeper_units::{CoreId, GroupId, WayMask};

/// Which L3 is managed; one waykeeper manages one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Managed {
    /// The first L3 of this socket.
    Socket(u16),
    /// The L3 of this id, as in resctrl's schemata.
    Domain(u32),
    /// The one that this CPU has; if it is not online, as if none were named.
    Cpu(CoreId),
}

/// Where the host is and who runs on it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The root prefix.
    pub root: Root,
    /// The tenants there are from the beginning. Others come and go by [`LinuxHost::set_tenants`].
    pub tenants: Vec<Tenant>,
    /// The journal's file.
    pub journal: PathBuf,
    /// Which L3 is managed; `None`: that of the first tenant's first core, and without tenants that of the lowest CPU.
    pub managed: Option<Managed>,
    /// Whether it is managed or only looked at.
    pub charge: Charge,
    /// What may be touched.
    pub limits: Limits,
    /// Groups of ours that others change are put right, a few times; without it they are only told of. Masks are the
    /// control loop's business.
    pub correct: bool,
    /// A machine profile to go by, with the file it is from. One of other hardware is told of and left alone.
    pub profile: Option<(PathBuf, Profile)>,
}

impl Options {
    /// A host in our charge, with nothing configured.
    pub fn new(root: Root, tenants: Vec<Tenant>, journal: PathBuf) -> Options {
        Options {
            root,
            tenants,
            journal,
            managed: None,
            charge: Charge::Manage,
            limits: Limits::default(),
            correct: false,
            profile: None,
        }
    }
}

/// A host that is in our charge.
#[derive(Debug)]
pub struct LinuxHost {
    root: Root,
    facts: Facts,
    l3: CacheInfo,
    inventory: Inventory,
    groups: Vec<Group>,
    members: Members,
    places: Places,
    bars: Bars,
    correct: bool,
    knobs: IoKnobs,
    counting: Box<dyn Counting>,
    cores: Cores,
    events: Option<CoreEvents>,
    started: Timespec,
    notes: Vec<String>,
    /// What the last sample complained of, so that each complaint is made once in a row.
    standing: BTreeSet<String>,
    complaints: Vec<String>,
    /// Bytes of root ports are counted by registers so short that a wrap may pass unseen between two samples.
    ports_wrap: bool,
    sampled_ns: Option<u64>,
    closed: bool,
}

/// Most nanoseconds between two readings of a 36-bit counter of 4-byte units: 2^38 bytes take 16 s at 17 GB/s, more than
/// 16 lanes of the fastest port of such a chip bring (hardware.md 4.2; PCI Express 3.0).
const WRAP_NS: u64 = 16_000_000_000;

/// Nanoseconds of a second.
const SECOND_NS: i64 = 1_000_000_000;

impl LinuxHost {
    /// Takes charge: brings back what an earlier run left turned, gives the tenants their places, starts counting. No mask
    /// and no knob changes by it.
    ///
    /// # Errors
    /// Whatever is missing or in the way. All that was made until then is taken back.
    pub fn open(options: Options) -> Result<LinuxHost, OpenError> {
        let Options { root, tenants, journal, managed, charge, limits, correct, profile } = options;
        let first = tenants.iter().flat_map(|tenant| tenant.cores.cores().first()).next();
        let mut facts = Facts::read_managed(&root, managed, first.copied())?;
        let resctrl = Resctrl::open(&root, GROUP_PREFIX)?;
        let info = resctrl.info()?;
        let l3 = info.l3().ok_or(OpenError::NoCat)?.clone();
        members::check(&facts, &l3, &tenants)?;
        let looks = charge == Charge::Look;
        let most = if limits.masks { limits.max_classes } else { Some(0) };
        // Without a table no register can be written.
        let files = || RegisterFiles::new(&root, facts.generation.filter(|_| !looks));
        let mut left = Vec::new();
        let mut places = match charge {
            Charge::Look => Places::Theirs(Box::new(Looker::open(resctrl.clone(), facts.domain, most)?)),
            Charge::Manage => {
                let mut journal = Journal::open(&journal, &root)?;
                let leftovers = restore(&root, Some(&resctrl), &files(), &mut journal)?;
                if !leftovers.is_complete() {
                    let why = leftovers.failures().map(|(knob, why)| format!("{knob}: {why}"));
                    return Err(OpenError::Leftovers { why: why.collect::<Vec<_>>().join("; ") });
                }
                left.extend(leftovers.left().chain(leftovers.away()));
                let groups = Groups::open(resctrl.clone(), &root, facts.domain, most, correct)?;
                Places::Ours(Box::new(groups), Box::new(journal))
            }
        };
        let started = count::start(&root, &facts, Some(facts.reader), places.journal());
        let (counting, counting_notes) = match started {
            Ok(started) => started,
            Err(error) => {
                // What cannot be taken back stays in the journal, for `waykeeper restore`.
                let journal = places.journal();
                let _ = journal.map(|journal| restore(&root, Some(&resctrl), &files(), journal));
                return Err(OpenError::Counting(error));
            }
        };
        let ports = inventory::ports(&facts);
        let knobs = IoKnobs::open(
            files(),
            facts.generation,
            l3.cbm_mask,
            (facts.socket, facts.reader),
            &ports,
            &root,
            !looks,
        );
        let mut inventory = inventory::inventory(&facts, &l3, places.classes(), &knobs);
        let mut bars = Bars::new(&limits, charge, &facts);
        bars.show(&mut inventory);
        let mut notes: Vec<String> = left;
        if let Some((file, profile)) = profile {
            match profile.check(&file, &Identity::of(&inventory, microcode(&root))) {
                Ok(()) => {
                    bars.go_by(&profile, &mut inventory);
                    notes.push(format!("using machine profile {}", file.display()));
                }
                Err(error) => notes.push(format!("the machine profile is not used: {error}")),
            }
        }
        notes.append(&mut facts.notes);
        notes.extend(facts.homeless.iter().map(|(_, why)| why.clone()));
        notes.extend(counting_notes);
        notes.extend(counting.notes().iter().cloned());
        let cores = Cores::new(&root, facts.generation, counting.way() == "perf");
        let mut host = LinuxHost {
            inventory,
            groups: Vec::new(),
            members: Members::default(),
            places,
            bars,
            correct,
            knobs,
            events: cores.events(),
            cores,
            counting,
            started: clock_gettime(ClockId::Monotonic),
            notes,
            standing: BTreeSet::new(),
            complaints: Vec::new(),
            ports_wrap: facts.generation.is_some_and(has_short_counters),
            sampled_ns: None,
            closed: false,
            root,
            facts,
            l3,
        };
        // Dropped, it takes back what was made.
        host.settle_in(tenants)?;
        Ok(host)
    }

    /// What people should know about how this host is watched: what is not counted and why.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// How it is counted: `perf` or `MSR`.
    pub fn counted_by(&self) -> &'static str {
        self.counting.way()
    }

    /// What could not be read since this was last asked: file, value, reason; each once in a row.
    pub fn complaints(&mut self) -> Vec<String> {
        std::mem::take(&mut self.complaints)
    }

    /// What others did to groups of ours and to tenants' CPUs, as of the last sample.
    pub fn disturbances(&self) -> Vec<Disturbance> {
        self.places.disturbances()
    }

    /// Gives the host back: everything that was turned is as it was found.
    ///
    /// # Errors
    /// If the journal cannot be removed. What could not be brought back is in the report, and stays in the journal.
    pub fn close(&mut self) -> Result<Report, JournalError> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(Report::default());
        }
        self.cores.close();
        self.counting.close();
        let resctrl = self.places.resctrl().cloned();
        self.places.forget_anothers();
        let Some(journal) = self.places.journal() else { return Ok(Report::default()) };
        // Who turned a knob since the last sample has it, too. What cannot be noted comes back as it was before us.
        self.knobs.look_for_others(journal, &mut Vec::new());
        restore(&self.root, resctrl.as_ref(), self.knobs.registers(), journal)
    }

    /// Takes in what a sample could not read; only what is new is told.
    fn complain(&mut self, problems: Vec<String>) {
        let now: BTreeSet<String> = problems.into_iter().collect();
        self.complaints.extend(now.difference(&self.standing).cloned());
        self.standing = now;
    }

    fn read_knobs(&self, masks: BTreeMap<GroupId, WayMask>, problems: &mut Vec<String>) -> KnobValues {
        KnobValues {
            masks,
            dca_ways: self.knobs.ways(problems),
            dca: self.knobs.switches(problems),
            ..KnobValues::default()
        }
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

/// What a core shows, without an occupancy, which cores have not.
fn shown(events: Option<&CoreEvents>, counts: &Counts, core: CoreId) -> tally::Six {
    let all = events.map(|events| counts.group(events, &[core], Reading::Unsupported));
    all.map_or([Reading::Unsupported; 6], |counters| tally::six(&counters))
}

/// Whether the counters that run anyhow at the PCIe stacks have fewer bits than others.
fn has_short_counters(generation: &Generation) -> bool {
    let free = generation.iio.as_ref().and_then(|iio| iio.free_running.as_ref());
    free.is_some_and(|free| free.width < 48)
}

/// MBM counts reads and writes in one number; given as reads, the sum is right, which is what policies look at.
fn with_mbm(socket: SocketCounters, traffic: Reading<u64>) -> SocketCounters {
    match (socket.memory_read_bytes, traffic) {
        (Reading::Unsupported, Reading::Value(bytes)) => SocketCounters {
            memory_read_bytes: Reading::Value(bytes),
            memory_write_bytes: Reading::Value(0),
            ..socket
        },
        (Reading::Unsupported, missing) => {
            SocketCounters { memory_read_bytes: missing, memory_write_bytes: missing, ..socket }
        }
        _ => socket,
    }
}

impl Host for LinuxHost {
    fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    fn groups(&self) -> Vec<Group> {
        self.groups.clone()
    }

    fn sample(&mut self) -> Result<Snapshot, HostError> {
        let at_ns = self.now_ns();
        let mut counts = self.counting.count();
        self.cores.count(&mut counts);
        let mut problems = counts.problems().to_vec();
        let mut groups = BTreeMap::new();
        let look::Sight { masks, occupancies } = self.places.look(&mut problems);
        for group in &self.groups {
            let occupancy = occupancies.get(&group.id).copied().unwrap_or(Reading::Unsupported);
            let six = self.members.read(group.id, |core| shown(self.events.as_ref(), &counts, core));
            groups.insert(group.id, tally::counters(six, occupancy));
        }
        let socket = counts.socket();
        let socket = match socket.memory_read_bytes {
            Reading::Unsupported => with_mbm(socket, self.places.traffic(&mut problems)),
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
            let unknown =
                PortCounters { inbound_bytes: Reading::Unavailable, outbound_bytes: Reading::Unavailable };
            ports.values_mut().for_each(|port| *port = unknown);
        }
        let knobs = self.read_knobs(masks, &mut problems);
        if let Some(journal) = self.places.journal() {
            self.knobs.look_for_others(journal, &mut problems);
        }
        self.complaints.extend(self.places.take_notes());
        let blind = !groups.is_empty()
            && knobs.masks.is_empty()
            && groups.values().all(|group| group.cycles.value().is_none());
        let first = problems.first().cloned();
        self.complain(problems);
        if let (true, Some(why)) = (blind, first) {
            return Err(HostError::Failed { what: "reading this host".to_owned(), why });
        }
        Ok(Snapshot { at_ns, groups, socket, ports, knobs })
    }

    fn apply(&mut self, plan: &Plan) -> Result<Applied, HostError> {
        let mut applied = Applied::default();
        let is_alive = |id: &GroupId| self.groups.iter().any(|group| group.id == *id);
        let (wanted, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            plan.masks.iter().map(|(id, mask)| (*id, *mask)).partition(|(id, _)| is_alive(id));
        let none = |id: &GroupId| (*id, KnobOutcome::Refused(format!("{id} does not exist")));
        applied.masks.extend(others.keys().map(none));
        match self.bars.masks() {
            Some(why) => applied.masks.extend(wanted.keys().map(|id| (*id, limits::refused(why)))),
            None if wanted.is_empty() => {}
            None => {
                applied.masks.extend(self.places.apply(&wanted));
                self.complaints.extend(self.places.take_notes());
            }
        }
        let journal = self.places.journal();
        applied.dca_ways = plan.dca_ways.map(|mask| match (self.bars.ways(), journal) {
            (Some(why), _) => limits::refused(why),
            (None, Some(journal)) => self.knobs.set_ways(mask, journal),
            (None, None) => limits::refused("there is no journal"),
        });
        for (port, on) in &plan.dca {
            let outcome = match (self.bars.port(*port), self.places.journal()) {
                (Some(why), _) => limits::refused(why),
                (None, Some(journal)) => self.knobs.set_switch(*port, *on, journal),
                (None, None) => limits::refused("there is no such port"),
            };
            applied.dca.insert(*port, outcome);
        }
        let absent = || KnobOutcome::Refused("this host has no such knob".to_owned());
        applied.rx_ring = plan.rx_ring.keys().map(|port| (*port, absent())).collect();
        applied.rx_burst = plan.rx_burst.keys().map(|port| (*port, absent())).collect();
        Ok(applied)
    }

    fn now_ns(&self) -> u64 {
        let now = clock_gettime(ClockId::Monotonic);
        let passed = (now.tv_sec - self.started.tv_sec) * SECOND_NS + (now.tv_nsec - self.started.tv_nsec);
        u64::try_from(passed).unwrap_or(0)
    }

    fn wait_until(&mut self, deadline_ns: u64) -> Result<(), HostError> {
        let deadline = i64::try_from(deadline_ns).unwrap_or(i64::MAX);
        let nanoseconds = self.started.tv_nsec + deadline % SECOND_NS;
        let at = Timespec {
            tv_sec: self
                .started
                .tv_sec
                .saturating_add(deadline / SECOND_NS)
                .saturating_add(nanoseconds / SECOND_NS),
            tv_nsec: nanoseconds % SECOND_NS,
        };
        loop {
            match rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &at) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(why) => {
                    let what = "waiting for the next interval".to_owned();
                    return Err(HostError::Failed { what, why: why.to_string() });
                }
            }
        }
    }
}

impl Drop for LinuxHost {
    fn drop(&mut self) {
        // What cannot be brought back stays in the journal, for the next start or `waykeeper restore`.
        let _ = self.close();
    }
}
