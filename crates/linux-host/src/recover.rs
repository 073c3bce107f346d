//! Restores a host after a run that did not end in order: what its journal has, and what it left without one.
//!
//! Groups of our name that no journal has are removed. If there are such groups, or a journal was damaged, registers
//! that hold exactly a counter program of ours are made idle too, and the DCA knobs are named, because the lost run may
//! have set them. Must not know the journal's format, nor who asks.

use super::count;
use super::facts::Facts;
use super::{Managed, RestoreScope};
use std::time::Duration;
use waykeeper_generations::Generation;
use waykeeper_kernel::counting::CoreEventPlan;
use waykeeper_kernel::event_source::CounterUnit;
use waykeeper_kernel::journal::{Journal, JournalError, Original, OwnershipCheck};
use waykeeper_kernel::msr_pmu::{self, CounterProgram, Write};
use waykeeper_kernel::perf;
use waykeeper_kernel::registers::{RegisterAddress, RegisterFiles, RegisterIo};
use waykeeper_kernel::resctrl::{GROUP_PREFIX, Resctrl};
use waykeeper_kernel::restore::{Leftovers, Report, Restorer, mounted};
use waykeeper_kernel::root::Root;
use waykeeper_kernel::topology::Topology;
use waykeeper_units::{CoreId, WayMask};

/// Restores what a journal has.
///
/// # Errors
/// The journal cannot be changed. Failures of knobs are in the report.
pub fn restore_journal(
    root: &Root,
    journal: &mut Journal,
    scope: RestoreScope,
) -> Result<Report, JournalError> {
    let resctrl = mounted(root, GROUP_PREFIX);
    let registers = RegisterFiles::of(root);
    let mut restorer = Restorer { root, resctrl: resctrl.as_ref(), registers: &registers };
    match scope {
        RestoreScope::All => restorer.restore(journal),
        RestoreScope::Passing => restorer.restore_passing(journal),
        RestoreScope::AfterDaemon => match wait_once(root, journal) {
            Some(left) => Ok(Report { handed_over: Some(left), ..Report::default() }),
            None => restorer.restore_passing(journal),
        },
    }
}

/// Leaves knobs that a daemon handed over to the next one, once. Returns how long that one may still come; `None` if the
/// knobs are to be restored.
fn wait_once(root: &Root, journal: &mut Journal) -> Option<Duration> {
    let mark = journal.hand_over().filter(|mark| !mark.waited)?;
    let left = mark.time_left(root.system().now())?;
    // If that cannot be noted, each later restore would leave them too.
    journal.note_waited().ok().map(|()| left)
}

/// Removes what a run left whose journal was damaged or lost, and adds it to the report on the restored journals.
/// `known` are the records that the journals of this host have.
///
/// # Errors
/// As [`restore_journal`].
pub fn adopt_orphans(
    root: &Root,
    journal: &mut Journal,
    known: &[Original],
    report: &mut Report,
) -> Result<(), JournalError> {
    let resctrl = mounted(root, GROUP_PREFIX);
    adopt(root, resctrl.as_ref(), &RegisterFiles::of(root), journal, known, report)
}

/// The same with files that are open.
pub(super) fn adopt(
    root: &Root,
    resctrl: Option<&Resctrl>,
    registers: &RegisterFiles,
    journal: &mut Journal,
    known: &[Original],
    report: &mut Report,
) -> Result<(), JournalError> {
    let restored: Vec<Original> = report.knobs.iter().map(|(knob, _)| knob.clone()).collect();
    let mut leftovers = || leftovers(root, registers, &restored);
    Restorer { root, resctrl, registers }.adopt_orphans(journal, known, &mut leftovers, report)
}

/// What is to be seen of a lost run besides its groups. What cannot be read is not looked for: the report already says
/// that the journal is lost.
fn leftovers(root: &Root, registers: &RegisterFiles, restored: &[Original]) -> Leftovers {
    let mut found = Leftovers::default();
    let Ok(topology) = Topology::read(root) else { return found };
    let by_registers = !counts_by_perf(root);
    let mut ports = Vec::new();
    for socket in topology.sockets() {
        let Ok(facts) = Facts::read_managed(root, Some(Managed::Socket(socket)), None) else { continue };
        let Some(generation) = facts.generation else { continue };
        let ways = dca_ways(&facts, generation, registers);
        found.unproved.extend(ways.filter(|(knob, _)| !is_in(restored, knob)).map(|(_, line)| line));
        if by_registers {
            for program in count::package_programs(root, &facts, generation, registers, &mut Vec::new()) {
                found.registers.extend(box_leftover(&program, registers));
            }
            for cpu in facts.topology.cpus_of(socket).cores() {
                found.registers.extend(core_leftover(*cpu, generation, registers));
            }
        }
        if ports.is_empty() {
            ports = switched_off(&facts, generation, registers);
        }
    }
    ports.retain(|(knob, _)| !is_in(restored, knob));
    found.unproved.extend(ports.into_iter().map(|(_, line)| line));
    found.registers.retain(|own| !is_in(restored, own));
    found
}

fn is_in(restored: &[Original], knob: &Original) -> bool {
    restored.iter().any(|own| own.is_same_knob(knob))
}

/// Whether perf counts this host. A run then programmed no register, and a control that looks like ours is perf's.
fn counts_by_perf(root: &Root) -> bool {
    let generation = waykeeper_kernel::cpuinfo::CpuIdentity::read(root, 0).generation();
    let has_unit = |generation: &Generation| CounterUnit::read(root, &generation.core.perf);
    perf::is_asked(root) && generation.is_none_or(|generation| !matches!(has_unit(generation), Ok(None)))
}

