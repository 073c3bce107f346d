//! Restores what a journal contains: last set first, each knob read back and reported. The journal is removed only if
//! nothing failed. What a damaged journal can no longer tell is in the report, and stays in a file beside the journal.
//!
//! A knob that cannot be restored does not prevent the others. A knob that another program has changed since is left
//! alone and reported. Must not know which part of Waykeeper set the knobs.

mod bits;
mod kept_cpus;
mod orphans;

pub use kept_cpus::{keep_cpus, kept_cpus};
pub use orphans::{Leftovers, orphans};

use crate::content::ContentError;
use crate::journal::{Journal, JournalError, Original, OriginalBits, is_search_due};
use crate::registers::{RegisterAddress, RegisterIo};
use crate::resctrl::{
    Group, IoAllocState, LOCKS, MOUNT, Resctrl, ResctrlError, ResctrlErrorKind, ResourceSettings,
};
use crate::root::{FileError, Root};
use crate::topology::{Presence, Topology};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;
use waykeeper_units::{CoreId, CoreList};

/// Longest wait for another tool's lock on resctrl. Tools hold it for single changes.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// Most bytes of a stat line: it has 52 fields of at most 20 digits.
const STAT_BYTES: usize = 4096;

/// The outcome for one knob.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RestoreOutcome {
    /// It was restored.
    Restored,
    /// It already had its original value.
    AsItWas,
    /// The object it belonged to no longer exists.
    Gone,
    /// It cannot be reached now, for this reason. It stays in the journal for later and is not a failure.
    Away(String),
    /// Another program changed it since, by this evidence. It was left alone.
    Left(String),
    /// It does not have its original value, for this reason.
    Failed(String),
}

impl fmt::Display for RestoreOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RestoreOutcome::Restored => f.write_str("restored"),
            RestoreOutcome::AsItWas => f.write_str("already has this value"),
            RestoreOutcome::Gone => f.write_str("no longer exists"),
            RestoreOutcome::Away(why) => write!(f, "to be restored later: {why}"),
            RestoreOutcome::Left(why) => write!(f, "left alone: {why}"),
            RestoreOutcome::Failed(why) => write!(f, "FAILED: {why}"),
        }
    }
}

/// What a restore did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// One outcome per knob, in the order of restoring.
    pub knobs: Vec<(Original, RestoreOutcome)>,
    /// The journal was from an earlier boot: nothing was written, and it has been removed.
    pub stale: bool,
    /// What was wrong with the journal, a line each.
    pub damage: Vec<String>,
    /// Groups that no journal had and registers that held our counter programs. They are in `knobs` too.
    pub adopted: Vec<Original>,
    /// What cannot be proved about the host, a line each, with the lines of earlier restores since the boot: it lacks a
    /// knob's original value.
    pub unproved: Vec<String>,
    /// A daemon that ended left its knobs to the next one, which may still come for so long: nothing was restored.
    pub handed_over: Option<Duration>,
}

impl Report {
    /// The knobs that were not restored.
    pub fn failures(&self) -> impl Iterator<Item = (&Original, &str)> {
        self.knobs.iter().filter_map(|(original, outcome)| match outcome {
            RestoreOutcome::Failed(why) => Some((original, why.as_str())),
            _ => None,
        })
    }

    /// The knobs that another program has changed since, one line each.
    pub fn left(&self) -> impl Iterator<Item = String> {
        let left = self.knobs.iter().filter(|(_, outcome)| matches!(outcome, RestoreOutcome::Left(_)));
        left.map(|(original, outcome)| format!("{original}: {outcome}"))
    }

