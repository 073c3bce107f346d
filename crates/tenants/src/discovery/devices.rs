//! Network cards and drives, and which candidates use them: by the device files that their processes have open, else by
//! what they do, where only one candidate can be meant.
//!
//! Must not know priorities.

use super::walk::Candidate;
use super::{Guess, word};
use crate::devices::find;
use crate::reader::Reader;
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_host::WorkloadKind;
use waykeeper_kernel::pci::PciAddress;
use waykeeper_kernel::root::Root;

/// Most processes of a candidate whose open files are read, and most files of each. Assumption: a program that polls a
/// device opens it early.
const MOST_PROCESSES: usize = 8;
const MOST_FILES: usize = 256;

/// Most devices of each kind.
const MOST_DEVICES: usize = 64;

/// A network card or a drive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeenDevice {
    /// The kernel's name: `ens1f0`, `nvme0`.
    pub name: String,
    /// What workloads do with it.
    pub kind: WorkloadKind,
    /// Its function.
    pub address: PciAddress,
    /// Its root port, if sysfs shows one.
    pub port: Option<PciAddress>,
    /// Its NUMA node, if sysfs shows one.
    pub node: Option<u32>,
    /// Number of its virtual functions.
    pub functions: u16,
}

/// All of them: interfaces and NVMe controllers that are PCI functions, virtual functions left out.
pub(super) fn all(reader: &mut Reader) -> Vec<SeenDevice> {
    let mut seen = Vec::new();
    for (class, kind) in [("net", WorkloadKind::NetworkIo), ("nvme", WorkloadKind::StorageIo)] {
        for name in reader.names(&format!("/sys/class/{class}")).into_iter().take(MOST_DEVICES) {
            let Some(found) = name.parse().ok().and_then(|parsed| find(reader, &parsed).ok()) else {
                continue;
            };
            let [device] = found.as_slice() else { continue };
            let folder = format!("/sys/bus/pci/devices/{}", device.address);
            if reader.exists(&format!("{folder}/physfn")) {
                continue;
            }
            let mut number = |file: &str| {
                let text = reader.text(&format!("{folder}/{file}"), 64).ok().flatten()?;
                text.trim().parse::<u32>().ok()
            };
            let (node, functions) = (number("numa_node"), number("sriov_numvfs"));
            seen.push(SeenDevice {
                kind,
                address: device.address,
                port: device.port,
                node,
                functions: functions.and_then(|count| u16::try_from(count).ok()).unwrap_or(0),
                name,
            });
        }
    }
    seen
}

/// Reads which devices the candidates' processes have open.
pub(super) fn used(reader: &mut Reader, candidates: &mut [Candidate]) {
    for candidate in candidates {
        let mut open: BTreeSet<String> = BTreeSet::new();
        for pid in candidate.pids.iter().take(MOST_PROCESSES) {
            let folder = format!("/proc/{pid}/fd");
            for file in reader.names(&folder).into_iter().take(MOST_FILES) {
                let Ok(Some(target)) = reader.link(&format!("{folder}/{file}")) else { continue };
                let Some(path) = target.to_str().and_then(|path| path.strip_prefix("/dev/")) else {
                    continue;
                };
                open.extend(device_of(reader, path));
            }
        }
        candidate.open = open.into_iter().collect();
    }
}

/// The names of the devices behind a device file (`/dev/nvme0n1`) that programs use without the kernel, or below its file
/// systems; empty for another file.
pub fn devices_of_file(root: &Root, file: &str) -> Vec<String> {
    let mut reader = Reader::new(root);
    file.strip_prefix("/dev/").map(|path| device_of(&mut reader, path)).unwrap_or_default()
}

/// The same for a path below `/dev`.
fn device_of(reader: &mut Reader, path: &str) -> Vec<String> {
    if let Some(group) = path.strip_prefix("vfio/").filter(|group| group.parse::<u32>().is_ok()) {
        let functions = reader.names(&format!("/sys/kernel/iommu_groups/{group}/devices"));
        return functions.into_iter().take(MOST_DEVICES).collect();
    }
    if let Some(verbs) = path.strip_prefix("infiniband/").filter(|name| name.starts_with("uverbs")) {
        let text = reader.text(&format!("/sys/class/infiniband_verbs/{verbs}/ibdev"), 64).ok().flatten();
        return text.map(|text| text.trim().to_owned()).into_iter().collect();
    }
    let is_drive = ["nvme", "ng"].iter().any(|kind| {
        path.strip_prefix(kind).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    });
    if is_drive { vec![path.to_owned()] } else { Vec::new() }
}

/// The devices of each candidate. No device is given to two.
pub(super) fn guess(
    seen: &[SeenDevice],
    candidates: &[Candidate],
    kinds: &[Option<Guess<WorkloadKind>>],
) -> Vec<Option<Guess<Vec<String>>>> {
    let mut owners: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, candidate) in candidates.iter().enumerate().filter(|(_, own)| !own.is_family()) {
        for device in &candidate.open {
            owners.entry(device).or_insert(index);
        }
    }
    let only = |kind: WorkloadKind| {
        let mut all =
            kinds.iter().enumerate().filter(|(_, own)| own.as_ref().is_some_and(|own| own.value == kind));
        let first = all.next().map(|(index, _)| index);
        first.filter(|_| all.next().is_none())
    };
    let one = |index: usize| {
        let own: Vec<String> = candidates[index]
            .open
            .iter()
            .filter(|device| owners.get(device.as_str()) == Some(&index))
            .cloned()
            .collect();
        if !own.is_empty() {
            return Some(Guess::new(own, "its processes have them open"));
        }
        let kind = kinds[index].as_ref()?.value;
        if only(kind) != Some(index) || candidates[index].is_family() {
            return None;
        }
        let of_kind: Vec<&SeenDevice> = seen.iter().filter(|device| device.kind == kind).collect();
        let ports: BTreeSet<_> = of_kind.iter().map(|device| device.port).collect();
        let address = |device: &SeenDevice| device.address.to_string();
        let is_open = |device: &&SeenDevice| {
            let mut open = candidates.iter().flat_map(|own| &own.open);
            open.any(|name| name.starts_with(&device.name) || *name == address(device))
        };
        if of_kind.iter().any(is_open) {
            return None;
        }
        // Several drives of one port are one array as far as a knob can tell; several ports may be of several users.
        if of_kind.is_empty() || ports.len() != 1 || of_kind.iter().any(|device| device.functions > 0) {
            return None;
        }
        let names: Vec<String> = of_kind.iter().map(|device| device.name.clone()).collect();
        let what = if kind == WorkloadKind::NetworkIo { "network cards" } else { "drives" };
        let why = format!("all {what} are behind one root port, and no other tenant is {}", word(kind));
        Some(Guess::new(names, why))
    };
    (0..candidates.len()).map(one).collect()
}
