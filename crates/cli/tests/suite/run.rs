//! `waykeeper run` from end to end: what it prints, writes, and that the same seed gives the same bytes.

use crate::common;

use common::{TINY, folder_with, output, refused, tiny, waykeeper};
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

/// JSON of a run without its wall-clock time.
fn timeless(arguments: &[&str]) -> String {
    let text = output(arguments);
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("\"wall_s\""));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_run_prints_a_table_with_the_decisions() {
    let (_folder, path) = tiny();
    let text = output(&["run", path.to_str().unwrap(), "--details"]);
    for part in [
        "tiny: a small mix",
        "1/32 of the sets",
        "HPW mean",
        "DCA write hit",
        "who evicts whose lines",
        "a4:",
        "LP zone",
    ] {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
    assert!(!text.contains('\x1b'), "no colour where no terminal is");
    // Every user must see the measured interval, and that the result is of one seed.
    assert!(
        text.contains("measured 1-2 s of 2 s of the server's clock; a run is 0.02 s simulated"),
        "{text}"
    );
    assert!(text.contains("one seed: ") && text.contains("--seeds 4"), "{text}");
    let two = ["run", path.to_str().unwrap(), "--policy", "a4", "--seeds", "2", "--seed", "4", "--details"];
    let two = output(&two);
    assert!(!two.contains("one seed: ") && two.contains("timelines of seed 4"), "{two}");
}

#[test]
fn a_sweep_taken_out_leaves_one_value_of_its_key() {
    let set = ["--set", "sweep=[]", "--set", "workload.fio.block=64k"];
    let text = output(&[&["run", "a4-fig5", "--sets", "1/256", "--json"], &set[..]].concat());
    let result: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&result["scenario"], &result["seeds"]),
        (&"a4-fig5".into(), &1.into()),
        "one run, not a sweep"
    );
}

