//! The daemon is killed and its journal damaged: cut, bytes changed, zeroed, lines in another order, removed. The next
//! restore or start ends as found, or says in the file beside the journal what is not known. Nothing is lost silently,
//! and no group of ours is left.
//!
//! `WAYKEEPER_SEEDS=N` damages N seeded kills, and from 500 on all 675 journals of one kill. Must not know the journal's
//! format beyond its lines.

use crate::daemon::{self, End, process, write_config};
use crate::history::{Dice, Event, History, What};
use crate::number;
use crate::picture;
use crate::stage::{Stage, other_registers};
use crate::world::JOURNAL;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use waykeeper_kernel::resctrl::GROUP_PREFIX;
use waykeeper_linux_host::RestoreScope;
use waykeeper_testbed::is_long;

/// Seeded kills of a run without a request.
const KILLS: u64 = 60;
/// So many ask for all journals of one kill.
const ALL: u64 = 500;
/// Without that request one in so many is damaged: the journal's own tests damage each byte.
const ONE_IN: usize = 15;

/// The files of a journal.
const SEAL: &str = "/run/waykeeper/journal-host.seal";
const UNPROVED: &str = "/run/waykeeper/journal-host.unproved";

/// A host whose daemon was killed, and what it was before.
struct Killed(Stage);

impl Killed {
    /// Runs a history's first process up to its kill; `None` if it ended otherwise.
    fn of(history: &History) -> Option<Killed> {
        let stage = Stage::new(history);
        let end = process(&stage.world, &stage.original);
        stage.world.lock().calm();
        (end == End::Killed).then_some(Killed(stage))
    }

    fn read(&self, path: &str) -> Option<Vec<u8>> {
        let state = self.0.world.lock();
        state.disk.find(path).and_then(|number| state.disk.read(number, 0, usize::MAX)).ok()
    }

    fn write(&self, path: &str, bytes: Option<&[u8]>) {
        let mut state = self.0.world.lock();
        let found = state.disk.find(path);
        let done = match (bytes, found) {
            (None, Ok(_)) => state.disk.remove(path),
            (None, Err(_)) => Ok(()),
            (Some(bytes), found) => {
                let number = found.or_else(|_| state.disk.make_file(path, 0o600));
                number.and_then(|number| {
                    state.disk.set_len(number, 0)?;
                    state.disk.write(number, 0, bytes)?;
                    state.disk.sync(number)
                })
            }
        };
        let synced = done.and_then(|()| {
            let folder = state.disk.find("/run/waykeeper")?;
            state.disk.sync(folder)
        });
        synced.unwrap_or_else(|why| panic!("{path}: {why}"));
    }

    /// Restores, or starts and stops a daemon. What is wrong then, and whether it says that something is not known.
    fn ends(&self, restores: bool, tenants: u64) -> (Vec<String>, bool) {
        let mut wrong = Vec::new();
        let mut is_as_found = true;
        if restores {
            match daemon::restore(&self.0.world, RestoreScope::All) {
                Ok(report) => {
                    is_as_found = report.is_as_found();
                    wrong.extend(report.failures().map(|(knob, why)| format!("{knob}: {why}")));
                }
                Err(why) => wrong.push(why.to_string()),
            }
        } else {
            write_config(&self.0.world, tenants);
            let end = process(&self.0.world, &self.0.original);
            if end != End::Stopped {
                wrong.push(format!("the next daemon: {end:?}"));
            }
        }
        let is_said = self.read(UNPROVED).is_some();
        if restores && is_said == is_as_found {
            wrong.push(format!("as found: {is_as_found}, and a file with what is not known: {is_said}"));
        }
        let registers = other_registers(&self.0.watched, &self.0.root);
        let state = self.0.world.lock();
        wrong.extend(state.violations.iter().cloned());
        let now = picture::take(&state.files, &state.clock);
        for name in self.0.original.keys().chain(now.keys()).collect::<BTreeSet<_>>() {
            let (before, after) = (self.0.original.get(name), now.get(name));
            let is_task = name.starts_with("task ");
            let is_ours =
                name.contains(GROUP_PREFIX) || after.is_some_and(|place| place.contains(GROUP_PREFIX));
            // Programs end and begin; their tasks are in the default group.
            let is_changed =
                if is_task { after.is_some_and(|group| !group.is_empty()) } else { before != after };
            if is_changed && (is_ours || !is_said) {
                wrong.push(format!("{name} is {after:?}, was {before:?}"));
            }
        }
        if !is_said && registers != self.0.registers {
            wrong.push(waykeeper_testbed::state_difference(&self.0.registers, &registers));
        }
        if self.0.original.keys().any(|name| name.contains(GROUP_PREFIX)) {
            wrong.push("the host had a group of ours before".to_owned());
        }
        (wrong, is_said)
    }
}

