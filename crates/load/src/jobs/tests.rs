//! Tests of job files: by hand, against fio itself, and with random text.

use super::*;
use proptest::prelude::*;
use std::process::{Command, Output};

/// Every accepted kind of line, once.
const WHOLE: &str = "\
# comment
; comment of the other kind
[global]
ioengine=io_uring   ; behind a value
bs =128k # and the other
direct=1
rw=randread
runtime=30ms
time_based

[readers]
filename=/dev/nvme0n1
numjobs=4
iodepth=32
size=1g
rate_iops=2000
cpus_allowed=0
thread
group_reporting=1
description=what it is for

[global]
bs=4k

[mixed]
stonewall
rw=randrw
rwmixread=70
kb_base=1000
size=64m
io_size=4kib
number_ios=0x10
ioengine=io_uring_cmd
cmd_type=nvme
filename=/dev/ng0n1
time_based=0
runtime=1500ms

[writer]
rw=write
size=1g
rate=100m
";

#[test]
fn a_whole_file_is_read() {
    let file = JobFile::parse("j.fio", WHOLE, None).unwrap();
    let [readers, mixed, writer] = file.jobs.as_slice() else { panic!("{file:?}") };
    assert_eq!((readers.name.as_str(), readers.line), ("readers", 11));
    assert_eq!((readers.access, readers.random, readers.block_bytes), (JobDirection::Read, true, 131_072));
    assert_eq!((readers.depth, readers.copies, readers.size_bytes), (32, 4, Some(1 << 30)));
    assert_eq!((readers.bytes_per_s, readers.commands_per_s), (None, Some(2000)));
    // 100 MiB/s, as fio's m is 1024 x 1024.
    assert_eq!((writer.bytes_per_s, writer.commands_per_s), (Some(104_857_600), None));
    assert_eq!((readers.runtime_us, readers.time_based, readers.waits), (Some(30_000), true, false));
    assert_eq!(readers.ends_after(), None, "time alone ends it");
    assert_eq!(readers.engine, Some(JobEngine::IoUring));
    assert_eq!(readers.cores.as_ref().map(CoreList::len), Some(1));
    // A second [global] applies to the sections below it.
    assert_eq!((mixed.block_bytes, mixed.access), (4096, JobDirection::Mixed { writes: 1.0 - 0.7 }));
    // With a base of 1000 `64m` is 64 million, `4kib` 4 x 1024.
    assert_eq!((mixed.size_bytes, mixed.io_bytes, mixed.commands), (Some(64_000_000), Some(4096), Some(16)));
    assert_eq!((mixed.waits, mixed.time_based, mixed.runtime_us), (true, false, Some(1_500_000)));
    assert_eq!(mixed.ends_after(), Some(1));
    assert_eq!(mixed.engine, Some(JobEngine::IoUringCmd));
    assert_eq!(file.groups().iter().map(|group| group.len()).collect::<Vec<_>>(), [1, 2]);
    let one = JobFile::parse("j.fio", WHOLE, Some("mixed")).unwrap();
    assert_eq!(one.jobs, std::slice::from_ref(mixed));
    let none = JobFile::parse("j.fio", WHOLE, Some("x")).unwrap_err().to_string();
    assert_eq!(none, "j.fio: has no job `x`; it has readers, mixed, writer");
}

