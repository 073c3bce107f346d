//! The protocol of the control socket: JSON, one line per request and one per answer (docs/daemon-protocol.md).
//!
//! Both sides use these types: the daemon parses requests strictly (an unknown key is refused with the nearest known
//! one); a client ignores unknown keys of answers, which a later daemon may add. Must not know sockets or permissions.

mod request;
mod status;
mod time;
mod worth;

pub use crate::worst::{Polluter, PolluterKind, Sufferer, Worst};
pub use request::{COMMANDS, ControlCommand, Id, Request, parse};
pub use status::{
    ActionLine, Advice, CauseValue, DaemonStatus, DaemonTotals, HostInfo, IoStatus, LoggedEvent, PolicyState,
    PortStatus, TenantStatus, Tenants, TwinReport,
};
pub use time::plain_time;
pub use waykeeper_control::WorthSource;
pub use worth::{WorthRatio, WorthStatus};

use serde::{Deserialize, Serialize};

/// The protocol's version.
pub const VERSION: u64 = 1;

/// Versions that the daemon accepts.
pub const SUPPORTED: [u64; 1] = [VERSION];

/// The longest request, bytes with its newline: a policy with all its settings takes a few hundred (assumption).
pub const LONGEST_REQUEST: usize = 16 * 1024;

/// The longest answer that a client accepts. A status with 256 tenants is a tenth of this.
pub const LONGEST_ANSWER: usize = 4 * 1024 * 1024;

/// Kind of an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProtocolErrorKind {
    /// The line is not a request.
    BadRequest,
    /// The version is not supported.
    Version,
    /// The line is longer than [`LONGEST_REQUEST`].
    TooLong,
    /// No request, or only part of one, came in time.
    TooSlow,
    /// This user may not send this request.
    NotPermitted,
    /// There are too many connections, or too many orders waiting.
    Busy,
    /// The order is invalid; nothing changed.
    Refused,
    /// The order was carried out in part; the text lists what failed.
    Incomplete,
    /// The daemon is ending.
    Ending,
    /// The order was queued but not answered in time.
    Late,
    /// A kind that this client does not know.
    #[serde(other)]
    Unknown,
}

/// An error.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProtocolError {
    /// Its kind.
    pub kind: ProtocolErrorKind,
    /// One readable line.
    pub text: String,
    /// The supported versions, if the version is wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub supported: Vec<u64>,
}

impl ProtocolError {
    /// An error of this kind.
    pub fn new(kind: ProtocolErrorKind, text: impl Into<String>) -> ProtocolError {
        ProtocolError { kind, text: text.into(), supported: Vec::new() }
    }
}

/// The answer to any request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(try_from = "ReadAnswer<T>", bound(deserialize = "T: Deserialize<'de>"))]
pub struct Answer<T> {
    /// The version of the protocol.
    pub version: u64,
    /// The request's own id, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
    /// The result or the error.
    #[serde(flatten)]
    pub outcome: AnswerOutcome<T>,
}

/// An answer as it is read. serde's `flatten` would read keys that are numbers as texts.
#[derive(Deserialize)]
struct ReadAnswer<T> {
    version: u64,
    id: Option<Id>,
    ok: Option<T>,
    error: Option<ProtocolError>,
}

impl<T> TryFrom<ReadAnswer<T>> for Answer<T> {
    type Error = &'static str;

    fn try_from(read: ReadAnswer<T>) -> Result<Answer<T>, &'static str> {
        let outcome = match (read.ok, read.error) {
            (Some(result), None) => AnswerOutcome::Ok(result),
            (None, Some(error)) => AnswerOutcome::Error(error),
            _ => return Err("an answer has either `ok` or `error`"),
        };
        Ok(Answer { version: read.version, id: read.id, outcome })
    }
}

/// A result or an error.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AnswerOutcome<T> {
    /// The result.
    Ok(T),
    /// The error.
    Error(ProtocolError),
}

/// The result of an order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OrderResult {
    /// A readable line.
    pub text: String,
}

/// An answer as a line with its newline.
pub fn line<T: Serialize>(id: Option<&Id>, outcome: Result<&T, &ProtocolError>) -> String {
    #[derive(Serialize)]
    struct Line<'a, T> {
        version: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'a Id>,
        #[serde(skip_serializing_if = "Option::is_none")]
        ok: Option<&'a T>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a ProtocolError>,
    }
    let line = Line { version: VERSION, id, ok: outcome.ok(), error: outcome.err() };
    // JSON fails only for maps with keys that are not strings, and no answer has one.
    serde_json::to_string(&line).map_or_else(
        |why| {
            let text = format!("the answer cannot be written as JSON: {why}");
            let fault = ProtocolError::new(ProtocolErrorKind::Refused, text);
            let fault = Line::<()> { version: VERSION, id, ok: None, error: Some(&fault) };
            serde_json::to_string(&fault).unwrap_or_default() + "\n"
        },
        |text| text + "\n",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_one_line_and_reads_back() {
        let id = Id::Number(7);
        let done = OrderResult { text: "goes on\nnow".to_owned() };
        let text = line(Some(&id), Ok(&done));
        assert_eq!(text, "{\"version\":1,\"id\":7,\"ok\":{\"text\":\"goes on\\nnow\"}}\n");
        let back: Answer<OrderResult> = serde_json::from_str(&text).unwrap();
        assert_eq!(back, Answer { version: 1, id: Some(id), outcome: AnswerOutcome::Ok(done) });
        let fault = ProtocolError::new(ProtocolErrorKind::Busy, "later");
        let text = line::<OrderResult>(None, Err(&fault));
        assert_eq!(text, "{\"version\":1,\"error\":{\"kind\":\"busy\",\"text\":\"later\"}}\n");
        let back: Answer<OrderResult> = serde_json::from_str(&text).unwrap();
        assert_eq!(back.outcome, AnswerOutcome::Error(fault));
    }

    #[test]
    fn a_client_understands_that_a_later_daemon_says_no_in_a_new_way() {
        let text = r#"{"version":1,"new":3,"error":{"kind":"novel","text":"no","more":1}}"#;
        let back: Answer<OrderResult> = serde_json::from_str(text).unwrap();
        assert_eq!(back.outcome, AnswerOutcome::Error(ProtocolError::new(ProtocolErrorKind::Unknown, "no")));
    }
}
