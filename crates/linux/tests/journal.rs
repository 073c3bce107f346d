//! The journal and what brings it back: power failures at every byte, damage, a full disk, two managers, a reboot.
//!
//! Registers here are a table; resctrl has its own tests on the virtual host.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use waykeeper_linux::journal::{Claim, Hold, Journal, JournalError, Original, SchemataLine};
use waykeeper_linux::resctrl::Group;
use waykeeper_linux::restore::{Outcome, Registers, Restorer, mounted, start_in_stat};
use waykeeper_linux::root::Root;
use waykeeper_units::CoreId;

const BOOT: &str = "01234567-89ab-cdef-0123-456789abcdef";
const LATER: &str = "fedcba98-7654-3210-fedc-ba9876543210";

/// A host with nothing but a boot id, and a place for a journal beside it.
struct Host {
    _folder: tempfile::TempDir,
    root: Root,
    path: PathBuf,
}

impl Host {
    fn new() -> Host {
        // In memory where there is such a place: a thousand syncs of a disk take seconds.
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

/// The bit of a general counter in CPU `cpu`'s global control, clear before, the counter's select with it.
fn counter_bit(cpu: u16, counter: u32) -> Original {
    let claim = Claim { at: 0x186 + counter, mask: u64::MAX, values: vec![0x0003_412e, 0x43_4f2e] };
    let hold = Hold { ours: vec![1 << counter], claims: vec![claim] };
    Original::Msr { cpu, package: None, register: 0x38f, mask: 1 << counter, value: 0, hold }
}

fn port_switch() -> Original {
    let (mask, hold) = (0x80, Hold::default());
    Original::Pci { address: "0000:3a:00.0".into(), offset: 0x180, width: 1, mask, value: 0x80, hold }
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
    // The next start after a crash turns the same knob again.
    let mut journal = host.open().unwrap();
    let before = host.bytes();
    journal.record(&[msr(0, 0x7f0)]).unwrap();
    assert_eq!(host.bytes(), before);
    assert_eq!(journal.originals(), [msr(0, 0x600), msr(1, 0x600)]);
    // A group that somebody else made just before us is none of ours.
    let group = Original::NoGroup { group: Group::control("wk-x").unwrap() };
    journal.record(std::slice::from_ref(&group)).unwrap();
    journal.forget(&group).unwrap();
    journal.forget(&group).unwrap();
    drop(journal);
    assert_eq!(host.open().unwrap().originals(), [msr(0, 0x600), msr(1, 0x600)]);
}

#[test]
fn a_power_failure_at_any_byte_leaves_the_lines_before_it() {
    let host = Host::new();
    let mut journal = host.open().unwrap();
    let all = of_every_kind();
    journal.record(&all[..5]).unwrap();
    journal.record(&all[5..]).unwrap();
    drop(journal);
    let whole = host.bytes();
    for length in 0..=whole.len() {
        fs::write(&host.path, &whole[..length]).unwrap();
        let lines = whole[..length].iter().filter(|byte| **byte == b'\n').count();
        let mut journal = host.open().unwrap();
        assert_eq!(journal.originals(), &all[..lines.saturating_sub(1)], "cut to {length} bytes");
        // What is recorded next does not stick to the torn line.
        if length % 97 == 0 {
            journal.record(&[msr(9, 1)]).unwrap();
            drop(journal);
            assert_eq!(host.open().unwrap().originals().last(), Some(&msr(9, 1)), "cut to {length} bytes");
        }
    }
}

#[test]
fn damage_is_told_by_line() {
    let host = Host::new();
    let mut journal = host.open().unwrap();
    journal.record(&[msr(0, 0x600), msr(1, 0x600), msr(2, 0x600)]).unwrap();
    drop(journal);
    let whole = String::from_utf8(host.bytes()).unwrap();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    let damaged = |text: String| {
        fs::write(&host.path, text).unwrap();
        match host.open() {
            Err(JournalError::Damaged { line, why, .. }) => (line, why),
            other => panic!("{other:?}"),
        }
    };
    assert!(whole.contains("1536"), "0x600 in JSON");
    assert_eq!(damaged(whole.replacen("1536", "1537", 1)).0, 2);
    // A line that is missing, a line out of place, and a beginning that is missing.
    assert_eq!(damaged([lines[0], lines[2], lines[3]].concat()).0, 2);
    assert_eq!(damaged([lines[0], lines[1], lines[3], lines[2]].concat()).0, 3);
    assert_eq!(damaged(lines[1..].concat()).0, 1);
    assert_eq!(damaged(format!("{whole}\n")).0, 5);
    assert_eq!(damaged(format!("{whole}zzzz {{}}\n")).0, 5);
    fs::write(&host.path, [whole.as_bytes(), b"\xff\xfe\n"].concat()).unwrap();
    let text = host.open().unwrap_err().to_string();
    assert!(text.contains("line 5 is damaged (bytes that are no text); nothing was brought back"), "{text}");
    assert!(text.starts_with(&host.path.display().to_string()), "{text}");
}

/// A journal with a right checksum may still have been written by something else than this program.
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
        (group("../x"), Some("is no name for a group")),
        (group("info"), Some("is no name for a group")),
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
        journal.record(&[msr(0, 1)]).unwrap();
        drop(journal);
        let json = format!(r#"{{"original":{original}}}"#);
        let sum = crc32fast::hash(format!("3 {json}").as_bytes());
        let text = String::from_utf8(host.bytes()).unwrap() + &format!("{sum:08x} {json}\n");
        fs::write(&host.path, text).unwrap();
        match (host.open(), why) {
            (Ok(journal), None) => assert_eq!(journal.originals().len(), 2),
            (Err(error @ JournalError::Damaged { line: 3, .. }), Some(why)) => {
                assert!(error.to_string().contains(why), "{original}: {error}");
            }
            (other, _) => panic!("{original}: {other:?}"),
        }
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

/// `doctor` looks whether a manager is at work by trying the lock for a moment; that must keep no manager out.
#[test]
fn whoever_only_looks_keeps_no_manager_out() {
    let host = Host::new();
    host.open().unwrap().record(&[msr(0, 1)]).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                waykeeper_linux::journal::look(&host.path, &host.root).unwrap();
            }
        });
        let opened = (0..500).find_map(|_| host.open().err());
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(opened.is_none(), "{opened:?}");
    });
}

