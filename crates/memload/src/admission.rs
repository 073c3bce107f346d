//! State that all workers share: the position in the pattern, the limiter's budget, and the remaining blocks and
//! commands.
//!
//! Knows counts and nanoseconds; must not know threads, nor devices.

use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::{Mutex, PoisonError};
use waykeeper_load::{BudgetRule, Command, Limiter, LoadLimits, Pattern, Shape};

/// Whether more commands may be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// The batch has as many commands as requested.
    Go,
    /// Not before this time, ns from the start.
    Wait(u64),
    /// No more commands will follow.
    Over,
}

/// The shared state.
#[derive(Debug)]
pub struct Admission {
    state: Mutex<State>,
    shape: Shape,
    thesis: bool,
}

#[derive(Debug)]
struct State {
    limiter: Limiter,
    position: u32,
    blocks_left: u64,
    commands_left: u64,
}

/// No limit of blocks or commands.
pub const ENDLESS: u64 = u64::MAX;

impl Admission {
    /// The state at the start of a run.
    pub fn new(shape: Shape, limits: LoadLimits, blocks: Option<u64>, commands: Option<u64>) -> Admission {
        let thesis = limits.rule == BudgetRule::Thesis;
        let state = State {
            limiter: Limiter::new(limits, 0.0),
            position: 0,
            blocks_left: blocks.unwrap_or(ENDLESS),
            commands_left: commands.unwrap_or(ENDLESS),
        };
        Admission { state: Mutex::new(state), shape, thesis }
    }

    /// Adds up to `most` commands to `batch`. If another worker has already entered a later slot than that of `now_ns`,
    /// sets `now_ns` to the start of that slot.
    pub fn take(
        &self,
        now_ns: &mut u64,
        most: usize,
        random: &mut Xoshiro256PlusPlus,
        batch: &mut Vec<Command>,
    ) -> Next {
        if self.shape.pattern() == Pattern::Noop {
            return Next::Wait(ENDLESS);
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *now_ns = (*now_ns).max(state.limiter.entered_ns().ceil() as u64);
        for _ in 0..most {
            if state.commands_left == 0 || state.blocks_left == 0 {
                return Next::Over;
            }
            if let Err(until) = state.limiter.admit(*now_ns as f64) {
                return Next::Wait(until.ceil() as u64);
            }
            let mut position = state.position;
            let mut command = self.shape.next(&mut position, |below| number_below(random, below));
            let left = state.blocks_left;
            if u64::from(command.counted) > left {
                if self.thesis {
                    // nvme-memload charges the command that exceeds the total and does not send it.
                    state.blocks_left = 0;
                    return Next::Over;
                }
                // The last command is shortened to the remaining blocks; it stays within the buffer, because it becomes
                // shorter.
                let last = left as u32;
                command = Command { counted: last, moved: last, ..command };
            }
            state.position = position;
            state.limiter.charge(command.counted);
            if state.blocks_left != ENDLESS {
                state.blocks_left -= u64::from(command.counted);
            }
            if state.commands_left != ENDLESS {
                state.commands_left -= 1;
            }
            batch.push(command);
        }
        Next::Go
    }
}

/// A random number less than `below`; 0 if `below` is 0. The bias of one multiplication is below 2^-32.
pub fn number_below(random: &mut Xoshiro256PlusPlus, below: u32) -> u32 {
    ((random.next_u64() >> 32).wrapping_mul(u64::from(below)) >> 32) as u32
}

/// The same for positions on a device, which may have more than 2^32 blocks.
pub fn place_below(random: &mut Xoshiro256PlusPlus, below: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(below)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::SeedableRng;

    fn all(thesis: bool, blocks: Option<u64>, commands: Option<u64>) -> Vec<u32> {
        let shape = Shape::new(Pattern::Random, 100, 32, 1, thesis).unwrap();
        let rule = if thesis { BudgetRule::Thesis } else { BudgetRule::Exact };
        let admission = Admission::new(shape, LoadLimits { rule, ..LoadLimits::NONE }, blocks, commands);
        let (mut random, mut batch) = (Xoshiro256PlusPlus::seed_from_u64(1), Vec::new());
        while admission.take(&mut 0, 3, &mut random, &mut batch) == Next::Go {}
        batch.iter().map(|command| command.moved).collect()
    }

    #[test]
    fn it_stops_at_exactly_so_many() {
        assert_eq!(all(false, None, Some(4)), [31, 31, 31, 31]);
        // 100 = 3 x 31 + 7.
        assert_eq!(all(false, Some(100), None), [31, 31, 31, 7]);
        assert_eq!(all(false, Some(100), Some(2)), [31, 31]);
        assert_eq!(all(false, Some(93), None), [31, 31, 31]);
        // nvme-memload counts 31, moves 32, and does not send the command that would exceed 100.
        assert_eq!(all(true, Some(100), None), [32, 32, 32]);
    }

    #[test]
    fn a_limit_says_when_to_come_again() {
        let shape = Shape::new(Pattern::Single, 100, 32, 1, false).unwrap();
        let limits = LoadLimits { commands: Some(20.0), slots: 10, ..LoadLimits::NONE };
        let admission = Admission::new(shape, limits, None, None);
        let (mut random, mut batch) = (Xoshiro256PlusPlus::seed_from_u64(1), Vec::new());
        assert_eq!(admission.take(&mut 0, 8, &mut random, &mut batch), Next::Wait(100_000_000));
        assert_eq!(batch.len(), 2);
        assert_eq!(admission.take(&mut 100_000_000, 1, &mut random, &mut batch), Next::Go);
        // A worker with an older time also gets the second slot.
        let mut late_ns = 99_999_000;
        assert_eq!(admission.take(&mut late_ns, 1, &mut random, &mut batch), Next::Go);
        assert_eq!(late_ns, 100_000_000);
        let noop = Shape::new(Pattern::Noop, 0, 0, 1, false).unwrap();
        let admission = Admission::new(noop, LoadLimits::NONE, None, None);
        assert_eq!(admission.take(&mut 0, 1, &mut random, &mut batch), Next::Wait(ENDLESS));
    }

    #[test]
    fn numbers_stay_below() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        assert!((0..1000).all(|_| number_below(&mut random, 3) < 3));
        assert!((0..1000).all(|_| place_below(&mut random, 1 << 40) < 1 << 40));
        assert_eq!(place_below(&mut random, 1), 0);
    }
}
