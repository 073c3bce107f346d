//! All tasks that resctrl can move: those of the host on which the tree is mounted, and the scenario's programs.
//!
//! It must not know groups.

use super::{FIRST_PID, Programs};
use crate::fork_records::Forks;
use crate::host_tasks::HostTasks;
use crate::resctrl::tasks::{Task, Tasks};

/// Both kinds of tasks.
pub struct AllTasks {
    host: Option<HostTasks>,
    programs: Programs,
}

impl AllTasks {
    /// The tasks of a host, if they are to be shown, and of a server.
    pub fn new(host: Option<HostTasks>, programs: Programs) -> AllTasks {
        AllTasks { host, programs }
    }
}

impl Tasks for AllTasks {
    /// The host's tasks, then the programs', whose pids are higher. A stopped model has no programs.
    fn list(&mut self) -> Vec<Task> {
        let mut tasks = self.host.as_mut().map_or_else(Vec::new, Tasks::list);
        let mut programs = self.programs.list().unwrap_or_default();
        programs.sort_unstable_by_key(|program| program.pid);
        for program in programs {
            let (process, started) = (program.pid, program.serial());
            tasks.extend(program.tids().map(|id| Task { id, process, parent: 0, started }));
        }
        tasks
    }

    /// A program starts no other.
    fn forks(&mut self) -> Forks {
        self.host.as_mut().map_or_else(Forks::default, Tasks::forks)
    }

    /// Programs belong to root.
    fn owner(&mut self, task: u32) -> Option<u32> {
        if task < FIRST_PID {
            return self.host.as_mut()?.owner(task);
        }
        let programs = self.programs.list().ok()?;
        programs.iter().any(|program| program.tids().contains(&task)).then_some(0)
    }
}
