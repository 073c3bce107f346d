//! Sockets, cores, hyperthreads, NUMA nodes and L3 caches, from sysfs.
//!
//! Read once into one value. Offline CPUs are listed without a location, because the kernel removes their files. Must
//! not know how a cache is used.

use crate::content;
use crate::root::{FileError, Root};
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_units::{CoreId, CoreList};

const CPUS: &str = "/sys/devices/system/cpu";
const NODES: &str = "/sys/devices/system/node";

/// One logical CPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cpu {
    /// The kernel's number.
    pub id: CoreId,
    /// Its location; `None` while it is offline.
    pub location: Option<CpuLocation>,
}

/// Location of an online CPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CpuLocation {
    /// Socket (`physical_package_id`).
    pub socket: u16,
    /// Core within the socket (`core_id`).
    pub core: u32,
    /// Online threads of the core, this one included.
    pub siblings: CoreList,
    /// NUMA node, if the kernel knows nodes.
    pub node: Option<u16>,
    /// Index into [`Topology::l3`]; `None` if it has no L3.
    pub l3: Option<usize>,
}

/// One L3 cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct L3 {
    /// The kernel's id, which is the resctrl domain; `None` if the kernel does not report it.
    pub id: Option<u32>,
    /// Socket it is in.
    pub socket: u16,
    /// Online CPUs that share it.
    pub cpus: CoreList,
    /// Capacity in bytes.
    pub bytes: u64,
    /// Ways; `None` if the kernel reports none, or 0.
    pub ways: Option<u32>,
    /// NUMA nodes that its CPUs belong to. More than one: sub-NUMA clustering.
    pub nodes: BTreeSet<u16>,
}

impl L3 {
    /// Nodes that share this cache: the N of sub-NUMA clustering, 1 when it is off.
    pub fn clusters(&self) -> usize {
        self.nodes.len().max(1)
    }
}

/// CPUs, caches and NUMA nodes of a machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Topology {
    /// Present CPUs, ascending.
    pub cpus: Vec<Cpu>,
    /// L3 caches, in the order of their first CPUs.
    pub l3: Vec<L3>,
    /// NUMA nodes and their online CPUs.
    pub nodes: BTreeMap<u16, CoreList>,
}

/// Whether a CPU is online.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// It is online.
    Online,
    /// It is present but offline.
    Offline,
    /// No CPU has this number.
    Absent,
}

impl Presence {
    /// Reads the state of one CPU.
    ///
    /// # Errors
    /// Lists of CPUs that cannot be read or parsed.
    pub fn of(root: &Root, cpu: CoreId) -> Result<Presence, FileError> {
        let has =
            |name: &str| root.cpu_list(&format!("{CPUS}/{name}")).map(|list| list.cores().contains(&cpu));
        Ok(match has("online")? {
            true => Presence::Online,
            // A CPU that is present has a directory. A list may have been read wrong.
            false if root.exists(format!("{CPUS}/cpu{}", cpu.0)) => Presence::Offline,
            false if root.exists(format!("{CPUS}/present")) && has("present")? => Presence::Offline,
            false => Presence::Absent,
        })
    }
}

impl Topology {
    /// Reads the machine's topology.
    ///
    /// # Errors
    /// A file missing for an online CPU, or content that cannot be parsed.
    pub fn read(root: &Root) -> Result<Topology, FileError> {
        let list = |name: &str| root.cpu_list(&format!("{CPUS}/{name}"));
        let online = list("online")?;
        let present = match root.exists(format!("{CPUS}/present")) {
            true => list("present")?,
            false => online.clone(),
        };
        let nodes = nodes(root)?;
        let node_of: BTreeMap<CoreId, u16> =
            nodes.iter().flat_map(|(node, cpus)| cpus.cores().iter().map(|cpu| (*cpu, *node))).collect();
        let mut topology = Topology { nodes, ..Topology::default() };
        let mut l3_of: BTreeMap<CoreId, usize> = BTreeMap::new();
        for &id in present.cores() {
            if online.cores().binary_search(&id).is_err() {
                topology.cpus.push(Cpu { id, location: None });
                continue;
            }
            let folder = format!("{CPUS}/cpu{}", id.0);
            let socket =
                root.number(&format!("{folder}/topology/physical_package_id"), u16::MAX.into())? as u16;
            let core = root.number(&format!("{folder}/topology/core_id"), u32::MAX.into())? as u32;
            let siblings = root.cpu_list(&format!("{folder}/topology/thread_siblings_list"))?;
            if !l3_of.contains_key(&id)
                && let Some(mut l3) = read_l3(root, &folder, id, socket)?
            {
                l3.nodes = l3.cpus.cores().iter().filter_map(|cpu| node_of.get(cpu).copied()).collect();
                l3_of.extend(l3.cpus.cores().iter().map(|cpu| (*cpu, topology.l3.len())));
                topology.l3.push(l3);
            }
            let (node, l3) = (node_of.get(&id).copied(), l3_of.get(&id).copied());
            topology.cpus.push(Cpu { id, location: Some(CpuLocation { socket, core, siblings, node, l3 }) });
        }
        Ok(topology)
    }

