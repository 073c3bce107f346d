//! `waykeeper probe` as a user calls it: answers, files, refusals, and how it ends.

use crate::common;

use common::{refused, waykeeper};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use waykeeper_linux_host::profile::{KnobState, MachineProfile, Writes};
use waykeeper_machine::ScenarioSource;
use waykeeper_testbed::plain_tree::PlainTree;
use waykeeper_testbed::{MountedHost, wall_clock};

#[test]
fn the_procedures_are_listed() {
    let done = waykeeper().args(["probe", "list", "--json"]).assert().success();
    let list: Value = serde_json::from_slice(&done.get_output().stdout).unwrap();
    let names: Vec<&str> = list.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["ports", "dca-ways", "inclusive-ways", "ways-register", "sensitivity", "sweeps"]);
}

#[test]
fn ports_and_the_register_are_reported_and_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let mut command = waykeeper();
    command.args([
        "probe",
        "run",
        "ports",
        "ways-register",
        "--quick",
        "--json",
        "--set",
        "nic.nic1.remote=true",
        "--out",
    ]);
    let done = command.arg(&out).assert().success();
    let reported: Value = serde_json::from_slice(&done.get_output().stdout).unwrap();
    let answers: Vec<&str> =
        reported["rows"].as_array().unwrap().iter().map(|row| row["answer"].as_str().unwrap()).collect();
    let expected = [
        "acts",
        "2 to 11 ways, from 0x600 on, keeps 0x600",
        "acts",
        "into this LLC",
        "cannot be set here",
        "past this LLC: remote",
    ];
    assert_eq!(answers, expected);
    let profile = MachineProfile::read(&out.join("profile.toml")).unwrap().unwrap();
    assert_eq!(profile.register.map(|register| register.state), Some(KnobState::Acts));
    let ports: Vec<_> = profile.port.iter().map(|port| (port.switch, port.writes)).collect();
    assert_eq!(ports, [(KnobState::Acts, Writes::ThisLlc), (KnobState::Absent, Writes::Past)]);
    assert_eq!((profile.ways.dca, profile.host.llc_ways), (None, 11), "ways were not asked for");
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("past this LLC: remote") && page.contains("id=\"findings\""));
    assert!(!page.contains("src=") && !page.contains("<link"), "the page fetches nothing");
    let mut names: Vec<_> =
        std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["findings.json", "profile.toml", "report.html"]);
}

#[test]
fn curves_are_drawn_and_sweeps_are_tables() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = waykeeper();
    command.args(["probe", "run", "sweeps", "--quick", "--sets", "1/64", "--out"]).arg(folder.path());
    let done = command.assert().success();
    let text = String::from_utf8(done.get_output().stdout.clone()).unwrap();
    for part in [
        "sweep: DCA ways",
        "sweep: RX ring, descriptors",
        "sweep: packet, bytes",
        "sweep: offered load, Gb/s",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert_eq!(page.matches("<div data-chart=").count(), 4, "one chart for each sweep");
}

#[test]
fn an_unknown_result_is_reported_as_unknown_and_is_no_success() {
    let idle = ["--set", "nic.nic0.offered_gbps=0.01", "--set", "nic.nic1.offered_gbps=0.01"];
    let arguments = [&["probe", "run", "dca-ways", "--quick", "--sets", "1/64"][..], &idle].concat();
    let done = waykeeper().args(&arguments).assert().code(3);
    let text = String::from_utf8(done.get_output().stdout.clone()).unwrap();
    assert!(
        text.contains("cannot tell") && text.contains("what would help: put traffic on a device"),
        "{text}"
    );
}

#[test]
fn mistakes_are_named_and_nothing_begins() {
    refused(&["probe", "run", "dca-weys"], 2, &["unknown procedure `dca-weys`, did you mean `dca-ways`?"]);
    refused(&["probe", "run", "ports", "--victim", "chas"], 2, &["unknown tenant `chas`", "scan, chase"]);
    refused(&["probe", "run", "ports", "--scenario", "prob"], 2, &["unknown scenario `prob`"]);
    refused(&["probe", "run", "ports", "--root", "/nowhere-at-all"], 2, &["/nowhere-at-all"]);
    let tree = PlainTree::skylake();
    let root = tree.root().display().to_string();
    refused(&["probe", "run", "ports", "--root", &root], 2, &["no tenants are given"]);
    refused(&["probe", "run", "ports", "--root", &root, "--", "sleep", "9"], 2, &["--cores LIST"]);
    let on = |cores: &str, command: &str, parts: &[&str]| {
        refused(&["probe", "run", "ports", "--root", &root, "--cores", cores, "--", command], 2, parts);
    };
    on("0,1023", "sleep", &["--cores 0,1023: CPU 1023 is not available; 0", " are"]);
    on("0", "/nonexistent/command", &["cannot run /nonexistent/command on CPUs 0: No such file"]);
    // What no argument mends comes first.
    tree.remove("sys/fs/resctrl");
    refused(&["probe", "run", "ports", "--root", &root], 3, &["this kernel offers no resctrl"]);
}

