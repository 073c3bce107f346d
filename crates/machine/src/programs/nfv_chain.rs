//! `nfv-chain`: a stateful service chain on one core: firewall, NAPT, load balancer (ddio-bench s5-s8; IAT s6.C
//! runs a firewall, flow statistics and NAPT).
//!
//! The firewall reads rules, the other functions read and write lines of each flow's own. Knows the lines, must not
//! know the content of a rule. Marks: docs/reference/README.md#marks.

use super::dpdk::read_stall;
use super::packet_handler::{PacketHandler, Spent};
use super::poller::{Fate, PacketWork, Poller, Stall, Touch};
use super::program::{Blueprint, Program, ProgramKind, ScoreKind, Site, WorkUnit};
use super::table::{Lookups, Table};
use crate::bus::{Access, Memory};
use crate::nic::{MAX_BURST, Packet, Pool};
use crate::scenario::{Keys, ScenarioError};
use std::sync::Arc;
use waykeeper_host::WorkloadKind;
use waykeeper_silicon::OutOfMemory;

pub(super) const NFV_CHAIN: ProgramKind = ProgramKind {
    name: "nfv-chain",
    about: "firewall, NAPT and load balancer: reads rules, reads and writes per-flow state (IAT s6.C)",
    kind: WorkloadKind::NetworkIo,
    score: ScoreKind::InverseLatency,
    unit: WorkUnit::Packets,
    read,
};

/// Nodes of the firewall's decision tree read per packet, a line each (X: a tree over a thousand rules, its
/// upper nodes in one line).
const RULE_LINES: u32 = 3;
/// Lines of a flow that are read: the hash buckets of NAPT and load balancer (X).
const READ_LINES: u32 = 2;
/// Lines of a flow that are rewritten: NAPT's mapping with its time of last use, the flow's counters (X).
const WRITTEN_LINES: u32 = 2;

#[derive(Debug)]
struct Chain {
    work: PacketWork,
    stall: Stall,
    flows: u32,
    rules: u32,
}

fn read(keys: &mut Keys<'_>) -> Result<Arc<dyn Blueprint>, ScenarioError> {
    let work = PacketWork {
        burst: keys.count("burst", 1..=MAX_BURST, 32)?,
        base_ns: keys.number("base_ns", 0.0..=1e6, 34.0)?, // as l2fwd: 22 receiving + 12 sending
        burst_ns: keys.number("burst_ns", 0.0..=1e6, 40.0)?, // as l2fwd
        delay_ns: keys.number("delay_ns", 0.0..=1e6, 120.0)?, // X: three functions of 40 ns
        meta_lines: 3,                                     // as l2fwd, FastClick's packet
        touch: Touch::Header,
        fate: Fate::Send,
    };
    let flows = keys.count("flows", 1..=4_000_000, 65_536)?;
    let rules = keys.count("rules", 1..=1_000_000, 1_000)?;
    Ok(Arc::new(Chain { work, stall: read_stall(keys)?, flows, rules }))
}

impl Blueprint for Chain {
    fn build(&self, site: &mut Site<'_>) -> Result<Box<dyn Program>, OutOfMemory> {
        // Run to completion: RSS gives a core its flows, and their state is the core's own.
        let rules = Table::own(site, self.rules.max(RULE_LINES))?;
        let read = Table::own(site, self.flows * READ_LINES)?;
        let written = Table::own(site, self.flows * WRITTEN_LINES)?;
        let handler = State {
            rules: Lookups::new(rules, Access::Read, site.bus),
            read: Lookups::new(read, Access::Read, site.bus),
            written: Lookups::new(written, Access::Write, site.bus),
        };
        Ok(Box::new(Poller::with(handler, site, self.work, self.stall)))
    }
}

/// Rules and per-flow state.
#[derive(Clone, Debug)]
struct State {
    rules: Lookups,
    read: Lookups,
    written: Lookups,
}

impl PacketHandler for State {
    #[inline(always)]
    fn run(&mut self, packet: &mut Packet, _: &Pool) -> Spent {
        let flow = packet.flow;
        let mut line_ns = self.rules.touch(flow.wrapping_mul(RULE_LINES), RULE_LINES);
        line_ns += self.read.touch(flow.wrapping_mul(READ_LINES), READ_LINES);
        line_ns += self.written.touch(flow.wrapping_mul(WRITTEN_LINES), WRITTEN_LINES);
        Spent { work_ns: 0.0, line_ns }
    }

    #[inline(always)]
    fn settle(&mut self, memory: &mut Memory, core: usize) -> f64 {
        let rules = self.rules.settle(memory, core);
        rules + self.read.settle(memory, core) + self.written.settle(memory, core)
    }
}
