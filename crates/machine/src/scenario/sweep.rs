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

/// Tables that a scenario may leave out: setting a key in one makes it.
const OPTIONAL_TABLES: [&str; 3] = ["model", "knobs", "policy"];

/// Sets `key` to `value` in a scenario's table. False if there is no such place: an element of that name,
/// or a table on the way, is missing.
pub(crate) fn set(table: &mut Table, key: &str, value: &Value) -> bool {
    let optional = key.split('.').next().is_some_and(|first| OPTIONAL_TABLES.contains(&first));
    set_in(table, key, value, optional)
}

/// The same; with `make`, tables on the way that are missing are made.
fn set_in(table: &mut Table, key: &str, value: &Value, make: bool) -> bool {
    let Some((first, rest)) = key.split_once('.') else {
        table.insert(key.to_owned(), value.clone());
        return true;
    };
    if make && !table.contains_key(first) {
        table.insert(first.to_owned(), Value::Table(Table::new()));
    }
    match table.get_mut(first) {
        Some(Value::Table(inner)) => set_in(inner, rest, value, make),
        Some(Value::Array(items)) => {
            let Some((name, rest)) = rest.split_once('.') else {
                return false;
            };
            let named = |item: &&mut Value| item.get("name").and_then(Value::as_str) == Some(name);
            match items.iter_mut().find(named).and_then(Value::as_table_mut) {
                Some(item) => set_in(item, rest, value, false),
                None => false,
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_set_where_it_belongs_or_not_at_all() {
        let mut table: Table = "[[nic]]\nname = \"a\"\n[[nic]]\nname = \"b\"\nring = 64".parse().unwrap();
        let one = Value::Integer(1);
        assert!(set(&mut table, "nic.b.ring", &one) && set(&mut table, "policy.a4.T1", &one));
        assert!(set(&mut table, "seed", &one) && set(&mut table, "knobs.dca_ways", &one));
        assert_eq!(table["nic"][1]["ring"], one);
        assert_eq!(table["policy"]["a4"]["T1"], one);
        for nowhere in ["nic.c.ring", "nic.a", "workload.x.mask", "nic.a.b.c", "seed.x"] {
            assert!(!set(&mut table, nowhere, &one), "{nowhere}");
        }
    }
}
