//! Runs with O_DIRECT on ordinary files: the totals agree with the file's content.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use waykeeper_load::{MemoryDirection, Pattern};
use waykeeper_memload::{
    Consent, End, EngineKind, IoOperation, KernelMounts, LoadOutcome, LoadPlan, PrepareError, Ready, Running,
    Target, Verified, word,
};

const BYTES: usize = 4 << 20;

/// A file in the build folder: a temporary one may be on a file system without O_DIRECT.
fn file() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, vec![0x5A; BYTES]).unwrap();
    (folder, path)
}

fn ready(path: &Path, plan: LoadPlan) -> Arc<Ready> {
    let target = Target::inspect(path, &KernelMounts::default()).unwrap();
    let consent = Consent { overwrite: true, ..Consent::default() };
    let _forks = crate::FORKS.read();
    let ready = Ready::new(target, plan, &consent, &KernelMounts::default(), &|| false).unwrap();
    assert_eq!(ready.engine(), EngineKind::Uring);
    Arc::new(ready)
}

/// Starts the run. The kernel counts rings and registered buffers of all processes of a user as locked memory.
fn started(ready: &Arc<Ready>) -> Running {
    let out_of_memory = std::io::ErrorKind::OutOfMemory;
    Running::start(ready).unwrap_or_else(|error| match error {
        PrepareError::Worker(why) if why.kind() == out_of_memory => {
            panic!("not run: needs locked memory: {why}")
        }
        error => panic!("{error}"),
    })
}

fn outcome(path: &Path, plan: LoadPlan) -> LoadOutcome {
    started(&ready(path, plan)).finish(|_| ())
}

#[test]
fn every_pattern_moves_what_it_says_both_ways_at_any_depth() {
    let (_folder, path) = file();
    for op in [MemoryDirection::Write, MemoryDirection::Read] {
        for pattern in Pattern::ALL {
            for (workers, depth) in [(1, 1), (2, 16)] {
                let moves = pattern.moves();
                if pattern == Pattern::Flush && (workers, depth) != (1, 1) {
                    continue;
                }
                let plan = LoadPlan {
                    pattern,
                    op,
                    workers,
                    depth,
                    commands: (pattern != Pattern::Noop).then_some(100),
                    time: (pattern == Pattern::Noop).then(|| Duration::from_millis(1)),
                    verify: moves,
                    ..LoadPlan::default()
                };
                let done = outcome(&path, plan);
                let commands = if pattern == Pattern::Noop { 0 } else { 100 };
                assert_eq!((done.end, done.totals.commands), (End::Complete, commands), "{pattern:?}");
                assert_eq!(done.totals.latency_ns.len(), commands);
                let blocks = match pattern {
                    Pattern::Random => 3100,
                    // 1000 blocks are 32 commands of 31 and one of 8: three passes of these, and one command more.
                    Pattern::Full => 3031,
                    Pattern::Single | Pattern::Packets => 100,
                    Pattern::Flush | Pattern::Noop => 0,
                };
                assert_eq!((done.totals.blocks, done.totals.moved), (blocks, blocks), "{pattern:?}");
                let wrong = done.verified.map(|verified| verified.unwrap().wrong);
                assert_eq!(wrong, moves.then_some(0), "{pattern:?} {op:?}");
            }
        }
    }
    assert_eq!(std::fs::metadata(&path).unwrap().len(), BYTES as u64, "it neither grows nor shrinks");
}

#[test]
fn a_file_holds_the_blocks_of_the_buffer_and_what_was_there_elsewhere() {
    let (_folder, path) = file();
    let plan = LoadPlan {
        pattern: Pattern::Single,
        op: MemoryDirection::Read,
        commands: Some(3),
        block_bytes: Some(512),
        seed: 9,
        ..LoadPlan::default()
    };
    assert_eq!(outcome(&path, plan).totals.moved, 3);
    let content = std::fs::read(&path).unwrap();
    let block = |number: u64| -> Vec<u8> {
        (number * 64..(number + 1) * 64).flat_map(|at| word(9, at).to_ne_bytes()).collect()
    };
    let changed: Vec<&[u8]> =
        content.chunks(512).filter(|block| block.iter().any(|byte| *byte != 0x5A)).collect();
    assert_eq!(changed.len(), 3);
    for number in 0..3 {
        assert!(changed.contains(&&block(number)[..]), "block {number}");
    }
}

