//! `memload`: nvme-memload (Werling's thesis, s3), a generator of DMA load from NVMe commands on one buffer.
//!
//! Each worker sends a command and waits for it. `read` and `write` name the memory access: `write` is data that the
//! SSD delivers. With `profile = "thesis"` the block count is passed as the program does it, though the field is
//! zero-based: a command moves one block more than it counts (algorithms.md 7.6). Marks:
//! docs/reference/README.md#marks.

use super::fio::{REQUEST_INSTRUCTIONS, REQUEST_NS};
use super::program::{Blueprint, Core, Program, ProgramKind, ScoreKind, Site, WorkUnit};
use super::working_set::run_of;
use crate::bus::{Access, Bus, ClassMean, Costs};
use crate::meter::BlockCommands;
use crate::nvme::Rings;
use crate::random::Stream;
use crate::scenario::{Keys, LATEST_S, ScenarioError};
use crate::ssd::BlockDirection;
use crate::team::Team;
use std::collections::VecDeque;
use std::sync::Arc;
use waykeeper_host::WorkloadKind;
use waykeeper_load::{
    BudgetRule, COMMAND_BYTES, COMPLETION_BYTES, Command, Limiter, LoadLimits, MemoryDirection, Pattern,
    Shape,
};
use waykeeper_silicon::{Level, OutOfMemory};

pub(super) const MEMLOAD: ProgramKind = ProgramKind {
    name: "memload",
    about: "DMA load from NVMe commands on one buffer (nvme-memload)",
    kind: WorkloadKind::StorageIo,
    score: ScoreKind::InverseLatency,
    unit: WorkUnit::Operations,
    read,
};

/// Bytes of a page, and of the usual block (thesis s5.1: the drive's preferred format).
const PAGE_BYTES: u64 = 4096;
const PAGE_LINES: u32 = 64;
/// Pages of a huge one: 2 MiB.
const HUGE_PAGES: u32 = 512;
/// Cycles of the program's loop over a line that it reads into the caches: it adds 64 bytes one by one (X: one a
/// cycle).
const SUM_CYCLES: f64 = 64.0;
/// Most pages of a command: its list then fills a page, and data sheets allow no more.
const MOST_PAGES: u32 = 512;
/// Largest buffer, bytes: the thesis's own (s5.4.3).
const MOST_BUFFER: u64 = 1 << 30;
/// Most commands or blocks after which a load ends.
const MOST: u32 = u32::MAX;
/// Kernel time of a page's first use beside zeroing it, ns (X).
const FAULT_NS: f64 = 500.0;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Touch {
    None,
    Once,
    Always,
}

#[derive(Clone, Copy, Debug)]
struct Memload {
    shape: Shape,
    /// Pages of a block.
    pages: u32,
    direction: BlockDirection,
    /// Number of workers on all cores; `None` is one on each core.
    workers: Option<u32>,
    /// Commands that a worker keeps in flight.
    depth: u32,
    touch: Touch,
    /// Pages exist from the start; otherwise the kernel zeroes each at its first use.
    resident: bool,
    /// The buffer is on pages of 2 MiB, each zeroed at once; the drive still gets addresses of pages of 4 KiB.
    huge: bool,
    /// A core writes the whole buffer before the first command.
    filled: bool,
    /// The program as published: a block more than counted, and a buffer that begins inside a page.
    thesis: bool,
    limits: LoadLimits,
    end: End,
}

/// When the load ends; `None` is no limit.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    commands: Option<u64>,
    /// Blocks as counted. The last command is shortened if necessary; the published program does not send it then.
    blocks: Option<u64>,
    /// Time from the first command on.
    after_ns: Option<f64>,
}

