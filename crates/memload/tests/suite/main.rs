//! The room from outside: what paths are, who may load them, and that runs move what they say.

mod runs;
mod safety;
mod served;
mod served_runs;

/// Whoever starts a process has this alone: until it has become another program it has open what all tests have, and who
/// looks meanwhile takes it for somebody's.
static FORKS: std::sync::RwLock<()> = std::sync::RwLock::new(());
