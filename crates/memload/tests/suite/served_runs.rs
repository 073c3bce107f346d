//! Runs with NVMe commands on a served device: it received exactly what the totals report.

use crate::served::{LBA, SERIAL, Seen, Served};
use std::sync::Arc;
use waykeeper_load::{MemoryDirection, Pattern};
use waykeeper_memload::{
    CommandError, Consent, End, EngineKind, KernelMounts, LoadOutcome, LoadPlan, Ready, Running, Target,
    TargetKind, Verified, nvme,
};

fn ready(served: &Served, plan: LoadPlan) -> Arc<Ready> {
    let target = Target::inspect(&served.path, &KernelMounts::default()).unwrap();
    let consent = Consent { destroy_data_on: Some(SERIAL.to_owned()), ..Consent::default() };
    Arc::new(Ready::new(target, plan, &consent, &KernelMounts::default(), &|| false).unwrap())
}

fn outcome(served: &Served, plan: LoadPlan) -> (LoadOutcome, Vec<Seen>) {
    let ready = ready(served, plan);
    assert_eq!(ready.engine(), EngineKind::NvmeIoctl);
    let outcome = Running::start(&ready).unwrap().finish(|_| ());
    let seen = std::mem::take(&mut served.device.lock().unwrap().seen);
    (outcome, seen)
}

fn blocks(seen: &[Seen]) -> u64 {
    seen.iter().map(|seen| seen.blocks).sum()
}

#[test]
fn it_is_recognised_and_the_message_names_a_workaround() {
    let served = Served::new(4096);
    let target = Target::inspect(&served.path, &KernelMounts::default()).unwrap();
    assert_eq!((target.kind, target.bytes, target.lba_bytes), (TargetKind::NvmeFile, 2 << 20, 512));
    assert_eq!((target.serial.as_deref(), target.max_bytes), (Some(SERIAL), 128 << 10));
    let ready = ready(&served, LoadPlan { depth: 3, workers: 2, ..LoadPlan::default() });
    let notes = ready.notes().join("\n");
    assert!(
        notes.contains("nvme-uring cannot be used: the device takes no commands through io_uring"),
        "{notes}"
    );
    assert!(notes.contains("engine: nvme-ioctl"), "{notes}");
    assert!(notes.contains("2 workers of depth 3 are 6 threads"), "{notes}");
    let ready = self::ready(&served, LoadPlan { depth: 5, workers: 1024, ..LoadPlan::default() });
    let reported = Running::start(&ready).map(|_| ()).unwrap_err().to_string();
    assert!(
        reported.starts_with("--depth is 5; with nvme-ioctl each of the 1024 workers needs a thread")
            && reported.contains("at most 4096 threads"),
        "{reported}"
    );
    assert!(served.device.lock().unwrap().seen.is_empty(), "looking sends no command");
}

#[test]
fn every_pattern_moves_exactly_the_blocks_it_says_both_ways() {
    let served = Served::new(4096);
    for op in [MemoryDirection::Write, MemoryDirection::Read] {
        for pattern in Pattern::ALL {
            let moves = pattern.moves();
            let plan = LoadPlan {
                pattern,
                op,
                workers: 3,
                commands: (pattern != Pattern::Noop).then_some(100),
                time: (pattern == Pattern::Noop).then(|| std::time::Duration::from_millis(1)),
                stride: if pattern == Pattern::Packets { 4 } else { 1 },
                verify: moves,
                ..LoadPlan::default()
            };
            let (outcome, seen) = outcome(&served, plan);
            assert_eq!(outcome.end, End::Complete, "{pattern:?}");
            // The verification reads the device after the run, so its commands are cut off.
            let ran = &seen[..outcome.totals.commands as usize];
            let wanted = if pattern == Pattern::Noop { 0 } else { 100 };
            assert_eq!((outcome.totals.commands, outcome.totals.errors), (wanted, 0), "{pattern:?}");
            let opcode = match (moves, op) {
                (false, _) => nvme::FLUSH,
                (true, MemoryDirection::Write) => nvme::READ,
                (true, MemoryDirection::Read) => nvme::WRITE,
            };
            assert!(ran.iter().all(|seen| seen.opcode == opcode), "{pattern:?}");
            if moves {
                // Blocks of 4096 B are 8 LBAs each.
                assert_eq!(blocks(ran), 8 * outcome.totals.moved, "{pattern:?}");
                assert_eq!(outcome.totals.blocks, outcome.totals.moved);
                let verified = outcome.verified.unwrap().unwrap();
                assert!(verified.blocks > 0 && verified.wrong == 0, "{pattern:?} {op:?}: {verified:?}");
            }
            let starts: std::collections::BTreeSet<u64> = ran.iter().map(|seen| seen.lba).collect();
            match (moves, op) {
                (true, MemoryDirection::Write) => assert_eq!(starts.into_iter().collect::<Vec<_>>(), [0]),
                (true, MemoryDirection::Read) => assert!(starts.len() > 50, "writes go anywhere"),
                _ => {}
            }
        }
    }
}

