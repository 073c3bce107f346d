//! The io_uring of two engines, configured for low overhead, with the file and the buffer registered.
//!
//! Knows rings, files and memory; must not know the meaning of entries. The crate `io-uring` provides mappings and
//! barriers.

use super::EngineParams;
use crate::plan::PageSize;
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{Builder, IoUring, cqueue, squeue};
use std::io;
use std::os::fd::AsRawFd;
use std::time::Instant;

/// Bytes of the pages in which the kernel counts memory.
const PAGE: usize = PageSize::Base.bytes();
/// Maximum bytes per registered piece (io_uring_register(2)).
const MOST_PIECE: usize = 1 << 30;
/// Maximum number of pieces (IORING_MAX_REG_BUFFERS).
const MOST_PIECES: usize = 1 << 14;

/// Maximum pages of all pieces, counted once per piece. A ring registers them in some milliseconds, and the kernel
/// keeps 16 B for each, 2 MiB. A guess.
const MOST_HELD: usize = 1 << 17;

/// The submission queue holds this fraction of the depth and is submitted when it is full, so the device begins while
/// the rest is prepared. Chosen by measuring 1, 2 and 4 on a virtual disk; more parts mean more system calls.
const PARTS: u32 = 4;

/// Minimum entries of the submission queue: the kernel submits batches of more than two together (IO_PLUG_THRESHOLD in
/// io_uring).
const LEAST_PART: u32 = 4;

/// Registered memory: `count` pieces of `size` bytes, one every `step` bytes; the last may be shorter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegisteredBuffers {
    size: usize,
    step: usize,
    count: usize,
}

impl RegisteredBuffers {
    /// Pieces over `bytes` bytes: up to the first that reaches the end, or until the next would begin beyond it.
    fn over(bytes: usize, size: usize, step: usize) -> RegisteredBuffers {
        let count = (bytes.saturating_sub(size).div_ceil(step) + 1).min(bytes.div_ceil(step).max(1));
        RegisteredBuffers { size, step, count }
    }

    /// Pieces of maximum size. Neighbours overlap by the longest command, so that each command lies within one piece.
    pub fn largest(params: &EngineParams<'_>) -> RegisteredBuffers {
        RegisteredBuffers::over(params.buffer.bytes(), MOST_PIECE, MOST_PIECE - params.most_bytes as usize)
    }

    /// One piece per possible command: before Linux 6.12 the kernel judges a passthrough command by the whole piece
    /// that it refers to, and copies the data if the command is shorter. `None` if there would be too many pieces or
    /// too many pages.
    pub fn of_commands(params: &EngineParams<'_>) -> Option<RegisteredBuffers> {
        let (size, step) = (params.longest_bytes, params.step_bytes);
        if size == 0 || step == 0 || size > MOST_PIECE {
            return None;
        }
        let pieces = RegisteredBuffers::over(params.buffer.bytes(), size, step);
        // A piece that begins within a page covers one page more.
        let held = pieces.count.saturating_mul(size / PAGE + 1);
        (pieces.count <= MOST_PIECES && held <= MOST_HELD).then_some(pieces)
    }

    /// Pieces no larger than the device's limit per command: before Linux 6.12 the kernel refuses a passthrough command
    /// whose piece is larger. Pieces of maximum size if commands are almost as long as pieces, because the overlap
    /// would be too large.
    pub fn of_segments(params: &EngineParams<'_>) -> RegisteredBuffers {
        let size = (params.most_segments as usize).saturating_mul(PAGE);
        let step = size.saturating_sub((params.most_bytes as usize).next_multiple_of(PAGE));
        if step == 0 || step < size / 2 {
            return RegisteredBuffers::largest(params);
        }
        let pieces = RegisteredBuffers::over(params.buffer.bytes(), size, step);
        if pieces.count <= MOST_PIECES { pieces } else { RegisteredBuffers::largest(params) }
    }

    /// Index of the piece that contains the whole range; `None` if no piece does.
    fn holding(&self, offset: usize, bytes: u32) -> Option<u16> {
        let piece = (offset / self.step).min(self.count - 1);
        let inside = offset + bytes as usize <= piece * self.step + self.size;
        if inside { u16::try_from(piece).ok() } else { None }
    }

    /// Offset and length of each piece, in a buffer of `bytes` bytes.
    fn all(self, bytes: usize) -> impl Iterator<Item = (usize, usize)> {
        (0..self.count)
            .map(move |piece| piece * self.step)
            .map(move |from| (from, self.size.min(bytes - from)))
    }
}

/// A ring of one worker.
pub struct Ring<S: squeue::EntryMarker, C: cqueue::EntryMarker> {
    ring: IoUring<S, C>,
    registered: bool,
    /// The registered pieces; `None` if commands carry addresses.
    pieces: Option<RegisteredBuffers>,
    /// The kernel's error when the submission queue was full.
    refused: Option<io::Error>,
    /// Entries that were not queued because of it.
    dropped: usize,
    /// Whether the kernel's helper threads stay on the CPUs of the ring's thread.
    helpers_stay: bool,
}

