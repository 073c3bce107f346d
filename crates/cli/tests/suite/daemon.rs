//! `waykeeper daemon` as an operator runs it: signals, files, orders, and a host whose knobs are restored at the end.

use crate::common::daemon;

use daemon::{Daemon, Setup};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use waykeeper_testbed::faults::{Calls, FaultRule, FileFault};
use waykeeper_testbed::{MountedHost, assert_same_state};

const FIXED: &str =
    "[policy]\nname = \"fixed\"\n[policy.settings]\nmasks = { l2fwd = \"0x600\", scan = \"0x003\" }";

/// Masks of three CPUs, as resctrl shows them.
fn masks(machine: &MountedHost) -> [String; 3] {
    [0, 2, 3].map(|cpu| machine.mask_of(cpu))
}

#[test]
fn a_daemon_lives_through_reloads_orders_and_pauses_and_leaves_everything_as_it_was() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let before = masks(&machine);
    let setup = Setup::plain(&machine, FIXED);
    let mut daemon = setup.start();
    daemon.comes("fixed masks", |_| masks(&machine) != before);
    let fixed = masks(&machine);
    assert_ne!(fixed[0], fixed[2]);

    // A bad file changes nothing, and the log names the fault.
    setup.write(&machine, "[polcy]\nname = \"a4\"");
    daemon.signal(Signal::HUP);
    daemon.tells("unknown section [polcy]; did you mean `policy`?");
    assert_eq!(masks(&machine), fixed);
    // A glob that is too deep for its compiler, by signal and through the socket.
    let nested = format!("{}b{}", "{a,".repeat(130), "}".repeat(130));
    setup.write(&machine, &format!("{FIXED}\n[[tenant]]\nname = \"deep\"\nprocess = \"{nested}\""));
    daemon.signal(Signal::HUP);
    daemon.tells("has 130 opening braces; a glob has at most 16");
    let refused = daemon.answer(json!({"do": "reload"}));
    assert!(refused["error"]["text"].as_str().unwrap().contains("process: `{a,{a,{a,"), "{refused}");
    assert_eq!(masks(&machine), fixed);
    let moved = setup.text(&machine, FIXED).replace("[daemon]", "[daemon]\nmode = \"observe\"");
    std::fs::write(&setup.config, moved).unwrap();
    daemon.signal(Signal::HUP);
    daemon.tells("daemon.mode is \"observe\", was \"manage\": this key cannot change while the daemon runs");

    setup.write(&machine, &FIXED.replace("0x600", "0x700"));
    daemon.signal(Signal::HUP);
    daemon.comes("other masks", |_| masks(&machine)[0] != fixed[0]);

    let refused = daemon.answer(json!({"do": "set-policy", "name": "fixd"}));
    assert!(refused["error"]["text"].as_str().unwrap().contains("did you mean `fixed`?"), "{refused}");
    let settings = json!({"masks": {"fio": "0x00c"}});
    let set = daemon.answer(json!({"do": "set-policy", "name": "fixed", "settings": settings}));
    assert_eq!(set["ok"]["text"], "policy fixed starts anew with masks={ fio = \"0x00c\" }");
    daemon.comes("the masks of the order", |_| {
        masks(&machine)[1] != fixed[1] && masks(&machine)[0] == before[0]
    });

    let held = masks(&machine);
    assert!(daemon.answer(json!({"do": "pause"}))["ok"].is_object());
    assert_eq!(masks(&machine), held);
    assert!(daemon.answer(json!({"do": "pause", "release": true}))["ok"].is_object());
    assert_eq!(masks(&machine), before);
    assert!(daemon.answer(json!({"do": "resume"}))["ok"].is_object());
    daemon.comes("the masks from before the pause", |_| masks(&machine) == held);
    let status = daemon.answer(json!({"do": "status"}));
    assert_eq!(status["ok"]["policy"], "fixed", "{status}");

    daemon.ends_by(Signal::TERM);
    assert_same_state(&machine.state(), &found, "after SIGTERM");
    assert!(!setup.journal.exists() && !setup.socket.exists());
}

