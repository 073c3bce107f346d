//! A worker: keeps its commands outstanding until no more are to be sent, and counts completions.
//!
//! Knows an engine and the shared state; must not know the kind of engine, nor how results are shown.

use crate::admission::{ENDLESS, Next, place_below};
use crate::engine::{CompletedIo, Engine, IoCommand, IoOperation};
use crate::plan::{LoadPlan, Touch};
use crate::ready::Ready;
use crate::run::Shared;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use waykeeper_load::{Command, LoadTotals, MemoryDirection};

/// Maximum different transfers that a worker remembers for verification: about 50 MiB.
const TRAIL: usize = 1 << 20;

/// A command that completed without an error, with its times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Logged {
    /// When it was sent, ns from the start. Commands of one batch have the same time.
    pub sent_ns: u64,
    /// Its latency, ns.
    pub took_ns: u64,
    /// The command.
    pub io: IoCommand,
}

/// Results of a worker.
#[derive(Debug, Default)]
pub struct WorkerResults {
    /// Its counts.
    pub totals: LoadTotals,
    /// Its transfers without duplicates; only for verification.
    pub trail: HashSet<IoCommand>,
    /// True if it had more transfers than it can remember.
    pub forgot: bool,
    /// Each command; only if the plan requests a log.
    pub log: Vec<Logged>,
}

/// An outstanding command.
#[derive(Clone, Copy)]
struct Sent {
    at_ns: u64,
    counted: u32,
    moved: u32,
    io: IoCommand,
}

/// Works until all commands are sent, the time is over, or a stop is requested; then waits for outstanding commands.
pub fn work<E: Engine>(
    engine: &mut E,
    ready: &Ready,
    shared: &Shared,
    index: usize,
    mut random: Xoshiro256PlusPlus,
) {
    let depth = ready.engine_depth() as usize;
    let nothing = Command { target: 0, counted: 0, moved: 0 };
    let idle = Sent { at_ns: 0, counted: 0, moved: 0, io: ready.io(&nothing, ready.plan().op, 0) };
    let mut sent = vec![idle; depth];
    let mut free: Vec<u32> = (0..ready.engine_depth()).rev().collect();
    let (mut batch, mut done): (Vec<Command>, Vec<CompletedIo>) =
        (Vec::with_capacity(depth), Vec::with_capacity(depth));
    let live = &shared.workers[index];
    let touches = ready.plan().touch == Touch::Always && ready.plan().pattern.moves();
    let trails = ready.plan().verify && ready.plan().pattern.moves();
    let logs = ready.plan().log;
    let mut now_ns = shared.now_ns();
    let mut last_ns = now_ns;
    let mut unsent = 0;
    loop {
        let ending = shared.is_over(now_ns);
        let mut next = Next::Over;
        if !ending && !free.is_empty() {
            next = shared.admission.take(&mut now_ns, free.len(), &mut random, &mut batch);
            if touches && !batch.is_empty() {
                for command in &batch {
                    let io = ready.io(command, ready.plan().op, 0);
                    ready.buffer().touch(io.offset, io.bytes as usize);
                }
                // The touch takes time that is not part of the device's latency.
                now_ns = shared.now_ns();
            }
            for command in &batch {
                let direction = direction(ready.plan(), &mut random);
                let io = ready.io(command, direction, place(ready, command, direction, &mut random));
                // There are at most as many commands as free numbers.
                let Some(number) = free.pop() else { break };
                engine.push(io, number);
                sent[number as usize] =
                    Sent { at_ns: now_ns, counted: command.counted, moved: command.moved, io };
            }
            batch.clear();
        } else if !ending {
            next = Next::Go;
        }
        if free.len() == depth {
            match next {
                Next::Wait(until_ns) if !ending => {
                    shared.sleep_until(until_ns);
                    now_ns = shared.now_ns();
                    continue;
                }
                _ => break,
            }
        }
        let until = match next {
            Next::Wait(until_ns) if until_ns != ENDLESS => Some(shared.instant(until_ns)),
            _ => None,
        };
        live.outstanding.store((depth - free.len()) as u64, Relaxed);
        if let Err(why) = engine.carry(until, &mut done) {
            unsent = engine.unsent();
            shared.broken(&why);
            break;
        }
        now_ns = shared.now_ns();
        let mut left = live.results();
        for (number, end) in done.drain(..) {
            let Some(&was) = sent.get(number as usize) else { continue };
            free.push(number);
            last_ns = now_ns;
            match end {
                Ok(()) => {
                    let took_ns = now_ns.saturating_sub(was.at_ns).max(1);
                    // Only histograms of fixed length can fail here; this one grows.
                    let _ = left.totals.latency_ns.record(took_ns);
                    left.totals.commands += 1;
                    left.totals.blocks += u64::from(was.counted);
                    left.totals.moved += u64::from(was.moved);
                    if was.io.operation == IoOperation::FromMemory {
                        left.totals.outward += u64::from(was.moved);
                    }
                    if logs {
                        left.log.push(Logged { sent_ns: was.at_ns, took_ns, io: was.io });
                    }
                    if trails && !left.forgot {
                        left.trail.insert(was.io);
                        left.forgot = left.trail.len() > TRAIL;
                    }
                }
                Err(fault) => {
                    left.totals.errors += 1;
                    shared.failed(was.io, fault);
                }
            }
        }
        left.totals.runtime = Duration::from_nanos(last_ns);
    }
    live.outstanding.store((depth - free.len() - unsent) as u64, Relaxed);
    // A run that ends because all is sent ends with its last completion; a stopped or timed one ends now.
    let end_ns = if shared.is_over(now_ns) { now_ns } else { last_ns };
    live.results().totals.runtime = Duration::from_nanos(end_ns);
}

