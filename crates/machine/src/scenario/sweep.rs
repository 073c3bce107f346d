//! Sweeps: one or two keys of a scenario take a list of values.
//!
//! Works on the scenario's TOML table before it is read, so that every key can be swept and every swept value is
//! checked like a written one. Must not know the meaning of any key.

use super::error::{ScenarioError, hint};
use super::keys::Keys;
use toml::{Table, Value};

/// Most points of a sweep, that is combinations of its values (ours): a larger number is probably a typing error. A
/// result of each is held in memory.
pub(crate) const MOST_POINTS: usize = 10_000;

/// One swept key.
#[derive(Clone, Debug, PartialEq)]
pub struct SweptKey {
    /// Dotted key, with elements of `[[...]]` by name: `workload.fio.block`.
    pub key: String,
    /// Its values.
    pub values: Vec<Value>,
}

impl SweptKey {
    pub(crate) fn read(keys: &mut Keys<'_>) -> Result<SweptKey, ScenarioError> {
        let key = keys.required_text("key", "the dotted key to sweep, like workload.fio.block")?;
        let wanted = "a list of values, like [\"4k\", \"8k\"]";
        let values = keys.list("values")?.ok_or_else(|| keys.missing("values", wanted))?;
        if values.is_empty() {
            return Err(keys.refuse("values", &"[]", wanted));
        }
        Ok(SweptKey { key, values: values.to_vec() })
    }
}

/// Optional tables of a scenario: setting a key in one creates it.
const OPTIONAL_TABLES: [&str; 3] = ["model", "knobs", "policy"];

/// Sets `key` to `value` in a scenario's table.
///
/// # Errors
/// If a table on the path or an element with that name is missing; the message names it.
pub(crate) fn set(table: &mut Table, key: &str, value: &Value) -> Result<(), String> {
    let parts = parts(key);
    let optional = parts.first().is_some_and(|first| OPTIONAL_TABLES.contains(first));
    set_in(table, &parts, value, optional).map_err(|why| {
        let first = parts.first().copied().unwrap_or_default();
        match named(table, first) {
            // A frequent mistake: `fio.block` instead of `workload.fio.block`.
            Some(kind) => format!("{why}, did you mean `{kind}.{key}`"),
            None => why,
        }
    })
}

/// Whether two dotted keys name the same key.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    parts(one) == parts(other)
}

/// Splits `workload.fio.block` and `workload[fio].block` alike; a name in brackets may contain dots.
fn parts(key: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = key;
    while let Some(at) = rest.find(['.', '[']) {
        let inside = &rest[at..];
        let (part, behind) = match inside.strip_prefix('[').and_then(|inside| inside.split_once(']')) {
            Some((name, behind)) => ([&rest[..at], name], behind.strip_prefix('.').unwrap_or(behind)),
            None => ([&rest[..at], ""], &inside[1..]),
        };
        parts.extend(part.into_iter().filter(|part| !part.is_empty()));
        rest = behind;
    }
    if !rest.is_empty() {
        parts.push(rest);
    }
    parts
}

/// `set` for the parts of a key; with `make`, missing tables on the path are created.
fn set_in(table: &mut Table, parts: &[&str], value: &Value, make: bool) -> Result<(), String> {
    let (first, rest) = parts.split_first().ok_or("there is no such key")?;
    if rest.is_empty() {
        table.insert((*first).to_owned(), value.clone());
        return Ok(());
    }
    if make && !table.contains_key(*first) {
        table.insert((*first).to_owned(), Value::Table(Table::new()));
    }
    let deeper =
        table.iter().filter(|(_, inner)| inner.is_table() || inner.is_array()).map(|(key, _)| key.as_str());
    let nowhere = format!("there is no such key: there is no table `{first}`{}", hint(first, deeper));
    match table.get_mut(*first) {
        Some(Value::Table(inner)) => set_in(inner, rest, value, make),
        Some(Value::Array(items)) => {
            let names: Vec<String> = items.iter().filter_map(name).map(str::to_owned).collect();
            let known = || names.iter().map(String::as_str);
            let (wanted, rest) = rest.split_first().ok_or(nowhere)?;
            let item = items.iter_mut().find(|item| name(item) == Some(*wanted));
            let Some(item) = item.and_then(Value::as_table_mut) else {
                let near = hint(wanted, known());
                return Err(format!(
                    "there is no such key: there is no {first} `{wanted}`{near}; there are {}",
                    known().collect::<Vec<_>>().join(", ")
                ));
            };
            if rest.is_empty() {
                return Err(format!("it must name a key of {first} `{wanted}`"));
            }
            set_in(item, rest, value, false)
        }
        _ => Err(nowhere),
    }
}

/// Name of an element of `[[...]]`.
fn name(item: &Value) -> Option<&str> {
    item.get("name").and_then(Value::as_str)
}

/// The kind of the element with the name `wanted`: `workload`, `nic` or `storage`.
fn named<'a>(table: &'a Table, wanted: &str) -> Option<&'a str> {
    let has = |value: &Value| {
        value.as_array().is_some_and(|items| items.iter().any(|item| name(item) == Some(wanted)))
    };
    table.iter().find(|(_, value)| has(value)).map(|(kind, _)| kind.as_str())
}

/// A value as text for an axis.
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
        for key in
            ["nic.b.ring", "nic[a].ring", "policy.a4.T1", "policy.fixed.masks.a", "seed", "knobs.dca_ways"]
        {
            assert_eq!(set(&mut table, key, &one), Ok(()), "{key}");
        }
        assert_eq!((&table["nic"][0]["ring"], &table["nic"][1]["ring"]), (&one, &one));
        assert_eq!(table["policy"]["a4"]["T1"], one);
        for nowhere in ["nic.c.ring", "nic.a", "nic[a]", "workload.x.mask", "nic.a.b.c", "seed.x", "", "."] {
            assert!(set(&mut table, nowhere, &one).is_err(), "{nowhere}");
        }
    }

    #[test]
    fn a_place_that_is_not_there_is_answered_with_the_nearest() {
        let mut table: Table = "[[nic]]\nname = \"left\"\n[[workload]]\nname = \"bully.1\"".parse().unwrap();
        let mut why = |key: &str| set(&mut table, key, &Value::Integer(1)).unwrap_err();
        assert!(why("nic.lefd.ring").contains("no nic `lefd`, did you mean `left`; there are left"));
        assert!(why("worklod.left.ring").contains("no table `worklod`, did you mean `workload`"));
        assert!(why("left.ring").contains("did you mean `nic.left.ring`"));
        assert_eq!(parts("workload[bully.1].phase"), ["workload", "bully.1", "phase"]);
        assert_eq!(parts("a[b"), ["a", "b"]);
        assert!(is_same("workload[fio].block", "workload.fio.block"));
        assert!(!is_same("workload.fio.block", "workload.fio.blocks"));
    }
}
