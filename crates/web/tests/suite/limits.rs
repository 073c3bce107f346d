//! Limits: half-open connections end, hundreds of clients are served, and a stuck viewer delays no other.

use crate::common::{PATIENCE, connect, live, read, read_until, serve, still, view};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};
use waykeeper_web::WebLimits;

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
        let other = crate::common::ask(&server, "GET", "/", "", "");
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
    let start = Instant::now();
    while crate::common::ask(&server, "GET", "/", "", "").status != 200 {
        assert!(start.elapsed() < PATIENCE, "a place that is left is not given again");
    }
}

#[test]
fn a_stuck_viewer_delays_no_other_and_loses_its_place() {
    let stall = Duration::from_secs(1);
    let limits = WebLimits { connections: 2, stall, send_buffer: 4 << 10, ..WebLimits::default() };
    let server = serve(Some(live(20.0)), limits);
    let stuck = view(&server, "main");
    set_socket_recv_buffer_size(&stuck, 2048).unwrap();
    let mut viewer = view(&server, "main");
    read_until(&mut viewer, "event: picture");
    let mut worst = Duration::ZERO;
    let start = Instant::now();
    // The other viewer gets pictures, for as long as the stuck one fills its buffers and then keeps its place.
    while crate::common::ask(&server, "GET", "/", "", "").status != 200 {
        assert!(start.elapsed() < PATIENCE, "the stuck viewer keeps its place");
        let before = Instant::now();
        read_until(&mut viewer, "event: picture");
        worst = worst.max(before.elapsed());
    }
    assert!(start.elapsed() > stall, "the stuck viewer was ended too soon");
    assert!(worst < 5 * stall, "a picture came after {worst:?}");
    drop(stuck);
}
