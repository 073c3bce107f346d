//! The counters of a host, one line each: key, unit, whether it is a count or a level, what it counts.
//!
//! One place for a new counter: its line in a table of this file. JSON, the rates of an interval and all that treats
//! every counter alike follow the table; a host that cannot count it reports `Unsupported`. Must not know how a counter
//! is read, nor its value.

/// What is known of a counter itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterSpec {
    /// Its key in JSON.
    pub name: &'static str,
    /// What its value is.
    pub kind: CounterKind,
    /// Unit of its value; of a rate, this per second.
    pub unit: &'static str,
    /// What it counts, as a sentence.
    pub what: &'static str,
}

/// What the value of a counter is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CounterKind {
    /// A cumulative count since the host started. An interval has its increase per second.
    Count,
    /// A present value. An interval has the value at its end.
    Level,
}

/// A counter of one table; `N` is the table's length.
pub trait HostCounter<const N: usize>: Copy + 'static {
    /// The counters, in the order of their keys in JSON.
    const ALL: [Self; N];
    /// Their names, in the same order.
    const NAMES: [&'static str; N];
    /// Type of their readings in a snapshot.
    const COUNTERS: &'static str;
    /// Type of their readings in an interval.
    const RATES: &'static str;

    /// Its place in the table.
    fn index(self) -> usize;

    /// Its line of the table.
    fn spec(self) -> &'static CounterSpec;

    /// Its key in JSON.
    fn name(self) -> &'static str {
        self.spec().name
    }

    /// Whether its value is a level, not a cumulative count.
    fn is_level(self) -> bool {
        self.spec().kind == CounterKind::Level
    }
}

macro_rules! counters {
    (
        $(#[$doc:meta])* $table:ident ($counters:literal, $rates:literal)
        $($counter:ident: $name:literal, $kind:ident, $unit:literal, $what:literal;)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $table {
            $(#[doc = concat!($what, " Unit: ", $unit, ".")] $counter,)*
        }

        impl $table {
            /// Length of the table.
            pub const COUNT: usize = [$($name),*].len();
            const TABLE: [CounterSpec; $table::COUNT] = [
                $(CounterSpec { name: $name, kind: CounterKind::$kind, unit: $unit, what: $what },)*
            ];
        }

        impl HostCounter<{ $table::COUNT }> for $table {
            const ALL: [$table; $table::COUNT] = [$($table::$counter),*];
            const NAMES: [&'static str; $table::COUNT] = [$($name),*];
            const COUNTERS: &'static str = $counters;
            const RATES: &'static str = $rates;

            fn index(self) -> usize {
                self as usize
            }

            fn spec(self) -> &'static CounterSpec {
                &$table::TABLE[self.index()]
            }
        }
    };
}

counters! {
    /// A counter of a workload: the sum over its cores.
    WorkloadCounter("GroupCounters", "GroupRates")
    Instructions: "instructions", Count, "instructions", "Instructions retired on a tenant's cores.";
    Cycles: "cycles", Count, "cycles", "Unhalted cycles of a tenant's cores.";
    MlcHits: "mlc_hits", Count, "accesses",
        "Demand accesses that hit the MLC (MEM_LOAD_RETIRED.L2_HIT and similar events).";
    MlcMisses: "mlc_misses", Count, "accesses", "Demand accesses that missed the MLC.";
    LlcHits: "llc_hits", Count, "accesses", "MLC misses served by the LLC or by another core's MLC.";
    LlcMisses: "llc_misses", Count, "accesses", "MLC misses served by memory.";
    OccupancyBytes: "occupancy_bytes", Level, "bytes", "LLC bytes that a tenant's lines occupy.";
}

counters! {
    /// A counter of the managed socket.
    SocketCounter("SocketCounters", "SocketRates")
    DcaWriteHits: "dca_write_hits", Count, "lines",
        "Full-line device writes that found the line in the LLC or an MLC (ItoM hit, write update).";
    DcaWriteMisses: "dca_write_misses", Count, "lines",
        "Full-line device writes that did not find the line in a cache (ItoM miss, write allocate).";
    DcaReadHits: "dca_read_hits", Count, "lines", "Device reads served from the caches (PCIeRdCur hit).";
    DcaReadMisses: "dca_read_misses", Count, "lines", "Device reads served from memory.";
    MemoryReadBytes: "memory_read_bytes", Count, "bytes", "Bytes read from memory by all cores and devices.";
    MemoryWriteBytes: "memory_write_bytes", Count, "bytes", "Bytes written to memory by all cores and devices.";
}

counters! {
    /// A counter of a root port.
    PortCounter("PortCounters", "PortRates")
    InboundBytes: "inbound_bytes", Count, "bytes", "Bytes that devices behind the port wrote to the host.";
    OutboundBytes: "outbound_bytes", Count, "bytes", "Bytes that devices behind the port read from the host.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn check<K: HostCounter<N>, const N: usize>() {
        assert_eq!(K::ALL.map(HostCounter::index), std::array::from_fn(|index| index));
        assert_eq!(K::ALL.map(HostCounter::name), K::NAMES);
        assert_eq!(K::NAMES.into_iter().collect::<BTreeSet<_>>().len(), N, "a key names one counter");
        for spec in K::ALL.map(HostCounter::spec) {
            assert!(spec.what.ends_with('.') && !spec.unit.is_empty(), "{spec:?}");
            assert_eq!(spec.name.ends_with("_bytes"), spec.unit == "bytes", "{spec:?}");
        }
    }

    #[test]
    fn a_table_says_what_each_counter_counts_and_in_which_unit() {
        check::<WorkloadCounter, _>();
        check::<SocketCounter, _>();
        check::<PortCounter, _>();
        let levels = WorkloadCounter::ALL.into_iter().filter(|counter| counter.is_level());
        assert_eq!(levels.collect::<Vec<_>>(), [WorkloadCounter::OccupancyBytes]);
    }
}
