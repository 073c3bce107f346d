//! A recorded machine: a TOML file with a few facts, and the tree of kernel files of such a machine.
//!
//! What repeats for every CPU (topology, caches, cpuinfo blocks) is generated from the shape; everything else is in the
//! file as the kernel prints it. The cpuid device cannot be a plain file, as its leaves overlap: the decoder gets the
//! leaves directly.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use waykeeper_kernel::cpuid::{Leaf, Leaves};
use waykeeper_kernel::root::Root;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fixture {
    /// The machine, in words.
    pub about: String,
    /// The sources of the values.
    pub made_from: String,
    pub generation: Option<String>,
    pub cpu: CpuText,
    pub shape: Shape,
    #[serde(default)]
    pub cpuid: BTreeMap<String, [u32; 4]>,
    #[serde(default)]
    pub pci: Vec<Pci>,
    #[serde(default)]
    pub unit: Vec<CounterUnit>,
    /// Further files, by path.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
}

/// `/proc/cpuinfo` of one CPU, as lines.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuText {
    pub lines: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    pub sockets: u16,
    pub cores: u16,
    pub threads: u16,
    #[serde(default)]
    pub offline: Vec<u16>,
    #[serde(default = "one")]
    pub nodes_per_socket: u16,
    #[serde(default = "one")]
    pub caches_per_socket: u16,
    pub l3_size: Option<String>,
    pub l3_ways: Option<u32>,
    /// Ids of the L3 caches, in order; empty on kernels that do not report them.
    #[serde(default)]
    pub l3_ids: Vec<u32>,
}

