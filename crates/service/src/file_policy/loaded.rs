//! The policy's file as the configuration names it: read under the configuration's rule of trust, and tried once.
//!
//! Must not know how decisions are waited for.

use crate::config::{Config, ConfigError, ValueSource};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use waykeeper_bounded_read::{self as bounded_read, TEXT_MOST};
use waykeeper_kernel::system::{FileReader, System};
use waykeeper_kernel::trust;
use waykeeper_policy_process::{Described, Interpreter, PolicyFile, PolicyProcess, UserIds};
use waykeeper_units::one_line;

/// The user and group of the process where the daemon is root: those without files and rights (`overflowuid` and
/// `overflowgid` in proc(5)).
const UNPRIVILEGED: UserIds = UserIds { user: 65534, group: 65534 };

/// The part of a period that a decision may take.
const DEADLINE_PART: u64 = 5;

/// Most lines that a policy prints into the log in a stretch of time. Assumption: more hides the daemon's own lines.
const MOST_PRINTED: u32 = 20;
const PRINTED_STRETCH: Duration = Duration::from_secs(10);

/// A policy's file in the configuration.
#[derive(Clone, PartialEq, Debug)]
pub struct FilePolicyChoice {
    /// The file, `PATH` or `PATH.py:CLASS`; with `None` there is none.
    pub file: Option<String>,
    /// The interpreter.
    pub python: PathBuf,
    /// How long a decision may take, ms; with `None` a fifth of the period.
    pub deadline_ms: Option<u32>,
    /// The file, read and tried; only after [`Config::with_file_policy`].
    pub loaded: Option<LoadedPolicy>,
}

impl Default for FilePolicyChoice {
    fn default() -> FilePolicyChoice {
        let python = PathBuf::from("/usr/bin/python3");
        FilePolicyChoice { file: None, python, deadline_ms: None, loaded: None }
    }
}

impl FilePolicyChoice {
    /// The file's policy, if it has this name.
    pub fn named(&self, name: &str) -> Option<&LoadedPolicy> {
        self.loaded.as_ref().filter(|loaded| loaded.described.name == name)
    }
}

/// What the policy's process has for a problem at present.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trouble(Arc<Mutex<Option<String>>>);

impl Trouble {
    pub fn set(&self, text: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.to_owned());
    }

    pub fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A policy's file that was read and tried.
#[derive(Clone, Debug)]
pub struct LoadedPolicy {
    /// The file.
    pub file: PolicyFile,
    /// What it says about its policy.
    pub described: Described,
    python: PathBuf,
    /// How long a decision may take, ns; shared with the policy that runs.
    pub(crate) deadline_ns: Arc<AtomicU64>,
    pub(crate) trouble: Trouble,
}

/// Equal if the same process runs.
impl PartialEq for LoadedPolicy {
    fn eq(&self, other: &LoadedPolicy) -> bool {
        (&self.file, &self.described, &self.python) == (&other.file, &other.described, &other.python)
    }
}

impl LoadedPolicy {
    /// How long a decision may take.
    pub fn deadline(&self) -> Duration {
        Duration::from_nanos(self.deadline_ns.load(Ordering::Relaxed))
    }

    /// Continues with the process of `before`, which runs the same: under this deadline.
    pub(crate) fn continues(&mut self, before: &LoadedPolicy) {
        before.deadline_ns.store(self.deadline_ns.load(Ordering::Relaxed), Ordering::Relaxed);
        *self = before.clone();
    }

    /// The interpreter, with what the policy prints in the log.
    pub(crate) fn interpreter_that_logs(&self) -> Interpreter {
        let policy = self.described.name.clone();
        let budget = Mutex::new((Instant::now(), 0_u32));
        let printed = move |line: &str| {
            let mut budget = budget.lock().unwrap_or_else(PoisonError::into_inner);
            if budget.0.elapsed() > PRINTED_STRETCH {
                *budget = (Instant::now(), 0);
            }
            budget.1 += 1;
            match budget.1 {
                ..=MOST_PRINTED => tracing::info!(policy, "printed: {}", one_line(line)),
                _ if budget.1 == MOST_PRINTED + 1 => {
                    tracing::warn!(policy, "more that the policy prints is left out of the log");
                }
                _ => {}
            }
        };
        Interpreter { printed: Arc::new(printed), ..interpreter(&self.python) }
    }
}

