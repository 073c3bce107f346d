//! The tasks of the host on which the tree is mounted, read from its procfs.
//!
//! Real processes can be moved between the groups of a virtual server as on a real one. This file must not know groups.

use crate::fork_records::{ForkRecords, Forks, FullRings};
use crate::resctrl::tasks::{Task, Tasks};
use rustix::io::Errno;
use std::fs;
use std::path::PathBuf;

/// The tasks below a procfs.
pub struct HostTasks {
    proc: PathBuf,
    forks: Option<ForkRecords>,
}

impl HostTasks {
    /// The tasks of the procfs at `proc`, usually `/proc`.
    pub fn new(proc: impl Into<PathBuf>) -> Self {
        HostTasks { proc: proc.into(), forks: None }
    }

    /// Lets the kernel record the forks of these tasks, from now on. The answer waits for full rings, which must be
    /// read in time.
    ///
    /// # Errors
    /// As [`ForkRecords::open`]. Then a new task is only noticed when the tasks are listed.
    pub fn record_forks(&mut self) -> Result<FullRings, Errno> {
        let mut records = ForkRecords::open()?;
        let waiter = records.waiter()?;
        self.forks = Some(records);
        Ok(waiter)
    }

    fn ids(folder: PathBuf) -> Vec<u32> {
        let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
        let mut ids: Vec<u32> =
            entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        ids.sort_unstable();
        ids
    }
}

/// Parent, number of threads and start time in `/proc/N/stat` (proc(5): fields 4, 20 and 22; the name in parentheses
/// may contain anything).
fn parse(stat: &[u8]) -> Option<(u32, u32, u64)> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(&stat[end + 1..]).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some((fields.get(1)?.parse().ok()?, fields.get(17)?.parse().ok()?, fields.get(19)?.parse().ok()?))
}

impl Tasks for HostTasks {
    /// Tasks that end while they are listed are left out.
    fn list(&mut self) -> Vec<Task> {
        let mut tasks = Vec::new();
        for process in Self::ids(self.proc.clone()) {
            let folder = self.proc.join(process.to_string());
            let Some((parent, threads, started)) =
                fs::read(folder.join("stat")).ok().and_then(|it| parse(&it))
            else {
                continue;
            };
            tasks.push(Task { id: process, process, parent, started });
            if threads == 1 {
                continue;
            }
            for id in Self::ids(folder.join("task")).into_iter().filter(|id| *id != process) {
                let stat = fs::read(folder.join(format!("task/{id}/stat"))).ok();
                if let Some((.., started)) = stat.and_then(|it| parse(&it)) {
                    tasks.push(Task { id, process, parent, started });
                }
            }
        }
        tasks
    }

    fn forks(&mut self) -> Forks {
        self.forks.as_mut().map_or_else(Forks::default, ForkRecords::take)
    }

    fn owner(&mut self, task: u32) -> Option<u32> {
        let status = fs::read_to_string(self.proc.join(format!("{task}/status"))).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        line.split_ascii_whitespace().next()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_move_the_fields() {
        let stat = b"42 (a) b (c) S 7 42 42 0 -1 1 0 0 0 0 0 0 0 0 20 0 1 0 12345 0 0";
        assert_eq!(parse(stat), Some((7, 1, 12345)));
        assert_eq!(parse(b"42 (a) S 7"), None);
        assert_eq!(parse(b"no"), None);
    }

    #[test]
    fn this_process_and_its_threads_are_there() {
        let mut host = HostTasks::new("/proc");
        let (process, thread) = (std::process::id(), rustix::thread::gettid().as_raw_nonzero().get() as u32);
        let tasks = host.list();
        let of = |id: u32| tasks.iter().find(|task| task.id == id).copied();
        let own = of(process).expect("this process is listed");
        assert_eq!((own.process, own.parent), (process, std::os::unix::process::parent_id()));
        assert_eq!(of(thread).map(|task| task.process), Some(process));
        assert_eq!(host.owner(process), Some(rustix::process::getuid().as_raw()));
        assert_eq!(host.owner(u32::MAX), None);
    }
}
