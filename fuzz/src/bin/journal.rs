//! The journal of original values, and a restore from it. The first byte chooses: 0 to 127, the rest is the file; from 128
//! on, the rest are the lines without their checksums.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use waykeeper_fuzz::{host_on, one_line};
use waykeeper_kernel::journal::{Journal, summarize};
use waykeeper_kernel::registers::RegisterFiles;
use waykeeper_kernel::resctrl::GROUP_PREFIX;
use waykeeper_kernel::restore::{Restorer, mounted};

const PATH: &str = "/run/waykeeper/journal-host";

/// The lines with the checksums that the journal writes: over the line's number and its text.
fn sealed(lines: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for (index, line) in lines.split(|byte| *byte == b'\n').enumerate() {
        let mut text = format!("{} ", index + 1).into_bytes();
        text.extend(line);
        out.extend(format!("{:08x} ", crc32fast::hash(&text)).bytes());
        out.extend(line);
        out.push(b'\n');
    }
    out
}

fuzz_target!(|data: &[u8]| {
    let Some((choice, content)) = data.split_first() else { return };
    let (system, root) = host_on(&[]);
    let file = if *choice < 128 { content.to_vec() } else { sealed(content) };
    system.put_file(PATH, &file);
    let path = Path::new(PATH);
    if let Err(why) = summarize(path, &root) {
        one_line(&why);
    }
    let mut journal = match Journal::open(path, &root) {
        Ok(journal) => journal,
        Err(why) => return one_line(&why),
    };
    let (originals, kept) = (journal.originals().to_vec(), journal.kept().to_vec());
    drop(journal);
    // What was read is written again, and is the same when it is read.
    let again = Journal::open(path, &root).expect("a journal that was read");
    assert_eq!((again.originals(), again.kept()), (originals.as_slice(), kept.as_slice()));
    drop(again);
    system.remove(PATH);
    journal = Journal::open(path, &root).expect("no journal");
    journal.record(&originals).expect("originals that were read can be recorded");
    drop(journal);
    journal = Journal::open(path, &root).expect("a journal that we wrote");
    assert_eq!(journal.originals(), originals);
    for original in &originals {
        one_line(original);
    }
    system.put_file(PATH, &file);
    drop(journal);
    journal = Journal::open(path, &root).expect("a journal that was read");
    let resctrl = mounted(&root, GROUP_PREFIX);
    let registers = RegisterFiles::of(&root);
    let mut restorer = Restorer { root: &root, resctrl: resctrl.as_ref(), registers: &registers };
    match restorer.restore_passing(&mut journal) {
        Ok(report) => report.knobs.iter().for_each(|(_, outcome)| one_line(outcome)),
        Err(why) => one_line(&why),
    }
});
