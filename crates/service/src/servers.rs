//! The thread that serves the control socket and the metrics.
//!
//! Uses tokio because hundreds of idle connections must cost nothing and each needs its own deadlines; one thread of
//! lower priority, so that it takes no time from the control thread. After a panic the runtime starts again. Must not
//! know the protocols.

use crate::backoff::Backoff;
use crate::daemon::panic_message;
use crate::metrics::{Listen, ScrapeLimits, http};
use crate::socket::{
    self, ClientRights, OVERFLOW_ID, SocketFile, SocketFileError, SocketLimits, View, listen,
};
use crate::{PublishedState, Sender};
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::runtime;
use tokio::sync::watch;
use waykeeper_kernel::system::{self, SharedSystem};

/// Nice value of the thread. Assumption: enough that the control thread runs first.
const NICE: i32 = 5;

/// Pause before the runtime starts again after a first panic. Assumption: most clients retry for longer.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause. Assumption: one line per minute in the log is bearable, and a person waits no longer for a status.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How often a pause checks whether the daemon ends.
const STOP_CHECK: Duration = Duration::from_millis(50);

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
    /// Dropping it stops the thread.
    stop: Option<watch::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// Removed after the thread has ended.
    socket_files: Vec<SocketFile>,
    address: Option<SocketAddr>,
}

impl Servers {
    /// What [`Servers::open`] would be refused for, as far as that shows without a change. Addresses and sockets that are in
    /// use are none: the daemon that is to be replaced may have them.
    ///
    /// # Errors
    /// As [`Servers::open`].
    pub fn check(config: &ServersConfig) -> Result<(), ServersError> {
        config.group.as_deref().map(group_id).transpose()?;
        let metrics = match &config.metrics {
            Some(Listen::Unix(path)) => Some(path),
            _ => None,
        };
        Ok(config.socket.iter().chain(metrics).try_for_each(|path| socket::check_file(path))?)
    }

    /// Opens what `config` names. When it returns, clients can connect.
    ///
    /// # Errors
    /// If one of them cannot be opened; then none is.
    pub fn open(
        config: &ServersConfig,
        published_state: Arc<PublishedState>,
        sender: Sender,
    ) -> Result<Servers, ServersError> {
        Servers::open_on(system::real(), config, published_state, sender)
    }

    /// The same with the clock of a system.
    ///
    /// # Errors
    /// As [`Servers::open`].
    pub fn open_on(
        system: SharedSystem,
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
        let (stop, stopped) = watch::channel(());
        let (limits, scrapes) = (config.limits, config.scrapes);
        let view = Arc::new(View::new(system, published_state.clone()));
        let served =
            Served { control, metrics, access, limits, scrapes, published_state, view: view.clone(), sender };
        // Opening a runtime can fail, so it is done before the thread starts.
        let mut first = Some(served.open()?);
        let thread = std::thread::Builder::new().name("waykeeper-edge".to_owned()).spawn(move || {
            // Without permission the priority stays as it is.
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
            let look = || drop(view.read());
            keep_running(&stopped, FIRST_PAUSE, look, || {
                let open = first.take().map_or_else(|| served.open(), Ok)?;
                Ok(served.run(open, stopped.clone()))
            });
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
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // A panic has been reported already.
            let _ = thread.join();
        }
        self.socket_files.clear();
    }
}

/// What the thread serves. The listeners stay open when a runtime ends, so that clients wait instead of being refused.
struct Served {
    control: Option<std::os::unix::net::UnixListener>,
    metrics: Option<Bound>,
    access: ClientRights,
    limits: SocketLimits,
    scrapes: ScrapeLimits,
    published_state: Arc<PublishedState>,
    /// The last decisions, which outlive a runtime.
    view: Arc<View>,
    sender: Sender,
}

/// A runtime with the listeners that it has registered.
struct Open {
    runtime: runtime::Runtime,
    control: Option<tokio::net::UnixListener>,
    metrics: Option<http::Listener>,
}

impl Served {
    fn open(&self) -> io::Result<Open> {
        let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let inside = runtime.enter();
        let control = self.control.as_ref().map(std::os::unix::net::UnixListener::try_clone).transpose()?;
        let control = control.map(tokio::net::UnixListener::from_std).transpose()?;
        let metrics = self.metrics.as_ref().map(Bound::for_runtime).transpose()?;
        drop(inside);
        Ok(Open { runtime, control, metrics })
    }

