//! The mark of a hand-over: in the first line, kept until the next daemon or a restore ends it, and unknown to earlier
//! versions.

use super::{Host, LATER, msr, of_every_kind};
use std::fs;
use std::time::Duration;
use waykeeper_kernel::journal::{HandOver, HandedTenant, Journal, JournalError, Original, summarize};
use waykeeper_kernel::resctrl::Group;
use waykeeper_units::WorkloadId;

/// The first lines of a journal: the host twice, with an empty line between.
const HEAD_LINES: usize = 3;

/// The mark of a daemon that ended a second ago and waits for so many seconds, on a host whose clock is the machine's.
fn mark(host: &Host, wait_s: u64) -> HandOver {
    let now = host.root.system().now();
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap();
    let tenants = vec![HandedTenant {
        name: "redis \"a\"".to_owned(),
        id: Some(WorkloadId(7)),
        group: Group::control("wk-a").unwrap(),
        leads: true,
    }];
    let at_ns = nanoseconds(now - Duration::from_secs(1));
    let until_ns = at_ns + (1 + wait_s) * 1_000_000_000;
    HandOver {
        at_ns,
        until_ns,
        waited: false,
        l3: 0,
        tenants,
        memory: Some(serde_json::json!({ "learnt": 1 })),
    }
}

/// A host whose daemon handed everything over.
fn handed_over(wait_s: u64) -> (Host, HandOver) {
    let host = Host::new();
    let mut journal = host.open().unwrap();
    journal.record(&of_every_kind()).unwrap();
    let mark = mark(&host, wait_s);
    journal.mark_hand_over(mark.clone()).unwrap();
    (host, mark)
}

#[test]
fn the_mark_is_there_until_the_next_daemon_ends_it() {
    let (host, mark) = handed_over(60);
    let mut journal = host.open().unwrap();
    assert_eq!(journal.valid_hand_over(), Some(&mark));
    assert_eq!(journal.originals(), of_every_kind());
    // What the next daemon records and forgets meanwhile leaves it, also when the journal is written anew.
    for value in 0..2000 {
        journal.replace(&msr(18, value)).unwrap();
    }
    assert!(fs::metadata(&host.path).unwrap().len() < 40_000, "it was compacted");
    drop(journal);
    let mut journal = host.open().unwrap();
    assert_eq!(journal.hand_over(), Some(&mark));
    journal.end_hand_over().unwrap();
    drop(journal);
    let journal = host.open().unwrap();
    assert_eq!(journal.hand_over(), None);
    let all: Vec<Original> = of_every_kind().into_iter().chain([msr(18, 1999)]).collect();
    assert_eq!((journal.originals(), journal.damage()), (&all[..], &[][..]));
}

#[test]
fn a_mark_holds_for_its_time_and_its_boot_and_says_nothing_about_a_damaged_journal() {
    let valid = |host: &Host| host.open().unwrap().valid_hand_over().is_some();
    let (host, late) = handed_over(0);
    assert!(!valid(&host) && host.open().unwrap().hand_over() == Some(&late));
    // A clock that has not reached the end of the daemon is that of another boot.
    assert_eq!(late.time_left(Duration::from_nanos(late.at_ns - 1)), None);
    let (host, _) = handed_over(60);
    assert!(valid(&host));
    host.boot(LATER);
    assert!(!valid(&host));
    let (host, _) = handed_over(60);
    let whole = host.bytes();
    fs::write(&host.path, &whole[..whole.len() - 20]).unwrap();
    assert!(!valid(&host));
    assert!(matches!(host.open().unwrap().end_hand_over(), Ok(()) | Err(JournalError::Damaged { .. })));
}

#[test]
fn a_look_sees_the_mark_only_when_no_manager_is_there() {
    let (host, mark) = handed_over(60);
    let look = || summarize(&host.path, &host.root).unwrap().unwrap();
    assert_eq!(look().hand_over, Some(mark));
    let mut journal = host.open().unwrap();
    assert_eq!(look().hand_over, None);
    journal.note_waited().unwrap();
    drop(journal);
    assert!(look().hand_over.is_some_and(|mark| mark.waited));
    host.boot(LATER);
    assert_eq!(look().hand_over, None);
}

/// An earlier version has the same first line without the mark, and ignores keys that it does not know: it restores.
#[test]
fn a_version_that_does_not_know_the_mark_reads_the_journal_of_a_killed_daemon() {
    let (host, mark) = handed_over(60);
    let text = String::from_utf8(host.bytes()).unwrap();
    let mut lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
    let key = format!(",\"hand_over\":{}", serde_json::to_string(&mark).unwrap());
    for line in lines.iter_mut().take(HEAD_LINES).filter(|line| !line.is_empty()) {
        let (_, rest) = line.split_once(' ').unwrap();
        assert!(rest.contains(&key), "{rest}");
        // The key has a name that this version does not know.
        let rest = rest.replace("hand_over", "of_a_later_version");
        *line = format!("{:08x} {rest}", crc32fast::hash(rest.as_bytes()));
    }
    fs::write(&host.path, lines.join("\n") + "\n").unwrap();
    let journal: Journal = host.open().unwrap();
    assert_eq!((journal.hand_over(), journal.damage()), (None, &[][..]));
    assert_eq!(journal.originals(), of_every_kind());
}
