//! The memory that devices read and write: its pages, its initial content, and CPU reads of it.
//!
//! Knows pages and nodes; must not know commands. Devices write into it while threads run, so no reference into it may
//! exist: only addresses, read one word at a time.

use crate::plan::PageSize;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use std::ptr;

/// Bytes of a cache line.
const LINE: usize = 64;
/// Bytes that are populated at a time, or one page if that is larger; a stop request takes effect after each. A guess:
/// some hundredths of a second.
const PIECE: usize = 64 << 20;
/// Bit offset of log2 of the page size in mmap's flags (include/uapi/asm-generic/hugetlb_encode.h).
const HUGE_SHIFT: u32 = 26;

/// Reason why there is no buffer.
#[derive(Debug, thiserror::Error)]
pub enum BufferError {
    /// The pool of huge pages has too few.
    #[error(
        "the buffer needs {wanted} huge pages of {kib} KiB, but the kernel has fewer free; write a larger \
         number into /sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages"
    )]
    Huge {
        /// Required pages.
        wanted: usize,
        /// KiB per page.
        kib: usize,
    },
    /// The node has too few pages of the pool.
    #[error(
        "the buffer needs {wanted} huge pages of {kib} KiB on NUMA node {node}, but fewer are free there; \
         write a larger number into \
         /sys/devices/system/node/node{node}/hugepages/hugepages-{kib}kB/nr_hugepages"
    )]
    HugeOfNode {
        /// Required pages.
        wanted: usize,
        /// KiB per page.
        kib: usize,
        /// The node.
        node: u32,
    },
    /// There is no such node, or no NUMA.
    #[error(
        "the buffer cannot be on NUMA node {node}: {why}; /sys/devices/system/node/online lists the nodes"
    )]
    Node {
        /// The node.
        node: u32,
        /// Why.
        why: io::Error,
    },
    /// More than the available memory: mmap would succeed, and the kernel would kill a program when the pages are used.
    #[error(
        "the buffer needs {bytes} B, and {available} B of memory are available; make it smaller with --buffer"
    )]
    Room {
        /// Its size.
        bytes: u64,
        /// MemAvailable, bytes.
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

// SAFETY: it is plain memory that threads only read with volatile reads and whose address they pass to the kernel;
// there are no references into it.
unsafe impl Send for Buffer {}
// SAFETY: as above; a race with a device changes only data, on which no decision depends.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Memory of at least one page, with all pages populated and filled (see [`word`]).
    ///
    /// # Errors
    /// If the kernel cannot provide the memory.
    pub fn new(bytes: usize, pages: PageSize, numa: Option<u32>, seed: u64) -> Result<Buffer, BufferError> {
        let buffer = Buffer::map(bytes, pages, numa, seed)?;
        buffer.fill(pages, numa, &|| false)?;
        Ok(buffer)
    }

    /// The same; `None` if `stop` became true before it was filled.
    ///
    /// # Errors
    /// As above.
    pub fn unless(
        stop: &dyn Fn() -> bool,
        bytes: usize,
        pages: PageSize,
        numa: Option<u32>,
        seed: u64,
    ) -> Result<Option<Buffer>, BufferError> {
        let buffer = Buffer::map(bytes, pages, numa, seed)?;
        Ok(buffer.fill(pages, numa, stop)?.then_some(buffer))
    }

    fn map(bytes: usize, pages: PageSize, numa: Option<u32>, seed: u64) -> Result<Buffer, BufferError> {
        let mapped = bytes.max(1).next_multiple_of(pages.bytes());
        let huge = match pages {
            PageSize::Base => MapFlags::empty(),
            PageSize::Huge2M => MapFlags::HUGETLB | MapFlags::from_bits_retain(21 << HUGE_SHIFT),
            PageSize::Huge1G => MapFlags::HUGETLB | MapFlags::from_bits_retain(30 << HUGE_SHIFT),
        };
        let (read_write, private) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | huge);
        // SAFETY: a new mapping at an address of the kernel's choice replaces no other mapping.
        let base = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), mapped, read_write, private) };
        let base = base.map_err(|errno| match pages {
            PageSize::Base => BufferError::Memory { bytes: mapped, why: errno.into() },
            _ => BufferError::Huge { wanted: mapped / pages.bytes(), kib: pages.bytes() >> 10 },
        })?;
        let buffer = Buffer { base: base.cast(), mapped, bytes, seed };
        if let Some(node) = numa {
            bind(base, mapped, node).map_err(|why| BufferError::Node { node, why })?;
        }
        Ok(buffer)
    }

    /// Its address.
    pub const fn base(&self) -> *mut u8 {
        self.base
    }

    /// Its size.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The seed of its initial content.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Reads the range from `offset` on with the CPU: one word per line loads the line into its caches.
    pub fn touch(&self, offset: usize, bytes: usize) {
        let end = offset.saturating_add(bytes).min(self.bytes);
        let mut at = offset & !(LINE - 1);
        while at < end {
            // SAFETY: `at` is below the length of the mapping, which is a multiple of a line, and on its boundary.
            let _ = unsafe { ptr::read_volatile(self.base.add(at).cast::<u64>()) };
            at += LINE;
        }
    }

    /// Copies the range from `offset` on, to verify it after the run.
    pub fn copy(&self, offset: usize, into: &mut [u8]) {
        let bytes = into.len().min(self.bytes.saturating_sub(offset));
        // SAFETY: the source is inside the mapping, the destination is borrowed, and they cannot overlap.
        unsafe { ptr::copy_nonoverlapping(self.base.add(offset), into.as_mut_ptr(), bytes) };
    }

    /// Populates and fills all pages; false if `stop` became true before.
    fn fill(&self, pages: PageSize, numa: Option<u32>, stop: &dyn Fn() -> bool) -> Result<bool, BufferError> {
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
                // SAFETY: inside the mapping and aligned to a word; no other thread has the address yet.
                unsafe { self.base.cast::<u64>().add(at).write(word(self.seed, at as u64)) };
            }
        }
        Ok(true)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: it is our mapping; workers keep the buffer alive until all commands have completed.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.mapped) };
    }
}

