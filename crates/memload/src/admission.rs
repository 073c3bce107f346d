//! What all workers share: the place in the pattern, the limiter's budget, and how much is left to do.
//!
//! Knows counts and a clock's nanoseconds; must not know threads' sleep, nor devices.

use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::{Mutex, PoisonError};
use waykeeper_load::{Command, Limiter, Limits, Pattern, Rule, Shape};

/// Whether more may be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// As many as were asked for.
    Go,
    /// Not before this time, ns from the start.
    Wait(u64),
    /// Everything has been sent.
    Over,
}

/// What is shared.
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

/// No limit of count.
pub const ENDLESS: u64 = u64::MAX;

impl Admission {
    /// At the start of a run.
    pub fn new(shape: Shape, limits: Limits, blocks: Option<u64>, commands: Option<u64>) -> Admission {
        let thesis = limits.rule == Rule::Thesis;
        let state = State {
            limiter: Limiter::new(limits, 0.0),
            position: 0,
            blocks_left: blocks.unwrap_or(ENDLESS),
            commands_left: commands.unwrap_or(ENDLESS),
        };
        Admission { state: Mutex::new(state), shape, thesis }
    }

    /// Puts up to `most` commands into `batch`. Where another worker has come into a later slot than that of `now_ns`
    /// meanwhile, it is the beginning of that slot afterwards.
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
                    // The published program charges the command that crosses the line and does not send it.
                    state.blocks_left = 0;
                    return Next::Over;
                }
                // The last command is as long as what is left, which is less than its own length and so fits.
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

/// A number below another; 0 below 0. The bias of one multiplication is below 2^-32.
pub fn number_below(random: &mut Xoshiro256PlusPlus, below: u32) -> u32 {
    ((random.next_u64() >> 32).wrapping_mul(u64::from(below)) >> 32) as u32
}

/// The same for places on a device, which may have more blocks than 32 bits count.
pub fn place_below(random: &mut Xoshiro256PlusPlus, below: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(below)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::SeedableRng;

    fn all(thesis: bool, blocks: Option<u64>, commands: Option<u64>) -> Vec<u32> {
        let shape = Shape::new(Pattern::Random, 100, 32, 1, thesis).unwrap();
        let rule = if thesis { Rule::Thesis } else { Rule::Exact };
        let admission = Admission::new(shape, Limits { rule, ..Limits::NONE }, blocks, commands);
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
        // The published program counts 31, moves 32, and does not send the command that would cross 100.
        assert_eq!(all(true, Some(100), None), [32, 32, 32]);
    }

    #[test]
    fn a_limit_says_when_to_come_again() {
        let shape = Shape::new(Pattern::Single, 100, 32, 1, false).unwrap();
        let limits = Limits { commands: Some(20.0), slots: 10, ..Limits::NONE };
        let admission = Admission::new(shape, limits, None, None);
        let (mut random, mut batch) = (Xoshiro256PlusPlus::seed_from_u64(1), Vec::new());
        assert_eq!(admission.take(&mut 0, 8, &mut random, &mut batch), Next::Wait(100_000_000));
        assert_eq!(batch.len(), 2);
        assert_eq!(admission.take(&mut 100_000_000, 1, &mut random, &mut batch), Next::Go);
        // Who looked at the clock before that goes in the second slot all the same.
        let mut late_ns = 99_999_000;
        assert_eq!(admission.take(&mut late_ns, 1, &mut random, &mut batch), Next::Go);
        assert_eq!(late_ns, 100_000_000);
        let noop = Shape::new(Pattern::Noop, 0, 0, 1, false).unwrap();
        let admission = Admission::new(noop, Limits::NONE, None, None);
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
