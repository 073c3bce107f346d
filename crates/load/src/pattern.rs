//! Access patterns: which blocks of the buffer the next command moves (algorithms.md 7.2; thesis s3.1.1; `packets` is
//! ours).
//!
//! Knows positions in a buffer; must not know the content of a block, nor the address on the device.

use serde::{Deserialize, Serialize};

/// Order in which commands access the buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// One block per command, in order.
    Single,
    /// `max - 1` blocks (`max`: the device's limit) at a random position.
    Random,
    /// The whole buffer in order, `max - 1` blocks per command.
    Full,
    /// Commands without data.
    Flush,
    /// No commands: measures the background level of the counters.
    Noop,
    /// As a NIC fills its ring: one block into each slot of `stride` blocks in turn.
    Packets,
}

impl Pattern {
    /// All patterns, in the order in which they are shown.
    pub const ALL: [Pattern; 6] =
        [Pattern::Random, Pattern::Single, Pattern::Full, Pattern::Packets, Pattern::Flush, Pattern::Noop];

    /// Name in options and scenarios.
    pub const fn name(self) -> &'static str {
        match self {
            Pattern::Single => "single",
            Pattern::Random => "random",
            Pattern::Full => "full",
            Pattern::Flush => "flush",
            Pattern::Noop => "noop",
            Pattern::Packets => "packets",
        }
    }

    /// True if its commands carry data.
    pub const fn moves(self) -> bool {
        !matches!(self, Pattern::Flush | Pattern::Noop)
    }
}

/// Direction of the data, from the view of main memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryDirection {
    /// The device reads memory: an NVMe Write.
    Read,
    /// The device writes memory: an NVMe Read.
    Write,
}

/// One command: blocks as the program counts them and as the device transfers them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Command {
    /// First block, from the start of the buffer.
    pub target: u32,
    /// Blocks counted.
    pub counted: u32,
    /// Blocks transferred.
    pub moved: u32,
}

/// A pattern with the sizes of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    pattern: Pattern,
    blocks: u32,
    max: u32,
    stride: u32,
    /// Blocks moved but not counted: 1 in the profile `thesis` (algorithms.md 7.6).
    over: u32,
}

/// A buffer or device that a pattern cannot use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ShapeError {
    /// The buffer has too few blocks.
    #[error("`{}` needs a buffer of at least {least} blocks, this one has {blocks}", .pattern.name())]
    Small {
        /// The pattern.
        pattern: Pattern,
        /// Required blocks.
        least: u32,
        /// Blocks of the buffer.
        blocks: u32,
    },
    /// The device's limit is too small for `max - 1` blocks.
    #[error("`{}` needs a device that moves at least {least} blocks per command, this one moves {max}", .pattern.name())]
    Max {
        /// The pattern.
        pattern: Pattern,
        /// Required limit.
        least: u32,
        /// The device's limit, blocks per command.
        max: u32,
    },
    /// A slot of length 0.
    #[error("a slot of 0 blocks has no room for a packet; write at least 1")]
    Stride,
}

impl Shape {
    /// A pattern on a buffer of `blocks` blocks, with a device that moves at most `max` of them per command. `stride`
    /// is the slot length of `packets`. `thesis` reproduces nvme-memload, which writes the block count into a
    /// zero-based field.
    ///
    /// # Errors
    /// If the pattern cannot use this buffer or device.
    pub fn new(
        pattern: Pattern,
        blocks: u32,
        max: u32,
        stride: u32,
        thesis: bool,
    ) -> Result<Shape, ShapeError> {
        let over = u32::from(thesis);
        let least_max = match pattern {
            Pattern::Random | Pattern::Full => 2,
            Pattern::Single | Pattern::Packets => 1 + over,
            Pattern::Flush | Pattern::Noop => 0,
        };
        if max < least_max {
            return Err(ShapeError::Max { pattern, least: least_max, max });
        }
        if pattern == Pattern::Packets && stride == 0 {
            return Err(ShapeError::Stride);
        }
        let least = match pattern {
            Pattern::Random => max,
            Pattern::Single => 1 + over,
            Pattern::Full => 1,
            Pattern::Packets => stride.max(1 + over),
            Pattern::Flush | Pattern::Noop => 0,
        };
        if blocks < least {
            return Err(ShapeError::Small { pattern, least, blocks });
        }
        Ok(Shape { pattern, blocks, max, stride, over })
    }

    /// The pattern.
    pub const fn pattern(&self) -> Pattern {
        self.pattern
    }

    /// Blocks of the buffer.
    pub const fn blocks(&self) -> u32 {
        self.blocks
    }

