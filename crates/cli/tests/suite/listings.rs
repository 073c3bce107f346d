//! Lists, pages and summaries of files: as text and as JSON.

use crate::common;

use common::{TINY, output, repository, shipped, waykeeper};
use serde_json::Value;
use waykeeper_testbed::is_long;

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&output(arguments)).unwrap()
}

#[test]
fn scenarios_are_listed_shown_and_checked() {
    let text = output(&["scenario", "list"]);
    assert!(text.contains("a4-hpw-heavy") && text.contains("ddio-bench Fig. 11"), "{text}");
    let list = json(&["scenario", "list", "--json"]);
    let files = std::fs::read_dir(repository().join("scenarios")).unwrap();
    let files = files.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|e| e == "toml"));
    assert_eq!(list.as_array().unwrap().len(), files.count());
    assert_eq!(list[0]["name"], "a4-hpw-heavy");
    assert_eq!(list[0]["policies"], serde_json::json!(["default", "a4", "waykeeper"]));

    let shown = output(&["scenario", "show", "a4-fig5"]);
    assert_eq!(shown, std::fs::read_to_string(shipped("scenarios/a4-fig5.toml")).unwrap());
    assert_eq!(output(&["scenario", "show", &shipped("scenarios/a4-fig5.toml")]), shown);
    assert_eq!(output(&["scenario", "check", "a4-hpw-heavy"]), "a4-hpw-heavy: ok, 3 simulations\n");
}

#[test]
fn a_scenario_with_inputs_can_be_shown_kept_elsewhere_and_run() {
    let folder = tempfile::tempdir().unwrap();
    let mine = folder.path().join("mine.toml");
    std::fs::write(&mine, output(&["scenario", "show", "real-inputs"])).unwrap();
    assert!(output(&["scenario", "check", mine.to_str().unwrap()]).contains("ok, 4 simulations"));
    assert_eq!(
        output(&["scenario", "show", mine.to_str().unwrap()]),
        std::fs::read_to_string(&mine).unwrap()
    );
}

#[test]
fn check_continues_after_a_bad_file() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["good.toml", "bad.toml"].map(|name| folder.path().join(name).display().to_string());
    std::fs::write(&paths[0], TINY).unwrap();
    std::fs::write(&paths[1], TINY.replace("high", "hihg")).unwrap();
    let check = |more: &[&str]| {
        let done = waykeeper().args(["scenario", "check", &paths[1], &paths[0]]).args(more).assert().code(2);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (text(&done.get_output().stdout), text(&done.get_output().stderr))
    };
    let (good, bad) = check(&[]);
    assert!(good.contains("good.toml: ok, 2 simulations") && !good.contains("bad"), "{good}");
    let errors: Vec<&str> = bad.lines().filter(|line| !line.starts_with("warning: ")).collect();
    let [error] = errors.as_slice() else { panic!("{bad}") };
    assert!(error.contains("`hihg`") && error.contains("did you mean `high`"), "{bad}");
    let reported: Value = serde_json::from_str(&check(&["--json"]).0).unwrap();
    assert_eq!(
        (&reported[0]["ok"], &reported[1]["ok"], &reported[1]["simulations"]),
        (&false.into(), &true.into(), &2.into())
    );
    assert!(reported[0]["error"].as_str().unwrap().contains("hihg"));
}

#[test]
fn every_built_in_scenario_checks_from_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let listed = json(&["scenario", "list", "--json"]);
    // A check simulates a little of each; crates/lab reads all of them.
    let some = if is_long() { 1 } else { 4 };
    let names =
        listed.as_array().unwrap().iter().step_by(some).map(|listed| listed["name"].as_str().unwrap());
    waykeeper().args(["scenario", "check"]).args(names).current_dir(folder.path()).assert().success();
}

#[test]
fn policies_are_listed_and_described() {
    let list = json(&["policy", "list", "--json"]);
    let text = output(&["policy", "list"]);
    for policy in list.as_array().unwrap() {
        let name = policy["name"].as_str().unwrap();
        assert!(text.contains(name));
        assert!(output(&["policy", "describe", name]).contains("states"), "{name}");
        assert_eq!(json(&["policy", "describe", name, "--json"])["name"], name);
    }
    let alias = text.lines().find(|line| line.starts_with("a4 ")).unwrap();
    assert!(alias.ends_with(" = a4-d"), "{alias}");
    let page = output(&["policy", "describe", "a4"]);
    assert!(page.contains("hpw_llc_hit_thr") && page.contains("deviations"), "{page}");
}

