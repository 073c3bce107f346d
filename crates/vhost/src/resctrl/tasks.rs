//! Tasks and their classes: which group a task belongs to, and what a new task inherits.
//!
//! The kernel keeps class and RMID in each task and copies both at fork. Here a record of each fork says whose class
//! a new task has, in the order of the forks. A task without a record (none are kept, or a ring was full) is noticed
//! when the tasks are listed: it gets what its parent (a thread: its process) has then. If the parent ended before that,
//! the child counts as that of the process that adopted it. This file must not know where tasks and records come from.

use super::VirtualResctrl;
use super::description::Kernel;
use super::groups::GroupId;
use super::hardware::Hardware;
use super::numbers::{c_string, kstrtoint, strim};
use crate::fork_records::Forks;
use crate::node::Caller;
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};

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

    /// The forks since the last call. Without records none, and not complete.
    fn forks(&mut self) -> Forks {
        Forks::default()
    }

    /// User id of a task; `None` if it is gone.
    fn owner(&mut self, task: u32) -> Option<u32>;
}

/// A task's class and RMID as resctrl knows them.
#[derive(Clone, Copy)]
struct Known {
    /// `None` until the task is listed.
    started: Option<u64>,
    belongs: (u32, u32),
}

/// How many tasks may be known beyond twice the number that was listed last, before ended ones are dropped.
const UNLISTED: usize = 4096;

/// Class and RMID of every task.
pub(super) struct TaskTable {
    source: Box<dyn Tasks>,
    known: HashMap<u32, Known>,
    /// How many tasks were listed last.
    listed: usize,
    /// The tasks that were recorded since then: the list may have been made just before their forks.
    recorded: HashSet<u32>,
    /// Whether a fork may be missing since then.
    missed: bool,
}

impl TaskTable {
    pub fn new(source: Box<dyn Tasks>) -> Self {
        TaskTable { source, known: HashMap::new(), listed: 0, recorded: HashSet::new(), missed: true }
    }

    /// Lets new tasks inherit, in the order of their forks. Returns whether no fork is missing.
    fn inherit(&mut self, hardware: &mut dyn Hardware) -> bool {
        let forks = self.source.forks();
        for fork in &forks.seen {
            let belongs = self.known.get(&fork.from).map_or((0, 0), |known| known.belongs);
            let before = self.known.insert(fork.task, Known { started: None, belongs });
            // An earlier task with this id may have had a class.
            if belongs != before.map_or((0, 0), |known| known.belongs) {
                hardware.set_task(fork.task, belongs.0, belongs.1);
            }
        }
        self.recorded.extend(forks.seen.iter().map(|fork| fork.task));
        self.missed |= !forks.complete;
        forks.complete
    }

    /// Makes what one task belongs to up to date, as [`TaskTable::update`] does for all. Lists the tasks only if a fork may
    /// be missing: then a child of the task that is not noticed now would get the class that its parent has next.
    pub fn update_one(&mut self, hardware: &mut dyn Hardware, task: u32) {
        if !self.follows_all(hardware) || !self.known.contains_key(&task) {
            self.update(hardware);
        }
    }

    /// Whether no fork is missing, so that each task that has a class is known without a list.
    pub fn follows_all(&mut self, hardware: &mut dyn Hardware) -> bool {
        self.inherit(hardware);
        !self.missed
    }

    /// Reads the records of forks, so that they need no more room. Ended tasks are dropped when they are many.
    pub fn follow(&mut self, hardware: &mut dyn Hardware) {
        self.inherit(hardware);
        if self.known.len() > 2 * self.listed + UNLISTED {
            self.update(hardware);
        }
    }

    /// Updates the tasks; new ones inherit. The list is in the kernel's order.
    pub fn update(&mut self, hardware: &mut dyn Hardware) -> Vec<Task> {
        self.missed = false;
        let listed = self.source.list();
        // After the list, so that a listed task has its record. One whose fork(2) has not returned may be listed
        // before its record is written: the second look finds it.
        let complete = self.inherit(hardware);
        if complete && listed.iter().any(|task| !self.knows(task)) {
            self.inherit(hardware);
        }
        let mut oldest_first = listed.clone();
        oldest_first.sort_by_key(|task| (task.started, task.id));
        for task in &oldest_first {
            let asked = if self.knows(task) {
                task.id
            } else if task.id == task.process {
                task.parent
            } else {
                task.process
            };
            let belongs = self.known.get(&asked).map_or((0, 0), |known| known.belongs);
            if asked != task.id && belongs != (0, 0) {
                hardware.set_task(task.id, belongs.0, belongs.1);
            }
            self.known.insert(task.id, Known { started: Some(task.started), belongs });
        }
        // A task that was recorded after the list is not in it. One that has ended since its record is dropped next time.
        let mut kept = std::mem::take(&mut self.recorded);
        kept.extend(listed.iter().map(|task| task.id));
        self.known.retain(|task, _| kept.contains(task));
        self.listed = listed.len();
        listed
    }

    /// Whether this task is known, and not an earlier one with its id.
    fn knows(&self, task: &Task) -> bool {
        let same = |known: &Known| known.started.is_none_or(|started| started == task.started);
        self.known.get(&task.id).is_some_and(same)
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
    /// Reads the records of forks. It must be called before they need more room than they have.
    pub fn follow_forks(&mut self) {
        self.tasks.follow(self.hardware.as_mut());
    }

    pub(super) fn tasks_show(&mut self, group: GroupId) -> String {
        let can_allocate = self.can_allocate();
        let group = &self.groups[&group];
        let belongs_here = |(closid, rmid): (u32, u32)| {
            closid == group.closid && if group.parent.is_none() { can_allocate } else { rmid == group.rmid }
        };
        // pqos -R reads the tasks of each group for each task of the machine: an empty group needs no list.
        if self.tasks.follows_all(self.hardware.as_mut()) && !self.tasks.any(belongs_here) {
            return String::new();
        }
        let listed = self.tasks.update(self.hardware.as_mut());
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
        self.tasks.update_one(self.hardware.as_mut(), task);
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
