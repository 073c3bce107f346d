//! The journal of original values with its seal, and a restore from it.
//!
//! The first byte chooses the form of the rest: below 64 it is the file, below 128 lines of the formats 1 to 3 without
//! their checksums, above lines of format 4 without numbers and checksums. A NUL byte ends the file; what follows is the
//! seal. If it is empty, the seal is as the journal would have written it.

use crate::{checked, host_on, one_line};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use waykeeper_kernel::journal::{Journal, summarize};
use waykeeper_kernel::registers::RegisterFiles;
use waykeeper_kernel::resctrl::GROUP_PREFIX;
use waykeeper_kernel::restore::{Restorer, mounted};

const PATH: &str = "/run/waykeeper/journal-host";

/// The boot of the host in memory.
const BOOT: &str = "01234567-89ab-cdef-0123-456789abcdef";

/// Bytes from one slot of a seal to the next.
const SLOT: usize = 512;

fn with_checksum(text: &[u8]) -> Vec<u8> {
    [format!("{:08x} ", crc32fast::hash(text)).as_bytes(), text, b"\n"].concat()
}

/// Lines of formats 1 to 3: the checksum is over the line's number and its text, and the number is not written.
fn unnumbered(lines: &[u8]) -> Vec<u8> {
    let line = |(index, line): (usize, &[u8])| {
        let checksum = crc32fast::hash(&[format!("{} ", index + 1).as_bytes(), line].concat());
        [format!("{checksum:08x} ").as_bytes(), line, b"\n"].concat()
    };
    lines.split(|byte| *byte == b'\n').enumerate().flat_map(line).collect()
}

/// Lines of format 4: the host's line has the number 0 and is there twice, each entry has the next number.
fn numbered(lines: &[u8]) -> (Vec<u8>, usize) {
    let (mut out, mut last) = (Vec::new(), 0);
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        if line.starts_with(b"{\"host\"") {
            let head = with_checksum(&[b"0 ", line].concat());
            out.extend([&head[..], b"\n", &head[..]].concat());
        } else {
            last += 1;
            out.extend(with_checksum(&[format!("{last} ").as_bytes(), line].concat()));
        }
    }
    (out, last)
}

/// A seal whose second slot was written last.
fn seal(last: usize) -> Vec<u8> {
    let slot = |turn: u32, last: usize| with_checksum(format!("{turn:020} {last:020} {BOOT:36}").as_bytes());
    let mut out = slot(2, last.saturating_sub(1));
    out.resize(SLOT, 0);
    out.extend(slot(3, last));
    out
}

/// The numbers of a file's lines whose checksums are right, with each line's entry. A line of formats 1 to 3 has the number
/// with which its checksum is right.
fn intact(file: &[u8]) -> BTreeMap<u64, Value> {
    let count = file.split(|byte| *byte == b'\n').count() as u64;
    let one = |line: &[u8]| {
        let line = std::str::from_utf8(line).ok()?;
        let (sum, text) = line.split_once(' ')?;
        let is_right = |text: &str| format!("{:08x}", crc32fast::hash(text.as_bytes())) == sum;
        if text.starts_with('{') {
            let number = (1..=2 * count + 8).find(|number| is_right(&format!("{number} {text}")))?;
            return Some((number, serde_json::from_str(text).ok()?));
        }
        let (number, json) = text.split_once(' ').filter(|_| is_right(text))?;
        Some((number.parse().ok()?, serde_json::from_str(json).ok()?))
    };
    // Of two lines with one number the first counts.
    file.split(|byte| *byte == b'\n').rev().filter_map(one).collect()
}

/// The number of the last entry, by a seal's later slot.
fn sealed(seal: &[u8]) -> Option<u64> {
    let one = |slot: &[u8]| {
        let line = std::str::from_utf8(slot.split(|byte| *byte == b'\n').next()?).ok()?;
        let (sum, text) = line.split_once(' ')?;
        let mut words = text.split(' ').map(str::parse);
        let (turn, last): (u64, u64) = (words.next()?.ok()?, words.next()?.ok()?);
        (format!("{:08x}", crc32fast::hash(text.as_bytes())) == sum).then_some((turn, last))
    };
    seal.chunks(SLOT).take(2).filter_map(one).max().map(|(_, last)| last)
}

