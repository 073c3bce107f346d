//! Files that drive the virtual server: packet captures and memory traces, turned into plain records.
//!
//! A capture drives a NIC (sizes, gaps, flows and the queue a flow hashes to); a memory trace drives a
//! core (which cache line is touched, how, after how many instructions). Captures are pcap and pcapng;
//! traces are our own `.wkt`, valgrind lackey text and ChampSim binaries; all of them plain or packed
//! with gzip, xz or zstd. [`record()`] makes a trace of a real program with valgrind.
//!
//! This crate must not know chips, machines or simulated time: neither the cost of a record nor where it hits. It reads
//! untrusted files: every length is checked before memory is allocated, and each fault is one [`InputError`] that names
//! the file, the offset and a remedy.

mod capture;
mod error;
mod record;
mod rss;
mod source;
mod trace;

pub use capture::{
    Capture, CaptureFormat, CaptureGap, CaptureInfo, CaptureOddities, ETHERNET_BYTES, FlowKey, LinkType,
    MAX_FLOWS, MAX_PACKETS, Packet, SHORTEST_FRAME,
};
pub use error::InputError;
pub use record::{Ended, RecordError, RecordOptions, Recording, RecordingProgress, Unrecorded, record};
pub use rss::{IndirectionTable, MICROSOFT_KEY, RSS_TABLE_ENTRIES, toeplitz};
pub use source::Packing;
pub use trace::{
    ConvertOptions, L1_SETS, L1_WAYS, L1Filter, L1Filtered, LINE_BYTES, MAX_RECORDS, TouchKind, Trace,
    TraceFormat, TraceInfo, TraceReader, TraceRecord, TraceSummary, TraceWriter, Window, convert, l1_filter,
};
