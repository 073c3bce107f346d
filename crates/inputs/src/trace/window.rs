//! The part of a trace to keep: skips a start, stops after a number of instructions or records.

use super::TraceRecord;

/// A part of a trace. The default is all of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Window {
    /// Instructions dropped from the start. They still warm the L1 filter, if there is one.
    pub skip_instructions: u64,
    /// Instructions kept after those; all if none.
    pub max_instructions: Option<u64>,
    /// Records kept at most; all if none.
    pub max_records: Option<u64>,
}

/// Applies a window to the records of a trace.
pub(super) struct WindowFilter {
    window: Window,
    /// Number of the instruction that the newest record belongs to, from 1.
    position: u64,
    /// Position of the newest record that was kept.
    kept: u64,
    records: u64,
    full: bool,
}

impl WindowFilter {
    pub(super) fn new(window: Window) -> WindowFilter {
        let full = window.max_instructions == Some(0) || window.max_records == Some(0);
        WindowFilter { window, position: 0, kept: window.skip_instructions, records: 0, full }
    }

    /// The record, its instructions counted from the window's start; none if it lies outside.
    pub(super) fn push(&mut self, record: TraceRecord) -> Option<TraceRecord> {
        self.position = self.position.saturating_add(record.instructions);
        let skip = self.window.skip_instructions;
        // Touches before the first instruction (position 0) are skipped only if the window skips instructions.
        if self.full || (skip > 0 && self.position <= skip) {
            return None;
        }
        if self.window.max_instructions.is_some_and(|most| self.position - skip > most) {
            self.full = true;
            return None;
        }
        let instructions = self.position - self.kept;
        self.kept = self.position;
        self.records += 1;
        self.full = self.window.max_records == Some(self.records);
        Some(TraceRecord { instructions, ..record })
    }

    /// True if no further record will be kept.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    /// True if an instruction count is after the end of the window, with or without records.
    pub(super) fn is_past(&self, instructions: u64) -> bool {
        let end = self.window.max_instructions.map(|most| self.window.skip_instructions.saturating_add(most));
        self.full || end.is_some_and(|end| instructions > end)
    }

    /// Instructions in the window after the last kept record; `instructions` is the count of the trace so far. A window
    /// limited by records ends with the last of them.
    pub(super) fn tail_instructions(&self, instructions: u64) -> u64 {
        if self.window.max_records == Some(self.records) {
            return 0;
        }
        let end = self
            .window
            .max_instructions
            .map_or(u64::MAX, |most| self.window.skip_instructions.saturating_add(most));
        instructions.min(end).saturating_sub(self.kept)
    }
}

#[cfg(test)]
mod tests {
    use super::super::TouchKind;
    use super::*;

    fn run(window: Window) -> (Vec<(u64, u64)>, u64) {
        let mut window_filter = WindowFilter::new(window);
        // Touches at instructions 3, 3, 8, 12; 20 in all.
        let records = [(1, 3), (2, 0), (3, 5), (4, 4)];
        let records = records.map(|(line, instructions)| TraceRecord {
            line,
            instructions,
            touches: 1,
            kind: TouchKind::Load,
        });
        let kept = records
            .into_iter()
            .filter_map(|record| window_filter.push(record))
            .map(|r| (r.line, r.instructions))
            .collect();
        (kept, window_filter.tail_instructions(20))
    }

    #[test]
    fn instructions_are_counted_from_the_windows_start() {
        let all = Window::default();
        assert_eq!(run(all), (vec![(1, 3), (2, 0), (3, 5), (4, 4)], 8));
        // From instruction 4: touch at 8 is the 5th.
        assert_eq!(run(Window { skip_instructions: 3, ..all }), (vec![(3, 5), (4, 4)], 8));
        // Instructions 3..=9 (2 skipped, 7 kept): touches at 3, 3, 8; one instruction behind.
        let seven = Window { skip_instructions: 2, max_instructions: Some(7), ..all };
        assert_eq!(run(seven), (vec![(1, 1), (2, 0), (3, 5)], 1));
        assert_eq!(run(Window { max_records: Some(2), ..all }), (vec![(1, 3), (2, 0)], 0));
        assert_eq!(run(Window { max_instructions: Some(0), ..all }), (vec![], 0));
        assert_eq!(run(Window { skip_instructions: 50, ..all }), (vec![], 0));
    }
}
