//! ChampSim's binary trace: 64 bytes per instruction (ChampSim, inc/trace_instruction.h, `input_instr`).
//!
//! ```text
//! ip u64 | is_branch u8 | branch_taken u8 | destination registers u8[2] | source registers u8[4]
//! destination memory u64[2] | source memory u64[4]                        0 = unused slot
//! ```
//!
//! The format has no magic and no sizes. Checked are: flags are 0 or 1, addresses are canonical, the file is a whole
//! number of records. An address means the one line that contains it; an instruction reads its sources before it writes
//! its destinations; a line that is both is one store, as lackey's modify is. CloudSuite's wider records (four
//! destinations) are not read.

use super::{LINE_BYTES, RecordBuilder, TouchKind, TraceRecord};
use crate::error::InputError;
use crate::source::Source;

const RECORD_BYTES: usize = 64;
const IP: usize = 0;
const IS_BRANCH: usize = 8;
const BRANCH_TAKEN: usize = 9;
const DESTINATIONS: std::ops::Range<usize> = 16..32;
const SOURCES: std::ops::Range<usize> = 32..64;

const WANTED: &str = "what ChampSim's tracer writes; if this is another kind of file, name its format";

pub(super) struct ChampSimReader {
    input: Source,
    builder: RecordBuilder,
    ended: bool,
}

impl ChampSimReader {
    pub(super) fn new(input: Source) -> ChampSimReader {
        ChampSimReader { input, builder: RecordBuilder::default(), ended: false }
    }

    /// True if the first bytes can be a ChampSim record.
    pub(super) fn is_it(first: &[u8]) -> bool {
        first.get(..RECORD_BYTES).is_some_and(|record| fault(record).is_none())
    }

    /// The next record; none after the last.
    pub(super) fn next(&mut self) -> Result<Option<TraceRecord>, InputError> {
        loop {
            if let Some(record) = self.builder.pop() {
                return Ok(Some(record));
            }
            if self.ended {
                return Ok(None);
            }
            if self.input.peek(1)?.is_empty() {
                self.ended = true;
                self.builder.finish();
                continue;
            }
            let at = self.input.offset();
            let record = self.input.need(RECORD_BYTES, "64-byte ChampSim record")?;
            if let Some((offset, field, found)) = fault(record) {
                return Err(self.input.value(at + offset as u64, field, format!("{found:#x}"), WANTED));
            }
            take(record, &mut self.builder);
            self.input.consume(RECORD_BYTES);
        }
    }

    /// Instructions after the last record, once the records have run out.
    pub(super) fn tail_instructions(&self) -> u64 {
        self.builder.tail_instructions()
    }
}

/// The first field with an impossible value: its offset, name and value.
fn fault(record: &[u8]) -> Option<(usize, &'static str, u64)> {
    let flags = [(IS_BRANCH, "is_branch"), (BRANCH_TAKEN, "branch_taken")];
    let flag =
        flags.into_iter().find(|(at, _)| record[*at] > 1).map(|(at, name)| (at, name, u64::from(record[at])));
    let ip = (IP, "instruction address", number(&record[IP..]));
    let memory =
        (DESTINATIONS.start..SOURCES.end).step_by(8).map(|at| (at, "memory address", number(&record[at..])));
    flag.or_else(|| std::iter::once(ip).chain(memory).find(|(_, _, address)| !is_canonical(*address)))
}

/// True for a possible 57-bit virtual address: the bits above are copies of bit 56.
fn is_canonical(address: u64) -> bool {
    matches!(address >> 56, 0 | 0xff)
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]])
}

fn take(record: &[u8], into: &mut RecordBuilder) {
    into.instruction();
    let lines = |range: std::ops::Range<usize>| {
        record[range]
            .chunks_exact(8)
            .map(number)
            .filter(|address| *address != 0)
            .map(|address| address / LINE_BYTES)
    };
    for line in lines(SOURCES).filter(|line| !lines(DESTINATIONS).any(|written| written == *line)) {
        into.touch(line, TouchKind::Load);
    }
    for line in lines(DESTINATIONS) {
        into.touch(line, TouchKind::Store);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(destinations: [u64; 2], sources: [u64; 4]) -> Vec<u8> {
        let mut record = 0x0040_1000u64.to_le_bytes().to_vec();
        record.extend([1, 0, 3, 0, 4, 5, 0, 0]);
        for address in destinations.into_iter().chain(sources) {
            record.extend(address.to_le_bytes());
        }
        record
    }

    #[test]
    fn loads_come_before_stores_and_a_modify_is_one_store() {
        let mut builder = RecordBuilder::default();
        take(&instruction([0, 0], [0; 4]), &mut builder);
        take(&instruction([0x1000, 0x2000], [0x3000, 0x1010, 0, 0x4000]), &mut builder);
        builder.finish();
        let record = |line, instructions, kind| TraceRecord { line, instructions, touches: 1, kind };
        assert_eq!(
            std::iter::from_fn(|| builder.pop()).collect::<Vec<_>>(),
            [
                record(0xc0, 2, TouchKind::Load),
                record(0x100, 0, TouchKind::Load),
                record(0x40, 0, TouchKind::Store),
                record(0x80, 0, TouchKind::Store),
            ]
        );
    }

    #[test]
    fn a_record_that_cannot_be_is_named() {
        let good = instruction([0xffff_8000_0000_0000, 0], [0x7fff_ffff_ffff, 0, 0, 0]);
        assert_eq!(fault(&good), None);
        let mut bad = good.clone();
        bad[IS_BRANCH] = 7;
        assert_eq!(fault(&bad), Some((8, "is_branch", 7)));
        let mut bad = good;
        bad[47] = 0x12;
        assert_eq!(fault(&bad), Some((40, "memory address", 0x1200_0000_0000_0000)));
    }
}
