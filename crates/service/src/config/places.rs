//! Checks, before the daemon changes anything, that other users cannot change the files and folders that it will use.
//!
//! The modules that use a place check it again, so that a place that changes later is refused too. Must not know what a
//! place is used for.

use super::{Config, ConfigError, PathChoice};
use crate::{DaemonMode, Listen};
use std::path::{Path, PathBuf};
use waykeeper_kernel::system::System;
use waykeeper_kernel::trust::{self, TrustError};
use waykeeper_linux_host::profile::usual_path;

/// What a place is, which decides what is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// A file that is read.
    File,
    /// A folder whose files the daemon writes.
    Folder,
    /// A file that the daemon makes, or a socket that it connects to: its folder is checked.
    Made,
}

impl Config {
    /// Checks the machine profile, the journal, the sockets, that of the container runtime and the recorder's folder by the
    /// rule of [`waykeeper_kernel::trust`]. A place that does not exist yet passes if the folders above it do.
    ///
    /// # Errors
    /// The first place that other users could change, with its key and the source of its value.
    pub fn check_places(&self, system: &dyn System) -> Result<(), ConfigError> {
        for (key, place, path) in self.places() {
            let checked = match (place, path.parent()) {
                (Place::File, _) => trust::read(system, &path).map(drop),
                (Place::Made, Some(folder)) => trust::folder(system, folder),
                (Place::Folder | Place::Made, _) => trust::folder(system, &path),
            };
            match checked {
                // What is missing or cannot be read has its own message where it is used.
                Ok(()) | Err(TrustError::Io { .. }) => {}
                Err(why) => {
                    let why = format!("{key} = {:?} is not used: {why}", path.display().to_string());
                    return Err(ConfigError::wrong(self.sources.of(key), why));
                }
            }
        }
        Ok(())
    }

    /// Keys that name a place, with the place in force.
    fn places(&self) -> Vec<(&'static str, Place, PathBuf)> {
        let root = self.host_root();
        let profile = match &self.profile {
            PathChoice::Off => None,
            PathChoice::Usual => Some(usual_path(&root)),
            PathChoice::At(file) => Some(file.clone()),
        };
        let metrics = match &self.metrics {
            Some(Listen::Unix(path)) => Some(path.as_path()),
            _ => None,
        };
        // Only a daemon that changes something on the host opens a journal.
        let changes = self.mode == DaemonMode::Manage || self.program_counters;
        let journal = changes.then(|| self.journal_path());
        // The daemon only connects to this socket; the folder decides who can put another one there.
        let nri = self.nri.enabled.then(|| self.nri.plugin.socket.clone());
        let all = [
            ("daemon.profile", Place::File, profile),
            ("daemon.journal", Place::Made, journal),
            ("socket.path", Place::Made, self.socket_path()),
            ("metrics.listen", Place::Made, metrics.map(Path::to_owned)),
            ("nri.socket", Place::Made, nri),
            ("recorder.dir", Place::Folder, self.recorder.dir.clone()),
        ];
        all.into_iter().filter_map(|(key, place, path)| Some((key, place, path?))).collect()
    }
}
