//! Reasons why a run cannot begin.
//!
//! Knows the errors of each part of the preparation; must not know how they are presented.

use crate::buffer::BufferError;
use crate::check::PlanError;
use crate::safety::TargetRefusal;
use std::io;
use std::path::PathBuf;
use waykeeper_load::ShapeError;

/// Reason why a run cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The plan has an invalid value.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The pattern does not fit the buffer or the device.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The target is in use, or without consent.
    #[error(transparent)]
    Refused(#[from] TargetRefusal),
    /// A stop was requested; incomplete files were removed.
    #[error("interrupted before the load began")]
    Stopped,
    /// The buffer cannot be allocated.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// The target could not be opened.
    #[error("{}: cannot be opened for {purpose}: {why}", .path.display())]
    Open {
        /// The path.
        path: PathBuf,
        /// Purpose of the open.
        purpose: &'static str,
        /// Why.
        why: io::Error,
    },
    /// No engine works on the target.
    #[error("{}: {why}", .path.display())]
    Engine {
        /// The path.
        path: PathBuf,
        /// What each engine lacks.
        why: String,
    },
    /// A worker could not begin.
    #[error("a worker cannot start: {why}{}", locked_memory(.0), why = .0)]
    Worker(io::Error),
}

/// A hint for the error at the user's limit of locked memory.
fn locked_memory(why: &io::Error) -> &'static str {
    match why.kind() {
        io::ErrorKind::OutOfMemory => {
            "; io_uring counts rings and buffers of all your processes as locked memory: raise `ulimit -l`, or run fewer at a time"
        }
        _ => "",
    }
}
