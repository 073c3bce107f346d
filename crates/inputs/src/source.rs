//! A file as a stream of unpacked bytes, with look-ahead and offsets.
//!
//! Every reader of this crate uses [`Source`] for unpacking (gzip, xz, zstd) and for offsets in errors. It must not
//! know what the bytes mean, except for the names of a few formats that users pass by mistake.
//!
//! Memory is bounded: the look-ahead buffer grows only to what a caller requests, callers check lengths first, and the
//! decompressors have a limit on their window. So are the bytes that are read and unpacked.

use crate::error::InputError;
use serde::Serialize;
use std::fmt;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use waykeeper_bounded_read::UpTo;

/// Smallest read from the decompressor. At 64 KiB the cost of the call is negligible.
const CHUNK_BYTES: usize = 64 * 1024;
/// Bytes of a file, packed and unpacked: 64 GiB, a ChampSim trace of 10^9 instructions. Assumption: longer ones are cut
/// before they are simulated.
const BYTES_MOST: u64 = 64 << 30;
/// Memory that an xz stream may ask for. `xz -9` needs 65 MiB to unpack; a hostile header may say 4 GiB.
const XZ_MEMORY_BYTES: u64 = 128 << 20;
/// Largest zstd window, as a power of two: 128 MiB, what `zstd --ultra -22` uses.
const ZSTD_WINDOW_LOG: u32 = 27;

/// The compression of a file, found by its first bytes and never by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Packing {
    /// Not compressed.
    Plain,
    /// gzip (RFC 1952).
    Gzip,
    /// xz.
    Xz,
    /// Zstandard (RFC 8878).
    Zstd,
}

impl fmt::Display for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Packing::Plain => "not packed",
            Packing::Gzip => "gzip",
            Packing::Xz => "xz",
            Packing::Zstd => "zstd",
        })
    }
}

/// An opened, unpacked file with look-ahead.
pub(crate) struct Source {
    path: PathBuf,
    packing: Packing,
    reader: UpTo<Box<dyn Read + Send>>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    consumed: u64,
    /// Why no more can be read or unpacked than the buffer holds.
    failed: Option<io::Error>,
}

impl Source {
    /// Opens a file, with decompression if it is packed.
    pub(crate) fn open(path: &Path) -> Result<Source, InputError> {
        let cannot = |source| InputError::Open { path: path.to_owned(), source };
        let file = waykeeper_bounded_read::open(path).map_err(cannot)?;
        if file.is_device() {
            return Err(cannot(io::Error::other("it is a device and may have no end")));
        }
        let mut file = UpTo::new(file, BYTES_MOST);
        let mut magic = [0; 6];
        let (present, failed) = read_full(&mut file, &mut magic);
        failed.map_or(Ok(()), |why| Err(cannot(why)))?;
        let packing = packing_of(&magic[..present]);
        let whole = io::Cursor::new(magic[..present].to_vec()).chain(file);
        let reader: Box<dyn Read + Send> = match packing {
            Packing::Plain => Box::new(whole),
            Packing::Gzip => Box::new(flate2::read::MultiGzDecoder::new(whole)),
            Packing::Xz => {
                let stream = liblzma::stream::Stream::new_stream_decoder(
                    XZ_MEMORY_BYTES,
                    liblzma::stream::CONCATENATED,
                );
                let stream = stream.map_err(|error| cannot(error.into()))?;
                Box::new(liblzma::read::XzDecoder::new_stream(BufReader::new(whole), stream))
            }
            Packing::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::new(whole).map_err(cannot)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG).map_err(cannot)?;
                Box::new(decoder)
            }
        };
        Ok(Source {
            path: path.to_owned(),
            packing,
            reader: UpTo::new(reader, BYTES_MOST),
            buffer: Vec::new(),
            start: 0,
            end: 0,
            consumed: 0,
            failed: None,
        })
    }

    /// The file's name.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Unpacked bytes consumed: the offset of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.consumed
    }

    /// The next bytes: at least `wanted`, fewer only where the file ends. Callers limit `wanted`.
    pub(crate) fn peek(&mut self, wanted: usize) -> Result<&[u8], InputError> {
        while self.end - self.start < wanted {
            if self.start > 0 {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            let room = wanted.max(CHUNK_BYTES);
            if self.buffer.len() < room {
                self.buffer.resize(room, 0);
            }
            if let Some(source) = self.failed.take() {
                let offset = self.consumed + (self.end - self.start) as u64;
                if source.kind() == io::ErrorKind::FileTooLarge {
                    return Err(InputError::TooLong { path: self.path.clone(), most: BYTES_MOST });
                }
                return Err(InputError::Read {
                    path: self.path.clone(),
                    packing: self.packing,
                    offset,
                    source,
                });
            }
            let (read, failed) = read_full(&mut self.reader, &mut self.buffer[self.end..]);
            self.failed = failed;
            if read == 0 && self.failed.is_none() {
                break;
            }
            self.end += read;
        }
        Ok(&self.buffer[self.start..self.end])
    }

    /// The next `needed` bytes exactly, or the error that the file ends inside `what`.
    pub(crate) fn need(&mut self, needed: usize, what: &'static str) -> Result<&[u8], InputError> {
        let present = self.peek(needed)?.len();
        if present < needed {
            let (offset, needed, present) = (self.consumed, needed as u64, present as u64);
            return Err(InputError::Cut { path: self.path.clone(), offset, what, needed, present });
        }
        Ok(&self.buffer[self.start..self.start + needed])
    }

    /// Skips zeros, and returns whether they are all that is left; `None` if there are more of them than `most`.
    pub(crate) fn is_only_zeros(&mut self, most: u64) -> Result<Option<bool>, InputError> {
        let begin = self.offset();
        loop {
            let is_too_much = self.offset() - begin > most;
            match self.peek(1)? {
                [] => return Ok(Some(true)),
                bytes if bytes.iter().any(|byte| *byte != 0) => return Ok(Some(false)),
                _ if is_too_much => return Ok(None),
                bytes => {
                    let zeros = bytes.len();
                    self.consume(zeros);
                }
            }
        }
    }

    /// Skips bytes that were peeked at.
    pub(crate) fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.end - self.start, "stepped over bytes that were never looked at");
        self.start += bytes;
        self.consumed += bytes as u64;
    }

    /// An error about a field.
    pub(crate) fn value(
        &self,
        offset: u64,
        field: &'static str,
        found: impl fmt::Display,
        wanted: impl Into<String>,
    ) -> InputError {
        let (path, found, wanted) = (self.path.clone(), found.to_string(), wanted.into());
        InputError::Value { path, offset, field, found, wanted }
    }

    /// The error for a file of another format.
    pub(crate) fn wrong_format(&mut self, wanted: &'static str) -> InputError {
        match self.peek(16) {
            Err(error) => error,
            Ok([]) => InputError::Empty { path: self.path.clone(), wanted },
            Ok(first) => {
                let found = name_of(first).map_or_else(|| start_of(first), str::to_owned);
                InputError::WrongFormat { path: self.path.clone(), found, wanted }
            }
        }
    }
}

