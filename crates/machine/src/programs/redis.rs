//! `redis-server` and `redis-client`: a key-value store under YCSB mixes, over loopback.
//!
//! The server looks a key up (dependent loads in its dictionary), reads or rewrites a record and answers; the client
//! (YCSB, a Java program) makes requests in a closed loop. Requests and answers are in lines that both access. The
//! store holds YCSB's default of 1000 records; the client's allocation rate is calibrated on its LLC hit ratio in
//! A4 Fig. 13b (10 % shared); the rest is assumption (X). Marks: docs/reference/README.md#marks.

use super::program::{Blueprint, Core, Program, ProgramKind, ScoreKind, Site, WorkUnit};
use super::working_set::{WorkingSet, anywhere, in_turn, message, mix};
use crate::bus::{Access, Bus, ClassMean, Costs};
use crate::mailbox::{Message, REQUEST_LINES};
use crate::random::{Stream, Zipf};
use crate::scenario::{Keys, ScenarioError};
use std::sync::Arc;
use waykeeper_host::WorkloadKind;
use waykeeper_silicon::{Level, OutOfMemory, Region};

pub(super) const SERVER: ProgramKind = ProgramKind {
    name: "redis-server",
    about: "a key-value store answering a redis-client workload (YCSB mixes)",
    kind: WorkloadKind::NonIo,
    score: ScoreKind::Ipc,
    unit: WorkUnit::Operations,
    read: read_server,
};

pub(super) const CLIENT: ProgramKind = ProgramKind {
    name: "redis-client",
    about: "YCSB: keeps requests to a redis-server in flight",
    read: read_client,
    ..SERVER
};

/// Lines of a record: ten fields of 100 bytes (YCSB's default) with their headers.
const RECORD_LINES: u32 = 18;
/// Lines of a field that an update rewrites. Assumption: 100 bytes (YCSB's default).
const FIELD_LINES: u32 = 2;
/// Dependent look-ups per key: bucket, entry, key, object. Assumption: the chain of Redis' dictionary without
/// collisions.
const LOOKUPS: f64 = 4.0;
/// Kernel and server code per request, ns, at `INSTRUCTIONS_PER_NS` (X: one core serves about 100 k/s).
const SERVER_NS: f64 = 5_500.0;
/// YCSB code per request, ns. Assumption: about as long as the server takes.
const CLIENT_NS: f64 = 5_000.0;
/// Instructions per ns of that code (X: IPC of about 1.2).
const INSTRUCTIONS_PER_NS: f64 = 2.8;
/// Lines of kernel and program state touched per request (random in a small set). Assumption: a few KiB of socket,
/// event loop and stack.
const STATE_LINES: f64 = 60.0;
/// Lines the client's allocator writes per request: a young generation passes through the cache. Calibrated: the hit
/// ratio of A4 Fig. 13b.
const HEAP_LINES: f64 = 120.0;
/// From one side's send to the other's wake-up, ns. Assumption: a wake-up over loopback takes microseconds.
const WAKE_NS: f64 = 2_000.0;

#[derive(Clone, Copy, Debug)]
struct Server {
    records: u32,
}

#[derive(Clone, Copy, Debug)]
struct Client {
    writes: f64,
    heap: u64,
}

fn read_server(keys: &mut Keys<'_>) -> Result<Arc<dyn Blueprint>, ScenarioError> {
    Ok(Arc::new(Server { records: keys.count("records", 1..=1_000_000, 1_000)? }))
}

fn read_client(keys: &mut Keys<'_>) -> Result<Arc<dyn Blueprint>, ScenarioError> {
    Ok(Arc::new(Client { writes: mix(keys)?, heap: keys.size("heap", 1 << 16..=1 << 30, 64 << 20)? }))
}

impl Blueprint for Server {
    fn build(&self, site: &mut Site<'_>) -> Result<Box<dyn Program>, OutOfMemory> {
        let state = site.memory.ordinary(384 << 10)?;
        // 64 bytes of dictionary (bucket, entry, object headers) a record, beside the record itself.
        let dictionary = site.memory.ordinary(u64::from(self.records) * 64)?;
        let records = site.memory.ordinary(u64::from(self.records) * u64::from(RECORD_LINES) * 64)?;
        let (dependent, streaming) = (site.bus.dependent, site.bus.streaming);
        Ok(Box::new(ServerThread {
            mailbox: site.mailbox.expect("a scenario with a redis program has the pair"),
            workload: site.workload,
            // X: two of its loads overlap.
            state: WorkingSet::new(state, dependent.scaled(0.5)),
            dictionary: WorkingSet::new(dictionary, dependent),
            records,
            record: (streaming, ClassMean::new(streaming.idle(Level::Llc))),
            message: (streaming, ClassMean::new(streaming.idle(Level::Peer))),
            zipf: Zipf::new(self.records, 0.99), // YCSB: ZIPFIAN_CONSTANT
            stream: site.stream(),
        }))
    }
}

#[derive(Clone, Debug)]
struct ServerThread {
    mailbox: usize,
    workload: usize,
    state: WorkingSet,
    dictionary: WorkingSet,
    records: Region,
    record: (Costs, ClassMean),
    message: (Costs, ClassMean),
    zipf: Zipf,
    stream: Stream,
}