#[test]
fn a_full_disk_is_told_before_a_knob_is_touched_and_leaves_the_journal_whole() {
    let host = Host::new();
    let state = host.path.parent().unwrap();
    fs::create_dir_all(state).unwrap();
    let _disk = SmallDisk::mount(state);
    let mut journal = host.open().unwrap();
    journal.record(&[msr(0, 0x600)]).unwrap();
    // The disk has 16 pages: some go to the directory, the lock file and the first line.
    let many: Vec<Original> = (1..2000).map(|cpu| msr(cpu, 0x600)).collect();
    let error = journal.record(&many).unwrap_err();
    let JournalError::Write { source, .. } = &error else { panic!("{error}") };
    assert_eq!(source.raw_os_error(), Some(libc_enospc()));
    assert!(error.to_string().contains("have not been touched"), "{error}");
    assert_eq!(journal.originals(), [msr(0, 0x600)]);
    journal.record(&[msr(1, 0x600)]).unwrap();
    drop(journal);
    assert_eq!(host.open().unwrap().originals(), [msr(0, 0x600), msr(1, 0x600)]);
}

/// ENOSPC by the system's own word for it.
fn libc_enospc() -> i32 {
    rustix::io::Errno::NOSPC.raw_os_error()
}

/// A disk of 64 KiB, unmounted when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path) -> SmallDisk {
        let flags = rustix::mount::MountFlags::empty();
        let mounted = rustix::mount::mount("small", at, "tmpfs", flags, Some(c"size=64k"));
        mounted.expect("mounting a tmpfs needs root: run the tests as root");
        SmallDisk(at.to_path_buf())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_directory_that_cannot_be_made_is_told() {
    let host = Host::new();
    fs::write(host.path.parent().unwrap(), "a file").unwrap();
    let error = host.open().unwrap_err();
    assert!(matches!(&error, JournalError::Write { .. }), "{error}");
}

