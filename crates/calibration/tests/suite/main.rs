//! The calibrator, fed with intervals by hand.

use waykeeper_calibration::{Calibrator, ServerDescription};
use waykeeper_host::{
    Device, DeviceKind, Dial, Interval, Inventory, KnobValues, LlcGeometry, Plan, Platform, PortCounter,
    PortRates, Priority, Reading, RootPort, SocketCounter, SocketRates, Support, Workload, WorkloadCounter,
    WorkloadKind, WorkloadRates,
};
use waykeeper_units::{CoreId, DeviceId, PortId, WayMask, WorkloadId};

const LLC_LINES: f64 = 405_504.0;

fn inventory() -> Inventory {
    let absent = || Dial::absent("no such knob");
    Inventory {
        platform: Platform { chip: "gold-6140".to_owned(), host: "by hand".to_owned() },
        cores: (0..18).map(CoreId).collect(),
        llc: Some(LlcGeometry::plain(11, LLC_LINES as u64 * 64, 16)),
        dca_ways_default: Some(WayMask::from_bits(0x600)),
        dca_ways_switch: Support::Yes,
        devices: vec![Device {
            id: DeviceId(0),
            name: "nic0".to_owned(),
            kind: DeviceKind::Network,
            ports: vec![PortId(0)],
        }],
        ports: vec![RootPort {
            id: PortId(0),
            address: "0000:3a:00.0".to_owned(),
            socket: 0,
            dca_switch: Support::Yes,
            rx_ring: absent(),
            rx_burst: absent(),
        }],
    }
}

fn groups() -> Vec<Workload> {
    [("server", WorkloadKind::NetworkIo), ("program", WorkloadKind::NonIo)]
        .into_iter()
        .zip(0u32..)
        .map(|((name, kind), id)| Workload {
            id: WorkloadId(id),
            name: name.to_owned(),
            priority: Priority::High,
            kind,
            cores: id.to_string().parse().expect("a core"),
            devices: if kind == WorkloadKind::NetworkIo { vec![DeviceId(0)] } else { Vec::new() },
            stack: false,
            mask: None,
        })
        .collect()
}

/// What the program does in an interval.
#[derive(Clone, Copy)]
struct Program {
    instructions: f64,
    references: f64,
    hits: f64,
    held_lines: Option<f64>,
}

/// 20 million references at 30 % of hits; 1 billion instructions in 2.3 billion cycles.
const PROGRAM: Program =
    Program { instructions: 1e9, references: 20e6, hits: 0.3, held_lines: Some(60_000.0) };

fn rates(program: Program) -> WorkloadRates {
    let held = program.held_lines.map_or(Reading::Unsupported, |lines| Reading::Value(lines * 64.0));
    WorkloadRates::of([
        (WorkloadCounter::Instructions, Reading::Value(program.instructions)),
        (WorkloadCounter::Cycles, Reading::Value(2.3e9)),
        (WorkloadCounter::LlcHits, Reading::Value(program.references * program.hits)),
        (WorkloadCounter::LlcMisses, Reading::Value(program.references * (1.0 - program.hits))),
        (WorkloadCounter::OccupancyBytes, held),
    ])
}

fn interval(second: u64, ways: u32, inbound_lines: f64, program: Program) -> Interval {
    let server =
        Program { instructions: 2e9, references: inbound_lines, hits: 0.9, held_lines: Some(10_000.0) };
    let knobs: KnobValues = Plan::of_masks((0..2).map(|id| (WorkloadId(id), WayMask::full(ways))))
        .with(waykeeper_host::Knob::DcaWays, WayMask::from_bits(0x600));
    Interval {
        from_ns: second * 1_000_000_000,
        to_ns: (second + 1) * 1_000_000_000,
        groups: [(WorkloadId(0), rates(server)), (WorkloadId(1), rates(program))].into(),
        socket: SocketRates::of([
            (SocketCounter::DcaWriteHits, Reading::Value(80e6)),
            (SocketCounter::DcaWriteMisses, Reading::Value(20e6)),
        ]),
        ports: [(
            PortId(0),
            PortRates::of([
                (PortCounter::InboundBytes, Reading::Value(inbound_lines * 64.0)),
                (PortCounter::OutboundBytes, Reading::Value(0.0)),
            ]),
        )]
        .into(),
        knobs,
    }
}

/// A calibrator that has seen so many such intervals.
fn after(intervals: u64, ways: u32) -> Calibrator {
    let mut calibrator = Calibrator::new(&inventory());
    for second in 0..intervals {
        calibrator.observe(&groups(), &interval(second, ways, 100e6, PROGRAM));
    }
    calibrator
}

fn described(calibrator: &Calibrator) -> ServerDescription {
    calibrator.describe().expect("enough was seen")
}

