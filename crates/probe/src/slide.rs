//! Sliding masks (ddio-bench s4.1 and s4.2): the mask of one co-runner is a narrow window that moves over the LLC, all
//! other groups have two ways elsewhere, and the counters are sampled at every position.
//!
//! The others are put at two positions in turn, so that together the slides cover every window. Must not know the
//! meaning of the numbers.

use crate::experiment::{ProbeError, ProbeExperiment};
use crate::stats::Placed;
use waykeeper_host::{Interval, Knob, KnobOutcome, Plan, SocketCounter, WorkloadCounter};
use waykeeper_units::{WayMask, WorkloadId};

/// Minimum ways of the other groups: as many as ddio-bench's I/O application (s4.1).
const OTHERS_WAYS: u32 = 2;

/// The quantities of one sample.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SlideSample {
    /// Device writes per second with DCA on.
    pub writes: Option<f64>,
    /// Share of these that missed.
    pub write_miss: Option<f64>,
    /// Share of the sliding co-runner's LLC references that missed.
    pub slider_miss: Option<f64>,
    /// LLC references per second of the I/O applications.
    pub io_references: Option<f64>,
    /// Share of these that missed.
    pub io_miss: Option<f64>,
}

impl SlideSample {
    fn of(seen: &Interval, slider: WorkloadId, io: &[WorkloadId]) -> SlideSample {
        let hits_and_misses = |group: &WorkloadId| {
            let rates = seen.groups.get(group)?;
            Some((rates[WorkloadCounter::LlcHits].value()?, rates[WorkloadCounter::LlcMisses].value()?))
        };
        let io: Option<Vec<(f64, f64)>> = io.iter().map(hits_and_misses).collect();
        let io = io.filter(|io| !io.is_empty());
        let sum =
            |io: &Vec<(f64, f64)>| io.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let io = io.as_ref().map(sum);
        SlideSample {
            writes: writes(seen),
            write_miss: seen.socket.dca_write_miss_ratio(),
            slider_miss: seen.groups.get(&slider).and_then(|rates| rates.llc_miss_ratio()),
            io_references: io.map(|(hits, misses)| hits + misses),
            io_miss: io.and_then(|(hits, misses)| (hits + misses > 0.0).then(|| misses / (hits + misses))),
        }
    }
}

/// Device writes per second with DCA on.
pub fn writes(seen: &Interval) -> Option<f64> {
    seen.socket.sum(SocketCounter::DcaWriteHits, SocketCounter::DcaWriteMisses).value()
}

/// The samples at one position.
#[derive(Clone, PartialEq, Debug)]
pub struct WindowSamples {
    /// The co-runner's window.
    pub window: WayMask,
    /// Index of the position of the others.
    pub stage: usize,
    /// One sample per round.
    pub samples: Vec<SlideSample>,
}

/// A whole slide.
#[derive(Clone, PartialEq, Debug)]
pub struct Slide {
    /// The co-runner whose mask slid.
    pub slider: WorkloadId,
    /// Ways of the window.
    pub width: u32,
    /// All positions.
    pub positions: Vec<WindowSamples>,
}

impl Slide {
    /// One quantity of all samples, by window. Samples without it are left out.
    pub fn placed(&self, of: impl Fn(&SlideSample) -> Option<f64>) -> Vec<Placed<WayMask>> {
        let placed = |position: &WindowSamples| Placed {
            position: position.window,
            stage: position.stage,
            samples: position.samples.iter().filter_map(&of).collect(),
        };
        self.positions.iter().map(placed).collect()
    }

    /// One quantity of all samples, in one list.
    pub fn all(&self, of: impl Fn(&SlideSample) -> Option<f64>) -> Vec<f64> {
        self.positions.iter().flat_map(|position| &position.samples).filter_map(of).collect()
    }
}

/// Why nothing could be measured.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoSlide {
    /// The LLC has too few ways for a window and the others.
    #[error("an LLC of {ways} ways with masks of at least {min_ways} is too small to slide a window over")]
    TooFewWays {
        /// Ways of the LLC.
        ways: u32,
        /// Minimum ways of a mask.
        min_ways: u32,
    },
    /// The host refused a mask.
    #[error("mask {mask} was not accepted: {why}")]
    Refused {
        /// The mask.
        mask: WayMask,
        /// The host's reason.
        why: String,
    },
}

