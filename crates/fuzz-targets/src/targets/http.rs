//! A connection to the metrics: the bytes of a request, all at once, through hyper and our handler.

use waykeeper_service::fuzzing;

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    let answer = fuzzing::scrape(data);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{:?}", String::from_utf8_lossy(&answer));
}
