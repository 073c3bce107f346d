//! NVMe commands through the ioctl, one at a time: the thread waits for each. Works on every kernel, on both devices of
//! a namespace, and on a file that answers ioctls.
//!
//! Knows the command block; must not know files or file systems.

use super::{CommandError, CompletedIo, Engine, EngineParams, IoCommand, IoOperation};
use crate::nvme::{IOCTL_IO_CMD, NvmeStatus, Passthru, READ, WRITE};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Instant;

/// The engine.
pub struct Ioctl {
    file: RawFd,
    base: *mut u8,
    nsid: u32,
    lba_bytes: u32,
    waiting: Option<(u32, Passthru)>,
}

impl Ioctl {
    /// Engine on an open device. Buffer and file must outlive it.
    pub fn new(params: &EngineParams<'_>) -> Ioctl {
        let EngineParams { buffer, file, nsid, lba_bytes, .. } = *params;
        Ioctl { file: file.as_raw_fd(), base: buffer.base(), nsid, lba_bytes, waiting: None }
    }
}

impl Engine for Ioctl {
    fn push(&mut self, io: IoCommand, number: u32) {
        let command = match io.operation {
            IoOperation::Flush => Passthru::flush(self.nsid),
            operation => {
                let opcode = if operation == IoOperation::ToMemory { READ } else { WRITE };
                let address = self.base.wrapping_add(io.offset) as u64;
                let lba = io.place / u64::from(self.lba_bytes);
                Passthru::transfer(opcode, self.nsid, lba, io.bytes / self.lba_bytes, address, io.bytes)
            }
        };
        self.waiting = Some((number, command));
    }

    fn carry(&mut self, _: Option<Instant>, done: &mut Vec<CompletedIo>) -> io::Result<()> {
        let Some((number, mut command)) = self.waiting.take() else { return Ok(()) };
        // SAFETY: the command is the kernel's structure, its memory is the buffer's, and both outlive the call.
        let status = unsafe { libc::ioctl(self.file, IOCTL_IO_CMD as libc::Ioctl, &raw mut command) };
        let end = match status {
            0 => Ok(()),
            status if status > 0 => Err(CommandError::Nvme(NvmeStatus((status & 0x7FFF) as u16))),
            _ => Err(CommandError::Errno(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))),
        };
        done.push((number, end));
        Ok(())
    }

    fn unsent(&mut self) -> usize {
        usize::from(self.waiting.is_some())
    }
}
