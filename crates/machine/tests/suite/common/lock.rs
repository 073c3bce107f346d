//! Numbers of long runs, kept in `tests/data/model.lock` under a hash of all that the model is made of.
//!
//! The model is deterministic: equal sources give equal numbers. A test whose runs are in the lock judges the kept
//! numbers, as long as the hash is that of this tree; for another hash it runs. `make model-lock` runs all and writes the
//! lock anew, and `make test-long` runs all and compares. `golden.rs` always runs, and shows that this binary gives the
//! numbers of its sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use waykeeper_testbed::is_long;

/// Numbers by name, in the order in which they were computed.
pub type Numbers = Vec<(String, f64)>;

/// Set by `make model-lock`: everything runs, and the lock is written.
const WRITES: &str = "WAYKEEPER_WRITE_LOCK";

/// Folders besides the crates of the model that determine a run.
const DATA: [&str; 3] = ["chips", "inputs", "scenarios"];

/// The lock's first line up to the hash.
const HEAD: &str = "model ";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/model.lock")
}

/// The lock as it is on disk: its hash and the numbers by key.
#[derive(Debug, Default)]
struct Lock {
    model: String,
    kept: BTreeMap<String, Numbers>,
}

impl Lock {
    fn parse(text: &str) -> Option<Lock> {
        let mut lines = text.lines();
        let model = lines.next()?.strip_prefix(HEAD)?.to_owned();
        let entry = |line: &str| {
            let (key, numbers) = line.split_once('\t')?;
            let number = |pair: &str| {
                let (name, value) = pair.split_once('=')?;
                Some((name.to_owned(), value.parse().ok()?))
            };
            Some((key.to_owned(), numbers.split(' ').map(number).collect::<Option<Numbers>>()?))
        };
        Some(Lock { model, kept: lines.map(entry).collect::<Option<_>>()? })
    }

    fn text(&self) -> String {
        let mut text = format!("{HEAD}{}\n", self.model);
        for (key, numbers) in &self.kept {
            // `{}` of a float is the shortest text that reads back as the same bits.
            let numbers: Vec<String> =
                numbers.iter().map(|(name, value)| format!("{name}={value}")).collect();
            writeln!(text, "{key}\t{}", numbers.join(" ")).expect("writing to a string");
        }
        text
    }
}

static KEPT: LazyLock<Lock> = LazyLock::new(|| {
    let text = std::fs::read_to_string(path()).unwrap_or_default();
    Lock::parse(&text)
        .unwrap_or_else(|| panic!("{}: not a lock; `make model-lock` writes it", path().display()))
});

/// The hash of this tree's model.
static MODEL: LazyLock<String> = LazyLock::new(hash);

/// What this run computed, when it writes.
static WRITTEN: Mutex<BTreeMap<String, Numbers>> = Mutex::new(BTreeMap::new());

/// The numbers of `compute`: the kept ones if the lock is of this model and has the key.
///
/// `key` must name all that `compute` depends on besides the model, without tab; names of numbers have no space and no
/// `=`.
pub fn locked(key: &str, compute: impl FnOnce() -> Numbers) -> Numbers {
    if std::env::var_os(WRITES).is_some() {
        let numbers = compute();
        let mut written = WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
        written.insert(key.to_owned(), numbers.clone());
        let lock = Lock { model: MODEL.clone(), kept: written.clone() };
        std::fs::write(path(), lock.text()).expect("the lock can be written");
        return numbers;
    }
    if KEPT.model != *MODEL {
        return compute();
    }
    let kept =
        KEPT.kept.get(key).unwrap_or_else(|| panic!("model.lock lacks {key}; `make model-lock` adds it"));
    if is_long() {
        assert_eq!(compute(), *kept, "{key}: the model gives other numbers than those in model.lock");
    }
    kept.clone()
}

/// A key that ends in the hash of a text too long to be shown, such as all fields of a scenario.
pub fn key(shown: &str, text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(without_places(text).as_bytes());
    format!("{shown} {:016x}", hasher.finish())
}

/// The text without what differs between processes and checkouts: addresses of functions, and the folder of the repository.
fn without_places(text: &str) -> String {
    let mut parts = text.split("0x");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_hexdigit).count();
        // Masks have 32 bits; an address in user space has at least 33.
        kept.push_str(if digits > 8 { &part[digits..] } else { part });
    }
    kept.replace(env!("CARGO_MANIFEST_DIR"), "")
}

#[test]
fn a_key_is_the_same_in_each_process_and_checkout() {
    let text =
        concat!("f: 0x55d2c0ffee10, mask: 0x7ff, trace: \"", env!("CARGO_MANIFEST_DIR"), "/../a.wkt\"");
    assert_eq!(without_places(text), "f: , mask: 7ff, trace: \"/../a.wkt\"");
}

/// Without this test a stale lock would only make every run slow.
#[test]
fn the_lock_is_of_this_model() {
    let writes = std::env::var_os(WRITES).is_some();
    assert!(
        writes || KEPT.model == *MODEL,
        "model.lock is of model {}, this one is {}: every number was computed; `make model-lock` renews the lock",
        KEPT.model,
        *MODEL
    );
}

/// Hashes the sources of the crates that a run executes, without lines that are only a comment, the data that they read,
/// the compiler's version and the versions of other crates.
fn hash() -> String {
    let root = root();
    let lock: toml::Table =
        std::fs::read_to_string(root.join("Cargo.lock")).expect("Cargo.lock").parse().expect("it is TOML");
    let packages = lock["package"].as_array().expect("packages");
    let mut needed = BTreeSet::new();
    let mut next = vec!["waykeeper-machine".to_owned()];
    while let Some(name) = next.pop() {
        let package = packages.iter().find(|package| package["name"].as_str() == Some(&name));
        let package = package.unwrap_or_else(|| panic!("Cargo.lock has no {name}"));
        if !needed.insert((name.clone(), package["version"].to_string())) {
            continue;
        }
        let needs = package.get("dependencies").and_then(toml::Value::as_array);
        for need in needs.into_iter().flatten().filter_map(toml::Value::as_str) {
            let need = need.split(' ').next().expect("a name").to_owned();
            // What only tests use does not change a run.
            if !need.starts_with("waykeeper-testbed") {
                next.push(need);
            }
        }
    }
    let mut files = BTreeSet::from([root.join("rust-toolchain.toml")]);
    for (name, _) in &needed {
        if let Some(krate) = name.strip_prefix("waykeeper-") {
            add_files(&root.join("crates").join(krate).join("src"), &mut files);
        }
    }
    for folder in DATA {
        add_files(&root.join(folder), &mut files);
    }
    let mut hasher = DefaultHasher::new();
    hasher.write(format!("{needed:?}").as_bytes());
    for file in files {
        let name = file.strip_prefix(&root).expect("below the root").display().to_string();
        let bytes = std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        hasher.write(name.as_bytes());
        if name.ends_with(".rs") {
            let text = String::from_utf8(bytes).expect("sources are UTF-8");
            for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"))
            {
                hasher.write(line.as_bytes());
            }
        } else if !name.ends_with(".md") {
            hasher.write(&bytes);
        }
    }
    format!("{:016x}", hasher.finish())
}

fn add_files(folder: &Path, into: &mut BTreeSet<PathBuf>) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    for path in entries.map(|entry| entry.path()) {
        if path.is_dir() {
            add_files(&path, into);
        } else {
            into.insert(path);
        }
    }
}
