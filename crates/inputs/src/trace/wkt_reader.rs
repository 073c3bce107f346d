//! Reads `.wkt` files, block by block. The layout is in `wkt`.
//!
//! A block's lengths are checked before memory is allocated, and its checksum before its content is used; a hostile
//! file costs at most one block, 13 MiB.

use super::wkt::{
    BLOCK_BYTES, END_BYTES, FLAG_L1_FILTERED, HEADER_BYTES, MAGIC, MAX_BLOCK_RECORDS, MAX_PACKED_BYTES,
    MAX_RAW_BYTES, MAX_SOURCE_BYTES, TAG_BLOCK, TAG_END, VERSION, u16_at, u32_at, u64_at,
};
use super::{LINE_BYTES, LINE_LIMIT, TouchKind, TraceRecord, TraceSummary, varint};
use crate::error::InputError;
use crate::source::Source;

const RECORD_AGAIN: &str = "the file is damaged, copy it again or record it anew";

pub(super) struct WktReader {
    input: Source,
    pub(super) source: String,
    pub(super) l1_filtered: bool,
    unpacker: zstd::bulk::Decompressor<'static>,
    block: Vec<TraceRecord>,
    next: usize,
    summary: TraceSummary,
    tail_instructions: u64,
    ended: bool,
}

impl WktReader {
    /// Reads the header of a file that starts with the magic.
    pub(super) fn new(mut input: Source) -> Result<WktReader, InputError> {
        let head = input.need(HEADER_BYTES, "header")?;
        let (version, flags) = (u16_at(head, 8), u16_at(head, 10));
        let (line_bytes, length) = (u16_at(head, 12), usize::from(u16_at(head, 14)));
        if version != VERSION {
            return Err(input.value(
                8,
                "format version",
                version,
                format!("{VERSION}; use a newer waykeeper"),
            ));
        }
        if length > MAX_SOURCE_BYTES {
            return Err(input.value(
                14,
                "source text length",
                length,
                format!("at most 4096; {RECORD_AGAIN}"),
            ));
        }
        let whole = HEADER_BYTES + length + 4;
        let bytes = input.need(whole, "header")?;
        let (found, computed) = (u32_at(bytes, whole - 4), crc32fast::hash(&bytes[..whole - 4]));
        let source = String::from_utf8_lossy(&bytes[HEADER_BYTES..whole - 4]).into_owned();
        if found != computed {
            return Err(checksum(&input, "header", found, computed));
        }
        if flags & !FLAG_L1_FILTERED != 0 {
            let wanted = "0 or 1; use a newer waykeeper";
            return Err(input.value(10, "flags", format!("{flags:#06x}"), wanted));
        }
        if u64::from(line_bytes) != LINE_BYTES {
            return Err(input.value(12, "line bytes", line_bytes, "64; record the trace anew"));
        }
        input.consume(whole);
        debug_assert!(input.offset() > MAGIC.len() as u64);
        let unpacker = zstd::bulk::Decompressor::new().map_err(|error| unpack_error(&input, &error))?;
        Ok(WktReader {
            input,
            source,
            l1_filtered: flags & FLAG_L1_FILTERED != 0,
            unpacker,
            block: Vec::new(),
            next: 0,
            summary: TraceSummary::default(),
            tail_instructions: 0,
            ended: false,
        })
    }

    /// The next record; none after the last.
    pub(super) fn next(&mut self) -> Result<Option<TraceRecord>, InputError> {
        while self.next == self.block.len() {
            if self.ended {
                return Ok(None);
            }
            match self.input.need(1, "end block")?[0] {
                TAG_BLOCK => self.read_block()?,
                TAG_END => self.read_end()?,
                tag => {
                    let wanted = format!("{TAG_BLOCK:#04x} or {TAG_END:#04x}; {RECORD_AGAIN}");
                    let offset = self.input.offset();
                    return Err(self.input.value(offset, "block tag", format!("{tag:#04x}"), wanted));
                }
            }
        }
        self.next += 1;
        Ok(Some(self.block[self.next - 1]))
    }

    /// Instructions after the last record; known once the records have run out.
    pub(super) fn tail_instructions(&self) -> u64 {
        self.tail_instructions
    }

