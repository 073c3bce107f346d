//! The journal of original values with its seal, and a restore from it.
//!
//! The first byte chooses the form of the rest: below 64 it is the file, below 128 lines of the formats 1 to 3 without
//! their checksums, above lines of format 4 without numbers and checksums. A NUL byte ends the file; what follows is the
//! seal. If it is empty, the seal is as the journal would have written it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use waykeeper_fuzz::{host_on, one_line};
use waykeeper_kernel::journal::{Journal, JournalError, summarize};
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

fn told<T>(result: Result<T, JournalError>) -> Option<T> {
    result.inspect_err(|why| one_line(why)).ok()
}

fuzz_target!(|data: &[u8]| {
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
    told(summarize(path, &root));
    let Some(journal) = told(Journal::open(path, &root)) else { return };
    let (originals, kept) = (journal.originals().to_vec(), journal.kept().to_vec());
    originals.iter().chain(&kept).for_each(|original| one_line(original));
    drop(journal);
    // Opening changes nothing that matters.
    let mut journal = Journal::open(path, &root).expect("a journal that was opened before");
    assert_eq!((journal.originals(), journal.kept()), (originals.as_slice(), kept.as_slice()));
    let resctrl = mounted(&root, GROUP_PREFIX);
    let registers = RegisterFiles::of(&root);
    let mut restorer = Restorer { root: &root, resctrl: resctrl.as_ref(), registers: &registers };
    if let Some(report) = told(restorer.restore_passing(&mut journal)) {
        report.knobs.iter().for_each(|(_, outcome)| one_line(outcome));
    }
    // On a host without a journal, what was read can be recorded, and is the same when it is read.
    let (_, root) = host_on(&[]);
    let mut journal = Journal::open(path, &root).expect("no journal");
    journal.record(&originals).expect("originals that were read");
    drop(journal);
    let journal = Journal::open(path, &root).expect("a journal that we wrote");
    assert_eq!(journal.originals(), originals);
});
