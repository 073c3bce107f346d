//! Classes of accesses: lines that are charged a mean when work is done on them, and settled at the end of a turn.
//!
//! Knows costs and lines, not what a program does with them.

use crate::bus::{Access, Bus, ClassMean, Costs, Memory};
use waykeeper_silicon::{Gather, Level};

/// A class of accesses: what they cost, the mean that lines outside the sample cost, and the sampled ones of this
/// turn.
///
/// Every line is charged the mean when its packet is worked on; what the sampled ones really cost is settled when the
/// core's turn ends, in one pass over the chip. So the clock is right turn by turn, and a packet's own time is that
/// of its class.
#[derive(Clone, Debug)]
pub(super) struct Class {
    costs: Costs,
    mean: ClassMean,
    pub(super) sampled: Gather,
}

impl Class {
    /// A class of these costs on a Gold 6140: MLC, LLC, memory, ns. Lines outside the sample are taken to come from
    /// `first` until a sampled one was seen.
    pub(super) fn new(costs: (f64, f64, f64), bus: &Bus, first: Level) -> Class {
        Class::of(bus.line_costs(costs), first)
    }

    /// The same from costs of this chip.
    pub(super) fn of(costs: Costs, first: Level) -> Class {
        Class { costs, mean: ClassMean::new(costs.idle(first)), sampled: Gather::new() }
    }

    /// What a line of the class is charged, ns.
    #[inline(always)]
    pub(super) fn ns(&self) -> f64 {
        self.mean.ns()
    }

    /// Touches what was gathered. Returns how much more it cost than the mean it was charged, ns.
    #[inline(always)]
    pub(super) fn settle(&mut self, memory: &mut Memory, core: usize, access: Access) -> f64 {
        if self.sampled.count() == 0 { 0.0 } else { self.touch(memory, core, access) }
    }

    #[inline(never)]
    fn touch(&mut self, memory: &mut Memory, core: usize, access: Access) -> f64 {
        let Class { costs, mean, sampled } = self;
        let charged = mean.ns() * sampled.count() as f64;
        let mut ns = 0.0;
        memory.touch_all(core, sampled.lines(), access, costs, |cost| {
            mean.note(cost);
            ns += cost;
        });
        sampled.clear();
        ns - charged
    }
}
