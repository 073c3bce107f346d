//! The result of a sweep: a curve, each point a full result.
//!
//! Must not know how a point is run. A point's performance ratios are relative to the same point's
//! baseline, so a curve of ratios compares policies, not points.

use super::{MissingRun, RunSummary};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The schema of [`SweepSummary`]; its points have the schema of a run.
pub const SWEEP_SCHEMA: &str = "waykeeper.sweep/2";

/// The result of a scenario that sweeps one or two keys.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SweepSummary {
    /// [`SWEEP_SCHEMA`].
    pub schema: String,
    /// Version of Waykeeper that made it.
    pub version: String,
    /// Name of the scenario.
    pub scenario: String,
    /// What the scenario shows, in its own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// Wall-clock seconds of the whole sweep.
    #[serde(default, skip_serializing_if = "super::metrics::not_available")]
    pub wall_s: Option<f64>,
    /// True if the sweep was interrupted before all its simulations had ended.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub partial: bool,
    /// The simulations that the numbers lack, of a partial result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingRun>,
    /// The keys swept, outermost first.
    pub keys: Vec<SweepKey>,
    /// One point per combination, the last key changes fastest.
    pub points: Vec<SweepPoint>,
}

/// One key that is swept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SweepKey {
    /// Its name in the scenario, for example `workload.xmem.mask`.
    pub key: String,
    /// Its label on an axis, with its unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// One point of the curve.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SweepPoint {
    /// The swept keys' values here, in the order of `keys`.
    pub at: IndexMap<String, SweepValue>,
    /// The result.
    pub run: RunSummary,
}

/// A value a key is swept over.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SweepValue {
    /// `true` or `false`.
    Flag(bool),
    /// A whole number.
    Integer(i64),
    /// Any other number.
    Number(f64),
    /// Anything else, way masks and sizes with units among them.
    Text(String),
}

impl SweepValue {
    /// The value on a numeric axis, if it is a number.
    pub fn number(&self) -> Option<f64> {
        match self {
            SweepValue::Integer(number) => Some(*number as f64),
            SweepValue::Number(number) => Some(*number).filter(|number| number.is_finite()),
            SweepValue::Flag(_) | SweepValue::Text(_) => None,
        }
    }
}

impl fmt::Display for SweepValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SweepValue::Flag(flag) => write!(f, "{flag}"),
            SweepValue::Integer(number) => write!(f, "{number}"),
            SweepValue::Number(number) => write!(f, "{number}"),
            SweepValue::Text(text) => f.write_str(text),
        }
    }
}

impl SweepKey {
    /// Its label, or its name.
    pub fn title(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.key)
    }
}

impl SweepSummary {
    /// The curve as in `summary.json`.
    ///
    /// # Errors
    /// When serde_json refuses, which the types rule out.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }

    /// The curve without wall-clock times: same inputs, same bytes.
    ///
    /// # Errors
    /// As [`SweepSummary::to_json`].
    pub fn deterministic_json(&self) -> Result<String, serde_json::Error> {
        let mut timeless = SweepSummary { wall_s: None, ..self.clone() };
        timeless.points.iter_mut().for_each(|point| point.run.wall_s = None);
        timeless.to_json()
    }

    /// Names of the policies at any point, in order of appearance.
    pub fn policy_names(&self) -> Vec<&str> {
        let names = self.points.iter().flat_map(|point| point.run.policies.keys());
        names.map(String::as_str).collect::<indexmap::IndexSet<_>>().into_iter().collect()
    }
}