/// Registers in a table; one of them cannot be written, one forgets what is written.
#[derive(Default)]
struct Table {
    msrs: BTreeMap<(u16, u32), u64>,
    pci: BTreeMap<(String, u16), u32>,
    order: Vec<u16>,
}

const LOCKED: u16 = 7;
const DEAF: u16 = 8;

impl Registers for &mut Table {
    fn msr(&mut self, cpu: u16, register: u32) -> Result<u64, String> {
        self.msrs.get(&(cpu, register)).copied().ok_or_else(|| "no such register".to_owned())
    }

    fn set_msr(&mut self, cpu: u16, register: u32, value: u64) -> Result<(), String> {
        self.order.push(cpu);
        match cpu {
            LOCKED => return Err("not permitted".to_owned()),
            DEAF => {}
            _ => drop(self.msrs.insert((cpu, register), value)),
        }
        Ok(())
    }

    fn pci(&mut self, address: &str, offset: u16, _width: u8) -> Result<u32, String> {
        self.pci.get(&(address.to_owned(), offset)).copied().ok_or_else(|| "no such device".to_owned())
    }

    fn set_pci(&mut self, address: &str, offset: u16, _width: u8, value: u32) -> Result<(), String> {
        self.pci.insert((address.to_owned(), offset), value);
        Ok(())
    }
}

#[test]
fn all_that_can_be_brought_back_is_last_first_and_the_rest_is_told() {
    let host = Host::new();
    let mut journal = host.open().unwrap();
    let port = port_switch();
    let knobs =
        [msr(0, 1), msr(1, 1), msr(LOCKED, 1), msr(DEAF, 1), msr(9, 1), port.clone(), schemata("", "L3:0=f")];
    journal.record(&knobs).unwrap();
    let mut table = Table::default();
    for (cpu, value) in [(0, 5), (1, 1), (LOCKED, 5), (DEAF, 5)] {
        table.msrs.insert((cpu, 0xc8b), value);
    }
    // Somebody else set bit 3 meanwhile, which is theirs to keep.
    table.pci.insert(("0000:3a:00.0".into(), 0x180), 0x08);
    let report =
        Restorer { root: &host.root, resctrl: None, registers: &mut table }.restore(&mut journal).unwrap();
    let outcomes: Vec<(&Original, &Outcome)> =
        report.knobs.iter().map(|(knob, outcome)| (knob, outcome)).collect();
    let deaf = Outcome::Failed("the write went through and it reads back as 0x5".into());
    assert_eq!(
        outcomes,
        [
            (&knobs[6], &Outcome::Gone),
            (&port, &Outcome::Restored),
            (&msr(9, 1), &Outcome::Failed("no such register".into())),
            (&msr(DEAF, 1), &deaf),
            (&msr(LOCKED, 1), &Outcome::Failed("not permitted".into())),
            (&msr(1, 1), &Outcome::AsItWas),
            (&msr(0, 1), &Outcome::Restored),
        ]
    );
    assert_eq!(table.pci[&("0000:3a:00.0".to_owned(), 0x180)], 0x88);
    // What reads as its original is left alone: somebody else may be at work there by now.
    assert_eq!(table.order, [DEAF, LOCKED, 0]);
    assert!(host.path.exists(), "what failed is still to be brought back");
    // Somebody mends the three, and the next try clears the journal.
    for cpu in [LOCKED, DEAF, 9] {
        table.msrs.insert((cpu, 0xc8b), 1);
    }
    let report =
        Restorer { root: &host.root, resctrl: None, registers: &mut table }.restore(&mut journal).unwrap();
    assert!(report.is_complete() && !host.path.exists() && journal.originals().is_empty());
    journal.record(&[msr(0, 3)]).unwrap();
    drop(journal);
    assert_eq!(host.open().unwrap().originals(), [msr(0, 3)]);
}

