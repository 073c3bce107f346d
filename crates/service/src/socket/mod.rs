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
pub use file::{SocketFile, SocketFileError, listen};
pub use limits::SocketLimits;
pub(crate) use view::View;

use crate::Sender;
use crate::protocol::{ProtocolError, ProtocolErrorKind, line};
use connection::{Connection, SocketState};
use limits::ConnectionLimiter;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};

/// Pause after each accepted connection: a client that connects in a loop takes a few percent of one CPU.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(1);

/// Pause after the system refused a connection (out of files or memory). Assumption: some may be free by then.
pub(crate) const ACCEPT_ERROR_PAUSE: Duration = Duration::from_millis(100);

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
    let _ = Connection::new(stream, Right::Order).serve(&shared).await;
}

async fn accept_all(
    listener: &UnixListener,
    access: ClientRights,
    limiter: &ConnectionLimiter,
    shared: &Arc<SocketState>,
) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => accept(stream, access, limiter, shared),
            Err(_) => tokio::time::sleep(ACCEPT_ERROR_PAUSE).await,
        }
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

fn accept(stream: UnixStream, access: ClientRights, limiter: &ConnectionLimiter, shared: &Arc<SocketState>) {
    let Ok(peer) = Peer::of(&stream) else { return };
    let right = access.right_of(&peer);
    let admitted = match right {
        Right::Nothing => {
            let text = "only root and members of the group in the daemon's configuration may connect";
            Err(ProtocolError::new(ProtocolErrorKind::NotPermitted, text))
        }
        _ => limiter
            .admit(peer.uid, right, &shared.limits)
            .map_err(|text| ProtocolError::new(ProtocolErrorKind::Busy, text)),
    };
    match admitted {
        Ok(slot) => {
            let shared = shared.clone();
            tokio::spawn(async move {
                let _slot = slot;
                // An error affects only this connection.
                let _ = Connection::new(stream, right).serve(&shared).await;
            });
        }
        Err(fault) => {
            // The buffer of a new connection is empty: the line fits, or the client has disconnected.
            let _ = stream.try_write(line::<()>(None, Err(&fault)).as_bytes());
        }
    }
}
