//! A hash of the sources that determine what a simulation gives: this crate, the crates of the workspace that it uses, and
//! the versions of all others. Kept runs (`runner/kept.rs`) of another model are not used. A crate that was packaged alone
//! finds only its own sources; the versions of the others are then part of it.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let crates = here.parent().expect("a crate lies in a folder").to_owned();
    let mut folders = BTreeSet::new();
    add(&here, &crates, &mut folders);
    let mut files = BTreeSet::new();
    for folder in &folders {
        sources(&folder.join("src"), &mut files);
        println!("cargo::rerun-if-changed={}", folder.join("src").display());
    }
    let lock = here.join("../../Cargo.lock");
    if lock.is_file() {
        println!("cargo::rerun-if-changed={}", lock.display());
        files.insert(lock);
    }
    let mut hasher = DefaultHasher::new();
    for file in files {
        // The place within the repository counts, not where the repository lies.
        let name = file.strip_prefix(&crates).unwrap_or(&file).to_string_lossy().into_owned();
        let bytes = fs::read(&file).unwrap_or_default();
        hasher.write(name.as_bytes());
        hasher.write_usize(bytes.len());
        hasher.write(&bytes);
    }
    println!("cargo::rustc-env=WAYKEEPER_MODEL_HASH={:016x}", hasher.finish());
}

/// The crate in `folder` and the crates of the workspace that it needs, without those of features.
fn add(folder: &Path, crates: &Path, into: &mut BTreeSet<PathBuf>) {
    let manifest = folder.join("Cargo.toml");
    let Ok(text) = fs::read_to_string(&manifest) else { return };
    if !into.insert(folder.to_owned()) {
        return;
    }
    println!("cargo::rerun-if-changed={}", manifest.display());
    let needs =
        text.split("\n[").find_map(|section| section.strip_prefix("dependencies]\n")).unwrap_or_default();
    for line in needs.lines().filter(|line| !line.contains("optional = true")) {
        let name = line.split([' ', '.', '=']).next().and_then(|name| name.strip_prefix("waykeeper-"));
        if let Some(name) = name {
            add(&crates.join(name), crates, into);
        }
    }
}

fn sources(folder: &Path, into: &mut BTreeSet<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        if path.is_dir() {
            sources(&path, into);
        } else {
            into.insert(path);
        }
    }
}