/// Global control of CPU 0 as found: fixed counters 0 and 1 and general counter 7 run for others; ours set 0 and 1 of the
/// general ones, whose selects held an event that did not count.
#[test]
fn bits_of_others_and_taken_counters_stay_as_they_are() {
    let select = |number: u32| Original::Msr {
        cpu: 0,
        package: None,
        register: 0x186 + number,
        mask: u64::MAX,
        value: 0x0003_412e,
        hold: Hold { ours: vec![0x43_4f2e], claims: vec![] },
    };
    let knobs = [select(0), select(1), counter_bit(0, 0), counter_bit(0, 1)];
    let restored = |select: [u64; 2], global: u64| {
        let host = Host::new();
        let mut journal = host.open().unwrap();
        journal.record(&knobs).unwrap();
        drop(journal);
        // As after a crash: all that is known is what lies on disk.
        let mut journal = host.open().unwrap();
        let mut table = Table {
            msrs: [((0, 0x186), select[0]), ((0, 0x187), select[1]), ((0, 0x38f), global)].into(),
            ..Table::default()
        };
        let mut restorer = Restorer { root: &host.root, resctrl: None, registers: &mut table };
        let report = restorer.restore(&mut journal).unwrap();
        assert!(
            report.is_complete() && !host.path.exists(),
            "what is somebody else's is no failure: {report:?}"
        );
        let left: Vec<String> = report.left().collect();
        (table.msrs[&(0, 0x186)], table.msrs[&(0, 0x187)], table.msrs[&(0, 0x38f)], left)
    };
    // perf started fixed counter 2 and stopped general counter 7 meanwhile.
    let (found, ours) = (0x0003_412e, 0x43_4f2e);
    assert_eq!(restored([ours, ours], 0x7_0000_0003), (found, found, 0x7_0000_0000, vec![]));
    // Somebody counts cycles on counter 1 now: his event and his bit stay, and it is said of both.
    let (first, second, global, left) = restored([ours, 0x53_003c], 0x3_0000_0083);
    assert_eq!((first, second, global), (found, 0x53_003c, 0x3_0000_0082));
    assert_eq!(
        left,
        [
            "MSR 0x38f of CPU 0, bits 0x2: 0x0: left to somebody else: MSR 0x187 of CPU 0 has 0x53003c by now, which is \
             not what was written to it",
            "MSR 0x187 of CPU 0: 0x3412e: left to somebody else: it is 0x53003c by now, which is not what was written to it",
        ]
    );
    // He has gone and left zeros: those are nobody's.
    assert_eq!(restored([ours, 0], 0x3_0000_0083), (found, found, 0x3_0000_0080, vec![]));
    // A restore that ended between the two: the select is as it was, and the bit is still ours.
    assert_eq!(restored([found, found], 0x3_0000_0083), (found, found, 0x3_0000_0080, vec![]));
}

/// An MSR that reads ones alone does not answer: nothing is written on the strength of that.
#[test]
fn ones_alone_are_no_answer() {
    let host = Host::new();
    let mut journal = host.open().unwrap();
    journal.record(&[counter_bit(0, 1)]).unwrap();
    let mut table =
        Table { msrs: [((0, 0x187), 0x43_4f2e), ((0, 0x38f), u64::MAX)].into(), ..Table::default() };
    let mut restorer = Restorer { root: &host.root, resctrl: None, registers: &mut table };
    let report = restorer.restore(&mut journal).unwrap();
    let (_, why) = report.failures().next().expect("a failure");
    assert_eq!(why, "MSR 0x38f of CPU 0 reads ones alone: it does not answer");
    assert!(table.order.is_empty() && host.path.exists());
}