impl<S: squeue::EntryMarker, C: cqueue::EntryMarker> Ring<S, C> {
    /// A ring for `params.depth` outstanding commands. File number 0 is the target. Memory is registered as the first
    /// of `wanted` that the kernel accepts: a plain user may lock a limited amount, and memory counts once per piece
    /// that contains it.
    ///
    /// # Errors
    /// If the kernel has no io_uring, forbids it, or lacks the wide entries that were requested.
    pub fn new(params: &EngineParams<'_>, wanted: &[RegisteredBuffers]) -> io::Result<Ring<S, C>> {
        // Each set saves wakeups or locks; kernels from 6.1, from 5.19, and all.
        let flags: [fn(&mut Builder<S, C>); 3] = [
            |ring| {
                ring.setup_single_issuer().setup_defer_taskrun();
            },
            |ring| {
                ring.setup_coop_taskrun();
            },
            |_| {},
        ];
        let part = params.depth.div_ceil(PARTS).max(LEAST_PART);
        let mut last = None;
        for flag in flags {
            let mut builder = IoUring::<S, C>::builder();
            flag(builder.setup_clamp().setup_cqsize(params.depth.max(part)));
            match builder.build(part) {
                Ok(mut ring) => {
                    // Saves the lookup of the ring's own descriptor; kernels before 5.18 refuse.
                    let _ = ring.submitter().register_ring_fd();
                    ring.submitter().register_files(&[params.file.as_raw_fd()])?;
                    // SAFETY: the buffer outlives the ring, see `worker`.
                    let pieces =
                        wanted.iter().copied().find(|way| unsafe { register(&mut ring, params, *way) });
                    let registered = pieces.is_some();
                    let helpers_stay = keep_helpers(&ring).is_ok();
                    return Ok(Ring { ring, registered, pieces, refused: None, dropped: 0, helpers_stay });
                }
                Err(why) if why.raw_os_error() == Some(libc::EINVAL) => last = Some(why),
                Err(why) => return Err(why),
            }
        }
        Err(last.unwrap_or_else(|| io::Error::from_raw_os_error(libc::EINVAL)))
    }

    /// False if the kernel runs blocking work on any CPU, whatever the thread's affinity.
    pub const fn helpers_stay(&self) -> bool {
        self.helpers_stay
    }

    /// The registered piece that contains a command's memory; `None` if there is none.
    pub fn piece(&self, offset: usize, bytes: u32) -> Option<u16> {
        self.pieces.and_then(|pieces| pieces.holding(offset, bytes))
    }

    /// Stops the use of registered memory.
    pub const fn without_fixed(&mut self) {
        self.pieces = None;
    }

    /// Queues an entry; submits earlier ones if the queue is full. If the kernel refuses them, the next [`Ring::enter`]
    /// returns the error.
    ///
    /// # Safety
    /// What the entry points to stays valid until its completion.
    pub unsafe fn push(&mut self, entry: &S) {
        // SAFETY: required of the caller.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            if self.refused.is_none() {
                match self.ring.submit() {
                    Ok(_) => continue,
                    // A signal, or a temporary lack of kernel memory.
                    Err(why) if matches!(why.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) => continue,
                    Err(why) => self.refused = Some(why),
                }
            }
            self.dropped += 1;
            return;
        }
    }

    /// Entries that the kernel has not taken: their commands did not reach the device.
    pub fn unsent(&mut self) -> usize {
        self.dropped + self.ring.submission().len()
    }

    /// Submits all entries and waits for one completion, or until `until`.
    ///
    /// # Errors
    /// If the kernel takes no more entries; see [`Ring::unsent`].
    pub fn enter(&mut self, until: Option<Instant>) -> io::Result<()> {
        if let Some(why) = self.refused.take() {
            return Err(why);
        }
        let entered = match until {
            None => self.ring.submit_and_wait(1),
            Some(until) => self.send().and_then(|()| {
                let left = Timespec::from(until.saturating_duration_since(Instant::now()));
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&left))
            }),
        };
        match entered {
            Ok(_) => Ok(()),
            // A timeout, a signal, or a full completion queue: the caller fetches completions in all cases.
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

    /// Submits all entries before a timed wait: the kernel counts the timeout from the last submission, and submitting
    /// hundreds of commands takes time.
    fn send(&mut self) -> io::Result<()> {
        if self.ring.submission().is_empty() { Ok(()) } else { self.ring.submit().map(|_| ()) }
    }
}