#[test]
fn units_are_fios() {
    // Measured with fio 3.33: one command of each size, with `kb_base` 1024 and 1000.
    let cases: [(&str, u64, u64); 6] = [
        ("4k", 4096, 4000),
        ("4K", 4096, 4000),
        ("4kb", 4096, 4000),
        ("8KiB", 8000, 8192),
        ("0x1000", 4096, 4096),
        ("4096b", 4096, 4096),
    ];
    for (text, binary, decimal) in cases {
        let bytes = |base| value::bytes(text, base, 1, u64::MAX);
        assert_eq!(
            (bytes(value::Base::Binary), bytes(value::Base::Decimal)),
            (Ok(binary), Ok(decimal)),
            "{text}"
        );
        let count = |base| value::count(text, base, 1, u64::MAX);
        assert_eq!((count(value::Base::Binary), count(value::Base::Decimal)), (Ok(binary), Ok(decimal)));
    }
    // The base applies to all keys: also to plain numbers, and from `[global]`.
    let text = "[global]\nkb_base=1000\nioengine=libaio\n[a]\niodepth=1k\nnumjobs=1k\nnumber_ios=1k\nrate_iops=1k\nsize=5k\n";
    let file = JobFile::parse("j.fio", text, None).unwrap();
    let Job { depth, copies, commands, commands_per_s, size_bytes, .. } = file.jobs[0];
    assert_eq!((depth, copies, commands, commands_per_s), (1000, 1000, Some(1000), Some(1000)));
    assert_eq!(size_bytes, Some(5000));
    for (text, us) in [("10", 10_000_000), ("5m", 300_000_000), ("7us", 7), ("2H", 7_200_000_000)] {
        assert_eq!(value::time_us(text), Ok(us), "{text}");
    }
    // 2^54 KiB is one byte more than 64 bits hold.
    assert!(value::bytes("18014398509481984k", value::Base::Binary, 1, u64::MAX).is_err());
}

