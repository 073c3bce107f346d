//! Rate limits: budgets of blocks and commands, refilled once per slot (algorithms.md 7.3).
//!
//! Knows time and counts; must not know what is counted, nor the source of the clock.

const SECOND_NS: f64 = 1e9;

/// Higher limits are clamped to this value. No device comes near it, and an i64 holds the sum over almost three years;
/// beyond that every slot would get a budget of 0.
const MOST: f64 = 1e11;

/// How a slot's budget follows from the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BudgetRule {
    /// Over any whole number of slots exactly the limit. A command that exceeds a budget of blocks is charged to later
    /// slots, and a remainder of the division is spread over the slots.
    #[default]
    Exact,
    /// As `Exact`, but later slots may use what earlier slots left, up to one second's worth: fio's `rate`. A sender
    /// that is late, because the machine is busy, loses nothing. In any period at most the budgets of its slots and one
    /// second's worth are sent, and since the start never more than the budgets of all slots so far.
    CatchUp,
    /// As in nvme-memload: the first slot has the whole limit; each later slot **sets** the budget to its part, in
    /// whole numbers, instead of adding to it. A command is admitted while the budget is not negative, so each slot
    /// admits one command too many.
    Thesis,
}

/// Limits; `None` is unlimited.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LoadLimits {
    /// Blocks per second.
    pub blocks: Option<f64>,
    /// Commands per second.
    pub commands: Option<f64>,
    /// Slots per second; within a slot its whole budget may be sent at once.
    pub slots: u32,
    /// How budgets are refilled.
    pub rule: BudgetRule,
}

impl LoadLimits {
    /// No limit.
    pub const NONE: LoadLimits =
        LoadLimits { blocks: None, commands: None, slots: 1, rule: BudgetRule::Exact };

    /// The same limits with `factor` times their rates.
    pub fn scaled(self, factor: f64) -> LoadLimits {
        let scale = |limit: Option<f64>| limit.map(|limit| limit * factor);
        LoadLimits { blocks: scale(self.blocks), commands: scale(self.commands), ..self }
    }

    /// The limits that a limiter can keep.
    fn kept(self) -> LoadLimits {
        let least = |limit: Option<f64>| limit.map(|limit| limit.min(MOST));
        LoadLimits {
            blocks: least(self.blocks),
            commands: least(self.commands),
            slots: self.slots.max(1),
            ..self
        }
    }
}

/// The budgets that all workers share.
#[derive(Clone, Debug)]
pub struct Limiter {
    limits: LoadLimits,
    start_ns: f64,
    slot: u64,
    blocks: i64,
    commands: i64,
}

impl Limiter {
    /// Limiter whose first slot begins at `start_ns`.
    pub fn new(limits: LoadLimits, start_ns: f64) -> Limiter {
        let limits = limits.kept();
        let first = |limit: Option<f64>| match (limit, limits.rule) {
            (None, _) => i64::MAX,
            (Some(limit), BudgetRule::Thesis) => limit as i64,
            (Some(limit), BudgetRule::Exact | BudgetRule::CatchUp) => part(limit, limits.slots, 0),
        };
        let (blocks, commands) = (first(limits.blocks), first(limits.commands));
        Limiter { limits, start_ns, slot: 0, blocks, commands }
    }

    /// Changes the rates from the slot after `now_ns` on; the length of a slot and the rule stay. Slots before have the
    /// budgets of the rates before.
    pub fn set_rates(&mut self, limits: LoadLimits, now_ns: f64) {
        self.advance(now_ns);
        let LoadLimits { blocks, commands, .. } = limits.kept();
        self.limits = LoadLimits { blocks, commands, ..self.limits };
    }