impl<S: squeue::EntryMarker, C: cqueue::EntryMarker> Drop for Ring<S, C> {
    /// Unregisters the file and the memory immediately. A dropped ring keeps them until a kernel worker runs, and a
    /// removed generic device must not be held longer than its block device (Linux 5.13 to 6.12 at least have a use
    /// after free when the generic device is released last). An unmount after the run would also find a busy file.
    fn drop(&mut self) {
        let _ = self.ring.submitter().unregister_files();
        if self.registered {
            let _ = self.ring.submitter().unregister_buffers();
        }
    }
}

impl<S: squeue::EntryMarker> Ring<S, cqueue::Entry> {
    /// Takes all completions: `user_data` and the result of each.
    pub fn fetch(&mut self, mut take: impl FnMut(u64, i32)) {
        for entry in self.ring.completion() {
            take(entry.user_data(), entry.result());
        }
    }
}

impl<S: squeue::EntryMarker> Ring<S, cqueue::Entry32> {
    /// The same for wide entries.
    pub fn fetch_wide(&mut self, mut take: impl FnMut(u64, i32)) {
        for entry in self.ring.completion() {
            take(entry.user_data(), entry.result());
        }
    }
}

/// Restricts the kernel's helper threads to the CPUs of the calling thread. They run blocking work (`fdatasync`, and
/// reads and writes that a file system cannot do asynchronously), one set per thread with rings. Before Linux 6.2 they
/// run on any CPU by default (io_uring_register(2), IORING_REGISTER_IOWQ_AFF, Linux 5.14).
fn keep_helpers<S, C>(ring: &IoUring<S, C>) -> io::Result<()>
where
    S: squeue::EntryMarker,
    C: cqueue::EntryMarker,
{
    let ours = rustix::thread::sched_getaffinity(None)?;
    // SAFETY: the set is plain integers, and all zeros is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for cpu in (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| ours.is_set(*cpu)) {
        // SAFETY: below the size of the set.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    ring.submitter().register_iowq_aff(&set)
}

