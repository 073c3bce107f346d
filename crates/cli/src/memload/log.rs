//! `--log FILE`: when each command went, as CSV.
//!
//! Must not know how load is made.

use crate::exit::Failure;
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
        let real = fs::canonicalize(path);
        if let Ok(real) = &real {
            if fs::canonicalize(target).is_ok_and(|target| target == *real) {
                return refuse("is the target itself; give another name");
            }
            if !real.is_file() {
                return refuse("is there and no file; give another name");
            }
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !folder.is_dir() {
            return refuse("its folder is not there");
        }
        Ok(Log { path: real.unwrap_or_else(|_| path.to_owned()) })
    }

    /// Writes it, whole or not at all.
    pub fn write(&self, log: &[Logged]) -> Result<(), Failure> {
        let mut partial = self.path.clone().into_os_string();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let done = rows(&partial, log).and_then(|()| fs::rename(&partial, &self.path));
        done.map_err(|why| {
            // What is half written is nobody's.
            let _ = fs::remove_file(&partial);
            Failure::io(format!("--log {}", self.path.display()), &why)
        })
    }
}

fn rows(path: &Path, log: &[Logged]) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(BufWriter::new(File::create(path)?));
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
