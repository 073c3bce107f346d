//! `iperf`: a TCP receiver on a kernel socket: every packet's bytes are copied from the packet buffer into the
//! program's own, which it reads into over and over.
//!
//! On a NIC the kernel's receive path ([`Socket`]) is below the program. Behind a switch, or without that path, it is a
//! poller that copies each packet at once, and the sender's rate is the traffic's. Must not know connections.
//! Marks: docs/reference/README.md#marks.

use super::copy::Copy;
use super::dpdk::read_stall;
use super::poller::{Fate, PacketWork, Poller, Stall, Touch};
use super::program::{Blueprint, Program, ProgramKind, ScoreKind, Site, WorkUnit};
use super::socket::{Socket, SocketWork};
use crate::nic::{MAX_BURST, Recycle};
use crate::scenario::{Keys, ScenarioError};
use std::sync::Arc;
use waykeeper_host::WorkloadKind;
use waykeeper_silicon::OutOfMemory;

pub(super) const IPERF: ProgramKind = ProgramKind {
    name: "iperf",
    about: "receives over a socket: copies each packet into its own buffer",
    kind: WorkloadKind::NetworkIo,
    score: ScoreKind::InverseLatency,
    unit: WorkUnit::Bytes,
    read,
};

#[derive(Debug)]
struct Iperf {
    work: PacketWork,
    /// `None` without the kernel's path.
    socket: Option<SocketWork>,
    stall: Stall,
    buffer: u64,
}

fn read(keys: &mut Keys<'_>) -> Result<Arc<dyn Blueprint>, ScenarioError> {
    let work = PacketWork {
        burst: keys.count("burst", 1..=MAX_BURST, 64)?, // Linux: NAPI's weight
        // X: with the copy about 400 ns per packet of 1500 B, 30 Gb/s a core, the order of one iperf3 stream.
        base_ns: keys.number("base_ns", 0.0..=1e6, 120.0)?,
        burst_ns: keys.number("burst_ns", 0.0..=1e6, 300.0)?, // X: a NAPI poll and its part of a system call
        delay_ns: keys.number("delay_ns", 0.0..=1e6, 0.0)?,
        meta_lines: 3, // X: sk_buff
        touch: Touch::Payload,
        fate: Fate::Drop,
    };
    let buffer = keys.size("buffer", 4096..=64 << 20, 128 << 10)?; // iperf3: 128 KiB a read
    let socket = read_socket(keys, &work, buffer)?;
    let socket = keys.flag("kernel_path", true)?.then_some(socket);
    Ok(Arc::new(Iperf { work, socket, stall: read_stall(keys)?, buffer }))
}

/// The keys of the kernel's receive path (microarchitecture.md 7.1 has the source of each value).
fn read_socket(
    keys: &mut Keys<'_>,
    work: &PacketWork,
    buffer_bytes: u64,
) -> Result<SocketWork, ScenarioError> {
    let recycle = match keys.choice("recycle", &["fifo", "lifo"], "fifo")?.as_str() {
        "lifo" => Recycle::Lifo,
        _ => Recycle::Fifo,
    };
    Ok(SocketWork {
        weight: work.burst,
        poll_ns: work.burst_ns,
        softirq_ns: keys.number("softirq_ns", 0.0..=1e6, 275.0)?,
        delay_ns: work.delay_ns,
        read_ns: keys.number("read_ns", 0.0..=1e6, 500.0)?,
        read_bytes: keys.size("read_bytes", 1..=64 << 20, 128 << 10)?,
        buffer_bytes,
        gro_bytes: keys.size("gro_bytes", 0..=64 << 10, 64 << 10)?,
        window_bytes: keys.size("window", 64 << 10..=256 << 20, 6 << 20)?,
        coalesce_ns: keys.number("coalesce_us", 0.0..=1e6, 8.0)? * 1e3,
        coalesce_frames: keys.count("coalesce_frames", 1..=32768, 128)?,
        wakeup_ns: keys.number("wakeup_us", 0.0..=1e6, 3.0)? * 1e3,
        recycle,
    })
}

impl Blueprint for Iperf {
    fn build(&self, site: &mut Site<'_>) -> Result<Box<dyn Program>, OutOfMemory> {
        if let (Some(socket), None, Some(nic)) = (self.socket, site.port, site.nic) {
            let queue = site.thread;
            return Ok(Box::new(Socket::new(site, (nic, queue), socket, self.stall)?));
        }
        let copy = Copy::new(site.memory.ordinary(self.buffer)?, site.bus);
        Ok(Box::new(Poller::with(copy, site, self.work, self.stall)))
    }
}
