//! NVMe commands through io_uring on a namespace's generic device (Linux 5.19; registered memory from 6.1 on).
//!
//! Knows the command block; must not know files or file systems.

use super::ring::{RegisteredBuffers, Ring};
use super::{CommandError, CompletedIo, Engine, EngineParams, IoCommand, IoOperation};
use crate::nvme::{NvmeStatus, Passthru, READ, URING_CMD_IO, WRITE};
use io_uring::types::Fixed;
use io_uring::{cqueue, opcode, squeue};
use std::io;
use std::time::Instant;

/// Flag in `user_data`: the command's memory is registered.
const FIXED: u64 = 1 << 32;

/// The engine.
pub struct Passthrough {
    ring: Ring<squeue::Entry128, cqueue::Entry32>,
    base: *mut u8,
    nsid: u32,
    lba_bytes: u32,
    /// The outstanding commands, by number.
    sent: Vec<IoCommand>,
    /// Commands to be sent again.
    again: Vec<u32>,
}

impl Passthrough {
    /// Engine on an open generic device. The buffer must outlive it.
    ///
    /// # Errors
    /// EOPNOTSUPP: the device does not accept commands through io_uring. Others: the kernel has no io_uring, forbids
    /// it, or is too old.
    pub fn new(params: &EngineParams<'_>) -> io::Result<Passthrough> {
        let wanted: Vec<RegisteredBuffers> = RegisteredBuffers::of_commands(params)
            .into_iter()
            .chain([RegisteredBuffers::of_segments(params)])
            .collect();
        let ring = Ring::new(params, &wanted)?;
        let nothing = IoCommand { operation: IoOperation::Flush, offset: 0, bytes: 0, place: 0 };
        let mut engine = Passthrough {
            ring,
            base: params.buffer.base(),
            nsid: params.nsid,
            lba_bytes: params.lba_bytes,
            sent: vec![nothing; params.depth as usize],
            again: Vec::with_capacity(params.depth as usize),
        };
        engine.try_out()?;
        Ok(engine)
    }

    /// Sends a command number that NVMe does not have: a driver with this interface returns ENOTTY, any other
    /// EOPNOTSUPP, and the command does not reach the device.
    fn try_out(&mut self) -> io::Result<()> {
        let mut done = Vec::new();
        for _ in 0..2 {
            let fixed = self.ring.piece(0, 0);
            let entry = opcode::UringCmd80::new(Fixed(0), 0).buf_index(fixed).build();
            // SAFETY: the entry contains no pointer.
            unsafe { self.ring.push(&entry) };
            done.clear();
            while done.is_empty() {
                self.carry(None, &mut done)?;
            }
            match done[0].1 {
                Err(CommandError::Errno(libc::ENOTTY)) | Ok(()) => return Ok(()),
                // Linux 5.19 and 6.0 do not support registered memory here.
                Err(CommandError::Errno(libc::EINVAL)) if fixed.is_some() => self.ring.without_fixed(),
                Err(CommandError::Errno(errno)) => return Err(io::Error::from_raw_os_error(errno)),
                Err(_) => break,
            }
        }
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }

    /// False if the kernel's helper threads may run on any CPU.
    pub const fn helpers_stay(&self) -> bool {
        self.ring.helpers_stay()
    }
}

impl Engine for Passthrough {
    fn push(&mut self, io: IoCommand, number: u32) {
        let command = match io.operation {
            IoOperation::Flush => Passthru::flush(self.nsid),
            operation => {
                let opcode = if operation == IoOperation::ToMemory { READ } else { WRITE };
                let lba_bytes = u64::from(self.lba_bytes);
                let address = self.base.wrapping_add(io.offset) as u64;
                let blocks = io.bytes / self.lba_bytes;
                Passthru::transfer(opcode, self.nsid, io.place / lba_bytes, blocks, address, io.bytes)
            }
        };
        if let Some(sent) = self.sent.get_mut(number as usize) {
            *sent = io;
        }
        let piece =
            if io.operation == IoOperation::Flush { None } else { self.ring.piece(io.offset, io.bytes) };
        let entry = opcode::UringCmd80::new(Fixed(0), URING_CMD_IO).cmd(command.to_sqe()).buf_index(piece);
        // The completion returns whether the memory was registered.
        let data = u64::from(number) | if piece.is_some() { FIXED } else { 0 };
        // SAFETY: the memory is the buffer's, which outlives the ring.
        unsafe { self.ring.push(&entry.build().user_data(data)) };
    }

    fn carry(&mut self, until: Option<Instant>, done: &mut Vec<CompletedIo>) -> io::Result<()> {
        self.ring.enter(until)?;
        let mut again = std::mem::take(&mut self.again);
        self.ring.fetch_wide(|data, result| {
            let number = (data & !FIXED) as u32;
            match result {
                0 => done.push((number, Ok(()))),
                // The kernel refused the registered piece as too long; the command did not reach the device.
                errno if errno == -libc::EINVAL && data & FIXED != 0 => again.push(number),
                // The device's status field.
                status if status > 0 => {
                    done.push((number, Err(CommandError::Nvme(NvmeStatus((status & 0x7FFF) as u16)))));
                }
                errno => done.push((number, Err(CommandError::Errno(-errno)))),
            }
        });
        if !again.is_empty() {
            self.ring.without_fixed();
        }
        for number in again.drain(..) {
            if let Some(io) = self.sent.get(number as usize).copied() {
                self.push(io, number);
            }
        }
        self.again = again;
        Ok(())
    }

    fn unsent(&mut self) -> usize {
        self.ring.unsent()
    }
}
