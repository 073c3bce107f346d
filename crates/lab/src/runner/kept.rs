//! Finished simulations in a folder, one file each, so that an experiment that was interrupted continues.
//!
//! The name of a file is the hash of all that determines its result (`identity`). Files are compressed JSON, written under
//! a temporary name and renamed, so a reader finds a whole file or none. A file that cannot be read back is ignored, and
//! its simulation runs again. Must not know which folder a command uses.

use super::identity::FileHashes;
use super::job::Done;
use crate::results::{PolicyResult, TimeSample};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use waykeeper_machine::Gap;

/// The schema of a file. The number grows when a file of an earlier version cannot be read any more.
const KEPT_SCHEMA: &str = "waykeeper.kept-run/1";

/// End of the names of the files.
const SUFFIX: &str = ".json.gz";

/// Most bytes of an unpacked file, as of other files (docs/limits.md). The flagship's first seed has 0.3 MB, 70 intervals of
/// 11 workloads.
const UNPACKED_MOST: u64 = 64 << 20;

/// A folder of finished simulations.
#[derive(Debug)]
pub struct KeptRuns {
    folder: PathBuf,
    reads: bool,
    /// A run could not be kept: said once.
    failed: AtomicBool,
    written: AtomicU64,
    pub(super) files: FileHashes,
}

/// The content of a file.
#[derive(Serialize, Deserialize)]
struct KeptFile {
    schema: String,
    /// The hash of its simulation, as in the file's name: a file that was renamed is not taken for another's.
    hash: String,
    result: PolicyResult,
    /// Left out of `result`.
    samples: Vec<TimeSample>,
    gaps: Vec<Gap>,
}

impl KeptRuns {
    /// The runs in `folder`, which is made when the first is kept. They are used instead of simulations if `reads`.
    pub fn new(folder: PathBuf, reads: bool) -> KeptRuns {
        let (failed, written) = (AtomicBool::new(false), AtomicU64::new(0));
        KeptRuns { folder, reads, failed, written, files: FileHashes::default() }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Simulations that were kept since it was opened.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Removes all that is kept, and the folder if nothing else is in it.
    pub fn remove(&self) {
        // What cannot be removed is in the way of nothing.
        for (path, ..) in kept_files(&self.folder) {
            let _ = fs::remove_file(path);
        }
        let _ = fs::remove_dir(&self.folder);
    }

    /// Removes files that are older than `oldest`, then the oldest until the rest has at most `most_bytes`.
    pub fn prune(&self, most_bytes: u64, oldest: Duration) {
        let mut files = kept_files(&self.folder);
        files.sort_by_key(|(_, at, _)| std::cmp::Reverse(*at));
        let now = SystemTime::now();
        let mut bytes = 0;
        for (path, at, length) in files {
            bytes += length;
            let is_old = now.duration_since(at).is_ok_and(|age| age > oldest);
            if is_old || bytes > most_bytes {
                let _ = fs::remove_file(path);
            }
        }
    }

    /// A kept simulation; none if there is none, or it is not to be read.
    ///
    /// # Errors
    /// A file that is no whole kept run, in a line.
    pub(super) fn get(&self, hash: &str) -> Result<Option<Done>, String> {
        let path = self.path(hash);
        if !self.reads {
            return Ok(None);
        }
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(damaged(&path, &why)),
        };
        let unpacked = GzDecoder::new(BufReader::new(file));
        let text = waykeeper_bounded_read::bytes(unpacked, "a kept run", UNPACKED_MOST);
        let text = text.map_err(|why| damaged(&path, &why))?;
        decoded(&text, hash).map(Some).map_err(|why| damaged(&path, &why))
    }

    /// Keeps a simulation, and returns it as a later reading returns it, so that both give the same bytes. If it cannot
    /// be kept it is returned as it is, with the reason; the reason is returned once.
    pub(super) fn put(&self, hash: &str, done: Done) -> (Done, Option<String>) {
        match self.write(hash, &done) {
            Ok(read_back) => {
                self.written.fetch_add(1, Ordering::Relaxed);
                (read_back, None)
            }
            Err(why) => {
                let first = !self.failed.swap(true, Ordering::Relaxed);
                let line = || format!("finished runs cannot be kept in {}: {why}", self.folder.display());
                (done, first.then(line))
            }
        }
    }

    fn write(&self, hash: &str, done: &Done) -> io::Result<Done> {
        let file = KeptFile {
            schema: KEPT_SCHEMA.to_owned(),
            hash: hash.to_owned(),
            result: done.result.clone(),
            samples: done.result.samples.clone(),
            gaps: done.gaps.clone(),
        };
        let text = serde_json::to_vec(&file)?;
        if text.len() as u64 > UNPACKED_MOST {
            return Err(io::Error::other(format!("a run has more than {UNPACKED_MOST} bytes")));
        }
        let read_back = decoded(&text, hash).map_err(io::Error::other)?;
        fs::create_dir_all(&self.folder)?;
        let path = self.path(hash);
        let draft = self.folder.join(format!(".{hash}.{}", std::process::id()));
        let written = File::create(&draft).and_then(|file| {
            let mut packed = GzEncoder::new(BufWriter::new(file), Compression::fast());
            packed.write_all(&text)?;
            packed.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
            fs::rename(&draft, &path)
        });
        written.inspect_err(|_| {
            let _ = fs::remove_file(&draft);
        })?;
        Ok(read_back)
    }

