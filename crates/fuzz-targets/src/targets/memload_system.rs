//! What memload reads of a kernel before it writes: mount points, swap space, free memory. A NUL byte ends each file.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use waykeeper_memload::KernelMounts;

/// A /sys with one disk and a partition, and a /proc whose files each input writes.
static MOUNTS: LazyLock<KernelMounts> = LazyLock::new(|| {
    let folder = PathBuf::from(format!("/dev/shm/waykeeper-fuzz-{}", std::process::id()));
    let mounts = KernelMounts { sys: folder.join("sys"), proc: folder.join("proc") };
    let disk = mounts.sys.join("block/sda");
    std::fs::create_dir_all(disk.join("sda1")).expect("a folder in /dev/shm");
    std::fs::create_dir_all(mounts.proc.join("self")).expect("a folder in /dev/shm");
    std::fs::write(disk.join("dev"), "8:0\n").expect("a file in /dev/shm");
    std::fs::write(disk.join("sda1/dev"), "8:1\n").expect("a file in /dev/shm");
    mounts
});

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    let names = ["self/mountinfo", "swaps", "meminfo"];
    for (name, content) in names.iter().zip(data.splitn(3, |byte| *byte == 0).chain([&[][..]; 3])) {
        std::fs::write(MOUNTS.proc.join(name), content).expect("a file in /dev/shm");
    }
    let disk = MOUNTS.sys.join("block/sda");
    let devices = [disk.clone(), disk.join("sda1")];
    let _ = MOUNTS.mounted(&devices);
    let _ = MOUNTS.swapped_to(&devices, Some(Path::new("/swap")));
    let _ = MOUNTS.available_bytes();
}
