//! The points of a sweep, one at a time: each combination of swept values, and the scenario with them set. Must not know
//! what is done at a point.

use super::error::RunError;
use super::{KeptRuns, identity};
use crate::results::SweepValue;
use indexmap::IndexMap;
use std::sync::Arc;
use waykeeper_machine::{Scenario, ScenarioSource, SweptKey, shown};

/// Swept keys and their values.
pub type At = IndexMap<String, SweepValue>;

/// One combination of swept values; without a sweep there is one empty combination.
#[derive(Debug)]
pub(super) struct Point {
    pub at: At,
    pub scenario: Arc<Scenario>,
    /// The hash of all that determines its simulations apart from policy and seed; none where runs are not kept.
    pub identity: Option<String>,
}

/// All points of a scenario's sweep; none is read until it is asked for.
#[derive(Debug)]
pub(crate) struct Points {
    /// The scenario without its sweep, so that a point's copy does not hold the values of all points.
    source: ScenarioSource,
    sweeps: Vec<SweptKey>,
}

impl Points {
    pub fn new(source: &ScenarioSource, sweeps: &[SweptKey]) -> Points {
        Points { source: source.without_sweep(), sweeps: sweeps.to_vec() }
    }

    /// How many there are. The scenario's reader bounds them.
    pub fn count(&self) -> usize {
        self.sweeps.iter().map(|sweep| sweep.values.len()).product()
    }

    /// Values and source of a point; the values of the last key change first.
    pub fn source(&self, mut index: usize) -> Result<(At, ScenarioSource), RunError> {
        let mut chosen = Vec::with_capacity(self.sweeps.len());
        for sweep in self.sweeps.iter().rev() {
            chosen.push((sweep, &sweep.values[index % sweep.values.len()]));
            index /= sweep.values.len();
        }
        let mut source = self.source.clone();
        let mut at = At::new();
        for (sweep, value) in chosen.into_iter().rev() {
            source.set(&sweep.key, value)?;
            at.insert(sweep.key.clone(), sweep_value(value));
        }
        Ok((at, source))
    }

    /// A point, read and checked; with its identity where runs are kept.
    pub(super) fn read(&self, index: usize, kept: Option<&KeptRuns>) -> Result<Point, RunError> {
        let (at, source) = self.source(index)?;
        let scenario = source.read()?;
        let identity = kept.and_then(|kept| identity::of_point(&source, &scenario, &kept.files));
        Ok(Point { at, scenario: Arc::new(scenario), identity })
    }
}

fn sweep_value(value: &toml::Value) -> SweepValue {
    match value {
        toml::Value::Boolean(flag) => SweepValue::Flag(*flag),
        toml::Value::Integer(number) => SweepValue::Integer(*number),
        toml::Value::Float(number) => SweepValue::Number(*number),
        other => SweepValue::Text(shown(other)),
    }
}
