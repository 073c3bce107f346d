//! A command that brings load while a machine is probed: started on CPUs of its own, ended when the source goes.

use crate::ddio::{GRACE, terminate};
use crate::exit::Failure;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use waykeeper_units::CoreList;

/// How often its end is looked for.
const TICK: Duration = Duration::from_millis(20);

/// The command.
pub struct Companion(Child);

impl Companion {
    /// Starts it on these CPUs; its children inherit them. Its output is nobody's: what is told on ours is the answer.
    pub fn start(command: &[String], cores: &CoreList) -> Result<Companion, Failure> {
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
        let child = start.spawn();
        child
            .map(Companion)
            .map_err(|why| Failure::bad_input(format!("cannot run {} on CPUs {cores}: {why}", command[0])))
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        let asked = Instant::now();
        terminate(&self.0);
        while asked.elapsed() < GRACE {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(TICK);
        }
        // It had its time; what it leaves is its own business.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
