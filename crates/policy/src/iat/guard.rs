//! Guard of the mode `guarded` (algorithms.md 2.4). It keeps IAT from taking a way, giving it back and taking it again:
//! after a way had to be given back, its owner is not reduced at that size for some intervals.
//!
//! Counts intervals; must not know counters or masks.

/// The owner that lost a way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    /// The DDIO ways.
    Ddio,
    /// The tenants of this slot, which share their ways.
    Slot(usize),
}

/// For `intervals_left` intervals an owner with `count` ways or fewer loses none.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Hold {
    owner: Owner,
    count: u32,
    intervals_left: u32,
    length: u32,
}

/// All holds, and the last reclaim, which a later transition of IAT's state machine may undo.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Guard {
    holds: Vec<Hold>,
    last: Option<(Owner, u32)>,
}

/// Longest time of a hold, so that no number overflows: about eleven days of one-second intervals. Assumption: longer
/// than any run.
const LONGEST: u32 = 1_000_000;

impl Guard {
    /// Counts one interval down.
    pub fn tick(&mut self) {
        for hold in &mut self.holds {
            hold.intervals_left = hold.intervals_left.saturating_sub(1);
        }
    }

    /// Forgets the slots, because they were formed again.
    pub fn forget_slots(&mut self) {
        self.holds.retain(|hold| hold.owner == Owner::Ddio);
        self.last = self.last.filter(|(owner, _)| *owner == Owner::Ddio);
    }

    /// True if one way may be taken from `owner`, which has `count`.
    pub fn allows(&self, owner: Owner, count: u32) -> bool {
        let held = |hold: &Hold| hold.owner == owner && hold.intervals_left > 0 && count <= hold.count;
        !self.holds.iter().any(held)
    }

    /// Records that `owner`, which had `count` ways, lost one.
    pub fn reclaimed(&mut self, owner: Owner, count: u32) {
        self.last = Some((owner, count));
    }

    /// The last reclaim has to be undone. It is not repeated for `intervals`; if there was a hold before, for `backoff`
    /// times as long as the longest one. Returns owner, count and length of the hold, if there was a reclaim.
    ///
    /// All owners share the backoff: with noisy counters each owner in turn loses a way by mistake, each for the
    /// first time.
    pub fn undone(&mut self, intervals: u32, backoff: f64) -> Option<(Owner, u32, u32)> {
        let (owner, count) = self.last.take()?;
        let longest = self.holds.iter().map(|hold| hold.length).max();
        let longer = |length: u32| (f64::from(length) * backoff).min(f64::from(LONGEST)) as u32;
        let length = longest.map_or(intervals, longer);
        self.holds.retain(|hold| (hold.owner, hold.count) != (owner, count));
        self.holds.push(Hold { owner, count, intervals_left: length, length });
        Some((owner, count, length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reclaim_that_had_to_be_undone_waits_and_waits_longer_each_time() {
        let mut guard = Guard::default();
        assert_eq!(guard.undone(10, 2.0), None);
        guard.reclaimed(Owner::Ddio, 4);
        assert_eq!(guard.undone(10, 2.0), Some((Owner::Ddio, 4, 10)));
        // The hold covers four ways, not five, and not other owners.
        assert!(!guard.allows(Owner::Ddio, 4) && !guard.allows(Owner::Ddio, 3));
        assert!(guard.allows(Owner::Ddio, 5) && guard.allows(Owner::Slot(0), 4));
        (0..9).for_each(|_| guard.tick());
        assert!(!guard.allows(Owner::Ddio, 4));
        guard.tick();
        assert!(guard.allows(Owner::Ddio, 4));
        guard.reclaimed(Owner::Ddio, 4);
        assert_eq!(guard.undone(10, 2.0), Some((Owner::Ddio, 4, 20)));
        // The hold of another owner is longer at once.
        guard.reclaimed(Owner::Slot(1), 3);
        assert_eq!(guard.undone(10, 2.0), Some((Owner::Slot(1), 3, 40)));
    }
}
