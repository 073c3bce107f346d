//! Permission to load: kinds of paths are recognised, and nothing is written without consent.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use waykeeper_load::{MemoryDirection, Pattern};
use waykeeper_memload::{Consent, EngineKind, KernelMounts, LoadPlan, Ready, Target, TargetKind};

fn prepare(path: &Path, plan: LoadPlan, consent: &Consent, system: &KernelMounts) -> Result<Ready, String> {
    let target = Target::inspect(path, system).map_err(|error| error.to_string())?;
    let _forks = crate::FORKS.read();
    Ready::new(target, plan, consent, system, &|| false).map_err(|error| error.to_string())
}

fn refused(path: &Path, plan: LoadPlan, consent: &Consent) -> String {
    prepare(path, plan, consent, &KernelMounts::default()).map(|_| ()).unwrap_err()
}

fn file(bytes: usize) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, vec![0x5A; bytes]).unwrap();
    (folder, path)
}

fn writes() -> LoadPlan {
    LoadPlan { op: MemoryDirection::Read, ..LoadPlan::default() }
}

#[test]
fn a_file_is_written_only_where_asked_and_never_cut() {
    let (_folder, path) = file(1 << 20);
    let reported = refused(&path, writes(), &Consent::default());
    assert!(reported.contains("holds 1048576 B") && reported.contains("--overwrite"), "{reported}");
    let create = Consent { create: Some(4096), ..Consent::default() };
    assert!(refused(&path, LoadPlan::default(), &create).contains("it already exists"));
    assert_eq!(std::fs::read(&path).unwrap(), vec![0x5A; 1 << 20]);
    // Reads, flushes and `noop` need no consent.
    for pattern in [Pattern::Random, Pattern::Flush, Pattern::Noop] {
        prepare(
            &path,
            LoadPlan { pattern, ..LoadPlan::default() },
            &Consent::default(),
            &KernelMounts::default(),
        )
        .unwrap();
    }
    prepare(
        &path,
        LoadPlan { pattern: Pattern::Flush, ..writes() },
        &Consent::default(),
        &KernelMounts::default(),
    )
    .unwrap();
}

#[test]
fn a_file_that_is_not_there_is_made_only_where_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new");
    let reported = refused(&path, LoadPlan::default(), &Consent::default());
    assert!(reported.contains("--create SIZE"), "{reported}");
    // Invalid sizes are refused before a file is made.
    let create = |bytes| Consent { create: Some(bytes), ..Consent::default() };
    let depth = LoadPlan { depth: 0, ..LoadPlan::default() };
    assert!(refused(&path, depth, &create(1 << 20)).starts_with("--depth is 0; "));
    let reported = refused(&path, LoadPlan::default(), &create(1_000_001));
    assert_eq!(reported, "--create is 1000001; it must be whole blocks of 4096 B");
    let reported = refused(&path, LoadPlan::default(), &create(8192));
    let wanted = "must have at least 126976 B, the most that a command moves; give a larger one";
    assert_eq!(reported, format!("--create is 8192; {} {wanted}", path.display()));
    assert!(
        refused(&path, LoadPlan::default(), &create(0))
            .starts_with("--create is 0; a file of 0 B takes no commands")
    );
    // After a refusal no file remains.
    let engine = LoadPlan { engine: Some(EngineKind::NvmeIoctl), ..LoadPlan::default() };
    let reported = refused(&path, engine, &create(1 << 20));
    assert!(reported.contains("the engine nvme-ioctl cannot load a file; uring can"), "{reported}");
    let node = LoadPlan { numa: Some(1023), ..LoadPlan::default() };
    assert!(refused(&path, node, &create(1 << 20)).contains("NUMA node 1023"));
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    let ready = prepare(&path, LoadPlan::default(), &create(1 << 20), &KernelMounts::default()).unwrap();
    assert!(ready.notes()[1].contains("it stays after the run"), "{:?}", ready.notes());
    let content = std::fs::read(&path).unwrap();
    assert_eq!(content.len(), 1 << 20);
    let zeros = content.chunks(4096).filter(|block| block.iter().all(|byte| *byte == 0)).count();
    assert_eq!(zeros, 0, "every block was written");
    // A dangling symbolic link would create a file elsewhere.
    symlink(folder.path().join("elsewhere"), folder.path().join("link")).unwrap();
    let reported = refused(&folder.path().join("link"), LoadPlan::default(), &create(4096));
    assert!(reported.contains("it is a symbolic link to a file that does not exist"), "{reported}");
}

