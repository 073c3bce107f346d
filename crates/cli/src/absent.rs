//! Takes the place of `full.rs` in a build without the feature `full`: the help lists the commands of the full program,
//! and each of them fails with one line and exit code 2.

use crate::exit::Failure;
use clap::error::Error;
use clap::{Arg, ArgMatches, Command, FromArgMatches, Subcommand, value_parser};
use std::ffi::OsString;

/// The help text of a command that is not in this build.
const ABOUT: &str = "(not in this build; `make build` builds the full program)";

/// A set of commands that this build lacks; the value is the name that the user gave.
macro_rules! absent {
    ($(#[$about:meta])* $set:ident: $($name:literal)+) => {
        $(#[$about])*
        #[derive(Debug)]
        pub struct $set(String);

        impl FromArgMatches for $set {
            fn from_arg_matches(matches: &ArgMatches) -> Result<$set, Error> {
                Ok($set(matches.subcommand_name().unwrap_or_default().to_owned()))
            }

            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
                *self = $set::from_arg_matches(matches)?;
                Ok(())
            }
        }

        impl Subcommand for $set {
            fn augment_subcommands(command: Command) -> Command {
                command.subcommands([$($name),+].map(listed))
            }

            fn augment_subcommands_for_update(command: Command) -> Command {
                $set::augment_subcommands(command)
            }

            fn has_subcommand(name: &str) -> bool {
                [$($name),+].contains(&name)
            }
        }
    };
}

absent! {
    /// Commands of the full program.
    FullCommand: "doctor" "init" "ddio" "replay" "fleet" "probe" "memload" "restore" "daemon" "status" "top" "serve" "tenants" "pause" "resume" "reload" "hand-over"
        "demo" "vhost" "completions" "man"
}

absent! {
    /// Orders of `waykeeper policy` to the daemon.
    PolicyOrder: "set"
}

/// A command that accepts any arguments, `--help` too: the error is about the command, not about its arguments.
fn listed(name: &'static str) -> Command {
    let words = Arg::new("words").num_args(0..).trailing_var_arg(true).allow_hyphen_values(true).hide(true);
    Command::new(name).about(ABOUT).disable_help_flag(true).arg(words.value_parser(value_parser!(OsString)))
}

fn not_here(name: &str) -> Failure {
    Failure::bad_input(format!("this build has no `{name}`; `make build` builds the full program"))
}

/// Refuses a command of the full program.
pub fn full(command: FullCommand) -> Result<(), Failure> {
    Err(not_here(&command.0))
}

/// Refuses an order to the daemon.
pub fn order(order: PolicyOrder) -> Result<(), Failure> {
    Err(not_here(&format!("policy {}", order.0)))
}

#[cfg(all(test, feature = "full"))]
mod tests {
    use super::*;

    fn names<S: Subcommand>() -> Vec<String> {
        let commands = S::augment_subcommands(Command::new("waykeeper"));
        commands.get_subcommands().map(|command| command.get_name().to_owned()).collect()
    }

    #[test]
    fn every_command_of_the_full_program_is_listed() {
        assert_eq!(names::<FullCommand>(), names::<crate::full::FullCommand>());
        assert_eq!(names::<PolicyOrder>(), names::<crate::full::PolicyOrder>());
    }

    #[test]
    fn a_command_is_refused_by_name_whatever_its_arguments_are() {
        for words in ["daemon", "vhost --help", "vhost enter /x -- ls --help", "ddio set --ways 2"] {
            let command = FullCommand::augment_subcommands(Command::new("waykeeper"));
            let words = std::iter::once("waykeeper").chain(words.split(' '));
            let asked = words.clone().nth(1).unwrap();
            let matches = command.try_get_matches_from(words).unwrap();
            let failure = full(FullCommand::from_arg_matches(&matches).unwrap()).unwrap_err();
            assert_eq!(
                failure.line(),
                format!("this build has no `{asked}`; `make build` builds the full program")
            );
        }
    }
}