    /// The knobs that cannot be reached now: one line for each reason.
    pub fn away(&self) -> impl Iterator<Item = String> {
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, outcome) in &self.knobs {
            if let RestoreOutcome::Away(why) = outcome {
                *reasons.entry(why).or_default() += 1;
            }
        }
        let line = |(why, count): (&str, usize)| format!("{count} knobs are restored later: {why}");
        reasons.into_iter().map(line).collect::<Vec<_>>().into_iter()
    }

    /// What does not have its original value and stays in the journal: a line for each knob that failed, then one for each
    /// reason for which knobs cannot be reached now. Empty if all is done.
    pub fn remaining(&self) -> Vec<String> {
        let failed = self.failures().map(|(knob, why)| format!("{knob}: {why}"));
        failed.chain(self.away()).collect()
    }

    /// The groups that no journal had and that were removed, one line each.
    pub fn adopted_groups(&self) -> impl Iterator<Item = String> {
        let groups = self.adopted.iter().filter_map(|own| match own {
            Original::NoGroup { group } => Some(group),
            _ => None,
        });
        groups.map(|group| format!("group {group}: left by an earlier run whose journal is lost; removed"))
    }

    /// Knobs that stay in the journal although nothing failed.
    fn to_stay(&self) -> Vec<Original> {
        let away = self.knobs.iter().filter(|(_, outcome)| matches!(outcome, RestoreOutcome::Away(_)));
        away.map(|(original, _)| original.clone()).collect()
    }

    /// True if a journal was damaged or lost, and what its run left besides the entries has not been looked for since.
    pub fn is_search_due(&self) -> bool {
        !self.damage.is_empty() || is_search_due(&self.unproved)
    }

    /// True if no knob failed.
    pub fn is_complete(&self) -> bool {
        self.failures().next().is_none()
    }

    /// True if every knob is as it was before Waykeeper set it, or as another program set it since.
    pub fn is_as_found(&self) -> bool {
        self.is_complete()
            && self.away().next().is_none()
            && self.unproved.is_empty()
            && self.handed_over.is_none()
    }
}

/// The mounted resctrl in which knobs are restored; `None` only if none is mounted, because the kernel has then reset
/// everything.
///
/// If resctrl cannot be read, it still counts as mounted: its knobs then fail with the kernel's error and stay in the
/// journal. If it is mounted at another place, that place is used, because its groups still exist.
pub fn mounted(root: &Root, prefix: &str) -> Option<Resctrl> {
    let at = |place: &str| Resctrl::on(root.system().clone(), &root.path(place), Path::new(LOCKS), prefix);
    match Resctrl::open(root, prefix) {
        Ok(resctrl) => Some(resctrl),
        Err(error) if error.kind == ResctrlErrorKind::NotMounted => {
            Resctrl::mounted_at(root).map_or_else(|_| Some(at(MOUNT)), |place| Some(at(&place?)))
        }
        Err(_) => Some(at(MOUNT)),
    }
}

/// Restores knobs of a host.
pub struct Restorer<'a> {
    /// The root prefix, for `/proc`.
    pub root: &'a Root,
    /// The mounted resctrl; `None` if it is not mounted (the kernel has then reset everything).
    pub resctrl: Option<&'a Resctrl>,
    /// Access to MSRs and PCI config space.
    pub registers: &'a dyn RegisterIo,
}

