//! A policy's decisions as lines in order of time: time, state, action and the way map from then on, with the causes
//! below.
//!
//! A block of lines that repeats, except for its numbers, is printed once, so that a policy that alternates does not
//! hide everything else. Equal events of many workloads at one time are printed once, too. Must not know any policy or
//! where the text is printed.

use crate::results::{CauseRecord, DecisionRecord, KnobRecord, PolicyResult, RunSummary, group_name};
use crate::{show, ways};
use std::fmt::Write;
use waykeeper_host::Priority;

/// The longest cycle that is recognised: A4's longest (revert, restore, measure, expand) has four steps.
const LONGEST_CIRCLE: usize = 4;

/// How often a block must repeat in a row to be folded.
const FOLD_FROM: usize = 3;

/// Texts up to this length are padded so that the way maps after them are aligned.
const TEXT_CHARS: usize = 64;

/// The timeline of one policy of a run; empty when the policy was not run.
pub fn timeline(summary: &RunSummary, policy: &str) -> String {
    let Some(result) = summary.policies.get(policy) else { return String::new() };
    let mut out = format!("{}: ", show::plain(policy));
    if result.decisions.is_empty() {
        out.push_str("no decisions");
        if let [slice] = result.way_map.as_slice() {
            let _ = write!(out, "; ways throughout {}", ways::letters(slice, summary.llc_ways, result));
        }
        out.push('\n');
        return out;
    }
    let count = result.decisions.len();
    let _ = writeln!(out, "{count} decision{}", if count == 1 { "" } else { "s" });
    let entries = entries(result);
    let lines = Lines::new(summary, result, &entries);
    for fold in folds(&entries) {
        let block = &entries[fold.start..fold.start + fold.period];
        block.iter().for_each(|entry| lines.write(&mut out, entry));
        if fold.times > 1 {
            let last = &entries[fold.start + fold.period * fold.times - 1];
            let until = show::seconds(last.at_s);
            let steps =
                if fold.period == 1 { "this".to_owned() } else { format!("these {} steps", fold.period) };
            let differs = block.last().is_none_or(|reported| reported.text != last.text);
            let ending = if differs { ", last:" } else { "" };
            let _ = writeln!(out, "{:>9}  ... {steps} {} times until {until}{ending}", "", fold.times);
            if differs {
                lines.write(&mut out, last);
            }
        }
    }
    out
}

/// The meaning of the letters in way maps, and the seed of the timelines.
pub fn legend(summary: &RunSummary) -> String {
    let letters = ways::WayClass::ALL.map(|class| format!("{} {}", class.letter(), class.meaning()));
    let mut out = show::listed("ways, highest first: ", letters.to_vec());
    if summary.seeds > 1 {
        let _ = writeln!(
            out,
            "timelines of seed {}; policies decide differently under other seeds",
            summary.seed
        );
    }
    out
}

/// An entry of the timeline: a decision, or several of one time.
struct Entry {
    at_s: f64,
    state: String,
    text: String,
    /// Lines below it.
    notes: Vec<String>,
    /// Equal for entries that differ in numbers only.
    sameness: String,
}

impl Entry {
    fn of(decision: &DecisionRecord) -> Entry {
        Entry {
            at_s: decision.at_s,
            state: show::plain(&decision.state),
            text: text_of(decision),
            notes: decision.causes.iter().map(cause).chain(complaints(decision)).collect(),
            sameness: sameness(decision),
        }
    }

    /// Several decisions of one time with the same text, of one workload each.
    fn of_many(decisions: &[DecisionRecord], what: &str, result: &PolicyResult) -> Entry {
        let mut entry = Entry::of(&decisions[0]);
        entry.text = show::plain(&format!("{} workloads {what}", decisions.len()));
        let names = decisions.iter().filter_map(|decision| decision.group.as_deref());
        let priority = |name: &str| result.workloads.get(name).map_or(Priority::Low, |w| w.priority);
        let (high, low): (Vec<&str>, Vec<&str>) = names.partition(|name| priority(name) == Priority::High);
        let groups = [(Priority::High, high), (Priority::Low, low)];
        let reported = groups.into_iter().filter(|(_, names)| !names.is_empty());
        let reported = reported
            .map(|(group, names)| show::plain(&format!("{}s: {}", group_name(group), names.join(", "))));
        entry.notes = reported.chain(decisions.iter().flat_map(complaints)).collect();
        entry
    }
}

