//! `waykeeper memload` as a program: what it says, what it leaves, how it ends.

#[path = "../common/mod.rs"]
mod common;
mod interfere;
mod real;
mod simulated;

/// A folder on a disk: past the page cache nothing goes to a tmpfs.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}
