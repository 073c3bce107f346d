//! A command that brings load while a machine is probed: it runs as long as the probe does, and ends with it.

use crate::exit::Failure;
use crate::pinned::{Output, Pinned, hurry, last_line};
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;
use waykeeper_units::CoreList;

/// The command. It ends with all its children when this goes.
pub struct Companion {
    command: Pinned,
    name: String,
    told: bool,
}

impl Companion {
    /// Starts it on these CPUs. Its output is nobody's: what is told on ours is the answer. What it says on standard
    /// error stands between our lines, or is told only if it ends before its time, as that of `own`: one of our own
    /// programs under this name.
    pub fn start(command: &[OsString], cores: &CoreList, own: Option<&str>) -> Result<Companion, Failure> {
        let output = if own.is_some() { Output::ErrorsKept } else { Output::ErrorsShown };
        let program = command.first().map(|program| Path::new(program).display().to_string());
        let name = own.map(str::to_owned).or(program).unwrap_or_default();
        Ok(Companion { command: Pinned::start(command, cores, "--cores", output)?, name, told: false })
    }

    /// How it ended, once; `None` as long as it runs.
    pub fn ended(&mut self) -> Option<String> {
        if self.told || !self.command.wait(None, Some(Duration::ZERO)).unwrap_or(false) {
            return None;
        }
        self.told = true;
        // What it has left behind brings load that nobody knows.
        let status = self.command.end(None).map(|status| format!(" ({status})")).unwrap_or_default();
        let why = last_line(&self.command.said().unwrap_or_default());
        Some(format!("{} ended before the probe did{status}{why}", self.name))
    }

    /// Ends it with its children. Who breaks off meanwhile does not want to wait for one that takes its time.
    pub fn end(mut self) {
        let hurry = hurry().ok();
        self.command.end(hurry.as_ref().map(AsFd::as_fd));
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.command.pid()
    }
}