#[test]
fn what_has_no_meaning_is_refused_with_file_and_line() {
    let reported = |text: &str| JobFile::parse("j.fio", text, None).unwrap_err().to_string();
    let unknown = reported("[a]\n\nio_depth=4\n");
    assert!(unknown.starts_with("j.fio:3: `io_depth` is not a fio key that is supported here"), "{unknown}");
    assert!(unknown.contains(", did you mean `iodepth`; supported are rw, bs, iodepth,"), "{unknown}");
    let engines = reported("[a]\nhttp_host=x\n");
    assert!(engines.starts_with("j.fio:2: `http_host` is not a fio key that is supported"), "{engines}");
    let model = reported("[a]\nzonemode=zbd\n");
    assert!(model.contains("here (the virtual server accepts it: where data lie on a drive"), "{model}");
    let cases = [
        (
            "[a]\nbs=0\n",
            "j.fio:2: `bs` is `0`; it must be a number of bytes from 512 to 536870912, like 4096,",
        ),
        ("[a]\nbs=4k,8k\n", "j.fio:2: `bs` is `4k,8k`; it must be a number of bytes"),
        ("[a]\nbs=1000\n", "j.fio:2: `bs` is `1000`; it must be a multiple of 512 bytes, and is 1000 B"),
        (
            "[a]\nbs=4kib\n",
            "j.fio:2: `bs` is `4kib`; it must be a multiple of 512 bytes, and is 4000 B (fio's kib is 1000 B)",
        ),
        ("[a]\nbs=4kx\n", "j.fio:2: `bs` is `4kx`; it must be a number of bytes"),
        ("[a]\nbs=4ki\n", "j.fio:2: `bs` is `4ki`; it must be written as 4k, 4kb or 4kib"),
        // A letter that is two bytes in UTF-8.
        ("[a]\nbs=1éi\n", "j.fio:2: `bs` is `1éi`; it must be a number of bytes"),
        ("[a]\nsize=50%\n", "j.fio:2: `size` is `50%`; it must be a number of bytes from 1, like"),
        ("[global]\niodepth=0\n", "j.fio:2: `iodepth` is `0`; it must be a whole number from 1 to 65535"),
        ("[a]\nnumjobs=-1\n", "j.fio:2: `numjobs` is `-1`; it must be a whole number from 1 to 1024"),
        ("[a]\nrw=trim\n", "j.fio:2: `rw` is `trim`; it must be one of read, write, randread,"),
        ("[a]\nruntime=0\n", "j.fio:2: `runtime` is `0`; it must be a time of at least 1us"),
        (
            "[a]\nioengine=mmap\n",
            "j.fio:2: `ioengine` is `mmap`; it must be io_uring, io_uring_cmd, libaio, posixaio, or one",
        ),
        ("[a]\nioengine=rbd\n", "j.fio:2: `ioengine` is `rbd`; it must be io_uring, io_uring_cmd, libaio,"),
        ("[a]\nverify=md5\n", "j.fio:2: `verify` is `md5`; it must be 0 on a real drive"),
        ("[a]\nstartdelay=4\n", "j.fio:2: `startdelay` is `4`; it must be 0 on a real drive"),
        ("[a]\nsync=1\n", "j.fio:2: `sync` is `1`; it must be 0: a real drive would also"),
        (
            "[a]\nloops=2\nio_size=12k\nsize=8k\n",
            "j.fio:2: `loops` is `2`; it must be 1 beside an `io_size` above `size`",
        ),
        ("[a]\nbssplit=4k/100\n", "j.fio:2: `bssplit` is `4k/100`; it must be absent on a real drive"),
        ("[a]\nverify_backlog=1\n", "j.fio:2: `verify_backlog` is `1`; it must be 0 on a real drive"),
        ("[a]\nrate_process=poisson\n", "j.fio:2: `rate_process` is `poisson`; it must be linear on a real"),
        ("[a]\ndirect=0\n", "j.fio:2: `direct` is `0`; it must be 1: I/O through the page cache"),
        ("[a]\ndirect\n", "j.fio:2: `direct` is without a value; it must be direct=..."),
        ("[a]\nfilename=/dev/a:/dev/b\n", "j.fio:2: `filename` is `/dev/a:/dev/b`; it must be one file"),
        (
            "[a]\nfilename=/tmp/q${FOO}\n",
            "j.fio:2: `filename` is `/tmp/q${FOO}`; it must be without `$`: fio's variables are not expanded",
        ),
        (
            "[a]\nrate=1m\nrate_iops=9\n",
            "j.fio:3: `rate_iops` is `9`; it must be absent, because line 2 gives `rate`: fio takes one of \
             the two",
        ),
        (
            "[global]\nrate_iops=9\n[a]\nbs=8k\nrate=1m\n",
            "j.fio:5: `rate` is `1m`; it must be absent, because line 2 gives `rate_iops`",
        ),
        (
            "[global]\nrate_iops=9\n[a]\nbs=8k\nrw=randrw\n",
            "j.fio:2: `rate_iops` is `9`; it must be absent with a mixed `rw`, because fio limits reads and writes",
        ),
        (
            "[a]\nrate=1m\nrw=rw\nrwmixread=99\n",
            "j.fio:2: `rate` is `1m`; it must be absent with a mixed `rw`",
        ),
        (
            "[a]\nsize=3k\nnumber_ios=1\n",
            "j.fio:2: `size` is `3k`; it must be at least `bs`, which is 4096 B",
        ),
        (
            "[a]\ntime_based\nsize=1m\n",
            "j.fio:2: `time_based` is `1`; it must be given together with `runtime`, or 0",
        ),
        (
            "[a]\nbs = 128k\n",
            "j.fio:2: `bs` is ` 128k`; it must be directly after the `=`, as in `bs=128k`: after a space fio takes neither",
        ),
        (
            "[a]\nrw=\tread\n",
            "j.fio:2: `rw` is `\\tread`; it must be directly after the `=`, as in `rw=read`",
        ),
        ("[a]\ntime_based=2\n", "j.fio:2: `time_based` is `2`; it must be 1 or 0"),
        ("[a]\ncpus_allowed=x\n", "j.fio:2: `cpus_allowed` is `x`; it must be a list of CPUs"),
        ("bs=4k\n", "j.fio:1: `bs` is given before any section; write [global] or [NAME] above it"),
        ("[a\nbs=4k\n", "j.fio:1: `[a` is not the head of a job; write [NAME]"),
        ("[]\nbs=4k\n", "j.fio:1: `[]` is not the head of a job; write [NAME]"),
        ("[global]\nbs=4k\n", "j.fio: has no job; write a section [NAME] besides [global]"),
        ("", "j.fio: has no job; write a section [NAME] besides [global]"),
    ];
    for (text, begins) in cases {
        let reported = reported(text);
        assert!(reported.starts_with(begins) && !reported.contains('\n'), "{text:?}: {reported}");
    }
}