#[test]
fn a_buffer_of_several_registered_pieces_is_one_buffer() {
    // The kernel registers 1 GiB at a time; commands cross the boundary.
    let (_folder, path) = file();
    let plan = LoadPlan {
        pattern: Pattern::Full,
        buffer_bytes: Some((1 << 30) + (64 << 20)),
        depth: 8,
        blocks: Some(((1 << 30) + (64 << 20)) / 4096),
        max_blocks: Some(1024),
        ..LoadPlan::default()
    };
    let done = outcome(&path, plan);
    assert_eq!((done.end, done.totals.moved), (End::Complete, ((1 << 30) + (64 << 20)) / 4096));
}

/// Two runs with the same plan have different content, so data of the first cannot pass for data of the second.
#[test]
fn a_run_that_is_looked_at_has_content_of_its_own() {
    let (_folder, path) = file();
    let held = |verify: bool| {
        let plan = LoadPlan { op: MemoryDirection::Read, commands: Some(33), verify, ..LoadPlan::default() };
        let done = outcome(&path, plan);
        assert_eq!(done.verified.map(|verified| verified.unwrap().wrong), verify.then_some(0));
        std::fs::read(&path).unwrap()
    };
    assert_eq!(held(false), held(false), "the same seed, the same bytes");
    assert_ne!(held(true), held(true));
}

#[test]
fn commands_go_both_ways_by_lot() {
    let (_folder, path) = file();
    let plan = |part| LoadPlan {
        pattern: Pattern::Single,
        mixed: Some(part),
        depth: 8,
        commands: Some(400),
        log: true,
        ..LoadPlan::default()
    };
    let run = |part| {
        let done = outcome(&path, plan(part));
        assert_eq!((done.end, done.totals.moved), (End::Complete, 400));
        let written: Vec<_> =
            done.log.iter().filter(|logged| logged.io.operation == IoOperation::FromMemory).collect();
        assert_eq!(done.totals.outward, written.len() as u64);
        // Reads are from the start; writes are at random positions.
        assert!(
            done.log
                .iter()
                .all(|logged| logged.io.operation == IoOperation::FromMemory || logged.io.place == 0)
        );
        let places: std::collections::BTreeSet<u64> = written.iter().map(|logged| logged.io.place).collect();
        assert!(places.len() > written.len() / 2);
        written.len()
    };
    // 100 of 400 are expected, with a deviation of 8.7; the result is the same for the same seed.
    let written = run(0.25);
    assert!((65..135).contains(&written), "{written}");
    assert_eq!(run(0.25), written);
    // A load that writes needs consent.
    let target = Target::inspect(&path, &KernelMounts::default()).unwrap();
    let refused = |plan: LoadPlan| {
        let ready =
            Ready::new(target.clone(), plan, &Consent::default(), &KernelMounts::default(), &|| false);
        ready.map(|_| ()).unwrap_err().to_string()
    };
    assert!(refused(plan(0.01)).contains("add --overwrite"));
    assert!(
        refused(LoadPlan { verify: true, ..plan(0.5) }).starts_with("--verify is given with a mixed `rw`; ")
    );
}

#[test]
fn where_nothing_was_moved_nothing_is_wrong() {
    let (_folder, path) = file();
    let plan = LoadPlan {
        op: MemoryDirection::Read,
        time: Some(Duration::ZERO),
        verify: true,
        ..LoadPlan::default()
    };
    let done = outcome(&path, plan);
    assert_eq!((done.totals.commands, done.verified), (0, Some(Ok(Verified::default()))));
}

#[test]
fn a_file_takes_blocks_larger_than_its_usual_commands() {
    let (_folder, path) = file();
    let block = 256 << 10;
    for op in [MemoryDirection::Write, MemoryDirection::Read] {
        let plan = LoadPlan {
            pattern: Pattern::Single,
            op,
            block_bytes: Some(block),
            buffer_bytes: Some(4 * u64::from(block)),
            commands: Some(10),
            verify: true,
            log: true,
            ..LoadPlan::default()
        };
        let done = outcome(&path, plan);
        assert_eq!((done.totals.commands, done.verified.unwrap().unwrap().wrong), (10, 0));
        assert!(done.log.iter().all(|logged| logged.io.bytes == block));
    }
    // With `max_blocks`, a command may have more than one of them.
    let plan =
        LoadPlan { block_bytes: Some(block), max_blocks: Some(3), commands: Some(10), ..LoadPlan::default() };
    assert_eq!(outcome(&path, plan).totals.blocks, 20);
}

