//! The types of the command line. The arguments of each subcommand are in its own file.

use crate::{best, capture, chip, exit, full, policy, run, scenario, trace};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use waykeeper_units::{Likeness, message, nearest, shown};

/// Bytes from which an argument is shortened in an error; a path is rarely longer (ours).
const LONG_ARGUMENT: usize = 200;

const EXAMPLES: &str = "\
Examples:
  waykeeper run                          compare policies on the flagship scenario, A4's mix
  waykeeper run a4-fig5                  reproduce one figure of a paper
  waykeeper run my.toml --policy a4      run your own scenario under one policy
  waykeeper policy describe a4           show a policy's inputs, knobs, states and settings
  waykeeper doctor                       list the counters and knobs of this machine

Exit codes: 0 success, 1 failure, 2 bad usage or bad input, 3 not supported by this platform,
4 permission denied, 5 resource in use or exhausted, 6 effect not confirmed, 130 interrupted.";

/// Measure how I/O devices and programs compete for the last-level cache, and manage it by policy.
///
/// `run` compares policies on a virtual server: a model of a Xeon with its NICs, SSDs and programs. `doctor`, `ddio`,
/// `probe` and `daemon` work on a real Linux host.
#[derive(Parser, Debug)]
#[command(name = "waykeeper", version, after_help = EXAMPLES, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: CliCommand,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum CliCommand {
    /// Run a scenario under one or more policies and compare them
    Run(run::RunArgs),
    /// Search the best static layout of a scenario, with which `run --policy best` compares policies
    Best(best::BestArgs),
    /// List, show and check scenarios
    #[command(subcommand, after_help = scenario::EXAMPLES)]
    Scenario(scenario::ScenarioCommand),
    /// List and describe policies; write your own; switch the daemon to another policy
    #[command(subcommand, after_help = policy::EXAMPLES)]
    Policy(policy::PolicyCommand),
    /// List and show the chips that the virtual server can model
    #[command(subcommand, after_help = chip::EXAMPLES)]
    Chip(chip::ChipCommand),
    /// Record, inspect and convert memory traces of real programs
    #[command(subcommand, after_help = trace::EXAMPLES)]
    Trace(trace::TraceCommand),
    /// Inspect packet captures that a scenario can replay
    #[command(subcommand, after_help = capture::EXAMPLES)]
    Capture(capture::CaptureCommand),
    /// Commands for a real host
    #[command(flatten)]
    Full(full::FullCommand),
}

impl Cli {
    /// The arguments of the program; ends it if they are wrong.
    pub fn read() -> Cli {
        let mut command = with_negative_numbers(Cli::command());
        let read = command.try_get_matches_from_mut(std::env::args_os());
        let read = read.and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches));
        let read = read.map_err(|error| with_words_that_are_no_text(error, &mut command));
        read.unwrap_or_else(|error| end(&with_nearest_command(error, &command).format(&mut command)))
    }
}

/// Names the words that are not UTF-8, of which clap says only that there are some.
fn with_words_that_are_no_text(error: clap::Error, command: &mut Command) -> clap::Error {
    if error.kind() != ErrorKind::InvalidUtf8 {
        return error;
    }
    let words: Vec<OsString> = std::env::args_os().filter(|word| word.to_str().is_none()).collect();
    let words = words.iter().map(|word| format!("`{}`", shown(&escaped(word)))).collect::<Vec<_>>();
    let what = format!(
        "a word that is no path is not UTF-8; of this command line these are not: {}",
        words.join(", ")
    );
    command.error(ErrorKind::InvalidUtf8, what)
}

/// A word with the bytes that are not UTF-8 as `\xff`.
fn escaped(word: &OsStr) -> String {
    let chunks = word.as_encoded_bytes().utf8_chunks();
    chunks.map(|chunk| format!("{}{}", chunk.valid(), chunk.invalid().escape_ascii())).collect()
}

/// Ends the program with the text of clap: help, version, or an error, in which long arguments are shortened.
fn end(error: &clap::Error) -> ! {
    let whole = error.render().to_string();
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let values = words.flat_map(|word| match word.split_once('=') {
        Some((_, value)) => vec![value.to_owned(), word],
        None => vec![word],
    });
    let text = values
        .filter(|value| value.len() > LONG_ARGUMENT)
        .fold(whole.clone(), |text, value| text.replace(&value, &shown(&value)));
    let lines: Vec<String> = text.lines().map(message).collect();
    if !error.use_stderr() {
        let written = error.print().and_then(|()| io::stdout().flush());
        let why = written.err().filter(|why| why.kind() != io::ErrorKind::BrokenPipe);
        let Some(why) = why else { std::process::exit(0) };
        exit::eprint_line(&format!("error: cannot write the output: {why}"));
        std::process::exit(exit::io_code(&why).into())
    }
    if lines.iter().eq(whole.lines()) {
        error.exit();
    }
    exit::eprint_line(&lines.join("\n"));
    std::process::exit(error.exit_code())
}

