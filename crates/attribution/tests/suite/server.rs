//! Intervals of a small server, made by hand. Must not know what is expected of them.

use waykeeper_attribution::{Attribution, Attributor};
use waykeeper_host::{
    Device, DeviceKind, Dial, Interval, Inventory, Knob, KnobValues, LlcGeometry, Platform, PortCounter,
    PortRates, Priority, Reading, RootPort, SocketCounter, SocketRates, Support, Workload, WorkloadCounter,
    WorkloadKind, WorkloadRates,
};
use waykeeper_units::{CoreId, DeviceId, PortId, WayMask, WorkloadId};

/// A tenant of a server made by hand; rates in millions per second.
#[derive(Clone, Debug)]
pub struct Tenant {
    pub name: &'static str,
    pub mask: u32,
    pub hits: f64,
    pub misses: f64,
    pub held_mib: f64,
    pub device: Option<u8>,
}

/// A NIC of a server made by hand; millions of lines per second.
#[derive(Clone, Copy, Debug)]
pub struct Nic {
    pub writes: f64,
    pub dca: bool,
}

/// A server with 11 ways, bits 1-0 inclusive, DCA ways 0x600.
#[derive(Clone, Debug)]
pub struct Server {
    pub tenants: Vec<Tenant>,
    pub nics: Vec<Nic>,
    /// The part of the device writes that miss.
    pub write_misses: f64,
}

impl Server {
    pub fn inventory(&self) -> Inventory {
        let count = self.nics.len() as u8;
        let port = |index| RootPort {
            id: PortId(index),
            address: format!("0000:{index:02x}:00.0"),
            socket: 0,
            dca_switch: Support::Yes,
            rx_ring: Dial::absent("made by hand"),
            rx_burst: Dial::absent("made by hand"),
        };
        let device = |index| Device {
            id: DeviceId(index),
            name: format!("nic{index}"),
            kind: DeviceKind::Network,
            ports: vec![PortId(index)],
        };
        Inventory {
            platform: Platform { chip: "gold-6140".to_owned(), host: "made by hand".to_owned() },
            cores: (0..self.tenants.len() as u16).map(CoreId).collect(),
            llc: Some(LlcGeometry {
                ways: 11,
                min_ways: 1,
                bytes: 18 * 2048 * 11 * 64,
                clos_count: 16,
                sparse_masks: false,
                inclusive_ways: Some(WayMask::from_bits(0x003)),
            }),
            dca_ways_default: Some(WayMask::from_bits(0x600)),
            dca_ways_switch: Support::Yes,
            devices: (0..count).map(device).collect(),
            ports: (0..count).map(port).collect(),
        }
    }

    pub fn workloads(&self) -> Vec<Workload> {
        let workload = |(index, tenant): (usize, &Tenant)| Workload {
            id: WorkloadId(index as u32),
            name: tenant.name.to_owned(),
            priority: Priority::High,
            kind: if tenant.device.is_some() { WorkloadKind::NetworkIo } else { WorkloadKind::NonIo },
            cores: index.to_string().parse().expect("a core"),
            devices: tenant.device.into_iter().map(DeviceId).collect(),
            stack: false,
            mask: None,
        };
        self.tenants.iter().enumerate().map(workload).collect()
    }

    pub fn interval(&self) -> Interval {
        let value = |millions: f64| Reading::Value(millions * 1e6);
        let groups = self.tenants.iter().enumerate().map(|(index, tenant)| {
            let rates = WorkloadRates::of([
                (WorkloadCounter::LlcHits, value(tenant.hits)),
                (WorkloadCounter::LlcMisses, value(tenant.misses)),
                (WorkloadCounter::MlcMisses, value(tenant.hits + tenant.misses)),
                (WorkloadCounter::OccupancyBytes, Reading::Value(tenant.held_mib * 1_048_576.0)),
            ]);
            (WorkloadId(index as u32), rates)
        });
        let ports = self.nics.iter().enumerate().map(|(index, nic)| {
            let rates = PortRates::of([
                (PortCounter::InboundBytes, value(nic.writes * 64.0)),
                (PortCounter::OutboundBytes, value(0.0)),
            ]);
            (PortId(index as u8), rates)
        });
        let writes: f64 = self.nics.iter().filter(|nic| nic.dca).map(|nic| nic.writes).sum();
        let masks = self.tenants.iter().enumerate();
        let masks = masks.map(|(index, tenant)| (WorkloadId(index as u32), WayMask::from_bits(tenant.mask)));
        let mut knobs = KnobValues::of_masks(masks).with(Knob::DcaWays, WayMask::from_bits(0x600));
        for (index, nic) in self.nics.iter().enumerate() {
            knobs.insert(Knob::Dca(PortId(index as u8)), nic.dca);
        }
        Interval {
            from_ns: 0,
            to_ns: 1_000_000_000,
            groups: groups.collect(),
            socket: SocketRates::of([
                (SocketCounter::DcaWriteHits, value(writes * (1.0 - self.write_misses))),
                (SocketCounter::DcaWriteMisses, value(writes * self.write_misses)),
                (SocketCounter::DcaReadHits, value(0.0)),
            ]),
            ports: ports.collect(),
            knobs,
        }
    }

    /// What is said of the last of so many equal intervals.
    pub fn said(&self, intervals: usize) -> Attribution {
        let (workloads, seen) = (self.workloads(), self.interval());
        let mut attributor = Attributor::new(&self.inventory());
        (0..intervals).map(|_| attributor.observe(&workloads, &seen)).last().expect("an interval")
    }
}

/// A tenant without devices.
pub fn tenant(name: &'static str, mask: u32, hits: f64, misses: f64, held_mib: f64) -> Tenant {
    Tenant { name, mask, hits, misses, held_mib, device: None }
}
