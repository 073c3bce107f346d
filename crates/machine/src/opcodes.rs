//! Block commands, and the opcode events of the uncore that they cause: PCIeRdCur, ItoM, RFO.
//!
//! Separate from `measured.rs`, because only some chips have such events and only programs of block commands count
//! blocks. The number of lines that an array moved is exact; their hit ratio is that of the sampled lines.

use crate::measured::{ArrayLines, Mark, share_of};
use crate::server::Machine;
use waykeeper_silicon::{DeviceCounters, OpcodeSpec};

/// Rates of one event, per second of simulated traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OpcodeRates {
    /// Rate of the hit event; on some chips it counts every access.
    pub hits_per_s: f64,
    /// Rate of the miss event.
    pub misses_per_s: f64,
}

/// The events of all devices; `None` if no line of an event was in the sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Opcodes {
    /// Lines that devices read, whole or in part.
    pub pcie_rdcur: Option<OpcodeRates>,
    /// Whole lines that devices wrote.
    pub itom: Option<OpcodeRates>,
    /// Lines that devices wrote in part: completions.
    pub rfo: Option<OpcodeRates>,
}

/// What a program of block commands counts, per second of simulated traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Commands {
    /// Commands.
    pub commands_per_s: f64,
    /// Blocks as the program counts them.
    pub blocks_per_s: f64,
    /// Bytes of the blocks, and 80 B for each command and its completion (nvme-memload s5.2).
    pub bytes_per_s: f64,
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

    /// Block commands of a workload in the measured interval; `None` if it sends none.
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

/// The interval between two marks.
struct Scope<'a> {
    before: &'a Mark,
    now: &'a Mark,
    spec: OpcodeSpec,
    scale: f64,
}

impl Scope<'_> {
    /// One event over all devices: NICs, which are first, by sampled lines; arrays by exact lines.
    fn events(
        &self,
        hits: fn(&DeviceCounters) -> u64,
        misses: fn(&DeviceCounters) -> u64,
        lines: fn(&ArrayLines) -> u64,
    ) -> Option<OpcodeRates> {
        let nics = self.now.devices.len() - self.now.arrays.len();
        let seconds = (self.now.at_ns - self.before.at_ns) * 1e-9;
        let mut sum = OpcodeRates::default();
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