    fn read_block(&mut self) -> Result<(), InputError> {
        let at = self.input.offset();
        let head = self.input.need(BLOCK_BYTES, "block header")?;
        let (records, heads, raw) = (u32_at(head, 1), u32_at(head, 5), u32_at(head, 9));
        let (packed, found) = (u32_at(head, 13), u32_at(head, 17));
        for (field, value, most) in [
            ("records in the block", records, MAX_BLOCK_RECORDS),
            ("raw bytes of the block", raw, MAX_RAW_BYTES),
            ("heads bytes of the block", heads, raw),
            ("packed bytes of the block", packed, MAX_PACKED_BYTES),
        ] {
            if !(1..=most).contains(&value) {
                return Err(self.input.value(at, field, value, format!("1 to {most}; {RECORD_AGAIN}")));
            }
        }
        let whole = BLOCK_BYTES + packed as usize;
        let bytes = self.input.need(whole, "block")?;
        let mut crc = crc32fast::Hasher::new();
        crc.update(&bytes[..BLOCK_BYTES - 4]);
        crc.update(&bytes[BLOCK_BYTES..]);
        let computed = crc.finalize();
        if found != computed {
            return Err(checksum(&self.input, "block", found, computed));
        }
        let unpacked = self.unpacker.decompress(&bytes[BLOCK_BYTES..], raw as usize);
        let unpacked = unpacked.map_err(|error| unpack_error(&self.input, &error))?;
        let decoded = (unpacked.len() == raw as usize)
            .then(|| {
                decode(&unpacked[..heads as usize], &unpacked[heads as usize..], records, &mut self.block)
            })
            .flatten();
        if decoded.is_none() {
            let wanted = format!("{records} records in {raw} bytes; {RECORD_AGAIN}");
            return Err(self.input.value(at, "content of the block", "something else", wanted));
        }
        self.next = 0;
        for record in &self.block {
            if self.summary.count(record).is_none() {
                let wanted = format!("what 64 bits count; {RECORD_AGAIN}");
                return Err(self.input.value(at, "instructions or touches so far", "larger", wanted));
            }
        }
        self.input.consume(whole);
        Ok(())
    }

    fn read_end(&mut self) -> Result<(), InputError> {
        let at = self.input.offset();
        let bytes = self.input.need(END_BYTES, "end block")?;
        let (found, computed) = (u32_at(bytes, END_BYTES - 4), crc32fast::hash(&bytes[..END_BYTES - 4]));
        let [records, instructions, loads, stores] = [1, 9, 17, 25].map(|at| u64_at(bytes, at));
        if found != computed {
            return Err(checksum(&self.input, "end block", found, computed));
        }
        let (wrote, read) =
            ((records, loads, stores), (self.summary.records, self.summary.loads, self.summary.stores));
        if wrote != read {
            let wanted = format!("{read:?} as read; {RECORD_AGAIN}");
            return Err(self.input.value(
                at,
                "(records, loads, stores) of the end block",
                format!("{wrote:?}"),
                wanted,
            ));
        }
        let Some(tail) = instructions.checked_sub(self.summary.instructions) else {
            let wanted = format!("at least the records' {}; {RECORD_AGAIN}", self.summary.instructions);
            return Err(self.input.value(at, "instructions of the end block", instructions, wanted));
        };
        self.input.consume(END_BYTES);
        if !self.input.peek(1)?.is_empty() {
            let offset = self.input.offset();
            return Err(self.input.value(
                offset,
                "data behind the end block",
                "there",
                "absent; cut the file here",
            ));
        }
        self.tail_instructions = tail;
        self.ended = true;
        Ok(())
    }
}

/// Decodes a block; none unless it holds exactly `records` valid records.
fn decode(mut heads: &[u8], mut lines: &[u8], records: u32, into: &mut Vec<TraceRecord>) -> Option<()> {
    into.clear();
    let mut line = 0u64;
    for _ in 0..records {
        let head = varint::take(&mut heads)?;
        let touches = if head & 2 == 0 { 1 } else { u32::try_from(varint::take(&mut heads)?).ok()? };
        line = line.checked_add_signed(varint::unzigzag(varint::take(&mut lines)?))?;
        if line >= LINE_LIMIT || touches == 0 {
            return None;
        }
        let kind = if head & 1 == 1 { TouchKind::Store } else { TouchKind::Load };
        into.push(TraceRecord { line, instructions: head >> 2, touches, kind });
    }
    (heads.is_empty() && lines.is_empty()).then_some(())
}

fn checksum(input: &Source, what: &'static str, found: u32, computed: u32) -> InputError {
    let (path, offset) = (input.path().to_owned(), input.offset());
    InputError::Checksum { path, offset, what, found, computed }
}

fn unpack_error(input: &Source, error: &std::io::Error) -> InputError {
    input.value(input.offset(), "zstd frame of the block", error, format!("whole; {RECORD_AGAIN}"))
}
