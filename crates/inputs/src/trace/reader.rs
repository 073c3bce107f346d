//! Reads a memory trace of any format: detects the format, then returns records.
//!
//! `.wkt` has a magic, text is recognised by its first line, ChampSim has neither and is assumed if the first record is
//! possible. The file's name is ignored.

use super::champsim::ChampSimReader;
use super::text::{LOOK_BYTES, TextFormat, TextReader};
use super::wkt_reader::WktReader;
use super::{L1Filter, TraceRecord, TraceSummary, WKT_MAGIC, Window, foreign, window};
use crate::error::InputError;
use crate::source::{Source, name_of};
use serde::Serialize;
use std::path::{Path, PathBuf};

const WANTED: &str = "a memory trace: .wkt, valgrind lackey text (--trace-mem=yes), ChampSim, text of drmemtrace's view \
                      tool, of pinatrace or of Dinero, or `read ADDRESS SIZE` lines; plain, gzip, xz or zstd";
/// The mark that editors of Windows put before UTF-8 text.
const BOM: &[u8] = b"\xef\xbb\xbf";
/// Records of a [`Trace`] in memory at most: 2^23, 192 MiB. A guess at what a run can use: behind the L1 filter some 20
/// records per 1000 instructions are left, so 2^23 are 400 million instructions.
pub const MAX_RECORDS: usize = 1 << 23;

/// The formats that are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TraceFormat {
    /// Our own.
    Wkt,
    /// Valgrind lackey's text.
    Lackey,
    /// ChampSim's 64-byte records.
    ChampSim,
    /// Text of DynamoRIO's view tool.
    DrMemTrace,
    /// Text of Pin's pinatrace.
    Pin,
    /// Plain text, also Dinero's.
    Plain,
}

enum Reader {
    Wkt(Box<WktReader>),
    Text(TextReader),
    ChampSim(ChampSimReader),
}

/// Reads a trace of any format, record by record, in bounded memory. Ends after the first error.
pub struct TraceReader {
    path: PathBuf,
    reader: Reader,
    summary: TraceSummary,
    tail_instructions: u64,
    ended: bool,
}

impl TraceReader {
    /// Opens a trace.
    ///
    /// # Errors
    /// [`InputError`] if the file cannot be read, is empty, or is none of these formats.
    pub fn open(path: &Path) -> Result<TraceReader, InputError> {
        let mut source = Source::open(path)?;
        let first = source.peek(LOOK_BYTES)?;
        let mut first = first[..first.len().min(LOOK_BYTES)].to_vec();
        if has_mark(&first) {
            source.consume(BOM.len());
            first.drain(..BOM.len());
        }
        let text = as_text(&first);
        let reader = if first.starts_with(WKT_MAGIC) {
            Reader::Wkt(Box::new(WktReader::new(source)?))
        } else if let Some((text, format)) = text.and_then(|text| Some((text, TextFormat::of(text)?))) {
            Reader::Text(TextReader::new(source, format, text))
        } else if let Some((found, remedy)) = foreign::of(&first, text) {
            return Err(InputError::Foreign { path: path.to_owned(), found, remedy });
        } else if ChampSimReader::is_it(&first) && name_of(&first).is_none() {
            Reader::ChampSim(ChampSimReader::new(source))
        } else {
            return Err(source.wrong_format(WANTED));
        };
        let path = path.to_owned();
        Ok(TraceReader { path, reader, summary: TraceSummary::default(), tail_instructions: 0, ended: false })
    }

    /// The format found.
    pub fn format(&self) -> TraceFormat {
        match &self.reader {
            Reader::Wkt(_) => TraceFormat::Wkt,
            Reader::Text(reader) => reader.format(),
            Reader::ChampSim(_) => TraceFormat::ChampSim,
        }
    }

    /// The file's description of the program; empty if the format has none.
    pub fn source(&self) -> &str {
        match &self.reader {
            Reader::Wkt(reader) => &reader.source,
            Reader::Text(_) | Reader::ChampSim(_) => "",
        }
    }

    /// True if the records went through the L1 filter when the file was made.
    pub fn l1_filtered(&self) -> bool {
        matches!(&self.reader, Reader::Wkt(reader) if reader.l1_filtered)
    }

    /// True if the file lists accesses only, so that instructions that touch no memory are not counted.
    pub fn counts_accesses_only(&self) -> bool {
        matches!(&self.reader, Reader::Text(reader) if reader.counts_accesses_only())
    }

    /// Counts so far; of the whole trace once the records have run out.
    pub fn summary(&self) -> TraceSummary {
        self.summary
    }

    /// Instructions after the last record; 0 until the records have run out.
    pub fn tail_instructions(&self) -> u64 {
        self.tail_instructions
    }

