//! `/sys/fs/cgroup`: the control groups of the scenario's programs, as cgroup v2 shows them.
//!
//! A control group exists as long as a program is in it or below it, as with systemd's services. Source of names and
//! formats: linux Documentation/admin-guide/cgroup-v2.rst. It must not know how the tree is mounted.

use super::{ProgramProcess, Programs};
use crate::dynamic_tree::{DirectoryEntry, DynamicTree};
use crate::topology::list;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Controllers that systemd finds and enables.
const CONTROLLERS: &str = "cpuset cpu io memory pids\n";

/// Files of a control group, by name; `true` if the root has the file too.
const FILES: [(&str, What, bool); 10] = [
    ("cgroup.controllers", What::Controllers, true),
    ("cgroup.subtree_control", What::SubtreeControl, true),
    ("cgroup.procs", What::Procs, true),
    ("cgroup.threads", What::Threads, true),
    ("cgroup.type", What::Type, false),
    ("cgroup.events", What::Events, false),
    ("cpuset.cpus", What::Cpus, false),
    ("cpuset.cpus.effective", What::CpusEffective, true),
    ("cpuset.mems", What::Mems, false),
    ("cpuset.mems.effective", What::MemsEffective, true),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Controllers,
    SubtreeControl,
    Procs,
    Threads,
    Type,
    Events,
    Cpus,
    CpusEffective,
    Mems,
    MemsEffective,
}

/// A control group that a scenario names, or one above it; index 0 is the root.
#[derive(Debug)]
struct Group {
    /// Path below the root, empty for the root.
    path: String,
    /// Index of the group above.
    parent: usize,
    /// Serial numbers of the programs in it and below, when last read.
    members: BTreeSet<u64>,
    /// How often it was created: a recreated group is another group.
    made: u64,
}

/// The control groups of a server.
pub struct Cgroups {
    programs: Programs,
    groups: Mutex<Vec<Group>>,
    cpus: usize,
    nodes: usize,
}

/// An inode number: bits 55 to 20 how often the group was created, 19 to 4 its index, 3 to 0 the file's index plus 1.
fn number(made: u64, group: usize, file: usize) -> u64 {
    (made & 0xf_ffff_ffff) << 20 | (group as u64 & 0xffff) << 4 | file as u64
}

fn parts(number: u64) -> (u64, usize, usize) {
    (number >> 20, (number >> 4) as usize & 0xffff, number as usize & 0xf)
}

impl Cgroups {
    /// The control groups of a server with `cpus` CPUs and `nodes` NUMA nodes.
    pub fn new(programs: Programs, cpus: usize, nodes: usize) -> Cgroups {
        let mut groups = vec![Group { path: String::new(), parent: 0, members: BTreeSet::new(), made: 0 }];
        for workload in &programs.scenario().workloads {
            let mut parent = 0;
            let ends = workload.cgroup.match_indices('/').map(|(end, _)| end);
            for end in ends.chain([workload.cgroup.len()]) {
                let path = &workload.cgroup[..end];
                parent = groups.iter().position(|group| group.path == path).unwrap_or_else(|| {
                    groups.push(Group { path: path.to_owned(), parent, members: BTreeSet::new(), made: 0 });
                    groups.len() - 1
                });
            }
        }
        Cgroups { programs, groups: Mutex::new(groups), cpus, nodes }
    }

    /// Updates the members, then calls `act` with the groups and all programs.
    fn with_members<R>(
        &self,
        act: impl FnOnce(&[Group], &[ProgramProcess]) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        // After a panic elsewhere the members may be stale; they are computed again here.
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let programs = self.programs.list()?;
        for group in groups.iter_mut().skip(1) {
            let below = programs.iter().filter(|program| is_in(program, &group.path));
            let members: BTreeSet<u64> = below.map(ProgramProcess::serial).collect();
            if group.members.is_disjoint(&members) && !members.is_empty() {
                group.made += 1;
            }
            group.members = members;
        }
        act(&groups, &programs)
    }

