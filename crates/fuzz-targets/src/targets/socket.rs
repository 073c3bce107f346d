//! A connection to the control socket: the bytes that a client sends, all at once.

use waykeeper_service::protocol::OrderResult;
use waykeeper_service::{fuzzing, protocol::Answer};

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    let said = fuzzing::converse(data);
    let text = String::from_utf8(said).expect("answers are text");
    assert!(text.is_empty() || text.ends_with('\n'), "an answer that is not whole: {text:?}");
    for line in text.lines() {
        let answer: Answer<serde_json::Value> = serde_json::from_str(line).expect("an answer is JSON");
        let _ = serde_json::from_str::<Answer<OrderResult>>(line);
        assert_eq!(answer.version, 1);
    }
}
