//! Poll Prof Data: one interval's counters per slot and chip-wide, and what changed since the last (IAT s4.B,
//! algorithms.md 2.3). Counters only; it must not know masks or states.

use super::config::Config;
use super::tenants::Slot;
use waykeeper_host::{Interval, Reading, SocketCounter, WorkloadCounter};

/// Counters of one slot.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Prof {
    /// Instructions per cycle over all cores of the slot.
    pub ipc: Option<f64>,
    /// LLC references per second.
    pub refs: Option<f64>,
    /// LLC misses per second.
    pub misses: Option<f64>,
}

impl Prof {
    /// LLC miss ratio.
    pub fn miss_ratio(&self) -> Option<f64> {
        let (misses, refs) = (self.misses?, self.refs?);
        (refs > 0.0).then(|| misses / refs)
    }
}

/// Counters of one interval.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Sample {
    /// DDIO hits (write updates) per second, chip-wide.
    pub ddio_hits: Option<f64>,
    /// DDIO misses (write allocates) per second, chip-wide.
    pub ddio_misses: Option<f64>,
    /// Per slot, in the slots' order.
    pub slots: Vec<Prof>,
}

/// A count that is finite and not negative. A host may return any number, and NaN must not pass a threshold.
fn sane(reading: Reading<f64>) -> Option<f64> {
    reading.value().filter(|value| value.is_finite() && *value >= 0.0)
}

impl Sample {
    /// Reads the counters of `slots` from `seen`. A slot with one unreadable tenant has no value: a sum without one of
    /// its terms would look like a change.
    pub fn of(seen: &Interval, slots: &[Slot]) -> Sample {
        let prof = |slot: &Slot| {
            let rates = || slot.members.iter().map(|id| seen.groups.get(id));
            let sum = |counter: WorkloadCounter| -> Option<f64> {
                rates().map(|rates| sane(rates?[counter])).sum()
            };
            let (hits, misses) = (sum(WorkloadCounter::LlcHits), sum(WorkloadCounter::LlcMisses));
            let (instructions, cycles) = (sum(WorkloadCounter::Instructions), sum(WorkloadCounter::Cycles));
            let ipc = instructions.zip(cycles.filter(|cycles| *cycles > 0.0));
            Prof {
                ipc: ipc.map(|(instructions, cycles)| instructions / cycles),
                refs: hits.zip(misses).map(|(hits, misses)| hits + misses),
                misses,
            }
        };
        Sample {
            ddio_hits: sane(seen.socket[SocketCounter::DcaWriteHits]),
            ddio_misses: sane(seen.socket[SocketCounter::DcaWriteMisses]),
            slots: slots.iter().map(prof).collect(),
        }
    }

    /// LLC references per second of every slot.
    pub fn refs(&self) -> Vec<Option<f64>> {
        self.slots.iter().map(|prof| prof.refs).collect()
    }
}

/// The change of a counter from one interval to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Trend {
    /// Unknown, or changed by no more than the threshold.
    #[default]
    Steady,
    /// Rose by more than the threshold.
    Up,
    /// Fell by more than the threshold.
    Down,
}

impl Trend {
    /// The change from `before` to `now`, compared with `threshold` times the larger of `before` and `floor`.
    pub fn of(before: Option<f64>, now: Option<f64>, threshold: f64, floor: f64) -> Trend {
        match relative(before, now, floor) {
            Some(change) if change > threshold => Trend::Up,
            Some(change) if change < -threshold => Trend::Down,
            _ => Trend::Steady,
        }
    }

    /// True if it changed either way.
    pub fn changed(self) -> bool {
        self != Trend::Steady
    }
}

/// Relative change of `now` against the larger of `before` and `floor`.
pub(crate) fn relative(before: Option<f64>, now: Option<f64>, floor: f64) -> Option<f64> {
    let (before, now) = (before?, now?);
    let base = before.max(floor);
    if base > 0.0 {
        Some((now - before) / base)
    } else {
        // Without a floor any growth from zero exceeds every threshold.
        Some(if now > before { f64::INFINITY } else { 0.0 })
    }
}

/// Trends of one slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SlotTrend {
    /// Its IPC.
    pub ipc: Trend,
    /// Its LLC references.
    pub refs: Trend,
    /// Its LLC misses.
    pub misses: Trend,
}

impl SlotTrend {
    /// True if its LLC references or misses changed.
    pub fn llc_changed(self) -> bool {
        self.refs.changed() || self.misses.changed()
    }
}

/// Trends from one interval to the next.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Trends {
    /// DDIO hits.
    pub ddio_hits: Trend,
    /// DDIO misses.
    pub ddio_misses: Trend,
    /// LLC references of all tenants together.
    pub refs: Trend,
    /// Per slot.
    pub slots: Vec<SlotTrend>,
}

impl Trends {
    /// Compares two samples of the same slots.
    pub fn between(before: &Sample, now: &Sample, config: &Config) -> Trends {
        let threshold = config.threshold_stable;
        let llc = |a, b| Trend::of(a, b, threshold, config.llc_floor);
        let ddio = |a, b| Trend::of(a, b, threshold, config.ddio_floor());
        let pairs = || before.slots.iter().zip(&now.slots);
        let slot = |(a, b): (&Prof, &Prof)| SlotTrend {
            ipc: Trend::of(a.ipc, b.ipc, threshold, config.ipc_floor),
            refs: llc(a.refs, b.refs),
            misses: llc(a.misses, b.misses),
        };
        let (refs_before, refs_now) = pairs()
            .filter_map(|(a, b)| a.refs.zip(b.refs))
            .fold((0.0, 0.0), |(before, now), (a, b)| (before + a, now + b));
        Trends {
            ddio_hits: ddio(before.ddio_hits, now.ddio_hits),
            ddio_misses: ddio(before.ddio_misses, now.ddio_misses),
            refs: llc(Some(refs_before), Some(refs_now)),
            slots: pairs().map(slot).collect(),
        }
    }

    /// True if DDIO hits or misses changed.
    pub fn ddio_changed(&self) -> bool {
        self.ddio_hits.changed() || self.ddio_misses.changed()
    }

    /// True if the LLC counts of any slot changed.
    pub fn llc_changed(&self) -> bool {
        self.slots.iter().any(|slot| slot.llc_changed())
    }

    /// True if the IPC of any slot changed.
    pub fn ipc_changed(&self) -> bool {
        self.slots.iter().any(|slot| slot.ipc.changed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_percent_of_the_value_or_of_the_floor() {
        let trend = |before, now| Trend::of(Some(before), Some(now), 0.03, 1e4);
        // 3 % of 1e6 is 3e4: exactly that is steady, a little more is not.
        assert_eq!(trend(1e6, 1.03e6), Trend::Steady);
        assert_eq!(trend(1e6, 1.031e6), Trend::Up);
        assert_eq!(trend(1e6, 0.969e6), Trend::Down);
        // 3 % of the floor is 300.
        assert_eq!(trend(0.0, 300.0), Trend::Steady);
        assert_eq!(trend(0.0, 301.0), Trend::Up);
        assert_eq!(Trend::of(None, Some(1.0), 0.03, 0.0), Trend::Steady);
        assert_eq!(Trend::of(Some(0.0), Some(1.0), 0.03, 0.0), Trend::Up);
        assert_eq!(Trend::of(Some(0.0), Some(0.0), 0.03, 0.0), Trend::Steady);
    }
}
