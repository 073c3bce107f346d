//! `waykeeper chip compare`: experiments that were measured on a real chip, run on a model.

use crate::exit::Failure;
use crate::{chip, listing, out};
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use waykeeper_experiments::{
    ChipComparison, ComparedRow, Effort, ExperimentError, ExperimentFile, FAR, compare as run, mean_distance,
};
use waykeeper_silicon::Sampling;

pub const EXAMPLES: &str = "\
Examples:
  waykeeper chip compare platinum-8570                the experiments that come with the program
  waykeeper chip compare mine.toml                    the same on a chip file of your own
  waykeeper chip compare platinum-8570 mine-exp.toml  experiments of your own
  waykeeper chip compare platinum-8570 --json         the same for programs

docs/real-chip.md has the keys of a file.";

/// What to run on what.
#[derive(Args, Debug)]
pub struct CompareArgs {
    /// Built-in chip, or path of a chip file (*.toml)
    #[arg(value_name = "CHIP")]
    chip: OsString,
    /// Files of experiments [default: those that come with the program]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Share of the caches' sets to simulate: exact (all), 1/2, 1/4, ... 1/256
    #[arg(long, value_name = "1/N|exact", default_value_t = Sampling::one_in(64).expect("a power of two"))]
    sets: Sampling,
    /// Machines to try each experiment on; each has its memory at other places
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: u32,
    /// Trials of each row on each machine
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    trials: u32,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub fn compare(args: CompareArgs) -> Result<(), Failure> {
    let chip = chip::open(&args.chip)?.spec;
    let files: Vec<(String, ExperimentFile)> = if args.files.is_empty() {
        ExperimentFile::shipped()
    } else {
        let read = |path: &PathBuf| Ok((path.display().to_string(), ExperimentFile::read(path)?));
        args.files
            .iter()
            .map(read)
            .collect::<Result<_, _>>()
            .map_err(|why: ExperimentError| Failure::bad_input(why))?
    };
    let effort = Effort { sampling: args.sets, seeds: args.seeds, trials: args.trials };
    let compared = run(&chip, &files, effort).map_err(Failure::bad_input)?;
    if args.json { out::json(&compared) } else { out::text(&table(&files, &compared)) }
}

/// A part per file: the rows, then the mean distance; at the end that of all.
fn table(files: &[(String, ExperimentFile)], compared: &ChipComparison) -> String {
    let mut text = String::new();
    for (name, file) in files {
        let rows: Vec<&ComparedRow> = compared.rows.iter().filter(|row| row.file == *name).collect();
        text += &format!("{name}: {} ({})\n", file.about, file.source);
        let heading = ["experiment", "x", "measured", "model", "distance", "verdict"];
        let mut cells = vec![heading.map(str::to_owned).to_vec()];
        cells.extend(rows.iter().map(|row| {
            vec![
                row.experiment.clone(),
                format!("{} {}", row.x, row.x_is),
                format!("{:.2}", row.measured),
                row.model.map_or_else(|| "cannot tell".to_owned(), |model| format!("{model:.2}")),
                row.distance.map_or_else(|| "-".to_owned(), |distance| format!("{distance:.2}")),
                verdict(row),
            ]
        }));
        text += &listing::columns(&cells);
        text += &format!("{}\n\n", summary(&rows));
    }
    text + &format!("all: {}\n", summary(&compared.rows.iter().collect::<Vec<_>>()))
}

fn verdict(row: &ComparedRow) -> String {
    let judged = row.distance.map(|distance| if distance > FAR { "far" } else { "near" });
    judged.map(str::to_owned).or_else(|| row.unknown.clone()).unwrap_or_default()
}

fn summary(rows: &[&ComparedRow]) -> String {
    let Some(mean) = mean_distance(rows.iter().copied()) else {
        return format!("the model cannot tell any of {} rows", rows.len());
    };
    let known: Vec<f64> = rows.iter().filter_map(|row| row.distance).collect();
    let far = known.iter().filter(|distance| **distance > FAR).count();
    let unknown = rows.len() - known.len();
    let unknown = if unknown > 0 { format!("; it cannot tell {unknown} more") } else { String::new() };
    format!("mean distance {mean:.3} over {} rows, {far} farther than {FAR}{unknown}", known.len())
}
