//! Tools that other people wrote, unmodified, on the virtual host: what they say of it, and that what they turn is
//! turned. They know nothing of us, so they are judges that we cannot fool.
//!
//! None is skipped: a test whose tool is not here fails with the name of the package (`.ci/run` installs them all).

mod goresctrl;
pub mod host;
mod pci;
mod pqos;
mod registers;
