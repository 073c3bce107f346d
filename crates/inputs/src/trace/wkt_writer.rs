//! Writes `.wkt` files, record by record, to any byte stream.
//!
//! Must not know where records come from. It holds one block in memory and never seeks, so the output may be a pipe.

use super::wkt::{
    FLAG_L1_FILTERED, INSTRUCTIONS_LIMIT, MAGIC, MAX_BLOCK_RECORDS, MAX_SOURCE_BYTES, TAG_BLOCK, TAG_END,
    VERSION,
};
use super::{LINE_BYTES, LINE_LIMIT, TouchKind, TraceRecord, TraceSummary, varint};
use std::io::{self, Write};

/// zstd's level: what higher ones gain and cost is in `inputs/FORMAT.md`.
const LEVEL: i32 = 12;

/// A `.wkt` file being written.
pub struct TraceWriter<W: Write> {
    out: W,
    packer: zstd::bulk::Compressor<'static>,
    heads: Vec<u8>,
    lines: Vec<u8>,
    records: u32,
    previous_line: u64,
    summary: TraceSummary,
}

impl<W: Write> TraceWriter<W> {
    /// Starts a file. `source` describes the traced program; it is cut at 4096 bytes.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn new(mut out: W, source: &str, l1_filtered: bool) -> io::Result<TraceWriter<W>> {
        let whole = |at: &usize| source.is_char_boundary(*at);
        let source = &source[..(0..=source.len().min(MAX_SOURCE_BYTES)).rev().find(whole).unwrap_or(0)];
        let mut header = MAGIC.to_vec();
        header.extend(VERSION.to_le_bytes());
        header.extend(if l1_filtered { FLAG_L1_FILTERED } else { 0 }.to_le_bytes());
        header.extend((LINE_BYTES as u16).to_le_bytes());
        header.extend((source.len() as u16).to_le_bytes());
        header.extend(source.as_bytes());
        let crc = crc32fast::hash(&header);
        header.extend(crc.to_le_bytes());
        out.write_all(&header)?;
        Ok(TraceWriter {
            out,
            packer: zstd::bulk::Compressor::new(LEVEL)?,
            heads: Vec::new(),
            lines: Vec::new(),
            records: 0,
            previous_line: 0,
            summary: TraceSummary::default(),
        })
    }

    /// Appends a record.
    ///
    /// # Errors
    /// Those of the writer; `InvalidInput` for a record that no trace can hold (line from 2^58,
    /// instructions from 2^62, no touches).
    pub fn push(&mut self, record: TraceRecord) -> io::Result<()> {
        if record.line >= LINE_LIMIT || record.instructions >= INSTRUCTIONS_LIMIT || record.touches == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{record:?} is out of bounds")));
        }
        let merged = u64::from(record.touches > 1);
        let store = u64::from(record.kind == TouchKind::Store);
        varint::put(&mut self.heads, record.instructions << 2 | merged << 1 | store);
        if merged == 1 {
            varint::put(&mut self.heads, u64::from(record.touches));
        }
        // Both lie below 2^58: the difference fits.
        let delta = record.line as i64 - self.previous_line as i64;
        varint::put(&mut self.lines, varint::zigzag(delta));
        self.previous_line = record.line;
        self.records += 1;
        self.summary.count(&record).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "more instructions or touches than 64 bits count")
        })?;
        if self.records == MAX_BLOCK_RECORDS { self.end_block() } else { Ok(()) }
    }

    /// Ends the file, with the instructions after the last record, and returns the totals and the writer.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn finish(mut self, tail_instructions: u64) -> io::Result<(TraceSummary, W)> {
        self.end_block()?;
        self.summary.instructions = self.summary.instructions.saturating_add(tail_instructions);
        let mut end = vec![TAG_END];
        for count in
            [self.summary.records, self.summary.instructions, self.summary.loads, self.summary.stores]
        {
            end.extend(count.to_le_bytes());
        }
        let crc = crc32fast::hash(&end);
        end.extend(crc.to_le_bytes());
        self.out.write_all(&end)?;
        self.out.flush()?;
        Ok((self.summary, self.out))
    }

    fn end_block(&mut self) -> io::Result<()> {
        if self.records == 0 {
            return Ok(());
        }
        let heads_bytes = self.heads.len() as u32;
        self.heads.append(&mut self.lines);
        let packed = self.packer.compress(&self.heads)?;
        let mut head = vec![TAG_BLOCK];
        // All four are bounded by MAX_BLOCK_RECORDS times the longest record.
        for number in [self.records, heads_bytes, self.heads.len() as u32, packed.len() as u32] {
            head.extend(number.to_le_bytes());
        }
        let mut crc = crc32fast::Hasher::new();
        crc.update(&head);
        crc.update(&packed);
        head.extend(crc.finalize().to_le_bytes());
        self.out.write_all(&head)?;
        self.out.write_all(&packed)?;
        self.heads.clear();
        self.records = 0;
        self.previous_line = 0;
        Ok(())
    }
}
