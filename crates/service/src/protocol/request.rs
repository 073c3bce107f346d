//! Parses requests strictly, so that no request is carried out in part.
//!
//! Every error names the wrong key or value and what would be valid. Must not know the client.

use super::{ProtocolError, ProtocolErrorKind, SUPPORTED, VERSION};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use waykeeper_units::{Likeness, nearest, one_line, shown};

/// A client's name for its request; the answer repeats it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Id {
    /// A number.
    Number(u64),
    /// A text of at most [`LONGEST_ID`] bytes.
    Text(String),
}

/// The longest id that is text.
pub const LONGEST_ID: usize = 64;

/// The commands and the keys that each takes.
pub const COMMANDS: [(&str, &[&str]); 10] = [
    ("status", &[]),
    ("tenants", &[]),
    ("policy", &[]),
    ("watch", &[]),
    ("steps", &[]),
    ("set-policy", &["name", "settings"]),
    ("pause", &["release"]),
    ("resume", &[]),
    ("reload", &[]),
    ("hand-over", &["within_s"]),
];

/// A command.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum ControlCommand {
    /// The whole status.
    Status,
    /// Only the tenants.
    Tenants,
    /// The current policy, and the names of all policies.
    Policy,
    /// A status after every step, until the client disconnects.
    Watch,
    /// The stream of steps: the header once, then each step, until the client disconnects.
    Steps,
    /// Replace the policy.
    SetPolicy {
        /// Its name.
        name: String,
        /// Its settings.
        #[serde(default)]
        settings: toml::Table,
    },
    /// Pause the policy.
    Pause {
        /// Restore every knob during the pause.
        #[serde(default)]
        release: bool,
    },
    /// Resume the policy.
    Resume,
    /// Read the configuration again.
    Reload,
    /// Leave the knobs to the next daemon at the end.
    HandOver {
        /// Seconds in which this daemon must end and the next one come.
        #[serde(default = "usual_within_s")]
        within_s: f64,
    },
}

/// The time of a hand-over without a request, in seconds. Assumption: a package manager replaces the program and starts the
/// service again within it.
fn usual_within_s() -> f64 {
    60.0
}

impl ControlCommand {
    /// True if it changes the daemon's state: only root and the daemon's own user may send it.
    pub fn is_order(&self) -> bool {
        matches!(
            self,
            ControlCommand::SetPolicy { .. }
                | ControlCommand::Pause { .. }
                | ControlCommand::Resume
                | ControlCommand::Reload
                | ControlCommand::HandOver { .. }
        )
    }
}

/// A request.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Request {
    /// The protocol's version.
    pub version: u64,
    /// Its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
    /// The command.
    #[serde(flatten)]
    pub command: ControlCommand,
}

impl Request {
    /// A request in the current version.
    pub fn new(command: ControlCommand) -> Request {
        Request { version: VERSION, id: None, command }
    }
}

/// Parses a request. An error comes with the request's id if that could be read.
///
/// # Errors
/// What is wrong with it, and what would be valid.
pub fn parse(line: &[u8]) -> Result<Request, (Option<Id>, ProtocolError)> {
    let bad = |text: String| ProtocolError::new(ProtocolErrorKind::BadRequest, text);
    let example = r#"a request is one JSON object a line, for example {"version":1,"do":"status"}"#;
    let mut words = match serde_json::from_slice::<Value>(line) {
        Ok(Value::Object(words)) => words,
        Ok(_) => return Err((None, bad(format!("this is not an object; {example}")))),
        Err(why) => return Err((None, bad(format!("this is not JSON: {why}; {example}")))),
    };
    let id = id_of(&mut words).map_err(|text| (None, bad(text)))?;
    let command = version_of(&mut words).and_then(|()| command_of(words).map_err(bad));
    match command {
        Ok(command) => Ok(Request { version: VERSION, id, command }),
        Err(fault) => Err((id, fault)),
    }
}

fn id_of(words: &mut Map<String, Value>) -> Result<Option<Id>, String> {
    let refusal = || format!("`id` must be a whole number from 0 or a text of at most {LONGEST_ID} bytes");
    match words.remove("id") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(number)) => number.as_u64().map(Id::Number).map(Some).ok_or_else(refusal),
        Some(Value::String(text)) if text.len() <= LONGEST_ID => Ok(Some(Id::Text(text))),
        Some(_) => Err(refusal()),
    }
}

