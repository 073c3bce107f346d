//! Names: no two crates have a public type of the same name, and no function's name hides who acts.
//!
//! Reads the sources as text; must not know what a type or a function is for.

use crate::common::sources::SOURCES;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::BTreeMap;
use std::path::Path;

/// Words that hide who acts, as in the test of plain words.
const HIDING: &[&str] = &[
    "nobody",
    "nobodys",
    "somebody",
    "somebodys",
    "anybody",
    "everybody",
    "whoever",
    "whom",
    "told",
    "stands",
    "goes",
];

/// What a file declares.
#[derive(Default)]
pub struct Declared {
    types: Vec<String>,
    functions: Vec<String>,
}

/// Adds the public types outside `#[cfg(test)]`, and all functions. `in_test`: the code belongs to tests.
fn declared(code: TokenStream, in_test: bool, into: &mut Declared) {
    let tokens: Vec<TokenTree> = code.into_iter().collect();
    let word = |index: usize| match tokens.get(index) {
        Some(TokenTree::Ident(word)) => word.to_string(),
        _ => String::new(),
    };
    let mut test_item = false;
    for (index, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
                test_item |= group.stream().to_string().replace(' ', "") == "cfg(test)";
            }
            TokenTree::Group(group) => {
                declared(group.stream(), in_test || test_item, into);
                test_item &= group.delimiter() != Delimiter::Brace;
            }
            TokenTree::Punct(sign) if sign.as_char() == ';' => test_item = false,
            TokenTree::Ident(first) if *first == "fn" => into.functions.push(word(index + 1)),
            TokenTree::Ident(first) if *first == "pub" && !in_test && !test_item => {
                // A macro's `pub struct $name` has no name here.
                let keyword =
                    ["struct", "enum", "trait", "type", "union"].contains(&word(index + 1).as_str());
                if keyword && !word(index + 2).is_empty() {
                    into.types.push(word(index + 2));
                }
            }
            _ => {}
        }
    }
}

/// What a file declares; `path` is from the root of the repository.
pub fn declarations(path: &Path, code: TokenStream) -> Declared {
    let of_tests = path.iter().any(|part| part != "src" && part.to_string_lossy().starts_with("tests"));
    let mut found = Declared::default();
    declared(code, of_tests, &mut found);
    found
}

/// Each Rust file of the crates, with what it declares.
fn crates() -> impl Iterator<Item = (&'static Path, &'static Declared)> {
    let ours = SOURCES.iter().filter(|source| source.path.starts_with("crates"));
    ours.map(|source| (source.path.as_path(), &source.declared))
}

#[test]
fn no_two_crates_have_a_public_type_of_the_same_name() {
    let mut known: BTreeMap<&str, &Path> = BTreeMap::new();
    let mut wrong = Vec::new();
    let crate_of = |path: &Path| path.iter().nth(1).map(ToOwned::to_owned);
    for (path, found) in crates() {
        if path.iter().nth(2).is_none_or(|folder| folder != "src") {
            continue;
        }
        for name in &found.types {
            let first = *known.entry(name).or_insert(path);
            if crate_of(first) != crate_of(path) {
                wrong.push(format!(
                    "{name}: a public type of {} and of {}; give one of them a name that says what it is",
                    first.display(),
                    path.display()
                ));
            }
        }
    }
    assert!(known.len() > 500, "the types were not found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_names_of_functions_are_plain() {
    let mut wrong = Vec::new();
    for (path, found) in crates() {
        for name in &found.functions {
            if name.split('_').any(|word| HIDING.contains(&word)) {
                wrong.push(format!("{}: `fn {name}` hides who acts", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