/// The two positions of the other groups, without a common way, near the middle as ddio-bench's 0x0c0.
///
/// # Errors
/// [`NoSlide::TooFewWays`].
pub fn stages(ways: u32, min_ways: u32) -> Result<[WayMask; 2], NoSlide> {
    let width = min_ways.max(OTHERS_WAYS);
    // Both positions, and as many ways that are in neither.
    if ways < 4 * width {
        return Err(NoSlide::TooFewWays { ways, min_ways });
    }
    let low = (ways / 2 + 1 - width).min(ways - 2 * width);
    Ok([WayMask::span(low + width, width), WayMask::span(low, width)])
}

/// Number of waits of a slide, for the progress bar.
pub fn waits(ways: u32, min_ways: u32, wash: bool, rounds: u32) -> u64 {
    let windows = u64::from(ways.saturating_sub(min_ways.max(1)) + 1);
    // Two stages; each leaves out about one window in five.
    windows * 2 * u64::from(rounds) * if wash { 3 } else { 2 }
}

/// Slides the mask of `slider` over the LLC. If there is a `washer`, it has all ways for a while before each position,
/// to evict the slider's lines elsewhere: on inclusive LLCs they would stay until their room is needed.
///
/// # Errors
/// Host errors; the inner error if nothing could be measured.
pub fn slide(
    experiment: &mut ProbeExperiment<'_>,
    slider: WorkloadId,
    io: &[WorkloadId],
    washer: Option<WorkloadId>,
) -> Result<Result<Slide, NoSlide>, ProbeError> {
    let llc = experiment.inventory().known_llc();
    let width = llc.min_ways.max(1);
    let stages = match stages(llc.ways, llc.min_ways) {
        Ok(stages) => stages,
        Err(error) => return Ok(Err(error)),
    };
    let groups: Vec<WorkloadId> = experiment.workloads().iter().map(|group| group.id).collect();
    let windows: Vec<WayMask> = (0..=llc.ways - width).map(|low| WayMask::span(low, width)).collect();
    let mut positions: Vec<WindowSamples> = Vec::new();
    for (stage, others) in stages.iter().enumerate() {
        let free = windows.iter().filter(|window| !window.overlaps(*others));
        positions.extend(free.map(|window| WindowSamples { window: *window, stage, samples: Vec::new() }));
    }
    // A first pass is discarded, because it shows the cache state from before the slide.
    if let Some(first) = positions.first() {
        let plan = plan(&groups, slider, first.window, stages[first.stage]);
        if let Some(refused) = refused(&plan, &experiment.set_knobs(&plan)?) {
            return Ok(Err(refused));
        }
        experiment.settle()?;
    }
    for round in 0..experiment.pace().rounds {
        // In alternating direction, so that drift of the load does not favour one side.
        let count = positions.len();
        for step in 0..count {
            let at = if round % 2 == 0 { step } else { count - 1 - step };
            let (window, others) = (positions[at].window, stages[positions[at].stage]);
            let plan = plan(&groups, slider, window, others);
            if let Some(washer) = washer {
                let mut wash = plan.clone();
                wash.insert(Knob::Mask(washer), WayMask::full(llc.ways));
                experiment.set_knobs(&wash)?;
                experiment.settle()?;
            }
            if let Some(refused) = refused(&plan, &experiment.set_knobs(&plan)?) {
                return Ok(Err(refused));
            }
            let seen = experiment.settle_and_sample()?;
            positions[at].samples.push(SlideSample::of(&seen, slider, io));
        }
    }
    Ok(Ok(Slide { slider, width, positions }))
}

fn plan(groups: &[WorkloadId], slider: WorkloadId, window: WayMask, others: WayMask) -> Plan {
    let mask = |group: &WorkloadId| (*group, if *group == slider { window } else { others });
    Plan::of_masks(groups.iter().map(mask))
}

fn refused(plan: &Plan, applied: &waykeeper_host::Applied) -> Option<NoSlide> {
    plan.masks().find_map(|(group, mask)| {
        let why = match applied.get(Knob::Mask(group)) {
            Some(KnobOutcome::Applied) => return None,
            Some(KnobOutcome::Refused(why) | KnobOutcome::Busy(why)) => why.clone(),
            Some(KnobOutcome::ReadsBack(now)) => format!("{now} reads back"),
            None => "the host reported no result".to_owned(),
        };
        Some(NoSlide::Refused { mask, why })
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
