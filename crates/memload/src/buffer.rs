//! The memory that devices read and write: where it lies, what stands in it, and reading it with the CPU.
//!
//! Knows pages and nodes; must not know commands. Devices write into it while threads run, so nobody ever holds a reference
//! into it: only addresses, read one word at a time.

use crate::plan::Pages;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use std::ptr;

/// Bytes of a cache line.
const LINE: usize = 64;
/// Bytes that are made ready at a time, or a page if that is more: whoever says stop waits for no more than these. A guess:
/// some hundredths of a second.
const PIECE: usize = 64 << 20;
/// As the kernel has it (include/uapi/asm-generic/hugetlb_encode.h): log2 of the page's size from bit 26 on.
const HUGE_SHIFT: u32 = 26;

/// Why there is no buffer.
#[derive(Debug, thiserror::Error)]
pub enum BufferError {
    /// The pool of huge pages has too few.
    #[error(
        "the buffer needs {wanted} huge pages of {kib} KiB, but the kernel has fewer free; write a larger \
         number into /sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages"
    )]
    Huge {
        /// How many.
        wanted: usize,
        /// Of what size.
        kib: usize,
    },
    /// The node's share of the pool has too few.
    #[error(
        "the buffer needs {wanted} huge pages of {kib} KiB on NUMA node {node}, but fewer are free there; \
         write a larger number into \
         /sys/devices/system/node/node{node}/hugepages/hugepages-{kib}kB/nr_hugepages"
    )]
    HugeOfNode {
        /// How many.
        wanted: usize,
        /// Of what size.
        kib: usize,
        /// Where.
        node: u32,
    },
    /// There is no such node, or no NUMA at all.
    #[error(
        "the buffer cannot be on NUMA node {node}: {why}; /sys/devices/system/node/online lists the nodes"
    )]
    Node {
        /// The node.
        node: u32,
        /// Why.
        why: io::Error,
    },
    /// More than there is: the kernel would promise it, and end some program when the pages are asked for.
    #[error(
        "the buffer needs {bytes} B, and {available} B of memory are available; make it smaller with --buffer"
    )]
    Room {
        /// Its size.
        bytes: u64,
        /// What the kernel could give without taking it from others.
        available: u64,
    },
    /// Anything else.
    #[error("cannot allocate a buffer of {bytes} B: {why}")]
    Memory {
        /// Its size.
        bytes: usize,
        /// Why.
        why: io::Error,
    },
}

/// The buffer.
#[derive(Debug)]
pub struct Buffer {
    base: *mut u8,
    mapped: usize,
    bytes: usize,
    seed: u64,
}

