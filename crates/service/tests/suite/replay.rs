//! A recording of a real loop on the virtual server, in process, and its replay.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use waykeeper_calibration::{LayoutAnswer, LayoutQuestion};
use waykeeper_control::{ControlConfig, LookBack, Loop, Predictor};
use waykeeper_host::Host;
use waykeeper_machine::{RunOptions, ScenarioSource, VirtualServer};
use waykeeper_policy::build;
use waykeeper_service::naming::HostNames;
use waykeeper_service::recorder::{Item, Recorder, RecorderConfig, RecordingReader};
use waykeeper_service::replay::{Compared, Replay, differences};
use waykeeper_service::{DaemonMode, Pause, Published, PublishedTotals, step_queue};
use waykeeper_twin::{Budget, answer};

const STEPS: u64 = 30;
const SECOND: u64 = 1_000_000_000;
/// A step every second, without looks back.
const PLAIN: ControlConfig = ControlConfig::every(SECOND).lasting(STEPS * SECOND);

/// A4's mix (s6, Fig. 11) as the scenario has it, with few sets and a fifth of its traffic: only the decisions matter, not
/// the performance.
fn server() -> VirtualServer {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/a4-hpw-heavy.toml");
    let mut source = ScenarioSource::open(&file).unwrap();
    source.set("time_factor", &toml::Value::Integer(100)).unwrap();
    let scenario = source.read().unwrap();
    let options = RunOptions { seed: 1, sample_seed: 1, sampling: "1/256".parse().unwrap() };
    VirtualServer::new(Arc::new(scenario), options).unwrap()
}

/// Records a policy from its start, as the daemon does; `skip` are steps that the step queue dropped.
fn record(directory: &Path, name: &str, settings: &toml::Table, skip: &[u64]) {
    record_released(directory, name, settings, PLAIN, skip, 0..0);
}

/// The daemon's twin without its thread: it answers two steps later.
#[derive(Default)]
struct InlineTwin(Option<(LayoutQuestion, u32)>);

impl Predictor for InlineTwin {
    fn ask(&mut self, question: LayoutQuestion) {
        self.0 = Some((question, 0));
    }

    fn answer(&mut self) -> Option<LayoutAnswer> {
        self.0.as_mut()?.1 += 1;
        let (question, _) = self.0.take_if(|(_, steps)| *steps == 2)?;
        Some(answer(&question, Budget { events: 1_000_000 }))
    }
}

/// The same with a pause that restores the knobs before the first of these steps and ends before the last.
fn record_released(
    directory: &Path,
    name: &str,
    settings: &toml::Table,
    control: ControlConfig,
    skip: &[u64],
    pause: Range<u64>,
) {
    let last = control.duration_ns.unwrap() / SECOND;
    let mut server = server();
    let inventory = Arc::new(server.inventory().clone());
    let (offer, steps) = step_queue(last as usize + 3);
    let config = RecorderConfig { flush_steps: 7, ..RecorderConfig::in_directory(directory) };
    let recorder = Recorder::start(config, steps).unwrap();
    let policy = build(name, settings).unwrap();
    let mut looping = Loop::start(&mut server, policy, control).unwrap();
    looping.set_predictor(Box::new(InlineTwin::default()));
    let mut reported = 0;
    let mut tell = |looping: &mut Loop<'_, VirtualServer>, step: u64, paused: Option<Pause>| {
        let started = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_337_700);
        let shown = Published {
            step,
            at: started + Duration::from_secs(step),
            started,
            at_clock: Duration::ZERO,
            started_clock: Duration::ZERO,
            mode: DaemonMode::Manage,
            paused,
            hands_over_until: None,
            policy: name.to_owned(),
            file_policy: None,
            settings: Arc::new(settings.clone()),
            period_ns: 1_000_000_000,
            inventory: inventory.clone(),
            groups: looping.host().workloads(),
            groupings: Vec::new(),
            classes: Vec::new(),
            snapshot: looping.snapshot().cloned(),
            seen: looping.seen().cloned(),
            record: looping.record().clone(),
            twin: None,
            advice: None,
            last_actions: Vec::new(),
            active_problems: Vec::new(),
            totals: PublishedTotals::default(),
        };
        assert!(skip.contains(&step) || offer.offer(Arc::new(shown)));
        reported += 1;
    };
    tell(&mut looping, 0, None);
    for step in 1..=last {
        // As the engine does between two steps.
        if !pause.is_empty() && step == pause.start {
            looping.restore();
            tell(&mut looping, step - 1, Some(Pause::Release));
        }
        if !pause.is_empty() && step == pause.end {
            looping.replace(build(name, settings).unwrap());
            tell(&mut looping, step - 1, None);
        }
        let is_paused = pause.contains(&step);
        assert!(if is_paused { looping.watch() } else { looping.step() }.unwrap());
        tell(&mut looping, step, is_paused.then_some(Pause::Release));
    }
    assert!(reported > last);
    drop(looping);
    drop(offer);
    assert_eq!(recorder.join().lost, 0);
}

