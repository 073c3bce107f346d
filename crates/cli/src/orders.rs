//! `waykeeper pause`, `resume`, `reload` and `policy set`: orders to the daemon, each a line and an answer.
//!
//! Must not know what the daemon makes of them: it alone knows its machine, and checks.

use crate::daemon_client::SocketArgs;
use crate::exit::Failure;
use crate::out;
use clap::Args;
use toml::{Table, Value};
use waykeeper_service::protocol::{Ask, Done};
use waykeeper_service::{Client, printable};

/// Examples of `waykeeper pause`.
pub const PAUSE_EXAMPLES: &str = "\
Examples:
  waykeeper pause              the policy is held back, knobs stay as they are
  waykeeper pause --release    every knob goes back to what was found, until `waykeeper resume`

Exit codes: 1 it pauses, but a knob is not as it was found (it is named), 3 no daemon there, 4 not
permitted (orders are root's), 5 the daemon is busy.";

/// Examples of `waykeeper resume`.
pub const RESUME_EXAMPLES: &str = "\
Examples:
  waykeeper resume";

/// Examples of `waykeeper reload`.
pub const RELOAD_EXAMPLES: &str = "\
Examples:
  waykeeper reload    the same as SIGHUP, and says what came of it

A configuration with a mistake in it is refused (exit code 2), and the one in force stays.";

/// Examples of `waykeeper policy set`.
pub const SET_EXAMPLES: &str = "\
Examples:
  waykeeper policy set a4
  waykeeper policy set a4 --set stable_interval_s=5 --set hpw_llc_hit_thr=0.3

Settings that are not named have their defaults (`waykeeper policy describe a4`). It holds until the daemon
ends or its configuration is read again.";

/// Arguments of an order that has none of its own.
#[derive(Args, Debug)]
pub struct OrderArgs {
    #[command(flatten)]
    socket: SocketArgs,
}

/// Arguments of `waykeeper pause`.
#[derive(Args, Debug)]
pub struct PauseArgs {
    /// Put every knob back to what was found meanwhile
    #[arg(long)]
    release: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

/// Arguments of `waykeeper policy set`.
#[derive(Args, Debug)]
pub struct SetArgs {
    /// Name of the policy
    name: String,
    /// A setting of the policy; may be given more than once
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    set: Vec<(String, Value)>,
    #[command(flatten)]
    socket: SocketArgs,
}

/// `waykeeper pause`.
pub fn pause(args: &PauseArgs) -> Result<(), Failure> {
    order(&args.socket, Ask::Pause { release: args.release })
}

/// `waykeeper resume`.
pub fn resume(args: &OrderArgs) -> Result<(), Failure> {
    order(&args.socket, Ask::Resume)
}

/// `waykeeper reload`.
pub fn reload(args: &OrderArgs) -> Result<(), Failure> {
    order(&args.socket, Ask::Reload)
}

/// `waykeeper policy set`.
pub fn set_policy(args: SetArgs) -> Result<(), Failure> {
    let mut settings = Table::new();
    for (key, value) in args.set {
        if settings.insert(key.clone(), value).is_some() {
            return Err(Failure::bad_input(format!("--set {key}: given twice; give it once")));
        }
    }
    order(&args.socket, Ask::SetPolicy { name: args.name, settings })
}

fn order(socket: &SocketArgs, ask: Ask) -> Result<(), Failure> {
    let done: Done = socket.connect(Client::ORDERS_PATIENCE)?.ask(ask)?;
    out::text(&format!("{}\n", printable(&done.text)))
}

/// `key=value`; what is no TOML value is text.
fn setting(text: &str) -> Result<(String, Value), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            let value = value.trim();
            let read = format!("v = {value}").parse::<Table>().ok().filter(|table| table.len() == 1);
            let read = read.and_then(|mut table| table.remove("v"));
            // JSON, which carries it, has no dates and no numbers that are none.
            match read.unwrap_or_else(|| Value::String(value.to_owned())) {
                Value::Datetime(_) => Err(format!("{value} is a date, and no policy takes one")),
                Value::Float(number) if !number.is_finite() => Err(format!("{value} is not finite")),
                value => Ok((key.trim().to_owned(), value)),
            }
        }
        _ => Err("write it as key=value, like stable_interval_s=5".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_toml_values_or_text() {
        let value = |text: &str| setting(text).map(|(_, value)| value);
        assert_eq!(value("a=5"), Ok(Value::Integer(5)));
        assert_eq!(value("a = 0.3"), Ok(Value::Float(0.3)));
        assert_eq!(value("a=true"), Ok(Value::Boolean(true)));
        assert_eq!(value("a=[1, 2]"), Ok(Value::Array(vec![Value::Integer(1), Value::Integer(2)])));
        assert_eq!(value("a=0x7ff ways"), Ok(Value::String("0x7ff ways".to_owned())));
        assert_eq!(value("a=5\nb=6"), Ok(Value::String("5\nb=6".to_owned())));
        assert_eq!(value("a=x=y"), Ok(Value::String("x=y".to_owned())));
        for refused in ["a", "=5", "", "a=nan", "a=1979-05-27"] {
            assert!(value(refused).is_err(), "{refused}");
        }
    }
}
