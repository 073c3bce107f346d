//! `vswitch`: a virtual switch in front of tenants, IAT's aggregation model (s2.C, s6.B): Open vSwitch with DPDK.
//!
//! It owns its NIC's queues. It looks every packet up in a flow table and copies it into a buffer of a tenant's virtual
//! port; it looks up what the tenant sends back and copies it into a buffer of its own, which the NIC sends.
//! A port is a queue like a NIC's, with the switch in the NIC's place, so every packet program can be a tenant.
//! Knows ports and flows, must not know what tenants do. Marks: docs/reference/README.md#marks.

use super::class::Class;
use super::dpdk::read_stall;
use super::flow_cache::FlowCache;
use super::packet_handler::Spent;
use super::poller::{
    COMPLETION_NS, DESCRIPTOR_LINES, EMPTY_POLL_NS, INSTRUCTIONS_PER_CYCLE, LINE_WORK_NS, PACKET_LINE_NS,
    Stall,
};
use super::program::{Blueprint, Core, Program, ProgramKind, ScoreKind, Site, WorkUnit};
use crate::bus::{Access, Bus, Memory};
use crate::meter::Meter;
use crate::nic::{MAX_BURST, Nic, Packet, Queue};
use crate::random::Stream;
use crate::scenario::{Keys, ScenarioError};
use std::ops::Range;
use std::sync::Arc;
use waykeeper_host::WorkloadKind;
use waykeeper_silicon::{Gather, Level, OutOfMemory};

pub(super) const VSWITCH: ProgramKind = ProgramKind {
    name: "vswitch",
    about: "a virtual switch: looks packets up and copies them to tenants and back (IAT s6.B)",
    kind: WorkloadKind::NetworkIo,
    score: ScoreKind::Ipc,
    unit: WorkUnit::Packets,
    read,
};

/// Lines of the rte_mbuf written per packet, receiving as sending: as dpdk-nt. microarchitecture.md 7.
const META_LINES: u8 = 1;
/// Lines of a port's rings per packet: descriptor and used element (virtio 1.1 s2.6: 16 and 8 bytes).
const PORT_LINES: f64 = 0.375;

#[derive(Debug)]
struct Switch {
    work: Work,
    stall: Stall,
    flows: u32,
    insert_chance: f64,
    shared_pool: bool,
}

#[derive(Clone, Copy, Debug)]
struct Work {
    burst: u32,
    base_ns: f64,
    burst_ns: f64,
}

fn read(keys: &mut Keys<'_>) -> Result<Arc<dyn Blueprint>, ScenarioError> {
    let work = Work {
        burst: keys.count("burst", 1..=MAX_BURST, 32)?, // OVS: NETDEV_MAX_BURST
        // X: with the copies about 110 ns a packet and direction, 4 to 5 Mpps a core there and back.
        base_ns: keys.number("base_ns", 0.0..=1e6, 60.0)?,
        burst_ns: keys.number("burst_ns", 0.0..=1e6, 60.0)?, // as dpdk-t
    };
    Ok(Arc::new(Switch {
        work,
        stall: read_stall(keys)?,
        flows: keys.count("flows", 1..=1_000_000, 131_072)?,
        insert_chance: keys.number("insert_chance", 0.0..=1.0, 0.01)?, // OVS: emc-insert-inv-prob 100
        shared_pool: keys.flag("shared_pool", false)?,
    }))
}

