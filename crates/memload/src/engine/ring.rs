//! The io_uring under two engines: made as cheap as the kernel allows, with the file and the buffer registered.
//!
//! Knows rings, files and memory; must not know what entries say. The crate `io-uring` does the rings: barriers and mappings
//! of this kind are nothing to write twice.

use super::Ground;
use crate::plan::Pages;
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{Builder, IoUring, cqueue, squeue};
use std::io;
use std::os::fd::AsRawFd;
use std::time::Instant;

/// What the kernel counts pieces of memory in.
const PAGE: usize = Pages::Base.bytes();
/// The kernel registers at most 1 GiB at a time (io_uring_register(2)).
const MOST_PIECE: usize = 1 << 30;
/// And at most so many pieces (IORING_MAX_REG_BUFFERS).
const MOST_PIECES: usize = 1 << 14;

/// Pages that overlapping pieces may hold together, each as often as it lies in one: a ring registers them in some
/// milliseconds, and the kernel keeps 16 B of each, 2 MiB. A guess.
const MOST_HELD: usize = 1 << 17;

/// A ring takes this part of the depth at a time and sends it when there is more: a device that begins while the rest
/// is made ready does not stand still between batches. Chosen by measuring 1, 2 and 4 on a virtual disk; more parts are
/// more system calls.
const PARTS: u32 = 4;

/// But no fewer at a time than what the kernel hands down together (IO_PLUG_THRESHOLD in io_uring: more than two).
const LEAST_PART: u32 = 4;

/// How memory is registered: pieces of a size, one beginning every so many bytes; the last may be shorter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pieces {
    size: usize,
    step: usize,
    count: usize,
}

impl Pieces {
    /// Over so many bytes: until one reaches their end, or the next would begin past it.
    fn over(bytes: usize, size: usize, step: usize) -> Pieces {
        let count = (bytes.saturating_sub(size).div_ceil(step) + 1).min(bytes.div_ceil(step).max(1));
        Pieces { size, step, count }
    }

    /// The largest there are. Neighbours overlap by the largest command, so that each command lies within one.
    pub fn largest(ground: &Ground<'_>) -> Pieces {
        Pieces::over(ground.buffer.bytes(), MOST_PIECE, MOST_PIECE - ground.most_bytes as usize)
    }

    /// Each the memory of one command and no more: before Linux 6.12 a command passed through that refers to a piece is
    /// judged by the whole of it, and its data are copied if it is less. `None` if these were too many, or would
    /// overlap too much.
    pub fn of_commands(ground: &Ground<'_>) -> Option<Pieces> {
        let (size, step) = (ground.longest_bytes, ground.step_bytes);
        if size == 0 || step == 0 || size > MOST_PIECE {
            return None;
        }
        let pieces = Pieces::over(ground.buffer.bytes(), size, step);
        // A piece that begins within a page holds one more.
        let held = pieces.count.saturating_mul(size / PAGE + 1);
        (pieces.count <= MOST_PIECES && held <= MOST_HELD).then_some(pieces)
    }

    /// Such that a whole piece is no more than the device takes with a command: before Linux 6.12 a command passed
    /// through that refers to a longer one is refused. The largest there are where commands are about as long as
    /// pieces, for these would overlap too much.
    pub fn of_segments(ground: &Ground<'_>) -> Pieces {
        let size = (ground.most_segments as usize).saturating_mul(PAGE);
        let step = size.saturating_sub((ground.most_bytes as usize).next_multiple_of(PAGE));
        if step == 0 || step < size / 2 {
            return Pieces::largest(ground);
        }
        let pieces = Pieces::over(ground.buffer.bytes(), size, step);
        if pieces.count <= MOST_PIECES { pieces } else { Pieces::largest(ground) }
    }

    /// The piece in which memory lies; `None` if in none as a whole.
    fn holding(&self, offset: usize, bytes: u32) -> Option<u16> {
        let piece = (offset / self.step).min(self.count - 1);
        let inside = offset + bytes as usize <= piece * self.step + self.size;
        if inside { u16::try_from(piece).ok() } else { None }
    }

    /// Each piece's first byte and length, in a buffer of so many bytes.
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
    /// What commands name; `None` if they carry addresses.
    pieces: Option<Pieces>,
    /// Why the kernel did not take what was queued when there was no more room.
    refused: Option<io::Error>,
    /// Entries that found no room then.
    dropped: usize,
    /// Whether the kernel's own threads for it stay where its thread may run.
    helpers_stay: bool,
}

