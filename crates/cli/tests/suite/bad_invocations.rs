//! Invocations that cannot work: each ends with its exit code and one line, as the table in the snapshot shows.
//!
//! Files of the wrong kind, outputs that are full, closed or read-only, no terminal, a narrow one, another language, two at
//! once. `bad_input.rs` has the mistakes within a file.

use crate::common::tiny;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Lines for the shell; `waykeeper` is the program, `tiny.toml` a scenario that runs in milliseconds.
const LINES: &[&str] = &[
    // The wrong kind of file.
    "waykeeper run .",
    "waykeeper run ''",
    "waykeeper scenario check /dev/null",
    "waykeeper scenario check /dev/zero",
    "waykeeper scenario check missing/",
    "waykeeper scenario show .",
    "waykeeper chip show ./tiny.toml",
    "waykeeper capture info /dev/null",
    "waykeeper capture info tiny.toml",
    "waykeeper trace info .",
    "waykeeper trace info tiny.toml",
    "waykeeper replay missing",
    "waykeeper replay tiny.toml",
    "waykeeper replay .",
    "waykeeper fleet plan",
    "waykeeper fleet plan missing",
    "waykeeper fleet plan tiny.toml",
    "waykeeper fleet plan =missing",
    "waykeeper fleet plan . --set iat",
    "waykeeper daemon --config . --check",
    "waykeeper daemon --config /dev/null --check",
    "waykeeper daemon --config missing.toml --check",
    "waykeeper daemon --config <(cat tiny.toml) --check",
    "waykeeper status --socket .",
    "waykeeper status --socket tiny.toml",
    "waykeeper memload /dev/null",
    "waykeeper memload virtual:nope",
    "waykeeper vhost tiny.toml",
    "waykeeper ddio show --root missing",
    "waykeeper restore --root missing",
    // Outputs that cannot be written.
    "waykeeper run tiny.toml --out tiny.toml",
    "waykeeper run tiny.toml --out /dev/full",
    "waykeeper run tiny.toml --out /dev/null/x",
    "waykeeper run tiny.toml > /dev/full",
    "waykeeper run tiny.toml --json > /dev/full",
    "waykeeper scenario list > /dev/full",
    "waykeeper policy list --json > /dev/full",
    "waykeeper man > /dev/full",
    "waykeeper run tiny.toml 2> /dev/full > /dev/full",
    "waykeeper --help > /dev/full",
    "waykeeper run --help > /dev/full",
    "waykeeper --version > /dev/full",
    "waykeeper run tiny.toml --out -",
    "waykeeper best tiny.toml --out -",
    // Words that are not UTF-8.
    "waykeeper $'\\xff'",
    "waykeeper run --policy $'a\\xff' tiny.toml",
    "waykeeper policy describe $'\\xff'",
    "waykeeper run $'missing\\xff.toml'",
    "waykeeper chip show $'missing\\xff'",
    "waykeeper fleet plan $'missing\\xff'",
    "waykeeper memload $'missing\\xff'",
    "waykeeper memload virtual:$'missing\\xff'",
    // Numbers and names.
    "waykeeper run tiny.toml --seeds 0",
    "waykeeper run tiny.toml --seeds -3",
    "waykeeper run tiny.toml --seeds 1e3",
    "waykeeper run tiny.toml --seeds 99999999999",
    "waykeeper run tiny.toml --threads 0",
    "waykeeper run tiny.toml --sets 1/33",
    "waykeeper run tiny.toml --duration nan",
    "waykeeper run tiny.toml --duration 1m",
    "waykeeper run tiny.toml --set nothing",
    "waykeeper run tiny.toml --set =1",
    "waykeeper run tiny.toml --set workload.nope.block=1k",
    "waykeeper run tiny.toml --policy a4,iat",
    "waykeeper run tiny.toml --policy ''",
    "waykeeper run tiny.toml --find-msl=nope",
    "waykeeper policy describe A4",
    "waykeeper chip show nope",
    "waykeeper probe run nope",
    "waykeeper rnu",
    "waykeeper run --polcy a4",
];

