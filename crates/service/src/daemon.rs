//! Starts and ends the daemon: a control thread that owns the host, and the calling thread, which receives signals or
//! embeds the daemon ([`RunningDaemon`]).
//!
//! The host is opened on the control thread and stays there. Socket and metrics are opened after the host and before
//! the first knob is set, so that a daemon that cannot serve them changes nothing. Must not know the command line.

use crate::Notifier;
use crate::config::{Config, ConfigError, Inputs};
use crate::dry_run::DryRun;
use crate::engine::{self, EngineError, LifecycleEvent, ManagedHost, ProblemSource, Setup, SignalRequest};
use crate::linux::ManagedLinuxHost;
use crate::order::{Orders, Sender, orders};
use crate::pods::{NodeFacts, PodReceiver, PodSender, pod_mailbox};
use crate::protocol::DaemonStatus;
use crate::published_state::{ActiveProblem, DaemonMode, Published, PublishedState};
use crate::recorder::{Recorder, RecorderConfig};
use crate::servers::{Servers, ServersConfig, ServersError};
use crate::socket::View;
use crate::step_queue::{StepQueue, step_queue};
use crate::twin::{Twin, TwinConfig};
use crossbeam_channel::{Receiver, bounded, unbounded};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use waykeeper_kernel::system;
use waykeeper_linux_host::OpenError;
use waykeeper_nri::{Plugin, PluginLink};

/// Capacity of the channel for signals; a second one of a kind adds nothing. Assumption: one of each kind that is
/// handled.
const SIGNALS: usize = 4;

/// Why a daemon could not start, or ended with an error. Every knob has its original value, unless the error says
/// otherwise.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The host cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The configuration does not fit the host.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The host is gone, or can no longer be read.
    #[error(transparent)]
    Engine(EngineError),
    /// Socket or metrics could not be opened; no knob was set.
    #[error(transparent)]
    Servers(#[from] ServersError),
    /// A bug in waykeeper or in a policy.
    #[error("bug in waykeeper: {0}; the knobs are restored")]
    Panic(String),
    /// Knobs that do not have their original values.
    #[error("some knobs could not be restored and stay in the journal for `waykeeper restore`: {}", .0.join("; "))]
    Left(Vec<String>),
    /// No thread could be started, or signals cannot be received.
    #[error("{what}: {why}")]
    System {
        /// What was being done.
        what: &'static str,
        /// Why it failed.
        why: io::Error,
    },
}

impl From<EngineError> for DaemonError {
    fn from(error: EngineError) -> DaemonError {
        match error {
            EngineError::Policy(error) => DaemonError::Config(error),
            other => DaemonError::Engine(other),
        }
    }
}

/// Returns the number of log lines lost so far because the log's reader is too slow.
pub type Unlogged = Box<dyn Fn() -> u64 + Send>;

/// Runs a daemon in this process until a signal ends it.
///
/// # Errors
/// Why it could not start or continue.
pub fn run(config: Config, inputs: Inputs, unlogged: Unlogged) -> Result<(), DaemonError> {
    // Before the host is opened, so that no signal ends the process without restoring the knobs.
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])
        .map_err(|why| DaemonError::System { what: "listening to signals", why })?;
    let handle = signals.handle();
    let daemon = RunningDaemon::start(config, inputs, unlogged, move || handle.close())?;
    for signal in signals.forever() {
        tracing::info!(
            signal,
            "{}",
            if signal == SIGHUP { "reading the configuration again" } else { "ending" }
        );
        daemon.request(if signal == SIGHUP { SignalRequest::Reload } else { SignalRequest::Stop });
    }
    daemon.wait()
}

/// A daemon on threads of this process. Dropping it stops it and restores every knob.
pub struct RunningDaemon {
    view: View,
    signal_requests: crossbeam_channel::Sender<SignalRequest>,
    control: Option<JoinHandle<Result<(), DaemonError>>>,
    /// Stay open until the control thread has ended, so that clients can still read its last step.
    open: Option<(Servers, Option<Notifier>)>,
    /// The plugin of the container runtime; it ends after the control thread, which it waits for.
    plugin: Option<Plugin>,
    recorder: Option<Arc<Recorder>>,
}