/// A damage of a journal's bytes.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Cut(usize),
    Flip(usize, u8),
    Zeros(usize, usize),
    Swap(usize, usize),
    Twice(usize),
    Gone(usize),
}

impl Damage {
    fn of(self, bytes: &[u8]) -> Vec<u8> {
        let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        let mut changed = bytes.to_vec();
        match self {
            Damage::Cut(length) => changed.truncate(length),
            Damage::Flip(at, bit) => changed[at] ^= 1 << bit,
            Damage::Zeros(from, to) => changed[from..to].fill(0),
            Damage::Swap(first, second) => {
                let mut lines = lines;
                lines.swap(first, second);
                return lines.concat();
            }
            Damage::Twice(line) => return [&lines[..=line], &lines[line..]].concat().concat(),
            Damage::Gone(line) => return [&lines[..line], &lines[line + 1..]].concat().concat(),
        }
        changed
    }

    /// One of a kind, by the dice.
    fn roll(dice: &mut Dice, bytes: &[u8]) -> Damage {
        let below = |dice: &mut Dice, end: usize| dice.below(end.max(1) as u64) as usize;
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        match dice.below(6) {
            0 => Damage::Cut(below(dice, bytes.len())),
            1 => Damage::Flip(below(dice, bytes.len()), dice.below(8) as u8),
            2 => {
                let from = below(dice, bytes.len());
                let length = [1, 16, 300, 4096][below(dice, 4)];
                Damage::Zeros(from, bytes.len().min(from + length))
            }
            3 => Damage::Swap(below(dice, lines), below(dice, lines)),
            4 => Damage::Twice(below(dice, lines)),
            _ => Damage::Gone(below(dice, lines)),
        }
    }
}

/// Runs `case` for every index on all CPUs. Returns what failed, and the counts of what happened.
fn all_of(
    count: usize,
    case: impl Fn(usize) -> (Vec<String>, &'static str) + Sync,
) -> (Vec<String>, BTreeMap<&'static str, usize>) {
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let counts = Mutex::new(BTreeMap::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    let (wrong, what) = case(index);
                    *counts.lock().unwrap().entry(what).or_default() += 1;
                    let wrong = wrong.into_iter().map(|text| format!("{index}: {text}"));
                    failures.lock().unwrap().extend(wrong);
                }
            });
        }
    });
    (failures.into_inner().unwrap(), counts.into_inner().unwrap())
}

fn shown(counts: &BTreeMap<&'static str, usize>) {
    #[expect(clippy::print_stdout, reason = "what happened, and how often, is the result of a run")]
    let () = println!("{counts:?}");
}

/// A daemon that has set its knobs is killed.
fn one_life() -> History {
    let kill = Event { at_ms: 400, calls: 0, what: What::Kill { lose: false, torn: 0 } };
    History { policy: "isolate".to_owned(), tenants: 0, scenario: 0, events: vec![kill], ..History::of(1) }
}

