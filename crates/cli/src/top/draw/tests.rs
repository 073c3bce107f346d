//! Each page as text, at the sizes of usual terminals; and no panic at any size.

use super::{Scene, draw};
use crate::top::palette::{ColourScheme, Palette};
use crate::top::run::text_of;
use crate::top::state::{Chosen, Page, Question, ViewRow};
use insta::assert_snapshot;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use waykeeper_control::{Estimate, StepRecord, Worth, WorthEstimate, WorthSource};
use waykeeper_host::{
    Device, DeviceKind, Dial, Interval, Inventory, Knob, KnobValues, LlcGeometry, Platform, PortCounter,
    PortRates, Priority, Reading, RootPort, SocketCounter, SocketRates, Support, Workload, WorkloadCounter,
    WorkloadKind, WorkloadRates,
};
use waykeeper_policy::{Cause, Event};
use waykeeper_service::recorder::{FORMAT, Header, RecordedStep, VERSION};
use waykeeper_service::{DaemonMode, Worst};
use waykeeper_units::{CoreId, DeviceId, PortId, WayMask, WorkloadId};
use waykeeper_view::{Abilities, Picture, SourceEvent, SourceInfo, SourceKind, ViewModel};

fn header() -> Header {
    let port = |id: u8, address: &str| RootPort {
        id: PortId(id),
        address: address.to_owned(),
        socket: 0,
        dca_switch: Support::Yes,
        rx_ring: Dial::absent("none"),
        rx_burst: Dial::absent("none"),
    };
    let device = |id: u8, name: &str, kind| Device {
        id: DeviceId(id),
        name: name.to_owned(),
        kind,
        ports: vec![PortId(id)],
    };
    let inventory = Inventory {
        platform: Platform { chip: "gold-6140".to_owned(), host: "virtual server".to_owned() },
        cores: (0..18).map(CoreId).collect(),
        llc: Some(LlcGeometry {
            ways: 11,
            min_ways: 1,
            bytes: 25_952_256,
            clos_count: 16,
            sparse_masks: false,
            inclusive_ways: Some(WayMask::from_bits(0x3)),
        }),
        dca_ways_default: Some(WayMask::from_bits(0x600)),
        dca_ways_switch: Support::Yes,
        devices: vec![device(0, "nic0", DeviceKind::Network), device(1, "raid0", DeviceKind::Storage)],
        ports: vec![port(0, "0000:16:00.0"), port(1, "0000:5d:00.0")],
    };
    Header {
        format: FORMAT.to_owned(),
        version: VERSION,
        build: "waykeeper test".to_owned(),
        started: SystemTime::UNIX_EPOCH,
        mode: DaemonMode::Manage,
        policy: "a4".to_owned(),
        settings: Arc::default(),
        period_ns: 1_000_000_000,
        inventory: Arc::new(inventory),
    }
}