// SAFETY: it is plain memory that threads only reach through volatile reads and whose address they hand to the kernel;
// nothing in it is ever borrowed.
unsafe impl Send for Buffer {}
// SAFETY: as above; what races with a device is data, and never decides anything.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Memory of at least one page, all of it there and filled (see [`word`]).
    ///
    /// # Errors
    /// The kernel has no such memory to give.
    pub fn new(bytes: usize, pages: Pages, numa: Option<u32>, seed: u64) -> Result<Buffer, BufferError> {
        let buffer = Buffer::map(bytes, pages, numa, seed)?;
        buffer.fill(pages, numa, &|| false)?;
        Ok(buffer)
    }

    /// The same; `None` if `stop` became true before all of it was filled.
    ///
    /// # Errors
    /// As above.
    pub fn unless(
        stop: &dyn Fn() -> bool,
        bytes: usize,
        pages: Pages,
        numa: Option<u32>,
        seed: u64,
    ) -> Result<Option<Buffer>, BufferError> {
        let buffer = Buffer::map(bytes, pages, numa, seed)?;
        Ok(buffer.fill(pages, numa, stop)?.then_some(buffer))
    }

    /// Room for it.
    fn map(bytes: usize, pages: Pages, numa: Option<u32>, seed: u64) -> Result<Buffer, BufferError> {
        let mapped = bytes.max(1).next_multiple_of(pages.bytes());
        let huge = match pages {
            Pages::Base => MapFlags::empty(),
            Pages::Huge2M => MapFlags::HUGETLB | MapFlags::from_bits_retain(21 << HUGE_SHIFT),
            Pages::Huge1G => MapFlags::HUGETLB | MapFlags::from_bits_retain(30 << HUGE_SHIFT),
        };
        let (read_write, private) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | huge);
        // SAFETY: a new mapping at an address of the kernel's choice takes nothing from anybody.
        let base = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), mapped, read_write, private) };
        let base = base.map_err(|errno| match pages {
            Pages::Base => BufferError::Memory { bytes: mapped, why: errno.into() },
            _ => BufferError::Huge { wanted: mapped / pages.bytes(), kib: pages.bytes() >> 10 },
        })?;
        let buffer = Buffer { base: base.cast(), mapped, bytes, seed };
        if let Some(node) = numa {
            bind(base, mapped, node).map_err(|why| BufferError::Node { node, why })?;
        }
        Ok(buffer)
    }

    /// Where it begins.
    pub const fn base(&self) -> *mut u8 {
        self.base
    }

    /// Its size.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The seed of what stood in it before the run.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// The CPU reads what lies from `offset` on: one word of each line brings the line into its caches.
    pub fn touch(&self, offset: usize, bytes: usize) {
        let end = offset.saturating_add(bytes).min(self.bytes);
        let mut at = offset & !(LINE - 1);
        while at < end {
            // SAFETY: `at` is below the length of the mapping, which is a multiple of a line, and on its boundary.
            let _ = unsafe { ptr::read_volatile(self.base.add(at).cast::<u64>()) };
            at += LINE;
        }
    }

    /// A copy of what lies from `offset` on, for looking at it when the run is over.
    pub fn copy(&self, offset: usize, into: &mut [u8]) {
        let bytes = into.len().min(self.bytes.saturating_sub(offset));
        // SAFETY: the source is inside the mapping, the destination is borrowed, and they cannot overlap.
        unsafe { ptr::copy_nonoverlapping(self.base.add(offset), into.as_mut_ptr(), bytes) };
    }

    /// Has all its pages and what stands in them; false if `stop` became true before.
    fn fill(&self, pages: Pages, numa: Option<u32>, stop: &dyn Fn() -> bool) -> Result<bool, BufferError> {
        let piece = PIECE.max(pages.bytes());
        for from in (0..self.mapped).step_by(piece) {
            if stop() {
                return Ok(false);
            }
            let bytes = piece.min(self.mapped - from);
            // SAFETY: `from` is inside the mapping.
            let begin = unsafe { self.base.add(from) };
            populate(begin.cast(), bytes).map_err(|errno| lacking(errno, self.mapped, pages, numa))?;
            for at in from / 8..(from + bytes) / 8 {
                // SAFETY: inside the mapping, on a word's boundary; nobody else has the address yet.
                unsafe { self.base.cast::<u64>().add(at).write(word(self.seed, at as u64)) };
            }
        }
        Ok(true)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: it is our mapping; whoever sends commands on it keeps it alive until they came back.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.mapped) };
    }
}