#[test]
fn every_damaged_journal_of_one_kill_ends_as_found_or_says_what_is_not() {
    let history = History { recorder: false, end_ms: 1000, ..one_life() };
    let killed = Killed::of(&history).expect("it is killed");
    let bytes = killed.read(JOURNAL).expect("a journal");
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
    assert!(bytes.len() > 2000 && lines > 20, "{} bytes in {lines} lines", bytes.len());
    let mut all: Vec<Damage> = Vec::new();
    all.extend((0..250).map(|index| Damage::Cut(index * bytes.len() / 250)));
    all.extend((0..250).map(|index| Damage::Flip(index * bytes.len() / 250, (index % 8) as u8)));
    all.extend((0..75).map(|index| {
        let from = index * bytes.len() / 75;
        Damage::Zeros(from, bytes.len().min(from + [1, 64, 1000][index % 3]))
    }));
    all.extend((0..40).map(|index| Damage::Swap(index % lines, index * 7 % lines)));
    all.extend((0..30).map(|index| Damage::Twice(index * lines / 30)));
    all.extend((0..30).map(|index| Damage::Gone(index * lines / 30)));
    assert_eq!(all.len(), 675);
    if !is_long() && number("WAYKEEPER_SEEDS").is_none_or(|seeds| seeds < ALL) {
        all = all.into_iter().step_by(ONE_IN).collect();
    }
    let (failures, counts) = all_of(all.len(), |index| {
        let killed = Killed::of(&history).expect("it is killed");
        let whole = killed.read(JOURNAL).expect("a journal");
        killed.write(JOURNAL, Some(&all[index].of(&whole)));
        let (wrong, is_said) = killed.ends(index % 2 == 0, history.tenants);
        let wrong = wrong.into_iter().map(|text| format!("{:?}: {text}", all[index])).collect();
        (wrong, if is_said { "not as found, and said" } else { "as found" })
    });
    shown(&counts);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let count = |what| counts.get(what).copied().unwrap_or_default();
    assert!(
        count("as found") * 15 > all.len() && count("not as found, and said") * 2 > all.len(),
        "{counts:?}"
    );
}

/// The history of a seed without faults of files and other programs, with a kill at any call.
fn kill_of(seed: u64) -> History {
    let mut dice = Dice::new(seed ^ 0x6b69_6c6c);
    let mut history = History::of(seed);
    history.events.retain(|event| {
        let what = &event.what;
        let is_end = matches!(what, What::Kill { .. } | What::Stop);
        !what.is_fault() && !what.is_of_another_program() && !is_end
    });
    let kill = What::Kill { lose: dice.once_in(2), torn: dice.next() as u8 };
    let at_ms = dice.below(history.end_ms);
    history.events.push(Event { at_ms, calls: dice.below(400), what: kill });
    history.events.sort_by_key(|event| (event.at_ms, event.calls));
    history
}

#[test]
fn seeded_kills_with_damaged_journals_lose_nothing_silently() {
    let seeds = number("WAYKEEPER_SEEDS").unwrap_or(KILLS);
    let (failures, counts) = all_of(seeds as usize, |seed| {
        let history = kill_of(seed as u64);
        let Some(killed) = Killed::of(&history) else { return (Vec::new(), "ended before its kill") };
        let mut dice = Dice::new(seed as u64 ^ 0x6461_6d61);
        let (journal, seal) = (killed.read(JOURNAL), killed.read(SEAL));
        let what = match (dice.below(8), journal, seal) {
            (0 | 1, ..) | (_, None, None) => "a whole journal",
            (2, Some(_), _) => {
                killed.write(JOURNAL, None);
                "a journal that is gone"
            }
            (3, ..) => {
                killed.write(JOURNAL, None);
                killed.write(SEAL, None);
                "a journal that is gone with its seal"
            }
            (4, _, Some(seal)) => {
                killed.write(SEAL, Some(&Damage::roll(&mut dice, &seal).of(&seal)));
                "a damaged seal"
            }
            (_, Some(journal), _) => {
                let damage = Damage::roll(&mut dice, &journal);
                if !journal.is_empty() && journal.contains(&b'\n') {
                    killed.write(JOURNAL, Some(&damage.of(&journal)));
                }
                "a damaged journal"
            }
            _ => "no journal yet",
        };
        let (mut wrong, is_said) = killed.ends(dice.once_in(2), history.tenants);
        if is_said && what == "a whole journal" {
            wrong.push("a whole journal counts as damaged".to_owned());
        }
        // Without journal and seal only groups show that there was a run. Registers alone do not (docs/daemon.md).
        if what == "a journal that is gone with its seal" && !is_said {
            wrong.retain(|text| text.contains(GROUP_PREFIX));
        }
        (wrong.into_iter().map(|text| format!("{what}: {text}")).collect(), what)
    });
    shown(&counts);
    let few: Vec<&str> = failures.iter().take(20).map(String::as_str).collect();
    assert!(few.is_empty(), "{} failures of {seeds} seeds:\n{}", failures.len(), few.join("\n"));
    let kinds = ["a whole journal", "a damaged journal", "a damaged seal", "a journal that is gone"];
    assert!(seeds < KILLS || kinds.iter().all(|kind| counts.get(kind).is_some_and(|count| *count >= 3)));
}
