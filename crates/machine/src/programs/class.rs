//! Classes of accesses: lines are charged a mean cost when work is done on them, and settled at the end of a turn.
//!
//! Knows costs and lines, not what a program does with them.

use crate::bus::{Access, Bus, ClassMean, Costs, Memory};
use waykeeper_silicon::{Gather, Level};

/// Packets over which a ratio is averaged: long against a burst and a timer tick, short against an interval.
/// Assumption; with 16 times as many the flagship gives the same results.
const REMEMBERED_PACKETS: f64 = 16_384.0;
/// No line is charged more than this many idle memory accesses. Assumption: a full backlog of memory costs less.
const MOST_IDLE: f64 = 4.0;
/// Means beyond an LLC hit below this, ns, count as zero: nothing is divided by them.
const LEAST_NS: f64 = 0.05;

/// How the cost beyond an LLC hit of a class with few sampled lines relates to that of a class with many.
///
/// A packet's completion and its data are written together and read together, so both leak at the same times. A
/// completion is one line of a packet, the data are up to 32: the mean of data lines follows a leak at once, that of
/// completions lags by hundreds of packets, and its noise lengthens queues. The ratio, a long-term mean, corrects for
/// the difference: completions always lie in DCA ways (survey sampling's ratio estimator). what differs: completions
/// always lie in DCA ways (survey sampling's ratio estimator).
#[derive(Clone, Copy, Debug)]
pub(super) struct Ratio {
    /// Means beyond an LLC hit, ns: of the class with few sampled lines, and of the other class at the same times.
    few: f64,
    many: f64,
    /// Weight of one sampled line.
    weight: f64,
}

impl Ratio {
    /// The ratio of two classes; each of their sampled lines represents `scale` packets.
    pub(super) fn new(few: &Class, many: &Class, scale: f64) -> Ratio {
        Ratio { few: few.beyond_llc_ns(), many: many.beyond_llc_ns(), weight: scale / REMEMBERED_PACKETS }
    }

    #[inline(always)]
    fn note(&mut self, few: f64, many: f64) {
        self.few += (few - self.few) * self.weight;
        self.many += (many - self.many) * self.weight;
    }

    #[inline(always)]
    fn value(&self) -> f64 {
        if self.many.abs() < LEAST_NS { self.few / LEAST_NS } else { self.few / self.many }
    }
}

/// A class of accesses: their costs, the mean cost that lines outside the sample are charged, and the sampled lines of
/// this turn.
///
/// Every line is charged the mean when its packet is worked on. The real cost of the sampled lines is settled when the
/// core's turn ends, in one pass over the chip. So the clock is right at the end of each turn, and a packet's own time
/// is its class's mean.
#[derive(Clone, Debug)]
pub(super) struct Class {
    costs: Costs,
    mean: ClassMean,
    pub(super) sampled: Gather,
}

impl Class {
    /// A class with these costs on a Gold 6140: MLC, LLC, memory, ns. Until a sampled line was accessed, lines outside
    /// the sample cost a hit in `first`.
    pub(super) fn new(costs: (f64, f64, f64), bus: &Bus, first: Level) -> Class {
        Class::of(bus.line_costs(costs), first)
    }

    /// The same from costs on this chip.
    pub(super) fn of(costs: Costs, first: Level) -> Class {
        Class { costs, mean: ClassMean::new(costs.idle(first)), sampled: Gather::new() }
    }

    /// Charge of a line of the class, ns.
    #[inline(always)]
    pub(super) fn ns(&self) -> f64 {
        self.mean.ns()
    }

    /// Accesses the gathered lines. Returns by how much their cost exceeds their charge, ns.
    #[inline(always)]
    pub(super) fn settle(&mut self, memory: &mut Memory, core: usize, access: Access) -> f64 {
        if self.sampled.count() == 0 {
            return 0.0;
        }
        let charged_ns = self.mean.ns() * self.sampled.count() as f64;
        let mut ns = 0.0;
        self.touch(memory, core, access, |cost| ns += cost);
        ns - charged_ns
    }

