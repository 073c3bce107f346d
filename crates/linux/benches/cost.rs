//! What one sample costs, counted: system calls and bytes of the thread that samples (`/proc/thread-self/io`), and which
//! files they went to (the served tree counts its reads).
//!
//! Through registers both are measured, on the flagship (18 cores, 11 tenants) and on a server of 128 cores with 64
//! tenants in 15 classes, whose registers are a table: only what is asked of it is of interest. Through perf the reads
//! are those of the plan that would be opened. The issue allows two reads a core and one an uncore unit.

// The figures are what this program is for.
#![allow(clippy::print_stdout)]

use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use waykeeper_generations::{Generation, Pmu};
use waykeeper_host::{Host, Plan, Priority, WorkloadKind};
use waykeeper_linux::counting::CoreEvents;
use waykeeper_linux::event_source::{Format, Unit};
use waykeeper_linux::host::{LinuxHost, Options};
use waykeeper_linux::iio::Place;
use waykeeper_linux::perf::{IioUnits, UncorePlan, core_groups};
use waykeeper_linux::root::Root;
use waykeeper_linux::tenants::Tenant;
use waykeeper_machine::ScenarioSource;
use waykeeper_stand::{MS, Machine, held};
use waykeeper_units::{CoreId, GroupId, WayMask};
use waykeeper_vhost::faults::{Faults, Operation};
use waykeeper_vhost::host_tasks::HostTasks;
use waykeeper_vhost::mounted::Mounted;
use waykeeper_vhost::node::{Caller, File, Node, Tree};
use waykeeper_vhost::resctrl::Resctrl;
use waykeeper_vhost::resctrl::description::{Cache, Cdp, Description, Domain, IoAlloc, Kernel, Monitoring};
use waykeeper_vhost::resctrl::hardware::Idle;

/// Samples that are counted.
const SAMPLES: u64 = 10;

fn main() {
    println!("system calls and bytes of one sample");
    flagship();
    large();
    for (name, id, cores, slices, channels) in
        [("18 cores, 11 tenants", "skx", 18, 18, 6), ("128 cores, 64 tenants", "gnr", 128, 128, 12)]
    {
        for watchdog in [false, true] {
            perf(name, id, cores, slices, channels, watchdog);
        }
    }
}

/// What this thread has read: calls and bytes.
fn io() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/thread-self/io").expect("a kernel with task I/O accounting");
    let number = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)).expect("its line");
        line.trim().parse::<u64>().expect("a number")
    };
    (number("syscr:"), number("rchar:"))
}

/// Samples, and says what it came to.
fn measure(name: &str, host: &mut LinuxHost, faults: &Faults) {
    host.sample().expect("a sample");
    let idle = {
        let (a, b) = (io(), io());
        (b.0 - a.0, b.1 - a.1)
    };
    faults.forget();
    let before = io();
    for _ in 0..SAMPLES {
        host.sample().expect("a sample");
    }
    let after = io();
    let calls = (after.0 - before.0 - idle.0) as f64 / SAMPLES as f64;
    let bytes = (after.1 - before.1 - idle.1) as f64 / SAMPLES as f64;
    println!("{name}, through {}: {calls} reads, {bytes} bytes", host.counted_by());
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for ((path, operation), count) in faults.seen() {
        let kind = match path.as_str() {
            _ if operation != Operation::Read => "other than reads",
            "dev/cpu/0/msr" => "MSRs of CPU 0 (its core and the package)",
            path if path.starts_with("dev/cpu") => "MSRs of other cores",
            path if path.ends_with("config") => "PCI configuration space",
            path if path.ends_with("schemata") => "schemata",
            path if path.contains("mon_data") => "mon_data",
            _ => "anything else",
        };
        *kinds.entry(kind).or_default() += count;
    }
    for (kind, count) in kinds {
        println!("    {kind}: {}", count as f64 / SAMPLES as f64);
    }
}

