//! Results of a measured interval: the true values that reports show.
//!
//! Read from the machine's state, not from the counters that a policy sees. Rates are per second of simulated traffic.
//! Must not reach a policy.

use crate::server::Machine;
use crate::ssd::Array;
use waykeeper_silicon::{
    ChipCounters, CoreCounters, DcaCounters, DeviceCounters, EvictionCount, PrefetchCounters,
};
use waykeeper_units::LINE_BYTES;

/// Results of one workload.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkloadMeasured {
    /// Operations per second: packets, I/Os, requests, instructions, lines.
    pub operations_per_s: f64,
    /// Payload bytes per second.
    pub bytes_per_s: f64,
    /// Dropped packets per second.
    pub dropped_per_s: f64,
    /// Mean latency, ns.
    pub latency_mean_ns: Option<f64>,
    /// Median latency, ns.
    pub latency_p50_ns: Option<f64>,
    /// 99th percentile latency, ns.
    pub latency_p99_ns: Option<f64>,
    /// Mean time of a packet in the RX ring, ns; `None` for programs without a ring.
    pub queueing_mean_ns: Option<f64>,
    /// Mean time to access a packet's completion, descriptor and metadata, ns.
    pub pointer_mean_ns: Option<f64>,
    /// Mean time to process a packet, ns.
    pub processing_mean_ns: Option<f64>,
    /// Instructions per busy cycle.
    pub ipc: Option<f64>,
    /// Share of the cores' time in which they were not halted.
    pub busy_ratio: f64,
    /// LLC hits / (hits + misses).
    pub llc_hit_ratio: Option<f64>,
    /// MLC hits / (hits + misses).
    pub mlc_hit_ratio: Option<f64>,
    /// LLC misses per second, including those of prefetches.
    pub llc_misses_per_s: f64,
    /// Demand accesses that missed the MLC, per second.
    pub demand_mlc_misses_per_s: f64,
    /// ... of these, served by memory.
    pub demand_llc_misses_per_s: f64,
    /// Lines that prefetchers fetched into the MLC, per second.
    pub prefetches_per_s: f64,
    /// ... of these, not accessed by the program afterwards.
    pub useless_prefetches_per_s: f64,
    /// LLC bytes occupied at the end.
    pub llc_occupancy_bytes: f64,
}

/// Results of the whole system.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SystemMeasured {
    /// Memory reads, bytes per second.
    pub memory_read_bytes_per_s: f64,
    /// Memory writes, bytes per second.
    pub memory_write_bytes_per_s: f64,
    /// Mean latency of a dependent load from memory, under load, ns.
    pub memory_latency_ns: f64,
    /// Device writes that found their line cached / all device writes with DCA on.
    pub dca_write_hit_ratio: Option<f64>,
    /// Device reads that the caches served / all device reads.
    pub dca_read_hit_ratio: Option<f64>,
    /// Device-written lines evicted before a core read them, per second (DMA leak).
    pub dma_leak_lines_per_s: f64,
    /// I/O lines that moved from an MLC to CAT ways, per second (DMA bloat).
    pub dma_bloat_lines_per_s: f64,
    /// I/O lines that migrated to the inclusive ways, per second.
    pub migrations_per_s: f64,
    /// MLC lines evicted because the directory was full, per second.
    pub directory_evictions_per_s: f64,
    /// Packets dropped by NICs, per second.
    pub drops_per_s: f64,
    /// Bytes devices wrote to the host, per second.
    pub inbound_bytes_per_s: f64,
    /// Bytes devices read from the host, per second.
    pub outbound_bytes_per_s: f64,
    /// Sampled line events in the interval, for benchmarks.
    pub line_events: u64,
}

/// Dirty lines that the caches evicted over the measured interval: IDIO is judged by them and by latency.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WriteBacks {
    /// From MLCs, per second (0 on a chip with an inclusive LLC, which still has a copy).
    pub mlc_lines_per_s: f64,
    /// From the LLC, per second.
    pub llc_lines_per_s: f64,
}

/// All results of the measured interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Length, s of simulated traffic.
    pub seconds: f64,
    /// Per workload, in the scenario's order.
    pub workloads: Vec<WorkloadMeasured>,
    /// Per workload the commands of each job of its job file; empty without one.
    pub job_commands: Vec<Vec<u64>>,
    /// Per storage array, in the scenario's order: bytes moved / bytes that its drives and link can move in the same time,
    /// of the direction with the larger ratio.
    pub drive_busy_ratios: Vec<f64>,
    /// The whole system.
    pub system: SystemMeasured,
}

