//! `waykeeper serve`: the web page of a daemon, a virtual server or a recording.
//!
//! Must not know HTTP (`waykeeper_web`) or how steps become pictures (`waykeeper_view`).

use crate::exit::{self, Failure};
use crate::number::within;
use crate::run::{assignment, change};
use crate::{interrupt, out, restore};
use clap::Args;
use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, IsTerminal};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use waykeeper_lab::registry;
use waykeeper_machine::Scenario;
use waykeeper_service::config::usual_socket;
use waykeeper_service::{ClientError, ServersConfig};
use waykeeper_view::{DaemonSource, LiveScenario, LiveSetup, RecordingSource, Source, Turn};
use waykeeper_web::{Scenarios, WebError, WebLimits, WebListen, WebServer};

const EXAMPLES: &str = "\
Examples:
  waykeeper serve                                    the daemon of this host; without one, a virtual server
  waykeeper serve --scenario a4-fig5 --policy a4     another virtual server under another policy
  waykeeper serve --scenario my.toml --speed 5       your own scenario, five times as fast
  waykeeper serve --replay /var/lib/waykeeper/recorder    a recording
  waykeeper serve --root /tmp/host                   the daemon that was started with this --root
  ssh -L 8642:127.0.0.1:8642 server waykeeper serve  another machine's page on this one

serve prints an address; open it in a browser. Its last part is a token, without which the page shows
everything and turns nothing. The page's playground starts virtual servers of their own; one ends when its page is closed.

Exit codes: 3 no daemon is running at the socket that you named, 4 permission denied, 5 the address is in use.";

/// How often a signal is looked for.
const LOOK: Duration = Duration::from_millis(100);

/// Arguments of `waykeeper serve`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = WebListen::DEFAULT, value_parser = address)]
    listen: SocketAddr,
    /// Allow --listen to name an address that other machines reach. The connection is not encrypted
    #[arg(long)]
    allow_remote: bool,
    /// Show the daemon with this control socket [default: the usual one, if a daemon listens there]
    #[arg(long, value_name = "PATH", conflicts_with_all = ["root", "scenario", "replay"])]
    socket: Option<PathBuf>,
    /// Show the daemon that was started with this --root
    #[arg(long, value_name = "DIR", conflicts_with_all = ["scenario", "replay"])]
    root: Option<PathBuf>,
    /// Show a virtual server of this scenario: a built-in name or the path of a file
    #[arg(long, value_name = "NAME", conflicts_with = "replay")]
    scenario: Option<OsString>,
    /// Show a recording: a segment, or the directory with all segments
    #[arg(long, value_name = "FILE|DIR")]
    replay: Option<PathBuf>,
    /// Policy of the virtual server at the start
    #[arg(long, value_name = "NAME", default_value = "waykeeper", conflicts_with_all = ["socket", "root", "replay"])]
    policy: String,
    /// Seconds of the server's or the recording's clock per second of wall-clock time, from 0.001 to 1000
    #[arg(long, value_name = "X", default_value_t = 1.0, conflicts_with_all = ["socket", "root"])]
    speed: f64,
    /// Seed of the virtual server's random numbers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within(0, u64::MAX), conflicts_with_all = ["socket", "root", "replay"])]
    seed: u64,
    /// Change a key of the scenario, such as workload.fio.block=64k; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment, requires = "scenario")]
    set: Vec<(String, toml::Value)>,
}

/// An address with a port.
fn address(text: &str) -> Result<SocketAddr, String> {
    let example = "write an address and a port, for example 127.0.0.1:8642 or [::1]:8642";
    text.parse().map_err(|_| example.to_owned())
}

/// Runs the subcommand.
pub fn serve(args: &ServeArgs) -> Result<(), Failure> {
    Turn::check_speed(args.speed).map_err(|why| Failure::bad_input(format!("--speed: {why}")))?;
    let heard = interrupt::listen()?;
    let (source, own) = args.source()?;
    let listen = WebListen { address: args.listen, allow_remote: args.allow_remote };
    let scenarios = Scenarios::with_built_in(own);
    let server = WebServer::start(listen, WebLimits::default(), Some(source), scenarios)?;
    out::text(&format!("{}\n", server.link()))?;
    if std::io::stdout().is_terminal() {
        let what = "open this address in a browser; Ctrl-C ends the page and its virtual servers, no daemon";
        exit::eprint_line(what);
        let address = server.address();
        if std::env::var_os("SSH_CONNECTION").is_some() && address.ip() == Ipv4Addr::LOCALHOST {
            let port = address.port();
            let what = format!(
                "over SSH: `ssh -L {port}:127.0.0.1:{port} HOST` on your machine, then open it there"
            );
            exit::eprint_line(&what);
        }
    }
    while !heard.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
    }
    Ok(())
}

type Shown = (Box<dyn Source>, Option<Arc<Scenario>>);

impl ServeArgs {
    /// What is shown first, and the scenario that the user named.
    fn source(&self) -> Result<Shown, Failure> {
        if let Some(folder) = &self.replay {
            let source = RecordingSource::open(folder, self.speed).map_err(Failure::bad_input)?;
            return Ok((Box::new(source), None));
        }
        if let Some(name) = &self.scenario {
            return self.virtual_server(name);
        }
        let named = match (&self.root, &self.socket) {
            (Some(root), _) => Some(usual_socket(&restore::root_at(root)?)),
            (None, socket) => socket.clone(),
        };
        if let Some(socket) = named {
            return Ok((Box::new(DaemonSource::connect(&socket)?), None));
        }
        match DaemonSource::connect(Path::new(ServersConfig::SOCKET)) {
            Ok(source) => Ok((Box::new(source), None)),
            Err(why) => {
                let why = match &why {
                    ClientError::NoDaemon { .. } => "no daemon runs here".to_owned(),
                    other => other.to_string(),
                };
                let name = registry::FLAGSHIP;
                exit::eprint_line(&format!("{why}; the page shows the virtual server of {name}"));
                self.virtual_server(OsStr::new(name))
            }
        }
    }

    fn virtual_server(&self, name: &OsStr) -> Result<Shown, Failure> {
        let mut source = registry::open(name)?;
        for (key, value) in &self.set {
            change(&mut source, key, value)?;
        }
        let scenario = Arc::new(source.read()?);
        let setup = LiveSetup {
            seed: self.seed,
            speed: self.speed,
            ..LiveSetup::new(scenario.clone(), &self.policy)
        };
        let live = LiveScenario::start(setup).map_err(Failure::bad_input)?;
        Ok((Box::new(live), Some(scenario)))
    }
}

impl From<WebError> for Failure {
    fn from(error: WebError) -> Failure {
        let code = match &error {
            WebError::NotLoopback(_) => exit::BAD_INPUT,
            WebError::Listen { why, .. } if why.kind() == ErrorKind::AddrInUse => exit::CONFLICT,
            WebError::Listen { why, .. } if why.kind() == ErrorKind::AddrNotAvailable => exit::BAD_INPUT,
            WebError::Listen { why, .. } => exit::io_code(why),
            WebError::Thread(_) | WebError::Random(_) => exit::FAILED,
        };
        Failure::new(code, error)
    }
}