#[test]
fn status_finds_the_daemon_of_a_root_and_says_who_shares_a_class() {
    let machine = MountedHost::new("gold-6140");
    let args = ["--set", "socket.path=usual", "--set", "limits.classes=2"];
    let mut daemon = Setup::plain(&machine, "[policy]\nname = \"none\"").start_with(&args);
    let status = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_waykeeper"));
        let output =
            command.args(["status", "--json", "--root"]).arg(machine.root().prefix()).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).ok()
    };
    daemon.comes("three tenants", |_| {
        status().is_some_and(|status| status["tenants"].as_array().is_some_and(|all| all.len() == 3))
    });
    let status = status().unwrap();
    let tenants = status["tenants"].as_array().unwrap();
    // Two classes for three tenants: a tenant without its own class shares one, or is alone in the default group.
    let grouped: Vec<&Value> = tenants.iter().filter(|tenant| tenant["grouped_why"].is_string()).collect();
    assert!(!grouped.is_empty() && grouped.len() < 3, "{status}");
    for tenant in &grouped {
        let why = tenant["grouped_why"].as_str().unwrap();
        assert!(why.contains("all 2 classes of service") || why.contains("have only 2 classes"), "{why}");
        let reported =
            |one: &&Value| one["text"].as_str().unwrap().contains(tenant["name"].as_str().unwrap());
        let standing = status["standing"].as_array().unwrap().iter().find(reported).unwrap();
        assert_eq!(standing["kind"], "grouping", "{status}");
    }
    daemon.ends_by(Signal::TERM);
}

#[test]
fn a_second_daemon_is_refused_and_the_first_does_not_notice() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let before = masks(&machine);
    let setup = Setup::plain(&machine, FIXED);
    let mut first = setup.start();
    first.comes("fixed masks", |_| masks(&machine) != before);
    let fixed = masks(&machine);
    let elsewhere = format!("socket.path={}", machine.folder().join("second").display());
    let second = setup.command().args(["--set", &elsewhere]).output().unwrap();
    let reported = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(5), "{reported}");
    assert!(reported.contains("another waykeeper") && reported.lines().count() == 1, "{reported}");
    assert_eq!(masks(&machine), fixed);
    first.ends_by(Signal::INT);
    assert_same_state(&machine.state(), &found, "after SIGINT");
}

#[test]
fn a_dry_run_and_an_observer_write_nothing() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    for (mode, reported) in [("--dry-run", "would: mask 0x600 of l2fwd"), ("--observe", "daemon started")] {
        let setup = Setup::plain(&machine, FIXED);
        let mut daemon = setup.start_with(&[mode]);
        daemon.tells(reported);
        let status = daemon.answer(json!({"do": "status"}));
        assert_eq!(status["ok"]["mode"], mode.trim_start_matches('-'), "{status}");
        let step = status["ok"]["step"].as_u64().unwrap();
        while daemon.answer(json!({"do": "status"}))["ok"]["step"].as_u64().unwrap() < step + 3 {}
        assert_same_state(&machine.state(), &found, mode);
        assert!(!setup.journal.exists(), "{mode} journals");
        let log = daemon.ends_by(Signal::TERM);
        assert!(!log.contains("applied"), "{mode}: {log}");
        assert_same_state(&machine.state(), &found, mode);
    }
}

#[test]
fn a_killed_daemon_is_cleaned_up_after_by_the_next() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let before = masks(&machine);
    let setup = Setup::plain(&machine, FIXED);
    let mut first = setup.start();
    first.comes("fixed masks", |_| masks(&machine) != before);
    first.signal(Signal::KILL);
    first.end();
    assert_ne!(masks(&machine), before);
    setup.write(&machine, "[policy]\nname = \"none\"");
    let mut next = setup.start();
    // The second daemon restores the first one's changes before it logs its start; the test must not read groups that
    // are being removed.
    next.tells("daemon started");
    assert_eq!(masks(&machine), before);
    next.ends_by(Signal::TERM);
    assert_same_state(&machine.state(), &found, "after the second one's end");
}

#[test]
fn bad_input_is_refused_in_one_line_and_nothing_is_touched() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let setup = Setup::plain(&machine, "");
    let reported = |more: &str, args: &[&str]| {
        setup.write(&machine, more);
        let output = setup.command().args(args).output().unwrap();
        let line = String::from_utf8_lossy(&output.stderr).into_owned();
        let last = line.lines().last().unwrap_or_default();
        (output.status.code(), last.replace(&*setup.config.to_string_lossy(), "FILE"))
    };
    let (code, line) = reported("[policy]\nname = \"a44\"", &[]);
    assert_eq!(
        (code, line.starts_with("error: FILE:8: unknown policy `a44`; did you mean `a4`?")),
        (Some(2), true),
        "{line}"
    );
    let (code, line) = reported("", &["--set", "daemon.perid_s=1"]);
    assert_eq!(
        (code, &*line),
        (Some(2), "error: --set: unknown key `daemon.perid_s`; did you mean `daemon.period_s`?")
    );
    // Only the host knows the workloads.
    let (code, line) = reported("[policy]\nname = \"fixed\"\nsettings.masks = { lfwd = \"0x3\" }", &[]);
    let wanted = "FILE:9: fixed: unknown workload `lfwd`; did you mean `l2fwd`?";
    assert_eq!((code, line.contains(wanted)), (Some(2), true), "{line}");
    let (code, line) = reported("group = \"no-such-group\"", &[]);
    assert_eq!((code, line.contains("group `no-such-group` does not exist")), (Some(2), true), "{line}");
    assert_same_state(&machine.state(), &found, "after refusals");
    let output = setup.command().args(["--root", "/", "--root", "/"]).output();
    assert_eq!(output.unwrap().status.code(), Some(2), "a flag given twice");
}

