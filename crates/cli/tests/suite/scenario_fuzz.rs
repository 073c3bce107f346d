//! The scenario reader against damaged scenarios, within a fixed budget: no input causes a panic, and an error is one
//! line that names the file.

use proptest::prelude::*;
use waykeeper_lab::registry::BUILT_IN;
use waykeeper_machine::{ScenarioError, ScenarioSource};

/// Words by which a mutation replaces another one.
const WORDS: [&str; 20] = [
    "0",
    "-1",
    "1e308",
    "nan",
    "inf",
    "9223372036854775807",
    "\"\"",
    "\"0x7ff\"",
    "\"0-3\"",
    "\"64k\"",
    "[]",
    "[[]]",
    "{}",
    "true",
    "1979-05-27",
    "\"\u{feff}ü\"",
    "[[workload]]",
    "[sweep]",
    "name = \"x\"",
    "\"replay\"",
];

/// One change of a text.
#[derive(Clone, Debug)]
enum Change {
    /// Changes the byte at this position, given as a share of the text.
    Byte(f64, u8),
    /// Removes the line.
    Drop(f64),
    /// Repeats the line.
    Twice(f64),
    /// Swaps two lines.
    Swap(f64, f64),
    /// Replaces the value of the line by another word.
    Value(f64, usize),
    /// Cuts the text here.
    Cut(f64),
}

fn change() -> impl Strategy<Value = Change> {
    let at = || 0.0..1.0f64;
    prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        at().prop_map(Change::Drop),
        at().prop_map(Change::Twice),
        (at(), at()).prop_map(|(a, b)| Change::Swap(a, b)),
        (at(), 0..WORDS.len()).prop_map(|(at, word)| Change::Value(at, word)),
        at().prop_map(Change::Cut),
    ]
}

fn changed(text: &str, change: &Change) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let count = lines.len();
    if count == 0 {
        return String::new();
    }
    let line = |at: f64| (at * count as f64) as usize % count;
    match *change {
        Change::Byte(at, byte) => {
            let mut bytes = text.as_bytes().to_vec();
            let place = (at * bytes.len() as f64) as usize;
            bytes[place] = byte;
            return String::from_utf8_lossy(&bytes).into_owned();
        }
        Change::Cut(at) => {
            let end = (at * text.len() as f64) as usize;
            return String::from_utf8_lossy(&text.as_bytes()[..end]).into_owned();
        }
        Change::Drop(at) => {
            lines.remove(line(at));
        }
        Change::Twice(at) => lines.insert(line(at), lines[line(at)]),
        Change::Swap(a, b) => lines.swap(line(a), line(b)),
        Change::Value(at, word) => {
            let at = line(at);
            let key = lines[at].split('=').next().unwrap_or_default();
            let new = format!("{key}= {}", WORDS[word]);
            lines[at] = &new;
            return lines.join("\n");
        }
    }
    lines.join("\n")
}

/// Reads a scenario as `run` does: unchanged, and at the first value of each sweep.
fn read(text: &str) -> Result<(), Box<ScenarioError>> {
    // No folder: captures and traces are not found, which keeps the budget for the reader itself.
    let source = ScenarioSource::parse("fuzzed.toml", text, None)?;
    let scenario = source.read()?;
    for sweep in &scenario.sweeps {
        let mut source = source.clone();
        source.set(&sweep.key, &sweep.values[0])?;
        source.read()?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_scenario_is_read_or_refused_in_one_line(
        which in 0..BUILT_IN.len(),
        changes in prop::collection::vec(change(), 1..5),
    ) {
        let text = changes.iter().fold(BUILT_IN[which].text.to_owned(), |text, by| changed(&text, by));
        // No folder: captures and traces are not found, which keeps the budget for the reader itself.
        let read = read(&text);
        if let Err(error) = read {
            let said = error.to_string();
            prop_assert!(said.lines().count() == 1, "{said}");
        }
    }
}
