//! Inode numbers: a stable number for every node of the tree and every place of resctrl.
//!
//! Numbers are not reused while the tree is mounted. The number of a process, a control group or a place of resctrl
//! encodes what it is, so no table is kept for them. The number of a node in a temporary directory has how often that
//! had been made. This file must not know FUSE.

use crate::dynamic_tree::{self, DynamicTree};
use crate::node::{Appearance, File, Node, Tree, TreeParts};
use crate::resctrl::places::Place;
use crate::resctrl::{SharedResctrl, VirtualResctrl};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The root's number (linux fs/fuse: FUSE_ROOT_ID).
pub(crate) const ROOT: u64 = 1;

/// Bits of a fixed node's number for the node; the bits above have how often it was made before. No tree has as many nodes.
const NODE_BITS: u32 = 24;

/// Numbers of resctrl's places below its root start here.
pub(crate) const FIRST_PLACE: u64 = 1 << 40;

/// The index of a fixed node's number.
fn index_of(number: u64) -> Option<usize> {
    usize::try_from((number & ((1 << NODE_BITS) - 1)).checked_sub(ROOT)?).ok()
}

/// A fixed node.
pub(crate) enum Fixed {
    /// With the index of its [`DynamicTree`] entries, if it has any.
    Directory(BTreeMap<String, u64>, Option<usize>),
    File(Box<dyn File>),
    Link(String),
    Resctrl(usize),
}

