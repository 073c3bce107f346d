//! A scenario as a mounted host whose clock the test holds, and the list of its tenants.

// Each test program uses a part of this.
#![allow(dead_code)]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use waykeeper_generations::Generation;
use waykeeper_linux::host::{LinuxHost, OpenError, Options};
use waykeeper_linux::pci::{PciAddress, PciTree};
use waykeeper_linux::root::Root;
use waykeeper_linux::tenants::Tenant;
use waykeeper_machine::{RunOptions, Scenario, ScenarioSource};
use waykeeper_silicon::Sampling;
use waykeeper_vhost::engine::Pace;
use waykeeper_vhost::faults::Faults;
use waykeeper_vhost::package::Server;
use waykeeper_vhost::virtual_host::{self, VirtualHost};

/// ms of the server's clock.
pub const MS: u64 = 1_000_000;

/// A NIC with a forwarder on cores 0 and 1, an array with a reader on core 2, a scan of 24 MiB on core 3.
pub const SCENARIO: &str = r#"
name = "host"
duration_s = 1
warmup_s = 0.1
measure_s = 0.1
time_factor = 5

[[nic]]
name = "nic0"
ring = 2048
offered_gbps = 80

[[storage]]
name = "raid0"

[[workload]]
name = "l2fwd"
program = "l2fwd"
cores = "0-1"
priority = "high"

[[workload]]
name = "fio"
program = "fio"
cores = "2"
priority = "low"

[[workload]]
name = "scan"
program = "x-mem"
cores = "3"
priority = "low"
working_set = "24M"
"#;

/// A scenario on a chip.
pub fn scenario(chip: &str, text: &str) -> Arc<Scenario> {
    let text = format!("chip = \"{chip}\"\n{text}");
    let source = ScenarioSource::parse("host", &text, None).unwrap_or_else(|error| panic!("{error}"));
    Arc::new(source.read().unwrap_or_else(|error| panic!("{error}")))
}

/// Options of a host whose clock is held, one set in `one_in` simulated.
pub fn held(one_in: u32) -> virtual_host::Options {
    let sampling = Sampling::one_in(one_in).expect("a power of two");
    let run = RunOptions { seed: 1, sample_seed: 1, sampling };
    virtual_host::Options { pace: Pace::Held, run, ..virtual_host::Options::default() }
}

/// A mounted host. The mount goes before its folder does.
pub struct Machine {
    vhost: VirtualHost,
    pub faults: Faults,
    tenants: Vec<Tenant>,
    /// Registers that tell what is counted; those that count go on.
    controls: Vec<u32>,
    folder: tempfile::TempDir,
}

impl Machine {
    /// [`SCENARIO`] on a chip.
    pub fn new(chip: &str) -> Machine {
        Machine::with(scenario(chip, SCENARIO), held(16))
    }

    /// Any scenario, with any options.
    pub fn with(scenario: Arc<Scenario>, options: virtual_host::Options) -> Machine {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let mount = folder.path().join("host");
        std::fs::create_dir(&mount).expect("made");
        let faults = options.faults.clone();
        let vhost = VirtualHost::mount(&mount, scenario.clone(), options);
        let vhost = vhost
            .unwrap_or_else(|error| panic!("{error}; mounting needs root and /dev/fuse (modprobe fuse)"));
        let generation = vhost.engine().with(|server| server.places().generation).expect("the model runs");
        let tenants = tenants(&vhost, &scenario);
        Machine { vhost, faults, tenants, controls: generation.map(controls).unwrap_or_default(), folder }
    }

    pub fn root(&self) -> Root {
        Root::at(self.vhost.path())
    }

    pub fn journal(&self) -> PathBuf {
        self.folder.path().join("state/journal")
    }

    /// Lets the server's clock come to a time, ns.
    pub fn run_to(&self, clock_ns: u64) {
        self.vhost.engine().run_until(clock_ns).expect("the model runs");
    }

    /// The server's clock, ns.
    pub fn now_ns(&self) -> u64 {
        self.vhost.engine().now_ns()
    }

    /// Looks at the machine.
    pub fn look<R>(&self, look: impl FnOnce(&mut Server) -> R) -> R {
        self.vhost.engine().with(look).expect("the model runs")
    }

    pub fn options(&self) -> Options {
        Options::new(self.root(), self.tenants.clone(), self.journal())
    }

    pub fn try_open(&self) -> Result<LinuxHost, OpenError> {
        LinuxHost::open(self.options())
    }

