//! `waykeeper demo`: a virtual host, its tenants, the daemon and a live view, which leave nothing behind.
//!
//! The process has a root of its own in memory, so the mount, the journal and the configuration end with it, also after a
//! kill. The host is served by a child of it. Must not contain the host (`waykeeper_vhost`) or the daemon
//! (`waykeeper_service`).

mod host;
mod knobs;
mod tenants;
mod view;

use crate::exit::{self, Failure};
use crate::run::{assignment, change};
use crate::terminal::KeyPresses;
use crate::{duration, vhost};
use clap::Args;
use host::DemoHost;
use knobs::FoundKnobs;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use toml::{Table, Value};
use view::DemoView;
use waykeeper_kernel::root::Root;
use waykeeper_lab::registry;
use waykeeper_machine::RunOptions;
use waykeeper_service::config::{Config, Inputs};
use waykeeper_service::daemon::RunningDaemon;
use waykeeper_service::engine::SignalRequest;
use waykeeper_silicon::Sampling;
use waykeeper_vhost::namespace::{NamespaceError, PrivateRoot};
use waykeeper_vhost::virtual_host::VirtualHostOptions;

const EXAMPLES: &str = "\
Examples:
  waykeeper demo                               A4's mix under the policy `waykeeper`, until q or Ctrl-C
  waykeeper demo --policy default              the same server as it boots
  waykeeper demo a4-fig5 --policy a4           another scenario under another policy
  waykeeper demo --for 30s | cat               half a minute as plain lines
  waykeeper demo --speed 0.5                   for a slow machine: the server's clock at half speed

demo mounts a virtual host that no other program sees, declares the scenario's programs as
tenants, and runs the daemon on it. It needs /dev/fuse, and root or user namespaces. When it ends,
on q, a signal, a closed terminal or after --for, the daemon restores every knob and the host is
unmounted; nothing is left, also after kill -9.

Exit codes: 3 no /dev/fuse, 4 no permission for it or for a namespace.";

/// Where the host is mounted in the private root.
const HOST: &str = "/host";
/// The daemon's configuration there.
const CONFIG: &str = "/waykeeper.toml";
/// How often keys, signals and the daemon's state are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Time between two lines of a step that takes long.
const PATIENCE: Duration = Duration::from_secs(2);

/// Arguments of `waykeeper demo`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DemoArgs {
    /// Scenario: a built-in name (see `waykeeper scenario list`) or the path of a file
    #[arg(value_name = "SCENARIO", default_value = registry::FLAGSHIP)]
    scenario: OsString,
    /// Policy that manages the host
    #[arg(long, value_name = "NAME", default_value = "waykeeper")]
    policy: String,
    /// End this long after the daemon's first step
    #[arg(long = "for", value_name = "TIME", value_parser = duration::above_zero, allow_negative_numbers = true)]
    for_time: Option<Duration>,
    /// Seconds of the server's clock per second of wall-clock time, from 0.001 to 1000
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_negative_numbers = true)]
    speed: f64,
    /// Seed of the virtual server's random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Share of the LLC's sets to simulate: exact (all), 1/2, 1/4, ... 1/256
    #[arg(long, value_name = "1/N|exact", default_value_t = Sampling::DEFAULT)]
    sets: Sampling,
    /// Change a key of the scenario, such as workload.fio.block=64k; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    set: Vec<(String, Value)>,
}

/// Runs the subcommand.
pub fn demo(args: &DemoArgs) -> Result<(), Failure> {
    let speed = vhost::speed(args.speed)?;
    let mut source = registry::open(&args.scenario)?;
    for (key, value) in &args.set {
        change(&mut source, key, value)?;
    }
    let scenario = Arc::new(source.read()?);
    waykeeper_policy::build(&args.policy, &Table::new())?;
    let declared = tenants::declaration(&scenario)?;
    reach_fuse()?;
    // Before the first thread: the kernel gives a user namespace only to a process with one.
    let place = PrivateRoot::enter()?;
    let ending = Ending::on_signals()?;
    let mut view = DemoView::new(&scenario, &args.scenario.to_string_lossy(), &args.policy);
    view.tell(&format!("making the virtual server of {} ...", scenario.name))?;
    let options = VirtualHostOptions {
        speed,
        run: RunOptions { seed: args.seed, sample_seed: args.seed, sampling: args.sets },
        ..VirtualHostOptions::default()
    };
    let (host, is_mounted) = DemoHost::start(&place.directory(HOST)?, scenario.clone(), options)?;
    with_feedback(&mut view, "making the virtual server", is_mounted)?;
    let done = manage(&mut view, &host, &args.policy, &declared, args.for_time, &ending);
    // Where the host is gone, that is why the rest failed.
    let stopped = host.failure().map(|why| format!("the virtual server stopped: {why}"));
    let ended = host.end();
    let restored = done.map_err(|why| stopped.map_or(why, |stopped| Failure::new(exit::FAILED, stopped)))?;
    ended?;
    view.tell(&format!("restored: {restored}; unmounted, nothing is left"))
}