    /// Admits a command now, or returns the time when the next slot begins, ns.
    pub fn admit(&mut self, now_ns: f64) -> Result<(), f64> {
        if self.limits.blocks.is_none() && self.limits.commands.is_none() {
            return Ok(());
        }
        self.advance(now_ns);
        // nvme-memload admits a command at a budget of 0.
        let least = if self.limits.rule == BudgetRule::Thesis { 0 } else { 1 };
        if self.blocks >= least && self.commands >= least {
            return Ok(());
        }
        // At least 1 ns later, so that rounding at the slot boundary cannot make the caller loop.
        Err((self.start_ns + (self.slot + 1) as f64 * self.slot_ns()).max(now_ns + 1.0))
    }

    /// Enters the slot of this time.
    fn advance(&mut self, now_ns: f64) {
        let slot = ((now_ns - self.start_ns) / self.slot_ns()).max(0.0) as u64;
        if slot > self.slot {
            self.enter(slot);
        }
    }

    /// Start of the latest slot that `admit` has entered, ns. No further command belongs to an earlier slot.
    pub fn entered_ns(&self) -> f64 {
        self.start_ns + self.slot as f64 * self.slot_ns()
    }

    fn slot_ns(&self) -> f64 {
        SECOND_NS / f64::from(self.limits.slots)
    }

    /// Charges the budgets for one command of `blocks` blocks.
    pub fn charge(&mut self, blocks: u32) {
        if self.limits.blocks.is_some() {
            self.blocks -= i64::from(blocks);
        }
        if self.limits.commands.is_some() {
            self.commands -= 1;
        }
    }

    fn enter(&mut self, slot: u64) {
        let LoadLimits { slots, rule, .. } = self.limits;
        let from = self.slot;
        self.slot = slot;
        let refill = |budget: i64, limit: Option<f64>| match (limit, rule) {
            (None, _) => i64::MAX,
            (Some(limit), BudgetRule::Thesis) => limit as i64 / i64::from(slots),
            (Some(limit), BudgetRule::Exact | BudgetRule::CatchUp) => {
                let between: i64 = match slot - from {
                    1 => 0,
                    // The budgets of skipped slots reduce the debt.
                    _ => sum(limit, slots, slot) - sum(limit, slots, from + 1),
                };
                // Later slots pay for what a slot overdrew.
                let kept = match rule {
                    BudgetRule::CatchUp => (budget + between).min(limit.ceil() as i64),
                    _ => (budget.min(0) + between).min(0),
                };
                kept + part(limit, slots, slot)
            }
        };
        self.blocks = refill(self.blocks, self.limits.blocks);
        self.commands = refill(self.commands, self.limits.commands);
    }
}

/// Total budget of the slots before `slot`.
fn sum(limit: f64, slots: u32, slot: u64) -> i64 {
    (limit * slot as f64 / f64::from(slots)).floor() as i64
}

