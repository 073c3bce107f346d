//! SSDs and RAID-0 arrays of them: commands, flash, transfer, completion.
//!
//! A drive overlaps flash accesses and moves one command at a time in 4-KiB units (microarchitecture.md 7;
//! with interleaved commands the model does not reproduce A4 Fig. 5's read curve). Knows buffers and DMA, must not know
//! what a program does with a block. Both directions move at the same time: PCIe is full duplex.

use crate::posted;
use crate::random::Stream;
use std::collections::VecDeque;
use std::ops::Range;
use waykeeper_silicon::{Chip, Gather, Line, Region};
use waykeeper_units::LINE_BYTES;

/// Transfer unit, bytes. microarchitecture.md 7.
const UNIT_BYTES: u32 = 4096;
const UNIT_LINES: u32 = UNIT_BYTES / 64;

/// An array as a scenario describes it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ArraySpec {
    /// Drives in the stripe set.
    pub drives: u32,
    /// Bytes per stripe chunk.
    pub chunk_bytes: u32,
    /// Transfer rate of one drive, GB/s.
    pub drive_gb_per_s: f64,
    /// Rate at which one drive accepts writes, GB/s; `None`: its read rate.
    pub write_gb_per_s: Option<f64>,
    /// Payload rate of one drive's PCIe link in each direction, GB/s; `None`: no limit.
    pub link_gb_per_s: Option<f64>,
    /// From submission until a command is fetched and decoded, ns.
    pub command_ns: f64,
    /// Most commands that the array's controller begins per second; `None`: no limit.
    pub commands_per_s: Option<f64>,
    /// Time that the controller's one command server takes for a command with data, ns: part of the command's latency,
    /// and the next one waits for it. A flush bypasses it (microarchitecture.md 7). 0: there is no server.
    pub service_ns: f64,
    /// From submission until a flush is fetched and decoded, ns; `None`: as any other command.
    pub flush_ns: Option<f64>,
    /// Mean flash latency, ns.
    pub flash_ns: f64,
    /// Uniform spread of the flash latency, 0..1.
    pub flash_spread: f64,
    /// From the last unit to the completion the host sees, ns.
    pub completion_ns: f64,
    /// Commands a drive moves at a time.
    pub interleave: u32,
}

impl Default for ArraySpec {
    /// 4 x 980 PRO behind one x16 port (microarchitecture.md 7).
    fn default() -> ArraySpec {
        ArraySpec {
            drives: 4,
            chunk_bytes: 512 * 1024,
            drive_gb_per_s: 2.69,
            write_gb_per_s: None,
            link_gb_per_s: None,
            command_ns: 0.0,
            commands_per_s: None,
            service_ns: 0.0,
            flush_ns: None,
            flash_ns: 65_000.0,
            flash_spread: 0.3,
            completion_ns: 3_000.0,
            interleave: 1,
        }
    }
}

impl ArraySpec {
    /// The most that all drives together can move, to the host and from it, bytes per second.
    pub fn bytes_per_s(&self) -> (f64, f64) {
        let link = self.link_gb_per_s.unwrap_or(f64::INFINITY);
        let all = |one: f64| one.min(link) * f64::from(self.drives) * 1e9;
        (all(self.drive_gb_per_s), all(self.write_gb_per_s.unwrap_or(self.drive_gb_per_s)))
    }
}

/// Direction of the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockDirection {
    /// Drive to host: DMA writes.
    Read,
    /// Host to drive: DMA reads.
    Write,
}

/// The owner of free entries.
const NO_OWNER: usize = usize::MAX;

/// A finished request.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// The submitter's slot.
    pub slot: u32,
    /// When the host can see it, ns.
    pub ready_ns: f64,
}

/// Memory of one I/O slot, with its sampled lines found by unit.
#[derive(Clone, Debug)]
struct Buffer {
    /// The workload that owns it.
    owner: usize,
    region: Region,
    /// Index of the first sampled line of each unit; one more at the end.
    unit_start: Vec<u32>,
    /// Lines of the last unit.
    last_lines: u32,
}

