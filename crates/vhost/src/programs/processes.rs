//! `/proc/PID` of the scenario's programs, in the formats of proc(5) and linux fs/proc/array.c.
//!
//! Only the files that tools read to find a process and its cores and control group: stat, status, comm, cmdline,
//! cgroup and its threads. It must not know how the tree is mounted.

use super::{ProgramProcess, Programs};
use crate::dynamic_tree::{DirectoryEntry, DynamicTree};
use crate::topology::{list, map};
use rustix::io::Errno;
use std::fmt::Write;

/// Nanoseconds in a clock tick (sysconf(_SC_CLK_TCK) is 100 on x86).
const TICK_NS: u64 = 10_000_000;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Longest `comm` (include/linux/sched.h: TASK_COMM_LEN, with its NUL).
const COMM: usize = 15;

/// A file of a process or thread; its index in [`FILES`] is part of its inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Stat,
    Status,
    Comm,
    Cmdline,
    Cgroup,
    Children,
}

/// All files, by name.
const FILES: [(&str, What); 6] = [
    ("stat", What::Stat),
    ("status", What::Status),
    ("comm", What::Comm),
    ("cmdline", What::Cmdline),
    ("cgroup", What::Cgroup),
    // Only threads have it.
    ("children", What::Children),
];

/// The meaning of an inode number: bits 47 to 16 the pid, 15 to 5 the thread's index plus 1 (0: the process), 4 to 0
/// the file's index plus 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    /// `/proc` itself.
    Root,
    /// A process' directory.
    Process(u32),
    /// The `task` directory of a process.
    Task(u32),
    /// A thread's directory.
    Thread(u32, u32),
    /// A file of a process, or of one of its threads.
    File(u32, Option<u32>, What),
}

/// The lowest bits of a `task` directory's number.
const TASK: u64 = 31;

impl Node {
    fn number(self) -> u64 {
        let of = |pid: u32, place: u64, what: u64| u64::from(pid) << 16 | place << 5 | what;
        match self {
            Node::Root => 0,
            Node::Process(pid) => of(pid, 0, 0),
            Node::Task(pid) => of(pid, 0, TASK),
            Node::Thread(pid, thread) => of(pid, u64::from(thread) + 1, 0),
            Node::File(pid, thread, what) => {
                let place = FILES.iter().position(|(_, it)| *it == what).unwrap_or(0);
                of(pid, thread.map_or(0, |thread| u64::from(thread) + 1), place as u64 + 1)
            }
        }
    }

    fn of(number: u64) -> Option<Node> {
        let pid = u32::try_from(number >> 16).ok()?;
        let thread = ((number >> 5) as u32 & 0x7ff).checked_sub(1);
        Some(match (number & 31, thread) {
            (0, _) if number == 0 => Node::Root,
            (0, None) => Node::Process(pid),
            (0, Some(thread)) => Node::Thread(pid, thread),
            (TASK, None) => Node::Task(pid),
            (place, thread) => Node::File(pid, thread, FILES.get(place as usize - 1)?.1),
        })
    }
}

/// The processes of a server.
pub struct Processes {
    programs: Programs,
    /// Number of CPUs and of nodes.
    cpus: usize,
    nodes: usize,
}

impl Processes {
    /// The processes of a server with `cpus` CPUs and `nodes` NUMA nodes.
    pub fn new(programs: Programs, cpus: usize, nodes: usize) -> Processes {
        Processes { programs, cpus, nodes }
    }

    /// The process, if it runs and has this thread; ENOENT if not.
    fn there(&self, pid: u32, thread: Option<u32>) -> Result<ProgramProcess, Errno> {
        let program = self.programs.find(pid).map_err(|error| match error {
            Errno::SRCH => Errno::NOENT,
            other => other,
        })?;
        match thread.is_none_or(|thread| thread < program.threads()) {
            true => Ok(program),
            false => Err(Errno::NOENT),
        }
    }

