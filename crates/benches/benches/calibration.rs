//! The cost of an interval for the calibrator: 11 tenants on 18 cores, a new layout every six intervals. The bar is 1 ms.

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use waykeeper_calibration::Calibrator;
use waykeeper_host::{
    Interval, Inventory, LlcGeometry, Plan, Platform, Priority, Reading, SocketRates, Support, Workload,
    WorkloadCounter, WorkloadKind, WorkloadRates,
};
use waykeeper_units::{CoreId, WayMask, WorkloadId};

const TENANTS: u32 = 11;

fn inventory() -> Inventory {
    Inventory {
        platform: Platform { chip: "gold-6140".to_owned(), host: "a bench".to_owned() },
        cores: (0..18).map(CoreId).collect(),
        llc: Some(LlcGeometry::plain(11, 25_952_256, 16)),
        dca_ways_default: None,
        dca_ways_switch: Support::Yes,
        devices: Vec::new(),
        ports: Vec::new(),
    }
}

fn groups() -> Vec<Workload> {
    (0..TENANTS)
        .map(|id| Workload {
            id: WorkloadId(id),
            name: format!("program{id}"),
            priority: Priority::High,
            kind: WorkloadKind::NonIo,
            cores: id.to_string().parse().expect("a core"),
            devices: Vec::new(),
            stack: false,
            mask: None,
        })
        .collect()
}

/// Intervals whose hit ratios follow the ways, with some noise.
fn intervals() -> Vec<Interval> {
    let of = |second: u32| {
        let layout = second / 6;
        let ways = |id: u32| 1 + (id + 3 * layout) % 11;
        let rates = |id: u32| {
            let lines = f64::from(ways(id)) * 30_000.0;
            let hits = (lines / (100_000.0 + 50_000.0 * f64::from(id))).min(1.0) * 0.9;
            let hits = hits + 0.002 * f64::from(second * 7 % 5);
            let cycles = 1.0 + 0.02 * (30.0 * hits + 100.0 * (1.0 - hits));
            let instructions = 2.3e9 / cycles;
            WorkloadRates::of([
                (WorkloadCounter::Instructions, Reading::Value(instructions)),
                (WorkloadCounter::Cycles, Reading::Value(2.3e9)),
                (WorkloadCounter::LlcHits, Reading::Value(0.02 * instructions * hits)),
                (WorkloadCounter::LlcMisses, Reading::Value(0.02 * instructions * (1.0 - hits))),
                (WorkloadCounter::OccupancyBytes, Reading::Value(lines * 64.0)),
            ])
        };
        Interval {
            from_ns: u64::from(second) * 1_000_000_000,
            to_ns: u64::from(second + 1) * 1_000_000_000,
            groups: (0..TENANTS).map(|id| (WorkloadId(id), rates(id))).collect(),
            socket: SocketRates::all(Reading::Unsupported),
            ports: [].into(),
            knobs: Plan::of_masks((0..TENANTS).map(|id| (WorkloadId(id), WayMask::full(ways(id))))),
        }
    };
    (0..48).map(of).collect()
}

fn observe(criterion: &mut Criterion) {
    let (inventory, groups, intervals) = (inventory(), groups(), intervals());
    criterion.bench_function("48 intervals, 11 tenants, 8 layouts", |bencher| {
        bencher.iter(|| {
            let mut calibrator = Calibrator::new(&inventory);
            for seen in &intervals {
                calibrator.observe(&groups, black_box(seen));
            }
            calibrator
        });
    });
    let mut calibrator = Calibrator::new(&inventory);
    for seen in &intervals {
        calibrator.observe(&groups, seen);
    }
    criterion.bench_function("description", |bencher| bencher.iter(|| black_box(calibrator.describe())));
}

criterion_group! {
    name = benches;
    // Divide the first time by 48 for that of an interval.
    config = Criterion::default().sample_size(20).measurement_time(std::time::Duration::from_secs(2));
    targets = observe
}
criterion_main!(benches);
