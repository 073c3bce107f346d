//! `waykeeper trace record` on a real program. Needs valgrind.

use crate::common;

use common::{TINY, output, refused, waykeeper};
use std::process::Command;

fn needs_valgrind() {
    let found = Command::new("valgrind").arg("--version").output().is_ok_and(|done| done.status.success());
    assert!(found, "not run: needs valgrind: install it with apt-get install valgrind");
}

#[test]
fn a_real_program_is_recorded_and_its_trace_run() {
    needs_valgrind();
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("true.wkt");
    let recorded = output(&[
        "trace",
        "record",
        "-o",
        trace.to_str().unwrap(),
        "--limit",
        "200k",
        "--json",
        "--",
        "/bin/true",
    ]);
    refused(
        &["trace", "record", "-o", trace.to_str().unwrap(), "--", "/bin/true"],
        2,
        &["exists already", "--force"],
    );
    let info: serde_json::Value = serde_json::from_str(&recorded).unwrap();
    assert!(info["records"].as_u64().unwrap() > 1000, "{recorded}");
    assert!(info["ended"].is_string());
    let scenario = folder.path().join("replay.toml");
    let text = TINY.replace("program = \"x-mem\"", "program = \"replay\"\ntrace = \"true.wkt\"");
    std::fs::write(&scenario, text.replace("working_set = \"4 MiB\"", "")).unwrap();
    assert!(output(&["run", scenario.to_str().unwrap(), "--policy", "none"]).contains("xmem"));
}

#[test]
fn standard_output_is_the_programs() {
    needs_valgrind();
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("echo.wkt");
    let arguments = ["trace", "record", "-o", trace.to_str().unwrap(), "--", "/bin/echo", "hello"];
    let done = waykeeper().args(arguments).assert().success();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    assert_eq!(text(&done.get_output().stdout), "hello\n");
    let said = text(&done.get_output().stderr);
    assert!(said.contains("\nrecorded ") && said.contains("\nfootprint "), "{said}");
}

#[test]
fn what_cannot_be_recorded_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.wkt");
    let out = out.to_str().unwrap();
    refused(
        &["trace", "record", "-o", out, "--valgrind", "/no/valgrind", "--", "true"],
        3,
        &["/no/valgrind", "install"],
    );
    waykeeper().args(["trace", "record", "-o", out]).assert().code(2);
}

/// Valgrind prints errors on standard error as well; ours is the last line.
#[test]
fn a_program_that_valgrind_cannot_start_is_named() {
    needs_valgrind();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.wkt");
    let out = out.to_str().unwrap();
    let done = waykeeper().args(["trace", "record", "-o", out, "--", "/no/such/program"]).assert().code(2);
    let said = String::from_utf8(done.get_output().stderr.clone()).unwrap();
    assert!(said.lines().last().unwrap().starts_with("error: `/no/such/program`"), "{said}");
}
