//! A job while its section is read, and what its lines must be together.
//!
//! Must not know the names of keys, except those that exclude each other.

use super::value::Base;
use super::{Job, JobDirection, JobSizes};
use std::collections::BTreeMap;
use std::path::Path;

/// The value of `rw`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rw {
    access: Option<JobDirection>,
    random: bool,
}

impl Rw {
    /// The value, and whether commands go on in sequence, or with gaps, as a number behind it says. On a real drive that
    /// is accepted of a random `rw` only.
    pub(super) fn parse(text: &str, is_on_model: bool) -> Result<(Rw, bool), String> {
        let (name, goes_on) = match text.split_once(':') {
            Some((name, count))
                if (name.starts_with("rand") && count.parse::<u32>().is_ok())
                    || (is_on_model && is_step(count)) =>
            {
                (name, true)
            }
            _ => (text, false),
        };
        let (access, random) = match name {
            "read" => (Some(JobDirection::Read), false),
            "write" => (Some(JobDirection::Write), false),
            "randread" => (Some(JobDirection::Read), true),
            "randwrite" => (Some(JobDirection::Write), true),
            "rw" | "readwrite" => (None, false),
            "randrw" => (None, true),
            _ => return Err("one of read, write, randread, randwrite, rw, randrw".to_owned()),
        };
        Ok((Rw { access, random }, goes_on))
    }
}

/// A step between commands: `-8k`, `112k`.
fn is_step(text: &str) -> bool {
    let number = text.strip_prefix('-').unwrap_or(text);
    super::value::bytes(number, Base::Binary, 0, u64::MAX).is_ok()
}

/// A job while its section is read.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) job: Job,
    pub(super) rw: Rw,
    /// Share of a mixed job's commands that write.
    pub(super) writes: f64,
    /// The virtual server runs it: files and cores are the scenario's.
    pub(super) is_on_model: bool,
    /// The engine waits for each command.
    pub(super) waits_for_each: bool,
    /// The engine reads to the memory of a GPU unless a key asks for plain reads, and whether one does.
    pub(super) needs_posix: bool,
    pub(super) is_posix: bool,
    pub(super) directory: Option<String>,
    /// `filesize`.
    pub(super) file_bytes: Option<u64>,
    /// `bssplit`.
    pub(super) split: Option<JobSizes>,
    /// `verify`, and `do_verify`.
    pub(super) verifies: bool,
    pub(super) reads_back: bool,
    /// What the present line has to say.
    pub(super) notes: Vec<&'static str>,
    /// The numbers of the lines that set it, by key.
    pub(super) lines: BTreeMap<&'static str, u32>,
}

impl Draft {
    /// Fio's defaults.
    pub(super) fn new(is_on_model: bool) -> Draft {
        Draft {
            job: Job {
                name: String::new(),
                line: 0,
                access: JobDirection::Read,
                random: false,
                block_bytes: 4096,
                sizes: None,
                depth: 1,
                copies: 1,
                size_bytes: None,
                io_bytes: None,
                commands: None,
                loops: 1,
                start_delay_us: 0,
                reads_back: false,
                backlog: None,
                has_random_gaps: false,
                runtime_us: None,
                time_based: false,
                bytes_per_s: None,
                commands_per_s: None,
                engine: None,
                file: None,
                cores: None,
                waits: false,
            },
            rw: Rw { access: Some(JobDirection::Read), random: false },
            writes: 0.5,
            is_on_model,
            waits_for_each: false,
            needs_posix: false,
            is_posix: false,
            directory: None,
            file_bytes: None,
            split: None,
            verifies: false,
            reads_back: true,
            notes: Vec::new(),
            lines: BTreeMap::new(),
        }
    }

    pub(super) fn note(&mut self, text: &'static str) {
        self.notes.push(text);
    }

    /// A job that names no engine has fio's default one on Linux, psync (fio's manual, "ioengine"), which waits for each
    /// command, whatever `iodepth` says. The key that has no effect because of it, and what is to be said.
    pub(super) fn settle_engine(&mut self) -> Option<(&'static str, &'static str)> {
        if self.job.engine.is_some() || self.job.depth == 1 {
            return None;
        }
        self.waits_for_each = true;
        let note = "one command at a time: without an `ioengine` fio takes psync, which waits for each; `ioengine=io_uring` \
            keeps so many in flight";
        Some(("iodepth", note))
    }

    /// The finished job; or the key that conflicts with other lines of the job, and what it must be.
    pub(super) fn done(mut self) -> Result<Job, (&'static str, String)> {
        self.job.access = self.rw.access.unwrap_or(JobDirection::Mixed { writes: self.writes });
        self.job.random = self.rw.random;
        self.job.size_bytes = self.job.size_bytes.or(self.file_bytes);
        self.job.reads_back = self.verifies && self.reads_back;
        self.job.backlog = self.job.backlog.filter(|_| self.job.reads_back);
        self.job.sizes = self.split.take().or(self.job.sizes.take());
        let mut smallest = self.job.block_bytes;
        if let Some(sizes) = &self.job.sizes {
            let all = || sizes.all(self.job.access);
            smallest = all().min().unwrap_or(smallest);
            self.job.block_bytes = all().max().unwrap_or(smallest);
            if all().all(|bytes| bytes == smallest) {
                self.job.sizes = None;
            }
        }
        if self.waits_for_each {
            self.job.depth = 1;
        }
        if let (Some(directory), Some(file)) = (&self.directory, &mut self.job.file) {
            *file = Path::new(directory).join(&*file).to_string_lossy().into_owned();
        }
        let job = &self.job;
        let line = |key: &str| self.lines.get(key).copied();
        if self.needs_posix && !self.is_posix {
            let wanted = "given together with `cuda_io=posix` or `rocm_io=posix`: what a drive moves to the memory of a \
                GPU is not modelled";
            return Err(("ioengine", wanted.to_owned()));
        }
        if let (Some(rate), Some(commands)) = (line("rate"), line("rate_iops")) {
            let (late, early, number) =
                if commands > rate { ("rate_iops", "rate", rate) } else { ("rate", "rate_iops", commands) };
            let wanted = format!("absent, because line {number} gives `{early}`: fio takes one of the two");
            return Err((late, wanted));
        }
        // With a rate limit, fio sends equal numbers of reads and writes, whatever `rwmixread` says.
        if job.access.reads_and_writes()
            && let Some(rate) = ["rate", "rate_iops"].into_iter().find(|key| line(key).is_some())
        {
            let wanted = "absent with a mixed `rw`, because fio limits reads and writes separately; with \
                read, write, randread and randwrite it is accepted";
            return Err((rate, wanted.to_owned()));
        }
        if line("size").is_some() && job.size_bytes.is_some_and(|bytes| bytes < smallest) {
            return Err(("size", format!("at least `bs`, which is {smallest} B")));
        }
        // Under fio it takes its time from the command line; on the virtual server a run has an end of its own.
        if job.time_based && job.runtime_us.is_none() && !self.is_on_model {
            return Err(("time_based", "given together with `runtime`, or 0".to_owned()));
        }
        // Fio then moves neither the one nor the other so often.
        if job.loops > 1 && job.io_bytes > job.size_bytes && job.size_bytes.is_some() {
            return Err(("loops", "1 beside an `io_size` above `size`".to_owned()));
        }
        Ok(self.job)
    }
}
