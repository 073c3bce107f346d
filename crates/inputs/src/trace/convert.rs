//! Converts any trace format to `.wkt`: filters, cuts, and writes a file that has its name when it is complete.

use super::info::Footprint;
use super::window::WindowFilter;
use super::{L1Filter, TraceFormat, TraceInfo, TraceReader, TraceRecord, TraceWriter, Window};
use crate::error::InputError;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use waykeeper_output_file::{Existing, OutputFile};

/// Options of [`convert`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ConvertOptions {
    /// The part to keep.
    pub window: Window,
    /// Keep only what misses L1 ([`L1Filter`]); a trace that was filtered before stays as it is.
    pub l1_filter: bool,
    /// Description of the program; by default that of the input, or else its file name.
    pub source: Option<String>,
}

/// Converts a trace to `.wkt`. The output gets its name only when it is complete.
///
/// # Errors
/// Those of [`TraceReader`] about the input, [`InputError::Write`] about the output, and
/// [`InputError::NoRecords`] if the window is empty.
pub fn convert(input: &Path, output: &Path, options: &ConvertOptions) -> Result<TraceInfo, InputError> {
    let mut reader = TraceReader::open(input)?;
    let name = || input.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let source = match &options.source {
        Some(source) => source.clone(),
        None if reader.source().is_empty() => name(),
        None => reader.source().to_owned(),
    };
    let filter = (options.l1_filter && !reader.l1_filtered()).then(L1Filter::new);
    let l1_filtered = reader.l1_filtered() || filter.is_some();
    let mut pipeline = Pipeline::new(output, source, l1_filtered, filter, options.window)?;
    while !pipeline.is_full() {
        let Some(record) = reader.next().transpose()? else { break };
        pipeline.push(record)?;
    }
    if pipeline.records() == 0 {
        let remedy = "skip less of the trace, or take more of it";
        return Err(InputError::NoRecords {
            path: input.to_owned(),
            what: "memory accesses in the window",
            remedy,
        });
    }
    let info = pipeline.finish(reader.summary().instructions)?;
    Ok(TraceInfo { counts_accesses_only: reader.counts_accesses_only(), ..info })
}

/// Passes records through the filter and the window into the writer.
pub(crate) struct Pipeline {
    filter: Option<L1Filter>,
    window_filter: WindowFilter,
    output: PathBuf,
    writer: TraceWriter<BufWriter<OutputFile>>,
    footprint: Footprint,
    source: String,
    l1_filtered: bool,
    records: u64,
}

impl Pipeline {
    pub(crate) fn new(
        output: &Path,
        source: String,
        l1_filtered: bool,
        filter: Option<L1Filter>,
        window: Window,
    ) -> Result<Pipeline, InputError> {
        let writer = OutputFile::begin(output, Existing::Replace)
            .and_then(|file| TraceWriter::new(BufWriter::new(file), &source, l1_filtered))
            .map_err(|error| cannot(output, error))?;
        let (window_filter, footprint) = (WindowFilter::new(window), Footprint::default());
        let output = output.to_owned();
        Ok(Pipeline { filter, window_filter, output, writer, footprint, source, l1_filtered, records: 0 })
    }

    /// Adds a record.
    pub(crate) fn push(&mut self, record: TraceRecord) -> Result<(), InputError> {
        let record = match &mut self.filter {
            Some(filter) => filter.push(record),
            None => Some(record),
        };
        if let Some(record) = record.and_then(|record| self.window_filter.push(record)) {
            self.footprint.count(&record, &self.output)?;
            self.writer.push(record).map_err(|error| cannot(&self.output, error))?;
            self.records += 1;
        }
        Ok(())
    }

    /// Records written.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// True if no further record will be written.
    pub(crate) fn is_full(&self) -> bool {
        self.window_filter.is_full()
    }

    /// True if an instruction count is after the end of the window.
    pub(crate) fn is_past(&self, instructions: u64) -> bool {
        self.window_filter.is_past(instructions)
    }

    /// Ends the file and gives it its name; the input had this many instructions.
    pub(crate) fn finish(self, instructions: u64) -> Result<TraceInfo, InputError> {
        let Pipeline { window_filter, output, writer, footprint, source, l1_filtered, .. } = self;
        let (summary, buffer) = writer
            .finish(window_filter.tail_instructions(instructions))
            .map_err(|error| cannot(&output, error))?;
        let file = buffer.into_inner().map_err(io::IntoInnerError::into_error);
        file.and_then(OutputFile::keep).map_err(|error| cannot(&output, error))?;
        Ok(footprint.info(TraceFormat::Wkt, source, l1_filtered, summary))
    }
}

fn cannot(output: &Path, source: io::Error) -> InputError {
    InputError::Write { path: output.to_owned(), source }
}
