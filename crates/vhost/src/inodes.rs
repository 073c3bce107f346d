//! Inode numbers: a stable number for every node of the tree and every place of resctrl.
//!
//! Numbers are never used twice while the tree is mounted. This file must not know FUSE.

use crate::node::{File, Node, Tree};
use crate::resctrl::places::Place;
use crate::resctrl::{Resctrl, Shared};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The root's number (linux fs/fuse: FUSE_ROOT_ID).
pub(crate) const ROOT: u64 = 1;

/// Places are numbered from here on; no tree has as many fixed nodes.
const FIRST_PLACE: u64 = 1 << 40;

/// A fixed node.
pub(crate) enum Fixed {
    Directory(BTreeMap<String, u64>),
    File(Box<dyn File>),
    Link(String),
    Resctrl(usize),
}

/// What a number stands for.
pub(crate) enum Target<'a> {
    Fixed(&'a Fixed),
    /// In one of the resctrls.
    Place(&'a Shared, Place),
}

/// All numbers of one tree.
pub(crate) struct Inodes {
    fixed: Vec<Fixed>,
    paths: Vec<String>,
    resctrls: Vec<(u64, Shared)>,
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    by_number: Vec<(usize, Place)>,
    numbers: HashMap<(usize, Place), u64>,
}

/// What is behind a lock also after a panic elsewhere: resctrl's state is whole between two calls or the panic's
/// own message is the one to read.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inodes {
    pub fn new(tree: Tree) -> Self {
        let mut inodes =
            Inodes { fixed: Vec::new(), paths: Vec::new(), resctrls: Vec::new(), places: Mutex::default() };
        inodes.add("", Node::Directory(tree.into_root()));
        inodes
    }

    fn add(&mut self, path: &str, node: Node) -> u64 {
        let place = self.fixed.len();
        let number = place as u64 + ROOT;
        self.fixed.push(Fixed::Link(String::new()));
        self.paths.push(path.to_owned());
        self.fixed[place] = match node {
            Node::Directory(entries) => {
                let mut numbers = BTreeMap::new();
                for (name, entry) in entries {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                    numbers.insert(name, self.add(&path, entry));
                }
                Fixed::Directory(numbers)
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

    /// What a number stands for; `None` for numbers that were never given.
    pub fn target(&self, number: u64) -> Option<Target<'_>> {
        if number >= FIRST_PLACE {
            let places = locked(&self.places);
            let (resctrl, place) = *places.by_number.get((number - FIRST_PLACE) as usize)?;
            return Some(Target::Place(&self.resctrls[resctrl].1, place));
        }
        match self.fixed.get(usize::try_from(number.checked_sub(ROOT)?).ok()?)? {
            Fixed::Resctrl(resctrl) => Some(Target::Place(&self.resctrls[*resctrl].1, Place::ROOT)),
            fixed => Some(Target::Fixed(fixed)),
        }
    }

    /// The number of a place, next to that of another place of the same resctrl.
    pub fn place(&self, neighbour: u64, place: Place) -> u64 {
        let mut places = locked(&self.places);
        let resctrl = match neighbour.checked_sub(FIRST_PLACE) {
            Some(index) => places.by_number[index as usize].0,
            None => self.resctrls.iter().position(|(root, _)| *root == neighbour).unwrap_or(0),
        };
        if place == Place::ROOT {
            return self.resctrls[resctrl].0;
        }
        let next = FIRST_PLACE + places.by_number.len() as u64;
        let number = *places.numbers.entry((resctrl, place)).or_insert(next);
        if number == next {
            places.by_number.push((resctrl, place));
        }
        number
    }

    /// Whether this is a directory, for the kinds of entries.
    pub fn is_directory(&self, number: u64) -> bool {
        match self.target(number) {
            Some(Target::Fixed(fixed)) => matches!(fixed, Fixed::Directory(_)),
            Some(Target::Place(_, place)) => place.is_directory(),
            None => false,
        }
    }

    /// The path of a node below the root; of a place that was removed, that of its resctrl.
    pub fn path(&self, number: u64) -> String {
        if number < FIRST_PLACE {
            return self.paths.get((number - ROOT) as usize).cloned().unwrap_or_default();
        }
        let found = locked(&self.places).by_number.get((number - FIRST_PLACE) as usize).copied();
        let Some((resctrl, place)) = found else { return String::new() };
        let (root, shared) = &self.resctrls[resctrl];
        let inner = locked::<Resctrl>(shared).path(place).unwrap_or_default();
        format!("{}/{inner}", self.paths[(root - ROOT) as usize])
    }
}
