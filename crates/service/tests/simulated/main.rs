//! The whole daemon under one seed: the real code, a simulated machine, and a history of faults, kills and other programs.
//!
//! A seed makes a history of events (`history`). The daemon runs it in one thread, without a wall clock, on the virtual
//! server's files and a disk in memory (`world`, `system`). At every system call the journal must be ahead of the knobs;
//! after every step and in the end everything must be as `checks` and `daemon` say.
//!
//! `WAYKEEPER_SEEDS=N` runs N seeds, `WAYKEEPER_SEED=N` one, `WAYKEEPER_FIRST=N` begins at another seed, and
//! `WAYKEEPER_HISTORY=FILE` runs the history in a file, which a failure writes and a person may change.
//! `WAYKEEPER_TRACE=1` prints every call.

mod checks;
mod daemon;
mod damaged;
mod disk;
mod following;
mod hand_over;
mod history;
mod inline_twin;
mod journaled;
mod mailbox;
mod picture;
mod scenarios;
mod stage;
mod system;
mod touched;
mod usage;
mod world;

use history::{Event, History, What};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use waykeeper_testbed::is_long;

/// Seeds of a run without a request, and of one in the long form (`make test-long`).
const SEEDS: u64 = 60;
const SEEDS_LONG: u64 = 10_000;

/// Seeds that are enough for everything to happen once.
const ENOUGH: u64 = SEEDS;

/// Marks that every run of enough seeds must have, besides the names of events.
const MARKS: [&str; 20] = [
    "fault-refuse",
    "fault-short-read",
    "fault-short-write",
    "fault-garbage",
    "lost-unsynced",
    "lock-busy",
    "outsider-acted",
    "kept",
    "hotplug-seen",
    "watched",
    "recorded",
    "killed",
    "stopped",
    "restart",
    "handed-over",
    "taken-over",
    "restore",
    "start-and-stop",
    "twin-asked",
    "twin-answered",
];

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Writes a failed history to a file, and says how to run it again.
fn report(history: &History, violations: &[String]) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("simulated-{}.json", history.seed));
    let text = serde_json::to_string_pretty(history).unwrap_or_else(|why| why.to_string());
    std::fs::write(&path, text).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    format!(
        "seed {}:\n  {}\n  WAYKEEPER_HISTORY={} cargo test -p waykeeper-service --test simulated -- histories\n",
        history.seed,
        violations.join("\n  "),
        path.display()
    )
}

#[test]
fn histories_end_as_they_began() {
    if let Some(path) = std::env::var_os("WAYKEEPER_HISTORY") {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        let history: History =
            serde_json::from_str(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        let outcome = daemon::run(&history);
        assert!(outcome.violations.is_empty(), "{}", outcome.violations.join("\n"));
        return;
    }
    let (first, seeds) = match number("WAYKEEPER_SEED") {
        Some(seed) => (seed, 1),
        None => (
            number("WAYKEEPER_FIRST").unwrap_or(0),
            number("WAYKEEPER_SEEDS").unwrap_or(if is_long() { SEEDS_LONG } else { SEEDS }),
        ),
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, failures) = (AtomicU64::new(first), Mutex::new(Vec::new()));
    let marks = Mutex::new(BTreeMap::<&'static str, u64>::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + seeds {
                        return;
                    }
                    let history = History::of(seed);
                    let outcome = daemon::run(&history);
                    let mut all = marks.lock().unwrap();
                    for (name, times) in outcome.marks {
                        *all.entry(name).or_default() += times;
                    }
                    drop(all);
                    if !outcome.violations.is_empty() {
                        failures.lock().unwrap().push(report(&history, &outcome.violations));
                    }
                }
            });
        }
    });
    let (marks, failures) = (marks.into_inner().unwrap(), failures.into_inner().unwrap());
    let shown: Vec<String> = marks.iter().map(|(name, times)| format!("{name} {times}")).collect();
    #[expect(clippy::print_stdout, reason = "what happened, and how often, is the result of a run")]
    let () = println!("{}", shown.join(", "));
    let few: Vec<&String> = failures.iter().take(20).collect();
    assert!(failures.is_empty(), "{} of {seeds} seeds fail:\n{}", failures.len(), join(&few));
    if seeds >= ENOUGH {
        let never = What::NAMES.iter().chain(&MARKS).filter(|name| !marks.contains_key(*name));
        let never: Vec<_> = never.collect();
        assert!(never.is_empty(), "never happened: {never:?}");
    }
}

