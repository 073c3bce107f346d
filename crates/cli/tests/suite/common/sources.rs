//! The Rust sources of the repository, read and parsed once for all tests of this program: parsing takes most of their time.
//!
//! Must not know what a test looks for in them.

use super::repository;
use proc_macro2::TokenStream;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// What tests need of the tokens of a file, which themselves stay in the thread that parsed them.
pub struct Source {
    /// From the root of the repository.
    pub path: PathBuf,
    pub text: String,
    /// String literals outside tests, of a file that is compiled into a program.
    pub literals: Vec<String>,
    pub declared: crate::names::Declared,
    pub unsafe_places: usize,
}

/// Every Rust file of the crates, examples, fuzzing and Python's crate, by path.
pub static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| {
    let mut paths = Vec::new();
    for folder in ["crates", "examples", "fuzz", "python"] {
        search(&repository().join(folder), &mut paths);
    }
    assert!(paths.len() > 500, "the sources were not found");
    paths.sort();
    paths.into_iter().map(read).collect()
});

impl Source {
    /// Whether a folder of the path, or the file, has this name.
    pub fn is_in(&self, name: &str) -> bool {
        self.path.iter().any(|part| part == name)
    }
}

fn search(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() && !path.ends_with("target") {
            search(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

fn read(path: PathBuf) -> Source {
    let text = std::fs::read_to_string(&path).unwrap();
    let tokens: TokenStream = text.parse().unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    let path = path.strip_prefix(repository()).unwrap().to_owned();
    let mut source = Source {
        unsafe_places: crate::unsafe_code::count(tokens.clone()),
        declared: crate::names::declarations(&path, tokens.clone()),
        literals: Vec::new(),
        path,
        text,
    };
    if source.is_in("src") && !source.is_in("tests") && !source.is_in("tests.rs") {
        crate::words::literals(tokens, &mut source.literals);
    }
    source
}
