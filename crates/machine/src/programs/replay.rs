//! `replay`: a core driven by the memory trace of a real program, in a loop.
//!
//! The trace passes an L1 filter first, since the chip model begins at the MLC. Pages of the trace get
//! random frames, as the program's own pages had. Knows records, not file formats.
//! Marks: docs/reference/README.md#marks.

use super::program::{Blueprint, Core, Program, ProgramKind, ScoreKind, Site, WorkUnit};
use crate::bus::{Access, Bus, ClassMean, Costs};
use crate::scenario::{Keys, ScenarioError};
use std::collections::HashMap;
use std::sync::Arc;
use waykeeper_host::WorkloadKind;
use waykeeper_inputs::{TouchKind, Trace};
use waykeeper_silicon::{FRAME_LINES, Fill, Level, Line, OutOfMemory};
use waykeeper_units::LINE_BYTES;

pub(super) const REPLAY: ProgramKind = ProgramKind {
    name: "replay",
    about: "replays the memory trace of a real program (waykeeper trace record)",
    kind: WorkloadKind::NonIo,
    score: ScoreKind::Ipc,
    unit: WorkUnit::Instructions,
    read,
};

#[derive(Debug)]
struct Replay {
    trace: Arc<Trace>,
    cpi: f64,
    mlp: f64,
}

fn read(keys: &mut Keys<'_>) -> Result<Arc<dyn Blueprint>, ScenarioError> {
    let path = keys.required_path("trace")?;
    let millions = keys.optional_number("max_million_instructions", 0.001..=1e6)?;
    let trace = keys.origin().inputs.trace(&path, millions.map(|m| (m * 1e6) as u64))?;
    if trace.records.is_empty() {
        return Err(keys.refuse("trace", &path.display(), "a trace with accesses that leave the L1"));
    }
    // X: of the order of the profiles of `spec`; a trace does not say how long its instructions take.
    let cpi = keys.number("cpi", 0.1..=20.0, 0.6)?;
    Ok(Arc::new(Replay { trace, cpi, mlp: keys.number("mlp", 1.0..=20.0, 2.0)? }))
}

impl Blueprint for Replay {
    fn build(&self, site: &mut Site<'_>) -> Result<Box<dyn Program>, OutOfMemory> {
        let frame = |line: u64| line / u64::from(FRAME_LINES);
        let mut pages: HashMap<u64, u32> = HashMap::new();
        for record in &self.trace.records {
            let next = pages.len() as u32;
            pages.entry(frame(record.line)).or_insert(next);
        }
        let bytes = pages.len() as u64 * u64::from(FRAME_LINES) * LINE_BYTES;
        let region = site.memory.ordinary(bytes)?;
        let mut at = vec![None; region.total_lines() as usize];
        for (line, offset) in region.lines().iter().zip(region.offsets()) {
            at[*offset as usize] = Some(*line);
        }
        let mut steps = Vec::new();
        let mut skipped = Step::NOTHING;
        for record in &self.trace.records {
            let page = pages[&frame(record.line)];
            let within = (record.line % u64::from(FRAME_LINES)) as u32;
            skipped.instructions += record.instructions as f64;
            match at[(page * FRAME_LINES + within) as usize] {
                Some(line) => {
                    let write = record.kind == TouchKind::Store;
                    steps.push(Step { line: Some(line), write, ..skipped });
                    skipped = Step::NOTHING;
                }
                None => skipped.outside += 1,
            }
        }
        skipped.instructions += self.trace.tail_instructions as f64;
        steps.push(skipped);
        let costs = site.bus.dependent.scaled(1.0 / self.mlp);
        Ok(Box::new(ReplayThread {
            steps,
            at: 0,
            costs,
            mean: ClassMean::new(costs.idle(Level::Mlc)),
            ns_per_instruction: self.cpi / site.bus.ghz,
            workload: site.workload,
        }))
    }
}

/// A sampled access with what lies between it and the one before.
#[derive(Clone, Copy, Debug)]
struct Step {
    line: Option<Line>,
    write: bool,
    instructions: f64,
    /// Accesses outside the sample since the last step.
    outside: u32,
}

impl Step {
    const NOTHING: Step = Step { line: None, write: false, instructions: 0.0, outside: 0 };
}

#[derive(Clone, Debug)]
struct ReplayThread {
    steps: Vec<Step>,
    at: usize,
    costs: Costs,
    mean: ClassMean,
    ns_per_instruction: f64,
    workload: usize,
}

impl Program for ReplayThread {
    fn run(&mut self, bus: &mut Bus, core: &mut Core, until_ns: f64) {
        let before = core.instructions;
        while core.clock_ns < until_ns {
            let step = self.steps[self.at];
            self.at = if self.at + 1 < self.steps.len() { self.at + 1 } else { 0 };
            let mut ns = step.instructions * self.ns_per_instruction;
            if let Some(line) = step.line {
                let access = if step.write { Access::Write } else { Access::Read };
                let cost = bus.memory.touch(core.id, line, access, Fill::Ordinary, &self.costs);
                self.mean.note(cost);
                ns += cost;
            }
            ns += f64::from(step.outside) * self.mean.ns();
            // A trace without instructions between its accesses still takes a cycle a step.
            core.work(ns.max(1.0 / bus.ghz), step.instructions);
        }
        bus.meters[self.workload].operations += core.instructions - before;
    }
}
