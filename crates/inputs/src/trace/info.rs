//! A summary of a trace.

use super::{LINE_BYTES, TouchKind, TraceFormat, TraceReader, TraceRecord};
use crate::error::InputError;
use serde::Serialize;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;

/// Counts that are updated with every record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct TraceSummary {
    /// Records.
    pub records: u64,
    /// Instructions, those behind the last record included once the trace has ended.
    pub instructions: u64,
    /// Touches that read, merged ones counted each.
    pub loads: u64,
    /// Touches that write, merged ones counted each.
    pub stores: u64,
}

impl TraceSummary {
    /// Counts a record; none if 64 bits overflow, which only a damaged file can do.
    pub(super) fn count(&mut self, record: &TraceRecord) -> Option<()> {
        self.records += 1;
        self.instructions = self.instructions.checked_add(record.instructions)?;
        let touches = match record.kind {
            TouchKind::Load => &mut self.loads,
            TouchKind::Store => &mut self.stores,
        };
        *touches = touches.checked_add(u64::from(record.touches))?;
        Some(())
    }
}

/// The summary of a trace.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TraceInfo {
    /// The file format it came in.
    pub format: TraceFormat,
    /// The file's description of the program; empty if it has none.
    pub source: String,
    /// True if the records are misses of the L1 filter.
    pub l1_filtered: bool,
    /// Only instructions that touch memory are counted: the file has no others.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub counts_accesses_only: bool,
    /// The counts.
    #[serde(flatten)]
    pub summary: TraceSummary,
    /// Distinct lines touched.
    pub lines: u64,
    /// Footprint, bytes: distinct lines times [`LINE_BYTES`].
    pub footprint_bytes: u64,
    /// Distinct lines written.
    pub lines_written: u64,
    /// Records per 1000 instructions.
    pub records_per_kilo_instruction: f64,
    /// Share of touches that write, 0..1.
    pub store_ratio: f64,
}

impl TraceInfo {
    /// Reads a whole trace for its summary. Memory: some 50 bytes for each page of 4 KiB.
    ///
    /// # Errors
    /// Those of [`TraceReader`]; also if the trace touches more than 2^21 pages.
    pub fn read(path: &Path) -> Result<TraceInfo, InputError> {
        let mut reader = TraceReader::open(path)?;
        let mut footprint = Footprint::default();
        for record in reader.by_ref() {
            footprint.count(&record?, path)?;
        }
        let info = footprint.info(
            reader.format(),
            reader.source().to_owned(),
            reader.l1_filtered(),
            reader.summary(),
        );
        Ok(TraceInfo { counts_accesses_only: reader.counts_accesses_only(), ..info })
    }
}

/// Lines of a page, 4 KiB: those of a page share a bit mask.
const PAGE_LINES: u64 = 64;
/// Pages that a trace may touch: 2^21, 8 GiB, which take 150 MiB here. Simulated memory has 2 GiB.
const MAX_PAGES: usize = 1 << 21;

/// Distinct lines of the records so far.
#[derive(Default)]
pub(super) struct Footprint {
    /// Per page a bit for each line that is touched, and for each that is written.
    pages: HashMap<u64, [u64; 2]>,
}

impl Footprint {
    /// Adds a record; `path` is the trace, for the error that it touches too many pages.
    pub(super) fn count(&mut self, record: &TraceRecord, path: &Path) -> Result<(), InputError> {
        let (page, bit) = (record.line / PAGE_LINES, 1 << (record.line % PAGE_LINES));
        let full = self.pages.len() == MAX_PAGES;
        let mask = match self.pages.entry(page) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(_) if full => {
                return Err(InputError::Value {
                    path: path.to_owned(),
                    offset: 0,
                    field: "number of 4 KiB pages touched",
                    found: "larger".to_owned(),
                    wanted: format!(
                        "at most {MAX_PAGES}, which are 8 GiB; take a shorter part of the program"
                    ),
                });
            }
            Entry::Vacant(entry) => entry.insert([0; 2]),
        };
        mask[0] |= bit;
        if record.kind == TouchKind::Store {
            mask[1] |= bit;
        }
        Ok(())
    }

    /// The summary at the end of the trace.
    pub(super) fn info(
        &self,
        format: TraceFormat,
        source: String,
        l1_filtered: bool,
        summary: TraceSummary,
    ) -> TraceInfo {
        let count = |which: usize| self.pages.values().map(|mask| u64::from(mask[which].count_ones())).sum();
        let (lines, lines_written): (u64, u64) = (count(0), count(1));
        let per = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        TraceInfo {
            format,
            source,
            l1_filtered,
            counts_accesses_only: false,
            summary,
            lines,
            footprint_bytes: lines * LINE_BYTES,
            lines_written,
            records_per_kilo_instruction: 1000.0 * per(summary.records, summary.instructions),
            store_ratio: per(summary.stores, summary.loads.saturating_add(summary.stores)),
        }
    }
}