/// Registers that all read 0: the counter program for it is the one of an idle core.
#[derive(Debug)]
struct Idle;

impl RegisterIo for Idle {
    fn read(&self, _: &RegisterAddress) -> Result<u64, String> {
        Ok(0)
    }

    fn write(&self, register: &RegisterAddress, _: u64) -> Result<(), String> {
        Err(format!("{register} is not to be written"))
    }
}

/// The record of a register that has a value of ours: its bits are 0 when it is idle.
fn idle(register: &RegisterAddress, package: Option<u16>, mask: u64, ours: u64) -> Original {
    let ownership = OwnershipCheck { ours: vec![ours], claims: Vec::new() };
    Original::of_register(register, package, mask, 0, ownership)
}

/// The value of a register, if it can be read and does not change.
fn value(registers: &dyn RegisterIo, register: &RegisterAddress) -> Option<u64> {
    registers.read_still(register).ok()
}

/// A core's selects that have one of our events, and then also its fixed counters that count as ours do. A select may
/// have any of our events: others may have been in use when it was programmed.
fn core_leftover(cpu: CoreId, generation: &Generation, registers: &dyn RegisterIo) -> Vec<Original> {
    let counters = &generation.core;
    let Ok((program, _)) = msr_pmu::core_program(counters, &CoreEventPlan::of(counters), cpu, &Idle) else {
        return Vec::new();
    };
    let (selects, shared): (Vec<&Write>, Vec<&Write>) =
        program.writes.iter().partition(|write| write.mask == u64::MAX);
    let mut found = Vec::new();
    for write in &selects {
        if let Some(now) = value(registers, &write.register)
            && selects.iter().any(|own| own.value == now)
        {
            found.push(idle(&write.register, None, u64::MAX, now));
        }
    }
    // The bits of the global control are those of all enabled counters, so they show no owner.
    let fixed = counters.fixed.map(|fixed| fixed.control);
    if found.is_empty() {
        return found;
    }
    for write in shared.iter().filter(|write| Some(write.register.number()) == fixed) {
        let Some(now) = value(registers, &write.register) else { continue };
        let ours = write.parts.iter().filter(|part| now & part.mask == write.value & part.mask);
        let ours: Vec<Original> =
            ours.map(|part| idle(&write.register, None, part.mask, now & part.mask)).collect();
        found.extend(ours);
    }
    found
}

/// A box whose controls all have our events, with its box control.
fn box_leftover(program: &CounterProgram, registers: &dyn RegisterIo) -> Vec<Original> {
    let controls: Vec<&Write> = program.writes.iter().filter(|write| write.telling() != 0).collect();
    let is_ours = |write: &&Write| value(registers, &write.register) == Some(write.value);
    if controls.is_empty() || !controls.iter().all(is_ours) {
        return Vec::new();
    }
    // The box control is written first and last.
    let shared = program.writes.last().filter(|write| write.telling() == 0 && is_ours(write));
    let all = shared.into_iter().chain(controls.iter().copied());
    let mask = |write: &Write| match write.register {
        RegisterAddress::Msr { .. } => u64::MAX,
        RegisterAddress::Pci { .. } => u64::from(u32::MAX),
    };
    all.map(|write| idle(&write.register, program.package, mask(write), write.value)).collect()
}

/// A knob, and the line that says what is known of it.
type Unknown = (Original, String);

/// The DCA ways of a socket.
fn dca_ways(
    facts: &Facts,
    generation: &Generation,
    registers: &dyn RegisterIo,
) -> impl Iterator<Item = Unknown> + use<> {
    let switch = &generation.dca.ways;
    let register = switch.register.as_ref().filter(|_| switch.evidence.may_write());
    let knob = register.and_then(|register| {
        let address = RegisterAddress::Msr { cpu: facts.reader, address: register.msr };
        let now = value(registers, &address)?;
        let mask = |bits: u64| WayMask::from_bits(bits as u32);
        let at_power_on = register.default.map_or_else(String::new, |at| format!(" ({at} at power-on)"));
        let line = format!(
            "the DCA ways of socket {} are {}{at_power_on}; what they were before the lost run is not known",
            facts.socket,
            mask(now)
        );
        Some((
            Original::of_register(&address, Some(facts.socket), u64::MAX, now, OwnershipCheck::default()),
            line,
        ))
    });
    knob.into_iter()
}

/// The root ports with devices whose DCA is off.
fn switched_off(facts: &Facts, generation: &Generation, registers: &dyn RegisterIo) -> Vec<Unknown> {
    let switch = &generation.dca.port;
    let Some(bit) = switch.allocating.filter(|_| switch.evidence.may_write()) else { return Vec::new() };
    let look = |port: &super::facts::PortFact| {
        let (device, mask) = (port.address.to_string(), 1 << bit.bit);
        let address = RegisterAddress::Pci { device, offset: bit.offset, bytes: 1 };
        let now = value(registers, &address)? & mask;
        let line = format!(
            "DCA of root port {} is off; whether it was before the lost run is not known",
            port.address
        );
        let knob = Original::of_register(&address, None, mask, now, OwnershipCheck::default());
        (!bit.of(now as u8)).then_some((knob, line))
    };
    facts.ports.iter().filter_map(look).collect()
}
