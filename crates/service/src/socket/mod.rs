//! The control socket: who may read and who may give orders, with limits per client.
//!
//! `file` creates the file, `access` identifies clients, `limits` has the limits, `connection` answers. Only orders of
//! permitted users reach the control thread, through a short queue. Must not know policies or hosts.

mod access;
mod connection;
mod file;
mod limits;
mod view;

pub use access::{ClientRights, OVERFLOW_ID, Peer, Right};
pub(crate) use file::check as check_file;
pub use file::{SocketFile, SocketFileError, listen};
pub use limits::SocketLimits;
pub(crate) use view::View;

use crate::Sender;
use crate::protocol::{ProtocolError, ProtocolErrorKind, line};
use connection::{Connection, OrdersOnly, SocketState, linger};
use limits::{ConnectionLimiter, OrderPlaces};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;

/// Pause after each accepted connection: a client that connects in a loop takes a few percent of one CPU.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(1);

/// Pause after the system refused a connection (out of files or memory). Assumption: some may be free by then.
pub(crate) const ACCEPT_ERROR_PAUSE: Duration = Duration::from_millis(100);

/// Clients at a time that are refused and may still read why; further ones get the words and no time.
const REFUSED: usize = 64;

/// Connections beyond the limits.
#[derive(Debug, Default)]
struct Beyond {
    orders: OrderPlaces,
    refused: Vec<AbortHandle>,
}

/// Serves the socket until it is dropped.
pub async fn serve(
    listener: UnixListener,
    access: ClientRights,
    limits: SocketLimits,
    view: Arc<View>,
    sender: Sender,
) {
    let (steps, seen) = watch::channel(view.read());
    let orders = Arc::new(Semaphore::new(limits.orders));
    let shared = Arc::new(SocketState { view, sender, orders, limits, steps: seen });
    let limiter = ConnectionLimiter::default();
    tokio::join!(poll_published_state(&shared, &steps), accept_all(&listener, access, &limiter, &shared));
}

/// Polls the published state a few times per period.
async fn poll_published_state(shared: &SocketState, steps: &watch::Sender<Arc<crate::Published>>) {
    loop {
        let now = shared.view.read();
        steps.send_if_modified(|last| {
            let is_new = !Arc::ptr_eq(last, &now);
            *last = now;
            is_new
        });
        tokio::time::sleep(shared.view.pause()).await;
    }
}

/// Serves one connection of a user who may give orders, for `fuzz-targets`. A client that watches gets one status.
#[cfg(feature = "fuzzing")]
pub(crate) async fn converse(
    system: waykeeper_kernel::system::SharedSystem,
    stream: UnixStream,
    limits: SocketLimits,
    published_state: Arc<crate::PublishedState>,
    sender: Sender,
) {
    let (_, steps) = watch::channel(published_state.read());
    let orders = Arc::new(Semaphore::new(limits.orders));
    let view = Arc::new(View::new(system, published_state));
    let shared = SocketState { view, sender, orders, limits, steps };
    // An error affects only this connection.
    let _ = Connection::new(stream, Right::Order, None).serve(&shared).await;
}

async fn accept_all(
    listener: &UnixListener,
    access: ClientRights,
    limiter: &ConnectionLimiter,
    shared: &Arc<SocketState>,
) {
    let mut beyond = Beyond::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => accept(stream, access, limiter, &mut beyond, shared),
            Err(_) => tokio::time::sleep(ACCEPT_ERROR_PAUSE).await,
        }
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

fn accept(
    stream: UnixStream,
    access: ClientRights,
    limiter: &ConnectionLimiter,
    beyond: &mut Beyond,
    shared: &Arc<SocketState>,
) {
    let Ok(peer) = Peer::of(&stream) else { return };
    let right = access.right_of(&peer);
    if right == Right::Nothing {
        let text = "only root and members of the group in the daemon's configuration may connect";
        return beyond.refuse(stream, &ProtocolError::new(ProtocolErrorKind::NotPermitted, text));
    }
    // A process of another namespace has no number here.
    let pid = stream.peer_cred().ok().and_then(|who| who.pid()).filter(|pid| *pid > 0);
    match limiter.admit(peer.uid, pid, right, &shared.limits) {
        Ok(slot) => drop(serve_one(stream, right, None, slot, shared)),
        Err(full)
            if right == Right::Order && beyond.orders.make_room(shared.limits.for_orders, Instant::now()) =>
        {
            let has_order = Arc::new(AtomicBool::new(false));
            let only_orders = OrdersOnly { full, has_order: has_order.clone() };
            let task = serve_one(stream, right, Some(only_orders), (), shared);
            beyond.orders.take(task, has_order, Instant::now());
        }
        Err(full) => beyond.refuse(stream, &ProtocolError::new(ProtocolErrorKind::Busy, full)),
    }
}

/// Serves a connection, which holds `slot`. An error affects only this connection.
fn serve_one(
    stream: UnixStream,
    right: Right,
    only_orders: Option<OrdersOnly>,
    slot: impl Send + 'static,
    shared: &Arc<SocketState>,
) -> AbortHandle {
    let shared = shared.clone();
    let task = tokio::spawn(async move {
        let _slot = slot;
        let _ = Connection::new(stream, right, only_orders).serve(&shared).await;
    });
    task.abort_handle()
}

impl Beyond {
    /// Says why, and closes.
    fn refuse(&mut self, mut stream: UnixStream, fault: &ProtocolError) {
        // The buffer of a new connection is empty: the line fits, or the client has disconnected.
        let _ = stream.try_write(line::<()>(None, Err(fault)).as_bytes());
        self.refused.retain(|task| !task.is_finished());
        if self.refused.len() < REFUSED {
            let task = tokio::spawn(async move { linger(&mut stream).await });
            self.refused.push(task.abort_handle());
        }
    }
}
