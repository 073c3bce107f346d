//! The journal and the restore: power failures at every byte, damage, a full disk, two managers, a reboot.
//!
//! Registers here are a table; resctrl has its own tests on the virtual host.

mod aside;
mod damaged;
mod hand_over;
mod holder;
mod long;
mod power;
mod restoring;
mod small_disk;

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use waykeeper_kernel::journal::{
    Claim, Journal, JournalDamage, JournalError, Original, OwnershipCheck, SchemataLine,
};
use waykeeper_kernel::registers::{RegisterAddress, RegisterIo};
use waykeeper_kernel::resctrl::Group;
use waykeeper_kernel::restore::{RestoreOutcome, Restorer, mounted, task_start};
use waykeeper_kernel::root::Root;
use waykeeper_units::CoreId;

const BOOT: &str = "01234567-89ab-cdef-0123-456789abcdef";
const LATER: &str = "fedcba98-7654-3210-fedc-ba9876543210";

/// A host with only a boot id, and a path for a journal.
struct Host {
    _folder: tempfile::TempDir,
    root: Root,
    path: PathBuf,
}

impl Host {
    fn new() -> Host {
        // In memory if possible: a thousand disk syncs take seconds.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let folder = folder.expect("a temporary directory");
        let root = Root::at(folder.path().join("root"));
        let host = Host { root, path: folder.path().join("state/journal"), _folder: folder };
        host.boot(BOOT);
        host
    }

    fn boot(&self, id: &str) {
        let path = self.root.path("/proc/sys/kernel/random/boot_id");
        fs::create_dir_all(path.parent().expect("it has one")).expect("made");
        fs::write(path, format!("{id}\n")).expect("written");
    }

    fn open(&self) -> Result<Journal, JournalError> {
        Journal::open(&self.path, &self.root)
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(&self.path).expect("the journal")
    }

    /// The path of the journal's seal.
    fn seal(&self) -> PathBuf {
        self.path.with_extension("seal")
    }
}

fn msr(cpu: u16, value: u64) -> Original {
    Original::whole_msr(cpu, None, 0xc8b, value)
}

fn schemata(group: &str, line: &str) -> Original {
    let group = if group.is_empty() { Group::DEFAULT } else { Group::control(group).expect("a name") };
    Original::Schemata { group, line: SchemataLine::try_from(line.to_owned()).expect("a line") }
}

fn of_every_kind() -> Vec<Original> {
    let group = Group::control("wk-a \"b\"").expect("a name");
    vec![
        Original::NoGroup { group: group.monitor("m").expect("a name") },
        schemata("", "L3:0=7ff;16=600"),
        schemata("other", "MB:0=50"),
        Original::Cpus { group: Group::DEFAULT, cpus: Vec::new().into() },
        Original::Cpus { group: group.clone(), cpus: vec![CoreId(0), CoreId(2), CoreId(3)].into() },
        Original::Task { group, pid: 77, started: 1 << 40 },
        Original::IoAlloc { resource: "L3".into(), enabled: false },
        Original::IoAllocCbm { line: SchemataLine::try_from("L3:0=c00".to_owned()).expect("a line") },
        msr(0, u64::MAX),
        counter_bit(3, 1),
        port_switch(),
    ]
}

/// The bit of a general counter in CPU `cpu`'s global control, with the counter's select as claim; originally clear.
fn counter_bit(cpu: u16, counter: u32) -> Original {
    let claim = Claim { at: 0x186 + counter, mask: u64::MAX, values: vec![0x0003_412e, 0x43_4f2e] };
    let ownership = OwnershipCheck { ours: vec![1 << counter], claims: vec![claim] };
    Original::Msr { cpu, package: None, register: 0x38f, mask: 1 << counter, value: 0, ownership }
}

fn port_switch() -> Original {
    let (mask, ownership) = (0x80, OwnershipCheck::default());
    Original::Pci { address: "0000:3a:00.0".into(), offset: 0x180, width: 1, mask, value: 0x80, ownership }
}

#[test]
fn what_is_recorded_is_there_after_a_crash() {
    let host = Host::new();
    let mut journal = host.open().unwrap();
    assert!(!host.path.exists(), "nothing to say yet");
    journal.record(&of_every_kind()).unwrap();
    journal.record(&[msr(18, 0x600)]).unwrap();
    drop(journal);
    let journal = host.open().unwrap();
    let mut all = of_every_kind();
    all.push(msr(18, 0x600));
    assert_eq!(journal.originals(), all);
    assert!(!journal.is_stale());
}

