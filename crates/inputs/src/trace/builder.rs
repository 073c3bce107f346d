//! Makes records of single accesses: counts instructions, splits accesses that cross a line, merges repeats.
//!
//! The readers of all foreign formats use it, so that they merge alike. Must not know any format.

use super::{LINE_BYTES, TouchKind, TraceRecord};
use std::collections::VecDeque;

/// Most touches in one record, so that a program that spins on one line still produces records and reaches the limit of
/// a live recording.
const MAX_TOUCHES: u32 = 65_535;

#[derive(Default)]
pub(crate) struct RecordBuilder {
    instructions: u64,
    /// [`RecordBuilder::instructions`] at the first touch of the newest record.
    counted: u64,
    pending: Option<TraceRecord>,
    ready: VecDeque<TraceRecord>,
}

impl RecordBuilder {
    /// An instruction begins; the accesses that follow belong to it.
    pub(crate) fn instruction(&mut self) {
        self.instructions += 1;
    }

    /// Bytes are touched; the caller has checked that they lie within the address space.
    pub(crate) fn access(&mut self, address: u64, bytes: u64, kind: TouchKind) {
        let last = address + (bytes.max(1) - 1);
        for line in address / LINE_BYTES..=last / LINE_BYTES {
            self.touch(line, kind);
        }
    }

    /// A line is touched.
    pub(crate) fn touch(&mut self, line: u64, kind: TouchKind) {
        if let Some(pending) = &mut self.pending
            && (pending.line, pending.kind) == (line, kind)
            && pending.touches < MAX_TOUCHES
        {
            pending.touches += 1;
            return;
        }
        let record = TraceRecord { line, instructions: self.instructions - self.counted, touches: 1, kind };
        self.counted = self.instructions;
        self.ready.extend(self.pending.replace(record));
    }

    /// The oldest finished record.
    pub(crate) fn pop(&mut self) -> Option<TraceRecord> {
        self.ready.pop_front()
    }

    /// Ends the trace: finishes the pending record.
    pub(crate) fn finish(&mut self) {
        self.ready.extend(self.pending.take());
    }

    /// Instructions so far.
    pub(crate) fn instructions(&self) -> u64 {
        self.instructions
    }

    /// Instructions after the newest record's first touch.
    pub(crate) fn tail_instructions(&self) -> u64 {
        self.instructions - self.counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Instruction 1 loads line 1 (twice, with instruction 2), 3 stores 8 bytes at 124 (lines 1 and 2),
    /// 4 and 5 touch nothing, 6 loads line 2.
    #[test]
    fn merges_splits_and_counts() {
        let mut builder = RecordBuilder::default();
        builder.instruction();
        builder.access(64, 8, TouchKind::Load);
        builder.instruction();
        builder.access(127, 1, TouchKind::Load);
        builder.instruction();
        builder.access(124, 8, TouchKind::Store);
        for _ in 0..3 {
            builder.instruction();
        }
        builder.access(128, 4, TouchKind::Load);
        builder.instruction();
        builder.finish();
        let record = |line, instructions, touches, kind| TraceRecord { line, instructions, touches, kind };
        assert_eq!(
            std::iter::from_fn(|| builder.pop()).collect::<Vec<_>>(),
            [
                record(1, 1, 2, TouchKind::Load),
                record(1, 2, 1, TouchKind::Store),
                record(2, 0, 1, TouchKind::Store),
                record(2, 3, 1, TouchKind::Load),
            ]
        );
        assert_eq!((builder.instructions(), builder.tail_instructions()), (7, 1));
    }
}
