//! Long runs keep what they have: results have a checked place before the first simulation, Ctrl-C shows and writes what is
//! finished, and `--resume` gives the bytes of a run that was not interrupted.

use crate::common;

use common::{TINY, folder_with, output, refused, tiny};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use waykeeper_testbed::wait_for;

/// A scenario of which each simulation is one control interval that takes hours.
fn endless() -> (tempfile::TempDir, PathBuf) {
    let text = TINY
        .replace("duration_s = 2", "duration_s = 3600")
        .replace("interval_s = 0.5", "interval_s = 3600")
        .replace("time_factor = 100", "time_factor = 1");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("endless.toml");
    fs::write(&path, text).unwrap();
    (folder, path)
}

/// `tiny` with runs long enough to be interrupted between two of them.
fn slow() -> (tempfile::TempDir, PathBuf) {
    folder_with("duration_s = 2\n", "duration_s = 6\n")
}

/// The program, with a cache of its own.
fn program(cache: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("waykeeper"));
    command.args(arguments).env("XDG_CACHE_HOME", cache).env("NO_COLOR", "1").env_remove("RUST_BACKTRACE");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Kept runs in a folder.
fn kept(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension() == Some(OsStr::new("gz"))).collect()
}

/// Runs the program until `folder` has so many kept runs, and interrupts it.
fn interrupted(cache: &Path, folder: &Path, count: usize, arguments: &[&str]) -> Output {
    let child = program(cache, arguments).spawn().unwrap();
    wait_for("kept runs", || kept(folder).len() >= count);
    signal(&child, rustix::process::Signal::INT);
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The content of a file without wall-clock times.
fn timeless(text: &str) -> String {
    text.lines().filter(|line| !line.contains("\"wall_s\"")).map(|line| format!("{line}\n")).collect()
}

/// All files of a result, without wall-clock times.
fn files(folder: &Path) -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries
        .map(|path| (path.file_name().unwrap().into(), timeless(&fs::read_to_string(&path).unwrap())))
        .collect();
    files.sort();
    files
}

#[test]
fn what_is_finished_at_ctrl_c_is_shown_and_written_and_resume_gives_the_same_bytes() {
    let sweep = "\n[[sweep]]\nkey = \"workload.fio.block\"\nvalues = [\"64k\", \"128k\", \"256k\", \"1M\"]\n";
    for sweeps in [false, true] {
        let (folder, path) = slow();
        let mut words = vec!["run", path.to_str().unwrap(), "--threads", "1"];
        if sweeps {
            fs::write(&path, fs::read_to_string(&path).unwrap() + sweep).unwrap();
        } else {
            words.extend(["--seeds", "5"]);
        }
        let [out, other] = ["out", "other"].map(|name| folder.path().join(name));
        let to = |place: &Path, more: &[&str]| -> Vec<String> {
            let all = [&words[..], &["--out", place.to_str().unwrap()], more].concat();
            all.iter().map(|word| (*word).to_owned()).collect()
        };
        let call = |words: &[String]| {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            program(folder.path(), &words).output().unwrap()
        };
        let wanted = call(&to(&other, &[]));
        assert_eq!(wanted.status.code(), Some(0), "{}", text(&wanted.stderr));

        let first = to(&out, &[]);
        let first: Vec<&str> = first.iter().map(String::as_str).collect();
        let done = interrupted(folder.path(), &out.join(".runs"), 3, &first);
        let error = text(&done.stderr);
        assert_eq!(done.status.code(), Some(130), "{error}");
        assert!(error.trim_end().ends_with("the same command with --resume continues"), "{error}");
        assert!(
            text(&done.stdout).contains("PARTIAL: interrupted; the numbers lack"),
            "{}",
            text(&done.stdout)
        );
        let summary: Value = serde_json::from_slice(&fs::read(out.join("summary.json")).unwrap()).unwrap();
        assert_eq!(summary["partial"], true);
        assert!(!summary["missing"].as_array().unwrap().is_empty());

        // Without --resume or --force nothing of it is touched.
        let mut before = kept(&out.join(".runs"));
        before.sort();
        refused(&first, 2, &["it has the runs of a command that did not finish", "--resume", "--force"]);
        let mut after = kept(&out.join(".runs"));
        after.sort();
        assert_eq!(after, before);
        // A damaged run is reported and runs again.
        fs::write(&before[0], "damaged").unwrap();
        let done = call(&to(&out, &["--resume"]));
        let error = text(&done.stderr);
        assert_eq!(done.status.code(), Some(0), "{error}");
        let damaged = format!("warning: the kept run {} is ignored and runs again", before[0].display());
        assert!(error.contains(&damaged), "{error}");
        assert_eq!(text(&done.stdout), text(&wanted.stdout));
        assert_eq!(files(&out), files(&other), "and nothing is kept beside a complete result");
    }
}

