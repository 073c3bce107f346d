//! A virtual server as a source: steps, turns, and the same stream for the same seed.

use crate::common::{Viewer, event, live};
use std::time::{Duration, Instant};
use waykeeper_service::Pause;
use waykeeper_testbed::wait_for;
use waykeeper_units::WayMask;
use waykeeper_view::{Picture, Series, Source, SourceEvent, SourceKind, Turn, TurnError, ViewModel};

/// The events until step `last`.
fn events(source: &mut dyn Source, last: u64) -> Vec<SourceEvent> {
    let mut events = Vec::new();
    loop {
        events.push(event(source));
        if let Some(SourceEvent::Step(step)) = events.last()
            && step.step >= last
        {
            return events;
        }
    }
}

fn refused(source: &mut dyn Source, turn: Turn) -> String {
    match source.turn(turn) {
        Err(TurnError::Refused(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_stream_begins_once_and_is_the_same_for_the_same_seed() {
    let first = events(&mut live("default", 7), 8);
    let again = events(&mut live("default", 7), 8);
    assert!(matches!(&first[0], SourceEvent::Begin(header) if header.policy == "default"));
    assert_eq!(first.iter().filter(|event| matches!(event, SourceEvent::Begin(_))).count(), 1);
    assert!(first == again, "the streams of two runs differ");
    assert!(first != events(&mut live("default", 8), 8), "the seed has no effect");
}

#[test]
fn a_picture_has_what_the_counters_say_and_nothing_else() {
    let mut source = live("default", 1);
    let mut viewer = Viewer::new(&mut source);
    let picture = viewer.until("counters", |picture| picture.step == 6);
    assert_eq!((picture.source.kind, picture.policy.as_str()), (SourceKind::Scenario, "default"));
    assert_eq!((picture.way_columns(), picture.dca_ways()), (11, Some(WayMask::from_bits(0x600))));
    // 6 steps of 50 ms.
    assert!((picture.time_s - 0.3).abs() < 1e-9, "{}", picture.time_s);
    let names: Vec<&str> = picture.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
    assert_eq!(names, ["l2fwd", "fio", "scan"]);
    for tenant in &picture.tenants {
        assert!(tenant.ipc.is_some_and(|ipc| ipc > 0.0), "{tenant:?}");
        assert!(tenant.llc_hit_ratio.is_none_or(|ratio| (0.0..=1.0).contains(&ratio)), "{tenant:?}");
        assert_eq!(tenant.mask, Some(WayMask::full(11)));
    }
    let tenants = picture.tenants.iter().map(|tenant| (tenant.colour, tenant.letter));
    let marks: Vec<(u8, char)> =
        tenants.chain(picture.devices.iter().map(|device| (device.colour, device.letter))).collect();
    for (index, mark) in marks.iter().enumerate() {
        assert!(mark.0 < Picture::COLOURS && mark.1.is_ascii_alphanumeric());
        assert!(!marks[..index].contains(mark), "two names have the mark {mark:?}");
    }
    // The scan of 24 MiB occupies most of the LLC of 24.75 MiB.
    assert!(picture.tenants[2].occupancy_bytes.is_some_and(|bytes| bytes > 5e6), "{picture:?}");
    let nic = &picture.devices[0];
    assert_eq!((nic.name.as_str(), nic.dca, nic.tenants[0].as_str()), ("nic0", Some(true), "l2fwd"));
    // 80 Gb/s on the wire are 10 GB/s, of which 24 bytes a packet are not written; a packet's completion is one more line.
    assert!(nic.inbound_bytes_per_s.is_some_and(|bytes| (9.5e9..11e9).contains(&bytes)), "{nic:?}");
    assert!(picture.socket.dca_write_hit_ratio.is_some());
    let tail = viewer.model.tail(Series::Ipc, "scan", 100);
    assert_eq!(tail.len(), 6);
    assert!(tail.iter().all(Option::is_some), "{tail:?}");
    let text = serde_json::to_string(&picture).unwrap();
    assert_eq!(serde_json::from_str::<Picture>(&text).unwrap(), picture);
    assert!(!text.contains("null"), "{text}");
}

#[test]
fn a_knob_turned_by_hand_is_set_read_back_and_returned() {
    let mut source = live("default", 1);
    source.turn(Turn::Mask { tenant: "scan".to_owned(), mask: WayMask::from_bits(0x3) }).unwrap();
    source.turn(Turn::Dca { device: "nic0".to_owned(), on: false }).unwrap();
    source.turn(Turn::DcaWays { mask: WayMask::from_bits(0x700) }).unwrap();
    let mut viewer = Viewer::new(&mut source);
    let turned = viewer.until("the knobs", |picture| {
        picture.dca_ways() == Some(WayMask::from_bits(0x700)) && picture.devices[0].dca == Some(false)
    });
    assert_eq!((turned.policy.as_str(), turned.tenants[2].mask), ("fixed", Some(WayMask::from_bits(0x3))));
    assert!(turned.knobs_turned >= 3, "{}", turned.knobs_turned);
    // Two ways hold 4.5 MiB.
    viewer.until("less occupancy", |picture| {
        picture.tenants[2].occupancy_bytes.is_some_and(|bytes| bytes < 5e6)
    });
    viewer.source.turn(Turn::Policy { name: "default".to_owned(), settings: toml::Table::new() }).unwrap();
    let back = viewer.until("the original knobs", |picture| {
        picture.policy == "default" && picture.devices[0].dca == Some(true)
    });
    assert_eq!(back.tenants[2].mask, Some(WayMask::full(11)));
    assert_eq!(back.dca_ways(), back.llc.unwrap().dca_ways_default);
    assert!(back.decisions.iter().any(|event| event.action == "policy-replaced"), "{:?}", back.decisions);
}

#[test]
fn a_wrong_turn_names_what_would_be_accepted_and_changes_nothing() {
    let mut source = live("default", 1);
    let mask = |tenant: &str, bits| Turn::Mask { tenant: tenant.to_owned(), mask: WayMask::from_bits(bits) };
    let said = [
        (mask("scna", 3), "unknown tenant `scna`; known are l2fwd, fio, scan"),
        (mask("scan", 5), "mask 0x005 has holes"),
        (mask("scan", 0x800), "wider than the chip"),
        (mask("scan", 0), "has no way"),
        (Turn::Dca { device: "nic1".to_owned(), on: true }, "unknown device `nic1`; known are nic0, raid0"),
        (Turn::Policy { name: "a5".to_owned(), settings: toml::Table::new() }, "did you mean `a4`?"),
        (
            Turn::Load { device: "nic1".to_owned(), factor: 0.5 },
            "unknown device `nic1`; known are nic0, raid0",
        ),
        (Turn::Load { device: "nic0".to_owned(), factor: f64::NAN }, "give a number from 0 to 10"),
        (
            Turn::Load { device: "raid0".to_owned(), factor: 1.5 },
            "from 0 to 1, as its programs have no memory",
        ),
    ];
    let numbers =
        [0.0, -0.0, -1.0, 1e-308, 0.000_999, 1000.1, 1e308, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
    let speeds = numbers.map(|factor| (Turn::Speed { factor }, "give a number from 0.001 to 1000"));
    let loads = numbers
        .into_iter()
        .filter(|factor| !(0.0..=10.0).contains(factor))
        .map(|factor| (Turn::Load { device: "nic0".to_owned(), factor }, "give a number from 0 to 10"));
    for (turn, wanted) in said.into_iter().chain(speeds).chain(loads) {
        let why = refused(&mut source, turn.clone());
        assert!(why.contains(wanted) && !why.contains('\n'), "{turn:?}: {why}");
    }
    assert!(matches!(source.turn(Turn::Seek { to_s: 1.0 }), Err(TurnError::Unsupported(_))));
    let picture = Viewer::new(&mut source).until("a step", |picture| picture.step > 2);
    assert_eq!((picture.policy.as_str(), picture.knobs_turned), ("default", 0));
}

#[test]
fn a_pause_holds_or_releases_and_a_policy_resumes() {
    let mut source = live("isolate", 1);
    let mut viewer = Viewer::new(&mut source);
    let isolated = viewer.until("masks", |picture| picture.tenants[2].mask != Some(WayMask::full(11)));
    viewer.source.turn(Turn::Pause { release: false }).unwrap();
    let held = viewer.until("the pause", |picture| picture.paused == Some(Pause::Hold));
    assert_eq!(held.tenants[2].mask, isolated.tenants[2].mask);
    viewer.source.turn(Turn::Pause { release: true }).unwrap();
    viewer.until("the original masks", |picture| {
        picture.paused == Some(Pause::Release) && picture.tenants[2].mask == Some(WayMask::full(11))
    });
    viewer.source.turn(Turn::Resume).unwrap();
    let back = viewer.until("the policy", |picture| picture.paused.is_none());
    assert_eq!(back.policy, "isolate");
    assert!(viewer.source.turn(Turn::Resume).unwrap().contains("not paused"));
}

#[test]
fn the_load_of_a_nic_follows_the_factor() {
    let mut source = live("default", 1);
    let mut viewer = Viewer::new(&mut source);
    let bytes = |picture: &Picture| picture.devices[0].inbound_bytes_per_s.unwrap_or(f64::NAN);
    let full = bytes(&viewer.until("traffic", |picture| picture.step == 4));
    viewer.source.turn(Turn::Load { device: "nic0".to_owned(), factor: 0.25 }).unwrap();
    let quarter = bytes(&viewer.until("less", |picture| (bytes(picture) / full - 0.25).abs() < 0.02));
    assert!(quarter > 0.0);
    assert_eq!(viewer.source.info().loads, [("nic0".to_owned(), 0.25)]);
    viewer.source.turn(Turn::Load { device: "nic0".to_owned(), factor: 0.0 }).unwrap();
    viewer.until("silence", |picture| bytes(picture) == 0.0);
    viewer.source.turn(Turn::Load { device: "nic0".to_owned(), factor: 1.0 }).unwrap();
    viewer.until("all of it again", |picture| (bytes(picture) / full - 1.0).abs() < 0.02);
    assert!(viewer.source.info().loads.is_empty());
}

#[test]
fn the_load_of_an_array_follows_the_factor() {
    let mut source = live("default", 1);
    assert_eq!(source.info().abilities.loads, [("nic0".to_owned(), 10.0), ("raid0".to_owned(), 1.0)].into());
    let mut viewer = Viewer::new(&mut source);
    let bytes = |picture: &Picture| picture.devices[1].inbound_bytes_per_s.unwrap_or(f64::NAN);
    let load = |factor| Turn::Load { device: "raid0".to_owned(), factor };
    let full = bytes(&viewer.until("reads", |picture| picture.step == 4));
    let said = viewer.source.turn(load(0.0)).unwrap();
    assert_eq!(said, "programs of raid0 keep 0 times their requests in flight");
    viewer.until("silence", |picture| bytes(picture) == 0.0);
    assert_eq!(viewer.source.info().loads, [("raid0".to_owned(), 0.0)]);
    viewer.source.turn(load(1.0)).unwrap();
    viewer.until("all of it again", |picture| bytes(picture) > 0.8 * full);
    assert!(viewer.source.info().loads.is_empty());
}

#[test]
fn stopped_time_gives_no_step_and_speed_is_kept() {
    let mut source = live("default", 1);
    source.turn(Turn::Stop).unwrap();
    // After the answer there is no other step.
    while source.next(Duration::ZERO).is_some() {}
    assert!(source.info().stopped);
    source.turn(Turn::Speed { factor: 0.1 }).unwrap();
    let begin = Instant::now();
    source.turn(Turn::Play).unwrap();
    // A step of 50 ms at a tenth of the speed takes half a second; a busy machine may take longer.
    let mut step = || loop {
        if let SourceEvent::Step(step) = event(&mut source) {
            return step.step;
        }
    };
    let first = step();
    assert_eq!(step(), first + 1);
    assert!(begin.elapsed() >= Duration::from_secs(1), "{:?}", begin.elapsed());
}

#[test]
fn a_server_without_a_viewer_is_paused_and_continues_where_it_was() {
    let mut source = live("default", 1);
    let taken = |event| match event {
        SourceEvent::Step(step) => Some(step.step),
        _ => None,
    };
    source.watch(false);
    // It is answered after the order to stand still was read.
    source.turn(Turn::Speed { factor: 1000.0 }).unwrap();
    let before = std::iter::from_fn(|| source.next(Duration::ZERO)).filter_map(taken).last();
    // A step takes a millisecond at this speed.
    assert_eq!(source.next(Duration::from_millis(100)), None);
    source.turn(Turn::Pause { release: false }).unwrap();
    assert!(event(&mut source) != SourceEvent::End, "a turn is shown at once");
    source.watch(true);
    let after = loop {
        if let Some(step) = taken(event(&mut source)) {
            break step;
        }
    };
    assert_eq!(Some(after), before.map(|step| step + 1));
}

#[test]
fn a_reader_that_stops_costs_no_memory_and_gets_the_latest_step() {
    let mut source = live("none", 1);
    let (mut model, mut last, mut pause) = (ViewModel::new(), 0, Duration::from_millis(100));
    wait_for("more steps than the mailbox takes", || {
        std::thread::sleep(pause);
        pause *= 2;
        source.turn(Turn::Stop).unwrap();
        let mut steps = Vec::new();
        while let Some(event) = source.next(Duration::ZERO) {
            if let SourceEvent::Step(step) = &event {
                steps.push(step.step);
            }
            model.take(event);
        }
        source.turn(Turn::Play).unwrap();
        // 64 events fit into the mailbox.
        assert!(steps.len() <= 64 && steps.is_sorted(), "{steps:?}");
        let is_missing = steps.first().is_some_and(|first| *first > last + 1);
        last = steps.last().copied().unwrap_or(last);
        is_missing
    });
    assert!(model.picture(source.info()).is_some(), "the header was lost");
}