#[test]
fn public_job_files_are_read_with_notes() {
    let text = "\
[global]
ioengine=libaio
directory=/mnt/data
randrepeat=0
gtod_reduce = reduce
norandommap
[a]
filename=seq
rw=randread:8
ramp_time=5s
filesize=64m
[b]
ioengine=pvsync2
iodepth=16
write_lat_log=b
";
    let file = JobFile::parse("j.fio", text, None).unwrap();
    let [a, b] = &file.jobs[..] else { panic!("{file:?}") };
    assert_eq!(
        (a.engine, a.depth, a.random, a.size_bytes),
        (Some(JobEngine::IoUring), 1, true, Some(64 << 20))
    );
    assert_eq!((a.file.as_deref(), b.file.as_deref()), (Some("/mnt/data/seq"), None));
    // A synchronous engine has one command in flight, as under fio.
    assert_eq!((b.engine, b.depth), (Some(JobEngine::IoUring), 1));
    assert_eq!(
        file.notes(),
        [
            "`ioengine` (line 2): the drive is loaded alike: io_uring sends the commands",
            "`randrepeat` (line 4), `norandommap` (line 6): random positions are drawn by Waykeeper, and differ from fio's",
            "`gtod_reduce` (line 5), `write_lat_log` (line 15): it is about what fio reports",
            "`rw` (line 9): each position is random, where fio sends a few commands in sequence or leaves gaps",
            "`ramp_time` (line 10): nothing is left out of the measurement: what warms up counts",
            "`ioengine` (line 13): one command at a time, as fio's synchronous engines send them: io_uring sends them",
        ]
    );
    assert_eq!(JobFile::parse("j.fio", "[a]\nfilename=b\n", None).unwrap().notes(), [""; 0]);
}

/// Fio's manual, "ioengine": psync is the default on all operating systems that have it.
#[test]
fn a_depth_without_an_engine_is_that_of_fios_default_engine() {
    let text = "[global]\niodepth=32\n[a]\n[b]\nioengine=libaio\n[c]\niodepth=1\n";
    for parse in [JobFile::parse, JobFile::parse_for_model] {
        let file = parse("j.fio", text, None).unwrap();
        assert_eq!(file.jobs.iter().map(|job| job.depth).collect::<Vec<_>>(), [1, 32, 1]);
        let notes = file.notes();
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(
            notes[0].starts_with(
                "`iodepth` (line 2): one command at a time: without an `ioengine` fio takes psync"
            )
        );
        assert!(notes[1].starts_with("`ioengine` (line 5): the drive is loaded alike"), "{notes:?}");
    }
}

#[test]
fn a_file_of_the_model_may_name_any_file_and_any_cores() {
    let text = "[a]\nfilename=${DEV}:other\ndirectory=$x\ncpus_allowed=what\ndirect=0\nbsrange=8k-8k\n";
    let file = JobFile::parse_for_model("j.fio", text, None).unwrap();
    assert_eq!((file.jobs[0].file.as_ref(), file.jobs[0].cores.as_ref()), (None, None));
    assert_eq!(
        file.notes(),
        [
            "`filename` (line 2), `directory` (line 3): the scenario says which drives are loaded",
            "`cpus_allowed` (line 4): the scenario says which cores the program runs on",
            "`direct` (line 5): there is no page cache: each command reaches the drives",
        ]
    );
    assert_eq!(file.jobs[0].block_bytes, 8192);
    assert!(JobFile::parse("j.fio", text, None).is_err());
    let range = JobFile::parse_for_model("j.fio", "[a]\nbsrange=4k-8k\n", None).unwrap_err().to_string();
    assert!(range.contains("`bsrange` is `4k-8k`; it must be a range of one size"), "{range}");
}

