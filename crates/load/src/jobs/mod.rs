//! Parser for job files in fio's format. It accepts the keys that describe DMA load and refuses all others by name.
//!
//! The meaning of each key is from fio's manual and, where the manual is silent or wrong, from tests of fio 3.33. Knows
//! text only; must not know whether a file or device supports what a job requests.

mod draft;
mod engines;
mod keys;
mod sizes;
mod table;
mod value;

use ini_core::{Item, Parser};
use keys::{Contents, Reader};
pub use sizes::JobSizes;
use waykeeper_units::CoreList;

/// Direction of a job's data, from the view of the drive (fio's words, not memory's).
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum JobDirection {
    /// The drive is read, so memory is written.
    #[default]
    Read,
    /// The drive is written, so memory is read.
    Write,
    /// Both; each command has its own direction.
    Mixed {
        /// Part of the commands that write the drive, 0 to 1.
        writes: f64,
    },
}

impl JobDirection {
    /// Part of the commands that write the drive, 0 to 1.
    pub const fn writes(self) -> f64 {
        match self {
            JobDirection::Read => 0.0,
            JobDirection::Write => 1.0,
            JobDirection::Mixed { writes } => writes,
        }
    }

    /// True if some commands read the drive and some write it.
    pub const fn reads_and_writes(self) -> bool {
        let writes = self.writes();
        writes > 0.0 && writes < 1.0
    }
}

/// Interface that sends a job's commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobEngine {
    /// Reads and writes of a file or block device through io_uring.
    IoUring,
    /// NVMe commands passed through io_uring.
    IoUringCmd,
}

impl JobEngine {
    /// Fio's name for it.
    pub const fn name(self) -> &'static str {
        match self {
            JobEngine::IoUring => "io_uring",
            JobEngine::IoUringCmd => "io_uring_cmd",
        }
    }
}

/// One job. A key that the file does not give is `None`.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// The line of its section header, from 1.
    pub line: u32,
    /// Direction of the data.
    pub access: JobDirection,
    /// Random positions on the target; otherwise sequential.
    pub random: bool,
    /// Bytes of a command (`bs`); of commands of several sizes the largest.
    pub block_bytes: u64,
    /// The sizes, if there are several (`bssplit`).
    pub sizes: Option<JobSizes>,
    /// Commands in flight in each copy (`iodepth`).
    pub depth: u32,
    /// Copies of the job that run in parallel (`numjobs`).
    pub copies: u32,
    /// The part of the target that is used, bytes (`size`). A copy also ends after this many bytes, unless another key
    /// ends it.
    pub size_bytes: Option<u64>,
    /// Bytes after which a copy ends, independent of `size` (`io_size`).
    pub io_bytes: Option<u64>,
    /// Commands after which a copy ends (`number_ios`).
    pub commands: Option<u64>,
    /// How often a copy is done (`loops`); the ends above are of one time.
    pub loops: u64,
    /// Time before its first command, us (`startdelay`).
    pub start_delay_us: u64,
    /// What it wrote is read at its end (`verify`).
    pub reads_back: bool,
    /// ... and not at its end, but whenever so many blocks were written (`verify_backlog`).
    pub backlog: Option<u64>,
    /// The gaps between the commands of a rate are those of a Poisson process (`rate_process`).
    pub has_random_gaps: bool,
    /// Time after which a copy ends, us (`runtime`).
    pub runtime_us: Option<u64>,
    /// Only `runtime` ends the job, however many bytes it has moved (`time_based`).
    pub time_based: bool,
    /// Maximum bytes per second of each copy (`rate`).
    pub bytes_per_s: Option<u64>,
    /// Maximum commands per second of each copy (`rate_iops`).
    pub commands_per_s: Option<u64>,
    /// Interface that sends the commands (`ioengine`).
    pub engine: Option<JobEngine>,
    /// The target (`filename`).
    pub file: Option<String>,
    /// The cores that it may run on (`cpus_allowed`).
    pub cores: Option<CoreList>,
    /// It starts after all jobs before it have ended (`stonewall`).
    pub waits: bool,
}

impl Job {
    /// Mean bytes of a command.
    pub fn mean_bytes(&self) -> f64 {
        self.sizes.as_ref().map_or(self.block_bytes as f64, |sizes| sizes.mean_bytes(self.access))
    }