#[test]
fn shards_keep_their_runs_beside_each_other_and_resume_gives_the_bytes_of_a_run_in_one() {
    let (folder, path) = tiny();
    let words = ["run", path.to_str().unwrap(), "--seeds", "3", "--out"];
    let [shared, whole] = ["shared", "whole"].map(|name| folder.path().join(name).display().to_string());
    let with = |out: &str, more: &[&str]| output(&[&words[..], &[out], more].concat());
    let wanted = with(&whole, &[]);
    for (shard, runs) in [("2/2", 2), ("1/2", 4), ("1/2", 4)] {
        let said = with(&shared, &["--shard", shard]);
        assert!(said.starts_with(&format!("shard {shard}: {runs} of {runs} runs have ended")), "{said}");
        assert!(said.contains(&format!("--resume instead of --shard {shard}")), "{said}");
    }
    // A shard writes no result, and no other command takes its runs for those of an interrupted one without being told.
    assert!(!Path::new(&shared).join("summary.json").exists());
    refused(&[&words[..], &[&shared]].concat(), 2, &["--resume", "--force"]);
    assert_eq!(with(&shared, &["--resume"]), wanted);
    assert_eq!(files(Path::new(&shared)), files(Path::new(&whole)));

    refused(&[&words[..], &[&whole, "--shard", "1/2"]].concat(), 2, &["summary.json exists already"]);
    refused(
        &[&words[..], &[&shared, "--shard", "3/2"]].concat(),
        2,
        &["--shard", "I is 3; it must be 1 to 2"],
    );
    common::waykeeper().args(["run", path.to_str().unwrap(), "--shard", "1/2"]).assert().code(2);
    let beyond = program(
        folder.path(),
        &[&words[..], &[&folder.path().join("other").display().to_string(), "--shard", "4/4"]].concat(),
    );
    let done = { beyond }.output().unwrap();
    assert!(
        text(&done.stderr).contains("note: --shard 4/4: only 3 shards have simulations"),
        "{}",
        text(&done.stderr)
    );
    assert_eq!(
        (done.status.code(), text(&done.stdout).starts_with("shard 4/4: 0 of 0 runs")),
        (Some(0), true)
    );
}

#[test]
fn without_out_runs_are_kept_in_the_cache_and_only_resume_reads_them() {
    let (folder, path) = slow();
    let [cache, fresh] = ["cache", "fresh"].map(|name| folder.path().join(name));
    let words = ["run", path.to_str().unwrap(), "--threads", "1", "--seeds", "4", "--json"];
    let wanted = program(&fresh, &words).output().unwrap();
    assert!(wanted.status.success());
    let done = interrupted(&cache, &cache.join("waykeeper/runs"), 2, &words);
    assert_eq!(done.status.code(), Some(130));
    let partial: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(partial["partial"], true);
    let resumed = program(&cache, &[&words[..], &["--resume"]].concat()).output().unwrap();
    assert_eq!(timeless(&text(&resumed.stdout)), timeless(&text(&wanted.stdout)));
    // One more seed runs only that seed; a cache that is not read changes nothing.
    for path in kept(&cache.join("waykeeper/runs")) {
        fs::write(path, "damaged").unwrap();
    }
    let again = program(&cache, &words).output().unwrap();
    assert!(!text(&again.stderr).contains("warning"), "{}", text(&again.stderr));
    assert_eq!(timeless(&text(&again.stdout)), timeless(&text(&wanted.stdout)));
}

#[test]
fn a_search_for_a_load_continues_as_well() {
    let (folder, path) = slow();
    let [cache, fresh] = ["cache", "fresh"].map(|name| folder.path().join(name));
    let words = ["run", path.to_str().unwrap(), "--threads", "1", "--find-msl", "--json"];
    let wanted = program(&fresh, &words).output().unwrap();
    let all = kept(&fresh.join("waykeeper/runs")).len();
    let done = interrupted(&cache, &cache.join("waykeeper/runs"), all / 2 + 1, &words);
    assert_eq!(done.status.code(), Some(130), "{}", text(&done.stderr));
    let resumed = program(&cache, &[&words[..], &["--resume"]].concat()).output().unwrap();
    assert_eq!(text(&resumed.stdout), text(&wanted.stdout));
}

#[test]
fn what_runs_is_said_and_an_interval_of_hours_ends_with_the_first_signal() {
    let (folder, path) = endless();
    for which in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let words = ["run", path.to_str().unwrap(), "--threads", "1", "--json"];
        let mut child = program(folder.path(), &words).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let first = lines.next().unwrap();
        assert!(
            first.ends_with("endless.toml: 2 policies (default, a4) x 1 seed: 2 runs on 1 thread"),
            "{first}"
        );
        signal(&child, which);
        let last = lines.last().unwrap();
        assert_eq!(last, "error: interrupted before the first run had ended; nothing is kept");
        assert_eq!(child.wait().unwrap().code(), Some(130));
    }
}