/// Needs root: it gives files to another user.
#[test]
fn a_configuration_that_another_user_could_change_is_refused_before_anything_is_changed() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let setup = Setup::plain(&machine, FIXED);
    let reported = |args: &[&str]| {
        let output = setup.command().args(args).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let own = |uid| std::os::unix::fs::chown(&setup.config, Some(uid), None).expect("not run: needs root");
    own(1234);
    let file = setup.config.display();
    let wanted =
        format!("error: the configuration is not read: {file} belongs to user 1234, not to root (mode 0644)");
    for args in [&[][..], &["--check"]] {
        let (code, line) = reported(args);
        assert!(code == Some(2) && line.starts_with(&wanted) && line.lines().count() == 1, "{code:?} {line}");
    }
    own(0);
    let open = machine.folder().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    for key in ["recorder.dir", "daemon.journal", "socket.path"] {
        let value = format!("{key}={}/new", open.display());
        let (code, line) = reported(&["--set", &value]);
        let wanted = format!("is not used: {} can be written by other users (mode 0777)", open.display());
        assert!(code == Some(2) && line.contains(&wanted) && line.lines().count() == 1, "{code:?} {line}");
    }
    assert_eq!(std::fs::read_dir(&open).unwrap().count(), 0);
    assert!(!setup.journal.exists() && !setup.socket.exists());
    assert_same_state(&machine.state(), &found, "after refusals");
}

/// Needs root: it runs the program as another user.
#[test]
fn a_user_without_privileges_reads_a_configuration_of_its_own_private_group() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("w.toml");
    std::fs::write(&config, "[[tenant]]\nname = \"a\"\ncores = \"0\"").unwrap();
    std::os::unix::fs::chown(folder.path(), Some(1234), Some(1234)).expect("not run: needs root");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o775)).unwrap();
    let check = |owner, group, mode| {
        std::os::unix::fs::chown(&config, Some(owner), Some(group)).unwrap();
        std::fs::set_permissions(&config, std::fs::Permissions::from_mode(mode)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_waykeeper"));
        command.args(["daemon", "--check", "--config"]).arg(&config).uid(1234).gid(1234).env_clear();
        let output = command.output().unwrap();
        let lines = String::from_utf8_lossy(&output.stderr).into_owned();
        // Where the tests run, there may be no resctrl.
        let is_about_host =
            |line: &&str| line.starts_with("warning: the daemon would not start on this host: ");
        let lines: String = lines.lines().filter(|line| !is_about_host(line)).collect();
        (output.status.code(), lines)
    };
    // What useradd and a umask of 002 make, and a file of root.
    assert_eq!(check(1234, 1234, 0o664), (Some(0), String::new()));
    assert_eq!(check(0, 0, 0o644), (Some(0), String::new()));
    let (code, line) = check(1235, 1234, 0o644);
    assert!(code == Some(2) && line.contains("not to root or user 1234 (mode 0644)"), "{line}");
    assert_eq!(check(1234, 100, 0o664).0, Some(2));
}

#[test]
fn check_prints_what_is_in_force_and_where_it_was_said() {
    let machine = MountedHost::new("gold-6140");
    let setup = Setup::plain(&machine, FIXED);
    let mut check = setup.command();
    check.args(["--check", "--set", "socket.path=/x"]).env("WAYKEEPER_LIMITS_CLASSES", "4");
    let output = check.output().unwrap();
    assert!(output.status.success());
    let reported = String::from_utf8(output.stdout).unwrap();
    let line = |key: &str| {
        let line = reported
            .lines()
            .find(|line| line.starts_with(key))
            .unwrap_or_else(|| panic!("{key}: {reported}"));
        line.split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .replace(&*setup.config.to_string_lossy(), "FILE")
    };
    assert_eq!(line("period_s"), "period_s = 0.05 # FILE:2");
    assert_eq!(line("classes"), "classes = 4 # environment WAYKEEPER_LIMITS_CLASSES");
    assert_eq!(line("path"), "path = \"/x\" # --set");
    assert_eq!(line("# tenant l2fwd"), "# tenant l2fwd # FILE:11");
    assert!(!setup.journal.exists());
}

