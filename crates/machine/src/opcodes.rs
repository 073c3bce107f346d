//! What block commands did, and what the opcode events of the uncore make of it: PCIeRdCur, ItoM, RFO.
//!
//! Apart from the measured numbers of every run because only chips that name such events have them, and only
//! programs of block commands count blocks. How many lines an array moved is known exactly; how many of them
//! hit is that of the sampled ones.

use crate::measured::{Mark, share_of};
use crate::server::Machine;
use crate::ssd::Array;
use waykeeper_silicon::{DeviceCounters, OpcodeSpec};
use waykeeper_units::LINE_BYTES;

/// One event over a stretch, per second of simulated traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Events {
    /// As the hit event counts; on some chips that is every access.
    pub hits_per_s: f64,
    /// As the miss event counts.
    pub misses_per_s: f64,
}

/// The events of all devices; an event is `None` where its lines were all outside the sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Opcodes {
    /// Lines that devices read, whole or in part.
    pub pcie_rdcur: Option<Events>,
    /// Whole lines that devices wrote.
    pub itom: Option<Events>,
    /// Lines that devices wrote in part: completions.
    pub rfo: Option<Events>,
}

/// What a program of block commands counts, per second of simulated traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Commands {
    /// Commands.
    pub commands_per_s: f64,
    /// Blocks as the program counts them.
    pub blocks_per_s: f64,
    /// Blocks, and 80 B for each command and its completion (nvme-memload s5.2).
    pub bytes_per_s: f64,
}

/// Lines an array moved, all of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ArrayLines {
    read: u64,
    written: u64,
    written_in_part: u64,
}

impl ArrayLines {
    pub(crate) fn of(array: &Array) -> ArrayLines {
        ArrayLines {
            read: array.outbound_bytes / LINE_BYTES + array.control.reads,
            written: array.inbound_bytes / LINE_BYTES,
            written_in_part: array.control.writes,
        }
    }
}

impl Mark {
    /// The opcode events since `self` was taken; `None` on a chip without them.
    pub(crate) fn opcodes(&self, machine: &Machine) -> Option<Opcodes> {
        let spec = machine.scenario.chip.opcodes?;
        let now = Mark::of(machine);
        let scope = Scope { before: self, now: &now, spec, scale: machine.scale() };
        Some(Opcodes {
            pcie_rdcur: scope.events(|d| d.read_hits, |d| d.read_misses, |a| a.read),
            itom: scope.events(|d| d.write_hits, |d| d.write_misses + d.writes_uncached, |a| a.written),
            rfo: scope.events(|d| d.partial_hits, |d| d.partial_misses, |a| a.written_in_part),
        })
    }

    /// What a workload's block commands did since the stretch began; `None` if it has none.
    pub(crate) fn commands(&self, machine: &Machine, workload: usize) -> Option<Commands> {
        let meter = &machine.bus.meters[workload];
        let seconds = (machine.now_ns() - self.at_ns) * 1e-9;
        Some(Commands {
            blocks_per_s: meter.load?.blocks as f64 / seconds,
            commands_per_s: meter.operations / seconds,
            bytes_per_s: meter.bytes / seconds,
        })
    }
}

/// A stretch between two marks.
struct Scope<'a> {
    before: &'a Mark,
    now: &'a Mark,
    spec: OpcodeSpec,
    scale: f64,
}

impl Scope<'_> {
    /// NICs stand first among the devices and are counted by their sampled lines; arrays know all of theirs.
    fn events(
        &self,
        hits: fn(&DeviceCounters) -> u64,
        misses: fn(&DeviceCounters) -> u64,
        lines: fn(&ArrayLines) -> u64,
    ) -> Option<Events> {
        let nics = self.now.devices.len() - self.now.arrays.len();
        let seconds = (self.now.at_ns - self.before.at_ns) * 1e-9;
        let mut sum = Events::default();
        for (device, (now, before)) in self.now.devices.iter().zip(&self.before.devices).enumerate() {
            let (hit, missed) = (hits(now) - hits(before), misses(now) - misses(before));
            let all = match device.checked_sub(nics) {
                None => (hit + missed) as f64 * self.scale,
                Some(array) => (lines(&self.now.arrays[array]) - lines(&self.before.arrays[array])) as f64,
            };
            if all > 0.0 {
                let share = share_of(missed as f64, (hit + missed) as f64)?;
                sum.hits_per_s += all * if self.spec.miss_adds_hit { 1.0 } else { 1.0 - share } / seconds;
                sum.misses_per_s += all * share / seconds;
            }
        }
        Some(sum)
    }
}
