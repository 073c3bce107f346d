//! Limits: half-open connections end, hundreds of clients are served, a stuck viewer delays no other, and floods of
//! strangers leave places for others.

use crate::common::{
    PATIENCE, WideSource, ask, connect, live, order, read, read_until, serve, still, view, view_with_token,
    view_without_reading,
};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use waykeeper_web::{WebLimits, WebServer};

/// Waits until a client is served that was one too many.
fn wait_for_a_place(server: &WebServer) {
    let start = Instant::now();
    while ask(server, "GET", "/", "", "").status != 200 {
        assert!(start.elapsed() < PATIENCE, "a place that is left is not given again");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn half_open_connections_end_and_others_are_served_meanwhile() {
    let limits = WebLimits { head: Duration::from_millis(400), ..WebLimits::default() };
    let (server, _) = still(limits);
    let host = server.address();
    let token = server.token().text().to_owned();
    let begins = [
        String::new(),
        "GET / HT".to_owned(),
        format!("GET / HTTP/1.1\r\nHost: {host}\r\nX:"),
        format!(
            "POST /api/feeds/main/turn HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{"
        ),
        // A whole request, and then nothing on a connection that is kept.
        format!("GET /icon.svg HTTP/1.1\r\nHost: {host}\r\n\r\n"),
    ];
    for begin in &begins {
        let mut stream = connect(&server);
        stream.write_all(begin.as_bytes()).unwrap();
        let start = Instant::now();
        let other = ask(&server, "GET", "/", "", "");
        assert_eq!(other.status, 200);
        let _ = read(&mut stream);
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(10), "{begin:?}: {took:?}");
    }
}

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);

/// Half a request.
const HALF: &str = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX:";

#[test]
fn five_hundred_clients_get_pictures_and_one_too_many_gets_503() {
    let limits = WebLimits { connections: 520, streams: 500, ..WebLimits::default() };
    let server = serve(Some(live(1.0)), limits);
    let mut viewers: Vec<TcpStream> = (0..500).map(|_| view(&server, "main")).collect();
    for viewer in &mut viewers {
        let come = read_until(viewer, "event: picture\ndata: {");
        assert!(come.starts_with("HTTP/1.1 200"), "{come}");
    }
    let refused = ask(&server, "GET", "/api/feeds/main/events", "", "");
    let why = "too many streams of events are sent at the same time; close a page, or open the address with the token\n";
    assert_eq!((refused.status, refused.body.as_str()), (503, why));
    // The page and its other requests are served, and who has the token has a stream too.
    assert_eq!(ask(&server, "GET", "/", "", "").status, 200);
    let come = read_until(&mut view_with_token(&server), "event: picture");
    assert!(come.starts_with("HTTP/1.1 200"), "{come}");
    drop(viewers.pop());
    let start = Instant::now();
    while !read_until(&mut view(&server, "main"), "\r\n\r\n").starts_with("HTTP/1.1 200") {
        assert!(start.elapsed() < PATIENCE, "a stream that ended keeps its place");
    }
}