#[test]
fn the_thesis_moves_one_block_more_than_it_counts() {
    let served = Served::new(4096);
    let plan = LoadPlan { pattern: Pattern::Single, thesis: true, blocks: Some(40), ..LoadPlan::default() };
    let (outcome, seen) = outcome(&served, plan);
    assert_eq!((outcome.totals.blocks, outcome.totals.moved), (40, 80));
    assert_eq!(blocks(&seen), 8 * 80);
    // Successive offsets of one block: each is moved twice.
    assert_eq!(seen[1].addr - seen[0].addr, 4096);
}

#[test]
fn the_same_seed_sends_the_same_commands() {
    let served = Served::new(4096);
    let run = |seed| {
        let plan = LoadPlan { op: MemoryDirection::Read, commands: Some(50), seed, ..LoadPlan::default() };
        let (_, seen) = outcome(&served, plan);
        let first = seen[0].addr;
        seen.iter().map(|seen| (seen.lba, seen.addr.wrapping_sub(first))).collect::<Vec<_>>()
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn blocks_end_a_run_exactly() {
    let served = Served::new(4096);
    let plan = LoadPlan { workers: 4, blocks: Some(1000), block_bytes: Some(512), ..LoadPlan::default() };
    let (outcome, seen) = outcome(&served, plan);
    assert_eq!((outcome.totals.blocks, blocks(&seen)), (1000, 1000));
}

#[test]
fn what_a_device_says_ends_the_run_and_counts() {
    let served = Served::new(4096);
    for (status, fault, words) in [
        (0x4281, CommandError::Nvme(nvme::NvmeStatus(0x4281)), "unrecovered read error of the medium"),
        (-libc::ENODEV, CommandError::Errno(libc::ENODEV), "No such device"),
        (-libc::EACCES, CommandError::Errno(libc::EACCES), "Permission denied"),
    ] {
        served.device.lock().unwrap().fails = Some((7, status));
        let (outcome, seen) = outcome(&served, LoadPlan::default());
        assert_eq!((outcome.totals.commands, outcome.totals.errors, seen.len()), (7, 1, 7));
        let End::Failed(failure) = outcome.end else { panic!("{:?}", outcome.end) };
        assert_eq!(failure.fault(), fault);
        let reported = failure.to_string();
        assert!(
            reported.starts_with("a read of 126976 B at byte 0 failed: ") && reported.contains(words),
            "{reported}"
        );
    }
}

#[test]
fn a_wrong_block_is_found() {
    let served = Served::new(4096);
    let ready = ready(
        &served,
        LoadPlan { op: MemoryDirection::Read, commands: Some(20), verify: true, ..LoadPlan::default() },
    );
    let running = Running::start(&ready).unwrap();
    // After all commands, but before the verification, stored data is changed.
    while !running.wait(std::time::Duration::from_secs(1)) {}
    let mut device = served.device.lock().unwrap();
    let at = device.seen[3].lba as usize * LBA;
    device.data[at] ^= 1;
    drop(device);
    // `over` is called before the verification, whose commands must not be counted.
    let seen = || served.device.lock().unwrap().seen.len();
    let mut counted = 0;
    let outcome = running.finish_and(|_| (), || counted = seen());
    let verified = outcome.verified.unwrap().unwrap();
    assert_eq!((verified.wrong, verified.broken_off), (1, false));
    assert_eq!((counted as u64, seen() > counted), (outcome.totals.commands, true));
    // Contiguous blocks are read together, at most 32; 31 contiguous blocks were written, so no read is of a single
    // block.
    let device = served.device.lock().unwrap();
    let looked = &device.seen[counted..];
    assert!(looked.iter().all(|seen| seen.opcode == nvme::READ && (1..=32 * 8).contains(&seen.blocks)));
    assert_eq!(blocks(looked), 8 * verified.blocks);
    assert!((looked.len() as u64) < verified.blocks / 8, "{} for {}", looked.len(), verified.blocks);
}

/// Changes the device or the buffer after a run of reads and before its verification.
fn looked_at_after(commands: u64, change: impl FnOnce(&mut Vec<u8>, *mut u8)) -> Verified {
    let served = Served::new(4096);
    let plan =
        LoadPlan { pattern: Pattern::Single, commands: Some(commands), verify: true, ..LoadPlan::default() };
    let ready = ready(&served, plan);
    let running = Running::start(&ready).unwrap();
    while !running.wait(std::time::Duration::from_secs(1)) {}
    change(&mut served.device.lock().unwrap().data, ready.buffer().base());
    running.finish(|_| ()).verified.unwrap().unwrap()
}

#[test]
fn a_wrong_block_in_memory_is_found() {
    let flip = |block: usize| {
        move |_: &mut Vec<u8>, base: *mut u8| {
            // SAFETY: the buffer has 1000 blocks, all commands have completed, and no other thread uses it.
            unsafe { *base.add(block * 4096 + 4095) ^= 1 }
        }
    };
    let verified = |wrong| Verified { blocks: 1000, wrong, broken_off: false };
    assert_eq!(looked_at_after(20, |_, _| ()), verified(0));
    // The content differs from the device: all blocks, or one block.
    assert_eq!(looked_at_after(20, |data, _| data[LBA] ^= 1), verified(20));
    assert_eq!(looked_at_after(20, flip(19)), verified(1));
    // A block without a command.
    assert_eq!(looked_at_after(20, flip(20)), verified(1));
    // A part of the device that was not read.
    assert_eq!(looked_at_after(20, |data, _| data[8 * LBA] ^= 1), verified(0));
}