    /// Serves until it is stopped. A panic is returned.
    fn run(&self, open: Open, mut stopped: watch::Receiver<()>) -> thread::Result<()> {
        let Open { runtime, control, metrics } = open;
        let state = &self.published_state;
        // Sound: what a panic interrupts is dropped with the runtime.
        let done = catch_unwind(AssertUnwindSafe(|| {
            runtime.block_on(async {
                let socket = async {
                    if let Some(listener) = control {
                        let (view, sender) = (self.view.clone(), self.sender.clone());
                        socket::serve(listener, self.access, self.limits, view, sender).await;
                    }
                };
                let pages = async {
                    if let Some(listener) = metrics {
                        http::serve(listener, state.clone(), self.scrapes).await;
                    }
                };
                tokio::select! {
                    _ = stopped.changed() => {}
                    _ = async { tokio::join!(socket, pages) } => {}
                }
            });
        }));
        // Threads may still wait for the answer to an order: the control thread answers or ends.
        runtime.shutdown_timeout(Duration::from_secs(1));
        done
    }
}

/// Runs `work` until it returns or the sender of `stopped` is dropped. After a panic or an error it waits and runs it
/// again; the pause starts with `first`, doubles up to [`LONGEST_PAUSE`], and is short again after work that lasted. During
/// a pause it calls `look` every [`STOP_CHECK`], so that no decision is missed.
///
/// The control thread manages the host in the meantime. A daemon that ended instead would give up its knobs because of
/// a mistake in the part that only shows them.
fn keep_running(
    stopped: &watch::Receiver<()>,
    first: Duration,
    mut look: impl FnMut(),
    mut work: impl FnMut() -> io::Result<thread::Result<()>>,
) {
    let mut backoff = Backoff::new(first, LONGEST_PAUSE);
    loop {
        let begun = Instant::now();
        let why = match work() {
            Ok(Ok(())) => return,
            Ok(Err(panic)) => format!("bug in waykeeper: {}", panic_message(&*panic)),
            Err(why) => why.to_string(),
        };
        let pause = backoff.pause_after(begun.elapsed());
        tracing::error!(
            "socket and metrics stopped ({why}); all connections are closed, and they start again in {} s. The knobs \
             are managed as before",
            pause.as_secs_f64()
        );
        let until = Instant::now() + pause;
        while Instant::now() < until {
            if stopped.has_changed().is_err() {
                return;
            }
            look();
            std::thread::sleep(STOP_CHECK.min(pause));
        }
    }
}

/// A listener outside of a runtime.
#[derive(Debug)]
enum Bound {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

impl Bound {
    /// The same listener, registered by the current runtime.
    fn for_runtime(&self) -> io::Result<http::Listener> {
        Ok(match self {
            Bound::Tcp(listener) => {
                http::Listener::Tcp(tokio::net::TcpListener::from_std(listener.try_clone()?)?)
            }
            Bound::Unix(listener) => {
                http::Listener::Unix(tokio::net::UnixListener::from_std(listener.try_clone()?)?)
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_panics_or_fails_runs_again_until_it_returns() {
        let (_stop, stopped) = watch::channel(());
        let mut runs = 0;
        keep_running(
            &stopped,
            Duration::from_millis(1),
            || {},
            || {
                runs += 1;
                match runs {
                    1 => Err(io::ErrorKind::OutOfMemory.into()),
                    2 => Ok(catch_unwind(|| panic!("a mistake of the test"))),
                    _ => Ok(Ok(())),
                }
            },
        );
        assert_eq!(runs, 3);
    }

    #[test]
    fn a_stop_ends_the_pause() {
        let (stop, stopped) = watch::channel(());
        let mut stop = Some(stop);
        let mut runs = 0;
        keep_running(
            &stopped,
            Duration::from_secs(3600),
            || {},
            || {
                runs += 1;
                stop.take();
                Err(io::ErrorKind::OutOfMemory.into())
            },
        );
        assert_eq!(runs, 1);
    }

    #[test]
    fn the_socket_answers_again_after_a_panic_of_its_runtime() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let config = ServersConfig { socket: Some(path.clone()), ..ServersConfig::default() };
        let state = Arc::new(PublishedState::new(crate::published_state::tests::published()));
        let view = Arc::new(View::new(system::real(), state.clone()));
        let (sender, _orders) = crate::orders();
        let (listener, _file) = listen(&path, None).unwrap();
        let access = ClientRights { own_uid: rustix::process::geteuid().as_raw(), readers_gid: None };
        let served = Served {
            control: Some(listener),
            metrics: None,
            access,
            limits: config.limits,
            scrapes: config.scrapes,
            published_state: state.clone(),
            view: view.clone(),
            sender,
        };
        let (stop, stopped) = watch::channel(());
        let look = {
            let (mut step, view) = (0, view.clone());
            move || {
                // A decision in each pause.
                step += 1;
                let event = waykeeper_policy::Event {
                    action: format!("decision-{step}"),
                    group: None,
                    text: String::new(),
                    causes: Vec::new(),
                };
                let record = waykeeper_control::StepRecord {
                    at_ns: step,
                    events: vec![event],
                    ..waykeeper_control::StepRecord::default()
                };
                let published = crate::published_state::tests::published();
                state.replace(crate::Published { step, record, ..published });
                view.read();
            }
        };
        let thread = std::thread::spawn(move || {
            let mut runs = 0;
            keep_running(&stopped, Duration::from_millis(1), look, || {
                runs += 1;
                let open = served.open()?;
                if runs < 3 {
                    // The runtime has registered the listener, accepted nothing, and is gone.
                    let Open { runtime, .. } = open;
                    return Ok(catch_unwind(AssertUnwindSafe(|| {
                        runtime.block_on(async { panic!("a mistake of the test") })
                    })));
                }
                Ok(served.run(open, stopped.clone()))
            });
            runs
        });
        use std::io::{BufRead, BufReader, Write};
        let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
        stream.write_all(b"{\"version\":1,\"do\":\"status\"}\n").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        assert!(line.contains("\"policy\":\"default\""), "{line}");
        assert!(line.contains("decision-1") && line.contains("decision-2"), "{line}");
        drop(stop);
        assert_eq!(thread.join().unwrap(), 3);
    }
}