impl RunningDaemon {
    /// Starts it; returns when socket and metrics are open and the first knobs may be set. `ended` is called on its
    /// control thread when that ends.
    ///
    /// # Errors
    /// Why it could not start; no knob is set then.
    pub fn start(
        config: Config,
        inputs: Inputs,
        unlogged: Unlogged,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<RunningDaemon, DaemonError> {
        config.check_places(system::real().as_ref())?;
        let system = |what| move |why| DaemonError::System { what, why };
        let (sender, taken) = orders();
        let (signal_requests, requested) = bounded(SIGNALS);
        let (ready, is_ready) = bounded::<Arc<PublishedState>>(1);
        let (start, may_start) = bounded::<()>(1);
        let (lifecycle_events, lifecycle_receiver) = unbounded();
        let (recorder, step_queues) = match recorder_of(&config).map_err(system("starting the recorder"))? {
            Some((recorder, step_queue)) => (Some(Arc::new(recorder)), vec![step_queue]),
            None => (None, Vec::new()),
        };
        let (pod_sender, pods) = config.nri.enabled.then(pod_mailbox).unzip();
        let link = PluginLink::default();
        let control = Control {
            config: config.clone(),
            inputs,
            orders: taken,
            signal_requests: requested,
            ready,
            may_start,
            recorder: recorder.clone(),
            pods,
            link: link.clone(),
            twin: twin_of(&config)?,
            step_queues,
            lifecycle_events,
            unlogged,
        };
        let thread = std::thread::Builder::new().name("waykeeper-control".to_owned());
        let control = thread
            .spawn(move || {
                let done = control.run();
                ended();
                done
            })
            .map_err(system("starting the control thread"))?;
        let Ok(published_state) = is_ready.recv() else {
            // It ended before it had opened the host. What it returns has the reason.
            return Err(joined(control)
                .err()
                .unwrap_or_else(|| DaemonError::Panic("it ended at once".to_owned())));
        };
        let servers = match open_servers(&config, published_state.clone(), sender) {
            Ok(servers) => servers,
            Err(why) => {
                // Without permission to start the control thread ends.
                drop(start);
                return joined(control).and(Err(why.into()));
            }
        };
        let plugin =
            pod_sender.map(|sender| start_plugin(&config, &published_state, sender, link)).transpose();
        let plugin = match plugin {
            Ok(plugin) => plugin,
            Err(why) => {
                drop(start);
                return joined(control).and(Err(system("starting the plugin of the container runtime")(why)));
            }
        };
        // If the control thread has ended, its return value has the reason.
        let _ = start.send(());
        let notifier = Notifier::start(published_state.clone(), lifecycle_receiver);
        let notifier = notifier.inspect_err(|why| tracing::warn!("cannot notify systemd: {why}")).ok();
        Ok(RunningDaemon {
            view: View::new(system::real(), published_state),
            signal_requests,
            control: Some(control),
            open: Some((servers, notifier)),
            plugin,
            recorder,
        })
    }

    /// What it does now, with its last decisions. They are kept if this is called several times per period.
    pub fn status(&self) -> DaemonStatus {
        self.view.status(&self.view.read())
    }

    /// The present step, with all that was measured.
    pub fn published(&self) -> Arc<Published> {
        self.view.read()
    }

    /// Whether its control thread has ended, by a request or with an error.
    pub fn has_ended(&self) -> bool {
        self.control.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Passes on a request.
    pub fn request(&self, request: SignalRequest) {
        // A waiting request to reload asks the same already. A stop is never dropped: sending it blocks, and fails only
        // if the control thread has ended.
        let _ = match request {
            SignalRequest::Reload => self.signal_requests.try_send(request).map_err(drop),
            SignalRequest::Stop => self.signal_requests.send(request).map_err(drop),
        };
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// Why it ended, if it was not stopped, or the knobs that could not be restored.
    pub fn wait(mut self) -> Result<(), DaemonError> {
        self.finish()
    }

    fn finish(&mut self) -> Result<(), DaemonError> {
        let Some(control) = self.control.take() else { return Ok(()) };
        let done = joined(control);
        drop(self.plugin.take());
        drop(self.open.take());
        // The control thread's end closes the step queue; the recorder then writes its buffered steps.
        if let Some(recorder) = self.recorder.take().and_then(|own| Arc::try_unwrap(own).ok()) {
            let lost = recorder.join().lost;
            if lost > 0 {
                tracing::warn!("{lost} steps could not be recorded");
            }
        }
        done
    }
}

impl Drop for RunningDaemon {
    fn drop(&mut self) {
        if self.control.is_some() {
            self.request(SignalRequest::Stop);
            // Where it matters, `wait` returns the error.
            let _ = self.finish();
        }
    }
}

fn joined(control: JoinHandle<Result<(), DaemonError>>) -> Result<(), DaemonError> {
    control.join().unwrap_or_else(|panic| Err(DaemonError::Panic(panic_message(&*panic))))
}

/// Steps that may wait for the recorder: a minute at one step per second. Assumption: no working disk blocks for
/// longer.
const STEPS: usize = 64;

/// The recorder and its step queue, if the configuration names a directory.
fn recorder_of(config: &Config) -> io::Result<Option<(Recorder, StepQueue)>> {
    let Some(directory) = &config.recorder.dir else { return Ok(None) };
    let (step_queue, steps) = step_queue(STEPS);
    let recorder = RecorderConfig {
        keep: Duration::from_secs(u64::from(config.recorder.keep_hours) * 3600),
        most_bytes: u64::from(config.recorder.keep_mib) << 20,
        ..RecorderConfig::in_directory(directory)
    };
    Ok(Some((Recorder::start(recorder, steps)?, step_queue)))
}

/// The twin and its problem, if the configuration wants one.
fn twin_of(config: &Config) -> Result<Option<(Twin, ProblemSource)>, DaemonError> {
    if !config.twin.enabled {
        return Ok(None);
    }
    let wanted = TwinConfig {
        share: config.twin.share,
        cores: config.twin.cores.clone(),
        period_ns: config.period_ns,
    };
    let started =
        Twin::start(wanted).map_err(|why| DaemonError::System { what: "starting the twin", why })?;
    let refused = |why| ConfigError::wrong(config.sources.of("twin.cores"), format!("twin.cores: {why}"));
    Ok(Some(started.map_err(refused)?))
}

/// Starts the plugin of the container runtime.
fn start_plugin(
    config: &Config,
    published_state: &PublishedState,
    sender: PodSender,
    link: PluginLink,
) -> io::Result<Plugin> {
    let llc = published_state.read().inventory.llc;
    let facts = NodeFacts { root: config.host_root(), llc, sender };
    Plugin::start(config.nri.plugin.clone(), link, Box::new(facts))
}

/// Opens socket and metrics.
fn open_servers(
    config: &Config,
    published_state: Arc<PublishedState>,
    orders: Sender,
) -> Result<Servers, ServersError> {
    Servers::open(&servers(config), published_state, orders)
}

/// Whether socket and metrics could be opened, as far as that shows without a change.
///
/// # Errors
/// As [`Servers::open`].
pub fn check_servers(config: &Config) -> Result<(), ServersError> {
    Servers::check(&servers(config))
}

fn servers(config: &Config) -> ServersConfig {
    ServersConfig {
        socket: config.socket_path(),
        group: config.socket.group.clone(),
        metrics: config.metrics.clone(),
        ..ServersConfig::default()
    }
}

/// Arguments of the control thread.
struct Control {
    config: Config,
    inputs: Inputs,
    orders: Orders,
    signal_requests: Receiver<SignalRequest>,
    pods: Option<PodReceiver>,
    link: PluginLink,
    ready: crossbeam_channel::Sender<Arc<PublishedState>>,
    may_start: Receiver<()>,
    recorder: Option<Arc<Recorder>>,
    twin: Option<(Twin, ProblemSource)>,
    step_queues: Vec<StepQueue>,
    lifecycle_events: crossbeam_channel::Sender<LifecycleEvent>,
    unlogged: Unlogged,
}

impl Control {
    fn run(self) -> Result<(), DaemonError> {
        let managed_host = ManagedLinuxHost::open(&self.config)?;
        match self.config.mode {
            DaemonMode::DryRun => run_and_restore(DryRun::over(managed_host), |host| self.engine(host)),
            DaemonMode::Manage | DaemonMode::Observe => {
                run_and_restore(managed_host, |host| self.engine(host))
            }
        }
    }

    fn engine<H: ManagedHost>(self, host: &mut H) -> Result<(), DaemonError> {
        let Control {
            config,
            inputs,
            orders,
            signal_requests,
            pods,
            link,
            ready,
            may_start,
            recorder,
            twin,
            step_queues,
            lifecycle_events,
            unlogged,
        } = self;
        let system = system::real();
        let published_state =
            Arc::new(PublishedState::new(engine::first(&config, host.inventory(), system.as_ref())));
        // Socket or metrics could not be opened: set no knob.
        if ready.send(published_state.clone()).is_err() {
            return Ok(());
        }
        if may_start.recv().is_err() {
            return Ok(());
        }
        let socket = config.socket_path().map_or_else(|| "off".to_owned(), |path| path.display().to_string());
        tracing::info!(policy = config.policy.name, root = %config.root.display(), socket, mode = ?config.mode, "daemon started");
        let (twin, failing) = twin.unzip();
        let recorder =
            recorder.into_iter().map(|own| Box::new(move || own.active_problem()) as ProblemSource);
        let unlinked = pods
            .is_some()
            .then(|| Box::new(move || link.trouble().map(|why| ActiveProblem::new("nri", why))));
        let unlinked = unlinked.map(|own| own as ProblemSource);
        let problem_sources: Vec<ProblemSource> = recorder.chain(failing).chain(unlinked).collect();
        let setup = Setup {
            system,
            config,
            inputs,
            published_state,
            step_queues,
            orders,
            signal_requests,
            pods,
            twin,
            problem_sources,
            lifecycle_events,
            unlogged,
        };
        Ok(engine::run(host, setup)?)
    }
}

/// Runs `work` on a host and restores the host's knobs afterwards, also after an error or a panic of a policy.
///
/// # Errors
/// The error of `work`, or else the knobs that could not be restored.
pub fn run_and_restore<H: ManagedHost>(
    mut host: H,
    work: impl FnOnce(&mut H) -> Result<(), DaemonError>,
) -> Result<(), DaemonError> {
    // Sound: after a panic the host is only used to restore it, from the journal.
    let done = catch_unwind(AssertUnwindSafe(|| work(&mut host)));
    let back = catch_unwind(AssertUnwindSafe(|| host.restore()));
    let back = back.unwrap_or_else(|panic| Err(vec![panic_message(&*panic)])).map_err(DaemonError::Left);
    let done = done.unwrap_or_else(|panic| Err(DaemonError::Panic(panic_message(&*panic))));
    if let (Err(_), Err(left)) = (&done, &back) {
        tracing::error!("{left}");
    }
    done.and(back)
}

/// The message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or(panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}
