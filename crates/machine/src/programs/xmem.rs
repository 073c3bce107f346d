//! `x-mem`: Microsoft's memory benchmark. Sequential scans or dependent random chases over a working set
//! per thread, reading or writing, as fast as it can or at a given pace.
//!
//! `-r` of the original is a dependent pointer chase over 32-byte chunks, each line visited twice a pass;
//! the working set is per thread (microarchitecture.md 1, 8). Marks: docs/reference/README.md#marks.

use super::poller::LINE_WORK_NS;
use super::program::{Blueprint, Core, Program, ProgramKind, ScoreKind, Site, WorkUnit};
use crate::bus::{Access, Bus, Costs};
use crate::scenario::{Keys, ScenarioError};
use std::sync::Arc;
use waykeeper_host::WorkloadKind;
use waykeeper_silicon::{Fill, Line, OutOfMemory};

pub(super) const XMEM: ProgramKind = ProgramKind {
    name: "x-mem",
    about: "scans or chases through a working set per thread (X-Mem)",
    kind: WorkloadKind::NonIo,
    score: ScoreKind::Ipc,
    unit: WorkUnit::Bytes,
    read,
};

/// Instructions per line of a scan: eight 64-bit loads and a share of the unrolled loop (X).
const SCAN_INSTRUCTIONS: f64 = 9.0;
/// Instructions per step of a chase: the load and a share of the unrolled loop (X).
const CHASE_INSTRUCTIONS: f64 = 2.0;
/// Prefetch distance of a scan, in sampled lines. Assumption: as `bus::AHEAD`.
const AHEAD: usize = 6;

#[derive(Clone, Copy, Debug)]
struct XMem {
    working_set: u64,
    random: bool,
    access: Access,
    gb_per_s: Option<f64>,
}

fn read(keys: &mut Keys<'_>) -> Result<Arc<dyn Blueprint>, ScenarioError> {
    Ok(Arc::new(XMem {
        working_set: keys.required_size("working_set", 64..=3 << 30)?,
        random: keys.choice("pattern", &["sequential", "random"], "sequential")? == "random",
        access: match keys.choice("operation", &["read", "write"], "read")?.as_str() {
            "write" => Access::Write,
            _ => Access::Read,
        },
        gb_per_s: keys.optional_number("gb_per_s", 0.001..=1000.0)?,
    }))
}

impl Blueprint for XMem {
    fn build(&self, site: &mut Site<'_>) -> Result<Box<dyn Program>, OutOfMemory> {
        let region = site.memory.ordinary(self.working_set)?;
        let (mut steps, costs, work_ns, instructions, bytes) = if self.random {
            (region.lines().to_vec(), site.bus.dependent, 0.0, CHASE_INSTRUCTIONS, 32.0)
        } else {
            let work_ns = site.bus.work_ns(LINE_WORK_NS);
            (region.lines().to_vec(), site.bus.streaming, work_ns, SCAN_INSTRUCTIONS, 64.0)
        };
        if self.random {
            // Two 32-byte chunks a line, in one fixed random cycle.
            let count = steps.len() as u32;
            let order = site.stream().permutation(2 * count);
            steps = order.iter().map(|chunk| region.lines()[(chunk % count) as usize]).collect();
        }
        Ok(Box::new(Walk {
            steps,
            at: 0,
            scale: region.scale(),
            access: self.access,
            costs,
            work_ns,
            instructions,
            bytes,
            workload: site.workload,
            pace_ns: self.gb_per_s.map_or(0.0, |rate| bytes / rate),
        }))
    }
}

/// A cyclic walk over a list of lines.
#[derive(Clone, Debug)]
struct Walk {
    steps: Vec<Line>,
    at: usize,
    /// Real steps per sampled one.
    scale: f64,
    access: Access,
    costs: Costs,
    work_ns: f64,
    instructions: f64,
    bytes: f64,
    workload: usize,
    /// Least time per step, ns.
    pace_ns: f64,
}

impl Program for Walk {
    fn run(&mut self, bus: &mut Bus, core: &mut Core, until_ns: f64) {
        if self.steps.is_empty() {
            // A working set too small for the sample: none of its lines is in it; it fits into the L1.
            core.work((until_ns - core.clock_ns).max(0.0), 0.0);
            return;
        }
        let mut done = 0.0;
        while core.clock_ns < until_ns {
            let ahead = self.at + AHEAD;
            let ahead = if ahead < self.steps.len() { ahead } else { ahead % self.steps.len() };
            bus.memory.chip.prefetch(core.id, self.steps[ahead]);
            let line = self.steps[self.at];
            self.at = if self.at + 1 < self.steps.len() { self.at + 1 } else { 0 };
            let ns = bus.memory.touch(core.id, line, self.access, Fill::Ordinary, &self.costs) + self.work_ns;
            core.work(ns * self.scale, self.instructions * self.scale);
            if self.pace_ns > ns {
                core.halt(core.clock_ns + (self.pace_ns - ns) * self.scale);
            }
            done += self.scale;
        }
        let meter = &mut bus.meters[self.workload];
        meter.operations += done;
        meter.bytes += done * self.bytes;
    }
}