fn read(keys: &mut Keys<'_>) -> Result<Arc<dyn Blueprint>, ScenarioError> {
    let max = keys.count("max_blocks", 2..=512, 32)?;
    let blocks = keys.count("buffer_blocks", 2..=262_144, 1000)?;
    let names: Vec<&str> = Pattern::ALL.iter().map(|pattern| pattern.name()).collect();
    let name = keys.choice("pattern", &names, Pattern::Random.name())?;
    let pattern = Pattern::ALL.into_iter().find(|pattern| pattern.name() == name).unwrap_or(Pattern::Random);
    let stride = keys.count("slot_blocks", 1..=512, 1)?;
    let thesis = keys.choice("profile", &["true", "thesis"], "true")? == "thesis";
    let shape = match Shape::new(pattern, blocks, max, stride, thesis) {
        Ok(shape) => shape,
        Err(error) => return Err(keys.refuse("buffer_blocks", &blocks, &error.to_string())),
    };
    let catch_up = keys.flag("catch_up", false)?;
    let is_limited = keys.has("blocks_per_s") || keys.has("commands_per_s");
    if catch_up && (thesis || !is_limited) {
        let wanted = match thesis {
            true => "false: the profile `thesis` drops what a slot did not use",
            false => {
                "given together with `blocks_per_s` or `commands_per_s`, whose missed slots it makes up for"
            }
        };
        return Err(keys.refuse("catch_up", &catch_up, wanted));
    }
    let direction = match keys.choice("operation", &["write", "read"], "write")?.as_str() {
        "read" => MemoryDirection::Read,
        _ => MemoryDirection::Write,
    };
    let block = keys.size("block", PAGE_BYTES..=u64::from(MOST_PAGES) * PAGE_BYTES, PAGE_BYTES)?;
    if !block.is_multiple_of(PAGE_BYTES) {
        return Err(keys.refuse("block", &block, "a multiple of 4096 bytes"));
    }
    let pages = (block / PAGE_BYTES) as u32;
    let longest = match pattern {
        Pattern::Random | Pattern::Full => max,
        Pattern::Single | Pattern::Packets => 1 + u32::from(thesis),
        Pattern::Flush | Pattern::Noop => 0,
    };
    if longest * pages > MOST_PAGES {
        let wanted =
            format!("small enough that {longest} blocks, the most that a command moves, are at most 2 MiB");
        return Err(keys.refuse("block", &block, &wanted));
    }
    if u64::from(blocks) * block > MOST_BUFFER {
        return Err(keys.refuse("buffer_blocks", &blocks, "a buffer of at most 1 GiB"));
    }
    Ok(Arc::new(Memload {
        shape,
        pages,
        // The drive writes data that it reads from memory.
        direction: match direction {
            MemoryDirection::Read => BlockDirection::Write,
            MemoryDirection::Write => BlockDirection::Read,
        },
        workers: if keys.has("workers") { Some(keys.count("workers", 1..=64, 1)?) } else { None },
        depth: keys.count("depth", 1..=1024, 1)?,
        touch: match keys.choice("touch", &["none", "once", "always"], "none")?.as_str() {
            "once" => Touch::Once,
            "always" => Touch::Always,
            _ => Touch::None,
        },
        resident: keys.flag("resident", false)?,
        huge: keys.flag("huge_pages", false)?,
        filled: keys.flag("filled", false)?,
        thesis,
        limits: LoadLimits {
            blocks: keys.optional_number("blocks_per_s", 1.0..=1e9)?,
            commands: keys.optional_number("commands_per_s", 1.0..=1e9)?,
            slots: keys.count("slots_per_s", 1..=1_000_000, 1)?,
            rule: match (thesis, catch_up) {
                (true, _) => BudgetRule::Thesis,
                (false, true) => BudgetRule::CatchUp,
                (false, false) => BudgetRule::Exact,
            },
        },
        end: End {
            commands: if keys.has("commands") {
                Some(keys.count("commands", 1..=MOST, 1)?.into())
            } else {
                None
            },
            blocks: if keys.has("blocks") { Some(keys.count("blocks", 1..=MOST, 1)?.into()) } else { None },
            after_ns: keys.optional_number("time_s", 1e-6..=LATEST_S)?.map(|seconds| seconds * 1e9),
        },
    }))
}

