//! Virtual servers with chips that are in no table.

// Each test program uses a part of this.
#![allow(dead_code)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use waykeeper_host::Host;
use waykeeper_machine::{FaultyServer, RunOptions, ScenarioSource, VirtualServer};
use waykeeper_probe::experiment::{MeasurementTimes, ProbeExperiment};
use waykeeper_silicon::{ChipSpec, Sampling};

/// Two forwarders, one that reads headers only and one that reads payloads; a co-runner that scans and one that chases
/// pointers.
pub const SCENARIO: &str = include_str!("../../../../../scenarios/probe.toml");

/// A server with text replacements in its chip and its scenario.
pub fn server(chip: &str, chip_changes: &[(&str, &str)], changes: &[(&str, &str)]) -> FaultyServer {
    let replaced = |text: &str, changes: &[(&str, &str)]| {
        changes.iter().fold(text.to_owned(), |text, (from, to)| {
            assert!(text.contains(from), "{from} is not in\n{text}");
            text.replace(from, to)
        })
    };
    let folder = tempfile::tempdir().unwrap();
    let spec = replaced(ChipSpec::built_in_text(chip).unwrap(), chip_changes);
    std::fs::write(folder.path().join("chip.toml"), spec).unwrap();
    let text = format!("chip = \"chip.toml\"\n{}", replaced(SCENARIO, changes));
    scenario_server(&text, Some(folder.path()))
}

/// The server of a scenario's text; its files are in `folder`.
pub fn scenario_server(text: &str, folder: Option<&Path>) -> FaultyServer {
    let source = ScenarioSource::parse("probe", text, folder.map(Path::to_owned)).unwrap();
    let scenario = source.read().unwrap_or_else(|error| panic!("{error}"));
    let options = RunOptions { seed: 1, sample_seed: 1, sampling: Sampling::one_in(32).unwrap() };
    FaultyServer::new(VirtualServer::new(Arc::new(scenario), options).unwrap())
}

/// Measures `host` on a test bench, and restores it.
pub fn on_stand<R>(host: &mut dyn Host, sample: impl FnOnce(&mut ProbeExperiment<'_>) -> R) -> R {
    let stop = AtomicBool::new(false);
    let mut reported = |_: u64| {};
    let mut experiment = ProbeExperiment::new(host, MeasurementTimes::QUICK, &stop, &mut reported).unwrap();
    let seen = sample(&mut experiment);
    experiment.restore().unwrap();
    seen
}
