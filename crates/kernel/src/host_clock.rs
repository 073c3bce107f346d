//! The clock on which a host's registers count, read from a time stamp counter, beside the clock of this machine.
//!
//! On a real host both are the same. A virtual host whose model is slower than time has a slower clock, and so has one
//! that was asked to: its counters count less in a second of this machine's clock, although nothing in its traffic has
//! changed. Rates are therefore per second of the host's clock. Must not know which kind of host this is.

use crate::registers::{RegisterAddress, RegisterIo};
use waykeeper_generations::{Generation, Vendor};
use waykeeper_units::CoreId;

/// The time stamp counter (SDM vol. 4, table 2-2; APM vol. 2, appendix A).
const TSC: u32 = 0x10;

/// MSR_PLATFORM_INFO: the ratio without turbo in bits 15:8, to 100 MHz (hardware.md 6.4).
const PLATFORM_INFO: u32 = 0xce;

/// The definition of the first P-state of AMD CPUs, which is the base clock (hardware.md 6.4).
const FIRST_PSTATE: u32 = 0xc001_0064;

/// A host's clock that runs at less than this share of this machine's clock is slow, until it reaches the second share.
/// Assumption: traffic changes by more without a cause.
const SLOW: [f64; 2] = [0.9, 0.98];

/// Shortest time in which the two clocks are compared for [`HostClock::is_slow`], ns. Assumption: reading a register takes
/// at most a tenth of it.
const COMPARED_NS: u64 = 20_000_000;

/// The host's clock.
#[derive(Debug)]
pub struct HostClock {
    registers: Box<dyn RegisterIo>,
    /// A time stamp counter.
    counter: RegisterAddress,
    /// The length of its tick, ns.
    tick_ns: f64,
    /// This machine's clock and the host's clock at the last comparison, ns.
    last: Option<(u64, u64)>,
    slow: bool,
}

impl HostClock {
    /// The clock of the host that has these registers; `None` where its frequency is not known.
    pub fn open(registers: Box<dyn RegisterIo>, generation: &Generation, cpu: CoreId) -> Option<HostClock> {
        let mhz = frequency_mhz(registers.as_ref(), generation, cpu)?;
        let counter = RegisterAddress::Msr { cpu, address: TSC };
        Some(HostClock { registers, counter, tick_ns: 1e3 / mhz, last: None, slow: false })
    }

    /// The host's clock, ns, before the first counter of a sample that is taken at `now_ns` of this machine's clock. `None`
    /// if it cannot be read.
    pub fn sampled(&mut self, now_ns: u64) -> Option<u64> {
        let host_ns = self.now_ns()?;
        let passed_ns = self.last.map_or(u64::MAX, |(last_ns, _)| now_ns.saturating_sub(last_ns));
        if passed_ns >= COMPARED_NS {
            // A clock that is lower than before belongs to a host that started anew.
            let host_passed = self.last.and_then(|(_, last_host)| host_ns.checked_sub(last_host));
            let share = host_passed.map_or(1.0, |host| host as f64 / passed_ns as f64);
            self.slow = share < if self.slow { SLOW[1] } else { SLOW[0] };
            self.last = Some((now_ns, host_ns));
        }
        Some(host_ns)
    }

    /// The host's clock, ns, after the last counter of a sample was read. `None` if it cannot be read.
    pub fn now_ns(&self) -> Option<u64> {
        self.registers.read(&self.counter).ok().map(|ticks| (ticks as f64 * self.tick_ns) as u64)
    }

    /// Whether the host's clock runs slower than this machine's.
    pub fn is_slow(&self) -> bool {
        self.slow
    }
}

