//! Converts any trace format to `.wkt`: filters, cuts, writes, and renames the file when it is complete.

use super::info::Footprint;
use super::window::WindowFilter;
use super::{L1Filter, TraceFormat, TraceInfo, TraceReader, TraceRecord, TraceWriter, Window};
use crate::error::InputError;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

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
    file: PartFile,
    writer: TraceWriter<BufWriter<File>>,
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
        let (file, out) = PartFile::create(output)?;
        let writer = TraceWriter::new(BufWriter::new(out), &source, l1_filtered)
            .map_err(|error| file.cannot(error))?;
        let (window_filter, footprint) = (WindowFilter::new(window), Footprint::default());
        Ok(Pipeline { filter, window_filter, file, writer, footprint, source, l1_filtered, records: 0 })
    }

    /// Adds a record.
    pub(crate) fn push(&mut self, record: TraceRecord) -> Result<(), InputError> {
        let record = match &mut self.filter {
            Some(filter) => filter.push(record),
            None => Some(record),
        };
        if let Some(record) = record.and_then(|record| self.window_filter.push(record)) {
            self.footprint.count(&record, &self.file.output)?;
            self.writer.push(record).map_err(|error| self.file.cannot(error))?;
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

    /// Ends the file and renames it; the input had this many instructions.
    pub(crate) fn finish(self, instructions: u64) -> Result<TraceInfo, InputError> {
        let Pipeline { window_filter, file, writer, footprint, source, l1_filtered, .. } = self;
        let (summary, _) = writer
            .finish(window_filter.tail_instructions(instructions))
            .map_err(|error| file.cannot(error))?;
        file.keep()?;
        Ok(footprint.info(TraceFormat::Wkt, source, l1_filtered, summary))
    }
}

/// An output file under a temporary name until it is complete; removed if it never is.
struct PartFile {
    output: PathBuf,
    part: PathBuf,
    kept: bool,
}

impl PartFile {
    fn create(output: &Path) -> Result<(PartFile, File), InputError> {
        let mut part = OsString::from(output);
        part.push(".part");
        let part = PathBuf::from(part);
        let file =
            File::create(&part).map_err(|source| InputError::Write { path: output.to_owned(), source })?;
        Ok((PartFile { output: output.to_owned(), part, kept: false }, file))
    }

    fn cannot(&self, source: io::Error) -> InputError {
        InputError::Write { path: self.output.clone(), source }
    }

    fn keep(mut self) -> Result<(), InputError> {
        fs::rename(&self.part, &self.output).map_err(|error| self.cannot(error))?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if !self.kept {
            // The file is ours and incomplete; a failure to remove it cannot be reported here.
            let _ = fs::remove_file(&self.part);
        }
    }
}