impl Buffer {
    #[inline(always)]
    fn last_unit(&self) -> u32 {
        self.unit_start.len() as u32 - 2
    }

    /// Adds the sampled lines of some units to a list.
    #[inline(always)]
    fn gather(&self, units: Range<u32>, into: &mut Gather) {
        let (from, to) =
            (self.unit_start[units.start as usize] as usize, self.unit_start[units.end as usize] as usize);
        into.extend(&self.region.lines()[from..], to - from);
    }
}

#[derive(Clone, Copy, Debug)]
struct Request {
    queue: u32,
    slot: u32,
    parts_left: u32,
    last_ns: f64,
}

/// The part of a request that one drive serves: whole units of the buffer.
#[derive(Clone, Copy, Debug)]
struct Part {
    request: u32,
    buffer: u32,
    direction: BlockDirection,
    next_unit: u32,
    end_unit: u32,
    /// When flash has the data (reads) or the drive requests them (writes), ns.
    ready_ns: f64,
}

/// One direction of a drive: reads and writes have a lane each.
#[derive(Clone, Debug, Default)]
struct Lane {
    waiting: Vec<Part>,
    moving: VecDeque<Part>,
    free_ns: f64,
    /// Nothing moves before this time, ns; earlier checks are skipped.
    due_ns: f64,
}

/// State of a part after it moved as far as possible.
enum Turn {
    /// The time is over: it continues in the next quantum.
    Kept,
    /// It has moved completely.
    Ended,
    /// Another part moves next: commands that are moved together take turns, unit by unit.
    Passed,
}

/// A submission and completion queue pair.
#[derive(Clone, Debug)]
struct IoQueue {
    /// The workload that owns it.
    owner: usize,
    completions: VecDeque<Completion>,
}

/// A RAID-0 array (or a single drive).
#[derive(Clone, Debug)]
pub struct Array {
    pub(crate) device: usize,
    spec: ArraySpec,
    /// Time of a line: reads, then writes.
    line_ns: [f64; 2],
    /// Least time of a line that a drive writes to the host now; all drives share the root port.
    posted_ns: f64,
    /// The controller begins no command before this time, ns.
    begins_ns: f64,
    /// When the command server is free, ns.
    serves_ns: f64,
    /// Two per drive: reads, then writes.
    lanes: Vec<Lane>,
    buffers: Vec<Buffer>,
    free_buffers: Vec<u32>,
    requests: Vec<Request>,
    free_requests: Vec<u32>,
    queues: Vec<IoQueue>,
    free_queues: Vec<u32>,
    stream: Stream,
    /// Share of the scenario's load that its programs offer, 0..1.
    load: f64,
    /// Lines to read and to write before this turn of the array ends.
    reads: Gather,
    writes: Gather,
    /// Bytes written to the host and read from it.
    pub(crate) inbound_bytes: u64,
    pub(crate) outbound_bytes: u64,
    /// Commands and PRP lists read from the host and completions written to it, where a program has rings.
    pub(crate) control: Control,
}

/// Control traffic of an array, lines.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Control {
    /// Lines read: commands and PRP lists.
    pub(crate) reads: u64,
    /// Of these, lines of PRP lists.
    pub(crate) lists: u64,
    /// Lines written in part: completions.
    pub(crate) writes: u64,
}

impl Array {
    pub(crate) fn new(device: usize, spec: ArraySpec, stream: Stream) -> Array {
        Array {
            device,
            spec,
            line_ns: [spec.drive_gb_per_s, spec.write_gb_per_s.unwrap_or(spec.drive_gb_per_s)]
                .map(|rate| LINE_BYTES as f64 / rate.min(spec.link_gb_per_s.unwrap_or(f64::INFINITY))),
            posted_ns: 0.0,
            begins_ns: 0.0,
            serves_ns: 0.0,
            reads: Gather::new(),
            writes: Gather::new(),
            lanes: vec![Lane::default(); 2 * spec.drives as usize],
            buffers: Vec::new(),
            free_buffers: Vec::new(),
            requests: Vec::new(),
            free_requests: Vec::new(),
            queues: Vec::new(),
            free_queues: Vec::new(),
            stream,
            load: 1.0,
            inbound_bytes: 0,
            outbound_bytes: 0,
            control: Control::default(),
        }
    }

