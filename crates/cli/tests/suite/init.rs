//! `waykeeper init` on a mounted virtual host: the file it writes is one that the daemon accepts and runs with, the host is
//! as before, and nothing is overwritten unasked. Needs root and /dev/fuse.

use crate::common::daemon::Setup;
use crate::common::{refused, waykeeper};
use rustix::process::Signal;
use serde_json::json;
use std::path::Path;
use waykeeper_testbed::plain_tree::PlainTree;
use waykeeper_testbed::{MountedHost, SCENARIO, assert_same_state, scenario, wall_clock};

/// A host whose clock runs, with so little traffic that the model keeps up on a busy machine.
fn machine() -> MountedHost {
    let light = SCENARIO.replace("time_factor = 5", "time_factor = 500");
    MountedHost::with(scenario("gold-6140", &light), wall_clock(256))
}

/// Runs init; its output and errors together.
fn init(machine: &MountedHost, more: &[&str]) -> (Option<i32>, String) {
    let root = machine.root().prefix().display().to_string();
    let done = waykeeper().args(["init", "--root", &root]).args(more).output().unwrap();
    let said = [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (done.status.code(), said.concat())
}

#[test]
fn the_written_configuration_is_accepted_and_a_daemon_runs_with_it() {
    let machine = machine();
    let found = machine.state();
    let file = machine.folder().join("first.toml");
    let out = file.display().to_string();
    let (code, said) = init(&machine, &["--out", &out, "--observe-for", "2", "--program-counters"]);
    assert_eq!(code, Some(0), "{said}");
    for wanted in [
        "first.toml is written: 3 tenants, 1 of them of high priority",
        "it forwards packets",
        "observed for 2 s",
        "devices: they write ",
        "masks and DCA ways: 3 of 3 tenants, 2 of them of low priority, may evict device data from 0x600",
        "who misses: ",
        "worth: ",
        "this host lacks (waykeeper doctor)",
        "--check",
    ] {
        assert!(said.contains(wanted), "{wanted}\n{said}");
    }
    assert_same_state(&machine.state(), &found, "after init");

    let check = waykeeper().args(["daemon", "--check", "--config", &out]).output().unwrap();
    let checked = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(check.status.success() && checked.contains("# tenant l2fwd "), "{checked}");
    let setup =
        Setup { config: file.clone(), journal: machine.journal(), socket: machine.folder().join("socket") };
    let paths = [
        format!("daemon.journal={}", setup.journal.display()),
        format!("socket.path={}", setup.socket.display()),
    ];
    let mut daemon =
        setup.start_with(&["--set", &paths[0], "--set", &paths[1], "--set", "daemon.period_s=0.05"]);
    assert!(daemon.in_charge(), "{}", daemon.log());
    let status = daemon.answer(json!({"do": "status"}));
    let tenants = status["ok"]["tenants"].as_array().map_or(0, Vec::len);
    assert_eq!(tenants, 3, "{status}");
    daemon.ends_by(Signal::TERM);
    assert_same_state(&machine.state(), &found, "after the daemon");
}

#[test]
fn an_existing_file_is_only_replaced_with_force_and_a_dash_prints() {
    let machine = machine();
    let file = machine.folder().join("first.toml");
    let out = file.display().to_string();
    std::fs::write(&file, "# mine\n").unwrap();
    let root = machine.root().prefix().display().to_string();
    refused(
        &["init", "--root", &root, "--out", &out],
        2,
        &["first.toml: it exists already; name another file, or add --force"],
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "# mine\n");
    let (code, said) = init(&machine, &["--out", &out, "--force", "--observe-for", "0"]);
    assert_eq!(code, Some(0), "{said}");
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(written.contains("[[tenant]]\nname = \"l2fwd\"\nunit = \"l2fwd.service\""), "{written}");
    assert!(!said.contains("observed for"), "{said}");
    let (code, printed) = init(&machine, &["--out", "-"]);
    assert_eq!((code, printed.replace("--config FILE", &format!("--config {out}"))), (Some(0), written));
    // Nothing lies beside it.
    let names = |folder: &Path| std::fs::read_dir(folder).unwrap().count();
    assert_eq!(names(machine.folder()), 2, "the host and the file");
}

/// Neither a mask nor a counter: a configuration would be of no use, and the two commands that it names would fail.
#[test]
fn a_host_of_which_nothing_can_be_seen_or_set_gets_no_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let (host, out) = (folder.path().join("host"), folder.path().join("w.toml"));
    std::fs::create_dir_all(host.join("proc")).unwrap();
    let (host, out) = (host.display().to_string(), out.display().to_string());
    let why = ["no configuration is written", "cpu/online", "next: waykeeper top --scenario"];
    refused(&["init", "--root", &host, "--out", &out], 3, &why);
    assert!(!std::path::Path::new(&out).exists());
    // What is printed may be for another host; the check says what this one lacks.
    let printed = waykeeper().args(["init", "--root", &host, "--out", "-"]).assert().success();
    std::fs::write(&out, &printed.get_output().stdout).unwrap();
    let warned = String::from_utf8_lossy(&printed.get_output().stderr).into_owned();
    assert!(warned.starts_with("warning: nothing of this host's cache can be seen or set: "), "{warned}");
    let check = waykeeper().args(["daemon", "--check", "--config", &out, "--root", &host]).assert().success();
    let warned = String::from_utf8_lossy(&check.get_output().stderr).into_owned();
    assert!(warned.starts_with("warning: the daemon would not start on this host: "), "{warned}");
    // What no tenant mends comes before what one would.
    let tree = PlainTree::skylake();
    let root = tree.root().display().to_string();
    let config = tree.path("none.toml").display().to_string();
    refused(&["daemon", "--config", &config, "--root", &root], 2, &["No such file"]);
    std::fs::write(&config, "").unwrap();
    refused(&["daemon", "--config", &config, "--root", &root], 2, &["none.toml: no tenant is declared"]);
    tree.remove("sys/fs/resctrl");
    refused(&["daemon", "--config", &config, "--root", &root], 3, &["this kernel offers no resctrl"]);
}

