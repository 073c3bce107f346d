//! `memload --jobs FILE`: jobs of a fio job file as plans, one after the other.
//!
//! `load::jobs` reads the keys; this file converts a job to the plan of equal command line options. Must not know how
//! load is made.

use crate::exit::{self, Failure};
use std::path::Path;
use std::time::Duration;
use waykeeper_load::jobs::{Job, JobEngine, JobError, JobFile};
use waykeeper_load::{MemoryDirection, Pattern};
use waykeeper_memload::{EngineKind, LoadPlan};

/// Options that a job sets itself, and one for a single run only.
pub const NOT_BESIDE_JOBS: [&str; 18] = [
    "log",
    "pattern",
    "op",
    "workers",
    "depth",
    "block_size",
    "buffer",
    "max_blocks",
    "stride",
    "limit_bytes",
    "limit_commands",
    "slots",
    "catch_up",
    "profile",
    "time",
    "blocks",
    "commands",
    "engine",
];
/// Slots of a rate per second, many because fio spreads its commands. As on the virtual server.
const SLOTS: u32 = 1000;

/// A job as a plan, without its target.
#[derive(Debug)]
pub struct PlannedJob {
    /// Its name.
    pub name: String,
    /// Its target, if it names one.
    pub target: Option<String>,
    /// The plan.
    pub plan: LoadPlan,
}

/// The jobs of a file, or the one of that name. What a job does not set is as in `base`.
pub fn read(path: &Path, only: Option<&str>, base: &LoadPlan) -> Result<Vec<PlannedJob>, Failure> {
    let file = path.display().to_string();
    let text = waykeeper_bounded_read::text(path, "a job file")
        .map_err(|why| Failure::bad_input(format!("{file}: cannot read the job file: {why}")))?;
    let jobs = JobFile::parse(&file, &text, only).map_err(Failure::bad_input)?;
    jobs.notes().iter().for_each(|note| exit::eprint_line(&format!("note: {file}: {note}")));
    let planned = jobs.jobs.into_iter().map(|job| {
        let plan = plan(&file, &job, base).map_err(Failure::bad_input)?;
        Ok(PlannedJob { name: job.name, target: job.file, plan })
    });
    planned.collect()
}

/// A copy of a job is a worker; each command in flight has its own part of the buffer, in order, as in fio.
fn plan(file: &str, job: &Job, base: &LoadPlan) -> Result<LoadPlan, JobError> {
    let refuse = |key: &str, value: &str, wanted: &str| JobError::Value {
        file: file.to_owned(),
        line: job.line,
        key: format!("{}.{key}", job.name),
        value: value.to_owned(),
        wanted: wanted.to_owned(),
    };
    let writes = job.access.writes();
    let op = if writes == 1.0 { MemoryDirection::Read } else { MemoryDirection::Write };
    let copies = u64::from(job.copies);
    let of_all = |each: u64| each.saturating_mul(copies);
    let time = job.runtime_us.map(Duration::from_micros);
    let commands = job.ends_after().map(of_all);
    if time.is_none() && commands.is_none() {
        // Without an end the job would never stop, and the jobs after it would never start.
        let wanted = "given, or `runtime` or `number_ios`, because a job needs an end";
        return Err(refuse("size", "absent", wanted));
    }
    let block_bytes = u32::try_from(job.block_bytes)
        .map_err(|_| refuse("bs", &job.block_bytes.to_string(), "below 4 GiB"))?;
    let slots = u64::from(job.depth) * copies;
    let has_rate = job.bytes_per_s.or(job.commands_per_s).is_some();
    Ok(LoadPlan {
        pattern: Pattern::Single,
        op,
        mixed: job.access.reads_and_writes().then_some(writes),
        workers: job.copies,
        depth: job.depth,
        block_bytes: Some(block_bytes),
        buffer_bytes: Some(job.block_bytes.saturating_mul(slots)),
        limit_bytes: job.bytes_per_s.map(|rate| of_all(rate) as f64),
        limit_commands: job.commands_per_s.map(|rate| of_all(rate) as f64),
        // Slots divide a rate and have no meaning without one. Fio sends missed commands later by default.
        slots: if has_rate { SLOTS } else { 1 },
        catch_up: has_rate,
        time,
        blocks: None,
        commands,
        engine: job.engine.map(|engine| match engine {
            JobEngine::IoUring => EngineKind::Uring,
            JobEngine::IoUringCmd => EngineKind::NvmeUring,
        }),
        cpus: match &job.cores {
            Some(cores) => cores.cores().iter().map(|core| core.0.into()).collect(),
            None => base.cpus.clone(),
        },
        ..base.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<PlannedJob>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j.fio");
        std::fs::write(&path, text).unwrap();
        read(&path, None, &LoadPlan::default()).map_err(|failure| failure.line().to_owned())
    }

    #[test]
    fn a_job_becomes_the_words_that_say_the_same() {
        let jobs = read_text(
            "[global]\nbs=64k\nfilename=/tmp/x\n[a]\nrw=randwrite\niodepth=8\nnumjobs=2\nsize=1m\nrate=1m\n\
             ioengine=io_uring\ncpus_allowed=1,3\n[b]\nruntime=2s\nrate_iops=100\nnumjobs=3\n\
             [c]\nsize=130k\nio_size=130k\n[d]\nruntime=2s\ntime_based\nnumber_ios=5\n",
        )
        .unwrap();
        let [a, b, c, d] = jobs.as_slice() else { panic!("{jobs:?}") };
        // 1 MiB in blocks of 64 KiB, twice: 32. Sixteen commands in flight need 1 MiB of buffer.
        let wanted = LoadPlan {
            pattern: Pattern::Single,
            op: MemoryDirection::Read,
            workers: 2,
            depth: 8,
            block_bytes: Some(65_536),
            buffer_bytes: Some(1 << 20),
            limit_bytes: Some(f64::from(2 << 20)),
            slots: SLOTS,
            catch_up: true,
            commands: Some(32),
            engine: Some(EngineKind::Uring),
            cpus: vec![1, 3],
            ..LoadPlan::default()
        };
        assert_eq!((a.name.as_str(), a.target.as_deref(), &a.plan), ("a", Some("/tmp/x"), &wanted));
        assert_eq!(
            (b.plan.op, b.plan.time, b.plan.limit_commands, b.plan.commands),
            (MemoryDirection::Write, Some(Duration::from_secs(2)), Some(300.0), None)
        );
        assert_eq!((c.plan.commands, c.plan.slots, c.plan.catch_up), (Some(3), 1, false));
        assert_eq!((d.plan.commands, d.plan.time), (None, Some(Duration::from_secs(2))));
    }

    #[test]
    fn a_job_reads_and_writes_where_its_file_asks_for_both() {
        for (says, mixed, writes) in [
            ("rw=randrw", Some(0.5), true),
            ("rw=rw\nrwmixwrite=25", Some(0.25), true),
            ("rw=rw\nrwmixread=100", None, false),
            ("rw=rw\nrwmixread=0", None, true),
        ] {
            let jobs = read_text(&format!("[a]\n{says}\nsize=1m\n")).unwrap();
            assert_eq!((jobs[0].plan.mixed, jobs[0].plan.writes()), (mixed, writes), "{says}");
        }
    }

    #[test]
    fn a_job_that_never_ends_is_refused() {
        let reported = |text: &str| read_text(text).unwrap_err();
        assert!(
            reported("\n[a]\nrw=read\n")
                .contains("j.fio:2: `a.size` is absent; it must be given, or `runtime`")
        );
        assert!(reported("[a]\nbs=x\n").contains("j.fio:2: `bs` is `x`"));
    }
}
