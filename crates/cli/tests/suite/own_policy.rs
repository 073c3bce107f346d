//! `waykeeper run --policy FILE`: a policy in Python runs like any other, and what is wrong with it is found in time.

use crate::common;

use common::{TINY, output, refused, waykeeper};
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use waykeeper_testbed::{wait_for, wait_for_some};

/// DCA off for storage; LPWs that miss more than `limit` share two ways.
const MINE: &str = r#"import waykeeper as wk


class Mine(wk.Policy):
    name = "mine"

    def __init__(self, limit=0.5):
        self.limit = limit

    def start(self, server, workloads):
        print("a line of its own")
        return wk.Plan(dca={port: False for w in workloads if w.kind == "storage-io" for port in w.ports})

    def step(self, workloads, seen):
        low = [w for w in workloads if not w.high and (seen.of(w).llc_miss_ratio or 0) > self.limit]
        events = [wk.Event("moved", f"{w.name} is moved", w.name) for w in low if seen.mask(w) != 0x00c]
        return wk.Decision(wk.Plan(masks={w: 0x00c for w in low}), "Watch", events)
"#;

/// A folder with `tiny.toml`, to which `settings` are added, and `mine.py` with this text.
fn folder(settings: &str, text: &str) -> (tempfile::TempDir, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let (scenario, policy) = (folder.path().join("tiny.toml"), folder.path().join("mine.py"));
    std::fs::write(&scenario, format!("{TINY}{settings}")).unwrap();
    std::fs::write(&policy, text).unwrap();
    let text = |path: PathBuf| path.to_str().unwrap().to_owned();
    (folder, text(scenario), text(policy))
}

fn json(arguments: &[&str]) -> Value {
    let mut result: Value = serde_json::from_str(&output(arguments)).unwrap();
    result.as_object_mut().unwrap().remove("wall_s");
    result
}

#[test]
fn a_policy_from_a_file_decides_and_threads_cannot_be_seen_in_its_numbers() {
    let (_folder, scenario, policy) = folder("", MINE);
    let with = |threads: &str| {
        json(&[
            "run",
            &scenario,
            "--policy",
            "default",
            "--policy",
            &policy,
            "--seeds",
            "2",
            "--threads",
            threads,
            "--json",
        ])
    };
    let result = with("1");
    assert_eq!(result, with("2"));
    let decisions = result["policies"]["mine"]["decisions"].as_array().unwrap();
    assert!(decisions.iter().any(|one| one["action"] == "moved" && one["group"] == "fio"), "{decisions:?}");
    let last = result["policies"]["mine"]["way_map"].as_array().unwrap().last().unwrap();
    assert_eq!(last["masks"]["fio"], "0x00c");
    // The class can be named, and a policy that does nothing has the numbers of `none`.
    let idle = MINE.replace("print(", "return None; print(").replace("low = ", "return None; low = ");
    std::fs::write(&policy, format!("{idle}\nclass Other(Mine):\n    name = 'other'\n")).unwrap();
    let both =
        json(&["run", &scenario, "--policy", "none", "--policy", &format!("{policy}:Other"), "--json"]);
    for workload in ["dpdk", "fio", "xmem"] {
        for metric in ["throughput", "ipc", "llc_misses_per_s", "latency_p99_us"] {
            let of = |name: &str| &both["policies"][name]["workloads"][workload][metric];
            assert_eq!(of("none"), of("other"), "{workload} {metric}");
        }
    }
}

#[test]
fn settings_are_those_of_the_scenario_and_of_the_command_line() {
    let (_folder, scenario, policy) = folder("[policy.mine]\nlimit = 1.0\n", MINE);
    // No workload misses more than every access.
    let moved = |more: &[&str]| {
        let result = json(&[&["run", &scenario, "--policy", &policy, "--json"], more].concat());
        let decisions = result["policies"]["mine"]["decisions"].as_array().unwrap().clone();
        decisions.iter().any(|one| one["action"] == "moved")
    };
    assert!(!moved(&[]) && moved(&["--set", "policy.mine.limit=0.5"]));
    let set = |value: &str| format!("policy.mine.{value}");
    refused(
        &["run", &scenario, "--policy", &policy, "--set", &set("limitt=3")],
        2,
        &["`policy.mine`", "policy mine", "mine.py: TypeError", "'limitt'"],
    );
}

