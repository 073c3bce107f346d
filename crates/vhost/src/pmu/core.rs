//! The counters of a core: event selects, counters, fixed counters and their global control.
//!
//! Addresses come from the generation's table. A counter runs if its select, its user or kernel bit and its bit of the
//! global control are set (Intel SDM vol. 3, 20.2). It must not know what the events mean.

use super::{Counter, most};
use waykeeper_generations::CoreCounterTable;

/// Bits of an event select: user, kernel, enable (SDM vol. 3, 20.2.1; the same on AMD).
const USER: u64 = 1 << 16;
const KERNEL: u64 = 1 << 17;
const ENABLE: u64 = 1 << 22;

/// A register of a core's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CoreRegister {
    /// Event select of a counter.
    Select(u8),
    /// A counter.
    Count(u8),
    /// A fixed counter.
    Fixed(u8),
    /// Control of the fixed counters.
    FixedControl,
    /// Global control.
    GlobalControl,
}

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedCoreEvent {
    /// An event select.
    Select(u64),
    /// A fixed counter, by number.
    Fixed(u8),
}

/// The counters of one core.
#[derive(Clone, Debug)]
pub struct CorePmu {
    most: u64,
    fixed_most: u64,
    selects: Vec<u64>,
    counters: Vec<Counter>,
    fixed: Vec<Counter>,
    fixed_control: u64,
    global_control: u64,
}

impl CorePmu {
    /// After power-on, with every counter enabled in the global control, as a kernel's perf leaves it.
    pub fn new(core: &CoreCounterTable) -> CorePmu {
        let counters = usize::from(core.counters_alone);
        let (fixed, width) = core.fixed.map_or((0, 0), |fixed| (usize::from(fixed.counters), fixed.width));
        CorePmu {
            most: most(core.width),
            fixed_most: most(width),
            selects: vec![0; counters],
            counters: vec![Counter::default(); counters],
            fixed: vec![Counter::default(); fixed],
            fixed_control: 0,
            global_control: most(counters as u8) | most(fixed as u8) << 32,
        }
    }

    /// The value of a register; `count` returns the present count of an event.
    pub fn read(&self, register: CoreRegister, count: impl Fn(CountedCoreEvent) -> u64) -> Option<u64> {
        match register {
            CoreRegister::Select(index) => self.selects.get(usize::from(index)).copied(),
            CoreRegister::Count(index) => {
                let counter = self.counters.get(usize::from(index))?;
                let event = CountedCoreEvent::Select(self.selects[usize::from(index)]);
                Some(counter.value(|| count(event), self.most))
            }
            CoreRegister::Fixed(index) => {
                let counter = self.fixed.get(usize::from(index))?;
                Some(counter.value(|| count(CountedCoreEvent::Fixed(index)), self.fixed_most))
            }
            CoreRegister::FixedControl => Some(self.fixed_control),
            CoreRegister::GlobalControl => Some(self.global_control),
        }
    }

    /// Writes a register.
    pub fn write(
        &mut self,
        register: CoreRegister,
        value: u64,
        count: impl Fn(CountedCoreEvent) -> u64,
    ) -> Option<()> {
        self.each(|counter, event, _| counter.stop(|| count(event)));
        let known = self.set(register, value);
        self.each(|counter, event, runs| counter.start(runs.then(|| count(event))));
        known
    }

    fn set(&mut self, register: CoreRegister, value: u64) -> Option<()> {
        match register {
            CoreRegister::Select(index) => *self.selects.get_mut(usize::from(index))? = value,
            CoreRegister::Count(index) => {
                self.counters.get_mut(usize::from(index))?.held = value & self.most;
            }
            CoreRegister::Fixed(index) => {
                self.fixed.get_mut(usize::from(index))?.held = value & self.fixed_most;
            }
            CoreRegister::FixedControl => self.fixed_control = value,
            CoreRegister::GlobalControl => self.global_control = value,
        }
        Some(())
    }

    fn each(&mut self, mut act: impl FnMut(&mut Counter, CountedCoreEvent, bool)) {
        for (index, counter) in self.counters.iter_mut().enumerate() {
            let select = self.selects[index];
            let enabled = select & ENABLE != 0 && select & (USER | KERNEL) != 0;
            let runs = enabled && self.global_control >> index & 1 == 1;
            act(counter, CountedCoreEvent::Select(select), runs);
        }
        for (index, counter) in self.fixed.iter_mut().enumerate() {
            // Four bits per counter: kernel, user, any thread, interrupt (SDM vol. 3, 20.2.2).
            let enabled = self.fixed_control >> (4 * index) & 0b11 != 0;
            let runs = enabled && self.global_control >> (32 + index) & 1 == 1;
            act(counter, CountedCoreEvent::Fixed(index as u8), runs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waykeeper_generations::Generation;

    #[test]
    fn a_counter_runs_if_every_enable_bit_is_set() {
        use CoreRegister::{Count, Fixed, FixedControl, GlobalControl, Select};
        let mut pmu = CorePmu::new(&Generation::by_id("skx").unwrap().core);
        // Programmable events count the time times their number, fixed ones 1000 × (index + 1) × the time.
        let at = |now: u64| {
            move |event| match event {
                CountedCoreEvent::Select(select) => (select & 0xff) * now,
                CountedCoreEvent::Fixed(index) => 1000 * (u64::from(index) + 1) * now,
            }
        };
        assert_eq!(pmu.read(GlobalControl, at(0)), Some(0x7_0000_00ff));
        pmu.write(Select(0), 0x43_4f2e, at(1)).unwrap();
        pmu.write(Select(1), 0x03_412e, at(1)).unwrap(); // not enabled
        pmu.write(Select(2), 0x40_412e, at(1)).unwrap(); // neither user nor kernel
        pmu.write(FixedControl, 0x033, at(1)).unwrap();
        assert_eq!(pmu.read(Count(0), at(3)), Some(0x2e * 2));
        assert_eq!((pmu.read(Count(1), at(3)), pmu.read(Count(2), at(3))), (Some(0), Some(0)));
        assert_eq!((pmu.read(Fixed(0), at(3)), pmu.read(Fixed(1), at(3))), (Some(2000), Some(4000)));
        assert_eq!(pmu.read(Fixed(2), at(3)), Some(0));
        pmu.write(GlobalControl, 0x1_0000_0000, at(3)).unwrap();
        assert_eq!(pmu.read(Count(0), at(9)), Some(0x2e * 2), "its global bit is off");
        assert_eq!(pmu.read(Fixed(0), at(9)), Some(8000));
        pmu.write(GlobalControl, 0x7_0000_00ff, at(9)).unwrap();
        pmu.write(Count(0), 0xffff_ffff_fff0, at(9)).unwrap();
        assert_eq!(pmu.read(Count(0), at(10)), Some(0x1e), "48 bits");
        assert_eq!((pmu.read(Count(8), at(9)), pmu.write(Fixed(3), 0, at(9))), (None, None));
    }
}
