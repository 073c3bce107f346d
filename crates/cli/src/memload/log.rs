//! `--log FILE`: the send time and latency of each command, as CSV.
//!
//! Must not know how load is made.

use crate::exit::Failure;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use waykeeper_memload::{Logged, give_name};

/// A log file that can be written after the run. It is checked before the run, so that no run is lost.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
}

impl LogFile {
    /// At this path, which must not be the target's.
    pub fn new(path: &Path, target: &Path) -> Result<LogFile, Failure> {
        let refuse = |why: &str| Err(Failure::bad_input(format!("--log {}: {why}", path.display())));
        let Ok(real) = place(path) else {
            return refuse("its directory does not exist");
        };
        let (target, partial) = (place(target), partial(&real));
        if target.as_ref().is_ok_and(|target| *target == real) {
            return refuse("this file is the target; name another file");
        }
        if target.is_ok_and(|target| target == partial) {
            return refuse("the name of its partial file is the target; name another file");
        }
        // The existing log may be of a run of hours: it is not replaced.
        if fs::symlink_metadata(&real).is_ok() {
            return refuse("the file exists already; name another file");
        }
        if fs::symlink_metadata(&partial).is_ok() {
            let why = format!("the partial file {} exists already; move it", partial.display());
            return refuse(&why);
        }
        // The directory is checked before the run: the check fails for root too on a read-only file system.
        let folder = real.parent().unwrap_or(Path::new("/"));
        accessat(CWD, folder, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
            .map_err(|why| Failure::io(format!("--log {}: its directory", path.display()), &why.into()))?;
        Ok(LogFile { path: real })
    }

    /// Writes the log, complete or not at all.
    pub fn write(&self, log: &[Logged]) -> Result<(), Failure> {
        let partial = partial(&self.path);
        let failed = |why: io::Error| Failure::io(format!("--log {}", self.path.display()), &why);
        // Only a file that is created here is written and, on failure, removed: another file of that name belongs to
        // another program.
        let file = File::create_new(&partial).map_err(failed)?;
        rows(file, log).map_err(|why| {
            let _ = fs::remove_file(&partial);
            failed(why)
        })?;
        // A file that has the name by now belongs to another program; the complete log is kept under its partial name.
        give_name(&partial, &self.path).map_err(|why| {
            let what = format!(
                "--log {}: the log is complete but is still named {}",
                self.path.display(),
                partial.display()
            );
            Failure::io(what, &why)
        })
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

/// The name of the log until it is complete.
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
        csv.write_record([sent, took, &io.operation.to_string(), offset, place, bytes])?;
    }
    let mut out = csv.into_inner().map_err(|why| why.into_error())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that appeared during the run is not replaced either.
    #[test]
    fn what_has_come_meanwhile_stays_and_so_does_what_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let log = || LogFile::new(&at("log"), &at("target")).unwrap();
        let text = |name: &str| fs::read_to_string(at(name)).unwrap();
        let head = "sent_ns,took_ns,op,buffer_byte,device_byte,bytes\n";
        let first = log();
        fs::write(at("log"), "theirs").unwrap();
        let refused = first.write(&[]).unwrap_err();
        let wanted =
            format!("the log is complete but is still named {}: File exists", at("log.partial").display());
        assert!(refused.line().contains(&wanted), "{refused:?}");
        assert_eq!((text("log").as_str(), text("log.partial").as_str()), ("theirs", head));
        for name in ["log", "log.partial"] {
            fs::remove_file(at(name)).unwrap();
        }
        let second = log();
        fs::write(at("log.partial"), "theirs").unwrap();
        let refused = second.write(&[]).unwrap_err();
        assert!(refused.line().ends_with("log: File exists (os error 17)"), "{refused:?}");
        assert_eq!((text("log.partial").as_str(), at("log").exists()), ("theirs", false));
        fs::remove_file(at("log.partial")).unwrap();
        second.write(&[]).unwrap();
        assert_eq!((text("log").as_str(), at("log.partial").exists()), (head, false));
    }
}
