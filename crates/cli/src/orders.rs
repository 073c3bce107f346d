//! `waykeeper pause`, `resume`, `reload`, `hand-over` and `policy set`: orders to the daemon, each one request and one
//! answer.
//!
//! Must not check them: only the daemon knows its machine.

use crate::daemon_client::SocketArgs;
use crate::exit::Failure;
use crate::{duration, out};
use clap::Args;
use std::time::Duration;
use toml::{Table, Value};
use waykeeper_service::protocol::{ControlCommand, OrderResult};
use waykeeper_service::{Client, printable};

/// Examples of `waykeeper pause`.
pub const PAUSE_EXAMPLES: &str = "\
Examples:
  waykeeper pause              the policy stops deciding, the knobs keep their values
  waykeeper pause --release    also restore every knob to its original value

Either lasts until `waykeeper resume`. Exit codes: 1 the policy is paused but a knob could not be
restored (it is named), 3 no daemon is running, 4 permission denied (only root may pause the
daemon), 5 the daemon is busy.";

/// Examples of `waykeeper resume`.
pub const RESUME_EXAMPLES: &str = "\
Examples:
  waykeeper resume    the policy decides again from the next step on";

/// Examples of `waykeeper reload`.
pub const RELOAD_EXAMPLES: &str = "\
Examples:
  waykeeper reload    like SIGHUP, and prints what changed

A configuration with a mistake is refused (exit code 2); the one in force stays in force.";

/// Examples of `waykeeper hand-over`.
pub const HAND_OVER_EXAMPLES: &str = "\
Examples:
  waykeeper hand-over && systemctl restart waykeeper    upgrade: no tenant loses its ways meanwhile
  waykeeper hand-over --within 10m                      before a container has a new image

The order changes nothing by itself. If the daemon is stopped (SIGTERM) within the time, it restores
no knob: groups, masks and DCA stay in force, and the journal keeps their original values. The next
daemon that starts within the same time takes them over. After that time, or if no daemon is to
follow, `waykeeper restore` restores every knob.";

/// Examples of `waykeeper policy set`.
pub const SET_EXAMPLES: &str = "\
Examples:
  waykeeper policy set a4                              a4 with its default settings
  waykeeper policy set a4 --set stable_interval_s=5    a4 with one setting changed

Settings that are not given have their defaults (`waykeeper policy describe a4`). The change lasts
until the daemon ends or reloads its configuration.";

/// Arguments of an order that has none of its own.
#[derive(Args, Debug)]
pub struct OrderArgs {
    #[command(flatten)]
    socket: SocketArgs,
}

/// Arguments of `waykeeper pause`.
#[derive(Args, Debug)]
pub struct PauseArgs {
    /// Also restore every knob to its original value for the time of the pause
    #[arg(long)]
    release: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

/// Arguments of `waykeeper hand-over`.
#[derive(Args, Debug)]
pub struct HandOverArgs {
    /// Time in which this daemon must be stopped and the next one started, up to 24h
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = within)]
    within: Duration,
    #[command(flatten)]
    socket: SocketArgs,
}

/// A time above 0, at most a day, as the daemon accepts it.
fn within(text: &str) -> Result<Duration, String> {
    const LONGEST: Duration = Duration::from_secs(24 * 3600);
    let time = duration::above_zero(text)?;
    if time <= LONGEST { Ok(time) } else { Err(format!("`{text}` is longer than a day; write at most 24h")) }
}

/// Arguments of `waykeeper policy set`.
#[derive(Args, Debug)]
pub struct SetArgs {
    /// Name of the policy
    name: String,
    /// Setting of the policy, such as stable_interval_s=5; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    set: Vec<(String, Value)>,
    #[command(flatten)]
    socket: SocketArgs,
}

/// `waykeeper pause`.
pub fn pause(args: &PauseArgs) -> Result<(), Failure> {
    order(&args.socket, ControlCommand::Pause { release: args.release })
}

/// `waykeeper resume`.
pub fn resume(args: &OrderArgs) -> Result<(), Failure> {
    order(&args.socket, ControlCommand::Resume)
}

/// `waykeeper reload`.
pub fn reload(args: &OrderArgs) -> Result<(), Failure> {
    order(&args.socket, ControlCommand::Reload)
}

/// `waykeeper hand-over`.
pub fn hand_over(args: &HandOverArgs) -> Result<(), Failure> {
    order(&args.socket, ControlCommand::HandOver { within_s: args.within.as_secs_f64() })
}

/// `waykeeper policy set`.
pub fn set_policy(args: SetArgs) -> Result<(), Failure> {
    let mut settings = Table::new();
    for (key, value) in args.set {
        if settings.insert(key.clone(), value).is_some() {
            return Err(Failure::bad_input(format!("--set {key}: given twice; give it once")));
        }
    }
    order(&args.socket, ControlCommand::SetPolicy { name: args.name, settings })
}

fn order(socket: &SocketArgs, command: ControlCommand) -> Result<(), Failure> {
    let done: OrderResult = socket.connect(Client::ORDER_TIMEOUT)?.ask(command)?;
    out::text(&format!("{}\n", printable(&done.text)))
}

/// `key=value`; text that is not a TOML value is a string.
fn setting(text: &str) -> Result<(String, Value), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            let value = value.trim();
            let read = format!("v = {value}").parse::<Table>().ok().filter(|table| table.len() == 1);
            let read = read.and_then(|mut table| table.remove("v"));
            // The request is JSON, which has no dates and no NaN or infinity.
            match read.unwrap_or_else(|| Value::String(value.to_owned())) {
                Value::Datetime(_) => Err(format!(
                    "{value} is a date, which no policy setting accepts; write a number, true, false or a \
                     text"
                )),
                Value::Float(number) if !number.is_finite() => {
                    Err(format!("{value} is not a finite number; write a finite one"))
                }
                value => Ok((key.trim().to_owned(), value)),
            }
        }
        _ => Err("write KEY=VALUE, for example stable_interval_s=5".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hand_over_takes_up_to_a_day() {
        assert_eq!(within("24h"), Ok(Duration::from_secs(86_400)));
        assert_eq!(within("90"), Ok(Duration::from_secs(90)));
        for refused in ["0", "25h", "soon"] {
            assert!(within(refused).is_err_and(|why| why.contains(refused)), "{refused}");
        }
    }

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
