//! Checks docs/daemon-protocol.md: its examples parse, and it is complete.

use super::stage::{Client, Stage};
use serde_json::Value;
use waykeeper_service::SocketLimits;
use waykeeper_service::protocol::{
    Answer, AnswerOutcome, COMMANDS, DaemonStatus, OrderResult, PolicyState, ProtocolErrorKind, Tenants,
    parse,
};
use waykeeper_service::recorder::StreamLine;

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/daemon-protocol.md");
    std::fs::read_to_string(path).unwrap()
}

/// The lines of all JSON blocks that begin with `begins`.
fn examples(page: &str, begins: &str) -> Vec<String> {
    let mut inside = false;
    let mut lines = Vec::new();
    for line in page.lines() {
        if line.starts_with("```") {
            inside = line == "```json";
        } else if inside && line.starts_with(begins) {
            lines.push(line[begins.len()..].to_owned());
        }
    }
    lines
}

#[test]
fn every_request_in_the_page_is_one_and_every_command_has_one() {
    let page = page();
    let requests = examples(&page, "> ");
    let mut met = Vec::new();
    for line in &requests {
        let request = parse(line.as_bytes()).unwrap_or_else(|(_, fault)| panic!("{line}: {}", fault.text));
        let text = serde_json::to_value(&request).unwrap();
        met.push(text["do"].as_str().unwrap().to_owned());
    }
    for (name, words) in COMMANDS {
        assert!(met.iter().any(|there| there == name), "no example of {name}");
        assert!(words.iter().all(|word| page.contains(&format!("`{word}`"))), "{name}: {words:?}");
    }
}

#[test]
fn every_answer_in_the_page_reads_as_one_and_every_kind_of_no_is_explained() {
    let page = page();
    let answers = examples(&page, "< ");
    assert!(answers.len() >= 8, "{answers:?}");
    for line in &answers {
        let answer: Answer<Value> = serde_json::from_str(line).unwrap_or_else(|why| panic!("{line}: {why}"));
        let AnswerOutcome::Ok(value) = answer.outcome else { continue };
        let known = serde_json::from_value::<DaemonStatus>(value.clone()).is_ok()
            || serde_json::from_value::<Tenants>(value.clone()).is_ok()
            || serde_json::from_value::<PolicyState>(value.clone()).is_ok()
            || serde_json::from_value::<StreamLine<'static>>(value.clone()).is_ok()
            || serde_json::from_value::<OrderResult>(value).is_ok();
        assert!(known, "{line}");
    }
    use ProtocolErrorKind::{
        BadRequest, Busy, Ending, Incomplete, Late, NotPermitted, Refused, TooLong, TooSlow, Version,
    };
    for kind in [BadRequest, Version, TooLong, TooSlow, NotPermitted, Busy, Refused, Incomplete, Ending, Late]
    {
        let name = serde_json::to_value(kind).unwrap();
        assert!(page.contains(&format!("| `{}` |", name.as_str().unwrap())), "{kind:?} is not explained");
    }
}

#[test]
fn every_key_of_a_status_is_explained() {
    let page = page();
    let stage = Stage::new(SocketLimits::default(), None);
    let status = Client::at(&stage.socket()).ask(r#"{"version":1,"do":"status"}"#);
    let mut missing = Vec::new();
    let mut all = vec![status["ok"].clone()];
    while let Some(value) = all.pop() {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    if !page.contains(&format!("`{key}`")) {
                        missing.push(key.clone());
                    }
                    // The keys of these maps are names of policies, actions, reasons and tenants.
                    let is_map = ["actions", "samples_dropped", "tenants"].contains(&key.as_str());
                    if !(is_map && value.is_object()) {
                        all.push(value);
                    }
                }
            }
            Value::Array(list) => all.extend(list),
            _ => {}
        }
    }
    assert!(missing.is_empty(), "not explained: {missing:?}");
}