#[test]
fn all_lines_that_are_wrong_are_said_at_once() {
    let text = "[a]\nverify_me=crc32c\nbs=4k,64k\nthinktime=9\n[b]\nrate=1m\nrate_iops=9\n";
    let said = JobFile::parse("j.fio", text, None).unwrap_err().to_string();
    let begins = "j.fio: 4 lines cannot be used: 2: `verify_me` is not a fio key that is supported here";
    assert!(said.starts_with(begins) && !said.contains('\n'), "{said}");
    for part in [
        "; 4: `thinktime` is `9`; it must be 0: pauses between commands cannot be expressed",
        "; 3: `bs` is `4k,64k`; it must be a number of bytes",
        "; 7: `rate_iops` is `9`; it must be absent, because line 6 gives `rate`",
        "; supported are rw, bs, iodepth,",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("gtod_reduce"), "keys without effect are not listed: {said}");
}

/// What many public files have: keys of positions, checksums, other engines; values without an effect.
#[test]
fn keys_that_cannot_change_the_load_of_the_model_are_notes() {
    let same = "[a]\nioengine=io_uring\nrw=read\nbs=8k\niodepth=4\nsize=1m\n";
    let plain = JobFile::parse_for_model("j.fio", same, None).unwrap();
    for (more, note) in [
        ("rw=read:-8k\n", "each position is random"),
        ("bs=8k,8k,16k\n", ""),
        ("zonemode=strided\nzonesize=256m\noffset=50%\n", "where data lie on a drive does not matter"),
        ("fsync=0\nthinktime=0\nsync=0\niodepth_mode=none\n", ""),
        ("sync=1\ncmdprio_percentage=20\n", "the drives have no priorities"),
        ("ioengine=null\n", "moves nothing"),
        ("ioengine=xnvme\nxnvme_async=io_uring\n", "belongs to an engine"),
        ("exitall\nflow=8\nwait_for=b\n", "the job runs alone"),
        ("ss=iops:10%\nratemin=1k\ncontinue_on_error=all\n", "until its end"),
        ("mem=shmhuge\n", "placed in memory"),
        ("threads=1\nloops=1\nstartdelay=0\n", ""),
    ] {
        let file = JobFile::parse_for_model("j.fio", &format!("{same}{more}"), None).unwrap();
        let notes = file.notes().join("; ");
        assert!(notes.contains(note) && notes.is_empty() == note.is_empty(), "{more}: {notes}");
        assert_eq!(file.jobs[0], plain.jobs[0], "{more}");
    }
    for (more, wanted) in [
        ("bs=4k,\n", "a number of bytes"),
        ("bssplit=4k/50:8k/40\n", "percentages that add up to 100"),
        ("bssplit=4k/50:1000/50\n", "a multiple of 512 bytes"),
        ("mem=cudamalloc\n", "the host's memory"),
        ("ioengine=libcufile\n", "given together with `cuda_io=posix`"),
        ("ioengine=libcufile\ncuda_io=cufile\n", "posix: what a drive moves to the memory of a GPU"),
        ("ioengine=http\n", "this one loads a network"),
        ("ioengine=dev-dax\n", "loads and stores of the cores"),
        ("ioengine=filecreate\n", "moves no data of a drive"),
        ("latency_target=500\n", "a search for one cannot be expressed"),
        ("iodepth_mode=stepped:10-130/5,5/30\n", "steps cannot be expressed"),
        ("rate_process=other\n", "linear or poisson"),
        ("sg_write_mode=verify_bytchk_01\n", "the other commands verify or repeat"),
    ] {
        let said = JobFile::parse_for_model("j.fio", &format!("{same}{more}"), None).unwrap_err().to_string();
        assert!(said.contains(wanted) && !said.contains('\n'), "{more}: {said}");
    }
}

