//! `waykeeper chip`: the chips that the virtual server can model, as files to copy and change.

use crate::exit::Failure;
use crate::{chip_compare, listing, out};
use clap::Subcommand;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use waykeeper_machine::ChipFile;
use waykeeper_silicon::{ChipSpec, SpecError};

const LIST_EXAMPLES: &str = "\
Examples:
  waykeeper chip list            a table
  waykeeper chip list --json     the same for programs";

const SHOW_EXAMPLES: &str = "\
Examples:
  waykeeper chip show gold-6140                  print the file
  waykeeper chip show gold-6140 > mine.toml      copy it, to change the copy
  waykeeper chip show mine.toml --json           check the copy, and print it for programs

A scenario uses the copy with: chip = \"mine.toml\".";

/// Examples of the whole subcommand.
pub const EXAMPLES: &str = "\
Examples:
  waykeeper chip list                            the built-in chips
  waykeeper chip show gold-6140 > mine.toml      copy one, to change the copy
  waykeeper chip compare platinum-8570           its model beside what a real chip did";

/// What to do with chips.
#[derive(Subcommand, Debug)]
pub enum ChipCommand {
    /// List the built-in chips
    #[command(after_help = LIST_EXAMPLES)]
    List {
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Print a chip's file, with the source of every constant
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// Built-in chip, or path of a chip file (*.toml)
        name: OsString,
        /// Print JSON instead of the file
        #[arg(long)]
        json: bool,
    },
    /// Run measured experiments on a chip's model, and show what the real chip did beside it
    #[command(after_help = chip_compare::EXAMPLES)]
    Compare(chip_compare::CompareArgs),
}

/// Runs the subcommand.
pub fn chip(command: ChipCommand) -> Result<(), Failure> {
    match command {
        ChipCommand::List { json } => list(json),
        ChipCommand::Compare(args) => chip_compare::compare(args),
        ChipCommand::Show { name, json } => {
            let chip = open(&name)?;
            if json { out::json(&chip.spec) } else { out::text(&chip.text) }
        }
    }
}

/// A built-in chip, or a file. A name is text; a path need not be.
pub fn open(name: &OsStr) -> Result<ChipFile, Failure> {
    Ok(match name.to_str() {
        Some(name) => ChipFile::open(name, None)?,
        None => ChipFile::read(Path::new(name))?,
    })
}

fn list(json: bool) -> Result<(), Failure> {
    let chips = ChipSpec::built_in_names().map(ChipSpec::built_in).collect::<Result<Vec<_>, SpecError>>()?;
    if json {
        return out::json(&chips);
    }
    let heading = ["name", "cores", "GHz", "LLC", "ways", "DCA ways", "LLC kind"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(chips.iter().map(|chip| {
        vec![
            chip.name.clone(),
            chip.cores.to_string(),
            chip.ghz.to_string(),
            format!("{} MiB", chip.llc_bytes() as f64 / f64::from(1 << 20)),
            chip.llc.ways.to_string(),
            chip.llc.dca_ways.map_or_else(|| "none".to_owned(), |mask| mask.to_string()),
            match chip.llc.kind {
                waykeeper_silicon::LlcKind::NonInclusive => "non-inclusive".to_owned(),
                waykeeper_silicon::LlcKind::Inclusive => "inclusive".to_owned(),
            },
        ]
    }));
    out::text(&listing::columns(&rows))
}
