//! Names of devices and units on the virtual host: every command that takes one finds the same device, and says the same
//! of a name that no device has.

use crate::common::daemon::Setup;
use crate::common::waykeeper;

use rustix::process::Signal;
use serde_json::{Value, json};
use std::path::Path;
use waykeeper_testbed::{MountedHost, SCENARIO, scenario, wall_clock};

/// Message about a mistyped name, wherever it is used.
const MISTYPED: &str = "there is no device `nvm0`; did you mean `nvme0`?";

/// A NIC with a virtual function behind 16:00.0, four drives behind 5d:00.0, and a unit with a dash in its name.
fn machine() -> MountedHost {
    let text = SCENARIO.replacen("cores = \"0-1\"", "cores = \"0-1\"\nshare = 1", 1).replacen(
        "name = \"fio\"",
        "name = \"fio-server\"",
        1,
    );
    MountedHost::with(scenario("gold-6140", &text), wall_clock(64))
}

/// Runs the program on that host; returns its exit code, standard output and standard error.
fn run(machine: &MountedHost, words: &[&str], more: &[&str]) -> (i32, String, String) {
    let mut command = waykeeper();
    command.args(words).arg("--root").arg(machine.root().prefix()).arg("--journal").arg(machine.journal());
    let done = command.args(more).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (done.status.code().unwrap(), text(done.stdout), text(done.stderr))
}

#[test]
fn ddio_finds_a_device_by_each_of_its_names() {
    let machine = machine();
    let before = machine.state();
    for (name, port) in [
        ("nic0", "0000:16:00.0"),
        ("mlx5_0", "0000:16:00.0"),
        ("0000:17:00.0", "0000:16:00.0"),
        ("17:00.0", "0000:16:00.0"),
        ("nic0v0", "0000:16:00.0"),
        ("nic0/vf0", "0000:16:00.0"),
        ("17:00.0/vf*", "0000:16:00.0"),
        ("16:00.0", "0000:16:00.0"),
        ("nvme0", "0000:5d:00.0"),
        ("nvme3n1", "0000:5d:00.0"),
        ("ng1n1", "0000:5d:00.0"),
    ] {
        let (code, out, error) = run(&machine, &["ddio", "off", name, "--dry-run", "--json"], &[]);
        assert_eq!(code, 0, "{name}: {error}");
        let plan: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(plan["steps"][0]["address"], port, "{name}: {out}");
        assert_eq!(plan["steps"].as_array().unwrap().len(), 1, "{name}: {out}");
    }
    for (name, said) in [
        ("nvm0", MISTYPED),
        ("lo", "device `lo` is not part of a PCI device (/sys/class/net/lo links to "),
        ("nic0/vf1", "device `nic0` has no virtual function `1`; it has 0 alone"),
        ("17:00.9", "`17:00.9` is not a PCI address"),
    ] {
        let (code, _, error) = run(&machine, &["ddio", "off", name, "--dry-run"], &[]);
        assert!(code == 2 && error.contains(said), "{name}: {code} {error}");
    }
    waykeeper_testbed::assert_same_state(&machine.state(), &before, "after dry runs");
}

/// `[[tenant]]` tables for both the daemon and the probe. The last tenant's device is mistyped.
const TENANTS: &str = r#"
[[tenant]]
name = "db"
priority = "high"
unit = "fio-server.service"
devices = ["nvme0", "nvme1"]

[[tenant]]
name = "net"
cores = "0-1"
devices = ["nic0"]
mask = "0x600"
stack = true

[[tenant]]
name = "late"
devices = "nvm0"
"#;

#[test]
fn the_daemon_and_the_probe_read_one_file_and_find_the_same_tenants() {
    let machine = machine();
    let setup = Setup::plain(&machine, "");
    let text = setup.text(&machine, "[policy]\nname = \"none\"");
    let (text, _) = text.split_once("[[tenant]]").unwrap();
    std::fs::write(&setup.config, format!("{text}{TENANTS}")).unwrap();
    let mut daemon = setup.start();
    daemon.tells(&format!("tenant late: {MISTYPED}"));
    let status = |daemon: &crate::common::daemon::Daemon| {
        daemon.ask(json!({"do": "status"})).map_or(Value::Null, |answer| answer["ok"].clone())
    };
    daemon.comes("two tenants", |daemon| {
        status(daemon)["tenants"].as_array().is_some_and(|all| all.len() == 2)
    });
    let reported = status(&daemon);
    let tenants = reported["tenants"].as_array().unwrap();
    let named =
        |index: usize| (&tenants[index]["name"], &tenants[index]["cores"], &tenants[index]["devices"]);
    assert_eq!(named(0), (&json!("db"), &json!("2"), &json!(["nvme0", "nvme1"])), "{reported}");
    assert_eq!(named(1), (&json!("net"), &json!("0-1"), &json!(["nic0"])), "{reported}");
    let mut command = waykeeper();
    let page = command.args(["status", "--socket"]).arg(&setup.socket).output().unwrap();
    let page = String::from_utf8(page.stdout).unwrap();
    assert!(page.contains(&format!("\n  tenant late: {MISTYPED}\n")), "{page}");
    daemon.ends_by(Signal::TERM);

    // The probe takes the daemon's file; an unknown co-runner makes it name those it found and end.
    let probe = |file: &Path, more: &[&str]| {
        let file = file.to_str().unwrap();
        run(&machine, &["probe", "run", "ports", "--tenants", file], more)
    };
    let (code, _, error) = probe(&setup.config, &["--victim", "chas"]);
    assert!(code == 2 && error.contains("unknown tenant `chas`; known are db, net\n"), "{code} {error}");
    assert!(error.contains(&format!("note: tenant late: {MISTYPED}\n")), "{error}");

    let file = machine.folder().join("late.toml");
    std::fs::write(&file, "[[tenant]]\nname = \"late\"\nunit = \"fio-servr.service\"\n").unwrap();
    let (code, _, error) = probe(&file, &[]);
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("late.toml: none of its tenants is present on that host"), "{error}");
    assert!(error.contains("belongs to this tenant; did you mean `fio-server.service`?"), "{error}");
}

#[test]
fn a_command_of_the_probe_is_given_devices_by_name() {
    let machine = machine();
    let named = |device: &str, more: &[&str]| {
        let words = ["probe", "run", "ports", "--quick", "--cores", "0", "--as-io", "--device", device];
        run(&machine, &words, &[more, &["--", "sleep", "60"]].concat())
    };
    let (code, _, error) = named("nvm0", &[]);
    assert!(code == 2 && error.contains(MISTYPED), "{code} {error}");
    let (code, _, error) = named("nvme2n1", &["--victim", "chas"]);
    assert!(code == 2 && error.contains("unknown tenant `chas`; known are command\n"), "{code} {error}");
}