/// So many tenants: every fourth with a NIC, every fourth with storage; their rates rise and fall with the step.
fn step(number: u64, tenants: u32) -> RecordedStep<'static> {
    let names = ["fastclick", "redis-server", "x264", "ffsb-heavy", "parest", "lbm", "omnetpp", "bwaves"];
    let group = |id: u32| Workload {
        id: WorkloadId(id),
        name: names.get(id as usize).map_or_else(|| format!("tenant-{id}"), |name| (*name).to_owned()),
        priority: if id % 3 == 2 { Priority::Low } else { Priority::High },
        kind: [WorkloadKind::NetworkIo, WorkloadKind::NonIo, WorkloadKind::NonIo, WorkloadKind::StorageIo]
            [id as usize % 4],
        cores: vec![CoreId(2 * id as u16), CoreId(2 * id as u16 + 1)].into(),
        devices: match id % 4 {
            0 => vec![DeviceId(0)],
            3 => vec![DeviceId(1)],
            _ => Vec::new(),
        },
        stack: false,
        mask: None,
    };
    let wave = |id: u32| 0.5 + 0.4 * ((number as f64) * 0.3 + f64::from(id)).sin();
    let rates = |id: u32| {
        // The last tenant's counters cannot be read.
        let value = |value: f64| if id + 1 == tenants { Reading::Unavailable } else { Reading::Value(value) };
        WorkloadRates::of([
            (WorkloadCounter::Instructions, value(2e9 * wave(id))),
            (WorkloadCounter::Cycles, value(2e9)),
            (WorkloadCounter::MlcHits, value(9e7)),
            (WorkloadCounter::MlcMisses, value(1e7)),
            (WorkloadCounter::LlcHits, value(1e7 * wave(id))),
            (WorkloadCounter::LlcMisses, value(1e7 * (1.0 - wave(id)))),
            (WorkloadCounter::OccupancyBytes, value(2e6 * (1.0 + wave(id)))),
        ])
    };
    let masks = (0..tenants).map(|id| (WorkloadId(id), WayMask::span(id % 9, 2)));
    let knobs = KnobValues::of_masks(masks)
        .with(Knob::DcaWays, WayMask::from_bits(0x600))
        .with(Knob::Dca(PortId(0)), true)
        .with(Knob::Dca(PortId(1)), false);
    let port = |bytes: f64| {
        PortRates::of([
            (PortCounter::InboundBytes, Reading::Value(bytes)),
            (PortCounter::OutboundBytes, Reading::Value(bytes / 3.0)),
        ])
    };
    let seen = Interval {
        from_ns: number * 1_000_000_000,
        to_ns: (number + 1) * 1_000_000_000,
        groups: (0..tenants).map(|id| (WorkloadId(id), rates(id))).collect(),
        socket: SocketRates::of([
            (SocketCounter::DcaWriteHits, Reading::Value(6e7)),
            (SocketCounter::DcaWriteMisses, Reading::Value(4e7)),
            (SocketCounter::MemoryReadBytes, Reading::Value(2.5e10)),
            (SocketCounter::MemoryWriteBytes, Reading::Value(1.25e10)),
        ]),
        ports: [(PortId(0), port(1.1e10 * wave(0))), (PortId(1), port(5e9 * wave(1)))].into(),
        knobs: knobs.clone(),
    };
    let cause = Cause {
        what: "DCA write miss ratio".to_owned(),
        value: 0.4,
        limit: Some(("dmaleak".to_owned(), 0.2)),
    };
    let event = Event {
        action: "lp-zone-grow".to_owned(),
        group: Some("x264".to_owned()),
        text: format!("x264 takes way {}", number % 11),
        causes: vec![cause],
    };
    let progress = |value| Estimate { value, error: 0.02 };
    let worth = WorthEstimate {
        from: WorthSource::AsFound,
        age_s: 3.0,
        hpw: Some(progress(1.18)),
        lpw: Some(progress(0.93)),
        tenants: (0..tenants).map(|id| (WorkloadId(id), progress(0.8 + 0.1 * f64::from(id % 6)))).collect(),
    };
    let record = StepRecord {
        at_ns: number * 1_000_000_000,
        state: "steady".to_owned(),
        events: if number.is_multiple_of(7) { vec![event] } else { Vec::new() },
        knobs,
        worth: Worth::Known(worth),
        ..StepRecord::default()
    };
    RecordedStep {
        step: number,
        at: SystemTime::UNIX_EPOCH + Duration::from_secs(number),
        paused: None,
        groups: Some(Cow::Owned((0..tenants).map(group).collect())),
        groupings: Some(Cow::Owned(Vec::new())),
        seen: Some(Cow::Owned(seen)),
        record: Cow::Owned(record),
        worst: Some(Worst {
            no_sufferer: Some("no tenant lost more than the error".to_owned()),
            ..Worst::default()
        }),
        active_problems: Cow::Owned(Vec::new()),
    }
}

fn info() -> SourceInfo {
    SourceInfo {
        kind: SourceKind::Scenario,
        name: "a4-hpw-heavy".to_owned(),
        live: true,
        abilities: Abilities {
            policies: ["waykeeper", "default", "a4"].map(str::to_owned).to_vec(),
            pause: true,
            knobs: true,
            loads: [("nic0".to_owned(), 10.0), ("raid0".to_owned(), 1.0)].into(),
            speed: true,
            seek: false,
        },
        speed: Some(1.0),
        stopped: false,
        length_s: None,
        place_s: None,
        loads: Vec::new(),
    }
}

/// A minute of steps.
pub(in crate::top) fn minute(tenants: u32) -> (ViewModel, Picture) {
    let mut model = ViewModel::new();
    model.take(SourceEvent::Begin(Box::new(header())));
    for number in 0..60 {
        model.take(SourceEvent::Step(Box::new(step(number, tenants))));
    }
    let picture = model.picture(info()).unwrap();
    (model, picture)
}

/// A page as text, through ratatui's own terminal.
fn shown(tenants: u32, chosen: &Chosen, columns: u16, rows: u16) -> String {
    let (model, picture) = minute(tenants);
    let palette = Palette::new(ColourScheme::None);
    let scene = Scene { picture: Some(&picture), model: &model, chosen, palette };
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| drop(draw(frame.buffer_mut(), scene))).unwrap();
    text_of(terminal.backend().buffer())
}

fn at(page: Page, row: ViewRow) -> Chosen {
    Chosen { page, row: Some(row), ..Chosen::default() }
}

fn redis() -> ViewRow {
    ViewRow::Tenant("redis-server".to_owned())
}

fn nic() -> ViewRow {
    ViewRow::Device("nic0".to_owned())
}

