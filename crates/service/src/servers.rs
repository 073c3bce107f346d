//! The thread that serves the control socket and the metrics.
//!
//! Uses tokio because hundreds of idle connections must cost nothing and each needs its own deadlines; one thread of
//! lower priority, so that it takes no time from the control thread. Must not know the protocols.

use crate::metrics::{Listen, ScrapeLimits, http};
use crate::socket::{self, ClientRights, OVERFLOW_ID, SocketFile, SocketFileError, SocketLimits, listen};
use crate::{PublishedState, Sender};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime;
use tokio::sync::oneshot;

/// Nice value of the thread. Assumption: enough that the control thread runs first.
const NICE: i32 = 5;

/// What is served, and where.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ServersConfig {
    /// Path of the control socket, if one is wanted.
    pub socket: Option<PathBuf>,
    /// Group whose members may connect to both sockets; with `None` only root.
    pub group: Option<String>,
    /// Where metrics are served; with `None` nowhere.
    pub metrics: Option<Listen>,
    /// Limits for clients of the control socket.
    pub limits: SocketLimits,
    /// Limits for clients of the metrics.
    pub scrapes: ScrapeLimits,
}

impl ServersConfig {
    /// The usual path of the control socket.
    pub const SOCKET: &'static str = "/run/waykeeper/waykeeper.sock";
}

/// Why socket or metrics could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ServersError {
    /// A socket in the file system failed.
    #[error(transparent)]
    SocketFile(#[from] SocketFileError),
    /// The group does not exist.
    #[error("group `{0}` does not exist; create it (groupadd --system {0}), or name another one")]
    NoGroup(String),
    /// Its id is the kernel's overflow id, which any group without a name maps to.
    #[error(
        "group `{0}` cannot be trusted: the kernel shows {OVERFLOW_ID} for all groups it has no name for"
    )]
    OverflowId(String),
    /// An address could not be bound.
    #[error("cannot serve metrics on {address}: {why}")]
    Address {
        /// The address.
        address: SocketAddr,
        /// Why.
        why: io::Error,
    },
    /// The thread, or a resource it needs, failed.
    #[error("cannot serve the control socket: {0}")]
    Thread(#[from] io::Error),
}

/// The running thread; dropping it closes everything.
#[derive(Debug)]
pub struct Servers {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// Removed after the thread has ended.
    socket_files: Vec<SocketFile>,
    address: Option<SocketAddr>,
}

impl Servers {
    /// Opens what `config` names. When it returns, clients can connect.
    ///
    /// # Errors
    /// If one of them cannot be opened; then none is.
    pub fn open(
        config: &ServersConfig,
        published_state: Arc<PublishedState>,
        sender: Sender,
    ) -> Result<Servers, ServersError> {
        let group = config.group.as_deref().map(group_id).transpose()?;
        let access = ClientRights { own_uid: rustix::process::geteuid().as_raw(), readers_gid: group };
        let mut socket_files = Vec::new();
        let mut listen_at = |path: &Path| -> Result<_, SocketFileError> {
            let (listener, socket_file) = listen(path, group)?;
            socket_files.push(socket_file);
            Ok(listener)
        };
        let control = config.socket.as_deref().map(&mut listen_at).transpose()?;
        let metrics = match &config.metrics {
            None => None,
            Some(Listen::Unix(path)) => Some(Bound::Unix(listen_at(path)?)),
            Some(Listen::Tcp(address)) => {
                let failed = |why| ServersError::Address { address: *address, why };
                Some(Bound::Tcp(http::bind(*address).map_err(failed)?))
            }
        };
        let address = match &metrics {
            Some(Bound::Tcp(listener)) => Some(listener.local_addr()?),
            _ => None,
        };
        let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        // The runtime registers the listeners; that can fail, so it is done before the thread starts.
        let (control, metrics) = {
            let _inside = runtime.enter();
            let control = control.map(tokio::net::UnixListener::from_std).transpose()?;
            (control, metrics.map(Bound::into_runtime).transpose()?)
        };
        let (limits, scrapes) = (config.limits, config.scrapes);
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("waykeeper-edge".to_owned()).spawn(move || {
            // Without permission the priority stays as it is.
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
            runtime.block_on(async {
                let socket = async {
                    if let Some(listener) = control {
                        socket::serve(listener, access, limits, published_state.clone(), sender).await;
                    }
                };
                let pages = async {
                    if let Some(listener) = metrics {
                        http::serve(listener, published_state.clone(), scrapes).await;
                    }
                };
                tokio::select! {
                    _ = stopped => {}
                    _ = async { tokio::join!(socket, pages) } => {}
                }
            });
            // Threads may still wait for the answer to an order: the control thread answers or ends.
            runtime.shutdown_timeout(Duration::from_secs(1));
        })?;
        Ok(Servers { stop: Some(stop), thread: Some(thread), socket_files, address })
    }

    /// The address that serves metrics, with the port chosen by the kernel if port 0 was configured.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.address
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            // A panic has been reported already.
            let _ = thread.join();
        }
        self.socket_files.clear();
    }
}

/// A listener before the runtime registers it.
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

fn group_id(name: &str) -> Result<u32, ServersError> {
    let unknown = || ServersError::NoGroup(name.to_owned());
    let found = nix::unistd::Group::from_name(name).map_err(io::Error::from)?;
    match found.ok_or_else(unknown)?.gid.as_raw() {
        OVERFLOW_ID => Err(ServersError::OverflowId(name.to_owned())),
        gid => Ok(gid),
    }
}