/// The entries: equal events of many workloads at one time become one.
fn entries(result: &PolicyResult) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut rest = result.decisions.as_slice();
    while let Some(first) = rest.first() {
        let what = event_phrase(first);
        let alike = |other: &&DecisionRecord| {
            let moment = |d: &DecisionRecord| (d.at_s, d.state.clone(), d.action.clone());
            moment(other) == moment(first) && event_phrase(other) == what
        };
        let count = if what.is_some() { rest.iter().take_while(alike).count() } else { 1 };
        entries.push(match what {
            Some(what) if count > 1 => Entry::of_many(&rest[..count], what, result),
            _ => Entry::of(first),
        });
        rest = &rest[count..];
    }
    entries
}

/// `launched` of `fio launched (LPW, storage I/O)`: the event of one workload without causes.
fn event_phrase(decision: &DecisionRecord) -> Option<&str> {
    let behind = decision.text.strip_prefix(decision.group.as_deref()?)?.strip_prefix(' ')?;
    let what = behind.split(" (").next()?;
    (decision.causes.is_empty() && !what.contains(|c: char| c.is_ascii_digit())).then_some(what)
}

/// A block of `period` decisions that repeats `times` in a row.
#[derive(PartialEq, Eq, Debug)]
struct Fold {
    start: usize,
    period: usize,
    times: usize,
}

/// Splits decisions into blocks, folding what repeats; the shortest cycle that folds is used.
fn folds(entries: &[Entry]) -> Vec<Fold> {
    let keys: Vec<&str> = entries.iter().map(|entry| entry.sameness.as_str()).collect();
    let mut folds = Vec::new();
    let mut start = 0;
    while start < keys.len() {
        let fold = (1..=LONGEST_CIRCLE)
            .map(|period| Fold { start, period, times: repeats(&keys[start..], period) })
            .find(|fold| fold.times >= FOLD_FROM)
            .unwrap_or(Fold { start, period: 1, times: 1 });
        start += fold.period * fold.times;
        folds.push(fold);
    }
    folds
}

/// How often the first `period` keys repeat at the beginning.
fn repeats(keys: &[&str], period: usize) -> usize {
    let Some(block) = keys.get(..period) else { return 0 };
    keys.chunks(period).take_while(|chunk| *chunk == block).count()
}

/// A key that is equal for decisions that differ only in numbers.
fn sameness(decision: &DecisionRecord) -> String {
    let mut text = String::new();
    for c in decision.text.chars() {
        match c {
            '0'..='9' | '.' if text.ends_with('#') => {}
            '0'..='9' => text.push('#'),
            c => text.push(c),
        }
    }
    let group = decision.group.as_deref().unwrap_or_default();
    format!("{}\0{}\0{group}\0{text}", decision.state, decision.action)
}

struct Lines<'a> {
    summary: &'a RunSummary,
    result: &'a PolicyResult,
    state_chars: usize,
    text_chars: usize,
}

impl<'a> Lines<'a> {
    fn new(summary: &'a RunSummary, result: &'a PolicyResult, entries: &[Entry]) -> Lines<'a> {
        let widest = |lengths: &mut dyn Iterator<Item = usize>| lengths.max().unwrap_or(0);
        let state_chars = widest(&mut entries.iter().map(|entry| entry.state.chars().count()));
        let text_chars = widest(&mut entries.iter().map(|entry| entry.text.chars().count()));
        Lines { summary, result, state_chars, text_chars: text_chars.min(TEXT_CHARS) }
    }

    fn write(&self, out: &mut String, entry: &Entry) {
        let map = self.result.ways_at(entry.at_s);
        let map =
            map.map(|slice| ways::letters(slice, self.summary.llc_ways, self.result)).unwrap_or_default();
        let line = format!(
            "{:>9}  {:state$}  {:text$}  {map}",
            show::seconds(entry.at_s),
            entry.state,
            entry.text,
            state = self.state_chars,
            text = self.text_chars,
        );
        let _ = writeln!(out, "{}", line.trim_end());
        let indent = 9 + 2 + self.state_chars + 2;
        for note in &entry.notes {
            let _ = writeln!(out, "{:indent$}- {note}", "");
        }
    }
}

/// The text of a decision with its workload, in one line.
pub(crate) fn text_of(decision: &DecisionRecord) -> String {
    // The causes are printed below or beside; numbers that the policy's text repeats are removed.
    let text = match decision.text.split_once(": ") {
        Some((head, numbers))
            if !decision.causes.is_empty()
                && decision.causes.iter().all(|cause| numbers.contains(cause.what.as_str())) =>
        {
            head
        }
        _ => &decision.text,
    };
    // Policies do not adapt the noun to a count of 1.
    let text = text.replace("(1 ways)", "(1 way)");
    match &decision.group {
        Some(group) if !text.contains(group.as_str()) => show::plain(&format!("{group}: {text}")),
        _ => show::plain(&text),
    }
}

