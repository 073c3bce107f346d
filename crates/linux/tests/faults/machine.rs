//! The machine under test: a scenario on Skylake, mounted with faults, and all that a manager could turn on it, to the
//! byte.
//!
//! The clock is held, so what is counted twice is counted the same. It must not know which faults there are.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use waykeeper_generations::{Generation, Pmu};
use waykeeper_host::{Priority, WorkloadKind};
use waykeeper_linux::GROUP_PREFIX;
use waykeeper_linux::host::{LinuxHost, OpenError, Options};
use waykeeper_linux::journal::Journal;
use waykeeper_linux::pci::PciTree;
use waykeeper_linux::registers::RegisterFiles;
use waykeeper_linux::resctrl::Resctrl;
use waykeeper_linux::restore::Restorer;
use waykeeper_linux::root::Root;
use waykeeper_linux::tenants::Tenant;
use waykeeper_machine::{RunOptions, Scenario, ScenarioSource};
use waykeeper_silicon::Sampling;
use waykeeper_units::{CoreId, CoreList};
use waykeeper_vhost::engine::Pace;
use waykeeper_vhost::faults::Faults;
use waykeeper_vhost::virtual_host::{self, VirtualHost};

/// ms of the server's clock.
pub const MS: u64 = 1_000_000;

/// A NIC with a forwarder on cores 0 and 1, an array with a reader on core 2, two scans on cores 3 and 4.
const SCENARIO: &str = r#"
chip = "gold-6140"
name = "host"
duration_s = 1
warmup_s = 0.1
measure_s = 0.1
time_factor = 5

[[nic]]
name = "nic0"
ring = 2048
offered_gbps = 40

[[storage]]
name = "raid0"

[[workload]]
name = "l2fwd"
program = "l2fwd"
cores = "0-1"

[[workload]]
name = "fio"
program = "fio"
cores = "2"

[[workload]]
name = "scan"
program = "x-mem"
cores = "3"
working_set = "4M"

[[workload]]
name = "late"
program = "x-mem"
cores = "4"
working_set = "4M"
"#;

/// The tenants: name, cores, and the class (upper byte of the PCI class code) of the devices that are theirs.
const TENANTS: [(&str, &str, Option<u32>); 4] =
    [("l2fwd", "0-1", Some(0x02)), ("fio", "2", Some(0x01)), ("scan", "3", None), ("late", "4", None)];

/// CPUs whose registers are compared: the tenants', and one that is nobody's.
const CPUS: [u16; 6] = [0, 1, 2, 3, 4, 17];

/// All that a manager could have turned, by name.
pub type State = BTreeMap<String, String>;

/// What is different, one line a knob; empty if nothing is.
pub fn difference(before: &State, after: &State) -> String {
    let keys: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let of = |state: &State, key: &str| state.get(key).cloned().unwrap_or_else(|| "not there".to_owned());
    let different = keys.into_iter().filter(|key| before.get(*key) != after.get(*key));
    different.map(|key| format!("{key}: {} became {}\n", of(before, key), of(after, key))).collect()
}

/// A mounted host. The mount goes before its folder does.
pub struct Machine {
    vhost: VirtualHost,
    pub faults: Faults,
    pub tenants: Vec<Tenant>,
    /// Open files to look into, past the faults that are lifted then: MSRs by CPU, configuration spaces by device.
    msrs: Vec<(u16, File)>,
    configs: Vec<(String, File)>,
    addresses: Vec<u32>,
    classes: BTreeMap<String, String>,
    folder: tempfile::TempDir,
}

impl Machine {
    /// Mounts it, with traces of other tools in its registers, so that bringing them back is not writing zeros.
    pub fn new() -> Machine {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let mount = folder.path().join("host");
        std::fs::create_dir(&mount).expect("made");
        let faults = Faults::new();
        let sampling = Sampling::one_in(16).expect("a power of two");
        let options = virtual_host::Options {
            pace: Pace::Held,
            run: RunOptions { seed: 1, sample_seed: 1, sampling },
            faults: faults.clone(),
            ..virtual_host::Options::default()
        };
        let vhost = VirtualHost::mount(&mount, scenario(), options);
        let vhost = vhost
            .unwrap_or_else(|error| panic!("{error}; mounting needs root and /dev/fuse (modprobe fuse)"));
        let root = Root::at(&mount);
        let tree = PciTree::read(&root).expect("PCI devices");
        let tenants = tenants(&tree);
        let open =
            |path: String| File::options().read(true).write(true).open(root.path(path)).expect("there");
        let msrs = CPUS.map(|cpu| (cpu, open(format!("/dev/cpu/{cpu}/msr")))).into();
        let names: Vec<String> = tree.devices().map(|device| device.address.to_string()).collect();
        let config = |name: &String| (name.clone(), open(format!("/sys/bus/pci/devices/{name}/config")));
        let configs = names.iter().map(config).collect();
        let classes =
            tree.devices().map(|device| (device.address.to_string(), format!("{:06x}", device.class)));
        let classes = classes.collect();
        let machine =
            Machine { vhost, faults, tenants, msrs, configs, addresses: controls(), classes, folder };
        machine.traces();
        machine
    }

