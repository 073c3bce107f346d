//! The control step beside viewers that read nothing, against the same step without a viewer, in alternation; and a
//! daemon to which viewers connect whose cost is measured (`scripts/view_cost.py`).
//!
//! Ten viewers ask the control socket for steps and never read; ten more ask a web page of the same daemon for events and
//! never read. Must not know what a step contains.

use crate::life;
use hdrhistogram::Histogram;
use rustix::net;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use waykeeper_control::{ControlConfig, Loop};
use waykeeper_host::Host;
use waykeeper_linux_host::LinuxHostOptions;
use waykeeper_service::engine::ManagedHost;
use waykeeper_service::linux::ManagedLinuxHost;
use waykeeper_service::protocol::ControlCommand;
use waykeeper_service::{
    Client, DaemonMode, Published, PublishedState, PublishedTotals, Servers, ServersConfig, SocketLimits,
    orders,
};
use waykeeper_view::DaemonSource;
use waykeeper_web::{Scenarios, WebLimits, WebListen, WebServer};

const POLICY: &str = "a4";
/// Viewers on the socket, and as many on the page.
const VIEWERS: usize = 10;
/// Rounds of both, steps in a round, and the pause between two steps: fifty times as many steps as a daemon takes.
const ROUNDS: usize = 3;
const STEPS: usize = 100;
const PAUSE: Duration = Duration::from_millis(20);
/// Steps before the measured ones of a round: the viewers' buffers are full after them.
const WARM: usize = 40;
/// Bytes that the kernel keeps for a viewer of the page; it doubles this number.
const RECEIVED: usize = 2048;
/// Longer than a measurement: no viewer is ended for what it does not read.
const PATIENCE: Duration = Duration::from_secs(3600);

/// What the control thread publishes of a step.
fn published<H: Host>(
    looping: &mut Loop<'_, H>,
    step: u64,
    began: SystemTime,
    period: Duration,
) -> Published {
    let now = SystemTime::now();
    Published {
        step,
        at: now,
        started: began,
        at_clock: now.duration_since(began).unwrap_or_default(),
        started_clock: Duration::ZERO,
        mode: DaemonMode::Manage,
        paused: None,
        hands_over_until: None,
        policy: looping.policy().name().to_owned(),
        file_policy: None,
        settings: Arc::default(),
        period_ns: period.as_nanos() as u64,
        inventory: Arc::new(looping.host().inventory().clone()),
        groups: looping.host().workloads(),
        groupings: Vec::new(),
        classes: Vec::new(),
        snapshot: None,
        seen: looping.seen().cloned(),
        record: looping.record().clone(),
        twin: None,
        advice: None,
        last_actions: Vec::new(),
        active_problems: Vec::new(),
        totals: PublishedTotals::default(),
    }
}

/// A daemon's servers with room for many viewers of one user.
fn serve(socket: &Path, state: &Arc<PublishedState>) -> (Servers, waykeeper_service::Orders) {
    let (sender, orders) = orders();
    let limits = SocketLimits { per_uid: 64, write: PATIENCE, ..SocketLimits::default() };
    let config = ServersConfig { socket: Some(socket.to_owned()), limits, ..ServersConfig::default() };
    let servers = Servers::open(&config, state.clone(), sender).unwrap_or_else(|error| panic!("{error}"));
    (servers, orders)
}

/// Viewers that ask and take nothing, and the page that half of them look at. They leave when this is dropped.
struct StuckViewers {
    _on_socket: Vec<Client>,
    _on_page: Vec<TcpStream>,
    _page: WebServer,
}

