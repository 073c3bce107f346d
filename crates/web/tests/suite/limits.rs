//! Limits: half-open connections end, hundreds of clients are served, and a stuck viewer delays no other.

use crate::common::{
    PATIENCE, WideSource, ask, connect, live, read, read_until, serve, still, view, view_without_reading,
};
use std::io::Write;
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

#[test]
fn five_hundred_clients_get_pictures_and_one_too_many_gets_503() {
    let limits = WebLimits { connections: 500, ..WebLimits::default() };
    let server = serve(Some(live(1.0)), limits);
    let mut viewers: Vec<TcpStream> = (0..500).map(|_| view(&server, "main")).collect();
    for viewer in &mut viewers {
        let come = read_until(viewer, "event: picture\ndata: {");
        assert!(come.starts_with("HTTP/1.1 200"), "{come}");
    }
    let mut one_more = connect(&server);
    let refused = read(&mut one_more);
    assert_eq!((refused.status, refused.body.as_str()), (503, "too many connections\n"));
    drop(viewers.pop());
    wait_for_a_place(&server);
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
    assert_ne!(ask(&server, "GET", "/", "", "").status, 200, "the stuck viewer has lost its place");
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
