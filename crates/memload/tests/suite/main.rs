//! Tests of the public interface: kinds of paths, permission to load them, and runs that move what they report.

mod runs;
mod safety;
mod served;
mod served_runs;

/// Held for writing while a test starts a process: until the child executes its program, it has all open files of the
/// tests, and another test would take it for a foreign writer.
static FORKS: std::sync::RwLock<()> = std::sync::RwLock::new(());