/// Reads until the buffer is full or the input ends or fails; decompressors return short reads at will. Returns how much was
/// read, and why no more.
fn read_full(reader: &mut impl Read, into: &mut [u8]) -> (usize, Option<io::Error>) {
    let mut filled = 0;
    while filled < into.len() {
        match reader.read(&mut into[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (filled, Some(error)),
        }
    }
    (filled, None)
}

fn packing_of(magic: &[u8]) -> Packing {
    match magic {
        [0x1f, 0x8b, ..] => Packing::Gzip,
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Packing::Xz,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Packing::Zstd,
        _ => Packing::Plain,
    }
}

/// The start of a file for a message: its first words if it is text, else its first bytes in hex.
fn start_of(first: &[u8]) -> String {
    const MOST: usize = 32;
    let first = &first[..first.len().min(MOST)];
    let line = first.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii_end();
    if line.len() > 3 && line.iter().all(|byte| byte.is_ascii_graphic() || b" \t".contains(byte)) {
        return format!("the text `{}`", line.escape_ascii());
    }
    let bytes: Vec<String> = first.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    bytes.join(" ")
}

/// Formats that are often passed to the wrong reader, by name.
pub(crate) fn name_of(first: &[u8]) -> Option<&'static str> {
    const NAMES: &[(&[u8], &str)] = &[
        (crate::trace::WKT_MAGIC, "the magic of a .wkt memory trace"),
        (&[0xd4, 0xc3, 0xb2, 0xa1], "the magic of a pcap capture"),
        (&[0xa1, 0xb2, 0xc3, 0xd4], "the magic of a pcap capture"),
        (&[0x4d, 0x3c, 0xb2, 0xa1], "the magic of a pcap capture"),
        (&[0xa1, 0xb2, 0x3c, 0x4d], "the magic of a pcap capture"),
        (&[0x0a, 0x0d, 0x0d, 0x0a], "the magic of a pcapng capture"),
        (b"\x89PNG", "the magic of a PNG image"),
        (b"\xff\xd8\xff", "the magic of a JPEG image"),
        (b"\x7fELF", "the magic of an ELF program"),
        (b"%PDF", "the magic of a PDF document"),
        (b"PK\x03\x04", "the magic of a zip archive"),
        (b"BZh", "the magic of bzip2, which is not unpacked here"),
        (b"SQLite format 3", "the magic of an SQLite database"),
        (b"==", "valgrind's or lackey's text"),
        (b"I  ", "lackey's text"),
    ];
    NAMES.iter().find(|(magic, _)| first.starts_with(magic)).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn all(path: &Path) -> Vec<u8> {
        let mut source = Source::open(path).unwrap();
        let mut out = Vec::new();
        loop {
            let got = source.peek(1).unwrap().to_vec();
            if got.is_empty() {
                assert_eq!(source.offset(), out.len() as u64);
                return out;
            }
            source.consume(got.len());
            out.extend(got);
        }
    }

    #[test]
    fn unpacks_what_the_first_bytes_say() {
        let plain: Vec<u8> =
            (0..300_000u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        assert_eq!(all(file(&plain).path()), plain);

        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(&plain).unwrap();
        assert_eq!(all(file(&gz.finish().unwrap()).path()), plain);

        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
        xz.write_all(&plain).unwrap();
        assert_eq!(all(file(&xz.finish().unwrap()).path()), plain);

        assert_eq!(all(file(&zstd::encode_all(plain.as_slice(), 1).unwrap()).path()), plain);
    }

    #[test]
    fn a_cut_archive_is_an_error_with_the_offset() {
        let packed = zstd::encode_all(vec![7u8; 100_000].as_slice(), 1).unwrap();
        let file = file(&packed[..packed.len() - 3]);
        let mut source = Source::open(file.path()).unwrap();
        let error = source.peek(200_000).unwrap_err().to_string();
        assert!(error.contains("zstd") && error.contains("beyond byte"), "{error}");
        assert!(error.contains(&file.path().display().to_string()), "{error}");
    }

    #[test]
    fn needing_more_than_there_is_names_the_gap() {
        let file = file(b"abcde");
        let mut source = Source::open(file.path()).unwrap();
        source.need(2, "head").unwrap();
        source.consume(2);
        let error = source.need(9, "body").unwrap_err().to_string();
        assert!(error.contains("body at byte 2 needs 9 bytes and 3 are left"), "{error}");
    }
}