#[test]
fn a_file_need_be_no_larger_than_the_longest_command() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("small");
    let system = KernelMounts::default();
    // `random` and `full` move one block less than the maximum of 32; nvme-memload moves one block more than it counts.
    for (pattern, thesis, blocks) in [
        (Pattern::Single, false, 1),
        (Pattern::Packets, false, 1),
        (Pattern::Single, true, 2),
        (Pattern::Random, false, 31),
        (Pattern::Full, false, 31),
        (Pattern::Random, true, 32),
    ] {
        let plan = LoadPlan { pattern, thesis, commands: Some(3), ..LoadPlan::default() };
        let made = |blocks: u64| {
            let target = Target::inspect(&path, &system).unwrap();
            let consent = Consent { create: Some(4096 * blocks), ..Consent::default() };
            Ready::new(target, plan.clone(), &consent, &system, &|| false).map(Arc::new)
        };
        if blocks > 1 {
            let reported = made(blocks - 1).unwrap_err().to_string();
            assert!(
                reported.contains(&format!(
                    "must have at least {} B, the most that a command moves",
                    4096 * blocks
                )),
                "{reported}"
            );
        }
        let done = started(&made(blocks).unwrap()).finish(|_| ());
        assert_eq!((done.end, done.totals.commands), (End::Complete, 3), "{pattern:?} {thesis}");
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn the_bytes_of_a_failed_command_are_reported_and_it_has_no_latency() {
    let (_folder, path) = file();
    let ready = ready(&path, LoadPlan::default());
    std::fs::File::options().write(true).open(&path).unwrap().set_len(65_536).unwrap();
    let outcome = started(&ready).finish(|_| ());
    let End::Failed(failure) = outcome.end else { panic!("{:?}", outcome.end) };
    assert_eq!(
        failure.to_string(),
        "a read of 126976 B at byte 0 failed: only 65536 B of it were transferred"
    );
    assert_eq!((outcome.totals.commands, outcome.totals.errors), (0, 1));
    assert!(outcome.totals.latency_ns.is_empty());
}

#[test]
fn a_buffer_is_as_large_as_its_longest_command_at_least() {
    let (_folder, path) = file();
    let plan = |pattern| {
        let (block_bytes, max_blocks) = (Some(512), Some(2000));
        LoadPlan { block_bytes, max_blocks, commands: Some(2), pattern, ..LoadPlan::default() }
    };
    let bytes = [Pattern::Random, Pattern::Full].map(|pattern| ready(&path, plan(pattern)).buffer().bytes());
    assert_eq!(bytes, [2000 * 512, 1000 * 512]);
}

#[test]
fn a_stop_order_is_answered_with_the_totals_until_then() {
    let (_folder, path) = file();
    for limit in [None, Some(5.0)] {
        let plan =
            LoadPlan { workers: 2, depth: 4, limit_commands: limit, verify: true, ..LoadPlan::default() };
        let running = started(&ready(&path, plan));
        while running.progress().commands == 0 {
            std::thread::yield_now();
        }
        running.stopper().stop();
        let done = running.finish(|_| ());
        assert_eq!(done.end, End::Stopped);
        assert!(done.totals.commands > 0 && done.totals.blocks == 31 * done.totals.commands);
        // A stop request also prevents the verification.
        let verified = done.verified.unwrap().unwrap();
        assert_eq!((verified.blocks, verified.broken_off), (0, true));
    }
}

#[test]
fn a_stop_order_also_ends_its_own_subscription() {
    let (_folder, path) = file();
    for op in [MemoryDirection::Write, MemoryDirection::Read] {
        let plan = LoadPlan { op, commands: Some(100), verify: true, ..LoadPlan::default() };
        let running = started(&ready(&path, plan));
        let stopper = running.stopper();
        let done = running.finish_and(|_| (), || stopper.stop());
        let verified = done.verified.unwrap().unwrap();
        assert_eq!((verified.blocks, verified.broken_off), (0, true), "{op:?}");
    }
}

/// Times at which the commands were sent, from the log.
fn sent_ns(path: &Path, plan: LoadPlan) -> Vec<u64> {
    let done = outcome(path, LoadPlan { log: true, ..plan });
    assert_eq!(done.log.len() as u64, done.totals.commands);
    assert!(done.log.iter().all(|logged| logged.io.bytes == 31 * 4096 && logged.took_ns > 0));
    done.log.iter().map(|logged| logged.sent_ns).collect()
}

#[test]
fn a_limit_deals_out_slot_by_slot_whatever_the_depth() {
    // 200 a second in 20 slots are 10 in each 50 ms: command k is sent in slot k / 10 or later. On a busy machine it
    // may be late, never early.
    let (_folder, path) = file();
    let limited = |plan: LoadPlan| LoadPlan { limit_commands: Some(200.0), slots: 20, ..plan };
    for (workers, depth) in [(1, 1), (2, 64)] {
        let sent =
            sent_ns(&path, limited(LoadPlan { workers, depth, commands: Some(31), ..LoadPlan::default() }));
        assert_eq!(sent.len(), 31);
        let early: Vec<usize> = (0..31).filter(|k| sent[*k] < (*k as u64 / 10) * 50_000_000).collect();
        assert!(early.is_empty(), "{early:?} of {sent:?}");
    }
    // 95 ms contain two slots.
    let plan = limited(LoadPlan { depth: 64, time: Some(Duration::from_millis(95)), ..LoadPlan::default() });
    let done = outcome(&path, plan);
    assert!(done.totals.commands <= 20 && done.end == End::Complete, "{}", done.totals.commands);
    assert!(done.totals.runtime >= Duration::from_millis(95) && done.log.is_empty());
    // Bytes: 31 blocks of 4096 B a command; 62 blocks a slot are 2 commands.
    let bytes = LoadPlan {
        limit_bytes: Some(62.0 * 4096.0 * 20.0),
        slots: 20,
        commands: Some(7),
        ..LoadPlan::default()
    };
    let sent = sent_ns(&path, bytes);
    assert!((0..7).all(|k| sent[k] >= (k as u64 / 2) * 50_000_000), "{sent:?}");
    // nvme-memload admits 201 of 200 in the first slot, and one more than its part in each later slot.
    let thesis = limited(LoadPlan { thesis: true, depth: 8, commands: Some(213), ..LoadPlan::default() });
    let done = outcome(&path, LoadPlan { log: true, ..thesis });
    let late: Vec<u64> = done.log[201..].iter().map(|logged| logged.sent_ns / 50_000_000).collect();
    assert!(late[..11].iter().all(|slot| *slot >= 1) && late[11] >= 2, "{late:?}");
}

#[test]
fn what_the_cpu_reads_changes_nothing_else() {
    let (_folder, path) = file();
    for touch in [waykeeper_memload::Touch::Once, waykeeper_memload::Touch::Always] {
        let plan = LoadPlan {
            touch,
            commands: Some(50),
            depth: 4,
            cpus: vec![0],
            verify: true,
            ..LoadPlan::default()
        };
        let done = outcome(&path, plan);
        assert_eq!((done.totals.commands, done.verified.unwrap().unwrap().wrong), (50, 0));
    }
    let plan = LoadPlan { cpus: vec![1000], ..LoadPlan::default() };
    let reported = Running::start(&ready(&path, plan)).map(|_| ()).unwrap_err().to_string();
    assert!(reported.contains("cannot run on CPU 1000"), "{reported}");
}

/// The line of `/proc/self/task/*/status` with this key.
fn status(task: &str, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{task}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    Some(line.trim().to_owned())
}

#[test]
fn the_kernels_threads_stay_on_the_cpus_of_the_plan() {
    let (_folder, path) = file();
    // One CPU of several, so that helpers on other CPUs are noticed. From Linux 6.2 on helpers inherit the thread's
    // CPUs; nvme/manners.py tests 6.1.
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let cpu = (0..1024).rev().find(|cpu| allowed.is_set(*cpu)).unwrap();
    let plan = LoadPlan { pattern: Pattern::Flush, cpus: vec![cpu as u32], ..LoadPlan::default() };
    let ready = ready(&path, plan);
    assert!(ready.notes().iter().all(|note| !note.contains("kernel threads")), "{:?}", ready.notes());
    let running = started(&ready);
    // A helper thread of the kernel runs every fdatasync of a ring, and then waits some seconds for the next.
    while running.progress().commands == 0 {
        std::thread::yield_now();
    }
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let tasks: Vec<String> = tasks.map(|task| task.file_name().into_string().unwrap()).collect();
    let cpus = |task: &str| status(task, "Cpus_allowed_list");
    // A helper is named after its thread; other tests have helpers, too.
    let ours = |task: &String| {
        let of = status(task, "Name")?.strip_prefix("iou-wrk-")?.to_owned();
        (cpus(&of)? == cpu.to_string()).then(|| cpus(task))?
    };
    let helpers: Vec<String> = tasks.iter().filter_map(ours).collect();
    running.stopper().stop();
    assert_eq!(running.finish(|_| ()).end, End::Stopped);
    assert!(!helpers.is_empty(), "{tasks:?}");
    assert!(helpers.iter().all(|on| *on == cpu.to_string()), "{helpers:?}");
}