/// The machine's cumulative counts at one time.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) at_ns: f64,
    pub(crate) cores: Vec<CoreCounters>,
    /// Per core: one entry per group of sets.
    pub(crate) core_groups: Vec<Vec<CoreCounters>>,
    prefetches: Vec<PrefetchCounters>,
    busy_ns: Vec<f64>,
    instructions: Vec<f64>,
    pub(crate) devices: Vec<DeviceCounters>,
    /// Per device: one entry per group of sets.
    pub(crate) device_groups: Vec<Vec<DcaCounters>>,
    pub(crate) arrays: Vec<ArrayLines>,
    pub(crate) evictions: Vec<EvictionCount>,
    chip: ChipCounters,
    memory_factor_ns: f64,
    dropped: u64,
    inbound: u64,
    outbound: u64,
    mlc_writebacks: u64,
}

/// Lines that an array moved, sampled or not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ArrayLines {
    pub(crate) read: u64,
    pub(crate) written: u64,
    pub(crate) written_in_part: u64,
    /// Bytes of blocks from the drives to the host, and back.
    inbound_bytes: u64,
    outbound_bytes: u64,
}

impl ArrayLines {
    pub(crate) fn of(array: &Array) -> ArrayLines {
        ArrayLines {
            read: array.outbound_bytes / LINE_BYTES + array.control.reads,
            written: array.inbound_bytes / LINE_BYTES,
            written_in_part: array.control.writes,
            inbound_bytes: array.inbound_bytes,
            outbound_bytes: array.outbound_bytes,
        }
    }
}

impl Mark {
    pub(crate) fn of(machine: &Machine) -> Mark {
        let chip = &machine.bus.memory.chip;
        let count = machine.parked.len();
        let cores: Vec<_> = (0..count).map(|id| machine.core(id)).collect();
        let devices = machine.bus.nics.len() + machine.bus.arrays.len();
        let nics = &machine.bus.nics;
        let arrays = &machine.bus.arrays;
        Mark {
            at_ns: machine.now_ns(),
            cores: (0..count).map(|id| chip.core_counters(id)).collect(),
            core_groups: (0..count).map(|id| chip.core_groups(id).collect()).collect(),
            prefetches: (0..count).map(|id| chip.prefetch_counters(id)).collect(),
            busy_ns: cores.iter().map(|core| core.busy_ns).collect(),
            instructions: cores.iter().map(|core| core.instructions).collect(),
            devices: (0..devices).map(|device| chip.device_counters(device)).collect(),
            device_groups: (0..devices).map(|device| chip.device_groups(device).to_vec()).collect(),
            chip: chip.counters(),
            memory_factor_ns: chip.dram().factor_ns(),
            arrays: arrays.iter().map(ArrayLines::of).collect(),
            evictions: chip.evictions().collect(),
            dropped: nics.iter().map(|nic| nic.counters.dropped).sum(),
            inbound: nics.iter().map(|nic| nic.counters.inbound_bytes).sum::<u64>()
                + arrays.iter().map(|array| array.inbound_bytes).sum::<u64>(),
            outbound: nics.iter().map(|nic| nic.counters.outbound_bytes).sum::<u64>()
                + arrays.iter().map(|array| array.outbound_bytes).sum::<u64>(),
            mlc_writebacks: (0..count).map(|id| chip.mlc_writebacks(id)).sum(),
        }
    }

    /// Dirty lines that the caches evicted since `self` was taken.
    pub(crate) fn write_backs(&self, machine: &Machine) -> WriteBacks {
        let now = Mark::of(machine);
        let per_s = machine.scale() / ((now.at_ns - self.at_ns) * 1e-9);
        let llc = now.chip.dirty_evictions - self.chip.dirty_evictions;
        WriteBacks {
            mlc_lines_per_s: (now.mlc_writebacks - self.mlc_writebacks) as f64 * per_s,
            llc_lines_per_s: llc as f64 * per_s,
        }
    }

    pub(crate) fn until_now(&self, machine: &Machine) -> Measured {
        let now = Mark::of(machine);
        let seconds = (now.at_ns - self.at_ns) * 1e-9;
        let count = machine.scenario.workloads.len();
        Measured {
            seconds,
            workloads: (0..count).map(|index| self.workload(&now, machine, index, seconds)).collect(),
            job_commands: machine.bus.meters.iter().map(|meter| meter.job_commands.clone()).collect(),
            drive_busy_ratios: self.drive_busy_ratios(&now, machine, seconds),
            system: self.system(&now, machine, seconds),
        }
    }