/// Registers the buffer in pieces; false if the kernel refuses, because a plain user may lock a limited amount of
/// memory. Commands then carry addresses, which costs a little more.
///
/// # Safety
/// The buffer outlives the ring.
unsafe fn register<S, C>(
    ring: &mut IoUring<S, C>,
    params: &EngineParams<'_>,
    pieces: RegisteredBuffers,
) -> bool
where
    S: squeue::EntryMarker,
    C: cqueue::EntryMarker,
{
    let bytes = params.buffer.bytes();
    let pieces: Vec<libc::iovec> = pieces
        .all(bytes)
        .map(|(from, iov_len)| libc::iovec {
            iov_base: params.buffer.base().wrapping_add(from).cast(),
            iov_len,
        })
        .collect();
    // SAFETY: required of the caller.
    unsafe { ring.submitter().register_buffers(&pieces) }.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;
    use crate::fit::reach;
    use crate::plan::LoadPlan;
    use io_uring::opcode;
    use std::os::fd::OwnedFd;
    use waykeeper_load::{Pattern, Shape};

    const BLOCK: usize = 4096;

    /// Parameters with a buffer of `blocks` blocks and commands of at most `max`.
    fn on<T>(
        blocks: usize,
        max: u32,
        (longest, step): (u32, u32),
        look: impl FnOnce(&EngineParams<'_>) -> T,
    ) -> T {
        let buffer = Buffer::new(blocks * BLOCK, PageSize::Base, None, 1).unwrap();
        let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        look(&EngineParams {
            buffer: &buffer,
            file: &file,
            depth: 1,
            most_bytes: max * BLOCK as u32,
            longest_bytes: longest as usize * BLOCK,
            step_bytes: step as usize * BLOCK,
            most_segments: 127,
            nsid: 1,
            lba_bytes: 512,
        })
    }

    #[test]
    fn a_command_has_a_piece_that_is_its_memory_and_no_more() {
        for pattern in [Pattern::Single, Pattern::Random, Pattern::Full, Pattern::Packets] {
            for (blocks, thesis) in [(40, false), (40, true), (62, false), (70, false), (70, true)] {
                let shape = Shape::new(pattern, blocks, 32, 4, thesis).unwrap();
                let reach = reach(&shape, 32, &LoadPlan { stride: 4, thesis, ..LoadPlan::default() });
                let bytes = blocks as usize * BLOCK;
                let pieces = on(blocks as usize, 32, reach, RegisteredBuffers::of_commands).unwrap();
                let all: Vec<(usize, usize)> = pieces.all(bytes).collect();
                assert!(all.iter().all(|(from, length)| from + length <= bytes), "{all:?}");
                let (mut position, mut draw) = (0, 0);
                for _ in 0..200 {
                    let command = shape.next(&mut position, |below| {
                        draw += 1;
                        draw % below
                    });
                    let memory = (command.target as usize * BLOCK, command.moved as usize * BLOCK);
                    let piece = pieces.holding(memory.0, memory.1 as u32).unwrap();
                    assert_eq!(all[usize::from(piece)], memory, "{pattern:?} {blocks} {thesis}");
                }
            }
        }
    }

    #[test]
    fn what_is_in_no_whole_piece_is_found_by_address() {
        let pieces = on(8, 32, (1, 1), RegisteredBuffers::of_commands).unwrap();
        assert_eq!(pieces.holding(7 * BLOCK, 4096), Some(7));
        assert_eq!(pieces.holding(7 * BLOCK + 512, 3584), Some(7), "the rest of a command");
        assert_eq!(pieces.holding(2 * BLOCK, 8192), None);
        assert_eq!(pieces.holding(2 * BLOCK + 512, 4096), None);
    }

    #[test]
    fn what_the_kernel_does_not_register_uses_another_interface() {
        assert!(
            rustix::process::geteuid().is_root(),
            "not run: needs root: others may lock too little memory to register it all"
        );
        on((MOST_PIECES / 8) + 1, 1, (0, 1), |params| {
            let bytes = params.buffer.bytes();
            let (many, few) = (RegisteredBuffers::over(bytes, 512, 512), RegisteredBuffers::largest(params));
            let ring = |wanted: &[RegisteredBuffers]| {
                Ring::<squeue::Entry, cqueue::Entry>::new(params, wanted).unwrap()
            };
            assert!(many.count > MOST_PIECES);
            assert_eq!(ring(&[many]).piece(0, 512), None);
            assert_eq!(ring(&[many, few]).piece(bytes - 512, 512), Some(0));
            assert_eq!(ring(&[RegisteredBuffers::over(bytes, 4096, 4096), few]).piece(8192, 4096), Some(2));
        });
    }

    #[test]
    fn what_does_not_fit_is_reported_and_was_not_sent() {
        // A ring belongs to the thread that made it; the kernel refuses submissions of other threads.
        let other =
            || on(8, 1, (0, 1), |params| Ring::<squeue::Entry, cqueue::Entry>::new(params, &[]).unwrap());
        let mut ring = std::thread::spawn(other).join().unwrap();
        let nothing = opcode::Nop::new().build();
        for _ in 0..LEAST_PART + 2 {
            // SAFETY: the entry contains no pointer.
            unsafe { ring.push(&nothing) };
        }
        // There was room for four; without `dropped`, the engine would wait for the other two forever.
        assert_eq!(ring.unsent(), 6);
        assert!(ring.enter(Some(Instant::now())).is_err());
        assert_eq!(ring.unsent(), 6);
    }

    #[test]
    fn a_part_is_removed_when_there_is_more() {
        let at = |depth, pushed: u32| {
            on(8, 1, (0, 1), |params| {
                let params = EngineParams { depth, ..*params };
                let mut ring = Ring::<squeue::Entry, cqueue::Entry>::new(&params, &[]).unwrap();
                for _ in 0..pushed {
                    // SAFETY: the entry contains no pointer.
                    unsafe { ring.push(&opcode::Nop::new().build()) };
                }
                ring.unsent()
            })
        };
        assert_eq!([at(32, 8), at(32, 9), at(32, 32)], [8, 1, 8]);
        assert_eq!([at(3, 3), at(5, 4), at(5, 5)], [3, 4, 1]);
    }

    #[test]
    fn too_many_pieces_are_made_fewer() {
        let wanted = |blocks: u32, max, pattern| {
            let shape = Shape::new(pattern, blocks, max, 1, false).unwrap();
            let reach = reach(&shape, max, &LoadPlan::default());
            on(blocks as usize, max, reach, |params| {
                (RegisteredBuffers::of_commands(params), RegisteredBuffers::of_segments(params))
            })
        };
        // The kernel's maximum, and one more.
        assert_eq!(wanted(1 << 14, 1, Pattern::Single).0.unwrap().count, 1 << 14);
        let (none, fewer) = wanted((1 << 14) + 1, 1, Pattern::Single);
        assert_eq!((none, fewer.size, fewer.step), (None, 127 * BLOCK, 126 * BLOCK));
        assert_eq!(fewer.holding((1 << 14) * BLOCK, 4096), Some(130));
        // Commands of 127 - 1 of the thesis's 1000 blocks begin at 0 to 874: 875 pieces of 126 pages. With 256 there are
        // more than `MOST_HELD` pages.
        assert_eq!(wanted(1000, 127, Pattern::Random).0.unwrap().count, 875);
        let (none, one) = wanted(1000, 256, Pattern::Random);
        assert_eq!((none, one.count, one.size), (None, 1, MOST_PIECE));
        assert_eq!(on(8, 32, (0, 1), RegisteredBuffers::of_commands), None, "no data, no memory");
    }
}
