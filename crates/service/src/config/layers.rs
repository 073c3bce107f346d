//! One layer over the other: what is said later wins, tenants add up, and everything remembers where it was said.
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
use waykeeper_linux::tenants::{TenantSpec, clash};

/// What a configuration is made of, besides its defaults.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Inputs {
    /// The file; `None`: the usual one, if it is there.
    pub file: Option<PathBuf>,
    /// The environment; names that do not begin with `WAYKEEPER_` are nobody's business.
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
    /// The value, as TOML or, where a text is wanted, as it is.
    pub value: String,
}

/// Where something was said.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Source {
    /// Nowhere.
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

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::File { path, line } => write!(f, "{}:{line}", path.display()),
            Source::Environment(name) => write!(f, "environment {name}"),
            Source::Flag(flag) => f.write_str(flag),
        }
    }
}

/// Where each value in force was said.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Stated {
    keys: BTreeMap<&'static str, Source>,
    settings: BTreeMap<String, Source>,
    tenants: Vec<Source>,
}

impl Stated {
    /// Of a key of the table.
    pub fn of(&self, path: &str) -> &Source {
        const NOWHERE: &Source = &Source::Default;
        self.keys.get(path).unwrap_or(NOWHERE)
    }

    /// Of a setting of the policy, if it was said at all.
    pub fn setting(&self, name: &str) -> Option<&Source> {
        self.settings.get(name)
    }

    /// Of each tenant, in their order.
    pub fn tenants(&self) -> &[Source] {
        &self.tenants
    }
}

/// What one file, the environment or the command line says.
#[derive(Debug, Default)]
pub(super) struct Layer {
    said: Vec<(String, Value, Source)>,
    pub tenants: Vec<(TenantSpec, Source)>,
}

impl Layer {
    pub fn push(&mut self, key: String, value: Value, source: Source) {
        self.said.push((key, value, source));
    }
}

/// What names of the environment begin with.
const PREFIX: &str = "WAYKEEPER_";
/// Where settings of the policy stand.
const SETTINGS: &str = "policy.settings";

pub(super) fn load(inputs: &Inputs) -> Result<Config, ConfigError> {
    let mut config = Config::default();
    for file in files::find(inputs.file.as_deref(), Path::new(USUAL_FILE))? {
        put(&mut config, files::read(&file)?)?;
    }
    put(&mut config, environment(&inputs.environment)?)?;
    put(&mut config, flags(&inputs.flags))?;
    match clash(&config.tenants) {
        None => Ok(config),
        Some((index, _, why)) => {
            let source = config.stated.tenants.get(index).cloned().unwrap_or_default();
            Err(ConfigError::wrong(&source, why))
        }
    }
}

/// Puts a layer over what is there.
pub(super) fn put(config: &mut Config, layer: Layer) -> Result<(), ConfigError> {
    let (names, others): (Vec<_>, Vec<_>) =
        layer.said.into_iter().partition(|(key, _, _)| key == "policy.name");
    for (key, value, source) in names {
        let before = config.policy.name.clone();
        say(config, &key, &value, source)?;
        // Settings are those of a policy: another one has none of them.
        if config.policy.name != before {
            config.policy.settings.clear();
            config.stated.settings.clear();
        }
    }
    for (key, value, source) in others {
        say(config, &key, &value, source)?;
    }
    for (spec, source) in layer.tenants {
        config.tenants.push(spec);
        config.stated.tenants.push(source);
    }
    Ok(())
}

fn say(config: &mut Config, name: &str, value: &Value, source: Source) -> Result<(), ConfigError> {
    if name == SETTINGS {
        let Value::Table(settings) = value else {
            let why =
                format!("{SETTINGS} = {value} is not valid; give a table, as [policy.settings] or {{ ... }}");
            return Err(ConfigError::wrong(&source, why));
        };
        for (key, value) in settings {
            config.policy.settings.insert(key.clone(), value.clone());
            config.stated.settings.insert(key.clone(), source.clone());
        }
        return Ok(());
    }
    if let Some(setting) = name.strip_prefix(SETTINGS).and_then(|rest| rest.strip_prefix('.')) {
        config.policy.settings.insert(setting.to_owned(), value.clone());
        config.stated.settings.insert(setting.to_owned(), source);
        return Ok(());
    }
    let Some(key) = KEYS.iter().find(|key| key.path == name) else {
        return Err(ConfigError::wrong(&source, unknown(name, value)));
    };
    (key.set)(config, value).map_err(|wanted| {
        ConfigError::wrong(&source, format!("{name} = {value} is not valid; give {wanted}"))
    })?;
    config.stated.keys.insert(key.path, source);
    Ok(())
}

/// What to say of a key that there is not.
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
    // Somebody may have forgotten the section.
    match KEYS.iter().find(|key| key.path.rsplit('.').next() == Some(name)) {
        Some(key) => format!("unknown key `{name}`; did you mean `{}`?", key.path),
        None => {
            format!("unknown key `{name}`{}", hint(name, KEYS.iter().map(|key| key.path).chain([SETTINGS])))
        }
    }
}

/// The nearest of what is known, or all of it. 0.4 is where a hint would mislead more than help, as for policies.
fn hint<'a>(word: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let likeness = |known: &str| strsim::normalized_damerau_levenshtein(word, known);
    let near = known.clone().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    match near.filter(|near| likeness(near) >= 0.4) {
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

/// How alike a variable's name and a known one must be for it to count as mistyped: other programs may have variables that
/// begin as ours do. Assumption: one letter of five may be wrong.
const MISTYPED: f64 = 0.8;

fn environment(variables: &[(String, String)]) -> Result<Layer, ConfigError> {
    let known: Vec<(String, &str)> =
        KEYS.iter().map(|key| key.path).chain([SETTINGS]).map(|path| (variable(path), path)).collect();
    let mut layer = Layer::default();
    for (name, value) in variables.iter().filter(|(name, _)| name.starts_with(PREFIX)) {
        let source = Source::Environment(name.clone());
        if let Some((_, path)) = known.iter().find(|(known, _)| known == name) {
            layer.push((*path).to_owned(), typed(path, value), source);
            continue;
        }
        let of_a_section = KEYS.iter().any(|key| {
            name.strip_prefix(PREFIX)
                .and_then(|rest| rest.strip_prefix(&key.section().to_ascii_uppercase()))
                .is_some_and(|rest| rest.starts_with('_'))
        });
        let likeness = |known: &str| strsim::normalized_damerau_levenshtein(name, known);
        if of_a_section || known.iter().any(|(known, _)| likeness(known) >= MISTYPED) {
            let hint = hint(name, known.iter().map(|(known, _)| known.as_str()));
            return Err(ConfigError::wrong(&source, format!("unknown variable{hint}")));
        }
    }
    Ok(layer)
}

fn flags(flags: &[Flag]) -> Layer {
    let mut layer = Layer::default();
    for flag in flags {
        layer.push(flag.key.clone(), typed(&flag.key, &flag.value), Source::Flag(flag.flag.clone()));
    }
    layer
}

/// A text from outside a file: TOML if it is and the key takes it so, else the text itself.
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
