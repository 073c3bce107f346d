//! Memory traces: the cache lines that a program touches, load or store, and the instructions between touches.
//!
//! Six formats are read ([`TraceReader`] detects which), one is written (`.wkt`, [`TraceWriter`]). All become the
//! same [`TraceRecord`]s. Must not know caches, except for the filter in `l1`, or the cost of an access.

mod builder;
mod champsim;
mod convert;
mod drmemtrace;
mod foreign;
mod info;
mod l1;
mod lackey;
mod pin;
mod plain;
mod reader;
mod text;
mod varint;
mod window;
mod wkt;
mod wkt_reader;
mod wkt_writer;

pub(crate) use builder::RecordBuilder;
pub(crate) use convert::Pipeline;
pub use convert::{ConvertOptions, convert};
pub use info::{TraceInfo, TraceSummary};
pub use l1::{L1_SETS, L1_WAYS, L1Filter, L1Filtered, l1_filter};
pub(crate) use lackey::decode as decode_lackey;
pub use reader::{MAX_RECORDS, Trace, TraceFormat, TraceReader};
use serde::Serialize;
pub(crate) use text::printable;
pub use window::Window;
pub(crate) use wkt::MAGIC as WKT_MAGIC;
pub use wkt_writer::TraceWriter;

/// Bytes of a cache line, on every chip we model.
pub const LINE_BYTES: u64 = 64;
/// Line numbers lie below this: 64-bit addresses, 64-byte lines.
pub(crate) const LINE_LIMIT: u64 = 1 << 58;

/// How a line is touched.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TouchKind {
    /// Read.
    Load,
    /// Written, or read and written by one instruction.
    Store,
}

/// One or more touches in a row of one cache line.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TraceRecord {
    /// The line: virtual address divided by [`LINE_BYTES`], below 2^58.
    pub line: u64,
    /// Instructions executed from the previous record's first touch (or the trace's start) to this one's
    /// first touch, the touching instruction included. 0 if the instruction already made the previous
    /// record: an access across a line border makes two.
    pub instructions: u64,
    /// Touches in a row of this kind to this line, merged into this record; at least 1.
    pub touches: u32,
    /// How it is touched.
    pub kind: TouchKind,
}
