//! `fio`, `ffsb-heavy`, `ffsb-light`: storage programs with deep queues.
//!
//! A thread keeps a number of requests in flight, each with a buffer of its own. When one completes, the thread pays a
//! fixed cost, reads every line of the block (A4's regex over the block), and submits the slot
//! again (microarchitecture.md 7, 8). A write sends the present content of its buffer: fio and FFSB fill their buffers
//! once, not for every request. Marks: docs/reference/README.md#marks.

use super::fio_job::{self, Blocks, Pace, Storage};
use super::poller::LINE_WORK_NS;
use super::program::{Blueprint, Core, JobSpan, Program, ProgramKind, ScoreKind, Site, WorkUnit};
use crate::bus::{Access, Bus};
use crate::random::Stream;
use crate::scenario::{Keys, ScenarioError};
use crate::ssd::BlockDirection;
use std::sync::Arc;
use waykeeper_host::WorkloadKind;
use waykeeper_silicon::{Fill, OutOfMemory};
use waykeeper_units::LINE_BYTES;

pub(super) const FIO: ProgramKind = ProgramKind {
    name: "fio",
    about: "random reads or writes at a queue depth, every block consumed (A4 s3.2)",
    kind: WorkloadKind::StorageIo,
    score: ScoreKind::InverseLatency,
    unit: WorkUnit::Bytes,
    read: |keys| read(keys, Usual { block: 128 << 10, depth: 32, writes: 0.0 }),
};

pub(super) const FFSB_HEAVY: ProgramKind = ProgramKind {
    name: "ffsb-heavy",
    about: "FFSB with 2-MiB blocks, reads and writes 1:1, regex over each block (A4 Table 2)",
    // 64 threads over the workload's three cores (artifact).
    read: |keys| read(keys, Usual { block: 2 << 20, depth: 21, writes: 0.5 }),
    ..FIO
};

pub(super) const FFSB_LIGHT: ProgramKind = ProgramKind {
    name: "ffsb-light",
    about: "FFSB with 32-KiB blocks, reads and writes 1:1, regex over each block (A4 Table 2)",
    read: |keys| read(keys, Usual { block: 32 << 10, depth: 32, writes: 0.5 }),
    ..FIO
};

/// Fixed cost of a request on the core, ns (microarchitecture.md 7).
pub(super) const REQUEST_NS: f64 = 3_650.0;
/// Instructions of a request (X: kernel and libaio code at about 1.2 per cycle) and per consumed line.
pub(super) const REQUEST_INSTRUCTIONS: f64 = 10_000.0;
const LINE_INSTRUCTIONS: f64 = 24.0;
/// Prefetch distance, in sampled lines. Assumption: as `bus::AHEAD`.
const AHEAD: usize = 6;

struct Usual {
    block: u64,
    depth: u32,
    writes: f64,
}

fn read(keys: &mut Keys<'_>, usual: Usual) -> Result<Arc<dyn Blueprint>, ScenarioError> {
    if let Some(storage) = fio_job::read(keys)? {
        return Ok(Arc::new(storage));
    }
    Ok(Arc::new(Storage {
        parameters: None,
        notes: Vec::new(),
        block: keys.size("block", 512..=16 << 20, usual.block)?,
        depth: keys.count("depth", 1..=1024, usual.depth)?,
        writes: keys.number("write_share", 0.0..=1.0, usual.writes)?,
    }))
}

impl Blueprint for Storage {
    fn has_schedule(&self) -> bool {
        self.parameters.is_some()
    }

