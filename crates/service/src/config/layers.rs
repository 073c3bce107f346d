//! Merges layers of configuration: a later value replaces an earlier one, tenants are appended, each value keeps its
//! source.
//!
//! Must not know what a key means.

use super::error::ConfigError;
use super::keys::{KEYS, Key, is_section};
use super::{Config, USUAL_FILE, files};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toml::Value;
use waykeeper_kernel::system::System;
use waykeeper_tenants::{DeclaredSize, NO_TENANT, TenantSpec, clash};
use waykeeper_units::{Likeness, most_alike, nearest};

/// The sources of a configuration, besides its defaults.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Inputs {
    /// The file; with `None` the usual one, if it exists.
    pub file: Option<PathBuf>,
    /// The environment; names without the prefix `WAYKEEPER_` are ignored.
    pub environment: Vec<(String, String)>,
    /// The command line.
    pub flags: Vec<Flag>,
}

/// One value from the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flag {
    /// The flag as it is written, for messages.
    pub flag: String,
    /// The key.
    pub key: String,
    /// The value, as TOML, or as plain text where a string is wanted.
    pub value: String,
}

/// Where a value comes from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ValueSource {
    /// No source gave it.
    #[default]
    Default,
    /// In a file.
    File {
        /// The file.
        path: Arc<Path>,
        /// The line, from 1.
        line: usize,
    },
    /// In a variable of the environment.
    Environment(String),
    /// On the command line.
    Flag(String),
}

impl fmt::Display for ValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueSource::Default => f.write_str("default"),
            ValueSource::File { path, line } => write!(f, "{}:{line}", path.display()),
            ValueSource::Environment(name) => write!(f, "environment {name}"),
            ValueSource::Flag(flag) => f.write_str(flag),
        }
    }
}

/// The source of each value in force.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Sources {
    keys: BTreeMap<&'static str, ValueSource>,
    settings: BTreeMap<String, ValueSource>,
    tenants: Vec<ValueSource>,
}

impl Sources {
    /// Source of a key of `KEYS`.
    pub fn of(&self, path: &str) -> &ValueSource {
        const NOWHERE: &ValueSource = &ValueSource::Default;
        self.keys.get(path).unwrap_or(NOWHERE)
    }

    /// A key that no source gave has a value because of another one.
    pub(crate) fn follows(&mut self, path: &'static str, other: &str) {
        self.keys.insert(path, self.of(other).clone());
    }

    /// Source of a setting of the policy, if one gave it.
    pub fn setting(&self, name: &str) -> Option<&ValueSource> {
        self.settings.get(name)
    }

    /// Source of each tenant, in their order.
    pub fn tenants(&self) -> &[ValueSource] {
        &self.tenants
    }
}

/// The values of one file, of the environment or of the command line.
#[derive(Debug, Default)]
pub(super) struct Layer {
    values: Vec<(String, Value, ValueSource)>,
    pub tenants: Vec<(TenantSpec, ValueSource)>,
}

impl Layer {
    pub fn push(&mut self, key: String, value: Value, source: ValueSource) {
        self.values.push((key, value, source));
    }
}

/// Prefix of our environment variables.
const PREFIX: &str = "WAYKEEPER_";
/// The key under which the policy's settings are.
const SETTINGS: &str = "policy.settings";

pub(super) fn load(system: &dyn System, inputs: &Inputs) -> Result<Config, ConfigError> {
    let mut config = Config::default();
    let (mut size, mut left) = (DeclaredSize::default(), files::ALL_LIMIT);
    for file in files::find(system, inputs.file.as_deref(), Path::new(USUAL_FILE))? {
        let layer = files::read(system, &file, &mut left)?;
        for (spec, source) in &layer.tenants {
            size.add(spec).map_err(|why| ConfigError::wrong(source, why))?;
        }
        put(&mut config, layer)?;
    }
    put(&mut config, environment(&inputs.environment)?)?;
    put(&mut config, flags(&inputs.flags))?;
    match clash(&config.tenants) {
        None => Ok(config),
        Some((index, _, why)) => {
            let source = config.sources.tenants.get(index).cloned().unwrap_or_default();
            Err(ConfigError::wrong(&source, why))
        }
    }
}