/// Budget of slot number `slot`.
fn part(limit: f64, slots: u32, slot: u64) -> i64 {
    sum(limit, slots, slot + 1) - sum(limit, slots, slot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limits(blocks: Option<f64>, commands: Option<f64>, slots: u32, rule: BudgetRule) -> LoadLimits {
        LoadLimits { blocks, commands, slots, rule }
    }

    fn admitted(limiter: &mut Limiter, now_ns: f64, blocks: u32) -> (u32, f64) {
        let mut count = 0;
        loop {
            match limiter.admit(now_ns) {
                Ok(()) => limiter.charge(blocks),
                Err(next_ns) => return (count, next_ns),
            }
            count += 1;
        }
    }

    #[test]
    fn a_slot_of_the_published_program_takes_its_part_and_one_command_more() {
        // 1000 commands in 10 slots of 100 ms: 1000 in the first slot, 100 in each other slot, plus one each.
        let mut limiter = Limiter::new(limits(None, Some(1000.0), 10, BudgetRule::Thesis), 5e6);
        assert_eq!(admitted(&mut limiter, 5e6, 1), (1001, 105e6));
        assert_eq!(admitted(&mut limiter, 105e6, 1), (101, 205e6));
        // A slot's unused budget expires.
        assert_eq!(admitted(&mut limiter, 905e6, 1).0, 101);
    }

    #[test]
    fn one_command_of_the_published_program_may_overshoot_the_blocks() {
        // 100 blocks a slot: after 3 x 31 = 93 there are 7 left; the fourth command is admitted and overdraws by 24.
        let mut limiter = Limiter::new(limits(Some(100.0), None, 1, BudgetRule::Thesis), 0.0);
        assert_eq!(admitted(&mut limiter, 0.0, 31), (4, 1e9));
        // A limit below the number of slots gives a budget of 0: one command a slot.
        let mut limiter = Limiter::new(limits(None, Some(3.0), 10, BudgetRule::Thesis), 0.0);
        assert_eq!(admitted(&mut limiter, 100e6, 1).0, 1);
    }

    #[test]
    fn the_exact_rule_gives_each_slot_its_part_and_no_more() {
        let mut limiter = Limiter::new(limits(None, Some(1000.0), 10, BudgetRule::Exact), 5e6);
        assert_eq!(admitted(&mut limiter, 5e6, 1), (100, 105e6));
        assert_eq!(admitted(&mut limiter, 105e6, 1), (100, 205e6));
        assert_eq!(admitted(&mut limiter, 905e6, 1).0, 100, "what a slot did not use is gone");
        // 3 a second in 10 slots: 0.3 each, so one command where 0.3 n passes a whole number (4th, 7th, 10th slot).
        let mut limiter = Limiter::new(limits(None, Some(3.0), 10, BudgetRule::Exact), 0.0);
        let each: Vec<u32> =
            (0..10).map(|slot| admitted(&mut limiter, f64::from(slot) * 1e8 + 1.0, 1).0).collect();
        assert_eq!(each, [0, 0, 0, 1, 0, 0, 1, 0, 0, 1]);
    }

    #[test]
    fn who_catches_up_loses_no_slot_and_sends_no_more_than_a_second_at_once() {
        // 1000 commands in 10 slots. Slot 1 is missed, so slot 2 has its 100 as well; slot 3 sends only 30, so slot 4
        // has 170.
        let mut limiter = Limiter::new(limits(None, Some(1000.0), 10, BudgetRule::CatchUp), 5e6);
        assert_eq!(admitted(&mut limiter, 5e6, 1), (100, 105e6));
        assert_eq!(admitted(&mut limiter, 205e6, 1), (200, 305e6));
        for _ in 0..30 {
            assert_eq!(limiter.admit(305e6), Ok(()));
            limiter.charge(1);
        }
        assert_eq!(admitted(&mut limiter, 405e6, 1), (170, 505e6));
        // Six seconds without a call: one second's worth, and the slot's own budget.
        assert_eq!(admitted(&mut limiter, 6505e6, 1), (1100, 6605e6));
        // Debts are paid first: ten slots pay for 1000 blocks at 100 a second.
        let mut limiter = Limiter::new(limits(Some(100.0), None, 1, BudgetRule::CatchUp), 0.0);
        assert_eq!(admitted(&mut limiter, 0.0, 1000).0, 1);
        assert_eq!(admitted(&mut limiter, 9e9, 1000).0, 0);
        assert_eq!(admitted(&mut limiter, 10e9, 1000).0, 1);
        // One in three seconds: missed slots together admit one, besides the slot's own.
        let mut limiter = Limiter::new(limits(None, Some(1.0 / 3.0), 1, BudgetRule::CatchUp), 0.0);
        let each: Vec<u32> = [4.1, 5.1, 17.1].iter().map(|s| admitted(&mut limiter, s * 1e9, 1).0).collect();
        assert_eq!(each, [1, 1, 2]);
    }

    #[test]
    fn blocks_that_a_command_overdraws_are_paid_back() {
        // 100 blocks a slot, 31 a command: 4 (24 owed), 76 left: 3 (17 owed), 83: 3 (10 owed), 90: 3 (3 owed), 97: 4.
        let mut limiter = Limiter::new(limits(Some(100.0), None, 1, BudgetRule::Exact), 0.0);
        let each: Vec<u32> = (0..5).map(|slot| admitted(&mut limiter, f64::from(slot) * 1e9, 31).0).collect();
        assert_eq!(each, [4, 3, 3, 3, 4]);
        // Ten slots pay for 1000 blocks, also without calls in between.
        let mut limiter = Limiter::new(limits(Some(100.0), None, 1, BudgetRule::Exact), 0.0);
        assert_eq!(admitted(&mut limiter, 0.0, 1000).0, 1);
        assert_eq!(admitted(&mut limiter, 9e9, 1000).0, 0);
        assert_eq!(admitted(&mut limiter, 10e9, 1000).0, 1);
    }

    #[test]
    fn rates_that_change_leave_no_credit_of_the_rates_before() {
        // 100 commands in each slot of 100 ms, then 50, then none for 50 slots, then 100 again.
        let full = limits(None, Some(1000.0), 10, BudgetRule::CatchUp);
        let mut limiter = Limiter::new(full, 0.0);
        assert_eq!(admitted(&mut limiter, 0.0, 1).0, 100);
        limiter.set_rates(full.scaled(0.5), 50e6);
        assert_eq!(admitted(&mut limiter, 60e6, 1).0, 0, "the slot has had its budget");
        assert_eq!(admitted(&mut limiter, 100e6, 1).0, 50);
        limiter.set_rates(full.scaled(0.0), 150e6);
        limiter.set_rates(full, 5150e6);
        assert_eq!(admitted(&mut limiter, 5200e6, 1).0, 100);
        let mut unlimited = Limiter::new(LoadLimits::NONE, 0.0);
        unlimited.set_rates(LoadLimits::NONE.scaled(0.5), 1e9);
        assert_eq!(unlimited.admit(1e9), Ok(()));
    }

    #[test]
    fn a_limit_beyond_all_measure_stops_no_slot() {
        for limit in [1e19, f64::MAX] {
            let mut limiter = Limiter::new(limits(Some(limit), Some(limit), 10, BudgetRule::Exact), 0.0);
            for day in [0.0, 1.0, 1000.0] {
                assert_eq!(limiter.admit(day * 86_400e9), Ok(()), "{limit} on day {day}");
                limiter.charge(1000);
            }
        }
    }

    proptest! {
        /// A sender that uses each budget fully sends exactly the limit in whole seconds.
        #[test]
        fn whole_seconds_hold_the_limit(limit in 1u32..200_000, slots in 1u32..3000, seconds in 1u32..4) {
            let mut limiter = Limiter::new(limits(None, Some(f64::from(limit)), slots, BudgetRule::Exact), 0.0);
            let mut count = 0u64;
            for slot in 0..slots * seconds {
                // The middle of the slot, so that rounding cannot change the slot.
                let now = (f64::from(slot) + 0.5) * 1e9 / f64::from(slots);
                count += u64::from(admitted(&mut limiter, now, 1).0);
            }
            prop_assert_eq!(count, u64::from(limit) * u64::from(seconds));
        }

        /// A sender that comes at random times, but at least once a second, catches up: no command is lost, and none is
        /// sent too early.
        #[test]
        fn who_comes_late_catches_up(
            limit in 1u32..3000, slots in 1u32..3000, naps_ns in proptest::collection::vec(1u32..990_000_000, 1..10),
        ) {
            let whole = f64::from(limit);
            let mut limiter = Limiter::new(limits(None, Some(whole), slots, BudgetRule::CatchUp), 0.0);
            let (mut now_ns, mut count) = (0.0, 0u64);
            for nap_ns in naps_ns {
                now_ns += f64::from(nap_ns);
                count += u64::from(admitted(&mut limiter, now_ns, 1).0);
                let slot = (now_ns / (1e9 / f64::from(slots))) as u64;
                prop_assert_eq!(count, sum(whole, slots, slot + 1) as u64);
            }
        }
    }
}
