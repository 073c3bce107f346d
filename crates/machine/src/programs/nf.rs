//! IDIO's six network functions: IP forwarding and deep packet inspection, each with a copy, without one, and without
//! sending (IDIO s4; algorithms.md 4.5). They run on bare metal: no system ever stalls them.
//! The paper gives no times. Ours are calibrated (C): they are chosen so that static MLC gains over static LLC about as
//! much as in Fig. 3 for the zRX variants; everything else follows. Knows lines, must not know where they were placed.
//! Marks: docs/reference/README.md#marks.

use super::class::Class;
use super::packet_handler::{PacketHandler, Spent};
use super::poller::{Fate, PacketWork, Poller, Stall, Touch};
use super::program::{Blueprint, Program, ProgramKind, ScoreKind, Site, WorkUnit};
use crate::bus::{Access, Bus, Memory};
use crate::nic::{MAX_BURST, Packet, Pool};
use crate::scenario::{Keys, ScenarioError};
use std::sync::Arc;
use waykeeper_host::WorkloadKind;
use waykeeper_silicon::{Level, OutOfMemory};

/// Work per packet beyond hashing and copying, ns (C).
const BASE_NS: f64 = 28.0;
/// Murmur hash of one line, ns (C).
const HASH_LINE_NS: f64 = 9.4;
/// Copying one line, ns at 2.3 GHz, beyond fetching it (X).
const COPY_LINE_NS: f64 = 6.0;
/// The first line of a packet, which overlaps with nothing, ns at 2.3 GHz: MLC and LLC as in IDIO s3.5; memory such
/// that static DRAM is hardly worse than static LLC, as in Fig. 3 (C).
const HEADER_NS: (f64, f64, f64) = (4.0, 20.0, 28.0);
/// No timer ticks on bare metal.
const NO_STALL: Stall = Stall { length_ns: 0.0, period_ns: 1e15 };

/// Differences of the six functions.
#[derive(Clone, Copy, Debug)]
struct Function {
    /// Hashes the whole packet, otherwise only its header.
    inspects: bool,
    copies: bool,
    sends: bool,
}

const fn row(name: &'static str, about: &'static str, read: Read) -> ProgramKind {
    ProgramKind {
        name,
        about,
        kind: WorkloadKind::NetworkIo,
        score: ScoreKind::InverseLatency,
        unit: WorkUnit::Packets,
        read,
    }
}