/// Whether a file has all entries that its seal, or its first line, says it has. A journal of formats 1 to 3 has no seal:
/// its lines must be there up to the last one.
fn is_whole(file: &[u8], seal: &[u8]) -> bool {
    let sealed = sealed(seal);
    if sealed == Some(0) {
        // No knob was set.
        return true;
    }
    let lines = intact(file);
    let number = |host: &Value, key: &str| host[key].as_u64().unwrap_or_default();
    let hosts = lines.iter().filter_map(|(at, entry)| Some((*at, entry.get("host")?)));
    let (first, last) = match hosts.min_by_key(|(at, _)| *at) {
        Some((1, host)) if number(host, "version") < 4 => (2, lines.keys().next_back().copied()),
        Some((_, host)) => {
            let last = sealed.map(|last| last.max(number(host, "complete_to")));
            (number(host, "first").max(1), last)
        }
        None => (1, sealed),
    };
    let is_there = |number: u64| lines.contains_key(&number);
    // A range is searched only as far as there can be lines.
    last.is_some_and(|last| last < first || last - first < lines.len() as u64 && (first..=last).all(is_there))
}

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    let Some((choice, content)) = data.split_first() else { return };
    let end = content.iter().position(|byte| *byte == 0).unwrap_or(content.len());
    let (content, own_seal) = (&content[..end], content.get(end + 1..).unwrap_or_default());
    let (file, last) = match choice {
        0..64 => (content.to_vec(), 0),
        64..128 => (unnumbered(content), 0),
        _ => numbered(content),
    };
    let seal = if own_seal.is_empty() { seal(last) } else { own_seal.to_vec() };
    let path = Path::new(PATH);
    let (system, root) = host_on(&[]);
    system.put_file(PATH, &file);
    system.put_file(&format!("{PATH}.seal"), &seal);
    checked(summarize(path, &root));
    let Some(journal) = checked(Journal::open(path, &root)) else { return };
    let (originals, kept) = (journal.originals().to_vec(), journal.kept().to_vec());
    let is_damaged = !journal.damage().is_empty();
    assert!(is_damaged || is_whole(&file, &seal), "entries are missing, and no damage is reported");
    originals.iter().chain(&kept).for_each(|original| one_line(original));
    drop(journal);
    // Opening changes nothing that matters.
    let mut journal = Journal::open(path, &root).expect("a journal that was opened before");
    assert_eq!((journal.originals(), journal.kept()), (originals.as_slice(), kept.as_slice()));
    let resctrl = mounted(&root, GROUP_PREFIX);
    let registers = RegisterFiles::of(&root);
    let mut restorer = Restorer { root: &root, resctrl: resctrl.as_ref(), registers: &registers };
    let is_lost = is_damaged && !journal.is_stale();
    if let Some(report) = checked(restorer.restore_passing(&mut journal)) {
        assert_eq!((report.damage.is_empty(), report.unproved.is_empty()), (!is_lost, !is_lost));
        report.knobs.iter().for_each(|(_, outcome)| one_line(outcome));
    }
    // On a host without a journal, what was read can be recorded, and is the same when it is read.
    let (system, root) = host_on(&[]);
    let mut journal = Journal::open(path, &root).expect("no journal");
    journal.record(&originals).expect("originals that were read");
    drop(journal);
    let journal = Journal::open(path, &root).expect("a journal that we wrote");
    assert_eq!(journal.originals(), originals);
    assert!(journal.damage().is_empty());
    drop(journal);
    // Cut at any place it is damaged; only the last newline can be missed.
    let Some(whole) = system.content(PATH) else { return };
    let length = whole.len() * usize::from(*choice) / 256;
    system.put_file(PATH, &whole[..length]);
    let journal = Journal::open(path, &root).expect("a journal that was cut");
    assert_eq!(journal.damage().is_empty(), length + 1 == whole.len(), "cut to {length} of {}", whole.len());
}