impl Blueprint for Switch {
    fn build(&self, site: &mut Site<'_>) -> Result<Box<dyn Program>, OutOfMemory> {
        let nic = site.nic.expect("a scenario with a switch has a NIC");
        let first = |queues: &[Queue]| {
            queues
                .iter()
                .position(|q| q.workload == site.workload)
                .expect("the machine gives a switch its queues")
        };
        let thread = site.thread - first(&site.bus.nics[nic].queues);
        let outlet = first(&site.bus.nics[nic].outlets) + thread;
        if self.shared_pool {
            let receiver = &mut site.bus.nics[nic].queues[site.thread];
            let mut sender = Queue::new(site.memory, receiver.ring(), site.workload)?;
            receiver.share_pool(&mut sender);
            site.bus.nics[nic].outlets[outlet] = sender;
        }
        // Both directions of a flow are entries of their own: OVS matches the port a packet comes from.
        let flows = FlowCache::new(site, 2 * self.flows, self.insert_chance)?;
        let mut stream = site.stream();
        let next_stall_ns = site.start_ns + stream.exponential(self.stall.period_ns);
        let class = |costs| Class::new(costs, site.bus, Level::Memory);
        let ports = site.tenants.iter().cloned().flatten();
        Ok(Box::new(SwitchThread {
            nic,
            queue: site.thread,
            outlet,
            workload: site.workload,
            tenants: site.tenants.to_vec(),
            polled: ports.skip(thread).step_by(site.threads).collect(),
            next: 0,
            work: self.work,
            shared_pool: self.shared_pool,
            flows,
            completion: class(COMPLETION_NS),
            meta: class(PACKET_LINE_NS),
            copied: class(PACKET_LINE_NS),
            copy: class(PACKET_LINE_NS),
            ring_read: class(PACKET_LINE_NS),
            ring_written: class(PACKET_LINE_NS),
            send: class(PACKET_LINE_NS),
            line_work_ns: site.bus.work_ns(LINE_WORK_NS),
            empty_poll_ns: site.bus.work_ns(EMPTY_POLL_NS),
            stall: self.stall,
            next_stall_ns,
            stream,
            work_from_ns: site.work_from_ns,
        }))
    }
}

/// One polling thread of the switch.
#[derive(Clone, Debug)]
struct SwitchThread {
    nic: usize,
    queue: usize,
    outlet: usize,
    workload: usize,
    /// Ports of each tenant.
    tenants: Vec<Range<usize>>,
    /// Ports this thread takes packets back from.
    polled: Vec<usize>,
    /// Index of the next one to poll; after the last one, its NIC's queue.
    next: usize,
    work: Work,
    /// The NIC's rings receive into and send from one mempool.
    shared_pool: bool,
    flows: FlowCache,
    completion: Class,
    meta: Class,
    /// Class of lines that are read by a copy, and of those that it writes.
    copied: Class,
    copy: Class,
    ring_read: Class,
    ring_written: Class,
    send: Class,
    /// Work on a line beyond fetching it, ns.
    line_work_ns: f64,
    empty_poll_ns: f64,
    stall: Stall,
    next_stall_ns: f64,
    stream: Stream,
    work_from_ns: f64,
}

/// The clock of a turn.
#[derive(Clone, Copy, Debug)]
struct Turn {
    now_ns: f64,
    until_ns: f64,
    worked_ns: f64,
}

impl Turn {
    fn spend(&mut self, spent: Spent) {
        self.now_ns += spent.work_ns + spent.line_ns;
        self.worked_ns += spent.work_ns;
    }

    /// Whether a packet that is visible from `ready_ns` on can be taken in a burst that began at `polled_ns`.
    fn takes(&self, ready_ns: f64, polled_ns: f64) -> bool {
        ready_ns <= polled_ns && self.now_ns < self.until_ns
    }
}

impl SwitchThread {
    /// The port of a flow's packets: flows take turns over tenants, and over the threads of each.
    fn port_of(&self, flow: u32) -> usize {
        let count = self.tenants.len() as u32;
        let ports = &self.tenants[(flow % count) as usize];
        ports.start + (flow / count) as usize % ports.len()
    }

    /// Cost that both directions share: the look-up and the copy of so many lines.
    fn forward(&mut self, flow: u32, lines: u8) -> Spent {
        let found = self.flows.find(flow);
        let lines = f64::from(lines);
        Spent {
            work_ns: self.work.base_ns + found.work_ns + lines * self.line_work_ns,
            line_ns: found.line_ns
                + lines * (self.copied.ns() + self.copy.ns())
                + PORT_LINES * self.ring_read.ns(),
        }
    }

