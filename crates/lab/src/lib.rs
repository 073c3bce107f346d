//! Scenario x policies x seeds: runs them and presents the results.
//!
//! The running half: [`registry`] finds a scenario, [`best`] the best layout known for it, [`runner`] runs it;
//! [`foreseen`] runs policies on a server that is known by its counters. The output half: [`results`] is the data;
//! [`mod@table`] and [`timeline`] print it on a terminal, [`report`] as a page, [`files`] writes it into a directory.
//! The output half reads results only: it must not know how a run is made.

mod show;
mod ways;

pub mod best;
pub mod files;
pub mod foreseen;
pub mod msl;
pub mod registry;
pub mod report;
pub mod results;
pub mod runner;
pub mod table;
pub mod timeline;
