//! Tasks and their classes: who belongs to which group, and what a new task inherits.
//!
//! The kernel keeps class and RMID in each task and copies both at fork. Seen from outside a fork is found afterwards:
//! a task that was not there at the last look has what its parent (a thread: its process) has now. A child whose
//! parent is gone before anyone looked counts as a child of whoever adopted it, and so falls into the default group.
//! This file must not know where the list of tasks comes from.

/// One task of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Thread id.
    pub id: u32,
    /// Its process: the id of its first thread.
    pub process: u32,
    /// The process that started the process; 0 if none.
    pub parent: u32,
    /// When it started, in any unit: with the id it tells a task from a later one with the same id.
    pub started: u64,
}

/// The tasks of the host.
pub trait Tasks: Send {
    /// All tasks: processes by rising id, each followed by its other threads.
    fn list(&mut self) -> Vec<Task>;

    /// User id of a task; `None` if it is gone.
    fn owner(&mut self, task: u32) -> Option<u32>;
}
