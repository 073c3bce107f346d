//! A box of uncore counters (CHA, IIO, memory channel): box control, filters, event selects, counters.
//!
//! The register map and the values of the box control come from the generation's table, so one state machine serves
//! generations before Sapphire Rapids and after it (hardware.md 3.3). It must not know the events.

use super::Counter;
use waykeeper_generations::{BoxControl, Pmu};

/// A register of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BoxRegister {
    /// Control of the whole box.
    Control,
    /// A filter: 0 or 1.
    Filter(u8),
    /// The event select of a counter.
    Select(u8),
    /// A counter.
    Count(u8),
}

/// What one counter counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventSelect {
    /// Number of the counter in its box.
    pub index: u8,
    /// Its event select.
    pub select: u64,
    /// The filters of the box.
    pub filters: [u64; 2],
}

/// The control bits of a kind of box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoxRules {
    freeze: u64,
    reset_controls: u64,
    reset_counters: u64,
    enable: u64,
    most: u64,
}

impl BoxRules {
    /// The control bits of a generation. Its table gives whole words; a bit is the difference of two words.
    pub fn of(pmu: &Pmu) -> BoxRules {
        let registers = pmu.registers.as_ref();
        let control = registers.and_then(|registers| registers.box_control);
        let of = |bits: fn(BoxControl) -> u64| control.map_or(0, bits);
        BoxRules {
            freeze: of(|words| words.freeze & !words.run),
            reset_controls: of(|words| words.reset_controls & !words.freeze & !words.run),
            reset_counters: of(|words| words.reset_counters & !words.freeze & !words.run),
            enable: registers.and_then(|registers| registers.enable_bit).map_or(0, |bit| 1 << bit),
            most: pmu.most(),
        }
    }
}

/// One box.
#[derive(Clone, Debug)]
pub struct CounterBox {
    rules: BoxRules,
    control: u64,
    filters: [u64; 2],
    selects: Vec<u64>,
    counters: Vec<Counter>,
}

impl CounterBox {
    /// A box after power-on: nothing counts.
    pub fn new(pmu: &Pmu) -> CounterBox {
        let counters = usize::from(pmu.counters);
        CounterBox {
            rules: BoxRules::of(pmu),
            control: 0,
            filters: [0; 2],
            selects: vec![0; counters],
            counters: vec![Counter::default(); counters],
        }
    }

    /// The value of a register; `count` returns the present count of an event. `None` for a register that the box does
    /// not have.
    pub fn read(&self, register: BoxRegister, count: impl Fn(EventSelect) -> u64) -> Option<u64> {
        match register {
            BoxRegister::Control => Some(self.control),
            BoxRegister::Filter(index) => self.filters.get(usize::from(index)).copied(),
            BoxRegister::Select(index) => self.selects.get(usize::from(index)).copied(),
            BoxRegister::Count(index) => {
                let counter = self.counters.get(usize::from(index))?;
                Some(counter.value(|| count(self.event(index)), self.rules.most))
            }
        }
    }

    /// Writes a register. `None` for a register that the box does not have.
    pub fn write(
        &mut self,
        register: BoxRegister,
        value: u64,
        count: impl Fn(EventSelect) -> u64,
    ) -> Option<()> {
        if let BoxRegister::Count(index) = register {
            let event = (usize::from(index) < self.counters.len()).then(|| self.event(index))?;
            self.counters[usize::from(index)].write(value & self.rules.most, || count(event));
            return Some(());
        }
        // All counters stop while a control changes, and continue with the new controls.
        for index in 0..self.counters.len() {
            let event = self.event(index as u8);
            self.counters[index].stop(|| count(event));
        }
        let known = self.set(register, value);
        for index in 0..self.counters.len() {
            let event = self.event(index as u8);
            let runs = self.runs(event.select);
            self.counters[index].start(runs.then(|| count(event)));
        }
        known
    }

    fn set(&mut self, register: BoxRegister, value: u64) -> Option<()> {
        match register {
            BoxRegister::Control => {
                let rules = self.rules;
                if value & rules.reset_controls != 0 {
                    self.selects.fill(0);
                }
                if value & rules.reset_counters != 0 {
                    self.counters.fill(Counter::default());
                }
                // The reset bits clear themselves.
                self.control = value & !(rules.reset_controls | rules.reset_counters);
            }
            BoxRegister::Filter(index) => *self.filters.get_mut(usize::from(index))? = value,
            BoxRegister::Select(index) => *self.selects.get_mut(usize::from(index))? = value,
            BoxRegister::Count(_) => return None,
        }
        Some(())
    }

    fn event(&self, index: u8) -> EventSelect {
        EventSelect { index, select: self.selects[usize::from(index)], filters: self.filters }
    }

    fn runs(&self, select: u64) -> bool {
        select != 0
            && select & self.rules.enable == self.rules.enable
            && self.control & self.rules.freeze == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waykeeper_generations::Generation;

    fn skylake() -> CounterBox {
        CounterBox::new(&Generation::by_id("skx").unwrap().cache.as_ref().unwrap().pmu)
    }

    /// The count of an event is `now` times its event number.
    fn at(now: u64) -> impl Fn(EventSelect) -> u64 {
        move |event| (event.select & 0xff) * now
    }

    #[test]
    fn the_sequence_of_pqos_sets_a_box_up_and_counts() {
        use BoxRegister::{Control, Count, Select};
        let mut cha = skylake();
        for (register, value) in [
            (Control, 0x10100),
            (Control, 0x10101),
            (Control, 0x10102),
            (Select(0), 0x40_1435),
            (Select(2), 0x00_1436), // not enabled
            (Control, 0x10000),
        ] {
            cha.write(register, value, at(10)).unwrap();
        }
        assert_eq!(cha.read(Control, at(10)), Some(0x10000));
        assert_eq!(cha.read(Count(0), at(12)), Some(0x35 * 2));
        assert_eq!(cha.read(Count(2), at(12)), Some(0));
        cha.write(Control, 0x10100, at(13)).unwrap();
        assert_eq!(cha.read(Count(0), at(50)), Some(0x35 * 3), "frozen");
        cha.write(Control, 0x10000, at(50)).unwrap();
        assert_eq!(cha.read(Count(0), at(51)), Some(0x35 * 4));
        cha.write(Count(0), (1 << 48) - 1, at(51)).unwrap();
        assert_eq!(cha.read(Count(0), at(52)), Some(0x34), "it wraps at 48 bits");
        cha.write(Control, 0x10102, at(52)).unwrap();
        assert_eq!(cha.read(Count(0), at(52)), Some(0));
        cha.write(Control, 0x10101, at(52)).unwrap();
        assert_eq!(cha.read(Select(0), at(52)), Some(0));
        assert_eq!(cha.read(Count(4), at(52)), None);
        assert_eq!(cha.write(Select(4), 1, at(52)), None);
    }

    #[test]
    fn a_new_event_begins_where_the_old_one_left_the_counter() {
        use BoxRegister::{Count, Select};
        let mut cha = skylake();
        cha.write(Select(1), 0x40_0001, at(100)).unwrap();
        cha.write(Select(1), 0x40_0003, at(150)).unwrap();
        assert_eq!(cha.read(Count(1), at(160)), Some(50 + 30));
    }
}