    fn content(&self, program: &ProgramProcess, thread: Option<u32>, what: What) -> String {
        match what {
            What::Stat => stat(program, thread),
            What::Status => self.status(program, thread),
            What::Comm => format!("{}\n", comm(program)),
            What::Cmdline => {
                let workload = program.workload();
                format!("{}\0--name\0{}\0--cores\0{}\0", workload.program.name, workload.name, workload.cores)
            }
            What::Cgroup => format!("0::/{}\n", program.workload().cgroup),
            // No program of the model starts another.
            What::Children => String::new(),
        }
    }

    /// fs/proc/array.c: proc_pid_status of 6.12, without the lines that do not apply to programs of the model.
    fn status(&self, program: &ProgramProcess, thread: Option<u32>) -> String {
        let tid = program.pid + thread.unwrap_or(0);
        let kib = program.memory_bytes() / 1024;
        let size = |name: &str| format!("{name}:\t{kib:8} kB\n");
        let mut text = format!(
            "Name:\t{}\nUmask:\t0022\nState:\tR (running)\nTgid:\t{}\nNgid:\t0\nPid:\t{tid}\nPPid:\t0\nTracerPid:\t0\n\
             Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nFDSize:\t64\nGroups:\t \nNStgid:\t{}\nNSpid:\t{tid}\nNSpgid:\t{}\n\
             NSsid:\t{}\nKthread:\t0\n",
            comm(program),
            program.pid,
            program.pid,
            program.pid,
            program.pid
        );
        for name in ["VmPeak", "VmSize"] {
            text.push_str(&size(name));
        }
        for name in ["VmHWM", "VmRSS", "RssAnon"] {
            text.push_str(&size(name));
        }
        let cpus = || self.programs.effective(program.cpus());
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "Threads:\t{}\nNoNewPrivs:\t0\nSeccomp:\t0\nCpus_allowed:\t{}\nCpus_allowed_list:\t{}\n\
             Mems_allowed:\t{}\nMems_allowed_list:\t{}\nvoluntary_ctxt_switches:\t0\nnonvoluntary_ctxt_switches:\t0\n",
            program.threads(),
            map(cpus(), self.cpus),
            list(cpus()),
            map(0..self.nodes, self.nodes),
            list(0..self.nodes)
        );
        text
    }
}

fn comm(program: &ProgramProcess) -> &str {
    let name = program.workload().program.name;
    name.get(..COMM).unwrap_or(name)
}

