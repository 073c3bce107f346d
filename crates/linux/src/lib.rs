//! The real Linux host: one module per kernel interface, all under a root prefix.
//!
//! This room knows the files a Linux kernel offers and what they mean. It must not know whether a kernel or the
//! virtual host serves them: the root prefix is the only difference.

pub mod content;
pub mod ddio;
pub mod journal;
pub mod resctrl;
pub mod restore;
pub mod root;

/// What the names of our groups in resctrl begin with: everything else is somebody's and left alone.
pub const GROUP_PREFIX: &str = "wk-";
