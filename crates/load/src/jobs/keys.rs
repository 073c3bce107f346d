//! The keys of a job file: their names, their accepted values and the fields that they set.
//!
//! Knows one section and the `[global]` keys before it; must not parse lines of text.

use super::value::{self, Base};
use super::{Job, JobDirection, JobEngine, JobError, JobNote, shown};
use crate::{MOST_COMMAND_BYTES, MOST_DEPTH, MOST_WORKERS};
use std::path::Path;
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
    /// For a key without effect here: why.
    idle: Option<&'static str>,
}

const fn key(names: &'static [&'static str], set: fn(&mut Draft, Base, &str) -> Result<(), String>) -> Key {
    Key { names, bare: None, set, idle: None }
}

const fn flag(names: &'static [&'static str], set: fn(&mut Draft, Base, &str) -> Result<(), String>) -> Key {
    Key { names, bare: Some("1"), set, idle: None }
}

/// Keys that cannot change the DMA load, and why.
const fn idle(names: &'static [&'static str], why: &'static str) -> Key {
    Key { names, bare: Some("1"), set: |_, _, _| Ok(()), idle: Some(why) }
}

/// All keys, in the order of messages.
const KEYS: &[Key] = &[
    key(&["rw", "readwrite"], |draft, _, text| {
        draft.rw = Rw::parse(text)?;
        if text.contains(':') {
            draft.note("each position is random, where fio sends a few commands in sequence");
        }
        Ok(())
    }),
    key(&["bs", "blocksize"], block),
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
        draft.waits_for_each = false;
        draft.job.engine = Some(match text {
            "io_uring" => JobEngine::IoUring,
            "io_uring_cmd" => JobEngine::IoUringCmd,
            "libaio" | "posixaio" | "solarisaio" | "windowsaio" => {
                draft.note("the drive is loaded alike: io_uring sends the commands");
                JobEngine::IoUring
            }
            "sync" | "psync" | "vsync" | "pvsync" | "pvsync2" => {
                draft.note(
                    "one command at a time, as fio's synchronous engines send them: io_uring sends them",
                );
                draft.waits_for_each = true;
                JobEngine::IoUring
            }
            _ => {
                return Err("io_uring, io_uring_cmd, libaio, posixaio, or one of sync, psync, vsync, pvsync and pvsync2: \
                    other engines load no drive, or not by commands alone"
                    .to_owned());
            }
        });
        Ok(())
    }),
    key(&["directory"], |draft, _, text| {
        if draft.is_on_model {
            draft.note("the scenario says which drives are loaded");
            return Ok(());
        }
        only(!text.contains(':'), "one folder; fio's lists with a colon are not taken")?;
        only(!text.contains('$'), "without `$`: fio's variables are not expanded here")?;
        draft.directory = Some(text.to_owned());
        Ok(())
    }),
    key(&["filesize"], |draft, base, text| put(&mut draft.file_bytes, value::bytes(text, base, 1, u64::MAX))),
    key(&["ramp_time"], |draft, _, text| {
        only(text == "0" || value::time_us(text).is_ok(), "a time like 10 (seconds) or 500ms")?;
        draft.note("nothing is left out of the measurement: what warms up counts");
        Ok(())
    }),
    key(&["cmd_type"], |_, _, text| {
        only(text == "nvme", "nvme, the only kind of command that is passed through")
    }),
    key(&["filename"], |draft, _, text| {
        if draft.is_on_model {
            draft.note("the scenario says which drives are loaded");
            return Ok(());
        }
        // Fio accepts a list with colons.
        only(!text.contains(':'), "one file or device; fio's lists with a colon are not taken")?;
        // Fio also expands `${NAME}`, `$ncpus` and other variables; without expansion the name would mean another file.
        only(!text.contains('$'), "without `$`: fio's variables are not expanded here")?;
        draft.job.file = Some(text.to_owned());
        Ok(())
    }),
    key(&["direct"], |draft, _, text| unbuffered(draft, text == "1", "1")),
    key(&["buffered"], |draft, _, text| unbuffered(draft, text == "0", "0")),
    key(&["cpus_allowed"], |draft, _, text| {
        if draft.is_on_model {
            draft.note("the scenario says which cores the program runs on");
            return Ok(());
        }
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
    key(&["bsrange", "blocksize_range"], |draft, base, text| match text.split_once('-') {
        Some((least, most)) if least == most => block(draft, base, least),
        _ => Err("a range of one size, like 4k-4k: commands have one size here".to_owned()),
    }),
    key(&["name"], |draft, _, text| {
        draft.job.name = text.to_owned();
        Ok(())
    }),
    // Workers are always threads here, and there is one summary for all.
    key(&["description"], |_, _, _| Ok(())),
    flag(&["thread"], |_, _, text| value::flag(text).map(drop)),
    flag(&["group_reporting"], |_, _, text| value::flag(text).map(drop)),
    idle(&["norandommap"], RANDOM),
    idle(&["softrandommap"], RANDOM),
    idle(&["randrepeat"], RANDOM),
    idle(&["allrandrepeat"], RANDOM),
    idle(&["randseed"], RANDOM),
    idle(&["random_generator"], RANDOM),
    idle(&["invalidate"], FILE),
    idle(&["unlink"], FILE),
    idle(&["fallocate"], FILE),
    idle(&["create_serialize"], FILE),
    idle(&["create_on_open"], FILE),
    idle(&["create_fsync"], FILE),
    idle(&["overwrite"], FILE),
    idle(&["file_service_type"], FILE),
    idle(&["openfiles"], FILE),
    idle(&["end_fsync"], FILE),
    idle(&["fsync_on_close"], FILE),
    idle(&["fadvise_hint"], FILE),
    idle(&["refill_buffers"], CONTENT),
    idle(&["scramble_buffers"], CONTENT),
    idle(&["zero_buffers"], CONTENT),
    idle(&["buffer_pattern"], CONTENT),
    idle(&["buffer_compress_percentage"], CONTENT),
    idle(&["dedupe_percentage"], CONTENT),
    idle(&["cpus_allowed_policy"], CORES),
    idle(&["nice"], CORES),
    idle(&["prio"], CORES),
    idle(&["prioclass"], CORES),
    idle(&["iodepth_batch", "iodepth_batch_submit"], BATCH),
    idle(&["iodepth_batch_complete", "iodepth_batch_complete_min"], BATCH),
    idle(&["iodepth_batch_complete_max"], BATCH),
    idle(&["iodepth_low"], BATCH),
    idle(&["hipri"], BATCH),
    idle(&["fixedbufs"], BATCH),
    idle(&["registerfiles"], BATCH),
    idle(&["sqthread_poll"], BATCH),
    idle(&["userspace_reap"], BATCH),
    idle(&["nonvectored"], BATCH),
    idle(&["gtod_reduce"], REPORT),
    idle(&["gtod_cpu"], REPORT),
    idle(&["clocksource"], REPORT),
    idle(&["disable_lat"], REPORT),
    idle(&["disable_clat"], REPORT),
    idle(&["disable_slat"], REPORT),
    idle(&["disable_bw", "disable_bw_measurement"], REPORT),
    idle(&["percentile_list"], REPORT),
    idle(&["lat_percentiles"], REPORT),
    idle(&["clat_percentiles"], REPORT),
    idle(&["slat_percentiles"], REPORT),
    idle(&["write_bw_log"], REPORT),
    idle(&["write_lat_log"], REPORT),
    idle(&["write_iops_log"], REPORT),
    idle(&["write_hist_log"], REPORT),
    idle(&["log_avg_msec"], REPORT),
    idle(&["log_hist_msec"], REPORT),
    idle(&["log_max_value"], REPORT),
    idle(&["log_offset"], REPORT),
    idle(&["per_job_logs"], REPORT),
    idle(&["bwavgtime"], REPORT),
    idle(&["iopsavgtime"], REPORT),
    idle(&["unified_rw_reporting"], REPORT),
    idle(&["new_group"], REPORT),
    idle(&["stats"], REPORT),
];

const RANDOM: &str = "random positions are drawn by Waykeeper, and differ from fio's";
const FILE: &str = "how fio makes and closes its files does not change the commands";
const CONTENT: &str = "what the buffers contain does not change the commands";
const CORES: &str = "how the operating system shares cores between jobs does not change the commands";
const BATCH: &str = "commands are sent and taken one by one";
const REPORT: &str = "it is about what fio reports";

/// `bs`.
fn block(draft: &mut Draft, base: Base, text: &str) -> Result<(), String> {
    let bytes = value::bytes(text, base, SECTOR_BYTES, MOST_COMMAND_BYTES)?;
    if !bytes.is_multiple_of(SECTOR_BYTES) {
        return Err(format!("a multiple of {SECTOR_BYTES} bytes, and is {bytes} B (fio's kib is 1000 B)"));
    }
    draft.job.block_bytes = bytes;
    Ok(())
}

/// `direct` and `buffered`. The model has no page cache: each command reaches its drives.
fn unbuffered(draft: &mut Draft, is: bool, wanted: &str) -> Result<(), String> {
    if !is && draft.is_on_model {
        draft.note("there is no page cache: each command reaches the drives");
        return Ok(());
    }
    only(is, &format!("{wanted}: I/O through the page cache is not DMA of a command"))
}

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
    /// A number behind a random `rw` is how many commands go on in sequence.
    fn parse(text: &str) -> Result<Rw, String> {
        let name = match text.split_once(':') {
            Some((name, count)) if name.starts_with("rand") && count.parse::<u32>().is_ok() => name,
            _ => text,
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
    /// The virtual server runs it: files and cores are the scenario's.
    is_on_model: bool,
    /// The engine waits for each command.
    waits_for_each: bool,
    directory: Option<String>,
    /// `filesize`.
    file_bytes: Option<u64>,
    /// What the present line has to say.
    notes: Vec<&'static str>,
    /// The lines that set it, those of `[global]` first.
    lines: Vec<Line>,
}

impl Draft {
    fn note(&mut self, text: &'static str) {
        self.notes.push(text);
    }

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
            is_on_model: false,
            waits_for_each: false,
            directory: None,
            file_bytes: None,
            notes: Vec::new(),
            lines: Vec::new(),
        }
    }

    /// The finished job; or the line that conflicts with other lines of the job, and what it must be.
    fn done(mut self) -> Result<Job, (Line, String)> {
        self.job.access = self.rw.access.unwrap_or(JobDirection::Mixed { writes: self.writes });
        self.job.random = self.rw.random;
        self.job.size_bytes = self.job.size_bytes.or(self.file_bytes);
        if self.waits_for_each {
            self.job.depth = 1;
        }
        if let (Some(directory), Some(file)) = (&self.directory, &mut self.job.file) {
            *file = Path::new(directory).join(&*file).to_string_lossy().into_owned();
        }
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
    idle: Option<&'static str>,
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
    notes: Vec<JobNote>,
    /// A line of `[global]` is wrong.
    is_global_wrong: bool,
    /// All that is wrong, so that a file is corrected in one pass.
    wrong: Vec<JobError>,
}

impl Reader<'_> {
    pub(super) fn new(file: &str, is_on_model: bool) -> Reader<'_> {
        Reader {
            file,
            global: Draft { is_on_model, ..Draft::new() },
            open: None,
            jobs: Vec::new(),
            notes: Vec::new(),
            is_global_wrong: false,
            wrong: Vec::new(),
        }
    }

    pub(super) fn section(&mut self, line: u32, name: &str) {
        self.close();
        if name.is_empty() {
            return self.bad_head(line, "[]");
        }
        self.open = Some((line, name.to_owned(), Vec::new()));
    }

    /// A line that should be the head of a section. The lines below it are those of a job without a name.
    pub(super) fn bad_head(&mut self, line: u32, text: &str) {
        self.close();
        self.wrong.push(JobError::Head { file: self.file.to_owned(), line, text: shown(text) });
        self.open = Some((line, String::new(), Vec::new()));
    }

    pub(super) fn key(&mut self, number: u32, name: &str, value: Option<&str>) {
        if let Err(error) = self.read_key(number, name, value) {
            self.wrong.push(error);
        }
    }

    fn read_key(&mut self, number: u32, name: &str, value: Option<&str>) -> Result<(), JobError> {
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
                known: known(),
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
        let has_word =
            value.contains(char::is_alphabetic) && key.names[0] != "description" && key.idle.is_none();
        if has_word && raw.starts_with(char::is_whitespace) {
            let wanted = format!(
                "directly after the `=`, as in `{name}={}`: after a space fio takes neither words nor units",
                shown(value)
            );
            return Err(refused(&format!("`{}`", shown(raw)), wanted));
        }
        let line = Line { number, key: key.names[0], set: key.set, idle: key.idle, value: value.to_owned() };
        // Fio reads the base of units before the other keys of a section.
        if line.key == "kb_base" {
            lines.insert(0, line)
        } else {
            lines.push(line)
        }
        Ok(())
    }

    fn close(&mut self) {
        let Some((at, name, lines)) = self.open.take() else { return };
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
        let mut is_whole = !self.is_global_wrong;
        for line in lines {
            let base = draft.base;
            if let Err(wanted) = (line.set)(&mut draft, base, &line.value) {
                self.wrong.push(refused(&line, wanted));
                is_whole = false;
            }
            draft.notes.extend(line.idle);
            let notes = draft.notes.drain(..);
            self.notes.extend(notes.map(|text| JobNote { line: line.number, key: line.key, text }));
            draft.lines.push(line);
        }
        if name == GLOBAL {
            self.global = draft;
            self.is_global_wrong = !is_whole;
            return;
        }
        if !is_whole || name.is_empty() {
            // Whether its lines fit each other is not known.
            return;
        }
        match draft.done() {
            Ok(job) => self.jobs.push(job),
            Err((line, wanted)) => self.wrong.push(refused(&line, wanted)),
        }
    }

    pub(super) fn finish(mut self) -> Result<(Vec<Job>, Vec<JobNote>), JobError> {
        self.close();
        match self.wrong.len() {
            0 => Ok((self.jobs, self.notes)),
            1 => Err(self.wrong.remove(0)),
            _ => {
                self.wrong.sort_by_key(JobError::line);
                let lacks_key = self.wrong.iter().any(|error| matches!(error, JobError::Key { .. }));
                let known = if lacks_key { format!("; supported are {}", known()) } else { String::new() };
                Err(JobError::Lines { file: self.file.to_owned(), wrong: self.wrong, known })
            }
        }
    }
}

/// The keys that have an effect.
fn known() -> String {
    let with_effect = KEYS.iter().filter(|key| key.idle.is_none());
    with_effect.map(|key| key.names[0]).collect::<Vec<_>>().join(", ")
}

/// `, did you mean `x`` if a known key is similar to `word`.
fn hint(word: &str) -> String {
    let all = KEYS.iter().filter(|key| key.idle.is_none()).flat_map(|key| key.names).copied();
    nearest(word, all, Likeness::JaroWinkler)
        .map_or_else(String::new, |known| format!(", did you mean `{known}`"))
}
