//! The cost of an answer: a server of 11 tenants, a NIC and drives, with the default budget. The bar is hundreds of layouts
//! a second on one core.

#[path = "../../twin/tests/suite/goal.rs"]
mod goal;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use goal::GOAL;
use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use waykeeper_calibration::{
    DeviceDescription, Estimate, LayoutLimits, LayoutQuestion, Observed, PortDescription, ReuseComponent,
    SeenTenant, ServerDescription, TenantDescription,
};
use waykeeper_host::{DeviceKind, KnobValues, LlcGeometry, Plan, Priority, Workload, WorkloadKind};
use waykeeper_twin::{Budget, answer};
use waykeeper_units::{DeviceId, PortId, WayMask, WorkloadId};

const WAYS: u32 = 11;

fn tenant(id: u32) -> TenantDescription {
    let exact = Estimate::exact;
    let (kind, device) = match id {
        0 => (WorkloadKind::NetworkIo, Some(DeviceId(0))),
        7 => (WorkloadKind::StorageIo, Some(DeviceId(1))),
        _ => (WorkloadKind::NonIo, None),
    };
    let cores = match id {
        0 => "0-3".to_owned(),
        7 => "10-12".to_owned(),
        id if id < 7 => (3 + id).to_string(),
        id => (5 + id).to_string(),
    };
    let references = if device.is_some() { 200e6 } else { 20e6 };
    TenantDescription {
        workload: Workload {
            id: WorkloadId(id),
            name: format!("program{id}"),
            priority: if id < 7 { Priority::High } else { Priority::Low },
            kind,
            cores: cores.parse().expect("cores"),
            devices: device.into_iter().collect(),
            stack: false,
            mask: None,
        },
        references: exact(references),
        hits: exact(0.4),
        cycles: 2.3e9,
        instructions: 1.2e9,
        base_cycles: exact(0.5),
        hit_cycles: exact(30.0),
        miss_cycles: exact(90.0),
        reuse: vec![
            ReuseComponent { share: exact(0.7), lines: Some(exact(60_000.0 * f64::from(id + 1))) },
            ReuseComponent { share: exact(0.3), lines: None },
        ],
        held_lines: Some(20_000.0),
    }
}

fn device(id: u8, kind: DeviceKind, tenant: u32, lines: f64) -> DeviceDescription {
    DeviceDescription {
        id: DeviceId(id),
        kind,
        ports: vec![PortDescription {
            id: PortId(id),
            inbound_lines: lines,
            outbound_lines: lines,
            can_switch: true,
        }],
        tenants: vec![WorkloadId(tenant)],
        buffer_lines: Estimate { value: 65_536.0, error: 30_000.0 },
        write_misses: Estimate::exact(0.4),
    }
}

fn question() -> LayoutQuestion {
    let tenants: Vec<TenantDescription> = (0..11).map(tenant).collect();
    let knobs: KnobValues = Plan::of_masks(tenants.iter().map(|t| (t.workload.id, WayMask::full(WAYS))));
    let seen = |tenant: &TenantDescription| SeenTenant {
        references: tenant.references.value,
        hits: tenant.hits,
        cycles_per_instruction: Estimate::exact(1.9),
        lines: tenant.held_lines,
    };
    let observed = Observed {
        knobs: knobs.clone(),
        tenants: tenants.iter().map(|tenant| (tenant.workload.id, seen(tenant))).collect(),
        write_misses: Some(Estimate::exact(0.4)),
        ports: [(PortId(0), 380e6), (PortId(1), 330e6)].into(),
        memory_bytes: None,
        intervals: 4.0,
    };
    LayoutQuestion {
        number: 1,
        server: ServerDescription {
            chip: "gold-6140".to_owned(),
            llc: LlcGeometry {
                ways: WAYS,
                min_ways: 1,
                bytes: 25_952_256,
                clos_count: 16,
                sparse_masks: false,
                inclusive_ways: Some(WayMask::from_bits(3)),
            },
            dca_ways: Some(WayMask::from_bits(0x600)),
            tenants,
            devices: vec![device(0, DeviceKind::Network, 0, 190e6), device(1, DeviceKind::Storage, 7, 165e6)],
            knobs,
            observed: vec![observed],
        },
        limits: LayoutLimits {
            min_ways: 1,
            most_classes: 16,
            dca_ways: [0x600, 0x700, 0x780].map(WayMask::from_bits).to_vec(),
            switches: vec![PortId(0), PortId(1)],
        },
        goal: GOAL,
        since_found: BTreeMap::new(),
        kept: BTreeSet::new(),
        asked: Vec::new(),
        most: 3,
    }
}

fn answers(criterion: &mut Criterion) {
    let question = question();
    let layouts = answer(&question, Budget::default()).simulated;
    let mut group = criterion.benchmark_group("answer");
    group.throughput(Throughput::Elements(layouts));
    group.bench_function(format!("{layouts} layouts"), |bencher| {
        bencher.iter(|| answer(black_box(&question), Budget::default()));
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10);
    targets = answers
}
criterion_main!(benches);
