//! A policy's file is run, answers calls, and everything that can be wrong with it is one line.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use waykeeper_host::{Interval, Inventory, Knob, Workload};
use waykeeper_policy::Policy;
use waykeeper_policy_process::{
    FirstFailure, Interpreter, PolicyAnswer, PolicyCall, PolicyFile, PolicyProcess, WaitingPolicy,
};
use waykeeper_units::{WayMask, WorkloadId};

/// How long a test waits for a process before it fails.
/// How long a test waits, as `waykeeper_testbed::PATIENCE`. The testbed has a virtual server, for which this crate has no
/// use.
const PATIENCE: Duration = Duration::from_secs(300);

const SERVER: &str = r#"{"platform":{"chip":"gold-6140","host":"test"},"cores":[0,1],
    "llc":{"ways":11,"min_ways":1,"bytes":26214400,"clos_count":16,"inclusive_ways":"0x003"},
    "dca_ways_default":"0x600","dca_ways_switch":"yes",
    "devices":[{"id":0,"name":"nic0","kind":"network","ports":[0]}],"ports":[]}"#;
const WORKLOADS: &str = r#"[{"id":0,"name":"reader","priority":"high","kind":"non-io","cores":"0","devices":[0]},
    {"id":1,"name":"streamer","priority":"low","kind":"non-io","cores":"1","devices":[]}]"#;
const SEEN: &str = r#"{"from_ns":1000000000,"to_ns":2000000000,"groups":{"1":{"instructions":{"value":1e9},
    "cycles":{"value":3e9},"mlc_hits":{"value":1.0},"mlc_misses":{"value":0.1},"llc_hits":{"value":1.0},
    "llc_misses":{"value":3.0},"occupancy_bytes":"unavailable"}},"socket":{"dca_write_hits":{"value":3.0},
    "dca_write_misses":{"value":1.0},"dca_read_hits":"unsupported","dca_read_misses":"unsupported",
    "memory_read_bytes":{"value":64.0},"memory_write_bytes":{"value":64.0}},
    "ports":{"0":{"inbound_bytes":{"value":64.0},"outbound_bytes":"absent"}},
    "knobs":{"masks":{"0":"0x7ff","1":"0x00c"},"dca_ways":"0x600","dca":{"0":true},"rx_ring":{},"rx_burst":{}}}"#;

fn server() -> Inventory {
    serde_json::from_str(SERVER).unwrap()
}

fn workloads() -> Vec<Workload> {
    serde_json::from_str(WORKLOADS).unwrap()
}

fn seen() -> Interval {
    serde_json::from_str(SEEN).unwrap()
}

/// The tests' Python, and the lines that policies print.
fn python(program: &str, confined: bool) -> (Interpreter, Arc<Mutex<Vec<String>>>) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let into = lines.clone();
    let interpreter = Interpreter {
        program: PathBuf::from(program),
        confined,
        user: None,
        printed: Arc::new(move |line| into.lock().unwrap().push(line.to_owned())),
        setting: "THE_PYTHON",
        stop: Arc::default(),
    };
    (interpreter, lines)
}

fn file(text: &str) -> PolicyFile {
    PolicyFile { path: PathBuf::from("mine.py"), class: None, text: text.to_owned() }
}

/// A policy whose `step` has this body.
fn stepping(body: &str) -> PolicyFile {
    file(&format!(
        "import os, sys, time\nfrom waykeeper import Decision, Event, Plan, Policy\n\nclass Mine(Policy):\n    \
         name = \"mine\"\n\n    def step(self, workloads, seen):\n        {body}\n"
    ))
}

/// The failure of opening a file and making its policy.
fn refusal(file: &PolicyFile, settings: &str) -> String {
    let settings = settings.parse().unwrap();
    PolicyProcess::open(file, &python("python3", false).0, Some(&settings)).unwrap_err().to_string()
}

/// The failure in the first step.
fn failure(file: &PolicyFile) -> String {
    let failure = FirstFailure::default();
    let (python, _) = python("python3", false);
    let mut policy = WaitingPolicy::open(file, &python, &toml::Table::new(), &failure).unwrap();
    policy.start(&server(), &workloads());
    let decision = policy.step(&workloads(), &seen());
    assert!(decision.plan.is_empty());
    failure.first().unwrap()
}