#[test]
fn values_that_can_change_the_load_are_kept() {
    let read = |more: &str| {
        let text = format!("[a]\nbs=8k\nsize=20k\nrw=write\n{more}");
        JobFile::parse_for_model("j.fio", &text, None).unwrap().jobs.remove(0)
    };
    // Two blocks fit into 20 KiB.
    assert_eq!((read("").ends_after(), read("loops=3\n").ends_after()), (Some(2), Some(6)));
    assert_eq!(read("size=30%\n").ends_after(), None);
    assert_eq!(read("startdelay=4ms\n").start_delay_us, 4_000);
    assert_eq!(read("time_based\n").ends_after(), None);
    // As fio: 3 x 4 KiB are less than the size.
    assert_eq!(read("io_size=4k\nloops=3\n").ends_after(), Some(3));
    // Half of 4 and half of 12 KiB are 8 on average: 100 commands in 800 KiB. The largest needs the buffers.
    let split = read("bssplit=4k/50:12k/50\nsize=800k\n");
    assert_eq!((split.block_bytes, split.mean_bytes(), split.ends_after()), (12_288, 8192.0, Some(100)));
    assert_eq!(read("bssplit=4k/50:4k/50\n").sizes, None);
    // Only the size of writes counts in a job that writes.
    let each = read("bs=4k,16k\nsize=64k\n");
    assert_eq!(
        (each.block_bytes, each.sizes, read("bs=4k,16k\nrw=randrw\nsize=1m\n").mean_bytes()),
        (16_384, None, 10_240.0)
    );
    assert_eq!(
        (read("verify=md5\nverify_backlog=4\n").backlog, read("verify_backlog=4\n").backlog),
        (Some(4), None)
    );
    assert!(read("rate_iops=9\nrate_process=poisson\n").has_random_gaps);
    assert_eq!(
        (read("verify=md5\n").reads_back, read("verify=md5\ndo_verify=0\n").reads_back),
        (true, false)
    );
    // A memory-mapped file, a zoned device and plain reads beside a GPU have one command in flight.
    for engine in ["mmap", "libzbc", "mtd", "libcufile\ncuda_io=posix"] {
        assert_eq!(read(&format!("iodepth=9\nioengine={engine}\n")).depth, 1, "{engine}");
    }
    assert_eq!(read("iodepth=9\nioengine=sg\n").depth, 9);
}

/// Lines of `[global]` that a job replaces, and lines of other jobs, are not its own.
#[test]
fn one_job_of_a_file_is_read_without_the_others() {
    let text = "[global]\nioengine=e4defrag\nbs=4k\nname=all\n[a]\nrw=write\ninplace=1\n[b]\nioengine=libaio\n\
        [c]\nioengine=sync\nname=last\nkb_base=1000\nbs=4kib\n[d]\nno_such=1\n";
    let one = |name| JobFile::parse_for_model("j.fio", text, Some(name));
    let b = one("b").unwrap();
    assert_eq!((b.jobs[0].name.as_str(), b.jobs[0].block_bytes, b.notes.len()), ("b", 4096, 1));
    assert_eq!(one("last").unwrap().jobs[0].block_bytes, 4096);
    assert!(one("a").unwrap_err().to_string().starts_with("j.fio:2: `ioengine` is `e4defrag`; it must be"));
    let all = JobFile::parse_for_model("j.fio", text, None).unwrap_err().to_string();
    // The line of [global] is wrong for two jobs, and named once.
    assert!(
        all.starts_with("j.fio: 2 lines cannot be used: 2: `ioengine`") && all.contains("; 16: `no_such`"),
        "{all}"
    );
    assert_eq!(one("c").unwrap_err().to_string(), "j.fio: has no job `c`; it has a, b, last, d");
}