type Read = fn(&mut Keys<'_>) -> Result<Arc<dyn Blueprint>, ScenarioError>;

pub(super) const IPF: ProgramKind =
    row("ipf", "copies a packet, hashes its header, sends it (IDIO s4)", |keys| {
        read(keys, Function { inspects: false, copies: true, sends: true })
    });
pub(super) const IPFZ: ProgramKind = row("ipfz", "ipf without the copy (IDIO s4)", |keys| {
    read(keys, Function { inspects: false, copies: false, sends: true })
});
pub(super) const IPFZRX: ProgramKind =
    row("ipfzrx", "ipfz that drops instead of sending (IDIO s4)", |keys| {
        read(keys, Function { inspects: false, copies: false, sends: false })
    });
pub(super) const DPI: ProgramKind =
    row("dpi", "copies a packet, hashes all of it, sends it (IDIO s4)", |keys| {
        read(keys, Function { inspects: true, copies: true, sends: true })
    });
pub(super) const DPIZ: ProgramKind = row("dpiz", "dpi without the copy (IDIO s4)", |keys| {
    read(keys, Function { inspects: true, copies: false, sends: true })
});
pub(super) const DPIZRX: ProgramKind =
    row("dpizrx", "dpiz that drops instead of sending (IDIO s4)", |keys| {
        read(keys, Function { inspects: true, copies: false, sends: false })
    });

#[derive(Debug)]
struct NetworkFunction {
    function: Function,
    work: PacketWork,
    hash_line_ns: f64,
}

fn read(keys: &mut Keys<'_>, function: Function) -> Result<Arc<dyn Blueprint>, ScenarioError> {
    let work = PacketWork {
        burst: keys.count("burst", 1..=MAX_BURST, 32)?,
        base_ns: keys.number("base_ns", 0.0..=1e6, BASE_NS)?,
        burst_ns: 0.0,
        delay_ns: 0.0,
        meta_lines: 1,
        touch: Touch::None, // the handler does
        fate: if function.sends { Fate::Send } else { Fate::Drop },
    };
    let hash_line_ns = keys.number("hash_line_ns", 0.0..=1e6, HASH_LINE_NS)?;
    Ok(Arc::new(NetworkFunction { function, work, hash_line_ns }))
}

impl Blueprint for NetworkFunction {
    fn build(&self, site: &mut Site<'_>) -> Result<Box<dyn Program>, OutOfMemory> {
        let lines = Lines::new(self.function, self.hash_line_ns, site.bus);
        Ok(if self.function.copies {
            Box::new(Poller::with(Copying(lines), site, self.work, NO_STALL))
        } else {
            Box::new(Poller::with(lines, site, self.work, NO_STALL))
        })
    }
}

/// The lines of packets that a function reads and writes.
#[derive(Clone, Debug)]
struct Lines {
    function: Function,
    hash_line_ns: f64,
    copy_line_ns: f64,
    header: Class,
    payload: Class,
    copy: Class,
}

impl Lines {
    fn new(function: Function, hash_line_ns: f64, bus: &Bus) -> Lines {
        Lines {
            function,
            hash_line_ns,
            copy_line_ns: bus.work_ns(COPY_LINE_NS),
            header: Class::new(HEADER_NS, bus, Level::Llc),
            payload: Class::of(bus.streaming, Level::Llc),
            copy: Class::of(bus.streaming, Level::Mlc),
        }
    }
}

impl PacketHandler for Lines {
    #[inline(always)]
    fn run(&mut self, packet: &mut Packet, pool: &Pool) -> Spent {
        let Function { inspects, copies, .. } = self.function;
        pool.gather(packet.buffer, 1, &mut self.header.sampled);
        let lines = f64::from(packet.lines);
        let hashed = if inspects { lines } else { 1.0 };
        let mut spent = Spent { work_ns: hashed * self.hash_line_ns, line_ns: self.header.ns() };
        if inspects || copies {
            pool.gather_behind(packet.buffer, 1, packet.lines, &mut self.payload.sampled);
            spent.line_ns += (lines - 1.0) * self.payload.ns();
        }
        if copies {
            spent.work_ns += lines * self.copy_line_ns;
            spent.line_ns += lines * self.copy.ns();
        }
        spent
    }

    fn rest(&mut self, packet: &mut Packet, pool: &Pool) -> Spent {
        let Function { inspects, copies, .. } = self.function;
        let lines = f64::from(packet.lines);
        let mut spent = Spent { work_ns: 0.0, line_ns: 0.0 };
        if inspects || copies {
            pool.gather(packet.buffer, packet.lines, &mut self.payload.sampled);
            spent.line_ns += lines * self.payload.ns();
        }
        if inspects {
            spent.work_ns += lines * self.hash_line_ns;
        }
        if copies {
            spent.work_ns += lines * self.copy_line_ns;
            spent.line_ns += lines * self.copy.ns();
        }
        spent
    }

    #[inline(always)]
    fn settle(&mut self, memory: &mut Memory, core: usize) -> f64 {
        let read = self.header.settle(memory, core, Access::Read);
        let read = read + self.payload.settle(memory, core, Access::Read);
        read + self.copy.settle(memory, core, Access::Write)
    }
}

/// A function that sends a copy: hash and copy read each line once between them.
#[derive(Clone, Debug)]
struct Copying(Lines);

impl PacketHandler for Copying {
    const COPIES: bool = true;

    #[inline(always)]
    fn run(&mut self, packet: &mut Packet, pool: &Pool) -> Spent {
        self.0.run(packet, pool)
    }

    fn rest(&mut self, packet: &mut Packet, pool: &Pool) -> Spent {
        self.0.rest(packet, pool)
    }

    #[inline(always)]
    fn copied(&mut self, packet: &Packet, pool: &Pool) {
        pool.gather(packet.buffer, packet.lines, &mut self.0.copy.sampled);
    }

    #[inline(always)]
    fn settle(&mut self, memory: &mut Memory, core: usize) -> f64 {
        self.0.settle(memory, core)
    }
}
