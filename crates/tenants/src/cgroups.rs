//! The cgroup tree: which cgroups match a declaration, their processes, and the CPUs that they are pinned to.
//!
//! Version 2 where it is mounted at `/sys/fs/cgroup`; else version 1's cpuset tree for paths, and systemd's own tree
//! for slices and units. Cgroups may appear and disappear during a look. Must not know tenants.

use super::cores::Cores;
use super::devices::is_printable;
use super::glob::{CgroupSelector, Glob, UNIT_KINDS};
use super::reader::Reader;
use super::roster::{About, Notes};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::rc::Rc;
use waykeeper_kernel::content;
use waykeeper_kernel::root::{FileError, Root};
use waykeeper_units::{CoreList, Likeness, nearest};

const MOUNT: &str = "/sys/fs/cgroup";

/// Most directories of cgroups listed at one look; a node with 250 pods has some 1500.
pub(super) const MOST_FOLDERS: usize = 1 << 12;

/// Bytes of a list of processes: room for 100000 pids.
const PROCS_BYTES: usize = 1 << 20;

/// Bytes of a list of CPUs.
const CPUS_BYTES: usize = 1 << 15;

/// A mounted tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Tree {
    folder: &'static str,
    /// The file with the CPUs in force.
    cpus: &'static str,
}

/// A process in a cgroup, and the CPUs that the cgroup pins it to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct CgroupProcess {
    pub pid: u32,
    pub pinned: Option<CoreList>,
}

/// The trees, and what was listed of them at this look.
#[derive(Debug, Default)]
pub(super) struct Cgroups {
    paths: Option<Tree>,
    units: Option<Tree>,
    listed: BTreeMap<String, Rc<Vec<String>>>,
    /// CPUs from cgroups' own files; `None`: no readable file, `Some(None)`: the file does not pin.
    pinned: BTreeMap<String, Option<Option<CoreList>>>,
}