#[test]
fn a_run_fits_a_screen_and_ends_with_the_verdict() {
    let (_folder, path) = tiny();
    let path = path.to_str().unwrap();
    let text = output(&["run", path, "--seeds", "2"]);
    assert!(text.lines().count() <= 45 && !text.contains("LP zone"), "{text}");
    let (before, verdict) = text.split_once("\nverdict against default, 2 seeds").expect("a verdict");
    assert!(before.contains("HPW mean") && before.contains("--details"), "{text}");
    let lines: Vec<&str> = verdict.lines().skip(1).collect();
    assert!((2..=4).contains(&lines.len()) && lines.iter().all(|line| line.starts_with("  ")), "{verdict}");
    let json: Value = serde_json::from_str(&output(&["run", path, "--seeds", "2", "--json"])).unwrap();
    let reported: Vec<&str> =
        json["verdict"]["lines"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    assert!(text.ends_with(&(reported.join("\n  ") + "\n")), "{text}");
    // One policy alone has no comparison: its numbers, and no verdict.
    let alone = output(&["run", path, "--policy", "a4"]);
    assert!(alone.contains("throughput") && !alone.contains("verdict"), "{alone}");
}

#[test]
fn a_policy_named_twice_is_run_once_and_that_is_said() {
    let (_folder, path) = tiny();
    let arguments =
        ["run", path.to_str().unwrap(), "--policy", "none", "--policy", "none", "--duration", "2"];
    let done = waykeeper().args(arguments).assert().success();
    let said = String::from_utf8(done.get_output().stderr.clone()).unwrap();
    assert!(said.starts_with("note: policy none is given more than once and run once\n"), "{said}");
}

#[test]
fn threads_cannot_be_seen_in_the_result_and_seeds_can() {
    let (_folder, path) = tiny();
    let run = |seed: &str, threads: &str| {
        let path = path.to_str().unwrap();
        timeless(&["run", path, "--json", "--seeds", "2", "--seed", seed, "--threads", threads])
    };
    let one = run("7", "1");
    assert!(one == run("7", "2"), "one thread and two give different bytes");
    assert!(one != run("8", "2"), "two seeds give the same bytes");
    let json: Value = serde_json::from_str(&output(&["run", path.to_str().unwrap(), "--json"])).unwrap();
    assert!(json["wall_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn json_has_the_keys_of_the_issue_and_seeds_bring_spread_and_sampling_error() {
    let (_folder, path) = tiny();
    let text = output(&[
        "run",
        path.to_str().unwrap(),
        "--json",
        "--seeds",
        "3",
        "--policy",
        "a4-d",
        "--policy",
        "default",
    ]);
    let json: Value = serde_json::from_str(&text).unwrap();
    for key in ["schema", "scenario", "seed", "sets", "time_factor", "simulated_s", "wall_s"] {
        assert!(!json[key].is_null(), "{key}");
    }
    let names: Vec<&String> = json["policies"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["a4-d", "default"], "in the order asked for");
    assert_eq!(json["baseline"], "default");
    let dpdk = &json["policies"]["a4-d"]["workloads"]["dpdk"];
    assert_eq!(dpdk["priority"], "high");
    for key in
        ["performance_ratio", "throughput", "latency_mean_us", "latency_p99_us", "ipc", "llc_hit_ratio"]
    {
        assert!(dpdk[key].is_number() && dpdk["spread"][key].is_number(), "{key}");
    }
    assert_eq!(json["policies"]["default"]["groups"]["HPW"]["performance_ratio"], 1.0);
    assert!(json["policies"]["a4-d"]["groups"]["LPW"]["performance_ratio"].is_number());
    assert!(!json["policies"]["a4-d"]["decisions"].as_array().unwrap().is_empty());
    assert!(json["sampling_error"]["llc_hit_ratio"].as_f64().unwrap() > 0.0);
    assert!(dpdk["sampling_error"]["llc_hit_ratio"].is_number() && json["sample_seed"].is_null());
    // 2 s of the server's clock with a time factor of 100.
    assert_eq!(json["simulated_s"], 0.02);
    let exact = output(&[
        "run",
        path.to_str().unwrap(),
        "--json",
        "--sets",
        "exact",
        "--policy",
        "none",
        "--duration",
        "0.2",
    ]);
    let exact: Value = serde_json::from_str(&exact).unwrap();
    assert_eq!((&exact["sets"], &exact["sampling_error"]), (&"exact".into(), &Value::Null));
    assert_eq!(exact["policies"]["none"]["system"]["sampling_error"], Value::Null);
}

#[test]
fn out_writes_files_and_says_which() {
    let (folder, path) = tiny();
    let out = folder.path().join("results");
    let done =
        waykeeper().args(["run", path.to_str().unwrap(), "--out", out.to_str().unwrap()]).assert().success();
    let said = String::from_utf8(done.get_output().stderr.clone()).unwrap();
    for name in waykeeper_lab::files::RUN_FILES {
        assert!(out.join(name).metadata().unwrap().len() > 100, "{name}");
        assert!(said.contains(name), "{said}");
    }
    // Four intervals of half a second, three workloads and the socket, two policies.
    let table = std::fs::read_to_string(out.join("timeseries.csv")).unwrap();
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 1 + 4 * 4 * 2);
    for (column, name) in rows[0].iter().enumerate() {
        assert!(rows[1..].iter().any(|row| !row[column].is_empty()), "`{name}` is empty in every row");
    }
}

#[test]
fn a_run_shorter_than_the_policys_interval_works() {
    let (_folder, path) = tiny();
    let path = path.to_str().unwrap();
    let done = waykeeper().args(["run", path, "--duration", "0.2", "--json"]).assert().success();
    let said = String::from_utf8(done.get_output().stderr.clone()).unwrap();
    assert!(said.starts_with("note: a run of 0.2 s is too short for"), "{said}");
    let json: Value = serde_json::from_slice(&done.get_output().stdout).unwrap();
    assert!(json["policies"]["a4"]["workloads"]["xmem"]["ipc"].as_f64().unwrap() > 0.0);
    // The same with a warm-up that the user chose.
    output(&["run", path, "--duration", "0.2", "--warmup", "0.1", "--policy", "default"]);
}

#[test]
fn masks_of_the_scenario_stand_unless_a_policy_moves_them() {
    // Two ways for X-Mem, which loops over 4 MiB: with `none` they stay, with `default` they do not.
    let (_folder, path) = common::folder_with("cores = \"4\"", "cores = \"4\"\nmask = \"0x003\"");
    let text = output(&["run", path.to_str().unwrap(), "--json", "--policy", "default", "--policy", "none"]);
    let json: Value = serde_json::from_str(&text).unwrap();
    let mask = |policy: &str| json["policies"][policy]["way_map"][0]["masks"]["xmem"].clone();
    assert_eq!((mask("none"), mask("default")), ("0x003".into(), "0x7ff".into()));
}

#[test]
fn a_sweep_prints_a_curve_in_order() {
    let sweep = "\n[[sweep]]\nkey = \"workload.fio.block\"\nvalues = [\"64k\", \"1M\"]\n\n[[sweep]]\nkey = \"nic.nic0.ring\"\nvalues = [256, 1024]\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sweep.toml");
    std::fs::write(&path, TINY.to_owned() + sweep).unwrap();
    let path = path.to_str().unwrap();
    let json: Value = serde_json::from_str(&output(&["run", path, "--json", "--policy", "none"])).unwrap();
    assert_eq!(json["schema"], "waykeeper.sweep/2");
    let points: Vec<String> =
        json["points"].as_array().unwrap().iter().map(|p| p["at"].to_string()).collect();
    let at = |block: &str, ring: u32| format!(r#"{{"nic.nic0.ring":{ring},"workload.fio.block":"{block}"}}"#);
    let mut wanted = vec![at("64k", 256), at("64k", 1024), at("1M", 256), at("1M", 1024)];
    if points[0].starts_with("{\"workload") {
        let turned =
            |block: &str, ring: u32| format!(r#"{{"workload.fio.block":"{block}","nic.nic0.ring":{ring}}}"#);
        wanted = vec![turned("64k", 256), turned("64k", 1024), turned("1M", 256), turned("1M", 1024)];
    }
    assert_eq!(points, wanted);
    let out = folder.path().join("curve");
    let text = output(&["run", path, "--policy", "none", "--out", out.to_str().unwrap()]);
    assert!(text.contains("workload.fio.block") && text.contains("1M"), "{text}");
    for name in waykeeper_lab::files::SWEEP_FILES {
        assert!(out.join(name).is_file(), "{name}");
    }
    let results = std::fs::read_to_string(out.join("results.csv")).unwrap();
    assert!(results.starts_with("workload.fio.block,nic.nic0.ring,policy,scope,name,"), "{results}");
    // Four points; three workloads, two groups and the socket.
    assert_eq!(results.lines().count(), 1 + 4 * 6);
}

#[test]
fn a_key_can_be_changed_from_outside() {
    let (_folder, path) = tiny();
    let path = path.to_str().unwrap();
    let text = output(&[
        "run",
        path,
        "--json",
        "--policy",
        "a4",
        "--set",
        "name=renamed",
        "--set",
        "workload[fio].cores=2",
        "--set",
        "policy.a4.stable_interval_s=5",
        "--set",
        "knobs.dca_ways=0x700",
    ]);
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["scenario"], "renamed");
    assert_eq!(json["policies"]["a4"]["workloads"]["fio"]["cores"], "2");
    assert_eq!(json["policies"]["a4"]["way_map"][0]["dca_ways"], "0x700");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    use std::io::Read;
    use std::process::{Command, Stdio};
    let mut child = Command::new(env!("CARGO_BIN_EXE_waykeeper"))
        .args(["scenario", "show", "a4-hpw-heavy"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The pipe is mostly closed before the first write; in either case there must be no error.
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success() && said.is_empty(), "{said}");
}

#[test]
fn find_msl_prints_a_table_or_json_and_needs_a_nic() {
    let (_folder, path) = tiny();
    let path = path.to_str().unwrap();
    let text = output(&["run", path, "--policy", "none", "--find-msl"]);
    assert!(text.contains("maximum sustainable load of nic0") && text.contains("MSL, Gb/s"), "{text}");
    let json = output(&["run", path, "--policy", "none", "--find-msl=nic0", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["schema"], &json["nic"]), (&"waykeeper.msl/1".into(), &"nic0".into()));
    assert!(json["knees"][0]["probes"].as_array().unwrap().len() >= 2);
    refused(&["run", path, "--find-msl=nic7"], 2, &["the NIC to load is `nic7`", "one of nic0"]);
    let folder = tempfile::tempdir().unwrap();
    let without = folder.path().join("without.toml");
    let text =
        "name = \"n\"\n[[workload]]\nname = \"w\"\nprogram = \"x-mem\"\ncores = 0\nworking_set = \"1 MiB\"\n";
    std::fs::write(&without, text).unwrap();
    refused(&["run", without.to_str().unwrap(), "--find-msl"], 2, &["without.toml has no [[nic]]"]);
}

/// Through script(1), which gives the program a terminal. An editor's has `TERM=dumb`: it would show escape sequences.
#[test]
fn a_dumb_terminal_gets_no_colour_and_no_bar() {
    let (_folder, path) = tiny();
    let on_terminal = |term: &str| {
        let command = format!("exec {} run {}", waykeeper().get_program().display(), path.display());
        let done = Command::new("script")
            .args(["-qec", &command, "/dev/null"])
            .env("XDG_CACHE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/cache"))
            .env("TERM", term)
            .env_remove("NO_COLOR")
            .stdin(Stdio::null())
            .output();
        let done = done.unwrap_or_else(|why| panic!("not run: needs script: {why}"));
        let text = String::from_utf8(done.stdout).unwrap();
        assert!(done.status.success() && text.contains("performance relative to default"), "{text:?}");
        text
    };
    assert!(on_terminal("xterm-256color").contains('\x1b'));
    let dumb = on_terminal("dumb");
    assert!(!dumb.contains('\x1b'), "{dumb:?}");
}

#[test]
fn a_name_that_turns_the_direction_of_writing_does_not_reach_a_terminal() {
    let (_folder, path) = folder_with("name = \"xmem\"", "name = \"x\\u202emem\"");
    for more in [&[][..], &["--details"]] {
        let text = output(&[&["run", path.to_str().unwrap()], more].concat());
        assert!(text.contains("x?mem") && !text.contains('\u{202e}'), "{text:?}");
    }
    let said = |from: &str, to: &str| {
        let (_folder, path) = folder_with(from, to);
        let done = waykeeper().args(["run", path.to_str().unwrap()]).assert().code(2);
        String::from_utf8(done.get_output().stderr.clone()).unwrap()
    };
    let (folder, path) = tiny();
    let odd = folder.path().join("\u{202e}\x1b[31m.toml");
    std::fs::rename(&path, &odd).unwrap();
    let checked = output(&["scenario", "check", odd.to_str().unwrap()]);
    assert!(checked.ends_with("\\u{202e}\\u{1b}[31m.toml: ok, 2 simulations\n"), "{checked:?}");
    let line = said("program = \"x-mem\"", "program = \"x\\u202emem\\u001b[2J\"");
    assert!(line.contains("x\\u{202e}mem\\u{1b}[2J"), "{line:?}");
}

#[test]
fn an_error_repeats_the_beginning_of_a_long_value() {
    let long = "x".repeat(200_000);
    let line = |from: &str, to: &str, part: &str| {
        let (_folder, path) = folder_with(from, to);
        for arguments in [&["run"][..], &["scenario", "check"]] {
            let done = waykeeper().args(arguments).arg(&path).assert().code(2);
            let said = String::from_utf8(done.get_output().stderr.clone()).unwrap();
            assert!(said.len() < 1500 && said.lines().count() == 1 && said.contains(part), "{said}");
        }
    };
    line("\"4 MiB\"", &format!("\"{long}\""), "KiB, MiB or GiB");
    line("program = \"x-mem\"", &format!("program = \"{long}\""), "`workload[xmem].program`");
    line("working_set", &format!("{long} = 1\nworking_set"), "is not a key");
    line("name = \"tiny\"", &format!("name = {long}"), "not valid TOML");
    // Of the command line, which the system bounds.
    let long = &long[..100_000];
    for arguments in
        [&["run", long][..], &["run", "--sets", long], &["run", &format!("--seed={long}")], &[long]]
    {
        let done = waykeeper().args(arguments).assert().code(2);
        let said = String::from_utf8(done.get_output().stderr.clone()).unwrap();
        assert!(said.len() < 3000 && said.starts_with("error: ") && said.contains("xxx"), "{said}");
    }
}

#[test]
fn a_path_need_not_be_utf8() {
    let (folder, path) = tiny();
    let odd = folder.path().join(OsStr::from_bytes(b"t\xffny.toml"));
    std::fs::rename(&path, &odd).unwrap();
    let out = folder.path().join(OsStr::from_bytes(b"\xff"));
    for words in [&["run", "--policy", "none", "--out"][..], &["scenario", "check"], &["scenario", "show"]] {
        let mut command = waykeeper();
        command.args(words);
        if words.ends_with(&["--out"]) {
            command.arg(&out);
        }
        command.arg(&odd).assert().success();
    }
    assert!(out.join("summary.json").is_file());
    let done = waykeeper().arg("run").arg(odd.with_extension("none.toml")).assert().code(2);
    let said = String::from_utf8(done.get_output().stderr.clone()).unwrap();
    assert!(said.contains("there is no such file"), "{said}");
}
