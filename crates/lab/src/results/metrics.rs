//! The numbers that are measured of a workload and of the whole server, one list each.
//!
//! The lists are in one place because seven others iterate over them: means over seeds, spread, the CSV columns, the
//! tables, the charts, the schema's documentation and its test. Must not know how the numbers are measured or shown.

use serde::{Deserialize, Serialize};

/// True for a value that is not written to a file: it was not measured, or it is NaN or infinite. JSON cannot express
/// the latter, and the schema says that an absent key means "not available".
pub(crate) fn not_available(value: &Option<f64>) -> bool {
    value.is_none_or(|number| !number.is_finite())
}

macro_rules! metrics {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
        pub struct $name {
            $($(#[$field_doc])*
            #[serde(default, skip_serializing_if = "not_available")]
            pub $field: Option<f64>,)*
        }

        impl $name {
            /// The keys, in the order they are written.
            pub const KEYS: &[&str] = &[$(stringify!($field)),*];

            /// Every key and its value; NaN and infinity count as not available.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, Option<f64>)> {
                [$((stringify!($field), self.$field.filter(|number| number.is_finite()))),*].into_iter()
            }

            /// Every key with a mutable reference to its value.
            pub fn iter_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut Option<f64>)> {
                [$((stringify!($field), &mut self.$field)),*].into_iter()
            }

            /// One value by its key.
            pub fn get(&self, key: &str) -> Option<f64> {
                self.iter().find(|(name, _)| *name == key).and_then(|(_, value)| value)
            }
        }
    };
}

metrics! {
    /// What one workload did. Rates are per second of simulated time, ratios are 0..1.
    WorkloadMetrics {
        /// Its score divided by its score under the baseline policy: above 1 is better.
        performance_ratio,
        /// Work done per second, in the workload's own unit.
        throughput,
        /// Mean time one request takes.
        latency_mean_us,
        /// Half of the requests take no longer.
        latency_p50_us,
        /// 99 in 100 requests take no longer.
        latency_p99_us,
        /// Mean time of a packet in the RX ring.
        queueing_mean_us,
        /// Mean time to get at a packet: completion, descriptor, metadata.
        pointer_mean_us,
        /// Mean time of the work on a packet.
        processing_mean_us,
        /// Instructions per unhalted cycle.
        ipc,
        /// LLC hits / (hits + misses), prefetches included.
        llc_hit_ratio,
        /// MLC hits / (hits + misses), prefetches included.
        mlc_hit_ratio,
        /// Accesses that memory had to serve, prefetches included.
        llc_misses_per_s,
        /// LLC bytes its lines occupied at the end.
        llc_occupancy_bytes,
        /// Bytes read from memory on its behalf.
        memory_read_bytes_per_s,
        /// Bytes written to memory on its behalf.
        memory_write_bytes_per_s,
        /// Packets its devices dropped because no descriptor was free.
        drops_per_s,
        /// These packets / all packets offered to it.
        dropped_ratio,
        /// Accesses that missed the MLC, each as long as one to memory / unhalted time: no placement of lines in the LLC can
        /// save a larger part.
        llc_time_ratio,
        /// Bytes its drives moved / bytes they can move.
        drive_busy_ratio,
        /// Block commands it completed.
        commands_per_s,
        /// Blocks that these moved, as the program counts them.
        blocks_per_s,
        /// Bytes of these blocks and of 80 more per command (nvme-memload s5.2).
        transfer_bytes_per_s,
    }
}

metrics! {
    /// What the whole socket did. Rates are per second of simulated time, ratios are 0..1.
    SystemMetrics {
        /// Bytes read from memory, by cores and devices.
        memory_read_bytes_per_s,
        /// Bytes written to memory, by cores and devices.
        memory_write_bytes_per_s,
        /// Mean time of a dependent load that memory serves.
        memory_latency_ns,
        /// Full-line device writes that found their line cached / all of them.
        dca_write_hit_ratio,
        /// Device reads served from the caches / all of them.
        dca_read_hit_ratio,
        /// Lines a device wrote that left the LLC before a core read them (DMA leak).
        dma_leak_lines_per_s,
        /// Consumed device lines that left an MLC into ordinary LLC ways (DMA bloat).
        dma_bloat_lines_per_s,
        /// Dirty lines that MLCs evicted to make room.
        mlc_writebacks_per_s,
        /// Dirty lines that the LLC evicted to make room.
        llc_writebacks_per_s,
        /// Packets dropped by any device.
        drops_per_s,
        /// Bytes devices wrote to the host.
        inbound_bytes_per_s,
        /// Bytes devices read from the host.
        outbound_bytes_per_s,
        /// Lines that devices read: PCIeRdCur, as the chip counts hits.
        pcie_rdcur_hits_per_s,
        /// ... and misses.
        pcie_rdcur_misses_per_s,
        /// Whole lines that devices wrote: ItoM, as the chip counts hits.
        itom_hits_per_s,
        /// ... and misses.
        itom_misses_per_s,
        /// Lines that devices wrote in part: RFO, as the chip counts hits.
        rfo_hits_per_s,
        /// ... and misses.
        rfo_misses_per_s,
    }
}

/// The unit of a workload's throughput.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum ThroughputUnit {
    /// Packets per second.
    #[serde(rename = "packets/s")]
    Packets,
    /// Bytes per second.
    #[serde(rename = "bytes/s")]
    Bytes,
    /// Requests or operations per second.
    #[serde(rename = "operations/s")]
    Operations,
    /// Instructions per second.
    #[serde(rename = "instructions/s")]
    Instructions,
}

impl ThroughputUnit {
    /// The unit as it is written in files.
    pub fn as_str(self) -> &'static str {
        match self {
            ThroughputUnit::Packets => "packets/s",
            ThroughputUnit::Bytes => "bytes/s",
            ThroughputUnit::Operations => "operations/s",
            ThroughputUnit::Instructions => "instructions/s",
        }
    }
}

/// What a workload is scored by (A4 s6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Score {
    /// One over the mean latency per request: multi-threaded I/O programs.
    InverseLatency,
    /// Instructions per cycle: all others.
    Ipc,
}

impl Score {
    /// The key of the metric that it is made of.
    pub(crate) fn metric(self) -> &'static str {
        match self {
            Score::InverseLatency => "latency_mean_us",
            Score::Ipc => "ipc",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_available_is_an_absent_key() {
        let metrics = WorkloadMetrics { ipc: Some(1.5), llc_hit_ratio: Some(f64::NAN), ..Default::default() };
        assert_eq!(serde_json::to_string(&metrics).unwrap(), r#"{"ipc":1.5}"#);
        assert_eq!((metrics.get("ipc"), metrics.get("llc_hit_ratio")), (Some(1.5), None));
        assert_eq!(serde_json::from_str::<WorkloadMetrics>(r#"{"ipc":1.5}"#).unwrap().ipc, Some(1.5));
    }
}
