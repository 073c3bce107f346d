//! fio's words on our command line: each is refused, with what is meant here.
//!
//! fio's options on our command line: each is refused, and the error names our option. Must not know what our options
//! do. In job files (`jobs`) fio's options are valid.

use clap::builder::UnknownArgumentValueParser;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};

/// fio's option, our option, and further text for the error.
const WORDS: [(&[&str], Option<&str>, Option<&str>); 12] = [
    (
        &["rw", "readwrite"],
        Some("--op"),
        Some("`--op write` is fio's rw=read: it names what the device does to memory"),
    ),
    (&["bs", "blocksize"], Some("--block-size"), None),
    (&["iodepth"], Some("--depth"), None),
    (&["numjobs"], Some("--workers"), None),
    (&["runtime", "time_based"], Some("--time"), None),
    (
        &["size", "io_size"],
        Some("--blocks"),
        Some("--blocks and --commands end a run, --create creates a file"),
    ),
    (&["number_ios"], Some("--commands"), None),
    (&["rate"], Some("--limit-bytes"), None),
    (&["rate_iops"], Some("--limit-commands"), None),
    (&["ioengine"], Some("--engine"), None),
    (&["filename"], None, Some("the target is a plain argument: `waykeeper memload FILE`")),
    (&["direct"], None, Some("all I/O is direct; the page cache is never used")),
];

/// Refuses all of them.
#[derive(Debug)]
pub struct FioWords;

impl Args for FioWords {
    fn augment_args(command: Command) -> Command {
        command.args(WORDS.iter().flat_map(|(names, word, more)| {
            names.iter().map(move |name| {
                let parser = match (word, more) {
                    (Some(word), None) => UnknownArgumentValueParser::suggest_arg(*word),
                    (Some(word), Some(more)) => {
                        UnknownArgumentValueParser::suggest_arg(*word).and_suggest(*more)
                    }
                    (None, more) => UnknownArgumentValueParser::suggest(more.unwrap_or_default()),
                };
                // Some have no value.
                Arg::new(*name)
                    .long(*name)
                    .hide(true)
                    .num_args(0..=1)
                    .default_missing_value("")
                    .value_parser(parser)
            })
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        FioWords::augment_args(command)
    }
}

impl FromArgMatches for FioWords {
    fn from_arg_matches(_: &ArgMatches) -> Result<FioWords, Error> {
        Ok(FioWords)
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), Error> {
        Ok(())
    }
}