impl Restorer<'_> {
    /// Restores everything in a journal, kept knobs included. If nothing failed, the journal is removed; knobs that
    /// cannot be reached now stay in it. A damaged journal is set aside first, and what is intact in it restored.
    ///
    /// # Errors
    /// The journal cannot be changed. Failures of knobs are in the report.
    pub fn restore(&mut self, journal: &mut Journal) -> Result<Report, JournalError> {
        let damage = begin(journal)?;
        // If a knob is recorded twice, its kept value is the older one and is restored last.
        let all = journal.kept().iter().chain(journal.originals()).cloned().collect::<Vec<_>>();
        let mut report = self.put_all_back(journal, &all);
        if report.is_complete() {
            // In the order in which they were set.
            let stay = report.to_stay();
            let stay: Vec<Original> = all.into_iter().filter(|own| stay.contains(own)).collect();
            journal.keep_only(&stay)?;
        }
        (report.damage, report.unproved) = (damage, journal.unproved()?);
        Ok(report)
    }

    /// The same without kept knobs, which stay as set and in the journal.
    ///
    /// # Errors
    /// As [`Restorer::restore`].
    pub fn restore_passing(&mut self, journal: &mut Journal) -> Result<Report, JournalError> {
        if journal.is_stale() || journal.kept().is_empty() {
            return self.restore(journal);
        }
        let damage = begin(journal)?;
        let passing = journal.originals().to_vec();
        let mut report = self.restore_some(journal, &passing)?;
        (report.damage, report.unproved) = (damage, journal.unproved()?);
        Ok(report)
    }

    /// Restores some of the recorded knobs. They are removed from the journal, unless one of them failed.
    ///
    /// # Errors
    /// The removal cannot be written. Failures of knobs are in the report.
    pub fn restore_some(&mut self, journal: &mut Journal, some: &[Original]) -> Result<Report, JournalError> {
        let report = self.put_all_back(journal, some);
        if report.is_complete() {
            let stay = report.to_stay();
            let done: Vec<Original> = some.iter().filter(|own| !stay.contains(own)).cloned().collect();
            journal.forget_all(&done)?;
        }
        Ok(report)
    }

    fn put_all_back(&mut self, journal: &mut Journal, originals: &[Original]) -> Report {
        let mut report = Report { stale: journal.is_stale(), ..Report::default() };
        if !report.stale {
            // If no knob of resctrl is restored, its lock is not needed.
            let resctrl = self.resctrl.filter(|_| originals.iter().any(of_resctrl));
            // The lock is advisory, and any user who can open the directory can hold it forever. Knobs are restored
            // without it after the wait; each single write is atomic.
            let _lock = resctrl.and_then(|resctrl| resctrl.lock_or_go_on(LOCK_WAIT));
            // A monitoring group can get its CPUs only once its control group has them again, so it comes last.
            let (late, first): (Vec<_>, Vec<_>) = originals
                .iter()
                .rev()
                .partition(|original| matches!(original, Original::Cpus { group, .. } if group.is_monitor()));
            for original in first.into_iter().chain(late) {
                let outcome = self.put_back(original, journal).unwrap_or_else(RestoreOutcome::Failed);
                report.knobs.push((original.clone(), outcome));
            }
        }
        report
    }

    fn put_back(&mut self, original: &Original, journal: &mut Journal) -> Result<RestoreOutcome, String> {
        if let Some(bits) = original.register() {
            return self.put_back_register(bits);
        }
        match self.resctrl {
            // Unmounting removes all groups and opens all masks (resctrl_kill_sb).
            None => Ok(RestoreOutcome::Gone),
            Some(resctrl) => match self.put_back_resctrl(resctrl, original, journal) {
                // The error alone is no proof: an entry must not be dropped while its group exists.
                Err(error) if error.is_gone() && !is_there(resctrl, original) => Ok(RestoreOutcome::Gone),
                other => other.map_err(|error| error.to_string()),
            },
        }
    }

    fn put_back_register(&self, mut bits: OriginalBits<'_>) -> Result<RestoreOutcome, String> {
        let found = match (bits::read_still(self.registers, &bits.address), &bits.address) {
            (Ok(found), _) => found,
            (Err(why), RegisterAddress::Pci { .. }) => return Err(why),
            (Err(why), RegisterAddress::Msr { cpu, address }) => {
                let Some(other) = self.other_cpu(*cpu, bits.package) else {
                    return self.out_of_reach(*cpu).ok_or(why);
                };
                bits.address = RegisterAddress::Msr { cpu: other, address: *address };
                bits::read_still(self.registers, &bits.address)?
            }
        };
        bits::put_back(&bits, found, self.registers)
    }

    fn put_back_resctrl(
        &self,
        resctrl: &Resctrl,
        original: &Original,
        journal: &mut Journal,
    ) -> Result<RestoreOutcome, ResctrlError> {
        // The name is ours, so the group is removed as one that no journal has, with the same proof.
        if let Original::Planned { group } = original
            && resctrl.has(group)
            && journal.check_alone(std::slice::from_ref(group)).is_err()
        {
            return Ok(RestoreOutcome::Away(
                "the journal does not prove that Waykeeper made the group, and a process that cannot be identified holds \
                 the lock of resctrl/info"
                    .to_owned(),
            ));
        }
        match original {
            Original::NoGroup { group } | Original::Planned { group } => {
                remove_group(resctrl, group, journal)?;
                let still = RestoreOutcome::Failed("it was removed but still exists".to_owned());
                Ok(if resctrl.has(group) { still } else { RestoreOutcome::Restored })
            }
            Original::Schemata { group, line } => put_back_line(resctrl, group, &line.0),
            Original::Cpus { group, cpus } => put_back_cpus(resctrl, group, cpus),
            Original::Task { group, pid, started } => {
                match task_start(self.root, *pid) {
                    Err(why) => return Ok(RestoreOutcome::Failed(why.to_string())),
                    Ok(now) if now != Some(*started) => return Ok(RestoreOutcome::Gone),
                    Ok(_) => {}
                }
                let moved = resctrl.assign(group, &[*pid])?;
                Ok(if moved.vanished.is_empty() { RestoreOutcome::Restored } else { RestoreOutcome::Gone })
            }
            Original::IoAlloc { resource, enabled } => {
                let wanted = if *enabled { IoAllocState::Enabled } else { IoAllocState::Disabled };
                if resctrl.io_alloc(resource)? == Some(wanted) {
                    return Ok(RestoreOutcome::AsItWas);
                }
                resctrl.set_io_alloc(resource, *enabled).map(|()| RestoreOutcome::Restored)
            }
            Original::IoAllocCbm { line } => {
                if resctrl.io_alloc_cbm(&line.0.resource)?.as_ref() == Some(&line.0) {
                    return Ok(RestoreOutcome::AsItWas);
                }
                let now = resctrl.set_io_alloc_cbm(&line.0)?;
                Ok(match now {
                    Some(now) if now == line.0 => RestoreOutcome::Restored,
                    Some(now) => reads_back(&now),
                    None => RestoreOutcome::Gone,
                })
            }
            Original::Msr { .. } | Original::Pci { .. } => Ok(RestoreOutcome::Gone),
        }
    }

    /// Another CPU for a package's register, if the recorded CPU is offline.
    fn other_cpu(&self, cpu: CoreId, package: Option<u16>) -> Option<CoreId> {
        let package = package?;
        let topology = Topology::read(self.root).ok()?;
        let online = topology.online().any(|(own, _)| own == cpu);
        topology.reader_of(package).filter(|_| !online)
    }

    /// The outcome for a register whose CPU is not online. It keeps its value while the CPU is offline: switching the
    /// CPU on is an INIT, which leaves counters and their controls as they are (SDM vol. 3, table 9-1).
    fn out_of_reach(&self, cpu: CoreId) -> Option<RestoreOutcome> {
        match Presence::of(self.root, cpu).ok()? {
            Presence::Online => None,
            Presence::Offline => Some(RestoreOutcome::Away(format!("CPU {} is offline", cpu.0))),
            // The list of CPUs alone is no proof: an entry must not be dropped while its CPU can be reached.
            Presence::Absent if self.root.exists(format!("/dev/cpu/{}/msr", cpu.0)) => None,
            Presence::Absent => Some(RestoreOutcome::Gone),
        }
    }
}

