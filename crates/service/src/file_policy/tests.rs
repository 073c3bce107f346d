//! Tests with processes: policies that are late, end, raise, and write what is no decision. They need /usr/bin/python3.

use super::*;
use crate::config::{Config, Inputs};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tempfile::TempDir;
use waykeeper_host::{KnobValues, Reading, SocketRates};
use waykeeper_kernel::system::RealSystem;
use waykeeper_testbed::{PATIENCE, wait_for, wait_for_some};
use waykeeper_units::{WayMask, WorkloadId};

/// A deadline that is never reached, ns.
const LONG_NS: u64 = PATIENCE.as_nanos() as u64;
/// A deadline that is reached by any policy that waits, ns.
const SHORT_NS: u64 = 1_000_000;

/// A policy: its state is the time of the interval that it decided about; what else it does in a step is `body`.
fn text(body: &str) -> String {
    format!(
        "import os, time\nfrom waykeeper import Decision, Event, Plan, Policy\n\nclass Mine(Policy):\n    \
         \"\"\"For tests.\"\"\"\n    name = \"mine\"\n    steps = 0\n\n    def start(self, server, workloads):\n        \
         self.classes = server.classes\n        \
         return Decision(Plan(masks={{0: 0x7ff, 9: 0x003}}), 'started')\n\n    def step(self, workloads, seen):\n        \
         self.steps += 1\n        {body}\n        return Decision(Plan(masks={{0: 0x00c}}), str(seen.at_s))\n"
    )
}

/// A folder that every user may read, with the policy's file.
fn folder(text: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let file = folder.path().join("mine.py");
    std::fs::write(&file, text).unwrap();
    (folder, file.to_str().unwrap().to_owned())
}

fn config(file: &str) -> Config {
    let mut config = Config::default();
    config.file_policy.file = Some(file.to_owned());
    config
}

fn refusal(config: Config) -> String {
    config.with_file_policy(&RealSystem).unwrap_err().to_string()
}

fn workloads() -> Vec<Workload> {
    let text = r#"[{"id":0,"name":"reader","priority":"high","kind":"non-io","cores":"0","devices":[]}]"#;
    serde_json::from_str(text).unwrap()
}

/// Drives a policy as the loop does.
struct Driven {
    policy: FilePolicy,
    seconds: u64,
    _folder: TempDir,
}

impl Driven {
    /// A started policy whose step has this body; `FOLDER` in it is a folder of the test.
    fn new(body: &str) -> Driven {
        let (folder, file) = folder("");
        std::fs::write(&file, text(&body.replace("FOLDER", folder.path().to_str().unwrap()))).unwrap();
        let config = config(&file).with_file_policy(&RealSystem).unwrap();
        assert_eq!(config.policy.name, "mine");
        let loaded = config.file_policy.named("mine").unwrap();
        // A fifth of a second.
        assert_eq!(loaded.deadline(), Duration::from_millis(200));
        let mut policy = FilePolicy::start(loaded, &Table::new()).unwrap();
        policy.deadline_ns.store(LONG_NS, Ordering::Relaxed);
        let inventory = crate::published_state::tests::published().inventory;
        let decision = policy.start(&inventory, &workloads());
        assert_eq!((decision.state.as_str(), decision.events.len()), ("started", 0));
        // Workload 9 does not run.
        let masks: Vec<_> = decision.plan.masks().collect();
        assert_eq!(masks, [(WorkloadId(0), WayMask::from_bits(0x7ff))]);
        Driven { policy, seconds: 0, _folder: folder }
    }

    /// The decision about the next interval, with this deadline.
    fn step(&mut self, deadline_ns: u64) -> Decision {
        self.policy.deadline_ns.store(deadline_ns, Ordering::Relaxed);
        self.seconds += 1;
        let seen = Interval {
            from_ns: (self.seconds - 1) * 1_000_000_000,
            to_ns: self.seconds * 1_000_000_000,
            groups: BTreeMap::new(),
            socket: SocketRates::all(Reading::Absent),
            ports: BTreeMap::new(),
            knobs: KnobValues::default(),
        };
        self.policy.step(&workloads(), &seen)
    }

    /// Steps until the state is another, at most for the tests' timeout.
    fn steps_until(&mut self, is_so: impl Fn(&Decision) -> bool) -> Decision {
        wait_for_some("a decision", || Some(self.step(LONG_NS)).filter(&is_so))
    }

    /// Waits until the process has answered.
    fn answered(&self) {
        wait_for("the answer", || !self.policy.told.is_empty());
    }

    fn touch(&self, name: &str) {
        std::fs::write(self._folder.path().join(name), "").unwrap();
    }
}

