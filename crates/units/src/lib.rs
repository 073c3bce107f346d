//! Types that every crate uses: way masks, ids, core lists, sizes; the known word most like a mistyped one; numbers and
//! their units in messages; the name in an HTTP `Host`; text in UTF-16.
//!
//! It must not know chips, hosts or policies. Each type prevents mixing numbers of different meaning, and refuses bad
//! input with a message that names what is accepted.

mod alike;
mod cores;
mod digits;
mod http_host;
mod ids;
mod mask;
pub mod quantity;
mod shown;
mod size;
mod wide;

pub use alike::{Likeness, most_alike, nearest};
pub use cores::{CoreList, CoreListError};
pub use digits::four_digits;
pub use http_host::{is_name_of, names_this_machine};
pub use ids::{ClosId, CoreId, DeviceId, PortId, WorkloadId};
pub use mask::{MaskError, WayMask};
pub use quantity::Unit;
pub use shown::{few, message, one_line, printable, shown};
pub use size::{SizeError, parse_size};
pub use wide::is_utf_16;

/// Bytes in one cache line on every chip that is modelled here.
pub const LINE_BYTES: u64 = 64;

/// Lines that `bytes` bytes occupy when they start on a line boundary.
pub const fn lines_of(bytes: u64) -> u64 {
    bytes.div_ceil(LINE_BYTES)
}
