//! `waykeeper status` and `waykeeper tenants`: the daemon's state as tables or JSON.
//!
//! Text from the daemon is made printable before it reaches a terminal: users name tenants, and any program may listen
//! on the socket. Must not know how the daemon works.

pub mod page;
pub mod view;
mod watch;

use crate::daemon_client::SocketArgs;
use crate::exit::Failure;
use crate::out;
use clap::Args;
use std::path::PathBuf;
use view::Screen;
use waykeeper_kernel::journal;
use waykeeper_kernel::root::Root;
use waykeeper_lab::table::{Ink, obeys_escapes};
use waykeeper_service::Client;
use waykeeper_service::protocol::{ControlCommand, DaemonStatus, Tenants};

const STATUS_EXAMPLES: &str = "\
Examples:
  waykeeper status                               what fits the terminal, worth and culprits first
  waykeeper status --details                     all of it, with the causes of the last decisions
  waykeeper status --watch                       again after every step, also of a daemon started anew
  waykeeper status --json | jq .io.dca_ways      one value; docs/daemon-protocol.md lists all keys
  waykeeper status --watch --json                one line of JSON per step

On a terminal the page has its size and colours (not with NO_COLOR set); into a pipe it is the one of --details.

Exit codes: 3 no daemon is running, 4 permission denied, 5 the daemon is busy.";

const TENANTS_EXAMPLES: &str = "\
Examples:
  waykeeper tenants           a table of tenants
  waykeeper tenants --json | jq '.tenants[] | select(.llc_hit_ratio < 0.5) | .name'    low hit ratio";

/// Arguments of `waykeeper status`.
#[derive(Args, Debug)]
#[command(after_help = STATUS_EXAMPLES)]
pub struct StatusArgs {
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Print again after every step, until Ctrl-C; if the daemon ends, wait until it is back
    #[arg(long)]
    watch: bool,
    /// Print the whole status, also on a terminal
    #[arg(long, conflicts_with = "json")]
    details: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

/// Arguments of `waykeeper tenants`.
#[derive(Args, Debug)]
#[command(after_help = TENANTS_EXAMPLES)]
pub struct TenantsArgs {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

/// `waykeeper status`.
pub fn status(args: &StatusArgs) -> Result<(), Failure> {
    let connected = args.socket.connect(Client::TIMEOUT);
    let mut client = connected.map_err(|failure| with_hand_over(failure, &args.socket))?;
    if args.watch {
        return watch::watch(client, args);
    }
    let status: DaemonStatus = client.ask(ControlCommand::Status)?;
    match (args.json, args.screen()) {
        (true, _) => out::json(&status),
        (false, Some(screen)) => out::text(&view::view(&status, None, screen)),
        (false, None) => out::text(&page::status(&status)),
    }
}

/// The failure to reach a daemon. If the last one left its knobs to the next one, it says so.
fn with_hand_over(failure: Failure, socket: &SocketArgs) -> Failure {
    let root = Root::at(socket.root().ok().flatten().unwrap_or_else(|| PathBuf::from("/")));
    // Only root can read the journal.
    let journal = journal::summarize(&journal::usual_path(&root), &root).ok().flatten();
    let Some(mark) = journal.and_then(|journal| journal.hand_over) else { return failure };
    let waits = match mark.time_left(root.system().now()) {
        Some(left) => format!("which has {} s to start", left.as_secs()),
        None => "which did not start in time: `waykeeper restore` restores them".to_owned(),
    };
    let text = format!("{}; a daemon that ended left its knobs to the next one, {waits}", failure.line());
    Failure::new(failure.code(), text)
}

impl StatusArgs {
    /// The terminal that a view has to fit; `None` for the whole page.
    fn screen(&self) -> Option<Screen> {
        if self.details || self.json { None } else { screen() }
    }
}

/// The terminal at standard output, if it is one that moves its cursor and knows its size.
pub fn screen() -> Option<Screen> {
    let term = obeys_escapes(&std::io::stdout()).then(console::Term::stdout)?;
    let (rows, columns) = term.size_checked()?;
    // A terminal that does not know its size says 0.
    (rows > 0 && columns > 0).then(|| Screen {
        columns: columns.into(),
        rows: rows.into(),
        ink: Ink::for_stdout(),
    })
}

/// `waykeeper tenants`.
pub fn tenants(args: &TenantsArgs) -> Result<(), Failure> {
    let tenants: Tenants = args.socket.connect(Client::TIMEOUT)?.ask(ControlCommand::Tenants)?;
    if args.json { out::json(&tenants) } else { out::text(&page::tenants(&tenants.tenants)) }
}