/// Checked first: another version may have other keys.
fn version_of(words: &mut Map<String, Value>) -> Result<(), ProtocolError> {
    let found = match words.remove("version") {
        Some(version) if version.as_u64().is_some_and(|version| SUPPORTED.contains(&version)) => {
            return Ok(());
        }
        Some(Value::Number(version)) => format!("version {version} is not supported"),
        Some(_) => "`version` must be a number".to_owned(),
        None => "`version` is missing".to_owned(),
    };
    let text = format!("{found}; this daemon supports version {VERSION}");
    Err(ProtocolError { kind: ProtocolErrorKind::Version, text, supported: SUPPORTED.to_vec() })
}

fn command_of(words: Map<String, Value>) -> Result<ControlCommand, String> {
    let known = || COMMANDS.map(|(name, _)| name).join(", ");
    let name = match words.get("do") {
        Some(Value::String(name)) => name.clone(),
        Some(_) => return Err(format!("`do` must be a text, one of {}", known())),
        None => return Err(format!("`do` is missing; give one of {}", known())),
    };
    let Some((_, accepted)) = COMMANDS.iter().find(|(known, _)| *known == name) else {
        let hint = hint(&name, COMMANDS.iter().map(|(name, _)| *name));
        return Err(format!("unknown command `{}`{hint}; known are {}", shown(&name), known()));
    };
    let all = || ["version", "id", "do"].into_iter().chain(accepted.iter().copied());
    if let Some(key) = words.keys().find(|key| !all().any(|known| known == key.as_str())) {
        let known: Vec<&str> = all().collect();
        let hint = hint(key, all());
        return Err(format!("{name} does not take `{}`{hint}; it takes {}", shown(key), known.join(", ")));
    }
    // The message has words of the client.
    serde_json::from_value(Value::Object(words))
        .map_err(|why| format!("{name}: {}", one_line(&why.to_string())))
}

