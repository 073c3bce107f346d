//! The words every room shares: way masks, ids, core lists, sizes.
//!
//! Knows nothing of chips, hosts or policies. Everything here is a small value type whose only job is
//! that two numbers which mean different things cannot be mixed up, and that a bad one is refused with a
//! message that says what would have been accepted.

mod cores;
mod ids;
mod mask;
mod size;

pub use cores::{CoreList, CoreListError};
pub use ids::{ClosId, CoreId, DeviceId, GroupId, PortId};
pub use mask::{MaskError, WayMask};
pub use size::{SizeError, parse_size};

/// Bytes in one cache line on every chip that is modelled here.
pub const LINE_BYTES: u64 = 64;

/// Lines that `bytes` bytes occupy when they start on a line boundary.
pub const fn lines_of(bytes: u64) -> u64 {
    bytes.div_ceil(LINE_BYTES)
}
