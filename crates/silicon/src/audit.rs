//! The whole state of a chip, for tests that check invariants. Never on the hot path.

use crate::line::Line;
use crate::ways::{AGE, COPY, DIRTY, IO, PAYLOAD};

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
    /// 0 (keep) to 3 (evict first).
    pub age: u8,
    /// IDIO's tag: payload of a packet.
    pub payload: bool,
}

impl Resident {
    pub(crate) fn new(line: Line, way: u32, state: u8) -> Resident {
        let has = |flag| state & flag != 0;
        let (dirty, io, copied, payload) = (has(DIRTY), has(IO), has(COPY), has(PAYLOAD));
        Resident { line, way, dirty, io, copied, age: state & AGE, payload }
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
    /// Filled by an LLC hit on a non-I/O line (R).
    pub reused: bool,
    /// IDIO's tag: payload of a packet.
    pub payload: bool,
}
