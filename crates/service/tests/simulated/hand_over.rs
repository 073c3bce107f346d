//! A process that hands its knobs over to the next one: no knob changes in between, and a kill at any call ends as found.
//!
//! `WAYKEEPER_SEEDS=N` kills at N calls of each process, and at every call if N is large enough. Must not know how the
//! daemon takes knobs over.

use crate::daemon::{End, process, restore, write_config};
use crate::following::Watch;
use crate::history::{Event, History, What};
use crate::number;
use crate::stage::Stage;
use waykeeper_linux_host::RestoreScope;

/// When the second process is asked to end, ms.
const END_MS: u64 = 500;

/// Between the end of a process and the start of the next one, ns.
const PAUSE_NS: u64 = 20_000_000;

/// A machine whose tenants get masks, and whose first process is asked to end soon; with an order, after that.
fn machine(tenants: u64, within_ms: Option<u64>) -> Stage {
    let order = within_ms.map(|ms| What::HandOver { ms });
    let events = order.into_iter().chain([What::Stop]).zip(0..);
    Stage::new(&History {
        seed: 77,
        scenario: 0,
        policy: "fixed".to_owned(),
        outsiders: "leave".to_owned(),
        tenants,
        recorder: false,
        ends_with_restore: false,
        end_ms: END_MS,
        period_ms: 50,
        twin_delay_ms: None,
        most_starts: 2,
        events: events.map(|(what, ms)| Event { at_ms: 100 + ms, calls: 0, what }).collect(),
    })
}

impl Stage {
    fn process(&self) -> End {
        process(&self.world, &self.original)
    }

    fn pause(&self, ns: u64) {
        let mut state = self.world.lock();
        let now = state.now_ns;
        state.advance(now + ns);
    }

    /// What `waykeeper restore --passing` does. True if it leaves the knobs to the next process.
    fn restore_passing(&self) -> bool {
        // No kill strikes it, and its calls do not count for the kill of a process.
        let kill_at = self.world.lock().following.kill_at.take();
        let before = self.world.lock().trace().1;
        let report = restore(&self.world, RestoreScope::AfterDaemon).expect("restored");
        assert!(report.is_complete(), "{report:?}");
        let calls = self.world.lock().trace().1 - before;
        self.world.lock().following.kill_at = kill_at.map(|at| at + calls);
        report.handed_over.is_some()
    }

    fn is_as_found(&self, when: &str) {
        self.compare(when);
        let state = self.world.lock();
        assert!(state.violations.is_empty(), "{when}: {}", state.violations.join("\n"));
    }

    fn has(&self, mark: &str) -> bool {
        self.world.lock().marks.contains_key(mark)
    }
}

/// Two processes one after the other, and what a watch at every changing call has found until the second is asked to end.
fn follow(tenants: [u64; 2], within_ms: Option<u64>) -> (Stage, Watch) {
    let stage = machine(tenants[0], within_ms);
    stage.world.lock().following.watches = true;
    assert_eq!(stage.process(), End::Stopped);
    stage.pause(PAUSE_NS);
    write_config(&stage.world, tenants[1]);
    assert_eq!(stage.process(), End::Stopped);
    let watched = stage.world.lock().following.watched.take().expect("both were asked to end");
    assert!(watched.looks > 40, "{} looks", watched.looks);
    stage.is_as_found("in the end");
    (stage, watched)
}

#[test]
fn no_knob_changes_while_one_process_follows_another() {
    // Tenants with CPUs, and tenants with processes.
    for tenants in [0, 1] {
        let (stage, watched) = follow([tenants; 2], Some(10_000));
        assert!(stage.has("taken-over"));
        assert!(watched.changed.is_empty(), "tenants {tenants}: {:#?}", watched.changed);
        // A plain restart shows that the watch sees what changes.
        let (stage, watched) = follow([tenants; 2], None);
        assert!(!stage.has("taken-over"));
        let has = |words: &str| watched.changed.iter().any(|changed| changed.starts_with(words));
        assert!(
            has("group waykeeper-a schemata: None") && has("CPU 0: Some(\"\")"),
            "{:#?}",
            watched.changed
        );
    }
}

#[test]
fn a_tenant_that_stays_keeps_its_group_when_others_come_and_go() {
    // Tenant a stays, b loses a CPU, c and d come.
    let (stage, watched) = follow([0, 3], Some(10_000));
    assert!(stage.has("taken-over"));
    let of_a = |changed: &&String| changed.contains("waykeeper-a") || changed.starts_with("CPU 0");
    assert_eq!(watched.changed.iter().find(of_a), None);
    let has = |words: &str| watched.changed.iter().any(|changed| changed.starts_with(words));
    assert!(
        has("CPU 2: Some(\"waykeeper-c\")") && has("CPU 3: Some(\"waykeeper-d\")"),
        "{:#?}",
        watched.changed
    );
    // Tenant a is not declared any more, and b gets its CPU.
    let (_, watched) = follow([0, 5], Some(10_000));
    let has = |words: &str| watched.changed.iter().any(|changed| changed.starts_with(words));
    assert!(
        has("group waykeeper-a schemata: None") && has("CPU 0: Some(\"waykeeper-b\")"),
        "{:#?}",
        watched.changed
    );
    assert!(!has("group waykeeper-b schemata: None"), "{:#?}", watched.changed);
}

