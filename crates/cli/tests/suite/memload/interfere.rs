//! `memload interfere`: cycles, refusals, and Ctrl-C.

use super::common::{refused, waykeeper};
use super::{ended, folder, under_way};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;
use waykeeper_probe::interfere::{Arm, order};
use waykeeper_testbed::wait_for;

#[test]
fn what_cannot_be_measured_beside_a_load_is_refused() {
    let folder = folder();
    let file = folder.path().join("load.img");
    let file = file.to_str().unwrap();
    std::fs::write(file, vec![7; 1 << 20]).unwrap();
    let refuse = |words: &[&str], command: &[&str], code: i32, parts: &[&str]| {
        let all = [&["memload", "interfere", file][..], words, &["--"], command].concat();
        let done = waykeeper().args(&all).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!((done.status.code(), errors.len()), (Some(code), 1), "{all:?}: {said}");
        assert!(parts.iter().all(|part| errors[0].contains(part)), "{all:?}: {said}");
    };
    refuse(&["--cycles", "0"], &["true"], 2, &["--cycles is 0; it must be at least 2"]);
    refuse(
        &["--pattern", "single"],
        &["true"],
        2,
        &["--pattern single: interfere runs plain, random and single"],
    );
    refuse(
        &["--time", "3"],
        &["true"],
        2,
        &["--time beside a command: the load lasts as long as the command"],
    );
    refuse(&["--log", "l.csv"], &["true"], 2, &["--log beside a command: it applies to a single run"]);
    refuse(&["--overwrite"], &["true"], 2, &["--overwrite: this load only reads the target"]);
    refuse(&["--cpus", "1023"], &["true"], 2, &["--cpus 1023: CPU 1023 is not available; "]);
    refuse(&["--metric", "("], &["true"], 2, &["--metric `(`"]);
    refuse(&[], &["/nonexistent/command"], 2, &["cannot run /nonexistent/command"]);
    let failing = ["sh", "-c", "echo it is broken; exit 3"];
    let parts = ["sh failed before the first cycle (exit status: 3): it is broken"];
    refuse(&["--cycles", "2"], &failing, 1, &parts);
    refuse(&["--warmup", "0", "--cycles", "2"], &failing, 1, &["sh failed in cycle 1 ("]);
    let metric = ["--cycles", "2", "--metric", "x=([0-9]+)"];
    refuse(&metric, &["echo", "y=1"], 1, &["echo printed no number that matches --metric"]);
    // The last match is used, after any amount of output: 2 MiB here.
    let long = "echo x=7; head -c 2097152 /dev/zero; echo; echo x=0";
    refuse(
        &metric,
        &["sh", "-c", long],
        1,
        &["--metric `x=([0-9]+)` is 0 before the first cycle; a ratio needs numbers above 0"],
    );
    let all = ["memload", "interfere", "virtual:probe", "--", "true"];
    refused(&all, 2, &["simulated time", "name a device or a file"]);
}

/// A constant metric has no slowdown and a confidence interval of width 0; the seed determines the order of each cycle.
#[test]
fn a_command_is_measured_in_cycles_of_a_seeded_order() {
    let folder = folder();
    let file = folder.path().join("load.img");
    let file = file.to_str().unwrap();
    std::fs::write(file, vec![7; 1 << 20]).unwrap();
    let words = ["memload", "interfere", file, "--cycles", "4", "--warmup", "0", "--workers", "2"];
    // Background processes of one run are ended before the next.
    let left = folder.path().join("left");
    let script = format!("sleep 600 & echo $$ >> {}; echo rps=1.0; echo rps=2.5", left.display());
    let metric = ["--metric", "rps=([0-9.]+)", "--rate", "--json", "--", "sh", "-c", &script];
    let run = || {
        let done = waykeeper().args(words).args(metric).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        serde_json::from_slice::<Value>(&done.stdout).unwrap()
    };
    let (first, second) = (run(), run());
    let orders = |run: &Value| {
        run["cycles"].as_array().unwrap().iter().map(|c| c["order"].clone()).collect::<Vec<_>>()
    };
    assert_eq!((orders(&first).len(), orders(&first)), (4, orders(&second)));
    assert_eq!((first["plain_median"].as_f64(), first["sense"].as_str()), (Some(2.5), Some("rate")));
    let cpus = &first["cpus"];
    assert_ne!(cpus["load"], cpus["command"], "they are kept apart");
    for (pattern, name) in first["patterns"].as_array().unwrap().iter().zip(["random", "single"]) {
        assert_eq!(pattern["pattern"], name);
        assert_eq!([&pattern["slowdown"], &pattern["low"], &pattern["high"]], [0.0, 0.0, 0.0]);
        assert!(pattern["load"]["commands"].as_u64().is_some_and(|count| count > 0), "{pattern}");
    }
    let groups = std::fs::read_to_string(left).unwrap();
    let groups: Vec<i32> = groups.lines().map(|group| group.parse().unwrap()).collect();
    assert_eq!(groups.len(), 2 * 4 * 3);
    groups.into_iter().for_each(all_end);
}

