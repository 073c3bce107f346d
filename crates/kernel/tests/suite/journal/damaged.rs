//! Damaged journals: cut at every length, every byte changed, ranges of zeros, lines in another order, twice or gone, the
//! same for the seal. Each restore ends as found or says what is not, and carries out what is intact.
//!
//! The host is a table of registers and a folder of groups. Must not know the journal's format beyond its lines.

use crate::journal::restoring::TableCell;
use crate::journal::*;
use waykeeper_kernel::resctrl::GROUP_PREFIX;
use waykeeper_kernel::restore::{Leftovers, Report};

/// Registers that the run set, by CPU; each has a value of its own.
const CPUS: u16 = 6;
/// The CPU whose register was set and restored again.
const FORGOTTEN: u16 = 2;
const GROUPS: [&str; 3] = ["waykeeper-a", "waykeeper-b", "waykeeper-c"];
/// The register that both have.
const WAYS: u32 = 0xc8b;

/// A host as a killed run left it, and that run's files.
struct Killed {
    host: Host,
    journal: Vec<u8>,
    seal: Vec<u8>,
}

/// What a restore came to.
struct Ended {
    report: Report,
    /// Registers that are not as found, by CPU, and groups that are left.
    changed: Vec<u16>,
    groups: usize,
}

impl Killed {
    fn new() -> Killed {
        let host = Host::new();
        fs::create_dir_all(host.root.path("/sys/fs/resctrl/info")).unwrap();
        let mut journal = host.open().unwrap();
        let group = |name: &str| Group::control(name).expect("a name");
        for name in GROUPS {
            journal.record(&[Original::Planned { group: group(name) }]).unwrap();
            journal.replace(&Original::NoGroup { group: group(name) }).unwrap();
        }
        journal.record(&(0..CPUS).map(|cpu| msr(cpu, found(cpu))).collect::<Vec<_>>()).unwrap();
        journal.forget(&msr(FORGOTTEN, found(FORGOTTEN))).unwrap();
        drop(journal);
        let (journal, seal) = (host.bytes(), fs::read(host.seal()).unwrap());
        Killed { host, journal, seal }
    }

    /// Restores with these files, on the host as the run left it.
    fn restore(&self, journal: Option<&[u8]>, seal: Option<&[u8]>) -> Ended {
        for (path, bytes) in [(self.host.path.clone(), journal), (self.host.seal(), seal)] {
            match bytes {
                Some(bytes) => fs::write(path, bytes).unwrap(),
                None => fs::remove_file(path).unwrap_or_default(),
            }
        }
        for name in ["unproved", "damaged"] {
            let _ = fs::remove_file(self.host.path.with_extension(name));
        }
        for name in GROUPS {
            fs::create_dir_all(self.host.root.path("/sys/fs/resctrl").join(name)).unwrap();
        }
        let table = TableCell::default();
        for cpu in 0..CPUS {
            let value = if cpu == FORGOTTEN { found(cpu) } else { 0x7ff };
            table.borrow_mut().msrs.insert((cpu, WAYS), value);
        }
        let report = self.run(&table);
        let changed = (0..CPUS).filter(|cpu| table.borrow().msrs[&(*cpu, WAYS)] != found(*cpu)).collect();
        let is_there = |name: &&&str| self.host.root.path("/sys/fs/resctrl").join(name).exists();
        Ended { report, changed, groups: GROUPS.iter().filter(is_there).count() }
    }

    fn run(&self, table: &TableCell) -> Report {
        let mut journal = self.host.open().unwrap();
        let resctrl = mounted(&self.host.root, GROUP_PREFIX);
        let mut restorer = Restorer { root: &self.host.root, resctrl: resctrl.as_ref(), registers: table };
        let mut report = restorer.restore(&mut journal).unwrap();
        let known = journal.originals().to_vec();
        let mut leftovers = Leftovers::default;
        restorer.adopt_orphans(&mut journal, &known, &mut leftovers, &mut report).unwrap();
        report
    }

