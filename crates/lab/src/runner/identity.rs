//! What determines a simulation, as a hash: equal hashes mean equal results, byte for byte.
//!
//! It covers the sources of the model and of the policies (`build.rs`), the keys of the scenario at its point with the
//! content of the files that they name, the chip, and the policy with its settings. Texts, other policies and the number
//! of threads do not change a result, so they are left out. Must not know where runs are kept.

use super::job::Job;
use crate::best;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use toml::{Table, Value};
use waykeeper_machine::{Scenario, ScenarioSource};

/// Keys of a scenario that do not change a simulation, or that are counted elsewhere.
const NOT_DETERMINING: [&str; 6] = ["name", "about", "paper", "policies", "policy", "sweep"];

/// A hash of 128 bits: two of 64, which differ in their beginning. No adversary chooses scenarios.
pub(super) struct Digest([DefaultHasher; 2]);

impl Digest {
    pub fn new() -> Digest {
        let mut hashers = [DefaultHasher::new(), DefaultHasher::new()];
        hashers[1].write(b"waykeeper");
        Digest(hashers)
    }

    /// Adds a text with its length, so that the border between two texts counts.
    pub fn add(&mut self, text: &str) -> &mut Digest {
        for hasher in &mut self.0 {
            hasher.write_usize(text.len());
            hasher.write(text.as_bytes());
        }
        self
    }

    /// 32 hexadecimal digits.
    pub fn hex(&self) -> String {
        self.0.iter().map(|hasher| format!("{:016x}", hasher.finish())).collect()
    }
}

impl Write for Digest {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.iter_mut().for_each(|hasher| hasher.write(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Hashes of the files that scenarios name; each file is read once.
#[derive(Debug, Default)]
pub(super) struct FileHashes(Mutex<BTreeMap<PathBuf, Option<String>>>);

impl FileHashes {
    /// The hash of a file's bytes; none of a pipe or a device, which another reading would find changed. What is no file
    /// is a word of the scenario, such as the `profile` of memload, and counts as that.
    fn of(&self, path: &Path) -> Option<String> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hash) = known.get(path) {
            return hash.clone();
        }
        let hash = match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => {
                waykeeper_bounded_read::open(path).ok().and_then(|mut file| {
                    let mut digest = Digest::new();
                    io::copy(&mut file, &mut digest).ok().map(|_| digest.hex())
                })
            }
            Ok(metadata) if !metadata.is_dir() => None,
            _ => Some("a word".to_owned()),
        };
        known.insert(path.to_owned(), hash.clone());
        hash
    }
}

/// The hash of the server at a point of a sweep and of the length of its runs; none if it cannot be known.
pub(super) fn of_point(source: &ScenarioSource, scenario: &Scenario, files: &FileHashes) -> Option<String> {
    let mut keys = source.table().clone();
    for key in NOT_DETERMINING {
        keys.remove(key);
    }
    // The chip by its content, so that an edited file of the same name is another chip.
    keys.insert("chip".to_owned(), Value::try_from(&scenario.chip).ok()?);
    let keys = Value::Table(keys);
    let mut text = String::new();
    best::write_canonical(&keys, &mut text);
    let mut digest = Digest::new();
    digest.add(env!("CARGO_PKG_VERSION")).add(env!("WAYKEEPER_MODEL_HASH")).add(&text);
    let mut named = Vec::new();
    named_files(&keys, &mut named);
    for file in named {
        digest.add(&files.of(&source.path_of(file))?);
    }
    Some(digest.hex())
}

/// The files that the keys name, in the order of the keys.
fn named_files<'a>(value: &'a Value, into: &mut Vec<&'a str>) {
    match value {
        Value::Table(table) => {
            for (key, inner) in table {
                match inner.as_str().filter(|_| best::PATH_KEYS.contains(&key.as_str())) {
                    Some(file) => into.push(file),
                    None => named_files(inner, into),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|inner| named_files(inner, into)),
        _ => {}
    }
}

/// The hash of a simulation at a point with this hash; none for a policy of the caller's own, whose code is not known.
pub(super) fn of_job(point: &str, job: &Job<'_>) -> Option<String> {
    let own = match job.own.iter().find(|policy| policy.name == job.policy) {
        Some(policy) => policy.identity.clone()?,
        None => String::new(),
    };
    let settings = job.scenario.policy_settings.get(job.policy).cloned();
    let mut text = String::new();
    best::write_canonical(&settings.unwrap_or(Value::Table(Table::new())), &mut text);
    let Job { seed, sample_seed, sampling, extrapolate, look_back, with_samples, .. } = job;
    let options = format!("{seed} {sample_seed} {sampling} {extrapolate} {look_back:?} {with_samples}");
    let mut digest = Digest::new();
    digest.add(point).add(job.policy).add(&own).add(&text).add(&options);
    Some(digest.hex())
}