/// A register of a package is reached through any CPU of it.
#[test]
fn what_was_read_through_a_cpu_that_is_offline_now_is_written_through_another() {
    let host = Host::new();
    let cpus = host.root.path("/sys/devices/system/cpu");
    fs::create_dir_all(&cpus).unwrap();
    for (name, list) in [("present", "0-3"), ("online", "1-3")] {
        fs::write(cpus.join(name), format!("{list}\n")).unwrap();
    }
    for (cpu, socket) in [(1, 1), (2, 0), (3, 0)] {
        let topology = cpus.join(format!("cpu{cpu}/topology"));
        fs::create_dir_all(&topology).unwrap();
        for (name, text) in [("physical_package_id", socket), ("core_id", cpu), ("thread_siblings_list", cpu)]
        {
            fs::write(topology.join(name), format!("{text}\n")).unwrap();
        }
    }
    let ways = Original::whole_msr(0, Some(0), 0xc8b, 0x600);
    let own = Original::whole_msr(0, None, 0x186, 0);
    let mut journal = host.open().unwrap();
    journal.record(&[ways.clone(), own.clone(), Original::whole_msr(2, Some(0), 0xc8b, 0x700)]).unwrap();
    assert_eq!(journal.originals().len(), 2, "one register, through whichever CPU");
    let mut table = Table {
        msrs: [((1, 0xc8b), 0x7f0), ((2, 0xc8b), 0x7f0), ((3, 0xc8b), 0x7f0)].into(),
        ..Table::default()
    };
    let mut restorer = Restorer { root: &host.root, resctrl: None, registers: &mut table };
    let report = restorer.restore(&mut journal).unwrap();
    assert_eq!(
        report.knobs,
        [(own, Outcome::Failed("no such register".into())), (ways, Outcome::Restored)],
        "that of one CPU has to wait for it"
    );
    assert_eq!((table.msrs[&(1, 0xc8b)], table.msrs[&(2, 0xc8b)]), (0x7f0, 0x600));
}

