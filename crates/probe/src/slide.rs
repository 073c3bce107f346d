//! Sliding masks (ddio-bench s4.1 and s4.2): a co-runner is confined to a narrow window of ways that moves over the cache,
//! everybody else to two ways elsewhere, and the counters are looked at at every place.
//!
//! Every window is seen beside two places of the others, so that none is hidden by them. Must not know what the numbers
//! mean.

use crate::stand::{ProbeError, Stand};
use crate::stats::Placed;
use waykeeper_host::{Interval, KnobOutcome, Plan};
use waykeeper_units::{GroupId, WayMask};

/// Ways that everybody else has, at least: as many as ddio-bench's I/O application (s4.1).
const OTHERS_WAYS: u32 = 2;

/// What was seen in one sample.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sight {
    /// Device writes a second that DCA took.
    pub writes: Option<f64>,
    /// Share of them that missed.
    pub write_miss: Option<f64>,
    /// Share of the sliding co-runner's references to the LLC that missed.
    pub slider_miss: Option<f64>,
    /// References a second of the applications that devices write for.
    pub io_references: Option<f64>,
    /// Share of these that missed.
    pub io_miss: Option<f64>,
}

impl Sight {
    fn of(seen: &Interval, slider: GroupId, io: &[GroupId]) -> Sight {
        let hits_and_misses = |group: &GroupId| {
            let rates = seen.groups.get(group)?;
            Some((rates.llc_hits.value()?, rates.llc_misses.value()?))
        };
        let io: Option<Vec<(f64, f64)>> = io.iter().map(hits_and_misses).collect();
        let io = io.filter(|io| !io.is_empty());
        let sum =
            |io: &Vec<(f64, f64)>| io.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let io = io.as_ref().map(sum);
        Sight {
            writes: writes(seen),
            write_miss: seen.socket.dca_write_miss_ratio(),
            slider_miss: seen.groups.get(&slider).and_then(|rates| rates.llc_miss_ratio()),
            io_references: io.map(|(hits, misses)| hits + misses),
            io_miss: io.and_then(|(hits, misses)| (hits + misses > 0.0).then(|| misses / (hits + misses))),
        }
    }
}

/// Device writes a second that DCA took.
pub fn writes(seen: &Interval) -> Option<f64> {
    Some(seen.socket.dca_write_hits.value()? + seen.socket.dca_write_misses.value()?)
}

/// What was seen at one place.
#[derive(Clone, PartialEq, Debug)]
pub struct Place {
    /// The co-runner's window.
    pub window: WayMask,
    /// Which of the places of the others.
    pub stage: usize,
    /// A sample a round.
    pub sights: Vec<Sight>,
}

/// A whole slide.
#[derive(Clone, PartialEq, Debug)]
pub struct Slide {
    /// Who slid.
    pub slider: GroupId,
    /// Ways of the window.
    pub width: u32,
    /// All places.
    pub places: Vec<Place>,
}

impl Slide {
    /// One number of every sample, by place. Samples without it are left out.
    pub fn placed(&self, of: impl Fn(&Sight) -> Option<f64>) -> Vec<Placed<WayMask>> {
        let placed = |place: &Place| Placed {
            place: place.window,
            stage: place.stage,
            samples: place.sights.iter().filter_map(&of).collect(),
        };
        self.places.iter().map(placed).collect()
    }

    /// One number of all samples.
    pub fn all(&self, of: impl Fn(&Sight) -> Option<f64>) -> Vec<f64> {
        self.places.iter().flat_map(|place| &place.sights).filter_map(of).collect()
    }
}

/// Why nothing could be slid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoSlide {
    /// Too few ways for a window, the others and something to compare with.
    #[error("an LLC of {ways} ways with masks of at least {min_ways} is too small to slide a window over")]
    TooFewWays {
        /// Ways of the LLC.
        ways: u32,
        /// Fewest ways of a mask.
        min_ways: u32,
    },
    /// The host does not take the masks.
    #[error("mask {mask} was not accepted: {why}")]
    Refused {
        /// The mask.
        mask: WayMask,
        /// In the host's words.
        why: String,
    },
}

/// The places that everybody else is put: two that have no way in common, near the middle, as ddio-bench's 0x0c0 is.
///
/// # Errors
/// [`NoSlide::TooFewWays`].
pub fn stages(ways: u32, min_ways: u32) -> Result<[WayMask; 2], NoSlide> {
    let width = min_ways.max(OTHERS_WAYS);
    // Both, and as many again that neither has.
    if ways < 4 * width {
        return Err(NoSlide::TooFewWays { ways, min_ways });
    }
    let low = (ways / 2 + 1 - width).min(ways - 2 * width);
    Ok([WayMask::span(low + width, width), WayMask::span(low, width)])
}

