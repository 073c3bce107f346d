//! A daemon that ends at any point between journal, writes and restore: every knob is restored exactly.
//!
//! strace lists the calls of the control thread that change something. In further runs it acts at each of them: it
//! kills the daemon as it enters the call (so between the call before and this one), or sends a signal, or makes the
//! call fail. No test depends on timing. Needs root, /dev/fuse and Debian's strace.

use crate::common::daemon;

use daemon::{Daemon, Setup};
use rustix::process::Signal;
use serde_json::json;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use waykeeper_testbed::{HostState, MountedHost, assert_same_state, is_long};

/// Calls that change a file, a directory or the disk.
const CHANGING: [&str; 12] = [
    "write",
    "pwrite64",
    "fsync",
    "ftruncate",
    "mkdir",
    "mkdirat",
    "rmdir",
    "unlink",
    "unlinkat",
    "rename",
    "renameat",
    "renameat2",
];

/// One call of the control thread: the nth of its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Point {
    call: String,
    nth: usize,
    /// Its target, as strace writes it.
    on: String,
}

/// A host, and its state before any daemon.
struct Field {
    machine: MountedHost,
    setup: Setup,
    found: HostState,
}

impl Field {
    fn new() -> Field {
        let machine = MountedHost::new("gold-6140");
        let state = machine.folder().join("state");
        std::fs::create_dir_all(&state).expect("a folder beside the tree");
        let setup = Setup::new(&machine, &state);
        let found = machine.state();
        Field { machine, setup, found }
    }

    /// Everything comes back by a restore, or every second time by the start of the next daemon and its end.
    fn comes_back(&self, turn: usize, after: &str) {
        if turn.is_multiple_of(2) {
            self.setup.restore();
        } else {
            let (status, said) = self.live(self.setup.start());
            assert!(status.success(), "{after}, the next start: {said}");
        }
        self.nothing_is_left(after);
    }

    fn nothing_is_left(&self, after: &str) {
        assert_same_state(&self.machine.state(), &self.found, after);
        assert!(!self.setup.journal.exists(), "{after}: the journal is empty and gone");
    }

    /// A whole run of a daemon: in charge, every knob set, ended by a signal.
    fn live(&self, mut daemon: Daemon) -> (std::process::ExitStatus, String) {
        if daemon.in_charge() {
            daemon.signal(Signal::TERM);
        }
        daemon.end()
    }

    /// The same, with an order to leave the knobs to the next daemon.
    fn hand_over(&self, mut daemon: Daemon) -> (std::process::ExitStatus, String) {
        if daemon.in_charge() && daemon.ask(json!({"do": "hand-over"})).is_some() {
            daemon.signal(Signal::TERM);
        }
        daemon.end()
    }

    /// A daemon that is killed at a point of its life.
    fn kill_at(&self, point: &Point) -> Daemon {
        let inject = format!("inject={}:signal=SIGKILL:when={}", point.call, point.nth);
        let trace = format!("trace={}", point.call);
        self.setup.start_traced(&["-o", "/dev/null", "-e", &trace, "-e", &inject])
    }

    /// The changing calls of a whole run that touch the host or the journal, in order.
    fn points(&self) -> Vec<Point> {
        self.points_of(|daemon| self.live(daemon))
    }

    /// The same of another life.
    fn points_of(&self, live: impl FnOnce(Daemon) -> (std::process::ExitStatus, String)) -> Vec<Point> {
        let log = self.machine.folder().join("strace.log");
        let trace = format!("trace={}", CHANGING.join(","));
        let strace_arguments = ["-y", "-o", log.to_str().expect("ASCII"), "-e", &trace];
        let (status, said) = live(self.setup.start_traced(&strace_arguments));
        assert!(status.success(), "{said}");
        let text = std::fs::read_to_string(&log).expect("strace wrote it");
        let folder = self.machine.folder().to_str().expect("ASCII").to_owned();
        let points = points(&text, &folder);
        assert!(points.len() > 100, "{} points; a whole life has hundreds:\n{text}", points.len());
        points
    }
}

