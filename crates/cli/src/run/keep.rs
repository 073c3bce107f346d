//! Where a run keeps its finished simulations, and when they are used again: beside the result of `--out`, else in the
//! user's cache. Must not know what determines a simulation (`lab`).

use crate::exit::Failure;
use crate::outputs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use waykeeper_lab::runner::KeptRuns;

/// The folder in the directory of `--out`. It exists while a result is not complete.
const IN_OUT: &str = ".runs";

/// Bounds of the cache: a run takes 5 to 100 KB (flagship, measured), so this is some thousand of them (ours).
const CACHE_BYTES: u64 = 256 << 20;
/// An interrupted run is continued within a month, or not at all (ours).
const CACHE_AGE: Duration = Duration::from_secs(30 * 86_400);

/// Where a run keeps its simulations.
pub struct Keeping {
    kept: Option<Arc<KeptRuns>>,
    /// The folder is the result's own, and is removed when the result is complete.
    in_out: bool,
}

impl Keeping {
    /// In the directory of the result, which was checked.
    pub fn beside(out: &Path, resume: bool) -> Keeping {
        let kept = KeptRuns::new(out.join(IN_OUT), resume);
        if !resume {
            kept.remove();
        }
        Keeping { kept: Some(Arc::new(kept)), in_out: true }
    }

    /// In the directory of a result that several shards share: each uses and keeps runs there, and removes none.
    pub fn shared(out: &Path) -> Keeping {
        Keeping { kept: Some(Arc::new(KeptRuns::new(out.join(IN_OUT), true))), in_out: true }
    }

    /// In the user's cache, with what is old removed. Without a home directory nothing is kept.
    pub fn in_cache(resume: bool) -> Keeping {
        let kept = cache().map(|cache| KeptRuns::new(cache.join("waykeeper/runs"), resume));
        if let Some(kept) = &kept {
            kept.prune(CACHE_BYTES, CACHE_AGE);
        }
        Keeping { kept: kept.map(Arc::new), in_out: false }
    }

    /// The runs, for an experiment.
    pub fn runs(&self) -> Option<Arc<KeptRuns>> {
        self.kept.clone()
    }

    /// After a complete result: what is beside it is not needed any more. The cache stays: a run with more seeds or
    /// policies may use it.
    pub fn complete(&self) {
        if let Some(kept) = self.kept.as_ref().filter(|_| self.in_out) {
            kept.remove();
        }
    }

    /// The folder; empty if nothing is kept.
    pub fn folder(&self) -> &Path {
        self.kept.as_ref().map_or(Path::new(""), |kept| kept.folder())
    }

    /// True if a run of this command was kept.
    pub fn has_some(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.written() > 0)
    }

    /// What is kept after an interrupt, and how to continue.
    pub fn interrupted(&self) -> String {
        match &self.kept {
            Some(kept) if self.has_some() => format!(
                "finished runs are kept in {}; the same command with --resume continues",
                kept.folder().display()
            ),
            _ => "nothing is kept".to_owned(),
        }
    }
}

/// Checks the directory of a result before the first simulation. A directory with an interrupted result is continued with
/// `resume`, and begun again with `force`.
pub fn check_out(out: &Path, files: &[&str], resume: bool, force: bool) -> Result<(), Failure> {
    let is_interrupted = out.join(IN_OUT).is_dir();
    if is_interrupted && !resume && !force {
        return Err(Failure::bad_input(format!(
            "--out {}: it has the runs of a command that did not finish; add --resume to continue, or --force to begin again",
            out.display()
        )));
    }
    outputs::directory("--out", out, files, force || (resume && is_interrupted))
}

/// The user's cache directory (XDG Base Directory Specification).
fn cache() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))
}
