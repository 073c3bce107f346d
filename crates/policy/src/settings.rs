//! Reading a policy's settings out of a TOML table: unknown keys and values out of range are refused.
//!
//! It must not know any policy; each passes the keys that it accepts.

use crate::PolicyError;
use toml::{Table, Value};
use waykeeper_units::Likeness;

/// The known word most similar to `word`, if one is similar; the first one of equals.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let known: Vec<&str> = known.into_iter().collect();
    waykeeper_units::nearest(word, known.into_iter().rev(), Likeness::Edits).map(str::to_owned)
}

/// Refuses any key of `table` that is not in `accepted`.
///
/// # Errors
/// [`PolicyError::UnknownSetting`] for the first such key.
pub(crate) fn refuse_unknown(policy: &str, table: &Table, accepted: &[&str]) -> Result<(), PolicyError> {
    match table.keys().find(|key| !accepted.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(PolicyError::UnknownSetting {
            policy: policy.to_owned(),
            key: key.clone(),
            nearest: nearest(key, accepted.iter().copied()),
            accepted: accepted.iter().map(|name| (*name).to_owned()).collect(),
        }),
    }
}

/// The error for a value of the wrong kind.
pub(crate) fn wrong_type(policy: &str, key: &str, wanted: &str, found: &Value) -> PolicyError {
    PolicyError::WrongType {
        policy: policy.to_owned(),
        key: key.to_owned(),
        wanted: wanted.to_owned(),
        found: format!("{} {found}", article(found.type_str())),
    }
}

/// The accepted form of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// Any number.
    Number,
    /// A whole number.
    Whole,
    /// true or false; stored as 1 or 0.
    Switch,
}

/// Any other form, or a value outside the range.
///
/// # Errors
/// Anything of another form, or out of the range.
pub(crate) fn value(
    policy: &str,
    key: &str,
    value: &Value,
    form: Form,
    (low, high, unit): (f64, f64, &str),
) -> Result<f64, PolicyError> {
    let number = match (form, value) {
        (Form::Switch, Value::Boolean(on)) => return Ok(f64::from(u8::from(*on))),
        (Form::Number | Form::Whole, Value::Integer(whole)) => *whole as f64,
        (Form::Number, Value::Float(number)) => *number,
        (Form::Switch, _) => return Err(wrong_type(policy, key, "true or false", value)),
        (Form::Whole, _) => return Err(wrong_type(policy, key, "a whole number", value)),
        (Form::Number, _) => return Err(wrong_type(policy, key, "a number", value)),
    };
    if (low..=high).contains(&number) {
        return Ok(number);
    }
    let (policy, key, unit) = (policy.to_owned(), key.to_owned(), unit.to_owned());
    Err(PolicyError::OutOfRange { policy, key, value: number, low, high, unit })
}

/// A number in a range, or the default.
///
/// # Errors
/// Anything that is not a number in the range.
pub(crate) fn number(
    policy: &str,
    table: &Table,
    key: &str,
    default: f64,
    range: (f64, f64, &str),
) -> Result<f64, PolicyError> {
    table.get(key).map_or(Ok(default), |found| value(policy, key, found, Form::Number, range))
}

/// A whole number in a range, or the default.
///
/// # Errors
/// Anything that is not a whole number in the range.
pub(crate) fn whole(
    policy: &str,
    table: &Table,
    key: &str,
    default: u32,
    (low, high, unit): (u32, u32, &str),
) -> Result<u32, PolicyError> {
    let range = (f64::from(low), f64::from(high), unit);
    table.get(key).map_or(Ok(default), |found| {
        value(policy, key, found, Form::Whole, range).map(|number| number as u32)
    })
}

/// One of some words, or the default; `wanted` describes them in the error.
///
/// # Errors
/// Anything that is not a text, and any other word.
pub(crate) fn choice<T: Copy>(
    policy: &str,
    table: &Table,
    key: &str,
    (usual, wanted): (T, &str),
    words: &[(&str, T)],
) -> Result<T, PolicyError> {
    let Some(value) = table.get(key) else { return Ok(usual) };
    let word = value.as_str().ok_or_else(|| wrong_type(policy, key, wanted, value))?;
    let known = || words.iter().map(|(known, _)| *known);
    let found = words.iter().find(|(known, _)| *known == word).map(|(_, meant)| *meant);
    found.ok_or_else(|| PolicyError::UnknownChoice {
        policy: policy.to_owned(),
        key: key.to_owned(),
        value: word.to_owned(),
        nearest: nearest(word, known()),
        accepted: known().map(str::to_owned).collect(),
    })
}

/// The type name with its article.
fn article(kind: &str) -> String {
    let article = if kind.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {kind}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_given_only_when_it_is_like_the_word() {
        let known = ["default", "isolate", "a4", "a4-a"];
        assert_eq!(nearest("defualt", known), Some("default".to_owned()));
        assert_eq!(nearest("a5", known), Some("a4".to_owned()));
        assert_eq!(nearest("qqqqqqqq", known), None);
    }

    #[test]
    fn unknown_keys_name_what_is_accepted() {
        let table: Table = "maks = 1".parse().unwrap();
        let error = refuse_unknown("isolate", &table, &["masks"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "policy isolate has no setting `maks`; did you mean `masks`?; accepted are masks"
        );
        let error = refuse_unknown("default", &table, &[]).unwrap_err();
        assert_eq!(error.to_string(), "policy default has no setting `maks`; it has no settings");
    }
}