    fn job_spans(&self) -> Vec<JobSpan> {
        fio_job::spans::of(self.parameters.as_deref().unwrap_or_default())
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn build(&self, site: &mut Site<'_>) -> Result<Box<dyn Program>, OutOfMemory> {
        let mut stream = site.stream();
        let Some(jobs) = &self.parameters else {
            let blocks = Blocks::one(self.block);
            return Ok(Box::new(StorageThread::new(site, (self.depth, self.writes), blocks, stream, None)?));
        };
        site.bus.meters[site.workload].job_commands.resize(jobs.len(), 0);
        let mut threads = Vec::with_capacity(jobs.len());
        for (index, job) in jobs.iter().enumerate() {
            // A job by itself has the stream of its thread.
            let own = match index {
                0 => stream.clone(),
                _ => Stream::new(u64::from(stream.bits()), "job"),
            };
            let slots = job.slots_of(site.thread, site.threads);
            let gaps = job.has_random_gaps().then(|| Stream::new(u64::from(stream.bits()), "gaps"));
            let pace = job.pace(site.thread, site.threads, site.start_ns, slots, gaps);
            let thread =
                StorageThread::new(site, (slots, job.writes), job.blocks(), own, Some((index, pace)))?;
            threads.push((job.group, thread));
        }
        Ok(Box::new(JobsThread { threads, group: 0 }))
    }
}

/// The jobs of a job file on one core, one group after the other.
#[derive(Clone, Debug)]
struct JobsThread {
    /// With their groups, which ascend.
    threads: Vec<(usize, StorageThread)>,
    /// The present group.
    group: usize,
}

impl Program for JobsThread {
    fn run(&mut self, bus: &mut Bus, core: &mut Core, until_ns: f64) {
        self.threads.iter_mut().for_each(|(_, thread)| thread.follow_load(bus, core));
        while core.clock_ns < until_ns {
            let (group, now_ns) = (self.group, core.clock_ns);
            let paces =
                || self.threads.iter().filter(|(of, _)| *of == group).filter_map(|(_, it)| it.pace.as_ref());
            if paces().all(|pace| pace.is_over(now_ns)) && self.threads.iter().any(|(of, _)| *of > group) {
                self.group += 1;
                let next = self.threads.iter_mut().filter(|(of, _)| *of == group + 1);
                next.filter_map(|(_, thread)| thread.pace.as_mut()).for_each(|pace| pace.begin(now_ns));
                continue;
            }
            // A job that ends by time is looked at then, even if nothing of it is in flight.
            let ends = paces().map(Pace::over_ns).filter(|over_ns| *over_ns > now_ns);
            let mut wake_ns = ends.fold(until_ns, f64::min);
            let mut has_worked = false;
            for (_, thread) in self.threads.iter_mut().filter(|(of, _)| *of == group) {
                match thread.step(bus, core, until_ns) {
                    Some(next_ns) => wake_ns = wake_ns.min(next_ns),
                    None => has_worked = true,
                }
                if core.clock_ns >= until_ns {
                    return;
                }
            }
            if !has_worked {
                core.halt(wake_ns);
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Index of the present request's size.
    size: usize,
    direction: BlockDirection,
    submitted_ns: f64,
}

/// The block that the thread is reading.
#[derive(Clone, Copy, Debug)]
struct Scan {
    slot: u32,
    at: usize,
}

#[derive(Clone, Debug)]
struct StorageThread {
    array: usize,
    queue: u32,
    workload: usize,
    slots: Vec<Slot>,
    /// For each slot a buffer of each size.
    buffers: Vec<u32>,
    blocks: Blocks,
    writes: f64,
    stream: Stream,
    /// The load of the array that the thread's limits follow.
    load: f64,
    started: bool,
    /// Slots that the load of the array holds back; without limits of a job file. The last one is submitted first, so that
    /// a smaller depth uses fewer buffers.
    resting: Vec<u32>,
    scan: Option<Scan>,
    /// The number of its job in a job file.
    job: Option<usize>,
    /// Limits of the job; without one a slot is submitted again at once.
    pace: Option<Pace>,
}

impl StorageThread {
    /// A thread with so many slots, and a part of requests that write.
    fn new(
        site: &mut Site<'_>,
        (depth, writes): (u32, f64),
        blocks: Blocks,
        stream: Stream,
        job: Option<(usize, Pace)>,
    ) -> Result<StorageThread, OutOfMemory> {
        let index = site.array.expect("a scenario with a storage program has an array");
        let array = &mut site.bus.arrays[index];
        let queue = array.open_queue(site.workload);
        let (job, pace) = job.unzip();
        let largest = blocks.sizes.iter().copied().max().unwrap_or(0);
        let mut slots = Vec::with_capacity(depth as usize);
        let mut buffers = Vec::with_capacity(depth as usize * blocks.sizes.len());
        for _ in 0..depth {
            // A smaller block is the beginning of the same memory, as in fio.
            let region = site.memory.ordinary(largest)?;
            let lines = |bytes: u64| bytes.div_ceil(LINE_BYTES) as u32;
            buffers.extend(
                blocks.sizes.iter().map(|bytes| array.add_part(site.workload, region.clone(), lines(*bytes))),
            );
            slots.push(Slot { size: 0, direction: BlockDirection::Read, submitted_ns: 0.0 });
        }
        Ok(StorageThread {
            array: index,
            queue,
            workload: site.workload,
            slots,
            buffers,
            blocks,
            writes,
            stream,
            load: 1.0,
            started: false,
            resting: Vec::new(),
            scan: None,
            job,
            pace,
        })
    }

    /// Takes a completion, reads on in a block, or submits; nothing is to be done before the time that it returns, if it
    /// returns one, ns.
    fn step(&mut self, bus: &mut Bus, core: &mut Core, until_ns: f64) -> Option<f64> {
        if let Some(mut scan) = self.scan.take() {
            if self.scan(bus, core, &mut scan, until_ns) {
                self.completed(bus, core, scan.slot);
            } else {
                self.scan = Some(scan);
            }
            return None;
        }
        let wake_ns = self.send(bus, core).min(until_ns);
        let array = &mut bus.arrays[self.array];
        let Some(done) = array.poll(self.queue, core.clock_ns) else {
            return Some(array.next_completion_ns(self.queue).unwrap_or(until_ns).min(wake_ns));
        };
        core.work(REQUEST_NS, REQUEST_INSTRUCTIONS);
        match self.slots[done.slot as usize].direction {
            BlockDirection::Read => self.scan = Some(Scan { slot: done.slot, at: 0 }),
            BlockDirection::Write => self.completed(bus, core, done.slot),
        }
        None
    }

    /// Reads on until the block or the quantum ends. Returns whether the block is done.
    fn scan(&mut self, bus: &mut Bus, core: &mut Core, scan: &mut Scan, until_ns: f64) -> bool {
        let work_ns = bus.work_ns(LINE_WORK_NS);
        let Bus { memory, arrays, streaming, .. } = bus;
        let buffer =
            self.buffers[scan.slot as usize * self.blocks.sizes.len() + self.slots[scan.slot as usize].size];
        let (lines, scale) = arrays[self.array].lines_of(buffer);
        while core.clock_ns < until_ns {
            let Some(line) = lines.get(scan.at) else {
                return true;
            };
            if let Some(ahead) = lines.get(scan.at + AHEAD) {
                memory.chip.prefetch(core.id, *ahead);
            }
            scan.at += 1;
            let ns = memory.touch(core.id, *line, Access::Read, Fill::Stream, streaming) + work_ns;
            core.work(ns * scale, LINE_INSTRUCTIONS * scale);
        }
        scan.at == lines.len()
    }

    /// Submits the slot again: a job's check of what was written as a read, else as a read or a write.
    fn submit(&mut self, bus: &mut Bus, core: &Core, slot: u32, is_check: bool) {
        let write = !is_check && self.writes > 0.0 && self.stream.chance(self.writes);
        // What is checked has the size that was written.
        let size = self.blocks.draw(write || (is_check && self.writes > 0.0), &mut self.stream);
        let direction = if write { BlockDirection::Write } else { BlockDirection::Read };
        self.slots[slot as usize] = Slot { size, direction, submitted_ns: core.clock_ns };
        let buffer = self.buffers[slot as usize * self.blocks.sizes.len() + size];
        bus.arrays[self.array].submit(core.clock_ns, self.queue, slot, buffer, direction);
        if let Some(pace) = &mut self.pace {
            pace.sent(self.blocks.sizes[size], write);
        }
    }

    /// Counts a request, and submits its slot again or queues it.
    fn completed(&mut self, bus: &mut Bus, core: &Core, slot: u32) {
        let meter = &mut bus.meters[self.workload];
        meter.operations += 1.0;
        let done = self.slots[slot as usize];
        meter.bytes += self.blocks.sizes[done.size] as f64;
        if let Some(job) = self.job {
            meter.job_commands[job] += 1;
        }
        meter.latency(core.clock_ns - done.submitted_ns);
        match &mut self.pace {
            Some(pace) => {
                pace.rest(slot);
                self.send(bus, core);
            }
            None => {
                self.resting.push(slot);
                self.release(bus, core);
            }
        }
    }

    /// Submits the slots that the load of the array no longer holds back.
    fn release(&mut self, bus: &mut Bus, core: &Core) {
        let most = bus.arrays[self.array].in_flight(self.slots.len());
        while self.slots.len() - self.resting.len() < most
            && let Some(slot) = self.resting.pop()
        {
            self.submit(bus, core, slot, false);
        }
    }

    /// Follows a load of the array that was changed.
    fn follow_load(&mut self, bus: &mut Bus, core: &Core) {
        let load = bus.arrays[self.array].load();
        if load == self.load {
            return;
        }
        self.load = load;
        match &mut self.pace {
            Some(pace) => pace.set_load(load, core.clock_ns),
            None => self.release(bus, core),
        }
    }

    /// Submits the waiting slots that the limits allow. Returns when to check again, ns.
    fn send(&mut self, bus: &mut Bus, core: &Core) -> f64 {
        let most = bus.arrays[self.array].in_flight(self.slots.len());
        while let Some(pace) = &mut self.pace {
            if self.slots.len() - pace.resting() >= most {
                break;
            }
            match pace.next(core.clock_ns) {
                Ok((slot, is_check)) => self.submit(bus, core, slot, is_check),
                Err(at_ns) => return at_ns,
            }
        }
        f64::INFINITY
    }
}

impl Program for StorageThread {
    fn run(&mut self, bus: &mut Bus, core: &mut Core, until_ns: f64) {
        if !std::mem::replace(&mut self.started, true) {
            let most = bus.arrays[self.array].in_flight(self.slots.len()) as u32;
            self.resting.extend(most..self.slots.len() as u32);
            for slot in 0..most {
                // All slots begin with a read so that the queue is deep at once.
                self.slots[slot as usize].submitted_ns = core.clock_ns;
                let buffer = self.buffers[slot as usize];
                bus.arrays[self.array].submit(core.clock_ns, self.queue, slot, buffer, BlockDirection::Read);
            }
        }
        self.follow_load(bus, core);
        while core.clock_ns < until_ns {
            if let Some(next_ns) = self.step(bus, core, until_ns) {
                core.halt(next_ns);
            }
        }
    }
}