/// What a number refers to.
pub(crate) enum Target<'a> {
    Fixed(&'a Fixed),
    /// A place in one of the resctrls.
    Place(&'a SharedResctrl, Place),
    /// An entry of one of the dynamic subtrees, with its number there.
    Dynamic(&'a dyn DynamicTree, u64),
}

/// All numbers of one tree.
pub(crate) struct Inodes {
    fixed: Vec<Fixed>,
    paths: Vec<String>,
    /// For each fixed node the index of its appearance, if it is temporary.
    appearing: Vec<Option<usize>>,
    appearances: Vec<Arc<dyn Appearance>>,
    resctrls: Vec<(u64, SharedResctrl)>,
    /// Dynamic subtrees, with the numbers of their directories.
    dynamic_trees: Vec<(u64, Arc<dyn DynamicTree>)>,
}

/// Locks also after a panic elsewhere: resctrl's state is consistent between two calls, and the panic was reported.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inodes {
    pub fn new(tree: Tree) -> Self {
        let mut parts = tree.into_parts();
        let mut inodes = Inodes {
            fixed: Vec::new(),
            paths: Vec::new(),
            appearing: Vec::new(),
            appearances: Vec::new(),
            resctrls: Vec::new(),
            dynamic_trees: Vec::new(),
        };
        let root = std::mem::take(&mut parts.root);
        inodes.add("", Node::Directory(root), None, &mut parts);
        assert!(inodes.fixed.len() < 1 << NODE_BITS, "too many nodes for their numbers");
        inodes
    }

    fn add(&mut self, path: &str, node: Node, above: Option<usize>, parts: &mut TreeParts) -> u64 {
        let own = parts.appearances.remove(path).map(|appearance| {
            self.appearances.push(appearance);
            self.appearances.len() - 1
        });
        let appearing = own.or(above);
        self.appearing.push(appearing);
        let place = self.fixed.len();
        let number = place as u64 + ROOT;
        self.fixed.push(Fixed::Link(String::new()));
        self.paths.push(path.to_owned());
        self.fixed[place] = match node {
            Node::Directory(entries) => {
                let mut numbers = BTreeMap::new();
                for (name, entry) in entries {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                    numbers.insert(name, self.add(&path, entry, appearing, parts));
                }
                let dynamic = parts.dynamic_trees.remove(path).map(|dynamic| {
                    self.dynamic_trees.push((number, dynamic));
                    self.dynamic_trees.len() - 1
                });
                Fixed::Directory(numbers, dynamic)
            }
            Node::File(file) => Fixed::File(file),
            Node::Link(target) => Fixed::Link(target),
            Node::Resctrl(shared) => {
                self.resctrls.push((number, shared));
                Fixed::Resctrl(self.resctrls.len() - 1)
            }
        };
        number
    }

    /// What a number refers to; `None` for numbers that were never assigned.
    pub fn target(&self, number: u64) -> Option<Target<'_>> {
        if let Some((dynamic, inner)) = self.dynamic_of(number) {
            return Some(Target::Dynamic(self.dynamic_trees[dynamic].1.as_ref(), inner));
        }
        if number >= FIRST_PLACE {
            let (resctrl, place) = self.place_of(number)?;
            return Some(Target::Place(&self.resctrls[resctrl].1, place));
        }
        match self.fixed.get(index_of(number)?)? {
            Fixed::Resctrl(resctrl) => Some(Target::Place(&self.resctrls[*resctrl].1, Place::ROOT)),
            fixed => Some(Target::Fixed(fixed)),
        }
    }

    /// The appearance of a fixed node.
    fn appearance(&self, number: u64) -> Option<&dyn Appearance> {
        let appearing = (*self.appearing.get(index_of(number).filter(|_| number < FIRST_PLACE)?)?)?;
        Some(self.appearances[appearing].as_ref())
    }

    /// Whether a node is temporary.
    pub fn is_temporary(&self, number: u64) -> bool {
        self.appearance(number).is_some()
    }

    /// The present number of an entry of a fixed directory; `None` while it is not there.
    pub fn entry(&self, entry: u64) -> Option<u64> {
        match self.appearance(entry) {
            None => Some(entry),
            Some(appearance) => Some(entry | (appearance.now()? & 0xffff) << NODE_BITS),
        }
    }

    /// The error for a node that is not there any more.
    pub fn gone(&self, number: u64) -> Option<Errno> {
        let appearance = self.appearance(number)?;
        let is_there = appearance.now().is_some_and(|now| now & 0xffff == number >> NODE_BITS);
        (!is_there).then(|| appearance.gone())
    }

    /// The dynamic subtree with this index.
    pub fn dynamic(&self, place: usize) -> &dyn DynamicTree {
        self.dynamic_trees[place].1.as_ref()
    }

    /// The number of an entry of a dynamic subtree; `neighbour` is an entry of the same one, or its directory.
    pub fn dynamic_number(&self, neighbour: u64, inner: u64) -> u64 {
        let of_directory = || match self.target(neighbour) {
            Some(Target::Fixed(Fixed::Directory(_, dynamic))) => *dynamic,
            _ => None,
        };
        let place = self.dynamic_of(neighbour).map(|(place, _)| place).or_else(of_directory).unwrap_or(0);
        (place as u64 + 1) * dynamic_tree::END + inner
    }

    /// The dynamic subtree of a number, and the number there. Computed from the number, without a table.
    fn dynamic_of(&self, number: u64) -> Option<(usize, u64)> {
        let place = usize::try_from((number / dynamic_tree::END).checked_sub(1)?).ok()?;
        (place < self.dynamic_trees.len()).then_some((place, number % dynamic_tree::END))
    }

    /// The number of a place; `neighbour` is a place of the same resctrl.
    pub fn place(&self, neighbour: u64, place: Place) -> u64 {
        let of_directory = || self.resctrls.iter().position(|(root, _)| *root == neighbour);
        let resctrl = self.place_of(neighbour).map(|(resctrl, _)| resctrl).or_else(of_directory).unwrap_or(0);
        if place == Place::ROOT {
            return self.resctrls[resctrl].0;
        }
        FIRST_PLACE + resctrl as u64 * Place::END + place.number()
    }

    /// The resctrl of a number, and the place.
    fn place_of(&self, number: u64) -> Option<(usize, Place)> {
        let inner = number.checked_sub(FIRST_PLACE)?;
        let resctrl = usize::try_from(inner / Place::END).ok()?;
        let place = Place::of_number(inner % Place::END)?;
        (resctrl < self.resctrls.len()).then_some((resctrl, place))
    }

    /// The names that unmounts of resctrls have removed, each with its directory, once.
    pub fn take_unlisted(&self) -> Vec<(u64, String)> {
        let of = |(root, shared): &(u64, SharedResctrl)| {
            let root = *root;
            locked::<VirtualResctrl>(shared).take_unlisted().into_iter().map(move |name| (root, name))
        };
        self.resctrls.iter().flat_map(of).collect()
    }

    /// Whether this is a directory.
    pub fn is_directory(&self, number: u64) -> bool {
        match self.target(number) {
            Some(Target::Fixed(fixed)) => matches!(fixed, Fixed::Directory(..)),
            Some(Target::Place(_, place)) => place.is_directory(),
            Some(Target::Dynamic(dynamic, inner)) => dynamic.is_directory(inner),
            None => false,
        }
    }

    /// The path of a node below the root; for a removed place, that of its resctrl.
    pub fn path(&self, number: u64) -> String {
        if let Some((place, inner)) = self.dynamic_of(number) {
            let (directory, dynamic) = &self.dynamic_trees[place];
            return format!("{}/{}", self.paths[(directory - ROOT) as usize], dynamic.path(inner));
        }
        if number < FIRST_PLACE {
            return index_of(number).and_then(|index| self.paths.get(index)).cloned().unwrap_or_default();
        }
        let Some((resctrl, place)) = self.place_of(number) else { return String::new() };
        let (root, shared) = &self.resctrls[resctrl];
        let inner = locked::<VirtualResctrl>(shared).path(place).unwrap_or_default();
        format!("{}/{inner}", self.paths[(root - ROOT) as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resctrl::fixture::resctrl;
    use crate::resctrl::groups::DirOwner;

    fn inodes(shared: &SharedResctrl) -> Inodes {
        let mut tree = Tree::new();
        tree.add("sys/fs/resctrl", Node::Resctrl(shared.clone()));
        Inodes::new(tree)
    }

    #[test]
    fn nothing_is_kept_of_ten_thousand_groups_that_are_gone() {
        let shared = resctrl();
        let old = inodes(&shared);
        let root = old.resctrls[0].0;
        let owner = DirOwner { mode: 0o755, uid: 0, gid: 0 };
        let mut numbers = std::collections::BTreeSet::new();
        let mut last = Vec::new();
        for _ in 0..10_000 {
            let group = locked(&shared).mkdir(Place::ROOT, "g", owner).expect("a class is free");
            let number = old.place(root, group);
            last = locked(&shared).list(group).iter().map(|(_, place)| old.place(number, *place)).collect();
            last.push(number);
            assert_eq!(old.path(number), "sys/fs/resctrl/g");
            numbers.extend(last.iter().copied());
            locked(&shared).rmdir(Place::ROOT, "g").expect("it is there");
            assert!(matches!(old.target(number), Some(Target::Place(_, place)) if place == group));
        }
        // No number is used twice. They come from no table: an `Inodes` that has not seen these groups has the same
        // numbers.
        assert_eq!(numbers.len(), 10_000 * last.len());
        let group = locked(&shared).mkdir(Place::ROOT, "g", owner).expect("a class is free");
        let new = inodes(&shared);
        for (_, place) in locked(&shared).list(group) {
            assert_eq!(new.place(root, place), old.place(root, place));
        }
        assert!(new.target(FIRST_PLACE + Place::END).is_none());
    }
}