/// A hint `; did you mean ...?`, or nothing.
fn hint<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    // A text much longer than any key is not compared: that would take the square of its length.
    if word.len() > LONGEST_ID {
        return String::new();
    }
    nearest(word, known, Likeness::Edits)
        .map_or_else(String::new, |known| format!("; did you mean `{known}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refusal(text: &str) -> (Option<Id>, ProtocolErrorKind, String) {
        let (id, fault) = parse(text.as_bytes()).unwrap_err();
        (id, fault.kind, fault.text)
    }

    #[test]
    fn requests_read_as_they_are_meant() {
        let text =
            r#"{"version":1,"id":"a","do":"set-policy","name":"a4","settings":{"stable_interval_s":5}}"#;
        let settings = "stable_interval_s = 5".parse().unwrap();
        let command = ControlCommand::SetPolicy { name: "a4".to_owned(), settings };
        let request = Request { version: 1, id: Some(Id::Text("a".to_owned())), command };
        assert_eq!(parse(text.as_bytes()).unwrap(), request);
        assert_eq!(serde_json::to_string(&request).unwrap(), text);
        let plain = |text: &str| parse(text.as_bytes()).unwrap().command;
        assert_eq!(plain(r#"{"version":1,"do":"pause"}"#), ControlCommand::Pause { release: false });
        assert_eq!(
            plain(r#"{"do":"pause","release":true,"version":1}"#),
            ControlCommand::Pause { release: true }
        );
        assert_eq!(plain(r#"{"version":1,"do":"hand-over"}"#), ControlCommand::HandOver { within_s: 60.0 });
        let text = r#"{"version":1,"do":"hand-over","within_s":600}"#;
        assert_eq!(plain(text), ControlCommand::HandOver { within_s: 600.0 });
        for (name, _) in COMMANDS.iter().filter(|(name, _)| *name != "set-policy") {
            plain(&format!(r#"{{"version":1,"do":"{name}"}}"#));
        }
    }

    #[test]
    fn another_version_is_answered_with_ours_before_the_request_is_read() {
        let (id, fault) = parse(br#"{"version":2,"id":5,"ask":"for the moon"}"#).unwrap_err();
        assert_eq!(
            (id, fault.kind, fault.supported),
            (Some(Id::Number(5)), ProtocolErrorKind::Version, vec![1])
        );
        assert_eq!(fault.text, "version 2 is not supported; this daemon supports version 1");
        for text in [r#"{"do":"status"}"#, r#"{"version":"1","do":"status"}"#, r#"{"version":1.5}"#] {
            assert_eq!(refusal(text).1, ProtocolErrorKind::Version, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_what_would_do() {
        let said = |text: &str| refusal(text).2;
        assert_eq!(
            said(r#"{"version":1,"do":"staus"}"#),
            "unknown command `staus`; did you mean `status`?; known are status, tenants, policy, watch, steps, set-policy, \
             pause, resume, reload, hand-over"
        );
        assert_eq!(
            said(r#"{"version":1,"do":"pause","relase":true}"#),
            "pause does not take `relase`; did you mean `release`?; it takes version, id, do, release"
        );
        assert!(said(r#"{"version":1,"do":"set-policy"}"#).contains("missing field `name`"));
        assert!(said(r#"{"version":1,"do":"pause","release":"yes"}"#).contains("expected a boolean"));
        let settings = r#"{"version":1,"do":"set-policy","name":"a4","settings":{"x":null}}"#;
        assert!(said(settings).starts_with("set-policy: invalid type: null"), "{}", said(settings));
        assert!(said(r#"{"version":1,"do":7}"#).starts_with("`do` must be a text"));
        assert!(said(r#"{"version":1,"id":-1,"do":"status"}"#).starts_with("`id` must be"));
        assert!(said("[1]").starts_with("this is not an object"));
        assert!(said("GET / HTTP/1.1").starts_with("this is not JSON"));
        // Nesting is limited, and an unknown command is shortened.
        assert!(said(&"[".repeat(10_000)).starts_with("this is not JSON: recursion limit"));
        let long = format!(r#"{{"version":1,"do":"{}"}}"#, "x".repeat(10_000));
        assert!(said(&long).len() < 300);
    }

    #[test]
    fn a_refusal_of_words_with_line_ends_is_one_line() {
        for text in [
            r#"{"version":1,"do":"pau\nse"}"#,
            r#"{"version":1,"do":"pause","rel\nease":true}"#,
            r#"{"version":1,"do":"pause","release":"a\r\nb"}"#,
            r#"{"version":1,"do":"set-policy","name":"a4","settings":"a\nb"}"#,
        ] {
            let text = refusal(text).2;
            assert!(!text.contains(char::is_control), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_answered_in_a_line(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            if let Err((id, fault)) = parse(&bytes) {
                let text = super::super::line::<()>(id.as_ref(), Err(&fault));
                prop_assert_eq!(text.matches('\n').count(), 1);
            }
        }

        #[test]
        fn requests_with_anything_in_them_are_read_or_refused(
            name in prop_oneof![Just("status".to_owned()), Just("set-policy".to_owned()), Just("pause".to_owned()), ".*"],
            key in prop_oneof![Just("name".to_owned()), Just("settings".to_owned()), Just("id".to_owned()), ".*"],
            value in prop_oneof![
                Just("null".to_owned()), Just("1e999".to_owned()), Just("-1".to_owned()), Just("{}".to_owned()),
                Just("18446744073709551615".to_owned()), Just("[[[]]]".to_owned()),
                any::<f64>().prop_map(|number| format!("{number:e}")), ".*".prop_map(|text| format!("{text:?}")),
            ],
            version in 0..3u8,
        ) {
            let (name, key) = (Value::String(name), Value::String(key));
            let text = format!(r#"{{"version":{version},"do":{name},{key}:{value}}}"#);
            match parse(text.as_bytes()) {
                // A parsed request can be written and parsed again.
                Ok(request) => {
                    prop_assert_eq!(version, 1);
                    let again = serde_json::to_string(&request).unwrap();
                    prop_assert_eq!(parse(again.as_bytes()).unwrap(), request);
                }
                Err((_, fault)) => prop_assert!(!fault.text.is_empty() && fault.text.len() < 2_000, "{}", fault.text),
            }
        }
    }
}