    pub fn root(&self) -> Root {
        Root::at(self.vhost.path())
    }

    pub fn journal(&self) -> PathBuf {
        self.folder.path().join("state/journal")
    }

    /// Classes of the PCI devices by address.
    pub fn classes(&self) -> &BTreeMap<String, String> {
        &self.classes
    }

    /// Lets the machine run for a while, ns.
    pub fn run(&self, ns: u64) {
        let engine = self.vhost.engine();
        engine.run_until(engine.now_ns() + ns).expect("the model runs");
    }

    pub fn options(&self) -> Options {
        Options::new(self.root(), self.tenants.clone(), self.journal())
    }

    pub fn open(&self) -> Result<LinuxHost, OpenError> {
        LinuxHost::open(self.options())
    }

    /// What `waykeeper restore` does. What could not be brought back is the error: the knob, if there is one, and why.
    pub fn bring_back(&self) -> Result<(), Vec<(String, String)>> {
        let root = self.root();
        let alone = |error: &dyn std::fmt::Display| vec![(String::new(), error.to_string())];
        let mut journal = Journal::open(&self.journal(), &root).map_err(|error| alone(&error))?;
        let resctrl = Resctrl::open(&root, GROUP_PREFIX).map_err(|error| alone(&error))?;
        let registers = RegisterFiles::new(&root, Generation::by_id("skx"));
        let mut restorer = Restorer { root: &root, resctrl: Some(&resctrl), registers: &registers };
        let report = restorer.restore(&mut journal).map_err(|error| alone(&error))?;
        let failures = report.failures().map(|(knob, why)| (knob.to_string(), why.to_owned()));
        let failures: Vec<(String, String)> = failures.collect();
        if failures.is_empty() { Ok(()) } else { Err(failures) }
    }

    /// What does not come back now, without faults; empty if all does.
    pub fn still_wrong(&self) -> String {
        let failures = self.bring_back().err().into_iter().flatten();
        failures.map(|(knob, why)| format!("{knob}: {why}")).collect::<Vec<_>>().join("; ")
    }

