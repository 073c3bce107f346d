//! The cost of an interval for the attribution: 11 tenants on 18 cores with a NIC and SSDs, and 256 tenants on 512 cores.
//! With equal knobs, and with a mask that moves in each interval, which is played twice.

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use waykeeper_attribution::Attributor;
use waykeeper_host::{
    Device, DeviceKind, Dial, Interval, Inventory, Knob, KnobValues, LlcGeometry, Platform, PortCounter,
    PortRates, Priority, Reading, RootPort, SocketCounter, SocketRates, Support, Workload, WorkloadCounter,
    WorkloadKind, WorkloadRates,
};
use waykeeper_units::{CoreId, DeviceId, PortId, WayMask, WorkloadId};

const DEVICES: [DeviceKind; 2] = [DeviceKind::Network, DeviceKind::Storage];

fn inventory(cores: u16) -> Inventory {
    let port = |index: u8| RootPort {
        id: PortId(index),
        address: format!("0000:{index:02x}:00.0"),
        socket: 0,
        dca_switch: Support::Yes,
        rx_ring: Dial::absent("a bench"),
        rx_burst: Dial::absent("a bench"),
    };
    let device = |(index, kind): (u8, DeviceKind)| Device {
        id: DeviceId(index),
        name: format!("device{index}"),
        kind,
        ports: vec![PortId(index)],
    };
    Inventory {
        platform: Platform { chip: "gold-6140".to_owned(), host: "a bench".to_owned() },
        cores: (0..cores).map(CoreId).collect(),
        llc: Some(LlcGeometry {
            ways: 11,
            min_ways: 1,
            bytes: u64::from(cores) * 2048 * 11 * 64,
            clos_count: 16,
            sparse_masks: false,
            inclusive_ways: Some(WayMask::from_bits(0x003)),
        }),
        dca_ways_default: Some(WayMask::from_bits(0x600)),
        dca_ways_switch: Support::Yes,
        devices: (0..).zip(DEVICES).map(device).collect(),
        ports: (0..2).map(port).collect(),
    }
}

fn workloads(tenants: u32, cores: u32) -> Vec<Workload> {
    let workload = |id: u32| Workload {
        id: WorkloadId(id),
        name: format!("program{id}"),
        priority: Priority::High,
        kind: WorkloadKind::NonIo,
        cores: format!("{}-{}", id * (cores / tenants), (id + 1) * (cores / tenants) - 1)
            .parse()
            .expect("cores"),
        devices: (0..2).filter(|device| *device == id).map(|device| DeviceId(device as u8)).collect(),
        stack: false,
        mask: None,
    };
    (0..tenants).map(workload).collect()
}

fn interval(tenants: u32, step: u32) -> Interval {
    let value = |millions: f64| Reading::Value(millions * 1e6);
    let groups = (0..tenants).map(|id| {
        let rates = WorkloadRates::of([
            (WorkloadCounter::LlcHits, value(20.0 + f64::from(id))),
            (WorkloadCounter::LlcMisses, value(10.0 + f64::from(id))),
            (WorkloadCounter::OccupancyBytes, value(24.0 / f64::from(tenants))),
        ]);
        (WorkloadId(id), rates)
    });
    let masks = (0..tenants).map(|id| (WorkloadId(id), WayMask::span((id + step) % 8, 3)));
    let written = [(PortCounter::InboundBytes, value(6400.0)), (PortCounter::OutboundBytes, value(3200.0))];
    Interval {
        from_ns: 0,
        to_ns: 1_000_000_000,
        groups: groups.collect(),
        socket: SocketRates::of([
            (SocketCounter::DcaWriteHits, value(120.0)),
            (SocketCounter::DcaWriteMisses, value(80.0)),
            (SocketCounter::DcaReadHits, value(60.0)),
        ]),
        ports: (0..2).map(|port| (PortId(port), PortRates::of(written))).collect(),
        knobs: KnobValues::of_masks(masks).with(Knob::DcaWays, WayMask::from_bits(0x600)),
    }
}

fn observe(criterion: &mut Criterion) {
    for (tenants, cores) in [(11, 18), (256, 512)] {
        for moves in [false, true] {
            let inventory = inventory(cores);
            let workloads = workloads(tenants, u32::from(cores));
            let mut attributor = Attributor::new(&inventory);
            let mut step = 0;
            let name = format!("{tenants} tenants, {} masks", if moves { "moved" } else { "equal" });
            criterion.bench_function(&name, |bencher| {
                bencher.iter(|| {
                    step += u32::from(moves);
                    black_box(attributor.observe(&workloads, &interval(tenants, step)))
                });
            });
        }
    }
}

criterion_group!(benches, observe);
criterion_main!(benches);
