//! What the policy is worth, as the control socket tells it. Must not know how it is measured.

use crate::Published;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use waykeeper_control::{Estimate, Worth, WorthSource};

/// What the policy is worth: progress since the state as found; 1.1 is 10 % better.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct WorthStatus {
    /// How progress under the layout as found is known; absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<WorthSource>,
    /// Why it is not known; absent if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// Seconds since it was measured or foreseen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_s: Option<f64>,
    /// HPWs together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hpw: Option<WorthRatio>,
    /// LPWs together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lpw: Option<WorthRatio>,
    /// Each tenant that was measured, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tenants: BTreeMap<String, WorthRatio>,
}

/// Progress relative to that under the layout as found.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct WorthRatio {
    /// The ratio.
    pub ratio: f64,
    /// Its standard error.
    pub error: f64,
}

impl From<Estimate> for WorthRatio {
    fn from(estimate: Estimate) -> WorthRatio {
        WorthRatio { ratio: estimate.value, error: estimate.error }
    }
}

impl WorthStatus {
    /// That of `published`.
    pub fn of(published: &Published) -> WorthStatus {
        let known = match &published.record.worth {
            Worth::Unknown(why) => {
                return WorthStatus { unknown: Some(why.to_string()), ..WorthStatus::default() };
            }
            Worth::Known(known) => known,
        };
        let tenants = published.groups.iter().filter_map(|group| {
            known.tenants.get(&group.id).map(|it| (group.name.clone(), WorthRatio::from(*it)))
        });
        WorthStatus {
            from: Some(known.from),
            unknown: None,
            age_s: Some(known.age_s),
            hpw: known.hpw.map(WorthRatio::from),
            lpw: known.lpw.map(WorthRatio::from),
            tenants: tenants.collect(),
        }
    }
}