/// The frequency of a time stamp counter, MHz; `None` if it cannot be read.
fn frequency_mhz(registers: &dyn RegisterIo, generation: &Generation, cpu: CoreId) -> Option<f64> {
    let read = |address| registers.read_still(&RegisterAddress::Msr { cpu, address }).ok();
    let mhz = match generation.vendor {
        Vendor::Intel => (read(PLATFORM_INFO)? >> 8 & 0xff) as f64 * 100.0,
        Vendor::Amd => {
            let pstate = read(FIRST_PSTATE)?;
            match generation.signatures.iter().all(|rule| rule.family < 0x1a) {
                true => 200.0 * (pstate & 0xff) as f64 / (pstate >> 8 & 0x3f) as f64,
                false => 5.0 * (pstate & 0xfff) as f64,
            }
        }
    };
    (mhz.is_finite() && mhz > 0.0).then_some(mhz)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::rc::Rc;

    #[derive(Clone, Debug, Default)]
    struct Msrs(Rc<RefCell<BTreeMap<u32, u64>>>);

    impl Msrs {
        fn of(values: &[(u32, u64)]) -> Msrs {
            Msrs(Rc::new(RefCell::new(values.iter().copied().collect())))
        }

        fn set(&self, address: u32, value: u64) {
            self.0.borrow_mut().insert(address, value);
        }

        fn clock(&self, generation: &str) -> Option<HostClock> {
            let generation = Generation::by_id(generation).expect("a table");
            HostClock::open(Box::new(self.clone()), generation, CoreId(3))
        }
    }

    impl RegisterIo for Msrs {
        fn read(&self, register: &RegisterAddress) -> Result<u64, String> {
            self.0.borrow().get(&register.number()).copied().ok_or_else(|| format!("no {register}"))
        }

        fn write(&self, register: &RegisterAddress, _value: u64) -> Result<(), String> {
            Err(format!("{register} is only read"))
        }
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn a_host_that_is_slower_than_time_has_a_slow_clock_until_it_keeps_up() {
        // 23 times 100 MHz: 2.3 million ticks per millisecond.
        let msrs = Msrs::of(&[(PLATFORM_INFO, 23 << 8 | 0x80), (TSC, 2_300_000)]);
        let mut clock = msrs.clock("skx").unwrap();
        let mut sampled = |now_ms, host_ms: u64| {
            msrs.set(TSC, host_ms * 2_300_000);
            (clock.sampled(now_ms * MS).map(|ns| (ns + MS / 2) / MS), clock.is_slow())
        };
        assert_eq!(sampled(100, 1), (Some(1), false));
        // Half a second in one second; 95 % does not count as slow at first, but does not end it either.
        assert_eq!(sampled(1100, 951), (Some(951), false));
        assert_eq!(sampled(2100, 1451), (Some(1451), true));
        assert_eq!(sampled(3100, 2401), (Some(2401), true));
        // Too soon to be compared, then faster than time, because it catches up.
        assert_eq!(sampled(3101, 2501), (Some(2501), true));
        assert_eq!(sampled(4100, 3901), (Some(3901), false));
        // It started anew.
        assert_eq!(sampled(5100, 3), (Some(3), false));
    }

    #[test]
    fn without_a_frequency_or_a_counter_there_is_no_clock() {
        assert!(Msrs::of(&[(TSC, 0)]).clock("skx").is_none());
        assert!(Msrs::of(&[(PLATFORM_INFO, 0), (TSC, 0)]).clock("skx").is_none());
        let mut clock = Msrs::of(&[(PLATFORM_INFO, 23 << 8)]).clock("skx").unwrap();
        assert_eq!((clock.sampled(MS), clock.is_slow()), (None, false));
    }

    #[test]
    fn the_frequency_is_decoded_as_each_vendor_defines_it() {
        let mhz = |id: &str, values: &[(u32, u64)]| {
            frequency_mhz(&Msrs::of(values), Generation::by_id(id).expect("a table"), CoreId(0))
        };
        assert_eq!(mhz("spr", &[(PLATFORM_INFO, 0x08_0005_f3f8_1500)]), Some(2100.0));
        // 200 * 124 / 8 = 3100, and 5 * 0x258 = 3000.
        assert_eq!(mhz("zen4", &[(FIRST_PSTATE, 1 << 63 | 8 << 8 | 124)]), Some(3100.0));
        assert_eq!(mhz("zen4", &[(FIRST_PSTATE, 124)]), None, "a divisor of 0");
        assert_eq!(mhz("zen5", &[(FIRST_PSTATE, 1 << 63 | 0x258)]), Some(3000.0));
    }
}
