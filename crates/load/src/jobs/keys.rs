//! The keys of a job file: their names, their accepted values and the fields that they set.
//!
//! Knows one section and the `[global]` keys before it; must not parse lines of text.

use super::value::{self, Base};
use super::{Job, JobDirection, JobEngine, JobError, shown};
use crate::{MOST_COMMAND_BYTES, MOST_DEPTH, MOST_WORKERS};
use waykeeper_units::{CoreList, Likeness, nearest};

/// The section whose keys apply to all jobs below it.
const GLOBAL: &str = "global";
/// Bytes of a logical block size that every drive supports, and of a kernel sector.
const SECTOR_BYTES: u64 = 512;

struct Key {
    /// Its names; lists show the first.
    names: &'static [&'static str],
    /// Value of a key that is written without one.
    bare: Option<&'static str>,
    set: fn(&mut Draft, Base, &str) -> Result<(), String>,
}

const fn key(names: &'static [&'static str], set: fn(&mut Draft, Base, &str) -> Result<(), String>) -> Key {
    Key { names, bare: None, set }
}

const fn flag(names: &'static [&'static str], set: fn(&mut Draft, Base, &str) -> Result<(), String>) -> Key {
    Key { names, bare: Some("1"), set }
}

/// All keys, in the order of messages.
const KEYS: &[Key] = &[
    key(&["rw", "readwrite"], |draft, _, text| {
        draft.rw = Rw::parse(text)?;
        Ok(())
    }),
    key(&["bs", "blocksize"], |draft, base, text| {
        let bytes = value::bytes(text, base, SECTOR_BYTES, MOST_COMMAND_BYTES)?;
        if !bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(format!(
                "a multiple of {SECTOR_BYTES} bytes, and is {bytes} B (fio's kib is 1000 B)"
            ));
        }
        draft.job.block_bytes = bytes;
        Ok(())
    }),
    key(&["iodepth"], |draft, base, text| {
        draft.job.depth = value::count(text, base, 1, MOST_DEPTH.into())? as u32;
        Ok(())
    }),
    key(&["numjobs"], |draft, base, text| {
        draft.job.copies = value::count(text, base, 1, MOST_WORKERS.into())? as u32;
        Ok(())
    }),
    key(&["size"], |draft, base, text| put(&mut draft.job.size_bytes, value::bytes(text, base, 1, u64::MAX))),
    key(&["io_size", "io_limit"], |draft, base, text| {
        put(&mut draft.job.io_bytes, value::bytes(text, base, 1, u64::MAX))
    }),
    key(&["number_ios"], |draft, base, text| {
        put(&mut draft.job.commands, value::count(text, base, 1, u64::MAX))
    }),
    key(&["runtime", "timeout"], |draft, _, text| put(&mut draft.job.runtime_us, value::time_us(text))),
    flag(&["time_based"], |draft, _, text| {
        draft.job.time_based = value::flag(text)?;
        Ok(())
    }),
    key(&["rate"], |draft, base, text| {
        put(&mut draft.job.bytes_per_s, value::bytes(text, base, 1, u64::MAX))
    }),
    key(&["rate_iops"], |draft, base, text| {
        put(&mut draft.job.commands_per_s, value::count(text, base, 1, u64::MAX))
    }),
    key(&["rwmixread"], |draft, base, text| {
        draft.writes = 1.0 - value::count(text, base, 0, 100)? as f64 / 100.0;
        Ok(())
    }),
    key(&["rwmixwrite"], |draft, base, text| {
        draft.writes = value::count(text, base, 0, 100)? as f64 / 100.0;
        Ok(())
    }),
    key(&["ioengine"], |draft, _, text| {
        let known = [JobEngine::IoUring, JobEngine::IoUringCmd];
        let found = known.into_iter().find(|engine| engine.name() == text);
        draft.job.engine = Some(found.ok_or("io_uring or io_uring_cmd")?);
        Ok(())
    }),
    key(&["cmd_type"], |_, _, text| {
        only(text == "nvme", "nvme, the only kind of command that is passed through")
    }),
    key(&["filename"], |draft, _, text| {
        // Fio accepts a list with colons.
        only(!text.contains(':'), "one file or device; fio's lists with a colon are not taken")?;
        // Fio also expands `${NAME}`, `$ncpus` and other variables; without expansion the name would mean another file.
        only(!text.contains('$'), "without `$`: fio's variables are not expanded here")?;
        draft.job.file = Some(text.to_owned());
        Ok(())
    }),
    key(&["direct"], |_, _, text| only(text == "1", "1: I/O through the page cache is not DMA of a command")),
    key(&["buffered"], |_, _, text| {
        only(text == "0", "0: I/O through the page cache is not DMA of a command")
    }),
    key(&["cpus_allowed"], |draft, _, text| {
        let cores: CoreList = text.parse().map_err(|why| format!("a list of CPUs like 0-3,8 ({why})"))?;
        draft.job.cores = Some(cores);
        Ok(())
    }),
    flag(&["stonewall", "wait_for_previous"], |draft, _, text| {
        draft.job.waits = value::flag(text)?;
        Ok(())
    }),
    key(&["kb_base"], |draft, _, text| {
        draft.base = match text {
            "1024" => Base::Binary,
            "1000" => Base::Decimal,
            _ => return Err("1024 or 1000".to_owned()),
        };
        Ok(())
    }),
    key(&["name"], |draft, _, text| {
        draft.job.name = text.to_owned();
        Ok(())
    }),
    // These keys do not change the DMA load: workers are always threads here, and there is one summary for all.
    key(&["description"], |_, _, _| Ok(())),
    flag(&["thread"], |_, _, text| value::flag(text).map(drop)),
    flag(&["group_reporting"], |_, _, text| value::flag(text).map(drop)),
];