#[test]
fn the_first_value_of_a_knob_is_its_original() {
    let host = Host::new();
    let mut journal = host.open().unwrap();
    journal.record(&[msr(0, 0x600), msr(0, 0x700), msr(1, 0x600)]).unwrap();
    drop(journal);
    // The next start after a crash changes the same knob again.
    let mut journal = host.open().unwrap();
    let before = host.bytes();
    journal.record(&[msr(0, 0x7f0)]).unwrap();
    assert_eq!(host.bytes(), before);
    assert_eq!(journal.originals(), [msr(0, 0x600), msr(1, 0x600)]);
    // A group that another program made just before us is not ours.
    let group = Original::NoGroup { group: Group::control("wk-x").unwrap() };
    journal.record(std::slice::from_ref(&group)).unwrap();
    journal.forget(&group).unwrap();
    journal.forget(&group).unwrap();
    drop(journal);
    assert_eq!(host.open().unwrap().originals(), [msr(0, 0x600), msr(1, 0x600)]);
}

/// A power failure while the second record is written: the seal is still that of the first.
#[test]
fn a_write_that_a_power_failure_cuts_off_leaves_the_lines_before_it() {
    let host = Host::new();
    let mut journal = host.open().unwrap();
    let all = of_every_kind();
    journal.record(&all[..5]).unwrap();
    let (first, seal) = (host.bytes().len(), fs::read(host.seal()).unwrap());
    journal.record(&all[5..]).unwrap();
    drop(journal);
    let whole = host.bytes();
    for length in first..=whole.len() {
        fs::write(&host.path, &whole[..length]).unwrap();
        fs::write(host.seal(), &seal).unwrap();
        // Three lines are before the first entry. A line without its newline is whole if its checksum fits.
        let lines = whole[..length].iter().filter(|byte| **byte == b'\n').count();
        let lines = lines - 3 + usize::from(whole.get(length) == Some(&b'\n'));
        let mut journal = host.open().unwrap();
        assert_eq!(journal.damage(), [], "cut to {length} bytes");
        assert_eq!(journal.originals(), &all[..lines], "cut to {length} bytes");
        // The next record is not appended to the torn line.
        if length % 97 == 0 {
            journal.record(&[msr(9, 1)]).unwrap();
            drop(journal);
            let journal = host.open().unwrap();
            assert_eq!(journal.damage(), []);
            assert_eq!(journal.originals().last(), Some(&msr(9, 1)), "cut to {length} bytes");
        }
    }
}