    fn path(&self, hash: &str) -> PathBuf {
        self.folder.join(format!("{hash}{SUFFIX}"))
    }
}

fn damaged(path: &Path, why: &dyn std::fmt::Display) -> String {
    format!("the kept run {} is ignored and runs again: {why}", path.display())
}

fn decoded(text: &[u8], hash: &str) -> Result<Done, String> {
    let file: KeptFile = serde_json::from_slice(text).map_err(|why| why.to_string())?;
    if file.schema != KEPT_SCHEMA {
        return Err(format!("its schema is `{}`, expected {KEPT_SCHEMA}", file.schema));
    }
    if file.hash != hash {
        return Err("it is another run's".to_owned());
    }
    Ok(Done { result: PolicyResult { samples: file.samples, ..file.result }, gaps: file.gaps })
}

/// The files of kept runs in a folder, with the time of their last change and their length; none without a folder.
fn kept_files(folder: &Path) -> Vec<(PathBuf, SystemTime, u64)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let file = |entry: io::Result<fs::DirEntry>| {
        let entry = entry.ok()?;
        let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        let name = entry.file_name();
        let is_ours = name.to_str().is_some_and(|name| name.ends_with(SUFFIX));
        is_ours.then_some((entry.path(), metadata.modified().ok()?, metadata.len()))
    };
    entries.filter_map(file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(simulated_s: f64) -> Done {
        let result = PolicyResult {
            simulated_s,
            samples: vec![TimeSample { at_s: 0.1, ..TimeSample::default() }],
            ..PolicyResult::default()
        };
        Done { result, gaps: Vec::new() }
    }

    #[test]
    fn a_run_is_read_back_whole_or_refused_in_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let kept = KeptRuns::new(folder.path().join("runs"), true);
        assert!(kept.get("a").unwrap().is_none());
        // Digits that a short decimal fraction does not have.
        let (kept_as, why) = kept.put("a", done(0.1 + 0.2));
        assert_eq!((why, kept.written()), (None, 1));
        let read = kept.get("a").unwrap().unwrap();
        assert_eq!((&read.result, read.result.simulated_s), (&kept_as.result, 0.1 + 0.2));
        assert_eq!(read.result.samples.len(), 1);
        assert!(
            KeptRuns::new(folder.path().join("runs"), false).get("a").unwrap().is_none(),
            "not to be read"
        );

        fs::rename(kept.path("a"), kept.path("b")).unwrap();
        assert!(kept.get("b").unwrap_err().ends_with("runs again: it is another run's"));
        let bytes = fs::read(kept.path("b")).unwrap();
        fs::write(kept.path("a"), &bytes[..bytes.len() / 2]).unwrap();
        assert!(kept.get("a").unwrap_err().contains("is ignored and runs again"));
        // An undamaged run is written over a damaged one.
        kept.put("a", done(1.0));
        assert!(kept.get("a").unwrap().is_some());
        kept.remove();
        assert!(!kept.folder().exists());
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_reported_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let kept = KeptRuns::new(file.join("runs"), true);
        let reasons = [1.0, 2.0].map(|simulated_s| kept.put("a", done(simulated_s)).1);
        assert!(reasons[0].as_ref().is_some_and(|why| why.contains("cannot be kept in")), "{reasons:?}");
        assert_eq!((&reasons[1], kept.written()), (&None, 0));
    }

    #[test]
    fn old_files_go_and_then_the_oldest_until_the_rest_is_small_enough() {
        let folder = tempfile::tempdir().unwrap();
        let kept = KeptRuns::new(folder.path().to_owned(), true);
        let now = SystemTime::now();
        // 10, 20, 30 and 40 days old, 100 bytes each; and a file of another program.
        for (name, days) in [("a", 10), ("b", 20), ("c", 30), ("d", 40)] {
            let file = File::create(kept.path(name)).unwrap();
            file.set_len(100).unwrap();
            file.set_modified(now - Duration::from_secs(86_400 * days)).unwrap();
        }
        fs::write(folder.path().join("other"), "").unwrap();
        let left = || ["a", "b", "c", "d"].map(|name| kept.path(name).exists());
        kept.prune(1000, Duration::from_secs(86_400 * 35));
        assert_eq!(left(), [true, true, true, false]);
        kept.prune(250, Duration::from_secs(86_400 * 35));
        assert_eq!(left(), [true, true, false, false]);
        assert!(folder.path().join("other").exists());
    }
}
