//! Requests as they should be and as they should not: each gets one answer, and the server serves the next one.

use crate::common::{ask, order, send, still};
use std::sync::atomic::Ordering;
use waykeeper_web::WebLimits;

#[test]
fn the_page_and_its_files_are_served_with_a_strict_policy() {
    let (server, _) = still(WebLimits::default());
    let page = ask(&server, "GET", "/", "", "");
    assert_eq!(page.status, 200);
    assert!(page.body.starts_with("<!doctype html>"));
    for line in [
        "content-security-policy: default-src 'none'; script-src 'self';",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
        "cross-origin-resource-policy: same-origin",
        "cache-control: no-store",
        "content-type: text/html; charset=utf-8",
    ] {
        assert!(page.head.contains(line), "{line} is not in\n{}", page.head);
    }
    assert!(!page.head.contains("access-control-allow"), "no other site may read answers");
    let script = ask(&server, "GET", "/js/main.js", "", "");
    assert!(script.head.contains("content-type: text/javascript"), "{}", script.head);
    let head = ask(&server, "HEAD", "/style.css", "", "");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    let catalogue = ask(&server, "GET", "/api/catalogue", "", "");
    assert!(catalogue.body.contains("\"main\":\"main\"") && catalogue.body.contains("\"a4-hpw-heavy\""));
}

#[test]
fn a_wrong_request_gets_one_line_and_the_server_serves_the_next() {
    let (server, turns) = still(WebLimits::default());
    let long = format!("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: {}\r\n\r\n", "x".repeat(40_000));
    let many: String = (0..200).map(|number| format!("h{number}: x\r\n")).collect();
    let many = format!("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n{many}\r\n");
    let mixed = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\nContent-Length: 9\r\n\r\nabcd";
    let raw: [(&[u8], u16); 8] = [
        (b"\x16\x03\x01\x02\x00\x01\x00", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost 127.0.0.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (mixed, 400),
        (long.as_bytes(), 431),
        (many.as_bytes(), 431),
    ];
    for (bytes, status) in raw {
        let reply = send(&server, bytes);
        assert_eq!(
            reply.status,
            status,
            "{:?}: {reply:?}",
            String::from_utf8_lossy(&bytes[..bytes.len().min(60)])
        );
    }
    let feed = "/api/feeds/main/turn";
    for (method, path, body, status, part) in [
        ("GET", "/etc/passwd", "", 404, "there is no such page"),
        ("GET", "/../Cargo.toml", "", 404, "there is no such page"),
        ("GET", "/js/%2e%2e/main.js", "", 404, "there is no such page"),
        ("GET", "/api/nothing", "", 404, "there is no such page"),
        ("GET", "/api/feeds/other/events", "", 404, "there is no such source"),
        ("GET", feed, "", 405, "the method GET is not accepted here"),
        ("PUT", "/", "", 405, "the method PUT is not accepted here"),
        ("POST", "/api/feeds/other/turn", "{}", 404, "there is no such source"),
        ("POST", feed, "", 400, "not a turn: EOF"),
        ("POST", feed, "[1]", 400, "not a turn: "),
        ("POST", feed, r#"{"do":"explode"}"#, 400, "expected one of `policy`, `pause`"),
        ("POST", feed, r#"{"do":"mask","tenant":"a","mask":"0xzz"}"#, 400, "`0xzz` is not a way mask"),
        ("POST", feed, r#"{"do":"resume"}"#, 400, "the policy is not paused"),
        ("DELETE", "/api/playgrounds/main", "", 404, "there is no such playground"),
    ] {
        let reply = order(&server, method, path, body);
        assert_eq!(reply.status, status, "{method} {path} {body}: {reply:?}");
        assert!(reply.body.contains(part), "{method} {path} {body}: {}", reply.body);
        assert_eq!(reply.body.trim_end().lines().count(), 1, "{}", reply.body);
    }
    let reply = order(&server, "POST", feed, &format!("\"{}\"", "x".repeat(17 << 10)));
    assert_eq!(reply.status, 413, "{reply:?}");
    assert_eq!(turns.load(Ordering::Relaxed), 0, "no wrong request turned anything");
    let reply = order(&server, "POST", feed, r#"{"do":"pause"}"#);
    assert_eq!((reply.status, reply.body.as_str()), (200, r#"{"text":"turn 1"}"#));
}