#[test]
fn the_overview_at_three_sizes() {
    let chosen = at(Page::Overview, redis());
    assert_snapshot!("overview 80x24", shown(11, &chosen, 80, 24));
    assert_snapshot!("overview 120x40", shown(11, &chosen, 120, 40));
    assert_snapshot!("overview 200x60", shown(11, &chosen, 200, 60));
}

#[test]
fn a_tenant_and_a_device_at_three_sizes() {
    for (columns, rows) in [(80, 24), (120, 40), (200, 60)] {
        let size = format!("{columns}x{rows}");
        assert_snapshot!(format!("tenant {size}"), shown(11, &at(Page::Tenant, redis()), columns, rows));
        assert_snapshot!(format!("device {size}"), shown(11, &at(Page::Device, nic()), columns, rows));
        assert_snapshot!(format!("timeline {size}"), shown(11, &at(Page::Timeline, redis()), columns, rows));
    }
    assert_snapshot!("keys 80x24", shown(11, &at(Page::Help, redis()), 80, 24));
}

#[test]
fn questions_say_what_returns_and_when() {
    let mask = Question::Mask {
        tenant: "redis-server".to_owned(),
        mask: WayMask::from_bits(0x1c),
        before: WayMask::from_bits(0x6),
    };
    let with = |question| Chosen { question: Some(question), ..at(Page::Overview, redis()) };
    assert_snapshot!("question mask", shown(11, &with(mask), 80, 24));
    assert_snapshot!("question policy", shown(11, &with(Question::Policy { at: 2 }), 80, 24));
    let dca = Question::Dca { device: "nic0".to_owned(), on: false };
    assert!(shown(11, &with(dca), 80, 24).contains("switch DCA of nic0 off?"));
    let filter = Question::Filter { text: "re".to_owned() };
    assert!(shown(11, &with(filter), 80, 24).lines().last().unwrap().starts_with(" filter: re_"));
}

#[test]
fn no_size_and_no_number_of_tenants_is_too_much() {
    let questions = [
        None,
        Some(Question::Policy { at: 0 }),
        Some(Question::Load { device: "nic0".to_owned(), factor: 1.0, most: 10.0 }),
        Some(Question::DcaWays { mask: WayMask::from_bits(0x3), before: WayMask::from_bits(0x600) }),
    ];
    for tenants in [1, 11, 256] {
        let (model, picture) = minute(tenants);
        for (columns, rows) in [(1, 1), (59, 15), (60, 16), (80, 24), (300, 100), (500, 200)] {
            for page in [Page::Overview, Page::Tenant, Page::Device, Page::Timeline, Page::Help] {
                for question in &questions {
                    let row = ViewRow::Tenant(picture.tenants.last().unwrap().name.clone());
                    let chosen = Chosen { question: question.clone(), ..at(page, row) };
                    let palette = Palette::new(ColourScheme::ColourBlind);
                    let scene = Scene { picture: Some(&picture), model: &model, chosen: &chosen, palette };
                    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
                    terminal.draw(|frame| drop(draw(frame.buffer_mut(), scene))).unwrap();
                }
            }
        }
    }
}

#[test]
fn the_selected_row_is_always_on_the_screen() {
    let (model, picture) = minute(256);
    for index in [0, 9, 100, 255] {
        let row = ViewRow::Tenant(picture.tenants[index].name.clone());
        let chosen = at(Page::Overview, row.clone());
        let scene = Scene {
            picture: Some(&picture),
            model: &model,
            chosen: &chosen,
            palette: Palette::new(ColourScheme::Dark),
        };
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        let mut rows = Vec::new();
        terminal.draw(|frame| rows = draw(frame.buffer_mut(), scene)).unwrap();
        let (line, _) = rows.iter().find(|(_, own)| *own == row).expect("the row is shown");
        let text = text_of(terminal.backend().buffer());
        let ViewRow::Tenant(name) = row else { panic!("a tenant") };
        assert!(text.lines().nth(usize::from(*line)).unwrap().contains(&name), "{text}");
    }
}

#[test]
fn a_source_that_is_gone_and_an_empty_source_are_reported() {
    let (mut model, _) = minute(3);
    model.take(SourceEvent::Lost { why: format!("no daemon at \u{1b}[2J/{}/socket", "r".repeat(80)) });
    let picture = model.picture(info()).unwrap();
    let (chosen, palette) = (Chosen::default(), Palette::new(ColourScheme::None));
    let scene = Scene { picture: Some(&picture), model: &model, chosen: &chosen, palette };
    let text = |scene| {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| drop(draw(frame.buffer_mut(), scene))).unwrap();
        text_of(terminal.backend().buffer())
    };
    let lost = text(scene);
    assert!(lost.contains("trying again: no daemon at ?[2J/rrr") && !lost.contains('\u{1b}'), "{lost}");
    assert!(text(Scene { picture: None, ..scene }).contains("waiting for the first step"));
}