#[test]
fn a_policy_sees_what_was_counted_and_its_decision_comes_back() {
    let body = "streamer = workloads[1]\n        \
        rates = seen.of(streamer)\n        \
        assert rates.occupancy_bytes is None and rates.why_missing('occupancy_bytes') == 'unavailable'\n        \
        assert seen.mask(streamer) == 0x00c and seen.dca(0) is True and seen.port(0).inbound_bytes == 64\n        \
        assert workloads[0].ports == (0,) and seen.at_s == 2.0\n        \
        print('seen', rates.llc_miss_ratio)\n        \
        return Decision(Plan(masks={streamer: 3}, dca={0: False}), 'Watch', [Event('a', 'b', 'streamer', [('c', 0.1 + 0.2)])])";
    let (python, printed) = python("python3", false);
    let failure = FirstFailure::default();
    let mut policy = WaitingPolicy::open(&stepping(body), &python, &toml::Table::new(), &failure).unwrap();
    assert_eq!(policy.name(), "mine");
    assert!(policy.start(&server(), &workloads()).plan.is_empty());
    let decision = policy.step(&workloads(), &seen());
    assert_eq!(failure.first(), None);
    let masks: Vec<_> = decision.plan.masks().collect();
    assert_eq!(masks, [(WorkloadId(1), WayMask::from_bits(0b11))]);
    assert!(decision.plan.names(Knob::Dca(waykeeper_units::PortId(0))));
    assert_eq!((decision.state.as_str(), decision.events[0].causes[0].value), ("Watch", 0.1 + 0.2));
    let begun = Instant::now();
    // 3 / (1 + 3): what it prints does not disturb the answers.
    while *printed.lock().unwrap() != ["seen 0.75"] {
        assert!(begun.elapsed() < PATIENCE, "{:?}", printed.lock().unwrap());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_policy_of_a_run_has_bounded_memory_and_a_short_command_line() {
    let body = "import resource\n        \
        most, all = resource.getrlimit(resource.RLIMIT_DATA)[1], os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')\n        \
        assert most == all // 2 and int(open('/proc/self/oom_score_adj').read()) >= 500, (most, all)\n        \
        words = open('/proc/self/cmdline').read().split('\\0')\n        \
        assert words[-2] == 'mine.py' and sum(map(len, words)) < 300, words\n        \
        try:\n            bytearray(most + 4096)\n        \
        except MemoryError:\n            return Decision(Plan(), 'Bounded')";
    let (python, _) = python("python3", false);
    let failure = FirstFailure::default();
    let mut policy = WaitingPolicy::open(&stepping(body), &python, &toml::Table::new(), &failure).unwrap();
    policy.start(&server(), &workloads());
    let decision = policy.step(&workloads(), &seen());
    assert_eq!((failure.first(), decision.state.as_str()), (None, "Bounded"));
}

#[test]
fn a_policy_hears_how_many_classes_there_are() {
    let text = "from waykeeper import Decision, Plan, Policy\n\nclass Mine(Policy):\n    name = 'mine'\n\n    \
        def start(self, server, workloads):\n        self.has = [server.classes]\n\n    \
        def classes_changed(self, count):\n        self.has.append(count)\n\n    \
        def step(self, workloads, seen):\n        return Decision(Plan(), str(self.has))\n";
    let (python, _) = python("python3", false);
    let failure = FirstFailure::default();
    let mut policy = WaitingPolicy::open(&file(text), &python, &toml::Table::new(), &failure).unwrap();
    policy.start(&server(), &workloads());
    assert_eq!(policy.step(&workloads(), &seen()).state, "[16]");
    policy.classes(5);
    assert_eq!(policy.step(&workloads(), &seen()).state, "[16, 5]");
    // It is said once.
    assert_eq!(policy.step(&workloads(), &seen()).state, "[16, 5]");
    assert_eq!(failure.first(), None);
}

#[test]
fn what_is_wrong_with_a_file_is_one_line_with_its_place() {
    let class = "import waykeeper\nclass Mine(waykeeper.Policy):\n    name = 'mine'\n";
    for (text, why) in [
        ("def f(:\n", "mine.py:1: SyntaxError: invalid syntax"),
        ("x = 1\nprint(y)\n", "mine.py:2: NameError: name 'y' is not defined"),
        (
            "import nosuchthing\n",
            "mine.py:1: ModuleNotFoundError: No module named 'nosuchthing'; install it for `python3`, or name a Python that \
             has it in THE_PYTHON",
        ),
        ("import sys\nsys.exit(3)\n", "mine.py:2: SystemExit: 3"),
        ("x = 1\n", "mine.py has no policy; it needs a class like `class Mine(waykeeper.Policy)`"),
        (
            &format!("{class}class Two(Mine):\n    name = 'two'\n"),
            "mine.py has 2 policies (Mine, Two); choose one, like mine.py:Mine",
        ),
        (&class.replace("'mine'", "7"), "mine.py: Mine.name is 7; it must be a text"),
        (
            &class.replace("'mine'", "'a b'"),
            "mine.py: its policy has the name `a b`; it must be 1 to 64 letters",
        ),
        (&format!("{class}raise ValueError('a\\nb')\n"), "mine.py:4: ValueError: a"),
    ] {
        let said = refusal(&file(text), "");
        assert!(said.starts_with(why), "{text}: {said}");
        assert!(!said.contains('\n'), "{said}");
    }
}

#[test]
fn a_class_can_be_chosen() {
    let two = "import waykeeper\nclass A(waykeeper.Policy):\n    name = 'a'\nclass B(A):\n    \"\"\"The second.\"\"\"\n    name = 'b'\n";
    let chosen = PolicyFile { class: Some("B".to_owned()), ..file(two) };
    let (_, described) = PolicyProcess::open(&chosen, &python("python3", false).0, None).unwrap();
    assert_eq!((described.name.as_str(), described.idea.as_str()), ("b", "The second."));
    let identity = chosen.identity(&described).unwrap();
    assert_ne!(
        PolicyFile { class: Some("A".to_owned()), ..chosen.clone() }.identity(&described),
        Some(identity)
    );
    let missing = PolicyFile { class: Some("C".to_owned()), ..file(two) };
    assert_eq!(refusal(&missing, ""), "mine.py has no policy C; it has A, B");
}

#[test]
fn settings_reach_the_policy_and_wrong_ones_are_refused() {
    let text = "import waykeeper\nclass Mine(waykeeper.Policy):\n    name = 'mine'\n    def __init__(self, limit, words=()):\n        assert limit == 0.1 and words == ['a'], (limit, words)\n";
    let (python, _) = python("python3", false);
    let settings = "limit = 0.1\nwords = [\"a\"]".parse().unwrap();
    PolicyProcess::open(&file(text), &python, Some(&settings)).unwrap();
    assert!(refusal(&file(text), "limit = 0.2").starts_with("mine.py:5: AssertionError: (0.2, "));
    let said = refusal(&file(text), "limits = 1");
    assert!(said.starts_with("mine.py: TypeError:") && said.contains("'limits'"), "{said}");
    assert_eq!(
        refusal(&file(text), "limit = [nan]"),
        "mine.py: the setting `limit` is NaN; it must be a finite number"
    );
}

#[test]
fn a_failure_in_a_step_names_policy_interval_file_and_line() {
    for (body, why) in [
        ("1 / 0", "mine.py:8: ZeroDivisionError: division by zero"),
        (
            "return 3",
            "mine.py:7: TypeError: the policy returned 3; it must return a Decision, a Plan or None",
        ),
        (
            "return Plan(masks={7: 'x'})",
            "mine.py:8: TypeError: a mask is 'x'; it must be a number like 0x00c",
        ),
        (
            "return Decision(events=[Event('a', 'b', None, [('c', float('nan'))])])",
            "mine.py:8: ValueError: the cause 'c' is nan; it must be a finite number",
        ),
        ("os._exit(9)", "mine.py: its process ended (exit status: 9)"),
        (
            "print('bye', flush=True); os._exit(0)",
            "mine.py: its process ended (exit status: 0); it printed: bye",
        ),
        (
            "return Decision(state=5)",
            "mine.py: its process answered with something else than a decision: invalid type: integer `5`, expected a string",
        ),
        (
            "[os.write(fd, b'rubbish\\n') for fd in range(3, 9) if os.path.exists(f'/proc/self/fd/{fd}') and fd != 3]",
            "mine.py: its process answered with something else than a decision: expected value",
        ),
        (
            "return Decision(state='x' * (1 << 21))",
            "mine.py: its process answered with something else than a decision: it is longer than 1048576 bytes",
        ),
    ] {
        let said = failure(&stepping(body));
        assert!(said.starts_with(&format!("policy mine, in interval 1: {why}")), "{body}: {said}");
    }
}

#[test]
fn a_program_that_is_missing_or_is_not_python_is_named() {
    let file = stepping("return None");
    let error = PolicyProcess::open(&file, &python("/nowhere/python3", false).0, None).unwrap_err();
    assert!(error.is_unsupported());
    assert_eq!(
        error.to_string(),
        "cannot start Python as `/nowhere/python3`: No such file or directory (os error 2); install Python 3.10 or later, or name its \
         program in THE_PYTHON"
    );
    for (program, why) in [("true", "it ended (exit status: 0)"), ("echo", "it answered with something else")]
    {
        let said = PolicyProcess::open(&file, &python(program, false).0, None).unwrap_err().to_string();
        assert!(said.starts_with(&format!("`{program}` does not run policies: {why}")), "{said}");
    }
}

#[test]
fn modules_beside_the_file_can_be_imported_unless_it_is_confined() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("beside.py"), "LIMIT = 3\n").unwrap();
    let path = folder.path().join("mine.py");
    std::fs::write(
        &path,
        "import beside, waykeeper\nclass Mine(waykeeper.Policy):\n    name = f'mine{beside.LIMIT}'\n",
    )
    .unwrap();
    let file = PolicyFile::read(path.to_str().unwrap()).unwrap();
    let (_, described) = PolicyProcess::open(&file, &python("python3", false).0, None).unwrap();
    // Another module could decide otherwise with the same file.
    assert_eq!((described.name.as_str(), file.identity(&described)), ("mine3", None));
    let said = PolicyProcess::open(&file, &python("python3", true).0, None).unwrap_err().to_string();
    assert!(said.contains("No module named 'beside'"), "{said}");
}