/// What word number `at` of a buffer holds before the run: SplitMix64 (Steele et al. 2014) of seed and place, so that every
/// block differs from every other and a block that arrived somewhere says which it was.
pub const fn word(seed: u64, at: u64) -> u64 {
    let mut z = seed.wrapping_mul(0xD134_2543_DE82_EF95).wrapping_add(at.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Has the kernel find all pages now. A page that cannot be had would end the process at its first use (SIGBUS: huge
/// pages are reserved of the whole pool, not of the node that the buffer is bound to). Before Linux 5.14 there is no
/// way to ask.
fn populate(base: *mut c_void, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the range is one mapping of ours; what stands in its pages stays.
    match unsafe { rustix::mm::madvise(base, bytes, Advice::LinuxPopulateWrite) } {
        Err(Errno::INVAL) => Ok(()),
        done => done,
    }
}

/// What is missing when pages cannot be had.
fn lacking(errno: Errno, mapped: usize, pages: Pages, numa: Option<u32>) -> BufferError {
    let (wanted, kib) = (mapped / pages.bytes(), pages.bytes() >> 10);
    match (pages, numa, errno) {
        (Pages::Base, Some(node), _) => BufferError::Node { node, why: errno.into() },
        (Pages::Huge2M | Pages::Huge1G, Some(node), Errno::FAULT | Errno::NOMEM) => {
            BufferError::HugeOfNode { wanted, kib, node }
        }
        (Pages::Huge2M | Pages::Huge1G, None, Errno::FAULT | Errno::NOMEM) => {
            BufferError::Huge { wanted, kib }
        }
        _ => BufferError::Memory { bytes: mapped, why: errno.into() },
    }
}

/// mbind(2), which no crate of ours has: pages of the range come from this node and no other.
fn bind(base: *mut c_void, bytes: usize, node: u32) -> io::Result<()> {
    // 1024 nodes, as many as the kernel can be built for.
    let mut mask = [0u64; 16];
    let word = mask.get_mut(node as usize / 64).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    *word |= 1 << (node % 64);
    let bits = mask.len() * 64 + 1;
    // SAFETY: the range is one mapping of ours, the mask has the bits that are announced (the kernel reads one less).
    let done =
        unsafe { libc::syscall(libc::SYS_mbind, base, bytes, libc::MPOL_BIND, mask.as_ptr(), bits, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_there_and_each_block_differs() {
        let buffer = Buffer::new(3 * 4096 + 512, Pages::Base, None, 7).unwrap();
        assert_eq!(buffer.base() as usize % 4096, 0);
        let mut blocks = vec![0u8; 3 * 4096];
        buffer.copy(0, &mut blocks);
        assert_eq!(&blocks[..8], &word(7, 0).to_ne_bytes());
        assert_eq!(&blocks[4096..4104], &word(7, 512).to_ne_bytes());
        assert_ne!(blocks[..4096], blocks[4096..8192]);
        // The last lines, and past the end.
        buffer.touch(3 * 4096, 512);
        buffer.touch(4096 * 3 + 500, 1 << 30);
    }

    #[test]
    fn who_says_stop_waits_for_a_piece() {
        let looks = std::cell::Cell::new(0);
        let third = || looks.replace(looks.get() + 1) == 2;
        assert!(Buffer::unless(&third, PIECE + 4096, Pages::Base, None, 7).unwrap().is_some());
        assert_eq!(looks.get(), 2, "asked before each piece");
        assert!(Buffer::unless(&third, 4096, Pages::Base, None, 7).unwrap().is_none());
    }

    #[test]
    fn pages_that_cannot_be_had_are_an_error_and_no_signal() {
        // Behind the end of a file there are no pages either: whoever touched the mapping would be killed.
        let file = tempfile::tempfile().unwrap();
        let (read_write, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice, which nobody touches.
        let base = unsafe { rustix::mm::mmap(ptr::null_mut(), 4096, read_write, shared, &file, 0) }.unwrap();
        assert_eq!(populate(base, 4096), Err(Errno::FAULT));
        // SAFETY: our mapping.
        unsafe { rustix::mm::munmap(base, 4096) }.unwrap();
        let told = |pages, numa| lacking(Errno::FAULT, 4 << 20, pages, numa).to_string();
        assert!(
            told(Pages::Huge2M, None)
                .starts_with("the buffer needs 2 huge pages of 2048 KiB, but the kernel has fewer")
        );
        let node = told(Pages::Huge2M, Some(1));
        assert!(node.contains("2 huge pages of 2048 KiB on NUMA node 1"), "{node}");
        assert!(node.ends_with("/node1/hugepages/hugepages-2048kB/nr_hugepages"), "{node}");
        assert!(told(Pages::Base, Some(1)).starts_with("the buffer cannot be on NUMA node 1: Bad address"));
    }

    #[test]
    fn what_the_kernel_has_not_is_told() {
        let error = Buffer::new(1 << 42, Pages::Huge1G, None, 1).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("4096 huge pages of 1048576 KiB"), "{error}");
        assert!(error.contains("hugepages-1048576kB/nr_hugepages"), "{error}");
        let error = Buffer::new(4096, Pages::Base, Some(999), 1).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("NUMA node 999") && error.contains("node/online"), "{error}");
    }
}
