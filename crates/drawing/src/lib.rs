//! What the terminal, the web page and the report share to draw: the mark of each name, and the scripts and styles that
//! draw charts and way maps in a browser.
//!
//! Must not know where numbers come from, HTTP, or a report.

mod join;
mod marks;
mod scripts;
pub mod sight;

pub use join::{JoinError, joined};
pub use marks::{COLOURS, Mark, Marks};
pub use scripts::{DrawingFile, FILES, style};
