//! `--log FILE`: the send time and latency of each command, as CSV.
//!
//! Must not know how load is made.

use crate::exit::Failure;
use crate::outputs;
use std::fs;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use waykeeper_memload::Logged;
use waykeeper_output_file::{OutputFile, is_stdout};

/// A log file that is written after the run. It is begun before the run, so that no run is lost.
#[derive(Debug)]
pub struct LogFile {
    name: String,
    file: OutputFile,
}

impl LogFile {
    /// At this path, which must not be the target's. An existing log may be of a run of hours: it is not replaced.
    pub fn new(path: &Path, target: &Path) -> Result<LogFile, Failure> {
        let name = format!("--log {}", path.display());
        if place(path).is_ok_and(|path| place(target).is_ok_and(|target| path == target)) {
            return Err(Failure::bad_input(format!("{name}: this file is the target; name another file")));
        }
        if is_stdout(path) {
            return Err(Failure::bad_input(format!(
                "{name}: standard output has the result; name a file or a pipe"
            )));
        }
        if fs::metadata(path).is_ok_and(|found| found.is_file()) {
            return Err(Failure::bad_input(format!("{name}: the file exists already; name another file")));
        }
        outputs::file("--log", path, false)?;
        Ok(LogFile { file: outputs::begin("--log", path, false)?, name })
    }

    /// Writes the log, complete or not at all. A file that has the name by now belongs to another program and stays; the
    /// error then says where the log is.
    pub fn write(self, log: &[Logged]) -> Result<(), Failure> {
        let written = rows(self.file, log).and_then(OutputFile::keep);
        written.map_err(|why| Failure::io(self.name, &why))
    }
}

/// The real path, also of a file that does not exist yet.
fn place(path: &Path) -> io::Result<PathBuf> {
    fs::canonicalize(path).or_else(|why| {
        let name = path.file_name().ok_or(why)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::canonicalize(folder).map(|folder| folder.join(name))
    })
}

fn rows(file: OutputFile, log: &[Logged]) -> io::Result<OutputFile> {
    let mut csv = csv::Writer::from_writer(BufWriter::new(file));
    csv.write_record(["sent_ns", "took_ns", "op", "buffer_byte", "device_byte", "bytes"])?;
    for Logged { sent_ns, took_ns, io } in log {
        let numbers =
            [*sent_ns, *took_ns, io.offset as u64, io.place, u64::from(io.bytes)].map(|n| n.to_string());
        let [sent, took, offset, place, bytes] = &numbers;
        csv.write_record([sent, took, &io.operation.to_string(), offset, place, bytes])?;
    }
    let buffer = csv.into_inner().map_err(|why| why.into_error())?;
    buffer.into_inner().map_err(io::IntoInnerError::into_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that appeared during the run is not replaced either.
    #[test]
    fn what_has_come_meanwhile_stays_and_so_does_what_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = || LogFile::new(&path, &folder.path().join("target")).unwrap();
        let head = "sent_ns,took_ns,op,buffer_byte,device_byte,bytes\n";
        let first = log();
        fs::write(&path, "theirs").unwrap();
        let refused = first.write(&[]).unwrap_err();
        let (_, kept) = refused.line().split_once("the complete file is still named ").unwrap();
        assert_eq!(
            (fs::read_to_string(&path).unwrap(), fs::read_to_string(kept).unwrap().as_str()),
            ("theirs".to_owned(), head)
        );
        fs::remove_file(&path).unwrap();
        log().write(&[]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), head);
    }
}