fn replay(directory: &Path, name: &str, settings: &toml::Table) -> Vec<Compared> {
    let mut replay = Replay::new(name, settings.clone()).unwrap();
    let mut all = Vec::new();
    for item in RecordingReader::open(directory).unwrap() {
        match item {
            Item::Segment { header, .. } => replay.segment(&header),
            Item::Entry(entry) => all.extend(replay.step(&entry).unwrap()),
            Item::Unreadable(why) => panic!("{why}"),
        }
    }
    all
}

#[test]
fn the_same_policy_over_an_unbroken_recording_decides_the_same() {
    let none = toml::Table::new();
    let quick: toml::Table = "stable_interval_s = 3".parse().unwrap();
    for (name, settings) in [("a4", &none), ("a4", &quick), ("waykeeper-search", &none), ("iat", &none)] {
        let directory = TempDir::new().unwrap();
        record(directory.path(), name, settings, &[]);
        let all = replay(directory.path(), name, settings);
        assert_eq!(all.len() as u64, STEPS + 1, "{name}");
        for compared in &all {
            assert_eq!(compared.recorded, compared.replayed, "{name}, step {}", compared.step);
        }
        // The policies agree on values, not on doing nothing.
        assert!(all.iter().any(|compared| !compared.recorded.wanted.is_empty()), "{name}");
    }
}

#[test]
fn a_policy_that_asks_a_twin_decides_the_same_on_its_recorded_answers() {
    let none = toml::Table::new();
    let directory = TempDir::new().unwrap();
    record(directory.path(), "waykeeper", &none, &[]);
    let all = replay(directory.path(), "waykeeper", &none);
    assert_eq!(all.len() as u64, STEPS + 1);
    for compared in &all {
        assert_eq!(compared.recorded, compared.replayed, "step {}", compared.step);
    }
    let answers = answers(directory.path());
    assert!(!answers.is_empty(), "it heard no answer");
    // Without the answers it gives up asking and measures: they are what makes the replay agree.
    let mut deaf = Replay::new("waykeeper", none).unwrap();
    let mut differs = false;
    for item in RecordingReader::open(directory.path()).unwrap() {
        match item {
            Item::Segment { header, .. } => deaf.segment(&header),
            Item::Entry(mut entry) => {
                entry.record.to_mut().answer = None;
                differs |= deaf.step(&entry).unwrap().is_some_and(|compared| !compared.agrees());
            }
            Item::Unreadable(why) => panic!("{why}"),
        }
    }
    assert!(differs);
}

/// The recorded answers.
fn answers(directory: &Path) -> Vec<LayoutAnswer> {
    let items = RecordingReader::open(directory).unwrap();
    let answer = |item| match item {
        Item::Entry(entry) => entry.record.answer.clone(),
        _ => None,
    };
    items.filter_map(answer).collect()
}

