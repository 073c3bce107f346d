//! The best static layout known for a scenario: its file, and the policy `best` that applies it.
//!
//! `waykeeper best` (python/waykeeper/best.py) searches a layout and writes its file. This module must not know how it was
//! searched, nor what a run makes of it.

use crate::registry::BUILT_IN;
use crate::runner::OwnPolicy;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toml::{Table, Value};
use waykeeper_machine::{Scenario, ScenarioSource};
use waykeeper_silicon::Rules;

/// The schema of [`KnownBest`].
pub const BEST_SCHEMA: &str = "waykeeper.best/1";

/// The name by which the layout is selected as a policy.
pub use waykeeper_policy::BEST_POLICY;

/// Keys of a scenario that do not change which layout is best: texts, policies, and the length of a run.
const NOT_DETERMINING: [&str; 8] =
    ["name", "about", "paper", "policies", "policy", "duration_s", "warmup_s", "measure_s"];

macro_rules! shipped {
    ($($name:literal,)*) => {
        /// Names of scenarios and the files of their layouts.
        const SHIPPED: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../scenarios/bests/", $name, ".json"))),)*];
    };
}

// Add a line for a file that `waykeeper best NAME --out scenarios/bests/NAME.json` wrote. The mixes are those that
// `python -m waykeeper.mixes` writes.
shipped! {
    "a4-hpw-heavy",
    "a4-lpw-heavy",
    "iat-fig11",
    "iat-flow-count",
    "iat-leaky-dma",
    "real-grep",
    "real-hpw-heavy",
    "real-inputs",
    "real-lpw-heavy",
    "real-perl",
    "real-zstd",
    "mix-1-00",
    "mix-1-01",
    "mix-1-02",
    "mix-1-03",
    "mix-1-04",
    "mix-1-05",
    "mix-1-06",
    "mix-1-07",
    "mix-1-08",
    "mix-1-09",
    "mix-1-10",
    "mix-1-11",
    "mix-1-12",
    "mix-1-13",
    "mix-1-14",
    "mix-1-15",
    "mix-1-16",
    "mix-1-17",
    "mix-1-18",
    "mix-1-19",
    "mix-1-20",
    "mix-1-21",
    "mix-1-22",
    "mix-1-23",
    "mix-1-24",
    "mix-1-25",
    "mix-1-26",
    "mix-1-27",
    "mix-1-28",
    "mix-1-29",
    "mix-1-30",
    "mix-1-31",
    "mix-1-32",
    "mix-1-33",
    "mix-1-34",
    "mix-1-35",
    "mix-1-36",
    "mix-1-37",
    "mix-1-38",
    "mix-1-39",
}

/// Keys whose values are paths: a file counts by its name, since its folder differs from machine to machine. Its content
/// is not read.
pub(crate) const PATH_KEYS: [&str; 4] = ["capture", "trace", "profile", "fio"];

/// A static layout, in the settings of the policy `fixed`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StaticLayout {
    /// Way mask per workload.
    pub masks: BTreeMap<String, String>,
    /// Ways that devices may allocate in; `None` leaves them.
    pub dca_ways: Option<String>,
    /// DCA on or off per device; others keep their value.
    pub dca: BTreeMap<String, bool>,
}

/// The parts of a layout's file that a run needs. The others say how it was found.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct KnownBest {
    /// [`BEST_SCHEMA`].
    pub schema: String,
    /// [`fingerprint`] of its scenario.
    pub determined_by: String,
    /// The layout.
    pub layout: StaticLayout,
}

/// Why there is no layout to apply.
#[derive(Debug, thiserror::Error)]
pub enum BestError {
    /// No search has been made.
    #[error(
        "policy best: no best layout of `{scenario}` is known ({place} does not exist); search one with \
         `waykeeper best {scenario}`"
    )]
    Absent {
        /// The scenario.
        scenario: String,
        /// The file that was looked for.
        place: String,
    },
    /// A file that cannot be read.
    #[error("cannot read {place}: {why}")]
    Unreadable {
        /// The file.
        place: String,
        /// The system's error.
        why: std::io::Error,
    },
    /// A file of another kind.
    #[error("{place}: {why}; expected a file that `waykeeper best` wrote ({BEST_SCHEMA})")]
    Format {
        /// The file.
        place: String,
        /// What is wrong.
        why: String,
    },
    /// A layout that was searched for other keys or another chip.
    #[error(
        "{place}: this layout was searched for {found}, and `{scenario}` with its present keys and chip is {wanted}; search \
         again with `waykeeper best {scenario}`"
    )]
    OtherScenario {
        /// The file.
        place: String,
        /// Fingerprint in the file.
        found: String,
        /// The scenario.
        scenario: String,
        /// Its fingerprint.
        wanted: String,
    },
}

