//! Why a configuration was refused: one line that names the place and what would be taken.

use super::layers::Source;
use std::io;
use std::path::PathBuf;
use waykeeper_policy::PolicyError;

/// Why a configuration was refused. Nothing changed.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file or folder cannot be read.
    #[error("{}: {why}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The system's own words.
        why: io::Error,
    },
    /// Something said in it is wrong.
    #[error("{source_of}: {why}")]
    Wrong {
        /// Where it was said.
        source_of: Source,
        /// What is wrong, and what would be taken.
        why: String,
    },
}

impl ConfigError {
    pub(crate) fn wrong(source: &Source, why: impl Into<String>) -> ConfigError {
        ConfigError::Wrong { source_of: source.clone(), why: why.into() }
    }

    /// The user may not read it.
    pub fn is_denied(&self) -> bool {
        matches!(self, ConfigError::Read { why, .. } if why.kind() == io::ErrorKind::PermissionDenied)
    }
}

impl super::Config {
    /// A policy's refusal, at the place where what it refuses was said.
    pub fn policy_refused(&self, error: &PolicyError) -> ConfigError {
        let setting = match error {
            PolicyError::UnknownPolicy { .. } => None,
            PolicyError::UnknownSetting { key, .. }
            | PolicyError::WrongType { key, .. }
            | PolicyError::OutOfRange { key, .. }
            | PolicyError::UnknownChoice { key, .. }
            | PolicyError::NoKnob { key, .. } => self.stated.setting(key),
            // These name a value; the settings of such policies are few.
            PolicyError::UnknownTarget { .. } | PolicyError::BadMask { .. } => {
                self.policy.settings.keys().find_map(|key| self.stated.setting(key))
            }
        };
        let source = setting.unwrap_or_else(|| self.stated.of("policy.name"));
        ConfigError::wrong(source, error.to_string())
    }
}
