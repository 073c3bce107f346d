//! Why a run cannot begin.
//!
//! Knows what each part of the preparation says; must not know how a user is told.

use crate::buffer::BufferError;
use crate::check::PlanError;
use crate::safety::Refusal;
use std::io;
use std::path::PathBuf;
use waykeeper_load::ShapeError;

/// Why a run cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// Something of the plan that cannot be.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The pattern does not fit.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The target may not be loaded.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Somebody said stop; nothing of what was to be made is left.
    #[error("interrupted before the load began")]
    Stopped,
    /// No memory.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// The target could not be opened.
    #[error("{}: cannot be opened for {purpose}: {why}", .path.display())]
    Open {
        /// The path.
        path: PathBuf,
        /// What for.
        purpose: &'static str,
        /// Why.
        why: io::Error,
    },
    /// No engine gets commands to it.
    #[error("{}: {why}", .path.display())]
    Engine {
        /// The path.
        path: PathBuf,
        /// What each lacks.
        why: String,
    },
    /// A worker could not begin.
    #[error("a worker cannot start: {why}{}", locked_memory(.0), why = .0)]
    Worker(io::Error),
}

/// What helps where the kernel takes no more locked memory of this user for a ring.
fn locked_memory(why: &io::Error) -> &'static str {
    match why.kind() {
        io::ErrorKind::OutOfMemory => {
            "; io_uring counts rings and buffers of all your processes as locked memory: raise `ulimit -l`, or run fewer at a time"
        }
        _ => "",
    }
}