/// The calls of the thread that makes most directories (the control thread), if they touch a file under `folder`.
fn points(log: &str, folder: &str) -> Vec<Point> {
    let lines = log.lines().filter_map(|line| {
        let (thread, rest) = line.trim_start().split_once(' ')?;
        let (call, arguments) = rest.trim_start().split_once('(')?;
        CHANGING.contains(&call).then(|| (thread.to_owned(), call.to_owned(), arguments.to_owned()))
    });
    let lines: Vec<(String, String, String)> = lines.collect();
    let mut makers: BTreeMap<&str, usize> = BTreeMap::new();
    for (thread, call, _) in &lines {
        *makers.entry(thread).or_default() += usize::from(call.starts_with("mkdir"));
    }
    let control = makers.into_iter().max_by_key(|(_, made)| *made).map(|(thread, _)| thread.to_owned());
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut points = Vec::new();
    for (thread, call, arguments) in lines {
        if Some(&thread) != control.as_ref() {
            continue;
        }
        let nth = counts.entry(call.clone()).or_default();
        *nth += 1;
        if arguments.contains(folder) {
            let on = arguments.chars().take(160).collect();
            points.push(Point { call, nth: *nth, on });
        }
    }
    points
}

/// At most `count` points, evenly distributed, with the first and the last.
fn some(points: &[Point], count: usize) -> Vec<&Point> {
    let last = points.len() - 1;
    let mut all: Vec<usize> = (0..count).map(|index| index * last / (count - 1)).collect();
    all.dedup();
    all.into_iter().map(|index| &points[index]).collect()
}

/// Points at directories and the journal, whose state other programs see; the others are registers.
fn milestones(points: &[Point]) -> Vec<Point> {
    points.iter().filter(|point| point.call != "pwrite64" || point.on.contains("/journal")).cloned().collect()
}

#[test]
fn a_daemon_that_is_killed_anywhere_leaves_its_originals() {
    let field = Field::new();
    let points = field.points();
    field.nothing_is_left("after a whole life");
    let milestones = milestones(&points);
    let mut chosen = some(&milestones, if is_long() { 24 } else { 8 });
    chosen.extend(some(&points, if is_long() { 8 } else { 3 }));
    let (all, mut killed, mut journals) = (chosen.len(), 0, 0);
    for (turn, point) in chosen.into_iter().enumerate() {
        let (status, said) = field.live(field.kill_at(point));
        let was_killed = status.signal() == Some(9);
        // If the host answers differently, there may be one call fewer than in the first run.
        assert!(was_killed || status.success(), "{point:?}: {status}: {said}");
        killed += usize::from(was_killed);
        journals += usize::from(field.setup.journal.exists());
        field.comes_back(turn, &format!("killed at {point:?}"));
    }
    assert!(killed * 4 >= all * 3, "killed at {killed} of {all} points, of {}", points.len());
    assert!(journals * 16 >= all * 9, "with a journal at {journals} of {all}");
}

/// Each takes two daemons. The simulated machine kills at many more points (`crates/service/tests/simulated/hand_over.rs`).
const TAKE_OVERS: usize = 2;

#[test]
fn a_daemon_that_is_killed_while_it_hands_over_or_takes_over_leaves_its_originals() {
    let field = Field::new();
    let first = field.points_of(|daemon| field.hand_over(daemon));
    assert!(field.setup.journal.exists(), "it was handed over");
    let second = field.points();
    field.nothing_is_left("after both");
    // The mark is written when the journal is renamed over the one before.
    let mark = first.iter().rposition(|point| point.call.starts_with("rename")).expect("the mark");
    let ends = [mark, mark + 1].map(|index| (&first[index], true));
    let starts = milestones(&second);
    let starts = some(&starts, TAKE_OVERS).into_iter().map(|point| (point, false));
    let (mut killed, mut marked) = (0, 0);
    for (turn, (point, is_first)) in ends.into_iter().chain(starts).enumerate() {
        let (status, said) = match is_first {
            true => field.hand_over(field.kill_at(point)),
            false => {
                let (status, said) = field.hand_over(field.setup.start());
                assert!(status.success(), "{said}");
                field.live(field.kill_at(point))
            }
        };
        let was_killed = status.signal() == Some(9);
        assert!(was_killed || status.success(), "{point:?}: {status}: {said}");
        killed += usize::from(was_killed);
        let journal = std::fs::read(&field.setup.journal).unwrap_or_default();
        marked += usize::from(was_killed && String::from_utf8_lossy(&journal).contains("hand_over"));
        field.comes_back(turn, &format!("killed at {point:?}"));
    }
    assert!(
        killed >= 3 && marked >= 1 && marked < killed,
        "killed at {killed} points, {marked} with the mark"
    );
}

