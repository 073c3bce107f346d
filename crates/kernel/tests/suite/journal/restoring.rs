//! Restoring from a journal: last first, only our bits, never over other programs' values, not after a reboot.
//!
//! Registers here are a table; resctrl has its own tests on the virtual host.

use crate::journal::*;
use std::cell::{Ref, RefCell, RefMut};

/// Registers in a table; one cannot be written, one ignores writes.
#[derive(Debug, Default)]
pub struct Table {
    pub msrs: BTreeMap<(u16, u32), u64>,
    pub pci: BTreeMap<(String, u16), u32>,
    pub order: Vec<u16>,
}

const LOCKED: u16 = 7;
const DEAF: u16 = 8;

/// The table, which a restorer and the test share.
#[derive(Debug, Default)]
pub struct TableCell(RefCell<Table>);

impl TableCell {
    pub fn new(table: Table) -> TableCell {
        TableCell(RefCell::new(table))
    }

    pub fn borrow(&self) -> Ref<'_, Table> {
        self.0.borrow()
    }

    pub fn borrow_mut(&self) -> RefMut<'_, Table> {
        self.0.borrow_mut()
    }
}

impl RegisterIo for TableCell {
    fn read(&self, register: &RegisterAddress) -> Result<u64, String> {
        match register {
            RegisterAddress::Msr { cpu, address } => {
                let value = self.borrow().msrs.get(&(cpu.0, *address)).copied();
                value.ok_or_else(|| "no such register".to_owned())
            }
            RegisterAddress::Pci { device, offset, .. } => {
                let value = self.borrow().pci.get(&(device.clone(), *offset)).copied();
                value.map(u64::from).ok_or_else(|| "no such device".to_owned())
            }
        }
    }

    fn write(&self, register: &RegisterAddress, value: u64) -> Result<(), String> {
        match register {
            RegisterAddress::Msr { cpu, address } => {
                self.borrow_mut().order.push(cpu.0);
                match cpu.0 {
                    LOCKED => return Err("not permitted".to_owned()),
                    DEAF => {}
                    _ => drop(self.borrow_mut().msrs.insert((cpu.0, *address), value)),
                }
            }
            RegisterAddress::Pci { device, offset, .. } => {
                self.borrow_mut().pci.insert((device.clone(), *offset), value as u32);
            }
        }
        Ok(())
    }
}

#[test]
fn all_that_can_be_brought_back_is_last_first_and_the_rest_is_reported() {
    let host = Host::new();
    let mut journal = host.open().unwrap();
    let port = port_switch();
    let knobs =
        [msr(0, 1), msr(1, 1), msr(LOCKED, 1), msr(DEAF, 1), msr(9, 1), port.clone(), schemata("", "L3:0=f")];
    journal.record(&knobs).unwrap();
    let table = TableCell::default();
    for (cpu, value) in [(0, 5), (1, 1), (LOCKED, 5), (DEAF, 5)] {
        table.borrow_mut().msrs.insert((cpu, 0xc8b), value);
    }
    // Another program set bit 3 meanwhile; it must stay set.
    table.borrow_mut().pci.insert(("0000:3a:00.0".into(), 0x180), 0x08);
    let report =
        Restorer { root: &host.root, resctrl: None, registers: &table }.restore(&mut journal).unwrap();
    let outcomes: Vec<(&Original, &RestoreOutcome)> =
        report.knobs.iter().map(|(knob, outcome)| (knob, outcome)).collect();
    let deaf = RestoreOutcome::Failed("it was written but reads back as 0x5".into());
    assert_eq!(
        outcomes,
        [
            (&knobs[6], &RestoreOutcome::Gone),
            (&port, &RestoreOutcome::Restored),
            (&msr(9, 1), &RestoreOutcome::Failed("no such register".into())),
            (&msr(DEAF, 1), &deaf),
            (&msr(LOCKED, 1), &RestoreOutcome::Failed("not permitted".into())),
            (&msr(1, 1), &RestoreOutcome::AsItWas),
            (&msr(0, 1), &RestoreOutcome::Restored),
        ]
    );
    assert_eq!(table.borrow().pci[&("0000:3a:00.0".to_owned(), 0x180)], 0x88);
    // A register that reads its original is not written: another program may be using it now.
    assert_eq!(table.borrow().order, [DEAF, LOCKED, 0]);
    assert!(host.path.exists(), "what failed is still to be brought back");
    // The three registers are repaired, and the next try clears the journal.
    for cpu in [LOCKED, DEAF, 9] {
        table.borrow_mut().msrs.insert((cpu, 0xc8b), 1);
    }
    let report =
        Restorer { root: &host.root, resctrl: None, registers: &table }.restore(&mut journal).unwrap();
    assert!(report.is_complete() && !host.path.exists() && journal.originals().is_empty());
    journal.record(&[msr(0, 3)]).unwrap();
    drop(journal);
    assert_eq!(host.open().unwrap().originals(), [msr(0, 3)]);
}

