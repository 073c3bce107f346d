//! Scenario x policies x seeds: runs them and says what came out.
//!
//! The running half: [`registry`] finds a scenario, [`runner`] runs it. The output half: [`results`] holds what came
//! out and nothing else; [`mod@table`] and [`timeline`] tell it on a terminal, [`report`] on a page, [`files`] puts all
//! of it into a directory. These read results only: they must not know how a run is made.

mod show;
mod ways;

pub mod files;
pub mod msl;
pub mod registry;
pub mod report;
pub mod results;
pub mod runner;
pub mod table;
pub mod timeline;