fn one() -> u16 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pci {
    /// Path below `/sys/devices`; the last part is the address.
    pub path: String,
    pub ids: [u16; 2],
    pub class: String,
    pub node: Option<i32>,
    pub driver: Option<String>,
    pub net: Option<String>,
    pub nvme: Option<String>,
    pub physfn: Option<String>,
    /// Secondary and subordinate bus.
    pub bridge: Option<[u8; 2]>,
    /// Type of the PCIe port.
    pub port_type: Option<u8>,
    /// Extended capabilities: offset, id, next.
    #[serde(default)]
    pub extended: Vec<[u32; 3]>,
    /// Words of four bytes, by offset.
    #[serde(default)]
    pub words: BTreeMap<String, u32>,
    /// Number of readable bytes of configuration space.
    pub shown: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CounterUnit {
    /// Names of the units, one each.
    pub names: Vec<String>,
    #[serde(rename = "type")]
    pub kind: u32,
    pub cpumask: Option<String>,
    #[serde(default)]
    pub format: BTreeMap<String, String>,
    #[serde(default)]
    pub events: BTreeMap<String, String>,
    /// `dieN` files of the units, in their order.
    #[serde(default)]
    pub die0: Vec<String>,
}

/// The tree of a recorded machine, removed when dropped.
pub struct Machine {
    pub fixture: Fixture,
    pub root: Root,
    folder: tempfile::TempDir,
}

pub fn number(text: &str) -> u32 {
    let digits = text.strip_prefix("0x");
    digits.map_or_else(|| text.parse().unwrap(), |digits| u32::from_str_radix(digits, 16).unwrap())
}

impl Machine {
    pub fn names() -> Vec<String> {
        let entries = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../kernel/tests/fixtures")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> =
            names.filter_map(|name| Some(name.strip_suffix(".toml")?.to_owned())).collect();
        names.sort();
        names
    }

    pub fn recorded(name: &str) -> Machine {
        let path = format!("{}/../kernel/tests/fixtures/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let text = fs::read_to_string(&path).unwrap();
        let fixture: Fixture = toml::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine { root: Root::at(folder.path()), fixture, folder };
        machine.cpus();
        machine.fixture.pci.iter().for_each(|device| machine.pci(device));
        machine.fixture.unit.iter().for_each(|unit| machine.units(unit));
        machine.fixture.files.iter().for_each(|(path, content)| machine.file(path, content));
        machine
    }

    pub fn place(&self, path: &str) -> PathBuf {
        self.folder.path().join(path.trim_start_matches('/'))
    }

    pub fn file(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.place(path);
        if fs::write(&path, &content).is_err() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
    }

    /// Runs `look` while a file has other content.
    pub fn with(&self, path: &str, content: &str, look: impl FnOnce(&Root)) {
        let path = self.place(path);
        let kept = fs::read(&path).unwrap();
        fs::write(&path, content).unwrap();
        look(&self.root);
        fs::write(&path, kept).unwrap();
    }

    pub fn leaves(&self) -> Leaves {
        let leaf = |(name, words): (&String, &[u32; 4])| {
            let (leaf, subleaf) = name.split_once('.').unwrap();
            let [eax, ebx, ecx, edx] = *words;
            ((number(leaf), number(subleaf)), Leaf { eax, ebx, ecx, edx })
        };
        self.fixture.cpuid.iter().map(leaf).collect()
    }

    /// CPUs as Linux numbers them: all first threads socket by socket, then all second threads.
    fn cpus(&self) {
        let shape = &self.fixture.shape;
        let (cores, count) = (shape.sockets * shape.cores, shape.sockets * shape.cores * shape.threads);
        let online = |cpu: &u16| !shape.offline.contains(cpu);
        let list = |cpus: &mut dyn Iterator<Item = u16>| {
            let shown: Vec<String> = cpus.map(|cpu| cpu.to_string()).collect();
            format!("{}\n", shown.join(","))
        };
        let base = "sys/devices/system/cpu";
        self.file(&format!("{base}/possible"), format!("0-{}\n", count - 1));
        self.file(&format!("{base}/present"), format!("0-{}\n", count - 1));
        self.file(&format!("{base}/online"), list(&mut (0..count).filter(online)));
        let mut cpuinfo = String::new();
        let (per_node, per_cache) =
            (shape.cores / shape.nodes_per_socket, shape.cores / shape.caches_per_socket);
        for cpu in (0..count).filter(online) {
            let core = cpu % cores;
            let (socket, local) = (core / shape.cores, core % shape.cores);
            let folder = format!("{base}/cpu{cpu}");
            self.file(&format!("{folder}/topology/physical_package_id"), format!("{socket}\n"));
            self.file(&format!("{folder}/topology/core_id"), format!("{local}\n"));
            let siblings = list(&mut (0..count).filter(online).filter(|other| other % cores == core));
            self.file(&format!("{folder}/topology/thread_siblings_list"), siblings);
            self.file(&format!("{folder}/cache/index0/level"), "1\n");
            if let Some(size) = &shape.l3_size {
                let cache = core / per_cache;
                let index = format!("{folder}/cache/index3");
                self.file(&format!("{index}/level"), "3\n");
                self.file(&format!("{index}/size"), format!("{size}\n"));
                let sharing = |other: &u16| other % cores / per_cache == cache;
                let shared = list(&mut (0..count).filter(online).filter(sharing));
                self.file(&format!("{index}/shared_cpu_list"), shared);
                if let Some(ways) = shape.l3_ways {
                    self.file(&format!("{index}/ways_of_associativity"), format!("{ways}\n"));
                }
                if let Some(id) = shape.l3_ids.get(usize::from(cache)) {
                    self.file(&format!("{index}/id"), format!("{id}\n"));
                }
            }
            cpuinfo += &format!("processor\t: {cpu}\n{}\n\n", self.fixture.cpu.lines.join("\n"));
        }
        for node in 0..shape.sockets * shape.nodes_per_socket {
            let own = |cpu: &u16| cpu % cores / per_node == node;
            let cpus = list(&mut (0..count).filter(online).filter(own));
            self.file(&format!("sys/devices/system/node/node{node}/cpulist"), cpus);
        }
        self.file("proc/cpuinfo", cpuinfo);
    }

    fn pci(&self, device: &Pci) {
        let folder = format!("sys/devices/{}", device.path);
        let address = Path::new(&device.path).file_name().unwrap().to_str().unwrap();
        let [vendor, id] = device.ids;
        self.file(&format!("{folder}/vendor"), format!("{vendor:#06x}\n"));
        self.file(&format!("{folder}/device"), format!("{id:#06x}\n"));
        self.file(&format!("{folder}/class"), format!("{}\n", device.class));
        if let Some(node) = device.node {
            self.file(&format!("{folder}/numa_node"), format!("{node}\n"));
        }
        for (kind, name) in [("net", &device.net), ("nvme", &device.nvme)] {
            if let Some(name) = name {
                self.file(&format!("{folder}/{kind}/{name}/uevent"), "");
            }
        }
        let mut config = vec![0; 4096];
        config[0..2].copy_from_slice(&vendor.to_le_bytes());
        config[2..4].copy_from_slice(&id.to_le_bytes());
        if let Some(buses) = device.bridge {
            config[0x0e] = 1;
            config[0x18] = address[5..7].parse().map_or(0, |bus: u8| bus);
            config[0x19..0x1b].copy_from_slice(&buses);
        }
        if let Some(kind) = device.port_type {
            config[0x06] = 0x10;
            config[0x34] = 0x90;
            config[0x90..0x94].copy_from_slice(&[0x10, 0, kind << 4 | 2, 0]);
        }
        for [offset, capability, next] in &device.extended {
            let at = *offset as usize;
            config[at..at + 4].copy_from_slice(&(next << 20 | 1 << 16 | capability).to_le_bytes());
        }
        for (offset, word) in &device.words {
            let at = number(offset) as usize;
            config[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        self.file(&format!("{folder}/config"), &config[..device.shown.unwrap_or(4096)]);
        let links = self.place("sys/bus/pci/devices");
        fs::create_dir_all(&links).unwrap();
        symlink(format!("../../../devices/{}", device.path), links.join(address)).unwrap();
        for (name, target) in [
            ("driver", device.driver.as_ref().map(|driver| format!("../../../bus/pci/drivers/{driver}"))),
            ("physfn", device.physfn.as_ref().map(|physical| format!("../{physical}"))),
        ] {
            if let Some(target) = target {
                symlink(target, self.place(&folder).join(name)).unwrap();
            }
        }
    }

    fn units(&self, unit: &CounterUnit) {
        for (index, name) in unit.names.iter().enumerate() {
            let folder = format!("sys/devices/{name}");
            self.file(&format!("{folder}/type"), format!("{}\n", unit.kind + index as u32));
            if let Some(mask) = &unit.cpumask {
                self.file(&format!("{folder}/cpumask"), format!("{mask}\n"));
            }
            for (kind, files) in [("format", &unit.format), ("events", &unit.events)] {
                for (file, content) in files {
                    self.file(&format!("{folder}/{kind}/{file}"), format!("{content}\n"));
                }
            }
            if let Some(bus) = unit.die0.get(index) {
                self.file(&format!("{folder}/die0"), format!("{bus}\n"));
            }
            let links = self.place("sys/bus/event_source/devices");
            fs::create_dir_all(&links).unwrap();
            symlink(format!("../../../devices/{name}"), links.join(name)).unwrap();
        }
    }
}