#[test]
fn a_policy_that_begins_anew_after_its_knobs_went_back_does_so_in_the_replay() {
    let none = toml::Table::new();
    for name in ["a4", "waykeeper-search", "waykeeper"] {
        let directory = TempDir::new().unwrap();
        record_released(directory.path(), name, &none, PLAIN, &[], 12..15);
        let all = replay(directory.path(), name, &none);
        // The steps of the pause have no decision; the restart has one.
        assert_eq!(all.len() as u64, STEPS + 1 - 3 + 1, "{name}");
        for compared in &all {
            assert_eq!(compared.recorded, compared.replayed, "{name}, step {}", compared.step);
        }
    }
}

#[test]
fn steps_of_looks_back_are_left_out_and_the_policy_decides_the_same_around_them() {
    let none = toml::Table::new();
    let look_back = Some(LookBack { every_ns: 8 * SECOND, intervals: 3 });
    let last = 50;
    for name in ["a4", "iat", "waykeeper"] {
        let directory = TempDir::new().unwrap();
        let control = ControlConfig { look_back, ..PLAIN }.lasting(last * SECOND);
        record_released(directory.path(), name, &none, control, &[], 0..0);
        let recorded = RecordingReader::open(directory.path()).unwrap().filter_map(|item| match item {
            Item::Entry(entry) => Some(entry),
            _ => None,
        });
        let looks: Vec<u64> =
            recorded.filter(|entry| entry.record.look_back).map(|entry| entry.step).collect();
        // The step that begins it, three intervals, and the one in which the policy's layout comes back.
        assert!(looks.len() >= 5, "{name}: {looks:?}");
        let all = replay(directory.path(), name, &none);
        let steps: Vec<u64> = all.iter().map(|compared| compared.step).collect();
        assert_eq!(steps, (0..=last).filter(|step| !looks.contains(step)).collect::<Vec<_>>(), "{name}");
        for compared in &all {
            assert_eq!(compared.recorded, compared.replayed, "{name}, step {}", compared.step);
        }
    }
}

#[test]
fn another_policy_is_shown_where_it_differs_and_twice_the_same() {
    let none = toml::Table::new();
    let directory = TempDir::new().unwrap();
    record(directory.path(), "a4", &none, &[]);
    let first = replay(directory.path(), "waykeeper", &none);
    assert_eq!(first, replay(directory.path(), "waykeeper", &none));
    assert!(first.iter().any(|compared| !compared.agrees()));
    let last = first.last().unwrap();
    let names = HostNames::recorded(None, &[]);
    let differ = differences(&last.recorded.wanted, &last.replayed.wanted, &names);
    assert!(!differ.is_empty() && differ.iter().all(|[_, ours, theirs]| ours != theirs));
    assert!(differences(&last.recorded.wanted, &last.recorded.wanted, &names).is_empty());
    // The policy names nothing: knobs that a4 set read their original values.
    let nothing = replay(directory.path(), "none", &none);
    assert!(nothing.iter().all(|compared| compared.replayed.wanted.is_empty()));
}

#[test]
fn a_recording_with_gaps_is_replayed_over_what_is_there() {
    let none = toml::Table::new();
    let directory = TempDir::new().unwrap();
    // The start is among the missing steps.
    record(directory.path(), "a4", &none, &[0, 1, 9]);
    let all = replay(directory.path(), "a4", &none);
    let steps: Vec<u64> = all.iter().map(|compared| compared.step).collect();
    assert_eq!(steps, (2..=STEPS).filter(|step| *step != 9).collect::<Vec<_>>());
}

#[test]
fn settings_that_are_not_there_are_refused() {
    let settings: toml::Table = "t1 = 3".parse().unwrap();
    assert!(Replay::new("a4", settings).err().unwrap().to_string().contains("has no setting `t1`"));
}