impl Memload {
    /// True if a core reads or writes the whole buffer before the first command.
    fn prepares(&self) -> bool {
        self.touch == Touch::Once || self.filled
    }

    /// Pages that the kernel zeroes together at the first use of one of them.
    fn faults(&self) -> u32 {
        if self.huge { HUGE_PAGES } else { 1 }
    }

    /// Number of workers on the thread `thread` of `threads`; workers are distributed in turn.
    fn workers_of(&self, thread: usize, threads: usize) -> u32 {
        let workers = self.workers.map_or(threads, |workers| workers as usize);
        (workers / threads + usize::from(thread < workers % threads)) as u32
    }
}

impl Blueprint for Memload {
    fn has_schedule(&self) -> bool {
        true
    }

    fn build(&self, site: &mut Site<'_>) -> Result<Box<dyn Program>, OutOfMemory> {
        let array = site.array.expect("a scenario with a storage program has an array");
        let leader = site.bus.teams[site.workload].is_none();
        if leader {
            let pages = self.shape.blocks() * self.pages;
            let prepares = self.prepares();
            let bytes = u64::from(pages) * PAGE_BYTES;
            let region = if self.huge { site.memory.huge(bytes) } else { site.memory.ordinary(bytes) }?;
            site.bus.teams[site.workload] = Some(Team {
                buffer: site.bus.arrays[array].add_buffer(site.workload, region),
                position: 0,
                limiter: Limiter::new(self.limits, site.start_ns),
                load: 1.0,
                present: vec![self.resident; pages.div_ceil(self.faults()) as usize],
                ready: !prepares,
                commands: 0,
                blocks: 0,
                begun_ns: None,
                ended: false,
            });
        }
        // A program that counts blocks reports them from the start: no movement is zero blocks.
        let load = site.bus.meters[site.workload].load.get_or_insert_default();
        if leader {
            *load = BlockCommands { blocks: load.blocks, moved: load.moved, ..BlockCommands::default() };
        }
        let streaming = site.bus.streaming;
        let workers = self.workers_of(site.thread, site.threads) * self.depth;
        Ok(Box::new(Loader {
            spec: *self,
            array,
            queue: site.bus.arrays[array].open_queue(site.workload),
            workload: site.workload,
            rings: Rings::new(site.memory, workers)?,
            sent: vec![Sent::default(); workers as usize],
            idle: (0..workers).collect(),
            warm_to: (leader && self.prepares()).then_some(0),
            zeroing: (streaming, ClassMean::new(streaming.idle(Level::Memory))),
            reading: (streaming, ClassMean::new(streaming.idle(Level::Memory))),
            sum_ns: SUM_CYCLES / site.bus.ghz,
            stream: site.stream(),
        }))
    }
}

/// The command that a worker waits for.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    at_ns: f64,
    blocks: u32,
    moved: u32,
}

/// The workers of one core.
#[derive(Clone, Debug)]
struct Loader {
    spec: Memload,
    array: usize,
    queue: u32,
    workload: usize,
    rings: Rings,
    /// Per worker.
    sent: Vec<Sent>,
    /// Workers without a command; the one that waits longest is first.
    idle: VecDeque<u32>,
    /// Number of pages that the thread has filled or read before the first command.
    warm_to: Option<u32>,
    zeroing: (Costs, ClassMean),
    reading: (Costs, ClassMean),
    /// Work on a line that is read into the caches, ns.
    sum_ns: f64,
    stream: Stream,
}