/// Begins a restore of a whole journal: no daemon can take its knobs over from now on. A damaged journal is set aside; the
/// result is what is wrong with it. One of an earlier boot no longer matters.
fn begin(journal: &mut Journal) -> Result<Vec<String>, JournalError> {
    let damage: Vec<String> = journal.damage().iter().map(ToString::to_string).collect();
    if damage.is_empty() || journal.is_stale() {
        // If the disk is full, the mark stays: what the next daemon then takes over, it restores at its end.
        let _ = journal.end_hand_over();
        return Ok(Vec::new());
    }
    journal.set_aside()?;
    Ok(damage)
}

/// When the task that has this pid now started, in clock ticks since boot; `None` if no task has it.
///
/// # Errors
/// The task's stat cannot be read or parsed: whether a task has this pid is not known.
pub fn task_start(root: &Root, pid: u32) -> Result<Option<u64>, FileError> {
    let path = format!("/proc/{pid}/stat");
    match root.read_bytes(&path, STAT_BYTES) {
        // Without procfs no task is seen.
        Err(error) if error.is_absent() && !root.exists("/proc") => Err(error),
        // A file that was opened before its task ended can no longer be read.
        Err(error) if error.is_absent() || error.errno() == Some(Errno::SRCH) => Ok(None),
        Err(error) => Err(error),
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let error = || {
                ContentError::new(&root.path(&path), 0, &text, "52 fields, of which the 22nd is the start")
            };
            Ok(Some(start_in_stat(&text).ok_or_else(error)?))
        }
    }
}