/// Output of fio for a file.
fn fio(words: &[&str], text: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("j.fio");
    std::fs::write(&path, text).unwrap();
    let fio = Command::new("fio").args(words).arg(&path).current_dir(folder.path()).output();
    fio.expect("not run: needs fio")
}

/// KiB that each copy of each job moves when fio runs a file, read and written; or fio's error.
fn moved(text: &str) -> Result<Vec<(u64, u64)>, String> {
    let done = fio(&["--minimal", "--warnings-fatal"], text);
    let reported = String::from_utf8(done.stdout).unwrap();
    let kib = |line: &str, field: usize| line.split(';').nth(field).unwrap().parse().unwrap();
    // Fields 6 and 47 of fio's terse lines, version 3.
    let lines = reported.lines().filter(|line| line.starts_with("3;fio-"));
    match done.status.success() {
        true => Ok(lines.map(|line| (kib(line, 5), kib(line, 46))).collect()),
        false => Err(String::from_utf8(done.stderr).unwrap()),
    }
}

/// Fio accepts the same files. They run with an engine that moves nothing, because fio reports some errors only then.
#[test]
fn fio_takes_the_same_files() {
    // Only the parse checks engines and CPUs; the run covers all other keys. For a refused job fio prints only its
    // message.
    let parsed = fio(&["--parse-only"], WHOLE);
    assert_eq!((parsed.status.success(), String::from_utf8_lossy(&parsed.stderr).as_ref()), (true, ""));
    let lines =
        WHOLE.lines().filter(|line| !line.starts_with("cmd_type") && !line.starts_with("cpus_allowed"));
    let lines = lines.map(|line| if line.starts_with("ioengine") { "ioengine=null" } else { line });
    let runs = moved(&lines.collect::<Vec<_>>().join("\n")).unwrap();
    assert!(matches!(runs[..], [(_, 0), (4, 0) | (0, 4), (0, _)]), "{runs:?}");
}

/// Fio refuses the files that are refused here because of fio.
#[test]
fn fio_refuses_the_same_files() {
    for wrong in [
        "io_depth=4\n",
        "iodepth=0\n",
        "size=1m\nrate=1m\nrate_iops=9\n",
        "rw=write\nrate_iops=9\nrate=1m\nsize=1m\n",
        "size=3k\n",
        "size=3k\ntime_based\nruntime=9ms\n",
        "time_based\nsize=1m\n",
        "rw = write\nsize=1m\n",
        "size= 1m\n",
    ] {
        assert!(moved(&format!("[a]\nioengine=null\n{wrong}")).is_err(), "{wrong}");
        assert!(JobFile::parse("j.fio", &format!("[a]\n{wrong}"), None).is_err(), "{wrong}");
    }
    assert!(moved("bs=4k\n").is_err() && JobFile::parse("j.fio", "bs=4k\n", None).is_err());
}

/// Each copy of a job has as many commands as under fio.
#[test]
fn a_job_ends_where_fio_ends_it() {
    let text = "\
[part]
size=10k
[more-than-it]
size=10k
io_size=30k
[amount]
size=1m
io_size=10k
[number]
size=1m
number_ios=7
[part-first]
size=1m
number_ios=1000
[number-first]
size=10k
io_size=1m
number_ios=5
[decimal]
kb_base=1000
size=1g
number_ios=1k
[part-of-decimal]
size=1m
kb_base=1000
[copies]
numjobs=2
rw=write
size=18k
[large]
bs=64k
description = what fio takes behind a space
size =100k
number_ios= 9
[other-words]
wait_for_previous
rw=readwrite
rwmixread=0
rate=10m
kb_base=1000
blocksize=8KiB
io_limit=20KiB
size=1m
timeout=2H
buffered=0
";
    let file = JobFile::parse("j.fio", text, None).unwrap();
    let ours = file.jobs.iter().flat_map(|job| {
        let kib = job.ends_after().unwrap() * job.block_bytes / 1024;
        let both = if job.access.writes() == 1.0 { (0, kib) } else { (kib, 0) };
        vec![both; job.copies as usize]
    });
    let ours: Vec<(u64, u64)> = ours.collect();
    let timed = "[timed]\nsize=16k\nio_size=8k\nnumber_ios=3\ntime_based\nruntime=50ms\n";
    let mut theirs = moved(&format!("[global]\nioengine=null\n{text}{timed}")).unwrap();
    // Only time ends the last job.
    assert!(theirs.pop().unwrap().0 > 16);
    assert_eq!(JobFile::parse("j.fio", timed, None).unwrap().jobs[0].ends_after(), None);
    assert_eq!(theirs, ours);
}