    /// One burst from the NIC to the ports. Returns whether there was a packet.
    fn receive(
        &mut self,
        queue: &mut Queue,
        ports: &mut [Queue],
        meters: &mut [Meter],
        turn: &mut Turn,
    ) -> bool {
        let polled_ns = turn.now_ns;
        let ring_ns = self.completion.ns() + (f64::from(META_LINES) + DESCRIPTOR_LINES) * self.meta.ns();
        for taken in 0..self.work.burst {
            let front = queue.front().filter(|packet| turn.takes(packet.ready_ns, polled_ns)).copied();
            let Some(packet) = front else {
                return taken > 0;
            };
            if taken == 0 {
                turn.spend(Spent { work_ns: self.work.burst_ns, line_ns: 0.0 });
            }
            queue.pool.gather_meta(packet.buffer, META_LINES, &mut self.meta.sampled);
            let port = &mut ports[self.port_of(packet.flow)];
            let room = port.has_posted();
            // Of a packet that finds no room only the header is read, for the look-up.
            let lines = if room { packet.lines } else { 1 };
            queue.pool.gather(packet.buffer, lines, &mut self.copied.sampled);
            turn.spend(self.forward(packet.flow << 1, lines));
            turn.spend(Spent { work_ns: 0.0, line_ns: ring_ns });
            if room {
                copy(&packet, port, turn.now_ns, &mut self.copy.sampled);
                meters[self.workload].operations += 1.0;
                meters[self.workload].bytes += f64::from(packet.bytes);
            } else {
                meters[port.workload].dropped += 1.0;
            }
            queue.advance();
            if self.shared_pool {
                queue.post_returned();
            }
            queue.release();
        }
        true
    }

    /// One burst from a port to the NIC. Returns whether there was a packet.
    fn give_back(
        &mut self,
        port: &mut Queue,
        queue: &mut Queue,
        outlet: &mut Queue,
        turn: &mut Turn,
    ) -> bool {
        let polled_ns = turn.now_ns;
        let ring_ns = self.send.ns() + f64::from(META_LINES) * self.meta.ns();
        for taken in 0..self.work.burst {
            let next = port.next_to_send().filter(|packet| turn.takes(packet.ready_ns, polled_ns)).copied();
            let Some(packet) = next.filter(|_| !outlet.is_full()) else {
                return taken > 0;
            };
            if taken == 0 {
                turn.spend(Spent { work_ns: self.work.burst_ns, line_ns: 0.0 });
            }
            port.pool.gather(packet.buffer, packet.lines, &mut self.copied.sampled);
            turn.spend(self.forward(packet.flow << 1 | 1, packet.lines));
            turn.spend(Spent { work_ns: 0.0, line_ns: ring_ns });
            if self.shared_pool {
                queue.trade(outlet);
            }
            let buffer = copy(&packet, outlet, turn.now_ns, &mut self.copy.sampled).buffer;
            outlet.pool.gather_meta(buffer, META_LINES, &mut self.meta.sampled);
            outlet.advance();
            port.sent(1);
        }
        true
    }

    /// Moves bursts until no packet waits or the turn ends.
    fn turn(&mut self, nic: &mut Nic, ports: &mut [Queue], meters: &mut [Meter], turn: &mut Turn) {
        let Nic { queues, outlets, .. } = nic;
        let (queue, outlet) = (&mut queues[self.queue], &mut outlets[self.outlet]);
        // The turn before may have ended in the middle of a round: this one continues it.
        let mut idle_polls = 0;
        while turn.now_ns < turn.until_ns {
            let busy = match self.polled.get(self.next) {
                Some(port) => self.give_back(&mut ports[*port], queue, outlet, turn),
                None => self.receive(queue, ports, meters, turn),
            };
            self.next = if self.next < self.polled.len() { self.next + 1 } else { 0 };
            idle_polls = if busy { 0 } else { idle_polls + 1 };
            if idle_polls <= self.polled.len() {
                continue;
            }
            idle_polls = 0;
            let room = !outlet.is_full();
            let waiting = self.polled.iter().filter_map(|port| ports[*port].next_to_send()).filter(|_| room);
            let ready =
                waiting.map(|packet| packet.ready_ns).chain(queue.front().map(|packet| packet.ready_ns));
            // It sees the next packet half an empty poll late on average.
            let next = ready.fold(f64::INFINITY, f64::min) + self.empty_poll_ns / 2.0;
            let idle_ns = (next.min(turn.until_ns) - turn.now_ns).max(self.empty_poll_ns);
            turn.spend(Spent { work_ns: idle_ns, line_ns: 0.0 });
        }
    }