#[test]
fn a_signal_anywhere_ends_it_with_everything_back() {
    let field = Field::new();
    let milestones = milestones(&field.points());
    for (turn, point) in some(&milestones, if is_long() { 8 } else { 4 }).into_iter().enumerate() {
        let signal = ["SIGTERM", "SIGINT"][turn % 2];
        let inject = format!("inject={}:signal={signal}:when={}", point.call, point.nth);
        let trace = format!("trace={}", point.call);
        let (status, said) =
            field.live(field.setup.start_traced(&["-o", "/dev/null", "-e", &trace, "-e", &inject]));
        assert!(status.success(), "{signal} at {point:?}: {status}: {said}");
        field.nothing_is_left(&format!("{signal} at {point:?}"));
    }
}

#[test]
fn a_journal_that_cannot_be_written_turns_nothing() {
    let field = Field::new();
    let points = field.points();
    let journal: Vec<Point> = points
        .into_iter()
        .filter(|p| p.on.contains("/journal") && ["pwrite64", "fsync"].contains(&p.call.as_str()))
        .collect();
    for (turn, point) in some(&journal, if is_long() { 8 } else { 4 }).into_iter().enumerate() {
        let error = ["ENOSPC", "EIO"][turn % 2];
        let inject = format!("inject={}:error={error}:when={}", point.call, point.nth);
        let trace = format!("trace={}", point.call);
        let (status, said) =
            field.live(field.setup.start_traced(&["-o", "/dev/null", "-e", &trace, "-e", &inject]));
        assert!(status.code().is_some(), "{error} at {point:?}: {status}: {said}");
        if field.setup.journal.exists() {
            field.setup.restore();
        }
        field.nothing_is_left(&format!("{error} at {point:?}"));
    }
}

/// A file system of so many KiB, unmounted on drop.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(on: &Path, kib: u32) -> SmallDisk {
        let size = format!("size={kib}k,mode=755");
        let done =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "waykeeper-test"]).arg(on).status();
        assert!(done.is_ok_and(|status| status.success()), "not run: needs root: it mounts a tmpfs");
        SmallDisk(on.to_owned())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_under_the_journal_turns_nothing_that_does_not_come_back() {
    let mut ends = Vec::new();
    for kib in [4, 8, 16, 24, 28, 32] {
        let machine = MountedHost::new("gold-6140");
        let state = machine.folder().join("small");
        std::fs::create_dir_all(&state).expect("a folder beside the tree");
        let disk = SmallDisk::mount(&state, kib);
        let setup = Setup::new(&machine, &state);
        let field = Field { found: machine.state(), machine, setup };
        let (status, said) = field.live(field.setup.start());
        ends.push(status.code());
        assert!(status.code().is_some(), "{kib} KiB: {status}: {said}");
        assert!(!said.contains("another program"), "{kib} KiB: half-done work is the daemon's own: {said}");
        if !status.success() {
            assert!(said.contains("journal"), "{said}");
        }
        field.nothing_is_left(&format!("with {kib} KiB for the journal"));
        drop(disk);
    }
    assert_ne!(
        ends[0],
        Some(0),
        "a page is too small for what a host of four tenants has to remember: {ends:?}"
    );
}