/// Whether /dev/fuse is there and may be opened.
fn reach_fuse() -> Result<(), Failure> {
    let why = match OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        Ok(_) => return Ok(()),
        Err(why) => why,
    };
    match why.kind() {
        io::ErrorKind::PermissionDenied => Err(Failure::new(
            exit::NOT_PERMITTED,
            format!(
                "cannot open /dev/fuse: {why}; run as root, or give the device to this user (chmod a+rw /dev/fuse)"
            ),
        )),
        _ => Err(Failure::new(
            exit::UNSUPPORTED,
            format!(
                "cannot open /dev/fuse: {why}; load the module (modprobe fuse) or give the container the device"
            ),
        )),
    }
}

/// Whether a signal asked for the end.
struct Ending(Arc<AtomicBool>);

impl Ending {
    fn on_signals() -> Result<Ending, Failure> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, asked.clone())
                .map_err(|why| Failure::io("listening to signals", &why))?;
        }
        Ok(Ending(asked))
    }

    fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Runs the daemon on the mounted host until the end is asked for; returns which knobs are as they were.
fn manage(
    view: &mut DemoView,
    host: &DemoHost,
    policy: &str,
    declared: &str,
    for_time: Option<Duration>,
    ending: &Ending,
) -> Result<String, Failure> {
    let root = Root::at(host.path());
    // This thread does not read the host: see `Apart`.
    let reading = || {
        let root = root.clone();
        move || FoundKnobs::read(&root)
    };
    let found = with_feedback(view, "reading the host", reading())?;
    std::fs::write(CONFIG, configuration(policy, declared)).map_err(|why| Failure::io(CONFIG, &why))?;
    let inputs = Inputs { file: Some(PathBuf::from(CONFIG)), ..Inputs::default() };
    let config = Config::load(&inputs)?;
    view.tell(&format!(
        "the host is mounted with {} tenants; starting the daemon ...",
        config.tenants.len()
    ))?;
    let daemon = with_feedback(view, "starting the daemon", move || {
        RunningDaemon::start(config, inputs, Box::new(|| 0), || {})
    })?;
    let watched = watch(view, host, &daemon, for_time, ending);
    // A closed terminal must not keep the knobs from being restored.
    let _ = view.tell("ending: restoring the knobs ...");
    daemon.request(SignalRequest::Stop);
    with_feedback(view, "restoring the knobs", move || daemon.wait())?;
    watched?;
    let now = with_feedback(view, "reading the host", reading())?;
    now.compared_with(&found).map_err(|why| Failure::new(exit::FAILED, why))
}

/// Shows the daemon's state until the end is asked for. A closed terminal or pipe asks for it too.
fn watch(
    view: &mut DemoView,
    host: &DemoHost,
    daemon: &RunningDaemon,
    for_time: Option<Duration>,
    ending: &Ending,
) -> Result<(), Failure> {
    // When the first step was there.
    let mut begun: Option<Instant> = None;
    let keys = io::stdout().is_terminal().then(KeyPresses::take).flatten();
    loop {
        let status = daemon.status();
        if !status.state.is_empty() {
            begun.get_or_insert_with(Instant::now);
        }
        let shown_for = begun.map_or(Duration::ZERO, |begun| begun.elapsed());
        let is_over = for_time.is_some_and(|time| shown_for >= time);
        if is_over || ending.is_asked() || daemon.has_ended() || host.failure().is_some() {
            return Ok(());
        }
        if !view.show(&status, host.lag_ns(), shown_for)? {
            return Ok(());
        }
        match &keys {
            None => std::thread::sleep(LOOK),
            Some(keys) => match keys.within(LOOK) {
                Ok(Some(b'q' | b'Q')) | Err(_) => return Ok(()),
                Ok(_) => {}
            },
        }
    }
}

/// Runs `work` on another thread; prints every two seconds how long it has taken.
fn with_feedback<T: Send + 'static, E: Send + 'static>(
    view: &mut DemoView,
    what: &str,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, Failure>
where
    Failure: From<E>,
{
    let (sender, receiver) = channel();
    let start = Instant::now();
    std::thread::spawn(move || {
        // The receiver waits for it.
        let _ = sender.send(work());
    });
    loop {
        match receiver.recv_timeout(PATIENCE) {
            Ok(done) => return Ok(done?),
            Err(RecvTimeoutError::Timeout) => {
                // Where the terminal is closed, the work still ends.
                let _ = view.tell(&format!("{what}: {:.0} s so far", start.elapsed().as_secs_f64()));
            }
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::reported()),
        }
    }
}

/// The daemon's configuration. Nothing outside of the process could reach a socket in the private root.
fn configuration(policy: &str, declared: &str) -> String {
    let quoted = |text: &str| Value::String(text.to_owned());
    format!(
        "[daemon]\nroot = {}\n[socket]\npath = \"off\"\n[policy]\nname = {}\n\n{declared}",
        quoted(HOST),
        quoted(policy)
    )
}

impl From<NamespaceError> for Failure {
    fn from(error: NamespaceError) -> Failure {
        let code = match &error {
            NamespaceError::Refused(_) => exit::NOT_PERMITTED,
            NamespaceError::NotMounted(_, why) => exit::io_code(why),
        };
        Failure::new(code, error)
    }
}
