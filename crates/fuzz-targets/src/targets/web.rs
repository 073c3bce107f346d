//! A connection to the web page: the bytes of a client through hyper, the guard, the paths, and a virtual server that is
//! turned. `@TOKEN@` in the input is the token of the server.

use crate::one_line;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use waykeeper_view::{LiveScenario, LiveSetup, Source, SourceEvent, SourceInfo, Turn, TurnError};
use waykeeper_web::fuzzing::ServerInMemory;

/// Where an input has the token.
const PLACE: &[u8] = b"@TOKEN@";
/// Seconds of the server's clock per second: a step takes a quarter of an hour, so that no input costs a simulation.
const SPEED: f64 = Turn::SPEED_LEAST;
/// Longest that the feed's thread waits for an event before it looks for turns.
const LOOK: Duration = Duration::from_millis(1);

/// Turns that reached the source.
static TURNS: AtomicU64 = AtomicU64::new(0);

/// A virtual server that counts turns; its time stays as slow as it is.
struct Counted(LiveScenario);

impl Source for Counted {
    fn next(&mut self, wait: Duration) -> Option<SourceEvent> {
        self.0.next(wait.min(LOOK))
    }

    fn turn(&mut self, turn: Turn) -> Result<String, TurnError> {
        TURNS.fetch_add(1, Ordering::SeqCst);
        match turn {
            Turn::Speed { factor } => Turn::check_speed(factor).map(|speed| format!("speed {speed}")),
            other => self.0.turn(other),
        }
    }

    fn info(&self) -> SourceInfo {
        self.0.info()
    }
}

static SERVER: LazyLock<ServerInMemory> = LazyLock::new(|| {
    let scenario = waykeeper_testbed::scenario("gold-6140", waykeeper_testbed::SCENARIO);
    let setup = LiveSetup { speed: SPEED, ..LiveSetup::new(scenario, "default") };
    let source = LiveScenario::start(setup).expect("a virtual server");
    ServerInMemory::new(Box::new(Counted(source))).expect("a server")
});

/// The input with this token.
fn with_token(data: &[u8], token: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), data);
    while let Some(at) = rest.windows(PLACE.len()).position(|part| part == PLACE) {
        bytes.extend_from_slice(&rest[..at]);
        bytes.extend_from_slice(token.as_bytes());
        rest = &rest[at + PLACE.len()..];
    }
    bytes.extend_from_slice(rest);
    bytes
}

/// What every answer has to be.
fn check(request: &[u8], answer: &[u8]) {
    if answer.is_empty() {
        return;
    }
    let text = String::from_utf8_lossy(answer);
    assert!(text.starts_with("HTTP/1."), "{text:?}");
    assert!(!text.to_ascii_lowercase().contains("access-control-allow"), "another site may read {text:?}");
    let Some((head, rest)) = text.split_once("\r\n\r\n") else { return };
    let status: u16 = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let head = head.to_ascii_lowercase();
    // The answer to HEAD has a length and no body.
    if request.trim_ascii_start().starts_with(b"HEAD ") {
        return;
    }
    // hyper's own refusals have no body and none of our headers.
    let Some((_, length)) = head.split_once("content-length: ") else { return };
    let length: usize = length.lines().next().and_then(|length| length.parse().ok()).expect("a length");
    if let Some(body) = rest.get(..length).filter(|body| status >= 400 && !body.is_empty()) {
        assert!(head.contains("content-security-policy"), "{text:?}");
        one_line(&body.trim_end_matches('\n'));
    }
}

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    let token = SERVER.token().text();
    // The last letter is another one.
    let wrong = format!("{}{}", &token[..token.len() - 1], if token.ends_with('0') { '1' } else { '0' });
    let before = TURNS.load(Ordering::SeqCst);
    let check_with = |token: &str| check(data, &SERVER.converse(&with_token(data, token)));
    check_with(&wrong);
    assert_eq!(TURNS.load(Ordering::SeqCst), before, "a turn without the token");
    if data.windows(PLACE.len()).any(|part| part == PLACE) {
        check_with(token);
    }
}
