//! Requests to the control socket, and the answers that a client reads.

use crate::one_line;
use waykeeper_service::printable;
use waykeeper_service::protocol::{
    Answer, AnswerOutcome, DaemonStatus, OrderResult, PolicyState, Tenants, line, parse,
};

fn answer<T: serde::de::DeserializeOwned + serde::Serialize + PartialEq + std::fmt::Debug>(data: &[u8]) {
    let Ok(answer) = serde_json::from_slice::<Answer<T>>(data) else { return };
    match &answer.outcome {
        AnswerOutcome::Ok(value) => {
            let written = line(answer.id.as_ref(), Ok(value));
            let again: Answer<T> = serde_json::from_str(&written).expect("an answer that we wrote");
            assert_eq!((again.id, again.outcome), (answer.id, answer.outcome), "{written}");
        }
        AnswerOutcome::Error(fault) => assert!(!printable(&fault.text).chars().any(char::is_control)),
    }
}

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    match parse(data) {
        Ok(request) => {
            let written = serde_json::to_string(&request).expect("a request as JSON");
            assert_eq!(parse(written.as_bytes()).ok(), Some(request), "{written}");
        }
        Err((id, fault)) => {
            one_line(&fault.text);
            let written = line::<()>(id.as_ref(), Err(&fault));
            assert!(written.ends_with('\n') && written.trim_end_matches('\n').find('\n').is_none());
        }
    }
    answer::<DaemonStatus>(data);
    answer::<Tenants>(data);
    answer::<PolicyState>(data);
    answer::<OrderResult>(data);
}