/// What the page documents runs, as a table with the verdict last and as JSON.
#[test]
fn a_chip_is_compared_with_what_was_measured() {
    let page = std::fs::read_to_string(shipped("docs/real-chip.md")).unwrap();
    let (_, example) = page.split_once("```toml\n").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml").display().to_string();
    std::fs::write(&file, example.split_once("```").unwrap().0).unwrap();
    let compare = ["chip", "compare", "platinum-8570", &file, "--seeds", "1"];
    let text = output(&compare);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with(&format!("{file}: one line for people (where")), "{text}");
    assert!(lines[1].starts_with("experiment") && lines[1].ends_with("verdict"), "{text}");
    assert!(
        lines[2].starts_with("read-evicted  0 MiB written elsewhere   0.86") && lines[2].ends_with("near"),
        "{text}"
    );
    let found = json(&[&compare[..], &["--json"]].concat());
    let rows = found["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    let distance = |row: &Value| (row["measured"].as_f64().unwrap() - row["model"].as_f64().unwrap()).abs();
    for (row, x) in rows.iter().zip([0.0, 24.0, 48.0]) {
        assert_eq!((&row["experiment"], row["x"].as_f64()), (&Value::from("read-evicted"), Some(x)));
        assert!((row["distance"].as_f64().unwrap() - distance(row)).abs() < 1e-12, "{row}");
    }
    let mean = rows.iter().map(distance).sum::<f64>() / 3.0;
    assert!((found["mean_distance"].as_f64().unwrap() - mean).abs() < 1e-12);
    assert!(
        text.contains(&format!("all: mean distance {mean:.3} over 3 rows, 0 farther than 0.15")),
        "{text}"
    );
}

#[test]
fn a_comparison_with_a_bad_file_runs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml").display().to_string();
    let good = std::fs::read_to_string(shipped("experiments/emr-h100-cores.toml")).unwrap();
    std::fs::write(&file, good.replace("host = 512", "host = 51.2")).unwrap();
    let bad = waykeeper().args(["chip", "compare", "platinum-8570", &file]).assert().code(2);
    let error = String::from_utf8(bad.get_output().stderr.clone()).unwrap();
    assert!(
        error.contains("experiment cores-4: steps.mib` is 96; it must be a number from 0 to 51.2"),
        "{error}"
    );
    assert_eq!(bad.get_output().stdout, b"");
}

#[test]
fn chips_are_listed_and_shown() {
    assert!(output(&["chip", "list"]).contains("24.75 MiB"));
    assert_eq!(json(&["chip", "list", "--json"]).as_array().unwrap().len(), 15);
    assert_eq!(
        output(&["chip", "show", "gold-6140"]),
        std::fs::read_to_string(shipped("chips/gold-6140.toml")).unwrap()
    );
    assert_eq!(json(&["chip", "show", "e3-1230", "--json"])["cores"], 4);
}

#[test]
fn the_shipped_inputs_tell_what_they_hold() {
    let capture = shipped("inputs/redis-benchmark.pcap");
    assert!(output(&["capture", "info", &capture]).contains("12 000"));
    assert_eq!(json(&["capture", "info", &capture, "--json"])["packets"], 12_000);
    let trace = shipped("inputs/redis-server.wkt");
    assert!(output(&["trace", "info", &trace]).contains("25 000 000"));
    assert_eq!(json(&["trace", "info", &trace, "--json"])["instructions"], 25_000_000);
}

#[test]
fn a_trace_is_converted_and_cut() {
    let folder = tempfile::tempdir().unwrap();
    let (lackey, out) = (folder.path().join("lackey.txt"), folder.path().join("out.wkt"));
    std::fs::write(&lackey, "I  04001000,3\n L 1ffeff0,8\nI  04001003,5\n S 1ffeff8,8\n M 02000000,4\n")
        .unwrap();
    let info = json(&["trace", "convert", lackey.to_str().unwrap(), out.to_str().unwrap(), "--json"]);
    assert_eq!((&info["instructions"], &info["format"]), (&2.into(), &"wkt".into()));
    assert_eq!(json(&["trace", "info", out.to_str().unwrap(), "--json"])["records"], info["records"]);
    let cut = folder.path().join("cut.wkt");
    let (trace, cut) = (shipped("inputs/redis-server.wkt"), cut.to_str().unwrap());
    let arguments = ["trace", "convert", &trace, cut, "--skip", "1M", "--limit", "100k", "--l1"];
    let text = output(&arguments);
    assert!(text.contains("100 000") && text.contains("L1 filtered    yes"), "{text}");
    common::refused(&arguments, 2, &["cut.wkt: it exists already", "--force"]);
    output(&[&arguments[..], &["--force"]].concat());
}

/// A key-value store whose NIC offers its line rate, as it does unless told otherwise.
const STORE: &str = r#"
name = "store"
policies = ["default"]
[[nic]]
name = "nic0"
gbps = 25
packet_bytes = 128
[[workload]]
name = "store"
program = "memcached"
priority = "high"
cores = "0-3"
"#;

