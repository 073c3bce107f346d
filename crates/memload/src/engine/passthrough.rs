//! NVMe commands through io_uring on a namespace's generic device (Linux 5.19; registered memory from 6.1 on).
//!
//! Knows the command block; must not know files or file systems.

use super::ring::Ring;
use super::{Deed, Done, Engine, Fault, Ground, Io};
use crate::nvme::{Passthru, READ, Status, URING_CMD_IO, WRITE};
use io_uring::types::Fixed;
use io_uring::{cqueue, opcode, squeue};
use std::io;
use std::time::Duration;

/// The engine.
pub struct Passthrough {
    ring: Ring<squeue::Entry128, cqueue::Entry32>,
    base: *mut u8,
    nsid: u32,
    lba_bytes: u32,
}

impl Passthrough {
    /// On an open generic device. The buffer outlives it.
    ///
    /// # Errors
    /// EOPNOTSUPP: what is open takes no commands this way. Others: the kernel has no io_uring, forbids it, or is too old.
    pub fn new(ground: &Ground<'_>) -> io::Result<Passthrough> {
        let ring = Ring::new(ground)?;
        let mut engine =
            Passthrough { ring, base: ground.buffer.base(), nsid: ground.nsid, lba_bytes: ground.lba_bytes };
        engine.try_out()?;
        Ok(engine)
    }

    /// A command number that NVMe does not have: a driver that takes commands this way says ENOTTY, whatever else says
    /// EOPNOTSUPP, and no device hears of it.
    fn try_out(&mut self) -> io::Result<()> {
        let mut done = Vec::new();
        for _ in 0..2 {
            let fixed = self.ring.piece(0);
            let entry = opcode::UringCmd80::new(Fixed(0), 0).buf_index(fixed).build();
            // SAFETY: it points to nothing.
            unsafe { self.ring.push(&entry) };
            done.clear();
            while done.is_empty() {
                self.carry(None, &mut done)?;
            }
            match done[0].1 {
                Err(Fault::Errno(libc::ENOTTY)) | Ok(()) => return Ok(()),
                // Linux 5.19 and 6.0 know no registered memory here.
                Err(Fault::Errno(libc::EINVAL)) if fixed.is_some() => self.ring.without_fixed(),
                Err(Fault::Errno(errno)) => return Err(io::Error::from_raw_os_error(errno)),
                Err(_) => break,
            }
        }
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }
}

impl Engine for Passthrough {
    fn push(&mut self, io: Io, number: u32) {
        let command = match io.deed {
            Deed::Flush => Passthru::flush(self.nsid),
            deed => {
                let opcode = if deed == Deed::ToMemory { READ } else { WRITE };
                let lba_bytes = u64::from(self.lba_bytes);
                let address = self.base.wrapping_add(io.offset) as u64;
                let blocks = io.bytes / self.lba_bytes;
                Passthru::transfer(opcode, self.nsid, io.place / lba_bytes, blocks, address, io.bytes)
            }
        };
        let piece = if io.deed == Deed::Flush { None } else { self.ring.piece(io.offset) };
        let entry = opcode::UringCmd80::new(Fixed(0), URING_CMD_IO).cmd(command.to_sqe()).buf_index(piece);
        // SAFETY: the memory is the buffer's, which outlives the ring.
        unsafe { self.ring.push(&entry.build().user_data(u64::from(number))) };
    }

    fn carry(&mut self, patience: Option<Duration>, done: &mut Vec<Done>) -> io::Result<()> {
        self.ring.enter(patience)?;
        self.ring.fetch_wide(done, |result| match result {
            0 => Ok(()),
            // The status field as the device wrote it.
            status if status > 0 => Err(Fault::Nvme(Status((status & 0x7FFF) as u16))),
            errno => Err(Fault::Errno(-errno)),
        });
        Ok(())
    }
}
