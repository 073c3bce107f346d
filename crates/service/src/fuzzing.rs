//! One connection to the control socket or to the metrics, in this thread and without waiting, for `fuzz-targets`.
//!
//! A client sends all its bytes, says that it sends no more, and reads what is answered until the daemon closes. Orders are
//! answered as by a daemon that is ending. Must not know what the bytes are.

use crate::metrics;
use crate::socket;
use crate::{DaemonMode, Published, PublishedState, PublishedTotals, ScrapeLimits, SocketLimits, orders};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use waykeeper_control::StepRecord;
use waykeeper_host::{Inventory, LlcGeometry, Platform, Support};
use waykeeper_kernel::system::real;
use waykeeper_units::WayMask;

/// No input has to wait for a limit: the daemon's own would delay the twenty-first request.
const LIMITS: SocketLimits = SocketLimits {
    connections: 64,
    reserved: 8,
    per_uid: 64,
    for_orders: 8,
    idle: Duration::from_secs(60),
    line: Duration::from_secs(10),
    write: Duration::from_secs(10),
    requests_per_s: 1e9,
    burst: 1e9,
    orders: 8,
};

static STATE: LazyLock<Arc<PublishedState>> = LazyLock::new(|| Arc::new(PublishedState::new(published())));

/// A daemon that has just started on a host without tenants.
fn published() -> Published {
    let llc = LlcGeometry::plain(11, 25_952_256, 16);
    let inventory = Inventory {
        platform: Platform { chip: "gold-6140".to_owned(), host: "Linux 6.12".to_owned() },
        cores: Vec::new(),
        llc: Some(llc),
        dca_ways_default: Some(WayMask::from_bits(0x600)),
        dca_ways_switch: Support::Yes,
        devices: Vec::new(),
        ports: Vec::new(),
    };
    Published {
        step: 0,
        at: SystemTime::UNIX_EPOCH,
        started: SystemTime::UNIX_EPOCH,
        at_clock: Duration::ZERO,
        started_clock: Duration::ZERO,
        mode: DaemonMode::Manage,
        paused: None,
        hands_over_until: None,
        policy: "default".to_owned(),
        file_policy: None,
        settings: Arc::default(),
        period_ns: 1_000_000_000,
        inventory: Arc::new(inventory),
        groups: Vec::new(),
        groupings: Vec::new(),
        classes: Vec::new(),
        snapshot: None,
        seen: None,
        record: StepRecord::default(),
        twin: None,
        advice: None,
        last_actions: Vec::new(),
        active_problems: Vec::new(),
        totals: PublishedTotals::default(),
    }
}

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
}

/// What the daemon's socket answers to these bytes.
pub fn converse(bytes: &[u8]) -> Vec<u8> {
    let (sender, _) = orders();
    connected(bytes, |stream| socket::converse(real(), stream, LIMITS, STATE.clone(), sender))
}

/// What the daemon's metrics answer to these bytes.
pub fn scrape(bytes: &[u8]) -> Vec<u8> {
    connected(bytes, |stream| metrics::http::converse(stream, STATE.clone(), ScrapeLimits::default()))
}

/// Runs one connection: a client sends these bytes and reads, the daemon serves.
fn connected<F: Future<Output = ()>>(bytes: &[u8], serve: impl FnOnce(UnixStream) -> F) -> Vec<u8> {
    RUNTIME.with(|runtime| {
        runtime.block_on(async {
            let (mut client, server) = UnixStream::pair().expect("two sockets");
            let talk = async {
                let (mut reading, mut writing) = client.split();
                let send = async {
                    // A daemon that closes before it has read everything breaks the connection.
                    if writing.write_all(bytes).await.is_ok() {
                        let _ = writing.shutdown().await;
                    }
                };
                let mut answer = Vec::new();
                // A connection that is reset: what came before is kept.
                let (_, _) = tokio::join!(send, reading.read_to_end(&mut answer));
                answer
            };
            tokio::join!(talk, serve(server)).0
        })
    })
}
