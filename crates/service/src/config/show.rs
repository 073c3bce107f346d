//! Shows the configuration in force, and the differences between two configurations.
//!
//! Must not know how a value is read.

use super::keys::KEYS;
use super::{Config, ValueSource};
use std::collections::BTreeSet;
use std::fmt::Write;
use waykeeper_units::one_line;

/// Column of the comments.
const COLUMN: usize = 44;

/// All keys as TOML, each line with its source.
pub fn show(config: &Config) -> String {
    let mut text = String::new();
    let mut section = "";
    for key in KEYS {
        let (own, name) = key.path.split_once('.').unwrap_or(("", key.path));
        if own != section {
            // Writing to a text cannot fail.
            let _ = writeln!(text, "{}[{own}]", if section.is_empty() { "" } else { "\n" });
            section = own;
        }
        line(&mut text, &format!("{name} = {}", (key.get)(config)), config.sources.of(key.path));
        if key.path == "policy.name" {
            for (name, value) in &config.policy.settings {
                let source = config.sources.setting(name).cloned().unwrap_or_default();
                line(&mut text, &format!("settings.{} = {value}", quoted(name)), &source);
            }
        }
    }
    text.push('\n');
    for (tenant, source) in config.tenants.iter().zip(config.sources.tenants()) {
        line(&mut text, &format!("# tenant {}", tenant.name), source);
    }
    if config.tenants.is_empty() {
        text.push_str("# no tenant\n");
    }
    text
}

fn line(text: &mut String, said: &str, source: &ValueSource) {
    // A flag's or a variable's name may have any characters; a comment of TOML has no control characters.
    let _ = writeln!(text, "{said:COLUMN$} # {}", one_line(&source.to_string()));
}

fn quoted(key: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !key.is_empty() && key.chars().all(plain) {
        key.to_owned()
    } else {
        // As a value, a text with a line end may be written in several lines; a key may not.
        let escaped = key.chars().map(|c| match c {
            '"' | '\\' => format!("\\{c}"),
            c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
            c => c.to_string(),
        });
        format!("\"{}\"", escaped.collect::<String>())
    }
}

/// One difference between two configurations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// The key, `policy.settings` or `tenant`.
    pub key: &'static str,
    /// Whether it can change while the daemon runs.
    pub live: bool,
    /// What changed, in words.
    pub text: String,
    /// The source of the new value.
    pub source: ValueSource,
}

/// What differs in `new`.
pub fn differences(old: &Config, new: &Config) -> Vec<Difference> {
    let mut found = Vec::new();
    for key in KEYS {
        let (before, after) = ((key.get)(old), (key.get)(new));
        if before != after {
            let text = format!("{} is {after}, was {before}", key.path);
            found.push(Difference {
                key: key.path,
                live: key.live,
                text,
                source: new.sources.of(key.path).clone(),
            });
        }
    }
    if let (Some(before), Some(after)) = (&old.file_policy.loaded, &new.file_policy.loaded)
        && before.file.text != after.file.text
        && old.file_policy.file == new.file_policy.file
    {
        let text = format!("the policy's file {} changed", after.file.path.display());
        let source = new.sources.of("policy.file").clone();
        found.push(Difference { key: "policy.file", live: true, text, source });
    }
    if old.policy.settings != new.policy.settings {
        let names: BTreeSet<&String> = old.policy.settings.keys().chain(new.policy.settings.keys()).collect();
        let changed: Vec<&str> = names
            .into_iter()
            .filter(|name| old.policy.settings.get(*name) != new.policy.settings.get(*name))
            .map(String::as_str)
            .collect();
        let source = changed.iter().find_map(|name| new.sources.setting(name)).cloned().unwrap_or_default();
        let text = format!("settings of the policy changed: {}", changed.join(", "));
        found.push(Difference { key: "policy.settings", live: true, text, source });
    }
    if old.tenants != new.tenants {
        let is_in = |name: &str, config: &Config| config.tenants.iter().any(|tenant| tenant.name == name);
        let mut words = Vec::new();
        for (which, one, other) in [("added", new, old), ("gone", old, new)] {
            let names: Vec<&str> = one
                .tenants
                .iter()
                .map(|tenant| tenant.name.as_str())
                .filter(|name| !is_in(name, other))
                .collect();
            if !names.is_empty() {
                words.push(format!("{which}: {}", names.join(", ")));
            }
        }
        let changed: Vec<&str> = new
            .tenants
            .iter()
            .filter(|tenant| old.tenants.iter().any(|own| own.name == tenant.name && own != *tenant))
            .map(|tenant| tenant.name.as_str())
            .collect();
        if !changed.is_empty() {
            words.push(format!("changed: {}", changed.join(", ")));
        }
        if words.is_empty() {
            words.push("their order changed".to_owned());
        }
        let source = new.sources.tenants().first().cloned().unwrap_or_default();
        let text = format!("tenants {}", words.join("; "));
        found.push(Difference { key: "tenant", live: true, text, source });
    }
    found
}
