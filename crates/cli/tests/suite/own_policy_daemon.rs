//! A policy from a file in `waykeeper daemon`: it sets knobs, is replaced and reloaded, may fail, and every knob comes back.

use crate::common::daemon;

use daemon::Setup;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use waykeeper_testbed::{MountedHost, assert_same_state};

/// Gives `scan` two ways; `MORE` is what else it does in a step.
const MINE: &str = r#"import os
import waykeeper as wk


class Mine(wk.Policy):
    """Two ways for scan."""

    name = "mine"
    mask = 0x018

    def step(self, workloads, seen):
        "MORE"
        return wk.Plan(masks={w: self.mask for w in workloads if w.name == "scan"})
"#;

/// Masks of three CPUs, as resctrl shows them.
fn masks(machine: &MountedHost) -> [String; 3] {
    [0, 2, 3].map(|cpu| machine.mask_of(cpu))
}

/// Longer steps than those of other tests, so that Python decides in time on a busy machine.
const PERIOD: [&str; 2] = ["--set", "daemon.period_s=0.5"];

/// The section of the configuration.
fn section(file: &str) -> String {
    format!("[policy]\nfile = {file:?}\ndeadline_ms = 450\n")
}

fn file(machine: &MountedHost, text: &str) -> String {
    let path = machine.folder().join("mine.py");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// What `waykeeper daemon --check` prints: on success its standard output, else the one line of its error.
fn check(setup: &Setup) -> Result<String, String> {
    let done = setup.command().args(PERIOD).arg("--check").output().unwrap();
    let [out, error] = [done.stdout, done.stderr].map(|text| String::from_utf8(text).unwrap());
    if done.status.success() {
        return Ok(out);
    }
    assert_eq!((done.status.code(), error.lines().count()), (Some(2), 1), "{error}");
    Err(error)
}

#[test]
fn a_policy_from_a_file_manages_a_host_and_every_knob_comes_back() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let before = masks(&machine);
    let path = file(&machine, MINE);
    let setup = Setup::plain(&machine, &section(&path));
    let checked = check(&setup).unwrap();
    let name = checked.lines().find(|line| line.starts_with("name = \"mine\"")).unwrap();
    assert!(name.ends_with("waykeeper.toml:8") && checked.contains("deadline_ms = 450"), "{checked}");
    assert_same_state(&machine.state(), &found, "after --check");

    let mut daemon = setup.start_with(&PERIOD);
    daemon.comes("its mask", |_| masks(&machine)[2] != before[2]);
    let mine = masks(&machine);
    let status = daemon.answer(json!({"do": "policy"}));
    assert_eq!(status["ok"]["policy"], "mine", "{status}");
    let known = status["ok"]["known"].as_array().unwrap();
    assert_eq!((known.first().unwrap(), known.last().unwrap()), (&json!("waykeeper"), &json!("mine")));

    // Between the file's policy and built-in ones; only the configuration names files.
    let set = |name: &str| json!({"do": "set-policy", "name": name});
    assert_eq!(
        daemon.answer(set("none"))["ok"]["text"],
        "policy none replaces mine, with its default settings"
    );
    daemon.comes("the mask as found", |_| masks(&machine) == before);
    assert_eq!(
        daemon.answer(set("mine"))["ok"]["text"],
        "policy mine replaces none, with its default settings"
    );
    daemon.comes("its mask again", |_| masks(&machine) == mine);
    for name in [path.as_str(), "min"] {
        let refused = daemon.answer(set(name));
        assert!(refused["error"]["text"].as_str().unwrap().starts_with("unknown policy `"), "{refused}");
    }

    // A changed file is a new process; a broken one changes nothing.
    file(&machine, &MINE.replace("0x018", "0x300"));
    let reloaded = daemon.answer(json!({"do": "reload"}));
    let text = reloaded["ok"]["text"].as_str().unwrap_or_else(|| panic!("{reloaded}"));
    assert_eq!(
        text,
        format!("the policy's file {path} changed; policy mine starts anew with its default settings")
    );
    daemon.comes("the other mask", |_| masks(&machine)[2] != before[2] && masks(&machine)[2] != mine[2]);
    let other = masks(&machine);
    file(&machine, &MINE.replace("0x018", "+"));
    let refused = daemon.answer(json!({"do": "reload"}));
    assert!(refused["error"]["text"].as_str().unwrap().contains("mine.py:9: SyntaxError"), "{refused}");
    assert_eq!(masks(&machine), other);

    daemon.ends_by(Signal::TERM);
    assert_same_state(&machine.state(), &found, "after SIGTERM");
}

