//! Tables that packets are looked up in: hash buckets and entries, by a number such as that of a flow.
//!
//! A hash decides where an entry lies, so that all lines of the table are alike: numbers are mapped to the lines such
//! that those of the sample come first, and one comparison shows whether a line is in it. Knows
//! numbers and lines, not the content of a table.

use super::class::Class;
use super::program::Site;
use crate::bus::{Access, Bus, Memory};
use std::sync::Arc;
use waykeeper_silicon::{Level, Line, OutOfMemory, Region};

/// A table line read, ns on a Gold 6140, by level: MLC, LLC, memory. Look-ups of a burst overlap
/// (microarchitecture.md 8, l3fwd).
pub(super) const LOOKUP_NS: (f64, f64, f64) = (4.0, 9.0, 24.0);

/// A table of a power of two lines, in huge pages.
#[derive(Clone, Debug)]
pub(super) struct Table {
    region: Arc<Region>,
    /// Odd, and about the golden section of the number of lines: neighbouring numbers are spread far apart and evenly,
    /// and no two of the first `lines` numbers have the same line.
    step: u32,
    mask: u32,
}

impl Table {
    /// A table of at least `lines` lines for this thread alone.
    pub(super) fn own(site: &mut Site<'_>, lines: u32) -> Result<Table, OutOfMemory> {
        let lines = lines.next_power_of_two();
        Ok(Table::over(Arc::new(site.memory.huge(u64::from(lines) * 64)?)))
    }

    /// The one table of at least `lines` lines that all threads of the workload use.
    pub(super) fn shared(site: &mut Site<'_>, lines: u32) -> Result<Table, OutOfMemory> {
        if site.shared.is_none() {
            let lines = lines.next_power_of_two();
            *site.shared = Some(Arc::new(site.memory.huge(u64::from(lines) * 64)?));
        }
        Ok(Table::over(site.shared.clone().expect("just made")))
    }

    fn over(region: Arc<Region>) -> Table {
        let lines = region.total_lines();
        let step = ((u64::from(lines) * 0x9e37_79b9) >> 32) as u32 | 1;
        Table { region, step, mask: lines - 1 }
    }

    /// The line of a number, if it is in the sample.
    #[inline(always)]
    fn line(&self, number: u32) -> Option<Line> {
        self.region.lines().get((number.wrapping_mul(self.step) & self.mask) as usize).copied()
    }
}

/// A table and the class of its accesses, of one kind.
#[derive(Clone, Debug)]
pub(super) struct Lookups {
    table: Table,
    class: Class,
    access: Access,
}

impl Lookups {
    /// Look-ups in `table`. Until a sampled line was accessed, MLC hits are assumed.
    pub(super) fn new(table: Table, access: Access, bus: &Bus) -> Lookups {
        Lookups { table, class: Class::new(LOOKUP_NS, bus, Level::Mlc), access }
    }

    /// Accesses `count` lines from number `first` on; returns their charge, ns.
    #[inline(always)]
    pub(super) fn touch(&mut self, first: u32, count: u32) -> f64 {
        for number in first..first.wrapping_add(count) {
            if let Some(line) = self.table.line(number) {
                self.class.sampled.push(line);
            }
        }
        f64::from(count) * self.class.ns()
    }

    /// Settles the lines of this turn; returns by how much their cost exceeds their charge, ns.
    #[inline(always)]
    pub(super) fn settle(&mut self, memory: &mut Memory, core: usize) -> f64 {
        self.class.settle(memory, core, self.access)
    }
}