/// The tenants change while the journal's disk is full, from one of the calls of that change on.
#[test]
fn work_that_a_full_disk_ends_halfway_is_not_another_programs() {
    let at = |at_ms, calls, what| Event { at_ms, calls, what };
    let mut struck = 0;
    for (nth, outsiders) in (0..24).zip(["leave", "correct"].iter().cycle()) {
        let path = "run/waykeeper/*".to_owned();
        // A third of them have room for a few bytes.
        let full = match nth % 3 {
            0 => What::ShortWrite { path, calls: 0, most: 1 + nth as usize },
            _ => What::Refuse { path, operation: "write".to_owned(), calls: 0, errno: 28 },
        };
        let history = History {
            seed: 9000 + nth,
            scenario: nth % 3,
            policy: "isolate".to_owned(),
            outsiders: (*outsiders).to_owned(),
            tenants: nth % 2,
            recorder: false,
            ends_with_restore: nth % 4 < 2,
            end_ms: 600,
            period_ms: 50,
            twin_delay_ms: None,
            most_starts: 1,
            events: vec![
                at(150, 0, What::Declare { variant: 3 + nth % 3, by_signal: false }),
                at(150, 7 * nth, full),
                at(350, 0, What::Lift),
                at(450, 0, What::Declare { variant: nth % 2, by_signal: false }),
            ],
        };
        let outcome = daemon::run(&history);
        assert!(outcome.violations.is_empty(), "{nth}: {}", outcome.violations.join("\n"));
        struck += u64::from(
            ["fault-refuse", "fault-short-write"].iter().any(|mark| outcome.marks.contains_key(mark)),
        );
    }
    assert!(struck > 12, "{struck} of 24 have failed writes");
}

/// Histories in which something was found that has been mended since.
#[test]
fn what_was_found_once_stays_mended() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/simulated/found");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort_unstable();
    assert!(!files.is_empty());
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let history: History =
            serde_json::from_str(&text).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
        let outcome = daemon::run(&history);
        assert!(outcome.violations.is_empty(), "{}: {}", file.display(), outcome.violations.join("\n"));
    }
}

/// Simulated minutes of the run that looks for leaks, and in the long form; `WAYKEEPER_MINUTES=1440` runs a day.
const MINUTES: u64 = 15;
const MINUTES_LONG: u64 = 240;
/// A seed whose first minutes have an event of each kind that the test asks for.
const SHORT_SEED: u64 = 4;

#[test]
fn a_long_run_uses_no_more_at_its_end_than_at_its_begin() {
    let minutes = number("WAYKEEPER_MINUTES").unwrap_or(if is_long() { MINUTES_LONG } else { MINUTES });
    let history = History::lasting(number("WAYKEEPER_SEED").unwrap_or(SHORT_SEED), minutes);
    let outcome = daemon::run(&history);
    #[expect(clippy::print_stdout, reason = "what happened, and what was in use, is the result of a run")]
    let () = println!("{:?}\n{:#?}", outcome.marks, outcome.usage);
    assert!(outcome.violations.is_empty(), "{}", report(&history, &outcome.violations));
    for mark in ["fault-refuse", "hotplug", "kill", "declare", "set-policy", "pause", "stopped"] {
        assert!(outcome.marks.contains_key(mark), "never happened: {mark}");
    }
    assert_eq!(outcome.left_open, 0, "files of processes that have ended");
    let most = |of: fn(&usage::Usage) -> usize| outcome.usage.iter().map(of).max().unwrap_or(0);
    assert!(most(|usage| usage.descriptors) <= MOST_DESCRIPTORS, "{:?}", outcome.usage);
    assert!(most(|usage| usage.disk_bytes) <= MOST_DISK_BYTES, "{:?}", outcome.usage);
    if let [_, settled, .., last] = &outcome.usage[..] {
        let growth = last.resident_bytes.saturating_sub(settled.resident_bytes);
        assert!(growth <= MOST_GROWTH_BYTES, "{growth} bytes: {:?}", outcome.usage);
    }
}

/// Files that a daemon on this machine may have open: a counter or register file per CPU and port, and its own.
const MOST_DESCRIPTORS: usize = 100;

/// The recorder keeps 1 MiB and the file that it writes; the rest is the journal.
const MOST_DISK_BYTES: usize = 3 << 20;

/// What the allocator of the test's process may keep from note to note.
const MOST_GROWTH_BYTES: usize = 16 << 20;

fn join(all: &[&String]) -> String {
    all.iter().map(|text| text.as_str()).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_same_seed_has_the_same_calls() {
    for seed in [1, 2, 3, 5, 8] {
        let history = History::of(seed);
        let (first, second) = (daemon::run(&history), daemon::run(&history));
        assert_eq!(first.trace, second.trace, "seed {seed}");
        assert!(first.trace.1 > 0, "seed {seed} has no calls");
    }
}