/// 18 cores and 11 tenants, every register a model's.
fn flagship() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/a4-hpw-heavy.toml");
    let source = ScenarioSource::open(&path).expect("the flagship");
    let scenario = source.read().expect("the flagship");
    let machine = Machine::with(Arc::new(scenario), held(256));
    machine.run_to(MS);
    measure("18 cores, 11 tenants", &mut machine.open(), &machine.faults);
}

/// The registers of all CPUs of a package as a table; those nobody wrote read 0.
struct Table(Arc<Mutex<BTreeMap<(u16, u64), u64>>>, u16);

impl File for Table {
    fn read(&self, offset: u64, _: usize, _: Caller) -> Result<Vec<u8>, Errno> {
        let table = self.0.lock().expect("nobody panics");
        Ok(table.get(&(self.1, offset)).copied().unwrap_or(0).to_le_bytes().to_vec())
    }

    fn write(&self, offset: u64, data: &[u8], _: Caller) -> Result<usize, Errno> {
        let value = u64::from_le_bytes(data.try_into().map_err(|_| Errno::INVAL)?);
        self.0.lock().expect("nobody panics").insert((self.1, offset), value);
        Ok(data.len())
    }

    fn mode(&self) -> u32 {
        0o600
    }
}

/// 128 cores and 64 tenants on a Granite Rapids: hardware.md 9 has 16 ways, PerfSpect 128 cores; 15 classes and 512 RMIDs.
fn large() {
    const CORES: u16 = 128;
    let mut tree = Tree::new();
    let all = format!("0-{}\n", CORES - 1);
    let cpus = "sys/devices/system/cpu";
    for name in ["possible", "present", "online"] {
        tree.text(&format!("{cpus}/{name}"), all.clone());
    }
    let table = Arc::new(Mutex::new(BTreeMap::new()));
    // hardware.md 3.4: MSR 0x3FED bits 8:0 is the number of CHAs.
    table.lock().expect("nobody panics").insert((0, 0x3fed), u64::from(CORES));
    for cpu in 0..CORES {
        let folder = format!("{cpus}/cpu{cpu}");
        for (name, text) in [
            ("topology/physical_package_id", "0\n".to_owned()),
            ("topology/core_id", format!("{cpu}\n")),
            ("topology/thread_siblings_list", format!("{cpu}\n")),
            ("cache/index3/level", "3\n".to_owned()),
            ("cache/index3/size", "516096K\n".to_owned()),
            ("cache/index3/id", "0\n".to_owned()),
            ("cache/index3/ways_of_associativity", "16\n".to_owned()),
            ("cache/index3/shared_cpu_list", all.clone()),
        ] {
            tree.text(&format!("{folder}/{name}"), text);
        }
        tree.file(&format!("dev/cpu/{cpu}/msr"), Table(table.clone(), cpu));
    }
    tree.text("proc/cpuinfo", "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 173\nstepping\t: 1\n");
    let monitoring = Monitoring {
        rmids: 512,
        unit_bytes: 65536,
        largest_threshold: 516_096 << 10,
        llc_occupancy: true,
        mbm_total: true,
        mbm_local: true,
        configurable: false,
    };
    let cache = Cache {
        cbm_bits: 16,
        shareable: 0,
        min_bits: 1,
        sparse: true,
        closids: 16,
        size_bytes: 516_096 << 10,
        cdp: Cdp::Absent,
        io_alloc: IoAlloc::Absent,
    };
    let description = Description {
        kernel: Kernel(6, 12),
        possible_cpus: CORES.into(),
        domains: vec![Domain { id: 0, cpus: (0..CORES.into()).collect() }],
        l3: Some(cache),
        mb: None,
        smba: None,
        monitoring: Some(monitoring),
    };
    let resctrl = Resctrl::new(description, Box::new(Idle), Box::new(HostTasks::new("/proc")));
    tree.add("sys/fs/resctrl", Node::Resctrl(resctrl.shared()));
    let folder = tempfile::tempdir().expect("a temporary directory");
    let mount = folder.path().join("host");
    std::fs::create_dir(&mount).expect("made");
    let faults = Faults::new();
    let mounted = Mounted::new(tree, &mount, faults.clone()).expect("mounting needs root and /dev/fuse");
    let tenant = |index: u16| Tenant {
        name: format!("t{index}"),
        priority: Priority::Low,
        kind: WorkloadKind::NonIo,
        cores: vec![CoreId(2 * index), CoreId(2 * index + 1)].into(),
        pids: Vec::new(),
        devices: Vec::new(),
        stack: false,
        mask: None,
    };
    let tenants = (0..64).map(tenant).collect();
    let options = Options::new(Root::at(mounted.path()), tenants, folder.path().join("journal"));
    let mut host = LinuxHost::open(options).unwrap_or_else(|error| panic!("{error}"));
    // Fifteen masks besides the default group's: every class is in use.
    let masks = (0..64).map(|index| (GroupId(index), WayMask::from_bits(1 << (index % 15))));
    let applied = host.apply(&Plan { masks: masks.collect(), ..Plan::default() }).expect("a report");
    assert!(applied.is_complete(), "{applied:?}");
    measure("128 cores, 64 tenants", &mut host, &faults);
    drop(host);
}

