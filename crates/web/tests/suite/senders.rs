//! Who may turn something: only a request with the token, of this page, to this server's own name.

use crate::common::{ask, order, still};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;
use waykeeper_web::{Scenarios, WebError, WebLimits, WebListen, WebServer};

const TURN: &str = "/api/feeds/main/turn";
const PAUSE: &str = r#"{"do":"pause"}"#;

#[test]
fn a_turn_needs_the_token_and_json() {
    let (server, turns) = still(WebLimits::default());
    let json = "Content-Type: application/json\r\n";
    let token = server.token().text().to_owned();
    let right = format!("Authorization: Bearer {token}\r\n");
    let wrong = format!("Authorization: Bearer {}0\r\n", &token[..token.len() - 1]);
    let wrong = if wrong == right { wrong.replace("0\r\n", "1\r\n") } else { wrong };
    for (headers, status) in [
        (json.to_owned(), 401),
        (format!("{json}{wrong}"), 401),
        (format!("{json}Authorization: Basic {token}\r\n"), 401),
        (format!("{json}Cookie: token={token}\r\n"), 401),
        (right.clone(), 415),
        (format!("{right}Content-Type: text/plain\r\n"), 415),
        (format!("{right}Content-Type: application/x-www-form-urlencoded\r\n"), 415),
    ] {
        let reply = ask(&server, "POST", TURN, &headers, PAUSE);
        assert_eq!(reply.status, status, "{headers}: {reply:?}");
        assert_eq!(reply.head.contains("www-authenticate: bearer"), status == 401);
    }
    assert_eq!(ask(&server, "POST", "/api/playgrounds", json, "{}").status, 401);
    assert_eq!(ask(&server, "DELETE", "/api/playgrounds/1", "", "").status, 401);
    assert_eq!(turns.load(Ordering::Relaxed), 0);
    assert_eq!(order(&server, "POST", TURN, PAUSE).status, 200);
    assert_eq!(turns.load(Ordering::Relaxed), 1);
}

#[test]
fn other_sites_and_other_names_are_refused_even_with_the_token() {
    let (server, turns) = still(WebLimits::default());
    let token =
        format!("Authorization: Bearer {}\r\nContent-Type: application/json\r\n", server.token().text());
    for header in
        ["Origin: http://attacker.example\r\n", "Origin: null\r\n", "Sec-Fetch-Site: cross-site\r\n"]
    {
        for (method, path) in [("POST", TURN), ("GET", "/api/catalogue"), ("GET", "/api/feeds/main/events")] {
            let reply = ask(&server, method, path, &format!("{token}{header}"), PAUSE);
            assert_eq!(reply.status, 403, "{method} {path} {header}: {reply:?}");
        }
        let preflight = ask(&server, "OPTIONS", TURN, header, "");
        assert!(preflight.status >= 400 && !preflight.head.contains("access-control-allow"), "{preflight:?}");
    }
    // DNS rebinding: the attacker's name leads to 127.0.0.1, and the browser sends that name.
    let length = PAUSE.len();
    let rebound = format!(
        "POST {TURN} HTTP/1.1\r\nHost: attacker.example:{}\r\nOrigin: http://attacker.example:{}\r\n\
         Connection: close\r\n{token}Content-Length: {length}\r\n\r\n{PAUSE}",
        server.address().port(),
        server.address().port()
    );
    let reply = crate::common::send(&server, rebound.as_bytes());
    assert_eq!(reply.status, 421, "{reply:?}");
    assert!(reply.body.contains("open the page by 127.0.0.1 or localhost"), "{}", reply.body);
    assert_eq!(turns.load(Ordering::Relaxed), 0);
    let own = format!("{token}Origin: http://{}\r\nSec-Fetch-Site: same-origin\r\n", server.address());
    assert_eq!(ask(&server, "POST", TURN, &own, PAUSE).status, 200);
}

#[test]
fn other_machines_may_connect_only_if_the_user_says_so() {
    let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let start = |allow_remote| {
        let listen = WebListen { address: everywhere, allow_remote };
        WebServer::start(listen, WebLimits::default(), None, Scenarios::default())
    };
    let refused = start(false).unwrap_err();
    assert!(matches!(refused, WebError::NotLoopback(_)), "{refused}");
    assert!(refused.to_string().contains("--allow-remote"), "{refused}");
    let server = start(true).unwrap();
    assert!(server.link().starts_with("http://127.0.0.1:"), "{}", server.link());
    let taken = WebListen { address: ([127, 0, 0, 1], server.address().port()).into(), allow_remote: false };
    let taken = WebServer::start(taken, WebLimits::default(), None, Scenarios::default()).unwrap_err();
    assert!(matches!(taken, WebError::Listen { .. }), "{taken}");
}
