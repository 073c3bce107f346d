//! A command that brings load while a machine is probed: started on CPUs of its own, ended when the source goes.

use crate::ddio::{GRACE, terminate};
use crate::exit::{self, Failure};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use waykeeper_units::CoreList;

/// How often its end is looked for.
const TICK: Duration = Duration::from_millis(20);

/// The command.
pub struct Companion {
    child: Child,
    name: String,
    /// What it wrote on standard error, if that is kept from ours.
    said: Option<File>,
    ended: bool,
}

impl Companion {
    /// Starts it on these CPUs; its children inherit them. Its output is nobody's: what is told on ours is the answer. What it
    /// says on standard error stands between our lines, or is told only if it ends before its time, as that of `own`: one of our own
    /// programs under this name.
    pub fn start(command: &[OsString], cores: &CoreList, own: Option<&str>) -> Result<Companion, Failure> {
        let mut set = CpuSet::new();
        for core in cores.cores() {
            if usize::from(core.0) >= CpuSet::MAX_CPU {
                return Err(Failure::bad_input(format!("--cores {cores}: there is no {core}")));
            }
            set.set(core.index());
        }
        let mut start = Command::new(&command[0]);
        start.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null());
        // SAFETY: between fork and exec only the one system call is made; it allocates nothing and takes no lock.
        unsafe { start.pre_exec(move || Ok(sched_setaffinity(None, &set)?)) };
        let said = own.map(|_| kept(&mut start)).transpose()?;
        let program = &command[0];
        let name = own.map_or_else(|| program.display().to_string(), str::to_owned);
        match start.spawn() {
            Ok(child) => Ok(Companion { child, name, said, ended: false }),
            Err(why) => {
                Err(Failure::bad_input(format!("cannot run {} on CPUs {cores}: {why}", program.display())))
            }
        }
    }

    /// How it ended, once; `None` as long as it runs.
    pub fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten().filter(|_| !self.ended)?;
        self.ended = true;
        let why = self.said.as_mut().and_then(last_line).map(|line| format!(": {line}")).unwrap_or_default();
        Some(format!("{} ended before the probe was done ({status}){why}", self.name))
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

/// A file in memory that takes the standard error of what is to be started.
fn kept(start: &mut Command) -> Result<File, Failure> {
    let file = memfd_create("said", MemfdFlags::CLOEXEC).map(File::from).map_err(io::Error::from);
    let both = file.and_then(|file| file.try_clone().map(|theirs| (file, theirs)));
    let failed = |why| Failure::new(exit::FAILED, format!("cannot make a file in memory: {why}"));
    let (file, theirs) = both.map_err(failed)?;
    start.stderr(theirs);
    Ok(file)
}

/// The last line that says something.
fn last_line(file: &mut File) -> Option<String> {
    let mut bytes = Vec::new();
    file.rewind().ok()?;
    file.read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    text.lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .map(|line| line.trim_start_matches("error: ").to_owned())
}

impl Drop for Companion {
    fn drop(&mut self) {
        let asked = Instant::now();
        terminate(&self.child);
        while asked.elapsed() < GRACE {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(TICK);
        }
        // It had its time; what it leaves is its own business.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
