//! Tests whether the register of the DCA ways (IIO_LLC_WAYS, MSR 0xC8B) has an effect, and which values it accepts
//! (hardware.md 1.2 and 1.4; the way sweep of ddio-bench s4.4).
//!
//! Each value is tried. The effect is the change of the devices' misses when the accepted values with the fewest and
//! the most ways are set alternately; `ddio` of the crate `operator` judges it. Must not know sliding masks.

use crate::experiment::{ProbeError, ProbeExperiment};
use crate::stats;
use crate::verdict::{Confidence, ProbeVerdict};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use waykeeper_host::{Interval, Knob, KnobOutcome, Support};
use waykeeper_operator::ddio;
use waykeeper_units::WayMask;

/// Largest standard error of the miss share at which "no effect" is reported. Assumption: nine ways more or less change
/// the share by ten times as much on the virtual chips.
const MOST_FLICKER: f64 = 0.01;

/// Miss shares, with the fewest ways, from which more ways would show a change; outside, a missing change proves
/// nothing. Assumption: a share within 5 % of either end has little room to change.
const END: std::ops::Range<f64> = 0.05..0.95;

/// Effect of the register.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RegisterEffect {
    /// Device writes allocate in the ways that it holds.
    Acts,
    /// It accepts values and reads them back, without an effect.
    #[serde(rename = "dead")]
    NoEffect,
    /// The host has none, or does not allow setting it.
    Absent,
}

/// The values that it accepts.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AcceptedValues {
    /// Ways that all accepted values contain; may be empty.
    pub kept: WayMask,
    /// Fewest ways of an accepted value.
    pub fewest: u32,
    /// The smallest accepted value, as a number.
    pub least: WayMask,
    /// Most ways of an accepted value.
    pub most: u32,
    /// Values that were not accepted, with the host's reason.
    pub refused: Vec<(WayMask, String)>,
}

/// The results for the register.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RegisterVerdict {
    /// Effect of the register.
    pub acts: ProbeVerdict<RegisterEffect>,
    /// Accepted values.
    pub floor: ProbeVerdict<AcceptedValues>,
}

/// Number of waits, for the progress bar.
pub fn waits(rounds: u32) -> u64 {
    4 * u64::from(rounds) + 4
}

/// The values tried: every single way, every pair, and every number of ways from either end.
pub fn candidates(ways: u32) -> Vec<WayMask> {
    let singles = (0..ways).map(|low| WayMask::span(low, 1));
    let pairs = (0..ways.saturating_sub(1)).map(|low| WayMask::span(low, 2));
    let from_left = (1..=ways).map(|count| WayMask::span(ways - count, count));
    let from_right = (1..=ways).map(WayMask::full);
    let all: BTreeSet<WayMask> = singles.chain(pairs).chain(from_left).chain(from_right).collect();
    all.into_iter().collect()
}

/// Measures the register.
///
/// # Errors
/// Host errors; an interrupt.
pub fn measure(experiment: &mut ProbeExperiment<'_>) -> Result<RegisterVerdict, ProbeError> {
    let Some(first) = experiment.original_knobs().dca_ways() else {
        let why = match &experiment.inventory().dca_ways_switch {
            Support::No(why) => why.clone(),
            _ => "the register cannot be read".to_owned(),
        };
        let acts = ProbeVerdict::found(RegisterEffect::Absent, Confidence::High, vec![why.clone()]);
        return Ok(RegisterVerdict { acts, floor: ProbeVerdict::cannot_tell(why, "") });
    };
    let register = Some(format!("it held {first}"));
    let tried = try_all(experiment, first)?;
    let (Some(narrow), Some(wide)) = (tried.narrowest(), tried.widest()) else {
        let why = tried.refused.first().map_or_else(String::new, |(mask, why)| format!("{mask}: {why}"));
        let words = format!("the host accepts no value; {why}");
        let acts = ProbeVerdict::found(RegisterEffect::Absent, Confidence::High, vec![words.clone()])
            .beside(register);
        return Ok(RegisterVerdict { acts, floor: ProbeVerdict::cannot_tell(words, "") });
    };
    let floor = floor(&tried, narrow, wide);
    if narrow.count() == wide.count() {
        let why = tried.refused.first().map_or_else(String::new, |(mask, why)| format!("; {mask}: {why}"));
        let words = format!("the host accepts only {narrow}{why}");
        let acts =
            ProbeVerdict::found(RegisterEffect::Absent, Confidence::High, vec![words]).beside(register);
        return Ok(RegisterVerdict { acts, floor });
    }
    let (few, many) = in_turn(experiment, narrow, wide)?;
    let help = "traffic whose buffers overflow the fewest ways but fit better into the most, such as rings \
                of several MiB";
    let between = format!("with {narrow} and with {wide} in turn");
    let acts = match ddio::of_ways(&few, &many) {
        ddio::EffectVerdict::Seen(what) => {
            ProbeVerdict::found(RegisterEffect::Acts, Confidence::High, vec![between, what])
        }
        ddio::EffectVerdict::NotSeen(what) if !END.contains(&share(&few)) => {
            let why = "with the fewest ways almost all writes hit or almost all miss, so the share may not \
                       change even if the register has an effect";
            ProbeVerdict::cannot_tell(why, help).with([between, what])
        }
        // With noisy measurements, a missing effect does not prove that there is none.
        ddio::EffectVerdict::NotSeen(what) if flicker(&few).max(flicker(&many)) > MOST_FLICKER => {
            let why = "the load varies more than the register would change it";
            ProbeVerdict::cannot_tell(why, "a steadier load, or more time").with([between, what])
        }
        ddio::EffectVerdict::NotSeen(what) => {
            ProbeVerdict::found(RegisterEffect::NoEffect, Confidence::High, vec![between, what])
        }
        ddio::EffectVerdict::NotJudged(why) => ProbeVerdict::cannot_tell(why, help),
    };
    let floor = match acts.value() {
        Some(RegisterEffect::NoEffect) => floor.with(["the accepted values have no effect".to_owned()]),
        _ => floor,
    };
    Ok(RegisterVerdict { acts: acts.beside(register), floor })
}

