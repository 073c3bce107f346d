//! Unmodified tools of other projects on the virtual host: their output, and that the knobs they set take effect. They
//! know nothing of this project, so they check it independently.
//!
//! None is skipped: a test whose tool is missing fails with the name of the package (`.ci/run` installs them all).

mod disks;
mod goresctrl;
pub mod host;
mod pci;
mod pqos;
mod registers;