#[test]
fn a_server_is_described_after_three_intervals_of_a_layout() {
    // The first interval of a layout does not count, then two are needed.
    assert_eq!(after(2, 11).describe(), None);
    let server = described(&after(3, 11));
    let program = server.tenant(WorkloadId(1)).expect("it was there");
    assert!((program.references.value - 20e6).abs() < 1.0 && (program.hits.value - 0.3).abs() < 1e-9);
    assert_eq!(program.held_lines, Some(60_000.0));
    let device = &server.devices[0];
    assert_eq!((device.tenants.as_slice(), device.ports[0].inbound_lines), (&[WorkloadId(0)][..], 100e6));
    // 20 of 100 million writes missed.
    assert!((device.write_misses.value - 0.2).abs() < 1e-9);
    // All cycles are explained: 2.3 = base + (0.3 hit + 0.7 miss) * 0.02.
    let cycles =
        program.base_cycles.value + 0.02 * (0.3 * program.hit_cycles.value + 0.7 * program.miss_cycles.value);
    assert!((cycles - 2.3).abs() < 0.01, "{cycles}");
}

#[test]
fn a_second_layout_makes_the_description_surer() {
    let mut calibrator = after(4, 11);
    let before = described(&calibrator);
    // Half of the lines, half of the hits: 0.15 * 0.02 misses more per instruction, at 60 cycles beyond a hit: 0.18 cycles.
    let program = Program {
        instructions: 2.3e9 / 2.48,
        references: 20e6 * 2.3 / 2.48,
        hits: 0.15,
        held_lines: Some(30_000.0),
    };
    for second in 4..9 {
        calibrator.observe(&groups(), &interval(second, 5, 100e6, program));
    }
    let server = described(&calibrator);
    let [first, second] = [&before, &server].map(|server| server.tenant(WorkloadId(1)).expect("it is there"));
    assert_eq!((before.observed.len(), server.observed.len()), (1, 2));
    let knobs = server.knobs.clone();
    assert_eq!(
        server.observed.last().map(|seen| seen.knobs.clone()),
        Some(knobs),
        "the one in force is the last"
    );
    assert!(second.miss_cycles.error < first.miss_cycles.error);
    let slope = second.miss_cycles.value - second.hit_cycles.value;
    assert!((slope - 60.0).abs() < 15.0, "{slope}");
}

#[test]
fn other_traffic_starts_afresh_and_one_strange_interval_does_not() {
    let mut calibrator = after(6, 11);
    calibrator.observe(&groups(), &interval(6, 11, 10e6, PROGRAM));
    assert_eq!(described(&calibrator).devices[0].ports[0].inbound_lines, 100e6, "one may be chance");
    for second in 7..10 {
        calibrator.observe(&groups(), &interval(second, 11, 100e6, PROGRAM));
    }
    assert_eq!(described(&calibrator).devices[0].ports[0].inbound_lines, 100e6);
    for second in 10..16 {
        calibrator.observe(&groups(), &interval(second, 11, 10e6, PROGRAM));
    }
    assert_eq!(described(&calibrator).devices[0].ports[0].inbound_lines, 10e6);
}

#[test]
fn another_program_starts_afresh() {
    let mut calibrator = after(6, 11);
    let mut others = groups();
    others[1].id = WorkloadId(9);
    let mut seen = interval(6, 11, 100e6, PROGRAM);
    seen.groups.insert(WorkloadId(9), rates(PROGRAM));
    calibrator.observe(&others, &seen);
    assert_eq!(calibrator.describe(), None);
}

#[test]
fn counters_that_are_missing_are_done_without() {
    let mut calibrator = Calibrator::new(&inventory());
    let program = Program { held_lines: None, ..PROGRAM };
    for second in 0..4 {
        let mut seen = interval(second, 11, 100e6, program);
        seen.socket = SocketRates::all(Reading::Unsupported);
        seen.groups.insert(WorkloadId(0), WorkloadRates::all(Reading::Unavailable));
        calibrator.observe(&groups(), &seen);
    }
    let server = described(&calibrator);
    assert_eq!(server.tenants.len(), 1, "a tenant without counters is not described");
    assert_eq!(server.tenants[0].held_lines, None);
    assert!(!server.tenants[0].reuse.is_empty());
    assert_eq!(server.observed[0].write_misses, None);
    let text = serde_json::to_string(&server).expect("it can be written");
    assert_eq!(serde_json::from_str::<ServerDescription>(&text).expect("and read"), server);
}

#[test]
fn shares_of_a_profile_sum_to_one() {
    for tenant in &described(&after(6, 11)).tenants {
        let sum: f64 = tenant.reuse.iter().map(|set| set.share.value).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    }
}
