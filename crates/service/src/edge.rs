//! The edge: the one thread on which everything happens that others begin, the control socket and the metrics.
//!
//! tokio, because hundreds of connections that do nothing must cost nothing, and each needs its own deadlines; a single
//! thread of lower priority, because nothing here may take time from the control thread. Must not know what is spoken.

use crate::metrics::{Listen, ScrapeLimits, http};
use crate::socket::{self, Access, Limits, OVERFLOW_ID, Place, PlaceError, listen};
use crate::{Board, Sender};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime;
use tokio::sync::oneshot;

/// How much less the edge matters than others (nice value). Assumption: enough to let the control thread go first.
const NICE: i32 = 5;

/// What is open to others.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct EdgeConfig {
    /// Path of the control socket, if there is to be one.
    pub socket: Option<PathBuf>,
    /// Whose members may read status and metrics sockets; none but root, if none.
    pub group: Option<String>,
    /// Where metrics are served, if they are.
    pub metrics: Option<Listen>,
    /// What anybody may have of the control socket.
    pub limits: Limits,
    /// What anybody may have of the metrics.
    pub scrapes: ScrapeLimits,
}

impl EdgeConfig {
    /// The usual path of the control socket.
    pub const SOCKET: &'static str = "/run/waykeeper/waykeeper.sock";
}

/// Why the edge could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum EdgeError {
    /// A socket in the file system.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// There is no such group.
    #[error("group `{0}` does not exist; create it (groupadd --system {0}), or name another one")]
    NoGroup(String),
    /// That group has everybody in it.
    #[error(
        "group `{0}` cannot be trusted: the kernel shows {OVERFLOW_ID} for all groups it has no name for"
    )]
    Nobodys(String),
    /// An address.
    #[error("cannot serve metrics on {address}: {why}")]
    Address {
        /// The address.
        address: SocketAddr,
        /// Why not.
        why: io::Error,
    },
    /// A thread, or what it needs.
    #[error("cannot serve the control socket: {0}")]
    Thread(#[from] io::Error),
}

/// The open edge; closed when dropped.
#[derive(Debug)]
pub struct Edge {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// Removed after the thread has ended.
    places: Vec<Place>,
    address: Option<SocketAddr>,
}

impl Edge {
    /// Opens what `config` names. When it returns, all of that can be connected to.
    ///
    /// # Errors
    /// If something cannot be opened; then nothing is open.
    pub fn open(config: &EdgeConfig, board: Arc<Board>, sender: Sender) -> Result<Edge, EdgeError> {
        let group = config.group.as_deref().map(group_id).transpose()?;
        let access = Access { own_uid: rustix::process::geteuid().as_raw(), readers_gid: group };
        let mut places = Vec::new();
        let mut listen_at = |path: &Path| -> Result<_, PlaceError> {
            let (listener, place) = listen(path, group)?;
            places.push(place);
            Ok(listener)
        };
        let control = config.socket.as_deref().map(&mut listen_at).transpose()?;
        let metrics = match &config.metrics {
            None => None,
            Some(Listen::Unix(path)) => Some(Bound::Unix(listen_at(path)?)),
            Some(Listen::Tcp(address)) => {
                let failed = |why| EdgeError::Address { address: *address, why };
                Some(Bound::Tcp(http::bind(*address).map_err(failed)?))
            }
        };
        let address = match &metrics {
            Some(Bound::Tcp(listener)) => Some(listener.local_addr()?),
            _ => None,
        };
        let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        // Listeners belong to the runtime's poll from here on; that can fail, so it is done before anybody is told.
        let (control, metrics) = {
            let _inside = runtime.enter();
            let control = control.map(tokio::net::UnixListener::from_std).transpose()?;
            (control, metrics.map(Bound::into_runtime).transpose()?)
        };
        let (limits, scrapes) = (config.limits, config.scrapes);
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("waykeeper-edge".to_owned()).spawn(move || {
            // Without the right to it, or where there is no such thing, it goes on as it is.
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
            runtime.block_on(async {
                let socket = async {
                    if let Some(listener) = control {
                        socket::serve(listener, access, limits, board.clone(), sender).await;
                    }
                };
                let pages = async {
                    if let Some(listener) = metrics {
                        http::serve(listener, board.clone(), scrapes).await;
                    }
                };
                tokio::select! {
                    _ = stopped => {}
                    _ = async { tokio::join!(socket, pages) } => {}
                }
            });
            // Threads that wait for the answer to an order: the control thread answers or ends.
            runtime.shutdown_timeout(Duration::from_secs(1));
        })?;
        Ok(Edge { stop: Some(stop), thread: Some(thread), places, address })
    }

    /// The address that metrics are served on, with the port that was found free if port 0 was asked for.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.address
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            // A panic in it has been told when it happened.
            let _ = thread.join();
        }
        self.places.clear();
    }
}

/// A listener that no runtime has yet.
enum Bound {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

impl Bound {
    fn into_runtime(self) -> io::Result<http::Listener> {
        Ok(match self {
            Bound::Tcp(listener) => http::Listener::Tcp(tokio::net::TcpListener::from_std(listener)?),
            Bound::Unix(listener) => http::Listener::Unix(tokio::net::UnixListener::from_std(listener)?),
        })
    }
}

fn group_id(name: &str) -> Result<u32, EdgeError> {
    let unknown = || EdgeError::NoGroup(name.to_owned());
    let found = nix::unistd::Group::from_name(name).map_err(io::Error::from)?;
    match found.ok_or_else(unknown)?.gid.as_raw() {
        OVERFLOW_ID => Err(EdgeError::Nobodys(name.to_owned())),
        gid => Ok(gid),
    }
}
