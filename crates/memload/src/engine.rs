//! Engines: send commands to a target and collect their completions. One file per engine.
//!
//! Knows addresses, device offsets and results; must not know patterns, limits or totals.

mod direct;
mod ioctl;
mod passthrough;
mod ring;

use crate::buffer::Buffer;
use crate::nvme::NvmeStatus;
use std::fmt;
use std::io;
use std::time::Instant;

pub use direct::Direct;
pub use ioctl::Ioctl;
pub use passthrough::Passthrough;

/// Operation of a command.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IoOperation {
    /// The device writes memory: a read of the device.
    ToMemory,
    /// The device reads memory: a write to the device.
    FromMemory,
    /// Makes earlier writes durable.
    Flush,
}

impl fmt::Display for IoOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IoOperation::ToMemory => "read",
            IoOperation::FromMemory => "write",
            IoOperation::Flush => "flush",
        })
    }
}

/// A command.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IoCommand {
    /// Its operation.
    pub operation: IoOperation,
    /// Bytes from the start of the buffer.
    pub offset: usize,
    /// Bytes moved.
    pub bytes: u32,
    /// Bytes from the start of the device.
    pub place: u64,
}

/// How a command failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommandError {
    /// An error of the kernel.
    Errno(i32),
    /// An error status of the device.
    Nvme(NvmeStatus),
    /// Fewer bytes were transferred than requested.
    Short(u32),
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandError::Errno(errno) => write!(f, "{}", io::Error::from_raw_os_error(*errno)),
            CommandError::Nvme(status) => write!(f, "{status}"),
            CommandError::Short(bytes) => write!(f, "only {bytes} B of it were transferred"),
        }
    }
}

/// A completed command: its number and its result.
pub type CompletedIo = (u32, Result<(), CommandError>);

/// Sends commands. It belongs to the thread that made it.
pub trait Engine {
    /// Takes a command under a number below the depth that no outstanding command has. It may send the command later.
    fn push(&mut self, io: IoCommand, number: u32);

    /// Sends the taken commands and waits until one completes, until `until`, or until a signal; appends all completed
    /// ones to `done`. The rest of a partial transfer is sent again first.
    ///
    /// # Errors
    /// If no commands can be sent or collected any more; outstanding commands are lost.
    fn carry(&mut self, until: Option<Instant>, done: &mut Vec<CompletedIo>) -> io::Result<()>;

    /// Number of commands that were taken and not sent, so that they do not count as lost after an error.
    fn unsent(&mut self) -> usize;
}

/// Parameters of a worker's engine.
#[derive(Clone, Copy, Debug)]
pub struct EngineParams<'a> {
    /// The buffer.
    pub buffer: &'a Buffer,
    /// The open target.
    pub file: &'a std::os::fd::OwnedFd,
    /// Maximum outstanding commands.
    pub depth: u32,
    /// Maximum bytes of a command in this run.
    pub most_bytes: u32,
    /// Bytes of the pattern's longest command, 0 if its commands carry no data.
    pub longest_bytes: usize,
    /// Every command of the pattern begins at a multiple of this many bytes of the buffer.
    pub step_bytes: usize,
    /// Maximum memory segments of a command, each a page or more.
    pub most_segments: u32,
    /// The NVMe namespace.
    pub nsid: u32,
    /// Bytes of the target's logical blocks.
    pub lba_bytes: u32,
}