fn actions(decision: &Decision) -> Vec<&str> {
    decision.events.iter().map(|event| event.action.as_str()).collect()
}

const WAITS: &str = "while self.steps == 2 and not os.path.exists('FOLDER/go'): time.sleep(0.005)";

#[test]
fn a_policy_and_its_next_process_hear_how_many_classes_there_are() {
    let body = "if self.steps == 3:\n            os._exit(1)\n        \
        return Decision(Plan(), str(self.classes))\n\n    \
        def classes_changed(self, count):\n        self.classes = count\n\n    \
        def unused(self):\n        pass";
    let mut driven = Driven::new(body);
    let first = crate::published_state::tests::published().inventory.known_llc().clos_count.to_string();
    assert_eq!(driven.step(LONG_NS).state, first);
    driven.policy.classes(5);
    assert_eq!(driven.step(LONG_NS).state, "5");
    // The third step ends the process; the next one begins with the number.
    driven.steps_until(|decision| decision.state == "dead");
    driven.steps_until(|decision| decision.state == "5");
}

#[test]
fn a_late_decision_is_dropped_and_reported_once_and_the_next_one_counts() {
    let mut driven = Driven::new(WAITS);
    let decision = driven.step(LONG_NS);
    assert_eq!((decision.state.as_str(), decision.plan.len(), decision.events.len()), ("1.0", 1, 0));
    let late = driven.step(SHORT_NS);
    assert_eq!((late.state.as_str(), late.plan.len(), actions(&late)), (LATE, 0, vec!["policy-late"]));
    assert_eq!(late.events[0].text, "policy mine has not decided in 1 ms; the knobs keep their values");
    assert_eq!(driven.policy.trouble.get().as_deref(), Some(late.events[0].text.as_str()));
    // The process is still busy: it is not asked, and that is not told again.
    let late = driven.step(LONG_NS);
    assert_eq!((late.state.as_str(), late.plan.len(), late.events.len()), (LATE, 0, 0));
    driven.touch("go");
    driven.answered();
    // The answer about second 2 is there and is not used.
    let decision = driven.step(LONG_NS);
    assert_eq!((decision.state.as_str(), actions(&decision)), ("4.0", vec!["policy-back"]));
    assert_eq!(decision.events[0].causes[0].value, 2.0);
    assert_eq!(driven.policy.trouble.get(), None);
}

#[test]
fn a_policy_that_is_late_for_more_than_ten_intervals_is_started_again() {
    let mut driven = Driven::new(&WAITS.replace("== 2", ">= 1"));
    let mut told = Vec::new();
    for _ in 0..=MOST_LATE {
        let late = driven.step(SHORT_NS);
        assert!(late.plan.is_empty());
        told.extend(late.events.into_iter().map(|event| event.action));
    }
    assert_eq!(told, ["policy-late"]);
    driven.touch("go");
    let dead = driven.steps_until(|decision| !decision.events.is_empty());
    assert_eq!((dead.state.as_str(), actions(&dead)), (DEAD, vec!["policy-dead"]));
    assert_eq!(
        dead.events[0].text,
        "policy mine: it was late for more than 10 intervals; the knobs keep their values, and it is started again in 1 s"
    );
    let back = driven.steps_until(|decision| !decision.events.is_empty());
    assert_eq!((back.state.as_str(), actions(&back)), ("started", vec!["policy-back"]));
    assert_eq!(driven.step(LONG_NS).events, []);
}

#[test]
fn a_policy_that_ends_raises_or_writes_something_else_is_started_again() {
    let answer = r#"[1, {"decision": {"plan": {"masks": {}, "dca_ways": null, "dca": {}, "rx_ring": {}, "rx_burst": {}}, "state": "", "events": []}}]"#;
    let forged = format!("os.write(4, b'{answer}\\n')");
    for (body, why) in [
        ("os._exit(3)", "its process ended (exit status: 3)"),
        ("raise ValueError('no')", "mine.py:15: ValueError: no"),
        (
            "os.write(4, b'rubbish\\n')",
            "its process answered with something else than a decision: expected value",
        ),
        (&forged, "its process answered with something else than a decision: it answers another call"),
    ] {
        // Only the first process does it.
        let body = format!("if not os.path.exists('FOLDER/go'): {body}");
        let mut driven = Driven::new(&body);
        let dead = driven.step(LONG_NS);
        assert_eq!(
            (dead.state.as_str(), dead.plan.len(), actions(&dead)),
            (DEAD, 0, vec!["policy-dead"]),
            "{body}"
        );
        assert!(dead.events[0].text.contains(why), "{}", dead.events[0].text);
        assert!(driven.policy.trouble.get().is_some());
        driven.touch("go");
        let back = driven.steps_until(|decision| !decision.events.is_empty());
        assert_eq!((back.state.as_str(), actions(&back)), ("started", vec!["policy-back"]));
        assert_eq!(driven.step(LONG_NS).state, format!("{}.0", driven.seconds));
    }
}