    /// Commands after which a copy ends, of several sizes as many as the mean size gives; `None` if only time ends it.
    pub fn ends_after(&self) -> Option<u64> {
        if self.time_based {
            return None;
        }
        // As in fio: `size` is rounded down to whole commands, `io_size` is rounded up.
        let moved = match (self.io_bytes, self.size_bytes, &self.sizes) {
            (None, None, _) => None,
            (Some(bytes), _, None) => Some(bytes.div_ceil(self.block_bytes)),
            (None, Some(bytes), None) => Some(bytes / self.block_bytes),
            (io, size, Some(_)) => {
                let bytes = io.or(size).unwrap_or(u64::MAX);
                Some(((bytes as f64 / self.mean_bytes()).round() as u64).max(1))
            }
        };
        moved.into_iter().chain(self.commands).min().map(|once| once.saturating_mul(self.loops))
    }
}

/// The jobs of a file, in the file's order.
#[derive(Clone, PartialEq, Debug)]
pub struct JobFile {
    /// At least one.
    pub jobs: Vec<Job>,
    /// What the file says that has no effect here, or another one than under fio.
    pub notes: Vec<JobNote>,
}

/// A line that has no effect here, or another one than under fio.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobNote {
    /// The line, from 1.
    pub line: u32,
    /// Its key.
    pub key: &'static str,
    /// What comes of it.
    pub text: &'static str,
}

/// A job file that cannot be used. The message is one line with file, line, key and an accepted value.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JobError {
    /// A line that is neither a section nor a key.
    #[error("{file}:{line}: `{text}` is not the head of a job; write [NAME]")]
    Head {
        /// The file.
        file: String,
        /// Line, from 1.
        line: u32,
        /// The line's text.
        text: String,
    },
    /// A key before the first section.
    #[error("{file}:{line}: `{key}` is given before any section; write [global] or [NAME] above it")]
    Outside {
        /// The file.
        file: String,
        /// Line, from 1.
        line: u32,
        /// The key.
        key: String,
    },
    /// An unsupported key.
    #[error("{file}:{line}: `{key}` is not a fio key that is supported here{near}; supported are {known}")]
    Key {
        /// The file.
        file: String,
        /// Line, from 1.
        line: u32,
        /// The key.
        key: String,
        /// `, did you mean ...`, or nothing.
        near: String,
        /// What is accepted.
        known: String,
    },
    /// An invalid value.
    #[error("{file}:{line}: `{key}` is {value}; it must be {wanted}")]
    Value {
        /// The file.
        file: String,
        /// Line, from 1.
        line: u32,
        /// The key.
        key: String,
        /// The value in the file.
        value: String,
        /// Accepted values.
        wanted: String,
    },
    /// Several lines that cannot be used.
    #[error("{file}: {} lines cannot be used: {}{known}", wrong.len(), lines_of(wrong))]
    Lines {
        /// The file.
        file: String,
        /// What is wrong with each.
        wrong: Vec<JobError>,
        /// The accepted keys, if one was unknown.
        known: String,
    },
    /// A file without a job.
    #[error("{file}: has no job; write a section [NAME] besides [global]")]
    Empty {
        /// The file.
        file: String,
    },
    /// The requested job does not exist.
    #[error("{file}: has no job `{name}`; it has {known}")]
    NoJob {
        /// The file.
        file: String,
        /// The requested name.
        name: String,
        /// Names of the file's jobs.
        known: String,
    },
}

impl JobError {
    /// The line, from 1; 0 for the file as a whole.
    fn line(&self) -> u32 {
        match self {
            JobError::Head { line, .. }
            | JobError::Outside { line, .. }
            | JobError::Key { line, .. }
            | JobError::Value { line, .. } => *line,
            _ => 0,
        }
    }
}

impl JobFile {
    /// Reads a job file, all jobs or the one called `only`; `file` is its name in messages.
    ///
    /// # Errors
    /// All lines that are wrong, in one error; those of jobs that are not wanted are not read.
    pub fn parse(file: &str, text: &str, only: Option<&str>) -> Result<JobFile, JobError> {
        JobFile::read(text, Reader::new(file, false, only), file, only)
    }