/// Initial content of word number `at`: SplitMix64 (Steele et al. 2014) of seed and position, so that all blocks differ
/// and the content of a block tells its original position.
pub const fn word(seed: u64, at: u64) -> u64 {
    let mut z = seed.wrapping_mul(0xD134_2543_DE82_EF95).wrapping_add(at.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Makes the kernel allocate all pages now. Otherwise a page that cannot be allocated would kill the process at its
/// first use (SIGBUS: huge pages are reserved from the whole pool, not from the node that the buffer is bound to). Not
/// supported before Linux 5.14.
fn populate(base: *mut c_void, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the range is one mapping of ours; the call does not change the content.
    match unsafe { rustix::mm::madvise(base, bytes, Advice::LinuxPopulateWrite) } {
        Err(Errno::INVAL) => Ok(()),
        done => done,
    }
}

/// The error for pages that cannot be allocated.
fn lacking(errno: Errno, mapped: usize, pages: PageSize, numa: Option<u32>) -> BufferError {
    let (wanted, kib) = (mapped / pages.bytes(), pages.bytes() >> 10);
    match (pages, numa, errno) {
        (PageSize::Base, Some(node), _) => BufferError::Node { node, why: errno.into() },
        (PageSize::Huge2M | PageSize::Huge1G, Some(node), Errno::FAULT | Errno::NOMEM) => {
            BufferError::HugeOfNode { wanted, kib, node }
        }
        (PageSize::Huge2M | PageSize::Huge1G, None, Errno::FAULT | Errno::NOMEM) => {
            BufferError::Huge { wanted, kib }
        }
        _ => BufferError::Memory { bytes: mapped, why: errno.into() },
    }
}

/// mbind(2), which none of our crates provides: allocates the range's pages from this node only.
fn bind(base: *mut c_void, bytes: usize, node: u32) -> io::Result<()> {
    // 1024 nodes, the maximum of a kernel's configuration.
    let mut mask = [0u64; 16];
    let word = mask.get_mut(node as usize / 64).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    *word |= 1 << (node % 64);
    let bits = mask.len() * 64 + 1;
    // SAFETY: the range is one mapping of ours; the mask has the stated number of bits (the kernel reads one less).
    let done =
        unsafe { libc::syscall(libc::SYS_mbind, base, bytes, libc::MPOL_BIND, mask.as_ptr(), bits, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_there_and_each_block_differs() {
        let buffer = Buffer::new(3 * 4096 + 512, PageSize::Base, None, 7).unwrap();
        assert_eq!(buffer.base() as usize % 4096, 0);
        let mut blocks = vec![0u8; 3 * 4096];
        buffer.copy(0, &mut blocks);
        assert_eq!(&blocks[..8], &word(7, 0).to_ne_bytes());
        assert_eq!(&blocks[4096..4104], &word(7, 512).to_ne_bytes());
        assert_ne!(blocks[..4096], blocks[4096..8192]);
        // The last lines, and beyond the end.
        buffer.touch(3 * 4096, 512);
        buffer.touch(4096 * 3 + 500, 1 << 30);
    }

    #[test]
    fn who_says_stop_waits_for_a_piece() {
        let looks = std::cell::Cell::new(0);
        let third = || looks.replace(looks.get() + 1) == 2;
        assert!(Buffer::unless(&third, PIECE + 4096, PageSize::Base, None, 7).unwrap().is_some());
        assert_eq!(looks.get(), 2, "asked before each piece");
        assert!(Buffer::unless(&third, 4096, PageSize::Base, None, 7).unwrap().is_none());
    }

    #[test]
    fn pages_that_cannot_be_had_are_an_error_and_no_signal() {
        // There are no pages beyond the end of a file: an access to the mapping would kill the process.
        let file = tempfile::tempfile().unwrap();
        let (read_write, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice, which is never accessed.
        let base = unsafe { rustix::mm::mmap(ptr::null_mut(), 4096, read_write, shared, &file, 0) }.unwrap();
        assert_eq!(populate(base, 4096), Err(Errno::FAULT));
        // SAFETY: our mapping.
        unsafe { rustix::mm::munmap(base, 4096) }.unwrap();
        let reported = |pages, numa| lacking(Errno::FAULT, 4 << 20, pages, numa).to_string();
        assert!(
            reported(PageSize::Huge2M, None)
                .starts_with("the buffer needs 2 huge pages of 2048 KiB, but the kernel has fewer")
        );
        let node = reported(PageSize::Huge2M, Some(1));
        assert!(node.contains("2 huge pages of 2048 KiB on NUMA node 1"), "{node}");
        assert!(node.ends_with("/node1/hugepages/hugepages-2048kB/nr_hugepages"), "{node}");
        assert!(
            reported(PageSize::Base, Some(1)).starts_with("the buffer cannot be on NUMA node 1: Bad address")
        );
    }

    #[test]
    fn what_the_kernel_lacks_is_reported() {
        let error = Buffer::new(1 << 42, PageSize::Huge1G, None, 1).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("4096 huge pages of 1048576 KiB"), "{error}");
        assert!(error.contains("hugepages-1048576kB/nr_hugepages"), "{error}");
        let error = Buffer::new(4096, PageSize::Base, Some(999), 1).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("NUMA node 999") && error.contains("node/online"), "{error}");
    }
}
