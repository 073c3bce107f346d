//! The io_uring under two engines: made as cheap as the kernel allows, with the file and the buffer registered.
//!
//! Knows rings, files and memory; must not know what entries say. The crate `io-uring` does the rings: barriers and mappings
//! of this kind are nothing to write twice.

use super::Ground;
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{Builder, IoUring, cqueue, squeue};
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// The kernel registers at most 1 GiB at a time (io_uring_register(2)).
const MOST_PIECE: usize = 1 << 30;
/// And at most so many pieces (IORING_MAX_REG_BUFFERS).
const MOST_PIECES: usize = 1 << 14;

/// How memory is registered: pieces of a size, one beginning every so many bytes.
#[derive(Clone, Copy, Debug)]
pub struct Pieces {
    size: usize,
    step: usize,
}

impl Pieces {
    /// The largest there are. Neighbours overlap by the largest command, so that each command lies within one.
    pub const fn largest(ground: &Ground<'_>) -> Pieces {
        Pieces { size: MOST_PIECE, step: MOST_PIECE - ground.most_bytes as usize }
    }

    /// Such that a whole piece is no more than the device takes with a command: before Linux 6.12 a command passed through that
    /// refers to a piece is judged by the whole of it. The largest there are where commands are about as long as pieces, for
    /// these would overlap too much.
    pub fn of_segments(ground: &Ground<'_>) -> Pieces {
        let size = (ground.most_segments as usize).saturating_mul(4096);
        let step = size.saturating_sub((ground.most_bytes as usize).next_multiple_of(4096));
        let few = step > 0 && ground.buffer.bytes().div_ceil(step) <= MOST_PIECES;
        if few && step >= size / 2 { Pieces { size, step } } else { Pieces::largest(ground) }
    }
}

/// A ring of one worker.
pub struct Ring<S: squeue::EntryMarker, C: cqueue::EntryMarker> {
    ring: IoUring<S, C>,
    registered: bool,
    /// Commands name registered memory.
    fixed: bool,
    /// Where a registered piece begins after another; neighbours overlap by the largest command.
    step: usize,
}

impl<S: squeue::EntryMarker, C: cqueue::EntryMarker> Ring<S, C> {
    /// A ring with room for the depth. File number 0 is the target.
    ///
    /// # Errors
    /// The kernel has no io_uring, forbids it, or lacks the wider entries that were asked for.
    pub fn new(ground: &Ground<'_>, pieces: Pieces) -> io::Result<Ring<S, C>> {
        // Each saves wakeups or locks, and the older the kernel the less it has: 6.1, 5.19, all.
        let flags: [fn(&mut Builder<S, C>); 3] = [
            |ring| {
                ring.setup_single_issuer().setup_defer_taskrun();
            },
            |ring| {
                ring.setup_coop_taskrun();
            },
            |_| {},
        ];
        let mut last = None;
        for flag in flags {
            let mut builder = IoUring::<S, C>::builder();
            flag(builder.setup_clamp());
            match builder.build(ground.depth.max(1)) {
                Ok(mut ring) => {
                    // The ring's own descriptor too needs no look-up then; kernels before 5.18 go without.
                    let _ = ring.submitter().register_ring_fd();
                    ring.submitter().register_files(&[ground.file.as_raw_fd()])?;
                    // SAFETY: the buffer outlives the ring, see `worker`.
                    let fixed = unsafe { register(&mut ring, ground, pieces) };
                    return Ok(Ring { ring, registered: fixed, fixed, step: pieces.step });
                }
                Err(why) if why.raw_os_error() == Some(libc::EINVAL) => last = Some(why),
                Err(why) => return Err(why),
            }
        }
        Err(last.unwrap_or_else(|| io::Error::from_raw_os_error(libc::EINVAL)))
    }

    /// The registered piece in which a command's memory lies; `None` if the kernel would not register it.
    pub const fn piece(&self, offset: usize) -> Option<u16> {
        if !self.fixed {
            return None;
        }
        let piece = offset / self.step;
        Some(if piece > u16::MAX as usize { u16::MAX } else { piece as u16 })
    }

    /// Commands go without registered memory from now on.
    pub const fn without_fixed(&mut self) {
        self.fixed = false;
    }

    /// Queues an entry.
    ///
    /// # Safety
    /// What the entry points to stays valid until its completion.
    pub unsafe fn push(&mut self, entry: &S) {
        // SAFETY: as the caller says.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            // It has room for the depth, so this is only reached if the kernel left entries behind.
            if self.ring.submit().is_err() {
                break;
            }
        }
    }

    /// Sends all and waits for one, or until patience is over.
    pub fn enter(&mut self, patience: Option<Duration>) -> io::Result<()> {
        let entered = match patience {
            None => self.ring.submit_and_wait(1),
            Some(patience) => {
                let time = Timespec::from(patience);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time))
            }
        };
        match entered {
            Ok(_) => Ok(()),
            // Time is over, a signal came, or completions wait to be fetched: all of these go on with fetching.
            Err(why)
                if matches!(
                    why.raw_os_error(),
                    Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)
                ) =>
            {
                Ok(())
            }
            Err(why) => Err(why),
        }
    }
}

impl<S: squeue::EntryMarker, C: cqueue::EntryMarker> Drop for Ring<S, C> {
    /// Gives the file and the memory back at once: a ring that is dropped keeps it until a worker of the kernel comes by, and a generic device
    /// that has been pulled out must not be held longer than its block device (Linux 5.13 to 6.12 at least: the last to let go
    /// of the generic device frees what the kernel then still looks at). And whoever unmounts after us would find a file busy.
    fn drop(&mut self) {
        let _ = self.ring.submitter().unregister_files();
        if self.registered {
            let _ = self.ring.submitter().unregister_buffers();
        }
    }
}

impl<S: squeue::EntryMarker> Ring<S, cqueue::Entry> {
    /// Fetches all that are back: what each was sent under, and what the kernel says.
    pub fn fetch(&mut self, mut take: impl FnMut(u64, i32)) {
        for entry in self.ring.completion() {
            take(entry.user_data(), entry.result());
        }
    }
}

impl<S: squeue::EntryMarker> Ring<S, cqueue::Entry32> {
    /// The same on wide entries.
    pub fn fetch_wide(&mut self, mut take: impl FnMut(u64, i32)) {
        for entry in self.ring.completion() {
            take(entry.user_data(), entry.result());
        }
    }
}

/// Registers the buffer in pieces; false if the kernel does not want to (locked memory is limited for plain users): commands
/// then carry addresses, which costs a little more.
///
/// # Safety
/// The buffer outlives the ring.
unsafe fn register<S, C>(ring: &mut IoUring<S, C>, ground: &Ground<'_>, pieces: Pieces) -> bool
where
    S: squeue::EntryMarker,
    C: cqueue::EntryMarker,
{
    let bytes = ground.buffer.bytes();
    let pieces: Vec<libc::iovec> = (0..bytes)
        .step_by(pieces.step)
        .map(|from| libc::iovec {
            iov_base: ground.buffer.base().wrapping_add(from).cast(),
            iov_len: pieces.size.min(bytes - from),
        })
        .collect();
    // SAFETY: as the caller says.
    !pieces.is_empty() && unsafe { ring.submitter().register_buffers(&pieces) }.is_ok()
}