    /// Accesses the sampled lines of this turn. Returns by how much their cost exceeds their charge, ns.
    fn settle(&mut self, memory: &mut Memory, nic: &mut Nic, ports: &mut [Queue], core: usize) -> f64 {
        let (queue, outlet) = (&mut nic.queues[self.queue], &mut nic.outlets[self.outlet]);
        queue.gather_completions(&mut self.completion.sampled);
        queue.gather_posted(&mut self.meta.sampled);
        outlet.gather_queued(&mut self.send.sampled);
        for port in self.tenants.iter().cloned().flatten() {
            ports[port].gather_filled(&mut self.ring_read.sampled, &mut self.ring_written.sampled);
        }
        for port in &self.polled {
            ports[*port].gather_sent(&mut self.ring_read.sampled);
        }
        let reads = [&mut self.completion, &mut self.copied, &mut self.ring_read];
        let mut ns: f64 = reads.into_iter().map(|class| class.settle(memory, core, Access::Read)).sum();
        let writes = [&mut self.meta, &mut self.copy, &mut self.ring_written, &mut self.send];
        ns += writes.into_iter().map(|class| class.settle(memory, core, Access::Write)).sum::<f64>();
        ns + self.flows.settle(memory, core)
    }
}

/// Copies a packet into the next posted buffer of another queue, visible from `ready_ns` on.
fn copy(packet: &Packet, to: &mut Queue, ready_ns: f64, written: &mut Gather) -> Packet {
    let copy = to.fill(packet.bytes, packet.flow, packet.arrived_ns, ready_ns);
    to.pool.gather(copy.buffer, copy.lines, written);
    copy
}