    fn read(&mut self) -> Result<Option<TraceRecord>, InputError> {
        let (record, tail) = match &mut self.reader {
            Reader::Wkt(reader) => (reader.next()?, reader.tail_instructions()),
            Reader::Text(reader) => (reader.next()?, reader.tail_instructions()),
            Reader::ChampSim(reader) => (reader.next()?, reader.tail_instructions()),
        };
        match &record {
            // A sum beyond 64 bits needs more bytes than there are, or a damaged .wkt, which its reader refuses.
            Some(record) => assert!(self.summary.count(record).is_some(), "a trace's sums fit 64 bits"),
            None if self.summary.records == 0 => {
                let (path, what) = (self.path.clone(), "memory accesses");
                let remedy = "record a longer stretch, or skip less of it";
                return Err(InputError::NoRecords { path, what, remedy });
            }
            None => {
                self.tail_instructions = tail;
                self.summary.instructions = self.summary.instructions.saturating_add(tail);
            }
        }
        Ok(record)
    }
}

/// True if the first bytes are text with a mark before it; a record of ChampSim may begin with the same bytes.
fn has_mark(first: &[u8]) -> bool {
    first.strip_prefix(BOM).is_some_and(|rest| {
        let text = as_text(rest);
        text.is_some_and(|text| TextFormat::of(text).is_some() || foreign::of(rest, Some(text)).is_some())
    })
}

/// The first bytes as text, without a letter that is cut; none if they are no text. Text of programs may have any bytes
/// further on.
fn as_text(first: &[u8]) -> Option<&str> {
    let end = match std::str::from_utf8(first) {
        Ok(_) => first.len(),
        Err(why) => why.valid_up_to(),
    };
    let text = std::str::from_utf8(&first[..end]).ok()?;
    let line = text.lines().next()?;
    let is_text = |letter: char| !letter.is_control() || letter == '\t';
    (!line.is_empty() || text.len() > 1).then_some(text).filter(|_| line.chars().all(is_text))
}

impl Iterator for TraceReader {
    type Item = Result<TraceRecord, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let record = self.read().transpose();
        self.ended = !matches!(record, Some(Ok(_)));
        record
    }
}

/// A trace, or a part of one, in memory: 24 bytes a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    /// The file's description of the program.
    pub source: String,
    /// The records.
    pub records: Vec<TraceRecord>,
    /// Instructions after the last record.
    pub tail_instructions: u64,
    /// True if the records are L1 misses, filtered when the file was made or by [`Trace::through_l1`].
    pub l1_filtered: bool,
}

impl Trace {
    /// Reads a trace, or a part of one.
    ///
    /// # Errors
    /// Those of [`TraceReader`]; also if the window holds no record, or more than [`MAX_RECORDS`].
    pub fn read(path: &Path, window: &Window) -> Result<Trace, InputError> {
        Trace::read_through(path, window, false, MAX_RECORDS)
    }

    /// As [`Trace::read`] and then [`Trace::through_l1`], but what the L1 holds back is never in memory.
    ///
    /// # Errors
    /// Those of [`TraceReader`]; also if the window holds no record, or more than `most` leave the L1.
    pub fn read_filtered(path: &Path, window: &Window, most: usize) -> Result<Trace, InputError> {
        Trace::read_through(path, window, true, most)
    }

    fn read_through(path: &Path, window: &Window, filtered: bool, most: usize) -> Result<Trace, InputError> {
        let mut reader = TraceReader::open(path)?;
        let mut window_filter = window::WindowFilter::new(*window);
        let mut l1 = (filtered && !reader.l1_filtered()).then(L1Filter::new);
        let mut records = Vec::new();
        let mut in_window = false;
        while !window_filter.is_full() {
            let Some(record) = reader.next().transpose()? else { break };
            let Some(record) = window_filter.push(record) else { continue };
            in_window = true;
            match &mut l1 {
                None => records.push(record),
                Some(l1) => records.extend(l1.push(record)),
            }
            if records.len() > most {
                let path = path.to_owned();
                let (field, found) = ("number of records", format!("over {most}"));
                let wanted = "less; name a window (skip and limit) of the trace".to_owned();
                return Err(InputError::Value { path, offset: 0, field, found, wanted });
            }
        }
        if !in_window {
            let remedy = "skip less of the trace, or take more of it";
            return Err(InputError::NoRecords {
                path: path.to_owned(),
                what: "memory accesses in the window",
                remedy,
            });
        }
        let tail_instructions = window_filter.tail_instructions(reader.summary().instructions);
        let carried = l1.as_ref().map_or(0, L1Filter::carried_instructions);
        let tail_instructions = tail_instructions.saturating_add(carried);
        let (source, l1_filtered) = (reader.source().to_owned(), reader.l1_filtered() || l1.is_some());
        Ok(Trace { source, records, tail_instructions, l1_filtered })
    }

    /// The trace filtered by an L1 that starts empty; unchanged if it was filtered before.
    pub fn through_l1(mut self) -> Trace {
        if !self.l1_filtered {
            let mut filter = L1Filter::new();
            self.records = self.records.iter().filter_map(|record| filter.push(*record)).collect();
            self.tail_instructions = self.tail_instructions.saturating_add(filter.carried_instructions());
            self.l1_filtered = true;
        }
        self
    }

    /// Instructions in all.
    pub fn instructions(&self) -> u64 {
        self.records.iter().map(|record| record.instructions).sum::<u64>() + self.tail_instructions
    }
}
