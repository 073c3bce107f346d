//! Measured and modelled shares of hits, row by row.

use crate::file::{ExperimentError, ExperimentFile, MeasuredExperiment};
use crate::trial::{Machine, Seen};
use rayon::prelude::*;
use serde::Serialize;
use waykeeper_silicon::{ChipSpec, Sampling};

/// A row that is farther from the measurement than this is called far: thrice what is asked of the mean.
pub const FAR: f64 = 0.15;

/// How much is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Sets of the caches.
    pub sampling: Sampling,
    /// Machines with memory at other places.
    pub seeds: u32,
    /// Trials of each row on each machine.
    pub trials: u32,
}

/// One row of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct ComparedRow {
    /// The file that has it.
    pub file: String,
    /// The experiment.
    pub experiment: String,
    /// The quantity that the rows of the experiment vary.
    pub x: f64,
    /// What that is, with its unit.
    pub x_is: String,
    /// Share of hits of the real chip.
    pub measured: f64,
    /// Share of hits of the model; absent if it cannot tell.
    pub model: Option<f64>,
    /// Why the model cannot tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// Of the one from the other, absolute.
    pub distance: Option<f64>,
}

/// All rows.
#[derive(Clone, Debug, Serialize)]
pub struct ChipComparison {
    /// In the order of the files.
    pub rows: Vec<ComparedRow>,
    /// Mean of the distances; absent if none is known.
    pub mean_distance: Option<f64>,
}

/// Runs the experiments of files on the model of a chip. Same arguments, same result.
///
/// # Errors
/// If a chip's memory does not hold the regions of a file.
pub fn compare(
    chip: &ChipSpec,
    files: &[(String, ExperimentFile)],
    effort: Effort,
) -> Result<ChipComparison, ExperimentError> {
    let all: Vec<(&(String, ExperimentFile), &MeasuredExperiment)> =
        files.iter().flat_map(|named| named.1.experiments.iter().map(move |one| (named, one))).collect();
    let rows: Result<Vec<Vec<ComparedRow>>, ExperimentError> =
        all.par_iter().map(|((name, file), experiment)| run(chip, name, file, experiment, effort)).collect();
    let rows: Vec<ComparedRow> = rows?.into_iter().flatten().collect();
    Ok(ChipComparison { mean_distance: mean_distance(&rows), rows })
}

/// Mean of the distances that are known; absent if none is.
pub fn mean_distance<'a>(rows: impl IntoIterator<Item = &'a ComparedRow>) -> Option<f64> {
    let known: Vec<f64> = rows.into_iter().filter_map(|row| row.distance).collect();
    (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
}

/// The rows of one experiment. Trials take turns over the rows, as those that were measured.
fn run(
    chip: &ChipSpec,
    name: &str,
    file: &ExperimentFile,
    experiment: &MeasuredExperiment,
    effort: Effort,
) -> Result<Vec<ComparedRow>, ExperimentError> {
    let mut all = vec![Seen::default(); experiment.rows.len()];
    let cores = experiment.cores();
    let (seeds, unknown) = if cores > chip.cores as usize {
        (0, format!("needs {cores} cores"))
    } else {
        (effort.seeds, "no simulated line; simulate more sets".to_owned())
    };
    for seed in 1..=u64::from(seeds) {
        let mut machine = Machine::new(chip, file, effort.sampling, seed)
            .map_err(|why| ExperimentError::Memory { file: name.to_owned(), why })?;
        for _ in 0..effort.trials {
            for ((x, _), all) in experiment.rows.iter().zip(&mut all) {
                let seen = machine.trial(experiment, *x);
                all.lines += seen.lines;
                all.mlc += seen.mlc;
                all.llc += seen.llc;
            }
        }
    }
    let row = |(&(x, measured), seen): (&(f64, f64), Seen)| {
        let hits = seen.mlc as f64 + seen.llc as f64 * experiment.llc_hits_seen;
        let model = (seen.lines > 0).then(|| hits / seen.lines as f64);
        ComparedRow {
            file: name.to_owned(),
            experiment: experiment.name.clone(),
            x,
            x_is: experiment.x.clone(),
            measured,
            model,
            unknown: model.is_none().then(|| unknown.clone()),
            distance: model.map(|model| (measured - model).abs()),
        }
    };
    Ok(experiment.rows.iter().zip(all).map(row).collect())
}