/// The commands after `next:`.
fn next_commands(said: &str) -> Vec<String> {
    let next = said.rsplit_once("next: ").unwrap().1.lines();
    let commands = next.filter_map(|line| line.find("waykeeper ").map(|at| line[at..].to_owned()));
    commands.collect()
}

/// A host without tenants can be managed later; a command that needs one would be refused now.
#[test]
fn the_next_steps_that_are_named_work() {
    let tree = PlainTree::skylake();
    let root = tree.root().display().to_string();
    let out = tree.path("w.toml").display().to_string();
    let said = |more: &[&str]| {
        let arguments =
            [&["init", "--root", &root, "--out", &out, "--force", "--observe-for", "0"], more].concat();
        let done = waykeeper().args(arguments).assert().success();
        String::from_utf8_lossy(&done.get_output().stdout).into_owned()
    };
    assert_eq!(next_commands(&said(&[])), [format!("waykeeper daemon --config {out} --observe")]);
    // Nothing to manage, DDIO to turn, and observation.
    tree.remove("sys/fs/resctrl");
    tree.write("proc/filesystems", "nodev\tsysfs\n");
    let observe = format!("waykeeper daemon --config {out} --observe");
    assert_eq!(next_commands(&said(&[])), [format!("waykeeper ddio show --root {root}"), observe.clone()]);
    waykeeper().args(["ddio", "show", "--root", &root]).assert().success();
    // Only observation.
    tree.remove("dev/cpu");
    tree.remove("sys/bus/pci");
    assert_eq!(next_commands(&said(&[])), [observe]);
    let check = |more: &[&str]| {
        let fixed = ["daemon", "--config", &out, "--observe", "--check"];
        let done = waykeeper().args([&fixed, more].concat()).assert().success();
        String::from_utf8_lossy(&done.get_output().stderr).into_owned()
    };
    let socket = format!("socket.path={}", tree.path("socket").display());
    assert_eq!(check(&["--set", &socket]), "");
    let warned = check(&["--set", &socket, "--set", "socket.group=no-such-group"]);
    assert!(
        warned.contains("would not start on this host: group `no-such-group` does not exist"),
        "{warned}"
    );
    let deep = format!("socket.path={}", tree.path("none/run/socket").display());
    assert!(check(&["--set", &deep]).contains("cannot create its directory"));
}

#[test]
fn what_is_wrong_is_one_line_before_anything_is_observed() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().display().to_string();
    refused(&["init", "--root", "/nonexistent", "--out", "-"], 2, &["--root /nonexistent: No such file"]);
    for force in [&[][..], &["--force"]] {
        let refuse = |out: &str, why: &str| {
            refused(&[&["init", "--root", &here, "--out", out], force].concat(), 2, &[why]);
        };
        refuse(&here, "it is a directory; name a file");
    }
    let deep = format!("{here}/none/w.toml");
    refused(&["init", "--root", &here, "--out", &deep], 2, &["there is no directory ", "/none"]);
    refused(&["init", "--observe-for", "-1"], 2, &["`-1` is not a time"]);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}