/// What must work although it is unusual: exit code 0, and nothing on standard error.
const FINE: &[&str] = &[
    "waykeeper run tiny.toml > /dev/null <&-",
    "waykeeper run tiny.toml >&-",
    "waykeeper run tiny.toml 2>&- > /dev/null",
    "LANG=C LC_ALL=C waykeeper run tiny.toml > /dev/null",
    "COLUMNS=20 waykeeper run tiny.toml > /dev/null",
    "TERM=dumb waykeeper run tiny.toml > /dev/null",
    "waykeeper run tiny.toml | head -1 > /dev/null",
    // Into a pipe that nobody reads any more.
    "exec 3> >(true); wait $!; waykeeper --help >&3",
    "exec 3> >(true); wait $!; waykeeper policy describe a4 >&3",
    "waykeeper chip show gold-6140 > $'\\xff'; waykeeper chip show $'\\xff' > /dev/null",
    "waykeeper run tiny.toml --out one > /dev/null 2>&1 & waykeeper run tiny.toml --out two > /dev/null 2>&1; wait $!",
];

/// A shell whose PATH has the program first.
fn shell(folder: &Path, line: &str) -> (i32, Vec<String>) {
    // Of its own: runs are kept in the user's cache.
    std::fs::create_dir_all(folder.join("home")).unwrap();
    let program = PathBuf::from(env!("CARGO_BIN_EXE_waykeeper"));
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let done = Command::new("bash")
        .args(["-c", line])
        .current_dir(folder)
        .env("PATH", path)
        .env("HOME", folder.join("home"))
        .env("NO_COLOR", "1")
        .env_remove("RUST_BACKTRACE")
        .env_remove("XDG_CACHE_HOME")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8(done.stderr).unwrap();
    // clap adds a usage and a pointer to --help after its line.
    let ours = |line: &&str| {
        !line.is_empty()
            && !line.starts_with(' ')
            && !line.starts_with("Usage:")
            && !line.starts_with("For more")
    };
    (done.status.code().unwrap_or(-1), errors.lines().filter(ours).map(str::to_owned).collect())
}

#[test]
fn what_cannot_work_ends_with_its_code_and_one_line() {
    let (folder, _) = tiny();
    let mut table = String::new();
    for line in LINES {
        let (code, errors) = shell(folder.path(), line);
        assert!(![0, 101, 134].contains(&code), "{line}: {code}: {errors:?}");
        if !line.contains("2> /dev/full") {
            assert_eq!(errors.len(), 1, "{line}: {errors:?}");
            assert!(errors[0].starts_with("error: "), "{line}: {errors:?}");
        }
        let error = errors.first().map_or("", |error| error.trim_start_matches("error: "));
        let error = error.replace(folder.path().to_str().unwrap(), "FOLDER");
        // The shell chooses the number.
        let error = error
            .split("/dev/fd/")
            .map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit()))
            .collect::<Vec<_>>();
        let error = error.join("/dev/fd/");
        let short: String = error.chars().take(110).collect();
        let call = line.trim_start_matches("waykeeper ");
        table += format!("{call:<52} {code}  {short}").trim_end();
        table.push('\n');
    }
    insta::assert_snapshot!(table);
}

#[test]
fn what_is_unusual_works_without_a_word() {
    let (folder, _) = tiny();
    for line in FINE {
        assert_eq!(shell(folder.path(), line), (0, Vec::new()), "{line}");
    }
    for name in ["one", "two"] {
        assert!(folder.path().join(name).join("summary.json").is_file(), "{name}");
    }
}

#[test]
fn nothing_is_written_by_what_cannot_work() {
    let (folder, _) = tiny();
    shell(folder.path(), "true");
    let before: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    for line in LINES {
        shell(folder.path(), line);
    }
    let after: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(before, after);
}
