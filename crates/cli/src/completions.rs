//! `waykeeper completions`: completion scripts of shells, from the definitions of the help.
//!
//! Must not know any subcommand.

use crate::args::Cli;
use crate::exit::Failure;
use crate::out;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Examples of `waykeeper completions`.
pub const EXAMPLES: &str = "\
Examples:
  Load completions into this bash
    source <(waykeeper completions bash)
  Install them for one user of fish
    waykeeper completions fish > ~/.config/fish/completions/waykeeper.fish

`make install` installs the scripts for bash, zsh and fish.";

/// Arguments of `waykeeper completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// Shell for which the script is printed
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script.
pub fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "waykeeper", &mut script);
    out::text(&String::from_utf8_lossy(&script))
}