/// Global control of CPU 0 as found: fixed counters 0 and 1 and general counter 7 run for other programs. We set
/// general counters 0 and 1, whose selects had an event that did not count.
#[test]
fn bits_of_others_and_taken_counters_stay_as_they_are() {
    let select = |number: u32| Original::Msr {
        cpu: 0,
        package: None,
        register: 0x186 + number,
        mask: u64::MAX,
        value: 0x0003_412e,
        ownership: OwnershipCheck { ours: vec![0x43_4f2e], claims: vec![] },
    };
    let knobs = [select(0), select(1), counter_bit(0, 0), counter_bit(0, 1)];
    let restored = |select: [u64; 2], global: u64| {
        let host = Host::new();
        let mut journal = host.open().unwrap();
        journal.record(&knobs).unwrap();
        drop(journal);
        // As after a crash: only the file on disk is known.
        let mut journal = host.open().unwrap();
        let table = TableCell::new(Table {
            msrs: [((0, 0x186), select[0]), ((0, 0x187), select[1]), ((0, 0x38f), global)].into(),
            ..Table::default()
        });
        let mut restorer = Restorer { root: &host.root, resctrl: None, registers: &table };
        let report = restorer.restore(&mut journal).unwrap();
        assert!(
            report.is_complete() && !host.path.exists(),
            "what another program owns is no failure: {report:?}"
        );
        let left: Vec<String> = report.left().collect();
        (
            table.borrow().msrs[&(0, 0x186)],
            table.borrow().msrs[&(0, 0x187)],
            table.borrow().msrs[&(0, 0x38f)],
            left,
        )
    };
    // perf started fixed counter 2 and stopped general counter 7 meanwhile.
    let (found, ours) = (0x0003_412e, 0x43_4f2e);
    assert_eq!(restored([ours, ours], 0x7_0000_0003), (found, found, 0x7_0000_0000, vec![]));
    // Another program now counts cycles on counter 1: its event and its bit stay, and both are reported.
    let (first, second, global, left) = restored([ours, 0x53_003c], 0x3_0000_0083);
    assert_eq!((first, second, global), (found, 0x53_003c, 0x3_0000_0082));
    assert_eq!(
        left,
        [
            "MSR 0x38f of CPU 0, bits 0x2: 0x0: left alone: another program wrote MSR 0x187 of CPU 0, which is \
             now 0x53003c",
            "MSR 0x187 of CPU 0: 0x3412e: left alone: another program wrote it, it is now 0x53003c",
        ]
    );
    // That program has ended and left zeros, which no program uses.
    assert_eq!(restored([ours, 0], 0x3_0000_0083), (found, found, 0x3_0000_0080, vec![]));
    // A restore was interrupted between the two: the select has its original, and the bit is still ours.
    assert_eq!(restored([found, found], 0x3_0000_0083), (found, found, 0x3_0000_0080, vec![]));
}

/// An MSR that reads all ones does not answer, so nothing is written because of it.
#[test]
fn ones_alone_are_no_answer() {
    let host = Host::new();
    let mut journal = host.open().unwrap();
    journal.record(&[counter_bit(0, 1)]).unwrap();
    let table = TableCell::new(Table {
        msrs: [((0, 0x187), 0x43_4f2e), ((0, 0x38f), u64::MAX)].into(),
        ..Table::default()
    });
    let mut restorer = Restorer { root: &host.root, resctrl: None, registers: &table };
    let report = restorer.restore(&mut journal).unwrap();
    let (_, why) = report.failures().next().expect("a failure");
    assert_eq!(why, "MSR 0x38f of CPU 0 reads all ones: it does not answer");
    assert!(table.borrow().order.is_empty() && host.path.exists());
}

