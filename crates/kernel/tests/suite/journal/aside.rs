//! A damaged journal is set aside, and the restore that does this is killed, or loses power, at any system call. The next
//! restore still carries out what is intact and says that the journal was damaged; the damaged file is kept once.
//!
//! The disk is that of `power`. Must not know the journal's format beyond its lines.

use crate::journal::power::{Disk, Files, JOURNAL, Moment, states};
use crate::journal::*;

const CPUS: u16 = 5;

/// The value of a CPU's register before the run.
fn found(cpu: u16) -> u64 {
    0x600 + u64::from(cpu)
}

/// The files of a killed run that had set a register of each CPU.
fn killed() -> Files {
    let disk = Disk::with(Files::default(), BTreeMap::new());
    let mut journal = Journal::open(Path::new(JOURNAL), &disk.root()).expect("opened");
    for cpu in 0..CPUS {
        journal.record(&[msr(cpu, found(cpu))]).expect("recorded");
    }
    drop(journal);
    disk.state().seen.clone()
}

fn content<'f>(files: &'f mut Files, path: &str) -> &'f mut Vec<u8> {
    let inode = files.paths[Path::new(path)];
    &mut files.inodes[inode]
}

/// The lines of the killed run's journal: two of the host with an empty one between, then one for each register.
fn with_lines(change: impl Fn(&mut Vec<Vec<u8>>)) -> Files {
    let mut files = killed();
    let journal = content(&mut files, JOURNAL);
    let mut lines: Vec<Vec<u8>> =
        journal.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    assert_eq!(lines.len(), 3 + usize::from(CPUS));
    change(&mut lines);
    *journal = lines.concat();
    files
}

/// Damaged journals, each with the CPUs whose entries are intact.
fn damaged() -> Vec<(&'static str, Files, Vec<u16>)> {
    let mut without_seal = killed();
    without_seal.paths.remove(Path::new(&format!("{JOURNAL}.seal")));
    let mut gone = killed();
    gone.paths.remove(Path::new(JOURNAL));
    vec![
        ("a changed line", with_lines(|lines| lines[4][3] ^= 1), vec![0, 2, 3, 4]),
        ("a journal that was cut", with_lines(|lines| lines.truncate(5)), vec![0, 1]),
        ("only the host", with_lines(|lines| lines.truncate(3)), vec![]),
        ("no host", with_lines(|lines| drop(lines.drain(..3))), vec![]),
        ("no seal", without_seal, (0..CPUS).collect()),
        ("no journal", gone, vec![]),
    ]
}

/// What programs see after a kill: the kernel has all changes, also those that no sync has made durable.
fn after_kill((durable, pending, _): &Moment) -> Files {
    let mut files = durable.clone();
    pending.iter().for_each(|change| files.apply(change));
    files
}

/// Restores, and returns what is wrong then.
fn judge(
    files: Files,
    registers: &BTreeMap<u16, u64>,
    intact: &[u16],
    bytes: Option<&Vec<u8>>,
) -> Vec<String> {
    let disk = Disk::with(files, registers.clone());
    let (report, now) = disk.restore();
    let mut wrong = Vec::new();
    if report.is_none_or(|report| report.is_as_found()) {
        wrong.push("the damage is not reported".to_owned());
    }
    let lost = intact.iter().filter(|cpu| now[cpu] != found(**cpu));
    wrong.extend(lost.map(|cpu| format!("the register of CPU {cpu} is not restored")));
    let seen = disk.state().seen.clone();
    let names = seen.paths.iter().filter(|(path, _)| path.to_string_lossy().contains(".damaged"));
    let copies: Vec<&Vec<u8>> = names.map(|(_, inode)| &seen.inodes[*inode]).collect();
    if copies != bytes.into_iter().collect::<Vec<_>>() {
        wrong.push(format!("the damaged file is kept {} times", copies.len()));
    }
    let left: Vec<_> = seen.paths.keys().filter(|path| *path == Path::new(JOURNAL)).collect();
    if !left.is_empty() {
        wrong.push("the journal is still there".to_owned());
    }
    wrong
}

#[test]
fn a_restore_of_a_damaged_journal_that_is_interrupted_at_any_call_is_done_by_the_next_one() {
    let mut failures = Vec::new();
    let mut count = 0;
    for (what, mut files, intact) in damaged() {
        let registers: BTreeMap<u16, u64> = (0..CPUS).map(|cpu| (cpu, 0x7ff)).collect();
        let is_there = files.paths.contains_key(Path::new(JOURNAL));
        let bytes = is_there.then(|| content(&mut files, JOURNAL).clone());
        let disk = Disk::with(files, registers);
        let (report, _) = disk.restore();
        assert!(report.is_some_and(|report| !report.is_as_found()), "{what}");
        let moments = std::mem::take(&mut disk.state().moments);
        assert!(moments.len() >= 10, "{what}: {} moments", moments.len());
        for (call, moment) in moments.iter().enumerate() {
            let all = std::iter::once(after_kill(moment)).chain(states(moment));
            for (state, files) in all.enumerate() {
                count += 1;
                let wrong = judge(files, &moment.2, &intact, bytes.as_ref());
                let place = if state == 0 { "a kill".to_owned() } else { format!("power failure {state}") };
                failures.extend(
                    wrong.into_iter().map(|text| format!("{what}, {place} before call {call}: {text}")),
                );
            }
        }
    }
    assert!(count > 400, "{count} states");
    let few: Vec<&String> = failures.iter().take(30).collect();
    assert!(failures.is_empty(), "{} failures of {count} states: {few:#?}", failures.len());
}