/// Waits of a slide, for the bar.
pub fn waits(ways: u32, min_ways: u32, wash: bool, rounds: u32) -> u64 {
    let windows = u64::from(ways.saturating_sub(min_ways.max(1)) + 1);
    // Two stages; about a window in five is left out of each.
    windows * 2 * u64::from(rounds) * if wash { 3 } else { 2 }
}

/// Slides `slider` over the cache. Before each place `washer` has all ways for a while, if there is one: what the slider
/// left behind elsewhere goes, where lines stay as long as nobody needs the room (inclusive LLCs).
///
/// # Errors
/// The host; the inner one if nothing can be slid.
pub fn slide(
    stand: &mut Stand<'_>,
    slider: GroupId,
    io: &[GroupId],
    washer: Option<GroupId>,
) -> Result<Result<Slide, NoSlide>, ProbeError> {
    let llc = stand.inventory().llc;
    let width = llc.min_ways.max(1);
    let stages = match stages(llc.ways, llc.min_ways) {
        Ok(stages) => stages,
        Err(error) => return Ok(Err(error)),
    };
    let groups: Vec<GroupId> = stand.groups().iter().map(|group| group.id).collect();
    let windows: Vec<WayMask> = (0..=llc.ways - width).map(|low| WayMask::span(low, width)).collect();
    let mut places: Vec<Place> = Vec::new();
    for (stage, others) in stages.iter().enumerate() {
        let free = windows.iter().filter(|window| !window.overlaps(*others));
        places.extend(free.map(|window| Place { window: *window, stage, sights: Vec::new() }));
    }
    // Once before anything counts: the caches are as somebody else left them.
    if let Some(first) = places.first() {
        let plan = plan(&groups, slider, first.window, stages[first.stage]);
        if let Some(refused) = refused(&plan, &stand.turn(&plan)?) {
            return Ok(Err(refused));
        }
        stand.settle()?;
    }
    for round in 0..stand.pace().rounds {
        // Back and forth, so that a load that drifts does not lean on one side.
        let count = places.len();
        for step in 0..count {
            let at = if round % 2 == 0 { step } else { count - 1 - step };
            let (window, others) = (places[at].window, stages[places[at].stage]);
            let plan = plan(&groups, slider, window, others);
            if let Some(washer) = washer {
                let mut wash = plan.clone();
                wash.masks.insert(washer, WayMask::full(llc.ways));
                stand.turn(&wash)?;
                stand.settle()?;
            }
            if let Some(refused) = refused(&plan, &stand.turn(&plan)?) {
                return Ok(Err(refused));
            }
            let seen = stand.look()?;
            places[at].sights.push(Sight::of(&seen, slider, io));
        }
    }
    Ok(Ok(Slide { slider, width, places }))
}

fn plan(groups: &[GroupId], slider: GroupId, window: WayMask, others: WayMask) -> Plan {
    let mask = |group: &GroupId| (*group, if *group == slider { window } else { others });
    Plan { masks: groups.iter().map(mask).collect(), ..Plan::default() }
}

fn refused(plan: &Plan, applied: &waykeeper_host::Applied) -> Option<NoSlide> {
    plan.masks.iter().find_map(|(group, mask)| {
        let why = match applied.masks.get(group) {
            Some(KnobOutcome::Applied) => return None,
            Some(KnobOutcome::Refused(why) | KnobOutcome::Busy(why)) => why.clone(),
            Some(KnobOutcome::ReadsBack(now)) => format!("{now} reads back"),
            None => "the host reported no result".to_owned(),
        };
        Some(NoSlide::Refused { mask: *mask, why })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_others_are_put_near_the_middle_and_never_twice_into_a_way() {
        let masks = |ways, min| stages(ways, min).unwrap().map(WayMask::bits);
        assert_eq!(masks(11, 1), [0x0c0, 0x030]);
        assert_eq!(masks(20, 2), [0x1800, 0x600]);
        assert_eq!(masks(8, 1), [0x60, 0x18]);
        assert_eq!(stages(7, 1), Err(NoSlide::TooFewWays { ways: 7, min_ways: 1 }));
        for ways in 8..=20 {
            let [high, low] = stages(ways, 1).unwrap();
            assert!(!high.overlaps(low) && high.or(low).minus(WayMask::full(ways)).is_empty(), "{ways}");
        }
    }
}
