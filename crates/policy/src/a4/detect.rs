//! A4's tests, one function each: numbers and thresholds in, a verdict with its causes out.
//!
//! It must not know states, masks or time. A test with a missing counter returns `None`, which changes nothing.

use super::config::Config;
use super::measure::Window;
use super::workloads::Unit;
use crate::Cause;
use std::collections::BTreeSet;
use waykeeper_units::{PortId, WorkloadId};

/// A ratio as a rounded percentage, for messages.
pub(super) fn percent(ratio: f64) -> String {
    format!("{:.0} %", ratio * 100.0)
}

/// LLC hit ratio of a workload that is not idle.
pub(super) fn hit_ratio(config: &Config, window: &Window, id: WorkloadId) -> Option<f64> {
    let busy = window.llc_references(id)? >= config.min_llc_refs;
    busy.then(|| window.llc_miss(id).map(|miss| 1.0 - miss)).flatten()
}

/// Did the hit ratio fall from `before` to `now` by more than HPW_LLC_HIT_THR (relative, algorithms.md 3.4)
/// and by more than the point guard?
pub(super) fn lost_hits(config: &Config, name: &str, before: f64, now: f64) -> Option<Vec<Cause>> {
    let loss = before - now;
    (loss > config.hpw_llc_hit_thr * before && loss > config.hit_point_guard).then(|| {
        vec![
            config.cause(
                format!("relative loss of LLC hit ratio of {name}"),
                loss / before,
                "hpw_llc_hit_thr",
            ),
            config.cause(format!("loss of LLC hit ratio of {name}"), loss, "hit_point_guard"),
        ]
    })
}

/// Did the hit ratio move from `before` to `now`, either way, by more than HPW_LLC_HIT_THR and by more than
/// the phase guard (algorithms.md 3.8)?
pub(super) fn moved_hits(config: &Config, name: &str, before: f64, now: f64) -> Option<Vec<Cause>> {
    let moved = (now - before).abs();
    (moved > config.hpw_llc_hit_thr * before && moved > config.phase_point_guard).then(|| {
        let relative = if before > 0.0 { moved / before } else { 1.0 };
        vec![
            config.cause(format!("relative change of LLC hit ratio of {name}"), relative, "hpw_llc_hit_thr"),
            config.cause(format!("change of LLC hit ratio of {name}"), moved, "phase_point_guard"),
        ]
    })
}

/// Phase change (algorithms.md 3.8 case 2): below the initial record, or away from the settled value.
///
/// Deviation: "below the initial record" counts only if the ratio is also below its settled value by more than the
/// point guard. Otherwise a zone that settled at a loss of 19 % would be searched again for every 2 % of noise, which
/// the resolution in 3.8 is meant to avoid.
pub(super) fn phase_changed(
    config: &Config,
    name: &str,
    initial: Option<f64>,
    settled: Option<f64>,
    now: f64,
) -> Option<Vec<Cause>> {
    let left_settled = settled.is_none_or(|settled| settled - now > config.hit_point_guard);
    let below = initial.filter(|_| left_settled).and_then(|initial| lost_hits(config, name, initial, now));
    below.or_else(|| moved_hits(config, name, settled?, now))
}

/// Storage antagonist (A4 s5.4, algorithms.md 3.5): all three of chip-wide DCA write misses, the storage
/// workloads' own LLC misses, and their share of all inbound I/O.
pub(super) fn leaks(
    config: &Config,
    window: &Window,
    unit: &Unit,
    known: &BTreeSet<PortId>,
) -> Option<Vec<Cause>> {
    let dca = window.dca_write_miss()?;
    let llc = window.llc_miss_of_all(&unit.members)?;
    let all = window.inbound_of_all(known).filter(|bytes| *bytes > 0.0)?;
    let share = window.inbound(&unit.ports)? / all;
    let leaks =
        dca > config.dmalk_dca_ms_thr && llc > config.dmalk_llc_ms_thr && share > config.dmalk_io_tp_thr;
    leaks.then(|| {
        vec![
            config.cause("DCA write miss ratio".to_owned(), dca, "dmalk_dca_ms_thr"),
            config.cause("LLC miss ratio of the storage workload".to_owned(), llc, "dmalk_llc_ms_thr"),
            config.cause("share of inbound I/O".to_owned(), share, "dmalk_io_tp_thr"),
        ]
    })
}

