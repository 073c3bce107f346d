//! Tasks and their classes: which group a task belongs to, and what a new task inherits.
//!
//! The kernel keeps class and RMID in each task and copies both at fork. From outside a fork is only detected later: a
//! task that is new since the last check gets what its parent (a thread: its process) has now. If the parent ended
//! before the check, the child counts as that of the process that adopted it, and so gets the default group. This file
//! must not know the source of the list of tasks.

use super::VirtualResctrl;
use super::description::Kernel;
use super::groups::GroupId;
use super::hardware::Hardware;
use super::numbers::{c_string, kstrtoint, strim};
use crate::node::Caller;
use rustix::io::Errno;
use std::collections::HashMap;

/// One task of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Thread id.
    pub id: u32,
    /// Its process: the id of its first thread.
    pub process: u32,
    /// The process that started the process; 0 if none.
    pub parent: u32,
    /// When it started, in any unit: distinguishes a task from a later one with the same id.
    pub started: u64,
}

/// The tasks of the host.
pub trait Tasks: Send {
    /// All tasks: processes by rising id, each followed by its other threads.
    fn list(&mut self) -> Vec<Task>;

    /// User id of a task; `None` if it is gone.
    fn owner(&mut self, task: u32) -> Option<u32>;
}

/// A task's class and RMID as resctrl knows them.
#[derive(Clone, Copy)]
struct Known {
    started: u64,
    belongs: (u32, u32),
}

/// Class and RMID of every task.
pub(super) struct TaskTable {
    source: Box<dyn Tasks>,
    known: HashMap<u32, Known>,
}

impl TaskTable {
    pub fn new(source: Box<dyn Tasks>) -> Self {
        TaskTable { source, known: HashMap::new() }
    }

    /// Updates the tasks; new ones inherit. The list is in the kernel's order.
    pub fn update(&mut self, hardware: &mut dyn Hardware) -> Vec<Task> {
        let listed = self.source.list();
        let mut oldest_first = listed.clone();
        oldest_first.sort_by_key(|task| (task.started, task.id));
        let mut now: HashMap<u32, Known> = HashMap::with_capacity(listed.len());
        for task in &oldest_first {
            let belongs = match self.known.get(&task.id) {
                Some(known) if known.started == task.started => known.belongs,
                _ => {
                    let from = if task.id == task.process { task.parent } else { task.process };
                    let belongs =
                        now.get(&from).or(self.known.get(&from)).map_or((0, 0), |known| known.belongs);
                    if belongs != (0, 0) {
                        hardware.set_task(task.id, belongs.0, belongs.1);
                    }
                    belongs
                }
            };
            now.insert(task.id, Known { started: task.started, belongs });
        }
        self.known = now;
        listed
    }

    /// Class and RMID of a task at the last update.
    pub fn belongs(&self, task: u32) -> Option<(u32, u32)> {
        self.known.get(&task).map(|known| known.belongs)
    }

    /// Whether `which` holds for any task of the last update.
    pub fn any(&self, which: impl Fn((u32, u32)) -> bool) -> bool {
        self.known.values().any(|known| which(known.belongs))
    }

    /// Sets class and RMID of a task.
    pub fn assign(&mut self, hardware: &mut dyn Hardware, task: u32, to: (u32, u32)) {
        if let Some(known) = self.known.get_mut(&task)
            && known.belongs != to
        {
            known.belongs = to;
            hardware.set_task(task, to.0, to.1);
        }
    }

    /// Sets class and RMID of all tasks for which `which` holds.
    pub fn reassign(
        &mut self,
        hardware: &mut dyn Hardware,
        which: impl Fn((u32, u32)) -> bool,
        to: (u32, u32),
    ) {
        let mut chosen: Vec<u32> =
            self.known.iter().filter(|(_, known)| which(known.belongs)).map(|(task, _)| *task).collect();
        chosen.sort_unstable();
        for task in chosen {
            self.assign(hardware, task, to);
        }
    }
}

impl VirtualResctrl {
    pub(super) fn tasks_show(&mut self, group: GroupId) -> String {
        let listed = self.tasks.update(self.hardware.as_mut());
        let group = &self.groups[&group];
        let belongs_here = |(closid, rmid): (u32, u32)| {
            closid == group.closid
                && if group.parent.is_none() { self.can_allocate() } else { rmid == group.rmid }
        };
        let mut text = String::new();
        for task in listed.iter().filter(|task| self.tasks.belongs(task.id).is_some_and(belongs_here)) {
            text.push_str(&format!("{}\n", task.id));
        }
        text
    }

    pub(super) fn tasks_write(&mut self, group: GroupId, data: &[u8], caller: Caller) -> Result<(), Errno> {
        let text = c_string(data);
        if self.host.kernel < Kernel::TASK_LISTS {
            let task = kstrtoint(strim(&text), 0).map_err(|_| Errno::INVAL)?;
            let task = u32::try_from(task).map_err(|_| Errno::INVAL)?;
            self.status.clear();
            return self.move_task(group, task, caller);
        }
        self.status.clear();
        let mut rest = Some(text.as_str());
        while let Some(list) = rest.filter(|list| !list.is_empty() && !list.starts_with('\n')) {
            let (first, others) =
                list.split_once(',').map_or((list, None), |(first, others)| (first, Some(others)));
            rest = others;
            let first = strim(first);
            let Ok(number) = kstrtoint(first, 0) else {
                self.status.printf(&format!("Task list parsing error pid {first}\n"));
                return Err(Errno::INVAL);
            };
            let Ok(task) = u32::try_from(number) else {
                self.status.printf(&format!("Invalid pid {number}\n"));
                return Err(Errno::INVAL);
            };
            self.move_task(group, task, caller)
                .inspect_err(|_| self.status.printf(&format!("Error while processing task {task}\n")))?;
        }
        Ok(())
    }

    fn move_task(&mut self, group: GroupId, task: u32, caller: Caller) -> Result<(), Errno> {
        let task = if task == 0 { caller.pid } else { task };
        self.tasks.update(self.hardware.as_mut());
        let owner = self.tasks.source.owner(task);
        let (Some(owner), Some(belongs)) = (owner, self.tasks.belongs(task)) else {
            self.status.printf(&format!("No task {task}\n"));
            return Err(Errno::SRCH);
        };
        if caller.uid != 0 && caller.uid != owner {
            self.status.printf(&format!("No permission to move task {task}\n"));
            return Err(Errno::PERM);
        }
        let group = &self.groups[&group];
        if group.parent.is_some() && belongs.0 != group.closid {
            self.status.puts("Can't move task to different control group\n");
            return Err(Errno::INVAL);
        }
        let to = (group.closid, group.rmid);
        self.tasks.assign(self.hardware.as_mut(), task, to);
        Ok(())
    }
}