/// fs/proc/array.c: do_task_stat, 52 fields. A program has parent 0 (as a process from outside of a pid namespace),
/// always runs, and took all its memory at its start.
fn stat(program: &ProgramProcess, thread: Option<u32>) -> String {
    let (pid, tid) = (program.pid, program.pid + thread.unwrap_or(0));
    let busy = match thread {
        None => program.busy_ns().iter().sum(),
        Some(thread) => program.busy_ns().get(thread as usize).copied().unwrap_or(0),
    };
    let (ticks, started) = (busy / TICK_NS, program.started_ns() / TICK_NS);
    let (bytes, pages) = (program.memory_bytes(), program.memory_bytes() / PAGE);
    let cpu = program.cpus().nth(thread.unwrap_or(0) as usize).unwrap_or(0);
    // PF_RANDOMIZE, which every program has.
    let flags = 0x40_0000;
    // exit_signal is SIGCHLD for a process, -1 for its other threads.
    let signal = if tid == pid { 17 } else { -1 };
    let (name, threads) = (comm(program), program.threads());
    format!(
        "{tid} ({name}) R 0 {pid} {pid} 0 -1 {flags} 0 0 0 0 {ticks} 0 0 0 20 0 {threads} 0 {started} {bytes} {pages} \
         18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 {signal} {cpu} 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    )
}

impl DynamicTree for Processes {
    fn list(&self, directory: u64) -> Result<Vec<DirectoryEntry>, Errno> {
        let files = |pid: u32, thread: Option<u32>| {
            let there = move |what: &What| thread.is_some() || *what != What::Children;
            let files = FILES.iter().filter(move |(_, what)| there(what));
            files
                .map(move |(name, what)| DirectoryEntry::file(*name, Node::File(pid, thread, *what).number()))
        };
        match Node::of(directory).ok_or(Errno::NOENT)? {
            Node::Root => {
                let programs = self.programs.list()?.into_iter().map(|program| program.pid);
                Ok(programs
                    .map(|pid| DirectoryEntry::directory(pid.to_string(), Node::Process(pid).number()))
                    .collect())
            }
            Node::Process(pid) => {
                self.there(pid, None)?;
                let task = DirectoryEntry::directory("task", Node::Task(pid).number());
                Ok(files(pid, None).chain([task]).collect())
            }
            Node::Task(pid) => {
                let program = self.there(pid, None)?;
                let thread = |(place, tid): (u32, u32)| {
                    DirectoryEntry::directory(tid.to_string(), Node::Thread(pid, place).number())
                };
                Ok((0..).zip(program.tids()).map(thread).collect())
            }
            Node::Thread(pid, thread) => {
                self.there(pid, Some(thread))?;
                Ok(files(pid, Some(thread)).collect())
            }
            Node::File(..) => Err(Errno::NOTDIR),
        }
    }

    fn is_directory(&self, number: u64) -> bool {
        !matches!(Node::of(number), Some(Node::File(..)) | None)
    }

    fn present(&self, number: u64) -> Result<(), Errno> {
        match Node::of(number).ok_or(Errno::NOENT)? {
            Node::Root => Ok(()),
            Node::Process(pid) | Node::Task(pid) => self.there(pid, None).map(drop),
            Node::Thread(pid, thread) => self.there(pid, Some(thread)).map(drop),
            Node::File(pid, thread, _) => self.there(pid, thread).map(drop),
        }
    }

    fn read(&self, number: u64) -> Result<Vec<u8>, Errno> {
        match Node::of(number).ok_or(Errno::NOENT)? {
            // A file of a process that ended, if still open, returns ESRCH (fs/proc/base.c: proc_single_show).
            Node::File(pid, thread, what) => {
                Ok(self.content(&self.programs.find(pid)?, thread, what).into_bytes())
            }
            _ => Err(Errno::ISDIR),
        }
    }

    fn path(&self, number: u64) -> String {
        let name = |what: What| FILES.iter().find(|(_, it)| *it == what).map_or("", |(name, _)| *name);
        match Node::of(number) {
            None | Some(Node::Root) => String::new(),
            Some(Node::Process(pid)) => pid.to_string(),
            Some(Node::Task(pid)) => format!("{pid}/task"),
            Some(Node::Thread(pid, thread)) => format!("{pid}/task/{}", pid + thread),
            Some(Node::File(pid, None, what)) => format!("{pid}/{}", name(what)),
            Some(Node::File(pid, Some(thread), what)) => {
                format!("{pid}/task/{}/{}", pid + thread, name(what))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_has_a_number_of_its_own() {
        let mut nodes = vec![Node::Root];
        for pid in [5_000_000, 5_000_001, (1 << 31) - 1] {
            nodes.extend([Node::Process(pid), Node::Task(pid)]);
            for thread in [None, Some(0), Some(1), Some(511)] {
                nodes.extend(thread.map(|thread| Node::Thread(pid, thread)));
                nodes.extend(FILES.map(|(_, what)| Node::File(pid, thread, what)));
            }
        }
        let mut numbers: Vec<u64> = nodes.iter().map(|node| node.number()).collect();
        for (node, number) in nodes.iter().zip(&numbers) {
            assert_eq!(Node::of(*number), Some(*node));
            assert!(*number < crate::dynamic_tree::END);
        }
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), nodes.len());
        assert_eq!((Node::of(u64::MAX), Node::of(5 << 16 | 17)), (None, None));
    }
}
