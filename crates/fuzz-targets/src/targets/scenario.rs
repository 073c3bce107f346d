//! Scenarios, and each point of their sweeps.

use crate::{checked, one_line};
use waykeeper_machine::ScenarioSource;

/// Points of a sweep that are read.
const POINTS: usize = 4;

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some(source) = checked(ScenarioSource::parse("fuzz.toml", text, None)) else { return };
    let Some(scenario) = checked(source.read()) else { return };
    checked(source.check_sweeps(&scenario.sweeps));
    for sweep in &scenario.sweeps {
        one_line(&source.place(&sweep.key));
        for value in sweep.values.iter().take(POINTS) {
            let mut point = source.clone();
            if checked(point.set(&sweep.key, value)).is_some() {
                checked(point.read());
            }
        }
    }
}