    pub fn open(&self) -> LinuxHost {
        self.try_open().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Everything that a manager could have turned: resctrl's groups, masks and CPUs, registers, the ports' spaces.
    pub fn state(&self) -> String {
        let root = self.root();
        let mut text = String::new();
        for name in root.list("/sys/fs/resctrl").expect("listed") {
            text += &format!("{name}\n");
        }
        for name in ["schemata", "cpus_list", "mode"] {
            text += &root.read_text(format!("/sys/fs/resctrl/{name}")).expect("read");
        }
        for name in root.list("/sys/fs/resctrl/mon_groups").expect("listed") {
            text += &format!("mon_groups/{name}\n");
        }
        self.look(|server| {
            let cpus = server.places().cpus();
            for cpu in 0..cpus {
                let (class, rmid) = server.class(cpu);
                text += &format!("CPU {cpu}: class {class} RMID {rmid}\n");
            }
        });
        for &address in &self.controls {
            for cpu in [0, 3] {
                if let Some(value) = self.msr(cpu, address) {
                    text += &format!("CPU {cpu} MSR {address:#x}: {value:#x}\n");
                }
            }
        }
        text += &format!("0xc8b: {:x?}\n", self.msr(0, 0xc8b));
        for device in root.list("/sys/bus/pci/devices").expect("listed") {
            let config =
                root.read_bytes(format!("/sys/bus/pci/devices/{device}/config"), 4096).expect("read");
            // The counters of memory channels (hardware.md 5) go on too.
            let still: Vec<u8> = config
                .iter()
                .enumerate()
                .filter(|(at, _)| !(0xa0..0xd8).contains(at))
                .map(|(_, b)| *b)
                .collect();
            text += &format!("{device} {still:x?}\n");
        }
        text
    }

    /// An MSR, if the CPU has it.
    pub fn msr(&self, cpu: u16, address: u32) -> Option<u64> {
        let handle = self.root().open_read(format!("/dev/cpu/{cpu}/msr")).expect("the msr device");
        let mut bytes = [0; 8];
        handle.read_exact_at(&mut bytes, address.into()).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    /// Another tool writes an MSR.
    pub fn set_msr(&self, cpu: u16, address: u32, value: u64) {
        let handle = self.root().open_write(format!("/dev/cpu/{cpu}/msr")).expect("the msr device");
        handle.write_at(&value.to_le_bytes(), address.into()).expect("written");
    }
}

/// What an operator would write down about a scenario: its workloads, with the devices behind their ports.
fn tenants(vhost: &VirtualHost, scenario: &Scenario) -> Vec<Tenant> {
    let root = Root::at(vhost.path());
    let tree = PciTree::read(&root).expect("PCI devices");
    let ports = vhost.engine().with(|server| {
        let address = |text: String| text.parse().expect("an address");
        server
            .places()
            .ports
            .iter()
            .map(|port| address(port.address.to_string()))
            .collect::<Vec<PciAddress>>()
    });
    let ports = ports.expect("the model runs");
    let nics = scenario.nics.len();
    let tenant = |workload: &waykeeper_machine::WorkloadSpec| {
        let storage = workload.storage.map(|index| nics + index);
        let behind = |port: usize| tree.behind(&root, ports[port]).expect("devices");
        let devices = workload.nic.into_iter().chain(storage).flat_map(behind);
        Tenant {
            name: workload.name.clone(),
            priority: workload.priority,
            kind: workload.program.kind,
            cores: workload.cores.clone(),
            pids: Vec::new(),
            devices: devices.map(|device| device.address).collect(),
            stack: workload.stack,
            mask: None,
        }
    };
    scenario.workloads.iter().map(tenant).collect()
}

/// The registers of a generation's counters that do not count themselves.
fn controls(generation: &Generation) -> Vec<u32> {
    let core = &generation.core;
    let step = core.registers.step;
    let mut counts: BTreeSet<u32> =
        (0..u32::from(core.counters_alone)).map(|index| core.registers.counter + index * step).collect();
    if let Some(fixed) = &core.fixed {
        counts.extend((0..u32::from(fixed.counters)).map(|index| fixed.counter + index));
    }
    let pmus =
        [generation.cache.as_ref().map(|cache| &cache.pmu), generation.iio.as_ref().map(|iio| &iio.pmu)];
    for pmu in pmus.into_iter().flatten() {
        if let Some(map) = &pmu.registers {
            for number in 0..map.boxes() {
                counts.extend((0..pmu.counters).filter_map(|index| map.counter_of(number, index)));
            }
        }
    }
    generation.counter_msrs().into_iter().filter(|address| !counts.contains(address)).collect()
}