/// Lines that are almost valid.
fn lines() -> impl Strategy<Value = String> {
    let head = prop_oneof!["\\[[a-z]{0,4}\\]", "\\[global\\]", "\\[[a-z]*", Just("[a]".to_owned())];
    let key = prop_oneof![
        Just("rw"),
        Just("bs"),
        Just("iodepth"),
        Just("size"),
        Just("runtime"),
        Just("rate"),
        Just("kb_base"),
        Just("filename"),
        Just("cpus_allowed"),
        Just("stonewall"),
        Just("numjobs"),
        Just("rwmixread"),
    ];
    let value =
        prop_oneof!["[0-9]{0,20}[a-zA-Z]{0,3}", "0x[0-9a-fA-F]{0,20}", "randrw|read|write", "\\PC{0,12}"];
    let pair = (key, value).prop_map(|(key, value)| format!("{key}={value}"));
    let line = prop_oneof![1 => head, 4 => pair, 1 => "\\PC{0,20}", 1 => Just(String::new())];
    (proptest::collection::vec(line, 0..12), prop_oneof![Just("\n"), Just("\r\n"), Just("\r")])
        .prop_map(|(lines, end)| lines.join(end))
}

proptest! {
    /// Any text gives either valid jobs or a one-line error that begins with the file's name.
    #[test]
    fn anything_is_read_or_refused(text in prop_oneof![lines(), "\\PC{0,200}", ".{0,200}"]) {
        match JobFile::parse("j.fio", &text, None) {
            Ok(file) => {
                prop_assert!(!file.jobs.is_empty());
                prop_assert_eq!(file.groups().iter().map(|group| group.len()).sum::<usize>(), file.jobs.len());
                for job in &file.jobs {
                    prop_assert!(job.depth > 0 && job.copies > 0 && job.block_bytes % 512 == 0);
                    prop_assert!(job.block_bytes > 0 && (0.0..=1.0).contains(&job.access.writes()));
                }
            }
            Err(error) => {
                let reported = error.to_string();
                prop_assert!(reported.starts_with("j.fio:") && !reported.contains('\n'), "{}", reported);
            }
        }
    }

    /// A number with a unit equals the same number without one.
    #[test]
    fn units_multiply(number in 1u64..1000, power in 0usize..5) {
        let letter = ["k", "m", "g", "t", "p"][power];
        let bytes = value::bytes(&format!("{number}{letter}"), value::Base::Binary, 1, u64::MAX);
        prop_assert_eq!(bytes, Ok(number << (10 * (power + 1))));
    }
}

/// A line about other jobs is no matter for one job, and one for several.
#[test]
fn lines_that_relate_jobs_are_found() {
    let text = "[a]\nsize=1m\n[b]\nsize=1m\nflow=8\n";
    let relation = |only| {
        let file = JobFile::parse_for_model("j.fio", text, only).unwrap();
        file.relation().map(|note| (note.line, note.key))
    };
    assert_eq!((relation(None), relation(Some("b"))), (Some((5, "flow")), None));
}