    /// Reads a job file for the virtual server, where a scenario gives drives and cores: any value of `filename`,
    /// `directory` and `cpus_allowed` is a note.
    ///
    /// # Errors
    /// As [`JobFile::parse`].
    pub fn parse_for_model(file: &str, text: &str, only: Option<&str>) -> Result<JobFile, JobError> {
        JobFile::read(text, Reader::new(file, true, only), file, only)
    }

    fn read(text: &str, mut reader: Reader<'_>, file: &str, only: Option<&str>) -> Result<JobFile, JobError> {
        // Fio ends a value at the first `;` or `#` anywhere in the line, so comments are removed before lines are
        // parsed.
        let plain: Vec<&str> = text.lines().map(without_comment).collect();
        let plain = plain.join("\n");
        let mut parser = Parser::new(&plain);
        loop {
            let line = parser.line() + 1;
            let Some(item) = parser.next() else { break };
            match item {
                Item::Blank | Item::Comment(_) | Item::SectionEnd => {}
                Item::Section(name) => reader.section(line, name.trim()),
                Item::Property(key, value) => reader.key(line, key.trim(), value),
                Item::Error(text) => {
                    reader.bad_head(line, text);
                }
            }
        }
        let Contents { jobs, names, notes } = reader.finish()?;
        if names.is_empty() {
            return Err(JobError::Empty { file: file.to_owned() });
        }
        if let Some(name) = only.filter(|_| jobs.is_empty()) {
            return Err(JobError::NoJob { file: file.to_owned(), name: shown(name), known: listed(&names) });
        }
        Ok(JobFile { jobs, notes })
    }

    /// The line that relates the jobs to each other, if there are several.
    pub fn relation(&self) -> Option<&JobNote> {
        self.notes.iter().find(|note| note.text == table::ALONE).filter(|_| self.jobs.len() > 1)
    }

    /// The notes, one sentence for each kind: `directory` (line 3), ...
    pub fn notes(&self) -> Vec<String> {
        let mut kinds: Vec<(&str, Vec<String>)> = Vec::new();
        for note in &self.notes {
            let place = format!("`{}` (line {})", note.key, note.line);
            match kinds.iter_mut().find(|(text, _)| *text == note.text) {
                Some((_, places)) => places.push(place),
                None => kinds.push((note.text, vec![place])),
            }
        }
        kinds.into_iter().map(|(text, places)| format!("{}: {text}", places.join(", "))).collect()
    }

    /// Groups of parallel jobs; a job with `waits` begins a new group.
    pub fn groups(&self) -> Vec<&[Job]> {
        self.jobs.chunk_by(|_, next| !next.waits).collect()
    }
}

/// The names of jobs, the first ones of many.
fn listed(names: &[String]) -> String {
    const MOST: usize = 20;
    let mut text: Vec<String> = names.iter().take(MOST).map(|name| shown(name)).collect();
    if names.len() > MOST {
        text.push("...".to_owned());
    }
    text.join(", ")
}

/// `3: ...; 7: ...`, without the file and the list of keys, which the message has once.
fn lines_of(wrong: &[JobError]) -> String {
    let line = |error: &JobError| match error {
        JobError::Key { line, key, near, .. } => {
            format!("{line}: `{key}` is not a fio key that is supported here{near}")
        }
        JobError::Value { line, key, value, wanted, .. } => {
            format!("{line}: `{key}` is {value}; it must be {wanted}")
        }
        JobError::Head { line, text, .. } => {
            format!("{line}: `{text}` is not the head of a job; write [NAME]")
        }
        JobError::Outside { line, key, .. } => format!("{line}: `{key}` is given before any section"),
        other => other.to_string(),
    };
    wrong.iter().map(line).collect::<Vec<_>>().join("; ")
}

/// A line up to the first `;` or `#`, without the space around it.
fn without_comment(line: &str) -> &str {
    line.split([';', '#']).next().unwrap_or_default().trim()
}

/// Untrusted text for a message: short and on one line.
fn shown(text: &str) -> String {
    const MOST: usize = 60;
    let mut shown: String = text.chars().take(MOST).flat_map(char::escape_debug).collect();
    if text.chars().nth(MOST).is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests;
