//! What memload reads of a kernel before it writes: mount points, swap space, free memory. A NUL byte ends each file.

use std::path::Path;
use tempfile::TempDir;
use waykeeper_memload::KernelMounts;

thread_local! {
    /// The folder, which is removed with the thread, and what is in it.
    static MOUNTED: (TempDir, KernelMounts) = mounted();
}

/// A /sys with one disk and a partition, and a /proc whose files each input writes.
fn mounted() -> (TempDir, KernelMounts) {
    let folder = tempfile::Builder::new().prefix("waykeeper-fuzz-").tempdir_in("/dev/shm").expect("/dev/shm");
    let mounts = KernelMounts { sys: folder.path().join("sys"), proc: folder.path().join("proc") };
    let disk = mounts.sys.join("block/sda");
    std::fs::create_dir_all(disk.join("sda1")).expect("a folder in /dev/shm");
    std::fs::create_dir_all(mounts.proc.join("self")).expect("a folder in /dev/shm");
    std::fs::write(disk.join("dev"), "8:0\n").expect("a file in /dev/shm");
    std::fs::write(disk.join("sda1/dev"), "8:1\n").expect("a file in /dev/shm");
    (folder, mounts)
}

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    MOUNTED.with(|(_, mounts)| {
        let names = ["self/mountinfo", "swaps", "meminfo"];
        for (name, content) in names.iter().zip(data.splitn(3, |byte| *byte == 0).chain([&[][..]; 3])) {
            std::fs::write(mounts.proc.join(name), content).expect("a file in /dev/shm");
        }
        let disk = mounts.sys.join("block/sda");
        let devices = [disk.clone(), disk.join("sda1")];
        let _ = mounts.mounted(&devices);
        let _ = mounts.swapped_to(&devices, Some(Path::new("/swap")));
        let _ = mounts.available_bytes();
    });
}
