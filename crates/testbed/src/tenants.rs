//! Makes the tenants of a scenario, as an operator would declare them: its workloads with their devices.
//!
//! Read from the mounted files, as an operator would. Must not know the model.

use waykeeper_kernel::pci::{PciAddress, PciTree};
use waykeeper_kernel::root::Root;
use waykeeper_machine::Scenario;
use waykeeper_tenants::Tenant;

/// Upper byte of a PCI class code (PCI code and ID assignment specification, 1.1).
const STORAGE: u32 = 0x01;
const NETWORK: u32 = 0x02;

/// The tenants of a scenario mounted under `root`. A workload gets the devices behind its root port; ports of each
/// kind are assigned in the order in which the scenario lists its NICs and arrays.
///
/// # Panics
/// If the tree's PCI devices cannot be read, or one of the scenario is missing.
pub fn tenants(root: &Root, scenario: &Scenario) -> Vec<Tenant> {
    let tree = PciTree::read(root).unwrap_or_else(|error| panic!("{error}"));
    let ports = |kind: u32| {
        let mut ports: Vec<PciAddress> = Vec::new();
        for device in tree.devices().filter(|device| device.class >> 16 == kind) {
            let port = tree.root_port(root, device.address).unwrap_or_else(|error| panic!("{error}"));
            if !ports.contains(&port) {
                ports.push(port);
            }
        }
        ports
    };
    let (nics, arrays) = (ports(NETWORK), ports(STORAGE));
    let behind = |ports: &[PciAddress], index: usize| -> Vec<PciAddress> {
        let port =
            ports.get(index).unwrap_or_else(|| panic!("{} ports, and none of index {index}", ports.len()));
        let devices = tree.behind(root, *port).unwrap_or_else(|error| panic!("{error}"));
        devices.into_iter().map(|device| device.address).collect()
    };
    let tenant = |workload: &waykeeper_machine::WorkloadSpec| {
        let mut devices: Vec<PciAddress> = Vec::new();
        devices.extend(workload.nic.into_iter().flat_map(|index| behind(&nics, index)));
        devices.extend(workload.storage.into_iter().flat_map(|index| behind(&arrays, index)));
        Tenant {
            name: workload.name.clone(),
            priority: workload.priority,
            kind: workload.program.kind,
            cores: workload.cores.clone(),
            pids: Vec::new(),
            devices,
            stack: workload.stack,
            mask: None,
        }
    };
    scenario.workloads.iter().map(tenant).collect()
}
