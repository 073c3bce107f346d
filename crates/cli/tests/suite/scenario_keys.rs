//! docs/scenarios.md names every key that the reader accepts. The test gets the keys from the reader: it refuses a
//! table with an unknown key and lists the known ones.

use crate::common;

use common::repository;
use waykeeper_machine::{KINDS, ScenarioError, ScenarioSource};
use waykeeper_silicon::Rules;

/// Keys that the reader lists when `text` contains the key `zzz`.
fn known(text: &str) -> Vec<String> {
    let folder = repository().join("scenarios");
    let source = ScenarioSource::parse("keys.toml", text, Some(folder)).unwrap();
    match source.read() {
        Err(ScenarioError::UnknownKey { key, known, .. }) if key.ends_with("zzz") => {
            known.split(", ").map(str::to_owned).collect()
        }
        other => panic!("{text}\n{other:?}"),
    }
}

/// The part of the page under the heading that contains `title`.
fn section(page: &str, title: &str) -> String {
    let mut inside = false;
    let mut text = String::new();
    for line in page.lines() {
        if line.starts_with("## ") {
            inside = line.contains(&format!("`{title}`"));
        }
        if inside {
            text.push_str(line);
            text.push('\n');
        }
    }
    assert!(!text.is_empty(), "docs/scenarios.md has no section `{title}`");
    text
}

fn documented(page: &str, title: &str, keys: &[String]) {
    let section = section(page, title);
    for key in keys {
        assert!(
            section.contains(&format!("| `{key}` |")),
            "docs/scenarios.md, `{title}`: `{key}` is not there"
        );
    }
}

/// A scenario with one workload of this program and the devices and keys that it needs.
fn with_program(name: &str) -> String {
    let needs = match name {
        "x-mem" => "working_set = \"1 MiB\"\n",
        "spec" => "benchmark = \"x264\"\n",
        "replay" => "trace = \"../inputs/redis-server.wkt\"\nmax_million_instructions = 0.1\n",
        "redis-client" => "peer = \"other\"\n",
        _ => "",
    };
    format!(
        "name = \"k\"\n[[nic]]\nname = \"n\"\n[[storage]]\nname = \"s\"\n[[workload]]\nname = \"w\"\nprogram = \"{name}\"\ncores = 0\n{needs}"
    )
}

/// Numbers that no range contains.
const IMPOSSIBLE: [&str; 5] = ["1e300", "-1e300", "nan", "9223372036854775807", "-9223372036854775808"];

/// `text` with `key = value` in the place of `zzz = 1`, or of the value that the key has.
fn assigned(text: &str, key: &str, value: &str) -> String {
    let has_key = |line: &str| line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with('='));
    let is_there = text.lines().any(has_key);
    let line = |line: &str| match line {
        "zzz = 1" if is_there => String::new(),
        "zzz = 1" => format!("{key} = {value}"),
        line if has_key(line) => format!("{key} = {value}"),
        line => line.to_owned(),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// A key that takes a number refuses what no range contains. A new key without a range fails here.
#[test]
fn every_number_has_a_range() {
    let base = with_program("l2fwd");
    let toml::Value::Table(rules) = toml::Value::try_from(Rules::default()).unwrap() else { panic!() };
    let rules: Vec<String> = rules.keys().cloned().chain(["quantum_ns".to_owned()]).collect();
    let mut tables = vec![(format!("{base}[model]\nzzz = 1"), rules)];
    let mut common: Vec<String> = Vec::new();
    for text in [
        format!("zzz = 1\n{base}"),
        format!("{base}[knobs]\nzzz = 1"),
        format!("{base}[[knobs.phase]]\nzzz = 1\nat_s = 1\ndca_ways = \"0x600\""),
        base.replace("name = \"n\"", "name = \"n\"\nzzz = 1"),
        base.replace("name = \"n\"", "name = \"n\"\n[[nic.phase]]\nzzz = 1"),
        base.replace("name = \"s\"", "name = \"s\"\nzzz = 1"),
        format!("{base}[[fault]]\nkind = \"busy\"\nat_s = 1\nzzz = 1"),
    ] {
        let keys = known(&text);
        tables.push((text, keys));
    }
    for kind in KINDS {
        let text = format!("{}zzz = 1", with_program(kind.name));
        // What all programs have is tried with the first one.
        let keys: Vec<String> = known(&text).into_iter().filter(|key| !common.contains(key)).collect();
        if common.is_empty() {
            common.clone_from(&keys);
        }
        tables.push((text, keys));
    }
    let folder = repository().join("scenarios");
    let (mut accepted, mut tried) = (Vec::new(), 0);
    for (text, keys) in &tables {
        for (key, value) in keys.iter().flat_map(|key| IMPOSSIBLE.map(|value| (key, value))) {
            let text = assigned(text, key, value);
            let read = ScenarioSource::parse("keys.toml", &text, Some(folder.clone()))
                .and_then(|source| source.read());
            tried += 1;
            if read.is_ok() {
                accepted.push(format!("{key} = {value}"));
            }
        }
    }
    assert!(accepted.is_empty() && tried > 500, "{tried} tried; accepted: {accepted:?}");
}

#[test]
fn every_key_is_documented() {
    let page = std::fs::read_to_string(repository().join("docs/scenarios.md")).unwrap();
    let base = with_program("l2fwd");
    documented(&page, "top level", &known(&format!("zzz = 1\n{base}")));
    documented(&page, "knobs", &known(&format!("{base}[knobs]\nzzz = 1")));
    documented(
        &page,
        "knobs.phase",
        &known(&format!("{base}[[knobs.phase]]\nzzz = 1\nat_s = 1\ndca_ways = \"0x600\"")),
    );
    documented(&page, "nic", &known(&base.replace("name = \"n\"", "name = \"n\"\nzzz = 1")));
    let phase = base.replace("name = \"n\"", "name = \"n\"\n[[nic.phase]]\nzzz = 1");
    documented(&page, "nic.phase", &known(&phase));
    documented(&page, "storage", &known(&base.replace("name = \"s\"", "name = \"s\"\nzzz = 1")));
    documented(
        &page,
        "sweep",
        &known(&format!("{base}[[sweep]]\nkey = \"name\"\nvalues = [\"a\"]\nzzz = 1")),
    );
    documented(&page, "workload.phase", &["at_s".to_owned(), "priority".to_owned()]);
    documented(&page, "fault", &known(&format!("{base}[[fault]]\nkind = \"busy\"\nat_s = 1\nzzz = 1")));

    let common = section(&page, "workload");
    for kind in KINDS {
        let own = section(&page, kind.name);
        for key in known(&format!("{}zzz = 1", with_program(kind.name))) {
            let row = format!("| `{key}` |");
            assert!(common.contains(&row) || own.contains(&row), "docs/scenarios.md, {}: `{key}`", kind.name);
        }
    }
    let toml::Value::Table(rules) = toml::Value::try_from(Rules::default()).unwrap() else { panic!() };
    documented(&page, "model", &rules.keys().cloned().chain(["quantum_ns".to_owned()]).collect::<Vec<_>>());
}