#[test]
fn silent_strangers_make_room_and_who_is_answered_stays() {
    // With a time for the head that does not end during the test.
    let limits = WebLimits { connections: 20, head: LONG, ..WebLimits::default() };
    let (server, turns) = still(limits);
    let mut viewer = view(&server, "main");
    read_until(&mut viewer, "\r\n\r\n");
    // A holder whose connection is kept.
    let mut holder = connect(&server);
    let (host, token) = (server.address(), server.token().text());
    let pause = format!(
        "POST /api/feeds/main/turn HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: 14\r\n\r\n{{\"do\":\"pause\"}}"
    );
    holder.write_all(pause.as_bytes()).unwrap();
    read_until(&mut holder, "turn 1");
    for number in 1..=3 {
        let mut silent = Vec::new();
        for index in 0..30 {
            let mut stranger = connect(&server);
            if index % 2 == 0 {
                stranger.write_all(HALF.as_bytes()).unwrap();
            }
            silent.push(stranger);
        }
        assert_eq!(ask(&server, "GET", "/", "", "").status, 200);
        assert_eq!(order(&server, "POST", "/api/feeds/main/turn", r#"{"do":"pause"}"#).status, 200);
        holder.write_all(pause.as_bytes()).unwrap();
        read_until(&mut holder, &format!("turn {}", 2 * number + 1));
    }
    assert_eq!(turns.load(std::sync::atomic::Ordering::Relaxed), 7);
    read_until(&mut viewer, "event: alive");
}

#[test]
fn streams_of_strangers_leave_places_for_requests_and_for_holders_of_the_token() {
    let limits = WebLimits { streams: 4, holders_streams: 1, ..WebLimits::default() };
    let server = serve(Some(live(4.0)), limits);
    let mut strangers: Vec<TcpStream> = (0..60).map(|_| view(&server, "main")).collect();
    let heads: Vec<String> = strangers.iter_mut().map(|one| read_until(one, "\r\n\r\n")).collect();
    let count = |status: &str| heads.iter().filter(|head| head.starts_with(status)).count();
    assert_eq!((count("HTTP/1.1 200"), count("HTTP/1.1 503")), (4, 56));
    assert_eq!(ask(&server, "GET", "/js/main.js", "", "").status, 200);
    let history = ask(&server, "GET", "/api/feeds/main/history", "", "");
    assert_eq!(history.status, 200, "{history:?}");
    let mut holder = view_with_token(&server);
    let come = read_until(&mut holder, "event: picture");
    assert!(come.starts_with("HTTP/1.1 200"), "{come}");
}

#[test]
fn who_is_refused_is_refused_after_the_request_and_can_read_why() {
    let limits = WebLimits { connections: 1, ..WebLimits::default() };
    let (server, _) = still(limits);
    let mut viewer = view(&server, "main");
    read_until(&mut viewer, "\r\n\r\n");
    let mut refused = connect(&server);
    refused.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let early = refused.read(&mut [0; 1]);
    assert!(early.is_err(), "an answer before the request: {early:?}");
    refused.set_read_timeout(Some(PATIENCE)).unwrap();
    let host = server.address();
    // The client has not finished when the answer is there.
    write!(refused, "POST /api/playgrounds HTTP/1.1\r\nHost: {host}\r\nContent-Length: 300000\r\n\r\n")
        .unwrap();
    let come = read_until(&mut refused, "too many connections; the page tries again by itself\n");
    assert!(come.starts_with("HTTP/1.1 503"), "{come}");
    for _ in 0..3 {
        refused.write_all(&vec![b'x'; 100_000]).unwrap();
    }
    let mut rest = Vec::new();
    assert_eq!(refused.read_to_end(&mut rest).unwrap(), 0, "closed, and not reset");
}

#[test]
fn a_body_that_is_too_long_is_taken_and_its_sender_can_read_why() {
    let (server, _) = still(WebLimits::default());
    let mut stream = connect(&server);
    let (host, token) = (server.address(), server.token().text());
    write!(
        stream,
        "POST /api/feeds/main/turn HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: 400000\r\n\r\n"
    )
    .unwrap();
    for _ in 0..4 {
        stream.write_all(&vec![b' '; 100_000]).unwrap();
    }
    assert_eq!(read(&mut stream).status, 413);
}

#[test]
fn a_stuck_viewer_delays_no_other() {
    let limits = WebLimits { connections: 2, send_buffer: 4 << 10, ..WebLimits::default() };
    let server = serve(Some(Box::new(WideSource::new())), limits);
    let stuck = view_without_reading(&server, "main");
    let mut viewer = view(&server, "main");
    // The first picture fills all buffers of the stuck viewer. The limit is the time of a read.
    for _ in 0..10 {
        read_until(&mut viewer, "event: picture");
    }
    assert_eq!(ask(&server, "GET", "/", "", "").status, 503, "the stuck viewer has lost its place");
    drop(stuck);
    wait_for_a_place(&server);
}

#[test]
fn a_stuck_viewer_loses_its_place_after_the_time_that_it_may_take_nothing() {
    let stall = Duration::from_millis(500);
    let limits = WebLimits { connections: 1, stall, send_buffer: 4 << 10, ..WebLimits::default() };
    let server = serve(Some(Box::new(WideSource::new())), limits);
    let start = Instant::now();
    let stuck = view_without_reading(&server, "main");
    wait_for_a_place(&server);
    assert!(start.elapsed() >= stall, "it was ended too soon");
    drop(stuck);
}
