//! What carries commands to a target and brings their ends back. One file an engine.
//!
//! Knows addresses, places on the device, and how it went; must not know patterns, limits or totals.

mod direct;
mod ioctl;
mod passthrough;
mod ring;

use crate::buffer::Buffer;
use crate::nvme::Status;
use std::fmt;
use std::io;
use std::time::Instant;

pub use direct::Direct;
pub use ioctl::Ioctl;
pub use passthrough::Passthrough;

/// What a command does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Deed {
    /// The device writes memory: it is read.
    ToMemory,
    /// The device reads memory: it is written.
    FromMemory,
    /// What was written stays.
    Flush,
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Deed::ToMemory => "read",
            Deed::FromMemory => "write",
            Deed::Flush => "flush",
        })
    }
}

/// A command.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Io {
    /// What it does.
    pub deed: Deed,
    /// Bytes from the start of the buffer.
    pub offset: usize,
    /// Bytes moved.
    pub bytes: u32,
    /// Bytes from the start of the device.
    pub place: u64,
}

/// How a command failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The kernel says so.
    Errno(i32),
    /// The device says so.
    Nvme(Status),
    /// Fewer bytes went than should have.
    Short(u32),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Errno(errno) => write!(f, "{}", io::Error::from_raw_os_error(*errno)),
            Fault::Nvme(status) => write!(f, "{status}"),
            Fault::Short(bytes) => write!(f, "only {bytes} B of it were transferred"),
        }
    }
}

/// The end of a command: the number it was sent under, and how it went.
pub type Done = (u32, Result<(), Fault>);

/// What carries commands. It belongs to the thread that made it.
pub trait Engine {
    /// Takes a command under a number below the depth that no command on its way has. It need not go yet.
    fn push(&mut self, io: Io, number: u32);

    /// Sends what was taken and waits until a command is back, it is `until`, or a signal came; puts all that are back
    /// into `done`. What came back in part has gone on and is not among them.
    ///
    /// # Errors
    /// The way itself is broken; what was on it is lost.
    fn carry(&mut self, until: Option<Instant>, done: &mut Vec<Done>) -> io::Result<()>;

    /// Commands that were taken and have not gone, so that they are not lost on a way that broke.
    fn unsent(&mut self) -> usize;
}

/// What an engine is made from, for a worker of its own.
#[derive(Clone, Copy, Debug)]
pub struct Ground<'a> {
    /// The memory.
    pub buffer: &'a Buffer,
    /// The open target.
    pub file: &'a std::os::fd::OwnedFd,
    /// Commands on their way at once.
    pub depth: u32,
    /// Most bytes of a command that the device takes in this run.
    pub most_bytes: u32,
    /// Bytes of the longest command of its pattern, 0 if its commands carry no data.
    pub longest_bytes: usize,
    /// Every command of its pattern begins at a multiple of so many bytes of the buffer.
    pub step_bytes: usize,
    /// Most pieces of memory that the device takes with a command, each a page or more.
    pub most_segments: u32,
    /// The namespace, for NVMe.
    pub nsid: u32,
    /// Bytes of its blocks.
    pub lba_bytes: u32,
}