    /// An MSR of one of [`CPUS`].
    pub fn msr(&self, cpu: u16, address: u32) -> u64 {
        let (_, file) = self.msrs.iter().find(|(own, _)| *own == cpu).expect("one of the CPUs");
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, address.into())
            .unwrap_or_else(|error| panic!("{address:#x}: {error}"));
        u64::from_le_bytes(bytes)
    }

    /// Another tool writes an MSR.
    pub fn set_msr(&self, cpu: u16, address: u32, value: u64) {
        let (_, file) = self.msrs.iter().find(|(own, _)| *own == cpu).expect("one of the CPUs");
        file.write_all_at(&value.to_le_bytes(), address.into()).expect("written");
    }

    /// What others left in registers that are not counting: event numbers without the bit that starts them, a third way
    /// for devices.
    fn traces(&self) {
        for cpu in CPUS {
            self.set_msr(cpu, 0x187, 0x0003_412e);
        }
        for cha in 0..18 {
            self.set_msr(0, 0xe01 + 0x10 * cha, 0x1435);
        }
        self.set_msr(0, 0xc8b, 0x700);
        for (_, channel) in self.configs.iter().filter(|(name, _)| name.ends_with("0a.2")) {
            channel.write_all_at(&0x0304_u32.to_le_bytes(), 0xd8).expect("written");
        }
    }

    /// The mask that a CPU really has: that of the group which has the CPU.
    pub fn mask_of(&self, cpu: u16) -> String {
        let state = self.groups();
        let own = |(path, list): &(&String, &String)| {
            let list: CoreList = list.trim().parse().unwrap_or_default();
            path.ends_with("cpus_list") && !path.contains("mon_groups") && list.cores().contains(&CoreId(cpu))
        };
        let group = state.iter().find(own).map(|(path, _)| path.replace("cpus_list", "schemata"));
        let schemata = &state[&group.expect("a CPU has a group")];
        let line = schemata.lines().find_map(|line| line.trim().strip_prefix("L3:0="));
        line.expect("an L3").trim_start_matches('0').to_owned()
    }

    /// Another tool makes a group.
    pub fn foreign(&self, name: &str) -> PathBuf {
        let group = self.root().path(format!("/sys/fs/resctrl/{name}"));
        std::fs::create_dir(&group).expect("a class is left");
        group
    }

    /// Reads all that could be turned. Faults must be lifted.
    pub fn state(&self) -> State {
        let mut state = self.groups();
        for (cpu, _) in &self.msrs {
            // Class and RMID, and the ways of devices.
            for address in self.addresses.iter().copied().chain([0xc8f, 0xc8b]) {
                // Uncore registers are the package's.
                if *cpu == CPUS[0] || address < 0x400 || address == 0xc8f {
                    let value = format!("{:#x}", self.msr(*cpu, address));
                    state.insert(format!("CPU {cpu} MSR {address:#x}"), value);
                }
            }
        }
        for (device, config) in &self.configs {
            let mut bytes = vec![0; 4096];
            let read = config.read_at(&mut bytes, 0).expect("read");
            bytes.truncate(read);
            // The counters of memory channels (hardware.md 5) go on.
            bytes.drain(0xa0.min(read)..0xd8.min(read));
            // Two words a line, so that a difference can be read.
            for (place, words) in
                bytes.chunks(8).enumerate().filter(|(_, words)| words.iter().any(|byte| *byte > 0))
            {
                state.insert(format!("PCI {device} {:#x}", 8 * place), format!("{words:02x?}"));
            }
        }
        state
    }

    /// What stands in resctrl.
    fn groups(&self) -> State {
        let root = self.root();
        let mut state = State::new();
        let mut groups = vec!["/sys/fs/resctrl".to_owned()];
        while let Some(group) = groups.pop() {
            for file in ["schemata", "cpus_list", "mode"] {
                let text = root.read_optional(format!("{group}/{file}")).expect("read");
                state.extend(text.map(|text| (format!("{group}/{file}"), text)));
            }
            for parent in [group.clone(), format!("{group}/mon_groups")] {
                let inner = root.list(&parent).unwrap_or_default();
                let inner = inner.into_iter().map(|name| format!("{parent}/{name}"));
                groups.extend(inner.filter(|path| root.exists(format!("{path}/cpus_list"))));
            }
        }
        state
    }
}

fn scenario() -> Arc<Scenario> {
    let source = ScenarioSource::parse("host", SCENARIO, None).unwrap_or_else(|error| panic!("{error}"));
    Arc::new(source.read().unwrap_or_else(|error| panic!("{error}")))
}

/// What an operator would write down about the scenario.
pub fn tenants(tree: &PciTree) -> Vec<Tenant> {
    let tenant = |(name, cores, class): &(&str, &str, Option<u32>)| {
        let own = tree.devices().filter(|device| Some(device.class >> 16) == *class);
        Tenant {
            name: (*name).to_owned(),
            priority: Priority::Low,
            kind: WorkloadKind::NonIo,
            cores: cores.parse().expect("cores"),
            pids: Vec::new(),
            devices: own.map(|device| device.address).collect(),
            stack: false,
            mask: None,
        }
    };
    TENANTS.iter().map(tenant).collect()
}

/// MSRs that tell counters what to count; counts themselves go on.
fn controls() -> Vec<u32> {
    let generation = Generation::by_id("skx").expect("there");
    let core = &generation.core;
    let mut counts: Vec<u32> = Vec::new();
    let registers = &core.registers;
    counts
        .extend((0..u32::from(core.counters_alone)).map(|index| registers.counter + index * registers.step));
    counts.extend(
        core.fixed.iter().flat_map(|fixed| (0..u32::from(fixed.counters)).map(|n| fixed.counter + n)),
    );
    let boxes = |pmu: &Pmu| -> Vec<u32> {
        let maps = pmu.registers.iter();
        let each = |number| (0..pmu.counters).map(move |index| (number, index));
        maps.flat_map(|map| (0..map.boxes()).flat_map(each).filter_map(|(n, index)| map.counter_of(n, index)))
            .collect()
    };
    counts.extend(generation.cache.iter().flat_map(|cache| boxes(&cache.pmu)));
    counts.extend(generation.iio.iter().flat_map(|iio| boxes(&iio.pmu)));
    let there = |address: &u32| !(0xe00 + 0x10 * 18..0x1100).contains(address);
    generation.counter_msrs().into_iter().filter(|own| !counts.contains(own)).filter(there).collect()
}
