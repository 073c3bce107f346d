//! The state of everything that a manager could have changed on a host, by name: resctrl's groups with masks,
//! CPUs and modes, the class and RMID of every CPU, counter controls, the DCA ways, configuration spaces.
//!
//! Running counters are left out. Files are opened once, at the start, so that faults injected later do not affect
//! them. Must not know which program changed anything.

use std::collections::{BTreeMap, BTreeSet};
use waykeeper_generations::{Generation, Pmu};
use waykeeper_kernel::pci::PciTree;
use waykeeper_kernel::root::{Handle, Root};

/// All values, by name: `CPU 3 MSR 0x186`, `/sys/fs/resctrl/schemata`, `PCI 0000:16:00.0 0x180`.
pub type HostState = BTreeMap<String, String>;

/// The differences, one line per knob; empty if there are none.
pub fn state_difference(before: &HostState, after: &HostState) -> String {
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let of = |state: &HostState, key: &str| state.get(key).cloned().unwrap_or_else(|| "not there".to_owned());
    let different = keys.into_iter().filter(|key| before.get(*key) != after.get(*key));
    different.map(|key| format!("{key}: {} became {}\n", of(before, key), of(after, key))).collect()
}

/// Asserts that a state is as expected.
///
/// # Panics
/// With every knob that differs.
#[track_caller]
pub fn assert_same_state(now: &HostState, expected: &HostState, what: &str) {
    assert!(now == expected, "{what}:\n{}", state_difference(expected, now));
}

/// IA32_PQR_ASSOC and IIO_LLC_WAYS (hardware.md 7.5, 1.1).
const CLASS: u32 = 0xc8f;
const WAYS: u32 = 0xc8b;

/// Open files and the registers to read in them.
#[derive(Debug)]
pub struct Watched {
    /// MSRs, by CPU.
    msrs: Vec<Handle>,
    /// Configuration spaces, by device.
    configs: Vec<(String, Handle)>,
    /// CPU and register.
    registers: Vec<(u16, u32)>,
}

impl Watched {
    /// Opens them. Core registers are read on `cores`, package registers on the CPUs in `packages`, the first of each
    /// package.
    pub fn new(
        root: &Root,
        generation: Option<&Generation>,
        cpus: u16,
        cores: &BTreeSet<u16>,
        packages: &[u16],
    ) -> Watched {
        let open = |path: String| root.open_write(&path).unwrap_or_else(|error| panic!("{error}"));
        let tree = PciTree::read(root).unwrap_or_else(|error| panic!("{error}"));
        let names = tree.devices().map(|device| device.address.to_string());
        let config = |name: String| {
            let file = open(format!("/sys/bus/pci/devices/{name}/config"));
            (name, file)
        };
        let msrs: Vec<Handle> = (0..cpus).map(|cpu| open(format!("/dev/cpu/{cpu}/msr"))).collect();
        let (of_core, of_package) = generation.map(controls).unwrap_or_default();
        let all = (0..cpus).map(|cpu| (cpu, CLASS));
        let own = cores.iter().flat_map(|cpu| of_core.iter().map(|address| (*cpu, *address)));
        let uncore = of_package.iter().chain(&[WAYS]);
        let shared = packages.iter().flat_map(|cpu| uncore.clone().map(|address| (*cpu, *address)));
        let mut watched = Watched {
            msrs,
            configs: names.map(config).collect(),
            registers: all.chain(own).chain(shared).collect(),
        };
        // The tables cover more boxes than a chip has, and not every chip has every register.
        let there: Vec<(u16, u32)> = watched
            .registers
            .iter()
            .copied()
            .filter(|(cpu, address)| watched.msr(*cpu, *address).is_some())
            .collect();
        watched.registers = there;
        watched
    }

