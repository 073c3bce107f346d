//! What was foreseen of a tenant against what was measured. It must not know layouts.

use super::super::progress::Progress;
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_calibration::Candidate;
use waykeeper_units::WorkloadId;

/// Predictions in turn that must be wrong before a tenant counts as not predictable. Assumption: one may be chance.
const IN_TURN: u32 = 2;

/// How well the progress of each tenant was foreseen.
#[derive(Clone, Debug, Default)]
pub(super) struct Forecast {
    /// Wrong predictions in turn.
    wrong: BTreeMap<WorkloadId, u32>,
}

impl Forecast {
    /// Compares a candidate with what was measured under it; `before` is the progress when it was asked for. Returns the
    /// tenants that became not predictable by this, with the error of their progress, a ratio.
    pub fn note(
        &mut self,
        candidate: &Candidate,
        measured: &Progress,
        before: &Progress,
        error_max: f64,
    ) -> Vec<(WorkloadId, f64)> {
        let mut lost = Vec::new();
        for (id, expected) in &candidate.tenants {
            let Some(ratio) = measured.ratio(before, *id) else { continue };
            let error = (ratio - expected.value).abs();
            let wrong = self.wrong.entry(*id).or_default();
            *wrong = if error > error_max { *wrong + 1 } else { 0 };
            if *wrong == IN_TURN {
                lost.push((*id, error));
            }
        }
        lost
    }

    /// The tenants whose last predictions were wrong.
    pub fn unpredictable(&self) -> BTreeSet<WorkloadId> {
        self.wrong.iter().filter(|(_, times)| **times >= IN_TURN).map(|(id, _)| *id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::fixture::{progress, server};
    use super::*;
    use waykeeper_calibration::Estimate;
    use waykeeper_host::Plan;

    #[test]
    fn two_wrong_predictions_in_turn_make_a_tenant_unpredictable_and_a_right_one_ends_it() {
        let server = server(2);
        let before = progress(&server, &[1.0, 1.0]);
        let one = Estimate::exact(1.0);
        let tenants = [(WorkloadId(0), Estimate::exact(1.2)), (WorkloadId(1), one)].into_iter().collect();
        let candidate = Candidate { plan: Plan::default(), tenants, hpw: one, lpw: one };
        let mut forecast = Forecast::default();
        // The HPW was foreseen at 1.2 and measures 1.1: off by 0.1.
        let measured = progress(&server, &[1.1, 1.0]);
        assert_eq!(forecast.note(&candidate, &measured, &before, 0.08), []);
        let lost = forecast.note(&candidate, &measured, &before, 0.08);
        assert!(matches!(lost[..], [(WorkloadId(0), error)] if (error - 0.1).abs() < 1e-12), "{lost:?}");
        assert_eq!(forecast.unpredictable(), BTreeSet::from([WorkloadId(0)]));
        forecast.note(&candidate, &progress(&server, &[1.2, 1.0]), &before, 0.08);
        assert!(forecast.unpredictable().is_empty());
    }
}