    /// What holds after any damage. Returns whether the restore says that all is as found.
    fn check(&self, what: &str, journal: Option<&[u8]>, seal: Option<&[u8]>) -> bool {
        let ended = self.restore(journal, seal);
        let report = &ended.report;
        assert_eq!(ended.groups, 0, "{what}: groups are left: {report:?}");
        assert!(report.is_complete(), "{what}: {report:?}");
        if report.is_as_found() {
            assert!(ended.changed.is_empty(), "{what}: {:?}: {report:?}", ended.changed);
            assert!(!self.host.path.exists() && !self.host.seal().exists(), "{what}");
            assert!(!self.host.path.with_extension("damaged").exists(), "{what}");
            return true;
        }
        // A second restore is no proof.
        let again = self.run(&TableCell::default());
        assert_eq!(again.unproved, report.unproved, "{what}");
        assert!(again.knobs.is_empty() && !again.is_as_found(), "{what}: {again:?}");
        // What is intact is carried out: a line that is there as it was written.
        let bytes = journal.unwrap_or_default();
        let is_there = |line: &[u8]| bytes.windows(line.len()).any(|part| part == line);
        let lines: Vec<&[u8]> = self.journal.split_inclusive(|byte| *byte == b'\n').collect();
        let has_host = is_there(lines[0]) && bytes.len() >= lines[0].len();
        for cpu in ended.changed {
            let marker = format!("\"cpu\":{cpu},");
            let line = lines.iter().find(|line| String::from_utf8_lossy(line).contains(&marker)).unwrap();
            let separate = [b"\n", *line].concat();
            assert!(!has_host || !is_there(&separate), "{what}: CPU {cpu} is not restored: {report:?}");
        }
        false
    }
}

/// The value of a CPU's register before the run.
fn found(cpu: u16) -> u64 {
    0x600 + u64::from(cpu)
}

#[test]
fn a_journal_that_was_cut_anywhere_is_restored_or_says_what_is_not() {
    let killed = Killed::new();
    let (journal, seal) = (&killed.journal, &killed.seal);
    assert!(killed.check("as it was", Some(journal), Some(seal)));
    let last = journal.len() - 1;
    for length in 0..journal.len() {
        let as_found = killed.check(&format!("cut to {length}"), Some(&journal[..length]), Some(seal));
        assert_eq!(as_found, length == last, "cut to {length}: only the last newline can be missed");
    }
    assert!(!killed.check("removed", None, Some(seal)));
    assert!(!killed.check("removed with its seal", None, None), "the groups show that there was a run");
    assert!(!killed.check("without its seal", Some(journal), None));
}

#[test]
fn a_journal_with_any_byte_changed_is_restored_or_says_what_is_not() {
    let killed = Killed::new();
    let (journal, seal) = (&killed.journal, &killed.seal);
    let host = journal.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for at in 0..journal.len() {
        let bit = at % 8;
        let mut bytes = journal.clone();
        bytes[at] ^= 1 << bit;
        let as_found = killed.check(&format!("bit {bit} of byte {at}"), Some(&bytes), Some(seal));
        // The host is there twice, and the newline at the end says nothing.
        let is_there_twice = at < 2 * host || at == journal.len() - 1;
        assert!(!as_found || is_there_twice, "bit {bit} of byte {at}");
        assert!(as_found || at >= 2 * host, "bit {bit} of byte {at}");
    }
}

#[test]
fn a_journal_with_zeros_in_it_is_restored_or_says_what_is_not() {
    let killed = Killed::new();
    let (journal, seal) = (&killed.journal, &killed.seal);
    for length in [2, 16, 64, 512, journal.len()] {
        for at in (0..journal.len()).step_by(16) {
            let mut bytes = journal.clone();
            let end = bytes.len().min(at + length);
            bytes[at..end].fill(0);
            killed.check(&format!("zeros from {at} to {end}"), Some(&bytes), Some(seal));
        }
    }
}

#[test]
fn lines_in_another_order_or_twice_do_no_harm_and_a_missing_line_is_seen() {
    let killed = Killed::new();
    let seal = &killed.seal;
    let lines: Vec<&[u8]> = killed.journal.split_inclusive(|byte| *byte == b'\n').collect();
    for first in 0..lines.len() {
        for second in 0..first {
            let mut swapped = lines.clone();
            swapped.swap(first, second);
            let what = format!("lines {second} and {first} swapped");
            assert!(killed.check(&what, Some(&swapped.concat()), Some(seal)), "{what}");
        }
        let twice = [&lines[..first], &[lines[first]], &lines[first..]].concat();
        assert!(killed.check(&format!("line {first} twice"), Some(&twice.concat()), Some(seal)));
        let gone = [&lines[..first], &lines[first + 1..]].concat();
        let as_found = killed.check(&format!("line {first} gone"), Some(&gone.concat()), Some(seal));
        assert_eq!(as_found, first < 3, "line {first} gone: the host is there twice");
    }
}

#[test]
fn a_damaged_seal_does_no_harm_or_is_reported() {
    let killed = Killed::new();
    let (journal, seal) = (&killed.journal, &killed.seal);
    for at in 0..seal.len() {
        let mut bytes = seal.clone();
        bytes[at] ^= 1 << (at % 8);
        killed.check(&format!("byte {at} of the seal"), Some(journal), Some(&bytes));
        killed.check(&format!("seal cut to {at}"), Some(journal), Some(&seal[..at]));
    }
}
