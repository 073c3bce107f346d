//! What can be wrong with a policy from a file, each in one line. Must not know who asked for the policy.

use std::io;
use std::path::PathBuf;
use std::time::Duration;
use waykeeper_units::one_line;

/// What is wrong with a policy from a file.
#[derive(Debug, thiserror::Error)]
pub enum PolicyFileError {
    /// The file cannot be read.
    #[error("{}: {why}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        why: io::Error,
    },
    /// The interpreter cannot be started.
    #[error("cannot start Python as `{}`: {why}; install Python 3.10 or later, or name its program in {setting}", program.display())]
    NoPython {
        /// The program.
        program: PathBuf,
        /// The system's error.
        why: io::Error,
        /// The setting that names another program.
        setting: &'static str,
    },
    /// The process cannot have another user.
    #[error(
        "the policy's process cannot become user {user}: {why}; it needs CAP_SETUID and CAP_SETGID, which the daemon's unit \
         does not grant (docs/own-policies.md)"
    )]
    NoUser {
        /// The user.
        user: u32,
        /// The system's error.
        why: io::Error,
    },
    /// The process did not run the policy that it was given.
    #[error("`{}` does not run policies: {}; it must be Python", program.display(), one_line(why))]
    NotPython {
        /// The program.
        program: PathBuf,
        /// What it did instead.
        why: String,
    },
    /// The file has no policy, or more than one, or raised an exception: the file, the line and the exception.
    #[error("{}", one_line(.0))]
    Raised(String),
    /// Its name cannot be used.
    #[error(
        "{file}: its policy has the name `{}`; it must be 1 to {most} letters, digits, `-`, `_` and `.`",
        one_line(name)
    )]
    Name {
        /// The file.
        file: String,
        /// The name.
        name: String,
        /// Most characters.
        most: usize,
    },
    /// A setting cannot be passed on.
    #[error("{file}: the setting `{key}` is {found}; it must be a finite number")]
    Setting {
        /// The file.
        file: String,
        /// The setting.
        key: String,
        /// Its value.
        found: f64,
    },
    /// No answer in time.
    #[error("{file}: no answer in {} s", waited.as_secs_f64())]
    Late {
        /// The file.
        file: String,
        /// How long the caller waited.
        waited: Duration,
    },
    /// The caller stopped the wait.
    #[error("interrupted")]
    Interrupted,
    /// The process ended.
    #[error("{file}: its process ended ({}){}", one_line(how), last_words(last))]
    Ended {
        /// The file.
        file: String,
        /// The exit status.
        how: String,
        /// The last line that it printed.
        last: Option<String>,
    },
    /// Something else than an answer.
    #[error("{file}: its process answered with something else than a decision: {}", one_line(why))]
    Answer {
        /// The file.
        file: String,
        /// What is wrong with it.
        why: String,
    },
}

fn last_words(last: &Option<String>) -> String {
    last.as_ref().map_or_else(String::new, |line| format!("; it printed: {}", one_line(line)))
}

impl PolicyFileError {
    /// True if this machine lacks Python.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, PolicyFileError::NoPython { .. })
    }
}