struct Tried {
    taken: Vec<WayMask>,
    refused: Vec<(WayMask, String)>,
}

impl Tried {
    fn narrowest(&self) -> Option<WayMask> {
        self.taken.iter().copied().min_by_key(|mask| (mask.count(), mask.bits()))
    }

    fn widest(&self) -> Option<WayMask> {
        self.taken.iter().copied().max_by_key(|mask| mask.count())
    }
}

/// Tries every value in turn, and then restores the original one.
fn try_all(experiment: &mut ProbeExperiment<'_>, first: WayMask) -> Result<Tried, ProbeError> {
    let mut tried = Tried { taken: Vec::new(), refused: Vec::new() };
    for mask in candidates(experiment.inventory().known_llc().ways) {
        let applied = experiment.set_ways(mask)?;
        match applied.get(Knob::DcaWays).cloned() {
            Some(KnobOutcome::Applied) => tried.taken.push(mask),
            Some(KnobOutcome::Refused(why) | KnobOutcome::Busy(why)) => tried.refused.push((mask, why)),
            Some(KnobOutcome::ReadsBack(now)) => tried.refused.push((mask, format!("{now} reads back"))),
            None => tried.refused.push((mask, "the host reported no result".to_owned())),
        }
        experiment.wait(0)?;
    }
    experiment.set_ways(first)?;
    Ok(tried)
}

fn floor(tried: &Tried, narrow: WayMask, wide: WayMask) -> ProbeVerdict<AcceptedValues> {
    let kept = tried.taken.iter().fold(wide, |kept, mask| kept.and(*mask));
    let least = tried.taken.iter().copied().min().unwrap_or(narrow);
    let evidence = vec![
        format!(
            "{} of {} tried values were accepted",
            tried.taken.len(),
            tried.taken.len() + tried.refused.len()
        ),
        match kept.is_empty() {
            true => "no way is set in all of them".to_owned(),
            false => format!("all of them contain {kept}"),
        },
    ];
    let floor = AcceptedValues {
        kept,
        fewest: narrow.count(),
        least,
        most: wide.count(),
        refused: tried.refused.clone(),
    };
    ProbeVerdict::found(floor, Confidence::High, evidence)
}

/// Share of device writes that miss.
fn share(samples: &[Interval]) -> f64 {
    let shares: Vec<f64> = samples.iter().filter_map(|sample| sample.socket.dca_write_miss_ratio()).collect();
    stats::mean(&shares).map_or(0.0, |mean| mean.value)
}

/// Standard error of the share of device writes that miss.
fn flicker(samples: &[Interval]) -> f64 {
    let shares: Vec<f64> = samples.iter().filter_map(|sample| sample.socket.dca_write_miss_ratio()).collect();
    stats::mean(&shares).map_or(f64::INFINITY, |mean| mean.error)
}

/// Samples with few and with many ways alternately. The first of each is discarded, because it shows the cache state of
/// the earlier tries.
fn in_turn(
    experiment: &mut ProbeExperiment<'_>,
    narrow: WayMask,
    wide: WayMask,
) -> Result<(Vec<Interval>, Vec<Interval>), ProbeError> {
    let (mut few, mut many) = (Vec::new(), Vec::new());
    for mask in [narrow, wide] {
        experiment.set_ways(mask)?;
        experiment.settle_and_sample()?;
    }
    for _ in 0..experiment.pace().rounds {
        for (mask, into) in [(narrow, &mut few), (wide, &mut many)] {
            experiment.set_ways(mask)?;
            into.push(experiment.settle_and_sample()?);
        }
    }
    Ok((few, many))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_alone_every_pair_and_every_number_from_either_end_is_tried_once() {
        // 4 ways: 1, 2, 4, 8; pairs 3, 6, c; from the left 8, c, e, f; from the right 1, 3, 7, f: ten different ones.
        let bits: Vec<u32> = candidates(4).into_iter().map(WayMask::bits).collect();
        assert_eq!(bits, [0x1, 0x2, 0x3, 0x4, 0x6, 0x7, 0x8, 0xc, 0xe, 0xf]);
        assert_eq!(candidates(1).len(), 1);
    }
}
