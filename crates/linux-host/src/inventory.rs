//! Turns facts into the seam's types: the inventory, and tenants as groups. Must not open files.

use super::error::OpenError;
use super::facts::Facts;
use super::io_knobs::IoKnobs;
use waykeeper_host::{Device, Dial, Inventory, Knob, LlcGeometry, Platform, RootPort, Workload};
use waykeeper_kernel::resctrl::CacheInfo;
use waykeeper_tenants::Tenant;
use waykeeper_units::{CoreId, CoreList, DeviceId, PortId, WayMask, WorkloadId};

/// Root ports: id, address, and whether the managed package has it. The seam's port ids have 8 bits.
pub(super) fn ports(facts: &Facts) -> Vec<(PortId, waykeeper_kernel::pci::PciAddress, bool)> {
    let numbered = (0..=u8::MAX).zip(&facts.ports);
    numbered.map(|(index, port)| (PortId(index), port.address, port.is_local)).collect()
}

/// The inventory. `classes` is the number of classes for masks, including the default group's.
pub(super) fn inventory(facts: &Facts, l3: Option<&CacheInfo>, classes: u32, knobs: &IoKnobs) -> Inventory {
    let within = |mask: &WayMask| l3.is_some_and(|l3| mask.minus(l3.cbm_mask).is_empty());
    let register = facts.generation.and_then(|table| table.dca.ways.register.as_ref());
    // The register's value is used first, then the table's default, but not CPUID's shareable bits (hardware.md 1.3).
    let dca = knobs.read(&mut Vec::new()).dca_ways();
    let dca = dca.or_else(|| register.and_then(|register| register.default)).filter(within);
    let device = |(index, device): (u8, &super::facts::DeviceFact)| Device {
        id: DeviceId(index),
        name: device.name.clone(),
        kind: device.kind,
        ports: vec![PortId(device.port as u8)],
    };
    let port = |(index, port): (u8, &super::facts::PortFact)| RootPort {
        id: PortId(index),
        address: port.address.to_string(),
        // Unknown socket: 255, which no real socket has, so no comparison matches it.
        socket: port.socket.map_or(u8::MAX, |socket| socket as u8),
        dca_switch: knobs.support(Knob::Dca(PortId(index))),
        rx_ring: Dial::absent("Waykeeper does not set RX rings on a real host"),
        rx_burst: Dial::absent("the burst size is set inside the polling program"),
    };
    Inventory {
        platform: Platform { chip: facts.chip.clone(), host: facts.host.clone() },
        cores: facts.cpus.cores().to_vec(),
        llc: llc(facts, l3, classes),
        dca_ways_default: dca,
        dca_ways_switch: knobs.support(Knob::DcaWays),
        devices: (0..=u8::MAX).zip(&facts.devices).map(device).collect(),
        ports: (0..=u8::MAX).zip(&facts.ports).map(port).collect(),
    }
}

/// The managed L3 as the seam has it, with this number of classes for masks; `None` where its ways are not known.
fn llc(facts: &Facts, l3: Option<&CacheInfo>, classes: u32) -> Option<LlcGeometry> {
    let (l3, shown) = l3.zip(facts.l3.as_ref())?;
    let ways = l3.cbm_mask;
    let inclusive = facts.generation.and_then(|table| table.resctrl.inclusive_ways);
    Some(LlcGeometry {
        ways: ways.count(),
        min_ways: l3.min_cbm_bits.max(1),
        bytes: shown.bytes,
        clos_count: classes,
        sparse_masks: l3.sparse_masks == Some(true),
        inclusive_ways: inclusive.filter(|mask| mask.minus(ways).is_empty()),
    })
}

/// Turns a tenant into the seam's group.
///
/// # Errors
/// If cores are not on the managed L3, or if a device or the mask does not exist here.
pub(super) fn group(
    facts: &Facts,
    l3: Option<&CacheInfo>,
    id: WorkloadId,
    tenant: &Tenant,
) -> Result<Workload, OpenError> {
    let name = || tenant.name.clone();
    let managed = &facts.cpus;
    let stray = tenant.cores.cores().iter().filter(|core| !managed.cores().contains(core));
    let stray: Vec<CoreId> = stray.copied().collect();
    if !stray.is_empty() {
        let cores = CoreList::from(stray);
        return Err(OpenError::Elsewhere { tenant: name(), cores, managed: managed.clone() });
    }
    let mut devices = Vec::new();
    for address in &tenant.devices {
        let index = facts.devices.iter().position(|device| device.address == *address);
        let index = index.and_then(|index| u8::try_from(index).ok()).ok_or_else(|| {
            let known: Vec<String> = facts.devices.iter().map(|device| device.address.to_string()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let why =
                facts.without_root_port.iter().find(|(without_root_port, _)| without_root_port == address);
            let why = why.map_or_else(String::new, |(_, why)| format!(" ({why})"));
            OpenError::NoDevice { tenant: name(), device: address.to_string(), why, known }
        })?;
        devices.push(DeviceId(index));
    }
    let parse = |text: &String| {
        let mask = match llc(facts, l3, 1) {
            Some(llc) => WayMask::parse(text, llc.ways).and_then(|mask| llc.check(mask)),
            None => WayMask::parse(text, WayMask::MOST),
        };
        mask.map_err(|why| why.to_string())
    };
    let mask = tenant.mask.as_ref().map(parse).transpose();
    Ok(Workload {
        id,
        name: name(),
        priority: tenant.priority,
        kind: tenant.kind,
        cores: tenant.cores.clone(),
        devices,
        stack: tenant.stack,
        mask: mask.map_err(|why| OpenError::Mask { tenant: name(), why })?,
    })
}
