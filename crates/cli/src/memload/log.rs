//! `--log FILE`: when each command went, as CSV.
//!
//! Must not know how load is made.

use crate::exit::Failure;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use waykeeper_memload::Logged;

/// A file that may be written when the run is over. Asked for before it, so that no run is made for nothing.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
}

impl Log {
    /// At this path, which is not the target's.
    pub fn new(path: &Path, target: &Path) -> Result<Log, Failure> {
        let refuse = |why: &str| Err(Failure::bad_input(format!("--log {}: {why}", path.display())));
        let Ok(real) = place(path) else {
            return refuse("its folder is not there");
        };
        let (target, partial) = (place(target), partial(&real));
        if target.as_ref().is_ok_and(|target| *target == real) {
            return refuse("is the target itself; give another name");
        }
        if target.is_ok_and(|target| target == partial) {
            return refuse("is written under the name of the target first; give another name");
        }
        if fs::symlink_metadata(&real).is_ok_and(|found| !found.is_file()) {
            return refuse("is there and no file; give another name");
        }
        if fs::symlink_metadata(&partial).is_ok() {
            let why =
                format!("{} is there, under which name it is written first; move it", partial.display());
            return refuse(&why);
        }
        // A run is not made for nothing: a file system that is read-only says so to root too.
        let folder = real.parent().unwrap_or(Path::new("/"));
        accessat(CWD, folder, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
            .map_err(|why| Failure::io(format!("--log {}: its folder", path.display()), &why.into()))?;
        Ok(Log { path: real })
    }

    /// Writes it, whole or not at all.
    pub fn write(&self, log: &[Logged]) -> Result<(), Failure> {
        let partial = partial(&self.path);
        let failed = |why: io::Error| Failure::io(format!("--log {}", self.path.display()), &why);
        // Only what is made here is written and, where that fails, removed: a file that has come meanwhile is somebody's.
        let file = File::create_new(&partial).map_err(failed)?;
        let done = rows(file, log).and_then(|()| fs::rename(&partial, &self.path));
        done.map_err(|why| {
            // What is half written is nobody's.
            let _ = fs::remove_file(&partial);
            failed(why)
        })
    }
}

/// Where a path leads, also if nothing is there yet.
fn place(path: &Path) -> io::Result<PathBuf> {
    fs::canonicalize(path).or_else(|why| {
        let name = path.file_name().ok_or(why)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::canonicalize(folder).map(|folder| folder.join(name))
    })
}

/// The name under which it is written until it is whole.
fn partial(path: &Path) -> PathBuf {
    let mut partial = path.to_owned().into_os_string();
    partial.push(".partial");
    partial.into()
}

fn rows(file: File, log: &[Logged]) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(BufWriter::new(file));
    csv.write_record(["sent_ns", "took_ns", "op", "buffer_byte", "device_byte", "bytes"])?;
    for Logged { sent_ns, took_ns, io } in log {
        let numbers =
            [*sent_ns, *took_ns, io.offset as u64, io.place, u64::from(io.bytes)].map(|n| n.to_string());
        let [sent, took, offset, place, bytes] = &numbers;
        csv.write_record([sent, took, &io.deed.to_string(), offset, place, bytes])?;
    }
    let mut out = csv.into_inner().map_err(|why| why.into_error())?;
    out.flush()
}
