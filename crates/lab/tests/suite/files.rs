//! Files on disk: complete, atomic, the same bytes every time, and safe against hostile names.

use crate::common;

use std::fs;
use waykeeper_lab::files::{self, Cells, ResultRows};
use waykeeper_lab::{report, results::*};

#[test]
fn a_run_becomes_files_that_agree() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("new/deep");
    let summary = common::flagship(1);
    let paths = files::write_run(&target, &summary).unwrap();
    let names: Vec<_> = paths.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, files::RUN_FILES);
    assert_eq!(fs::read_dir(&target).unwrap().count(), 6, "no draft is left behind");

    let read: RunSummary = serde_json::from_str(&fs::read_to_string(&paths[0]).unwrap()).unwrap();
    assert!(read.to_json().unwrap() == summary.to_json().unwrap(), "what is written can be read back");

    let mut rows = csv::Reader::from_path(&paths[1]).unwrap();
    assert_eq!(rows.headers().unwrap().get(0), Some("policy"));
    // 6 policies; 11 workloads, 2 groups, 1 socket.
    assert_eq!(rows.records().filter(Result::is_ok).count(), 6 * 14);
    let mut rows = csv::Reader::from_path(&paths[2]).unwrap();
    // 6 policies, 30 intervals, 11 workloads and the socket.
    assert_eq!(rows.records().filter(Result::is_ok).count(), 6 * 30 * 12);

    let lines = fs::read_to_string(&paths[3]).unwrap();
    let decisions: usize = summary.policies.values().map(|policy| policy.decisions.len()).sum();
    assert_eq!(lines.lines().count(), decisions);
    for line in lines.lines() {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(value["policy"].is_string() && value["at_s"].is_number(), "{line}");
    }
    files::write_run(&target, &summary).unwrap();
}

#[test]
fn a_sweep_becomes_the_files_that_a_run_becomes() {
    let directory = tempfile::tempdir().unwrap();
    let paths = files::write_sweep(directory.path(), &common::sweep(true)).unwrap();
    let names: Vec<_> = paths.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, files::SWEEP_FILES);
    let read: SweepSummary = serde_json::from_str(&fs::read_to_string(&paths[0]).unwrap()).unwrap();
    assert_eq!(read.points.len(), 12);
    let mut rows = csv::Reader::from_path(&paths[1]).unwrap();
    assert_eq!(rows.headers().unwrap().get(0), Some("workload.xmem.mask"));
    // 12 points, 2 policies; 2 workloads, 1 group, 1 socket.
    assert_eq!(rows.records().filter(Result::is_ok).count(), 12 * 2 * 4);
    // Of each point, with the values of the swept keys.
    let run =
        |point: &SweepPoint| point.run.policies.values().map(|policy| policy.decisions.len()).sum::<usize>();
    let sweep = common::sweep(true);
    let decisions: Vec<serde_json::Value> = fs::read_to_string(&paths[2])
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(decisions.len(), sweep.points.iter().map(run).sum::<usize>());
    assert!(
        decisions.iter().all(|line| line["at"].as_object().is_some_and(|at| at.len() == sweep.keys.len()))
    );
    let picture = fs::read_to_string(&paths[4]).unwrap();
    // A group of bars per point.
    assert!(picture.contains("higher is better") && picture.matches("<title>").count() >= 12, "{picture}");
}

/// The time series of an earlier run beside the files of a sweep would be taken for the sweep's.
#[test]
fn a_sweep_leaves_no_time_series_of_an_earlier_run() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("notes.txt"), "the user's").unwrap();
    files::write_run(directory.path(), &common::flagship(1)).unwrap();
    files::write_sweep(directory.path(), &common::sweep(false)).unwrap();
    let left = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut left: Vec<_> = left.map(|name| name.into_string().unwrap()).collect();
    let mut wanted = [&files::SWEEP_FILES[..], &["notes.txt"]].concat();
    left.sort();
    wanted.sort();
    assert_eq!(left, wanted);
}

/// A spreadsheet would evaluate such a name; a program reads it as it is.
#[test]
fn a_name_is_no_formula() {
    let mut summary = common::flagship(1);
    summary.policies.retain(|name, _| name == "default");
    let result = &mut summary.policies[0];
    let (name, workload) = result.workloads.shift_remove_index(0).unwrap();
    result.workloads.insert("=HYPERLINK(\"x\")".to_owned(), workload);
    let for_people = ResultRows::of_run(&summary, Cells::Spreadsheet).results_csv().unwrap();
    assert!(for_people.contains("default,workload,\"'=HYPERLINK(\"\"x\"\")\","), "{for_people}");
    let for_programs = ResultRows::of_run(&summary, Cells::Program).results_csv().unwrap();
    assert!(for_programs.contains("default,workload,\"=HYPERLINK(\"\"x\"\")\","), "{name}: {for_programs}");
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let error = files::write_run(&file.join("out"), &common::flagship(1)).unwrap_err();
    assert!(matches!(error, files::OutError::Directory { .. }));
    assert!(error.to_string().contains("file/out"), "{error}");
    // A directory with the name of a file: the rename fails, and the draft is removed.
    let out = directory.path().join("out");
    fs::create_dir_all(out.join("summary.json/x")).unwrap();
    let error = files::write_run(&out, &common::flagship(1)).unwrap_err();
    assert!(error.to_string().contains("summary.json"), "{error}");
    assert_eq!(fs::read_dir(&out).unwrap().count(), 1);
}

#[test]
fn the_same_result_is_the_same_bytes_whatever_the_clock_said() {
    let (first, mut second) = (common::five_seeds(), common::five_seeds());
    second.wall_s = Some(99.0);
    assert!(first.to_json().unwrap() != second.to_json().unwrap());
    assert!(first.deterministic_json().unwrap() == second.deterministic_json().unwrap());
    assert!(!first.deterministic_json().unwrap().contains("wall_s"));
    assert!(report::run_html(&first).unwrap() == report::run_html(&second).unwrap());
    let series = |summary| ResultRows::of_run(summary, Cells::Spreadsheet).timeseries_csv().unwrap();
    assert!(series(&first) == series(&second));
    let (first, mut second) = (common::sweep(false), common::sweep(false));
    second.wall_s = None;
    assert!(first.deterministic_json().unwrap() == second.deterministic_json().unwrap());
    assert!(report::sweep_html(&first).unwrap() == report::sweep_html(&second).unwrap());
}

#[test]
fn no_null_is_ever_written() {
    let mut summary = common::flagship(1);
    let workload = &mut summary.policies[0].workloads[0];
    workload.metrics.ipc = Some(f64::NAN);
    workload.metrics.llc_hit_ratio = None;
    summary.policies[2].decisions[1].causes[0].limit = Some(f64::INFINITY);
    summary.score();
    let json = summary.to_json().unwrap();
    assert!(!json.contains("null"), "an absent key is the only way to say not available");
    serde_json::from_str::<RunSummary>(&json).unwrap();
}