/// What an earlier waykeeper wrote: every MSR whole, every value ours.
#[test]
fn a_journal_of_version_1_is_read() {
    let host = Host::new();
    let lines = [
        format!(r#"{{"host":{{"version":1,"root":"{}","boot":"{BOOT}"}}}}"#, host.root.prefix().display()),
        r#"{"original":{"knob":"msr","cpu":0,"register":3211,"value":1}}"#.to_owned(),
        r#"{"original":{"knob":"pci","address":"0000:3a:00.0","offset":384,"width":1,"mask":128,"value":128}}"#
            .to_owned(),
    ];
    let text: String = lines
        .iter()
        .zip(1..)
        .map(|(json, number)| {
            format!("{:08x} {json}\n", crc32fast::hash(format!("{number} {json}").as_bytes()))
        })
        .collect();
    fs::create_dir_all(host.path.parent().unwrap()).unwrap();
    fs::write(&host.path, text).unwrap();
    assert_eq!(host.open().unwrap().originals(), [msr(0, 1), port_switch()]);
}

/// A group that cannot be seen is not gone: the journal must not go while it may still stand.
#[test]
fn only_a_resctrl_that_is_not_mounted_has_been_reset() {
    let host = Host::new();
    let group = Group::control("wk-a").expect("a name");
    let ours = Original::NoGroup { group };
    let restored = |journal: &mut Journal| {
        let resctrl = mounted(&host.root, "wk-");
        let mut restorer =
            Restorer { root: &host.root, resctrl: resctrl.as_ref(), registers: &mut Table::default() };
        restorer.restore(journal).unwrap()
    };
    let mut journal = host.open().unwrap();
    journal.record(std::slice::from_ref(&ours)).unwrap();
    let mount = host.root.path("/sys/fs/resctrl");
    fs::create_dir_all(mount.parent().unwrap()).unwrap();
    // A place that nobody can look into, root neither (ELOOP).
    std::os::unix::fs::symlink(&mount, &mount).unwrap();
    let report = restored(&mut journal);
    assert!(!report.is_complete() && host.path.exists(), "{report:?}");
    fs::remove_file(&mount).unwrap();
    // Mounted elsewhere: the group is there, and goes.
    fs::create_dir_all(host.root.path("/mnt/rdt/wk-a")).unwrap();
    fs::write(host.root.path("/proc/mounts"), "proc /proc proc rw 0 0\nresctrl /mnt/rdt resctrl rw 0 0\n")
        .unwrap();
    let report = restored(&mut journal);
    assert_eq!(report.knobs, [(ours.clone(), Outcome::Restored)]);
    assert!(!host.root.path("/mnt/rdt/wk-a").exists() && !host.path.exists());
    // Nowhere: unmounting has reset all.
    fs::write(host.root.path("/proc/mounts"), "proc /proc proc rw 0 0\n").unwrap();
    journal.record(std::slice::from_ref(&ours)).unwrap();
    assert_eq!(restored(&mut journal).knobs, [(ours, Outcome::Gone)]);
    assert!(!host.path.exists());
}

/// What was turned to stay outlives the runs after it, which give back what they found.
#[test]
fn what_is_kept_comes_back_only_when_all_is_asked_for() {
    let host = Host::new();
    let mut journal = host.open().unwrap();
    journal.record(&[msr(0, 1), msr(1, 1)]).unwrap();
    journal.keep_all(&[msr(0, 5)]).unwrap();
    assert_eq!((journal.kept(), journal.originals()), (&[msr(0, 1)][..], &[msr(1, 1)][..]));
    drop(journal);
    // A later run: CPU 0's register is found at 5 and turned to 9.
    let mut journal = host.open().unwrap();
    assert_eq!((journal.kept(), journal.originals()), (&[msr(0, 1)][..], &[msr(1, 1)][..]));
    journal.record(&[msr(0, 5)]).unwrap();
    let mut table = Table::default();
    table.msrs.insert((0, 0xc8b), 9);
    table.msrs.insert((1, 0xc8b), 9);
    let mut restorer = Restorer { root: &host.root, resctrl: None, registers: &mut table };
    let report = restorer.restore_passing(&mut journal).unwrap();
    assert_eq!(report.knobs, [(msr(0, 5), Outcome::Restored), (msr(1, 1), Outcome::Restored)]);
    drop(journal);
    let mut journal = host.open().unwrap();
    assert_eq!((journal.kept(), journal.originals()), (&[msr(0, 1)][..], &[][..]));
    let look = waykeeper_linux::journal::look(&host.path, &host.root).unwrap().unwrap();
    assert_eq!(look.originals, 1);
    // Kept once more, the older value stays the original.
    journal.record(&[msr(0, 5)]).unwrap();
    journal.keep_all(&[msr(0, 5)]).unwrap();
    assert_eq!(journal.kept(), [msr(0, 1)]);
    assert_eq!(table.msrs[&(0, 0xc8b)], 5);
    let mut restorer = Restorer { root: &host.root, resctrl: None, registers: &mut table };
    assert_eq!(restorer.restore(&mut journal).unwrap().knobs, [(msr(0, 1), Outcome::Restored)]);
    assert!(table.msrs[&(0, 0xc8b)] == 1 && !host.path.exists());
}

#[test]
fn values_of_an_earlier_boot_are_not_written() {
    let host = Host::new();
    host.open().unwrap().record(&[msr(0, 1)]).unwrap();
    host.boot(LATER);
    let mut journal = host.open().unwrap();
    assert!(journal.is_stale());
    assert!(matches!(journal.record(&[msr(1, 1)]), Err(JournalError::Stale { .. })));
    let mut table = Table::default();
    table.msrs.insert((0, 0xc8b), 5);
    let report =
        Restorer { root: &host.root, resctrl: None, registers: &mut table }.restore(&mut journal).unwrap();
    assert!(report.stale && report.knobs.is_empty() && table.order.is_empty() && !host.path.exists());
    journal.record(&[msr(1, 1)]).unwrap();
    assert!(!journal.is_stale());
}

#[test]
fn a_journal_of_another_tree_is_not_for_this_one() {
    let host = Host::new();
    host.open().unwrap().record(&[msr(0, 1)]).unwrap();
    let error = Journal::open(&host.path, &Root::at("/")).unwrap_err();
    assert!(matches!(&error, JournalError::OtherRoot { wanted, .. } if wanted == "/"), "{error}");
    fs::write(host.root.path("/proc/sys/kernel/random/boot_id"), "garbage\n").unwrap();
    let error = host.open().unwrap_err();
    assert!(
        error.to_string().contains("expected a boot id like") && error.to_string().contains("garbage"),
        "{error}"
    );
}

#[test]
fn a_task_is_known_by_its_start() {
    // The name may hold anything, blanks and brackets too.
    let stat = "4711 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 987654 20";
    assert_eq!(start_in_stat(stat), Some(987_654));
    assert_eq!(start_in_stat("4711 (x) S 1"), None);
    let own = fs::read_to_string("/proc/self/stat").unwrap();
    assert!(start_in_stat(&own).is_some());
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
        // Either it is told, or what is left is a true beginning of it.
        if let Ok(journal) = host.open() {
            prop_assert!(all.starts_with(journal.originals()));
        }
    }
}
