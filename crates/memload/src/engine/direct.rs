//! Reads and writes with O_DIRECT through io_uring, on a block device or a file.
//!
//! Knows offsets in a file; must not know NVMe.

use super::ring::{RegisteredBuffers, Ring};
use super::{CommandError, CompletedIo, Engine, EngineParams, IoCommand, IoOperation};
use io_uring::types::{Fixed, FsyncFlags};
use io_uring::{cqueue, opcode, squeue};
use std::io;
use std::time::Instant;

/// The engine.
pub struct Direct {
    ring: Ring<squeue::Entry, cqueue::Entry>,
    base: *mut u8,
    /// The remaining transfer of each outstanding command, by number.
    left: Vec<IoCommand>,
    /// Bytes already transferred of each command.
    gone: Vec<u32>,
    /// Partial transfers: number and bytes moved.
    again: Vec<(u32, u32)>,
}

impl Direct {
    /// Engine on an open file. The buffer must outlive it.
    ///
    /// # Errors
    /// If the kernel has no io_uring, or forbids it.
    pub fn new(params: &EngineParams<'_>) -> io::Result<Direct> {
        let nothing = IoCommand { operation: IoOperation::Flush, offset: 0, bytes: 0, place: 0 };
        let left = vec![nothing; params.depth as usize];
        let ring = Ring::new(params, &[RegisteredBuffers::largest(params)])?;
        let gone = vec![0; left.len()];
        Ok(Direct { ring, base: params.buffer.base(), left, gone, again: Vec::new() })
    }

    /// False if the kernel's helper threads may run on any CPU.
    pub const fn helpers_stay(&self) -> bool {
        self.ring.helpers_stay()
    }

    /// Queues a command, or the rest of one.
    fn send(&mut self, io: IoCommand, number: u32) {
        let memory = self.base.wrapping_add(io.offset);
        let entry = match (io.operation, self.ring.piece(io.offset, io.bytes)) {
            (IoOperation::Flush, _) => opcode::Fsync::new(Fixed(0)).flags(FsyncFlags::DATASYNC).build(),
            (IoOperation::ToMemory, Some(piece)) => {
                opcode::ReadFixed::new(Fixed(0), memory, io.bytes, piece).offset(io.place).build()
            }
            (IoOperation::ToMemory, None) => {
                opcode::Read::new(Fixed(0), memory, io.bytes).offset(io.place).build()
            }
            (IoOperation::FromMemory, Some(piece)) => {
                opcode::WriteFixed::new(Fixed(0), memory, io.bytes, piece).offset(io.place).build()
            }
            (IoOperation::FromMemory, None) => {
                opcode::Write::new(Fixed(0), memory, io.bytes).offset(io.place).build()
            }
        };
        if let Some(left) = self.left.get_mut(number as usize) {
            *left = io;
        }
        // SAFETY: the memory is the buffer's, which outlives the ring.
        unsafe { self.ring.push(&entry.user_data(u64::from(number))) };
    }
}

impl Engine for Direct {
    fn push(&mut self, io: IoCommand, number: u32) {
        if let Some(gone) = self.gone.get_mut(number as usize) {
            *gone = 0;
        }
        self.send(io, number);
    }

    fn carry(&mut self, until: Option<Instant>, done: &mut Vec<CompletedIo>) -> io::Result<()> {
        self.ring.enter(until)?;
        let mut again = std::mem::take(&mut self.again);
        let (left, gone) = (&self.left, &mut self.gone);
        self.ring.fetch(|number, result| {
            let number = number as u32;
            let wanted = left
                .get(number as usize)
                .map_or(0, |io| if io.operation == IoOperation::Flush { 0 } else { io.bytes });
            match u32::try_from(result) {
                Err(_) => done.push((number, Err(CommandError::Errno(-result)))),
                Ok(moved) if moved >= wanted => done.push((number, Ok(()))),
                // The end of the file, or a file system that reports no error.
                Ok(0) => {
                    let gone = gone.get(number as usize).copied().unwrap_or(0);
                    done.push((number, Err(CommandError::Short(gone))));
                }
                // A partial transfer. Moving the rest returns the reason, usually a full disk.
                Ok(moved) => {
                    if let Some(gone) = gone.get_mut(number as usize) {
                        *gone += moved;
                    }
                    again.push((number, moved));
                }
            }
        });
        for (number, moved) in again.drain(..) {
            if let Some(IoCommand { operation, offset, bytes, place }) =
                self.left.get(number as usize).copied()
            {
                let (offset, place) = (offset + moved as usize, place + u64::from(moved));
                self.send(IoCommand { operation, offset, bytes: bytes - moved, place }, number);
            }
        }
        self.again = again;
        Ok(())
    }

    fn unsent(&mut self) -> usize {
        self.ring.unsent()
    }
}
