//! A disk that is full while the journal is written.
//!
//! Must not know the journal's format.

use crate::journal::*;

#[test]
fn a_full_disk_is_reported_before_a_knob_is_touched_and_leaves_the_journal_whole() {
    let host = Host::new();
    let state = host.path.parent().unwrap();
    fs::create_dir_all(state).unwrap();
    let _disk = SmallDisk::mount(state);
    let mut journal = host.open().unwrap();
    journal.record(&[msr(0, 0x600)]).unwrap();
    // The disk has 16 pages: some hold the directory, the lock file and the first line.
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

fn libc_enospc() -> i32 {
    rustix::io::Errno::NOSPC.raw_os_error()
}

/// A disk of 64 KiB, unmounted when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path) -> SmallDisk {
        let flags = rustix::mount::MountFlags::empty();
        let mounted = rustix::mount::mount("small", at, "tmpfs", flags, Some(c"size=64k,mode=755"));
        mounted.expect("not run: needs root: it mounts a tmpfs");
        SmallDisk(at.to_path_buf())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}