    /// Its programs offer this share of the scenario's load from now on.
    pub(crate) fn set_load(&mut self, share: f64) {
        self.load = share.clamp(0.0, 1.0);
    }

    /// The share of the scenario's load that its programs offer.
    pub(crate) fn load(&self) -> f64 {
        self.load
    }

    /// Requests that a thread keeps in flight at the present load, of `depth` in the scenario: a part of one is one.
    pub(crate) fn in_flight(&self, depth: usize) -> usize {
        (self.load * depth as f64).ceil() as usize
    }

    /// A submission and completion queue pair for a thread of a workload.
    pub(crate) fn open_queue(&mut self, owner: usize) -> u32 {
        let queue = IoQueue { owner, completions: VecDeque::new() };
        place(&mut self.queues, &mut self.free_queues, queue)
    }

    /// Registers an I/O buffer of a workload.
    pub(crate) fn add_buffer(&mut self, owner: usize, region: Region) -> u32 {
        let lines = region.total_lines();
        self.add_part(owner, region, lines)
    }

    /// Registers the first `lines` lines of a region as a buffer.
    pub(crate) fn add_part(&mut self, owner: usize, region: Region, lines: u32) -> u32 {
        let units = lines.div_ceil(UNIT_LINES);
        let until = |unit: u32| region.range(0, (unit * UNIT_LINES).min(lines)).end as u32;
        let unit_start = (0..=units).map(until).collect();
        let last_lines = lines - (units - 1) * UNIT_LINES;
        let buffer = Buffer { owner, region, unit_start, last_lines };
        place(&mut self.buffers, &mut self.free_buffers, buffer)
    }

    /// Number of queues, buffers and requests in its tables, used or not.
    pub(crate) fn footprint(&self) -> usize {
        self.buffers.len() + self.requests.len() + self.queues.len()
    }

    /// Deletes the queues and buffers of a workload that has exited. Commands in flight are aborted.
    pub(crate) fn close(&mut self, owner: usize) {
        let Array { lanes, buffers, requests, queues, .. } = self;
        let mut aborted = Vec::new();
        let mut stays = |part: &Part| {
            let stays = buffers[part.buffer as usize].owner != owner;
            if !stays {
                aborted.push(part.request);
            }
            stays
        };
        for lane in lanes {
            lane.waiting.retain(&mut stays);
            lane.moving.retain(&mut stays);
            lane.due_ns = 0.0;
        }
        aborted.sort_unstable();
        aborted.dedup();
        debug_assert!(aborted.iter().all(|id| queues[requests[*id as usize].queue as usize].owner == owner));
        self.free_requests.append(&mut aborted);
        for (id, queue) in self.queues.iter_mut().enumerate().filter(|(_, queue)| queue.owner == owner) {
            *queue = IoQueue { owner: NO_OWNER, completions: VecDeque::new() };
            self.free_queues.push(id as u32);
        }
        for (id, buffer) in self.buffers.iter_mut().enumerate().filter(|(_, buffer)| buffer.owner == owner) {
            *buffer =
                Buffer { owner: NO_OWNER, region: Region::default(), unit_start: Vec::new(), last_lines: 0 };
            self.free_buffers.push(id as u32);
        }
    }

    /// The memory of a buffer.
    pub(crate) fn buffer(&self, buffer: u32) -> &Region {
        &self.buffers[buffer as usize].region
    }

    /// The sampled lines of a buffer, and how many lines each represents.
    pub(crate) fn lines_of(&self, buffer: u32) -> (&[Line], f64) {
        let Buffer { region, unit_start, .. } = &self.buffers[buffer as usize];
        let end = unit_start.last().map_or(0, |end| *end as usize);
        (&region.lines()[..end], region.scale())
    }