impl StuckViewers {
    fn on(socket: &Path) -> StuckViewers {
        let asked = |_| {
            let mut client = Client::connect(socket, Client::TIMEOUT).expect("a daemon");
            client.send(ControlCommand::Steps).expect("asked");
            client
        };
        let listen = WebListen { address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), allow_remote: false };
        let source = DaemonSource::connect(socket).expect("a daemon");
        let limits = WebLimits { stall: PATIENCE, ..WebLimits::default() };
        let page = WebServer::start(listen, limits, Some(Box::new(source)), Scenarios::default());
        let page = page.expect("a page");
        let address = page.address();
        let looks = |_| {
            let socket =
                net::socket(net::AddressFamily::INET, net::SocketType::STREAM, None).expect("a socket");
            // Before it connects: room that was announced is not taken back.
            net::sockopt::set_socket_recv_buffer_size(&socket, RECEIVED).expect("a size");
            net::connect(&socket, &address).expect("a page");
            let mut stream = TcpStream::from(socket);
            write!(stream, "GET /api/feeds/main/events HTTP/1.1\r\nHost: {address}\r\n\r\n").expect("asked");
            stream
        };
        StuckViewers {
            _on_socket: (0..VIEWERS).map(asked).collect(),
            _on_page: (0..VIEWERS).map(looks).collect(),
            _page: page,
        }
    }
}

/// Measures both. `pass` advances the host's clock by nanoseconds.
pub fn beside_and_alone(folder: &Path, options: &LinuxHostOptions, pass: impl Fn(u64)) {
    let config = life::loaded(folder, options, POLICY);
    let socket = folder.join("viewers");
    let mut times = [(); 2].map(|()| Histogram::<u64>::new(3).expect("three digits"));
    for round in 0..2 * ROUNDS {
        let with = round % 2 == 1;
        let mut host = ManagedLinuxHost::open(&config).unwrap_or_else(|error| panic!("{error}"));
        host.refresh();
        let policy = waykeeper_policy::build(POLICY, &toml::Table::new()).expect("a policy");
        let mut looping = Loop::start(&mut host, policy, ControlConfig::every(1)).expect("a loop");
        let began = SystemTime::now();
        let state = Arc::new(PublishedState::new(published(&mut looping, 0, began, PAUSE)));
        let servers = serve(&socket, &state);
        let viewers = with.then(|| StuckViewers::on(&socket));
        let mut passed = Instant::now();
        for step in 1..=(WARM + STEPS) {
            std::thread::sleep(PAUSE);
            let now = Instant::now();
            pass((now - passed).as_nanos() as u64);
            passed = now;
            let begun = Instant::now();
            looping.host().refresh();
            looping.step().expect("a step");
            state.replace(published(&mut looping, step as u64, began, PAUSE));
            if step > WARM {
                times[usize::from(with)]
                    .record(begun.elapsed().as_nanos() as u64)
                    .expect("it grows by itself");
            }
        }
        drop((viewers, servers, looping));
        host.restore().unwrap_or_else(|left| panic!("{left:?}"));
    }
    let us = |ns: u64| ns as f64 / 1e3;
    for (name, quantile) in [("median", 0.5), ("p99", 0.99), ("worst", 1.0)] {
        let [alone, beside] = times.each_ref().map(|times| us(times.value_at_quantile(quantile)));
        println!(
            "{:<28}{name} of a step: {beside:.0} us, without {alone:.0} us, ratio {:.2}",
            "beside stuck viewers",
            beside / alone
        );
    }
}

/// Serves the steps of a host at a socket, one a second, until the program is ended.
pub fn daemon<H: Host>(socket: &Path, host: &mut H) {
    let period = Duration::from_secs(1);
    let policy = waykeeper_policy::build(POLICY, &toml::Table::new()).expect("a policy");
    let mut looping =
        Loop::start(host, policy, ControlConfig::every(period.as_nanos() as u64)).expect("a loop");
    let began = SystemTime::now();
    let state = Arc::new(PublishedState::new(published(&mut looping, 0, began, period)));
    let _servers = serve(socket, &state);
    for step in 1.. {
        let due = Instant::now() + period;
        looping.step().expect("a step");
        state.replace(published(&mut looping, step, began, period));
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}