    fn workload(&self, now: &Mark, machine: &Machine, index: usize, seconds: f64) -> WorkloadMeasured {
        let spec = &machine.scenario.workloads[index];
        let meter = &machine.bus.meters[index];
        let scale = machine.scale();
        let sum = |f: &dyn Fn(&Mark, usize) -> f64| -> f64 {
            spec.cores.cores().iter().map(|c| f(now, c.index()) - f(self, c.index())).sum()
        };
        let counted = |mark: &Mark| -> CoreCounters {
            spec.cores.cores().iter().map(|core| mark.cores[core.index()]).sum()
        };
        let counted = counted(now) - counted(self);
        let llc_misses = counted.llc_misses as f64;
        let prefetch_hits = sum(&|mark, core| mark.prefetches[core].llc_hits as f64);
        let prefetch_misses = sum(&|mark, core| mark.prefetches[core].llc_misses as f64);
        let useless = sum(&|mark, core| mark.prefetches[core].useless as f64);
        let prefetches = prefetch_hits + prefetch_misses;
        let busy_ns = sum(&|mark, core| mark.busy_ns[core]);
        let instructions = sum(&|mark, core| mark.instructions[core]);
        WorkloadMeasured {
            operations_per_s: meter.operations / seconds,
            bytes_per_s: meter.bytes / seconds,
            dropped_per_s: meter.dropped / seconds,
            latency_mean_ns: meter.mean_ns(),
            latency_p50_ns: meter.quantile_ns(0.5),
            latency_p99_ns: meter.quantile_ns(0.99),
            queueing_mean_ns: share_of(meter.stations.queueing_ns, meter.stations.packets),
            pointer_mean_ns: share_of(meter.stations.pointer_ns, meter.stations.packets),
            processing_mean_ns: share_of(meter.stations.processing_ns, meter.stations.packets),
            ipc: share_of(instructions, busy_ns * machine.bus.ghz),
            busy_ratio: busy_ns * 1e-9 / (seconds * spec.cores.len() as f64),
            llc_hit_ratio: share_of(counted.llc_hits as f64, counted.llc_hits as f64 + llc_misses),
            mlc_hit_ratio: share_of(counted.mlc_hits as f64, counted.accesses() as f64),
            llc_misses_per_s: llc_misses * scale / seconds,
            demand_mlc_misses_per_s: (counted.mlc_misses as f64 - prefetches) * scale / seconds,
            demand_llc_misses_per_s: (llc_misses - prefetch_misses) * scale / seconds,
            prefetches_per_s: prefetches * scale / seconds,
            useless_prefetches_per_s: useless * scale / seconds,
            llc_occupancy_bytes: f64::from(machine.bus.memory.chip.group_occupancy(index as u8 + 1))
                * scale
                * LINE_BYTES as f64,
        }
    }

    fn drive_busy_ratios(&self, now: &Mark, machine: &Machine, seconds: f64) -> Vec<f64> {
        let moved = self.arrays.iter().zip(&now.arrays);
        let ratios = moved.zip(&machine.scenario.storage).map(|((before, now), storage)| {
            let (read, write) = storage.array.bytes_per_s();
            let inbound = (now.inbound_bytes - before.inbound_bytes) as f64 / seconds;
            let outbound = (now.outbound_bytes - before.outbound_bytes) as f64 / seconds;
            (inbound / read).max(outbound / write)
        });
        ratios.collect()
    }

    fn system(&self, now: &Mark, machine: &Machine, seconds: f64) -> SystemMeasured {
        let (scale, idle_ns) = (machine.scale(), machine.scenario.chip.dependent.memory_ns);
        let rate = |count: u64| count as f64 * scale / seconds;
        let lines = |f: fn(&ChipCounters) -> u64| f(&now.chip) - f(&self.chip);
        let devices = |f: fn(&DeviceCounters) -> u64| -> u64 {
            now.devices.iter().map(f).sum::<u64>() - self.devices.iter().map(f).sum::<u64>()
        };
        let cores = |mark: &Mark| mark.cores.iter().copied().sum::<CoreCounters>();
        let (hits, misses) = (devices(|d| d.write_hits), devices(|d| d.write_misses));
        let (read_hits, read_misses) = (devices(|d| d.read_hits), devices(|d| d.read_misses));
        let accesses = (cores(now) - cores(self)).accesses();
        SystemMeasured {
            memory_read_bytes_per_s: rate(lines(|c| c.memory_reads)) * LINE_BYTES as f64,
            memory_write_bytes_per_s: rate(lines(|c| c.memory_writes)) * LINE_BYTES as f64,
            memory_latency_ns: idle_ns * (now.memory_factor_ns - self.memory_factor_ns) / (seconds * 1e9),
            dca_write_hit_ratio: share_of(hits as f64, (hits + misses) as f64),
            dca_read_hit_ratio: share_of(read_hits as f64, (read_hits + read_misses) as f64),
            dma_leak_lines_per_s: rate(devices(|d| d.leaked)),
            dma_bloat_lines_per_s: rate(lines(|c| c.bloated)),
            migrations_per_s: rate(lines(|c| c.migrations)),
            directory_evictions_per_s: rate(lines(|c| c.directory_evictions)),
            drops_per_s: (now.dropped - self.dropped) as f64 / seconds,
            inbound_bytes_per_s: (now.inbound - self.inbound) as f64 / seconds,
            outbound_bytes_per_s: (now.outbound - self.outbound) as f64 / seconds,
            line_events: accesses + hits + misses + read_hits + read_misses + devices(|d| d.writes_uncached),
        }
    }
}

/// `part / whole`; `None` if the whole is zero.
pub(crate) fn share_of(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}