/// Adds the nearest command where clap suggests none, as for two exchanged letters in a short word. Commands below a
/// command keep clap's own suggestions.
fn with_nearest_command(mut error: clap::Error, command: &Command) -> clap::Error {
    let is_unknown = error.kind() == ErrorKind::InvalidSubcommand;
    let first = std::env::args_os().nth(1);
    let word = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) if is_unknown && first.is_some_and(|first| first == **word) => {
            word.clone()
        }
        _ => return error,
    };
    let hidden = |command: &&Command| !command.is_hide_set();
    let near =
        nearest(&word, command.get_subcommands().filter(hidden).map(Command::get_name), Likeness::Edits);
    if let (Some(near), None) = (near, error.get(ContextKind::SuggestedSubcommand)) {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![near.to_owned()]));
    }
    error
}

/// A negative number after an option is its value, which the option refuses with its range; clap would call it an
/// unknown option.
fn with_negative_numbers(command: Command) -> Command {
    let command = command.mut_args(|arg| {
        let is_option = arg.get_long().is_some() && arg.get_action().takes_values();
        if is_option { arg.allow_negative_numbers(true) } else { arg }
    });
    command.mut_subcommands(with_negative_numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::any::TypeId;
    use std::os::unix::ffi::OsStrExt;

    /// Numbers without a range of their own on the command line, and what checks them.
    const CHECKED_LATER: [(&str, &str); 23] = [
        ("best --lpw-floor", "the search, with its other settings"),
        ("demo --seed", SEED),
        ("demo --speed", "vhost::speed"),
        ("memload --blocks", END),
        ("memload --commands", END),
        ("memload --limit-commands", "the limiter, which clamps it"),
        ("memload --seed", SEED),
        ("memload interfere --blocks", END),
        ("memload interfere --commands", END),
        ("memload interfere --limit-commands", "the limiter, which clamps it"),
        ("memload interfere --seed", SEED),
        ("probe run --seed", SEED),
        ("run --seed", SEED),
        ("serve --seed", SEED),
        ("serve --speed", "Turn::check_speed"),
        ("top --seed", SEED),
        ("top --speed", "Turn::check_speed"),
        ("trace convert --limit", END),
        ("trace convert --skip", "the reader, which finds nothing behind the end"),
        ("trace record --limit", END),
        ("trace record --skip", "the recording, which finds nothing behind the end"),
        ("vhost --seed", SEED),
        ("vhost --speed", "vhost::speed"),
    ];
    const SEED: &str = "nothing: every number is a seed";
    const END: &str = "nothing: what is counted ends before";

    /// The options below a command that take a number and accept one that no range contains.
    fn without_range(command: &Command, path: &[&str], into: &mut Vec<String>) {
        let numbers = [
            TypeId::of::<u8>(),
            TypeId::of::<u16>(),
            TypeId::of::<u32>(),
            TypeId::of::<u64>(),
            TypeId::of::<usize>(),
            TypeId::of::<i64>(),
            TypeId::of::<f64>(),
        ];
        for option in command.get_arguments() {
            let kind = option.get_value_parser().type_id();
            let Some(name) = option.get_long().filter(|_| numbers.iter().any(|number| kind == *number))
            else {
                continue;
            };
            let is_refused = |value: &str| {
                let option = format!("--{name}={value}");
                let words = ["waykeeper"].into_iter().chain(path.iter().copied()).chain([option.as_str()]);
                let read = Cli::command().try_get_matches_from(words);
                read.is_err_and(|error| error.kind() == ErrorKind::ValueValidation)
            };
            if !is_refused("1e300") || !is_refused("18446744073709551615") {
                into.push(format!("{} --{name}", path.join(" ")));
            }
        }
        for below in command.get_subcommands() {
            let path: Vec<&str> = path.iter().copied().chain([below.get_name()]).collect();
            without_range(below, &path, into);
        }
    }

    #[test]
    fn a_word_that_is_no_text_is_escaped() {
        let word = OsStr::from_bytes(b"a\xc3\xa9\xff\n.toml");
        assert_eq!(escaped(word), "a\u{e9}\\xff\n.toml");
    }

    #[test]
    fn every_number_has_a_range() {
        let mut found = Vec::new();
        let mut command = Cli::command();
        command.build();
        without_range(&command, &[], &mut found);
        found.sort_unstable();
        assert_eq!(found, CHECKED_LATER.map(|(option, _)| option));
    }
}
