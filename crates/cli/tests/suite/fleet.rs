//! `fleet plan` on recordings of a daemon that observes a mounted host. Needs root and /dev/fuse.

use crate::common::{daemon, output, refused};

use daemon::Setup;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::path::Path;
use waykeeper_testbed::{MountedHost, SCENARIO, scenario, wall_clock};

/// Steps that are recorded at least.
const STEPS: u64 = 30;

/// Records some steps of a daemon that turns no knob, into this folder.
fn record(folder: &Path) {
    // Little traffic, so that a busy machine simulates it in time.
    let light = SCENARIO.replace("time_factor = 5", "time_factor = 500");
    let machine = MountedHost::with(scenario("gold-6140", &light), wall_clock(256));
    let more = format!(
        "[metrics]\nlisten = \"off\"\n[recorder]\ndir = {folder:?}\n[policy]\nname = \"waykeeper\"\n"
    );
    let setup = Setup::plain(&machine, &more);
    let mut daemon = setup.start_with(&[
        "--observe",
        "--set",
        "daemon.program_counters=true",
        "--set",
        "daemon.period_s=0.25",
    ]);
    daemon.comes("steps", |daemon| {
        let status = daemon.ask(json!({ "do": "status" }));
        status.and_then(|status| status["ok"]["step"].as_u64()).is_some_and(|step| step >= STEPS)
    });
    daemon.ends_by(Signal::TERM);
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
}