impl Loader {
    fn team<'a>(&self, bus: &'a mut Bus) -> &'a mut Team {
        bus.teams[self.workload].as_mut().expect("the first thread made it")
    }

    /// The core reads pages into the caches.
    fn read(&mut self, bus: &mut Bus, core: &mut Core, from: u32, count: u32) {
        let buffer = self.team(bus).buffer;
        let Bus { memory, arrays, .. } = bus;
        let region = arrays[self.array].buffer(buffer);
        let lines = (region, from * PAGE_LINES, count * PAGE_LINES);
        let ns = run_of(memory, core.id, lines, Access::Read, &mut self.reading);
        let lines = f64::from(count * PAGE_LINES);
        core.work(ns + lines * self.sum_ns, lines * SUM_CYCLES);
    }

    /// The kernel zeroes pages at their first use: memory from malloc does not exist before.
    fn fault_in(&mut self, bus: &mut Bus, core: &mut Core, from: u32, count: u32) {
        let (at_once, end) = (self.spec.faults(), self.spec.shape.blocks() * self.spec.pages);
        for index in from / at_once..(from + count).div_ceil(at_once) {
            let team = self.team(bus);
            if std::mem::replace(&mut team.present[index as usize], true) {
                continue;
            }
            let buffer = team.buffer;
            let Bus { memory, arrays, .. } = bus;
            let region = arrays[self.array].buffer(buffer);
            let first = index * at_once;
            let count = at_once.min(end - first) * PAGE_LINES;
            let ns = run_of(
                memory,
                core.id,
                (region, first * PAGE_LINES, count),
                Access::Write,
                &mut self.zeroing,
            );
            core.work(FAULT_NS + ns, f64::from(count));
        }
    }

    /// Fills the buffer or reads it once, page by page.
    fn warm(&mut self, bus: &mut Bus, core: &mut Core, at: u32) {
        self.fault_in(bus, core, at, 1);
        if self.spec.touch == Touch::Once {
            self.read(bus, core, at, 1);
        }
        self.warm_to = (at + 1 < self.spec.shape.blocks() * self.spec.pages).then_some(at + 1);
        self.team(bus).ready = self.warm_to.is_none();
        bus.meters[self.workload].load.get_or_insert_default().prepared_ns = core.busy_ns;
    }

    /// Rates follow a load of the array that was changed; the first thread that runs changes those of the team.
    fn follow_load(&self, bus: &mut Bus, now_ns: f64) {
        let (load, limits) = (bus.arrays[self.array].load(), self.spec.limits);
        let team = self.team(bus);
        if load != team.load {
            team.load = load;
            team.limiter.set_rates(limits.scaled(load), now_ns);
        }
    }

    /// The next command, if the limits allow one now; else the time at which they will.
    fn draw(&mut self, bus: &mut Bus, now_ns: f64) -> Result<Command, f64> {
        let End { commands, blocks, .. } = self.spec.end;
        let team = self.team(bus);
        team.at(now_ns, self.spec.end.after_ns);
        if team.ended {
            return Err(f64::INFINITY);
        }
        let over_ns = team.over_ns(self.spec.end.after_ns);
        team.limiter.admit(now_ns).map_err(|slot_ns| slot_ns.min(over_ns))?;
        let gone = commands.is_some_and(|most| team.commands >= most);
        if gone || blocks.is_some_and(|most| team.blocks >= most) {
            team.ended = true;
            return Err(f64::INFINITY);
        }
        let mut command = self.spec.shape.next(&mut team.position, |count| self.stream.below(count));
        let left = blocks.map_or(u64::MAX, |most| most - team.blocks);
        if u64::from(command.counted) > left {
            if self.spec.thesis {
                // The published program charges the command that crosses the line and does not send it.
                team.ended = true;
                return Err(f64::INFINITY);
            }
            // The last command is as long as what is left, which is less than its own length.
            let last = left as u32;
            command = Command { counted: last, moved: last, ..command };
        }
        team.limiter.charge(command.counted);
        team.commands += 1;
        team.blocks += u64::from(command.counted);
        Ok(command)
    }

    /// Publishes the load's counts in the meter.
    fn tell(&self, bus: &mut Bus, now_ns: f64) {
        let team = self.team(bus);
        let (begun_ns, ended, over_ns) = (team.begun_ns, team.ended, team.over_ns(self.spec.end.after_ns));
        let load = bus.meters[self.workload].load.get_or_insert_default();
        (load.begun_ns, load.ended) = (begun_ns, ended);
        if ended && over_ns <= now_ns {
            load.last_ns = load.last_ns.max(over_ns);
        }
    }

    fn send(&mut self, bus: &mut Bus, core: &mut Core, worker: u32, command: Command) {
        let Command { target, counted, moved } = command;
        let of_block = self.spec.pages;
        self.fault_in(bus, core, target * of_block, moved * of_block);
        if self.spec.touch == Touch::Always && counted > 0 {
            self.read(bus, core, target * of_block, counted * of_block);
        }
        let pages = moved * of_block + u32::from(self.spec.thesis && moved > 0);
        let buffer = self.team(bus).buffer;
        let Bus { memory, arrays, meters, .. } = bus;
        let array = &mut arrays[self.array];
        self.rings.send(memory, array, core.id, worker, pages);
        self.sent[worker as usize] = Sent { at_ns: core.clock_ns, blocks: counted, moved };
        meters[self.workload].load.get_or_insert_default().outstanding += 1;
        if moved == 0 {
            array.submit_flush(core.clock_ns, self.queue, worker);
        } else {
            let tag = (self.queue, worker);
            let units = target * of_block..(target + moved) * of_block;
            array.submit_units(core.clock_ns, tag, buffer, units, self.spec.direction);
        }
    }

    fn completed(&mut self, bus: &mut Bus, core: &mut Core, worker: u32) {
        core.work(REQUEST_NS, REQUEST_INSTRUCTIONS);
        let Bus { memory, arrays, meters, .. } = bus;
        self.rings.complete(memory, &mut arrays[self.array], core.id);
        let Sent { at_ns, blocks, moved } = self.sent[worker as usize];
        let meter = &mut meters[self.workload];
        meter.operations += 1.0;
        // The thesis's bandwidth (s5.2): blocks, and 80 B of command and completion.
        let block_bytes = (u64::from(self.spec.pages) * PAGE_BYTES) as f64;
        meter.bytes += f64::from(blocks) * block_bytes + (COMMAND_BYTES + COMPLETION_BYTES) as f64;
        let load = meter.load.get_or_insert_default();
        load.blocks += u64::from(blocks);
        load.moved += u64::from(moved);
        load.last_ns = load.last_ns.max(core.clock_ns);
        load.outstanding = load.outstanding.saturating_sub(1);
        meter.latency(core.clock_ns - at_ns);
        self.idle.push_back(worker);
    }
}

