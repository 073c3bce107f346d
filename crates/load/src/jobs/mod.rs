//! Job files in fio's format: the keys that say what DMA load is; all others are refused by name.
//!
//! What such a file means was looked up in fio's manual and, where that is silent or wrong, tried on fio 3.33. Knows text
//! alone: whether a file or a device takes what a job asks for is for those to say who run it.

mod keys;
mod value;

use ini_core::{Item, Parser};
use keys::Reader;
use waykeeper_units::CoreList;

/// Which way a job's data go, as the drive sees it (fio's words, not memory's).
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Access {
    /// The drive is read, so memory is written.
    #[default]
    Read,
    /// The drive is written, so memory is read.
    Write,
    /// Both, command by command.
    Mixed {
        /// Part of the commands that write the drive, 0 to 1.
        writes: f64,
    },
}

impl Access {
    /// Part of the commands that write the drive, 0 to 1.
    pub const fn writes(self) -> f64 {
        match self {
            Access::Read => 0.0,
            Access::Write => 1.0,
            Access::Mixed { writes } => writes,
        }
    }

    /// True if some commands read the drive and some write it.
    pub const fn goes_both_ways(self) -> bool {
        let writes = self.writes();
        writes > 0.0 && writes < 1.0
    }
}

/// How a job has its commands sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// Reads and writes of a file or block device through io_uring.
    IoUring,
    /// NVMe commands passed through io_uring.
    IoUringCmd,
}

impl Engine {
    /// Fio's name of it.
    pub const fn name(self) -> &'static str {
        match self {
            Engine::IoUring => "io_uring",
            Engine::IoUringCmd => "io_uring_cmd",
        }
    }
}

/// One job. What is `None` was not said.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// The line of its section, from 1.
    pub line: u32,
    /// Which way data go.
    pub access: Access,
    /// Commands go anywhere on the target; else one behind the other.
    pub random: bool,
    /// Bytes of a command (`bs`).
    pub block_bytes: u64,
    /// Commands in flight in each copy (`iodepth`).
    pub depth: u32,
    /// How many of it run side by side (`numjobs`).
    pub copies: u32,
    /// The part of the target that is used, bytes (`size`); as long as nothing else ends a copy, it ends when it has moved
    /// so much.
    pub size_bytes: Option<u64>,
    /// Bytes after which a copy ends, whatever `size` (`io_size`).
    pub io_bytes: Option<u64>,
    /// Commands after which a copy ends (`number_ios`).
    pub commands: Option<u64>,
    /// Time after which it ends, us (`runtime`).
    pub runtime_us: Option<u64>,
    /// It goes on until its time is over, however much it has moved (`time_based`).
    pub time_based: bool,
    /// Most bytes a second of each copy (`rate`).
    pub bytes_per_s: Option<u64>,
    /// Most commands a second of each copy (`rate_iops`).
    pub commands_per_s: Option<u64>,
    /// How commands are sent (`ioengine`).
    pub engine: Option<Engine>,
    /// The target (`filename`).
    pub file: Option<String>,
    /// The cores it may run on (`cpus_allowed`).
    pub cores: Option<CoreList>,
    /// It waits until those before it have ended (`stonewall`).
    pub waits: bool,
}

impl Job {
    /// Commands after which a copy ends, whole ones of `bs`; `None` if time alone ends it.
    pub fn ends_after(&self) -> Option<u64> {
        if self.time_based {
            return None;
        }
        // As fio moves them: of a target's part what whole commands fit, of an amount all.
        let moved = match (self.io_bytes, self.size_bytes) {
            (Some(bytes), _) => Some(bytes.div_ceil(self.block_bytes)),
            (None, size) => size.map(|bytes| bytes / self.block_bytes),
        };
        moved.into_iter().chain(self.commands).min()
    }
}

/// The jobs of a file, in its order.
#[derive(Clone, PartialEq, Debug)]
pub struct JobFile {
    /// One at least.
    pub jobs: Vec<Job>,
}

/// A job file that cannot be used. The message is one line with file, line, key and what would do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JobError {
    /// A line that is neither a section nor a key.
    #[error("{file}:{line}: `{text}` is not the head of a job; write [NAME]")]
    Head {
        /// The file.
        file: String,
        /// Line, from 1.
        line: u32,
        /// What stands there.
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
    /// A key without a meaning here.
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
    /// A value that will not do.
    #[error("{file}:{line}: `{key}` is {value}; it must be {wanted}")]
    Value {
        /// The file.
        file: String,
        /// Line, from 1.
        line: u32,
        /// The key.
        key: String,
        /// What stands there.
        value: String,
        /// What would do.
        wanted: String,
    },
    /// A file without a job.
    #[error("{file}: has no job; write a section [NAME] besides [global]")]
    Empty {
        /// The file.
        file: String,
    },
    /// A job of another name was asked for.
    #[error("{file}: has no job `{name}`; it has {known}")]
    NoJob {
        /// The file.
        file: String,
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// One job was wanted.
    #[error("{file}: has {count} jobs; name one of {known}")]
    Several {
        /// The file.
        file: String,
        /// How many.
        count: usize,
        /// Their names.
        known: String,
    },
}

impl JobFile {
    /// Reads a job file; `file` is its name in messages.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(file: &str, text: &str) -> Result<JobFile, JobError> {
        // Fio ends a value at either sign, wherever it stands, so this is done before a line is taken apart.
        let plain: Vec<&str> = text.lines().map(without_comment).collect();
        let plain = plain.join("\n");
        let mut parser = Parser::new(&plain);
        let mut reader = Reader::new(file);
        loop {
            let line = parser.line() + 1;
            let Some(item) = parser.next() else { break };
            match item {
                Item::Blank | Item::Comment(_) | Item::SectionEnd => {}
                Item::Section(name) => reader.section(line, name.trim())?,
                Item::Property(key, value) => reader.key(line, key.trim(), value)?,
                Item::Error(text) => {
                    return Err(JobError::Head { file: file.to_owned(), line, text: shown(text) });
                }
            }
        }
        let jobs = reader.finish()?;
        if jobs.is_empty() {
            return Err(JobError::Empty { file: file.to_owned() });
        }
        Ok(JobFile { jobs })
    }

    /// The job of that name, or without one the only job there is; `file` is the file's name in messages.
    ///
    /// # Errors
    /// No such job, or several and none named.
    pub fn job(&self, file: &str, name: Option<&str>) -> Result<&Job, JobError> {
        let known = || self.jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>().join(", ");
        match name {
            Some(name) => self.jobs.iter().find(|job| job.name == name).ok_or_else(|| JobError::NoJob {
                file: file.to_owned(),
                name: shown(name),
                known: known(),
            }),
            None if self.jobs.len() == 1 => Ok(&self.jobs[0]),
            None => Err(JobError::Several { file: file.to_owned(), count: self.jobs.len(), known: known() }),
        }
    }

    /// Jobs that run side by side, group by group: a job that waits begins a new group.
    pub fn groups(&self) -> Vec<&[Job]> {
        self.jobs.chunk_by(|_, next| !next.waits).collect()
    }
}

/// A line up to the first `;` or `#`, without the space around it.
fn without_comment(line: &str) -> &str {
    line.split([';', '#']).next().unwrap_or_default().trim()
}

/// A text from outside in a message: short, and on one line.
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