    /// Submits one request for the whole of `buffer` at a random place of the array.
    pub(crate) fn submit(
        &mut self,
        now_ns: f64,
        queue: u32,
        slot: u32,
        buffer: u32,
        direction: BlockDirection,
    ) {
        let units = self.buffers[buffer as usize].unit_start.len() as u32 - 1;
        self.submit_units(now_ns, (queue, slot), buffer, 0..units, direction);
    }

    /// Submits one request for the 4-KiB units `range` of `buffer`.
    pub(crate) fn submit_units(
        &mut self,
        now_ns: f64,
        (queue, slot): (u32, u32),
        buffer: u32,
        range: Range<u32>,
        direction: BlockDirection,
    ) {
        let units = range.end - range.start;
        let begun_ns = self.serve(now_ns) + self.spec.command_ns;
        let per_chunk = (self.spec.chunk_bytes / UNIT_BYTES).max(1);
        let parts = units.div_ceil(per_chunk);
        let request = Request { queue, slot, parts_left: parts, last_ns: 0.0 };
        let id = match self.free_requests.pop() {
            Some(id) => {
                self.requests[id as usize] = request;
                id
            }
            None => {
                self.requests.push(request);
                self.requests.len() as u32 - 1
            }
        };
        let first_drive = self.stream.below(self.spec.drives);
        for part in 0..parts {
            // The drive's own buffer acknowledges a write: it is fetched at once, flash comes later.
            let flash = match direction {
                BlockDirection::Read => self.stream.around(self.spec.flash_ns, self.spec.flash_spread),
                BlockDirection::Write => 0.0,
            };
            let drive = ((first_drive + part) % self.spec.drives) as usize;
            let lane = 2 * drive + usize::from(direction == BlockDirection::Write);
            self.lanes[lane].due_ns = 0.0;
            self.lanes[lane].waiting.push(Part {
                request: id,
                buffer,
                direction,
                next_unit: range.start + part * per_chunk,
                end_unit: range.start + ((part + 1) * per_chunk).min(units),
                ready_ns: begun_ns + flash,
            });
        }
    }

    /// Submits a request without data: a flush of an empty cache.
    pub(crate) fn submit_flush(&mut self, now_ns: f64, queue: u32, slot: u32) {
        let latency_ns = self.spec.flush_ns.unwrap_or(self.spec.command_ns);
        let ready_ns = self.begin(now_ns) + latency_ns + self.spec.completion_ns;
        self.complete(queue, Completion { slot, ready_ns });
    }

    /// When the controller begins a command that is submitted now.
    fn begin(&mut self, now_ns: f64) -> f64 {
        let Some(most) = self.spec.commands_per_s else { return now_ns };
        let from_ns = self.begins_ns.max(now_ns);
        self.begins_ns = from_ns + 1e9 / most;
        from_ns
    }

    /// When the command server finishes a command with data that is submitted now.
    fn serve(&mut self, now_ns: f64) -> f64 {
        let begun_ns = self.begin(now_ns);
        if self.spec.service_ns == 0.0 {
            return begun_ns;
        }
        self.serves_ns = self.serves_ns.max(begun_ns) + self.spec.service_ns;
        self.serves_ns
    }

    /// The oldest completion of a queue, if the host can see it at `now_ns`.
    pub(crate) fn poll(&mut self, queue: u32, now_ns: f64) -> Option<Completion> {
        let queue = &mut self.queues[queue as usize].completions;
        if queue.front()?.ready_ns <= now_ns { queue.pop_front() } else { None }
    }

    /// When the next completion of a queue becomes visible, if there is one.
    pub(crate) fn next_completion_ns(&self, queue: u32) -> Option<f64> {
        self.queues[queue as usize].completions.front().map(|c| c.ready_ns)
    }

    /// Moves every unit whose transfer ends before `until_ns`.
    pub(crate) fn advance(&mut self, chip: &mut Chip, until_ns: f64) {
        self.reads.clear();
        self.writes.clear();
        self.posted_ns = posted::line_ns(chip, self.device) * f64::from(self.spec.drives);
        for index in 0..self.lanes.len() {
            while self.lanes[index].due_ns < until_ns {
                if let Some((request, end_ns)) = self.move_part(index, until_ns) {
                    self.finish(request, end_ns);
                }
            }
        }
        chip.dma_read_all(self.device, self.reads.lines());
        chip.dma_write_all(self.device, self.writes.lines());
    }

