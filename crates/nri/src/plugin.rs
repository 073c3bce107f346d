//! The plugin's thread: connects, serves the connection until it ends, and connects again.
//!
//! One thread, because the runtime sends one request at a time. Pauses between attempts double. Pods stay declared while
//! there is no connection: their containers run on, and the next list of the runtime says which of them are left. Must not
//! know the protocol.

use crate::pod_host::PodHost;
use crate::pods::Pods;
use crate::session::{Session, SessionStage};
use crate::{PluginConfig, WireError};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// First and longest pause before the next attempt to connect. Assumption: containerd restarts within a second or so, and a
/// line per problem in the log is independent of attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Bytes of one read.
const READ: usize = 1 << 16;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
enum LinkError {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the container runtime closed the connection")]
    Closed,
    #[error("the container runtime did not complete what it began to send")]
    Stalled,
}

/// What the plugin's thread and its owner share.
#[derive(Debug, Default)]
struct LinkState {
    /// The daemon ends.
    ends: bool,
    /// The present connection, to close it.
    stream: Option<UnixStream>,
    /// Why the plugin is not connected.
    trouble: Option<String>,
}

/// The state of the connection; may be cloned.
#[derive(Clone, Debug, Default)]
pub struct PluginLink(Arc<(Mutex<LinkState>, Condvar)>);

impl PluginLink {
    /// Why the plugin is not registered with the runtime; `None` if it is, or if it has not tried yet.
    pub fn trouble(&self) -> Option<String> {
        self.lock().trouble.clone()
    }

    fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        let mut state = self.lock();
        state.ends = true;
        if let Some(stream) = state.stream.take() {
            // It may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.0.1.notify_all();
    }

    /// Takes a connection into the state; false if the plugin is to end.
    fn begin(&self, stream: &UnixStream) -> io::Result<bool> {
        let mut state = self.lock();
        state.stream = Some(stream.try_clone()?);
        Ok(!state.ends)
    }

    /// Waits; false if the plugin is to end.
    fn pause(&self, pause: Duration) -> bool {
        let state = self.lock();
        let waited = self.0.1.wait_timeout_while(state, pause, |state| !state.ends);
        !waited.unwrap_or_else(PoisonError::into_inner).0.ends
    }
}

/// The running plugin; dropping it closes the connection and ends its thread.
#[derive(Debug)]
pub struct Plugin {
    link: PluginLink,
    thread: Option<JoinHandle<()>>,
}

impl Plugin {
    /// Starts it; `link` shows its state.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(config: PluginConfig, link: PluginLink, host: Box<dyn PodHost>) -> io::Result<Plugin> {
        let own = link.clone();
        let work = move || run(&config, &own, host);
        let thread = std::thread::Builder::new().name("waykeeper-nri".to_owned()).spawn(work)?;
        Ok(Plugin { link, thread: Some(thread) })
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        self.link.end();
        if let Some(thread) = self.thread.take() {
            // A panic has been logged by its hook.
            let _ = thread.join();
        }
    }
}

/// Connects and serves until the plugin is to end.
fn run(config: &PluginConfig, link: &PluginLink, mut host: Box<dyn PodHost>) {
    let mut pods = Pods::default();
    let mut pause = FIRST_PAUSE;
    loop {
        let begun = Instant::now();
        let ended = connect(config, link, &mut pods, host.as_mut());
        {
            let mut state = link.lock();
            state.stream = None;
            if state.ends {
                return;
            }
            if let Err(why) = ended {
                let socket = config.socket.display();
                state.trouble = Some(format!("no connection to NRI at {socket}: {why}; trying again"));
            }
        }
        // A connection that lasted was sound.
        if begun.elapsed() >= LONGEST_PAUSE {
            pause = FIRST_PAUSE;
        }
        if !link.pause(pause) {
            return;
        }
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

/// Serves one connection until it ends.
fn connect(
    config: &PluginConfig,
    link: &PluginLink,
    pods: &mut Pods,
    host: &mut dyn PodHost,
) -> Result<(), LinkError> {
    let mut stream = UnixStream::connect(&config.socket)?;
    if !link.begin(&stream)? {
        return Ok(());
    }
    stream.set_write_timeout(Some(config.stall))?;
    let (mut session, registration) = Session::start(config, pods);
    stream.write_all(&registration)?;
    let mut bytes = vec![0; READ];
    let mut out = Vec::new();
    // When the runtime began what it has not completed.
    let mut waiting_since = Instant::now();
    loop {
        let limit = match session.is_waiting() {
            true => {
                let left = config.stall.saturating_sub(waiting_since.elapsed());
                Some(left).filter(|left| !left.is_zero()).ok_or(LinkError::Stalled).map(Some)?
            }
            false => {
                waiting_since = Instant::now();
                None
            }
        };
        stream.set_read_timeout(limit)?;
        let read = match stream.read(&mut bytes) {
            Ok(0) => return Err(LinkError::Closed),
            Ok(read) => read,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Err(LinkError::Stalled),
            Err(why) => return Err(why.into()),
        };
        let received = session.receive(bytes.get(..read).unwrap_or_default(), host, &mut out);
        // A new message began, or one was complete.
        if limit.is_none() || !out.is_empty() {
            waiting_since = Instant::now();
        }
        stream.write_all(&out)?;
        out.clear();
        received?;
        if session.stage() == SessionStage::Synchronized {
            link.lock().trouble = None;
        }
    }
}

#[cfg(test)]
#[path = "plugin_tests.rs"]
mod tests;
