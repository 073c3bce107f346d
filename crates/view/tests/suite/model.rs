//! The model of a view: a name keeps its mark, and another place in time begins anew. Must not know where steps come from.

use crate::common::{Viewer, live};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;
use waykeeper_control::Problem;
use waykeeper_host::Workload;
use waykeeper_service::recorder::{Header, RecordedStep};
use waykeeper_units::WorkloadId;
use waykeeper_view::{Picture, Series, SourceEvent, SourceInfo, Turn, ViewModel};

/// A header, a step with counters and knobs that were turned, and its source.
fn step() -> (Header, RecordedStep<'static>, SourceInfo) {
    let mut source = live("default", 1);
    let mut viewer = Viewer::new(&mut source);
    viewer.until("counters", |picture| picture.step > 2);
    let seen = viewer.model.present().and_then(|(_, step)| step.seen.clone());
    viewer.source.turn(Turn::Dca { device: "nic0".to_owned(), on: false }).unwrap();
    viewer.until("the knob", |picture| picture.knobs_turned > 0);
    let (header, step) = viewer.model.present().unwrap();
    // A turn between two steps reads no counters.
    (header.clone(), RecordedStep { seen, ..step.clone() }, viewer.source.info())
}

/// The same step so much later, with these tenants.
fn later(of: &RecordedStep<'static>, seconds: u64, tenants: Vec<Workload>) -> SourceEvent {
    let mut step = of.clone();
    step.at += Duration::from_secs(seconds);
    step.groups = Some(Cow::Owned(tenants));
    SourceEvent::Step(Box::new(step))
}

#[test]
fn a_name_keeps_its_mark_while_others_come_and_leave() {
    let (header, of, info) = step();
    let tenants = of.groups.as_deref().unwrap().to_vec();
    let mut model = ViewModel::new();
    model.take(SourceEvent::Begin(Box::new(header)));
    model.take(later(&of, 1, tenants.clone()));
    let marks = |picture: &Picture| -> Vec<(String, u8, char)> {
        let tenants = picture.tenants.iter().map(|own| (own.name.clone(), own.colour, own.letter));
        let devices = picture.devices.iter().map(|own| (own.name.clone(), own.colour, own.letter));
        tenants.chain(devices).collect()
    };
    let distinct = |marks: &[(String, u8, char)]| {
        let colours: BTreeSet<u8> = marks.iter().map(|(_, colour, _)| *colour).collect();
        let letters: BTreeSet<char> = marks.iter().map(|(_, _, letter)| *letter).collect();
        (marks.len(), colours.len(), letters.len())
    };
    let first = marks(&model.picture(info.clone()).unwrap());
    assert_eq!(distinct(&first), (5, 5, 5), "{first:?}");
    // Seven more names, listed before and after the others: as many names as there are colours.
    let more = (0..7).map(|number| Workload {
        id: WorkloadId(100 + number),
        name: format!("{}{number}", if number < 4 { "a" } else { "z" }),
        ..tenants[0].clone()
    });
    let all: Vec<Workload> = more.chain(tenants.iter().cloned()).collect();
    model.take(later(&of, 2, all));
    let second = marks(&model.picture(info.clone()).unwrap());
    assert_eq!(distinct(&second), (12, 12, 12), "{second:?}");
    assert!(first.iter().all(|own| second.contains(own)), "{first:?} {second:?}");
    for column in model.history(Series::Ipc, 0.0, f64::MAX).columns {
        let own = second.iter().find(|(name, ..)| *name == column.name).map(|(_, colour, _)| *colour);
        assert_eq!(column.colour, own, "{}", column.name);
    }
    model.take(later(&of, 3, tenants));
    assert_eq!(marks(&model.picture(info).unwrap()), first);
}

#[test]
fn an_earlier_time_begins_anew() {
    let (header, mut of, info) = step();
    of.record.to_mut().problems.push(Problem::NoTime);
    let tenants = of.groups.as_deref().unwrap().to_vec();
    let mut model = ViewModel::new();
    model.take(SourceEvent::Begin(Box::new(header)));
    let times = |model: &ViewModel| model.history(Series::Ipc, 0.0, f64::MAX).at_s.len();
    for second in 10..15 {
        model.take(later(&of, second, tenants.clone()));
    }
    let before = model.picture(info.clone()).unwrap();
    assert!(times(&model) == 5 && before.knobs_turned > 0 && !before.decisions.is_empty(), "{before:?}");
    let mut turned = later(&of, 5, tenants);
    if let SourceEvent::Step(step) = &mut turned {
        step.record.to_mut().applied = Default::default();
        step.record.to_mut().events.clear();
        step.record.to_mut().problems.clear();
    }
    model.take(turned);
    let after = model.picture(info).unwrap();
    assert_eq!(times(&model), 1);
    assert!(after.at_s < before.at_s && after.decisions.is_empty(), "{:?}", after.decisions);
    assert_eq!(after.knobs_turned, 0);
}

#[test]
fn what_is_lost_is_said_until_a_step_comes() {
    let (header, of, info) = step();
    let tenants = of.groups.as_deref().unwrap().to_vec();
    let mut model = ViewModel::new();
    model.take(SourceEvent::Begin(Box::new(header)));
    model.take(later(&of, 1, tenants.clone()));
    model.take(SourceEvent::Lost { why: "gone".to_owned() });
    let lost = model.picture(info.clone()).unwrap();
    assert_eq!((lost.lost.as_deref(), lost.step), (Some("gone"), of.step), "the last step stays");
    model.take(SourceEvent::End);
    assert!(model.picture(info.clone()).unwrap().ended);
    model.take(later(&of, 2, tenants));
    let back = model.picture(info).unwrap();
    assert_eq!((back.lost, back.ended), (None, false));
}