/// Ctrl-C in a cycle ends the command and its children, and says so in one line.
#[test]
fn an_interrupt_ends_the_command_too() {
    let folder = folder();
    let file = folder.path().join("load.img");
    std::fs::write(&file, vec![7; 1 << 20]).unwrap();
    let mark = folder.path().join("mark");
    // A child that ignores SIGTERM outlives the first process.
    let stubborn = "sh -c 'trap \"\" TERM; sleep 600; sleep 600' &";
    let script = format!("{stubborn} sleep 600 & echo $$ > {0}.new; mv {0}.new {0}; wait", mark.display());
    let mut child = Command::new(assert_cmd::cargo::cargo_bin("waykeeper"))
        .args(["memload", "interfere"])
        .arg(&file)
        .args(["--cycles", "2", "--warmup", "0", "--", "sh", "-c", &script])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let group = loop {
        match std::fs::read_to_string(&mark) {
            Ok(pid) => break pid.trim().parse::<i32>().unwrap(),
            Err(_) if child.try_wait().unwrap().is_some() => panic!("it ended before it began"),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let said: Vec<String> =
        BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said:?}");
    let last = said.last().unwrap();
    assert!(last.starts_with("error: interrupted in cycle 1 ("), "{said:?}");
    all_end(group);
}

/// Ctrl-C before the first measurement; the incomplete file is removed.
#[test]
fn an_interrupt_while_the_file_is_made_leaves_nothing_of_it() {
    let folder = folder();
    let file = folder.path().join("load.img");
    // So large that it takes seconds.
    let words = ["interfere", file.to_str().unwrap(), "--create", "4GiB", "--", "true"];
    let run = under_way(&words, "creating the file first, 4.0 GiB");
    let (code, reported, said) = ended(run, Some("TERM"));
    let wanted = "error: interrupted before the first cycle; nothing was measured\n";
    assert_eq!((code, reported.len(), said.as_str()), (Some(130), 0, wanted));
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

/// The command replaces the created file by another one.
#[test]
fn what_takes_the_place_of_the_file_that_was_made_is_not_written() {
    let folder = folder();
    let (file, theirs) = (folder.path().join("load.img"), folder.path().join("theirs"));
    std::fs::write(&theirs, vec![7; 1 << 20]).unwrap();
    let swap = format!("mv {} {} || true", theirs.display(), file.display());
    let target = file.to_str().unwrap();
    let words = ["memload", "interfere", target, "--op", "read", "--create", "1MiB", "--cycles", "2"];
    let done = waykeeper().args(words).args(["--", "sh", "-c", &swap]).output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(said.lines().last().unwrap().contains("holds 1048576 B"), "{said}");
    assert!(std::fs::read(&file).unwrap() == [7; 1 << 20], "it is as it was");
}

/// A long run without the load would show nothing.
#[test]
fn a_load_that_fails_ends_the_command() {
    let folder = folder();
    let (file, groups) = (folder.path().join("load.img"), folder.path().join("groups"));
    std::fs::write(&file, vec![7; 1 << 20]).unwrap();
    let loaded = |seed: &u64| order(2, *seed)[0][0] != Arm::Plain;
    let seed = (1..).find(loaded).unwrap().to_string();
    let script = format!("echo $$ >> {}; truncate -s 0 {}; sleep 600", groups.display(), file.display());
    let target = file.to_str().unwrap();
    let words = ["memload", "interfere", target, "--cycles", "2", "--warmup", "0", "--seed", &seed];
    let done = waykeeper().args(words).args(["--", "sh", "-c", &script]).output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(1), "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.contains(" failed: ") && last.ends_with("; no result"), "{said}");
    // If the test had waited for the command, it would have ended by itself.
    let group: i32 = std::fs::read_to_string(groups).unwrap().trim().parse().unwrap();
    all_end(group);
}

/// Waits for the end of all processes of a group, which were killed.
fn all_end(group: i32) {
    wait_for("the end of the command's children", || running(group).is_empty());
}

/// Processes of a group. A zombie does not run.
fn running(group: i32) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let stats = processes.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    // `pid (name) state parent group ...`
    let runs = |stat: &String| {
        let mut words = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        words.next() != Some("Z") && words.nth(1) == Some(&group.to_string())
    };
    stats.filter(runs).collect()
}