#[test]
fn a_second_ctrl_c_ends_the_program_at_once() {
    let (folder, path) = slow();
    let values: Vec<String> = (1..=16).map(|blocks| format!("\"{}k\"", 64 * blocks)).collect();
    let sweep = format!("\n[[sweep]]\nkey = \"workload.fio.block\"\nvalues = [{}]\n", values.join(", "));
    fs::write(&path, fs::read_to_string(&path).unwrap() + &sweep).unwrap();
    let mut child = program(folder.path(), &["run", path.to_str().unwrap(), "--json"]).spawn().unwrap();
    wait_for("kept runs", || kept(&folder.path().join("waykeeper/runs")).len() >= 20);
    signal(&child, rustix::process::Signal::INT);
    // Eight points have more JSON than a pipe takes, and nothing reads it: the program waits after the first signal.
    let out = child.stdout.as_ref().unwrap();
    wait_for("the result", || rustix::io::ioctl_fionread(out).unwrap() > 0);
    assert!(child.try_wait().unwrap().is_none(), "it waits for a reader");
    signal(&child, rustix::process::Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn an_interrupt_before_the_first_run_has_ended_says_so() {
    let (folder, path) = folder_with("duration_s = 2\n", "duration_s = 3600\n");
    let out = folder.path().join("out");
    let words = ["run", path.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let mut child = program(folder.path(), &words).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    signal(&child, rustix::process::Signal::INT);
    errors.read_to_string(&mut line).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(line.ends_with("error: interrupted before the first run had ended; nothing is kept\n"), "{line}");
    assert!(!out.exists());
}

#[test]
fn the_place_of_a_result_is_checked_before_the_first_simulation() {
    // A simulation of it would take hours.
    let (folder, path) = endless();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let run = |out: &str, code: i32, parts: &[&str]| {
        refused(&["run", path.to_str().unwrap(), "--out", out], code, parts);
    };
    fs::write(at("file"), "theirs").unwrap();
    run(&at("file"), 2, &["file: it is no directory"]);
    run(&at("file/below"), 2, &["/file is no directory"]);
    for name in ["summary.json", "decisions.jsonl"] {
        fs::create_dir_all(at(name).clone() + ".d").unwrap();
        fs::write(at(name) + ".d/" + name, "theirs").unwrap();
        run(&(at(name) + ".d"), 2, &[name, "exists already", "--force"]);
        assert_eq!(fs::read_to_string(at(name) + ".d/" + name).unwrap(), "theirs");
    }
    // Not even root creates files there.
    run("/sys/kernel", 4, &["--out /sys/kernel cannot be written"]);
    run("/dev/full", 2, &["it is no directory"]);
    common::waykeeper().args(["run", path.to_str().unwrap(), "--force"]).assert().code(2);
    // --resume does not overwrite a complete result.
    let out = at("summary.json") + ".d";
    refused(&["run", path.to_str().unwrap(), "--out", &out, "--resume"], 2, &["exists already"]);
    let (_other, short) = tiny();
    output(&["run", short.to_str().unwrap(), "--policy", "none", "--out", &out, "--force"]);
    assert!(fs::read_to_string(out + "/summary.json").unwrap().contains("waykeeper.run/2"));
}

#[test]
fn other_commands_check_the_place_of_their_result_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("file"), "theirs").unwrap();
    refused(&["man", "--out", &at("file")], 2, &["--out", "no directory"]);
    let record = |out: &str, parts: &[&str]| {
        refused(&["trace", "record", "-o", out, "--valgrind", "/bin/false", "--", "true"], 2, parts);
    };
    record(&at("file"), &["exists already", "--force"]);
    record(&at("nowhere/x.wkt"), &["there is no directory"]);
    record(folder.path().to_str().unwrap(), &["it is a directory; name a file"]);
    assert_eq!(fs::read_to_string(at("file")).unwrap(), "theirs");
}

#[test]
fn a_sweep_says_each_point_when_it_is_done() {
    let (folder, path) = tiny();
    let sweep = "\n[[sweep]]\nkey = \"workload.fio.block\"\nvalues = [\"64k\", \"1M\"]\n";
    fs::write(&path, fs::read_to_string(&path).unwrap() + sweep).unwrap();
    for json in [&[][..], &["--json"]] {
        let words = [&["run", path.to_str().unwrap(), "--threads", "1"][..], json].concat();
        let done = program(folder.path(), &words).output().unwrap();
        let said = text(&done.stderr);
        let points: Vec<&str> = said.lines().filter(|line| line.starts_with("point ")).collect();
        assert_eq!(points.len(), 2, "{said}");
        for (line, begin) in points.iter().zip([
            "point 1 of 2, workload.fio.block=64k: default HPW 1.00 LPW 1.00; a4 HPW ",
            "point 2 of 2, workload.fio.block=1M: ",
        ]) {
            assert!(line.starts_with(begin), "{line}");
        }
    }
}