/// A cause in words: `DCA write miss ratio 34.2% (T2 20.0%)`.
pub(crate) fn cause(cause: &CauseRecord) -> String {
    let is_ratio = ["ratio", "share", "rate"].iter().any(|word| cause.what.contains(word));
    let number = |value: f64| match value {
        _ if is_ratio && value.abs() <= 1.0 => show::percent(value),
        _ if value.abs() >= 1e4 => show::scaled(value, "").trim_end().to_owned(),
        _ => show::digits(value),
    };
    let mut text = format!("{} {}", cause.what, cause.value.map_or(show::NOTHING.to_owned(), number));
    match (&cause.limit_name, cause.limit) {
        (Some(name), Some(limit)) => text = format!("{text} ({name} {})", number(limit)),
        (None, Some(limit)) => text = format!("{text} (limit {})", number(limit)),
        _ => {}
    }
    show::plain(&text)
}

/// Knobs that were refused or read back another value; they are always shown.
pub(crate) fn complaints(decision: &DecisionRecord) -> impl Iterator<Item = String> {
    decision.knobs.iter().filter_map(|knob| {
        let outcome = knob.outcome.as_deref().filter(|outcome| *outcome != "applied")?;
        let (what, target) = knob_words(knob);
        Some(show::plain(&format!("{what}{target} {}: {outcome}", knob.value)))
    })
}

/// A knob in words, and its target: `mask` and ` of fio`.
pub(crate) fn knob_words(knob: &KnobRecord) -> (String, String) {
    (knob.knob.to_string(), knob.target.as_ref().map(|target| format!(" of {target}")).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(text: &str) -> DecisionRecord {
        DecisionRecord {
            at_s: 0.0,
            state: "Stable".into(),
            action: "a".into(),
            group: None,
            text: text.into(),
            causes: Vec::new(),
            knobs: Vec::new(),
        }
    }

    fn folded(texts: &[&str]) -> Vec<(usize, usize)> {
        let entries: Vec<_> = texts.iter().map(|text| Entry::of(&decision(text))).collect();
        folds(&entries).iter().map(|fold| (fold.period, fold.times)).collect()
    }

    #[test]
    fn circles_are_reported_once_and_single_steps_stay() {
        assert_eq!(folded(&["a 1", "a 2"]), [(1, 1), (1, 1)]);
        assert_eq!(folded(&["a 1", "a 2.5", "a 13", "b"]), [(1, 3), (1, 1)]);
        assert_eq!(folded(&["x", "r", "s", "r", "s", "r", "s", "r"]), [(1, 1), (2, 3), (1, 1)]);
        assert_eq!(folded(&[]), []);
    }

    #[test]
    fn what_befalls_many_at_one_moment_is_one_entry() {
        let launch = |name: &str, at_s: f64| DecisionRecord {
            at_s,
            group: Some(name.into()),
            ..decision(&format!("{name} launched (LPW, non-I/O)"))
        };
        let decisions = vec![launch("a", 0.0), launch("b", 0.0), launch("c", 1.0), decision("zones")];
        let result = PolicyResult { decisions, ..PolicyResult::default() };
        let reported: Vec<_> = entries(&result).into_iter().map(|entry| (entry.text, entry.notes)).collect();
        assert_eq!(reported[0], ("2 workloads launched".to_owned(), vec!["LPWs: a, b".to_owned()]));
        assert_eq!((reported[1].0.as_str(), reported[2].0.as_str()), ("c launched (LPW, non-I/O)", "zones"));
    }

    #[test]
    fn numbers_are_said_once_and_one_way_is_one() {
        let mut record = decision("initial record: LLC hit ratio of a 94 %, LLC hit ratio of b 29 %");
        record.causes = ["LLC hit ratio of a", "LLC hit ratio of b"]
            .map(|what| CauseRecord { what: what.into(), value: Some(0.5), limit_name: None, limit: None })
            .to_vec();
        assert_eq!(text_of(&record), "initial record");
        assert_eq!(text_of(&decision("zones: a gets 0x400 (1 ways)")), "zones: a gets 0x400 (1 way)");
        assert_eq!(text_of(&decision("grows to 0x7ff (11 ways)")), "grows to 0x7ff (11 ways)");
    }

    #[test]
    fn causes_read_like_sentences() {
        let seen = CauseRecord {
            what: "DCA write miss ratio".into(),
            value: Some(0.342),
            limit_name: Some("T2".into()),
            limit: Some(0.2),
        };
        assert_eq!(cause(&seen), "DCA write miss ratio 34.2% (T2 20.0%)");
        let bare =
            CauseRecord { what: "memory bandwidth".into(), value: None, limit_name: None, limit: None };
        assert_eq!(cause(&bare), "memory bandwidth -");
    }
}
