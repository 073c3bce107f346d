//! Reads a recording: a segment, or a directory of them in order.
//!
//! A recording is not trusted: frames and lines have a maximum size, and entries are checked before they are returned.
//! A torn tail (kill -9) or a damaged part loses its content and is reported; later segments are still read. Must not
//! know policies.

use super::foreign;
use super::format::{FRAME_MOST, Header, LINE_MOST, RecordedStep, began, number};
use super::stream::{StreamLine, StreamReader};
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Most segments of a directory: four times the recorder's limit.
const FILES_MOST: usize = 4096;
/// Largest window that a frame may request, as a power of two: 8 MiB, which zstd's format expects every decoder to
/// support.
const WINDOW_LOG_MOST: u32 = 23;

/// Why nothing can be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be opened.
    #[error("{}: {source}", .path.display())]
    Open {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A directory without a segment.
    #[error("{}: the directory has no recording; segments are named like 0000000001-20261122T085500Z.jsonl.zst", .path.display())]
    Empty {
        /// Its path.
        path: PathBuf,
    },
    /// More files than any recorder keeps.
    #[error("{}: the directory has more than {FILES_MOST} segments; give one of them", .path.display())]
    TooMany {
        /// Its path.
        path: PathBuf,
    },
    /// A file of another kind.
    #[error(
        "{} is {found}, not a recording of the daemon; a daemon with `recorder.dir` writes one, also with `mode = \
         \"observe\"`; its files are named like 0000000001-20261122T085500Z.jsonl.zst",
        .path.display()
    )]
    Foreign {
        /// Its path.
        path: PathBuf,
        /// What it is.
        found: String,
    },
    /// Neither a file nor a directory.
    #[error("{}: neither a file nor a directory", .path.display())]
    Neither {
        /// Its path.
        path: PathBuf,
    },
}

/// An item of a recording, in the order of writing.
#[derive(Debug)]
pub enum Item {
    /// A segment begins.
    Segment {
        /// Its file.
        path: PathBuf,
        /// The data that its entries share.
        header: Box<Header>,
    },
    /// A step, always with its tenants.
    Entry(Box<RecordedStep<'static>>),
    /// Something could not be read: what, and what is lost.
    Unreadable(String),
}

/// A recording that is being read.
#[derive(Debug)]
pub struct RecordingReader {
    files: VecDeque<PathBuf>,
    open: Option<OpenSegment>,
}

/// A segment that is being read.
#[derive(Debug)]
struct OpenSegment {
    path: PathBuf,
    input: BufReader<File>,
    lines: StreamReader,
    /// The present frame, and where its next line begins.
    frame: Vec<u8>,
    line_at: usize,
}

/// Result of reading a frame.
enum Frame {
    Whole(Vec<u8>),
    /// There is no further frame.
    End,
    Bad(String),
}

impl RecordingReader {
    /// Opens a segment, or a directory of them.
    ///
    /// # Errors
    /// If it is missing, empty or cannot be opened.
    pub fn open(path: &Path) -> Result<RecordingReader, ReadError> {
        RecordingReader::open_before(path, None)
    }

    /// The same; of a directory only the segment that was written at a time, and those after it. The times in the
    /// names of segments, which are to the second, say when each began.
    ///
    /// # Errors
    /// As [`RecordingReader::open`].
    pub fn open_at(path: &Path, at: SystemTime) -> Result<RecordingReader, ReadError> {
        RecordingReader::open_before(path, Some(at))
    }

    fn open_before(path: &Path, at: Option<SystemTime>) -> Result<RecordingReader, ReadError> {
        let cannot = |source| ReadError::Open { path: path.to_owned(), source };
        let about = fs::metadata(path).map_err(cannot)?;
        let mut files = Vec::new();
        if about.is_dir() {
            for entry in fs::read_dir(path).map_err(cannot)? {
                let entry = entry.map_err(cannot)?;
                let number = entry.file_name().to_str().and_then(number);
                files.extend(number.map(|number| (number, entry.path())));
                if files.len() > FILES_MOST {
                    return Err(ReadError::TooMany { path: path.to_owned() });
                }
            }
            if files.is_empty() {
                return Err(ReadError::Empty { path: path.to_owned() });
            }
            files.sort();
        } else if about.is_file() {
            if let Some(found) = foreign::name_of(&first_bytes(path).map_err(cannot)?) {
                return Err(ReadError::Foreign { path: path.to_owned(), found });
            }
            files.push((0, path.to_owned()));
        } else {
            return Err(ReadError::Neither { path: path.to_owned() });
        }
        let mut files: VecDeque<PathBuf> = files.into_iter().map(|(_, path)| path).collect();
        // The first file is left out while the second one also began before that time.
        while let (Some(at), Some(second)) = (at, files.get(1)) {
            let name = second.file_name().and_then(|name| name.to_str());
            // It may have begun up to a second after the time in its name.
            if name.and_then(began).is_none_or(|began| began + Duration::from_secs(1) > at) {
                break;
            }
            files.pop_front();
        }
        Ok(RecordingReader { files, open: None })
    }
}

impl Iterator for RecordingReader {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        loop {
            let Some(open) = &mut self.open else {
                let path = self.files.pop_front()?;
                match begin(&path) {
                    Ok(open) => self.open = Some(open),
                    Err(why) => return Some(Item::Unreadable(format!("{}: {why}", path.display()))),
                }
                continue;
            };
            let why = match open.item() {
                Ok(Some(item)) => return Some(item),
                Ok(None) if open.lines.header().is_some() => None,
                Ok(None) => Some("the file is empty".to_owned()),
                Err(why) => Some(why),
            };
            let lost = why.map(|why| Item::Unreadable(format!("{}: {why}", open.path.display())));
            self.open = None;
            if lost.is_some() {
                return lost;
            }
        }
    }
}