    /// The next command. All workers share `position`, which begins at 0; `below(n)` returns a random number less than
    /// `n`.
    pub fn next(&self, position: &mut u32, below: impl FnOnce(u32) -> u32) -> Command {
        let (target, counted) = match self.pattern {
            Pattern::Single => {
                let target = *position;
                *position = (target + 1) % (self.blocks - self.over);
                (target, 1)
            }
            Pattern::Random => (below(self.blocks - (self.max - 1)), self.max - 1),
            Pattern::Full => {
                let target = *position;
                let counted = (self.max - 1).min(self.blocks - target);
                *position = (target + counted) % self.blocks;
                (target, counted)
            }
            Pattern::Packets => {
                let slots = self.blocks / self.stride;
                let slot = *position;
                *position = (slot + 1) % slots;
                (slot * self.stride, 1)
            }
            Pattern::Flush | Pattern::Noop => return Command { target: 0, counted: 0, moved: 0 },
        };
        Command { target, counted, moved: (counted + self.over).min(self.blocks - target) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn commands(pattern: Pattern, blocks: u32, thesis: bool, count: usize) -> Vec<(u32, u32, u32)> {
        let shape = Shape::new(pattern, blocks, 32, 4, thesis).unwrap();
        let (mut position, mut state) = (0, 1u32);
        let mut draw = |n: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % n
        };
        let mut next = || shape.next(&mut position, &mut draw);
        (0..count).map(|_| next()).map(|c| (c.target, c.counted, c.moved)).collect()
    }

    #[test]
    fn single_advances_by_one_block_and_the_published_program_by_two() {
        let (single, all) = (Pattern::Single, [(0, 1, 1), (1, 1, 1), (2, 1, 1), (0, 1, 1)]);
        assert_eq!(commands(single, 3, false, 4), all);
        // The position wraps at `blocks - 1`, so that the second block is inside.
        assert_eq!(commands(single, 3, true, 3), [(0, 1, 2), (1, 1, 2), (0, 1, 2)]);
    }

    #[test]
    fn random_counts_one_less_than_the_most_and_stays_inside() {
        for (thesis, moved) in [(false, 31), (true, 32)] {
            let all = commands(Pattern::Random, 40, thesis, 500);
            // 40 - 31 = 9 targets, 0 to 8; the last command of nvme-memload ends at 8 + 32 = 40.
            assert!(all.iter().all(|c| c.0 < 9 && (c.1, c.2) == (31, moved)));
            assert!((0..9).all(|target| all.iter().any(|c| c.0 == target)));
        }
    }

    #[test]
    fn full_uses_the_whole_buffer_and_flush_moves_nothing() {
        let all = commands(Pattern::Full, 70, false, 4);
        assert_eq!(all, [(0, 31, 31), (31, 31, 31), (62, 8, 8), (0, 31, 31)]);
        assert_eq!(commands(Pattern::Flush, 70, true, 1), [(0, 0, 0)]);
        assert_eq!(commands(Pattern::Noop, 0, false, 1), [(0, 0, 0)]);
    }

    #[test]
    fn packets_fill_slot_after_slot_and_what_is_no_whole_slot_is_left_out() {
        // 11 blocks are two slots of 4.
        assert_eq!(commands(Pattern::Packets, 11, false, 3), [(0, 1, 1), (4, 1, 1), (0, 1, 1)]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let reported = |pattern, blocks, max, stride, thesis| {
            Shape::new(pattern, blocks, max, stride, thesis).map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(
            reported(Pattern::Random, 31, 32, 1, false).unwrap_err(),
            "`random` needs a buffer of at least 32 blocks, this one has 31"
        );
        assert_eq!(
            reported(Pattern::Full, 31, 1, 1, false).unwrap_err(),
            "`full` needs a device that moves at least 2 blocks per command, this one moves 1"
        );
        assert!(reported(Pattern::Single, 1, 1, 1, true).is_err(), "it moves two");
        assert!(reported(Pattern::Single, 1, 1, 1, false).is_ok());
        assert!(reported(Pattern::Packets, 8, 8, 0, false).is_err());
    }

    proptest! {
        /// Whatever the sizes: no command leaves the buffer, is empty, or exceeds the device's limit.
        #[test]
        fn commands_stay_inside(
            which in 0usize..4, blocks in 1u32..200, max in 1u32..64, stride in 1u32..20, thesis: bool, seed: u32,
        ) {
            let Ok(shape) = Shape::new(Pattern::ALL[which], blocks, max, stride, thesis) else { return Ok(()) };
            let (mut position, mut draw) = (0, seed);
            for _ in 0..300 {
                draw = draw.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let command = shape.next(&mut position, |n| (draw >> 8) % n);
                prop_assert!(command.counted >= 1 && command.moved >= 1);
                prop_assert!(command.moved <= max, "{command:?}");
                prop_assert!(command.target + command.moved <= blocks, "{command:?}");
            }
        }
    }
}
