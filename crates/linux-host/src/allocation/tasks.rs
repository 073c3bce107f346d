//! A tenant's processes, their threads, and moving all of them into a group.
//!
//! The kernel reuses pids, so a process is identified by its pid and start time. Must not know masks.

use super::{Allocation, GroupsError, Member};
use rustix::io::Errno;
use std::collections::BTreeSet;
use waykeeper_kernel::resctrl::Group;
use waykeeper_kernel::restore::task_start;
use waykeeper_kernel::root::{FileError, Root};
use waykeeper_units::WorkloadId;

/// How often threads are listed while new ones appear. A thread starts in its parent's group, so only threads of
/// parents not yet moved can be missing, and each round leaves fewer.
const ROUNDS: usize = 8;

/// A process of a tenant, as it was found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TenantProcess {
    pub pid: u32,
    /// Start time in clock ticks since boot; `None` if no such process was visible.
    started: Option<u64>,
}

impl TenantProcess {
    /// The process that has this pid now. Fails if that cannot be read.
    pub fn find(root: &Root, pid: u32) -> Result<TenantProcess, FileError> {
        Ok(TenantProcess { pid, started: task_start(root, pid)? })
    }

    /// A process that was found at this time.
    #[cfg(test)]
    pub fn at(pid: u32, started: u64) -> TenantProcess {
        TenantProcess { pid, started: Some(started) }
    }

    /// Whether the pid no longer belongs to this process. Fails if that cannot be read.
    fn has_ended(&self, root: &Root) -> Result<bool, FileError> {
        Ok(task_start(root, self.pid)? != self.started)
    }

    /// Its threads now, itself included.
    pub fn threads(&self, root: &Root) -> Result<Vec<u32>, FileError> {
        let threads = match root.list(format!("/proc/{}/task", self.pid)) {
            Err(error) if error.is_absent() || error.errno() == Some(Errno::SRCH) => Vec::new(),
            threads => threads?,
        };
        let threads: Vec<u32> = threads.iter().filter_map(|thread| thread.parse().ok()).collect();
        // Without a list, the process itself; resctrl reports if it does not exist.
        Ok(if threads.is_empty() { vec![self.pid] } else { threads })
    }
}

/// The result of moving processes.
#[derive(Debug, Default)]
pub(super) struct Moved {
    /// Processes that have ended.
    pub ended: Vec<TenantProcess>,
    /// Processes with threads that are not in the group: other programs' groups have them, or new threads appear faster
    /// than they are moved.
    pub elsewhere: Vec<TenantProcess>,
}

/// Lists and moves threads until a list has no new one, or for [`ROUNDS`] rounds. Returns the number of new threads in
/// the last list.
fn until_none_is_new<E>(
    mut list: impl FnMut() -> Result<Vec<u32>, E>,
    mut assign: impl FnMut(&[u32]) -> Result<(), E>,
) -> Result<usize, E> {
    let mut known = BTreeSet::new();
    let mut fresh = 0;
    for _ in 0..ROUNDS {
        let threads: Vec<u32> = list()?.into_iter().filter(|thread| known.insert(*thread)).collect();
        fresh = threads.len();
        if fresh == 0 {
            break;
        }
        assign(&threads)?;
    }
    Ok(fresh)
}

impl Allocation {
    /// The present threads of a tenant's processes. A process that got the pid of an ended one is not the tenant's.
    pub(super) fn threads(&self, tenant: WorkloadId) -> Result<Vec<u32>, FileError> {
        let processes = self.members.get(&tenant).map(|member| member.processes.as_slice());
        self.threads_of(processes.unwrap_or_default())
    }

    pub(super) fn threads_of(&self, processes: &[TenantProcess]) -> Result<Vec<u32>, FileError> {
        let mut all = Vec::new();
        for process in processes {
            if !process.has_ended(&self.root)? {
                all.extend(process.threads(&self.root)?);
            }
        }
        Ok(all)
    }

    /// Moves the threads of processes. Those that have ended are dropped from their tenant's list.
    pub(super) fn assign(
        &mut self,
        tenant: Option<WorkloadId>,
        processes: &[TenantProcess],
        group: &Group,
    ) -> Result<Moved, GroupsError> {
        let (mut moved, fresh) = self.move_processes(tenant, processes, group)?;
        let Some(member) = tenant.and_then(|tenant| self.members.get_mut(&tenant)) else { return Ok(moved) };
        let ended = &moved.ended;
        if fresh > 0 {
            moved.elsewhere = processes.iter().filter(|process| !ended.contains(process)).copied().collect();
            let name = &member.tenant.name;
            let note = format!(
                "tenant {name} starts threads faster than they are moved; some may be in another group"
            );
            if self.noted.insert(format!("threads of {name}"), self.round).is_none() {
                self.notes.push(note);
            }
        }
        if !ended.is_empty() {
            let pids: Vec<u32> = ended.iter().map(|process| process.pid).collect();
            self.notes.push(format!(
                "tenant {} does not have, or no longer has, the processes {pids:?}",
                member.tenant.name
            ));
            member.missing.extend(pids);
            member.processes.retain(|process| !ended.contains(process));
        }
        Ok(moved)
    }

