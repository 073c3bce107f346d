//! Scenarios, and each point of their sweeps.
#![no_main]

use libfuzzer_sys::fuzz_target;
use waykeeper_fuzz::one_line;
use waykeeper_machine::{ScenarioError, ScenarioSource};

/// Points of a sweep that are read.
const POINTS: usize = 4;

fn told<T>(result: Result<T, ScenarioError>) -> Option<T> {
    result.inspect_err(|why| one_line(why)).ok()
}

fuzz_target!(|text: &str| {
    let Some(source) = told(ScenarioSource::parse("fuzz.toml", text, None)) else { return };
    let Some(scenario) = told(source.read()) else { return };
    told(source.check_sweeps(&scenario.sweeps));
    for sweep in &scenario.sweeps {
        one_line(&source.place(&sweep.key));
        for value in sweep.values.iter().take(POINTS) {
            let mut point = source.clone();
            if told(point.set(&sweep.key, value)).is_some() {
                told(point.read());
            }
        }
    }
});
