//! fio's words on our command line: each is refused, with what is meant here.
//!
//! Must not know what our words do. Job files, where these words hold, are `jobs`.

use clap::builder::UnknownArgumentValueParser;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};

/// What fio says, and what we do: a word of ours, or more to say.
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

/// Takes none of them.
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
                // Some may stand alone.
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
