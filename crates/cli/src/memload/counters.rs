//! What the LLC counted of a load, beside what the formulas say.
//!
//! The LLC counters of a load, compared with the formulas' values. It uses only the trait `Host`, so it is the same for
//! a real and a virtual host. Must not know how commands were sent.

use waykeeper_host::{DmaCounters, Lines, Reading};
use waykeeper_kernel::root::Root;
use waykeeper_linux_host::{DeviceWatch, Near};
use waykeeper_load::{Counters, EventCount, Package};
use waykeeper_memload::LoadPlan;
use waykeeper_units::CoreId;

/// Counters of a machine during a load.
pub enum CounterWatch {
    /// The counters run.
    Runs {
        /// The reader of the counters.
        watch: DeviceWatch,
        /// Their values at the start.
        before: DmaCounters,
        /// The package that is counted.
        package: Package,
    },
    /// Nothing is counted, with the reason.
    Not(String),
}

impl CounterWatch {
    /// Starts counting on the package to which the device is attached, because it allocates only in that LLC (DDIO); if
    /// that is unknown, on the package of the buffer's node, or of the first CPU that sends. It only reads: the kernel
    /// counts, no register is written, and a daemon that manages the host is not disturbed.
    pub fn start(device_node: Option<u32>, plan: &LoadPlan) -> CounterWatch {
        let cpu = plan.cpus.first().and_then(|cpu| u16::try_from(*cpu).ok());
        let (near, because): (Vec<Near>, Vec<String>) = [
            device_node.map(|node| (Near::Node(node), format!("the device is attached to NUMA node {node}"))),
            plan.numa.map(|node| (Near::Node(node), format!("the buffer is on NUMA node {node}"))),
            cpu.map(|cpu| (Near::Cpu(CoreId(cpu)), format!("CPU {cpu} sends the commands"))),
        ]
        .into_iter()
        .flatten()
        .unzip();
        match DeviceWatch::open(&Root::at("/"), &near, None) {
            Err(why) => CounterWatch::Not(why.to_string()),
            Ok(mut watch) => {
                let (number, found) = watch.package();
                let because = found.and_then(|found| because.get(found).cloned());
                let because = because.unwrap_or_else(|| "it has the lowest CPU number".to_owned());
                let (before, _) = watch.read();
                CounterWatch::Runs { watch, before, package: Package { number, because } }
            }
        }
    }

    /// Stops counting.
    pub fn stop(self) -> Counted {
        match self {
            CounterWatch::Not(why) => Counted(Err(why)),
            CounterWatch::Runs { mut watch, before, package } => {
                let (now, problems) = watch.read();
                let notes: Vec<&str> = watch.notes().iter().chain(&problems).map(String::as_str).collect();
                Counted(Ok((now.since(&before), notes.join("; "), package)))
            }
        }
    }
}

/// The counts of a load, with the host's notes on missing counters; or the reason why nothing was counted.
pub struct Counted(Result<(DmaCounters, String, Package), String>);

impl Counted {
    /// Adds the counts to the expected values.
    pub fn put(&self, counters: &mut Counters) {
        match &self.0 {
            Err(why) => put_none(counters, why),
            Ok((seen, notes, package)) => {
                put(counters, seen, notes);
                counters.package = Some(package.clone());
            }
        }
    }
}

/// Adds the counts to the expected values; `notes` are the host's notes on missing counters.
pub fn put(counters: &mut Counters, seen: &DmaCounters, notes: &str) {
    let one = |counter: &mut EventCount, lines: Lines| {
        let expected = counter.clone();
        *counter = match (lines.hits, lines.misses) {
            (Reading::Value(hits), Reading::Value(misses)) => expected.counted(hits, misses),
            (hits, misses) => expected.uncounted(&reason(hits.zip_with(misses, |_, _| 0), notes)),
        };
    };
    one(&mut counters.pcie_rdcur, seen.reads);
    one(&mut counters.itom, seen.writes);
    one(&mut counters.rfo, seen.partial_writes);
}

fn put_none(counters: &mut Counters, why: &str) {
    for counter in [&mut counters.pcie_rdcur, &mut counters.itom, &mut counters.rfo] {
        *counter = counter.clone().uncounted(why);
    }
}

/// The reason for a missing number.
fn reason(reading: Reading<u64>, notes: &str) -> String {
    let what = match reading {
        Reading::Value(_) => "the hits or the misses are missing",
        Reading::Unavailable => "the counter could not be read",
        Reading::Unsupported => "this platform has no such counter",
        Reading::Absent => "this platform has nothing to count here",
    };
    if notes.is_empty() { what.to_owned() } else { format!("{what} ({notes})") }
}

/// The counters as text, a line each.
pub fn table(counters: &Counters) -> String {
    let mut rows =
        vec![["counter", "measured", "expected", "ratio", "hits", "misses"].map(str::to_owned).to_vec()];
    let mut reasons: Vec<String> = Vec::new();
    if let Some(Package { number, because }) = &counters.package {
        reasons.push(format!("counted on package {number}: {because}"));
    }
    for (name, counter) in
        [("PCIeRdCur", &counters.pcie_rdcur), ("ItoM", &counters.itom), ("RFO", &counters.rfo)]
    {
        let count = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), crate::listing::grouped);
        rows.push(vec![
            name.to_owned(),
            count(counter.measured),
            crate::listing::grouped(counter.expected),
            counter.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.4}")),
            count(counter.hits),
            count(counter.misses),
        ]);
        if let Some(lists) = counter.page_lists.filter(|lists| *lists > 0) {
            let lines = crate::listing::grouped(lists);
            reasons
                .push(format!("{name}: {lines} of these lines are page lists, which the formulas leave out"));
        }
        if let Some(why) = &counter.unavailable {
            let line = format!("not counted: {why}");
            if !reasons.contains(&line) {
                reasons.push(line);
            }
        }
    }
    let mut text = crate::listing::columns(&rows);
    for line in reasons {
        text.push_str(&line);
        text.push('\n');
    }
    text
}