/// Packets are dropped on one of two NICs: the advice says on which, and works.
#[test]
fn the_advice_about_dropped_packets_works_with_two_nics() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.toml");
    let quiet = "[[nic]]\nname = \"quiet\"\noffered_gbps = 0.1\n[[workload]]\nname = \"l\"\nprogram = \"l3fwd\"\n\
                 cores = \"4\"\nnic = \"quiet\"\n";
    std::fs::write(&path, format!("{STORE}nic = \"nic0\"\n{quiet}")).unwrap();
    let path = path.to_str().unwrap();
    let done = waykeeper().args(["scenario", "check", path]).assert().success();
    let warned = String::from_utf8_lossy(&done.get_output().stderr).into_owned();
    let advice = warned.split('`').find(|word| word.starts_with("--find-zero-loss")).unwrap();
    assert_eq!(advice, "--find-zero-loss=nic0", "{warned}");
    let found = json(&["run", path, advice, "--duration", "2", "--sets", "1/256", "--json"]);
    assert!(found["knees"][0]["msl_gbps"].as_f64().unwrap() > 0.0, "{found}");
}

#[test]
fn check_and_run_warn_of_packets_that_are_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.toml");
    std::fs::write(&path, STORE).unwrap();
    let path = path.to_str().unwrap();
    let done = waykeeper().args(["scenario", "check", path]).assert().success();
    let [out, warned] =
        [&done.get_output().stdout, &done.get_output().stderr].map(|it| String::from_utf8_lossy(it));
    assert_eq!(out, format!("{path}: ok, 1 simulations\n"));
    assert!(warned.starts_with(&format!("warning: {path}: packets are dropped: store 9")), "{warned}");
    assert!(warned.contains("`--find-zero-loss=nic0` finds the load without loss"), "{warned}");
    let checked = json(&["scenario", "check", path, "--json"]);
    assert_eq!(checked[0]["warnings"][0]["key"], "packets-dropped");
    let short = ["--duration", "2", "--sets", "1/256"];
    let run = output(&[&["run", path], &short[..]].concat());
    assert!(run.contains("warning: packets are dropped: store 9"), "{run}");
    let result = json(&[&["run", path, "--json"], &short[..]].concat());
    assert_eq!(result["warnings"][0]["key"], "packets-dropped");
    let dropped = result["policies"]["default"]["workloads"]["store"]["dropped_ratio"].as_f64().unwrap();
    assert!((0.9..1.0).contains(&dropped), "{dropped}");
    // A load that the cores take gives none.
    let less = STORE.replace("gbps = 25", "gbps = 25\noffered_gbps = 0.5");
    std::fs::write(path, less).unwrap();
    let done = waykeeper().args(["scenario", "check", path]).assert().success();
    assert!(done.get_output().stderr.is_empty(), "{:?}", done.get_output());
}

#[test]
fn what_a_capture_says_that_no_wire_delivers_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd.pcap");
    // Time in us, captured and original length of each packet (pcap-savefile(5)).
    let info = |packets: &[(u32, u32, u32)]| {
        let mut bytes = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 0xffff, 1].map(u32::to_le_bytes).concat();
        for (us, captured, original) in packets {
            bytes.extend([0, *us, *captured, *original].map(u32::to_le_bytes).concat());
            bytes.extend(vec![0; *captured as usize]);
        }
        std::fs::write(&path, bytes).unwrap();
        output(&["capture", "info", path.to_str().unwrap()])
    };
    let odd = info(&[(5, 128, 112), (2, 60, 60), (9, 60, 0)]);
    assert!(odd.contains("out of order      1 packets; all are sorted by time\n"), "{odd}");
    assert!(odd.contains("longer than said  2 packets; the captured length counts\n"), "{odd}");
    assert!(odd.contains("60 to 128 bytes, mean 82.7"), "{odd}");
    let lost = info(&[(900_000, 60, 60), (900_010, 60, 60), (0, 60, 60), (900_020, 0, 0)]);
    assert!(
        lost.contains("longest gap   0.900000 s between packets 3 and 1: a wrong time, or a pause\n"),
        "{lost}"
    );
    assert!(lost.contains("no bytes      1 packets; they are left out\n"), "{lost}");
    let one_time = info(&[(7, 60, 60); 100]);
    assert!(one_time.contains("all packets have one; a NIC needs `offered_gbps`"), "{one_time}");
    let usual = info(&[(0, 60, 60), (1, 60, 60)]);
    assert!(
        !usual.contains("out of order") && !usual.contains("longer than") && !usual.contains("times"),
        "{usual}"
    );
}
