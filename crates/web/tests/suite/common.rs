//! A server on loopback and a client that sends what a test says, byte by byte. Must not know what is tested.

use rustix::net;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use waykeeper_machine::Scenario;
use waykeeper_view::{
    Abilities, LiveScenario, LiveSetup, Source, SourceEvent, SourceInfo, SourceKind, Turn, TurnError,
};
use waykeeper_web::{Scenarios, WebLimits, WebListen, WebServer};

/// Longest that a test waits for bytes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A source without steps, which counts turns.
pub struct StillSource(pub Arc<AtomicU64>);

impl Source for StillSource {
    fn next(&mut self, wait: Duration) -> Option<SourceEvent> {
        std::thread::sleep(wait);
        None
    }

    fn turn(&mut self, turn: Turn) -> Result<String, TurnError> {
        match turn {
            Turn::Resume => Err(TurnError::Refused("the policy is not paused".to_owned())),
            _ => Ok(format!("turn {}", self.0.fetch_add(1, Ordering::Relaxed) + 1)),
        }
    }

    fn info(&self) -> SourceInfo {
        SourceInfo {
            kind: SourceKind::Daemon,
            name: "still".to_owned(),
            live: true,
            abilities: Abilities { pause: true, ..Abilities::default() },
            speed: None,
            stopped: false,
            length_s: None,
            place_s: None,
            loads: Vec::new(),
        }
    }
}

/// A source whose steps cost no simulation. Its pictures have so many tenants that one is larger than what the kernel keeps
/// for a viewer with small buffers.
pub struct WideSource {
    info: SourceInfo,
    header: Option<SourceEvent>,
    step: SourceEvent,
}

impl WideSource {
    const TENANTS: u32 = 100;
    /// Time between two steps.
    const PAUSE: Duration = Duration::from_millis(50);

    pub fn new() -> WideSource {
        let mut source = live(1000.0);
        let mut next = || source.next(PATIENCE).expect("an event comes");
        let (header, mut step) = (next(), next());
        assert!(matches!(header, SourceEvent::Begin(_)));
        let SourceEvent::Step(of) = &mut step else { panic!("{step:?}") };
        let tenants = of.groups.as_mut().unwrap().to_mut();
        for number in 0..WideSource::TENANTS {
            let mut more = tenants[0].clone();
            more.id.0 = 1000 + number;
            more.name = format!("tenant-{number}");
            tenants.push(more);
        }
        WideSource { info: source.info(), header: Some(header), step }
    }
}

impl Source for WideSource {
    fn next(&mut self, wait: Duration) -> Option<SourceEvent> {
        if self.header.is_some() {
            return self.header.take();
        }
        if wait < WideSource::PAUSE {
            return None;
        }
        std::thread::sleep(WideSource::PAUSE);
        if let SourceEvent::Step(step) = &mut self.step {
            step.step += 1;
            step.at += WideSource::PAUSE;
        }
        Some(self.step.clone())
    }

    fn turn(&mut self, _: Turn) -> Result<String, TurnError> {
        Err(TurnError::Unsupported("it has no knobs".to_owned()))
    }

    fn info(&self) -> SourceInfo {
        self.info.clone()
    }
}

/// The small scenario of the tests.
pub fn scenario() -> Arc<Scenario> {
    waykeeper_testbed::scenario("gold-6140", waykeeper_testbed::SCENARIO)
}

/// A virtual server of it.
pub fn live(speed: f64) -> Box<dyn Source> {
    let setup = LiveSetup { speed, ..LiveSetup::new(scenario(), "default") };
    Box::new(LiveScenario::start(setup).unwrap())
}

/// A server on a free port.
pub fn serve(main: Option<Box<dyn Source>>, limits: WebLimits) -> WebServer {
    let listen = WebListen { address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), allow_remote: false };
    WebServer::start(listen, limits, main, Scenarios::with_built_in(Some(scenario()))).unwrap()
}

/// A server with a source without steps, and its count of turns.
pub fn still(limits: WebLimits) -> (WebServer, Arc<AtomicU64>) {
    let turns = Arc::new(AtomicU64::new(0));
    (serve(Some(Box::new(StillSource(turns.clone()))), limits), turns)
}

pub fn connect(server: &WebServer) -> TcpStream {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

/// Sends bytes, and reads until the server closes.
pub fn send(server: &WebServer, bytes: &[u8]) -> Reply {
    let mut stream = connect(server);
    // The server may refuse before it has read all.
    let _ = stream.write_all(bytes);
    read(&mut stream)
}

/// Reads until the server closes.
pub fn read(stream: &mut TcpStream) -> Reply {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Reply { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
}

/// A request of a page of this server, with further headers (`name: value\r\n`) and a body.
pub fn ask(server: &WebServer, method: &str, path: &str, headers: &str, body: &str) -> Reply {
    let host = server.address();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n"
    );
    send(server, format!("{head}{headers}\r\n{body}").as_bytes())
}

/// A request with the token and a body of JSON.
pub fn order(server: &WebServer, method: &str, path: &str, body: &str) -> Reply {
    let token = server.token().text();
    let headers = format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n");
    ask(server, method, path, &headers, body)
}

/// A request with the token for the events of the main source; the head of the answer is still to be read.
pub fn view_with_token(server: &WebServer) -> TcpStream {
    let mut stream = connect(server);
    let (host, token) = (server.address(), server.token().text());
    let head = format!("GET /api/feeds/main/events HTTP/1.1\r\nHost: {host}\r\n");
    write!(stream, "{head}Authorization: Bearer {token}\r\n\r\n").unwrap();
    stream
}

/// A viewer of a feed; the head of its answer is still to be read.
pub fn view(server: &WebServer, id: &str) -> TcpStream {
    ask_for_events(connect(server), server, &format!("feeds/{id}/events"))
}

/// The viewer of several feeds: `seen=ID,ID&hidden=ID`.
pub fn view_all(server: &WebServer, feeds: &str) -> TcpStream {
    ask_for_events(connect(server), server, &format!("events?{feeds}"))
}

/// A viewer of a feed with room for 2 KB, who has to read before more is sent.
pub fn view_without_reading(server: &WebServer, id: &str) -> TcpStream {
    let socket = net::socket(net::AddressFamily::INET, net::SocketType::STREAM, None).unwrap();
    // Before it connects: room that was announced is not taken back.
    net::sockopt::set_socket_recv_buffer_size(&socket, 2048).unwrap();
    net::connect(&socket, &server.address()).unwrap();
    ask_for_events(TcpStream::from(socket), server, &format!("feeds/{id}/events"))
}

fn ask_for_events(mut stream: TcpStream, server: &WebServer, path: &str) -> TcpStream {
    let host = server.address();
    write!(stream, "GET /api/{path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    stream
}

/// Reads until `text` has come; returns all that came.
pub fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut all = Vec::new();
    let mut part = [0; 4096];
    loop {
        let count = stream.read(&mut part).unwrap();
        assert!(count > 0, "closed without `{text}` after {}", String::from_utf8_lossy(&all));
        all.extend_from_slice(&part[..count]);
        let come = String::from_utf8_lossy(&all);
        if come.contains(text) {
            return come.into_owned();
        }
    }
}
