//! A small disk in memory for journal, configuration and recordings. What was not synced may be lost at a kill.
//!
//! A file has the content that programs see and the content that is durable; a directory has its entries in both forms.
//! Must not know what files contain.

use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};

/// The number of the disk's root directory.
const ROOT: u64 = 1;

/// A file or directory.
#[derive(Debug)]
pub enum Inode {
    /// A directory: its entries, and those that are durable.
    Directory { entries: BTreeMap<String, u64>, durable: BTreeMap<String, u64> },
    /// A file: its content, and what of it is durable.
    File { content: Vec<u8>, durable: Vec<u8>, mode: u32 },
}

/// The disk.
#[derive(Debug)]
pub struct Disk {
    inodes: BTreeMap<u64, Inode>,
    next: u64,
}

fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

fn directory() -> Inode {
    Inode::Directory { entries: BTreeMap::new(), durable: BTreeMap::new() }
}

impl Disk {
    /// A disk with an empty root.
    pub fn new() -> Disk {
        Disk { inodes: BTreeMap::from([(ROOT, directory())]), next: ROOT + 1 }
    }

    /// The inode of a path.
    pub fn find(&self, path: &str) -> Result<u64, Errno> {
        let mut at = ROOT;
        for part in parts(path) {
            match self.inodes.get(&at) {
                Some(Inode::Directory { entries, .. }) => at = *entries.get(part).ok_or(Errno::NOENT)?,
                _ => return Err(Errno::NOTDIR),
            }
        }
        Ok(at)
    }

    /// Bytes of all files that have a name.
    pub fn bytes(&self) -> usize {
        let named = self.named();
        let files = self.inodes.iter().filter(|(number, _)| named.contains(number));
        files.map(|(_, inode)| if let Inode::File { content, .. } = inode { content.len() } else { 0 }).sum()
    }

    /// Drops what was removed. No file may be open.
    pub fn drop_removed(&mut self) {
        let named = self.named();
        self.inodes.retain(|number, _| named.contains(number));
    }

    /// The inodes with a name that programs see or that is durable.
    fn named(&self) -> BTreeSet<u64> {
        let mut named = BTreeSet::from([ROOT]);
        let mut waiting = vec![ROOT];
        while let Some(number) = waiting.pop() {
            if let Some(Inode::Directory { entries, durable }) = self.inodes.get(&number) {
                let all = entries.values().chain(durable.values());
                waiting.extend(all.copied().filter(|inner| named.insert(*inner)));
            }
        }
        named
    }

    /// What an inode is. A removed file lives on while it is open.
    pub fn inode(&self, number: u64) -> Result<&Inode, Errno> {
        self.inodes.get(&number).ok_or(Errno::NOENT)
    }

    fn inode_mut(&mut self, number: u64) -> Result<&mut Inode, Errno> {
        self.inodes.get_mut(&number).ok_or(Errno::NOENT)
    }