    /// Moves processes. Also returns the number of new threads in the last list. Tasks in other programs' groups stay
    /// there.
    fn move_processes(
        &mut self,
        tenant: Option<WorkloadId>,
        processes: &[TenantProcess],
        group: &Group,
    ) -> Result<(Moved, usize), GroupsError> {
        let mut gone = BTreeSet::new();
        let mut moved = BTreeSet::new();
        let mut theirs: BTreeSet<u32> = BTreeSet::new();
        let fresh = until_none_is_new(
            || Ok::<_, GroupsError>(self.threads_of(processes)?),
            |threads| {
                // Read just before the move: a program that waits for the end of our step will have moved its tasks by
                // then.
                let others = self.others_tasks()?;
                let stays =
                    |thread: &&u32| others.contains(thread) && !self.external.taken_back.contains(thread);
                let (stay, go): (Vec<u32>, Vec<u32>) = threads.iter().partition(stays);
                theirs.extend(stay);
                let result = self.resctrl.assign(group, &go)?;
                gone.extend(result.vanished);
                moved.extend(result.moved);
                Ok(())
            },
        )?;
        let mut elsewhere = Vec::new();
        if !theirs.is_empty() {
            let tasks: Vec<u32> = theirs.iter().copied().collect();
            let about = match tenant {
                Some(tenant) => format!("tasks of {tenant}"),
                None => format!("tasks {tasks:?}"),
            };
            self.note_once(
                about,
                format!("tasks {tasks:?} are now in groups of another tool and stay there"),
            );
            for process in processes {
                if process.threads(&self.root)?.iter().any(|thread| theirs.contains(thread)) {
                    elsewhere.push(*process);
                }
            }
        }
        let (mut ended, mut taken, mut unknown) = (Vec::new(), Vec::new(), Ok(()));
        for process in processes {
            match task_start(&self.root, process.pid) {
                Err(why) => unknown = Err(why),
                Ok(now) if gone.contains(&process.pid) || now != process.started => {
                    ended.push(*process);
                    // Between the check and the write the pid may have been reused, and the new process is now in our group.
                    if moved.contains(&process.pid) && now.is_some() {
                        taken.push(process.pid);
                    }
                }
                Ok(_) => {}
            }
        }
        if !taken.is_empty() {
            self.resctrl.assign(&Group::DEFAULT, &taken)?;
            self.notes.push(format!(
                "processes {taken:?} ended and other processes got their pids: these are moved \
                    back to the default group"
            ));
        }
        // After what is known has been put right.
        unknown?;
        elsewhere.retain(|process| !ended.contains(process));
        Ok((Moved { ended, elsewhere }, fresh))
    }

    /// The added and removed processes of a tenant, given its present pids. Moves nothing. A process that cannot be
    /// looked at is neither.
    pub(super) fn look_at(
        &self,
        tenant: WorkloadId,
        pids: &[u32],
    ) -> (Vec<TenantProcess>, Vec<TenantProcess>) {
        let Some(Member { processes: known, missing, .. }) = self.members.get(&tenant) else {
            return (Vec::new(), Vec::new());
        };
        let now = pids.iter().filter_map(|pid| TenantProcess::find(&self.root, *pid).ok());
        // A missing pid is not reported again until it has a process.
        let new = |process: &TenantProcess| process.started.is_some() || !missing.contains(&process.pid);
        let come = now.filter(|process| new(process) && !known.contains(process)).collect();
        let is_gone = |process: &&TenantProcess| {
            !pids.contains(&process.pid) || process.has_ended(&self.root).unwrap_or(false)
        };
        (come, known.iter().filter(is_gone).copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(folder: &std::path::Path, pid: u32, started: u64) {
        let process = folder.join(format!("proc/{pid}"));
        std::fs::create_dir_all(process.join(format!("task/{pid}"))).unwrap();
        // Fields 3 to 21, then the start.
        let text = format!("{pid} (a) b) S {}{started} 0\n", "1 ".repeat(18));
        std::fs::write(process.join("stat"), text).unwrap();
    }

    #[test]
    fn a_pid_that_went_to_another_process_is_not_taken_for_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        stat(folder.path(), 42, 1000);
        let process = TenantProcess::find(&root, 42).unwrap();
        assert_eq!(process, TenantProcess { pid: 42, started: Some(1000) });
        std::fs::create_dir(folder.path().join("proc/42/task/57")).unwrap();
        assert_eq!(process.has_ended(&root), Ok(false));
        assert_eq!(process.threads(&root), Ok(vec![42, 57]));
        stat(folder.path(), 42, 2000);
        assert_eq!(process.has_ended(&root), Ok(true));
        std::fs::remove_dir_all(folder.path().join("proc/42")).unwrap();
        assert_eq!(process.has_ended(&root), Ok(true));
        // Reading a directory is refused: whether the process ended is not known.
        std::fs::create_dir_all(folder.path().join("proc/42/stat")).unwrap();
        assert!(process.has_ended(&root).is_err() && TenantProcess::find(&root, 42).is_err());
        // A pid without a process is not the process that gets it later.
        let missing = TenantProcess::find(&root, 43).unwrap();
        assert_eq!(missing.has_ended(&root), Ok(false));
        stat(folder.path(), 43, 3000);
        assert_eq!(missing.has_ended(&root), Ok(true));
    }

    #[test]
    fn threads_are_listed_until_none_is_new() {
        // 11 was started by 10 before 10 moved, 12 by 11 likewise.
        let lists = [vec![10], vec![10, 11], vec![10, 11, 12], vec![10, 11, 12]];
        let mut next = lists.into_iter();
        let mut moved = Vec::new();
        let list = || next.next().ok_or("listed once more than needed");
        let assign = |threads: &[u32]| {
            moved.extend_from_slice(threads);
            Ok(())
        };
        assert_eq!(until_none_is_new(list, assign), Ok(0));
        assert_eq!(moved, [10, 11, 12]);
        let mut number = 0;
        let endless = || {
            number += 1;
            Ok::<_, &str>(vec![number])
        };
        assert_eq!(until_none_is_new(endless, |_| Ok(())), Ok(1), "it gives up");
    }
}