#[test]
fn damage_is_reported_with_its_line_and_the_other_lines_are_read() {
    let host = Host::new();
    let mut journal = host.open().unwrap();
    journal.record(&[msr(0, 0x600), msr(1, 0x600), msr(2, 0x600)]).unwrap();
    drop(journal);
    let (whole, seal) = (String::from_utf8(host.bytes()).unwrap(), fs::read(host.seal()).unwrap());
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    let read = |text: String| {
        fs::write(&host.path, text).unwrap();
        fs::write(host.seal(), &seal).unwrap();
        let journal = host.open().unwrap();
        let damage: Vec<String> = journal.damage().iter().map(ToString::to_string).collect();
        (journal.originals().iter().map(|own| own.register().unwrap().address.clone()).collect(), damage)
    };
    let cpus = |cpus: &[u16]| -> Vec<RegisterAddress> {
        cpus.iter().map(|cpu| RegisterAddress::Msr { cpu: CoreId(*cpu), address: 0xc8b }).collect()
    };
    assert!(whole.contains("1536"), "0x600 in JSON");
    let (found, damage) = read(whole.replacen("1536", "1537", 1));
    assert_eq!(found, cpus(&[1, 2]));
    assert!(damage[0].starts_with("line 4 is damaged (its checksum is "), "{damage:?}");
    assert!(damage[0].contains("it reads `") && damage[0].contains("1537"), "{damage:?}");
    assert_eq!(damage[1..], ["entry 1 is missing, so an original value is not known"]);
    // Missing lines at the begin, in the middle and at the end.
    let (head, entries) = (lines[..3].concat(), &lines[3..]);
    for (rest, present, missing) in [
        ([entries[1], entries[2]].concat(), [1, 2], "entry 1 is missing, so an original value is not known"),
        ([entries[0], entries[2]].concat(), [0, 2], "entry 2 is missing, so an original value is not known"),
        ([entries[0], entries[1]].concat(), [0, 1], "entry 3 is missing, so an original value is not known"),
    ] {
        assert_eq!(read(format!("{head}{rest}")), (cpus(&present), vec![missing.to_owned()]));
    }
    let both = "entries 2 to 3 are missing, so their original values are not known";
    assert_eq!(read(format!("{head}{}", entries[0])), (cpus(&[0]), vec![both.to_owned()]));
    // Lines in another order, twice, and text that is no line take nothing away.
    let same = (cpus(&[0, 1, 2]), vec![]);
    assert_eq!(read([&head, entries[2], entries[1], entries[0]].concat()), same);
    assert_eq!(read([&whole, entries[1], lines[0], "zzzz {}\n", "\n"].concat()), same);
    assert_eq!(read(lines[1..].concat()), same, "a copy of the first line is enough");
    // Without both copies the values are named, and not restored: they may be of another host or boot.
    let (found, damage) = read(entries.concat());
    assert_eq!(found, []);
    assert_eq!((damage.len(), damage[3].as_str()), (4, "MSR 0xc8b of CPU 2: 0x600: not restored"));
    assert_eq!(damage[0], JournalDamage::Host.to_string());
    // Nothing can be recorded before the damage is set aside.
    let mut journal = host.open().unwrap();
    let error = journal.record(&[msr(5, 1)]).unwrap_err();
    assert!(matches!(&error, JournalError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("run `waykeeper restore`"), "{error}");
}

/// A journal with a valid checksum may still have been written by another program.
#[test]
fn originals_that_would_lead_elsewhere_are_damage() {
    let pci = |address: &str| {
        format!(r#"{{"knob":"pci","address":"{address}","offset":384,"width":1,"mask":128,"value":128}}"#)
    };
    let group = |name: &str| format!(r#"{{"knob":"no-group","group":{{"control":"{name}"}}}}"#);
    let cases = [
        (pci("0000:3a:00.0"), None),
        (pci("../../../x"), Some("is not a PCI address")),
        (group("wk-a"), None),
        (group("../x"), Some("cannot be the name of a group")),
        (group("info"), Some("cannot be the name of a group")),
        (
            r#"{"knob":"msr","cpu":0,"register":3211,"value":1,"more":1}"#.to_owned(),
            Some("unknown field `more`"),
        ),
        (r#"{"knob":"schemata","group":{},"line":"L3:0=zz"}"#.to_owned(), Some("a mask in hex")),
        (r#"{"knob":"fan"}"#.to_owned(), Some("unknown variant `fan`")),
    ];
    for (original, why) in cases {
        let host = Host::new();
        let mut journal = host.open().unwrap();
        journal.record(&[msr(0, 1), msr(1, 1)]).unwrap();
        drop(journal);
        let json = format!(r#"2 {{"original":{original}}}"#);
        let sum = crc32fast::hash(json.as_bytes());
        let text = String::from_utf8(host.bytes()).unwrap();
        let before: String = text.split_inclusive('\n').take(4).collect();
        fs::write(&host.path, format!("{before}{sum:08x} {json}\n")).unwrap();
        let journal = host.open().unwrap();
        match why {
            None => assert_eq!((journal.originals().len(), journal.damage()), (2, &[][..]), "{original}"),
            Some(why) => {
                assert_eq!(journal.originals(), [msr(0, 1)], "{original}");
                let damage = journal.damage()[0].to_string();
                assert!(damage.starts_with("line 5 ") && damage.contains(why), "{original}: {damage}");
            }
        }
    }
}

#[test]
fn a_file_of_another_kind_is_left_alone_and_nothing_is_made_beside_it() {
    let host = Host::new();
    fs::create_dir_all(host.path.parent().unwrap()).unwrap();
    let text = "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n";
    for text in [text, "x", "00000000 {}\n", "\n\n"] {
        fs::write(&host.path, text).unwrap();
        let error = host.open().unwrap_err();
        assert!(matches!(&error, JournalError::NotAJournal { .. }), "{error}");
        assert!(!error.to_string().contains("remove"), "{error}");
        assert_eq!(fs::read_to_string(&host.path).unwrap(), text);
        assert_eq!(fs::read_dir(host.path.parent().unwrap()).unwrap().count(), 1, "no lock file");
        assert!(waykeeper_kernel::journal::summarize(&host.path, &host.root).is_err());
    }
}

#[test]
fn two_managers_exclude_each_other() {
    let host = Host::new();
    let first = host.open().unwrap();
    let error = host.open().unwrap_err();
    assert!(matches!(error, JournalError::Held { holder: Some(pid), .. } if pid == std::process::id()));
    assert!(error.to_string().contains(&format!("(pid {})", std::process::id())), "{error}");
    drop(first);
    host.open().unwrap();
}

/// `doctor` briefly tries the lock to see whether a manager is running; that must not prevent a manager from starting.
#[test]
fn a_reader_keeps_no_manager_out() {
    let host = Host::new();
    host.open().unwrap().record(&[msr(0, 1)]).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                waykeeper_kernel::journal::summarize(&host.path, &host.root).unwrap();
            }
        });
        let opened = (0..500).find_map(|_| host.open().err());
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(opened.is_none(), "{opened:?}");
    });
}

/// Journal entries are written to registers, so only trusted users may have written it. Needs root.
#[test]
fn a_journal_that_others_could_have_written_is_not_believed() {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    let host = Host::new();
    host.open().unwrap().record(&[msr(0, 0x600)]).unwrap();
    let refused = || {
        let error = host.open().unwrap_err();
        assert!(matches!(&error, JournalError::Untrusted { .. }), "{error}");
        let looked = waykeeper_kernel::journal::summarize(&host.path, &host.root);
        (error.to_string(), looked.is_err())
    };
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    mode(&host.path, 0o622);
    let (why, look) = refused();
    assert!(why.contains("/journal can be written by other users (mode 0622)") && look, "{why}");
    mode(&host.path, 0o600);
    chown(&host.path, Some(1234), None).expect("not run: needs root");
    assert!(refused().0.contains("/journal belongs to user 1234, not to root"));
    chown(&host.path, Some(0), None).unwrap();
    let folder = host.path.parent().unwrap();
    mode(folder, 0o777);
    assert!(
        refused().0.contains(
            "/state can be written by other users (mode 0777); remove that permission (chmod go-w)"
        )
    );
    mode(folder, 0o755);
    assert_eq!(host.open().unwrap().originals().len(), 1);
    let aside = host.path.with_extension("aside");
    fs::rename(&host.path, &aside).unwrap();
    symlink(&aside, &host.path).unwrap();
    assert!(refused().0.contains("/journal is a symbolic link, not a file"));
    // A symbolic link as lock file is not followed either: it would truncate another file.
    fs::remove_file(&host.path).unwrap();
    fs::remove_file(host.path.with_extension("lock")).unwrap();
    symlink(&aside, host.path.with_extension("lock")).unwrap();
    assert!(host.open().is_err_and(|why| matches!(why, JournalError::Untrusted { .. })));
    assert_ne!(fs::read(&aside).unwrap(), b"");
}

#[test]
fn a_directory_that_cannot_be_made_is_reported() {
    let host = Host::new();
    fs::write(host.path.parent().unwrap(), "a file").unwrap();
    let error = host.open().unwrap_err();
    assert!(matches!(&error, JournalError::Write { .. }), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_damage_is_taken_for_a_value(at in 0usize..2000, with: u8) {
        let host = Host::new();
        let mut journal = host.open().unwrap();
        let all = of_every_kind();
        journal.record(&all).unwrap();
        drop(journal);
        let mut bytes = host.bytes();
        let at = at % bytes.len();
        bytes[at] = with;
        fs::write(&host.path, &bytes).unwrap();
        let journal = host.open().unwrap();
        prop_assert!(journal.originals().iter().all(|own| all.contains(own)));
        prop_assert!(!journal.damage().is_empty() || journal.originals() == all);
    }
}

#[test]
fn a_replaced_original_survives_a_power_failure_at_every_byte() {
    let host = Host::new();
    let mut journal = host.open().expect("opened");
    journal.record(&[msr(0, 0x600)]).expect("recorded");
    let (before, seal) = (host.bytes().len(), fs::read(host.seal()).expect("a seal"));
    journal.replace(&msr(0, 0x700)).expect("replaced");
    drop(journal);
    let whole = host.bytes();
    for length in before..=whole.len() {
        fs::write(&host.path, &whole[..length]).expect("written");
        fs::write(host.seal(), &seal).expect("written");
        let journal = host.open().expect("a journal that was cut off can be read");
        // The last byte is the newline.
        let expected = if length + 1 >= whole.len() { 0x700 } else { 0x600 };
        assert_eq!(journal.damage(), []);
        assert_eq!(journal.originals(), [msr(0, expected)], "{length} of {} bytes", whole.len());
    }
}