#[test]
fn a_policy_that_ends_is_started_again_and_its_knobs_stay() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let before = masks(&machine);
    // Once, in the first process, when its mask is set. The process itself may write no file: the test removes this one.
    let flag = machine.folder().join("flag");
    std::fs::write(&flag, "").unwrap();
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(machine.folder(), open).unwrap();
    let ends = format!("if seen.mask(workloads[-1]) == self.mask and os.path.exists({flag:?}): os._exit(3)");
    let path =
        file(&machine, &MINE.replace("\"MORE\"", &ends).replace("w.name == \"scan\"", "w is workloads[-1]"));
    let mut daemon = Setup::plain(&machine, &section(&path)).start_with(&PERIOD);
    daemon.tells(
        "its process ended (exit status: 3); the knobs keep their values, and it is started again in 1 s",
    );
    let changed = masks(&machine);
    assert_ne!(changed, before);
    let is_told = |status: &Value| {
        let standing = status["ok"]["standing"].as_array().cloned().unwrap_or_default();
        standing
            .iter()
            .any(|one| one["kind"] == "policy" && one["text"].as_str().unwrap().starts_with("policy mine: "))
    };
    daemon.comes("the problem", |daemon| {
        daemon.ask(json!({"do": "status"})).is_some_and(|status| is_told(&status))
    });
    std::fs::remove_file(&flag).unwrap();
    daemon.tells("policy mine decides again");
    assert_eq!(masks(&machine), changed);
    let log = daemon.ends_by(Signal::TERM);
    assert!(log.contains("action=\"policy-dead\"") && log.contains("action=\"policy-back\""), "{log}");
    assert_same_state(&machine.state(), &found, "after SIGTERM");
}

#[test]
fn a_check_tries_the_file_and_says_what_is_wrong() {
    let machine = MountedHost::new("gold-6140");
    let path = file(&machine, MINE);
    let setup = Setup::plain(&machine, &section(&path));
    let refused = |text: &str, part: &str| {
        file(&machine, text);
        let said = check(&setup).unwrap_err();
        let place = format!("error: {}:8: policy.file: ", setup.config.display());
        assert!(said.starts_with(&place) && said.contains(part), "{said}");
    };
    refused("x = 1\n", "mine.py has no policy");
    refused(&MINE.replace("import os", "import waykeeper.run"), "mine.py:1: ModuleNotFoundError");
    refused(&MINE.replace("\"mine\"", "\"default\""), "the name default is that of a built-in policy");
    file(&machine, MINE);
    setup.write(&machine, &format!("{}settings = {{ limit = 3 }}\n", section(&path)));
    // The class of the test takes any setting; one with an `__init__` of its own refuses it.
    check(&setup).unwrap();
    file(
        &machine,
        &MINE.replace("    mask = 0x018", "    def __init__(self, ways):\n        self.mask = ways"),
    );
    let said = check(&setup).unwrap_err();
    assert!(
        said.contains("waykeeper.toml:10: ") && said.contains("TypeError") && said.contains("'limit'"),
        "{said}"
    );
    file(&machine, MINE);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(check(&setup).unwrap_err().contains("can be written by other users"));
    // `restore` needs the configuration and not the policy.
    std::fs::remove_file(&path).unwrap();
    let mut restore = Command::new(env!("CARGO_BIN_EXE_waykeeper"));
    let done = restore.args(["restore", "--config"]).arg(&setup.config).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
