//! Plain words: no text that a user sees hides who acts: pages, reports, help, messages, log lines, shipped files. Nor does
//! a comment of the Rust code.
//!
//! Strings of tests are not checked.

use crate::common::repository;
use crate::common::sources::{SOURCES, Source};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use regex_lite::Regex;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Words that hide who acts, or that replace a more exact verb.
static HIDING: LazyLock<Regex> = LazyLock::new(|| Regex::new(WORDS).unwrap());
const WORDS: &str = r"(?i)\b(nobody|somebody|anybody|everybody|whoever|whomever|whom|told|stands|stood|goes|gets on|gets along|gone by)\b";

/// Attributes whose strings only readers of the code see.
const SILENT: [&str; 6] = ["doc", "expect", "allow", "ignore", "cfg_attr", "should_panic"];

/// All lines of `text` with a word of the list, as `name:line: text`.
fn hits(name: &str, text: &str) -> Vec<String> {
    let lines = text.lines().enumerate().filter(|(_, line)| HIDING.is_match(line));
    lines.map(|(number, line)| format!("{name}:{}: {}", number + 1, line.trim())).collect()
}

/// The string literals of Rust code, without attributes that only readers of the code see and without test modules.
pub fn literals(stream: TokenStream, into: &mut Vec<String>) {
    let mut tokens = stream.into_iter().peekable();
    let mut test_item = false;
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(sign) if sign.as_char() == '#' => {
                if matches!(tokens.peek(), Some(TokenTree::Punct(sign)) if sign.as_char() == '!') {
                    tokens.next();
                }
                let Some(TokenTree::Group(attribute)) = tokens.peek().cloned() else { continue };
                let name =
                    attribute.stream().into_iter().next().map_or_else(String::new, |name| name.to_string());
                test_item |= attribute.stream().to_string().replace(' ', "") == "cfg(test)";
                if SILENT.contains(&name.as_str()) {
                    tokens.next();
                }
            }
            // An item under `#[cfg(test)]` ends with its braces, or with a semicolon.
            TokenTree::Group(group) if test_item && group.delimiter() == Delimiter::Brace => {
                test_item = false
            }
            TokenTree::Punct(sign) if test_item && sign.as_char() == ';' => test_item = false,
            TokenTree::Group(group) => literals(group.stream(), into),
            TokenTree::Literal(literal) if !test_item => {
                let text = literal.to_string();
                if text.starts_with('"') || text.starts_with("r\"") || text.starts_with("r#") {
                    into.push(text);
                }
            }
            _ => {}
        }
    }
}

/// A comment or a string literal of Python code.
static PYTHON_STRING: LazyLock<Regex> = LazyLock::new(|| {
    let string = r#"(?s)#[^\n]*|"""(.*?)"""|'''(.*?)'''|"((?:\\.|[^"\\\n])*)"|'((?:\\.|[^'\\\n])*)'"#;
    Regex::new(string).unwrap()
});

/// The string literals of Python code, docstrings among them: `help()` and `--help` show these.
fn python_literals(code: &str) -> String {
    let mut kept = String::new();
    for found in PYTHON_STRING.captures_iter(code) {
        if let Some(text) = (1..=4).find_map(|group| found.get(group)) {
            kept += text.as_str();
            kept.push('\n');
        }
    }
    kept
}

fn files(folder: &Path, ends: &str, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let skipped = name.starts_with('.') || ["target", "tests", "node_modules"].contains(&name);
        if path.is_dir() && !path.is_symlink() && !skipped {
            files(&path, ends, into);
        } else if name.ends_with(ends) && name != "tests.rs" {
            into.push(path);
        }
    }
}

fn all(folder: &str, ends: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(&repository().join(folder), ends, &mut found);
    assert!(!found.is_empty(), "{folder} has no {ends}");
    found.sort();
    found
}

fn refused(wrong: &[String]) {
    assert!(wrong.is_empty(), "{} lines hide who acts:\n{}", wrong.len(), wrong.join("\n"));
}