/// `ddio set --keep` set 0x7f0, and a later run changed it again: the value before both is the original.
#[test]
fn of_a_knob_that_is_recorded_twice_the_older_value_is_restored() {
    let host = Host::new();
    let mut journal = host.open().unwrap();
    let ways = |value| [Original::whole_msr(0, Some(0), 0xc8b, value)];
    journal.record(&ways(0x600)).unwrap();
    journal.keep_all(&ways(0x600)).unwrap();
    journal.record(&ways(0x7f0)).unwrap();
    let table = TableCell::new(Table { msrs: [((0, 0xc8b), 0x7ff)].into(), ..Table::default() });
    let mut restorer = Restorer { root: &host.root, resctrl: None, registers: &table };
    assert!(restorer.restore(&mut journal).unwrap().is_complete());
    assert_eq!(table.borrow().msrs[&(0, 0xc8b)], 0x600);
}

/// The kernel gives an ended task's pid to another one, which is recognised by its start (field 22 of stat).
#[test]
fn a_task_that_has_a_recorded_pid_by_chance_is_not_moved() {
    let host = Host::new();
    let mount = host.root.path("/sys/fs/resctrl");
    fs::create_dir_all(mount.join("info")).unwrap();
    let resctrl = waykeeper_kernel::resctrl::Resctrl::at(&mount, Path::new("/proc/locks"), "waykeeper-");
    let group = Group::control("COS1").unwrap();
    for (started, outcome, tasks) in
        [(2000, RestoreOutcome::Gone, ""), (1000, RestoreOutcome::Restored, "42\n")]
    {
        fs::create_dir_all(mount.join("COS1")).unwrap();
        fs::write(mount.join("COS1/tasks"), "").unwrap();
        fs::create_dir_all(host.root.path("/proc/42")).unwrap();
        let stat = format!("42 (a) b) S {}{started} 0\n", "1 ".repeat(18));
        fs::write(host.root.path("/proc/42/stat"), stat).unwrap();
        let mut journal = host.open().unwrap();
        let task = Original::Task { group: group.clone(), pid: 42, started: 1000 };
        journal.record(std::slice::from_ref(&task)).unwrap();
        let table = TableCell::new(Table::default());
        let mut restorer = Restorer { root: &host.root, resctrl: Some(&resctrl), registers: &table };
        assert_eq!(restorer.restore(&mut journal).unwrap().knobs, [(task, outcome)]);
        assert_eq!(fs::read_to_string(mount.join("COS1/tasks")).unwrap(), tasks);
    }
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
    let table = TableCell::new(Table {
        msrs: [((1, 0xc8b), 0x7f0), ((2, 0xc8b), 0x7f0), ((3, 0xc8b), 0x7f0)].into(),
        ..Table::default()
    });
    let mut restorer = Restorer { root: &host.root, resctrl: None, registers: &table };
    let report = restorer.restore(&mut journal).unwrap();
    assert_eq!(
        report.knobs,
        [(own.clone(), RestoreOutcome::Away("CPU 0 is offline".into())), (ways, RestoreOutcome::Restored)],
        "that of one CPU has to wait for it"
    );
    let reported = ["1 knobs are restored later: CPU 0 is offline"];
    assert!(report.is_complete() && report.away().eq(reported));
    drop(journal);
    let mut journal = host.open().unwrap();
    assert_eq!(journal.originals(), std::slice::from_ref(&own), "nothing else is left to do");
    // The CPU is no longer present, so its registers do not exist.
    fs::write(cpus.join("present"), "1-3\n").unwrap();
    let mut restorer = Restorer { root: &host.root, resctrl: None, registers: &table };
    let report = restorer.restore(&mut journal).unwrap();
    assert_eq!(report.knobs, [(own, RestoreOutcome::Gone)]);
    assert!(!host.path.exists());
    assert_eq!((table.borrow().msrs[&(1, 0xc8b)], table.borrow().msrs[&(2, 0xc8b)]), (0x7f0, 0x600));
}

