//! A journal that is written to for months: it stays short and keeps its content, whenever the power fails.

use crate::journal::*;

/// One tenant that is added and removed.
fn come_and_go(journal: &mut Journal, number: u32) {
    let own = msr(100 + (number % 50) as u16, u64::from(number));
    journal.record(std::slice::from_ref(&own)).unwrap();
    journal.forget(&own).unwrap();
}

#[test]
fn what_was_forgotten_takes_no_room_for_long() {
    let host = Host::new();
    let mut journal = host.open().unwrap();
    journal.record(&of_every_kind()).unwrap();
    journal.keep_all(&[port_switch()]).unwrap();
    let (own, kept) = (journal.originals().to_vec(), journal.kept().to_vec());
    let mut most = 0;
    for number in 1000..5000 {
        come_and_go(&mut journal, number);
        most = most.max(host.bytes().len());
    }
    // 32 KiB, and a line or two until it is compacted.
    assert!(most < (33 << 10), "{most} bytes");
    assert!(most > (31 << 10), "{most} bytes: it was never long");
    assert_eq!((journal.originals(), journal.kept()), (&own[..], &kept[..]));
    drop(journal);
    let journal = host.open().unwrap();
    assert_eq!((journal.originals(), journal.kept()), (&own[..], &kept[..]));
    assert!(!host.path.with_file_name("journal.new").exists());
}

#[test]
fn a_knob_that_was_kept_and_turned_again_has_both_its_values_in_the_short_one() {
    let host = Host::new();
    let mut journal = host.open().unwrap();
    journal.record(&[msr(3, 0x600)]).unwrap();
    journal.keep_all(&[msr(3, 0)]).unwrap();
    journal.record(&[msr(3, 0x700)]).unwrap();
    let is_short = |host: &Host| host.bytes().len() < 1000;
    for number in 1000.. {
        come_and_go(&mut journal, number * 50 + 7);
        if number > 1010 && is_short(&host) {
            break;
        }
        assert!(number < 5000, "it never got short");
    }
    drop(journal);
    let journal = host.open().unwrap();
    assert_eq!(journal.originals(), [msr(3, 0x700)]);
    assert_eq!(journal.kept(), [msr(3, 0x600)]);
}

#[test]
fn where_no_second_file_can_be_written_the_long_one_continues() {
    let host = Host::new();
    let mut journal = host.open().unwrap();
    // A directory blocks the new file's name.
    std::fs::create_dir(host.path.with_file_name("journal.new")).unwrap();
    journal.record(&[msr(1, 0x600)]).unwrap();
    for number in 1000..2000 {
        come_and_go(&mut journal, number * 50 + 7);
    }
    assert!(host.bytes().len() > (64 << 10));
    drop(journal);
    assert_eq!(host.open().unwrap().originals(), [msr(1, 0x600)]);
}
