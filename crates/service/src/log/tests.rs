//! The text of the log, in both formats.

use super::*;
use crate::published_state::tests::published;
use std::io;
use std::sync::Mutex;
use std::time::Duration;
use tracing::subscriber::with_default;
use waykeeper_units::{DeviceId, PortId, WayMask, WorkloadId};

/// Format of the lines.
#[derive(Clone, Copy)]
enum LogFormat {
    Human,
    Json,
}

#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl io::Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The log lines of these steps, one second apart.
fn lines(format: LogFormat, steps: impl IntoIterator<Item = Published>) -> Vec<String> {
    let page = Page::default();
    let writer = {
        let page = page.clone();
        move || page.clone()
    };
    let plain =
        tracing_subscriber::fmt().with_writer(writer).without_time().with_ansi(false).with_target(false);
    let tell = || {
        let mut log = DaemonLog::default();
        for (number, mut step) in steps.into_iter().enumerate() {
            step.step = number as u64;
            step.at = SystemTime::UNIX_EPOCH + Duration::from_secs(number as u64);
            log.step(Arc::new(step));
        }
    };
    match format {
        LogFormat::Human => with_default(plain.finish(), tell),
        LogFormat::Json => with_default(plain.json().flatten_event(true).finish(), tell),
    }
    let text = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn event(action: &str, text: &str) -> Event {
    let cause = |what: &str, value, limit: Option<(&str, f64)>| Cause {
        what: what.to_owned(),
        value,
        limit: limit.map(|(name, limit)| (name.to_owned(), limit)),
    };
    Event {
        action: action.to_owned(),
        group: Some("fio".to_owned()),
        text: text.to_owned(),
        causes: vec![
            cause("DCA write miss ratio", 0.41, Some(("dmalk_miss_thr", 0.3))),
            cause("ways", 2.0, None),
        ],
    }
}

fn deciding() -> Published {
    let mut step = published();
    step.policy = "a4".to_owned();
    step.record.events.push(event("storage-antagonist", "fio is an antagonist"));
    step.record.wanted.insert(Knob::Mask(WorkloadId(3)), WayMask::from_bits(0x00c));
    step.record.applied.insert(Knob::Mask(WorkloadId(3)), KnobOutcome::Applied);
    step.record.wanted.insert(Knob::DcaWays, WayMask::from_bits(0x600));
    step.record.applied.insert(Knob::DcaWays, KnobOutcome::Refused("no".to_owned()));
    step
}

#[test]
fn a_decision_is_one_line_with_its_reasons_and_what_was_turned_another() {
    assert_eq!(
        lines(LogFormat::Human, [deciding()]),
        [
            " INFO decision policy=\"a4\" action=\"storage-antagonist\" tenant=\"fio\" text=\"fio is an antagonist\" \
             causes=\"DCA write miss ratio=0.41 limit dmalk_miss_thr=0.3; ways=2\"",
            // The DCA ways were refused.
            " INFO knobs turned policy=\"a4\" step=0 count=1 knobs=\"mask 0x00c of group 3\"",
        ]
    );
    let json: serde_json::Value = serde_json::from_str(&lines(LogFormat::Json, [deciding()])[0]).unwrap();
    assert_eq!(
        json,
        serde_json::json!({
            "level": "INFO", "message": "decision", "policy": "a4", "action": "storage-antagonist", "tenant": "fio",
            "text": "fio is an antagonist", "causes": "DCA write miss ratio=0.41 limit dmalk_miss_thr=0.3; ways=2",
        })
    );
}

#[test]
fn what_lasts_is_reported_at_its_beginning_and_at_its_end() {
    let problem = |on: bool| {
        let mut step = published();
        if on {
            step.record.problems.push(Problem::Sample("blind".to_owned()));
        }
        step
    };
    let all = lines(LogFormat::Human, [false, true, true, true, false, false].map(problem));
    assert_eq!(
        all,
        [
            " WARN problem policy=\"default\" step=1 kind=\"sample\" text=\"counters could not be read: \
             blind\" causes=\"\"",
            " INFO counters can be read again step=4",
        ]
    );
}

#[test]
fn the_same_in_the_next_step_is_no_news_and_later_it_is() {
    let saying = |text: Option<&str>| {
        let mut step = published();
        step.record.events.extend(text.map(|text| event("grow", text)));
        step
    };
    let steps = [Some("a"), Some("a"), Some("b"), None, Some("a")].map(saying);
    let texts: Vec<_> = lines(LogFormat::Json, steps)
        .iter()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["text"].clone())
        .collect();
    assert_eq!(texts, ["a", "b", "a"]);
}

#[test]
fn a_flood_is_cut_off_and_counted() {
    let noisy = |step: u64| {
        let mut noisy = published();
        noisy.record.events = (0..100).map(|number| event("x", &format!("{step} {number}"))).collect();
        noisy
    };
    let all = lines(LogFormat::Json, (0..100).map(noisy));
    // 200 in a burst and 5 a second for 99 s.
    assert_eq!(all.len(), 200 + 5 * 99);
    let left_out: u64 = all
        .iter()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["lines"].as_u64())
        .sum();
    let reported = all.iter().filter(|line| line.contains("\"decision\"")).count() as u64;
    // The next step reports the number of lines that the last one left out.
    assert!(
        left_out > 9000 && left_out + reported <= 10_000 && left_out + reported >= 9900,
        "{left_out} {reported}"
    );
}