fn put<T>(place: &mut Option<T>, value: Result<T, String>) -> Result<(), String> {
    *place = Some(value?);
    Ok(())
}

fn only(holds: bool, wanted: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(wanted.to_owned()) }
}

/// The value of `rw`.
#[derive(Clone, Copy, Debug)]
struct Rw {
    access: Option<JobDirection>,
    random: bool,
}

impl Rw {
    fn parse(text: &str) -> Result<Rw, String> {
        let (access, random) = match text {
            "read" => (Some(JobDirection::Read), false),
            "write" => (Some(JobDirection::Write), false),
            "randread" => (Some(JobDirection::Read), true),
            "randwrite" => (Some(JobDirection::Write), true),
            "rw" | "readwrite" => (None, false),
            "randrw" => (None, true),
            _ => return Err("one of read, write, randread, randwrite, rw, randrw".to_owned()),
        };
        Ok(Rw { access, random })
    }
}

/// A job while its section is read.
#[derive(Clone, Debug)]
struct Draft {
    job: Job,
    rw: Rw,
    /// Share of a mixed job's commands that write.
    writes: f64,
    base: Base,
    /// The lines that set it, those of `[global]` first.
    lines: Vec<Line>,
}

impl Draft {
    /// Fio's defaults.
    fn new() -> Draft {
        Draft {
            job: Job {
                name: String::new(),
                line: 0,
                access: JobDirection::Read,
                random: false,
                block_bytes: 4096,
                depth: 1,
                copies: 1,
                size_bytes: None,
                io_bytes: None,
                commands: None,
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
            base: Base::Binary,
            lines: Vec::new(),
        }
    }

    /// The finished job; or the line that conflicts with other lines of the job, and what it must be.
    fn done(mut self) -> Result<Job, (Line, String)> {
        self.job.access = self.rw.access.unwrap_or(JobDirection::Mixed { writes: self.writes });
        self.job.random = self.rw.random;
        let job = &self.job;
        // The last line with a key applies.
        let said = |key: &str| self.lines.iter().rfind(|line| line.key == key);
        if let (Some(rate), Some(commands)) = (said("rate"), said("rate_iops")) {
            let (late, early) =
                if commands.number > rate.number { (commands, rate) } else { (rate, commands) };
            let wanted = format!(
                "absent, because line {} gives `{}`: fio takes one of the two",
                early.number, early.key
            );
            return Err((late.clone(), wanted));
        }
        // With a rate limit, fio sends equal numbers of reads and writes, whatever `rwmixread` says.
        if job.access.reads_and_writes()
            && let Some(rate) = said("rate").or_else(|| said("rate_iops"))
        {
            let wanted = "absent with a mixed `rw`, because fio limits reads and writes separately; with \
                read, write, randread and randwrite it is accepted";
            return Err((rate.clone(), wanted.to_owned()));
        }
        if let Some(size) = said("size").filter(|_| job.size_bytes < Some(job.block_bytes)) {
            return Err((size.clone(), format!("at least `bs`, which is {} B", job.block_bytes)));
        }
        if let Some(timed) = said("time_based").filter(|_| job.time_based && job.runtime_us.is_none()) {
            return Err((timed.clone(), "given together with `runtime`, or 0".to_owned()));
        }
        Ok(self.job)
    }
}

/// A key and its value as written.
#[derive(Clone, Debug)]
struct Line {
    number: u32,
    key: &'static str,
    set: fn(&mut Draft, Base, &str) -> Result<(), String>,
    value: String,
}

/// Reads the sections in order.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    file: &'a str,
    /// The `[global]` keys so far.
    global: Draft,
    /// The open section: its line, its name and its keys.
    open: Option<(u32, String, Vec<Line>)>,
    jobs: Vec<Job>,
}

