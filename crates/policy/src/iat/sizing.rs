//! Which tenant gains or loses a way in CoreDemand and Reclaim, the idle pool, and the number of DDIO ways (IAT s4.D,
//! algorithms.md 2.5). It must not know states; `layout` computes the masks.

use super::config::Config;
use super::layout::{View, extend, shrink};
use super::poll::{Sample, Trend, relative};
use super::tenants::{Class, Slot};
use crate::Cause;
use std::cmp::Reverse;
use waykeeper_host::LlcGeometry;
use waykeeper_units::WayMask;

/// The former owner of a way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// The idle pool.
    Pool,
    /// This best-effort slot.
    Lender(usize),
}

/// Gives slot `index` one way: from the idle pool, else from the best-effort slot with the fewest LLC references among
/// those with more than `least` ways. `None` if there is none.
pub(crate) fn give(
    slots: &mut [Slot],
    index: usize,
    view: &View<'_>,
    least: impl Fn(&Slot) -> u32,
) -> Option<Source> {
    if extend(slots, index, view) {
        return Some(Source::Pool);
    }
    let refs = |lender: usize| view.refs.get(lender).copied().flatten().unwrap_or(f64::INFINITY);
    let may_lend = |lender: &usize| {
        let slot = &slots[*lender];
        *lender != index && slot.class == Class::Be && slot.ways() > least(slot)
    };
    let lender = (0..slots.len()).filter(may_lend).min_by(|a, b| refs(*a).total_cmp(&refs(*b)))?;
    shrink(&mut slots[lender]);
    extend(slots, index, view).then_some(Source::Lender(lender))
}

/// Slots that may gain a way in CoreDemand, largest need first, each with the number that ranks it.
///
/// Aggregation: the software stack first. Then, and in slicing alone, I/O tenants by the relative increase of their LLC
/// misses, ties by miss ratio, then performance-critical first.
pub(super) fn growth_candidates(
    slots: &[Slot],
    before: &Sample,
    now: &Sample,
    config: &Config,
) -> Vec<(usize, Cause)> {
    let rise = |index: usize| {
        relative(before.slots[index].misses, now.slots[index].misses, config.llc_floor)
            .unwrap_or(f64::NEG_INFINITY)
    };
    let ratio = |index: usize| now.slots[index].miss_ratio().unwrap_or(0.0);
    let mut order: Vec<usize> = (0..slots.len())
        .filter(|index| {
            slots[*index].class == Class::Stack || slots[*index].is_io && rise(*index).is_finite()
        })
        .collect();
    order.sort_by(|a, b| {
        let stack = |index: usize| slots[index].class == Class::Stack;
        stack(*b)
            .cmp(&stack(*a))
            .then(rise(*b).total_cmp(&rise(*a)))
            .then(ratio(*b).total_cmp(&ratio(*a)))
            .then(Reverse(slots[*a].class).cmp(&Reverse(slots[*b].class)))
    });
    let cause = |index: usize| {
        let value = if rise(index).is_finite() { rise(index) } else { 0.0 };
        Cause { what: format!("relative rise of LLC misses of {}", slots[index].name), value, limit: None }
    };
    order.into_iter().map(|index| (index, cause(index))).collect()
}

/// Slots that Reclaim may take a way from, the first choice first: above their grant, with fewer LLC
/// references than when they last gained a way; the stack before all others, then the largest fall.
pub(super) fn shrink_candidates(slots: &[Slot], now: &Sample, config: &Config) -> Vec<(usize, Cause)> {
    let change =
        |index: usize| relative(slots[index].refs_at_growth, now.slots[index].refs, config.llc_floor);
    let fell = |index: &usize| {
        let slot = &slots[*index];
        let trend =
            Trend::of(slot.refs_at_growth, now.slots[*index].refs, config.threshold_stable, config.llc_floor);
        slot.ways() > slot.grant && trend == Trend::Down
    };
    let mut order: Vec<usize> = (0..slots.len()).filter(fell).collect();
    order.sort_by(|a, b| {
        let stack = |index: usize| slots[index].class == Class::Stack;
        let size = |index: usize| change(index).unwrap_or(0.0);
        stack(*b).cmp(&stack(*a)).then(size(*a).total_cmp(&size(*b)))
    });
    let cause = |index: usize| {
        let what =
            format!("relative change of LLC references of {} since it last gained a way", slots[index].name);
        config.cause(what, change(index).unwrap_or(0.0), "threshold_stable")
    };
    order.into_iter().map(|index| (index, cause(index))).collect()
}

/// Limits of the number of DDIO ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Limits {
    /// Fewest.
    pub min: u32,
    /// Most.
    pub max: u32,
}

impl Limits {
    /// Limits from the settings, within what the chip allows.
    pub fn of(config: &Config, llc: &LlcGeometry) -> Limits {
        let max = (config.ddio_ways_max as u32).min(llc.ways);
        Limits { min: (config.ddio_ways_min.max(config.ddio_ways_floor) as u32).min(max), max }
    }
}

/// `ddio` with one more way: on its right, or on its left where the chip ends.
pub(super) fn widened(ddio: WayMask, ways: u32) -> WayMask {
    match (ddio.lowest(), ddio.highest()) {
        (Some(low), _) if low > 0 => ddio.or(WayMask::span(low - 1, 1)),
        (_, Some(high)) if high + 1 < ways => ddio.or(WayMask::span(high + 1, 1)),
        _ => ddio,
    }
}

/// `ddio` without its rightmost way.
pub(super) fn narrowed(ddio: WayMask) -> WayMask {
    ddio.lowest().map_or(ddio, |way| ddio.minus(WayMask::span(way, 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ddio_grows_and_shrinks_at_its_right_end() {
        let ways = WayMask::from_bits;
        assert_eq!(widened(ways(0x600), 11), ways(0x700));
        assert_eq!(narrowed(ways(0x700)), ways(0x600));
        // DDIO ways at the right end of a chip can only grow to the left.
        assert_eq!(widened(ways(0x003), 11), ways(0x007));
        assert_eq!(widened(ways(0x7ff), 11), ways(0x7ff));
    }
}