    /// An MSR, if the CPU has it.
    pub fn msr(&self, cpu: u16, address: u32) -> Option<u64> {
        let mut bytes = [0; 8];
        self.msrs.get(usize::from(cpu))?.read_exact_at(&mut bytes, address.into()).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    /// Writes an MSR, as another tool would.
    pub fn set_msr(&self, cpu: u16, address: u32, value: u64) {
        let written = self.msrs[usize::from(cpu)].write_at(&value.to_le_bytes(), address.into());
        written.unwrap_or_else(|error| panic!("MSR {address:#x} of CPU {cpu}: {error}"));
    }

    /// The configuration space of a device, for another tool to write to.
    pub fn config(&self, device: &str) -> &Handle {
        let found = self.configs.iter().find(|(name, _)| name == device);
        found.map(|(_, file)| file).unwrap_or_else(|| panic!("there is no PCI device {device}"))
    }

    /// Reads everything. Faults must be removed first.
    pub fn state(&self, root: &Root) -> HostState {
        let mut state = groups(root);
        for (cpu, address) in &self.registers {
            let value = self
                .msr(*cpu, *address)
                .map_or_else(|| "not there".to_owned(), |value| format!("{value:#x}"));
            state.insert(format!("CPU {cpu} MSR {address:#x}"), value);
        }
        for (device, config) in &self.configs {
            let mut bytes = vec![0; 4096];
            let read = config.read_at(&mut bytes, 0).unwrap_or_else(|error| panic!("{device}: {error}"));
            bytes.truncate(read);
            // The running counters of memory channels (hardware.md 5) are left out.
            bytes.drain(0xa0.min(read)..0xd8.min(read));
            // Two words per line, so that a difference is readable.
            let lines = bytes.chunks(8).enumerate().filter(|(_, words)| words.iter().any(|byte| *byte > 0));
            for (place, words) in lines {
                // Offsets behind the counters that were left out.
                let at = if 8 * place < 0xa0 { 8 * place } else { 8 * place + 0x38 };
                state.insert(format!("PCI {device} {at:#x}"), format!("{words:02x?}"));
            }
        }
        state
    }
}

/// The files of all resctrl groups; empty without resctrl.
pub fn groups(root: &Root) -> HostState {
    let mut state = HostState::new();
    let mut groups = vec!["/sys/fs/resctrl".to_owned()];
    while let Some(group) = groups.pop() {
        for file in ["schemata", "cpus_list", "mode"] {
            let text =
                root.read_optional(format!("{group}/{file}")).unwrap_or_else(|error| panic!("{error}"));
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

/// The registers of a generation's counters without the counters themselves: of a core, and of a package.
fn controls(generation: &Generation) -> (Vec<u32>, Vec<u32>) {
    let core = &generation.core;
    let registers = &core.registers;
    let every =
        |first: u32| (0..u32::from(core.counters_alone)).map(move |index| first + index * registers.step);
    let mut of_core: Vec<u32> = every(registers.select).chain([registers.global_control]).collect();
    let mut counting: BTreeSet<u32> = every(registers.counter).collect();
    if let Some(fixed) = &core.fixed {
        of_core.push(fixed.control);
        counting.extend((0..u32::from(fixed.counters)).map(|index| fixed.counter + index));
    }
    let pmus =
        [generation.cache.as_ref().map(|cache| &cache.pmu), generation.iio.as_ref().map(|iio| &iio.pmu)];
    let counters = |pmu: &Pmu| -> Vec<u32> {
        let maps = pmu.registers.iter();
        let each = |number| (0..pmu.counters).map(move |index| (number, index));
        maps.flat_map(|map| (0..map.boxes()).flat_map(each).filter_map(|(n, index)| map.counter_of(n, index)))
            .collect()
    };
    counting.extend(pmus.into_iter().flatten().flat_map(counters));
    let all = generation.counter_msrs().into_iter();
    let of_package =
        all.filter(|address| !counting.contains(address) && !of_core.contains(address)).collect();
    (of_core, of_package)
}
