//! The inventory of the virtual server: cache geometry, devices, available knobs.
//!
//! Knows scenarios and chips as data; must not know the running machine.

use crate::nic::MAX_BURST;
use crate::scenario::Scenario;
use waykeeper_host::{Device, DeviceKind, Dial, Inventory, LlcGeometry, Platform, RootPort, Support};
use waykeeper_silicon::DcaRegisters;
use waykeeper_units::{CoreId, DeviceId, PortId};

/// Minimum descriptors of an RX ring. Assumption: the burst of l2fwd.
pub(crate) const RING_LOW: u32 = 32;

pub(crate) fn inventory(scenario: &Scenario) -> Inventory {
    let chip = &scenario.chip;
    let mut devices = Vec::new();
    let mut ports = Vec::new();
    let mut add = |name: &str, kind, address: &str, remote: bool, rx_ring: Dial, rx_burst: Dial| {
        let index = devices.len() as u8;
        devices.push(Device { id: DeviceId(index), name: name.to_owned(), kind, ports: vec![PortId(index)] });
        ports.push(RootPort {
            id: PortId(index),
            address: address.to_owned(),
            socket: u8::from(remote),
            dca_switch: dca_switch(chip.dca, remote),
            rx_ring,
            rx_burst,
        });
    };
    for nic in &scenario.nics {
        let dial = |low, high| Dial { switch: Support::Yes, low, high };
        // Buffers exist for the scenario's ring size, the maximum. Our programs make their burst adjustable.
        let (ring, burst) = (dial(RING_LOW, nic.ring), dial(1, MAX_BURST));
        add(&nic.name, DeviceKind::Network, &nic.port, nic.remote, ring, burst);
    }
    for array in &scenario.storage {
        let absent = || Dial::absent("no NIC is behind this port");
        add(&array.name, DeviceKind::Storage, &array.port, array.remote, absent(), absent());
    }
    Inventory {
        platform: Platform { chip: chip.name.clone(), host: "virtual server".to_owned() },
        cores: (0..chip.cores as u16).map(CoreId).collect(),
        llc: Some(LlcGeometry {
            ways: chip.llc.ways,
            min_ways: chip.llc.min_ways,
            bytes: chip.llc_bytes(),
            clos_count: chip.llc.clos,
            sparse_masks: chip.llc.sparse_masks,
            inclusive_ways: chip.llc.inclusive_ways,
        }),
        dca_ways_default: chip.llc.dca_ways,
        dca_ways_switch: match chip.dca {
            None => no_dca(),
            Some(DcaRegisters { acts: false, .. }) => Support::ReadOnly,
            Some(_) => Support::Yes,
        },
        devices,
        ports,
    }
}

fn no_dca() -> Support {
    Support::No("this chip has no DCA".to_owned())
}

fn dca_switch(registers: Option<DcaRegisters>, remote: bool) -> Support {
    match registers {
        None => no_dca(),
        Some(_) if remote => Support::No("the device is on another socket".to_owned()),
        Some(DcaRegisters { port_switch: false, .. }) => {
            Support::No("root ports of this chip have no switch for DCA".to_owned())
        }
        Some(_) => Support::Yes,
    }
}