    /// Online CPUs.
    pub fn online(&self) -> impl Iterator<Item = (CoreId, &CpuLocation)> {
        self.cpus.iter().filter_map(|cpu| Some((cpu.id, cpu.location.as_ref()?)))
    }

    /// Offline CPUs.
    pub fn offline(&self) -> impl Iterator<Item = CoreId> {
        self.cpus.iter().filter(|cpu| cpu.location.is_none()).map(|cpu| cpu.id)
    }

    /// Sockets with an online CPU, ascending.
    pub fn sockets(&self) -> BTreeSet<u16> {
        self.online().map(|(_, location)| location.socket).collect()
    }

    /// Online CPUs of a socket.
    pub fn cpus_of(&self, socket: u16) -> CoreList {
        self.online()
            .filter(|(_, location)| location.socket == socket)
            .map(|(id, _)| id)
            .collect::<Vec<_>>()
            .into()
    }

    /// Physical cores of a socket that have an online CPU.
    pub fn cores_of(&self, socket: u16) -> usize {
        let own = self.online().filter(|(_, location)| location.socket == socket);
        own.map(|(_, location)| location.core).collect::<BTreeSet<_>>().len()
    }

    /// The first online CPU of a socket, through which its package registers are read.
    pub fn reader_of(&self, socket: u16) -> Option<CoreId> {
        self.online().find(|(_, location)| location.socket == socket).map(|(id, _)| id)
    }

    /// L3 caches of a socket.
    pub fn l3_of(&self, socket: u16) -> impl Iterator<Item = &L3> {
        self.l3.iter().filter(move |l3| l3.socket == socket)
    }
}

/// NUMA nodes; empty if the kernel was built without them.
fn nodes(root: &Root) -> Result<BTreeMap<u16, CoreList>, FileError> {
    let mut nodes = BTreeMap::new();
    for name in root.list_existing(NODES)? {
        if let Some(node) = name.strip_prefix("node").and_then(|number| number.parse().ok()) {
            nodes.insert(node, root.cpu_list(&format!("{NODES}/{name}/cpulist"))?);
        }
    }
    Ok(nodes)
}

/// The L3 of a CPU; `None` if none of its caches has level 3.
fn read_l3(root: &Root, cpu: &str, itself: CoreId, socket: u16) -> Result<Option<L3>, FileError> {
    let names = root.list_existing(&format!("{cpu}/cache"))?;
    for name in names.iter().filter(|name| name.starts_with("index")) {
        let folder = format!("{cpu}/cache/{name}");
        if root.number(&format!("{folder}/level"), u64::MAX)? != 3 {
            continue;
        }
        let optional = |file: &str| -> Result<Option<u32>, FileError> {
            let parse = |path: &_, text: &_| content::decimal_up_to(path, text, u32::MAX.into());
            Ok(root.parsed_optional(&format!("{folder}/{file}"), parse)?.map(|number| number as u32))
        };
        let list_path = format!("{folder}/shared_cpu_list");
        let cpus = root.cpu_list(&list_path)?;
        if !cpus.cores().contains(&itself) {
            let accepted = format!("a list of CPUs with {} in it", itself.0);
            let found = cpus.to_string();
            return Err(content::ContentError::new(&root.path(&list_path), 0, &found, &accepted).into());
        }
        let bytes = root.parsed(&format!("{folder}/size"), cache_size)?;
        return Ok(Some(L3 {
            id: optional("id")?,
            socket,
            cpus,
            bytes,
            ways: optional("ways_of_associativity")?.filter(|&ways| ways > 0),
            nodes: BTreeSet::new(),
        }));
    }
    Ok(None)
}

/// Parses a cache size as the kernel prints it, `25344K`, into bytes.
fn cache_size(path: &std::path::Path, text: &str) -> Result<u64, content::ContentError> {
    let found = text.trim();
    let (digits, shift) = match found.as_bytes().last() {
        Some(b'K') => (&found[..found.len() - 1], 10),
        Some(b'M') => (&found[..found.len() - 1], 20),
        _ => (found, 0),
    };
    let bytes = content::decimal(path, digits).ok().and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| content::ContentError::new(path, 0, found, "a size like 25344K"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;

    #[test]
    fn sizes_are_the_kernels() {
        let size = |text| cache_size(Path::new("/x"), text);
        assert_eq!(size("25344K\n"), Ok(25344 << 10));
        assert_eq!(size("32M"), Ok(32 << 20));
        for bad in ["", "K", "-1K", "1G", "99999999999999999999K", "18446744073709551615K", "é"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn no_size_makes_it_panic(text in "\\PC*|[0-9]{0,22}[KMé]?") {
            let _ = cache_size(Path::new("/x"), &text);
        }
    }
}
