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