/// Opens a file without blocking on a pipe or device of that name.
fn open_file(path: &Path) -> io::Result<File> {
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = fs::OpenOptions::new().read(true).custom_flags(nonblocking).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a file"));
    }
    Ok(file)
}

/// The first bytes of a file, by which other tools' are known.
fn first_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut first = Vec::new();
    open_file(path)?.take(foreign::LOOK_BYTES as u64).read_to_end(&mut first)?;
    Ok(first)
}

fn begin(path: &Path) -> io::Result<OpenSegment> {
    Ok(OpenSegment {
        path: path.to_owned(),
        input: BufReader::new(open_file(path)?),
        lines: StreamReader::default(),
        frame: Vec::new(),
        line_at: 0,
    })
}

impl OpenSegment {
    /// The next item; none at the end. Only one is in memory at a time: each lists all tenants, also where its line does
    /// not.
    fn item(&mut self) -> Result<Option<Item>, String> {
        while self.line_at == self.frame.len() {
            match self.frame() {
                Frame::Whole(lines) => (self.frame, self.line_at) = (lines, 0),
                Frame::Bad(why) => return Err(why),
                Frame::End => return Ok(None),
            }
        }
        let rest = &self.frame[self.line_at..];
        let end = rest.iter().position(|byte| *byte == b'\n').filter(|end| *end < LINE_MOST);
        let end = end.ok_or("a line is too long or does not end; the rest is not read")?;
        let line = rest[..=end].to_vec();
        self.line_at += line.len();
        self.take(&line).map(Some)
    }

    /// The next frame, decompressed, with its checksum verified.
    fn frame(&mut self) -> Frame {
        match self.input.fill_buf() {
            Ok([]) => return Frame::End,
            Ok(_) => {}
            Err(why) => return Frame::Bad(format!("cannot read further: {why}")),
        }
        let at = io::Seek::stream_position(&mut self.input).unwrap_or(0);
        let mut lines = Vec::new();
        let unpacked = zstd::Decoder::with_buffer(&mut self.input).and_then(|mut frame| {
            frame.window_log_max(WINDOW_LOG_MOST)?;
            frame.single_frame().take(FRAME_MOST as u64 + 1).read_to_end(&mut lines)
        });
        match unpacked {
            Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => Frame::Bad(format!(
                "the file is cut off at byte {at}, and what followed is lost (the recorder was killed, or \
                 the disk was full)"
            )),
            Err(why) => Frame::Bad(format!("damaged from byte {at} on; the rest is not read: {why}")),
            Ok(length) if length > FRAME_MOST => Frame::Bad(format!(
                "the frame at byte {at} unpacks to more than {FRAME_MOST} bytes; the rest is not read"
            )),
            Ok(_) => Frame::Whole(lines),
        }
    }

    /// Parses a line.
    fn take(&mut self, line: &[u8]) -> Result<Item, String> {
        if self.lines.header().is_none() {
            let header: Header = serde_json::from_slice(line)
                .map_err(|why| format!("the file does not begin like a recording: {}", place(&why)))?;
            let header = Box::new(header);
            self.lines.read(StreamLine::Header(header.clone()))?;
            return Ok(Item::Segment { path: self.path.clone(), header });
        }
        let entry: RecordedStep<'static> =
            serde_json::from_slice(line).map_err(|why| format!("an entry is damaged: {}", place(&why)))?;
        let entry = self.lines.step(entry).map_err(|why| format!("{why}; the rest is not read"))?;
        Ok(Item::Entry(Box::new(entry)))
    }
}

/// The kind and column of a JSON error, without the file's text, which may be anything.
fn place(why: &serde_json::Error) -> String {
    format!("{:?} error in column {}", why.classify(), why.column()).to_lowercase()
}