#[test]
fn a_confined_policy_has_no_environment_files_processes_or_privileges() {
    let body = "assert 'HOME' not in os.environ and os.getcwd() == '/', dict(os.environ)\n        \
        status = open('/proc/self/status').read()\n        \
        assert 'NoNewPrivs:\\t1' in status and 'CapAmb:\\t0000000000000000' in status and os.nice(0) >= 10, status\n        \
        done = []\n        \
        import subprocess, threading, tempfile\n        \
        try:\n            os.write(os.open(self.settings['scratch'], os.O_WRONLY), b'x')\n        \
        except OSError:\n            done.append('file')\n        \
        if os.getuid() != 0:\n            \
            try:\n                subprocess.run(['true'])\n            \
            except OSError:\n                done.append('process')\n        \
        return Decision(state=' '.join(done))";
    let scratch = tempfile::NamedTempFile::new().unwrap();
    let (python, _) = python("python3", true);
    let mut settings = toml::Table::new();
    settings.insert("scratch".to_owned(), scratch.path().display().to_string().into());
    let failure = FirstFailure::default();
    let mut policy = WaitingPolicy::open(&stepping(body), &python, &settings, &failure).unwrap();
    policy.start(&server(), &workloads());
    let decision = policy.step(&workloads(), &seen());
    assert_eq!(failure.first(), None);
    // root may start processes in spite of its limit.
    let expected = if rustix::process::getuid().is_root() { "file" } else { "file process" };
    assert_eq!(decision.state, expected);
}