impl Program for SwitchThread {
    fn run(&mut self, bus: &mut Bus, core: &mut Core, until_ns: f64) {
        if core.clock_ns < self.work_from_ns {
            core.halt(self.work_from_ns.min(until_ns));
        }
        let Bus { memory, nics, ports, meters, ghz, .. } = bus;
        let instructions_per_ns = *ghz * INSTRUCTIONS_PER_CYCLE;
        while core.clock_ns < until_ns {
            if core.clock_ns >= self.next_stall_ns {
                core.work(self.stall.length_ns, 0.0);
                self.next_stall_ns = core.clock_ns + self.stream.exponential(self.stall.period_ns);
                continue;
            }
            let from_ns = core.clock_ns;
            let mut turn =
                Turn { now_ns: from_ns, until_ns: until_ns.min(self.next_stall_ns), worked_ns: 0.0 };
            let nic = &mut nics[self.nic];
            self.turn(nic, ports, meters, &mut turn);
            // The charge exceeds the real cost at most by the length of the turn.
            let more_ns = self.settle(memory, nic, ports, core.id).max(from_ns - turn.now_ns);
            core.work(turn.now_ns + more_ns - from_ns, turn.worked_ns * instructions_per_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::scenario::ScenarioSource;
    use crate::server::{Machine, RunOptions};
    use std::sync::Arc;
    use waykeeper_silicon::Sampling;

    /// Two tenants, one that sends back and one that drops, at a load above the switch's limit.
    const OVERLOADED: &str = r#"
name = "overloaded"
time_factor = 1
[[nic]]
name = "nic0"
packet_bytes = 64
flows = 100
[[workload]]
name = "ovs"
program = "vswitch"
cores = "0-1"
[[workload]]
name = "returns"
program = "testpmd"
cores = "2-3"
switch = "ovs"
[[workload]]
name = "drops"
program = "dpdk-t"
cores = "4"
switch = "ovs"
delay_ns = 2000
"#;

    #[test]
    fn packets_in_are_packets_out_dropped_or_in_flight() {
        let source = ScenarioSource::parse("test", OVERLOADED, None).unwrap();
        let scenario = Arc::new(source.read().unwrap());
        let options = RunOptions { seed: 1, sample_seed: 1, sampling: Sampling::DEFAULT };
        let mut machine = Machine::new(scenario, options).unwrap();
        machine.run_until(3e6).unwrap();
        let bus = &machine.bus;
        let nic = &bus.nics[0];
        let sum = |queues: &[crate::nic::Queue]| {
            queues.iter().fold([0; 3], |sum, q| std::array::from_fn(|i| sum[i] + q.counts()[i]))
        };
        // Everything offered was written to a queue of the switch or dropped because no buffer was free.
        let [filled, done, released] = sum(&nic.queues);
        assert_eq!(nic.counters.offered, nic.counters.dropped + filled);
        assert!(nic.counters.dropped > 0 && filled > 10_000, "{filled}");
        assert_eq!(done, released);
        // Packets that the switch took are in a port or were dropped before a full one, in most cases the slow
        // tenant's.
        let [in_ports, through, gone] = sum(&bus.ports);
        let dropped = bus.meters[1].dropped + bus.meters[2].dropped;
        assert_eq!(done, in_ports + dropped as u64);
        assert!(bus.meters[2].dropped > 10.0 * bus.meters[1].dropped);
        // Packets that tenants finished were dropped by the one, or sent by the other and wait in its ports or were
        // taken.
        let [drops_in, drops_done, drops_gone] = bus.ports[2].counts();
        assert!(drops_in >= drops_done && drops_done == drops_gone);
        let [outlet_in, outlet_done, sent] = sum(&nic.outlets);
        assert_eq!((outlet_in, outlet_in), (outlet_done, gone - drops_gone));
        assert!(through - drops_done - outlet_in <= 2 * 1024 && outlet_in - sent <= 2 * 1280);
        // The switch's operations: into a port, and onto the wire.
        assert_eq!(bus.meters[0].operations as u64, in_ports + sent);
        assert!(sent > 5_000, "{sent}");
    }

    #[test]
    fn a_shared_mempool_loses_no_buffer_and_receives_into_what_was_sent() {
        let text = OVERLOADED.replace("program = \"vswitch\"", "program = \"vswitch\"\nshared_pool = true");
        let source = ScenarioSource::parse("test", &text, None).unwrap();
        let options = RunOptions { seed: 1, sample_seed: 1, sampling: Sampling::DEFAULT };
        let mut machine = Machine::new(Arc::new(source.read().unwrap()), options).unwrap();
        let held = |machine: &Machine| {
            let nic = &machine.bus.nics[0];
            let both =
                |thread: usize| nic.queues[thread].buffers_held().chain(nic.outlets[thread].buffers_held());
            let mut buffers: Vec<u32> = both(0).collect();
            buffers.sort_unstable();
            // The send queue's own numbers begin where the 2048 + 1280 + 256 of the receive queue end, rounded up.
            (buffers, nic.queues[0].buffers_held().filter(|buffer| *buffer >= 4096).count())
        };
        let (before, _) = held(&machine);
        machine.run_until(3e6).unwrap();
        let (after, received_into) = held(&machine);
        assert_eq!(before, after);
        assert!(received_into > 500, "{received_into}");
        // More buffers may return from the ports than packets arrived meanwhile: the ring must not run empty then.
        machine.bus.nics[0].queues[0].lend_all_but(2);
        let sent = |machine: &Machine| machine.bus.nics[0].outlets[0].counts()[2];
        let before = sent(&machine);
        machine.run_until(5e6).unwrap();
        let between = sent(&machine);
        machine.run_until(7e6).unwrap();
        assert!(between > before + 1000 && sent(&machine) > between + 1000, "{before} {between}");
    }

    #[test]
    fn flows_take_turns_over_tenants_and_their_threads() {
        // Tenants' ports are 0 and 1, and 2: flow 0 leaves through 0, 1 to 2, 2 to 1, 3 to 2.
        let source = ScenarioSource::parse("test", &OVERLOADED.replace("flows = 100", "flows = 4"), None);
        let scenario = Arc::new(source.unwrap().read().unwrap());
        let options = RunOptions { seed: 1, sample_seed: 1, sampling: Sampling::DEFAULT };
        let mut machine = Machine::new(scenario, options).unwrap();
        machine.run_until(50_000.0).unwrap();
        // Not yet overloaded: 148 packets a us x 50 us x 1/4 each is below the rings' 2048 and 1024.
        let filled: Vec<u64> = machine.bus.ports.iter().map(|port| port.counts()[0]).collect();
        assert!(filled[0] > 50 && filled[1] > 50 && filled[2] > 100, "{filled:?}");
    }
}
