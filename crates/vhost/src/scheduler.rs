//! The part of a kernel's scheduler that resctrl needs: a CPU has the class and RMID of its running task.
//!
//! Source: linux resctrl.rst ("Resource allocation rules") and arch/x86/include/asm/resctrl.h (`__resctrl_sched_in`): a
//! task with its own class has it on every CPU, any other has its CPU's; RMIDs likewise. It must not know groups nor
//! registers.

use std::collections::BTreeMap;

/// Class and RMID; 0 means none.
pub type ClosAndRmid = (u32, u32);

/// Classes of CPUs and threads, and the running threads.
#[derive(Debug)]
pub struct Scheduler {
    cpus: Vec<ClosAndRmid>,
    /// Classes of threads that have one.
    threads: BTreeMap<u64, ClosAndRmid>,
    /// The thread on each CPU.
    running: Vec<Option<u64>>,
}

impl Scheduler {
    /// Idle CPUs without a class.
    pub fn new(cpus: usize) -> Scheduler {
        Scheduler { cpus: vec![(0, 0); cpus], threads: BTreeMap::new(), running: vec![None; cpus] }
    }

    /// The class and RMID of a CPU with its running thread.
    pub fn class(&self, cpu: usize) -> ClosAndRmid {
        let own = self.running[cpu].and_then(|thread| self.threads.get(&thread)).copied().unwrap_or((0, 0));
        let or = |own: u32, cpu: u32| if own == 0 { cpu } else { own };
        (or(own.0, self.cpus[cpu].0), or(own.1, self.cpus[cpu].1))
    }

    /// Sets the class of a CPU for tasks without their own.
    pub fn set_cpu(&mut self, cpu: usize, class: ClosAndRmid) {
        self.cpus[cpu] = class;
    }

    /// Sets a thread's own class. Returns its CPU; `None` if the thread does not run, which means it has exited.
    pub fn set_thread(&mut self, thread: u64, class: ClosAndRmid) -> Option<usize> {
        let cpu = self.running.iter().position(|running| *running == Some(thread))?;
        match class {
            (0, 0) => drop(self.threads.remove(&thread)),
            class => drop(self.threads.insert(thread, class)),
        }
        Some(cpu)
    }

    /// Sets the running threads, each with its CPU. Returns the CPUs whose class changed.
    pub fn switch(&mut self, threads: impl Iterator<Item = (usize, u64)>) -> Vec<usize> {
        let before: Vec<ClosAndRmid> = (0..self.cpus.len()).map(|cpu| self.class(cpu)).collect();
        self.running.fill(None);
        for (cpu, thread) in threads {
            self.running[cpu] = Some(thread);
        }
        let running = &self.running;
        self.threads.retain(|thread, _| running.contains(&Some(*thread)));
        (0..self.cpus.len()).filter(|cpu| self.class(*cpu) != before[*cpu]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tasks_class_comes_before_that_of_its_cpu() {
        let mut scheduler = Scheduler::new(3);
        scheduler.set_cpu(1, (2, 7));
        assert_eq!(scheduler.switch([(0, 10), (1, 11)].into_iter()), []);
        assert_eq!([0, 1, 2].map(|cpu| scheduler.class(cpu)), [(0, 0), (2, 7), (0, 0)]);
        assert_eq!(scheduler.set_thread(11, (3, 8)), Some(1));
        assert_eq!(scheduler.class(1), (3, 8));
        // A monitoring group below the default group: the RMID is the task's, the class the CPU's.
        assert_eq!(scheduler.set_thread(11, (0, 9)), Some(1));
        assert_eq!(scheduler.class(1), (2, 9));
        assert_eq!(scheduler.set_thread(12, (1, 1)), None, "no such thread");
        // The thread exits: the CPU gets its own class back, and the thread's class is forgotten.
        assert_eq!(scheduler.switch([(0, 10)].into_iter()), [1]);
        assert_eq!((scheduler.class(1), scheduler.threads.len()), ((2, 7), 0));
        assert_eq!(scheduler.switch([(0, 10), (1, 13)].into_iter()), []);
    }
}