/// A hash of all that determines which layout is best: the keys that act on the server, and its chip. It does not depend on
/// the order of keys, on policies or on the length of a run.
pub fn fingerprint(source: &ScenarioSource, scenario: &Scenario) -> String {
    let mut keys = source.table().clone();
    for key in NOT_DETERMINING {
        keys.remove(key);
    }
    // The chip by its content, so that an edited file of the same name is another chip.
    let mut chip = Value::try_from(&scenario.chip).unwrap_or(Value::String(scenario.chip.name.clone()));
    if let Some(table) = chip.as_table_mut() {
        keep_own_rules(table, keys.get("model"));
    }
    keys.insert("chip".to_owned(), chip);
    let mut text = format!("{BEST_SCHEMA}\n");
    write_canonical(&Value::Table(keys), &mut text);
    // FNV-1a: no adversary chooses scenarios.
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

/// Leaves in a chip the rules that its own file changes: what `[model]` sets is among the keys.
fn keep_own_rules(chip: &mut Table, model: Option<&Value>) {
    let Some(rules) = chip.get_mut("rules").and_then(Value::as_table_mut) else { return };
    let default = Table::try_from(Rules::default()).unwrap_or_default();
    let is_in_model = |key: &str| model.is_some_and(|model| model.get(key).is_some());
    rules.retain(|key, value| !is_in_model(key) && default.get(key) != Some(value));
    if rules.is_empty() {
        chip.remove("rules");
    }
}

/// A value as text with sorted keys.
pub(crate) fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Table(table) => {
            let mut entries: Vec<_> = table.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (key, inner) in entries {
                let _ = write!(out, "{key:?}=");
                let path = inner.as_str().filter(|_| PATH_KEYS.contains(&key.as_str())).map(Path::new);
                match path.and_then(Path::file_name) {
                    Some(file) => write_canonical(&Value::String(file.to_string_lossy().into_owned()), out),
                    None => write_canonical(inner, out),
                }
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(values) => {
            out.push('[');
            for inner in values {
                write_canonical(inner, out);
                out.push(',');
            }
            out.push(']');
        }
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

/// The policy that applies the best layout known for a scenario. The layout is beside the scenario's file as
/// `NAME.best.json` (of a built-in scenario in the current folder), or it comes with the program: one that was searched for
/// the same server, whatever the scenario's name and file.
///
/// # Errors
/// [`BestError`].
pub fn policy(source: &ScenarioSource, scenario: &Scenario) -> Result<OwnPolicy, BestError> {
    let known = find(source, scenario)?;
    let settings = settings(&known.layout);
    let mut identity = String::new();
    write_canonical(&Value::Table(settings.clone()), &mut identity);
    let build = move |more: &Table| {
        let mut all = settings.clone();
        all.extend(more.clone());
        waykeeper_policy::build("fixed", &all).map_err(Box::new)
    };
    Ok(OwnPolicy { name: BEST_POLICY.to_owned(), build: Arc::new(build), identity: Some(identity) })
}

fn settings(layout: &StaticLayout) -> Table {
    let mut settings = Table::new();
    let masks = layout.masks.iter().map(|(name, mask)| (name.clone(), Value::String(mask.clone())));
    settings.insert("masks".to_owned(), Value::Table(masks.collect()));
    let dca = layout.dca.iter().map(|(name, on)| (name.clone(), Value::Boolean(*on)));
    settings.insert("dca".to_owned(), Value::Table(dca.collect()));
    if let Some(ways) = &layout.dca_ways {
        settings.insert("dca_ways".to_owned(), Value::String(ways.clone()));
    }
    settings
}

fn find(source: &ScenarioSource, scenario: &Scenario) -> Result<KnownBest, BestError> {
    let name = source.file();
    let wanted = fingerprint(source, scenario);
    let built_in = BUILT_IN.iter().any(|built_in| built_in.name == name);
    let path = if built_in {
        PathBuf::from(format!("{name}.best.json"))
    } else {
        Path::new(name).with_extension("best.json")
    };
    let place = path.display().to_string();
    let (place, known) = if path.is_file() {
        let known = match waykeeper_bounded_read::text(&path, "a best layout") {
            Ok(text) => read(&place, &text)?,
            Err(why) => return Err(BestError::Unreadable { place, why }),
        };
        (place, known)
    } else {
        let shipped = shipped()?;
        let of_same_server = shipped.iter().find(|(_, known)| known.determined_by == wanted);
        let of_same_name = || shipped.iter().find(|(shipped, _)| built_in && *shipped == name);
        match of_same_server.or_else(of_same_name) {
            Some((shipped, known)) => (came_with(shipped), known.clone()),
            None => return Err(BestError::Absent { scenario: name.to_owned(), place }),
        }
    };
    if known.determined_by != wanted {
        let (found, scenario) = (known.determined_by, name.to_owned());
        return Err(BestError::OtherScenario { place, found, scenario, wanted });
    }
    Ok(known)
}

/// The layouts that come with the program, with the names of their scenarios.
fn shipped() -> Result<Vec<(&'static str, KnownBest)>, BestError> {
    SHIPPED.iter().map(|(name, text)| Ok((*name, read(&came_with(name), text)?))).collect()
}

fn came_with(name: &str) -> String {
    format!("the best layout that comes with {name}")
}

fn read(place: &str, text: &str) -> Result<KnownBest, BestError> {
    let wrong = |why: String| BestError::Format { place: place.to_owned(), why };
    let known: KnownBest = serde_json::from_str(text).map_err(|why| wrong(why.to_string()))?;
    if known.schema != BEST_SCHEMA {
        return Err(wrong(format!("its schema is `{}`", known.schema)));
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = \"mine\"\nduration_s = 20\n[[nic]]\nname = \"nic0\"\nring = 1024\n\
                        [[workload]]\nname = \"fwd\"\nprogram = \"l2fwd\"\ncores = \"0\"\npriority = \"high\"\n";

    fn source(text: &str) -> ScenarioSource {
        ScenarioSource::parse("mine.toml", text, None).unwrap()
    }

    fn hash(text: &str) -> String {
        let source = source(text);
        fingerprint(&source, &source.read().unwrap())
    }

    #[test]
    fn the_fingerprint_changes_with_the_server_and_not_with_policies_or_the_length() {
        let whole = hash(TEXT);
        assert_eq!(hash(&TEXT.replace("\"mine\"", "\"other\"").replace("= 20", "= 40")), whole);
        assert_eq!(hash(&format!("policies = [\"iat\"]\n{TEXT}[policy.iat]\nddio_sizing = false\n")), whole);
        // The default chip, named.
        assert_eq!(hash(&format!("chip = \"gold-6140\"\n{TEXT}")), whole);
        assert_ne!(hash(&format!("chip = \"gold-6134\"\n{TEXT}")), whole);
        assert_ne!(hash(&TEXT.replace("1024", "2048")), whole);
    }

    #[test]
    fn a_rule_counts_once_wherever_it_is_from() {
        let text = |chip: &str, model: &str| {
            let source = source(&format!("chip = \"{chip}\"\n{TEXT}[model]\n{model}\n"));
            let mut chip = Table::try_from(source.read().unwrap().chip).unwrap();
            keep_own_rules(&mut chip, source.table().get("model"));
            chip.remove("rules").map(|rules| rules.to_string())
        };
        // A chip without rules of its own is the same chip under any [model], as it was before chips had rules.
        assert_eq!(text("gold-6140", "migration = \"dirty-copy\""), None);
        let own = text("platinum-8570", "quantum_ns = 4000").unwrap();
        assert!(
            own.contains("io_age = 2") && own.contains("reuse_history = 6") && !own.contains("migration"),
            "{own}"
        );
        let rest = text("platinum-8570", "io_age = 3").unwrap();
        assert!(!rest.contains("io_age") && rest.contains("reuse_history = 6"), "{rest}");
    }

    #[test]
    fn a_file_counts_by_its_name_and_not_by_its_folder() {
        let text = |path: &str| {
            let mut out = String::new();
            let keys: Table = format!("[nic]\ncapture = {path:?}\nname = \"a/b\"").parse().unwrap();
            write_canonical(&Value::Table(keys), &mut out);
            out
        };
        assert_eq!(text("../inputs/x.pcap"), text("/elsewhere/x.pcap"));
        assert_ne!(text("../inputs/x.pcap"), text("../inputs/y.pcap"));
        assert!(text("x.pcap").contains("a/b"), "only keys of paths are cut");
    }

    #[test]
    fn a_layout_is_used_for_its_own_scenario_only() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mine.toml");
        std::fs::write(&file, TEXT).unwrap();
        let source = ScenarioSource::open(&file).unwrap();
        let scenario = source.read().unwrap();
        let why = |source: &ScenarioSource| policy(source, &source.read().unwrap()).unwrap_err().to_string();
        assert!(why(&source).contains("search one with `waykeeper best"), "{}", why(&source));

        let layout = StaticLayout {
            masks: [("fwd".to_owned(), "0x3".to_owned())].into(),
            dca_ways: None,
            dca: [("nic0".to_owned(), false)].into(),
        };
        let known = KnownBest {
            schema: BEST_SCHEMA.to_owned(),
            determined_by: fingerprint(&source, &scenario),
            layout,
        };
        let place = folder.path().join("mine.best.json");
        std::fs::write(&place, serde_json::to_string(&known).unwrap()).unwrap();
        let best = policy(&source, &scenario).unwrap();
        let settings = (best.build)(&Table::new()).unwrap().describe().settings;
        assert_eq!(settings[0].value, "{ fwd = \"0x3\" }");
        assert_eq!(settings[1].value, "{ nic0 = false }");

        let mut changed = source.clone();
        changed.set("nic.nic0.ring", &Value::Integer(2048)).unwrap();
        assert!(why(&changed).contains("this layout was searched for"), "{}", why(&changed));
        std::fs::write(&place, "{\"schema\": 1}").unwrap();
        assert!(why(&source).contains("expected a file that `waykeeper best` wrote"), "{}", why(&source));
    }

    #[test]
    fn a_layout_that_ships_is_found_by_what_determines_it_and_not_by_a_name() {
        let built_in = crate::registry::open("a4-hpw-heavy").unwrap();
        let text = built_in.text().replace("name = \"a4-hpw-heavy\"", "name = \"copy\"");
        let copy = ScenarioSource::parse("somewhere/copy.toml", &text, None).unwrap();
        policy(&copy, &copy.read().unwrap()).unwrap();
        let mut changed = copy.clone();
        changed.set("nic.nic0.ring", &Value::Integer(512)).unwrap();
        let error = policy(&changed, &changed.read().unwrap()).unwrap_err();
        assert!(matches!(error, BestError::Absent { .. }), "{error}");
        let mut changed = built_in.clone();
        changed.set("nic.nic0.ring", &Value::Integer(512)).unwrap();
        let error = policy(&changed, &changed.read().unwrap()).unwrap_err();
        assert!(matches!(error, BestError::OtherScenario { .. }), "{error}");
    }

    #[test]
    fn every_layout_that_ships_can_be_read_and_fits_its_built_in_scenario() {
        let known = shipped().unwrap();
        let prints: std::collections::BTreeSet<_> =
            known.iter().map(|(_, known)| &known.determined_by).collect();
        assert_eq!(prints.len(), known.len(), "two layouts for one scenario");
        // Those of generated mixes: python/tests/test_mixes.py.
        for (name, _) in SHIPPED.iter().filter(|(name, _)| !name.starts_with("mix-")) {
            let source = crate::registry::open(name).unwrap();
            if let Err(error) = policy(&source, &source.read().unwrap()) {
                panic!("{error}");
            }
        }
    }
}