/// Direction of the next command's data.
fn direction(plan: &LoadPlan, random: &mut Xoshiro256PlusPlus) -> MemoryDirection {
    /// Resolution of the random share.
    const WHOLE: u64 = 1 << 53;
    match plan.mixed {
        None => plan.op,
        Some(part) if (place_below(random, WHOLE) as f64) < part * WHOLE as f64 => MemoryDirection::Read,
        Some(_) => MemoryDirection::Write,
    }
}

/// Position on the device: reads are from its start; writes are at random positions, so that its cells wear evenly
/// (algorithms.md 7.2).
fn place(
    ready: &Ready,
    command: &Command,
    direction: MemoryDirection,
    random: &mut Xoshiro256PlusPlus,
) -> u64 {
    match direction {
        MemoryDirection::Write => 0,
        MemoryDirection::Read => {
            let block = u64::from(ready.block_bytes());
            let blocks = ready.target().bytes / block;
            place_below(random, (blocks + 1).saturating_sub(u64::from(command.moved))) * block
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ready::tests::on_nothing;
    use rand_core::SeedableRng;
    use std::io;
    use std::time::Instant;

    /// An engine that breaks at the first `carry`, with some commands unsent.
    struct Breaks {
        taken: usize,
        gone: usize,
    }

    impl Engine for Breaks {
        fn push(&mut self, _: IoCommand, _: u32) {
            self.taken += 1;
        }

        fn carry(&mut self, _: Option<Instant>, _: &mut Vec<CompletedIo>) -> io::Result<()> {
            Err(io::Error::from_raw_os_error(libc::ENXIO))
        }

        fn unsent(&mut self) -> usize {
            self.taken - self.gone
        }
    }

    #[test]
    fn what_has_not_gone_is_not_lost() {
        let ready = on_nothing(LoadPlan { depth: 5, ..LoadPlan::default() });
        let shared = Shared::new(&ready);
        work(&mut Breaks { taken: 0, gone: 2 }, &ready, &shared, 0, Xoshiro256PlusPlus::seed_from_u64(1));
        assert_eq!(shared.workers[0].results().totals.commands, 0);
        // Five were taken, and the device has two of them.
        assert_eq!(shared.workers[0].outstanding.load(Relaxed), 2);
        assert!(shared.is_over(0), "no worker sends more");
    }
}
