//! The virtual hosts that are mounted on this machine, by their lines in the kernel's list of mounts.
//!
//! Must not know what is in a tree beside its name.

use std::io;
use std::path::{Path, PathBuf};

/// The file of a tree that has its name.
pub const NAME_FILE: &str = "waykeeper/name";

/// A mounted tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountedTree {
    /// Where it is mounted.
    pub path: PathBuf,
}

/// All trees in this mount namespace, in the order in which they were mounted.
///
/// # Errors
/// If the list of mounts cannot be read.
pub fn mounted_trees() -> io::Result<Vec<MountedTree>> {
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    Ok(mounts.lines().filter_map(tree_of).map(|path| MountedTree { path }).collect())
}

impl MountedTree {
    /// Its name; `None` if the program that served it has ended. A program that is stopped, or that was killed in a call to
    /// its own tree, does not answer, and this call then waits. So a caller that knows the directory asks no other tree.
    pub fn name(&self) -> Option<String> {
        let name = std::fs::read_to_string(self.path.join(NAME_FILE)).ok()?;
        Some(name.trim_end().to_owned())
    }
}

/// The directory of a line of mounts if it is one of our trees.
fn tree_of(line: &str) -> Option<PathBuf> {
    let mut fields = line.split(' ');
    let (source, directory, kind) = (fields.next()?, fields.next()?, fields.next()?);
    // The kernel shows the subtype if fusermount3 mounted the tree.
    (source == "waykeeper" && ["fuse", "fuse.vhost"].contains(&kind)).then(|| unescaped(directory))
}

/// The kernel writes a blank, a tab, a line end and a backslash as three octal digits (linux:fs/proc_namespace.c, mangle).
fn unescaped(text: &str) -> PathBuf {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    Path::new(&escapes.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_known_by_its_line_of_mounts() {
        for kind in ["fuse", "fuse.vhost"] {
            let line = format!("waykeeper /tmp/my\\040host {kind} rw,nosuid,nodev,relatime 0 0");
            assert_eq!(tree_of(&line), Some(PathBuf::from("/tmp/my host")));
        }
        assert_eq!(tree_of("tmpfs /tmp tmpfs rw 0 0"), None);
        assert_eq!(tree_of("waykeeper"), None);
    }
}