impl<S: squeue::EntryMarker, C: cqueue::EntryMarker> Ring<S, C> {
    /// A ring for so many commands on their way. File number 0 is the target. Memory is registered in the first of
    /// `wanted` that the kernel takes: what a plain user may lock is limited, and memory counts once for each piece
    /// that it lies in.
    ///
    /// # Errors
    /// The kernel has no io_uring, forbids it, or lacks the wider entries that were asked for.
    pub fn new(ground: &Ground<'_>, wanted: &[Pieces]) -> io::Result<Ring<S, C>> {
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
        let part = ground.depth.div_ceil(PARTS).max(LEAST_PART);
        let mut last = None;
        for flag in flags {
            let mut builder = IoUring::<S, C>::builder();
            flag(builder.setup_clamp().setup_cqsize(ground.depth.max(part)));
            match builder.build(part) {
                Ok(mut ring) => {
                    // The ring's own descriptor too needs no look-up then; kernels before 5.18 go without.
                    let _ = ring.submitter().register_ring_fd();
                    ring.submitter().register_files(&[ground.file.as_raw_fd()])?;
                    // SAFETY: the buffer outlives the ring, see `worker`.
                    let pieces =
                        wanted.iter().copied().find(|way| unsafe { register(&mut ring, ground, *way) });
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

    /// False if what would block is done on any CPU, wherever this thread may run.
    pub const fn helpers_stay(&self) -> bool {
        self.helpers_stay
    }

    /// The registered piece in which a command's memory lies; `None` if the kernel would not register it.
    pub fn piece(&self, offset: usize, bytes: u32) -> Option<u16> {
        self.pieces.and_then(|pieces| pieces.holding(offset, bytes))
    }

    /// Commands go without registered memory from now on.
    pub const fn without_fixed(&mut self) {
        self.pieces = None;
    }

    /// Queues an entry, and sends those before it if there is no more room. If the kernel makes none, the next
    /// [`Ring::enter`] says why.
    ///
    /// # Safety
    /// What the entry points to stays valid until its completion.
    pub unsafe fn push(&mut self, entry: &S) {
        // SAFETY: as the caller says.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            if self.refused.is_none() {
                match self.ring.submit() {
                    Ok(_) => continue,
                    // A signal came, or the kernel is short of memory for a moment.
                    Err(why) if matches!(why.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) => continue,
                    Err(why) => self.refused = Some(why),
                }
            }
            self.dropped += 1;
            return;
        }
    }

    /// Entries that were queued and that the kernel has not taken: nobody has heard of these commands.
    pub fn unsent(&mut self) -> usize {
        self.dropped + self.ring.submission().len()
    }

    /// Sends all and waits for one, or until then.
    ///
    /// # Errors
    /// The kernel takes no more; see [`Ring::unsent`].
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

    /// Sends all. A wait that is to end at some time begins after it: the kernel counts how long it waits from when it has
    /// taken the last command, and to take hundreds is not done in no time.
    fn send(&mut self) -> io::Result<()> {
        if self.ring.submission().is_empty() { Ok(()) } else { self.ring.submit().map(|_| ()) }
    }
}

impl<S: squeue::EntryMarker, C: cqueue::EntryMarker> Drop for Ring<S, C> {
    /// Gives the file and the memory back at once: a ring that is dropped keeps it until a worker of the kernel comes
    /// by, and a generic device that has been pulled out must not be held longer than its block device (Linux 5.13 to
    /// 6.12 at least: the last to let go of the generic device frees what the kernel then still looks at). And whoever
    /// unmounts after us would find a file busy.
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

/// What would block (`fdatasync`, and reads and writes where a file system cannot do without) the kernel gives to
/// threads of its own, one set for each thread that has rings. Before Linux 6.2 they run on any CPU, wherever that
/// thread is pinned, unless told otherwise (io_uring_register(2), IORING_REGISTER_IOWQ_AFF, Linux 5.14): from now on
/// where the calling thread may run.
fn keep_helpers<S, C>(ring: &IoUring<S, C>) -> io::Result<()>
where
    S: squeue::EntryMarker,
    C: cqueue::EntryMarker,
{
    let ours = rustix::thread::sched_getaffinity(None)?;
    // SAFETY: the set is plain numbers, of which zero is the empty one.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for cpu in (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| ours.is_set(*cpu)) {
        // SAFETY: below the size of the set.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    ring.submitter().register_iowq_aff(&set)
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
    let pieces: Vec<libc::iovec> = pieces
        .all(bytes)
        .map(|(from, iov_len)| libc::iovec {
            iov_base: ground.buffer.base().wrapping_add(from).cast(),
            iov_len,
        })
        .collect();
    // SAFETY: as the caller says.
    unsafe { ring.submitter().register_buffers(&pieces) }.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;
    use crate::fit::reach;
    use crate::plan::Plan;
    use io_uring::opcode;
    use std::os::fd::OwnedFd;
    use waykeeper_load::{Pattern, Shape};

    const BLOCK: usize = 4096;

    /// A ground of so many blocks, of which a command moves at most `max`.
    fn on<T>(blocks: usize, max: u32, (longest, step): (u32, u32), look: impl FnOnce(&Ground<'_>) -> T) -> T {
        let buffer = Buffer::new(blocks * BLOCK, Pages::Base, None, 1).unwrap();
        let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        look(&Ground {
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
                let reach = reach(&shape, 32, &Plan { stride: 4, thesis, ..Plan::default() });
                let bytes = blocks as usize * BLOCK;
                let pieces = on(blocks as usize, 32, reach, Pieces::of_commands).unwrap();
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
    fn what_is_in_no_piece_as_a_whole_goes_by_address() {
        let pieces = on(8, 32, (1, 1), Pieces::of_commands).unwrap();
        assert_eq!(pieces.holding(7 * BLOCK, 4096), Some(7));
        assert_eq!(pieces.holding(7 * BLOCK + 512, 3584), Some(7), "the rest of a command");
        assert_eq!(pieces.holding(2 * BLOCK, 8192), None);
        assert_eq!(pieces.holding(2 * BLOCK + 512, 4096), None);
    }

    #[test]
    fn what_the_kernel_does_not_register_goes_another_way() {
        assert!(
            rustix::process::geteuid().is_root(),
            "not run: needs root: others may lock too little memory to register it all"
        );
        on((MOST_PIECES / 8) + 1, 1, (0, 1), |ground| {
            let bytes = ground.buffer.bytes();
            let (many, few) = (Pieces::over(bytes, 512, 512), Pieces::largest(ground));
            let ring = |wanted: &[Pieces]| Ring::<squeue::Entry, cqueue::Entry>::new(ground, wanted).unwrap();
            assert!(many.count > MOST_PIECES);
            assert_eq!(ring(&[many]).piece(0, 512), None);
            assert_eq!(ring(&[many, few]).piece(bytes - 512, 512), Some(0));
            assert_eq!(ring(&[Pieces::over(bytes, 4096, 4096), few]).piece(8192, 4096), Some(2));
        });
    }

    #[test]
    fn what_finds_no_room_is_told_and_has_not_gone() {
        // A ring belongs to the thread that made it; of another's the kernel takes nothing.
        let other =
            || on(8, 1, (0, 1), |ground| Ring::<squeue::Entry, cqueue::Entry>::new(ground, &[]).unwrap());
        let mut ring = std::thread::spawn(other).join().unwrap();
        let nothing = opcode::Nop::new().build();
        for _ in 0..LEAST_PART + 2 {
            // SAFETY: it points to nothing.
            unsafe { ring.push(&nothing) };
        }
        // There was room for four; the other two would be waited for without end.
        assert_eq!(ring.unsent(), 6);
        assert!(ring.enter(Some(Instant::now())).is_err());
        assert_eq!(ring.unsent(), 6);
    }

    #[test]
    fn a_part_goes_when_there_is_more() {
        let at = |depth, pushed: u32| {
            on(8, 1, (0, 1), |ground| {
                let ground = Ground { depth, ..*ground };
                let mut ring = Ring::<squeue::Entry, cqueue::Entry>::new(&ground, &[]).unwrap();
                for _ in 0..pushed {
                    // SAFETY: it points to nothing.
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
            let reach = reach(&shape, max, &Plan::default());
            on(blocks as usize, max, reach, |ground| {
                (Pieces::of_commands(ground), Pieces::of_segments(ground))
            })
        };
        // As many as the kernel takes, and one more.
        assert_eq!(wanted(1 << 14, 1, Pattern::Single).0.unwrap().count, 1 << 14);
        let (none, fewer) = wanted((1 << 14) + 1, 1, Pattern::Single);
        assert_eq!((none, fewer.size, fewer.step), (None, 127 * BLOCK, 126 * BLOCK));
        assert_eq!(fewer.holding((1 << 14) * BLOCK, 4096), Some(130));
        // 127 blocks of the thesis's buffer begin at 874 places: 875 pieces of 126 pages. Of 256 these are more than is
        // held.
        assert_eq!(wanted(1000, 127, Pattern::Random).0.unwrap().count, 875);
        let (none, one) = wanted(1000, 256, Pattern::Random);
        assert_eq!((none, one.count, one.size), (None, 1, MOST_PIECE));
        assert_eq!(on(8, 32, (0, 1), Pieces::of_commands), None, "no data, no memory");
    }
}
