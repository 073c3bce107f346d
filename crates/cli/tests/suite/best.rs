//! `waykeeper best` starts the search of the Python package with its own options, and `run --policy best` uses the result.

use crate::common;

use common::{output, refused, tiny, waykeeper};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A program in place of the interpreter.
fn interpreter(folder: &Path, script: &str) -> PathBuf {
    // Its path need not be text.
    let path = folder.join(OsStr::from_bytes(b"python\xff"));
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn the_search_is_started_with_every_option_and_its_exit_code_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    // The first call looks for the packages, the second searches.
    let python = interpreter(folder.path(), "[ \"$1\" = -c ] && exit 0\necho \"$@\"\nexit 130");
    let mut command = waykeeper();
    command.env("WAYKEEPER_PYTHON", &python);
    command.args(["best", "mine.toml", "--trials", "7", "--lpw-floor", "0.9", "--resume", "--out", "x.json"]);
    let both = waykeeper().args(["best", "mine.toml", "--resume", "--force"]).assert().code(2);
    assert!(both.get_output().stdout.is_empty());
    let done = command.output().unwrap();
    assert_eq!(done.status.code(), Some(130));
    assert_eq!(
        String::from_utf8(done.stdout).unwrap(),
        "-m waykeeper.best --lpw-floor=0.9 --trials=7 --seeds=1 --confirm-seeds=3 --sets=1/32 --jobs=1 --resume \
         --out=x.json -- mine.toml\n"
    );
}

#[test]
fn without_the_package_one_line_says_what_to_install() {
    let folder = tempfile::tempdir().unwrap();
    let without = interpreter(folder.path(), "exit 1");
    for (python, part) in
        [(without, "has no package waykeeper with Optuna"), ("/no/such".into(), "cannot start")]
    {
        let done =
            waykeeper().env("WAYKEEPER_PYTHON", &python).args(["best", "a4-hpw-heavy"]).output().unwrap();
        let line = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(3), "{line}");
        assert!(line.contains(part) && line.contains("pip install 'waykeeper[best]'"), "{line}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }
}

#[test]
fn a_layout_beside_the_scenario_runs_as_the_policy_best() {
    let (_folder, path) = tiny();
    let name = path.to_str().unwrap();
    refused(&["run", name, "--policy", "best"], 2, &["no best layout of", "search one with `waykeeper best"]);
    let place = path.with_extension("best.json");
    fs::write(&place, "{}").unwrap();
    refused(
        &["run", name, "--policy", "best"],
        2,
        &["tiny.best.json", "expected a file that `waykeeper best` wrote"],
    );
    let layout = "{\"schema\": \"waykeeper.best/1\", \"determined_by\": \"0\", \
                  \"layout\": {\"masks\": {}, \"dca_ways\": null, \"dca\": {}}}";
    fs::write(&place, layout).unwrap();
    refused(&["run", name, "--policy", "best"], 2, &["this layout was searched for 0, and"]);
    let wanted = {
        let done = waykeeper().args(["run", name, "--policy", "best"]).output().unwrap();
        let line = String::from_utf8(done.stderr).unwrap();
        line.split(" is ").nth(1).unwrap().split(';').next().unwrap().to_owned()
    };
    fs::write(&place, layout.replace("\"0\"", &format!("\"{wanted}\""))).unwrap();
    let json = output(&["run", name, "--policy", "default", "--policy", "best", "--json"]);
    assert!(json.contains("\"hpw_regret_ratio\""), "{json}");
}