impl Program for Loader {
    fn run(&mut self, bus: &mut Bus, core: &mut Core, until_ns: f64) {
        if self.spec.shape.pattern() == Pattern::Noop {
            self.team(bus).at(core.clock_ns, self.spec.end.after_ns);
            self.tell(bus, core.clock_ns);
            core.halt(until_ns);
            return;
        }
        self.follow_load(bus, core.clock_ns);
        while core.clock_ns < until_ns {
            if let Some(at) = self.warm_to {
                self.warm(bus, core, at);
                continue;
            }
            if !self.team(bus).ready {
                core.halt(until_ns);
                continue;
            }
            if let Some(done) = bus.arrays[self.array].poll(self.queue, core.clock_ns) {
                self.completed(bus, core, done.slot);
                continue;
            }
            let array = &bus.arrays[self.array];
            let mut next = array.next_completion_ns(self.queue).unwrap_or(until_ns);
            let may_send = self.sent.len() - self.idle.len() < array.in_flight(self.sent.len());
            if let Some(worker) = self.idle.front().copied().filter(|_| may_send) {
                match self.draw(bus, core.clock_ns) {
                    Ok(command) => {
                        self.idle.pop_front();
                        self.send(bus, core, worker, command);
                        continue;
                    }
                    Err(slot_ns) => next = next.min(slot_ns),
                }
            }
            core.halt(next.min(until_ns));
        }
        self.tell(bus, core.clock_ns);
    }
}

#[cfg(test)]
mod tests;