impl Reader<'_> {
    pub(super) fn new(file: &str) -> Reader<'_> {
        Reader { file, global: Draft::new(), open: None, jobs: Vec::new() }
    }

    pub(super) fn section(&mut self, line: u32, name: &str) -> Result<(), JobError> {
        self.close()?;
        if name.is_empty() {
            let (file, text) = (self.file.to_owned(), "[]".to_owned());
            return Err(JobError::Head { file, line, text });
        }
        self.open = Some((line, name.to_owned(), Vec::new()));
        Ok(())
    }

    pub(super) fn key(&mut self, number: u32, name: &str, value: Option<&str>) -> Result<(), JobError> {
        let file = || self.file.to_owned();
        let Some((_, _, lines)) = &mut self.open else {
            return Err(JobError::Outside { file: file(), line: number, key: shown(name) });
        };
        let Some(key) = KEYS.iter().find(|key| key.names.contains(&name)) else {
            return Err(JobError::Key {
                file: file(),
                line: number,
                key: shown(name),
                near: hint(name),
                known: KEYS.iter().map(|key| key.names[0]).collect::<Vec<_>>().join(", "),
            });
        };
        let refused = |value: &str, wanted: String| {
            let (key, value) = (name.to_owned(), value.to_owned());
            JobError::Value { file: file(), line: number, key, value, wanted }
        };
        let raw = value.unwrap_or_default();
        let Some(value) = Some(raw.trim()).filter(|value| !value.is_empty()).or(key.bare) else {
            return Err(refused("without a value", format!("{name}=...")));
        };
        // Fio accepts a number after a space, and a description has no effect.
        let has_word = value.contains(char::is_alphabetic) && key.names[0] != "description";
        if has_word && raw.starts_with(char::is_whitespace) {
            let wanted = format!(
                "directly after the `=`, as in `{name}={}`: after a space fio takes neither words nor units",
                shown(value)
            );
            return Err(refused(&format!("`{}`", shown(raw)), wanted));
        }
        let line = Line { number, key: key.names[0], set: key.set, value: value.to_owned() };
        // Fio reads the base of units before the other keys of a section.
        if line.key == "kb_base" {
            lines.insert(0, line)
        } else {
            lines.push(line)
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), JobError> {
        let Some((at, name, lines)) = self.open.take() else { return Ok(()) };
        let mut draft = self.global.clone();
        if name != GLOBAL {
            draft.job.line = at;
            draft.job.name = name.clone();
        }
        let file = self.file;
        let refused = |line: &Line, wanted| JobError::Value {
            file: file.to_owned(),
            line: line.number,
            key: line.key.to_owned(),
            value: format!("`{}`", shown(&line.value)),
            wanted,
        };
        for line in lines {
            let base = draft.base;
            (line.set)(&mut draft, base, &line.value).map_err(|wanted| refused(&line, wanted))?;
            draft.lines.push(line);
        }
        if name == GLOBAL {
            self.global = draft;
        } else {
            self.jobs.push(draft.done().map_err(|(line, wanted)| refused(&line, wanted))?);
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<Vec<Job>, JobError> {
        self.close()?;
        Ok(self.jobs)
    }
}

/// `, did you mean `x`` if a known key is similar to `word`.
fn hint(word: &str) -> String {
    let all = KEYS.iter().flat_map(|key| key.names).copied();
    nearest(word, all, Likeness::JaroWinkler)
        .map_or_else(String::new, |known| format!(", did you mean `{known}`"))
}
