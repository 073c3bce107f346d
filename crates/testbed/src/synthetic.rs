//! An in-process host that is cheap to sample: any number of cores and tenants, with varying counters.
//!
//! No chip of the model has more than 64 cores, and simulating one would take longer than the code that benches
//! measure. Must not know what samples it.

use std::collections::BTreeMap;
use waykeeper_host::{
    Applied, Device, DeviceKind, Dial, Host, HostError, Inventory, Knob, KnobOutcome, KnobValues, Lines,
    LlcGeometry, Plan, Platform, PortCounter, PortCounters, Priority, Reading, RootPort, Snapshot,
    SocketCounter, SocketCounters, Support, Workload, WorkloadCounter, WorkloadCounters, WorkloadKind,
};
use waykeeper_units::{CoreId, CoreList, DeviceId, PortId, WayMask, WorkloadId};

const WAYS: u32 = 16;

/// The host.
pub struct SyntheticHost {
    inventory: Inventory,
    groups: Vec<Workload>,
    knobs: KnobValues,
    now_ns: u64,
    looks: u64,
    /// The value from which all counters are computed.
    counted: u64,
}

impl SyntheticHost {
    /// The cores are divided evenly. Every fourth tenant polls a NIC, every fourth uses an array, every third has
    /// high priority.
    pub fn new(cores: u16, tenants: u16) -> SyntheticHost {
        let device = |id, name: &str, kind| Device {
            id: DeviceId(id),
            name: name.to_owned(),
            kind,
            ports: vec![PortId(id)],
        };
        let port = |id| RootPort {
            id: PortId(id),
            address: format!("0000:{id:02x}:00.0"),
            socket: 0,
            dca_switch: Support::Yes,
            rx_ring: Dial::absent("not here"),
            rx_burst: Dial::absent("not here"),
        };
        let inventory = Inventory {
            platform: Platform { chip: "waves".to_owned(), host: "waves".to_owned() },
            cores: (0..cores).map(CoreId).collect(),
            llc: Some(LlcGeometry::plain(WAYS, 516_096 << 10, 16)),
            dca_ways_default: Some(WayMask::from_bits(0xc000)),
            dca_ways_switch: Support::Yes,
            devices: vec![device(0, "nic0", DeviceKind::Network), device(1, "raid0", DeviceKind::Storage)],
            ports: vec![port(0), port(1)],
        };
        let each = cores / tenants;
        let group = |id: u32| {
            let (kind, devices) = match id % 4 {
                0 => (WorkloadKind::NetworkIo, vec![DeviceId(0)]),
                1 => (WorkloadKind::StorageIo, vec![DeviceId(1)]),
                _ => (WorkloadKind::NonIo, Vec::new()),
            };
            Workload {
                id: WorkloadId(id),
                name: format!("t{id}"),
                priority: if id.is_multiple_of(3) { Priority::High } else { Priority::Low },
                kind,
                cores: CoreList::from(
                    (id as u16 * each..(id as u16 + 1) * each).map(CoreId).collect::<Vec<_>>(),
                ),
                devices,
                stack: false,
                mask: None,
            }
        };
        let groups: Vec<Workload> = (0..u32::from(tenants)).map(group).collect();
        let knobs = KnobValues::of_masks(groups.iter().map(|group| (group.id, WayMask::full(WAYS))))
            .with(Knob::DcaWays, WayMask::from_bits(0xc000))
            .with(Knob::Dca(PortId(0)), true)
            .with(Knob::Dca(PortId(1)), true);
        SyntheticHost { inventory, groups, knobs, now_ns: 0, looks: 0, counted: 0 }
    }
}

impl Host for SyntheticHost {
    fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    fn workloads(&self) -> Vec<Workload> {
        self.groups.clone()
    }

    fn sample(&mut self) -> Result<Snapshot, HostError> {
        self.looks += 1;
        // Between 1.0 and 1.3 million per sample, so that no policy settles.
        self.counted += 1_000_000 + self.looks * 2_654_435_761 % 300_000;
        let count = |factor: u64| Reading::Value(self.counted * factor);
        let group = |group: &Workload| {
            let own = 1 + u64::from(group.id.0) % 5;
            let counters = WorkloadCounters::of([
                (WorkloadCounter::Instructions, count(2000)),
                (WorkloadCounter::Cycles, count(1000 * own)),
                (WorkloadCounter::MlcHits, count(100)),
                (WorkloadCounter::MlcMisses, count(20 * own)),
                (WorkloadCounter::LlcHits, count(30)),
                (WorkloadCounter::LlcMisses, count(10 * own)),
                (WorkloadCounter::OccupancyBytes, Reading::Value(1 << 20)),
            ]);
            (group.id, counters)
        };
        let port = |id| {
            (
                PortId(id),
                PortCounters::of([
                    (PortCounter::InboundBytes, count(64)),
                    (PortCounter::OutboundBytes, count(64)),
                ]),
            )
        };
        Ok(Snapshot {
            at_ns: self.now_ns,
            counters_read: None,
            groups: self.groups.iter().map(group).collect(),
            socket: SocketCounters::of([
                (SocketCounter::DcaWriteHits, count(100)),
                (SocketCounter::DcaWriteMisses, count(80)),
                (SocketCounter::DcaReadHits, count(100)),
                (SocketCounter::DcaReadMisses, count(10)),
                (SocketCounter::MemoryReadBytes, count(6400)),
                (SocketCounter::MemoryWriteBytes, count(3200)),
            ]),
            ports: BTreeMap::from([port(0), port(1)]),
            knobs: self.knobs.clone(),
        })
    }

    fn partial_writes(&mut self) -> Lines {
        Lines::UNSUPPORTED
    }

    fn root_mask(&mut self) -> WayMask {
        WayMask::full(WAYS)
    }

    fn apply(&mut self, plan: &Plan) -> Result<Applied, HostError> {
        self.knobs.extend(plan.clone());
        Ok(plan.knobs().map(|knob| (knob, KnobOutcome::Applied)).collect())
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn wait_until(&mut self, deadline_ns: u64) -> Result<(), HostError> {
        self.now_ns = self.now_ns.max(deadline_ns);
        Ok(())
    }
}