#[test]
fn the_first_passing_restore_leaves_the_knobs_and_the_second_one_restores_them() {
    let stage = machine(0, Some(10_000));
    assert_eq!(stage.process(), End::Stopped);
    assert!(stage.restore_passing(), "the next process may come");
    assert!(!stage.restore_passing(), "it has not come");
    stage.is_as_found("in the end");
}

#[test]
fn knobs_that_wait_for_too_long_are_restored() {
    for passing in [true, false] {
        // The process is asked to end three steps after the order, and the pause is longer than the rest.
        let stage = machine(0, Some(400));
        assert_eq!(stage.process(), End::Stopped);
        assert!(stage.world.lock().has_hand_over());
        stage.pause(400_000_000);
        if passing {
            assert!(!stage.restore_passing());
        } else {
            assert_eq!(stage.process(), End::Stopped);
            assert!(!stage.has("taken-over"));
        }
        stage.is_as_found("in the end");
    }
}

/// What follows a kill.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// `waykeeper restore`.
    Restore,
    /// The next start, and its end.
    Start,
    /// The unit: a passing restore after each end, and another start.
    Unit,
}

/// Kills a process at a call of its end or of the next one's start. Returns whether the journal then had the mark, and
/// whether the second process was killed.
fn kill(at: u64, then: Then) -> (bool, bool) {
    let stage = machine(1, Some(10_000));
    stage.world.lock().following.kill_at = Some(at);
    let mut ends = vec![stage.process()];
    while ends.last() == Some(&End::Stopped) && ends.len() < 2 {
        if matches!(then, Then::Unit) {
            assert!(stage.restore_passing(), "killed at {at}: the next process may come");
        }
        stage.pause(PAUSE_NS);
        ends.push(stage.process());
    }
    assert_eq!(ends.last(), Some(&End::Killed), "call {at}: {ends:?}");
    let has_mark = stage.world.lock().has_hand_over();
    match then {
        Then::Restore => {
            let report = restore(&stage.world, RestoreScope::All).expect("restored");
            assert!(report.is_as_found(), "killed at {at}: {report:?}");
        }
        Then::Start => assert_eq!(stage.process(), End::Stopped, "killed at {at}"),
        Then::Unit => {
            let left = stage.restore_passing();
            assert_eq!(left, has_mark && ends.len() == 1, "killed at {at}");
            assert_eq!(stage.process(), End::Stopped, "killed at {at}");
        }
    }
    stage.is_as_found(&format!("killed at {at}, then {then:?}"));
    (has_mark, ends.len() == 2)
}

/// Calls at which a process is killed without a request, at its end and at the next one's start.
const KILLS: u64 = 9;

/// Calls of a process at which it is killed, spread evenly over those after `from` up to `to`, both ends included.
fn points(from: u64, to: u64) -> impl Iterator<Item = u64> {
    let calls = to - from;
    let kills = number("WAYKEEPER_SEEDS").unwrap_or(KILLS).clamp(2, calls);
    (0..kills).map(move |nth| from + 1 + nth * (calls - 1) / (kills - 1))
}

#[test]
fn a_kill_at_any_call_of_a_hand_over_ends_as_found() {
    let stage = machine(1, Some(10_000));
    assert_eq!(stage.process(), End::Stopped);
    let begin = stage.world.lock().following.asked_to_end;
    let middle = stage.world.lock().trace().1;
    stage.pause(PAUSE_NS);
    assert_eq!(stage.process(), End::Stopped);
    let end = stage.world.lock().following.first_step;
    assert!(begin < middle && middle + 100 < end, "{begin} {middle} {end}");
    let mut struck = [0; 4];
    for (nth, at) in points(begin, middle).chain(points(middle, end)).enumerate() {
        let then = [Then::Restore, Then::Start, Then::Unit][nth % 3];
        let (has_mark, is_second) = kill(at, then);
        struck[usize::from(is_second) * 2 + usize::from(has_mark)] += 1;
    }
    // At the first one's end before and after the mark; at the second one's start while it takes over, and after that.
    let [unmarked, marked, taken, taking] = struck;
    assert!(
        unmarked > 0 && marked > 0 && taking > 0 && taken > 0,
        "{struck:?} of {begin} to {middle} to {end}"
    );
}
