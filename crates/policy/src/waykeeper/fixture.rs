//! A server of programs without I/O and one NIC, for unit tests. It must not know layouts.

use super::config::Config;
use super::layout::ChipLimits;
use super::progress::Progress;
use super::server::Server;
use std::collections::BTreeMap;
use toml::Table;
use waykeeper_host::{
    Device, DeviceKind, Dial, Interval, Inventory, KnobValues, LlcGeometry, Platform, PortCounter, PortRates,
    Priority, Reading, RootPort, SocketCounter, SocketRates, Support, Workload, WorkloadCounter,
    WorkloadKind, WorkloadRates,
};
use waykeeper_units::{CoreId, CoreList, DeviceId, PortId, WayMask, WorkloadId};

/// Default settings and a chip of 11 ways. Workload 0 is an HPW, the others are LPWs, with one core each.
pub(super) fn server(workloads: u16) -> Server {
    let group = |id: u16| Workload {
        id: WorkloadId(u32::from(id)),
        name: format!("w{id}"),
        priority: if id == 0 { Priority::High } else { Priority::Low },
        kind: WorkloadKind::NonIo,
        cores: CoreList::from(vec![CoreId(id)]),
        devices: Vec::new(),
        stack: false,
        mask: None,
    };
    let inventory = Inventory {
        platform: Platform { chip: "test".to_owned(), host: "test".to_owned() },
        cores: (0..workloads).map(CoreId).collect(),
        llc: Some(LlcGeometry::plain(11, 11 << 20, 16)),
        dca_ways_default: Some(WayMask::from_bits(0x600)),
        dca_ways_switch: Support::Yes,
        devices: vec![Device {
            id: DeviceId(0),
            name: "nic".to_owned(),
            kind: DeviceKind::Network,
            ports: vec![PortId(0)],
        }],
        ports: vec![RootPort {
            id: PortId(0),
            address: "0000:3a:00.0".to_owned(),
            socket: 0,
            dca_switch: Support::Yes,
            rx_ring: Dial::absent("not needed"),
            rx_burst: Dial::absent("not needed"),
        }],
    };
    Server {
        config: Config::read(&Table::new()).unwrap(),
        limits: ChipLimits::new(&inventory),
        inventory,
        groups: (0..workloads).map(group).collect(),
    }
}

/// An interval in which workload `n` has `ipc[n]` and the NIC writes so many bytes per second.
pub(super) fn interval(ipc: &[f64], nic_bytes: f64) -> Interval {
    let value = Reading::Value;
    let rates = |(id, ipc): (usize, &f64)| {
        let rates = WorkloadRates::of([
            (WorkloadCounter::Instructions, value(*ipc)),
            (WorkloadCounter::Cycles, value(1.0)),
            (WorkloadCounter::MlcHits, value(*ipc * 0.01)),
            (WorkloadCounter::MlcMisses, value(*ipc * 0.01)),
            (WorkloadCounter::LlcHits, value(1e6)),
            (WorkloadCounter::LlcMisses, value(1e6)),
        ]);
        (WorkloadId(id as u32), rates)
    };
    Interval {
        from_ns: 0,
        to_ns: 1_000_000_000,
        groups: ipc.iter().enumerate().map(rates).collect(),
        socket: SocketRates::of([
            (SocketCounter::DcaWriteHits, value(1e6)),
            (SocketCounter::DcaWriteMisses, value(0.0)),
            (SocketCounter::MemoryReadBytes, value(1e9)),
            (SocketCounter::MemoryWriteBytes, value(1e9)),
        ]),
        ports: BTreeMap::from([(
            PortId(0),
            PortRates::of([
                (PortCounter::InboundBytes, value(nic_bytes)),
                (PortCounter::OutboundBytes, value(0.0)),
            ]),
        )]),
        knobs: KnobValues::default(),
    }
}

/// The progress in such an interval.
pub(super) fn progress(server: &Server, ipc: &[f64]) -> Progress {
    Progress::of(&server.groups, &interval(ipc, 1e9), &server.inventory, &server.config)
}