/// The tenants of one file for a reader that needs nothing else of it: a list of tenants, or a configuration of the
/// daemon, whose other keys are checked as the daemon checks them and then ignored. `file` is for messages.
///
/// # Errors
/// The first error found, or that there is no tenant.
pub fn tenants_in(file: &Path, text: &str) -> Result<Vec<TenantSpec>, ConfigError> {
    let mut config = Config::default();
    put(&mut config, files::take_apart(file, text)?)?;
    if config.tenants.is_empty() {
        let source = ValueSource::File { path: file.into(), line: 1 };
        return Err(ConfigError::wrong(&source, NO_TENANT));
    }
    Ok(config.tenants)
}

/// Merges a layer into the configuration.
pub(super) fn put(config: &mut Config, layer: Layer) -> Result<(), ConfigError> {
    let (names, others): (Vec<_>, Vec<_>) =
        layer.values.into_iter().partition(|(key, _, _)| key == "policy.name");
    for (key, value, source) in names {
        let before = config.policy.name.clone();
        set_key(config, &key, &value, source)?;
        // Settings belong to one policy: another policy starts without them.
        if config.policy.name != before {
            config.policy.settings.clear();
            config.sources.settings.clear();
        }
    }
    for (key, value, source) in others {
        set_key(config, &key, &value, source)?;
    }
    for (spec, source) in layer.tenants {
        config.tenants.push(spec);
        config.sources.tenants.push(source);
    }
    Ok(())
}

fn set_key(config: &mut Config, name: &str, value: &Value, source: ValueSource) -> Result<(), ConfigError> {
    if name == SETTINGS {
        let Value::Table(settings) = value else {
            let why =
                format!("{SETTINGS} = {value} is not valid; give a table, as [policy.settings] or {{ ... }}");
            return Err(ConfigError::wrong(&source, why));
        };
        return settings.iter().try_for_each(|(key, value)| set_setting(config, key, value, source.clone()));
    }
    if let Some(setting) = name.strip_prefix(SETTINGS).and_then(|rest| rest.strip_prefix('.')) {
        return set_setting(config, setting, value, source);
    }
    let Some(key) = KEYS.iter().find(|key| key.path == name) else {
        return Err(ConfigError::wrong(&source, unknown(name, value)));
    };
    (key.set)(config, value).map_err(|wanted| {
        ConfigError::wrong(&source, format!("{name} = {value} is not valid; give {wanted}"))
    })?;
    config.sources.keys.insert(key.path, source);
    Ok(())
}

/// Sets a setting of the policy. Not-a-number equals nothing, not even itself: every reload would report it as changed, and
/// no policy takes it.
fn set_setting(
    config: &mut Config,
    name: &str,
    value: &Value,
    source: ValueSource,
) -> Result<(), ConfigError> {
    if has_nan(value) {
        return Err(ConfigError::wrong(
            &source,
            format!("{SETTINGS}.{name} = {value} is not valid; give a number"),
        ));
    }
    config.policy.settings.insert(name.to_owned(), value.clone());
    config.sources.settings.insert(name.to_owned(), source);
    Ok(())
}

fn has_nan(value: &Value) -> bool {
    match value {
        Value::Float(number) => number.is_nan(),
        Value::Array(values) => values.iter().any(has_nan),
        Value::Table(values) => values.values().any(has_nan),
        _ => false,
    }
}

/// The message for an unknown key.
fn unknown(name: &str, value: &Value) -> String {
    if is_section(name) {
        return format!("`{name}` is a section; write it as [{name}]");
    }
    if name == "tenant" {
        return "a tenant is written as [[tenant]], with two brackets".to_owned();
    }
    if value.is_table() && !name.contains('.') {
        return format!(
            "unknown section [{name}]{}",
            hint(name, KEYS.iter().map(Key::section).chain(["tenant"]))
        );
    }
    // The section may be missing.
    match KEYS.iter().find(|key| key.path.rsplit('.').next() == Some(name)) {
        Some(key) => format!("unknown key `{name}`; did you mean `{}`?", key.path),
        None => {
            format!("unknown key `{name}`{}", hint(name, KEYS.iter().map(|key| key.path).chain([SETTINGS])))
        }
    }
}

