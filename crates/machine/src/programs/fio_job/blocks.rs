//! The sizes of commands, and which one is next. Must not know when a command is sent.

use crate::random::Stream;

/// The sizes of a thread's commands.
#[derive(Clone, Debug)]
pub struct Blocks {
    /// All sizes, bytes.
    pub sizes: Vec<u64>,
    /// Index of each size of reads, and of writes, with the cumulative share of commands. Empty if all have one size.
    pub(super) reads: Vec<(usize, f64)>,
    pub(super) writes: Vec<(usize, f64)>,
}

impl Blocks {
    /// All commands have this size.
    pub fn one(bytes: u64) -> Blocks {
        Blocks { sizes: vec![bytes], reads: Vec::new(), writes: Vec::new() }
    }

    /// Index of the next command's size.
    pub fn draw(&self, write: bool, stream: &mut Stream) -> usize {
        let shares = if write { &self.writes } else { &self.reads };
        match shares.as_slice() {
            [] => 0,
            [(only, _)] => *only,
            [.., (last, _)] => {
                let at = stream.unit();
                shares.iter().find(|(_, upto)| at < *upto).map_or(*last, |(index, _)| *index)
            }
        }
    }
}