    fn place<'p>(&mut self, path: &'p str) -> Result<(&mut BTreeMap<String, u64>, &'p str), Errno> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let above = self.find(above)?;
        match self.inode_mut(above)? {
            Inode::Directory { entries, .. } => Ok((entries, name)),
            Inode::File { .. } => Err(Errno::NOTDIR),
        }
    }

    /// Adds an entry.
    fn add(&mut self, path: &str, inode: Inode) -> Result<u64, Errno> {
        let number = self.next;
        let (entries, name) = self.place(path)?;
        if entries.contains_key(name) {
            return Err(Errno::EXIST);
        }
        entries.insert(name.to_owned(), number);
        self.next += 1;
        self.inodes.insert(number, inode);
        Ok(number)
    }

    /// Makes a directory. It is durable at once: only files are lost.
    pub fn make_dir(&mut self, path: &str) -> Result<(), Errno> {
        self.add(path, directory())?;
        let number = self.find(path)?;
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let above = self.find(above)?;
        if let Inode::Directory { durable, .. } = self.inode_mut(above)? {
            durable.insert(name.to_owned(), number);
        }
        Ok(())
    }

    /// Makes an empty file.
    pub fn make_file(&mut self, path: &str, mode: u32) -> Result<u64, Errno> {
        self.add(path, Inode::File { content: Vec::new(), durable: Vec::new(), mode })
    }

    /// Removes an entry.
    pub fn remove(&mut self, path: &str) -> Result<(), Errno> {
        let (entries, name) = self.place(path)?;
        entries.remove(name).map(drop).ok_or(Errno::NOENT)
    }

    /// Removes all entries of a directory, durably. It may be missing.
    pub fn remove_files(&mut self, path: &str) {
        let inode = self.find(path).and_then(|number| self.inode_mut(number));
        if let Ok(Inode::Directory { entries, durable }) = inode {
            (*entries, *durable) = (BTreeMap::new(), BTreeMap::new());
        }
    }

    /// Renames an entry over another.
    pub fn rename(&mut self, from: &str, to: &str) -> Result<(), Errno> {
        let number = self.find(from)?;
        self.remove(from)?;
        let (entries, name) = self.place(to)?;
        entries.insert(name.to_owned(), number);
        Ok(())
    }

    /// The entries of a directory.
    pub fn names(&self, number: u64) -> Result<Vec<(String, u64)>, Errno> {
        match self.inode(number)? {
            Inode::Directory { entries, .. } => {
                Ok(entries.iter().map(|(name, to)| (name.clone(), *to)).collect())
            }
            Inode::File { .. } => Err(Errno::NOTDIR),
        }
    }

    /// Reads from a file.
    pub fn read(&self, number: u64, offset: u64, most: usize) -> Result<Vec<u8>, Errno> {
        match self.inode(number)? {
            Inode::File { content, .. } => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
                Ok(content[start..content.len().min(start.saturating_add(most))].to_vec())
            }
            Inode::Directory { .. } => Err(Errno::ISDIR),
        }
    }

    /// Writes to a file.
    pub fn write(&mut self, number: u64, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        match self.inode_mut(number)? {
            Inode::File { content, .. } => {
                let start = usize::try_from(offset).map_err(|_| Errno::FBIG)?;
                let end = start + bytes.len();
                content.resize(content.len().max(end), 0);
                content[start..end].copy_from_slice(bytes);
                Ok(())
            }
            Inode::Directory { .. } => Err(Errno::ISDIR),
        }
    }

    /// Sets a file's length.
    pub fn set_len(&mut self, number: u64, length: u64) -> Result<(), Errno> {
        match self.inode_mut(number)? {
            Inode::File { content, .. } => {
                content.resize(usize::try_from(length).map_err(|_| Errno::FBIG)?, 0);
                Ok(())
            }
            Inode::Directory { .. } => Err(Errno::ISDIR),
        }
    }

    /// Sets a file's permission bits; a directory keeps its own.
    pub fn set_mode(&mut self, number: u64, bits: u32) -> Result<(), Errno> {
        if let Inode::File { mode, .. } = self.inode_mut(number)? {
            *mode = bits;
        }
        Ok(())
    }

    /// Makes a file's content, or a directory's entries, durable.
    pub fn sync(&mut self, number: u64) -> Result<(), Errno> {
        match self.inode_mut(number)? {
            Inode::File { content, durable, .. } => durable.clone_from(content),
            Inode::Directory { entries, durable } => durable.clone_from(entries),
        }
        Ok(())
    }

    /// The durable content of a path; `None` if no file is durable there.
    pub fn durable(&self, path: &str) -> Option<&[u8]> {
        let mut at = ROOT;
        for part in parts(path) {
            match self.inodes.get(&at)? {
                Inode::Directory { durable, .. } => at = *durable.get(part)?,
                Inode::File { .. } => return None,
            }
        }
        match self.inodes.get(&at)? {
            Inode::File { durable, .. } => Some(durable),
            Inode::Directory { .. } => None,
        }
    }

    /// Loses what was not synced. Of bytes appended since, `torn` 256ths survive.
    pub fn lose(&mut self, torn: u8) {
        for inode in self.inodes.values_mut() {
            match inode {
                Inode::Directory { entries, durable } => entries.clone_from(durable),
                Inode::File { content, durable, .. } => {
                    let appended = content.len().saturating_sub(durable.len());
                    let keeps = content.starts_with(durable);
                    let mut left = durable.clone();
                    if keeps {
                        let survive = appended * usize::from(torn) / 256;
                        left.extend_from_slice(&content[durable.len()..durable.len() + survive]);
                    }
                    content.clone_from(&left);
                    *durable = left;
                }
            }
        }
    }
}
