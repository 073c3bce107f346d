//! Reads and writes past the page cache through io_uring, on a block device or a file.
//!
//! Knows offsets in a file; must not know NVMe.

use super::ring::{Pieces, Ring};
use super::{Deed, Done, Engine, Fault, Ground, Io};
use io_uring::types::{Fixed, FsyncFlags};
use io_uring::{cqueue, opcode, squeue};
use std::io;
use std::time::Duration;

/// The engine.
pub struct Direct {
    ring: Ring<squeue::Entry, cqueue::Entry>,
    base: *mut u8,
    /// Bytes that each command on its way must move.
    wanted: Vec<u32>,
}

impl Direct {
    /// On an open file. The buffer outlives it.
    ///
    /// # Errors
    /// The kernel has no io_uring, or forbids it.
    pub fn new(ground: &Ground<'_>) -> io::Result<Direct> {
        let wanted = vec![0; ground.depth as usize];
        Ok(Direct { ring: Ring::new(ground, Pieces::largest(ground))?, base: ground.buffer.base(), wanted })
    }
}

impl Engine for Direct {
    fn push(&mut self, io: Io, number: u32) {
        let memory = self.base.wrapping_add(io.offset);
        let entry = match (io.deed, self.ring.piece(io.offset)) {
            (Deed::Flush, _) => opcode::Fsync::new(Fixed(0)).flags(FsyncFlags::DATASYNC).build(),
            (Deed::ToMemory, Some(piece)) => {
                opcode::ReadFixed::new(Fixed(0), memory, io.bytes, piece).offset(io.place).build()
            }
            (Deed::ToMemory, None) => opcode::Read::new(Fixed(0), memory, io.bytes).offset(io.place).build(),
            (Deed::FromMemory, Some(piece)) => {
                opcode::WriteFixed::new(Fixed(0), memory, io.bytes, piece).offset(io.place).build()
            }
            (Deed::FromMemory, None) => {
                opcode::Write::new(Fixed(0), memory, io.bytes).offset(io.place).build()
            }
        };
        if let Some(wanted) = self.wanted.get_mut(number as usize) {
            *wanted = if io.deed == Deed::Flush { 0 } else { io.bytes };
        }
        // SAFETY: the memory is the buffer's, which outlives the ring.
        unsafe { self.ring.push(&entry.user_data(u64::from(number))) };
    }

    fn carry(&mut self, patience: Option<Duration>, done: &mut Vec<Done>) -> io::Result<()> {
        self.ring.enter(patience)?;
        let wanted = &self.wanted;
        self.ring.fetch(done, |number, result| match u32::try_from(result) {
            Err(_) => Err(Fault::Errno(-result)),
            Ok(moved) if wanted.get(number as usize).is_some_and(|wanted| moved < *wanted) => {
                Err(Fault::Short(moved))
            }
            Ok(_) => Ok(()),
        });
        Ok(())
    }
}