#[test]
fn the_process_has_no_privileges_and_ends_with_the_policy() {
    let body = "return Decision(Plan(), f'{os.getpid()} {os.getuid()} {os.getgroups()}')";
    let mut driven = Driven::new(body);
    let state = driven.step(LONG_NS).state;
    let (pid, user) = state.split_once(' ').unwrap();
    if rustix::process::geteuid().is_root() {
        assert_eq!(user, "65534 []", "no supplementary groups either");
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        for line in ["CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1"] {
            assert!(status.contains(line), "{line}: {status}");
        }
    }
    drop(driven);
    wait_for("the end of the process", || !Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn what_a_policy_says_is_bounded() {
    let body = "return Decision(Plan(), 'x' * 9999, [Event(f'a{n + 70 * self.steps}', 'line\\n' * 999) for n in range(70)])";
    let mut driven = Driven::new(body);
    let mut all = BTreeSet::new();
    for _ in 0..2 {
        let decision = driven.step(LONG_NS);
        assert_eq!((decision.state.len(), decision.events.len()), (LONGEST_TEXT, MOST_EVENTS));
        assert!(decision.events.iter().all(|event| !event.text.contains('\n')));
        all.extend(decision.events.into_iter().map(|event| event.action));
    }
    assert_eq!(all.len(), MOST_ACTIONS + 1);
    assert!(all.contains(OTHER_ACTION));
}

#[test]
fn a_file_is_tried_and_refused_before_it_is_used() {
    let (_folder, file) = folder(&text("pass"));
    let mut named = config(&file);
    named.policy.name = "waykeeper".to_owned();
    named.policy.settings.insert("limit".to_owned(), 3.into());
    // Without a name from a source, the file's policy is the policy, and has the settings.
    let loaded = named.with_file_policy(&RealSystem).unwrap();
    assert_eq!((loaded.policy.name.as_str(), loaded.unused_file_policy()), ("mine", None));
    assert_eq!(loaded.file_policy.loaded.unwrap().described.idea, "For tests.");
    for (text, why) in [
        ("x = 1\n", "mine.py has no policy"),
        ("x = \n", "mine.py:1: SyntaxError: invalid syntax"),
        (
            "import waykeeper\nclass A(waykeeper.Policy):\n    name = 'a4'\n",
            "the name a4 is that of a built-in policy",
        ),
        (
            "import waykeeper\nclass A(waykeeper.Policy):\n    def __init__(self, need):\n        pass\n",
            "TypeError: A.__init__() missing 1 required positional argument: 'need'",
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        let said = refusal(config(&file));
        assert!(said.starts_with("default: ") && said.contains(why), "{said}");
    }
    std::fs::write(&file, text("pass")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(refusal(config(&file)).contains("can be written by other users (mode 0666)"));
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    // A file that the process's user cannot read: its text is sent.
    config(&file).with_file_policy(&RealSystem).unwrap();
    assert!(refusal(config(&format!("{file}:Other"))).contains("has no policy Other; it has Mine"));
    assert!(refusal(config("/nowhere/mine.py")).contains("/nowhere: No such file"));
    let mut other = config(&file);
    other.file_policy.python = "/nowhere/python3".into();
    assert!(refusal(other).contains("cannot start Python as `/nowhere/python3`"));
    let mut long = config(&file);
    long.file_policy.deadline_ms = Some(1000);
    assert!(refusal(long).contains("policy.deadline_ms = 1000 is not shorter than the period of 1 s"));
}

#[test]
fn a_file_whose_policy_does_not_decide_is_noted() {
    let (folder, file) = folder(&text("pass"));
    let path = folder.path().join("w.toml");
    let note = |name: &str| {
        std::fs::write(&path, format!("[policy]\nname = \"{name}\"\nfile = {file:?}\n")).unwrap();
        let inputs = Inputs { file: Some(path.clone()), ..Inputs::default() };
        Config::load(&inputs).unwrap().with_file_policy(&RealSystem).unwrap().unused_file_policy()
    };
    assert_eq!(note("mine"), None);
    let said = note("waykeeper").unwrap();
    let place = path.display();
    let wanted = format!(
        "{place}:3: policy.file: its policy `mine` does not decide, because policy.name is `waykeeper` ({place}:2); "
    );
    assert!(said.starts_with(&wanted) && said.ends_with("`waykeeper policy set mine`"), "{said}");
}
