//! A look at the whole state of a chip, for tests that check invariants. Never on the hot path.

use crate::line::Line;
use crate::ways::{COPY, DIRTY, IO};

/// A line resident in the LLC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    /// Which line.
    pub line: Line,
    /// In which way.
    pub way: u32,
    /// Newer than memory.
    pub dirty: bool,
    /// Last written by a device.
    pub io: bool,
    /// An MLC holds it too.
    pub copied: bool,
}

impl Resident {
    pub(crate) fn new(line: Line, way: u32, state: u8) -> Resident {
        Resident { line, way, dirty: state & DIRTY != 0, io: state & IO != 0, copied: state & COPY != 0 }
    }
}

/// A line resident in an MLC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MlcResident {
    /// Which line.
    pub line: Line,
    /// In whose MLC.
    pub core: usize,
    /// Newer than memory and the LLC.
    pub dirty: bool,
}