    /// Moves units of the next part until it is complete, the time ends or another part is next. Returns the request of
    /// this part and, if the part is complete, its end.
    fn move_part(&mut self, index: usize, until_ns: f64) -> Option<(u32, f64)> {
        let Array {
            spec,
            line_ns,
            posted_ns,
            lanes,
            buffers,
            reads,
            writes,
            inbound_bytes,
            outbound_bytes,
            ..
        } = self;
        let lane = &mut lanes[index];
        let mut due_ns = f64::INFINITY;
        while lane.moving.len() < spec.interleave as usize && !lane.waiting.is_empty() {
            let first = earliest(&lane.waiting);
            let at = lane.free_ns.max(lane.waiting[first].ready_ns);
            if at >= until_ns {
                due_ns = at;
                break;
            }
            lane.moving.push_back(lane.waiting.swap_remove(first));
        }
        let alone = lane.moving.len() == 1;
        let Some(part) = lane.moving.front_mut() else {
            lane.due_ns = due_ns;
            return None;
        };
        let buffer = &buffers[part.buffer as usize];
        let (into, bytes, line_ns) = match part.direction {
            BlockDirection::Read => (writes, inbound_bytes, line_ns[0].max(*posted_ns)),
            BlockDirection::Write => (reads, outbound_bytes, line_ns[1]),
        };
        let (first_unit, mut free_ns) = (part.next_unit, lane.free_ns.max(part.ready_ns));
        let turn = loop {
            let lines = if part.next_unit == buffer.last_unit() { buffer.last_lines } else { UNIT_LINES };
            let end_ns = free_ns + f64::from(lines) * line_ns;
            if end_ns >= until_ns {
                lane.due_ns = due_ns.min(end_ns);
                break Turn::Kept;
            }
            part.next_unit += 1;
            *bytes += u64::from(lines) * 64;
            free_ns = end_ns;
            if part.next_unit == part.end_unit {
                break Turn::Ended;
            }
            if !alone || due_ns <= end_ns {
                break Turn::Passed;
            }
        };
        if part.next_unit == first_unit {
            return None;
        }
        lane.free_ns = free_ns;
        buffer.gather(first_unit..part.next_unit, into);
        let request = part.request;
        match turn {
            Turn::Kept => None,
            Turn::Ended => {
                lane.moving.pop_front();
                Some((request, free_ns))
            }
            Turn::Passed => {
                lane.moving.rotate_left(1);
                None
            }
        }
    }

    fn finish(&mut self, id: u32, end_ns: f64) {
        let request = &mut self.requests[id as usize];
        request.parts_left -= 1;
        request.last_ns = request.last_ns.max(end_ns);
        if request.parts_left > 0 {
            return;
        }
        let done = Completion { slot: request.slot, ready_ns: request.last_ns + self.spec.completion_ns };
        let queue = request.queue;
        self.complete(queue, done);
        self.free_requests.push(id);
    }

    fn complete(&mut self, queue: u32, done: Completion) {
        let queue = &mut self.queues[queue as usize].completions;
        // Drives finish independently within a quantum; completions are seen in time order.
        let at = queue.iter().rposition(|c| c.ready_ns <= done.ready_ns).map_or(0, |i| i + 1);
        queue.insert(at, done);
    }
}

/// Puts an item into a free place of a table, or appends it.
fn place<T>(table: &mut Vec<T>, free: &mut Vec<u32>, thing: T) -> u32 {
    match free.pop() {
        Some(id) => {
            table[id as usize] = thing;
            id
        }
        None => {
            table.push(thing);
            table.len() as u32 - 1
        }
    }
}

fn earliest(parts: &[Part]) -> usize {
    let mut best = 0;
    for (index, part) in parts.iter().enumerate() {
        if part.ready_ns < parts[best].ready_ns {
            best = index;
        }
    }
    best
}

#[cfg(test)]
mod tests;