impl ServerThread {
    fn serve(&mut self, bus: &mut Bus, core: &mut Core, mut request: Message) {
        let Bus { memory, mailboxes, meters, .. } = bus;
        let mailbox = &mut mailboxes[self.mailbox];
        let lines = mailbox.request(request.slot);
        let mut ns = message(memory, core.id, lines, REQUEST_LINES, Access::Read, &mut self.message);
        ns += self.state.touch(memory, core.id, STATE_LINES, Access::Write, &mut self.stream, anywhere);
        ns += self.dictionary.touch(memory, core.id, LOOKUPS, Access::Read, &mut self.stream, anywhere);
        let record = self.zipf.draw(&mut self.stream) * RECORD_LINES;
        let (count, access) =
            if request.write { (FIELD_LINES, Access::Write) } else { (RECORD_LINES, Access::Read) };
        let range = self.records.range(record, record + count);
        ns += message(memory, core.id, &self.records.lines()[range], count, access, &mut self.record);
        if !request.write {
            let lines = mailbox.response(request.slot);
            ns += message(memory, core.id, lines, RECORD_LINES, Access::Write, &mut self.message);
        }
        core.work(SERVER_NS + ns, SERVER_NS * INSTRUCTIONS_PER_NS);
        request.ready_ns = core.clock_ns + WAKE_NS;
        mailbox.responses.push_back(request);
        let meter = &mut meters[self.workload];
        meter.operations += 1.0;
        meter.bytes += f64::from(RECORD_LINES) * 64.0;
        meter.latency(core.clock_ns - request.sent_ns);
    }
}

impl Program for ServerThread {
    fn run(&mut self, bus: &mut Bus, core: &mut Core, until_ns: f64) {
        while core.clock_ns < until_ns {
            let requests = &mut bus.mailboxes[self.mailbox].requests;
            match requests.front().map(|m| m.ready_ns) {
                Some(ready) if ready <= core.clock_ns => {
                    let request = requests.pop_front().expect("it has a front");
                    self.serve(bus, core, request);
                }
                next => core.halt(next.unwrap_or(until_ns).min(until_ns)),
            }
        }
    }
}

impl Blueprint for Client {
    fn build(&self, site: &mut Site<'_>) -> Result<Box<dyn Program>, OutOfMemory> {
        let state = site.memory.ordinary(1536 << 10)?;
        let heap = site.memory.ordinary(self.heap)?;
        let (dependent, streaming) = (site.bus.dependent, site.bus.streaming);
        Ok(Box::new(ClientThread {
            mailbox: site.mailbox.expect("a scenario with a redis program has the pair"),
            workload: site.workload,
            writes: self.writes,
            state: WorkingSet::new(state, dependent.scaled(0.5)),
            heap: WorkingSet::new(heap, streaming),
            message: (streaming, ClassMean::new(streaming.idle(Level::Peer))),
            stream: site.stream(),
            started: false,
        }))
    }
}

#[derive(Clone, Debug)]
struct ClientThread {
    mailbox: usize,
    workload: usize,
    writes: f64,
    state: WorkingSet,
    heap: WorkingSet,
    message: (Costs, ClassMean),
    stream: Stream,
    started: bool,
}

impl ClientThread {
    fn send(&mut self, bus: &mut Bus, core: &mut Core, slot: u32) {
        let Bus { memory, mailboxes, .. } = bus;
        let mailbox = &mut mailboxes[self.mailbox];
        let lines = mailbox.request(slot);
        let mut ns = message(memory, core.id, lines, REQUEST_LINES, Access::Write, &mut self.message);
        ns += self.heap.touch(memory, core.id, HEAP_LINES, Access::Write, &mut self.stream, in_turn);
        core.work(CLIENT_NS / 2.0 + ns, CLIENT_NS / 2.0 * INSTRUCTIONS_PER_NS);
        let write = self.stream.chance(self.writes);
        let (sent_ns, ready_ns) = (core.clock_ns, core.clock_ns + WAKE_NS);
        mailbox.requests.push_back(Message { slot, sent_ns, ready_ns, write });
    }

    fn receive(&mut self, bus: &mut Bus, core: &mut Core, response: Message) {
        let Bus { memory, mailboxes, meters, .. } = bus;
        let total = if response.write { 0 } else { RECORD_LINES };
        let lines = if response.write { &[] } else { mailboxes[self.mailbox].response(response.slot) };
        let mut ns = message(memory, core.id, lines, total, Access::Read, &mut self.message);
        ns += self.state.touch(memory, core.id, STATE_LINES, Access::Write, &mut self.stream, anywhere);
        core.work(CLIENT_NS / 2.0 + ns, CLIENT_NS / 2.0 * INSTRUCTIONS_PER_NS);
        let meter = &mut meters[self.workload];
        meter.operations += 1.0;
        meter.bytes += f64::from(RECORD_LINES) * 64.0;
        meter.latency(core.clock_ns - response.sent_ns);
    }
}

impl Program for ClientThread {
    fn run(&mut self, bus: &mut Bus, core: &mut Core, until_ns: f64) {
        if !self.started {
            self.started = true;
            for slot in 0..bus.mailboxes[self.mailbox].slots() {
                self.send(bus, core, slot);
            }
        }
        while core.clock_ns < until_ns {
            let responses = &mut bus.mailboxes[self.mailbox].responses;
            match responses.front().map(|m| m.ready_ns) {
                Some(ready) if ready <= core.clock_ns => {
                    let response = responses.pop_front().expect("it has a front");
                    self.receive(bus, core, response);
                    self.send(bus, core, response.slot);
                }
                next => core.halt(next.unwrap_or(until_ns).min(until_ns)),
            }
        }
    }
}