/// Which directories to search.
#[derive(Clone, Copy)]
enum Way<'g> {
    /// Paths that can lead to this glob, at most this many levels below the start.
    Depth(&'g Glob, usize),
    /// Slices, for a glob of the last component.
    Slices(&'g Glob),
}

impl Cgroups {
    /// Finds the trees, with at most four reads.
    pub fn find(reader: &mut Reader) -> Cgroups {
        if reader.exists("/sys/fs/cgroup/cgroup.controllers") {
            let tree = Some(Tree { folder: MOUNT, cpus: "cpuset.cpus.effective" });
            return Cgroups { paths: tree, units: tree, ..Cgroups::default() };
        }
        let mut at = |folder, cpus| reader.exists(folder).then_some(Tree { folder, cpus });
        let cpuset = at("/sys/fs/cgroup/cpuset", "cpuset.effective_cpus");
        let systemd = at("/sys/fs/cgroup/systemd", "cpuset.effective_cpus");
        let unified = at("/sys/fs/cgroup/unified", "cpuset.cpus.effective");
        Cgroups { paths: cpuset.or(unified), units: systemd.or(unified), ..Cgroups::default() }
    }

    /// Whether the tree of paths has this cgroup.
    pub fn has(&self, reader: &mut Reader, path: &str) -> bool {
        self.paths.is_some_and(|tree| reader.exists(&format!("{}/{path}", tree.folder)))
    }

    fn tree(&self, selector: &CgroupSelector) -> Option<Tree> {
        match selector {
            CgroupSelector::Path(_) => self.paths,
            CgroupSelector::Slice(_) | CgroupSelector::Unit(_) => self.units,
        }
    }

    /// Paths of the cgroups in a cgroup, sorted; the empty path is the root. In version 1 those of systemd's tree.
    pub fn below(&mut self, reader: &mut Reader, folder: &str, notes: &mut Notes) -> Vec<String> {
        let Some(tree) = self.units else { return Vec::new() };
        let names = self.list(reader, tree, folder, notes).unwrap_or_default();
        let mut paths: Vec<String> = names.iter().map(|name| join(folder, name)).collect();
        paths.sort_unstable();
        paths
    }

    /// The folder in which these paths begin.
    pub fn folder(&self) -> &'static str {
        self.units.map_or(MOUNT, |tree| tree.folder)
    }

    /// Paths of the matching cgroups, sorted. Cgroups below a match belong to it and are not matches of their own.
    pub fn matches(
        &mut self,
        reader: &mut Reader,
        selector: &CgroupSelector,
        notes: &mut Notes,
    ) -> Vec<String> {
        let Some(tree) = self.tree(selector) else {
            notes.tell(None, About::Unreadable, "cgroups", || {
                format!("there is no cgroup tree at {}", reader.root().path(MOUNT).display())
            });
            return Vec::new();
        };
        let glob = selector.glob();
        let mut found = Vec::new();
        match selector {
            CgroupSelector::Path(_) if !glob.is_wild() => {
                let is_there = reader.exists(&format!("{}/{}", tree.folder, glob.text()));
                found.extend(is_there.then(|| glob.text().to_owned()));
            }
            CgroupSelector::Slice(_) if !glob.is_wild() => found.extend(place_of(reader, tree, glob.text())),
            CgroupSelector::Path(_) => {
                let parts: Vec<&str> = glob.text().split('/').collect();
                let plain = parts.iter().take_while(|part| !part.contains(['*', '?', '[', '{'])).count();
                // A brace may contain slashes, so the depth is unknown.
                let deep = glob.text().contains("**") || glob.text().contains('{');
                let depth = if deep { usize::MAX } else { parts.len() - plain };
                let start = parts[..plain].join("/");
                self.descend(reader, tree, &start, Way::Depth(glob, depth), &mut found, notes);
            }
            CgroupSelector::Slice(_) | CgroupSelector::Unit(_) => {
                self.descend(reader, tree, "", Way::Slices(glob), &mut found, notes);
            }
        }
        found.sort_unstable();
        found
    }

    /// The unit, slice or path that is most like a declared one; `None` if that exists, or none is like it.
    pub fn nearest(
        &mut self,
        reader: &mut Reader,
        selector: &CgroupSelector,
        notes: &mut Notes,
    ) -> Option<String> {
        let tree = self.tree(selector)?;
        let wanted = selector.glob();
        let path = match selector {
            _ if wanted.is_wild() => return None,
            CgroupSelector::Unit(_) => {
                // The search for it has listed all slices.
                let own = self.listed.iter().filter(|(folder, _)| folder.starts_with(tree.folder));
                let names = || own.clone().flat_map(|(_, names)| names.iter()).map(|name| unit_name(name));
                let is_there = names().any(|name| name == wanted.text());
                let units = names().filter(|name| is_unit(name) && is_printable(name));
                let near = nearest(wanted.text(), units, Likeness::Edits).filter(|_| !is_there);
                return near.map(str::to_owned);
            }
            CgroupSelector::Slice(_) => slice_path(wanted.text()),
            CgroupSelector::Path(_) => wanted.text().to_owned(),
        };
        let mut folder = String::new();
        for part in path.split('/') {
            let names = self.list(reader, tree, &folder, notes)?;
            let Some(name) = names.iter().find(|name| *name == part || unit_name(name) == part) else {
                let printable = names.iter().map(String::as_str).filter(|name| is_printable(name));
                let near = nearest(part, printable, Likeness::Edits)?;
                return Some(match selector {
                    CgroupSelector::Path(_) => join(&folder, near),
                    _ => unit_name(near).to_owned(),
                });
            };
            folder = join(&folder, name);
        }
        None
    }

    fn descend(
        &mut self,
        reader: &mut Reader,
        tree: Tree,
        start: &str,
        way: Way,
        found: &mut Vec<String>,
        notes: &mut Notes,
    ) {
        let mut left = vec![(start.to_owned(), 0)];
        while let Some((folder, depth)) = left.pop() {
            for name in self.list(reader, tree, &folder, notes).iter().flat_map(|names| names.iter()) {
                let path = join(&folder, name);
                let (is_match, leads_on) = match way {
                    Way::Depth(glob, most) => (glob.matches(&path), depth + 1 < most),
                    Way::Slices(glob) => (glob.matches(unit_name(name)), name.ends_with(".slice")),
                };
                if is_match {
                    found.push(path);
                } else if leads_on {
                    left.push((path, depth + 1));
                }
            }
        }
    }

    /// The processes of a cgroup and of those below it, each with the CPUs that the cgroup pins it to.
    pub fn processes_of(
        &mut self,
        reader: &mut Reader,
        selector: &CgroupSelector,
        path: &str,
        cores: &Cores,
        notes: &mut Notes,
    ) -> Vec<CgroupProcess> {
        let Some(tree) = self.tree(selector) else { return Vec::new() };
        let mut inmates = Vec::new();
        let mut left = vec![(path.to_owned(), self.inherited(reader, tree, path, cores))];
        while let Some((folder, inherited)) = left.pop() {
            // A cgroup beyond the limit of listings is not read.
            let Some(below) = self.list(reader, tree, &folder, notes) else { continue };
            let pinned = self.cpus(reader, tree, &folder, cores).unwrap_or(inherited);
            match reader.text(&format!("{}/{folder}/cgroup.procs", tree.folder), PROCS_BYTES) {
                Ok(text) => {
                    // Zero is a process of another PID namespace.
                    let pids = text.iter().flat_map(|text| text.lines()).filter_map(|line| line.parse().ok());
                    let process = |pid| CgroupProcess { pid, pinned: pinned.clone() };
                    inmates.extend(pids.filter(|pid| *pid != 0).map(process));
                }
                // The processes of a threaded cgroup are listed in the nearest ancestor that is not threaded.
                Err(error) if error.errno() == Some(Errno::OPNOTSUPP) => {}
                Err(error) => unreadable(notes, &error),
            }
            left.extend(below.iter().map(|name| (format!("{folder}/{name}"), pinned.clone())));
        }
        inmates
    }

    /// The CPUs that the nearest ancestor with a CPU file pins a cgroup to.
    fn inherited(&mut self, reader: &mut Reader, tree: Tree, path: &str, cores: &Cores) -> Option<CoreList> {
        let mut path = path;
        while let Some((above, _)) = path.rsplit_once('/') {
            if let Some(pinned) = self.cpus(reader, tree, above, cores) {
                return pinned;
            }
            path = above;
        }
        None
    }

    fn cpus(
        &mut self,
        reader: &mut Reader,
        tree: Tree,
        folder: &str,
        cores: &Cores,
    ) -> Option<Option<CoreList>> {
        let path = format!("{}/{folder}/{}", tree.folder, tree.cpus);
        if let Some(known) = self.pinned.get(&path) {
            return known.clone();
        }
        let text = reader.text(&path, CPUS_BYTES).ok().flatten();
        let list = text.and_then(|text| content::cpu_list(&reader.root().path(&path), &text).ok());
        let pinned = list.map(|list| cores.pinned(&list));
        self.pinned.insert(path, pinned.clone());
        pinned
    }

    /// The cgroups in a cgroup, empty if it is gone; `None` if this look has reached its limit.
    fn list(
        &mut self,
        reader: &mut Reader,
        tree: Tree,
        folder: &str,
        notes: &mut Notes,
    ) -> Option<Rc<Vec<String>>> {
        let path = format!("{}/{folder}", tree.folder);
        if let Some(listed) = self.listed.get(&path) {
            return Some(Rc::clone(listed));
        }
        let too_many =
            || format!("more than {MOST_FOLDERS} cgroups may hold tenants; some of them are ignored");
        if self.listed.len() == MOST_FOLDERS {
            notes.tell(None, About::TooMany, "cgroups", too_many);
            return None;
        }
        let names = reader.folders(&path, MOST_FOLDERS).unwrap_or_else(|error| {
            unreadable(notes, &error);
            None
        });
        let (names, more) = names.unwrap_or_default();
        if more {
            notes.tell(None, About::TooMany, "cgroups", too_many);
        }
        let names = Rc::new(names);
        self.listed.insert(path, Rc::clone(&names));
        Some(names)
    }
}