#[test]
fn sizes_that_do_not_fit_are_reported_with_what_would() {
    let (_folder, path) = file(1 << 20);
    let reported = |plan| refused(&path, plan, &Consent::default());
    let odd = reported(LoadPlan { block_bytes: Some(1000), ..LoadPlan::default() });
    assert!(
        odd.starts_with("--block-size is 1000; ") && odd.contains("it must be a multiple of 512 B"),
        "{odd}"
    );
    let odd = reported(LoadPlan { buffer_bytes: Some(10_000), ..LoadPlan::default() });
    assert_eq!(odd, "--buffer is 10000; it must be whole blocks of 4096 B");
    let small = reported(LoadPlan { buffer_bytes: Some(4096), ..LoadPlan::default() });
    assert_eq!(small, "--buffer is 4096; the pattern `random` needs at least 131072 B here");
    assert!(reported(LoadPlan { workers: 0, ..LoadPlan::default() }).starts_with("--workers is 0; "));
    let all = reported(LoadPlan { workers: 8, depth: 65_535, ..LoadPlan::default() });
    assert_eq!(
        all,
        "--depth is 65535; with --workers 8 that makes 524280 outstanding commands, and at most 262144 are \
         possible"
    );
    assert!(reported(LoadPlan { slots: 0, ..LoadPlan::default() }).starts_with("--slots is 0; "));
    assert!(
        reported(LoadPlan { limit_commands: Some(f64::NAN), ..LoadPlan::default() })
            .contains("--limit-commands")
    );
    let many = reported(LoadPlan { max_blocks: Some(1 << 20), ..LoadPlan::default() });
    // A file takes at most 512 MiB per command.
    assert!(
        many.starts_with("--max-blocks is 1048576; ") && many.contains("moves 1 to 131072 blocks of 4096 B"),
        "{many}"
    );
    let long = reported(LoadPlan { block_bytes: Some(1 << 30), ..LoadPlan::default() });
    assert!(long.contains("moves at most 536870912 B"), "{long}");
    let shared = refused(&path, LoadPlan::default(), &Consent { shared: true, ..Consent::default() });
    assert!(shared.contains("--shared is for devices, but this is a file"), "{shared}");
    for (plan, option) in [
        (LoadPlan { verify: true, pattern: Pattern::Flush, ..LoadPlan::default() }, "--verify"),
        (LoadPlan { blocks: Some(1), pattern: Pattern::Flush, ..LoadPlan::default() }, "--blocks"),
        (LoadPlan { commands: Some(1), pattern: Pattern::Noop, ..LoadPlan::default() }, "--commands"),
        (LoadPlan { stride: 2, ..LoadPlan::default() }, "--stride"),
        (LoadPlan { max_blocks: Some(2), pattern: Pattern::Single, ..LoadPlan::default() }, "--max-blocks"),
    ] {
        let stray = reported(plan);
        assert!(stray.starts_with(&format!("{option} has no meaning for the pattern ")), "{stray}");
    }
    let flush = LoadPlan { pattern: Pattern::Flush, ..LoadPlan::default() };
    for (plan, option) in
        [(LoadPlan { depth: 2, ..flush.clone() }, "--depth"), (LoadPlan { workers: 2, ..flush }, "--workers")]
    {
        let merged = reported(plan);
        assert!(
            merged.starts_with(&format!("{option} is 2; ")) && merged.contains("the kernel merges flushes"),
            "{merged}"
        );
    }
    let slots = reported(LoadPlan { slots: 10, ..LoadPlan::default() });
    assert!(slots.contains("divides --limit-commands or --limit-bytes"), "{slots}");
    // A machine with less memory: mmap would succeed, and the kernel would kill a program when the pages are used.
    let proc = tempfile::tempdir().unwrap();
    std::fs::write(proc.path().join("meminfo"), "MemTotal: 9000 kB\nMemAvailable:    4096 kB\n").unwrap();
    let few = KernelMounts { proc: proc.path().to_owned(), ..KernelMounts::default() };
    let target = Target::inspect(&path, &few).unwrap();
    let plan = LoadPlan { buffer_bytes: Some((4 << 20) + 4096), ..LoadPlan::default() };
    let large = Ready::new(target, plan, &Consent::default(), &few, &|| false).unwrap_err().to_string();
    assert_eq!(
        large,
        "the buffer needs 4198400 B, and 4194304 B of memory are available; make it smaller with --buffer"
    );
    let short = tempfile::NamedTempFile::new().unwrap();
    let reported = refused(short.path(), LoadPlan::default(), &Consent::default());
    let wanted =
        format!("the size of the target is 0; {} must have at least 126976 B", short.path().display());
    assert!(reported.starts_with(&wanted), "{reported}");
}