/// A kernel's unit with the table's formats.
fn unit(pmu: &Pmu, number: u32) -> Unit {
    let format = |(term, field): (&String, &waykeeper_generations::Field)| {
        let format = Format::parse(Path::new("format"), &field.format).expect("a table's format");
        (term.clone(), format)
    };
    Unit {
        name: format!("{}_{number}", pmu.perf),
        kind: number,
        cpumask: Some(vec![CoreId(0)].into()),
        formats: pmu.fields.iter().map(format).collect(),
    }
}

/// Reads of one sample through perf, from the plan: all cores, all slices and channels, two root ports on two stacks.
fn perf(name: &str, id: &str, cores: u16, slices: u32, channels: u32, watchdog: bool) {
    let generation = Generation::by_id(id).expect("a table");
    let events = CoreEvents::of(&generation.core);
    let of_core = |cpu| core_groups(&generation.core, &events, CoreId(cpu), watchdog).len();
    let core_reads: usize = (0..cores).map(of_core).sum();
    let package = (0..cores).map(CoreId).collect::<Vec<_>>().into();
    let mut plan = UncorePlan::default();
    let units = |pmu: &Pmu, count: u32| (0..count).map(|number| unit(pmu, number)).collect::<Vec<_>>();
    let cache = generation.cache.as_ref().expect("slices");
    plan.add_cache(cache, &units(&cache.pmu, slices), &package);
    let memory = generation.memory.as_ref().expect("memory");
    plan.add_memory(memory, &units(&memory.pmu, channels), &package);
    let iio = generation.iio.as_ref().expect("stacks");
    let stacks = IioUnits { programmed: units(&iio.pmu, 4), running: Vec::new() };
    let places = [(0, Place { stack: 1, part: 0 }), (1, Place { stack: 2, part: 0 })];
    plan.add_ports(&Root::at("/nowhere"), iio, &places, &stacks, &package);
    assert!(plan.notes.is_empty(), "{:?}", plan.notes);
    let uncore_units = (slices + channels + 2) as usize;
    println!(
        "{name}, through perf{}: {} reads of counters: {core_reads} of {cores} cores, {} of {uncore_units} uncore units",
        if watchdog { " with the NMI watchdog" } else { "" },
        core_reads + plan.groups.len(),
        plan.groups.len()
    );
    assert!(core_reads <= 2 * usize::from(cores), "two reads a core are allowed");
    assert!(plan.groups.len() <= uncore_units, "one read an uncore unit is allowed");
}