/// A hint with the nearest known name, or with all of them.
fn hint<'a>(word: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    match nearest(word, known.clone(), Likeness::Edits) {
        Some(near) => format!("; did you mean `{near}`?"),
        None => {
            let mut all: Vec<&str> = known.collect();
            all.dedup();
            format!("; known are {}", all.join(", "))
        }
    }
}

fn variable(path: &str) -> String {
    format!("{PREFIX}{}", path.to_ascii_uppercase().replace('.', "_"))
}

/// How similar a variable's name must be to a known one to count as mistyped: other programs may use the same prefix.
/// Assumption: one letter of five may be wrong.
const MISTYPED: f64 = 0.8;

fn environment(variables: &[(String, String)]) -> Result<Layer, ConfigError> {
    let known: Vec<(String, &str)> =
        KEYS.iter().map(|key| key.path).chain([SETTINGS]).map(|path| (variable(path), path)).collect();
    let mut layer = Layer::default();
    for (name, value) in variables.iter().filter(|(name, _)| name.starts_with(PREFIX)) {
        let source = ValueSource::Environment(name.clone());
        if let Some((_, path)) = known.iter().find(|(known, _)| known == name) {
            layer.push((*path).to_owned(), typed(path, value), source);
            continue;
        }
        let of_a_section = KEYS.iter().any(|key| {
            name.strip_prefix(PREFIX)
                .and_then(|rest| rest.strip_prefix(&key.section().to_ascii_uppercase()))
                .is_some_and(|rest| rest.starts_with('_'))
        });
        let known = || known.iter().map(|(known, _)| known.as_str());
        let near = most_alike(name, known(), Likeness::Edits);
        if of_a_section || near.is_some_and(|(_, likeness)| likeness >= MISTYPED) {
            let hint = hint(name, known());
            return Err(ConfigError::wrong(&source, format!("unknown variable{hint}")));
        }
    }
    Ok(layer)
}

fn flags(flags: &[Flag]) -> Layer {
    let mut layer = Layer::default();
    for flag in flags {
        layer.push(flag.key.clone(), typed(&flag.key, &flag.value), ValueSource::Flag(flag.flag.clone()));
    }
    layer
}

/// A value from outside a file: parsed as TOML if the key accepts that, else the text itself.
fn typed(path: &str, text: &str) -> Value {
    let plain = Value::String(text.to_owned());
    let Ok(value) = text.parse::<Value>() else { return plain };
    match KEYS.iter().find(|key| key.path == path) {
        Some(key) => {
            let takes = |value: &Value| (key.set)(&mut Config::default(), value).is_ok();
            if !takes(&value) && takes(&plain) { plain } else { value }
        }
        None => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_are_taken_from_a_list_and_from_a_configuration_alike() {
        let list = "[[tenant]]\nname = \"db\"\nmask = \"0x3\"\nstack = true\nunit = \"db.service\"\n";
        let daemon =
            format!("[daemon]\nperiod_s = 2\n[policy]\nname = \"a4\"\n[policy.settings]\nx = 1\n{list}");
        let read = |text: &str| tenants_in(Path::new("t.toml"), text).map_err(|error| error.to_string());
        assert_eq!(read(list).unwrap()[0].name, "db");
        assert_eq!(read(&daemon), read(list));
        for (from, to, why) in [
            (
                "period_s = 2",
                "period = 2",
                "t.toml:2: unknown key `daemon.period`; did you mean `daemon.period_s`?",
            ),
            ("period_s = 2", "period_s = 0", "t.toml:2: daemon.period_s = 0 is not valid; give "),
            ("[[tenant]]", "[[tennant]]", "t.toml:7: unknown key `tennant`"),
            ("unit =", "units =", "t.toml:11: unknown key `units`; did you mean `unit`?"),
        ] {
            let said = read(&daemon.replace(from, to)).unwrap_err();
            assert!(said.starts_with(why), "{said}");
        }
        for text in ["", "[daemon]\nperiod_s = 2\n"] {
            assert!(read(text).unwrap_err().starts_with("t.toml:1: no tenant; write one as [[tenant]]"));
        }
    }
}
