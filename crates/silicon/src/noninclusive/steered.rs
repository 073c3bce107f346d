//! Device writes that IDIO steers: into the LLC, into an MLC, or to memory (algorithms.md 4.3).
//!
//! One function per movement of a line; each is a combination of the LLC's own rules. Knows lines; `steering.rs`
//! decides the target.

use super::{FRESH, NonInclusive};
use crate::Fill;
use crate::line::{Line, LineTag};
use crate::mlc;
use crate::shared::{DcaMode, Shared};
use crate::steering::{PayloadTarget, Tag};
use crate::ways::PAYLOAD;

impl<T: LineTag, const L: usize> NonInclusive<T, L> {
    /// A device writes a line whose target is `target`. Returns whether it was cached before.
    ///
    /// Steering does not apply to a port whose DCA is off: its lines are written to memory.
    pub(crate) fn steered_write(
        &mut self,
        sh: &mut Shared<T>,
        device: usize,
        line: Line,
        tag: Tag,
        target: PayloadTarget,
    ) -> bool {
        let dca = sh.dca[device] == DcaMode::On && self.dca_ways.is_some();
        let target = if dca { target } else { PayloadTarget::Dram };
        sh.steering.sent(tag, target);
        let at = self.index(line);
        if target == PayloadTarget::Dram {
            // As with DCA off: no allocation, copies are invalidated.
            return self.dma_write_uncached(sh, device, line, at);
        }
        let fresh = if tag.header { FRESH } else { FRESH | PAYLOAD };
        let cached = self.dma_write_cached(sh, device, line, at, fresh);
        if target == PayloadTarget::Mlc {
            self.push(sh, tag.core, line, at);
        }
        cached
    }

    /// A prefetch hint (IDIO s3.3): the MLC fetches that one line from the LLC. It moves as if the core had read it: it
    /// leaves the LLC, or with inclusive ways may leave a copy there. The IDIO tag moves with it (s3.4).
    fn push(&mut self, sh: &mut Shared<T>, core: usize, line: Line, at: usize) {
        let index = sh.mlc_index(core, T::set(line));
        let Some(way) = self.sets[at].ways.find(T::of(line)) else { return };
        // Only with `dma_write_invalidates_mlc = false` can the MLC still have it.
        if sh.mlc_at(index).find(T::of(line)).is_some() {
            return;
        }
        let payload = self.sets[at].ways.state(way) & PAYLOAD != 0;
        let marks = if payload { mlc::PAYLOAD | mlc::PUSHED } else { 0 };
        let leaving = self.leaving(sh, index, line);
        let arrival = self.read_from_llc(sh, at, way, line, Fill::Ordinary);
        self.fill(sh, core, index, line, at, leaving, arrival.also(marks));
    }

    /// A device reads a line of a packet that was for `core`. Returns whether the caches served it.
    pub(crate) fn steered_read(
        &mut self,
        sh: &mut Shared<T>,
        device: usize,
        line: Line,
        core: usize,
    ) -> bool {
        let ways = &self.sets[self.index(line)].ways;
        if ways.find(T::of(line)).is_some_and(|way| ways.state(way) & PAYLOAD != 0) {
            sh.steering.payload_read_by_device(core);
        }
        self.dma_read(sh, device, line)
    }

    /// Invalidates the line of a consumed buffer in LLC and MLCs without a write-back (self-invalidating buffers,
    /// algorithms.md 4.6).
    pub(crate) fn discard(&mut self, sh: &mut Shared<T>, line: Line) {
        let at = self.index(line);
        self.drop_mlc_copies(sh, at, line);
        if let Some(way) = self.sets[at].ways.find(T::of(line)) {
            self.remove(sh, at, way);
        }
    }
}