/// The format of an earlier version: every MSR whole, every value ours.
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
    let mut journal = host.open().unwrap();
    assert_eq!((journal.originals(), journal.damage()), (&[msr(0, 1), port_switch()][..], &[][..]));
    // What is added makes it one of the present format, with a seal.
    journal.record(&[msr(2, 1)]).unwrap();
    drop(journal);
    let text = String::from_utf8(host.bytes()).unwrap();
    assert!(text.contains(r#""version":4"#) && host.seal().exists(), "{text}");
    let journal = host.open().unwrap();
    assert_eq!(journal.originals(), [msr(0, 1), port_switch(), msr(2, 1)]);
    assert_eq!(journal.damage(), []);
}

/// A journal of version 3 has no seal: a cut between two lines cannot be seen, a damaged line can.
#[test]
fn an_old_journal_is_read_with_its_weaker_guarantee() {
    let host = Host::new();
    let mut lines = vec![format!(
        r#"{{"host":{{"version":3,"root":"{}","boot":"{BOOT}"}}}}"#,
        host.root.prefix().display()
    )];
    lines.extend(
        (0..5).map(|cpu| format!(r#"{{"original":{{"knob":"msr","cpu":{cpu},"register":3211,"value":1}}}}"#)),
    );
    let sums = lines.iter().zip(1..).map(|(json, number)| {
        format!("{:08x} {json}\n", crc32fast::hash(format!("{number} {json}").as_bytes()))
    });
    let lines: Vec<String> = sums.collect();
    fs::create_dir_all(host.path.parent().unwrap()).unwrap();
    let read = |text: String| {
        fs::write(&host.path, text).unwrap();
        let journal = host.open().unwrap();
        (journal.originals().len(), journal.damage().to_vec())
    };
    for count in 1..=6 {
        let torn = lines.get(count).map_or("", |line| &line[..line.len() / 2]);
        assert_eq!(read(lines[..count].concat() + torn), (count - 1, vec![]));
    }
    let (found, damage) = read(lines.concat().replacen("\"cpu\":1,", "\"cpu\":7,", 1));
    assert_eq!(found, 4);
    assert!(
        damage[0].to_string().starts_with("line 3 is damaged (its checksum is another one)"),
        "{damage:?}"
    );
    assert_eq!(damage[1..], [JournalDamage::Missing { first: 3, last: 3 }]);
    // A line that is missing, and two lines that became one.
    let (found, damage) = read([&lines[..2], &lines[3..]].concat().concat());
    assert_eq!((found, damage), (4, vec![JournalDamage::Missing { first: 3, last: 3 }]));
    let (found, damage) = read(lines.concat().replacen("}}\n", "}}?", 3).replacen("}}?", "}}\n", 2));
    assert_eq!(found, 3, "{damage:?}");
}

/// A group that cannot be seen may still exist, so the journal must stay.
#[test]
fn only_a_resctrl_that_is_not_mounted_has_been_reset() {
    let host = Host::new();
    let group = Group::control("wk-a").expect("a name");
    let ours = Original::NoGroup { group };
    let restored = |journal: &mut Journal| {
        let resctrl = mounted(&host.root, "wk-");
        let mut restorer =
            Restorer { root: &host.root, resctrl: resctrl.as_ref(), registers: &TableCell::default() };
        restorer.restore(journal).unwrap()
    };
    let mut journal = host.open().unwrap();
    journal.record(std::slice::from_ref(&ours)).unwrap();
    let mount = host.root.path("/sys/fs/resctrl");
    fs::create_dir_all(mount.parent().unwrap()).unwrap();
    // A path that not even root can read (ELOOP).
    std::os::unix::fs::symlink(&mount, &mount).unwrap();
    let report = restored(&mut journal);
    assert!(!report.is_complete() && host.path.exists(), "{report:?}");
    fs::remove_file(&mount).unwrap();
    // Mounted elsewhere: the group exists and is removed.
    fs::create_dir_all(host.root.path("/mnt/rdt/wk-a")).unwrap();
    fs::write(host.root.path("/proc/mounts"), "proc /proc proc rw 0 0\nresctrl /mnt/rdt resctrl rw 0 0\n")
        .unwrap();
    let report = restored(&mut journal);
    assert_eq!(report.knobs, [(ours.clone(), RestoreOutcome::Restored)]);
    assert!(!host.root.path("/mnt/rdt/wk-a").exists() && !host.path.exists());
    // Not mounted: unmounting has reset everything.
    fs::write(host.root.path("/proc/mounts"), "proc /proc proc rw 0 0\n").unwrap();
    journal.record(std::slice::from_ref(&ours)).unwrap();
    assert_eq!(restored(&mut journal).knobs, [(ours, RestoreOutcome::Gone)]);
    assert!(!host.path.exists());
}

/// A knob value that is kept on purpose outlives later runs, which restore the value that they found.
#[test]
fn what_is_kept_comes_back_only_when_all_is_asked_for() {
    let host = Host::new();
    let mut journal = host.open().unwrap();
    journal.record(&[msr(0, 1), msr(1, 1)]).unwrap();
    journal.keep_all(&[msr(0, 5)]).unwrap();
    assert_eq!((journal.kept(), journal.originals()), (&[msr(0, 1)][..], &[msr(1, 1)][..]));
    drop(journal);
    // A later run: CPU 0's register is found at 5 and changed to 9.
    let mut journal = host.open().unwrap();
    assert_eq!((journal.kept(), journal.originals()), (&[msr(0, 1)][..], &[msr(1, 1)][..]));
    journal.record(&[msr(0, 5)]).unwrap();
    let table = TableCell::default();
    table.borrow_mut().msrs.insert((0, 0xc8b), 9);
    table.borrow_mut().msrs.insert((1, 0xc8b), 9);
    let mut restorer = Restorer { root: &host.root, resctrl: None, registers: &table };
    let report = restorer.restore_passing(&mut journal).unwrap();
    assert_eq!(report.knobs, [(msr(0, 5), RestoreOutcome::Restored), (msr(1, 1), RestoreOutcome::Restored)]);
    drop(journal);
    let mut journal = host.open().unwrap();
    assert_eq!((journal.kept(), journal.originals()), (&[msr(0, 1)][..], &[][..]));
    let look = waykeeper_kernel::journal::summarize(&host.path, &host.root).unwrap().unwrap();
    assert_eq!(look.originals, [msr(0, 1)]);
    // Kept once more, the oldest value stays the original.
    journal.record(&[msr(0, 5)]).unwrap();
    journal.keep_all(&[msr(0, 5)]).unwrap();
    assert_eq!(journal.kept(), [msr(0, 1)]);
    assert_eq!(table.borrow().msrs[&(0, 0xc8b)], 5);
    let mut restorer = Restorer { root: &host.root, resctrl: None, registers: &table };
    assert_eq!(restorer.restore(&mut journal).unwrap().knobs, [(msr(0, 1), RestoreOutcome::Restored)]);
    assert!(table.borrow().msrs[&(0, 0xc8b)] == 1 && !host.path.exists());
}

#[test]
fn values_of_an_earlier_boot_are_not_written() {
    let host = Host::new();
    host.open().unwrap().record(&[msr(0, 1)]).unwrap();
    host.boot(LATER);
    let mut journal = host.open().unwrap();
    assert!(journal.is_stale());
    assert!(matches!(journal.record(&[msr(1, 1)]), Err(JournalError::Stale { .. })));
    let table = TableCell::default();
    table.borrow_mut().msrs.insert((0, 0xc8b), 5);
    let report =
        Restorer { root: &host.root, resctrl: None, registers: &table }.restore(&mut journal).unwrap();
    assert!(
        report.stale && report.knobs.is_empty() && table.borrow().order.is_empty() && !host.path.exists()
    );
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
    let host = Host::new();
    let stat = host.root.path("/proc/4711/stat");
    assert!(task_start(&Root::at(host.root.path("/none")), 4711).is_err(), "without procfs no task is seen");
    fs::create_dir_all(stat.parent().unwrap()).unwrap();
    assert_eq!(task_start(&host.root, 4711), Ok(None));
    // The name may contain any characters, also spaces and brackets.
    fs::write(&stat, "4711 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 987654 20").unwrap();
    assert_eq!(task_start(&host.root, 4711), Ok(Some(987_654)));
    fs::write(&stat, "4711 (x) S 1").unwrap();
    let error = task_start(&host.root, 4711).unwrap_err().to_string();
    assert!(error.contains("4711/stat: found \"4711 (x) S 1\""), "{error}");
    assert!(matches!(task_start(&Root::at("/"), std::process::id()), Ok(Some(1..))));
}

/// Whether the pid went to another task is not known, so the record stays.
#[test]
fn a_task_whose_stat_cannot_be_read_is_not_taken_for_ended() {
    let host = Host::new();
    let mount = host.root.path("/sys/fs/resctrl");
    fs::create_dir_all(mount.join("info")).unwrap();
    fs::create_dir_all(mount.join("COS1")).unwrap();
    fs::write(mount.join("COS1/tasks"), "").unwrap();
    let resctrl = waykeeper_kernel::resctrl::Resctrl::at(&mount, Path::new("/proc/locks"), "waykeeper-");
    // Reading a directory is refused, as reading a file is when the machine has no memory or no file left.
    fs::create_dir_all(host.root.path("/proc/42/stat")).unwrap();
    let mut journal = host.open().unwrap();
    let task = Original::Task { group: Group::control("COS1").unwrap(), pid: 42, started: 1000 };
    journal.record(std::slice::from_ref(&task)).unwrap();
    let table = TableCell::new(Table::default());
    let mut restorer = Restorer { root: &host.root, resctrl: Some(&resctrl), registers: &table };
    let report = restorer.restore(&mut journal).unwrap();
    assert!(
        matches!(&report.knobs[0].1, RestoreOutcome::Failed(why) if why.contains("42/stat")),
        "{report:?}"
    );
    assert_eq!(journal.originals(), [task]);
}
