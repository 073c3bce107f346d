//! A host as files in memory, some of which the fuzzer has changed.
//!
//! The host is the Skylake server of the testbed, with processes, control groups and counter units (`host.tree`). An input
//! is a text in the same form: a line `@ PATH` begins a file, and everything up to the next line with an `@` at its begin is
//! the content; `@l PATH TARGET` is a symbolic link, `@d PATH` a directory, `@x PATH` removes what is there. Must not know
//! what a file means.

use crate::MemorySystem;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use waykeeper_kernel::root::Root;
use waykeeper_kernel::system::SharedSystem;
use waykeeper_testbed::plain_tree::PlainTree;

/// Where the host's tree is.
const PREFIX: &str = "/host";

/// What the testbed's tree lacks.
const ADDED: &[u8] = include_bytes!("host.tree");

/// The host before an input.
static UNCHANGED: LazyLock<MemorySystem> = LazyLock::new(|| {
    let system = MemorySystem::default();
    let tree = PlainTree::skylake();
    copy(&system, tree.root(), PREFIX);
    change(&system, ADDED);
    system
});

/// The host with the files of an input.
pub fn host(input: &[u8]) -> Root {
    host_on(input).1
}

/// The same, with the system that has the files.
pub fn host_on(input: &[u8]) -> (Arc<MemorySystem>, Root) {
    let system = Arc::new(UNCHANGED.clone());
    change(&system, input);
    let shared: SharedSystem = system.clone();
    (system, Root::on(shared, PREFIX))
}

fn copy(system: &MemorySystem, from: &Path, to: &str) {
    for entry in std::fs::read_dir(from).expect("the testbed's tree").flatten() {
        let path = entry.path();
        let name = format!("{to}/{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type().expect("the type of an entry");
        if kind.is_dir() {
            system.put_directory(&name);
            copy(system, &path, &name);
        } else if kind.is_symlink() {
            let target = std::fs::read_link(&path).expect("a link");
            system.put_link(&name, &target.to_string_lossy());
        } else {
            system.put_file(&name, &std::fs::read(&path).expect("a file"));
        }
    }
}

fn change(system: &MemorySystem, input: &[u8]) {
    let mut rest = input;
    while let Some(at) = begin(rest) {
        rest = &rest[at..];
        let line = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        let head = String::from_utf8_lossy(&rest[1..line]).into_owned();
        rest = &rest[(line + 1).min(rest.len())..];
        let content = &rest[..begin(rest).unwrap_or(rest.len())];
        let path = |text: &str| format!("{PREFIX}/{}", text.trim_start_matches('/'));
        match head.split_once(' ') {
            Some(("", name)) => system.put_file(&path(name), content),
            Some(("l", both)) => {
                let (name, target) = both.split_once(' ').unwrap_or((both, "/"));
                system.put_link(&path(name), target);
            }
            Some(("d", name)) => system.put_directory(&path(name)),
            Some(("x", name)) => system.remove(&path(name)),
            _ => {}
        }
    }
}

/// Where the next line begins that starts with `@`.
fn begin(text: &[u8]) -> Option<usize> {
    if text.first() == Some(&b'@') {
        return Some(0);
    }
    text.windows(2).position(|pair| pair == b"\n@").map(|at| at + 1)
}
