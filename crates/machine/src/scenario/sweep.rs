//! Sweeps: one or two keys of a scenario take a list of values.
//!
//! Works on the scenario's table before anything is read from it, so that every key can be swept and every
//! swept value is checked like a written one.

use super::error::ScenarioError;
use super::keys::Keys;
use toml::{Table, Value};

/// One swept key.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// Dotted key, elements of `[[...]]` by their name: `workload.fio.block`.
    pub key: String,
    /// The values it takes.
    pub values: Vec<Value>,
}

impl Sweep {
    pub(crate) fn read(keys: &mut Keys<'_>) -> Result<Sweep, ScenarioError> {
        let key = keys.required_text("key", "the dotted key to sweep, like workload.fio.block")?;
        let wanted = "a list of values, like [\"4k\", \"8k\"]";
        let values = keys.list("values")?.ok_or_else(|| keys.missing("values", wanted))?;
        if values.is_empty() {
            return Err(keys.refuse("values", &"[]", wanted));
        }
        Ok(Sweep { key, values: values.to_vec() })
    }
}

/// Sets `key` to `value` in a scenario's table. False if there is no such place: an element of that name,
/// or a table on the way, is missing.
pub(crate) fn set(table: &mut Table, key: &str, value: &Value) -> bool {
    let Some((first, rest)) = key.split_once('.') else {
        table.insert(key.to_owned(), value.clone());
        return true;
    };
    match table.get_mut(first) {
        Some(Value::Table(inner)) => set(inner, rest, value),
        Some(Value::Array(items)) => {
            let Some((name, rest)) = rest.split_once('.') else {
                return false;
            };
            let named = |item: &&mut Value| item.get("name").and_then(Value::as_str) == Some(name);
            match items.iter_mut().find(named).and_then(Value::as_table_mut) {
                Some(item) => set(item, rest, value),
                None => false,
            }
        }
        None if first == "model" || first == "knobs" => {
            let mut inner = Table::new();
            let done = set(&mut inner, rest, value);
            table.insert(first.to_owned(), Value::Table(inner));
            done
        }
        _ => false,
    }
}

/// How a value is shown on an axis.
pub fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