/// Whether a host has a cgroup at this path, which is one that a declaration's `cgroup` can name.
pub fn has_cgroup(root: &Root, path: &str) -> bool {
    let mut reader = Reader::new(root);
    Cgroups::find(&mut reader).has(&mut reader, path)
}

fn unreadable(notes: &mut Notes, error: &FileError) {
    notes.tell(None, About::Unreadable, "cgroup", || {
        format!("{error}; cgroups that cannot be read are ignored")
    });
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// The unit of a cgroup. systemd puts `_` before a name that could be that of a file, such as `io.service` with the
/// controller io (systemd:src/basic/cgroup-util.c, cg_escape).
pub(super) fn unit_name(folder: &str) -> &str {
    folder.strip_prefix('_').unwrap_or(folder)
}

/// Whether a name is that of a unit that has processes.
fn is_unit(name: &str) -> bool {
    UNIT_KINDS.iter().any(|kind| name.ends_with(kind))
}

/// The path of a slice, if it exists.
fn place_of(reader: &mut Reader, tree: Tree, slice: &str) -> Option<String> {
    let mut path = String::new();
    for part in slice_path(slice).split('/') {
        let ways = [join(&path, part), join(&path, &format!("_{part}"))];
        path = ways.into_iter().find(|way| reader.exists(&format!("{}/{way}", tree.folder)))?;
    }
    Some(path)
}

/// The path of a slice: that of `a-b.slice` is `a.slice/a-b.slice` (systemd.slice(5)).
pub fn slice_path(name: &str) -> String {
    let stem = name.strip_suffix(".slice").unwrap_or(name);
    let ends = stem.match_indices('-').map(|(at, _)| at).chain([stem.len()]);
    ends.map(|end| format!("{}.slice", &stem[..end])).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_lies_where_its_name_says() {
        assert_eq!(slice_path("redis.slice"), "redis.slice");
        assert_eq!(slice_path("a-b-c.slice"), "a.slice/a-b.slice/a-b-c.slice");
        assert_eq!(slice_path(r"system-redis\x2dserver.slice"), r"system.slice/system-redis\x2dserver.slice");
    }
}