#[test]
fn a_name_cannot_forge_a_line() {
    let mut step = published();
    step.record.events.push(event("x", "a\n INFO decision policy=\"forged\"\u{1b}[2J"));
    for format in [LogFormat::Human, LogFormat::Json] {
        let all = lines(format, [step.clone()]);
        assert_eq!(all.len(), 1);
        assert!(!all[0].contains('\u{1b}'), "{all:?}");
    }
}

#[test]
fn lost_lines_are_reported_when_one_gets_through_again() {
    let lost = |unlogged| {
        let mut step = published();
        step.totals.unlogged = unlogged;
        step
    };
    assert_eq!(
        lines(LogFormat::Human, [0, 0, 40, 40, 41].map(lost)),
        [40, 41].map(|lines| format!(
            " WARN lines of the log were lost since the start, because its reader is too slow lines={lines}"
        ))
    );
}

#[test]
fn one_policy_following_another_is_the_orders_line() {
    let mut step = published();
    step.record.events =
        vec![event(crate::replay::POLICY_REPLACED, "a4 follows iat"), event("grow", "fio grows")];
    let all = lines(LogFormat::Human, [step]);
    assert!(all.len() == 1 && all[0].contains("fio grows"), "{all:?}");
}

#[test]
fn what_happens_beside_the_steps_has_the_same_budget() {
    let reported = Page::default();
    let writer = {
        let page = reported.clone();
        move || page.clone()
    };
    let plain = tracing_subscriber::fmt().with_writer(writer).with_ansi(false).with_target(false);
    with_default(plain.finish(), || {
        let mut log = DaemonLog::default();
        let problem = |kind: &str, number: usize| crate::ActiveProblem::new(kind, format!("one {number}"));
        let changes = ProblemChanges {
            begun: (0..100).map(|number| problem("tenant", number)).collect(),
            ended: (0..100).map(|number| problem("grouping", number)).collect(),
        };
        let happened: Vec<String> = (0..100).map(|number| format!("tenant {number} appeared")).collect();
        log.problem_changes(SystemTime::UNIX_EPOCH, &changes, &happened);
        log.problem_changes(SystemTime::UNIX_EPOCH + Duration::from_secs(1), &ProblemChanges::default(), &[]);
    });
    let text = String::from_utf8(reported.0.lock().unwrap().clone()).unwrap();
    assert_eq!(text.lines().count(), 201, "{text}");
    assert!(
        text.lines().last().unwrap().contains("lines were left out of the log: too many at once lines=100")
    );
}

#[test]
fn a_line_names_the_device_behind_a_port_and_has_short_numbers() {
    let mut step = published();
    let device = waykeeper_host::Device {
        id: DeviceId(0),
        name: "nic0".to_owned(),
        kind: waykeeper_host::DeviceKind::Network,
        ports: vec![PortId(0)],
    };
    let inventory = waykeeper_host::Inventory { devices: vec![device], ..(*step.inventory).clone() };
    step.inventory = Arc::new(inventory);
    let cause = Cause {
        what: "relative change of bytes of port 0".to_owned(),
        value: 0.674_451_390_065_111,
        limit: Some(("phase_change".to_owned(), 0.573_134_342_024)),
    };
    let text = "new phase: bytes of port 0 changed".to_owned();
    step.record.events = vec![Event { action: "phase".to_owned(), group: None, text, causes: vec![cause] }];
    let off = Knob::Dca(PortId(0)).at(false);
    step.record.wanted.insert(off.knob, off.setting);
    step.record.applied.insert(off.knob, KnobOutcome::Applied);
    step.record.problems = vec![Problem::NoEffect {
        knob: off,
        what: "DCA writes of the socket per second".to_owned(),
        expected: 11_234_567,
        measured: 33_765_432,
    }];
    assert_eq!(
        lines(LogFormat::Human, [step]),
        [
            " INFO decision policy=\"default\" action=\"phase\" text=\"new phase: bytes of port 0 (nic0) changed\" \
             causes=\"relative change of bytes of port 0 (nic0)=0.6745 limit phase_change=0.5731\"",
            " INFO knobs turned policy=\"default\" step=0 count=1 knobs=\"DCA off on port 0 (nic0)\"",
            " WARN problem policy=\"default\" step=0 kind=\"no-effect\" text=\"DCA off on port 0 (nic0) reads back but has \
             no effect: DCA writes of the socket per second is 33770000; with an effect it would be at most 11230000\" \
             causes=\"DCA writes of the socket per second=33770000 limit at most, with an effect=11230000\"",
        ]
    );
}

#[test]
fn a_dry_run_turns_no_knob_and_says_of_none_that_it_was_applied() {
    let all = lines(LogFormat::Human, [Published { mode: DaemonMode::DryRun, ..deciding() }]);
    assert!(all.len() == 1 && all[0].contains("fio is an antagonist"), "{all:?}");
}
