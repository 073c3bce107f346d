//! `waykeeper status` and `waykeeper tenants`: the daemon's state as tables or JSON.
//!
//! Text from the daemon is made printable before it reaches a terminal: users name tenants, and any program may listen
//! on the socket. Must not know how the daemon works.

mod page;

use crate::daemon_client::SocketArgs;
use crate::exit::Failure;
use crate::out;
use clap::Args;
use std::io::IsTerminal;
use std::time::Duration;
use waykeeper_service::protocol::{ControlCommand, DaemonStatus, Tenants};
use waykeeper_service::{Client, ClientError};

const STATUS_EXAMPLES: &str = "\
Examples:
  waykeeper status                               tenants, counters, knobs, last decisions
  waykeeper status --watch                       the same after every step
  waykeeper status --json | jq .io.dca_ways      one value; docs/daemon-protocol.md lists all keys
  waykeeper status --watch --json                one line of JSON per step

Exit codes: 3 no daemon is running, 4 permission denied, 5 the daemon is busy.";

const TENANTS_EXAMPLES: &str = "\
Examples:
  waykeeper tenants           a table of tenants
  waykeeper tenants --json | jq '.tenants[] | select(.llc_hit_ratio < 0.5) | .name'    low hit ratio";

/// Longest wait for the next step in --watch: a few periods, and a busy machine's delay.
const STEPS: f64 = 3.0;

/// Arguments of `waykeeper status`.
#[derive(Args, Debug)]
#[command(after_help = STATUS_EXAMPLES)]
pub struct StatusArgs {
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Print again after every step, until Ctrl-C
    #[arg(long)]
    watch: bool,
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
    let mut client = args.socket.connect(Client::TIMEOUT)?;
    if args.watch {
        return watch(&mut client, args.json);
    }
    let status: DaemonStatus = client.ask(ControlCommand::Status)?;
    if args.json { out::json(&status) } else { out::text(&page::status(&status)) }
}

/// `waykeeper tenants`.
pub fn tenants(args: &TenantsArgs) -> Result<(), Failure> {
    let tenants: Tenants = args.socket.connect(Client::TIMEOUT)?.ask(ControlCommand::Tenants)?;
    if args.json { out::json(&tenants) } else { out::text(&page::tenants(&tenants.tenants)) }
}

fn watch(client: &mut Client, json: bool) -> Result<(), Failure> {
    let is_terminal = std::io::stdout().is_terminal();
    client.send(ControlCommand::Watch)?;
    loop {
        let status: DaemonStatus = match client.receive() {
            Ok(Some(status)) => status,
            Ok(None) => return Err(Failure::new(crate::exit::FAILED, "the daemon has ended")),
            Err(ClientError::Fault(fault)) => return Err(ClientError::Fault(fault).into()),
            Err(why) => return Err(why.into()),
        };
        let longest = Duration::from_secs(3600);
        let step = Duration::try_from_secs_f64(STEPS * status.period_s).unwrap_or(longest).min(longest);
        client.set_timeout(Client::TIMEOUT + step);
        let text = match json {
            true => serde_json::to_string(&status).map_err(|why| {
                Failure::new(crate::exit::FAILED, format!("cannot write the result as JSON: {why}"))
            })?,
            // Cursor home, clear the screen, then the page (ECMA-48).
            false if is_terminal => format!("\x1b[H\x1b[2J{}", page::status(&status)),
            false => page::status(&status),
        };
        if !out::text_while_open(&(text + "\n"))? {
            return Ok(());
        }
    }
}