fn name(path: &Path) -> String {
    path.strip_prefix(repository()).unwrap_or(path).display().to_string()
}

#[test]
fn pages_name_who_acts() {
    let mut wrong = Vec::new();
    let texts = all(".", ".md").into_iter().chain(all("dist", "")).chain(all("scenarios", ".toml"));
    let texts = texts.chain(all("chips", ".toml")).chain(all("generations", ".toml"));
    let pages =
        all("crates", ".html").into_iter().chain(all("python", ".html")).chain(all("python", ".ipynb"));
    for path in texts.chain(pages).chain(all("python", ".pyi")) {
        wrong.extend(hits(&name(&path), &std::fs::read_to_string(&path).unwrap()));
    }
    refused(&wrong);
}

#[test]
fn help_names_who_acts() {
    let help = repository().join("crates/cli/tests/suite/snapshots/suite__help__help.snap");
    let text = std::fs::read_to_string(&help).unwrap();
    assert!(text.contains("waykeeper run") && text.contains("waykeeper daemon"), "all help pages");
    refused(&hits(&name(&help), &text));
}

#[test]
fn messages_name_who_acts() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for source in SOURCES.iter().filter(|source| !source.is_in("fuzz")) {
        count += source.literals.len();
        let name = source.path.display().to_string();
        wrong.extend(source.literals.iter().flat_map(|text| hits(&name, text)));
    }
    assert!(count > 3000, "only {count} string literals were found");
    refused(&wrong);
}

#[test]
fn python_texts_name_who_acts() {
    let mut wrong = Vec::new();
    for folder in ["python", "oracle", "nvme", "guests", "clients", "scripts"] {
        for path in all(folder, ".py") {
            let code = std::fs::read_to_string(&path).unwrap();
            wrong.extend(hits(&name(&path), &python_literals(&code)));
        }
    }
    refused(&wrong);
}

/// The comments of Rust code that have a line of their own.
fn comments(code: &str) -> String {
    code.lines()
        .map(|line| if line.trim_start().starts_with("//") { line } else { "" }.to_owned() + "\n")
        .collect()
}

#[test]
fn comments_name_who_acts() {
    let mut wrong = Vec::new();
    // This file has the words as examples.
    let ours = |source: &&Source| {
        !["fuzz", "tests", "tests.rs"].iter().any(|name| source.is_in(name))
            && !source.path.ends_with("suite/words.rs")
    };
    for source in SOURCES.iter().filter(ours) {
        wrong.extend(hits(&source.path.display().to_string(), &comments(&source.text)));
    }
    refused(&wrong);
}

#[test]
fn a_hidden_actor_is_found_in_each_kind_of_text() {
    assert_eq!(hits("x", "fine\nthe value stands\n"), ["x:2: the value stands"]);
    let code = r##"
        //! nobody reads this here
        #[doc = "whoever"]
        #[error("somebody has {0}")]
        struct S;
        fn f() { log!("it goes {x}", r#"they were told"#, 'x', b"raw", 1); }
        #[cfg(test)]
        use nothing::at::all;
        fn g() { say("everybody") }
        #[cfg(test)]
        mod tests { fn t() { say("anybody") } }
    "##;
    let mut found = Vec::new();
    literals(code.parse().unwrap(), &mut found);
    let found: Vec<_> = found.iter().flat_map(|text| hits("x", text)).collect();
    assert_eq!(found.len(), 4, "{found:?}");
    let python = "x = 'nobody' # somebody\ny = f\"it {a} goes\"\n\"\"\"whom\nit stands\"\"\"\n# told\n";
    assert_eq!(hits("x", &python_literals(python)).len(), 4);
    let code = "fn f() { say(\"told\"); } // told\n    // nobody is here\n/// All goes well\n";
    assert_eq!(hits("x", &comments(code)), ["x:2: // nobody is here", "x:3: /// All goes well"]);
}