    /// The index of a number's group, if that group exists.
    fn place(groups: &[Group], number: u64) -> Option<usize> {
        let (made, place, _) = parts(number);
        let group = groups.get(place)?;
        (group.made == made && (place == 0 || !group.members.is_empty())).then_some(place)
    }

    fn content(&self, groups: &[Group], programs: &[ProgramProcess], place: usize, what: What) -> String {
        let group = &groups[place];
        let own = || programs.iter().filter(|program| program.workload().cgroup == group.path);
        let leaf = own().next().is_some();
        let line = |number: u32| format!("{number}\n");
        match what {
            What::Controllers => CONTROLLERS.to_owned(),
            What::SubtreeControl if leaf => "\n".to_owned(),
            What::SubtreeControl => CONTROLLERS.to_owned(),
            What::Procs => own().map(|program| line(program.pid)).collect(),
            What::Threads => own().flat_map(ProgramProcess::tids).map(line).collect(),
            What::Type => "domain\n".to_owned(),
            What::Events => "populated 1\nfrozen 0\n".to_owned(),
            What::Cpus | What::CpusEffective if leaf => {
                let cpus: BTreeSet<usize> = own().flat_map(ProgramProcess::cpus).collect();
                match what {
                    What::Cpus => format!("{}\n", list(cpus)),
                    _ => format!("{}\n", list(self.programs.effective(cpus))),
                }
            }
            What::CpusEffective => format!("{}\n", list(self.programs.effective(0..self.cpus))),
            What::MemsEffective => format!("{}\n", list(0..self.nodes)),
            // Not set here: inherited from the group above.
            What::Cpus | What::Mems => "\n".to_owned(),
        }
    }
}

/// Whether a program is in a control group or below it.
fn is_in(program: &ProgramProcess, path: &str) -> bool {
    let own = &program.workload().cgroup;
    own.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Files of a group, with their indices from 1 on.
fn files(place: usize) -> impl Iterator<Item = (usize, &'static str, What)> {
    let all = (1..).zip(FILES).filter(move |(_, (.., root))| place > 0 || *root);
    all.map(|(file, (name, what, _))| (file, name, what))
}

impl DynamicTree for Cgroups {
    fn list(&self, directory: u64) -> Result<Vec<DirectoryEntry>, Errno> {
        if !self.is_directory(directory) {
            return Err(Errno::NOTDIR);
        }
        self.with_members(|groups, _| {
            let place = Self::place(groups, directory).ok_or(Errno::NOENT)?;
            let made = groups[place].made;
            let files =
                files(place).map(|(file, name, _)| DirectoryEntry::file(name, number(made, place, file)));
            let below = groups.iter().enumerate().skip(1);
            let below = below.filter(|(_, group)| group.parent == place && !group.members.is_empty());
            let folders = below.map(|(inner, group)| {
                let name = group.path.rsplit('/').next().unwrap_or_default();
                DirectoryEntry::directory(name, number(group.made, inner, 0))
            });
            Ok(files.chain(folders).collect())
        })
    }

    fn is_directory(&self, number: u64) -> bool {
        parts(number).2 == 0
    }

    fn present(&self, number: u64) -> Result<(), Errno> {
        self.with_members(|groups, _| Self::place(groups, number).map(drop).ok_or(Errno::NOENT))
    }

    fn read(&self, number: u64) -> Result<Vec<u8>, Errno> {
        if self.is_directory(number) {
            return Err(Errno::ISDIR);
        }
        self.with_members(|groups, programs| {
            // kernfs returns ENODEV for an open file whose group was removed.
            let place = Self::place(groups, number).ok_or(Errno::NODEV)?;
            let found = files(place).find(|(file, ..)| *file == parts(number).2);
            let (.., what) = found.ok_or(Errno::NOENT)?;
            Ok(self.content(groups, programs, place, what).into_bytes())
        })
    }

    fn path(&self, number: u64) -> String {
        let (_, place, file) = parts(number);
        let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(group) = groups.get(place) else { return String::new() };
        let name = files(place).find(|(own, ..)| *own == file).map_or("", |(_, name, _)| name);
        [group.path.as_str(), name].join("/").trim_matches('/').to_owned()
    }
}