#[test]
fn the_place_of_the_result_is_checked_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().display().to_string();
    std::fs::write(folder.path().join("findings.json"), "theirs").unwrap();
    // With every set the probe would take minutes.
    let arguments = ["probe", "run", "all", "--sets", "exact", "--out"];
    refused(&[&arguments[..], &[&out]].concat(), 2, &["findings.json exists already", "--force"]);
    let below = folder.path().join("findings.json/out").display().to_string();
    refused(&[&arguments[..], &[&below]].concat(), 2, &["findings.json is no directory"]);
    assert_eq!(std::fs::read_to_string(folder.path().join("findings.json")).unwrap(), "theirs");
}

#[test]
fn ctrl_c_ends_it_with_130() {
    let binary = assert_cmd::cargo::cargo_bin!("waykeeper");
    let mut command = Command::new(binary);
    let folder = tempfile::tempdir().unwrap();
    // Every set, so that it takes long enough to be interrupted.
    command
        .args(["probe", "run", "all", "--sets", "exact", "--out"])
        .arg(folder.path().join("out"))
        .stderr(Stdio::piped());
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    common::wait_until_caught(&child, rustix::process::Signal::INT);
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let done = child.wait_with_output().unwrap();
    let error = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(130), "{error}");
    assert!(error.contains("interrupted; all knobs are restored"), "{error}");
}

/// The scenario `probe` as a mounted host in wall-clock time, and a file that declares its first forwarder as a tenant.
fn bench() -> (MountedHost, PathBuf) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/probe.toml");
    let scenario = ScenarioSource::open(&path).unwrap().read().unwrap_or_else(|error| panic!("{error}"));
    let machine = MountedHost::with(Arc::new(scenario), wall_clock(64));
    let tenants = machine.folder().join("tenants.toml");
    let device = machine.tenants[0].devices[0];
    let text = format!(
        "[[tenant]]\nname = \"headers\"\npriority = \"high\"\nkind = \"network-io\"\ncores = \
         \"1\"\ndevices = [\"{device}\"]\n"
    );
    std::fs::write(&tenants, text).unwrap();
    (machine, tenants)
}

/// `waykeeper probe run ports` on that host, with more words.
fn ports(machine: &MountedHost, tenants: &Path, more: &[&str]) -> assert_cmd::assert::Assert {
    let mut command = waykeeper();
    command.args(["probe", "run", "ports", "--quick", "--json", "--root"]).arg(machine.root().prefix());
    command.arg("--tenants").arg(tenants).arg("--journal").arg(machine.journal()).args(more).assert()
}

#[test]
fn memload_brings_load_to_a_host_and_its_profile_is_put_where_it_is_looked_for() {
    let (machine, tenants) = bench();
    let target = machine.folder().join("load.img");
    std::fs::write(&target, vec![0; 1 << 20]).unwrap();
    let before = machine.state();
    let done = ports(&machine, &tenants, &["--save", "--cores", "0", "--memload", target.to_str().unwrap()]);
    let place = waykeeper_linux_host::profile::usual_path(&machine.root());
    let profile = MachineProfile::read(&place).unwrap();
    let _ = std::fs::remove_file(&place);
    let done = done.success();
    let reported: Value = serde_json::from_slice(&done.get_output().stdout).unwrap();
    let answers: Vec<_> =
        reported["rows"].as_array().unwrap().iter().map(|row| row["answer"].clone()).collect();
    assert_eq!(answers, ["acts", "into this LLC", "acts", "into this LLC"], "{reported:#}");
    assert_eq!(profile.expect("--save wrote it").port.len(), 2);
    waykeeper_testbed::assert_same_state(&machine.state(), &before, "after a probe");
}

#[test]
fn a_command_that_does_not_last_ends_the_probe_and_nothing_stays_turned() {
    let (machine, tenants) = bench();
    let before = machine.state();
    let failed = |more: &[&str], parts: &[&str]| {
        let done = ports(&machine, &tenants, more);
        let error = String::from_utf8(done.get_output().stderr.clone()).unwrap();
        assert_eq!(done.get_output().status.code(), Some(1), "{error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    };
    failed(
        &["--cores", "0", "--", "false"],
        &["false ended before the probe did (exit status: 1); all knobs are restored"],
    );
    failed(
        &["--cores", "0", "--memload", "/nowhere/x"],
        &["memload ended before", "(exit status: 2): /nowhere/x: No such file"],
    );
    waykeeper_testbed::assert_same_state(&machine.state(), &before, "after a probe");
    let done =
        ports(&machine, &tenants, &["--cores", "0", "--as-io", "--device", "eth77", "--", "sleep", "9"]);
    let error = String::from_utf8(done.get_output().stderr.clone()).unwrap();
    assert!(
        done.get_output().status.code() == Some(2) && error.contains("there is no device `eth77`"),
        "{error}"
    );
}
