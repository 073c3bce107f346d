//! What one decision costs, without reading counters or turning knobs: a server of today and a large one.
//!
//! The papers' daemons take up to 800 us an interval for everything (IAT s6.D); counters are the larger part of that.

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use toml::Table;
use waykeeper_host::{
    Device, DeviceKind, Dial, Group, GroupRates, Interval, Inventory, KnobValues, LlcGeometry, Platform,
    PortRates, Priority, Reading, RootPort, SocketRates, Support, WorkloadKind,
};
use waykeeper_units::{CoreId, CoreList, DeviceId, GroupId, PortId, WayMask};

/// A server with so many cores and tenants on them; every fourth tenant polls a NIC, every fourth uses an array.
fn server(cores: u16, tenants: u16) -> (Inventory, Vec<Group>) {
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
        platform: Platform { chip: "bench".to_owned(), host: "bench".to_owned() },
        cores: (0..cores).map(CoreId).collect(),
        llc: LlcGeometry {
            ways: 11,
            min_ways: 1,
            bytes: 25_952_256,
            clos_count: 16,
            inclusive_ways: Some(WayMask::from_bits(3)),
        },
        dca_ways_default: Some(WayMask::from_bits(0x600)),
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
        Group {
            id: GroupId(id),
            name: format!("t{id}"),
            priority: if id.is_multiple_of(3) { Priority::High } else { Priority::Low },
            kind,
            cores: CoreList::from((id as u16 * each..(id as u16 + 1) * each).map(CoreId).collect::<Vec<_>>()),
            devices,
            stack: false,
            mask: None,
        }
    };
    (inventory, (0..u32::from(tenants)).map(group).collect())
}

/// What is seen in interval `n`: nothing stands still, so that no policy can rest.
fn interval(n: u64, groups: &[Group]) -> Interval {
    let wave = 1.0 + 0.3 * ((n * 2_654_435_761 % 1000) as f64 / 1000.0);
    let value = |number: f64| Reading::Value(number * wave);
    let rates = |group: &Group| {
        let rates = GroupRates {
            instructions: value(2e9),
            cycles: value(2e9),
            mlc_hits: value(1e8),
            mlc_misses: value(5e7),
            llc_hits: value(3e7),
            llc_misses: value(2e7),
            occupancy_bytes: Reading::Value(1 << 20),
        };
        (group.id, rates)
    };
    let ports =
        [3e9, 9e9].map(|bytes| PortRates { inbound_bytes: value(bytes), outbound_bytes: value(bytes) });
    Interval {
        from_ns: n * 1_000_000_000,
        to_ns: (n + 1) * 1_000_000_000,
        groups: groups.iter().map(rates).collect(),
        socket: SocketRates {
            dca_write_hits: value(1e8),
            dca_write_misses: value(8e7),
            dca_read_hits: value(1e8),
            dca_read_misses: value(1e7),
            memory_read_bytes: value(2e10),
            memory_write_bytes: value(1e10),
        },
        ports: (0..).map(PortId).zip(ports).collect(),
        knobs: KnobValues::default(),
    }
}

fn decisions(criterion: &mut Criterion) {
    for (cores, tenants) in [(18, 11), (512, 256)] {
        let (inventory, groups) = server(cores, tenants);
        let seen: Vec<Interval> = (0..64).map(|n| interval(n, &groups)).collect();
        let mut bench = criterion.benchmark_group(format!("{cores} cores, {tenants} tenants"));
        for name in ["isolate", "iat", "a4", "waykeeper"] {
            bench.bench_function(name, |bencher| {
                bencher.iter_batched_ref(
                    || {
                        let mut policy =
                            waykeeper_policy::build(name, &Table::new()).expect("it is registered");
                        policy.start(&inventory, &groups);
                        policy
                    },
                    |policy| {
                        for seen in &seen {
                            black_box(policy.step(&groups, seen));
                        }
                    },
                    BatchSize::LargeInput,
                );
            });
        }
        bench.finish();
    }
}

criterion_group! {
    name = benches;
    // 64 decisions an iteration: criterion's figure divided by 64 is one.
    config = Criterion::default().sample_size(20).measurement_time(std::time::Duration::from_secs(2));
    targets = decisions
}
criterion_main!(benches);