/// Field 22 of a stat line. The name in field 2 may contain anything, so fields are counted after it.
fn start_in_stat(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// True while the group of a knob exists, or resctrl's default group for a knob without a group.
fn is_there(resctrl: &Resctrl, original: &Original) -> bool {
    match original {
        Original::NoGroup { group }
        | Original::Planned { group }
        | Original::Schemata { group, .. }
        | Original::Cpus { group, .. }
        | Original::Task { group, .. } => resctrl.has(group),
        _ => resctrl.has(&Group::DEFAULT),
    }
}

fn of_resctrl(original: &Original) -> bool {
    original.register().is_none()
}

/// Removes one of our groups. CPUs of other programs' monitoring groups in it are recorded in the journal until these
/// monitor them again.
///
/// # Errors
/// The group cannot be removed, or the journal cannot record those CPUs.
pub fn remove_group(resctrl: &Resctrl, group: &Group, journal: &mut Journal) -> Result<(), ResctrlError> {
    let mut kept = Vec::new();
    // What the journal has of them already is CPUs that they lost earlier, and that are not to be had yet.
    let mut before: BTreeMap<Group, CoreList> = BTreeMap::new();
    let mut remember = |group: &Group, cpus: &CoreList| {
        let earlier = kept_cpus(journal, group);
        keep_cpus(journal, group, &earlier.with(cpus)).map_err(|why| why.to_string())?;
        before.insert(group.clone(), earlier);
        kept.push(Original::Cpus { group: group.clone(), cpus: cpus.clone() });
        Ok(())
    };
    let removed = resctrl.remove_keeping_monitors(group, &mut remember);
    // The monitoring group is at one of two paths, or its owner has removed it.
    let watches = |original: &Original| match original {
        Original::Cpus { group, cpus } => match resctrl.cpus(group) {
            Ok(now) => Some(cpus.cores().iter().all(|cpu| now.cores().contains(cpu))),
            Err(_) => resctrl.has(group).then_some(false),
        },
        _ => None,
    };
    let done = |pair: &[Original]| {
        let places: Vec<bool> = pair.iter().filter_map(watches).collect();
        places.is_empty() || places.contains(&true)
    };
    let all = std::mem::take(&mut kept);
    kept.extend(all.chunks(2).filter(|pair| removed.is_ok() || done(pair)).flatten().cloned());
    let (partly, wholly): (Vec<Original>, Vec<Original>) = kept.into_iter().partition(|original| {
        matches!(original, Original::Cpus { group, .. } if before.get(group).is_some_and(|own| !own.is_empty()))
    });
    // An entry that could not be removed is restored again later, without effect.
    let _ = journal.forget_all(&wholly);
    for original in &partly {
        if let Original::Cpus { group, .. } = original {
            let _ = keep_cpus(journal, group, &before[group]);
        }
    }
    removed
}

/// Gives a group the CPUs that it lacks; CPUs that its owner added since stay. A monitoring group can have only CPUs
/// of its control group. A CPU that another monitoring group there has by now stays in that one.
///
/// # Errors
/// The kernel refuses to read or set the CPUs of a group.
pub fn put_back_cpus(
    resctrl: &Resctrl,
    group: &Group,
    cpus: &CoreList,
) -> Result<RestoreOutcome, ResctrlError> {
    let now = resctrl.cpus(group)?;
    let mut lacking: Vec<CoreId> =
        cpus.cores().iter().filter(|cpu| !now.cores().contains(cpu)).copied().collect();
    if lacking.is_empty() {
        return Ok(RestoreOutcome::AsItWas);
    }
    if group.is_monitor() {
        let there = resctrl.cpus(&group.parent())?;
        lacking.retain(|cpu| there.cores().contains(cpu));
        for other in resctrl.monitor_groups(&group.parent())?.iter().filter(|other| *other != group) {
            let theirs = resctrl.cpus(other)?;
            lacking.retain(|cpu| !theirs.cores().contains(cpu));
        }
        if lacking.is_empty() {
            return Ok(RestoreOutcome::Gone);
        }
    }
    resctrl.set_cpus(group, &CoreList::from([now.cores(), &lacking].concat()))?;
    let now = resctrl.cpus(group)?;
    let whole = lacking.iter().all(|cpu| now.cores().contains(cpu));
    Ok(if whole { RestoreOutcome::Restored } else { reads_back(&now) })
}

fn put_back_line(
    resctrl: &Resctrl,
    group: &Group,
    line: &ResourceSettings,
) -> Result<RestoreOutcome, ResctrlError> {
    let now = resctrl.schemata(group)?;
    if now.differing(line).is_empty() {
        return Ok(RestoreOutcome::AsItWas);
    }
    // A domain whose CPUs are all offline cannot be set (the kernel would refuse the whole line), so it is left out.
    let present =
        |(id, _): &&(u32, _)| now.line(&line.resource).is_some_and(|line| line.domain(*id).is_some());
    let there =
        ResourceSettings::new(line.resource.clone(), line.domains.iter().filter(present).cloned().collect());
    if there.domains.is_empty() {
        let trouble = now.trouble_with(&line.resource).map(|why| RestoreOutcome::Failed(why.to_owned()));
        return Ok(trouble.unwrap_or(RestoreOutcome::Gone));
    }
    let now = resctrl.set_schemata(group, std::slice::from_ref(&there))?;
    Ok(match now.line(&line.resource) {
        _ if now.differing(&there).is_empty() => RestoreOutcome::Restored,
        Some(now) => reads_back(now),
        None => RestoreOutcome::Gone,
    })
}

fn reads_back(now: &dyn fmt::Display) -> RestoreOutcome {
    RestoreOutcome::Failed(format!("it was written but reads back as {now}"))
}