/// Non-I/O antagonist (A4 s5.5, algorithms.md 3.6): misses almost always, in the MLC and in the LLC.
pub(super) fn misses_everything(config: &Config, window: &Window, id: WorkloadId) -> Option<Vec<Cause>> {
    let references = window.llc_references(id)?;
    let (mlc, llc) = (window.mlc_miss(id)?, window.llc_miss(id)?);
    let misses = mlc > config.ant_mlc_miss_thr && llc > config.ant_llc_miss_thr;
    (misses && references >= config.min_llc_refs).then(|| {
        vec![
            config.cause("MLC miss ratio".to_owned(), mlc, "ant_mlc_miss_thr"),
            config.cause("LLC miss ratio".to_owned(), llc, "ant_llc_miss_thr"),
            config.cause("LLC references".to_owned(), references, "min_llc_refs"),
        ]
    })
}

/// Cause if `now` exceeds `base` by more than the named threshold. A threshold of 0 turns the test off.
pub(super) fn rose(config: &Config, what: String, base: f64, now: f64, thr: (&str, f64)) -> Option<Cause> {
    (thr.1 > 0.0 && now - base > thr.1 * base).then(|| config.cause(what, relative(base, now), thr.0))
}

/// Cause if `now` is below `base` by more than the named threshold. A threshold of 0 turns the test off.
pub(super) fn fell(config: &Config, what: String, base: f64, now: f64, thr: (&str, f64)) -> Option<Cause> {
    (thr.1 > 0.0 && base - now > thr.1 * base).then(|| config.cause(what, relative(base, now), thr.0))
}

/// Cause if `now` differs from `base`, either way, by more than the named threshold (algorithms.md 3.9).
pub(super) fn moved(config: &Config, what: String, base: f64, now: f64, thr: (&str, f64)) -> Option<Cause> {
    rose(config, what.clone(), base, now, thr).or_else(|| fell(config, what, base, now, thr))
}

/// Relative change, without sign; 1 where `base` is 0.
fn relative(base: f64, now: f64) -> f64 {
    if base > 0.0 { (now - base).abs() / base } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::super::config::Profile;
    use super::*;

    #[test]
    fn a_loss_must_pass_both_the_ratio_and_the_points() {
        let config = Config::of(Profile::Paper);
        let lost = |before, now| lost_hits(&config, "w", before, now).is_some();
        assert!(lost(0.60, 0.47)); // 21.7 %, 13 points
        assert!(!lost(0.60, 0.49)); // 18.3 %
        assert!(!lost(0.10, 0.06)); // 40 %, but 4 points: noise of a small ratio
        assert!(!lost(0.60, 0.90));
    }

    #[test]
    fn a_zone_that_settled_at_nineteen_percent_loss_is_not_upset_by_two_percent_of_noise() {
        // algorithms.md 3.8: initial 60 %, settled 48.6 % (19 % lost), now 47.6 % (20.7 % lost).
        let config = Config::of(Profile::Paper);
        let changed = |initial, settled, now| phase_changed(&config, "w", initial, settled, now).is_some();
        assert!(!changed(Some(0.60), Some(0.486), 0.476));
        assert!(changed(Some(0.60), Some(0.486), 0.42)); // 30 % under the record, 6.6 points under settled
        assert!(changed(Some(0.60), Some(0.50), 0.65)); // 30 % above settled: a new phase as well
        assert!(!changed(Some(0.60), Some(0.50), 0.59)); // 18 %
        assert!(!changed(None, None, 0.1)); // nothing to compare with
    }

    #[test]
    fn a_threshold_of_zero_is_off() {
        let config = Config::of(Profile::Paper);
        assert!(rose(&config, String::new(), 1.0, 9.0, ("bypass_mlc_miss_thr", 0.0)).is_none());
        assert!(rose(&config, String::new(), 1.0, 1.2, ("bypass_llc_miss_thr", 0.1)).is_some());
        assert!(fell(&config, String::new(), 1.0, 0.8, ("bypass_storage_thr", 0.1)).is_some());
        assert!(moved(&config, String::new(), 0.0, 0.1, ("restore_storage_thr", 0.3)).is_some());
    }
}