/// The interpreter of a daemon: without privileges, as another user where the daemon is root.
fn interpreter(python: &Path) -> Interpreter {
    Interpreter {
        program: python.to_owned(),
        confined: true,
        user: rustix::process::geteuid().is_root().then_some(UNPRIVILEGED),
        printed: Arc::new(|_| ()),
        stop: Arc::default(),
        setting: "policy.python",
    }
}

impl Config {
    /// The same with the policy's file, if one is named, read and tried: a process runs it once and makes its policy. If no
    /// source names a policy, the file's is the policy.
    ///
    /// # Errors
    /// A file that another user could have written, or that has no policy; settings that it refuses; no Python.
    pub fn with_file_policy(mut self, system: &dyn System) -> Result<Config, ConfigError> {
        let Some(written) = self.file_policy.file.clone() else { return Ok(self) };
        let source = self.sources.of("policy.file").clone();
        let wrong = |why: String| ConfigError::wrong(&source, format!("policy.file: {why}"));
        let file = read(system, &written).map_err(wrong)?;
        let python = self.file_policy.python.clone();
        let (mut process, described) =
            PolicyProcess::open(&file, &interpreter(&python), None).map_err(|why| wrong(why.to_string()))?;
        let name = described.name.as_str();
        waykeeper_policy::check_own_name(name).map_err(|why| wrong(why.to_string()))?;
        if *self.sources.of("policy.name") == ValueSource::Default {
            self.policy.name = name.to_owned();
            self.sources.follows("policy.name", "policy.file");
        }
        if self.policy.name == name {
            process.create(&self.policy.settings).map_err(|why| {
                let settings = self.policy.settings.keys().find_map(|key| self.sources.setting(key));
                ConfigError::wrong(settings.unwrap_or(&source), why.to_string())
            })?;
        }
        let deadline_ns = match self.file_policy.deadline_ms {
            None => self.period_ns / DEADLINE_PART,
            Some(ms) if u64::from(ms) * 1_000_000 < self.period_ns => u64::from(ms) * 1_000_000,
            Some(ms) => {
                let why = format!(
                    "policy.deadline_ms = {ms} is not shorter than the period of {} s; give less, or `auto`",
                    self.period_s()
                );
                return Err(ConfigError::wrong(self.sources.of("policy.deadline_ms"), why));
            }
        };
        let deadline_ns = Arc::new(AtomicU64::new(deadline_ns));
        let trouble = Trouble::default();
        self.file_policy.loaded = Some(LoadedPolicy { file, described, python, deadline_ns, trouble });
        Ok(self)
    }

    /// A note on a file whose policy does not decide, because another one is named.
    pub fn unused_file_policy(&self) -> Option<String> {
        let name = &self.file_policy.loaded.as_ref()?.described.name;
        let used = &self.policy.name;
        let [file, named] = ["policy.file", "policy.name"].map(|key| self.sources.of(key));
        (used != name).then(|| {
            format!(
                "{file}: policy.file: its policy `{name}` does not decide, because policy.name is `{used}` ({named}); \
                 leave policy.name out to use it, or switch to it by `waykeeper policy set {name}`"
            )
        })
    }

    /// Checks that the policy exists and accepts its settings; the host checks later whether they fit it.
    ///
    /// # Errors
    /// An unknown policy, and a setting that it does not accept.
    pub fn check_policy(&self) -> Result<(), ConfigError> {
        // The file's policy was made with its settings when it was read.
        if self.file_policy.named(&self.policy.name).is_some() {
            return Ok(());
        }
        let built = waykeeper_policy::build(&self.policy.name, &self.policy.settings);
        built.map(drop).map_err(|error| self.policy_refused(&error))
    }
}

/// Reads the file through the check that other users could not have written it.
fn read(system: &dyn System, written: &str) -> Result<PolicyFile, String> {
    let (path, class) = PolicyFile::split(written);
    let path = Path::new(path);
    let file = trust::read(system, path).map_err(|why| why.to_string())?;
    let text =
        bounded_read::bytes(FileReader(file.as_ref()), "a policy", TEXT_MOST).and_then(bounded_read::utf8);
    let text = text.map_err(|why| format!("{}: {why}", path.display()))?;
    Ok(PolicyFile { path: path.to_owned(), class: class.map(str::to_owned), text })
}
