//! Tidy rules: every source file opens with its purpose, none is too long, and crates depend inwards only, as in
//! ARCHITECTURE.md.

use crate::common;

use common::repository;
use std::path::{Path, PathBuf};

/// Most lines of a source file; a longer one is to be split.
const MOST_LINES: usize = 600;

/// Widest line of a comment, which rustfmt does not change: two files fit side by side on a screen.
const WIDEST_COMMENT: usize = 125;

/// The crates, innermost first. A crate may depend only on the listed ones.
const CRATES: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("benches", &[]),
    ("bounded-read", &[]),
    ("output-file", &[]),
    ("drawing", &[]),
    ("perfetto", &[]),
    ("host", &["units"]),
    ("silicon", &["units"]),
    ("experiments", &["units", "bounded-read", "silicon"]),
    ("inputs", &["units", "bounded-read", "output-file"]),
    ("load", &["units"]),
    ("memload", &["units", "output-file", "load"]),
    ("generations", &["units"]),
    ("machine", &["units", "bounded-read", "host", "silicon", "inputs", "load"]),
    ("vhost", &["units", "host", "silicon", "machine", "generations"]),
    ("kernel", &["units", "bounded-read", "host", "generations"]),
    ("tenants", &["units", "host", "kernel"]),
    ("linux-host", &["units", "output-file", "host", "generations", "kernel", "tenants"]),
    ("nri", &["units", "host", "tenants"]),
    ("operator", &["units", "host", "generations", "kernel", "linux-host"]),
    ("probe", &["units", "host", "kernel", "linux-host", "operator"]),
    ("calibration", &["units", "host"]),
    ("attribution", &["units", "host"]),
    ("twin", &["units", "host", "silicon", "calibration"]),
    ("policy", &["units", "host", "calibration"]),
    ("policy-process", &["units", "bounded-read", "host", "policy"]),
    ("control", &["units", "host", "calibration", "policy"]),
    (
        "service",
        &[
            "units",
            "bounded-read",
            "host",
            "kernel",
            "tenants",
            "nri",
            "linux-host",
            "calibration",
            "twin",
            "policy",
            "policy-process",
            "control",
            "perfetto",
        ],
    ),
    (
        "lab",
        &[
            "units",
            "bounded-read",
            "output-file",
            "host",
            "silicon",
            "inputs",
            "machine",
            "calibration",
            "twin",
            "policy",
            "control",
            "drawing",
            "probe",
        ],
    ),
    (
        "view",
        &["units", "drawing", "host", "attribution", "silicon", "machine", "policy", "control", "service"],
    ),
    ("web", &["units", "drawing", "machine", "policy", "lab", "view"]),
    (
        "cli",
        &[
            "units",
            "bounded-read",
            "output-file",
            "drawing",
            "host",
            "silicon",
            "experiments",
            "inputs",
            "machine",
            "policy",
            "policy-process",
            "control",
            "lab",
            "generations",
            "kernel",
            "tenants",
            "linux-host",
            "operator",
            "vhost",
            "probe",
            "service",
            "view",
            "web",
            "load",
            "memload",
        ],
    ),
    // What fuzzing does with an input; only tests and fuzz/ use it.
    (
        "fuzz-targets",
        &[
            "inputs",
            "kernel",
            "linux-host",
            "load",
            "machine",
            "memload",
            "nri",
            "operator",
            "host",
            "policy",
            "policy-process",
            "service",
            "silicon",
            "generations",
            "tenants",
            "testbed",
            "units",
            "vhost",
            "view",
            "web",
        ],
    ),
    // The fixture of tests; a crate but `fuzz-targets` depends on it only for its tests.
    (
        "testbed",
        &["units", "host", "silicon", "machine", "generations", "vhost", "kernel", "tenants", "linux-host"],
    ),
];

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // Examples need not follow the rules.
        if path.is_dir() && !path.ends_with("target") && !path.ends_with("examples") {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "py") {
            into.push(path);
        }
    }
}

#[test]
fn every_source_says_what_it_is_for_and_is_short_enough() {
    let mut files = Vec::new();
    sources(&repository().join("crates"), &mut files);
    sources(&repository().join("python"), &mut files);
    sources(&repository().join("fuzz"), &mut files);
    assert!(files.len() > 100, "the sources were not found");
    assert!(files.iter().any(|path| path.ends_with("waykeeper/__init__.py")), "Python's were not found");
    let mut wrong = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let opening =
            if path.extension().is_some_and(|extension| extension == "py") { "\"\"\"" } else { "//!" };
        if !text.starts_with(opening) {
            wrong.push(format!("{}: does not open with {opening} and what it is for", path.display()));
        }
        let lines = text.lines().count();
        if lines > MOST_LINES {
            wrong.push(format!("{}: {lines} lines; look for the seam", path.display()));
        }
        for (line, comment) in
            text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("//"))
        {
            let wide = comment.chars().count();
            if wide > WIDEST_COMMENT {
                wrong.push(format!("{}:{}: a comment {wide} wide", path.display(), line + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn crates_depend_inwards_only() {
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(repository().join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        let Ok(text) = std::fs::read_to_string(folder.join("Cargo.toml")) else { continue };
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let Some((_, allowed)) = CRATES.iter().find(|(known, _)| *known == name) else {
            wrong.push(format!("{name}: not in the list of crates; put it there and into ARCHITECTURE.md"));
            continue;
        };
        let manifest: toml::Table = text.parse().unwrap();
        let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table).into_iter().flatten();
        for used in dependencies.filter_map(|(key, _)| key.strip_prefix("waykeeper-")) {
            if !allowed.contains(&used) {
                wrong.push(format!("{name} depends on {used}, which it must not know"));
            }
        }
    }
    for (name, allowed) in CRATES {
        let unknown = |name: &&&str| !repository().join("crates").join(name).is_dir();
        let unknown = std::iter::once(name).chain(*allowed).filter(unknown);
        wrong.extend(unknown.map(|name| format!("{name}: no such crate")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
