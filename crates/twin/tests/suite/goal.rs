//! The goal of the questions that the twin's tests, bench and example ask. It must not know layouts.

use waykeeper_calibration::Goal;

/// LPWs keep 97 %, HPWs 95 %; progress on a NIC counts as that of others.
pub(crate) const GOAL: Goal = Goal {
    lpw_floor: 0.97,
    lpw_each: 0.97,
    gain_per_loss: 2.0,
    hpw_floor: 0.95,
    lpw_weight: 0.25,
    latency_weight: 1.0,
    llc_cost: 0.5,
    memory_cost: 2.0,
};
