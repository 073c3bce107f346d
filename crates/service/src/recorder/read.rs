//! Reads a recording: a segment, or a directory of them in order.
//!
//! A recording is not trusted: frames and lines have a maximum size, and entries are checked before they are returned.
//! A torn tail (kill -9) or a damaged part loses its content and is reported; later segments are still read. Must not
//! know policies.

use super::check;
use super::format::{FRAME_MOST, Header, LINE_MOST, RecordedStep, number};
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use waykeeper_host::Workload;
use waykeeper_linux_host::Grouping;

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
    ready: VecDeque<Item>,
}

/// A segment that is being read.
#[derive(Debug)]
struct OpenSegment {
    path: PathBuf,
    input: BufReader<File>,
    header: Option<Header>,
    groups: Option<Vec<Workload>>,
    groupings: Option<Vec<Grouping>>,
}

/// Result of reading a frame.
enum Frame {
    Whole(Vec<u8>),
    End,
    Bad(String),
}

impl RecordingReader {
    /// Opens a segment, or a directory of them.
    ///
    /// # Errors
    /// If it is missing, empty or cannot be opened.
    pub fn open(path: &Path) -> Result<RecordingReader, ReadError> {
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
            files.push((0, path.to_owned()));
        } else {
            return Err(ReadError::Neither { path: path.to_owned() });
        }
        let files = files.into_iter().map(|(_, path)| path).collect();
        Ok(RecordingReader { files, open: None, ready: VecDeque::new() })
    }

    /// Reads the next frame of the open segment, or opens the next segment.
    fn advance(&mut self) -> bool {
        let Some(open) = &mut self.open else {
            let Some(path) = self.files.pop_front() else { return false };
            match begin(&path) {
                Ok(open) => self.open = Some(open),
                Err(why) => self.ready.push_back(Item::Unreadable(format!("{}: {why}", path.display()))),
            }
            return true;
        };
        let done = match open.frame() {
            Frame::Whole(lines) => open.take(&lines, &mut self.ready).err(),
            Frame::Bad(why) => Some(why),
            Frame::End => {
                let empty = open.header.is_none();
                let lost =
                    empty.then(|| Item::Unreadable(format!("{}: the file is empty", open.path.display())));
                self.ready.extend(lost);
                self.open = None;
                return true;
            }
        };
        if let Some(why) = done {
            self.ready.push_back(Item::Unreadable(format!("{}: {why}", open.path.display())));
            self.open = None;
        }
        true
    }
}

impl Iterator for RecordingReader {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            if !self.advance() {
                return None;
            }
        }
    }
}

/// Opens a segment without blocking on a pipe or device of that name.
fn begin(path: &Path) -> io::Result<OpenSegment> {
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = fs::OpenOptions::new().read(true).custom_flags(nonblocking).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a file"));
    }
    Ok(OpenSegment {
        path: path.to_owned(),
        input: BufReader::new(file),
        header: None,
        groups: None,
        groupings: None,
    })
}

impl OpenSegment {
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

    /// Parses the lines of a frame. Entries before a bad line are kept.
    fn take(&mut self, lines: &[u8], ready: &mut VecDeque<Item>) -> Result<(), String> {
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            if line.len() > LINE_MOST || line.last() != Some(&b'\n') {
                return Err("a line is too long or does not end; the rest is not read".to_owned());
            }
            let Some(header) = &self.header else {
                let header: Header = serde_json::from_slice(line)
                    .map_err(|why| format!("the file does not begin like a recording: {}", place(&why)))?;
                check::header(&header)?;
                let item = Item::Segment { path: self.path.clone(), header: Box::new(header.clone()) };
                ready.push_back(item);
                self.header = Some(header);
                continue;
            };
            let mut entry: RecordedStep<'static> = serde_json::from_slice(line)
                .map_err(|why| format!("an entry is damaged: {}", place(&why)))?;
            check::entry(&entry, &header.inventory)
                .map_err(|why| format!("step {}: {why}; the rest is not read", entry.step))?;
            match &entry.groups {
                Some(groups) => self.groups = Some(groups.to_vec()),
                None => {
                    let groups = self.groups.clone();
                    let groups =
                        groups.ok_or("the first entry does not list the tenants; the rest is not read")?;
                    entry.groups = Some(groups.into());
                }
            }
            match &entry.groupings {
                Some(groupings) => self.groupings = Some(groupings.to_vec()),
                None => entry.groupings = self.groupings.clone().map(Into::into),
            }
            if entry.groupings.is_none() && header.version > 1 {
                return Err("the first entry does not list the tenants that share a class; the rest is not \
                            read"
                    .to_owned());
            }
            ready.push_back(Item::Entry(Box::new(entry)));
        }
        Ok(())
    }
}

/// The kind and column of a JSON error, without the file's text, which may be anything.
fn place(why: &serde_json::Error) -> String {
    format!("{:?} error in column {}", why.classify(), why.column()).to_lowercase()
}
