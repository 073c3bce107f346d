//! `waykeeper top`: what a host, a virtual server or a recording does, live in the terminal, and its knobs.
//!
//! Must not contain what is measured or kept (`waykeeper_view`) or how a host is read (`waykeeper_service`).

mod answer;
mod draw;
mod keys;
mod palette;
mod run;
mod screen;
mod state;

use crate::daemon_client::SocketArgs;
use crate::exit::{self, Failure};
use crate::run::{assignment, change};
use clap::Args;
use palette::{ColourScheme, Palette};
use run::LiveView;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use toml::Value;
use waykeeper_lab::registry;
use waykeeper_service::ClientError;
use waykeeper_service::config::{Config, Flag, Inputs};
use waykeeper_silicon::Sampling;
use waykeeper_view::{
    DaemonSource, LiveError, LiveScenario, LiveSetup, ObservedSource, RecordingError, RecordingSource,
    Source, Turn,
};

const EXAMPLES: &str = "\
Examples:
  waykeeper top                                   the daemon of this host; without one, observe it
  waykeeper top --scenario a4-hpw-heavy           a virtual server, live, on any machine
  waykeeper top --scenario a4-fig5 --policy a4 --speed 4    under a policy, four times as fast
  waykeeper top --replay /var/lib/waykeeper/recording       play what a daemon recorded
  waykeeper top --scenario probe --once           one frame as text, for a script

? shows the keys. Knobs that are turned here return when another policy takes over. On a daemon
only root and its own user may turn anything.

Exit codes: 2 no terminal (give --once), 3 no daemon, and this host cannot be observed, 4
permission denied.";

/// Arguments of `waykeeper top`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TopArgs {
    /// Run a virtual server: a built-in scenario (see `waykeeper scenario list`) or the path of a file
    #[arg(long, value_name = "SCENARIO", conflicts_with_all = ["replay", "socket", "root"])]
    scenario: Option<OsString>,
    /// Play a recording: a folder or one of its files
    #[arg(long, value_name = "PATH", conflicts_with_all = ["socket", "root"])]
    replay: Option<PathBuf>,
    /// Policy of the virtual server
    #[arg(long, value_name = "NAME", requires = "scenario", default_value = "waykeeper")]
    policy: String,
    /// Seconds of the scenario or recording per second of wall-clock time, from 0.001 to 1000
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_negative_numbers = true)]
    speed: f64,
    /// Seed of the virtual server's random numbers
    #[arg(long, value_name = "N", requires = "scenario", default_value_t = 1)]
    seed: u64,
    /// Share of the LLC's sets to simulate: exact (all), 1/2, 1/4, ... 1/256
    #[arg(long, value_name = "1/N|exact", requires = "scenario", default_value_t = Sampling::DEFAULT)]
    sets: Sampling,
    /// Change a key of the scenario, such as nic.nic0.offered_gbps=40; may be given several times
    #[arg(long, value_name = "KEY=VALUE", requires = "scenario", value_parser = assignment)]
    set: Vec<(String, Value)>,
    /// Colours
    #[arg(long, value_enum, default_value_t = ColourScheme::Dark)]
    colours: ColourScheme,
    /// Print one frame as text and end
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

/// Runs the subcommand.
pub fn top(args: &TopArgs) -> Result<(), Failure> {
    Turn::check_speed(args.speed).map_err(|why| Failure::bad_input(format!("--speed: {why}")))?;
    if !args.once && !screen::is_terminal() {
        return Err(Failure::bad_input(
            "top needs a terminal at standard input and output that moves its cursor (not TERM=dumb); --once prints one frame \
             as text",
        ));
    }
    let has_colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let scheme = if has_colours && !args.once { args.colours } else { ColourScheme::None };
    let view = LiveView::new(source(args)?, Palette::new(scheme));
    if args.once { view.once() } else { view.run() }
}

fn source(args: &TopArgs) -> Result<Box<dyn Source>, Failure> {
    if let Some(name) = &args.scenario {
        let mut source = registry::open(name)?;
        for (key, value) in &args.set {
            change(&mut source, key, value)?;
        }
        let setup = LiveSetup {
            seed: args.seed,
            sampling: args.sets,
            speed: args.speed,
            ..LiveSetup::new(Arc::new(source.read()?), &args.policy)
        };
        return Ok(Box::new(LiveScenario::start(setup)?));
    }
    if let Some(path) = &args.replay {
        return Ok(Box::new(RecordingSource::open(path, args.speed)?));
    }
    let path = args.socket.path()?;
    match DaemonSource::connect(&path) {
        Ok(source) => Ok(Box::new(source)),
        Err(why @ ClientError::NoDaemon { .. }) => observed(args, &why),
        Err(why) => Err(why.into()),
    }
}

/// This host without a daemon, with nothing that is written: no socket, no metrics, no recorder, no journal.
fn observed(args: &TopArgs, no_daemon: &ClientError) -> Result<Box<dyn Source>, Failure> {
    let mut values = vec![
        ("daemon.mode", "observe".to_owned()),
        ("socket.path", "off".to_owned()),
        ("metrics.listen", "off".to_owned()),
        ("recorder.dir", "off".to_owned()),
    ];
    if let Some(root) = args.socket.root()? {
        values.push(("daemon.root", root.display().to_string()));
    }
    let flags =
        values.into_iter().map(|(key, value)| Flag { flag: "top".to_owned(), key: key.to_owned(), value });
    let inputs = Inputs {
        file: args.socket.config(),
        environment: crate::daemon::environment(),
        flags: flags.collect(),
    };
    let config = Config::load(&inputs)?;
    ObservedSource::start(config, inputs).map(|source| Box::new(source) as Box<dyn Source>).map_err(|why| {
        let failure = Failure::from(why);
        let code = if failure.code() == exit::FAILED { exit::UNSUPPORTED } else { failure.code() };
        Failure::new(
            code,
            format!(
                "{no_daemon}; this host cannot be observed without one: {}; `waykeeper top --scenario {}` shows a virtual server",
                failure.line().trim_start_matches("error: "),
                registry::FLAGSHIP
            ),
        )
    })
}

impl From<LiveError> for Failure {
    fn from(error: LiveError) -> Failure {
        match error {
            LiveError::Thread(why) => Failure::io("starting a thread", &why),
            other => Failure::bad_input(other),
        }
    }
}

impl From<RecordingError> for Failure {
    fn from(error: RecordingError) -> Failure {
        match error {
            RecordingError::Read(error) => error.into(),
            other => Failure::bad_input(other),
        }
    }
}