/// A daemon's configuration suffices to restore the knobs that a killed daemon left, wherever its journal is.
#[test]
fn what_a_killed_daemon_left_is_found_by_its_configuration() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let before = masks(&machine);
    let mut setup = Setup::plain(&machine, FIXED);
    let restore = |args: &[&str], config: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_waykeeper"));
        command.arg("restore").args(args).env("WAYKEEPER_CONFIG", config);
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (output.status.code(), said.concat())
    };
    let die = |setup: &Setup| {
        let mut daemon = setup.start();
        daemon.comes("fixed masks", |_| masks(&machine) != before);
        daemon.signal(Signal::KILL);
        daemon.end();
        assert!(setup.journal.exists());
    };
    let root = machine.root().prefix().display().to_string();
    die(&setup);
    let config = setup.config.display().to_string();
    // The usual journal of that host has no entries, and no configuration names another: the groups look like those of a
    // run whose journal is lost. They are removed, and what that run may have set besides is named.
    let none = machine.folder().join("none.toml").display().to_string();
    std::fs::write(&none, "").unwrap();
    let (code, reported) = restore(&["--root", &root], &none);
    assert!(
        code == Some(1) && reported.contains("not known: no journal that was read has the resctrl groups"),
        "{reported}"
    );
    let usual = waykeeper_kernel::journal::usual_path(&machine.root());
    std::fs::remove_file(usual.with_extension("unproved")).expect("it says what is not known");
    let (code, reported) = restore(&["--passing"], &config);
    assert_eq!(code, Some(0), "{reported}");
    assert_same_state(&machine.state(), &found, "after restore by the environment");
    assert!(!setup.journal.exists());

    // With a configuration that became invalid, the default journal is still found.
    setup.journal = waykeeper_kernel::journal::usual_path(&machine.root());
    setup.write(&machine, FIXED);
    die(&setup);
    setup.write(&machine, "[polcy]");
    let (code, reported) = restore(&["--root", &root, "--config", &config], "");
    let hint = "if daemon.journal names another, run `waykeeper restore --journal FILE`";
    assert!(
        code == Some(2) && reported.contains("unknown section [polcy]") && reported.contains(hint),
        "{reported}"
    );
    assert_same_state(&machine.state(), &found, "after restore beside a spoiled configuration");
    let _ = std::fs::remove_file(setup.journal.with_extension("lock"));
}

/// A full pipe without a reader: standard error when a service manager hangs.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reads, mut writes) = std::io::pipe().unwrap();
    let flags = rustix::fs::fcntl_getfl(&writes).unwrap();
    rustix::fs::fcntl_setfl(&writes, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    while std::io::Write::write(&mut writes, &[b'.'; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&writes, flags).unwrap();
    (reads, writes)
}

#[test]
fn a_log_without_a_reader_delays_neither_the_loop_nor_the_end() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let before = masks(&machine);
    let setup = Setup::plain(&machine, FIXED);
    let (_reads, writes) = full_pipe();
    let mut command = setup.command();
    command.args(["--set", "daemon.blind_steps=5"]).stderr(writes.try_clone().unwrap());
    let mut daemon = Daemon::of(command, &setup);
    daemon.comes("fixed masks", |_| masks(&machine) != before);
    let step = |daemon: &mut Daemon| daemon.answer(json!({"do": "status"}))["ok"]["step"].as_u64().unwrap();
    let first = step(&mut daemon);
    daemon.comes("more steps", |daemon| {
        daemon.ask(json!({"do": "status"})).is_some_and(|now| now["ok"]["step"].as_u64().unwrap() > first + 3)
    });
    daemon.ends_by(Signal::TERM);
    assert_same_state(&machine.state(), &found, "after SIGTERM");
    // A daemon that ends with an error does not wait for a reader either.
    let mut command = setup.command();
    command.args(["--set", "daemon.blind_steps=5"]).stderr(writes);
    let mut daemon = Daemon::of(command, &setup);
    daemon.comes("fixed masks", |_| masks(&machine) != before);
    machine.faults.inject(FaultRule {
        path: "*".to_owned(),
        operation: None,
        calls: Calls::All,
        fault: FileFault::Refuse(rustix::io::Errno::IO),
    });
    let (status, _) = daemon.end();
    assert_eq!(status.code(), Some(1));
    machine.faults.lift();
    setup.restore();
    assert_same_state(&machine.state(), &found, "after a host that was gone");
}
