//! A recording as a source: the same pictures, seek, stop, and a recording with damage.

use crate::common::{Viewer, event, live};
use std::path::Path;
use std::time::Duration;
use waykeeper_kernel::system;
use waykeeper_service::recorder::{Header, RecordedStep, RecorderConfig, RecordingRing};
use waykeeper_service::{Published, PublishedTotals};
use waykeeper_view::{Picture, RecordingError, RecordingSource, Source, SourceEvent, Turn, ViewModel};

/// A step as the recorder takes it.
fn published(header: &Header, step: &RecordedStep<'static>) -> Published {
    Published {
        step: step.step,
        at: step.at,
        started: header.started,
        at_clock: Duration::ZERO,
        started_clock: Duration::ZERO,
        mode: header.mode,
        paused: step.paused,
        hands_over_until: None,
        policy: header.policy.clone(),
        file_policy: None,
        settings: header.settings.clone(),
        period_ns: header.period_ns,
        inventory: header.inventory.clone(),
        groups: step.groups.as_deref().unwrap_or_default().to_vec(),
        groupings: Vec::new(),
        classes: Vec::new(),
        snapshot: None,
        seen: step.seen.as_deref().cloned(),
        record: step.record.clone().into_owned(),
        twin: None,
        advice: None,
        last_actions: Vec::new(),
        active_problems: Vec::new(),
        totals: PublishedTotals::default(),
    }
}

/// Records a live server until step `last`, with a change of the policy on the way; returns the pictures that a viewer
/// saw.
fn record(folder: &Path, last: u64) -> Vec<Picture> {
    let mut ring = RecordingRing::new(system::real(), RecorderConfig::in_directory(folder));
    let mut source = live("default", 1);
    let (mut model, mut pictures) = (ViewModel::new(), Vec::new());
    loop {
        let event = event(&mut source);
        let is_step = matches!(event, SourceEvent::Step(_));
        model.take(event);
        if !is_step {
            continue;
        }
        let (header, step) = model.present().unwrap();
        ring.record(&published(header, step));
        pictures.push(model.picture(source.info()).unwrap());
        let step = pictures[pictures.len() - 1].step;
        if step == last / 2 {
            let settings = toml::Table::new();
            source.turn(Turn::Policy { name: "isolate".to_owned(), settings }).unwrap();
        }
        if step >= last {
            ring.finish();
            return pictures;
        }
    }
}

/// The same without what names the source.
fn bare(mut picture: Picture, of: &Picture) -> Picture {
    picture.source = of.source.clone();
    picture
}

#[test]
fn a_recording_gives_the_pictures_that_were_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let live = record(folder.path(), 20);
    let mut source = RecordingSource::open(folder.path(), 1000.0).unwrap();
    let mut model = ViewModel::new();
    let mut played = Vec::new();
    loop {
        let event = event(&mut source);
        if event == SourceEvent::End {
            break;
        }
        let is_step = matches!(event, SourceEvent::Step(_));
        model.take(event);
        if is_step {
            let picture = model.picture(source.info()).unwrap();
            played.push(bare(picture, &live[played.len()]));
        }
    }
    assert_eq!(played.len(), live.len());
    for (played, live) in played.iter().zip(&live) {
        assert_eq!(played, live);
    }
    assert!(played.iter().any(|picture| picture.policy == "isolate"));
    assert_eq!(source.next(Duration::from_millis(1)), None);
}

#[test]
fn a_place_in_a_recording_is_found_forwards_and_backwards() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), 20);
    let mut source = RecordingSource::open(folder.path(), 0.001).unwrap();
    let length = source.info().length_s.unwrap();
    // Steps 0 to 20 every 50 ms.
    assert!((length - 1.0).abs() < 0.06, "{length}");
    let mut step_at = |to_s: f64| {
        source.turn(Turn::Seek { to_s }).unwrap();
        loop {
            if let SourceEvent::Step(step) = event(&mut source) {
                return step.step;
            }
        }
    };
    assert_eq!([step_at(0.5), step_at(0.1), step_at(1e9), step_at(-3.0)], [10, 2, 20, 0]);
    // At a thousandth of the speed the next step is 50 s away.
    assert_eq!(source.next(Duration::from_millis(50)), None);
    source.turn(Turn::Stop).unwrap();
    source.turn(Turn::Speed { factor: 1000.0 }).unwrap();
    assert_eq!(source.next(Duration::from_millis(50)), None);
    source.turn(Turn::Play).unwrap();
    assert!(matches!(event(&mut source), SourceEvent::Step(step) if step.step == 1));
    assert!(source.turn(Turn::Resume).is_err() && source.turn(Turn::Seek { to_s: f64::NAN }).is_err());
}

#[test]
fn a_damaged_recording_says_what_is_lost_and_continues() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), 20);
    let mut segments: Vec<_> = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    segments.retain(|path| path.to_string_lossy().ends_with(".zst"));
    segments.sort();
    // One per policy; the first is cut.
    assert_eq!(segments.len(), 2);
    let bytes = std::fs::read(&segments[0]).unwrap();
    std::fs::write(&segments[0], &bytes[..bytes.len() - 5]).unwrap();
    let mut source = RecordingSource::open(folder.path(), 1000.0).unwrap();
    let mut viewer = Viewer::new(&mut source);
    let after = viewer.until("the second segment", |picture| picture.policy == "isolate");
    assert!(after.step >= 10);
    let empty = tempfile::tempdir().unwrap();
    let why = RecordingSource::open(empty.path(), 1.0).unwrap_err().to_string();
    assert!(why.contains("the directory has no recording"), "{why}");
    assert!(matches!(RecordingSource::open(folder.path(), f64::NAN), Err(RecordingError::Speed(_))));
    std::fs::write(&segments[0], b"").unwrap();
    let why = RecordingSource::open(&segments[0], 1.0).unwrap_err().to_string();
    assert!(why.ends_with("no step of the recording can be read"), "{why}");
}

#[test]
fn a_view_of_a_recording_that_lasts_a_day_is_as_large_as_one_of_an_hour() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), 20);
    let mut source = RecordingSource::open(folder.path(), 1000.0).unwrap();
    let mut model = ViewModel::new();
    let mut last = None;
    while let Some(event) = source.next(Duration::from_secs(60)) {
        if let SourceEvent::Step(step) = &event {
            last = Some(step.clone());
        }
        if event == SourceEvent::End {
            break;
        }
        model.take(event);
    }
    let step = last.unwrap();
    let rows = |model: &ViewModel| {
        let all = waykeeper_view::Series::ALL.map(|series| model.history(series, 0.0, 1e12));
        all.iter().map(|part| part.at_s.len() * part.columns.len()).sum::<usize>()
    };
    let mut sizes = Vec::new();
    // More than a day, with a step every 10 s.
    for number in 1..=9_000_u64 {
        let mut next = step.clone();
        next.step += number;
        next.at += Duration::from_secs(10 * number);
        model.take(SourceEvent::Step(next));
        if number % 4_500 == 0 {
            let picture = model.picture(source.info()).unwrap();
            sizes.push((rows(&model), picture.decisions.len()));
        }
    }
    // The second half day adds minutes and no steps: after 1800 steps and 750 minutes there are 1800 and 1440, which is 1.3
    // times as much.
    assert!(2 * sizes[1].0 < 3 * sizes[0].0 && sizes[1].1 <= Picture::DECISIONS, "{sizes:?}");
}
