//! `fleet plan` on a recording of a virtual server on which no knob is turned.

use crate::common::{output, refused};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use waykeeper_kernel::system;
use waykeeper_service::recorder::{Header, RecordedStep, RecorderConfig, RecordingRing};
use waykeeper_service::{Published, PublishedTotals};
use waykeeper_testbed::{PATIENCE, SCENARIO, scenario};
use waykeeper_view::{LiveScenario, LiveSetup, Source, SourceEvent};

/// Steps that are recorded: fewer than a source keeps for a reader that is late.
const STEPS: u64 = 30;

/// Records some steps of a virtual server under a policy that turns no knob, into this folder, as a daemon does. A daemon of
/// a host in wall-clock time has other intervals on a busy machine, up to none that can be planned with.
fn record(folder: &Path) {
    let light = SCENARIO.replace("time_factor = 5", "interval_s = 0.25\ntime_factor = 500");
    let setup = LiveSetup { speed: 1000.0, ..LiveSetup::new(scenario("gold-6140", &light), "none") };
    let mut source = LiveScenario::start(setup).expect("the scenario runs");
    let mut ring = RecordingRing::new(system::real(), RecorderConfig::in_directory(folder));
    let mut header = None;
    loop {
        match source.next(PATIENCE).expect("a step") {
            SourceEvent::Begin(begun) => header = Some(begun),
            SourceEvent::Step(step) => {
                ring.record(&published(header.as_deref().expect("it comes first"), &step));
                if step.step >= STEPS {
                    return ring.finish();
                }
            }
            event => panic!("{event:?}"),
        }
    }
}

/// A step as the recorder takes it.
fn published(header: &Header, step: &RecordedStep<'static>) -> Published {
    Published {
        step: step.step,
        at: step.at,
        started: header.started,
        at_clock: Duration::ZERO,
        started_clock: Duration::ZERO,
        mode: header.mode,
        paused: None,
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

#[test]
fn a_plan_tells_what_policies_would_be_worth_on_each_recorded_node() {
    let folder = tempfile::tempdir().expect("a folder");
    let (one, empty) = (folder.path().join("one"), folder.path().join("empty"));
    record(&one);
    std::fs::create_dir(&empty).expect("a folder");
    let one = one.to_str().expect("ASCII");
    let other = format!("other={one}");
    let policies = ["--policy", "none", "--policy", "isolate"];

    let table = output(&[&["fleet", "plan", one, &other], &policies[..]].concat());
    let mut lines = table.lines();
    let heading: Vec<&str> = lines.next().expect("a heading").split_whitespace().collect();
    assert_eq!(heading[..4], ["node", "intervals", "tenants", "policy"], "{table}");
    assert_eq!(heading.last(), Some(&"verdict"), "{table}");
    // A policy that turns no knob changes nothing, and its prediction has only the error of sampling.
    let row = lines.next().expect("a row");
    assert!(row.starts_with("one ") && row.contains(" none ") && row.ends_with("no clear change"), "{table}");
    assert!(table.contains("\nnone: HPWs +0.0 % in the mean of 2 nodes; no clear change on 2\n"), "{table}");

    let plan = |nodes: &[&str]| output(&[&["fleet", "plan", "--json"], nodes, &policies[..]].concat());
    let text = plan(&[one]);
    let node: Value = serde_json::from_str(&text).expect("a line of JSON");
    assert_eq!((&node["node"], &node["seen"]["tenants"]), (&json!("one"), &json!(3)), "{node}");
    assert!(node["seen"]["intervals"].as_u64().is_some_and(|count| count >= STEPS / 2), "{node}");
    let [none, isolate] = [0, 1].map(|policy| &node["policies"][policy]);
    assert_eq!(none["tenants"].as_object().map(serde_json::Map::len), Some(3), "{node}");
    assert_eq!((&none["hpw"]["ratio"], &none["layouts"]), (&json!(1.0), &json!(1)), "{node}");
    // `isolate` gives each tenant a part of the ways, none of them DCA ways.
    assert_ne!(isolate["masks"], none["masks"], "{node}");
    assert!(isolate["hpw"]["error"].as_f64().is_some_and(|error| error > 0.0), "{node}");
    assert_eq!(text, plan(&[one]), "the same recording has the same plan");

    let empty = empty.to_str().expect("ASCII");
    refused(&["fleet", "plan", one, empty], 2, &[empty, "the directory has no recording"]);
    refused(&["fleet", "plan", one, one], 2, &["another node is called one", "like one-2="]);
    refused(&["fleet", "plan", one, "--set", "a4.x=1"], 2, &["no setting `x`"]);
    refused(&["fleet", "plan", one, "--set", "isolat.x=1"], 2, &["isolat is not planned with"]);
    refused(&["fleet", "plan", one, "--policy", "a5"], 2, &["did you mean `a4`?"]);
    a_node_that_says_too_little_has_a_row_with_the_reason(folder.path(), one);
    ctrl_c_and_a_closed_pipe_end_a_plan(one);
}

/// The plan has two nodes; the recording of the first is damaged.
fn a_node_that_says_too_little_has_a_row_with_the_reason(folder: &Path, one: &str) {
    let damaged = folder.join("damaged");
    std::fs::create_dir(&damaged).expect("a folder");
    for segment in std::fs::read_dir(one).expect("a recording") {
        let segment = segment.expect("a segment");
        let bytes = std::fs::read(segment.path()).expect("a segment");
        std::fs::write(damaged.join(segment.file_name()), &bytes[..bytes.len().min(40)]).expect("a file");
    }
    let damaged = damaged.to_str().expect("ASCII");
    let done =
        crate::common::waykeeper().args(["fleet", "plan", damaged, one, "--policy", "none"]).assert().code(1);
    let [table, error] =
        [&done.get_output().stdout, &done.get_output().stderr].map(|text| String::from_utf8_lossy(text));
    let rows: Vec<&str> = table.lines().skip(1).take(2).collect();
    assert!(rows[0].starts_with("damaged ") && rows[0].contains("not planned: "), "{table}");
    assert!(rows[0].contains("the file is cut off at byte 0"), "{table}");
    assert!(rows[1].starts_with("one ") && rows[1].ends_with("no clear change"), "{table}");
    assert_eq!(error.lines().last(), Some("error: 1 of 2 nodes could not be planned"), "{error}");
}

/// A plan of many nodes, after its first line.
fn long_plan(recording: &str) -> (Child, BufReader<ChildStdout>) {
    let nodes = (0..200).map(|number| format!("node-{number}={recording}"));
    let mut child = Command::new(assert_cmd::cargo::cargo_bin!("waykeeper"))
        .args(["fleet", "plan", "--json", "--policy", "isolate"])
        .args(nodes)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    assert!(line.starts_with(r#"{"node":"node-0","#), "{line}");
    (child, output)
}

fn ctrl_c_and_a_closed_pipe_end_a_plan(recording: &str) {
    let (child, mut output) = long_plan(recording);
    kill_process(Pid::from_child(&child), Signal::INT).expect("the program runs");
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("text");
    let done = child.wait_with_output().expect("its end");
    let others: Vec<Value> =
        rest.lines().map(|line| serde_json::from_str(line).expect("whole lines")).collect();
    let lines = others.len() + 1;
    assert!(lines < 200, "it was not interrupted");
    let error = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(130), "{error}");
    assert!(error.contains(&format!("interrupted; {lines} of 200 nodes are planned")), "{error}");

    let (child, output) = long_plan(recording);
    drop(output);
    let done = child.wait_with_output().expect("its end");
    // On a slow machine there are lines of progress.
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && !error.contains("error"), "{error}");
}