    /// Mean cost of a line beyond an LLC hit, ns; below 0 where the MLC serves most.
    #[inline(always)]
    fn beyond_llc_ns(&self) -> f64 {
        self.mean.ns() - self.costs.idle(Level::Llc)
    }

    /// Charge of a line, ns, if the lines of `near` show how many lines leave the LLC too early now.
    #[inline(always)]
    pub(super) fn ns_by(&self, near: &Class, ratio: &Ratio) -> f64 {
        let ns = self.costs.idle(Level::Llc) + ratio.value() * near.beyond_llc_ns();
        ns.clamp(self.costs.idle(Level::Mlc), MOST_IDLE * self.costs.idle(Level::Memory))
    }

    /// [`Class::settle`] for lines that were charged by `near`; their real cost corrects the ratio.
    #[inline(always)]
    pub(super) fn settle_by(
        &mut self,
        memory: &mut Memory,
        core: usize,
        access: Access,
        (near, ratio): (&Class, &mut Ratio),
    ) -> f64 {
        if self.sampled.count() == 0 {
            return 0.0;
        }
        let (charged_ns, llc_ns) = (self.ns_by(near, ratio), self.costs.idle(Level::Llc));
        let mut ns = 0.0;
        self.touch(memory, core, access, |cost| {
            ratio.note(cost - llc_ns, near.beyond_llc_ns());
            ns += cost - charged_ns;
        });
        ns
    }

    /// Accesses the gathered lines. Calls `each` with the cost of each line, ns.
    #[inline(never)]
    fn touch(&mut self, memory: &mut Memory, core: usize, access: Access, mut each: impl FnMut(f64)) {
        let Class { costs, mean, sampled } = self;
        memory.touch_all(core, sampled.lines(), access, costs, |cost| {
            mean.note(cost);
            each(cost);
        });
        sampled.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waykeeper_silicon::{Chip, ChipSpec, Sampling};

    fn class(mean_ns: f64) -> Class {
        let spec = ChipSpec::built_in("gold-6140").expect("a built-in chip");
        let bus = Bus::new(&spec, Chip::new(&spec, Sampling::DEFAULT, 1));
        let mut class = Class::new((2.0, 12.0, 70.0), &bus, Level::Llc);
        class.mean = ClassMean::new(mean_ns);
        class
    }

    #[test]
    fn a_class_with_few_lines_follows_one_with_many_by_hand() {
        // Completions cost 29 ns beyond an LLC hit while data lines cost 2: 14.5 times as much.
        let mut ratio = Ratio::new(&class(41.0), &class(14.0), 32.0);
        assert_eq!(class(0.0).ns_by(&class(14.0), &ratio), 41.0);
        // Data lines leak half as often: so do completions, at once.
        assert_eq!(class(0.0).ns_by(&class(13.0), &ratio), 12.0 + 14.5);
        // Data lines come from the MLC: a completion costs no less than an MLC hit.
        assert_eq!(class(0.0).ns_by(&class(2.0), &ratio), 2.0);
        // From now on completions cost 10 ns beyond a hit at 2: the ratio approaches 5, by 1 / 512 of the way per line.
        ratio.note(10.0, 2.0);
        assert!((ratio.value() - (29.0 - 19.0 / 512.0) / 2.0).abs() < 1e-12);
        (0..20_000).for_each(|_| ratio.note(10.0, 2.0));
        assert!((ratio.value() - 5.0).abs() < 1e-9);
    }

    #[test]
    fn data_lines_that_never_leak_make_no_infinite_ratio() {
        let ratio = Ratio::new(&class(12.0), &class(12.0), 32.0);
        assert_eq!(class(0.0).ns_by(&class(12.0), &ratio), 12.0);
        let ratio = Ratio::new(&class(70.0), &class(12.0), 32.0);
        assert_eq!(class(0.0).ns_by(&class(70.0), &ratio), 4.0 * 70.0, "the most that a line is charged");
    }
}