#[test]
fn what_is_wrong_with_a_file_is_found_before_work_starts() {
    let (folder, scenario, policy) = folder("", MINE);
    let refused_text = |text: &str, parts: &[&str]| {
        std::fs::write(&policy, text).unwrap();
        refused(&["run", &scenario, "--policy", "default", "--policy", &policy], 2, parts);
    };
    refused_text("def f(:\n", &["mine.py:1: SyntaxError"]);
    refused_text("x = 1\n", &["mine.py has no policy", "waykeeper policy new"]);
    refused_text(
        &format!("{MINE}\nclass Two(Mine):\n    pass\n"),
        &["2 policies (Mine, Two)", "mine.py:Mine"],
    );
    for name in ["default", "a4", "best"] {
        let text = MINE.replace("\"mine\"", &format!("\"{name}\""));
        refused_text(&text, &[&format!("mine.py: the name {name} is that of a built-in policy")]);
    }
    refused_text(
        "import waykeeper\nwaykeeper.run\n",
        &["mine.py:2: ImportError: waykeeper.run needs the Python package"],
    );
    std::fs::write(&policy, MINE).unwrap();
    refused(
        &["run", &scenario, "--policy", &policy, "--policy", "mine"],
        2,
        &["mine.py: its policy has the name mine, and --policy mine is given too; leave one out"],
    );
    let other = folder.path().join("other.py");
    std::fs::write(&other, MINE).unwrap();
    let other = other.to_str().unwrap();
    refused(
        &["run", &scenario, "--policy", &policy, "--policy", other],
        2,
        &["other.py: its policy has the name mine, as that of", "mine.py has"],
    );
    refused(
        &["run", &scenario, "--policy", &format!("{policy}:Two")],
        2,
        &["mine.py has no policy Two; it has Mine"],
    );
    refused(&["run", &scenario, "--policy", "nowhere.py"], 2, &["nowhere.py: No such file"]);
    refused(&["run", &scenario, "--policy", folder.path().to_str().unwrap()], 2, &["it is a directory"]);
    let done = waykeeper()
        .env("WAYKEEPER_PYTHON", "/nowhere/python3")
        .args(["run", &scenario, "--policy", &policy])
        .assert()
        .code(3);
    let said = String::from_utf8_lossy(&done.get_output().stderr).into_owned();
    assert!(
        said.starts_with("error: cannot start Python as `/nowhere/python3`")
            && said.contains("WAYKEEPER_PYTHON")
    );
}

#[test]
fn an_exception_in_a_step_ends_the_run_with_file_and_line() {
    let text = MINE.replace("low = [", "workloads[9]\n        low = [").replace("print(", "len(");
    let (_folder, scenario, policy) = folder("", &text);
    let run = ["run", &scenario, "--policy", &policy];
    for more in [&["--seeds", "1"][..], &["--seeds", "3", "--policy", "default"], &["--find-msl"]] {
        let done = waykeeper().args(run).args(more).assert().code(1);
        assert!(done.get_output().stdout.is_empty());
        let stderr = String::from_utf8_lossy(&done.get_output().stderr).into_owned();
        // Before it there may be a line about what is run.
        let line = stderr.lines().last().unwrap();
        let place = "mine.py:15: IndexError: list index out of range";
        assert!(line.starts_with("error: policy mine, in interval 1: ") && line.ends_with(place), "{stderr}");
        assert!(!stderr.contains("interrupted"), "{stderr}");
    }
}

/// A terminal sends Ctrl-C to all its processes, so to Python as well: while Python starts, and while it runs the file.
#[test]
fn an_interrupt_while_python_starts_is_an_interrupt() {
    let wait = "open(__file__ + '.runs', 'w')\nwhile True: pass\n";
    let (folder, scenario, policy) = folder("", &format!("{wait}{MINE}"));
    // An interpreter that has not begun to run anything.
    let slow = folder.path().join("slow");
    std::fs::write(&slow, "#!/bin/sh\n: > \"$0.runs\"\nwhile :; do :; done\n").unwrap();
    std::fs::set_permissions(&slow, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for (python, runs) in
        [("python3", format!("{policy}.runs")), (slow.to_str().unwrap(), format!("{}.runs", slow.display()))]
    {
        let run = std::process::Command::new(assert_cmd::cargo::cargo_bin("waykeeper"))
            .args(["run", &scenario, "--policy", &policy])
            .env("WAYKEEPER_PYTHON", python)
            .process_group(0)
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        wait_for("the interpreter", || Path::new(&runs).exists());
        let group = rustix::process::Pid::from_child(&run);
        rustix::process::kill_process_group(group, rustix::process::Signal::INT).unwrap();
        let done = run.wait_with_output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!((done.status.code(), said.as_str()), (Some(130), "error: interrupted\n"), "{python}");
    }
}

#[test]
fn a_policy_that_hangs_ends_with_a_killed_run() {
    let text = MINE.replace("low = [", "open(__file__ + '.pid', 'w').write(str(__import__('os').getpid()))\n        while True: pass\n        low = [");
    let (_folder, scenario, policy) = folder("", &text);
    let program = assert_cmd::cargo::cargo_bin("waykeeper");
    let mut run =
        std::process::Command::new(program).args(["run", &scenario, "--policy", &policy]).spawn().unwrap();
    let pid = || std::fs::read_to_string(format!("{policy}.pid")).ok().filter(|pid| !pid.is_empty());
    let process = format!("/proc/{}/cmdline", wait_for_some("the policy", pid));
    assert!(Path::new(&process).exists());
    run.kill().unwrap();
    run.wait().unwrap();
    // Its entry may stay until it is reaped; its command line does not.
    wait_for("the end of the process", || std::fs::read(&process).map_or(true, |line| line.is_empty()));
}
