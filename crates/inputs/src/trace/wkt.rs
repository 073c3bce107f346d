//! The `.wkt` file: constants and layout for its reader and writer.
//!
//! Byte order is little-endian throughout. `varint` is LEB128; `zigzag` maps a signed to an unsigned
//! number (0, -1, 1, -2 become 0, 1, 2, 3). CRC-32 is IEEE's. `inputs/FORMAT.md` says the same in prose.
//!
//! ```text
//! file    header, block*, end, and nothing after it
//! header  magic[8]  89 57 4b 54 0d 0a 1a 0a ("\x89WKT\r\n\x1a\n": text-mode copying breaks it visibly)
//!         version u16 = 1, flags u16 (bit 0: L1-filtered), line bytes u16 = 64, source length u16 <= 4096
//!         source[length] UTF-8: what was traced, for people
//!         crc u32 of all header bytes before it
//! block   tag u8 'B', records u32, heads bytes u32, raw bytes u32, packed bytes u32
//!         crc u32 of the block's bytes before it and of packed
//!         packed[packed bytes]: one zstd frame that unpacks to raw = heads, lines
//!         heads: per record varint(instructions << 2 | merged << 1 | store), if merged varint(touches)
//!         lines: per record varint(zigzag(line - previous line)); before a block's first record that is 0
//! end     tag u8 'E', records u64, instructions u64, loads u64, stores u64, crc u32 of the bytes before it
//! ```
//!
//! Heads and lines are separate because zstd then compresses them better. Blocks are independent, a damaged one is
//! found by its checksum, and a file without its end block is incomplete. `instructions` in the end block includes
//! those after the last record. Must not know where records come from.

/// The first bytes of a file.
pub(crate) const MAGIC: &[u8; 8] = b"\x89WKT\r\n\x1a\n";
/// The version written and read.
pub(super) const VERSION: u16 = 1;
/// Header bytes before the source text.
pub(super) const HEADER_BYTES: usize = 16;
/// Flag: the records went through the L1 filter.
pub(super) const FLAG_L1_FILTERED: u16 = 1;
/// Longest source text.
pub(super) const MAX_SOURCE_BYTES: usize = 4096;

/// Tag of a block of records.
pub(super) const TAG_BLOCK: u8 = b'B';
/// Tag of the end.
pub(super) const TAG_END: u8 = b'E';
/// Block bytes before the packed data, checksum included.
pub(super) const BLOCK_BYTES: usize = 21;
/// Bytes of the end, tag and checksum included.
pub(super) const END_BYTES: usize = 37;
/// Most records in a block. Larger blocks pack better and cost the reader memory: 2^18 records are
/// some 1 MiB raw.
pub(super) const MAX_BLOCK_RECORDS: u32 = 1 << 18;
/// Most bytes of a block raw: three varints of 10, 5 and 10 bytes a record.
pub(super) const MAX_RAW_BYTES: u32 = MAX_BLOCK_RECORDS * 25;
/// Most bytes of a block packed: zstd's bound for data that does not shrink, rounded up.
pub(super) const MAX_PACKED_BYTES: u32 = MAX_RAW_BYTES + MAX_RAW_BYTES / 128 + 1024;
/// Instructions of one record lie below this; two bits of its varint are flags.
pub(super) const INSTRUCTIONS_LIMIT: u64 = 1 << 62;

/// A u32 at an offset of a slice that is known to be long enough.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// A u16 at an offset, likewise.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// A u64 at an offset, likewise.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
