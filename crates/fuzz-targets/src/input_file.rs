//! The fuzzer's bytes as a file, for readers that take a path.
//!
//! The file is in memory (memfd_create(2)) and is used again for every input. Must not know what is read from it.

use rustix::fs::MemfdFlags;
use std::cell::RefCell;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

struct InputFile {
    file: File,
    path: PathBuf,
}

impl InputFile {
    fn new() -> InputFile {
        let file = rustix::fs::memfd_create("fuzz-input", MemfdFlags::CLOEXEC).expect("memfd_create(2)");
        let file = File::from(file);
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        InputFile { file, path }
    }
}

thread_local! {
    /// Two files: a reader may be given another one while it reads the first.
    static FILES: [RefCell<InputFile>; 2] = [RefCell::new(InputFile::new()), RefCell::new(InputFile::new())];
}

/// Calls `read` with the path of a file that has this content.
pub fn with_file<T>(content: &[u8], read: impl FnOnce(&Path) -> T) -> T {
    FILES.with(|files| {
        let mut free = files.iter().filter_map(|file| file.try_borrow_mut().ok());
        let own = free.next().expect("a free file");
        own.file.set_len(0).expect("ftruncate(2)");
        own.file.write_all_at(content, 0).expect("pwrite(2)");
        read(&own.path)
    })
}
