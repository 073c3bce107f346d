//! How much nvme-memload may do: budgets of blocks and commands, filled slot by slot (algorithms.md 7.3).
//!
//! Knows time and counts, not what is counted.

/// Limits as a scenario gives them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limits {
    /// Blocks per simulated second.
    pub(super) blocks: Option<f64>,
    /// Commands per simulated second.
    pub(super) commands: Option<f64>,
    /// Slots per simulated second.
    pub(super) slots: u32,
}

/// The budgets. All workers draw on them.
#[derive(Debug)]
pub(super) struct Limiter {
    limits: Limits,
    start_ns: f64,
    slot: u64,
    blocks: i64,
    commands: i64,
}

impl Limiter {
    /// The first slot has the whole limit.
    pub(super) fn new(limits: Limits, start_ns: f64) -> Limiter {
        let whole = |limit: Option<f64>| limit.map_or(i64::MAX, |limit| limit as i64);
        let (blocks, commands) = (whole(limits.blocks), whole(limits.commands));
        Limiter { limits, start_ns, slot: 0, blocks, commands }
    }

    /// Whether a command may go now; else when the next slot begins, ns.
    pub(super) fn admit(&mut self, now_ns: f64) -> Result<(), f64> {
        if self.limits.blocks.is_none() && self.limits.commands.is_none() {
            return Ok(());
        }
        let slot_ns = 1e9 / f64::from(self.limits.slots);
        let slot = ((now_ns - self.start_ns) / slot_ns) as u64;
        if slot > self.slot {
            self.slot = slot;
            // Set, not added to; a whole number as the program divides.
            let part = |limit: Option<f64>| {
                limit.map_or(i64::MAX, |limit| limit as i64 / i64::from(self.limits.slots))
            };
            (self.blocks, self.commands) = (part(self.limits.blocks), part(self.limits.commands));
        }
        if self.blocks >= 0 && self.commands >= 0 {
            return Ok(());
        }
        // A nanosecond on at least, whatever rounding makes of the boundary.
        Err((self.start_ns + (self.slot + 1) as f64 * slot_ns).max(now_ns + 1.0))
    }

    /// A command of so many blocks goes.
    pub(super) fn charge(&mut self, blocks: u32) {
        if self.limits.blocks.is_some() {
            self.blocks -= i64::from(blocks);
        }
        if self.limits.commands.is_some() {
            self.commands -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_slot_takes_its_part_and_one_command_more() {
        // 1000 commands in 10 slots of 100 ms: the first slot has all 1000, the others 100, and each one more.
        let mut limiter = Limiter::new(Limits { blocks: None, commands: Some(1000.0), slots: 10 }, 5e6);
        assert_eq!(admitted(&mut limiter, 5e6, 1), (1001, 105e6));
        assert_eq!(admitted(&mut limiter, 105e6, 1), (101, 205e6));
        // What a slot did not use is gone.
        assert_eq!(admitted(&mut limiter, 905e6, 1).0, 101);
    }

    #[test]
    fn one_command_may_overshoot_the_blocks() {
        // 100 blocks a slot: after 3 x 31 = 93 there are 7 left, the fourth goes and owes 24.
        let mut limiter = Limiter::new(Limits { blocks: Some(100.0), commands: None, slots: 1 }, 0.0);
        assert_eq!(admitted(&mut limiter, 0.0, 31), (4, 1e9));
        // A limit below the slots' number leaves 0: one command a slot.
        let mut limiter = Limiter::new(Limits { blocks: None, commands: Some(3.0), slots: 10 }, 0.0);
        assert_eq!(admitted(&mut limiter, 100e6, 1).0, 1);
    }
}
