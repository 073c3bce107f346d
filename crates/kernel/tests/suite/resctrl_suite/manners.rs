//! Cases about the lock, the journal and restoring.

use super::{Bench, Case, Result, check, line, list, refused, same};
use std::time::Duration;
use waykeeper_kernel::journal::{Journal, Original, SchemataLine};
use waykeeper_kernel::registers::{RegisterAddress, RegisterIo};
use waykeeper_kernel::resctrl::{DomainSetting, Group, IoAllocState, ResctrlErrorKind};
use waykeeper_kernel::restore::{RestoreOutcome, Restorer};
use waykeeper_units::{CoreList, WayMask};

pub const CASES: &[Case] = list![
    "the lock keeps others out" => the_lock,
    "io_alloc is there, or said not to be" => io_alloc,
    "all that was turned comes back" => all_comes_back,
    "what others removed is no failure of the way back" => removed_by_others,
];

fn the_lock(bench: &Bench) -> Result {
    let resctrl = &bench.resctrl;
    let own = resctrl.lock_exclusive(Duration::from_secs(10))?;
    let error =
        refused(resctrl.lock_exclusive(Duration::from_millis(5)).map(drop), ResctrlErrorKind::Locked, "")?;
    check!(error.to_string().contains("holds the lock (waited"), "{error}");
    refused(resctrl.lock_shared(Duration::ZERO).map(drop), ResctrlErrorKind::Locked, "")?;
    drop(own);
    let _one = resctrl.lock_shared(Duration::from_secs(10))?;
    let _two = resctrl.lock_shared(Duration::ZERO)?;
    refused(resctrl.lock_exclusive(Duration::ZERO).map(drop), ResctrlErrorKind::Locked, "")?;
    Ok(())
}

fn io_alloc(bench: &Bench) -> Result {
    let (resource, ways) = bench.l3()?;
    let state = bench.resctrl.io_alloc(&resource)?;
    same!(state, bench.info.caches[&resource].io_alloc);
    match state {
        None => same!(bench.resctrl.io_alloc_cbm(&resource)?, None),
        Some(IoAllocState::NotSupported) => {
            let Err(error) = bench.resctrl.set_io_alloc(&resource, true) else {
                return Err("io_alloc was taken where it is not supported".to_owned().into());
            };
            same!(error.kind, ResctrlErrorKind::Refused);
            check!(error.to_string().contains("not supported"), "{error}");
        }
        Some(before) => {
            bench.resctrl.set_io_alloc(&resource, true)?;
            let domain = bench.domains(&resource)?[0];
            let wanted =
                line(resource.clone(), domain, DomainSetting::Mask(WayMask::from_bits(ways.bits() & 0x3)));
            let now = bench.resctrl.set_io_alloc_cbm(&wanted)?;
            let now = now.and_then(|line| line.domain(domain).cloned());
            same!(now, wanted.domain(domain).cloned());
            bench.resctrl.set_io_alloc(&resource, before == IoAllocState::Enabled)?;
        }
    }
    Ok(())
}

#[derive(Debug)]
pub struct NoRegisters;

impl RegisterIo for NoRegisters {
    fn read(&self, _: &RegisterAddress) -> Result<u64, String> {
        Err("no registers here".to_owned())
    }

    fn write(&self, _: &RegisterAddress, _: u64) -> Result<(), String> {
        Err("no registers here".to_owned())
    }
}

/// A journal in a directory of its own, removed with it.
struct State(std::path::PathBuf);

impl State {
    fn new(name: &str) -> State {
        State(super::place(name))
    }

    fn open(&self, bench: &Bench) -> Result<Journal> {
        Ok(Journal::open(&self.0.join("journal"), &bench.root).map_err(|error| error.to_string())?)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A manager's steps: journal first, then a group with a CPU, a share, and a smaller share for the default group.
fn turn_knobs(bench: &Bench, journal: &mut Journal) -> Result<Group> {
    let resctrl = &bench.resctrl;
    let failed = |error: waykeeper_kernel::journal::JournalError| error.to_string();
    let group = resctrl.own("managed")?;
    let (resource, ways) = bench.l3()?;
    let default = resctrl.schemata(&Group::DEFAULT)?;
    let whole = default.line(&resource).cloned().ok_or_else(|| "no L3 line".to_owned())?;
    journal
        .record(&[
            Original::NoGroup { group: group.clone() },
            Original::Cpus { group: Group::DEFAULT, cpus: resctrl.cpus(&Group::DEFAULT)? },
            Original::Schemata { group: Group::DEFAULT, line: SchemataLine(whole) },
        ])
        .map_err(failed)?;
    resctrl.create(&group)?;
    let cpus = resctrl.cpus(&Group::DEFAULT)?;
    resctrl.set_cpus(&group, &CoreList::from(cpus.cores()[..1].to_vec()))?;
    let domain = bench.domains(&resource)?[0];
    let low = WayMask::from_bits(bench.least_bits()?);
    resctrl.set_schemata(&group, &[bench.l3_line(domain, low.bits())?])?;
    resctrl.set_schemata(&Group::DEFAULT, &[bench.l3_line(domain, ways.minus(low).bits())?])?;
    Ok(group)
}

fn all_comes_back(bench: &Bench) -> Result {
    let resctrl = &bench.resctrl;
    let state = State::new("back");
    let look = || -> Result<_> {
        Ok((resctrl.schemata(&Group::DEFAULT)?, resctrl.cpus(&Group::DEFAULT)?, resctrl.control_groups()?))
    };
    let before = look()?;
    let mut journal = state.open(bench)?;
    turn_knobs(bench, &mut journal)?;
    check!(look()? != before, "nothing was turned");
    // The manager ends here; the next start finds the journal.
    drop(journal);
    let mut journal = state.open(bench)?;
    let mut restorer = Restorer { root: &bench.root, resctrl: Some(resctrl), registers: &NoRegisters };
    let report = restorer.restore(&mut journal).map_err(|error| error.to_string())?;
    let outcomes: Vec<&RestoreOutcome> = report.knobs.iter().map(|(_, outcome)| outcome).collect();
    // Last first: the share, the CPUs (which takes the CPU from the group), the group.
    same!(outcomes, [&RestoreOutcome::Restored, &RestoreOutcome::Restored, &RestoreOutcome::Restored]);
    same!(look()?, before);
    check!(journal.originals().is_empty(), "the journal is not empty");
    Ok(())
}

fn removed_by_others(bench: &Bench) -> Result {
    let state = State::new("others");
    let mut journal = state.open(bench)?;
    let group = turn_knobs(bench, &mut journal)?;
    bench.resctrl.remove(&group)?;
    let mut restorer = Restorer { root: &bench.root, resctrl: Some(&bench.resctrl), registers: &NoRegisters };
    let report = restorer.restore(&mut journal).map_err(|error| error.to_string())?;
    let outcomes: Vec<&RestoreOutcome> = report.knobs.iter().map(|(_, outcome)| outcome).collect();
    same!(outcomes, [&RestoreOutcome::Restored, &RestoreOutcome::AsItWas, &RestoreOutcome::Gone]);
    Ok(())
}