#[test]
fn what_is_no_target_is_called_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let reported =
        |path: &str| Target::inspect(Path::new(path), &KernelMounts::default()).unwrap_err().to_string();
    assert!(reported(folder.path().to_str().unwrap()).contains("is a folder"));
    assert!(reported("/dev/null").contains("is a character device of another kind; give an NVMe namespace"));
    assert!(reported("/nowhere/at/all").contains("No such file"));
}

/// A disk `wk0` with two partitions, and /proc files for mounts and swap, in a tree of its own. The device node is
/// arbitrary, because the data come from the tree.
struct Fake {
    _folder: tempfile::TempDir,
    system: KernelMounts,
    node: PathBuf,
    target: Target,
}

impl Fake {
    fn new() -> Fake {
        let folder = tempfile::tempdir().unwrap();
        let (sys, proc) = (folder.path().join("sys"), folder.path().join("proc"));
        let disk = sys.join("devices/wk0");
        let put = |path: PathBuf, text: &str| {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put(disk.join("dev"), "259:0\n");
        put(disk.join("size"), "8192\n");
        put(disk.join("queue/logical_block_size"), "512\n");
        put(disk.join("queue/max_sectors_kb"), "128\n");
        put(disk.join("queue/max_segments"), "33\n");
        put(disk.join("device/serial"), "WK-1   \n");
        put(disk.join("device/model"), "Model T\n");
        for part in ["wk0p1", "wk0p2"] {
            put(disk.join(part).join("partition"), "1\n");
            put(disk.join(part).join("dev"), &format!("259:{}\n", &part[4..]));
            put(disk.join(part).join("size"), "2048\n");
        }
        put(proc.join("self/mountinfo"), "22 1 0:21 / / rw - ext4 /dev/root rw\n");
        put(proc.join("swaps"), "Filename Type Size Used Priority\n");
        put(proc.join("1/fd/none"), "");
        // A number in the range of partitions, far beyond those in use: there is no such device.
        let node = folder.path().join("node");
        let number = rustix::fs::makedev(259, 1_000_000);
        let kind = rustix::fs::FileType::BlockDevice;
        rustix::fs::mknodat(rustix::fs::CWD, &node, kind, rustix::fs::Mode::from_raw_mode(0o600), number)
            .expect("not run: needs root");
        std::fs::create_dir_all(sys.join("dev/block")).unwrap();
        symlink(&disk, sys.join("dev/block/259:1000000")).unwrap();
        let system = KernelMounts { sys, proc };
        let target = Target::inspect(&node, &system).unwrap();
        Fake { _folder: folder, system, node, target }
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.system.sys.parent().unwrap().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn reported(&self, plan: LoadPlan, consent: &Consent) -> String {
        prepare(&self.node, plan, consent, &self.system).map(|_| ()).unwrap_err()
    }
}

#[test]
fn a_block_device_is_read_out_of_sysfs() {
    let fake = Fake::new();
    let Target { kind, bytes, lba_bytes, max_bytes, .. } = fake.target;
    assert_eq!((kind, bytes, lba_bytes, max_bytes), (TargetKind::Block, 4 << 20, 512, 128 << 10));
    assert_eq!(fake.target.serial.as_deref(), Some("WK-1"));
    assert_eq!(fake.target.to_string(), "block device, Model T, serial WK-1, 4194304 B in blocks of 512 B");
    // 32 pages hold 128 KiB only if a command begins with a page.
    fake.put("sys/devices/wk0/queue/max_segments", "32\n");
    for (block, most) in [(4096, 32), (512, 248)] {
        let plan = LoadPlan { block_bytes: Some(block), max_blocks: Some(most + 1), ..LoadPlan::default() };
        let reported = fake.reported(plan, &Consent::default());
        assert!(reported.contains(&format!("moves 1 to {most} blocks of {block} B")), "{reported}");
    }
}

#[test]
fn a_device_is_written_only_by_its_serial_number() {
    let fake = Fake::new();
    let reported = fake.reported(writes(), &Consent::default());
    assert!(reported.contains("Model T") && reported.contains("add --destroy-data-on WK-1"), "{reported}");
    let named = |serial: &str| Consent { destroy_data_on: Some(serial.to_owned()), ..Consent::default() };
    let reported = fake.reported(writes(), &named("WK-2"));
    assert!(
        reported.contains("names `WK-2`, but the serial number here is `WK-1`; nothing was written"),
        "{reported}"
    );
    let reported = fake.reported(writes(), &Consent { overwrite: true, ..Consent::default() });
    assert!(reported.contains("--overwrite is for files"), "{reported}");
    // With the correct serial number, only the missing device is left as an error.
    let reported = fake.reported(writes(), &named("WK-1"));
    assert!(reported.contains("No such device"), "{reported}");
    let (_folder, path) = file(1 << 20);
    let reported = refused(&path, writes(), &named("WK-1"));
    assert!(reported.contains("--destroy-data-on is for devices"), "{reported}");
}

#[test]
fn a_disk_of_scsi_is_named_by_its_serial_number_as_well() {
    let fake = Fake::new();
    let serial = || Target::inspect(&fake.node, &fake.system).unwrap().serial;
    std::fs::remove_file(fake.system.sys.join("devices/wk0/device/serial")).unwrap();
    assert_eq!(serial().as_deref(), Some("wk0"), "its kernel name, which is better than none");
    fake.put("sys/devices/wk0/device/wwid", "naa.5000c500a1b2c3d4\n");
    assert_eq!(serial().as_deref(), Some("naa.5000c500a1b2c3d4"));
    // As a disk reports it; text after the stated length is ignored.
    fake.put("sys/devices/wk0/device/vpd_pg80", "\0\u{1}\0\u{8}  Z1D5QLrest");
    assert_eq!(serial().as_deref(), Some("Z1D5QL"));
}

#[test]
fn what_another_process_has_open_for_writing_is_not_written() {
    let consent = Consent { destroy_data_on: Some("WK-1".to_owned()), ..Consent::default() };
    let fake = Fake::new();
    let null = fake.node.with_file_name("null");
    std::fs::create_dir_all(fake.system.proc.join("77/fd")).unwrap();
    symlink(&null, fake.system.proc.join("77/fd/9")).unwrap();
    fake.put("proc/77/comm", "qemu-system-x86\n");
    // A partition of the disk, by a node with another name.
    let block = rustix::fs::FileType::BlockDevice;
    let number = rustix::fs::makedev(259, 2);
    rustix::fs::mknodat(rustix::fs::CWD, &null, block, rustix::fs::Mode::from_raw_mode(0o600), number)
        .unwrap();
    fake.put("proc/77/fdinfo/9", "pos:\t0\nflags:\t02100002\n");
    let reported = fake.reported(writes(), &consent);
    assert!(
        reported.contains("process 77 (qemu-system-x86) has it open for writing; end that process first"),
        "{reported}"
    );
    assert!(fake.reported(LoadPlan::default(), &Consent::default()).contains("No such device"), "reading it");
    fake.put("proc/77/fdinfo/9", "pos:\t0\nflags:\t02100000\n");
    assert!(
        fake.reported(writes(), &consent).contains("No such device"),
        "a process that only reads does not refuse a run"
    );
    // A process with invisible descriptors could be a writer.
    std::fs::remove_dir_all(fake.system.proc.join("77/fd")).unwrap();
    fake.put("proc/77/fd", "");
    let reported = fake.reported(writes(), &consent);
    assert!(
        reported
            .contains("another program uses it: only root can see what processes of other users have open"),
        "{reported}"
    );
    // A file that another process has open, and not only this one.
    let (_folder, path) = file(1 << 20);
    let open = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let agreed = Consent { overwrite: true, ..Consent::default() };
    prepare(&path, writes(), &agreed, &KernelMounts::default()).unwrap();
    let mut other = std::process::Command::new("cat");
    let forks = crate::FORKS.write();
    let mut other = other.stdin(std::process::Stdio::piped()).stdout(open).spawn().unwrap();
    drop(forks);
    let reported = refused(&path, writes(), &agreed);
    assert!(reported.contains(&format!("process {} (", other.id())), "{reported}");
    prepare(&path, LoadPlan::default(), &Consent::default(), &KernelMounts::default()).unwrap();
    drop(other.stdin.take());
    other.wait().unwrap();
    prepare(&path, writes(), &agreed, &KernelMounts::default()).unwrap();
}

#[test]
fn what_is_set_read_only_is_not_written() {
    let consent = Consent { destroy_data_on: Some("WK-1".to_owned()), ..Consent::default() };
    for (file, device) in [("ro", "wk0"), ("wk0p2/ro", "wk0p2")] {
        let fake = Fake::new();
        fake.put(&format!("sys/devices/wk0/{file}"), "1\n");
        let reported = fake.reported(writes(), &consent);
        assert!(reported.contains(&format!("{device} is set read-only")), "{reported}");
        assert!(fake.reported(LoadPlan::default(), &Consent::default()).contains("No such device"));
        fake.put(&format!("sys/devices/wk0/{file}"), "0\n");
        assert!(fake.reported(writes(), &consent).contains("No such device"));
    }
}

#[test]
fn a_device_in_use_is_refused_and_its_user_named() {
    let read = LoadPlan::default;
    let none = Consent::default();
    let fake = Fake::new();
    fake.put("proc/self/mountinfo", "30 1 259:2 / /mnt/my\\040data rw shared:1 - xfs /dev/wk0p2 rw\n");
    let reported = fake.reported(read(), &none);
    assert!(
        reported
            .contains("wk0p2 is mounted on /mnt/my data; unmount it first, or read it while it is mounted"),
        "{reported}"
    );
    // btrfs has device numbers of its own.
    fake.put("proc/self/mountinfo", "30 1 0:55 / /data rw - btrfs /dev/wk0p1 rw\n");
    assert!(fake.reported(read(), &none).contains("wk0p1 is mounted on /data"));
    let fake = Fake::new();
    fake.put("sys/devices/wk0/wk0p1/holders/dm-0/dev", "253:0\n");
    assert!(fake.reported(read(), &none).contains("wk0p1 is held by dm-0"));
    let fake = Fake::new();
    fake.put("proc/swaps", "Filename Type Size Used Priority\n/dev/wk0p1 partition 1 0 -2\n");
    assert!(fake.reported(read(), &none).contains("swap space"));
    // With `shared` a device in use may be read; only the open fails here.
    let reported = fake.reported(read(), &Consent { shared: true, ..Consent::default() });
    assert!(reported.contains("cannot be opened for reading"), "{reported}");
    let reported =
        fake.reported(writes(), &Consent { shared: true, destroy_data_on: Some("WK-1".into()), ..none });
    assert!(reported.contains("swap space"), "{reported}");
}

/// A tmpfs of its own.
struct InMemory(tempfile::TempDir);

impl Drop for InMemory {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_file_in_memory_is_no_target_or_said_to_be_none() {
    use rustix::mount::{MountFlags, mount};
    let folder = tempfile::tempdir().unwrap();
    mount("waykeeper-test", folder.path(), "tmpfs", MountFlags::empty(), None).expect("not run: needs root");
    let folder = InMemory(folder);
    let path = folder.0.path().join("file");
    let consent = Consent { create: Some(1 << 20), ..Consent::default() };
    // Before Linux 6.6 tmpfs has no O_DIRECT.
    match prepare(&path, LoadPlan::default(), &consent, &KernelMounts::default()) {
        Ok(ready) => {
            let notes = ready.notes().join("\n");
            assert!(notes.contains("the file is in memory (tmpfs)"), "{notes}");
        }
        Err(reported) => {
            assert!(reported.contains("has no O_DIRECT"), "{reported}");
            assert!(!path.exists(), "nothing can be done with it");
        }
    }
}
