//! Why a configuration was refused: one line with the source and what would be valid. Must not read files.

use super::layers::ValueSource;
use std::io;
use std::path::PathBuf;
use waykeeper_kernel::trust::TrustError;
use waykeeper_policy::PolicyError;
use waykeeper_units::message;

/// Why a configuration was refused. Nothing changed.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file or folder cannot be read.
    #[error("{}: {why}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The system's message.
        why: io::Error,
    },
    /// Another user could have written a file, or could replace it.
    #[error("the configuration is not read: {0}")]
    Untrusted(TrustError),
    /// A value is wrong.
    #[error("{source_of}: {}", message(.why))]
    Wrong {
        /// Its source.
        source_of: ValueSource,
        /// What is wrong, and what would be valid.
        why: String,
    },
}

impl ConfigError {
    pub(crate) fn wrong(source: &ValueSource, why: impl Into<String>) -> ConfigError {
        ConfigError::Wrong { source_of: source.clone(), why: why.into() }
    }

    /// True if this user may not read the file.
    pub fn is_denied(&self) -> bool {
        matches!(self, ConfigError::Read { why, .. } if why.kind() == io::ErrorKind::PermissionDenied)
    }
}

impl super::Config {
    /// The error of a policy that refused a setting, with the source of that setting.
    pub fn policy_refused(&self, error: &PolicyError) -> ConfigError {
        let setting = match error {
            PolicyError::UnknownPolicy { .. }
            | PolicyError::TakenName { .. }
            | PolicyError::OwnPolicy { .. } => None,
            PolicyError::UnknownSetting { key, .. }
            | PolicyError::WrongType { key, .. }
            | PolicyError::OutOfRange { key, .. }
            | PolicyError::UnknownChoice { key, .. }
            | PolicyError::NoKnob { key, .. } => self.sources.setting(key),
            // These errors name a value, not a key: use the first setting that has a source.
            PolicyError::UnknownTarget { .. } | PolicyError::BadMask { .. } => {
                self.policy.settings.keys().find_map(|key| self.sources.setting(key))
            }
        };
        let source = setting.unwrap_or_else(|| self.sources.of("policy.name"));
        ConfigError::wrong(source, error.to_string())
    }
}
