//! A command that makes load while a machine is probed; it is ended with the probe. Must not know what is measured.

use crate::exit::Failure;
use crate::pinned::{Output, Pinned, hurry, last_line};
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;
use waykeeper_units::CoreList;

/// The command. Dropping this ends it with all its children.
pub struct LoadCommand {
    command: Pinned,
    name: String,
    reported: bool,
}

impl LoadCommand {
    /// Starts it on these CPUs. Its standard output is discarded, because ours is the answer. Its standard error is
    /// printed between our lines; for one of our own programs, which `own` names, it is printed only if the program
    /// ends too early.
    pub fn start(command: &[OsString], cores: &CoreList, own: Option<&str>) -> Result<LoadCommand, Failure> {
        let output = if own.is_some() { Output::ErrorsKept } else { Output::ErrorsShown };
        let program = command.first().map(|program| Path::new(program).display().to_string());
        let name = own.map(str::to_owned).or(program).unwrap_or_default();
        Ok(LoadCommand { command: Pinned::start(command, cores, "--cores", output)?, name, reported: false })
    }

    /// How it ended, returned once; `None` as long as it runs.
    pub fn ended(&mut self) -> Option<String> {
        if self.reported || !self.command.wait(None, Some(Duration::ZERO)).unwrap_or(false) {
            return None;
        }
        self.reported = true;
        // Processes that it left behind would be unknown load.
        let status = self.command.end(None).map(|status| format!(" ({status})")).unwrap_or_default();
        let why = last_line(&self.command.kept_output().unwrap_or_default());
        Some(format!("{} ended before the probe did{status}{why}", self.name))
    }

    /// Ends it with its children. A signal from the user meanwhile kills them at once.
    pub fn end(mut self) {
        let hurry = hurry().ok();
        self.command.end(hurry.as_ref().map(AsFd::as_fd));
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.command.pid()
    }
}