#[test]
fn the_process_ends_with_its_owner_even_if_the_policy_hangs() {
    let (python, _) = python("python3", false);
    let text = "import os, waykeeper\nclass Mine(waykeeper.Policy):\n    name = str(os.getpid())\n    def step(self, workloads, seen):\n        while True: pass\n";
    let (mut process, described) =
        PolicyProcess::open(&file(text), &python, Some(&toml::Table::new())).unwrap();
    let proc = format!("/proc/{}", described.name);
    assert!(Path::new(&proc).exists());
    process.call(&PolicyCall::Start { inventory: &server(), workloads: &workloads() });
    let number = process.call(&PolicyCall::Step { workloads: &workloads(), seen: &seen(), classes: None });
    let (first, answer) = process.wait(Instant::now() + PATIENCE, PATIENCE).unwrap();
    assert!(first < number && matches!(answer, PolicyAnswer::Decision(_)));
    let wait = Duration::from_millis(100);
    let late = process.wait(Instant::now() + wait, wait).unwrap_err().to_string();
    assert_eq!(late, "mine.py: no answer in 0.1 s");
    drop(process);
    let begun = Instant::now();
    while Path::new(&proc).exists() {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_the_policy_started_ends_with_it() {
    let (python, _) = python("python3", false);
    let text = "import subprocess, waykeeper\nclass Mine(waykeeper.Policy):\n    child = subprocess.Popen(['sleep', '3600'])\n    \
                name = str(child.pid)\n";
    let (process, described) = PolicyProcess::open(&file(text), &python, Some(&toml::Table::new())).unwrap();
    let stat = format!("/proc/{}/stat", described.name);
    // A process that nobody has waited for yet has the state Z (proc(5)).
    let runs = || std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
    assert!(runs());
    drop(process);
    let begun = Instant::now();
    while runs() {
        assert!(begun.elapsed() < PATIENCE, "{stat}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
